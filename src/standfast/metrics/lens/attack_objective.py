"""What an attack on attributions searches for: a map that differs, at a point that keeps the class."""

from __future__ import annotations

import torch
from torch import Tensor

from standfast.algorithms.searches.base import Outcome
from standfast.metrics.lens.attribution_objectives import GuidedObjective
from standfast.metrics.probe import Probe, score_kept_class
from standfast.metrics.probe_objective import ProbeObjective
from standfast.model import ROW_ALIGNMENT
from standfast.similarity import (
    Kendall,
    per_position,
)
from standfast.similarity.authors_protocol import Protocol
from standfast.tensors import count_at_once

_PART_ELEMENTS = 1 << 22  # numbers in the maps that are evaluated at once


class AttackObjective(ProbeObjective):
    """How far the attack gets on the model itself, among points that keep the class."""

    def __init__(
        self, attack: GuidedObjective, probe: Probe, beta: float, protocol: Protocol
    ) -> None:
        super().__init__(probe, beta)
        self.attack = attack
        self.protocol = protocol
        self.reference = _sum_magnitudes(probe.maps)
        self.state = attack.state(self.reference)

    def measure(self, x: Tensor, origin: Tensor) -> Outcome:
        """What the points reach, in parts whose maps and sets of positions fit into memory."""
        elements = count_at_once(_PART_ELEMENTS, self.reference)
        # as batches have them, so that no bits depend on the parts (`ROW_ALIGNMENT`)
        rows_at_once = elements // self.reference[0].numel()
        rows = max(rows_at_once // ROW_ALIGNMENT, 2) * ROW_ALIGNMENT
        scores = []
        margins = []
        for part in zip(torch.split(x, rows), torch.split(origin, rows), strict=True):
            score, margin = self._measure_part(*part)
            scores.append(score)
            margins.append(margin)
        # of a kept class -J is positive, so the search's violation is its negative
        return Outcome(torch.cat(scores), -score_kept_class(torch.cat(margins)))

    def _measure_part(self, x: Tensor, origin: Tensor) -> tuple[Tensor, Tensor]:
        measured = self.probe.query(x, origin, keep_maps=True, compare=False)
        assert measured.maps is not None
        maps = measured.maps
        region = self.probe.region
        if region is not None and region.aligns:  # as for gradients, what is not seen is unchanged
            aligned, visible = region.align_maps(maps, x, origin)
            maps = torch.where(visible, aligned, self.probe.maps[origin])
        maps = _sum_magnitudes(maps)
        if self.protocol == "authors":
            # the authors' script takes the point with the smallest Kendall's tau, whatever the objective
            return -Kendall()(self.reference[origin], maps).double(), measured.margin
        return self.attack.score(self.state[origin], maps), measured.margin

    def ascend(self, maps: Tensor, margin: Tensor, origin: Tensor, feasible: Tensor) -> Tensor:
        """The attack's goal where the class is kept, and the way back elsewhere; the authors do not turn back."""
        goal = self.attack.goal(self.state[origin], _sum_magnitudes(maps))
        if self.protocol == "authors":
            return goal
        return torch.where(feasible, goal, -margin)


def _sum_magnitudes(maps: Tensor) -> Tensor:
    """The mass at each position: absolute attributions, added over channels."""
    return per_position(maps, "abs_sum").abs()
