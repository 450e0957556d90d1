"""The source of the user's own modules, as a part of a job's identity.

Names cannot be followed through everything that Python allows: a class attribute, a function behind a decorator, an
import within a function. So every module of the user that a function or class comes from counts as a whole, together
with the modules that it imports and the data files that it names. Comments and formatting do not count.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import marshal
import os
import symtable
import sys
import sysconfig
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

#: packages that are identified by their version, not by their code
VERSIONED = frozenset(
    {
        *("standfast", "torch", "captum", "builtins"),
        *("lime", "pytorch_grad_cam", "quantus", "shap", "timm", "torchvision", "transformers", "zennit"),
        *("lightgbm", "sklearn", "xgboost"),
    }
)
#: calls that write files: what they name is a result, and no part of the code
_WRITERS = {"save", "savez", "savez_compressed", "savefig", "savetxt", "dump", "write_text", "write_bytes", "touch"}
#: files that are larger count by their size and date
_LARGEST = 1 << 28
#: a script that uses one of these is not cut: what it refers to cannot be read from its text
_DYNAMIC = {"globals", "locals", "vars", "eval", "exec", "__import__", "import_module"}
_IMPORTERS = {"import_module", "__import__"}
_SCRIPT = "__main__"
#: types of values that are compared with the text of a module
_PLAIN = (bool, int, float, complex, str, bytes, tuple)
#: what was read first of each file in this process, with the import that it belongs to
_FIRST: dict[Path, tuple[object, str]] = {}


class _Source(NamedTuple):
    """What was read of one module: the digest of its text, what it imports (with its file), and texts that it has."""

    digest: str
    imports: tuple[tuple[str, Path], ...]
    folder: Path
    names: tuple[str, ...]

    def files(self) -> Iterator[Path]:
        """The data files beside the module that texts name."""
        for name in self.names:
            path = self.folder / name
            with contextlib.suppress(OSError, ValueError):
                if path.is_file():
                    yield path


class UserCode:
    """The user's modules that were found to count, by name. It reads each file once.

    >>> from standfast.errors import ArgumentError
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
            file = find_file(name)
            self._closures[name] = _digest(self._collect([] if file is None else [(name, file)]))
        return self._closures[name]

    def _collect(self, modules: Iterable[tuple[str, Path]]) -> dict[str, str]:
        """The digests of these modules and of all that they import, directly or not."""
        found: dict[str, str] = {}
        waiting = list(modules)
        while waiting:
            name, path = waiting.pop()
            if name in found:
                continue
            source = self._read(name, path)
            found[name] = source.digest
            found |= {f"{name}: {file.name}": _digest_file(file) for file in source.files()}
            waiting += source.imports
        self.modules |= found
        return found

    def _read(self, name: str, path: Path) -> _Source:
        if name not in self._sources:
            try:
                self._sources[name] = _mark_edited(name, path, _read_module(name, path, path.stat().st_mtime_ns))
            except OSError:  # in a zip archive, or gone since it was imported
                self._sources[name] = _Source("unreadable", (), path.parent, ())
        return self._sources[name]

    def _digest_script(self, entry: FunctionType | type) -> str:
        """The statements of the script that is running on which a function or class of it depends.

        A script as a whole would count every line that calls `evaluate`, so that nothing could ever be continued.
        """
        script = sys.modules.get(_SCRIPT)
        file = getattr(script, "__file__", None)
        tree = _parse(Path(file)) if file else None
        if file is None or tree is None:  # a notebook, or a line that was typed in: only names are followed
            return ""
        path = Path(file)
        package = getattr(getattr(script, "__spec__", None), "parent", None) or ""  # of `python -m package.module`
        whole = _describe(tree.body, path, package)
        source = _describe(_cut(tree.body, entry.__qualname__.partition(".")[0]), path, package)
        edited = _mark_edited(_SCRIPT, path, whole) is not whole
        found = {_SCRIPT: whole.digest if edited else source.digest, **self._collect(source.imports)}
        found |= {f"{_SCRIPT}: {data.name}": _digest_file(data) for data in source.files()}
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

    >>> find_file("json"), find_file("standfast.errors")
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
    """What the file of a module says; `changed` is its date, so that another version is read again."""
    tree = _parse(path)
    if tree is None:  # no Python of this version: a compiled module
        return _Source(_digest_file(path), (), path.parent, ())
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return _describe([part for part in tree.body if not _runs_only_as_script(part)], path, package)


def _describe(body: list[ast.stmt], path: Path, package: str) -> _Source:
    imports = dict(_find_imports(body, package, _root(path, package)))
    text = _digest([ast.dump(part) for part in body])
    return _Source(text, tuple(imports.items()), path.parent, tuple(dict.fromkeys(_find_names(body))))


def _mark_edited(name: str, path: Path, source: _Source) -> _Source:
    """The same, marked if the file was edited after this process had imported it: what runs is older than its text."""
    module = sys.modules.get(name)
    if module is None:
        return source
    loaded = getattr(module, "__spec__", None) or name
    origin, first = _FIRST.get(path, (None, ""))
    if origin is not loaded:  # met for the first time, or imported again
        first = source.digest if _is_current(module, path) else "older than the file"
        _FIRST[path] = (loaded, first)
    if first == source.digest:
        return source
    warnings.warn(
        f"{path.name} was edited after this process had imported it, so what runs is not what the file says."
        " Results are stored under an identity of their own, and not used again. Restart Python, or reload the"
        " module.",
        stacklevel=2,
    )
    return source._replace(digest=_digest([first, source.digest]))


def _is_current(module: ModuleType, path: Path) -> bool:
    """Whether what is in memory of a module is what its file says, as far as can be known.

    Its functions are compared, and the bytecode that Python stored when it imported the module. The stored bytecode
    says nothing if another process has written it since, or if it could not be written. So constants are compared, too,
    in a file that is younger than this process: in others a different value was set on purpose.
    """
    if not isinstance(getattr(module, "__loader__", None), SourceFileLoader):  # pytest, for one, changes what it loads
        return True
    try:
        content = path.read_bytes()
        code, tree = compile(content, str(path), "exec", dont_inherit=True), ast.parse(content)
        edited = path.stat().st_mtime
    except (OSError, SyntaxError, ValueError):
        return True
    written = _list_code(code)
    for entry in _list_functions(vars(module), module.__name__):
        own = entry.__code__
        here = Path(own.co_filename) == path and own.co_qualname in written
        if here and _content_of(own) not in written[own.co_qualname]:
            return False
    imported = _read_bytecode(module)
    if imported is not None and _content_of(imported) != _content_of(code):
        return False
    began = _process_began()
    return began is None or edited < began or not _has_other_constants(vars(module), tree.body)


def _read_bytecode(module: ModuleType) -> CodeType | None:
    """What Python stored when it imported a module; None if it stores nothing, or cannot."""
    cached = getattr(module, "__cached__", None)
    if not cached or sys.dont_write_bytecode or sys.version_info >= (3, 14):  # which has line numbers in the code
        return None
    try:
        stored = Path(cached).read_bytes() if os.access(Path(cached).parent, os.W_OK) else b""
        found = marshal.loads(stored[16:])
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return found if stored[:4] == importlib.util.MAGIC_NUMBER and isinstance(found, CodeType) else None


def _has_other_constants(names: Mapping[str, Any], body: list[ast.stmt]) -> bool:
    """Whether a number or text that a module or class sets once, `NAME = 2.0`, has another value in memory."""
    stored = Counter(node.id for node in _walk(body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    declared = {name for node in _walk(body) if isinstance(node, ast.Global) for name in node.names}
    for part in body:
        if isinstance(part, ast.ClassDef) and isinstance(names.get(part.name), type):
            if _has_other_constants(vars(names[part.name]), part.body):
                return True
        elif isinstance(part, ast.Assign | ast.AnnAssign) and part.value is not None:
            targets = part.targets if isinstance(part, ast.Assign) else [part.target]
            for name in (target.id for target in targets if isinstance(target, ast.Name)):
                once = stored[name] == 1 and name not in declared and name in names
                try:
                    value = ast.literal_eval(part.value)
                except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                    continue
                plain = once and type(value) in _PLAIN and type(names[name]) in _PLAIN
                if plain and repr(names[name]) != repr(value):
                    return True
    return False


@cache
def _process_began() -> float | None:
    """When this process began, as files are dated; None where the system does not say."""
    try:
        ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        awake = float(Path("/proc/uptime").read_text().split()[0])
        return time.time() - awake + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _list_code(code: CodeType) -> dict[str, list[object]]:
    """What all functions in compiled source do, by their qualified names."""
    found: dict[str, list[object]] = {}
    waiting = [code]
    while waiting:
        inside = [part for part in waiting.pop().co_consts if isinstance(part, CodeType)]
        waiting += inside
        for part in inside:
            found.setdefault(part.co_qualname, []).append(_content_of(part))
    return found


def _content_of(code: CodeType) -> object:
    """A function's code without its place in the file."""
    line = code.co_firstlineno if "__firstlineno__" in code.co_names else None  # of a class, in Python 3.13
    parts = [part for part in code.co_consts if line is None or part != line]
    constants = [_content_of(part) if isinstance(part, CodeType) else repr(part) for part in parts]
    return [code.co_code, constants, code.co_names]


def _list_functions(names: Mapping[str, Any], module: str) -> Iterator[FunctionType]:
    """The functions of a module, with the methods of its classes, and what decorators have wrapped.

    Classes may contain each other, and wrappers may go round in a circle: each thing is looked at once.
    """
    waiting, seen = list(names.values()), set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType):
            yield value
        if isinstance(value, type):
            waiting += vars(value).values() if value.__module__ == module else ()
        else:
            with contextlib.suppress(Exception):  # an object may answer anything when it is asked for an attribute
                waiting += [vars(value)[name] for name in ("__wrapped__",) if name in vars(value)]
            if isinstance(value, staticmethod | classmethod):
                waiting.append(value.__func__)


def _runs_only_as_script(part: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":`, which an imported module skips."""
    return isinstance(part, ast.If) and ast.unparse(part.test).replace('"', "'") == f"__name__ == '{_SCRIPT}'"


def _find_imports(body: list[ast.stmt], package: str, root: Path) -> Iterator[tuple[str, Path]]:
    """All modules of the user that these statements import, also within functions, with their files.

    For `from a import b` that is `a`, and `a.b` if there is such a module. Parent packages count, too.
    """
    for node in _walk(body):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*parts, *([node.module] if node.module else [])])
            named = [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and _name_of(node.func) in _IMPORTERS:
            named = [text for part in node.args[:1] if (text := _text_of(part))]
        else:
            continue
        for name in named:
            pieces = name.split(".")
            for stop in range(1, len(pieces) + 1):
                yield from _resolve(".".join(pieces[:stop]), root)


def _resolve(name: str, root: Path) -> Iterator[tuple[str, Path]]:
    """The name with its file, if it is a module of the user found from `root` or from where Python looks."""
    if not name or name.partition(".")[0] in sys.stdlib_module_names | VERSIONED:
        return
    file = find_file(name)
    if file is None and name not in sys.modules:
        beside = _find_unloaded(name, [str(root)])
        file = Path(beside) if beside and _is_own_file(Path(beside)) else None
    if file is not None:
        yield name, file


def _find_names(body: list[ast.stmt]) -> Iterator[str]:
    """Texts that may name data files, with `/` between parts of a path; not those that calls write to."""
    calls = [node for node in _walk(body) if isinstance(node, ast.Call) and _writes(node)]
    written = {_text_of(part) for call in calls for part in ast.walk(call)}
    for node in _walk(body):
        joined = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        text = "/".join(_constants_of(node)) if joined else _text_of(node)
        if 0 < len(text) < 256 and text not in written and "\n" not in text:
            yield text


def _constants_of(node: ast.AST) -> list[str]:
    """The texts at the end of `folder / "data" / "w.npy"`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return [*_constants_of(node.left), *_constants_of(node.right)]
    return [text] if (text := _text_of(node)) else []


def _text_of(node: ast.AST) -> str:
    """The text that a constant is; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _writes(call: ast.Call) -> bool:
    """Whether a call writes a file: by its name, or `open` with a mode for writing."""
    name = _name_of(call.func)
    if name in _WRITERS or name.startswith(("to_", "write_")):
        return True
    modes = [*call.args[:2], *(word.value for word in call.keywords if word.arg == "mode")]
    return name == "open" and any(
        isinstance(mode, ast.Constant)
        and isinstance(mode.value, str)
        and mode.value.strip("rwaxbt+") == ""
        and set(mode.value) & set("wax+")
        for mode in modes
    )


def _walk(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for part in body:
        yield from ast.walk(part)


def _cut(body: list[ast.stmt], name: str) -> list[ast.stmt]:
    """The statements of a script that define `name` and, again and again, all names that these use."""
    changes = {
        part.name: _roots_stored(part) for part in body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    sets = [_names_set(part, changes) for part in body]
    wanted, kept = {name}, [_is_star(part) for part in body]
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


def _is_star(part: ast.stmt) -> bool:
    return isinstance(part, ast.ImportFrom) and any(alias.name == "*" for alias in part.names)


def _names_set(part: ast.stmt, changes: Mapping[str, set[str]]) -> set[str]:
    """The names that a statement defines or changes: `a = 1`, `a.b = 1`, `a[0] = 1`, `a.update(...)`, `import a`.

    A call of a function of the script changes what the function changes (`changes`).
    """
    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {part.name}
    found = _roots_stored(part)
    for node in ast.walk(part):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            found |= _first_name(function) if isinstance(function, ast.Attribute) else set()
            found |= changes.get(_name_of(function), set())
    return found


def _roots_stored(part: ast.stmt) -> set[str]:
    """The names whose attributes or items a statement stores, and those that it declares as global."""
    found: set[str] = set()
    for node in ast.walk(part):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found |= _first_name(node)
        elif isinstance(node, ast.Global):
            found |= set(node.names)
    return found


def _first_name(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _names_used(part: ast.stmt) -> set[str]:
    """The names of the script that a statement refers to: not those of parameters and local variables."""
    found = {node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute) and node.attr in _DYNAMIC}
    tables = [symtable.symtable(ast.unparse(part), "script", "exec")]
    outermost = tables[0]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (table is outermost or symbol.is_global()):
                found.add(symbol.get_name())
    return found


def _digest_file(path: Path) -> str:
    about = path.stat()
    if about.st_size > _LARGEST:
        return f"{about.st_size} bytes of {about.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _digest(parts: list[object] | Mapping[str, str] | list[str]) -> str:
    listed = sorted(parts.items()) if isinstance(parts, Mapping) else parts
    return hashlib.sha256(repr(listed).encode()).hexdigest()[:16]
