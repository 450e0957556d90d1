"""What the report shows of corruption curves, of drops made by hand: numbers, gate, pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from report_builder import Builder, base

import standfast
from standfast.errors import ArgumentError
from standfast.metrics import CorruptionCurve
from standfast.metrics.coarse_to_fine.replacement import find_levels
from standfast.report.charts import Chart, ExplainerTable, TableCell
from standfast.report.presentation import presentation_of
from standfast.report.presentation.coarse_to_fine.corruption_curve import draw_drops
from standfast.report.presentation.coarse_to_fine.drops import Drops, load_drops
from standfast.report.presentation.coarse_to_fine.pictures import draw_gallery
from standfast.report.presentation.coarse_to_fine.tables import draw_tables
from standfast.report.words import words_of
from standfast.results import MetricResults
from standfast.statistics.curves import compute_area

PRESENTATION = presentation_of("corruption_curve")
SAY = words_of(PRESENTATION).say

Array = np.ndarray[Any, Any]
FRACTIONS = (0.05, 0.15, 0.5, 1.0)
OPTIONS = CorruptionCurve(fractions=FRACTIONS).options()
EXPLAINERS = ("good", "zero", "random")
COUNT, SHAPE = 52, (2, 10)


def made(name: str, seed: int = 0, count: int = COUNT) -> Array:
    """Drops `(count, K)`: large ones, such as are peaked at 0, and noise around 0."""
    rng = np.random.default_rng([seed, EXPLAINERS.index(name) if name in EXPLAINERS else 9])
    if name == "good":
        return 0.5 + 0.4 * rng.beta(4, 2, (count, 1)) * np.sqrt(FRACTIONS)
    return rng.normal(0, 0.02, (count, 1)) ** (3 if name == "zero" else 1) * np.sqrt(FRACTIONS)


def stored(
    builder: Builder,
    name: str,
    drops: Array,
    *,
    shape: tuple[int, ...] = SHAPE,
    options: dict[str, Any] = OPTIONS,
    status: list[str] | None = None,
    no_positive: tuple[int, ...] = (),
    start: int = 0,
    **where: Any,
) -> dict[str, torch.Tensor]:
    count = len(drops)
    generator = torch.Generator().manual_seed(count + len(name))
    share = 0.4 * np.array(FRACTIONS) * np.linspace(0.8, 1.2, count)[:, None]
    frame = {
        **base(status or ["ok"] * count, start),
        "value": drops.mean(1).tolist(),
        "area_top": drops.mean(1).tolist(),
        "area_bottom": (drops.mean(1) / 2).tolist(),
        "std_error": [0.01] * count,
        "positive_share": [0.4] * count,
        "no_positive": [row in no_positive for row in range(count)],
        "clipped": [0.0] * count,
    }
    arrays = {
        "drop_top": torch.tensor(drops),
        "drop_bottom": torch.tensor(drops / 2),
        "corrupted_share": torch.tensor(share),
        "fractions": torch.tensor(FRACTIONS, dtype=torch.float64).expand(count, -1).contiguous(),
        "noise_key": torch.arange(count),
        "origins": torch.rand(count, *shape, generator=generator),
        "replaced_at": torch.randint(0, 6, (count, *shape), dtype=torch.uint8, generator=generator),
    }
    builder.job(name, "corruption_curve", "curve", options, frame, arrays, start=start, **where)
    return arrays


def views(builder: Builder) -> list[MetricResults]:
    return builder.results().list_metric_results("curve")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("curve")


@pytest.fixture(scope="module")
def view(folder: Path) -> MetricResults:
    builder = Builder(folder / "study")
    for name in EXPLAINERS:
        stored(builder, name, made(name), no_positive=(1, 4) if name == "zero" else ())
    return views(builder)[0]


@pytest.fixture(scope="module")
def drops(view: MetricResults) -> Drops:
    found = load_drops(view)
    assert found is not None
    return found


def lines(chart: Chart, name: str, key: str = "y") -> list[float]:
    return [row.get(key) for row in chart.spec["datasets"]["lines"] if row["line"] == name]


# tables


def test_a_table_has_an_entry_for_each_column() -> None:
    with pytest.raises(ArgumentError, match="rows"):
        ExplainerTable("t", [("one", ""), ("two", "")], [("a", [TableCell("1")])])


# what is stored for pictures


@pytest.mark.parametrize("positions", ["entry", "pixel"])
def test_turns_are_the_first_share_that_a_position_is_among(positions: Any) -> None:
    # with ties
    maps = torch.randn(6, 2, 9, generator=torch.Generator().manual_seed(1)).round(decimals=1)
    maps[3] = -maps[3].abs()
    relevance = maps.reshape(6, 18) if positions == "entry" else maps.double().sum(1).float()
    positive = (relevance > 0).sum(1)
    counts = torch.tensor([[int(n * k) for k in (0.2, 0.6)] for n in positive.tolist()])
    found = find_levels(maps, counts, positions).flatten(1)
    for row, values in enumerate(relevance.tolist()):
        order = sorted(
            (place for place in range(len(values)) if values[place] > 0),
            key=lambda place: -values[place],
        )
        expected = [0] * len(values)
        for turn, place in enumerate(order):
            expected[place] = 1 + sum(turn >= count for count in counts[row].tolist())
        assert found[row].tolist() == expected


# drops of a study


def test_drops_are_aligned_by_sample(folder: Path) -> None:
    builder = Builder(folder / "aligned")
    good, random = made("good"), made("random")
    stored(builder, "good", good[:20], status=["ok"] * 19 + ["nonfinite"])
    stored(builder, "good", good[20:], start=20)
    stored(builder, "random", random[:10], no_positive=(2,))
    stored(builder, "random", 9 + random, repeat=1)
    found = load_drops(views(builder)[0])
    assert found.samples.tolist() == [*range(19), *range(20, COUNT)]
    expected = np.delete(good, 19, axis=0)
    np.testing.assert_array_equal(found.curves["good"].top, expected)
    assert found.curves["random"].find_complete().tolist() == [True] * 10 + [False] * (COUNT - 11)
    np.testing.assert_array_equal(np.asarray(found.curves["random"].top)[:10], random[:10])
    assert (found.absolute["good"].samples, found.fewest) == (COUNT - 1, 10)


def test_the_gate_is_applied_where_there_are_random_maps(
    view: MetricResults, drops: Drops, folder: Path
) -> None:
    assert {name: gate.passed for name, gate in drops.gates.items()} == {
        "good": True,
        "zero": False,
    }
    assert [drops.may_be_read(name) for name in EXPLAINERS] == [True, False, False]
    builder = Builder(folder / "ungated")
    for name in ("good", "zero"):
        stored(builder, name, made(name))
    alone = load_drops(views(builder)[0])
    assert (alone.gates, alone.may_be_read("zero")) == ({}, True)
    shown_tables = draw_tables(alone, SAY)
    assert not any(
        cell.faint for table in shown_tables for _, cells in table.rows for cell in cells
    )


# charts


def test_drop_curves_run_from_the_origin_over_the_mean_share(
    view: MetricResults, drops: Drops
) -> None:
    for factor, order in ((1.0, "top"), (0.5, "bottom")):
        chart = draw_drops(view, drops, order, "")
        assert chart is not None
        for name in EXPLAINERS:
            expected = factor * made(name).mean(0)
            np.testing.assert_allclose(lines(chart, name), [0, *expected], rtol=1e-4, atol=1e-9)
            np.testing.assert_allclose(
                lines(chart, name, "x"), [0, *0.4 * np.array(FRACTIONS)], rtol=1e-4
            )
            low, high = drops.absolute[name].interval(f"mean_{order}")
            np.testing.assert_allclose(lines(chart, name, "low")[1:], low, rtol=1e-4, atol=1e-9)
            np.testing.assert_allclose(lines(chart, name, "high")[1:], high, rtol=1e-4, atol=1e-9)


def test_who_has_no_drops_takes_nothing_from_the_others(folder: Path) -> None:
    builder = Builder(folder / "gone")
    for name in EXPLAINERS:
        stored(builder, name, np.full((COUNT, 4), np.nan) if name == "zero" else made(name))
    found = load_drops(views(builder)[0])
    assert found is not None
    coarse, fine = draw_tables(found, SAY)
    cells = {name: [cell.text for cell in row] for name, row in coarse.rows}
    assert cells["zero"] == ["0", *"–––––"]
    assert "–" not in [cell.text for name, row in fine.rows if name != "zero" for cell in row]


# tables


def test_tables_hold_the_numbers_of_the_summaries(drops: Drops) -> None:
    coarse, fine = draw_tables(drops, SAY)
    titles = [title for title, _ in coarse.columns]
    cells = {name: dict(zip(titles, row, strict=True)) for name, row in coarse.rows}
    share, mean = 0.4 * np.array(FRACTIONS), made("good").mean(0)
    x, y = np.concatenate([[0], share, [1]]), np.concatenate([[0], mean, mean[-1:]])
    top = float(np.trapezoid(y, x))
    bottom = top / 2
    above = float(np.trapezoid((made("good") >= 0.5).mean(0), FRACTIONS))
    f1 = 2 * top * (1 - bottom) / (top + 1 - bottom)
    for title, value in {"AUC top": top, "AUC bottom": bottom, "F1": f1}.items():
        assert cells["good"][title].text == f"{value:.3f}"
        low, high = (float(end) for end in re.findall(r"0\.\d+", cells["good"][title].small))
        assert low < value < high
    assert cells["good"]["drop ≥ 0.5"].text == f"{above:.3f}"
    assert [cells[name]["gate"].text for name in EXPLAINERS] == [
        "passed",
        "not passed",
        "reference",
    ]
    assert not any(cell.faint for _, row in coarse.rows for cell in row)
    faint = {name: [cell.faint for cell in row] for name, row in fine.rows}
    assert faint == {"good": [False] * 2, "zero": [True] * 2, "random": [True] * 2}
    for cell, key in zip(dict(fine.rows)["good"], ("skewness", "kurtosis"), strict=True):
        assert cell.text == f"{getattr(drops.absolute['good'], f'auc_{key}'):.3f}"


# pictures


def test_the_gallery_shows_the_extremes_and_their_most_relevant_points(view: MetricResults) -> None:
    gallery = draw_gallery(view, SAY)
    # random left out
    values = [view.rows_for(name)["common_drop"].to_numpy() for name in EXPLAINERS[:2]]
    order = np.argsort(np.mean(values, axis=0), kind="stable")
    assert list(dict.fromkeys(row.sample for row in gallery.rows)) == [
        order[0],
        order[COUNT // 2],
        order[-1],
    ]
    assert [row.explainer for row in gallery.rows[:3]] == list(EXPLAINERS)
    for row in gallery.rows:
        shown = view.load_sample(row.explainer, row.sample, ("replaced_at", "origins"))
        assert shown is not None
        arrays = shown.arrays
        _, picture = row.pictures
        np.testing.assert_array_equal(
            picture.marks, (arrays["replaced_at"] == 1) | (arrays["replaced_at"] == 2)
        )
        np.testing.assert_array_equal(picture.array, arrays["origins"])
        drop = made(row.explainer)[row.sample, 1]
        assert picture.title == f"drop {drop:.2f}".replace("-0.00", "0.00").replace("-", "−")


def test_a_real_study_stores_what_the_section_needs(
    lenet: standfast.Model, digits: standfast.data.Dataset, tmp_path: Path
) -> None:
    metric = CorruptionCurve(fractions=(0.15, 1.0), samples=1, mean=0.13, sd=0.31)
    names = ["input_x_gradient", "random"]
    found = standfast.evaluate(
        *(lenet, names, digits[:6].inputs, [metric]),
        out=tmp_path,
        samples_per_job=4,
        progress=False,
        controls=False,
        sanity=False,
    )
    (view,) = found.list_metric_results("corruption_curve")
    result = metric(lenet, "input_x_gradient", digits[:6].inputs)
    drops = load_drops(view)
    curves = drops.curves["input_x_gradient"]
    assert curves.top is not None
    rows = view.rows_for("input_x_gradient")
    np.testing.assert_allclose(
        compute_area(curves.share, curves.top), rows["area_top"].to_numpy(), rtol=1e-12
    )
    np.testing.assert_array_equal(curves.share, result.corrupted_share.numpy())
    shown = view.load_sample("input_x_gradient", 5, ("replaced_at", "origins"))
    assert shown is not None
    arrays = shown.arrays
    np.testing.assert_array_equal(arrays["origins"], digits[:6].inputs[5].numpy())
    places = arrays["replaced_at"].size
    assert (arrays["replaced_at"] == 1).sum() == round(float(result.corrupted_share[5, 0]) * places)
    assert (arrays["replaced_at"] > 0).sum() == int(result.positive[5])
    assert len(draw_gallery(view, SAY).rows) == 6
