"""Studies of c-Eval on MNIST: Fig. 4 (attacks), 9 (samples of LIME) and 10 (adversarially trained models)."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from papers.base import Column, Part, Scale, if_small
from papers.reading import (
    Correlations,
    Holds,
    Verdict,
    all_above,
    compute_correlations,
    format_correlations,
    is_at_least,
    judge_by_metric,
    keep_exact,
    mean_interval,
    note_bounds,
    order_claim,
    paired_differences,
    pivot_by,
)
from standfast.presentation.base import format_number
from standfast.presentation.c_eval.c_eval import compare_settings

STRONG = 0.7  # our reading of "strong correlation"
_CW = "cw:steps=100,searches=6,learning_rate=0.05"
ATTACKS = {"GSA": "gsa", "IGA": "iga", "FMN": "fmn"}
NATURAL, ROBUST = "lenet5-mnist", ("lenet5-mnist-pgd045", "lenet5-mnist-pgd075")
_ROWS = 256  # rows forwarded at once
_SIZES = (0.05, 0.1, 0.2, 0.3, 0.5)


def describe_size(scale: Scale, small: int, full: int) -> str:
    """The number of digits as a departure of a small run."""
    return if_small(scale, f"{small} digits ({full})")


def make_metrics(**attacks: str) -> dict[str, Any]:
    """c-Eval metrics of a study, by name, with these attacks and 10% of the pixels held fixed."""
    return {name: {"name": "c_eval", "attack": attack, "fraction": 0.1} for name, attack in attacks.items()}


def make_study(title: str, scale: Scale, small: int, full: int, **sections: Any) -> dict[str, Any]:
    """A study on the first `small` or `full` digits of the MNIST test set."""
    samples = {"samples": small if scale == "small" else full, "samples_per_job": 20}
    return {"title": title, **samples, "data": {"MNIST": "mnist:test"}, **sections}


def make_models(*names: str) -> dict[str, Any]:
    """Models of the zoo as a section of a study."""
    return {name: {"name": name, "batch_size": _ROWS} for name in names}


def make_lime(samples: int, segments: str | int = "quickshift") -> dict[str, Any]:
    """LIME as an explainer of a study."""
    return {"name": "lime", "samples": samples, "segments": segments}


# ---- Fig. 4: the attacks against each other ----

_FIGURE4 = (100, 1000)


def _attack_notes(frame: pl.DataFrame) -> list[str]:
    notes = note_bounds(frame)
    for column, meaning in (("c", "c"), ("ratio", "c(e) / c(empty), which removes differences between digits")):
        for attack, found, count in correlate_attacks(frame, column):
            notes.append(
                f"{meaning}, {attack} with the best attack: {format_correlations(found)}, {count} explanations"
            )
    wide = pivot_by(frame, "c", "label")
    if {"FMN", "CW"} <= set(wide.columns) and len(wide):
        fmn, cw = wide["FMN"].to_numpy(), wide["CW"].to_numpy()
        share, above = 100 * float((fmn <= cw).mean()), float(np.median(cw / fmn))
        notes.append(f"FMN is at or below CW for {format_number(share, 0)}%; median c of CW over FMN's: {above:.3f}")
    return notes


def correlate_attacks(frame: pl.DataFrame, column: str) -> list[tuple[str, Correlations, int]]:
    """Correlations of GSA and IGA with the lower of FMN and CW: (attack, correlations, number of explanations)."""
    wide = pivot_by(frame, column, "label")
    if not {"GSA", "IGA", "FMN", "CW"} <= set(wide.columns) or len(wide) < 3:
        return []
    best = np.minimum(wide["FMN"].to_numpy(), wide["CW"].to_numpy())
    digits = wide["sample"].to_numpy()
    return [(name, compute_correlations(wide[name].to_numpy(), best, digits), len(wide)) for name in ("GSA", "IGA")]


def _attack_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    text = f"strong correlation with c by the best attack (Pearson at least {STRONG}, our reading)"
    strong = [(text, name, is_at_least(r["Pearson"], STRONG)) for name, r, _ in correlate_attacks(frame, "c")]
    return [
        *strong,
        *judge_by_metric(order_claim("LIME above the centre square (Fig. 2 and 3)", ["LIME"], ["centre"]))(frame),
    ]


ATTACK_PART = Part(
    name="ceval-attacks",
    title="c-Eval by four attacks, top 10% held fixed: mean c(e) / c(empty) [95% interval]",
    study=lambda scale: make_study(
        "c-Eval by four attacks (Fig. 4)",
        scale,
        *_FIGURE4,
        models=make_models(NATURAL),
        explainers={"LIME": make_lime(500 if scale == "small" else 1000), "centre": "centre", "random": "random"},
        metrics=make_metrics(**ATTACKS, CW=_CW if scale == "small" else "cw"),
    ),
    columns=(
        Column("GSA, median", "ratio", metric="GSA", statistic="median"),
        *(Column(name, "ratio", metric=name) for name in (*ATTACKS, "CW")),
    ),
    paper={},
    departures=lambda scale: (
        f"digits and LeNet-5 (photos, Inception-v3), {_FIGURE4[0] if scale == 'small' else _FIGURE4[1]} inputs with"
        " three explanations each (30 explanations); the best attack is the lower of FMN and CW (CW)"
        + ("; CW with 6 searches of 100 steps at a rate of 0.05 (9 of 1000 at 0.01)" if scale == "small" else "")
    ),
    notes=_attack_notes,
    verdicts=_attack_verdicts,
)

# ---- Fig. 9: samples of LIME ----

_FIGURE9 = (40, 500)
_SAMPLES = (100, 1000, 4000, 10_000)


def _sample_notes(frame: pl.DataFrame) -> list[str]:
    wide = pivot_by(frame, "mean_ratio", "explainer")
    means = {n: wide[f"LIME {n}"].to_numpy()[:, None] for n in _SAMPLES if f"LIME {n}" in wide.columns}
    curves = {f"LIME {n}": (np.zeros(1), mean, np.ones_like(mean, dtype=bool)) for n, mean in means.items()}
    notes = note_bounds(frame) + (compare_settings(curves) if len(wide) > 1 else [])
    for few, many in itertools.pairwise(_SAMPLES):
        mean, low, high = mean_interval(paired_differences(frame, f"LIME {many}", f"LIME {few}", "mean_ratio"))
        notes.append(f"LIME {many} minus LIME {few}: {mean:z.3f} [{low:z.3f}, {high:z.3f}]")
    knees = keep_exact(frame, "knee").group_by("explainer", maintain_order=True).agg(pl.col("knee").median())
    shares = ", ".join(f"{name} {share:.0%}" for name, share in knees.iter_rows())
    return [*notes, f"knee, the share of the image after which more segments add little, median: {shares}"]


def _more_samples(few: int, many: int) -> tuple[str, Holds]:
    pair = [(f"LIME {many}", f"LIME {few}")]
    return f"{many} samples give higher c than {few}", partial(all_above, pairs=pair, column="mean_ratio")


SAMPLE_PART = Part(
    name="ceval-lime-samples",
    title="c-Eval plot of LIME: mean over sizes of c(e) / c(empty) [95% interval]",
    study=lambda scale: make_study(
        "c-Eval plot of LIME with growing numbers of samples (Fig. 9)",
        scale,
        *_FIGURE9,
        models=make_models(NATURAL),
        explainers={**{f"LIME {n}": make_lime(n, 100) for n in _SAMPLES}, "centre": "centre", "random": "random"},
        metrics={
            "c-Eval plot": {
                "name": "c_eval_plot",
                "attack": "fmn",
                "fractions": list(_SIZES if scale == "small" else (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)),
                "unit": "segment",
                "segments": 100,
            }
        },
    ),
    columns=(Column("mean ratio", "mean_ratio"), Column("knee", "knee", judged=False)),
    paper={},
    departures=lambda scale: (
        f"{_FIGURE9[0] if scale == 'small' else _FIGURE9[1]} digits cut into about 100 superpixels, LeNet-5 (one photo"
        " of 100 segments, Inception-v3); attack FMN (not stated)"
    ),
    notes=_sample_notes,
    verdicts=judge_by_metric(
        _more_samples(100, 1000),
        _more_samples(1000, 4000),
        _more_samples(4000, 10_000),
        (
            "LIME of 100 samples above random segments (ours)",
            partial(all_above, pairs=[("LIME 100", "random")], column="mean_ratio"),
        ),
        (
            "LIME of 10000 samples above the centre square (ours)",
            partial(all_above, pairs=[("LIME 10000", "centre")], column="mean_ratio"),
        ),
    ),
)

# ---- Fig. 10: adversarially trained models ----

_FIGURE10 = (100, 4000)
_PAPER10 = dict(zip(ROBUST, (0.765, 0.764), strict=True))


def correlate_models(frame: pl.DataFrame) -> list[tuple[str, str, Correlations, int]]:
    """Correlations of LIME's c on the natural and each robust model: (attack, model, correlations, digits)."""
    found = []
    for label in frame["label"].unique(maintain_order=True) if len(frame) else ():
        own = frame.filter(pl.col("label") == label, pl.col("explainer") == "LIME")
        wide = pivot_by(own, "c", "model")
        for robust in ROBUST:
            if {robust, NATURAL} <= set(wide.columns) and len(wide) > 2:
                columns = (wide[name].to_numpy() for name in (NATURAL, robust, "sample"))
                found.append((str(label), robust, compute_correlations(*columns), len(wide)))
    return found


def _model_notes(frame: pl.DataFrame) -> list[str]:
    return note_bounds(frame) + [
        f"c of LIME by {label}, {NATURAL} and {robust}: {format_correlations(r)}, {n} digits"
        f" (the paper, by IGA: Pearson {_PAPER10[robust]})"
        for label, robust, r, n in correlate_models(frame)
    ]


def _model_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    make_lime = frame.filter(pl.col("explainer") == "LIME")
    pairs = [(ROBUST[1], ROBUST[0]), (ROBUST[0], NATURAL)]
    higher = (
        "the more robust the model, the higher c on average",
        partial(all_above, pairs=pairs, column="c", by="model"),
    )
    high = [
        (
            f"fairly high correlation with {robust} (Pearson at least {STRONG}, our reading)",
            label,
            is_at_least(r["Pearson"], STRONG),
        )
        for label, robust, r, _ in correlate_models(frame)
    ]
    same = [
        (
            f"Pearson {_PAPER10[robust]} with {robust}: within our 95% interval",
            label,
            r["Pearson"][1] <= paper <= r["Pearson"][2],
        )
        for label, robust, r, _ in correlate_models(frame)
        for paper in [_PAPER10[robust]]
        if label == "IGA"
    ]
    return [*same, *high, *judge_by_metric(higher)(make_lime)]


MODEL_PART = Part(
    name="ceval-robust-models",
    title="c-Eval on natural and robust models, top 10% held fixed: mean c(e) [95% interval]",
    study=lambda scale: make_study(
        "c-Eval on adversarially trained models (Fig. 10)",
        scale,
        *_FIGURE10,
        models=make_models(NATURAL, *ROBUST),
        explainers={"LIME": make_lime(500 if scale == "small" else 1000), "random": "random"},
        metrics=make_metrics(IGA="iga", FMN="fmn"),
    ),
    columns=tuple(
        Column(
            f"{model.removeprefix('lenet5-mnist').strip('-') or 'natural'}, {attack}", "c", model=model, metric=attack
        )
        for attack in ("IGA", "FMN")
        for model in (NATURAL, *ROBUST)
    ),
    paper={},
    departures=lambda scale: (
        f"{describe_size(scale, *_FIGURE10)}the first of the test set (300 random ones in the plot); adversarial"
        " training in balls of 0.45 and 0.75 in the 2-norm (0.3 and 0.5 with an unknown normalisation); LIME with"
        " quickshift's segments"
    ),
    notes=_model_notes,
    verdicts=_model_verdicts,
)
