"""How the user has called `evaluate`, as code: the manifest holds it, so that a next step can be written in full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from torch import Tensor, nn

from standfast.explainers import Explainer
from standfast.metrics import Metric
from standfast.metrics.base import find_neighbourhood_option, has_neighbourhood
from standfast.question.arguments import Arguments
from standfast.question.spelling import spell, spell_options

#: the arguments that are not options: who calls has them under these names
_PLACES = ("model", "explainers", "inputs", "metrics")
#: signs that separate the options in a text such as "worst_case:budget=100"
_SEPARATORS = frozenset(",=:()[]")


def record_call(arguments: Arguments, further: Mapping[str, Any]) -> dict[str, Any]:
    """The call as plain values, for the manifest.

    Args:
        arguments: that decide what is computed.
        further: other arguments that the same call needs, such as `out`.

    Returns:
        - `"model"`: whether it is a `"model"`, a `"module"`, or `"models"` in a mapping.
        - `"explainers"` and `"metrics"`, each with `"named"` (whether they were given as a mapping) and `"parts"`. A
          part has a `"name"` and a `"code"`, which is None if there is none. That of a metric also has `"placed"`,
          whether it has a neighbourhood, and `"movable"`, its text without it, for `evaluate(..., neighbourhood=...)`.
        - `"options"`: the code of every other argument that differs from its default; the name of the argument where it
          has no code.
    """
    return {
        "model": _find_kind(arguments.model),
        "explainers": _record_explainers(arguments.explainers),
        "metrics": _record_metrics(arguments.metrics),
        "options": _record_options(arguments, further),
    }


def _find_kind(model: Any) -> str:
    """What was given as the model."""
    if isinstance(model, Mapping):
        return "models"
    if isinstance(model, nn.Module):
        return "module"
    return "model"


def _record_explainers(explainers: Any) -> dict[str, Any] | None:
    """None for what can be read once only."""
    if isinstance(explainers, Mapping):
        parts = [
            {"name": str(name), "code": spell(explainer)} for name, explainer in explainers.items()
        ]
        return {"named": True, "parts": parts}
    # a callable is an explainer, also where it could be iterated
    is_single = isinstance(explainers, str | Explainer) or callable(explainers)
    listed = [explainers] if is_single else explainers
    if not isinstance(listed, list | tuple):
        return None
    return {
        "named": False,
        "parts": [
            {"name": _find_name(explainer), "code": spell(explainer)} for explainer in listed
        ],
    }


def _find_name(explainer: Any) -> str:
    """What results call an explainer of a list; empty where that is not known before it is fitted to the inputs."""
    if isinstance(explainer, str):
        return explainer
    if isinstance(explainer, Explainer):
        return explainer.label
    return str(getattr(explainer, "__name__", ""))


def _record_metrics(metrics: Any) -> dict[str, Any] | None:
    """None for what can be read once only."""
    if isinstance(metrics, Mapping):
        return {
            "named": True,
            "parts": [_record_metric(str(label), metric) for label, metric in metrics.items()],
        }
    if isinstance(metrics, str | Metric | type):
        listed = [metrics]
    else:
        listed = metrics
    if not isinstance(listed, list | tuple):
        return None
    return {"named": False, "parts": [_record_metric("", metric) for metric in listed]}


def _record_metric(label: str, metric: Any) -> dict[str, Any]:
    kind = metric if isinstance(metric, str) else type(metric)
    is_placed = bool(find_neighbourhood_option(kind))
    return {
        "name": label,
        "code": spell(metric),
        "placed": is_placed,
        "movable": _find_movable(metric),
    }


def _find_movable(metric: Any) -> str | None:
    """The text of a metric without its neighbourhood; None if it has no neighbourhood, or no such text."""
    if isinstance(metric, str):
        option = find_neighbourhood_option(metric)
        # a text that names a neighbourhood cannot be moved to another one
        is_open = bool(option) and has_neighbourhood(metric) and f"{option}=" not in metric
        if is_open:
            return metric
        return None
    option = find_neighbourhood_option(type(metric))
    if not option:
        return None
    # an option without code cannot be typed again
    codes = spell_options(metric, without=[option])
    if codes is None:
        return None
    options: list[str] = []
    for name in codes:
        value = getattr(metric, name)
        text = value if isinstance(value, str) else codes[name]
        # signs that separate options would end the text too early
        is_plain = isinstance(value, bool | int | float | str) and not _SEPARATORS & set(text)
        if not is_plain:
            return None
        options.append(f"{name}={text}")
    if options:
        return f"{metric.name}:{','.join(options)}"
    return str(metric.name)


def _record_options(arguments: Arguments, further: Mapping[str, Any]) -> dict[str, str]:
    """The code of each argument that was given, or its own name."""
    options: dict[str, str] = {}
    for argument in fields(Arguments):
        value = getattr(arguments, argument.name)
        if argument.name in _PLACES or _is_default(argument, value):
            continue
        # the values of tensors and frames are those of the user's session
        code = None if isinstance(value, Tensor) else spell(value)
        if code is None:
            options[argument.name] = argument.name
        else:
            options[argument.name] = code
    for name, value in further.items():
        options[name] = spell(value) or name
    return options


def _is_default(argument: Field[Any], value: object) -> bool:
    """Whether an argument has the value that it has if it is not given; tensors are not compared."""
    default = {} if argument.default is MISSING else argument.default
    # identity first, since arrays have no single answer to an equality
    if value is default:
        return True
    # of the same type, as 1 equals True
    return (
        type(value) is type(default) and isinstance(value, Mapping | int | str) and value == default
    )
