"""The copula of a table: against a slow version of its formula, and draws against the table that it was fitted to."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import stats

from standfast.neighbourhoods.copula import Copula, fit_copula


def make_table(rows: int = 600) -> torch.Tensor:
    """Skewed, heavy and bounded columns that depend on each other, and a column of counts."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(rows, 4, generator=generator, dtype=torch.float64)
    z[:, 1] = 0.8 * z[:, 0] + 0.6 * z[:, 1]
    z[:, 2] = -0.5 * z[:, 1] + 0.75**0.5 * z[:, 2]
    z[:, 3] = 0.6 * z[:, 2] + 0.8 * z[:, 3]
    return torch.stack(
        [z[:, 0].exp(), z[:, 1] ** 3, torch.special.ndtr(z[:, 2]), (2 * z[:, 3]).round()], dim=1
    )


def move_slowly(
    table: np.ndarray, moving: list[int], size: float, row: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """The formula for one row, with scipy and numpy; columns without equal values."""
    n, columns = table.shape
    levels = (np.arange(n) + 0.5) / n
    ranked = np.sort(table, axis=0)
    scores = stats.norm.ppf(
        np.stack([np.interp(table[:, j], ranked[:, j], levels) for j in range(columns)], 1)
    )
    correlation = np.corrcoef(scores.T) * 0.999 + 0.001 * np.eye(columns)
    fixed = [j for j in range(columns) if j not in moving]
    z = stats.norm.ppf([np.interp(row[j], ranked[:, j], levels) for j in range(columns)])
    inverse = np.linalg.inv(correlation[np.ix_(fixed, fixed)])
    weights = correlation[np.ix_(moving, fixed)] @ inverse
    mean = weights @ z[fixed]
    covariance = correlation[np.ix_(moving, moving)] - weights @ correlation[np.ix_(fixed, moving)]
    moved = (
        mean
        + math.sqrt(1 - size**2) * (z[moving] - mean)
        + size * np.linalg.cholesky(covariance) @ noise
    )
    return np.array(
        [
            np.interp(stats.norm.cdf(m), levels, ranked[:, j])
            for m, j in zip(moved, moving, strict=True)
        ]
    )


def draw(copula: Copula, rows: torch.Tensor, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    still = torch.special.ndtr(copula.locate(rows).still)
    uniform = torch.rand(still.shape, generator=generator, dtype=torch.float64)
    return rows[:, list(copula.moving)] + copula.move(copula.locate(rows), uniform - still)[0]


def test_a_move_is_the_formula() -> None:
    table = make_table()[:, :3]
    rows = torch.cat([table[:4], (table[:4] + table[4:8]) / 2])
    noise = torch.randn(8, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    copula = fit_copula(table, (2, 0), 0.4)
    change, inside = copula.move(
        copula.locate(rows),
        torch.special.ndtr(noise) - torch.special.ndtr(copula.locate(rows).still),
    )
    assert inside.all()
    found = rows[:, [2, 0]] + change
    for row, xi, value in zip(rows.numpy(), noise.numpy(), found.numpy(), strict=True):
        np.testing.assert_allclose(
            value, move_slowly(table.numpy(), [2, 0], 0.4, row, xi), rtol=1e-9, atol=1e-9
        )
    assert torch.equal(
        copula.move(copula.locate(rows), torch.zeros(8, 2))[0],
        torch.zeros(8, 2, dtype=torch.float64),
    )
    # a longer xi is shortened to the quantile of the chi distribution
    far = 5 * noise / noise.norm(dim=1, keepdim=True)
    change, inside = copula.move(
        copula.locate(rows), torch.special.ndtr(far) - torch.special.ndtr(copula.locate(rows).still)
    )
    assert not inside.any()
    short = far / 5 * stats.chi(2).ppf(0.99)
    for row, xi, value in zip(
        rows.numpy(), short.numpy(), (rows[:, [2, 0]] + change).numpy(), strict=True
    ):
        np.testing.assert_allclose(
            value, move_slowly(table.numpy(), [2, 0], 0.4, row, xi), rtol=1e-6, atol=1e-6
        )


def test_independent_draws_have_the_marginals_and_correlations_of_the_table() -> None:
    table = make_table()
    copula = fit_copula(table, (0, 1, 2, 3), 1.0, (False, False, False, True), 1.0)
    drawn = draw(copula, table[:1].expand(20_000, -1))
    for column in range(3):
        assert stats.ks_2samp(drawn[:, column].numpy(), table[:, column].numpy()).pvalue > 1e-3
    # counts: the shares of the table, exactly
    values, counts = table[:, 3].unique(return_counts=True)
    assert set(drawn[:, 3].tolist()) <= set(values.tolist())
    observed = [(drawn[:, 3] == value).sum().item() for value in values]
    assert stats.chisquare(observed, counts.numpy() / 600 * 20_000).pvalue > 1e-3
    ours, theirs = (stats.spearmanr(rows.numpy()).statistic for rows in (drawn, table))
    assert np.abs(ours - theirs).max() < 0.06
    assert np.abs(theirs).max(initial=0, where=~np.eye(4, dtype=bool)) > 0.7


def test_a_move_keeps_the_distribution_of_the_table() -> None:
    """Rows of the table, moved with one column fixed, are distributed as before, also given the fixed column."""
    table = make_table(4000)[:, :3]
    moved = draw(fit_copula(table, (0, 1), 0.5, (), 1.0), table)
    for column in range(2):
        assert stats.ks_2samp(moved[:, column].numpy(), table[:, column].numpy()).pvalue > 1e-3
        change = stats.spearmanr(moved[:, column].numpy(), table[:, column].numpy()).statistic
        # the correlation of normal scores is 0.87, less what mu tells of both
        assert 0.6 < change < 0.95
    after = torch.cat([moved, table[:, 2:]], dim=1)
    ours, theirs = (stats.spearmanr(rows.numpy()).statistic for rows in (after, table))
    assert np.abs(ours - theirs).max() < 0.04


def test_constant_columns_and_rows_outside_the_table() -> None:
    table = torch.cat([make_table(50)[:, :2], torch.full((50, 1), 7.0, dtype=torch.float64)], dim=1)
    copula = fit_copula(table, (0, 2), 0.5)
    moved = draw(copula, table)
    assert torch.equal(moved[:, 1], table[:, 2])
    assert torch.isfinite(moved).all()
    far = torch.tensor([[1e6, -1e6, 0.0]], dtype=torch.float64)
    assert torch.equal(
        copula.move(copula.locate(far), torch.zeros(1, 2))[0],
        torch.zeros(1, 2, dtype=torch.float64),
    )
