"""Explainers from functions: of a module and tensors, or in the style of Quantus of arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError, check, check_integer
from standfast.explainers.adapters.base import ForeignExplainer, shape_like_inputs, turn_maps
from standfast.explainers.base import Explainer, Explanation, join_preprocessing, make_leaf
from standfast.model import Model
from standfast.tasks.decision import point_at

Attribution = Callable[[nn.Module, Tensor, Tensor], Any]


def check_parameters(
    function: Callable[..., Any], names: tuple[str, str, str], **options: Any
) -> None:
    """Raise `ArgumentError` unless a function of the user's can be called with three arguments, and with options.

    >>> check_parameters(lambda module, inputs: inputs, ("module", "inputs", "targets"))
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: explainer: expected a function of module, inputs and targets, got <lambda>(module...
    """
    expected = f"a function of {names[0]}, {names[1]} and {names[2]}"
    title = name_function(function)
    called = function
    if isinstance(function, nn.Module):  # whose own parameters are those of its `forward`
        title, called = f"the module {title}", function.forward
    try:
        parameters = signature(called)
    except (TypeError, ValueError):  # it is not written in Python
        return
    try:
        parameters.bind(*names, **options)
    except TypeError as error:
        got = f"{title}({', '.join(parameters.parameters)})"
        raise ArgumentError("explainer", expected, got) from error


def name_function(function: Callable[..., Any]) -> str:
    """The name of a function, or of the class of a callable object."""
    return str(getattr(function, "__name__", type(function).__name__))


@dataclass(frozen=True)
class CallableExplainer(Explainer):
    """An explainer that calls the user's function; made by `from_callable`."""

    function: Attribution
    rows: int = 1
    title: str = "callable"
    differentiable: bool = False  # type: ignore[misc]
    name = "callable"

    @property
    def rows_per_input(self) -> int:
        return self.rows

    @property
    def label(self) -> str:
        return self.title

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        with torch.set_grad_enabled(create_graph):
            inputs = make_leaf(x, True) if create_graph else x.detach()
            logits = model.forward(inputs.clone())
        classes = model.task.answer(logits.detach()) if targets is None else targets
        with torch.enable_grad():
            # a function of the user's knows what its module answers
            numbers, signs = point_at(model.task, classes, model.width)
            inputs_of_function = x if create_graph else x.detach().clone()
            out = self.function(join_preprocessing(model), inputs_of_function, numbers)
        out = turn_maps(shape_like_inputs(out, x, self.label), signs)
        if not create_graph:
            out = out.detach()
        return out, logits


def from_callable(
    function: Attribution,
    *,
    differentiable: bool = False,
    rows_per_input: int = 1,
    name: str | None = None,
) -> Explainer:
    """An explainer from `function(module, inputs, targets) -> attributions`.

    The function gets the module (with the model's preprocessing, in evaluation mode), a copy of a chunk of inputs
    `(n, ...)`, and classes `(n,)`; gradients are enabled. It returns a tensor or an array of the inputs' shape, and
    must treat each row alone. The logits cost one more forward pass.

    Args:
        function: as above.
        differentiable: whether its result can be differentiated with respect to its inputs.
        rows_per_input: rows that the module forwards at once for one input; the size of chunks follows from it.
        name: for messages and tables; by default the function's own.

    Raises:
        ArgumentError: no callable, one of other parameters, or `rows_per_input` below 1.

    >>> from standfast.model import Model
    >>> explainer = from_callable(lambda module, inputs, targets: inputs * 2)
    >>> explainer(Model(nn.Linear(2, 2), bounds=(0.0, 1.0), device="cpu"), torch.ones(1, 2))
    tensor([[2., 2.]])
    """
    check(
        callable(function),
        "function",
        "a callable (module, inputs, targets) -> attributions",
        repr(function),
    )
    check_parameters(function, ("module", "inputs", "targets"))
    check_integer(rows_per_input, "rows_per_input")
    return CallableExplainer(
        function, rows_per_input, name or name_function(function), differentiable
    )


@dataclass(frozen=True)
class QuantusFunction(ForeignExplainer):
    """An explainer that calls `function(model, inputs, targets, **options) -> array`; made by `from_quantus`."""

    title: str = "quantus_function"
    name = "quantus_function"

    @property
    def label(self) -> str:
        return self.title

    def explain(self, model: Model, rows: Tensor, targets: Tensor) -> Tensor:
        arrays = rows.cpu().numpy(), targets.cpu().numpy()
        out = self.method(join_preprocessing(model), *arrays, **self.call_options)
        return shape_like_inputs(out, rows, self.label, one_channel=True)


def from_quantus(
    function: Callable[..., Any],
    /,
    *,
    rows_per_input: int = 1,
    one_at_a_time: bool | None = None,
    seed: int = 0,
    name: str | None = None,
    **options: Any,
) -> QuantusFunction:
    """An explainer from `explain_func(model, inputs, targets, **kwargs) -> attributions`, as Quantus's metrics use it.

    The function gets the module (with the model's preprocessing, in evaluation mode), a copy of a chunk of inputs
    as an array `(n, ...)`, and classes `(n,)`. It returns an array or a tensor of the inputs' shape, or with a single
    channel, which is repeated. An example is `quantus.explain`: `from_quantus(quantus.explain, method="Saliency")`.

    Args:
        function: as above; it must treat each row alone.
        rows_per_input: rows that the module forwards at once for one input.
        one_at_a_time: explain each input alone, with global generators seeded by its content; by default only if the
            explanation of a chunk has drawn random numbers (the chunk is then explained again).
        seed: of the random numbers. The state of the global generators is restored afterwards.
        name: for messages and tables; by default the function's own.
        options: passed on to the function.

    Raises:
        ArgumentError: no callable, one of other parameters, or options out of range.

    >>> from torch import nn, ones
    >>> explainer = from_quantus(lambda model, inputs, targets, factor=1: factor * inputs, factor=3)
    >>> explainer(Model(nn.Linear(2, 2), bounds=(0.0, 1.0), device="cpu"), ones(1, 2))
    tensor([[3., 3.]])
    """
    check(
        callable(function),
        "function",
        "a callable (model, inputs, targets, **options)",
        repr(function),
    )
    title = name or name_function(function)
    explainer = QuantusFunction(function, {}, options, rows_per_input, one_at_a_time, seed, title)
    # after our own options were checked
    check_parameters(function, ("model", "inputs", "targets"), **options)
    return explainer
