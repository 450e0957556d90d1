"""The report says what is stored: medians against NumPy, censoring, escaping, warnings, and a whole document."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from report_builder import PROB, WORST, Builder, assert_whole, study, without_bundle

import standfast.report
from standfast.errors import ArgumentError
from standfast.report import build_html, load_results, write_figures
from standfast.report.charts import Picture
from standfast.report.page import render
from standfast.report.page.html import Page
from standfast.report.page.methods import list_options
from standfast.report.page.pictures import (
    SHADES,
    UNSEEN,
    colour_signed,
    draw_picture,
    encode_image,
    shrink,
)
from standfast.report.presentation import presentation_of
from standfast.report.presentation.safari.misinterpretation_probability import (
    find_levels_of_similarity,
)
from standfast.results import MetricResults, ValueSpec
from standfast.results.formatting import format_estimate, format_number
from standfast.results.metric_summary import count_rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Builder, str]:
    builder = study(tmp_path_factory.mktemp("study"))
    return builder, builder.page(title="A study", command="standfast run study.toml")


def cell_text(
    page: str, explainer: str, label: str, data: str = "digits", model: str = "lenet"
) -> str:
    where = (
        f'data-data="{data}" data-model="{model}" data-explainer="{explainer}" data-label="{label}"'
    )
    found = re.search(rf"<td[^>]*{re.escape(where)}>(.*?)</td>", page, flags=re.DOTALL)
    return re.sub(r"<[^>]+>", " ", found[1])


def rows_of(page: str) -> dict[str, Any]:
    found = re.search(
        r'<script type="application/json" id="rows">(.*?)</script>', page, flags=re.DOTALL
    )
    return dict(json.loads(found[1]))


def test_cells_have_the_numbers_of_the_summary(whole: tuple[Builder, str]) -> None:
    builder, page = whole
    summary = load_results(builder.store).summary
    assert len(summary.rows) == 3 * 4 * 3
    for row in summary.rows:
        text = cell_text(page, row.explainer, row.label, row.data, row.model)
        assert row.estimate is not None
        assert (
            text.split(" ★")[0].strip().startswith(format_estimate(row.estimate, row.spec.decimals))
        )
        assert f"n = {row.estimate.count}" in text
        assert ("★" in text) == (row.standing in ("best", "tied"))
        assert row.mean_rank is None or f"mean rank {row.mean_rank:.2f}" in text
        assert (f"bounds: {row.counts.bounds} of {row.counts.counted}" in text) == (
            row.counts.bounds > 0
        )


def test_an_unresolved_estimate_is_a_bound_and_not_censored() -> None:
    flags = {"bound": [True, True, False], "resolved": [False, True, True], "censored": [False] * 3}
    frame = pl.DataFrame(
        {
            "sample": [0, 1, 2],
            "repeat": [0] * 3,
            "status": ["ok"] * 3,
            "value": [1.0, 2.0, 3.0],
            **flags,
        }
    )
    counts = count_rows(ValueSpec("t", "a", "lower", censored="bound"), frame)
    assert (counts.counted, counts.bounds, counts.unresolved, counts.imprecise) == (3, 2, 1, 0)


def test_an_error_that_was_not_reached_is_shown(builder: Builder) -> None:
    reached = [1.0, 0.0, 0.0, 0.0]
    builder.probability(
        "fine",
        [-3.0, -4.0, -5.0, 0.0],
        censored=[False] * 3 + [True],
        more={"error_reached": reached},
    )
    page = builder.page()
    row = load_results(builder.store).summary.rows[0]
    assert (row.counts.counted, row.counts.bounds, row.counts.imprecise) == (4, 1, 2)
    assert "error not reached: 2 of 4" in cell_text(page, "fine", PROB)
    assert "Error not reached" in page.split('class="tally"')[1]


def test_all_samples_skipped_and_failed_jobs(builder: Builder) -> None:
    builder.worst("fine", [0.5, 0.6])
    builder.worst("skips", [0.0, 0.0], status=["degenerate", "nonfinite"])
    builder.probability(
        "skips", [0.0, 0.0], censored=[True, True], status=["degenerate", "nonfinite"]
    )
    builder.failure("broken", "Traceback: <b>no & good</b>")
    page = builder.page()
    for label in (WORST, PROB):
        text = cell_text(page, "skips", label)
        assert "nothing to take a median of" in text
        assert "skipped: 1 degenerate" in text
    assert "Traceback: &lt;b&gt;no &amp; good&lt;/b&gt;" in page
    assert "ValueError: no" in page
    assert cell_text(page, "broken", WORST).split() == ["failed", "1", "part", "failed"]
    banner = page.split('<p class="warn">')[1].split("</p>")[0]
    assert "ValueError: no" in banner
    assert "not computed" in cell_text(page, "fine", PROB)
    assert_whole(page)


def test_the_environment_has_no_default(builder: Builder) -> None:
    builder.worst("fine", [0.5, 0.6])
    results = builder.results()
    results.manifest["environment"] = {"gpu": None, "torch": "2.0"}
    tables = dict(list_options(results))
    assert ("gpu", "none") in dict(tables["Environment and run"])["environment"]


def test_names_are_escaped(builder: Builder) -> None:
    builder.worst("<script>alert(1)</script>", [0.5, 0.6, 0.2])
    builder.probability("a&b $\\x_$ {{ 7*7 }} --> </svg> \" class='", [-1.0, -2.0, -3.0])
    builder.other("'];alert(1);['", [1.0, 2.0, 3.0])
    page = builder.page(title="<i>t</i>", model="m'\"<", command="run --a '<x>'", note="n<")
    assert "<script>alert" not in page
    assert "</svg>" not in re.sub(r"<svg .*?</svg>", "", without_bundle(page), flags=re.DOTALL)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;i&gt;t&lt;/i&gt;" in page
    assert "{{ 7*7 }}" in page
    assert_whole(page)


def test_names_that_no_drawing_can_hold_are_shown_as_codes(builder: Builder) -> None:
    """A line separator ends an expression of a chart, and NUL would end this process within the renderer."""
    for place, name in enumerate(("line\u2028end", "nul\0", "turned\u202e\x1b[31m")):
        builder.worst(name, [0.5, 0.6, 0.2 + place / 10])
        builder.other(name, [1.0, 2.0, 3.0 - place])
    page = builder.page(title="a\u2029b")
    for code in ("line\\u2028end", "nul\\u0000", "turned\\u202e\\u001b[31m", "a\\u2029b"):
        assert code in page
    assert not re.search("[\0\x1b\u2028\u2029\u202e]", without_bundle(page))
    assert_whole(page)


def test_such_names_may_be_in_the_rows_alone(builder: Builder) -> None:
    """As in results that somebody sent, whose manifest does not have them."""
    builder.worst("nul\0", [0.5, 0.6, 0.2])
    del builder.names["explainers"]["nul\0"]
    assert "nul\\u0000" in builder.page()


@pytest.mark.parametrize("shape", [(3, 5, 4), (2, 30), (9,), (2, 3, 4, 5)], ids=str)
def test_inputs_of_every_shape_are_drawn(builder: Builder, shape: tuple[int, ...]) -> None:
    builder.worst("a", [0.3, 0.5], shape=shape)
    page = builder.page()
    assert page.count("Perturbed input: a") > 2
    assert_whole(page)


def test_the_same_results_give_the_same_bytes(builder: Builder, tmp_path: Path) -> None:
    for name in ("a", "b"):
        builder.worst(name, [0.3, 0.5, 0.2])
        builder.other(name, [1.0, 2.0, 3.0])
    page = builder.page()
    again = tmp_path / "deep" / "report.html"
    # charts are drawn anew, as in another process
    render._draw.cache_clear()
    assert load_results(str(builder.store.folder.address)).to_html(again) == again
    assert again.read_text(encoding="utf-8") == page


def test_a_whole_study_is_shown(whole: tuple[Builder, str]) -> None:
    _, page = whole
    assert_whole(page)
    for where in ("digits · lenet", "digits · wide net", "series · lenet"):
        assert page.count(where) >= 5
    charts = len(re.findall('<figure class="plot">', page))
    # for each pair and label: medians, distribution; worst cases also lines; three curves
    assert charts == 3 * (4 * 2 + 2 + 3)
    assert len(page) < 6_000_000


def test_every_row_is_in_the_explorer(whole: tuple[Builder, str]) -> None:
    builder, page = whole
    stored, samples = rows_of(page), builder.results().samples
    assert sum(block["rows"] for block in stored["blocks"]) == len(samples)
    names, block = stored["names"], stored["blocks"][0]
    i = 11
    place = {key: block["columns"][key][i] for key in ("data", "model", "explainer", "sample")}
    where = {key: names[key][place[key]] for key in ("data", "model", "explainer")}
    row = samples.filter(
        pl.all_horizontal(pl.col(key) == value for key, value in where.items()),
        pl.col("sample") == place["sample"],
        pl.col("label") == names["label"][block["label"]],
    ).row(0, named=True)
    assert block["value"][i] == pytest.approx(row["similarity"], rel=1e-5)
    assert set(block["extras"]) == {"margin"}
    linked = {
        link
        for b in stored["blocks"]
        for link in (b["links"] if isinstance(b["links"], list) else [b["links"]])
    }
    assert all(f'<figure id="{link}"' in page for link in linked - {""})
    assert len(linked) > 10


@pytest.mark.parametrize(
    ("stored", "thresholds", "expected"),
    [
        ([1.0, 2.0], [-0.2, 0.0], [True, True]),
        ([1.0, 1.0], [-0.2, 0.0], [True, True]),
        ([0.0, 1.0, 1.0, 2.0], [-3.0, 0.0, -0.1, 0.0], [False, False, True, True]),
        ([0.0, 2.0], [-3.0, 0.0], [False, True]),
    ],
)
def test_the_level_that_reaches_the_event_is_one_of_the_similarity(
    stored: list[float], thresholds: list[float], expected: list[bool]
) -> None:
    found = find_levels_of_similarity(
        np.array([*stored, np.nan]), np.array([*thresholds, np.nan]), False
    )
    assert found.tolist() == [*expected, False]


@pytest.mark.parametrize(
    ("event", "similarity", "expected"),
    [
        ("changed_explanation", "pearson", [0.6, 0.4]),
        ("changed_class", "pearson", [0.4, 0.6]),
        ("changed_explanation", "mse", [0.8, 1.0]),
        ("changed_class", "mse", [1.2, 1.0]),
    ],
)
def test_levels_are_drawn_at_similarities(
    builder: Builder, event: str, similarity: str, expected: list[float]
) -> None:
    builder.probability("a", [-5.0], event=event)
    (label,) = builder.names["metrics"]
    view = builder.results().metric_results("digits", "lenet", label)
    options = {
        "event": event,
        "similarity": similarity,
        "threshold": 1.0 if similarity == "mse" else None,
    }
    levels = {"level_stage": [1.0, 2.0], "level_threshold": [-0.2, 0.0]}
    levels |= {f"level_{name}": [-1.0, -2.0] for name in ("log_probability", "low", "high")}
    stored = {name: np.array([values]) for name, values in levels.items()}
    changed = dataclasses.replace(view, options=options, load=lambda job: stored)
    figures = view_figures(changed)
    (chart,) = [each for each in figures if each is not None and each.name == "curve-sample0"]
    assert [row["x"] for row in chart.data["lines"]] == pytest.approx(expected)


def view_figures(view: MetricResults) -> list[Any]:
    return list(presentation_of("misinterpretation_probability").figures(view) or ())


def test_a_part_more_probable_than_the_whole_is_warned_of(builder: Builder) -> None:
    builder.probability("a", [-5.0, -9.0], event="changed_class")
    builder.probability("a", [-20.0, -8.8], event="misclassification", censored=[True, False])
    (text,) = Page(builder.results()).list_warnings()
    assert "a, sample 0:" in text
    assert (
        "a, sample 0: the probability of probability: changed_class is at least" in builder.page()
    )


def test_a_search_that_fell_short_is_warned_of(builder: Builder) -> None:
    builder.worst("a", [0.7, 0.3, 0.7, 0.7])
    builder.probability(
        "a",
        [-6.0, -6.0, -20.0, 0.0],
        censored=[False, False, True, True],
        status=["ok"] * 3 + ["x"],
    )
    found = Page(builder.results()).list_warnings()
    assert [text.split(":")[1].strip() for text in found] == ["a, sample 0"]


def test_a_search_that_found_what_a_simulation_did_not_reach_is_told(builder: Builder) -> None:
    builder.worst("a", [0.3, 0.7, 0.3])
    builder.probability("a", [-100.0, -100.0, -6.0], censored=[True, True, False])
    (text,) = Page(builder.results()).list_warnings()
    assert "a, sample 0: the search of" in text


@pytest.mark.parametrize("other", [{"data": "other"}, {"model": "other"}, {"repeat": 1}], ids=str)
def test_other_data_models_and_repeats_are_not_compared(
    builder: Builder, other: dict[str, Any]
) -> None:
    builder.worst("a", [0.7])
    builder.probability("a", [-6.0], **other)
    assert Page(builder.results()).list_warnings() == []


def test_jobs_in_any_order_are_sorted_by_sample(builder: Builder) -> None:
    builder.worst("a", [0.3, 0.4], start=2)
    builder.worst("a", [0.1, 0.2], steps=2)
    view = builder.results().list_metric_results(WORST)[0]
    assert view.rows_for("a")["similarity"].to_list() == [0.1, 0.2, 0.3, 0.4]
    lines = [each.arrays["trace_similarity"] for each in view.lines("a", ("trace_similarity",), 3)]
    assert [len(line) for line in lines] == [2, 2, 4]
    third = view.load_sample("a", 2, ("origins",))
    assert third is not None
    assert third.arrays["origins"].shape == (1, 6, 6)
    assert view.load_sample("a", 2, ("nothing",)) is None
    assert view.load_sample("a", 9, ("origins",)) is None


def test_only_what_is_shown_is_read(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    for start in range(0, 120, 2):
        builder.worst("a", [0.3, 0.4], start=start)
    results, read = builder.results(), []
    original = type(results.store).read_artefacts
    monkeypatch.setattr(
        type(results.store),
        "read_artefacts",
        lambda s, job: (read.append(job), original(s, job))[1],
    )
    build_html(results)
    assert len(set(read)) <= 51  # a hundred samples for the lines, among them those of the gallery


def test_missing_jobs_and_an_empty_store_are_said(builder: Builder) -> None:
    assert "No results are stored yet" in builder.page()
    assert "vegaEmbed" not in builder.page()
    builder.jobs = ["never"]
    builder.extra = {"misfits": {"attack": {"LRP": "it has no gradient"}}}
    page = builder.page()
    assert "1 planned part has not been computed yet" in page
    assert "<li>attack: no results for LRP: it has no gradient.</li>" in page
    assert_whole(page)


def test_a_manifest_may_lack_everything(builder: Builder) -> None:
    builder.worst("a", [0.3, 0.5, 0.2])
    builder.other("a", [0.3, 0.5, 0.2])
    builder.store.write_manifest({"jobs": builder.jobs})
    page = build_html(load_results(builder.store))
    assert_whole(page)
    assert "Worst cases found" in page


def test_a_folder_without_results_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"manifest\.json"):
        load_results(tmp_path / "nothing")
    assert not (tmp_path / "report.html").exists()


def test_charts_are_written_as_files(builder: Builder, tmp_path: Path) -> None:
    for name, values in (
        ("a", [0.3, 0.5, 0.1, 0.4]),
        ("b", [0.5, 0.6, 0.2, 0.6]),
        ("c", [0.9, 0.8, 0.9, 0.7]),
    ):
        builder.worst(name, 2 * values)
    paths = write_figures(builder.results(), tmp_path / "figures")
    names = {path.name for path in paths}
    stem = "metric-worst_case_changed_explanation-digits-lenet-"
    assert {
        f"{stem}{kind}.{end}" for kind in ("distribution", "convergence") for end in ("svg", "pdf")
    } <= names
    assert "overview-worst_case_changed_explanation-digits-lenet-medians.pdf" in names
    for path in paths:
        content = path.read_bytes()
        assert content.startswith(b"%PDF" if path.suffix == ".pdf" else (b"<svg", b"<?xml"))
        assert b"var(--" not in content


def pixels(array: np.ndarray, **more: Any) -> np.ndarray:
    """The picture of an image or a map, decoded."""
    from PIL import Image

    uri = draw_picture(Picture("", array, "", **more), (0.0, 1.0))
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))).convert("RGB"))


def test_images_and_maps_have_the_colours_of_their_values() -> None:
    rgb = np.linspace(0, 1, 3 * 4 * 5).reshape(3, 4, 5)
    np.testing.assert_array_equal(pixels(rgb), np.rint(np.moveaxis(rgb, 0, -1) * 255))
    one = np.zeros((1, 2, 2))
    one[0, 0, 0], one[0, 1, 1] = 2.0, -1.0
    red, blue = (pixels(sign * one, signed=True) for sign in (1, -1))
    assert red[0, 0, 0] > red[0, 0, 2]
    assert blue[0, 0, 0] < blue[0, 0, 2]
    assert red[0, 1].min() > 240
    unseen = np.where(np.eye(2, dtype=bool)[None], one, np.nan)
    hatched = pixels(unseen, signed=True, moved_back=True)
    np.testing.assert_array_equal(hatched[[0, 1], [0, 1]], red[[0, 1], [0, 1]])
    assert {tuple(pixel) for pixel in hatched[[0, 1], [1, 0]]} <= {(grey,) * 3 for grey in UNSEEN}
    assert shrink(np.ones((3, 500, 300))).shape == (3, 125, 75)
    assert not pixels(np.full((1, 2, 2), np.nan)).any()
    for value in (0.0, 1.0):  # full colour would look like a strong map
        assert (
            draw_picture(Picture("", np.full((1, 4, 4), value), "", signed=True), (0.0, 1.0))
            is None
        )


def test_large_maps_show_more_than_their_largest_pixel_and_large_inputs_take_few_bytes() -> None:
    noise = np.random.default_rng(0).normal(size=(1, 100, 100))
    noise[0, 50, 50] = 1000.0  # on its own scale everything else would be white
    unseen = noise.copy()
    unseen[0, :20] = np.nan
    one, part = (pixels(each, signed=True, moved_back=True) for each in (noise, unseen))
    end = np.quantile(np.abs(noise), 0.99)
    expected = 255 * colour_signed(np.clip(noise[0] / end, -1, 1))
    shade = 255 * np.abs(np.diff(colour_signed(np.linspace(-1, 1, 2 * SHADES + 1)), axis=0)).max()
    assert np.abs(one - expected).max() <= shade / 2 + 1
    assert {tuple(pixel) for pixel in part[:20].reshape(-1, 3)} == {(grey,) * 3 for grey in UNSEEN}
    # the scale is that of what is seen
    assert np.abs(part[20:].astype(int) - one[20:]).max() <= 2 * shade
    sparse = np.zeros((1, 100, 100))
    sparse[0, 3, 4] = 2.0
    # the quantile is 0: the scale ends at the largest value
    assert pixels(sparse, signed=True)[3, 4, 2] < 50
    rows, columns = np.mgrid[:150, :150] / 150
    photo = (
        np.stack([rows, columns, (rows + columns) / 2])
        + np.random.default_rng(1).normal(size=(3, 150, 150)) / 30
    )
    small = draw_picture(Picture("", photo, ""), (0.0, 1.0))
    assert small.startswith("data:image/webp")
    shown = np.moveaxis(np.clip(photo, 0, 1), 0, -1)
    assert len(small) < len(encode_image(shown)) / 5
    assert np.abs(pixels(photo) - 255 * shown).mean() < 12


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (-0.0, None, "0"),
        (-0.0049, 2, "0.00"),
        (-0.0051, 2, "−0.01"),
        (-0.001, 2, "0.00"),
        (-1.5, 1, "−1.5"),
        (float("nan"), 2, "–"),
        (None, 2, "–"),
        (1e-9, None, "1e−09"),
    ],
)
def test_numbers_as_printed(value: float | None, decimals: int | None, text: str) -> None:
    assert format_number(value, decimals) == text


def test_the_report_knows_no_metric_by_name() -> None:
    from standfast.metrics import names

    package = Path(standfast.report.__file__).parent
    # this one is also a word of English, and so of comments and variables: as a name it stands in quotes
    written = [f'"{name}"' if name == "reasons" else name for name in names()]
    for path in [*package.glob("*.py"), *package.glob("templates/*.*")]:
        text = path.read_text(encoding="utf-8")
        assert not [name for name in written if name in text], path


def test_classes_have_their_names_in_captions_and_in_the_table(builder: Builder) -> None:
    builder.worst("a", [0.1, 0.5])
    before = builder.page()
    assert "answer 3 →" in before
    builder.names["data"]["digits"]["classes"] = ["owl", "cat", "dog", "<fox>"]
    page = builder.page()
    assert "answer &lt;fox&gt; →" in page
    assert "still &lt;fox&gt;" in page
    assert "answer 3" not in page
    assert rows_of(page)["names"]["classes"] == [["owl", "cat", "dog", "<fox>"]]
