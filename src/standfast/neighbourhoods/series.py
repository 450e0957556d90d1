"""Changes of series `(N, C, T)`: of their time, their values, and samples that are missing.

Parameters are in the units that people use: percent, samples, and standard deviations of the series. So the ranges make
sense for series without bounds, whatever their scale. All channels have the same time, and the same parameters.

Sources: the warps, scaling and jitter of Um et al., "Data augmentation of wearable sensor data for Parkinson's disease
monitoring using convolutional neural networks" (ICMI 2017); window slicing and warping of Le Guennec et al., "Data
augmentation for time series classification using convolutional neural networks" (AALTD 2016). There the parameters are
drawn to train a model. Here they are searched, so each class has few of them, and the result is a function of them.

Places between two samples get values by linear interpolation, which stays between its two neighbours.

A map that is moved back is not multiplied by the local stretch. A series that is stretched by 3% has a map with the
same values at 3% more samples. After it is moved back, the two maps are equal for an explainer that sees every sample
by itself. For one whose values add up to a constant they differ by a factor of about 1.03, which Pearson's and rank
correlations ignore.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from standfast.errors import check
from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.transformations import (
    ParameterAxis,
    Range,
    Transformation,
    Warp,
    as_range,
    parameter,
)
from standfast.records import Count, set_fields
from standfast.records import Range as NumberRange

Fill = Literal["border", "zeros", "reflection"]
Hold = Literal["hold", "zeros"]

#: how far outside of the series a place may lie and still be seen, in samples: what float32 rounds off
_SLACK = 1e-3


@dataclass(frozen=True)
class TimeChange(Warp):
    """The base of changes of time: the sample at time t of the result is that of the input at time `find_places(t)`."""

    takes = "series"

    @abstractmethod
    def find_places(self, parameters: Tensor, length: int) -> Tensor:
        """Where in the input each sample of the result comes from, in samples, for `parameters` `(M, D)`; `(M, T)`."""

    @abstractmethod
    def find_places_back(self, parameters: Tensor, length: int) -> Tensor:
        """Where in the result each sample of the input went: the inverse of `find_places`; `(M, T)`."""

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Read the series at other places."""
        return interpolate(inputs, self.find_places(parameters, inputs.shape[2]))

    def align_maps(self, maps: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Read the maps where the samples went.

        A sample is seen if it went to a place within the series, and neither neighbour of this place is filled.
        """
        length = maps.shape[2]
        positions = self.find_places_back(parameters, length)
        is_real = _lie_inside(self.find_places(parameters, length), length)
        share_of_real = interpolate(is_real[:, None].to(maps.dtype), positions.detach())
        is_inside = _lie_inside(positions, length)
        is_seen = (share_of_real > 1 - _SLACK) & is_inside[:, None]
        return interpolate(maps, positions), is_seen


@dataclass(frozen=True)
class FilledTimeChange(TimeChange):
    """The base of changes of time that read places outside of the series.

    Args:
        fill: what lies before the first and after the last sample: `"border"` for the value there, `"zeros"`, or
            `"reflection"` for the series backwards. The border is the default, since zeros make a jump where a series
            has an offset.
    """

    _: KW_ONLY
    fill: Fill = "border"

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Read the series at other places, and fill what lies outside."""
        return interpolate(inputs, self.find_places(parameters, inputs.shape[2]), self.fill)


@neighbourhoods.register("time_shift")
@dataclass(frozen=True)
class TimeShift(FilledTimeChange):
    """The series, s samples later: `y(t) = x(t - s)`.

    Args:
        samples: from the earliest to the latest shift, also fractions of a sample; one number r stands for -r to r.

    >>> import torch
    >>> region = TimeShift(2).around(torch.tensor([[[1.0, 2.0, 4.0, 8.0]]]))
    >>> region.perturb(torch.tensor([[1.0], [-0.5]]), torch.tensor([0, 0]))[:, 0]
    tensor([[1.0000, 1.0000, 2.0000, 4.0000],
            [1.5000, 3.0000, 6.0000, 8.0000]])
    """

    phrase = "shifted in time by {samples} samples"

    samples: Range = parameter("shift [samples]", default=3.0)

    def check_fit(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
        """Check, too, that the shift is shorter than the series."""
        super().check_fit(inputs, bounds)
        length, (low, high) = inputs.shape[2], as_range(self.samples)
        check(
            max(-low, high) < length,
            "samples",
            f"shifts below {length}, the length of the series",
            self.samples,
        )

    def find_places(self, parameters: Tensor, length: int) -> Tensor:
        """`t - s`."""
        return _count_samples(parameters, length) - parameters[:, :1]

    def find_places_back(self, parameters: Tensor, length: int) -> Tensor:
        """`t + s`."""
        return _count_samples(parameters, length) + parameters[:, :1]


@neighbourhoods.register("time_stretch")
@dataclass(frozen=True)
class TimeStretch(FilledTimeChange):
    """The series, longer or shorter by s percent around its middle c: `y(t) = x(c + (t - c) / (1 + s / 100))`.

    The number of samples stays the same: a longer series loses both ends, and a shorter one is filled there.

    Args:
        percent: from the smallest to the largest stretch, above -100; one number r stands for -r to r.

    >>> import torch
    >>> region = TimeStretch((0, 100)).around(torch.tensor([[[0.0, 1.0, 2.0, 3.0, 4.0]]]))
    >>> region.perturb(torch.tensor([[100.0]]), torch.tensor([0]))[0, 0]
    tensor([1.0000, 1.5000, 2.0000, 2.5000, 3.0000])
    """

    phrase = "stretched in time by {percent}%"

    percent: Range = parameter("stretch [%]", default=3.0, low=-99)

    def find_places(self, parameters: Tensor, length: int) -> Tensor:
        """`c + (t - c) / (1 + s / 100)`."""
        middle = (length - 1) / 2
        return middle + (_count_samples(parameters, length) - middle) / (
            1 + parameters[:, :1] / 100
        )

    def find_places_back(self, parameters: Tensor, length: int) -> Tensor:
        """`c + (t - c) (1 + s / 100)`."""
        middle = (length - 1) / 2
        return middle + (_count_samples(parameters, length) - middle) * (
            1 + parameters[:, :1] / 100
        )


@neighbourhoods.register("time_warp")
@dataclass(frozen=True)
class TimeWarp(TimeChange):
    """Time that runs faster in some parts and slower in others, and both ends where they were.

    With waves k = 1 to K of parameters s_k, in percent, the speed at the share u of the series, 0 to 1, is

        v(u) = 1 + sum_k s_k / 100 cos(pi k u),     y(u) = x(u + sum_k s_k / (100 pi k) sin(pi k u))

    The places are the integral of the speed. It is the same at both ends for all parameters, and increases everywhere,
    since no speed differs from 1 by `percent` or more in the sum. A random curve of speed with its integral scaled to
    the length is the warp of Um et al.; waves need no scaling, and no parameter is redundant.

    Args:
        percent: the largest change of the speed at any place, 0 to 95. Each of the K parameters may be `percent / K` in
            either direction.
        waves: K. One wave speeds up one half and slows down the other.

    >>> import torch
    >>> region = TimeWarp(10, waves=1).around(torch.linspace(0, 1, 5).reshape(1, 1, 5))
    >>> region.perturb(torch.tensor([[10.0]]), torch.tensor([0]))[0, 0]
    tensor([0.0000, 0.2725, 0.5318, 0.7725, 1.0000])
    """

    phrase = "warped in time, faster or slower by at most {percent:g}% at any place"

    percent: Annotated[float, NumberRange(least=0, most=95)] = 5.0
    waves: Count = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, percent=float(self.percent))

    def list_axes(self, shape: Sequence[int]) -> list[ParameterAxis]:
        """One for each wave."""
        most = self.percent / self.waves
        axes = []
        for k in range(1, self.waves + 1):
            axes.append(ParameterAxis(f"wave {k} [%]", 0.0, -most, most))
        return axes

    def find_places(self, parameters: Tensor, length: int) -> Tensor:
        """`t + (T - 1) sum_k s_k / (100 pi k) sin(pi k t / (T - 1))`."""
        return self._warp(
            _count_samples(parameters, length).expand(len(parameters), -1), parameters
        )

    def find_places_back(self, parameters: Tensor, length: int) -> Tensor:
        """The inverse, by Newton's method from the nearest samples."""
        times = _count_samples(parameters, length)
        # Newton's steps need no graph: the last step has the derivative
        with torch.no_grad():
            moved_times = self.find_places(parameters, length)
            sought = times.expand(len(parameters), -1).contiguous()
            right = torch.searchsorted(moved_times.contiguous(), sought).clamp(1, length - 1)
            before = moved_times.gather(1, right - 1)
            after = moved_times.gather(1, right)
            share = (sought - before) / (after - before)
            positions = right - 1 + share.clamp(0, 1)
            # linear interpolation is off by a few thousandths of a sample, Newton's error squares
            for _ in range(2):
                missed = sought - self._warp(positions, parameters)
                positions = positions + missed / self._speed(positions, parameters)
            positions = positions.clamp(0, length - 1)
        # one more step, which has the derivative by the parameters: that of an implicit function
        missed = times - self._warp(positions, parameters)
        speed = self._speed(positions, parameters).detach()
        return positions + missed / speed

    def _warp(self, places: Tensor, parameters: Tensor) -> Tensor:
        last = places.shape[1] - 1
        shift: Tensor | int = 0
        for k in range(1, self.waves + 1):
            amplitude = parameters[:, k - 1 : k] / (100 * math.pi * k)
            wave = torch.sin(math.pi * k / last * places)
            shift = shift + amplitude * wave
        return places + last * shift

    def _speed(self, places: Tensor, parameters: Tensor) -> Tensor:
        last = places.shape[1] - 1
        return (
            1
            + sum(  # type: ignore[return-value]
                parameters[:, k - 1 : k] / 100 * torch.cos(math.pi * k / last * places)
                for k in range(1, self.waves + 1)
            )
        )


@neighbourhoods.register("window_crop")
@dataclass(frozen=True)
class WindowCrop(TimeChange):
    """A window of the series, stretched back to its length: the rest is cut off.

    With q percent cut off and the share p of it at the start: `y(t) = x(p q / 100 (T - 1) + t (1 - q / 100))`.

    Args:
        percent: from the least to the most that is cut off, 0 to 95; one number r stands for 0 to r.

    >>> import torch
    >>> region = WindowCrop(50).around(torch.tensor([[[0.0, 1.0, 2.0, 3.0, 4.0]]]))
    >>> region.perturb(torch.tensor([[50.0, 1.0]]), torch.tensor([0]))[0, 0]
    tensor([2.0000, 2.5000, 3.0000, 3.5000, 4.0000])
    """

    phrase = "cropped in time by {percent}% and stretched back"

    percent: Range = parameter("cut off [%]", default=10.0, low=0, high=95)

    def list_axes(self, shape: Sequence[int]) -> list[ParameterAxis]:
        """What is cut off, and how much of it at the start."""
        axes = list(super().list_axes(shape))
        axes.append(ParameterAxis("cut at the start [share]", 0.5, 0.0, 1.0))
        return axes

    def find_places(self, parameters: Tensor, length: int) -> Tensor:
        """`p q / 100 (T - 1) + t (1 - q / 100)`."""
        cut = parameters[:, :1] / 100
        share_at_start = parameters[:, 1:]
        times = _count_samples(parameters, length)
        return share_at_start * cut * (length - 1) + times * (1 - cut)

    def find_places_back(self, parameters: Tensor, length: int) -> Tensor:
        """`(t - p q / 100 (T - 1)) / (1 - q / 100)`."""
        cut = parameters[:, :1] / 100
        share_at_start = parameters[:, 1:]
        times = _count_samples(parameters, length)
        return (times - share_at_start * cut * (length - 1)) / (1 - cut)


@neighbourhoods.register("amplitude")
@dataclass(frozen=True)
class Amplitude(Transformation):
    """All values times a factor: `y = (1 + s / 100) x`, as by another gain of the sensor.

    Args:
        percent: from the smallest to the largest change, at least -100; one number r stands for -r to r.

    >>> import torch
    >>> region = Amplitude(10).around(torch.tensor([[[1.0, -2.0]]]))
    >>> region.perturb(torch.tensor([[10.0]]), torch.tensor([0]))
    tensor([[[ 1.1000, -2.2000]]])
    """

    phrase = "changed in amplitude by {percent}%"
    takes = "series"

    percent: Range = parameter("amplitude [%]", default=10.0, low=-100)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        return inputs * (1 + parameters[:, :, None] / 100)


@neighbourhoods.register("drift")
@dataclass(frozen=True)
class Drift(Transformation):
    """A straight line that is added: from a at the first sample to b at the last. Equal values are an offset.

    At the share u of the series, 0 to 1: `y(u) = x(u) + std (a (1 - u) + b u)`, with the standard deviation over time
    of each channel of each series. A channel that is constant stays as it is.

    Args:
        size: from the smallest to the largest value of a and b, in standard deviations; one number r stands for -r to
            r.

    >>> import torch
    >>> region = Drift(1).around(torch.tensor([[[1.0, -1.0, 1.0, -1.0]]]))
    >>> region.perturb(torch.tensor([[0.0, 3.0]]), torch.tensor([0]))[0, 0]
    tensor([1., 0., 3., 2.])
    """

    phrase = "given a drift of {size} standard deviations"
    takes = "series"

    size: Range = parameter("drift at the start [std]", "drift at the end [std]", default=0.2)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        length = inputs.shape[2]
        at_start = parameters[:, :1]
        at_end = parameters[:, 1:]
        share = _count_samples(parameters, length) / (length - 1)
        line = at_start * (1 - share) + at_end * share
        return inputs + _measure_deviation(inputs) * line[:, None]


@neighbourhoods.register("jitter")
@dataclass(frozen=True)
class Jitter(Transformation):
    """Independent normal noise at every sample of every channel: `y = x + std s z`, z standard normal.

    Here std is the standard deviation over time of each channel of each series.

    The parameters are the level s and, for each value, a uniform number in [0, 1] whose normal quantile is z. So the
    result is a function of the parameters, and a search can choose the noise, too.

    Args:
        size: from the smallest to the largest level, in standard deviations; one number r stands for 0 to r, and two
            equal numbers for that level.

    >>> import torch
    >>> region = Jitter(0.1).around(torch.tensor([[[1.0, -1.0, 1.0, -1.0]]]))
    >>> region.perturb(torch.tensor([[0.1, 0.5, 0.5, 0.975, 0.025]]), torch.tensor([0]))[0, 0]
    tensor([ 1.0000, -1.0000,  1.1960, -1.1960])
    """

    phrase = "given normal noise of {size} standard deviations"
    takes = "series"

    size: Range = parameter("noise [std]", default=0.1, low=0)

    def count_ranks(self, shape: Sequence[int]) -> int:
        """One for each value."""
        return math.prod(shape)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        edge = torch.finfo(parameters.dtype).eps / 2  # the quantiles of 0 and 1 are infinite
        uniform = parameters[:, 1:].clamp(edge, 1 - edge)
        z: Tensor = torch.special.ndtri(uniform).reshape(inputs.shape)
        size = parameters[:, :1, None]
        return inputs + _measure_deviation(inputs) * size * z


@neighbourhoods.register("dropped_samples")
@dataclass(frozen=True)
class DroppedSamples(Transformation):
    """Samples that are missing at random, in all channels at once.

    The parameters are the share s and, for each time, a uniform number in [0, 1]; where it is below s, the sample is
    missing. Not differentiable: a sample is there or not.

    Args:
        percent: from the smallest to the largest share, 0 to 100; one number r stands for 0 to r, and two equal numbers
            for that share.
        fill: what a missing sample becomes: `"hold"` for the last value that is not missing, or the first one at the
            start of the series; or `"zeros"`. Where all samples are missing, the first one is kept by `"hold"`.

    >>> import torch
    >>> region = DroppedSamples(50).around(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]))
    >>> region.perturb(torch.tensor([[50.0, 0.9, 0.2, 0.3, 0.6]]), torch.tensor([0]))[0, 0]
    tensor([1., 1., 1., 4.])
    """

    phrase = "missing {percent}% of its samples"
    takes = "series"
    differentiable = False

    percent: Range = parameter("dropped [%]", default=10.0, low=0, high=100)
    fill: Hold = "hold"

    def count_ranks(self, shape: Sequence[int]) -> int:
        """One for each time."""
        return shape[-1]

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        lost_share = parameters[:, :1]
        kept = parameters[:, 1:] * 100 >= lost_share
        if self.fill == "zeros":
            return inputs * kept[:, None]
        times = torch.arange(inputs.shape[2], device=inputs.device)
        # the last sample that is there, up to each time
        last = torch.where(kept, times, -1).cummax(dim=1).values
        first = kept.int().argmax(dim=1, keepdim=True)
        # before the first sample that is there, that one stands; if there is none, `argmax` gives sample 0
        source = torch.where(last < 0, first, last)
        source_of_channels = source[:, None].expand_as(inputs)
        return inputs.gather(2, source_of_channels)


def interpolate(series: Tensor, positions: Tensor, fill: Fill = "border") -> Tensor:
    """`series` `(M, C, T)` at positions `(M, S)`, in samples from 0 to T - 1, by linear interpolation; `(M, C, S)`.

    Args:
        series: values.
        positions: also between samples and outside of the series.
        fill: what lies outside, as for `FilledTimeChange`. Towards zeros there is one sample of interpolation.

    >>> interpolate(torch.tensor([[[0.0, 2.0, 4.0]]]), torch.tensor([[0.5, 2.5, -1.0]]), "reflection")
    tensor([[[1., 3., 2.]]])
    """
    last = series.shape[2] - 1
    if fill == "border":
        positions = positions.clamp(0, last)
    elif fill == "reflection":
        # a mirror at both ends repeats the series every 2 (T - 1) samples
        positions = positions.remainder(2 * last)
        positions = last - (positions - last).abs()
    left = positions.detach().floor()
    share = (positions - left)[:, None]
    neighbours = []
    channels = series.shape[1]
    for index in (left, left + 1):
        source = index.clamp(0, last).long()
        source_of_channels = source[:, None].expand(-1, channels, -1)
        values = series.gather(2, source_of_channels)
        if fill == "zeros":
            is_inside = (index >= 0) & (index <= last)
            values = values * is_inside[:, None]
        neighbours.append(values)
    before, after = neighbours
    return torch.lerp(before, after, share.expand_as(before))


def _count_samples(parameters: Tensor, length: int) -> Tensor:
    """The times 0 to T - 1, `(1, T)`, like the parameters."""
    times = torch.arange(length, dtype=parameters.dtype, device=parameters.device)
    return times[None]


def _lie_inside(places: Tensor, length: int) -> Tensor:
    """Which places are within a series of this length."""
    last = length - 1
    return (places >= -_SLACK) & (places <= last + _SLACK)


def _measure_deviation(inputs: Tensor) -> Tensor:
    """The standard deviation over time of each channel, `(M, C, 1)`."""
    deviation: Tensor = inputs.std(dim=2, correction=0, keepdim=True)
    return deviation
