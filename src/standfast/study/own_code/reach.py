"""All code and values that a thing of the user's consists of, which `Reach` follows by name."""

from __future__ import annotations

import contextlib
import copyreg
import hashlib
import inspect
import sys
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

from standfast.errors import find_version
from standfast.study.own_code.code_objects import (
    CodeNames,
    find_globals,
    list_methods,
    read_class,
    read_code,
)
from standfast.study.own_code.modules import SCRIPTS, digest_file, find_path, is_own, name_module
from standfast.study.store import tensor_digest

#: projects whose name is not that of the package
_PROJECTS = {"sklearn": "scikit-learn"}
#: so many parts of a model are looked at: a forest has some for each of its trees
_MOST_PARTS = 50_000
#: options that say how something is computed, and not what
_WITHOUT_EFFECT = ("n_jobs", "verbose")
#: modules whose objects hold values, and no code of the user's
_OF_VALUES = ("numpy", "pandas", "polars", "scipy", "torch")
#: modules whose objects belong to a process, or change whenever they are used
_OF_PROCESSES = (
    "_ctypes",
    "_io",
    "_thread",
    "ctypes",
    "io",
    "logging",
    "multiprocessing",
    "numpy.random",
    "threading",
)


class Reach:
    """What things of the user's consist of beyond their own text.

    Of functions and classes it is their text, of constants their values, of objects their class and, for those that
    explainers and metrics reach, all that they hold. Of installed packages it is their version.

    Args:
        holds_state: whether what objects hold counts. Of a model only the arguments count with which its parts were
            made, since a model is otherwise what it answers.

    Attributes:
        content: plain values, in the order in which they are met.
        modules: the names of modules that are imported when a function is called.
        own: whether code of the user's was met.

    >>> base = 2
    >>> def scale(value):
    ...     return value * base
    >>> reach = Reach()
    >>> reach.add_names_of(scale)
    >>> reach.content
    [['base', '2']]
    """

    def __init__(self, holds_state: bool = True) -> None:
        self.content: list[Any] = []
        self.modules: set[str] = set()
        self.own = False
        self._holds_state = holds_state
        self._packages: set[str] = set()
        self._met: dict[int, object] = {}  # which keeps them alive, so that no number is used twice

    def add(self, thing: Any, name: str = "") -> None:
        """What `thing` consists of, with its own text where it is the user's code."""
        if _is_plain(thing):
            self._keep(name, _describe_plain(thing))
            return
        # a graph of objects may lead back to itself
        if id(thing) in self._met or len(self._met) > _MOST_PARTS:
            return
        self._met[id(thing)] = thing
        if isinstance(thing, Mapping | list | tuple | set | frozenset):
            self._add_entries(thing, name)
        elif isinstance(thing, partial):
            self.add([thing.func, thing.args, thing.keywords], name)
        elif isinstance(thing, MethodType):
            self.add([thing.__func__, thing.__self__], name)
        elif isinstance(thing, ModuleType):
            self._add_module(thing)
        elif isinstance(thing, FunctionType | type):
            self._add_code(thing)
        elif hasattr(type(thing), "__wrapped__") or "__wrapped__" in getattr(thing, "__dict__", {}):
            self.add(thing.__wrapped__, name)  # a function with a cache, or with a decorator
        else:
            self._add_object(thing, name)

    def _add_entries(self, thing: Collection[Any], name: str) -> None:
        if isinstance(thing, Mapping):
            for key, value in list(thing.items()):
                if _is_plain(key):
                    name_of_value = f"{name}[{key!r}]"
                else:
                    name_of_value = name
                self.add(value, name_of_value)
        elif isinstance(thing, list | tuple):
            for number, value in enumerate(thing):
                self.add(value, f"{name}[{number}]")
        else:  # a set, whose order differs from process to process
            for value in sorted(thing, key=repr):
                self.add(value, name)

    def add_names_of(self, thing: FunctionType | type) -> None:
        """What a function or a class of the user's names, without its own text."""
        self._met[id(thing)] = thing
        if isinstance(thing, FunctionType):
            names = read_code(thing.__code__)
            outer = thing.__globals__
            file = thing.__code__.co_filename
        else:
            names = read_class(thing)
            outer = find_globals(thing)
            file = str(outer.get("__file__") or "")
            # bases and what is enclosed are no names in the text
            for inner in [*thing.__bases__, *_list_enclosed(thing)]:
                self.add(inner)
        if not _find_text(thing):
            # without a text the bytecode has to stand for it
            self._keep(thing.__qualname__, _describe_code(thing))
        module = name_module(thing)
        # others count by their files, with all that they import
        if module in SCRIPTS or module not in sys.modules:
            self._add_imports(names, str(outer.get("__package__") or ""), file)
        # sorted, because content is compared in the order in which it is met
        for name, attribute in sorted(names.loaded):
            if name.startswith("__"):
                continue  # such as __file__: where the code lies does not count
            value = outer.get(name, thing)
            # of a whole module only what is used counts
            if isinstance(value, ModuleType) and attribute and is_own(value.__name__):
                self.own = True
                used = getattr(value, attribute, None)
                self.add(used, f"{name}.{attribute}")
            self.add(value, name)

    def _add_imports(self, names: CodeNames, package: str, file: str) -> None:
        for name in names.find_imports(package):
            path = None
            if name.endswith(".py"):
                path = find_path(name, str(Path(file).parent))
            if path is None:
                self.modules.add(name)
            else:
                self._keep(name, digest_file(path))

    def _add_module(self, module: ModuleType) -> None:
        """A module that is not imported by its name, such as one from a file at a place, counts by its file."""
        if not is_own(module.__name__):
            self._add_version(module.__name__)
            return
        self.own = True
        file = getattr(module, "__file__", None)
        # a module under this name in `sys.modules` counts among the imported ones
        if sys.modules.get(module.__name__) is not module and isinstance(file, str):
            with contextlib.suppress(OSError):
                self._keep(module.__name__, digest_file(file))

    def _add_code(self, thing: FunctionType | type) -> None:
        module = name_module(thing)
        if not is_own(module):
            self._add_version(module)
            return
        self.own = True
        if module in SCRIPTS or module not in sys.modules:
            self._keep(thing.__qualname__, _find_text(thing))
        elif not self._holds_state:  # the text is that of the module's file
            self._keep(thing.__qualname__, module)
        if isinstance(thing, FunctionType):
            # defaults and closures hold values that the text does not show
            self.add([thing.__defaults__, thing.__kwdefaults__, *read_closure(thing)])
        self.add_names_of(thing)

    def _add_version(self, module: str) -> None:
        """The version of an installed package whose code is named; results of models are compared by their answers."""
        package = module.partition(".")[0]
        if (
            self._holds_state
            and package not in sys.stdlib_module_names
            and package not in self._packages
        ):
            self._packages.add(package)
            version = find_package_version(package)
            if version:
                self._keep(package, version)

    def _add_object(self, thing: Any, name: str) -> None:
        kind = type(thing)
        module = name_module(kind)
        # such objects differ in every process
        if module.startswith(_OF_PROCESSES):
            return
        self.add(kind)
        if is_own(module):
            self._add_state(thing, name)
        elif self._holds_state:
            self._add_foreign_state(thing, name)
        elif isinstance(thing, nn.Module) or module.partition(".")[0] not in _OF_VALUES:
            self._add_parts(thing)

    def _add_state(self, thing: Any, name: str) -> None:
        """What an object of the user's holds: all of it, or what it was made with, and the code in the rest."""
        attributes = _read_attributes(thing)
        if self._holds_state:
            self.add(attributes, name)
            return
        made_with = [
            argument for argument in _list_arguments(type(thing)) if argument in attributes
        ]
        for argument in made_with:
            self.add(attributes[argument], f"{name}.{argument}")
        self._add_parts(thing)

    def _add_parts(self, thing: object) -> None:
        """The code of the user's within an object, such as the steps of a pipeline; no values."""
        for value in _read_attributes(thing).values():
            self._add_part(value)

    def _add_part(self, value: Any) -> None:
        if not isinstance(value, list | tuple | set | frozenset | dict):
            if not _is_plain(value):
                self.add(value)
            return
        if id(value) in self._met or len(self._met) > _MOST_PARTS:
            return
        self._met[id(value)] = value
        inner_values = value.values() if isinstance(value, dict) else value
        for inner in inner_values:
            self._add_part(inner)

    def _add_foreign_state(self, thing: Any, name: str) -> None:
        """What an object of another package holds, as it would be pickled; nothing where that is not possible."""
        with contextlib.suppress(Exception):  # whatever its class raises
            reduce = copyreg.dispatch_table.get(type(thing))
            # as pickle does it: a table for some types, else the object itself
            if reduce is None:
                made_of = thing.__reduce_ex__(2)
            else:
                made_of = reduce(thing)
            # the arguments and the state; what makes the object is its class, which was added
            if not isinstance(made_of, str):
                made_of = made_of[1:3]
            self.add(made_of, name)

    def _keep(self, name: str, description: Any) -> None:
        self.content.append([name, description])


def _find_text(thing: FunctionType | type) -> str:
    """The text of a function or a class; empty where there is none, as of what was typed into an interpreter."""
    with contextlib.suppress(OSError, TypeError):
        return inspect.getsource(thing)
    return ""


def _describe_code(thing: FunctionType | type) -> list[Any]:
    """What the interpreter knows of a function or a class without a text."""
    if isinstance(thing, FunctionType):
        functions = [thing]
    else:
        functions = list(list_methods(thing))
    return [_describe_code_object(function.__code__) for function in functions]


def _describe_code_object(code: CodeType) -> list[Any]:
    # no line numbers and no file names, since the same code may stand elsewhere
    return [
        code.co_name,
        code.co_code.hex(),
        list(code.co_names),
        [*map(_describe_constant, code.co_consts)],
    ]


def _describe_constant(constant: object) -> Any:
    if isinstance(constant, CodeType):
        return _describe_code_object(constant)
    if isinstance(constant, frozenset):  # whose order differs from process to process
        return sorted(map(repr, constant))
    return repr(constant)


def _is_plain(value: object) -> bool:
    is_array = isinstance(value, np.ndarray) and not value.dtype.hasobject
    return is_array or isinstance(
        value, int | float | complex | str | bytes | bytearray | Tensor | np.generic | None
    )


def _describe_plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        # a quantised tensor has no bytes of its own that NumPy could read
        if value.is_quantized:
            value = value.dequantize()
        return tensor_digest(value)
    if isinstance(value, np.ndarray):
        content = np.ascontiguousarray(value).tobytes()
        short_digest = hashlib.sha256(content).hexdigest()[:16]
        return [str(value.dtype), list(value.shape), short_digest]
    if isinstance(value, bytes | bytearray):
        return hashlib.sha256(value).hexdigest()[:16]
    return repr(value)


def _read_attributes(thing: object) -> dict[str, Any]:
    """What an object holds by name, also in slots."""
    attributes: dict[str, Any] = {}
    for kind in type(thing).__mro__:
        for name in _list_slots(kind):
            if hasattr(thing, name):
                attributes[name] = getattr(thing, name)
    return attributes | getattr(thing, "__dict__", {})


def _list_slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    if isinstance(slots, str):
        names = [slots]
    else:
        names = list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _list_arguments(kind: type) -> list[str]:
    """The names of the arguments with which objects of a class are made, but for those without an effect on results."""
    try:
        names = list(inspect.signature(kind).parameters)
    except (TypeError, ValueError):
        # built-in classes have no signature
        if is_dataclass(kind):
            names = [field.name for field in fields(kind)]
        else:
            names = []
    return [name for name in names if name not in _WITHOUT_EFFECT]


def read_closure(function: FunctionType) -> list[Any]:
    """What a function holds of the function that made it."""
    values = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty
            values.append(cell.cell_contents)
    return values


def _list_enclosed(kind: type) -> list[Any]:
    """What the methods of a class hold of the function that made the class."""
    enclosed: list[Any] = []
    for method in list_methods(kind):
        enclosed += [value for value in read_closure(method) if value is not kind]
    return enclosed


@cache
def find_package_version(package: str) -> str:
    """The version of another package, on which results of its code depend; our own version is recorded elsewhere."""
    if package in ("standfast", "torch", "builtins"):
        return ""
    return find_version(_PROJECTS.get(package, package))
