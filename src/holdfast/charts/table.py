"""Numbers in rows and columns, to be set as a table and not drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import check


@dataclass(frozen=True)
class TableCell:
    """An entry.

    Attributes:
        text: the number.
        small: beneath it, an interval.
        faint: greyed out: it does not count, for a reason that the caption gives.
    """

    text: str
    small: str = ""
    faint: bool = False


@dataclass(frozen=True)
class Table:
    """A row of entries for each explainer.

    Attributes:
        heading: a few words above it.
        columns: title and what else must be known of each.
        rows: an explainer and its entries, one for each column.
        caption: how to read it.
        first: the title of the first column.

    Raises:
        ArgumentError: a row with another number of entries than there are columns.

    >>> Table("Sizes", [("width", "in pixels")], [("lenet", [TableCell("28")])]).rows[0][1][0].text
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
