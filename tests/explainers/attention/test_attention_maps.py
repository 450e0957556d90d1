"""Attention rollout and attention relevance equal slow re-implementations of their papers' formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_transformers import SmallSwin, SmallViT, relate_slowly, roll_out_slowly
from torch import Tensor, nn

import standfast
from standfast import explainers as hx
from standfast.errors import ArgumentError, ModelError
from standfast.explainers.attention.tokens import find_token_grid
from standfast.gating import find_gateable, gate, group_count, masked_weights, weight_layers

KINDS = {
    "class": ("class", 0),
    "registers": ("class", 3),
    "distilled": ("distilled", 0),
    "mean": ("mean", 2),
}


def classify(module: nn.Module, **options: Any) -> standfast.Model:
    return standfast.Model(module, (0.0, 1.0), device="cpu", **options)


def images(count: int = 3, size: tuple[int, int] = (12, 8)) -> Tensor:
    return torch.rand(count, 3, *size, generator=torch.Generator().manual_seed(4))


def read_weights(
    module: nn.Module, x: Tensor, target: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Attention weights of one input in all layers, and gradients of the logit by them, from hooks on dropout layers.

    The module has its attention written out. This is how the authors of the methods read them.
    """
    found: list[Tensor] = []
    drops = [part.attn_drop for part in module.modules() if hasattr(part, "attn_drop")]
    handles = [
        drop.register_forward_hook(lambda own, args, out: found.append(out)) for drop in drops
    ]
    logits = module.eval()(x[None].requires_grad_(True))
    for handle in handles:
        handle.remove()
    gradients = torch.autograd.grad(logits[0, target], found)
    return [own[0].detach().double().numpy() for own in found], [
        own[0].double().numpy() for own in gradients
    ]


def place_slowly(
    matrix: np.ndarray, deciding: list[int], special: int, grid: tuple[int, ...]
) -> Tensor:
    return torch.from_numpy(matrix[deciding].mean(0)[special:].reshape(grid)).float()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


# ---------------------------------------------------------------- equal to the formulas


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_maps_of_a_vision_transformer(kind: str, fused: bool) -> None:
    decides, registers = KINDS[kind]
    slow, x = SmallViT(decides, registers, fused=False), images()
    model = classify(SmallViT(decides, registers, fused=fused))
    special = slow.special.shape[1]
    deciding = {"class": [0], "distilled": [0, 1], "mean": list(range(special, special + 6))}[
        decides
    ]
    options = {"interpolation": "nearest"}
    rollout, relevance = (
        hx.AttentionRollout(**options)(model, x, 1),
        hx.AttentionRelevance(**options)(model, x, 1),
    )
    assert rollout.shape == relevance.shape == x.shape
    for i in range(len(x)):
        weights, gradients = read_weights(slow, x[i], 1)
        for found, matrix in (
            (rollout, roll_out_slowly(weights)),
            (relevance, relate_slowly(weights, gradients)),
        ):
            expected = place_slowly(matrix, deciding, special, (3, 2))
            close(
                found[i], expected.repeat_interleave(4, 0).repeat_interleave(4, 1).expand(3, 12, 8)
            )
    assert torch.equal(hx.AttentionRollout(**options)(model, x, 2), rollout)  # of no class
    assert not torch.equal(hx.AttentionRelevance(**options)(model, x, 2), relevance)


def attend_as_torch(layer: nn.MultiheadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
    """Weights `(N, heads, T, T)` and results of torch's layer for `(N, T, width)`, from its parameters."""
    count, tokens, width = x.shape
    parts = F.linear(x, layer.in_proj_weight, layer.in_proj_bias).reshape(
        count, tokens, 3, layer.num_heads, -1
    )
    q, k, v = parts.permute(2, 0, 3, 1, 4)
    weights = torch.softmax(q @ k.transpose(2, 3) / (width // layer.num_heads) ** 0.5, 3)
    return weights, layer.out_proj((weights @ v).transpose(1, 2).reshape(count, tokens, width))


class EncoderOfTables(nn.Module):
    """A token for each feature, and a class token behind them; the second axis of the encoder is the batch."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.batch_first = batch_first
        self.scale, self.shift = nn.Parameter(torch.randn(5, 8)), nn.Parameter(torch.randn(5, 8))
        self.token = nn.Parameter(torch.randn(8))
        layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=batch_first)
        self.encoder, self.head = (
            nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
            nn.Linear(8, 3),
        )
        for part in self.encoder.layers:
            nn.init.normal_(part.self_attn.in_proj_weight, std=0.7)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.cat(
            [x[..., None] * self.scale + self.shift, self.token.expand(len(x), 1, -1)], 1
        )
        if self.batch_first:
            return self.head(self.encoder(tokens)[:, -1])
        return self.head(self.encoder(tokens.transpose(0, 1))[-1])

    def read(self, x: Tensor, target: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        tokens = torch.cat(
            [x[None, :, None] * self.scale + self.shift, self.token.expand(1, 1, -1)], 1
        )
        found = []
        for layer in self.encoder.layers:
            weights, mixed = attend_as_torch(layer.self_attn, tokens)
            found.append(weights)
            tokens = layer.norm1(tokens + mixed)
            tokens = layer.norm2(tokens + layer.linear2(F.relu(layer.linear1(tokens))))
        gradients = torch.autograd.grad(self.head(tokens[0, -1])[target], found)
        return [own[0].detach().numpy() for own in found], [own[0].numpy() for own in gradients]


@pytest.mark.parametrize("batch_first", [True, False])
def test_maps_of_torchs_encoder_and_a_class_token_at_the_end(batch_first: bool) -> None:
    module, x = (
        EncoderOfTables(batch_first).eval(),
        torch.rand(3, 5, generator=torch.Generator().manual_seed(0)),
    )
    rollout, relevance = (
        hx.get(name)(classify(module), x, 2)
        for name in ("attention_rollout", "attention_relevance")
    )
    for i in range(3):
        weights, gradients = module.read(x[i], 2)
        close(rollout[i], torch.from_numpy(roll_out_slowly(weights)[-1, :5]).float())
        close(relevance[i], torch.from_numpy(relate_slowly(weights, gradients)[-1, :5]).float())


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["attention_rollout", "attention_relevance"])
def test_second_derivatives(name: str, fused: bool) -> None:
    """The derivative of the map by the input equals its central difference, in double precision."""
    model, x = classify(SmallViT(fused=fused).double()), images(2).double()
    explainer, t = hx.get(name), torch.tensor([1, 2])
    direction, mixed = (
        torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
        for seed in (8, 9)
    )
    with model.session():
        leaf = x.clone().requires_grad_(True)
        maps, logits = explainer.attribute(model, leaf, t, create_graph=True)
        (gradient,) = torch.autograd.grad((maps * mixed).sum(), leaf, retain_graph=True)
        assert torch.autograd.grad(logits.sum(), leaf)[0].abs().max() > 0
        there, back = (explainer.attribute(model, x + h * direction, t)[0] for h in (1e-6, -1e-6))
        torch.testing.assert_close(explainer.attribute(model, x, t)[0], maps.detach())
    numeric = ((there - back) * mixed).flatten(1).sum(1) / 2e-6
    torch.testing.assert_close(
        (gradient * direction).flatten(1).sum(1), numeric, rtol=1e-5, atol=1e-9
    )


@pytest.mark.parametrize("name", ["attention_rollout", "attention_relevance"])
def test_gates_give_what_masked_weights_give(name: str) -> None:
    """As parameter SenC needs it: every row of the batch has other masked weights."""
    model, x, explainer = classify(SmallViT(depth=2)), images(3), hx.get(name)
    layers = {
        kept: layer
        for kept, layer in weight_layers(model.module).items()
        if kept in ("patch_embed", "blocks.0.mlp.2")
    }
    with model.session():
        assert find_gateable(model, x, layers) == set(layers)
        for layer in layers.values():
            masks = (
                torch.rand(3, group_count(layer), generator=torch.Generator().manual_seed(5)) < 0.7
            )
            with gate(layer, masks):
                found, _ = explainer.attribute(model, x, torch.tensor([1, 2, 3]))
            for i in range(3):
                with masked_weights(layer) as use:
                    use(masks[i])
                    expected, _ = explainer.attribute(model, x[i : i + 1], torch.tensor([i + 1]))
                close(found[i], expected[0])


def test_logits_that_do_not_depend_on_attention() -> None:
    module = SmallViT()
    nn.init.zeros_(module.head.weight)
    assert torch.equal(
        hx.AttentionRelevance()(classify(module), images(), 1), torch.zeros(3, 3, 12, 8)
    )
    assert (hx.AttentionRollout()(classify(module), images(), 1) > 0).all()


# ---------------------------------------------------------------- errors


class Pooled(nn.Module):
    """Attention of fewer tokens in the second layer; or, with one query, a pooling by attention."""

    def __init__(self, queries: int) -> None:
        super().__init__()
        self.inner, self.queries = SmallViT(depth=1), queries

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.inner.blocks(self.inner.patch_embed(x).flatten(2).transpose(1, 2))
        own = tokens[:, : self.queries]
        return F.scaled_dot_product_attention(own, tokens, tokens).mean(1)


@pytest.mark.parametrize("name", ["attention_rollout", "attention_relevance"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: nn.Sequential(nn.Conv2d(3, 4, 4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)),
            "needs self-attention",
        ),
        (
            SmallSwin,
            "got attention within 4 windows of each input in layer 1 of 2 of this SmallSwin",
        ),
        (
            lambda: Pooled(3),
            r"got attention of 3 tokens to 6 \(the first layer has 6\) in layer 2 of 2",
        ),
    ],
)
def test_errors_say_what_attention_is_there(
    name: str, make: Callable[[], nn.Module], message: str
) -> None:
    module, x = make(), images(2, (16, 16) if make is SmallSwin else (12, 8))
    module(x)
    with pytest.raises(ModelError, match=message):
        hx.get(name)(classify(module), x, 0)


@pytest.mark.parametrize(
    "name", ["attention_rollout", "attention_relevance", "gradcam", "guided_gradcam"]
)
def test_a_grid_of_the_users(name: str) -> None:
    model, x = classify(SmallViT()), images()
    assert torch.equal(hx.get(name, grid=[3, 2])(model, x, 1), hx.get(name)(model, x, 1))
    assert not torch.equal(hx.get(name, grid=(2, 3))(model, x, 1), hx.get(name)(model, x, 1))
    for grid in ((4, 2), (6,)):
        with pytest.raises(
            ArgumentError, match="grid: expected 2 numbers with a product of at most 7"
        ):
            hx.get(name, grid=grid)(model, x, 1)
    with pytest.raises(
        ArgumentError, match=r"grid: .* product of at least 6, since patches are \(3, 2\), got \(2"
    ):
        hx.get(name, grid=(2, 2))(model, x, 1)
    for grid in ((0, 3), 3, (), (1.5, 2)):
        with pytest.raises(ArgumentError, match="grid: expected None, or whole numbers"):
            hx.get(name, grid=grid)


def test_grids_of_tokens() -> None:
    # a class token and four registers
    assert find_token_grid(201, (3, 224, 224), None, None, "") == (
        14,
        14,
    )
    # the convolution says so: nine are special
    assert find_token_grid(25, (3, 16, 16), None, (4, 4), "") == (
        4,
        4,
    )
    # after patches were merged
    assert find_token_grid(49, (3, 224, 224), None, (56, 56), "") == (
        7,
        7,
    )
    assert find_token_grid(6, (12, 6), None, None, "") == (6,)
    assert find_token_grid(26, (4, 100), None, None, "") == (25,)
    assert find_token_grid(9, (8,), None, None, "") == (8,)
    with pytest.raises(ModelError, match="got 90 tokens; its option `grid`"):
        find_token_grid(90, (3, 32, 32), None, None, "gradcam")


@pytest.mark.parametrize("name", ["saliency", "gradcam"])
def test_white_box_searches_of_other_explainers_run_on_fused_attention(name: str) -> None:
    """The search follows the same gradients as on attention that is written out."""
    metric = standfast.metrics.WorstCase(
        standfast.LinfBall(0.05),
        event="changed_explanation",
        similarity="pearson",
        search="gradient",
        budget=40,
    )
    fused, written = (
        metric(classify(SmallViT(fused=fused)), name, images()) for fused in (True, False)
    )
    assert fused.followed_gradients.all()
    torch.testing.assert_close(fused.value, written.value, rtol=1e-3, atol=1e-3)
