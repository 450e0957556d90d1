"""Explainers from the methods of Captum."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from standfast.errors import check
from standfast.explainers.adapters.base import (
    ForeignExplainer,
    check_own_module,
    get_class,
    shape_like_inputs,
    silence_warnings,
)
from standfast.explainers.base import Measure, join_preprocessing
from standfast.explainers.cam.gradcam import choose_layers, find_layer
from standfast.model import Model
from standfast.needs import Needs

_SAMPLE_COUNTS = ("n_samples", "nt_samples")
#: options whose product is the number of rows for one input
_ROW_COUNTS = ("n_steps", *_SAMPLE_COUNTS, "n_perturb_samples")
#: methods whose attributions add up to the change of the logit, and the options that do not change this
_ADDITIVE = (
    "IntegratedGradients",
    "DeepLift",
    "DeepLiftShap",
    "ShapleyValueSampling",
    "ShapleyValues",
    "KernelShap",
)
#: further methods whose attributions have the unit of the logit
_CONTRIBUTIONS = ("FeatureAblation", "GradientShap", "InputXGradient", "Lime", "Occlusion")
#: methods that multiply slopes by how far the input is from its baseline, unless they are told not to
_MULTIPLYING = ("DeepLift", "DeepLiftShap", "GradientShap", "IntegratedGradients")
#: methods whose signs say what raising a feature does
_DIRECTIONS = ("Deconvolution", "GuidedBackprop", "GuidedGradCam")
#: methods whose numbers speak for the answer or against it by their signs; those of neurons, and activations, do not
_SIGNED = frozenset(
    {
        *(
            "Deconvolution",
            "DeepLift",
            "DeepLiftShap",
            "FeatureAblation",
            "FeaturePermutation",
            "GradientShap",
        ),
        *(
            "GuidedBackprop",
            "GuidedGradCam",
            "InputXGradient",
            "IntegratedGradients",
            "InternalInfluence",
        ),
        *(
            "KernelShap",
            "LRP",
            "LayerConductance",
            "LayerDeepLift",
            "LayerDeepLiftShap",
            "LayerFeatureAblation",
        ),
        *(
            "LayerFeaturePermutation",
            "LayerGradCam",
            "LayerGradientShap",
            "LayerGradientXActivation",
        ),
        *(
            "LayerIntegratedGradients",
            "LayerLRP",
            "Lime",
            "LimeBase",
            "Occlusion",
            "ShapleyValueSampling",
        ),
        "ShapleyValues",
    }
)
_HARMLESS = {
    "method",
    "n_steps",
    "n_samples",
    "eps",
    "internal_batch_size",
    "perturbations_per_eval",
    "show_progress",
}


@dataclass(frozen=True)
class CaptumExplainer(ForeignExplainer):
    """An explainer that calls a method of Captum; made by `from_captum`."""

    layer: str | None = None
    name = "captum"
    package = "captum"
    home = "captum.attr"
    entry = "attribute"
    built_on = (("forward_func", "model"),)
    passed = ("layer", "target")

    @staticmethod
    def is_suggested(kind: Any) -> bool:
        return hasattr(kind, "attribute")

    @classmethod
    def list_parameters(cls, method: Any) -> dict[str, Parameter]:
        """The parameters of `.attribute`; for a `NoiseTunnel`, the method's inside it, too."""
        parameters = super().list_parameters(method)
        inner = getattr(method, "attribution_method", None)
        inside = {} if inner is None else cls.list_parameters(inner)
        parameters = {**inside, **parameters}
        return {
            name: entry
            for name, entry in parameters.items()
            if entry.kind is not Parameter.VAR_KEYWORD
        }

    @classmethod
    def count_rows(
        cls, method: Any, known: Mapping[str, Parameter], options: Mapping[str, Any]
    ) -> int:
        if "perturbations_per_eval" in known:
            return _read_count("perturbations_per_eval", known, options)
        # the DeepLift family forwards its baselines too
        both = 2 if "custom_attribution_func" in known else 1
        return both * math.prod(_read_count(name, known, options) for name in _ROW_COUNTS)

    @property
    def uses_hooks(self) -> bool:
        method = self.method
        while hasattr(method, "attribution_method"):  # of a NoiseTunnel
            method = method.attribution_method
        # Captum's methods that only run the model take it as `forward_func`
        return self.layer is not None or bool(
            {"model", "layer"} & set(signature(get_class(method)).parameters)
        )

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        kinds = [kind.__name__ for kind in get_class(self.method).__mro__]
        return Needs(gradients="GradientAttribution" in kinds)

    @property
    def has_signs(self) -> bool | None:  # type: ignore[override]
        """As the method says; a class of its own, which Captum does not have, says nothing."""
        return _find_signs(self.method, {**self.constructor_options, **self.call_options})

    @property
    def measures(self) -> Measure:  # type: ignore[override]
        """As the method says; of a class of its own nothing is known."""
        return _find_measure(self.method, {**self.constructor_options, **self.call_options})

    def find_references(self, model: Model, x: Tensor) -> Tensor | None:
        options = {**self.constructor_options, **self.call_options}
        name = get_class(self.method).__name__
        baselines = options.pop("baselines", None)
        whole = options.pop("multiply_by_inputs", True)
        whole = whole and getattr(self.method, "_multiply_by_inputs", True)
        plain = isinstance(baselines, int | float | Tensor | None)
        plain = plain and options.keys() <= _HARMLESS
        if name not in _ADDITIVE or not whole or not plain:
            return None
        if baselines is None:
            baselines = 0
        references: Tensor = torch.zeros_like(x[:1]) + baselines
        # other methods take several baselines as one for each input
        if len(references) == 1 or name == "DeepLiftShap":
            return references
        return None

    def explain(self, model: Model, rows: Tensor, targets: Tensor) -> Tensor:
        method = self._build(model, rows)
        options = dict(self.call_options)
        if "target" in self.list_parameters(method):
            options["target"] = targets
        with silence_warnings("captum"):
            out = method.attribute(rows.requires_grad_(True), **options)
        return shape_like_inputs(out, rows, self.label, layer=hasattr(method, "layer"))

    def _build(self, model: Model, rows: Tensor) -> Any:
        module = join_preprocessing(model)
        if isinstance(self.method, type):
            layers: list[nn.Module] = []
            if self.layer is not None:
                layers = [find_layer(model.module, self.layer)]
            elif "layer" in signature(self.method).parameters:
                layers = choose_layers(model, rows, self.label)
                got = f"{len(layers)} side by side"
                check(len(layers) == 1, "layer", f"the name of one layer for {self.label}", got)
            return self.method(module, *layers, **self.constructor_options)
        forward = getattr(self.method, "forward_func", None)
        program = module if forward == module.forward else forward
        check_own_module(self.label, program, model)
        return self.method


def _find_signs(method: Any, options: Mapping[str, Any]) -> bool | None:
    """Whether the maps of a method have signs; None of one that is not known."""
    inner = getattr(method, "attribution_method", None)
    if inner is not None:  # a NoiseTunnel, whose squares and variances have none
        is_mean = options.get("nt_type", "smoothgrad") == "smoothgrad"
        return _find_signs(inner, options) if is_mean else False
    name = get_class(method).__name__
    if name == "Saliency":
        return not options.get("abs", True)
    return True if name in _SIGNED else None


def _find_measure(method: Any, options: Mapping[str, Any]) -> Measure:
    """What the maps of a method measure; of one that is not known relevance."""
    inner = getattr(method, "attribution_method", None)
    if inner is not None:  # a NoiseTunnel, whose squares and variances have another unit
        is_mean = options.get("nt_type", "smoothgrad") == "smoothgrad"
        return _find_measure(inner, options) if is_mean else "relevance"
    name = get_class(method).__name__
    if name == "Saliency":
        return "slope"
    if name in _DIRECTIONS:
        return "direction"
    multiplies = options.get("multiply_by_inputs", True)
    multiplies = multiplies and getattr(method, "_multiply_by_inputs", True)
    if name in _MULTIPLYING and not multiplies:
        return "slope"
    return "contribution" if name in (*_ADDITIVE, *_CONTRIBUTIONS) else "relevance"


def from_captum(
    method: Any,
    /,
    *,
    rows_per_input: int | None = None,
    layer: str | None = None,
    one_at_a_time: bool | None = None,
    seed: int = 0,
    **options: Any,
) -> CaptumExplainer:
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
    method = CaptumExplainer.find_method(method)
    fits = True
    if layer is not None and isinstance(method, type):
        fits = "layer" in signature(method).parameters
    check(fits, "layer", f"None ({get_class(method).__name__} takes no layer)", repr(layer))
    if one_at_a_time is None:
        one_at_a_time = not {*_SAMPLE_COUNTS}.isdisjoint(CaptumExplainer.list_parameters(method))
    return CaptumExplainer.make(method, options, rows_per_input, one_at_a_time, seed, layer=layer)


def _read_count(name: str, known: Mapping[str, Parameter], options: Mapping[str, Any]) -> int:
    """An option that is a number of rows; 1 if it is another thing, or does not exist."""
    usual = known[name].default if name in known else 1
    count = options.get(name, usual)
    return count if isinstance(count, int) else 1
