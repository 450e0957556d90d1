"""Rules of layer-wise relevance propagation for weighted layers, and a mode that applies a composite of them.

Each rule divides the relevance `R_j` of a layer's outputs between its inputs `a_i`, with weights `w` and biases `b`. A
plus marks the part of at least 0, a minus that of at most 0. With `s(z) = z + epsilon` for `z >= 0` and `z - epsilon`
below, and with all sums over the inputs:

- `epsilon`: `R_i = sum_j a_i w_ij R_j / s(z_j)`, `z_j = sum a_i w_ij + b_j`;
- `z_plus`: the positive products `p_ij = a_i+ w_ij+ + a_i- w_ij-`: `R_i = sum_j p_ij R_j / s(sum p_ij + b_j+)`;
- `taylor`: `z_plus` without the biases, `R_i = sum_j p_ij R_j / s(sum p_ij)`;
- `alpha2_beta1`: twice `z_plus`, minus the same of the negative products `a_i+ w_ij- + a_i- w_ij+` and `b_j-`;
- `gamma`: `epsilon` with weights `w + gamma w+` for positive inputs and `w + gamma w-` for negative ones where z_j is
  above 0; with the two exchanged where it is below; biases as the weights of positive inputs;
- `box`, for inputs within `[l, h]`: `R_i = sum_j q_ij R_j / s(sum q_ij)`, `q_ij = x_i w_ij - l_i w_ij+ - h_i w_ij-`;
- `flat`: relevance is divided equally between all inputs of a unit.

Sources: Bach et al. (PLoS ONE 10(7), 2015) for epsilon and alpha-beta; Montavon et al. (Pattern Recognition 65, 2017)
for z-plus, its form without biases, and the box; Montavon et al., "Layer-wise relevance propagation: an overview"
(2019) for gamma, and Andeol et al. (2021) for its form with negative inputs; Lapuschkin et al. (Nature Communications
10, 2019) for flat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor

from standfast.explainers.propagation.difference_rules import MAX_POOLS, find_carriers
from standfast.explainers.propagation.relevance_rules import (
    MOVES,
    WEIGHTED,
    EpsilonRule,
    PassThrough,
    Records,
    SharedRelevance,
    WeightedCall,
    call_with,
    divide_stabilised,
    make_rule_error,
    read_weighted_call,
)
from standfast.function_calls import bind_arguments, is_decomposed, split_names, strip_underscore

LayerRule = Literal["epsilon", "z_plus", "taylor", "alpha2_beta1", "gamma", "flat"]
RuleName = LayerRule | Literal["box"]
_Box = tuple[Tensor, Tensor]
# functions that shift and scale every value alone, so that they can be applied to the ends of a box
_ELEMENTWISE = split_names(
    "add sub mul div __add__ __radd__ __sub__ __rsub__ rsub __mul__ __rmul__ true_divide"
)


# parts of the input, the weight and the bias of a layer, as functions of their values and gamma
_PARTS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "all": lambda values, _: values,
    "+": lambda values, _: values.clamp(min=0),
    "-": lambda values, _: values.clamp(max=0),
    "more": lambda values, gamma: values + gamma * values.clamp(min=0),
    "less": lambda values, gamma: values + gamma * values.clamp(max=0),
    "ones": lambda values, _: torch.ones_like(values),
}


@dataclass(frozen=True)
class Term:
    """A share of the relevance, which is divided in proportion to contributions to one sum.

    Attributes:
        parts: the summands: outputs of the layer for a part of its input, of its weight and of its bias, named as in
            `_PARTS`. As inputs there are also `"-low"` and `"-high"`, the ends of the box; an empty bias is none.
        factor: of the relevance that is divided.
        where: only of outputs `"above"` or `"below"` zero; of all if it is empty.
    """

    parts: tuple[tuple[str, str, str], ...]
    factor: float = 1.0
    where: Literal["", "above", "below"] = ""


RULES: dict[RuleName, tuple[Term, ...]] = {
    "epsilon": (Term((("all", "all", "all"),)),),
    "z_plus": (Term((("+", "+", "+"), ("-", "-", ""))),),
    "taylor": (Term((("+", "+", ""), ("-", "-", ""))),),
    "alpha2_beta1": (
        Term((("+", "+", "+"), ("-", "-", "")), factor=2.0),
        Term((("+", "-", "-"), ("-", "+", "")), factor=-1.0),
    ),
    "gamma": (
        Term((("+", "more", "more"), ("-", "less", "")), where="above"),
        Term((("+", "less", "less"), ("-", "more", "")), where="below"),
    ),
    "box": (Term((("all", "all", ""), ("-low", "+", ""), ("-high", "-", ""))),),
    "flat": (Term((("ones", "ones", ""),)),),
}


def divide_relevance(
    rule: RuleName,
    layer: WeightedCall,
    box: _Box | None,
    a: Tensor,
    relevance: Tensor,
    epsilon: float,
    gamma: float,
) -> Tensor:
    """The relevance of a layer's inputs `a` `(N, ...)`, from that of its outputs, by one of the rules."""
    w = layer.weight.detach()
    b = None
    if layer.bias is not None:
        b = layer.bias.detach()
    ends: dict[str, Tensor] = {}
    if box is not None:
        low, high = box
        ends = {"-low": -low, "-high": -high}
    # `gamma` has other weights where the output is above 0 than where it is below
    out = None
    if any(term.where for term in RULES[rule]):
        out = layer.call(a, w, b)
    total: Tensor | None = None
    for term in RULES[rule]:
        leaves: list[Tensor] = []
        outputs: list[Tensor] = []
        for of_a, of_w, of_b in term.parts:
            part = ends[of_a] if of_a in ends else _PARTS[of_a](a, gamma)
            leaf = part.detach().requires_grad_(True)
            weight = _PARTS[of_w](w, gamma)
            bias = None
            if of_b and b is not None:
                bias = _PARTS[of_b](b, gamma)
            with torch.enable_grad():
                outputs.append(layer.call(leaf, weight, bias))
            leaves.append(leaf)
        with torch.enable_grad():
            z = reduce(torch.add, outputs)
        share = term.factor * divide_stabilised(relevance, z.detach(), epsilon)
        if out is not None:
            is_counted = out > 0 if term.where == "above" else out < 0
            share = share * is_counted
        slopes = torch.autograd.grad(z, leaves, share)
        # a part times the gradient of the sum by it is what it contributes
        for leaf, slope in zip(leaves, slopes, strict=True):
            contribution = leaf.detach() * slope
            total = contribution if total is None else total + contribution
    assert total is not None
    return total


class CompositeRule(EpsilonRule):
    """Inside, backward passes propagate relevance by one rule for convolutions and one for linear layers.

    The layers that read the module's input may have another one. Use it once, to forward the inputs.

    Args:
        rules: of convolutions, of linear layers, and of the layers that read the input; None if these have the others.
        epsilon, gamma: of the rules.
        inputs: of the module.
        box: the smallest and largest possible values of the inputs, of the same shape.
        only_first_convolution: whether linear layers that read the input have the rule of other linear layers.
    """

    def __init__(
        self,
        rules: tuple[RuleName, RuleName, RuleName | None],
        epsilon: float,
        gamma: float,
        inputs: Tensor,
        box: _Box,
        only_first_convolution: bool = False,
    ) -> None:
        super().__init__(epsilon)
        self.convolution, self.dense, first = rules
        self.first_convolution = first
        self.first_dense = None if only_first_convolution else first
        self.gamma = gamma
        #: the smallest and largest possible values of what is the module's input, moved or scaled
        self._boxes = Records[_Box]()
        self._boxes.note(inputs, box)
        #: which layers, with which boxes of their inputs, results come from
        self._layers = Records[tuple[WeightedCall, _Box | None]]()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._boxes.forget()
        self._layers.forget()

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function of torch, so that its backward pass divides relevance by the rule for this function."""
        carrying = find_carriers([*args, *kwargs.values()])
        if not carrying:
            return super().run(name, func, args, kwargs)
        if name in MAX_POOLS:  # relevance goes to the largest value, as the gradient does
            return self._follow_box(carrying, func, args, kwargs, func(*args, **kwargs))
        is_alone = len(carrying) == 1
        if is_alone and name in WEIGHTED:
            layer = read_weighted_call(name, func, args, kwargs)
            if layer.source is carrying[0]:
                return self._apply(layer, self._boxes.recall(layer.source))
        if name == "batch_norm":
            return self._normalise(carrying, func, args, kwargs)
        if is_alone and name in _ELEMENTWISE:
            return self._scale(carrying, func, args, kwargs)
        plain = strip_underscore(name)
        in_place = len(args) > 0 and args[0] is carrying[0]
        if is_alone and plain in _ELEMENTWISE and in_place:
            return self._scale_in_place(carrying[0], getattr(torch, plain), args[1:], kwargs)
        if is_decomposed(name, func):
            self._check_product(name, func, carrying[0])
        result = super().run(name, func, args, kwargs)
        if name in MOVES:
            return self._follow_box(carrying, func, args, kwargs, result)
        return result

    def _check_product(self, name: str, func: Callable[..., Any], values: Tensor) -> None:
        """Raise `ModelError` for a part of a layer, unless the layer would have the rule of all products, epsilon."""
        reads_input = self.first_dense is not None and self._boxes.recall(values) is not None
        rule = self.first_dense if reads_input else self.dense
        if rule != "epsilon":
            raise make_rule_error(self.who, name, func)

    def _normalise(
        self,
        carrying: list[Tensor],
        func: Callable[..., Any],
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        """A batch normalisation: merged into the layer before it, or else relevance passes through it."""
        merged = self._merge(bind_arguments(func, args, kwargs))
        if merged is not None:
            return merged
        result = PassThrough.apply(  # type: ignore[no-untyped-call]
            carrying[0], lambda a: call_with(func, args, kwargs, a)
        )
        return self._follow_box(carrying, func, args, kwargs, result)

    def _scale_in_place(
        self, values: Tensor, func: Callable[..., Any], constants: list[Any], kwargs: dict[str, Any]
    ) -> Tensor:
        """Values that are overwritten by what a function makes of them and of constants, with their box."""
        copy = self._follow_box([values], torch.clone, [values], {}, values.clone())
        result = self._scale([copy], func, [copy, *constants], kwargs)
        box = self._boxes.recall(result)
        values.copy_(result)
        if box is not None:
            self._boxes.note(values, box)
        return values

    def _scale(
        self,
        carrying: list[Tensor],
        func: Callable[..., Any],
        args: list[Any],
        kwargs: dict[str, Any],
    ) -> Tensor:
        """Shift or scale each value alone: it keeps its relevance; the epsilon rule gives a share to constants.

        A value that is scaled by 0, such as one behind a mask, has no influence, and so no relevance.
        """
        (a,) = carrying

        def function(values: Tensor) -> Tensor:
            return call_with(func, args, kwargs, values)  # type: ignore[no-any-return]

        def keep_relevance(relevance: Tensor, values: Tensor) -> list[Tensor]:
            with torch.enable_grad():
                leaf = values.detach().requires_grad_(True)
                (slope,) = torch.autograd.grad(function(leaf).sum(), leaf)
            return [torch.where(slope == 0, 0.0, relevance)]

        with torch.no_grad():
            result = function(a)
        if result.shape == a.shape:
            result = SharedRelevance.apply(lambda: function(a), keep_relevance, a)  # type: ignore[no-untyped-call]
        else:
            result = self._share(func, args, kwargs)
        return self._follow_box(carrying, func, args, kwargs, result)  # type: ignore[no-any-return]

    def _follow_box(
        self,
        carrying: list[Tensor],
        func: Callable[..., Any],
        args: list[Any],
        kwargs: dict[str, Any],
        result: Any,
    ) -> Any:
        """Note the smallest and largest possible values of a result that is the module's input, moved or scaled."""
        if len(carrying) == 1 and isinstance(result, Tensor):
            box = self._boxes.recall(carrying[0])
        else:
            box = None
        if box is not None and self._boxes.recall(result) is None:
            with torch.no_grad():
                ends = [call_with(func, args, kwargs, end.clone()) for end in box]
            # a negative factor exchanges the ends
            self._boxes.note(result, (torch.minimum(*ends), torch.maximum(*ends)))
        return result

    def _apply(self, layer: WeightedCall, box: _Box | None) -> Tensor:
        is_linear = layer.name == "linear"
        rule = self.dense if is_linear else self.convolution
        first = self.first_dense if is_linear else self.first_convolution
        if first is not None and box is not None:
            rule = first
        result: Tensor = SharedRelevance.apply(  # type: ignore[no-untyped-call]
            lambda: layer.call(layer.source, layer.weight, layer.bias),
            lambda relevance, a: [
                divide_relevance(rule, layer, box, a, relevance, self.epsilon, self.gamma)
            ],
            layer.source,
        )
        self._layers.note(result, (layer, box))
        return result

    def _merge(self, given: dict[str, Any]) -> Tensor | None:
        """The layer before a batch normalisation with its scale and shift merged into it; None without such a layer."""
        layer, box = self._layers.recall(given["input"]) or (None, None)
        # in training the scale is that of the batch, and cannot be merged
        if layer is None or layer.channels is None or given.get("training"):
            return None
        # a batch normalisation is over the second axis, the features of a linear layer are on the last
        if layer.name == "linear" and given["input"].ndim > 2:
            return None
        mean = given["running_mean"].detach()
        variance = given["running_var"].detach()
        # batch_norm(w a + b) = (w s) a + (b - mean) s + shift, with s = weight / sqrt(variance + eps)
        eps = given.get("eps", 1e-5)
        scale = (variance + eps).rsqrt()
        if given.get("weight") is not None:
            scale = scale * given["weight"].detach()
        if layer.bias is None:
            old_bias = torch.zeros_like(mean)
        else:
            old_bias = layer.bias.detach()
        shift: Tensor | float = 0.0
        if given.get("bias") is not None:
            shift = given["bias"].detach()
        bias = (old_bias - mean) * scale + shift
        sizes = [1] * layer.weight.ndim
        sizes[layer.channels] = -1
        weight = layer.weight.detach() * scale.reshape(sizes)
        return self._apply(replace(layer, weight=weight, bias=bias), box)
