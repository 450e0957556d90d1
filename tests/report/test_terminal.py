"""The tables of the terminal and of notebooks: they show the numbers of the summary, in ASCII, with names escaped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from report_builder import Builder

from standfast.report import Results
from standfast.report.sentences import say
from standfast.report.terminal import format_text
from standfast.results import Decision, Failure
from standfast.results.formatting import format_estimate, format_interval, to_ascii

GOOD, BAD = [0.9 + 0.001 * n for n in range(12)], [0.2 + 0.001 * n for n in range(12)]


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def found(builder: Builder, samples: int = 12) -> Results:
    builder.names["data"] = {name: {**about, "samples": samples} for name, about in builder.names["data"].items()}
    return builder.results()


def two(builder: Builder) -> Results:
    """One explainer that is better on every sample, one that failed."""
    builder.worst("steady", GOOD)
    builder.worst("shaky", BAD)
    builder.failure("broken", "Traceback")
    return found(builder)


def test_the_table_shows_medians_intervals_and_the_best(builder: Builder) -> None:
    text = str(two(builder))
    assert "3 explainers of lenet on 12 samples of digits. Median over samples [95%]:" in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith(("steady", "shaky", "broken"))}
    low, high = GOOD[2], GOOD[9]  # the order statistics of 12 values that hold the median with 95% confidence
    assert rows["steady"].split(maxsplit=1)[1].split() == ["0.905", f"[{low:.3f},", f"{high:.3f}]", "*"]
    assert rows["shaky"].split()[1] == "0.206"
    assert not rows["shaky"].endswith(("*", "="))
    assert rows["broken"].split()[1:] == ["failed"]
    assert "Failed: broken failed for 1 of 1 metric: ValueError: no" in text
    assert text.isascii()  # a terminal of any encoding can print it


def test_probabilities_are_one_in_so_many_and_bounds_are_marked(builder: Builder) -> None:
    for name, values in (("a", [-9.3] * 6), ("b", [-30.0] * 6)):
        builder.probability(name, values, censored=[name == "b"] * 6)
    results = found(builder, 6)
    text = str(results)
    assert " 1 in 11,000 [1 in 11,000, 1 in 11,000]" in text
    assert "<= 1 in 10^13 [below 1 in 10^13, 1 in 10^13]" in text
    assert "inf" not in text
    table = results.table()
    assert dict(table.select("explainer", "bound").iter_rows()) == {"a": None, "b": "upper"}


def test_names_are_escaped_in_notebooks(builder: Builder) -> None:
    builder.worst("<script>alert(1)</script>", GOOD)
    builder.worst("b", BAD)
    builder.failure("<b>", "Traceback")
    page = found(builder)._repr_html_()
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;" in page
    assert re.findall(r"font-weight:bold'>([^<]*)</td>", page) == ["0.905 [0.902, 0.909] *"]
    assert "&lt;b&gt; failed for 1 of 1 metric: ValueError: no" in page


def test_jobs_that_were_not_run_are_counted(builder: Builder) -> None:
    builder.worst("a", GOOD)
    builder.jobs += ["later", "still later"]
    text = str(found(builder))
    assert "2 of 3 jobs were not run yet." in text
    empty = Builder(builder.store.folder.address + "/none").results()
    assert "No results yet." in str(empty)
    assert empty.table().height == 0
    assert empty.best() == {}


def test_cells_are_the_numbers_of_the_summary(builder: Builder) -> None:
    builder.worst("a", GOOD)
    builder.worst("b", BAD, status=["ok"] * 10 + ["misclassified"] * 2)
    builder.probability("a", [-9.3] * 6)
    builder.probability("b", [-30.0] * 6, censored=[True] * 6)
    results = found(builder)
    lines = format_text(results, width=200).splitlines()
    for row in results.summary.rows:
        (line,) = (each for each in lines if each.split()[:1] == [row.explainer])
        assert to_ascii(format_estimate(row.estimate, row.spec.decimals)) in line
        assert to_ascii(format_interval(row.estimate, row.spec.decimals)) in line
    assert "n=10" in "".join(lines)


def test_columns_that_do_not_fit_stand_below(builder: Builder) -> None:
    for label in ("first", "second", "third"):
        builder.worst("a", GOOD, label=label)
        builder.worst("b", BAD, label=label)
    lines = format_text(found(builder), width=60).splitlines()
    rows = [line for line in lines if line.startswith(("a ", "b "))]
    assert [row.split()[0] for row in rows] == ["a", "b"] * 2
    assert max(map(len, rows)) <= 60


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (
            Decision("unable", "few samples", 2, 2, 6),
            "2 samples have a value for both explainers; a test at 5% needs at least 6.",
        ),
        (
            Decision("open", "no difference", 3, 20, 1200),
            "20 samples show no difference between explainers. If the differences stay as they are, about 1,200 would "
            "show one.",
        ),
        (
            Decision("decided", "some worse", 3, 9, None, ("a", "b"), ("c",)),
            "a is better than c, and not shown to be better than b (9 samples, tests at 5%).",
        ),
        (Decision("decided", "all worse", 2, 9, None, ("a",), ("b",)), "a is better than b (9 samples, tests at 5%)."),
    ],
)
def test_a_sentence_has_the_numbers_of_its_decision(decision: Decision, words: str) -> None:
    assert say("decision", decision) == words


def test_words_of_strangers_stay_as_they_are() -> None:
    failure = Failure("odd , here : 'x' .", ("a", "b"), ("m",), 2, True)
    assert say("failure", failure) == "a, b failed for 1 of 2 metrics (m), on a part of the samples: odd , here : 'x' ."
