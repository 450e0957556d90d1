"""How much of a neighbourhood keeps the class: the share that stands beside the numbers of every neighbourhood.

A number about explanations says little where most of the neighbourhood shows the model another class. (FASS, 2026,
compares only pairs that keep the class for this reason.) So each metric over a neighbourhood reports the share of
perturbed inputs, drawn from its distribution, of which the model predicts the same class as of the clean input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from standfast.metrics.probe import Probe
from standfast.metrics.result import Result
from standfast.statistics.proportions import proportion_interval
from standfast.tensors import send

_MOST = 100  # draws for each input: the interval of a share of one half is then 0.4 to 0.6
_BLOCK = 32  # points drawn at once for each input
_PART = 20  # at most one in so many of the evaluations
_ELEMENTS = 1 << 26  # numbers in the draws of a group of inputs
_REJECTED = 1 << 17  # numbers in the draws of one input where many more are drawn and rejected


@dataclass(frozen=True, repr=False)
class NeighbourhoodResult(Result):
    """A result that comes with the share of the neighbourhood that keeps the class.

    Attributes:
        class_kept: the share of perturbed inputs, drawn from the neighbourhood's distribution, that keep the class of
            the clean input, `(N,)`; NaN for skipped samples, and where the budget is too small to draw any.
        class_kept_low, class_kept_high: its 95% interval (Clopper and Pearson 1934), `(N,)`.
    """

    class_kept: Tensor | None = field(default=None, kw_only=True)
    class_kept_low: Tensor | None = field(default=None, kw_only=True)
    class_kept_high: Tensor | None = field(default=None, kw_only=True)


class KeptClass:
    """Counts how many draws from the neighbourhood of each origin of a probe keep the class.

    Args:
        probe: it has the origins, and in its `region` their neighbourhoods.
        most: so many draws of each origin are counted; what comes later, such as a population that has moved, is not.

    >>> from standfast.metrics.kept_class import plan_draws
    >>> plan_draws(5000), plan_draws(500), plan_draws(10)
    (100, 25, 0)
    """

    def __init__(self, probe: Probe, most: int) -> None:
        self.probe = probe
        self.most = most
        self._drawn = torch.zeros_like(probe.evaluations)
        self._kept = torch.zeros_like(self._drawn)

    def add(self, margin: Tensor, origin: Tensor) -> None:
        """Count draws with these margins `(M,)`, of the origins numbered `origin` `(M,)`; NaN keeps no class."""
        counted = (self._drawn < self.most)[origin]
        self._drawn.index_add_(0, origin, counted.to(torch.int64))
        # J is below 0 while the class is kept; NaN is not below 0
        is_kept = counted & (margin < 0)
        self._kept.index_add_(0, origin, is_kept.to(torch.int64))

    def sample(self, seed: int, block: int = _BLOCK) -> Iterator[tuple[Tensor, Tensor]]:
        """Draw `most` points for each origin that can be evaluated: the numbers `(P,)` of a few origins, and their
        next points `(P, S, ...)`, of which S are at most `block`.

        Blocks have a fixed size, so that an origin's draws do not depend on the batch.
        """
        region = self.probe.region
        usable = self.probe.usable()
        assert region is not None
        if not len(usable):
            return
        # few origins at once, for memory
        group = max(1, _ELEMENTS // (block * region.input_shape.numel()))
        for rows in torch.split(usable, group):
            part_region = region.select(rows)
            streams = part_region.streams(seed)
            for start in range(0, self.most, block):
                count = min(block, self.most - start)
                yield rows, part_region.sample(count, streams)

    def draw(self, seed: int) -> None:
        """Draw for the origins that can be evaluated, and predict what was drawn."""
        if not self.most:
            return
        for rows, points in self.sample(seed, self.most):
            origin = rows.repeat_interleave(self.most)
            measured = self.probe.query_class(points.flatten(0, 1), origin)
            self.add(measured.margin, origin)

    def fields(self) -> dict[str, Any]:
        """The fields of a `NeighbourhoodResult`; NaN where the probe has skipped the origin, or nothing was drawn."""
        shares = torch.full(
            (3, len(self._drawn)), torch.nan, dtype=torch.float64, device=self._drawn.device
        )
        usable = self.probe.usable()
        counts = set(self._drawn[usable].tolist())
        for count in sorted(counts - {0}):
            rows = usable[self._drawn[usable] == count]
            kept = self._kept[rows]
            shares[0, rows] = kept.double() / count
            intervals = [proportion_interval(hits, count, 0.95) for hits in kept.tolist()]
            shares[1:, rows] = send(intervals, shares.device, torch.float64).T
        return dict(zip(("class_kept", "class_kept_low", "class_kept_high"), shares, strict=True))


def plan_draws(budget: int, probe: Probe | None = None) -> int:
    """How many of `budget` evaluations of an input go into the share: a twentieth, but at most 100.

    In an L2 ball a draw of many features costs many that are rejected, so of large images there are fewer.
    """
    draws = min(_MOST, budget // _PART)
    region = None
    if probe is not None:
        region = probe.region
    if region is None or region.is_plain:
        return draws
    return min(draws, _REJECTED // region.shape.numel())
