"""KernelSHAP equals Shapley values by enumeration and agrees with Captum; and tests of all surrogate explainers."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import pytest
import torch
from games import mlp, rand, shapley_values
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast.errors import ArgumentError
from standfast.explainers import LIME, KernelSHAP
from standfast.explainers.perturbation.kernel_shap import _draw_coalitions, draw_shapley_coalitions
from standfast.segments import segment

CPU = torch.device("cpu")


def shapley(
    module: nn.Module, x: Tensor, labels: Tensor, baseline: float, target: int, output: str
) -> Tensor:
    """Shapley values `(m,)` of one input's segments, by the definition: a sum over all coalitions."""
    m = int(labels.max()) + 1
    subsets = [frozenset(c) for s in range(m + 1) for c in combinations(range(m), s)]
    kept = torch.stack([torch.tensor([int(k) in c for k in labels.flatten()]) for c in subsets])
    kept = kept.reshape(len(subsets), *([1] * (x.ndim > 1)), *labels.shape)
    with torch.no_grad():
        logits = module(torch.where(kept, x, torch.tensor(baseline, dtype=x.dtype)))
    scores = logits.softmax(1) if output == "probability" else logits
    worth = dict(zip(subsets, scores[:, target].tolist(), strict=True))
    return torch.tensor(shapley_values(worth.__getitem__, m), dtype=torch.float64)


def by_segment(maps: Tensor, labels: Tensor) -> Tensor:
    """The value of each segment `(m,)` in a map `(*spatial)`."""
    values = [maps[labels == k] for k in range(int(labels.max()) + 1)]
    assert all(bool((v == v[0]).all()) for v in values)
    return torch.stack([v[0] for v in values])


@pytest.mark.parametrize("output", ["logit", "probability"])
@pytest.mark.parametrize("features", [3, 4, 7, 10])
def test_the_full_budget_gives_exact_shapley_values(features: int, output: str) -> None:
    module, x = mlp(features), rand(5, features)
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    explainer = KernelSHAP(samples=2**features - 2, baseline=0.3, output=output)  # type: ignore[arg-type]
    ours = explainer(model, x, 1)
    expected = torch.stack(
        [shapley(module, row, torch.arange(features), 0.3, 1, output) for row in x]
    )
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-8)
    assert float(expected.abs().max()) > 0.01


def test_exact_for_segments_of_images_and_series() -> None:
    for shape, how in (
        ((3, 8, 8), 4),
        ((2, 16), 5),
        ((1, 8, 8), (torch.arange(64) // 11).reshape(8, 8)),
    ):
        module, x = small_net(shape).double().eval(), rand(2, *shape)
        model = standfast.Model(module, (0.0, 1.0), device="cpu")
        labels = segment(x, how).labels
        ours = KernelSHAP(samples=1000, segments=how)(model, x, 2)
        assert torch.equal(ours[:, :1].expand_as(ours), ours)  # the same in all channels
        for row, mine, cut in zip(x, ours, labels, strict=True):
            expected = shapley(module, row, cut, 0.0, 2, "logit")
            torch.testing.assert_close(by_segment(mine[0], cut), expected, rtol=1e-6, atol=1e-8)


def test_a_sampled_budget_is_right_on_average() -> None:
    module, x = mlp(10), rand(1, 10)
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    exact = shapley(module, x[0], torch.arange(10), 0.0, 0, "logit")
    # a fit to few samples has a bias of order 1 / samples; here it is a tenth of the spread
    seen = torch.stack([KernelSHAP(samples=200, seed=s)(model, x, 0)[0] for s in range(100)])
    error = seen.std(0) / len(seen) ** 0.5
    assert float(error.max()) > 0
    assert float(((seen.mean(0) - exact).abs() / error).max()) < 4.5
    close = torch.stack([KernelSHAP(samples=500, seed=s)(model, x, 0)[0] for s in range(20)])
    assert float((close - exact).square().mean()) < 0.4 * float((seen - exact).square().mean())


@pytest.mark.parametrize("samples", [2, 7, 31, 200])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_efficiency_for_any_samples(samples: int, shape: tuple[int, ...]) -> None:
    module, x = small_net(shape).double().eval(), rand(4, *shape)
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    for how in ("auto", "pixels"):
        labels = segment(x, "auto").labels if how == "auto" else torch.arange(x[0, ..., 0:].numel())
        maps = KernelSHAP(samples=samples, segments=how, baseline=0.2)(model, x, 1)  # type: ignore[arg-type]
        maps = maps if x.ndim == 2 else maps[:, 0]
        change = (module(x) - module(torch.full_like(x, 0.2)))[:, 1].detach()
        for i, mine in enumerate(maps):
            values = mine.flatten() if how == "pixels" else by_segment(mine, labels[i])
            torch.testing.assert_close(values.sum(), change[i], rtol=1e-10, atol=1e-10)


def test_the_kernel_and_its_samples() -> None:
    for m in (2, 3, 5, 8):
        masks, weights = draw_shapley_coalitions(2**m - 2, m, torch.Generator())
        assert len(masks) == len(masks.unique(dim=0)) == 2**m - 2
        sizes = masks.sum(1).tolist()
        kernel = [(m - 1) / (math.comb(m, s) * s * (m - s)) for s in sizes]
        torch.testing.assert_close(weights, torch.tensor(kernel, dtype=torch.float64))
    for m, samples in ((12, 100), (30, 200), (300, 200), (9, 2)):
        masks, weights = draw_shapley_coalitions(samples, m, torch.Generator().manual_seed(1))
        assert len(masks) <= samples
        rows = {tuple(row): w for row, w in zip(masks.tolist(), weights.tolist(), strict=True)}
        assert len(rows) == len(masks)
        # complements have the same weight
        assert all(rows[tuple(not k for k in row)] == w for row, w in rows.items())
        assert int(masks.sum(1).min()) > 0
        assert int(masks.sum(1).max()) < m
    # enumerated sizes have the kernel's weight; sampled sizes share the remaining mass in proportion
    m = 12
    masks, weights = draw_shapley_coalitions(600, m, torch.Generator().manual_seed(0))
    size = masks.sum(1)
    mass = {s: (m - 1) / (s * (m - s)) for s in range(1, m)}
    for s in (1, 2, 10, 11):
        assert int((size == s).sum()) == math.comb(m, s)
    for s in range(1, m):
        assert abs(float(weights[size == s].sum()) - mass[s]) < 0.02 * mass[s] + 0.01
    ones = draw_shapley_coalitions(200, 30, torch.Generator().manual_seed(0))[0].double().mean(0)
    torch.testing.assert_close(ones, torch.full((30,), 0.5, dtype=torch.float64))


def test_duplicates_are_forwarded_once() -> None:
    rows: list[int] = []
    module, x = mlp(4), rand(3, 4)
    module.register_forward_hook(lambda m, args, out: rows.append(len(args[0])))
    model = standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=256)
    KernelSHAP()(model, x, 0)
    # all coalitions of four; before that, one pass to find the number of classes
    assert sum(rows[1:]) == 3 * 16


def test_with_fewer_coalitions_than_features_the_solution_has_the_smallest_norm() -> None:
    found = _draw_coalitions(20, 50, 0, CPU)
    scores = rand(len(found.masks))
    phi = found.fit @ scores
    inner = phi - (scores[0] - scores[1]) / 50
    torch.testing.assert_close(
        inner.sum(), torch.zeros((), dtype=torch.float64), atol=1e-12, rtol=0
    )
    # it lies in the span of the centred masks, and fits the difference of each pair
    centred = found.masks[2:].double() - found.masks[2:].double().mean(1, keepdim=True)
    torch.testing.assert_close(
        torch.linalg.lstsq(centred.T, inner[:, None]).residuals.sum().abs().item(), 0.0
    )
    both = {tuple(m): s for m, s in zip(found.masks.tolist(), scores.tolist(), strict=True)}
    for mask, score in both.items():
        there = torch.tensor(mask)
        if 0 < int(there.sum()) < 50:
            difference = score - both[tuple((~there).tolist())]
            torch.testing.assert_close(float(phi[there].sum() - phi[~there].sum()), difference)


# ---------------------------------------------------------------- what LIME and KernelSHAP share

BOTH: dict[str, Any] = {"lime": LIME, "kernel_shap": KernelSHAP}


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("how", ["auto", 4, "grid", "pixels"])
@pytest.mark.parametrize("shape", [*SHAPES.values(), (3, 8, 8)], ids=[*SHAPES, "colour"])
def test_maps_are_constant_on_segments(name: str, shape: tuple[int, ...], how: Any) -> None:
    x = rand(6, *shape).float()
    model = standfast.Model(small_net(shape), (0.0, 1.0), device="cpu")
    maps = BOTH[name](samples=40, segments=how)(model, x)
    assert maps.shape == x.shape
    assert maps.dtype == x.dtype
    cut = None if how == "pixels" else segment(x, how)
    for i, one in enumerate(maps):
        flat = one if len(shape) == 1 else one[0]
        assert torch.equal(flat.expand_as(one), one)
        different = len(flat.unique())
        if cut is None:
            assert different > 0.9 * flat.numel()
        else:
            by_segment(flat, cut.labels[i])
            assert different == int(cut.count[i])


@pytest.mark.parametrize("name", BOTH)
def test_a_baseline_for_each_channel(name: str) -> None:
    x = rand(2, 3, 8, 8).float()
    x[:, 1] = 0.7
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    module[2].weight.data.copy_(torch.tensor([[0.0, 5.0, 0.0], [0.0, 0.0, 0.0]]))
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    black, fitting = (
        BOTH[name](samples=40, segments="grid", baseline=b) for b in (0.0, (0.2, 0.7, 0.4))
    )
    assert float(black(model, x, 0).abs().min()) > 0.001
    # the channel that the model depends on is not masked
    assert float(fitting(model, x, 0).abs().max()) < 1e-6
    with pytest.raises(ArgumentError, match="baseline: expected one number, or 3"):
        BOTH[name](samples=40, baseline=(0.0, 1.0))(model, x, 0)


@pytest.mark.parametrize("name", BOTH)
def test_options_out_of_range(name: str) -> None:
    assert_refused(
        BOTH[name],
        samples=[1, 20.0],
        segments=["pixel", 2, torch.zeros(8, 8)],
        baseline=[float("nan")],
    )
    assert_refused(BOTH[name], output=["odds"], seed=[1.5])


@pytest.mark.parametrize("name", BOTH)
def test_segments_that_do_not_fit_the_inputs(name: str) -> None:
    x = rand(2, 1, 8, 8).float()
    model = standfast.Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu")
    each = (torch.arange(128) % 64 // 8).reshape(2, 8, 8)
    for how, match in (
        ("windows", "cuts images, got 'windows'"),
        (each, r"labels of shape \(8, 8\), the same for all inputs, got \(2, 8, 8\)"),
        (each[:, :7], r"labels of shape \(8, 8\)"),
    ):
        with pytest.raises(ArgumentError, match=match):
            BOTH[name](segments=how)(model, x)
    single = standfast.Model(nn.Linear(1, 2), (0.0, 1.0), device="cpu")
    with pytest.raises(ArgumentError, match="at least 2 pixels"):
        BOTH[name](segments="pixels")(single, torch.rand(3, 1))
