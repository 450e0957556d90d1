"""Structural similarity (SSIM), which compares maps window by window."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.errors import check
from standfast.records import Positive
from standfast.similarity.base import Correlation, similarities
from standfast.similarity.rows import binade, check_pair, is_degenerate, row_sum, working_dtype

K1, K2 = 0.01, 0.03  # the constants of the paper
SIGMA = 1.5


@similarities.register("ssim")
@dataclass(frozen=True)
class SSIM(Correlation):
    """Mean structural similarity over all windows that lie inside the map, and over channels.

    Maps are images `(N, C, H, W)`, volumes `(N, C, D, H, W)`, series `(N, C, T)`, or flat maps `(N, F)`, which are
    treated as series of one channel; half precision is computed in float32. Equals
    `skimage.metrics.structural_similarity(..., use_sample_covariance=True)`, also with `gaussian_weights=True` (here
    `gaussian=True, window=11`). Two maps that are both constant (`is_degenerate`) have similarity 0.
    Differentiable; gradients are finite.

    Args:
        window: side of the window, odd and at least 3. If a side of the map is shorter, the window has the largest odd
            number of positions that fit. Windows of a single value compare only means.
        data_range: the range of the values, SSIM's L; by default, for each row, the largest value of both maps less the
            smallest value of both.
        gaussian: weight the window by a Gaussian of standard deviation 1.5 instead of uniformly.

    Raises:
        ArgumentError: an option is out of range.

    Source: Wang, Bovik, Sheikh, Simoncelli, IEEE Trans. Image Process. 13 (2004).

    >>> image = torch.linspace(0, 1, 64).reshape(1, 1, 8, 8)
    >>> SSIM()(image, image), SSIM()(image, 1 - image)
    (tensor([1.]), tensor([-0.95]))
    """

    name = "ssim"
    differentiable = True

    window: int = 7
    data_range: Positive | None = None
    gaussian: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        odd = isinstance(self.window, int) and self.window >= 3 and self.window % 2 == 1
        check(odd, "window", "an odd whole number, at least 3", self.window)

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        return self._compare_windows(a, b)

    def compare_part(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        """The mean over the windows that lie wholly in the part; NaN where there is none."""

        # a value outside of the part gets one that its channel has anyway, so that it changes no range
        def fill(maps: Tensor) -> Tensor:
            per_channel = 2 if maps.ndim > 2 else 1
            in_part = torch.where(mask, maps.detach(), torch.inf)
            lowest = in_part.flatten(per_channel).amin(-1)
            lowest = torch.where(lowest == torch.inf, 0, lowest)
            positions = [1] * (maps.ndim - lowest.ndim)
            return torch.where(mask, maps, lowest.view(*lowest.shape, *positions))

        return self._compare_windows(fill(a), fill(b), mask)

    def _compare_windows(self, a: Tensor, b: Tensor, mask: Tensor | None = None) -> Tensor:
        check_pair(a, b)
        expected = "shape (N, F), (N, C, T), (N, C, H, W) or (N, C, D, H, W)"
        check(a.ndim in (2, 3, 4, 5), "a", expected, tuple(a.shape))
        dtype = working_dtype(a, b)
        empty = is_degenerate(a) & is_degenerate(b)
        x = a.to(dtype)
        y = b.to(dtype)
        if a.ndim == 2:
            x = x.unsqueeze(1)
            y = y.unsqueeze(1)
        per_row = (-1,) + (1,) * (x.ndim - 1)

        # Division by a power of two is exact and prevents underflow and overflow of products. The index does not change
        # when maps and range have the same scale, so gradients need not flow through the scale.
        rows = torch.cat((x.flatten(1), y.flatten(1)), dim=1)
        size = rows.detach().abs().amax(1)
        scale = binade(size)
        scale_of_rows = scale.view(per_row)
        x = x / scale_of_rows
        y = y / scale_of_rows
        if self.data_range is None:
            extent = rows.amax(1) / scale - rows.amin(1) / scale
        else:
            data_range = min(self.data_range, torch.finfo(dtype).max)
            extent = torch.full_like(scale, data_range) / scale

        extent_of_rows = extent.view(per_row)
        index = _windowed_index(x, y, extent_of_rows, self.window, self.gaussian).flatten(1)
        if mask is None:
            mean = row_sum(index) / index.shape[1]
        else:
            usable = _see_windows(mask.view(x.shape), self.window).flatten(1)
            count = usable.sum(1)
            total = row_sum(torch.where(usable, index, 0))
            mean = total / count.clamp(min=1)
            mean = torch.where(count > 0, mean, torch.nan)
        result = torch.where(empty, 0, mean)
        return torch.where(size.isfinite(), result, torch.nan)


def _windowed_index(x: Tensor, y: Tensor, extent: Tensor, window: int, gaussian: bool) -> Tensor:
    """The index of every window of `(N, C, ...)`, in [-1, 1]; `extent` broadcasts against the maps."""
    # The middle of each channel is subtracted first; with a large offset the variances would lose all precision.
    x_middle = _middle(x)
    y_middle = _middle(y)
    p = x - x_middle
    q = y - y_middle
    moments = torch.stack((p, q, p * p, q * q, p * q))
    members = 1
    # axes 0 to 2 are the moment, the sample and its channel
    for dim in range(3, moments.ndim):
        taps = _fit_window(window, moments.shape[dim])
        moments = _window_mean(moments, dim, taps, gaussian)
        members *= taps
    mp, mq, mpp, mqq, mpq = moments.unbind(0)
    sample = members / max(members - 1, 1)  # sample covariance, as in scikit-image
    # rounding must not make a variance negative
    x_variance = (sample * (mpp - mp * mp)).clamp(min=0)
    y_variance = (sample * (mqq - mq * mq)).clamp(min=0)
    # Rounding can make a covariance larger than the variances allow, where a window is constant in both maps.
    most = (x_variance + y_variance) / 2
    covariance = (sample * (mpq - mp * mq)).clamp(-most, most)
    x_mean = mp + x_middle
    y_mean = mq + y_middle

    limits = torch.finfo(x.dtype)
    # SSIM's constants for a range L are (K L)^2; they must neither vanish nor overflow
    c1 = (K1 * extent).square().clamp(limits.tiny, limits.max / 8)
    c2 = (K2 * extent).square().clamp(limits.tiny, limits.max / 8)
    luminance = (2 * x_mean * y_mean + c1) / (x_mean * x_mean + y_mean * y_mean + c1)
    structure = (2 * covariance + c2) / (x_variance + y_variance + c2)
    return luminance.clamp(-1, 1) * structure


def _fit_window(window: int, side: int) -> int:
    """The largest odd number of positions that is at most `window` and `side`."""
    return min(window, side - 1 + side % 2)


def _see_windows(mask: Tensor, window: int) -> Tensor:
    """Which windows of `mask` `(N, C, ...)` are wholly True, bool."""
    share = mask.float()
    for dim in range(2, mask.ndim):
        taps = _fit_window(window, mask.shape[dim])
        share = _window_mean(share, dim, taps, gaussian=False)
    return share == 1


@torch.no_grad()
def _middle(x: Tensor) -> Tensor:
    spatial = tuple(range(2, x.ndim))
    low = x.amin(spatial, keepdim=True)
    high = x.amax(spatial, keepdim=True)
    return low / 2 + high / 2


def _window_mean(x: Tensor, dim: int, taps: int, gaussian: bool) -> Tensor:
    """Weighted mean of `taps` neighbours along one axis, for all places where they lie inside the map.

    Computed by shifted additions. They are elementwise, so a row has the same bits in every batch; pooling and
    convolution kernels do not guarantee this.
    """
    length = x.shape[dim] - taps + 1
    shifted = (x.narrow(dim, shift, length) for shift in range(taps))
    if not gaussian:
        total = next(shifted)
        for part in shifted:
            total = total + part
        return total / taps
    densities = []
    for shift in range(taps):
        deviations = (shift - taps // 2) / SIGMA
        densities.append(math.exp(-0.5 * deviations**2))
    mass = sum(densities)
    total = next(shifted) * (densities[0] / mass)
    for density, part in zip(densities[1:], shifted, strict=True):
        total = total + part * (density / mass)
    return total
