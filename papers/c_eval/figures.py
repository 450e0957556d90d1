"""c-Eval: Fig. 4 (attacks), 9 (samples of LIME), 10 (robust models), 11 (explainers) and 13 (log-odds), on MNIST.

The paper's sentences are judged by differences between explainers, models or sizes on the same digits. A sentence holds
if the 95% intervals of all mean differences lie above 0. It does not hold if one of them lies below 0. Else it is
undecided. Intervals of correlations come from a bootstrap over digits, because the explanations of one digit are not
independent.

The paper is not clear about two explainers. The tables have both versions of each.

- *SHAP*. The paper says that only SHAP finds black pixels important (Sec. VI-E). With a black baseline, their Shapley
  value is 0, so the references must have been different. `SHAP, digits` is expected gradients with digits as
  references; `SHAP, black` is KernelSHAP of single pixels with a black reference.
- *Gradient*. `Grad` is signed; `|Grad|` is absolute, as in Simonyan et al.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from papers.base import Column, Part, Reproduction, Scale, reproductions
from papers.c_eval.parts import (
    ATTACK_PART,
    ATTACKS,
    MODEL_PART,
    NATURAL,
    ROBUST,
    SAMPLE_PART,
    describe_size,
    make_lime,
    make_metrics,
    make_models,
    make_study,
)
from papers.reading import RESAMPLES, Verdict, judge_by_metric, note_bounds, order_claim, pivot_by
from standfast import data, zoo
from standfast.data.dataset import Dataset
from standfast.statistics.paired import midranks
from standfast.tensors import Array

# ---- data sets and explainers of the studies ----


def digits_predicted(label: int, count: int) -> Dataset:
    """The first `count` digits of the MNIST test set that the bundled LeNet-5 predicts as `label`."""
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
    """The first `per_class` images of each class of GTSRB's test images, which are sorted by class."""
    return data.gtsrb("test").subset(per_class)


def expected_gradients(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """`(x - b)` times the mean gradient between b and x (5 points), averaged over 20 bundled digits b.

    Erion, Janizek, Sturmfels, Lundberg and Lee, "Improving performance of deep learning models with axiomatic
    attribution priors and expected gradients" (2021). These are Aumann-Shapley values with digits as references; the
    SHAP package calls the method GradientExplainer.
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
        "SHAP, digits": {"function": "papers.c_eval.figures:expected_gradients"},
        "SHAP, black": {"name": "kernel_shap", "segments": "pixels", "samples": samples},
        "LIME": make_lime(500 if scale == "small" else 1000),
        "Grad-CAM": "gradcam",
        **_RULES,
        "|Grad|": "saliency",
        "random": "random",
        "centre": "centre",
    }


def _explainer_notes(frame: pl.DataFrame) -> list[str]:
    notes, means = note_bounds(frame), {}
    for column in _BY_ATTACK:
        parts = [frame.filter(pl.col("explainer") == name) for name in _MAIN] if len(frame) else []
        values = [column.values(part)[0] for part in parts]
        if values and all(map(len, values)):
            means[column.heading] = [float(own.mean()) for own in values]
    for one, other in itertools.combinations(means, 2):
        r = _spearman(np.array(means[one]), np.array(means[other]))
        notes.append(f"orders of the explainers by {one} and by {other}: Spearman {r:z.2f}")
    return notes


_BY_ATTACK = tuple(Column(name, "ratio", metric=name) for name in ATTACKS)
_GSA_MEDIAN = Column("GSA, median", "ratio", judged=False, metric="GSA", statistic="median")
_ORDERS = judge_by_metric(
    order_claim("SHAP (digits as background) is first, without |Grad|", ["SHAP, digits"], _REST),
    order_claim("SHAP (against black) is first, without |Grad|", ["SHAP, black"], _REST),
    order_claim("LIME and SHAP (digits) above the back-propagation family", ["LIME", "SHAP, digits"], (*_PATHS, *_RAW)),
    order_claim("SHAP (digits) above the back-propagation family", ["SHAP, digits"], (*_PATHS, *_RAW)),
    order_claim("GB and Grad (signed) below DeepLIFT, IG and LRP", _PATHS, _RAW),
    order_claim("|Grad| below DeepLIFT, IG and LRP", _PATHS, ["|Grad|"]),
    order_claim("|Grad| above all others (ours)", ["|Grad|"], (*_MAIN, "SHAP, black")),
    order_claim("all explainers above random pixels (ours)", (*_MAIN, "SHAP, black", "|Grad|"), ["random"]),
    order_claim("all explainers above the centre square (ours)", (*_MAIN, "SHAP, black", "|Grad|"), ["centre"]),
)


def _explainer_part(model: str, network: str) -> Part:
    return Part(
        name=f"ceval-explainers-{model}",
        title=f"c-Eval of explainers, top 10% of pixels held fixed, {model}: mean c(e) / c(empty) [95% interval]",
        study=lambda scale: make_study(
            f"c-Eval of explainers on {model} (Fig. 11)",
            scale,
            *_FIGURE11,
            models=make_models(model),
            explainers=_explainers(scale),
            metrics=make_metrics(**ATTACKS),
        ),
        columns=(_BY_ATTACK[0], _GSA_MEDIAN, *_BY_ATTACK[1:]),
        paper={},  # the numbers cannot be read from its figure
        departures=lambda scale: (
            f"{describe_size(scale, *_FIGURE11)}the first of the test set; {network}; FMN in addition to GSA and IGA;"
            " LIME with quickshift's segments, cut off at 10% of the pixels; SHAP and the gradient in two versions"
        ),
        notes=_explainer_notes,
        verdicts=_ORDERS,
    )


# ---- Fig. 13: log-odds ----

_FIGURE13 = (60, 1000)


def compare_orders(
    frame: pl.DataFrame, attack: str
) -> tuple[list[str], list[str], tuple[float, float, float], str] | None:
    """The orders of the six explainers by c-Eval and by mean log-odds, Spearman's correlation, and a statistic.

    The statistic is the one that orders the explainers by c-Eval: the `"mean"` of the ratio if the attack always found
    a change, else the `"median"`. A ratio without a change is a lower bound, so everything is computed twice: with
    these ratios as small and as large as they can be. The orders are those of the small ones, and the interval of the
    correlation, from a bootstrap over digits, covers both.
    """
    own = frame.filter(pl.col("label") == attack)
    if "ratio" not in own.columns or not len(own):
        return None
    bound = pl.col("bound").fill_null(False) & pl.col("ratio").is_not_nan()
    most = own.with_columns(pl.when(bound).then(float("inf")).otherwise(pl.col("ratio")).alias("ratio"))
    ratios = own.pivot(on="explainer", index="sample", values="ratio")
    largest = most.pivot(on="explainer", index="sample", values="ratio")
    odds = pivot_by(frame.filter(pl.col("label") == "log-odds"), "log_odds", "explainer")
    if not all(set(_RULES) <= set(wide.columns) for wide in (ratios, odds)):
        return None
    both = ratios.join(odds, on="sample", suffix=" odds").join(largest, on="sample", suffix=" most")
    both = both.fill_nan(None).drop_nulls()  # without c(empty) there is no ratio
    if len(both) < 2:
        return None
    first, second, third = (both.select([f"{n}{end}" for n in _RULES]).to_numpy() for end in ("", " odds", " most"))
    statistic = "mean" if np.isfinite(third).all() else "median"

    def spearman(rows: Array, ratios: Array = first) -> float:
        return _spearman(getattr(np, statistic)(ratios[rows], axis=0), second[rows].mean(0))

    rng, names, everything = np.random.default_rng(0), np.array(list(_RULES)), np.arange(len(both))
    draws = rng.integers(len(both), size=(RESAMPLES, len(both)))
    ends = [
        np.nanquantile([spearman(r, ratios) for r in draws], [0.025, 0.975])
        for ratios in ([first] if statistic == "mean" else [first, third])
    ]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    by_c, by_odds = getattr(np, statistic)(first, axis=0), second.mean(0)
    orders = [names[np.argsort(-values, kind="stable")].tolist() for values in (by_c, by_odds)]
    return orders[0], orders[1], (spearman(everything), float(low), float(high)), statistic


def _spearman(first: Array, second: Array) -> float:
    """Spearman's correlation; NaN if all values of one of them are equal."""
    if (first == first[0]).all() or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(midranks(first), midranks(second))[0, 1])


def _odds_notes(frame: pl.DataFrame) -> list[str]:
    notes = note_bounds(frame)
    for attack in ("GSA", "IGA"):
        found = compare_orders(frame, attack)
        if found is not None:
            by_c, by_odds, (r, low, high), statistic = found
            notes.append(
                f"{attack}, {statistic}: {' > '.join(by_c)}; log-odds: {' > '.join(by_odds)};"
                f" Spearman {r:z.2f} [{low:z.2f}, {high:z.2f}]"
            )
    return notes


def _odds_verdicts(frame: pl.DataFrame, label: int) -> list[Verdict]:
    excepted = {"DeepLIFT"} if label in (4, 8) else set()  # the paper names this exception
    text = f"c-Eval and log-odds order the explainers in the same way{', except DeepLIFT' if excepted else ''}"
    verdicts: list[Verdict] = []
    for attack in ("GSA", "IGA"):
        found = compare_orders(frame, attack)
        orders = [[name for name in order_claim if name not in excepted] for order_claim in (found or ())[:2]]
        verdicts.append((text, attack, orders[0] == orders[1] if orders else None))
    return verdicts


def _odds_study(label: int, scale: Scale) -> dict[str, Any]:
    count = _FIGURE13[0] if scale == "small" else 950  # the test set has no more images of an 8
    digits = {
        "function": "papers.c_eval.figures:digits_predicted",
        "options": {"label": label, "count": count},
    }
    metrics = {**make_metrics(GSA="gsa", IGA="iga"), "log-odds": {"name": "log_odds", "preset": "paper"}}
    return {
        "title": f"c-Eval and log-odds of digits predicted as {label} (Fig. 13)",
        "samples_per_job": 20,
        "data": {f"predicted {label}": digits},
        "models": make_models(NATURAL),
        "explainers": {**_RULES, "random": "random", "centre": "centre"},
        "metrics": metrics,
    }


def _odds_part(label: int) -> Part:
    return Part(
        name=f"ceval-log-odds-{label}",
        title=f"c-Eval and log-odds of digits predicted as {label}: means [95% interval]",
        study=lambda scale: _odds_study(label, scale),
        columns=(_BY_ATTACK[0], _GSA_MEDIAN, _BY_ATTACK[1], Column("log-odds", "log_odds", metric="log-odds")),
        paper={},
        departures=lambda scale: (
            f"{describe_size(scale, *_FIGURE13)}LeNet-5; log-odds computed here on the same digits and network (from"
            " the DeepLIFT paper); the text does not name the six explainers, ours are the back-propagation family"
        ),
        notes=_odds_notes,
        verdicts=lambda frame: _odds_verdicts(frame, label),
    )


for _name, _title, _parts in (
    ("ceval-figure4", "Fig. 4: fast attacks and the best attack", (ATTACK_PART,)),
    ("ceval-figure9", "Fig. 9: samples of LIME", (SAMPLE_PART,)),
    ("ceval-figure10", "Fig. 10: adversarially trained models", (MODEL_PART,)),
    (
        "ceval-figure11",
        "Fig. 11: explainers, on MNIST",
        (
            _explainer_part(NATURAL, "LeNet-5 (the model of the SHAP paper)"),
            _explainer_part(
                ROBUST[0],
                "a LeNet-5 trained adversarially, as a second network (the model of the DeepLIFT paper)",
            ),
        ),
    ),
    ("ceval-figure13", "Fig. 13: c-Eval and log-odds", tuple(map(_odds_part, (4, 8, 9)))),
):
    reproductions.add(_name, Reproduction(f"c-Eval, {_title}", _parts))
