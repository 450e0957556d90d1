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
        self.side = (-(-spatial[0] // _CELLS), -(-spatial[1] // _CELLS))
        self.cells = (-(-spatial[0] // self.side[0]), -(-spatial[1] // self.side[1]))
        # cells in the margin, and the reach of a pixel in cells; both 0 along an axis of a single cell
        wide = [
            math.ceil(sigma / s) if n > 1 else 0 for n, s in zip(self.cells, self.side, strict=True)
        ]
        self.margin = (wide[0], wide[1])
        taps = _find_taps(self.cells, self.side, sigma)
        self.taps = [(send(kernel, device or kernel.device), offsets) for kernel, offsets in taps]
        reach_down = reach_right = 0
        for _, offsets in self.taps:
            for down, right in offsets:
                reach_down = max(reach_down, abs(down))
                reach_right = max(reach_right, abs(right))
        self.reach = (reach_down, reach_right)
        self._last: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self, cells: Tensor) -> Tensor:
        """The masks with their margins `(B, H + .., W + ..)`. Keeps what `propagate_gradient` needs."""
        high, wide = (n + g for n, g in zip(self.margin, self.reach, strict=True))
        m = F.pad(cells, (wide, wide, high, high))[:, None, None]
        size = [n + 2 * g for n, g in zip(self.cells, self.margin, strict=True)]
        sums = m.new_zeros(2, len(m), *self.side, *size)
        for kernel, offsets in self.taps:
            f = kernel.to(m.device, m.dtype) * m
            weight = torch.exp(_INVERSE_TEMPERATURE * f)
            # the sums above and below the line of the soft maximum
            both = torch.stack([f * weight, weight])
            for i, j in offsets:
                sums += both[..., i + self.reach[0] :, j + self.reach[1] :][
                    ..., : size[0], : size[1]
                ]
        mask = sums[0] / sums[1]
        self._last = (m, mask, sums[1])
        return self._assemble(mask)

    def propagate_gradient(self, gradient: Tensor) -> Tensor:
        """The gradient by the cells of the last call, from the gradient by its masks with their margins."""
        assert self._last is not None
        m, mask, total = self._last
        size = mask.shape[-2:]
        # d M / d f = exp(f / T) (1 + (f - M) / T) / total
        parts = gradient.reshape(len(m), size[0], self.side[0], size[1], self.side[1]).permute(
            0, 2, 4, 1, 3
        )
        share = parts / total
        # padded, since pixels within reach of a cell may lie beyond the margin, where there is nothing
        high, wide = self.reach
        shares = F.pad(torch.stack([share, share * mask]), (wide, wide, high, high))
        inside = m[..., high + self.margin[0] :, wide + self.margin[1] :][
            ..., : self.cells[0], : self.cells[1]
        ]
        by_pixel = inside.new_zeros(len(m), *self.side, *self.cells)
        for kernel, offsets in self.taps:
            k = kernel.to(m.device, m.dtype)
            back = by_pixel.new_zeros(2, *by_pixel.shape)
            for i, j in offsets:
                shifted = shares[..., high + self.margin[0] - i :, wide + self.margin[1] - j :]
                back += shifted[..., : self.cells[0], : self.cells[1]]
            f = k * inside
            by_pixel += (
                k
                * torch.exp(_INVERSE_TEMPERATURE * f)
                * ((1 + _INVERSE_TEMPERATURE * f) * back[0] - _INVERSE_TEMPERATURE * back[1])
            )
        by_cells = by_pixel[:, 0, 0]
        # the pixels of a cell, one after the other
        for pixel in range(1, self.side[0] * self.side[1]):
            by_cells = by_cells + by_pixel[:, pixel // self.side[1], pixel % self.side[1]]
        return by_cells

    def crop_to_image(self, masks: Tensor) -> Tensor:
        """Masks `(B, H, W)` without their margins."""
        top, left = (n * s for n, s in zip(self.margin, self.side, strict=True))
        return masks[:, top : top + self.spatial[0], left : left + self.spatial[1]]

    def _assemble(self, mask: Tensor) -> Tensor:
        """Put the pixels of all cells together: `(B, *side, h, w)` to `(B, H, W)`."""
        size = mask.shape[-2:]
        return mask.permute(0, 3, 1, 4, 2).reshape(
            len(mask), size[0] * self.side[0], size[1] * self.side[1]
        )


@lru_cache(maxsize=16)
def _find_taps(cells: Offset, side: Offset, sigma: float) -> list[tuple[Tensor, list[Offset]]]:
    """Values of the kernel at the pixels of a cell, float64 `(*side, 1, 1)`, and the offsets of cells that have them.

    A cell at the offset `(i, j)` is i cells down and j cells to the right.
    """
    reach = _REACH * sigma
    most = [math.ceil(reach / s) + 1 if n > 1 else 0 for n, s in zip(cells, side, strict=True)]
    if sigma == 0:
        return [(torch.ones(*side, 1, 1, dtype=torch.float64), [(0, 0)])]
    offsets_of_kernels: dict[tuple[float, ...], tuple[Tensor, list[Offset]]] = {}
    for i in range(-most[0], most[0] + 1):
        for j in range(-most[1], most[1] + 1):
            down, right = (
                torch.arange(s, dtype=torch.float64) - (s - 1) / 2 - s * d
                for s, d in zip(side, (i, j), strict=True)
            )
            distance = (down[:, None] ** 2 + right**2).sqrt() / sigma
            if bool((distance > _REACH).all()):
                continue
            kernel = torch.exp(-2 * (distance - _PLATEAU).clamp(min=0) ** 2)
            # offsets at the same distances have the same kernel, whose exponentials are computed once
            _, offsets = offsets_of_kernels.setdefault(
                tuple(kernel.flatten().tolist()), (kernel[:, :, None, None], [])
            )
            offsets.append((i, j))
    return list(offsets_of_kernels.values())


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
    last = masks.sort(1).values.gather(1, (masks.shape[1] - ones)[:, None])
    above = masks > last
    equal = masks == last
    share = (ones[:, None] - above.sum(1, keepdim=True)) / equal.sum(1, keepdim=True)
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
        for d in range(
            -min(size - 1, math.ceil(_TAIL * sigma)), min(size - 1, math.ceil(_TAIL * sigma)) + 1
        ):
            start = max(0, -d)
            length = size - abs(d)
            weight = math.exp(-(d**2) / (2 * sigma**2))
            total.narrow(axis, start, length).add_(x.narrow(axis, start + d, length) * weight)
            mass[start : start + length] += weight
        x = total / mass.reshape([-1 if a == axis else 1 for a in range(4)])
    return x
