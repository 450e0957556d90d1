"""What a study file names as `module:function`, from the study's own folder or, if it is trusted, from elsewhere."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from standfast.errors import suggest_name
from standfast.study.file.problems import describe_error, reject, show, with_article
from standfast.study.import_paths import importing_from
from standfast.tensors import seed_generators

#: what looks like `module:function`
REFERENCE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"


def resolve(reference: str, paths: Sequence[str], trust: bool = False, function: str = "") -> Any:
    """The thing that `module:function` names.

    Args:
        reference: the name.
        paths: the folders of the study.
        trust: whether the module may be another than those in these folders.
        function: if it must be a function, which.

    Raises:
        StudyFieldError: there is no such module or no such name in it, it is not trusted, importing it fails, or it
            is no function.

    >>> resolve("math:sqrt", [], trust=True)(9.0)
    3.0
    """
    name, _, inner = reference.partition(":")
    with importing_from(paths):
        named: Any = _import(name, reference, paths, trust)
        for part in inner.split("."):
            if not hasattr(named, part):
                public_names = [other for other in dir(named) if not other.startswith("_")]
                hint = suggest_name(part, public_names)
                raise reject(f"a name that {name} has", f"{show(inner)}{hint}")
            named = getattr(named, part)
    if function and not callable(named):
        raise reject(function, with_article(type(named).__name__))
    return named


def call_function(
    reference: str, options: Mapping[str, Any], paths: Sequence[str], trust: bool, what: str
) -> Any:
    """What the function returns for these options, with the global generators of torch, NumPy and Python seeded.

    Raises:
        StudyFieldError: as `resolve`; or it raises, its exception being the cause.
    """
    function: Callable[..., Any] = resolve(
        reference, paths, trust, f"a function that returns {what}"
    )
    try:
        # what is drawn from the global generators is the same in every worker, and when the study goes on tomorrow
        with importing_from(paths), seed_generators(0, torch.device("cpu")):
            return function(**options)
    except (Exception, SystemExit) as error:
        # what the user's function raises is the user's to read, so it may be anything; `SystemExit` would end us
        # without a word
        raise reject(
            f"{what} from {reference}", describe_error(error, find_line(error, paths))
        ) from error


def find_line(error: BaseException, paths: Sequence[str]) -> str:
    """The last line in the user's files that an exception passed through; else empty."""
    # the file that does not parse is in no traceback
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}"
    roots = [Path(path).resolve() for path in paths]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        is_beneath = any(file.resolve().is_relative_to(root) for root in roots)
        # an environment may lie beneath the folder of the study
        if is_beneath and "site-packages" not in file.parts:
            return f"{file.name}, line {frame.lineno}"
    return ""


def _import(name: str, reference: str, paths: Sequence[str], trust: bool) -> ModuleType:
    top = name.partition(".")[0]
    lies_beside = PathFinder.find_spec(top, list(paths)) is not None
    # a module that is found nowhere is let through, for the clearer error of the import
    if not (lies_beside or trust) and (top in sys.modules or find_spec(top) is not None):
        raise reject(
            f"trust: true beside it, because {name} lies outside of the study's folder", "no trust"
        )
    _forget_namesake(top, paths)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        # the code of a module may raise anything; `SystemExit` would end us without a word
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        # the module itself is missing, and not one that it imports
        if missing and (name == missing or name.startswith(f"{missing}.")):
            files = [file for path in paths for file in sorted(Path(path).glob("*.py"))]
            beside = [file.stem for file in files]
            words = "a module that is installed or lies beside the study file"
            near = suggest_name(name, beside)
            raise reject(words, f"{show(reference)}{near}") from error
        raise reject(
            f"{name} to be imported", describe_error(error, find_line(error, paths))
        ) from error


def _forget_namesake(top: str, paths: Sequence[str]) -> None:
    """Another study's module of the same name, still in memory, gives way to the one beside this study."""
    loaded = sys.modules.get(top)
    # a file beside the study never replaces a module of Python
    if loaded is None or top in sys.stdlib_module_names:
        return
    files_beside = _list_files_beside(top, paths)
    loaded_file = getattr(loaded, "__file__", None)
    if not files_beside or loaded_file is None:
        return
    if Path(loaded_file).resolve() in files_beside:
        return
    # its parts as well, or the new package would be mixed with the old one
    for name in list(sys.modules):
        if name == top or name.startswith(f"{top}."):
            del sys.modules[name]


def _list_files_beside(top: str, paths: Sequence[str]) -> list[Path]:
    """The files of a module, or of a package, in the folders of a study."""
    files: list[Path] = []
    for path in paths:
        files.append(Path(path) / f"{top}.py")
        files.append(Path(path) / top / "__init__.py")
    return [file.resolve() for file in files if file.is_file()]
