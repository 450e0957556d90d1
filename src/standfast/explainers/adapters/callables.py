"""Explainers from any callable, and from any method of Captum."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError, check, check_integer
from standfast.explainers.adapters.base import (
    ForeignExplainer,
    check_option_names,
    check_own_module,
    find_class,
    get_class,
    shape_like_inputs,
    silence_warnings,
    split_options,
)
from standfast.explainers.base import Explainer, join_preprocessing, make_leaf
from standfast.explainers.cam.gradcam import find_layers
from standfast.model import Model

Attribution = Callable[[nn.Module, Tensor, Tensor], Any]
_ANY_VALUES, _ANY_OPTIONS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
_SAMPLE_COUNTS = ("n_samples", "nt_samples")
#: methods whose attributions add up to the change of the logit, and the options that do not change this
_ADDITIVE = ("IntegratedGradients", "DeepLift", "DeepLiftShap", "ShapleyValueSampling", "ShapleyValues", "KernelShap")
_HARMLESS = {"method", "n_steps", "n_samples", "eps", "internal_batch_size", "perturbations_per_eval", "show_progress"}
_ROW_COUNTS = ("n_steps", *_SAMPLE_COUNTS)


@dataclass(frozen=True)
class CallableExplainer(Explainer):
    """An explainer that calls the user's function; made by `from_callable`."""

    function: Attribution
    rows: int = 1
    title: str = "callable"
    name: ClassVar[str] = "callable"
    differentiable: ClassVar[bool] = False

    @property
    def rows_per_input(self) -> int:
        return self.rows

    @property
    def label(self) -> str:
        return self.title

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        with torch.set_grad_enabled(create_graph):
            logits = model.forward(make_leaf(x, True).clone() if create_graph else x.detach().clone())
        classes = logits.detach().argmax(1) if targets is None else targets
        with torch.enable_grad():
            out = self.function(join_preprocessing(model), x if create_graph else x.detach().clone(), classes)
        out = shape_like_inputs(out, x, self.label)
        return (out, logits) if create_graph else (out.detach(), logits)


@dataclass(frozen=True)
class DifferentiableCallable(CallableExplainer):
    """The same for a function whose attributions can be differentiated by its inputs."""

    differentiable: ClassVar[bool] = True


def from_callable(
    function: Attribution, *, differentiable: bool = False, rows_per_input: int = 1, name: str | None = None
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
        ArgumentError: no callable, or `rows_per_input` below 1.

    >>> from standfast.model import Model
    >>> explainer = from_callable(lambda module, inputs, targets: inputs * 2)
    >>> explainer(Model(nn.Linear(2, 2), bounds=(0.0, 1.0), device="cpu"), torch.ones(1, 2))
    tensor([[2., 2.]])
    """
    check(callable(function), "function", "a callable (module, inputs, targets) -> attributions", repr(function))
    check_integer(rows_per_input, "rows_per_input")
    kind = DifferentiableCallable if differentiable else CallableExplainer
    return kind(function, rows_per_input, str(name or getattr(function, "__name__", type(function).__name__)))


@dataclass(frozen=True)
class CaptumExplainer(ForeignExplainer):
    """An explainer that calls a method of Captum; made by `from_captum`."""

    method: Any
    rows: int = 1
    layer: str | None = None
    constructor_options: Mapping[str, Any] = field(default_factory=dict)
    call_options: Mapping[str, Any] = field(default_factory=dict)
    one_at_a_time: bool = False
    seed: int = 0
    name: ClassVar[str] = "captum"
    package: ClassVar[str] = "captum"

    @property
    def uses_hooks(self) -> bool:
        method = self.method
        while hasattr(method, "attribution_method"):  # of a NoiseTunnel
            method = method.attribution_method
        # Captum's methods that only run the model take it as `forward_func`
        return self.layer is not None or bool({"model", "layer"} & set(inspect.signature(get_class(method)).parameters))

    @property
    def needs(self) -> str:  # type: ignore[override]
        kinds = [kind.__name__ for kind in get_class(self.method).__mro__]
        return "gradients" if "GradientAttribution" in kinds else ""

    def find_references(self, model: Model, x: Tensor) -> Tensor | None:
        options, name = {**self.constructor_options, **self.call_options}, get_class(self.method).__name__
        given, whole = options.pop("baselines", None), options.pop("multiply_by_inputs", True)
        whole = whole and getattr(self.method, "_multiply_by_inputs", True)
        plain = isinstance(given, int | float | Tensor | None) and options.keys() <= _HARMLESS
        if name not in _ADDITIVE or not whole or not plain:
            return None
        references = torch.zeros_like(x[:1]) + (0 if given is None else given)
        return references if len(references) == 1 or name == "DeepLiftShap" else None

    def explain(self, model: Model, rows: Tensor, targets: Tensor) -> Tensor:
        method, options = self._build(model, rows), dict(self.call_options)
        if "target" in _list_parameters(method):
            options["target"] = targets
        with silence_warnings("captum"):
            out = method.attribute(rows.requires_grad_(True), **options)
        return shape_like_inputs(out, rows, self.label, layer=hasattr(method, "layer"))

    def _build(self, model: Model, rows: Tensor) -> Any:
        module = join_preprocessing(model)
        if isinstance(self.method, type):
            wanted = [self.layer] if "layer" in inspect.signature(self.method).parameters else []
            layers, _ = find_layers(model, wanted, rows, self.label)
            check(len(layers) < 2, "layer", f"the name of one layer for {self.label}", f"{len(layers)} side by side")
            return self.method(module, *layers, **self.constructor_options)
        own = getattr(self.method, "forward_func", None)
        check_own_module(self.label, module if own == module.forward else own, model)
        return self.method


def from_captum(
    method: Any,
    /,
    *,
    rows_per_input: int | None = None,
    layer: str | None = None,
    one_at_a_time: bool | None = None,
    seed: int = 0,
    **options: Any,
) -> Explainer:
    """An explainer from a class of Captum (such as `captum.attr.Saliency`), or from an object of one.

    Args:
        method: a class that is built on a model, or on a model and a layer; or the class's name; or an object, such as
            a `NoiseTunnel` over another method. An object must have been built on the model's own module, and the
            model must have no preprocessing.
        rows_per_input: rows forwarded at once for one input; by default from `n_steps`, `n_samples`, `nt_samples` and
            their defaults.
        layer: the layer's name, for methods that need one; by default that of `GradCAM`, which costs a forward pass.
            Their maps are resized to the inputs.
        one_at_a_time: explain each input alone, with random numbers seeded by its content. By default True for methods
            that draw samples, since otherwise their explanation would depend on the batch.
        seed: of the random numbers. The state of the global generators is restored afterwards.
        options: of the constructor or of `.attribute`, as their signatures say.

    Raises:
        MissingExtraError: `method` is a name, and Captum cannot be imported.
        ArgumentError: an option that neither the constructor nor `.attribute` has, or a missing one that has no
            default; no method of Captum.

    >>> import captum.attr
    >>> from_captum(captum.attr.IntegratedGradients, n_steps=20, multiply_by_inputs=False).rows_per_input
    20
    """
    if isinstance(method, str):
        method = find_class("captum", "captum.attr", method, "explainers", lambda kind: hasattr(kind, "attribute"))
    fine = callable(getattr(method, "attribute", None))
    check(fine, "method", "a class or an object of captum.attr", repr(method))
    in_call = _list_parameters(method)
    for ours in ("self", "inputs", "target"):
        in_call.pop(ours, None)
    in_constructor: dict[str, inspect.Parameter] = {}
    if isinstance(method, type):
        in_constructor = dict(list(inspect.signature(method).parameters.items()))
        if not {"forward_func", "model"} & set(list(in_constructor)[:1]):
            raise ArgumentError("method", "a Captum class built on a model (or an object)", method.__name__)
        fits = layer is None or "layer" in in_constructor
        check(fits, "layer", f"None ({method.__name__} takes no layer)", repr(layer))
        for ours in ("forward_func", "model", "layer"):
            in_constructor.pop(ours, None)
    title = get_class(method).__name__
    check_option_names(options, {**in_constructor, **in_call}, title)
    for name, parameter in {**in_constructor, **in_call}.items():
        optional = parameter.default is not parameter.empty or parameter.kind in (_ANY_VALUES, _ANY_OPTIONS)
        check(optional or name in options, name, f"a value for {title}", "none")
    constructor_options, call_options = split_options(options, in_constructor)
    rows = _count_rows(in_call, call_options) if rows_per_input is None else rows_per_input
    check_integer(rows, "rows_per_input")
    samples = any(name in in_call for name in _SAMPLE_COUNTS)
    return CaptumExplainer(
        method=method,
        rows=rows,
        layer=layer,
        constructor_options=constructor_options,
        call_options=call_options,
        one_at_a_time=samples if one_at_a_time is None else one_at_a_time,
        seed=seed,
    )


def _list_parameters(method: Any) -> dict[str, inspect.Parameter]:
    """The parameters of `.attribute`; for a `NoiseTunnel` also those of the method inside."""
    parameters = dict(inspect.signature(method.attribute).parameters)
    inner = getattr(method, "attribution_method", None)
    return parameters if inner is None else {**_list_parameters(inner), **parameters}


def _count_rows(parameters: Mapping[str, inspect.Parameter], options: Mapping[str, Any]) -> int:
    """Rows that are forwarded at once for one input, from the options and the defaults of Captum's `attribute`."""

    def read_count(name: str) -> int:
        default = parameters[name].default if name in parameters else 1
        count = options.get(name, default)
        return count if isinstance(count, int) else 1

    if "perturbations_per_eval" in parameters:
        return read_count("perturbations_per_eval")
    both = 2 if "custom_attribution_func" in parameters else 1  # the DeepLift family forwards its baselines too
    return both * math.prod(
        read_count(name) for name in (*_ROW_COUNTS, "n_perturb_samples") if name in {**parameters, **options}
    )
