"""Coarse to fine: on synthetic series Table E.I (noise), Fig. 4 (distributions), App. D (calibration); and Fig. 5.

Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024). Fig. 5 has public data
sets: those of the paper's Table B.I that the archive provides without missing values. A small run leaves out the sets
of long series. Their networks are trained when the reproduction runs.
"""

from __future__ import annotations

import sys
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from papers.base import Column, Reproduction, Scale, reproductions
from papers.coarse_to_fine.rows import (
    AGREES,
    NETWORKS,
    SHOWN,
    SIX,
    STARRED,
    agrees,
    average_by_explainer,
    compare_orders,
    is_above_others,
    is_last,
    judge_parts,
    kendall_tau,
    make_columns,
    make_rows,
    note_gates,
    split_rows,
)
from papers.coarse_to_fine.training import train_or_load
from papers.files import make_part, read_numbers
from papers.reading import Outcomes, Verdict, all_above, group_by_outcome
from standfast.report import Results
from standfast.results.formatting import format_number

_ABSOLUTE = {
    "AUC_top": "auc_top",
    "F1": "f1_paper",
    "F1, not held": "f1_framework",
    "mean skewness": "skewness",
    "mean ekurtosis": "kurtosis",
    "drop ≥ 0.5": "share_above",
}
_make_part = partial(make_part, "coarse_to_fine", prepare=make_rows, rows=("network", "explainer"))
_GATES = (Column("gate", "gate", decimals=2), Column("gate, positive", "gate_positive", decimals=2))


def _select_network(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    return frame.filter(pl.col("network") == name)


# ---- Table E.I: noise ----

#: the paper's means and deviations over the data without noise and with noise of 20, 15 and 10 dB, five repeats each
_PAPER = read_numbers("coarse_to_fine/tableE1.csv", keys=2)


def read_means(heading: str, network: str) -> dict[str, float]:
    """The paper's means for a network, by explainer.

    >>> read_means("AUC_top*", "CNN")["SVS"]
    0.99
    """
    return {name: float(str(_PAPER[heading][f"{network}, {name}"]).split(" ")[0]) for name in SIX}


def _judge_table_e1(frame: pl.DataFrame) -> list[Verdict]:
    found: list[Verdict] = []
    for text, network, firsts in (
        ("DeepSHAP and Shapley value sampling lead (AUC_top, CNN)", "CNN", ("DS", "SVS")),
        ("Shapley value sampling is first (AUC_top, BiLSTM)", "BiLSTM", ("SVS",)),
        ("Shapley value sampling is first (AUC_top, Transformer)", "Transformer", ("SVS",)),
    ):
        found += judge_parts(
            text, _select_network(frame, network), partial(is_above_others, firsts=firsts)
        )
    found += judge_parts("KernelSHAP ranks last (AUC_top)", frame, is_last)
    text = f"coarse and fine orders mostly agree: Kendall's tau of AUC_top* and AUCSkew* at least {AGREES:g}"
    found += judge_parts(text, frame, lambda own: agrees(compare_orders(own)))
    most = {network: _is_most_robust(_select_network(frame, network)) for network in NETWORKS}
    return found + group_by_outcome(
        "with noise Shapley value sampling is the most robust (AUCSkew*)", most
    )


def _is_most_robust(frame: pl.DataFrame) -> bool | None:
    """Whether Shapley value sampling has the largest AUCSkew* for each noise; None if it has only the largest mean."""
    noisy = frame.filter(pl.col("data") != "no noise")
    if not len(noisy):
        return None
    means = [
        average_by_explainer(own, "starred_auc_skewness")
        for own in (*split_rows(noisy).values(), noisy)
    ]
    first = [max(each, key=lambda name: each[name]) == "SVS" for each in means]
    return True if all(first) else None if first[-1] else False


def _note_orders(frame: pl.DataFrame) -> list[str]:
    notes = []
    for network, own in (split_rows(frame, "network") if len(frame) else {}).items():
        taus = [
            f"{data} {format_number(compare_orders(part))}"
            for data, part in split_rows(own, "data").items()
        ]
        paper = format_number(
            kendall_tau(read_means("AUC_top*", network), read_means("AUCSkew*", network))
        )
        notes.append(
            f"{network}, Kendall's tau of coarse and fine: {', '.join(taus)} (paper's means {paper})"
        )
    return [*notes, *note_gates(frame)]


def _note_spread(frame: pl.DataFrame) -> list[str]:
    """Notes on how much of the spread comes from the random replacements, and how much from the noise of the data."""
    notes = []
    per_data = frame.group_by("network", "explainer", "data", maintain_order=True).agg(
        pl.col("starred_auc_top").std().alias("within"),
        pl.col("starred_auc_top").mean().alias("mean"),
    )
    found = per_data.group_by("network", "explainer", maintain_order=True).agg(
        pl.col("within").mean(), pl.col("mean").std().alias("between")
    )
    for network, own in (split_rows(found.drop_nulls(), "network") if len(found) else {}).items():
        texts = (
            f"{row[1]} {format_number(row[2])} and {format_number(row[3])}"
            for row in own.iter_rows()
        )
        text = "deviation of AUC_top* over repeats, and of its means over noises"
        notes.append(f"{network}, {text}: {', '.join(texts)}")
    return notes


TABLE_E1_PART = _make_part(
    "tableE1",
    "Table E.I: coarse and fine, over noise and repeats: mean ± standard deviation",
    (
        *make_columns(STARRED, _PAPER),
        *make_columns({"F1*, not held": "starred_f1_framework"}),
        *make_columns(_ABSOLUTE),
        *_GATES,
    ),
    notes=lambda frame: [*_note_orders(frame), *_note_spread(frame)],
    verdicts=_judge_table_e1,
)

# ---- Fig. 4: distributions ----


def _judge_figure4(frame: pl.DataFrame) -> list[Verdict]:
    best = "DeepSHAP is the best by AUC_top (the paper: Transformer)"
    return [
        *judge_parts(best, frame, partial(is_above_others, firsts=("DS",)), "network"),
        *judge_parts("KernelSHAP is the worst by AUC_top", frame, is_last, "network"),
    ]


FIGURE4_PART = _make_part(
    "figure4",
    "Fig. 4: the drop along k, its skewness and excess kurtosis: mean ± standard deviation over repeats",
    (
        *make_columns(STARRED),
        *make_columns({f"drop, k = {k:g}": f"drop {k:g}" for k in SHOWN}),
        *make_columns({f"skewness, k = {k:g}": f"skewness {k:g}" for k in SHOWN}),
        *make_columns({f"ekurtosis, k = {k:g}": f"kurtosis {k:g}" for k in SHOWN}),
        *make_columns({"lower quartile": "quartile"}),
        *_GATES,
    ),
    notes=_note_orders,
    verdicts=_judge_figure4,
)

# ---- App. D: calibration ----


def _split_calibrated(frame: pl.DataFrame, network: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of the calibrated network, and of the one without calibration."""
    own = _select_network(frame, network)
    return own.filter(pl.col("model") != network), own.filter(pl.col("model") == network)


def compare_skewness(frame: pl.DataFrame, network: str) -> Outcomes:
    """Whether AUCSkew (absolute) is larger with calibration, by explainer; None where the intervals overlap."""
    found: Outcomes = {}
    for name in SIX:
        ends = [
            part.filter(pl.col("explainer") == name).select("skewness_low", "skewness_high").rows()
            for part in _split_calibrated(frame, network)
        ]
        if all(ends):
            (low, high), (other_low, other_high) = (rows[0] for rows in ends)
            found[f"{network} {name}"] = (
                True if low > other_high else False if high < other_low else None
            )
    return found


def keeps_order(frame: pl.DataFrame, network: str) -> bool | None:
    """Whether all pairs have the same order by AUC_top; False if a pair is clearly reversed; else None."""
    calibrated, plain = _split_calibrated(frame, network)
    for first, other in permutations(SIX, 2):
        if is_above_others(calibrated, [first], [other]) and is_above_others(
            plain, [other], [first]
        ):
            return False
    means = [average_by_explainer(part, "auc_top") for part in (calibrated, plain)]
    orders = [sorted(each, key=lambda name: each[name]) for each in means]
    return True if len(orders[0]) == len(SIX) and orders[0] == orders[1] else None


def _judge_calibrated(frame: pl.DataFrame) -> list[Verdict]:
    skewed: Outcomes = {}
    for network in NETWORKS:
        skewed |= compare_skewness(frame, network)
    order = {network: keeps_order(frame, network) for network in NETWORKS}
    return [
        *group_by_outcome(
            "calibration makes distributions more left-skewed (AUCSkew, absolute)", skewed
        ),
        *group_by_outcome("calibration leaves the order of the explainers (AUC_top)", order),
    ]


def _note_calibrated(frame: pl.DataFrame) -> list[str]:
    taus = []
    for network in NETWORKS:
        found = [
            average_by_explainer(part, "auc_top") for part in _split_calibrated(frame, network)
        ]
        taus.append(f"{network} {format_number(kendall_tau(*found))}")
    return [
        f"Kendall's tau of AUC_top with and without calibration: {', '.join(taus)}",
        *note_gates(frame),
    ]


CALIBRATED_PART = _make_part(
    "calibrated",
    "App. D: with and without a calibrated loss: mean ± standard deviation over repeats",
    (
        *make_columns(STARRED),
        *make_columns(_ABSOLUTE),
        *make_columns(
            {"AUCSkew": "auc_skewness", "AUCKurt": "auc_kurtosis", "lower quartile": "quartile"}
        ),
        *_GATES,
    ),
    notes=_note_calibrated,
    verdicts=_judge_calibrated,
    rows=("model", "explainer"),
)

# ---- Fig. 5: public data sets ----

_MEDIANS = {**STARRED, "AUC_top": "auc_top", "F1": "f1_paper", "drop ≥ 0.5": "share_above"}
_SMALL_TRAINING = {"steps": 400, "learning_rate": 4e-3}
_FULL_TRAINING = {
    "CNN": {"steps": 4000, "learning_rate": 1e-3},
    "BiLSTM": {"steps": 4000, "learning_rate": 1e-3},
    "Transformer": {"steps": 4000, "learning_rate": 2e-3, "weight_decay": 1e-3},
}


def train_networks(scale: Scale, folder: Path, progress: bool) -> list[str]:
    """Train the networks of a scale whose files are missing in the folder; returns notes on the accuracies of all."""
    accuracies: dict[str, list[str]] = {}
    assert FIGURE5_PART.study is not None
    models = FIGURE5_PART.study(scale)["models"]
    for index, (name, model) in enumerate(models.items(), start=1):
        if progress:
            print(f"network {index} of {len(models)}: {name}", file=sys.stderr, flush=True)
        network, data = name.split(", ")
        settings: dict[str, Any] = _SMALL_TRAINING if scale == "small" else _FULL_TRAINING[network]
        recipe = {
            "data": f"ucr:{data}",
            "architecture": model["architecture"],
            "options": model["options"],
            **settings,
        }
        card = train_or_load(recipe, folder / model["weights"])
        accuracies.setdefault(network, []).append(f"{data} {card['test_accuracy']:.0%}")
    return [
        f"test accuracy, {network}: {', '.join(texts)}" for network, texts in accuracies.items()
    ]


def _average_repeats(results: Results) -> pl.DataFrame:
    """One row for each network, set and explainer, with means over repeats."""
    frame = make_rows(results)
    if not len(frame):
        return frame
    keys = ("data", "network", "explainer", "label", "status")
    rows = frame.group_by(*keys, maintain_order=True).agg(
        pl.exclude(*keys, "repeat", "model").mean()
    )
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
        *group_by_outcome(
            f"coarse and fine orders mostly agree: median tau over data sets at least {AGREES}",
            agree,
        ),
    ]


FIGURE5_PART = _make_part(
    "figure5",
    "Fig. 5: over public data sets: median [quartiles]",
    (
        *(
            Column(heading, name, decimals=2, statistic="median", spread="quartiles")
            for heading, name in _MEDIANS.items()
        ),
        Column("rank", "rank", decimals=1, spread="deviation"),
        Column("gate", "gate", decimals=2, spread="deviation"),
    ),
    prepare=_average_repeats,
    notes=note_gates,
    verdicts=_judge_figure5,
    make_files=train_networks,
)

for _name, _title, _part in (
    ("figure4", "Fig. 4: distributions of the drop, synthetic series", FIGURE4_PART),
    ("figure5", "Fig. 5: public data sets", FIGURE5_PART),
    ("tableE1", "Table E.I: noise", TABLE_E1_PART),
    ("calibrated", "App. D: calibration", CALIBRATED_PART),
):
    reproductions.add(f"coarse-{_name}", Reproduction(f"Coarse to fine, {_title}", (_part,)))
