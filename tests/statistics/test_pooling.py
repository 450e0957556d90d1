"""The pooled test of many inputs keeps its level and equals scipy's; the interval covers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from standfast.algorithms.masks.random_masks import draw_masks, measure_consistency
from standfast.errors import ArgumentError
from standfast.statistics.pooling import pool_inputs
from standfast.tensors import Streams


def test_the_test_is_stouffer_s() -> None:
    p = np.array([0.013, 0.4, 0.22, 0.0785])  # middles of steps of a thousandth
    found = pool_inputs(np.array([0.5, 0.1, 0.3, 0.2]), p + 0.5 / 1000, draws=999)
    assert found.p_value == pytest.approx(
        scipy.stats.combine_pvalues(p, "stouffer").pvalue, rel=1e-6
    )
    assert (found.median.value, found.median.low, found.median.high) == (0.25, 0.1, 0.5)
    assert found.count == 4


def test_inputs_without_a_value_do_not_count() -> None:
    found = pool_inputs(np.array([0.5, math.nan, 0.1]), np.array([0.2, 0.001, 0.3]), 99)
    assert found == pool_inputs(np.array([0.5, 0.1]), np.array([0.2, 0.3]), 99)
    none = pool_inputs(np.array([math.nan]), np.array([math.nan]), 99)
    assert (none.count, none.median, math.isnan(none.p_value)) == (0, None, True)
    assert 0 < pool_inputs(np.zeros(3), np.ones(3), 99).p_value <= 1
    with pytest.raises(ArgumentError, match="p_values"):
        pool_inputs(np.zeros(3), np.ones(2), 99)


def test_unrelated_weights_are_rejected_as_often_as_the_level_says() -> None:
    """200 groups of five inputs with a null of 99 permutations each, for weights that share nothing but their masks."""
    groups, inputs = 200, 5
    streams = Streams(range(groups * inputs), torch.device("cpu"))
    masks = draw_masks(60, 10, 0.8, streams)
    weights = [mean + 0.1 * streams.normal((60,), torch.float64) for mean in (0.9, 0.5)]
    found = measure_consistency(
        torch.stack(weights), masks, permutations=99, resamples=0, streams=streams
    )
    rho, p = (each.reshape(groups, inputs).numpy() for each in (found.rho, found.p_value))
    together = np.array([pool_inputs(a, b, 99).p_value for a, b in zip(rho, p, strict=True)])
    # binomial limits that a valid test exceeds in one of ten thousand cases; a quarter of them would be too few
    for level in (0.05, 0.2):
        count = int((together < level).sum())
        assert count <= scipy.stats.binom.isf(1e-4, groups, level)
        assert count >= scipy.stats.binom.ppf(1e-4, groups, 0.4 * level)


def test_many_weak_inputs_are_strong_together() -> None:
    p = np.full(20, 0.2)
    assert pool_inputs(np.full(20, 0.3), p, 999).p_value < 0.001
    assert pool_inputs(np.full(2, 0.3), p[:2], 999).p_value > 0.05
