"""Explainers of other packages by name: `captum:IntegratedGradients`, `shap:KernelExplainer`, and the like."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from standfast.explainers.adapters.captum import from_captum
from standfast.explainers.adapters.lime import from_lime
from standfast.explainers.adapters.shap import from_shap
from standfast.explainers.base import Explainer

#: for each package, by the name before the colon, the function that makes an explainer from the name after it
ADAPTERS: dict[str, Callable[..., Explainer]] = {
    "captum": from_captum,
    "lime": from_lime,
    "shap": from_shap,
}


def find_adapter(name: str) -> Callable[..., Explainer]:
    """The function of options that makes the explainer called `package:Name`; for the registry of explainers.

    >>> find_adapter("captum:IntegratedGradients")(n_steps=20).rows_per_input
    20
    """
    package, _, title = name.partition(":")
    return partial(ADAPTERS[package], title)
