"""A reproduction's table on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.presentation.base import format_number
from holdfast.reproduce.base import Column, Scale, Table


def print_table(table: Table, scale: Scale) -> None:
    """The table on the terminal, with what differs from the paper and which of its sentences hold.

    Columns that do not fit beside each other come as further tables below, with the same rows.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    console = Console()
    part = table.part
    rows = list(table.rows.iter_rows(named=True))
    names = [str(row[part.row_heading]) for row in rows]
    columns = [("paper", [str(row["paper"]) for row in rows])] if part.paper else []
    for column in part.columns:
        heading = f"{column.heading}\n(paper)" if column.paper else column.heading
        columns.append((heading, [_cell(row, column) for row in rows]))
    columns.append(("n", [str(row["samples"]) for row in rows]))
    for number_of, group in enumerate(_fitting(columns, console.width - _width([part.row_heading, *names]))):
        title = Text(part.title if number_of == 0 else f"{part.title}, continued")
        drawn = Drawn(part.row_heading, title=title, box=box.SIMPLE_HEAD)
        for heading, _ in group:
            drawn.add_column(heading, justify="right")
        for name, cells in zip(names, zip(*(cells for _, cells in group), strict=True), strict=True):
            drawn.add_row(*map(Text, (name, *cells)))
        console.print(drawn)

    def say(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    for text, heading, holds in table.verdicts:
        say(f"{ {True: 'holds', False: 'does not hold', None: 'undecided'}[holds] } ({heading}): {text}")
    for note in table.notes:
        say(note)
    if differs := part.differs(scale):
        say(f"Not as in the paper: {differs}")
    if table.failures:
        say(f"{table.failures} jobs failed; see the report")


def _width(texts: Sequence[str]) -> int:
    """Of a column that holds these, with the space around it."""
    return max(len(line) for text in texts for line in text.split("\n")) + 3


def _fitting(columns: list[tuple[str, list[str]]], room: int) -> list[list[tuple[str, list[str]]]]:
    """The columns in groups that are no wider than the room, if one column alone is not."""
    groups: list[list[tuple[str, list[str]]]] = []
    taken = 0
    for heading, cells in columns:
        width = _width([heading, *cells])
        if not groups or taken + width > room:
            groups.append([])
            taken = 0
        groups[-1].append((heading, cells))
        taken += width
    return groups


def _cell(row: Mapping[str, Any], column: Column) -> str:
    key, decimals = column.key, column.decimals
    value, low, high = row[key], row[f"{key}_low"], row[f"{key}_high"]
    said = "–"
    if value == value:
        sign = {"lower": "≥ ", "upper": "≤ "}[column.side] if row[f"{key}_bound"] else ""
        said = f"{sign}{format_number(value, decimals)}"
        if column.spread == "deviation" and high is not None and high > value:
            said += f" ± {format_number(high - value, decimals if decimals is None else min(decimals, 2))}"
        elif low is not None and high is not None and low < high:
            ends = (format_number(end, decimals if decimals is None else min(decimals, 2)) for end in (low, high))
            said += f" [{', '.join(ends)}]"
    paper = row[f"{key} (paper)"]
    return said if paper == "–" else f"{said}\n({paper})"
