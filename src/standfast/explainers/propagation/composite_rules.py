"""Rules of layer-wise relevance propagation for weighted layers, and a mode that applies a composite of them.

Each rule divides the relevance `R_j` of a layer's outputs between its inputs `a_i`, with weights `w` and biases `b`. A
plus marks the part of at least 0, a minus that of at most 0. With `s(z) = z + epsilon` for `z >= 0` and `z - epsilon`
below, and with all sums over the inputs:

- `epsilon`: `R_i = sum_j a_i w_ij R_j / s(z_j)`, `z_j = sum a_i w_ij + b_j`;
- `z_plus`: the positive products `p_ij = a_i+ w_ij+ + a_i- w_ij-`: `R_i = sum_j p_ij R_j / s(sum p_ij + b_j+)`;
- `alpha2_beta1`: twice `z_plus`, minus the same of the negative products `a_i+ w_ij- + a_i- w_ij+` and `b_j-`;
- `gamma`: `epsilon` with weights `w + gamma w+` for positive inputs and `w + gamma w-` for negative ones where z_j is
  above 0; with the two exchanged where it is below; biases as the weights of positive inputs;
- `box`, for inputs within `[l, h]`: `R_i = sum_j q_ij R_j / s(sum q_ij)`, `q_ij = x_i w_ij - l_i w_ij+ - h_i w_ij-`;
- `flat`: relevance is divided equally between all inputs of a unit.

Sources: Bach et al. (PLoS ONE 10(7), 2015) for epsilon and alpha-beta; Montavon et al. (Pattern Recognition 65, 2017)
for z-plus and the box; Montavon et al., "Layer-wise relevance propagation: an overview" (2019) for gamma, and Andeol et
al. (2021) for its form with negative inputs; Lapuschkin et al. (Nature Communications 10, 2019) for flat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from standfast.explainers.propagation.difference_rules import MAX_POOLS, find_carriers
from standfast.explainers.propagation.relevance_rules import MOVES, EpsilonRule, PassThrough, make_rule_error
from standfast.explainers.propagation.taylor_rules import Share, identify, replace_carriers
from standfast.function_calls import bind_arguments, is_decomposed, split_names, strip_underscore

RuleName = Literal["epsilon", "z_plus", "alpha2_beta1", "gamma", "box", "flat"]

_CONVOLUTIONS = split_names("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d")
# functions that shift and scale every value alone, so that they can be applied to the ends of a box
_ELEMENTWISE = split_names("add sub mul div __add__ __radd__ __sub__ __rsub__ rsub __mul__ __rmul__ true_divide")


@dataclass(frozen=True)
class WeightedCall:
    """A call of a linear function or a convolution.

    Attributes:
        source: its input.
        weight, bias: its parameters; no bias is None.
        call: `call(values, weight, bias)`, with its other options.
        channels: the axis of the weight that belongs to the output's channels; None where they are split into groups.
        dense: it is a linear layer and no convolution.
        box: the smallest and largest possible values of the source, if that is the module's input, moved or scaled.
    """

    source: Tensor
    weight: Tensor
    bias: Tensor | None
    call: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    channels: int | None
    dense: bool
    box: tuple[Tensor, Tensor] | None

    def pull(self, values: Tensor, weight: Tensor, share: Tensor) -> Tensor:
        """`values_i sum_j weight_ij share_j`: the contributions of the values, weighted by shares of the outputs."""
        leaf = values.detach().requires_grad_(True)
        with torch.enable_grad():
            out = self.call(leaf, weight, None)
        return values.detach() * torch.autograd.grad(out, leaf, share)[0]


def divide_relevance(
    rule: RuleName, layer: WeightedCall, a: Tensor, relevance: Tensor, epsilon: float, gamma: float
) -> Tensor:
    """The relevance of a layer's inputs `a` `(N, ...)`, from that of its outputs, by one of the rules."""
    w, b = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
    call, pull = layer.call, layer.pull
    up, down = a.clamp(min=0), a.clamp(max=0)
    w_up, w_down = w.clamp(min=0), w.clamp(max=0)
    b_up, b_down = (None, None) if b is None else (b.clamp(min=0), b.clamp(max=0))

    def positive() -> Tensor:
        share = _over(relevance, call(up, w_up, b_up) + call(down, w_down, None), epsilon)
        return pull(up, w_up, share) + pull(down, w_down, share)

    if rule == "epsilon":
        return pull(a, w, _over(relevance, call(a, w, b), epsilon))
    if rule == "z_plus":
        return positive()
    if rule == "alpha2_beta1":
        share = _over(relevance, call(up, w_down, b_down) + call(down, w_up, None), epsilon)
        return 2 * positive() - pull(up, w_down, share) - pull(down, w_up, share)
    if rule == "gamma":
        more, less = w + gamma * w_up, w + gamma * w_down
        b_more, b_less = (None, None) if b is None else (b + gamma * b_up, b + gamma * b_down)  # type: ignore[operator]
        z = call(a, w, b)
        above = _over(relevance, call(up, more, b_more) + call(down, less, None), epsilon) * (z > 0)
        below = _over(relevance, call(up, less, b_less) + call(down, more, None), epsilon) * (z < 0)
        return pull(up, more, above) + pull(down, less, above) + pull(up, less, below) + pull(down, more, below)
    if rule == "flat":
        ones = torch.ones_like(w)
        each = torch.ones_like(a)
        return pull(each, ones, _over(relevance, call(each, ones, None), epsilon))
    assert layer.box is not None
    low, high = layer.box
    share = _over(relevance, call(a, w, None) - call(low, w_up, None) - call(high, w_down, None), epsilon)
    return pull(a, w, share) - pull(low, w_up, share) - pull(high, w_down, share)


def _over(relevance: Tensor, z: Tensor, epsilon: float) -> Tensor:
    divisor = torch.where(z >= 0, z + epsilon, z - epsilon)
    empty = divisor == 0  # only if epsilon is 0 or vanishes in rounding; such units pass on no relevance
    return torch.where(empty, 0.0, relevance / torch.where(empty, 1.0, divisor))


class CompositeRule(EpsilonRule):
    """Inside, backward passes propagate relevance by one rule for convolutions and one for linear layers.

    The layers that read the module's input may have another one. Use it once: call `begin` with the inputs, then
    forward these inputs inside.
    """

    def __init__(
        self, convolution: RuleName, dense: RuleName, first: RuleName | None, epsilon: float, gamma: float
    ) -> None:
        super().__init__(epsilon)
        self.convolution, self.dense, self.first, self.gamma = convolution, dense, first, gamma
        # by memory and geometry, as in `TaylorRule`; versions tell whether the values were overwritten since
        self._boxes: dict[Any, tuple[Tensor, int, tuple[Tensor, Tensor]]] = {}
        self._calls: dict[Any, tuple[Tensor, int, WeightedCall]] = {}

    def begin(self, inputs: Tensor, low: Tensor, high: Tensor) -> None:
        """Announce the inputs of the module, whose values lie between `low` and `high` of the same shape."""
        self._boxes[identify(inputs)] = (inputs, inputs._version, (low, high))

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._boxes.clear()
        self._calls.clear()

    def run(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, so that its backward pass divides relevance by the rule for this function."""
        carrying = find_carriers([*args, *kwargs.values()])
        if carrying and name in MAX_POOLS:  # relevance goes to the largest value, as the gradient does
            return self._follow_box(carrying, func, args, kwargs, func(*args, **kwargs))
        if len(carrying) == 1 and (name == "linear" or name in _CONVOLUTIONS):
            given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
            if given["input"] is carrying[0]:
                return self._apply(self._read_call(name, func, args, given))
        if carrying and name == "batch_norm":
            merged = self._merge(bind_arguments(func, args, kwargs))
            if merged is not None:
                return merged
            result = PassThrough.apply(  # type: ignore[no-untyped-call]
                carrying[0], lambda a: _call_with(func, args, kwargs, a)
            )
            return self._follow_box(carrying, func, args, kwargs, result)
        if len(carrying) == 1 and name in _ELEMENTWISE:
            return self._scale(carrying, func, args, kwargs)
        plain = strip_underscore(name)
        if len(carrying) == 1 and plain in _ELEMENTWISE and args and args[0] is carrying[0]:  # in place
            args = [args[0].clone(), *args[1:]]
            result = self._scale(args[:1], getattr(torch, plain), args, kwargs)
            carrying[0].copy_(result)
            return carrying[0]
        if carrying and is_decomposed(name, func):
            box = None if self.first is None else self._recall(self._boxes, carrying[0])
            if (self.dense if box is None else self.first) != "epsilon":  # that of other products
                raise make_rule_error(self.who, name, func)
        result = super().run(name, func, args, kwargs)
        return self._follow_box(carrying, func, args, kwargs, result) if carrying and name in MOVES else result

    def _scale(
        self, carrying: list[Tensor], func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Tensor:
        """Shift or scale each value alone: it keeps its relevance; the epsilon rule gives a share to constants."""
        (a,) = carrying

        def function(values: Tensor) -> Tensor:
            return _call_with(func, args, kwargs, values)  # type: ignore[no-any-return]

        with torch.no_grad():
            result = function(a)
        same = result.shape == a.shape
        result = PassThrough.apply(a, function) if same else self._share(func, args, kwargs)  # type: ignore[no-untyped-call]
        return self._follow_box(carrying, func, args, kwargs, result)  # type: ignore[no-any-return]

    def _recall(self, known: dict[Any, tuple[Tensor, int, Any]], values: Tensor) -> Any:
        """What is known of a tensor; None if nothing is, or if its values were overwritten since."""
        recorded, version, found = known.get(identify(values), (values, -1, None))
        return found if recorded._version == values._version == version else None

    def _follow_box(
        self, carrying: list[Tensor], func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], result: Any
    ) -> Any:
        """Note the smallest and largest possible values of a result that is the module's input, moved or scaled."""
        box = self._recall(self._boxes, carrying[0]) if len(carrying) == 1 and isinstance(result, Tensor) else None
        if box is not None and identify(result) not in self._boxes:
            with torch.no_grad():
                ends = [_call_with(func, args, kwargs, end.clone()) for end in box]
            least, most = torch.minimum(*ends), torch.maximum(*ends)
            self._boxes[identify(result)] = (result, result._version, (least, most))
        return result

    def _read_call(self, name: str, func: Callable[..., Any], args: list[Any], given: dict[str, Any]) -> WeightedCall:
        rest = args[3:]
        options = {key: value for key, value in given.items() if key not in ("input", "weight", "bias")}

        def call(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return func(values, weight, bias, *rest, **options)  # type: ignore[no-any-return]

        transposed = name.startswith("conv_transpose")
        groups = int(options.get("groups", rest[3] if len(rest) > 3 else 1)) if transposed else 1
        channels = (None if groups > 1 else 1) if transposed else 0
        source = given["input"]
        box = self._recall(self._boxes, source)
        return WeightedCall(source, given["weight"], given.get("bias"), call, channels, name == "linear", box)

    def _apply(self, layer: WeightedCall) -> Tensor:
        rule = self.dense if layer.dense else self.convolution
        if self.first is not None and layer.box is not None:
            rule = self.first
        result: Tensor = Share.apply(  # type: ignore[no-untyped-call]
            layer.source,
            lambda: layer.call(layer.source, layer.weight, layer.bias),
            lambda a, relevance: divide_relevance(rule, layer, a, relevance, self.epsilon, self.gamma),
        )
        self._calls[identify(result)] = (result, result._version, layer)
        return result

    def _merge(self, given: dict[str, Any]) -> Tensor | None:
        """The layer before a batch normalisation with its scale and shift merged into it; None without such a layer."""
        layer = self._recall(self._calls, given["input"])
        if (
            layer is None
            or given.get("training")
            or layer.channels is None
            or (layer.dense and given["input"].ndim > 2)
        ):
            return None
        mean, variance = given["running_mean"].detach(), given["running_var"].detach()
        scale = (variance + given.get("eps", 1e-5)).rsqrt()
        if given.get("weight") is not None:
            scale = scale * given["weight"].detach()
        old = torch.zeros_like(mean) if layer.bias is None else layer.bias.detach()
        bias = (old - mean) * scale + (0.0 if given.get("bias") is None else given["bias"].detach())
        sizes = [1] * layer.weight.ndim
        sizes[layer.channels] = -1
        weight = layer.weight.detach() * scale.reshape(sizes)
        return self._apply(WeightedCall(layer.source, weight, bias, layer.call, layer.channels, layer.dense, layer.box))


def _call_with(func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], values: Tensor) -> Any:
    """Call a function with `values` in the place of the tensor that carries relevance."""
    return func(*replace_carriers(args, lambda _: values), **replace_carriers(kwargs, lambda _: values))
