"""What modes of relevance rules share, and the epsilon rule of LRP as such a mode.

A mode replaces the backward pass of the functions that the module calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function

from standfast.errors import ModelError
from standfast.explainers.propagation.difference_rules import (
    MAX_POOLS,
    Rule,
    find_carriers,
    take_inplace_flag,
)
from standfast.function_calls import (
    FunctionMode,
    is_decomposed,
    remember_autocast,
    split_names,
    strip_underscore,
)

T = TypeVar("T")
CONVOLUTIONS = split_names(
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"
)
WEIGHTED = CONVOLUTIONS | {"linear"}
AVERAGES = split_names(
    "mean sum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d interpolate"
)
# elementwise functions: they pass relevance on unchanged. All have f(0) = 0, except softplus, a smooth rectifier.
PASS_THROUGH = split_names(
    "relu tanh elu leaky_relu gelu silu mish selu celu hardtanh relu6 hardswish softplus"
)
# linear functions: they follow the epsilon rule
_SUMS = split_names("batch_norm add sub __add__ __radd__ __sub__ __rsub__ rsub")
LINEAR = frozenset(MAX_POOLS) | WEIGHTED | AVERAGES | _SUMS
# products: they follow the rule if only one factor depends on the input
LINEAR_IN_ONE = split_names("mul __mul__ __rmul__ matmul __matmul__ mm addmm")
QUOTIENTS = split_names("div true_divide __truediv__")
# functions without an epsilon rule that mark a transformer: an error then names an explainer with rules for them
_OF_TRANSFORMERS = split_names(
    "softmax layer_norm rms_norm scaled_dot_product_attention multi_head_attention_forward"
)
# functions that often turn logits into something else at the end of a module
_OF_OUTPUTS = split_names("softmax log_softmax softmin logsumexp sigmoid logsigmoid log_sigmoid")
# functions that move values: relevance moves with them (dropout is off)
MOVES = split_names(
    "flatten view reshape permute transpose squeeze unsqueeze cat concat stack __getitem__ contiguous expand"
    " pad chunk split unflatten movedim swapaxes t dropout dropout1d dropout2d dropout3d alpha_dropout"
    " feature_dropout clone select narrow flip to unbind view_as reshape_as float double"
)


class _TimesInput(Function):
    """The identity; the backward pass multiplies by the input, which turns weights of the input into its relevance."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.save_for_backward(a)
        return a.view_as(a)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        return gradients[0] * a  # type: ignore[no-any-return]


def divide_stabilised(relevance: Tensor, z: Tensor, epsilon: float) -> Tensor:
    """`relevance / s(z)`, with `s(z) = z + epsilon` for `z >= 0` and `z - epsilon` below."""
    # + 0.0 turns -0 into 0; a `where` takes ten times as long
    divisor = z.abs().add_(epsilon).copysign_(z + 0.0)
    share = relevance / divisor
    # it may vanish in rounding; a unit of 0 then passes on no relevance
    if epsilon < torch.finfo(z.dtype).tiny:
        share.masked_fill_(divisor == 0, 0.0)
    return share


class _OverOutput(Function):
    """The identity; the backward pass divides relevance by the output plus or minus epsilon."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, epsilon: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.epsilon = epsilon
        return z.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return divide_stabilised(gradients[0], z, ctx.epsilon), None


class PassThrough(Function):
    """Returns `function(z)`; the backward pass gives the relevance to `z` unchanged.

    The function must return new memory.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return function(z)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class SharedRelevance(Function):
    """Returns `function()`; the backward pass divides its relevance between `sources` by the rule.

    The function must return new memory. The rule gets the relevance and the sources, and returns that of each of them.
    """

    @staticmethod
    def forward(ctx: Any, function: Callable[[], Tensor], rule: Rule, *sources: Tensor) -> Tensor:
        ctx.save_for_backward(*sources)
        ctx.rule, ctx.autocast = rule, remember_autocast(sources[0])
        return function()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        with ctx.autocast():
            return None, None, *ctx.rule(gradients[0], *ctx.saved_tensors)


class Records(Generic[T]):
    """What is known of tensors, by their memory and geometry: hooks pass on other objects for the same values.

    Nothing is known of values that were overwritten since.
    """

    def __init__(self) -> None:
        self._records: dict[Any, tuple[Tensor, int, T]] = {}

    @staticmethod
    def _identify(values: Tensor) -> Any:
        # the same for all views of the same values
        return (
            values.data_ptr(),
            values.shape,
            values.stride(),
        )

    def note(self, values: Tensor, known: T) -> None:
        """Keep what is known of a tensor."""
        self._records[self._identify(values)] = (values, values._version, known)

    def recall(self, values: Tensor) -> T | None:
        """What is known of a tensor; None if nothing is."""
        recorded, version, carrier = self._records.get(self._identify(values), (values, -1, None))
        if recorded._version == values._version == version:
            return carrier
        return None

    def forget(self) -> None:
        """Forget all, and free the memory."""
        self._records.clear()


@dataclass(frozen=True)
class WeightedCall:
    """A call of a linear layer or a convolution.

    Attributes:
        name: of the function.
        source: its input.
        weight, bias: its parameters; no bias is None.
        call: `call(values, weight, bias)`, with its other options.
        groups: of a transposed convolution.
    """

    name: str
    source: Tensor
    weight: Tensor
    bias: Tensor | None
    call: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    groups: int

    @property
    def channels(self) -> int | None:
        """The axis of the weight that belongs to the output's channels; None where they are split into groups."""
        if not self.name.startswith("conv_transpose"):
            return 0
        return 1 if self.groups == 1 else None


def read_weighted_call(
    name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> WeightedCall:
    """The parts of a call of one of the functions `WEIGHTED`."""
    rest = args[3:]
    options = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
    source = options.pop("input")
    weight = options.pop("weight")
    bias = options.pop("bias", None)
    groups = 1
    if name.startswith("conv_transpose"):
        usual_groups = rest[3] if len(rest) > 3 else 1
        groups = int(options.get("groups", usual_groups))

    def call(values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return func(values, weight, bias, *rest, **options)  # type: ignore[no-any-return]

    return WeightedCall(name, source, weight, bias, call, groups)


def replace_carriers(value: Any, by: Callable[[Tensor], Tensor]) -> Any:
    """`value` with `by(tensor)` for each tensor that carries relevance, also within lists and mappings."""
    if isinstance(value, Tensor):
        return by(value) if value.requires_grad else value
    if isinstance(value, dict):
        return {key: replace_carriers(entry, by) for key, entry in value.items()}
    if isinstance(value, list):
        return [replace_carriers(entry, by) for entry in value]
    if isinstance(value, tuple):
        return tuple(replace_carriers(entry, by) for entry in value)
    return value


def call_with(
    func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], values: Tensor
) -> Any:
    """Call a function with `values` in the place of each tensor that carries relevance."""
    args, kwargs = replace_carriers([args, kwargs], lambda _: values)
    return func(*args, **kwargs)


def make_rule_error(
    who: str, name: str, func: Callable[..., Any], attention: bool = False
) -> ModelError:
    """The error of an explainer for a function without a rule, with what the user can do.

    Args:
        who: the explainer.
        name, func: the function and its name.
        attention: the explainer has rules for attention.
    """
    # of `_log_softmax`, which is `log_softmax` in a program of torch.export
    plain = name.strip("_")
    hints = ""
    if plain in _OF_OUTPUTS:
        hints += f"; if it is the last step, return the logits: remove the {plain} at the end"
    if plain in _OF_TRANSFORMERS and not attention:
        hints += "; attn_lrp has rules for transformers"
    if is_decomposed(name, func):
        hints += "; export the program without run_decompositions"
    return ModelError(
        f"{who}: expected a module made of functions with a rule, got {name!r}, which has none{hints}"
    )


class EpsilonRule(FunctionMode):
    """Inside, backward passes propagate relevance by the epsilon rule."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        carrying = find_carriers([*args, *kwargs.values()])
        if not carrying or name in MOVES:
            return func(*args, **kwargs)
        plain = strip_underscore(name)
        if plain in PASS_THROUGH:
            z = args.pop(0) if args else kwargs.pop("input")
            in_place = take_inplace_flag(name, args, kwargs)
            result = PassThrough.apply(z, lambda z: func(z.clone(), *args, **kwargs))  # type: ignore[no-untyped-call]
            if in_place:
                return z.copy_(result)
            return result
        alone = len(carrying) == 1
        by_constant = alone and plain in QUOTIENTS and args[0] is carrying[0]
        if plain in LINEAR or (plain in LINEAR_IN_ONE and alone) or by_constant:
            if plain == name:
                return self._share(func, args, kwargs)
            # in place: compute in new memory, then write
            twin = getattr(torch, plain)
            target = args[0]
            computed = self._share(twin, [target.clone(), *args[1:]], kwargs)
            return target.copy_(computed)
        result = func(*args, **kwargs)
        if find_carriers([result]):
            raise make_rule_error(self.who, name, func)
        return result

    def _share(self, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Tensor:
        """Call a linear function such that its backward pass follows the epsilon rule."""

        def weigh(value: Any) -> Any:
            if isinstance(value, Tensor) and value.requires_grad:
                return _TimesInput.apply(value)  # type: ignore[no-untyped-call]
            return value

        out = func(
            *[weigh(a) for a in args], **{key: weigh(value) for key, value in kwargs.items()}
        )
        return _OverOutput.apply(out, self.epsilon)  # type: ignore[no-untyped-call,no-any-return]
