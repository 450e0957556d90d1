"""Attention is seen in each of its forms, computed with the same result, and the module is left alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from standfast.explainers.attention.attention_calls import AttentionWatch, compute_attention_weights


def draw(*shape: int) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64
    )


def attend_slowly(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, added: Tensor, scale: float
) -> tuple[Any, Any]:
    """Weights and results of one head, number by number; a query without keys gets nothing."""
    weights, out = (
        torch.zeros(len(q), len(k), dtype=q.dtype),
        torch.zeros(len(q), v.shape[1], dtype=q.dtype),
    )
    for i in range(len(q)):
        powers = [
            math.exp(float(q[i] @ k[j]) * scale + float(added[i, j])) if allowed[i, j] else 0.0
            for j in range(len(k))
        ]
        for j in range(len(k)):
            weights[i, j] = powers[j] / sum(powers) if sum(powers) else 0.0
            out[i] += weights[i, j] * v[j]
    return weights, out


MASK = torch.tensor(
    [[True, False, True, True, False], [False] * 5, [True] * 5, [False, True, False, False, True]]
)
FUSED: dict[str, dict[str, Any]] = {
    "plain": {},
    "scale": {"scale": 0.3},
    "mask": {"attn_mask": MASK},
    "added": {"attn_mask": draw(4, 5)},
    "causal": {"is_causal": True},
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_attention_is_computed_by_its_formula(name: str) -> None:
    options, (q, k, v) = FUSED[name], (draw(2, 3, 4, 6), draw(2, 3, 5, 6), draw(2, 3, 5, 7))
    with AttentionWatch(2) as watch:
        found = F.scaled_dot_product_attention(q, k, v, **options)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(q, k, v, **options))
    mask = options.get("attn_mask", torch.ones(4, 5, dtype=torch.bool))
    allowed = mask if mask.dtype == torch.bool else torch.ones(4, 5, dtype=torch.bool)
    allowed = allowed.tril() if name == "causal" else allowed
    added = mask if name == "added" else torch.zeros(4, 5)
    (weights,) = watch.weights
    for n in range(2):
        for h in range(3):
            own = attend_slowly(
                q[n, h], k[n, h], v[n, h], allowed, added, options.get("scale", 6**-0.5)
            )
            torch.testing.assert_close(weights[n, h], own[0])
            torch.testing.assert_close(found[n, h], own[1])


def test_queries_that_share_keys() -> None:
    q, k, v = draw(2, 4, 5, 6), draw(2, 2, 5, 6), draw(2, 2, 5, 6)
    with AttentionWatch(2) as watch:
        found = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
    assert watch.weights[0].shape == (2, 4, 5, 5)


def test_weights_have_second_derivatives_also_without_any_key() -> None:
    q, k = (each.requires_grad_(True) for each in (draw(4, 3), draw(5, 3)))
    assert torch.autograd.gradgradcheck(lambda q, k: compute_attention_weights(q, k, MASK), (q, k))
    assert torch.autograd.gradcheck(lambda q, k: compute_attention_weights(q, k, MASK), (q, k))


@pytest.mark.parametrize("wants_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_torchs_own_layer(wants_weights: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(6, 3, batch_first=batch_first, dtype=torch.float64).eval()
    x = draw(2, 4, 6)
    absent = torch.tensor([[False, False, True, False], [False] * 4])
    given = x if batch_first else x.transpose(0, 1)
    options = {"key_padding_mask": absent, "average_attn_weights": False}
    expected, weights = layer(given, given, given, need_weights=True, **options)
    with AttentionWatch(2) as watch:
        found, returned = layer(given, given, given, need_weights=wants_weights, **options)
    torch.testing.assert_close(found, expected)
    assert (returned is not None) == wants_weights
    (seen,) = watch.weights
    torch.testing.assert_close(seen, weights)
    (gradient,) = torch.autograd.grad(found.sum(), seen)  # they are what the result is made of
    values = F.linear(x, layer.in_proj_weight[12:], layer.in_proj_bias[12:]).reshape(2, 4, 3, 2)
    slow = torch.einsum("njhd,hd->nhj", values, layer.out_proj.weight.sum(0).reshape(3, 2))
    torch.testing.assert_close(gradient, slow[:, :, None].expand(2, 3, 4, 4))


def test_torchs_encoder_takes_no_fast_path() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, dtype=torch.float64)
    encoder, x = nn.TransformerEncoder(layer, 2).eval(), draw(2, 4, 6)
    with torch.no_grad():
        expected = encoder(x)
        with AttentionWatch(2) as watch:
            found = encoder(x)
    torch.testing.assert_close(found, expected)
    assert [own.shape for own in watch.weights] == [(2, 2, 4, 4)] * 2


WRITTEN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "operator": lambda scores, v: scores.softmax(-1) @ v,
    "function": lambda scores, v: torch.matmul(
        F.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype), v
    ),
    "module": lambda scores, v: torch.matmul(nn.Dropout(0.5).eval()(nn.Softmax(dim=-1)(scores)), v),
    "heads joined": lambda scores, v: torch.bmm(
        torch.softmax(scores, 3).view(6, 4, 4), v.reshape(6, 4, 5)
    ).view(2, 3, 4, 5),
    "einsum": lambda scores, v: torch.einsum("nhij,nhjd->nhid", scores.softmax(dim=-1), v),
    "einsum, values first": lambda scores, v: torch.einsum(
        "n h j d, n h i j -> n h i d", v, scores.softmax(dim=-1)
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_attention_that_is_written_out(name: str) -> None:
    scores, v = draw(2, 3, 4, 4), draw(2, 3, 4, 5)
    expected = scores.softmax(-1)
    with AttentionWatch(2) as watch:
        out = WRITTEN[name](scores, v)
    torch.testing.assert_close(out, expected @ v, rtol=1e-6, atol=1e-6)
    (weights,) = watch.weights
    torch.testing.assert_close(weights, expected, rtol=1e-6, atol=1e-6)
    (gradient,) = torch.autograd.grad(out.sum(), weights)
    torch.testing.assert_close(gradient, v.sum(-1)[:, :, None].expand(2, 3, 4, 4))


def test_a_softmax_that_weights_no_values_is_not_attention() -> None:
    scores, v = draw(2, 3, 4, 4), draw(2, 3, 4, 4)
    with AttentionWatch(2) as watch:
        torch.stack([scores.softmax(-1), v]).sum()
        scores.softmax(-2) @ v  # over queries
        v @ scores.softmax(-1)
        scores.softmax(-1).transpose(2, 3) @ v
        torch.einsum("nhij,nhjd->njd", scores.softmax(-1), v)
        scores[0, 0].softmax(-1) @ v[0, 0]  # of classes
    assert watch.weights == []


def test_nothing_is_left_after_an_error() -> None:
    layer, x = nn.MultiheadAttention(6, 3, batch_first=True), torch.rand(2, 4, 6)
    before = dict(F.__dict__)
    watch = AttentionWatch(2)
    with pytest.raises(ZeroDivisionError), watch:
        layer(x, x, x)
        raise ZeroDivisionError
    # raised by torch, within the function that is opened
    with (
        pytest.raises(AssertionError),
        watch,
    ):
        layer(x, x[..., :5], x)
    seen = len(watch.weights)
    layer(x, x, x)
    assert len(watch.weights) == seen == 1
    assert {
        name: value for name, value in F.__dict__.items() if before.get(name) is not value
    } == {}


def test_the_grid_is_that_of_the_last_convolution_before_attention() -> None:
    x = torch.rand(2, 3, 8, 8)
    with AttentionWatch(2) as watch:
        a = F.conv2d(
            F.conv2d(x, torch.ones(4, 3, 2, 2), stride=2), torch.ones(4, 4, 2, 1), stride=(2, 1)
        )
        tokens = a.flatten(2).transpose(1, 2)
        F.scaled_dot_product_attention(tokens, tokens, tokens)
        F.conv2d(x, torch.ones(4, 3, 8, 8))
    assert watch.grid == (2, 4)
