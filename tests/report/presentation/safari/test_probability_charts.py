"""What a report shows of probabilities: the bands of its charts, and its remarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from report_builder import Builder

from standfast.report.charts import Chart
from standfast.report.presentation.safari.contradictions import find_contradictions
from standfast.report.presentation.safari.misinterpretation_probability import (
    ProbabilityPresentation,
)
from standfast.results import MetricResults, ValueSpec

# of the levels that the builder stores, without that of the class
LOW, HIGH = (
    [-3.4, -5.6],
    [-2.6, -4.4],
)


def find_bands(view: MetricResults) -> list[tuple[float, float]]:
    """Of the curve of the first sample, the ends of the band at each level."""
    (chart,) = [
        figure
        for figure in ProbabilityPresentation("misinterpretation_probability").figures(view)
        if isinstance(figure, Chart) and figure.name == "curve-sample0"
    ]
    return [(row["low"], row["high"]) for row in chart.spec["datasets"]["lines"]]


@pytest.mark.parametrize("resolved", [True, False])
def test_the_band_of_an_unresolved_run_reaches_the_upper_end_of_its_interval(
    tmp_path: Path, resolved: bool
) -> None:
    builder = Builder(tmp_path / "results")
    more: dict[str, Any] = {
        "resolved": [resolved],
        "bound": [not resolved],
        "high": [-4.4 if resolved else -2.5],
    }
    builder.probability("a", [-5.0], more=more)
    (label,) = builder.names["metrics"]
    bands = find_bands(builder.results().metric_results("digits", "lenet", label))
    assert [high for _, high in bands] == pytest.approx(HIGH if resolved else [-2.5, -2.5])
    assert [low for low, _ in bands] == pytest.approx(LOW)


def make_both_directions(tmp_path: Path) -> MetricResults:
    """Three samples: a resolved one, an unresolved one, and one that only the way back and the search reached."""
    builder, nan = Builder(tmp_path / "results"), float("nan")
    more: dict[str, Any] = {
        "resolved": [True, False, False],
        "bound": [False, True, True],
        "from_prior": [-5.0, -9.0, nan],
        "from_event": [-4.5, -3.0, -20.0],
        "from_event_error": [0.5, 1.0, 2.0],
        "witnessed": [True, False, True],
    }
    builder.probability(
        "a", [-5.0, -9.0, -30.0], censored=[False, False, True], width=0.98, more=more
    )
    (label,) = builder.names["metrics"]
    return builder.results().metric_results("digits", "lenet", label)


def test_events_that_only_a_search_found_are_counted(tmp_path: Path) -> None:
    view, presentation = (
        make_both_directions(tmp_path),
        ProbabilityPresentation("misinterpretation_probability"),
    )

    def count(frame: pl.DataFrame) -> list[tuple[float, int | None]]:
        found = presentation.details(frame, view.options)
        return [
            (detail.value, detail.total)
            for detail in found
            if detail.label == "found by a search only"
        ]

    assert count(view.frame) == [(1, 3)]
    assert count(view.frame.with_columns(witnessed=False)) == []


@pytest.mark.parametrize(("method", "count"), [("subset", 1), ("monte_carlo", 0)])
def test_what_a_search_finds_contradicts_a_run_that_ended_early_and_no_independent_draws(
    method: str, count: int
) -> None:
    """Of two samples the search changed both; the run saw one, and of the other it has a bound."""
    options = {
        "event": "changed_explanation",
        "similarity": "pearson",
        "threshold": 0.4,
        "neighbourhood": {"linf": 0.1},
        "absolute": True,
        "explain": "predicted",
    }
    keys = {"explainer": ["a", "a"], "repeat": [0, 0], "sample": [0, 1], "status": ["ok", "ok"]}
    probabilities = pl.DataFrame(
        {**keys, "log_probability": [-3.0, -5.1], "censored": [False, True]}
    )
    searched = pl.DataFrame({**keys, "margin": [-1.0, -1.0], "similarity": [0.1, 0.1]})
    spec = ValueSpec("x", "x", "lower")
    metric = "misinterpretation_probability"
    estimate = MetricResults(
        "p", metric, {**options, "method": method}, spec, "d", "m", ["a"], probabilities
    )
    worst = MetricResults("w", "worst_case", options, spec, "d", "m", ["a"], searched)
    assert len(find_contradictions(estimate, [worst])) == count
