"""AOPC: how fast the prediction falls when regions are replaced in the order of the explanation.

Problem: cut the input into regions and score each region by the sum of the map over it. Take the regions in the order
of their scores and replace one after the other: x^(0) = x, and x^(k) has the first k regions replaced by random values.
With f the score of the explained class, the area over the perturbation curve is

    AOPC_L = 1 / (L + 1) * mean over random draws of  sum_{k=0}^{L} f(x^(0)) - f(x^(k))

If the most relevant regions come first ("MoRF"), a good map makes it large. If the least relevant regions come first
("LeRF"), a good map makes it small. Source: Samek, Binder, Montavon, Lapuschkin and Mueller, "Evaluating the
visualization of what a deep neural network has learned", IEEE TNNLS 28(11), 2017: the definitions of region
perturbation and of AOPC. There the mean is also over a data set. Here every sample has its own value. They use regions
of 9x9 pixels, 100 steps and uniform values.

We add the standard error due to the finite number of draws, and random values that are the same for all explainers.
Regions with equal scores are put in order at random, again in the same way for all explainers.

AOPC measures how faithful a map is to the model. It does not measure whether the map stays the same when the input
changes. The model was not trained on inputs with replaced regions, and part of every fall is due to that: compare with
`RandomExplainer`.

Cost: `samples * steps` predictions for each input, and one with explanation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.base import BaselineOption, resolve_baseline
from standfast.metrics.base import Cost, Metric, PartOf, metrics
from standfast.metrics.faithfulness.regions import Regions, cut_cells, sum_columns, sum_over_regions
from standfast.metrics.positions import Order, rank_with_random_ties
from standfast.metrics.probe import Call, Probe
from standfast.metrics.replaced_copies import (
    PerturbationCurves,
    ReplacedCopies,
    make_draw_keys,
    make_sample_keys,
)
from standfast.metrics.result import Result
from standfast.records import Count
from standfast.segments import segment
from standfast.tasks import Scale, measure_score
from standfast.tensors import hashed_uniform
from standfast.value_spec import ValueSpec


@dataclass(frozen=True)
class AOPCResult(Result):
    """The area over the perturbation curve of each sample. A sample whose regions have equal scores is `"degenerate"`.

    Attributes:
        value: the mean of `curve` up to the sample's last step; NaN for skipped samples. Between -1 and 1 for
            probabilities. `(N,)`
        std_error: the standard error of the value due to the random values, from its spread over draws; NaN with a
            single draw. `(N,)`
        score: `f(x^(0))`, the probability or logit of the class at the sample itself. `(N,)`
        regions: how many regions each sample has. `(N,)`
        steps: how many of them are replaced at the last step. `(N,)`
        grid_fallback: superpixels were not found, and a grid is used instead. `(N,)` bool
        curve: `f(x^(0)) - f(x^(k))` for k from 0, averaged over draws; NaN after a sample's last step. `(N, L + 1)`
        noise_key: the key of the random values of each sample, `(N,)`. Results with the same keys, shapes and `samples`
            saw the same values in the same places under every explainer, so their differences are paired.
    """

    stored = ("curve", "noise_key")

    std_error: Tensor
    score: Tensor
    regions: Tensor
    steps: Tensor
    grid_fallback: Tensor
    curve: Tensor
    noise_key: Tensor = field(metadata={"per_sample": False})


@metrics.register("aopc")
@dataclass(frozen=True)
class AOPC(Metric):
    """Area over the perturbation curve: how fast the prediction falls as regions are replaced (Samek et al. 2017).

    Args:
        region: the width of the cells, in pixels or time steps; 1 for single pixels. None for a 25th of the shorter
            side, at least 2 (9x9 pixels of 224x224, 2x2 of 28x28); then each flat feature is a region.
        steps: how many regions to replace, L; all of them if there are fewer.
        samples: how many random draws of the values; a constant needs only one.
        order: the most relevant regions first, `"top"` (MoRF), or the least relevant first, `"bottom"` (LeRF).
        replacement: `"uniform"` values within the model's bounds, or a `"constant"`, the baseline. For a table, uniform
            values are those of a row of the model's reference, if it has one, each row as likely as the others.
        baseline: the constant: one number, or one for each channel; within the bounds. By default 0, and for tables the
            baseline of the model's reference.
        absolute: score regions by the absolute map; the paper uses signed maps.
        score: of the explained class: its `"probability"` or its `"logit"`.
        segments: regions that are not cells: a method, about how many, or a tensor of labels; see
            `standfast.segments.segment`. Labels for each sample are in the order of the samples.

    Raises:
        ArgumentError: options out of range; in the call, cells so large that there are fewer than two, a baseline
            outside the bounds, uniform values within bounds that are infinite.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = AOPC(steps=20, samples=2)(model, "input_x_gradient", digits.inputs)
    >>> result.curve.shape, result.regions.tolist(), bool((result.value > 0).all())
    (torch.Size([2, 21]), [196, 196], True)
    """

    name = "aopc"
    removal_options = ("replacement", "baseline")
    evidence = "faithful"
    controls = True
    citation = "samek2017evaluating"
    roles = {
        "samples": PartOf("replacement", unless=("constant",)),
        "baseline": PartOf("replacement", only=("constant",)),
    }
    presets = {"quick": {"steps": 30, "samples": 2}}
    ladder = (
        {"steps": 30, "samples": 1},
        {"steps": 30, "samples": 2},
        {"samples": 1},
        {"samples": 2},
    )

    region: Count | None = None
    steps: Count = 100
    samples: Count = 5
    order: Order = "top"
    replacement: Literal["uniform", "constant"] = "uniform"
    baseline: BaselineOption = None
    absolute: bool = False
    score: Scale = "probability"
    segments: Regions = None

    def __post_init__(self) -> None:
        alone = self.segments is None or self.region is None
        check(alone, "region", "None where segments are given", repr(self.region))

    @classmethod
    def value_spec(cls, options: Mapping[str, Any]) -> ValueSpec:
        """The title names the order, and the axis the score.

        A large fall is better with the most relevant regions first, a small one with the least relevant.
        """
        least_first = options.get("order") == "bottom"
        first = "least" if least_first else "most"
        score = "{logit}" if options.get("score") == "logit" else "{probability}"
        return ValueSpec(
            f"AOPC, {first} relevant regions first",
            f"AOPC ({score})",
            "lower" if least_first else "higher",
            decimals=3,
            good="more faithful",
        )

    @classmethod
    def example(cls) -> AOPC:
        return cls(steps=6, samples=2)

    def cost(self, classes: int | None = None) -> Cost:
        """The copies, fewer where there are fewer regions than steps, and the explanation of the sample itself."""
        return Cost(self._draws * self.steps, explanations=1)

    @property
    def _draws(self) -> int:
        # a constant is the same in every draw
        if self.replacement == "uniform":
            return self.samples
        return 1

    def evaluate(self, call: Call) -> AOPCResult:
        """Score the regions, replace them step by step, and average the fall of the class's score."""
        model = call.model
        inputs = call.inputs
        constant = None
        reference = model.reference_for(inputs)
        if self.replacement == "constant":
            baseline = resolve_baseline(model, inputs, self.baseline)
            constant = baseline.expand(1, *inputs.shape[1:])
        elif reference is None:
            finite = all(bool(torch.isfinite(bound).all()) for bound in model.bounds)
            check(
                finite, "replacement", "'constant', as the model's bounds are infinite", "'uniform'"
            )
        assert not isinstance(self.segments, Tensor)  # since `__post_init__`
        if self.segments is None:
            cut = cut_cells(inputs, self.region)
        else:
            cut = segment(inputs, self.segments)
        probe = Probe(call, absolute=self.absolute)
        region_scores = sum_over_regions(probe.reference, cut)
        probe.skip_constant(probe.reference)
        # a map may vary within regions whose sums are equal
        probe.skip(_are_equal(region_scores))
        keys = make_sample_keys(inputs, call.seed)
        if self.order == "bottom":
            region_scores = -region_scores
        region_ranks = rank_with_random_ties(region_scores, keys)
        steps = cut.count.clamp(max=self.steps)
        levels = torch.arange(1, min(self.steps, cut.width) + 1, device=inputs.device).expand(
            len(inputs), -1
        )
        keys_of_draws = make_draw_keys(keys, self._draws)

        def make_values(rows: Tensor, draws: Tensor) -> Tensor:
            if constant is not None:
                return constant
            keys = keys_of_draws[rows, draws]
            if reference is None:
                return draw_uniform(keys, inputs, *bounds)
            uniform = hashed_uniform(keys, 1)[:, 0].double()
            number = uniform * len(reference.rows)
            return reference.rows.to(inputs).index_select(0, number.long())

        bounds = model.bounds
        curves = PerturbationCurves(
            ReplacedCopies(probe, inputs),
            positions=cut.labels[0].numel(),
            ranks=lambda rows: region_ranks[rows].gather(1, cut.labels[rows].flatten(1)).float(),
            counts=levels,
            wanted=(levels <= steps[:, None])[:, None],
            values=make_values,
            draws=self._draws,
            score=self.score,
        )
        start = measure_score(probe.model.task, probe.logits, probe.targets, self.score)
        aopc, error = torch.full(
            (2, len(inputs)), torch.nan, dtype=torch.float64, device=inputs.device
        )
        curve = torch.full(
            (len(inputs), levels.shape[1] + 1), torch.nan, dtype=torch.float64, device=inputs.device
        )
        for rows, scores in curves.scores(probe.usable()):
            drops = start[rows, None, None] - scores[:, :, 0]
            curve[rows, 0] = 0.0
            curve[rows, 1:] = drops.nanmean(1)
            counted = levels[rows] <= steps[rows, None]
            # k = 0, where nothing is replaced, counts with a fall of 0
            terms = (steps[rows] + 1).double()
            # NaN before a sample's last step stays NaN in its sum: no score was finite there
            sums = torch.where(counted, curve[rows, 1:], 0.0).sum(1)
            sums_of_draws = torch.where(counted[:, None], drops, 0.0).sum(2)
            aopc[rows] = sums / terms
            aopc_of_draws = sums_of_draws / terms[:, None]
            if self._draws > 1:
                # the mean of a row's squares by itself: `std(1)` rounds differently for another number of rows
                deviation = aopc_of_draws - sum_columns(aopc_of_draws)[:, None] / self._draws
                variance = sum_columns(deviation**2) / (self._draws - 1)
                error[rows] = (variance / self._draws).sqrt()
        return AOPCResult(
            **probe.common_fields(self),
            value=aopc,
            std_error=error,
            score=start,
            regions=cut.count,
            steps=steps,
            grid_fallback=cut.fallback,
            curve=curve,
            noise_key=keys,
        )


def draw_uniform(keys: Tensor, like: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Uniform values from `lower` to `upper`: one draw for each of the `keys` `(m,)`; `(m, ...)` as the inputs `like`.

    >>> low, high = torch.tensor(-1.0), torch.tensor(1.0)
    >>> draw_uniform(torch.tensor([3, 5, 3]), torch.zeros(1, 2, 4), low, high).shape
    torch.Size([3, 2, 4])
    """
    shape = like.shape[1:]
    return lower + (upper - lower) * hashed_uniform(keys, shape.numel()).to(like.dtype).reshape(
        -1, *shape
    )


def _are_equal(region_scores: Tensor) -> Tensor:
    """Whether all regions of a row have the same score `(N, width)`, NaN beyond its last region; bool `(N,)`."""
    missing = region_scores.isnan()
    low = region_scores.masked_fill(missing, torch.inf)
    high = region_scores.masked_fill(missing, -torch.inf)
    return low.amin(1) >= high.amax(1)
