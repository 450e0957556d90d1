"""Attention relevance: attention weights times their gradients, accumulated over layers (Chefer et al., ICCV 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.explainers.attention.attention_maps import AttentionExplainer, multiply_rows
from standfast.explainers.base import explainers


@explainers.register("attention_relevance")
@dataclass(frozen=True)
class AttentionRelevance(AttentionExplainer):
    """How much each input token contributes to the target's logit, by attention weights and their gradients.

    `R = (I + C_L) ... (I + C_2)(I + C_1)` with `C_l = mean over heads of (A_l * d f_t / d A_l)^+`, where `A_l` is the
    attention of layer `l`. The relevance of token `j` is the entry `(R - I)[i, j]` for the token `i` that decides.

    Chefer, Gur and Wolf, Generic attention-model explainability for interpreting bi-modal and encoder-decoder
    transformers, ICCV 2021: Equation 5 for `C_l`, and Equation 6, `R <- R + C_l R` from `R = I`, for self-attention.
    It is the case of an encoder, which the authors' code has for ViT and BERT. It replaces their method of CVPR 2021,
    which takes relevance of LRP instead of the weights `A_l`.

    The token that decides is found from the model: the tokens whose result of the last attention the logit depends on.
    It is the class token if there is one. With a class and a distillation token (DeiT), and with mean pooling, it is
    the mean over the rows of all tokens that decide. Special tokens (class, distillation, registers) have no place in
    the map; what they hold is left out.

    We subtract `I`, which only says that a token is relevant to itself. For a class token of images this changes
    nothing. In a text the deciding token has a place in the map, and its 1 would outweigh all other tokens (the
    authors' examples set it to 0); with mean pooling all tokens would have a constant.

    For images `(N, C, H, W)`, series and embedded text `(N, C, T)`, and tables `(N, F)` with a token for each feature.
    On images each channel has the value of the patch; on series and text the channels share the value of the position,
    so that their sum is the relevance of the token (see `standfast.zoo.token_relevance`).

    Cost: one forward pass for each input, and the backward pass from the logits to the first attention. With
    `create_graph` this needs second derivatives, which fused attention does not have; it is computed in plain
    operations here.

    Args:
        grid: rows and columns of the patches, such as `(14, 14)`; by default found from the model (see
            `find_token_grid`).
        interpolation: from patches to the input's size: `"linear"` (bilinear for images) or `"nearest"`.

    Raises:
        ArgumentError: an option out of range; on a call, a grid that does not fit.
        ModelError: on a call, the module has no attention; attention is not that of the same tokens in every layer, as
            in Swin; or tokens cannot be placed in the input.

    >>> import torch
    >>> from standfast.model import Model
    >>> from standfast.zoo.networks.series_transformer import SeriesTransformer
    >>> _ = torch.manual_seed(0)
    >>> module = SeriesTransformer(stem=(8, 8), strides=(1, 2), layers=2, feedforward=8)
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> AttentionRelevance()(model, torch.rand(2, 4, 30), 1).shape
    torch.Size([2, 4, 30])
    """

    name = "attention_relevance"
    has_signs = True
    uses_gradients = True

    def follow(self, deciding: Tensor, weights: list[Tensor], gradients: list[Tensor]) -> Tensor:
        # the row of R - I, apart from that of I, whose size would round it off
        added = torch.zeros_like(deciding)
        for of_layer, gradient in zip(reversed(weights), reversed(gradients), strict=True):
            # not F.relu, which `smooth_relu` replaces: softplus would add its value at 0 to every pair of tokens
            contribution = (of_layer * gradient).clamp(min=0).mean(1)
            added = added + multiply_rows(deciding + added, contribution)
        return added
