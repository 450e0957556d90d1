"""Explainers of other packages by name: `captum:IntegratedGradients`, `shap:KernelExplainer`, and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import UnknownNameError
from holdfast.explainers.adapters.callables import from_captum
from holdfast.explainers.adapters.grad_cam import from_grad_cam
from holdfast.explainers.adapters.lime import from_lime
from holdfast.explainers.adapters.shap import from_shap
from holdfast.explainers.adapters.zennit import from_zennit
from holdfast.explainers.base import Explainer

#: what stands before the colon, and what makes an explainer of what stands behind it
PACKAGES: dict[str, Callable[..., Explainer]] = {
    "captum": from_captum,
    "grad_cam": from_grad_cam,
    "lime": from_lime,
    "shap": from_shap,
    "zennit": from_zennit,
}


def is_elsewhere(name: object) -> bool:
    """Whether a name is of another package's explainer; `"lime:samples=50"` is our own, with an option.

    >>> is_elsewhere("captum:Saliency"), is_elsewhere("integrated_gradients:steps=4"), is_elsewhere("captum")
    (True, False, False)
    >>> is_elsewhere("lime:LimeImageExplainer"), is_elsewhere("lime:samples=50")
    (True, False)
    """
    package, colon, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    return bool(package in PACKAGES and colon and rest and "=" not in rest)


def from_elsewhere(name: str, /, **options: Any) -> Explainer:
    """The explainer of `package:Name`, by that package's adapter and with its options.

    Raises:
        UnknownNameError: no such package here, or no such class in it.
        MissingExtraError: the package cannot be imported.
        ArgumentError: options that do not fit.

    >>> from_elsewhere("captum:IntegratedGradients", n_steps=20).rows_per_input
    20
    """
    package, _, rest = name.partition(":")
    if package not in PACKAGES:
        raise UnknownNameError("package", package, PACKAGES)
    return PACKAGES[package](rest, **options)
