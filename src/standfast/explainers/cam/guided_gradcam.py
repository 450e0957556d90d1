"""Guided Grad-CAM: the map of guided backpropagation, weighted by the map of Grad-CAM."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.explainers.base import (
    Explanation,
    explainers,
    make_leaf,
    run_watched,
    select_scores,
)
from standfast.explainers.cam.gradcam import GradCAM, keep_layer_output
from standfast.explainers.gradients.surrogates import guide_gradient, replace_relu_gradient
from standfast.function_calls import compute_gradient
from standfast.model import Model


@explainers.register("guided_gradcam")
@dataclass(frozen=True)
class GuidedGradCAM(GradCAM):
    """Guided backpropagation times the Grad-CAM map.

    `G(x) * upsampled relu(sum over k of a_k A^k)`, elementwise.

    Selvaraju et al., Grad-CAM: visual explanations from deep networks via gradient-based localization, ICCV 2017,
    Section 3.2. `G` is `GuidedBackprop`, and the map is that of `GradCAM`. For images
    `(N, C, H, W)` and series `(N, C, T)`; attributions have the inputs' shape.

    Cost: one forward pass for each input, a backward pass to the layer with plain gradients, and a guided one to the
    input. Equals Captum's (whose default interpolation is `"nearest"`), and also reaches functional ReLUs.

    Args:
        layer: the layer's name as in `module.named_modules()`; by default that of `GradCAM`.
        relu: set negative values of Grad-CAM's map to zero, as the paper does.
        interpolation: `"linear"` (bilinear for images, as in the paper) or `"nearest"`.
        grid: rows and columns of the patches among tokens, as for `GradCAM`.

    Raises:
        ArgumentError: on a call, there is no such layer, or its outputs have no positions.
        ModelError: on a call, the named layer does not run exactly once or does not feed the logits, or there is none
            to choose.

    >>> from torch import nn
    >>> from standfast.model import Model
    >>> _ = torch.manual_seed(0)
    >>> module = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))
    >>> GuidedGradCAM()(Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(5, 2, 8)).shape
    torch.Size([5, 2, 8])
    """

    name = "guided_gradcam"
    plain_gradient = True
    measures = "direction"
    differentiable = False

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        guided = False  # the first of the two backward passes is plain

        def rule(gradient: Tensor, active: Tensor) -> Tensor:
            if guided:
                return guide_gradient(gradient, active)
            return gradient * active

        leaf = make_leaf(x, create_graph=False)
        with torch.enable_grad():
            with (
                replace_relu_gradient(rule) as mode,
                keep_layer_output(
                    model.module, self.layer, x, self.label, detached=False, grid=self.grid
                ) as kept,
            ):
                logits = run_watched(mode, self.label, model, leaf.clone())
            scores = select_scores(model, logits, targets)
            output = kept.find(logits)
            by_layer = compute_gradient(scores, output, retain_graph=True)
            guided = True
            by_input = compute_gradient(scores, leaf)
        with torch.no_grad():
            maps = self.make_maps(kept, by_layer, output.detach(), x)
            return by_input * maps, logits.detach()
