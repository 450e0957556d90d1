"""A transformer encoder for series: convolutions, then a transformer.

Vaswani et al., Attention is all you need, NeurIPS 2017, with the normalisation before each part (Xiong et al., On layer
normalization in the transformer architecture, ICML 2020). The sizes are those of Wei, Turbe and Mengaldo, "Revisiting
the robustness of post-hoc interpretability methods" (2024), App. C: convolutions of 128 and 64 channels with kernel 3
and dropout 0.2; three transformer layers with 4 heads, feed-forward dimension 256, "MLP dimension 64" and no dropout; a
dense layer of 64; ReLU. We take the MLP dimension to be the width of the tokens, since the last convolution has that
width. The paper does not say how a series becomes a vector; here tokens are averaged over time. A convolution of
stride s has a kernel of 4 s - 1 steps, so that it reads each step about four times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from standfast.errors import as_number, check
from standfast.zoo.networks.encoder import EncoderLayer
from standfast.zoo.networks.layers import make_dense_head, make_series_convolutions


class SeriesTransformer(nn.Module):
    """Convolutions, a transformer, a mean over time, two linear layers: (N, in_channels, steps) to (N, num_classes).

    For any number of steps. Memory and time of the attention grow with the square of the number of tokens, which is the
    number of steps divided by all `strides`. Every ReLU is a module of its own that runs once. DeepLIFT has no rule for
    softmax, products of activations and layer normalisation; it uses their gradient, so that its attributions need not
    add up. LRP raises an error; AttnLRP has rules for all of them.

    Args:
        num_classes: of the logits.
        in_channels: of the series.
        stem: channels of the convolutions; the last one, a multiple of 4, is the width of the tokens and of the dense
            layer.
        strides: of the convolutions.
        layers: of the transformer, each with 4 heads.
        feedforward: the inner width of each layer's two linear layers.
        dropout: after the convolutions, in [0, 1).

    >>> model = SeriesTransformer(stem=(8, 16), strides=(2, 2), layers=1, feedforward=32)
    >>> model(torch.zeros(2, 4, 30)).shape
    torch.Size([2, 2])
    >>> sum(parameter.numel() for parameter in SeriesTransformer().parameters())
    180674
    """

    def __init__(
        self,
        num_classes: int = 2,
        in_channels: int = 4,
        *,
        stem: Sequence[int] = (128, 64),
        strides: Sequence[int] = (1, 1),
        layers: int = 3,
        feedforward: int = 256,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        fits = len(stem) >= 1 and _are_counts(stem) and stem[-1] % 4 == 0
        check(fits, "stem", "channels of each convolution, the last a multiple of 4", stem)
        fits = len(strides) == len(stem) and _are_counts(strides)
        check(fits, "strides", f"{len(stem)} whole numbers of at least 1", strides)
        for option, value in (("layers", layers), ("feedforward", feedforward)):
            check(value >= 1, option, "at least 1", value)
        check(0 <= dropout < 1, "dropout", "a share in [0, 1)", dropout)
        width = stem[-1]
        # a longer kernel for a longer stride, so that each step is read about four times
        kernels = [4 * stride - 1 for stride in strides]
        self.features = make_series_convolutions(
            in_channels, stem, kernels, strides, dropout=dropout
        )
        self.layers = nn.Sequential(*(EncoderLayer(width, 4, feedforward) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.classifier = make_dense_head(width, width, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of series (N, in_channels, steps)."""
        tokens = self.features(inputs).transpose(1, 2)
        # a transformer does not see the order of its tokens
        tokens = tokens + encode_positions(tokens)
        logits: Tensor = self.classifier(self.norm(self.layers(tokens)).mean(1))
        return logits


def _are_counts(values: Sequence[int]) -> bool:
    return all(type(as_number(value)) is int and value >= 1 for value in values)


def encode_positions(tokens: Tensor) -> Tensor:
    """Sines and cosines of the positions of tokens (N, time, width): (time, width).

    Their wave lengths are a geometric sequence up to 20000 pi.

    >>> encode_positions(torch.zeros(1, 3, 2))  # sin(t), cos(t)
    tensor([[ 0.0000,  1.0000],
            [ 0.8415,  0.5403],
            [ 0.9093, -0.4161]])
    """
    time, width = tokens.shape[1:]
    position = torch.arange(time, device=tokens.device, dtype=torch.float32)[:, None]
    rate = torch.exp(
        torch.arange(0, width, 2, device=tokens.device, dtype=torch.float32)
        * (-math.log(1e4) / width)
    )
    angle = position * rate
    waves = torch.stack([angle.sin(), angle.cos()], dim=2)
    return waves.flatten(1).to(tokens.dtype)
