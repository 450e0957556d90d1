"""A network as a list of rules, found by running it once and recording the functions that it calls.

As in the propagation explainers, functions are recorded, not modules. So functional calls, layers that are used twice,
layers that work in place, residual sums and any preprocessing are included. `network_functions.py` reads the calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from standfast.algorithms.certified.network_functions import (
    ARITHMETIC,
    TracedCall,
    describe_unsupported,
    read_arithmetic,
    read_function,
)
from standfast.algorithms.certified.network_rules import Affine, NetworkStep, Sum
from standfast.errors import ModelError
from standfast.function_calls import (
    FunctionMode,
    bind_arguments,
    find_tensors,
    split_names,
    strip_underscore,
)

#: rows of the traced batch; with one row, the batch axis would look like any other axis of length 1
_ROWS = 3
#: functions that read values, on which a network may branch
_VALUES = split_names(
    "item tolist numpy equal allclose __bool__ __int__ __float__ __index__ __array__"
)


@dataclass(frozen=True)
class Node:
    """One step: its rule, the earlier steps that it works on, and the shape of its values for one input."""

    rule: NetworkStep | None  # None for the network's input
    sources: tuple[int, ...]
    shape: torch.Size
    affine: bool  # this step and all before it are affine


@dataclass(frozen=True)
class TracedNetwork:
    """The steps of a network in the order in which they ran; the first is the input, the last the logits."""

    nodes: tuple[Node, ...]

    def values(self, x: Tensor) -> list[Tensor]:
        """The values `(N, *shape)` of every step for inputs `x`."""
        out = [x]
        for node in self.nodes[1:]:
            assert node.rule is not None
            out.append(node.rule.apply(*(out[s] for s in node.sources)))
        return out

    def logits(self, x: Tensor) -> Tensor:
        """Logits `(N, classes)`."""
        return self.values(x)[-1]


def trace_network(
    forward: Callable[[Tensor], Tensor], module: nn.Module, sample: Tensor
) -> TracedNetwork:
    """The rules of `forward` in float64, from one run on copies of `sample` `(1, ...)`.

    `module` gives the names of layers for error messages. It must be in evaluation mode, and its code must not branch
    on the values of its input. Not every such branch is detected, so compare `Network.logits` with the true logits.

    Raises:
        ModelError: the network calls a function without a rule; the message names the function and its layer.
    """
    tracer = _Tracer(sample.shape[1:])
    x = sample.detach().expand(_ROWS, *sample.shape[1:]).clone()
    with torch.no_grad(), tracer.track_layers(module):
        tracer.remember(x, step=0)
        with tracer:
            out = forward(x)
    last = tracer.find_step(out)
    if last is None:
        raise ModelError(
            "module: expected logits computed from the input by torch functions that can be traced"
        )
    return TracedNetwork(tuple(tracer.nodes[: last + 1]))


class _Tracer(FunctionMode):
    """Records every function call on a value that depends on the input."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.nodes = [Node(None, (), shape, True)]
        # from a tensor's id to its step; keeps the tensors alive, so that no id is used twice
        self._steps: dict[int, tuple[int, Tensor]] = {}
        self.layers: list[str] = []

    @contextlib.contextmanager
    def track_layers(self, module: nn.Module) -> Iterator[None]:
        """Inside the block, `layers` ends with the name of the layer that is running."""
        hooks = []
        for name, layer in module.named_modules():
            text = f"{name or 'the module'} ({type(layer).__name__})"
            hooks.append(
                layer.register_forward_pre_hook(lambda *_, text=text: self.layers.append(text))
            )
            hooks.append(layer.register_forward_hook(lambda *_: self.layers.pop() and None))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def remember(self, values: Tensor, step: int) -> None:
        """Note that a tensor has the values of a step."""
        self._steps[id(values)] = (step, values)

    def find_step(self, value: Any) -> int | None:
        """The step whose values something is; None if it does not depend on the input."""
        if not isinstance(value, Tensor) or id(value) not in self._steps:
            return None
        return self._steps[id(value)][0]

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call `func`, and record the step if it works on values that depend on the input."""
        depends = any(
            self.find_step(value) is not None for value in find_tensors([*args, *kwargs.values()])
        )
        if not depends:
            return func(*args, **kwargs)
        plain = strip_underscore(name)
        if plain == "batch_norm":  # whose forms have other orders
            func, args, kwargs = F.batch_norm, [], bind_arguments(func, args, kwargs)
            kwargs.pop("cudnn_enabled", None)
        values, keywords = _separate(args, kwargs)
        # copied before the call, which may work in place
        constants = []
        for value in values:
            if isinstance(value, Tensor):
                value = value.detach().double().clone()
            constants.append(value)
        sources = [self.find_step(value) for value in values]
        out = func(*args, **kwargs)
        if not isinstance(out, Tensor):
            if name in _VALUES or find_tensors([out]):
                raise self._unsupported(name)
            return out
        self._check_output(name, out)
        if plain not in ARITHMETIC and any(source is not None for source in sources[1:]):
            raise self._unsupported(name)
        shapes = [None if source is None else self.nodes[source].shape for source in sources]
        device = next(iter(self._steps.values()))[1].device
        call = TracedCall(
            name, plain, constants, keywords, shapes, out.shape[1:], device, self._layer
        )
        self._record(call, sources, out)
        return out

    @property
    def _layer(self) -> str:
        if self.layers:
            return self.layers[-1]
        return "preprocess or the module"

    def _unsupported(self, name: str) -> ModelError:
        return describe_unsupported(self._layer, name)

    def _check_output(self, name: str, out: Tensor) -> None:
        """Raise `ModelError` for what are no numbers of each row."""
        if not out.is_floating_point() or out.shape[:1] != (_ROWS,):
            raise self._unsupported(name)

    def _record(self, call: TracedCall, sources: list[int | None], out: Tensor) -> None:
        """Add the steps that computed `out`, and remember which tensor holds the values of the last one."""
        if call.plain in ARITHMETIC:
            rule, order = read_arithmetic(call)
            dependent = [source for source in sources if source is not None]
            step = self._add(rule, [dependent[number] for number in order], call.shape)
        else:
            source = sources[0] if sources else None
            if source is None:
                call.refuse()
            step = source
            for rule, shape in read_function(call):
                step = self._add(rule, [step], shape)
        self.remember(out, step)

    def _add(self, rule: NetworkStep, sources: list[int], shape: torch.Size) -> int:
        """Add a step that works on earlier ones; its number."""
        affine = isinstance(rule, Affine | Sum) and all(
            self.nodes[source].affine for source in sources
        )
        self.nodes.append(Node(rule, tuple(sources), shape, affine))
        return len(self.nodes) - 1


def _separate(args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The values that a function works on, and its other arguments; `input` is the first value, also by its name."""
    begins_with_tensor = len(args) > 0 and isinstance(args[0], Tensor)
    if begins_with_tensor or "input" not in kwargs:
        return list(args), kwargs
    return [kwargs["input"], *args], {
        keyword: value for keyword, value in kwargs.items() if keyword != "input"
    }
