"""Reproductions: their studies are valid, and their tables read results as the paper's sentences ask."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import standfast
from papers.base import SCALES, Column, Part, Reproduction, Scale, make_table, read_table, reproductions, write_studies
from papers.command import TABLES, load_tables, main
from papers.printing import print_table
from standfast.study.file.spec import load_study

load_tables(*TABLES)


@pytest.mark.parametrize("name", reproductions.names())
@pytest.mark.parametrize("scale", SCALES)
def test_every_study_is_valid_as_a_file(name: str, scale: Scale, tmp_path: Path) -> None:
    files = write_studies(name, scale, tmp_path, make=False)
    assert len(files) == sum(part.study is not None for part in reproductions[name].parts)
    for file in files:
        study = load_study(file)
        assert "random" in study.explainers or name.startswith(("safari", "lens")), (
            "they compare attacks, models, sizes"
        )


def test_a_tiny_run_reads_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = reproductions["senc-mnist"].parts[0]
    study = part.study("small")
    metrics = {"data SenC": {**study["metrics"]["data SenC"], "masks": 60, "permutations": 99}}
    explainers = {name: study["explainers"][name] for name in ("saliency", "Grad-CAM", "random")}
    tiny = {**study, "data": {"MNIST": "digits"}, "samples": 3, "metrics": metrics, "explainers": explainers}
    found = standfast.run_study(tiny, tmp_path, progress=False)
    table = read_table(part, found.results)
    assert table.failures == 0
    assert table.rows["explainer"].to_list() == ["saliency", "Grad-CAM", "random"]
    frame = found.results.samples.filter(pl.col("explainer") == "saliency", pl.col("status") == "ok")
    assert table.rows["rho"][0] == pytest.approx(frame["rho"].mean())
    assert table.rows["rho_paper"][0] == pytest.approx(frame["rho_paper"].mean())
    assert table.rows["samples"][0] == len(frame)
    print_table(table, "small")
    printed = capsys.readouterr().out
    assert printed.count("random") > 1
    assert "…" not in printed
    for words in ("paper's estimator", "> 0.6", "null band", "Not as in the paper", "random at the level of random"):
        assert words in printed
    assert found.to_html(tmp_path / "r.html").exists()


@pytest.mark.parametrize("width", [200, 60, 40])
def test_there_is_one_table_however_narrow_the_terminal(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    columns = tuple(Column(f"number {name} of three", name, decimals=2, paper={"one": 0.125}) for name in "abc")
    part = Part("wide", "A wide table", lambda scale: {}, columns)
    frame = pl.DataFrame(
        {"explainer": ["one", "other"] * 3, "status": ["ok"] * 6, "a": [0.1] * 6, "b": [0.25] * 6, "c": [0.5] * 6}
    )
    order = {"explainer": ["one", "other"]}
    print_table(make_table(part, frame, order, 0), "small")
    printed = capsys.readouterr().out
    assert printed.count("other") == 1
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= width
    assert [printed.count(value) for value in ("0.10", "0.25", "0.50")] == [2, 2, 2]
    assert printed.count("0.125") == 3
    lines = [line.split() for line in printed.splitlines()]
    if width == 200:  # ours, the paper's, for each of the three
        assert ["one", "0.10", "0.125", "0.25", "0.125", "0.50", "0.125", "3"] in lines
    elif width == 60:
        assert ["number", "b", "of", "three", "0.25", "0.125"] in lines


def test_numbers_above_chance() -> None:
    """Ratios of means by hand; none where chance leaves no room, and none without a chance level."""
    column = Column("similarity", "s", chance="c")
    frame = pl.DataFrame({"explainer": ["a"] * 3 + ["b"] * 2, "s": [0.6, 0.8, 0.7, 1.0, 1.0], "status": ["ok"] * 5})
    frame = frame.with_columns(c=pl.Series([0.5, 0.6, 0.1, 0.97, 0.96]))
    part = Part("p", "t", lambda scale: {}, (column, Column("other", "s", where={"status": "ok"})))
    table = make_table(part, frame)
    assert table.rows["s_above"].to_list() == [pytest.approx((0.7 - 0.4) / (1 - 0.4)), None]
    assert table.rows["s_above_low"][0] < 0.5 < table.rows["s_above_high"][0]
    assert "ok s_above" not in table.rows.columns
    assert make_table(part, frame.drop("c")).rows["s_above"].to_list() == [None, None]


def test_claims_are_judged_by_the_numbers() -> None:
    part = reproductions["senc-mnist"].parts[0]
    above = part.claims[0]
    means = dict.fromkeys(("saliency", "guided backprop", "integrated gradients", "DeepLift", "LRP"), 0.7)
    assert above.holds({**means, "Grad-CAM": 0.3, "random": 0.0}) is True
    assert above.holds({**means, "LRP": 0.5, "Grad-CAM": 0.3}) is False
    assert above.holds({**means, "Grad-CAM": 0.9}) is False
    first = reproductions["senc-cifar10"].parts[0].claims[0]
    assert first.holds({"DeepLift": 0.3, "LRP": 0.1}) is True
    assert first.holds({"DeepLift": 0.1, "LRP": 0.3}) is False
    assert first.holds({"LRP": 0.3}) is None


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
    assert "data.GTSRB: expected data that can be loaded" in printed
    study = {
        "data": {"MNIST": "digits"},
        "samples": 2,
        "models": {"lenet5": "lenet5-mnist"},
        "explainers": ["saliency"],
        "metrics": ["log_odds"],
    }
    parts = (
        Part("costs", "", lambda scale: study, ()),
        Part("times", "", None, (), measure=lambda scale: pl.DataFrame()),
    )
    monkeypatch.setitem(reproductions._entries, "senc-mine", Reproduction("Mine", parts))
    assert run(monkeypatch, "mine", "--dry-run", "--out", str(tmp_path / "out")) == 0
    printed = capsys.readouterr().out
    assert "1 jobs, 0 of them done; about 6 model evaluations" in printed
    assert "times: a measurement, which a dry run leaves out" in printed
    assert not (tmp_path / "out").exists()


def test_the_command_writes_studies_and_knows_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "gtsrb", "--study", str(tmp_path)) == 0
    assert len(list(tmp_path.glob("*.yaml"))) == 2
    assert run(monkeypatch, "figure99") == 2
    assert "figure5" in capsys.readouterr().err
