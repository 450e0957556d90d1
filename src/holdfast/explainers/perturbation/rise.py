"""RISE: the mean of random masks, each weighted by the score of the input seen through it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.explainers.base import Baseline, Explainer, check_baseline, check_seed, make_baseline
from holdfast.explainers.perturbation.copies import Output, check_count, check_output, get_map_shape, score_copies
from holdfast.model import Classifier
from holdfast.records import set_fields
from holdfast.segments import WINDOWS, spatial_shape

# cells along a side of an image
_CELLS = 7
# numbers in masks that are kept between calls (32 MB); more are made anew, a block at a time
_KEPT = 1 << 23
# masks that are made at once to be weighted and added up
_BLOCK = 64


@dataclass(frozen=True)
class RISE(Explainer):
    """`S = 1 / (E[M] N) * sum over i of f(x * M_i) M_i` for N random masks `M_i`, `E[M] = keep`.

    Petsiuk, Das and Saenko, RISE: randomized input sampling for explanation of black-box models, BMVC 2018,
    Equations 4 to 6 and Section 3.2. A mask is a coarse grid of `h x w` cells, each 1 with probability `keep`, else 0,
    enlarged bilinearly to `(h + 1) C x (w + 1) C'` with cells of `C = ceil(H / h)` by `C' = ceil(W / w)` pixels
    (rounded up as in the authors' code, so that it is never too small), and cut out at a random place, an offset below
    one cell along each axis. A pixel under mask value `m` shows `m` of itself and `1 - m` of the baseline. `S`
    estimates `E[f(x * M) M] / E[M]`, for on-off masks the expected score given that the pixel is kept (Equation 3); it
    is positive where the score is, and only its differences between pixels tell.

    Inputs and attributions `(N, ...)`: images, series (the same along one axis), the same in all channels. Of flat
    features, which have no neighbours, each is kept or not by itself. The masks are drawn once for each size, from
    `seed`, and shared by all inputs: the explanation is a deterministic function of the input. `samples + 1` rows for
    an input. No derivative.

    Args:
        samples: masks, at least 1. The paper takes 4000 to 8000 for photos; 500 are enough to rank the 49 cells of
            small images, and the noise falls with the root of their number.
        cells: of the grid along each axis: a number, or one for each axis, at least 1; not more than the axis is long
            are taken. By default 7 along each side of an image (the paper's), 20 along a series.
        keep: the probability of a cell to be kept, above 0 and below 1.
        baseline: what is shown where a mask is 0: a number, or one for each channel.
        output: the score: `"probability"`, as in the paper, or `"logit"`.
        seed: of the masks.

    Raises:
        ArgumentError: an option out of range; in the call, cells for flat features, or for another number of axes.

    >>> from holdfast.model import Classifier
    >>> module = torch.nn.Linear(4, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> classifier = Classifier(module, bounds=(0.0, 1.0), device="cpu")
    >>> RISE()(classifier, torch.full((1, 4), 0.5), 0).argsort().tolist()
    [[1, 2, 0, 3]]
    """

    samples: int = 500
    cells: int | Sequence[int] | None = None
    keep: float = 0.5
    baseline: Baseline = 0.0
    output: Output = "probability"
    seed: int = 0
    name: ClassVar[str] = "rise"
    differentiable: ClassVar[bool] = False
    gateable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count(self.samples, "samples", 1)
        if isinstance(self.cells, list):
            set_fields(self, cells=tuple(self.cells))
        each = self.cells if isinstance(self.cells, tuple) else (1 if self.cells is None else self.cells,)
        fine = len(each) > 0 and all(type(n) is int and n >= 1 for n in each)
        check(fine, "cells", "a whole number of at least 1, or one for each axis", repr(self.cells))
        fine = isinstance(self.keep, int | float) and 0 < self.keep < 1
        check(fine, "keep", "a number above 0 and below 1", repr(self.keep))
        check_baseline(self.baseline)
        check_output(self.output)
        check_seed(self.seed)

    @property
    def rows_per_input(self) -> int:
        return self.samples + 1

    def masks(self, x: Tensor) -> Callable[[int, int], Tensor]:
        """The masks for inputs such as `x` `(N, ...)`: from numbers `start` and `stop` to the masks between them.

        >>> RISE(samples=9).masks(torch.zeros(1, 3, 28, 28))(2, 6).shape
        torch.Size([4, 28, 28])
        """
        spatial = spatial_shape(x)
        drawn = Drawing(self.samples, self._choose_grid(x), spatial, x.ndim == 2, float(self.keep), self.seed)
        if not drawn.plain and self.samples * math.prod(spatial) > _KEPT:
            grids, offsets = _draw_grids(drawn, x.device)
            return lambda start, stop: enlarge_grids(grids[start:stop].to(x.dtype), offsets[start:stop], spatial)
        kept = _make_masks(drawn, x.device, x.dtype)
        return lambda start, stop: kept[start:stop]

    def _choose_grid(self, x: Tensor) -> tuple[int, ...]:
        """Cells along each axis."""
        spatial = spatial_shape(x)
        if x.ndim == 2:
            check(self.cells is None, "cells", "None for flat features, each of which is a cell", self.cells)
            return spatial
        usual = _CELLS if len(spatial) > 1 else WINDOWS
        cells = usual if self.cells is None else self.cells
        each = tuple(cells) if isinstance(cells, Sequence) else (cells,) * len(spatial)
        check(len(each) == len(spatial), "cells", f"one number, or {len(spatial)} (one for each axis)", len(each))
        return tuple(min(n, size) for n, size in zip(each, spatial, strict=True))

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        with torch.no_grad():
            x, count = x.detach(), len(x)
            masks, shape = self.masks(x), get_map_shape(x)
            other = make_baseline(self.baseline, x)
            away = x - other

            # all inputs behind a mask, then all behind the next: a mask is made once for all inputs of the chunk. The
            # products are written out: a fused one would round otherwise at the end of a row than within it
            def copies(first: int, numbers: Tensor) -> Tensor:
                start, stop = first // count, (first + len(numbers) - 1) // count + 1
                block = masks(start, stop).reshape(-1, *shape).index_select(0, numbers // count - start)
                return away.index_select(0, numbers % count).mul_(block).add_(other)

            scores, _, at_x = score_copies(
                classifier, x, targets, lambda numbers: numbers % count, copies, count * self.samples, self.output
            )
            scores = scores.reshape(self.samples, count, *[1] * len(shape)) / (self.keep * self.samples)
            total = scores.new_zeros(count, *shape)
            for start in range(0, self.samples, _BLOCK):
                block = masks(start, start + _BLOCK).double().reshape(-1, *shape)
                # one mask after the other, for all inputs: a matrix product's last bits depend on how many there are
                for mask, score in zip(block, scores[start : start + _BLOCK], strict=True):
                    total += score * mask
            return total.to(x.dtype).expand_as(x).contiguous(), at_x


@dataclass(frozen=True)
class Drawing:
    """Which masks: how many, cells along each axis, the size, each cell by itself, the share kept, the seed."""

    samples: int
    grid: tuple[int, ...]
    spatial: tuple[int, ...]
    plain: bool
    keep: float
    seed: int


@lru_cache(maxsize=16)
def _draw_grids(drawing: Drawing, device: torch.device) -> tuple[Tensor, Tensor]:
    """Grids, bool `(R, *grid)`, and offsets `(R, axes)`; made on the CPU so that they are the same on every device."""
    generator = torch.Generator().manual_seed(drawing.seed)
    uniform = torch.rand(drawing.samples, *drawing.grid, generator=generator, dtype=torch.float64)
    cell = torch.tensor([-(-size // cells) for size, cells in zip(drawing.spatial, drawing.grid, strict=True)])
    offsets = torch.rand(drawing.samples, len(cell), generator=generator, dtype=torch.float64) * cell
    return (uniform < drawing.keep).to(device), offsets.long().to(device)


@lru_cache(maxsize=4)
def _make_masks(drawing: Drawing, device: torch.device, dtype: torch.dtype) -> Tensor:
    """All masks `(R, *spatial)`; never written to."""
    grids, offsets = _draw_grids(drawing, device)
    return grids.to(dtype) if drawing.plain else enlarge_grids(grids.to(dtype), offsets, drawing.spatial)


def enlarge_grids(grids: Tensor, offsets: Tensor, spatial: tuple[int, ...]) -> Tensor:
    """Grids `(R, *cells)` enlarged linearly to one cell more than `spatial`, and cut out at `offsets` `(R, axes)`.

    As `torch.nn.functional.interpolate` does without `align_corners`, one axis after the other.

    >>> enlarge_grids(torch.tensor([[0.0, 1.0]]), torch.tensor([[0]]), (4,))
    tensor([[0.0000, 0.0000, 0.3333, 0.6667]])
    """
    masks = grids
    for axis, size in enumerate(spatial):
        cells = grids.shape[1 + axis]
        scale = cells / ((cells + 1) * -(-size // cells))
        place = offsets[:, axis, None] + torch.arange(size, device=grids.device)
        place = ((place.double() + 0.5) * scale - 0.5).clamp(min=0)
        low = place.long().clamp(max=cells - 1)
        part = (place - low).to(grids.dtype)
        shape = [len(grids), *[1] * axis, size, *[1] * (len(spatial) - axis - 1)]
        wide = [size if a == axis + 1 else n for a, n in enumerate(masks.shape)]
        below, above = (
            masks.gather(axis + 1, index.reshape(shape).expand(wide)) for index in (low, (low + 1).clamp(max=cells - 1))
        )
        masks = below + part.reshape(shape) * (above - below)
    return masks
