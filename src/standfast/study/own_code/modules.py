"""Which modules are the user's own, and what their files consist of, with all that they would import later."""

from __future__ import annotations

import contextlib
import hashlib
import os
import site
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from standfast.study.own_code.code_objects import CodeNames, read_code

#: the names that the script itself has, here and in workers
SCRIPTS = ("__main__", "__mp_main__")
#: what was read first of each module that was imported: its file may change afterwards, and the code in memory does not
_FIRST: dict[tuple[str, int], str] = {}


def is_own(module: str) -> bool:
    """Whether a module, by its name, is the user's own, such as one that was made at run time."""
    # what is not imported by its name was made at run time
    if module in SCRIPTS or module not in sys.modules:
        return True
    # built-in modules have no file, and are not the user's
    file = getattr(sys.modules[module], "__file__", None)
    return isinstance(file, str) and _is_own_file(file)


def name_module(thing: object) -> str:
    """The name of the module that a function, a class or a module is from."""
    if isinstance(thing, ModuleType):
        return thing.__name__
    return getattr(thing, "__module__", None) or SCRIPTS[0]


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
    beginnings = tuple(folder + os.sep for folder in _installed())
    return path in _installed() or path.startswith(beginnings)


@cache
def _installed() -> tuple[str, ...]:
    """The folders of the standard library, of installed packages, and of this package."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [sysconfig.get_path(kind) for kind in kinds]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    this_package = str(Path(__file__).parents[2])
    # real paths, since an environment may be reached through links
    folders.append(this_package)
    return tuple({os.path.realpath(folder) for folder in folders})


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
        if name in SCRIPTS or not isinstance(file, str) or not _is_own_file(file):
            continue
        key = (file, id(getattr(module, "__spec__", None)))  # which is another one after a reload
        if key not in _FIRST:
            try:
                _FIRST[key] = digest_file(file)
            except OSError:
                # a file that is gone cannot be read, and what is in memory stays
                continue
        digests[name] = _FIRST[key]
        imports = _read_imports(file, _FIRST[key], name)
        waiting += [(imported, file) for imported in imports]
    # in one order, as the digests are a part of identities
    return dict(sorted({**_read_unimported(waiting), **digests}.items()))


def _read_unimported(waiting: deque[tuple[str, str]]) -> dict[str, str]:
    """The digests of own modules that are not imported yet, and of those that these import.

    Args:
        waiting: names of modules, or ends of paths of files, each with the file that names it.
    """
    digests: dict[str, str] = {}
    tried: set[tuple[str, str]] = set()
    path = _SearchPath()
    while waiting:
        name, named_by = waiting.popleft()
        folder = _find_folder(named_by)
        # most names are met in many files
        if (name, folder) in tried:
            continue
        tried.add((name, folder))
        if name in sys.modules or _is_of_installed(name):
            continue
        file = _find_file(name, folder, path)
        if file is None:
            continue
        # it may be removed between looking and reading
        with contextlib.suppress(OSError):
            digests[name] = digest_file(file)
            imports = _read_imports(file, digests[name], name)
            waiting += [(imported, file) for imported in imports]
    return digests


@cache
def _find_folder(file: str) -> str:
    """The folder of a file; empty where there is no file."""
    if file:
        return str(Path(file).parent)
    return ""


def digest_file(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def _find_file(name: str, folder: str, path: _SearchPath) -> str | None:
    """The user's source file of a module that is not imported, or at a place; None if there is none.

    Args:
        name: of the module, with dots, or the path of its file.
        folder: of the file that names it.
        path: where Python would look for the module otherwise.
    """
    if name.endswith(".py"):
        return find_path(name, folder)
    if folder:
        file = path.find_beside(name, folder)
    else:
        file = path.find(name)
    # a compiled module or an archive has no text to read
    if file is not None and file.endswith(".py") and _is_own_file(file):
        return file
    return None


def find_path(name: str, folder: str) -> str | None:
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
        self._specs: dict[tuple[str, tuple[str, ...]], ModuleSpec | None] = {}
        self._modules: dict[str, frozenset[str] | None] = {}
        folders = tuple(dict.fromkeys(sys.path))
        self._places = _index_places(folders, tuple(map(self._list, folders)))

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
                if inside is None:
                    folders = self._list_places(part)
                else:
                    folders = [*inside]
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
        """The folders of the path that can have a module."""
        # some file systems do not tell capitals from small letters
        return list(self._places.get(module.casefold(), self._places[_ANY_MODULE]))

    def _may_have(self, folder: str, module: str) -> bool:
        """Whether a folder can have a module: one that cannot be listed, such as an archive, always can."""
        modules = self._list(folder)
        return modules is None or module.casefold() in modules

    def _list(self, folder: str) -> frozenset[str] | None:
        """What a folder has, as it is first seen."""
        if folder not in self._modules:
            self._modules[folder] = _list_modules(folder)
        return self._modules[folder]


#: stands for a module that no folder is known to have; no module has this name
_ANY_MODULE = "."


# of the folders of one path, as long as nothing in them changes
@lru_cache(maxsize=4)
def _index_places(
    folders: tuple[str, ...], listings: tuple[frozenset[str] | None, ...]
) -> dict[str, tuple[str, ...]]:
    """For each module the folders that can have it, in their order.

    Args:
        folders: of the path.
        listings: the modules of each of them; None where they are not known.
    """
    names = frozenset[str]().union(*(names for names in listings if names is not None))
    folders_of: dict[str, list[str]] = {name: [] for name in (*names, _ANY_MODULE)}
    for folder, modules in zip(folders, listings, strict=True):
        for name in folders_of if modules is None else modules:
            folders_of[name].append(folder)
    return {name: tuple(folders_of_name) for name, folders_of_name in folders_of.items()}


@dataclass(frozen=True)
class _Listing:
    """What was in a folder.

    Attributes:
        changed: when the folder was changed, in nanoseconds.
        modules: the names of its files and folders, up to the first dot.
    """

    changed: int
    modules: frozenset[str]


#: what was read of folders that nobody has changed for a while
_LISTINGS: dict[str, _Listing] = {}
#: of two changes so near to each other, the clock of a file system may not see the second
_NANOSECONDS_OF_DOUBT = 2_000_000_000


def _list_modules(folder: str) -> frozenset[str] | None:
    """The names of files and folders in a folder, up to the first dot; None if it cannot be listed."""
    try:
        changed = Path(folder or ".").stat().st_mtime_ns
        before = _LISTINGS.get(folder)
        if before is not None and before.changed == changed:
            return before.modules
        looked = time.time_ns()
        with os.scandir(folder or ".") as entries:
            stems = [entry.name.partition(".")[0] for entry in entries]
            modules = frozenset(stem.casefold() for stem in stems)
    except (OSError, TypeError):  # the path may hold what is no text, which Python leaves out
        return None
    # a path from the current folder may be that of another one later
    if Path(folder).is_absolute() and looked - changed > _NANOSECONDS_OF_DOUBT:
        _LISTINGS[folder] = _Listing(changed, modules)
    return modules


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
