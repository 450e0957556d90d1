"""Copies of inputs whose most, or least, relevant positions are replaced; and the class's probability at them.

Only positive relevance counts. Of the `n_plus` positions with positive relevance, the first `floor(k n_plus)` are
replaced, for several shares k. One draw of the replacement is one field of values over the whole input, and a copy
takes the values that it needs from it. So the copies of one draw are nested, and they are the same for both orders and
for all explainers. Fields come from keys, one for each sample and draw, made from the sample's content and the seed. No
batch, chunk or device changes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from standfast.errors import ArgumentError
from standfast.explainers import Background
from standfast.explainers.background import resolve_background
from standfast.explainers.base import Baseline, make_baseline, resolve_baseline
from standfast.metrics.positions import Order, Unit, compute_relevance, count_positions
from standfast.metrics.probe import Probe
from standfast.metrics.replaced_copies import PerturbationCurves, ReplacedCopies
from standfast.model import Model
from standfast.reference import Reference
from standfast.segments import spatial_shape
from standfast.similarity.rows import order_rows
from standfast.tensors import count_at_once, describe_bounds, hashed_uniform, send

#: from inputs `(m, ...)` and their keys `(m,)` to a field of values for each, `(m, ...)`; or `(1, ...)`, one for all
Fields = Callable[[Tensor, Tensor], Tensor]

_ELEMENTS = 1 << 21  # numbers in the relevance that is ranked at a time: 8 MB, and a few times that
_DRAWN = 1 << 16  # normal numbers drawn at a time: what is computed on the way stays in the cache
_MUCH = 0.5  # the share of noise outside of the bounds that is warned of
_ROUNDING = 1e-9  # k n_plus may be 20.999999999999996 where it should be 21


def count_replaced(positive: Tensor, fractions: Sequence[float]) -> Tensor:
    """`floor(k n_plus)` for each share k of the `positive` `(N,)` positions; int64 `(N, K)`.

    >>> count_replaced(torch.tensor([0, 7, 100]), (0.05, 0.29, 1.0)).tolist()
    [[0, 0, 0], [0, 2, 7], [5, 29, 100]]
    """
    shares = send(list(fractions), positive.device, torch.float64)
    # rounding must not lose the last of a whole number of positions
    counts = positive[:, None] * shares + _ROUNDING
    return counts.floor().to(torch.int64)


def rank_positive(relevance: Tensor, order: Order) -> Tensor:
    """The rank of each position, from 0; positions without positive relevance come last, ties keep their order.

    Args:
        relevance: `(N, P)`.
        order: whether the most (`"top"`) or the least (`"bottom"`) relevant of the positive ones come first.

    Returns:
        int32 `(N, P)`.

    >>> relevance = torch.tensor([[0.5, -1.0, 2.0, 0.5, 0.0]])
    >>> rank_positive(relevance, "top").tolist(), rank_positive(relevance, "bottom").tolist()
    ([[1, 3, 0, 2, 4]], [[0, 3, 2, 1, 4]])
    """
    rising = -relevance if order == "top" else relevance
    positive_first = torch.where(relevance > 0, rising, torch.inf)
    sorted_positions = order_rows(positive_first)
    positions = relevance.shape[1]
    numbers = torch.arange(positions, device=relevance.device, dtype=torch.int32)
    numbers = numbers.expand_as(sorted_positions)
    # an expanded tensor shares its rows, which must not be written
    ranks = torch.empty_like(numbers, memory_format=torch.contiguous_format)
    return ranks.scatter_(1, sorted_positions, numbers)


def find_levels(maps: Tensor, counts: Tensor, unit: Unit) -> Tensor:
    """At which share each position is replaced, with the most relevant ones first.

    Args:
        maps: `(N, ...)`.
        counts: how many positions are replaced at each share, `(N, K)`, not decreasing, K at most 254.
        unit: what counts as one position.

    Returns:
        uint8, of the shape of the maps, for pixels without channels: 0 without positive relevance, j if it is replaced
        from the j-th share on, K + 1 if it never is.

    >>> find_levels(torch.tensor([[[0.1, 0.9, -1.0, 0.5]]]), torch.tensor([[1, 2]]), "entry").tolist()
    [[[3, 1, 0, 2]]]
    """
    if unit == "entry":
        shape = tuple(maps.shape[1:])
    else:
        shape = spatial_shape(maps)
    levels = []
    entries = max(1, maps[0].numel())
    size = max(1, count_at_once(_ELEMENTS // 4, maps) // entries)
    parts = zip(torch.split(maps, size), torch.split(counts, size), strict=True)
    for part, own_counts in parts:
        relevance = compute_relevance(part, unit)
        ranks = rank_positive(relevance, "top").to(counts.dtype)
        level = torch.searchsorted(own_counts.contiguous(), ranks, right=True) + 1
        level = level.clamp(max=255)
        levels.append(torch.where(relevance > 0, level, 0).to(torch.uint8))
    return torch.cat(levels).reshape(len(maps), *shape)


def draw_normal(keys: Tensor, count: int) -> Tensor:
    """`count` standard normal numbers for each key, float64 `(m, count)`.

    They are quantiles of uniform numbers, which have the same bits on every device.
    """
    between_ends = 2 * hashed_uniform(keys, count).double() - 1
    quantiles: Tensor = torch.special.erfinv(between_ends)
    return quantiles.mul_(math.sqrt(2))


def resolve_noise(
    model: Model, inputs: Tensor, mean: Baseline | None, sd: Baseline | None
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the noise, float64, which broadcast against the `inputs` `(N, ...)`.

    Without a number they come from the scale of the inputs: the middle of the bounds and a quarter of their range, so
    that 95% of the noise lies within. Where a bound is infinite they are 0 and 1, for standardised inputs. For a table
    they are those of the columns of the model's reference, if it has one.

    Warns, once for each model, if the noise lies outside of the bounds more often than not.

    >>> inputs = torch.zeros(2, 3, 4)
    >>> model = Model(torch.nn.Flatten(), bounds=(0.0, 1.0), device="cpu")
    >>> [float(value) for value in resolve_noise(model, inputs, None, None)]
    [0.5, 0.25]
    """
    lower, upper = (bound.double() for bound in model.bounds)
    finite = torch.isfinite(lower) & torch.isfinite(upper)
    centre = torch.where(finite, (lower + upper) / 2, 0.0)
    scale = torch.where(finite, (upper - lower) / 4, 1.0)
    reference = model.reference_for(inputs)
    if reference is not None:
        centre = reference.mean.double()
        # a constant column has no deviation, and must not divide by 0
        scale = reference.sd.double().clamp(min=torch.finfo(torch.float64).tiny)
    if mean is not None:
        centre = _broadcast(mean, "mean", inputs)
    if sd is not None:
        scale = _broadcast(sd, "sd", inputs)
    share_below_upper = torch.special.ndtr((upper - centre) / scale)
    share_below_lower = torch.special.ndtr((lower - centre) / scale)
    inside = share_below_upper - share_below_lower
    outside = float(1 - inside.mean())
    if outside > _MUCH:
        model.warn_once(
            f"replacement: {outside:.0%} of this noise lies outside of the bounds"
            f" {describe_bounds(model.bounds)} and is clipped to them; give mean and sd of the"
            " training data, or leave them out for noise that fits the bounds"
        )
    return centre, scale


def make_gaussian_fields(
    model: Model, inputs: Tensor, mean: Baseline | None = None, sd: Baseline | None = None
) -> Fields:
    """Fields of `N(mean, sd)`, each one number or one for each channel of `inputs`, or None; see `resolve_noise`.

    Of a data frame, without mean and sd, categories are drawn by their frequencies in the reference, as their codes are
    no numbers, and no number is so low that it stands for a missing cell.
    """
    centre, scale = resolve_noise(model, inputs, mean, sd)
    reference = None
    if mean is None and sd is None:
        reference = model.reference_for(inputs)
    fit_cells = None
    if reference is not None:
        fit_cells = _find_fit(reference)

    def fields(x: Tensor, keys: Tensor) -> Tensor:
        count = x[0].numel()
        parts = []
        size = max(1, count_at_once(_DRAWN, keys) // count)
        for chunk_keys in torch.split(keys, size):
            noise = draw_normal(chunk_keys, count).reshape(-1, *x.shape[1:])
            values = centre + scale * noise
            if fit_cells is not None:
                values = fit_cells(values, chunk_keys)
            # float64 until here, so that rounding removes the last bits, in which `erfinv` of two devices may differ
            parts.append(values.to(x.dtype))
        return torch.cat(parts)

    return fields


def _find_fit(reference: Reference) -> Callable[[Tensor, Tensor], Tensor] | None:
    """What makes noise `(m, F)` of keys `(m,)` fit the columns of a data frame; None for other tables.

    Categories are drawn from the cells of the reference, by the random number that the noise was made of. Numbers are
    cut at the range of the reference, as the model's bounds hold the other rows to explain, too.
    """
    codes = reference.codes
    if codes is None:
        return None
    lowest = torch.tensor(codes.lowest, dtype=torch.float64)
    highest = torch.tensor(codes.highest, dtype=torch.float64)
    cells = {}
    for column, category in enumerate(codes.categories):
        if category:
            cells[column] = reference.known[:, column].double().sort().values

    def fit(noise: Tensor, keys: Tensor) -> Tensor:
        at_least_lowest = torch.maximum(noise, lowest.to(noise))
        values = torch.minimum(at_least_lowest, highest.to(noise))
        uniform = hashed_uniform(keys, noise.shape[1]).double()
        for column, known_cells in cells.items():
            drawn = (uniform[:, column] * len(known_cells)).long()
            values[:, column] = known_cells.to(noise)[drawn]
        return values

    return fit


def make_constant_fields(model: Model, inputs: Tensor, baseline: Baseline | None) -> Fields:
    """The baseline as the field of all samples and draws. It must lie within the bounds."""
    value = resolve_baseline(model, inputs, baseline)
    return lambda x, keys: value.expand(1, *x.shape[1:])


def make_sample_fields(model: Model, inputs: Tensor, background: Background) -> Fields:
    """Fields that are reference inputs: one whole reference for each key, so that its entries stay together."""
    references = resolve_background(model, inputs, background)

    def fields(x: Tensor, keys: Tensor) -> Tensor:
        uniform = hashed_uniform(keys, 1)[:, 0].double()
        return references[(uniform * len(references)).long()]

    return fields


def _broadcast(value: Baseline, name: str, inputs: Tensor) -> Tensor:
    try:
        return make_baseline(value, inputs).double()
    except ArgumentError as error:
        raise ArgumentError(name, error.expected, error.got) from None


class CorruptedScores:
    """Probabilities of the explained classes at copies with positions replaced. For use inside `model.session()`.

    Args:
        probe: it has the samples' classes and maps, and counts evaluations and copies that are not finite.
        inputs: the samples, `(N, ...)`.
        unit: what counts as one position.
        fractions: shares of the positive positions, K of them, increasing.
        orders: which positions come first.
        keys: of each sample's draws, `(N, draws)`; each has a field of its own.
        fields: makes them; their values are clipped to the model's bounds.

    Attributes:
        positive: how many positions have positive relevance, n_plus, `(N,)`.
        counts: how many of them are replaced, `(N, K)`.
        positions: how many positions an input has, P.
        clipped: the share of a sample's field values that lay outside of the bounds, float64 `(N,)`; NaN until `scores`
            has come to the sample.
    """

    def __init__(
        self,
        probe: Probe,
        inputs: Tensor,
        unit: Unit,
        fractions: Sequence[float],
        orders: Sequence[Order],
        keys: Tensor,
        fields: Fields,
    ) -> None:
        self.probe = probe
        self.inputs = inputs
        self.unit = unit
        self.orders = tuple(orders)
        self.keys = keys
        self.fields = fields
        self.positions = count_positions(inputs, unit)
        group = max(1, count_at_once(_ELEMENTS, inputs) // self.positions)
        parts = []
        for maps in torch.split(probe.maps, group):
            is_positive = compute_relevance(maps, unit) > 0
            parts.append(is_positive.sum(1))
        self.positive = torch.cat(parts)
        self.counts = count_replaced(self.positive, fractions)
        shape = (len(inputs),)
        self.clipped = torch.full(shape, torch.nan, dtype=torch.float64, device=inputs.device)
        self._outside = torch.zeros_like(self.clipped)
        self._distinct = self._find_distinct()

    def scores(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Groups of the samples `rows` with their probabilities, float64 `(n, draws, orders, K)`.

        NaN where the model was not finite. Equal copies are forwarded once: shares k with the same count, and, in both
        orders, the copy with all positive positions replaced. A copy without replaced positions is the sample itself.
        """
        draws = self.keys.shape[1]
        curves = PerturbationCurves(
            ReplacedCopies(self.probe, self.inputs),
            positions=self.positions,
            ranks=self._rank,
            counts=self.counts,
            wanted=self._distinct,
            values=self._make_values,
            draws=draws,
            score="probability",
        )
        entries_of_sample = draws * self.inputs[0].numel()
        for part, scores in curves.scores(rows):
            self.clipped[part] = self._outside[part] / entries_of_sample
            yield part, self._complete(part, scores)

    def _find_distinct(self) -> Tensor:
        """Which copies are forwarded, bool `(N, orders, K)`: those that are equal to no copy before them."""
        none_replaced = torch.zeros_like(self.counts[:, :1])
        more = self.counts.diff(dim=1, prepend=none_replaced) > 0
        distinct = more[:, None].repeat(1, len(self.orders), 1)
        # with all positive positions replaced both orders make the same copy
        is_part = self.counts < self.positive[:, None]
        distinct[:, 1:] &= is_part[:, None]
        return distinct

    def _rank(self, rows: Tensor) -> Tensor:
        relevance = compute_relevance(self.probe.maps[rows], self.unit)
        ranks = [rank_positive(relevance, order) for order in self.orders]
        return torch.cat(ranks).float()

    def _make_values(self, rows: Tensor, draws: Tensor) -> Tensor:
        """Fields, clipped to the bounds; counts how many values were outside."""
        x = self.inputs.index_select(0, rows)
        raw = self.fields(x, self.keys[rows, draws])
        values = raw.clamp(*self.probe.model.bounds)
        clipped = (values != raw).flatten(1).sum(1).double()
        self._outside.index_add_(0, rows, clipped.expand(len(rows)))
        return values

    def _complete(self, part: Tensor, scores: Tensor) -> Tensor:
        """Fill in the scores of the copies that are equal to others."""
        distinct = self._distinct[part]
        levels = torch.arange(scores.shape[-1], device=part.device)
        # a copy that was not forwarded is equal to the last one before it that was
        last_forwarded = torch.where(distinct, levels, -1).cummax(2).values
        source = last_forwarded[:, None].expand_as(scores)
        start = self.probe.measure_score(self.probe.logits[part], part, "probability")
        copied = scores.gather(3, source.clamp(min=0))
        complete = torch.where(source < 0, start[:, None, None, None], copied)
        # where all positive positions are replaced, all orders have the score of the first
        everything = self.counts[part] == self.positive[part, None]
        first_order, others = complete[:, :, :1], complete[:, :, 1:]
        complete[:, :, 1:] = torch.where(everything[:, None, None], first_order, others)
        return complete
