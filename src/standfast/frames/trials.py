"""Which of the user's columns each encoded column depends on, found by mixing rows.

Of two rows, a mixed row has some cells of the first and all others of the second. If an encoded column depends on one
of the user's columns alone, then its value in the mixed row is that of the row from which this cell came. Which cells
come from the first row is said by one binary digit of the columns' numbers. So with one mix for each digit, the number
of the column is read digit by digit, for all encoded columns at the same time:

| | first | second | digit 0 from the first | digit 1 from the first |
| --- | --- | --- | --- | --- |
| column 0 | a | A | A | A |
| column 1 | b | B | b | B |
| column 2 | c | C | C | c |

An encoded column that agrees with neither row, or whose digits differ from pair to pair, depends on several columns.
Every two columns differ in a digit, so that there is a mix that parts them.

Rows are those of the reference, and made ones in which each column takes all of its values equally often: every
category, both values of a flag however rare, and a missing cell.

A rare category is in one or two of these rows. So a second pass holds each value of each column, and redraws all other
cells of its row. An encoded column that belongs to the held one has the same value in all copies.

What is surely found: the one column that an encoded column depends on, if it moves in a tried row; so no column is
refused that depends on one alone. Two rare values that a tried row has together (`zip == Z` and `town == Y`) are found
unless the rows that it is mixed with have one of them, too.

What is found with a probability: that an encoded column depends on a second column beside one value of the first. The
value is tried beside 17 draws of the other cells, or as few as 9 where there are very many encoded columns. If the
second column's values fall in two groups, of the shares p and 1 - p, then the draws are all of one group with a
probability of about `p**17 + (1 - p)**17`: 2**-16 for a flag, and 2**-8 with 9 draws. A value that only explained rows
have is mixed with 8 rows of the reference for each digit, or with fewer of many explained rows. A dependence that shows
nowhere in the tried rows is not found.

Cost: `rows x (1 + log2(columns))` encoded rows for the first pass and `17 x values` for the second, where `values` is
the length of the longest list of values, at least 256. Both in chunks of bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from standfast.frames.columns import Column
from standfast.frames.table import Table
from standfast.tensors import Array

#: rows of the reference in which columns are tried, and made rows at least
_REFERENCE_ROWS = 512
_MADE_ROWS = 256
#: different values of a column that are all tried; of more, these many quantiles and places in its range
_ALL_VALUES = 4096
_QUANTILES = 65
_PLACES = 129
#: encoded cells at a time, and rows at least
_CELLS = 2**23
_FEWEST_ROWS = 64
#: copies of each value with other cells, and encoded cells of all copies above which there are fewest
_MOST_COPIES = 16
_FEWEST_COPIES = 8
_COPIED_CELLS = 2**28
#: rows that explained rows are mixed with, and mixes of explained rows at a time, of which each row has two at least
_PARTNERS = 16
_MIXES = 4096
#: how often a row is mixed by each digit, with a partner of its own each time
_ROUNDS = 8
#: how far the same value may be computed from itself in another batch, in units of the last place of the largest
_ROUNDING = 64
#: pairs of rows in which the columns are looked for that an encoded column depends on
_WITNESSES = 32

Encode = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows of numbers `(N, F)`, and what a pipeline makes of them, `(N, E)`."""

    cells: Array
    encoded: Array

    def __getitem__(self, index: Array) -> EncodedRows:
        return EncodedRows(self.cells[index], self.encoded[index])


@dataclass(frozen=True)
class Conflict:
    """An encoded column that depends on several of the user's, and those that were found, by number."""

    encoded: int
    columns: tuple[int, ...]


class DigitReader:
    """What mixed rows have said so far of each of `E` encoded columns.

    Args:
        columns: the number of the user's columns.
        encoded: the number of encoded columns.

    Attributes:
        masks: for each digit, the columns whose cells come from the first row, `(digits, F)`.
        from_first, from_second: for each digit, whether a value of a mixed row was that of the one row and not that of
            the other, `(digits, E)`.
        from_none: whether a value was that of neither, `(E,)`.
    """

    def __init__(self, columns: int, encoded: int) -> None:
        self.column_count = columns
        self.digits = max(1, (columns - 1).bit_length())
        numbers = np.arange(columns)
        # each column has a number of its own, so every two differ in a digit
        digits = np.arange(self.digits)[:, None]
        self.masks = (numbers >> digits) % 2 == 1
        self.from_first = np.zeros((self.digits, encoded), dtype=bool)
        self.from_second = np.zeros((self.digits, encoded), dtype=bool)
        self.from_none = np.zeros(encoded, dtype=bool)

    def add(
        self, digits: Array, first: Array, second: Array, mixed: Array, tolerance: Array
    ) -> None:
        """Compare encoded mixed rows `(N, E)`, by these digits `(N,)`, with the encoded rows that they are mixed of."""
        # a value that is like both says nothing
        as_first = are_close(mixed, first, tolerance)
        as_second = are_close(mixed, second, tolerance)
        for digit in np.unique(digits):
            rows = digits == digit
            only_as_first = as_first[rows] & ~as_second[rows]
            only_as_second = as_second[rows] & ~as_first[rows]
            self.from_first[digit] |= only_as_first.any(0)
            self.from_second[digit] |= only_as_second.any(0)
        self.from_none |= (~as_first & ~as_second).any(0)

    @property
    def columns_read(self) -> Array:
        """The number of the column that the digits of each encoded one spell, `(E,)`; -1 where not all are known."""
        is_read = (self.from_first | self.from_second).all(0)
        weights = 1 << np.arange(self.digits)
        # the digits are those of the number, the lowest first
        numbers = weights @ self.from_first.astype(int)
        return np.where(is_read, numbers, -1)

    @property
    def conflicts(self) -> Array:
        """The encoded columns that depend on several, by number."""
        differs = (self.from_first & self.from_second).any(0)
        # a number beyond the last column means that digits of two columns are mixed
        is_beyond = self.columns_read >= self.column_count
        return np.flatnonzero(self.from_none | differs | is_beyond)


class Trials:
    """What rows that were tried have said of encoded columns; explained rows can be added.

    Args:
        encode: rows of numbers `(N, F)` as encoded columns, float64 `(N, E)`.
        rows: the first rows to try, `(N, F)`.
        value_lists: what each column is tried with beside other cells, F of them.

    Attributes:
        reader: of the digits.
        tolerance: of each encoded column, `(E,)`.
        partners: rows that explained rows are mixed with.
        conflict: the first encoded column that depends on several, if there is one. Nothing is tried after it.
    """

    def __init__(self, encode: Encode, rows: Array, value_lists: Sequence[Array]) -> None:
        self.encode = encode
        # the first rows, which are in random order already
        first_rows = rows[:_PARTNERS]
        self.partners = EncodedRows(first_rows, encode(first_rows))
        self.width = self.partners.encoded.shape[1]
        self.reader = DigitReader(rows.shape[1], self.width)
        self.tolerance = measure_rounding(self.partners.encoded)
        self.conflict: Conflict | None = None
        self._mix_all(rows)
        if self.reader.column_count > 1:
            self._redraw_others(value_lists)

    def _mix_all(self, rows: Array) -> None:
        """Mix all rows with each other, in chunks."""
        # fixed seeds, so that the same pipeline is judged in the same way each time
        generator = np.random.default_rng(1)
        size = max(_FEWEST_ROWS, _CELLS // self.width)
        chunks = max(1, len(rows) // size)
        for cells in np.array_split(rows, chunks):
            chunk = EncodedRows(cells, self.encode(cells))
            self.tolerance = np.maximum(self.tolerance, measure_rounding(chunk.encoded))
            count = len(cells)
            digits_at_a_time = max(1, _CELLS // (count * self.width))
            for start in range(0, self.reader.digits, digits_at_a_time):
                stop = min(start + digits_at_a_time, self.reader.digits)
                digits = np.arange(start, stop)
                firsts = np.tile(np.arange(count), len(digits))
                seconds = np.concatenate([_draw_partners(generator, count) for _ in digits])
                digit_of_pair = np.repeat(digits, count)
                self._mix(digit_of_pair, chunk[firsts], chunk[seconds])

    def _redraw_others(self, value_lists: Sequence[Array]) -> None:
        """Compare rows with copies in which each value of a column is beside other cells, in chunks."""
        generator = np.random.default_rng(2)
        made_rows = make_rows(generator, value_lists)
        most_copies = _COPIED_CELLS // (len(made_rows) * self.width)
        copies = min(max(most_copies, _FEWEST_COPIES), _MOST_COPIES)
        size = max(_FEWEST_ROWS, _CELLS // self.width)
        chunks = max(1, len(made_rows) // size)
        for cells in np.array_split(made_rows, chunks):
            chunk = EncodedRows(cells, self.encode(cells))
            self.tolerance = np.maximum(self.tolerance, measure_rounding(chunk.encoded))
            self._read_new(chunk)
            # a call of a pipeline costs far more than its rows, so several copies are encoded by one
            copies_at_a_time = max(1, _CELLS // (len(cells) * self.width))
            for start in range(0, copies, copies_at_a_time):
                if self.conflict is not None:
                    return
                count = min(copies_at_a_time, copies - start)
                drawn_sources = [_draw_sources(generator, cells.shape) for _ in range(count)]
                self._try_copies(chunk, drawn_sources)

    def _try_copies(self, chunk: EncodedRows, drawn_sources: Sequence[Array]) -> None:
        """Encode copies of a chunk at once, and compare one after another until there is a conflict.

        Args:
            chunk: rows.
            drawn_sources: for each copy, the row of the chunk from which each cell comes, `(N, F)`.
        """
        cells_of_copies = []
        for sources in drawn_sources:
            cells_of_copies.append(np.take_along_axis(chunk.cells, sources, axis=0))
        all_cells = np.concatenate(cells_of_copies)
        all_copies = EncodedRows(all_cells, self.encode(all_cells))
        rows_of_copy = np.arange(len(chunk.cells))
        for number, sources in enumerate(drawn_sources):
            if self.conflict is not None:
                return
            copy = all_copies[number * len(rows_of_copy) + rows_of_copy]
            self._read_new(copy)
            self._compare_copies(chunk, copy, sources)

    def _compare_copies(self, chunk: EncodedRows, copy: EncodedRows, sources: Array) -> None:
        """Find an encoded column that differs between rows with the same value of the column that was read for it.

        Args:
            chunk: rows.
            copy: rows whose cells are theirs.
            sources: the row of the chunk from which each cell comes, `(N, F)`.
        """
        columns_read = self.reader.columns_read
        for column in np.unique(columns_read[columns_read >= 0]).tolist():
            numbers = np.flatnonzero(columns_read == column)
            sources_of_column = np.ix_(sources[:, column], numbers)
            expected = chunk.encoded[sources_of_column]
            copied = copy.encoded[:, numbers]
            differs = ~are_close(copied, expected, self.tolerance[numbers])
            if differs.any():
                row, position = np.argwhere(differs)[0].tolist()
                number = int(numbers[position])
                # a pair that shows the difference, from which the other column is sought
                source = sources[row : row + 1, column]
                pair = (copy[np.array([row])], chunk[source])
                ends = self._list_ends(number, pair, chunk)
                self.conflict = Conflict(number, self._collect_columns(number, ends))
                return

    def _list_ends(
        self, number: int, pair: tuple[EncodedRows, EncodedRows], others: EncodedRows
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Between which cells to walk, and in which order: between two rows, and from them to others that differ."""
        order = np.arange(self.reader.column_count)
        first, second = pair
        yield first.cells[0], second.cells[0], order
        values = others.encoded[:, number]
        for start in pair:
            is_same = are_close(values, start.encoded[:, number], self.tolerance[number])
            for end in others.cells[~is_same][:_WITNESSES]:
                yield start.cells[0], end, order

    def add(self, rows: EncodedRows) -> bool:
        """Mix explained rows with rows of the reference: all digits of few rows, one digit of each of many.

        Returns:
            Whether there is a conflict, or an encoded column was read for the first time.
        """
        if self.reader.column_count == 1:
            return False
        count_before = np.count_nonzero(self.reader.columns_read < 0)
        digits = self.reader.digits
        every_row = np.arange(len(rows.cells))
        self.tolerance = np.maximum(self.tolerance, measure_rounding(rows.encoded))
        mixes_of_round = 2 * digits * max(1, len(every_row))
        rounds = min(_ROUNDS, _MIXES // mixes_of_round)
        if rounds > 0:
            self._mix_with_partners(every_row.repeat(rounds * digits), rows)
        else:
            self._mix_with_partners(every_row, rows)
            self._read_new(rows)
        count_after = np.count_nonzero(self.reader.columns_read < 0)
        return self.conflict is not None or bool(count_after < count_before)

    def _read_new(self, rows: EncodedRows) -> None:
        """Mix rows in which encoded columns move for the first time by all digits, one row for each such column."""
        unread = np.flatnonzero(self.reader.columns_read < 0)
        usual_values = self.partners.encoded[:1, unread]
        values = rows.encoded[:, unread]
        is_new = ~are_close(values, usual_values, self.tolerance[unread])
        has_new = is_new.any(0)
        first_with_each = np.unique(is_new.argmax(0)[has_new])
        mixes_of_row = _ROUNDS * self.reader.digits
        self._mix_with_partners(first_with_each.repeat(mixes_of_row), rows)

    def _mix_with_partners(self, numbers: Array, rows: EncodedRows) -> None:
        """Mix rows by the digits in turn, each as the first and as the second of its pair."""
        size = max(_FEWEST_ROWS, _CELLS // (2 * self.width))
        for start in range(0, len(numbers), size):
            stop = min(start + size, len(numbers))
            positions = np.arange(start, stop)
            explained = rows[numbers[positions]]
            # the partner does not follow from the digit, so that a digit meets all partners
            partners = (positions * 7 + positions // _PARTNERS) % len(self.partners.cells)
            others = self.partners[partners]
            digits = positions % self.reader.digits
            self._mix(digits, explained, others)
            self._mix(digits, others, explained)

    def _mix(self, digits: Array, first: EncodedRows, second: EncodedRows) -> None:
        """Mix pairs of rows by these digits `(N,)`, and read what becomes of each encoded column."""
        if self.conflict is not None or not len(digits):
            return
        masks = self.reader.masks[digits]
        cells = np.where(masks, first.cells, second.cells)
        mixed = EncodedRows(cells, self.encode(cells))
        self.reader.add(digits, first.encoded, second.encoded, mixed.encoded, self.tolerance)
        conflicts = self.reader.conflicts
        if len(conflicts):
            number = int(conflicts[0])
            columns = self._find_columns(number, masks, first, second, mixed)
            self.conflict = Conflict(number, columns)

    def _find_columns(
        self, number: int, masks: Array, first: EncodedRows, second: EncodedRows, mixed: EncodedRows
    ) -> tuple[int, ...]:
        """The columns on which an encoded column depends, found by changing a pair's cells one after another.

        The cells that the mixed row has from the second row come first. So the walk passes the mixed row, and meets a
        change on each side of it where the mixed row is like neither. The way back meets what hid behind a change.
        """
        tolerance = self.tolerance[number]
        start = first.encoded[:, number]
        end = second.encoded[:, number]
        middle = mixed.encoded[:, number]
        as_first = are_close(middle, start, tolerance)
        as_second = are_close(middle, end, tolerance)
        kinds = (~as_first & ~as_second, as_first & ~as_second, as_second & ~as_first)
        witnesses = [np.flatnonzero(kind)[:_WITNESSES] for kind in kinds]
        pairs = np.concatenate(witnesses)
        orders = [np.argsort(masks[pair], kind="stable") for pair in pairs]
        ends = zip(first.cells[pairs], second.cells[pairs], orders, strict=True)
        return self._collect_columns(number, ends)

    def _collect_columns(
        self, number: int, ends: Iterable[tuple[Array, Array, Array]]
    ) -> tuple[int, ...]:
        """The columns that change an encoded one on walks there and back, each from a row to a row in an order."""
        columns: set[int] = set()
        for start, end, order in ends:
            for direction in (order, order[::-1]):
                walk = _walk(start, end, direction)
                passed = self.encode(walk)[:, number]
                is_same = are_close(passed[1:], passed[:-1], self.tolerance[number])
                columns |= set(direction[~is_same].tolist())
            if len(columns) > 1:
                break
        return tuple(sorted(columns))


def _walk(start: Array, end: Array, order: Array) -> Array:
    """Rows `(F + 1, F)` from one to another, with one more cell changed in each, in this order."""
    walk = np.repeat(start[None], len(order) + 1, axis=0)
    for step, column in enumerate(order, 1):
        walk[step:, column] = end[column]
    return walk


def are_close(values: Array, others: Array, tolerance: Array) -> Array:
    """Where encoded values `(N, E)` or `(N,)` are the same but for rounding; NaN is the same as NaN."""
    close = np.asarray(values == others)
    # of one-hot columns, these are few
    unequal = np.nonzero(~close)
    left = values[unequal]
    right = np.broadcast_to(others, values.shape)[unequal]
    allowed = np.broadcast_to(tolerance, values.shape)[unequal]
    with np.errstate(invalid="ignore"):
        rounded = np.abs(left - right) <= allowed
    are_nan = np.isnan(left) & np.isnan(right)
    close[unequal] = rounded | are_nan
    return close


def measure_rounding(encoded: Array) -> Array:
    """How much encoded columns `(N, E)` may differ by rounding, `(E,)`: vectorised functions round by position.

    Columns of whole numbers are exact but for their last places. Others that single precision holds come from it.
    """
    values = np.where(np.isfinite(encoded), encoded, 0.0)
    fits_single = (values == values.astype(np.float32)).all(0)
    has_fractions = (values != values.round()).any(0)
    # whole numbers fit single precision as well, and say nothing of it
    is_single = fits_single & has_fractions
    precision = np.where(is_single, np.finfo(np.float32).eps, np.finfo(np.float64).eps)
    largest = np.abs(values).max(axis=0, initial=0.0)
    return np.asarray(_ROUNDING * precision * largest)


def _draw_sources(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """For each cell of a table `(N, F)` the row from which a copy has it: those of each column in another order."""
    rows, columns = shape
    return generator.permuted(np.tile(np.arange(rows)[:, None], columns), axis=0)


def _draw_partners(generator: np.random.Generator, count: int) -> Array:
    """A partner for each of some rows, another row wherever there is one; each row is a partner once."""
    cycle = generator.permutation(count)
    partners = np.empty(count, dtype=np.int64)
    partners[cycle] = np.roll(cycle, 1)
    return partners


def choose_rows(table: Table) -> Array:
    """Rows `(N, F)` in which columns are tried, in a random order that is always the same."""
    generator = np.random.default_rng(0)
    reference = table.rows.numpy()
    count = min(_REFERENCE_ROWS, len(reference))
    spaced = np.linspace(0, len(reference) - 1, count)
    chosen_rows = reference[spaced.round().astype(int)]
    made_rows = make_rows(generator, list_all_values(table))
    return generator.permutation(np.concatenate([chosen_rows, made_rows]))


def make_rows(generator: np.random.Generator, value_lists: Sequence[Array]) -> Array:
    """Rows `(N, F)` in which each column takes all of its values equally often, and apart from the other columns."""
    count = max(_MADE_ROWS, *map(len, value_lists))
    made_columns = [generator.permutation(np.resize(values, count)) for values in value_lists]
    return np.stack(made_columns, axis=1)


def list_all_values(table: Table) -> list[Array]:
    """What each column is tried with."""
    reference = table.rows.numpy()
    return [
        list_values(column, cells) for column, cells in zip(table.columns, reference.T, strict=True)
    ]


def list_values(column: Column, seen: Array) -> Array:
    """What a column is tried with: its categories or its different numbers, and a missing cell.

    Args:
        column: what is known of it.
        seen: its numbers in the reference, `(B,)`.
    """
    is_empty = seen < column.edge
    if column.categories:
        values = np.arange(len(column.categories), dtype=float)
    else:
        values = _list_numbers(column, seen[~is_empty])
    empty_codes = np.unique(seen[is_empty])
    if column.missing is not None:
        empty_codes = np.union1d(empty_codes, [column.missing])
    return np.concatenate([values, empty_codes])


def _list_numbers(column: Column, seen: Array) -> Array:
    """All different numbers, or of too many quantiles; and all steps of the range, or places in it."""
    has_steps = column.kind != "number" and column.unit != "s"
    if has_steps and column.high - column.low < _ALL_VALUES:
        return np.arange(column.low, column.high + 1)
    evenly_spaced = np.linspace(column.low, column.high, _PLACES)
    distinct = np.unique(seen)
    if len(distinct) > _ALL_VALUES:
        shares = np.linspace(0, 1, _QUANTILES)
        of_distinct = np.quantile(distinct, shares, method="nearest")
        of_all = np.quantile(seen, shares, method="nearest")
        distinct = np.concatenate([of_distinct, of_all])
    if has_steps:
        evenly_spaced = evenly_spaced.round()
    return np.unique(np.concatenate([distinct, evenly_spaced]))
