"""Explainers: feature attributions behind one interface, by class or by name."""

from __future__ import annotations

import ast
from dataclasses import fields
from typing import Any

from holdfast.errors import ArgumentError, check
from holdfast.explainers.activation import GradCAM
from holdfast.explainers.adapters import from_callable, from_captum
from holdfast.explainers.base import Explainer
from holdfast.explainers.gradient import InputXGradient, IntegratedGradients, Saliency, SmoothGrad
from holdfast.explainers.propagation import LRP, Deconvolution, DeepLift, GuidedBackprop
from holdfast.explainers.random import RandomExplainer
from holdfast.explainers.surrogates import smooth_relu
from holdfast.registry import Registry

__all__ = [
    "LRP",
    "Deconvolution",
    "DeepLift",
    "Explainer",
    "GradCAM",
    "GuidedBackprop",
    "InputXGradient",
    "IntegratedGradients",
    "RandomExplainer",
    "Saliency",
    "SmoothGrad",
    "from_callable",
    "from_captum",
    "get",
    "names",
    "smooth_relu",
]

EXPLAINERS: Registry[type[Explainer]] = Registry(
    "explainer", "holdfast.explainers", lambda kind: isinstance(kind, type) and issubclass(kind, Explainer)
)
for _kind in (
    Saliency,
    InputXGradient,
    IntegratedGradients,
    SmoothGrad,
    GuidedBackprop,
    Deconvolution,
    DeepLift,
    LRP,
    GradCAM,
    RandomExplainer,
):
    EXPLAINERS.add(_kind.name, _kind)


def names() -> list[str]:
    """What `get` knows, sorted."""
    return EXPLAINERS.names()


def get(explainer: str | Explainer, **options: Any) -> Explainer:
    """An explainer by its name and options, by `"name:option=value,..."`, or one that is there already.

    Raises:
        ArgumentError: an unknown name (the nearest one is suggested), an unknown option, a value out of
            range.

    >>> get("integrated_gradients", steps=64)
    IntegratedGradients(steps=64, baseline=0.0, method='gausslegendre')
    >>> get("integrated_gradients:steps=64,method=riemann_middle")
    IntegratedGradients(steps=64, baseline=0.0, method='riemann_middle')
    >>> get("salience")
    Traceback (most recent call last):
        ...
    holdfast.errors.UnknownNameError: explainer: expected ... got 'salience' (did you mean 'saliency'?)
    """
    if isinstance(explainer, Explainer):
        check(not options, "options", f"none for the ready explainer {explainer.label}", ", ".join(options))
        return explainer
    check(isinstance(explainer, str), "explainer", "a name or an Explainer", repr(explainer))
    name, _, text = explainer.partition(":")
    kind = EXPLAINERS[name.strip()]
    options = {**_parse(text), **options}
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            expected = f"an option of {kind.name}: {', '.join(known)}" if known else f"no options for {kind.name}"
            raise ArgumentError(option, expected, f"{option}={options[option]!r}")
    return kind(**options)


def _parse(text: str) -> dict[str, Any]:
    """`"steps=64,baseline=0"` as options; values are Python literals, or else strings."""
    options: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        check(bool(key and separator and value), "explainer", "name:option=value,option=value", repr(part))
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value
    return options
