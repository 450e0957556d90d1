"""Changes of geometry of images: rotation, translation, scale, shear and perspective.

Each is a plane projective map of positions. In pixels, with the origin in the middle of the image, x to the right and
y down, it takes the content at position p of the clean image to the position

    F(p) = (A p + t) / (1 + v . p)

of the perturbed one. So the perturbed image at p is the clean image at F^-1(p), interpolated bilinearly between the
centres of pixels.

The warp computes displacements, F^-1(p) - p, from the difference of the matrix and the identity. So the displacement is
exactly 0 at the identity's parameters, and the image comes back bit for bit. Normalised coordinates, as
`torch.nn.functional.grid_sample` takes them, would be wrong by up to 1e-5 pixels at 224 x 224 in float32.

A map of a perturbed image is compared after `align_maps`, at the positions of the clean image: at p it is the map at
F(p). Both images see p if F(p) lies within the area of the perturbed image, which ends half a pixel beyond the centres
of the outer pixels. Values of maps are not multiplied by the change of area. For all but perspective this would be a
constant factor, which correlations and similarities of ranks or of the largest values ignore.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from standfast.errors import check
from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.transformations import Range, Warp, as_range, check_range, parameter
from standfast.records import Range as NumberRange

Fill = Literal["border", "reflection", "lower"]


@dataclass(frozen=True)
class ImageWarp(Warp):
    """The base of changes of geometry.

    Args:
        fill: what lies outside of the image: `"border"`, the value of the nearest pixel; `"reflection"`, the image
            mirrored at its edge; `"lower"`, the lower bound of the inputs (black). The default invents no edges, as
            black does, and no second copy of an object, as a mirror does.
        align: whether maps are moved back before they are compared.
    """

    _: KW_ONLY
    fill: Fill = "border"

    @abstractmethod
    def list_deviations(self, parameters: Tensor, height: int, width: int) -> list[list[Tensor]]:
        """The 3 x 3 matrix of F minus the identity, for positions (x, y, 1): three rows of three tensors `(M,)`."""

    def check_fit(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
        """Check the bounds, too, if the lower one is what lies outside of the image."""
        super().check_fit(inputs, bounds)
        if self.fill == "lower":
            check_range(bounds, f"{type(self).__name__} with fill='lower'")

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The inputs at F^-1(p) for each position p."""
        height, width = inputs.shape[-2:]
        deviation = _stack_rows(self.list_deviations(parameters, height, width))
        shift = _displace(_invert(deviation), height, width)
        outside = bounds[0] if self.fill == "lower" else None
        return interpolate(inputs, shift, self.fill, outside)

    def align_maps(self, maps: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """The maps at F(p) for each position p of the clean image, and which p lie within the perturbed one."""
        height, width = maps.shape[-2:]
        deviation = _stack_rows(self.list_deviations(parameters, height, width))
        shift = _displace(deviation, height, width)
        x, y = list_positions(height, width, shift)
        distance_across = (x + shift[:, 0]).abs()
        distance_down = (y + shift[:, 1]).abs()
        # a thousandth of a pixel more, so that rounding does not decide
        is_within_width = distance_across <= width / 2 + 1e-3
        is_within_height = distance_down <= height / 2 + 1e-3
        is_seen = is_within_width & is_within_height
        return interpolate(maps, shift, "border"), is_seen[:, None]


def list_positions(height: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """x `(1, width)` and y `(height, 1)` of the centres of pixels, from the middle of the image."""
    columns = torch.arange(width, dtype=like.dtype, device=like.device)
    rows = torch.arange(height, dtype=like.dtype, device=like.device)
    x = columns - (width - 1) / 2
    y = rows - (height - 1) / 2
    return x[None, :], y[:, None]


def _stack_rows(rows: list[list[Tensor]]) -> Tensor:
    """Matrices `(M, 3, 3)` from three rows of three tensors `(M,)`."""
    stacked_rows = [torch.stack(row, -1) for row in rows]
    return torch.stack(stacked_rows, -2)


def _invert(deviation: Tensor) -> Tensor:
    """The inverse of identity + `deviation` `(M, 3, 3)`, minus the identity; exactly 0 where the deviation is 0.

    (I + E)^-1 - I = -(I + E)^-1 E. The inverse by cross products does not mix rows of the batch, as LAPACK may.
    """
    matrix = torch.eye(3, dtype=deviation.dtype, device=deviation.device) + deviation
    first, second, third = matrix.unbind(-2)
    columns = (
        torch.linalg.cross(second, third),
        torch.linalg.cross(third, first),
        torch.linalg.cross(first, second),
    )
    determinant = (first * columns[0]).sum(-1)[:, None, None]
    inverse = torch.stack(columns, -1) / determinant
    products = inverse[:, :, :, None] * deviation[:, None, :, :]
    product: Tensor = products.sum(2)
    return -product


def _displace(deviation: Tensor, height: int, width: int) -> Tensor:
    """Displacements `(M, 2, height, width)` in x and y of all positions, for matrices identity + `deviation`."""
    x, y = list_positions(height, width, deviation)
    # what the matrix adds to x, y and 1
    added = []
    for row in deviation.unbind(1):
        factor_x, factor_y, constant = row[..., None, None].unbind(1)
        added.append(factor_x * x + factor_y * y + constant)
    added_x, added_y, added_scale = added
    scale = 1 + added_scale
    shift_x = (added_x - x * added_scale) / scale
    shift_y = (added_y - y * added_scale) / scale
    shift = torch.stack([shift_x, shift_y], dim=1)
    farthest = 4.0 * max(height, width)  # near the horizon of a perspective; all of it lies outside
    return shift.clamp(-farthest, farthest)


def interpolate(images: Tensor, shift: Tensor, fill: Fill, outside: Tensor | None = None) -> Tensor:
    """The images at displaced positions, bilinearly between the centres of pixels.

    Args:
        images: `(M, C, H, W)`.
        shift: displacements in x and y of each position, in pixels, `(M, 2, H, W)`.
        fill: what lies outside of the images.
        outside: the value there, where `fill` is `"lower"`; broadcasts to `(C, H, W)`.

    >>> image = torch.tensor([[[[0.0, 1.0, 4.0]]]])
    >>> interpolate(image, torch.tensor([0.5, 0.0]).reshape(1, 2, 1, 1).expand(1, 2, 1, 3), "border")
    tensor([[[[0.5000, 2.5000, 4.0000]]]])
    """
    rows, channels, height, width = images.shape
    flat = images.flatten(2)
    # whole steps apart from the rest, so that no digits of the rest are lost
    whole = shift.detach().floor()
    across, down = torch.split(shift - whole, 1, dim=1)
    steps_right, steps_down = whole.to(torch.int32).unbind(1)
    columns = torch.arange(width, dtype=torch.int32, device=images.device)
    lines = torch.arange(height, dtype=torch.int32, device=images.device)
    left = steps_right + columns[None, :]
    top = steps_down + lines[:, None]

    def fold(index: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """The places that are read for an index along an axis, and whether it lies within the image."""
        is_inside = (index >= 0) & (index < size)
        if fill == "reflection":
            # a mirror at the edges of pixels: 0, 1, ..., n - 1, n - 1, ..., 1, 0
            index = index % (2 * size)
            return torch.minimum(index, 2 * size - 1 - index), is_inside
        return index.clamp(0, size - 1), is_inside

    sides = [fold(left, width), fold(left + 1, width)]

    def read_line(index: Tensor) -> Tensor:
        """The values on one line, between its two columns."""
        line, is_inside_height = fold(index, height)
        ends = []
        for column, is_inside_width in sides:
            index_of_pixel = (line * width + column).long().flatten(1)[:, None]
            index_of_channels = index_of_pixel.expand(rows, channels, -1)
            values = flat.gather(2, index_of_channels).reshape(images.shape)
            if outside is not None:
                is_inside = is_inside_height & is_inside_width
                values = torch.where(is_inside[:, None], values, outside)
            ends.append(values)
        return torch.lerp(ends[0], ends[1], across)

    upper = read_line(top)
    lower = read_line(top + 1)
    return torch.lerp(upper, lower, down)


@neighbourhoods.register("rotation")
@dataclass(frozen=True)
class Rotation(ImageWarp):
    """A rotation about the middle of the image, counter-clockwise as one sees it.

    Args:
        degrees: from the smallest to the largest angle; one number r stands for -r to r.

    >>> import torch
    >>> image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> Rotation(90).around(image).perturb(torch.tensor([[90.0]]), torch.tensor([0])).round(decimals=3)
    tensor([[[[2., 4.],
              [1., 3.]]]])
    """

    phrase = "rotated by {degrees} degrees"

    degrees: Range = parameter("angle [degrees]", default=10.0, low=-360, high=360)

    def list_deviations(self, parameters: Tensor, height: int, width: int) -> list[list[Tensor]]:
        """A rotation matrix; cos a - 1 is -2 sin^2 (a / 2), which keeps all digits of small angles."""
        angle = parameters[:, 0] * (math.pi / 180)
        sine = torch.sin(angle)
        change = -2 * torch.sin(angle / 2) ** 2
        zero = torch.zeros_like(angle)
        return [[change, sine, zero], [-sine, change, zero], [zero, zero, zero]]


@neighbourhoods.register("translation")
@dataclass(frozen=True)
class Translation(ImageWarp):
    """A shift of the image to the right and down, each by its own number of pixels, which need not be whole.

    Args:
        pixels: from the smallest to the largest shift, of both; one number r stands for -r to r.

    >>> import torch
    >>> image = torch.tensor([[[[0.0, 4.0, 0.0], [0.0, 8.0, 0.0]]]])
    >>> Translation(1).around(image).perturb(torch.tensor([[0.25, 0.0]]), torch.tensor([0]))
    tensor([[[[0., 3., 1.],
              [0., 6., 2.]]]])
    """

    phrase = "shifted by {pixels} pixels to the right and down"

    pixels: Range = parameter("shift to the right [pixels]", "shift down [pixels]", default=2.0)

    def check_fit(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
        """Check, too, that the shift is smaller than the image."""
        super().check_fit(inputs, bounds)
        size = min(inputs.shape[-2:])
        most = max(map(abs, as_range(self.pixels)))
        check(
            most < size,
            "pixels",
            f"a shift of less than the {size} pixels of the inputs",
            f"{most:g}",
        )

    def list_deviations(self, parameters: Tensor, height: int, width: int) -> list[list[Tensor]]:
        """The shift alone."""
        right, down = parameters.unbind(1)
        zero = torch.zeros_like(right)
        return [[zero, zero, right], [zero, zero, down], [zero, zero, zero]]


@neighbourhoods.register("scale")
@dataclass(frozen=True)
class Scale(ImageWarp):
    """A change of size about the middle of the image, the same in both directions.

    The image is not smoothed before it is made smaller, so at factors far below 1 fine patterns alias.

    Args:
        factor: from the smallest to the largest; above 1 the content becomes larger. One number r stands for 1 - r to
            1 + r.

    >>> import torch
    >>> image = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    >>> Scale((1, 2)).around(image).perturb(torch.tensor([[2.0]]), torch.tensor([0]))
    tensor([[[[1.7500, 2.2500, 2.7500, 3.2500]]]])
    """

    phrase = "scaled by a factor of {factor}"

    factor: Range = parameter("factor of size", default=0.1, identity=1, low=0.1, high=10)

    def list_deviations(self, parameters: Tensor, height: int, width: int) -> list[list[Tensor]]:
        """The factor in both directions."""
        change = parameters[:, 0] - 1
        zero = torch.zeros_like(change)
        return [[change, zero, zero], [zero, change, zero], [zero, zero, zero]]


@neighbourhoods.register("shear")
@dataclass(frozen=True)
class Shear(ImageWarp):
    """A shear of the image, horizontally by one angle and vertically by another.

    The content at (x, y) moves to (x + y tan a, y + x tan b), where x and y count from the middle.

    Args:
        degrees: from the smallest to the largest angle, of both; one number r stands for -r to r. At most 40 degrees.

    >>> import torch
    >>> image = torch.tensor([[[[0.0, 4.0, 0.0], [0.0, 4.0, 0.0], [0.0, 4.0, 0.0]]]])
    >>> sheared = Shear(30).around(image).perturb(torch.tensor([[14.0362, 0.0]]), torch.tensor([0]))
    >>> sheared.round(decimals=3)  # the tangent is 1/4
    tensor([[[[1., 3., 0.],
              [0., 4., 0.],
              [0., 3., 1.]]]])
    """

    phrase = "sheared by {degrees} degrees horizontally and vertically"

    degrees: Range = parameter(
        "horizontal shear [degrees]", "vertical shear [degrees]", default=10.0, low=-40, high=40
    )

    def list_deviations(self, parameters: Tensor, height: int, width: int) -> list[list[Tensor]]:
        """The tangents of the angles."""
        angles = parameters * (math.pi / 180)
        across, down = torch.tan(angles).unbind(1)
        zero = torch.zeros_like(across)
        return [[zero, across, zero], [down, zero, zero], [zero, zero, zero]]


@neighbourhoods.register("perspective")
@dataclass(frozen=True)
class Perspective(ImageWarp):
    """The image as a flat picture that is turned in front of a camera, which looks at its middle.

    The picture turns by a about its vertical axis and by b about its horizontal one. A camera at distance d sees the
    point (x, y) of the picture at

        (x cos a + y sin a sin b, y cos b) / (1 + (y cos a sin b - x sin a) / d).

    Source: Hartley and Zisserman, "Multiple view geometry in computer vision" (2004), section 8.1.

    Args:
        degrees: from the smallest to the largest angle, of both; one number r stands for -r to r. At most 30 degrees.
        distance: of the camera, in units of the longer side of the image; at least 1. Nearer means more perspective.

    >>> import torch
    >>> image = torch.rand(1, 3, 5, 5)
    >>> region = Perspective(15).around(image)
    >>> bool((region.perturb(torch.tensor([[0.0, 0.0]]), torch.tensor([0])) == image).all())
    True
    """

    phrase = "turned in perspective by {degrees} degrees about both axes"

    degrees: Range = parameter(
        "turn about the vertical axis [degrees]",
        "turn about the horizontal axis [degrees]",
        default=10.0,
        low=-30,
        high=30,
    )
    distance: Annotated[float, NumberRange(least=1)] = 2.0

    def list_deviations(self, parameters: Tensor, height: int, width: int) -> list[list[Tensor]]:
        """The rotation in space, and the division by the distance of each point."""
        a, b = (parameters * (math.pi / 180)).unbind(1)
        zero = torch.zeros_like(a)
        distance = self.distance * max(height, width)
        sine_a = torch.sin(a)
        sine_b = torch.sin(b)
        # cos a - 1 is -2 sin^2 (a / 2), which keeps all digits of small angles
        change_a = -2 * torch.sin(a / 2) ** 2
        change_b = -2 * torch.sin(b / 2) ** 2
        return [
            [change_a, sine_a * sine_b, zero],
            [zero, change_b, zero],
            [-sine_a / distance, torch.cos(a) * sine_b / distance, zero],
        ]
