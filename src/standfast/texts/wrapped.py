"""Networks within wrappers: compiled ones, adapters of PEFT, `DataParallel`, and what such a wrapper hides."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from inspect import Parameter
from typing import Any, Literal, NamedTuple

from torch import nn

#: how wrappers call the network in them: `torch.compile`, `DataParallel`, PEFT's models and adapters
_INNER_NAMES = ("_orig_mod", "module", "base_model", "model")
#: how a network gets its mask: as `attention_mask`, as its second argument, or not at all
MaskArgument = Literal["name", "position", "none"]


def walk_wrappers(module: nn.Module) -> Iterator[nn.Module]:
    """The module, the one that it wraps, and so on; a wrapper is a module whose `forward` takes any arguments.

    >>> class Wrapper(nn.Module):
    ...     def __init__(self, model):
    ...         super().__init__()
    ...         self.model = model
    ...     def forward(self, *args, **kwargs):
    ...         return self.model(*args, **kwargs)
    >>> [type(part).__name__ for part in walk_wrappers(Wrapper(nn.Flatten()))]
    ['Wrapper', 'Flatten']
    """
    current: nn.Module | None = module
    while current is not None:
        yield current
        current = _find_inner(current) if _takes_anything(current) else None


def find_mask_argument(module: nn.Module) -> MaskArgument:
    """How a network, or the one within its wrappers, gets the mask beside the token ids."""
    arguments = [_read_arguments(part) for part in walk_wrappers(module)]
    if any("attention_mask" in layer.names for layer in arguments):
        return "name"
    innermost = arguments[-1]
    if innermost.by_position > 1 or innermost.any_position:
        return "position"
    return "name" if innermost.any_name else "none"


def find_attribute(module: nn.Module, name: str) -> Any:
    """The attribute of a network, or of the one within its wrappers; None where none has it."""
    values = (getattr(part, name, None) for part in walk_wrappers(module))
    return next((value for value in values if value is not None), None)


class _Arguments(NamedTuple):
    """What a `forward` takes: names, how many of them by position, and whether it takes any (`*args`, `**kwargs`)."""

    names: tuple[str, ...]
    by_position: int
    any_position: bool
    any_name: bool


def _read_arguments(module: nn.Module) -> _Arguments:
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):  # a `forward` that is not written in Python
        return _Arguments((), 2, False, False)
    kinds = [parameter.kind for parameter in parameters]
    by_position = kinds.count(Parameter.POSITIONAL_ONLY) + kinds.count(
        Parameter.POSITIONAL_OR_KEYWORD
    )
    names = tuple(parameter.name for parameter in parameters)
    return _Arguments(
        names, by_position, Parameter.VAR_POSITIONAL in kinds, Parameter.VAR_KEYWORD in kinds
    )


def _takes_anything(module: nn.Module) -> bool:
    """Whether `forward` hands on any arguments, and names no mask and no second argument itself."""
    arguments = _read_arguments(module)
    hands_on = arguments.any_position or arguments.any_name
    return hands_on and arguments.by_position < 2 and "attention_mask" not in arguments.names


def _find_inner(module: nn.Module) -> nn.Module | None:
    """The network that a wrapper calls: by the names that wrappers use, or else its only child."""
    children = dict(module.named_children())
    for name in _INNER_NAMES:
        if name in children:
            return children[name]
    if len(children) == 1:
        return next(iter(children.values()))
    return None
