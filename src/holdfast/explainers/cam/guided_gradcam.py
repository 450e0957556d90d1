"""Guided Grad-CAM: the details of guided backpropagation where Grad-CAM finds evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd import Function

from holdfast.explainers.base import Explainer, compute_gradient, make_leaf, select_logits
from holdfast.explainers.cam.gradcam import (
    Interpolation,
    check_interpolation,
    compute_activation_map,
    keep_layer_output,
    resize,
)
from holdfast.explainers.gradients.surrogates import ReluReplacement
from holdfast.model import Classifier


@dataclass
class _Switch:
    """Which of two backward passes runs."""

    guided: bool = False


class _SwitchedRelu(Function):
    """ReLU that sends back its gradient, or what guided backpropagation sends back: whichever is wanted then."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, switch: _Switch) -> Tensor:
        ctx.save_for_backward(z > 0)
        ctx.switch = switch
        return z.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (active,) = ctx.saved_tensors
        return (gradients[0].clamp(min=0) if ctx.switch.guided else gradients[0]) * active, None


@dataclass(frozen=True)
class GuidedGradCAM(Explainer):
    """Guided backpropagation times the Grad-CAM map: `G(x) * upsampled relu(sum over k of a_k A^k)`, elementwise.

    Selvaraju et al., Grad-CAM: visual explanations from deep networks via gradient-based localization, ICCV 2017,
    Section 3.2; `G` is `GuidedBackprop`, the map `GradCAM` with its rectifier. Images `(N, C, H, W)` and series
    `(N, C, T)`; attributions have the inputs' shape. One forward pass for each input; the backward pass to the layer
    with plain gradients, and the guided one to the input. Equals Captum's (whose interpolation is `"nearest"` by
    default), and reaches functional ReLUs as well.

    Args:
        layer: the layer's name as in `module.named_modules()`; by default the last convolution.
        interpolation: `"linear"` (bilinear for images, as in the paper) or `"nearest"`.

    Raises:
        ArgumentError: on a call, no such layer, or one whose outputs have no positions.
        ModelError: on a call, the layer does not run exactly once.

    >>> from torch import nn
    >>> from holdfast.model import Classifier
    >>> _ = torch.manual_seed(0)
    >>> module = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))
    >>> GuidedGradCAM()(Classifier(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(5, 2, 8)).shape
    torch.Size([5, 2, 8])
    """

    layer: str | None = None
    interpolation: Interpolation = "linear"
    name: ClassVar[str] = "guided_gradcam"
    differentiable: ClassVar[bool] = False
    gateable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_interpolation(self.interpolation)

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        switch = _Switch()

        def rectify(z: Tensor) -> Tensor:
            out: Tensor = _SwitchedRelu.apply(z, switch)  # type: ignore[no-untyped-call]
            return out

        leaf = make_leaf(x, create_graph=False)
        with torch.enable_grad():
            with (
                ReluReplacement(rectify),
                keep_layer_output(classifier.module, self.layer, x, self.label, detached=False) as get_output,
            ):
                logits = classifier.forward(leaf.clone())
            scores = select_logits(logits, targets)
            plain = _gradient_kept(scores, get_output())
            switch.guided = True
            guided = compute_gradient(scores, leaf)
        with torch.no_grad():
            maps = resize(compute_activation_map(plain, get_output().detach(), relu=True), x, self.interpolation)
            return guided * maps, logits.detach()


def _gradient_kept(scores: Tensor, activation: Tensor) -> Tensor:
    """Gradient of `scores` by the layer's output; the graph is kept for the second backward pass."""
    if not scores.requires_grad or not activation.requires_grad:
        return torch.zeros_like(activation)
    (gradient,) = torch.autograd.grad(scores.sum(), activation, retain_graph=True, allow_unused=True)
    return torch.zeros_like(activation) if gradient is None else gradient
