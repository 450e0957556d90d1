"""Grad-CAM: a coarse map of where the output of one layer supports the target class."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import Node, get_gradient_edge

from standfast.errors import ModelError, check, warn_user
from standfast.explainers.attention.attention_calls import AttentionWatch
from standfast.explainers.attention.tokens import Grid, GridOption, arrange_tokens, find_token_grid
from standfast.explainers.base import (
    Explainer,
    Explanation,
    explainers,
    make_leaf,
    record_choice,
    select_scores,
)
from standfast.function_calls import (
    FunctionMode,
    check_has_gradients,
    compute_gradient,
    find_sources,
    run_eagerly,
    split_names,
    walk_graph,
)
from standfast.model import Model, module_name
from standfast.needs import Needs

Interpolation = Literal["linear", "nearest"]
_CONVOLUTIONS = (nn.modules.conv._ConvNd,)
_TOKEN_NORMS = (nn.LayerNorm, nn.RMSNorm)
_FEATURES_LAST = (*_TOKEN_NORMS, nn.Linear, nn.MultiheadAttention)
_FEATURES_SECOND = (*_CONVOLUTIONS, nn.modules.batchnorm._BatchNorm, nn.GroupNorm)
_CONCATENATIONS = split_names("cat concat concatenate")
#: how a module of waveforms, which adds the axis of channels itself, is given inputs that have one
_SERIES = (
    "Inputs (N, T) are read as rows of a table. Give waveforms as series (N, 1, T), with"
    " Model(..., forward=lambda module, x: module(x[:, 0]))"
)
# nodes of the graph, without the number at the end of the name
_SUMS = {"AddBackward", "SubBackward"}
_PRODUCTS = {"MulBackward", "DivBackward"}


@explainers.register("gradcam")
@dataclass(frozen=True)
class GradCAM(Explainer):
    """The channels of a late layer, weighted by their mean gradients, at the input's size.

    `relu(sum over k of a_k A^k)`, `a_k` the mean over positions of `d f_t / d A^k`.

    Selvaraju et al., Grad-CAM: visual explanations from deep networks via gradient-based localization, ICCV 2017,
    Equations 1 and 2. `A` `(N, K, h, w)` is the output of `layer`. The map `(N, 1, h, w)` is resized to the input's
    spatial size and repeated over its channels. For images `(N, C, H, W)`, series and embedded text `(N, C, T)`. Raw
    waveforms `(N, T)` are refused, with the way that takes them as series `(N, 1, T)`.

    In a transformer the positions are tokens: `A` is `(N, T, K)`, with the tokens of the patches in reading order after
    special ones (class, distillation, registers), which are left out; or `(N, h, w, K)`, as in Swin. Layers whose
    features are on the last axis (layer normalisation, linear layers, and blocks of these without a convolution) are
    read in this way.

    By default the layer is the last convolution that feeds the logits: of those that run in this forward pass and whose
    outputs have more than one position, the last one on the way to the logits. So it is no gate behind a global
    pooling (squeeze and excitation), no auxiliary head, and no layer that does not run. More exactly:

    - Of a sum, the longest branch counts, and not its shortcut. A gate computed from the features that it weights does
      not count.
    - What is concatenated along the channels counts as one layer (Inception, DenseNet), whose parts `A` has side by
      side.
    - Of other branches that run side by side, the longest one is taken, the last one of equals; a warning names them.
    - Of a layer that runs several times, the last run is taken.
    - If no convolution has more than one position, it is the last one; a warning says that its map is constant.
    - If attention runs after the convolution, as in a vision transformer, it is the last layer normalisation before the
      last attention (in timm's ViT `blocks.11.norm1`). Behind the last attention of a network with a class token the
      logits depend on that token alone, and gradients by all patches are zero. In a transformer whose normalisation is
      no `nn.LayerNorm` or `nn.RMSNorm`, it is the convolution that embeds the patches.

    The results of metrics name the layer and its grid (`Result.choices`), and so does the report of a study.

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
        ModelError: on a call, the named layer does not run exactly once or does not feed the logits, there is no layer
            to choose, or its tokens cannot be placed in the input.

    >>> from standfast.model import Model
    >>> _ = torch.manual_seed(0)
    >>> module = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))
    >>> GradCAM()(Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(5, 2, 8)).shape
    torch.Size([5, 2, 8])
    """

    layer: str | None = None
    relu: bool = True
    interpolation: Interpolation = "linear"
    grid: GridOption = None
    name = "gradcam"
    has_signs = True
    needs = Needs(
        gradients=True, other="a convolution or a transformer, or layer=NAME; images or series"
    )
    differentiable = True
    gateable = True

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        with (
            keep_layer_output(
                model.module, self.layer, x, self.label, detached=not create_graph, grid=self.grid
            ) as kept,
            torch.enable_grad(),
        ):
            inputs = make_leaf(x, True) if create_graph else x.detach().clone()
            logits = model.forward(inputs)
            output = kept.find(logits)
            gradient = compute_gradient(select_scores(model, logits, targets), output, create_graph)
        with torch.set_grad_enabled(create_graph):
            maps = self.make_maps(kept, gradient, output, x)
        if create_graph:
            return (maps, logits)
        return (maps.detach(), logits.detach())

    def make_maps(self, kept: KeptOutput, gradient: Tensor, output: Tensor, x: Tensor) -> Tensor:
        """The maps like `x` from a layer's output and the gradient of the target's logit by it."""
        gradient = kept.arrange(gradient)
        positions = tuple(range(2, gradient.ndim))
        # Equation 1: `a_k`
        weights = gradient.mean(positions, keepdim=True)
        # Equation 2, before its rectifier
        maps = (weights * kept.arrange(output)).sum(1, keepdim=True)
        if self.relu:
            maps = F.relu(maps)
        return resize(maps, x, self.interpolation)


@dataclass(eq=False)
class _Run:
    """One run of a layer, or without a layer a concatenation of the outputs of layers along the channels.

    Attributes:
        name: of the layer.
        output: of the layer.
        attentions: how many of them ran before it.
        parts: the runs that its inputs come from without another run in between.
        before: all runs that its inputs come from.
        depth: the number of runs on the longest way from the input to its output.
    """

    name: str
    layer: nn.Module | None
    output: Tensor
    attentions: int
    parts: frozenset[_Run] = frozenset()
    before: frozenset[_Run] = frozenset()
    depth: int = 1


class KeptOutput(FunctionMode):
    """The output of one layer while a module runs, so that it can be differentiated by.

    Args:
        module: runs once.
        wanted: the layer's name, or `None` for the layer that `GradCAM` takes by default.
        x: the inputs of the forward pass.
        who: the name of the explainer, for messages.
        detached: leave what comes before the layer, or before the first one to choose from, out of the graph.
        grid: that of the patches, if the user names one.
    """

    names: frozenset[str] | None = _CONCATENATIONS

    def __init__(
        self,
        module: nn.Module,
        wanted: str | None,
        x: Tensor,
        who: str,
        *,
        detached: bool,
        grid: Grid | None,
    ) -> None:
        super().__init__()
        self.module = module
        self.wanted = wanted
        self.x = x
        self.who = who
        self.detached = detached
        self.grid = grid
        self.norms = _list_layers(module, _TOKEN_NORMS)
        #: attention is looked for only where layer normalisation is
        self.watch = AttentionWatch(len(x)) if self.norms else None
        self.runs: list[_Run] = []
        #: what `find` has found: the layer, or the parts of a concatenation; and whether its positions are tokens
        self.found: list[nn.Module] = []
        self.of_tokens = False
        #: a layer with positions although the inputs, rows of numbers, have none
        self.inner_series = ""

    def layers(self) -> list[tuple[str, nn.Module]]:
        """The layers whose outputs have to be kept."""
        if self.wanted is not None:
            layer = find_layer(self.module, self.wanted)
            return [(self.wanted, layer)]
        return _list_layers(self.module, _CONVOLUTIONS) + self.norms

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Keep what is concatenated along the channels."""
        out = func(*args, **kwargs)
        is_like_inputs = out.ndim == self.x.ndim >= 3 and len(out) == len(self.x)
        if not out.requires_grad or not is_like_inputs:
            return out
        # the axis stands last
        options = [*args[1:], *kwargs.values()]
        if options and options[-1] in (1, 1 - out.ndim):
            return self._keep("", None, out)
        return out

    def keep(self, name: str, layer: nn.Module, out: Any) -> Any:
        """Keep the output of one run of a layer; what the module goes on with."""
        fits = self._has_positions(layer, out)
        if self.wanted is None:
            if self._is_inner_series(out):
                self.inner_series = name
            if fits and self._has_tokens(layer, out):
                return self._keep(name, layer, out)
            return out
        got = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        expected = f"a layer with outputs (N, channels, positions...) for inputs of shape {tuple(self.x.shape)}"
        if self._is_inner_series(out):
            expected = f"a layer whose positions are those of the inputs. {_SERIES}"
        check(fits, "layer", expected, f"{name!r} with output {got}")
        return self._keep(name, layer, out)

    def _keep(self, name: str, layer: nn.Module | None, out: Tensor) -> Tensor:
        # what comes before is left out of the graph, which then begins here
        if self.detached and not out.requires_grad:
            out = out.detach().requires_grad_(True)
        attentions = len(self.watch.weights) if self.watch else 0
        self.runs.append(_Run(name, layer, out, attentions))
        return out.clone()  # the next layer may work in place

    def _is_inner_series(self, out: Any) -> bool:
        """Whether inputs are rows of numbers `(N, T)`, and a layer in the module sees them as `(N, channels, t)`."""
        return (
            self.x.ndim == 2
            and isinstance(out, Tensor)
            and out.ndim > 2
            and len(out) == len(self.x)
        )

    def _has_positions(self, layer: nn.Module, out: Any) -> bool:
        """Whether it has a value for each channel at each position, or for each feature of each token."""
        if not isinstance(out, Tensor) or out.ndim < 3 or len(out) != len(self.x):
            return False
        if out.ndim == self.x.ndim:
            return True
        is_of_tokens = out.ndim == 3 < self.x.ndim
        return is_of_tokens and not isinstance(layer, _FEATURES_SECOND)

    def _has_tokens(self, layer: nn.Module, out: Tensor) -> bool:
        """Whether a layer normalisation is that of tokens, not of channels `(N, K, h, w)` or of a head's queries."""
        if not isinstance(layer, _TOKEN_NORMS):
            return True
        if out.shape[-1] != layer.normalized_shape[-1]:
            return False
        if out.ndim == 3:
            return True
        # the axes of tokens `(N, h, w, K)` have the proportions of the image
        rows, columns = out.shape[1:3]
        height, width = self.x.shape[2:4]
        return rows * width == columns * height

    def find(self, logits: Tensor) -> Tensor:
        """The output as the layer gave it, once the module has run and returned `logits`.

        Warns if the layer has a single position, or if branches that run beside it feed the logits, too.

        Raises:
            ModelError: the logits have no gradients by the layer; it did not run exactly once; or none is named, and
                there is none to choose.
        """
        # a layer that runs twice has two outputs, and its name does not say which one is meant
        if self.wanted is not None and len(self.runs) != 1:
            text = (
                f"expected layer {self.wanted!r} to run once a forward pass, ran {len(self.runs)}x"
            )
            raise ModelError(f"{self.who}: {text}")
        if self.wanted is None:
            run = self._choose(logits)
        else:
            run = self.runs[0]
        name = self._describe(run)
        check_has_gradients(logits, run.output, f"layer {name}")
        self.found = [part.layer for part in self._list_parts(run) if part.layer is not None]
        has_features_last = run.layer is not None and _has_features_last(run.layer)
        self.of_tokens = run.output.ndim < self.x.ndim or has_features_last
        positions = self.arrange(run.output).shape[2:]
        size = " x ".join(map(str, positions))
        record_choice("layer", f"{name} ({size} positions)")
        if math.prod(positions) == 1:
            warn_user(
                f"{self.who}: the map is constant, because layer {name} has a {size} grid; name another by `layer`"
            )
        return run.output

    def _choose(self, logits: Tensor) -> _Run:
        """The last layer with positions on the way to the logits; warns of branches that run beside it."""
        ends = self._find_ends(logits)
        if not ends:
            self._refuse_all(logits)
        if len(ends) > 1:
            *beside, taken = map(self._describe, ends)
            others = " and ".join(beside)
            warn_user(
                f"{self.who}: the map is that of layer {taken}, and not of {others} beside it; choose by `layer`"
            )
        return ends[-1]

    def _find_ends(self, logits: Tensor) -> list[_Run]:
        """The last convolution of each branch, the longest branch last; or the normalisation of a later attention."""
        convolutions = [run for run in self.runs if not isinstance(run.layer, _TOKEN_NORMS)]
        with_positions = [run for run in convolutions if math.prod(run.output.shape[2:]) > 1]
        # if none has more than one position, a constant map is better than none, with a warning
        flows = _find_runs_below(logits, with_positions or convolutions)
        last = flows.get(logits.grad_fn, frozenset())
        followed: set[_Run] = set()
        for run in last:
            followed.update(run.before)
        # a run that feeds a later one is not the last of its branch
        ends = [run for run in convolutions if run in last and run not in followed]
        ends.sort(key=lambda run: run.depth)
        attentions = self._count_attentions(flows)
        if ends and ends[-1].attentions >= attentions:
            return ends
        # behind the last attention only the class token has gradients (see the class)
        return self._find_norm(flows, attentions) or ends

    def _find_norm(self, flows: Mapping[Any, Any], attentions: int) -> list[_Run]:
        """The last normalisation of tokens on the way to the logits before the attention of this number, if any."""
        norms = []
        for run in self.runs:
            is_before = isinstance(run.layer, _TOKEN_NORMS) and run.attentions < attentions
            if is_before and _find_node(run.output) in flows:
                norms.append(run)
        return norms[-1:]

    def _count_attentions(self, flows: Mapping[Any, Any]) -> int:
        """The number of the last attention on the way to the logits; 0 without one."""
        last = 0
        weights = self.watch.weights if self.watch else []
        for number, of_layer in enumerate(weights, 1):
            if _find_node(of_layer) in flows:
                last = number
        return last

    def _refuse_all(self, logits: Tensor) -> NoReturn:
        """Raise `ModelError` for a module without a layer that has positions, with the cause where it is known."""
        if self.runs:
            check_has_gradients(logits, self.runs[-1].output, "a layer with positions")
        if self.inner_series:
            got = f"(N, {self.x.shape[1]}), of which the module makes positions for its layer {self.inner_series!r}"
            raise ModelError(f"{self.who}: expected inputs with positions, got {got}. {_SERIES}")
        words = "with outputs (N, channels, positions...) that it can see (not in TorchScript or a program)"
        raise ModelError(
            f"{self.who} needs a convolution, and this {module_name(self.module)} has none {words}; its option"
            " `layer` can name another layer"
        )

    def _list_parts(self, run: _Run) -> list[_Run]:
        """The layers whose outputs are concatenated, in the order in which they ran; of a layer itself."""
        parts: list[_Run] = []
        if run.layer is not None:
            parts.append(run)
        else:
            for part in run.parts:
                parts += self._list_parts(part)
        return [recorded for recorded in self.runs if recorded in parts]

    def _describe(self, run: _Run) -> str:
        parts = self._list_parts(run)
        first = parts[0]
        last = parts[-1]
        if len(parts) == 1:
            return repr(first.name)
        joint = "and" if len(parts) == 2 else "to"
        return f"{first.name!r} {joint} {last.name!r}, {len(parts)} layers concatenated"

    def arrange(self, values: Tensor) -> Tensor:
        """Values in the shape of the output, as channels at positions: `(N, K, positions...)`."""
        if not self.of_tokens:
            return values
        if values.ndim > 3:
            return values.movedim(-1, 1)
        convolved = self.watch.grid if self.watch else None
        try:
            grid = find_token_grid(
                values.shape[1], self.x.shape[1:], self.grid, convolved, self.who
            )
        except ModelError as error:
            raise ModelError(f"{error}{self._suggest_convolution()}") from error
        return arrange_tokens(values, grid)

    def _suggest_convolution(self) -> str:
        """What to say of the last convolution that ran, whose positions need no grid; empty without one."""
        names = [run.name for run in self.runs if isinstance(run.layer, _CONVOLUTIONS)]
        if names:
            return f", and `layer` can name a convolution, such as {names[-1]!r}"
        return ""


@contextlib.contextmanager
def keep_layer_output(
    module: nn.Module,
    wanted: str | None,
    x: Tensor,
    who: str,
    *,
    detached: bool,
    grid: Grid | None = None,
) -> Iterator[KeptOutput]:
    """Keep the output of one layer while `module` runs inside; the arguments are those of `KeptOutput`.

    Raises:
        ArgumentError: there is no such layer; on the forward pass, its outputs have no positions.
    """
    kept = KeptOutput(module, wanted, x, who, detached=detached, grid=grid)
    handles = [
        layer.register_forward_hook(lambda own, args, out, name=name: kept.keep(name, own, out))
        for name, layer in kept.layers()
    ]
    try:
        # compiled code calls no hooks; a mode of functions runs modules eagerly by itself
        way = kept if wanted is None else run_eagerly()
        with way, kept.watch or contextlib.nullcontext():
            yield kept
    finally:
        for handle in handles:
            handle.remove()


def _find_node(values: Tensor) -> Node | None:
    if values.requires_grad:
        return get_gradient_edge(values).node
    return None


def _find_runs_below(logits: Tensor, runs: Sequence[_Run]) -> dict[Node | None, frozenset[_Run]]:
    """Which of these runs each node of the graph of the logits comes from, without another run in between."""
    at = {_find_node(run.output): run for run in runs}
    flows = dict[Node | None, frozenset[_Run]]()
    for node in walk_graph(logits):
        from_sources = [flows[source] for source in find_sources(node)]
        last = frozenset[_Run]().union(*from_sources)
        last = _drop_side_branches(node, last)
        run = at.get(node)
        # a concatenation counts only where it joins several layers
        if run is not None and (run.layer is not None or len(last) > 1):
            run.parts = last
            run.before = last.union(*(part.before for part in last))
            run.depth = 1 + max((part.depth for part in last), default=0)
            last = frozenset({run})
        flows[node] = last
    return flows


def _drop_side_branches(node: Node, runs: frozenset[_Run]) -> frozenset[_Run]:
    """Those of the runs before a node that count.

    Of a sum at positions this is the longest branch, and not its shortcut. A factor that is computed from another one
    is a gate, and does not count.
    """
    if len(runs) <= 1:
        return runs
    shapes = [branch.shape for branch in node._input_metadata]
    if all(math.prod(shape[2:]) <= 1 for shape in shapes):
        return runs
    # without its number
    kind = type(node).__name__[:-1]
    if kind in _SUMS:
        deepest = max(run.depth for run in runs)
        return frozenset(run for run in runs if run.depth == deepest)
    if kind in _PRODUCTS:
        return frozenset(run for run in runs if not run.before & runs)
    return runs


def _list_layers(
    module: nn.Module, kinds: tuple[type[nn.Module], ...]
) -> list[tuple[str, nn.Module]]:
    return [(name, layer) for name, layer in module.named_modules() if isinstance(layer, kinds)]


def _has_features_last(layer: nn.Module) -> bool:
    """Whether the features of a layer's outputs are on the last axis, by the layers that it is made of."""
    has_last = False
    for part in layer.modules():
        if isinstance(part, _FEATURES_SECOND):
            return False
        has_last = has_last or isinstance(part, _FEATURES_LAST)
    return has_last


def resize(maps: Tensor, like: Tensor, interpolation: Interpolation) -> Tensor:
    """`maps` `(N, 1 or C, h, w)` or `(N, 1 or C, t)`, resized to `like` `(N, C, H, W)` or `(N, C, T)`.

    A single channel is repeated over all channels.
    """
    if interpolation == "nearest":
        mode = "nearest"
    else:
        mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[like.ndim]
    if maps.shape[2:] != like.shape[2:]:
        # torch allows the option for these modes only
        align_corners = None if mode == "nearest" else False
        maps = F.interpolate(maps, like.shape[2:], mode=mode, align_corners=align_corners)
    return maps.expand_as(like).contiguous()


def find_layer(module: nn.Module, wanted: str) -> nn.Module:
    """The layer called `wanted`, as in `module.named_modules()`; `ArgumentError` if there is none."""
    layers: dict[str, nn.Module] = dict(module.named_modules())
    names = ", ".join(repr(name) for name in layers if name)
    check(wanted in layers, "layer", f"one of {names}", repr(wanted))
    return layers[wanted]


def choose_layers(model: Model, x: Tensor, who: str) -> list[nn.Module]:
    """The layer that `GradCAM` takes by default, or those that it concatenates.

    Args:
        model: has the layers.
        x: inputs `(N, ...)`, which are forwarded.
        who: the name of the explainer, for messages.

    Raises:
        ModelError: there is no layer to choose.

    >>> module = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2))
    >>> choose_layers(Model(module, bounds=(0.0, 1.0), device="cpu"), torch.rand(5, 2, 8), "example")
    [Conv1d(2, 3, kernel_size=(3,), stride=(1,))]
    """
    with keep_layer_output(model.module, None, x, who, detached=True) as kept, torch.enable_grad():
        kept.find(model.forward(x.detach().clone()))
    return kept.found
