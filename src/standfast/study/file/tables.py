"""Tables with any cells in a study file: read as data frames, for fitted estimators and pipelines that take these.

All tables of a study have the same columns, and are read together (`standfast.question.frames`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from pydantic import BeforeValidator, Field
from torch import Tensor

from standfast.data.user_files import LABEL_COLUMNS, number_classes, read_frame
from standfast.errors import check, suggest_name
from standfast.frames import Table
from standfast.question.frames import GivenFrame
from standfast.study.file.data_sources import DataEntry
from standfast.study.file.entries import Name, as_tuple
from standfast.study.file.problems import in_words

Columns = Annotated[tuple[Name, ...], BeforeValidator(as_tuple)]
Order = Annotated[tuple[Name, ...], BeforeValidator(as_tuple), Field(min_length=2)]
ColumnType = Annotated[
    Literal["text", "date", "category"] | Order,
    in_words("text, date, category, or a list of categories in their order"),
]


class DataTable(DataEntry):
    """A table with any cells, for a pickled pipeline or a function that returns one.

    Args:
        table: a .csv file with a header, or a .parquet file; relative to the study file.
        label: the column that is predicted, which the model does not get; by default one called label, labels, y,
            class or target. It is needed for the accuracy alone. Rows that are still to be decided have none, and then
            it is a column of `reference`.
        drop: further columns that the model does not get.
        types: of columns that a .csv file does not tell: text, date, category, or all categories in their order, as in
            {since: date, size: [small, large]}. Codes such as 00123 are text. NA and other words for missing values are
            missing cells, but not in a column of the type text, and not where they are one of the given categories.
        reference: a file of training rows with the same columns; by default all rows of the table.
    """

    form = "table"
    table: Name
    label: Name | None = None
    drop: Columns = ()
    types: dict[Name, ColumnType] = Field({})
    reference: Name | None = None

    def _load(self, base: Path, count: int | None) -> GivenFrame:
        whole, about = read_frame(base / self.table, self.types)
        label = self._find_label(list(map(str, whole.columns)))
        if label is None:
            unused = list(self.drop)
        else:
            unused = [label, *self.drop]
        extras: dict[str, Tensor] = {}
        # a cell without a value is no class, and the accuracy needs all of them
        has_labels = label is not None and label in whole.columns
        if has_labels and not whole[label].isna().any():
            labels, classes = number_classes(pl.Series(whole[label].tolist()))
            extras["labels"] = labels[:count]
            # regression has no classes
            if classes:
                about["classes"] = classes
        types = {}
        for name, how in self.types.items():
            if name not in unused:
                types[name] = how
        if self.reference is None:
            reference = whole
        else:
            reference = read_frame(base / self.reference, types)[0]
            self._check_label(label, [*whole.columns, *reference.columns])
        frame = whole[:count].drop(columns=unused, errors="ignore")
        ordered = {}
        for name, how in types.items():
            if isinstance(how, tuple):
                ordered[name] = how
        table = Table.read(reference.drop(columns=unused, errors="ignore"), frame, ordered=ordered)
        return GivenFrame(
            table.decode(table.encode(frame)),
            reference=table.decode(table.rows),
            ordered=ordered,
            targets=self._choose_targets(extras.get("labels")),
            about=about,
            extras=extras,
        )

    def _find_label(self, columns: Sequence[str]) -> str | None:
        """The column that is predicted; None without one.

        Raises:
            ArgumentError: it, or one to drop, is not there.
        """
        label = self.label
        if label is None:
            usual = [name for name in columns if name.lower() in LABEL_COLUMNS]
            label = next((name for name in usual if name not in self.drop), None)
        key_of_column: dict[str, str] = {}
        if label is not None:
            key_of_column[label] = "label"
        key_of_column |= dict.fromkeys(self.drop, "drop")
        for name, key in key_of_column.items():
            # a label that these rows do not have may be one of the training rows
            if key == "label" and self.reference is not None:
                continue
            got = f"{name!r}{suggest_name(name, columns)}"
            check(name in columns, key, f"a column of {self.table}", got)
        return label

    def _check_label(self, label: str | None, columns: Sequence[object]) -> None:
        """Raise `ArgumentError` where neither the table nor the training rows have the column that is predicted."""
        names = list(map(str, columns))
        got = f"{label!r}{suggest_name(str(label), names)}"
        expected = f"a column of {self.table} or of {self.reference}"
        check(label is None or label in names, "label", expected, got)

    def _choose_targets(self, labels: Tensor | None) -> Tensor | None:
        """The labels, where these are explained."""
        if self.targets == "predicted":
            return None
        fits = labels is not None and not labels.is_floating_point()
        check(fits, "targets", "predicted, as there are no labels that are classes", "labels")
        return labels
