"""The engine of the tables: studies and numbers in files, what a table computes, what is printed, and the command."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

import standfast
from papers import base, files
from papers.base import (
    Claim,
    Column,
    Part,
    Reproduction,
    Scale,
    Table,
    make_table,
    read_table,
    reproductions,
)
from papers.command import load_tables, main
from papers.files import PREFIXES
from papers.printing import print_table
from papers.reading import all_separated, group_by_outcome, paired_differences
from standfast.errors import StandfastError
from standfast.statistics.paired import bootstrap_interval
from standfast.study.file.spec import load_study

load_tables(*PREFIXES)


@pytest.mark.parametrize("name", reproductions.names())
@pytest.mark.parametrize("scale", base.SCALES)
def test_every_study_is_valid_as_a_file(name: str, scale: Scale, tmp_path: Path) -> None:
    parts = [part for part in reproductions[name].parts if part.study is not None]
    written = base.write_studies(name, scale, tmp_path, make=False)
    for part, file in zip(parts, written, strict=True):
        assert part.study is not None
        study, content = load_study(file), part.study(scale)
        assert (list(study.metrics), list(study.explainers)) == (
            list(content["metrics"]),
            list(content["explainers"]),
        )
        # of attacks, models, sizes
        assert "random" in study.explainers or name.startswith(("safari", "lens"))


def test_files_beside_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_HERE", tmp_path)
    (tmp_path / "a.yaml").write_text(
        "samples: 9\nmodels: {m: {lenet: {a: 1}}, n: other}\nexplainers: [lrp, lime]\n"
    )
    (tmp_path / "a-small.yaml").write_text(
        "samples: 2\nmodels: {m: {lenet: {b: 8}}, n: null}\nexplainers: [lrp]\n"
    )
    study = files.study_file("a.yaml")
    models = {"m": {"lenet": {"a": 1}}, "n": "other"}
    none = {"sanity": False, "controls": False}
    assert study("full") == {**none, "samples": 9, "models": models, "explainers": ["lrp", "lime"]}
    small = {"samples": 2, "models": {"m": {"lenet": {"a": 1, "b": 8}}}, "explainers": ["lrp"]}
    assert study("small") == {**none, **small}
    (tmp_path / "a.csv").write_text(
        'model,explainer,"ln P, mean",c\nVGG,lrp,-1.5,\nVGG,lime,about 2,7\n'
    )
    numbers = {"ln P, mean": {"VGG, lrp": -1.5, "VGG, lime": "about 2"}, "c": {"VGG, lime": 7.0}}
    assert files.read_numbers("a.csv", keys=2) == numbers
    (tmp_path / "d.yaml").write_text(
        "a: {small: [few], full: [many], both: [ours, new]}\nb: {both: [x]}\n"
    )
    departures = files.read_departures("d.yaml")
    assert [departures["a"]("small"), departures["a"]("full")] == [
        "few; ours; new",
        "many; ours; new",
    ]
    assert departures["b"]("small") == "x"
    (tmp_path / "a-small.yaml").write_text("samples: 2\nsamples: 3\n")
    with pytest.raises(StandfastError, match=r"a-small.yaml(.|\n)*duplicate key"):
        study("small")


# ---- what a table computes ----


def outcomes(table: Table, words: str) -> dict[str, bool | None]:
    """Of the sentence with these words: by heading."""
    return {
        heading: holds
        for text, where, holds in table.verdicts
        if words in text
        for heading in where.split(", ")
    }


def rows(values: Any, **shared: Any) -> pl.DataFrame:
    """Rows of `Results.samples` with the column `v` for samples 0, 1, ..."""
    values = np.asarray(values, dtype=float)
    frame = pl.DataFrame({"sample": np.arange(len(values)), "v": values})
    return frame.with_columns(
        pl.lit(value).alias(name) for name, value in {"status": "ok", **shared}.items()
    )


def test_rows_may_be_models_metrics_or_both() -> None:
    pairs = [(model, label) for model in ("A", "B") for label in ("x", "y")]
    frame = pl.concat(
        rows(np.arange(5) + i, model=model, label=label) for i, (model, label) in enumerate(pairs)
    )
    order = {"model": ["B", "A"], "label": ["x", "y"]}
    column = Column("c", "v", paper={"A, y": 1.5, "B": "about 2"})

    def table(*axes: str) -> pl.DataFrame:
        return make_table(Part("p", "t", None, (column,), rows=axes), frame, order).rows

    assert table("model")["model"].to_list() == ["B", "A"]
    assert table("model")["v"].to_list() == pytest.approx([4.5, 2.5])
    assert table("model")["v (paper)"].to_list() == ["about 2", "–"]
    both = table("model", "label")
    assert both["model, metric"].to_list() == ["B, x", "B, y", "A, x", "A, y"]
    assert both["v"].to_list() == pytest.approx([4.0, 5.0, 2.0, 3.0])
    assert both["v (paper)"].to_list() == ["–", "–", "–", "1.5"]
    assert table("label")["metric"].to_list() == ["x", "y"]


def test_bounds_are_taken_for_values_and_the_mean_for_a_bound(
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = np.array([-20.0, -30.0, -100.0, -40.0])
    frame = rows(values, explainer="r").with_columns(
        pl.Series("censored", [False, False, True, False])
    )
    common: dict[str, Any] = {
        "censored": "censored",
        "side": "upper",
        "decimals": 1,
        "paper": {"r": -3.87},
    }
    columns = [Column(s, "v", statistic=s, **common) for s in ("bounded", "mean", "median")]
    part = Part("p", "title", None, tuple(columns), level=0.9)
    table = make_table(part, frame)
    row = table.rows.row(0, named=True)
    assert row["v bounded"] == pytest.approx(values.mean())
    assert row["v bounded_bound"]
    assert row["v"] == pytest.approx(-30.0)
    assert row["v median"] == pytest.approx(-35.0)
    expected = bootstrap_interval(values, "mean", level=0.9)
    assert expected is not None
    assert (row["v bounded_low"], row["v bounded_high"]) == (expected.low, expected.high)
    wider = make_table(dataclasses.replace(part, level=0.95), frame).rows
    assert wider["v bounded_low"][0] <= row["v bounded_low"]
    print_table(table, "small")
    printed = capsys.readouterr().out
    for words in ("≤ −47.5 [", "−3.87", "paper"):
        assert words in printed


def test_numbers_above_chance() -> None:
    """Ratios of means by hand; none where chance leaves no room, and none without a chance level."""
    column = Column("similarity", "s", chance="c")
    frame = pl.DataFrame(
        {"explainer": ["a"] * 3 + ["b"] * 2, "s": [0.6, 0.8, 0.7, 1.0, 1.0], "status": ["ok"] * 5}
    )
    frame = frame.with_columns(c=pl.Series([0.5, 0.6, 0.1, 0.97, 0.96]))
    part = Part("p", "t", None, (column, Column("other", "s", where={"status": "ok"})))
    table = make_table(part, frame)
    assert table.rows["s_above"].to_list() == [pytest.approx((0.7 - 0.4) / (1 - 0.4)), None]
    assert table.rows["s_above_low"][0] < 0.5 < table.rows["s_above_high"][0]
    assert "ok s_above" not in table.rows.columns
    assert make_table(part, frame.drop("c")).rows["s_above"].to_list() == [None, None]


def test_differences_pair_repeats_and_separate_intervals_are_students() -> None:
    frame = pl.concat(
        rows([shift + repeat, shift + 1], label="m", explainer=name, repeat=repeat)
        for repeat in (0, 1)
        for name, shift in (("a", 4.0), ("b", 1.0))
    )
    assert paired_differences(frame, "a", "b", "v").tolist() == [3.0] * 4
    base = np.random.default_rng(0).normal(size=40)
    low, high = stats.t.interval(0.9, 39, base.mean(), stats.sem(base))
    for gap, expected in ((0.99, None), (1.01, True)):
        both = pl.concat([rows(base, model="a"), rows(base + gap * (high - low), model="b")])
        assert all_separated(both, [("b", "a")], "v", "model", 0.9) is expected
    assert group_by_outcome("t", {"a": True, "b": None, "c": True}) == [
        ("t", "a, c", True),
        ("t", "b", None),
    ]


def test_claims_are_judged_by_the_numbers_of_each_column() -> None:
    claim = Claim(
        "a is first", lambda means: means["a"] > means["b"] if means["b"] == means["b"] else None
    )
    columns = (Column("x", "v"), Column("y", "w"))
    frame = pl.concat([rows([2.0, 3.0], explainer="a"), rows([1.0, 1.0], explainer="b")])
    frame = frame.with_columns(w=pl.when(pl.col("explainer") == "a").then(pl.col("v")))
    found = make_table(Part("p", "t", None, columns, claims=(claim,)), frame)
    assert found.verdicts == [("a is first", "x", True), ("a is first", "y", None)]


# ---- what is printed ----


def test_a_tiny_run_reads_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = reproductions["senc-mnist"].parts[0]
    assert part.study is not None
    study = part.study("small")
    ((name, options),) = study["metrics"]["data SenC"].items()
    metrics = {"data SenC": {name: {**options, "masks": 60, "permutations": 99}}}
    explainers = {own: study["explainers"][own] for own in ("saliency", "Grad-CAM", "random")}
    tiny = {
        **study,
        "data": {"MNIST": "digits"},
        "samples": 3,
        "metrics": metrics,
        "explainers": explainers,
    }
    found = standfast.run_study(tiny, tmp_path, progress=False)
    table = read_table(part, found)
    assert table.failures == 0
    assert table.rows["explainer"].to_list() == list(explainers)
    frame = found.samples.filter(pl.col("explainer") == "saliency", pl.col("status") == "ok")
    for column in ("value", "rho_paper"):
        assert table.rows[column][0] == pytest.approx(frame[column].mean())
    assert table.rows["samples"][0] == len(frame)
    print_table(table, "small")
    printed = capsys.readouterr().out
    for words in ("> 0.6", "Not as in the paper", part.claims[0].text, *table.notes):
        assert words in printed


@pytest.mark.parametrize("width", [200, 60, 40])
def test_there_is_one_table_however_narrow_the_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    columns = tuple(
        Column(f"number {name} of [3]", name, decimals=2, paper={"one": 0.125}) for name in "abc"
    )
    part = Part("wide", "A [wide] table", None, columns)
    numbers = {"a": [0.1] * 6, "b": [0.25] * 6, "c": [0.5] * 6}
    frame = pl.DataFrame({"explainer": ["one", "other"] * 3, "status": ["ok"] * 6, **numbers})
    print_table(make_table(part, frame), "small")
    printed = capsys.readouterr().out
    assert "A [wide] table" in printed
    assert printed.count("other") == 1
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= width
    assert [printed.count(value) for value in ("0.10", "0.25", "0.50")] == [2, 2, 2]
    assert printed.count("0.125") == 3
    lines = [line.split() for line in printed.splitlines()]
    if width == 200:  # ours, the paper's, for each of the three
        assert ["one", "0.10", "0.125", "0.25", "0.125", "0.50", "0.125", "3"] in lines
    elif width == 60:
        assert ["number", "b", "of", "[3]", "0.25", "0.125"] in lines


# ---- the command ----


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["papers", *arguments])
    with pytest.raises(SystemExit) as ended:
        main("senc")
    return int(ended.value.code or 0)


def test_a_dry_run_prints_costs_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STANDFAST_DATA", str(tmp_path))
    assert run(monkeypatch, "gtsrb", "--scale", "full", "--dry-run", "--out", str(tmp_path)) == 1
    printed = capsys.readouterr().out
    assert printed.count("cannot run here yet") == 2
    assert "data.GTSRB: expected something that can be used" in printed
    study = {"data": {"MNIST": "digits"}, "samples": 2, "models": {"lenet5": "lenet5-mnist"}}
    study |= {
        "explainers": ["saliency"],
        "metrics": ["log_odds"],
        "sanity": False,
        "controls": False,
    }
    costs = Part("costs", "", lambda scale: study, (Column("c", "value"),))
    times = Part("times", "", None, (), measure=lambda scale: pl.DataFrame())
    monkeypatch.setitem(reproductions._entries, "senc-mine", Reproduction("Mine", (costs, times)))
    out = tmp_path / "out"
    assert run(monkeypatch, "mine", "--dry-run", "--out", str(out)) == 0
    printed = capsys.readouterr().out
    assert "1 jobs, 0 of them done; about 6 model evaluations" in printed
    assert "times: a measurement, which a dry run leaves out" in printed
    assert not out.exists()
    monkeypatch.setitem(reproductions._entries, "senc-mine", Reproduction("Mine", (costs,)))
    assert run(monkeypatch, "mine", "--workers", "1", "--out", str(out)) == 0
    assert "saliency" in capsys.readouterr().out
    assert (
        "python -m papers.senc mine --scale small"
        in (out / "costs-small" / "report" / "index.html").read_text()
    )


def test_the_command_writes_studies_and_knows_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "gtsrb", "--study", str(tmp_path)) == 0
    assert len(list(tmp_path.glob("*.yaml"))) == 2
    assert run(monkeypatch, "figure99") == 2
    assert "figure5" in capsys.readouterr().err
