"""`Table`: the columns of a data frame, and its rows as numbers and back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.cells.words import describe_cell
from standfast.errors import ArgumentError, check, suggest_name
from standfast.frames.columns import Cells, Column
from standfast.frames.joining import join_cells
from standfast.frames.pandas_cells import read_pandas, write_pandas
from standfast.frames.polars_cells import read_polars, write_polars
from standfast.neighbourhoods.tables import Feature, TableChanges
from standfast.reference import CellCodes, Reference, make_reference
from standfast.tensors import Array

_FRAME = "a pandas or polars data frame with at least one row and one column"
#: of the default changes: numbers by this share of their value, or by that of their standard deviation
SHARE = 0.02
SHARE_OF_SPREAD = 0.1
#: categories whose baseline is named in reports
_SHOWN = 6
#: about how many rows have cells replaced that are no quantities, and in how many rows each of these is put at most
_CELL_ROWS = 512
_COPIES_OF_A_CELL = 8


def is_frame(value: object) -> bool:
    """Whether a value is a data frame of pandas or polars."""
    return _is_one_of(value, _POLARS) or _is_pandas(value)


def _is_pandas(value: object) -> bool:
    return _is_one_of(value, _PANDAS)


def _is_one_of(value: object, classes: Collection[str]) -> bool:
    """Whether a value is of one of the classes, by their names: their packages are not imported."""
    names = [f"{kind.__module__}.{kind.__name__}" for kind in type(value).__mro__]
    return any(name in classes for name in names)


_PANDAS = ("pandas.core.frame.DataFrame", "pandas.DataFrame")
_POLARS = ("polars.dataframe.frame.DataFrame", "polars.DataFrame")


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a data frame: types, categories, ranges, and which of them have missing cells.

    A row is one number for each column, in the order of the frame. `encode` makes these numbers, float64 `(N, F)`, and
    `decode` makes a frame of the same library with the same types: what was encoded comes back as it was. Made by
    `read`.

    Attributes:
        columns: what is known of each.
        rows: the rows of the reference, encoded, `(B, F)`.
        of_pandas: whether `decode` makes frames of pandas, and not of polars.

    >>> import polars as pl
    >>> frame = pl.DataFrame({"age": [30, 41, None], "town": ["Ulm", "Bonn", "Ulm"]})
    >>> table = Table.read(frame)
    >>> table.encode(frame)
    tensor([[30.,  0.],
            [41.,  1.],
            [19.,  0.]], dtype=torch.float64)
    >>> table.decode(table.encode(frame)).equals(frame)
    True
    """

    columns: tuple[Column, ...]
    of_pandas: bool
    rows: Tensor = field(default_factory=lambda: torch.zeros(0, 0))

    @classmethod
    def read(
        cls,
        frame: Any,
        *others: Any,
        ordered: Mapping[Any, Sequence[Any]] | None = None,
        missing: bool | Sequence[str] = False,
    ) -> Table:
        """The columns of a frame, and of others with the same columns.

        Args:
            frame: the reference: rows of the training data, without the column that is predicted.
            others: further frames, such as the rows to explain; they add to ranges and categories.
            ordered: for columns of texts whose categories have an order, all of them in that order.
            missing: the names of columns whose cells may become missing although none is; True for all columns.

        Raises:
            ArgumentError: something is no such frame; two columns of one name; a type of cells that is not known;
                infinite numbers; a frame without a column, or with another type of it.
        """
        return cls.join([frame], others, ordered, missing)

    @classmethod
    def join(
        cls,
        references: Sequence[Any],
        others: Sequence[Any] = (),
        ordered: Mapping[Any, Sequence[Any]] | None = None,
        missing: bool | Sequence[str] = False,
    ) -> Table:
        """As `read`, for a reference that is in several frames, at least one."""
        frames = [*references, *others]
        orders = dict(ordered or {})
        labels = _read_labels(frames, orders)
        columns = []
        for label in labels:
            parts = [_read_cells(frame, label, orders.get(label)) for frame in frames]
            if isinstance(missing, bool):
                may_be_missing = missing
            else:
                may_be_missing = str(label) in missing
            first = parts[: len(references)]
            last = parts[len(references) :]
            columns.append(join_cells(label, first, last, may_be_missing))
        table = cls(tuple(columns), _is_pandas(frames[0]))
        rows = [table.encode(frame) for frame in references]
        return replace(table, rows=torch.cat(rows))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest number of each column, `(F,)` each."""
        lower = [column.bounds[0] for column in self.columns]
        upper = [column.bounds[1] for column in self.columns]
        return torch.tensor(lower, dtype=torch.float64), torch.tensor(upper, dtype=torch.float64)

    @property
    def missing(self) -> tuple[float | None, ...]:
        """The number of a missing cell of each column; None where it can have none."""
        return tuple(column.missing for column in self.columns)

    @property
    def codes(self) -> CellCodes:
        """What the numbers of each column stand for, where they are no quantities."""
        return CellCodes(
            names=self.names,
            categories=tuple(column.kind in ("category", "flag") for column in self.columns),
            edges=tuple(column.edge for column in self.columns),
            lowest=tuple(column.low for column in self.columns),
            highest=tuple(column.high for column in self.columns),
        )

    def plain(self) -> list[dict[str, Any]]:
        """What a report needs to write cells, as JSON can hold it."""
        return [column.plain() for column in self.columns]

    def encode(self, frame: Any) -> Tensor:
        """The rows of a frame as numbers, float64 `(N, F)`; its index does not matter.

        Raises:
            ArgumentError: other columns, other types, or a category that is not known.
        """
        fits = is_frame(frame) and frame.shape[0] > 0
        check(fits, "frame", _FRAME, _describe(frame))
        _check_columns(frame, [column.label for column in self.columns], self.of_pandas)
        numbers = [self._encode_column(frame, column) for column in self.columns]
        rows = np.stack(numbers, axis=1)
        return torch.from_numpy(rows.astype(np.float64))

    def _encode_column(self, frame: Any, column: Column) -> Array:
        order = column.categories if column.kind == "ordered" else None
        return column.encode(_read_cells(frame, column.label, order))

    def decode(self, rows: Tensor | Array) -> Any:
        """Rows of numbers `(N, F)` as a frame; each number becomes the nearest possible cell."""
        # from a card, and with gradients
        if isinstance(rows, Tensor):
            rows = rows.detach().cpu()
        numbers = np.asarray(rows, dtype=np.float64)
        write: Any = write_pandas if self.of_pandas else write_polars
        series = []
        for column, codes in zip(self.columns, numbers.T, strict=True):
            series.append(write(column, column.decode(codes), column.find_nan(codes)))
        if not self.of_pandas:
            import polars as pl

            return pl.DataFrame(series)
        import pandas as pd

        frame = pd.concat(series, axis=1)
        frame.columns = pd.Index([column.label for column in self.columns])
        return frame

    def describe_row(self, row: Tensor) -> dict[str, str]:
        """One row of numbers `(F,)` in the user's units and names."""
        cells = zip(self.plain(), row.tolist(), strict=True)
        return {
            column["name"]: describe_cell(column, number) or f"{number:g}"
            for column, number in cells
        }

    def make_reference(self) -> Reference:
        """What is known of the rows, for explainers and metrics that replace cells; it says which categories do."""
        reference = make_reference(self.rows, self.codes)
        names = []
        for column in self.columns:
            if column.kind in ("category", "flag"):
                names.append(column.name)
        if not names:
            return reference
        cells = self.describe_row(reference.baseline)
        shown = [f"{name} {cells[name]!r}" for name in names[:_SHOWN]]
        if len(names) > _SHOWN:
            shown.append("...")
        words = ", ".join(shown)
        return replace(reference, note=f", of categories the most frequent cell ({words})")

    def make_cell_rows(self) -> Tensor:
        """Rows of the reference, each with one cell of no quantity replaced, `(R, F)`: by each category, or missing.

        They ask a model for what noise on numbers does not reach. Each category is put into several rows, as long as
        they are few. Their order does not depend on the rows that are explained.
        """
        replaced: list[tuple[int, float]] = []
        for number, column in enumerate(self.columns):
            replaced += [(number, code) for code in column.codes_of_no_quantity]
        # of each cell several copies, within a room for all
        copies = max(_CELL_ROWS // max(len(replaced), 1), 1)
        copies = min(copies, _COPIES_OF_A_CELL, len(self.rows))
        rows = torch.arange(len(replaced) * copies)
        cells = self.rows[rows % len(self.rows)].clone()
        if replaced:
            pairs = torch.tensor(replaced, dtype=torch.float64)
            columns, codes = pairs.repeat_interleave(copies, dim=0).T
            cells[rows, columns.long()] = codes
        return cells

    # changes

    def default_changes(self) -> TableChanges:
        """What may change where the user does not say: numbers, by 2% of their value; all other cells stay.

        Whole numbers change in whole steps, so a small one (of children, say) stays, and a cell of 0 stays. Where 2% is
        more than a standard deviation among the reference rows (years, temperatures in kelvins), a share of the value
        says little: such a column changes by a tenth of its standard deviation. Another category makes another row, and
        a date has no value to take a share of: both stay, and so do missing cells.

        Raises:
            ArgumentError: no number can change.
        """
        changes: dict[str, Feature] = {}
        for number, column in enumerate(self.columns):
            if column.kind in ("number", "whole") and column.spread > 0:
                feature = _choose_range(column, self.rows[:, number])
                if feature is not None:
                    changes[column.name] = feature
        expected = "a number that can change by 2%, or neighbourhood=TableChanges({'town': 'category'}), say"
        check(len(changes) > 0, "reference", expected, "none")
        return self.bind(TableChanges(changes))

    def bind(self, changes: TableChanges) -> TableChanges:
        """Changes that know the columns: names, reference rows, missing cells, categories by their names.

        Raises:
            ArgumentError: `changes` do not fit the columns.
        """
        check(
            changes.columns in (None, self.names),
            "columns",
            "None, as the frame has names",
            changes.columns,
        )
        check(changes.units is None, "units", "None, as frames have their own units", "some")
        check(
            not changes.one_hot,
            "one_hot",
            "none, as a category is one column of a frame",
            dict(changes.one_hot),
        )
        named: Any = changes.changes
        if isinstance(named, Mapping):
            named = {name: self._bind_feature(name, feature) for name, feature in named.items()}
        else:
            named = self._spread_feature(changes, named)
        # what changes have to know of numbers that are no quantities; nothing of a table of quantities
        counts = []
        for column in self.columns:
            # a flag has two categories
            has_categories = column.kind in ("category", "flag")
            counts.append(len(column.categories) if has_categories else 0)
        # the user's own data win
        data = self.rows if changes.data is None else changes.data
        return replace(
            changes,
            changes=named,
            fixed=(),
            columns=self.names,
            data=data,
            missing=self.missing,
            lowest=tuple(column.low for column in self.columns),
            highest=tuple(column.high for column in self.columns),
            codes=tuple(counts) if any(counts) else None,
        )

    def _find(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        expected = f"names of columns ({', '.join(self.names[:12])})"
        near = suggest_name(name, self.names)
        raise ArgumentError("changes", expected, f"{name!r}{near}")

    def _spread_feature(self, changes: TableChanges, feature: Feature) -> dict[str, Feature]:
        """One change for all columns, by name: but for fixed ones, those that a rule computes, and constant ones."""
        # a column that a rule computes follows from the others
        sides: list[str] = []
        for rule in changes.rules:
            if "==" in rule:
                sides += rule.split("==", 1)
        computed = {side.strip(" `") for side in sides}
        left_out = {*changes.fixed, *computed}
        features = {}
        for column in self.columns:
            if column.name not in left_out and column.varies:
                features[column.name] = self._fit_feature(column, feature)
        return features

    def _fit_feature(self, column: Column, feature: Feature) -> Feature:
        """One change for all columns, for this one: categories change as such, whole numbers in steps."""
        if column.kind in ("category", "flag"):
            return Feature(categories="data", rate=feature.rate)
        if column.kind == "ordered":
            return Feature(by=1, step=1)
        if column.kind in ("whole", "date"):
            return _add_step(feature)
        return feature

    def _bind_feature(self, name: str, feature: Feature) -> Feature:
        """A change of one column, with codes in the place of categories, and steps where numbers are whole."""
        column = self._find(name)
        if isinstance(feature.categories, tuple):
            return replace(feature, categories=_find_codes(column, feature.categories))
        fits = feature.by is None or column.kind not in ("category", "flag")
        check(fits, "changes", f"'category' for {name!r}, which has no order", repr(feature.by))
        # a day is the smallest step of a column of days
        in_days = column.kind == "date" and column.unit == "D"
        if in_days or column.kind in ("whole", "ordered"):
            return _add_step(feature)
        return feature


def _add_step(feature: Feature) -> Feature:
    """A change by a number in steps of 1, unless it has steps of its own."""
    if feature.by is not None and feature.step is None:
        return replace(feature, step=1)
    return feature


def _find_codes(column: Column, categories: Sequence[Any]) -> tuple[Any, ...]:
    """The numbers of named categories; those of a column without categories stay as they are.

    Raises:
        ArgumentError: the column does not have one of them.
    """
    if not column.categories:
        return tuple(categories)
    codes = {category: float(code) for code, category in enumerate(column.categories)}
    unknown = [category for category in categories if category not in codes]
    first_categories = ", ".join(map(str, column.categories[:8]))
    expected = f"categories of {column.name!r} ({first_categories})"
    check(not unknown, "categories", expected, ", ".join(map(repr, unknown)))
    return tuple(codes[category] for category in categories)


def _choose_range(column: Column, cells: Tensor) -> Feature | None:
    """How far a column of numbers may change by default; None for not at all.

    Args:
        column: of numbers, not all of them the same.
        cells: of the reference, `(B,)`.
    """
    is_whole = column.kind == "whole"
    step = 1 if is_whole else None
    # missing cells have numbers below the edge, which are no values
    values = cells[cells > column.edge]
    typical = float(values.abs().median())
    if SHARE * typical > column.spread:
        by = float(f"{SHARE_OF_SPREAD * column.spread:.3g}")
        reach = by
        if is_whole:
            by = math.floor(by)
        feature = Feature(by=by, step=step)
    else:
        largest = max(abs(column.low), abs(column.high))
        reach = SHARE * largest
        feature = Feature(by=f"{100 * SHARE:g}%", step=step)
    # nothing would change in whole steps
    if is_whole and reach < 1:
        return None
    return feature


def _read_labels(frames: Sequence[Any], ordered: Mapping[Any, Sequence[Any]]) -> list[Any]:
    """The labels of the columns of the first frame, which all frames have.

    Raises:
        ArgumentError: something is no such frame; other columns; two columns of one name; an order for no column.
    """
    for frame in frames:
        has_cells = is_frame(frame) and min(frame.shape) > 0
        check(has_cells, "frame", _FRAME, _describe(frame))
    labels = list(frames[0].columns)
    _check_names(labels)
    unknown = [label for label in ordered if label not in labels]
    check(not unknown, "ordered", "columns of the frame", ", ".join(map(repr, unknown)))
    for frame in frames[1:]:
        _check_columns(frame, labels, _is_pandas(frames[0]))
    return labels


def _read_cells(frame: Any, label: Any, order: Sequence[Any] | None) -> Cells:
    read = read_pandas if _is_pandas(frame) else read_polars
    return read(frame[label], label, order)


def _check_columns(frame: Any, labels: Sequence[Any], of_pandas: bool) -> None:
    kind = "pandas" if of_pandas else "polars"
    check(
        _is_pandas(frame) == of_pandas,
        "frame",
        f"a frame of {kind}, as the reference is",
        _describe(frame),
    )
    _check_names(list(frame.columns))
    gone = [label for label in labels if label not in set(frame.columns)]
    more = [label for label in frame.columns if label not in set(labels)]
    words = []
    for which, what in ((gone, "missing"), (more, "more")):
        if which:
            names = ", ".join(map(repr, which[:3]))
            words.append(f"{names} {what}")
    expected = f"the {len(labels)} columns of the reference"
    check(not words, "frame", expected, " and ".join(words))


def _check_names(labels: Sequence[Any]) -> None:
    """Raise `ArgumentError` for two columns of one name, which reports could not tell apart."""
    counts = Counter(map(str, labels))
    twice = sorted(name for name, count in counts.items() if count > 1)
    got = f"{', '.join(map(repr, twice[:3]))} twice"
    check(not twice, "frame", "column names that differ", got)


def _describe(value: object) -> str:
    shape = getattr(value, "shape", None)
    name = type(value).__name__
    if shape is None:
        return name
    return f"{name} of shape {tuple(shape)}"
