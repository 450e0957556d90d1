"""Similarities that compare maps feature by feature: Pearson correlation, cosine, mean squared error."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from standfast.errors import check
from standfast.similarity.rows import binade, check_map, check_pair, extremes, is_constant, row_sum, working_dtype


class _Rows(NamedTuple):
    values: Tensor  # (N, F), rescaled
    empty: Tensor  # (N,), the row has nothing to compare, so its similarity is 0
    finite: Tensor  # (N,)


def _centre(a: Tensor, dtype: torch.dtype) -> _Rows:
    """Rows with mean 0 and values of order 1, for maps of any offset and size.

    The middle of the range is subtracted first, which is exact for values close to it. Then the rows are divided by a
    power of two, which is exact too. Only then the mean is subtracted, so a large offset costs no precision.
    Correlation does not depend on shift and scale, so gradients need not flow through them.
    """
    x = a.flatten(1).to(dtype)
    low, high = extremes(x)
    half_range = high / 2 - low / 2
    x = x - (low / 2 + high / 2)[:, None]  # a new tensor, on which the rest works in place
    x.div_(binade(half_range)[:, None])
    x.sub_((row_sum(x) / x.shape[1])[:, None])
    return _Rows(x, is_constant(low, high, torch.finfo(a.dtype).eps), half_range.isfinite())


def _scale(a: Tensor, dtype: torch.dtype) -> _Rows:
    """Rows rescaled so that their largest absolute value is of order 1."""
    x = a.flatten(1).to(dtype)
    low, high = extremes(x)
    size = torch.maximum(low.abs(), high.abs())
    return _Rows(x / binade(size)[:, None], size == 0, size.isfinite())


def _normalised_product(x: _Rows, y: _Rows) -> Tensor:
    """Inner product divided by both norms, in [-1, 1]; 0 for empty rows, NaN for rows that are not finite."""
    return _correlate(x, row_sum(x.values * x.values), y)


def _correlate(x: _Rows, xx: Tensor, y: _Rows) -> Tensor:
    """The same, with the squared norms `xx` `(N,)` of the rows `x`; `x` may be one row for all of `y`."""
    empty = x.empty | y.empty
    xx = torch.where(empty, 1, xx)
    yy = torch.where(empty, 1, row_sum(y.values * y.values))
    cosine = row_sum(x.values * y.values) / (xx.sqrt() * yy.sqrt())
    cosine = torch.where(empty, 0, cosine.clamp(-1, 1))
    return torch.where(x.finite & y.finite, cosine, torch.nan)


def pearson(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's correlation coefficient over all features of a map.

    Accurate for maps of any size and offset, without underflow or overflow. Constant maps (`is_degenerate`) have
    similarity 0 with every map. Differentiable; gradients are finite, and 0 where a map is constant.

    Args:
        a: maps `(N, ...)`, floating; half precision is computed in float32.
        b: maps of the same shape.

    Returns:
        `(N,)` in [-1, 1]; NaN for a row that holds a NaN or an infinity.

    Raises:
        ArgumentError: shapes, devices or types do not fit.

    Source: Pearson, Proc. R. Soc. 58 (1895).

    >>> pearson(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 2.0, 4.0]]))
    tensor([0.98])
    """
    check_pair(a, b)
    dtype = working_dtype(a, b)
    return _normalised_product(_centre(a, dtype), _centre(b, dtype))


class CentredReference:
    """Reference maps `(N, ...)`, centred once; `pearson(maps, rows)` compares other maps with them.

    The results have the same bits as those of the function `pearson`, in half of its time.

    Args:
        reference: floating maps `(N, ...)`.

    >>> reference = CentredReference(torch.tensor([[1.0, 2.0, 3.0]]))
    >>> reference.pearson(torch.tensor([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0]]), torch.tensor([0, 0]))
    tensor([0.98, 0.00])
    """

    def __init__(self, reference: Tensor) -> None:
        check_map(reference, "reference")
        self._like = reference[:1]
        self._rows = _centre(reference.detach(), working_dtype(reference))
        self._squares = row_sum(self._rows.values * self._rows.values)

    def pearson(self, maps: Tensor, rows: Tensor) -> Tensor:
        """Correlation `(M,)` of `maps` `(M, ...)` with the references of index `rows` `(M,)`; differentiable."""
        check_pair(self._like.expand(len(maps), *self._like.shape[1:]), maps)
        check(maps.dtype == self._like.dtype, "maps", f"{self._like.dtype}, as the references", maps.dtype)
        own, squares = self._rows, self._squares
        if len(squares) > 1:  # a single reference broadcasts
            own, squares = _Rows(*(each.index_select(0, rows) for each in own)), squares.index_select(0, rows)
        return _correlate(own, squares, _centre(maps, working_dtype(maps)))


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the angle between two maps, as vectors of all their features.

    A map of zeros has similarity 0 with every map. Differentiable; gradients are finite.

    Args:
        a: maps `(N, ...)`, floating; half precision is computed in float32.
        b: maps of the same shape.

    Returns:
        `(N,)` in [-1, 1]; NaN for a row that holds a NaN or an infinity.

    Raises:
        ArgumentError: shapes, devices or types do not fit.

    >>> cosine(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0, 1.0], [1.0, 1.0]]))
    tensor([0.71, 0.00])
    """
    check_pair(a, b)
    dtype = working_dtype(a, b)
    return _normalised_product(_scale(a, dtype), _scale(b, dtype))


def mse(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared difference over all features: a discrepancy, 0 for equal maps and larger for less similar ones.

    It depends on the size of the values, so no threshold suits all maps. Differentiable.

    Args:
        a: maps `(N, ...)`, floating; half precision is computed in float32.
        b: maps of the same shape.

    Returns:
        `(N,)`, at least 0; the largest number of the dtype where the true value is larger; NaN for a row that holds a
        NaN or an infinity.

    Raises:
        ArgumentError: shapes, devices or types do not fit.

    >>> mse(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 4.0]]))
    tensor([2.])
    """
    check_pair(a, b)
    dtype = working_dtype(a, b)
    x, y = a.flatten(1).to(dtype), b.flatten(1).to(dtype)
    extent = torch.stack((*extremes(x), *extremes(y))).abs().amax(0)
    scale = binade(extent)
    difference = x / scale[:, None] - y / scale[:, None]
    mean_square = row_sum(difference * difference) / x.shape[1]
    # One factor at a time: the square of the scale may overflow where the product does not.
    result = (mean_square * scale * scale).clamp(max=torch.finfo(dtype).max)
    return torch.where(extent.isfinite(), result, torch.nan)
