"""What explainers of attention share: the weights of all layers, which tokens decide, a map from one number a token."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from standfast.errors import ModelError
from standfast.explainers.attention.attention_calls import AttentionWatch
from standfast.explainers.attention.tokens import GridOption, find_token_grid
from standfast.explainers.base import Explainer, Explanation, make_leaf, run_watched, select_scores
from standfast.explainers.cam.gradcam import Interpolation, resize
from standfast.function_calls import check_has_gradients
from standfast.model import Model, module_name
from standfast.needs import Needs


@dataclass(frozen=True, kw_only=True)
class AttentionExplainer(Explainer):
    """An explainer that follows attention weights from the tokens that decide back to the tokens of the input."""

    needs = Needs(gradients=True, other="self-attention of all tokens in every layer (no windows)")
    follows_attention = True
    differentiable = True
    gateable = True
    #: whether the maps are made of the gradients by the weights of all layers
    uses_gradients: ClassVar[bool]
    grid: GridOption = None
    interpolation: Interpolation = "linear"

    @abstractmethod
    def follow(self, deciding: Tensor, weights: list[Tensor], gradients: list[Tensor]) -> Tensor:
        """The relevance of each token of the input, `(N, T)`.

        Args:
            deciding: the share of each token in the decision, `(N, T)`; rows add up to 1.
            weights: attention weights `(N, heads, T, T)` of each layer, from the first to the last.
            gradients: of the target's logit by the weights, with `uses_gradients`; else empty.
        """

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        with torch.enable_grad():
            inputs = make_leaf(x, create_graph)
            with AttentionWatch(len(x)) as watch:
                logits = run_watched(watch, self.label, model, inputs.clone())
            weights = self._check_weights(watch.weights, model, len(x))
            scores = select_scores(model, logits, targets)
            differentiated = weights if self.uses_gradients else weights[-1:]
            twice = create_graph and self.uses_gradients
            # they show which tokens decide
            check_has_gradients(scores, weights[-1], "its last attention")
            # with zeros for a layer that the logit does not depend on
            options: dict[str, Any] = {
                "create_graph": twice,
                "retain_graph": create_graph,
                "materialize_grads": True,
            }
            gradients = list(torch.autograd.grad(scores.sum(), differentiated, **options))
        with torch.set_grad_enabled(create_graph):
            deciding = find_deciding_tokens(gradients[-1].detach())
            used_gradients = gradients if self.uses_gradients else []
            relevance = self.follow(deciding, weights, used_gradients)
            grid = find_token_grid(
                weights[0].shape[-1], x.shape[1:], self.grid, watch.grid, self.label
            )
            maps = spread_tokens(relevance, deciding, grid, x, self.interpolation)
        if create_graph:
            return (maps, logits)
        return (maps.detach(), logits.detach())

    def _check_weights(self, weights: list[Tensor], model: Model, rows: int) -> list[Tensor]:
        """The weights, if they are those of self-attention of the same tokens of whole inputs in every layer."""
        name = module_name(model.module)
        if not weights:
            raise ModelError(
                f"{self.label} needs self-attention, and this {name} computes none that can be seen"
                " (softmax over tokens, then a product with values)"
            )
        tokens = weights[0].shape[-1]
        for layer, of_layer in enumerate(weights, 1):
            problem = ""
            parts = of_layer.shape[0]
            if of_layer.ndim == 4 and parts != rows and parts % rows == 0:
                problem = f"attention within {of_layer.shape[0] // rows} windows of each input"
            elif of_layer.ndim != 4 or of_layer.shape[0] != rows:
                problem = f"weights of shape {tuple(of_layer.shape)} for a batch of {rows} (small batches are padded)"
            elif of_layer.shape[-2:] != (tokens, tokens):
                problem = (
                    f"attention of {of_layer.shape[-2]} tokens to {of_layer.shape[-1]} (the"
                    f" first layer has {tokens})"
                )
            if problem:
                raise ModelError(
                    f"{self.label}: expected self-attention of the same tokens of an input in every layer, got"
                    f" {problem} in layer {layer} of {len(weights)} of this {name}"
                )
        return weights


def find_deciding_tokens(gradient: Tensor) -> Tensor:
    """The share of each token in the decision, `(N, T)`, from the gradient of a logit by the last attention weights.

    The logit depends on the results of the last attention for some tokens. These share equally; the others get 0. That
    is the class token, if there is one; a class and a distillation token; the last token of a causal model; with mean
    pooling all tokens that are pooled. If the logit depends on none, all tokens share.

    Args:
        gradient: `(N, heads, T, T)`; the third axis is that of the tokens that attend.

    >>> find_deciding_tokens(torch.tensor([[[[0.0, 0.0], [0.0, 2.0]]]]))
    tensor([[0., 1.]])
    """
    decides = (gradient != 0).any(3).any(1)
    decides = decides | ~decides.any(1, keepdim=True)
    return decides.to(gradient.dtype) / decides.sum(1, keepdim=True)


def multiply_rows(row: Tensor, matrices: Tensor) -> Tensor:
    """Rows `(N, T)` times matrices `(N, T, T)`: `(N, T)`, with bits that do not depend on the batch."""
    return (row[:, :, None] * matrices).sum(1)


def spread_tokens(
    relevance: Tensor,
    deciding: Tensor,
    grid: tuple[int, ...],
    x: Tensor,
    interpolation: Interpolation,
) -> Tensor:
    """A map like `x` `(N, ...)` from the relevance `(N, T)` of tokens; that of special tokens is left out.

    Special tokens come first, or last if the last token alone decides. The grid is resized to the input. On images
    every channel gets the same value, as for Grad-CAM. On series and embedded text the channels share it equally, so
    that their sum is the relevance of the position.
    """
    tokens = relevance.shape[1]
    special = relevance.shape[1] - math.prod(grid)
    # rows of a batch must not depend on each other, so each is looked at
    at_end = deciding[:, -1:] == 1
    first_tokens = relevance[:, : tokens - special]
    last_tokens = relevance[:, special:]
    kept = torch.where(at_end, first_tokens, last_tokens)
    if x.ndim == 2:
        return kept
    maps = resize(kept.reshape(len(x), 1, *grid), x, interpolation)
    return maps / x.shape[1] if x.ndim == 3 else maps
