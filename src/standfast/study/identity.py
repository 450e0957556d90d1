"""What the result of a job depends on, as hashes and as answers that can be compared.

A configuration (explainer, metric, neighbourhood) is its registered name, its version, and the options that are not at
their defaults. So a new option leaves stored results valid, and code may move. What is the user's own code counts by
the bytes of all source files that belong to no distribution, and by what it names (`own_code`).

A model is its weights, and what it answers: to the inputs of the study, to noisy copies of them, and in its gradients.
So nothing has to be known about how it computes. Answers are compared with a tolerance, because another processor or
number of threads rounds otherwise. An explainer of the user's is compared by its maps in the same way.

A model of arrays, data frames or texts says itself what it consists of (`Composition`), and is asked for more: a change
may act only on a category, or on a part of a word, that no input of the study has, and that searches visit.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import find_version
from standfast.metrics import Metric
from standfast.model import Model
from standfast.neighbourhoods import Neighbourhood
from standfast.study.answers import find_composition
from standfast.study.own_code import (
    Reach,
    find_package_version,
    is_own,
    name_module,
    read_closure,
    read_own_modules,
)
from standfast.study.store import digest, tensor_digest
from standfast.tasks import Classification

#: fields of every metric that do not change its result
_NOT_COMPARED = frozenset(field.name for field in fields(Metric) if not field.compare)
#: packages of which bundled explainers consist: ours, those beneath it, and those with an adapter
_BUNDLED = frozenset({"standfast", "numpy", "torch", "captum", "lime", "quantus", "shap"})


# Configurations


class Description:
    """What a configuration consists of.

    Args:
        value: an explainer, a metric, or any option of one.

    Attributes:
        content: plain values.
        own: whether code of the user's is a part of it.
        packages: the other packages whose code is a part of it.
        reach: what that code names.

    >>> from standfast.explainers import get
    >>> Description(get("saliency")).own, Description(get("lrp")).digest == Description(get("lrp", epsilon=1e-9)).digest
    (False, True)
    """

    def __init__(self, value: object) -> None:
        self.own = False
        self.packages: set[str] = set()
        self.reach = Reach()
        self._outer: set[int] = set()
        self.content = self._describe(value)

    @property
    def digest(self) -> str:
        """A hash of it, and of the user's modules, and what its code names, if its code is a part."""
        if not self.own:
            return digest([self.content, None])
        modules = read_own_modules(self.reach.modules)
        if self.reach.content:
            return digest([self.content, modules, self.reach.content])
        return digest([self.content, modules])

    @property
    def bundled(self) -> bool:
        """Whether it consists of code alone that comes with this package, or that an adapter of it is for."""
        return not self.own and self.packages <= _BUNDLED | sys.stdlib_module_names

    def _describe(self, value: object) -> Any:
        if isinstance(value, int | float | str | bool | bytes | None):
            return repr(value)
        if isinstance(value, Tensor):
            if value.is_quantized:
                value = value.dequantize()
            return tensor_digest(value)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            content = np.ascontiguousarray(value).tobytes()
            short_digest = hashlib.sha256(content).hexdigest()[:16]
            return [str(value.dtype), list(value.shape), short_digest]
        if id(value) in self._outer:
            return "itself"
        self._outer.add(id(value))
        try:
            return self._describe_parts(value)
        finally:
            self._outer.discard(id(value))

    def _describe_parts(self, value: Any) -> Any:
        inner = self._describe
        if isinstance(value, Mapping):
            return {str(key): inner(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [inner(entry) for entry in value]
        if isinstance(value, set | frozenset):  # whose order differs from process to process
            return sorted((inner(entry) for entry in value), key=repr)
        if isinstance(value, nn.Module):
            kind = type(value)
            return [kind.__name__, self._describe_code(kind), digest_state(value)]
        if isinstance(value, partial):
            return [inner(value.func), inner(value.args), inner(value.keywords)]
        if isinstance(value, MethodType):
            return [inner(value.__func__), inner(value.__self__)]
        if isinstance(value, FunctionType):
            closed = read_closure(value)
            code = self._describe_code(value)
            return [code, inner([value.__defaults__, value.__kwdefaults__, closed])]
        if isinstance(value, type | BuiltinFunctionType | ModuleType):
            return [value.__name__, self._describe_code(value)]
        kind = type(value)
        name = getattr(kind, "name", None)
        title = name if isinstance(name, str) else kind.__name__
        package = getattr(kind, "package", "")  # of a metric of another package: its version
        code = self._describe_code(kind)
        state = self._describe_state(value)
        version = getattr(kind, "version", 1)
        if isinstance(value, Metric | Neighbourhood):
            version = value.revision
        return [title, version, code, package, state]

    def _describe_state(self, value: object) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            # equal metrics have one identity; fields of the user's count even if they do not when two are compared
            skipped = _NOT_COMPARED if isinstance(value, Metric) else frozenset()
            counted = []
            for field in fields(value):
                if field.name not in skipped and field.metadata.get("identity", True):
                    counted.append(field)
            # all values before all defaults: what is reached is a part of identities in the order in which it is met
            contents = [self._describe(getattr(value, field.name)) for field in counted]
            defaults = [self._default(field) for field in counted]
            state: dict[str, Any] = {}
            for field, content, default in zip(counted, contents, defaults, strict=True):
                if content != default:
                    state[field.name] = content
            return state
        attributes = getattr(value, "__dict__", None)
        if attributes:
            return self._describe(attributes)
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))

    def _default(self, field: Field[Any]) -> Any:
        """The description of an option's default; of none for an option that has none."""
        if field.default is not MISSING:
            return self._describe(field.default)
        if field.default_factory is MISSING:
            return MISSING
        return self._describe(field.default_factory())

    def _describe_code(self, thing: Any) -> str:
        """The version of a distribution, or the text of the user's own function or class."""
        module = name_module(thing)
        if not is_own(module):
            package = module.partition(".")[0]
            self.packages.add(package)
            return find_package_version(package)
        self.own = True
        if isinstance(thing, FunctionType | type):
            self.reach.add_names_of(thing)
        elif isinstance(thing, ModuleType):
            self.reach.add(thing)
        # it was typed into an interpreter, or made by another function
        with contextlib.suppress(OSError, TypeError):
            return inspect.getsource(thing)
        return str(getattr(thing, "__qualname__", ""))


# Models


def is_estimator(value: object) -> bool:
    """Whether something predicts and is no module: a fitted model of another package, or of the user."""
    ours = isinstance(value, nn.Module | type | ModuleType) or type(value).__module__.startswith(
        "standfast."
    )
    return not ours and callable(getattr(value, "predict", None))


def digest_state(module: nn.Module) -> str:
    """A hash of the parameters and buffers of a module, and of nothing else."""
    state = {**module.state_dict(), **dict(module.named_buffers())}
    return digest(Description(state).content)


@dataclass(frozen=True)
class ModelContent:
    """What a model consists of but for its answers, as plain values.

    Attributes:
        without_versions: what stays the same after an upgrade of standfast or torch; the user's modules are in it, too.
        versions: of the packages that compute with it.
        user_modules: the digests of the user's modules; empty where no code of the user's is a part.
    """

    without_versions: list[Any]
    versions: list[str]
    user_modules: Mapping[str, str]

    @property
    def whole(self) -> list[Any]:
        """All of it, as the identity of a job counts it."""
        return [*self.without_versions, self.versions]


def describe_model(model: Model, about: Mapping[str, Any]) -> ModelContent:
    """What a model consists of but for its answers.

    Args:
        model: to describe.
        about: of its source: the options and file digests of its entry.
    """
    parts = [*model.module.modules(), model.preprocess, model.black_box, model.task, model.output]
    has_own_code = any(_is_own_part(part) for part in parts if part is not None)
    is_plain = model.task == Classification() and model.output is None and not model.extras
    what_it_answers: list[Any] = []
    if not is_plain:
        what_it_answers = [model.task, model.output, model.extras]
    task = Description(what_it_answers)
    task_reach = [task.reach.content] if task.reach.content else []
    reach = Reach(holds_state=False)
    consists_of: list[Any] = []
    later = set(task.reach.modules)  # modules that are imported when code is called
    composition = find_composition(model)
    if composition is not None:
        reach.add(composition.parts)
        content = Description(composition.content)
        consists_of = [content.content, content.reach.content, reach.content]
        later |= content.reach.modules | reach.modules
        has_own_code = has_own_code or content.own or reach.own or "function" in about
    user_modules = read_own_modules(later) if has_own_code else {}
    # in this order, which is a part of the identity of stored jobs
    without_versions = [
        digest_state(model.module),
        [tensor_digest(bound) for bound in model.bounds],
        str(model.precision),
        json.loads(json.dumps(dict(about), default=str, sort_keys=True)),
        user_modules,
        task.content,
        *task_reach,
        *consists_of,
    ]
    return ModelContent(without_versions, [find_version(), torch.__version__], user_modules)


def _is_own_part(part: object) -> bool:
    if hasattr(part, "__module__") and hasattr(part, "__qualname__"):
        kind = part
    else:
        kind = type(part)
    return is_own(name_module(kind))
