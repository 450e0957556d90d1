"""Corruption curves: how much of the prediction is lost as positions are replaced, coarse to fine.

Problem: a map of the predicted class gives each position a relevance, of which only the positive counts. For a share k,
replace the `floor(k n_plus)` most relevant (`top`) or least relevant (`bottom`) of the `n_plus` positions that have it.
With S the probability of the class, the drop is

    drop_k = (S(x) - S(x_k)) / S(x),   averaged over draws of the replacement

Over a data set the mean drop makes the coarse numbers (areas, F1), and the distribution over samples at each k the fine
ones: skewness and kurtosis. See `corruption_summary`. Source: Wei, Turbe and Mengaldo, "Revisiting the robustness of
post-hoc interpretability methods" (2024), Sec. 3 and App. A; the framework is that of Turbe, Bjelogrlic, Lovis and
Mengaldo, "Evaluation of post-hoc interpretability methods in time-series classification", Nature Machine Intelligence
5, 2023.

A position is an entry, of any channel, as in the paper; or a pixel (a time step) with all its channels. A sample
without positive relevance is flagged, and counts with a drop of 0: its map has named nothing. Where a map does not tell
positions apart, the first comes first.

What we add: replacements that are the same for all explainers, so that these differ by relevance alone; an area of each
sample by itself, the headline, under its own drop over its own share of corrupted positions, with the error that the
draws leave. (The mean of these is not the area under the mean curve, which is `auc_top`.) What we change: normal noise
is clipped to the classifier's bounds, for no input may leave them; where they are infinite, nothing is.

Cost for each sample: at most `draws * orders * K` predictions, and one with explanation. The copy with all positive
positions replaced is the same in both orders, and is looked at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import ArgumentError, check, check_integer
from holdfast.explainers import Background, Explainer
from holdfast.explainers.background import check_background
from holdfast.explainers.base import Baseline, check_baseline
from holdfast.metrics.base import Metric, PartOf, Role, metrics
from holdfast.metrics.coarse_to_fine.replacement import (
    CorruptedScores,
    Fields,
    Fill,
    constant_fields,
    filled_fields,
    gaussian_fields,
    sample_fields,
)
from holdfast.metrics.coarse_to_fine.shown import drawing_data
from holdfast.metrics.coarse_to_fine.statistics import area, quantile, share_above
from holdfast.metrics.coarse_to_fine.summary import CorruptionSummary, Curves, summarise
from holdfast.metrics.positions import Order, Unit
from holdfast.metrics.probe import Probe
from holdfast.metrics.replaced_copies import sample_keys, scores_of
from holdfast.metrics.result import Result
from holdfast.model import Classifier
from holdfast.records import set_fields
from holdfast.statistics.paired import Array
from holdfast.tensors import draw_seed

Replacement = Literal["gaussian", "constant", "sample"]

#: the paper's shares of the positive positions
FRACTIONS = (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0)


@dataclass(frozen=True)
class CorruptionCurveResult(Result):
    """The drops of each sample; what they say of the data set, as properties.

    Attributes:
        area_top, area_bottom: under a sample's own drop over its own `corrupted_share`, most and least relevant
            first; NaN for skipped samples and an order that was not asked for. At most 1. `(N,)`
        std_error: of `area_top` (of `area_bottom` where there is no other), from its spread over draws; NaN with a
            single draw. It is the replacement's alone. `(N,)`
        score: `S(x)`, the class's probability at the sample itself. `(N,)`
        positive: n_plus, the positions with positive relevance. `(N,)`
        positive_share: of all positions. `(N,)`
        no_positive: there are none, so all drops are 0. `(N,)` bool
        clipped: the share of replacements that lay outside of the classifier's bounds. `(N,)`
        drop_top, drop_bottom: mean drop over draws at each k; NaN for skipped samples, where the model was not finite
            in any draw, and for an order that was not asked for. `(N, K)`
        corrupted_share: `floor(k n_plus)` over the number of all positions. `(N, K)`
        fractions: the shares k.
        shaded, shade_range, turn: for pictures, see `corruption_shown`; `(N, ...)`, `(N, 2)` and `(N, ...)`.
        noise_key: which replacements a sample was given, `(N,)`: results with the same keys, shapes and `draws` saw
            the same values in the same places, whatever the explainer, and their differences are paired.
    """

    area_top: Tensor
    area_bottom: Tensor
    std_error: Tensor
    score: Tensor
    positive: Tensor
    positive_share: Tensor
    no_positive: Tensor
    clipped: Tensor
    drop_top: Tensor
    drop_bottom: Tensor
    corrupted_share: Tensor
    fractions: tuple[float, ...]
    shaded: Tensor
    shade_range: Tensor
    turn: Tensor
    noise_key: Tensor = field(metadata={"per_sample": False})

    def tensors(self) -> dict[str, Tensor]:
        """The drops of the orders asked for, with their shares, the keys of the noise, and what pictures need."""
        shares = torch.tensor(self.fractions, dtype=torch.float64).expand(len(self), -1)
        return {
            **{f"drop_{order}": drops.contiguous() for order, drops in self.score_drop.items()},
            "corrupted_share": self.corrupted_share.contiguous(),
            "fractions": shares.contiguous(),
            "noise_key": self.noise_key.contiguous(),
            **{name: getattr(self, name) for name in ("shaded", "shade_range", "turn")},
        }

    @property
    def score_drop(self) -> dict[str, Tensor]:
        """Mean drops `(N, K)` by the orders that were asked for."""
        return {order: getattr(self, f"drop_{order}") for order in self.options["order"]}

    def curves(self) -> Curves:
        """All samples' drops as arrays, for `corruption_summary` and `corruption_compared`."""
        drops = {order: values.double().cpu().numpy() for order, values in self.score_drop.items()}
        share = self.corrupted_share.double().cpu().numpy().copy()
        share[[status != "ok" for status in self.status]] = math.nan
        return Curves(drops.get("top"), drops.get("bottom"), share, np.array(self.fractions))

    def summary(self, *, tau: float = 0.5, q: float = 0.25, resamples: int = 2000, seed: int = 0) -> CorruptionSummary:
        """All numbers of these samples, with intervals; see `corruption_summary.summary`."""
        return summarise(self.curves(), tau=tau, q=q, resamples=resamples, seed=seed)

    @cached_property
    def _numbers(self) -> CorruptionSummary:
        return self.summary(resamples=0)

    @property
    def auc_top(self) -> float:
        """Area under the mean drop, most relevant first, over the mean share of corrupted positions."""
        return self._numbers.auc_top

    @property
    def auc_bottom(self) -> float:
        """The same, least relevant first."""
        return self._numbers.auc_bottom

    @property
    def f1(self) -> float:
        """The harmonic mean of `auc_top` and `1 - auc_bottom`."""
        return self._numbers.f1

    @property
    def f1_paper(self) -> float:
        """The same as it is printed, without the factor 2."""
        return self._numbers.f1_paper

    @property
    def skewness(self) -> Array:
        """Of the drops at each k, most relevant first, `(K,)`."""
        return self._numbers.skewness

    @property
    def kurtosis(self) -> Array:
        """Excess kurtosis of the drops at each k, most relevant first, `(K,)`."""
        return self._numbers.kurtosis

    @property
    def auc_skewness(self) -> float:
        """1 less the area under the skewness over k, on the absolute scale; for the other, see `compared`."""
        return self._numbers.auc_skewness

    @property
    def auc_kurtosis(self) -> float:
        """The area under the kurtosis over k, on the absolute scale; for the other, see `compared`."""
        return self._numbers.auc_kurtosis

    def share_above(self, tau: float) -> Array:
        """The share of samples whose drop is at least tau, most relevant first, `(K,)`."""
        return share_above(self._top(), tau)

    def quantile(self, q: float) -> Array:
        """The q-quantile of the drops, most relevant first, `(K,)`."""
        check(0 < q < 1, "q", "a number between 0 and 1, exclusive", q)
        return quantile(self._top(), q)

    def _top(self) -> Array:
        curves = self.curves()
        check(curves.top is not None, "order", "one with 'top'", self.options["order"])
        kept: Array = curves.of(curves.complete()).top  # type: ignore[assignment]
        return kept


@metrics.register("corruption_curve")
@dataclass(frozen=True)
class CorruptionCurve(Metric):
    """Corruption curves: what replacing the most, or least, relevant positions costs the prediction (Wei et al. 2024).

    Args:
        fractions: shares k of the positions with positive relevance, in (0, 1], increasing.
        order: `"top"` and `"bottom"`, or one of them.
        replacement: of what is corrupted: `"gaussian"` noise, a `"constant"`, a `"sample"` of the background, or a
            function `(inputs, uniform) -> values` that gets inputs `(m, ...)` and uniform numbers in (0, 1) of the same
            shape and returns values of that shape, each row by itself.
        draws: of the replacement, at least 1; a constant is the same in every draw.
        mean, sd: of the noise: one number, or one for each channel. For inputs that are not standardised, those of
            the training data.
        baseline: the constant: a number, or one for each channel; within the bounds.
        background: reference inputs for `"sample"`: each draw takes one of them, whole.
        positions: what is replaced at once: an `"entry"`, of any channel, or a `"pixel"` (a time step) with all its
            channels, whose relevances are summed.

    Raises:
        ArgumentError: options out of range; in the call, a mean, baseline or background that does not fit the inputs, a
            function that returns something else than finite values of the inputs' shape.

    >>> import holdfast as hf
    >>> digits = hf.data.bundled("digits")[:4]
    >>> classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> curve = CorruptionCurve(fractions=(0.1, 0.5, 1.0), draws=2, mean=0.13, sd=0.31)
    >>> result = curve(classifier, "integrated_gradients", digits.inputs)
    >>> result.score_drop["top"].shape, bool(result.auc_top > result.auc_bottom)
    (torch.Size([4, 3]), True)
    """

    name: ClassVar[str] = "corruption_curve"
    category: ClassVar[str] = "faithfulness"
    headline: ClassVar[str] = "area_top"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    citation: ClassVar[str] = "wei2024revisiting"
    bibtex: ClassVar[str] = """@article{wei2024revisiting,
  title   = {Revisiting the Robustness of Post-hoc Interpretability Methods},
  author  = {Wei, Jiawen and Turb{\\'e}, Hugues and Mengaldo, Gianmarco},
  journal = {arXiv preprint arXiv:2407.19683},
  year    = {2024}
}"""
    roles: ClassVar[Mapping[str, Role]] = {
        "mean": PartOf("replacement", only=("gaussian",)),
        "sd": PartOf("replacement", only=("gaussian",)),
        "baseline": PartOf("replacement", only=("constant",)),
        "background": PartOf("replacement", only=("sample",)),
        "draws": PartOf("replacement", unless=("constant",)),
    }

    fractions: tuple[float, ...] = FRACTIONS
    order: tuple[Order, ...] = ("top", "bottom")
    replacement: Replacement | Fill = "gaussian"
    draws: int = 5
    mean: Baseline = 0.0
    sd: Baseline = 1.0
    baseline: Baseline = 0.0
    background: Background | Tensor | None = None
    positions: Unit = "entry"

    def __post_init__(self) -> None:
        for name in ("fractions", "order", "mean", "sd", "baseline"):
            value = getattr(self, name)
            set_fields(self, **{name: tuple(value) if isinstance(value, list) else value})
        shares = self.fractions if isinstance(self.fractions, tuple) else ()
        fine = len(shares) > 0 and all(isinstance(k, int | float) and 0 < k <= 1 for k in shares)
        fine = fine and all(a < b for a, b in pairwise(shares))
        check(fine, "fractions", "increasing numbers above 0, up to 1", repr(self.fractions))
        orders = self.order if isinstance(self.order, tuple) else ()
        fine = len(orders) > 0 and set(orders) <= set(get_args(Order)) and len(set(orders)) == len(orders)
        check(fine, "order", "'top', 'bottom', or both, as a list", repr(self.order))
        known = callable(self.replacement) or self.replacement in get_args(Replacement)
        check(known, "replacement", "'gaussian', 'constant', 'sample' or a function", repr(self.replacement))
        check_integer(self.draws, "draws")
        for name in ("mean", "sd", "baseline"):
            self._check_numbers(name)
        spread = [self.sd] if isinstance(self.sd, int | float) else self.sd
        check(all(value > 0 for value in spread), "sd", "numbers above 0", repr(self.sd))
        check(self.positions in get_args(Unit), "positions", "'entry' or 'pixel'", repr(self.positions))
        if self.replacement == "sample":
            fine = isinstance(self.background, Background | Tensor)
            check(
                fine, "background", "reference inputs (B, ...), as the replacement is 'sample'", repr(self.background)
            )
            set_fields(self, background=check_background(self.background))  # type: ignore[arg-type]
        else:
            got = repr(self.background)
            check(self.background is None, "background", "None, as the replacement is not 'sample'", got)

    def _check_numbers(self, name: str) -> None:
        try:
            check_baseline(getattr(self, name))
        except ArgumentError as error:
            raise ArgumentError(name, error.expected, error.got) from None

    @classmethod
    def example(cls) -> CorruptionCurve:
        """See `Metric`."""
        return cls(fractions=(0.2, 0.6, 1.0), draws=2)

    def expected_evaluations(self) -> int:
        """The copies and the sample itself; fewer where few positions are relevant."""
        copies = len(self.order) * len(self.fractions) - (len(self.order) - 1) * (self.fractions[-1] == 1)
        return 1 + self._draws * copies

    @property
    def _draws(self) -> int:
        return 1 if self.replacement == "constant" else self.draws

    def _fields(self, classifier: Classifier, inputs: Tensor) -> Fields:
        if self.replacement == "gaussian":
            return gaussian_fields(inputs, self.mean, self.sd)
        if self.replacement == "constant":
            return constant_fields(classifier, inputs, self.baseline)
        if self.replacement == "sample":
            assert isinstance(self.background, Background)  # since `__post_init__`
            return sample_fields(classifier, inputs, self.background)
        return filled_fields(self.replacement)

    def evaluate(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> CorruptionCurveResult:
        """See `Metric`."""
        fields = self._fields(classifier, inputs)
        probe = Probe(classifier, explainer, inputs, targets)
        keys, usable = sample_keys(inputs, draw_seed(generator)), probe.usable()
        orders: tuple[Order, ...] = tuple(order for order in get_args(Order) if order in self.order)
        corrupted = CorruptedScores(probe, inputs, self.positions, self.fractions, orders, keys, self._draws, fields)
        start = scores_of(probe.logits, probe.targets, "probability")
        share = corrupted.counts.double() / corrupted.places
        levels = (len(inputs), len(self.fractions))
        drop = {o: torch.full(levels, torch.nan, dtype=torch.float64, device=inputs.device) for o in get_args(Order)}
        under = {o: torch.full_like(start, torch.nan) for o in get_args(Order)}
        error = torch.full_like(start, torch.nan)
        for rows, scores in corrupted.scores(usable):
            drops = 1 - scores / start[rows, None, None, None]
            for place, order in enumerate(orders):
                drop[order][rows] = _mean_of_draws(drops[:, :, place])
                under[order][rows] = area(share[rows], drop[order][rows])
            if self._draws > 1:
                areas = area(share[rows, None], drops[:, :, 0])
                spread = _mean_of_draws((areas - _mean_of_draws(areas)[:, None]) ** 2)
                error[rows] = (spread / ((~areas.isnan()).sum(1) - 1)).sqrt()
        no_positive = torch.zeros_like(corrupted.positive, dtype=torch.bool)
        no_positive[usable] = corrupted.positive[usable] == 0
        return CorruptionCurveResult(
            **probe.common_fields(self),
            value=under[orders[0]],
            area_top=under["top"],
            area_bottom=under["bottom"],
            std_error=error,
            score=start,
            positive=corrupted.positive,
            positive_share=corrupted.positive.double() / corrupted.places,
            no_positive=no_positive,
            clipped=corrupted.clipped,
            drop_top=drop["top"],
            drop_bottom=drop["bottom"],
            corrupted_share=share,
            fractions=tuple(float(k) for k in self.fractions),
            **drawing_data(inputs, probe.maps, corrupted.counts, self.positions),
            noise_key=keys,
        )


def _mean_of_draws(values: Tensor) -> Tensor:
    """The mean over the second axis of `(n, draws, ...)`, of what is not NaN; NaN where nothing else is.

    One by one: a sum's last bits depend on how a tensor lies in memory, and that on how many samples there are.
    """
    total, count = torch.zeros((2, *values[:, 0].shape), dtype=values.dtype, device=values.device)
    for each in values.unbind(1):
        fine = ~each.isnan()
        total, count = total + torch.where(fine, each, 0.0), count + fine
    mean: Tensor = total / count
    return mean
