"""Log-odds score: does the prediction turn towards another class when the pixels that speak against it are erased?

Problem: an input of class o is turned towards class t by erasing pixels. With maps S_o and S_t of the two classes, the
pixels with the largest S_o - S_t are erased: only where it is positive, and at most a fraction of all pixels. The score
is the change of the log-odds of the two classes:

    [log p_o(x) - log p_t(x)] - [log p_o(x_erased) - log p_t(x_erased)]

which is a difference of logits; larger is better. Source: Shrikumar, Greenside and Kundaje, "Learning Important
Features Through Propagating Activation Differences" (DeepLIFT), ICML 2017, Sec. 4.1: MNIST, 8 to 3, 8 to 6, 9 to 1, 4
to 1, up to 20% (157 pixels).

Equal differences are put in order at random, in the same way for all explainers. There are no other random numbers.
The controls `random`, `centre`, `input_copy` and `edges` (`ModelFreeExplainer`) ignore the class by design, so that
their S_o - S_t is 0. They erase as many pixels as allowed, largest S_o first. Any other explainer that ignores the
class has nothing to erase and is `"degenerate"`.

Cost: for each pair of a sample, one explanation and one prediction; and one explanation of the sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.base import BaselineOption, resolve_baseline
from standfast.explainers.baselines import ModelFreeExplainer
from standfast.metrics.base import Cost, Metric, metrics
from standfast.metrics.positions import count_positions, rank_with_random_ties, sum_channels
from standfast.metrics.probe import Call, Probe
from standfast.metrics.replaced_copies import ReplacedCopies, make_sample_keys
from standfast.metrics.result import Result
from standfast.records import Share, set_fields
from standfast.segments import spatial_shape
from standfast.tensors import count_at_once, send
from standfast.value_spec import ValueSpec

Pairs = tuple[tuple[int, int], ...]

_ELEMENTS = 1 << 22  # numbers in the maps that are compared at a time: 16 MB


@dataclass(frozen=True)
class LogOddsResult(Result):
    """Changes of log-odds. A pair belongs to a sample if the sample's class is the first of the pair.

    A sample without pairs is `"ok"` and has no value (NaN). It is `"degenerate"` if for each of its pairs S_o - S_t is
    the same at all pixels.

    Attributes:
        value: the mean of `per_pair` over the pairs of a sample; NaN if there are none, or if it was skipped. `(N,)`
        converted: for which share of these pairs the erased input has a larger logit of t than of o. `(N,)`
        erased: the mean share of pixels that were erased for them. `(N,)`
        per_pair: the change for each pair; NaN for a pair that does not belong to the sample. `(N, P)`
        before, after: the log-odds at the sample and at the erased input; NaN in the same places. `(N, P)`
        towards: class t; -1 in the same places. Int64 `(N, P)`
        erased_pixels: which pixels were erased, bool `(N, P, *spatial)`.
    """

    stored = ("per_pair", "before", "after", "towards", "erased_pixels")

    converted: Tensor
    erased: Tensor
    per_pair: Tensor
    before: Tensor
    after: Tensor
    towards: Tensor
    erased_pixels: Tensor

    def columns(self) -> dict[str, Any]:
        """The columns of every result, and a column `log_odds_O_T` for every pair of classes."""
        pairs = name_pair_columns(self.options)
        columns = super().columns()
        if not pairs:
            return columns
        values_of_pairs = self.per_pair.T.tolist()
        return {**columns, **dict(zip(pairs, values_of_pairs, strict=True))}


@metrics.register("log_odds")
@dataclass(frozen=True)
class LogOdds(Metric):
    """The change of two classes' log-odds when the pixels that distinguish them are erased (Shrikumar et al. 2017).

    Args:
        pairs: pairs of classes `(o, t)`: a sample whose explained class is o is turned towards t. None: every sample is
            turned towards the class with the second largest logit. `preset="paper"` has the paper's pairs of digits.
        fraction: which share of all pixels, time steps or flat features may be erased (rounded, at least one).
        baseline: the value of erased pixels: one number, or one for each channel; within the bounds. By default 0, and
            for tables the baseline of the model's reference.

    Raises:
        ArgumentError: options out of range; in the call, classes that the model does not have, a baseline outside the
            bounds.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:6]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = LogOdds()(model, "input_x_gradient", digits.inputs)
    >>> result.per_pair.shape, bool((result.value > 0).all()), bool((result.erased <= 157 / 784).all())
    (torch.Size([6, 1]), True, True)
    """

    name = "log_odds"
    removal_options = ("baseline",)
    evidence = "faithful"
    controls = True
    values = ValueSpec(
        "Change of the log-odds when the pixels that distinguish two classes are erased",
        "change of the log-odds",
        "higher",
        decimals=2,
        good="more faithful",
    )
    citation = "shrikumar2017deeplift"

    presets = {"paper": {"pairs": ((8, 3), (8, 6), (9, 1), (4, 1))}}

    pairs: Pairs | None = None
    fraction: Share = 0.2
    baseline: BaselineOption = None

    def __post_init__(self) -> None:
        expected = "None, or pairs of different classes such as ((8, 3), (9, 1)), each once"
        if self.pairs is not None:
            listed = isinstance(self.pairs, list | tuple) and len(self.pairs) > 0
            are_pairs = listed and all(map(_is_pair, self.pairs))
            check(are_pairs, "pairs", expected, repr(self.pairs))
            pairs = tuple((int(o), int(t)) for o, t in self.pairs)
            is_once = len(set(pairs)) == len(pairs)
            check(is_once, "pairs", expected, repr(self.pairs))
            set_fields(self, pairs=pairs)

    def cost(self, classes: int | None = None) -> Cost:
        """The explanations of both classes, and the erased input: most samples have one pair or none."""
        return Cost(predictions=1, explanations=2)

    def evaluate(self, call: Call) -> LogOddsResult:
        """Erase pixels of every sample for each of its pairs, and compare the log-odds before and after."""
        task = call.model.task
        check(
            task.classes,
            "model",
            "a classification, as log-odds compare two classes",
            f"the task {task.name}",
        )
        inputs = call.inputs
        probe = Probe(call)
        baseline = resolve_baseline(call.model, inputs, self.baseline)
        towards = self._find_second_classes(probe)
        belongs = towards >= 0
        shape = towards.shape
        spatial = spatial_shape(inputs)
        keys = make_sample_keys(inputs, call.seed)
        eraser = _Eraser(probe, inputs, keys, baseline, self.fraction)
        before, after = torch.full(
            (2, *shape), torch.nan, dtype=torch.float64, device=inputs.device
        )
        positions = math.prod(spatial)
        erased = torch.zeros(*shape, positions, dtype=torch.bool, device=inputs.device)
        constant = torch.zeros(shape, dtype=torch.bool, device=inputs.device)
        entries = inputs[0].numel()
        size = max(1, count_at_once(_ELEMENTS, inputs) // entries)
        to_erase = belongs.nonzero()
        parts = torch.split(to_erase, size) if len(to_erase) else ()
        for part in parts:
            row, pair = part.unbind(1)
            other = towards[row, pair]
            before[row, pair] = _compute_log_odds(probe.logits[row], probe.targets[row], other)
            chosen, is_constant, usable = eraser.choose_pixels(row, other)
            erased[row, pair] = chosen
            constant[row, pair] = is_constant
            log_odds = eraser.query_log_odds(row, chosen, other)
            after[row, pair] = torch.where(usable, log_odds, torch.nan)
        per_pair = before - after
        counted = per_pair.isfinite()
        # a sample is degenerate only if none of its pairs has anything to erase
        has_pairs = belongs.any(1)
        are_all_constant = (constant == belongs).all(1)
        probe.skip(has_pairs & are_all_constant)
        return LogOddsResult(
            **probe.common_fields(self),
            value=_average_counted(per_pair, counted),
            # a class that is turned has log-odds below 0, so t has the larger logit
            converted=_average_counted((after < 0).double(), counted),
            erased=_average_counted(erased.double().mean(2), counted),
            per_pair=per_pair,
            before=before,
            after=after,
            towards=towards,
            erased_pixels=erased.reshape(*shape, *spatial),
        )

    def _find_second_classes(self, probe: Probe) -> Tensor:
        """Class t of each pair that belongs to a sample, else -1; int64 `(N, P)`."""
        targets = probe.targets
        classes = probe.logits.shape[1]
        usable = probe.scatter_to_all(torch.ones_like(probe.usable(), dtype=torch.bool))
        if self.pairs is None:
            # without the class itself the largest logit is the second largest of all
            others = probe.logits.scatter(1, targets[:, None], -torch.inf)
            second = others.argmax(1)
            return torch.where(usable, second, -1)[:, None]
        highest = max(max(pair) for pair in self.pairs)
        expected = f"classes from 0 to {classes - 1}, or None"
        check(highest < classes, "pairs", expected, self.pairs)
        first, second = send(self.pairs, targets.device).T
        is_of_pair = targets[:, None] == first
        return torch.where(usable[:, None] & is_of_pair, second, -1)


class _Eraser:
    """Chooses the pixels to erase, and queries the model at the erased inputs; the probe counts evaluations."""

    def __init__(
        self, probe: Probe, inputs: Tensor, keys: Tensor, baseline: Tensor, fraction: float
    ) -> None:
        self.probe = probe
        self.inputs = inputs
        self.keys = keys
        self.baseline = baseline
        self.copies = ReplacedCopies(probe, inputs)
        self.most = max(1, round(fraction * count_positions(inputs, "pixel")))

    def choose_pixels(self, rows: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Which pixels of the samples `rows` `(M,)` to erase to turn them towards the classes `other` `(M,)`.

        Returns:
            The pixels, bool `(M, pixels)`; where the difference of the maps is constant, bool `(M,)`; and where it is
            finite and not constant, bool `(M,)`.
        """
        probe = self.probe
        explainer = self.probe.explainer
        own_maps = sum_channels(probe.maps[rows])
        if isinstance(explainer, ModelFreeExplainer):
            # it ignores the class, so S_o - S_t would be 0: the minimum for S_t keeps the order of S_o
            other_maps = own_maps.amin(1, keepdim=True)
        else:
            maps, _ = explainer.attribute_all(probe.model, self.inputs[rows], other)
            other_maps = sum_channels(maps)
        difference = own_maps - other_maps
        finite = torch.isfinite(difference).all(1)
        eps = torch.finfo(self.inputs.dtype).eps
        # both maps are rounded, so a difference that should be constant varies by their last bits
        rounding = eps * torch.maximum(own_maps.abs(), other_maps.abs())
        constant = finite & _is_constant(difference, rounding)
        probe.count(rows, constant, ~finite)
        usable = finite & ~constant
        # the paper erases only where S_o - S_t is positive, also if that is less than the allowed share
        ranks = rank_with_random_ties(difference, self.keys[rows])
        chosen = (ranks < self.most) & (difference > 0)
        return chosen & usable[:, None], constant, usable

    def query_log_odds(self, rows: Tensor, pixels: Tensor, other: Tensor) -> Tensor:
        """The log-odds of the samples `rows` `(M,)` without `pixels` `(M, pixels)`; NaN where they are not finite."""

        def score(logits: Tensor, owner: Tensor, pixels: Tensor, other: Tensor) -> Tensor:
            return _compute_log_odds(logits, self.probe.targets[owner], other)

        def erase(owner: Tensor, pixels: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
            return pixels.to(self.inputs.dtype), self.baseline

        return self.copies.scores(score, erase, rows, pixels, other)


def _is_constant(values: Tensor, rounding: Tensor) -> Tensor:
    """Whether each row of `values` `(M, m)` is constant, up to rounding errors of size `rounding` `(M, m)`; `(M,)`."""
    spread = values.amax(1) - values.amin(1)
    return spread <= 8 * rounding.amax(1)


def _compute_log_odds(logits: Tensor, targets: Tensor, other: Tensor) -> Tensor:
    """`log p_own - log p_other`, float64 `(M,)`: the normalisation cancels. NaN where a logit is not finite."""
    classes = torch.stack((targets, other), 1)
    of_target, of_other = logits.double().gather(1, classes).unbind(1)
    are_finite = torch.isfinite(logits).all(1)
    return torch.where(are_finite, of_target - of_other, torch.nan)


def _average_counted(values: Tensor, counted: Tensor) -> Tensor:
    """The mean over the counted values of each row, `(N,)`; NaN where there are none."""
    sums = torch.where(counted, values, 0.0).sum(1)
    return sums / counted.sum(1)


def _is_pair(pair: object) -> bool:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return False
    first, second = pair
    are_classes = all(type(c) is int and c >= 0 for c in pair)
    return are_classes and first != second


def name_pair_columns(options: Mapping[str, Any]) -> list[str]:
    """The names of the columns for the pairs; none if every sample is turned towards its second class."""
    pairs = options.get("pairs") or ()
    return [f"log_odds_{o}_{t}" for o, t in pairs]
