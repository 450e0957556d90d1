"""What unrelated maps give, the natural zero of a measure of stability, does not depend on the order of the samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import standfast
from standfast.metrics import AttributionAttack, MaxSensitivity, Metric
from standfast.metrics.sanity import SanityChecks

BALL = standfast.LinfBall(0.1)
SENSITIVITY = MaxSensitivity(BALL, samples=2, normalise=True)
LENS = AttributionAttack(BALL, "top_k", steps=2, restarts=1, similarities=["lens_precision:k=30"])


def measure(metric: Metric, lenet: standfast.Model, order: torch.Tensor) -> np.ndarray:
    """The value for unrelated maps of each digit, in the order of the digits."""
    digits = standfast.data.bundled("digits")[10:22].inputs
    result = SanityChecks(references={"it": metric})(lenet, "input_x_gradient", digits[order])
    return result.references["unrelated it"][order.argsort()].numpy()


@pytest.mark.parametrize(
    "metric", [SENSITIVITY, LENS], ids=["divided by a norm", "a similarity with a direction"]
)
def test_the_order_of_the_samples_does_not_count(metric: Metric, lenet: standfast.Model) -> None:
    orders = [
        torch.arange(12),
        torch.arange(12).flip(0),
        torch.randperm(12, generator=torch.Generator().manual_seed(1)),
    ]
    first, *others = (measure(metric, lenet, order) for order in orders)
    for other in others:
        np.testing.assert_allclose(first, other, rtol=1e-5)


def test_distances_are_divided_by_the_norm_of_the_own_map(lenet: standfast.Model) -> None:
    digits = standfast.data.bundled("digits")[10:22].inputs
    labels = lenet.predict(digits)
    maps = standfast.explainers.get("input_x_gradient")(lenet, digits, labels).flatten(1).double()
    expected = [
        np.mean([float((own - other).norm() / own.norm()) for other in maps[labels != label]])
        for own, label in zip(maps, labels, strict=True)
    ]
    np.testing.assert_allclose(measure(SENSITIVITY, lenet, torch.arange(12)), expected, rtol=1e-5)
