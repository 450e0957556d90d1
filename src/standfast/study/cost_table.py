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
    lines: list[str] = []
    pairs = list(dict.fromkeys((line.data, line.model) for line in estimate.lines))
    for data, model in pairs:
        own = [line for line in estimate.lines if (line.data, line.model) == (data, model)]
        if len(pairs) > 1:
            lines.append(f"{model} on {data}:")
        lines += _format_matrix(own)
    shown = dict.fromkeys(line.basis for line in estimate.lines)
    lines += [words for basis, words in _LEGEND.items() if basis in shown]
    total = f"all of it: {describe_seconds(estimate.seconds)} with one worker"
    if estimate.unknown:
        total += f", and {', '.join(estimate.unknown)}, whose time is not known"
    lines.append(total)
    return "\n".join(lines)


def _format_matrix(lines: Sequence[Line]) -> list[str]:
    labels = list(dict.fromkeys(line.label for line in lines))
    explainers = list(dict.fromkeys(line.explainer for line in lines))
    cells = {(line.explainer, line.label): _format_cell(line) for line in lines}
    name_width = max(map(len, explainers))
    heads = [label.partition(":")[0] if labels.count(label) == 1 else label for label in labels]
    # two configurations of one metric are told apart by their labels alone
    if len(set(heads)) < len(heads):
        heads = labels
    widths = [
        max(len(head), *(len(cells.get((name, label), "")) for name in explainers))
        for head, label in zip(heads, labels, strict=True)
    ]
    rows = ["  ".join([" " * name_width, *(head.rjust(width) for head, width in zip(heads, widths, strict=True))])]
    for name in explainers:
        own = [cells.get((name, label), "").rjust(width) for label, width in zip(labels, widths, strict=True)]
        rows.append("  ".join([name.ljust(name_width), *own]).rstrip())
    return rows


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
    content = choice.describe(grid)
    counts = {name: [count, len(grid.data[name])] for name, count in choice.samples.items()}
    left_out = describe_left_out({**content, "samples": counts})
    parts = "; ".join(left_out) if left_out else "everything"
    text = f"in {choice.minutes:g} minutes: {parts} (about {describe_seconds(choice.seconds)})"
    if choice.raised:
        text += f"; new work, with higher settings than before: {', '.join(choice.raised)}"
    return text
