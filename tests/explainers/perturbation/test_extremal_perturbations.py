"""Extremal perturbations: the parts equal their formulas, and the result is right on models with a known answer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from games import rand
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast.errors import ArgumentError
from standfast.explainers import ExtremalPerturbations
from standfast.explainers.perturbation.extremal_perturbations import _make_blur, _make_fade
from standfast.explainers.perturbation.smooth_masks import SmoothMask, blur_images, find_area_target


def slow_mask(operator: SmoothMask, cells: Tensor, sigma: float) -> Tensor:
    """`smax over v of k(u - v) m(v)` for one mask, differentiable, by loops over pixels and cells; zeros around it."""
    side, margin = operator.side, operator.margin
    size = [(n + 2 * g) * s for n, g, s in zip(operator.cells, margin, side, strict=True)]
    rows = []
    for y in range(size[0]):
        row = []
        for x in range(size[1]):
            terms = []
            far = [0 if n == 1 else g + 12 for n, g in zip(operator.cells, margin, strict=True)]
            for i in range(-far[0], operator.cells[0] + far[0]):
                for j in range(-far[1], operator.cells[1] + far[1]):
                    # from the pixel to the centre of the cell; the kernel is truncated by cells: a cell counts only if
                    # it is within reach of some pixel of the own cell
                    own = (y // side[0] - margin[0], x // side[1] - margin[1])
                    near = min(
                        math.hypot(
                            (own[0] - i) * side[0] + p - (side[0] - 1) / 2,
                            (own[1] - j) * side[1] + q - (side[1] - 1) / 2,
                        )
                        for p in range(side[0])
                        for q in range(side[1])
                    )
                    if near > 1.5 * sigma:
                        continue
                    centre = (
                        (i + margin[0]) * side[0] + (side[0] - 1) / 2,
                        (j + margin[1]) * side[1] + (side[1] - 1) / 2,
                    )
                    z = math.hypot(y - centre[0], x - centre[1]) / sigma
                    inside = 0 <= i < operator.cells[0] and 0 <= j < operator.cells[1]
                    m = cells[i, j] if inside else torch.zeros((), dtype=cells.dtype)
                    terms.append(math.exp(-2 * max(0.0, z - 0.5) ** 2) * m)
            f = torch.stack(terms)
            row.append((f * torch.softmax(20 * f, 0)).sum())
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("spatial", "sigma"),
    [((5, 6), 1.3), ((1, 12), 2.0), ((1, 70), 3.0), ((70, 1), 1.5), ((4, 4), 0.4)],
)
def test_the_operator_and_its_gradient_equal_the_formula(
    spatial: tuple[int, int], sigma: float
) -> None:
    operator = SmoothMask(spatial, sigma)
    assert operator.side == tuple(3 if size == 70 else 1 for size in spatial)
    cells = rand(2, *operator.cells).requires_grad_(True)
    expected = torch.stack([slow_mask(operator, one, sigma) for one in cells])
    with torch.no_grad():
        found = operator(cells)
    torch.testing.assert_close(found, expected.detach())
    direction = rand(*found.shape, seed=1) - 0.5
    (gradient,) = torch.autograd.grad((expected * direction).sum(), cells)
    with torch.no_grad():
        torch.testing.assert_close(operator.propagate_gradient(direction), gradient)
    top, left = operator.margin[0] * operator.side[0], operator.margin[1] * operator.side[1]
    assert torch.equal(
        operator.crop_to_image(found), found[:, top : top + spatial[0], left : left + spatial[1]]
    )


def test_the_gradient_of_the_area_loss_is_that_of_the_sorted_mask() -> None:
    masks = rand(3, 50).requires_grad_(True)
    ones = torch.tensor([1, 10, 50])
    reference = torch.stack(
        [torch.cat([torch.zeros(50 - n), torch.ones(n)]) for n in ones.tolist()]
    ).double()
    loss = (masks.sort(1).values - reference).pow(2).sum()
    target = find_area_target(masks.detach(), ones)
    torch.testing.assert_close(torch.autograd.grad(loss, masks)[0], 2 * (masks.detach() - target))
    torch.testing.assert_close((masks.detach() - target).pow(2).sum(), loss.detach())
    assert torch.equal(target.sum(1).long(), ones)
    assert torch.allclose(
        find_area_target(torch.full((2, 8), 0.3), torch.tensor([2, 8])),
        torch.tensor([[0.25], [1.0]]),
    )


def test_blur_is_the_normalised_gaussian_and_the_mask_sets_its_width() -> None:
    x = rand(2, 3, 7, 9)

    def slow(sigma: float) -> Tensor:
        out = torch.zeros_like(x)
        for y in range(7):
            for z in range(9):
                there = torch.arange(7)[:, None].double() - y, torch.arange(9).double() - z
                weight = torch.exp(-(there[0] ** 2 + there[1] ** 2) / (2 * sigma**2))
                out[:, :, y, z] = (x * weight).sum((2, 3)) / weight.sum()
        return out

    for sigma in (0.7, 2.0):
        torch.testing.assert_close(blur_images(x, sigma), slow(sigma), rtol=1e-4, atol=1e-5)
    owners = torch.tensor([1, 0, 0])
    show = _make_blur(x, owners, 2.0)
    # at a level the blur of that level, halfway between two levels their mean
    for level in range(8):
        seen = show(torch.full((3, 7, 9), level / 7, dtype=torch.float64))
        expected = blur_images(x, 2.0 * (1 - level / 7))[owners]
        torch.testing.assert_close(seen, expected)
    between = show(torch.full((3, 7, 9), 2.5 / 7, dtype=torch.float64))
    mean = (blur_images(x, 2.0 * 5 / 7) + blur_images(x, 2.0 * 4 / 7))[owners] / 2
    torch.testing.assert_close(between, mean)
    mask = rand(3, 7, 9, seed=4)
    torch.testing.assert_close(
        _make_fade(x, owners, 0.2)(mask), x[owners] * mask[:, None] + 0.2 * (1 - mask[:, None])
    )
    leaf = (0.98 * mask + 0.01).requires_grad_(True)
    assert torch.autograd.gradcheck(show, leaf, eps=1e-7, atol=1e-5)


class PatchModel(nn.Module):
    """A model whose logit depends on a square of an image or a window of a series, and is high if it has stripes."""

    def __init__(self, shape: tuple[int, ...], place: tuple[slice, ...]) -> None:
        super().__init__()
        weight = torch.zeros(shape)
        weight[(slice(None), *place)] = 1.0
        weight[..., 1::2] *= -1.0
        self.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        score = (x * self.weight).flatten(1).sum(1)
        return torch.stack([score, torch.zeros_like(score)], 1)


def stripes(*shape: int) -> Tensor:
    x = torch.zeros(shape)
    x[..., ::2] = 1.0
    return x


@pytest.mark.parametrize(("kind", "perturbation"), [("image", "blur"), ("series", "fade")])
def test_a_mask_finds_the_patch_that_the_model_depends_on(kind: str, perturbation: Any) -> None:
    shape, place = (
        ((1, 24, 24), (slice(4, 12), slice(12, 20)))
        if kind == "image"
        else ((2, 60), (slice(30, 42),))
    )
    model = standfast.Model(PatchModel(shape, place), (0.0, 1.0), device="cpu")
    area = 64 / 576 if kind == "image" else 12 / 60
    explainer = ExtremalPerturbations(
        areas=(area, 2 * area), perturbation=perturbation, baseline=0.5, smoothness=0.05
    )
    x = stripes(1, *shape)
    with model.session():
        masks, _ = explainer.find_masks(model, x, torch.tensor([0]))
    inside = masks[0, 0][place]
    # the mask of a square is a blob with soft edges
    assert float(inside.sum() / masks[0, 0].sum()) > 0.65
    assert float(inside.mean()) > 0.75
    maps = explainer(model, x, 0)
    torch.testing.assert_close(maps, masks.mean(1, keepdim=True).expand_as(x))
    ranked = maps[0, 0].flatten().topk(inside.numel()).indices
    assert (
        float(
            torch.isin(ranked, torch.arange(maps[0, 0].numel()).reshape(shape[1:])[place])
            .float()
            .mean()
        )
        > 0.75
    )


def test_masks_have_their_areas_and_keep_the_score(
    digits: standfast.data.Dataset, lenet: standfast.Model
) -> None:
    x = digits.inputs[:4]
    with lenet.session():
        masks, logits = ExtremalPerturbations().find_masks(lenet, x, None)
        classes = logits.argmax(1)
        found = masks.mean((2, 3))
        for area, share in zip((0.05, 0.1, 0.2), found.unbind(1), strict=True):
            assert float((share - area).abs().max()) < 0.04  # blobs have soft edges
        assert float(((masks < 0.1) | (masks > 0.9)).float().mean()) > 0.75
        seen = lenet.forward(
            _make_blur(x, torch.arange(12) // 3, 0.09 * 28)(masks.flatten(0, 1).contiguous())
        )
        assert torch.equal(seen.argmax(1), classes.repeat_interleave(3))
        whole = lenet.forward(_make_blur(x, torch.arange(4), 0.09 * 28)(torch.zeros(4, 28, 28)))
        own, blind = (
            t.gather(1, c[:, None])[:, 0]
            for t, c in ((seen, classes.repeat_interleave(3)), (whole, classes))
        )
        assert float((own.reshape(4, 3) - blind[:, None]).amin()) > 2


def test_a_step_is_one_pass_with_a_row_for_each_area(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    rows: list[int] = []
    handle = lenet.module.register_forward_hook(lambda m, a, out: rows.append(len(out)))
    explainer = ExtremalPerturbations(steps=3)
    assert explainer.rows_per_input == 3
    with lenet.session():
        explainer.attribute(lenet, digits.inputs[:16], None)
    handle.remove()
    assert rows == [16, 48, 48, 48]


def test_options_out_of_range() -> None:
    assert_refused(
        ExtremalPerturbations,
        areas=[(), (0.1, 1.5), 0.1],
        steps=[0],
        perturbation=["noise"],
        blur=[0],
    )
    assert_refused(
        ExtremalPerturbations, smoothness=[-0.1], learning_rate=[0.0], area_weight=[float("inf")]
    )
    assert_refused(ExtremalPerturbations, momentum=[1.0], baseline=["black"], output=["odds"])


def test_inputs_that_do_not_fit() -> None:
    flat = standfast.Model(small_net((12,)), (0.0, 1.0), device="cpu")
    with pytest.raises(
        ArgumentError, match="perturbation: expected 'fade' for flat features, got 'blur'"
    ):
        ExtremalPerturbations(perturbation="blur")(flat, torch.rand(2, 12))
    volumes = standfast.Model(
        nn.Sequential(nn.Flatten(), nn.Linear(27, 2)), (0.0, 1.0), device="cpu"
    )
    with pytest.raises(ArgumentError, match="inputs: expected images"):
        ExtremalPerturbations()(volumes, torch.rand(2, 1, 3, 3, 3))


@pytest.mark.parametrize("perturbation", ["fade", "blur"])
def test_the_optimisation_is_that_of_torchs_sgd(perturbation: str) -> None:
    """Autograd on the formula's loss, with six steps of stochastic gradient descent with momentum and dampening."""
    torch.manual_seed(0)
    module = (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 7 * 9, 3))
        .double()
        .eval()
    )
    x, (pixels, ones), sigma = rand(1, 3, 9, 11), (99, round(0.2 * 99)), 0.09 * 9
    model = standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=64)
    explainer = standfast.explainers.ExtremalPerturbations(
        areas=(0.2,), steps=6, perturbation=perturbation
    )
    operator = SmoothMask((9, 11), sigma)
    row = torch.tensor([0])
    show = _make_fade(x, row, 0.0) if perturbation == "fade" else _make_blur(x, row, sigma)
    cells = torch.ones(1, *operator.cells, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([cells], lr=0.1 * pixels / 1024, momentum=0.9, dampening=0.9)
    with model.session():
        for step in range(6):
            with torch.enable_grad():
                mask = operator(cells)
                target = find_area_target(mask.detach().flatten(1), torch.tensor([ones]))
                area = ((mask.flatten(1) - target) ** 2).sum() / pixels
                loss = (
                    50 * 1.0035 ** (800 * step / 6) * area
                    - module(show(operator.crop_to_image(mask)))[0, 1]
                )
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()
            cells.data.clamp_(0, 1)
        expected = operator.crop_to_image(operator(cells.detach()))
        found = explainer.find_masks(model, x, torch.tensor([1]))[0][:, 0]
    assert float((found - 1).abs().max()) > 0.01
    torch.testing.assert_close(found, expected)
