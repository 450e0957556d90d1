"""The transformer attribution of Chefer et al. (CVPR 2021) equals its equations, unit by unit."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from relevance_by_hand import PATCH, ByHand, Layout, SmallViT, divide_normalised_sum, divide_positive, draw_images
from torch import Tensor, nn

import standfast
from standfast import explainers as hx
from standfast.errors import ModelError
from standfast.explainers.propagation.positive_rules import PositiveRule

EXPLAINER = hx.TransformerAttribution(interpolation="nearest")


def classify(module: nn.Module) -> standfast.Model:
    return standfast.Model(module.double().eval(), (0.0, 1.0), device="cpu")


@pytest.mark.parametrize("layout", get_args(Layout))
def test_maps_equal_the_equations(layout: Layout) -> None:
    """Each image as if it were alone, although the batch has three; in all ways in which attention is written."""
    net, x = SmallViT(layout), draw_images(3)
    maps = EXPLAINER(classify(net), x, 1)
    for one, found in zip(x, maps, strict=True):
        patches = ByHand(net, one, 1, positive=True).roll_out()
        expected = patches.repeat_interleave(PATCH, 0).repeat_interleave(PATCH, 1).expand_as(found)
        assert float(expected.max()) > 0
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-12)


def test_it_differs_from_attention_relevance_by_the_relevance_alone() -> None:
    """With the weights themselves in the place of their relevance, it is the method of ICCV 2021."""

    class Weights(hx.TransformerAttribution):
        def make_mode(self, rows: int) -> None:  # type: ignore[override]
            return None

    model, x = classify(SmallViT()), draw_images(2)
    theirs = hx.AttentionRelevance(interpolation="nearest")(model, x, 1)
    assert torch.equal(Weights(interpolation="nearest")(model, x, 1), theirs)
    assert not torch.allclose(EXPLAINER(model, x, 1), theirs, rtol=1e-2)


@pytest.mark.parametrize("in_place", [False, True])
def test_sums_and_linear_layers(in_place: bool) -> None:
    """The rules for both, on values apart from any network; true gradients go through the same graph."""
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64).requires_grad_(True).unbind()
    weights = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    layer = nn.Linear(4, 5).double().requires_grad_(False)
    rule = PositiveRule("it", 3)
    with rule:
        total = a.clone().add_(b) if in_place else a + b
        out = layer(total)
    with rule.follow_rules():
        of_total, of_a, of_b = torch.autograd.grad((out * weights).sum(), (total, a, b), retain_graph=True)
    for row in range(3):
        expected = divide_positive(total[row].detach(), layer.weight, weights[row])
        torch.testing.assert_close(of_total[row], expected, rtol=1e-10, atol=0)
        shares = divide_normalised_sum(a[row].detach(), b[row].detach(), expected)
        for found, share in zip((of_a, of_b), shares, strict=True):
            torch.testing.assert_close(found[row], share, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close((of_a + of_b).sum(1), of_total.sum(1))
    (true,) = torch.autograd.grad((out * weights).sum(), a)
    torch.testing.assert_close(true, weights @ layer.weight)


def test_other_functions_of_one_value() -> None:
    """A mean by proportion; shifts, scales, activations and normalisation pass relevance on, in place too."""
    x = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_(True)
    rule = PositiveRule("it", 2)

    def relevance(out: Tensor, start: Tensor) -> Tensor:
        with rule.follow_rules():
            return torch.autograd.grad((out * start).sum(), x)[0]

    start = torch.rand(2, 4, dtype=torch.float64)
    with rule:
        out = x.mean(1)
    torch.testing.assert_close(relevance(out, start), x.detach() * (start / x.detach().sum(1))[:, None])
    start = torch.rand(2, 3, 4, dtype=torch.float64)
    with rule:
        out = nn.functional.layer_norm(torch.tanh(3 * x.clone().sub_(0.2)) / 7, (4,)).softmax(-1)
        out += 1.0
    torch.testing.assert_close(relevance(out, start), start)
    with rule:
        out = x[:, 0] * torch.ones(2, 3, 4, dtype=torch.float64).unbind(1)[0]
        wide = x[:, :1] * torch.ones(1, 3, 1, dtype=torch.float64)
    found = relevance(wide, start)
    torch.testing.assert_close(found[:, 0], start.sum(1))
    assert not found[:, 1:].any()


def test_the_derivative_of_a_map() -> None:
    model, x = classify(SmallViT()), draw_images(3)
    generator = torch.Generator().manual_seed(1)
    direction, weights = torch.randn(2, *x.shape, generator=generator, dtype=torch.float64)
    t = torch.tensor([0, 1, 2])
    with model.session():
        leaf = x.clone().requires_grad_(True)
        maps, _ = EXPLAINER.attribute(model, leaf, t, create_graph=True)
        (slope,) = torch.autograd.grad((maps * weights).sum(), leaf)
        there, back = (EXPLAINER.attribute(model, x + h * direction, t)[0] for h in (1e-7, -1e-7))
        torch.testing.assert_close(maps.detach(), EXPLAINER.attribute(model, x, t)[0], rtol=1e-10, atol=1e-14)
    numeric = ((there - back) * weights).flatten(1).sum(1) / 2e-7
    torch.testing.assert_close((slope * direction).flatten(1).sum(1), numeric, rtol=1e-4, atol=1e-8)


class Encoder(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.embed, self.head = kind, nn.Linear(2, 4), nn.Linear(4, 2)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=kind != "second")

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.transpose(1, 2))
        if self.kind == "second":
            return self.head(self.layer(tokens.transpose(0, 1))[0])  # type: ignore[no-any-return]
        tokens = self.layer(tokens)
        return self.head(torch.sin(tokens)[:, 0])  # type: ignore[no-any-return]


def test_errors_name_the_cause() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 2, 5)
    for kind, words in (
        ("second", r"expected sums of values with a row for each input as first axis, got shape \(5, 16, 4\) for 16"),
        ("sine", "expected a module made of functions with a rule, got 'sin', which has none"),
    ):
        with pytest.raises(ModelError, match=f"transformer_attribution: {words}"):
            EXPLAINER(standfast.Model(Encoder(kind), (0.0, 1.0), device="cpu"), x)
    with pytest.raises(ModelError, match="transformer_attribution needs self-attention"):
        EXPLAINER(standfast.Model(nn.Linear(5, 2), (0.0, 1.0), device="cpu"), x[:, 0])
