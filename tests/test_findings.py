"""What results say: the table in the terminal and in notebooks, the best explainers, and what failed."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from report_builder import PROB, WORST, Builder
from torch import nn

import standfast
from standfast.errors import ArgumentError, UnknownNameError
from standfast.findings import HINT, Findings, _Column, _format_blocks, as_findings, describe_failures, format_text
from standfast.report.methods import describe_question, describe_study
from standfast.report.verdicts import answer_question
from standfast.report.views import Contents

GOOD, BAD = [0.9 + 0.001 * n for n in range(12)], [0.2 + 0.001 * n for n in range(12)]


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def found(builder: Builder, samples: int = 12) -> Findings:
    results = builder.results()
    for about in results.manifest["data"].values():
        about["samples"] = samples
    return as_findings(results)


def two(builder: Builder) -> Findings:
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
    assert "Failed: broken failed for 1 of 1 metric, on a part of the samples: ValueError: no" not in text
    assert "Failed: broken failed for 1 of 1 metric: ValueError: no" in text
    assert text.endswith(HINT) or HINT.split()[-1] in text.splitlines()[-1]
    assert "(higher is better)" in text
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
    text = " ".join(str(findings).split())
    assert f"{WORST}: The best median is that of odd (0.530), but steady has the best mean rank" in text
    answer = answer_question(findings.contents, findings.contents.labels[WORST], "digits", "lenet")
    assert answer.decision.text.startswith("steady is better than bad")
    assert "is that of odd (0.530), but steady has the best mean rank" in answer.decision.text


def find_reason(findings: Findings) -> str:
    """Why nothing is decided by the worst case, as the report says it."""
    contents = findings.contents
    return answer_question(contents, contents.labels[WORST], *contents.pairs[0]).decision.text


def test_samples_that_do_not_count_are_explained(builder: Builder) -> None:
    builder.worst("a", GOOD)
    builder.worst("b", BAD[:10], status=["ok"] * 7 + ["degenerate"] * 2 + ["misclassified"])
    builder.worst("b", BAD[:10], status=["ok"] * 7 + ["degenerate"] * 2 + ["misclassified"], label="other")
    text = " ".join(str(found(builder)).split())
    assert "Not counted for b: 2 samples with a constant map." in text
    assert "Not counted for b: 1 sample of which the model predicts another class." in text


def test_a_reason_that_all_skipped_samples_share_is_printed(builder: Builder) -> None:
    """The column `failure` of another package's metric."""
    status = ["ok"] * 7 + ["nonfinite"] * 3
    for name in ("shared", "different"):
        builder.worst(name, BAD[:10], status=status)
    results = found(builder)
    own = (
        pl.when(explainer="shared").then(pl.lit("AssertionError: 224 >= 7\nmore")).otherwise(pl.format("{}", "sample"))
    )
    failure = pl.when(pl.col("status") == "ok").then(None).otherwise(own).alias("failure")
    text = " ".join(str(dataclasses.replace(results, samples=results.samples.with_columns(failure))).split())
    assert "Not counted for shared: 3 samples with NaN or infinity: AssertionError: 224 >= 7." in text
    assert "Not counted for different: 3 samples with NaN or infinity." in text


def test_a_reason_is_said_once_where_a_metric_does_not_evaluate_controls(builder: Builder) -> None:
    status = ["ok"] * 8 + ["misclassified"] * 2
    for name in ("a", "b", "random"):
        builder.worst(name, BAD[:10], status=status)
        if name != "random":
            builder.worst(name, BAD[:10], status=status, label="stability")
    text = " ".join(str(found(builder)).split())
    assert text.count("Not counted for") == 1
    assert "Not counted for every explainer: 2 samples of which the model predicts another class." in text


def test_evaluated_samples_without_a_value_are_explained(tmp_path: Path) -> None:
    layer = nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight.mul_(0.01)
        layer.bias.copy_(torch.tensor([3.0, 0.0, 0.0]))  # no input within the bounds has another class
    attack, ball = "fmn:steps=3,second=3,polish=2", standfast.LinfBall(0.1)
    metrics = {
        "c": standfast.metrics.CEval(attack),
        "plot": standfast.metrics.CEvalPlot(attack=attack),
        "affine": standfast.metrics.NearAffinity(attack=attack),
        "worst": standfast.metrics.WorstCase(ball, "changed_class", budget=20),
        "attack": standfast.metrics.MaxSensitivity(ball, samples=2),
    }
    names = ["saliency", "input_x_gradient"]
    model = standfast.Model(layer, (0.0, 1.0), device="cpu")
    done = standfast.evaluate(model, names, torch.rand(3, 4), metrics, controls=False, progress=False)
    text = " ".join(str(done).split())
    words = "3 samples for which no change of the class was found"
    assert f"Not counted for every explainer: {words} (c, plot, affine, worst)." in text
    assert done.results.samples["status"].unique().to_list() == ["ok"]
    assert " ".join(done._repr_html_().split()).count(words) == 1
    assert words.replace(" samples", "") in done.to_html(tmp_path / "report.html").read_text()


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
    assert f"No mark for {WORST}: {find_reason(findings)}" in " ".join(text.split())


def test_too_few_samples_are_said(builder: Builder) -> None:
    for name, values in (("a", [0.9, 0.8, 0.7]), ("b", [0.1, 0.2, 0.3])):
        builder.worst(name, values)
    findings = found(builder, 3)
    assert findings.best()[WORST].shown is False
    text = " ".join(str(findings).split())
    assert "3 samples have a value for both explainers; a test at 5% needs at least 6." in find_reason(findings)
    assert f"No mark for {WORST}: {find_reason(findings)}" in text
    assert "Median over samples [interval of at least 75%]" in text
    for name, values in (("a", [0.9, 0.8, 0.7]), ("b", [0.1, 0.2, 0.3])):
        builder.worst(name, values, label="other")
    assert "No mark for any metric: 3 samples have" in " ".join(str(found(builder, 3)).split())


def test_one_sample_is_no_samples(builder: Builder) -> None:
    builder.worst("a", [0.9])
    contents = Contents(found(builder, 1))
    assert "on 1 sample of digits." in describe_question(contents)
    assert dict(describe_study(contents))["Data"].startswith("digits (1 sample")


def test_probabilities_are_also_one_in_so_many_and_bounds_are_marked(builder: Builder) -> None:
    for name, values in (("a", [-9.3] * 6), ("b", [-30.0] * 6)):
        builder.probability(name, values, censored=[name == "b"] * 6)
    findings = found(builder, 6)
    text = str(findings)
    assert "-9.30 (log10 P -4.04, 1 in 11,000)" in text
    assert "<= -30.00 (log10 P at most -13.03, at most 1 in" in text
    assert "inf" not in text
    assert "[below -30.00, below -30.00]" in text or "[below -30.00" in text
    table = findings.table()
    assert dict(table.select("explainer", "bound").iter_rows()) == {"a": None, "b": "upper"}


def test_heads_break_at_underscores_and_not_within_words(builder: Builder) -> None:
    builder.worst("a", GOOD, label="misinterpretation_probability")
    lines = [line.strip() for line in format_text(found(builder)).splitlines()]
    assert {"misinterpretation_", "probability"} <= set(lines)


def test_samples_that_do_not_count_are_said(builder: Builder) -> None:
    builder.worst("a", [0.5] * 12, status=["ok"] * 9 + ["degenerate"] * 3)
    assert "0.500 [0.500, 0.500] n=9" in str(found(builder))


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


def test_columns_that_do_not_fit_go_below(builder: Builder) -> None:
    for name in ("steady", "shaky"):
        for label in ("first", "second", "third"):
            builder.worst(name, GOOD, label=label)
    findings = found(builder)
    assert all(len(line) <= 200 for line in format_text(findings, 200).splitlines())
    rows = [line for line in format_text(findings, 200).splitlines() if line.startswith("steady")]
    assert len(rows) == 1
    narrow = format_text(findings, 60).splitlines()
    assert len([line for line in narrow if line.startswith("steady")]) == 2
    assert all(len(line) <= 60 for line in narrow[1:])  # the first says what was evaluated


def test_names_are_escaped_in_notebooks(builder: Builder) -> None:
    builder.worst("<script>alert(1)</script>", GOOD)
    builder.worst("b", BAD)
    builder.failure("<b>", "Traceback")
    page = found(builder)._repr_html_()
    assert "<script" not in page
    assert "<b>" not in re.sub(r"<b>0\.905[^<]*\*</b>", "", page)
    assert "&lt;script&gt;" in page
    assert "<b>0.905 [0.902, 0.909] *</b>" in page
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
    assert describe_failures(builder.results()) == [
        "b, c failed for 2 of 2 metrics: no convolution",
        "a failed for 1 of 2 metrics (second), on a part of the samples: ValueError: odd",
    ]


def test_jobs_that_were_not_run_are_counted(builder: Builder) -> None:
    builder.worst("a", GOOD)
    builder.jobs += ["later", "still later"]
    text = str(found(builder))
    assert "2 of 3 jobs were not run yet." in text
    empty = as_findings(Builder(builder.store.folder.address + "/none").results())  # type: ignore[attr-defined]
    assert "No results yet." in str(empty)
    assert empty.table().height == 0
    assert empty.best() == {}


def test_a_control_without_a_number_has_no_line_in_a_block() -> None:
    cells = [{"saliency": "0.5", "random": "-"}, {"saliency": "0.1", "random": "0.2"}]
    columns = [_Column(name, "axis", "", own, {}) for name, own in zip("ab", cells, strict=True)]
    for width, lines in ((200, 1), (12, 1)):
        text = _format_blocks(columns, ["saliency", "random"], width, ["random"])
        assert sum("random" in line for line in text) == lines
        assert sum("saliency" in line for line in text) == (1 if width == 200 else 2)
    assert sum("random" in line for line in _format_blocks(columns, ["saliency", "random"], 12)) == 2  # no control


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
    assert repr(run) == "Evaluation(1 explainer and 1 control x 2 metrics, 3 samples; print it for the table)"
    assert repr(loaded) == "Findings(1 explainer and 1 control x 2 metrics, 3 samples; print it for the table)"
    own = run.frame("aopc").filter(pl.col("explainer") == "random")["value"].median()
    shown = run.table().filter(explainer="random", metric="aopc")["value"][0]
    assert shown == pytest.approx(own)


def test_the_assumed_radius_is_said_and_nothing_is_promised_without_numbers() -> None:
    torch.manual_seed(0)
    model = standfast.Model(torch.nn.Linear(4, 3), bounds=(0.0, 2.0), device="cpu")
    x = torch.rand(3, 4)
    found = standfast.evaluate(model, ["saliency"], x, ["max_sensitivity:samples=2"], progress=False)
    assert "Neighbourhood: LinfBall(0.2), one tenth of the range" in str(found)
    with pytest.warns(UserWarning, match="convolution"):
        failed = standfast.evaluate(model, ["gradcam"], x, ["max_sensitivity:samples=2"], progress=False)
    assert "Failed: gradcam" in str(failed)
    assert ".table()" not in str(failed)
    assert ".table()" not in failed.results._repr_html_()
