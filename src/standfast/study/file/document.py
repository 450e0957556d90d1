"""The text of a study file: its plain values, the line of each key, and the error that shows its problems."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from standfast.errors import StandfastError, as_number
from standfast.files import read_file
from standfast.study.file.problems import Keys, Problem, StudyFieldError, describe_error, reject

_PROBLEMS, _LINES, _WIDTH = 10, 20, 190  # that an error shows at most
_DEEP, _MANY = 40, 20_000  # no study is deeper or larger; aliases can make a short file endless
_LARGEST = 500_000  # bytes; reading YAML with the lines of its keys takes seconds from there on
#: what `parse` raises for a text that is none of a study
UNREADABLE = (StudyFieldError, YAMLError, ValueError, TypeError, RecursionError)


class StudyError(StandfastError):
    """A study file that cannot be evaluated; the text says what is wrong with it, on one screen at most.

    Attributes:
        file: its name.
        problems: all that was found.

    >>> raise StudyError("study.yaml", [Problem(("seed",), "a whole number", "'x'", line=3)])
    Traceback (most recent call last):
        ...
    standfast.study.file.document.StudyError: study.yaml: 1 problem
      seed (line 3): expected a whole number, got 'x'
    """

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file, self.problems = file, tuple(problems)
        count = len(problems)
        wrapper = textwrap.TextWrapper(
            _WIDTH, initial_indent="  ", subsequent_indent="      ", placeholder=" ..."
        )
        # names and paths with a hyphen stay whole, so that they can be copied
        wrapper.break_on_hyphens = False
        lines_of_problem = _LINES // max(1, count)
        wrapper.max_lines = max(2, min(6, lines_of_problem))
        # the end of a path tells more than its beginning
        if len(file) <= 150:
            name = file
        else:
            name = f"... {file[-146:]}"
        how_many = "1 problem" if count == 1 else f"{count} problems"
        lines = [f"{name}: {how_many}"]
        for problem in problems[:_PROBLEMS]:
            lines += wrapper.wrap(str(problem))
        if count > _PROBLEMS:
            lines.append(f"  ... and {count - _PROBLEMS} more")
        super().__init__("\n".join(lines))


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

        Options that a value alone stands for are left out, and so is what would be beneath a key that is missing.

        >>> document = Document("study.yaml", Path(), {"neighbourhood": {"linf": "big"}}, {("neighbourhood",): 4})
        >>> str(document.locate(Problem(("neighbourhood", "linf", "radius"), "a number", "'big'")))
        "neighbourhood.linf (line 4): expected a number, got 'big'"
        """
        path: Keys = ()
        node = self.content
        for key in problem.path:
            if isinstance(node, list) and isinstance(key, str):
                continue  # a list stands for the first option, as the parts of a composition do
            if not isinstance(node, dict | list):
                break
            path = (*path, key)
            if isinstance(node, dict) and key not in node:
                break
            # what is missing has no line; the line of what should contain it is shown
            node = node[key]  # type: ignore[index]
        return replace(problem, path=path, line=self._find_line(path))

    def _find_line(self, path: Keys) -> int | None:
        """The line of the last key of a path that has one."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def error(self, problems: Iterable[Problem]) -> StudyError:
        """What to raise for these problems, without those that are there twice."""
        # several checks may find the same problem
        located = dict.fromkeys(map(self.locate, problems))
        in_order = sorted(located, key=lambda problem: problem.line or 0)
        return StudyError(self.name, in_order)


def read_document(path: str | Path) -> Document:
    """The study file at `path`, YAML 1.2 (JSON is YAML, too).

    Raises:
        StudyError: there is no such file, or it is not YAML: keys that are there twice, tabs, tags and aliases without
            an end included.
    """
    path = Path(path)
    lines: dict[Keys, int] = {}
    try:
        # with the mark that some editors on Windows write at the beginning
        text = read_content(path, largest=_LARGEST).decode("utf-8-sig")
        content = parse(text, lines)
        if content is None:
            raise reject("a study: data, models, explainers and metrics", "an empty file")
    except UNREADABLE as error:
        if isinstance(error, StudyFieldError):
            (problem,) = error.problems
        else:
            (problem,) = [_describe(error)]
        line = problem.line or lines.get(problem.path)
        raise StudyError(str(path), [replace(problem, line=line)]) from error
    return Document(str(path), path.resolve().parent, content, lines)


def parse(text: str, lines: dict[Keys, int] | None = None) -> Any:
    """The plain values of YAML 1.2; None of an empty text.

    Args:
        text: all of it.
        lines: gets the line of every key and every list item, counted from 1.

    Raises:
        Exception: one of `UNREADABLE`.
    """
    parser = YAML(typ="safe", pure=True)
    parser.allow_duplicate_keys = False
    node = parser.compose(text)
    if node is None:
        return None
    # before anything is made of it, as aliases can make it endless
    line_of_key = {} if lines is None else lines
    _number(node, (), line_of_key)
    return read_plain(parser.constructor.construct_document(node))


def read_plain(value: Any, *path: str | int) -> Any:
    """Plain values, of which a user's may be NumPy's or torch's.

    Raises:
        StudyFieldError: a whole number is beyond those that any option could be, and Python refuses to write it.

    >>> read_plain({"samples": (16**500,)})
    Traceback (most recent call last):
        ...
    standfast.study.file.problems.StudyFieldError: samples[0]: expected a number below 1e308, got one of 2001 bits
    """
    if isinstance(value, Mapping):
        return {key: read_plain(entry, *path, key) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return [read_plain(entry, *path, index) for index, entry in enumerate(value)]
    if isinstance(value, int) and value.bit_length() > 1023:
        raise reject("a number below 1e308", f"one of {value.bit_length()} bits", *path)
    return as_number(value)


def read_content(path: Path, *keys: str, largest: int | None = None) -> bytes:
    """The bytes of a file that a study names at `keys`, or of the study file itself.

    Raises:
        StudyFieldError: it is missing, has more than `largest` bytes, cannot be read, or is no file: reading a pipe or
            a device may never end.
    """
    try:
        return read_file(path, largest)
    except OSError as error:
        raise reject(
            "a file that can be read",
            f"{path.name!r}: {(error.strerror or str(error)).lower()}",
            *keys,
        ) from error


def _number(node: Node, path: Keys, lines: dict[Keys, int]) -> None:
    """Note the lines of all keys and items below a node."""
    if len(path) > _DEEP or len(lines) > _MANY:
        expected = "a file without an alias (*name) that leads to itself or to thousands of copies"
        raise StudyFieldError(
            [Problem(path[:3], expected, "such a file", line=node.start_mark.line + 1)]
        )
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            lines.setdefault((*path, index), item.start_mark.line + 1)
            _number(item, (*path, index), lines)
    if not isinstance(node, MappingNode):
        return
    for key, value in node.value:
        if isinstance(key, ScalarNode) and str(key.tag).endswith((":str", ":merge")):
            # `<<` stands for the keys of another mapping, which belong to the mapping around it
            if str(key.tag).endswith(":merge"):
                inner = path
            else:
                inner = (*path, key.value)
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
    said = " ".join(str(error.problem or error.context).split())
    return Problem((), "YAML", f"{said} (column {mark.column + 1})", line=mark.line + 1)
