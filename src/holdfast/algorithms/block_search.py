"""Structured random search: change shrinking blocks of the input, keep what is better.

Problem: `max value(x) subject to violation(x) <= 0` over the region; a black box, no population.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.algorithms.search import (
    Best,
    GradientObjective,
    Objective,
    Outcome,
    Search,
    SearchResult,
    Tracer,
    look,
    searches,
    take,
)
from holdfast.errors import check
from holdfast.neighbourhood import Region
from holdfast.tensors import Streams

MOVES = ("vertex", "vertices", "flip", "centre", "scale", "nudge", "relax")
_AHEAD = 1 << 20  # random numbers drawn ahead for each problem, at most


@searches.register("block")
@dataclass(frozen=True)
class BlockSearch(Search):
    """Structured random search."""

    chains: int = 1
    proposals: int = 1
    start: float = 0.5
    end: float = 0.0
    power: float = 2.0
    inits: int = 10
    explore: float = 0.3
    memory: float = 0.98
    spread: float = 0.0
    eta: float = 0.5
    moves: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    name: ClassVar[str] = "block"

    def run(
        self,
        objective: Objective,
        region: Region,
        budget: int,
        seed: int,
        gradient: GradientObjective | None = None,
    ) -> SearchResult:
        """See `Search`."""
        tracer, streams = Tracer(budget), region.streams(seed)
        best, spent = Best(objective, region), 1
        tracer.note(spent, best.outcome, last=budget == 1)
        if budget == 1:
            return best.result(tracer.trace())
        canvas = _Canvas(region); canvas.spread = self.spread
        n = max(self.inits, self.chains)
        first = canvas.corners(n, streams)[:, : budget - spent]
        seen = look(objective, first)
        best.offer(first, seen)
        spent += first.shape[1]
        tracer.note(spent, best.outcome, last=spent == budget)
        key = seen.key()
        rows = key.argsort(dim=1, descending=True, stable=True)[:, : self.chains]
        x, key = take(first, rows), key.gather(1, rows)
        P, chains = key.shape
        lam = self.proposals
        credit = torch.ones(P, len(self.moves), dtype=torch.float64, device=x.device)
        moves = torch.tensor(self.moves, device=x.device)
        ahead = max(1, min(64, _AHEAD // (chains * lam * region.centre[0].numel())))
        step = 0
        g = torch.zeros_like(canvas.centre)
        score = torch.where(seen.violation <= 0, seen.value, -seen.violation).gather(1, rows)
        ok = (seen.violation <= 0).gather(1, rows)
        val, vio = seen.value.gather(1, rows), seen.violation.gather(1, rows)
        gc = torch.zeros_like(g)
        while spent < budget:
            if step % ahead == 0:
                plan = canvas.draw(ahead, chains * lam, streams)
            share = self.start * (1 - spent / budget) ** self.power + self.end
            probability = self.explore / len(self.moves) + (1 - self.explore) * credit / credit.sum(1, keepdim=True)
            parents = x.repeat_interleave(lam, dim=1)
            draws, elements = plan[0][:, step % ahead], plan[1][:, step % ahead]
            pick = torch.searchsorted(probability.cumsum(1), draws[..., 0].double().contiguous()).clamp(max=len(self.moves) - 1)
            y = canvas.propose(parents, moves[pick], share, draws[..., 1:], elements, torch.where((vio <= 0).all(1)[:, None, None, None], g, gc))[:, : budget - spent]
            seen = look(objective, y)
            best.offer(y, seen)
            count = y.shape[1]
            spent += count
            tracer.note(spent, best.outcome, last=spent == budget)
            delta = (y - parents[:, :count]).reshape(P, count, *g.shape[2:])
            energy = delta.square().sum((2, 3)).clamp(min=1e-30)
            par = torch.arange(count, device=x.device) // lam
            def upd(g, dv):
                err = (dv - (g * delta).sum((2, 3))) / energy
                err = torch.where(err.isfinite(), err, 0.0)
                return g + self.eta * (err[..., None, None] * delta).sum(1, keepdim=True)
            g = upd(g, seen.value - val[:, par])
            gc = upd(gc, vio[:, par] - seen.violation)
            new = seen.key()
            new = torch.nn.functional.pad(new, (0, chains * lam - count), value=-(1 << 63)).reshape(P, chains, lam)
            new, which = new.max(2)
            better = new > key
            row = (which + torch.arange(chains, device=x.device) * lam).clamp(max=count - 1)
            key = torch.where(better, new, key)
            x = torch.where(better.reshape(P, chains, *[1] * len(region.shape)), take(y, row), x)
            val = torch.where(better, seen.value.gather(1, row), val)
            vio = torch.where(better, seen.violation.gather(1, row), vio)
            credit = self.memory * credit + (1 - self.memory) * 0.01
            credit.scatter_add_(1, pick.gather(1, row), better.double())
            step += 1
        self.__dict__["credit"] = credit
        return best.result(tracer.trace())


class _Canvas:
    """Moves on P inputs seen as channels over a line, a plane, ...: `(P, n, C, S)`, S the product of the extents."""

    def __init__(self, region: Region) -> None:
        self.region = region
        shape = region.shape
        self.channels = shape[0] if len(shape) > 1 else 1
        self.extents = tuple(shape[1:]) if len(shape) > 1 else tuple(shape)
        self.size = math.prod(self.extents)
        flat = (len(region), 1, self.channels, self.size)
        self.centre = region.centre.reshape(flat)
        self.lower, self.upper = region.lower.reshape(flat), region.upper.reshape(flat)

    def draw(self, steps, n, streams: Streams):
        d = streams.uniform((steps, n, 4 + len(self.extents) + self.channels), torch.float32)
        return d, streams.uniform((steps, n, self.channels, self.size), self.region.dtype)

    def box(self, u):
        if self.region.radius is None:
            return self.lower, self.upper
        F = self.channels * self.size
        w = (self.region.radius * F ** (-0.5 * u))[..., None, None].to(self.centre.dtype)
        return torch.maximum(self.lower, self.centre - w), torch.minimum(self.upper, self.centre + w)

    def corners(self, n: int, streams: Streams) -> Tensor:
        """Stripes"""
        u = streams.uniform((n, self.channels, *([1] * (len(self.extents) - 1)), self.extents[-1]), self.region.dtype)
        u = u.expand(len(u), n, self.channels, *self.extents).reshape(len(u), n, self.channels, self.size)
        lower, upper = self.box(torch.ones_like(u[:, :, 0, 0]))
        return self.back(torch.where(u < 0.5, lower, upper))

    def back(self, x):
        return self.region.project(x.reshape(*x.shape[:2], *self.region.shape))

    def propose(self, parents: Tensor, move: Tensor, share: float, u: Tensor, elements: Tensor, g: Tensor) -> Tensor:
        x = parents.reshape(*parents.shape[:2], self.channels, self.size)
        k = len(self.extents)
        side = torch.full_like(u[..., 0], max(1.0, (share * self.size) ** (1 / k)))
        if self.spread:
            side = side ** (1 - self.spread * u[..., -1])
        side = side.round().long()
        lower, upper = self.box(u[..., 0])
        mask = None
        anchor = torch.zeros_like(u[..., 0], dtype=torch.int64)
        for d, extent in enumerate(self.extents):
            s = side.clamp(max=extent)
            start = torch.minimum((u[..., 2 + d] * (extent - s + 1)).long(), extent - s)
            line = torch.arange(extent, device=x.device)
            inside = (line >= start[..., None]) & (line < (start + s)[..., None])
            anchor = anchor * extent + start + s // 2
            mask = inside if mask is None else (mask[..., None] & inside[..., None, :]).flatten(2)
        chan = u[..., 2 + k : 2 + k + self.channels] < 0.5
        chan = chan | ~chan.any(-1, keepdim=True)
        if self.channels > 1:
            mask = mask[:, :, None] & chan[..., None]
        else:
            mask = mask[:, :, None]
        index = anchor[..., None, None].expand(*x.shape[:3], 1)
        at = x.gather(-1, index)
        lo, hi = (b.expand_as(x).gather(-1, index) for b in (lower, upper))
        amount = u[..., 1, None, None].to(x.dtype)
        offset = x - self.centre
        m = move[..., None, None]
        vertex = torch.where(at - lo < hi - at, upper, lower)
        y = vertex.expand_as(x)
        y = torch.where(m == 1, torch.where(elements < 0.5, lower, upper), y)
        y = torch.where(m == 2, lower + upper - x, y)
        y = torch.where(m == 3, self.centre, y)
        y = torch.where(m == 4, self.centre + offset * amount, y)
        sign = torch.where(amount < 0.5, -1.0, 1.0)
        fine = 2.0 ** (-8 * (2 * amount % 1))
        y = torch.where(m == 5, x + sign * fine * (upper - lower), y)
        y = torch.where(m == 6, self.centre + offset * (1 - sign * fine), y)
        target = torch.where(g > 0, upper, lower)
        gain = g * (target - x)
        limit = gain.flatten(2).amax(2)[..., None, None] * amount
        y = torch.where((m == 7) & (gain >= limit), target, torch.where(m == 7, x, y))
        y = torch.where(mask | (m == 6) | (m == 7), y, x)
        y = torch.minimum(torch.maximum(y, self.lower), self.upper)
        return self.back(y)
