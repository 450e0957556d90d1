"""What is wrong with a study file, in words: the place, what was expected, what was given, and the nearest known name.

A check raises pydantic's `ValidationError`, an error of the library, or `StudyFieldError`, which has places in the
file. `errors_at` makes `StudyFieldError`s of the others, and nothing else does.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler, WrapValidator

from standfast.errors import ArgumentError, StandfastError, suggest_name

#: keys and indices that lead to a place in the file
Keys = tuple[str | int, ...]

#: what was expected, by the kind of pydantic's error; for other kinds pydantic's own words
_EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "float_type": "a number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "int_from_float": "a whole number",
    "int_type": "a whole number",
    "less_than": "a number below {lt:g}",
    "literal_error": "{expected}",
    "list_type": "a list",
    "missing": "a value",
    "model_type": "a mapping",
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list",
}


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: where, relative to what was checked.
        expected, got: in words, with a hint at a name that may be meant.
            note: what else helps, such as the data set with which a model fails.
        line: in the file; None where the study does not come from one.
    """

    path: Keys
    expected: str
    got: str
    note: str = ""
    line: int | None = None

    def __str__(self) -> str:
        line = ""
        if self.line is not None:
            line = f" (line {self.line})"
        note = ""
        if self.note:
            note = f" ({self.note})"
        where = shorten(join_keys(self.path), 100)
        return f"{where}{line}: expected {self.expected}, got {self.got}{note}"


class StudyFieldError(ArgumentError):
    """Something in a study file does not fit. `problems` says what, relative to what was checked."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("study file", "no problems", "; ".join(map(str, self.problems)))

    def __str__(self) -> str:
        return str(self.got)


def reject(expected: str, got: object, *path: str | int, note: str = "") -> StudyFieldError:
    """The error for one problem at `path`."""
    problem = Problem(path, shorten(expected, 240), shorten(str(got), 240), note)
    return StudyFieldError([problem])


@contextlib.contextmanager
def errors_at(
    *path: str | int,
    keys: Collection[str] = (),
    key: str = "",
    into: list[StudyFieldError] | None = None,
) -> Iterator[None]:
    """Errors inside are a `StudyFieldError` beneath `path`.

    Args:
        path: where what is checked stands.
        keys: what it has. An error about an argument of that name is placed there, and an unknown key compared.
        key: where an error about any other argument is placed, if not at `path` itself.
        into: collects the errors, and work goes on after the block.
    """
    try:
        yield
    except (StandfastError, ValidationError) as error:
        problems = _place_beneath(path, _problems_of(error, keys, key))
        placed_error = StudyFieldError(problems)
        placed_error.__cause__ = error.__cause__ or error
        if into is None:
            raise placed_error from placed_error.__cause__
        into.append(placed_error)


def raise_all(errors: Sequence[StudyFieldError]) -> None:
    """Raise what was collected, if anything was."""
    if errors:
        problems = [problem for error in errors for problem in error.problems]
        raise StudyFieldError(problems) from errors[0].__cause__


def _place_beneath(path: Keys, problems: Iterable[Problem]) -> list[Problem]:
    """Problems of what stands at a path, as those of the whole."""
    return [replace(problem, path=(*path, *problem.path)) for problem in problems]


def _problems_of(error: Exception, keys: Collection[str], key: str) -> list[Problem]:
    if isinstance(error, StudyFieldError):
        return list(error.problems)
    if isinstance(error, ValidationError):
        return _from_pydantic(error, keys)
    if not isinstance(error, ArgumentError):
        path = [key] if key else []
        return list(reject("something that can be used", error, *path).problems)
    faulty_key = error.argument if error.argument in keys else key
    if not faulty_key:
        return list(
            reject(f"{shorten(error.argument, 60)} to be {error.expected}", error.got).problems
        )
    return list(reject(error.expected, error.got, faulty_key).problems)


def _from_pydantic(error: ValidationError, keys: Collection[str]) -> list[Problem]:
    """The problems by place; alternatives that a value does not fit are one problem."""
    problems: dict[Keys, Problem] = {}
    every = error.errors(include_url=False)
    # tensors and objects, which a file cannot hold, are no alternatives
    of_files = [
        details
        for details in every
        if details["type"] not in ("needs_python_object", "dataclass_type")
    ]
    # where nothing else is left, they are shown all the same
    for details in of_files or every:
        for problem in _from_details(details, keys):
            earlier = problems.setdefault(problem.path, problem)
            # alternatives of one option fail one by one, and are one problem for the reader
            if problem.expected not in earlier.expected:
                longer = max(earlier.got, problem.got, key=len)  # the one with a hint
                both = f"{earlier.expected} or {problem.expected}"
                problems[problem.path] = replace(earlier, expected=both, got=longer)
    return list(problems.values())


def _from_details(details: Any, keys: Collection[str]) -> Sequence[Problem]:
    kind = details["type"]
    context = details.get("ctx", {})
    location = details["loc"]
    # without pydantic's names of alternatives
    indices = [key for key in location[1:] if isinstance(key, int)]
    path = (*location[:1], *indices)
    if isinstance(context.get("error"), ArgumentError):
        return _place_beneath(path, _problems_of(context["error"], keys, ""))
    if kind == "missing":
        got = "nothing"
    else:
        got = show(details["input"])
    expected = (
        _EXPECTED.get(kind, details["msg"]).format(**context).removeprefix("Input should be ")
    )
    if kind == "invalid_key":
        path = ()
        expected = "keys as text"
    elif kind == "extra_forbidden":
        return make_unknown_error("a known key", path[0], keys, *path).problems
    elif kind == "literal_error":
        expected = expected.replace("'", "")
        got += suggest_name(details["input"], re.findall("'(.*?)'", context["expected"]))
    return [Problem(path, expected, got)]


class Entry(BaseModel):
    """A section with known keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    # around all other checks, so that each error has the keys of this section to compare with
    def _translate_errors(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        with errors_at(keys=cls.known()):
            return handler(raw)

    @classmethod
    def known(cls) -> list[str]:
        """The known keys."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def in_words(words: str) -> WrapValidator:
    """For the annotation of a key: whatever is wrong with its value is told in these words."""

    def read(raw: Any, handler: Any) -> Any:
        try:
            return handler(raw)
        except ValueError as error:
            # pydantic takes only `ValueError` for a value that does not fit; ours is one as well
            raise reject(words, show(raw)) from error

    return WrapValidator(read)


# Words


def make_unknown_error(
    what: str, name: object, names: Iterable[str], *path: str | int, note: str = ""
) -> StudyFieldError:
    """The error for a name that is not known, with the nearest that is.

    >>> print(make_unknown_error("an explainer", "salience", ["lrp", "saliency"], "explainers", 0))
    explainers[0]: expected an explainer (lrp, saliency), got 'salience' (did you mean 'saliency'?)
    """
    names = list(names)
    return reject(
        f"{what} ({join_names(names)})",
        f"{show(name)}{suggest_name(name, names)}",
        *path,
        note=note,
    )


def join_names(names: Iterable[object], width: int = 150) -> str:
    """Names with commas between them, the last ones left out where they are too many."""
    words = [str(name) for name in names]
    ends = accumulate(len(word) + 2 for word in words)
    kept = []
    for word, end in zip(words, ends, strict=True):
        if end <= width + 2:
            kept.append(word)
    if len(kept) < len(words):
        kept.append(f"... {len(words)} in all")
    return ", ".join(kept) or "there are none"


def join_keys(path: Keys) -> str:
    """A path as people write it.

    >>> join_keys(("metrics", 2, "worst_case", "budget"))
    'metrics[2].worst_case.budget'
    """
    steps = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in path]
    text = "".join(steps)
    return text.removeprefix(".") or "the file"


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
        if value:
            return f"a mapping with {join_names(value, 60)}"
        return "an empty mapping"
    if isinstance(value, list | tuple):
        if value:
            return shorten(repr(list(value)))
        return "an empty list"
    return shorten(repr(value))


def describe_error(error: BaseException, where: str = "") -> str:
    """An exception of somebody else's code, in a line.

    >>> describe_error(ValueError("no such colour"), "palette.py, line 3")
    'ValueError: no such colour (palette.py, line 3)'
    """
    text = shorten(f"{type(error).__name__}: {error}", 220).rstrip(": ")
    if where and where not in text:
        return f"{text} ({where})"
    return text


def with_article(noun: str) -> str:
    """A noun after its article.

    >>> with_article("int"), with_article("metric")
    ('an int', 'a metric')
    """
    is_vowel = noun[:1] in set("aeiouAEIOU")
    article = "an" if is_vowel else "a"
    return f"{article} {noun}"


def shorten(text: str, width: int = 120) -> str:
    """A text in one line of at most so many characters."""
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    return f"{text[: width - 4]} ..."
