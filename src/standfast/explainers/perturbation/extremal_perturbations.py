"""Extremal perturbations: smooth masks of a given area that keep the score of the class as high as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.base import (
    BaselineOption,
    Explainer,
    Explanation,
    choose_baseline,
    choose_chunk_rows,
    explainers,
)
from standfast.explainers.perturbation.smooth_masks import SmoothMask, blur_images, find_area_target
from standfast.function_calls import compute_gradient
from standfast.gating import rows_of
from standfast.model import Model, Output, count_padding, pad_rows
from standfast.needs import Needs
from standfast.records import AtLeastZero, Count, Positive, Range
from standfast.tasks import measure_score
from standfast.tensors import send

Perturbation = Literal["auto", "blur", "fade"]

# by how much the weight of the area grows during the optimisation: as in the paper's 800 steps, for any number of steps
_GROWTH = 1.0035**800
# how many blurred versions of an image masks interpolate between; cells of a mask that the learning rate refers to
_LEVELS = 8
_CELLS = 1024


def _check_areas(areas: object, name: str) -> tuple[float, ...]:
    shares = tuple(areas) if isinstance(areas, list | tuple) else ()
    fine = len(shares) > 0
    for share in shares:
        fine = fine and isinstance(share, int | float) and 0 < share <= 1
    check(fine, name, "a list of shares, each above 0 and at most 1", repr(areas))
    return shares


@explainers.register("extremal_perturbations")
@dataclass(frozen=True)
class ExtremalPerturbations(Explainer):
    """The mean over several areas of the smooth mask with the highest score.

    Fong, Patrick and Vedaldi, Understanding deep networks via extremal perturbations and smooth masks, ICCV 2019, the
    preservation game: for each area `a` it finds `argmax over m of f(m * x) - w |vecsort(M) - r_a|^2`.

    - The mask `M` is the smooth max-convolution of cells `m` in [0, 1] (see
      `standfast.explainers.perturbation.smooth_masks.SmoothMask`).
    - `r_a` is a vector of zeros followed by a share `a` of ones. So the sorted mask approaches an area of exactly `a`.
      The area loss is taken per pixel, as in the authors' code.
    - Where `M` is 1, the model sees the input; where it is 0, the input blurred with a standard deviation of `blur`.
      Between 0 and 1 it sees a milder blur (interpolated linearly between 8 levels, as in the authors' code). With
      `perturbation="fade"` it sees a mixture with a baseline.
    - Cells start at 1 and follow stochastic gradient descent with momentum and dampening, clamped to [0, 1]. `w` grows
      by a factor of 16 during the optimisation (the paper's factor of 1.0035 in each of 800 steps).

    Attributions `(N, ...)` are from 0 to 1 and the same in all channels. The value of a pixel is the share of the
    areas that it belongs to, so pixels of the smallest area rank first. For images and series (as images of one row).
    Flat features have no neighbours: each has a cell of its own. There is no randomness: unlike in the authors' code,
    inputs are not flipped or shifted between the steps. Not differentiable.

    Cost: all areas of all inputs of a chunk are optimised together. A step is one forward and one backward pass of
    `len(areas)` rows for each input; memory is planned for these rows. In all, `steps` times as many rows are
    forwarded. A dry run shows this in its time, not in the number of rows that it lists.

    A result does not depend on the batch. But many steps amplify rounding errors. So results may differ slightly
    between devices, and where memory is too short for 16 rows at once.

    Args:
        areas: shares of the mask that are 1, each above 0 and at most 1.
        steps: of the optimisation, at least 1. The paper takes 800, with a tenth of this learning rate.
        perturbation: `"blur"`, as in the paper, for images and series; `"fade"` to a baseline; `"auto"`: blur, but fade
            for flat features.
        blur: the largest standard deviation, as a share of the shorter side, above 0 (in the paper 20 of 224 pixels).
        smoothness: the width `sigma` of the max-convolution's kernel, as a share of the shorter side, at least 0 (in
            the paper 21 of 224 pixels).
        baseline: what a masked pixel fades to: a number, or one for each channel. By default 0, and for tables the
            baseline of the model's reference.
        output: the score: `"logit"`, as in the paper, or `"probability"`.
        learning_rate: above 0, for a mask of 32x32 cells as in the paper. For other masks it is multiplied by their
            number of cells over that of 32x32.
        momentum: at least 0, below 1.
        area_weight: `w` at the first step, above 0. The paper's 300 is too large for small images: it fixes the mask
            before the score has an influence. (On digits, masks of a tenth of the image then keep a sixth of the score
            that they keep with 50.)

    Raises:
        ArgumentError: an option out of range; in the call, inputs that are not images, series or flat features, or a
            blur of flat features.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(4, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> ExtremalPerturbations(areas=(0.25, 0.5))(model, torch.full((1, 4), 0.5), 0).round(decimals=1) + 0.0
    tensor([[0.5000, 0.0000, 0.0000, 1.0000]])
    """

    areas: Annotated[Sequence[float], _check_areas] = (0.05, 0.1, 0.2)
    steps: Count = 100
    perturbation: Perturbation = "auto"
    blur: Positive = 0.09
    smoothness: AtLeastZero = 0.09
    baseline: BaselineOption = None
    output: Output = "logit"
    learning_rate: Positive = 0.1
    momentum: Annotated[float, Range(least=0, below=1)] = 0.9
    area_weight: Positive = 50.0
    name = "extremal_perturbations"
    has_signs = True
    removal_options = ("baseline",)
    needs = Needs(gradients=True)
    gateable = True

    @property
    def rows_per_input(self) -> int:
        return len(self.areas)

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        masks, logits = self.find_masks(model, x, targets)
        total = masks[:, 0]
        for area in range(1, masks.shape[1]):
            total = total + masks[:, area]
        maps = total / masks.shape[1]
        # all channels of a pixel have the same mask
        if x.ndim > 2:
            maps = maps[:, None]
        return maps.expand_as(x).contiguous(), logits

    def find_masks(self, model: Model, x: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        """The masks of one chunk `(N, areas, *spatial)`, and the logits `(N, K)` at `x`. For use within a session."""
        expected = "images (N, C, H, W), series (N, C, T) or flat features (N, F)"
        check(2 <= x.ndim <= 4, "inputs", expected, x.shape)
        kind = self.perturbation
        if kind == "auto":
            kind = "fade" if x.ndim == 2 else "blur"
        check(x.ndim > 2 or kind == "fade", "perturbation", "'fade' for flat features", repr(kind))
        with torch.no_grad():
            x = x.detach()
            count = len(x)
            many = len(self.areas)
            size = choose_chunk_rows(model, x, many)
            starts = range(0, count, size)
            logits = torch.cat([_compute_logits(model, x, start, size) for start in starts])
            classes = targets
            if classes is None:
                classes = model.task.answer(logits)
            spatial = x.shape[1:] if x.ndim == 2 else x.shape[2:]
            parts = []
            for start in range(0, count * many, size):
                stop = min(start + size, count * many)
                rows = _number_rows(start, stop, size, x.device)
                first = start // many
                last = (stop - 1) // many
                owners = x[first : last + 1]
                masks = self._optimise(model, owners, first, classes, rows, kind)
                parts.append(masks[: stop - start])
            return torch.cat(parts).reshape(count, many, *spatial), logits

    def _optimise(
        self, model: Model, x: Tensor, first: int, classes: Tensor, rows: Tensor, kind: str
    ) -> Tensor:
        """The masks `(B, H, W)` with the numbers `rows` `(B,)`; `x` are their inputs, from number `first` on."""
        owners = rows // len(self.areas)
        areas = rows % len(self.areas)
        classes = classes[owners]
        numbers = owners - first
        # series are images of one row
        height = 1
        width = shorter = x.shape[-1]
        if x.ndim == 4:
            height = x.shape[2]
            shorter = min(height, width)
        # flat features have no neighbours
        sigma = 0.0
        if x.ndim > 2:
            sigma = self.smoothness * shorter
        smooth = SmoothMask((height, width), sigma, x.device)
        pixels = height * width
        cells = smooth.cells[0] * smooth.cells[1]
        ones = []
        for area in self.areas:
            ones.append(min(max(round(area * pixels), 1), pixels))
        target_area = send(ones, x.device)[areas]
        other = choose_baseline(model, x, self.baseline)
        if kind == "blur":
            perturb = _make_blur(x, numbers, self.blur * shorter)
        else:
            perturb = _make_fade(x, numbers, other)
        rate = self.learning_rate * cells / _CELLS
        mask_cells = x.new_ones(len(owners), *smooth.cells)
        velocity = torch.zeros_like(mask_cells)
        for step in range(self.steps):
            masks = smooth(mask_cells)
            weight = self.area_weight * _GROWTH ** (step / self.steps)
            flat = masks.flatten(1)
            # the derivative of w |M - target|^2 / P
            excess = flat - find_area_target(flat, target_area)
            gradient = ((2 * weight / pixels) * excess).reshape(masks.shape)
            with torch.enable_grad(), rows_of(owners):
                leaf = smooth.crop_to_image(masks).contiguous().requires_grad_(True)
                outputs = model.forward(perturb(leaf))
                scores = measure_score(model.task, outputs, classes, self.output)
                # no part of the image lies in the margin, so only the area counts there
                smooth.crop_to_image(gradient).sub_(compute_gradient(scores, leaf))
            by_cells = smooth.propagate_gradient(gradient)
            # as in torch's SGD, which has no dampening at its first step
            dampening = self.momentum if step else 0.0
            velocity = self.momentum * velocity + (1 - dampening) * by_cells
            mask_cells = (mask_cells - rate * velocity).clamp(0, 1)
        return smooth.crop_to_image(smooth(mask_cells))


def _number_rows(start: int, stop: int, size: int, device: torch.device) -> Tensor:
    """The numbers from `start` to `stop`, the last one repeated so that the batch is large enough."""
    return pad_rows(
        torch.arange(start, stop, device=device), count_padding(stop - start, size, device)
    )


def _compute_logits(model: Model, x: Tensor, start: int, size: int) -> Tensor:
    """Logits at `x[start : start + size]`, padded to a batch that is large enough."""
    stop = min(start + size, len(x))
    rows = _number_rows(start, stop, size, x.device)
    with rows_of(rows):
        return model.forward(x[rows])[: stop - start]


def _make_fade(x: Tensor, owners: Tensor, other: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from masks `(B, H, W)` to the rows `x[owners]`, faded to `other` where they are masked."""
    difference = (x - other)[owners]
    spatial = x.shape[1:] if x.ndim == 2 else (1, *x.shape[2:])

    def perturb(masks: Tensor) -> Tensor:
        shares = masks.reshape(len(masks), *spatial)
        return other + difference * shares

    return perturb


def _make_blur(x: Tensor, owners: Tensor, sigma: float) -> Callable[[Tensor], Tensor]:
    """A function from masks `(B, H, W)` to the rows `x[owners]`, each pixel blurred as strongly as its mask says."""
    images = x if x.ndim == 4 else x[:, :, None]
    # levels from the strongest blur to none, and the differences between consecutive levels
    blurred = []
    for k in range(_LEVELS):
        share = 1 - k / (_LEVELS - 1)
        blurred.append(blur_images(images, sigma * share))
    levels = torch.stack(blurred, 1)
    steps = levels.diff(dim=1, append=levels[:, -1:])
    numbers = images[0].numel()
    # where in `levels` the numbers of the first level stand
    begin = (_LEVELS * numbers * owners)[:, None]
    at_first = begin + torch.arange(numbers, device=x.device)
    at_first = at_first.reshape(-1, *images.shape[1:])

    def perturb(masks: Tensor) -> Tensor:
        position = (_LEVELS - 1) * masks[:, None]
        # a mask of 1 is the end of the last interval, and not the beginning of another one
        level = position.detach().floor().clamp(max=_LEVELS - 2)
        index = at_first + numbers * level.long()
        rest = position - level
        perturbed = levels.take(index) + steps.take(index) * rest
        return perturbed.reshape(-1, *x.shape[1:])

    return perturb
