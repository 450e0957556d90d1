"""Explainers: feature attributions behind one interface, by class or by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from standfast.errors import check, describe_foreign, find_package
from standfast.explainers.adapters.callables import from_callable, from_quantus
from standfast.explainers.adapters.captum import from_captum
from standfast.explainers.adapters.lime import from_lime
from standfast.explainers.adapters.packages import ADAPTERS
from standfast.explainers.adapters.shap import from_shap
from standfast.explainers.attention.attention_relevance import AttentionRelevance
from standfast.explainers.attention.attention_rollout import AttentionRollout
from standfast.explainers.base import Explainer, explainers
from standfast.explainers.baselines import CentreExplainer, Edges, InputCopy, RandomExplainer
from standfast.explainers.cam.full_grad import FullGrad
from standfast.explainers.cam.gradcam import GradCAM
from standfast.explainers.cam.guided_gradcam import GuidedGradCAM
from standfast.explainers.gradients.gradient_shap import GradientSHAP
from standfast.explainers.gradients.input_gradients import (
    InputXGradient,
    IntegratedGradients,
    Saliency,
    SmoothGrad,
)
from standfast.explainers.gradients.surrogates import smooth_relu
from standfast.explainers.perturbation.context_cite import ContextCite
from standfast.explainers.perturbation.extremal_perturbations import ExtremalPerturbations
from standfast.explainers.perturbation.kernel_shap import KernelSHAP
from standfast.explainers.perturbation.lime import LIME
from standfast.explainers.perturbation.occlusion import Occlusion
from standfast.explainers.perturbation.rise import RISE
from standfast.explainers.perturbation.shapley_sampling import ShapleySampling
from standfast.explainers.propagation.attn_lrp import AttnLRP
from standfast.explainers.propagation.backward_rules import (
    LRP,
    Deconvolution,
    DeepLift,
    GuidedBackprop,
)
from standfast.explainers.propagation.deep_shap import DeepSHAP
from standfast.explainers.propagation.lrp_composites import (
    DeepTaylor,
    LRPComposite,
    LRPEpsilonAlpha2Beta1,
    LRPEpsilonAlpha2Beta1Flat,
    LRPEpsilonGammaBox,
    LRPEpsilonPlus,
    LRPEpsilonPlusFlat,
)
from standfast.explainers.randomised import RandomisedExplainer
from standfast.records import Background
from standfast.registry import build

__all__ = [
    "LIME",
    "LRP",
    "RISE",
    "AttentionRelevance",
    "AttentionRollout",
    "AttnLRP",
    "Background",
    "CentreExplainer",
    "ContextCite",
    "Deconvolution",
    "DeepLift",
    "DeepSHAP",
    "DeepTaylor",
    "Edges",
    "Explainer",
    "ExtremalPerturbations",
    "FullGrad",
    "GradCAM",
    "GradientSHAP",
    "GuidedBackprop",
    "GuidedGradCAM",
    "InputCopy",
    "InputXGradient",
    "IntegratedGradients",
    "KernelSHAP",
    "LRPComposite",
    "LRPEpsilonAlpha2Beta1",
    "LRPEpsilonAlpha2Beta1Flat",
    "LRPEpsilonGammaBox",
    "LRPEpsilonPlus",
    "LRPEpsilonPlusFlat",
    "Occlusion",
    "RandomExplainer",
    "RandomisedExplainer",
    "Saliency",
    "ShapleySampling",
    "SmoothGrad",
    "explainers",
    "from_callable",
    "from_captum",
    "from_lime",
    "from_quantus",
    "from_shap",
    "get",
    "names",
    "smooth_relu",
]

# not in `base`, which these import
explainers.packages.update(
    dict.fromkeys(ADAPTERS, "standfast.explainers.adapters.packages:find_adapter")
)
explainers.aliases["tree_shap"] = "shap:TreeExplainer"
explainers.packages[RandomisedExplainer.name] = "standfast.explainers:find_randomised"


def find_randomised(name: str) -> Callable[..., Explainer]:
    """The function of options that stands for a name such as `"randomised:saliency"`; options are the explainer's."""
    _, _, inner = name.partition(":")
    explainers[inner]  # an unknown name is an error of its own
    return lambda **options: RandomisedExplainer(get(inner, **options))


def names() -> list[str]:
    """The names of all registered explainers, sorted; those of other packages are not listed (see `get`)."""
    return explainers.names()


def get(explainer: str | Explainer | Callable[..., Tensor], /, **options: Any) -> Explainer:
    """An explainer from a name and options, or from a function; a ready explainer is returned as it is.

    Args:
        explainer: one of:

            - a registered name, such as `"lrp"`, or a name with options, `"name:option=value,option=value"`;
            - `"tree_shap"`, short for `"shap:TreeExplainer"`;
            - the name of another package's explainer: `"captum:IntegratedGradients"`, `"shap:KernelExplainer"`,
              `"lime:LimeImageExplainer"`. `from_captum`, `from_shap` and `from_lime` describe their options;
            - an explainer for the model with shuffled weights, as a control: `"randomised:saliency"`;
            - a function `fn(module, inputs, targets) -> attributions`, which `from_callable` wraps;
            - an `Explainer`.
        options: of the explainer, or of the function that wraps it.

    Raises:
        MissingExtraError: the other package cannot be imported.
        ArgumentError: an unknown name (the nearest one is suggested), an unknown option, or a value out of range.

    >>> get("integrated_gradients", steps=64)
    IntegratedGradients(steps=64, baseline=None)
    >>> get("integrated_gradients:steps=64,baseline=0.5")
    IntegratedGradients(steps=64, baseline=0.5)
    >>> get("captum:IntegratedGradients", n_steps=20).rows_per_input
    20
    >>> get("salience")
    Traceback (most recent call last):
        ...
    standfast.errors.UnknownNameError: explainer: expected ... got 'salience' (did you mean 'saliency'?)
    """
    if isinstance(explainer, Explainer):
        check(
            not options,
            "options",
            f"none for the ready explainer {explainer.label}",
            ", ".join(options),
        )
        return explainer
    if (
        callable(explainer)
        and not isinstance(explainer, type)
        and not find_package(explainer, ADAPTERS)
    ):
        return from_callable(explainer, **options)
    expected = "a name, an Explainer (from_captum and others make one) or a function of module, inputs and targets"
    check(
        isinstance(explainer, str),
        "explainer",
        expected,
        describe_foreign(explainer, ADAPTERS, adapters=True),
    )
    assert isinstance(explainer, str)
    name, colon, rest = explainer.partition(":")
    explainer = explainers.aliases.get(name, name) + colon + rest
    if isinstance(options.get("explainer"), str):  # of an explainer that wraps another one
        options["explainer"] = get(options["explainer"])
    return build(explainers, explainer, options)
