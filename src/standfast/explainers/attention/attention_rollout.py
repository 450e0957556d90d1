"""Attention rollout: the product of the attention of all layers, with the identity for their residual connections."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.explainers.attention.attention_maps import AttentionExplainer, multiply_rows
from standfast.explainers.base import explainers


@explainers.register("attention_rollout")
@dataclass(frozen=True)
class AttentionRollout(AttentionExplainer):
    """How much of each input token reaches the tokens that decide, if attention alone mixed tokens.

    `rollout = B_L ... B_2 B_1` with `B_l = (A_l + I) / 2`, where `A_l` `(T, T)` is the attention of layer `l`, the
    mean over its heads, and `I` stands for the residual connection. The relevance of token `j` is the entry
    `rollout[i, j]` for the token `i` that decides.

    Abnar and Zuidema, Quantifying attention flow in transformers, ACL 2020, Section 3 ("Attention rollout").

    The map does not depend on the class: values, other layers and the head have no part in it. So it can change only
    with the attention weights, and a model may decide otherwise with the same map.

    The token that decides is found from the model: the tokens whose result of the last attention the logit depends on.
    It is the class token if there is one. With a class and a distillation token (DeiT), and with mean pooling, it is
    the mean over the rows of all tokens that decide. Special tokens (class, distillation, registers) have no place in
    the map; what they hold is left out.

    For images `(N, C, H, W)`, series and embedded text `(N, C, T)`, and tables `(N, F)` with a token for each feature.
    On images each channel has the value of the patch; on series and text the channels share the value of the position,
    so that their sum is the relevance of the token (see `standfast.zoo.token_relevance`).

    Cost: one forward pass for each input, and the backward pass from the logits to the last attention.

    Args:
        grid: rows and columns of the patches, such as `(14, 14)`; by default found from the model (see
            `find_token_grid`).
        interpolation: from patches to the input's size: `"linear"` (bilinear for images) or `"nearest"`.

    Raises:
        ArgumentError: an option out of range; on a call, a grid that does not fit.
        ModelError: on a call, the module has no attention; attention is not that of the same tokens in every layer, as
            in Swin, whose windows have no product of this kind; or tokens cannot be placed in the input.

    >>> from torch import nn
    >>> from standfast.model import Model
    >>> from standfast.zoo.networks.series_transformer import SeriesTransformer
    >>> _ = torch.manual_seed(0)
    >>> module = SeriesTransformer(stem=(8, 8), strides=(1, 2), layers=2, feedforward=8)
    >>> maps = AttentionRollout()(Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(2, 4, 30))
    >>> maps.shape
    torch.Size([2, 4, 30])
    >>> maps.sum(1).mean(1)  # 15 tokens, whose relevance adds up to 1
    tensor([0.0667, 0.0667])
    """

    name = "attention_rollout"
    has_signs = False
    uses_gradients = False

    def follow(self, deciding: Tensor, weights: list[Tensor], gradients: list[Tensor]) -> Tensor:
        # from the last layer on, a row is enough; the product of all matrices would cost T times as much
        row = deciding
        for of_layer in reversed(weights):
            joined = of_layer.mean(1)
            with_residual = joined + torch.eye(
                joined.shape[-1], dtype=joined.dtype, device=joined.device
            )
            # the sum is 2 in the formula; it is 1 for a query without any key, whose weights are 0
            row = multiply_rows(row, with_residual / with_residual.sum(2, keepdim=True))
        return row
