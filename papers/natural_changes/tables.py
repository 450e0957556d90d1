"""FASS: a table of explainers x changes on photos, and what searches and probabilities add to it.

Subramaniakuppusamy and Gajjar, "Feature Attribution Stability Suite: How Stable Are Post-Hoc Attributions?" (XAI4CV at
CVPR 2026, arXiv:2604.02532). The paper makes one copy of each image by each of five changes and compares its map with
that of the image (`pairs`). The first part does the same. The last part lets each change vary between none and the
paper's, and searches for the worst map, and estimates how often the map is an unrelated one.

The paper's numbers for ResNet-50 and single changes (`pairs.csv`) are those that the authors' notebook
`results/FASS_Results_Visualization.ipynb` prints (github.com/KamalasankariSubramaniakuppusamy/xai-stability-benchmark).
Those in `kept.csv` are means over data sets and networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from papers.base import Column, Part, Reproduction, Scale, reproductions
from papers.files import make_part, read_numbers
from papers.natural_changes.photos import INSTALL, has_network
from papers.reading import (
    Outcomes,
    Verdict,
    Verdicts,
    add_label_words,
    all_above,
    group_by_outcome,
    is_above,
    is_at_least,
    keep_exact,
    mean_interval,
    negate,
)
from papers.safari.imagenet import STAND_IN
from standfast.tensors import Array

_CAM = "Grad-CAM"
_OTHERS = ("Integrated Gradients", "GradientSHAP", "LIME")
_GEOMETRIC, _PHOTOMETRIC = ("rotation", "translation"), ("brightness", "gaussian_noise", "jpeg")


def _make_part(
    name: str, title: str, columns: tuple[Column, ...], judge: Verdicts, **more: Any
) -> Part:
    """A part whose sentences are judged only by a trained network."""

    def judge_trained(frame: pl.DataFrame) -> Sequence[Verdict]:
        trained = len(frame) > 0 and STAND_IN not in frame["model"].to_list()
        return judge(frame) if trained else []

    more = {"notes": _describe_network, "verdicts": judge_trained, **more}
    part = make_part("natural_changes", name, title, columns, **more)
    assert part.study is not None
    return replace(part, study=partial(_find_network, part.study))


def _find_network(make_study: Callable[[Scale], dict[str, Any]], scale: Scale) -> dict[str, Any]:
    """The study, with an untrained network, and a title that says so, if a small run has no trained one."""
    study = make_study(scale)
    if scale == "full" or has_network():
        return study
    options = {"count": study["samples"], "side": 64}
    return {
        **study,
        "title": f"{study['title']}: a test of the computation, with an untrained stand-in",
        "data": {
            "ImageNet photos": {
                "function": "papers.photos:load_photos",
                "trust": True,
                "options": options,
            }
        },
        "models": {
            STAND_IN: {
                "function": "papers.safari.imagenet:make_stand_in",
                "trust": True,
                "batch_size": 64,
            }
        },
    }


def _describe_network(frame: pl.DataFrame) -> list[str]:
    if STAND_IN not in frame["model"].to_list():
        return []
    network = f"A small trained network is used if it is here: {INSTALL}"
    return [
        f"{STAND_IN}: THESE NUMBERS SAY NOTHING ABOUT EXPLAINERS; no sentence is judged. {network}"
    ]


def _find_most_stable(frame: pl.DataFrame, by: str, column: str) -> Outcomes:
    """For each change, named in the column `by`, whether Grad-CAM is above all other explainers."""
    pairs = [(_CAM, name) for name in _OTHERS]
    changes = frame[by].unique(maintain_order=True)
    return {
        change: all_above(frame.filter(pl.col(by) == change), pairs, column) for change in changes
    }


# ---- pairs, as in the paper ----


def _judge_pairs(frame: pl.DataFrame) -> list[Verdict]:
    """The paper's sentences, by paired differences on the same photos."""
    best = _find_most_stable(frame, "label", "value")
    found = group_by_outcome("Grad-CAM is the most stable (above all others, our reading)", best)
    for column, words in (("unaligned", "compared as they are"), ("value", "moved back")):
        lower: Outcomes = {}
        for name in (*_OTHERS, _CAM):
            gain = _contrast(frame.filter(pl.col("explainer") == name), column)
            lower[name] = is_above(mean_interval(gain), 0)
        text = f"rotation and translation lower FASS more than brightness, noise and JPEG, maps {words}"
        found += group_by_outcome(text, lower)
    return found


def _contrast(frame: pl.DataFrame, column: str) -> Array:
    """For each photo, the mean of `column` over other changes minus that over geometric ones."""
    known = frame.filter(pl.col(column).is_finite().fill_null(False))
    means = [
        known.filter(pl.col("label").is_in(changes)).group_by("sample").agg(pl.col(column).mean())
        for changes in (_PHOTOMETRIC, _GEOMETRIC)
    ]
    both = means[0].join(means[1], on="sample", suffix="_geometric").sort("sample")
    return np.asarray((both[column] - both[f"{column}_geometric"]).to_numpy(), dtype=float)


PAIR_PART = _make_part(
    "pairs",
    "Stability of maps under one change, of pairs that keep the class: mean over photos [95% interval]",
    (
        Column(
            "FASS",
            "value",
            decimals=2,
            paper=read_numbers("natural_changes/pairs.csv", keys=2)["FASS"],
        ),
        Column("FASS, maps not moved back", "unaligned", decimals=2),
        Column("SSIM", "ssim", decimals=2),
        Column("rank correlation", "spearman", decimals=2),
        Column("top-100 Jaccard", "jaccard", decimals=2),
        Column("FASS of all pairs", "unfiltered", decimals=2),
        Column("share that keeps the class", "kept", decimals=2),
    ),
    judge=_judge_pairs,
    rows=("label", "explainer"),
)

# ---- the share of pairs that keep the class, on more photos ----


def _judge_kept(frame: pl.DataFrame) -> list[Verdict]:
    changed: Outcomes = {}
    for change in frame["label"].unique(maintain_order=True):
        shares = (
            keep_exact(frame.filter(pl.col("label") == change), "kept")["kept"]
            .to_numpy()
            .astype(float)
        )
        changed[change] = negate(is_at_least(mean_interval(shares), 0.5))
    return group_by_outcome(
        "most pairs change the class (less than half keep it, our reading of 'up to 99%')", changed
    )


_KEPT = "share that keeps the class"
KEPT_PART = _make_part(
    "kept",
    "Share of pairs that keep the class: mean over photos [95% interval]",
    (Column(_KEPT, "kept", decimals=2, paper=read_numbers("natural_changes/kept.csv")[_KEPT]),),
    judge=_judge_kept,
    rows=("label",),
)

# ---- worst cases and probabilities ----


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
    return frame.with_columns(
        share=pl.when(pl.col("status") == "ok").then(share), bound=pl.lit(False)
    )


def _judge_searches(frame: pl.DataFrame) -> list[Verdict]:
    best = _find_most_stable(frame.filter(pl.col("what") == "worst"), "change", "similarity")
    return group_by_outcome(
        "Grad-CAM is the most stable in the worst case (above all others, our reading)", best
    )


SEARCH_PART = _make_part(
    "worst",
    "Worst map within each range, and the share of unrelated maps: mean over photos [95% interval]",
    (
        Column(
            "worst rank correlation",
            "similarity",
            where={"what": "worst", "found": True},
            decimals=2,
        ),
        Column("share of maps below 0.4", "share", where={"what": "probability"}, decimals=2),
    ),
    judge=_judge_searches,
    rows=("change", "explainer"),
    prepare=lambda results: add_shares(results.samples),
)

reproductions.add(
    "fass-style",
    Reproduction(
        "FASS: explainers x changes on ImageNet photos", (PAIR_PART, KEPT_PART, SEARCH_PART)
    ),
)
