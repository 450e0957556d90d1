"""Transformer encoder layers, which the networks for images, series and text share.

Vaswani et al., Attention is all you need, NeurIPS 2017, with the normalisation before each part (Xiong et al., On layer
normalization in the transformer architecture, ICML 2020).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Softmax attention of tokens (N, time, width) to each other, in several heads, by matrix products.

    It does not use `torch.nn.MultiheadAttention`. That runs other kernels when gradients are disabled, so that
    predictions and explanations would differ in their last bits. It does not use the fused kernels of
    `scaled_dot_product_attention` either, since they have no second derivative, which an attack on a gradient needs.

    >>> import torch
    >>> SelfAttention(8, heads=2)(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Tokens (N, time, width) to tokens. Nothing attends to tokens that are not `present`, bool (N, time)."""
        count, time, width = tokens.shape
        parts = self.queries_keys_values(tokens).reshape(
            count, time, 3, self.heads, width // self.heads
        )
        # (N, heads, time, width of a head) each
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(2, 3) / math.sqrt(width // self.heads)
        # a finite number, so that a text without any token has finite logits
        if present is not None:
            scores = scores.masked_fill(~present[:, None, None], -1e4)
        weights = scores.softmax(dim=3)
        mixed: Tensor = self.out((weights @ values).transpose(1, 2).reshape(count, time, width))
        return mixed


class EncoderLayer(nn.Module):
    """`t + attention(norm(t))`, then `t + feed-forward(norm(t))`.

    Args:
        width: of the tokens.
        heads: of the attention; a divisor of the width.
        feedforward: the inner width of the two linear layers.
        dropout: after the attention and in the feed-forward part, in [0, 1).
        activation: what makes the activation layer.

    >>> import torch
    >>> EncoderLayer(8, heads=2, feedforward=16)(torch.zeros(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        feedforward: int,
        dropout: float = 0.0,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.drop = nn.Dropout(dropout)
        self.feedforward = nn.Sequential(
            OrderedDict(
                fc1=nn.Linear(width, feedforward),
                relu=activation(),  # its name, whatever it is
                drop1=nn.Dropout(dropout),
                fc2=nn.Linear(feedforward, width),
                drop2=nn.Dropout(dropout),
            )
        )

    def forward(self, tokens: Tensor, present: Tensor | None = None) -> Tensor:
        """Tokens (N, time, width) to tokens. Nothing attends to tokens that are not `present`, bool (N, time)."""
        tokens = tokens + self.drop(self.attention(self.norm1(tokens), present))
        out: Tensor = tokens + self.feedforward(self.norm2(tokens))
        return out
