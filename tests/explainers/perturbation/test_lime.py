"""LIME equals scikit-learn's ridge and Captum's Lime on the same masks, and recovers linear models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from games import rand
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast.explainers import LIME
from standfast.segments import segment

CPU = torch.device("cpu")


def drawn(explainer: LIME, features: int) -> Tensor:
    """The samples with duplicates, drawn as LIME draws them."""
    generator = torch.Generator().manual_seed(explainer.seed)
    masks = torch.randint(
        2, (explainer.samples, features), generator=generator, dtype=torch.uint8
    ).bool()
    masks[0] = True
    return masks


def sklearn_ridge(
    explainer: LIME, module: nn.Module, x: Tensor, labels: Tensor, target: int
) -> Tensor:
    """The map of one input, as the authors' package fits it."""
    from sklearn.linear_model import Ridge
    from sklearn.metrics import pairwise_distances

    masks = drawn(explainer, int(labels.max()) + 1)
    copies = []
    for mask in masks:
        copy = x.clone()
        for k, there in enumerate(mask.tolist()):
            if not there:
                copy[..., labels == k] = explainer.baseline or 0.0
        copies.append(copy)
    with torch.no_grad():
        logits = module(torch.stack(copies))
    scores = (logits.softmax(1) if explainer.output == "probability" else logits)[:, target].numpy()
    design = masks.double().numpy()
    distances = pairwise_distances(design, np.ones((1, design.shape[1])), metric="cosine")[:, 0]
    weights = np.sqrt(np.exp(-(distances**2) / explainer.kernel_width**2))
    fit = Ridge(alpha=explainer.ridge, fit_intercept=True, solver="cholesky").fit(
        design, scores, weights
    )
    return torch.as_tensor(fit.coef_)[labels].expand_as(x)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "samples": 60,
            "kernel_width": 0.5,
            "ridge": 0.01,
            "output": "logit",
            "baseline": 0.4,
            "seed": 5,
        },
        {"samples": 12, "ridge": 3.0},
        {"samples": 100, "segments": 3, "kernel_width": 0.1},
    ],
)
@pytest.mark.parametrize("shape", [*SHAPES.values(), (3, 10, 10)], ids=[*SHAPES, "colour"])
def test_equals_the_weighted_ridge_of_scikit_learn(
    shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    module, x = small_net(shape).double().eval(), rand(4, *shape)
    explainer = LIME(**options)
    ours = explainer(standfast.Model(module, (0.0, 1.0), device="cpu"), x, 2)
    labels = segment(x, explainer.segments).labels
    for row, mine, cut in zip(x, ours, labels, strict=True):
        expected = sklearn_ridge(explainer, module, row, cut, 2)
        assert float(expected.abs().max()) > 1e-5
        torch.testing.assert_close(mine, expected, rtol=1e-6, atol=1e-12)


def test_segments_that_differ_between_inputs(digits: standfast.data.Dataset) -> None:
    x = digits.inputs[:12].double()
    cut = segment(x)
    assert len(cut.count.unique()) > 2
    module = standfast.zoo.load("lenet5-mnist").double().eval()
    ours = LIME(samples=50)(standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=128), x, 3)
    for row, mine, labels in zip(x, ours, cut.labels, strict=True):
        expected = sklearn_ridge(LIME(samples=50), module, row, labels, 3)
        torch.testing.assert_close(mine, expected, rtol=1e-6, atol=1e-12)


def test_more_pixels_than_samples() -> None:
    """The smaller form of the normal equations gives the ridge solution, for ridge 0 the smallest one."""
    module, x = small_net((1, 8, 8)).double().eval(), rand(2, 1, 8, 8)
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    labels = torch.arange(64).reshape(8, 8)
    few = LIME(samples=20, segments="pixels")
    torch.testing.assert_close(
        few(model, x, 1)[0], sklearn_ridge(few, module, x[0], labels, 1), rtol=1e-6, atol=1e-12
    )
    tiny = LIME(samples=20, segments="pixels", ridge=1e-9, kernel_width=1.0)(model, x, 1)
    none = LIME(samples=20, segments="pixels", ridge=0.0, kernel_width=1.0)(model, x, 1)
    torch.testing.assert_close(none, tiny, rtol=1e-5, atol=1e-9)


def test_samples_keep_each_segment_with_probability_one_half() -> None:
    found = LIME(samples=2000).draw_coalitions(20, CPU)
    assert bool(found.masks[0].all())
    assert len(found.masks) == len(found.masks.unique(dim=0)) <= 2000
    assert (
        abs(float(found.masks.double().mean()) - 0.5) < 5 * 0.5 / found.masks.numel() ** 0.5 + 5e-4
    )
    few = LIME(samples=500).draw_coalitions(3, CPU)
    assert len(few.masks) == 8
    # intercept
    torch.testing.assert_close(
        found.fit.sum(1), torch.zeros(20, dtype=torch.float64), rtol=0, atol=1e-12
    )


def test_options_out_of_range() -> None:
    assert_refused(LIME, kernel_width=[0, float("inf")], ridge=[-1.0, "1"])
