"""The first figure of a metric answers its question, with its lines of reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_builder import Builder

import standfast
from standfast.metrics import (
    AOPC,
    CEval,
    CEvalPlot,
    CorruptionCurve,
    DataSensitivityConsistency,
    LocalLipschitz,
    LogOdds,
    MaxSensitivity,
    NearAffinity,
    ParameterSensitivityConsistency,
)
from standfast.report.charts import Chart, Gallery
from standfast.report.presentation.drawing import draw_figures

BALL = standfast.LinfBall(0.1)
#: the first figure's name and its lines of reference
FIRST: dict[str, tuple[Any, str, list[float] | None]] = {
    "max_sensitivity": (MaxSensitivity(BALL, samples=4), "distribution", []),
    "local_lipschitz": (LocalLipschitz(BALL, samples=4), "distribution", []),
    "c_eval": (CEval(preset="quick"), "distribution", [1.0]),
    "c_eval_plot": (CEvalPlot(preset="quick", fractions=(0.1, 0.3)), "c-eval-plot", [1.0]),
    "near_affinity": (NearAffinity(preset="quick"), "near-affinity", [1.0]),
    "aopc": (AOPC(preset="quick", steps=4), "perturbation-curve", []),
    "log_odds": (LogOdds(), "distribution", [0.0]),
    "corruption_curve": (CorruptionCurve(preset="quick", fractions=(0.1, 0.5)), "drop-top", []),
    "data_sensitivity_consistency": (
        DataSensitivityConsistency(masks=60, permutations=19, resamples=20),
        "distribution",
        None,  # the ends of the null
    ),
    "parameter_sensitivity_consistency": (
        ParameterSensitivityConsistency(masks=30, permutations=19, resamples=20),
        "distribution",
        None,
    ),
}


@pytest.fixture(scope="module")
def found(
    lenet: standfast.Model, digits: standfast.data.Dataset, tmp_path_factory: pytest.TempPathFactory
) -> standfast.Results:
    out = tmp_path_factory.mktemp("first")
    metrics = {name: metric for name, (metric, *_) in FIRST.items()}
    options: dict[str, Any] = {"progress": False, "controls": False, "sanity": False}
    run = standfast.evaluate(
        lenet, ["input_x_gradient"], digits[:2].inputs, metrics, out=out, **options
    )
    assert run.failures == []
    return run


def rules(chart: Chart) -> list[float]:
    data = chart.spec["datasets"]
    return [row["value"] for name in ("rules_x", "rules_y") for row in data.get(name, ())]


@pytest.mark.parametrize("name", FIRST)
def test_the_first_figure_answers_the_question(found: standfast.Results, name: str) -> None:
    _, expected, reference = FIRST[name]
    (view,) = found.list_metric_results(name)
    first = draw_figures(found.metrics[name], view)[0]
    assert isinstance(first, Chart)
    assert first.name == expected
    if reference is None:
        rows = view.spec.select_valid(view.frame)
        reference = [rows["null_low"].mean(), rows["null_high"].mean()]
    assert rules(first) == pytest.approx(reference)


@pytest.mark.parametrize(
    ("event", "limit"),
    [
        ("changed_explanation", 0.4),
        ("changed_class", 0.6),
        ("misclassification", 0.0),
    ],
)
def test_worst_cases_begin_with_all_samples_and_the_threshold(
    tmp_path: Path, event: str, limit: float
) -> None:
    builder = Builder(tmp_path / "results")
    builder.worst(
        "a",
        [0.3, 0.5, 0.8],
        event=event,
        margin=[0.5] * 3 if event != "changed_explanation" else None,
    )
    results = builder.results()
    (label,) = results.metrics.values()
    (view,) = results.list_metric_results(label.name)
    first, *others = draw_figures(label, view)
    assert (first.name, rules(first)) == ("distribution", [limit])
    assert any(isinstance(figure, Gallery) for figure in others)
