"""What an estimate says, and what is chosen for a limited time, as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from standfast.errors import ArgumentError
from standfast.question.grid import Grid
from standfast.study.cost import Basis, Estimate, Line, describe_seconds
from standfast.study.left_out import describe_left_out
from standfast.study.time_limit import Choice, choose

#: what stands behind a number that no trial has shown
_MARKS: Mapping[Basis, str] = {"explanations": " a", "model": " b"}
_LEGEND: Mapping[Basis, str] = {
    "explanations": "a: not tried; from the time of single explanations and predictions",
    "model": "b: not tried; from the time of the model alone, and so perhaps wrong by a factor of three",
}


def format_costs(estimate: Estimate) -> str:
    """A table of the times: a row for each explainer, a column for each metric; and what all of it takes."""
    text_lines: list[str] = []
    pairs = list(dict.fromkeys((line.data, line.model) for line in estimate.lines))
    for pair in pairs:
        lines_of_pair = [line for line in estimate.lines if (line.data, line.model) == pair]
        if len(pairs) > 1:
            data, model = pair
            text_lines.append(f"{model} on {data}:")
        text_lines += _format_table(lines_of_pair)
    bases = {line.basis for line in estimate.lines}
    for basis, words in _LEGEND.items():
        if basis in bases:
            text_lines.append(words)
    total = f"all of it: {describe_seconds(estimate.seconds)} with one worker"
    if estimate.unknown:
        labels = ", ".join(estimate.unknown)
        total += f", and {labels}, whose time is not known"
    text_lines.append(total)
    return "\n".join(text_lines)


def _format_table(lines: Sequence[Line]) -> list[str]:
    """The table of a data set and a model."""
    labels = list(dict.fromkeys(line.label for line in lines))
    explainers = list(dict.fromkeys(line.explainer for line in lines))
    columns = [["", *explainers]]
    for label, head in zip(labels, _shorten_labels(labels), strict=True):
        cells = {line.explainer: _format_cell(line) for line in lines if line.label == label}
        columns.append([head, *(cells.get(name, "") for name in explainers)])
    names, *numbers = columns
    name_width = max(map(len, names))
    rows = [name.ljust(name_width) for name in names]
    for column in numbers:
        width = max(map(len, column))
        for index, cell in enumerate(column):
            rows[index] += "  " + cell.rjust(width)
    return [row.rstrip() for row in rows]


def _shorten_labels(labels: Sequence[str]) -> list[str]:
    """The names of the metrics, where these alone tell them apart."""
    names = [label.partition(":")[0] for label in labels]
    is_clear = len(set(names)) == len(names)
    return names if is_clear else list(labels)


def _format_cell(line: Line) -> str:
    if line.basis == "done":
        return "done"
    if line.basis == "unknown":
        return "not known"
    if math.isnan(line.seconds):
        return "fails"
    return describe_seconds(line.seconds) + _MARKS.get(line.basis, "")


def advise(grid: Grid, estimate: Estimate, minutes: float) -> str:
    """What fits into so many minutes, in words."""
    try:
        choice = choose(grid, estimate, minutes, 60 * minutes)
    except ArgumentError as error:
        return f"in {minutes:g} minutes: nothing, as one sample needs {error.expected}"
    assert choice is not None
    return describe_choice(grid, choice)


def describe_choice(grid: Grid, choice: Choice) -> str:
    """What is evaluated in the time, and what is left out."""
    counts: dict[str, list[int]] = {}
    for name, count in choice.samples.items():
        counts[name] = [count, len(grid.data[name])]
    left_out = describe_left_out({**choice.describe(grid), "samples": counts})
    parts = "; ".join(left_out) or "everything"
    text = f"in {choice.minutes:g} minutes: {parts} (about {describe_seconds(choice.seconds)})"
    if choice.raised:
        labels = ", ".join(choice.raised)
        text += f"; new work, with higher settings than before: {labels}"
    return text
