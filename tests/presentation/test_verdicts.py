"""Each metric answers its question in a sentence: the best and the worst explainer, with numbers of these samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from report_builder import BALL, COMMON, base

from standfast.metrics.base import metrics, plain
from standfast.neighbourhoods import Rotation
from standfast.presentation import Presentation, View, presentation_of
from standfast.presentation.wording import format_odds


def make_view(metric: str, options: Mapping[str, Any], columns: Mapping[str, Mapping[str, Sequence[Any]]]) -> View:
    """A view of frames made by hand: for each explainer the columns beside the common ones."""
    frames = []
    for name, own in columns.items():
        count = len(next(iter(own.values())))
        frame = pl.DataFrame({**base(["ok"] * count), **own})
        frames.append(frame.with_columns(explainer=pl.lit(name), repeat=pl.lit(0)))
    whole = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()
    found = presentation_of(metric)
    return View("label", metric, options, found.reading(options), "data", "model", list(columns), whole)


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
FLIPPED = {**COMMON, "event": "changed_class", "threshold": 0.6}


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
    assert found.verdict(View(**{**vars(skipped), "frame": frame})) == ""


def _events(n: int) -> dict[str, list[Any]]:
    return {"misinterpreted": [False] * n, "found": [True] * n, "label_kept": [True] * n}


def test_a_worst_case_counts_samples() -> None:
    columns = {"a": worst([0.1, 0.2, 0.9], 2), "b": worst([0.7, 0.8, 0.9], 0), "c": worst([0.6, 0.5, 0.9], 0)}
    assert verdict("worst_case", CHANGED, columns) == (
        "A search changed the map of a beyond recognition (correlation below 0.4) on 2 of 3 samples, and those of b "
        "and c on none."
    )
    assert verdict("worst_case", CHANGED, {"a": columns["a"]}) == (
        "A search changed the map of a beyond recognition (correlation below 0.4) on 2 of 3 samples."
    )
    lost = {"a": worst([0.1, 0.9, math.nan], 1, 2)}  # no input of the last one's class was found, so it does not count
    assert verdict("worst_case", CHANGED, lost).endswith("on 1 of 2 samples.")
    assert verdict("worst_case", CHANGED, {"b": columns["b"], "c": columns["c"]}) == (
        "A search changed no map beyond recognition (correlation below 0.4) on any of 3 samples; by correlation b kept "
        "most (0.800) and c least (0.600, medians)."
    )


def test_a_tie_is_one_place_and_few_samples_are_no_headline() -> None:
    same = [0.9] * 9
    columns = {
        "deeplift": worst(same, 9, found=9),
        "guided": worst(same, 1, found=1),  # 1 of 1 is as large a share, and says little
        "input x gradient": worst(same, 9, found=9),
        "saliency": worst(same, 4, found=9),
    }
    text = verdict("worst_case", FLIPPED, columns)
    assert "the maps of deeplift and input x gradient stayed the same (correlation above 0.6) on 9 of 9" in text
    assert text.endswith("that of saliency on 4; too few to compare: guided on 1 of 1.")
    parts = {"a": "9 of 9", "b": "1 of 1", "c": "9 of 9"}
    view = make_view("worst_case", FLIPPED, dict.fromkeys(parts, columns["deeplift"]))
    ranked = view.rank(lambda rows: (1.0, parts[rows["explainer"][0]]), "lower")
    assert [each.names for each in ranked] == [("b",), ("a", "c")]


def test_random_maps_are_a_reference_and_no_candidate() -> None:
    columns = {"a": worst([0.1, 0.2], 1), "random": worst([0.0, 0.0], 2), "b": worst([0.7, 0.8], 0)}
    assert verdict("worst_case", CHANGED, columns) == (
        "A search changed the map of a beyond recognition (correlation below 0.4) on 1 of 2 samples, and that of b on "
        "none; the random reference on 2."
    )
    kept = {"a": worst([0.6, 0.7], 0), "random": worst([0.0, 0.0], 2), "b": worst([0.6, 0.7], 0)}
    assert verdict("worst_case", CHANGED, kept) == (
        "Apart from the random reference (2 of 2), a search changed no map beyond recognition (correlation below 0.4) "
        "on any of 2 samples."
    )
    only = {"a": worst([0.9, 0.9], 1), "random": worst([0.0, 0.0], 0)}
    assert "class, apart from the random reference (0 of 2), the map of a" in verdict("worst_case", FLIPPED, only)
    shares = {name: {"value": [share] * 3} for name, share in (("a", 0.8), ("b", 0.4), ("random", 0.2))}
    text = verdict("corruption_curve", {"order": ("top",)}, shares)
    assert "what a puts first costs the class 80%" in text.lower()
    assert "what b puts first 40%; random maps 20%" in text
    assert "random maps" in presentation_of("aopc").reservations(make_view("aopc", {}, {"a": shares["a"]}))[0]
    assert presentation_of("aopc").reservations(make_view("aopc", {}, shares)) == []


def test_a_weaker_search_is_said() -> None:
    columns = {
        "a": worst([0.1, 0.2], 1, followed_gradients=[True, True]),
        "b": worst([0.7, 0.8], 0, followed_gradients=[False, False]),
    }
    auto = make_view("worst_case", {**CHANGED, "search": "auto"}, columns)
    assert presentation_of("worst_case").unfair(auto).startswith("b met a weaker search")
    assert "b cannot be differentiated" in presentation_of("worst_case").contradictions(auto, [])[0]
    block = make_view("worst_case", {**CHANGED, "search": "block"}, columns)
    assert presentation_of("worst_case").unfair(block) == ""
    # a control is no candidate, so nothing is unfair
    control = make_view("worst_case", {**CHANGED, "search": "auto"}, {"a": columns["a"], "random": columns["b"]})
    assert presentation_of("worst_case").unfair(control) == ""
    assert presentation_of("worst_case").contradictions(control, []) == []


def test_a_probability_is_one_in_so_many_and_a_bound_is_at_most() -> None:
    options = {**COMMON, "neighbourhood": BALL, "event": "changed_explanation", "threshold": 0.4}
    sure = {"value": [-2.0, -3.0, -4.0], "bound": [False] * 3}
    bound = {"value": [-2.0, -6.9, -20.0], "bound": [False, True, True]}
    beyond = {"value": [-2.0, -6.9, -20.0], "bound": [False, False, True]}  # the median is known: 20 is on its far side
    assert verdict("misinterpretation_probability", options, {"a": sure, "b": bound}) == (
        "Random noise changes the map of a (correlation below 0.4) in 1 of 20 draws, and that of b in at most 1 of 990 "
        "draws (class kept; medians over samples)."
    )
    assert "and that of b in 1 of 990 draws" in verdict(
        "misinterpretation_probability", options, {"a": sure, "b": beyond}
    )


ROTATED = {"neighbourhood": plain(Rotation(10))}


def test_odds_are_those_of_the_logarithm() -> None:
    for p, text in ((0.4, "40 in 100"), (0.0025, "1 in 400"), (1e-6, "1 in 1,000,000"), (1e-12, "1 in 10¹²")):
        assert format_odds(float(np.log(p))) == text


def test_a_metric_without_words_of_its_own_gives_medians() -> None:
    columns = {"a": {"value": [1.0, 2.0, 9.0]}, "b": {"value": [4.0, 5.0, 6.0]}}
    frame = make_view("unheard_of", {}, columns)
    for direction, best in (("higher", "b"), ("lower", "a")):
        found = presentation_of("unheard_of", direction)
        text = found.verdict(View(**{**vars(frame), "reading": found.reading({})}))
        worst_one, value = {"a": ("b", 5), "b": ("a", 2)}[best]
        assert f"is best for {best} " in text
        assert f"worst for {worst_one} ({value})" in text
    assert "not ranked" in presentation_of("unheard_of").verdict(frame)


def test_an_example_is_the_map_that_changed_most() -> None:
    rng = np.random.default_rng(0)
    arrays = {name: rng.random((3, 1, 4, 4)) for name in ("origins", "inputs", "origin_maps", "maps")}
    view = make_view("worst_case", CHANGED, {"a": worst([0.5, 0.1, 0.7], 1), "random": worst([0.0, 0.0, 0.0], 3)})
    jobs = pl.DataFrame({"job": ["j"], "explainer": ["a"], "repeat": [0], "start": [0], "stop": [3]})
    shown = View(**{**vars(view), "jobs": jobs, "load": lambda job: arrays})
    row = presentation_of("worst_case").example(shown)
    assert row is not None
    assert (row.explainer, row.sample) == ("a", 1)
    assert [picture.title for picture in row.pictures] == ["input", "its map", "changed", "its map now"]
    np.testing.assert_array_equal(row.pictures[3].array, arrays["maps"][1])
    assert "by at most 0.1 in each feature" in row.text
    assert row.text.startswith("Apart from the random reference, this map changed most: a on sample 1.")
    assert "is 0.100 (1 would be the same map)" in row.text
    turned = View(**{**vars(shown), "options": {**CHANGED, **ROTATED}})
    example = presentation_of("worst_case").example(turned)
    assert example is not None
    assert "The input was rotated by -10 to 10 degrees, and the model's class is still" in example.text
    words = View(**{**vars(shown), "tokens": [("a", "good", "film")] * 3})
    example = presentation_of("worst_case").example(words)
    assert example is not None
    assert "by at most 0.1 in each number of the embedding" in example.text  # a word has no size
    assert presentation_of("worst_case").example(view) is None  # nothing is stored
