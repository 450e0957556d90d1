"""Prints the table of a reproduction in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.presentation.base import format_number
from holdfast.reproduce.base import Column, Scale, Table


def print_table(table: Table, scale: Scale) -> None:
    """Print a table, which sentences of the paper hold, and the departures from the paper.

    If the columns do not fit into the width of the terminal, further tables with the same rows follow.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    part = table.part
    rows = list(table.rows.iter_rows(named=True))
    names = [str(row[part.row_heading]) for row in rows]
    columns = [("paper", [str(row["paper"]) for row in rows])] if part.paper else []
    for column in part.columns:
        heading = f"{column.heading}\n(paper)" if column.paper else column.heading
        columns.append((heading, [_format_cell(row, column) for row in rows]))
    columns.append(("n", [str(row["samples"]) for row in rows]))
    for index, group in enumerate(_group_columns(columns, console.width - _measure_width([part.row_heading, *names]))):
        title = Text(part.title if index == 0 else f"{part.title}, continued")
        printed = RichTable(part.row_heading, title=title, box=box.SIMPLE_HEAD)
        for heading, _ in group:
            printed.add_column(heading, justify="right")
        for name, cells in zip(names, zip(*(cells for _, cells in group), strict=True), strict=True):
            printed.add_row(*map(Text, (name, *cells)))
        console.print(printed)

    def print_line(text: str) -> None:
        console.print(Text(text), soft_wrap=True)

    for text, heading, holds in table.verdicts:
        print_line(f"{ {True: 'holds', False: 'does not hold', None: 'undecided'}[holds] } ({heading}): {text}")
    for note in table.notes:
        print_line(note)
    if departures := part.departures(scale):
        print_line(f"Not as in the paper: {departures}")
    if table.failures:
        print_line(f"{table.failures} jobs failed; the report lists them")


def _measure_width(texts: Sequence[str]) -> int:
    """The width of a column with these texts, including the space around it."""
    return max(len(line) for text in texts for line in text.split("\n")) + 3


def _group_columns(columns: list[tuple[str, list[str]]], width: int) -> list[list[tuple[str, list[str]]]]:
    """The columns in groups that fit into `width`; a column that is wider is a group on its own."""
    groups: list[list[tuple[str, list[str]]]] = []
    used = 0
    for heading, cells in columns:
        own = _measure_width([heading, *cells])
        if not groups or used + own > width:
            groups.append([])
            used = 0
        groups[-1].append((heading, cells))
        used += own
    return groups


def _format_cell(row: Mapping[str, Any], column: Column) -> str:
    key, decimals = column.key, column.decimals
    value, low, high = row[key], row[f"{key}_low"], row[f"{key}_high"]
    text = "–"
    if value == value:
        sign = {"lower": "≥ ", "upper": "≤ "}[column.side] if row[f"{key}_bound"] else ""
        text = f"{sign}{format_number(value, decimals)}"
        if column.spread == "deviation" and high is not None and high > value:
            text += f" ± {format_number(high - value, decimals if decimals is None else min(decimals, 2))}"
        elif low is not None and high is not None and low < high:
            ends = (format_number(end, decimals if decimals is None else min(decimals, 2)) for end in (low, high))
            text += f" [{', '.join(ends)}]"
    paper = row[f"{key} (paper)"]
    return text if paper == "–" else f"{text}\n({paper})"
