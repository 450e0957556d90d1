"""Deep Taylor decomposition equals the paper's formulas, unit by unit, and has the properties that it promises."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from small_networks import SMALL, drawn, noise
from taylor_by_hand import NETWORKS, batch, by_hand, linear, of, seeded
from torch import Tensor, nn

import standfast
from standfast.explainers import DeepTaylor


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-0.5, 2.0)], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_equals_the_formulas_unit_by_unit(name: str, bounds: tuple[float, float]) -> None:
    shape, build = NETWORKS[name]
    module, x = build(), bounds[0] + (bounds[1] - bounds[0]) * batch(shape, 2)
    for target in (0, 2):
        maps = DeepTaylor()(of(module, bounds), x, target)
        for one, expected in zip(x, maps, strict=True):
            torch.testing.assert_close(by_hand(list(module), one, target, *bounds), expected, rtol=1e-9, atol=1e-12)


def test_one_layer_follows_the_box_rule() -> None:
    """In closed form, with bounds for each channel and weights of both signs."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).double()
    low = torch.tensor([-1.0, 0.0, -3.0], dtype=torch.float64)[:, None]
    high = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)[:, None]
    x = low + (high - low) * batch((3, 4))
    w = module[1].weight.detach()[1].reshape(3, 4)
    q = torch.where(w > 0, w * (x - low), w * (x - high))
    expected = q / q.sum((1, 2), keepdim=True) * module(x).detach()[:, 1, None, None]
    torch.testing.assert_close(DeepTaylor()(of(module, (low, high)), x, 1), expected)


# ---------------------------------------------------------------- sums and signs


def positive_logits(module: nn.Module, inputs: Tensor) -> Tensor:
    """A class with a logit above 0 for each input."""
    logits = module(inputs).detach()
    assert (logits.amax(1) > 0).all()
    return logits.argmax(1)


def without_biases(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
                part.running_mean.zero_()
            if hasattr(part, "bias") and isinstance(part.bias, Tensor):
                part.bias.zero_()
    return module


@pytest.mark.parametrize("name", [name for name in SMALL if name not in ("bottlenecks", "bottlenecks-relu")])
def test_relevance_without_biases_adds_up(name: str) -> None:
    """It adds up to the logit, also with residual sums, concatenations, scales of both signs and ReLU6."""
    module = without_biases(drawn(name))
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.weight[::3] *= -1
    x = noise(3)
    model = of(module)
    t = positive_logits(module, x)
    maps = DeepTaylor()(model, x, t)
    torch.testing.assert_close(maps.sum((1, 2, 3)), model.logits(x).gather(1, t[:, None])[:, 0])
    assert (maps >= 0).all()


@pytest.mark.parametrize("name", ["bottlenecks", "resnet20"])
def test_positive_with_biases_and_linear_bottlenecks(name: str) -> None:
    """Some units have no positive contribution; the sum never exceeds the logit."""
    module, x = drawn(name), noise(3)
    t = positive_logits(module, x)
    maps, logits = DeepTaylor()(of(module), x, t), module(x).detach().amax(1)
    assert (maps >= 0).all()
    kept = maps.sum((1, 2, 3)) / logits
    assert (kept <= 1 + 1e-9).all()
    assert (kept > 0.4).all()


def test_a_negative_logit_reverses_the_sign() -> None:
    module, x = seeded(linear(6, 40), nn.ReLU, linear(40, 40), nn.ReLU, linear(40, 3)), batch((6,), 20)
    without_biases(module)
    logits = module(x)
    raised = copy.deepcopy(module)
    raised[4].bias += 10.0
    assert (logits < 0).any()
    assert (logits > 0).any()
    for target in range(3):
        maps, mine = DeepTaylor()(of(module), x, target), logits[:, target, None]
        torch.testing.assert_close(maps.sum(1, keepdim=True), mine)
        assert (maps * mine >= 0).all()
        torch.testing.assert_close(DeepTaylor()(of(raised), x, target) / (mine + 10.0), maps / mine)


def test_relevance_of_a_unit_without_positive_contributions_is_lost() -> None:
    """A unit that is active only because of its positive bias."""
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
        module[0].bias.copy_(torch.tensor([0.5, -0.1]))
        module[2].weight.copy_(torch.tensor([[1.0, 2.0], [0.0, 0.0]]))
    x = torch.tensor([[0.0, 0.0], [0.4, 0.2]], dtype=torch.float64)
    maps = DeepTaylor()(of(module), x, 0)
    first, second = 1.1, 2 * 0.3
    expected = torch.tensor([[0.0, 0.0], [first * 0.4 / 0.6 + second, first * 0.2 / 0.6]], dtype=torch.float64)
    torch.testing.assert_close(maps, expected)


def test_bundled_network(digits: standfast.data.Dataset) -> None:
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu")
    x = digits[:8].inputs
    maps, logits = standfast.explainers.get("deep_taylor")(model, x), model.logits(x).amax(1)
    torch.testing.assert_close(
        maps.sum((1, 2, 3)), logits, rtol=1e-4, atol=0
    )  # no relevance is lost in spite of the biases
    assert (maps >= 0).all()
    inside = F.max_pool2d(x, 9, stride=1, padding=4) > 0  # most relevance is near the strokes
    assert (maps * ~inside).sum() < 0.1 * maps.sum()
