"""Areas, moments, scales, quantiles, intervals and the gate: scipy, closed forms, loops and plain Monte Carlo."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from refusals import assert_refused

import standfast
from standfast.statistics import bootstrap
from standfast.statistics.corruption.gate import apply_gate
from standfast.statistics.corruption.moments import (
    compute_moments,
    compute_printed_f1,
    compute_quantile,
    compute_quantile_interval,
    integrate_over_fractions,
    rescale_kurtosis,
    rescale_skewness,
)
from standfast.statistics.corruption.summary import Columns, Curves, summarise
from standfast.statistics.curves import compute_area, compute_area_up_to

Array = np.ndarray[Any, Any]
K = np.array([0.05, 0.3, 0.65, 1.0])


def curves(drops: Array, bottom: Array | None = None, positive: float = 0.4) -> Curves:
    fractions = np.linspace(0.1, 1.0, drops.shape[1])
    return Curves(drops, bottom, np.tile(positive * fractions, (len(drops), 1)), fractions)


def some(seed: int, count: int = 200, towards: float = 1.0) -> Curves:
    """Drops that grow with k, and shares of positions that differ from sample to sample."""
    generator = np.random.default_rng(seed)
    height = generator.beta(2 * towards, 1.5, size=(count, 1))
    drops = height * K**0.5 + 0.05 * generator.normal(size=(count, len(K)))
    share = generator.uniform(0.2, 0.7, size=(count, 1)) * K
    return Curves(drops, 0.3 * drops + 0.02 * generator.normal(size=drops.shape), share, K)


# areas


@pytest.mark.parametrize(
    ("drop_at", "exact"),
    [
        (lambda s: np.minimum(s / 0.4, 1.0), 1 - 0.4 / 2),  # all gone once 40% are
        (lambda s: 0.0 * s, 0.0),
        (lambda s: s / 0.8, 0.8 / 2 + 0.2),  # up to 0.8, where the measurement ends
        (lambda s: -s, -0.8 * 0.8 / 2 - 0.2 * 0.8),
    ],
    ids=["ramp", "nothing", "line", "rises"],
)
def test_area_of_piecewise_linear_curves(drop_at: Callable[[Array], Array], exact: float) -> None:
    share = np.array([0.1, 0.4, 0.55, 0.8])
    assert compute_area(share, drop_at(share)) == pytest.approx(exact)
    both = compute_area(torch.tensor(share), torch.tensor(drop_at(share)))
    assert both.item() == pytest.approx(exact)
    rows = compute_area(np.tile(share, (3, 2, 1)), np.tile(drop_at(share), (3, 2, 1)))
    assert rows.shape == (3, 2)
    np.testing.assert_allclose(rows, exact)


def test_area_of_a_smooth_curve_is_its_integral() -> None:
    share = np.linspace(0, 0.7, 2001)[1:]
    exact = scipy.integrate.quad(lambda s: 1 - np.exp(-5 * s), 0, 0.7)[0] + 0.3 * (1 - np.exp(-3.5))
    assert compute_area(share, 1 - np.exp(-5 * share)) == pytest.approx(exact, abs=1e-6)


def test_area_does_not_depend_on_how_an_array_lies_in_memory() -> None:
    share, drop = torch.rand(
        2, 50, 7, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    whole = compute_area(share, drop)
    for row in (0, 17, 49):
        assert torch.equal(
            compute_area(share[row : row + 1, 2], drop[row : row + 1, 2])[0], whole[row, 2]
        )
    assert torch.equal(compute_area(share.transpose(0, 1), drop.transpose(0, 1).clone()).T, whole)


def test_area_up_to_is_that_of_the_curve_cut_there() -> None:
    generator = np.random.default_rng(0)
    share = np.sort(generator.uniform(size=(20, 4)), axis=1)
    share[3, 1] = share[3, 0]  # a step
    share[4, 0] = 0.0
    drop, end = generator.normal(size=(20, 4)), generator.uniform(size=20) * share[:, -1]
    end[5], end[6], end[7] = share[5, -1], share[6, 1], 0.0
    for row in range(20):
        x, y = np.concatenate([[0], share[row]]), np.concatenate([[0], drop[row]])
        inside = x <= end[row]
        cut = np.append(x[inside], end[row]), np.append(y[inside], np.interp(end[row], x, y))
        expected = scipy.integrate.trapezoid(cut[1], cut[0])
        assert compute_area_up_to(share[row], drop[row], end[row]) == pytest.approx(
            expected, abs=1e-12
        )
        assert compute_area_up_to(share, drop, end)[row] == pytest.approx(expected, abs=1e-12)
    held = (1 - share[:, -1]) * drop[:, -1]
    np.testing.assert_allclose(
        compute_area_up_to(share, drop, share[:, -1]) + held, compute_area(share, drop), atol=1e-12
    )


def test_area_over_the_fractions() -> None:
    fractions = np.array([0.05, 0.15, 0.55, 1.0])
    assert integrate_over_fractions(np.ones(4), fractions) == pytest.approx(0.95)
    assert integrate_over_fractions(fractions, fractions) == pytest.approx((1 - 0.05**2) / 2)
    values = np.random.default_rng(0).normal(size=(3, 4))
    np.testing.assert_allclose(
        integrate_over_fractions(values, fractions), scipy.integrate.trapezoid(values, fractions)
    )
    assert np.isnan(integrate_over_fractions(np.ones((2, 1)), np.array([0.5]))).all()


def test_f1_is_half_of_a_harmonic_mean_as_printed() -> None:
    for top, bottom in itertools.product((0.01, 0.3, 1.0), (0.0, 0.5, 0.99)):
        harmonic = scipy.stats.hmean([top, 1 - bottom])
        assert 2 * compute_printed_f1(np.array(top), np.array(bottom)) == pytest.approx(harmonic)
    assert compute_printed_f1(np.array(1.0), np.array(0.0)) == 0.5
    assert np.isnan(compute_printed_f1(np.array(-1.0), np.array(0.5)))
    assert compute_printed_f1(np.array(-0.1), np.array(0.5)) < 0


# moments and scales


@pytest.mark.parametrize("count", [2, 3, 17, 1000])
def test_moments_are_those_of_scipy(count: int) -> None:
    drops = np.random.default_rng(count).exponential(size=(count, 5)) * [1, 1e-3, -2, 1e3, 1] + [
        0,
        1,
        0,
        -5,
        100,
    ]
    skewness, kurtosis, flat = compute_moments(drops)
    np.testing.assert_allclose(skewness, scipy.stats.skew(drops), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(kurtosis, scipy.stats.kurtosis(drops), rtol=1e-8, atol=1e-10)
    assert not flat.any()


@pytest.mark.parametrize(("count", "size"), [(8, 1e-4), (60, 1e-6)])
def test_resamples_without_the_samples_that_react_keep_their_digits(
    count: int, size: float
) -> None:
    """The probability of most samples hardly moves: kurtosis of n samples lies in [-2, n - 5 + 1 / (n - 1)]."""
    drops = np.abs(np.random.default_rng(1).normal(size=(count, 2))) * size
    drops[:2] = [0.6, 0.7]
    found = summarise(
        Curves(drops, drops / 2, np.full((count, 2), [0.1, 0.2]), np.array([0.5, 1.0]))
    )
    low, high = found.interval("kurtosis")
    assert (low >= -2).all()
    assert (high <= count - 5 + 1 / (count - 1) + 1e-6).all()
    resample = drops[2:]
    columns = Columns(
        Curves(drops, None, np.full((count, 2), [0.1, 0.2]), np.array([0.5, 1.0])), 0.5
    )
    numbers = columns.compute_numbers(columns.values[2:].mean(0))
    np.testing.assert_allclose(numbers["kurtosis"], scipy.stats.kurtosis(resample), rtol=1e-3)
    np.testing.assert_allclose(numbers["skewness"], scipy.stats.skew(resample), rtol=1e-3)


@pytest.mark.parametrize("value", [0.0, 0.3, 1 / 3, -7.1])
def test_no_variance_is_flagged_and_zero(value: float) -> None:
    drops = np.column_stack([np.full(7, value), np.r_[np.full(6, value), value + 0.5]])
    skewness, kurtosis, flat = compute_moments(drops)
    assert flat.tolist() == [True, False]
    assert (skewness[0], kurtosis[0]) == (0.0, 0.0)
    assert skewness[1] == pytest.approx(scipy.stats.skew(drops[:, 1]))
    found = summarise(curves(drops), resamples=50)
    assert found.flat.tolist() == [True, False]
    assert [end[0] for end in found.interval("skewness")] == [0.0, 0.0]


def test_absolute_scales_grow_from_their_least_to_their_largest() -> None:
    values = np.linspace(-50, 50, 1001)
    scaled = rescale_skewness(values)
    assert (np.diff(scaled) > 0).all()
    np.testing.assert_allclose(scaled + scaled[::-1], 1.0)
    assert rescale_skewness(np.array(0.0)) == rescale_kurtosis(np.array(0.0)) == 0.5
    assert rescale_kurtosis(np.array(-2.0)) == 0.0
    peaks = rescale_kurtosis(np.linspace(-2, 1e4, 1001))
    assert (np.diff(peaks) > 0).all()
    assert peaks[-1] < 1


# quantiles


def test_quantiles() -> None:
    drops = np.array([[0.0, 0.4], [0.2, 0.5], [0.5, 0.5], [1.0, 0.9]])
    for q, expected in (
        (0.25, [0.0, 0.4]),
        (0.26, [0.2, 0.5]),
        (0.5, [0.2, 0.5]),
        (1.0, [1.0, 0.9]),
    ):
        assert compute_quantile(drops, q).tolist() == expected
    assert np.isnan(compute_quantile(drops[:0], 0.5)).all()


@pytest.mark.parametrize(("count", "q"), [(20, 0.25), (37, 0.5), (200, 0.1), (1500, 0.25)])
def test_order_statistics_cover_the_quantile(count: int, q: float) -> None:
    low, high = (
        int(end[0]) for end in compute_quantile_interval(np.arange(1.0, count + 1)[:, None], q)
    )
    below = scipy.stats.binom(count, q)  # so many samples lie below the quantile
    # the low-th lies above it, and the next one is too likely to
    assert below.cdf(low - 1) <= 0.025 < below.cdf(low)
    assert below.sf(high - 1) <= 0.025 < below.sf(high - 2)
    samples = np.random.default_rng(1).uniform(size=(count, 2000))
    found = compute_quantile_interval(samples, q)
    covered = ((found[0] <= q) & (q <= found[1])).mean()
    assert covered == pytest.approx(below.cdf(high - 1) - below.cdf(low - 1), abs=0.016)


def test_few_samples_have_no_ends() -> None:
    low, high = compute_quantile_interval(np.arange(8.0)[:, None], 0.25)
    assert np.isnan(low[0])
    assert np.isfinite(high[0])
    assert np.isnan(compute_quantile_interval(np.empty((0, 1)), 0.25)).all()
    found = summarise(some(0, count=4))
    assert np.isnan(found.interval("auc_top")).all()
    assert np.isnan(found.interval("skewness")).all()


# summaries


def test_a_summary_by_loops() -> None:
    data = some(3, count=40)
    found = summarise(data, tau=0.4, q=0.3, resamples=0)
    assert data.top is not None
    assert data.bottom is not None
    points = [(0.0, 0.0, 0.0)]
    skewness, kurtosis, above = [], [], []
    for k in range(len(K)):
        top = [float(row[k]) for row in data.top]
        mean = sum(top) / 40
        points.append(
            (sum(row[k] for row in data.share) / 40, mean, sum(row[k] for row in data.bottom) / 40)
        )
        k2, k3, k4 = (sum((drop - mean) ** power for drop in top) / 40 for power in (2, 3, 4))
        skewness.append(k3 / k2**1.5)
        kurtosis.append(k4 / k2**2 - 3)
        above.append(sum(drop >= 0.4 for drop in top) / 40)
        assert found.quantile[k] == sorted(top)[11]
    points.append((1.0, *points[-1][1:]))
    top_area, bottom_area = (
        sum((b[0] - a[0]) * (a[column] + b[column]) / 2 for a, b in itertools.pairwise(points))
        for column in (1, 2)
    )
    assert found.auc_top == pytest.approx(top_area)
    assert found.auc_bottom == pytest.approx(bottom_area)
    assert found.f1 == pytest.approx(
        2 * top_area * (1 - bottom_area) / (top_area + 1 - bottom_area)
    )
    np.testing.assert_allclose(found.skewness, skewness)
    np.testing.assert_allclose(found.kurtosis, kurtosis)
    np.testing.assert_allclose(found.share_above, above)
    scaled = [(1 + s / (1 + abs(s))) / 2 for s in skewness]
    assert found.auc_skewness == pytest.approx(1 - scipy.integrate.trapezoid(scaled, K))
    assert found.auc_kurtosis == pytest.approx(
        scipy.integrate.trapezoid([(e + 2) / (e + 4) for e in kurtosis], K)
    )
    assert found.auc_share_above == pytest.approx(scipy.integrate.trapezoid(above, K))
    assert (found.samples, found.left_out) == (40, 0)
    with pytest.raises(
        standfast.ArgumentError, match="name: expected one of none, as no intervals were asked for"
    ):
        found.interval("auc_top")


def test_incomplete_samples_are_left_out_and_an_order_may_be_missing() -> None:
    data = some(0, count=30)
    data.top[3, 2], data.share[7] = np.nan, np.nan
    found, whole = (
        summarise(data, resamples=20),
        summarise(data.select(~np.isin(np.arange(30), [3, 7])), resamples=20),
    )
    assert (found.samples, found.left_out) == (28, 2)
    assert found.auc_top == whole.auc_top
    assert found.interval("f1") == whole.interval("f1")
    alone = summarise(Curves(data.top, None, data.share, K), resamples=20)
    assert alone.auc_top == found.auc_top
    assert np.isnan([alone.auc_bottom, alone.f1, *alone.mean_bottom, *alone.interval("f1")]).all()
    bottom = summarise(Curves(None, data.bottom, data.share, K), resamples=20)
    assert np.isfinite(bottom.auc_bottom)
    assert np.isnan(
        [bottom.auc_top, bottom.auc_kurtosis, *bottom.share_above, *bottom.quantile]
    ).all()
    nothing = summarise(data.select(np.zeros(30, dtype=bool)))
    assert nothing.samples == 0
    assert np.isnan([nothing.auc_top, nothing.auc_skewness, *nothing.kurtosis]).all()


def test_curves_of_what_is_stored() -> None:
    data = some(5, count=6)
    assert data.top is not None
    rows = [
        {"drop_top": t, "corrupted_share": s, "fractions": K}
        for t, s in zip(data.top, data.share, strict=True)
    ]
    found = Curves.from_stored(rows)
    assert found.bottom is None
    np.testing.assert_array_equal(found.top, data.top)
    assert summarise(found, resamples=0).auc_top == summarise(data, resamples=0).auc_top
    with pytest.raises(standfast.ArgumentError, match="samples: expected at least one, got 0"):
        Curves.from_stored([])


# intervals


def test_intervals_are_reproducible_and_chunks_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = some(1, count=60)
    first, other = summarise(data), summarise(data, seed=1)
    monkeypatch.setattr(bootstrap, "_CELLS", 3000)
    again = summarise(data)
    for name in first.intervals:
        np.testing.assert_allclose(
            first.interval(name), again.interval(name), atol=1e-9, err_msg=name
        )
    assert first.interval("auc_top") != other.interval("auc_top")
    for name in ("auc_top", "auc_bottom", "f1", "auc_skewness", "auc_kurtosis", "auc_share_above"):
        low, high = first.interval(name)
        assert low < getattr(first, name) < high
    for name in ("skewness", "kurtosis", "mean_top", "share_above", "quantile", "share"):
        low, high = first.interval(name)
        assert low.shape == high.shape == K.shape
        assert ((low <= getattr(first, name)) & (getattr(first, name) <= high)).all()


def test_every_sample_may_tell_the_same() -> None:
    """Half of the drops 0 and half 1: the kurtosis without any one of them is the same, and has no acceleration."""
    found = summarise(curves(np.tile([[0.0], [1.0]], (8, 3))))
    assert found.kurtosis.tolist() == pytest.approx([-2.0] * 3)
    assert np.isfinite(found.interval("kurtosis")).all()


def coverage(repeats: int, count: int) -> dict[str, float]:
    """How often intervals hold the truth for drops `u^2` and their shares, u uniform."""
    generator, inside = (
        np.random.default_rng(7),
        {"auc_top": 0, "skewness": 0, "kurtosis": 0, "share_above": 0},
    )
    exact = scipy.stats.beta(0.5, 1)  # of u^2
    mean, _, skewness, kurtosis = (float(value) for value in exact.stats(moments="mvsk"))
    truth = {"auc_top": 0.4 * mean / 2 + 0.6 * mean, "skewness": skewness, "kurtosis": kurtosis}
    truth["share_above"] = float(exact.sf(0.3))
    for _ in range(repeats):
        drops = generator.uniform(size=(count, 1)) ** 2
        share = np.full((count, 1), 0.4)
        found = summarise(Curves(drops, None, share, np.array([1.0])), tau=0.3, resamples=500)
        for name, value in truth.items():
            low, high = (float(np.ravel(end)[0]) for end in found.interval(name))
            inside[name] += low <= value <= high
    return {name: hits / repeats for name, hits in inside.items()}


def test_intervals_cover() -> None:
    found = coverage(120, 150)
    assert min(found.values()) >= 0.88  # 0.95 less three and a half standard errors


@pytest.mark.slow
def test_intervals_cover_nearly_as_often_as_they_say() -> None:
    for count in (60, 150, 600):
        found = coverage(1500, count)
        for name, share in found.items():
            assert 0.925 <= share <= 0.975, (count, name, share)


# the gate


def test_the_gate_is_paired() -> None:
    """A difference far smaller than the spread over samples shows, as the spread is shared."""
    base = some(0, 100)
    noise = 0.01 * np.random.default_rng(1).normal(size=base.top.shape)
    better = Curves(base.top + 0.01 + noise, None, base.share, K)
    whole, common = (apply_gate(better, base, to_common=only) for only in (False, True))
    for found in (whole, common):
        assert found.passed
        assert found.low < found.difference < found.high
    one, two = (summarise(each, resamples=0) for each in (better, base))
    assert whole.difference == pytest.approx(one.auc_top - two.auc_top)
    x, y = [0.0, *one.share], [0.0, *(one.mean_top - two.mean_top)]
    assert common.difference == pytest.approx(np.trapezoid(y, x)), "without the constant part"
    shuffled = Curves(base.top[::-1], None, base.share[::-1], K)
    assert not apply_gate(better, shuffled).passed
    few = apply_gate(better.select(np.arange(3)), base.select(np.arange(3)))
    assert np.isnan([few.low, few.high]).all()
    assert not few.passed


def test_positive_positions_alone_do_not_pass_the_gate_although_their_area_is_larger() -> None:
    """Random maps, and their sizes, which are positive everywhere: in no better order, and with a larger area."""
    module = torch.nn.Sequential(torch.nn.Linear(40, 2))
    with torch.no_grad():
        weight = torch.randn(40, generator=torch.Generator().manual_seed(0))
        module[0].weight.copy_(torch.stack([weight, -weight]))
        module[0].bias.zero_()
    model = standfast.Model(module, bounds=(-float("inf"), float("inf")), device="cpu")
    x = torch.randn(120, 40, generator=torch.Generator().manual_seed(1))
    noise = standfast.explainers.RandomExplainer()
    sizes = standfast.explainers.from_callable(
        lambda module, x, targets: noise(model, x).abs(), name="sizes"
    )
    metric = standfast.metrics.CorruptionCurve(
        fractions=(0.25, 0.5, 0.75, 1.0), order=("top",), samples=2
    )
    random, everywhere, better = (
        metric(model, explainer, x).curves() for explainer in (noise, sizes, "input_x_gradient")
    )
    assert [apply_gate(each, random, to_common=False).passed for each in (everywhere, better)] == [
        True,
        True,
    ]
    fair = apply_gate(everywhere, random)
    assert fair.low < 0 < fair.high
    assert apply_gate(better, random).passed


def test_the_gate_errs_seldom() -> None:
    """No better than random: the interval lies above 0 in 2.5% of cases."""
    generator, passed = np.random.default_rng(3), 0
    for _ in range(300):
        one, two = (curves(generator.beta(1, 2, size=(60, 2))) for _ in range(2))
        passed += apply_gate(one, two, resamples=300).passed
    assert passed <= 17  # 7.5 expected


def test_the_gate_keeps_its_level_for_few_samples_with_heavy_tails() -> None:
    """Few samples react, each at another share: a bootstrap alone passes in 9% of cases without a difference."""
    generator, passed, by_bootstrap = np.random.default_rng(1), 0, 0
    for _ in range(300):
        height = np.where(generator.random((24, 1)) < 0.3, generator.beta(2, 1, (24, 1)), 0.02)
        one, two = (
            curves(
                height / (1 + np.exp(12 * (generator.beta(0.4, 0.4, (24, 1)) - K))), positive=0.5
            )
            for _ in range(2)
        )
        areas = [
            compute_area_up_to(each.share, np.asarray(each.top), np.full(24, 0.5))
            for each in (one, two)
        ]
        _, low, _ = bootstrap.intervals_of_means((areas[0] - areas[1])[:, None], resamples=300)
        gate = apply_gate(one, two, resamples=300)
        assert gate.low <= low[0] + 1e-9
        student = scipy.stats.ttest_rel(*areas).confidence_interval()
        assert gate.low <= student.low + 1e-9
        assert gate.high >= student.high - 1e-9
        passed += gate.passed
        by_bootstrap += low[0] > 0
    assert passed <= 13 < by_bootstrap  # at most 7.5 expected


def test_errors() -> None:
    four = np.ones((2, 4))
    make = partial(Curves, bottom=None, share=four, fractions=K)
    assert_refused(make, top=[None, np.ones((2, 3))])
    assert_refused(partial(Curves, four, None, four), fractions=[K[:2], K[::-1]])
    assert_refused(partial(Curves, np.ones(4), None, fractions=K), share=[np.ones(4)])
    assert_refused(partial(Curves, np.ones((2, 0)), None, fractions=K[:0]), share=[np.ones((2, 0))])
    assert_refused(partial(summarise, some(0)), tau=[1.5], q=[1.0], resamples=[-1])
    assert_refused(summarise(some(0), resamples=9).interval, name=["auc"])
    assert_refused(partial(apply_gate, some(0)), random=[some(0, 3)])
    assert_refused(partial(apply_gate, some(0), some(0)), resamples=[0])
    assert_refused(partial(apply_gate, random=some(0, 2)), curves=[Curves(None, four, four, K)])
