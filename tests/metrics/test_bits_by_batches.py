"""The same bits for every batch size, order and part of the samples, drawn at random by hypothesis.

`test_contract.py` checks a few fixed cases of everything that is registered. This file draws many cases for one
gradient explainer, one perturbation explainer and one metric.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import standfast
from standfast.testing import SHAPES, small_net

#: samples, of which some are equal
COUNT = 5
X = torch.rand(COUNT, *SHAPES["image"], generator=torch.Generator().manual_seed(1))
X[4] = X[1]

batch_sizes = st.integers(8, 300)
orders = st.permutations(range(COUNT))
#: where a batch is cut into parts that are evaluated one after the other
cuts = st.sets(st.integers(1, COUNT - 1), max_size=3).map(sorted)
drawn = settings(derandomize=True, max_examples=6, deadline=None, database=None)


def make_model(batch_size: int) -> standfast.Model:
    return standfast.Model(small_net(SHAPES["image"]), (0.0, 1.0), device="cpu", batch_size=batch_size)


def split(order: list[int], cuts: list[int]) -> list[list[int]]:
    ends = [0, *cuts, len(order)]
    return [order[first:last] for first, last in pairwise(ends)]


def check_maps(name: str, batch_size: int, order: list[int], cuts: list[int]) -> None:
    explainer = standfast.explainers.get(name)
    whole = explainer(make_model(64), X)
    parts = [explainer(make_model(batch_size), X[rows]) for rows in split(order, cuts)]
    assert torch.equal(torch.cat(parts), whole[order])


@drawn
@given(batch_sizes, orders, cuts)
def test_gradient_explainer(batch_size: int, order: list[int], cuts: list[int]) -> None:
    check_maps("integrated_gradients:steps=5", batch_size, order, cuts)


@drawn
@given(batch_sizes, orders, cuts)
def test_perturbation_explainer(batch_size: int, order: list[int], cuts: list[int]) -> None:
    check_maps("kernel_shap:samples=30", batch_size, order, cuts)


@drawn
@given(batch_sizes, orders, cuts)
def test_metric(batch_size: int, order: list[int], cuts: list[int]) -> None:
    metric = standfast.metrics.MaxSensitivity(standfast.L2Ball(0.5), samples=5)
    whole = evaluate(metric, 64, list(range(COUNT)))
    parts = [evaluate(metric, batch_size, rows) for rows in split(order, cuts)]
    assert torch.equal(torch.cat(parts), whole[order])
    assert len(whole.unique()) == COUNT - 1  # equal samples have equal values, and no others


def evaluate(metric: standfast.metrics.Metric, batch_size: int, rows: list[int]) -> torch.Tensor:
    seed = torch.Generator().manual_seed(3)
    return metric(make_model(batch_size), "saliency", X[rows], generator=seed).value
