"""Coarse to fine: Fig. 5, public data sets. Their networks are trained at reproduction time."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from holdfast import data
from holdfast.data.dataset import Dataset
from holdfast.presentation.base import format_number
from holdfast.reproduce.base import Column, Part, Scale
from holdfast.reproduce.coarse_to_fine.explainers import evenly
from holdfast.reproduce.coarse_to_fine.paper import NETWORKS, SIX, STARRED
from holdfast.reproduce.coarse_to_fine.parts import (
    ROWS,
    explainers_of,
    gate_note,
    last,
    orders_agree,
    parts_of,
    rows_of,
    study_of,
)
from holdfast.reproduce.coarse_to_fine.training import Recipe, trained
from holdfast.reproduce.reading import Verdict, all_above
from holdfast.reproduce.safari.parts import by_outcome, scaled
from holdfast.study.results import Results

#: sets of the paper's Table B.I that the archive gives whole: channels and classes of each
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
#: of long series; not in a small run
_LONG = ("FordA", "FreezerRegularTrain")
FOLDER = "networks"
_COUNT, _REPEATS, _PLAYERS, _ORDERS, _STEPS = 40, 2, 100, 4, 400
_FULL_COUNT, _FULL_STEPS = 500, 4000

_ARCHITECTURES = dict(zip(NETWORKS, ("series_cnn", "bilstm", "series_transformer"), strict=True))
_SMALL: Mapping[str, Mapping[str, Any]] = {
    "CNN": {"width": 32, "stride": 2, "dropout": 0.1, "hidden": 32},
    "BiLSTM": {"units": [32, 32], "patch": 2, "hidden": 64},
}
_RATES = {"CNN": 1e-3, "BiLSTM": 1e-3, "Transformer": 2e-3}
_SMALL_RATE = 4e-3


def series(name: str, count: int) -> Dataset:
    """`count` test series of a set, evenly spread over it, as some are sorted by class; all where there are fewer."""
    found = data.load(f"ucr:{name}:test")
    return found.take(evenly(len(found.inputs), count))


def sets(scale: Scale) -> list[str]:
    """The sets of a scale."""
    return [name for name in SETS if scale == "full" or name not in _LONG]


def recipes(scale: Scale) -> dict[str, Recipe]:
    """How the networks of a scale are trained, by "network, set"."""
    found = {}
    for name in sets(scale):
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


def train_all(scale: Scale, folder: Path, progress: bool, plans: Mapping[str, Recipe] | None = None) -> list[str]:
    """The networks of a scale as files in the folder, those that are not there yet trained; and their accuracies."""
    accuracies: dict[str, list[str]] = {}
    plans = recipes(scale) if plans is None else plans
    for place, (model, recipe) in enumerate(plans.items(), start=1):
        if progress:
            print(f"network {place} of {len(plans)}: {model}", file=sys.stderr, flush=True)
        card = trained(recipe, folder / _file(model, scale), progress)
        network, name = model.split(", ")
        accuracies.setdefault(network, []).append(f"{name} {card['test_accuracy']:.0%}")
    return [f"test accuracy, {network}: {', '.join(told)}" for network, told in accuracies.items()]


def _study(scale: Scale) -> dict[str, Any]:
    small = scale == "small"
    count = _COUNT if small else _FULL_COUNT
    models = {}
    for model, recipe in recipes(scale).items():
        name = model.split(", ")[1]
        channels, classes = SETS[name]
        options = {**recipe.options, "in_channels": channels, "num_classes": classes}
        entry = {"architecture": recipe.architecture, "options": options, "weights": _file(model, scale)}
        models[model] = {**entry, "data": [name], "batch_size": ROWS}
    return study_of(
        "Explainers on public sets of series (Fig. 5)",
        None,
        _REPEATS if small else 5,
        data={
            name: {"function": f"{__name__}:series", "options": {"name": name, "count": count}} for name in sets(scale)
        },
        models=models,
        explainers=explainers_of(scale, _PLAYERS, _ORDERS, [f"ucr:{name}:train" for name in sets(scale)]),
    )


def _over_sets(results: Results) -> pl.DataFrame:
    """A row for each network, set and explainer: means over repeats."""
    frame = rows_of(results)
    if not len(frame):
        return frame.with_columns(pl.lit("").alias("network"))
    keys = ("data", "model", "explainer", "label", "status")
    rows = frame.group_by(*keys, maintain_order=True).agg(pl.exclude(*keys, "repeat").mean())
    # one name for each network, so that rows of different sets pair
    network = pl.col("model").str.split(", ").list.first()
    return rows.with_columns(network.alias("network"), network.alias("model"))


def _verdicts(frame: pl.DataFrame) -> list[Verdict]:
    found: list[Verdict] = []
    networks = parts_of(frame, "network") if len(frame) else {}
    for network, own in networks.items():
        best = "DS" if network == "CNN" else "SVS"
        pairs = [(best, other) for other in SIX if other != best]
        outcomes = {heading: all_above(own, pairs, column) for column, heading in STARRED.items()}
        found += by_outcome(f"{best} is the best over data sets, {network}", outcomes)
    lasts: dict[str, bool | None] = {}
    for network, own in networks.items():
        lasts |= {f"{network} {name}": last(part, "KS") for name, part in parts_of(own, "data").items()}
    found += by_outcome("KernelSHAP ranks last by AUC_top in every data set", lasts)
    agree = {f"{network} {format_number(value)}": holds for network, (value, holds) in _taus(networks).items()}
    found += by_outcome("coarse and fine orders mostly agree: median tau over data sets at least 0.6", agree)
    if {"CNN", "BiLSTM"} <= set(networks):
        wider: dict[str, bool | None] = {}
        for network in (name for name in NETWORKS[1:] if name in networks):
            for name in ("IG", "DL", "DS", "GS"):
                spans = [_span(networks[which], name) for which in (network, "CNN")]
                wider[f"{network} {name}"] = None if np.isnan(spans).any() else bool(spans[0] > spans[1])
        found += by_outcome(
            "IG, DL, DS and GS spread more over data sets than for the CNN (quartiles of AUC_top*)", wider
        )
    return found


def _taus(networks: Mapping[str, pl.DataFrame]) -> dict[str, tuple[float, bool | None]]:
    found: dict[str, tuple[float, bool | None]] = {}
    for network, own in networks.items():
        each = np.array([orders_agree(part)[0] for part in parts_of(own, "data").values()])
        each = each[np.isfinite(each)]
        found[network] = (float(np.median(each)), bool(np.median(each) >= 0.6)) if len(each) else (float("nan"), None)
    return found


def _span(frame: pl.DataFrame, name: str) -> float:
    values = frame.filter(pl.col("explainer") == name)["starred_auc_top"].drop_nulls().to_numpy()
    return float(np.subtract(*np.quantile(values, [0.75, 0.25]))) if len(values) else float("nan")


def _notes(frame: pl.DataFrame) -> list[str]:
    notes = []
    for network, own in (parts_of(frame, "network") if len(frame) else {}).items():
        ranks = own.drop_nulls("rank").group_by("explainer").agg(pl.col("rank").mean()).sort("rank")
        told = ", ".join(f"{name} {format_number(rank, 1)}" for name, rank in ranks.iter_rows())
        notes.append(f"{network}, mean rank by AUC_top over {own['data'].n_unique()} data sets: {told}")
    return [*notes, *gate_note(frame)]


def _quartiles(headings: Mapping[str, str]) -> tuple[Column, ...]:
    own: dict[str, Any] = {"judged": False, "decimals": 2, "statistic": "median", "spread": "quartiles"}
    return tuple(Column(heading, column, **own) for column, heading in headings.items())


def _differs(scale: Scale) -> str:
    words = (
        f"{_COUNT} test series of a set (all), {_REPEATS} repeats (5), CNN and BiLSTM alone, narrow and trained for"
        f" about {_STEPS} steps with a learning rate of {_SMALL_RATE:g}, Shapley value sampling with {_ORDERS} orders"
        f" of at most {_PLAYERS} windows of a channel (25 orders of all entries)"
    )
    return (
        scaled(scale, words)
        + (f"up to {_FULL_COUNT} test series of a set, " if scale == "full" else "")
        + f"{len(sets(scale))} of the 20 sets, in the archive's own split (the paper's sizes suggest another one); the"
        " paper's settings of networks and training for these sets are not published; the figure has no numbers;"
        " baselines and references as in Table E.I"
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
    differs=_differs,
    prepare=_over_sets,
    notes=_notes,
    verdicts=_verdicts,
    rows=("network", "explainer"),
    before=train_all,
)
