"""The objectives of `AttributionAttack`, by name: what an attack on an attribution changes.

With `a` the map of the clean input, as one value of mass for each position, and `a'` that of the perturbed one, both
scaled to a sum of 1; S_t the t positions with the largest values of `a`, T_t those of `a'`; N_w a window of `2 w + 1`
positions a side:

    top_k        least    sum of a' over S_t                      least    |S_t n T_t|
    mass_centre  largest  || centre(a') - centre(a) ||            (the same)
    target       largest  sum of a' over a region                 (the same)
    lens         least    weighted sum of a' over N_w(S_k)        least    |S_k n N_w(T_k)| + |T_k n N_w(S_k)|

On the left is what steps follow by its gradient, on the model with softplus for ReLU. On the right is what decides
between the points of all steps, on the model itself; ties are decided by what is on the left. `random_sign` and
`universal` query no model: they draw a random sign for every feature, for each input or once for all inputs.

Source: the first three are those of Ghorbani, Abid and Zou, "Interpretation of neural networks is fragile" (AAAI 2019,
Sec. 3); the random ones are Kamath, Mittal, Deshpande and Balasubramanian's, "Rethinking robustness of model
attributions" (AAAI 2024, App. B.1). `lens` is ours. They tried to follow 1-LENS-precision itself, which gave a weaker
attack than `top_k` (App. E.1). The set of the largest values changes in jumps, and a smooth replacement for membership
has a gradient only at positions near the threshold. The mass within the windows has a gradient everywhere, and it
decides who is a member.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from standfast.errors import ArgumentError
from standfast.needs import Needs
from standfast.neighbourhoods import Region
from standfast.records import (
    AtLeastZero,
    ConfigurationType,
    CountFromZero,
    CountOrFraction,
    Range,
    Share,
)
from standfast.registry import Registry, build
from standfast.similarity import dilate, mass_centre, smooth, top_k
from standfast.similarity.rows import row_sum
from standfast.tensors import Streams

_Start = Annotated[float, Range(least=0, below=1)]


class AttributionObjective(metaclass=ConfigurationType):
    """One way to attack an attribution; concrete ones are frozen dataclasses with their options."""

    name: ClassVar[str]


class GuidedObjective(AttributionObjective):
    """An objective whose gradient the steps follow. Maps are `(M, H, W)` or `(M, T)`, without signs."""

    needs: ClassVar[Needs] = Needs(other="an explainer that can be differentiated")

    @abstractmethod
    def state(self, reference: Tensor) -> Tensor:
        """What the objective has to know of the maps of the clean inputs `(P, ...)`: `(P, ...)`."""

    @abstractmethod
    def goal(self, state: Tensor, maps: Tensor) -> Tensor:
        """What is maximised, differentiable, `(M,)`; `state` `(M, ...)` is that of each map's clean input."""

    def score(self, state: Tensor, maps: Tensor) -> Tensor:
        """What decides which of two maps is better, float64 `(M,)`, larger is better; by default the goal."""
        return self.goal(state, maps).double()


class BlindObjective(AttributionObjective):
    """An objective that draws perturbed inputs at random, without queries."""

    @abstractmethod
    def draw(self, region: Region, seed: int) -> Tensor:
        """One point for each centre of `region`, `(P, ...)`, within it."""


attribution_attacks: Registry[type[AttributionObjective]] = Registry("attribution attack")


def get(attack: str | AttributionObjective) -> AttributionObjective:
    """An attack by `"name"` or `"name:option=value,..."`; an attack itself is returned as it is.

    Raises:
        UnknownNameError, ArgumentError: no such attack or option.

    >>> get("top_k:t=200")
    TopK(t=200)
    """
    if isinstance(attack, AttributionObjective):
        return attack
    if not isinstance(attack, str):
        raise ArgumentError("attack", "a name or an AttributionObjective", repr(attack))
    return build(attribution_attacks, attack)


@attribution_attacks.register("top_k")
@dataclass(frozen=True)
class TopK(GuidedObjective):
    """Reduce the mass on the positions that had the largest values.

    Args:
        t: how many positions, as a number or as a share in (0, 1); by default a tenth.
    """

    name = "top_k"
    t: CountOrFraction | None = None

    def state(self, reference: Tensor) -> Tensor:
        """The positions with the largest values."""
        return top_k(reference, self.t)

    def goal(self, state: Tensor, maps: Tensor) -> Tensor:
        """Minus the share of the mass on these positions."""
        return -mass_share(maps, state)

    def score(self, state: Tensor, maps: Tensor) -> Tensor:
        """Minus the number of them that still have the largest values, and among equal numbers the goal."""
        # numbers decide, and the goal, between -1 and 0, decides among equal ones
        is_kept = top_k(maps, self.t) & state
        kept = is_kept.flatten(1).sum(1)
        return self.goal(state, maps).double() - kept


@attribution_attacks.register("mass_centre")
@dataclass(frozen=True)
class MassCentre(GuidedObjective):
    """Move the centre of mass as far as possible."""

    name = "mass_centre"

    def state(self, reference: Tensor) -> Tensor:
        """The centre of mass."""
        return mass_centre(reference)

    def goal(self, state: Tensor, maps: Tensor) -> Tensor:
        """The distance from that centre of mass."""
        # the constant: at the clean input the distance is 0, and its gradient would be 0 / 0
        shift = mass_centre(maps) - state
        return (shift.square().sum(1) + 1e-12).sqrt()


@attribution_attacks.register("target")
@dataclass(frozen=True)
class Target(GuidedObjective):
    """Increase the mass within a box; for a series only `left` and `width` count.

    Args:
        top, left: its first row and column, as shares of the sides in [0, 1).
        height, width: its sides, as shares in (0, 1]; at least one row and column.
    """

    name = "target"
    top: _Start = 0.0
    left: _Start = 0.0
    height: Share = 0.25
    width: Share = 0.25

    def state(self, reference: Tensor) -> Tensor:
        """The positions of the box."""
        mask = torch.zeros_like(reference, dtype=torch.bool)
        mask[..., _span(self.left, self.width, reference.shape[-1])] = True
        if reference.ndim == 3:
            rows = torch.zeros(reference.shape[1], dtype=torch.bool, device=reference.device)
            rows[_span(self.top, self.height, reference.shape[1])] = True
            mask &= rows[:, None]
        return mask

    def goal(self, state: Tensor, maps: Tensor) -> Tensor:
        """The share of the mass within the box."""
        return mass_share(maps, state)


@attribution_attacks.register("lens")
@dataclass(frozen=True)
class Lens(GuidedObjective):
    """Move the mass out of the windows around the positions that had the largest values, not only off these positions.

    Recall falls with all the mass that leaves N_w(S_k). Precision falls only where a position of S_k has none of T_k
    near it. So mass counts for more near the positions that have few of T_k near them. Let c(p) be how many of T_k, the
    k largest of the perturbed map, are in the window of p. Then the weight of a position q of N_w(S_k) is

        1 + alone * sum of exp(-(c(p) - 1) / 2) over the p of S_k in the window of q,    c(p) at least 1.

    Args:
        k: how many positions, as a number or as a share in (0, 1); by default a tenth.
        w: half the side of the window, at least 0; at 0 this is `top_k`.
        alone: the extra weight near positions with few of T_k in their window, at least 0.
    """

    name = "lens"
    k: CountOrFraction | None = None
    w: CountFromZero = 1
    alone: AtLeastZero = 0.3

    def state(self, reference: Tensor) -> Tensor:
        """The positions, and the windows around them, `(P, 2, ...)`."""
        top = top_k(reference, self.k)
        return torch.stack([top, dilate(top, self.w)], dim=1)

    def goal(self, state: Tensor, maps: Tensor) -> Tensor:
        """Minus the weighted share of the mass within the windows."""
        top, near = state.unbind(1)
        if self.alone == 0:
            return -mass_share(maps, near)
        # weights follow from sets, which change in jumps: only the mass within them has a gradient
        with torch.no_grad():
            chosen = top_k(maps.detach(), self.k)
            neighbours = self._sum_windows(chosen.to(maps.dtype))
            weight = near + self.alone * self._sum_windows(
                top * torch.exp(-(neighbours - 1).clamp(min=0) / 2)
            )
        return -mass_share(maps, weight)

    def score(self, state: Tensor, maps: Tensor) -> Tensor:
        """Minus the positions, of both maps, that have one of the other near them; then minus the share of mass."""
        top = top_k(maps, self.k)
        kept = (top & state[:, 1]).flatten(1).sum(1) + (dilate(top, self.w) & state[:, 0]).flatten(
            1
        ).sum(1)
        return -mass_share(maps, state[:, 1]).double() - kept

    def _sum_windows(self, values: Tensor) -> Tensor:
        """Sums over the window of each position."""
        # a mean times the number of positions in the window
        positions_of_window = (2 * self.w + 1) ** (values.ndim - 1)
        return smooth(values, self.w) * float(positions_of_window)


@attribution_attacks.register("random_sign")
@dataclass(frozen=True)
class RandomSign(BlindObjective):
    """Move every feature by the radius, with a random sign for every feature of every input.

    Of a transformation, it takes every parameter to one end of its range.
    """

    name = "random_sign"

    def draw(self, region: Region, seed: int) -> Tensor:
        """Signs from a random stream for each input."""
        return _choose_corner(
            region, region.streams(seed).uniform((1, *region.shape), region.dtype)[:, 0] < 0.5
        )


@attribution_attacks.register("universal")
@dataclass(frozen=True)
class Universal(BlindObjective):
    """Move every feature by the radius, with one random sign for every feature, the same for all inputs.

    Of a transformation, it takes every parameter to one end of its range, the same end for all inputs.
    """

    name = "universal"

    def draw(self, region: Region, seed: int) -> Tensor:
        """The same signs for all inputs."""
        # drawn on the CPU: the one pattern is the same on every device
        signs = (
            Streams([seed], torch.device("cpu"))
            .uniform((1, *region.shape), region.dtype)
            .to(region.device)
            < 0.5
        )
        return _choose_corner(region, signs[0])


#: the attacks that follow no gradient
BLIND = tuple(
    name for name in attribution_attacks if issubclass(attribution_attacks[name], BlindObjective)
)


def mass_share(maps: Tensor, mask: Tensor) -> Tensor:
    """The share `(M,)` of the mass of `maps` `(M, ...)` within `mask`, which may hold weights; 0 for a map of zeros."""
    mass = maps.abs()
    least = torch.finfo(maps.dtype).tiny
    total = row_sum(mass.flatten(1)).clamp(min=least)
    return row_sum((mass * mask).flatten(1)) / total


def _choose_corner(region: Region, upper: Tensor) -> Tensor:
    """The corners of the boxes, `(P, ...)`, at the upper end where `upper` holds, and at the lower end elsewhere."""
    corner = torch.where(upper, region.upper, region.lower)
    return region.project(corner[:, None])[:, 0]


def _span(start: float, length: float, side: int) -> slice:
    first = min(round(start * side), side - 1)
    last = round((start + length) * side)
    return slice(first, max(first + 1, last))
