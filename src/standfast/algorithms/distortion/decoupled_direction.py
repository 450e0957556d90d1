"""Decoupled direction and norm: gradient steps choose the direction, and the last point's class chooses the norm.

    delta <- delta + alpha g / ||g||,     x' = clip(x + epsilon delta / ||delta||),
    epsilon <- (1 - gamma) epsilon after a point that changed the class, (1 + gamma) epsilon after any other,

with g the gradient of the margin. alpha falls like a cosine. Two changes make the attack independent of the unit of
the inputs: alpha is a share of epsilon, and epsilon starts as the distance to the linearised boundary, or to the
nearest point that an earlier search has found. For the maximum norm g / ||g|| is the sign of the gradient, and delta is
cut off at epsilon.

Source: Rony, Hafemann, Oliveira, Ben Ayed, Sabourin and Granger, "Decoupling direction and norm for efficient
gradient-based L2 adversarial attacks and defenses" (CVPR 2019), Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.algorithms.distortion.base import Attack, attacks
from standfast.algorithms.distortion.geometry import dual_norm_of, norm_of, shrink
from standfast.algorithms.distortion.space import FreeSpace, Nearest
from standfast.records import Count, Fraction, Positive
from standfast.tensors import Streams


@attacks.register("ddn")
@dataclass(frozen=True)
class DecoupledDirection(Attack):
    """Decoupled direction and norm.

    Args:
        steps: how many, at a gradient each.
        step: the first one, as a share of the norm; it falls to a hundredth of that.
        gamma: the relative change of the norm after each step.
    """

    steps: Count = 130
    step: Positive = 1.0
    gamma: Fraction = 0.05
    name = "ddn"

    def expected_evaluations(self) -> int:
        """A gradient for each step, and the last point."""
        return self.steps + 1

    def run(
        self, space: FreeSpace, nearest: Nearest, streams: Streams, start: Tensor | None
    ) -> None:
        """From the input, or from `start`."""
        rows = space.rows
        x = space.x
        points = x
        if start is not None:
            points = space.clip(torch.where(space.free, start, x), rows)
        delta = points - x
        radius = space.size(points, rows)
        best = torch.full_like(nearest.distortion, torch.inf)
        for number in range(self.steps):
            angle = math.pi * number / self.steps
            fade = (1 + math.cos(angle)) / 2
            margin, gradient = space.margin_gradient(points, rows)
            size, flips = nearest.offer(points, margin, rows)
            best = torch.where(flips, torch.minimum(best, size), best)
            if not number:
                linear = (
                    margin.abs() / dual_norm_of(gradient, space.norm).clamp(min=1e-30)
                ).nan_to_num(posinf=1.0)
                linear = torch.where(nearest.found, nearest.distortion, linear)
                radius = torch.where(radius > 0, radius, linear)
            else:
                factor = torch.where(flips, 1 - self.gamma, 1 + self.gamma)
                radius = radius * factor
            step = self.step * (0.01 + 0.99 * fade) * radius
            if space.norm == 2:
                length = norm_of(gradient, 2).clamp(min=1e-30)
                direction = gradient / length[:, None]
            else:
                direction = gradient.sign()
            delta = delta + step[:, None] * direction
            length = norm_of(delta, space.norm).clamp(min=1e-30)
            grown = delta * (torch.maximum(radius, length) / length)[:, None]
            points = space.clip(x + shrink(grown, radius, space.norm), rows)
            delta = points - x
        size, flips = nearest.offer(points, space.margin(points, rows), rows)
        best = torch.where(flips, torch.minimum(best, size), best)
        nearest.record(best[:, None])
