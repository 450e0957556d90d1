"""What a study costs, as numbers and as a table: `EstimateLine`, `Estimate`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

#: how the seconds of a line are known: by a trial of the metric; by its pilot, a cheaper configuration; by the time of
#: single explanations; by that of the model alone; not at all, as the cost is random; or there is nothing to do, or it
#: fails
Basis = Literal["trial", "pilot", "explanations", "model", "unknown", "done", "fails"]


@dataclass(frozen=True)
class EstimateLine:
    """One row of the estimate: what a configured metric costs for one explainer.

    Attributes:
        data, model, explainer, label: which.
        jobs, done: the number of planned jobs, and how many of them the store has.
        samples: how many samples the jobs that are left have together; each once for each repeat.
        evaluations: about how many inputs the jobs that are left predict and explain.
        seconds: about how long one worker needs for them; NaN if the trial failed, or the cost is random and was not
            seen.
        memory: the largest number of bytes that a worker has in use: of the GPU, or of its process with everything that
            it has loaded. A lower bound where the trial was stopped before its end: later parts of the metric may need
            more. NaN where it cannot be measured, and if nothing is left to do.
        error: why the trial failed, as its job will; empty where it did not.
        basis: how the seconds are known (`Basis`).
        start: those of the seconds that the samples themselves take, whatever the settings of the metric are.
    """

    data: str
    model: str
    explainer: str
    label: str
    jobs: int
    done: int
    samples: int
    evaluations: int
    seconds: float
    memory: float = math.nan
    error: str = ""
    basis: Basis = "done"
    start: float = 0.0


@dataclass(frozen=True, repr=False)
class Estimate:
    """What a grid costs, with a `EstimateLine` for every data set, model, explainer and metric.

    All numbers are for one worker like this process; several workers divide the time. `print` shows a table.

    Attributes:
        lines: the rows.
        advice: what fits into a limited time, in words.
    """

    lines: tuple[EstimateLine, ...]
    advice: str = ""

    def __str__(self) -> str:
        return "\n".join(filter(None, [format_costs(self), self.advice]))

    def __repr__(self) -> str:
        memory = ""
        if not math.isnan(self.memory):
            memory = f", {self.memory / 1e9:.2g} GB"
        unknown = ""
        if self.unknown:
            unknown = f", and an unknown time for {', '.join(self.unknown)}"
        failed = "".join(f"; {text}" for text in self.describe_failures())
        seconds = describe_seconds(self.seconds)
        time_needed = f"{self.evaluations:,} evaluations, {seconds} with one worker{unknown}"
        return f"Estimate({time_needed}{memory}; frame() has a row for each metric{failed})"

    def describe_failures(self) -> list[str]:
        """Why trials failed, a text for each error; empty if none did."""
        broken: dict[str, list[str]] = {}
        for line in self.lines:
            if line.error:
                job = f"{line.label} with {line.explainer}"
                broken.setdefault(line.error, []).append(job)
        texts: list[str] = []
        for error, jobs in broken.items():
            more = ""
            if len(jobs) > 1:
                more = f", and {len(jobs) - 1} more"
            texts.append(f"trials failed, and their jobs will: {jobs[0]}{more}: {error}")
        return texts

    @property
    def evaluations(self) -> int:
        """Of all lines together."""
        return sum(line.evaluations for line in self.lines)

    @property
    def seconds(self) -> float:
        """Of all lines whose time is known; NaN if none is."""
        known_seconds = [line.seconds for line in self.lines if not math.isnan(line.seconds)]
        if known_seconds:
            return math.fsum(known_seconds)
        return math.nan

    @property
    def unknown(self) -> list[str]:
        """The labels of metrics whose cost is random, and was not seen in the time of the estimate."""
        labels = [line.label for line in self.lines if line.basis == "unknown"]
        return list(dict.fromkeys(labels))

    @property
    def memory(self) -> float:
        """The largest of all lines, in bytes; NaN if it is not known."""
        known_bytes = [line.memory for line in self.lines if not math.isnan(line.memory)]
        return max(known_bytes, default=math.nan)

    def frame(self) -> pl.DataFrame:
        """A row for each line."""
        return pl.DataFrame([vars(line) for line in self.lines])


def describe_seconds(seconds: float) -> str:
    """A time in words, to two digits.

    >>> describe_seconds(0.31), describe_seconds(72), describe_seconds(95_800), describe_seconds(math.nan)
    ('0.31 s', '72 s', '27 hours', 'an unknown time')
    """
    if math.isnan(seconds):
        return "an unknown time"
    # from two units on, so that "1.5 hours" stands as minutes
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            # two digits: more would claim what a forecast does not know
            count = float(f"{seconds / size:.2g}")
            return f"{count:g} {unit}"
    count = float(f"{seconds:.2g}")
    return f"{count:g} s"


#: what stands behind a number that no trial has shown
_MARKS: Mapping[Basis, str] = {"explanations": " a", "model": " b"}
_LEGEND: Mapping[Basis, str] = {
    "explanations": "a: not tried; from the time of single explanations and predictions",
    "model": "b: not tried; from the time of the model alone, and so perhaps wrong by a factor of three",
}


def list_marks(estimate: Estimate) -> list[str]:
    """What the marks behind the times of an estimate mean, a text for each that occurs."""
    bases = {line.basis for line in estimate.lines}
    return [words for basis, words in _LEGEND.items() if basis in bases]


def mark_seconds(words: str, lines: Sequence[EstimateLine]) -> str:
    """The time of some lines together, with the mark of the one that is known worst."""
    bases = {line.basis for line in lines}
    # the worst is the last, as the marks are in this order
    marks = [mark for basis, mark in _MARKS.items() if basis in bases]
    if marks:
        return words + marks[-1]
    return words


def format_costs(estimate: Estimate) -> str:
    """A table of the times: a row for each explainer, a column for each metric; and what all of it takes."""
    text_lines: list[str] = []
    pairs_of_lines = [(line.data, line.model) for line in estimate.lines]
    pairs = list(dict.fromkeys(pairs_of_lines))
    for pair in pairs:
        lines_of_pair = [line for line in estimate.lines if (line.data, line.model) == pair]
        if len(pairs) > 1:
            data, model = pair
            text_lines.append(f"{model} on {data}:")
        text_lines += _format_table(lines_of_pair)
    text_lines += list_marks(estimate)
    total = f"all of it: {describe_seconds(estimate.seconds)} with one worker"
    if estimate.unknown:
        labels = ", ".join(estimate.unknown)
        total += f", and {labels}, whose time is not known"
    text_lines.append(total)
    return "\n".join(text_lines)


def _format_table(lines: Sequence[EstimateLine]) -> list[str]:
    """The table of a data set and a model."""
    labels = list(dict.fromkeys(line.label for line in lines))
    explainers = list(dict.fromkeys(line.explainer for line in lines))
    columns = [["", *explainers]]
    for label, head in zip(labels, _shorten_labels(labels), strict=True):
        cells = {}
        for line in lines:
            if line.label == label:
                cells[line.explainer] = _format_cell(line)
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
    if is_clear:
        return names
    return list(labels)


def _format_cell(line: EstimateLine) -> str:
    if line.basis == "done":
        return "done"
    if line.basis == "unknown":
        return "not known"
    if math.isnan(line.seconds):
        return "fails"
    return describe_seconds(line.seconds) + _MARKS.get(line.basis, "")
