"""Shapley value sampling: mean marginal contributions of an input's segments over random orders."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, permutations
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import check
from holdfast.explainers.base import Baseline, check_baseline, check_seed, make_baseline
from holdfast.explainers.perturbation.copies import Output, check_count, check_output, get_map_shape, score_copies
from holdfast.explainers.perturbation.segmented import Features, Segmentation, SegmentedExplainer
from holdfast.model import Classifier
from holdfast.segments import WINDOWS, LabelMap

# a bit for each feature of a coalition, in one int64
_BITS = 62


@dataclass(frozen=True)
class Walks:
    """Orders of m features, and the coalitions that one meets by adding the features one by one.

    Attributes:
        ranks: the place of each feature in each of P orders, int64 `(P, m)`.
        order, size: each of R different coalitions, as the first `size` features of an order, int64 `(R,)`. The first
            is the empty one; the full one, which is the input, is not among them.
        before, after: the coalition that a feature joins, and what it makes of it, int64 `(P, m)`; R is the full one.
    """

    ranks: Tensor
    order: Tensor
    size: Tensor
    before: Tensor
    after: Tensor

    def to(self, device: torch.device) -> Walks:
        """The same on another device."""
        return Walks(*(t.to(device) for t in vars(self).values()))


@dataclass(frozen=True)
class ShapleySampling(SegmentedExplainer):
    """Shapley values of the segments: `phi_i = mean over orders of f(before i, and i) - f(before i)`.

    Castro, Gómez and Tejada, Polynomial calculation of the Shapley value based on sampling, Computers & Operations
    Research 36(5), 2009; for models, Štrumbelj and Kononenko, An efficient explanation of individual classifications
    using game theory, JMLR 11, 2010. The game is that of `KernelSHAP`: a coalition of segments is worth the score of
    the input with the other segments masked by the baseline. Unbiased, and additive models get their exact values from
    a single order. The values of all segments, one each, add up to `f(x) - f(baseline)` whatever the orders.

    Inputs and attributions `(N, ...)`: every pixel, in all channels, has its segment's value, not divided by the
    segment's size, as in Captum. The orders are drawn once for each number of segments, from `seed`, and shared by all
    inputs: the explanation is a deterministic function of the input. No derivative.

    Cost: up to `permutations * (m - 1) + 2` rows for an input of m segments, the input itself included. Coalitions that
    several orders meet are forwarded once, so with few segments it is less. m is known in the call only; dry runs
    reckon with 20, unless `segments` says how many there are. A photo of 224 x 224 has about 1000 by default, and so
    takes 24,000 rows: there `segments=50` or so is better.

    Args:
        permutations: orders, at least 1. Where there are no more than that (m! of them), all are taken once, and the
            values are exact.
        antithetic: follow every order by its reverse, within the number of `permutations` (of an odd number the last
            goes alone): a feature's early and late contributions are averaged in pairs, which cancels what is linear
            in the place. Mitchell, Cooper, Frank and Holmes, Sampling permutations for Shapley value estimation,
            JMLR 23, 2022.
        segments: the players: `"auto"`, `"slic"`, `"quickshift"`, `"grid"`, `"windows"`, `"columns"`, about how many
            segments, or labels of the spatial shape (see `holdfast.segments.segment`); `"pixels"` makes every pixel,
            point in time or flat feature its own.
        baseline: what masked segments show: a number, or one for each channel, in or out of the bounds.
        output: the score: `"logit"` or `"probability"`.
        seed: of the orders.
        segmentation: of a disturbed copy in a metric: `"each"` copy is cut anew, or `"fixed"`, with the segments of the
            undisturbed input.

    Raises:
        ArgumentError: an option out of range; in the call, segments that do not fit the inputs.

    >>> from holdfast.model import Classifier
    >>> module = torch.nn.Linear(4, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> classifier = Classifier(module, bounds=(0.0, 1.0), device="cpu")
    >>> ShapleySampling()(classifier, torch.full((1, 4), 0.5), 0).round(decimals=4) + 0.0
    tensor([[ 0.5000, -1.0000,  0.0000,  2.0000]])
    """

    permutations: int = 24
    antithetic: bool = True
    segments: Features = "auto"
    baseline: Baseline = 0.0
    output: Output = "logit"
    seed: int = 0
    segmentation: Segmentation = "each"
    name: ClassVar[str] = "shapley_sampling"
    differentiable: ClassVar[bool] = False
    gateable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count(self.permutations, "permutations", 1)
        check(isinstance(self.antithetic, bool), "antithetic", "True or False", repr(self.antithetic))
        self._check_segments()
        check_baseline(self.baseline)
        check_output(self.output)
        check_seed(self.seed)

    @property
    def rows_per_input(self) -> int:
        features = WINDOWS
        if isinstance(self.segments, int):
            features = self.segments
        elif isinstance(self.segments, LabelMap):
            features = len(self.segments.labels.unique())
        return self.permutations * (features - 1) + 2

    def walks(self, features: int, device: torch.device) -> Walks:
        """The orders for inputs with that many features, always the same."""
        return _draw_walks(self.permutations, self.antithetic, features, self.seed, device)

    def attribute_segments(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, labels: Tensor, counts: list[int]
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            groups = {m: self.walks(m, x.device) for m in sorted(set(counts))}
            most = max(groups)
            # the orders of all groups, one below the other; features that a group does not have come last
            ranks = torch.cat([F.pad(walks.ranks, (0, most - m), value=most) for m, walks in groups.items()])
            orders = _starts(len(walks.ranks) for walks in groups.values())
            shared = labels.stride(0) == 0  # one label map for all inputs, so one group
            # half as much to gather; and where the labels are shared, they are looked up once for all
            ranks = ranks.to(torch.int32)[:, labels[0] if shared else slice(None)]
            order = torch.cat([walks.order + top for walks, top in zip(groups.values(), orders, strict=True)])
            size = torch.cat([walks.size for walks in groups.values()])
            tops = dict(zip(groups, _starts(len(walks.size) for walks in groups.values()), strict=True))
            sizes = [len(groups[m].size) for m in counts]
            total = sum(sizes)
            rows, top = torch.tensor([sizes, [tops[m] for m in counts]], device=x.device)
            starts = rows.cumsum(0) - rows
            owner = torch.arange(len(x), device=x.device).repeat_interleave(rows, output_size=total)
            other, spatial = make_baseline(self.baseline, x), get_map_shape(x)

            def copies(_first: int, numbers: Tensor) -> Tensor:
                whose = owner[numbers]
                coalition = numbers + (top - starts)[whose]
                places = ranks.index_select(0, order[coalition])
                if not shared:
                    places = places.gather(1, labels.index_select(0, whose))
                kept = (places < size[coalition, None]).to(x.dtype).reshape(len(numbers), *spatial)
                return torch.lerp(other, x.index_select(0, whose), kept)

            scores, full, at_x = score_copies(
                classifier, x, targets, lambda numbers: owner[numbers], copies, total, self.output
            )
            values = scores.new_zeros(len(x), most)
            for features, walks in groups.items():
                members = torch.tensor([i for i, m in enumerate(counts) if m == features], device=x.device)
                own = scores[starts[members, None] + torch.arange(len(walks.size), device=x.device)]
                own = torch.cat([own, full[members, None]], 1)
                found = own.new_zeros(len(members), features)
                for before, after in zip(walks.before, walks.after, strict=True):  # one order after the other
                    found += own[:, after] - own[:, before]
                values[members, :features] = found / len(walks.ranks)
            maps = values.gather(1, labels).reshape(len(x), *spatial)
            return maps.to(x.dtype).expand_as(x).contiguous(), at_x


def _starts(lengths: Iterable[int]) -> list[int]:
    """Where each of some blocks starts if they stand one after the other."""
    return list(accumulate(lengths, initial=0))[:-1]


@lru_cache(maxsize=64)
def _draw_walks(count: int, antithetic: bool, features: int, seed: int, device: torch.device) -> Walks:
    """Made on the CPU so that they are the same on every device; never written to."""
    orders = draw_orders(count, antithetic, features, torch.Generator().manual_seed(seed))
    count = len(orders)
    ranks = torch.empty_like(orders).scatter_(1, orders, torch.arange(features).expand(count, features))
    # a coalition's code is the sum of its members'. Up to 62 features it is the coalition; with more, two coalitions
    # of those met share both 63-bit sums with a probability below 2^-80
    if features <= _BITS:
        codes = (1 << torch.arange(features))[:, None]
    else:
        codes = torch.randint(-(1 << 62), 1 << 62, (features, 2), generator=torch.Generator().manual_seed(1))
    met = F.pad(codes[orders].cumsum(1), (0, 0, 1, 0))[:, :-1]  # without the full one (P, m, words)
    number = torch.unique(met.flatten(0, 1), dim=0, return_inverse=True)[1]
    # numbered anew in the order of sizes, the empty one first, each by the first order that meets it
    by_size = torch.arange(features).repeat(count, 1).T.flatten()
    walk = torch.arange(count).repeat(features)
    number = number.reshape(count, features).T.flatten()
    different = int(number.max()) + 1
    first = torch.full((different,), len(number)).scatter_reduce(0, number, torch.arange(len(number)), "amin")
    sorted_first, order_of = first.sort()
    new = torch.empty_like(order_of).scatter_(0, order_of, torch.arange(different))
    along = F.pad(new[number].reshape(features, count).T, (0, 1), value=different)  # (P, m + 1)
    before, after = along[:, :-1].gather(1, ranks), along[:, 1:].gather(1, ranks)
    return Walks(ranks, walk[sorted_first], by_size[sorted_first], before, after).to(device)


def draw_orders(count: int, antithetic: bool, features: int, generator: torch.Generator) -> Tensor:
    """Random orders of the features, int64 `(count, features)`; all of them if they are no more than `count`.

    >>> draw_orders(4, True, 5, torch.Generator().manual_seed(0)).tolist()
    [[2, 4, 1, 3, 0], [0, 3, 1, 4, 2], [1, 4, 2, 3, 0], [0, 3, 2, 4, 1]]
    >>> len(draw_orders(30, True, 4, torch.Generator()))
    24
    """
    if features <= _BITS and math.factorial(features) <= count:
        return torch.tensor(list(permutations(range(features))))
    draws = -(-count // 2) if antithetic else count
    drawn = torch.rand(draws, features, generator=generator, dtype=torch.float64).argsort(1)
    if antithetic:
        drawn = torch.stack([drawn, drawn.flip(1)], 1).flatten(0, 1)[:count]
    return drawn.contiguous()
