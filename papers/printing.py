"""Prints the table of a reproduction in the terminal: our numbers beside the paper's, and its sentences with verdicts.

A part has one table. If it fits into the terminal, it has a row for each row of the paper and columns side by side.
Otherwise the quantities of each row stand below each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from papers.base import Column, Scale, Table
from papers.reading import Verdict
from standfast.presentation.base import format_number

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_OUTCOMES: Mapping[bool | None, str] = {True: "holds", False: "does not hold", None: "is undecided"}
_ABOVE = "above chance"
_LEAST = 12  # width left for the names of the quantities


def print_table(table: Table, scale: Scale) -> None:
    """Print a table, which sentences of the paper hold, and the departures from the paper."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    wide = _lay_out_columns(table)
    fits = sum(_measure_width([heading, *cells]) for heading, cells in wide) <= console.width
    console.print(_make_wide(table, wide) if fits else _make_long(table, console.width))

    def print_line(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    for line in describe_verdicts(table.verdicts):
        print_line(line)
    for note in table.notes:
        print_line(note)
    if any(column.chance is not None for column in table.part.columns):
        print_line(f"{_ABOVE}: (mean - chance) / (1 - chance), 0 for unrelated maps; – if chance is above 0.95")
    if departures := table.part.departures(scale):
        print_line(f"Not as in the paper: {departures}")
    if table.failures:
        print_line(f"{table.failures} jobs failed; the report lists them")


def describe_verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    """The sentences with what is found for each, and before them how many hold.

    >>> judged = [("A is large", "MNIST", True), ("A is large", "GTSRB", None), ("B falls", "", True)]
    >>> for line in describe_verdicts(judged):
    ...     print(line)
    Of 2 sentences, 1 holds, 1 is mixed:
    - A is large: holds for MNIST; is undecided for GTSRB.
    - B falls: holds.
    """
    by_text: dict[str, dict[bool | None, list[str]]] = {}
    for text, heading, holds in verdicts:
        by_text.setdefault(text, {}).setdefault(holds, []).append(heading)
    if not by_text:
        return []
    counts = Counter(
        _OUTCOMES[next(iter(outcomes))] if len(outcomes) == 1 else "is mixed" for outcomes in by_text.values()
    )
    found = ", ".join(
        f"{counts[word]} {word if counts[word] == 1 else plural}"
        for word, plural in (
            ("holds", "hold"),
            ("does not hold", "do not hold"),
            ("is mixed", "are mixed"),
            ("is undecided", "are undecided"),
        )
        if counts[word]
    )
    sentences = "1 sentence" if len(by_text) == 1 else f"{len(by_text)} sentences"
    lines = [f"Of {sentences}, {found}:"]
    for text, outcomes in by_text.items():
        parts = (
            f"{word} for {', '.join(outcomes[outcome])}" if any(outcomes[outcome]) else word
            for outcome, word in _OUTCOMES.items()
            if outcome in outcomes
        )
        lines.append(f"- {text}: {'; '.join(parts)}.")
    return lines


def _lay_out_columns(table: Table) -> list[tuple[str, list[str]]]:
    """Headings and cells of the table with all columns side by side, the names of the rows first."""
    part, rows = table.part, list(table.rows.iter_rows(named=True))
    columns = [(part.row_heading, [str(row[part.row_heading]) for row in rows])]
    for place, column in enumerate(part.columns):
        paired = bool(column.paper) or (part.paper and place == 0)
        columns.append((f"{column.heading}\nours" if paired else column.heading, [_ours(row, column) for row in rows]))
        if paired:
            cells = [_paper(row, column) if column.paper else str(row["paper"]) for row in rows]
            columns.append(("\npaper", cells))
        if column.chance is not None:
            columns.append(("\nabove chance", [_above(row, column) for row in rows]))
    return [*columns, ("n", [str(row["samples"]) for row in rows])]


def _make_wide(table: Table, columns: Sequence[tuple[str, list[str]]]) -> RichTable:
    from rich.text import Text

    printed = _start(table)
    for place, (heading, _) in enumerate(columns):
        printed.add_column(heading, justify="left" if place == 0 else "right")
    for cells in zip(*(cells for _, cells in columns), strict=True):
        printed.add_row(*map(Text, cells))
    return printed


def _make_long(table: Table, width: int) -> RichTable:
    """A block for each row: a line with its name, then one for each quantity; in a table of this width."""
    from rich.text import Text

    part = table.part
    has_paper = bool(part.paper) or any(column.paper for column in part.columns)
    has_chance = any(column.chance is not None for column in part.columns)
    lines: list[list[str]] = []
    for row in table.rows.iter_rows(named=True):
        lines.append([str(row[part.row_heading]), "", *[""] * (has_paper + has_chance), str(row["samples"])])
        for place, column in enumerate(part.columns):
            of_row = str(row["paper"]) if part.paper and place == 0 and not column.paper else _paper(row, column)
            cells = [f"  {column.heading}", _ours(row, column), *[of_row] * has_paper]
            lines.append([*cells, *[_above(row, column)] * has_chance, ""])
    headings = [part.row_heading, "ours", *["paper"] * has_paper, *[_ABOVE] * has_chance, "n"]
    numbers = [_measure_width([heading, *cells]) for heading, *cells in zip(headings, *lines, strict=True)][1:]
    printed = _start(table)
    for place, heading in enumerate(headings):
        whole = place > 0 and sum(numbers) + _LEAST <= width  # else numbers are broken, too
        printed.add_column(heading, justify="right" if place else "left", overflow="fold", no_wrap=whole)
    for line in lines:
        printed.add_row(*map(Text, line))
    return printed


def _start(table: Table) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    return RichTable(title=Text(table.part.title), box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)


def _measure_width(texts: Sequence[str]) -> int:
    """The width of a column with these texts, including the space around it."""
    return max(len(line) for text in texts for line in text.split("\n")) + 2


def _ours(row: Mapping[str, Any], column: Column) -> str:
    key = column.key
    value, low, high = row[key], row[f"{key}_low"], row[f"{key}_high"]
    if value != value:
        return "–"
    sign = {"lower": "≥ ", "upper": "≤ "}[column.side] if row[f"{key}_bound"] else ""
    text = f"{sign}{format_number(value, column.decimals)}"
    if column.spread == "deviation" and high is not None and high > value:
        return f"{text} ± {format_number(high - value, _fewer(column))}"
    return text + _between(low, high, _fewer(column))


def _above(row: Mapping[str, Any], column: Column) -> str:
    value = row.get(f"{column.key}_above")
    if value is None:
        return "–" if column.chance is not None else ""
    return format_number(value, 2) + _between(row[f"{column.key}_above_low"], row[f"{column.key}_above_high"], 2)


def _paper(row: Mapping[str, Any], column: Column) -> str:
    return str(row[f"{column.key} (paper)"]) if column.paper else ""


def _between(low: float | None, high: float | None, decimals: int | None) -> str:
    if low is None or high is None or not low < high:
        return ""
    return f" [{format_number(low, decimals)}, {format_number(high, decimals)}]"


def _fewer(column: Column) -> int | None:
    return None if column.decimals is None else min(column.decimals, 2)
