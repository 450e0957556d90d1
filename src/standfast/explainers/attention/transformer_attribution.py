"""Transformer attribution: relevance of attention weights times their gradients, over layers (Chefer, CVPR 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from standfast.explainers.attention.attention_relevance import AttentionRelevance
from standfast.explainers.propagation.attention_rules import RelevanceMode
from standfast.explainers.propagation.positive_rules import PositiveRule


@dataclass(frozen=True)
class TransformerAttribution(AttentionRelevance):
    """How much each input token contributes to the target's logit, by the relevance of attention and its gradients.

    `C = (I + C_L) ... (I + C_2)(I + C_1)` with `C_l = mean over heads of (R_l * d f_t / d A_l)^+`, where `A_l` is the
    attention of layer `l` and `R_l` its relevance for the target, by rules of layer-wise relevance propagation. The
    relevance of token `j` is the entry `(C - I)[i, j]` for the token `i` that decides.

    Chefer, Gur and Wolf, Transformer interpretability beyond attention visualization, CVPR 2021, Equations 13 and 14.
    `AttentionRelevance` is their later method, with `A_l` in the place of `R_l`; the deciding token, `I` and the map
    are as there. `standfast.explainers.propagation.positive_rules` has the rules. Relevance starts as 1 at the target's
    logit.

    Equals the authors' code for a batch of one input, with these differences:

    - The rule for sums compares the relevance of both terms, summed. The authors' code sums over the whole batch; here
      each input has its own sums, so that its map does not depend on the others.
    - Their code adds 1e-9 to denominators. Here the quotient is 0 where the denominator is 0.
    - The paper writes the product from the first layer to the last; their code, and this one, multiply such that the
      last layer comes first, so that a row belongs to a token of the last layer.

    The module must keep the inputs of a batch along the first axis (`batch_first=True` of torch's layers) wherever it
    adds two results. Inputs and maps are those of `AttentionRelevance`.

    Cost: one forward pass for each input, and two backward passes from the logits to the first attention; in the second
    one, each function is computed again.

    Args:
        grid: rows and columns of the patches, such as `(14, 14)`; by default found from the model.
        interpolation: from patches to the input's size: `"linear"` (bilinear for images) or `"nearest"`.

    Raises:
        ArgumentError: an option out of range; on a call, a grid that does not fit.
        ModelError: on a call, the module has no attention; attention is not that of the same tokens in every layer, as
            in Swin; tokens cannot be placed in the input; or a function has no rule, and is named.

    >>> import torch
    >>> from standfast.model import Model
    >>> from standfast.zoo.networks.series_transformer import SeriesTransformer
    >>> _ = torch.manual_seed(0)
    >>> module = SeriesTransformer(stem=(8, 8), strides=(1, 2), layers=2, feedforward=8)
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> TransformerAttribution()(model, torch.rand(2, 4, 30), 1).shape
    torch.Size([2, 4, 30])
    """

    name: ClassVar[str] = "transformer_attribution"
    gateable: ClassVar[bool] = False

    def make_mode(self, rows: int) -> RelevanceMode:
        return PositiveRule(self.label, rows)
