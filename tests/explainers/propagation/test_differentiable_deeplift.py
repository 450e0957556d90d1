"""The derivative of DeepLift's attributions by the input equals finite differences and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import standfast
from standfast.explainers import DeepLift, Saliency, smooth_relu
from standfast.training.classifier import initialize
from standfast.zoo import LeNet5


def of(module: nn.Module, **options: Any) -> standfast.Model:
    return standfast.Model(
        module.eval(), **{"bounds": (0.0, 1.0), "device": "cpu", "batch_size": 64} | options
    )


def batch(shape: tuple[int, ...], count: int = 3, seed: int = 0) -> Tensor:
    return torch.rand(
        count, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def seeded(*layers: Callable[[], nn.Module]) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(*(layer() for layer in layers)).double()


def attributions(explainer: DeepLift, model: standfast.Model, x: Tensor, targets: Tensor) -> Tensor:
    with model.session():
        return explainer.attribute(model, x, targets)[0]


def check_derivative(
    explainer: DeepLift,
    model: standfast.Model,
    x: Tensor,
    *,
    step: float = 1e-5,
    directions: int = 3,
) -> Tensor:
    """Check the derivative of random sums of attributions along random directions, and the bits of the attributions."""
    generator = torch.Generator().manual_seed(7)
    targets, leaf = torch.arange(len(x)) % 2, x.clone().requires_grad_(True)
    with model.session():
        maps, logits = explainer.attribute(model, leaf, targets, create_graph=True)
        (of_logits,) = torch.autograd.grad(logits.sum(), leaf, retain_graph=True)
        again = x.clone().requires_grad_(True)
        (expected,) = torch.autograd.grad(model.forward(again.clone()).sum(), again)
    torch.testing.assert_close(of_logits, expected)
    assert torch.equal(maps.detach(), attributions(explainer, model, x, targets))
    for _ in range(directions):
        weights, direction = torch.randn(2, *x.shape, generator=generator, dtype=x.dtype)
        (gradient,) = torch.autograd.grad((maps * weights).sum(), leaf, retain_graph=True)
        there, back = (
            attributions(explainer, model, x + sign * step * direction, targets) for sign in (1, -1)
        )
        numeric = ((there - back) * weights).flatten(1).sum(1) / (2 * step)
        assert float(numeric.abs().min()) > 1e-6
        torch.testing.assert_close(
            (gradient * direction).flatten(1).sum(1), numeric, rtol=1e-5, atol=1e-8
        )
    return maps


# ---------------------------------------------------------------- networks

ACTIVATIONS = [
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.Softplus,
    nn.LogSigmoid,
]


@pytest.mark.parametrize("activation", [*ACTIVATIONS, nn.Hardswish], ids=lambda kind: kind.__name__)
def test_activations(activation: type[nn.Module]) -> None:
    module = seeded(
        lambda: nn.Linear(5, 8),
        activation,
        lambda: nn.Linear(8, 6),
        activation,
        lambda: nn.Linear(6, 2),
    )
    check_derivative(DeepLift(baseline=0.2), of(module), batch((5,)))
    check_derivative(
        DeepLift(baseline=(0.1, 0.9, 0.3, 0.0, 1.0), times_input=False), of(module), batch((5,))
    )


def lenet() -> nn.Module:
    with torch.random.fork_rng():
        return initialize(LeNet5(in_channels=2), torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize(
    ("preprocess", "baseline"),
    [(None, 0.0), (lambda x: (x - 0.3) / 0.4, (0.2, 0.7))],
    ids=["plain", "normalised"],
)
def test_lenet_with_softplus(preprocess: Any, baseline: Any) -> None:
    """With max-pooling; a search differentiates within `smooth_relu`."""
    with smooth_relu(beta=8.0):
        check_derivative(
            DeepLift(baseline=baseline),
            of(lenet(), preprocess=preprocess),
            batch((2, 28, 28)),
            step=1e-7,
            directions=2,
        )


@pytest.mark.parametrize(
    "pool",
    [nn.MaxPool1d(2), nn.MaxPool1d(3, stride=1, padding=1), nn.AdaptiveMaxPool1d(4)],
    ids=str,
)
def test_series_with_pooling(pool: nn.Module) -> None:
    module = seeded(
        *(
            lambda: nn.Conv1d(2, 5, 3),
            nn.Tanh,
            lambda: pool,
            lambda: nn.Conv1d(5, 4, 2),
            nn.SiLU,
            nn.Flatten,
        ),
        lambda: nn.LazyLinear(2),
    )
    module(batch((2, 10)))
    check_derivative(DeepLift(baseline=0.4), of(module), batch((2, 10)))


class ManyFunctions(nn.Module):
    """Products of hidden values, a softmax, a residual sum, in-place activations."""

    def __init__(self) -> None:
        super().__init__()
        layers = seeded(*[lambda: nn.Linear(6, 6)] * 4, lambda: nn.Linear(6, 2))
        self.a, self.b, self.c, self.d, self.last = layers

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.a(x)) * torch.sigmoid(self.b(x))
        z = self.c(y)
        z = F.elu_(z + 0.0) + y
        z = torch.softmax(self.d(z), 1) * z
        return self.last(F.layer_norm(torch.relu_(z * 2), (6,)))


@pytest.mark.filterwarnings("ignore::standfast.explainers.completeness.CompletenessWarning")
def test_other_functions_that_depend_on_the_input() -> None:
    """The Rescale rule changes activations only; all other gradients depend on the input as usual."""
    with smooth_relu(beta=3.0):
        check_derivative(DeepLift(baseline=0.3), of(ManyFunctions()), batch((6,)))


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize("smooth", [False, True])
def test_one_unit(smooth: bool) -> None:
    """`m = w (f(wx + c) - f(c)) / (wx)` for a single input; for a rectifier also across its kink."""
    weight, bias = (
        torch.tensor([1.5, -2.0, 0.7, 1.0]).double(),
        torch.tensor([-0.5, 1.0, 0.3, -2.0]).double(),
    )

    class Units(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.zeros(1).double())

        def forward(self, x: Tensor) -> Tensor:
            out = torch.relu(weight * x + bias).sum(1)
            return torch.stack([out, -out], 1)

    x = torch.tensor([[0.9, 0.8, 0.4, 0.6], [0.1, 0.2, 0.9, 0.5]]).double()
    function = (lambda z: F.softplus(z, beta=6.0)) if smooth else torch.relu
    model = of(Units())
    with smooth_relu(beta=6.0) if smooth else torch.enable_grad(), model.session():
        leaf = x.clone().requires_grad_(True)
        maps, _ = DeepLift(times_input=False).attribute(
            model, leaf, torch.tensor([0, 0]), create_graph=True
        )
        (gradient,) = torch.autograd.grad(maps.sum(), leaf)
    z = weight * x + bias
    secant = (function(z) - function(bias)) / (weight * x)
    torch.testing.assert_close(maps.detach(), weight * secant)
    derivative = torch.sigmoid(6 * z) if smooth else (z > 0).double()
    torch.testing.assert_close(gradient, weight * (derivative - secant) / x)


@pytest.mark.parametrize("way", [0.0, 1e-8, 1e-6, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.5])
def test_small_changes_from_the_baseline_in_single_precision(way: float) -> None:
    """For small changes, the quotient of differences is too inaccurate for a derivative."""

    class Unit(nn.Module):
        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.zeros(1, dtype=dtype))

        def forward(self, x: Tensor) -> Tensor:
            out = torch.relu(x + 0.05).sum(1)
            return torch.stack([out, -out], 1)

    def derivative(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        model = of(Unit(dtype))
        leaf = torch.tensor([[0.3 + way, 0.3 - way]], dtype=dtype).requires_grad_(True)
        with smooth_relu(beta=10.0), model.session():
            maps, _ = DeepLift(0.3, times_input=False).attribute(
                model, leaf, torch.tensor([0]), create_graph=True
            )
            (gradient,) = torch.autograd.grad(maps.sum(), leaf)
        return maps.detach(), gradient

    ways = torch.tensor([[way, -way]], dtype=torch.float64)
    # the mean over t of t f''(z_b + t change), where f is the softplus, by Gauss quadrature
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(30))
    t = (nodes + 1) / 2
    curve = torch.sigmoid(10 * (0.35 + t * ways[..., None]))
    expected = (weights / 2 * t * 10 * curve * (1 - curve)).sum(-1)
    _, exact = derivative(torch.float64)
    torch.testing.assert_close(exact, expected, rtol=1e-6, atol=1e-6)
    _, single = derivative(torch.float32)
    torch.testing.assert_close(single.double(), expected, rtol=5e-3, atol=2e-3)


def test_at_the_baseline_the_slope_is_the_derivative() -> None:
    """The derivative of the softplus in place of a rectifier, with a graph and without."""
    model, x = of(lenet()), torch.full((2, 2, 28, 28), 0.3, dtype=torch.float64)
    with smooth_relu(beta=5.0):
        gradient = Saliency(absolute=False)(model, x, 1)
        torch.testing.assert_close(DeepLift(0.3, times_input=False)(model, x, 1), gradient)
        with model.session():
            maps, _ = DeepLift(0.3, times_input=False).attribute(
                model, x.clone().requires_grad_(True), torch.tensor([1, 1]), create_graph=True
            )
    torch.testing.assert_close(maps.detach(), gradient)
    step = Saliency(absolute=False)(model, x, 1)
    torch.testing.assert_close(DeepLift(0.3, times_input=False)(model, x, 1), step)
    assert not torch.allclose(step, gradient)


# ---------------------------------------------------------------- in use


def test_alone_and_in_a_batch() -> None:
    model, x = of(lenet()), batch((2, 28, 28), 5)
    explainer, targets = DeepLift(), torch.arange(5)

    def gradient(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        leaf = x[rows].clone().requires_grad_(True)
        with smooth_relu(), model.session():
            maps, logits = explainer.attribute(model, leaf, targets[rows], create_graph=True)
            return maps.detach(), logits.detach(), torch.autograd.grad((maps**3).sum(), leaf)[0]

    together, alone = gradient(slice(0, 5)), gradient(slice(3, 4))
    for whole, one in zip(together, alone, strict=True):
        torch.testing.assert_close(one, whole[3:4])


def test_from_within_the_graph_of_a_caller() -> None:
    """The input may depend on other tensors; other backward passes use the true derivatives."""
    module = seeded(lambda: nn.Linear(4, 6), nn.Tanh, lambda: nn.Linear(6, 2))
    model, start = of(module), batch((4,)).requires_grad_(True)
    with model.session():
        x = torch.sin(start)
        maps, logits = DeepLift().attribute(model, x, None, create_graph=True)
        loss = (maps**2).sum() + logits.exp().sum()
        (gradient,) = torch.autograd.grad(loss, start)
        leaf = torch.sin(start.detach()).requires_grad_(True)
        maps, logits = DeepLift().attribute(model, leaf, None, create_graph=True)
        (inner,) = torch.autograd.grad((maps**2).sum() + logits.exp().sum(), leaf)
    torch.testing.assert_close(gradient, inner * torch.cos(start.detach()))


def test_constant_activations_have_no_influence() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = seeded(lambda: nn.Linear(4, 5), lambda: nn.Linear(5, 2))
            self.shift = nn.Parameter(
                torch.rand(1, 5, generator=torch.Generator().manual_seed(0)).double()
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.tanh(self.first(x)) * torch.sigmoid(self.shift))

    check_derivative(DeepLift(0.2), of(Net()), batch((4,)))
