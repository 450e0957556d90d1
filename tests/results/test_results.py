"""What results say: the table in the terminal and in notebooks, the best explainers, and what failed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from report_builder import BAD, GOOD, PROB, WORST, Builder

import standfast
from standfast.errors import ArgumentError, UnknownNameError
from standfast.results import Best


def test_the_best_is_by_mean_rank_and_another_median_is_said(builder: Builder) -> None:
    # "steady" is a little better on most samples; "odd" is far better on the others, which lifts its median
    builder.worst("steady", [0.51] * 13 + [0.52] * 6 + [0.91] * 6)
    builder.worst("odd", [0.50] * 12 + [0.53] + [0.9] * 12)
    builder.worst("bad", [0.1 + 0.001 * n for n in range(25)])
    results = builder.found(25)
    entries = {row["explainer"]: row for row in results.table().to_dicts()}
    assert entries["odd"]["value"] > entries["steady"]["value"]
    assert (entries["steady"]["verdict"], entries["odd"]["verdict"]) == ("best", "tied")
    assert results.best()[WORST] == Best(("steady", "odd"), True, 25)


def test_the_table_as_a_frame(builder: Builder) -> None:
    table = builder.two().table()
    columns = [
        "explainer",
        "metric",
        "value",
        "low",
        "high",
        "verdict",
        "better",
        "samples",
        "failure",
    ]
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
    results = builder.found()
    text = str(results)
    assert "on 12 samples of digits" in text
    assert "on 12 samples of letters" in text
    assert "data" in results.table().columns
    assert "model" not in results.table().columns
    assert results.best(data="digits")[WORST].explainers == ("steady",)
    tied = results.best(data="letters")[WORST]
    assert (set(tied.explainers), tied.shown) == ({"steady", "shaky"}, False)
    with pytest.raises(
        ArgumentError, match="one of several: data='digits', model='lenet'; data='letters'"
    ):
        results.best()
    with pytest.raises(ArgumentError, match="data: expected one of digits, letters, got 'digit'"):
        results.best(data="digit")


def test_a_frame_of_one_metric_has_no_empty_columns(builder: Builder) -> None:
    builder.worst("a", GOOD)
    builder.probability("a", [-9.0] * 12, censored=[True] * 5 + [False] * 7)
    results = builder.found()
    whole = results.frame()
    assert whole.columns == [
        "explainer",
        "label",
        "sample",
        "value",
        "low",
        "high",
        "bound",
        "status",
    ]
    assert whole.height == results.samples.height == 24
    assert whole.filter(label=PROB)["bound"].to_list() == results.frame(PROB)["bound"].to_list()
    assert int(whole["bound"].sum()) == 5
    assert not whole.filter(label=WORST)["bound"].any()
    assert results.samples["similarity"].null_count() == 12
    one = results.frame(metric=PROB)
    assert one["label"].unique().to_list() == [PROB]
    assert "similarity" not in one.columns
    assert all(one[name].null_count() < one.height for name in one.columns)
    for words in ("worst_case", WORST):
        assert results.frame(words)["label"].unique().to_list() == [WORST]
    with pytest.raises(UnknownNameError, match="metric: expected one of .*got 'worst_cas'"):
        results.frame("worst_cas")


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
