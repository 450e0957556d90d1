"""c-Eval's reproductions: what they read from results, that their segments coincide, one tiny run, and the examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.stats
import torch

import standfast
from papers.base import Part, Table, make_table, reproductions
from papers.c_eval.tables import (
    ATTACK_PART,
    MODEL_PART,
    NATURAL,
    ROBUST,
    SAMPLE_PART,
    compare_orders,
    correlate_attacks,
    correlate_models,
    digits_predicted,
    expected_gradients,
)
from papers.reading import (
    all_above,
    compute_correlations,
    is_at_least,
    judge_by_metric,
    mean_interval,
    order_claim,
    paired_differences,
)
from standfast.data.root import data_root
from standfast.explainers.perturbation.segmented import label_features
from standfast.segments import segment
from standfast.study.file.spec import load_study

EXAMPLES = Path(__file__).parents[2] / "examples"
MNIST = (data_root() / "mnist").is_dir()
SHARED = {"data": "MNIST", "repeat": 0, "status": "ok", "job": "a"}


def rows(values: np.ndarray, column: str, **coordinates: str) -> pl.DataFrame:
    """Rows of `Results.samples` for values of samples 0, 1, ..."""
    own = {**SHARED, "model": NATURAL, **coordinates}
    frame = pl.DataFrame(
        {
            "sample": np.arange(len(values)),
            column: values,
            "bound": np.zeros(len(values), dtype=bool),
        }
    )
    return frame.with_columns(pl.lit(value).alias(name) for name, value in own.items())


def table_of(part: Part, frame: pl.DataFrame) -> Table:
    assert part.study is not None
    return make_table(part, frame, {"explainer": list(part.study("small")["explainers"])})


# ---- statistics ----


def test_correlations_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=60)
    second = first + rng.normal(size=60)
    found = compute_correlations(first, second, np.repeat(np.arange(20), 3))
    for name, function in (("Pearson", scipy.stats.pearsonr), ("Spearman", scipy.stats.spearmanr)):
        value, low, high = found[name]
        assert value == pytest.approx(function(first, second).statistic)
        assert low < value < high
    alone = compute_correlations(first, second, np.arange(60))["Pearson"]
    theory = scipy.stats.pearsonr(first, second).confidence_interval()
    assert alone[1:] == pytest.approx((theory.low, theory.high), abs=0.08)


def test_intervals_widen_where_explanations_of_a_digit_repeat_each_other() -> None:
    first, noise = np.random.default_rng(1).normal(size=(2, 20)).repeat(10, axis=1)
    groups = (np.arange(20).repeat(10), np.arange(200))
    together, apart = (
        np.diff(compute_correlations(first, first + noise, each)["Pearson"][1:]) for each in groups
    )
    assert together > 2 * apart


def test_differences_are_paired_and_leave_bounds_out() -> None:
    a = rows(np.array([2.0, 3.0, 9.0]), "value", explainer="a", label="GSA")
    a = a.with_columns((pl.col("sample") == 2).alias("bound"))
    b = rows(np.array([1.0, 1.5, 1.0]), "value", explainer="b", label="GSA")[::-1]
    assert sorted(paired_differences(pl.concat([a, b]), "a", "b").tolist()) == [1.0, 1.5]
    assert len(paired_differences(a, "a", "b")) == 0
    low, high = scipy.stats.t.interval(0.95, 2, 2.0, 1 / np.sqrt(3))
    assert mean_interval(np.array([1.0, 2.0, 3.0])) == pytest.approx((2.0, low, high))


def test_a_sentence_holds_fails_or_stays_undecided() -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(4, 50))
    shifts = {"high": 3.0, "low": 0.0, "near": 0.02, "random": -5.0}
    frame = pl.concat(
        rows(shift + noise[i], "value", explainer=name, label="GSA")
        for i, (name, shift) in enumerate(shifts.items())
    )
    assert all_above(frame, [("high", "low"), ("low", "random")]) is True
    assert all_above(frame, [("high", "low"), ("random", "low")]) is False
    assert all_above(frame, [("high", "low"), ("near", "low")]) is None
    assert all_above(frame, [("high", "nobody")]) is None
    assert all_above(frame, []) is None
    assert judge_by_metric(order_claim("claim", ["high"], ["low", "high"]))(frame) == [
        ("claim", "GSA", True)
    ]
    assert judge_by_metric(order_claim("claim", ["high"], ["low"]))(frame.clear()) == []
    assert [is_at_least((0.0, *ends), 0.7) for ends in ((0.7, 0.9), (0.5, 0.69), (0.6, 0.8))] == [
        True,
        False,
        None,
    ]


# ---- tables and notes, from made-up results ----


def test_figure_4_reads_correlations_with_the_best_attack() -> None:
    rng = np.random.default_rng(3)
    parts, values = [], {}
    for explainer in ("LIME", "centre", "random"):
        truth = rng.uniform(1, 2, 30)
        for label, noise in (("GSA", 0.5), ("IGA", 0.05), ("FMN", 0.0), ("CW", -0.02)):
            values[explainer, label] = truth + noise * np.abs(rng.normal(size=30))
            parts.append(rows(values[explainer, label], "c", explainer=explainer, label=label))
    frame = pl.concat(parts).with_columns(value="c")
    best = np.concatenate(
        [np.minimum(values[e, "FMN"], values[e, "CW"]) for e in ("LIME", "centre", "random")]
    )
    found = {name: r for name, r, _ in correlate_attacks(frame, "c")}
    for name in ("GSA", "IGA"):
        own = np.concatenate([values[e, name] for e in ("LIME", "centre", "random")])
        assert found[name]["Pearson"][0] == pytest.approx(scipy.stats.pearsonr(own, best).statistic)
        assert found[name]["Spearman"][0] == pytest.approx(
            scipy.stats.spearmanr(own, best).statistic
        )
    table = table_of(ATTACK_PART, frame)
    assert table.rows["GSA value"][0] == pytest.approx(values["LIME", "GSA"].mean())
    assert table.rows["CW value"][2] == pytest.approx(values["random", "CW"].mean())
    assert any(f"{found['IGA']['Pearson'][0]:.3f}" in note for note in table.notes)
    assert ("IGA", True) in [
        (where, holds) for text, where, holds in table.verdicts if "strong" in text
    ]


def test_figure_9_judges_each_increase_of_the_samples() -> None:
    rng = np.random.default_rng(4)
    base = rng.uniform(1, 2, 20)
    means = {
        "LIME 100": 0.0,
        "LIME 1000": 0.5,
        "LIME 4000": 0.8,
        "LIME 10000": 0.8,
        "random": -0.5,
        "centre": -0.2,
    }
    frame = pl.concat(
        rows(base + mean + 0.01 * rng.normal(size=20), "value", explainer=name, label="c-Eval plot")
        for name, mean in means.items()
    )
    table = table_of(SAMPLE_PART, frame.with_columns(knee=pl.lit(0.2)))
    assert [holds for _, _, holds in table.verdicts] == [True, True, None, True, True]
    assert table.rows["knee"][0] == pytest.approx(0.2)
    assert table.notes[-3].startswith("LIME 1000 minus LIME 100: 0.5")


def test_figure_10_reads_pairs_of_models() -> None:
    rng = np.random.default_rng(5)
    natural = rng.uniform(1, 2, 40)
    c = {
        NATURAL: natural,
        ROBUST[0]: natural + 1 + 0.1 * rng.normal(size=40),
        ROBUST[1]: 3 + rng.uniform(1, 2, 40),
    }
    frame = pl.concat(
        rows(v, "c", explainer="LIME", label="IGA", model=model) for model, v in c.items()
    )
    for _, robust, found, count in correlate_models(frame):
        assert found["Pearson"][0] == pytest.approx(
            scipy.stats.pearsonr(natural, c[robust]).statistic
        )
        assert count == 40
    table = table_of(MODEL_PART, frame)
    assert table.rows[f"{ROBUST[1]} IGA c"][0] == pytest.approx(c[ROBUST[1]].mean())
    assert np.isnan(table.rows[f"{NATURAL} FMN c"][0])
    assert [holds for _, _, holds in table.verdicts] == [True, False, True]
    assert any(
        f"{found['Pearson'][0]:.3f}" in note and "Pearson 0.764" in note for note in table.notes
    )


def test_figure_13_compares_two_orders() -> None:
    names = ("DeepLIFT", "IG 5", "IG 10", "LRP", "GB", "Grad")
    rng = np.random.default_rng(6)
    ratios = {name: 2 - 0.2 * i + 0.01 * rng.normal(size=12) for i, name in enumerate(names)}
    odds = {
        name: 10.0 - i + (1.5 if name == "Grad" else 0) + 0.1 * rng.normal(size=12)
        for i, name in enumerate(names)
    }
    parts = [rows(v, "value", explainer=name, label="GSA") for name, v in ratios.items()]
    parts += [rows(v, "value", explainer=name, label="log-odds") for name, v in odds.items()]
    frame = pl.concat(parts, how="diagonal")
    found = compare_orders(frame, "GSA")
    assert found is not None
    by_c, by_odds, (r, low, high), statistic = found
    assert statistic == "mean"
    assert by_c == list(names)
    assert by_odds == ["DeepLIFT", "IG 5", "IG 10", "LRP", "Grad", "GB"]
    expected = scipy.stats.spearmanr(
        [v.mean() for v in ratios.values()], [v.mean() for v in odds.values()]
    ).statistic
    assert (r, low <= r <= high) == (pytest.approx(expected), True)
    assert compare_orders(frame, "IGA") is None
    # a digit without c(empty) has no ratio, and is left out
    gone = (pl.col("explainer") == "LRP") & (pl.col("label") == "GSA") & (pl.col("sample") == 3)
    without = frame.with_columns(pl.when(gone).then(float("nan")).otherwise("value").alias("value"))
    assert compare_orders(without, "GSA") == compare_orders(
        frame.filter(pl.col("sample") != 3), "GSA"
    )
    # a value that is only a lower bound is the smallest possible in the order, and may be the largest in the interval
    lost = (pl.col("explainer") == "GB") & (pl.col("label") == "GSA") & (pl.col("sample") < 8)
    found = compare_orders(
        frame.with_columns(pl.when(lost).then(True).otherwise("bound").alias("bound")), "GSA"
    )
    assert found is not None
    assert (found[0][0], found[3]) == ("DeepLIFT", "median")
    firsts = [np.median(v) for v in ratios.values()]
    lowest, highest = found[2][1:]
    for value in (firsts[4], np.inf):  # of GB, most of whose ratios are bounds
        medians = [
            value if name == "GB" else middle for name, middle in zip(names, firsts, strict=True)
        ]
        r = scipy.stats.spearmanr(medians, [v.mean() for v in odds.values()]).statistic
        assert lowest <= r <= highest


# ---- what the studies are made of ----


def test_full_studies_have_the_papers_sizes() -> None:
    for name in ("figure4", "figure9", "figure10", "figure11", "figure13"):
        for part in reproductions[f"ceval-{name}"].parts:
            small, full = (part.study(scale) for scale in ("small", "full"))
            assert small["metrics"].keys() == full["metrics"].keys()
            assert name == "figure13" or small["samples"] < full["samples"]
            assert (part.departures("small") != part.departures("full")) is True
    (options,) = (entry["options"] for entry in full["data"].values())
    assert options == {"label": 9, "count": 950}
    assert full["explainers"]["LRP"] == "input_x_gradient", "the paper's simplification"


def test_segments_of_lime_and_of_the_metric_coincide() -> None:
    study = SAMPLE_PART.study("small")
    digits = standfast.data.bundled("digits").inputs[:5]
    cut = segment(
        digits, study["metrics"]["c-Eval plot"]["c_eval_plot"]["segments"]
    ).labels.flatten(1)
    for name, lime in study["explainers"].items():
        if name.startswith("LIME"):
            assert torch.equal(label_features(digits, lime["lime"]["segments"])[0], cut)


def test_expected_gradients_add_up_and_treat_rows_alone() -> None:
    module = standfast.zoo.load("lenet5-mnist")
    digits = standfast.data.bundled("digits")[:3]
    linear = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    for network, close in ((module, {"rtol": 0.25}), (linear, {"atol": 1e-4})):
        maps = expected_gradients(network, digits.inputs, digits.labels)
        with torch.no_grad():
            own = network(digits.inputs).gather(1, digits.labels[:, None])[:, 0]
            others = network(standfast.data.bundled("digits").inputs[-20:])[:, digits.labels].mean(
                0
            )
        assert torch.allclose(maps.flatten(1).sum(1), own - others, **close)
        alone = expected_gradients(network, digits.inputs[1:2], digits.labels[1:2])
        assert torch.allclose(alone, maps[1:2], atol=1e-5)


@pytest.mark.skipif(not MNIST, reason="needs the MNIST test set")
def test_digits_are_those_that_the_network_takes_for_the_label() -> None:
    found = digits_predicted(8, 12)
    assert len(found) == 12
    assert (standfast.zoo.load("lenet5-mnist")(found.inputs).argmax(1) == 8).all()


# ---- examples ----


@pytest.mark.parametrize(
    "file", [EXAMPLES / "c_eval_caltech101.yaml", Path(__file__).parent / "gtsrb.yaml"]
)
def test_examples_are_valid_and_cut_alike(file: Path) -> None:
    study = load_study(file)
    content = study.plain()
    explainers, metrics = (
        [options for entry in content[section].values() for options in entry.values()]
        for section in ("explainers", "metrics")
    )
    assert {"random", "centre"} <= set(content["explainers"])
    cuts = {options["segments"] for options in explainers if "segments" in options}
    assert cuts == {options["segments"] for options in metrics}
    assert {(options["unit"], options["fraction"]) for options in metrics} == {("segment", 0.2)}
