"""The table of pairs of explainers: the signs are those of the tests, the order is that of the mean ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from standfast.report.page.overview import draw_pairs
from standfast.report.page.render import render_for_page
from standfast.statistics.comparison import compare


def test_signs_are_those_of_the_tests() -> None:
    p = np.ones((4, 4))
    for i, j in {(1, 0), (1, 3), (0, 3), (2, 3)}:
        p[i, j] = p[j, i] = 0.01
    found = compare(np.random.default_rng(0).normal(size=(9, 4)), "abcd", "lower")
    ranks = np.array([2.0, 1.0, 3.0, 4.0])
    effects = np.sign(ranks - ranks[:, None])  # above 0: the first of a pair is better
    found = replace(found, p_values=p, friedman_p=0.001, mean_ranks=ranks, effects=effects)
    chart = draw_pairs(found, "Pairs")
    assert chart is not None
    assert chart.spec["layer"][0]["encoding"]["y"]["scale"]["domain"] == [
        *("A b (1.00)", "B a (2.00)", "C c (3.00)", "D d (4.00)")
    ]
    signs = {(cell["name"][0], cell["column"][0]): cell["text"] for cell in chart.data["cells"]}
    assert len(signs) == 12  # nobody is compared with itself
    for better, worse in (("b", "a"), ("b", "d"), ("a", "d"), ("c", "d")):
        assert (signs.pop((better, worse)), signs.pop((worse, better))) == ("+", "−")
    assert set(signs.values()) == {""}
    undecided = draw_pairs(replace(found, friedman_p=0.2), "Pairs")
    assert undecided is not None
    assert {cell["value"] for cell in undecided.data["cells"]} == {0}  # no pair is tested unless all together differ


@pytest.mark.parametrize("k", [2, 8, 30])
def test_it_is_drawn_for_any_number_of_explainers(k: int) -> None:
    random = np.random.default_rng(k)
    names = [f"${i}_" + "{x} <&> long " * (i % 4) for i in range(k)]
    chart = draw_pairs(compare(random.normal(size=(30, k)) + np.arange(k), names, "higher", permutations=199), "Pairs")
    assert chart is not None
    assert len(chart.data["cells"]) == k * (k - 1)
    assert "<&>" not in render_for_page(chart, 1).svg
