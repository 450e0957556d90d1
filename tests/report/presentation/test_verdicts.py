"""Each metric answers its question in a sentence: the best and the worst explainer, with numbers of these samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from report_builder import BALL, COMMON, base

from standfast.metrics.base import metrics
from standfast.results import MetricResults, Presentation, presentation_of
from standfast.results.formatting import format_odds


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
    found = presentation_of(metric)
    return MetricResults("label", metric, options, found.value_spec(options), "data", "model", list(columns), whole)


def verdict(metric: str, options: Mapping[str, Any], columns: Mapping[str, Mapping[str, Sequence[Any]]]) -> str:
    return presentation_of(metric).verdict(make_view(metric, options, columns))


def worst(values: Sequence[float], hits: int, found: int | None = None, **more: Sequence[Any]) -> dict[str, Any]:
    n = len(values)
    flags = {
        "misinterpreted": [i < hits for i in range(n)],
        "found": [i < (n if found is None else found) for i in range(n)],
    }
    return {"value": values, "similarity": values, **flags, **more}


CHANGED = {**COMMON, "event": "changed_explanation", "threshold": 0.4}


@pytest.mark.parametrize("name", metrics.names())
def test_every_metric_asks_and_answers(name: str) -> None:
    options = metrics[name].example().options()
    found = presentation_of(name)
    assert type(found).question is not Presentation.question
    assert found.question(options).endswith("?")
    rng = np.random.default_rng(0)
    columns = {each: {"value": (rng.normal(size=6) - 2).tolist(), **_events(6)} for each in ("one", "two", "three")}
    text = verdict(name, options, columns)
    assert text.endswith(".")
    assert len(text) < 330
    assert "nan" not in text
    assert verdict(name, options, {}) == ""  # no rows, no answer
    skipped = make_view(name, options, columns)
    frame = skipped.frame.with_columns(status=pl.lit("degenerate"))
    assert found.verdict(MetricResults(**{**vars(skipped), "frame": frame})) == ""


def _events(n: int) -> dict[str, list[Any]]:
    return {"misinterpreted": [False] * n, "found": [True] * n, "label_kept": [True] * n}


def test_a_worst_case_counts_samples() -> None:
    columns = {"a": worst([0.1, 0.2, 0.9], 2), "b": worst([0.7, 0.8, 0.9], 0), "c": worst([0.6, 0.5, 0.9], 0)}
    assert "on 2 of 3 samples" in verdict("worst_case", CHANGED, columns)
    lost = {"a": worst([0.1, 0.9, math.nan], 1, 2)}  # no input of the last one's class was found, so it does not count
    assert "on 1 of 2 samples" in verdict("worst_case", CHANGED, lost)
    kept = verdict("worst_case", CHANGED, {"b": columns["b"], "c": columns["c"]})
    assert [number in kept for number in ("0.800", "0.600")] == [True, True]  # medians


def test_a_weaker_search_is_said() -> None:
    columns = {
        "a": worst([0.1, 0.2], 1, followed_gradients=[True, True]),
        "b": worst([0.7, 0.8], 0, followed_gradients=[False, False]),
    }
    auto = make_view("worst_case", {**CHANGED, "search": "auto"}, columns)
    assert presentation_of("worst_case").comparability_warning(auto).startswith("b met a weaker search")
    assert "b cannot be differentiated" in presentation_of("worst_case").contradictions(auto, [])[0]
    block = make_view("worst_case", {**CHANGED, "search": "block"}, columns)
    assert presentation_of("worst_case").comparability_warning(block) == ""
    # a control is no candidate, so nothing is unfair
    control = make_view("worst_case", {**CHANGED, "search": "auto"}, {"a": columns["a"], "random": columns["b"]})
    assert presentation_of("worst_case").comparability_warning(control) == ""
    assert presentation_of("worst_case").contradictions(control, []) == []


def test_a_probability_is_one_in_so_many_and_a_bound_is_at_most() -> None:
    options = {**COMMON, "neighbourhood": BALL, "event": "changed_explanation", "threshold": 0.4}
    sure = {"value": [-2.0, -3.0, -4.0], "bound": [False] * 3}
    bound = {"value": [-2.0, -6.9, -20.0], "bound": [False, True, True]}
    beyond = {"value": [-2.0, -6.9, -20.0], "bound": [False, False, True]}  # the median is known: 20 is on its far side
    name = "misinterpretation_probability"
    said = verdict(name, options, {"a": sure, "b": bound})
    assert "in 1 of 20 draws" in said
    assert "in at most 1 of 990 draws" in said
    assert "in 1 of 990 draws" in verdict(name, options, {"a": sure, "b": beyond})


def test_odds_are_those_of_the_logarithm() -> None:
    for p, text in ((0.4, "40 in 100"), (0.0025, "1 in 400"), (1e-6, "1 in 1,000,000"), (1e-12, "1 in 10¹²")):
        assert format_odds(float(np.log(p))) == text


def test_an_example_is_the_map_that_changed_most() -> None:
    rng = np.random.default_rng(0)
    arrays = {name: rng.random((3, 1, 4, 4)) for name in ("origins", "inputs", "origin_maps", "maps")}
    view = make_view("worst_case", CHANGED, {"a": worst([0.5, 0.1, 0.7], 1), "random": worst([0.0, 0.0, 0.0], 3)})
    jobs = pl.DataFrame({"job": ["j"], "explainer": ["a"], "repeat": [0], "start": [0], "stop": [3]})
    shown = MetricResults(**{**vars(view), "jobs": jobs, "load": lambda job: arrays})
    row = presentation_of("worst_case").example(shown)
    assert row is not None
    assert (row.explainer, row.sample) == ("a", 1)
    assert [picture.title for picture in row.pictures] == ["input", "its map", "changed", "its map now"]
    np.testing.assert_array_equal(row.pictures[3].array, arrays["maps"][1])
    assert presentation_of("worst_case").example(view) is None  # nothing is stored
