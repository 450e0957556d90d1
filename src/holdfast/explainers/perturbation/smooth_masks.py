"""Smooth masks of a given area, and inputs blurred through them: what extremal perturbations are made of.

Fong, Patrick and Vedaldi, Understanding deep networks via extremal perturbations and smooth masks, ICCV 2019. Masks are
`(B, H, W)`; series are images of one row. Every row is worked on by itself, by operations on single numbers in a fixed
order, so that a mask has the same bits whoever else is in the batch.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

# the kernel is 1 up to half its width and cut off where it has fallen to exp(-2); inverse temperature of the soft
# maximum; cells along a side of a mask, at most
_PLATEAU, _REACH, _COLDNESS, _CELLS = 0.5, 1.5, 20.0, 32
# standard deviations at which a Gaussian is cut off
_TAIL = 5.0

Offset = tuple[int, int]


class SmoothMask:
    """The smooth max-convolution: masks from cells `(B, h, w)`, all in [0, 1].

    `M(u) = smax over v of k(u - v) m(v)` with `smax f = sum f exp(f / T) / sum exp(f / T)`, `T = 1 / 20`, over the
    cells v within reach of pixel u, and `k(z) = exp(-2 max(0, |z| / sigma - 1 / 2)^2)`, the authors' kernel,
    for distances up to `1.5 sigma`. Cells are squares of `ceil(side / 32)` pixels, single pixels in images of up to
    32x32; distances are to their centres.

    As in the authors' code a mask has a margin of about sigma around the image, without cells of its own (those out
    there are 0). What spills over counts as area but shows nothing: without it, blobs cut off by the border were cheap,
    and masks would drift to the corners.

    Args:
        spatial: `(H, W)`.
        sigma: in pixels, at least 0; at 0 a mask is its cells.

    >>> operator = SmoothMask((1, 3), 0.0)
    >>> operator(torch.tensor([[[0.0, 0.25, 1.0]]]))
    tensor([[[0.0000, 0.2500, 1.0000]]])
    """

    def __init__(self, spatial: Offset, sigma: float) -> None:
        self.spatial = spatial
        self.side = (-(-spatial[0] // _CELLS), -(-spatial[1] // _CELLS))
        self.cells = (-(-spatial[0] // self.side[0]), -(-spatial[1] // self.side[1]))
        # cells of margin, and how far a pixel sees; none along an axis of a single cell
        wide = [math.ceil(sigma / s) if n > 1 else 0 for n, s in zip(self.cells, self.side, strict=True)]
        self.margin = (wide[0], wide[1])
        self.taps = _find_taps(self.cells, self.side, sigma)
        far = [max(abs(offset[axis]) for _, offsets in self.taps for offset in offsets) for axis in (0, 1)]
        self.reach = (far[0], far[1])
        self._last: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(self, cells: Tensor) -> Tensor:
        """The masks with their margins `(B, H + .., W + ..)`; what `gradient` needs is kept until the next call."""
        high, wide = (n + g for n, g in zip(self.margin, self.reach, strict=True))
        m = F.pad(cells, (wide, wide, high, high))[:, None, None]
        size = [n + 2 * g for n, g in zip(self.cells, self.margin, strict=True)]
        sums = m.new_zeros(2, len(m), *self.side, *size)
        for kernel, offsets in self.taps:
            f = kernel.to(m.device, m.dtype) * m
            weight = torch.exp(_COLDNESS * f)
            both = torch.stack([f * weight, weight])
            for i, j in offsets:
                sums += both[..., i + self.reach[0] :, j + self.reach[1] :][..., : size[0], : size[1]]
        mask = sums[0] / sums[1]
        self._last = (m, mask, sums[1])
        return self._assemble(mask)

    def gradient(self, gradient: Tensor) -> Tensor:
        """By the cells of the last call, from that by its masks with their margins."""
        assert self._last is not None
        m, mask, total = self._last
        size = mask.shape[-2:]
        # d M / d f = exp(f / T) (1 + (f - M) / T) / total
        parts = gradient.reshape(len(m), size[0], self.side[0], size[1], self.side[1]).permute(0, 2, 4, 1, 3)
        share = parts / total
        # with room for what cells in the image are seen from; beyond the margin there is nothing
        high, wide = self.reach
        shares = F.pad(torch.stack([share, share * mask]), (wide, wide, high, high))
        inside = m[..., high + self.margin[0] :, wide + self.margin[1] :][..., : self.cells[0], : self.cells[1]]
        found = inside.new_zeros(len(m), *self.side, *self.cells)
        for kernel, offsets in self.taps:
            k = kernel.to(m.device, m.dtype)
            back = found.new_zeros(2, *found.shape)
            for i, j in offsets:
                seen = shares[..., high + self.margin[0] - i :, wide + self.margin[1] - j :]
                back += seen[..., : self.cells[0], : self.cells[1]]
            f = k * inside
            found += k * torch.exp(_COLDNESS * f) * ((1 + _COLDNESS * f) * back[0] - _COLDNESS * back[1])
        by_cells = found[:, 0, 0]
        for pixel in range(1, self.side[0] * self.side[1]):  # of a cell, one after the other
            by_cells = by_cells + found[:, pixel // self.side[1], pixel % self.side[1]]
        return by_cells

    def image(self, masks: Tensor) -> Tensor:
        """The part of masks with margins that lies on the image, `(B, H, W)`."""
        top, left = (n * s for n, s in zip(self.margin, self.side, strict=True))
        return masks[:, top : top + self.spatial[0], left : left + self.spatial[1]]

    def _assemble(self, mask: Tensor) -> Tensor:
        """From `(B, *side, h, w)` to `(B, H, W)`."""
        size = mask.shape[-2:]
        return mask.permute(0, 3, 1, 4, 2).reshape(len(mask), size[0] * self.side[0], size[1] * self.side[1])


@lru_cache(maxsize=16)
def _find_taps(cells: Offset, side: Offset, sigma: float) -> list[tuple[Tensor, list[Offset]]]:
    """Kernels at the pixels of a cell, float64 `(*side, 1, 1)`, and the offsets of the cells that they see so.

    A cell at the offset `(i, j)` is i cells further down and j to the right.
    """
    reach = _REACH * sigma
    most = [math.ceil(reach / s) + 1 if n > 1 else 0 for n, s in zip(cells, side, strict=True)]
    if sigma == 0:
        return [(torch.ones(*side, 1, 1, dtype=torch.float64), [(0, 0)])]
    found: dict[tuple[float, ...], tuple[Tensor, list[Offset]]] = {}
    for i in range(-most[0], most[0] + 1):
        for j in range(-most[1], most[1] + 1):
            down, right = (
                torch.arange(s, dtype=torch.float64) - (s - 1) / 2 - s * d for s, d in zip(side, (i, j), strict=True)
            )
            distance = (down[:, None] ** 2 + right**2).sqrt() / sigma
            if bool((distance > _REACH).all()):
                continue
            kernel = torch.exp(-2 * (distance - _PLATEAU).clamp(min=0) ** 2)
            found.setdefault(tuple(kernel.flatten().tolist()), (kernel[:, :, None, None], []))[1].append((i, j))
    return list(found.values())


def find_area_target(masks: Tensor, ones: Tensor) -> Tensor:
    """What each entry of masks `(B, P)` is drawn to by the area loss `|vecsort(M) - r|^2`, of the same shape.

    The reference `r` is `P - ones` zeros and then `ones` ones, so the largest entries are drawn to 1, the others to 0,
    and the loss is `|M - target|^2`. Equal entries share what falls to them, lest the first in memory lose.

    >>> find_area_target(torch.tensor([[0.1, 0.9, 0.4, 0.4]]), torch.tensor([2]))
    tensor([[0.0000, 1.0000, 0.5000, 0.5000]])
    """
    last = masks.sort(1).values.gather(1, (masks.shape[1] - ones)[:, None])
    above, equal = masks > last, masks == last
    share = (ones[:, None] - above.sum(1, keepdim=True)) / equal.sum(1, keepdim=True)
    return torch.where(equal, share.to(masks.dtype), above.to(masks.dtype))


def blur_images(x: Tensor, sigma: float) -> Tensor:
    """Images `(N, C, H, W)` convolved with a Gaussian, whose mass within the image is brought to 1 at every pixel.

    >>> blur_images(torch.ones(1, 1, 2, 3), 1.5).round(decimals=5)
    tensor([[[[1., 1., 1.],
              [1., 1., 1.]]]])
    """
    if sigma <= 0:
        return x.clone()
    for axis in (2, 3):
        size = x.shape[axis]
        total, mass = torch.zeros_like(x), x.new_zeros(size)
        for d in range(-min(size - 1, math.ceil(_TAIL * sigma)), min(size - 1, math.ceil(_TAIL * sigma)) + 1):
            start, length = max(0, -d), size - abs(d)
            weight = math.exp(-(d**2) / (2 * sigma**2))
            total.narrow(axis, start, length).add_(x.narrow(axis, start + d, length) * weight)
            mass[start : start + length] += weight
        x = total / mass.reshape([-1 if a == axis else 1 for a in range(4)])
    return x
