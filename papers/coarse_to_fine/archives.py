"""Coarse to fine: Fig. 5, public data sets. The networks are trained when the reproduction runs.

The sets are those of the paper's Table B.I that the archive provides without missing values. A small run leaves out
the sets of long series.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from papers.base import Column, Scale
from papers.coarse_to_fine.rows import (
    AGREES,
    SIX,
    STARRED,
    agrees,
    compare_orders,
    is_last,
    make_part,
    make_rows,
    note_gates,
    split_rows,
)
from papers.coarse_to_fine.training import train_or_load
from papers.files import study_file
from papers.reading import Outcomes, Verdict, all_above, group_by_outcome
from standfast.presentation.base import format_number
from standfast.study.results import Results

read_study = study_file("coarse_to_fine/studies/figure5.yaml")
_SMALL_TRAINING = {"steps": 400, "learning_rate": 4e-3}
_FULL_TRAINING = {
    "CNN": {"steps": 4000, "learning_rate": 1e-3},
    "BiLSTM": {"steps": 4000, "learning_rate": 1e-3},
    "Transformer": {"steps": 4000, "learning_rate": 2e-3, "weight_decay": 1e-3},
}


def train_networks(scale: Scale, folder: Path, progress: bool) -> list[str]:
    """Train the networks of a scale whose files are missing in the folder; returns notes on the accuracies of all."""
    accuracies: dict[str, list[str]] = {}
    models = read_study(scale)["models"]
    for index, (name, model) in enumerate(models.items(), start=1):
        if progress:
            print(f"network {index} of {len(models)}: {name}", file=sys.stderr, flush=True)
        network, data = name.split(", ")
        settings: dict[str, Any] = _SMALL_TRAINING if scale == "small" else _FULL_TRAINING[network]
        recipe = {"data": f"ucr:{data}", "architecture": model["architecture"], "options": model["options"], **settings}
        card = train_or_load(recipe, folder / model["weights"])
        accuracies.setdefault(network, []).append(f"{data} {card['test_accuracy']:.0%}")
    return [f"test accuracy, {network}: {', '.join(texts)}" for network, texts in accuracies.items()]


def _average_repeats(results: Results) -> pl.DataFrame:
    """One row for each network, set and explainer, with means over repeats."""
    frame = make_rows(results)
    if not len(frame):
        return frame
    keys = ("data", "network", "explainer", "label", "status")
    rows = frame.group_by(*keys, maintain_order=True).agg(pl.exclude(*keys, "repeat", "model").mean())
    # models of different sets have the same name, so that differences can be paired over sets
    return rows.with_columns(pl.col("network").alias("model"))


def _judge_figure5(frame: pl.DataFrame) -> list[Verdict]:
    found: list[Verdict] = []
    lasts: Outcomes = {}
    agree: Outcomes = {}
    for network, own in (split_rows(frame, "network") if len(frame) else {}).items():
        best = "DS" if network == "CNN" else "SVS"
        pairs = [(best, other) for other in SIX if other != best]
        outcomes = {heading: all_above(own, pairs, column) for heading, column in STARRED.items()}
        found += group_by_outcome(f"{best} is the best over data sets, {network}", outcomes)
        sets = split_rows(own, "data")
        lasts |= {f"{network} {name}": is_last(part) for name, part in sets.items()}
        taus = np.array([compare_orders(part) for part in sets.values()])
        tau = float(np.median(taus[np.isfinite(taus)])) if np.isfinite(taus).any() else float("nan")
        agree[f"{network} {format_number(tau)}"] = agrees(tau)
    return [
        *found,
        *group_by_outcome("KernelSHAP ranks last by AUC_top in every data set", lasts),
        *group_by_outcome(f"coarse and fine orders mostly agree: median tau over data sets at least {AGREES}", agree),
    ]


FIGURE5_PART = make_part(
    "figure5",
    "Fig. 5: over public data sets: median [quartiles]",
    (
        *(
            Column(heading, column, decimals=2, statistic="median", spread="quartiles")
            for heading, column in {
                **STARRED,
                "AUC_top": "auc_top",
                "F1": "f1_paper",
                "drop ≥ 0.5": "share_above",
            }.items()
        ),
        Column("rank", "rank", decimals=1, spread="deviation"),
        Column("gate", "gate", decimals=2, spread="deviation"),
    ),
    prepare=_average_repeats,
    notes=note_gates,
    verdicts=_judge_figure5,
    make_files=train_networks,
)
