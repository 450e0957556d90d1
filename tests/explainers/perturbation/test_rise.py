"""RISE equals the paper's formulas, and is right on models with a known expected map."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from games import rand
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from conftest import SHAPES, small_net
from standfast.errors import ArgumentError
from standfast.explainers import RISE
from standfast.explainers.perturbation import rise

KINDS = {**SHAPES, "colour": (3, 9, 11), "large": (1, 40, 30)}


def drawn(explainer: RISE, shape: tuple[int, ...]) -> tuple[Tensor, Tensor, list[int]]:
    """Grids, offsets and sides of cells, drawn as RISE draws them."""
    spatial = shape[-1:] if len(shape) < 3 else shape[1:]
    usual = {1: spatial[0], 2: 20, 3: 7}[len(shape)]
    grid = [min(explainer.cells or usual, n) for n in spatial]
    generator = torch.Generator().manual_seed(explainer.seed)
    grids = (
        torch.rand(explainer.samples, *grid, generator=generator, dtype=torch.float64)
        < explainer.keep
    )
    sides = [-(-n // h) for n, h in zip(spatial, grid, strict=True)]
    offsets = torch.rand(explainer.samples, len(grid), generator=generator, dtype=torch.float64)
    return grids.double(), (offsets * torch.tensor(sides)).long(), sides


def slow_masks(explainer: RISE, shape: tuple[int, ...]) -> Tensor:
    """Section 3.2: enlarge each grid to one cell more than needed, and crop it to the input's size."""
    grids, offsets, sides = drawn(explainer, shape)
    if len(shape) == 1:
        return grids
    mode = "linear" if len(shape) == 2 else "bilinear"
    masks = []
    for grid, offset in zip(grids, offsets.tolist(), strict=True):
        size = [(h + 1) * side for h, side in zip(grid.shape, sides, strict=True)]
        whole = F.interpolate(grid[None, None], size=size, mode=mode, align_corners=False)[0, 0]
        place = tuple(slice(start, start + n) for start, n in zip(offset, shape[1:], strict=True))
        assert whole[place].shape == shape[1:]
        masks.append(whole[place])
    return torch.stack(masks)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_papers_formula(kind: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kept:
        monkeypatch.setattr(rise, "_KEPT", 0)
    shape = KINDS[kind]
    module, x = small_net(shape).double().eval(), rand(3, *shape)
    explainer = RISE(
        samples=70, keep=0.4, baseline=0.3, cells=None if len(shape) == 1 else 5, seed=2
    )
    masks = slow_masks(explainer, shape)
    torch.testing.assert_close(explainer.draw_masks(x)(10, 30), masks[10:30], rtol=0, atol=1e-12)
    assert float(masks.min()) >= -1e-12
    assert float(masks.max()) <= 1 + 1e-12
    expected = torch.zeros_like(x)
    for mask in masks:
        with torch.no_grad():
            score = module(x * mask + 0.3 * (1 - mask)).softmax(1)[:, 1]
        expected += score.reshape(3, *[1] * len(shape)) * mask / (0.4 * 70)
    found = explainer(standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=64), x, 1)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_masks_have_the_wanted_mean() -> None:
    x = torch.zeros(1, 1, 28, 28)
    for keep in (0.3, 0.5):
        masks = RISE(samples=4000, keep=keep).draw_masks(x)(0, 4000)
        assert masks.dtype == torch.float32
        spread = (keep * (1 - keep) / 4000) ** 0.5  # an upper bound: pixels between cells vary less
        assert float((masks.mean(0) - keep).abs().max()) < 5 * spread


def test_masks_of_zeros_and_ones_give_the_conditional_expectation() -> None:
    """Equation 3: for a linear score, S_i = w_i x_i + keep * (sum of the others), estimated by the mean."""
    weight = torch.tensor([[1.0, -2.0, 0.5, 0.0, 3.0, -1.0], [0.0] * 6]).double()
    module = nn.Linear(6, 2, bias=False).double()
    module.weight.data.copy_(weight)
    x = rand(2, 6) + 0.2
    model = standfast.Model(module, (0.0, 2.0), device="cpu", batch_size=4096)
    found = RISE(samples=20000, keep=0.4, output="logit")(model, x, 0)
    parts = weight[0] * x
    expected = parts + 0.4 * (parts.sum(1, keepdim=True) - parts)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.08)
    # all masks consist of zeros and ones
    masks = RISE(samples=20000, keep=0.4).draw_masks(x)(0, 20000)
    assert torch.equal(masks, masks.round())


def test_options_out_of_range() -> None:
    assert_refused(
        RISE,
        samples=[0],
        cells=[0, (7, 2.0)],
        keep=[1.0, "half"],
        baseline=["black"],
        output=["odds"],
    )
    assert_refused(RISE, seed=[1.5])


def test_cells_that_do_not_fit_the_inputs() -> None:
    flat = standfast.Model(small_net((12,)), (0.0, 1.0), device="cpu")
    with pytest.raises(
        ArgumentError,
        match="cells: expected None for flat features, each of which is a cell, got 3",
    ):
        RISE(cells=3)(flat, torch.rand(2, 12))
    images = standfast.Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu")
    with pytest.raises(ArgumentError, match="cells: expected one number, or 2"):
        RISE(cells=(3, 3, 3))(images, torch.rand(2, 1, 8, 8))
    # at most 8 cells fit
    assert RISE(cells=(3, 20)).draw_masks(torch.zeros(1, 1, 8, 8))(0, 9).shape == (
        9,
        8,
        8,
    )
