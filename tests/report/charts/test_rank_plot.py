"""The critical-difference diagram: what it shows, in words and in marks, and that it can be drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from standfast.report.charts import Chart, draw_mean_ranks
from standfast.report.page.render import render_for_page
from standfast.statistics.comparison import Comparison, compare

LONG = "a_name_of_an_explainer_that_is_far_too_long:steps=64,baseline=0"


def diagram(comparison: Comparison) -> Chart:
    place = {each: at for at, each in enumerate(comparison.order)}
    chart = draw_mean_ranks(
        [comparison.names[each] for each in comparison.order],
        [float(comparison.mean_ranks[each]) for each in comparison.order],
        [[place[each] for each in clique] for clique in comparison.cliques],
        comparison.names,
        "Ranks",
    )
    assert chart is not None
    return chart


def layer(chart: Chart, kind: str) -> dict[str, Any]:
    (found,) = [each for each in chart.spec["layer"] if each["mark"]["type"] == kind]
    return dict(found)


def test_names_ranks_and_bars() -> None:
    chart = draw_mean_ranks(["b", "a", "c"], [1.2, 2.0, 2.8], [(0, 1), (1, 2)], ["a", "b", "c"], "Ranks")
    assert chart is not None
    assert [(row["explainer"], row["row"], row["rank"], row["reads"]) for row in chart.spec["datasets"]["ranks"]] == [
        ("b", 0, 1.2, "1.20"),
        ("a", 1, 2.0, "2.00"),
        ("c", 2, 2.8, "2.80"),
    ]
    assert [row["like"] for row in chart.spec["datasets"]["ranks"]] == ["a", "b, c", "a"]
    first, second = chart.spec["datasets"]["bars"]
    assert (round(first["first"]), round(first["last"]), round(second["first"]), round(second["last"])) == (0, 1, 1, 2)
    assert 3 < first["at"] < second["at"]  # beside the ranks, and not in one column as they overlap
    x, y = (layer(chart, "point")["encoding"][channel] for channel in "xy")
    assert x["axis"]["values"] == [1, 2, 3]
    assert x["scale"]["domain"][0] < 1 < second["at"] < x["scale"]["domain"][1]
    assert y["scale"]["reverse"]  # the best at the top
    assert '["b"], ["a"], ["c"]' in y["axis"]["labelExpr"]
    assert chart.alt == "Ranks. Mean ranks, 1 is best: b 1.20, a 2.00, c 2.80. Not significantly different: b, a; a, c."


def test_without_cliques_all_differ() -> None:
    chart = draw_mean_ranks(["a", "b"], [1.0, 2.0], [(0,), (1,)], ["a", "b"], "t")
    assert chart is not None
    assert chart.spec["datasets"]["bars"] == []
    assert "All differ significantly" in chart.caption
    assert "Not significantly different: none" in chart.alt
    assert draw_mean_ranks([], [], [], [], "t") is None


@pytest.mark.parametrize("k", [2, 3, 8, 20, 30])
def test_it_is_drawn_for_any_number_of_explainers(k: int) -> None:
    random = np.random.default_rng(k)
    names = [f"${i}_" + "{x} <&> long " * (i % 4) for i in range(k)]
    names[-1] = LONG
    for values in (
        random.normal(size=(30, k)) + 0.1 * np.arange(k),
        random.normal(size=(30, k)) + 9 * np.arange(k),
        np.zeros((8, k)),
    ):
        comparison = compare(values, names, "higher", permutations=199)
        chart = diagram(comparison)
        drawn = render_for_page(chart, 1)
        for rank in comparison.mean_ranks:
            assert f">{rank:.2f}<" in drawn.svg  # the number of each
        assert drawn.svg.count('stroke-width="5"') == sum(len(clique) > 1 for clique in comparison.cliques)
        assert "<&>" not in drawn.svg
        assert len(json.loads(drawn.spec)["datasets"]["ranks"]) == k


def test_a_clique_joins_neighbours_only() -> None:
    # b is like c but not like a, which lies between: no bar may go over a
    p = np.ones((4, 4))
    for i, j in {(1, 0), (1, 3), (0, 3), (2, 3)}:
        p[i, j] = p[j, i] = 0.01
    found = compare(np.random.default_rng(0).normal(size=(9, 4)), "abcd", "lower")
    found = replace(found, p_values=p, friedman_p=0.001, mean_ranks=np.array([2.0, 1.0, 3.0, 4.0]))
    alt = diagram(found).alt
    assert alt == "Ranks. Mean ranks, 1 is best: b 1.00, a 2.00, c 3.00, d 4.00. Not significantly different: a, c."
