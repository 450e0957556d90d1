"""Shapley sampling equals its definition, and agrees with Shapley values by enumeration and with Captum."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import pytest
import torch
from games import mlp, rand, shapley_values
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from standfast.explainers import KernelSHAP, ShapleySampling
from standfast.explainers.perturbation.shapley_sampling import _draw_walks, draw_orders
from standfast.segments import segment

CPU = torch.device("cpu")


def compute_scores(
    module: nn.Module, x: Tensor, baseline: float, target: int, output: str
) -> Tensor:
    """The score of each of the 2^m coalitions of one input's features, indexed by the bits of the coalition."""
    m = len(x)
    kept = (torch.arange(2**m)[:, None] >> torch.arange(m)) & 1
    with torch.no_grad():
        logits = module(torch.where(kept.bool(), x, torch.tensor(baseline, dtype=x.dtype)))
    return (logits.softmax(1) if output == "probability" else logits)[:, target]


def shapley(worth: Tensor) -> Tensor:
    """Shapley values of a game with the worth of each coalition, indexed by its bits."""
    players = int(math.log2(len(worth)))
    return torch.stack(
        shapley_values(lambda coalition: worth[sum(1 << i for i in coalition)], players)
    )


def average_over_orders(worth: Tensor, orders: Tensor) -> Tensor:
    """Mean marginal contributions over the orders, step by step."""
    phi = torch.zeros(orders.shape[1], dtype=torch.float64)
    for order in orders.tolist():
        code = 0
        for i in order:
            phi[i] += worth[code + (1 << i)] - worth[code]
            code += 1 << i
    return phi / len(orders)


@pytest.mark.parametrize("output", ["logit", "probability"])
@pytest.mark.parametrize("features", [3, 4, 5])
def test_all_orders_give_exact_shapley_values(features: int, output: str) -> None:
    module, x = mlp(features), rand(5, features)
    explainer = ShapleySampling(math.factorial(features), baseline=0.3, output=output)  # type: ignore[arg-type]
    ours = explainer(standfast.Model(module, (0.0, 1.0), device="cpu"), x, 1)
    expected = torch.stack([shapley(compute_scores(module, row, 0.3, 1, output)) for row in x])
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)
    assert float(expected.abs().max()) > 0.01


@pytest.mark.parametrize("count", [1, 2, 7, 24])
@pytest.mark.parametrize("antithetic", [True, False])
def test_equals_the_mean_over_its_orders(count: int, antithetic: bool) -> None:
    module, x = mlp(9), rand(4, 9)
    explainer = ShapleySampling(count, antithetic, baseline=0.1, seed=5)
    orders = draw_orders(count, antithetic, 9, torch.Generator().manual_seed(5))
    ours = explainer(standfast.Model(module, (0.0, 1.0), device="cpu"), x, 2)
    expected = torch.stack(
        [average_over_orders(compute_scores(module, row, 0.1, 2, "logit"), orders) for row in x]
    )
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)


def test_many_orders_approach_the_exact_values() -> None:
    module, x = mlp(10), rand(2, 10)
    model = standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=1024)
    exact = torch.stack([shapley(compute_scores(module, row, 0.0, 0, "logit")) for row in x])
    torch.testing.assert_close(KernelSHAP(samples=1022)(model, x, 0), exact, rtol=1e-6, atol=1e-8)
    errors = []
    for count in (32, 512):
        found = torch.stack([ShapleySampling(count, seed=s)(model, x, 0) for s in range(4)])
        errors.append(float((found - exact).norm() / exact.norm() / 2))
    assert errors[0] < 0.2
    assert errors[1] < 0.4 * errors[0]  # a quarter of the error, since 4 is the square root of 16


def test_pairs_of_reverse_orders_vary_less() -> None:
    """With interactions of two features, the mean of two reverse orders is exact; other noise decreases."""
    weights = rand(8, 8, seed=3) - 0.5
    codes = ((torch.arange(256)[:, None] >> torch.arange(8)) & 1).double()
    pairs = torch.einsum("ci,ij,cj->c", codes, weights, codes)
    spread = {}
    for worth, name in (
        (pairs, "pairs"),
        (compute_scores(mlp(8), rand(8), 0.0, 0, "logit"), "net"),
    ):
        exact = shapley(worth)
        for antithetic in (True, False):
            found = [
                average_over_orders(
                    worth, draw_orders(4, antithetic, 8, torch.Generator().manual_seed(seed))
                )
                for seed in range(60)
            ]
            spread[name, antithetic] = float((torch.stack(found) - exact).pow(2).mean())
    assert spread["pairs", True] < 1e-20
    assert spread["pairs", False] > 1e-3
    assert spread["net", True] < 0.7 * spread["net", False]


@pytest.mark.parametrize("how", ["auto", "pixels"])
def test_values_add_up_for_any_orders(how: Any, digits: standfast.data.Dataset) -> None:
    x = digits.inputs[:3].double()
    module = standfast.zoo.load("lenet5-mnist").double()
    model = standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=256)
    maps = ShapleySampling(permutations=1 if how == "pixels" else 3, segments=how)(model, x, 4)
    labels = (
        torch.arange(784).expand(3, 784) if how == "pixels" else segment(x, how).labels.flatten(1)
    )
    change = (model.logits(x) - model.logits(torch.zeros_like(x)))[:, 4]
    for one, cut, expected in zip(maps.flatten(1), labels, change, strict=True):
        first = torch.stack([one[cut == k][0] for k in range(int(cut.max()) + 1)])
        torch.testing.assert_close(first[cut], one)
        torch.testing.assert_close(first.sum(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("features", [3, 6, 70])
def test_equal_coalitions_are_forwarded_once(features: int) -> None:
    walks = _draw_walks(40, True, features, 0, CPU)
    masks = walks.masks
    assert len(masks.unique(dim=0)) == len(masks)
    assert masks[0].all()  # the input itself
    assert not masks[1].any()
    assert len(walks.ranks) == min(40, math.factorial(features))
    if features == 3:
        assert len(masks) == 8
        assert {tuple(row.argsort().tolist()) for row in walks.ranks} == set(permutations(range(3)))
    for p, ranks in enumerate(walks.ranks):  # the coalition of each number
        assert torch.equal(masks[walks.before[p]], ranks < ranks[:, None])
        assert torch.equal(masks[walks.after[p]], ranks <= ranks[:, None])
    rows: list[int] = []
    module = nn.Linear(features, 2)
    module.register_forward_hook(lambda m, a, out: rows.append(len(out)))
    model = standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=512)
    with model.session():
        ShapleySampling(40, segments="pixels").attribute(model, torch.rand(2, features), None)
    assert sum(rows) - 2 * len(masks) in range(16)  # except for padding
    assert len(masks) <= 40 * (features - 1) + 2


def test_every_pixel_of_a_digit_within_bounded_memory() -> None:
    walks = _draw_walks(25, True, 784, 0, CPU)
    assert sum(t.numel() * t.element_size() for t in vars(walks).values()) < 1e6
    # in pairs of reverse orders only the empty and the full coalition coincide, and perhaps one without the last pixel
    assert 25 * 782 + 1 < len(walks) <= 25 * 783 + 2


def test_options_out_of_range() -> None:
    assert_refused(
        ShapleySampling,
        permutations=[0],
        antithetic=[1],
        segments=["pixel"],
        baseline=[float("nan")],
    )
    assert_refused(ShapleySampling, output=["odds"], seed=[1.5])


def test_fewer_orders_than_asked_for_are_divided_by_their_number() -> None:
    """Three features have six orders, not the default's 24."""
    module, x = mlp(3), rand(1, 3)
    found = ShapleySampling()(standfast.Model(module, (0.0, 1.0), device="cpu"), x, 1)[0]
    torch.testing.assert_close(found, shapley(compute_scores(module, x[0], 0.0, 1, "logit")))
