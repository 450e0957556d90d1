"""c-Eval on MNIST: Fig. 4 (attacks), 9 (samples of LIME), 10 (robust models), 11 (explainers) and 13 (log-odds).

The paper's sentences are judged by differences between explainers, models or sizes on the same digits. A sentence holds
if the 95% intervals of all mean differences lie above 0. It does not hold if one of them lies below 0. Else it is
undecided. Intervals of correlations come from a bootstrap over digits, because the explanations of one digit are not
independent. The numbers of its figures cannot be read, except for two correlations (Fig. 10).

The paper is not clear about two explainers. The tables have both versions of each.

- *SHAP*. The paper says that only SHAP finds black pixels important (Sec. VI-E). With a black baseline, their Shapley
  value is 0, so the references must have been different. `SHAP, digits` is expected gradients with digits as
  references; `SHAP, black` is KernelSHAP of single pixels with a black reference.
- *Gradient*. `Grad` is signed; `|Grad|` is absolute, as in Simonyan et al.
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from papers.base import Column, Part, Reproduction, reproductions
from papers.files import make_part, read_numbers
from papers.reading import (
    RESAMPLES,
    Correlations,
    Estimate,
    Verdict,
    all_above,
    compute_correlations,
    format_correlations,
    is_at_least,
    judge_by_metric,
    mean_interval,
    note_bounds,
    order_claim,
    paired_differences,
    pivot_by,
)
from standfast import data, zoo
from standfast.data.dataset import Dataset
from standfast.results.formatting import format_number
from standfast.statistics.paired import midranks
from standfast.tensors import Array

STRONG = 0.7  # our reading of "strong correlation"
NATURAL, ROBUST = "lenet5-mnist", ("lenet5-mnist-pgd045", "lenet5-mnist-pgd075")
_make_part = partial(make_part, "c_eval")

# ---- data sets and explainers of the studies ----


def digits_predicted(label: int, count: int) -> Dataset:
    """The first `count` digits of the MNIST test set that the bundled LeNet-5 predicts as `label`."""
    digits, module = data.mnist("test"), zoo.load(NATURAL)
    with torch.no_grad():
        predicted = torch.cat([module(part).argmax(1) for part in torch.split(digits.inputs, 500)])
    return digits.take((predicted == label).nonzero()[:count, 0].tolist())


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
    baselines = data.bundled("digits").inputs[-20:].to(inputs)
    for baseline, share in itertools.product(baselines, (0.1, 0.3, 0.5, 0.7, 0.9)):
        leaf = (baseline + share * (inputs - baseline)).detach().requires_grad_(True)
        (gradient,) = torch.autograd.grad(module(leaf).gather(1, targets[:, None]).sum(), leaf)
        total += (inputs - baseline) * gradient
    return total / (5 * len(baselines))


# ---- Fig. 4: the attacks against each other ----


def correlate_attacks(frame: pl.DataFrame, column: str) -> list[tuple[str, Correlations, int]]:
    """Correlations of GSA and IGA with the lower of FMN and CW: (attack, correlations, number of explanations)."""
    wide = pivot_by(frame, column, "label")
    if not {"GSA", "IGA", "FMN", "CW"} <= set(wide.columns) or len(wide) < 3:
        return []
    best = np.minimum(wide["FMN"].to_numpy(), wide["CW"].to_numpy())
    digits = wide["sample"].to_numpy()
    return [
        (name, compute_correlations(wide[name].to_numpy(), best, digits), len(wide))
        for name in ("GSA", "IGA")
    ]


def _note_attacks(frame: pl.DataFrame) -> list[str]:
    notes = note_bounds(frame)
    for column, meaning in (
        ("c", "c"),
        ("value", "c(e) / c(empty), which removes differences between digits"),
    ):
        for attack, found, count in correlate_attacks(frame, column):
            correlations = format_correlations(found)
            notes.append(
                f"{meaning}, {attack} with the best attack: {correlations}, {count} explanations"
            )
    wide = pivot_by(frame, "c", "label")
    if {"FMN", "CW"} <= set(wide.columns) and len(wide):
        fmn, cw = wide["FMN"].to_numpy(), wide["CW"].to_numpy()
        share, above = 100 * float((fmn <= cw).mean()), float(np.median(cw / fmn))
        notes.append(
            f"FMN is at or below CW for {format_number(share, 0)}%; median c of CW over FMN's: {above:.3f}"
        )
    return notes


def _judge_attacks(frame: pl.DataFrame) -> list[Verdict]:
    text = f"strong correlation with c by the best attack (Pearson at least {STRONG}, our reading)"
    strong = [
        (text, name, is_at_least(r["Pearson"], STRONG))
        for name, r, _ in correlate_attacks(frame, "c")
    ]
    above = order_claim("LIME above the centre square (Fig. 2 and 3)", ["LIME"], ["centre"])
    return [*strong, *judge_by_metric(above)(frame)]


_MEDIAN = Column("GSA, median", "value", metric="GSA", statistic="median")
_RATIOS = {name: Column(name, "value", metric=name) for name in ("GSA", "IGA", "FMN", "CW")}

ATTACK_PART = _make_part(
    "attacks",
    "c-Eval by four attacks, top 10% held fixed: mean c(e) / c(empty) [95% interval]",
    (_MEDIAN, *_RATIOS.values()),
    notes=_note_attacks,
    verdicts=_judge_attacks,
)

# ---- Fig. 9: samples of LIME ----

_SAMPLES = (100, 1000, 4000, 10_000)


def _note_samples(frame: pl.DataFrame) -> list[str]:
    notes = note_bounds(frame)
    for few, many in itertools.pairwise(_SAMPLES):
        mean, low, high = mean_interval(
            paired_differences(frame, f"LIME {many}", f"LIME {few}", "value")
        )
        notes.append(f"LIME {many} minus LIME {few}: {mean:z.3f} [{low:z.3f}, {high:z.3f}]")
    return notes


SAMPLE_PART = _make_part(
    "lime-samples",
    "c-Eval plot of LIME: mean over sizes of c(e) / c(empty) [95% interval]",
    (Column("mean ratio", "value"), Column("knee", "knee")),
    notes=_note_samples,
    verdicts=judge_by_metric(
        *(
            order_claim(
                f"{many} samples give higher c than {few}",
                [f"LIME {many}"],
                [f"LIME {few}"],
                "value",
            )
            for few, many in itertools.pairwise(_SAMPLES)
        ),
        order_claim(
            "LIME of 100 samples above random segments (ours)", ["LIME 100"], ["random"], "value"
        ),
        order_claim(
            "LIME of 10000 samples above the centre square (ours)",
            ["LIME 10000"],
            ["centre"],
            "value",
        ),
    ),
)

# ---- Fig. 10: adversarially trained models ----

_PAPER10 = read_numbers("c_eval/figure10.csv")["Pearson"]


def correlate_models(frame: pl.DataFrame) -> list[tuple[str, str, Correlations, int]]:
    """Correlations of LIME's c on the natural and each robust model: (attack, model, correlations, digits)."""
    found = []
    for label in frame["label"].unique(maintain_order=True):
        own = frame.filter(pl.col("label") == label, pl.col("explainer") == "LIME")
        wide = pivot_by(own, "c", "model")
        for robust in ROBUST:
            if {robust, NATURAL} <= set(wide.columns) and len(wide) > 2:
                columns = (wide[name].to_numpy() for name in (NATURAL, robust, "sample"))
                found.append((str(label), robust, compute_correlations(*columns), len(wide)))
    return found


def _note_models(frame: pl.DataFrame) -> list[str]:
    return note_bounds(frame) + [
        f"c of LIME by {label}, {NATURAL} and {robust}: {format_correlations(r)}, {n} digits"
        f" (the paper, by IGA: Pearson {_PAPER10[robust]})"
        for label, robust, r, n in correlate_models(frame)
    ]


def _judge_models(frame: pl.DataFrame) -> list[Verdict]:
    pairs = [(ROBUST[1], ROBUST[0]), (ROBUST[0], NATURAL)]
    text = "the more robust the model, the higher c on average"
    higher = judge_by_metric((text, partial(all_above, pairs=pairs, column="c", by="model")))
    high = []
    for label, robust, r, _ in correlate_models(frame):
        text = f"fairly high correlation with {robust} (Pearson at least {STRONG}, our reading)"
        high.append((text, label, is_at_least(r["Pearson"], STRONG)))
    return [*high, *higher(frame.filter(pl.col("explainer") == "LIME"))]


MODEL_PART = _make_part(
    "robust-models",
    "c-Eval on natural and robust models, top 10% held fixed: mean c(e) [95% interval]",
    tuple(
        Column(f"{name}, {attack}", "c", model=model, metric=attack)
        for attack in ("IGA", "FMN")
        for name, model in zip(("natural", "pgd045", "pgd075"), (NATURAL, *ROBUST), strict=True)
    ),
    notes=_note_models,
    verdicts=_judge_models,
)

# ---- Fig. 11: explainers ----

_PATHS, _RAW = ("DeepLIFT", "IG 5", "IG 10", "LRP"), ("GB", "Grad")
_REST = ("LIME", "Grad-CAM", *_PATHS, *_RAW)
_ALL = ("SHAP, digits", *_REST, "SHAP, black", "|Grad|")
_judge_orders = judge_by_metric(
    order_claim("SHAP (digits as background) is first, without |Grad|", ["SHAP, digits"], _REST),
    order_claim("SHAP (against black) is first, without |Grad|", ["SHAP, black"], _REST),
    order_claim(
        "LIME and SHAP (digits) above the back-propagation family",
        ["LIME", "SHAP, digits"],
        (*_PATHS, *_RAW),
    ),
    order_claim(
        "SHAP (digits) above the back-propagation family", ["SHAP, digits"], (*_PATHS, *_RAW)
    ),
    order_claim("GB and Grad (signed) below DeepLIFT, IG and LRP", _PATHS, _RAW),
    order_claim("|Grad| below DeepLIFT, IG and LRP", _PATHS, ["|Grad|"]),
    order_claim("|Grad| above all others (ours)", ["|Grad|"], _ALL),
    order_claim("all explainers above random pixels (ours)", _ALL, ["random"]),
    order_claim("all explainers above the centre square (ours)", _ALL, ["centre"]),
)


def _note_orders(frame: pl.DataFrame) -> list[str]:
    notes, means = note_bounds(frame), {}
    for name in ("GSA", "IGA", "FMN"):
        values = [
            _RATIOS[name].values(frame.filter(pl.col("explainer") == each))[0] for each in _ALL[:-2]
        ]
        if all(map(len, values)):
            means[name] = np.array([own.mean() for own in values])
    for one, other in itertools.combinations(means, 2):
        r = _spearman(means[one], means[other])
        notes.append(f"orders of the explainers by {one} and by {other}: Spearman {r:z.2f}")
    return notes


def _make_explainer_part(model: str) -> Part:
    return _make_part(
        f"explainers-{model}",
        f"c-Eval of explainers, top 10% of pixels held fixed, {model}: mean c(e) / c(empty) [95% interval]",
        (_RATIOS["GSA"], _MEDIAN, _RATIOS["IGA"], _RATIOS["FMN"]),
        notes=_note_orders,
        verdicts=_judge_orders,
    )


# ---- Fig. 13: log-odds ----


def compare_orders(
    frame: pl.DataFrame, attack: str
) -> tuple[list[str], list[str], Estimate, str] | None:
    """The orders of the six explainers by c-Eval and by mean log-odds, Spearman's correlation, and a statistic.

    The statistic is the one that orders the explainers by c-Eval: the `"mean"` of the ratio if the attack always found
    a change, else the `"median"`. A ratio without a change is a lower bound, so everything is computed twice: with
    these ratios as small and as large as they can be. The orders are those of the small ones, and the interval of the
    correlation, from a bootstrap over digits, covers both.
    """
    own = frame.filter(pl.col("label") == attack)
    if "bound" not in own.columns:
        return None
    bound = pl.col("bound").fill_null(False) & pl.col("value").is_not_nan()
    own = own.with_columns(pl.when(bound).then(float("inf")).otherwise("value").alias("largest"))
    ratios, largest = (
        own.pivot(on="explainer", index="sample", values=name) for name in ("value", "largest")
    )
    odds = pivot_by(frame.filter(pl.col("label") == "log-odds"), "value", "explainer")
    names = (*_PATHS, *_RAW)
    if not all(set(names) <= set(wide.columns) for wide in (ratios, odds)):
        return None
    both = ratios.join(odds, on="sample", suffix=" odds").join(largest, on="sample", suffix=" most")
    both = both.fill_nan(None).drop_nulls()  # without c(empty) there is no ratio
    if len(both) < 2:
        return None
    least, log_odds, most = (
        both.select(f"{n}{end}" for n in names).to_numpy() for end in ("", " odds", " most")
    )
    statistic = "mean" if np.isfinite(most).all() else "median"
    average = partial(getattr(np, statistic), axis=0)
    draws = np.random.default_rng(0).integers(len(both), size=(RESAMPLES, len(both)))
    ends = [
        np.nanquantile(
            [_spearman(average(values[rows]), log_odds[rows].mean(0)) for rows in draws],
            [0.025, 0.975],
        )
        for values in ((least,) if statistic == "mean" else (least, most))
    ]
    by_c, by_odds = average(least), log_odds.mean(0)
    orders = [
        [names[place] for place in np.argsort(-values, kind="stable")] for values in (by_c, by_odds)
    ]
    estimate = _spearman(by_c, by_odds), float(np.min(ends)), float(np.max(ends))
    return orders[0], orders[1], estimate, statistic


def _spearman(first: Array, second: Array) -> float:
    """Spearman's correlation; NaN if all values of one of them are equal."""
    if (first == first[0]).all() or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(midranks(first), midranks(second))[0, 1])


def _note_odds(frame: pl.DataFrame) -> list[str]:
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


def _judge_odds(label: int, frame: pl.DataFrame) -> list[Verdict]:
    excepted = "" if label == 9 else "DeepLIFT"  # the paper names this exception
    text = f"c-Eval and log-odds order the explainers in the same way{', except DeepLIFT' if excepted else ''}"
    verdicts: list[Verdict] = []
    for attack in ("GSA", "IGA"):
        found = compare_orders(frame, attack)
        orders = (
            [[name for name in order if name != excepted] for order in found[:2]] if found else []
        )
        verdicts.append((text, attack, orders[0] == orders[1] if orders else None))
    return verdicts


def _make_odds_part(label: int) -> Part:
    return _make_part(
        f"log-odds-{label}",
        f"c-Eval and log-odds of digits predicted as {label}: means [95% interval]",
        (_RATIOS["GSA"], _MEDIAN, _RATIOS["IGA"], Column("log-odds", "value", metric="log-odds")),
        notes=_note_odds,
        verdicts=partial(_judge_odds, label),
    )


for _name, _title, _parts in (
    ("figure4", "Fig. 4: fast attacks and the best attack", (ATTACK_PART,)),
    ("figure9", "Fig. 9: samples of LIME", (SAMPLE_PART,)),
    ("figure10", "Fig. 10: adversarially trained models", (MODEL_PART,)),
    (
        "figure11",
        "Fig. 11: explainers, on MNIST",
        tuple(map(_make_explainer_part, (NATURAL, ROBUST[0]))),
    ),
    ("figure13", "Fig. 13: c-Eval and log-odds", tuple(map(_make_odds_part, (4, 8, 9)))),
):
    reproductions.add(f"ceval-{_name}", Reproduction(f"c-Eval, {_title}", _parts))
