"""The least change of an embedding that is compared with its own clean vector: the cosine has no gradient there."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.algorithms import get_attack
from standfast.study.identity import Description
from standfast.tasks import Embedding, Regression

LEAST = 0.8
WIDE = (-math.inf, math.inf)


def make_model(
    module: nn.Module, bounds: tuple[float, float], least: float = LEAST
) -> standfast.Model:
    return standfast.Model(module, bounds=bounds, task=Embedding(least), device="cpu")


def make_linear(weight: Tensor) -> nn.Module:
    module = nn.Linear(*weight.shape, bias=False)
    module.weight.data = weight
    return module


def make_network(seed: int, activation: type[nn.Module]) -> nn.Module:
    """A small network of random weights."""
    generator = torch.Generator().manual_seed(seed)
    module = nn.Sequential(
        nn.Linear(8, 24), activation(), nn.Linear(24, 24), activation(), nn.Linear(24, 6)
    )
    for parameter in module.parameters():
        spread = 1 / math.sqrt(parameter.shape[-1] if parameter.ndim == 2 else 24)
        parameter.data = spread * (2 * torch.rand(parameter.shape, generator=generator) - 1)
    return module


def measure_distances(module: nn.Module, x: Tensor, directions: Tensor, least: float) -> Tensor:
    """The first size along each of the `directions` `(M, d)` at which the cosine is below `least`."""
    sizes = torch.logspace(-1, 1, 200)
    points = x + sizes[:, None] * directions[:, None]
    beyond = nn.functional.cosine_similarity(module(points), module(x), dim=-1) < least
    first = sizes[beyond.int().argmax(1)]
    return torch.where(beyond.any(1), first, math.inf)


def search_long(module: nn.Module, x: Tensor, least: float) -> float:
    """The least distance from 100 random directions, which turn along the gradient at their boundary points."""
    directions = torch.randn(100, x.shape[1], generator=torch.Generator().manual_seed(0))
    best = math.inf
    for turn in range(60):
        directions = nn.functional.normalize(directions, dim=1)
        with torch.no_grad():
            distances = measure_distances(module, x, directions, least)
        best = min(best, float(distances.min()))
        points = (x + distances.clamp(max=50.0)[:, None] * directions).requires_grad_(True)
        cosine = nn.functional.cosine_similarity(module(points), module(x).detach())
        (gradient,) = torch.autograd.grad(cosine.sum(), points)
        directions = directions - 0.5 * (1 - turn / 60) * nn.functional.normalize(gradient, dim=1)
    return best


@pytest.mark.parametrize("bounds", [WIDE, (-9.0, 9.0)])
@pytest.mark.parametrize("attack", ["fmn", "fmn:steps=8,second=12,polish=2", "alma", "ddn"])
def test_identity_in_closed_form(attack: str, bounds: tuple[float, float]) -> None:
    """A vector leaves the cone around itself at a right angle to the cone: `||x|| sin(arccos(least))`."""
    for features in (2, 50):
        inputs = torch.rand(3, features, generator=torch.Generator().manual_seed(2)) + 0.5
        found = get_attack(attack).minimise(
            make_model(make_linear(torch.eye(features)), bounds), inputs, None, None
        )
        least = inputs.norm(dim=1) * math.sin(math.acos(LEAST))
        assert bool(found.found.all())
        assert (found.distortion / least).tolist() == pytest.approx([1.0] * 3, abs=0.03)


@pytest.mark.parametrize("attack", ["gsa", "iga"])
def test_steps_along_signs_stay_near(attack: str) -> None:
    """They cannot reach the least 2-norm, but lie no thousands of times further away."""
    inputs = torch.rand(3, 5, generator=torch.Generator().manual_seed(2)) + 0.5
    found = get_attack(attack).minimise(
        make_model(make_linear(torch.eye(5)), WIDE), inputs, None, None
    )
    least = inputs.norm(dim=1) * math.sin(math.acos(LEAST))
    assert bool(found.found.all())
    assert bool((found.distortion < 1.2 * least).all())


def test_two_features_of_different_weight_against_a_scan_of_angles() -> None:
    x, module = torch.tensor([[1.0, 0.7]]), make_linear(torch.diag(torch.tensor([1.0, 6.0])))
    angles = torch.linspace(0, 2 * math.pi, 2001)
    scanned = measure_distances(
        module, x, torch.stack([angles.cos(), angles.sin()], 1), LEAST
    ).min()
    for attack in ("fmn", "alma", "ddn"):
        found = get_attack(attack).minimise(make_model(module, WIDE), x, None, None)
        assert float(found.distortion) == pytest.approx(float(scanned), rel=0.03)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))]
)
def test_networks_against_a_long_search(seed: int) -> None:
    module = make_network(seed, nn.Tanh)
    x = torch.rand(1, 8, generator=torch.Generator().manual_seed(seed))
    longest = search_long(module, x, 0.9)
    for attack in ("fmn", "alma", "ddn"):
        found = get_attack(attack).minimise(make_model(module, WIDE, 0.9), x, None, None)
        assert bool(found.found)
        assert float(found.distortion) < 1.05 * longest


def test_c_eval_of_fixed_features_in_closed_form() -> None:
    """With one of three features held, the least change is that in the plane of the other two, found by a scan."""
    inputs = torch.rand(3, 3, generator=torch.Generator().manual_seed(2)) + 0.5
    model = make_model(make_linear(torch.eye(3)), WIDE)
    angles = torch.linspace(0, 2 * math.pi, 1001)
    for attack in ("fmn", "alma", "ddn"):
        result = standfast.metrics.CEval(attack=attack, fraction=0.34)(model, "random", inputs)
        least = inputs.norm(dim=1).double() * math.sin(math.acos(LEAST))
        assert result.c_empty.tolist() == pytest.approx(least.tolist(), rel=0.02)
        for x, c, mask in zip(inputs, result.c, result.mask, strict=True):
            directions = torch.zeros(len(angles), 3)
            directions[:, ~mask] = torch.stack([angles.cos(), angles.sin()], 1)
            scanned = measure_distances(model.module, x[None], directions, LEAST).min()
            assert float(c) == pytest.approx(float(scanned), rel=0.04)


def test_a_constant_network_has_no_boundary() -> None:
    module = nn.Linear(4, 4)
    module.weight.data, module.bias.data = torch.zeros(4, 4), torch.ones(4)
    found = get_attack("fmn").minimise(make_model(module, WIDE), torch.ones(1, 4), None, None)
    assert not bool(found.found)


def test_a_reference_of_its_own_keeps_its_gradient() -> None:
    """Towards another vector the margin is not flat, and its gradient at the input is used as it is."""
    x, text = torch.tensor([[1.0, 0.2]]), torch.tensor([[1.0, 0.0]])
    model = make_model(make_linear(torch.eye(2)), WIDE)
    found = get_attack("ddn").minimise(model, x, text, None)
    # between the input and the nearer side of the cone
    angle = math.acos(LEAST) - math.atan2(0.2, 1.0)
    assert float(found.distortion) == pytest.approx(float(x.norm()) * math.sin(angle), rel=0.01)


def test_no_result_from_before_is_taken_for_a_new_one() -> None:
    assert Embedding.version == 2
    assert Regression.version == 1
    assert Description(Embedding(0.9)).content[1] == 2
