"""Explainers from those of the package `shap`, which are built on the model for each target class."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import ModelError, check
from standfast.explainers.adapters.base import (
    ForeignExplainer,
    check_own_module,
    get_class,
    list_options,
    make_array_function,
    silence_warnings,
)
from standfast.explainers.adapters.tree_shap import TreeSHAPExplainer
from standfast.explainers.background import (
    References,
    check_background,
    count_references,
    resolve_background,
)
from standfast.explainers.base import Baseline, Explainer, join_preprocessing
from standfast.model import Model, Output
from standfast.needs import Needs
from standfast.records import Background

#: classes of shap that differentiate a module; all others call a function of arrays
_ON_MODULES = ("GradientExplainer", "DeepExplainer")
#: classes of shap that draw no random numbers
_EXACT = ("DeepExplainer", "ExactExplainer")
#: classes of shap whose attributions add up to the change of the logit from the mean over the background
_ADDITIVE = (
    *_EXACT,
    "KernelExplainer",
    "SamplingExplainer",
    "PermutationExplainer",
    "PartitionExplainer",
)
#: the options that set how many rows an input costs, and shap's defaults (that of the kernel is 2 F + 2048)
_COUNTS = {"nsamples": {"GradientExplainer": 200, "": 2048}, "max_evals": {"": 500}}


class ChosenLogit(nn.Module):
    """A module that returns the logit `(N, 1)` of one class of another module."""

    def __init__(self, module: nn.Module, target: int) -> None:
        super().__init__()
        self.module = module
        self.target = target
        self.training = getattr(module, "training", False)

    def forward(self, x: Tensor) -> Tensor:
        """The logit `(N, 1)` at inputs `(N, ...)`."""
        out: Tensor = self.module(x)
        return out[:, self.target, None]


@dataclass(frozen=True)
class SHAPExplainer(ForeignExplainer):
    """An explainer that calls one of shap; made by `from_shap`."""

    background: Baseline | Background | None = None
    output: Output = "logit"
    name = "shap"
    has_signs = True
    measures = "contribution"
    package = "shap"
    removal_options = ("background",)
    home = "shap"
    built_on = (("model",), ("data", "masker"))

    @staticmethod
    def is_suggested(kind: Any) -> bool:
        return bool(kind.__name__.endswith("Explainer"))

    @classmethod
    def list_parameters(cls, method: Any) -> dict[str, Parameter]:
        return list_options(getattr(method, _find_entry(get_class(method))))

    @property
    def uses_hooks(self) -> bool:
        # shap calls its deep explainer `Deep` and `PyTorchDeep` in objects
        return "Deep" in get_class(self.method).__name__

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return Needs(gradients=_takes_module(get_class(self.method)))

    def find_references(self, model: Model, x: Tensor) -> Tensor | None:
        is_additive = (
            isinstance(self.method, type)
            and self.method.__name__ in _ADDITIVE
            and self.output == "logit"
        )
        few = count_references(self.background) <= 100  # shap's maskers take a sample of more
        # a link changes what attributions add up to
        is_additive = is_additive and few and "link" not in self.constructor_options
        return resolve_background(model, x, self.background) if is_additive else None

    def explain(self, model: Model, rows: Tensor, targets: Tensor) -> Tensor:
        if not isinstance(self.method, type):
            if _takes_module(type(self.method)):
                check_own_module(self.label, self.method.explainer.model, model)
            return self._compute_values(self.method, rows, targets)
        out = torch.zeros_like(rows)
        for target in sorted(set(targets.tolist())):
            at = targets == target
            method = self._build(model, rows, target)
            out[at] = self._compute_values(method, rows[at], targets[at])
        return out

    def _build(self, model: Model, rows: Tensor, target: int) -> Any:
        references = resolve_background(model, rows, self.background)
        with silence_warnings("shap"), _keep_numpy_state():
            if _takes_module(self.method):
                module = ChosenLogit(join_preprocessing(model), target)
                return self.method(module, references, **self.constructor_options)
            predict = make_array_function(
                model, tuple(rows.shape[1:]), self.output == "probability", target
            )
            return self.method(
                predict, references.flatten(1).cpu().numpy(), **self.constructor_options
            )

    def _compute_values(self, explainer: Any, rows: Tensor, targets: Tensor) -> Tensor:
        passed: Any = rows.clone()
        if not _takes_module(get_class(explainer)):
            passed = rows.flatten(1).cpu().numpy()
        parameters = self.list_parameters(explainer)
        silent = "silent" in parameters or any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        )
        options = {"silent": True, **self.call_options} if silent else self.call_options
        with (
            silence_warnings("shap"),
            _remove_leftovers(explainer),
            _explain_assertions(self.label),
        ):
            returned = getattr(explainer, _find_entry(get_class(explainer)))(passed, **options)
        return _select_targets(getattr(returned, "values", returned), rows, targets, self.label)


def from_shap(
    method: Any,
    /,
    *,
    background: References | None = None,
    output: Output = "logit",
    rows_per_input: int | None = None,
    one_at_a_time: bool | None = None,
    seed: int = 0,
    **options: Any,
) -> Explainer:
    """An explainer from a class of shap (such as `shap.GradientExplainer`), or from an object of one.

    A class is built on the model again for each target class. `GradientExplainer` and `DeepExplainer` are built on
    the module with its preprocessing; all others (`KernelExplainer`, `PermutationExplainer`, ...) on a function of flat
    rows, which are forwarded in chunks that fit into memory. An object is used as it is. It must have been built on the
    model's own module, or on a function of it.

    `TreeExplainer` reads the trees of an estimator whose method the model is (`Model.from_callable`).
    `"logit"` is then what its trees add up to: the log-odds, or margins, of a boosted model, and the probabilities of a
    forest. It takes no further options.

    Args:
        method: a class, its name, or an object.
        background: reference inputs of a class: a number, one for each channel, a tensor `(B, ...)` or a `Background`.
            By default 0, or for a table rows of the model's reference; for `TreeExplainer` the branches of the trees
            say how likely values are (path-dependent), or `"reference"` takes the rows of the model's reference.
        output: what is explained, except by `GradientExplainer` and `DeepExplainer`: `"logit"` or `"probability"`.
        rows_per_input: rows forwarded for one input; by default from `nsamples` or `max_evals`.
        one_at_a_time: explain each input alone, with random numbers seeded by its content; by default True except for
            `DeepExplainer` and `ExactExplainer`, which draw no random numbers.
        seed: of the random numbers. The state of the global generators is restored afterwards.
        options: of the constructor or of the call (`shap_values`, or the object itself), as their signatures say. With
            many features set `l1_reg` of `KernelExplainer`: by default it keeps ten features only.

    Raises:
        MissingExtraError: `method` is a name, and shap is not installed.
        ArgumentError: an option that neither the constructor nor the call has; an object of another package.

    Source: Lundberg and Lee, A unified approach to interpreting model predictions, NeurIPS 2017, and their package.

    >>> class Halves:  # what shap's classes look like
    ...     def __init__(self, model, masker):
    ...         self.model = model
    ...     def __call__(self, rows, max_evals=500):
    ...         return type("Explanation", (), {"values": rows / 2})
    >>> model = Model(nn.Linear(2, 2), bounds=(0.0, 1.0), device="cpu")
    >>> from_shap(Halves, max_evals=9)(model, torch.ones(1, 2))
    tensor([[0.5000, 0.5000]])
    """
    method = SHAPExplainer.find_method(method)
    names = _list_class_names(get_class(method))
    if "TreeExplainer" in names:
        check(
            not options, ", ".join(options), f"no options for {get_class(method).__name__}", "some"
        )
        own_rows = "reference" if background == "reference" else check_background(background)
        return TreeSHAPExplainer(method, own_rows, output)  # type: ignore[arg-type]
    if one_at_a_time is None:
        one_at_a_time = names.isdisjoint(_EXACT)
    rows = rows_per_input
    if rows is None:
        rows = _count_rows(get_class(method), options, count_references(background))
    options_of_adapter = {"background": check_background(background), "output": output}
    return SHAPExplainer.make(method, options, rows, one_at_a_time, seed, **options_of_adapter)


def _list_class_names(kind: Any) -> set[str]:
    return {base.__name__ for base in getattr(kind, "__mro__", ())}


def _takes_module(kind: Any) -> bool:
    return not _list_class_names(kind).isdisjoint(_ON_MODULES)


def _find_entry(kind: Any) -> str:
    """The method of a class of shap that gives its results: the older ones are built on `data` and no `masker`."""
    legacy = "data" in signature(kind).parameters and hasattr(kind, "shap_values")
    return "shap_values" if legacy else "__call__"


def _count_rows(kind: Any, options: Mapping[str, Any], references: int) -> int:
    if "DeepExplainer" in _list_class_names(kind):
        return 2 * references  # for each reference, the reference and the input
    count = "nsamples" if _find_entry(kind) == "shap_values" else "max_evals"
    defaults = _COUNTS[count]
    default = next(
        (defaults[name] for name in _list_class_names(kind) if name in defaults), defaults[""]
    )
    samples = options.get(count, default)
    samples = samples if type(samples) is int and samples >= 1 else default
    return samples if _takes_module(kind) else samples * references


def _select_targets(returned: Any, rows: Tensor, targets: Tensor, label: str) -> Tensor:
    """Attributions `(n, *shape)` of the target classes from what shap returns.

    Classes may be a last axis or a list, or there may be one class only.
    """
    if isinstance(returned, list):
        returned = np.stack(returned, axis=-1)
    if not isinstance(returned, np.ndarray | Tensor):
        got = type(returned).__name__
        raise ModelError(f"{label}: expected attributions as an array, got {got}")
    values = torch.as_tensor(returned, dtype=rows.dtype, device=rows.device)
    flat = rows.flatten(1)
    shapes = (tuple(rows.shape), tuple(flat.shape))
    if tuple(values.shape) not in shapes:
        if tuple(values.shape[:-1]) not in shapes or values.shape[-1] <= int(targets.max()) * (
            values.shape[-1] > 1
        ):
            expected = f"attributions of shape {shapes[0]} or {(*shapes[0], 'classes')}"
            raise ModelError(f"{label}: expected {expected}, got {tuple(values.shape)}")
        at = targets if values.shape[-1] > 1 else torch.zeros_like(targets)
        values = values.flatten(1, -2).gather(2, at[:, None, None].expand(-1, flat.shape[1], 1))[
            ..., 0
        ]
    return values.reshape(rows.shape)


@contextlib.contextmanager
def _keep_numpy_state() -> Iterator[None]:
    """Restore the state of NumPy's generator, which some constructors seed from the clock."""
    state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


@contextlib.contextmanager
def _remove_leftovers(explainer: Any) -> Iterator[None]:
    """Remove the parameters `x` and `y` that `DeepExplainer` adds to layers: it forgets those of nested modules."""
    module = getattr(getattr(explainer, "explainer", None), "model", None)
    layers = list(module.modules()) if isinstance(module, nn.Module) else []
    before = [set(layer._parameters) for layer in layers]
    try:
        yield
    finally:
        for layer, names in zip(layers, before, strict=True):
            for name in {"x", "y"} & set(layer._parameters) - names:
                delattr(layer, name)


@contextlib.contextmanager
def _explain_assertions(label: str) -> Iterator[None]:
    """Say what works where shap asserts that its values add up, and asks to report to its authors that they do not."""
    try:
        yield
    except AssertionError as error:
        works = "shap sees layers alone; deep_shap and deeplift of standfast see functions such as torch.relu, too"
        raise ModelError(f"{label}: expected values that add up ({works}), got: {error}") from error
