"""Copies of inputs with the positions replaced that a map finds most relevant, or least; and the class's score on them.

Only positive relevance counts. Of the `n_plus` positions that have it, the first `floor(k n_plus)` are replaced, for
several shares k. One draw of the noise is one field of values over the whole input: a copy takes from it what it needs,
so the copies of a draw are nested, for both orders and for all explainers alike. Fields come from keys, one for each
sample and draw, made of the sample's content and the seed; no batch, chunk or device changes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from holdfast.errors import ArgumentError, check
from holdfast.explainers import Background
from holdfast.explainers.background import resolve_background
from holdfast.explainers.base import Baseline, make_baseline, resolve_baseline
from holdfast.metrics.positions import Order, Unit, count_positions, relevance_of
from holdfast.metrics.probe import Probe
from holdfast.metrics.replaced_copies import PerturbationCurves, ReplacedCopies, draw_keys, scores_of
from holdfast.model import Classifier
from holdfast.tensors import hashed_uniform

#: from inputs `(m, ...)` and uniform numbers in (0, 1) of the same shape to values of that shape, each row by itself
Fill = Callable[[Tensor, Tensor], Tensor]
#: from inputs `(m, ...)` and their keys `(m,)` to a field of values for each, `(m, ...)`; or `(1, ...)`, one for all
Fields = Callable[[Tensor, Tensor], Tensor]

_ELEMENTS = 1 << 21  # numbers in the fields, and in the ranks, that are held at once: 8 MB, and a few times that
_DRAWN = 1 << 16  # of them drawn at once: what is needed on the way stays in the cache
_COPIES = 1 << 20  # copies that are numbered at once; far fewer are made at once
_ROUNDING = 1e-9  # k n_plus may come out as 20.999999999999996 where it is 21


def corrupted_counts(positive: Tensor, fractions: Sequence[float]) -> Tensor:
    """`floor(k n_plus)` for each share k of the `positive` `(N,)` positions; int64 `(N, K)`.

    >>> corrupted_counts(torch.tensor([0, 7, 100]), (0.05, 0.29, 1.0)).tolist()
    [[0, 0, 0], [0, 2, 7], [5, 29, 100]]
    """
    shares = torch.tensor(list(fractions), dtype=torch.float64, device=positive.device)
    return (positive[:, None] * shares + _ROUNDING).floor().to(torch.int64)


def place_ranks(relevance: Tensor, order: Order) -> Tensor:
    """The turn of each position, from 0; those without positive relevance come last, of equals the first comes first.

    Args:
        relevance: `(N, P)`.
        order: the `"top"` or the `"bottom"` of the positive ones first.

    Returns:
        int32 `(N, P)`.

    >>> relevance = torch.tensor([[0.5, -1.0, 2.0, 0.5, 0.0]])
    >>> place_ranks(relevance, "top").tolist(), place_ranks(relevance, "bottom").tolist()
    ([[1, 3, 0, 2, 4]], [[0, 3, 2, 1, 4]])
    """
    last = -torch.inf if order == "top" else torch.inf
    keyed = torch.where(relevance > 0, relevance, last)
    turns = keyed.argsort(dim=1, descending=order == "top", stable=True)
    places = torch.arange(turns.shape[1], device=turns.device, dtype=torch.int32).expand_as(turns)
    return torch.empty_like(places, memory_format=torch.contiguous_format).scatter_(1, turns, places)


def normal_field(keys: Tensor, count: int) -> Tensor:
    """`count` standard normal numbers for each key, float64 `(m, count)`.

    By the inverse of the distribution function, of uniform numbers that are the same bits on every device.
    """
    quantiles: Tensor = torch.special.erfinv(2 * hashed_uniform(keys, count).double() - 1)
    return quantiles.mul_(math.sqrt(2))


def gaussian_fields(inputs: Tensor, mean: Baseline, sd: Baseline) -> Fields:
    """Fields of `N(mean, sd)`, each one number or one for each channel of `inputs` `(N, ...)`."""
    centre, scale = (_broadcast(value, name, inputs) for value, name in ((mean, "mean"), (sd, "sd")))

    def fields(x: Tensor, keys: Tensor) -> Tensor:
        count = x[0].numel()
        parts = []
        for own in torch.split(keys, max(1, _DRAWN // count)):
            values = centre + scale * normal_field(own, count).reshape(-1, *x.shape[1:])
            # float64 until here: what the last bit of a device's inverse may differ by is rounded away
            parts.append(values.to(x.dtype))
        return torch.cat(parts)

    return fields


def constant_fields(classifier: Classifier, inputs: Tensor, baseline: Baseline) -> Fields:
    """Fields of the baseline, which must lie within the bounds."""
    value = resolve_baseline(classifier, inputs, baseline)
    return lambda x, keys: value.expand(1, *x.shape[1:])


def sample_fields(classifier: Classifier, inputs: Tensor, background: Background) -> Fields:
    """Fields that are reference inputs: for each key one of them, whole, so that what goes together stays together."""
    references = resolve_background(classifier, inputs, background)

    def fields(x: Tensor, keys: Tensor) -> Tensor:
        return references[(hashed_uniform(keys, 1)[:, 0].double() * len(references)).long()]

    return fields


def filled_fields(fill: Fill) -> Fields:
    """Fields that a user's function makes.

    Raises:
        ArgumentError: in use, if it returns something else than finite values of the inputs' shape.
    """

    def fields(x: Tensor, keys: Tensor) -> Tensor:
        values = fill(x.clone(), hashed_uniform(keys, x[0].numel()).reshape(x.shape).to(x.dtype))
        fine = isinstance(values, Tensor) and values.shape == x.shape
        got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else f"a {type(values).__name__}"
        check(fine, "replacement", f"a function that returns a tensor of shape {tuple(x.shape)}", got)
        values = values.detach().to(x)
        check(bool(torch.isfinite(values).all()), "replacement", "a function that returns finite values", "others")
        return values

    return fields


def _broadcast(value: Baseline, name: str, inputs: Tensor) -> Tensor:
    try:
        return make_baseline(value, inputs).double()
    except ArgumentError as error:
        raise ArgumentError(name, error.expected, error.got) from None


class CorruptedScores:
    """Probabilities of the explained classes on corrupted copies. For use inside `classifier.session()`.

    Args:
        probe: has the samples' targets and maps; evaluations and what is not finite are counted there.
        inputs: the samples, `(N, ...)`.
        positions: what is replaced at once.
        fractions: shares of the positive positions, K of them, increasing.
        orders: which of them first.
        keys: of the samples, `(N,)`.
        draws: fields for each sample.
        fields: makes them; their values are clipped to the classifier's bounds.

    Attributes:
        positive: positions with positive relevance, n_plus, `(N,)`.
        counts: how many of them are replaced, `(N, K)`.
        places: positions of an input.
        clipped: the share of a sample's field values that lay outside of the bounds, float64 `(N,)`; known for the
            samples that `scores` has been through, NaN for others.
    """

    def __init__(
        self,
        probe: Probe,
        inputs: Tensor,
        positions: Unit,
        fractions: Sequence[float],
        orders: Sequence[Order],
        keys: Tensor,
        draws: int,
        fields: Fields,
    ) -> None:
        self.probe, self.inputs, self.unit, self.orders = probe, inputs, positions, tuple(orders)
        self.keys, self.fields = draw_keys(keys, draws), fields
        self.places = count_positions(inputs, positions)
        group = max(1, _ELEMENTS // self.places)
        parts = [(relevance_of(part, positions) > 0).sum(1) for part in torch.split(probe.maps, group)]
        self.positive = torch.cat(parts)
        self.counts = corrupted_counts(self.positive, fractions)
        self.clipped = torch.full((len(inputs),), torch.nan, dtype=torch.float64, device=inputs.device)
        self._outside = torch.zeros_like(self.clipped)
        self._wanted = self._distinct_copies()

    def scores(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Groups of the samples `rows` with their scores, float64 `(n, draws, orders, K)`.

        NaN where the model was not finite. What is the same copy is forwarded once: shares of few positions that come
        to the same count, and all positive ones in either order; a copy with nothing replaced is the sample itself.
        """
        draws = self.keys.shape[1]
        curves = PerturbationCurves(
            ReplacedCopies(self.probe, self.inputs),
            positions=self.places,
            ranks=self._ranks,
            counts=self.counts,
            wanted=self._wanted,
            values=self._values,
            draws=draws,
            score="probability",
        )
        for part, found in curves.scores(rows):
            self.clipped[part] = self._outside[part] / (draws * self.inputs[0].numel())
            yield part, self._complete(part, found)

    def _distinct_copies(self) -> Tensor:
        """Which copies are forwarded, bool `(N, orders, K)`: those that are not the same as an earlier one."""
        more = self.counts.diff(dim=1, prepend=torch.zeros_like(self.counts[:, :1])) > 0
        wanted = more[:, None].repeat(1, len(self.orders), 1)
        wanted[:, 1:] &= (self.counts < self.positive[:, None])[:, None]
        return wanted

    def _ranks(self, rows: Tensor) -> Tensor:
        relevance = relevance_of(self.probe.maps[rows], self.unit)
        return torch.cat([place_ranks(relevance, order) for order in self.orders]).float()

    def _values(self, rows: Tensor, draws: Tensor) -> Tensor:
        """Fields within the bounds; counts the values that were not."""
        raw = self.fields(self.inputs.index_select(0, rows), self.keys[rows, draws])
        fields = raw.clamp(*self.probe.classifier.bounds)
        self._outside.index_add_(0, rows, (fields != raw).flatten(1).sum(1).double().expand(len(rows)))
        return fields

    def _complete(self, part: Tensor, found: Tensor) -> Tensor:
        """The scores of copies that are the same as others, in their places."""
        wanted, levels = self._wanted[part], torch.arange(found.shape[-1], device=part.device)
        source = torch.where(wanted, levels, -1).cummax(2).values[:, None].expand_as(found)
        start = scores_of(self.probe.logits[part], self.probe.targets[part], "probability")
        complete = torch.where(source < 0, start[:, None, None, None], found.gather(3, source.clamp(min=0)))
        everything = (self.counts[part] == self.positive[part, None])[:, None]
        complete[:, :, 1:] = torch.where(everything[:, None], complete[:, :, :1], complete[:, :, 1:])
        return complete
