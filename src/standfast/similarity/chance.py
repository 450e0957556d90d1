"""What a similarity of positions is for two unrelated maps: its chance level, and values corrected for it.

Windows around k positions cover a large part of a map, so a locality-sensitive similarity is high for unrelated maps,
too. "Unrelated" means here: each map keeps its own values, and the places where they are not 0 (its support), but the
values are drawn onto these places at random, independently of the other map. So k, the window, ties and the supports
are those of the compared pair, and nothing else is common to both maps. The chance level c is the expected similarity.

A similarity s with the largest value 1 is corrected as in Cohen's kappa and the adjusted Rand index:

    (s - c) / (1 - c)

It is 0 on average for unrelated maps, 1 for equal ones, and negative for maps that are less similar than by chance.
Near c = 1 there is no room above chance: see `ROOM`.

How c is computed. Let A and B be the supports, with more than k positions each. S_k is a random subset of A, T_k of B.
A position p of A is in S_k with probability k / |A|. T_k leaves out the window of p, which has n_B(p) positions of B,
with the probability of a hypergeometric distribution. So for LENS-precision

    c = 1 / |A| * sum over p in A of (1 - C(|B| - n_B(p), k) / C(|B|, k)),

exactly; for recall with exchanged roles, and for the intersection with windows of the position itself. A support of at
most k positions is in the set as a whole, together with those zeros that come first by `ties`. For diverse sets, rank
correlations of smoothed maps, maps with negative values and the authors' script, c is the mean over random draws, and
its standard error is stated.

Source of the correction: Hubert and Arabie, "Comparing partitions" (Journal of Classification 2, 1985), for sets of
pairs. The chance level of LENS is ours; Kamath et al. (AAAI 2024) give none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.errors import check, check_integer
from standfast.similarity.diverse import CHUNK_ELEMENTS, Ties, split_maps, top_k
from standfast.similarity.rows import order_rows, row_sum, working_dtype
from standfast.similarity.windows import dilate, smooth
from standfast.tensors import Streams, count_at_once

#: the least room above chance, 1 - c, for which a corrected value is given; below, one position is worth too much
ROOM = 0.05


@dataclass(frozen=True)
class ChanceLevel:
    """The expected similarity of unrelated maps.

    Attributes:
        value: `(N,)`; NaN where the similarity is not defined.
        error: the standard error of `value`, `(N,)`; 0 where it is exact.
    """

    value: Tensor
    error: Tensor


#: the similarity of two batches of maps, `(N,)`
Compare = Callable[[Tensor, Tensor], Tensor]


def measure_chance(
    compare: Compare,
    x: Tensor,
    y: Tensor,
    draws: int,
    seed: int,
    exact: tuple[Tensor, Tensor] | None = None,
) -> ChanceLevel:
    """The chance levels of pairs of maps `(N, H, W)` or `(N, T)`; see `Similarity.chance`.

    `exact` has known levels `(N,)`, and for which pairs they hold; the others are drawn.
    """
    check_integer(draws, "draws", 2)
    defined = compare(x, y)  # NaN where there is nothing to compare
    value = torch.zeros_like(defined)
    error = torch.zeros_like(defined)
    holds = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if exact is not None:
        value = exact[0].to(defined.dtype)
        holds = exact[1]
    rest = (~holds).nonzero()[:, 0]
    if len(rest):
        elements_of_pair = draws * x.shape[1:].numel()
        rows = max(1, count_at_once(CHUNK_ELEMENTS, x) // elements_of_pair)
        x_parts = torch.split(x[rest], rows)
        y_parts = torch.split(y[rest], rows)
        values = []
        errors = []
        for p, q in zip(x_parts, y_parts, strict=True):
            value_of_part, error_of_part = _simulate(compare, p, q, draws, seed)
            values.append(value_of_part)
            errors.append(error_of_part)
        value[rest] = torch.cat(values).to(defined.dtype)
        error[rest] = torch.cat(errors).to(defined.dtype)
    return ChanceLevel(torch.where(defined.isnan(), torch.nan, value), error)


def correct_for_chance(value: Tensor, chance: Tensor) -> Tensor:
    """`(value - chance) / (1 - chance)`, of the same shape; NaN where `1 - chance` is less than `ROOM`.

    >>> correct_for_chance(torch.tensor([0.75, 0.25, 1.0]), torch.tensor([0.5, 0.5, 0.99])).tolist()
    [0.5, -0.5, nan]
    """
    check(
        value.shape == chance.shape,
        "chance",
        f"the shape of value, {tuple(value.shape)}",
        tuple(chance.shape),
    )
    room = 1 - chance
    corrected = (value - chance) / room.clamp(min=ROOM)
    return torch.where(room >= ROOM, corrected, torch.nan)


def expect_share(x: Tensor, y: Tensor, k: int, w: int, ties: Ties) -> tuple[Tensor, Tensor]:
    """The exact expectation of LENS-precision with plain sets, float64 `(N,)`, and for which pairs it holds."""
    holds = _is_uniform(x, k) & _is_uniform(y, k)
    expected = [_expect(p, q, k, w, ties) for p, q in split_maps(x, y)]
    return torch.cat(expected), holds


def _is_uniform(x: Tensor, k: int) -> Tensor:
    """Whether the k largest values, drawn onto the support, are a uniformly random subset of it; `(N,)` bool.

    They are not if negative values are below zeros, or if equal values other than 0 are on both sides of the limit.
    """
    flat = x.flatten(1)
    tied = torch.zeros(len(flat), dtype=torch.bool, device=x.device)
    if k < flat.shape[1]:
        largest = flat.topk(k + 1, dim=1).values
        last_inside = largest[:, k - 1]
        first_outside = largest[:, k]
        tied = (last_inside == first_outside) & (first_outside != 0)
    is_positive = flat.amin(1) >= 0
    return is_positive & ~tied


def _expect(x: Tensor, y: Tensor, k: int, w: int, ties: Ties) -> Tensor:
    """The exact expectation, float64 `(n,)`; meaningless where a support is not uniform."""
    order: Ties = "random" if ties == "random" else "position"

    def find_support(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The support, its size `(n, 1, ...)`, and the set where the support is not larger than k."""
        support = m != 0
        size = support.flatten(1).sum(1).double()
        positions = (1,) * (m.ndim - 1)
        return support, size.view(-1, *positions), top_k(m, k, order)

    def log_falling(n: Tensor) -> Tensor:
        """The logarithm of n (n - 1) ... (n - k + 1)."""
        n = n.clamp(min=k)
        return torch.lgamma(n + 1) - torch.lgamma(n - k + 1)

    support_x, size_x, set_x = find_support(x)
    support_y, size_y, set_y = find_support(y)
    # a set of at most k positions is the whole support, with certainty
    probability = k * support_x / size_x.clamp(min=1)
    chosen = torch.where(size_x > k, probability, set_x.double())
    # of the support in each window
    # a mean times the size of the window; rounded, since counts are whole numbers
    window = (2 * w + 1) ** (y.ndim - 1)
    count = (smooth(support_y.double(), w) * window).round()
    free = size_y - count
    # the hypergeometric probability of no position in the window, C(|B| - n, k) / C(|B|, k)
    log_missed = log_falling(free) - log_falling(size_y)
    missed = torch.where(free >= k, log_missed.exp(), 0)
    near_set = dilate(set_y, w).double()
    near = torch.where(size_y > k, 1 - missed, near_set)
    return row_sum((chosen * near).flatten(1)) / k


def _simulate(
    compare: Compare, x: Tensor, y: Tensor, draws: int, seed: int
) -> tuple[Tensor, Tensor]:
    """The mean similarity of random pairs and its standard error, float64 `(n,)` each."""
    # each pair has a stream of its own, by its values, so that its level does not depend on the batch
    values_of_pairs = torch.cat((x.flatten(1), y.flatten(1)), dim=1)
    streams = Streams.for_rows(values_of_pairs, seed)
    positions = x.shape[1:].numel()
    numbers = streams.uniform((2, draws, positions), torch.float32)
    first = _scatter_values(x, numbers[:, 0])
    second = _scatter_values(y, numbers[:, 1])
    simulated = compare(first, second).double().view(len(x), draws)
    mean = row_sum(simulated) / draws
    deviations = simulated - mean[:, None]
    variance = row_sum(deviations.square()) / (draws - 1)
    return mean, (variance / draws).sqrt()


def _scatter_values(m: Tensor, numbers: Tensor) -> Tensor:
    """The values of maps on their supports, in the random orders of `numbers` `(n, draws, P)`: `(n * draws, ...)`."""
    flat = m.flatten(1)
    is_zero = flat == 0
    support = (~is_zero)[:, None].expand(numbers.shape).flatten(0, 1)
    # those of the support first
    order = order_rows(is_zero.to(working_dtype(m)))
    ordered = flat.gather(1, order)
    # 2.0 is above every uniform number, so positions outside of the support come last
    positions = order_rows(torch.where(support, numbers.flatten(0, 1), 2.0))
    values = ordered[:, None].expand(numbers.shape).flatten(0, 1)
    scattered = torch.empty_like(values).scatter_(1, positions, values)
    return scattered.view(-1, *m.shape[1:])
