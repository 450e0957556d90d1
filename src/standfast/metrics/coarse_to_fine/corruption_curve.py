"""Corruption curves: how much of the prediction is lost as relevant positions are replaced, coarse to fine.

Problem: a map of the predicted class gives each position a relevance. Only positive relevance counts. For a share k,
replace the `floor(k n_plus)` most relevant (`top`) or least relevant (`bottom`) of the `n_plus` positions with positive
relevance. With S the probability of the class, the drop is

    drop_k = (S(x) - S(x_k)) / S(x),   averaged over random draws of the replacement

Over a data set the mean drop makes the coarse numbers (areas, F1). The distribution of the drops over samples at each k
makes the fine numbers: skewness and kurtosis. See
`standfast.statistics.corruption.summary`. Source: Wei, Turbe and Mengaldo, "Revisiting the
robustness of post-hoc interpretability methods" (2024), Sec. 3 and App. A; the framework is that of Turbe, Bjelogrlic,
Lovis and Mengaldo, "Evaluation of post-hoc interpretability methods in time-series classification", Nature Machine
Intelligence 5, 2023.

A position is an entry of any channel, as in the paper; or a pixel (a time step) with all its channels. A sample without
positive relevance is flagged and counts with a drop of 0. Of positions with equal relevance the first one comes first.

We add replacements that are the same for all explainers, so that explainers differ by their relevance alone. We also
add an area for each sample, its value: the area under the sample's own drop over its own share of replaced
positions, with the standard error due to the draws. (The mean of these areas is not the area under the mean curve,
which is `auc_top`.) We change one thing: normal noise is clipped to the model's bounds, because no input may leave
them. So by default it has the scale of the bounds. Infinite bounds clip nothing; there it is N(0, 1), as in the paper.

Cost for each sample: at most `samples * orders * K` predictions, and one with explanation. The copy with all positive
positions replaced is the same in both orders, and is forwarded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers import Background
from standfast.explainers.background import check_background
from standfast.explainers.base import BaselineOption
from standfast.metrics.base import Cost, Metric, PartOf, metrics
from standfast.metrics.coarse_to_fine.corruption_result import CorruptionCurveResult
from standfast.metrics.coarse_to_fine.replacement import (
    CorruptedScores,
    Fields,
    find_levels,
    make_constant_fields,
    make_gaussian_fields,
    make_sample_fields,
)
from standfast.metrics.positions import Order, Unit, adapt_explainer, warn_of_coarse_maps
from standfast.metrics.probe import Call, Probe
from standfast.metrics.replaced_copies import make_draw_keys, make_sample_keys
from standfast.model import Model
from standfast.records import Count, Share, set_fields
from standfast.statistics.curves import compute_area
from standfast.tasks import measure_score
from standfast.value_spec import CommonShare, ValueSpec

Replacement = Literal["gaussian", "constant", "sample"]

_CHANCE = "Only the difference to random maps is due to the map."
#: the paper's shares of the positive positions
FRACTIONS = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0)


@metrics.register("corruption_curve")
@dataclass(frozen=True)
class CorruptionCurve(Metric):
    """How much of the prediction is lost as the most, or least, relevant positions are replaced (Wei et al. 2024).

    Args:
        fractions: shares k of the positions with positive relevance, in (0, 1], increasing.
        order: which positions come first: the most relevant, `"top"`, the least relevant, `"bottom"`, or both orders.
        replacement: the values of replaced positions: `"gaussian"` noise, a `"constant"`, or a `"sample"` of the
            background.
        samples: how many random draws of the replacement; a constant needs only one.
        mean, sd: of the noise: one number, or one for each channel. Best are the mean and the standard deviation of the
            training data. By default, for tables those of the model's reference; else for finite bounds of the model
            their middle and a quarter of their range, and for infinite bounds 0 and 1, as in the paper, whose inputs
            are standardised.
        baseline: the constant: one number, or one for each channel; within the bounds. By default 0, and for tables the
            baseline of the model's reference.
        background: reference inputs for `"sample"`: each draw uses one of them, whole.
        unit: what counts as one position: an `"entry"`, of any channel, or a `"pixel"` (a time step) with all its
            channels. The relevance of a pixel is the sum over its channels.

    Raises:
        ArgumentError: options out of range; in the call, a mean, baseline or background that does not fit the inputs.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:4]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> curve = CorruptionCurve(fractions=(0.1, 0.5, 1.0), samples=2, mean=0.13, sd=0.31)
    >>> result = curve(model, "integrated_gradients", digits.inputs)
    >>> numbers = result.summary(resamples=0)
    >>> result.score_drop["top"].shape, numbers.auc_top > numbers.auc_bottom
    (torch.Size([4, 3]), True)
    """

    name = "corruption_curve"
    removal_options = ("replacement", "baseline", "background")
    evidence = "faithful"
    controls = True
    citation = "wei2024revisiting"
    roles = {
        "mean": PartOf("replacement", only=("gaussian",)),
        "sd": PartOf("replacement", only=("gaussian",)),
        "baseline": PartOf("replacement", only=("constant",)),
        "background": PartOf("replacement", only=("sample",)),
        "samples": PartOf("replacement", unless=("constant",)),
    }
    presets = {
        "quick": {"samples": 1},
        "paper": {"samples": 1, "mean": 0.0, "sd": 1.0},
    }
    ladder = ({"samples": 1}, {"samples": 2})

    fractions: tuple[Share, ...] = FRACTIONS
    order: Order | tuple[Order, ...] = ("top", "bottom")
    replacement: Replacement = "gaussian"
    samples: Count = 5
    mean: BaselineOption = None
    sd: BaselineOption = None
    baseline: BaselineOption = None
    background: Annotated[Background | Tensor | None, check_background] = None
    unit: Unit = "entry"

    def __post_init__(self) -> None:
        increasing = all(a < b for a, b in pairwise(self.fractions))
        check(increasing, "fractions", "increasing numbers above 0, up to 1", repr(self.fractions))
        orders = self.order
        if isinstance(orders, str):
            orders = (orders,)
        check(
            len(set(orders)) == len(orders),
            "order",
            "'top', 'bottom', or a list of both",
            repr(self.order),
        )
        set_fields(self, order=orders)
        sd = 1.0 if self.sd is None else self.sd
        spreads = sd
        if isinstance(spreads, int | float):
            spreads = [spreads]
        check(all(value > 0 for value in spreads), "sd", "numbers above 0", repr(self.sd))
        got = repr(self.background)
        if self.replacement == "sample":
            is_checked = isinstance(self.background, Background | Tensor)
            check(
                is_checked,
                "background",
                "reference inputs (B, ...), as the replacement is 'sample'",
                got,
            )
        else:
            check(
                self.background is None,
                "background",
                "None, as the replacement is not 'sample'",
                got,
            )

    @classmethod
    def value_spec(cls, options: Mapping[str, Any]) -> ValueSpec:
        """The area. Explainers are compared up to the share that all replace, as longer maps have larger areas.

        A large drop is better, unless only the least relevant positions are replaced first.
        """
        most = _starts_at_the_top(options)
        which = "most" if most else "least"
        positions = f"{which} relevant positions corrupted"
        common_share = CommonShare(
            "corrupted_share",
            "drop_top" if most else "drop_bottom",
            "Common drop of {own}: averaged up to the share of positions that all explainers replace, "
            f"{positions} first",
            "common drop",
            caution=_CHANCE,
        )
        return ValueSpec(
            "Area under the drop of {own}, " + positions,
            "area under the drop",
            "higher" if most else "lower",
            decimals=3,
            caution=f"More positive positions make the area larger. {_CHANCE}",
            common_share=common_share,
        )

    @classmethod
    def example(cls) -> CorruptionCurve:
        return cls(fractions=(0.2, 0.6, 1.0), samples=2)

    def cost(self, classes: int | None = None) -> Cost:
        """The copies, fewer where few positions have positive relevance, and the explanation of the sample itself."""
        # k = 1 replaces all positive positions in either order, so that copy is predicted once
        copies = len(self.order) * len(self.fractions) - (len(self.order) - 1) * (
            self.fractions[-1] == 1
        )
        return Cost(self._draws * copies, explanations=1)

    @property
    def _draws(self) -> int:
        if self.replacement == "constant":
            return 1
        return self.samples

    def _make_fields(self, model: Model, inputs: Tensor) -> Fields:
        if self.replacement == "gaussian":
            return make_gaussian_fields(model, inputs, self.mean, self.sd)
        if self.replacement == "constant":
            return make_constant_fields(model, inputs, self.baseline)
        assert isinstance(self.background, Background)  # since `__post_init__`
        return make_sample_fields(model, inputs, self.background)

    def evaluate(self, call: Call) -> CorruptionCurveResult:
        """Replace positions of every sample in each order, and measure the drops."""
        inputs = call.inputs
        explainer = adapt_explainer(call.explainer, self.unit)
        fields = self._make_fields(call.model, inputs)
        probe = Probe(replace(call, explainer=explainer))
        warn_of_coarse_maps(self.own_label, call.model, explainer, probe.maps, self.unit)
        keys = make_sample_keys(inputs, call.seed)
        usable = probe.usable()
        # in the order of the type: the value is the area of `top` wherever that was measured
        orders: tuple[Order, ...] = tuple(order for order in get_args(Order) if order in self.order)
        corrupted = CorruptedScores(
            probe,
            inputs,
            self.unit,
            self.fractions,
            orders,
            make_draw_keys(keys, self._draws),
            fields,
        )
        start = measure_score(probe.model.task, probe.logits, probe.targets, "probability")
        share = corrupted.counts.double() / corrupted.positions
        levels = (len(inputs), len(self.fractions))
        drop = {
            o: torch.full(levels, torch.nan, dtype=torch.float64, device=inputs.device)
            for o in get_args(Order)
        }
        areas = {o: torch.full_like(start, torch.nan) for o in get_args(Order)}
        error = torch.full_like(start, torch.nan)
        for rows, scores in corrupted.scores(usable):
            drops = probe.model.task.measure_drop(start[rows, None, None, None], scores)
            for order_index, order in enumerate(orders):
                drop[order][rows] = _average_draws(drops[:, :, order_index])
                areas[order][rows] = compute_area(share[rows], drop[order][rows])
            if self._draws > 1:
                of_draws = compute_area(share[rows, None], drops[:, :, 0])
                deviations = of_draws - _average_draws(of_draws)[:, None]
                variance = _average_draws(deviations**2)
                # the spread over draws, divided by their number and by that number less one: the variance of a mean
                other_draws = (~of_draws.isnan()).sum(1) - 1
                error[rows] = (variance / other_draws).sqrt()
        no_positive = torch.zeros_like(corrupted.positive, dtype=torch.bool)
        no_positive[usable] = corrupted.positive[usable] == 0
        return CorruptionCurveResult(
            **probe.common_fields(self),
            value=areas[orders[0]],
            area_top=areas["top"],
            area_bottom=areas["bottom"],
            std_error=error,
            score=start,
            positive=corrupted.positive,
            positive_share=corrupted.positive.double() / corrupted.positions,
            no_positive=no_positive,
            clipped=corrupted.clipped,
            drop_top=drop["top"],
            drop_bottom=drop["bottom"],
            corrupted_share=share,
            fractions=tuple(float(k) for k in self.fractions),
            origins=inputs,
            replaced_at=find_levels(probe.maps, corrupted.counts, self.unit),
            noise_key=keys,
            shares=not probe.model.task.words.fall,
        )


def _starts_at_the_top(options: Mapping[str, Any]) -> bool:
    """Whether the value is that of the most relevant positions first."""
    return "top" in (options.get("order") or ("top",))


def _average_draws(values: Tensor) -> Tensor:
    """The mean over the second axis of `(n, draws, ...)`, without NaN; NaN if all are NaN.

    Draws are added one by one: the last bits of a sum depend on how a tensor lies in memory, and that depends on how
    many samples there are.
    """
    total, count = torch.zeros((2, *values[:, 0].shape), dtype=values.dtype, device=values.device)
    for draw in values.unbind(1):
        finite = ~draw.isnan()
        total, count = total + torch.where(finite, draw, 0.0), count + finite
    mean: Tensor = total / count
    return mean
