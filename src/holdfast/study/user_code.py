"""The source of the user's own modules, as a part of a job's identity.

Names cannot be followed through everything that Python allows: a class attribute, a function behind a decorator, an
import within a function. So every module of the user that a function or class comes from counts as a whole, together
with the modules that it imports and the data files that it names. Comments and formatting do not count.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import NamedTuple

#: packages that are identified by their version, not by their code
VERSIONED = frozenset(
    {
        *("holdfast", "torch", "captum", "builtins"),
        *("lime", "pytorch_grad_cam", "quantus", "shap", "timm", "torchvision", "transformers", "zennit"),
    }
)
#: what a file is called whose content counts if a module names it
_DATA = {
    *(".npy", ".npz", ".pt", ".pth", ".pkl", ".safetensors", ".parquet", ".csv", ".tsv", ".txt"),
    *(".json", ".yaml", ".yml", ".toml", ".ini", ".cfg"),
}
#: files that are larger count by their size and date
_LARGEST = 1 << 28
#: a script that uses one of these is not cut: what it refers to cannot be read from its text
_DYNAMIC = {"globals", "locals", "vars", "eval", "exec", "__import__", "import_module"}
_SCRIPT = "__main__"
#: what was read first of each file in this process, with the import that it belongs to
_FIRST: dict[Path, tuple[object, str]] = {}


class _Source(NamedTuple):
    """What was read of one module: the digest of its text, what it imports, and the data files that it names."""

    digest: str
    imports: tuple[str, ...]
    files: tuple[Path, ...]


class UserCode:
    """The user's modules that were found to count, by name. It reads each file once.

    >>> from holdfast.errors import ArgumentError
    >>> code = UserCode()
    >>> code.digest_of(ArgumentError), code.modules
    ('', {})
    """

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._closures: dict[str, str] = {}
        #: the digest of every module and data file that counts; files by their path beside the module
        self.modules: dict[str, str] = {}

    def digest_of(self, entry: FunctionType | type) -> str:
        """A hash of the modules that a function or class depends on; empty if its module is not the user's own."""
        if not is_own(entry):
            return ""
        if entry.__module__ == _SCRIPT:
            return self._digest_script(entry)
        return self._digest_closure(entry.__module__)

    def _digest_closure(self, name: str) -> str:
        if name not in self._closures:
            self._closures[name] = _digest(self._collect([name]))
        return self._closures[name]

    def _collect(self, names: Iterable[str]) -> dict[str, str]:
        """The digests of these modules and of all that they import, directly or not."""
        found: dict[str, str] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            source = None if name in found else self._read(name)
            if source is None:
                continue
            found[name] = source.digest
            found |= {f"{name}: {file.name}": _digest_file(file) for file in source.files}
            waiting += source.imports
        self.modules |= found
        return found

    def _read(self, name: str) -> _Source | None:
        """What a module's file says; None if it has no file, or is not the user's own."""
        if name not in self._sources:
            path = find_file(name)
            if path is None:
                return None
            self._sources[name] = _mark_edited(name, path, _read_module(name, path, path.stat().st_mtime_ns))
        return self._sources[name]

    def _digest_script(self, entry: FunctionType | type) -> str:
        """The statements of the script that is running on which a function or class of it depends.

        A script as a whole would count every line that calls `evaluate`, so that nothing could ever be continued.
        """
        file = getattr(sys.modules.get(_SCRIPT), "__file__", None)
        tree = _parse(Path(file)) if file else None
        if file is None or tree is None:  # a notebook, or a line that was typed in: only names are followed
            return ""
        path = Path(file)
        whole = _describe(tree.body, path, "")
        source = _describe(_cut(tree.body, entry.__qualname__.partition(".")[0]), path, "")
        edited = _mark_edited(_SCRIPT, path, whole) is not whole
        found = {_SCRIPT: whole.digest if edited else source.digest, **self._collect(source.imports)}
        found |= {f"{_SCRIPT}: {data.name}": _digest_file(data) for data in source.files}
        self.modules |= found
        return _digest(found)


def is_own(entry: ModuleType | FunctionType | type) -> bool:
    """Whether something is the user's own: not from an installed package, and not from Python itself."""
    if isinstance(entry, FunctionType):
        name, file = entry.__module__, entry.__code__.co_filename
    else:
        name = entry.__name__ if isinstance(entry, ModuleType) else entry.__module__
        module = entry if isinstance(entry, ModuleType) else sys.modules.get(name)
        file = getattr(module, "__file__", None) or ""
    return bool(file) and (name or "").partition(".")[0] not in VERSIONED and _is_own_file(Path(file))


def find_file(name: str) -> Path | None:
    """The file of a module of the user, without importing it; None for any other module.

    >>> find_file("json"), find_file("holdfast.errors")
    (None, None)
    """
    if name.partition(".")[0] in VERSIONED:
        return None
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None and name not in sys.modules:
        file = _find_unloaded(name, sys.path)
    return Path(file) if file and _is_own_file(Path(file)) else None


def _find_unloaded(name: str, folders: Iterable[str]) -> str | None:
    """The file of a module that was not imported yet, found part by part as Python would."""
    path: list[str] | None = list(folders)
    spec = None
    parts = name.split(".")
    for place in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: place + 1]), path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return None if spec is None else spec.origin


def _is_own_file(path: Path) -> bool:
    library = {"site-packages", "dist-packages"} & set(path.parts)
    return path.is_absolute() and not library and not path.is_relative_to(sysconfig.get_paths()["stdlib"])


def _parse(path: Path) -> ast.Module | None:
    try:
        return ast.parse(importlib.util.decode_source(path.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return None


def _root(path: Path, package: str) -> Path:
    """The folder from which a module of this package was imported."""
    depth = len(package.split(".")) if package else 0
    return path.parents[depth]


@lru_cache(maxsize=1024)
def _read_module(name: str, path: Path, changed: int) -> _Source:
    """What the file of a module says; `changed` is its date, so that another version is read anew."""
    tree = _parse(path)
    if tree is None:  # no Python of this version: a compiled module
        return _Source(_digest_file(path), (), ())
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return _describe([part for part in tree.body if not _runs_only_as_script(part)], path, package)


def _describe(body: list[ast.stmt], path: Path, package: str) -> _Source:
    imports = dict.fromkeys(_find_imports(body, package, _root(path, package)))
    files = dict.fromkeys(_find_data(body, path.parent))
    return _Source(_digest([ast.dump(part) for part in body]), tuple(imports), tuple(files))


def _mark_edited(name: str, path: Path, source: _Source) -> _Source:
    """The same, marked if the file was edited after this process had imported it: what runs is older than its text."""
    loaded = getattr(sys.modules.get(name), "__spec__", None) or name
    if name not in sys.modules:
        return source
    origin, first = _FIRST.setdefault(path, (loaded, source.digest))
    if origin is not loaded:  # imported anew
        _FIRST[path] = (loaded, source.digest)
    elif first != source.digest:
        warnings.warn(
            f"{path.name} was edited after this process had imported it, so what runs is not what the file says."
            " Results are stored under an identity of their own, and not used again. Import it anew, or start Python"
            " again.",
            stacklevel=2,
        )
        return source._replace(digest=_digest([first, source.digest]))
    return source


def _runs_only_as_script(part: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":`, which an imported module skips."""
    return isinstance(part, ast.If) and ast.unparse(part.test).replace('"', "'") == f"__name__ == '{_SCRIPT}'"


def _find_imports(body: list[ast.stmt], package: str, root: Path) -> Iterator[str]:
    """The names of all modules of the user that these statements import, those within functions among them.

    For `from a import b` that is `a`, and `a.b` if there is such a module. Parent packages count, too.
    """
    for node in _walk(body):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*parts, *([node.module] if node.module else [])])
            named = [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in named:
            pieces = name.split(".")
            for stop in range(1, len(pieces) + 1):
                yield from _resolve(".".join(pieces[:stop]), root)


def _resolve(name: str, root: Path) -> Iterator[str]:
    """The name, if it is a module of the user that can be found from `root` or from where Python looks."""
    if not name or name.partition(".")[0] in sys.stdlib_module_names | VERSIONED:
        return
    if name in sys.modules or find_file(name) is not None:
        yield name
        return
    file = _find_unloaded(name, [str(root)])
    if file is not None and _is_own_file(Path(file)):
        yield name


def _find_data(body: list[ast.stmt], folder: Path) -> Iterator[Path]:
    """The data files that text constants name, beside the module or from the current folder."""
    for node in _walk(body):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if 0 < len(text) < 256 and Path(text).suffix.lower() in _DATA:
            for path in (folder / text, Path(text)):
                if path.is_file():
                    yield path
                    break


def _walk(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for part in body:
        yield from ast.walk(part)


def _cut(body: list[ast.stmt], name: str) -> list[ast.stmt]:
    """The statements of a script that define `name` and, again and again, all names that these use."""
    sets = [_names_set(part) for part in body]
    wanted, kept = {name}, [False] * len(body)
    grown = True
    while grown:
        grown = False
        for place, part in enumerate(body):
            if kept[place] or not (sets[place] & wanted):
                continue
            used = _names_used(part)
            if used & _DYNAMIC:
                return body
            kept[place], grown = True, True
            wanted |= used
    return [part for place, part in enumerate(body) if kept[place]]


def _names_set(part: ast.stmt) -> set[str]:
    """The names that a statement defines or changes: `a = 1`, `a.b = 1`, `a[0] = 1`, `a.update(...)`, `import a`."""
    found: set[str] = set()
    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {part.name}
    for node in ast.walk(part):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found |= _first_name(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            found |= _first_name(function) if isinstance(function, ast.Attribute) else set()
    return found


def _first_name(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _names_used(part: ast.stmt) -> set[str]:
    """All names and attributes in a statement: more than it refers to, never less."""
    found: set[str] = set()
    for node in ast.walk(part):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def _digest_file(path: Path) -> str:
    about = path.stat()
    if about.st_size > _LARGEST:
        return f"{about.st_size} bytes of {about.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _digest(parts: list[object] | Mapping[str, str] | list[str]) -> str:
    listed = sorted(parts.items()) if isinstance(parts, Mapping) else parts
    return hashlib.sha256(repr(listed).encode()).hexdigest()[:16]
