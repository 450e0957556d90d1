"""Comparisons across configurations: what is compared with what, medians against NumPy, pages and files."""

from __future__ import annotations

import itertools
import math
import re
from operator import ne
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from report_builder import COMMON, Builder, assert_whole, base

import standfast
from standfast.metrics.base import PartOf, metrics
from standfast.report import write_figures
from standfast.report.charts import Chart, ExplainerTable
from standfast.report.page import comparisons as comparisons_module
from standfast.report.page.comparisons import OptionComparison, compare_models, compare_options
from standfast.report.page.html import Page
from standfast.report.page.options import (
    Configuration,
    OptionGroup,
    find_groups,
    flatten_options,
    has_places,
)
from standfast.results.formatting import format_estimate

GENETIC = {"name": "genetic", "mutation": 0.02, "noise": 0.5}
RARE = {
    "method": "subset",
    "particles": 1000,
    "moves": 4,
    "quantile": 0.5,
    "proposal": "gaussian",
    "floor": -100.0,
    "samples": 10_000,
}


def worst(
    builder: Builder,
    explainer: str,
    label: str,
    values: list[float],
    *,
    pictures: bool = False,
    **options: Any,
) -> None:
    n, where = (
        len(values),
        {key: options.pop(key) for key in ("data", "model", "start", "repeat") if key in options},
    )
    frame = {
        **base(["ok"] * n, where.get("start", 0)),
        "value": values,
        "similarity": values,
        "margin": [-1.0] * n,
        "found": [True] * n,
        "misinterpreted": [False] * n,
        "predicted": [3] * n,
    }
    tensors = None
    if pictures:
        fill = float(len(builder.jobs)) / 100
        tensors = {
            key: torch.full((n, 1, 4, 4), fill)
            for key in ("origins", "inputs", "origin_maps", "maps")
        }
    configured = {
        "absolute": True,
        **COMMON,
        "event": "changed_explanation",
        "search": "block",
        **options,
    }
    builder.job(explainer, "worst_case", label, configured, frame, tensors, **where)


def probability(
    builder: Builder,
    explainer: str,
    label: str,
    values: list[float],
    *,
    floor: float = -math.inf,
    **options: Any,
) -> None:
    n, where = (
        len(values),
        {key: options.pop(key) for key in ("data", "model", "start", "repeat") if key in options},
    )
    frame = {
        **base(["ok"] * n, where.get("start", 0)),
        "value": values,
        "log_probability": values,
        "low": [value - 0.5 for value in values],
        "high": [value + 0.5 for value in values],
        "censored": [value <= floor for value in values],
        "bound": [value <= floor for value in values],
        "stalled": [False] * n,
    }
    configured = {"absolute": True, **COMMON, "event": "changed_explanation", **RARE, **options}
    builder.job(explainer, "misinterpretation_probability", label, configured, frame, **where)


def populations(
    builder: Builder, sizes: dict[int, float], explainers: dict[str, float], samples: int = 6
) -> None:
    """Searches of several sizes; values that tell every explainer and size apart."""
    rng = np.random.default_rng(0)
    for size, shift in sizes.items():
        for name, level in explainers.items():
            values = (level + shift + rng.normal(0, 0.01, samples)).tolist()
            worst(builder, name, f"size {size}", values, search={**GENETIC, "population": size})


def charts(builder: Builder) -> list[Chart]:
    found = compare_options(builder.results())
    return [figure for each in found for figure in each.figures if isinstance(figure, Chart)]


def tables(found: list[OptionComparison]) -> list[ExplainerTable]:
    return [
        figure for each in found for figure in each.figures if isinstance(figure, ExplainerTable)
    ]


def rows(chart: Chart, line: str) -> list[dict[str, Any]]:
    return [row for row in chart.spec["datasets"]["lines"] if row["line"] == line]


def stored(
    builder: Builder, label: str, explainer: str, column: str = "similarity"
) -> np.ndarray[Any, Any]:
    import polars as pl

    frame = builder.results().samples.filter(
        (pl.col("label") == label) & (pl.col("explainer") == explainer)
    )
    return frame.sort("sample")[column].to_numpy()


def configurations(*options: Any, owners: dict[str, str] | None = None) -> list[Configuration]:
    return [
        Configuration(f"v{place}", "m", flatten_options(each), owners or {})
        for place, each in enumerate(options)
    ]


def shape(group: OptionGroup) -> tuple[str, list[tuple[str, float | None]]]:
    return group.option, [(member.name, member.x) for member in group.members]


def test_labels_that_differ_in_one_nested_number_are_on_an_axis() -> None:
    sizes = [500, 50, 100]
    (group,) = find_groups(
        configurations(
            *({"search": {**GENETIC, "population": size}, "budget": 9} for size in sizes)
        )
    )
    assert shape(group) == ("search.population", [("v1", 50), ("v2", 100), ("v0", 500)])
    assert has_places(group.members)


def test_a_value_that_is_no_number_has_no_place_on_an_axis() -> None:
    (group,) = find_groups(
        configurations({"threshold": None}, {"threshold": 0.2}, {"threshold": 0.3})
    )
    assert not has_places(group.members)
    assert [member.text for member in group.members] == ["default", "0.2", "0.3"]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_differs_in_one_option_is_compared_and_nothing_else_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = {"a": [1, 2, 4], "b.c": [0.1, 0.2], "d": ["x", "y"], "e": [True, False]}
    every = list(itertools.product(*values.values()))
    chosen = [
        every[i] for i in rng.choice(len(every), size=int(rng.integers(3, 16)), replace=False)
    ]
    groups = find_groups(
        configurations(*({"a": a, "b": {"c": c}, "d": d, "e": e} for a, c, d, e in chosen))
    )
    shown = set()
    for group in groups:
        for i, j in itertools.combinations([int(member.name[1:]) for member in group.members], 2):
            assert {k for k, x, y in zip(values, chosen[i], chosen[j], strict=True) if x != y} == {
                group.option
            }
            shown.add(frozenset((i, j)))
    pairs = itertools.combinations(range(len(chosen)), 2)
    assert shown == {frozenset((i, j)) for i, j in pairs if sum(map(ne, chosen[i], chosen[j])) == 1}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": float("nan")}, {"a": float("nan")}, []),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ["a"]),
        ({"a": 1}, {}, ["a"]),
        ({"a": 1, "b": 2}, {"a": 2}, []),  # nothing says that b belongs to a
        ({"a": 1, "part": 2}, {"a": 2}, ["a"]),
        ({"a": 1, "part": 2}, {"a": 2, "part": 3}, ["a"]),
        ({"a": 1, "part": 2}, {"a": 1, "part": 3}, ["part"]),
        ({"a": {"norm": "L2Ball", "radius": 1}}, {"a": {"norm": "LinfBall", "radius": 2}}, ["a"]),
        ({"a": {"radius": 1}}, {"a": {"radius": 2}}, ["a.radius"]),
        ({"a": "topk:k=5"}, {"a": "topk:k=50"}, ["a.k"]),
        ({"a": "mine:explain"}, {"a": "mine:other"}, ["a"]),
        # a search with its own defaults beside one of the same kind whose options are given: they are not known
        ({"s": "genetic"}, {"s": {"name": "genetic", "population": 20}}, ["s"]),
        ({"s": "genetic", "n": 1}, {"s": {"name": "genetic", "population": 20}, "n": 2}, []),
        ({"s": "f:k=5"}, {"s": "f:k=5,x=3"}, ["s.x"]),
        ({"s": "f:k=5", "n": 1}, {"s": "f:k=5,x=3", "n": 2}, []),
        ({"s": "block"}, {"s": {"name": "genetic", "population": 20}}, ["s"]),
        ({"s": "block", "n": 1}, {"s": {"name": "genetic", "population": 20}, "n": 2}, []),
        ({"s": "k=5"}, {"s": "a: b=1, and more"}, ["s"]),  # a text and no name with options
    ],
)
def test_two_configurations_are_compared_where_they_differ_in_one_thing(
    first: Any, second: Any, expected: list[str]
) -> None:
    for both in ((first, second), (second, first)):
        assert [
            group.option for group in find_groups(configurations(*both, owners={"part": "a"}))
        ] == expected


def test_neighbourhoods_are_on_an_axis_by_their_extent_or_beside_each_other_by_their_label() -> (
    None
):
    """Of one kind by its number; of several kinds each with the number in its words."""
    from standfast.metrics.base import plain
    from standfast.neighbourhoods import JPEG, Brightness, Compose, LinfBall, Rotation

    def find(*places: Any) -> list[OptionGroup]:
        return find_groups(configurations(*({"neighbourhood": plain(place)} for place in places)))

    (group,) = find(Rotation(5), Rotation(10), Rotation(20))
    assert shape(group) == ("neighbourhood.degrees", [("v0", 5), ("v1", 10), ("v2", 20)])
    groups = find(
        Rotation(10), JPEG((30, 90)), LinfBall(0.1), Compose((Rotation(10), Brightness(0.1)))
    )
    assert [group.option for group in groups] == ["neighbourhood"]
    assert [member.text for member in groups[0].members] == [
        "rotation 10",
        "jpeg 30 to 90",
        "linf 0.1",
        "rotation 10 + brightness 0.1",
    ]
    (group,) = find(Rotation((0, 5)), Rotation((0, 10)))
    assert len({member.text for member in group.members}) == 2
    (group,) = find(
        Compose((Rotation(5), Brightness(0.1))), Compose((Rotation(10), Brightness(0.1)))
    )
    assert group.option == "neighbourhood.parts"
    unknown = {"transformation": "Wobble", "strength": [-1.0, 1.0]}
    (group,) = find_groups(
        configurations(
            {"neighbourhood": unknown}, {"neighbourhood": unknown | {"strength": [0, 1]}}
        )
    )
    assert [member.text for member in group.members] == ["1", "0, 1"]


def test_the_distribution_does_not_part_a_search_from_a_simulation(builder: Builder) -> None:
    """A search knows the ranges of the parameters and not their distribution; of a composition it knows all parts'."""
    rotation = {
        "transformation": "Rotation",
        "degrees": [-10.0, 10.0],
        "align": True,
        "distribution": "uniform",
    }
    normal = rotation | {"distribution": "truncated_normal"}

    def compose(part: dict[str, Any]) -> dict[str, Any]:
        return {"transformation": "Compose", "distribution": "uniform", "parts": [part]}

    for place, (first, second, count) in enumerate(
        [
            (rotation, normal, 1),
            (compose(rotation), compose(normal), 1),
            (rotation, rotation | {"degrees": [-5.0, 5.0]}, 0),
            (rotation, rotation | {"align": False}, 0),
            (compose(rotation), compose(rotation | {"degrees": [-5.0, 5.0]}), 0),
        ]
    ):
        worst(builder, "a", f"w{place}", [0.7], neighbourhood=first, data=f"d{place}")
        probability(builder, "a", f"p{place}", [-6.0], neighbourhood=second, data=f"d{place}")
        found = [text for text in Page(builder.results()).list_warnings() if f"d{place}" in text]
        assert len(found) == count, (first, second)


def test_options_without_effect_are_not_compared(builder: Builder) -> None:
    worst(builder, "a", "one", [0.5, 0.6], threshold=0.3)
    worst(builder, "a", "other", [0.5, 0.6], threshold=0.4)
    mc = {"method": "monte_carlo", "samples": 10}
    probability(builder, "a", "4 moves", [-3.0, -4.0], moves=4, **mc)
    probability(builder, "a", "8 moves", [-3.0, -4.0], moves=8, **mc)
    assert charts(builder) == []


@pytest.mark.parametrize("name", metrics.names())
def test_the_roles_of_options_are_those_of_the_metric(name: str) -> None:
    kind, options = metrics[name], metrics[name].example().options()
    assert set(kind.roles) <= set(options)
    parts = {option: role for option, role in kind.roles.items() if isinstance(role, PartOf)}
    assert {role.option for role in parts.values()} <= set(options) - set(parts)
    assert all(bool(role.only) != bool(role.unless) for role in parts.values())


@pytest.mark.parametrize("method", ["subset", "monte_carlo"])
def test_each_method_has_options_of_its_own(method: Any) -> None:
    metric = standfast.metrics.MisinterpretationProbability(
        standfast.LinfBall(0.1), threshold=0.9, method=method
    )
    subset, options = (
        (
            "particles",
            "moves",
            "quantile",
            "first",
            "proposal",
            "floor",
            "error",
            "budget",
            "from_event",
        ),
        metric.options(),
    )
    idle = [option for option in options if not metric.has_effect(option, options)]
    assert set(idle) == {"preset", *(("samples",) if method == "subset" else subset)}


# numbers


def test_medians_and_intervals_belong_to_their_option_and_explainer(builder: Builder) -> None:
    populations(builder, {500: -0.3, 50: 0.0, 100: -0.1}, {"saliency": 0.5, "DeepLift": 0.9})
    (chart,) = charts(builder)
    for name in ("saliency", "DeepLift"):
        line = rows(chart, name)
        assert [row["x"] for row in line] == [50, 100, 500]
        for row in line:
            values = stored(builder, f"size {row['x']:.0f}", name)
            assert row["y"] == pytest.approx(np.median(values), rel=1e-5)
            # of six values the outermost two: they miss the median with probability 2 / 2**6
            assert (row["low"], row["high"]) == pytest.approx(
                (values.min(), values.max()), rel=1e-5
            )
    assert "similarity (pearson)" in str(chart.spec)
    assert "more robust →" in str(chart.spec)
    x = chart.spec["layer"][0]["encoding"]["x"]
    assert (x["title"], x["scale"].get("type"), x["axis"]["values"]) == (
        "search.population",
        None,
        [50, 100, 500],
    )


def test_the_table_has_the_numbers_of_the_summary_and_stars_of_the_tests(builder: Builder) -> None:
    populations(builder, {50: 0.0, 100: -0.1}, {"a": 0.5, "b": 0.9}, samples=12)
    results = builder.results()
    (table,) = tables(compare_options(results))
    assert table.columns == [("50", "size 50"), ("100", "size 100")]
    for name, cells in table.rows:
        for size, cell in zip((50, 100), cells, strict=True):
            metric = results.summary.find("digits", "lenet", f"size {size}")
            row = None if metric is None else metric.find_row(name)
            assert row.estimate is not None
            assert cell.text == format_estimate(row.estimate, row.spec.decimals)
            assert f"n = {row.estimate.count}" in cell.small
            assert (cell.star == "★") == (row.standing == "best") == (name == "b")
            assert cell.quality is row.quality is None  # nothing to judge it by


def test_censored_medians_are_marked_as_bounds(builder: Builder) -> None:
    for moves, values in (
        (1, [-3.0, -20.0, -20.0]),
        (4, [-3.0, -5.0, -20.0]),
        (16, [-3.0, -4.0, -6.0]),
    ):
        probability(builder, "a", f"m{moves}", values, floor=-20.0, moves=moves)
    (chart,) = charts(builder)
    marked = [(row["x"], row["y"], row.get("bound", False)) for row in rows(chart, "a")]
    assert marked == [(1, -20.0, True), (4, -5.0, False), (16, -4.0, False)]
    first, second, third = rows(chart, "a")
    assert first["reads"] == "≤ 1 in 490,000,000 [0%, 5%]"
    assert second["reads"] == "0.67% [0%, 5%]"
    assert third["reads"] == "1.8% [0.25%, 5%]"
    assert first["low"] < -20  # open: as far as the axis reaches
    marks = [layer["mark"] for layer in chart.spec["layer"] if layer["mark"].get("filled") is False]
    assert [mark["shape"] for mark in marks] == ["triangle-down"]
    assert "≤ 1 in 490,000,000 at 1" in chart.alt


def test_a_label_that_failed_is_left_out_of_the_line(builder: Builder) -> None:
    populations(builder, {50: 0.0, 500: -0.3}, {"a": 0.5})
    options = {
        "absolute": True,
        **COMMON,
        "event": "changed_explanation",
        "search": {**GENETIC, "population": 100},
    }
    builder.job(
        "a", "worst_case", "size 100", options, None, stop=2, error=("ValueError: no", "Traceback")
    )
    (chart,) = charts(builder)
    assert [row["x"] for row in rows(chart, "a")] == [50, 500]
    ((_, cells),) = tables(compare_options(builder.results()))[0].rows
    assert [cell.text == "–" for cell in cells] == [False, True, False]


def test_other_numbers_of_samples_along_a_line_are_warned_of(builder: Builder) -> None:
    for size in (2, 3):
        worst(builder, "a", f"n{size}", [0.2] * size, search={**GENETIC, "population": size})
    (table,) = tables(compare_options(builder.results()))
    assert "Not the same samples at all values" in table.caption


def test_malformed_options_do_no_harm(builder: Builder) -> None:
    worst(builder, "a", "fine", [0.5, 0.6], search={"name": "genetic", "population": 5})
    worst(builder, "a", "words", [0.5, 0.7], search={"name": "genetic", "population": "many"})
    worst(builder, "a", "list", [0.5, 0.8], search=["genetic", {"population": 5}])
    builder.job("a", "new_metric", "bare", {}, {**base(["ok"]), "value": [1.0]})
    builder.job("a", "new_metric", "more", {"k": 3}, {**base(["ok"]), "value": [2.0]})
    builder.names["explainers"]["a"] = "no mapping"  # type: ignore[assignment]
    results = builder.results()
    results.manifest["metrics"]["bare"]["options"] = None
    assert "new_metric: k" in [found.title for found in compare_options(results)]
    assert compare_models(results) == []


def test_explainers_with_one_number_changed(builder: Builder) -> None:
    for samples in (500, 50, 1000):
        name = f"LIME {samples}"
        builder.other(name, [1.0 * samples, 2.0 * samples, 4.0 * samples])
        builder.names["explainers"][name] = {"name": "lime", "samples": samples, "segments": "auto"}
    builder.other("saliency", [1.0, 2.0, 3.0])
    (chart,) = charts(builder)
    assert [(row["x"], row["y"]) for row in rows(chart, "lime")] == [
        (50, 100),
        (500, 1000),
        (1000, 2000),
    ]
    (found,) = compare_options(builder.results())
    assert found.title == "explainer lime: samples"
    assert [title for title, _ in tables([found])[0].columns] == ["50", "500", "1000"]


def test_models_stand_beside_each_other(builder: Builder) -> None:
    for place, (model, name) in enumerate(
        itertools.product(("plain", "trained", "other"), ("b", "a"))
    ):
        where = {"data": "series" if model == "other" else "digits", "model": model}
        builder.worst(name, [0.1 * place + d for d in (0.0, 0.02, 0.07)], **where)
    (table,) = tables(compare_models(builder.results()))
    assert [title for title, _ in table.columns] == ["plain", "trained"]
    cells = {name: [float(cell.text) for cell in own] for name, own in table.rows}
    assert cells == {"b": pytest.approx([0.02, 0.22]), "a": pytest.approx([0.12, 0.32])}
    assert_whole(page := builder.page())
    assert 'href="#models"' in page
    assert 'href="#options"' not in page


# the page and its files


def test_nothing_to_compare_is_no_section(builder: Builder) -> None:
    builder.worst("a", [0.3, 0.5])
    builder.worst("a", [0.3, 0.5], event="changed_class", margin=[1.0, 1.0])
    builder.probability("a", [-3.0, -4.0])
    page = builder.page()
    assert "Options compared" not in page
    assert "Models compared" not in page
    assert_whole(page)


def test_a_whole_comparison_is_on_the_page_and_in_files(builder: Builder, tmp_path: Path) -> None:
    populations(builder, {50: 0.0, 100: -0.1}, {"a": 0.5, "<b>&": 0.9})
    worst(builder, "a", "by block", [0.2] * 6)
    page = builder.page()
    assert_whole(page)
    assert 'href="#options"' in page
    section = page.split('<details id="options"')[1].split('<details id="explorer"')[0]
    assert section.count('<figure class="plot">') == 1  # the search itself is no number
    assert section.count('<table class="numbers">') == 2
    assert all(re.findall(r'aria-label="[^"]{30,}"', section))
    assert page.index('id="comparison"') < page.index('id="metrics"') < page.index('id="options"')
    assert builder.page() == page
    names = {path.name for path in write_figures(builder.results(), tmp_path / "figures")}
    stem = "options-worst_case_search.population-similarity_pearson_by_search.population"
    assert {f"{stem}.{end}" for end in ("svg", "pdf")} <= names


def test_too_many_figures_are_left_out_and_counted(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons_module, "MOST", 1)
    for model, event in itertools.product("mnk", ("changed_explanation", "changed_class")):
        for search in ("random", "block"):
            where = {"model": model, "event": event, "search": search}
            worst(builder, "a", f"{search} {event}", [0.3, 0.5, 0.6], **where)
    assert len(compare_options(builder.results())) == len(compare_models(builder.results())) == 1
    assert_whole(builder.page())
