"""What the report shows of an attack on attributions: sets pixel by pixel, curves, and the sentence on shifts."""

from __future__ import annotations

import base64
import dataclasses
import io
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from report_builder import assert_whole
from skimage.color import rgb2lab

import standfast
from conftest import SHAPES, small_net
from standfast.metrics import AttributionAttack
from standfast.report.charts import Chart, ExplainerTable, Figure, Gallery, GalleryRow, Picture
from standfast.report.page.drawings import draw_row
from standfast.report.page.pictures import DARKEST, PALEST, draw_picture
from standfast.report.presentation import presentation_of
from standfast.report.presentation.lens.attribution_attack import (
    draw_means,
    per_sample,
    shares_of_loss,
)
from standfast.report.presentation.lens.curves import load_curves, overlap_by_chance
from standfast.report.presentation.lens.pictures import KEPT, LOST, NEAR, NEW
from standfast.results import MetricResults
from standfast.statistics.bootstrap import intervals_of_means
from standfast.statistics.paired import bootstrap_interval

Array = np.ndarray[Any, Any]
SIMILARITIES = ("topk_intersection", "lens_precision", "lens_recall:w=2", "mse")
BALL = standfast.LinfBall(0.1)
ATTACK = AttributionAttack(BALL, "top_k", steps=3, restarts=1, similarities=SIMILARITIES, k=40)
EXPLAINERS = ["saliency", "input_x_gradient"]
KEPT_SHARES = ("kept", "kept_within_1", "kept_within_2")
PRESENTATION = presentation_of("attribution_attack")


@pytest.fixture(scope="module")
def found(
    lenet: standfast.Model, digits: standfast.data.Dataset, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    out = tmp_path_factory.mktemp("attack")
    return standfast.evaluate(
        lenet,
        EXPLAINERS,
        digits[:4].inputs,
        [ATTACK],
        out=out,
        samples_per_job=3,
        controls=False,
        sanity=False,
        progress=False,
    )


@pytest.fixture(scope="module")
def view(found: Any) -> MetricResults:
    return view_of(found)


def view_of(found: Any) -> MetricResults:
    return found.list_metric_results(next(iter(found.metrics)))[0]


def charts_of(shown: list[Figure | None]) -> dict[str, Chart]:
    return {figure.name: figure for figure in shown if isinstance(figure, Chart)}


def galleries_of(shown: list[Figure | None]) -> list[Gallery]:
    return [figure for figure in shown if isinstance(figure, Gallery)]


def pixels(picture: Picture, bounds: tuple[float, float]) -> Array:
    kind, _, content = str(draw_picture(picture, bounds)).partition(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content))).convert("RGB"))


def is_colour(image: Array, colour: str) -> Array:
    return np.asarray((image == list(bytes.fromhex(colour[1:]))).all(axis=-1))


def largest(map_: Array, k: int) -> set[tuple[int, ...]]:
    """The k largest positions; slowly."""
    return set(sorted(np.ndindex(map_.shape), key=lambda place: -map_[place])[:k])  # stable


def near(chosen: set[tuple[int, ...]], w: int, shape: tuple[int, ...]) -> set[tuple[int, ...]]:
    """The positions of the windows around those that are chosen."""
    seen = np.zeros(shape, dtype=bool)
    for place in chosen:
        seen[tuple(slice(max(at - w, 0), at + w + 1) for at in place)] = True
    return where(seen)


def where(mask: Array) -> set[tuple[int, ...]]:
    return {tuple(int(i) for i in place) for place in np.argwhere(mask)}


def maps_of(view: MetricResults, row: GalleryRow) -> tuple[Array, Array]:
    shown = view.load_sample(row.explainer, row.sample, ("origin_maps", "maps"))
    assert shown is not None
    return np.abs(shown.arrays["origin_maps"]).sum(axis=0), np.abs(shown.arrays["maps"]).sum(axis=0)


def numbers_in(text: str, pattern: str) -> list[float]:
    found = re.search(pattern, text)
    return [float(number) for number in found.groups()]


def named(row: GalleryRow) -> dict[str, Picture]:
    return {picture.title: picture for picture in row.pictures}


# the pictures


def test_top_positions_are_drawn_pixel_by_pixel(view: MetricResults) -> None:
    gallery = galleries_of(PRESENTATION.figures(view))[0]
    assert [(row.sample, row.explainer) for row in gallery.rows] == [
        (s, e) for s in range(4) for e in EXPLAINERS
    ]
    for row in gallery.rows[:3]:
        shown = named(row)
        assert list(shown) == [
            "its map",
            "top k",
            "overlap",
            "top k after",
            "changed",
            "its map now",
        ]
        before, after = maps_of(view, row)
        sets = [largest(map_, 40) for map_ in (before, after)]
        for title, chosen in zip(("top k", "top k after"), sets, strict=True):
            image = pixels(shown[title], view.bounds)
            rings = [near(chosen, w, before.shape) for w in (0, 1, 2)]
            assert rings[0] == chosen
            assert where(is_colour(image, NEAR[0])) == chosen
            assert where(is_colour(image, NEAR[1])) == rings[1] - rings[0]
            assert where(is_colour(image, NEAR[2])) == rings[2] - rings[1]
        image = pixels(shown["overlap"], view.bounds)
        s, t = sets
        assert where(is_colour(image, KEPT)) == s & t
        assert where(is_colour(image, LOST)) == s - t
        assert where(is_colour(image, NEW)) == t - s
        assert numbers_in(row.text, r"of the top 40 pixels (\d+)% kept") == pytest.approx(
            [len(s & t) / 0.4], abs=0.5001
        )


def test_signs_count_where_the_metric_counts_them(view: MetricResults) -> None:
    arrays = {key: np.zeros((2, 6, 6)) for key in ("origins", "inputs", "origin_maps", "maps")}
    # sums 0, -7, 2; absolute 10, 11, 2
    arrays["origin_maps"][:, 2, :3] = [
        [5.0, -9.0, 1.0],
        [-5.0, 2.0, 1.0],
    ]
    for absolute, expected in ((True, {(2, 0), (2, 1)}), (False, {(2, 2), (0, 0)})):
        changed = stored(view, arrays, k=2, absolute=absolute)
        row = galleries_of(PRESENTATION.figures(changed))[0].rows[0]
        assert where(is_colour(pixels(named(row)["top k"], (0, 1)), NEAR[0])) == expected


def stored(view: MetricResults, arrays: dict[str, Array], **options: Any) -> MetricResults:
    """The view of a single sample of one explainer, with other arrays."""
    given = {name: array[None].astype(np.float32) for name, array in arrays.items()}
    rows = view.frame.filter((pl.col("explainer") == EXPLAINERS[0]) & (pl.col("sample") == 0))
    jobs = view.jobs.filter(pl.col("explainer") == EXPLAINERS[0]).head(1)
    return dataclasses.replace(
        view,
        options={**view.options, **options},
        frame=rows,
        jobs=jobs,
        load=lambda job: given,
        explainers=EXPLAINERS,
    )


@pytest.mark.parametrize("sight", ["full", "protan", "deutan", "tritan"])
def test_marks_are_told_apart_by_the_colour_blind(sight: str) -> None:
    """Simulated dichromats (protan, deutan: Vienot, Brettel and Mollon 1999; tritan: Machado et al. 2009)."""
    matrix = {
        "full": np.eye(3),
        "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
        "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
        "tritan": [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    }[sight]

    def seen(colour: str) -> Array:
        srgb = np.array(list(bytes.fromhex(colour[1:]))) / 255
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        lit = np.clip(np.asarray(matrix) @ linear, 0, 1)
        encoded = np.where(lit <= 0.0031308, 12.92 * lit, 1.055 * lit ** (1 / 2.4) - 0.055)
        return np.asarray(rgb2lab(encoded[None, None])[0, 0])

    greys = [f"#{level:02x}{level:02x}{level:02x}" for level in (DARKEST, PALEST)]
    for colours in ((KEPT, LOST, NEW), NEAR):
        for a, b in itertools.combinations((*colours, *greys), 2):
            if not {a, b} <= set(greys):
                assert np.linalg.norm(seen(a) - seen(b)) > 15, (a, b)


# the numbers


def rows_of(kept: Array, **columns: Any) -> pl.DataFrame:
    n = len(kept)
    return pl.DataFrame(
        {
            "sample": range(n),
            "status": ["ok"] * n,
            "label_kept": [True] * n,
            "found": [True] * n,
            **dict(zip(KEPT_SHARES, kept.T.tolist(), strict=True)),
            **columns,
        }
    )


@pytest.fixture(scope="module")
def kept() -> Array:
    generator = np.random.default_rng(3)
    parts = generator.dirichlet([3.0, 4.0, 2.0, 1.0], size=30)
    return np.asarray(np.round(parts[:, :3].cumsum(axis=1) * 100) / 100)


def test_shares_of_the_loss_are_arithmetic(kept: Array) -> None:
    shares, _, _ = intervals_of_means(per_sample(rows_of(kept), KEPT_SHARES), shares_of_loss)
    lost = [1 - kept[:, place].mean() for place in range(3)]
    assert shares.tolist() == pytest.approx([(lost[0] - lost[w]) / lost[0] for w in (1, 2)])


def test_what_does_not_count_is_counted(kept: Array) -> None:
    n = len(kept)
    frame = rows_of(kept).with_columns(
        pl.Series("label_kept", [place >= 2 for place in range(n)]),
        pl.Series("found", [place != 4 for place in range(n)]),
    )
    details = PRESENTATION.details(frame, {})
    assert [(each.value, each.total) for each in details] == [(2, n), (1, n)]


@pytest.mark.parametrize(("level", "above"), [(0.4, "above chance 0.333 ["), (0.96, "")])
def test_means_are_corrected_for_chance(view: MetricResults, level: float, above: str) -> None:
    """(0.6 - 0.4) / (1 - 0.4); where unrelated maps are nearly equal, nothing can be said."""
    name = "lens_recall:k=5,w=1"
    spread = np.linspace(-0.1, 0.1, 9)
    values = {name: 0.6 + spread, f"{name} chance": level + spread / 10}
    frame = rows_of(np.full((9, 3), 0.5), value=0.6 + spread, **values).with_columns(
        explainer=pl.lit("saliency")
    )
    made = dataclasses.replace(
        view, frame=frame, options={"similarities": [name], "k": 5}, explainers=["saliency"]
    )
    ((_, cells),) = draw_means(made, None, "").rows
    expected = bootstrap_interval(0.6 + spread, "mean")
    assert (cells[0].text, cells[0].small.partition("\n")[0]) == (
        "0.600",
        f"[{expected.low:.3f}, {expected.high:.3f}]",
    )
    assert cells[0].small.partition("\n")[2].startswith(above)
    assert bool(cells[0].small.partition("\n")[2]) == bool(above)


def test_repeats_of_a_sample_are_averaged_first() -> None:
    frame = pl.DataFrame(
        {"sample": [7, 3, 7, 3, 9], "a": [1.0, 0.0, 0.5, 1.0, None], "b": [0.0, 2.0, 4.0, 2.0, 1.0]}
    )
    np.testing.assert_allclose(per_sample(frame, ("a", "b")), [[0.5, 2.0], [0.75, 2.0]])
    assert len(per_sample(frame.clear(), ("a",))) == 0


def test_all_classes_lost(view: MetricResults) -> None:
    frame = view.frame.with_columns(pl.lit(False).alias("label_kept"), pl.lit(False).alias("found"))
    lost = dataclasses.replace(view, frame=frame)
    shown = PRESENTATION.figures(lost)
    assert charts_of(shown) == {}
    for gallery in galleries_of(shown):
        assert all(not row.found and "lost, so not counted" in row.text for row in gallery.rows)
    (detail,) = PRESENTATION.details(lost.rows_for("saliency"), view.options)
    assert (detail.value, detail.total) == (4, 4)
    assert PRESENTATION.details(view.frame.clear(), view.options) == []
    assert load_curves(lost, "saliency") is None


# the charts


def test_curves_are_means_over_samples(view: MetricResults) -> None:
    charts = charts_of(PRESENTATION.figures(view))
    windowed = ["curve_precision", "curve_recall", "curve_precision_diverse"]
    assert [*charts] == ["distribution", *windowed, "k-0", "k-1"]
    for explainer in EXPLAINERS:
        each = view.lines(explainer, ("origin_maps", "maps"), 4)
        maps = [
            [np.abs(a.arrays[key]).sum(axis=0) for key in ("origin_maps", "maps")] for a in each
        ]
        k = 39  # the nearest to 40 among 16, 39, 78, 157 and 314
        for w in (0, 1, 2):
            pairs = [[largest(map_, k) for map_ in pair] for pair in maps]
            precision = np.mean([len(s & near(t, w, (28, 28))) / k for s, t in pairs])
            recall = np.mean([len(t & near(s, w, (28, 28))) / k for s, t in pairs])
            assert point(charts["curve_precision"], explainer, w) == pytest.approx(
                precision, abs=1e-5
            )
            assert point(charts["curve_recall"], explainer, w) == pytest.approx(recall, abs=1e-5)
            if w <= 1:
                assert point(charts[f"k-{w}"], explainer, k) == pytest.approx(precision, abs=1e-5)
        assert sorted(row["x"] for row in lines(charts["k-1"], explainer)) == [16, 39, 78, 157, 314]


def lines(chart: Chart, explainer: str) -> list[dict[str, Any]]:
    return [row for row in chart.spec["datasets"]["lines"] if row["line"] == explainer]


def point(chart: Chart, explainer: str, x: float) -> float:
    (found,) = [row["y"] for row in lines(chart, explainer) if row["x"] == x]
    return float(found)


def test_the_table_has_means_and_what_became_of_the_top(view: MetricResults) -> None:
    (table,) = (
        figure for figure in PRESENTATION.figures(view) if isinstance(figure, ExplainerTable)
    )
    assert [title for title, _ in table.columns[:4]] == list(SIMILARITIES)
    rows = {name: [cell.text for cell in cells] for name, cells in table.rows}
    for explainer in EXPLAINERS:
        frame = view.rows_for(explainer)
        means = [frame[name].mean() for name in (*SIMILARITIES, *KEPT_SHARES)]
        assert rows[explainer][:4] == [f"{mean:.3f}" for mean in means[:4]]
        assert rows[explainer][4:7] == [f"{100 * mean:.0f}%" for mean in means[4:]]  # type: ignore[operator]
    chance = [overlap_by_chance((1, 28, 28), 40, w) for w in (0, 1, 2)]
    assert rows["two random sets"][4:7] == [f"{100 * share:.0f}%" for share in chance]


@pytest.mark.parametrize(
    ("shape", "k"), [((1, 2, 3), 2), ((2, 3, 3), 3), ((3, 6), 2), ((5,), 4)], ids=str
)
def test_chance_is_what_all_pairs_of_sets_reach(shape: tuple[int, ...], k: int) -> None:
    sides = shape[1:] if len(shape) > 1 else shape
    places = list(np.ndindex(sides))
    for w in (0, 1, 2):
        reached = [
            sum(any(max(abs(i - j) for i, j in zip(a, b, strict=True)) <= w for b in t) for a in s)
            / k
            for s in itertools.combinations(places, k)
            for t in itertools.combinations(places, k)
        ]
        assert overlap_by_chance(shape, k, w) == pytest.approx(np.mean(reached))


# other inputs


@pytest.fixture(scope="module", params=["series", "flat"])
def other(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Any]:
    shape = SHAPES[request.param]
    model = standfast.Model(small_net(shape), (0.0, 1.0), device="cpu", batch_size=64)
    inputs = torch.rand(5, *shape, generator=torch.Generator().manual_seed(0))
    attack = AttributionAttack(
        BALL, "top_k", steps=3, restarts=1, k=4, curve_k=(2, 4), curve_w=(0, 2)
    )
    out = tmp_path_factory.mktemp(request.param)
    return request.param, standfast.evaluate(
        model, ["saliency"], inputs, [attack], out=out, controls=False, sanity=False, progress=False
    )


def test_series_and_flat_inputs(other: tuple[str, Any], tmp_path: Path) -> None:
    kind, found = other
    assert found.failures == []
    view = view_of(found)
    shown = PRESENTATION.figures(view)
    charts, galleries = charts_of(shown), galleries_of(shown)
    if kind == "series":
        assert "k-2" in charts  # the least window above 0
        assert sorted(row["x"] for row in lines(charts["curve_recall"], "saliency")) == [0, 2]
    else:  # the order of features has no meaning, so nothing has a window
        assert {name for name in charts if name.startswith(("k-", "curve_"))} == {"k-0"}
    assert len(galleries) == 1
    row = galleries[0].rows[0]
    if kind == "flat":
        assert list(named(row)) == ["its map", "input", "changed", "its map now"]
    else:
        before, _ = maps_of(view, row)
        chosen = {place[0] for place in largest(before, 4)}
        marks = named(row)["top k"].marks
        assert marks is not None
        assert set(np.flatnonzero(marks == 1).tolist()) == chosen
        expected = [
            min((w for w in (0, 1, 2) if any(abs(t - c) <= w for c in chosen)), default=-1) + 1
            for t in range(16)
        ]
        assert marks.tolist() == expected
        assert len(draw_row(row, view.bounds)) == 1
    page = Path(found.to_html(tmp_path / "page.html")).read_text(encoding="utf-8")
    assert_whole(page)
