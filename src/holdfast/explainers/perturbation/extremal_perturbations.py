"""Extremal perturbations: the smooth masks of a given area through which the model sees its class best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.explainers.base import (
    Baseline,
    Explainer,
    check_baseline,
    choose_chunk_rows,
    compute_gradient,
    make_baseline,
)
from holdfast.explainers.perturbation.copies import Output, check_count, check_output, compute_target_scores
from holdfast.explainers.perturbation.smooth_masks import SmoothMask, blur_images, find_area_target
from holdfast.gating import rows_of
from holdfast.model import Classifier, padding_of
from holdfast.records import set_fields

Perturbation = Literal["auto", "blur", "fade"]

# of the paper's 800 steps: how much heavier the area weighs at the end than at the start, whatever the steps
_GROWTH = 1.0035**800
# blurs of an image between which a mask chooses; cells of the masks that the paper's rate of learning is for
_LEVELS, _CELLS = 8, 1024


@dataclass(frozen=True)
class ExtremalPerturbations(Explainer):
    """For each area the smooth mask with the highest score, `argmax of f(m * x) - w |vecsort(M) - r_a|^2`; their mean.

    Fong, Patrick and Vedaldi, Understanding deep networks via extremal perturbations and smooth masks, ICCV 2019, the
    preservation game; the loss of area is taken per pixel, as in the authors' code. The mask `M` is the smooth
    max-convolution of cells `m` in [0, 1] (see `holdfast.explainers.perturbation.smooth_masks.SmoothMask`), `r_a` a
    share `a` of
    ones after zeros, so the sorted mask is drawn to an area of exactly `a`. Where `M` is 1 the input is seen, where it
    is 0 the input blurred with a standard deviation of `blur`, between them a milder blur (linearly interpolated
    between 8, as in the authors' code), or a mixture with a baseline. Cells start at 1 and follow stochastic gradient
    descent with momentum and dampening, clamped to [0, 1]; `w` grows by a factor of 16 on the way (the paper's 1.0035
    in each of 800 steps).

    Attributions `(N, ...)`, the same in all channels, are the mean over the areas of the masks: from 0 to 1, and a
    pixel's value says how many of the areas it belongs to, so what survives in the smallest area ranks first. Images
    and series (as images of one row); flat features, which have no neighbours, are masked one by one. No randomness:
    unlike the authors' code, nothing is flipped or shifted between the steps.

    All areas of all inputs of a chunk are optimised together, each by itself: a step is one forward and one backward
    pass of `len(areas)` rows for an input. That is what the memory is planned for; in all it is `steps` times as many
    rows, which dry runs learn from their timing, not from the number of rows they list. A result is the same in any
    batch; but as an optimisation of many steps amplifies rounding, it may differ a little where memory is too short for
    16 rows at once, and between devices. No derivative.

    Args:
        areas: shares of the mask that are 1, each above 0 and at most 1.
        steps: of the optimisation, at least 1. The paper takes 800, at a tenth of our rate of learning.
        perturbation: `"blur"`, the paper's, for images and series; `"fade"` to a baseline; `"auto"`: blur, but fade for
            flat features.
        blur: the largest standard deviation, as a share of the shorter side, above 0 (the paper's 20 pixels of 224).
        smoothness: the width `sigma` of the max-convolution's kernel, as a share of the shorter side, at least 0 (the
            paper's 21 pixels of 224).
        baseline: what a masked pixel fades to: a number, or one for each channel.
        output: the score: `"logit"`, as in the paper, or `"probability"`.
        learning_rate: above 0, for a mask of 32x32 cells as in the paper; in proportion to the cells for others.
        momentum: at least 0, below 1.
        area_weight: of the loss of area at the first step, above 0. The paper's 300 fixes the place of a mask on small
            images before the score has had its say (on digits, masks of a tenth of the image then keep a sixth of the
            score that they keep with 50).

    Raises:
        ArgumentError: an option out of range; in the call, inputs that are no images, series or flat features, or a
            blur of flat features.

    >>> from holdfast.model import Classifier
    >>> module = torch.nn.Linear(4, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> classifier = Classifier(module, bounds=(0.0, 1.0), device="cpu")
    >>> ExtremalPerturbations(areas=(0.25, 0.5))(classifier, torch.full((1, 4), 0.5), 0).round(decimals=1) + 0.0
    tensor([[0.5000, 0.0000, 0.0000, 1.0000]])
    """

    areas: Sequence[float] = (0.05, 0.1, 0.2)
    steps: int = 100
    perturbation: Perturbation = "auto"
    blur: float = 0.09
    smoothness: float = 0.09
    baseline: Baseline = 0.0
    output: Output = "logit"
    learning_rate: float = 0.1
    momentum: float = 0.9
    area_weight: float = 50.0
    name: ClassVar[str] = "extremal_perturbations"
    differentiable: ClassVar[bool] = False
    gateable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        areas = tuple(self.areas) if isinstance(self.areas, list | tuple) else ()
        fine = len(areas) > 0 and all(isinstance(a, int | float) and 0 < a <= 1 for a in areas)
        check(fine, "areas", "a list of shares, each above 0 and at most 1", repr(self.areas))
        set_fields(self, areas=areas)
        check_count(self.steps, "steps", 1)
        kinds = get_args(Perturbation)
        check(self.perturbation in kinds, "perturbation", f"one of {', '.join(kinds)}", repr(self.perturbation))
        for option in ("blur", "learning_rate", "area_weight"):
            value = getattr(self, option)
            fine = isinstance(value, int | float) and 0 < value < float("inf")
            check(fine, option, "a finite number above 0", repr(value))
        fine = isinstance(self.smoothness, int | float) and 0 <= self.smoothness < float("inf")
        check(fine, "smoothness", "a finite number of at least 0", repr(self.smoothness))
        fine = isinstance(self.momentum, int | float) and 0 <= self.momentum < 1
        check(fine, "momentum", "a number of at least 0 and below 1", repr(self.momentum))
        check_baseline(self.baseline)
        check_output(self.output)

    @property
    def rows_per_input(self) -> int:
        return len(self.areas)

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        masks, logits = self.masks(classifier, x, targets)
        total = masks[:, 0]
        for area in range(1, masks.shape[1]):
            total = total + masks[:, area]
        maps = total / masks.shape[1]
        return maps.reshape(len(x), *([1] if x.ndim > 2 else []), *maps.shape[1:]).expand_as(x).contiguous(), logits

    def masks(self, classifier: Classifier, x: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        """The masks of one chunk `(N, areas, *spatial)`, and the logits `(N, K)` at `x`. For use within a session."""
        check(2 <= x.ndim <= 4, "inputs", "images (N, C, H, W), series (N, C, T) or flat features (N, F)", x.shape)
        kind = self.perturbation if self.perturbation != "auto" else ("fade" if x.ndim == 2 else "blur")
        check(x.ndim > 2 or kind == "fade", "perturbation", "'fade' for flat features", repr(kind))
        with torch.no_grad():
            x = x.detach()
            count, many = len(x), len(self.areas)
            size = choose_chunk_rows(classifier, x, many)
            starts = range(0, count, size)
            logits = torch.cat([_compute_logits(classifier, x, start, size) for start in starts])
            classes = logits.argmax(1) if targets is None else targets
            spatial = tuple(x.shape[1:]) if x.ndim == 2 else tuple(x.shape[2:])
            found = []
            for start in range(0, count * many, size):
                stop = min(start + size, count * many)
                rows = torch.arange(start, stop + padding_of(stop - start, size), device=x.device).clamp(max=stop - 1)
                first, last = start // many, (stop - 1) // many
                masks = self._optimise(classifier, x[first : last + 1], first, classes, rows, kind)
                found.append(masks[: stop - start])
            return torch.cat(found).reshape(count, many, *spatial), logits

    def _optimise(
        self, classifier: Classifier, x: Tensor, first: int, classes: Tensor, rows: Tensor, kind: str
    ) -> Tensor:
        """The masks `(B, H, W)` numbered `rows` `(B,)`; `x` are the inputs that they mask, from number `first` on."""
        owners, areas = rows // len(self.areas), rows % len(self.areas)
        classes, own = classes[owners], owners - first
        height, width = x.shape[2:] if x.ndim == 4 else (1, x.shape[-1])
        shorter = min(height, width) if x.ndim == 4 else width
        smooth = SmoothMask((height, width), self.smoothness * shorter if x.ndim > 2 else 0.0)
        pixels, cells = height * width, smooth.cells[0] * smooth.cells[1]
        ones = [min(max(round(area * pixels), 1), pixels) for area in self.areas]
        wanted = torch.tensor(ones, device=x.device)[areas]
        show = _make_blur(x, own, self.blur * shorter) if kind == "blur" else _make_fade(x, own, self.baseline)
        rate = self.learning_rate * cells / _CELLS
        mask_cells = x.new_ones(len(owners), *smooth.cells)
        velocity = torch.zeros_like(mask_cells)
        for step in range(self.steps):
            masks = smooth(mask_cells)
            weight = self.area_weight * _GROWTH ** (step / self.steps)
            flat = masks.flatten(1)
            gradient = ((2 * weight / pixels) * (flat - find_area_target(flat, wanted))).reshape(masks.shape)
            with torch.enable_grad(), rows_of(owners):
                leaf = smooth.image(masks).contiguous().requires_grad_(True)
                scores = compute_target_scores(classifier.forward(show(leaf)), classes, self.output)
                smooth.image(gradient).sub_(compute_gradient(scores, leaf))
            by_cells = smooth.gradient(gradient)
            dampening = self.momentum if step else 0.0
            velocity = self.momentum * velocity + (1 - dampening) * by_cells
            mask_cells = (mask_cells - rate * velocity).clamp(0, 1)
        return smooth.image(smooth(mask_cells))


def _compute_logits(classifier: Classifier, x: Tensor, start: int, size: int) -> Tensor:
    """Logits at `x[start : start + size]`."""
    stop = min(start + size, len(x))
    rows = torch.arange(start, stop + padding_of(stop - start, size), device=x.device).clamp(max=stop - 1)
    with rows_of(rows):
        return classifier.forward(x[rows])[: stop - start]


def _make_fade(x: Tensor, owners: Tensor, baseline: Baseline) -> Callable[[Tensor], Tensor]:
    """From masks `(B, H, W)` to the rows `x[owners]` seen through them, faded to the baseline."""
    other = make_baseline(baseline, x)
    away = (x - other)[owners]
    spatial = x.shape[1:] if x.ndim == 2 else (1, *x.shape[2:])
    return lambda masks: other + away * masks.reshape(len(masks), *spatial)


def _make_blur(x: Tensor, owners: Tensor, sigma: float) -> Callable[[Tensor], Tensor]:
    """From masks `(B, H, W)` to the rows `x[owners]` seen through them, each pixel as blurred as its mask says."""
    images = x if x.ndim == 4 else x[:, :, None]
    # from the strongest blur to none, and from each to the next
    levels = torch.stack([blur_images(images, sigma * (1 - k / (_LEVELS - 1))) for k in range(_LEVELS)], 1)
    steps = levels.diff(dim=1, append=levels[:, -1:])
    numbers = images[0].numel()
    at_first = (_LEVELS * numbers * owners)[:, None] + torch.arange(numbers, device=x.device)
    at_first = at_first.reshape(-1, *images.shape[1:])

    def show(masks: Tensor) -> Tensor:
        place = (_LEVELS - 1) * masks[:, None]
        level = place.detach().floor().clamp(max=_LEVELS - 2)
        index = at_first + numbers * level.long()
        return (levels.take(index) + steps.take(index) * (place - level)).reshape(-1, *x.shape[1:])

    return show
