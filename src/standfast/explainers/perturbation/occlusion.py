"""Occlusion: how much the score drops when a sliding window is covered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.base import (
    BaselineOption,
    Explanation,
    choose_baseline,
    explainers,
)
from standfast.explainers.perturbation.copies import CopyExplainer, get_map_shape, score_copies
from standfast.explainers.perturbation.segmented import Sides, expand_sides
from standfast.model import Model, Output
from standfast.segments import spatial_shape

# by default: how many windows fit side by side along a side, and how many steps the length of a window takes
_WINDOWS = 8
_STEPS = 2
# default number of windows of a 28x28 image, for estimates: the inputs' size is known in the call only
_USUAL = 169


@explainers.register("occlusion")
@dataclass(frozen=True)
class Occlusion(CopyExplainer):
    """How far the score drops when a window is covered, averaged over all windows that cover a pixel.

    The drop is `f(x) - f(x with the window covered)`.

    Zeiler and Fergus, Visualizing and understanding convolutional networks, ECCV 2014, Section 4.2: a square of a
    baseline's colour slides over the image, and the score of the class is recorded. Windows start every `stride`
    pixels from the corner until one reaches the far end; if they do not fit exactly, the border cuts off the last one.
    They cover all channels. This is Captum's `Occlusion` with a window over all channels, and its mean over windows.

    Inputs and attributions `(N, ...)`: images, series (windows of time) and flat features (windows of neighbouring
    columns); the map is the same in all channels. All windows of all inputs are forwarded as one flat batch: one row
    for each window, `product over axes of 1 + ceil((size - window) / stride)`, and one for the input. The size is known
    in the call only; estimates of the cost assume the 169 windows that a 28x28 image has by default. Not
    differentiable.

    Args:
        window: sides of the window: a number for all axes, or one for each, from 1 to the input's side. By default an
            eighth of each side of images and series, rounded, and 1 for flat features.
        stride: steps between windows: a number for all axes, or one for each, from 1 to the window's side, so that
            every pixel is covered. By default half the window, rounded up.
        baseline: the values of covered pixels: a number, or one for each channel. By default 0, and for tables the
            baseline of the model's reference.
        output: the score: `"probability"`, as in the paper, or `"logit"`.

    Raises:
        ArgumentError: an option out of range; in the call, windows that do not fit the inputs.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(4, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> Occlusion(output="logit")(model, torch.full((1, 4), 0.5), 0)
    tensor([[ 0.5000, -1.0000,  0.0000,  2.0000]])
    >>> Occlusion(window=2, stride=2, output="logit")(model, torch.full((1, 4), 0.5), 0)
    tensor([[-0.5000, -0.5000,  2.0000,  2.0000]])
    """

    window: Sides = None
    stride: Sides = None
    baseline: BaselineOption = None
    output: Output = "probability"
    name = "occlusion"
    has_signs = True
    measures = "contribution"
    removal_options = ("baseline",)

    @property
    def rows_per_input(self) -> int:
        return _USUAL + 1

    def count_rows_of(self, inputs: Tensor) -> int:
        axes = self.lay_out_windows(spatial_shape(inputs), flat=inputs.ndim == 2)
        windows = math.prod(count for _, _, count in axes)
        return windows + 1

    def lay_out_windows(
        self, spatial: tuple[int, ...], flat: bool = False
    ) -> list[tuple[int, int, int]]:
        """For each axis the window's side, the step, and the number of windows along it.

        Args:
            spatial: the sides of the inputs.
            flat: they are flat features.

        >>> Occlusion().lay_out_windows((28, 28)), Occlusion(window=5, stride=3).lay_out_windows((7,))
        ([(4, 2, 13), (4, 2, 13)], [(5, 3, 2)])
        """
        # flat features have no neighbours
        usual_sides = [1] * len(spatial)
        if not flat:
            usual_sides = [max(1, round(size / _WINDOWS)) for size in spatial]
        sides = expand_sides("window", self.window, usual_sides)
        strides = expand_sides("stride", self.stride, [-(-side // _STEPS) for side in sides])
        axes = []
        for size, side, stride in zip(spatial, sides, strides, strict=True):
            check(side <= size, "window", f"at most the inputs' size {spatial}", self.window)
            expected = f"at most the window {tuple(sides)}, so that it covers all"
            check(stride <= side, "stride", expected, self.stride)
            steps = -(-(size - side) // stride)  # rounded up
            axes.append((side, stride, 1 + steps))
        return axes

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        with torch.no_grad():
            x = x.detach()
            spatial = spatial_shape(x)
            axes = self.lay_out_windows(spatial, flat=x.ndim == 2)
            counts = [count for _, _, count in axes]
            many = math.prod(counts)
            inside = []
            for size, (side, stride, count) in zip(spatial, axes, strict=True):
                inside.append(_mark_windows(size, side, stride, count, x))
            other = choose_baseline(model, x, self.baseline)
            shape = get_map_shape(x)

            numbers = torch.arange(many * len(x), device=x.device)
            owners = numbers // many
            positions = _find_places(numbers % many, counts)

            def make_copies(start: int, stop: int) -> Tensor:
                covered = x.new_ones(1)
                for axis, size in enumerate(spatial):
                    along = inside[axis].index_select(0, positions[axis][start:stop])
                    shape_of_axis = [1] * len(spatial)
                    shape_of_axis[axis] = size
                    covered = covered * along.reshape(-1, *shape_of_axis)
                copied = x.index_select(0, owners[start:stop])
                weights = covered.reshape(-1, *shape)
                # lerp is exact at weights 0 and 1
                return torch.lerp(copied, other, weights, out=copied)

            scores, clean_scores, at_x = score_copies(
                model, x, targets, owners, make_copies, self.output
            )
            drops = clean_scores[:, None] - scores.reshape(len(x), many)
            drops = drops.reshape(len(x), *counts)
            for axis, size in enumerate(spatial):
                drops = _average_windows(drops, axis + 1, size, *axes[axis])
            maps = drops.reshape(len(x), *shape)
            return maps.to(x.dtype).expand_as(x).contiguous(), at_x


def _mark_windows(size: int, side: int, stride: int, count: int, x: Tensor) -> Tensor:
    """Which positions of an axis each window covers: ones and zeros `(count, size)`."""
    start = stride * torch.arange(count, device=x.device)[:, None]
    position = torch.arange(size, device=x.device)
    is_inside = (position >= start) & (position < start + side)
    return is_inside.to(x.dtype)


def _average_windows(
    values: Tensor, axis: int, size: int, side: int, stride: int, count: int
) -> Tensor:
    """The mean over the windows that cover each position, along one axis: from `count` entries to `size`.

    The windows that cover a position have consecutive numbers. They are added one by one, so that the last bits do not
    depend on the number of inputs.
    """
    position = torch.arange(size, device=values.device)
    last = (position // stride).clamp(max=count - 1)
    first = ((position - side) // stride + 1).clamp(min=0)
    covering = last - first + 1
    shape = [1] * values.ndim
    shape[axis] = size
    total = values.index_select(axis, first)
    for offset in range(1, -(-side // stride)):
        covers = (offset < covering).reshape(shape)
        window = (first + offset).clamp(max=count - 1)
        values_of_window = values.index_select(axis, window)
        total = total + torch.where(covers, values_of_window, 0.0)
    return total / covering.reshape(shape)


def _find_places(numbers: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """The places of windows along each axis, from their numbers.

    `torch.unravel_index` gives the same, and imports sympy, which takes a second in each process.
    """
    positions: list[Tensor] = []
    for count in reversed(counts):
        positions.insert(0, numbers % count)
        numbers = numbers // count
    return positions
