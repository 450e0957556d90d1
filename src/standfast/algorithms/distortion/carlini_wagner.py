"""Carlini and Wagner's attack in the 2-norm: penalty, change of variables, bisection on the penalty's weight.

    min_w ||x'(w) - x||_2^2 + c max(-J(x'(w)), -confidence),    x'(w) = lower + (upper - lower) (tanh w + 1) / 2

by Adam, with J the margin, and c by bisection for each input. Adam treats each variable alone, so a fixed feature,
which never has a gradient, has no effect. This is the attack in the reduced space of c-Eval, Eq. 5.

Source: Carlini and Wagner, "Towards evaluating the robustness of neural networks" (IEEE S&P 2017), Sec. VI-A; Adam of
Kingma and Ba (ICLR 2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from standfast.algorithms.distortion.base import Attack, attacks
from standfast.algorithms.distortion.space import FreeSpace, Nearest
from standfast.errors import ArgumentError
from standfast.records import Count, Positive, Range
from standfast.tensors import Streams

_INSIDE = 1 - 1e-6  # values of tanh are limited to this, so that its inverse exists
_DECAYS = (0.9, 0.999)


@attacks.register("cw")
@dataclass(frozen=True)
class CarliniWagner(Attack):
    """Carlini and Wagner's L2 attack.

    Args:
        steps: how many steps of Adam for each weight of the penalty, at a gradient each.
        searches: how many weights the bisection tries.
        learning_rate: of Adam.
        weight: the first one; it grows tenfold until a point changes the class.
        confidence: the margin that is demanded beyond the change of class.
    """

    steps: Count = 1000
    searches: Count = 9
    learning_rate: Positive = 0.01
    weight: Positive = 1.0
    confidence: Annotated[float, Range(least=0)] = 0.0
    name = "cw"

    def expected_evaluations(self) -> int:
        """A gradient for each step of each search."""
        return self.steps * self.searches

    def run(
        self, space: FreeSpace, nearest: Nearest, streams: Streams, start: Tensor | None
    ) -> None:
        """Bisect the weight of the penalty.

        Raises:
            ArgumentError: for the maximum norm, and for inputs without finite bounds.
        """
        if space.norm != 2:
            raise ArgumentError("norm", "2 for the attack 'cw'", repr(space.norm))
        width = space.upper - space.lower
        if not bool((width < 1e6).all()):
            raise ArgumentError(
                "bounds", "a finite range for the attack 'cw', which maps it to a tanh", "none"
            )
        first = space.x if start is None else space.clip(start, space.rows)
        # a fixed feature has a box without width
        share = (first - space.lower) / width.clamp(min=1e-30)
        origin = torch.atanh((2 * share - 1) * _INSIDE)
        weight = torch.full_like(nearest.distortion, self.weight)
        low = torch.zeros_like(weight)
        high = torch.full_like(weight, torch.inf)
        for _ in range(self.searches):
            flipped = self._minimise(space, nearest, origin, weight)
            high = torch.where(flipped, torch.minimum(high, weight), high)
            low = torch.where(flipped, low, torch.maximum(low, weight))
            middle = (low + high) / 2
            weight = torch.where(high.isfinite(), middle, 10 * weight)

    def _minimise(
        self, space: FreeSpace, nearest: Nearest, origin: Tensor, weight: Tensor
    ) -> Tensor:
        """Adam from `origin` with penalties of `weight` `(N,)`; which inputs have changed their class, bool `(N,)`."""
        w = origin.clone()
        mean = torch.zeros_like(origin)
        square = torch.zeros_like(origin)
        flipped = torch.zeros_like(nearest.found)
        for number in range(1, self.steps + 1):
            shape = torch.tanh(w)
            points = torch.where(
                space.free, space.lower + (space.upper - space.lower) * (shape + 1) / 2, space.x
            )
            margin, slope = space.margin_gradient(points, space.rows)
            nearest.offer(points, margin, space.rows)
            flipped = flipped | (margin > self.confidence)
            # max(-J, -confidence) has a slope only below the confidence
            pull = torch.where(margin < self.confidence, weight, 0.0)
            gradient = 2 * (points - space.x) - pull[:, None] * slope
            # by the chain rule through x'(w)
            width = space.upper - space.lower
            gradient = gradient * width * (1 - shape.square()) / 2
            mean = _DECAYS[0] * mean + (1 - _DECAYS[0]) * gradient
            square = _DECAYS[1] * square + (1 - _DECAYS[1]) * gradient.square()
            # both means of Adam begin at 0; this takes the bias away
            step = (
                mean
                / (1 - _DECAYS[0] ** number)
                / ((square / (1 - _DECAYS[1] ** number)).sqrt() + 1e-8)
            )
            w = w - self.learning_rate * torch.where(space.free, step, 0.0)
        return flipped
