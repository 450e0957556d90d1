"""SenC (sensitivity consistency): Fig. 4 (parameters), Fig. 5 (data), and each data set on its own.

Tan, "Evaluating Sensitivity Consistency of Explanations" (WACV 2025). The paper's estimator is biased
(docs/senc-bias.md). So every table has the paper's and the centred estimator, and the paper's sentences are judged by
both. Every table also has controls: the random explainer, as in the paper, and a copy of the input, its edges, and an
explainer on the model with shuffled weights (docs/controls.md). For CIFAR-10, the masked parameters are those of the
first convolution, the first stage and the last layer, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import polars as pl

from papers.base import Claim, Column, Part, Reproduction, reproductions
from papers.files import make_part, read_numbers
from standfast.report.sentences import say
from standfast.statistics.comparison import compare_with_controls

_GRADIENT = ("saliency", "guided backprop", "integrated gradients", "DeepLift", "LRP")
_CONTROLS = ("input copy", "edges", "randomised saliency", "random")
_TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "gtsrb": "GTSRB"}


def _make_claim(text: str, names: tuple[str, ...], judge: Callable[[list[float]], bool]) -> Claim:
    """A sentence that is judged by the means of these explainers; it is undecided if one of them is missing."""

    def holds(means: Mapping[str, float]) -> bool | None:
        values = [means.get(name, math.nan) for name in names]
        return None if any(map(math.isnan, values)) else judge(values)

    return Claim(text, holds)


def _claim_at_chance(*names: str) -> Claim:
    text = f"{' and '.join(names)} at the level of random explanations (below 0.1)"
    return _make_claim(text, names, lambda values: all(abs(value) < 0.1 for value in values))


def _claim_above_random(*names: str) -> Claim:
    text = f"{' and '.join(names)} clearly above random explanations"
    return _make_claim(
        text, (*names, "random"), lambda values: min(values[:-1]) > abs(values[-1]) + 0.05
    )


def _claim_first(name: str) -> Claim:
    def holds(means: Mapping[str, float]) -> bool | None:
        known = {
            n: mean for n, mean in means.items() if not math.isnan(mean) and n not in _CONTROLS
        }
        return known[name] == max(known.values()) if name in known else None

    return Claim(f"{name} is first", holds)


_RANDOM = _claim_at_chance("random")
_LAST = _make_claim(
    "every method except Grad-CAM is above 0.6, Grad-CAM is last",
    (*_GRADIENT, "Grad-CAM"),
    lambda values: min(values[:-1]) > 0.6 and values[-1] < min(values[:-1]),
)
_CLAIMS = {
    "mnist-data": (_LAST, _RANDOM),
    "cifar10-data": (_claim_first("DeepLift"), _claim_at_chance("LRP", "Grad-CAM"), _RANDOM),
    "gtsrb-data": (
        _claim_above_random("guided backprop", "integrated gradients", "DeepLift"),
        _RANDOM,
    ),
    "mnist-parameters": (_claim_first("integrated gradients"), _RANDOM),
    "cifar10-parameters": (_claim_first("DeepLift"), _claim_above_random("DeepLift"), _RANDOM),
    "gtsrb-parameters": (_claim_above_random("integrated gradients", "DeepLift"), _RANDOM),
}


def _describe_tests(frame: pl.DataFrame) -> list[str]:
    """The band of the null hypothesis, how often each explainer is outside, and which are better than the controls."""
    if "p_value" not in frame.columns or not len(frame):
        return []
    low, high = (
        float(frame[name].drop_nulls().to_numpy().mean()) for name in ("null_low", "null_high")
    )
    tested = frame.drop_nulls("p_value").group_by("explainer", maintain_order=True)
    shares = [
        f"{name} {share:.0%}"
        for name, share in tested.agg((pl.col("p_value") < 0.05).mean()).iter_rows()
    ]
    table = frame.pivot("explainer", index="sample", values="value", aggregate_function="mean")
    names = [name for name in table.columns if name != "sample" and table[name].is_finite().any()]
    values = table.select(pl.col(names).cast(pl.Float64).fill_null(float("nan"))).to_numpy()
    tests = compare_with_controls(
        values, names, [name for name in names if name in _CONTROLS], "higher"
    )
    said = say("controls", tests, 2) if tests else "no controls"
    return [
        f"null band of the centred rho at one sample, on average: [{low:z.2f}, {high:z.2f}]",
        f"samples with p < 0.05 (5% under the null): {', '.join(shares)}",
        f"centred rho, paired with the controls: {said}",
    ]


_NUMBERS = read_numbers("senc/figures4and5.csv")


def _make_part(name: str) -> Part:
    data, kind = name.split("-")
    return make_part(
        "senc",
        name,
        f"SenC of {kind}, {_TITLES[data]}: mean rho [95% interval]",
        (
            Column("paper's estimator", "rho_paper", paper=_NUMBERS[name]),
            Column("centred", "value"),
        ),
        claims=_CLAIMS[name],
        notes=_describe_tests,
    )


PARTS = {name: _make_part(name) for name in _CLAIMS}

for _data, _title in _TITLES.items():
    _parts: tuple[Part, ...] = (PARTS[f"{_data}-data"], PARTS[f"{_data}-parameters"])
    reproductions.add(
        f"senc-{_data}", Reproduction(f"SenC on {_title}: data and parameters", _parts)
    )
for _figure, _kind in ((4, "parameters"), (5, "data")):
    _parts = tuple(PARTS[f"{data}-{_kind}"] for data in _TITLES)
    reproductions.add(
        f"senc-figure{_figure}", Reproduction(f"SenC, Fig. {_figure}: {_kind}", _parts)
    )
