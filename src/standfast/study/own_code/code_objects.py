"""What the bytecode of functions and the text of classes name, and what they import."""

from __future__ import annotations

import contextlib
import dis
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from importlib.util import resolve_name
from types import CodeType, FunctionType
from typing import Any

#: functions that import a module by its name, given as a text
_IMPORTERS = ("import_module", "__import__")


@dataclass(frozen=True)
class CodeNames:
    """What code names.

    Attributes:
        loaded: names that are not its own, each with the attribute of it that is asked first, or an empty text.
        imported: the number of dots, the module, and what is taken from it, for each import.
        texts: all constants that are texts.
    """

    loaded: frozenset[tuple[str, str]] = frozenset()
    imported: frozenset[tuple[int, str, tuple[str, ...]]] = frozenset()
    texts: frozenset[str] = frozenset()

    def find_imports(self, package: str) -> tuple[str, ...]:
        """The modules that it imports, by a statement, by a text, or from a file whose name it has; sorted.

        Args:
            package: to which leading dots refer; empty for none.
        """
        # a script may be run by its path
        names = {text for text in self.texts if text.endswith(".py")}
        for level, module, parts in self.imported:
            start = _resolve(level, module, package)
            # what is taken from a package may be a module of it
            names.add(start)
            names |= {f"{start}.{part}" for part in parts if part != "*"}
        loaded_names = {name for pair in self.loaded for name in pair}
        if loaded_names.intersection(_IMPORTERS):
            names |= set(filter(_may_be_module, self.texts))
        # before a module, Python runs the packages that it is in
        names |= {outer for name in names for outer in _list_packages(name)}
        return tuple(sorted(names - {""}))


def _may_be_module(text: str) -> bool:
    """Whether a text can be the name of a module."""
    return all(part.isidentifier() for part in text.split("."))


def _list_packages(name: str) -> list[str]:
    """The packages that a module is in, by its name.

    >>> _list_packages("a.b.c"), _list_packages("a.py")
    (['a', 'a.b'], [])
    """
    if name.endswith(".py"):  # the path of a file
        return []
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _resolve(level: int, module: str, package: str) -> str:
    if not level:
        return module
    try:
        return resolve_name("." * level + module, package)
    except ImportError:
        return ""


@cache
def read_code(code: CodeType) -> CodeNames:
    """What a code object names, with those of the functions and classes inside of it."""
    loaded: set[tuple[str, str]] = set()
    imported: set[tuple[int, str, tuple[str, ...]]] = set()
    texts: set[str] = set()
    steps = list(dis.get_instructions(code))
    for number, step in enumerate(steps):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            if number + 1 < len(steps):
                after = steps[number + 1]
            else:
                after = step
            attribute = ""
            if after.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                attribute = after.argval
            loaded.add((step.argval, attribute))
        elif step.opname == "IMPORT_NAME":  # after the number of dots and what is taken
            level = steps[number - 2].argval
            parts = steps[number - 1].argval
            imported.add((level or 0, step.argval, tuple(parts or ())))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = read_code(constant)
            loaded |= inner.loaded
            imported |= inner.imported
            texts |= inner.texts
        elif isinstance(constant, str):
            texts.add(constant)
    return CodeNames(frozenset(loaded), frozenset(imported), frozenset(texts))


def read_class(kind: type) -> CodeNames:
    """What the text of a class names, with bases, decorators and defaults; or, without text, what its methods name."""
    with contextlib.suppress(OSError, TypeError, SyntaxError, ValueError):
        text = textwrap.dedent(inspect.getsource(kind))
        return read_code(compile(text, "<class>", "exec", dont_inherit=True))
    named = [read_code(function.__code__) for function in list_methods(kind)]
    unions: dict[str, frozenset[Any]] = {}
    for part in fields(CodeNames):
        sets = [getattr(names_of_function, part.name) for names_of_function in named]
        unions[part.name] = frozenset().union(*sets)
    return CodeNames(**unions)


def list_methods(kind: type) -> Iterator[FunctionType]:
    for value in vars(kind).values():
        function = value
        # of a class method or a static one, a property, and a cached property
        for attribute in ("__func__", "fget", "func"):
            wrapped = getattr(value, attribute, None)
            if wrapped:
                function = wrapped
                break
        if isinstance(function, FunctionType):
            yield function


def find_globals(kind: type) -> dict[str, Any]:
    """The names of the module that a class is from; of its methods, if the module is not imported by its name."""
    function = next(list_methods(kind), None)
    if function is not None:
        return function.__globals__
    module = sys.modules.get(kind.__module__)
    if module is None:
        return {}
    return vars(module)
