"""Reasons against a slow implementation of the formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import standfast
from conftest import small_net
from standfast.metrics import Reasons


@pytest.mark.parametrize("absolute", [False, True])
def test_it_equals_a_slow_implementation(absolute: bool) -> None:
    x = torch.rand(4, 3, 8, generator=torch.Generator().manual_seed(0))
    model = standfast.Model(small_net((3, 8)), (0.0, 1.0), device="cpu")
    maps = standfast.explainers.get("input_x_gradient")(model, x).double().numpy()
    expected = []
    for each in np.abs(maps) if absolute else maps:
        positive = sum(value for value in each.ravel() if value > 0)  # TODO: the formula of the publication
        expected.append(positive / sum(abs(value) for value in each.ravel()))
    result = Reasons(absolute=absolute)(model, "input_x_gradient", x)
    assert result.value.tolist() == pytest.approx(expected, rel=1e-5)
