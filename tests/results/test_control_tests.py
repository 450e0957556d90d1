"""Controls beside explainers: which metrics evaluate them, that they are never ranked, and what is said of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest
import scipy.stats
import torch
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError
from standfast.report.page.cells import describe_row
from standfast.report.sentences import say
from standfast.results.formatting import format_interval, format_number
from standfast.statistics.comparison import compare_with_controls
from standfast.statistics.paired import bootstrap_interval


def setting() -> tuple[standfast.Model, Tensor]:
    """A model that depends on the left half of an image only, and images whose right half is brighter."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.rand(1, 64) * torch.tensor([[1.0], [-1.0]]))
        layer.weight.reshape(2, 8, 8)[:, :, 4:] = 0.0
        layer.bias.copy_(torch.tensor([-4.0, 4.0]))
    x = 0.6 + 0.2 * torch.rand(12, 1, 8, 8)
    x[..., 4:] += 0.2
    return standfast.Model(
        nn.Sequential(nn.Flatten(), layer), (0.0, 1.0), device="cpu", batch_size=64
    ), x


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> standfast.Results:
    model, x = setting()
    metrics = ["aopc:samples=2,steps=8,region=1,score=logit", "max_sensitivity:samples=2"]
    return standfast.evaluate(
        model,
        {"good": "input_x_gradient", "poor": standfast.explainers.RandomExplainer(seed=5)}
        | {"copy": lambda m, x, t: x},
        x,
        metrics,
        neighbourhood=standfast.LinfBall(0.1),
        sanity=False,
        out=tmp_path_factory.mktemp("found"),
        progress=False,
    )


def test_metrics_that_say_something_about_the_model_evaluate_controls(
    found: standfast.Results,
) -> None:
    frame = found.frame()
    by_metric = {
        label: set(frame.filter(pl.col("label") == label)["explainer"])
        for label in ("aopc", "max_sensitivity")
    }
    added = {"random", "input_copy", "edges", "randomised:good"}
    assert by_metric["aopc"] == {"good", "poor", "copy"} | added
    # how stable saying nothing is
    assert by_metric["max_sensitivity"] == {
        "good",
        "poor",
        "copy",
        "input_copy",
    }
    assert found.failures == []


def test_controls_are_neither_ranked_nor_named_best(found: standfast.Results) -> None:
    assert found.best()["aopc"].explainers == ("good",)
    table = found.table().filter(metric="aopc")
    verdicts = dict(zip(table["explainer"], table["verdict"], strict=True))
    assert verdicts["good"] == "best"
    assert all(
        verdicts[name] is None
        for name in ("random", "input_copy", "edges", "randomised:good", "poor")
    )


def test_the_table_says_who_beats_the_controls(found: standfast.Results) -> None:
    table = found.table()
    rows = {(row["metric"], row["explainer"]): row for row in table.to_dicts()}
    assert rows["aopc", "good"]["against_controls"] == "beats"
    assert rows["aopc", "copy"]["against_controls"] in ("worse", "undecided")
    assert rows["aopc", "copy"]["best_control"] in {
        "random",
        "input_copy",
        "edges",
        "randomised:good",
        "poor",
    }
    assert rows["aopc", "random"]["against_controls"] is None
    stable = table.filter(pl.col("metric") != "aopc")
    assert len(stable) > 0
    assert stable["against_controls"].is_null().all()


def test_which_controls_are_added() -> None:
    model, x = setting()

    def names(x: Tensor, model: standfast.Model = model, **options: object) -> list[str]:
        arguments = {"explainers": ["saliency"], **options}
        run = standfast.evaluate(
            model,
            inputs=x,
            metrics="aopc:samples=1,steps=1",
            sanity=False,
            progress=False,
            **arguments,  # type: ignore[arg-type]
        )
        return run.frame()["explainer"].unique(maintain_order=True).to_list()

    assert names(x[:1], controls=False) == ["saliency"]
    assert names(x[:1], controls=["edges"]) == ["saliency", "edges"]
    assert names(x[:1], explainers=["edges", "random"]) == ["edges", "random"]
    given = ["saliency", "random", "randomised:saliency"]
    assert names(x[:1], explainers=given) == [*given, "input_copy", "edges"]
    flat = standfast.Model(nn.Linear(4, 2), (0.0, 1.0), device="cpu")
    table = standfast.evaluate(
        flat, "saliency", torch.rand(2, 4), "corruption_curve:samples=1", progress=False
    )
    assert "edges" not in set(table.frame()["explainer"])
    with pytest.raises(
        ArgumentError, match="controls: expected names that differ from those of the explainers"
    ):
        names(x[:1], controls={"saliency": "edges"})


def test_the_test_against_controls_equals_scipy_s() -> None:
    generator = np.random.default_rng(3)
    values = generator.normal(size=(15, 4)) + np.array([0.9, 0.2, 0.0, 0.3])
    tests = compare_with_controls(values, ["a", "b", "x", "y"], ["x", "y"], "higher")
    largest, controls = [], []
    for column in (0, 1):
        ps = [
            scipy.stats.wilcoxon(values[:, column], values[:, c], alternative="greater").pvalue
            for c in (2, 3)
        ]
        largest.append(max(ps))
        controls.append("xy"[ps.index(max(ps))])
    low, high = sorted(largest)
    expected = {low: min(1.0, 2 * low), high: max(min(1.0, 2 * low), high)}  # Holm
    # scipy's opposite tail includes the observed sum, half of a two-sided p-value does not
    assert [test.p_beats for test in tests] == pytest.approx(
        [expected[p] for p in largest], abs=0.01
    )
    assert tests[0].p_beats == pytest.approx(expected[largest[0]], rel=1e-9)
    assert [test.control for test in tests] == controls
    lower = compare_with_controls(-values, ["a", "b", "x", "y"], ["x", "y"], "lower")
    assert [test.p_beats for test in lower] == [test.p_beats for test in tests]


def test_the_claim_keeps_its_level_whichever_control_is_best() -> None:
    """An explainer as good as the best of three controls: 5% of 300 data sets at most show it to be better."""
    generator, shown = np.random.default_rng(7), 0
    for _ in range(300):
        values = generator.normal(size=(12, 4)) + np.array([0.0, 0.0, 0.0, -3.0])
        (test,) = compare_with_controls(values, ["a", "b", "c", "d"], ["b", "c", "d"], "higher")
        shown += test.verdict == "beats"
    assert shown <= scipy.stats.binom.isf(1e-4, 300, 0.05)


def test_few_samples_and_missing_values() -> None:
    values = np.array([[2.0, 1.0, np.nan], [3.0, 1.0, 0.0], [4.0, 1.0, 0.0], [5.0, 1.0, 0.0]])
    tests = compare_with_controls(values, ["a", "b", "c"], ["b", "c"], "higher")
    assert (tests[0].count, tests[0].verdict) == (3, "undecided")
    assert (
        say("controls", tests, None)
        == "3 samples are too few to show that an explainer beats its controls."
    )
    assert compare_with_controls(values, ["a", "b", "c"], [], "higher") == []
    nothing = compare_with_controls(np.full((2, 2), np.nan), ["a", "b"], ["b"], "higher")
    assert (nothing[0].count, nothing[0].verdict, nothing[0].difference) == (0, "undecided", None)


def test_the_sentence_names_the_difference_that_the_test_tested() -> None:
    """Worse by ranks, while the interval of the median difference contains 0."""
    gains = np.array([-9.0, -8, -7, -6, -5.5, -5.2, -5.1, 0.05, 0.1, 0.2, 0.3, 0.4])
    values = np.stack([gains, np.zeros(12)], axis=1)
    (test,) = compare_with_controls(values, ["a", "control"], ["control"], "higher")
    median = bootstrap_interval(gains)
    assert median.low is not None
    assert median.high is not None
    assert median.low < 0 < median.high
    gap = test.difference
    assert gap is not None
    assert gap.high is not None
    assert test.verdict == "worse"
    assert gap.high < 0
    expected = f"a (difference {format_number(gap.value, 2)} {format_interval(gap, 2)} at 90%)"  # 5% at each end
    assert expected in say("controls", [test], 2)
    # an interval for each of several explainers is for the table: a sentence has one at most
    several = say("controls", [test, dataclasses.replace(test, explainer="b")], 2)
    assert "a, b" in several
    assert "[" not in several


def test_the_table_has_every_difference_to_a_control(found: standfast.Results) -> None:
    tested = [row for row in found.summary.rows if row.control_test is not None]
    assert len(tested) >= 2
    for row in tested:
        test = row.control_test
        assert test.difference is not None
        ends = format_interval(test.difference, row.spec.decimals)
        (note,) = [
            note
            for note in describe_row(found, row).notes
            if note.startswith(f"against {test.control}: difference")
        ]
        assert ends in note
