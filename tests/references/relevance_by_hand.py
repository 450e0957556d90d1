"""A small vision transformer, and the relevance of its values by the formulas of AttnLRP, unit by unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Layout = Literal["written", "fused", "torch", "torch_weights"]
WIDTH, HEADS, PATCH, GRID = 6, 2, 2, (2, 3)
SHAPE = (2, GRID[0] * PATCH, GRID[1] * PATCH)


class Attention(nn.Module):
    """Self-attention by the same weights, called in four ways."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self.whole = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (N, T, WIDTH) to tokens."""
        if self.layout.startswith("torch"):
            out: Tensor = self.whole(x, x, x, need_weights=self.layout == "torch_weights")[0]
            return out
        count, tokens, _ = x.shape
        joined = F.linear(x, self.whole.in_proj_weight, self.whole.in_proj_bias)
        q, k, v = joined.reshape(count, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if self.layout == "fused":
            out = F.scaled_dot_product_attention(q, k, v)
        else:
            weights = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
            out = weights.softmax(dim=-1) @ v
        projected: Tensor = self.whole.out_proj(out.transpose(1, 2).reshape(count, tokens, WIDTH))
        return projected


class Block(nn.Module):
    """A transformer's block, with a normalisation before each part."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(layout)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 9), nn.Linear(9, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens to tokens."""
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return out


class SmallViT(nn.Module):
    """Patches, a class token, two blocks, a linear head: `(N, *SHAPE)` to `(N, 3)`; all weights are random."""

    def __init__(self, layout: Layout = "fused", pooled: bool = False, seed: int = 0) -> None:
        super().__init__()
        self.pooled = pooled
        self.patches = nn.Conv2d(SHAPE[0], WIDTH, PATCH, stride=PATCH)
        self.special = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.zeros(1, 1 + GRID[0] * GRID[1], WIDTH))
        self.blocks = nn.ModuleList([Block(layout), Block(layout)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.6 * torch.randn(parameter.shape, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.special.expand(len(x), -1, -1), tokens], dim=1)
        tokens += self.positions
        for block in self.blocks:
            tokens = block(tokens)
        tokens = self.norm(tokens)
        out: Tensor = self.head(tokens.mean(1) if self.pooled else tokens[:, 0])
        return out


def draw_images(count: int) -> Tensor:
    """Images `(count, *SHAPE)` in [0, 1], float64."""
    return torch.rand(
        count, *SHAPE, generator=torch.Generator().manual_seed(7), dtype=torch.float64
    )


# ---------------------------------------------------------------- rules


def divide_linear(a: Tensor, w: Tensor, b: Tensor, relevance: Tensor, gamma: float = 0.0) -> Tensor:
    """Of one row of inputs `a`, from the relevance of its outputs; the epsilon or the gamma rule, without epsilon."""
    found = torch.zeros_like(a)
    for row, shift, share in zip(w, b.tolist(), relevance.tolist(), strict=True):
        z = float(row @ a) + shift
        favoured = row * a > 0 if z > 0 else row * a < 0
        parts = row * a * (1 + gamma * favoured.double())
        extra = gamma * (max(shift, 0.0) if z > 0 else min(shift, 0.0))
        found += parts * share / (float(parts.sum()) + shift + extra)
    return found


def divide_product(a: Tensor, b: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Of the factors of `a @ b`: half to each."""
    of_a, of_b = torch.zeros_like(a), torch.zeros_like(b)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            parts = a[i] * b[:, j]
            share = parts * relevance[i, j] / parts.sum() / 2
            of_a[i] += share
            of_b[:, j] += share
    return of_a, of_b


def divide_softmax(scores: Tensor, relevance: Tensor) -> Tensor:
    """Of the inputs of a softmax over rows, by AttnLRP's Taylor rule."""
    found = torch.zeros_like(scores)
    for row, (values, shares) in enumerate(zip(scores, relevance, strict=True)):
        s = values.softmax(0)
        for i in range(len(values)):
            found[row, i] = values[i] * (shares[i] - s[i] * shares.sum())
    return found


def divide_norm(x: Tensor, norm: nn.LayerNorm, relevance: Tensor) -> Tensor:
    """Of one row of inputs of a layer normalisation, whose divisor is a constant."""
    centred = x - x.mean()
    without_shift = centred / (centred.square().mean() + norm.eps).sqrt() * norm.weight
    relevance = relevance * without_shift / (without_shift + norm.bias)
    found = torch.zeros_like(x)
    for i in range(len(x)):
        for k in range(len(x)):
            found[k] += (float(i == k) - 1 / len(x)) * x[k] * relevance[i] / centred[i]
    return found


def divide_sum(a: Tensor, b: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """Of the terms of `a + b`."""
    return a * relevance / (a + b), b * relevance / (a + b)


# ---------------------------------------------------------------- the network


class ByHand:
    """The relevance of the values of a `SmallViT` with a class token, for one image and one class.

    Args:
        net: in float64.
        x: `SHAPE`.
        target: a class.
        gamma, convolution_gamma: as for AttnLRP.
    """

    def __init__(
        self,
        net: SmallViT,
        x: Tensor,
        target: int,
        gamma: float = 0.0,
        convolution_gamma: float = 0.0,
    ) -> None:
        self.gamma = gamma
        pieces = [
            x[:, r : r + PATCH, c : c + PATCH].flatten()
            for r in range(0, SHAPE[1], PATCH)
            for c in range(0, SHAPE[2], PATCH)
        ]
        kernel = net.patches.weight.flatten(1)
        embedded = torch.stack([kernel @ piece + net.patches.bias for piece in pieces])
        before = torch.cat([net.special[0], embedded])
        tokens = before + net.positions[0]
        steps: list[Callable[[Tensor], Tensor]] = []
        for block in net.blocks:
            tokens = self._forward(block, tokens, steps)
        last = net.norm(tokens[0])
        logit = net.head(last)[target]
        with torch.no_grad():
            start = torch.zeros(3, dtype=x.dtype)
            start[target] = logit
            relevance = torch.zeros_like(tokens)
            relevance[0] = divide_norm(tokens[0], net.norm, self._linear(last, net.head, start))
            for step in reversed(steps):
                relevance = step(relevance)
            relevance = (relevance * before / (before + net.positions[0]))[1:]
            rows = [
                divide_linear(piece, kernel, net.patches.bias, own, convolution_gamma)
                for piece, own in zip(pieces, relevance, strict=True)
            ]
        #: relevance of the pixels, `SHAPE`
        self.map = torch.cat(
            [
                torch.cat(
                    [row.reshape(SHAPE[0], PATCH, PATCH) for row in rows[r : r + GRID[1]]], dim=2
                )
                for r in range(0, len(rows), GRID[1])
            ],
            dim=1,
        )

    def _linear(self, a: Tensor, layer: nn.Linear, relevance: Tensor) -> Tensor:
        return divide_linear(a, layer.weight, layer.bias, relevance, self.gamma)

    def _forward(self, block: Block, x: Tensor, steps: list[Callable[[Tensor], Tensor]]) -> Tensor:
        """The block's result; appends how its relevance goes back to that of `x`."""
        whole, size = block.attention.whole, WIDTH // HEADS
        normed = block.norm1(x)
        joined = nn.Linear(WIDTH, 3 * WIDTH)
        joined.weight, joined.bias = whole.in_proj_weight, whole.in_proj_bias
        q, k, v = (
            part.reshape(len(x), HEADS, size).transpose(0, 1)
            for part in joined(normed).chunk(3, dim=1)
        )
        scores = q @ k.transpose(1, 2) / size**0.5
        attention = scores.softmax(2)
        mixed = (attention @ v).transpose(0, 1).reshape(len(x), WIDTH)
        attended = whole.out_proj(mixed)
        middle = x + attended
        normed2 = block.norm2(middle)
        hidden = F.gelu(block.fc1(normed2))
        added = block.fc2(hidden)

        def rows(
            divide: Callable[..., Tensor], values: Tensor, layer: nn.Module, relevance: Tensor
        ) -> Tensor:
            return torch.stack(
                [divide(own, layer, part) for own, part in zip(values, relevance, strict=True)]
            )

        def go_back(relevance: Tensor) -> Tensor:
            direct, part = divide_sum(middle, added, relevance)
            part = rows(self._linear, hidden, block.fc2, part)
            part = rows(
                divide_norm, middle, block.norm2, rows(self._linear, normed2, block.fc1, part)
            )
            direct, part = divide_sum(x, attended, direct + part)
            part = (
                rows(self._linear, mixed, whole.out_proj, part)
                .reshape(len(x), HEADS, size)
                .transpose(0, 1)
            )
            of_joined = []
            for head in range(HEADS):
                of_attention, of_v = divide_product(attention[head], v[head], part[head])
                of_scores = divide_softmax(scores[head], of_attention)
                of_q, of_k = divide_product(q[head], k[head].T.contiguous(), of_scores)
                of_joined.append(torch.stack([of_q, of_k.T, of_v]))
            joined_relevance = torch.stack(of_joined).permute(2, 1, 0, 3).reshape(len(x), 3 * WIDTH)
            return direct + rows(
                divide_norm, x, block.norm1, rows(self._linear, normed, joined, joined_relevance)
            )

        steps.append(go_back)
        return middle + added
