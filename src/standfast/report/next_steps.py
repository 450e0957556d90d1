"""The next steps of a verdict in words: the line to run, why, and what it costs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from standfast.neighbourhoods.naming import describe_change
from standfast.report.sentences import say
from standfast.report.step_lines import is_command, list_session_names, wrap_line, write_line
from standfast.report.wording import describe_changes_of
from standfast.results import NextStep, StoredResults, Verdict
from standfast.results.next_steps import MOST_STEPS

#: what to do where no step helps: the command that says it, and the title of its page
PAGE = "standfast advice (What to do if none holds)"
_WIDTH = 80
#: kinds of steps that may evaluate more samples
_WITH_MORE = ("samples", "race")


@dataclass(frozen=True)
class PrintedStep(NextStep):
    """A next step that `print` shows.

    Attributes:
        line: Python, or a command, that does it.
        why: a sentence.
        cost: about how long it takes, in words.
    """

    line: str = ""
    why: str = ""
    cost: str = ""

    @property
    def session_names(self) -> list[str]:
        """What the line takes from the session of the user, such as `model` and `inputs`."""
        if is_command(self.line):
            return []
        return list_session_names(self.line)

    def __str__(self) -> str:
        return f"{self.why} ({self.cost})\n{self.line}"


class NextSteps(list[PrintedStep]):
    """Next steps, which `print` shows in sentences: for each why, what it costs, and the line to run."""

    def __init__(self, steps: Sequence[PrintedStep] = (), endings: Sequence[str] = ()) -> None:
        """Steps, and what stands below them.

        Args:
            steps: the most useful first.
            endings: where the names in the lines come from, and where to read more.
        """
        super().__init__(steps)
        self.endings = tuple(endings)

    def __str__(self) -> str:
        lines = write_steps(self, _WIDTH) or ["No next step: nothing in the results supports one."]
        for ending in self.endings:
            lines += _wrap(ending, _WIDTH)
        return "\n".join(lines).rstrip()


def describe_steps(results: StoredResults, data: str, model: str) -> NextSteps:
    """The steps of one data set and model that have a line to run, at most three."""
    printed: list[PrintedStep] = []
    for step in results.find_all_steps(data, model):
        line = write_line(results, step)
        if line is None:
            continue
        now = describe_changes_of(results, step.labels)
        changes = [describe_change(change) for change in step.changes]
        why = say("step_why", step, now, changes)
        cost = say("step_cost", step)
        printed.append(PrintedStep(**vars(step), line=line, why=why, cost=cost))
    printed = printed[:MOST_STEPS]
    return NextSteps(printed, describe_endings(printed, results.verdict(data, model)))


def describe_endings(steps: Sequence[PrintedStep], verdict: Verdict) -> list[str]:
    """What stands below the steps: where the names in the lines come from, and where to read more."""
    is_open = bool(verdict.refuse or verdict.undecided) and not verdict.show
    lines = say_where_names_come_from(steps)
    if is_open:
        lines.append(say("step_page", PAGE))
    return lines


def say_where_names_come_from(steps: Sequence[PrintedStep]) -> list[str]:
    """A sentence on the names in the lines; none where there are none."""
    session_names: dict[str, None] = {}
    for step in steps:
        session_names |= dict.fromkeys(step.session_names)
    names = list(session_names)
    most = max((step.samples for step in steps if step.kind in _WITH_MORE), default=0)
    if names:
        return [say("step_names", names, most)]
    return []


def write_steps(steps: Sequence[PrintedStep], width: int) -> list[str]:
    """The steps for a terminal: for each a sentence with the cost, and then the line, which begins at the margin."""
    written: list[str] = []
    for number, step in enumerate(steps, 1):
        said = f"{number}. {step.why} ({step.cost}):"
        written += _wrap(said, width)
        written += ["", *wrap_line(step.line, width), ""]
    return written


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
