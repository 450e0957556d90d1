"""The fast minimum-norm attack: it starts at the nearest linearised boundaries and ends with a polish at the boundary.

Four stages, all batched over inputs:

1. *Feet.* The margins of the other classes are linearised at the input. For each class the foot is the nearest point
   within the bounds at which it would win. This is exact for an affine classifier, whose nearest face may differ from
   the one that steepest descent from the input reaches, and from that of the likeliest other class. With more than 128
   other classes only those are linearised whose boundary may be the nearest, see `FreeSpace.order_rivals`.
   (DeepFool of Moosavi-Dezfooli et al., CVPR 2016,
   with the bounds inside of the projection as in Croce and Hein, "Minimally distorted adversarial examples with a fast
   adaptive boundary attack", ICML 2020.)
2. *Fast minimum norm.* Pintor et al., "Fast minimum-norm adversarial attacks through adaptive norm constraints"
   (NeurIPS 2021), Algorithm 1: a step along the normalised gradient of the margin, then a projection onto the ball of
   the current radius and into the bounds. The radius shrinks by a share gamma where the point changes the class, and
   grows where it does not. Step and gamma fall like a cosine. It runs towards the few classes with the nearest feet, in
   parallel. We depart from it in scale: the step is a share of the radius, so that inputs in any unit are treated in
   the same way. And until a point has changed the class, the radius grows beyond the linear estimate of the distance,
   which alone might approach the boundary and never reach it.
   Sometimes nothing is found, for example where features differ much in scale or an input lies in a corner of the box.
   Then stage 2 runs once more, from the nearest of some random points that changes the class.
3. *A second search* of another kind, which starts from the input and is told only how far the first one had to go:
   the augmented Lagrangian attack, or decoupled direction and norm for the maximum norm. It often ends elsewhere. So it
   finds smaller changes, and how far the two searches are apart says how much the result can be trusted.
4. *Polish.* The margin is linearised again at z, the nearest point found. The foot of that plane is where the boundary
   would be nearest if it were flat. Points between the foot and z are evaluated together, and the nearest one that
   changes the class is the next z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.algorithms.distortion.augmented_lagrangian import AugmentedLagrangian
from standfast.algorithms.distortion.base import Attack, attacks
from standfast.algorithms.distortion.decoupled_direction import DecoupledDirection
from standfast.algorithms.distortion.geometry import (
    dual_norm_of,
    nearest_on_plane,
    norm_of,
    row_sums,
    shrink,
)
from standfast.algorithms.distortion.space import DIRECTIONS, MANY, FreeSpace, Nearest
from standfast.records import Count, CountFromZero, Fraction, Positive
from standfast.tensors import Streams, send

_TOGETHER = 9  # how many classes are linearised together
_BETWEEN = 8  # how many points of an input are evaluated together
_OVERSHOOT = 1e-4  # how far beyond a flat boundary its foot is placed, as a share of the distance


@attacks.register("fmn")
@dataclass(frozen=True)
class FastMinimumNorm(Attack):
    """Fast minimum norm between a start at the linearised boundary and a polish.

    Args:
        steps: how many in stage 2, at a gradient each for each rival.
        rivals: how many classes stage 2 moves towards: those with the nearest feet.
        second: how many steps in stage 3, at a gradient each; 0 for none.
        polish: rounds of stage 4, at a gradient and 16 evaluations each.
        step: the first one, as a share of the radius; it falls to a hundredth of that.
        gamma: the first relative change of the radius; it falls to a fiftieth of that.
        restarts: further runs of stage 2, each from a random direction and towards any class.
        scatter: how many random points of the box, half of them corners, are evaluated where nothing was found.
    """

    steps: CountFromZero = 40
    rivals: Count = 3
    second: CountFromZero = 50
    polish: CountFromZero = 10
    step: Positive = 1.0
    gamma: Fraction = 0.05
    restarts: CountFromZero = 0
    scatter: CountFromZero = 64
    name = "fmn"
    points_in_memory = 9

    def expected_evaluations(self) -> int:
        """Those for ten classes."""
        return self.expected_for(None)

    def expected_for(self, classes: int | None) -> int:
        """The gradients of the feet of all other classes and of every step, and what each polish takes.

        Of more than 129 classes only some have a gradient of their own, and directional derivatives find out which. (Of
        a module that cannot be differentiated twice, all have one, which is more than this number.)
        """
        rivals = _TOGETHER if classes is None else classes - 1
        descended = min(self.rivals, rivals)
        feet = rivals
        if rivals > MANY:
            feet = DIRECTIONS + max(_TOGETHER, descended)
        descents = descended + self.restarts
        steps = (self.steps + 1) * descents
        polish = (2 * _BETWEEN + 1) * self.polish
        return feet + steps + self.second + polish

    def run(
        self, space: FreeSpace, nearest: Nearest, streams: Streams, start: Tensor | None
    ) -> None:
        """The feet, the descents from them and from `start`, further ones where nothing was found, and the polish."""
        points, rivals = self._find_feet(space, nearest, streams)
        nearest.evaluate(points, space.rows)
        nearest.record(self._descend(space, nearest, points, rivals))
        if start is not None:
            first = self._follow_ray(space, nearest, start)
            nearest.record(self._descend(space, nearest, first[:, None]))
        for _ in range(self.restarts):
            features = space.x.shape[1]
            direction = streams.normal((features,), space.x.dtype) * space.free
            length = norm_of(direction, space.norm).clamp(min=1e-30)
            radius = torch.where(nearest.found, nearest.distortion, nearest.searched)
            scale = radius / length
            step = direction * scale[:, None]
            begin = space.clip(space.x + step, space.rows)
            nearest.record(self._descend(space, nearest, begin[:, None]))
        if self.second:
            second = AugmentedLagrangian if space.norm == 2 else DecoupledDirection
            second(self.second).run(space, nearest, streams, None)
        self._scatter(space, nearest, streams)
        for _ in range(self.polish):
            self._polish(space, nearest)

    def _find_feet(
        self, space: FreeSpace, nearest: Nearest, streams: Streams
    ) -> tuple[Tensor, Tensor]:
        """The nearest points of the nearest linearised boundaries `(N, k, d)`, and their classes `(N, k)`."""
        order, least = space.order_rivals(streams)
        count = min(self.rivals, order.shape[1])
        device = space.x.device
        feet = space.x[:, None].repeat(1, count, 1)
        classes = order[:, :count].clone()
        distance = torch.full(classes.shape, torch.inf, dtype=space.x.dtype, device=device)
        rows = space.rows
        together = max(_TOGETHER, count)
        for first in range(0, order.shape[1], together):
            if first:
                # `least` is a lower bound of each distance, so a class behind the best foot so far needs no gradient
                shortest = distance[rows, 0]
                may_be_nearer = (least[rows, first] < shortest) | shortest.isinf()
                rows = rows[may_be_nearer]
            if not len(rows):
                break
            rivals = order[rows, first : first + together]
            owner = rows.repeat_interleave(rivals.shape[1])
            x = space.x[owner]
            margin, gradient = space.margin_gradient(x, owner, rivals.flatten())
            low = space.lower[owner]
            high = space.upper[owner]
            # on the plane itself the class is kept: a margin has to be above 0
            rise = -margin * (1 + _OVERSHOOT)
            foot, reached = nearest_on_plane(x, gradient, rise, low, high, space.norm)
            size = torch.where(reached, space.size(foot, owner), torch.inf)
            size = size.reshape(rivals.shape)
            foot = foot.reshape(*rivals.shape, -1)
            if first:  # those known so far come first, also among boundaries that the bounds keep out of reach
                size = torch.cat([distance[rows], size], 1)
                rivals = torch.cat([classes[rows], rivals], 1)
                foot = torch.cat([feet[rows], foot], 1)
            best = size.sort(dim=1, stable=True)
            chosen = best.indices[:, :count]
            distance[rows] = best.values[:, :count]
            classes[rows] = rivals.gather(1, chosen)
            numbers = torch.arange(len(rows), device=device)
            feet[rows] = foot[numbers[:, None], chosen]
        return feet, classes

    def _follow_ray(self, space: FreeSpace, nearest: Nearest, start: Tensor) -> Tensor:
        """The first of some points on the ray through `start` `(N, d)` that changes the class, or `start` itself."""
        delta = torch.where(space.free, start - space.x, 0.0)
        # without the change of its fixed features the start may lie before the boundary, so the ray goes on
        scales = torch.linspace(1.0, 2.0, _BETWEEN, dtype=delta.dtype, device=delta.device)
        on_ray = [space.clip(space.x + scale * delta, space.rows) for scale in scales]
        points = torch.stack(on_ray, dim=1)
        before = nearest.distortion.clone()
        nearest.evaluate(points, space.rows)
        has_changed = nearest.distortion < before
        return torch.where(has_changed[:, None], nearest.points, points[:, 0])

    def _scatter(self, space: FreeSpace, nearest: Nearest, streams: Streams) -> None:
        """Where nothing was found: stage 2 again, from the nearest of some points of the box that changes the class."""
        were_found = nearest.found.tolist()
        missing = [row for row, was_found in enumerate(were_found) if not was_found]
        if not self.scatter or not missing:
            return
        rows = send(missing, space.rows.device)
        x = space.x[rows]
        # an input without bounds has no box: ten times the largest distance that was tried stands for it
        searched = nearest.searched[rows].clamp(min=1.0)
        wide = (10 * searched)[:, None]
        low = torch.maximum(space.lower[rows], x - wide)
        high = torch.minimum(space.upper[rows], x + wide)
        width = (high - low)[:, None]
        streams_of_rows = streams.select(missing)
        for done in range(0, self.scatter, _BETWEEN):
            points = min(_BETWEEN, self.scatter - done)
            share = streams_of_rows.uniform((points, x.shape[1]), x.dtype)
            share[:, ::2] = share[:, ::2].round()  # corners
            nearest.evaluate(low[:, None] + share * width, rows)
        rows = rows[nearest.found[rows]]
        if not len(rows):
            return
        near = space.x[rows]
        # each round narrows the part of the line in which the answer changes to an eighth
        for _ in range(3):
            far = nearest.points[rows]
            part = torch.arange(1, _BETWEEN, dtype=far.dtype, device=far.device) / _BETWEEN
            way = (far - near)[:, None]
            nearest.evaluate(near[:, None] + part[:, None] * way, rows)
            near = nearest.points[rows] + (near - far) / _BETWEEN
        starts = nearest.points[rows][:, None]
        self._descend(space, nearest, starts, rows=rows)

    def _descend(
        self,
        space: FreeSpace,
        nearest: Nearest,
        starts: Tensor,
        rivals: Tensor | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Stage 2, from points `(n, k, d)` of `rows` `(n,)`, each towards its class of `rivals` `(n, k)` if given.

        Returns:
            The least distortions at which each descent has changed the class `(n, k)`, infinite without one.
        """
        if rows is None:
            rows = space.rows
        owner = rows.repeat_interleave(starts.shape[1])
        towards = None if rivals is None else rivals.flatten()
        points = starts.flatten(0, 1)
        x = space.x[owner]
        radius = space.size(points, owner)
        best = torch.full_like(radius, torch.inf)
        has_flipped = torch.zeros_like(radius, dtype=torch.bool)
        for number in range(self.steps):
            # both fade like a cosine, as in Algorithm 1, and keep a small rest
            angle = math.pi * number / self.steps
            fade = (1 + math.cos(angle)) / 2
            step = self.step * (0.01 + 0.99 * fade)
            gamma = self.gamma * (0.02 + 0.98 * fade)
            margin, gradient = space.margin_gradient(points, owner, towards)
            size, flips = nearest.offer(points, margin, owner)
            best = torch.where(flips, torch.minimum(best, size), best)
            # Algorithm 1: the radius at which the linearised margin would be 0
            slope = dual_norm_of(gradient, space.norm).clamp(min=1e-30)
            estimate = size - margin / slope
            estimate = torch.where(margin.isfinite(), estimate, radius)  # of a NaN nothing is known
            # the estimate may approach the boundary and never reach it, so the radius grows beyond it
            larger = torch.where(has_flipped, radius, torch.maximum(radius, estimate))
            grown = larger * (1 + gamma)
            # Algorithm 1: where the class has changed the radius shrinks, and never exceeds the best distance
            shrunk = torch.minimum(radius * (1 - gamma), best)
            radius = torch.where(flips, shrunk, grown)
            has_flipped = has_flipped | flips
            if space.norm == 2:
                length = norm_of(gradient, 2).clamp(min=1e-30)
                direction = gradient / length[:, None]
            else:
                # steps of the maximum norm go to a corner: that is the direction of steepest ascent there
                direction = gradient.sign()
            moved = points - x + (step * radius)[:, None] * direction
            points = space.clip(x + shrink(moved, radius, space.norm), owner)
        # the last step of the loop has not been evaluated
        if self.steps:
            margin = space.margin(points, owner)
            size, flips = nearest.offer(points, margin, owner)
            best = torch.where(flips, torch.minimum(best, size), best)
        return best.reshape(starts.shape[:2])

    def _polish(self, space: FreeSpace, nearest: Nearest) -> None:
        """Stage 4, one round, for the inputs that have a point."""
        rows = nearest.found.nonzero().flatten()
        if not len(rows):
            return
        z = nearest.points[rows]
        x = space.x[rows]
        low = space.lower[rows]
        high = space.upper[rows]
        margin, gradient = space.margin_gradient(z, rows)
        # the plane at z, written around x: margin + gradient . (y - z) = 0
        rise = row_sums(gradient * (z - x)) - margin
        foot, _ = nearest_on_plane(x, gradient, rise, low, high, space.norm)
        far = z
        near = foot
        share = torch.arange(_BETWEEN, dtype=z.dtype, device=z.device) / _BETWEEN
        for _ in range(2):
            way = (far - near)[:, None]
            points = near[:, None] + share[:, None] * way
            last = nearest.distortion[rows]
            nearest.evaluate(points, rows)
            far = nearest.points[rows]
            # in the second round the points lie between the nearest one that changes the class and the one before it
            has_improved = (nearest.distortion[rows] < last)[:, None]
            one_before = far + (near - far) / _BETWEEN
            near = torch.where(has_improved, one_before, near)
