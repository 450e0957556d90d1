"""Coarse to fine: Fig. 5, public data sets. The networks are trained when the reproduction runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from papers.base import LOAD_EVENLY, Column, Part, Scale, call_function, if_small
from papers.coarse_to_fine.paper import NETWORKS, SIX, STARRED
from papers.coarse_to_fine.parts import (
    ROWS,
    is_last,
    make_explainers,
    make_rows,
    make_study,
    note_gates,
    orders_agree,
    split_rows,
)
from papers.coarse_to_fine.training import Recipe, train_or_load
from papers.reading import Outcomes, Verdict, all_above, group_by_outcome
from standfast.presentation.base import format_number
from standfast.study.results import Results

#: channels and classes of the sets of the paper's Table B.I that the archive provides without missing values
SETS: Mapping[str, tuple[int, int]] = {
    "CBF": (1, 3),
    "ElectricDevices": (1, 7),
    "FordA": (1, 2),
    "FreezerRegularTrain": (1, 2),
    "GunPointAgeSpan": (1, 2),
    "ItalyPowerDemand": (1, 2),
    "MoteStrain": (1, 2),
    "PenDigits": (2, 10),
    "SonyAIBORobotSurface1": (1, 2),
    "Strawberry": (1, 2),
    "TwoLeadECG": (1, 2),
}
#: sets of long series, which a small run leaves out
_LONG = ("FordA", "FreezerRegularTrain")
FOLDER = "networks"
_COUNT, _REPEATS, _WINDOWS, _ORDERS, _STEPS = 40, 2, 100, 4, 400
_FULL_COUNT, _FULL_STEPS = 500, 4000

_ARCHITECTURES = dict(zip(NETWORKS, ("series_cnn", "bilstm", "series_transformer"), strict=True))
_SMALL: Mapping[str, Mapping[str, Any]] = {
    "CNN": {"width": 32, "stride": 2, "dropout": 0.1, "hidden": 32},
    "BiLSTM": {"units": [32, 32], "patch": 2, "hidden": 64},
}
_RATES = {"CNN": 1e-3, "BiLSTM": 1e-3, "Transformer": 2e-3}
_SMALL_RATE = 4e-3


def list_sets(scale: Scale) -> list[str]:
    """The names of the sets of a scale."""
    return [name for name in SETS if scale == "full" or name not in _LONG]


def make_recipes(scale: Scale) -> dict[str, Recipe]:
    """The recipes for training the networks of a scale, by "network, set"."""
    found = {}
    for name in list_sets(scale):
        for network in _SMALL if scale == "small" else NETWORKS:
            found[f"{network}, {name}"] = Recipe(
                f"ucr:{name}",
                _ARCHITECTURES[network],
                _SMALL[network] if scale == "small" else {},
                steps=_STEPS if scale == "small" else _FULL_STEPS,
                learning_rate=_SMALL_RATE if scale == "small" else _RATES[network],
                weight_decay=1e-3 if network == "Transformer" else 0.0,
            )
    return found


def _file(model: str, scale: Scale) -> str:
    return f"{FOLDER}/{scale}/{model.replace(', ', '-')}.safetensors"


def train_networks(scale: Scale, folder: Path, progress: bool, plans: Mapping[str, Recipe] | None = None) -> list[str]:
    """Train the networks of a scale whose files are missing in the folder; returns notes on the accuracies of all."""
    accuracies: dict[str, list[str]] = {}
    plans = make_recipes(scale) if plans is None else plans
    for index, (model, recipe) in enumerate(plans.items(), start=1):
        if progress:
            print(f"network {index} of {len(plans)}: {model}", file=sys.stderr, flush=True)
        card = train_or_load(recipe, folder / _file(model, scale), progress)
        network, name = model.split(", ")
        accuracies.setdefault(network, []).append(f"{name} {card['test_accuracy']:.0%}")
    return [f"test accuracy, {network}: {', '.join(texts)}" for network, texts in accuracies.items()]


def _study(scale: Scale) -> dict[str, Any]:
    small = scale == "small"
    count = _COUNT if small else _FULL_COUNT
    models = {}
    for model, recipe in make_recipes(scale).items():
        name = model.split(", ")[1]
        channels, classes = SETS[name]
        options = {**recipe.options, "in_channels": channels, "num_classes": classes}
        entry = {"architecture": recipe.architecture, "options": options, "weights": _file(model, scale)}
        models[model] = {**entry, "data": [name], "batch_size": ROWS}
    return make_study(
        "Explainers on public sets of series (Fig. 5)",
        None,
        _REPEATS if small else 5,
        data={name: call_function(LOAD_EVENLY, name=f"ucr:{name}:test", count=count) for name in list_sets(scale)},
        models=models,
        explainers=make_explainers(scale, _WINDOWS, _ORDERS, [f"ucr:{name}:train" for name in list_sets(scale)]),
    )


def _over_sets(results: Results) -> pl.DataFrame:
    """One row for each network, set and explainer, with means over repeats."""
    frame = make_rows(results)
    if not len(frame):
        return frame.with_columns(pl.lit("").alias("network"))
    keys = ("data", "model", "explainer", "label", "status")
    rows = frame.group_by(*keys, maintain_order=True).agg(pl.exclude(*keys, "repeat").mean())
    # models of different sets have the same name, so that differences can be paired over sets
    network = pl.col("model").str.split(", ").list.first()
    return rows.with_columns(network.alias("network"), network.alias("model"))


def _verdicts(frame: pl.DataFrame) -> list[Verdict]:
    found: list[Verdict] = []
    networks = split_rows(frame, "network") if len(frame) else {}
    for network, own in networks.items():
        best = "DS" if network == "CNN" else "SVS"
        pairs = [(best, other) for other in SIX if other != best]
        outcomes = {heading: all_above(own, pairs, column) for column, heading in STARRED.items()}
        found += group_by_outcome(f"{best} is the best over data sets, {network}", outcomes)
    lasts: Outcomes = {}
    for network, own in networks.items():
        lasts |= {f"{network} {name}": is_last(part, "KS") for name, part in split_rows(own, "data").items()}
    found += group_by_outcome("KernelSHAP ranks last by AUC_top in every data set", lasts)
    agree = {f"{network} {format_number(value)}": holds for network, (value, holds) in _taus(networks).items()}
    found += group_by_outcome("coarse and fine orders mostly agree: median tau over data sets at least 0.6", agree)
    if {"CNN", "BiLSTM"} <= set(networks):
        wider: Outcomes = {}
        for network in (name for name in NETWORKS[1:] if name in networks):
            for name in ("IG", "DL", "DS", "GS"):
                spans = [_span(networks[which], name) for which in (network, "CNN")]
                wider[f"{network} {name}"] = None if np.isnan(spans).any() else bool(spans[0] > spans[1])
        found += group_by_outcome(
            "IG, DL, DS and GS spread more over data sets than for the CNN (quartiles of AUC_top*)", wider
        )
    return found


def _taus(networks: Mapping[str, pl.DataFrame]) -> dict[str, tuple[float, bool | None]]:
    """For each network the median over sets of Kendall's tau, and whether it is at least 0.6."""
    found: dict[str, tuple[float, bool | None]] = {}
    for network, own in networks.items():
        each = np.array([orders_agree(part)[0] for part in split_rows(own, "data").values()])
        each = each[np.isfinite(each)]
        found[network] = (float(np.median(each)), bool(np.median(each) >= 0.6)) if len(each) else (float("nan"), None)
    return found


def _span(frame: pl.DataFrame, name: str) -> float:
    """The distance between the quartiles of an explainer's AUC_top* over sets."""
    values = frame.filter(pl.col("explainer") == name)["starred_auc_top"].drop_nulls().to_numpy()
    return float(np.subtract(*np.quantile(values, [0.75, 0.25]))) if len(values) else float("nan")


def _notes(frame: pl.DataFrame) -> list[str]:
    notes = []
    for network, own in (split_rows(frame, "network") if len(frame) else {}).items():
        ranks = own.drop_nulls("rank").group_by("explainer").agg(pl.col("rank").mean()).sort("rank")
        texts = ", ".join(f"{name} {format_number(rank, 1)}" for name, rank in ranks.iter_rows())
        notes.append(f"{network}, mean rank by AUC_top over {own['data'].n_unique()} data sets: {texts}")
    return [*notes, *note_gates(frame)]


def _quartiles(headings: Mapping[str, str]) -> tuple[Column, ...]:
    own: dict[str, Any] = {"judged": False, "decimals": 2, "statistic": "median", "spread": "quartiles"}
    return tuple(Column(heading, column, **own) for column, heading in headings.items())


def _departures(scale: Scale) -> str:
    text = (
        f"{_COUNT} test series per set (all), {_REPEATS} repeats (5), only CNN and BiLSTM, narrow and trained for about"
        f" {_STEPS} steps with a learning rate of {_SMALL_RATE:g}, Shapley value sampling with {_ORDERS} orders of at"
        f" most {_WINDOWS} windows of each channel (25 orders of all entries)"
    )
    return (
        if_small(scale, text)
        + (f"up to {_FULL_COUNT} test series per set, " if scale == "full" else "")
        + f"{len(list_sets(scale))} of the 20 sets, with the archive's split (the paper's sizes suggest another one);"
        " the paper does not publish its networks and training for these sets; the figure has no numbers; baselines and"
        " references as in Table E.I"
    )


FIGURE5_PART = Part(
    name="coarse-figure5",
    title="Fig. 5: over public data sets: median [quartiles]",
    study=_study,
    columns=(
        *_quartiles(STARRED),
        *_quartiles({"auc_top": "AUC_top", "f1_paper": "F1", "share_above": "drop ≥ 0.5"}),
        Column("rank", "rank", judged=False, decimals=1, spread="deviation"),
        Column("gate", "gate", judged=False, decimals=2, spread="deviation"),
    ),
    departures=_departures,
    prepare=_over_sets,
    notes=_notes,
    verdicts=_verdicts,
    rows=("network", "explainer"),
    make_files=train_networks,
)
