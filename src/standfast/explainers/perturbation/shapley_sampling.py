"""Shapley value sampling: mean marginal contributions of an input's segments over random orders."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from standfast.explainers.background import count_references
from standfast.explainers.base import explainers
from standfast.explainers.perturbation.coalitions import Coalitions, ShapleyExplainer
from standfast.records import Count
from standfast.segments import WINDOWS, LabelMap

# the largest number of features for which a coalition fits into the bits of one int64
_BITS = 62


@dataclass(frozen=True)
class Walks(Coalitions):
    """The different coalitions that arise when features are added one by one in P orders.

    Attributes:
        before, after: the numbers of the coalitions before and after a feature is added, int64 `(P, m)`.
    """

    before: Tensor
    after: Tensor

    def solve(self, scores: Tensor) -> Tensor:
        contributions = scores.new_zeros(len(scores), self.ranks.shape[1])
        for before, after in zip(self.before, self.after, strict=True):  # one order after the other
            contributions += scores[:, after] - scores[:, before]
        return contributions / len(self.ranks)


@explainers.register("shapley_sampling")
@dataclass(frozen=True)
class ShapleySampling(ShapleyExplainer):
    """Shapley values of the segments, from random orders in which they are added.

    `phi_i = mean over orders of f(before i, and i) - f(before i)`.

    Castro, Gómez and Tejada, Polynomial calculation of the Shapley value based on sampling, Computers & Operations
    Research 36(5), 2009; for models, Štrumbelj and Kononenko, An efficient explanation of individual classifications
    using game theory, JMLR 11, 2010. The game is that of `KernelSHAP`: a coalition of segments is worth the score of
    the input with all other segments masked by the baseline, or its mean over rows of a background. The estimate is
    unbiased. For additive models, a single order gives the exact values. For any orders, the values of all segments,
    counted once each, add up to `f(x) - f(baseline)`.

    Inputs and attributions `(N, ...)`. Every pixel has its segment's value in all channels (or each channel has values
    of its own, `per_channel`), not divided by the segment's size, as in Captum. The orders are drawn once for each
    number of segments, from `seed`, and are the same for all inputs. So the explanation is a deterministic function of
    the input. Not differentiable.

    Cost: up to `permutations * (m - 1) + 2` rows for an input of m segments, the input itself included. A coalition
    that occurs in several orders is forwarded once, so few segments cost less. m is known in the call only; estimates
    of the cost assume 20 segments, unless `segments` says how many there are, and a single channel. A photo of 224 x
    224 pixels has about 1000 segments by default, which cost 24,000 rows: there `segments=50` or so is better.

    Args:
        permutations: orders, at least 1. If there are at most that many different orders (m!), all are used once, and
            the values are exact.
        antithetic: after every order use its reverse, within the number of `permutations` (if that is odd, the last
            order has no reverse). Early and late contributions of a feature are then averaged in pairs, which cancels
            what is linear in its position. Mitchell, Cooper, Frank and Holmes, Sampling permutations for Shapley value
            estimation, JMLR 23, 2022.
        segments: the players: `"auto"`, `"slic"`, `"quickshift"`, `"grid"`, `"windows"`, `"columns"`; a number, about
            how many segments; labels of the spatial shape (see `standfast.segments.segment`); or `"pixels"`: each
            pixel, time step or flat feature is a player.
        baseline: the values of masked segments: a number, or one for each channel, in or out of the bounds. By default
            0, and for tables the baseline of the model's reference.
        output: the score: `"logit"` or `"probability"`.
        seed: of the orders.
        segmentation: in metrics that explain perturbed copies: `"each"` copy is segmented by itself, or all have the
            segments of the original input (`"fixed"`).
        per_channel: whether every channel has segments of its own, so that there are as many times more. A number of
            segments is then that of each channel. `"auto"`: only in a metric that looks at single entries of an input
            (`unit="entry"`).
        background: reference inputs `(B, ...)` in place of the baseline; it costs B times as much. By default, for
            tables, rows of the model's reference where it has one.

    Raises:
        ArgumentError: an option out of range; in the call, segments that do not fit the inputs.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(4, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> ShapleySampling()(model, torch.full((1, 4), 0.5), 0).round(decimals=4) + 0.0
    tensor([[ 0.5000, -1.0000,  0.0000,  2.0000]])
    """

    permutations: Count = 24
    antithetic: bool = True
    name = "shapley_sampling"
    has_signs = True
    measures = "contribution"
    dial = "permutations"

    @property
    def rows_per_input(self) -> int:
        features = WINDOWS
        if isinstance(self.segments, int):
            features = self.segments
        elif isinstance(self.segments, LabelMap):
            features = len(self.segments.tensor.unique())
        return (self.permutations * (features - 1) + 2) * count_references(self.background)

    def draw_coalitions(self, features: int, device: torch.device) -> Walks:
        return _draw_walks(self.permutations, self.antithetic, features, self.seed, device)


@lru_cache(maxsize=64)
def _draw_walks(
    count: int, antithetic: bool, features: int, seed: int, device: torch.device
) -> Walks:
    """The orders; drawn on the CPU, so that they are the same on every device. Do not write to them."""
    generator = torch.Generator().manual_seed(seed)
    orders = draw_orders(count, antithetic, features, generator)
    count = len(orders)
    numbers_in_order = torch.arange(features).expand(count, features)
    ranks = torch.empty_like(orders).scatter_(1, orders, numbers_in_order)
    # the code of a coalition is the sum of its members' codes. Up to 62 features it identifies the coalition; with more
    # features, two coalitions have both 63-bit sums in common with a probability below 2^-80
    if features <= _BITS:
        codes = (1 << torch.arange(features))[:, None]
    else:
        generator_of_codes = torch.Generator().manual_seed(1)
        size_of_codes = (features, 2)
        codes = torch.randint(-(1 << 62), 1 << 62, size_of_codes, generator=generator_of_codes)
    # (P, m, words), without the full coalition
    sums_of_members = codes[orders].cumsum(1)
    sums = F.pad(sums_of_members, (0, 0, 1, 0))[:, :-1]
    sums_of_all = sums.flatten(0, 1)
    _, number = torch.unique(sums_of_all, dim=0, return_inverse=True)
    # number the coalitions by size, the empty one first, each by the first order in which it occurs
    by_size = torch.arange(features).repeat(count, 1).T.flatten()
    walk = torch.arange(count).repeat(features)
    number = number.reshape(count, features).T.flatten()
    different = int(number.max()) + 1
    occurrences = torch.arange(len(number))
    nowhere = torch.full((different,), len(number))
    first = nowhere.scatter_reduce(0, number, occurrences, "amin")
    sorted_first, order_of = first.sort()
    new = torch.empty_like(order_of).scatter_(0, order_of, torch.arange(different))
    new_numbers = new[number].reshape(features, count).T
    # number 0 is the full coalition, which all orders end with
    along = F.pad(1 + new_numbers, (0, 1))  # (P, m + 1)
    before = along[:, :-1].gather(1, ranks)
    after = along[:, 1:].gather(1, ranks)
    order = F.pad(walk[sorted_first], (1, 0))
    size = F.pad(by_size[sorted_first], (1, 0), value=features)
    return Walks(ranks.to(torch.int32), order, size, before, after).to(device)


def draw_orders(count: int, antithetic: bool, features: int, generator: torch.Generator) -> Tensor:
    """Random orders of the features, int64 `(count, features)`; all orders if there are at most `count`.

    >>> draw_orders(4, True, 5, torch.Generator().manual_seed(0)).tolist()
    [[2, 4, 1, 3, 0], [0, 3, 1, 4, 2], [1, 4, 2, 3, 0], [0, 3, 2, 4, 1]]
    >>> len(draw_orders(30, True, 4, torch.Generator()))
    24
    """
    if features <= _BITS and math.factorial(features) <= count:
        return torch.tensor(list(permutations(range(features))))
    draws = count
    if antithetic:
        draws = -(-count // 2)  # rounded up
    uniform = torch.rand(draws, features, generator=generator, dtype=torch.float64)
    drawn = uniform.argsort(1)
    if antithetic:
        with_reverse = torch.stack([drawn, drawn.flip(1)], 1)
        drawn = with_reverse.flatten(0, 1)[:count]
    return drawn.contiguous()
