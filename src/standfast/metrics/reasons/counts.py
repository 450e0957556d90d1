"""How often the draws of a decision name each reason."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from standfast.metrics.reasons.draws import Drawn
from standfast.metrics.reasons.places import (
    Speaking,
    measure_sizes,
    sign_first,
    sum_channels,
)
from standfast.statistics.decisions import estimate_mean
from standfast.statistics.proportions import proportion_interval
from standfast.statistics.reasons import (
    MOST_DECIDED,
    decide_reasons,
)
from standfast.tensors import Array, send

#: the draws of maps with at most so many features are stored
MOST_STORED = 1024


class ReasonCounts:
    """Counts what the draws name.

    Args:
        flat_maps: of the clean inputs, `(P, F)`.
        top: how many features are reasons.
        speaking, demand: the options of the metric.
        shares_places: see `mark_first`.

    Attributes:
        signed: for each feature of the clean inputs 1 or -1 for the reasons, and 0 for the others, `(P, F)`.
    """

    def __init__(
        self,
        flat_maps: Tensor,
        top: int,
        speaking: Speaking,
        demand: float,
        shares_places: bool,
    ) -> None:
        self.flat_maps = flat_maps
        self.top = top
        self.speaking = speaking
        self.demand = demand
        self.shares_places = shares_places
        self.signed = self._sign_first(flat_maps)
        sizes = measure_sizes(flat_maps, speaking)
        count = len(flat_maps)
        #: the reasons in the order of their sizes, behind them the other features
        self._order = torch.where(self.signed != 0, sizes, -1.0).argsort(
            dim=1, descending=True, stable=True
        )
        self._order = self._order[:, : min(top, flat_maps.shape[1])]
        none_yet = torch.zeros((count,), dtype=torch.int64, device=flat_maps.device)
        self.drawn = none_yet.clone()
        self.kept = none_yet.clone()
        self.same = none_yet.clone()
        self.same_order = none_yet.clone()
        self.looks = none_yet.clone()
        self.holding = none_yet.clone()
        self.falling = none_yet.clone()
        self.named_for = torch.zeros(flat_maps.shape, dtype=torch.int32, device=flat_maps.device)
        self.named_against = torch.zeros_like(self.named_for)
        self.total = torch.zeros(flat_maps.shape, dtype=torch.float64, device=flat_maps.device)
        self._blocks: list[Tensor] = []
        self._named_again: list[Tensor] = []
        #: the limits of the probabilities of all features after the looks so far, of reasons only if there are any
        self._low = np.zeros(flat_maps.shape)
        self._high = np.ones(flat_maps.shape)

    @property
    def is_stored(self) -> bool:
        """Whether draws are stored."""
        return self.flat_maps.shape[1] <= MOST_STORED

    @property
    def decides_each(self) -> bool:
        """Whether the reasons are decided one by one."""
        return self.top <= MOST_DECIDED

    def _sign_first(self, flat_maps: Tensor) -> Tensor:
        return sign_first(flat_maps, self.top, self.speaking, self.shares_places)

    def add(self, rows: Tensor, drawn: Drawn) -> None:
        """Count S draws of the origins with these numbers `(n,)`."""
        count, together = drawn.kept.shape
        flat_maps = sum_channels(drawn.maps.flatten(0, 1)).reshape(count, together, -1)
        finite = flat_maps.isfinite().all(2)
        kept = (drawn.kept & finite)[..., None]
        shown = torch.where(kept, flat_maps, 0.0)
        signed = self._sign_first(shown.flatten(0, 1)).reshape(shown.shape)
        reasons = self.signed[rows][:, None]
        same = (signed == reasons).all(2) & kept[..., 0]
        self.drawn[rows] += finite.sum(1)
        self.kept[rows] += kept[..., 0].sum(1)
        self.same[rows] += same.sum(1)
        self.same_order[rows] += (same & self._is_ordered(rows, shown)).sum(1)
        self.named_for[rows] += (signed > 0).sum(1, dtype=torch.int32)
        self.named_against[rows] += (signed < 0).sum(1, dtype=torch.int32)
        self.total[rows] += shown.double().sum(1)
        again = ((signed == reasons) & (reasons != 0)).sum(2) / (reasons != 0).sum(2)
        self._named_again.append(self._scatter(rows, torch.where(kept[..., 0], again, torch.nan)))
        if self.is_stored:
            self._blocks.append(self._scatter(rows, torch.where(kept, shown, torch.nan)))

    def _scatter(self, rows: Tensor, values: Tensor) -> Tensor:
        """Values of the origins with these numbers `(n, ...)` among those of all, NaN for the others `(P, ...)`."""
        whole = values.new_full(
            (len(self.flat_maps), *values.shape[1:]), torch.nan, dtype=torch.float32
        )
        whole[rows] = values.float()
        return whole

    def _is_ordered(self, rows: Tensor, maps: Tensor) -> Tensor:
        """Whether the reasons of the origins have the same order in maps `(n, S, F)`, bool `(n, S)`."""
        sizes = measure_sizes(maps, self.speaking)
        order = self._order[rows][:, None].expand(-1, maps.shape[1], -1)
        in_order = sizes.gather(2, order)
        is_reason = (self.signed[rows] != 0)[:, None].expand_as(maps).gather(2, order)
        descends = in_order[..., :-1] >= in_order[..., 1:]
        return (descends | ~is_reason[..., 1:]).all(2)

    def _count_hits(self, rows: Tensor) -> Array:
        """In how many draws each reason of these origins is named with its sign, `(n, k)`; -1 beyond their reasons."""
        order = self._order[rows]
        signed = self.signed[rows]
        named = torch.where(signed > 0, self.named_for[rows], self.named_against[rows])
        hits = torch.where(signed != 0, named, -1).gather(1, order)
        return np.asarray(hits.cpu())

    def look(self, rows: Tensor, look: int) -> list[bool]:
        """Whether all reasons of the origins with these numbers `(n,)` are decided, at this look or before."""
        self.looks[rows] = look
        if not self.decides_each:
            return [True] * len(rows)
        decided: list[bool] = []
        counts: list[tuple[int, int]] = []
        columns = (
            self._count_hits(rows),
            self._order[rows].cpu().numpy(),
            self.kept[rows].tolist(),
        )
        for row, hits, order, kept in zip(rows.tolist(), *columns, strict=True):
            states: list[str] = []
            if kept:
                states = self._decide(row, hits[hits >= 0], order[hits >= 0], kept, look)
            decided.append(bool(states) and "undecided" not in states)
            counts.append((states.count("holds"), states.count("falls")))
        holding, falling = send(counts, rows.device, torch.int64).reshape(-1, 2).T
        self.holding[rows] = holding
        self.falling[rows] = falling
        return decided

    def _decide(self, row: int, hits: Array, features: Array, kept: int, look: int) -> list[str]:
        """The states of the reasons of an origin, from their numbers of hits; keeps their limits for the next look."""
        earlier = self._low[row, features], self._high[row, features]
        decisions = decide_reasons(hits, kept, self.demand, look=look, earlier=earlier)
        self._low[row, features] = [decision.low for decision in decisions]
        self._high[row, features] = [decision.high for decision in decisions]
        return [decision.state for decision in decisions]

    def _estimate(self, row: int, kept: int, same: int) -> tuple[float, float, float]:
        """The value of an origin of which so many draws keep the answer, with its interval."""
        if self.decides_each:
            return same / kept, *proportion_interval(same, kept, 0.95)
        shares = torch.cat([block[row] for block in self._named_again]).double().numpy()
        mean = estimate_mean(shares[np.isfinite(shares)], 0.95)
        return mean.value, max(0.0, mean.low), min(1.0, mean.high)

    def describe(self, rows: Tensor) -> dict[str, Tensor]:
        """The fields of the result; `rows` `(n,)` can be evaluated."""
        count = len(self.flat_maps)
        shares = torch.full((4, count), torch.nan, dtype=torch.float64)
        self._named_again = [block.cpu() for block in self._named_again]
        columns = torch.stack([self.kept, self.same, self.same_order]).cpu().numpy()
        for row in rows.tolist():
            kept, same, in_order = (int(number) for number in columns[:, row])
            if kept:
                shares[:3, row] = torch.tensor(self._estimate(row, kept, same))
                shares[3, row] = in_order / kept
        device = self.flat_maps.device
        value, low, high, same_order = shares.to(device)
        chance = torch.full(
            (count,), self.top / self.flat_maps.shape[1], dtype=torch.float64, device=device
        )
        no_draws = torch.full(
            (count, 0, self.flat_maps.shape[1]), torch.nan, dtype=torch.float32, device=device
        )
        return {
            "value": value,
            "low": low,
            "high": high,
            "same_order": same_order,
            "chance": chance,
            "reasons": (self.signed != 0).sum(1),
            "holding": self.holding,
            "falling": self.falling,
            "drawn": self.drawn,
            "answer_kept": self.kept,
            "looks": self.looks,
            "origin_map": self.flat_maps.float(),
            "named_for": self.named_for,
            "named_against": self.named_against,
            "mean_map": (self.total / self.kept.clamp(min=1)[:, None]).float(),
            "named_low": torch.from_numpy(self._low).to(device) if self.decides_each else None,
            "named_high": torch.from_numpy(self._high).to(device) if self.decides_each else None,
            "draw_maps": torch.cat([no_draws, *self._blocks], dim=1) if self.is_stored else None,
        }
