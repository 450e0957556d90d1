"""Where the presentation of a metric comes from: our own, a plug-in, or none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from installed_plugin import install
from report_builder import Builder, base

from standfast.errors import ArgumentError, StandfastError
from standfast.metrics.base import metrics
from standfast.report.presentation import Presentation, presentation_of, presentations
from standfast.results.configured_metric import configure_metric
from standfast.value_spec import ValueSpec

MODULE = """
from standfast.report.charts import ExplainerTable, TableCell
from standfast.report.presentation import Detail, Presentation

class Wobble(Presentation):
    words = '''{% macro verdict(facts) %}{{ facts.ranked[0].names | names }} <b>holds</b> best.{% endmacro %}
        {% macro guide(options) %}<div><dt>Wobble</dt><dd>{{ options.strength }} is wild</dd></div>{% endmacro %}'''

    def figures(self, view):
        return [ExplainerTable("Wobbles", [("largest", "of all samples")], [("a", [TableCell("9.5")])])]

    def details(self, frame, options):
        return [Detail("wobbles", 3, len(frame))]

not_one = dict
"""
POINTS = """[standfast.presentations]
wobble = wobbly:Wobble
worst_case = wobbly:Wobble
wrong = wobbly:not_one
missing = wobbly:Nothing
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that brings presentations, as pip would leave it."""
    (tmp_path / "wobbly.py").write_text(MODULE)
    install(tmp_path, "wobbly", POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(presentations, "_entries", dict(presentations._entries))
    vars(presentations).pop("plugins", None)  # they are looked up once
    yield
    vars(presentations).pop("plugins", None)


@pytest.mark.parametrize("name", ["max_sensitivity", "local_lipschitz"])
def test_distances_rank_explainers_only_on_one_scale(name: str) -> None:
    for normalise, direction in ((True, "lower"), (False, None)):
        assert metrics[name].value_spec({"normalise": normalise}).direction == direction


@pytest.mark.parametrize("name", metrics.names())
def test_every_metric_says_how_its_results_are_read(name: str) -> None:
    metric = metrics[name].example()
    assert presentation_of(name).metric == name
    spec = metric.value_spec(metric.options())
    # distances of maps on different scales rank no explainers
    unscaled = getattr(metric, "normalise", True) is False
    assert (spec.column, spec.direction) == ("value", None if unscaled else metric.direction)
    assert spec.title
    assert spec.axis


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_brings_its_presentation(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "results")
    scores = {**base(["ok"] * 3), "score": [1.0, 2.0, 3.0]}
    spec = ValueSpec("How much it wobbles", "wobble", "lower", 1, good="steadier", column="score")
    stored = {"direction": "lower", "values": spec.stored()}
    builder.job("<i>a</i>", "wobble", "by night", {"strength": "<i>5</i>"}, scores, stored=stored)
    page = builder.page()
    for text in (
        "How much it wobbles.",
        "Lower is steadier.",
        "wobbles: 3 of 3",
        'aria-label="Wobbles"',
        "9.5",
    ):
        assert text in page, text
    assert "&lt;i&gt;a&lt;/i&gt; holds best." in page  # no mark of the template is left
    assert "<dd>&lt;i&gt;5&lt;/i&gt; is wild</dd>" in page
    assert "<i>a" not in page
    assert "<i>5" not in page
    (entry,) = builder.results().summary.rows
    assert (entry.spec.title, entry.spec.direction) == ("How much it wobbles", "lower")
    # ours cannot be replaced
    assert type(presentation_of("worst_case")).__module__.startswith("standfast.")


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_that_is_no_presentation_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match="presentation wrong: expected a presentation, got .* of wobbly"
    ):
        presentation_of("wrong")
    with pytest.raises(
        StandfastError, match="the plug-in wobbly:Nothing of wobbly could not be loaded"
    ):
        presentation_of("missing")


@pytest.mark.parametrize("method", ["value_spec", "make_comparable"])
def test_a_presentation_cannot_say_how_numbers_are_read(method: str) -> None:
    """It would never be asked."""
    with pytest.raises(
        ArgumentError, match=rf"Mine.{method}: expected no such method: the metric says .*, got one"
    ):
        type("Mine", (Presentation,), {method: lambda self, options: None})


def test_a_metric_without_a_presentation_shows_its_value(tmp_path: Path) -> None:
    assert type(presentation_of("unheard_of")) is Presentation
    builder = Builder(tmp_path / "results")
    frame = {**base(["ok"] * 3), "value": [1.0, 2.0, 3.0]}
    builder.job("a", "unheard_of", "label", {}, frame, stored={"direction": "lower"})
    page = builder.page()
    assert "Unheard of." in page
    assert "This metric is not installed here, so only its values are shown." in page
    assert "Lower is better." in page


@pytest.mark.parametrize(
    ("direction", "expected"), [("higher", "higher"), ("lower", "lower"), ("", None), (None, None)]
)
def test_a_stored_direction_that_is_none_does_not_rank(
    direction: str | None, expected: str | None
) -> None:
    assert (
        configure_metric("label", "unheard_of", {"direction": direction}).spec.direction == expected
    )
