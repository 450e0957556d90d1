"""`Needs`: what must be there before a metric, an explainer or a search can work; values that code can ask."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from standfast.errors import check


@dataclass(frozen=True)
class Needs:
    """What the model and the data must have. With nothing set, predictions are enough.

    Attributes:
        gradients: the model can be differentiated; a function of arrays (`Model.from_callable`) is refused.
        parameters: the model is a module whose parameters can be replaced; a function of arrays is refused.
        distances: differences of inputs are numbers; texts are refused.
        other: what else, in a few words for lists. Nothing is decided by them.

    >>> print(Needs(gradients=True, other="layers that have a rule"))
    gradients; layers that have a rule
    >>> Needs(gradients=True).module, Needs(distances=True).module
    (True, False)
    """

    gradients: bool = False
    parameters: bool = False
    distances: bool = False
    other: str = ""

    def __post_init__(self) -> None:
        for name in ("gradients", "parameters", "distances"):
            value = getattr(self, name)
            check(isinstance(value, bool), name, "True or False", repr(value))
        check(isinstance(self.other, str), "other", "a text", repr(self.other))

    @property
    def module(self) -> bool:
        """Whether the model must be a module: predictions alone are not enough."""
        return self.gradients or self.parameters

    def __str__(self) -> str:
        words = {
            "gradients": self.gradients,
            "a module with parameters": self.parameters,
            "inputs that are numbers, no words": self.distances,
            self.other: bool(self.other),
        }
        return "; ".join(word for word, is_needed in words.items() if is_needed)


#: the types of declarations that are checked: a plain value has one of them, and cannot mean anything else
_PLAIN_TYPES: Mapping[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    str: "a text",
    tuple[str, ...]: "a tuple of texts",
    Needs: "a Needs, such as Needs(gradients=True)",
}
_MISSING = object()


@functools.cache
def _find_declarations(base: type) -> Mapping[str, Any]:
    """The names that a base declares for its subclasses as `ClassVar` of a plain type, with their types."""
    declared: dict[str, Any] = {}
    for name, hint in get_type_hints(base).items():
        inner = get_args(hint)
        if get_origin(hint) is ClassVar and inner and inner[0] in _PLAIN_TYPES:
            declared[name] = inner[0]
    return declared


def check_declarations(kind: type, base: type) -> None:
    """Raise `ArgumentError` if a class declares a value of another type than `base` says.

    A text in the place of `Needs`, or a word in the place of False, would be taken for something else without a word.
    Properties are let through: they decide when they are asked.

    >>> class Base:
    ...     needs: ClassVar[Needs] = Needs()
    >>> class Plugin(Base):
    ...     needs = "gradients of the model"
    >>> check_declarations(Plugin, Base)
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: Plugin.needs: expected a Needs, such as Needs(gradients=True), got 'gradients of...
    """
    for name, declared in _find_declarations(base).items():
        value: Any = inspect.getattr_static(kind, name, _MISSING)  # also of a class beside the base
        if value is _MISSING or hasattr(value, "__get__"):
            continue
        check(
            _has_type(value, declared),
            f"{kind.__qualname__}.{name}",
            _PLAIN_TYPES[declared],
            repr(value),
        )


def _has_type(value: object, declared: Any) -> bool:
    if declared in (bool, int):
        return type(value) is declared  # True is no number here
    if declared == tuple[str, ...]:
        return isinstance(value, tuple) and all(isinstance(part, str) for part in value)
    return isinstance(value, declared)
