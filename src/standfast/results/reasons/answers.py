"""What models answer for a sample: as numbers, to compare two models, and in words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from standfast.results.metric_results import MetricResults, StoredSample
from standfast.tasks import TaskWords

#: what manifests declare of a model's task, `Task.same_within`; None for any number
_SAME_WITHIN = "same within"


@dataclass(frozen=True)
class Answer:
    """What a model answers, as numbers.

    Attributes:
        target: the class, the label, or the output that is explained.
        number: what a regressor predicts; None for classes.
        tolerance: how far such a number may be from another one that is the same answer.
    """

    target: object
    number: float | None
    tolerance: float

    def is_same(self, other: Answer) -> bool:
        """Whether both models decide the same."""
        if self.target != other.target:
            return False
        if self.number is None or other.number is None or not math.isfinite(self.tolerance):
            return True
        return abs(self.number - other.number) <= self.tolerance


def read_tolerance(about: Mapping[str, Any]) -> float:
    """How far a number may be from another one that is the same answer, from what a manifest says of a model."""
    if _SAME_WITHIN in about:
        if about[_SAME_WITHIN] is None:
            return math.inf
        return float(about[_SAME_WITHIN])
    # manifests that do not declare it have only the text of the task
    written = re.fullmatch(r"Regression\(tolerance=(.+)\)", str(about.get("task")))
    return float(written[1]) if written else math.inf


@dataclass(frozen=True)
class NamedAnswer:
    """What the model answers for a sample, as attributes of its card.

    Attributes:
        answer: in words; of a decision what its side is called.
        rule: of a decision; empty of other answers.
        rule_met: whether it is met.
        score: its number.
        score_name: what this number is; empty where the answer says it already.
    """

    answer: str
    score: float
    score_name: str
    rule: str = ""
    rule_met: bool = True


def name_answer(view: MetricResults, stored: StoredSample) -> NamedAnswer:
    """What the model answers for a sample: a class, a side, a label with its name where it is known, or a number."""
    words = view.task
    row = stored.row
    score = _read_number(row.get("answer_score"))
    number = _read_number(row.get("answer"))
    if math.isnan(number):
        answer = str(row.get("targets"))
        shown = f"{words.kind or 'answer'} {answer}" if answer.isdigit() else answer
        return NamedAnswer(shown, score, words.probability, _find_rule(words), stored.target == 1)
    if words.kind == "label":
        return NamedAnswer(_name_label(view, stored.target), score, words.probability)
    output = f" (output {stored.target})" if stored.target else ""
    if math.isclose(number, score, rel_tol=1e-6):
        return NamedAnswer(f"{words.probability} {row['targets']}{output}", score, "")
    return NamedAnswer(f"{words.answer} {row['targets']}{output}", score, words.probability)


def _find_rule(words: TaskWords) -> str:
    """The rule of a decision; in older manifests, which have its sides alone, the side that is met."""
    if words.answers and not words.rule:
        return words.answers[-1]
    return words.rule


def _name_label(view: MetricResults, target: int | None) -> str:
    """The label that is explained, of several."""
    if target is not None and target < len(view.classes):
        return f"label {view.classes[target]}"
    return f"label {target}"


def _read_number(value: object) -> float:
    if isinstance(value, int | float):
        return float(value)
    return math.nan
