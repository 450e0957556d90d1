"""Probabilities and quantiles: those of scipy, also far out and for large numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from standfast.statistics.distributions import (
    beta_quantile,
    binomial_cdf,
    f_tail,
    incomplete_beta,
    normal_cdf,
    normal_quantile,
    t_quantile,
)


def test_the_normal_distribution() -> None:
    x = np.concatenate([np.linspace(-37, 9, 5001), [-math.inf, math.inf]])
    np.testing.assert_allclose(normal_cdf(x), scipy.stats.norm.cdf(x), rtol=1e-12, atol=0)
    p = np.concatenate([np.linspace(0, 1, 5001), 10.0 ** -np.arange(1, 300)])
    np.testing.assert_allclose(normal_quantile(p), scipy.stats.norm.ppf(p), rtol=0, atol=1e-14)
    assert float(normal_cdf(0)) == 0.5


@pytest.mark.parametrize("p", [0.55, 0.75, 0.95, 0.975, 0.9999995])
def test_quantiles_of_t(p: float) -> None:
    degrees = [0.3, *range(1, 60), *np.geomspace(1, 1e9, 200), 1000.0, 1000.5, math.inf]
    found = [t_quantile(p, each) for each in degrees]
    digits = 5e-12 if scipy.__version__ >= "1.16" else 1e-10  # the reference itself was less exact before
    np.testing.assert_allclose(found, scipy.stats.t.ppf(p, degrees), rtol=digits)
    assert math.isnan(t_quantile(p, math.nan))


@pytest.mark.parametrize("samples", [1, 5, 300, 100_000, 10_000_000])
def test_quantiles_of_beta(samples: int) -> None:
    """The ends of Clopper and Pearson's intervals, and their logarithms, which are small where all samples fail."""
    hits = sorted({0, *range(min(samples, 9)), samples // 3, samples // 2, samples - 1})
    for tail in (0.0005, 0.025, 0.975):
        found = np.array([beta_quantile(tail, k + 1, samples - k) for k in hits])
        np.testing.assert_allclose(found, scipy.stats.beta.ppf(tail, np.add(hits, 1), samples - np.array(hits)), 2e-10)
        back = [incomplete_beta(x, k + 1, samples - k) for x, k in zip(found, hits, strict=True)]
        np.testing.assert_allclose(back, tail, rtol=1e-8)
    assert math.isnan(beta_quantile(0.5, math.nan, 1.0))


def test_the_incomplete_beta_function() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        a, b = 10 ** rng.uniform(-1, 5, 2)
        x = rng.beta(a, b)
        expected = scipy.special.betainc(a, b, x)
        assert incomplete_beta(x, a, b) == pytest.approx(expected, rel=1e-10, abs=1e-290)
    assert (incomplete_beta(0.0, 2, 3), incomplete_beta(1.0, 2, 3)) == (0.0, 1.0)


def test_the_tail_of_f() -> None:
    rng = np.random.default_rng(0)
    for x, above, below in zip(
        rng.exponential(3, 300), rng.integers(1, 30, 300), rng.integers(1, 3000, 300), strict=True
    ):
        expected = scipy.stats.f.sf(x, above, below)
        assert f_tail(float(x), int(above), int(below)) == pytest.approx(expected, rel=1e-11, abs=1e-300)
    assert f_tail(0.0, 2, 3) == 1.0
    assert f_tail(math.inf, 2, 3) == 0.0


@pytest.mark.parametrize("q", [0.01, 0.05, 0.5, 0.9])
def test_the_binomial(q: float) -> None:
    for count in (0, 1, 2, 17, 100, 3000):
        np.testing.assert_allclose(
            binomial_cdf(count, q), scipy.stats.binom.cdf(np.arange(count + 1), count, q), rtol=1e-11, atol=1e-280
        )
        assert binomial_cdf(count, q)[-1] <= 1.0
    with pytest.raises(ValueError, match="read-only"):
        binomial_cdf(2, q)[0] = 1.0
