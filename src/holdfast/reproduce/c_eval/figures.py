"""c-Eval: Fig. 4 (attacks), 9 (samples of LIME), 10 (robust models), 11 (explainers) and 13 (log-odds), on MNIST.

The paper's sentences are judged on differences between explainers, models or sizes on the same digits: one holds if the
95% intervals of all means it is about lie above 0, does not if one lies below, and is undecided else. Intervals of
correlations come from a bootstrap over digits, since the explanations of one digit are not independent.

Two explainers of the paper can be read in two ways, and both readings are in the tables.

- *SHAP*. The paper says that SHAP alone finds black pixels important (Sec. VI-E). Against a black baseline these have a
  Shapley value of 0, so it must have had other references. `SHAP, digits` is expected gradients against digits;
  `SHAP, black` is KernelSHAP of single pixels against black.
- *Gradient*. `Grad` is signed, `|Grad|` absolute (as Simonyan et al. have it).
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from holdfast import data, zoo
from holdfast.data.dataset import Dataset
from holdfast.reproduce.base import Column, Part, Reproduction, Scale, reproductions
from holdfast.reproduce.c_eval.parts import (
    ATTACK_PART,
    ATTACKS,
    MODEL_PART,
    NATURAL,
    ROBUST,
    SAMPLE_PART,
    held,
    lime,
    models_of,
    size_of,
    study_of,
)
from holdfast.reproduce.reading import RESAMPLES, Array, Verdict, bounds_note, by_metric, order, wide_by
from holdfast.statistics.paired import midranks

# ---- what the studies name ----


def digits_predicted(label: int, count: int) -> Dataset:
    """The first `count` digits of the MNIST test set that the bundled LeNet-5 takes for `label`."""
    digits, module = data.mnist("test"), zoo.load(NATURAL)
    chosen: list[int] = []
    for start in range(0, len(digits), 500):
        with torch.no_grad():
            predicted = module(digits.inputs[start : start + 500]).argmax(1)
        chosen += (start + (predicted == label).nonzero()[:, 0]).tolist()
        if len(chosen) >= count:
            break
    return digits.take(chosen[:count])


def traffic_signs(per_class: int) -> Dataset:
    """The first of each class of GTSRB's test images, which lie in the order of their classes."""
    return data.gtsrb("test").subset(per_class)


def expected_gradients(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """`(x - b)` times the mean gradient on the way from b to x, averaged over 20 bundled digits b (5 points each).

    Erion, Janizek, Sturmfels, Lundberg and Lee, "Improving performance of deep learning models with axiomatic
    attribution priors and expected gradients" (2021): Shapley values, Aumann's for games of a continuum, with digits as
    the reference; what the SHAP package calls a GradientExplainer.
    """
    total = torch.zeros_like(inputs)
    for baseline, share in itertools.product(_background().to(inputs), (0.1, 0.3, 0.5, 0.7, 0.9)):
        leaf = (baseline + share * (inputs - baseline)).detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(module(leaf).gather(1, targets[:, None]).sum(), leaf)
        total += (inputs - baseline) * gradient
    return total / (5 * len(_background()))


@lru_cache(maxsize=1)
def _background() -> Tensor:
    return data.bundled("digits").inputs[-20:]


# ---- Fig. 11: explainers ----

_FIGURE11 = (40, 1000)
_PATHS, _RAW = ("DeepLIFT", "IG 5", "IG 10", "LRP"), ("GB", "Grad")
_RULES: dict[str, Any] = {
    "DeepLIFT": "deeplift",
    "IG 5": {"name": "integrated_gradients", "steps": 5},
    "IG 10": {"name": "integrated_gradients", "steps": 10},
    "LRP": "input_x_gradient",  # the paper's simplification
    "GB": "guided_backprop",
    "Grad": {"name": "saliency", "absolute": False},
}
_REST = ("LIME", "Grad-CAM", *_PATHS, *_RAW)
_MAIN = ("SHAP, digits", *_REST)


def _explainers(scale: Scale) -> dict[str, Any]:
    samples = 4000 if scale == "small" else 10_000
    return {
        "SHAP, digits": {"function": "holdfast.reproduce.c_eval.figures:expected_gradients"},
        "SHAP, black": {"name": "kernel_shap", "segments": "pixels", "samples": samples},
        "LIME": lime(500 if scale == "small" else 1000),
        "Grad-CAM": "gradcam",
        **_RULES,
        "|Grad|": "saliency",
        "random": "random",
        "centre": "centre",
    }


def _explainer_notes(frame: pl.DataFrame) -> list[str]:
    notes, means = bounds_note(frame), {}
    for column in _BY_ATTACK:
        values = [column.values(frame.filter(pl.col("explainer") == name))[0] for name in _MAIN] if len(frame) else []
        if values and all(map(len, values)):
            means[column.heading] = [float(own.mean()) for own in values]
    for one, other in itertools.combinations(means, 2):
        r = _spearman(np.array(means[one]), np.array(means[other]))
        notes.append(f"order of the explainers by {one} and by {other}: Spearman {r:.2f}")
    return notes


_BY_ATTACK = tuple(Column(name, "ratio", metric=name) for name in ATTACKS)
_GSA_MEDIAN = Column("GSA, median", "ratio", judged=False, metric="GSA", statistic="median")
_ORDERS = by_metric(
    order("SHAP (digits as background) is first, |Grad| aside", ["SHAP, digits"], _REST),
    order("SHAP (against black) is first, |Grad| aside", ["SHAP, black"], _REST),
    order("LIME and SHAP (digits) above the back-propagation family", ["LIME", "SHAP, digits"], (*_PATHS, *_RAW)),
    order("SHAP (digits) above the back-propagation family", ["SHAP, digits"], (*_PATHS, *_RAW)),
    order("GB and Grad (signed) below DeepLIFT, IG and LRP", _PATHS, _RAW),
    order("|Grad| below DeepLIFT, IG and LRP", _PATHS, ["|Grad|"]),
    order("|Grad| above all others (ours)", ["|Grad|"], (*_MAIN, "SHAP, black")),
    order("all explainers above random pixels (ours)", (*_MAIN, "SHAP, black", "|Grad|"), ["random"]),
    order("all explainers above the centre square (ours)", (*_MAIN, "SHAP, black", "|Grad|"), ["centre"]),
)


def _explainer_part(model: str, network: str) -> Part:
    return Part(
        name=f"ceval-explainers-{model}",
        title=f"c-Eval of explainers, top 10% of pixels held, {model}: mean c(e) / c(empty) [95% interval]",
        study=lambda scale: study_of(
            f"c-Eval of explainers on {model} (Fig. 11)",
            scale,
            *_FIGURE11,
            models=models_of(model),
            explainers=_explainers(scale),
            metrics=held(**ATTACKS),
        ),
        columns=(_BY_ATTACK[0], _GSA_MEDIAN, *_BY_ATTACK[1:]),
        paper={},  # its figure shows no numbers that could be read off
        differs=lambda scale: (
            f"{size_of(scale, *_FIGURE11)}the first of the test set; {network}; FMN beside GSA and IGA; LIME with"
            " quickshift's segments, cut off at 10% of the pixels; SHAP and the gradient in two readings"
        ),
        notes=_explainer_notes,
        verdicts=_ORDERS,
    )


# ---- Fig. 13: log-odds ----

_FIGURE13 = (60, 1000)


def rank_agreement(
    frame: pl.DataFrame, attack: str
) -> tuple[list[str], list[str], tuple[float, float, float], str] | None:
    """The six explainers by c-Eval and by mean log-odds, Spearman's correlation, and what c-Eval was ordered by.

    That is the mean ratio where a change was always found, and else the median, in which what was not found counts as
    larger than all others. The interval is from a bootstrap over digits.
    """
    own = frame.filter(pl.col("label") == attack)
    if "ratio" not in own.columns or not len(own):
        return None
    bound = pl.col("bound").fill_null(False)
    ratios = own.with_columns(pl.when(bound).then(float("inf")).otherwise(pl.col("ratio")).alias("ratio"))
    ratios = ratios.pivot(on="explainer", index="sample", values="ratio")
    odds = wide_by(frame.filter(pl.col("label") == "log-odds"), "log_odds", "explainer")
    if not all(set(_RULES) <= set(wide.columns) for wide in (ratios, odds)):
        return None
    both = ratios.join(odds, on="sample", suffix=" odds").drop_nulls()
    if len(both) < 2:
        return None
    first, second = (both.select([f"{n}{end}" for n in _RULES]).to_numpy() for end in ("", " odds"))
    statistic = "mean" if np.isfinite(first).all() else "median"

    def spearman(rows: Array) -> float:
        return _spearman(getattr(np, statistic)(first[rows], axis=0), second[rows].mean(0))

    rng, names, everything = np.random.default_rng(0), np.array(list(_RULES)), np.arange(len(both))
    low, high = np.nanquantile(
        [spearman(r) for r in rng.integers(len(both), size=(RESAMPLES, len(both)))], [0.025, 0.975]
    )
    by_c, by_odds = getattr(np, statistic)(first, axis=0), second.mean(0)
    orders = [names[np.argsort(-values, kind="stable")].tolist() for values in (by_c, by_odds)]
    return orders[0], orders[1], (spearman(everything), float(low), float(high)), statistic


def _spearman(first: Array, second: Array) -> float:
    """NaN where one of them is the same everywhere."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(midranks(first), midranks(second))[0, 1])


def _odds_notes(frame: pl.DataFrame) -> list[str]:
    notes = bounds_note(frame)
    for attack in ("GSA", "IGA"):
        found = rank_agreement(frame, attack)
        if found is not None:
            by_c, by_odds, (r, low, high), statistic = found
            notes.append(
                f"{attack}, {statistic}: {' > '.join(by_c)}; log-odds: {' > '.join(by_odds)};"
                f" Spearman {r:.2f} [{low:.2f}, {high:.2f}]"
            )
    return notes


def _odds_verdicts(frame: pl.DataFrame, label: int) -> list[Verdict]:
    aside = {"DeepLIFT"} if label in (4, 8) else set()  # the paper's own exception
    text = f"the order of the explainers is that of their log-odds{', DeepLIFT aside' if aside else ''}"
    verdicts: list[Verdict] = []
    for attack in ("GSA", "IGA"):
        found = rank_agreement(frame, attack)
        orders = [[name for name in order if name not in aside] for order in (found or ())[:2]]
        verdicts.append((text, attack, orders[0] == orders[1] if orders else None))
    return verdicts


def _odds_study(label: int, scale: Scale) -> dict[str, Any]:
    count = _FIGURE13[0] if scale == "small" else 950  # the test set has no more of an 8
    digits = {
        "function": "holdfast.reproduce.c_eval.figures:digits_predicted",
        "options": {"label": label, "count": count},
    }
    metrics = {**held(GSA="gsa", IGA="iga"), "log-odds": {"name": "log_odds", "fraction": 0.2}}
    return {
        "title": f"c-Eval and log-odds of digits taken for {label} (Fig. 13)",
        "samples_per_job": 20,
        "data": {f"predicted {label}": digits},
        "models": models_of(NATURAL),
        "explainers": {**_RULES, "random": "random", "centre": "centre"},
        "metrics": metrics,
    }


def _odds_part(label: int) -> Part:
    return Part(
        name=f"ceval-log-odds-{label}",
        title=f"c-Eval and log-odds of digits taken for {label}: means [95% interval]",
        study=lambda scale: _odds_study(label, scale),
        columns=(_BY_ATTACK[0], _GSA_MEDIAN, _BY_ATTACK[1], Column("log-odds", "log_odds", metric="log-odds")),
        paper={},
        differs=lambda scale: (
            f"{size_of(scale, *_FIGURE13)}LeNet-5; log-odds computed here on the same digits and network (taken from"
            " the DeepLIFT paper); the text does not name the six explainers, ours are the back-propagation family"
        ),
        notes=_odds_notes,
        verdicts=lambda frame: _odds_verdicts(frame, label),
    )


for _name, _title, _parts in (
    ("ceval-figure4", "Fig. 4: cheap attacks and the best", (ATTACK_PART,)),
    ("ceval-figure9", "Fig. 9: samples of LIME", (SAMPLE_PART,)),
    ("ceval-figure10", "Fig. 10: adversarially trained models", (MODEL_PART,)),
    (
        "ceval-figure11",
        "Fig. 11: explainers, on MNIST",
        (
            _explainer_part(NATURAL, "LeNet-5 (the classifier of the SHAP paper)"),
            _explainer_part(
                ROBUST[0],
                "a LeNet-5 trained adversarially, for want of another network (the classifier of the DeepLIFT paper)",
            ),
        ),
    ),
    ("ceval-figure13", "Fig. 13: c-Eval and log-odds", tuple(map(_odds_part, (4, 8, 9)))),
):
    reproductions.add(_name, Reproduction(f"c-Eval, {_title}", _parts))
