"""SAFARI's reproductions: what they read from results, the paper's numbers in place, verdicts, and tiny runs."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.stats
import torch

import standfast
from papers.base import (
    Column,
    Part,
    Reproduction,
    Scale,
    Table,
    make_table,
    read_table,
    reproduce,
    reproductions,
    write_studies,
)
from papers.printing import print_table
from papers.reading import all_separated, group_by_outcome, paired_differences
from papers.safari.explainers import EXPLAINER_PART, SAMPLES_PART, SEGMENTATION_PART
from papers.safari.parts import digits_near_boundary, is_clearly_above
from papers.safari.settings import CURVE_PART, ITERATION_PART, POPULATION_PART
from papers.safari.tables import (
    EFFICIENCY_PART,
    SCHEME_PART,
    SCHEMES,
    SEARCH_PART,
    SMALL_PGD,
    SMALL_RADIUS_PART,
)
from papers.safari.times import TIME_PART, measure_times, necessary_seconds
from standfast.data.root import data_root
from standfast.explainers import LIME, Explainer
from standfast.explainers import get as get_explainer
from standfast.explainers.gradients.input_gradients import IntegratedGradients
from standfast.metrics import WorstCase
from standfast.statistics.paired import bootstrap_interval
from standfast.study.file.spec import study_from
from standfast.study.results import JOB_COLUMNS, Results
from standfast.study.store import Store

SHARED: dict[str, Any] = {
    "data": "MNIST",
    "model": "lenet5-mnist",
    "explainer": "Gradient x Input",
    "repeat": 0,
    "status": "ok",
    "job": "a",
}
NAMES = [
    *(f"safari-table{number}" for number in (1, 2, 3, 4, 6, 7)),
    *(f"safari-figure{number}" for number in (2, 3, 4)),
]
PARTS = [part for name in NAMES for part in reproductions[name].parts]
STUDIES = [part for part in PARTS if part.study is not None]


@dataclasses.dataclass(frozen=True)
class Made(Results):
    """Results with arrays of our own."""

    arrays: dict[str, dict[str, np.ndarray]] = dataclasses.field(default_factory=dict)

    def artefacts(self, job: str) -> dict[str, np.ndarray]:
        return self.arrays[job]


def rows(column: str, values: Any, **coordinates: Any) -> pl.DataFrame:
    """Rows of `Results.samples` for values of samples 0, 1, ..."""
    values = np.asarray(values, dtype=float)
    frame = pl.DataFrame({"sample": np.arange(len(values)), column: values})
    return frame.with_columns(pl.lit(value).alias(name) for name, value in {**SHARED, **coordinates}.items())


def results_of(
    part: Part, frame: pl.DataFrame, folder: Path, arrays: dict[str, dict[str, np.ndarray]] | None = None
) -> Results:
    """As a study of the part would have left them."""
    assert part.study is not None
    study = part.study("small")
    metrics = {label: {"metric": entry["name"], "options": entry} for label, entry in study["metrics"].items()}
    manifest = {"explainers": list(study["explainers"]), "models": study["models"], "metrics": metrics, "data": {}}
    jobs = pl.DataFrame(
        [
            {
                **dict.fromkeys(JOB_COLUMNS),
                "job": job,
                "start": 0,
                "stop": len(next(iter(own.values()))),
                "seconds": 1.0,
                "status": "done",
                "artefacts": True,
            }
            for job, own in (arrays or {}).items()
        ],
        schema=JOB_COLUMNS,
    )
    return Made(Store(folder), manifest, frame, jobs, len(jobs), arrays or {})


def outcomes(table: Table, words: str) -> dict[str, bool | None]:
    """Of the sentence with these words: by heading."""
    return {heading: holds for text, where, holds in table.verdicts if words in text for heading in where.split(", ")}


# ---- the extension of tables ----


def test_rows_may_be_models_metrics_or_both(tmp_path: Path) -> None:
    frame = pl.concat(
        rows("c", np.arange(5) + shift, model=model, label=label)
        for shift, (model, label) in enumerate((m, lab) for m in ("A", "B") for lab in ("x", "y"))
    )
    column = Column("c", "c", paper={"A, y": 1.5, "B": "about 2"})
    order = {"model": ["B", "A"], "label": ["x", "y"]}

    def table(*axes: str) -> pl.DataFrame:
        return make_table(Part("p", "t", None, (column,), rows=axes), frame, order).rows

    assert table("model")["model"].to_list() == ["B", "A"]
    assert table("model")["c"].to_list() == pytest.approx([4.5, 2.5])
    assert table("model")["c (paper)"].to_list() == ["about 2", "–"]
    both = table("model", "label")
    assert both["model, metric"].to_list() == ["B, x", "B, y", "A, x", "A, y"]
    assert both["c"].to_list() == pytest.approx([4.0, 5.0, 2.0, 3.0])
    assert both["c (paper)"].to_list() == ["–", "–", "–", "1.5"]
    assert table("label")["metric"].to_list() == ["x", "y"]


def test_bounds_are_taken_for_values_and_the_mean_for_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    values, floor = np.array([-20.0, -30.0, -100.0, -40.0]), np.array([False, False, True, False])
    frame = rows("log_probability", values).with_columns(pl.Series("censored", floor))
    columns = [
        Column(s, "log_probability", statistic=s, censored="censored", side="upper", decimals=1, paper={"r": -3.87})  # type: ignore[arg-type]
        for s in ("bounded", "mean", "median")
    ]
    part = Part("p", "title", None, tuple(columns), rows=("explainer",), level=0.9)
    table = make_table(part, frame.with_columns(pl.lit("r").alias("explainer")))
    row = table.rows.row(0, named=True)
    assert row["log_probability bounded"] == pytest.approx(values.mean())
    assert row["log_probability bounded_bound"]
    assert row["log_probability"] == pytest.approx(-30.0)
    assert row["log_probability median"] == pytest.approx(-35.0)
    expected = bootstrap_interval(values, "mean", level=0.9)
    assert expected is not None
    assert (row["log_probability bounded_low"], row["log_probability bounded_high"]) == (expected.low, expected.high)
    wider = make_table(dataclasses.replace(part, level=0.95), frame.with_columns(pl.lit("r").alias("explainer"))).rows
    assert wider["log_probability bounded_low"][0] <= row["log_probability bounded_low"]
    print_table(table, "small")
    printed = capsys.readouterr().out
    for words in ("≤ −47.5 [", "−3.87", "paper"):
        assert words in printed


def test_verdicts_need_both_intervals_apart_and_paired_differences() -> None:
    rng = np.random.default_rng(0)
    base, noise = rng.normal(size=40), rng.normal(size=(4, 40)) * 0.05
    shifts = {"low": 0.0, "near": 0.3, "high": 5.0, "equal": 0.0}
    frame = pl.concat(
        rows("v", base + shift + noise[i], label="m", model=name) for i, (name, shift) in enumerate(shifts.items())
    )

    def judged(first: str, second: str, higher: bool = True) -> bool | None:
        return is_clearly_above(frame, [(first, second)], "v", "model", 0.9, higher)

    assert judged("high", "low") is True
    assert judged("low", "high") is False
    assert judged("low", "high", higher=False) is True
    assert judged("near", "low") is None, "paired differences alone do not tell where the intervals overlap"
    assert all_separated(frame, [("near", "low")], "v", "model", 0.9) is None
    assert judged("equal", "low") is None
    assert judged("high", "nobody") is None
    assert is_clearly_above(frame, [], "v", "model", 0.9, True) is None
    # the intervals are Student's at that level
    low, high = scipy.stats.t.interval(0.9, 39, base.mean(), scipy.stats.sem(base))
    exact = rows("v", base, label="m", model="a")
    for gap, expected in ((0.99, None), (1.01, True)):
        both = pl.concat([exact, rows("v", base + gap * (high - low), label="m", model="b")])
        assert all_separated(both, [("b", "a")], "v", "model", 0.9) is expected
    assert group_by_outcome("t", {"a": True, "b": None, "c": True}) == [("t", "a, c", True), ("t", "b", None)]


def test_differences_pair_repeats(tmp_path: Path) -> None:
    frame = pl.concat(
        rows("v", [1.0 + repeat, 2.0], label="m", explainer=name, repeat=repeat)
        for repeat in (0, 1)
        for name in ("a", "b")
    ).with_columns(pl.when(pl.col("explainer") == "a").then(pl.col("v") + 3).otherwise(pl.col("v")).alias("v"))
    assert paired_differences(frame, "a", "b", "v").tolist() == [3.0] * 4


# ---- studies ----


@pytest.mark.parametrize("part", STUDIES, ids=lambda part: part.name)
def test_full_studies_have_the_papers_sizes_and_small_ones_less(part: Part) -> None:
    assert part.study is not None
    small, full = (study_from(part.study(scale)) for scale in ("small", "full"))
    for study, scale in ((small, "small"), (full, "full")):
        for entry in study.metrics.values():
            assert entry.value.neighbourhood == standfast.LinfBall(0.1 if "linf01" in part.name else 0.3)
        assert part.departures(scale)  # type: ignore[arg-type]
    assert (full.samples or 0) >= (small.samples or 0)

    def work(study: Any) -> int:
        return sum(entry.value.expected_evaluations() for entry in study.metrics.values()) * study.samples

    assert work(full) > 10 * work(small)


def test_full_sizes() -> None:
    full = {part.name: part.study("full") for part in STUDIES if part.study is not None}
    assert full["safari-searches"]["metrics"]["genetic"]["budget"] == WorstCase.plan_budget(500_000)
    assert full["safari-training"]["samples"] == full["safari-explainers"]["samples"] == 100
    subset = full["safari-training"]["metrics"]["ln P F-hat"]
    assert (subset["particles"], subset["quantile"], subset["moves"], subset["floor"]) == (1000, 0.1, 250, -100.0)
    assert full["safari-explainers"]["metrics"]["worst F-hat"]["search"] == {"genetic": {"population": 1000}}
    assert list(full["safari-training"]["models"]) == list(SCHEMES)
    schemes = [model["name"] for model in full["safari-training"]["models"].values()]
    assert schemes == [f"lenet5-mnist-{scheme}" for scheme in SCHEMES]


def test_the_smooth_networks_have_the_same_studies_on_larger_images() -> None:
    """Everything but the networks and their data is equal, and both are known."""
    named = {part.name: part for part in PARTS}
    pairs = [(named[name.removesuffix("-smooth")], part) for name, part in named.items() if name.endswith("-smooth")]
    assert len(pairs) == 8
    for rectified, smooth in pairs:
        assert rectified.study is not None
        assert smooth.study is not None
        for scale in ("small", "full"):
            one, other = rectified.study(scale), smooth.study(scale)
            names = [[model["name"] for model in study["models"].values()] for study in (one, other)]
            natural = "lenet5-tanh-mnist-plain"  # there is no variant with shifted digits
            for one_name, other_name in zip(*names, strict=True):
                expected = one_name.replace("lenet5-mnist-", "lenet5-tanh-mnist-")
                assert other_name == (natural if one_name == "lenet5-mnist" else expected)
            assert set(names[1]) <= set(standfast.zoo.names())
            for section in one.keys() - {"title", "models", "data"}:
                assert one[section] == other[section]
            near = "function" in next(iter(one["data"].values()))
            assert near or other["data"] == {"MNIST": "mnist32:test"}
            assert "tanh and average pooling on 32x32 pixels, as in the paper" in smooth.departures(scale)
            assert "ReLU" not in smooth.departures(scale)
            assert "ReLU" in rectified.departures(scale)


# ---- Table 1 ----


@pytest.mark.parametrize(("shift", "expected"), [(3.0, True), (-3.0, False), (0.0, None)])
def test_table_1(shift: float, expected: bool | None, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(2, 3, 12))
    frame = pl.concat(
        rows("similarity", noise[i, 0] + move, label=label).with_columns(
            pl.Series("sens_max", noise[i, 1] + move), pl.Series("sens_lips", noise[i, 2] + move)
        )
        for i, (label, move) in enumerate((("genetic", shift), ("random", 0.0)))
    )
    table = read_table(SEARCH_PART, results_of(SEARCH_PART, frame, tmp_path))
    assert table.rows["metric"].to_list() == ["genetic", "random", "block", "gradient"]
    assert table.rows["sens_max (paper)"].to_list()[:2] == ["36.067", "15.226"]
    assert table.rows["similarity"][0] == pytest.approx(noise[0, 0].mean() + shift)
    assert set(outcomes(table, "GA outperforms SMC").values()) == {expected}
    assert set(outcomes(table, "white-box").values()) == {None}


# ---- Table 2 ----


def test_table_2_counts_as_the_paper_and_as_it_is(tmp_path: Path) -> None:
    # Eq. 16 for five levels of 0.1 and a last one, and samples of plain Monte Carlo from it
    last = math.exp(-12.25) / 0.1**5
    line = np.concatenate([np.log(0.1) * np.arange(1, 6), [-12.25]])
    arrays = {"a": {"level_log_probability": np.array([[*line, np.nan], [*line, np.nan]])}}
    frame = rows("log_probability", [-12.25, -12.25], label="F-hat").with_columns(
        pl.lit(0.3).alias("std_error"),
        pl.col("log_probability").alias("value"),
        pl.lit(False).alias("bound"),
        pl.lit(5200).alias("model_evaluations"),
    )
    table = read_table(EFFICIENCY_PART, results_of(EFFICIENCY_PART, frame, tmp_path, arrays))
    row = table.rows.row(0, named=True)
    eq16 = (5 * 9 + (1 - last) / last) / 200
    assert row["False eq16"] == pytest.approx(eq16)
    assert row["False delta2"] == pytest.approx(0.09)
    assert row["False samples_paper"] == pytest.approx(6 * 200)
    assert row["False model_evaluations"] == 5200
    assert 10 ** row["False monte_carlo"] == pytest.approx((1 - math.exp(-12.25)) / math.exp(-12.25) / 0.09)
    assert 10 ** row["False monte_carlo_paper"] == pytest.approx(math.expm1(12.25) / eq16)
    assert row["False samples_paper (paper)"] == "15000"
    assert row["value bounded (paper)"] == "−12.25"
    # the paper's own numbers fit each other
    assert math.expm1(12.25) / 0.0184 == pytest.approx(1.13e7, rel=0.01)
    assert outcomes(table, "SS requires fewer") == {"F-hat": True, "F-tilde": None}


@pytest.mark.parametrize(("evaluations", "expected"), [(10**4, True), (10**9, False), (10**6, None)])
def test_table_2_verdict(evaluations: int, expected: bool | None, tmp_path: Path) -> None:
    values = -10.0 + np.linspace(-2, 2, 8)
    frame = rows("log_probability", values, label="F-hat").with_columns(
        pl.lit(0.2).alias("std_error"),
        pl.col("log_probability").alias("value"),
        pl.lit(False).alias("bound"),
        pl.lit(evaluations).alias("model_evaluations"),
    )
    line = np.stack([values / 2, values], axis=1)
    results = results_of(EFFICIENCY_PART, frame, tmp_path, {"a": {"level_log_probability": line}})
    assert outcomes(read_table(EFFICIENCY_PART, results), "SS requires fewer")["F-hat"] is expected


# ---- Table 3 ----


def schemes(column: str, label: str, values: dict[str, float], **more: Any) -> pl.DataFrame:
    rng = np.random.default_rng(2)
    parts = [
        rows(column, mean + 0.3 * rng.normal(size=10), label=label, model=name, **more) for name, mean in values.items()
    ]
    return pl.concat(parts)


def test_values_that_are_not_resolved_are_bounds_and_decide_nothing(tmp_path: Path) -> None:
    """The bounds of one model are far below the values of the other, but nobody knows how far."""
    frame = pl.concat(
        [
            schemes("value", "ln P F-hat", {"plain": -5.0}, bound=False),
            schemes("value", "ln P F-hat", {"hessian": -40.0}, bound=True),
        ]
    )
    table = read_table(SCHEME_PART, results_of(SCHEME_PART, frame, tmp_path))
    rows = {row["model"]: row for row in table.rows.iter_rows(named=True)}
    assert rows["hessian"]["ln P F-hat value bounded"] == pytest.approx(-40.0, abs=0.5)
    assert rows["hessian"]["ln P F-hat value bounded_bound"]
    assert not rows["plain"]["ln P F-hat value bounded_bound"]
    assert outcomes(table, "Hessian regularisation improves")["ln P_F-hat"] is None


def test_table_3(tmp_path: Path) -> None:
    order = ("plain", "gradient", "hessian", "gradient-hessian", "pgd")
    log_p = dict(zip(order, (-10.0, -20.0, -30.0, -30.0, -80.0), strict=True))
    margins = dict(zip(order, (20.0, 10.0, 10.0, 10.0, 30.0), strict=True))
    kept = schemes("similarity", "worst F-tilde", dict.fromkeys(order, 0.9))
    frame = pl.concat(
        [
            schemes("value", "ln P c", log_p, bound=False),
            schemes("margin", "worst c", margins),
            kept.with_columns((pl.col("sample") > 2).alias("found")),
        ],
        how="diagonal",
    )
    table = read_table(SCHEME_PART, results_of(SCHEME_PART, frame, tmp_path))
    assert table.rows["model"].to_list() == list(SCHEMES)
    assert table.rows["ln P c value bounded"][0] == pytest.approx(-10.0, abs=0.5)
    assert table.rows["worst c margin (paper)"].to_list() == ["22.43", "11.37", "10.59", "10.04", "−0.16"]
    assert table.rows["ln P F-hat value bounded (paper)"][0] == "−3.87"
    expected = kept.filter(pl.col("sample") > 2, pl.col("model") == "plain")["similarity"].mean()
    assert table.rows["worst F-tilde True similarity"][0] == pytest.approx(expected)
    hessian, best = outcomes(table, "Hessian regularisation improves"), outcomes(table, "the best")
    wanted = ("ln P_c", "sol_c (J)", "sol_F-hat (PCC)", "sol_F-tilde (PCC)")
    assert [hessian[heading] for heading in wanted] == [True, True, None, None]
    assert [best[heading] for heading in wanted] == [True, False, None, None]
    assert outcomes(table, "than input gradient")["sol_c (J)"] is None
    assert any("ln P_c, paired: gradient minus plain −" in note.replace("-", "−") for note in table.notes)
    assert any("class changes found" in note and "plain 70%" in note for note in table.notes)


# ---- Fig. 2 ----


def test_figure_2_reads_traces_at_iterations(tmp_path: Path) -> None:
    evaluations = np.array([1, 50, 2550, 5050, 15_050, 25_050])  # population 50: iterations 0, 50, 100, 300, 500
    pcc = np.array([[1.0, 0.9, 0.5, 0.3, 0.1, 0.095], [1.0, 0.8, 0.4, 0.2, 0.1, 0.099]])
    arrays = {
        "a": {
            "trace_evaluations": np.tile(evaluations, (2, 1)),
            "trace_similarity": pcc,
            "trace_margin": np.full((2, 6), -2.0),
        }
    }
    frame = rows("similarity", [0.0, 0.0], label="F-hat, 50")
    table = read_table(ITERATION_PART, results_of(ITERATION_PART, frame, tmp_path, arrays))
    assert table.rows["iterations"].to_list() == ["0", "50", "100", "200", "300", "400", "500"]
    assert table.rows["F-hat pcc"].to_list() == pytest.approx([0.85, 0.45, 0.25, 0.25, 0.1, 0.1, 0.097])
    assert outcomes(table, "converged") == {"F-hat": None, "F-tilde": None}  # an interval of two digits is wide
    assert outcomes(table, "constraint J") == {"F-hat": True, "F-tilde": None}


def test_figure_2_population(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    flat = {50: 0.5, 100: 0.4, 200: 0.3, 500: 0.20, 1000: 0.2}
    frame = pl.concat(
        rows("similarity", value + 0.001 * rng.normal(size=10), label=f"F-hat, {size}, {equal}")
        for equal in ("iterations", "evaluations")
        for size, value in flat.items()
    )
    table = read_table(POPULATION_PART, results_of(POPULATION_PART, frame, tmp_path))
    assert table.rows["population"].to_list() == ["50", "100", "200", "500", "1000"]
    assert table.rows["F-hat iterations similarity"].to_list() == pytest.approx(list(flat.values()), abs=0.01)
    assert outcomes(table, "population size over 500")["F-hat"] is True
    assert outcomes(table, "more important")["F-hat"] is False, "here small populations do worse"


# ---- Fig. 3 ----


@pytest.mark.parametrize(("offset", "expected"), [(0.0, True), (-4.0, False)])
def test_figure_3_compares_with_pooled_monte_carlo(offset: float, expected: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    hits = [np.log(1e-3), np.log(3e-3), np.log(5e-4)]  # the third is no hit: an upper bound
    frames = [
        rows("log_probability", [value], label="F-hat, 0.5, Monte Carlo", repeat=r).with_columns(
            pl.lit(r == 2).alias("censored"), pl.lit(0.06).alias("std_error")
        )
        for r, value in enumerate(hits)
    ]
    truth = math.log(4e-3 / 3)
    for method, shift in (("gaussian", offset), ("random walk", -1.0)):
        for moves, spread in (("1", 2.0), ("25", 0.02)):
            for r in range(3):
                value = truth + shift * (moves == "25") + spread * (1 + 0.1 * rng.normal())
                own = rows("log_probability", [value], label=f"F-hat, 0.5, {method}, {moves}", repeat=r)
                frames.append(own.with_columns(pl.lit(False).alias("censored"), pl.lit(0.1).alias("std_error")))
    table = read_table(CURVE_PART, results_of(CURVE_PART, pl.concat(frames), tmp_path))
    assert table.rows["event, threshold, moves"].to_list() == ["F-hat, 0.5, 1", "F-hat, 0.5, 25"]
    assert table.rows["gaussian truth"][0] == pytest.approx(truth)
    assert table.rows["gaussian error"][1] == pytest.approx(offset, abs=0.05)
    spread = math.sqrt(0.06**2 * (1e-3**2 + 3e-3**2)) / 3 / math.exp(truth)
    assert table.rows["gaussian truth_error"][0] == pytest.approx(spread)
    assert outcomes(table, "SS overlaps") == {"gaussian": expected, "random walk": False}
    assert outcomes(table, "increased MH steps")["gaussian"] is expected


def test_figure_3_counts_runs_without_an_estimate(tmp_path: Path) -> None:
    frames = [rows("log_probability", [-5.0], label="F-hat, 0.5, Monte Carlo").with_columns(
        pl.lit(False).alias("censored"), pl.lit(0.01).alias("std_error"))]  # fmt: skip
    for method, lost in (("gaussian", 0), ("random walk", 3)):
        for r in range(4):
            own = rows("log_probability", [-5.0 - 0.01 * r], label=f"F-hat, 0.5, {method}, 5", repeat=r)
            frames.append(own.with_columns(pl.lit(r < lost).alias("censored"), pl.lit(0.1).alias("std_error")))
    table = read_table(CURVE_PART, results_of(CURVE_PART, pl.concat(frames), tmp_path))
    assert outcomes(table, "SS overlaps") == {"gaussian": True, "random walk": False}
    assert table.rows["random walk lost"][0] == pytest.approx(0.75)


# ---- Fig. 4, Tables 6 and 7 ----


def explained(values: dict[str, float], column: str, label: str, **more: Any) -> pl.DataFrame:
    rng = np.random.default_rng(5)
    return pl.concat(
        rows(column, value + 0.01 * rng.normal(size=8), explainer=name, label=label, **more)
        for name, value in values.items()
    )


def test_figure_4(tmp_path: Path) -> None:
    pcc = {"Gradient x Input": 0.1, "Integrated Gradients": 0.5, "Guided Backprop": 0.2, "LRP": 0.3, "DeepLift": 0.6}
    frame = pl.concat(
        [
            explained(pcc, "similarity", "worst F-hat"),
            explained({**pcc, "LRP": 0.05}, "similarity", "worst F-tilde", found=True),
            explained(dict.fromkeys(pcc, -10.0), "value", "ln P F-hat", bound=False),
        ],
        how="diagonal",
    )
    table = read_table(EXPLAINER_PART, results_of(EXPLAINER_PART, frame, tmp_path))
    assert table.rows["explainer"].to_list() == list(pcc)
    hat = outcomes(table, "DeepLift and IG outperform")
    assert hat == {"sol_F-hat (PCC)": True, "ln P_F-hat": None}
    assert outcomes(table, "Guided Backprop below all others")["sol_F-hat (PCC)"] is False
    assert outcomes(table, "LRP shows better")["sol_F-tilde (PCC)"] is True


def test_tables_6_and_7(tmp_path: Path) -> None:
    names = [f"{kind}+{count}" for kind in ("LIME", "SHAP") for count in (50, 200, 500)]
    likely = dict(zip(names, (-0.4, -0.4, -9.0, -8.0, -0.4, -0.4), strict=True))
    frame = explained(likely, "value", "ln P F-hat", bound=False)
    table = read_table(SAMPLES_PART, results_of(SAMPLES_PART, frame, tmp_path))
    assert table.rows["explainer"].to_list() == names
    assert table.rows["ln P F-tilde value bounded (paper)"].to_list()[2] == "−16.98"
    lack = outcomes(table, "lack robustness")
    assert [lack["LIME+50"], lack["LIME+500"]] == [True, False]
    held = {(text, where): holds for text, where, holds in table.verdicts}
    assert held["500 samples are not significantly more robust than 50", "LIME ln P_F-hat"] is False
    assert held["500 samples are not significantly more robust than 50", "SHAP ln P_F-hat"] is True

    frame = pl.concat(
        [
            explained({"not fixed": -0.4, "fixed": -9.0}, "value", "ln P F-hat", bound=False),
            explained({"not fixed": -9.0, "fixed": -4.0}, "value", "ln P F-tilde", bound=False),
        ]
    )
    table = read_table(SEGMENTATION_PART, results_of(SEGMENTATION_PART, frame, tmp_path))
    assert table.rows["ln P F-hat value bounded (paper)"].to_list() == ["−0.37", "−34.22"]
    assert outcomes(table, "sensitive to noise") == {"sol_F-hat (PCC)": None, "ln P_F-hat": True}
    assert outcomes(table, "not effective")["ln P_F-tilde"] is True


# ---- Table 4 ----


def test_times_are_in_units_of_the_models_passes() -> None:
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu", batch_size=64)
    explainers: dict[str, Explainer] = {"one": get_explainer("input_x_gradient"), "many": IntegratedGradients(steps=50)}
    frame = measure_times(model, standfast.data.bundled("digits").inputs[:1], 64, explainers, 3)
    assert frame["explainer"].to_list() == ["one"] * 3 + ["many"] * 3
    one, many = (frame.filter(pl.col("explainer") == name)["passes"].median() for name in ("one", "many"))
    assert 8 * one < many  # type: ignore[operator]
    assert frame["seconds"].min() > 0  # type: ignore[operator]
    assert necessary_seconds(LIME(samples=200), 1.0, 3.0) == LIME(samples=200).rows_per_input
    assert necessary_seconds(IntegratedGradients(steps=20), 1.0, 3.0) == 60.0
    assert necessary_seconds(get_explainer("deeplift"), 1.0, 3.0) == 6.0
    assert necessary_seconds(get_explainer("gradcam"), 1.0, 3.0) == 1.0


def test_a_measurement_is_read_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame(
        {
            "explainer": ["Gradient x Input", "LIME"],
            "sample": [0, 0],
            "status": ["ok", "ok"],
            "seconds": [0.1, 4.0],
            "passes": [1.0, 40.0],
            "share": [0.9, 0.8],
        }
    )
    asked: list[Scale] = []

    def measure(scale: Scale) -> pl.DataFrame:
        asked.append(scale)
        return frame

    part = dataclasses.replace(TIME_PART, measure=measure)
    monkeypatch.setitem(reproductions._entries, "safari-table4", Reproduction("t", (part,)))  # type: ignore[attr-defined]
    (table,) = reproduce("safari-table4", "small", tmp_path)
    assert asked == ["small"]
    assert table.rows["seconds"].to_list() == [0.1, 4.0]
    assert table.rows["seconds (paper)"].to_list() == ["0.0202", "99.21"]
    assert outcomes(table, "much more time")["passes"] is True
    assert [holds for text, _, holds in table.verdicts if "as in the paper" in text] == [False]
    assert pl.read_parquet(tmp_path / "safari-times-small" / "measured.parquet").equals(frame)
    assert (tmp_path / "safari-times-small" / "environment.json").is_file()
    assert write_studies("safari-table4", "small", tmp_path) == []


# ---- real, and tiny ----


@pytest.mark.skipif(not (data_root() / "mnist").is_dir(), reason="needs MNIST")
@pytest.mark.parametrize(("model", "smooth"), [("lenet5-mnist", False), ("lenet5-tanh-mnist-plain", True)])
def test_digits_near_the_boundary_are_recognised_and_change_class(model: str, smooth: bool) -> None:
    digits = digits_near_boundary(5, smooth)
    classifier = standfast.Model(standfast.zoo.load(model), bounds=(0.0, 1.0), device="cpu")
    assert torch.equal(classifier.predict(digits.inputs), digits.labels)
    low, high = ((digits.inputs + reach).clamp(0, 1) for reach in (-0.3, 0.3))
    noise = torch.rand((1000, *digits.inputs.shape[1:]), generator=torch.Generator().manual_seed(0))
    for row in range(2):
        copies = low[row] + (high[row] - low[row]) * noise
        share = float((classifier.predict(copies) != digits.labels[row]).double().mean())
        assert 0.0005 < share < 0.03


def test_tiny_runs_of_tables_1_and_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert SEARCH_PART.study is not None
    assert EFFICIENCY_PART.study is not None
    tiny = {"data": {"digits": "digits"}, "samples": 2}
    study = SEARCH_PART.study("small")
    metrics = {label: {**entry, "budget": 40} for label, entry in study["metrics"].items()}
    found = standfast.run_study({**study, **tiny, "metrics": metrics}, tmp_path / "1", progress=False)
    table = read_table(SEARCH_PART, found.results)
    assert table.failures == 0
    assert table.rows["samples"].to_list() == [2] * 4
    frame = found.frame("genetic")
    assert table.rows["similarity"][0] == pytest.approx(frame["similarity"].mean())
    assert (frame["sens_max"] > 0).all()

    study = EFFICIENCY_PART.study("small")
    subset = {"particles": 40, "moves": 2, "floor": -15.0}
    metrics = {"F-hat": {**study["metrics"]["F-hat"], **subset, "threshold": 0.8, "neighbourhood": {"linf": 0.2}}}
    found = standfast.run_study({**study, **tiny, "metrics": metrics}, tmp_path / "2", progress=False)
    frame = EFFICIENCY_PART.prepare(found.results)
    assert not frame["censored"].any()
    for row in frame.iter_rows(named=True):
        levels = row["samples_paper"] / 40
        assert row["model_evaluations"] - 40 * (1 + 2 * (levels - 1)) in (0, 1)  # and the seed
        assert 0 < row["eq16"] < 2
    print_table(read_table(EFFICIENCY_PART, found.results), "small")
    assert "N_SS" in capsys.readouterr().out


def test_sentences_at_the_small_radius_are_judged_by_the_network_trained_there(tmp_path: Path) -> None:
    """The other adversarially trained network is worse than plain, and must not decide."""
    height = dict(zip((*SCHEMES, SMALL_PGD), (0.5, 0.5, 0.6, 0.55, 0.2, 0.8), strict=True))
    rows = [
        {"label": label, "model": model, "sample": sample, "similarity": base + 0.01 * sample, "margin": -base}
        for label in ("worst c", "worst F-hat", "worst F-hat, gradient")
        for model, base in height.items()
        for sample in range(6)
    ]
    frame = pl.DataFrame(rows)
    verdicts = SMALL_RADIUS_PART.verdicts(frame)
    assert {text: holds for text, _, holds in verdicts} == {
        "Hessian regularisation improves on plain training": True,
        "adversarial training improves on plain training": True,
        "input Hessian is more effective than input gradient regularisation": True,
        "adversarial training is the best (bold in the table)": True,
    }
    assert any(f"{SMALL_PGD} minus plain 0.3" in note for note in SMALL_RADIUS_PART.notes(frame))
