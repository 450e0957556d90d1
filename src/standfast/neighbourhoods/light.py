"""Changes of light and colour of images: every pixel by the same rule."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.transformations import (
    Range,
    Transformation,
    expand,
    from_shares,
    parameter,
    to_shares,
)
from standfast.tensors import send


@neighbourhoods.register("brightness")
@dataclass(frozen=True)
class Brightness(Transformation):
    """A constant that is added to all values, as a share of the range of the inputs.

    Args:
        shift: from the darkest to the brightest; one number r stands for -r to r.

    >>> import torch
    >>> region = Brightness(0.2).around(torch.full((1, 1, 2, 2), 0.5), bounds=(0.0, 1.0))
    >>> region.perturb(torch.tensor([[0.1]]), torch.tensor([0])).unique()
    tensor([0.6000])
    """

    phrase = "made brighter by {shift} of the range of values"
    takes = "any"
    needs_range = True

    shift: Range = parameter("brightness [share of the range]", default=0.2, low=-1, high=1)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        lower, upper = bounds
        shift = expand(parameters[:, 0], inputs)
        return inputs + (upper - lower) * shift


@neighbourhoods.register("contrast")
@dataclass(frozen=True)
class Contrast(Transformation):
    """Differences from the mean of each channel, multiplied by a factor: m + c (x - m).

    Source: Hendrycks and Dietterich, "Benchmarking neural network robustness to common corruptions and perturbations"
    (ICLR 2019).

    Args:
        factor: from the smallest to the largest; one number r stands for 1 - r to 1 + r.

    >>> import torch
    >>> region = Contrast((0.5, 1)).around(torch.tensor([[[[0.2, 0.6]]]]), bounds=(0.0, 1.0))
    >>> region.perturb(torch.tensor([[0.5]]), torch.tensor([0]))
    tensor([[[[0.3000, 0.5000]]]])
    """

    phrase = "changed in contrast by a factor of {factor}"

    factor: Range = parameter("factor of contrast", default=0.3, identity=1, low=0, high=100)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Multiply the differences; the change is added to the input, so that a factor of 1 changes nothing."""
        mean = inputs.mean(dim=(2, 3), keepdim=True)
        gain = expand(parameters[:, 0] - 1, inputs)
        return inputs + gain * (inputs - mean)


@neighbourhoods.register("gamma")
@dataclass(frozen=True)
class Gamma(Transformation):
    """Gamma correction: a power of the value as a share of its range, u^gamma.

    Source: Poynton, "Digital video and HD" (2012), chapter 27; as `skimage.exposure.adjust_gamma`.

    Args:
        exponent: from the smallest to the largest; above 1 the image becomes darker. One number r stands for 1 - r to
            1 + r.

    >>> import torch
    >>> region = Gamma((0.5, 2)).around(torch.tensor([[[[-1.0, 0.0, 1.0]]]]), bounds=(-1.0, 1.0))
    >>> region.perturb(torch.tensor([[2.0]]), torch.tensor([0]))
    tensor([[[[-1.0000, -0.5000,  1.0000]]]])
    """

    phrase = "changed by a gamma of {exponent}"
    takes = "any"
    needs_range = True

    exponent: Range = parameter("gamma", default=0.3, identity=1, low=0.01, high=100)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Take the power; values at the lower bound stay there, where the power has no gradient."""
        shares = to_shares(inputs, bounds)
        positive = shares > 1e-12
        exponent = expand(parameters[:, 0], inputs)
        power = torch.where(positive, shares, 1.0) ** exponent
        return from_shares(torch.where(positive, power, shares), bounds)


@neighbourhoods.register("hue")
@dataclass(frozen=True)
class Hue(Transformation):
    """The hue of each pixel turned by an angle on the colour wheel; value and saturation (HSV) stay.

    With value v, chroma C (the largest less the smallest of red, green and blue) and hue h in sixths of the wheel, a
    channel is `v - C + C f(h)` for a trapezoid f of that channel. Grey pixels have no hue and do not change.

    Source: Smith, "Color gamut transform pairs" (SIGGRAPH 1978).

    Args:
        degrees: from the smallest to the largest angle; one number r stands for -r to r. 120 degrees turn red to green.

    >>> import torch
    >>> red = torch.tensor([1.0, 0.0, 0.0]).reshape(1, 3, 1, 1)
    >>> Hue(120).around(red, bounds=(0.0, 1.0)).perturb(torch.tensor([[120.0]]), torch.tensor([0])).flatten()
    tensor([0., 1., 0.])
    """

    phrase = "turned in hue by {degrees} degrees"
    needs_range = True
    channels = (3,)

    degrees: Range = parameter("hue [degrees]", default=20.0, low=-360, high=360)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Turn the hue; the change is added to the input, so that an angle of 0 changes nothing."""
        shares = to_shares(inputs, bounds)
        red, green, blue = shares.unbind(1)
        value = shares.amax(1)
        chroma = value - shares.amin(1)
        # grey has no hue: any divisor will do, as its chroma is 0
        divisor = torch.where(chroma > 0, chroma, 1.0)
        # red, green and blue lie at 0, 2 and 4 sixths of the wheel
        hue = torch.where(
            value == red,
            (green - blue) / divisor,
            torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
        )
        turn = parameters[:, 0] / 60
        turned = hue + turn.reshape(-1, 1, 1)
        # f is 1 from -1 to 1 around the channel's own hue and 0 from 2 to 4
        hue_of_channel = send([0.0, 2.0, 4.0], shares.device, shares.dtype).reshape(1, 3, 1, 1)
        # the shorter way round the wheel, from -3 to 3 sixths
        before, after = (
            2 - (torch.remainder(h[:, None] - hue_of_channel + 3, 6) - 3).abs()
            for h in (hue, turned)
        )
        difference = after.clamp(0, 1) - before.clamp(0, 1)
        change = chroma[:, None] * difference
        return inputs + (bounds[1] - bounds[0]) * change


@neighbourhoods.register("saturation")
@dataclass(frozen=True)
class Saturation(Transformation):
    """The saturation of each pixel multiplied by a factor, at most up to full saturation; value and hue (HSV) stay.

    Source: Smith, "Color gamut transform pairs" (SIGGRAPH 1978).

    Args:
        factor: from the smallest to the largest; 0 makes the image grey. One number r stands for 1 - r to 1 + r.

    >>> import torch
    >>> pink = torch.tensor([1.0, 0.6, 0.8]).reshape(1, 3, 1, 1)
    >>> Saturation((0, 2)).around(pink, bounds=(0.0, 1.0)).perturb(torch.tensor([[2.0]]), torch.tensor([0])).flatten()
    tensor([1.0000, 0.2000, 0.6000])
    """

    phrase = "changed in saturation by a factor of {factor}"
    needs_range = True
    channels = (3,)

    factor: Range = parameter("factor of saturation", default=0.5, identity=1, low=0, high=100)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Move each channel away from the largest one, or towards it."""
        return saturate(inputs, expand(parameters[:, 0], inputs), torch.zeros(()), bounds)


def saturate(
    inputs: Tensor, factor: Tensor, offset: Tensor, bounds: tuple[Tensor, Tensor]
) -> Tensor:
    """Saturation s of colours `(M, 3, H, W)` becomes `factor * s + offset`, at most 1; grey stays grey."""
    shares = to_shares(inputs, bounds)
    value = shares.amax(1, keepdim=True)
    chroma = value - shares.amin(1, keepdim=True)
    coloured = chroma > 0
    most = torch.where(coloured, value, 1.0) / torch.where(coloured, chroma, 1.0)  # 1 / s
    # the new saturation over the old one, s; full saturation is 1 / s times the old one
    offset_of_channels = send(offset, shares.device, shares.dtype)
    ratio = torch.minimum(factor + offset_of_channels * most, most)
    # the new channel is v - ratio (v - u); as a change of the input, a ratio of 1 leaves its bits alone
    lower, upper = bounds
    return inputs + (upper - lower) * (1 - ratio) * (value - shares)
