"""CSV files as spreadsheets write them: separators, decimal commas, encodings, words for missing cells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import standfast
from standfast.data.csv_text import find_separator, read_csv_text
from standfast.data.user_files import read_frame, read_table, read_texts
from standfast.errors import ArgumentError

pd = pytest.importorskip("pandas", reason="pandas is an extra")

ROWS = [["größe", "b", "label"], ["1.5", "2.5", "0"], ["3.25", "-4.0", "1"]]


def write(folder: Path, rows: list[list[str]], separator: str, encoding: str = "utf-8") -> Path:
    file = folder / "table.csv"
    lines = [separator.join(row) for row in rows]
    file.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
    return file


def with_commas(rows: list[list[str]]) -> list[list[str]]:
    return [rows[0], *([cell.replace(".", ",") for cell in row] for row in rows[1:])]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize(
    ("separator", "commas"), [(",", False), (";", False), (";", True), ("\t", True), ("|", True)]
)
def test_every_reader_reads_the_same(
    tmp_path: Path, separator: str, commas: bool, encoding: str
) -> None:
    file = write(tmp_path, with_commas(ROWS) if commas else ROWS, separator, encoding)
    table = standfast.data.from_file(file)
    assert table.features == ("größe", "b")
    assert table.inputs.tolist() == [[1.5, 2.5], [3.25, -4.0]]
    assert table.labels.tolist() == [0, 1]
    frame, about = read_frame(file, {})
    assert frame.to_dict("list") == {"größe": [1.5, 3.25], "b": [2.5, -4.0], "label": [0, 1]}
    assert about == read_table(file).about


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16-le"])
def test_other_encodings_are_refused_with_the_way_out(tmp_path: Path, encoding: str) -> None:
    file = write(tmp_path, ROWS, ",", encoding)
    for read in (read_table, lambda path: read_frame(path, {}), lambda path: read_texts(path, "b")):
        with pytest.raises(
            ArgumentError, match=r"texts in UTF-8 \(in a spreadsheet .*CSV UTF-8.*of? ?table\.csv"
        ):
            read(file)


def test_a_mark_of_an_encoding_that_the_rest_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes("a,b\n1,2\n".encode("utf-16") + b"\x00")
    with pytest.raises(ArgumentError, match="begins as UTF-16"):
        read_table(tmp_path / "table.csv")


def test_texts_keep_their_commas(tmp_path: Path) -> None:
    rows = [["code", "x", "label"], ["1,5", "0,5", "no"], ["2,5", "1,5", "yes"]]
    file = write(tmp_path, rows, ";")
    frame, _ = read_frame(file, {"code": "text"})
    assert frame.to_dict("list") == {
        "code": ["1,5", "2,5"],
        "x": [0.5, 1.5],
        "label": ["no", "yes"],
    }
    frame, _ = read_frame(file, {"code": ["2,5", "1,5"]})
    assert frame["code"].tolist() == ["1,5", "2,5"]
    assert read_texts(file, "code").texts == ("1,5", "2,5")


def test_quoted_separators_line_breaks_and_a_declaration(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(
        'sep=;\nname;x;label\n"a; b";"1,5";0\n"two\nlines, ""so""";-0,5;1\n'
    )
    frame, _ = read_frame(tmp_path / "table.csv", {})
    assert frame["name"].tolist() == ["a; b", 'two\nlines, "so"']
    assert frame["x"].tolist() == [1.5, -0.5]
    assert read_texts(tmp_path / "table.csv", "name", "label").texts == ("a; b", 'two\nlines, "so"')


def test_missing_cells_beside_decimal_commas(tmp_path: Path) -> None:
    rows = [["x", "town"], ["1,5", "Ulm"], ["", "NA"], ["NA", ""], ["-3", "Bonn"]]
    frame, _ = read_frame(write(tmp_path, rows, ";"), {})
    assert np.array_equal(frame["x"], [1.5, np.nan, np.nan, -3.0], equal_nan=True)
    assert frame["town"].isna().tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("rows", "got"),
    [
        ([["a", "b"], ["1.234,5", "1"], ["2,5", "2"]], r"1\.234,5 in the column a"),
        ([["a", "b"], ["1,5", "1.234"], ["2,5", "12.500"]], r"1\.234 in the column b"),
        (
            [["a", "b"], ["1,234", "1"], ["12,345", "2"]],
            "1,234 in the column a: is its comma one of decimals",
        ),
        (
            [["a", "b"], ["1,234", "5.6"], ["12,345", "2"]],
            "1,234 in the column a: is its comma one of decimals",
        ),
    ],
)
def test_marks_of_thousands_are_not_guessed(
    tmp_path: Path, rows: list[list[str]], got: str
) -> None:
    file = write(tmp_path, [[*row, str(number)] for number, row in enumerate(rows)], ";")
    for read in (read_table, lambda path: read_frame(path, {})):
        with pytest.raises(ArgumentError, match=f"numbers without marks for thousands.*{got}"):
            read(file)


def test_three_decimals_are_decimals_where_another_number_shows_it(tmp_path: Path) -> None:
    frame, _ = read_frame(write(tmp_path, [["a", "b"], ["1,234", "0,5"], ["2,345", "7"]], ";"), {})
    assert frame["a"].tolist() == [1.234, 2.345]
    frame, _ = read_frame(write(tmp_path, [["a", "b"], ["1,234", "x"], ["0,345", "y"]], ";"), {})
    assert frame["a"].tolist() == [1.234, 0.345]


def test_versions_and_numbers_with_points_stay_beside_commas(tmp_path: Path) -> None:
    frame, _ = read_frame(write(tmp_path, [["a", "b"], ["1,5", "1.25"], ["2", "3.5"]], ";"), {})
    assert frame.to_dict("list") == {"a": [1.5, 2.0], "b": [1.25, 3.5]}


def test_rows_that_are_longer_than_the_header_are_refused(tmp_path: Path) -> None:
    """pandas alone would take the first cell of each row as its name."""
    file = write(tmp_path, [["a", "b"], ["1,5", "2"], ["3,5", "4"]], ",")
    for read in (read_table, lambda path: read_frame(path, {}), lambda path: read_texts(path, "a")):
        with pytest.raises(ArgumentError, match="a row has more cells than the header has names"):
            read(file)


def test_words_for_missing_cells_are_texts_where_the_type_says_so(tmp_path: Path) -> None:
    rows = [["country", "zip"], ["NA", "00123"], ["DE", ""], ["", "04567"], ["null", "N/A"]]
    file = write(tmp_path, rows, ",")
    frame, _ = read_frame(file, {"country": "text", "zip": "text"})
    assert frame["country"].fillna("(missing)").tolist() == ["NA", "DE", "(missing)", "null"]
    assert frame["zip"].fillna("(missing)").tolist() == ["00123", "(missing)", "04567", "N/A"]
    for types in ({}, {"country": "category"}):
        frame, _ = read_frame(file, types)
        assert frame["country"].isna().tolist() == [True, False, True, True]
    frame, _ = read_frame(file, {"country": ["DE", "NA"]})
    assert frame["country"].isna().tolist() == [False, False, True, True]


def test_separators() -> None:
    assert find_separator("a;b\n1,5;2,5\n") == ";"
    assert find_separator("a,b\n1,2\n") == ","
    assert find_separator("size, cm;b;c\n1,5;2;3\n") == ";"  # by commas, rows have two cells, too
    assert find_separator("a\tb\n1,5\t2\n") == "\t"
    assert find_separator("text\nOne; two\n") == ","
    assert find_separator('"a;b",c\n"1;2",3\n') == ","
    assert find_separator("") == ","


def test_a_table_with_commas_keeps_its_bytes() -> None:
    content = b'a,b\r\n"1,5",007\r\n\r\n,"x ""y"""\r\n'
    assert read_csv_text(Path("a.csv"), content) == content
