"""What a configuration, a function or a model consists of: the part of a job's identity that is not data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.model import Classifier
from holdfast.study.store import tensor_digest

#: packages whose code is told by their version
_VERSIONED = ("holdfast", "torch", "captum", "builtins")


def fingerprint(value: object, depth: int = 6) -> Any:
    """What a configuration consists of, functions by their code and what they close over; no addresses.

    >>> fingerprint(lambda x: 2 * x) == fingerprint(lambda x: 3 * x)
    False
    """
    if isinstance(value, int | float | str | bool | bytes | None):
        return repr(value)
    if isinstance(value, Tensor):
        return tensor_digest(value)
    if isinstance(value, type):
        return [value.__module__, value.__qualname__, _code(value, depth - 1)]
    if depth <= 0:
        return _nameless(value)
    inner = partial(fingerprint, depth=depth - 1)
    if isinstance(value, CodeType):
        return [value.co_code.hex(), list(value.co_names), [inner(c) for c in value.co_consts]]
    if isinstance(value, FunctionType):
        closed = [inner(cell.cell_contents) for cell in value.__closure__ or ()]
        used = {name: inner(entry) for name, entry in _globals(value).items()}
        return [value.__module__, inner(value.__code__), inner(value.__defaults__), closed, used]
    if isinstance(value, nn.Module):
        return [repr(value), {n: tensor_digest(t) for n, t in value.state_dict().items()}, _classes(value)]
    if isinstance(value, partial):
        return [inner(value.func), inner(value.args), inner(value.keywords)]
    if isinstance(value, Mapping):
        return {str(key): inner(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [inner(entry) for entry in value]
    state = {k: inner(v) for k, v in vars(value).items()} if hasattr(value, "__dict__") else None
    bound = inner(value.__self__) if hasattr(value, "__self__") else None
    kind = type(value)
    return [kind.__qualname__, _code(kind, depth - 1), _nameless(value) if state is None else state, bound]


def classifier_fingerprint(classifier: Classifier) -> list[Any]:
    """The same of a model with its bounds and preprocessing, and of the versions that compute with it."""
    return [
        fingerprint(classifier.module),
        fingerprint(classifier.preprocess),
        [tensor_digest(bound) for bound in classifier.bounds],
        str(classifier.dtype),
        [version("holdfast"), torch.__version__],
    ]


def _nameless(value: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _code(kind: type, depth: int) -> dict[str, Any]:
    """The functions of a class that is not from a package whose version we record; a class may close over itself."""
    if depth <= 0 or kind.__module__.partition(".")[0] in _VERSIONED:
        return {}
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] not in _VERSIONED:
            found |= {name: getattr(f, "__func__", getattr(f, "fget", f)) for name, f in vars(base).items()}
    return {name: fingerprint(f, depth) for name, f in found.items() if isinstance(f, FunctionType)}


def _globals(function: FunctionType) -> dict[str, Any]:
    """What a function finds in its own module: helpers, constants and classes of the same package."""
    package = (function.__module__ or "").partition(".")[0]
    if package in _VERSIONED:
        return {}
    found = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    return {name: entry for name, entry in found.items() if _belongs(entry, package)}


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(c) for c in code.co_consts if isinstance(c, CodeType)))


def _belongs(entry: object, package: str) -> bool:
    if isinstance(entry, int | float | str | bool | bytes | tuple | list | dict | Tensor):
        return True
    return isinstance(entry, FunctionType | type) and (entry.__module__ or "").partition(".")[0] == package


def _classes(module: nn.Module) -> dict[str, Any]:
    """What the user's own layers do, for `repr` does not tell; compiled ones carry their code with them."""
    found: dict[str, Any] = {}
    for part in module.modules():
        kind = type(part)
        if isinstance(part, torch.jit.ScriptModule):
            found[f"script {part.original_name}"] = str(part.code) if hasattr(part, "forward") else ""
        elif isinstance(part, torch.fx.GraphModule):
            found[f"graph {len(found)}"] = str(part.code)
        elif code := _code(kind, 3):
            found[f"{kind.__module__}.{kind.__qualname__}"] = code
    return found
