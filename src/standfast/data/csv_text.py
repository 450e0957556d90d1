"""CSV files as spreadsheets write them: encodings, separators and decimal commas, in one form for all readers."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
from collections.abc import Collection
from pathlib import Path

import polars as pl

from standfast.errors import ArgumentError, check

#: cells that stand for a missing value, as pandas reads them, beside empty ones
MISSING_WORDS = frozenset(
    (
        *("NA", "N/A", "n/a", "<NA>", "#NA", "#N/A", "#N/A N/A", "NULL", "null", "None"),
        *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    )
)
#: the marks at the beginning of a file that name its encoding; that of 32 bits begins as that of 16 bits does
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}
_SEPARATORS = (",", ";", "\t", "|")
#: rows that show which separator a file has
_TRIED = 200
_DIGITS = r"^[+-]?\d+$"
_WITH_COMMA = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$"
_WITH_POINT = r"^[+-]?\d*\.\d+([eE][+-]?\d+)?$"
#: such as 1.234 and 1.234,5, with points for thousands
_GROUPED_BY_POINTS = r"^[+-]?\d{1,3}(\.\d{3})+(,\d+)?$"
#: such as 1,234: a comma for thousands, or a decimal one
_MAYBE_THOUSANDS = r"^[+-]?[1-9]\d{0,2},\d{3}$"


def decode_text(path: Path, content: bytes) -> str:
    """The text of a file in UTF-8, or in UTF-16 or UTF-32 with the mark that says so.

    Raises:
        ArgumentError: it has another encoding, which is not guessed: names would be wrong without a word.

    >>> decode_text(Path("a.csv"), "größe,b".encode("utf-16"))
    'größe,b'
    """
    encoding = next((name for mark, name in _MARKS.items() if content.startswith(mark)), "utf-8")
    expected = 'texts in UTF-8 (in a spreadsheet "CSV UTF-8"; elsewhere iconv -f WINDOWS-1252 -t UTF-8, say)'
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        got = f"byte {content[error.start]:#x} in line {line} of {path.name}"
        if encoding != "utf-8":
            got += f", which begins as {encoding.upper()}"
        raise ArgumentError("path", expected, got) from error
    # such a file could be read, and every second character would be missing
    check(
        "\0" not in text,
        "path",
        expected,
        f"zero bytes in {path.name}, as in UTF-16 without its mark",
    )
    return text


def read_csv_text(path: Path, content: bytes, texts: Collection[str] | None = ()) -> bytes:
    """A CSV file in UTF-8, with commas between cells and decimal points, whatever it has.

    Args:
        path: of the file, for messages.
        content: of the file.
        texts: the columns that stay as they are, also where all cells look like numbers; None for all.

    Raises:
        ArgumentError: another encoding than `decode_text` reads; numbers of which it is not known whether a mark is
            that of thousands.
        polars.exceptions.PolarsError: rows with more cells than the header.

    >>> read_csv_text(Path("a.csv"), b"a;b\\n1,5;x\\n-0,25;y\\n")
    b'a,b\\n1.5,x\\n-0.25,y\\n'
    """
    text, separator = _cut_declaration(decode_text(path, content))
    separator = separator or find_separator(text)
    if separator == ",":
        # with commas between the cells, a decimal point is the only one that is possible
        return text.encode()
    # as texts, so that codes such as 007 stay as they are
    table = pl.read_csv(text.encode(), separator=separator, infer_schema=False)
    if texts is not None:
        table = _write_decimal_points(path, table, texts)
    return table.write_csv().encode()


def find_separator(text: str) -> str:
    r"""What stands between cells: with which all rows have as many cells as the header, and most; a comma if none.

    >>> find_separator("a;b\n1,5;2\n"), find_separator("a,b\n1;5,2\n"), find_separator("text\nHello; it\n")
    (';', ',', ',')
    """
    widths = {}
    for separator in _SEPARATORS:
        widths[separator] = _count_cells(text, separator)
    return max(_SEPARATORS, key=lambda separator: widths[separator])  # the first of equals


def _cut_declaration(text: str) -> tuple[str, str]:
    """The text without a first line such as `sep=;`, which spreadsheets write for each other; and its separator."""
    line, _, rest = text.partition("\n")
    declared = line.strip().removeprefix("sep=")
    if line.startswith("sep=") and declared in _SEPARATORS:
        return rest, declared
    return text, ""


def _count_cells(text: str, separator: str) -> int:
    """The number of cells that all rows have; 1 where they differ."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        widths = {len(row) for row in itertools.islice(rows, _TRIED) if row}
    except csv.Error:  # a cell that is too long for it
        return 1
    if len(widths) != 1:
        return 1
    return widths.pop()


def _write_decimal_points(path: Path, table: pl.DataFrame, texts: Collection[str]) -> pl.DataFrame:
    """A table of strings, with points in the place of decimal commas."""
    numbers = [name for name in table.columns if name not in texts and _are_numbers(table[name])]
    with_commas = [name for name in numbers if _has(table[name], _WITH_COMMA)]
    if not with_commas:
        return table
    expected = "numbers without marks for thousands"
    doubtful = []
    have_points = False
    for name in numbers:
        column = table[name]
        # points for thousands would be read as decimal ones
        grouped = _find(column, _GROUPED_BY_POINTS)
        check(grouped is None, "path", expected, f"{path.name} with {grouped} in the column {name}")
        have_points = have_points or _has(column, _WITH_POINT)
        if name in with_commas and not _has_decimal_comma(column):
            doubtful.append(name)
    # a comma is one of decimals if any column says so, unless another one has decimal points
    are_all_doubtful = len(doubtful) == len(with_commas)
    if doubtful and (are_all_doubtful or have_points):
        first = doubtful[0]
        cell = _find(table[first], _WITH_COMMA)
        got = f"{path.name} with {cell} in the column {first}: is its comma one of decimals?"
        raise ArgumentError("path", f"{expected}, or decimal points", got)
    return table.with_columns(pl.col(with_commas).str.replace(",", ".", literal=True))


def _are_numbers(column: pl.Series) -> bool:
    """Whether all cells but missing ones are numbers in some form."""
    cells = _drop_missing(column)
    forms = (_DIGITS, _WITH_COMMA, _WITH_POINT, _GROUPED_BY_POINTS)
    has_form = cells.str.contains("|".join(forms))
    return cells.len() > 0 and bool(has_form.all())


def _has_decimal_comma(column: pl.Series) -> bool:
    """Whether a cell has a comma that is none of thousands."""
    cells = _drop_missing(column)
    has_comma = cells.str.contains(_WITH_COMMA)
    may_be_thousands = cells.str.contains(_MAYBE_THOUSANDS)
    return bool((has_comma & ~may_be_thousands).any())


def _drop_missing(column: pl.Series) -> pl.Series:
    cells = column.drop_nulls().str.strip_chars(" ")
    is_missing = (cells == "") | cells.is_in(list(MISSING_WORDS))
    return cells.filter(~is_missing)


def _has(column: pl.Series, form: str) -> bool:
    return _find(column, form) is not None


def _find(column: pl.Series, form: str) -> str | None:
    """The first cell of a form; None without one."""
    cells = _drop_missing(column)
    with_form: list[str] = cells.filter(cells.str.contains(form)).to_list()
    if not with_form:
        return None
    return with_form[0]
