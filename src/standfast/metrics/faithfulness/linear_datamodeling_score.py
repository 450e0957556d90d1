"""Linear datamodeling score: do attributions, added up, order random ablations as the model does?

Problem: let w_i be the attribution of region i, and v one of R random ablations, each of which keeps each region with
probability 1/2. With f(v) the score of the answer without the other regions,

    LDS = Spearman's correlation over the ablations v between f(v) and sum over i of v_i w_i

Source: Park, Georgiev, Ilyas, Leclerc and Madry, "TRAK: attributing model behavior at scale", ICML 2023, for
training data; Cohen-Wang, Shah, Georgiev and Madry, "ContextCite", NeurIPS 2024, for sources of a context,
whose ablations these are. A model that is additive in its regions has 1 with its own weights.

We add an interval over ablations for each sample, which holds the score of all ablations. It is the hull of two. The
first is that of Bonett and Wright, "Sample size requirements for estimating Pearson, Kendall and Spearman
correlations", Psychometrika 65, 2000: atanh(LDS) plus or minus 1.96 times sqrt((1 + LDS^2 / 2) / (R - 3)). Close to 1
it misses nearly all: few pairs among R are out of order, and more of them are among all ablations. So the second one is
around the estimate without bias (Hoeffding 1948, with Kendall's tau),

    u = ((R + 1) LDS - 3 tau) / (R - 2)

and is Student's, with the standard error of a jackknife over ablations: below it of u, above it of log(1 - u), which
stays below 1. With 64 ablations the hull covers the score of all ablations in 95% of the cases or more from 0.4 to
0.9998, where the first alone covers 12%; with 32 in 90% or more, and with 16 up to 0.98. The ablations of a sample are
the same for all explainers, so differences are paired.

Cost: R predictions for each input, and one with explanation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import torch
from scipy.special import stdtrit
from torch import Tensor

from standfast.errors import check
from standfast.explainers.base import BaselineOption
from standfast.metrics.base import Cost, Metric, metrics
from standfast.metrics.faithfulness.ablations import Ablations
from standfast.metrics.faithfulness.regions import Regions, sum_over_regions
from standfast.metrics.probe import Call, Probe
from standfast.metrics.replaced_copies import make_draw_keys, make_sample_keys
from standfast.metrics.result import Result
from standfast.records import Count, Range
from standfast.similarity import get as get_similarity
from standfast.similarity.rows import row_sum
from standfast.tasks import Scale
from standfast.tensors import hashed_uniform
from standfast.value_spec import ValueSpec

#: the normal quantile of a 95% interval
_QUANTILE = 1.959963984540054
#: orders of two pairs that are held at once: 32 MB, a few times
_NUMBERS = 1 << 22


@dataclass(frozen=True, repr=False)
class LinearDatamodelingResult(Result):
    """The linear datamodeling score of each sample, with an interval over ablations (`low`, `high`).

    It is NaN where the model gives the same score to all ablations, or is not finite for one of them.

    Attributes:
        scores: of the ablations, `(N, R)`.
        predictions: the sums of the attributions of what each ablation keeps, `(N, R)`.
        regions: how many regions each sample has. `(N,)`
        noise_key: the key of the ablations of each sample: results with the same keys saw the same ones. `(N,)`
    """

    stored = ("scores", "predictions", "noise_key")

    scores: Tensor
    predictions: Tensor
    regions: Tensor
    noise_key: Tensor = field(metadata={"per_sample": False})


@metrics.register("linear_datamodeling_score")
@dataclass(frozen=True)
class LinearDatamodelingScore(Metric):
    """Linear datamodeling score: whether sums of attributions order random ablations as the model does.

    Args:
        ablations: how many, R, at least 10.
        region: the width of the cells, as for `aopc`; each flat feature, word or source is a region.
        baseline: what stands in the place of removed regions: one number, or one for each channel; within the bounds.
            By default 0, and for tables the baseline of the model's reference.
        score: of the explained class: its `"logit"` or its `"probability"`. Of a generated answer both are its
            log-probability.
        segments: regions that are not cells, as for `aopc`.

    Raises:
        ArgumentError: options out of range; in the call, a baseline outside the bounds.

    >>> from standfast.model import Model
    >>> layer = torch.nn.Linear(5, 2)
    >>> model = Model(layer, (0.0, 1.0), device="cpu")
    >>> x = torch.rand(2, 5, generator=torch.Generator().manual_seed(0))
    >>> LinearDatamodelingScore()(model, "input_x_gradient", x).value.tolist()  # a linear model
    [1.0, 1.0]
    """

    version = 2

    name = "linear_datamodeling_score"
    removal_options = ("baseline",)
    evidence = "faithful"
    controls = True
    citation = "park2023trak"
    presets = {"quick": {"ablations": 32}}
    ladder = ({"ablations": 32},)
    values = ValueSpec(
        "Linear datamodeling score: whether sums of attributions order random ablations as the model does",
        "linear datamodeling score",
        "higher",
        decimals=3,
        good="more faithful",
    )

    ablations: Annotated[int, Range(least=10)] = 64
    region: Count | None = None
    baseline: BaselineOption = None
    score: Scale = "logit"
    segments: Regions = None

    def __post_init__(self) -> None:
        alone = self.segments is None or self.region is None
        check(alone, "region", "None where segments are given", repr(self.region))

    @classmethod
    def example(cls) -> LinearDatamodelingScore:
        return cls(ablations=12)

    def cost(self, classes: int | None = None) -> Cost:
        """The ablations, and the explanation of the sample itself."""
        return Cost(self.ablations, explanations=1)

    def evaluate(self, call: Call) -> LinearDatamodelingResult:
        """Score random ablations, and compare them with the sums of the attributions that they keep."""
        probe = Probe(call)
        assert not isinstance(self.segments, Tensor)  # since `check_regions`
        ablations = Ablations.of_call(
            probe, call, self.baseline, self.region, self.segments, self.score
        )
        probe.skip_constant(probe.maps)
        # NaN stands beyond the last region of a sample, and must not enter the sums
        attributions = sum_over_regions(probe.maps, ablations.regions).nan_to_num()
        keys = make_sample_keys(call.inputs, call.seed)
        kept = draw_kept(keys, self.ablations, ablations.regions.width)
        count, draws, width = kept.shape
        kept_attributions = kept * attributions[:, None].double()
        predictions = row_sum(kept_attributions.reshape(count * draws, width))
        predictions = predictions.reshape(count, draws)
        scores = torch.full_like(predictions, torch.nan)
        rows = probe.usable()
        owners = rows.repeat_interleave(draws)
        removed = ~kept[rows].flatten(0, 1)
        scores_of_draws = ablations.measure(owners, removed)
        scores[rows] = scores_of_draws.reshape(len(rows), draws)
        value = correlate_ranks(predictions, scores)
        low, high = find_interval(predictions, scores, value)
        return LinearDatamodelingResult(
            **probe.common_fields(self),
            value=value,
            low=low,
            high=high,
            scores=scores,
            predictions=predictions,
            regions=ablations.regions.count,
            noise_key=keys,
        )


def draw_kept(keys: Tensor, draws: int, width: int) -> Tensor:
    """Which regions each ablation keeps, each with probability 1/2: bool `(N, draws, width)`, from keys `(N,)`."""
    of_draws = make_draw_keys(keys, draws)
    uniform = hashed_uniform(of_draws.flatten(), width)
    return (uniform < 0.5).reshape(len(keys), draws, width)


def correlate_ranks(predictions: Tensor, scores: Tensor) -> Tensor:
    """Spearman's correlation of each row, `(N,)`; NaN where the scores are equal, or not finite."""
    finite = scores.isfinite().all(1)
    differ = finite & (scores.amax(1) > scores.amin(1))
    compared = torch.where(differ[:, None], scores, 0.0)
    correlations = get_similarity("spearman").compare(predictions, compared).double()
    return torch.where(differ, correlations, torch.nan)


def find_interval(predictions: Tensor, scores: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The ends of a 95% interval of the score of all ablations, `(N,)` each.

    Args:
        predictions, scores: of the ablations, `(N, R)`.
        value: their rank correlation, `(N,)`; where it is NaN, the ends are.

    >>> predictions = torch.arange(12.0, dtype=torch.float64)[None]
    >>> scores = predictions + torch.tensor([0.0, 0.0, 1.5, 0.0, 0.0, 0.0], dtype=torch.float64).repeat(2)
    >>> [round(float(end), 2) for end in find_interval(predictions, scores, correlate_ranks(predictions, scores))]
    [0.94, 1.0]
    """
    sign = torch.where(value < 0, -1.0, 1.0)
    finite = torch.where(value.isnan()[:, None], 0.0, scores)
    size = value.abs()
    low, high = find_usual_interval(size, scores.shape[1])
    estimate, error = estimate_without_bias(predictions, sign[:, None] * finite)
    distance = (1 - estimate).clamp(min=0)
    half = _find_student_quantile(scores.shape[1]) * error
    shrinkage = torch.where(distance > 0, half / distance, 0.0)
    low = torch.minimum(low, 1 - distance - half)
    high = torch.maximum(high, 1 - distance * (-shrinkage).exp())
    low = torch.minimum(low, size).clamp(min=-1)
    high = torch.maximum(high, size).clamp(max=1)
    ends = torch.stack([sign * low, sign * high])
    return ends.amin(0), ends.amax(0)


def find_usual_interval(correlation: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ends of a 95% interval of Spearman's correlations `(N,)` of so many pairs, by Bonett and Wright.

    >>> [round(float(end), 3) for end in find_usual_interval(torch.tensor([0.8], dtype=torch.float64), 64)]
    [0.67, 0.882]
    """
    variance = (1 + correlation**2 / 2) / (count - 3)
    width = _QUANTILE * variance.sqrt()
    # at 1 the middle is infinite, and both ends are 1
    middle = correlation.clamp(-1, 1).atanh()
    return (middle - width).tanh(), (middle + width).tanh()


def estimate_without_bias(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The rank correlation of the population of pairs `(N, R)`, and its standard error by a jackknife, `(N,)` each."""
    rows_at_once = max(1, _NUMBERS // a.shape[1] ** 2)
    estimates = []
    errors = []
    for part in zip(torch.split(a, rows_at_once), torch.split(b, rows_at_once), strict=True):
        estimate, error = _estimate_part(*part)
        estimates.append(estimate)
        errors.append(error)
    return torch.cat(estimates), torch.cat(errors)


def _estimate_part(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The same of a few rows, whose pairs of pairs fit into memory."""
    count = a.shape[1]
    order_a = (a[:, :, None] - a[:, None, :]).sign()
    order_b = (b[:, :, None] - b[:, None, :]).sign()
    ranks_a, ranks_b = order_a.sum(2), order_b.sum(2)
    estimate = _remove_bias(
        _find_cosine(ranks_a, ranks_b),
        _find_cosine(order_a.flatten(1), order_b.flatten(1)),
        count,
    )
    # without pair k each rank loses its order beside k, and k itself has none
    others = 1 - torch.eye(count, dtype=order_a.dtype, device=order_a.device)
    left_a = (ranks_a[:, None, :] + order_a) * others
    left_b = (ranks_b[:, None, :] + order_b) * others
    products = _sum_without_each(order_a * order_b)
    squares_a = _sum_without_each(order_a.square())
    squares_b = _sum_without_each(order_b.square())
    concordance = products / (squares_a * squares_b).sqrt()
    left_out = _remove_bias(_find_cosine(left_a, left_b), concordance, count - 1)
    deviations = left_out - left_out.mean(1, keepdim=True)
    spread = deviations.square().sum(1)
    return estimate, (spread * (count - 1) / count).sqrt()


def _sum_without_each(both: Tensor) -> Tensor:
    """The sum over all pairs `(N, k, k)` without those of each one, `(N, k)`: a symmetric matrix has them twice."""
    return both.sum((1, 2))[:, None] - 2 * both.sum(2)


def _remove_bias(spearman: Tensor, kendall: Tensor, count: int) -> Tensor:
    """The estimate without bias of Spearman's correlation of a population, from both of a sample of so many pairs."""
    return ((count + 1) * spearman - 3 * kendall) / (count - 2)


def _find_cosine(a: Tensor, b: Tensor) -> Tensor:
    """The cosine along the last axis, 0 where one of the two has no length."""
    squares_of_lengths = a.square().sum(-1) * b.square().sum(-1)
    lengths = squares_of_lengths.sqrt()
    cosine = (a * b).sum(-1) / lengths
    return torch.where(lengths > 0, cosine, 0.0)


def _find_student_quantile(count: int) -> float:
    return float(stdtrit(count - 1, 0.975))
