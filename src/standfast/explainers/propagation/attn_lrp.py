"""AttnLRP: layer-wise relevance propagation for transformers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.explainers.attention.attention_calls import PlainAttention
from standfast.explainers.base import Explainer, Explanation, explainers, make_leaf, select_scores
from standfast.explainers.propagation.attention_rules import AttentionRule
from standfast.explainers.propagation.backward_rules import check_same_shape
from standfast.function_calls import compute_gradient
from standfast.model import Model
from standfast.needs import Needs
from standfast.records import AtLeastZero


@explainers.register("attn_lrp")
@dataclass(frozen=True)
class AttnLRP(Explainer):
    """Layer-wise relevance propagation with rules for attention, normalisation and gates: `x * g`.

    `g` is a backward pass with the rules of Achtibat et al., AttnLRP: attention-aware layer-wise relevance propagation
    for transformers, ICML 2024. `R = z g` is the relevance of a value `z`; `s` is a softmax:

    - softmax: `R_i = x_i (R_i' - s_i sum_j R_j')`, with the relevance `R'` of its outputs (Taylor rule, Prop. 3.1);
    - product of two factors that both depend on the input, of matrices or of values: half of the epsilon rule's
      relevance to each of them (Prop. 3.2 and 3.3). So an attention `softmax(q k) v` passes 1/4 to `q`, 1/4 to `k` (by
      the softmax) and 1/2 to `v`;
    - layer and RMS normalisation: their divisor is a constant (Prop. 3.4);
    - GELU, SiLU, tanh and others with `f(0) = 0`: relevance passes unchanged (identity rule, Eq. 9);
    - linear layers, convolutions, sums, averages, max-pooling: the epsilon rule (Eq. 8), in the limit of epsilon 0. No
      stabiliser is needed, since nothing is divided. With `gamma`, linear layers follow the gamma rule.

    The rules are for functions and not for layers. They work for torch's own attention, fused and written out, and for
    the transformers of timm and Hugging Face: ViT, DeiT, Swin, BERT and others. They see inside of
    `nn.MultiheadAttention` and of `scaled_dot_product_attention`. Equals the authors' package lxt.
    Inputs and attributions `(N, ...)`; an attribution does not depend on the other inputs of the batch. With a
    preprocessing, relevance is that of the preprocessed input.

    Relevance starts as the target's logit. Of a generated answer it starts as the logits of its tokens, each of which
    is a target as in the paper; the logarithm of the softmax above them has no rule. The sum of a map differs from what
    it starts as by what is not passed on: the contributions of biases, of position embeddings and class tokens, and
    what the Taylor rule of the softmax leaves out.

    For vision transformers the authors use the gamma rule, since maps of the epsilon rule are noisy. They choose the
    numbers for each network, from 0 to 1 for linear layers and from 0.1 to 100 for convolutions; in the middle are
    `gamma=0.05, convolution_gamma=0.25`. The gamma rule holds here in all linear layers; in the authors' example for
    torchvision, which also detaches the attention's weights, the projections of an attention keep the epsilon rule.

    Cost: one forward and one backward pass for each input. With `gamma`, linear layers run three times in
    both, with two copies of their weights.

    With `create_graph`, the attributions can be differentiated by the input.

    Args:
        gamma: of the gamma rule in linear layers, at least 0; 0 is the epsilon rule.
        convolution_gamma: the same for convolutions, such as the patch embedding of a ViT.

    Raises:
        ArgumentError: an option out of range.
        ModelError: on a call, the module uses a function without a rule, which is named; or the preprocessing changes
            the shape.

    >>> from standfast.model import Model
    >>> _ = torch.manual_seed(0)
    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8, bias=False), torch.nn.GELU(), torch.nn.RMSNorm(8))
    >>> _ = module.append(torch.nn.Linear(8, 2, bias=False))
    >>> model, x = Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(3, 4)
    >>> torch.allclose(AttnLRP()(model, x, 1).sum(1), model.logits(x)[:, 1], atol=1e-6)
    True
    """

    gamma: AtLeastZero = 0.0
    convolution_gamma: AtLeastZero = 0.0
    name = "attn_lrp"
    has_signs = True
    needs = Needs(gradients=True, other="layers that have a rule, attention among them")
    follows_attention = True
    starts_at_logits = True
    differentiable = True

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        rule = AttentionRule(create_graph, self.gamma, self.convolution_gamma)
        with torch.enable_grad():
            inputs = make_leaf(x, create_graph)
            if model.preprocess is not None:
                inputs = model.preprocess(inputs.clone())
                check_same_shape(self.name, inputs, x)
                inputs = inputs if create_graph else inputs.detach().requires_grad_(True)
            with rule, PlainAttention() as mode:
                logits = model.decide(
                    mode.run_module(self.label, model.undecided.run, inputs.clone())
                )
            with rule.follow_rules():
                relevance = compute_gradient(
                    select_scores(model, logits, targets), inputs, create_graph
                )
            maps = inputs * relevance
        if create_graph:
            return (maps, logits)
        return (maps.detach(), logits.detach())
