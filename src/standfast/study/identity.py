"""The parts of a job's identity that are not data: what a configuration, a function or a model consists of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import ModelError
from standfast.metrics import Metric
from standfast.model import Model
from standfast.study.store import digest, tensor_digest
from standfast.study.user_code import VERSIONED, UserCode, is_own

#: fields of every metric that do not change its result
_NOT_COMPARED = frozenset(field.name for field in fields(Metric) if not field.compare)


#: projects whose name is not that of the package
_PROJECTS = {"pytorch_grad_cam": "grad-cam", "sklearn": "scikit-learn"}


class Known:
    """What one fingerprint has visited: functions, which may call each other, and the user's modules."""

    def __init__(self, code: UserCode | None = None) -> None:
        self.functions: dict[tuple[int, int], Any] = {}
        self.code = UserCode() if code is None else code


def fingerprint(value: object, depth: int = 6, known: Known | None = None) -> Any:
    """What a configuration consists of.

    A function or class of the user counts by the source of its module and of the user's modules that this imports
    (`UserCode`). It also counts by its code in memory and by the values it refers to, which may differ from the source.

    Args:
        value: of any kind.
        depth: how many levels of references are followed.
        known: what was visited already; `Known(code)` collects the user's modules in `code`.

    >>> fingerprint(lambda x: 2 * x) == fingerprint(lambda x: 3 * x)
    False
    """
    known = Known() if known is None else known
    if isinstance(value, int | float | str | bool | bytes | None):
        return repr(value)
    if isinstance(value, Tensor) and value.is_quantized:
        return [str(value.dtype), tensor_digest(value.dequantize())]
    if isinstance(value, Tensor):
        return tensor_digest(value)
    if is_estimator(value) or _is_tree(value):
        return digest(_contents(value, known, frozenset()))
    if isinstance(value, type):
        return [value.__module__, value.__qualname__, _code(value, depth - 1, known)]
    # what is written of code has its place in the file, and of a set an order that differs from process to process
    if depth <= 0 and not isinstance(value, CodeType | set | frozenset):
        return _without_address(value)
    inner = partial(fingerprint, depth=depth - 1, known=known)
    if isinstance(value, CodeType):
        return [value.co_code.hex(), list(value.co_names), [inner(c) for c in value.co_consts]]
    if isinstance(value, FunctionType):
        # a digest instead of the parts, because functions that call each other would be written out many times
        if (id(value), depth) not in known.functions:
            closed = [inner(cell.cell_contents) for cell in value.__closure__ or ()]
            used = {name: inner(entry) for name, entry in _globals(value).items()}
            defaults = [inner(value.__defaults__), inner(value.__kwdefaults__)]
            source = known.code.digest_of(value)
            parts = [value.__module__, inner(value.__code__), *defaults, closed, used, source]
            known.functions[id(value), depth] = digest(parts)
        return known.functions[id(value), depth]
    if isinstance(value, MethodType):
        return [inner(value.__func__), inner(value.__self__)]
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, nn.Module) and "_orig_mod" in value._modules:  # of torch.compile, which adds to it when called
        return ["compiled", inner(value._modules["_orig_mod"])]
    if isinstance(value, nn.Module):
        # a quantized module has types, and pairs of a weight and a bias, among its tensors
        tensors = {n: inner(t) for n, t in (*value.state_dict().items(), *value.named_buffers())}
        return [repr(value), tensors, _classes(value, known), _settings(value, known)]
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


def is_estimator(value: object) -> bool:
    """Whether something predicts and is no module: a fitted model of another package, or of the user."""
    ours = isinstance(value, nn.Module | type | ModuleType) or type(value).__module__.startswith("standfast.")
    return not ours and callable(getattr(value, "predict", None))


def _is_tree(value: object) -> bool:
    """Whether something is a `KDTree` or `BallTree` of scikit-learn, whose state is a tuple."""
    return type(value).__module__.startswith("sklearn.neighbors.") and hasattr(value, "get_tree_stats")


def _contents(value: object, known: Known, outer: frozenset[int]) -> Any:
    """Everything that an object would be pickled with, at any depth.

    A pickle itself would not do: nodes of trees have bytes between their fields that nobody has set.

    Args:
        value: of any kind.
        known: what was visited already.
        outer: the objects that `value` is a part of, which it may refer to.
    """
    if id(value) in outer:
        return "itself"
    inner = partial(_contents, known=known, outer=outer | {id(value)})
    if isinstance(value, np.ndarray) and (value.dtype.hasobject or value.dtype.names):
        fields = value.dtype.names
        return [inner(value[name]) for name in fields] if fields else [list(value.shape), inner(value.tolist())]
    if type(value) is dict:
        return [[inner(key), inner(entry)] for key, entry in value.items()]
    if type(value) is list or type(value) is tuple:
        return [inner(entry) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted((inner(entry) for entry in value), key=repr)
    if isinstance(value, bytes | bytearray):
        return hashlib.sha256(value).hexdigest()[:16]
    if isinstance(value, int | float | str | None | Tensor | np.ndarray | type | FunctionType | nn.Module | ModuleType):
        return fingerprint(value, known=known)
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # it cannot be pickled
        return _without_address(value)
    if isinstance(reduced, str):
        return reduced
    parts = [list(part) if isinstance(part, Iterator) else part for part in reduced[1:]]
    if _is_tree(value):  # it counts its queries; all other numbers follow from its arrays
        parts = [[entry for entry in reduced[2] if not isinstance(entry, int)]]
    return [fingerprint(type(value), known=known), getattr(reduced[0], "__qualname__", ""), inner(parts)]


def answers_fingerprint(model: Model, inputs: Tensor) -> str:
    """What a function of arrays answers to inputs `(N, ...)`, for what its code does not show; empty for a module.

    Its model may be anywhere, such as in another process. Logits are rounded, because sums over threads differ in the
    last bits.
    """
    if model.differentiable:
        return ""
    try:
        with model.session(), torch.no_grad():
            (logits,) = model.map_rows(lambda rows: (model.forward(rows),), inputs)
    except ModelError:  # the jobs say so
        return ""
    return tensor_digest((logits.double() * 997.3 + 0.417).floor())  # hardly any logit is near a step


def model_fingerprint(model: Model, code: UserCode | None = None) -> list[Any]:
    """What a model consists of, with its bounds and preprocessing, and the versions that compute with it."""
    known = Known(code)
    return [
        fingerprint(model.module, known=known),
        fingerprint(model.preprocess, known=known),
        [tensor_digest(bound) for bound in model.bounds],
        str(model.precision),
        [version("standfast"), torch.__version__],
    ]


def _without_address(value: object) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _code(kind: type, depth: int, known: Known) -> dict[str, Any]:
    """The functions and constants of a class, and the source of its modules, unless its package has a version.

    A class may refer to itself.
    """
    package = kind.__module__.partition(".")[0]
    if depth <= 0 or package in VERSIONED:
        return _version(package)
    found: dict[str, Any] = {}
    sources = []
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] not in VERSIONED:
            sources.append(known.code.digest_of(base))
            found |= {name: getattr(f, "__func__", getattr(f, "fget", f)) for name, f in vars(base).items()}
    values = {n: v for n, v in found.items() if isinstance(v, FunctionType) or (is_value(v) and not _is_dunder(n))}
    inside = {name: fingerprint(value, depth, known) for name, value in values.items()}
    return inside | _version(package) | ({"source": sources} if any(sources) else {})


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


@cache
def _version(package: str) -> dict[str, Any]:
    """The version of another package, on which results of its classes depend; our own version is recorded elsewhere."""
    if package in ("standfast", "torch", "builtins"):
        return {}
    try:
        return {"version": version(_PROJECTS.get(package, package))}
    except PackageNotFoundError:
        return {}


def _globals(function: FunctionType) -> dict[str, Any]:
    """What a function uses of its module: constants, and functions of its package or of other modules of the user."""
    package = (function.__module__ or "").partition(".")[0]
    if package in VERSIONED:
        return {}
    found: dict[str, Any] = {}
    names = {name for name in _names(function.__code__) if not _is_dunder(name)}  # __file__ differs in every folder
    folder = str(Path(function.__code__.co_filename).parent)
    for name in sorted(names & function.__globals__.keys()):
        entry = function.__globals__[name]
        if isinstance(entry, str) and entry.startswith(folder):  # made from __file__
            found[name] = entry.removeprefix(folder)
        elif isinstance(entry, ModuleType) and is_own(entry):  # `import helpers`, then `helpers.scale()`
            inside = {n: vars(entry)[n] for n in sorted(names & vars(entry).keys())}
            found |= {f"{name}.{n}": e for n, e in inside.items() if _belongs(e, package)}
        elif _belongs(entry, package):
            found[name] = entry
    return found


def _names(code: CodeType) -> set[str]:
    return set(code.co_names).union(*(_names(c) for c in code.co_consts if isinstance(c, CodeType)))


def _belongs(entry: object, package: str) -> bool:
    if is_value(entry) or is_estimator(entry) or _is_tree(entry):
        return True
    if not isinstance(entry, FunctionType | type):
        return False
    return (entry.__module__ or "").partition(".")[0] == package or is_own(entry)


def is_value(entry: object) -> bool:
    """Whether something is a plain value, whose content counts."""
    builtins = (int, float, str, bool, bytes, tuple, list, dict, set, frozenset)
    return isinstance(entry, (*builtins, Tensor, np.ndarray, nn.Module))


def _settings(module: nn.Module, known: Known) -> dict[str, Any]:
    """The plain attributes of all parts (heads, scales, functions), which may be in neither `repr` nor the state."""
    found: dict[str, Any] = {}
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule | torch.fx.GraphModule):  # their constants are part of their code
            continue
        if "_orig_mod" in part._modules:  # of torch.compile; its own attributes change when it is called
            continue
        plain = {k: v for k, v in vars(part).items() if not k.startswith("_") and k != "training"}
        if plain:
            found[name] = fingerprint(plain, 4, known)
    return found


def _classes(module: nn.Module, known: Known) -> dict[str, Any]:
    """The code of the user's own layers, which `repr` does not show; compiled layers carry their code with them."""
    found: dict[str, Any] = {}
    for part in module.modules():
        kind = type(part)
        if isinstance(part, torch.jit.ScriptModule):
            text, constants = part.code_with_constants if hasattr(part, "forward") else ("", None)
            weights = getattr(constants, "const_mapping", {})  # of a frozen module, which has no state
            found[f"script {part.original_name}"] = [str(text), fingerprint(weights, known=known)]
        elif isinstance(part, torch.fx.GraphModule):
            found[f"graph {len(found)}"] = str(part.code)
        elif code := _code(kind, 3, known):
            found[f"{kind.__module__}.{kind.__qualname__}"] = code
    return found
