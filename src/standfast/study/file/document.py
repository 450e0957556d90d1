"""A study file as it was written: plain values, and the line of each."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from standfast.errors import ArgumentError, as_number, check
from standfast.study.file.problems import Keys, Misfit, Problem, StudyError, describe_error, misfit

_DEEP, _MANY = 40, 20_000  # no study is deeper or larger; aliases can make a short file endless
_LARGEST = 500_000  # bytes; reading YAML with the lines of its keys takes seconds from there on


@dataclass(frozen=True)
class Document:
    """The content of a study file.

    Attributes:
        name: of the file, for messages.
        base: the folder that paths in it are relative to.
        content: plain values.
        lines: of every key and every list item, counted from 1.
    """

    name: str
    base: Path
    content: Any
    lines: dict[Keys, int] = field(default_factory=dict)

    def locate(self, problem: Problem) -> Problem:
        """The problem with the part of its path that is in the file, and the line of that.

        Options that stand beneath a name, as in `{rotation: {degrees: 10}}`, are found without that name.

        >>> document = Document("study.yaml", Path(), {"data": {"a": "digits"}}, {("data",): 1, ("data", "a"): 2})
        >>> document.locate(Problem(("data", "a", "name"), "a name", "'x'")).path
        ('data', 'a')
        """
        path: Keys = ()
        here = self.content
        for key, after in zip(problem.path, (*problem.path[1:], None), strict=False):
            if isinstance(here, dict) and key not in here and len(here) == 1:
                ((name, options),) = here.items()
                # a list stands for the first option, as the parts of a composition do
                listed = isinstance(options, list) and isinstance(after, int)
                if listed or (isinstance(options, dict) and key in options):
                    path, here = (*path, name), options
                if listed:
                    continue
            if isinstance(here, dict):
                path = (*path, key)
                if key not in here:  # a key that is missing is named, what would be beneath it is not
                    break
            elif isinstance(here, list) and isinstance(key, int) and key < len(here):
                path = (*path, key)
            else:
                break
            here = here[key]
        line = next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), None)
        return replace(problem, path=path, line=line)

    def error(self, problems: Sequence[Problem]) -> StudyError:
        """What to raise for these problems."""
        located = [self.locate(problem) for problem in problems]
        return StudyError(self.name, sorted(located, key=lambda problem: problem.line or 0))


def read_document(path: str | Path) -> Document:
    """The study file at `path`, YAML 1.2 (JSON is YAML, too).

    Raises:
        StudyError: there is no such file, or it is not YAML: keys that are there twice, tabs, tags and aliases without
            an end included.
    """
    path = Path(path)
    lines: dict[Keys, int] = {}
    parser = YAML(typ="safe", pure=True)
    parser.allow_duplicate_keys = False
    try:
        text = read_content(path, "a study file", largest=_LARGEST).decode("utf-8-sig")
        node = parser.compose(text)
        if node is not None:
            _number(node, (), lines)
        content = read_plain(parser.load(text))
        if content is None:
            raise misfit("a study: data, models, explainers and metrics", "an empty file")
    except (Misfit, YAMLError, ValueError, TypeError, RecursionError) as error:
        (problem,) = error.problems if isinstance(error, Misfit) else [_describe(error)]
        raise StudyError(str(path), [replace(problem, line=problem.line or lines.get(problem.path))]) from error
    return Document(str(path), path.resolve().parent, content, lines)


def read_plain(value: Any, *path: str | int) -> Any:
    """Plain values, of which a user's may be NumPy's or torch's.

    Raises:
        Misfit: a whole number is beyond those that any option could be, and Python refuses to write it.

    >>> read_plain({"samples": (16**500,)})
    Traceback (most recent call last):
        ...
    standfast.study.file.problems.Misfit: samples[0]: expected a number below 1e308, got one of 2000 bits
    """
    if isinstance(value, Mapping):
        return {key: read_plain(each, *path, key) for key, each in value.items()}
    if type(value) in (list, tuple):
        return [read_plain(each, *path, index) for index, each in enumerate(value)]
    if isinstance(value, int) and value.bit_length() > 1023:
        raise misfit("a number below 1e308", f"one of {value.bit_length() - 1} bits", *path)
    return as_number(value)


def read_content(path: Path, what: str, *place: str, largest: int | None = None) -> bytes:
    """The bytes of a file that a study names.

    Args:
        path: of the file.
        what: it is, for the error.
        place: of the error.
        largest: bytes that it may have.

    Raises:
        Misfit: it is missing, too large, cannot be read, or is no file: reading a pipe or a device may never end.
    """
    try:
        return read_file(path, largest)
    except (OSError, ArgumentError) as error:
        expected = error.expected if isinstance(error, ArgumentError) else "a file that can be read"
        got = error.got if isinstance(error, ArgumentError) else (error.strerror or str(error)).lower()
        raise misfit(expected.replace("a file", what), f"{path.name!r}: {got}" if place else got, *place) from error


def read_file(path: Path, largest: int | None = None) -> bytes:
    """The content of a regular file, or of what a link to one leads to."""
    status = path.stat()
    kind = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFREG: ""}.get(stat.S_IFMT(status.st_mode))
    check(kind == "", "path", "a file that can be read", kind or "a device")
    fits = largest is None or status.st_size <= largest
    check(fits, "path", f"a file of at most {largest or 0:,} bytes", f"{status.st_size:,} bytes")
    return path.read_bytes()


def _number(node: Node, path: Keys, lines: dict[Keys, int]) -> None:
    """Note the lines of all keys and items below a node."""
    if len(path) > _DEEP or len(lines) > _MANY:
        expected = "a file without an alias (*name) that leads to itself or to thousands of copies"
        raise Misfit([Problem(path[:3], expected, "such a file", line=node.start_mark.line + 1)])
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            lines.setdefault((*path, index), item.start_mark.line + 1)
            _number(item, (*path, index), lines)
    for key, value in node.value if isinstance(node, MappingNode) else ():
        if isinstance(key, ScalarNode) and str(key.tag).endswith((":str", ":merge")):
            inner = path if str(key.tag).endswith(":merge") else (*path, key.value)
            lines.setdefault(inner, key.start_mark.line + 1)
            _number(value, inner, lines)


def _describe(error: Exception) -> Problem:
    """What the YAML parser stumbled over."""
    if isinstance(error, UnicodeDecodeError):
        return Problem((), "a text in UTF-8", f"bytes that are not UTF-8 at position {error.start}")
    if isinstance(error, RecursionError):
        return Problem((), "YAML", "brackets within brackets without end")
    if not isinstance(error, MarkedYAMLError):
        return Problem((), "YAML", describe_error(error))
    mark = error.problem_mark or error.context_mark
    line, column = (None, "") if mark is None else (mark.line + 1, f" (column {mark.column + 1})")
    said = str(error.problem or error.context)
    if said.startswith("found duplicate key"):
        return Problem((), "every key once", f"the key {said.split(chr(34))[1]!r} twice", line=line)
    if r"'\t'" in said:
        return Problem((), "spaces", "a tab", line=line)
    return Problem((), "YAML", f"{said}{column}", line=line)
