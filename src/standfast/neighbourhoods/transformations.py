"""Transformations: neighbourhoods of few parameters, such as an angle or a quality of compression.

A `Transformation` says which parameters are possible and what they do to an input. With them a worst case can be found
almost to the optimum, since there are a few numbers to search over instead of all pixels.

The identity (the parameters that leave an input as it is) is the centre of the region where the ranges contain it; else
the centre is the point of the ranges that is nearest to it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from standfast.errors import UnknownNameError, check, is_number
from standfast.neighbourhoods.base import Bounds, Distribution, Neighbourhood, Region, check_inputs, neighbourhoods
from standfast.records import set_fields
from standfast.tensors import Streams, send

#: from the smallest to the largest value of a parameter; a single number stands for a range around the identity
Range = float | tuple[float, float]


class Limits(NamedTuple):
    """The parameters of P inputs: which ones leave the input as it is, the smallest and the largest; `(P, D)` each."""

    identity: Tensor
    lower: Tensor
    upper: Tensor


@dataclass(frozen=True)
class Transformation(Neighbourhood):
    """The base of every transformation: a frozen dataclass whose fields are ranges of its parameters.

    A class has `limit_parameters`, `transform` and `describe`. One that moves positions is a `Warp` and also has
    `align_maps`; one with rules that parameters may break (`restricted`) also has `admit`.

    Args:
        distribution: of the parameters: `"uniform"` on their ranges, or `"truncated_normal"` around the identity (or
            the end of the range that is nearest to it), with a quarter of the range as scale.
    """

    #: whether gradients flow from the parameters to the perturbed input
    differentiable: ClassVar[bool] = True
    #: whether there are rules that some parameters within the ranges break
    restricted: ClassVar[bool] = False
    #: names of the first parameters, with units in brackets, for people; further parameters (of noise) have no names
    parameters: ClassVar[tuple[str, ...]]

    _: KW_ONLY
    distribution: Distribution = "uniform"

    def __post_init__(self) -> None:
        known = ("uniform", "truncated_normal")
        if self.distribution not in known:
            raise UnknownNameError("distribution", self.distribution, known)

    def count_parameters(self, shape: Sequence[int]) -> int:
        """D, the number of parameters of an input of this shape."""
        return len(self.parameters)

    def name_parameters(self, shape: Sequence[int]) -> dict[int, str]:
        """The names, by column, of the parameters that people read, for an input of this shape."""
        return dict(enumerate(self.parameters))

    def read_parameters(self, points: Tensor, shape: Sequence[int]) -> dict[str, Tensor]:
        """The parameters that have names, `(P,)` each; of points `(P, D)` for inputs of this shape."""
        named: dict[str, Tensor] = {}
        for column, name in self.name_parameters(shape).items():
            number = sum(known.partition(" #")[0] == name for known in named)
            named[f"{name} #{number + 1}" if number else name] = points[:, column]
        return named

    def scale_parameters(self, limits: Limits, shape: Sequence[int]) -> Tensor:
        """The scale of the normal distribution of each parameter, `(P, D)`; infinite for a uniform distribution.

        Parameters without names are always uniform: they are ranks in a distribution of their own, as that of noise.
        """
        scales = torch.full_like(limits.lower, torch.inf)
        if self.distribution == "truncated_normal":
            named = list(self.name_parameters(shape))
            scales[:, named] = ((limits.upper - limits.lower) / 4).clamp(min=1e-12)[:, named]
        return scales

    @abstractmethod
    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Limits:
        """The limits of the parameters for `inputs` `(P, *input_shape)`.

        Raises:
            ArgumentError: the transformation does not fit inputs of this shape.
        """

    @abstractmethod
    def transform(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """The inputs `(M, *input_shape)`, perturbed by `parameters` `(M, D)`.

        Values outside the bounds are clipped later. A row must not depend on the other rows.
        """

    def settle(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """The parameters `(M, D)` as they took effect on the inputs: after steps, and after rules moved them back."""
        return parameters

    @property
    def aligns(self) -> bool:
        """Whether it moves positions, and maps are moved back before they are compared."""
        return False

    def align_maps(self, maps: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Maps `(M, *input_shape)` of perturbed inputs, moved back to the positions of the clean inputs.

        Returns:
            The maps, and which of their positions both inputs see, bool `(M, 1, *positions)`. Differentiable by both
            arguments.
        """
        return maps, _see_everything(maps)

    def admit(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Whether `parameters` `(M, D)` keep the rules for `inputs` `(M, *input_shape)`, bool `(M,)`.

        `transform` has to keep the rules for all parameters, for example by moving back to the clean input; those that
        are not admitted are never drawn.
        """
        return torch.ones(len(parameters), dtype=torch.bool, device=parameters.device)

    def around(self, inputs: Tensor, bounds: Bounds | None = None) -> TransformedRegion:
        """The region around each of `inputs` `(P, ...)`; its points are parameters `(P, n, D)`."""
        inputs, bounds = check_inputs(inputs, bounds)
        limits = self.limit_parameters(inputs, bounds)
        scales = self.scale_parameters(limits, inputs.shape[1:])
        sigma = None if bool(torch.isinf(scales).all()) else scales
        centre = torch.minimum(torch.maximum(limits.identity, limits.lower), limits.upper)
        return TransformedRegion(
            centre, limits.lower, limits.upper, sigma, inputs=inputs, bounds=bounds, transformation=self
        )


@dataclass(frozen=True)
class Warp(Transformation):
    """The base of transformations that move positions, such as a rotation.

    The map of a moved input is right if it moved with the input. So maps are moved back before they are compared, and
    compared on the part that both inputs see.

    Args:
        align: whether maps are moved back; with False they are compared as they are.
    """

    _: KW_ONLY
    align: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check(isinstance(self.align, bool), "align", "True or False", repr(self.align))

    @property
    def aligns(self) -> bool:
        """Whether maps are moved back."""
        return self.align

    @abstractmethod
    def align_maps(self, maps: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Maps `(M, *input_shape)` of perturbed inputs, moved back to the positions of the clean inputs.

        Returns:
            The maps, and which of their positions both inputs see, bool `(M, 1, *positions)`. The maps are
            differentiable by both arguments.
        """


@dataclass(frozen=True)
class TransformedRegion(Region):
    """The parameters of a transformation of P inputs. `inputs` are the clean ones, `(P, *input_shape)`."""

    _: KW_ONLY
    inputs: Tensor
    bounds: tuple[Tensor, Tensor]
    transformation: Transformation

    @property
    def input_shape(self) -> torch.Size:
        """Shape of one input."""
        return self.inputs.shape[1:]

    @property
    def differentiable(self) -> bool:
        """Whether gradients flow through `perturb`."""
        return self.transformation.differentiable

    @property
    def aligns(self) -> bool:
        """Whether maps are moved back before they are compared."""
        return self.transformation.aligns

    @property
    def is_plain(self) -> bool:
        """Whether all parameters within the ranges are admitted."""
        return not self.transformation.restricted

    _rejection: ClassVar[tuple[str, str]] = (
        "that keep the rules",
        "with narrower ranges more points keep them",
    )

    def streams(self, seed: int) -> Streams:
        """A random stream for each of the P inputs, determined by its values and `seed`."""
        return Streams.for_rows(self.inputs, seed)

    def select(self, rows: Sequence[int] | Tensor) -> TransformedRegion:
        """The region of some of the P inputs."""
        index = send(rows, self.centre.device, torch.int64)
        chosen = super().select(rows)
        assert isinstance(chosen, TransformedRegion)
        return replace(chosen, inputs=self.inputs[index])

    def perturb(self, points: Tensor, problem: Tensor) -> Tensor:
        """The perturbed inputs `(M, *input_shape)` of parameters `(M, D)`; `problem` `(M,)` numbers their inputs."""
        changed = self.transformation.transform(self.inputs[problem], points, self.bounds)
        return torch.minimum(torch.maximum(changed, self.bounds[0]), self.bounds[1])

    def settle(self, points: Tensor, problem: Tensor) -> Tensor:
        """The parameters `(M, D)` as they took effect."""
        return self.transformation.settle(self.inputs[problem], points, self.bounds)

    def align_maps(self, maps: Tensor, points: Tensor, problem: Tensor) -> tuple[Tensor, Tensor]:
        """Maps `(M, *input_shape)` of perturbed inputs, moved back, and which of their positions both inputs see."""
        return self.transformation.align_maps(maps, points)

    def _from_uniform(self, u: Tensor) -> Tensor:
        if self.sigma is None:
            return super()._from_uniform(u)
        uniform = torch.isinf(self.sigma)
        normal = Region._from_uniform(replace(self, sigma=self.sigma.masked_fill(uniform, 1.0)), u)
        return torch.where(uniform[:, None], replace(self, sigma=None)._from_uniform(u), normal)

    def to_gaussian(self, x: Tensor) -> Tensor:
        """Standard normal numbers whose image is `x` `(P, n, D)`; values at an end of a range come close to it."""
        if self.sigma is None:
            return super().to_gaussian(x)
        uniform = torch.isinf(self.sigma)
        normal = Region.to_gaussian(replace(self, sigma=self.sigma.masked_fill(uniform, 1.0)), x)
        return torch.where(uniform[:, None], replace(self, sigma=None).to_gaussian(x), normal)

    def log_weight(self, x: Tensor) -> Tensor | None:
        """0 for parameters `(P, n, D)` that keep the rules, minus infinity for others, `(P, n)`; None without rules."""
        if self.is_plain:
            return None
        admitted = self._admit(x)
        return torch.zeros(admitted.shape, dtype=x.dtype, device=x.device).masked_fill(~admitted, -torch.inf)

    def contains(self, x: Tensor, slack: float = 1e-5) -> Tensor:
        """Whether each of the parameters `(P, n, D)` is possible; bool `(P, n)`."""
        inside = super().contains(x, slack)
        return inside if self.is_plain else inside & self._admit(x)

    def _admit(self, x: Tensor) -> Tensor:
        inputs = self.inputs.repeat_interleave(x.shape[1], dim=0)
        return self.transformation.admit(inputs, x.flatten(0, 1), self.bounds).reshape(x.shape[:2])


@neighbourhoods.register("compose")
@dataclass(frozen=True)
class Compose(Transformation):
    """Several transformations, one after the other, each with its own parameters.

    Parameters have the distributions of their parts, unless the composition's own is `"truncated_normal"`.

    Args:
        parts: transformations, in the order in which they are applied. One with rules must be the only part, since
            the others would break them; a `TableChanges` can have all changes of a row.

    Raises:
        ArgumentError: no part, one that is no transformation, one with rules beside others, or a part that cannot have
            the composition's distribution.
    """

    parts: tuple[Transformation, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = isinstance(self.parts, list | tuple) and len(self.parts) > 0
        fits = fits and all(isinstance(part, Transformation) for part in self.parts)
        check(fits, "parts", "a list of transformations, at least one", repr(self.parts))
        set_fields(self, parts=tuple(self.parts))
        alone = len(self.parts) == 1 or not self.restricted
        words = "no part with rules or a prior from data beside others, which would break them"
        check(alone, "parts", words, self.describe() if not alone else None)
        if self.distribution != "uniform":
            for part in self.parts:
                replace(part, distribution=self.distribution)  # says what does not fit, such as categories

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        """Whether all parts are."""
        return all(part.differentiable for part in self.parts)

    @property
    def aligns(self) -> bool:
        """Whether a part does."""
        return any(part.aligns for part in self.parts)

    @property
    def restricted(self) -> bool:  # type: ignore[override]
        """Whether a part has rules."""
        return any(part.restricted for part in self.parts)

    def describe(self) -> str:
        """The parts, in their order."""
        return ", then ".join(part.describe() for part in self.parts)

    def count_parameters(self, shape: Sequence[int]) -> int:
        """Those of all parts."""
        return sum(part.count_parameters(shape) for part in self.parts)

    def name_parameters(self, shape: Sequence[int]) -> dict[int, str]:
        """Those of all parts."""
        names: dict[int, str] = {}
        first = 0
        for part in self.parts:
            names |= {first + column: name for column, name in part.name_parameters(shape).items()}
            first += part.count_parameters(shape)
        return names

    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Limits:
        """Those of all parts, side by side."""
        limits = [part.limit_parameters(inputs, bounds) for part in self.parts]
        return Limits(*(torch.cat(columns, dim=1) for columns in zip(*limits, strict=True)))

    def scale_parameters(self, limits: Limits, shape: Sequence[int]) -> Tensor:
        """Those of all parts, side by side, unless the composition has a distribution of its own."""
        if self.distribution != "uniform":
            return super().scale_parameters(limits, shape)
        own = zip(*(self._split(shape, rows) for rows in limits), strict=True)
        scales = [part.scale_parameters(Limits(*rows), shape) for part, rows in zip(self.parts, own, strict=True)]
        return torch.cat(scales, dim=1)

    def transform(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """All parts in turn; what one returns is clipped to the bounds before the next one gets it."""
        for part, own in zip(self.parts, self._split(inputs.shape[1:], parameters), strict=True):
            inputs = part.transform(inputs, own, bounds).clamp(*bounds)
        return inputs

    def settle(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Those of all parts, each for the input that the parts before it made."""
        settled = []
        for part, own in zip(self.parts, self._split(inputs.shape[1:], parameters), strict=True):
            settled.append(part.settle(inputs, own, bounds))
            inputs = part.transform(inputs, own, bounds).clamp(*bounds)
        return torch.cat(settled, 1)

    def align_maps(self, maps: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Back through the parts that align maps, the last one first."""
        seen = _see_everything(maps)
        own = self._split(maps.shape[1:], parameters)
        for part, values in reversed(list(zip(self.parts, own, strict=True))):
            if part.aligns:
                maps, visible = part.align_maps(maps, values)
                # what was not seen further on moves back, too
                moved, _ = part.align_maps(seen.to(maps.dtype), values)
                seen = visible & (moved > 0.999)
        return maps, seen

    def admit(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Whether the parameters keep the rules; a part that has any is the only one."""
        admitted = [
            part.admit(inputs, own, bounds)
            for part, own in zip(self.parts, self._split(inputs.shape[1:], parameters), strict=True)
        ]
        return torch.stack(admitted).all(0)

    def measure_plausibility(self, inputs: Tensor, perturbed: Tensor) -> Tensor | None:
        """The smallest of the parts' figures, of the whole change; None if no part has one."""
        figures = [part.measure_plausibility(inputs, perturbed) for part in self.parts]
        known = [figure for figure in figures if figure is not None]
        return torch.stack(known).amin(0) if known else None

    def name_swaps(self, inputs: Tensor, perturbed: Tensor) -> list[str] | None:
        """Those of the first part that swaps words, whose tokens the others have, too."""
        named = (part.name_swaps(inputs, perturbed) for part in self.parts)
        return next((each for each in named if each is not None), None)

    def _split(self, shape: Sequence[int], parameters: Tensor) -> list[Tensor]:
        return list(torch.split(parameters, [part.count_parameters(shape) for part in self.parts], dim=1))


def _see_everything(maps: Tensor) -> Tensor:
    """That all positions of `maps` `(M, C, *positions)` are seen, `(M, 1, *positions)`."""
    return torch.ones_like(maps[:, :1], dtype=torch.bool)


def read_range(
    value: object,
    option: str,
    identity: float = 0.0,
    least: float = -math.inf,
    most: float = math.inf,
    single: Literal["around", "up", "down"] = "around",
) -> tuple[float, float]:
    """A range from an option: two numbers in order, or one number r.

    One number stands for `identity - r` to `identity + r`; if `single` is "up", for `least` to r; if "down", for r to
    `most`.

    Raises:
        ArgumentError: something else, or numbers outside `least` to `most`.

    >>> read_range(10, "degrees"), read_range((30, 90), "quality", least=1, most=100)
    ((-10.0, 10.0), (30.0, 90.0))
    """

    around = f"{identity:g} - r to {identity:g} + r" if identity else "-r to r"
    stands_for = {"around": around, "up": f"{least:g} to r", "down": f"r to {most:g}"}[single]
    expected = f"a number of at least 0, r for {stands_for}, or the smallest and the largest value"
    if math.isfinite(least) or math.isfinite(most):
        expected += f", from {least:g} to {most:g}"
    if is_number(value):
        ends = {"around": (identity - value, identity + value), "up": (least, value), "down": (value, most)}
        low, high = ends[single]
    else:
        pair = isinstance(value, list | tuple) and len(value) == 2 and all(map(is_number, value))
        check(pair, option, expected, repr(value))
        assert isinstance(value, list | tuple)
        low, high = value
    check(least <= low <= high <= most and math.isfinite(high - low), option, expected, repr(value))
    return float(low), float(high)


def spread_limits(inputs: Tensor, identity: Sequence[float], *ranges: tuple[float, float]) -> Limits:
    """The same limits for each of `inputs` `(P, ...)`: a value of the identity and a range for each parameter."""
    rows = send([identity, *zip(*ranges, strict=True)], inputs.device, inputs.dtype)
    own, lower, upper = (row.expand(len(inputs), -1) for row in rows)
    return Limits(own, lower, upper)
