"""Exports, read back by other programs and compared with sums by hand."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from report_builder import PROB, WORST, Builder, study
from typer.testing import CliRunner

import standfast
from standfast.cli import app
from standfast.report import Results, exports

AWKWARD = r"[a]*_b % & $ # {} ~ ^ \ <x> |"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Two data sets, two models, three explainers, four labels."""
    return study(tmp_path_factory.mktemp("study")).results(title="three explainers")


def one_label(folder: Path, values: dict[str, list[float]]) -> Results:
    """A study of `worst_case: changed_explanation`, of which higher is better; values by explainer."""
    builder = Builder(folder)
    for name, each in values.items():
        builder.worst(name, each)
    return builder.results()


def rows_of(text: str) -> list[list[str]]:
    """The cells of a LaTeX table's rows."""
    rows = [line.removesuffix(r" \\") for line in text.splitlines() if line.endswith(r" \\")]
    return [re.split(r"(?<!\\) & ", row) for row in rows]


def test_a_name_that_a_spreadsheet_would_run_as_a_formula_gets_a_quote(tmp_path: Path) -> None:
    names = ["=1+1", "+cmd", "-2", "@SUM(A1)", "a=b"]
    results = one_label(tmp_path, {name: [0.5, -0.25] for name in names})
    rows = list(csv.DictReader(io.StringIO(exports.to_csv(results.samples))))
    assert {row["explainer"] for row in rows} == {"'=1+1", "'+cmd", "'-2", "'@SUM(A1)", "a=b"}
    assert {float(row["value"]) for row in rows} == {0.5, -0.25}  # numbers stay as they are


def test_bounds_are_never_numbers(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    builder.probability("bounded", [-20.0] * 9, censored=[True] * 9)
    builder.probability("below the bound", [-25.0] * 9)
    builder.probability("above it", [-10.0] * 9)
    source = builder.results()
    found = exports.summary(source)
    assert found["bound"].to_list() == ["upper", None, None]
    # at most -20 may be less than -25, or not
    assert found["verdict"].to_list() == [
        "best",
        "best",
        "worse",
    ]
    text = exports.to_latex(source)
    cells = {row[0]: row[1] for row in rows_of(text)[2:]}
    assert cells["bounded"].startswith(r"\textbf{$\leq$ 1 in 490,000,000}")
    assert r"[$\leq$ 1 in 490,000,000, " in cells["bounded"]
    assert cells["below the bound"].startswith(r"\textbf{1 in $10^{11}$}")
    assert cells["above it"].startswith("1 in 22,000")
    names = set(exports.scalars(source))
    assert f"{PROB}/bounded/median_at_most" in names
    assert f"{PROB}/bounded/median" not in names
    assert f"{PROB}/bounded/low" not in names


def test_nothing_printed_has_a_minus_before_a_zero(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    for name, end in (("a", -1e-5), ("b", -0.0)):
        builder.worst(name, [end * n for n in range(8)])
        builder.other(name, [-0.0] * 8)
    source = builder.results()
    page = source.to_html(tmp_path / "page.html").read_text()
    text = re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", page, flags=re.S)
    for found in (str(source), exports.to_latex(source), text):
        assert re.search(r"\b0\.00", found)
        assert not re.search(r"(?<![\w.])[-−]0(\.0+)?%?(?![\w.])", found)


def test_skipped_and_failed_leave_gaps(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    builder.worst("fine", [0.5, 0.6, 0.7])
    builder.worst("skipped", [0.1, 0.1, 0.1], status=["misclassified"] * 3)
    builder.failure("broken", "Traceback")
    source = builder.results()
    found = exports.summary(source)
    assert found.select("explainer", "value", "count", "verdict").rows() == [
        ("fine", 0.6, 3, None),
        ("skipped", None, 0, None),
    ]
    text = exports.to_latex(source)
    assert rows_of(text)[-1] == ["skipped", "--"]
    assert "% Medians over 3 samples with intervals of at least 75\\%." in text
    assert exports.scalars(source)[f"{WORST}/skipped/count"] == 0


def test_latex_has_every_number_in_its_place(results: Results) -> None:
    text = exports.to_latex(results, intervals=False)
    found = exports.summary(results)
    rows, labels = rows_of(text), found["label"].unique(maintain_order=True).to_list()
    assert [len(row) for row in rows[:2]] == [5, 5]
    assert rows[1][1:] == [r"$\uparrow$", r"$\downarrow$", r"$\downarrow$", r"$\uparrow$"]
    body = [row for row in rows[2:] if len(row) > 1]
    assert len(body) == 9
    groups = found.partition_by("data", "model", maintain_order=True)
    names = ["saliency", "integrated gradients", "Grad-CAM"]
    for place, row in enumerate(body):
        group = groups[place // 3].filter(pl.col("explainer") == names[place % 3])
        assert row[0] == names[place % 3]
        for label, cell in zip(labels, row[1:], strict=True):
            entry = group.filter(pl.col("label") == label).row(0, named=True)
            shown = re.search(r"-?\d+(\.\d+)?", cell)
            assert shown is not None
            odds = re.search(r"1 in ([\d,]+)", cell)
            if label == PROB:
                p = 1 / float(odds[1].replace(",", "")) if odds else float(shown[0]) / 100
                assert np.log(p) == pytest.approx(entry["value"], abs=0.05)
            else:
                assert float(shown[0]) == pytest.approx(entry["value"], rel=0.01, abs=0.006)
            assert (r"\textbf" in cell or r"\mathbf" in cell) == (entry["verdict"] == "best")
            assert (r"\dagger" in cell) == (entry["verdict"] == "tied")
    assert [line for line in text.splitlines() if r"\emph" in line] == [
        rf"\multicolumn{{5}}{{l}}{{\emph{{{where}}}}} \\"
        for where in ("digits, lenet", "digits, wide net", "series, lenet")
    ]


def test_latex_marks_those_that_do_not_pass_the_sanity_checks(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    for name, level, excess in (("same", 0.99, 0.0), ("steady", 0.9, 0.5)):
        builder.worst(name, [level + 0.0001 * n for n in range(12)])
        builder.checks(name, excess=excess)
    names = [row[0] for row in rows_of(exports.to_latex(builder.results()))]
    assert names[-2:] == [r"same$^{\ddagger}$", "steady"]


def test_latex_prints_names_as_they_are(tmp_path: Path) -> None:
    builder = Builder(tmp_path)
    builder.worst(AWKWARD, [0.5, 0.6], label="100% c_1")
    builder.worst("b\nc", [0.5, 0.6], label="100% c_1")
    text = exports.to_latex(builder.results(), caption="A & B", label="tab:a_b")
    assert rows_of(text)[0] == ["explainer", r"100\% c\_1"]
    assert rows_of(text)[-1][0] == "b c"
    name = next(line for line in text.splitlines() if line.startswith("{[}"))
    plain = name.split(r" & 0.550")[0]  # every letter is told once: undo it by hand
    for code, letter in (
        (r"\textbackslash{}", "\0"),
        (r"\textasciitilde{}", "~"),
        (r"\textasciicircum{}", "^"),
        (r"\textless{}", "<"),
        (r"\textgreater{}", ">"),
        (r"\textbar{}", "|"),
        ("{[}", "["),
        ("{]}", "]"),
        ("{*}", "*"),
    ):
        plain = plain.replace(code, letter)
    assert re.sub(r"\\([{}&%$#_])", r"\1", plain).replace("\0", "\\") == AWKWARD
    assert r"\caption{A \& B. Medians over 2 samples" in text
    assert r"\label{tab:a_b}" in text
    bare = text.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


def test_csv_reads_back(results: Results) -> None:
    rows = list(csv.DictReader(io.StringIO(exports.to_csv(results.samples))))
    assert len(rows) == results.samples.height
    for row, ours in zip(rows, results.samples.iter_rows(named=True), strict=True):
        assert row["explainer"] == ours["explainer"]
        value = ours["similarity"]
        assert row["similarity"] == "" if value is None else float(row["similarity"]) == value


def test_scalars_are_the_finite_numbers_of_the_summary(results: Results) -> None:
    named = exports.scalars(results)
    for row in exports.summary(results).iter_rows(named=True):
        name = f"{row['data']}/{row['model']}/{row['label']}/{row['explainer']}"
        assert named[f"{name}/median"] == row["value"]
        assert named[f"{name}/count"] == row["count"]
    assert all(math.isfinite(value) for value in named.values())


def test_names_suit_the_strictest_tracker(tmp_path: Path) -> None:
    named = exports.scalars(one_label(tmp_path, {AWKWARD: [0.5, 0.6], "a/b": [0.1, 0.2]}))
    assert f"{WORST}/a_b/median" in named
    assert len(named) == 10
    assert all(re.fullmatch(r"[/\w.\- :]*", name, re.ASCII) for name in named)


def test_the_command(results: Results, tmp_path: Path) -> None:
    folder, runner = results.store.folder.address, CliRunner()
    done = runner.invoke(app, ["export", folder])
    assert (done.exit_code, done.stdout) == (0, exports.to_csv(results.samples))
    done = runner.invoke(app, ["export", folder, "--out", str(tmp_path / "t.tex")])
    assert done.exit_code == 0
    assert (tmp_path / "t.tex").read_text(encoding="utf-8") == exports.to_latex(results)
    done = runner.invoke(
        app, ["export", folder, "--format", "parquet", "--out", str(tmp_path / "p"), "--summary"]
    )
    assert done.exit_code == 0
    assert pl.read_parquet(tmp_path / "p").equals(exports.summary(results))
    assert pd.read_parquet(tmp_path / "p").equals(exports.summary(results).to_pandas())
    for wrong, argument in (
        (["--out", "x.txt"], "--format"),
        (["--format", "parquet"], "--out"),
    ):
        done = runner.invoke(app, ["export", folder, *wrong])
        assert isinstance(done.exception, standfast.ArgumentError)
        assert done.exception.argument == argument
