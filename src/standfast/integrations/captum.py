"""Every standfast metric as a function, in the style of `captum.metrics`.

    from captum.attr import Saliency
    from standfast.integrations import captum as metrics

    scores = metrics.worst_case(Saliency(model).attribute, inputs, target, bounds=(0, 1), neighbourhood=ball)

The functions are made from the registry of metrics, including plug-ins. They take an explanation function, usually the
`attribute` of a Captum object, inputs and targets. They return the metric's `value` as a tensor `(N,)`, NaN for
samples that could not be evaluated. Unlike Captum's functions, they have a seed and do not use the global generators,
and the value of a sample does not depend on the other samples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError, ModelError, UnknownNameError, check
from standfast.explainers import from_callable
from standfast.metrics import Result
from standfast.metrics import names as metric_names
from standfast.metrics.base import metrics
from standfast.model import Bound, Model

ExplanationFunction = Callable[..., Tensor | tuple[Tensor, ...]]


class _Forward(nn.Module):
    """A forward function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.function(x)


def names() -> list[str]:
    """The names of the functions of this module: the names of the metrics.

    >>> "max_sensitivity" in names()
    True
    """
    return metric_names()


@cache
def get(name: str) -> Callable[..., Any]:
    """The function for a metric: `fn(explanation_func, inputs, target=None, **...) -> Tensor (N,)`.

    Arguments of the function:
        explanation_func: `(inputs, target=classes, **explanation_kwargs) -> attributions` of the inputs' shape, for
            any batch; or a Captum object with `attribute`.
        inputs: one tensor `(N, ...)`, within the bounds.
        target: classes, as a number, a list or a tensor `(N,)`; None for the predicted classes.
        bounds: valid values of an input, `(lower, upper)`.
        forward_func: the module, or a function from inputs to logits `(N, classes)`; None for the one of the Captum
            object.
        explanation_kwargs: further arguments of `explanation_func`.
        rows_per_input: how many rows `explanation_func` forwards at once for one input, such as `n_steps`. It
            determines the size of the chunks.
        seed: seed of all random numbers.
        max_examples_per_batch: how many rows to forward at once, inputs and perturbations together; None for as many
            as fit into memory.
        full: return the whole result, with the status of each sample.
        **options: options of the metric.

    Raises:
        UnknownNameError: there is no such metric.

    >>> import captum.attr, torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> import standfast
    >>> explain = captum.attr.InputXGradient(model).attribute
    >>> get("max_sensitivity")(explain, torch.rand(5, 4), bounds=(0, 1), neighbourhood=standfast.LinfBall(0.1)).shape
    torch.Size([5])
    """
    kind = metrics[name]

    def function(
        explanation_func: Any,
        inputs: Tensor,
        target: Any = None,
        *,
        bounds: tuple[Bound, Bound],
        forward_func: Callable[[Tensor], Tensor] | None = None,
        explanation_kwargs: Mapping[str, Any] | None = None,
        rows_per_input: int = 1,
        seed: int = 0,
        max_examples_per_batch: int | None = None,
        full: bool = False,
        **options: Any,
    ) -> Tensor | Result:
        known = inspect.signature(kind).parameters
        for option in options:
            if option not in known:
                raise UnknownNameError(f"option of {name}", option, known)
        check(isinstance(inputs, Tensor), "inputs", "one tensor (N, ...)", type(inputs).__name__)
        explain, owner = _find_function(explanation_func)
        model = Model(
            _find_module(forward_func, owner), bounds, device=inputs.device, batch_size=max_examples_per_batch or "auto"
        )
        fixed = dict(explanation_kwargs or {})
        explainer = from_callable(
            lambda module, x, classes: _check_single(explain(x.requires_grad_(True), target=classes, **fixed)),
            rows_per_input=rows_per_input,
            name=getattr(type(owner), "__name__", None) if owner is not None else None,
        )
        targets = torch.as_tensor(target) if isinstance(target, Sequence) else target
        result = kind(**options)(
            model, explainer, inputs.detach(), targets, generator=torch.Generator().manual_seed(seed)
        )
        return result if full else _read_values(result)

    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    first = (kind.__doc__ or name).strip().splitlines()[0]
    function.__doc__ = (
        f"{first}\n\nArguments are those that `{__name__}.get` describes, and the options of"
        f" `{kind.__module__}.{kind.__name__}`."
    )
    return function


def __getattr__(name: str) -> Any:
    """The function for a metric, such as `standfast.integrations.captum.max_sensitivity`."""
    if not name.startswith("_") and name in metric_names():
        return get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _read_values(result: Result) -> Tensor:
    values = result.value
    fine = torch.tensor([status == "ok" for status in result.status], device=values.device)
    values = values if values.is_floating_point() else values.to(torch.float64)
    return torch.where(fine, values, torch.nan)


def _find_function(given: Any) -> tuple[ExplanationFunction, Any]:
    """The explanation function, and the Captum object that it belongs to, if any."""
    attribute = getattr(given, "attribute", given)
    check(callable(attribute), "explanation_func", "a function, or an object with attribute", type(given).__name__)
    return attribute, getattr(attribute, "__self__", None)


def _find_module(given: Any, owner: Any) -> nn.Module:
    """The module that predicts: the one given, or that of the Captum object."""
    while given is None and owner is not None:
        given = getattr(owner, "forward_func", None) or getattr(owner, "model", None)
        owner = getattr(owner, "attribution_method", None)
    if not callable(given):
        raise ArgumentError("forward_func", "a module, or a function to logits", type(given).__name__)
    return given if isinstance(given, nn.Module) else _Forward(given)


def _check_single(out: Any) -> Any:
    if isinstance(out, tuple) and len(out) != 1:
        raise ModelError(f"explanation_func: expected attributions of one tensor, got {len(out)}")
    return out
