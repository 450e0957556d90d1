"""The augmented Lagrangian attack (ALMA): descent on the distance plus a penalty whose weight follows the constraint.

    min ||delta|| / D + P(g, rho, mu),     g = -margin(x + delta) / |margin(x)|,

with the penalty function P2 of Birgin, Castillo and Martinez (2005):

    P = mu g + mu rho g^2 + rho^2 g^3 / 6  for g >= 0,     mu g / (1 - max(rho, 1) g)  else.

The multiplier mu follows the slope of P by a moving average. rho grows where no point has changed the class and the
constraint has not improved. The steps are those of RMSProp with momentum, and become smaller once a point has changed
the class.

We depart from the paper in scale: the constraint is the margin as a share of the margin at the input, where the paper
has the difference of logits ratio, and distances are shares of D, the distance to the linearised boundary, or to the
nearest point that an earlier search has found. So nothing depends on the units of inputs and logits.

Source: Rony, Granger, Pedersoli and Ben Ayed, "Augmented Lagrangian adversarial attacks" (ICCV 2021), Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.algorithms.distortion.base import Attack, attacks
from standfast.algorithms.distortion.geometry import norm_of
from standfast.algorithms.distortion.space import FreeSpace, Nearest
from standfast.errors import ArgumentError
from standfast.records import Count, Positive, Share
from standfast.tensors import Streams, raise_power

_SMOOTH = 0.9  # of the moving averages: multiplier, squared gradients, momentum
# rho grows by the first every so many steps without such an improvement
_GROWTH = 1.2
_IMPROVED = 0.95
_EVERY = 10
_OVERSHOOT = 1e-3


@attacks.register("alma")
@dataclass(frozen=True)
class AugmentedLagrangian(Attack):
    """The augmented Lagrangian attack in the 2-norm.

    Args:
        steps: how many, at a gradient each.
        step: of the first steps, as a share of D.
        reduction: the share of its size to which the step falls after the first change of class.
    """

    steps: Count = 130
    step: Positive = 0.1
    reduction: Share = 0.01
    name = "alma"

    def expected_evaluations(self) -> int:
        """A gradient for each step, and the last point."""
        return self.steps + 1

    def run(
        self, space: FreeSpace, nearest: Nearest, streams: Streams, start: Tensor | None
    ) -> None:
        """From the input, or from `start`."""
        if space.norm != 2:
            raise ArgumentError("norm", "2 for the attack 'alma'", repr(space.norm))
        rows = space.rows
        x = space.x
        margin, gradient = space.margin_gradient(x, rows)
        unit = margin.abs().clamp(min=1e-30)
        slope = norm_of(gradient, 2).clamp(min=1e-30)
        distance = (unit / slope).clamp(1e-12, 1e12)
        distance = torch.where(nearest.found, nearest.distortion, distance)
        points = x
        if start is not None:
            points = space.clip(torch.where(space.free, start, x), rows)
        mu = torch.ones_like(unit)
        rho = torch.ones_like(unit)
        square = torch.ones_like(x)
        speed = torch.zeros_like(x)
        has_flipped = torch.zeros_like(nearest.found)
        since = torch.full_like(unit, self.steps)
        last = torch.ones_like(unit)
        best = torch.full_like(nearest.distortion, torch.inf)
        for number in range(self.steps):
            margin, gradient = space.margin_gradient(points, rows)
            size, flips = nearest.offer(points, margin, rows)
            best = torch.where(flips, torch.minimum(best, size), best)
            # the constraint asks for a little more than 0, where the class has not changed yet
            g = _OVERSHOOT - (margin / unit).clamp(-1e6, 1e6)
            since = torch.where(flips & ~has_flipped, number, since)
            has_flipped = has_flipped | flips
            if number and not number % _EVERY:
                has_improved = g < _IMPROVED * last
                rho = torch.where(has_flipped | has_improved, rho, _GROWTH * rho)
                last = g
            if number:
                smoothed = _SMOOTH * mu + (1 - _SMOOTH) * _slope(g, rho, mu)
                mu = smoothed.clamp(1e-6, 1e12)
            # the derivative of ||delta|| is a unit vector; times `distance`, the penalty has the same unit
            length = size.clamp(min=1e-30)[:, None]
            pull = (points - x) / length
            weight = _slope(g, rho, mu) * distance / unit
            push = weight[:, None] * gradient
            change = pull - push  # by delta in units of `distance`
            square = _SMOOTH * square + (1 - _SMOOTH) * change.square()
            speed = _SMOOTH * speed + change / (square.sqrt() + 1e-8)
            steps_left = (self.steps - since).clamp(min=1)
            done = (number - since).clamp(min=0) / steps_left
            fade = raise_power(self.reduction, done)
            step = (self.step * distance * fade)[:, None]
            points = space.clip(points - step * speed, rows)
        margin = space.margin(points, rows)
        size, flips = nearest.offer(points, margin, rows)
        best = torch.where(flips, torch.minimum(best, size), best)
        nearest.record(best[:, None])


def _slope(g: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
    """The derivative of P2 by the constraint."""
    above = mu + 2 * mu * rho * g + rho.square() * g.square() / 2
    denominator = 1 - rho.clamp(min=1) * g.clamp(max=0)
    below = mu / denominator**2
    return torch.where(g >= 0, above, below)
