"""AttnLRP equals the paper's rules, unit by unit, in every way that attention is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from relevance_by_hand import ByHand, Layout, SmallViT, divide_linear, divide_product, draw_images
from torch import Tensor, nn

import standfast
from standfast import explainers as hx
from standfast.errors import ArgumentError, ModelError
from standfast.explainers.propagation.attention_rules import AttentionRule

GAMMAS = {"epsilon": {}, "gamma": {"gamma": 0.05, "convolution_gamma": 0.25}}


def classify(
    module: nn.Module, bounds: tuple[float, float] = (0.0, 1.0), **options: Any
) -> standfast.Model:
    return standfast.Model(module.double().eval(), bounds, device="cpu", **options)


def close(a: Tensor, b: Tensor, rtol: float = 1e-7) -> None:
    torch.testing.assert_close(a, b, rtol=rtol, atol=rtol * float(b.detach().abs().max()))


# ---------------------------------------------------------------- the rules


@pytest.mark.parametrize("rules", GAMMAS)
def test_maps_equal_the_rules_unit_by_unit(rules: str) -> None:
    net, x = SmallViT().double(), draw_images(2)
    maps = hx.AttnLRP(**GAMMAS[rules])(classify(net), x, 1)
    for one, found in zip(x, maps, strict=True):
        close(found, ByHand(net, one, 1, **GAMMAS[rules]).map)


@pytest.mark.parametrize("pooled", [False, True])
def test_maps_do_not_depend_on_how_attention_is_written(pooled: bool) -> None:
    """Written out, fused, and torch's own layer with and without its weights."""
    x = draw_images(3)
    first, *others = (
        hx.AttnLRP()(classify(SmallViT(layout, pooled)), x, 2) for layout in get_args(Layout)
    )
    for other in others:
        close(other, first, 1e-12)


class Gated(nn.Module):
    """A gate, RMS normalisation written out and as a function, and normalised vectors; no biases, no softmax."""

    def __init__(self, by_function: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.gate, self.up, self.head = (nn.Linear(5, n, bias=False) for n in (4, 4, 3))
        self.down, self.scale, self.by_function = (
            nn.Linear(4, 5, bias=False),
            nn.Parameter(torch.rand(5)),
            by_function,
        )

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.down(F.silu(self.gate(x)) * self.up(x))
        if self.by_function:
            hidden = F.rms_norm(hidden, (5,), self.scale, 1e-6)
            hidden = F.normalize(hidden, dim=-1)
        else:
            hidden = self.scale * (
                hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)
            )
            hidden = hidden / hidden.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        out: Tensor = self.head(hidden)
        return out


@pytest.mark.parametrize("attached", [False, True])
def test_gates_and_normalisation_by_the_rules(attached: bool) -> None:
    """Half of the relevance goes through each factor of a gate, and none into divisors. Nothing is lost here."""
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    maps = []
    for by_function in (False, True):
        model = classify(Gated(by_function), (-9.0, 9.0))
        with model.session():
            leaf = x.clone().requires_grad_(attached)
            found, logits = hx.AttnLRP().attribute(
                model, leaf, torch.ones(3).long(), create_graph=attached
            )
        close(found.sum(1), logits[:, 1])
        maps.append(found.detach())
    close(maps[0], maps[1])
    net = model.module.requires_grad_(False)
    for one, own in zip(x, maps[0], strict=True):
        factors = net.gate(one), net.up(one)
        product = F.silu(factors[0]) * factors[1]
        hidden = net.down(product)
        start = torch.zeros(3, dtype=torch.float64)
        normed = F.normalize(F.rms_norm(hidden, (5,), net.scale, 1e-6), dim=-1)
        start[1] = net.head(normed)[1]
        no = torch.zeros(9, dtype=torch.float64)
        relevance = divide_linear(
            product, net.down.weight, no[:5], divide_linear(normed, net.head.weight, no[:3], start)
        )
        expected = sum(
            divide_linear(one, layer.weight, no[:4], relevance / 2) for layer in (net.gate, net.up)
        )
        close(own, expected.detach())


#: the derivative of `f(z) / z` at zero, half of the second derivative of `f`
BENDS = {F.gelu: (2 * math.pi) ** -0.5, F.silu: 0.25, torch.tanh: 0.0, F.mish: 0.32}
ACTIVATIONS = [F.gelu, F.silu, torch.tanh, F.elu, F.mish, F.leaky_relu, F.hardswish, F.relu]


@pytest.mark.parametrize("function", ACTIVATIONS)
def test_activations_pass_relevance_unchanged(function: Callable[[Tensor], Tensor]) -> None:
    """Also near zero, where `f(z) / z` would be a quotient of rounding errors, and its derivative more so."""
    z = torch.tensor(
        [-3.0, -1e-3, -1e-9, 0.0, 1e-12, 1e-5, 0.3, 2.0], dtype=torch.float64, requires_grad=True
    )
    rule = AttentionRule(True, 0.0, 0.0)
    with rule:
        out = function(z)
    with rule.follow_rules():
        (found,) = torch.autograd.grad(out.sum(), z, create_graph=True)
    close(found * z, out)
    (true,) = torch.autograd.grad(out.sum(), z, retain_graph=True)
    close(true, torch.autograd.grad(function(z).sum(), z)[0])
    if function in BENDS:
        (bend,) = torch.autograd.grad(found.sum(), z)
        torch.testing.assert_close(
            bend[2:6].detach(), torch.full((4,), BENDS[function]).double(), rtol=1e-4, atol=1e-5
        )


def test_products_of_every_kind() -> None:
    """Relevance of a factor: half if both depend on the input, all of it if the other is a constant."""
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randn(n, generator=generator, dtype=torch.float64, requires_grad=True)
        for n in ((3, 4), (4, 2))
    )
    weights = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    of_a, of_b = divide_product(a.detach(), b.detach(), weights * (a @ b).detach())

    def relevance(product: Callable[[], Tensor], by: Tensor) -> Tensor:
        rule = AttentionRule(False, 0.0, 0.0)
        with rule:
            out = product()
        with rule.follow_rules():
            return torch.autograd.grad((out * weights).sum(), by)[0] * by

    shift = torch.ones(3, 2, dtype=torch.float64)
    products: list[Callable[[], Tensor]] = [
        lambda: a @ b,
        lambda: torch.einsum("ik,kj->ij", a, b),
        lambda: torch.bmm(a[None], b[None])[0],
        lambda: torch.baddbmm(shift[None], a[None], b[None])[0],
        lambda: torch.addmm(shift, a, b),
        lambda: (a[:, :, None] * b).sum(1),
        lambda: a[:, :, None].expand(3, 4, 2).clone().mul_(b).sum(1),
    ]
    for product in products:
        close(relevance(product, a), of_a)
        close(relevance(product, b), of_b)
    close(relevance(lambda: a @ b.detach(), a), 2 * of_a)
    close(relevance(lambda: torch.einsum("ik,kj->ij", a, b.detach()), a), 2 * of_a)
    for bad in (
        lambda: torch.addmm(a[:, :2], a, b),
        lambda: torch.einsum("ik,kj,ij->ij", a, b, a[:, :2]),
    ):
        with pytest.raises(ModelError, match="attn_lrp: expected .* got '(addmm|einsum)'"):
            relevance(bad, a)


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize("rules", GAMMAS)
def test_the_derivative_of_a_map(rules: str) -> None:
    model, x = classify(SmallViT()), draw_images(3)
    explainer, t = hx.AttnLRP(**GAMMAS[rules]), torch.tensor([0, 1, 2])
    generator = torch.Generator().manual_seed(1)
    direction, weights = torch.randn(2, *x.shape, generator=generator, dtype=torch.float64)
    with model.session():
        leaf = x.clone().requires_grad_(True)
        maps, logits = explainer.attribute(model, leaf, t, create_graph=True)
        (slope,) = torch.autograd.grad((maps * weights).sum(), leaf, retain_graph=True)
        (of_logits,) = torch.autograd.grad(logits.sum(), leaf)
        there, back = (explainer.attribute(model, x + h * direction, t)[0] for h in (1e-6, -1e-6))
        close(maps.detach(), explainer.attribute(model, x, t)[0], 1e-12)
        plain = x.clone().requires_grad_(True)
        close(of_logits, torch.autograd.grad(model.forward(plain).sum(), plain)[0], 1e-10)
    numeric = ((there - back) * weights).flatten(1).sum(1) / 2e-6
    torch.testing.assert_close((slope * direction).flatten(1).sum(1), numeric, rtol=1e-5, atol=1e-9)


def test_functions_without_a_rule_are_named_where_relevance_meets_them() -> None:
    class Net(nn.Module):
        def __init__(self, decides: bool) -> None:
            super().__init__()
            self.head, self.decides = nn.Linear(4, 2), decides

        def forward(self, x: Tensor) -> Tensor:
            waves = torch.sin(x)
            return self.head(x + waves if self.decides else x)  # type: ignore[no-any-return]

    x = torch.rand(2, 4, dtype=torch.float64)
    with pytest.raises(
        ModelError, match="attn_lrp: expected a module made of functions with a rule, got 'sin'"
    ):
        hx.AttnLRP()(classify(Net(True)), x)
    net = Net(False)
    close(hx.AttnLRP()(classify(net), x, 1), net.head.weight[1].detach() * x)
    with pytest.raises(ModelError, match="got 'lstm'"):
        hx.AttnLRP()(classify(Recurrent()), x[:, :, None])
    for option in ("gamma", "convolution_gamma"):
        with pytest.raises(
            ArgumentError, match=f"^{option}: expected a finite number of at least 0, got -1"
        ):
            hx.AttnLRP(**{option: -1})


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(1, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.cells(x)[0][:, -1])
        return out


# ---------------------------------------------------------------- another package
