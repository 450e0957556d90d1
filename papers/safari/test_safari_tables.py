"""SAFARI's reproductions: their studies, what their tables read from results, and what they judge."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import standfast
from papers.base import (
    Part,
    Reproduction,
    Table,
    read_table,
    reproduce,
    reproductions,
    write_studies,
)
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
from papers.safari.times import TIME_PART, measure_times
from papers.test_tables import outcomes
from standfast.data.root import data_root
from standfast.explainers import Explainer
from standfast.explainers import get as get_explainer
from standfast.explainers.gradients.input_gradients import IntegratedGradients
from standfast.metrics import WorstCase
from standfast.study.file.spec import study_from

SHARED = {
    "data": "MNIST",
    "model": "lenet5",
    "explainer": "Gradient x Input",
    "repeat": 0,
    "status": "ok",
    "job": "a",
}
NAMES = [name for name in reproductions.names() if name.startswith("safari")]
PARTS = {part.name: part for name in NAMES for part in reproductions[name].parts}
STUDIES = [part for part in PARTS.values() if part.study is not None]
HAT, TILDE, LOG_HAT, LOG_TILDE = (
    "sol_F-hat (PCC)",
    "sol_F-tilde (PCC)",
    "ln P_F-hat",
    "ln P_F-tilde",
)


def rows(column: str, values: Any, **more: Any) -> pl.DataFrame:
    """Rows of `Results.samples` for values of samples 0, 1, ..., with further columns of one value each."""
    values = np.asarray(values, dtype=float)
    frame = pl.DataFrame({"sample": np.arange(len(values)), column: values})
    return frame.with_columns(
        pl.lit(value).alias(name) for name, value in {**SHARED, **more}.items()
    )


def scatter(
    column: str, means: dict[str, float], by: str, spread: float = 0.01, **more: Any
) -> pl.DataFrame:
    """Eight rows around each mean, with the names of the means in the column `by`."""
    noise = np.random.default_rng(5).normal(size=(len(means), 8))
    return pl.concat(
        rows(column, mean + spread * noise[place], **{**more, by: name})
        for place, (name, mean) in enumerate(means.items())
    )


def read(part: Part, *frames: pl.DataFrame, **arrays: np.ndarray) -> Table:
    """The part's table from results as a small study of it would have left them."""
    frame = pl.concat(frames, how="diagonal")
    assert part.study is not None
    study = part.study("small")
    entries = {label: next(iter(entry.items())) for label, entry in study["metrics"].items()}
    metrics = {
        label: {"metric": name, "options": options} for label, (name, options) in entries.items()
    }
    manifest = {
        "explainers": list(study["explainers"]),
        "models": study["models"],
        "metrics": metrics,
        "data": {},
    }
    job = {
        "job": "a",
        "start": 0,
        "stop": frame["sample"].n_unique(),
        "seconds": 1.0,
        "status": "done",
    }
    jobs = pl.DataFrame([{**job, "artefacts": bool(arrays)}])
    made = {"manifest": manifest, "samples": frame, "jobs": jobs, "failures": jobs.clear()}
    return read_table(part, SimpleNamespace(**made, artefacts=lambda job: arrays))  # type: ignore[arg-type]


# ---- studies ----


@pytest.mark.parametrize("part", STUDIES, ids=lambda part: part.name)
def test_full_studies_are_larger_and_budgets_are_those_of_searches(part: Part) -> None:
    assert part.study is not None
    radius = (
        0.1
        if "linf01" in part.name
        else 0.03
        if part.name in ("safari-table8", "safari-table9")
        else 0.3
    )
    populations = [
        size * (iterations + 1) for size in (50, 100, 200, 500, 1000) for iterations in (10, 500)
    ]
    searches = [*populations, 40, 60, 200, 500, 600, 3000, 5000, 6000, 10_000, 500_000]
    budgets = {WorstCase.plan_budget(evaluations) for evaluations in searches}
    work = {}
    for scale in ("small", "full"):
        content = part.study(scale)
        options = [each for entry in content["metrics"].values() for each in entry.values()]
        assert {each["budget"] for each in options if "budget" in each} <= budgets
        study = study_from(content)
        metrics = [entry.value for entry in study.metrics.values()]
        assert all(metric.neighbourhood == standfast.LinfBall(radius) for metric in metrics)
        work[scale] = study.samples * sum(metric.cost().evaluations for metric in metrics)  # type: ignore[operator, misc]
    assert work["full"] > 10 * work["small"]
    assert part.departures("small") != part.departures("full")


def test_full_sizes() -> None:
    full = {
        part.name.removeprefix("safari-"): part.study("full")
        for part in STUDIES
        if part.study is not None
    }
    most = WorstCase.plan_budget(500_000)
    genetic = {"genetic": {"population": 1000}}
    assert full["table1"]["metrics"]["genetic"]["worst_case"]["budget"] == most
    for name in ("figure4", "table6", "table7", "table8"):
        worst = full[name]["metrics"]["worst F-hat"]["worst_case"]
        assert (worst["budget"], worst["search"], full[name]["samples"]) == (most, genetic, 100)
    for name in ("table3", "figure4", "table6", "table7", "table8"):
        subset = full[name]["metrics"]["ln P F-hat"]["misinterpretation_probability"]
        assert (subset["particles"], subset["quantile"], subset["moves"], subset["floor"]) == (
            1000,
            0.1,
            250,
            -100.0,
        )
    assert full["table3"]["models"] == {scheme: f"lenet5-mnist-{scheme}" for scheme in SCHEMES}
    assert (full["table9"]["samples"], full["table9"]["data"]["ImageNet"]["options"]["side"]) == (
        20,
        224,
    )


def test_the_smooth_networks_have_the_same_studies_on_larger_images() -> None:
    pairs = [
        (PARTS[name.removesuffix("-smooth")], part)
        for name, part in PARTS.items()
        if name.endswith("-smooth")
    ]
    assert len(pairs) == 8
    for rectified, smooth in pairs:
        assert rectified.study is not None
        assert smooth.study is not None
        for scale in ("small", "full"):
            one, other = rectified.study(scale), smooth.study(scale)
            names, found = (
                [
                    each if isinstance(each, str) else next(iter(each))
                    for each in study["models"].values()
                ]
                for study in (one, other)
            )
            # no shifted digits
            full = [f"{name}-plain" if name == "lenet5-mnist" else name for name in names]
            assert found == [name.replace("lenet5-mnist-", "lenet5-tanh-mnist-") for name in full]
            assert set(found) <= set(standfast.zoo.names())
            for section in one.keys() - {"title", "models", "data"}:
                assert one[section] == other[section]
            near = "function" in next(iter(one["data"].values()))
            assert near or other["data"] == {"MNIST": "mnist32:test"}
            assert "ReLU" not in smooth.departures(scale)
            assert "ReLU" in rectified.departures(scale)


@pytest.mark.skipif(not (data_root() / "mnist").is_dir(), reason="needs MNIST")
@pytest.mark.parametrize(
    ("model", "smooth"), [("lenet5-mnist", False), ("lenet5-tanh-mnist-plain", True)]
)
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


# ---- Tables 1 and 2 ----


@pytest.mark.parametrize(("shift", "expected"), [(3.0, True), (-3.0, False), (0.0, None)])
def test_table_1(shift: float, expected: bool | None) -> None:
    noise = np.random.default_rng(1).normal(size=(2, 3, 12))
    frames = []
    for own, label, move in zip(noise, ("genetic", "random"), (shift, 0.0), strict=True):
        more = (pl.Series("sens_max", own[1] + move), pl.Series("sens_lips", own[2] + move))
        frames.append(rows("similarity", own[0] + move, label=label).with_columns(*more))
    table = read(SEARCH_PART, *frames)
    assert table.rows["metric"].to_list() == ["genetic", "random", "block", "gradient"]
    assert table.rows["sens_max (paper)"].to_list()[:2] == ["36.067", "15.226"]
    assert table.rows["similarity"][0] == pytest.approx(noise[0, 0].mean() + shift)
    assert set(outcomes(table, "GA outperforms SMC").values()) == {expected}
    assert set(outcomes(table, "white-box").values()) == {None}


def run_subset(values: Any, error: float, evaluations: int) -> pl.DataFrame:
    """Rows of subset simulation for F-hat with these ln P."""
    more = {"std_error": error, "bound": False, "model_evaluations": evaluations}
    frame = rows("log_probability", values, label="F-hat", **more)
    return frame.with_columns(pl.col("log_probability").alias("value"))


def test_table_2_counts_as_the_paper_and_as_it_is() -> None:
    # Eq. 16 for five levels of 0.1 and a last one, and samples of plain Monte Carlo from it
    last = math.exp(-12.25) / 0.1**5
    line = np.array([*np.log(0.1) * np.arange(1, 6), -12.25, np.nan])
    levels = np.stack([line, line])
    table = read(
        EFFICIENCY_PART, run_subset([-12.25, -12.25], 0.3, 5200), level_log_probability=levels
    )
    row = table.rows.row(0, named=True)
    eq16 = (5 * 9 + (1 - last) / last) / 200
    assert row["False eq16"] == pytest.approx(eq16)
    assert row["False delta2"] == pytest.approx(0.09)
    assert row["False samples_paper"] == pytest.approx(6 * 200)
    assert row["False model_evaluations"] == 5200
    assert 10 ** row["False monte_carlo"] == pytest.approx(
        (1 - math.exp(-12.25)) / math.exp(-12.25) / 0.09
    )
    assert 10 ** row["False monte_carlo_paper"] == pytest.approx(math.expm1(12.25) / eq16)
    paper = {
        name: row[f"{name} (paper)"]
        for name in ("value bounded", "False eq16", "False samples_paper")
    }
    assert list(paper.values()) == ["−12.25", "0.0184", "15000"]
    # the paper's own numbers fit each other
    assert math.expm1(12.25) / 0.0184 == pytest.approx(1.13e7, rel=0.01)
    assert row["False monte_carlo_paper (paper)"] == "7.05"
    assert outcomes(table, "SS requires fewer") == {"F-hat": True, "F-tilde": None}


@pytest.mark.parametrize(
    ("evaluations", "expected"), [(10**4, True), (10**9, False), (10**6, None)]
)
def test_table_2_verdict(evaluations: int, expected: bool | None) -> None:
    values = -10.0 + np.linspace(-2, 2, 8)
    levels = np.stack([values / 2, values], axis=1)
    table = read(
        EFFICIENCY_PART, run_subset(values, 0.2, evaluations), level_log_probability=levels
    )
    assert outcomes(table, "SS requires fewer")["F-hat"] is expected


# ---- Table 3 ----


def test_verdicts_of_table_3_need_separate_intervals_and_paired_differences() -> None:
    rng = np.random.default_rng(0)
    base, noise = rng.normal(size=40), rng.normal(size=(4, 40)) * 0.05
    shifts = {"low": 0.0, "near": 0.3, "high": 5.0, "equal": 0.0}
    frame = pl.concat(
        rows("v", base + shift + noise[i], label="m", model=name)
        for i, (name, shift) in enumerate(shifts.items())
    )
    expected = {
        ("high", "low"): True,
        ("low", "high"): False,
        ("near", "low"): None,
        ("equal", "low"): None,
    }
    for pair, holds in {**expected, ("high", "nobody"): None}.items():
        assert is_clearly_above(frame, [pair], "v", "model", 0.9) is holds, pair
    assert is_clearly_above(frame, [], "v", "model", 0.9) is None


def test_values_that_are_not_resolved_are_bounds_and_decide_nothing() -> None:
    """The bounds of one model are far below the values of the other, but nobody knows how far."""
    table = read(
        SCHEME_PART,
        scatter("value", {"plain": -5.0}, "model", label="ln P F-hat", bound=False),
        scatter("value", {"hessian": -40.0}, "model", label="ln P F-hat", bound=True),
    )
    plain, hessian = (
        table.rows.filter(model=name).row(0, named=True) for name in ("plain", "hessian")
    )
    assert hessian["ln P F-hat value bounded"] == pytest.approx(-40.0, abs=0.5)
    assert hessian["ln P F-hat value bounded_bound"] > plain["ln P F-hat value bounded_bound"]
    assert outcomes(table, "Hessian regularisation improves")[LOG_HAT] is None


def test_table_3() -> None:
    log_p = dict(zip(SCHEMES, (-10.0, -20.0, -30.0, -30.0, -80.0), strict=True))
    margins = dict(zip(SCHEMES, (20.0, 10.0, 10.0, 10.0, 30.0), strict=True))
    kept = scatter("similarity", dict.fromkeys(SCHEMES, 0.9), "model", 0.3, label="worst F-tilde")
    table = read(
        SCHEME_PART,
        scatter("value", log_p, "model", 0.3, label="ln P c", bound=False),
        scatter("margin", margins, "model", 0.3, label="worst c"),
        kept.with_columns((pl.col("sample") > 1).alias("found")),
    )
    assert table.rows["model"].to_list() == list(SCHEMES)
    assert table.rows["ln P c value bounded"][0] == pytest.approx(-10.0, abs=0.5)
    assert table.rows["worst c margin (paper)"].to_list() == [
        "22.43",
        "11.37",
        "10.59",
        "10.04",
        "−0.16",
    ]
    paper = ["−31.47", "−44.96", "−43.85", "−46.19", "−89.09"]
    assert table.rows["ln P F-tilde value bounded (paper)"].to_list() == paper
    expected = kept.filter(pl.col("sample") > 1, pl.col("model") == "plain")["similarity"].mean()
    assert table.rows["worst F-tilde True similarity"][0] == pytest.approx(expected)
    hessian, best = outcomes(table, "Hessian regularisation improves"), outcomes(table, "the best")
    wanted = ("ln P_c", "sol_c (J)", HAT, TILDE)
    assert [hessian[heading] for heading in wanted] == [True, True, None, None]
    assert [best[heading] for heading in wanted] == [True, False, None, None]
    assert outcomes(table, "than input gradient")["sol_c (J)"] is None
    assert any("ln P_c, paired: gradient minus plain −" in note for note in table.notes)
    assert any("class changes found" in note and "plain 75%" in note for note in table.notes)


def test_sentences_at_the_small_radius_are_judged_by_the_network_trained_there() -> None:
    """The other adversarially trained network is worse than plain, and must not decide."""
    similarities = dict(zip((*SCHEMES, SMALL_PGD), (0.5, 0.5, 0.6, 0.55, 0.2, 0.8), strict=True))
    margins = {name: -value for name, value in similarities.items()}
    table = read(
        SMALL_RADIUS_PART,
        scatter("margin", margins, "model", label="worst c"),
        scatter("similarity", similarities, "model", label="worst F-hat"),
        scatter("similarity", similarities, "model", label="worst F-hat, gradient"),
    )
    assert [holds for _, _, holds in table.verdicts] == [True] * 4
    assert any(f"{SMALL_PGD} minus plain 0.3" in note for note in table.notes)


# ---- Fig. 2 and 3 ----


def test_figure_2_reads_traces_at_iterations() -> None:
    # population 50: iterations 0, 50, 100, 300, 500
    evaluations = np.array([1, 50, 2550, 5050, 15_050, 25_050])
    pcc = np.array([[1.0, 0.9, 0.5, 0.3, 0.1, 0.095], [1.0, 0.8, 0.4, 0.2, 0.1, 0.099]])
    traces = {
        "trace_evaluations": np.tile(evaluations, (2, 1)),
        "trace_margin": np.full((2, 6), -2.0),
    }
    table = read(
        ITERATION_PART,
        rows("similarity", [0.0, 0.0], label="F-hat, 50"),
        **traces,
        trace_similarity=pcc,
    )
    assert table.rows["iterations"].to_list() == ["0", "50", "100", "200", "300", "400", "500"]
    assert table.rows["F-hat pcc"].to_list() == pytest.approx(
        [0.85, 0.45, 0.25, 0.25, 0.1, 0.1, 0.097]
    )
    # an interval of two digits is wide
    assert outcomes(table, "converged") == {
        "F-hat": None,
        "F-tilde": None,
    }
    assert outcomes(table, "constraint J") == {"F-hat": True, "F-tilde": None}


def test_figure_2_population() -> None:
    flat = {"50": 0.5, "100": 0.4, "200": 0.3, "500": 0.2, "1000": 0.2}
    both = {
        f"F-hat, {size}, {e}": value
        for e in ("iterations", "evaluations")
        for size, value in flat.items()
    }
    table = read(POPULATION_PART, scatter("similarity", both, "label", 0.001))
    assert table.rows["population"].to_list() == list(flat)
    assert table.rows["F-hat iterations similarity"].to_list() == pytest.approx(
        list(flat.values()), abs=0.01
    )
    assert outcomes(table, "population size over 500")["F-hat"] is True
    assert outcomes(table, "more important")["F-hat"] is False, "here small populations do worse"


def run_curve(
    method: str, value: float, repeat: int, censored: bool = False, error: float = 0.1
) -> pl.DataFrame:
    """One run of Fig. 3; `method` has the words of the label after the event and the threshold."""
    more = {"repeat": repeat, "censored": censored, "std_error": error}
    return rows("log_probability", [value], label=f"F-hat, 0.5, {method}", **more)


@pytest.mark.parametrize(("offset", "expected"), [(0.0, True), (-4.0, False)])
def test_figure_3_compares_with_pooled_monte_carlo(offset: float, expected: bool) -> None:
    rng = np.random.default_rng(4)
    hits = [np.log(1e-3), np.log(3e-3), np.log(5e-4)]  # the third is no hit: an upper bound
    frames = [run_curve("Monte Carlo", value, r, r == 2, 0.06) for r, value in enumerate(hits)]
    truth = math.log(4e-3 / 3)
    for method, shift in (("gaussian", offset), ("random walk", -1.0)):
        for moves, spread in (("1", 2.0), ("25", 0.02)):
            centre = truth + shift * (moves == "25")
            frames += [
                run_curve(f"{method}, {moves}", centre + spread * (1 + 0.1 * rng.normal()), r)
                for r in range(3)
            ]
    table = read(CURVE_PART, *frames)
    assert table.rows["event, threshold, moves"].to_list() == ["F-hat, 0.5, 1", "F-hat, 0.5, 25"]
    assert table.rows["gaussian truth"][0] == pytest.approx(truth)
    assert table.rows["gaussian error"][1] == pytest.approx(offset, abs=0.05)
    spread = math.sqrt(0.06**2 * (1e-3**2 + 3e-3**2)) / 3 / math.exp(truth)
    assert table.rows["gaussian truth_error"][0] == pytest.approx(spread)
    assert outcomes(table, "SS overlaps") == {"gaussian": expected, "random walk": False}
    assert outcomes(table, "increased MH steps")["gaussian"] is expected


def test_figure_3_counts_runs_without_an_estimate() -> None:
    frames = [run_curve("Monte Carlo", -5.0, 0, error=0.01)]
    for method, lost in (("gaussian", 0), ("random walk", 3)):
        frames += [run_curve(f"{method}, 5", -5.0 - 0.01 * r, r, r < lost) for r in range(4)]
    table = read(CURVE_PART, *frames)
    assert outcomes(table, "SS overlaps") == {"gaussian": True, "random walk": False}
    assert table.rows["random walk lost"][0] == pytest.approx(0.75)


# ---- Fig. 4, Tables 6 and 7 ----


def test_figure_4() -> None:
    pcc = {
        "Gradient x Input": 0.1,
        "Integrated Gradients": 0.5,
        "Guided Backprop": 0.2,
        "LRP": 0.3,
        "DeepLift": 0.6,
    }
    table = read(
        EXPLAINER_PART,
        scatter("similarity", pcc, "explainer", label="worst F-hat"),
        scatter("similarity", {**pcc, "LRP": 0.05}, "explainer", label="worst F-tilde", found=True),
        scatter("value", dict.fromkeys(pcc, -10.0), "explainer", label="ln P F-hat", bound=False),
    )
    assert table.rows["explainer"].to_list() == list(pcc)
    assert outcomes(table, "DeepLift and IG outperform") == {HAT: True, LOG_HAT: None}
    assert outcomes(table, "Guided Backprop and Gradient x Input below")[HAT] is True
    assert outcomes(table, "Guided Backprop below all others")[HAT] is False
    assert outcomes(table, "IG above Gradient")[HAT] is True
    assert outcomes(table, "LRP shows better")[TILDE] is True
    assert outcomes(table, "vulnerable")[TILDE] is True


def test_tables_6_and_7() -> None:
    names = [f"{kind}+{count}" for kind in ("LIME", "SHAP") for count in (50, 200, 500)]
    likely = dict(zip(names, (-0.4, -0.4, -9.0, -8.0, -0.4, -0.4), strict=True))
    table = read(
        SAMPLES_PART, scatter("value", likely, "explainer", label="ln P F-hat", bound=False)
    )
    assert table.rows["explainer"].to_list() == names
    assert table.rows["ln P F-tilde value bounded (paper)"].to_list()[2] == "−16.98"
    assert table.rows["worst F-hat similarity (paper)"].to_list()[:3] == [
        "0.0002",
        "6.88e−05",
        "8.59e−06",
    ]
    lack, improved = (
        outcomes(table, "lack robustness"),
        outcomes(table, "500 samples are not significantly"),
    )
    assert [lack["LIME+50"], lack["LIME+500"]] == [True, False]
    assert [improved[f"LIME {LOG_HAT}"], improved[f"SHAP {LOG_HAT}"]] == [False, True]

    hat, tilde = {"not fixed": -0.4, "fixed": -9.0}, {"not fixed": -9.0, "fixed": -4.0}
    table = read(
        SEGMENTATION_PART,
        scatter("value", hat, "explainer", label="ln P F-hat", bound=False),
        scatter("value", tilde, "explainer", label="ln P F-tilde", bound=False),
    )
    assert table.rows["ln P F-hat value bounded (paper)"].to_list() == ["−0.37", "−34.22"]
    assert outcomes(table, "sensitive to noise") == {HAT: None, LOG_HAT: True}
    assert outcomes(table, "not effective")[LOG_TILDE] is True


# ---- Table 4 ----


def test_times_are_also_ratios_to_the_first_explainer() -> None:
    model = standfast.Model(
        standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu", batch_size=64
    )
    explainers: dict[str, Explainer] = {
        "one": get_explainer("input_x_gradient"),
        "many": IntegratedGradients(steps=50),
    }
    frame = measure_times(model, standfast.data.bundled("digits").inputs[:1], 24, explainers, 3)
    assert frame["explainer"].to_list() == ["one"] * 3 + ["many"] * 3
    one, many = (frame.filter(pl.col("explainer") == name) for name in ("one", "many"))
    assert one["ratio"].mean() == pytest.approx(1)
    assert many["ratio"].median() > 8  # type: ignore[operator]
    assert many["ratio"][0] == pytest.approx(many["seconds"][0] / one["seconds"].mean())  # type: ignore[operator]
    assert frame["seconds"].min() > 0  # type: ignore[operator]


def test_a_measurement_is_read_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, numbers = ["Gradient x Input", "LIME"], {"seconds": [0.1, 4.0], "ratio": [1.0, 40.0]}
    frame = pl.DataFrame({"explainer": names, "sample": [0, 0], "status": ["ok", "ok"], **numbers})
    part = dataclasses.replace(TIME_PART, measure=lambda scale: frame)
    monkeypatch.setitem(reproductions._entries, "safari-table4", Reproduction("t", (part,)))
    (table,) = reproduce("safari-table4", "small", tmp_path)
    assert table.rows["seconds"].to_list() == [0.1, 4.0]
    assert table.rows["seconds (paper)"].to_list() == ["0.0202", "99.21"]
    assert table.rows["ratio (paper)"].to_list() == ["1", "4911.39"]
    assert [holds for _, _, holds in table.verdicts] == [True, False]
    assert pl.read_parquet(tmp_path / "safari-table4-small" / "measured.parquet").equals(frame)
    assert (tmp_path / "safari-table4-small" / "environment.json").is_file()
    assert write_studies("safari-table4", "small", tmp_path) == []


# ---- tiny runs ----


def test_tiny_runs_of_tables_1_and_2(tmp_path: Path) -> None:
    assert SEARCH_PART.study is not None
    assert EFFICIENCY_PART.study is not None
    tiny = {"data": {"digits": "digits"}, "samples": 2}
    study = SEARCH_PART.study("small")
    metrics = {
        label: {"worst_case": {**entry["worst_case"], "budget": 40}}
        for label, entry in study["metrics"].items()
    }
    found = standfast.run_study(
        {**study, **tiny, "metrics": metrics}, tmp_path / "1", progress=False
    )
    table = read_table(SEARCH_PART, found)
    assert table.failures == 0
    assert table.rows["samples"].to_list() == [2] * 4
    frame = found.frame("genetic")
    assert table.rows["similarity"][0] == pytest.approx(frame["similarity"].mean())
    assert (frame["sens_max"] > 0).all()

    study = EFFICIENCY_PART.study("small")
    subset = {"particles": 40, "moves": 2, "floor": -15.0}
    options = {**subset, "threshold": 0.8, "neighbourhood": {"linf": 0.2}}
    name = "misinterpretation_probability"
    metrics = {"F-hat": {name: {**study["metrics"]["F-hat"][name], **options}}}
    found = standfast.run_study(
        {**study, **tiny, "metrics": metrics}, tmp_path / "2", progress=False
    )
    frame = EFFICIENCY_PART.prepare(found)
    assert not frame["censored"].any()
    for row in frame.iter_rows(named=True):
        levels = row["samples_paper"] / 40
        assert row["model_evaluations"] - 40 * (1 + 2 * (levels - 1)) in (0, 1)  # and the seed
        assert 0 < row["eq16"] < 2
