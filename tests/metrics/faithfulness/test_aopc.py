"""AOPC: a slow re-implementation from the formula, linear models in closed form, paired noise, what a study shows."""

from __future__ import annotations

import dataclasses
import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from torch import nn

import standfast
from conftest import small_net
from standfast.metrics import AOPC, AOPCResult
from standfast.metrics.faithfulness.aopc import draw_uniform
from standfast.metrics.faithfulness.regions import cut_cells
from standfast.metrics.positions import rank_with_random_ties
from standfast.metrics.replaced_copies import make_draw_keys, make_sample_keys

SHAPES = {"grey": (1, 8, 9), "colour": (3, 8, 8), "series": (2, 17), "flat": (12,)}


def model(
    shape: tuple[int, ...], batch_size: int = 64, bounds: Any = (0.0, 1.0)
) -> standfast.Model:
    return standfast.Model(small_net(shape), bounds, device="cpu", batch_size=batch_size)


def inputs(shape: tuple[int, ...], count: int = 3) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(1))


def linear(weights: torch.Tensor, bounds: tuple[float, float] = (0.0, 1.0)) -> standfast.Model:
    """Two classes, logits `w x + 10` and 0: the first is predicted, and its input x gradient is `w x`."""
    layer = nn.Linear(len(weights), 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack((weights, torch.zeros_like(weights))))
        layer.bias.copy_(torch.tensor([10.0, 0.0]))
    return standfast.Model(layer, bounds, device="cpu", batch_size=64)


def fixed(maps: torch.Tensor) -> standfast.explainers.Explainer:
    """An explainer that looks its maps up: the input's first value is its number in the table, in thousandths."""

    def explain(module: nn.Module, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return maps[(x.flatten(1)[:, 0] * 1000).round().long()]

    return standfast.explainers.from_callable(explain, name="fixed")


def uniform_noise(x: torch.Tensor, seed: int, draws: int, bounds: Any) -> torch.Tensor:
    """What replaces regions, `(N, draws, ...)`."""
    keys = make_draw_keys(make_sample_keys(x, seed), draws)
    return draw_uniform(keys.flatten(), x, *bounds).reshape(len(x), draws, *x.shape[1:])


def slowly(
    model: standfast.Model,
    metric: AOPC,
    x: torch.Tensor,
    maps: torch.Tensor,
    noise: np.ndarray[Any, Any] | None,
) -> tuple[np.ndarray[Any, Any], float]:
    """Samek et al.'s sum for one input `(1, ...)`, copy by copy; noise `(draws, ...)`, None for a constant."""
    spatial = x.shape[2:] if x.ndim > 2 else x.shape[1:]
    side = metric.region or (1 if x.ndim == 2 else 2)
    value = maps[0].numpy().astype(float)
    value = np.abs(value) if metric.absolute else value
    regions: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for place in itertools.product(*(range(n) for n in spatial)):
        regions.setdefault(tuple(p // side for p in place), []).append(place)
    everything = (slice(None),) if x.ndim > 2 else ()
    relevance = {
        cell: sum(float(value[(*everything, *p)].sum()) for p in places)
        for cell, places in regions.items()
    }
    order = sorted(
        regions, key=lambda cell: -relevance[cell] if metric.order == "top" else relevance[cell]
    )

    def f(copy: np.ndarray[Any, Any]) -> float:
        logits = model.logits(torch.from_numpy(copy)[None])[0].double().numpy()
        odds = np.exp(logits - logits.max())
        return float((logits if metric.score == "logit" else odds / odds.sum())[target])

    target = int(model.predict(x))
    start = x[0].numpy()
    curves = []
    for draw in range(1 if noise is None else len(noise)):
        copy, curve = start.copy(), [0.0]
        for cell in order[: metric.steps]:
            for place in regions[cell]:
                where = (*everything, *place)
                copy[where] = (metric.baseline or 0.0) if noise is None else noise[draw][where]
            curve.append(f(start) - f(copy))
        curves.append(curve)
    curve = np.mean(curves, axis=0)
    return curve, float(curve.sum() / len(curve))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    "metric",
    [
        AOPC(steps=7, samples=3),
        AOPC(steps=500, samples=2, order="bottom", score="logit"),
        AOPC(region=3, steps=4, replacement="constant", baseline=0.25),
        AOPC(region=1, steps=5, samples=2, absolute=True),
    ],
    ids=["default", "all steps, least first", "constant", "single places, absolute"],
)
def test_the_formula_written_out(metric: AOPC, shape: tuple[int, ...]) -> None:
    network, x = model(shape), inputs(shape)
    generator = torch.Generator().manual_seed(5)
    found = metric(network, "input_x_gradient", x, generator=generator)
    maps = standfast.explainers.get("input_x_gradient")(network, x)
    seed = standfast.tensors.draw_seed(torch.Generator().manual_seed(5))
    noise = uniform_noise(x, seed, metric.samples, network.bounds).numpy()
    assert noise.shape == (3, metric.samples, *shape)
    for row in range(3):
        own = None if metric.replacement == "constant" else noise[row]
        curve, aopc = slowly(network, metric, x[row : row + 1], maps[row : row + 1], own)
        assert found.steps[row] == len(curve) - 1 == min(metric.steps, int(found.regions[row]))
        np.testing.assert_allclose(found.curve[row].numpy(), curve, atol=2e-6)
        assert found.value[row].item() == pytest.approx(aopc, abs=2e-6)
    draws = 1 if metric.replacement == "constant" else metric.samples
    assert found.model_evaluations.tolist() == (1 + draws * found.steps).tolist()
    assert found.std_error.isnan().all() == (draws == 1)


def test_the_order_by_input_x_gradient_is_the_best_of_all_for_a_linear_model() -> None:
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        weights, x = torch.randn(6, generator=generator), torch.rand(1, 6, generator=generator)
        owed = (weights * x[0]).double().numpy()
        every = [
            sum(np.cumsum(owed[list(order)])) / 7 for order in itertools.permutations(range(6))
        ]
        model = linear(weights)
        most, least = (
            AOPC(region=1, steps=6, order=order, replacement="constant", score="logit")(
                model, "input_x_gradient", x
            )
            for order in ("top", "bottom")
        )
        assert len(every) == 720
        assert most.value.item() == pytest.approx(max(every), abs=1e-5)
        assert least.value.item() == pytest.approx(min(every), abs=1e-5)
        np.testing.assert_allclose(
            most.curve[0, 1:].numpy(), np.cumsum(np.sort(owed)[::-1]), atol=1e-5
        )


def test_uniform_replacement_of_a_linear_model_has_a_known_mean_and_error() -> None:
    generator = torch.Generator().manual_seed(4)
    weights, x = (
        torch.randn(10, generator=generator),
        2 * torch.rand(400, 10, generator=generator) - 1,
    )
    metric = AOPC(steps=10, samples=8, score="logit")
    found = metric(linear(weights, (-1.0, 1.0)), "input_x_gradient", x)
    order = (weights * x).argsort(dim=1, descending=True)
    lost = (weights * x).double().gather(1, order).cumsum(1)  # the noise's mean is 0
    exact = lost.sum(1) / 11
    z = (found.value - exact) / found.std_error
    assert abs((found.value - exact).mean() / (found.std_error.square().sum().sqrt() / 400)) < 4
    assert 0.9 < z.abs().median() / 0.711 < 1.1  # Student's t with 7 degrees of freedom


def test_what_replaces_values_of_a_table_is_drawn_from_all_rows() -> None:
    generator = torch.Generator().manual_seed(4)
    weights, x = torch.randn(10, generator=generator), torch.rand(400, 10, generator=generator)
    model = linear(weights).with_reference(x)
    found = AOPC(steps=10, samples=8, score="logit")(model, "input_x_gradient", x)
    order = (weights * x).argsort(dim=1, descending=True)
    lost = (weights * (x - x.mean(0))).double().gather(1, order).cumsum(1)
    error = found.value - lost.sum(1) / 11
    assert abs(error.mean() / (found.std_error.square().sum().sqrt() / 400)) < 4


def test_segments_of_each_sample_may_differ_in_number() -> None:
    x = inputs((1, 4, 4), 2)
    maps = torch.stack((torch.arange(4).repeat_interleave(4), torch.arange(16))).reshape(2, 4, 4)
    network = model((1, 4, 4))
    found = AOPC(steps=100, samples=2, segments=maps)(network, "saliency", x)
    assert found.regions.tolist() == found.steps.tolist() == [4, 16]
    assert found.curve.shape == (2, 17)
    assert torch.isfinite(found.curve[0, :5]).all()
    assert found.curve[0, 5:].isnan().all()
    assert found.value[0].item() == pytest.approx(found.curve[0, :5].mean().item(), abs=1e-12)
    assert found.model_evaluations.tolist() == [9, 33]
    alone = AOPC(steps=100, samples=2, segments=maps[0])(network, "saliency", x[:1])
    assert torch.equal(alone.value[0], found.value[0])
    metric = AOPC(steps=100, samples=2, segments=maps)
    assert metric.bind(inputs=x, rows=slice(0, 1)) == dataclasses.replace(metric, segments=maps[:1])
    for segments in ("grid", "slic", 5, "auto"):
        assert torch.isfinite(
            AOPC(steps=3, samples=1, segments=segments)(network, "saliency", x).value
        ).all()


def test_cells_cover_everything_once() -> None:
    for shape, side, count in (
        ((1, 28, 28), None, 196),
        ((3, 224, 224), None, 625),
        ((2, 17), None, 9),
        ((12,), 5, 3),
    ):
        cut = cut_cells(torch.zeros(2, *shape), side)
        assert cut.count.tolist() == [count, count] == [cut.width] * 2
        assert torch.equal(cut.labels[0].unique(), torch.arange(count))


def test_equal_scores_are_ordered_at_random_and_alike_for_all() -> None:
    scores, keys = torch.zeros(300, 8), make_sample_keys(torch.arange(300.0)[:, None], 0)
    order = rank_with_random_ties(scores, keys)
    assert torch.equal(order.sort(dim=1).values, torch.arange(8).expand(300, 8))
    assert (order.double().mean(0) - 3.5).abs().max() < 0.6  # a standard error is 0.13
    assert torch.equal(rank_with_random_ties(scores + 7, keys), order)
    values = torch.rand(300, 8, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    by_rank = torch.empty_like(values).scatter_(1, rank_with_random_ties(values, keys), values)
    assert (by_rank.diff(dim=1) <= 0).all()


def test_what_cannot_be_ordered_or_is_not_finite() -> None:
    class Fragile(nn.Module):
        """NaN where the first pixel is dark."""

        def __init__(self) -> None:
            super().__init__()
            self.net = small_net((1, 4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.where((x[:, 0, 0, 0] < 0.2)[:, None], torch.nan, self.net(x))

    model = standfast.Model(Fragile(), (0.0, 1.0), device="cpu", batch_size=64)
    x = inputs((1, 4, 4), 3).clamp(min=0.3)
    x[:, 0, 0, 0] = torch.tensor([0.3, 0.301, 0.302])
    table = torch.zeros(400, 1, 4, 4)
    table[300] = torch.arange(16.0).reshape(1, 4, 4)
    table[301] = 1.0  # constant; and sums that are equal, of a map that is not
    table[302, 0] = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).repeat(2, 2)
    found = AOPC(steps=4, samples=40)(model, fixed(table), x)
    assert found.status == ("ok", "degenerate", "degenerate")
    assert torch.isnan(found.value[1:]).all()
    assert torch.isnan(found.curve[1:]).all()
    # the first pixel's cell goes last, and about a fifth of the draws are lost
    assert torch.isfinite(found.value[0])
    assert 0 < found.nonfinite[0] < 20
    dark = AOPC(steps=4, replacement="constant")(model, fixed(table), x[:1])
    assert dark.nonfinite[0] == 1
    assert torch.isnan(dark.value[0])
    assert torch.isfinite(dark.curve[0, :4]).all()


def test_errors_of_options() -> None:
    assert_refused(AOPC, region=[0], steps=[0], samples=[1.5], order=["morf"], replacement=["blur"])
    assert_refused(AOPC, baseline=[float("nan")], absolute=[1], score=["odds"], segments=["blobs"])
    assert_refused(partial(AOPC, segments="grid"), region=[2])
    with pytest.raises(
        standfast.ArgumentError, match=r"got a Tensor of shape \(3,\): use its .tolist\(\)$"
    ):
        AOPC(baseline=torch.zeros(3))
    with pytest.raises(standfast.ArgumentError, match=r"got a Tensor of shape \(3, 8, 8\)$"):
        AOPC(baseline=torch.zeros(3, 8, 8))


def test_errors_of_the_call() -> None:
    x = inputs((1, 8, 8))

    def measure(bounds: Any = (0.0, 1.0), **options: Any) -> AOPCResult:
        return AOPC(**options)(model((1, 8, 8), bounds=bounds), "saliency", x)

    assert_refused(measure, region=[8], segments=[torch.arange(9)])
    assert_refused(partial(measure, replacement="constant"), baseline=[2.0, (0.0, 1.0)])
    endless = partial(measure, (-float("inf"), float("inf")))
    assert_refused(endless, replacement=["uniform"])
    assert torch.isfinite(endless(replacement="constant", steps=3).value).all()


def test_bounds_and_baselines_of_each_channel() -> None:
    lower, upper = (torch.tensor(v).reshape(3, 1, 1) for v in ([-1.0, 0.0, 2.0], [0.0, 0.5, 4.0]))
    network = model((3, 8, 8), bounds=(lower, upper))
    x = lower + (upper - lower) * inputs((3, 8, 8))
    noise = uniform_noise(x, 0, 3, network.bounds)
    assert ((noise >= lower) & (noise <= upper)).all()
    assert noise.amin((0, 1, 3, 4)).tolist() == pytest.approx([-1.0, 0.0, 2.0], abs=0.02)
    # more draws begin with the same ones
    assert torch.equal(noise, uniform_noise(x, 0, 9, network.bounds)[:, :3])
    assert torch.isfinite(AOPC(steps=4)(network, "saliency", x).value).all()
    constant = AOPC(steps=4, replacement="constant", baseline=(-0.5, 0.1, 3.0))
    assert torch.isfinite(constant(network, "saliency", x).value).all()
