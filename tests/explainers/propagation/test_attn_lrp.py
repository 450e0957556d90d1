"""AttnLRP equals the paper's rules, unit by unit, in every way that attention is written; and lxt, where it imports."""

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
from standfast.explainers.attention.attention_calls import PlainAttention
from standfast.explainers.propagation.attention_rules import AttentionRule

GAMMAS = {"epsilon": {}, "gamma": {"gamma": 0.05, "convolution_gamma": 0.25}}


def classify(module: nn.Module, bounds: tuple[float, float] = (0.0, 1.0), **options: Any) -> standfast.Model:
    return standfast.Model(module.double().eval(), bounds, device="cpu", **options)


def close(a: Tensor, b: Tensor, rtol: float = 1e-7) -> None:
    torch.testing.assert_close(a, b, rtol=rtol, atol=rtol * float(b.detach().abs().max()))


# ---------------------------------------------------------------- the rules


@pytest.mark.parametrize("rules", GAMMAS)
def test_maps_equal_the_rules_unit_by_unit(rules: str) -> None:
    net, x = SmallViT().double(), draw_images(2)
    maps = hx.AttnLRP(**GAMMAS[rules])(classify(net), x, 1)
    for one, found in zip(x, maps, strict=True):
        close(found, ByHand(net, one, 1, positive=False, **GAMMAS[rules]).map)


@pytest.mark.parametrize("pooled", [False, True])
def test_maps_do_not_depend_on_how_attention_is_written(pooled: bool) -> None:
    """Written out, fused, and torch's own layer with and without its weights."""
    x = draw_images(3)
    first, *others = (hx.AttnLRP()(classify(SmallViT(layout, pooled)), x, 2) for layout in get_args(Layout))
    for other in others:
        close(other, first, 1e-12)


@pytest.mark.parametrize(("batch_first", "norm_first", "activation"), [(True, True, "gelu"), (False, False, "relu")])
def test_the_encoder_of_torch(batch_first: bool, norm_first: bool, activation: str) -> None:
    """Its fast path is not taken, although nothing in it requires gradients; it equals its parts run one by one."""

    class Encoder(nn.Module):
        def __init__(self, apart: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            layer = nn.TransformerEncoderLayer(
                8, 2, 12, 0.1, activation, batch_first=batch_first, norm_first=norm_first
            )
            self.apart, self.embed, self.head = apart, nn.Linear(3, 8), nn.Linear(8, 2)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def run(self, layer: nn.TransformerEncoderLayer, x: Tensor) -> Tensor:
            def attend(x: Tensor) -> Tensor:
                count, size = (x.shape[0], 4) if batch_first else (x.shape[1], 4)
                whole = layer.self_attn
                joined = F.linear(x if batch_first else x.transpose(0, 1), whole.in_proj_weight, whole.in_proj_bias)
                q, k, v = (part.reshape(count, -1, 2, size).transpose(1, 2) for part in joined.chunk(3, 2))
                mixed = (torch.softmax(q @ k.mT / 2, -1) @ v).transpose(1, 2).reshape(count, -1, 8)
                return whole.out_proj(mixed if batch_first else mixed.transpose(0, 1))  # type: ignore[no-any-return]

            def feed(x: Tensor) -> Tensor:
                return layer.linear2(getattr(F, activation)(layer.linear1(x)))  # type: ignore[no-any-return]

            if norm_first:
                x = x + attend(layer.norm1(x))
                return x + feed(layer.norm2(x))
            x = layer.norm1(x + attend(x))
            return layer.norm2(x + feed(x))  # type: ignore[no-any-return]

        def forward(self, x: Tensor) -> Tensor:
            x = self.embed(x if batch_first else x.transpose(0, 1))
            if self.apart:
                for layer in self.encoder.layers:
                    x = self.run(layer, x)
            else:
                x = self.encoder(x)
            return self.head(x.mean(1 if batch_first else 0))  # type: ignore[no-any-return]

    x = torch.rand(4, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    close(hx.AttnLRP()(classify(Encoder(False)), x, 1), hx.AttnLRP()(classify(Encoder(True)), x, 1), 1e-10)


class Gated(nn.Module):
    """A gate, RMS normalisation written out and as a function, and normalised vectors; no biases, no softmax."""

    def __init__(self, by_function: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.gate, self.up, self.head = (nn.Linear(5, n, bias=False) for n in (4, 4, 3))
        self.down, self.scale, self.by_function = nn.Linear(4, 5, bias=False), nn.Parameter(torch.rand(5)), by_function

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.down(F.silu(self.gate(x)) * self.up(x))
        if self.by_function:
            hidden = F.rms_norm(hidden, (5,), self.scale, 1e-6)
            hidden = F.normalize(hidden, dim=-1)
        else:
            hidden = self.scale * (hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6))
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
            found, logits = hx.AttnLRP().attribute(model, leaf, torch.ones(3).long(), create_graph=attached)
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
        expected = sum(divide_linear(one, layer.weight, no[:4], relevance / 2) for layer in (net.gate, net.up))
        close(own, expected.detach())


#: the derivative of `f(z) / z` at zero, half of the second derivative of `f`
BENDS = {F.gelu: (2 * math.pi) ** -0.5, F.silu: 0.25, torch.tanh: 0.0, F.mish: 0.32}
ACTIVATIONS = [F.gelu, F.silu, torch.tanh, F.elu, F.mish, F.leaky_relu, F.hardswish, F.relu]


@pytest.mark.parametrize("function", ACTIVATIONS)
def test_activations_pass_relevance_unchanged(function: Callable[[Tensor], Tensor]) -> None:
    """Also near zero, where `f(z) / z` would be a quotient of rounding errors, and its derivative more so."""
    z = torch.tensor([-3.0, -1e-3, -1e-9, 0.0, 1e-12, 1e-5, 0.3, 2.0], dtype=torch.float64, requires_grad=True)
    rule = AttentionRule("attn_lrp", True, 0.0, 0.0)
    with rule:
        out = function(z)
    with rule.follow_rules():
        (found,) = torch.autograd.grad(out.sum(), z, create_graph=True)
    close(found * z, out)
    (true,) = torch.autograd.grad(out.sum(), z, retain_graph=True)
    close(true, torch.autograd.grad(function(z).sum(), z)[0])
    if function in BENDS:
        (bend,) = torch.autograd.grad(found.sum(), z)
        torch.testing.assert_close(bend[2:6].detach(), torch.full((4,), BENDS[function]).double(), rtol=1e-4, atol=1e-5)


def test_products_of_every_kind() -> None:
    """Relevance of a factor: half if both depend on the input, all of it if the other is a constant."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, generator=generator, dtype=torch.float64, requires_grad=True) for n in ((3, 4), (4, 2)))
    weights = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    of_a, of_b = divide_product(a.detach(), b.detach(), weights * (a @ b).detach())

    def relevance(product: Callable[[], Tensor], by: Tensor) -> Tensor:
        rule = AttentionRule("attn_lrp", False, 0.0, 0.0)
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
    for bad in (lambda: torch.addmm(a[:, :2], a, b), lambda: torch.einsum("ik,kj,ij->ij", a, b, a[:, :2])):
        with pytest.raises(ModelError, match="attn_lrp: expected .* got '(addmm|einsum)'"):
            relevance(bad, a)


@pytest.mark.parametrize("masked", ["flags", "numbers", "causal", "shared"])
def test_fused_attention_with_masks(masked: str) -> None:
    """The same values and relevance as written out."""
    generator = torch.Generator().manual_seed(2)
    q, k, v = torch.randn(3, 2, 2, 4, 3, generator=generator, dtype=torch.float64).requires_grad_(True).unbind()
    mask = torch.rand(4, 4, generator=generator) > 0.4
    mask[:, 0] = True
    options: dict[str, Any] = {
        "flags": {"attn_mask": mask},
        "numbers": {"attn_mask": mask.double()},
        "causal": {"is_causal": True},
        "shared": {"enable_gqa": True, "scale": 0.3},
    }[masked]
    if masked == "shared":
        k, v = k[:, :1], v[:, :1]
    rule = AttentionRule("attn_lrp", False, 0.0, 0.0)
    with rule, PlainAttention():
        out = F.scaled_dot_product_attention(q, k, v, **options)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v, **options))
    weights = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    with rule.follow_rules():
        found = torch.autograd.grad((out * weights).sum(), (q, k, v))
    plain = torch.autograd.grad((F.scaled_dot_product_attention(q, k, v, **options) * weights).sum(), (q, k, v))
    for own, gradient, share in zip(found, plain, (0.25, 0.25, 0.5), strict=True):
        close(own, share * gradient)


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
    with pytest.raises(ModelError, match="attn_lrp: expected a module made of functions with a rule, got 'sin'"):
        hx.AttnLRP()(classify(Net(True)), x)
    net = Net(False)
    close(hx.AttnLRP()(classify(net), x, 1), net.head.weight[1].detach() * x)
    with pytest.raises(ModelError, match="got 'lstm'"):
        hx.AttnLRP()(classify(Recurrent()), x[:, :, None])
    for option in ("gamma", "convolution_gamma"):
        with pytest.raises(ArgumentError, match=f"^{option}: expected a finite number of at least 0, got -1"):
            hx.AttnLRP(**{option: -1})


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(1, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.cells(x)[0][:, -1])
        return out


# ---------------------------------------------------------------- another package


def test_maps_equal_lxt() -> None:
    """The authors' functions for each kind of layer, put together as a block."""
    lf = pytest.importorskip("lxt.explicit.functional", reason="needs lxt, which this project does not install")
    rules = pytest.importorskip("lxt.explicit.rules", reason="needs lxt, which this project does not install")
    net, x = SmallViT().double(), draw_images(2)
    for parameter in net.parameters():
        parameter.requires_grad_(False)

    def norm(layer: nn.LayerNorm, a: Tensor) -> Tensor:
        out: Tensor = lf._layer_norm_slower(a, layer.weight, layer.bias, layer.eps)
        return out

    def linear(layer: nn.Linear, a: Tensor) -> Tensor:
        out: Tensor = lf.linear_epsilon(a, layer.weight, layer.bias, 0.0)
        return out

    leaf = x.clone().requires_grad_(True)
    tokens = rules.epsilon_lrp(net.patches, 0.0, leaf).flatten(2).transpose(1, 2)
    tokens = torch.cat([net.special.expand(len(x), -1, -1), tokens], dim=1)
    tokens = lf.add2(tokens, net.positions.expand_as(tokens), epsilon=0.0)
    for block in net.blocks:
        whole = block.attention.whole
        joined = lf.linear_epsilon(norm(block.norm1, tokens), whole.in_proj_weight, whole.in_proj_bias, 0.0)
        q, k, v = joined.reshape(len(x), -1, 3, 2, 3).permute(2, 0, 3, 1, 4)
        scores = lf.mul2(lf.matmul(q, k.transpose(2, 3), epsilon=0.0), torch.tensor(3**-0.5).double())
        mixed = lf.matmul(lf.softmax(scores, -1), v, epsilon=0.0).transpose(1, 2).reshape(len(x), -1, 6)
        tokens = lf.add2(tokens, linear(whole.out_proj, mixed), epsilon=0.0)
        hidden = rules.identity(F.gelu, linear(block.fc1, norm(block.norm2, tokens)))
        tokens = lf.add2(tokens, linear(block.fc2, hidden), epsilon=0.0)
    logits = linear(net.head, norm(net.norm, tokens[:, 0]))
    (theirs,) = torch.autograd.grad(logits[:, 1], leaf, logits[:, 1].detach())
    close(hx.AttnLRP()(classify(net), x, 1), theirs, 1e-5)
