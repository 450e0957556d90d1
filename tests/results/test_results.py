"""What results say: the table in the terminal and in notebooks, the best explainers, and what failed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from report_builder import PROB, WORST, Builder

import standfast
from standfast.errors import ArgumentError, UnknownNameError
from standfast.report import Results
from standfast.report.sentences import describe_failures

GOOD, BAD = [0.9 + 0.001 * n for n in range(12)], [0.2 + 0.001 * n for n in range(12)]


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def found(builder: Builder, samples: int = 12) -> Results:
    results = builder.results()
    for about in results.manifest["data"].values():
        about["samples"] = samples
    return results


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


def test_an_explainer_that_is_not_shown_to_be_worse_is_marked(builder: Builder) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=12) / 50
    builder.worst("a", [0.5 + 0.001 * n for n in range(12)])
    builder.worst("b", [0.5 + 0.001 * n + x - 0.005 for n, x in enumerate(noise)])
    builder.worst("c", [0.1 + 0.001 * n for n in range(12)])
    findings = found(builder)
    best = findings.best()[WORST]
    assert (set(best.explainers), best.shown, best.samples) == ({"a", "b"}, True, 12)
    verdicts = dict(findings.table().select("explainer", "verdict").iter_rows())
    assert sorted(verdicts.values()) == ["best", "tied", "worse"]
    assert verdicts["c"] == "worse"
    text = str(findings)
    assert "= not shown to be worse than the best" in " ".join(text.split())
    assert sum(line.endswith("=") for line in text.splitlines()) == 1


def test_the_best_is_by_mean_rank_and_another_median_is_said(builder: Builder) -> None:
    # "steady" is a little better on most samples; "odd" is far better on the others, which lifts its median
    builder.worst("steady", [0.51] * 13 + [0.52] * 6 + [0.91] * 6)
    builder.worst("odd", [0.50] * 12 + [0.53] + [0.9] * 12)
    builder.worst("bad", [0.1 + 0.001 * n for n in range(25)])
    findings = found(builder, 25)
    entries = {row["explainer"]: row for row in findings.table().to_dicts()}
    assert entries["odd"]["value"] > entries["steady"]["value"]
    assert (entries["steady"]["verdict"], entries["odd"]["verdict"]) == ("best", "tied")
    assert findings.best()[WORST].explainers == ("steady", "odd")


def test_nothing_is_marked_where_the_tests_decide_nothing(builder: Builder) -> None:
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        builder.worst(name, (0.5 + rng.normal(size=12) / 10).tolist())
    findings = found(builder)
    assert set(findings.table()["verdict"]) == {"undecided"}
    best = findings.best()[WORST]
    assert (len(best.explainers), best.shown) == (3, False)
    text = str(findings)
    assert not any(line.endswith(("*", "=")) for line in text.splitlines())


def test_probabilities_are_also_one_in_so_many_and_bounds_are_marked(builder: Builder) -> None:
    for name, values in (("a", [-9.3] * 6), ("b", [-30.0] * 6)):
        builder.probability(name, values, censored=[name == "b"] * 6)
    findings = found(builder, 6)
    text = str(findings)
    assert "-9.30 (log10 P -4.04, 1 in 11,000)" in text
    assert "<= -30.00 (log10 P <= -13.03, <= 1 in 10^13)" in text
    assert "inf" not in text
    assert "[below -30.00, below -30.00]" in text or "[below -30.00" in text
    table = findings.table()
    assert dict(table.select("explainer", "bound").iter_rows()) == {"a": None, "b": "upper"}


def test_the_table_as_a_frame(builder: Builder) -> None:
    table = two(builder).table()
    columns = ["explainer", "metric", "value", "low", "high", "verdict", "better", "samples", "failure"]
    assert table.columns == columns
    rows = {row["explainer"]: row for row in table.to_dicts()}
    assert rows["steady"]["value"] == pytest.approx(np.median(GOOD))
    assert (rows["steady"]["verdict"], rows["shaky"]["verdict"]) == ("best", "worse")
    assert (rows["broken"]["value"], rows["broken"]["samples"], rows["broken"]["failure"]) == (
        None,
        0,
        "ValueError: no",
    )
    assert rows["steady"]["better"] == "higher"


def test_several_data_sets_have_a_table_each(builder: Builder) -> None:
    for data in ("digits", "letters"):
        builder.worst("steady", GOOD, data=data)
        builder.worst("shaky", BAD if data == "digits" else GOOD, data=data)
    findings = found(builder)
    text = str(findings)
    assert "on 12 samples of digits" in text
    assert "on 12 samples of letters" in text
    assert "data" in findings.table().columns
    assert "model" not in findings.table().columns
    assert findings.best(data="digits")[WORST].explainers == ("steady",)
    assert set(findings.best(data="letters")[WORST].explainers) == {"steady", "shaky"}
    with pytest.raises(ArgumentError, match="one of several: data='digits', model='lenet'; data='letters'"):
        findings.best()
    with pytest.raises(ArgumentError, match="data: expected one of digits, letters, got 'digit'"):
        findings.best(data="digit")


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


def test_a_frame_of_one_metric_has_no_empty_columns(builder: Builder) -> None:
    builder.worst("a", GOOD)
    builder.probability("a", [-9.0] * 12, censored=[True] * 5 + [False] * 7)
    findings = found(builder)
    whole = findings.frame()
    assert whole.columns == ["explainer", "label", "sample", "value", "low", "high", "bound", "status"]
    assert whole.height == findings.samples.height == 24
    assert whole.filter(label=PROB)["bound"].to_list() == findings.frame(PROB)["bound"].to_list()
    assert int(whole["bound"].sum()) == 5
    assert not whole.filter(label=WORST)["bound"].any()
    assert findings.samples["similarity"].null_count() == 12
    one = findings.frame(metric=PROB)
    assert one["label"].unique().to_list() == [PROB]
    assert "similarity" not in one.columns
    assert all(one[name].null_count() < one.height for name in one.columns)
    for words in ("worst case", "worst_case", "Worst_Case: changed explanation"):
        assert findings.frame(words)["label"].unique().to_list() == [WORST]
    with pytest.raises(UnknownNameError, match="metric: expected one of .*got 'worst_cas'"):
        findings.frame("worst_cas")


def test_failures_with_one_reason_stand_together(builder: Builder) -> None:
    for label in ("first", "second"):
        builder.worst("a", GOOD, label=label)
        for name in ("b", "c"):
            builder.job(name, "worst_case", label, {}, None, error=("ModelError: no convolution\nmore", "T"))
    builder.job("a", "worst_case", "second", {}, None, start=12, stop=14, error=("ValueError: odd", "T"))
    assert describe_failures(builder.results().summary) == [
        "b, c failed for 2 of 2 metrics: no convolution",
        "a failed for 1 of 2 metrics (second), on a part of the samples: ValueError: odd",
    ]


def test_jobs_that_were_not_run_are_counted(builder: Builder) -> None:
    builder.worst("a", GOOD)
    builder.jobs += ["later", "still later"]
    text = str(found(builder))
    assert "2 of 3 jobs were not run yet." in text
    empty = Builder(builder.store.folder.address + "/none").results()
    assert "No results yet." in str(empty)
    assert empty.table().height == 0
    assert empty.best() == {}


def test_loaded_results_print_as_those_of_the_run(tmp_path: Path) -> None:
    digits = standfast.data.bundled("digits")[:3]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds)
    metrics = ["max_sensitivity:samples=3", "aopc:steps=2,samples=1"]
    run = standfast.evaluate(
        model, ["saliency", "random"], digits, metrics, progress=False, out=tmp_path, controls=False
    )
    loaded = standfast.load_results(tmp_path)
    assert isinstance(loaded, standfast.Results)
    assert str(loaded) == str(run)
    assert loaded._repr_html_() == run._repr_html_()
    assert loaded.table().equals(run.table())
    assert loaded.best() == run.best()
    own = run.frame("aopc").filter(pl.col("explainer") == "random")["value"].median()
    shown = run.table().filter(explainer="random", metric="aopc")["value"][0]
    assert shown == pytest.approx(own)
