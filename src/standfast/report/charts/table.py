"""Tables of numbers: shown as HTML tables, not as charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from standfast.errors import check
from standfast.results.quality import Quality


@dataclass(frozen=True)
class TableCell:
    """A cell of a table.

    Attributes:
        text: the number.
        small: a second line in small type, such as an interval; more lines after line breaks.
        faint: True for a number that does not count; it is grey, and the caption gives the reason.
        quality: how good the number is, which is its colour; None for a cell without colour.
        star: the mark of the best of its column, and of those that are tied with it.
    """

    text: str
    small: str = ""
    faint: bool = False
    quality: Quality | None = None
    star: str = ""


@dataclass(frozen=True)
class ExplainerTable:
    """A table with a row of cells for each explainer.

    Attributes:
        heading: a few words above the table.
        columns: title and description of each column.
        rows: the name of each explainer and its cells, one for each column.
        caption: how to read the table.
        first: title of the first column.

    Raises:
        ArgumentError: a row has more or fewer cells than there are columns.

    >>> ExplainerTable("Sizes", [("width", "in pixels")], [("lenet", [TableCell("28")])]).rows[0][1][0].text
    '28'
    """

    heading: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[tuple[str, Sequence[TableCell]]]
    caption: str = ""
    first: str = "Explainer"

    def __post_init__(self) -> None:
        for name, entries in self.rows:
            check(
                len(entries) == len(self.columns),
                "rows",
                f"{len(self.columns)} entries each",
                f"{name!r}: {len(entries)}",
            )
