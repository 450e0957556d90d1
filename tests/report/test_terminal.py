"""The tables of the terminal and of notebooks: they show the numbers of the summary, in ASCII, with names escaped."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from report_builder import BAD, GOOD, Builder
from typer.testing import CliRunner

from standfast.cli.commands import app
from standfast.errors import ArgumentError
from standfast.report import Results
from standfast.report.sentences import describe_leader, say
from standfast.report.terminal import format_text
from standfast.results import Failure, MetricDecision
from standfast.results.formatting import format_estimate, format_interval, to_ascii


def many(builder: Builder) -> Results:
    """Explainers that pass, fail and are undecided, not in the order in which they are to be shown; and a control."""
    rng = np.random.default_rng(0)
    builder.other("random", [0.0] * 12)
    for name, middle in (
        ("same", 0.99),
        ("open", 0.95),
        ("weak", 0.2),
        ("second", 0.8),
        ("first", 0.85),
    ):
        values = (middle + rng.normal(0, 0.003, 12)).tolist()
        builder.worst(name, values)
        builder.other(name, values)
        builder.checks(
            name,
            excess=0.0 if name == "same" else 0.5,
            removal=(0.2, 0.9) if name == "open" else (0.9, 1.0),
            unrelated=0.9 if name == "same" else 0.1,
        )
    builder.extra["controls"] = ["random"]
    return builder.found()


def rows_of(text: str) -> dict[str, list[str]]:
    """The cells of each row of a text, by the name of the explainer, in the order of the rows."""
    table = text.partition("\n\n")[2].partition("\n\n")[0]
    return {
        line.split()[0]: re.split(r"  +", line)[1:]
        for line in table.splitlines()
        if re.match(r"[\w<]", line)
    }


def test_the_matrix_has_marks_for_quality_and_for_the_best(builder: Builder) -> None:
    results = many(builder)
    text, summary = str(results), results.summary
    rows = rows_of(text)
    # by standing, then by quality and rank
    assert list(rows) == [
        "first",
        "second",
        "weak",
        "open",
        "same",
        "random",
    ]
    assert summary.sort_explainers("digits", "lenet") == list(rows)
    value = {row.explainer: format_estimate(row.estimate, 3) for row in summary.metrics[1].rows}
    assert (rows["first"][0], rows["first"][-1]) == ("yes", f"{value['first']} +*")
    assert (rows["second"][0], rows["second"][-1]) == ("yes", f"{value['second']} +")
    assert (rows["weak"][0], rows["weak"][-1]) == ("yes", f"{value['weak']} x")
    assert (rows["open"][0], rows["open"][-1]) == ("undecided", f"{value['open']} ?")
    assert rows["same"][-1] == f"{value['same']} o"  # the best value of all, and no star
    assert rows["random"] == ["0", "-"]
    assert re.search(r"\n-+\nrandom ", text)
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()  # a terminal of any encoding can print it
    words = " ".join(text.split())
    assert " ".join(str(results.verdict()).split()) in words
    assert "same map for every input" in words


def test_several_that_are_best_have_another_mark_than_one_alone(builder: Builder) -> None:
    near = [value - 0.0005 * (-1) ** n for n, value in enumerate(GOOD)]
    for name, values in (("a", GOOD), ("b", near), ("c", BAD)):
        builder.worst(name, values)
    results = builder.found()
    assert results.summary.metrics[0].stars == {"a": "tied", "b": "tied"}
    assert [cells[-1][-1] for cells in rows_of(str(results)).values()] == ["=", "=", "6"]
    assert "*" not in str(results)
    page = results._repr_html_()
    assert (page.count("★"), page.count("☆")) == (1, 3)  # one of each is that of the legend


def test_notes_and_intervals_stand_only_in_the_long_form(builder: Builder) -> None:
    results = builder.two()
    # the order statistics of 12 values that hold the median with 95% confidence
    low, high = (
        GOOD[2],
        GOOD[9],
    )
    assert rows_of(str(results)) == {
        "steady": ["0.905", "*"],
        "shaky": ["0.206"],
        "broken": ["failed"],
    }
    interval = f"[{low:.3f}, {high:.3f}]"
    assert interval not in str(results)
    assert interval in results.to_text(verbose=True)
    assert "Failed: broken failed for 1 of 1 metric: ValueError: no" in str(results)
    with pytest.raises(ArgumentError, match="verbose: expected True or False, got 'yes'"):
        results.to_text(verbose="yes")  # type: ignore[arg-type]


def test_the_long_form_has_the_numbers_of_the_checks_that_are_not_passed(builder: Builder) -> None:
    results = many(builder)
    text = results.to_text(verbose=True)
    check = results.sanity["digits", "lenet", "open"].find("removal")
    assert check.low is not None
    assert check.high is not None
    assert f"0.55 [{check.low:.2f}, {check.high:.2f}]" in text
    assert "same, failed" in text
    assert "first, " not in text
    assert max(map(len, text.splitlines())) <= 80


def test_another_leader_by_medians_is_said_of_explainers_that_pass_only(builder: Builder) -> None:
    results = many(builder)
    # though `same` and `open` have better medians
    assert describe_leader(results.summary.metrics[1]) == ""
    other = Builder(builder.store.folder.address + "/other")
    other.worst("steady", [0.51] * 13 + [0.52] * 6 + [0.91] * 6)
    other.worst("odd", [0.50] * 12 + [0.53] + [0.9] * 12)
    other.worst("bad", [0.1 + 0.001 * n for n in range(25)])
    assert "odd (0.530)" in describe_leader(other.found(25).summary.metrics[0])


def test_probabilities_are_in_percent_or_one_in_so_many_and_bounds_are_marked(
    builder: Builder,
) -> None:
    for name, values in (("a", [-9.3] * 6), ("b", [-30.0] * 6)):
        builder.probability(name, values, censored=[name == "b"] * 6)
    results = builder.found(6)
    rows = rows_of(str(results))
    assert rows["a"] == ["1 in 11,000"]
    assert rows["b"] == ["<= 1 in 10^13", "*"]
    assert "inf" not in str(results)
    table = results.table()
    assert dict(table.select("explainer", "bound").iter_rows()) == {"a": None, "b": "upper"}


def test_names_are_escaped_in_notebooks(builder: Builder) -> None:
    builder.worst("<script>alert(1)</script>", GOOD)
    builder.worst("b", BAD)
    builder.failure("<b>", "Traceback")
    page = builder.found()._repr_html_()
    assert "<script" not in page
    assert page.count("<b>") == page.count("</b>") == 1  # the verdict
    assert "&lt;script&gt;" in page
    assert re.findall(r">(0\.905[^<]*)<", page) == ["0.905 ★"]
    assert "&lt;b&gt; failed for 1 of 1 metric: ValueError: no" in page


def test_a_notebook_has_a_word_and_a_colour_for_each_quality(builder: Builder) -> None:
    page = many(builder)._repr_html_()
    cells = dict(re.findall(r"background:([^']*)'>[^<]*<br><small>([\w ]+)</small>", page))
    assert len(cells) == 4
    assert sorted(cells.values()) == ["bad", "good", "no better than a control", "undecided"]
    assert cells["none"] == "undecided"
    assert page.count("★") == 3  # of the best by each of two metrics, and in the legend
    assert (
        page.index(">second<")
        < page.index(">open<")
        < page.index(">same<")
        < page.index(">random<")
    )


def test_the_command_shows_what_print_shows(builder: Builder) -> None:
    results = many(builder)
    folder = builder.store.folder.address
    for arguments, text in (([], str(results)), (["--verbose"], results.to_text(verbose=True))):
        done = CliRunner().invoke(app, ["show", folder, *arguments])
        assert (done.exit_code, done.stdout) == (0, f"{text}\n")
    assert isinstance(CliRunner().invoke(app, ["show", f"{folder}/none"]).exception, ArgumentError)


def test_jobs_that_were_not_run_are_counted(builder: Builder) -> None:
    builder.worst("a", GOOD)
    builder.jobs += ["later", "still later"]
    text = str(builder.found())
    assert "2 of 3 jobs were not run yet." in text
    empty = Builder(builder.store.folder.address + "/none").results()
    assert "No results yet." in str(empty)
    assert empty.table().height == 0
    assert empty.best() == {}


def test_cells_are_the_numbers_of_the_summary(builder: Builder) -> None:
    builder.worst("a", GOOD)
    builder.worst("b", BAD, status=["ok"] * 10 + ["misclassified"] * 2)
    results = builder.found()
    lines = results.to_text(verbose=True).splitlines()
    for row in results.summary.rows:
        (line,) = (each for each in lines if each.split()[:1] == [row.explainer])
        assert to_ascii(format_estimate(row.estimate, row.spec.decimals)) in line
        assert to_ascii(format_interval(row.estimate, row.spec.decimals)) in line
        assert ("n=10" in line) == (row.explainer == "b")


def test_columns_that_do_not_fit_stand_below_and_long_names_are_wrapped(builder: Builder) -> None:
    names = ["a", "integrated gradients of a model", "integrated gradients of another model"]
    labels = [
        f"{word} metric"
        for word in ("first", "second", "third", "fourth", "fifth", "sixth", "last")
    ]
    for label in labels:
        for name in names:
            builder.worst(name, GOOD, label=label)
    for count in (3, 7):
        text = format_text(summarised(builder.found(), labels[:count]))
        assert max(map(len, text.splitlines())) <= 80
        assert text.count("\na ") == (1 if count == 3 else 2)
        assert len(re.findall(r"\nintegrated gradients .*\nof a model\n", text)) == text.count(
            "\na "
        )


def test_lines_keep_to_any_width(builder: Builder) -> None:
    results = many(builder)
    for width in range(60, 81):
        for verbose in (False, True):
            assert max(map(len, format_text(results, verbose, width).splitlines())) <= width


def summarised(results: Results, labels: list[str]) -> Results:
    """The same with some of the metrics."""
    metrics = {label: results.manifest["metrics"][label] for label in labels}
    samples = results.samples.filter(results.samples["label"].is_in(labels))
    jobs = results.jobs.filter(results.jobs["label"].is_in(labels))
    return replace(
        results, manifest={**results.manifest, "metrics": metrics}, samples=samples, jobs=jobs
    )


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (
            MetricDecision("unable", "few samples", 2, 2, 6),
            "2 samples have a value for both explainers; a test at 5% needs at least 6.",
        ),
        (
            MetricDecision("open", "no difference", 3, 20, 1200),
            "20 samples show no difference between explainers. If the differences stay as they are, about 1,000 would "
            "show one.",
        ),
        (
            MetricDecision("decided", "some worse", 3, 9, None, ("a", "b"), ("c",)),
            "a is better than c, and not shown to be better than b (9 samples, tests at 5%).",
        ),
        (
            MetricDecision("decided", "all worse", 2, 9, None, ("a",), ("b",)),
            "a is better than b (9 samples, tests at 5%).",
        ),
    ],
)
def test_a_sentence_has_the_numbers_of_its_decision(decision: MetricDecision, words: str) -> None:
    assert say("decision", decision) == words


def test_words_of_strangers_stay_as_they_are() -> None:
    failure = Failure("odd , here : 'x' .", ("a", "b"), ("m",), 2, True)
    assert (
        say("failure", failure)
        == "a, b failed for 1 of 2 metrics (m), on a part of the samples: odd , here : 'x' ."
    )
