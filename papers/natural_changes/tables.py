"""FASS: a table of explainers x changes on photos, and what searches and probabilities add to it.

Subramaniakuppusamy and Gajjar, "Feature Attribution Stability Suite: How Stable Are Post-Hoc Attributions?" (XAI4CV at
CVPR 2026, arXiv:2604.02532). The paper makes one copy of each image by each of five changes and compares its map with
that of the image (`pairs`). The first part does the same. The second part lets each change vary between none and the
paper's, and searches for the worst map, and estimates how often the map is an unrelated one.

The paper's numbers for ResNet-50 and single changes are those that the authors' notebook
`results/FASS_Results_Visualization.ipynb` prints (github.com/KamalasankariSubramaniakuppusamy/xai-stability-benchmark).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from papers.base import Column, Part, Reproduction, Scale, call_function, reproductions
from papers.natural_changes.photos import INSTALL, has_network
from papers.reading import (
    Verdict,
    add_label_words,
    all_above,
    group_by_outcome,
    is_above,
    is_at_least,
    keep_exact,
    mean_interval,
)
from standfast.tensors import Array

RESNET, LITE0, STAND_IN = "ResNet-50", "EfficientNet-lite0", "UNTRAINED STAND-IN"
_IG, _SHAP, _CAM, _LIME = "Integrated Gradients", "GradientSHAP", "Grad-CAM", "LIME"
_RANDOM = "random"

#: the paper's changes: as a single one, and as a range from none to it
CHANGES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "rotation": ({"degrees": [15, 15], "fill": "lower"}, {"degrees": 15, "fill": "lower"}),
    "translation": ({"pixels": [20, 20], "fill": "lower"}, {"pixels": 20, "fill": "lower"}),
    "brightness": ({"shift": [0.2, 0.2]}, {"shift": [0.0, 0.2]}),
    "gaussian_noise": ({"scale": [0.15, 0.15]}, {"scale": 0.15}),
    "jpeg": ({"quality": [40, 40]}, {"quality": [40, 100]}),
}
_GEOMETRIC, _OTHERS = ("rotation", "translation"), ("brightness", "gaussian_noise", "jpeg")

#: FASS of ResNet-50 on ImageNet, as the authors' notebook prints it; single changes of an explainer have no number
_PAPER = {
    "rotation": {_LIME: 0.410},
    "translation": {_IG: 0.418, _SHAP: 0.421, _CAM: 0.671, _LIME: 0.340},
    "brightness": {_IG: 0.502, _SHAP: 0.472, _CAM: 0.821, _LIME: 0.390},
    "gaussian_noise": {_LIME: 0.470},
    "jpeg": {_IG: 0.541, _SHAP: 0.492, _CAM: 0.853, _LIME: 0.430},
}

#: photos of the pairs, of the searches, and for the share of pairs that keep the class; and their sides in pixels
_PHOTOS: dict[Scale, tuple[int, int, int]] = {"small": (8, 8, 100), "full": (100, 50, 100)}
_SIDES: dict[Scale, tuple[int, int, int]] = {"small": (224, 128, 224), "full": (224, 224, 224)}
#: of integrated gradients, of GradientSHAP, of LIME's masked copies
_STEPS: dict[Scale, tuple[int, int, int]] = {"small": (4, 5, 60), "full": (50, 5, 1000)}
_FEW: dict[Scale, tuple[int, int, int]] = {"small": (3, 4, 24), "full": (50, 5, 1000)}
_BUDGET: dict[Scale, tuple[int, int]] = {"small": (12, 8), "full": (300, 300)}  # of a search, draws of a probability
_THRESHOLD = 0.4
#: mean over data sets and networks
_PAPER_KEPT = {"rotation": 0.309, "translation": 0.001, "brightness": 0.008, "gaussian_noise": 0.345, "jpeg": 0.010}


def _name_network(scale: Scale) -> str:
    return RESNET if scale == "full" else LITE0 if has_network() else STAND_IN


def _make_study(
    scale: Scale, title: str, place: int, steps: tuple[int, int, int], metrics: dict[str, Any]
) -> dict[str, Any]:
    """A study of the four explainers; without a trained network its title says so."""
    network, here = _name_network(scale), __name__.rpartition(".")[0]
    integrated, shap, lime = steps
    count, side = _PHOTOS[scale][place], _SIDES[scale][place]
    loaded = call_function(f"{here}.photos:load_labelled_photos", count=count, side=side)
    model: dict[str, Any] | str = {"function": f"{here}.photos:load_lite0", "batch_size": 16}
    if network == RESNET:
        model = "timm:resnet50"
    elif network == STAND_IN:
        loaded = call_function("papers.photos:load_photos", count=count, side=64)
        model = {"function": "papers.safari.imagenet:make_stand_in", "batch_size": 64}
        title += f": a test of the computation, with an {STAND_IN.lower()}"
    return {
        "title": title,
        "samples": count,
        "samples_per_job": 4,
        "data": {"ImageNet photos": loaded},
        "models": {network: model},
        "explainers": {
            _IG: {"name": "integrated_gradients", "steps": integrated},
            _SHAP: {"name": "gradient_shap", "samples": shap, "noise": 0.09},
            _CAM: "gradcam",
            _LIME: {"name": "lime", "samples": lime, "segments": 49, "output": "logit"},
            _RANDOM: _RANDOM,
        },
        "metrics": metrics,
    }


def _pair_metrics() -> dict[str, Any]:
    here = __name__.rpartition(".")[0]
    return {
        change: call_function(f"{here}.pairs:PairStability", neighbourhood={change: single})
        for change, (single, _) in CHANGES.items()
    }


def _departures(scale: Scale, place: int) -> str:
    integrated, shap, lime = (_FEW if place == 1 else _STEPS)[scale]
    network = _name_network(scale)
    words = [
        f"{_PHOTOS[scale][place]} photos of {_SIDES[scale][place]}x{_SIDES[scale][place]} pixels (40,000 of 224x224)",
        "only photos that the network classifies rightly",
        "brightness adds 0.2 of the range (times 1.5)",
        "translation by 20 pixels to the right and down (horizontal)",
    ]
    if place != 2:
        words.append(
            f"integrated gradients with {integrated} steps, GradientSHAP with {shap} samples, LIME with {lime} masked"
            " copies of about 49 segments (not stated)"
        )
    if network != RESNET:
        words.insert(0, f"{network} ({RESNET})")
    return "; ".join(words)


def _describe_network(frame: pl.DataFrame) -> list[str]:
    if "model" in frame.columns and STAND_IN in frame["model"].to_list():
        return [
            f"{STAND_IN}: THESE NUMBERS SAY NOTHING ABOUT EXPLAINERS; no sentence is judged. A small trained network"
            f" is used if it is here: {INSTALL}"
        ]
    return []


def _is_trained(frame: pl.DataFrame) -> bool:
    return "model" in frame.columns and len(frame) > 0 and STAND_IN not in frame["model"].to_list()


# ---- pairs, as in the paper ----


def _judge_pairs(frame: pl.DataFrame) -> list[Verdict]:
    """The paper's sentences, by paired differences on the same photos."""
    if not _is_trained(frame):
        return []
    others = [(_CAM, name) for name in (_IG, _SHAP, _LIME)]
    best = {}
    for change in frame["label"].unique(maintain_order=True).to_list():
        own = frame.filter(pl.col("label") == change)
        best[change] = all_above(own, others, "value")
    lower: dict[str, dict[str, bool | None]] = {"value": {}, "unaligned": {}}
    for column, found in lower.items():
        for name in (_IG, _SHAP, _CAM, _LIME):
            gain = _contrast(frame.filter(pl.col("explainer") == name), column)
            found[name] = is_above(mean_interval(gain), 0)
    text = "rotation and translation lower FASS more than brightness, noise and JPEG"
    return [
        *group_by_outcome("Grad-CAM is the most stable (above all others, our reading)", best),
        *group_by_outcome(f"{text}, maps compared as they are", lower["unaligned"]),
        *group_by_outcome(f"{text}, maps moved back", lower["value"]),
    ]


def _contrast(frame: pl.DataFrame, column: str) -> Array:
    """For each photo, the mean of `column` over other changes minus that over geometric ones."""
    if column not in frame.columns:
        return np.empty(0)
    rows = frame.filter(pl.col(column).is_finite().fill_null(False))
    means = [
        rows.filter(pl.col("label").is_in(list(changes))).group_by("sample").agg(pl.col(column).mean().alias(name))
        for name, changes in (("other", _OTHERS), ("geometric", _GEOMETRIC))
    ]
    both = means[0].join(means[1], on="sample").sort("sample")
    return np.asarray((both["other"] - both["geometric"]).to_numpy(), dtype=float)


_PAIR_ROWS = {f"{change}, {name}": value for change, own in _PAPER.items() for name, value in own.items()}

PAIR_PART = Part(
    name="fass-pairs",
    title="Stability of maps under one change, of pairs that keep the class: mean over photos [95% interval]",
    study=lambda scale: _make_study(
        scale,
        "Explainers under the changes of FASS",
        0,
        _STEPS[scale],
        _pair_metrics(),
    ),
    columns=(
        Column("FASS", "value", decimals=2, paper=_PAIR_ROWS),
        Column("FASS, maps not moved back", "unaligned", decimals=2),
        Column("SSIM", "ssim", decimals=2),
        Column("rank correlation", "spearman", decimals=2),
        Column("top-100 Jaccard", "jaccard", decimals=2),
        Column("FASS of all pairs", "unfiltered", decimals=2),
        Column("share that keeps the class", "kept", decimals=2),
    ),
    departures=lambda scale: _departures(scale, 0),
    notes=_describe_network,
    verdicts=_judge_pairs,
    rows=("label", "explainer"),
)


# ---- the share of pairs that keep the class, on more photos ----


def _judge_kept(frame: pl.DataFrame) -> list[Verdict]:
    if not _is_trained(frame):
        return []
    changed = {}
    for change in frame["label"].unique(maintain_order=True).to_list():
        shares = keep_exact(frame.filter(pl.col("label") == change), "kept")["kept"].to_numpy().astype(float)
        kept = is_at_least(mean_interval(shares), 0.5)
        changed[change] = None if kept is None else not kept
    return group_by_outcome("most pairs change the class (less than half keep it, our reading of 'up to 99%')", changed)


def _kept_study(scale: Scale) -> dict[str, Any]:
    """Of all photos; the maps do not matter, so the explainer is one that costs nothing."""
    study = _make_study(scale, "Pairs that keep the class", 2, _STEPS[scale], _pair_metrics())
    return {**study, "explainers": {_RANDOM: _RANDOM}, "samples_per_job": 50}


KEPT_PART = Part(
    name="fass-kept",
    title="Share of pairs that keep the class: mean over photos [95% interval]",
    study=_kept_study,
    columns=(Column("share that keeps the class", "kept", decimals=2, paper=_PAPER_KEPT),),
    departures=lambda scale: f"{_departures(scale, 2)}; the paper's shares are those of three data sets together",
    notes=_describe_network,
    verdicts=_judge_kept,
    rows=("label",),
)

# ---- worst cases and probabilities ----


def _search_metrics(scale: Scale) -> dict[str, Any]:
    budget, draws = _BUDGET[scale]
    made: dict[str, Any] = {}
    for change, (_, around) in CHANGES.items():
        shared = {"neighbourhood": {change: around}, "similarity": "spearman", "explain": "origin"}
        # a search over noise would find a pattern that is possible, but that no camera makes
        search = "random" if change == "gaussian_noise" else "auto"
        made[f"{change}, worst"] = {"name": "worst_case", "budget": budget, "search": search, **shared}
        made[f"{change}, probability"] = {
            "name": "misinterpretation_probability",
            "method": "monte_carlo",
            "samples": draws,
            "threshold": _THRESHOLD,
            **shared,
        }
    return made


def add_shares(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows with the words of their labels as `change` and `what`, and the `share` of draws that are the event.

    A share of 0 draws has no logarithm; `value` is then only a bound (`censored`). The mean of shares over photos needs
    no bounds: it estimates the mean probability.
    """
    frame = add_label_words(frame, "change", "what")
    if not {"log_probability", "censored"} <= set(frame.columns):
        return frame
    none = pl.col("censored").cast(pl.Boolean)
    share = pl.when(none).then(0.0).otherwise(pl.col("log_probability").exp())
    return frame.with_columns(share=pl.when(pl.col("status") == "ok").then(share), bound=pl.lit(False))


def _judge_searches(frame: pl.DataFrame) -> list[Verdict]:
    if not _is_trained(frame):
        return []
    worst = frame.filter(pl.col("what") == "worst")
    others = [(_CAM, name) for name in (_IG, _SHAP, _LIME)]
    best = {
        change: all_above(worst.filter(pl.col("change") == change), others, "similarity")
        for change in worst["change"].unique(maintain_order=True).to_list()
    }
    return group_by_outcome("Grad-CAM is the most stable in the worst case (above all others, our reading)", best)


SEARCH_PART = Part(
    name="fass-worst",
    title="Worst map within each range, and the share of unrelated maps: mean over photos [95% interval]",
    study=lambda scale: _make_study(
        scale, "Explainers within the ranges of FASS's changes", 1, _FEW[scale], _search_metrics(scale)
    ),
    columns=(
        Column("worst rank correlation", "similarity", where={"what": "worst", "found": True}, decimals=2),
        Column(f"share of maps below {_THRESHOLD}", "share", where={"what": "probability"}, decimals=2),
    ),
    departures=lambda scale: (
        f"{_departures(scale, 1)}; ranges between no change and the paper's (one value); searches of"
        f" {_BUDGET[scale][0]} evaluations, probabilities from {_BUDGET[scale][1]} draws (neither is in the paper)"
    ),
    notes=_describe_network,
    verdicts=_judge_searches,
    rows=("change", "explainer"),
    prepare=lambda results: add_shares(results.samples),
)

reproductions.add(
    "fass-style", Reproduction("FASS: explainers x changes on ImageNet photos", (PAIR_PART, KEPT_PART, SEARCH_PART))
)
