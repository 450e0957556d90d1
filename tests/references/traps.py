"""Problems whose levels lead away from the way to fail that matters, with their exact answers, in any dimension.

`y_i` is the sum of the i-th of k equal blocks of the input divided by the square root of the block's length. So it is
standard normal, and the answer is the same in every dimension. Sources: Breitung, "The geometry of limit state function
graphs and subset simulation" (2019), for the piecewise linear and the meatball problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor


@dataclass(frozen=True)
class Trap:
    """A problem of a standard normal input: failure is `score >= 0`."""

    name: str
    blocks: int
    of_blocks: Callable[[Tensor], Tensor]
    log_probability: float

    def score(self, z: Tensor) -> Tensor:
        """Scores `(N,)` of `z` `(N, d)`; features that are left over by equal blocks have no effect."""
        length = z.shape[1] // self.blocks
        used = z[:, : self.blocks * length]
        return self.of_blocks(used.reshape(len(z), self.blocks, length).sum(2) / length**0.5)


def piecewise_linear(y: Tensor) -> Tensor:
    """Failure is y1 >= 4 or y2 >= 5; the early levels lead to y2."""
    y1, y2 = y.unbind(1)
    a = torch.where(y1 > 3.5, 4 - y1, 0.85 - 0.1 * y1)
    b = torch.where(y2 > 2, 0.5 - 0.1 * y2, 2.3 - y2)
    return -torch.minimum(a, b)


def meatball(y: Tensor) -> Tensor:
    """Most of the event is at y1 < -4.2, behind the point with the lowest score."""
    y1, y2 = y.unbind(1)
    a = 4 * (y1 + 2) ** 2 / 9 + y2**2 / 25
    b = (y1 - 2.5) ** 2 / 4 + (y2 - 0.5) ** 2 / 25
    return 5 - 30 / (a**2 + 1) - 20 / (b**2 + 1)


def make_half_spaces(name: str, limits: tuple[float, ...], slopes: tuple[float, ...]) -> Trap:
    """Failure is y_i >= limits[i] for any i; the flattest one leads, and is the least probable."""

    def score(y: Tensor) -> Tensor:
        return ((y - y.new_tensor(limits)) * y.new_tensor(slopes)).amax(1)

    return Trap(
        name, len(limits), score, math.log(-math.expm1(float(stats.norm.logcdf(limits).sum())))
    )


def integrate_meatball() -> float:
    """ln P by the midpoint rule on a grid of 0.005 up to 9 standard deviations."""
    total, step = 0.0, 0.005
    grid = torch.arange(-9, 9, step, dtype=torch.float64) + step / 2
    density = torch.exp(-0.5 * grid**2) * step / math.sqrt(2 * math.pi)
    for y1, weight in zip(grid.split(200), density.split(200), strict=True):
        points = torch.cartesian_prod(y1, grid)
        inside = (meatball(points) >= 0).double().reshape(len(y1), -1)
        total += float(weight @ inside @ density)
    return math.log(total)


TRAPS = (
    Trap(
        "piecewise linear", 2, piecewise_linear, math.log(1 - stats.norm.cdf(4) * stats.norm.cdf(5))
    ),
    Trap("meatball", 2, meatball, -11.392),
    make_half_spaces("three half-spaces", (4.0, 5.0, 4.5), (3.0, 0.3, 1.0)),
)

#: the mode with nearly all of P has one in a hundred points above a middle level (ln P = -1.4, -2.3 and -2.9 there)
THREE_MODES = (
    make_half_spaces("three modes, 3e-7", (5.0, 5.8, 5.5), (1.0, 0.43924, 0.57101)),
    make_half_spaces("three modes, 1e-9", (6.0, 6.8, 6.5), (1.0, 0.53336, 0.69337)),
    make_half_spaces("three modes, 1e-12", (7.0, 8.0, 7.5), (1.0, 0.58777, 0.76410)),
)
