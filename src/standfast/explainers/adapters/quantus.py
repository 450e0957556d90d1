"""Explainers from functions in the style of Quantus: arrays in, arrays out, options as keywords."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from standfast.errors import check
from standfast.explainers.adapters.base import ForeignExplainer, check_common, shape_like_inputs
from standfast.explainers.base import join_preprocessing
from standfast.model import Model


@dataclass(frozen=True)
class QuantusFunction(ForeignExplainer):
    """An explainer that calls `function(model, inputs, targets, **options) -> array`; made by `from_quantus`."""

    function: Callable[..., Any]
    rows: int = 1
    call_options: Mapping[str, Any] = field(default_factory=dict)
    one_at_a_time: bool | None = None
    seed: int = 0
    title: str = "quantus_function"
    name: ClassVar[str] = "quantus_function"

    @property
    def label(self) -> str:
        return self.title

    def explain(self, model: Model, rows: Tensor, targets: Tensor) -> Tensor:
        given = rows.cpu().numpy(), targets.cpu().numpy()
        out = self.function(join_preprocessing(model), *given, **self.call_options)
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
        ArgumentError: no callable, or options out of range.

    >>> from torch import nn, ones
    >>> explainer = from_quantus(lambda model, inputs, targets, factor=1: factor * inputs, factor=3)
    >>> explainer(Model(nn.Linear(2, 2), bounds=(0.0, 1.0), device="cpu"), ones(1, 2))
    tensor([[3., 3.]])
    """
    check(callable(function), "function", "a callable (model, inputs, targets, **options)", repr(function))
    check_common(rows_per_input, one_at_a_time, seed)
    title = str(name or getattr(function, "__name__", type(function).__name__))
    return QuantusFunction(function, rows_per_input, options, one_at_a_time, seed, title)
