"""The first figure of a metric answers its question; captions say what is seen, and what it does not prove."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_builder import Builder

import standfast
from standfast.charts import Chart, Gallery
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
from standfast.report.views import Contents

BALL = standfast.LinfBall(0.1)
#: the first figure's name, its lines of reference, and a part of the sentence on what it does not prove
FIRST: dict[str, tuple[Any, str, list[float], str]] = {
    "max_sensitivity": (MaxSensitivity(BALL, samples=4), "distribution", [], "no proof of robustness"),
    "local_lipschitz": (LocalLipschitz(BALL, samples=4), "distribution", [], "no proof of robustness"),
    "c_eval": (CEval(preset="quick"), "distribution", [1.0], "another attack may find less"),
    "c_eval_plot": (CEvalPlot(preset="quick", fractions=(0.1, 0.3)), "c-eval-plot", [1.0], "may be larger"),
    "near_affinity": (NearAffinity(preset="quick"), "near-affinity", [1.0], "not the explainers"),
    "aopc": (AOPC(preset="quick", steps=4), "perturbation-curve", [], "compare with random maps"),
    "log_odds": (LogOdds(), "distribution", [0.0], "cannot be compared between models"),
    "corruption_curve": (CorruptionCurve(preset="quick", fractions=(0.1, 0.5)), "drop-top", [], "Compare with random"),
    "data_sensitivity_consistency": (
        DataSensitivityConsistency(masks=60, permutations=19, resamples=20),
        "distribution",
        [],
        "does not say that the explanation shows",
    ),
    "parameter_sensitivity_consistency": (
        ParameterSensitivityConsistency(masks=30, permutations=19, resamples=20),
        "distribution",
        [],
        "does not say that the explanation shows",
    ),
}


@pytest.fixture(scope="module")
def found(lenet: standfast.Model, digits: standfast.data.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    out = tmp_path_factory.mktemp("first")
    metrics = {name: metric for name, (metric, *_) in FIRST.items()}
    run = standfast.evaluate(lenet, ["input_x_gradient"], digits[:3].inputs, metrics, out=out, progress=False)
    assert run.failures == []
    return Contents(run.results)


def rules(chart: Chart) -> list[float]:
    marks = [layer for layer in chart.spec["layer"] if layer["mark"]["type"] == "rule"]
    return [row["at"] for layer in marks for row in layer.get("data", {}).get("values", []) if "at" in row]


@pytest.mark.parametrize("name", FIRST)
def test_the_first_figure_answers_the_question_and_says_what_it_does_not_prove(found: Contents, name: str) -> None:
    _, expected, reference, words = FIRST[name]
    (view,) = found.views(name)
    first = found.labels[name].figures(view)[0]
    assert isinstance(first, Chart)
    assert first.name == expected
    assert rules(first) == reference
    assert words in first.caption


@pytest.mark.parametrize(
    ("event", "limit", "words"),
    [
        ("changed_explanation", 0.4, "A map below it counts as changed."),
        ("changed_class", 0.6, "A map above it counts as the same."),
        ("misclassification", 0.0, "from 0 on the class has changed"),
    ],
)
def test_worst_cases_begin_with_all_samples_and_the_threshold(
    tmp_path: Path, event: str, limit: float, words: str
) -> None:
    builder = Builder(tmp_path / "results")
    builder.worst("a", [0.3, 0.5, 0.8], event=event, margin=[0.5] * 3 if event != "changed_explanation" else None)
    contents = Contents(builder.results())
    (label,) = contents.labels.values()
    (view,) = contents.views(label.name)
    first, *others = label.figures(view)
    assert (first.name, rules(first)) == ("distribution", [limit])
    assert words in first.caption
    (gallery,) = (figure for figure in others if isinstance(figure, Gallery))
    assert "Red is evidence for the class, blue evidence against it." in gallery.note


def test_probabilities_begin_with_all_samples_and_name_what_they_are_of(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "results")
    builder.probability("a", [-3.0, -4.0, -6.0])
    contents = Contents(builder.results())
    (label,) = contents.labels.values()
    (view,) = contents.views(label.name)
    first = label.figures(view)[0]
    assert first.name == "distribution"
    assert "natural logarithm of the probability" in first.caption
    assert "says nothing about an adversary" in first.caption
