"""Vision transformers in the layout of timm, small, fused or written out; and slow explanations of attention."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Of tokens `(N, T, width)`. Written out, its weights pass through `attn_drop`, where a hook can read them."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.proj, self.attn_drop = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            nn.Dropout(0.3),
        )

    def forward(self, x: Tensor) -> Tensor:
        count, tokens, width = x.shape
        q, k, v = (
            self.qkv(x)
            .reshape(count, tokens, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        if self.fused:
            mixed = F.scaled_dot_product_attention(
                q, k, v, dropout_p=self.attn_drop.p if self.training else 0.0
            )
        else:
            weights = (q * (width // self.heads) ** -0.5) @ k.transpose(-2, -1)
            mixed = self.attn_drop(weights.softmax(dim=-1)) @ v
        return self.proj(mixed.transpose(1, 2).reshape(count, tokens, width))


class Block(nn.Module):
    """Of tokens `(N, T, width)`, or of a grid `(N, h, w, width)` with attention within windows, as in Swin."""

    def __init__(self, width: int, heads: int, fused: bool, window: int = 0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.window = Attention(width, heads, fused), window
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        own = self.norm1(x)
        if self.window:
            count, high, wide, width = own.shape
            size = self.window
            parts = own.reshape(count, high // size, size, wide // size, size, width).transpose(
                2, 3
            )
            own = self.attn(parts.reshape(-1, size * size, width))
            own = (
                own.reshape(count, high // size, wide // size, size, size, width)
                .transpose(2, 3)
                .reshape(x.shape)
            )
        else:
            own = self.attn(own)
        x = x + own
        return x + self.mlp(self.norm2(x))


class SmallViT(nn.Module):
    """Images `(N, 3, 12, 8)` to logits `(N, 4)`, in patches of 4 x 4: a grid of 3 x 2 tokens.

    Args:
        decides: "class" (the first token), "distilled" (the first two), or "mean" (the patches, without class token).
        registers: special tokens behind the class token.
        fused: with torch's function for attention.
    """

    def __init__(
        self, decides: str = "class", registers: int = 0, fused: bool = True, depth: int = 3
    ) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.decides = decides
        self.deciding = {"class": 1, "distilled": 2, "mean": 0}[decides]
        self.patch_embed = nn.Conv2d(3, 12, 4, stride=4)
        self.special = nn.Parameter(torch.randn(1, self.deciding + registers, 12))
        self.pos_embed = nn.Parameter(torch.randn(1, 6, 12))
        self.blocks = nn.Sequential(*(Block(12, 3, fused) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 4)
        for block in self.blocks:
            nn.init.normal_(block.attn.qkv.weight, std=0.7)  # attention that is far from uniform

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos_embed
        tokens = self.norm(self.blocks(torch.cat([self.special.expand(len(x), -1, -1), tokens], 1)))
        if self.decides == "mean":
            return self.head(tokens[:, self.special.shape[1] :].mean(1))
        return self.head(tokens[:, : self.deciding]).mean(1)


class SmallSwin(nn.Module):
    """Images `(N, 3, 16, 16)` to logits `(N, 4)`: channels-last grids of 4 x 4, windows of 2 x 2, a mean at the end."""

    def __init__(self, fused: bool = True) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.patch_embed = nn.Conv2d(3, 8, 4, stride=4)
        self.blocks = nn.Sequential(Block(8, 2, fused, window=2), Block(8, 2, fused, window=2))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        grid = self.blocks(self.patch_embed(x).permute(0, 2, 3, 1))
        return self.head(self.norm(grid).mean((1, 2)))


def roll_out_slowly(weights: list[np.ndarray]) -> np.ndarray:
    """Abnar and Zuidema 2020: the product of (A + I) / 2 over layers, the last on the left."""
    product = np.eye(weights[0].shape[-1])
    for own in weights:
        product = (own.mean(0) + np.eye(own.shape[-1])) / 2 @ product
    return product


def relate_slowly(weights: list[np.ndarray], gradients: list[np.ndarray]) -> np.ndarray:
    """Chefer et al. 2021 (ICCV), Equations 5 and 6, without the identity of the start."""
    relevance = np.eye(weights[0].shape[-1])
    for own, gradient in zip(weights, gradients, strict=True):
        relevance = relevance + np.maximum(own * gradient, 0).mean(0) @ relevance
    return relevance - np.eye(len(relevance))
