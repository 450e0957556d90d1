"""The table of pairs of explainers: the signs are those of the tests, the order is that of the mean ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from standfast.report.charts import ExplainerTable
from standfast.report.page.overview import tabulate_pairs
from standfast.results import ConfiguredMetric, MetricDecision, MetricSummary, registered_spec
from standfast.statistics.comparison import Comparison, compare


def tabulate(found: Comparison) -> ExplainerTable | None:
    metric = ConfiguredMetric("AOPC", "aopc", {}, "higher", True, registered_spec("aopc", {}), {})
    return tabulate_pairs(
        MetricSummary("data", "model", metric, (), found, MetricDecision("none", "unranked"))
    )


def test_signs_are_those_of_the_tests() -> None:
    p = np.ones((4, 4))
    for i, j in {(1, 0), (1, 3), (0, 3), (2, 3)}:
        p[i, j] = p[j, i] = 0.01
    found = compare(np.random.default_rng(0).normal(size=(9, 4)), "abcd", "lower")
    ranks = np.array([2.0, 1.0, 3.0, 4.0])
    effects = np.sign(ranks - ranks[:, None])  # above 0: the first of a pair is better
    found = replace(found, p_values=p, friedman_p=0.001, mean_ranks=ranks, effects=effects)
    table = tabulate(found)
    assert [name for name, _ in table.rows] == ["b (1.00)", "a (2.00)", "c (3.00)", "d (4.00)"]
    assert [name for name, _ in table.columns] == [*"bacd"]
    signs = {
        (name[0], "bacd"[at]): cell.text
        for name, cells in table.rows
        for at, cell in enumerate(cells)
    }
    for better, worse in (("b", "a"), ("b", "d"), ("a", "d"), ("c", "d")):
        assert (signs.pop((better, worse)), signs.pop((worse, better))) == ("+", "−")
    assert set(signs.values()) == {""}
    assert table.rows[0][1][1].small == "p = 0.01"
    undecided = tabulate(replace(found, friedman_p=0.2))
    # no test unless all together differ
    assert {cell.text for _, cells in undecided.rows for cell in cells} == {""}


@pytest.mark.parametrize(("names", "samples"), [("ab", 30), ("abc", 2)])
def test_two_explainers_and_too_few_samples_have_no_table(names: str, samples: int) -> None:
    values = np.random.default_rng(0).normal(size=(samples, len(names)))
    assert tabulate(compare(values, names, "higher")) is None
