"""A Gaussian copula of a table: marginal distributions from its columns, and the correlations of their normal scores.

F_j is the distribution function of column j: linear between the values of the table, and the middle of the jump at a
value that occurs several times. With `z_j = Phi^-1(F_j(x_j))`, the copula says that z is normal with correlation
matrix R. R is estimated by the correlations of the normal scores of the table, and shrunk towards the identity by 0.001
so that it is invertible.

Some columns move and the others are fixed. The moving ones are normal given the fixed ones:
`mu = R_mf R_ff^-1 z_f`, `S = R_mm - R_mf R_ff^-1 R_fm = L L^T`. A move of size s in (0, 1] is

    z' = mu + sqrt(1 - s^2) (z - mu) + s L xi,    xi standard normal,

which leaves this conditional distribution as it is: if a row comes from the copula, so does the moved one. With s = 1
it is an independent draw; a small s is a small move, whose standard deviation is about s in each normal score.

Only moves with `|xi| <= r` are possible, where a standard normal vector is that short with probability 0.99 (or those
no longer than the one that leaves the row as it is). So a search for a worst case stays among plausible moves, and
cannot go far in all columns at once; a longer xi is shortened.

Source: Sklar 1959; Gaussian copulas of tables: Patki, Wedge and Veeramachaneni, "The Synthetic Data Vault" (DSAA 2016).
The move is that of preconditioned Crank-Nicolson (Cotter et al. 2013), which keeps a normal distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from standfast.tensors import count_at_once, send

_SHRINKAGE = 1e-3
_PRODUCTS = 1 << 18  # that are in memory at once: 2 MB


class Origin(NamedTuple):
    """What moves start from: normal scores, mu, and the xi and the values of a row that stays; `(M, m)` each."""

    scores: Tensor
    mean: Tensor
    still: Tensor
    values: Tensor

    def select(self, rows: Tensor) -> Origin:
        """Select the rows with these numbers."""
        return Origin(*(part[rows] for part in self))


@dataclass(frozen=True)
class Copula:
    """A copula of J columns, of which m move; float64.

    Attributes:
        values: of the table, sorted, `(J, n)`.
        levels: their distribution functions, in (0, 1), `(J, n)`.
        moving, fixed: the numbers of the columns among the J.
        discrete: for each moving column, whether only values of the table occur.
        weights: `R_mf R_ff^-1`, `(m, f)`.
        root, inverse: L and its inverse, `(m, m)` each.
        size: s.
        radius: r, for `|xi|`.
    """

    values: Tensor
    levels: Tensor
    moving: tuple[int, ...]
    fixed: tuple[int, ...]
    discrete: tuple[bool, ...]
    weights: Tensor
    root: Tensor
    inverse: Tensor
    size: float
    radius: float

    def score(self, x: Tensor) -> Tensor:
        """The normal scores of `x` `(M, J)`, which is cut to the range of the table."""
        scores: Tensor = torch.special.ndtri(self._find_levels(x))
        return scores

    def locate(self, x: Tensor) -> Origin:
        """Where rows `x` `(M, J)` start from."""
        scores = self.score(x)
        of_moving = scores[:, list(self.moving)]
        of_fixed = scores[:, list(self.fixed)]
        mean = _multiply(of_fixed, self.weights)
        # the xi of z' = z, solved from the formula of a move
        root = math.sqrt(1 - self.size**2)
        keep = (1 - root) / self.size
        residual = _multiply(of_moving - mean, self.inverse)
        still = (keep * residual).clamp(-6, 6)
        values = self._find_values(self._propose(of_moving, mean, still))
        return Origin(of_moving, mean, still, values)

    def move(self, origin: Origin, shift: Tensor) -> tuple[Tensor, Tensor]:
        """How far the moving columns of rows move.

        Args:
            origin: where the rows start from.
            shift: of the uniform numbers `Phi(xi)` from those that leave the row as it is, `(M, m)`.

        Returns:
            The changes, `(M, m)`, and whether xi is short enough, bool `(M,)`; a longer one is shortened.
        """
        uniform = torch.special.ndtr(origin.still) + shift
        # the normal quantiles of 0 and 1 are infinite
        noise: Tensor = torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12))
        noise = torch.where(shift == 0, origin.still, noise)  # a row that stays does so exactly
        # a row may lie further out than the radius, and must be able to stay
        longest = _measure_length(origin.still).clamp(min=self.radius)
        length = _measure_length(noise)
        inside = length <= longest
        shrinkage = torch.where(inside, 1.0, longest / length.clamp(min=1e-300))
        noise = shrinkage[:, None] * noise
        proposed = self._propose(origin.scores, origin.mean, noise)
        moved = self._find_values(proposed)
        return moved - origin.values, inside

    def _propose(self, own: Tensor, mean: Tensor, noise: Tensor) -> Tensor:
        return (
            mean
            + math.sqrt(1 - self.size**2) * (own - mean)
            + self.size * _multiply(noise, self.root)
        )

    def _find_levels(self, x: Tensor) -> Tensor:
        x = x.T.contiguous()
        values = self.values
        last = values.shape[1] - 1
        first = torch.searchsorted(values, x, right=False)
        after = torch.searchsorted(values, x, right=True)
        below = (first - 1).clamp(0, last)
        above = first.clamp(0, last)
        x0 = values.gather(1, below)
        x1 = values.gather(1, above)
        p0 = self.levels.gather(1, below)
        p1 = self.levels.gather(1, above)
        width = (x1 - x0).clamp(min=1e-300)
        share = torch.where(x1 > x0, (x - x0) / width, 0.0)
        between = torch.lerp(p0, p1, share.clamp(0, 1))
        # the middle of the jump for a value of the table, linear between two values
        is_in_table = after > first
        return torch.where(is_in_table, p1, between).T

    def _find_values(self, scores: Tensor) -> Tensor:
        """The quantiles of the moving columns at the levels of their normal scores `(M, m)`."""
        chosen = list(self.moving)
        values = self.values[chosen].contiguous()
        levels = self.levels[chosen].contiguous()
        n = values.shape[1]
        p = torch.special.ndtr(scores).T.contiguous()
        level = p.detach()
        above = torch.searchsorted(levels, level, right=False).clamp(0, n - 1)
        below = (above - 1).clamp(min=0)
        x0 = values.gather(1, below)
        x1 = values.gather(1, above)
        p0 = levels.gather(1, below)
        p1 = levels.gather(1, above)
        has_width = p1 > p0
        width = torch.where(has_width, p1 - p0, 1.0)
        share = torch.where(has_width, (p - p0) / width, 1.0)
        quantiles = torch.lerp(x0, x1, share.clamp(0, 1))
        if any(self.discrete):
            tops = torch.searchsorted(values, values, right=True).double() / n  # of the jumps
            # the smallest value whose distribution function reaches the level: no number in between occurs
            jump = torch.searchsorted(tops, level, right=False).clamp(0, n - 1)
            discrete = send(self.discrete, p.device)[:, None]
            quantiles = torch.where(discrete, values.gather(1, jump), quantiles)
        return quantiles.T


def fit_copula(
    table: Tensor,
    moving: tuple[int, ...],
    size: float,
    discrete: tuple[bool, ...] = (),
    coverage: float = 0.99,
) -> Copula:
    """The copula of a table `(n, J)`, whose columns `moving` move by `size`; all are continuous unless `discrete`.

    `coverage` is the probability of `|xi| <= r`.

    >>> table = torch.stack([torch.arange(9.0), torch.arange(9.0) ** 2], dim=1)
    >>> copula = fit_copula(table, (0,), 0.5)
    >>> x = torch.tensor([[4.0, 16.0]], dtype=torch.float64)
    >>> copula.move(copula.locate(x), torch.zeros(1, 1))[0].item()
    0.0
    """
    values, order = table.double().T.contiguous().sort(dim=1)
    n = values.shape[1]
    first = torch.searchsorted(values, values, right=False)
    after = torch.searchsorted(values, values, right=True)
    # the middle of each jump, so that no level is 0 or 1
    levels = (first + after).double() / (2 * n)
    scores = torch.zeros_like(values).scatter(1, order, torch.special.ndtri(levels))
    scores = scores - scores.mean(1, keepdim=True)
    length = scores.square().sum(1, keepdim=True).sqrt()
    # a column that is constant has no correlation with the others
    scores = torch.where(length > 0, scores / length.clamp(min=1e-300), 0.0)
    correlation = (1 - _SHRINKAGE) * scores @ scores.T
    correlation.fill_diagonal_(1.0)
    m = list(moving)
    f = [column for column in range(len(values)) if column not in moving]
    between = correlation[m][:, f]
    weights = between
    if f:
        of_fixed = correlation[f][:, f]
        weights = torch.linalg.solve(of_fixed, between.T).T
    covariance = correlation[m][:, m] - weights @ between.T
    # takes the asymmetry of rounding away
    root = torch.linalg.cholesky((covariance + covariance.T) / 2)
    identity = torch.eye(len(m), dtype=root.dtype)
    inverse = torch.linalg.solve_triangular(root, identity, upper=False)
    discrete = discrete or (False,) * len(m)
    return Copula(
        values,
        levels,
        tuple(moving),
        tuple(f),
        discrete,
        weights,
        root,
        inverse,
        size,
        _find_radius(len(m), coverage),
    )


def _find_radius(dimension: int, coverage: float) -> float:
    """The r with `P(|xi| <= r) = coverage` for a standard normal xi: a quantile of the chi distribution."""
    if coverage >= 1 or dimension == 0:
        return math.inf
    shape = torch.tensor(dimension / 2, dtype=torch.float64)
    low = 0.0
    high = math.sqrt(dimension) + 10
    for _ in range(60):
        middle = (low + high) / 2
        # |xi|^2 / 2 has a gamma distribution of shape d / 2
        half_square = torch.tensor(middle**2 / 2, dtype=torch.float64)
        share = torch.special.gammainc(shape, half_square)
        if float(share) < coverage:
            low = middle
        else:
            high = middle
    return high


def _measure_length(noise: Tensor) -> Tensor:
    """The Euclidean length of each row, column by column."""
    total = torch.zeros(len(noise), dtype=noise.dtype, device=noise.device)
    for column in range(noise.shape[1]):
        total = total + noise[:, column] ** 2
    is_long = total > 0
    # the root of 0 has no derivative
    length = torch.where(is_long, total, 1.0).sqrt()
    return length * is_long


def _multiply(rows: Tensor, matrix: Tensor) -> Tensor:
    """`rows @ matrix.T`, each number by itself: the bits of a product of matrices depend on the number of rows."""
    numbers = count_at_once(_PRODUCTS, matrix)
    size = max(1, numbers // max(1, matrix.numel()))
    parts = []
    for part in torch.split(rows, size):
        products = part[:, None] * matrix
        parts.append(products.sum(2))
    return torch.cat(parts)
