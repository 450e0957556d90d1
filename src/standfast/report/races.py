"""A race as text: what was chosen and why, and a line for each explainer."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from standfast.report.race_steps import describe_race_steps
from standfast.results.formatting import format_count, format_number, join_names, to_ascii
from standfast.results.races import Confirmation, Entrant, Measured, Outcome, Race

_WIDTH = 80
_NAME = 44  # characters of a line of an explainer's name


#: what an outcome says of an explainer that is not confirmed, beside where that was
_OUTCOMES: Mapping[Outcome, str] = {
    "refused": "is refused on {where}",
    "undecided": "is not confirmed: {where} do not decide it",
    "unjudged": "is not confirmed: no metric and no check judges it on {where}",
    "unfinished": "is not confirmed: the time was up. The same call goes on from there",
}


def describe_choice(race: Race) -> str:
    """What was chosen and why, or why nothing, in sentences."""
    leader = race.leader
    confirmation = race.confirmation
    second = race.second
    if leader is None or confirmation is None:
        return f"None is chosen: {_describe_nobody(race)}"
    where = f"{format_count(confirmation.samples, 'sample')} that the race did not use"
    if race.chosen == leader:
        value = _describe_value(confirmation, race)
        remark = "" if confirmation.asked_all else f" {confirmation.verdict}"
        return (
            f"{leader} is chosen, and confirmed on {where}.{value}{_describe_rivals(race)}{remark}"
        )
    reason = _OUTCOMES[confirmation.outcome].format(where=where)
    if second is None:
        return f"None is chosen: {leader} led the race, but {reason}.{_quote_verdict(confirmation)}"
    led = f"{leader} led the race, but {reason}."
    runner_up = f"{second.explainer}, which the race could not tell from it,"
    if race.chosen == second.explainer:
        value = _describe_value(second, race)
        remark = "" if second.asked_all else f" {second.verdict}"
        chosen = f"{second.explainer} is chosen, and confirmed on {where}"
        return f"{chosen}.{value} {led} The race could not tell the two apart.{remark}"
    reason_of_second = _OUTCOMES[second.outcome].format(where="these samples")
    said = f"{led} {runner_up} {reason_of_second}."
    return f"None is chosen: {said}{_quote_verdict(second)}"


def _describe_value(confirmation: Confirmation, race: Race) -> str:
    """The value of a confirmed explainer by the metric of the race."""
    judgement = confirmation.find(race.label)
    if judgement is None or judgement.value is None:
        return ""
    return f" Its {race.label} there is {format_measured(judgement.value, race)}."


def _quote_verdict(confirmation: Confirmation) -> str:
    """The verdict on an explainer that is not confirmed, where there is one."""
    is_judged = confirmation.outcome in ("refused", "undecided")
    if is_judged:
        return f" {confirmation.verdict}"
    return ""


def _describe_nobody(race: Race) -> str:
    """Why nobody led."""
    if race.finalists:
        return f"the time was up before the first look.{_describe_minutes(race)}"
    grounds = [
        ("check", "fails the sanity checks", "fail the sanity checks"),
        ("unstable", "is unstable", "are unstable"),
        ("no value", f"has no value by {race.label}", f"have no value by {race.label}"),
        ("failed", "failed", "failed"),
    ]
    parts: list[str] = []
    for left, singular, plural in grounds:
        count = sum(entrant.left == left for entrant in race.entrants)
        if count == len(race.entrants):
            return f"all {count} explainers {plural}."
        if count:
            noun = singular if count == 1 else plural
            parts.append(f"{count} {noun}")
    reasons = join_names(parts, len(parts))
    return f"of {len(race.entrants)} explainers, {reasons}."


def _describe_minutes(race: Race) -> str:
    """How a race goes on whose time was up before its first look."""
    if race.minutes_needed is None:
        return " The same call goes on from there."
    needed = f"{race.minutes_needed:g} minutes"
    return f" The same call goes on from there; begun anew, it would take some {needed} with a confirmation."


def _describe_rivals(race: Race) -> str:
    """Who was still in the race."""
    others = [entrant.name for entrant in race.finalists[1:]]
    if not others:
        return ""
    verb = "was" if len(others) == 1 else "were"
    return f" {join_names(others)} {verb} still in the race: the difference is not shown."


def describe_cost(race: Race) -> str:
    """What the race and the confirmation took."""
    explainers = len(race.entrants)
    text = f"Race and confirmation took {race.cost:.0%} of evaluating all {explainers} explainers on all"
    return f"{text} {race.samples} samples ({race.seconds:.0f} s of jobs)."


def describe_end(race: Race) -> str:
    """What ended the race before its last look with several explainers in it; empty if nothing did."""
    if race.out_of_time:
        return "The time was up before the race was over; the same call goes on from there."
    samples = max((entrant.samples for entrant in race.finalists), default=0)
    if len(race.finalists) < 2 or samples >= race.ladder[-1]:
        return ""
    return f"The budget, {race.budget:.0%} of evaluating everything, ended the race; the same call with more goes on."


def describe_terms(race: Race) -> str:
    """What the race went by."""
    better = ""
    if race.direction is not None:
        better = f" ({race.direction} is better)"
    counts = [str(count) for count in race.ladder]
    looks = join_names(counts, len(counts))
    level = f"the best leaves as unstable or worse with a probability of at most {race.level:.0%}"
    what = f"Race by {race.label}{better} of {race.model} on {race.data}"
    return f"{what}, with looks at {looks} samples; {level}."


def describe_departure(entrant: Entrant, race: Race) -> str:
    """When an explainer left and why, in a few words."""
    at = f"at {format_count(entrant.samples, 'sample')}"
    words = {
        "check": f"fails the check {entrant.question!r}",
        "open check": f"undecided by the check {entrant.question!r}",
        "unstable": f"unstable by {entrant.label} {at}",
        "worse": f"worse {at}",
        "budget": f"behind {at}, not measured further",
        "no value": f"no value {at}",
        "failed": f"failed: {entrant.error}",
    }
    if entrant.left is not None:
        return words[entrant.left]
    if not entrant.samples:
        return "not measured"
    where = "first" if entrant.name == race.leader else "in the race"
    return f"{where} {at}"


def format_measured(measured: Measured | None, race: Race) -> str:
    """A number with its interval."""
    if measured is None or measured.value is None:
        return ""
    text = format_number(measured.value, race.decimals)
    if measured.low is None or measured.high is None:
        return text
    low = format_number(measured.low, race.decimals)
    high = format_number(measured.high, race.decimals)
    return f"{text} [{low}, {high}]"


def list_rows(race: Race) -> list[tuple[str, str, str, str]]:
    """For each explainer its name, when it left and why, its value, and how far it was behind."""
    rows: list[tuple[str, str, str, str]] = []
    for entrant in race.entrants:
        value = format_measured(entrant.value, race)
        if entrant.left == "unstable":  # its value is of another metric
            value = ""
        behind = format_measured(entrant.behind, race)
        rows.append((entrant.name, describe_departure(entrant, race), value, behind))
    return rows


def describe_confirmation(confirmation: Confirmation, race: Race) -> str:
    """What the samples say that the race did not use."""
    parts: list[str] = []
    if confirmation.sanity is not None:
        parts.append(f"checks {confirmation.sanity}")
    for judgement in confirmation.judgements:
        value = format_measured(judgement.value, race) or "no value"
        quality = f", {judgement.quality}" if judgement.quality else ""
        parts.append(f"{judgement.label} {value}{quality}")
    samples = format_count(confirmation.samples, "sample")
    what = f"Confirmation of {confirmation.explainer} on {samples}"
    return f"{what}: {'; '.join(parts)}."


def _list_confirmations(race: Race) -> list[Confirmation]:
    """That of the leader, and that of the runner-up."""
    return [
        confirmation
        for confirmation in (race.confirmation, race.second)
        if confirmation is not None
    ]


def tabulate_race(race: Race) -> dict[str, Any]:
    """The race as the page shows it."""
    seconds = {entrant.name: f"{entrant.seconds:.1f}" for entrant in race.entrants}
    rows = []
    for row in list_rows(race):
        name = row[0]
        rows.append((*row, seconds[name]))
    confirmations = []
    for confirmation in _list_confirmations(race):
        confirmations.append(describe_confirmation(confirmation, race))
    return {
        "choice": describe_choice(race),
        "terms": describe_terms(race),
        "cost": describe_cost(race),
        "end": describe_end(race),
        "label": race.label,
        "steps": describe_race_steps(race),
        "rows": rows,
        "confirmations": confirmations,
    }


def format_race(race: Race) -> str:
    """All of it as ASCII text in lines of 80 characters, but for the table."""
    lines = [
        *_wrap(describe_choice(race)),
        "",
        *_wrap(describe_terms(race)),
        "",
        *_format_table(race),
        "",
    ]
    for confirmation in _list_confirmations(race):
        lines += _wrap(describe_confirmation(confirmation, race))
    lines += _wrap(describe_cost(race))
    lines += _wrap(describe_end(race))
    if race.left_out:
        lines += _wrap(f"Left out for the time: {'; '.join(race.left_out)}.")
    return to_ascii("\n".join(lines))


def _format_table(race: Race) -> list[str]:
    head = ("", "left", race.label, "behind the leader")
    rows = [head, *list_rows(race)]
    widths = []
    for column in range(len(head)):
        widest = max(len(row[column]) for row in rows)
        widths.append(min(_NAME, widest))
    return [_format_row(row, widths) for row in rows]


def _format_row(row: Sequence[str], widths: Sequence[int]) -> str:
    pairs = zip(row, widths, strict=True)
    cells = [f"{cell:<{width}}" for cell, width in pairs]
    return "  ".join(cells).rstrip()


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
