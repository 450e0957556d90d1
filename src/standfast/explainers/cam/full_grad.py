"""FullGrad: gradients by the input and by every bias, which together add up to the logit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from standfast.errors import ModelError
from standfast.explainers.base import (
    Explanation,
    GradientExplainer,
    explainers,
    make_leaf,
    run_watched,
    select_scores,
)
from standfast.explainers.cam.gradcam import resize
from standfast.function_calls import FunctionMode, check_has_gradients
from standfast.gating import CONVOLUTIONS, weight_layers
from standfast.model import Model

Rescale = Literal["channel", "layer"]

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_SHIFT = "preprocess"
# a map that varies by less than this many units in the last place of its maximum counts as constant
_ROUNDING = 16


@explainers.register("fullgrad")
@dataclass(frozen=True)
class FullGrad(GradientExplainer):
    """The gradient times the input, plus that of every layer's biases, as one map.

    `psi(x * d f_t / d x) + sum over layers l, channels c of psi(b_lc * d f_t / d z_lc)`, z_l a layer's output.

    Srinivas and Fleuret, Full-gradient representation for neural network visualization, NeurIPS 2019, Equation 4;
    `psi` takes absolute values, rescales them to [0, 1] and upsamples bilinearly (linearly for series). The map is the
    same in all channels. For images `(N, C, H, W)`, series `(N, C, T)` and flat features `(N, F)`.

    Cost: one forward and one backward pass for each input.

    Which biases count:

    - those of convolutions (also transposed ones) and of batch normalisations, whose implicit bias is
      `beta - gamma * mean / sqrt(var + eps)`; for a layer that runs twice, at each run;
    - a shift in the preprocessing `p`, such as a normalisation's mean. Gradients are by the input within its bounds,
      and `p(0)` is the bias. It counts in the map if it has the axes of the inputs;
    - those of linear layers do not count. They belong to no place in the input, so the map leaves them out, as the
      paper does.

    Biases are found by hooks on layers. An exported program has none, and code that calls no functions of torch from
    Python (TorchScript, a `torch.autograd.Function`) may have some; both are refused. Hooks do not see a bias that a
    function gets without its layer, constants that the module adds (such as a normalisation of images inside it), and
    layer, group and instance normalisations.

    For flat inputs every feature is a position. No layer's biases lie on these positions, so the map consists of the
    input's term and of the preprocessing's shift.

    For networks of such layers, ReLUs, pooling and sums, the input's term and those of all biases, without `psi` and
    with linear layers, add up to the logit (the paper's Proposition 1).

    Args:
        rescale: `"channel"`: `psi` rescales each channel by itself, as in the paper's equation. `"layer"`: it rescales
            all channels of a layer at once, as in the authors' code, so that they keep their relative sizes.

    >>> from standfast.model import Model
    >>> _ = torch.manual_seed(0)
    >>> module = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))
    >>> model, x = Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(5, 2, 8)
    >>> FullGrad()(model, x).shape
    torch.Size([5, 2, 8])
    """

    rescale: Rescale = "channel"
    name = "fullgrad"
    has_signs = False

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        product, terms, logits = _compute_terms(model, x, targets, create_graph)
        with torch.set_grad_enabled(create_graph):
            maps = self._psi(product, x)
            for name, layer, bias in terms:
                if x.ndim > 2:
                    placed = bias.ndim == x.ndim
                else:
                    placed = bias.shape == x.shape and layer is None
                if placed and not isinstance(layer, nn.Linear):
                    if len(bias) != len(x):
                        expected = f"the output of layer {name!r} to have a row for each input"
                        raise ModelError(
                            f"fullgrad: expected {expected}, got {len(bias)} for {len(x)} inputs"
                        )
                    maps = maps + self._psi(bias, x)
            return maps.expand_as(x).contiguous(), logits

    def _psi(self, values: Tensor, like: Tensor) -> Tensor:
        """`|values|` `(N, C, positions...)`, rescaled to [0, 1], summed over channels and resized to `like`."""
        values = values.abs()
        if like.ndim == 2:
            values = values[:, None]  # features are positions
        first_axis = 2 if self.rescale == "channel" else 1
        axes = tuple(range(first_axis, values.ndim))
        low = values.amin(axes, keepdim=True)
        high = values.amax(axes, keepdim=True)
        width = high - low
        rounding = _ROUNDING * torch.finfo(values.dtype).eps * high.detach()
        varies = width.detach() > rounding
        # both branches are computed, and 0 / 0 in the one that is not taken would make the gradient NaN
        shares = (values - low) / torch.where(varies, width, 1.0)
        values = torch.where(varies, shares, 0.0)
        if like.ndim == 2:
            return values[:, 0]
        # upsampling is linear, so it may follow the sum
        total = values.sum(1, keepdim=True)
        return resize(total, like[:, :1], "linear")


@dataclass(frozen=True)
class _Run:
    """One run of a layer with a bias: where the gradient by its output flows, and the bias in the output's shape."""

    name: str
    layer: nn.Module | None
    edge: GradientEdge
    bias: Tensor


def _compute_terms(
    model: Model, x: Tensor, targets: Tensor | None, create_graph: bool
) -> tuple[Tensor, list[tuple[str, nn.Module | None, Tensor]], Tensor]:
    """`x * gradient`; for each run of a layer its name, the layer and `bias * gradient` at its output; the logits."""
    runs: list[_Run] = []
    with torch.enable_grad():
        leaf = make_leaf(x, create_graph)
        with _record_runs(model, x, runs), FunctionMode() as mode:
            logits = run_watched(mode, "fullgrad", model, leaf.clone())
        scores = select_scores(model, logits, targets)
        check_has_gradients(scores, leaf)
        edges = [get_gradient_edge(leaf), *(run.edge for run in runs)]
        gradients = torch.autograd.grad(
            scores.sum(), edges, create_graph=create_graph, allow_unused=True
        )
    with torch.set_grad_enabled(create_graph):
        product = x * gradients[0]
        terms = []
        for run, gradient in zip(runs, gradients[1:], strict=True):
            if gradient is None:
                term = torch.zeros_like(run.bias)
            else:
                term = gradient * run.bias
            terms.append((run.name, run.layer, term))
    if not create_graph:
        logits = logits.detach()
    return product, terms, logits


@contextlib.contextmanager
def _record_runs(model: Model, x: Tensor, runs: list[_Run]) -> Iterator[None]:
    """Add to `runs` every layer with a bias that runs inside, the preprocessing first."""
    for program in model.module.modules():
        if isinstance(program, torch.fx.GraphModule) and not weight_layers(program):
            raise ModelError(
                "fullgrad: expected a module whose layers are modules, got an exported program without any"
            )
    handles = []

    def watch(name: str, layer: nn.Module, bias: Tensor) -> None:
        def record_run(_layer: nn.Module, _args: Any, out: Tensor) -> Tensor | None:
            # it does not depend on the input, but the logit depends on it
            constant = not out.requires_grad
            if constant:
                out = out.detach().requires_grad_(True)
            bias_of_output = _expand_bias(layer, bias, out)
            runs.append(_Run(name, layer, get_gradient_edge(out), bias_of_output))
            # a layer that works in place may not write to what is a leaf of the graph now
            return out.clone() if constant else None

        handles.append(layer.register_forward_hook(record_run))

    def record_shift(_module: nn.Module, args: Any) -> None:
        assert model.preprocess is not None
        preprocessed = args[0]
        if preprocessed.requires_grad:
            with torch.no_grad():
                # what an affine preprocessing adds is its value at 0
                shift = model.preprocess(torch.zeros_like(x[:1])).expand_as(preprocessed)
            runs.append(_Run(_SHIFT, None, get_gradient_edge(preprocessed), shift))

    try:
        if model.preprocess is not None:
            handles.append(model.module.register_forward_pre_hook(record_shift))
        for name, layer in model.module.named_modules():
            bias = _find_bias(layer)
            if bias is not None:
                watch(name or "module", layer, bias)
        yield
    finally:
        for handle in handles:
            handle.remove()


def _find_bias(layer: nn.Module) -> Tensor | None:
    """The constant that a layer adds, one number for each output channel; `None` if it adds none."""
    if isinstance(layer, _NORMS):
        if layer.running_mean is None or layer.running_var is None:
            return None  # it normalises by the statistics of its batch
        scale = (layer.running_var + layer.eps).rsqrt()
        scale = scale if layer.weight is None else scale * layer.weight.detach()
        shift = -layer.running_mean * scale
        if layer.bias is None:
            return shift
        return shift + layer.bias.detach()
    if isinstance(layer, (*CONVOLUTIONS, nn.Linear)):
        if isinstance(layer.bias, Tensor):
            return layer.bias.detach()
        return None
    return None


def _expand_bias(layer: nn.Module, bias: Tensor, out: Tensor) -> Tensor:
    """The bias `(K,)` in the shape of the output, along the axis of the layer's channels."""
    if isinstance(layer, nn.Linear):
        return bias.expand_as(out)
    positions = [1] * (out.ndim - 2)
    return bias.reshape(-1, *positions).expand_as(out)
