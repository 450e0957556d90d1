"""The tables of the pages on estimators and on photographs: they agree with themselves, and with the stored study."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from standfast.report import exports

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def read_rows(text: str) -> list[list[str]]:
    """The cells of all tables in a text, without the rows of dashes."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line[:1] == "|"
    ]
    return [row for row in rows if set("".join(row)) - set("-: ")]


def cut_block(text: str, name: str) -> str:
    found = re.search(f"<!-- {name}: begin -->(.*?)<!-- {name}: end -->", text, re.DOTALL)
    assert found
    return found.group(1)


def test_estimators_agree_with_their_table() -> None:
    text = (HERE / "estimators.md").read_text(encoding="utf-8")
    (_, *estimators), *rows = read_rows(cut_block(text, "exact"))
    _, *headline = read_rows(cut_block(text, "headline"))
    assert [row[0] for row in headline] == estimators
    for column, (name, share, biases, *_) in enumerate(headline, 1):
        cells = [row[column] for row in rows if row[column] != "-"]
        counts = [cell.split(", ")[1].split("/") for cell in cells]
        held, runs = (sum(int(count[end]) for count in counts) for end in (0, 1))
        assert share.endswith(f"of {runs}"), name
        assert float(share.split("%")[0]) == pytest.approx(100 * held / runs, abs=1), name
        found = [float(cell.split()[0]) for cell in cells]
        assert biases == f"{min(found):+.2f} to {max(found):+.2f}", name


def test_the_page_for_users_says_the_same_about_estimators() -> None:
    """What docs/estimators.md repeats of the table."""
    _, *headline = read_rows(
        cut_block((HERE / "estimators.md").read_text(encoding="utf-8"), "headline")
    )
    page = (ROOT / "docs" / "estimators.md").read_text(encoding="utf-8")
    shares = {name: share.split(" of ")[0] for name, share, *_ in headline}
    for name in ("standfast", "SAFARI, M = 10", "SAFARI, M = 50", "SAFARI, M = 250"):
        assert f"{shares[name]}" in page, name


#: the columns of the tables of photographs, by their page and the headings that they are under
CAMERA = "Does the map hold when a camera changes the photo?"
PAGE, HIDDEN = "papers/safari/photographs.md", "worst case, 4/255"
WORST = ["worst case, rotation", "worst case, brightness", "worst case, JPEG"]
PHOTOGRAPHS = {
    ("docs/imagenet.md", CAMERA): [*WORST, "probability, natural changes"],
    (PAGE, "Does the map hold when nobody sees the change?"): [
        HIDDEN,
        "max sensitivity",
        "attack on the map",
    ],
    (PAGE, "Does the map go with the network?"): [
        "corruption curve",
        "c-Eval",
        "data SenC",
        "parameter SenC",
    ],
}


def read_section(page: str, heading: str) -> list[list[str]]:
    """The rows of the tables under a heading, without the first row."""
    text = (
        (ROOT / page)
        .read_text(encoding="utf-8")
        .partition(f"\n## {heading}\n")[2]
        .partition("\n## ")[0]
    )
    return read_rows(text)[1:]


def write_cell(row: dict[str, Any] | None) -> str:
    """A median with its interval and the mark of the best, as the page on photographs writes them."""
    if row is None or not row["count"]:
        return "–"
    percent = row["label"] == "probability, natural changes"
    value, low, high = (
        f"{math.exp(row[end]):.0%}" if percent else f"{row[end]:z.2f}"
        for end in ("value", "low", "high")
    )
    bound = {"upper": "at most ", "lower": "at least ", None: ""}[row["bound"]]
    interval = "" if bound == "at most " and row["high"] == row["value"] else f" [{low}, {high}]"
    return bound + value + interval + {"best": r" \*", "tied": " ="}.get(row["verdict"], "")


def test_tables_of_photographs_are_those_of_the_submission() -> None:
    submission = pytest.importorskip("standfast_board.submission", reason="needs board/")
    results = submission.read_submission(ROOT / "board/submissions/imagenet_lite0.json.gz").results
    found = exports.summary(results).rows(named=True)
    of = {(row["explainer"], row["label"]): row for row in found}
    for place, labels in PHOTOGRAPHS.items():
        *rows, (_, *counts) = read_section(*place)[:11]
        assert {row[0].strip("*") for row in rows} == {row["explainer"] for row in found}
        assert counts == [str(of["Grad-CAM", label]["count"]) for label in labels]
        for name, *cells in rows:
            assert cells == [write_cell(of.get((name.strip("*"), label))) for label in labels], name
    # the second table under the first heading: on how many photos the worst map is an unrelated one
    for names, *counts in read_section("docs/imagenet.md", CAMERA)[12:]:
        for name in names.split(", "):
            frames = [
                results.samples.filter(pl.col("explainer") == name, pl.col("label") == label)
                for label in WORST
            ]
            assert counts == [str(row["misinterpreted"].sum()) for row in frames], name
