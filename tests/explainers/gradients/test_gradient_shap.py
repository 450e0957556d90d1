"""GradientSHAP and the variants of SmoothGrad: formulas, closed forms, Captum, integrated gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast.explainers import GradientSHAP, IntegratedGradients, SmoothGrad
from standfast.explainers.gradients.gradient_shap import _draw_points
from standfast.explainers.gradients.input_gradients import draw_shared_noise

CPU = torch.device("cpu")


def batch(shape: tuple[int, ...], count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def double_net(shape: tuple[int, ...]) -> standfast.Model:
    return standfast.Model(small_net(shape).double(), (0.0, 1.0), device="cpu", batch_size=256)


def gradients_at(model: standfast.Model, points: Tensor, target: int) -> Tensor:
    leaf = points.clone().requires_grad_(True)
    with model.session():
        return torch.autograd.grad(model.forward(leaf)[:, target].sum(), leaf)[0]


def products(
    model: standfast.Model, x: Tensor, references: Tensor, explainer: GradientSHAP
) -> Tensor:
    """The terms of the mean in the formula, `(samples, N, ...)`."""
    which, places = _draw_points(explainer.seed, explainer.samples, len(references), CPU)
    found = []
    for k in range(explainer.samples):
        b = references[int(which[k])]
        found.append((x - b) * gradients_at(model, b + float(places[k]) * (x - b), 1))
    return torch.stack(found)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_equals_its_formula(shape: tuple[int, ...]) -> None:
    model = standfast.Model(small_net(shape).double(), (-1.0, 1.0), device="cpu", batch_size=24)
    x, references = batch(shape, 4).double(), batch(shape, 5, seed=1).double() - 0.5
    explainer = GradientSHAP(references, samples=13, seed=3)
    expected = products(model, x, references, explainer).mean(0)
    assert float(expected.abs().max()) > 0
    torch.testing.assert_close(explainer(model, x, 1), expected)


def test_one_number_for_each_channel_is_a_background_of_one() -> None:
    shape = (3, 10)
    model, x = double_net(shape), batch(shape, 3).double()
    numbers = GradientSHAP((0.1, 0.5, 0.9), samples=6)(model, x, 0)
    single = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64).reshape(1, 3, 1).expand(1, 3, 10)
    torch.testing.assert_close(GradientSHAP(single, samples=6)(model, x, 0), numbers)


@pytest.mark.parametrize("samples", [1, 7, 20, 41])
def test_draws_are_stratified_and_each_is_uniform(samples: int) -> None:
    counts = torch.zeros(samples, 5)
    for seed in range(200):
        which, places = _draw_points(seed, samples, 5, CPU)
        assert torch.equal((places * samples).floor(), torch.arange(samples, dtype=torch.float64))
        often = torch.bincount(which, minlength=5)
        assert int(often.max() - often.min()) <= 1
        counts[torch.arange(samples), which] += 1
    # each reference point is equally likely at each position: 200 draws with probability one fifth
    assert float((counts - 40).abs().max()) < 5 * (200 * 0.2 * 0.8) ** 0.5


def test_converges_to_integrated_gradients_of_one_baseline() -> None:
    """The mean over seeds is within its standard error, and the error is below that of independent draws."""
    model, x = double_net((1, 8, 8)), batch((1, 8, 8), 2).double()
    exact = IntegratedGradients(steps=500, baseline=0.2)(model, x, 1)
    runs = torch.stack(
        [GradientSHAP(0.2, samples=20, seed=seed)(model, x, 1) - exact for seed in range(30)]
    )
    error = runs.std(0) / 30**0.5
    assert float((runs.mean(0).abs() / (error + 1e-5)).max()) < 5
    spread = products(
        model, x, torch.full((1, 1, 8, 8), 0.2, dtype=torch.float64), GradientSHAP(0.2, samples=200)
    )
    independent = float(spread.var(0).mean()) / 20  # sigma^2 / samples
    assert 0 < float(runs.square().mean()) < 0.25 * independent


def test_options_out_of_range() -> None:
    assert_refused(GradientSHAP, samples=[0], seed=[0.5])
    assert_refused(GradientSHAP, background=["black", torch.zeros(3)])


# ---------------------------------------------------------------- SmoothGrad


@pytest.mark.parametrize("times_input", [False, True])
@pytest.mark.parametrize("absolute", [False, True])
def test_smoothgrad_statistics_equal_their_formulas(times_input: bool, absolute: bool) -> None:
    model, x = double_net((1, 8, 8)), batch((1, 8, 8), 3).double()
    options: dict[str, Any] = {
        "samples": 7,
        "noise": 0.2,
        "absolute": absolute,
        "times_input": times_input,
    }
    values = []
    for e in draw_shared_noise(0, (7, 1, 8, 8), torch.float64, CPU):
        gradient = gradients_at(model, x + 0.2 * e, 2)
        value = gradient * (x + 0.2 * e) if times_input else gradient
        values.append(value.abs() if absolute else value)
    stacked = torch.stack(values)
    for statistic, expected in (
        ("mean", stacked.mean(0)),
        ("mean_square", (stacked * stacked).mean(0)),
        ("variance", stacked.var(0, correction=0)),
    ):
        ours = SmoothGrad(statistic=statistic, **options)(model, x, 2)  # type: ignore[arg-type]
        torch.testing.assert_close(ours, expected)
    # the default is bit for bit the mean of the noisy copies' gradients
    plain = standfast.Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu", batch_size=256)
    x = x.float()
    noise = draw_shared_noise(0, (16, 1, 8, 8), torch.float32, CPU)
    points = x[:, None] + 0.1 * noise
    flat = gradients_at(plain, torch.cat([x, points.flatten(0, 1), x[:5]]), 2)[3:51]
    assert torch.equal(SmoothGrad()(plain, x, 2), flat.reshape(points.shape).mean(1))
    assert SmoothGrad() == SmoothGrad(16, 0.1, False, False, 0, "mean")


def test_vargrad_of_a_quadratic_is_known() -> None:
    class Quadratic(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            c = torch.arange(1.0, 5.0, dtype=x.dtype)
            return torch.stack([(c * x.square()).sum(1), x.sum(1)], 1)

    model = standfast.Model(Quadratic(), (0.0, 2.0), device="cpu")
    x = batch((4,), 3)
    noise = draw_shared_noise(0, (500, 4), torch.float32, CPU)
    expected = 4 * torch.arange(1.0, 5.0).square() * (0.1 * 2) ** 2 * noise.var(0, correction=0)
    ours = SmoothGrad(samples=500, noise=0.1, statistic="variance")(model, x, 0)
    torch.testing.assert_close(ours, expected.expand(3, 4), rtol=1e-4, atol=0)
    linear = SmoothGrad(samples=500, noise=0.1, statistic="variance")(model, x, 1)
    assert torch.equal(linear, torch.zeros_like(x))


def test_smoothgrad_refuses_an_unknown_statistic() -> None:
    with pytest.raises(
        standfast.ArgumentError, match="statistic: expected .*mean.*mean_square.*variance"
    ):
        SmoothGrad(statistic="median")  # type: ignore[arg-type]
    with pytest.raises(
        standfast.ArgumentError, match="samples: expected at least 2 for a variance"
    ):
        SmoothGrad(samples=1, statistic="variance")
