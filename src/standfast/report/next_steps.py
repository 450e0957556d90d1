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

#: what to do where no step helps
PAGE = "docs/how-to/if-none-holds.md"


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
        return [] if is_command(self.line) else list_session_names(self.line)

    def __str__(self) -> str:
        return f"{self.why} ({self.cost})\n{self.line}"


def describe_steps(results: StoredResults, data: str, model: str) -> list[PrintedStep]:
    """The steps of one data set and model that have a line to run, at most three."""
    printed: list[PrintedStep] = []
    for step in results.find_all_steps(data, model):
        line = write_line(results, step)
        if line is None:
            continue
        now = describe_changes_of(results, step.labels)
        changes = [describe_change(change) for change in step.changes]
        why, cost = say("step_why", step, now, changes), say("step_cost", step)
        printed.append(PrintedStep(**vars(step), line=line, why=why, cost=cost))
    return printed[:MOST_STEPS]


def describe_endings(steps: Sequence[PrintedStep], verdict: Verdict) -> list[str]:
    """What stands below the steps: where the names in the lines come from, and where to read more."""
    names = list(dict.fromkeys(name for step in steps for name in step.session_names))
    most = max((step.samples for step in steps if step.kind == "samples"), default=0)
    sentences = [say("step_names", names, most)] if names else []
    is_open = bool(verdict.refuse or verdict.undecided) and not verdict.show
    return [*sentences, *([say("step_page", PAGE)] if is_open else [])]


def write_steps(steps: Sequence[PrintedStep], width: int) -> list[str]:
    """The steps for a terminal: for each a sentence with the cost, and then the line, which begins at the margin."""
    written: list[str] = []
    for number, step in enumerate(steps, 1):
        said = f"{number}. {step.why} ({step.cost}):"
        written += textwrap.wrap(said, width, break_long_words=False, break_on_hyphens=False)
        written += ["", *wrap_line(step.line, width), ""]
    return written
