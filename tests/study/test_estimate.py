"""What a dry run spends to find out how long a study would take."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

import holdfast as hf
from holdfast.study.cost import evaluation_rate


class Seen:
    """Explanations that take some time for each row; notes how many rows there were, and whether all were finite."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.rows, self.finite = seconds, 0, True

    def __call__(self, module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.rows += len(inputs)
        self.finite &= bool(inputs.isfinite().all())
        time.sleep(self.seconds * len(inputs))
        return inputs * 2


def rate(seen: Seen, bounds: tuple[float, float]) -> float:
    classifier = hf.Classifier(nn.Linear(3, 2), bounds=bounds, device="cpu", batch_size=64)
    inputs = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))
    return evaluation_rate(classifier, hf.explainers.from_callable(seen), inputs)


def test_a_slow_explainer_is_timed_on_few_inputs() -> None:
    """Shapley values of a thousand features take a second each: 512 of them were asked for."""
    seen = Seen(0.12)
    assert rate(seen, (0.0, 1.0)) <= 1 / 0.12
    assert seen.rows <= 48


def test_a_quick_explainer_is_timed_on_many() -> None:
    seen = Seen(0.0)
    rate(seen, (0.0, 1.0))
    assert seen.rows > 512


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-float("inf"), float("inf")), (0.0, float("inf"))])
def test_copies_are_finite_whatever_the_bounds(bounds: tuple[float, float]) -> None:
    seen = Seen(0.0)
    assert rate(seen, bounds) > 0
    assert seen.finite
