"""Each metric answers its question in a sentence: the best and the worst explainer, with numbers of these samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from report_builder import BALL, COMMON, base

from standfast.metrics.base import metrics
from standfast.report.facts import collect_facts
from standfast.report.presentation import presentation_of
from standfast.report.words import words_of
from standfast.results import ConfiguredMetric, MetricResults, registered_spec
from standfast.results.controls import is_random
from standfast.results.metric_summary import summarise_metric


def make_view(
    metric: str, options: Mapping[str, Any], columns: Mapping[str, Mapping[str, Sequence[Any]]]
) -> MetricResults:
    """A view of frames made by hand: for each explainer the columns beside the common ones."""
    frames = []
    for name, own in columns.items():
        count = len(next(iter(own.values())))
        frame = pl.DataFrame({**base(["ok"] * count), **own})
        frames.append(frame.with_columns(explainer=pl.lit(name), repeat=pl.lit(0)))
    whole = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()
    controls = [name for name in columns if is_random(name)]
    spec = registered_spec(metric, options)
    return MetricResults(
        "label", metric, options, spec, "data", "model", list(columns), whole, controls=controls
    )


def verdict(
    metric: str, options: Mapping[str, Any], columns: Mapping[str, Mapping[str, Sequence[Any]]]
) -> str:
    return say("verdict", make_view(metric, options, columns))


def say(macro: str, view: MetricResults) -> str:
    """A sentence of a metric about a view."""
    (said,) = say_each([macro], view)
    return said


def say_each(macros: Sequence[str], view: MetricResults) -> list[str]:
    """Sentences of a metric about a view, which is summarised once."""
    presentation = presentation_of(view.metric)
    configured = ConfiguredMetric(
        "label", view.metric, view.options, view.spec.direction, False, view.spec, {}
    )
    found = summarise_metric(view, configured, None)
    facts = collect_facts(found, view)
    return [getattr(words_of(presentation), macro)(facts) for macro in macros]


def worst(
    values: Sequence[float], hits: int, found: int | None = None, **more: Sequence[Any]
) -> dict[str, Any]:
    n = len(values)
    flags = {
        "misinterpreted": [i < hits for i in range(n)],
        "found": [i < (n if found is None else found) for i in range(n)],
    }
    return {"value": values, "similarity": values, **flags, **more}


CHANGED = {**COMMON, "event": "changed_explanation", "threshold": 0.4}


@pytest.mark.parametrize("controls", [[], ["random"]])
@pytest.mark.parametrize(
    "names", [["<i>a</i>"], ["<i>a</i>", "b"], ["<i>a</i>", "b", "c", "d", "e"]]
)
@pytest.mark.parametrize("name", metrics.names())
def test_every_metric_asks_and_answers(name: str, names: list[str], controls: list[str]) -> None:
    options = metrics[name].example().options()
    words = words_of(presentation_of(name))
    assert words.question(options, registered_spec(name, options)).endswith("?")
    assert "<i>" not in words.guide(options)
    rng = np.random.default_rng(0)
    columns = {
        each: {"value": (rng.normal(size=6) - 2).tolist(), **_events(6)}
        for each in [*names, *controls]
    }
    view = make_view(name, options, columns)
    for text in say_each(["verdict", "caution", "remark"], view):
        assert len(text) < 400
        assert not set(text) & set("{}")
        assert "nan" not in text
        assert "&lt;" not in text  # plain text, which the page escapes
    # no rows, no answer
    assert say("verdict", dataclasses.replace(view, frame=view.frame.clear())) == ""
    frame = view.frame.with_columns(status=pl.lit("degenerate"))
    assert say("verdict", dataclasses.replace(view, frame=frame)) == ""


@pytest.mark.parametrize("event", ["changed_explanation", "changed_class", "misclassification"])
@pytest.mark.parametrize("place", [BALL, {"transformation": "Rotation", "degrees": [-10, 10]}])
@pytest.mark.parametrize("metric", ["worst_case", "misinterpretation_probability"])
def test_sentences_exist_for_every_event(metric: str, event: str, place: Mapping[str, Any]) -> None:
    options = {**COMMON, "event": event, "threshold": None, "neighbourhood": place}
    words = words_of(presentation_of(metric))
    assert words.question(options, registered_spec(metric, options)).endswith("?")
    assert words.guide(options).count("<dt>") == words.guide(options).count("</dd>") > 3
    bounds = {
        "a": worst([-2.0] * 3, 1, bound=[True] * 3),
        "b": worst([-3.0] * 3, 0, bound=[False] * 3),
    }
    view = make_view(metric, options, bounds)
    assert say("verdict", view).endswith(".")
    counted = "3 of 6 values are only bounds." if metric == "misinterpretation_probability" else ""
    assert say("remark", view) == counted


@pytest.mark.parametrize(
    ("metric", "changed"),
    [
        ("aopc", {"order": "bottom"}),
        ("corruption_curve", {"order": ["bottom"]}),
        ("log_odds", {"pairs": [[8, 3], [4, 1]]}),
        ("relevance_localisation", {"absolute": True}),
        ("attribution_attack", {"attack": {"name": "lens", "k": None, "w": 2}}),
        ("attribution_attack", {"attack": "random_sign"}),
    ],
)
def test_sentences_exist_for_other_options(metric: str, changed: Mapping[str, Any]) -> None:
    options = {**metrics[metric].example().options(), **changed}
    words = words_of(presentation_of(metric))
    assert words.question(options, registered_spec(metric, options)).endswith("?")
    assert words.guide(options).count("<dt>") == words.guide(options).count("</dd>") > 0


def _events(n: int) -> dict[str, list[Any]]:
    return {"misinterpreted": [False] * n, "found": [True] * n, "label_kept": [True] * n}


def test_a_weaker_search_is_said() -> None:
    columns = {
        "a": worst([0.1, 0.2], 1, followed_gradients=[True, True]),
        "b": worst([0.7, 0.8], 0, followed_gradients=[False, False]),
    }
    auto = make_view("worst_case", {**CHANGED, "search": "auto"}, columns)
    assert "b: a weaker search" in say("caution", auto)
    block = make_view("worst_case", {**CHANGED, "search": "block"}, columns)
    assert say("caution", block) == ""
    # a control is no candidate, so nothing is unfair
    control = make_view(
        "worst_case", {**CHANGED, "search": "auto"}, {"a": columns["a"], "random": columns["b"]}
    )
    assert say("caution", control) == ""


def test_a_probability_is_in_percent_and_a_bound_is_at_most() -> None:
    options = {**COMMON, "neighbourhood": BALL, "event": "changed_explanation", "threshold": 0.4}
    sure = {"value": [-2.0, -3.0, -4.0], "bound": [False] * 3}
    bound = {"value": [-2.0, -6.9, -20.0], "bound": [False, True, True]}
    # the median is known: 20 is on its far side
    beyond = {
        "value": [-2.0, -6.9, -20.0],
        "bound": [False, False, True],
    }
    name = "misinterpretation_probability"
    said = verdict(name, options, {"a": sure, "b": bound})
    assert "a (5%)" in said
    assert "b (≤ 0.1%)" in said
    assert "b (0.1%)" in verdict(name, options, {"a": sure, "b": beyond})


def test_an_example_is_the_map_that_changed_most() -> None:
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.random((3, 1, 4, 4)) for name in ("origins", "inputs", "origin_maps", "maps")
    }
    view = make_view(
        "worst_case", CHANGED, {"a": worst([0.5, 0.1, 0.7], 1), "random": worst([0.0, 0.0, 0.0], 3)}
    )
    jobs = pl.DataFrame(
        {"job": ["j"], "explainer": ["a"], "repeat": [0], "start": [0], "stop": [3]}
    )
    shown = MetricResults(**{**vars(view), "jobs": jobs, "load": lambda job: arrays})
    row = presentation_of("worst_case").example(shown)
    assert (row.explainer, row.sample) == ("a", 1)
    assert [picture.title for picture in row.pictures] == [
        "input",
        "its map",
        "changed",
        "its map now",
    ]
    np.testing.assert_array_equal(row.pictures[3].array, arrays["maps"][1])
    assert presentation_of("worst_case").example(view) is None  # nothing is stored


@pytest.mark.parametrize(
    ("similarity", "same", "changed"), [("pearson", 0.9995, 0.99), ("mse", 0.0, 1e-9)]
)
def test_an_example_is_not_a_map_that_did_not_change(
    similarity: str, same: float, changed: float
) -> None:
    arrays = {name: np.ones((2, 1, 4, 4)) for name in ("origins", "inputs", "origin_maps", "maps")}
    options = {**CHANGED, "similarity": similarity}
    jobs = pl.DataFrame(
        {"job": ["j"], "explainer": ["a"], "repeat": [0], "start": [0], "stop": [2]}
    )

    def find(values: Sequence[float]) -> Any:
        view = make_view("worst_case", options, {"a": worst(values, 2)})
        return presentation_of("worst_case").example(
            MetricResults(**{**vars(view), "jobs": jobs, "load": lambda job: arrays})
        )

    assert find([same, same]) is None
    assert find([same, changed]).sample == 1
