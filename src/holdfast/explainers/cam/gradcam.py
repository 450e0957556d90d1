"""Grad-CAM: a coarse map of where the output of one layer supports the target class."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.errors import ArgumentError, ModelError, check
from holdfast.explainers.attention.attention_calls import AttentionWatch
from holdfast.explainers.attention.tokens import Grid, arrange_tokens, check_grid, find_token_grid
from holdfast.explainers.base import Explainer, compute_gradient, make_leaf, select_logits
from holdfast.function_calls import run_eagerly
from holdfast.model import Classifier, module_name
from holdfast.records import set_fields

Interpolation = Literal["linear", "nearest"]
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TOKEN_NORMS = (nn.LayerNorm, nn.RMSNorm)
_FEATURES_LAST = (*_TOKEN_NORMS, nn.Linear, nn.MultiheadAttention)
_FEATURES_SECOND = (*_CONVOLUTIONS, nn.modules.batchnorm._BatchNorm, nn.GroupNorm)


@dataclass(frozen=True)
class GradCAM(Explainer):
    """The channels of a late layer, weighted by their mean gradients, at the input's size.

    `relu(sum over k of a_k A^k)`, `a_k` the mean over positions of `d f_t / d A^k`.

    Selvaraju et al., Grad-CAM: visual explanations from deep networks via gradient-based localization, ICCV 2017,
    Equations 1 and 2. `A` `(N, K, h, w)` is the output of `layer`. The map `(N, 1, h, w)` is resized to the input's
    spatial size and repeated over its channels. For images `(N, C, H, W)`, series and embedded text `(N, C, T)`.

    In a transformer the positions are tokens: `A` is `(N, T, K)`, with the tokens of the patches in reading order after
    special ones (class, distillation, registers), which are left out; or `(N, h, w, K)`, as in Swin. Layers whose
    features are on the last axis (layer normalisation, linear layers, and blocks of these without a convolution) are
    read in this way.

    By default the layer is the last convolution. If attention runs after it, as in a vision transformer, it is the last
    layer normalisation before the last attention (in timm's ViT `blocks.11.norm1`). Behind the last attention of a
    network with a class token the logits depend on that token alone, and gradients by all patches are zero.

    Cost: one forward pass for each input, and the backward pass from the logits to the layer.

    Args:
        layer: the layer's name as in `module.named_modules()`; by default chosen as above.
        relu: set negative values of the map to zero, as the paper does. A map without positive values is then zero
            everywhere. (Captum's default is `False`.)
        interpolation: `"linear"` (bilinear for images) or `"nearest"`.
        grid: rows and columns of the patches among tokens `(N, T, K)`, such as `(14, 14)`; by default found from the
            model (see `find_token_grid`).

    Raises:
        ArgumentError: on a call, there is no such layer, its outputs have no positions, or the grid does not fit.
        ModelError: on a call, the layer does not run exactly once, or its tokens cannot be placed in the input.

    >>> from holdfast.model import Classifier
    >>> _ = torch.manual_seed(0)
    >>> module = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))
    >>> GradCAM()(Classifier(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(5, 2, 8)).shape
    torch.Size([5, 2, 8])
    """

    layer: str | None = None
    relu: bool = True
    interpolation: Interpolation = "linear"
    grid: Grid | None = None
    name: ClassVar[str] = "gradcam"
    needs: ClassVar[str] = "gradients; a convolution or a transformer, or layer=NAME; images or series"
    differentiable: ClassVar[bool] = True
    gateable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_interpolation(self.interpolation)
        set_fields(self, grid=check_grid(self.grid))

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        with (
            keep_layer_output(
                classifier.module, self.layer, x, self.label, detached=not create_graph, grid=self.grid
            ) as kept,
            torch.enable_grad(),
        ):
            logits = classifier.forward(make_leaf(x, True) if create_graph else x.detach().clone())
            output = kept.find()
            gradient = compute_gradient(select_logits(logits, targets), output, create_graph)
        with torch.set_grad_enabled(create_graph):
            maps = compute_activation_map(kept.arrange(gradient), kept.arrange(output), self.relu)
            maps = resize(maps, x, self.interpolation)
        return (maps, logits) if create_graph else (maps.detach(), logits.detach())


@dataclass(frozen=True)
class _Run:
    """One run of a layer: its name, its output, and how many attentions ran before it."""

    name: str
    layer: nn.Module
    output: Tensor
    attentions: int


class KeptOutput:
    """The output of one layer while a module runs, so that it can be differentiated by.

    Args:
        module: runs once.
        wanted: the layer's name, or `None` for the last convolution; for the last layer normalisation before the last
            attention, if attention runs after it.
        x: the inputs of the forward pass.
        who: the name of the explainer, for messages.
        detached: leave what comes before the layer out of the graph.
        grid: that of the patches, if the user names one.
    """

    def __init__(
        self, module: nn.Module, wanted: str | None, x: Tensor, who: str, *, detached: bool, grid: Grid | None
    ) -> None:
        self.module, self.wanted, self.x, self.who = module, wanted, x, who
        self.detached, self.grid = detached, grid
        self.norms = _list_layers(module, _TOKEN_NORMS)
        #: attention is looked for only where layer normalisation is: in convolutional networks nothing is watched
        self.watch = AttentionWatch(len(x)) if self.norms else None
        self.runs: list[_Run] = []
        self._of_tokens = False

    def layers(self) -> list[tuple[str, nn.Module]]:
        """The layers whose outputs have to be kept."""
        if self.wanted is not None or not self.norms:
            return [find_layer(self.module, self.wanted, self.who)]
        return _list_layers(self.module, _CONVOLUTIONS)[-1:] + self.norms

    def keep(self, name: str, layer: nn.Module, out: Any) -> Any:
        """Keep the output of one run of a layer; what the module goes on with."""
        if not self._has_positions(layer, out) and (self.wanted is not None or not self.norms):
            got = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            expected = f"a layer with outputs (N, channels, positions...) for inputs of shape {tuple(self.x.shape)}"
            raise ArgumentError("layer", expected, f"{name!r} with output {got}")
        if not self._has_positions(layer, out) or (self.wanted is None and not self._has_tokens(layer, out)):
            return out
        if self.detached and not out.requires_grad:
            out = out.detach().requires_grad_(True)
        self.runs.append(_Run(name, layer, out, len(self.watch.weights) if self.watch else 0))
        return out.clone()  # the next layer may work in place

    def _has_positions(self, layer: nn.Module, out: Any) -> bool:
        """Whether it has a value for each channel at each position, or for each feature of each token."""
        if not isinstance(out, Tensor) or out.ndim < 3 or len(out) != len(self.x):
            return False
        return out.ndim == self.x.ndim or (out.ndim == 3 < self.x.ndim and not isinstance(layer, _FEATURES_SECOND))

    def _has_tokens(self, layer: nn.Module, out: Tensor) -> bool:
        """Whether a layer normalisation is that of tokens, not of channels `(N, K, h, w)` or of a head's queries."""
        if not isinstance(layer, _TOKEN_NORMS):
            return True
        if out.shape[-1] != layer.normalized_shape[-1]:
            return False
        return out.ndim == 3 or out.shape[1] * self.x.shape[3] == out.shape[2] * self.x.shape[2]

    def find(self) -> Tensor:
        """The output as the layer gave it, once the module has run.

        Raises:
            ModelError: the layer did not run exactly once; or none is named, and there is none to choose.
        """
        run = self._choose()
        self._of_tokens = run.output.ndim < self.x.ndim or _has_features_last(run.layer)
        return run.output

    def _choose(self) -> _Run:
        runs = self.runs
        if self.wanted is None and self.norms:
            attentions = len(self.watch.weights) if self.watch else 0
            of_convolution = [run for run in runs if not isinstance(run.layer, _TOKEN_NORMS)]
            behind = not of_convolution or of_convolution[-1].attentions < attentions
            before = [run for run in runs if isinstance(run.layer, _TOKEN_NORMS) and run.attentions < attentions]
            if behind and before:
                return before[-1]
            runs = of_convolution
        name, _ = find_layer(self.module, self.wanted, self.who)
        if len(runs) != 1:
            raise ModelError(f"{self.who}: expected layer {name!r} to run once a forward pass, ran {len(runs)}x")
        return runs[0]

    def arrange(self, values: Tensor) -> Tensor:
        """Values in the shape of the output, as channels at positions: `(N, K, positions...)`."""
        if not self._of_tokens:
            return values
        if values.ndim > 3:
            return values.movedim(-1, 1)
        convolved = self.watch.grid if self.watch else None
        grid = find_token_grid(values.shape[1], self.x.shape[1:], self.grid, convolved, self.who)
        return arrange_tokens(values, grid)


@contextlib.contextmanager
def keep_layer_output(
    module: nn.Module, wanted: str | None, x: Tensor, who: str, *, detached: bool, grid: Grid | None = None
) -> Iterator[KeptOutput]:
    """Keep the output of one layer while `module` runs inside; the arguments are those of `KeptOutput`.

    Raises:
        ArgumentError: there is no such layer; on the forward pass, its outputs have no positions.
        ModelError: no layer is named, and the module has neither a convolution nor layer normalisation.
    """
    kept = KeptOutput(module, wanted, x, who, detached=detached, grid=grid)
    handles = [
        layer.register_forward_hook(lambda own, args, out, name=name: kept.keep(name, own, out))
        for name, layer in kept.layers()
    ]
    try:
        with kept.watch or run_eagerly():
            yield kept
    finally:
        for handle in handles:
            handle.remove()


def _list_layers(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> list[tuple[str, nn.Module]]:
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, kinds)]


def _has_features_last(layer: nn.Module) -> bool:
    """Whether the features of a layer's outputs are on the last axis, by the layers that it is made of."""
    parts = list(layer.modules())
    return any(isinstance(part, _FEATURES_LAST) for part in parts) and not any(
        isinstance(part, _FEATURES_SECOND) for part in parts
    )


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
    convolutions = [name for name, _ in _list_layers(module, _CONVOLUTIONS)]
    if not convolutions:
        words = "its option `layer` can name another layer with positions"
        raise ModelError(f"{who} needs a convolution, and this {module_name(module)} has none ({words})")
    return convolutions[-1], layers[convolutions[-1]]
