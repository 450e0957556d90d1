"""Grad-CAM: a coarse map of where the output of one convolution supports the target class."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ArgumentError, ModelError, check
from holdfast.explainers.base import Explainer, compute_gradient, make_leaf, select_logits
from holdfast.function_calls import run_eagerly
from holdfast.model import Classifier, module_name

Interpolation = Literal["linear", "nearest"]


@dataclass(frozen=True)
class GradCAM(Explainer):
    """The channels of a late convolution, weighted by their mean gradients, at the input's size.

    `relu(sum over k of a_k A^k)`, `a_k` the mean over positions of `d f_t / d A^k`.

    Selvaraju et al., Grad-CAM: visual explanations from deep networks via gradient-based localization, ICCV 2017,
    Equations 1 and 2. `A` `(N, K, h, w)` is the output of `layer`. The map `(N, 1, h, w)` is resized to the input's
    spatial size and repeated over its channels. For images `(N, C, H, W)` and series `(N, C, T)`.

    Cost: one forward pass for each input, and the backward pass from the logits to the layer.

    Args:
        layer: the layer's name as in `module.named_modules()`; by default the last convolution.
        relu: set negative values of the map to zero, as the paper does. A map without positive values is then zero
            everywhere. (Captum's default is `False`.)
        interpolation: `"linear"` (bilinear for images) or `"nearest"`.

    Raises:
        ArgumentError: on a call, there is no such layer, or its outputs have no positions.
        ModelError: on a call, the layer does not run exactly once.

    >>> from holdfast.model import Classifier
    >>> _ = torch.manual_seed(0)
    >>> module = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))
    >>> GradCAM()(Classifier(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(5, 2, 8)).shape
    torch.Size([5, 2, 8])
    """

    layer: str | None = None
    relu: bool = True
    interpolation: Interpolation = "linear"
    name: ClassVar[str] = "gradcam"
    needs: ClassVar[str] = "gradients; a convolution, or layer=NAME; images or series"
    differentiable: ClassVar[bool] = True
    gateable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_interpolation(self.interpolation)

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        with (
            keep_layer_output(classifier.module, self.layer, x, self.label, detached=not create_graph) as get_output,
            torch.enable_grad(),
        ):
            logits = classifier.forward(make_leaf(x, True) if create_graph else x.detach().clone())
            gradient = compute_gradient(select_logits(logits, targets), get_output(), create_graph)
        with torch.set_grad_enabled(create_graph):
            maps = compute_activation_map(gradient, get_output(), self.relu)
            maps = resize(maps, x, self.interpolation)
        return (maps, logits) if create_graph else (maps.detach(), logits.detach())


@contextlib.contextmanager
def keep_layer_output(
    module: nn.Module, wanted: str | None, x: Tensor, who: str, *, detached: bool
) -> Iterator[Callable[[], Tensor]]:
    """Keep the output `(N, K, positions...)` of one layer while `module` runs, so that it can be differentiated by.

    Gives a function that returns the output, once the module has run.

    Args:
        module: runs once inside.
        wanted: the layer's name, or `None` for the last convolution.
        x: the inputs of the forward pass.
        who: the name of the explainer, for messages.
        detached: leave what comes before the layer out of the graph.

    Raises:
        ArgumentError: there is no such layer; on the forward pass, its outputs have no positions.
        ModelError: no layer is named, and the module has no convolution; when the output is asked for and
            the layer did not run exactly once.
    """
    name, layer = find_layer(module, wanted, who)
    found: list[Tensor] = []

    def keep(_module: nn.Module, _args: Any, out: Any) -> Tensor:
        if not isinstance(out, Tensor) or out.ndim != x.ndim or out.ndim < 3 or out.shape[0] != x.shape[0]:
            got = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            expected = f"a layer with outputs (N, channels, positions...) for inputs of shape {tuple(x.shape)}"
            raise ArgumentError("layer", expected, f"{name!r} with output {got}")
        found.append(out.detach().requires_grad_(True) if detached else out)
        return found[-1].clone()  # the next layer may work in place

    def get_output() -> Tensor:
        if len(found) != 1:
            raise ModelError(f"{who}: expected layer {name!r} to run once a forward pass, ran {len(found)}x")
        return found[0]

    handle = layer.register_forward_hook(keep)
    try:
        with run_eagerly():
            yield get_output
    finally:
        handle.remove()


def compute_activation_map(gradient: Tensor, activation: Tensor, relu: bool) -> Tensor:
    """Grad-CAM's map `(N, 1, positions...)` from a layer's activation and the gradient of the target's logit by it."""
    weights = gradient.mean(tuple(range(2, gradient.ndim)), keepdim=True)
    maps = (weights * activation).sum(1, keepdim=True)
    return F.relu(maps) if relu else maps


def check_interpolation(interpolation: Interpolation) -> None:
    """Raise `ArgumentError` unless it is `"linear"` or `"nearest"`."""
    modes = get_args(Interpolation)
    check(interpolation in modes, "interpolation", f"one of {', '.join(modes)}", repr(interpolation))


def resize(maps: Tensor, like: Tensor, interpolation: Interpolation) -> Tensor:
    """`maps` `(N, 1 or C, h, w)` or `(N, 1 or C, t)`, resized to `like` `(N, C, H, W)` or `(N, C, T)`.

    A single channel is repeated over all channels.
    """
    mode = "nearest" if interpolation == "nearest" else {3: "linear", 4: "bilinear", 5: "trilinear"}[like.ndim]
    if maps.shape[2:] != like.shape[2:]:
        maps = F.interpolate(maps, like.shape[2:], mode=mode, align_corners=None if mode == "nearest" else False)
    return maps.expand_as(like).contiguous()


def find_layer(module: nn.Module, wanted: str | None, who: str = "the explainer") -> tuple[str, nn.Module]:
    """The name and the layer: that called `wanted`, or for `None` the last convolution.

    Args:
        module: has the layer.
        wanted: the layer's name as in `module.named_modules()`, or `None`.
        who: the name of the explainer, for messages.

    Raises:
        ArgumentError: there is no layer of this name.
        ModelError: no layer is named, and the module has no convolution.
    """
    layers = dict(module.named_modules())
    if wanted is not None:
        check(wanted in layers, "layer", f"one of {', '.join(repr(n) for n in layers if n)}", repr(wanted))
        return wanted, layers[wanted]
    convolutions = [name for name, layer in layers.items() if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)]
    if not convolutions:
        words = "its option `layer` can name another layer with positions"
        raise ModelError(f"{who} needs a convolution, and this {module_name(module)} has none ({words})")
    return convolutions[-1], layers[convolutions[-1]]
