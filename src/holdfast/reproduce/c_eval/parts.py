"""Studies of c-Eval on MNIST: Fig. 4 (attacks), 9 (samples of LIME) and 10 (adversarially trained models)."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from holdfast.presentation.base import format_number
from holdfast.presentation.c_eval.c_eval import compare_settings
from holdfast.reproduce.base import Column, Part, Scale
from holdfast.reproduce.reading import (
    Correlations,
    Holds,
    Verdict,
    all_above,
    at_least,
    bounds_note,
    by_metric,
    correlations,
    differences,
    interval,
    order,
    said,
    valid,
    wide_by,
)

STRONG = 0.7  # what we take "strong correlation" for
_CW = "cw:steps=100,searches=6,learning_rate=0.05"
ATTACKS = {"GSA": "gsa", "IGA": "iga", "FMN": "fmn"}
NATURAL, ROBUST = "lenet5-mnist", ("lenet5-mnist-pgd045", "lenet5-mnist-pgd075")
_ROWS = 256  # forwarded at once
_SIZES = (0.05, 0.1, 0.2, 0.3, 0.5)


def size_of(scale: Scale, small: int, full: int) -> str:
    return f"{small} digits ({full}), " if scale == "small" else ""


def held(**attacks: str) -> dict[str, Any]:
    return {name: {"name": "c_eval", "attack": attack, "fraction": 0.1} for name, attack in attacks.items()}


def study_of(title: str, scale: Scale, small: int, full: int, **sections: Any) -> dict[str, Any]:
    samples = {"samples": small if scale == "small" else full, "samples_per_job": 20}
    return {"title": title, **samples, "data": {"MNIST": "mnist:test"}, **sections}


def models_of(*names: str) -> dict[str, Any]:
    return {name: {"name": name, "batch_size": _ROWS} for name in names}


def lime(samples: int, segments: str | int = "quickshift") -> dict[str, Any]:
    return {"name": "lime", "samples": samples, "segments": segments}


# ---- Fig. 4: the attacks against each other ----

_FIGURE4 = (100, 1000)


def _attack_notes(frame: pl.DataFrame) -> list[str]:
    notes = bounds_note(frame)
    for column, what in (("c", "c"), ("ratio", "c(e) / c(empty), where digits no longer differ by themselves")):
        for attack, found, count in attack_correlations(frame, column):
            notes.append(f"{what}, {attack} with the best attack: {said(found)}, {count} explanations")
    wide = wide_by(frame, "c", "label")
    if {"FMN", "CW"} <= set(wide.columns) and len(wide):
        fmn, cw = wide["FMN"].to_numpy(), wide["CW"].to_numpy()
        share, above = 100 * float((fmn <= cw).mean()), float(np.median(cw / fmn))
        notes.append(f"FMN is at or below CW for {format_number(share, 0)}%; median c of CW over FMN's: {above:.3f}")
    return notes


def attack_correlations(frame: pl.DataFrame, column: str) -> list[tuple[str, Correlations, int]]:
    """Of GSA and IGA with the lowest of FMN and CW: (attack, correlations, explanations)."""
    wide = wide_by(frame, column, "label")
    if not {"GSA", "IGA", "FMN", "CW"} <= set(wide.columns) or len(wide) < 3:
        return []
    best = np.minimum(wide["FMN"].to_numpy(), wide["CW"].to_numpy())
    digits = wide["sample"].to_numpy()
    return [(name, correlations(wide[name].to_numpy(), best, digits), len(wide)) for name in ("GSA", "IGA")]


def _attack_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    text = f"strong correlation with c by the best attack (Pearson at least {STRONG}, our reading)"
    strong = [(text, name, at_least(STRONG, r["Pearson"])) for name, r, _ in attack_correlations(frame, "c")]
    return [*strong, *by_metric(order("LIME above the centre square (Fig. 2 and 3)", ["LIME"], ["centre"]))(frame)]


ATTACK_PART = Part(
    name="ceval-attacks",
    title="c-Eval by four attacks, top 10% held: mean c(e) / c(empty) [95% interval]",
    study=lambda scale: study_of(
        "c-Eval by four attacks (Fig. 4)",
        scale,
        *_FIGURE4,
        models=models_of(NATURAL),
        explainers={"LIME": lime(500 if scale == "small" else 1000), "centre": "centre", "random": "random"},
        metrics=held(**ATTACKS, CW=_CW if scale == "small" else "cw"),
    ),
    columns=(
        Column("GSA, median", "ratio", metric="GSA", statistic="median"),
        *(Column(name, "ratio", metric=name) for name in (*ATTACKS, "CW")),
    ),
    paper={},
    differs=lambda scale: (
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
    wide = wide_by(frame, "mean_ratio", "explainer")
    curves = {
        f"LIME {n}": (np.zeros(1), wide[f"LIME {n}"].to_numpy()[:, None])
        for n in _SAMPLES
        if f"LIME {n}" in wide.columns
    }
    notes = bounds_note(frame) + (compare_settings(curves) if len(wide) > 1 else [])
    for few, many in itertools.pairwise(_SAMPLES):
        mean, low, high = interval(differences(frame, f"LIME {many}", f"LIME {few}", "mean_ratio"))
        notes.append(f"LIME {many} less LIME {few}: {mean:.3f} [{low:.3f}, {high:.3f}]")
    knees = valid(frame, "knee").group_by("explainer", maintain_order=True).agg(pl.col("knee").median())
    told = ", ".join(f"{name} {share:.0%}" for name, share in knees.iter_rows())
    return [*notes, f"knee, median of the share of the image past which more segments gain little: {told}"]


def _more_samples(few: int, many: int) -> tuple[str, Holds]:
    pair = [(f"LIME {many}", f"LIME {few}")]
    return f"{many} samples give higher c than {few}", partial(all_above, pairs=pair, column="mean_ratio")


SAMPLE_PART = Part(
    name="ceval-lime-samples",
    title="c-Eval plot of LIME: mean over sizes of c(e) / c(empty) [95% interval]",
    study=lambda scale: study_of(
        "c-Eval plot of LIME with growing numbers of samples (Fig. 9)",
        scale,
        *_FIGURE9,
        models=models_of(NATURAL),
        explainers={**{f"LIME {n}": lime(n, 100) for n in _SAMPLES}, "centre": "centre", "random": "random"},
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
    differs=lambda scale: (
        f"{_FIGURE9[0] if scale == 'small' else _FIGURE9[1]} digits cut into about 100 superpixels, LeNet-5 (one photo"
        " of 100 segments, Inception-v3); attack FMN (not said)"
    ),
    notes=_sample_notes,
    verdicts=by_metric(
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


def model_correlations(frame: pl.DataFrame) -> list[tuple[str, str, Correlations, int]]:
    """Of c of LIME's explanations on the natural and each robust model: (attack, model, correlations, digits)."""
    found = []
    for label in frame["label"].unique(maintain_order=True) if len(frame) else ():
        own = frame.filter(pl.col("label") == label, pl.col("explainer") == "LIME")
        wide = wide_by(own, "c", "model")
        for robust in ROBUST:
            if {robust, NATURAL} <= set(wide.columns) and len(wide) > 2:
                columns = (wide[name].to_numpy() for name in (NATURAL, robust, "sample"))
                found.append((str(label), robust, correlations(*columns), len(wide)))
    return found


def _model_notes(frame: pl.DataFrame) -> list[str]:
    return bounds_note(frame) + [
        f"c of LIME by {label}, {NATURAL} and {robust}: {said(r)}, {n} digits"
        f" (the paper, by IGA: Pearson {_PAPER10[robust]})"
        for label, robust, r, n in model_correlations(frame)
    ]


def _model_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    lime = frame.filter(pl.col("explainer") == "LIME")
    pairs = [(ROBUST[1], ROBUST[0]), (ROBUST[0], NATURAL)]
    higher = (
        "the more robust the model, the higher c on average",
        partial(all_above, pairs=pairs, column="c", by="model"),
    )
    high = [
        (
            f"fairly high correlation with {robust} (Pearson at least {STRONG}, our reading)",
            label,
            at_least(STRONG, r["Pearson"]),
        )
        for label, robust, r, _ in model_correlations(frame)
    ]
    same = [
        (
            f"Pearson {_PAPER10[robust]} with {robust}: within our 95% interval",
            label,
            r["Pearson"][1] <= paper <= r["Pearson"][2],
        )
        for label, robust, r, _ in model_correlations(frame)
        for paper in [_PAPER10[robust]]
        if label == "IGA"
    ]
    return [*same, *high, *by_metric(higher)(lime)]


MODEL_PART = Part(
    name="ceval-robust-models",
    title="c-Eval on natural and robust models, top 10% held: mean c(e) [95% interval]",
    study=lambda scale: study_of(
        "c-Eval on adversarially trained models (Fig. 10)",
        scale,
        *_FIGURE10,
        models=models_of(NATURAL, *ROBUST),
        explainers={"LIME": lime(500 if scale == "small" else 1000), "random": "random"},
        metrics=held(IGA="iga", FMN="fmn"),
    ),
    columns=tuple(
        Column(
            f"{model.removeprefix('lenet5-mnist').strip('-') or 'natural'}, {attack}", "c", model=model, metric=attack
        )
        for attack in ("IGA", "FMN")
        for model in (NATURAL, *ROBUST)
    ),
    paper={},
    differs=lambda scale: (
        f"{size_of(scale, *_FIGURE10)}the first of the test set (300 random ones in the plot); adversarial training in"
        " balls of 0.45 and 0.75 in the 2-norm (0.3 and 0.5, normalised in a way that is not said); LIME with"
        " quickshift's segments"
    ),
    notes=_model_notes,
    verdicts=_model_verdicts,
)
