"""Copies of samples with some of their positions replaced, run through the model a chunk at a time.

AOPC, corruption curves, the log-odds score and data SenC all do this. They differ in which positions they replace, by
which values, and in what they do with the outputs. A copy is made from a few numbers when its chunk is forwarded, so
only one chunk of copies is in memory. No result depends on the chunks, or on the other samples: random values come from
keys, one for each sample and draw, made from the sample's content and the seed. So they do not depend on the explainer
either, and differences between explainers are differences of paired draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.metrics.probe import Probe
from standfast.model import Kind
from standfast.segments import spatial_shape
from standfast.tasks import Scale
from standfast.tensors import content_keys, count_at_once, mix64

#: from the owners `(m,)` and further columns of m copies: what is replaced, `(m, P)`, 1 or 0 in the inputs' dtype; and
#: the values in its place, `(m, ...)`, or what broadcasts to that
Replace = Callable[..., tuple[Tensor, Tensor]]

# numbers in the values, and in the ranks, that are held at once: 8 MB, and a few times that
_ELEMENTS = 1 << 21
_COPIES = 1 << 20  # copies that are numbered at once; far fewer are made at once
_SALT = 0xA09C


def make_sample_keys(inputs: Tensor, seed: int) -> Tensor:
    """A key for each of `inputs` `(N, ...)`, int64 `(N,)`: it decides a sample's random values and order of ties.

    Results with equal keys saw the same random values.
    """
    return content_keys(inputs, seed ^ _SALT)


def make_draw_keys(keys: Tensor, draws: int) -> Tensor:
    """A key for each draw, from the samples' `keys` `(N,)`; int64 `(N, draws)`."""
    numbers = torch.arange(1, draws + 1, device=keys.device)
    return mix64(keys[:, None] ^ mix64(numbers))


def replace_positions(x: Tensor, replaced: Tensor, values: Tensor) -> Tensor:
    """Put `values` where `replaced` is 1. Works in place, and returns `x`.

    Args:
        x: `(m, ...)`.
        replaced: 1 or 0, in the dtype of `x`: `(m, P)`, one for each entry of an input, or one for each pixel (with
            all its channels).
        values: broadcast to the shape of `x`.

    >>> replace_positions(torch.ones(1, 2, 2), torch.tensor([[0.0, 1.0]]), torch.tensor(5.0)).tolist()
    [[[1.0, 5.0], [1.0, 5.0]]]
    """
    shape: tuple[int, ...] = x.shape[1:]
    if replaced.shape[1] != x[0].numel():
        # positions are replaced in all channels
        shape = (1, *spatial_shape(x))
    # a weight of 0 or 1 gives one of the two ends exactly, several times faster than `where` on a CPU
    return x.lerp_(values, replaced.reshape(-1, *shape))


class ReplacedCopies:
    """Runs the model on copies of samples with positions replaced. For use inside `model.session()`.

    Each copy has an owner, the number of its sample, and may have further numbers, in columns. From these `replace`
    says what is replaced in the copy, and by what.

    Args:
        probe: it has the model and the explained classes, and counts evaluations and copies that are not finite.
        inputs: the samples of the probe, `(N, ...)`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> half = (torch.arange(784) < 392).float()
    >>> with model.session():
    ...     probe = Probe(standfast.metrics.Call(model, standfast.explainers.get("saliency"), digits.inputs))
    ...     scores = ReplacedCopies(probe, digits.inputs).scores(
    ...         lambda logits, owner: probe.measure_score(logits, owner, "probability"),
    ...         lambda owner: (half.expand(len(owner), -1), torch.tensor(0.0)),
    ...         torch.tensor([0, 1, 1]),
    ...     )
    >>> scores.shape, bool(scores[1] == scores[2]), probe.evaluations.tolist()
    (torch.Size([3]), True, [2, 3])
    """

    def __init__(self, probe: Probe, inputs: Tensor) -> None:
        self.probe = probe
        self.inputs = inputs

    def run(
        self,
        function: Callable[..., tuple[Tensor, ...]],
        replace: Replace,
        owner: Tensor,
        *columns: Tensor,
        rows_per_input: int = 1,
        kind: Kind = "forward",
    ) -> tuple[Tensor, ...]:
        """`function(copies, owner, *columns)` over all copies, in chunks; outputs concatenated. Counts nothing.

        Args:
            function: from a chunk of copies `(m, ...)` and their columns to tensors with m rows.
            replace: makes the copies.
            owner: the samples that the M copies are of, int64 `(M,)`.
            columns: `(M, ...)`.
            rows_per_input, kind: as for `Model.map_rows`.
        """

        def make(owner: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
            replaced, values = replace(owner, *columns)
            # index_select copies whole rows, in less time than an index
            copies = replace_positions(self.inputs.index_select(0, owner), replaced, values)
            return function(copies, owner, *columns)

        return self.probe.model.map_rows(
            make, owner, *columns, like=self.inputs, rows_per_input=rows_per_input, kind=kind
        )

    def scores(
        self, score: Callable[..., Tensor], replace: Replace, owner: Tensor, *columns: Tensor
    ) -> Tensor:
        """`score(logits, owner, *columns)` of all copies, `(M,)`, without gradients; counts them in the probe."""

        def forward(copies: Tensor, owner: Tensor, *columns: Tensor) -> tuple[Tensor]:
            return (score(self.probe.model.forward(copies), owner, *columns),)

        with torch.no_grad():
            (values,) = self.run(forward, replace, owner, *columns)
        none_constant = torch.zeros_like(values, dtype=torch.bool)
        self.probe.count(owner, none_constant, values.isnan())
        return values

    def curve(
        self, ranks: Tensor, counts: Tensor, values: Tensor, score: Scale = "probability"
    ) -> Tensor:
        """Scores of the answer as more and more positions of every sample are replaced, float64 `(N, K)`.

        Args:
            ranks: of the positions, from 0: `(N, P)`, with P entries or pixels of an input.
            counts: how many positions are replaced at each of K levels, those of the lowest ranks; `(K,)`.
            values: what is put in their place, `(N, ...)`.
            score: the answer's `"probability"` or its `"logit"`.

        >>> import standfast
        >>> digits = standfast.data.bundled("digits")[:2]
        >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
        >>> with model.session():
        ...     probe = Probe(standfast.metrics.Call(model, standfast.explainers.get("saliency"), digits.inputs))
        ...     ranks = probe.maps.flatten(1).argsort(1, descending=True).argsort(1)
        ...     copies = ReplacedCopies(probe, digits.inputs)
        ...     curve = copies.curve(ranks, torch.tensor([0, 100, 784]), torch.zeros_like(digits.inputs))
        >>> curve.shape, bool((curve[:, 0] > 0.9).all())
        (torch.Size([2, 3]), True)
        """

        def replace(owner: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
            replaced = ranks[owner] < count[:, None]
            return replaced.to(values.dtype), values[owner]

        def read(outputs: Tensor, owner: Tensor, count: Tensor) -> Tensor:
            return self.probe.measure_score(outputs, owner, score)

        numbers = torch.arange(len(self.inputs), device=counts.device)
        owner, count = torch.cartesian_prod(numbers, counts).unbind(1)
        scores = self.scores(read, replace, owner, count)
        return scores.reshape(len(numbers), -1)


@dataclass(frozen=True)
class PerturbationCurves:
    """Scores of the explained class as more and more positions are replaced. For use inside `model.session()`.

    Attributes:
        copies: runs the model.
        positions: how many positions an input has, P.
        ranks: from numbers of samples `(n,)` to the ranks of their positions, float32 `(orders * n, P)`, all samples
            in the first order, then all in the next. (Float32 is exact up to 2^24 positions.)
        counts: a copy at level k has all positions replaced whose rank is below this, int64 `(N, K)`.
        wanted: which copies are forwarded, bool `(N, orders, K)`.
        values: from numbers of samples and of draws, `(m,)` each, to what is put in the place of positions: `(m, ...)`,
            or `(1, ...)` if it is always the same.
        draws: of the values, for each sample.
        score: of the explained class.
    """

    copies: ReplacedCopies
    positions: int
    ranks: Callable[[Tensor], Tensor]
    counts: Tensor
    wanted: Tensor
    values: Callable[[Tensor, Tensor], Tensor]
    draws: int
    score: Scale

    def scores(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Groups of the samples `rows` with their scores, float64 `(n, draws, orders, K)`.

        NaN where a copy was not wanted, or the model was not finite on it.
        """
        copies = self.draws * self.wanted[0].numel()
        held_at_once = count_at_once(_ELEMENTS, rows) // self.positions
        group = max(1, min(held_at_once, _COPIES // copies))
        if not len(rows):
            return
        for part in torch.split(rows, group):
            yield part, self._scores(part)

    def _scores(self, part: Tensor) -> Tensor:
        ranks = self.ranks(part)
        counts = self.counts[part]
        is_wanted = self.wanted[part]
        shape = (len(part), self.draws, *is_wanted.shape[1:])
        scores = torch.full(shape, torch.nan, dtype=torch.float64, device=part.device)
        device = part.device
        samples = torch.arange(len(part), device=device).repeat_interleave(self.draws)
        numbers = torch.arange(self.draws, device=device).repeat(len(part))

        def score(logits: Tensor, owner: Tensor, *_: Tensor) -> Tensor:
            return self.copies.probe.measure_score(logits, owner, self.score)

        # one draw of a sample at a time, as many of them as may be held at once
        entries = self.copies.inputs[0].numel()
        size = max(1, count_at_once(_ELEMENTS, part) // entries)
        for sample, number in zip(
            torch.split(samples, size), torch.split(numbers, size), strict=True
        ):
            values = self.values(part[sample], number)
            # of the copies that are wanted: which row of the values, in which order of positions, at which level
            row, order, level = is_wanted[sample].nonzero().unbind(1)
            if not len(row):
                continue
            copied = sample[row]
            # the ranks of all samples in the first order, then of all in the next
            ranked = order * len(part) + copied
            columns = row, ranked, counts[copied, level].float()
            scores[copied, number[row], order, level] = self.copies.scores(
                score, _replace_below(ranks, values), part[copied], *columns
            )
        return scores


def _replace_below(ranks: Tensor, values: Tensor) -> Replace:
    """Replaces the positions whose rank is below a copy's count by its row of the values, or by the only row."""

    def replace(owner: Tensor, row: Tensor, ranked: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        ranks_of_rows = ranks.index_select(0, ranked)
        replaced = ranks_of_rows.lt_(count[:, None]).to(values.dtype)
        if len(values) == 1:
            return replaced, values
        return replaced, values.index_select(0, row)

    return replace
