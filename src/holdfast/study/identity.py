"""The parts of a job's identity that are not data: what a configuration, a function or a model consists of."""

from __future__ import annotations

import hashlib
import re
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import fields
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.metrics import Metric
from holdfast.model import Classifier
from holdfast.study.store import digest, tensor_digest

#: packages that are identified by their version, not by their code
_VERSIONED = (
    *("holdfast", "torch", "captum", "builtins"),
    *("lime", "pytorch_grad_cam", "quantus", "shap", "timm", "torchvision", "transformers", "zennit"),
)

#: fields of every metric that do not change its result
_NOT_COMPARED = frozenset(field.name for field in fields(Metric) if not field.compare)


def fingerprint(value: object, depth: int = 6, known: dict[tuple[int, int], Any] | None = None) -> Any:
    """What a configuration consists of. Functions count by their code and by the values they refer to.

    Args:
        value: of any kind.
        depth: how many levels of references are followed.
        known: the functions that were visited already; they may call each other.

    >>> fingerprint(lambda x: 2 * x) == fingerprint(lambda x: 3 * x)
    False
    """
    known = {} if known is None else known
    if isinstance(value, int | float | str | bool | bytes | None):
        return repr(value)
    if isinstance(value, Tensor):
        return tensor_digest(value)
    if isinstance(value, type):
        return [value.__module__, value.__qualname__, _code(value, depth - 1, known)]
    if depth <= 0:
        return _without_address(value)
    inner = partial(fingerprint, depth=depth - 1, known=known)
    if isinstance(value, CodeType):
        return [value.co_code.hex(), list(value.co_names), [inner(c) for c in value.co_consts]]
    if isinstance(value, FunctionType):
        # a digest instead of the parts, because functions that call each other would be written out many times
        if (id(value), depth) not in known:
            closed = [inner(cell.cell_contents) for cell in value.__closure__ or ()]
            used = {name: inner(entry) for name, entry in _globals(value).items()}
            defaults = [inner(value.__defaults__), inner(value.__kwdefaults__)]
            known[id(value), depth] = digest([value.__module__, inner(value.__code__), *defaults, closed, used])
        return known[id(value), depth]
    if isinstance(value, MethodType):
        return [inner(value.__func__), inner(value.__self__)]
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, nn.Module) and "_orig_mod" in value._modules:  # of torch.compile, which adds to it when called
        return ["compiled", inner(value._modules["_orig_mod"])]
    if isinstance(value, nn.Module):
        tensors = {n: tensor_digest(t) for n, t in (*value.state_dict().items(), *value.named_buffers())}
        return [repr(value), tensors, _classes(value), _settings(value)]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
        return [str(value.dtype), list(value.shape), content]
    if isinstance(value, set | frozenset):  # whose order differs from process to process
        return sorted((inner(entry) for entry in value), key=repr)
    if isinstance(value, partial):
        return [inner(value.func), inner(value.args), inner(value.keywords)]
    if isinstance(value, Mapping):
        return {str(key): inner(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [inner(entry) for entry in value]
    # equal metrics have one identity; the user's own fields count even if they do not when two are compared
    skipped = _NOT_COMPARED if isinstance(value, Metric) else frozenset()
    state = {k: inner(v) for k, v in vars(value).items() if k not in skipped} if hasattr(value, "__dict__") else None
    bound = inner(value.__self__) if hasattr(value, "__self__") else None
    kind = type(value)
    return [
        kind.__qualname__,
        _code(kind, depth - 1, known),
        _without_address(value) if state is None else state,
        bound,
    ]


def classifier_fingerprint(classifier: Classifier) -> list[Any]:
    """What a model consists of, with its bounds and preprocessing, and the versions that compute with it."""
    return [
        fingerprint(classifier.module),
        fingerprint(classifier.preprocess),
        [tensor_digest(bound) for bound in classifier.bounds],
        str(classifier.dtype),
        [version("holdfast"), torch.__version__],
    ]


def _without_address(value: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _code(kind: type, depth: int, known: dict[tuple[int, int], Any]) -> dict[str, Any]:
    """The functions of a class, unless its package is identified by its version. A class may refer to itself."""
    package = kind.__module__.partition(".")[0]
    if depth <= 0 or package in _VERSIONED:
        return _version(package)
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] not in _VERSIONED:
            found |= {name: getattr(f, "__func__", getattr(f, "fget", f)) for name, f in vars(base).items()}
    functions = {name: fingerprint(f, depth, known) for name, f in found.items() if isinstance(f, FunctionType)}
    return functions | _version(package)


@cache
def _version(package: str) -> dict[str, Any]:
    """The version of another package, on which results of its classes depend; our own version is recorded elsewhere."""
    if package in ("holdfast", "torch", "builtins"):
        return {}
    try:
        return {"version": version({"pytorch_grad_cam": "grad-cam"}.get(package, package))}
    except PackageNotFoundError:
        return {}


def _globals(function: FunctionType) -> dict[str, Any]:
    """What a function uses of its module: constants, and functions of its package or of other modules of the user."""
    package = (function.__module__ or "").partition(".")[0]
    if package in _VERSIONED:
        return {}
    found: dict[str, Any] = {}
    names = _names(function.__code__)
    for name in sorted(names & function.__globals__.keys()):
        entry = function.__globals__[name]
        if isinstance(entry, ModuleType) and _own(entry):  # `import helpers`, then `helpers.scale()`
            inside = {n: vars(entry)[n] for n in sorted(names & vars(entry).keys())}
            found |= {f"{name}.{n}": e for n, e in inside.items() if _belongs(e, package)}
        elif _belongs(entry, package):
            found[name] = entry
    return found


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(c) for c in code.co_consts if isinstance(c, CodeType)))


def _belongs(entry: object, package: str) -> bool:
    if isinstance(
        entry,
        int | float | str | bool | bytes | tuple | list | dict | set | frozenset | Tensor | np.ndarray | nn.Module,
    ):
        return True
    if not isinstance(entry, FunctionType | type):
        return False
    return (entry.__module__ or "").partition(".")[0] == package or _own(entry)


def _own(entry: ModuleType | FunctionType | type) -> bool:
    """Whether something is the user's own: not from an installed package, and not from Python itself."""
    if isinstance(entry, FunctionType):
        name, file = entry.__module__, entry.__code__.co_filename
    else:
        name = entry.__name__ if isinstance(entry, ModuleType) else entry.__module__
        module = entry if isinstance(entry, ModuleType) else sys.modules.get(name)
        file = getattr(module, "__file__", None) or ""
    if not file or (name or "").partition(".")[0] in _VERSIONED:
        return False
    path = Path(file)
    library = {"site-packages", "dist-packages"} & set(path.parts)
    return path.is_absolute() and not library and not path.is_relative_to(sysconfig.get_paths()["stdlib"])


def _settings(module: nn.Module) -> dict[str, Any]:
    """The plain attributes of all parts (heads, scales, functions), which may be in neither `repr` nor the state."""
    found: dict[str, Any] = {}
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule | torch.fx.GraphModule):  # their constants are part of their code
            continue
        if "_orig_mod" in part._modules:  # of torch.compile; its own attributes change when it is called
            continue
        plain = {k: v for k, v in vars(part).items() if not k.startswith("_") and k != "training"}
        if plain:
            found[name] = fingerprint(plain, 4)
    return found


def _classes(module: nn.Module) -> dict[str, Any]:
    """The code of the user's own layers, which `repr` does not show; compiled layers carry their code with them."""
    found: dict[str, Any] = {}
    for part in module.modules():
        kind = type(part)
        if isinstance(part, torch.jit.ScriptModule):
            found[f"script {part.original_name}"] = str(part.code) if hasattr(part, "forward") else ""
        elif isinstance(part, torch.fx.GraphModule):
            found[f"graph {len(found)}"] = str(part.code)
        elif code := _code(kind, 3, {}):
            found[f"{kind.__module__}.{kind.__qualname__}"] = code
    return found
