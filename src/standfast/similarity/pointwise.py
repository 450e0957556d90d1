"""Similarities that compare maps feature by feature: Pearson correlation, cosine, mean squared error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from standfast.errors import check
from standfast.similarity.base import Correlation, Discrepancy, similarities
from standfast.similarity.rows import (
    attach_gradients,
    binade,
    check_map,
    check_pair,
    extremes,
    find_extremes,
    is_constant,
    row_sum,
    working_dtype,
)


class _Rows(NamedTuple):
    values: Tensor  # (N, F), rescaled, without a graph
    size: Tensor  # (N,), by which they were divided
    empty: Tensor  # (N,), the row has nothing to compare, so its similarity is 0
    finite: Tensor  # (N,)


def _centre(a: Tensor, dtype: torch.dtype) -> _Rows:
    """Rows with mean 0 and values of order 1, for maps of any offset and size.

    The middle of the range is subtracted first, which is exact for values close to it. Then the rows are divided by a
    power of two, which is exact too. Only then the mean is subtracted, so a large offset costs no precision.
    """
    x = a.detach().flatten(1).to(dtype)
    low, high = extremes(x)
    constant = is_constant(low, high, torch.finfo(a.dtype).eps)
    # half of each, since their difference could overflow
    lower = low / 2
    upper = high / 2
    half_range = upper - lower
    size = binade(half_range)
    middle = lower.add_(upper)
    x = x - middle[:, None]  # a new tensor, on which the rest works in place
    x.div_(size[:, None])
    mean = row_sum(x) / x.shape[1]
    x.sub_(mean[:, None])
    return _Rows(x, size, constant, half_range < torch.inf)


def _centre_part(a: Tensor, dtype: torch.dtype, mask: Tensor) -> _Rows:
    """`_centre` of the values where `mask` `(N, F)` is True; the others are 0."""
    x = a.detach().flatten(1).to(dtype)
    low, high = find_extremes(x, mask)
    constant = is_constant(low, high, torch.finfo(a.dtype).eps)
    middle = low / 2 + high / 2
    half_range = high / 2 - low / 2
    size = binade(half_range)
    offset = torch.where(mask, x - middle[:, None], 0)
    x = offset / size[:, None]
    count = mask.sum(1).clamp(min=1)
    mean = row_sum(x) / count
    x = torch.where(mask, x - mean[:, None], 0)
    return _Rows(x, size, constant, half_range.isfinite())


def _scale(a: Tensor, dtype: torch.dtype) -> _Rows:
    """Rows rescaled so that their largest absolute value is of order 1."""
    x = a.detach().flatten(1).to(dtype)
    low, high = extremes(x)
    largest = torch.maximum(low.abs(), high.abs())
    size = binade(largest)
    return _Rows(x / size[:, None], size, largest == 0, largest.isfinite())


def _normalised_product(a: Tensor, b: Tensor, x: _Rows, y: _Rows) -> Tensor:
    """Inner product divided by both norms, in [-1, 1]; 0 for empty rows, NaN for rows that are not finite.

    `x` and `y` are the rows of the maps `a` and `b`, which gradients go to.
    """
    square = row_sum(x.values * x.values)
    return _correlate(a, b, x, square, y)


def _correlate(a: Tensor, b: Tensor, x: _Rows, xx: Tensor, y: _Rows) -> Tensor:
    """`_normalised_product`, given the squared norms `xx` `(N,)` of `x`, which may be one row for all of `y`.

    The gradient of `c = xy / (|x| |y|)` by y is `(x / |x| - c y / |y|) / |y|`. Its values add up to 0 where those of x
    and y do, so it is that by the map, too.
    """
    empty = x.empty | y.empty
    # rows without spread are set to 0 below, and must not divide by 0 here
    xx = torch.where(empty, 1, xx)
    yy = torch.where(empty, 1, row_sum(y.values * y.values))
    norm = xx.sqrt() * yy.sqrt()
    cosine = row_sum(x.values * y.values) / norm
    # rounding may lead a cosine beyond 1
    cosine = torch.where(empty, 0, cosine.clamp(-1, 1))
    finite = x.finite & y.finite

    def differentiate(own: _Rows, square: Tensor, other: _Rows, weight: Tensor) -> Tensor:
        # by the map itself, whose values were divided by `size`
        weight = weight / own.size
        of_other = (weight / norm)[:, None]
        of_own = (weight * cosine / square)[:, None]
        slope = of_other * other.values - of_own * own.values
        usable = finite & ~empty
        return torch.where(usable[:, None], slope, 0)

    return attach_gradients(
        torch.where(finite, cosine, torch.nan),
        (a, lambda weight: differentiate(x, xx, y, weight)),
        (b, lambda weight: differentiate(y, yy, x, weight)),
    )


@similarities.register("pearson")
@dataclass(frozen=True)
class Pearson(Correlation):
    """Pearson's correlation coefficient over all features of maps `(N, ...)`.

    Accurate for maps of any size and offset, without underflow or overflow; half precision is computed in float32.
    Constant maps (`is_degenerate`) have similarity 0 with every map. Differentiable; gradients are finite, and 0 where
    a map is constant.

    Source: Pearson, Proc. R. Soc. 58 (1895).

    >>> Pearson()(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 2.0, 4.0]]))
    tensor([0.98])
    """

    name = "pearson"
    words = "correlation"
    differentiable = True

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        check_pair(a, b)
        dtype = working_dtype(a, b)
        x = _centre(a, dtype)
        y = _centre(b, dtype)
        return _normalised_product(a, b, x, y)

    def prepare(self, reference: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """The references are centred once, which takes half of the time."""
        check_map(reference, "reference")
        like = reference[:1].detach()
        centred = _centre(reference, working_dtype(reference))
        squares = row_sum(centred.values * centred.values)

        def compare(maps: Tensor, rows: Tensor) -> Tensor:
            check_pair(like.expand(maps.shape[0], *like.shape[1:]), maps)
            check(maps.dtype == like.dtype, "maps", f"{like.dtype}, as the references", maps.dtype)
            references = centred
            xx = squares
            if len(squares) > 1:  # a single reference broadcasts
                references = _Rows(*(part.index_select(0, rows) for part in centred))
                xx = squares.index_select(0, rows)
            centred_maps = _centre(maps, working_dtype(maps))
            return _correlate(like, maps, references, xx, centred_maps)

        return compare

    def compare_part(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        dtype = working_dtype(a, b)
        mask = mask.flatten(1)
        x = _centre_part(a, dtype, mask)
        y = _centre_part(b, dtype, mask)
        return _normalised_product(a, b, x, y)


@similarities.register("cosine")
@dataclass(frozen=True)
class Cosine(Correlation):
    """Cosine of the angle between two maps `(N, ...)`, as vectors of all their features.

    Half precision is computed in float32. A map of zeros has similarity 0 with every map. Differentiable; gradients are
    finite.

    >>> Cosine()(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0, 1.0], [1.0, 1.0]]))
    tensor([0.71, 0.00])
    """

    name = "cosine"
    words = "cosine similarity"
    differentiable = True

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        check_pair(a, b)
        dtype = working_dtype(a, b)
        x = _scale(a, dtype)
        y = _scale(b, dtype)
        return _normalised_product(a, b, x, y)

    def compare_part(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        part_of_a = torch.where(mask, a, 0)
        part_of_b = torch.where(mask, b, 0)
        return self.compare(part_of_a, part_of_b)


@similarities.register("mse")
@dataclass(frozen=True)
class MSE(Discrepancy):
    """Mean squared difference over all features of maps `(N, ...)`.

    It depends on the size of the values. It is the largest number of the dtype where the true value is larger.
    Differentiable.

    >>> MSE()(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 4.0]]))
    tensor([2.])
    """

    name = "mse"
    differentiable = True

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        check_pair(a, b)
        dtype = working_dtype(a, b)
        x, y = (maps.detach().flatten(1).to(dtype) for maps in (a, b))
        features = x.shape[1]
        ends = torch.stack((*extremes(x), *extremes(y)))
        extent = ends.abs().amax(0)
        finite = extent.isfinite()
        scale = binade(extent)
        scale_of_rows = scale[:, None]
        difference = x / scale_of_rows - y / scale_of_rows
        mean_square = row_sum(difference * difference) / features
        # One factor at a time: the square of the scale may overflow where the product does not.
        most = torch.finfo(dtype).max
        result = mean_square * scale * scale

        def differentiate(weight: Tensor) -> Tensor:
            factor = weight * (2 / features) * scale
            slope = factor[:, None] * difference
            usable = finite & (result <= most)
            return torch.where(usable[:, None], slope, 0)

        return attach_gradients(
            torch.where(finite, result.clamp(max=most), torch.nan),
            (a, differentiate),
            (b, lambda weight: -differentiate(weight)),
        )

    def compare_part(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        part_of_a = torch.where(mask, a, 0)
        part_of_b = torch.where(mask, b, 0)
        mean = self.compare(part_of_a, part_of_b)
        # features that are left out add 0 to a mean over all: this makes it one over the part
        features = mask.flatten(1).sum(1).clamp(min=1)
        share = a[0].numel() / features.to(mean.dtype)
        most = torch.finfo(mean.dtype).max
        return (mean * share).clamp(max=most)
