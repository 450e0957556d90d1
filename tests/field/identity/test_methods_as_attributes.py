"""Modules and explainers that keep a bound method of their own as an attribute, as those have that were patched."""

from __future__ import annotations

import types
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.study.identity import Description, describe_model


class WithMethod(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(784, 10)
        self.activation = self.squash

    def squash(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.layer(x.flatten(1)))


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(784, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1))  # type: ignore[no-any-return]


def patch_one_object() -> nn.Module:
    module = Plain()
    module.forward = types.MethodType(lambda self, x: torch.tanh(self.layer(x.flatten(1))), module)  # type: ignore[method-assign]
    return module


@pytest.mark.parametrize("make", [WithMethod, patch_one_object])
def test_it_is_evaluated_and_has_an_identity(make: Callable[[], nn.Module]) -> None:
    first, again = (standfast.Model(make(), bounds=(0.0, 1.0), device="cpu") for _ in range(2))
    digits = standfast.data.bundled("digits")[:2].inputs
    metric = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=3)
    results = standfast.evaluate(
        first, ["saliency"], digits, metric, sanity=False, controls=False, progress=False
    )
    assert results.failures == []
    assert results.frame()["value"].is_finite().all()
    assert describe_model(first, {}) == describe_model(again, {})


class WithRule:
    """An explainer of the user's."""

    def __init__(self, power: float) -> None:
        self.power = power
        self.rule = self.raise_to_power

    def raise_to_power(self, x: Tensor) -> Tensor:
        return x**self.power

    def __call__(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return self.rule(inputs)


def test_an_explainer_that_refers_to_itself_has_an_identity() -> None:
    first, again, other = (Description(WithRule(power)).digest for power in (1.0, 1.0, 2.0))
    assert first == again != other
