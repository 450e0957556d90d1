"""Other intervals, with which `interval_coverage.py` compares: each returns two ends.

Most are of a proportion from clusters `(S, M)`; `max_bootstrap` is of means.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betaln, gammaln, stdtrit

from standfast.statistics.proportions import proportion_intervals

Ends = tuple[np.ndarray, np.ndarray]


def pool_draws(hits: np.ndarray, draws: np.ndarray, level: float) -> Ends:
    """Clopper and Pearson, as if all draws were independent."""
    return proportion_intervals(hits.sum(1), draws.sum(1), level)


def korn_graubard(hits: np.ndarray, draws: np.ndarray, level: float) -> Ends:
    """As published in 1998, with as many samples as clusters where all is hit or none."""
    clusters, all_draws = hits.shape[1], draws.sum(1)
    share = hits.sum(1) / all_draws
    residuals = hits - share[:, None] * draws
    variance = clusters / (clusters - 1) * (residuals**2).sum(1) / all_draws**2
    tail = (1 + level) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        size = (
            share
            * (1 - share)
            / variance
            * (stdtrit(all_draws - 1, tail) / stdtrit(clusters - 1, tail)) ** 2
        )
    size = np.where((share > 0) & (share < 1), np.minimum(size, all_draws), clusters)
    return proportion_intervals(share * size, size, level)


def take_one_draw(hits: np.ndarray, draws: np.ndarray, level: float) -> Ends:
    """Clopper and Pearson on one random draw of each cluster."""
    single_hits = (np.random.default_rng(0).random(hits.shape) * draws < hits).sum(1)
    return proportion_intervals(single_hits, np.full(len(hits), hits.shape[1]), level)


def student(hits: np.ndarray, draws: np.ndarray, level: float) -> Ends:
    """Student's interval of the cluster means."""
    shares = hits / draws
    clusters = shares.shape[1]
    reach = stdtrit(clusters - 1, (1 + level) / 2) * shares.std(1, ddof=1) / math.sqrt(clusters)
    return np.maximum(0, shares.mean(1) - reach), np.minimum(1, shares.mean(1) + reach)


def bet(hits: np.ndarray, draws: np.ndarray, level: float) -> Ends:
    """Betting on cluster means (Waudby-Smith and Ramdas 2024), with a mixture of constant bets."""
    shares = hits / draws
    error = (1 - level) / 2
    return _bet_low(shares, error), 1 - _bet_low(1 - shares, error)


def _bet_low(shares: np.ndarray, error: float) -> np.ndarray:
    """The smallest mean against which the bets do not win `1 / error`, by bisection."""
    stakes = np.linspace(0.02, 1, 15)
    weights = np.full(len(stakes), 0.5 / (len(stakes) - 1))
    weights[-1] = 0.5
    low, high = np.full(len(shares), 1e-9), np.maximum(shares.mean(1), 1e-9)
    for _ in range(20):
        middle = (low + high) / 2
        gains = shares / middle[:, None] - 1
        with np.errstate(divide="ignore"):
            wealth = [
                weight * np.exp(np.log1p(stake * gains).sum(1))
                for weight, stake in zip(weights, stakes, strict=True)
            ]
        rejected = sum(wealth) >= 1 / error
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return low


_HALF = np.logspace(-4, math.log10(0.5), 40)
_PROBABILITIES = np.unique(np.concatenate([_HALF, 1 - _HALF]))
_CORRELATIONS = np.array([0.0005, 0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.97, 0.995])


def beta_binomial(hits: np.ndarray, draws: np.ndarray, level: float) -> Ends:
    """The Bayesian interval of a beta-binomial law; Jeffreys' prior for p, a uniform one for the correlation."""
    most = int(draws.max())
    if not (draws == most).all():
        return np.full(len(hits), np.nan), np.full(len(hits), np.nan)
    p, correlation = np.meshgrid(_PROBABILITIES, _CORRELATIONS, indexing="ij")
    first = (p * (1 / correlation - 1))[..., None]
    second = ((1 - p) * (1 / correlation - 1))[..., None]
    k = np.arange(most + 1)
    choose = gammaln(most + 1) - gammaln(k + 1) - gammaln(most - k + 1)
    log_law = choose + betaln(k + first, most - k + second) - betaln(first, second)
    times = np.stack([(hits == count).sum(1) for count in k], axis=1)
    log_likelihood = (times @ log_law.reshape(-1, most + 1).T).reshape(len(hits), *p.shape)
    edges = _find_edges(_PROBABILITIES)
    prior = np.diff(np.arcsin(np.sqrt(edges)))[:, None] * np.diff(_find_edges(_CORRELATIONS))
    posterior = (np.exp(log_likelihood - log_likelihood.max((1, 2), keepdims=True)) * prior).sum(2)
    below = np.cumsum(posterior, 1) / posterior.sum(1, keepdims=True)
    tail = (1 - level) / 2
    low, high = edges[:-1][(below > tail).argmax(1)], edges[1:][(below >= 1 - tail).argmax(1)]
    return np.where(hits.sum(1) == 0, 0.0, low), np.where(hits.sum(1) == draws.sum(1), 1.0, high)


def _find_edges(grid: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], (grid[1:] + grid[:-1]) / 2, [1.0]])


def max_bootstrap(values: np.ndarray, level: float, seed: int, resamples: int) -> Ends:
    """The symmetric studentised maximum bootstrap of means over draws `(R, F)`, with nothing for rare features."""
    count = len(values)
    centred = values - values.mean(0)
    error = np.sqrt((centred**2).sum(0) / (count * (count - 1)))
    scaled = np.divide(centred, error, out=np.zeros_like(centred), where=error > 0)
    rows = (
        np.random.default_rng(seed).integers(count, size=(resamples, count))
        + count * np.arange(resamples)[:, None]
    )
    times = np.bincount(rows.ravel(), minlength=rows.size).reshape(resamples, count).astype(float)
    offset = times @ scaled / count
    spread = np.sqrt(np.maximum(times @ scaled**2 - count * offset**2, 0) / (count * (count - 1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = np.where(
            spread > 1e-6, np.abs(offset) / spread, np.where(np.abs(offset) > 1e-6, np.inf, 0)
        )
    width = np.zeros_like(error)
    width[error > 0] = np.quantile(ratios.max(1), level, method="higher") * error[error > 0]
    return values.mean(0) - width, values.mean(0) + width
