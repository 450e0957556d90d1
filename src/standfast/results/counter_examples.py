"""`CounterExample`: a small change of an input after which one of its reasons is no longer named, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from standfast.cells.words import describe_cell
from standfast.results.reasons.feature_names import add_unit, format_value
from standfast.tensors import Array

#: so many changed cells are named in a sentence
_MOST_NAMED = 4
#: two numbers that differ are written with at most so many digits
_MOST_DIGITS = 17


@dataclass(frozen=True)
class CounterExample:
    """What a search has found for one reason.

    It shows that a reason can fall. Where none was found, this does not show that there is none.

    Attributes:
        sample: the number of the decision.
        reason: the name of the feature.
        top: how many features are reasons, k.
        changes: by the name of each changed feature its words before and after; empty where none was found.
        evaluations: how many changed inputs were explained for this reason.
        turned: the feature is still among the first k, and speaks the other way.
        changed: the changed input as numbers, `(F,)`; None where none was found.

    >>> print(CounterExample(17, "town", 4, {"income": ("2,545", "2,540")}, 500))
    With income 2,540 instead of 2,545, town is no longer among the first 4.
    >>> print(CounterExample(17, "income", 4, {}, 500))
    Of 500 changes that were tried, none takes income out of the first 4.
    """

    sample: int
    reason: str
    top: int
    changes: Mapping[str, tuple[str, str]]
    evaluations: int
    turned: bool = False
    changed: Array | None = field(default=None, repr=False, compare=False)

    @property
    def found(self) -> bool:
        """Whether there is one."""
        return bool(self.changes)

    def plain(self) -> dict[str, Any]:
        """All of it but the numbers of the changed input, as JSON has it."""
        changes = {name: list(words) for name, words in self.changes.items()}
        return {
            "sample": self.sample,
            "reason": self.reason,
            "found": self.found,
            "changes": changes,
            "turned": self.turned,
            "evaluations": self.evaluations,
            "words": str(self),
        }

    def __str__(self) -> str:
        if not self.found:
            return describe_none([self])
        named = [
            f"{name} {after} instead of {before}" for name, (before, after) in self.changes.items()
        ]
        others = len(named) - _MOST_NAMED
        if others > 0:
            named = [*named[:_MOST_NAMED], f"{others} further changes"]
        if self.top == 1:
            first = "the first"
        else:
            first = f"among the first {self.top}"
        falls = "speaks the other way" if self.turned else f"is no longer {first}"
        return f"With {_join(named)}, {self.reason} {falls}."


def describe_counter_examples(examples: Sequence[CounterExample]) -> str:
    """What was found for the reasons of one decision, in sentences; empty where nothing was searched.

    >>> town = CounterExample(17, "town", 4, {"income": ("2,545", "2,540")}, 500)
    >>> income, debt = (CounterExample(17, name, 4, {}, 500) for name in ("income", "debt"))
    >>> describe_counter_examples([income, debt, town]).split(". ")[1]
    'Of 500 changes that were tried, none takes income or debt out of the first 4.'
    """
    sentences = [str(example) for example in examples if example.found]
    lacking = [example for example in examples if not example.found]
    if lacking:
        sentences.append(describe_none(lacking))
    return " ".join(sentences)


def describe_none(examples: Sequence[CounterExample]) -> str:
    """That none was found for the reasons of these, in a sentence."""
    names = _join([example.reason for example in examples], "or")
    evaluations = max(example.evaluations for example in examples)
    if examples[0].top == 1:
        first = "the first place"
    else:
        first = f"the first {examples[0].top}"
    return f"Of {evaluations} changes that were tried, none takes {names} out of {first}."


def describe_changes(
    before: Array,
    after: Array,
    names: Sequence[str],
    columns: Sequence[Mapping[str, Any]] = (),
    units: Mapping[str, str] | None = None,
) -> dict[str, tuple[str, str]]:
    """The words before and after of each changed cell, by the names of the features.

    Args:
        before, after: rows of numbers, `(F,)`.
        names: of the features.
        columns: of a data frame, as `standfast.frames.Column.plain` describes them.
        units: of columns, by name.

    >>> import numpy as np
    >>> describe_changes(np.array([2545.0, 1.00001, 3.0]), np.array([2540.0, 1.00002, 3.0]), ["income", "debt", "age"])
    {'income': ('2,545', '2,540'), 'debt': ('1.00001', '1.00002')}
    """
    described: dict[str, tuple[str, str]] = {}
    numbers = zip(before.tolist(), after.tolist(), strict=True)
    for index, (old, new) in enumerate(numbers):
        if old == new:
            continue
        if index < len(columns):
            column = columns[index]
        else:
            column = {}
        old_words, new_words = _describe_cells(column, old, new)
        unit = (units or {}).get(names[index], "")
        described[names[index]] = (add_unit(old_words, unit), add_unit(new_words, unit))
    return described


def _describe_cells(column: Mapping[str, Any], old: float, new: float) -> tuple[str, str]:
    """Two cells of a column in words; as numbers where the column has no words for them."""
    if column:
        words = describe_cell(column, old), describe_cell(column, new)
        if all(words):
            return words
    return tell_apart(old, new)


def describe_swaps(swaps: str, words: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The same of a text, whose new words are a JSON object with positions as keys.

    >>> describe_swaps('{"1": "goood"}', ["a", "good", "film"])
    {'word 2': ("'good'", "'goood'")}
    """
    described: dict[str, tuple[str, str]] = {}
    for key, new_word in json.loads(swaps).items():
        position = int(key)
        after = repr(str(new_word)) if new_word else "left out"
        described[f"word {position + 1}"] = (repr(words[position]), after)
    return described


def tell_apart(before: float, after: float) -> tuple[str, str]:
    """Two numbers as words that differ, with as few digits as possible.

    >>> tell_apart(0.25, 0.3), tell_apart(2545.0, 2544.99)
    (('0.25', '0.3'), ('2,545', '2,544.99'))
    """
    words = (format_value(before), format_value(after))
    digits = 4
    while words[0] == words[1] and digits < _MOST_DIGITS:
        digits += 1
        words = (f"{before:,.{digits}g}", f"{after:,.{digits}g}")
    return words


def _join(names: Sequence[str], last: str = "and") -> str:
    """Several names in a sentence."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} {last} {names[-1]}"
