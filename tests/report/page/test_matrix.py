"""The matrix of the first screen: order of rows, qualities of cells, stars, and what is known of stability."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from report_builder import PROB, WORST, Builder, assert_whole, base

from standfast.report import Results
from standfast.report.page.matrix import (
    mark_leaders,
    order_explainers,
    tabulate_references,
)
from standfast.report.page.overview import draw_medians
from standfast.report.sentences import find_useless, list_cautions, say
from standfast.results.quality import RARE
from standfast.results.summary import MetricSummary, Summary
from standfast.results.verdict import reach_verdict

SAMPLES = 12
WHERE = ("digits", "lenet")
#: what a good explainer measures; the others differ in some of it
GOOD = {
    "value": 0.6,
    "within": 0.6,
    "scrambled": 0.3,
    "learned": 0.9,
    "removal": 0.9,
    "other_class": 0.2,
}
HOSTILE = "<script>alert(1)</script>"
EXPLAINERS = {
    "saliency": (0.4, {}),
    HOSTILE: (0.8, {}),
    "one map": (1.0, {"value": 0.0, "other_class": 1.0}),
    "half way": (0.6, {"learned": 0.6}),
    "class blind": (0.95, {"other_class": 0.97}),
}


def check_explainer(
    builder: Builder,
    name: str,
    measured: dict[str, float],
    references: dict[str, float],
    correct: int = 6,
) -> None:
    """A job of the sanity checks, with a small spread around what was measured."""
    spread = [0.02 * (-1) ** i for i in range(SAMPLES)]
    means = GOOD | measured
    frame: dict[str, Any] = {**base(["ok"] * SAMPLES)}
    frame |= {
        key: [mean + each * (mean not in (0.0, 1.0)) for each in spread]
        for key, mean in means.items()
    }
    frame |= {"negative": [True] * SAMPLES, "linear": [False] * SAMPLES, "classes": [10] * SAMPLES}
    frame |= {key: [math.nan] * SAMPLES for key in ("outside", "gap")}
    frame["correct"] = [1.0] * correct + [0.0] * (SAMPLES - correct)
    frame |= {key: [value] * SAMPLES for key, value in references.items()}
    builder.job(name, "sanity", "sanity", {}, frame)
    del builder.names["metrics"]["sanity"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    builder = Builder(tmp_path_factory.mktemp("matrix") / "results")
    for name, (level, measured) in EXPLAINERS.items():
        zero = 1.0 if name == "one map" else 0.2
        known = {
            f"identical {WORST}": 1.0,
            f"unrelated {WORST}": zero,
            f"same class {WORST}": zero + 0.1 * (zero < 1),
        }
        known |= {
            f"scrambled {WORST}": 0.5,
            f"identical {PROB}": 0.0,
            f"unrelated {PROB}": 0.9 if zero < 1 else 0.0,
        }
        known[f"unrelated {PROB}"] = 0.25 if name == "saliency" else known[f"unrelated {PROB}"]
        values = [level + 0.002 * (i % 7) * (level < 1) for i in range(SAMPLES)]
        builder.worst(name, values)
        builder.probability(name, [-10 * level + 0.01 * (i % 5) for i in range(SAMPLES)])
        check_explainer(builder, name, measured, known)
    builder.worst("random", [0.1] * SAMPLES)
    builder.extra = {"sanity": {"rules": 1}}
    return builder.results()


@pytest.fixture(scope="module")
def page(results: Results, tmp_path_factory: pytest.TempPathFactory) -> str:
    return results.to_html(tmp_path_factory.mktemp("page") / "page.html").read_text(
        encoding="utf-8"
    )


@pytest.fixture
def summary(results: Results) -> Summary:
    return results.summary


def metric_of(summary: Summary, label: str) -> MetricSummary:
    found = summary.find(*WHERE, label)
    assert found is not None
    return found


def test_candidates_come_first_by_their_quality_and_controls_last(summary: Summary) -> None:
    assert order_explainers(summary, *WHERE) == [
        ("class blind", "candidate"),
        (HOSTILE, "candidate"),
        ("saliency", "candidate"),  # bad by the worst case
        ("half way", "undecided"),
        ("one map", "failed"),
        ("random", "control"),
    ]


def test_a_star_is_filled_for_one_and_open_for_several(summary: Summary, tmp_path: Path) -> None:
    # not "one map", whose median is higher
    assert mark_leaders(metric_of(summary, WORST)) == {"class blind": "★"}
    builder = Builder(tmp_path / "tied")
    for name, level in (("a", 0.9), ("b", 0.9), ("c", 0.1)):
        builder.worst(
            name, [level + 0.01 * ((i * (3 if name == "a" else 5)) % 7) for i in range(SAMPLES)]
        )
        builder.other(name, [float((i * (3 if name == "a" else 5)) % 7) for i in range(SAMPLES)])
    tied = builder.results().summary
    assert mark_leaders(metric_of(tied, WORST)) == {"a": "☆", "b": "☆"}
    assert mark_leaders(metric_of(tied, "new metric")) == {}  # nothing is decided


def cell_of(page: str, explainer: str, column: int) -> tuple[set[str], str]:
    """The classes and the words of a cell of the matrix; column 0 has the sanity checks."""
    table = page.split('<table class="matrix">')[1].split("</table>")[0]
    (row,) = [
        row
        for row in table.split("<tr ")
        if re.search(rf'<th scope="row">{re.escape(explainer)}<', row)
    ]
    classes, text = re.findall(r'<td class="([^"]*)"[^>]*>(.*?)</td>', row, flags=re.DOTALL)[column]
    return set(classes.split()) - {"q"}, re.sub(r"<[^>]+>", " ", text)


def test_cells_have_the_quality_of_the_summary(page: str, summary: Summary) -> None:
    assert_whole(page)
    for row in summary.rows:
        name = row.explainer.replace("<", "&lt;").replace(">", "&gt;")
        if row.control:
            continue
        column = 1 if row.label == WORST else 2
        classes, text = cell_of(page, name, column)
        assert classes == ({row.quality} if row.quality else set())
        assert ("★" in text) == (
            mark_leaders(metric_of(summary, row.label)).get(row.explainer) == "★"
        )
    expected = {
        "class blind": "good",
        "saliency": "bad",
        "half way": "undecided",
        "one map": "control",
    }
    assert {name: cell_of(page, name, 1)[0] for name in expected} == {
        name: {word} for name, word in expected.items()
    }
    assert not any(star in cell_of(page, "one map", at)[1] for star in "★☆" for at in (1, 2))
    assert [cell_of(page, name, 0)[0] for name in ("saliency", "half way", "one map")] == [
        {"good"},
        {"undecided"},
        {"bad"},
    ]
    assert HOSTILE not in page


def test_a_model_near_chance_is_warned_of_and_accuracy_is_a_fact(page: str, tmp_path: Path) -> None:
    facts = page.split('id="methods"')[1]
    assert "50% of 12 labelled samples" in facts
    assert "labelled samples" not in page.split("<main>")[0]
    builder = Builder(tmp_path / "untrained")
    builder.worst("a", [0.5] * SAMPLES)
    check_explainer(builder, "a", {}, {}, correct=1)
    builder.extra = {"sanity": {"rules": 1}}
    (warning,) = re.findall(r'<p class="warn">(.*?)</p>', builder.page().split("<main>")[0])
    assert "8% of 12 labelled samples" in warning


def test_stability_without_content_is_joined_to_what_it_lacks(summary: Summary) -> None:
    (found,) = [each for each in reach_verdict(summary, *WHERE).hollow if WORST in each.labels]
    # the most stable first, up to the first that says something
    assert found.explainers == (
        "one map",
        "class blind",
    )
    states = [(each.state, each.find("class").state) for each in found.sanities]
    assert states == [("failed", "remark"), ("passed", "remark")]
    note = say("hollow", found)
    assert note.index("one map") < note.index("class blind")


def test_a_threshold_that_most_unrelated_pairs_pass_is_useless(summary: Summary) -> None:
    # one map is alike at any threshold
    assert find_useless(metric_of(summary, PROB)) == [("saliency", 0.25)]
    assert find_useless(metric_of(summary, WORST)) == []
    (note,) = [note for note in list_cautions(summary.select(*WHERE)) if note.startswith(PROB)]
    assert "75% of pairs" in note


def test_reference_points_stand_beside_the_value(summary: Summary) -> None:
    table = tabulate_references(metric_of(summary, WORST), ["class blind", "saliency", "random"])
    numbers = {name: [cell.text for cell in cells] for name, cells in table.rows}
    assert numbers == {
        "class blind": ["0.955", "1.000", "0.300", "0.500", "0.200"],
        "saliency": ["0.405", "1.000", "0.300", "0.500", "0.200"],
    }
    assert [cells[0].quality for _, cells in table.rows] == ["good", "bad"]
    table = tabulate_references(metric_of(summary, PROB), ["saliency"])
    assert [cell.text for cell in table.rows[0][1]][2:] == ["–", "–", "25%"]


def test_charts_of_stability_show_identical_and_unrelated_maps(
    results: Results, summary: Summary
) -> None:
    chart = draw_medians(metric_of(summary, WORST), results.explainers)
    assert chart.data["rules_x"] == [{"value": 1.0}]
    zeros = {row["row"].removeprefix("★ "): row["value"] for row in chart.data["zeros"]}
    assert zeros["one map"] == 1.0
    assert zeros["class blind"] == zeros["saliency"] == 0.2
    values = [row["value"] for row in chart.data["intervals"]]
    assert values == sorted(values, reverse=True)
    chart = draw_medians(metric_of(summary, PROB), results.explainers)
    assert chart.data["rules_x"] == [{"value": math.log(RARE)}]
    zeros = {row["row"].removeprefix("★ "): row["value"] for row in chart.data["zeros"]}
    assert zeros["saliency"] == pytest.approx(math.log(0.25), rel=1e-5)
    assert "one map" not in zeros  # no pair of its maps differs: there is no logarithm
    values = [row["value"] for row in chart.data["intervals"]]
    assert values == sorted(values)


def test_charts_with_controls_have_a_line_at_the_best_of_them(tmp_path: Path) -> None:
    builder = Builder(tmp_path / "controls")
    for name, level in (("a", 0.9), ("random", 0.2), ("random 2", 0.3)):
        builder.worst(name, [level] * 6)
    builder.names["explainers"]["random"]["name"] = builder.names["explainers"]["random 2"][
        "name"
    ] = "random"
    found = builder.results()
    controls = [row.value for row in found.summary.rows if row.control]
    chart = draw_medians(metric_of(found.summary, WORST), found.explainers)
    assert chart.data["rules_x"] == [
        {"value": max(value for value in controls if value is not None)}
    ]
