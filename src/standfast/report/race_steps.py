"""What to do after a race that chose none, or told nothing apart: at most three lines that run, with why and the cost.

Proposed is only what the race itself supports: more minutes where the time was up, more of the budget where that ended
the race, more samples where these did not decide, and a smoother explainer of the family of one that does not hold.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from standfast.report.next_steps import NextSteps, PrintedStep, say_where_names_come_from
from standfast.report.sentences import say
from standfast.report.step_calls import write_choice
from standfast.report.step_lines import is_harmless
from standfast.results import NextStep
from standfast.results.formatting import join_names, round_roughly
from standfast.results.given_call import GivenCall, read_call
from standfast.results.next_steps import MOST_STEPS, SMOOTHER
from standfast.results.races import Confirmation, Outcome, Race

#: more than so many times the samples of a race is no advice
_MOST_TIMES = 20
#: numbers of samples are rounded up to these
_TENS = 10
#: what a step changes: arguments of `choose`, `samples`, and `explainer`, which is one more
Changes = Mapping[str, str]
#: a step, why it is proposed, and what it changes
Proposal = tuple[NextStep, str, Changes]


def describe_race_steps(race: Race, command: Sequence[str] = ()) -> NextSteps:
    """The next steps of a race; none where one is chosen and no other was left.

    Args:
        race: as it has ended.
        command: the words of the command that held it; empty for a call in Python.
    """
    call = read_call({"call": race.call})
    proposals = [
        proposal
        for propose in (_propose_minutes, _propose_samples, _propose_budget)
        if (proposal := propose(race)) is not None
    ]
    smoother = _propose_smoother(race, call)
    if smoother is not None:
        proposals.append(smoother)
    printed: list[PrintedStep] = []
    for step, why, changes in sorted(proposals, key=_sort_by_time):
        if command:
            line = _write_command(command, changes)
        else:
            line = _write_call(race, call, changes)
        if line is not None:
            cost = say("step_cost", step)
            printed.append(PrintedStep(**vars(step), line=line, why=why, cost=cost))
    printed = printed[:MOST_STEPS]
    return NextSteps(printed, say_where_names_come_from(printed))


def _sort_by_time(proposal: Proposal) -> float:
    step, _, _ = proposal
    if step.seconds is None:
        return math.inf
    return step.seconds


def _list_confirmed_as(race: Race, outcome: Outcome) -> list[Confirmation]:
    """Those of the leader and of the runner-up that have an outcome."""
    both = (race.confirmation, race.second)
    return [
        confirmation
        for confirmation in both
        if confirmation is not None and confirmation.outcome == outcome
    ]


def _propose_minutes(race: Race) -> Proposal | None:
    """More minutes, where the time was up."""
    unfinished = _list_confirmed_as(race, "unfinished")
    if race.minutes is None or not (race.out_of_time or unfinished):
        return None
    minutes = math.ceil(race.minutes_needed or 2 * race.minutes)
    minutes = max(minutes, math.ceil(race.minutes))
    when = "the confirmation was over" if unfinished else "the race was over"
    if race.leader is None:
        when = "the first look"
    why = f"The time was up before {when}; the same call with more goes on from there if it has a folder"
    step = NextStep("race", (), seconds=60.0 * minutes, samples=race.samples, minutes=minutes)
    return step, why, {"minutes": str(minutes)}


def _propose_samples(race: Race) -> Proposal | None:
    """More samples, where those of the confirmation, or those of the race, did not decide."""
    undecided = [
        confirmation
        for confirmation in _list_confirmed_as(race, "undecided")
        if confirmation.needed is not None
    ]
    if race.chosen is None and undecided:
        closest = min(undecided, key=lambda confirmation: confirmation.needed or 0)
        assert closest.needed is not None
        least = closest.needed
        most = 4 * closest.needed
        # a part of all samples is kept for the confirmation
        all_samples = race.samples * (1 + most / closest.samples)
        count = _TENS * math.ceil(all_samples / _TENS)
        kept = f"{round_roughly(least)} to {round_roughly(most)}"
        why = (
            f"Some {kept} more samples for the confirmation would decide {closest.explainer},"
            f" the larger number in seven of ten such cases: {count} samples in all"
        )
        names: tuple[str, ...] = (closest.explainer,)
    elif _ended_with_all_samples(race):
        count = 2 * race.samples
        names = tuple(entrant.name for entrant in race.finalists)
        why = f"All samples of the race do not tell {join_names(names, len(names))} apart"
    else:
        return None
    if count > _MOST_TIMES * race.samples:
        return None
    times = count / race.samples
    minutes = _lengthen(race, times)
    step = NextStep("samples", names, seconds=race.seconds * times, samples=count, minutes=minutes)
    return step, why, {"samples": str(count), **_write_minutes(minutes)}


def _lengthen(race: Race, times: float) -> int | None:
    """A limit of time that is so many times as long; None without a limit."""
    if race.minutes is None:
        return None
    return math.ceil(race.minutes * times)


def _write_minutes(minutes: int | None) -> Changes:
    """What changes by a limit of time; nothing without one."""
    if minutes is None:
        return {}
    return {"minutes": str(minutes)}


def _ended_with_all_samples(race: Race) -> bool:
    """Whether several explainers were left when there were no more samples."""
    samples = max((entrant.samples for entrant in race.finalists), default=0)
    return len(race.finalists) > 1 and samples >= race.ladder[-1]


def _propose_budget(race: Race) -> Proposal | None:
    """More of the budget, where that ended the race with several explainers in it."""
    samples = max((entrant.samples for entrant in race.finalists), default=0)
    may_go_on = 0 < samples < race.ladder[-1] and not race.out_of_time
    is_short = len(race.finalists) > 1 and may_go_on
    if not is_short or race.budget >= 1:
        return None
    budget = min(1.0, 2 * race.budget)
    names = tuple(entrant.name for entrant in race.finalists)
    why = f"The budget ended the race before {join_names(names, len(names))} were told apart"
    times = budget / race.budget
    minutes = _lengthen(race, times)
    seconds = race.seconds * times
    step = NextStep("race", names, seconds=seconds, samples=race.samples, minutes=minutes)
    return step, why, {"budget": f"{budget:g}", **_write_minutes(minutes)}


def _propose_smoother(race: Race, call: GivenCall) -> Proposal | None:
    """A smoother explainer of the family of one that does not hold, where the explainers were named."""
    # one explainer more would be the only one where the others are those that are usual
    if race.chosen is not None or call.explainers is None or not call.explainers.parts:
        return None
    texts = {part.name: str(part.code).strip("'\"") for part in call.explainers.parts}
    raced = [text.partition(":")[0] for text in texts.values()]
    fallen = [entrant.name for entrant in race.entrants if entrant.left == "unstable"]
    fallen += [refused.explainer for refused in _list_confirmed_as(race, "refused")]
    for name in fallen:
        kind = texts.get(name, name).partition(":")[0]
        relative = SMOOTHER.get(kind)
        if relative is None or relative.text.partition(":")[0] in raced:
            continue
        why = f"{name} does not hold; {relative.text}, of the same family, is less rough"
        # it is measured beside what is done already
        pace = race.find(name).seconds * relative.times
        step = NextStep(
            "explainer", (name,), seconds=pace, samples=race.samples, instead=relative.text
        )
        return step, why, {"explainer": relative.text}
    return None


def _write_call(race: Race, call: GivenCall, changes: Changes) -> str | None:
    """The call of `choose` with what a step changes; None where it is not known, or would do anything else."""
    if not race.call:
        return None
    line = write_choice(call, changes)
    if "\n" not in line and is_harmless(line):
        return line
    return None


def _write_command(command: Sequence[str], changes: Changes) -> str | None:
    """The user's command with what a step changes; None for what the file of a study says."""
    is_of_study = "--model" not in command
    words = list(command)
    for name, value in changes.items():
        option = f"--{name}"
        if is_of_study and name in ("samples", "explainer"):
            return None
        if name != "explainer" and option in words:
            position = words.index(option)
            del words[position : position + 2]
        words += [option, value]
    return shlex.join(words)
