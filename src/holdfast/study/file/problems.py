"""What is wrong with a study file, said so that it can be put right: the path, the line, what was expected, what came.

Checks raise `Wrong`, with problems at paths relative to what they check; whoever calls them says under which key that
stands (`Collector.at`), and in the end `StudyError` shows them all, on one screen.
"""

from __future__ import annotations

import contextlib
import difflib
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.errors import ArgumentError, HoldfastError

#: keys and indices that lead to a place in the file
Keys = tuple[str | int, ...]

_SHOWN = 10  # problems
_LINES = 20  # for all of them
_WIDTH = 190


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: where, relative to what was checked.
        expected, got: in words.
        near: the known name that comes closest to the one that came, if any.
        note: what else helps, such as the place in the user's code.
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
        place, got = _short(written(self.path), 100), _short(self.got, 240)
        return f"{place}{line}: expected {self.expected}, got {got}{note}{hint}"


class Wrong(HoldfastError):
    """Problems, on their way up to the `StudyError` that shows them."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(str(problem) for problem in self.problems)

    def under(self, *path: str | int) -> list[Problem]:
        """The same problems, seen from further up."""
        return [replace(problem, path=(*path, *problem.path)) for problem in self.problems]


class Collector:
    """Collects problems, so that one look at the file shows them all."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.cause: BaseException | None = None

    @contextlib.contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Problems and argument errors inside are noted under `path`, and work goes on after the block."""
        try:
            yield
        except Wrong as wrong:
            self.problems += wrong.under(*path)
            self.cause = self.cause or wrong.__cause__
        except ArgumentError as error:
            self.problems += Wrong(from_argument(error)).under(*path)
            self.cause = self.cause or error

    def finish(self) -> None:
        """Raise what was collected, if anything was."""
        if self.problems:
            raise Wrong(*self.problems) from self.cause


class StudyError(HoldfastError):
    """A study file that cannot be evaluated; the text says what is wrong with it, on one screen at most.

    Attributes:
        file: its name.
        problems: all that was found.

    >>> raise StudyError("study.yaml", [Problem(("seed",), "a whole number", "'x'", line=3)])
    Traceback (most recent call last):
        ...
    holdfast.study.file.problems.StudyError: study.yaml: 1 problem
      seed (line 3): expected a whole number, got 'x'
    """

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        self.file, self.problems = file, tuple(problems)
        super().__init__("\n".join(self._lines()))

    def _lines(self) -> Iterator[str]:
        count = len(self.problems)
        yield f"{_short_name(self.file)}: {count} problem{'s' if count > 1 else ''}"
        for problem in self.problems[:_SHOWN]:
            yield from textwrap.wrap(
                str(problem),
                _WIDTH,
                initial_indent="  ",
                subsequent_indent="      ",
                max_lines=max(2, min(6, _LINES // count)),
                placeholder=" ...",
                break_on_hyphens=False,
            )
        if count > _SHOWN:
            yield f"  ... and {count - _SHOWN} more"


def from_argument(error: ArgumentError, fields: Iterable[str] = ()) -> Problem:
    """The problem that an ArgumentError of the library stands for; at the argument, where that is one of `fields`."""
    if error.argument in fields:
        return Problem((error.argument,), error.expected, _short(str(error.got)))
    return Problem((), f"{_short(error.argument, 60)} to be {error.expected}", _short(str(error.got)))


def unknown(what: str, name: object, known: Iterable[str], path: Keys = (), note: str = "") -> Problem:
    """A name that is not known, with the nearest that is.

    >>> print(unknown("an explainer", "salience", ["lrp", "saliency"], ("explainers", 0)))
    explainers[0]: expected an explainer (lrp, saliency), got 'salience' (did you mean 'saliency'?)
    """
    known = [str(k) for k in known]
    return Problem(path, f"{what} ({listed(known)})", shown(name), near=nearest(name, known), note=note)


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, if any is."""
    found = difflib.get_close_matches(str(name), [str(k) for k in known], n=1)
    return found[0] if found and found[0] != name else None


def listed(names: Iterable[object], width: int = 150) -> str:
    """Names with commas between them, the last ones left out where they are too many."""
    words = [str(name) for name in names]
    kept: list[str] = []
    for name in words:
        if sum(len(k) + 2 for k in kept) + len(name) > width:
            return ", ".join([*kept, f"... {len(words)} in all"])
        kept.append(name)
    return ", ".join(kept) or "there are none"


def written(path: Keys) -> str:
    """A path as people write it.

    >>> written(("metrics", 2, "worst_case", "budget"))
    'metrics[2].worst_case.budget'
    """
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text or "the file"


def shown(value: object) -> str:
    """What came, in a few words.

    >>> shown("a"), shown(True), shown(None), shown({"a": 1})
    ("'a'", 'true', 'nothing', 'a mapping with a')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"a mapping with {listed(value, 60)}" if value else "an empty mapping"
    if isinstance(value, list | tuple) and not value:
        return "an empty list"
    return _short(repr(list(value) if isinstance(value, tuple) else value))


def _short(text: str, width: int = 120) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 4]} ..."


def _short_name(file: str, width: int = 150) -> str:
    return file if len(file) <= width else f"... {file[-width + 4 :]}"


def raised(error: BaseException, where: str = "") -> str:
    """An exception of somebody else's code, in a line.

    >>> raised(ValueError("no such colour"), "palette.py, line 3")
    'ValueError: no such colour (palette.py, line 3)'
    """
    text = _short(f"{type(error).__name__}: {error}", 220).rstrip(": ")
    return f"{text} ({where})" if where and where not in text else text


def typed(value: object) -> str:
    """The type of a thing, with its article.

    >>> typed(3), typed("x")
    ('an int', 'a str')
    """
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
