"""Prints the table of a part in the terminal: our numbers beside the paper's, and its sentences with verdicts.

If the table fits into the terminal, the quantities stand side by side. Otherwise those of each row stand below each
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from papers.base import Column, Scale, Table
from papers.reading import Verdict
from standfast.results.formatting import format_number

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_OUTCOMES: Mapping[bool | None, str] = {True: "holds", False: "does not hold", None: "is undecided"}
_OURS, _PAPER, _ABOVE = "ours", "paper", "above chance"

#: the heading of a column, and its cells by kind: ours, the paper's, above chance
_Quantity = tuple[str, dict[str, list[str]]]


def print_table(table: Table, scale: Scale) -> None:
    """Print a table, which sentences of the paper hold, and the departures from the paper."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    quantities = _format_quantities(table)
    wide = _make_wide(table, quantities)
    width = console.measure(wide, options=console.options.update(max_width=10_000)).maximum
    console.print(wide if width <= console.width else _make_long(table, quantities))
    lines = [*describe_verdicts(table.verdicts), *table.notes]
    if any(_ABOVE in cells for _, cells in quantities):
        lines.append(
            f"{_ABOVE}: (mean - chance) / (1 - chance), 0 for unrelated maps; – if chance is above 0.95"
        )
    if departures := table.part.departures(scale):
        lines.append(f"Not as in the paper: {departures}")
    if table.failures:
        lines.append(f"{table.failures} jobs failed; the report lists them")
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def describe_verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    """The sentences of the paper, and the columns for which each holds, does not hold, or is undecided.

    >>> judged = [("A is large", "MNIST", True), ("A is large", "GTSRB", None), ("B falls", "", True)]
    >>> for line in describe_verdicts(judged):
    ...     print(line)
    A is large: holds (MNIST), is undecided (GTSRB)
    B falls: holds
    """
    by_text: dict[str, dict[bool | None, list[str]]] = {}
    for text, heading, holds in verdicts:
        by_text.setdefault(text, {}).setdefault(holds, []).append(heading)
    lines = []
    for text, headings in by_text.items():
        found = []
        for outcome, word in _OUTCOMES.items():
            if outcome in headings:
                where = ", ".join(headings[outcome])
                found.append(f"{word} ({where})" if where else word)
        lines.append(f"{text}: {', '.join(found)}")
    return lines


def _format_quantities(table: Table) -> list[_Quantity]:
    rows = list(table.rows.iter_rows(named=True))
    found: list[_Quantity] = []
    for column in table.part.columns:
        cells = {_OURS: [_format_ours(row, column) for row in rows]}
        if column.paper:
            cells[_PAPER] = [row[f"{column.key} (paper)"] for row in rows]
        if column.chance is not None:
            cells[_ABOVE] = [_format_above(row, column) for row in rows]
        found.append((column.heading, cells))
    return found


def _make_wide(table: Table, quantities: Sequence[_Quantity]) -> RichTable:
    """A line for each row, with all quantities side by side."""
    headings, columns = [], []
    for heading, cells in quantities:
        for kind, texts in cells.items():
            above = heading if kind == _OURS else ""
            headings.append(heading if len(cells) == 1 else f"{above}\n{kind}")
            columns.append(texts)
    rows = zip(
        _read_texts(table, table.part.row_heading),
        *columns,
        _read_texts(table, "samples"),
        strict=True,
    )
    return _make_table(table, headings, list(rows))


def _make_long(table: Table, quantities: Sequence[_Quantity]) -> RichTable:
    """A block for each row: a line with its name, then one for each quantity."""
    kinds = [
        kind for kind in (_OURS, _PAPER, _ABOVE) if any(kind in cells for _, cells in quantities)
    ]
    names, counts = _read_texts(table, table.part.row_heading), _read_texts(table, "samples")
    lines = []
    for place, (name, count) in enumerate(zip(names, counts, strict=True)):
        lines.append([name, *[""] * len(kinds), count])
        for heading, cells in quantities:
            lines.append(
                [
                    f"  {heading}",
                    *(cells[kind][place] if kind in cells else "" for kind in kinds),
                    "",
                ]
            )
    return _make_table(table, kinds, lines)


def _read_texts(table: Table, column: str) -> list[str]:
    return [str(value) for value in table.rows[column]]


def _make_table(table: Table, headings: Sequence[str], lines: Sequence[Sequence[str]]) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    printed = RichTable(
        title=Text(table.part.title), box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False
    )
    printed.add_column(Text(table.part.row_heading), overflow="fold")
    for heading in (*headings, "n"):
        printed.add_column(Text(heading), justify="right", overflow="fold")
    for cells in lines:
        printed.add_row(*map(Text, cells))
    return printed


def _format_ours(row: Mapping[str, Any], column: Column) -> str:
    key, decimals = column.key, column.decimals
    value, low, high = row[key], row[f"{key}_low"], row[f"{key}_high"]
    if value != value:
        return "–"
    sign = {"lower": "≥ ", "upper": "≤ "}[column.side] if row[f"{key}_bound"] else ""
    text = f"{sign}{format_number(value, decimals)}"
    fewer = None if decimals is None else min(decimals, 2)
    if column.spread == "deviation" and high is not None and high > value:
        return f"{text} ± {format_number(high - value, fewer)}"
    return text + _format_interval(low, high, fewer)


def _format_above(row: Mapping[str, Any], column: Column) -> str:
    value = row[f"{column.key}_above"]
    if value is None:
        return "–"
    low, high = row[f"{column.key}_above_low"], row[f"{column.key}_above_high"]
    return format_number(value, 2) + _format_interval(low, high, 2)


def _format_interval(low: float | None, high: float | None, decimals: int | None) -> str:
    if low is None or high is None or not low < high:
        return ""
    return f" [{format_number(low, decimals)}, {format_number(high, decimals)}]"
