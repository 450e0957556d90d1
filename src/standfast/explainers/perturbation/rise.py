"""RISE: the mean of random masks, each weighted by the score of the masked input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.base import BaselineOption, Explanation, Seed, choose_baseline, explainers
from standfast.explainers.perturbation.copies import CopyExplainer, get_map_shape, score_copies
from standfast.explainers.perturbation.segmented import Sides, expand_sides
from standfast.model import Model, Output
from standfast.records import Count, Fraction
from standfast.segments import WINDOWS, spatial_shape

# cells along a side of an image
_CELLS = 7
# masks of at most this many entries in all (32 MB) are kept between calls; others are made again, block by block
_KEPT = 1 << 23
# masks in a block that are weighted and added up
_BLOCK = 64


@explainers.register("rise")
@dataclass(frozen=True)
class RISE(CopyExplainer):
    """The mean of smooth random masks, weighted by the score of the masked input.

    `S = 1 / (E[M] N) * sum over i of f(x * M_i) M_i` for N random masks `M_i`, `E[M] = keep`.

    Petsiuk, Das and Saenko, RISE: randomized input sampling for explanation of black-box models, BMVC 2018, Equations
    4 to 6 and Section 3.2. A mask is made from a coarse grid of `h x w` cells, each 1 with probability `keep`, else 0.
    The grid is enlarged bilinearly to `(h + 1) C x (w + 1) C'` pixels, with cells of `C = ceil(H / h)` by
    `C' = ceil(W / w)` (rounded up as in the authors' code, so that it is large enough). It is then cropped at a random
    offset of less than one cell along each axis. A pixel with mask value `m` becomes `m` times itself plus `1 - m`
    times the baseline.

    `S` estimates `E[f(x * M) M] / E[M]`. For masks of zeros and ones this is the expected score given that the pixel is
    kept (Equation 3). It is positive where the score is, and only its differences between pixels have a meaning.

    Inputs and attributions `(N, ...)`: images, and series (with cells along time); the map is the same in all
    channels. Flat features have no neighbours: each of them is a cell. The masks are drawn once for each size, from
    `seed`, and are the same for all inputs. So the explanation is a deterministic function of the input.
    `samples + 1` rows for each input. Not differentiable.

    Args:
        samples: masks, at least 1. The paper uses 4000 to 8000 for photos. 500 are enough to rank the 49 cells of small
            images; the noise decreases with the square root of the number.
        cells: of the grid along each axis: a number, or one for each axis, at least 1. An axis never has more cells
            than positions. By default 7 along each side of an image (as in the paper), 20 along a series.
        keep: the probability that a cell is kept, above 0 and below 1.
        baseline: the values where a mask is 0: a number, or one for each channel. By default 0, and for tables the
            baseline of the model's reference.
        output: the score: `"probability"`, as in the paper, or `"logit"`.
        seed: of the masks.

    Raises:
        ArgumentError: an option out of range; in the call, cells for flat features, or for another number of axes.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(4, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> RISE()(model, torch.full((1, 4), 0.5), 0).argsort().tolist()
    [[1, 2, 0, 3]]
    """

    samples: Count = 500
    cells: Sides = None
    keep: Fraction = 0.5
    baseline: BaselineOption = None
    output: Output = "probability"
    seed: Seed = 0
    name = "rise"
    # a score where a pixel is kept is above 0 for pixels that lower it, too
    has_signs = False
    dial = "samples"
    removal_options = ("baseline",)

    @property
    def rows_per_input(self) -> int:
        return self.samples + 1

    def draw_masks(self, x: Tensor) -> Callable[[int, int], Tensor]:
        """Draw the masks for inputs with the shape of `x` `(N, ...)`.

        Returns a function of two numbers, `start` and `stop`, that gives the masks between them.

        >>> RISE(samples=9).draw_masks(torch.zeros(1, 3, 28, 28))(2, 6).shape
        torch.Size([4, 28, 28])
        """
        spatial = spatial_shape(x)
        grid = self._choose_grid(x)
        drawn = (self.samples, grid, spatial, float(self.keep), self.seed, x.device)
        if x.ndim > 2 and self.samples * math.prod(spatial) > _KEPT:
            grids, offsets = _draw_grids(*drawn)
            return lambda start, stop: enlarge_grids(
                grids[start:stop].to(x.dtype), offsets[start:stop], spatial
            )
        if x.ndim > 2:
            kept = _make_masks(*drawn, x.dtype)
        else:
            kept = _draw_grids(*drawn)[0].to(x.dtype)
        return lambda start, stop: kept[start:stop]

    def _choose_grid(self, x: Tensor) -> tuple[int, ...]:
        """The number of cells along each axis."""
        spatial = spatial_shape(x)
        if x.ndim == 2:
            check(
                self.cells is None,
                "cells",
                "None for flat features, each of which is a cell",
                self.cells,
            )
            return spatial
        usual = _CELLS if len(spatial) > 1 else WINDOWS
        cells = expand_sides("cells", self.cells, [usual] * len(spatial))
        return tuple(min(n, size) for n, size in zip(cells, spatial, strict=True))

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        with torch.no_grad():
            x = x.detach()
            count = len(x)
            masks = self.draw_masks(x)
            shape = get_map_shape(x)
            other = choose_baseline(model, x, self.baseline)
            away = x - other

            # all inputs with the first mask, then all with the second: a mask is made once for all inputs of the chunk.
            numbers = torch.arange(count * self.samples, device=x.device)
            owners = numbers % count
            which = numbers // count

            # product and sum are separate steps: a fused operation rounds differently at the end of a row
            def make_copies(start: int, stop: int) -> Tensor:
                first = start // count
                end = (stop - 1) // count + 1
                block = masks(first, end).reshape(-1, *shape)
                masks_of_copies = block.index_select(0, which[start:stop] - first)
                copies = away.index_select(0, owners[start:stop])
                return copies.mul_(masks_of_copies).add_(other)

            scores, _, at_x = score_copies(model, x, targets, owners, make_copies, self.output)
            expected_count = self.keep * self.samples
            scores = scores.reshape(self.samples, count, *[1] * len(shape))
            scores = scores / expected_count
            total = scores.new_zeros(count, *shape)
            for start in range(0, self.samples, _BLOCK):
                block = masks(start, start + _BLOCK).double().reshape(-1, *shape)
                # not a matrix product: its last bits depend on the number of inputs
                for mask, score in zip(block, scores[start : start + _BLOCK], strict=True):
                    total += score * mask
            return total.to(x.dtype).expand_as(x).contiguous(), at_x


@lru_cache(maxsize=16)
def _draw_grids(
    samples: int,
    cells: tuple[int, ...],
    spatial: tuple[int, ...],
    keep: float,
    seed: int,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Grids, bool `(R, *cells)`, and offsets `(R, axes)`; drawn on the CPU, so the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(samples, *cells, generator=generator, dtype=torch.float64)
    # of a cell, rounded up
    sides = [-(-size // count) for size, count in zip(spatial, cells, strict=True)]
    shares = torch.rand(samples, len(sides), generator=generator, dtype=torch.float64)
    offsets = shares * torch.tensor(sides)
    return (uniform < keep).to(device), offsets.long().to(device)


@lru_cache(maxsize=4)
def _make_masks(
    samples: int,
    cells: tuple[int, ...],
    spatial: tuple[int, ...],
    keep: float,
    seed: int,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """All masks `(R, *spatial)`. Do not write to them."""
    grids, offsets = _draw_grids(samples, cells, spatial, keep, seed, device)
    return enlarge_grids(grids.to(dtype), offsets, spatial)


def enlarge_grids(grids: Tensor, offsets: Tensor, spatial: tuple[int, ...]) -> Tensor:
    """Grids `(R, *cells)` enlarged linearly to one cell more than `spatial`, and cropped at `offsets` `(R, axes)`.

    The interpolation is that of `torch.nn.functional.interpolate` without `align_corners`, one axis after the other.

    >>> enlarge_grids(torch.tensor([[0.0, 1.0]]), torch.tensor([[0]]), (4,))
    tensor([[0.0000, 0.0000, 0.3333, 0.6667]])
    """
    masks = grids
    for axis, size in enumerate(spatial):
        cells = grids.shape[1 + axis]
        last = cells - 1
        side = -(-size // cells)
        # as `interpolate` does it: the size before over the size after
        scale = cells / ((cells + 1) * side)
        position = offsets[:, axis, None] + torch.arange(size, device=grids.device)
        position = ((position.double() + 0.5) * scale - 0.5).clamp(min=0)
        low = position.long().clamp(max=last)
        high = (low + 1).clamp(max=last)
        # one number for each mask and position of this axis
        shape = [1] * masks.ndim
        shape[0] = len(grids)
        shape[axis + 1] = size
        part = (position - low).to(grids.dtype).reshape(shape)
        enlarged = list(masks.shape)
        enlarged[axis + 1] = size
        below = masks.gather(axis + 1, low.reshape(shape).expand(enlarged))
        above = masks.gather(axis + 1, high.reshape(shape).expand(enlarged))
        masks = below + part * (above - below)
    return masks
