"""Which code is the user's own, and what it consists of.

What code does cannot be found out by reading it. What it consists of can: a function names helpers, constants and
modules, and what these name in turn belongs to it, too. `Reach` follows these names. It looks at code objects, so that
also functions count that were typed into a notebook, and at files only to see what they would import later.
"""

from __future__ import annotations

import contextlib
import copyreg
import dis
import hashlib
import inspect
import os
import site
import sys
import sysconfig
import textwrap
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from torch import Tensor, nn

from standfast.errors import find_version
from standfast.study.store import tensor_digest

#: the names that the script itself has, here and in workers
_SCRIPTS = ("__main__", "__mp_main__")
#: what was read first of each module that was imported: its file may change afterwards, and the code in memory does not
_FIRST: dict[tuple[str, int], str] = {}
#: projects whose name is not that of the package
_PROJECTS = {"sklearn": "scikit-learn"}
#: so many parts of a model are looked at: a forest has some for each of its trees
_MOST_PARTS = 50_000
#: options that say how something is computed, and not what
_WITHOUT_EFFECT = ("n_jobs", "verbose")
#: functions that import a module by its name, given as a text
_IMPORTERS = ("import_module", "__import__")
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


# Modules


def is_own(module: str) -> bool:
    """Whether a module, by its name, is the user's own, such as one that was made at run time."""
    # what is not imported by its name was made at run time
    if module in _SCRIPTS or module not in sys.modules:
        return True
    # built-in modules have no file, and are not the user's
    file = getattr(sys.modules[module], "__file__", None)
    return isinstance(file, str) and _is_own_file(file)


def name_module(thing: object) -> str:
    """The name of the module that a function, a class or a module is from."""
    if isinstance(thing, ModuleType):
        return thing.__name__
    return getattr(thing, "__module__", None) or _SCRIPTS[0]


@cache
def _is_own_file(file: str) -> bool:
    path = Path(file)
    if path.is_symlink():
        # a link in an installed folder may lead to the user's checkout
        return not _is_installed(os.path.realpath(path))
    return not _is_in_installed_folder(path.parent)


@cache
def _is_in_installed_folder(folder: Path) -> bool:
    """The same for all files of a folder: there are thousands, and to resolve the path of each takes half a second."""
    return _is_installed(os.path.realpath(folder))


def _is_installed(path: str) -> bool:
    # with the separator, or `site` would be found in `site-packages-old`
    return any(path == folder or path.startswith(folder + os.sep) for folder in _installed())


@cache
def _installed() -> tuple[str, ...]:
    """The folders of the standard library, of installed packages, and of this package."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [sysconfig.get_path(kind) for kind in kinds]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    this_package = str(Path(__file__).parents[1])
    # real paths, since an environment may be reached through links
    return tuple({os.path.realpath(folder) for folder in [*folders, this_package]})


def read_own_modules(later: Iterable[str] = ()) -> dict[str, str]:
    """The digests of the source files of all modules that belong to no distribution, by name.

    These are the modules that are imported, and those that their functions import when they are called.
    The script itself (`__main__`) is not among them: it changes all the time, and what it defines counts by its text.
    Each file counts as it was when it was first seen after its import.

    Args:
        later: the names of further modules that are imported when a function is called.
    """
    digests = {}
    waiting = deque((name, "") for name in later)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # as `is_own` says; there are thousands of modules
        if name in _SCRIPTS or not isinstance(file, str) or not _is_own_file(file):
            continue
        key = (file, id(getattr(module, "__spec__", None)))  # which is another one after a reload
        if key not in _FIRST:
            try:
                _FIRST[key] = _digest_file(file)
            except OSError:
                # a file that is gone cannot be read, and what is in memory stays
                continue
        digests[name] = _FIRST[key]
        waiting += [(named, file) for named in _read_imports(file, _FIRST[key], name)]
    # in one order, as the digests are a part of identities
    return dict(sorted({**_read_unimported(waiting), **digests}.items()))


def _read_unimported(waiting: deque[tuple[str, str]]) -> dict[str, str]:
    """The digests of own modules that are not imported yet, and of those that these import.

    Args:
        waiting: names of modules, or ends of paths of files, each with the file that names it.
    """
    digests: dict[str, str] = {}
    tried: set[tuple[str, str]] = set()
    # many files name the same module
    of_installed: dict[str, bool] = {}
    path = _SearchPath()
    while waiting:
        name, named_by = waiting.popleft()
        if name in sys.modules:
            continue
        if name not in of_installed:
            of_installed[name] = _is_of_installed(name)
        if of_installed[name]:
            continue
        folder = _find_folder(named_by)
        if (name, folder) in tried:
            continue
        tried.add((name, folder))
        file = _find_file(name, folder, path)
        if file is None:
            continue
        # it may be removed between looking and reading
        with contextlib.suppress(OSError):
            digests[name] = _digest_file(file)
            waiting += [(named, file) for named in _read_imports(file, digests[name], name)]
    return digests


@cache
def _find_folder(file: str) -> str:
    """The folder of a file; empty where there is no file."""
    if file:
        return str(Path(file).parent)
    return ""


def _digest_file(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def _find_file(name: str, folder: str, path: _SearchPath) -> str | None:
    """The user's source file of a module that is not imported, or at a place; None if there is none.

    Args:
        name: of the module, with dots, or the path of its file.
        folder: of the file that names it.
        path: where Python would look for the module otherwise.
    """
    if name.endswith(".py"):
        return _find_path(name, folder)
    file = path.find_beside(name, folder) if folder else path.find(name)
    # a compiled module or an archive has no text to read
    if file is not None and file.endswith(".py") and _is_own_file(file):
        return file
    return None


def _find_path(name: str, folder: str) -> str | None:
    """The user's source file at a path, from the folder of the file that names it or the current one."""
    for path in (Path(folder or ".", name), Path(name)):
        if path.is_file() and _is_own_file(str(path)):
            return str(path)
    return None


def _is_of_installed(name: str) -> bool:
    """Whether a name begins with an installed module, as most names do, so that no file has to be looked for."""
    if name.endswith(".py"):  # the path of a file
        return False
    top = name.partition(".")[0]
    return _is_of_standard_library(name) or (top in sys.modules and not is_own(top))


def _is_of_standard_library(name: str) -> bool:
    is_path = name.endswith(".py")
    return not is_path and name.partition(".")[0] in sys.stdlib_module_names


class _SearchPath:
    """Python's path, for many modules that are not imported.

    A path may have a hundred folders, and most names are in none of them. So each folder is listed once, and Python
    only looks into those that have something of the name. What is taken from one module has many names, such as
    `module.function`, for which the module is found once.
    """

    def __init__(self) -> None:
        self._files: dict[str, str | None] = {}
        self._modules: dict[str, frozenset[str] | None] = {}
        self._specs: dict[tuple[str, tuple[str, ...]], ModuleSpec | None] = {}
        #: folders with their positions on the path: by what they have, and those that cannot be listed
        self._folders_with: dict[str, list[tuple[int, str]]] = {}
        self._unlisted: list[tuple[int, str]] = []
        for position, folder in enumerate(dict.fromkeys(sys.path)):
            modules = self._list_modules_once(folder)
            # Python notes None for what has no finder, such as an archive that is not there
            is_passed_over = sys.path_importer_cache.get(folder, folder) is None
            if modules is None and not is_passed_over:
                self._unlisted.append((position, folder))
            for module in modules or ():
                self._folders_with.setdefault(module, []).append((position, folder))

    def find(self, name: str) -> str | None:
        """The file of a module that is on the path, without importing what it is a part of; None if there is none."""
        if name not in self._files:
            self._files[name] = self._search(name)
        return self._files[name]

    def find_beside(self, name: str, folder: str) -> str | None:
        """The same where a folder is looked into before the path."""
        if not self._may_have(folder, name.partition(".")[0]):
            return self.find(name)
        # not remembered, because it depends on the folder
        return self._search(name, folder)

    def _search(self, name: str, before: str | None = None) -> str | None:
        folders = self._list_places(name.partition(".")[0])
        if before is not None:
            folders = [before, *folders]
        outer = ""
        spec = None
        for part in name.split("."):
            outer = f"{outer}.{part}" if outer else part
            if spec is not None:
                inside = spec.submodule_search_locations
                # a module that is no package has no folders of its own
                folders = self._list_places(part) if inside is None else [*inside]
            spec = self._find_spec(outer, folders)
            if spec is None:
                return None
        if spec is None:
            return None
        return spec.origin

    def _find_spec(self, name: str, folders: list[str]) -> ModuleSpec | None:
        """What Python finds of a module in these folders; None if there is nothing."""
        if not folders:
            return None
        key = (name, tuple(folders))
        if key not in self._specs:
            try:
                self._specs[key] = PathFinder.find_spec(name, folders)
            except Exception:  # what the finders of other packages raise
                self._specs[key] = None
        return self._specs[key]

    def _list_places(self, module: str) -> list[str]:
        """The folders of the path that can have a module, in the order of the path."""
        folders_with = [*self._folders_with.get(module.casefold(), ()), *self._unlisted]
        return [folder for _, folder in sorted(folders_with)]

    def _may_have(self, folder: str, module: str) -> bool:
        """Whether a folder can have a module: one that cannot be listed, such as an archive, always can."""
        modules = self._list_modules_once(folder)
        # some file systems do not tell capitals from small letters
        return modules is None or module.casefold() in modules

    def _list_modules_once(self, folder: str) -> frozenset[str] | None:
        if folder not in self._modules:
            self._modules[folder] = _list_modules(folder)
        return self._modules[folder]


def _list_modules(folder: str) -> frozenset[str] | None:
    """The names of files and folders in a folder, up to the first dot; None if it cannot be listed."""
    try:
        with os.scandir(folder or ".") as entries:
            return frozenset(entry.name.partition(".")[0].casefold() for entry in entries)
    except (OSError, TypeError):  # the path may hold what is no text, which Python leaves out
        return None


@cache
def _read_imports(file: str, digest: str, module: str) -> tuple[str, ...]:
    """The names of the modules that the code of a file imports anywhere, also inside of functions.

    Without those of the standard library, which are never the user's.
    """
    # the digest is an argument, so that the cache sees a changed file
    is_package = Path(file).stem == "__init__"
    package = module if is_package else module.rpartition(".")[0]
    names = _read_file(file, digest).find_imports(package)
    return tuple(name for name in names if not _is_of_standard_library(name))


@cache
def _read_file(file: str, digest: str) -> CodeNames:
    """What the code of a file names, as it is now: `digest` only tells versions apart."""
    if not file.endswith(".py"):
        return CodeNames()
    try:
        return read_code(compile(Path(file).read_bytes(), file, "exec", dont_inherit=True))
    except (OSError, SyntaxError, ValueError):
        # then Python could not import it either
        return CodeNames()


# Code objects


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
            names |= {start, *(f"{start}.{part}" for part in parts if part != "*")}
        loaded_names = {name for pair in self.loaded for name in pair}
        if loaded_names.intersection(_IMPORTERS):
            names |= set(filter(_may_be_module, self.texts))
        return tuple(sorted(names - {""}))


def _may_be_module(text: str) -> bool:
    """Whether a text can be the name of a module."""
    return all(part.isidentifier() for part in text.split("."))


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
            after = steps[number + 1] if number + 1 < len(steps) else step
            attribute = after.argval if after.opname in ("LOAD_ATTR", "LOAD_METHOD") else ""
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


def _read_class(kind: type) -> CodeNames:
    """What the text of a class names, with bases, decorators and defaults; or, without text, what its methods name."""
    with contextlib.suppress(OSError, TypeError, SyntaxError, ValueError):
        text = textwrap.dedent(inspect.getsource(kind))
        return read_code(compile(text, "<class>", "exec", dont_inherit=True))
    named = [read_code(function.__code__) for function in _list_methods(kind)]
    unions: dict[str, frozenset[Any]] = {}
    for part in fields(CodeNames):
        sets = [getattr(names_of_function, part.name) for names_of_function in named]
        unions[part.name] = frozenset().union(*sets)
    return CodeNames(**unions)


def _list_methods(kind: type) -> Iterator[FunctionType]:
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


def _find_globals(kind: type) -> dict[str, Any]:
    """The names of the module that a class is from; of its methods, if the module is not imported by its name."""
    function = next(_list_methods(kind), None)
    if function is not None:
        return function.__globals__
    module = sys.modules.get(kind.__module__)
    if module is None:
        return {}
    return vars(module)


# What is reached


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
                self.add(value, f"{name}[{key!r}]" if _is_plain(key) else name)
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
            names = _read_class(thing)
            outer = _find_globals(thing)
            file = str(outer.get("__file__") or "")
            # bases and what is enclosed are no names in the text
            for inner in [*thing.__bases__, *_list_enclosed(thing)]:
                self.add(inner)
        if not _find_text(thing):
            # without a text the bytecode has to stand for it
            self._keep(thing.__qualname__, _describe_code(thing))
        module = name_module(thing)
        # others count by their files, with all that they import
        if module in _SCRIPTS or module not in sys.modules:
            self._add_imports(names, str(outer.get("__package__") or ""), file)
        # sorted, because content is compared in the order in which it is met
        for name, attribute in sorted(names.loaded):
            if name.startswith("__"):
                continue  # such as __file__: where the code lies does not count
            value = outer.get(name, thing)
            # of a whole module only what is used counts
            if isinstance(value, ModuleType) and attribute and is_own(value.__name__):
                self.own = True
                self.add(getattr(value, attribute, None), f"{name}.{attribute}")
            self.add(value, name)

    def _add_imports(self, names: CodeNames, package: str, file: str) -> None:
        for name in names.find_imports(package):
            path = _find_path(name, str(Path(file).parent)) if name.endswith(".py") else None
            if path is None:
                self.modules.add(name)
            else:
                self._keep(name, _digest_file(path))

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
                self._keep(module.__name__, _digest_file(file))

    def _add_code(self, thing: FunctionType | type) -> None:
        module = name_module(thing)
        if not is_own(module):
            self._add_version(module)
            return
        self.own = True
        if module in _SCRIPTS or module not in sys.modules:
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
        for inner in value.values() if isinstance(value, dict) else value:
            self._add_part(inner)

    def _add_foreign_state(self, thing: Any, name: str) -> None:
        """What an object of another package holds, as it would be pickled; nothing where that is not possible."""
        with contextlib.suppress(Exception):  # whatever its class raises
            reduce = copyreg.dispatch_table.get(type(thing))
            # as pickle does it: a table for some types, else the object itself
            made_of = thing.__reduce_ex__(2) if reduce is None else reduce(thing)
            # the arguments and the state; what makes the object is its class, which was added
            self.add(made_of if isinstance(made_of, str) else made_of[1:3], name)

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
        functions = list(_list_methods(thing))
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
        return tensor_digest(value.dequantize() if value.is_quantized else value)
    if isinstance(value, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
        return [str(value.dtype), list(value.shape), content]
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
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _list_arguments(kind: type) -> list[str]:
    """The names of the arguments with which objects of a class are made, but for those without an effect on results."""
    try:
        names = list(inspect.signature(kind).parameters)
    except (TypeError, ValueError):
        # built-in classes have no signature
        names = [field.name for field in fields(kind)] if is_dataclass(kind) else []
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
    for method in _list_methods(kind):
        enclosed += [value for value in read_closure(method) if value is not kind]
    return enclosed


@cache
def find_package_version(package: str) -> str:
    """The version of another package, on which results of its code depend; our own version is recorded elsewhere."""
    if package in ("standfast", "torch", "builtins"):
        return ""
    return find_version(_PROJECTS.get(package, package))
