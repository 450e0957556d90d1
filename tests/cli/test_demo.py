"""What the demonstration says in the terminal."""

from __future__ import annotations

from standfast import data, evaluate, zoo
from standfast.cli.demo import RADIUS, WORST, demo_metrics, describe_results
from standfast.metrics import MaxSensitivity, WorstCase
from standfast.model import Model
from standfast.neighbourhoods import LinfBall
from standfast.report.terminal import format_text


def test_findings_are_a_sentence_and_a_table() -> None:
    digits = data.bundled("digits")[:6]
    ball = LinfBall(RADIUS)
    found = evaluate(
        Model(zoo.load("lenet5-mnist"), bounds=digits.bounds),
        {"plain": "saliency", "guided": "guided_backprop"},
        digits,
        {WORST: WorstCase(ball, budget=100), "max sensitivity": MaxSensitivity(ball, samples=10, normalise=True)},
        progress=False,
    )
    text = describe_results(found)
    counts = {
        name: int((found.frame().filter(label=WORST, explainer=name)["value"] < 0.4).sum())
        for name in ("plain", "guided")
    }
    assert counts["plain"] > counts["guided"]
    assert f"the map of plain into a different one (correlation below 0.4) on {counts['plain']} of 6 digits" in text
    assert f"the map of guided on {counts['guided']} of 6." in text
    assert text.endswith(format_text(found, hint=False).rstrip())
    assert ".table()" not in text
    assert f"2 explainers and 1 control of LeNet5 on 6 samples of {digits.name}" in text


def test_the_demonstration_decides_and_says_so() -> None:
    """At least three of its metrics rank explainers, and its worst case is the one of the sentence."""
    metrics = demo_metrics()
    assert sum(metric.direction_of(metric.options()) is not None for metric in metrics.values()) >= 3
    assert isinstance(metrics[WORST], WorstCase)
