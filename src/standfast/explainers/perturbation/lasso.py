"""The lasso by coordinate descent, for several responses to one design at once."""

from __future__ import annotations

import numpy as np

from standfast.tensors import Array

#: coordinates move by less than this share of the largest coefficient in the last round
_PRECISION = 1e-10
_MOST_ROUNDS = 10_000


def fit_lasso(design: Array, responses: Array, penalty: Array) -> Array:
    """The coefficients `(m, n)` of `argmin_b 1 / (2 R) |y - y_mean - (Z - Z_mean) S b|^2 + penalty |b|_1`, times S.

    The columns of the design are scaled to variance 1 by S, so that the penalty is the same for all; the intercept has
    none. It is the minimum that scikit-learn's `Lasso` finds behind its `StandardScaler`. Each response is fitted by
    itself: its last bits do not depend on the others.

    Args:
        design: `(R, m)`.
        responses: `(R, n)`.
        penalty: of each response, at least 0, `(n,)`.

    >>> design = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> fit_lasso(design, design @ np.array([[2.0], [0.0]]), np.array([0.25])).round(6).tolist()
    [[1.5], [0.0]]
    """
    count = len(design)
    centred = design - design.mean(0)
    scale = np.sqrt((centred**2).mean(0))
    is_constant = scale == 0
    # a column without variance gets no coefficient, and must not divide by 0
    scale = np.where(is_constant, 1.0, scale)
    standard = centred / scale
    gram = standard.T @ standard / count
    # neither a mean nor a matrix product: their last bits would depend on the number of responses
    centred_responses = responses - _sum_rows(responses) / count
    moments = (
        np.stack([_sum_rows(column[:, None] * centred_responses) for column in standard.T]) / count
    )
    coefficients = _descend(gram, moments, penalty, is_constant)
    return coefficients / scale[:, None]


def _descend(gram: Array, moments: Array, penalty: Array, is_constant: Array) -> Array:
    """Coefficients `(m, n)` of standardised columns, one after the other until none moves."""
    coefficients = np.zeros_like(moments)
    moving = np.ones(moments.shape[1], dtype=bool)
    for _ in range(_MOST_ROUNDS):
        before = coefficients.copy()
        for column in range(len(gram)):
            if is_constant[column]:
                continue
            size = gram[column, column]
            # what the other columns do not say of the responses
            explained_by_all = _sum_rows(gram[column][:, None] * coefficients)
            rest = moments[column] - explained_by_all + size * coefficients[column]
            # soft thresholding: the exact minimum along one coordinate
            beyond_penalty = np.maximum(np.abs(rest) - penalty, 0)
            minimum = np.sign(rest) * beyond_penalty / size
            coefficients[column] = np.where(moving, minimum, coefficients[column])
        change = np.abs(coefficients - before).max(0, initial=0.0)
        largest = np.abs(coefficients).max(0, initial=0.0)
        moving &= change > _PRECISION * largest
        if not moving.any():
            break
    return coefficients


def _sum_rows(values: Array) -> Array:
    """The sum over rows `(R, n)`, one row after the other, `(n,)`."""
    total: Array = np.add.accumulate(values, axis=0)[-1]
    return total
