"""A study file as it was written: plain values, and the line of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

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
        for index, key in enumerate(problem.path):
            if isinstance(here, dict) and key not in here and len(here) == 1:
                ((name, options),) = here.items()
                if isinstance(options, dict) and key in options:
                    path, here = (*path, name), options
                # a list stands for the first option, as the parts of a composition do
                elif isinstance(options, list) and isinstance((*problem.path, None)[index + 1], int):
                    path, here = (*path, name), options
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

    def has(self, path: Keys) -> bool:
        """Whether there is such a place in the file.

        >>> Document("study.yaml", Path(), {"data": ["digits"]}).has(("data", 0))
        True
        """
        here = self.content
        for key in path:
            inside = key in here if isinstance(here, dict) else isinstance(here, list) and key in range(len(here))
            if not inside:
                return False
            here = here[key]
        return True

    def error(self, problems: list[Problem] | tuple[Problem, ...]) -> StudyError:
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
    try:
        raw = path.read_bytes()
        if len(raw) > _LARGEST:
            raise misfit(f"a study file of at most {_LARGEST:,} bytes", f"{len(raw):,} bytes")
        text = raw.decode("utf-8-sig")
        node = _parser().compose(text)
        if node is not None:
            _number(node, (), lines)
        content = _parser().load(text)
        if content is None:
            raise misfit("a study: data, models, explainers and metrics", "an empty file")
    except (Misfit, OSError, YAMLError, ValueError, TypeError, RecursionError) as error:
        problem = error.problems[0] if isinstance(error, Misfit) else _describe(error, path)
        raise StudyError(str(path), [problem]) from error
    return Document(str(path), path.resolve().parent, content, lines)


def _parser() -> YAML:
    parser = YAML(typ="safe", pure=True)
    parser.allow_duplicate_keys = False
    return parser


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


def _describe(error: Exception, path: Path) -> Problem:
    """Why the file cannot be read, or what the YAML parser stumbled over."""
    if isinstance(error, UnicodeDecodeError):
        return Problem((), "a text in UTF-8", f"bytes that are not UTF-8 at position {error.start}")
    if isinstance(error, OSError):
        got = "a folder" if path.is_dir() else (error.strerror or str(error)).lower()
        return Problem((), "a study file that can be read", got)
    if isinstance(error, RecursionError):
        return Problem((), "YAML", "brackets within brackets without end")
    if not isinstance(error, MarkedYAMLError):
        return Problem((), "YAML", describe_error(error))
    mark = error.problem_mark or error.context_mark
    line, column = (None, "") if mark is None else (mark.line + 1, f" (column {mark.column + 1})")
    said = str(error.problem or error.context)
    if said.startswith("found duplicate key"):
        key = said.split('"')[1]
        return Problem((), "every key once", f"the key {key!r} twice", line=line)
    if r"'\t'" in said:
        return Problem((), "spaces", "a tab", line=line)
    return Problem((), "YAML", f"{said}{column}", line=line)
