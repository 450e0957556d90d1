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
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check, is_number
from standfast.neighbourhoods.base import (
    Bounds,
    Distribution,
    Neighbourhood,
    Region,
    check_inputs,
    neighbourhoods,
)
from standfast.neighbourhoods.choices import Choices
from standfast.records import set_fields
from standfast.tensors import Streams, send

#: from the smallest to the largest value of a parameter; a single number stands for a range around the identity
Range = float | tuple[float, float]


class Parameter(NamedTuple):
    """What an option declares that is the range of one parameter, or of several with the same range.

    Attributes:
        names: of the parameters, for people, with the unit in brackets; `{option}` stands for another option's value.
        identity: the value that leaves an input as it is.
        low: the smallest possible value.
        high: the largest possible value.
    """

    names: tuple[str, ...]
    identity: float = 0.0
    low: float = -math.inf
    high: float = math.inf

    def read(self, value: object, option: str) -> tuple[float, float]:
        """A range from the option's value: two numbers in order, or one number r.

        One number stands for `low` to r where the identity is `low`, for r to `high` where it is `high`, and else for
        `identity - r` to `identity + r`.

        Raises:
            ArgumentError: something else, or numbers outside `low` to `high`.

        >>> Parameter(("angle [degrees]",)).read(10, "degrees")
        (-10.0, 10.0)
        >>> Parameter(("quality",), identity=100, low=1, high=100).read(30, "quality")
        (30.0, 100.0)
        """
        if self.identity == self.low:
            reach = f"{self.low:g} to r"
        elif self.identity == self.high:
            reach = f"r to {self.high:g}"
        elif self.identity:
            reach = f"{self.identity:g} - r to {self.identity:g} + r"
        else:
            reach = "-r to r"
        expected = f"a number of at least 0, r for {reach}, or the smallest and the largest value"
        if math.isfinite(self.low) or math.isfinite(self.high):
            expected += f", from {self.low:g} to {self.high:g}"
        if is_number(value):
            least, most = self._span(value)
        else:
            is_pair = isinstance(value, list | tuple) and len(value) == 2
            check(is_pair, option, expected, repr(value))
            assert isinstance(value, list | tuple)
            check(all(map(is_number, value)), option, expected, repr(value))
            least, most = value
        fits = self.low <= least <= most <= self.high and math.isfinite(most - least)
        check(fits, option, expected, repr(value))
        return float(least), float(most)

    def _span(self, number: float) -> tuple[float, float]:
        """The range that one number stands for."""
        if self.identity == self.low:
            return self.low, number
        if self.identity == self.high:
            return number, self.high
        return self.identity - number, self.identity + number


def parameter(
    *names: str,
    default: Range,
    identity: float = 0.0,
    low: float = -math.inf,
    high: float = math.inf,
) -> Any:
    """An option of a transformation that declares a `Parameter`: a field of a dataclass.

    >>> degrees: Range = parameter("angle [degrees]", default=10.0, low=-360, high=360)
    """
    return field(default=default, metadata={"parameter": Parameter(names, identity, low, high)})


class ParameterAxis(NamedTuple):
    """One parameter that people read: its name, the value that changes nothing, and its range."""

    name: str
    identity: float
    low: float
    high: float


class ParameterLimits(NamedTuple):
    """The parameters of P inputs, `(P, D)` each: which ones leave the input as it is, the smallest and the largest.

    `scale` is that of the normal distribution of each parameter, infinite for a uniform one.
    """

    identity: Tensor
    lower: Tensor
    upper: Tensor
    scale: Tensor


@dataclass(frozen=True)
class Transformation(Neighbourhood):
    """The base of every transformation: a frozen dataclass whose options declare its parameters (`parameter`).

    Names, ranges, checks, labels and words follow from what a class declares; `transform` says what the parameters do.
    One that moves positions is a `Warp` and also has `align_maps`; one with rules that parameters may break
    (`restricted`) also has `satisfies_rules`. One with random numbers has ranks after its named parameters
    (`count_ranks`): numbers in [0, 1], which a quantile function maps to what would be drawn. So a perturbed input is a
    function of its parameters.

    Args:
        distribution: of the parameters: `"uniform"` on their ranges, or `"truncated_normal"` around the identity (or
            the end of the range that is nearest to it), with a quarter of the range as scale.
    """

    #: what happens to an input, with options in braces: "rotated by {degrees} degrees"
    phrase: ClassVar[str]
    #: which inputs it takes: images `(N, C, H, W)`, series `(N, C, T)`, or any
    takes: ClassVar[Literal["images", "series", "any"]] = "images"
    #: how many channels an input may have; any number if empty
    channels: ClassVar[tuple[int, ...]] = ()
    #: whether it needs to know the smallest and the largest possible value
    needs_range: ClassVar[bool] = False
    #: whether gradients flow from the parameters to the perturbed input
    differentiable: ClassVar[bool] = True
    #: whether there are rules that some parameters within the ranges break
    restricted: ClassVar[bool] = False

    _: KW_ONLY
    distribution: Distribution = "uniform"

    def __post_init__(self) -> None:
        for option, declared in list_declared(type(self)).items():
            limits = declared.read(getattr(self, option), option)
            set_fields(self, **{option: limits})

    def describe(self) -> str:
        """The phrase, with the values of the options."""
        words = dict(vars(self))
        for option in list_declared(type(self)):
            words[option] = write_range(getattr(self, option))
        return self.phrase.format(**words)

    def list_axes(self, shape: Sequence[int]) -> list[ParameterAxis]:
        """The parameters that people read, for an input of this shape; by default those that the options declare."""
        axes = []
        for option, declared in list_declared(type(self)).items():
            limits = getattr(self, option)
            for name in declared.names:
                axes.append(ParameterAxis(name.format(**vars(self)), declared.identity, *limits))
        return axes

    def count_ranks(self, shape: Sequence[int]) -> int:
        """How many ranks an input of this shape has, after its named parameters."""
        return 0

    def count_parameters(self, shape: Sequence[int]) -> int:
        """D, the number of parameters of an input of this shape."""
        return len(self.list_axes(shape)) + self.count_ranks(shape)

    def name_parameters(self, shape: Sequence[int]) -> dict[int, str]:
        """The names, by column, of the parameters that people read, for an input of this shape."""
        names = {}
        for column, axis in enumerate(self.list_axes(shape)):
            names[column] = axis.name
        return names

    def read_parameters(self, points: Tensor, shape: Sequence[int]) -> dict[str, Tensor]:
        """The parameters that have names, `(P,)` each; of points `(P, D)` for inputs of this shape."""
        named: dict[str, Tensor] = {}
        count_of_name: dict[str, int] = {}
        for column, name in self.name_parameters(shape).items():
            count = count_of_name.get(name, 0) + 1
            count_of_name[name] = count
            # two parts may have a parameter of one name
            unique_name = f"{name} #{count}" if count > 1 else name
            named[unique_name] = points[:, column]
        return named

    def check_fit(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
        """Raise `ArgumentError` unless the transformation fits `inputs` `(P, *input_shape)` and their bounds."""
        name = type(self).__name__
        got = f"shape {tuple(inputs.shape)}"
        if self.takes == "images":
            check(
                inputs.ndim == 4,
                "inputs",
                f"images of shape (N, channels, height, width) for {name}",
                got,
            )
        if self.takes == "series":
            fits = inputs.ndim == 3 and inputs.shape[2] >= 2
            check(
                fits,
                "inputs",
                f"series of shape (N, channels, time), of at least 2 samples, for {name}",
                got,
            )
        if self.channels:
            allowed = " or ".join(map(str, self.channels))
            check(
                inputs.shape[1] in self.channels,
                "inputs",
                f"inputs of {allowed} channels for {name}",
                got,
            )
        if self.needs_range:
            check_range(bounds, name)

    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> ParameterLimits:
        """The limits of the parameters for `inputs` `(P, *input_shape)`.

        Ranks go from 0 to 1, and those of the clean input are medians. They are always uniform, since they are ranks in
        a distribution of their own, as that of noise.

        Raises:
            ArgumentError: the transformation does not fit the inputs or their bounds (`check_fit`).
        """
        self.check_fit(inputs, bounds)
        axes = self.list_axes(inputs.shape[1:])
        count = self.count_ranks(inputs.shape[1:])
        columns = [
            [axis.identity for axis in axes],
            [axis.low for axis in axes],
            [axis.high for axis in axes],
        ]
        limits = send(columns, inputs.device, inputs.dtype)
        identity, lower, upper = (row.expand(len(inputs), -1) for row in limits)
        scale = find_scale(lower, upper, self.distribution)
        ranks = inputs.new_zeros(len(inputs), count)
        return ParameterLimits(
            torch.cat([identity, ranks + 0.5], 1),
            torch.cat([lower, ranks], 1),
            torch.cat([upper, ranks + 1], 1),
            # an infinite scale: ranks are uniform
            torch.cat([scale, ranks + torch.inf], 1),
        )

    def find_choices(
        self, inputs: Tensor, bounds: tuple[Tensor, Tensor], before: Sequence[Transformation] = ()
    ) -> Choices:
        """Which parameters choose among candidates, for `inputs` `(P, *input_shape)`; by default none does.

        Args:
            inputs: the clean ones.
            bounds: of the inputs.
            before: transformations that come before this one, so that it meets what they make of the inputs.
        """
        count = self.count_parameters(inputs.shape[1:])
        return Choices.none(len(inputs), count, inputs.device)

    def acts_on_slices(self, inputs: Tensor) -> bool:
        """Whether it takes images, and inputs are volumes `(P, C, D, H, W)`: then all slices change alike."""
        return self.takes == "images" and inputs.ndim == 5

    @abstractmethod
    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The inputs `(M, *input_shape)`, perturbed by `parameters` `(M, D)`.

        Values outside the bounds are clipped later. A row must not depend on the other rows.
        """

    def effective_points(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
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

    def find_compared(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor | None:
        """Where maps of inputs `(M, ...)` and of their perturbed copies can be compared, bool; None for everywhere.

        For one that `aligns` and may take features away, as words of a text.
        """
        return None

    def satisfies_rules(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Whether `parameters` `(M, D)` keep the rules for `inputs` `(M, *input_shape)`, bool `(M,)`.

        `transform` has to keep the rules for all parameters, for example by moving back to the clean input; those that
        are not admitted are never drawn.
        """
        return torch.ones(len(parameters), dtype=torch.bool, device=parameters.device)

    def around(self, inputs: Tensor, bounds: Bounds | None = None) -> TransformedRegion:
        """The region around each of `inputs` `(P, ...)`; its points are parameters `(P, n, D)`."""
        inputs, bounds = check_inputs(inputs, bounds)
        shape = inputs.shape[1:]
        # slices that change alike are channels of one image
        if self.acts_on_slices(inputs):
            inputs, (low, high) = (
                inputs.flatten(1, 2),
                (bound.expand(shape).flatten(0, 1) for bound in bounds),
            )
            bounds = low, high
        identity, lower, upper, scale = self.limit_parameters(inputs, bounds)
        return TransformedRegion(
            # where the ranges do not contain the identity, their nearest point is the centre
            torch.minimum(torch.maximum(identity, lower), upper),
            lower,
            upper,
            # uniform parameters need no scale, and are sampled without one
            None if bool(torch.isinf(scale).all()) else scale,
            differentiable=self.differentiable,
            aligns=self.aligns,
            inputs=inputs,
            bounds=bounds,
            transformation=self,
            sample_shape=shape,
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

    @property
    def aligns(self) -> bool:
        """Whether maps are moved back."""
        return self.align

    @abstractmethod
    def align_maps(self, maps: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class TransformedRegion(Region):
    """The parameters of a transformation of P inputs, which have the shape `input_shape`.

    `inputs` are the clean ones, `(P, *input_shape)`; of volumes whose slices change alike, these are the channels of
    images `(P, C * D, H, W)`.
    """

    _: KW_ONLY
    inputs: Tensor
    bounds: tuple[Tensor, Tensor]
    transformation: Transformation
    sample_shape: torch.Size

    @property
    def input_shape(self) -> torch.Size:
        """Shape of one input."""
        return self.sample_shape

    @property
    def is_plain(self) -> bool:
        """Whether all parameters within the ranges are admitted."""
        return not self.transformation.restricted

    _rejection = (
        "that keep the rules",
        "with narrower ranges more points keep them",
    )

    def streams(self, seed: int) -> Streams:
        """A random stream for each of the P inputs, determined by its values and `seed`."""
        # streams by the inputs, since the parameters at the centre are the same for all inputs
        return Streams.for_rows(self.inputs, seed)

    def select(self, rows: Sequence[int] | Tensor) -> TransformedRegion:
        """The region of some of the P inputs."""
        index = send(rows, self.centre.device, torch.int64)
        chosen = super().select(rows)
        assert isinstance(chosen, TransformedRegion)
        return replace(chosen, inputs=self.inputs[index])

    def perturb(self, points: Tensor, problem: Tensor) -> Tensor:
        """The perturbed inputs `(M, *input_shape)` of parameters `(M, D)`; `problem` `(M,)` numbers their inputs."""
        lower, upper = self.bounds
        changed = self.transformation.transform(self.inputs[problem], points, self.bounds)
        clipped = torch.minimum(torch.maximum(changed, lower), upper)
        return clipped.reshape(-1, *self.input_shape)

    def find_movable(self) -> Tensor:
        """Which of the inputs the transformation can change at all, bool `(P,)`."""
        return self.transformation.find_movable(self.inputs, self.bounds)

    @property
    def choices(self) -> Choices | None:
        """Which parameters choose among candidates; None where the transformation has none."""
        if not self.transformation.chooses:
            return None
        return self.transformation.find_choices(self.inputs, self.bounds)

    def effective_points(self, points: Tensor, problem: Tensor) -> Tensor:
        """The parameters `(M, D)` as they took effect."""
        inputs = self.inputs[problem]
        return self.transformation.effective_points(inputs, points, self.bounds)

    def align_maps(self, maps: Tensor, points: Tensor, problem: Tensor) -> tuple[Tensor, Tensor]:
        """Maps `(M, *input_shape)` of perturbed inputs, moved back, and which of their positions both inputs see."""
        maps_of_inputs = maps.reshape(-1, *self.inputs.shape[1:])
        aligned, is_seen = self.transformation.align_maps(maps_of_inputs, points)
        compared = self.transformation.find_compared(self.inputs[problem], points, self.bounds)
        if compared is not None:
            is_seen = is_seen & compared
        # of a volume all slices are seen alike
        if len(self.input_shape) > self.inputs.ndim - 1:
            slices = self.input_shape[1]
            is_seen = is_seen[:, :, None].expand(-1, -1, slices, -1, -1)
        return aligned.reshape(maps.shape), is_seen

    def log_weight(self, x: Tensor) -> Tensor | None:
        """0 for parameters `(P, n, D)` that keep the rules, minus infinity for others, `(P, n)`; None without rules."""
        if self.is_plain:
            return None
        admitted = self._satisfy_rules(x)
        return torch.zeros(admitted.shape, dtype=x.dtype, device=x.device).masked_fill(
            ~admitted, -torch.inf
        )

    def contains(self, x: Tensor, slack: float = 1e-5) -> Tensor:
        """Whether each of the parameters `(P, n, D)` is possible; bool `(P, n)`."""
        inside = super().contains(x, slack)
        if self.is_plain:
            return inside
        return inside & self._satisfy_rules(x)

    def _satisfy_rules(self, x: Tensor) -> Tensor:
        problems, count = x.shape[:2]
        inputs = self.inputs.repeat_interleave(count, dim=0)
        keeps_rules = self.transformation.satisfies_rules(inputs, x.flatten(0, 1), self.bounds)
        return keeps_rules.reshape(problems, count)


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

    takes = "any"

    parts: tuple[Transformation, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = isinstance(self.parts, list | tuple) and len(self.parts) > 0
        fits = fits and all(isinstance(part, Transformation) for part in self.parts)
        check(fits, "parts", "a list of transformations, at least one", repr(self.parts))
        set_fields(self, parts=tuple(self.parts))
        alone = len(self.parts) == 1 or not self.restricted
        if not alone:
            expected = (
                "no part with rules or a prior from data beside others, which would break them"
            )
            raise ArgumentError("parts", expected, self.describe())
        if self.distribution != "uniform":
            for part in self.parts:
                # says what does not fit, such as categories
                replace(part, distribution=self.distribution)

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        return all(part.differentiable for part in self.parts)

    @property
    def aligns(self) -> bool:
        return any(part.aligns for part in self.parts)

    @property
    def restricted(self) -> bool:  # type: ignore[override]
        return any(part.restricted for part in self.parts)

    @property
    def chooses(self) -> bool:
        return any(part.chooses for part in self.parts)

    def describe(self) -> str:
        return ", then ".join(part.describe() for part in self.parts)

    def acts_on_slices(self, inputs: Tensor) -> bool:
        return any(part.acts_on_slices(inputs) for part in self.parts)

    def find_movable(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Those that any part can change."""
        movable = [part.find_movable(inputs, bounds) for part in self.parts]
        return torch.stack(movable).any(0)

    def count_parameters(self, shape: Sequence[int]) -> int:
        return sum(part.count_parameters(shape) for part in self.parts)

    def name_parameters(self, shape: Sequence[int]) -> dict[int, str]:
        """The names of all parts, one part after the other."""
        names: dict[int, str] = {}
        first = 0
        for part in self.parts:
            for column, name in part.name_parameters(shape).items():
                names[first + column] = name
            first += part.count_parameters(shape)
        return names

    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> ParameterLimits:
        parts: Sequence[Transformation] = self.parts
        if self.distribution != "uniform":
            parts = [replace(part, distribution=self.distribution) for part in parts]
        limits = [part.limit_parameters(inputs, bounds) for part in parts]
        columns = [torch.cat(of_parts, dim=1) for of_parts in zip(*limits, strict=True)]
        return ParameterLimits(*columns)

    def find_choices(
        self, inputs: Tensor, bounds: tuple[Tensor, Tensor], before: Sequence[Transformation] = ()
    ) -> Choices:
        """The candidates of all parts, each for what those before it may make of the inputs."""
        earlier = list(before)
        choices = []
        for part in self.parts:
            choices.append(part.find_choices(inputs, bounds, earlier))
            earlier.append(part)
        return Choices.join(choices)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """All parts in turn; what one returns is clipped to the bounds before the next one gets it."""
        for part, part_parameters in zip(
            self.parts, self._split(inputs.shape[1:], parameters), strict=True
        ):
            inputs = part.transform(inputs, part_parameters, bounds).clamp(*bounds)
        return inputs

    def effective_points(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The points of all parts, each for the input that the parts before it made."""
        settled = []
        for part, part_parameters in zip(
            self.parts, self._split(inputs.shape[1:], parameters), strict=True
        ):
            settled.append(part.effective_points(inputs, part_parameters, bounds))
            inputs = part.transform(inputs, part_parameters, bounds).clamp(*bounds)
        return torch.cat(settled, 1)

    def align_maps(self, maps: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Back through the parts that align maps, the last one first."""
        is_seen = _see_everything(maps)
        by_part = self._split(maps.shape[1:], parameters)
        for part, values in reversed(list(zip(self.parts, by_part, strict=True))):
            if part.aligns:
                maps, visible = part.align_maps(maps, values)
                # what was not seen further on moves back, too
                moved, _ = part.align_maps(is_seen.to(maps.dtype), values)
                is_seen = visible & (moved > 0.999)
        return maps, is_seen

    def find_compared(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor | None:
        """Where all parts that may take features away compare maps."""
        compared = None
        for part, part_parameters in zip(
            self.parts, self._split(inputs.shape[1:], parameters), strict=True
        ):
            compared_here = part.find_compared(inputs, part_parameters, bounds)
            if compared_here is not None:
                compared = compared_here if compared is None else compared & compared_here
                inputs = part.transform(inputs, part_parameters, bounds)
        return compared

    def satisfies_rules(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Whether the parameters keep the rules; a part that has any is the only one."""
        admitted = [
            part.satisfies_rules(inputs, part_parameters, bounds)
            for part, part_parameters in zip(
                self.parts, self._split(inputs.shape[1:], parameters), strict=True
            )
        ]
        return torch.stack(admitted).all(0)

    def measure_plausibility(self, inputs: Tensor, perturbed: Tensor) -> Tensor | None:
        """The smallest of the parts' figures, of the whole change; None if no part has one."""
        figures = []
        for part in self.parts:
            figure = part.measure_plausibility(inputs, perturbed)
            if figure is not None:
                figures.append(figure)
        if not figures:
            return None
        return torch.stack(figures).amin(0)

    def name_swaps(self, inputs: Tensor, perturbed: Tensor) -> list[str] | None:
        """The swaps of the first part that swaps words."""
        for part in self.parts:
            names = part.name_swaps(inputs, perturbed)
            if names is not None:
                return names
        return None

    def _split(self, shape: Sequence[int], parameters: Tensor) -> list[Tensor]:
        return list(
            torch.split(parameters, [part.count_parameters(shape) for part in self.parts], dim=1)
        )


def _see_everything(maps: Tensor) -> Tensor:
    """That all positions of `maps` `(M, C, *positions)` are seen, `(M, 1, *positions)`."""
    return torch.ones_like(maps[:, :1], dtype=torch.bool)


def list_declared(kind: type[Transformation]) -> dict[str, Parameter]:
    """The parameters that the options of a class declare, by option."""
    return {
        option.name: option.metadata["parameter"]
        for option in fields(kind)
        if "parameter" in option.metadata
    }


def as_range(value: Range) -> tuple[float, float]:
    """The smallest and the largest value of an option that declares parameters, as the class has read it."""
    assert isinstance(value, tuple)
    return value


def find_scale(lower: Tensor, upper: Tensor, distribution: Distribution) -> Tensor:
    """The scale of the distribution of parameters between these limits; infinite if it is uniform."""
    if distribution == "uniform":
        return torch.full_like(lower, torch.inf)
    # a range of one number has no width, and a scale of 0 would divide by 0
    return ((upper - lower) / 4).clamp(min=1e-12)


def write_range(limits: tuple[float, float]) -> str:
    """A range in words.

    >>> write_range((-3.0, 3.0)), write_range((5.0, 5.0))
    ('-3 to 3', '5')
    """
    low, high = limits
    if low == high:
        return f"{low:g}"
    return f"{low:g} to {high:g}"


def check_range(bounds: tuple[Tensor, Tensor], name: str) -> None:
    """Raise `ArgumentError` unless the bounds are finite and the upper one is larger."""
    lower, upper = bounds
    are_finite = bool(torch.isfinite(lower).all() and torch.isfinite(upper).all())
    fits = are_finite and bool((upper > lower).all())
    expected = f"finite bounds of the model's inputs for {name}, such as (0, 1)"
    least = float(lower.min())
    most = float(upper.max())
    got = f"from {least:g} to {most:g}"
    check(fits, "bounds", expected, got)


def to_shares(inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
    """Values as shares of their range: 0 at the lower bound and 1 at the upper one."""
    lower, upper = bounds
    return (inputs - lower) / (upper - lower)


def from_shares(shares: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
    """The inverse of `to_shares`."""
    lower, upper = bounds
    return lower + (upper - lower) * shares


def expand(column: Tensor, like: Tensor) -> Tensor:
    """One number for each row, `(M,)`, shaped to broadcast over inputs `(M, ...)`."""
    other_axes = [1] * (like.ndim - 1)
    return column.reshape(-1, *other_axes)


def check_fits(neighbourhood: object, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
    """Raise `ArgumentError` if a neighbourhood is of another kind of inputs than `inputs` `(N, ...)`.

    Every job would raise the same error.

    >>> from standfast.neighbourhoods import Rotation
    >>> check_fits(Rotation(10), torch.zeros(2, 3), (torch.zeros(3), torch.ones(3)))
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: neighbourhood: expected one for inputs of shape (N, 3), got Rotation, which...
    """
    parts = neighbourhood.parts if isinstance(neighbourhood, Compose) else (neighbourhood,)
    for part in parts:
        if not isinstance(part, Transformation):
            continue
        first = inputs[:1]
        if part.acts_on_slices(inputs):
            first = first[:, :, 0]
        try:
            part.check_fit(first, bounds)
        except ArgumentError as error:
            if error.argument != "inputs":
                raise
            shape = ", ".join(map(str, inputs.shape[1:]))
            expected = f"one for inputs of shape (N, {shape})"
            got = f"{type(part).__name__}, which takes {error.expected}"
            raise ArgumentError("neighbourhood", expected, got) from error
