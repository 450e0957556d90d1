"""What is wrong with a study file, in words: the place, what was expected, what was given, and the nearest known name.

A check raises pydantic's `ValidationError`, an `ArgumentError` of the library, or `Misfit`, which is an `ArgumentError`
with places in the file. `problems_in` translates them into `Problem`s, and nothing else does. `StudyError` shows the
problems of a whole file.
"""

from __future__ import annotations

import contextlib
import stat
import textwrap
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, model_validator
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticOmit
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from standfast.errors import ELSEWHERE, ArgumentError, StandfastError, UnknownNameError, as_number, check, nearest_name

T = TypeVar("T")
#: keys and indices that lead to a place in the file
Keys = tuple[str | int, ...]

_PROBLEMS, _LINES, _WIDTH = 10, 20, 190  # that an error shows at most


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: where, relative to what was checked.
        expected, got: in words.
        near: the known name that is nearest to the given one, if any.
        note: what else helps, such as the data set with which a model fails.
        line: in the file; None where the study does not come from one.
    """

    path: Keys
    expected: str
    got: str
    near: str | None = None
    note: str = ""
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f" (line {self.line})"
        hint = f" (did you mean {self.near!r}?)" if self.near else ""
        note = f" ({self.note})" if self.note else ""
        return f"{_shorten(join_keys(self.path), 100)}{line}: expected {self.expected}, got {self.got}{note}{hint}"


class Misfit(ArgumentError):
    """Something in a study file does not fit. `problems` says what, relative to what was checked."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("study file", "no problems", "; ".join(map(str, self.problems)))

    def __str__(self) -> str:
        return str(self.got)


def misfit(expected: str, got: object, *path: str | int, near: str | None = None, note: str = "") -> Misfit:
    """The error for one problem at `path`."""
    return Misfit([Problem(path, expected, _shorten(str(got), 240), near, note)])


class StudyError(StandfastError):
    """A study file that cannot be evaluated; the text says what is wrong with it, on one screen at most.

    Attributes:
        file: its name.
        problems: all that was found.

    >>> raise StudyError("study.yaml", [Problem(("seed",), "a whole number", "'x'", line=3)])
    Traceback (most recent call last):
        ...
    standfast.study.file.problems.StudyError: study.yaml: 1 problem
      seed (line 3): expected a whole number, got 'x'
    """

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file, self.problems = file, tuple(problems)
        count = len(problems)
        wrapper = textwrap.TextWrapper(_WIDTH, initial_indent="  ", subsequent_indent="      ", placeholder=" ...")
        wrapper.break_on_hyphens, wrapper.max_lines = False, max(2, min(6, _LINES // max(1, count)))
        name = file if len(file) <= 150 else f"... {file[-146:]}"
        lines = [f"{name}: {count} problem{'s' if count > 1 else ''}"]
        lines += [line for problem in problems[:_PROBLEMS] for line in wrapper.wrap(str(problem))]
        super().__init__("\n".join([*lines, *([f"  ... and {count - _PROBLEMS} more"] if count > _PROBLEMS else [])]))


# Sections of the file


class Entry(BaseModel):
    """A section with known keys. What each should be is said by the title of its type, or else by its JSON schema."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    #: what a key is called in errors, where an unknown one is given
    key: ClassVar[str] = "a known key"
    #: of several forms of a section, which one this is: the key or the name that only this form has
    form: ClassVar[str] = ""

    @model_validator(mode="wrap")
    @classmethod
    def _translate_errors(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(raw)
        except ValidationError as error:
            if not isinstance(raw, Mapping):  # the section above has words for this
                raise
            raise Misfit(problems_in(error, cls, raw)) from error

    @classmethod
    def known(cls) -> dict[str, Any]:
        """The known keys, each with its annotation."""
        return {
            field.alias or name: Annotated[
                (field.annotation, *field.metadata, Field(title=field.title, examples=field.examples))
            ]
            for name, field in cls.model_fields.items()
        }


class _Schemas(GenerateJsonSchema):
    """Schemas without what a study file cannot hold, such as tensors."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Any:
        """Leave it out of the alternatives."""
        raise PydanticOmit


@cache
def adapt(annotation: Any) -> TypeAdapter[Any] | None:
    """What checks values of an annotation; None for classes that pydantic knows nothing of."""
    try:
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True, strict=True))
    except (PydanticUserError, NameError):  # no schema, or a class that sees to itself
        return None


def json_schema_of(annotation: Any) -> dict[str, Any] | None:
    """The JSON schema of what a study file can hold of an annotation; None if that is nothing."""
    adapter = adapt(annotation)
    try:
        return None if adapter is None else adapter.json_schema(schema_generator=_Schemas)
    except (PydanticInvalidForJsonSchema, PydanticOmit):
        return None


_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "a text",
    "null": "null",
    "object": "a mapping",
}


def put_in_words(schema: Mapping[str, Any]) -> str:
    """What a JSON schema accepts: its title if it has one.

    >>> put_in_words({"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 1}]}), put_in_words({"enum": ["a", 2]})
    ('a whole number of at least 1 or null', 'a or 2')
    """
    if "title" in schema:
        return str(schema["title"])
    if "anyOf" in schema:
        return " or ".join(sorted(dict.fromkeys(map(put_in_words, schema["anyOf"])), key="null".__eq__))
    if "enum" in schema or "const" in schema:
        return either(list(map(str, schema.get("enum", [schema.get("const")]))))
    if schema.get("type") == "array":
        items = [schema["items"]] if schema.get("items") else schema.get("prefixItems", [])
        words = list(dict.fromkeys(map(put_in_words, items)))
        count = f"{len(items)} " if len(words) == 1 < len(items) else ""
        plain = len(words) == 1 and words[0] in _WORDS.values()
        return f"a list of {count}{words[0].removeprefix('a ')}s" if plain else f"a list, each {either(words)}"
    least = f" of at least {schema['minimum']:g}" if "minimum" in schema else ""
    above = f" above {schema['exclusiveMinimum']:g}" if "exclusiveMinimum" in schema else ""
    return f"{_WORDS.get(str(schema.get('type')), 'a value')}{least}{above}"


def describe(annotation: Any) -> str:
    """What an option wants, in words.

    >>> describe(int | None), describe(tuple[float, ...])
    ('a whole number or null', 'a list of numbers')
    """
    schema = json_schema_of(annotation)
    return f"a {getattr(annotation, '__name__', annotation)}" if schema is None else put_in_words(schema)


def _choices(schema: Mapping[str, Any]) -> list[str]:
    """The texts that are among what a JSON schema accepts."""
    own = schema.get("examples", schema.get("enum", [schema.get("const")]))
    return [each for each in own if isinstance(each, str)] + [c for s in schema.get("anyOf", ()) for c in _choices(s)]


# Errors as problems


def problems_in(error: Exception, section: type[Entry] | None = None, raw: Any = None) -> list[Problem]:
    """An error in the words of a study file.

    Args:
        error: pydantic's, or an `ArgumentError`: it is placed at its argument where `section` has such a key.
        section: the section that was checked.
        raw: its content.

    >>> problems_in(ArgumentError("radius", "a number above 0", -1))
    [Problem(path=(), expected='radius to be a number above 0', got='-1', near=None, note='', line=None)]
    """
    if isinstance(error, ValidationError):
        found = [p for details in error.errors(include_url=False) for p in _from_pydantic(details, section, raw)]
        return list({problem.path: problem for problem in reversed(found)}.values())[::-1]  # one for each place
    assert isinstance(error, ArgumentError)
    return _from_argument(error, () if section is None else section.known())


def _from_argument(error: ArgumentError, known: Container[str]) -> list[Problem]:
    if isinstance(error, Misfit):
        return list(error.problems)
    here = error.argument in known
    path = (error.argument,) if here else ()
    if isinstance(error, UnknownNameError):
        what = "one of" if here else with_article(error.argument)
        return list(make_unknown_error(what, error.name, error.names, *path).problems)
    words = error.expected if here else f"{_shorten(error.argument, 60)} to be {error.expected}"
    return [Problem(path, words, _shorten(str(error.got)))]


def make(kind: Callable[..., T], name: str, options: Mapping[str, Any], known: Container[str]) -> T:
    """What a class or function makes of options.

    Args:
        kind: the class or function.
        name: what the user calls it.
        options: of it.
        known: those that an error may be about.

    Raises:
        Misfit: it rejects them; at the option that is at fault.
    """
    try:
        return kind(**options)
    except ArgumentError as error:
        if isinstance(error, UnknownNameError) and error.argument not in known:
            raise
        raise Misfit(_from_argument(error, known)) from error
    except StandfastError as error:
        raise misfit(f"{name}, which can be used", error, "name") from error
    except Exception as error:  # a class of another package may raise anything
        raise misfit(f"options that {name} accepts", describe_error(error)) from error


def _from_pydantic(details: Any, section: type[Entry] | None, raw: Any) -> list[Problem]:
    path: Keys = tuple(details["loc"])
    kind, cause = details["type"], details.get("ctx", {}).get("error")
    if isinstance(cause, ArgumentError):
        return [replace(problem, path=(*path, *problem.path)) for problem in problems_in(cause, section)]
    if section is None or not path or kind == "invalid_key":
        return [Problem((), "keys as text" if kind == "invalid_key" else "a mapping", show(details["input"]))]
    key, known = str(path[0]), section.known()
    if kind == "extra_forbidden":
        words = f"{section.key} ({join_names(known)})" if known else f"no options, as {section.__name__} has none"
        near = find_nearest(key, known)
        return [Problem(path, words, show(key), near, "" if near else ELSEWHERE.get(key, ""))]
    value = raw.get(key) if isinstance(raw, Mapping) else None
    near = find_nearest(value, _choices(json_schema_of(known[key]) or {})) if isinstance(value, str) else None
    return [Problem((key,), describe(known[key]).removesuffix(" or null"), show(value), near)]


class Collector:
    """Collects problems, so that one look at the file shows them all."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.cause: BaseException | None = None

    @contextlib.contextmanager
    def at(self, *path: str | int, place: Callable[[Keys], Keys] = tuple) -> Iterator[None]:
        """As `errors_at`, but the problems are kept, and work goes on after the block."""
        try:
            with errors_at(*path, place=place):
                yield
        except Misfit as error:
            self.problems += error.problems
            self.cause = self.cause or error.__cause__

    def finish(self) -> None:
        """Raise what was collected, if anything was."""
        if self.problems:
            raise Misfit(self.problems) from self.cause


@contextlib.contextmanager
def errors_at(*path: str | int, place: Callable[[Keys], Keys] = tuple) -> Iterator[None]:
    """Errors inside are a `Misfit` beneath `path`, where `place` says what becomes of a problem's own path."""
    try:
        yield
    except (ArgumentError, ValidationError) as error:
        problems = [replace(problem, path=(*path, *place(problem.path))) for problem in problems_in(error)]
        raise Misfit(problems) from error.__cause__ or error


@contextlib.contextmanager
def errors_of(what: str, form: str, keys: Container[str] = ()) -> Iterator[None]:
    """Errors of the library are at their argument, if that is one of the `keys`, else at the key `form`."""
    try:
        yield
    except Misfit:
        raise
    except ArgumentError as error:
        raise misfit(error.expected, error.got, error.argument if error.argument in keys else form) from error
    except StandfastError as error:
        raise misfit(f"{what} that can be loaded", error, form) from error


# Words


def make_unknown_error(what: str, name: object, known: Iterable[str], *path: str | int, note: str = "") -> Misfit:
    """The error for a name that is not known, with the nearest that is.

    >>> print(make_unknown_error("an explainer", "salience", ["lrp", "saliency"], "explainers", 0))
    explainers[0]: expected an explainer (lrp, saliency), got 'salience' (did you mean 'saliency'?)
    """
    known = list(known)
    return misfit(f"{what} ({join_names(known)})", show(name), *path, near=find_nearest(name, known), note=note)


def find_nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name that may be meant, if any is: `standfast.errors.nearest_name`."""
    return nearest_name(name, [str(k) for k in known])


def join_names(names: Iterable[object], width: int = 150) -> str:
    """Names with commas between them, the last ones left out where they are too many."""
    words = [str(name) for name in names]
    ends = accumulate(len(word) + 2 for word in words)
    kept = [word for word, end in zip(words, ends, strict=True) if end <= width + 2]
    return ", ".join(kept + ([f"... {len(words)} in all"] if len(kept) < len(words) else [])) or "there are none"


def join_keys(path: Keys) -> str:
    """A path as people write it.

    >>> join_keys(("metrics", 2, "worst_case", "budget"))
    'metrics[2].worst_case.budget'
    """
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".") or "the file"


def either(words: Sequence[str]) -> str:
    """Alternatives in words.

    >>> either(["a", "b", "c"])
    'a, b or c'
    """
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def show(value: object) -> str:
    """What was given, in a few words.

    >>> show("a"), show(True), show(None), show({"a": 1})
    ("'a'", 'true', 'nothing', 'a mapping with a')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"a mapping with {join_names(value, 60)}" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return _shorten(repr(list(value))) if value else "an empty list"
    return _shorten(repr(value))


def describe_error(error: BaseException, where: str = "") -> str:
    """An exception of somebody else's code, in a line.

    >>> describe_error(ValueError("no such colour"), "palette.py, line 3")
    'ValueError: no such colour (palette.py, line 3)'
    """
    text = _shorten(f"{type(error).__name__}: {error}", 220).rstrip(": ")
    return f"{text} ({where})" if where and where not in text else text


def with_article(noun: str) -> str:
    """A noun after its article.

    >>> with_article("int"), with_article("metric")
    ('an int', 'a metric')
    """
    return f"{'an' if noun[:1] in set('aeiouAEIOU') else 'a'} {noun}"


def _shorten(text: str, width: int = 120) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 4]} ..."


# The file

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
    standfast.study.file.problems.Misfit: samples[0]: expected a number below 1e308, got one of 2001 bits
    """
    if isinstance(value, Mapping):
        return {key: read_plain(each, *path, key) for key, each in value.items()}
    if type(value) in (list, tuple):
        return [read_plain(each, *path, index) for index, each in enumerate(value)]
    if isinstance(value, int) and value.bit_length() > 1023:
        raise misfit("a number below 1e308", f"one of {value.bit_length()} bits", *path)
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
