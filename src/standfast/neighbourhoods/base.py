"""Where a perturbed input may lie, and how it is distributed there.

A `Neighbourhood` is a configuration: a prior over points, and a map from points to perturbed inputs. For a norm ball
the points are the perturbed inputs themselves. For a transformation they are its parameters, such as an angle.
`around(inputs, bounds)` returns a `Region` for a batch of P inputs. A region samples points, projects them, maps
standard normal numbers to them, and makes perturbed inputs from them. Subset simulation uses the map from normal
numbers: its proposals keep the distribution of the points unchanged.
"""

from __future__ import annotations

import math
import reprlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from standfast.errors import ArgumentError, StandfastError, check
from standfast.neighbourhoods.choices import Choices
from standfast.records import ConfigurationType
from standfast.registry import Registry
from standfast.tensors import Streams, broadcast_rows, send, widen_half

Distribution = Literal["uniform", "truncated_normal"]
#: the smallest and the largest valid value of an input
Bounds = tuple[float | Tensor, float | Tensor]

_DRAWN = 1 << 23  # numbers that are drawn at once for one input, to be rejected or not

neighbourhoods: Registry[type[Neighbourhood]] = Registry(
    "neighbourhood",
    "standfast.neighbourhoods",
    lambda kind: isinstance(kind, type) and issubclass(kind, Neighbourhood),
)


@dataclass(frozen=True)
class Region:
    """The neighbourhoods of P inputs: boxes of points, or, if `radius` is set, the intersections of boxes and L2 balls.

    `Neighbourhood.around` makes a region. Points have shape `(P, n, *shape)`: n for each of the P centres. In a norm
    ball a point is a perturbed input. In general `perturb` makes perturbed inputs of points.

    `sigma`, `(P,)` or `(P, *shape)`, is the scale of the normal distribution that the Gaussian map truncates to the
    box. If it is None, the distribution is uniform on the box. If `tilt` is set, the distribution is uniform on an L2
    ball: a weight corrects the truncated normal distribution. For an offset o from the centre and radius r, the density
    relative to the image of the Gaussian map is `exp((||o||^2 - r^2) / (2 sigma^2))` inside the ball and 0 outside.

    `differentiable` says whether gradients flow through `perturb`, and `aligns` whether `perturb` moves positions, so
    that maps are moved back before they are compared.
    """

    centre: Tensor
    lower: Tensor
    upper: Tensor
    sigma: Tensor | None = None
    radius: float | None = None
    tilt: bool = False
    differentiable: bool = True
    aligns: bool = False

    def __len__(self) -> int:
        return self.centre.shape[0]

    @property
    def shape(self) -> torch.Size:
        """Shape of one point."""
        return self.centre.shape[1:]

    @property
    def input_shape(self) -> torch.Size:
        """Shape of one input."""
        return self.shape

    @property
    def is_plain(self) -> bool:
        """Whether every point of the box belongs to the region, so that none is rejected."""
        return self.radius is None

    def perturb(self, points: Tensor, problem: Tensor) -> Tensor:
        """The perturbed inputs `(M, *input_shape)` of points `(M, *shape)`; `problem` `(M,)` numbers their inputs."""
        return points

    def align_maps(self, maps: Tensor, points: Tensor, problem: Tensor) -> tuple[Tensor, Tensor]:
        """Maps `(M, *input_shape)` of perturbed inputs, moved back to the positions of the clean inputs.

        Returns:
            The maps, and which of their values both inputs see, bool, of a shape that broadcasts to the maps'.
        """
        is_seen = torch.ones((), dtype=torch.bool, device=maps.device)
        return maps, is_seen

    @property
    def choices(self) -> Choices | None:
        """Which parameters choose among candidates; None where the neighbourhood has none (`chooses`)."""
        return None

    def find_movable(self) -> Tensor:
        """See `Neighbourhood.find_movable`; bool `(P,)`."""
        return torch.ones(len(self), dtype=torch.bool, device=self.device)

    def effective_points(self, points: Tensor, problem: Tensor) -> Tensor:
        """The points `(M, *shape)` as they took effect: what steps and rules made of them, where there are any."""
        return points

    @property
    def dtype(self) -> torch.dtype:
        """The data type of the inputs."""
        return self.centre.dtype

    @property
    def device(self) -> torch.device:
        """The device of the inputs."""
        return self.centre.device

    def streams(self, seed: int) -> Streams:
        """A random stream for each of the P inputs, determined by its values and `seed`."""
        return Streams.for_rows(self.centre, seed)

    def select(self, rows: Sequence[int] | Tensor) -> Region:
        """The region of some of the P inputs."""
        index = send(rows, self.centre.device, torch.int64)
        sigma = None
        if self.sigma is not None:
            sigma = self.sigma[index]
        return replace(
            self,
            centre=self.centre[index],
            lower=self.lower[index],
            upper=self.upper[index],
            sigma=sigma,
        )

    @property
    def box(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest value of each feature, each `(P, *shape)`."""
        return self.lower, self.upper

    def from_gaussian(self, z: Tensor) -> Tensor:
        """Perturbed inputs `(P, n, *shape)` from standard normal numbers of the same shape, feature by feature."""
        return self._from_uniform(torch.special.ndtr(z))

    def _from_uniform(self, u: Tensor) -> Tensor:
        """Perturbed inputs from uniform numbers in (0, 1), by the quantile function of each feature."""
        lower = self.lower[:, None]
        upper = self.upper[:, None]
        even = torch.lerp(lower.expand_as(u), upper.expand_as(u), u)
        if self.sigma is None:
            return even
        sigma, uniform = self._find_scale()
        below = torch.special.ndtr((self.lower - self.centre) / sigma)
        above = torch.special.ndtr((self.upper - self.centre) / sigma)
        share = torch.lerp(below[:, None], above[:, None], u)
        offset = sigma[:, None] * torch.special.ndtri(share)
        x = self.centre[:, None] + offset
        x = torch.minimum(torch.maximum(x, lower), upper)
        return torch.where(uniform[:, None], even, x)

    def _find_scale(self) -> tuple[Tensor, Tensor]:
        """The scale of each feature, and which are uniform instead, with an infinite `sigma`: 1 stands for it."""
        assert self.sigma is not None
        sigma = broadcast_rows(self.sigma, self.centre)
        uniform = torch.isinf(sigma)
        return sigma.masked_fill(uniform, 1.0), uniform

    def to_gaussian(self, x: Tensor) -> Tensor:
        """Standard normal numbers whose image is `x` `(P, n, *shape)`; values at a face of the box come close to it."""
        exact = torch.promote_types(x.dtype, torch.float32)  # 1 - 1e-6 needs it
        values = x.to(exact)
        lower = self.lower[:, None].to(exact)
        upper = self.upper[:, None].to(exact)
        centre = self.centre[:, None].to(exact)
        u = (values - lower) / (upper - lower).clamp(min=1e-30)
        if self.sigma is not None:
            sigma, uniform = self._find_scale()
            sigma = sigma[:, None].to(exact)
            below = torch.special.ndtr((lower - centre) / sigma)
            above = torch.special.ndtr((upper - centre) / sigma)
            up_to_value = torch.special.ndtr((values - centre) / sigma)
            share = (up_to_value - below) / (above - below).clamp(min=1e-30)
            u = torch.where(uniform[:, None], u, share)
        # the normal numbers of values at a face would be infinite
        z: Tensor = torch.special.ndtri(u.clamp(1e-6, 1 - 1e-6))
        return z.to(x.dtype)

    def log_weight(self, x: Tensor) -> Tensor | None:
        """Log density of `x` `(P, n, *shape)` relative to the image of the Gaussian map, at most 0; `(P, n)`.

        None if the map alone gives the distribution (boxes); `-inf` outside the ball.
        """
        if self.radius is None:
            return None
        distance = self._distance(x)
        inside = distance <= self.radius
        weight = torch.zeros_like(distance)
        if self.tilt and self.sigma is not None:
            twice_variance = 2 * self.sigma[:, None] ** 2
            weight = (distance**2 - self.radius**2) / twice_variance.clamp(min=1e-30)
        return torch.where(inside, weight, -torch.inf)

    def log_density(self, x: Tensor) -> Tensor:
        """Log density of `x` `(P, n, *shape)` up to a constant, `(P, n)`; `-inf` outside the region."""
        shape = x.shape[:2]
        density = torch.zeros(shape, device=x.device, dtype=x.dtype)
        if self.sigma is not None and not self.tilt:
            sigma = self.sigma[:, None]
            if self.sigma.ndim == 1:
                density = -(self._distance(x) ** 2) / (2 * sigma**2)
            else:
                offset = (x - self.centre[:, None]) / sigma
                density = -0.5 * offset.square().flatten(2).sum(2)
        is_inside = self.contains(x, slack=0.0)
        return torch.where(is_inside, density, -torch.inf)

    def contains(self, x: Tensor, slack: float = 1e-5) -> Tensor:
        """Whether each of `x` `(P, n, *shape)` lies in the region, up to rounding; bool `(P, n)`."""
        lower = self.lower[:, None] - slack
        upper = self.upper[:, None] + slack
        is_within = (x >= lower) & (x <= upper)
        inside = is_within.flatten(2).all(2)
        if self.radius is not None:
            longest = self.radius * (1 + slack) + slack
            inside &= self._distance(x) <= longest
        return inside

    def project(self, x: Tensor) -> Tensor:
        """The nearest points of the region; for an L2 ball cut by a box, points of the region close to the nearest."""
        lower = self.lower[:, None]
        upper = self.upper[:, None]
        x = torch.clamp(x, lower, upper)
        if self.radius is None:
            return x
        # the centre lies in the box, so a point that moves towards it stays in the box
        distance = self._distance(x)
        # a point that is inside up to rounding does not move, so a second projection changes nothing
        outside = distance > self.radius * (1 + 1e-6)
        shrink = torch.where(outside, self.radius / distance.clamp(min=1e-30), 1.0)
        moved = self._move_towards_centre(x, shrink)
        stays = broadcast_rows(~outside, x)
        return torch.where(stays, x, moved)

    def _move_towards_centre(self, x: Tensor, shrink: Tensor) -> Tensor:
        centre = self.centre[:, None]
        return centre + broadcast_rows(shrink, x) * (x - centre)

    def sample(self, count: int, streams: Streams) -> Tensor:
        """Draw `count` perturbed inputs for each centre, `(P, count, *shape)`."""
        if self.is_plain:
            uniform = streams.uniform((count, *self.shape), self.dtype)
            return self._from_uniform(uniform)
        if len(self) > 1:  # each by itself, so that its points do not depend on the others
            points = []
            for p in range(len(self)):
                points.append(self.select([p]).sample(count, streams.select([p])))
            return torch.cat(points)
        if self._is_whole_ball:
            return self._sample_ball(count, streams)
        return self.from_gaussian(self.sample_gaussian(count, streams))

    def sample_gaussian(self, count: int, streams: Streams) -> Tensor:
        """Draw numbers `(P, count, *shape)` whose image under the Gaussian map has the region's distribution.

        For a box they are standard normal. For a ball that a bound cuts, or where rules exclude points, they are drawn
        in the box and rejected, one input at a time, until `count` are accepted. In a ball that no bound cuts, points
        are drawn uniformly, and nearly none is rejected: only those that rounding moves out of the ball.
        """
        if self.is_plain:
            return streams.normal((count, *self.shape), self.centre.dtype)
        drawn = [
            self.select([p])._sample_by_rejection(count, streams.select([p]))
            for p in range(len(self))
        ]
        return torch.stack(drawn)

    @property
    def _is_whole_ball(self) -> bool:
        """Whether the distribution is uniform on L2 balls that no bound cuts."""
        if self.radius is None or not self.tilt:
            return False
        return bool(
            (
                (self.lower <= self.centre - self.radius)
                & (self.upper >= self.centre + self.radius)
            ).all()
        )

    def _sample_ball(self, count: int, streams: Streams) -> Tensor:
        """Points `(P, count, *shape)`, uniform in the L2 ball whatever the box.

        They are the first d of the d + 2 coordinates of a uniform point on a sphere. Source: Barthe et al., "A
        probabilistic approach to the geometry of the l_p^n-ball" (Annals of Probability 33, 2005).
        """
        z = streams.normal((count, self.shape.numel() + 2), self.dtype)
        length = torch.linalg.vector_norm(z, dim=2, keepdim=True)
        offset: Tensor = self.radius / length * z[..., :-2]
        offset_of_centres = offset.reshape(len(self), count, *self.shape)
        return self.centre[:, None] + offset_of_centres

    def _sample_by_rejection(self, count: int, streams: Streams, attempts: int = 2000) -> Tensor:
        kept: list[Tensor] = []
        whole = self._is_whole_ball
        missing = count
        attempt_size = count if whole else max(count, 256)
        drawn = max(1, min(attempt_size, _DRAWN // self.shape.numel()))
        # the points of a whole ball have their distribution already
        weighted = replace(self, tilt=self.tilt and not whole)
        for _ in range(attempts * math.ceil(attempt_size / drawn)):
            if whole:
                z = self.to_gaussian(self._sample_ball(min(drawn, missing), streams))
            else:
                z = streams.normal((drawn, *self.shape), self.dtype)
            weight = weighted.log_weight(self.from_gaussian(z))
            assert weight is not None
            chance = streams.uniform(weight.shape[1:], weight.dtype)
            is_accepted = torch.log(chance[0]) < weight[0]
            z = z[0][is_accepted][:missing]
            kept.append(z)
            missing -= len(z)
            if not missing:
                return torch.cat(kept)
        where, advice = self._rejection
        raise StandfastError(
            f"neighbourhood: only {count - missing} of {count} points wanted were found {where}, in"
            f" {attempts * attempt_size} draws; {advice}"
        )

    #: where points are looked for, and what helps if few are found
    _rejection: ClassVar[tuple[str, str]] = (
        "within the L2 ball",
        "with a smaller sigma more points lie within the ball",
    )

    def _distance(self, x: Tensor) -> Tensor:
        offset = (x - self.centre[:, None]).flatten(2)
        distance: Tensor = torch.linalg.vector_norm(offset, dim=2)
        return distance


@dataclass(frozen=True)
class Neighbourhood(metaclass=ConfigurationType):
    """Where the perturbed inputs around an input may lie, and how they are distributed there."""

    @property
    def chooses(self) -> bool:
        """Whether any of its parameters chooses among candidates, as those of categories, words and steps do."""
        return False

    @property
    def revision(self) -> int:
        """What counts in a job's identity: the `version` of the class, or more where only some gave other values."""
        return int(getattr(self, "version", 1))

    @abstractmethod
    def around(self, inputs: Tensor, bounds: Bounds | None = None) -> Region:
        """The region around each of `inputs` `(P, ...)`, cut by `bounds`, the `(lower, upper)` of valid inputs.

        The bounds are numbers or tensors that broadcast against one input; None stands for none.

        Raises:
            ArgumentError: the inputs are no floats `(P, ...)` within the bounds; the bounds are something else.
        """

    def find_movable(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Which of the inputs `(N, ...)` can change at all, bool `(N,)`; all of them by default.

        A row of a table whose numbers are too small for a step has nothing around it, nor has a text without a word
        that another one could replace. That its explanation stays the same is no merit.
        """
        return torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)

    @abstractmethod
    def describe(self) -> str:
        """What happens to an input, as the end of the sentence "an input is ..."."""

    def read_parameters(self, points: Tensor, shape: Sequence[int]) -> dict[str, Tensor]:
        """The parameters that people read, `(P,)` each, by name; of points `(P, ...)` for inputs of this shape.

        A norm ball has none: its points are the perturbed inputs.
        """
        return {}

    def measure_plausibility(self, inputs: Tensor, perturbed: Tensor) -> Tensor | None:
        """How plausible the `perturbed` inputs are, `(M,)` from 0 to 1; None where the class cannot say.

        `inputs` are the clean ones; both are `(M, *input_shape)`.
        """
        return None

    def name_swaps(self, inputs: Tensor, perturbed: Tensor) -> list[str] | None:
        """For texts, the new words of each row as a JSON object with positions as keys; None for other inputs.

        `inputs` are the clean ones; both are `(M, *input_shape)`.
        """
        return None

    def describe_excess(self, shape: Sequence[int], bounds: tuple[Tensor, Tensor]) -> str:
        """A sentence if the neighbourhood holds every valid input of this shape, and more; else an empty text."""
        return ""


def check_neighbourhood(value: object, argument: str = "neighbourhood") -> None:
    """Raise `ArgumentError` unless `value` is a `Neighbourhood`."""
    is_short = isinstance(value, str | Mapping | int | float)
    got = repr(value) if is_short else type(value).__name__
    expected = "a neighbourhood, such as LinfBall(0.1) or neighbourhoods.Rotation(10)"
    check(isinstance(value, Neighbourhood), argument, expected, got)


def check_inputs(inputs: Tensor, bounds: Bounds | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The `inputs` `(P, ...)`, at least in float32, and bounds like them; an error unless they lie within these."""
    is_batch = isinstance(inputs, Tensor) and inputs.ndim >= 2 and inputs.is_floating_point()
    shape = tuple(getattr(inputs, "shape", ()))
    got = f"{type(inputs).__name__} of shape {shape}"
    check(is_batch, "inputs", "floats of shape (N, ...)", got)
    try:
        pair = (-torch.inf, torch.inf) if bounds is None else bounds
        lower, upper = (
            torch.as_tensor(bound, dtype=inputs.dtype, device=inputs.device) for bound in pair
        )
        is_within = (inputs >= lower) & (inputs <= upper)
        inside = bool(is_within.all())
    # what torch raises for bounds of another kind or shape
    except (TypeError, ValueError, RuntimeError):
        expected = "a pair (lower, upper) of numbers, or of tensors that fit the inputs, or None"
        raise ArgumentError("bounds", expected, reprlib.repr(bounds)) from None
    check(inside, "inputs", "values within the bounds", "values outside the bounds")
    return widen_half(inputs), (widen_half(lower), widen_half(upper))
