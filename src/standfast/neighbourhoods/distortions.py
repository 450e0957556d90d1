"""Blurs, weather and an elastic change of Hendrycks and Dietterich, which only `Corruption` uses.

Each has the constants of a severity as its first parameters. What the original draws at random comes after them, as
numbers in [0, 1]: ranks, which the quantile function of the original's distribution maps to what it draws.

Source: as for `Corruption`. Written from the formulas of `imagenet_c/corruptions.py` and `make_cifar_c.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from standfast.neighbourhoods.blur import GaussianBlur, MotionBlur
from standfast.neighbourhoods.geometry import Scale, interpolate, list_positions
from standfast.neighbourhoods.noise import map_to_normal
from standfast.neighbourhoods.transformations import (
    ParameterAxis,
    Range,
    Transformation,
    as_range,
    expand,
    parameter,
    to_shares,
)
from standfast.tensors import send

_SCALE = Scale()


def constant(name: str, identity: float) -> Any:
    """An option that declares one constant of a corruption."""
    return parameter(name, default=(identity, identity), identity=identity)


#: of red, green and blue in the grey value of a pixel
_GREY = (0.299, 0.587, 0.114)


def to_grey(images: Tensor) -> Tensor:
    """Images `(M, 3, H, W)` as `(M, 1, H, W)`; those of one channel as they are."""
    if images.shape[1] == 1:
        return images
    weights = send(_GREY, images.device, images.dtype)
    weighted = images * weights[:, None, None]
    return weighted.sum(1, keepdim=True)


def enlarge(images: Tensor, factor: Tensor) -> Tensor:
    """Each of `images` `(M, C, H, W)` larger by its own factor, `(M,)`, about the middle of the image."""
    # the border fills, so bounds are not read
    bounds = (torch.zeros(()), torch.ones(()))
    return _SCALE.transform(images, factor[:, None], bounds)


@dataclass(frozen=True)
class ZoomBlur(Transformation):
    """The mean of the image and of `count` images enlarged by 1, 1 + step, 1 + 2 step and so on.

    A count that is not whole gives the last image the weight of its fraction. Images are enlarged about their exact
    middle. The original cuts out whole pixels first, so its places differ by up to 1.2 pixels and jump with the factor.

    Maps are not moved back: a blurred image shows each part of the clean one at many places. Their mean place is
    farther out by 5% of the distance from the middle at severity 1 of ImageNet-C, and by 14% at severity 5.
    """

    count: Range = constant("count", 1.0)
    step: Range = constant("step", 0.01)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        count, step = parameters.unbind(1)
        # the change is added to the input, so that a count of 1 gives it back bit for bit
        change = torch.zeros_like(inputs)
        _, most = as_range(self.count)
        # the image itself and the one enlarged by 1 change nothing
        for number in range(1, math.ceil(most)):
            weight = (count - number).clamp(0, 1) / (count + 1)
            enlarged = enlarge(inputs, 1 + number * step)
            change = change + expand(weight, inputs) * (enlarged - inputs)
        return inputs + change


@dataclass(frozen=True)
class Fog(Transformation):
    """(x + thickness * f) * m / (m + thickness): m is the largest value of the image, f a fractal field from 0 to 1.

    The ranks are those of the uniform numbers of the diamond-square algorithm, in the order of the field's rows. If all
    are medians the field is flat, and f is 0.
    """

    needs_range = True

    thickness: Range = constant("thickness", 0.0)
    decay: Range = constant("decay", 2.0)

    def count_ranks(self, shape: Sequence[int]) -> int:
        """One for each point of the field but the first."""
        return _find_field_size(shape) ** 2 - 1

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        shares = to_shares(inputs, bounds)
        size = _find_field_size(inputs.shape[1:])
        height, width = inputs.shape[-2:]
        thickness = expand(parameters[:, 0], inputs)
        decay = parameters[:, 1]
        ranks = parameters[:, 2:]
        field = make_fractal(ranks, decay, size)[:, None, :height, :width]
        most = shares.amax((1, 2, 3), keepdim=True)
        total = most + thickness
        # an image that is black everywhere has no largest value to divide by
        is_bright = total > 0
        gain = torch.where(is_bright, most / torch.where(is_bright, total, 1.0), 1.0)
        foggy = (shares + thickness * field) * gain
        lower, upper = bounds
        return inputs + (upper - lower) * (foggy - shares)


def _find_field_size(shape: Sequence[int]) -> int:
    """The side of the fractal: the smallest power of two that holds the image."""
    size = 2
    while size < max(shape[-2:]):
        size *= 2
    return size


def make_fractal(ranks: Tensor, decay: Tensor, size: int) -> Tensor:
    """Fields `(M, size, size)` from 0 to 1 by the diamond-square algorithm on a torus.

    From a coarse grid to a fine one, each new point is the mean of its four neighbours plus a uniform number. Its
    largest size falls by the square of the decay from one grid to the next. A field without differences is 0.

    Args:
        ranks: `(M, size^2 - 1)` in [0, 1], for all points but the first, which is 0.
        decay: `(M,)`.
        size: a power of two, at least 2.
    """
    # a median stands for the first point, whose number is 0: it is not drawn
    uniform = functional.pad(ranks, (1, 0), value=0.5)
    noise = (2 * uniform - 1).reshape(-1, size, size)
    decay = decay[:, None, None]
    coarse = torch.zeros_like(noise[:, :1, :1])
    amplitude = torch.ones_like(decay)
    step = size
    while step >= 2:
        half = step // 2
        noise_of_middle = noise[:, half::step, half::step]
        noise_across = noise[:, ::step, half::step]
        noise_down = noise[:, half::step, ::step]
        # `roll` takes the other end of the axis: a torus
        twice = coarse + coarse.roll(-1, 1)
        middle = (twice + twice.roll(-1, 2)) / 4 + amplitude * noise_of_middle
        across = middle + middle.roll(1, 1) + coarse + coarse.roll(-1, 2)
        across = across / 4 + amplitude * noise_across
        down = middle + middle.roll(1, 2) + coarse + coarse.roll(-1, 1)
        down = down / 4 + amplitude * noise_down
        # old and new points take turns along both axes
        even = torch.stack([coarse, across], 3).flatten(2)
        odd = torch.stack([down, middle], 3).flatten(2)
        coarse = torch.stack([even, odd], 2).flatten(1, 2)
        amplitude = amplitude / decay**2
        step = half
    least = coarse.amin((1, 2), keepdim=True)
    most = coarse.amax((1, 2), keepdim=True)
    flat = most <= least
    width = torch.where(flat, 1.0, most - least)
    return torch.where(flat, 0.0, (coarse - least) / width)


@dataclass(frozen=True)
class Snow(Transformation):
    """A whiter image, and flakes that a motion has blurred; the flakes once more, turned by half a turn.

    Flakes are normal noise, enlarged by the zoom, where it is at least the threshold. Flakes appear at the threshold,
    so there are no gradients.
    """

    needs_range = True
    channels = (1, 3)
    differentiable = False

    mean: Range = constant("mean", 0.0)
    scale: Range = constant("scale", 0.0)
    zoom: Range = constant("zoom", 1.0)
    threshold: Range = constant("threshold", 0.5)
    length: Range = constant("length", 0.0)
    kept: Range = constant("share of the image", 1.0)

    def list_axes(self, shape: Sequence[int]) -> list[ParameterAxis]:
        """The constants, and the angle of the flakes' motion."""
        return [
            *super().list_axes(shape),
            ParameterAxis("angle of the snow [degrees]", -90.0, -135.0, -45.0),
        ]

    def count_ranks(self, shape: Sequence[int]) -> int:
        """One for each pixel."""
        return math.prod(shape[-2:])

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        shares = to_shares(inputs, bounds)
        mean, scale, zoom, threshold, length, kept, angle = parameters[:, :7].unbind(1)
        ranks = parameters[:, 7:]
        normal = map_to_normal(ranks).reshape(-1, 1, *inputs.shape[-2:])
        flakes = enlarge(expand(mean, inputs) + expand(scale, inputs) * normal, zoom)
        is_below = flakes < expand(threshold, inputs)
        flakes = torch.where(is_below, 0.0, flakes).clamp(0, 1)
        motion = MotionBlur(self.length, angle=(-135.0, -45.0))
        layer = motion.transform(flakes, torch.stack([length, angle], 1), bounds)
        grey = 1.5 * to_grey(shares) + 0.5
        whiter = torch.maximum(shares, grey) - shares
        white = whiter * (1 - expand(kept, inputs))
        lower, upper = bounds
        return inputs + (upper - lower) * (white + layer + layer.rot90(2, (2, 3)))


@dataclass(frozen=True)
class GlassBlur(Transformation):
    """A Gaussian blur, then pixels that take the value of a pixel nearby, then the same blur.

    The original says that it swaps pixels. Its two sides are views of one array, so it copies instead, and its data
    sets are made by copies. So are ours. Pixels go from the last to the first, at distances from -d to d - 1 in both
    directions. Of each row and column the first d + 1 pixels and the last d - 1 stay.

    In between whole constants, ranges of distances grow continuously, and the last iteration moves only a share of the
    pixels. Moves are whole pixels, so there are no gradients.
    """

    differentiable = False

    sigma: Range = constant("sigma", 0.0)
    distance: Range = constant("largest distance", 1.0)
    iterations: Range = constant("iterations", 0.0)

    def count_ranks(self, shape: Sequence[int]) -> int:
        """Two for each pixel and iteration."""
        _, most = as_range(self.iterations)
        pixels = math.prod(shape[-2:])
        return 2 * math.ceil(most) * pixels

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        blur = GaussianBlur(self.sigma)
        sigma = parameters[:, :1]
        distance = parameters[:, 1]
        iterations = parameters[:, 2]
        images = blur.transform(inputs, sigma, bounds)
        channels, height, width = inputs.shape[1:]
        ranks = parameters[:, 3:].reshape(len(inputs), -1, 2, height, width)
        for number in range(ranks.shape[1]):
            share = (iterations - number).clamp(0, 1)
            source = find_sources(ranks[:, number], distance, share)
            source_of_channels = source[:, None].expand(-1, channels, -1)
            moved = images.flatten(2).gather(2, source_of_channels)
            images = moved.reshape(inputs.shape)
        return blur.transform(images, sigma, bounds)


def find_sources(ranks: Tensor, distance: Tensor, share: Tensor) -> Tensor:
    """Which pixel each pixel gets its value from, after pixels took values one after the other, `(M, H W)`.

    A pixel takes the value of one nearby. If that one comes earlier in the order, it has already taken the value of
    another. Links between pixels are followed by doubling their length until all are at their end.

    Args:
        ranks: for the distances down and to the right, `(M, 2, H, W)`.
        distance: the largest one, `(M,)`.
        share: of pixels that take a value, `(M,)`; the others have first ranks above it.
    """
    height, width = ranks.shape[-2:]
    rank_down, rank_right = ranks.unbind(1)
    reach = distance[:, None, None]
    edge = reach.ceil().long()
    y = torch.arange(height, device=ranks.device)[:, None]
    x = torch.arange(width, device=ranks.device)[None, :]
    part = share[:, None, None]
    inside_height = (y > edge) & (y <= height - edge)
    inside_width = (x > edge) & (x <= width - edge)
    inside = inside_height & inside_width
    moving = inside & (part > 0) & (rank_down <= part)
    # pixels that do not move have no range of distances, and must not divide by 0
    divisor = torch.where(part > 0, part, 1.0)
    within = torch.stack([rank_down / divisor, rank_right], 1)
    offset = (reach[:, None] * (2 * within - 1)).floor()
    # half open, so that rank 1 belongs to the largest distance
    offset = torch.minimum(offset, edge[:, None] - 1)
    step_down, step_right = offset.long().unbind(1)

    # distances whose pixels would lie outside exist only for pixels that do not move
    target_y = (y + step_down).clamp(0, height - 1)
    target_x = (x + step_right).clamp(0, width - 1)
    target = target_y * width + target_x
    position = (y * width + x).expand_as(target)
    target = torch.where(moving, target, position).flatten(1)
    position = position.flatten(1)
    # a later pixel in the order of the rows has its final value already; an earlier one still has its first
    link = torch.where(target > position, target, position)
    while True:
        further = link.gather(1, link)
        if torch.equal(further, link):
            break
        link = further
    # the last pixel of the links takes the value of one that has not moved yet, or keeps its own
    return target.gather(1, link)


@dataclass(frozen=True)
class Elastic(Transformation):
    """A random affine map, and random displacements that a Gaussian has smoothed.

    The perturbed image at p is the clean one at A^-1 (p + d(p)). The affine map A moves three points of a square by
    uniform numbers, up to `corner`. Displacements d are uniform numbers from -1 to 1, smoothed with `sigma`, times
    `amplitude`. All three constants are shares of the shorter side. The image is interpolated once, where the original
    does so for each of the two maps, and is mirrored at its edges.

    A map is taken back to the positions q of the clean image: it is the map at the p with p + d(p) = A q, found by a
    fixed-point iteration. Where displacements fold the image, several p fit, and one of them is taken. Positions where
    the iteration does not end within 0.1 pixels do not count as seen: 1 to 2% at severity 5 of ImageNet-C, where the
    image folds most, none at severities 1 and 2.
    """

    amplitude: Range = constant("amplitude", 0.0)
    sigma: Range = constant("sigma", 0.0)
    corner: Range = constant("corner", 0.0)

    @property
    def aligns(self) -> bool:
        """Maps are moved back."""
        return True

    def count_ranks(self, shape: Sequence[int]) -> int:
        """Those of three points, and of the displacements of all pixels, in x and y."""
        return 6 + 2 * math.prod(shape[-2:])

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        height, width = inputs.shape[-2:]
        shift = self._displace(parameters, height, width)
        deviation, offset = self._find_affine(parameters, height, width)
        (a, b), (c, d) = (row.unbind(1) for row in deviation.unbind(1))
        determinant = (1 + a) * (1 + d) - b * c
        # far beyond the original's images: the affine map would fold the image to a line
        determinant = torch.where(determinant.abs() < 1e-3, 1e-3, determinant)
        # of the inverse minus the identity, so that it is exactly 0 where the deviation is
        first_row = torch.stack([b * c - a * (1 + d), -b], 1)
        second_row = torch.stack([-c, b * c - d * (1 + a)], 1)
        adjugate = torch.stack([first_row, second_row], 1)
        back = adjugate / determinant[:, None, None]
        offset = offset[..., None, None]
        positions = _list_places(height, width, shift) + shift - offset
        total = shift - offset + _apply(back, positions)
        farthest = 4.0 * max(height, width)
        return interpolate(inputs, total.clamp(-farthest, farthest), "reflection")

    def align_maps(self, maps: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        height, width = maps.shape[-2:]
        shift = self._displace(parameters, height, width)
        deviation, offset = self._find_affine(parameters, height, width)
        positions = _list_places(height, width, shift)
        moved = positions + _apply(deviation, positions) + offset[..., None, None]
        farthest = 4.0 * max(height, width)
        # half steps: they also converge where displacements stretch the image
        estimate = moved
        for _ in range(20):
            estimate = estimate - 0.5 * self._miss(estimate, moved, shift)
        missed = self._miss(estimate, moved, shift).abs().amax(1)
        half_sides = send([width / 2, height / 2], maps.device, maps.dtype)
        is_inside = estimate.abs() <= half_sides[:, None, None] + 1e-3
        is_seen = is_inside.all(1) & (missed < 0.1)
        step = (estimate - positions).clamp(-farthest, farthest)
        return interpolate(maps, step, "border"), is_seen[:, None]

    def _miss(self, found: Tensor, moved: Tensor, shift: Tensor) -> Tensor:
        """p + d(p) - A(q) for places p of the perturbed image, in pixels."""
        height, width = shift.shape[-2:]
        farthest = 4.0 * max(height, width)
        step = (found - _list_places(height, width, shift)).clamp(-farthest, farthest)
        return found + interpolate(shift, step, "border") - moved

    def _find_affine(self, parameters: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """The matrix of A minus the identity, `(M, 2, 2)`, and its shift `(M, 2)`, about the middle of the image."""
        side = min(height, width)
        largest = parameters[:, 2, None, None] * side
        uniform = parameters[:, 3:9].reshape(-1, 3, 2)
        points = largest * (2 * uniform - 1)
        first, second, third = points.unbind(1)
        half = max(1, side // 3)
        across = (second - third) / (2 * half)
        down = (first - second) / (2 * half)
        # the difference to the identity, as in `geometry`: without a change the image comes back bit for bit
        deviation = torch.stack([across, down], 2)
        x = width // 2 + half - (width - 1) / 2
        y = height // 2 - half - (height - 1) / 2
        place_of_second = send([x, y], parameters.device, parameters.dtype)
        return deviation, second - (deviation * place_of_second).sum(2)

    def _displace(self, parameters: Tensor, height: int, width: int) -> Tensor:
        """d in x and y, in pixels, `(M, 2, height, width)`."""
        side = min(height, width)
        amplitude = parameters[:, :1, None, None] * side
        # below this sigma the weights of the neighbours are 0 in double precision, too
        sigma = (parameters[:, 1] * side).clamp(min=0.02)
        _, most = as_range(self.sigma)
        # the original cuts its Gaussian at three standard deviations
        reach = int(3 * side * most + 0.5)
        uniform = parameters[:, 9:].reshape(-1, 2, height, width)
        field = 2 * uniform - 1
        down = _make_mirrored_blur(sigma, height, reach)
        across = down
        if width != height:
            across = _make_mirrored_blur(sigma, width, reach)
        return amplitude * (down[:, None] @ field @ across[:, None].mT)


def _list_places(height: int, width: int, like: Tensor) -> Tensor:
    """x and y of the centres of pixels, from the middle of the image, `(1, 2, height, width)`."""
    x, y = list_positions(height, width, like)
    x = x.expand(height, -1)
    y = y.expand(-1, width)
    return torch.stack([x, y])[None]


def _apply(matrices: Tensor, places: Tensor) -> Tensor:
    """2 x 2 matrices `(M, 2, 2)` times places `(M, 2, H, W)`; sums that do not depend on the batch."""
    products = matrices[..., None, None] * places[:, None]
    return products.sum(2)


def _make_mirrored_blur(sigma: Tensor, size: int, reach: int) -> Tensor:
    """The matrix `(M, size, size)` of a Gaussian blur along an axis whose values are mirrored at the edges."""
    position = torch.arange(size, dtype=sigma.dtype, device=sigma.device)
    matrix = torch.zeros(len(sigma), size, size, dtype=sigma.dtype, device=sigma.device)
    width = sigma[:, None, None]
    # a mirror at both edges repeats the axis every 2 * size positions, in turn forwards and backwards
    period = 2 * size
    turns = (reach + size) // period
    for turn in range(-turns - 1, turns + 2):
        forwards = position + period * turn
        backwards = period * turn - 1 - position
        for there in (forwards, backwards):
            step = there[None, :] - position[:, None]
            density = torch.exp(-0.5 * (step / width) ** 2)
            matrix = matrix + torch.where(step.abs() <= reach, density, 0.0)
    return matrix / matrix.sum(2, keepdim=True)
