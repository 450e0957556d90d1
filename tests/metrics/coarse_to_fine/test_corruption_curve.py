"""Corruption curves: a slow re-implementation from the formula, linear models in closed form, paired noise, studies."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast.metrics.coarse_to_fine.corruption_curve import (
    FRACTIONS,
    CorruptionCurve,
)
from standfast.metrics.coarse_to_fine.corruption_result import CorruptionCurveResult
from standfast.metrics.coarse_to_fine.replacement import (
    count_replaced,
    draw_normal,
    make_gaussian_fields,
    resolve_noise,
)
from standfast.metrics.replaced_copies import make_draw_keys, make_sample_keys
from standfast.report.presentation import presentation_of
from standfast.statistics.corruption.summary import Curves, summarise
from standfast.tensors import content_keys, hashed_uniform

SHAPES = {"grey": (1, 6, 7), "colour": (3, 5, 5), "series": (2, 17), "flat": (12,)}
ENDLESS = (-float("inf"), float("inf"))
FEW = (0.1, 0.29, 0.55, 1.0)


def model(shape: tuple[int, ...], batch_size: int = 64, bounds: Any = ENDLESS) -> standfast.Model:
    return standfast.Model(small_net(shape), bounds, device="cpu", batch_size=batch_size)


def watched(shape: tuple[int, ...], bounds: Any = ENDLESS) -> tuple[standfast.Model, list[Tensor]]:
    """A model, and a list of the batches that it is given."""
    made, seen = model(shape, 256, bounds), list[Tensor]()
    made.module.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    return made, seen


def inputs(shape: tuple[int, ...], count: int = 3) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def linear(weights: Tensor, bias: float = 0.5) -> standfast.Model:
    """Two classes, logits `w x + bias` and 0; input x gradient is `w x` of the first."""
    layer = nn.Linear(len(weights), 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack((weights, torch.zeros_like(weights))))
        layer.bias.copy_(torch.tensor([bias, 0.0]))
    return standfast.Model(layer, ENDLESS, device="cpu", batch_size=64)


def given(x: Tensor, maps: Tensor) -> standfast.explainers.Explainer:
    """An explainer that looks up the maps of inputs that it knows by their content."""
    keys = content_keys(x, 0).tolist()

    def explain(module: nn.Module, asked: Tensor, targets: Tensor) -> Tensor:
        return maps[[keys.index(key) for key in content_keys(asked, 0).tolist()]]

    return standfast.explainers.from_callable(explain, name="given")


def replacements(metric: CorruptionCurve, x: Tensor, model: standfast.Model, seed: int) -> Tensor:
    """The values that stand in for those of `x` in each draw, `(N, draws, ...)`."""
    keys = make_draw_keys(make_sample_keys(x, seed), metric._draws)
    fields = metric._make_fields(model, x)
    each = [fields(x, keys[:, draw]).expand(x.shape) for draw in range(metric._draws)]
    lower, upper = model.bounds
    return torch.stack(each, 1).clamp(lower, upper)


def slowly(
    model: standfast.Model,
    metric: CorruptionCurve,
    x: Tensor,
    relevance: Tensor,
    noise: Tensor,
    order: str,
) -> tuple[list[float], list[float]]:
    """Drops and shares of one input `(...)` at each k, from the formula of App. A.1, copy by copy."""

    def probability(copy: Tensor) -> float:
        logits = model.logits(copy[None])[0].double().tolist()
        odds = [np.exp(value - max(logits)) for value in logits]
        return float(odds[target] / sum(odds))

    target = int(model.predict(x[None]))
    places: list[tuple[Any, ...]] = [tuple(place) for place in np.ndindex(*x.shape)]
    value = {place: float(relevance[place]) for place in places}
    channels: tuple[Any, ...] = ()
    if metric.unit == "pixel" and x.ndim > 1:
        channels = (slice(None),)
        value = {
            p: float(relevance[(*channels, *p)].double().sum()) for p in np.ndindex(*x.shape[1:])
        }
    positive = [place for place, r in value.items() if r > 0]
    positive.sort(key=lambda place: -value[place] if order == "top" else value[place])
    drops, shares = [], []
    for k in metric.fractions:
        count = int(Fraction(str(k)) * len(positive))
        total = 0.0
        for draw in noise:
            copy = x.clone()
            for place in positive[:count]:
                copy[(*channels, *place)] = draw[(*channels, *place)]
            total += (probability(x) - probability(copy)) / probability(x)
        drops.append(total / len(noise))
        shares.append(count / len(value))
    return drops, shares


# the formula


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    "metric",
    [
        CorruptionCurve(fractions=FEW, samples=2),
        CorruptionCurve(fractions=(0.05, 0.5), samples=2, mean=0.4, sd=0.3, unit="pixel"),
        CorruptionCurve(fractions=FEW, replacement="constant", baseline=0.25, order=("bottom",)),
        partial(
            CorruptionCurve, fractions=(0.3, 1.0), samples=3, order=("top",), replacement="sample"
        ),
    ],
    ids=["default", "pixels", "constant, bottom", "sample, top"],
)
def test_the_formula_written_out(metric: Any, shape: tuple[int, ...]) -> None:
    network, x = model(shape), inputs(shape)
    metric = metric(background=inputs(shape, 9) - 0.5) if isinstance(metric, partial) else metric
    found = metric(network, "input_x_gradient", x, generator=torch.Generator().manual_seed(5))
    maps = standfast.explainers.get("input_x_gradient")(network, x)
    seed = standfast.tensors.draw_seed(torch.Generator().manual_seed(5))
    noise = replacements(metric, x, network, seed)
    assert noise.shape == (3, metric._draws, *shape)
    assert tuple(found.score_drop) == metric.order
    for order, row in itertools.product(metric.order, range(3)):
        drops, shares = slowly(network, metric, x[row], maps[row], noise[row], order)
        np.testing.assert_allclose(found.score_drop[order][row].numpy(), drops, atol=3e-6)
        np.testing.assert_allclose(found.corrupted_share[row].numpy(), shares, atol=1e-12)
        own_area = scipy.integrate.trapezoid([0, *drops, drops[-1]], [0, *shares, 1])
        assert getattr(found, f"area_{order}")[row].item() == pytest.approx(own_area, abs=3e-6)
    for order in {"top", "bottom"} - set(metric.order):
        assert getattr(found, f"drop_{order}").isnan().all()
        assert getattr(found, f"area_{order}").isnan().all()
    assert not found.no_positive.any()


def test_every_copy_is_looked_at_once() -> None:
    network, x = model((12,)), inputs((12,), 20)
    metric = CorruptionCurve(fractions=FRACTIONS, samples=3)
    found = metric(network, "input_x_gradient", x)
    shares = (found.corrupted_share * 12).round().long()
    for row in range(20):
        counts = set(shares[row].tolist()) - {0}
        assert max(counts) == found.positive[row]
        assert found.model_evaluations[row] == 1 + 3 * (2 * len(counts) - 1)
    # all positive positions, in either order
    assert torch.equal(found.drop_top[:, -1], found.drop_bottom[:, -1])
    few = CorruptionCurve(fractions=(0.05, 0.9), samples=3, order=("bottom",))(
        network, "input_x_gradient", x
    )
    assert (few.drop_bottom[:, 0] == 0).all()  # 5% of at most 12 are none
    assert few.model_evaluations.tolist() == [4] * 20
    full = model((1, 20, 20))
    expected = metric(full, "saliency", inputs((1, 20, 20), 2)).model_evaluations
    assert (expected <= metric.cost().evaluations).all()
    assert expected.max() == metric.cost().evaluations


def test_copies_are_nested_and_both_orders_share_their_noise() -> None:
    x = inputs((20,), 1)
    maps = torch.linspace(-0.3, 1.0, 20)[
        torch.randperm(20, generator=torch.Generator().manual_seed(0))
    ][None]
    model, seen = watched((20,))
    metric = CorruptionCurve(fractions=(0.2, 0.5, 1.0), samples=1)
    found = metric(model, given(x, maps), x)
    copies = seen[-1][:5]  # three of the top, two of the bottom
    changed = copies != x
    count = int(found.positive)
    fields = replacements(metric, x, model, 0)[0]
    # each entry is one or the other, to the last bit
    assert torch.equal(copies, torch.where(changed, fields, x))
    assert changed.sum(1).tolist() == [
        int(0.2 * count),
        int(0.5 * count),
        count,
        int(0.2 * count),
        int(0.5 * count),
    ]
    for small, large in ((0, 1), (1, 2), (3, 4), (4, 2)):
        assert (changed[small] <= changed[large]).all()
        assert torch.equal(copies[small][changed[small]], copies[large][changed[small]])
    ranked = maps[0].argsort(descending=True)
    assert set(changed[0].nonzero()[:, 0].tolist()) == set(ranked[: int(0.2 * count)].tolist())
    assert not changed[:, maps[0] <= 0].any()


# linear models


def test_input_x_gradient_loses_most_of_all_choices_of_a_linear_model() -> None:
    """All sets of as many positive positions: the top costs most, the bottom least."""
    generator = torch.Generator().manual_seed(3)
    metric = CorruptionCurve(fractions=(0.25, 0.5, 0.75), replacement="constant")
    for _ in range(5):
        weights, x = torch.randn(12, generator=generator), torch.randn(1, 12, generator=generator)
        owed = weights * x[0]
        # so that the first class is predicted
        weights = weights * torch.where(owed.sum() + 0.5 > 0, 1.0, -1.0)
        owed = (weights * x[0]).double().numpy()
        model = linear(weights, 4.0)
        found = metric(model, "input_x_gradient", x)
        assert model.predict(x).item() == 0
        start, positive = owed.sum() + 4.0, np.flatnonzero(owed > 0)
        for level, k in enumerate(metric.fractions):
            count = int(k * len(positive))
            every = [owed[list(chosen)].sum() for chosen in itertools.combinations(positive, count)]
            drop = 1 - scipy.special.expit(start - np.array(every)) / scipy.special.expit(start)
            assert found.drop_top[0, level].item() == pytest.approx(drop.max(), abs=1e-6)
            assert found.drop_bottom[0, level].item() == pytest.approx(drop.min(), abs=1e-6)


def test_the_expected_drop_under_normal_noise_by_quadrature() -> None:
    """After m entries of a linear model have gone, its logit is normal: the mean drop is one integral."""
    generator = torch.Generator().manual_seed(4)
    weights = torch.randn(16, generator=generator).sign() * 0.7
    x = torch.randn(1, 16, generator=generator)
    x = x * (weights * x).sum().sign()
    model, metric = (
        linear(weights),
        CorruptionCurve(fractions=(0.3, 0.6, 1.0), samples=6000, mean=0.2, sd=1.5),
    )
    found = metric(model, "input_x_gradient", x)
    owed = (weights * x[0]).double()
    positive = owed[owed > 0]
    points, mass = np.polynomial.hermite_e.hermegauss(80)
    exact: dict[str, list[float]] = {}
    for order in ("top", "bottom"):
        ranked = positive.sort(descending=order == "top").values
        where = owed.argsort(descending=True)[: len(positive)]
        where = where if order == "top" else where.flip(0)
        for k in metric.fractions:
            count = int(k * len(positive))
            mean = (
                owed.sum()
                + 0.5
                - ranked[:count].sum()
                + 0.2 * weights[where[:count]].double().sum()
            )
            spread = 1.5 * weights[where[:count]].double().norm()
            score = (
                mass * scipy.special.expit(mean.item() + spread.item() * points)
            ).sum() / mass.sum()
            exact.setdefault(order, []).append(
                1 - score / scipy.special.expit(owed.sum().item() + 0.5)
            )
    error = 4 * 0.5 / 6000**0.5 / scipy.special.expit(owed.sum().item() + 0.5)
    np.testing.assert_allclose(found.drop_top[0].numpy(), exact["top"], atol=error)
    np.testing.assert_allclose(found.drop_bottom[0].numpy(), exact["bottom"], atol=error)
    assert exact["top"][0] > exact["bottom"][0] + 2 * error
    assert found.std_error[0] < error


def test_the_standard_error_is_that_of_the_areas_of_single_draws() -> None:
    network, x = model((12,)), inputs((12,), 2)
    metric = CorruptionCurve(fractions=FEW, samples=4)
    found, maps = (
        metric(network, "input_x_gradient", x),
        standfast.explainers.get("input_x_gradient")(network, x),
    )
    noise = replacements(metric, x, network, 0)
    for row in range(2):
        areas = []
        for draw in range(4):
            drops, shares = slowly(
                network, metric, x[row], maps[row], noise[row, draw : draw + 1], "top"
            )
            areas.append(scipy.integrate.trapezoid([0, *drops, drops[-1]], [0, *shares, 1]))
        assert found.area_top[row].item() == pytest.approx(np.mean(areas), abs=3e-6)
        assert found.std_error[row].item() == pytest.approx(scipy.stats.sem(areas), rel=1e-4)
    bottom = CorruptionCurve(fractions=FEW, samples=4, order=("bottom",))(
        network, "input_x_gradient", x
    )
    assert torch.isfinite(bottom.std_error).all()
    assert CorruptionCurve(samples=1)(network, "saliency", x).std_error.isnan().all()


def test_counts_are_those_of_exact_fractions() -> None:
    positive = torch.arange(0, 3001)
    shares = [n / 100 for n in range(1, 101)]
    found = count_replaced(positive, shares)
    exact = (positive[:, None] * torch.arange(1, 101)).div(100, rounding_mode="floor")
    assert torch.equal(found, exact)


# replacements


def test_draw_normals_are_normal_and_independent() -> None:
    keys = make_draw_keys(make_sample_keys(torch.arange(20.0)[:, None], 0), 4)
    values = draw_normal(keys.flatten(), 1000).numpy()
    assert scipy.stats.kstest(values.ravel(), "norm").pvalue > 0.01
    assert values.mean() == pytest.approx(0, abs=4 / values.size**0.5)
    assert values.std() == pytest.approx(1, abs=4 / (2 * values.size) ** 0.5)
    between = np.corrcoef(values)[~np.eye(len(values), dtype=bool)]
    assert np.abs(between).max() < 5.5 / 1000**0.5
    exact = scipy.stats.norm.ppf(hashed_uniform(keys.flatten()[:3], 1000).double().numpy())
    np.testing.assert_allclose(values[:3], exact, rtol=1e-9, atol=1e-12)
    x = torch.zeros(2, 3, 4, 4)
    network = model((3, 4, 4))  # with infinite bounds
    three = make_gaussian_fields(network, x, (0.0, 10.0, -5.0), (1.0, 0.1, 2.0))(x, keys[:2, 0])
    one = make_gaussian_fields(network, x)(x, keys[:2, 0])
    np.testing.assert_allclose(
        one.flatten(1)[:, :9], draw_normal(keys[:2, 0], 48)[:, :9], rtol=1e-6
    )
    torch.testing.assert_close(three[:, 1], 10 + 0.1 * one[:, 1])
    torch.testing.assert_close(three[:, 2], -5 + 2 * one[:, 2])


def test_noise_is_clipped_to_the_bounds_and_that_is_told() -> None:
    network, seen = watched((1, 6, 7), (0.0, 1.0))
    x = inputs((1, 6, 7))
    standard = CorruptionCurve(samples=4, mean=0.0, sd=1.0)
    with pytest.warns(
        UserWarning, match=r"replacement: 66% of this noise lies outside of the bounds \[0, 1\]"
    ):
        found = standard(network, "saliency", x)
    copies = torch.cat(seen)
    assert copies.amin() == 0
    assert copies.amax() == 1
    assert found.clipped.mean().item() == pytest.approx(0.5 + scipy.stats.norm.sf(1), abs=0.05)
    fitting = CorruptionCurve(samples=4)(network, "saliency", x)
    assert fitting.clipped.mean().item() == pytest.approx(2 * scipy.stats.norm.sf(2), abs=0.03)
    same = CorruptionCurve(samples=4, mean=0.5, sd=0.25)(network, "saliency", x)
    assert torch.equal(fitting.drop_top, same.drop_top)
    wide = standard(model((1, 6, 7)), "saliency", x)
    assert wide.clipped.tolist() == [0, 0, 0]
    assert CorruptionCurve(replacement="constant")(network, "saliency", x).clipped.tolist() == [
        0,
        0,
        0,
    ]
    details = presentation_of(CorruptionCurve.name).details(
        found.frame(), CorruptionCurve().options()
    )
    (clipped,) = (each.value for each in details if "clipped" in each.label)
    assert 60 < clipped < 70


def test_noise_has_the_scale_of_each_channels_bounds() -> None:
    """In double precision; a channel without bounds has the paper's noise."""
    ends = torch.tensor(
        [[[-1.0], [0.0], [-math.inf]], [[3.0], [255.0], [math.inf]]], dtype=torch.float64
    )
    model = standfast.Model(nn.Flatten(), (ends[0], ends[1]), device="cpu")
    centre, scale = resolve_noise(model, torch.zeros(2, 3, 5, dtype=torch.float64), None, None)
    assert (centre.flatten().tolist(), scale.flatten().tolist()) == (
        [1.0, 127.5, 0.0],
        [1.0, 63.75, 1.0],
    )
    centre, scale = resolve_noise(model, torch.zeros(2, 3, 5), 0.5, (1.0, 2.0, 3.0))
    assert (centre.item(), scale.flatten().tolist()) == (0.5, [1.0, 2.0, 3.0])


def test_replacements_are_those_of_reference_inputs() -> None:
    model, seen = watched((9,), (0.0, 9.0))
    x = inputs((9,), 2)
    references = torch.arange(2.0, 7.0)[:, None].expand(5, 9).contiguous()
    metric = CorruptionCurve(
        fractions=(0.5, 1.0), samples=60, replacement="sample", background=references
    )
    metric(model, given(x, torch.ones(2, 9)), x)
    copies = torch.cat(seen[1:])
    drawn = [row[row >= 2].unique().tolist() for row in copies]
    drawn = [values for values in drawn if values]
    assert all(len(values) == 1 for values in drawn)  # of a draw, all from one reference
    assert {value for (value,) in drawn} == {2.0, 3.0, 4.0, 5.0, 6.0}
    assert isinstance(metric.background, standfast.explainers.Background)
    same = dataclasses.replace(metric, background=references.clone())
    assert same == metric
    json.dumps(metric.options())
    assert metric.options()["background"]["shape"] == [5, 9]


# batches, flags


def test_no_positive_relevance_is_flagged_and_counts_as_no_drop() -> None:
    network, x = model((12,)), inputs((12,), 4)
    maps = standfast.explainers.get("input_x_gradient")(network, x)
    maps[1], maps[2] = 0.0, -maps[2].abs()
    found = CorruptionCurve()(network, given(x, maps), x)
    assert found.status == ("ok",) * 4
    assert found.no_positive.tolist() == [False, True, True, False]
    assert found.positive[1:3].tolist() == [0, 0]
    for drops in found.score_drop.values():
        assert (drops[1:3] == 0).all()
    assert found.area_top[1:3].tolist() == [0, 0]
    assert found.model_evaluations[1:3].tolist() == [1, 1]
    assert found.summary(resamples=0).samples == 4
    nothing = CorruptionCurve()(network, given(x, -maps.abs()), x).summary(resamples=9)
    assert nothing.auc_top == nothing.auc_bottom == 0
    assert nothing.skewness.tolist() == [0] * 11
    assert nothing.flat.all()
    *_, without = presentation_of(CorruptionCurve.name).details(
        found.frame(), CorruptionCurve().options()
    )
    assert (without.value, without.total) == (2, 4)


def test_what_is_skipped_or_not_finite() -> None:
    class Fragile(nn.Module):
        """NaN where the first feature is negative, which noise makes it in a half of all draws."""

        def __init__(self) -> None:
            super().__init__()
            self.net = small_net((12,))

        def forward(self, x: Tensor) -> Tensor:
            return torch.where((x[:, :1] < 0), torch.nan, self.net(x))

    model = standfast.Model(Fragile(), ENDLESS, device="cpu", batch_size=64)
    x = inputs((12,), 4)
    x[2, 0] = -1.0
    maps = torch.ones(4, 12)
    maps[:2, 0] = torch.tensor([-1.0, 2.0])  # of the first sample the first feature stays
    maps[3] = torch.nan
    targets = model.predict(x.abs())
    targets[1] = (targets[1] + 1) % 4
    metric = CorruptionCurve(fractions=FEW, samples=10)
    found = metric(model, given(x, maps), x, targets)
    assert found.status == ("ok", "misclassified", "nonfinite", "nonfinite")
    assert found.nonfinite[0] == 0
    assert torch.isfinite(found.drop_top[0]).all()
    assert torch.isnan(found.drop_top[1:]).all()
    assert torch.isnan(found.area_top[1:]).all()
    assert (found.summary(resamples=0).samples, found.summary(resamples=0).left_out) == (1, 3)
    targets[1] = model.predict(x[1:2])
    some = metric(model, given(x, maps), x, targets)
    assert 0 < some.nonfinite[1] < 10 * len(FEW) * 2
    assert torch.isfinite(some.drop_top[1]).all()  # of the draws that were finite
    constant = CorruptionCurve(fractions=FEW, replacement="constant", baseline=-1.0)
    lost = constant(model, given(x, maps), x, targets)
    assert torch.isnan(lost.drop_top[1]).all()
    assert torch.isfinite(lost.drop_top[0]).all()
    assert lost.summary(resamples=0).samples == 1
    assert lost.status == some.status


def test_pixels_go_with_all_their_channels() -> None:
    model, seen = watched((3, 5, 5))
    x = inputs((3, 5, 5), 1)
    maps = torch.zeros(1, 3, 5, 5)
    maps[0, :, 2, 3], maps[0, 0, 0, 0], maps[0, :, 4, 4] = torch.tensor([5.0, -1.0, 2.0]), 1.0, -1.0
    found = CorruptionCurve(fractions=(0.5, 1.0), samples=1, order=("top",), unit="pixel")(
        model, given(x, maps), x
    )
    changed = (seen[-1][:2] != x).sum(1)
    assert found.positive.tolist() == [2]
    assert found.corrupted_share.tolist() == [[1 / 25, 2 / 25]]
    assert changed[0].nonzero().tolist() == [[2, 3]]
    assert changed[1].nonzero().tolist() == [[0, 0], [2, 3]]
    assert changed.amax() == 3
    entries = CorruptionCurve(fractions=(0.5, 1.0), samples=1)(model, given(x, maps), x)
    assert entries.positive.tolist() == [3]


# what the numbers are for


def test_a_result_has_the_numbers_of_its_summary() -> None:
    network, x = model((2, 17)), inputs((2, 17), 30)
    found = CorruptionCurve(fractions=FEW, samples=2)(network, "input_x_gradient", x)
    whole = found.summary(tau=0.05, q=0.25, resamples=50)
    top = found.drop_top.numpy()
    for name in ("auc_top", "auc_bottom", "f1", "auc_skewness", "auc_kurtosis"):
        assert np.isfinite(whole.interval(name)).all()
    # those that a study stores, so that both have the same numbers to the last bit
    assert (
        found.curves().fractions.tolist() == found.tensors()["fractions"][0].tolist() == list(FEW)
    )
    np.testing.assert_allclose(whole.skewness, scipy.stats.skew(top))
    np.testing.assert_allclose(whole.kurtosis, scipy.stats.kurtosis(top))
    np.testing.assert_array_equal(whole.share_above, (top >= 0.05).mean(0))
    np.testing.assert_array_equal(whole.quantile, np.sort(top, axis=0)[7])


def test_a_study_stores_what_the_numbers_of_the_whole_data_set_need(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    metric, x = CorruptionCurve(fractions=FEW, replacement="constant"), digits[:5].inputs
    done = standfast.evaluate(
        lenet,
        ["saliency", "random"],
        x,
        [metric],
        samples_per_job=2,
        progress=False,
        controls=False,
    )
    assert done.failures == []
    assert {"area_top", "area_bottom", "no_positive", "std_error"} <= set(
        done.frame("corruption_curve").columns
    )
    (view,) = done.list_metric_results("corruption_curve")
    names = ("drop_top", "drop_bottom", "corrupted_share", "fractions")
    stored = Curves.from_stored(each.arrays for each in view.lines("saliency", names, 100))
    direct = metric(lenet, "saliency", x)
    np.testing.assert_array_equal(stored.fractions, FEW)
    np.testing.assert_array_equal(stored.top, direct.drop_top)  # type: ignore[arg-type]
    assert summarise(stored, resamples=0).f1 == direct.summary(resamples=0).f1
    assert CorruptionCurve.value_spec({"order": ["bottom"]}).direction == "lower"
    assert CorruptionCurve.value_spec(metric.options()).direction == "higher"


def test_options_that_leave_the_value_as_it_is() -> None:
    options = CorruptionCurve().options()
    del options["preset"]
    idle = {
        kind: {
            name
            for name in options
            if not CorruptionCurve.has_effect(name, {**options, "replacement": kind})
        }
        for kind in ("constant", "gaussian", "sample")
    }
    assert idle["constant"] == {"mean", "sd", "background", "samples"}
    assert idle["gaussian"] == {"baseline", "background"}
    assert idle["sample"] == {"mean", "sd", "baseline"}
    assert CorruptionCurve().cost().evaluations == 1 + 5 * 21
    assert CorruptionCurve(order=("top",), replacement="constant").cost().evaluations == 12
    assert CorruptionCurve(fractions=(0.5,)).cost().evaluations == 11


def test_errors_of_options() -> None:
    assert_refused(CorruptionCurve, fractions=[(), (0.0, 0.5), (0.5, 0.5), (0.5, 1.1), 0.5])
    assert_refused(
        CorruptionCurve,
        order=[(), ("top", "top"), "most"],
        replacement=["blur"],
        samples=[0],
        mean=["0"],
    )
    assert_refused(
        CorruptionCurve, sd=[float("nan"), (1.0, 0.0)], baseline=[float("inf")], unit=["row"]
    )
    assert_refused(CorruptionCurve, background=[torch.ones(2, 3)])
    with pytest.raises(
        standfast.ArgumentError, match="background: expected reference inputs .*, got None"
    ):
        CorruptionCurve(replacement="sample")


def test_errors_of_the_call() -> None:
    def measure(**options: Any) -> CorruptionCurveResult:
        return CorruptionCurve(**options)(
            model((2, 17), bounds=(0.0, 1.0)), "saliency", inputs((2, 17))
        )

    assert_refused(measure, mean=[(0.0, 1.0, 2.0)], sd=[(1.0,)])
    assert_refused(partial(measure, replacement="constant"), baseline=[2.0])
    references = [torch.zeros(3, 2, 9), 2 * torch.ones(3, 2, 17)]
    assert_refused(partial(measure, replacement="sample"), background=references)
