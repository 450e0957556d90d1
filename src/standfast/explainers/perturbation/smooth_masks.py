"""Smooth masks, their area loss and blurred images: the parts of extremal perturbations.

Fong, Patrick and Vedaldi, Understanding deep networks via extremal perturbations and smooth masks, ICCV 2019. Masks are
`(B, H, W)`; series are images of one row. Each row is computed by itself, by elementwise operations in a fixed order.
So the bits of a mask do not depend on the other rows in the batch.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from standfast.tensors import send

# the kernel is 1 up to half its width, and ends where it has decreased to exp(-2); the inverse temperature of the soft
# maximum; the largest number of cells along a side of a mask
_PLATEAU = 0.5
_REACH = 1.5
_INVERSE_TEMPERATURE = 20.0
_CELLS = 32
# standard deviations at which a Gaussian is cut off
_TAIL = 5.0

Offset = tuple[int, int]


class SmoothMask:
    """The smooth max-convolution: masks from cells `(B, h, w)`, all in [0, 1].

    `M(u) = smax over v of k(u - v) m(v)` with `smax f = sum f exp(f / T) / sum exp(f / T)` and `T = 1 / 20`. The
    maximum is over the cells v within reach of pixel u. The kernel is that of the authors,
    `k(z) = exp(-2 max(0, |z| / sigma - 1 / 2)^2)` for distances up to `1.5 sigma`. Cells are squares of
    `ceil(side / 32)` pixels, so single pixels in images of up to 32x32. Distances are to their centres.

    As in the authors' code, a mask extends by a margin of about sigma beyond the image; cells in the margin are 0. Mask
    values in the margin count as area, but no part of the image lies there. Without the margin, masks at the border
    would have less area for the same score, and masks would move to the corners.

    Args:
        spatial: `(H, W)`.
        sigma: in pixels, at least 0. With 0 a mask equals its cells.
        device: of the cells.

    >>> operator = SmoothMask((1, 3), 0.0)
    >>> operator(torch.tensor([[[0.0, 0.25, 1.0]]]))
    tensor([[[0.0000, 0.2500, 1.0000]]])
    """

    def __init__(self, spatial: Offset, sigma: float, device: torch.device | None = None) -> None:
        self.spatial = spatial
        height, width = spatial
        # rounded up
        side_down = -(-height // _CELLS)
        side_right = -(-width // _CELLS)
        cells_down = -(-height // side_down)
        cells_right = -(-width // side_right)
        self.side = (side_down, side_right)
        self.cells = (cells_down, cells_right)
        # cells in the margin, and the reach of a pixel in cells; both 0 along an axis of a single cell
        margin_down = math.ceil(sigma / side_down) if cells_down > 1 else 0
        margin_right = math.ceil(sigma / side_right) if cells_right > 1 else 0
        self.margin = (margin_down, margin_right)
        self.taps = []
        for kernel, offsets in _find_taps(self.cells, self.side, sigma):
            kernel_on_device = send(kernel, device or kernel.device)
            self.taps.append((kernel_on_device, offsets))
        reach_down = reach_right = 0
        for _, offsets in self.taps:
            for down, right in offsets:
                reach_down = max(reach_down, abs(down))
                reach_right = max(reach_right, abs(right))
        self.reach = (reach_down, reach_right)
        self._last: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self, cells: Tensor) -> Tensor:
        """The masks with their margins `(B, H + .., W + ..)`. Keeps what `propagate_gradient` needs."""
        reach_down, reach_right = self.reach
        high = self.margin[0] + reach_down
        wide = self.margin[1] + reach_right
        m = F.pad(cells, (wide, wide, high, high))[:, None, None]
        height = self.cells[0] + 2 * self.margin[0]
        width = self.cells[1] + 2 * self.margin[1]
        sums = m.new_zeros(2, len(m), *self.side, height, width)
        for kernel, offsets in self.taps:
            f = kernel.to(m.device, m.dtype) * m
            weight = torch.exp(_INVERSE_TEMPERATURE * f)
            # the sums above and below the line of the soft maximum
            both = torch.stack([f * weight, weight])
            for i, j in offsets:
                shifted = both[..., i + reach_down :, j + reach_right :]
                sums += shifted[..., :height, :width]
        mask = sums[0] / sums[1]
        self._last = (m, mask, sums[1])
        return self._assemble(mask)

    def propagate_gradient(self, gradient: Tensor) -> Tensor:
        """The gradient by the cells of the last call, from the gradient by its masks with their margins."""
        assert self._last is not None
        m, mask, total = self._last
        height, width = mask.shape[-2:]
        side_down, side_right = self.side
        cells_down, cells_right = self.cells
        margin_down, margin_right = self.margin
        # d M / d f = exp(f / T) (1 + (f - M) / T) / total
        parts = gradient.reshape(len(m), height, side_down, width, side_right)
        share = parts.permute(0, 2, 4, 1, 3) / total
        # padded, since pixels within reach of a cell may lie beyond the margin, where there is nothing
        high, wide = self.reach
        both = torch.stack([share, share * mask])
        shares = F.pad(both, (wide, wide, high, high))
        top = high + margin_down
        left = wide + margin_right
        inside = m[..., top : top + cells_down, left : left + cells_right]
        by_pixel = inside.new_zeros(len(m), *self.side, *self.cells)
        for kernel, offsets in self.taps:
            k = kernel.to(m.device, m.dtype)
            back = by_pixel.new_zeros(2, *by_pixel.shape)
            for i, j in offsets:
                shifted = shares[..., top - i :, left - j :]
                back += shifted[..., :cells_down, :cells_right]
            f = k * inside
            weight = k * torch.exp(_INVERSE_TEMPERATURE * f)
            of_f = (1 + _INVERSE_TEMPERATURE * f) * back[0]
            of_mask = _INVERSE_TEMPERATURE * back[1]
            by_pixel += weight * (of_f - of_mask)
        by_cells = by_pixel[:, 0, 0]
        # the pixels of a cell, one after the other
        for pixel in range(1, side_down * side_right):
            down, right = divmod(pixel, side_right)
            by_cells = by_cells + by_pixel[:, down, right]
        return by_cells

    def crop_to_image(self, masks: Tensor) -> Tensor:
        """Masks `(B, H, W)` without their margins."""
        height, width = self.spatial
        top = self.margin[0] * self.side[0]
        left = self.margin[1] * self.side[1]
        return masks[:, top : top + height, left : left + width]

    def _assemble(self, mask: Tensor) -> Tensor:
        """Put the pixels of all cells together: `(B, *side, h, w)` to `(B, H, W)`."""
        cells_down, cells_right = mask.shape[-2:]
        height = cells_down * self.side[0]
        width = cells_right * self.side[1]
        pixels_beside_cells = mask.permute(0, 3, 1, 4, 2)
        return pixels_beside_cells.reshape(len(mask), height, width)


@lru_cache(maxsize=16)
def _find_taps(cells: Offset, side: Offset, sigma: float) -> list[tuple[Tensor, list[Offset]]]:
    """Values of the kernel at the pixels of a cell, float64 `(*side, 1, 1)`, and the offsets of cells that have them.

    A cell at the offset `(i, j)` is i cells down and j cells to the right.
    """
    side_down, side_right = side
    cells_down, cells_right = cells
    if sigma == 0:
        return [(torch.ones(*side, 1, 1, dtype=torch.float64), [(0, 0)])]
    reach = _REACH * sigma
    most_down = math.ceil(reach / side_down) + 1 if cells_down > 1 else 0
    most_right = math.ceil(reach / side_right) + 1 if cells_right > 1 else 0
    offsets_of_kernels: dict[tuple[float, ...], tuple[Tensor, list[Offset]]] = {}
    for i in range(-most_down, most_down + 1):
        down = _measure_distances(side_down, i)
        for j in range(-most_right, most_right + 1):
            right = _measure_distances(side_right, j)
            distance = (down[:, None] ** 2 + right**2).sqrt() / sigma
            if bool((distance > _REACH).all()):
                continue
            beyond_plateau = (distance - _PLATEAU).clamp(min=0)
            kernel = torch.exp(-2 * beyond_plateau**2)
            # offsets at the same distances have the same kernel, whose exponentials are computed once
            key = tuple(kernel.flatten().tolist())
            tap: tuple[Tensor, list[Offset]] = (kernel[:, :, None, None], [])
            _, offsets = offsets_of_kernels.setdefault(key, tap)
            offsets.append((i, j))
    return list(offsets_of_kernels.values())


def _measure_distances(side: int, offset: int) -> Tensor:
    """From the pixels of a cell to the centre of the cell at this offset along an axis, `(side,)`."""
    pixels = torch.arange(side, dtype=torch.float64)
    return pixels - (side - 1) / 2 - side * offset


def find_area_target(masks: Tensor, ones: Tensor) -> Tensor:
    """The target of each entry of masks `(B, P)` in the area loss `|vecsort(M) - r|^2 = |M - target|^2`: `(B, P)`.

    The reference `r` is `P - ones` zeros followed by `ones` ones. So the target of the largest entries is 1, that of
    the others 0. Equal entries have the same target, a share, so that their order in memory does not matter.

    Args:
        masks: `(B, P)`.
        ones: how many entries should be 1, int64 `(B,)`.

    >>> find_area_target(torch.tensor([[0.1, 0.9, 0.4, 0.4]]), torch.tensor([2]))
    tensor([[0.0000, 1.0000, 0.5000, 0.5000]])
    """
    zeros = masks.shape[1] - ones
    last = masks.sort(1).values.gather(1, zeros[:, None])
    above = masks > last
    equal = masks == last
    missing = ones[:, None] - above.sum(1, keepdim=True)
    share = missing / equal.sum(1, keepdim=True)
    return torch.where(equal, share.to(masks.dtype), above.to(masks.dtype))


def blur_images(x: Tensor, sigma: float) -> Tensor:
    """Images `(N, C, H, W)` convolved with a Gaussian of standard deviation `sigma`, in pixels.

    At every pixel the Gaussian is normalised to a sum of 1 within the image.

    >>> blur_images(torch.ones(1, 1, 2, 3), 1.5).round(decimals=5)
    tensor([[[[1., 1., 1.],
              [1., 1., 1.]]]])
    """
    if sigma <= 0:
        return x.clone()
    for axis in (2, 3):
        size = x.shape[axis]
        total = torch.zeros_like(x)
        mass = x.new_zeros(size)
        reach = min(size - 1, math.ceil(_TAIL * sigma))
        for d in range(-reach, reach + 1):
            start = max(0, -d)
            length = size - abs(d)
            weight = math.exp(-(d**2) / (2 * sigma**2))
            shifted = x.narrow(axis, start + d, length)
            total.narrow(axis, start, length).add_(shifted * weight)
            mass[start : start + length] += weight
        shape_of_mass = [1] * 4
        shape_of_mass[axis] = size
        x = total / mass.reshape(shape_of_mass)
    return x
