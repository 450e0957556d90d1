"""Reports of texts: maps with a number for each word, what is removed for a word, and where that decides."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from report_builder import WORST, Builder, base

from standfast.report import Results
from standfast.report.page.comparisons import compare_options
from standfast.report.page.drawings import draw_row
from standfast.report.page.methods import list_changes, list_facts
from standfast.report.presentation.drawing import draw_figures
from standfast.report.presentation.lens.pictures import KEPT, LOST, NEW, draw_gallery
from standfast.report.removal_changes import RemovalChange, find_removal_changes
from standfast.report.terminal import format_text

TEXTS = [["So", " bad", "!"], ["it", " is", " not", " so", " good"]]
SWAPS = ['{"1": "poor"}', '{"2": "", "4": "bad"}']


def reviews(folder: Path, texts: bool = True) -> Builder:
    """Two texts of three and five words, explained by two explainers; the map of the shorter one ends with NaN."""
    builder = Builder(folder)
    names = ("origins", "inputs", "origin_maps", "maps")
    for place, name in enumerate(("saliency", "lrp")):
        arrays = {
            each: torch.randn(2, 5, generator=torch.Generator().manual_seed(place))
            for each in names
        }
        for values in arrays.values():
            values[0, 3:] = torch.nan
        builder.worst(name, [0.3, 0.5 + place / 10], arrays=arrays, more={"swapped_words": SWAPS})
    builder.names["data"]["digits"] |= {"tokens": TEXTS} | ({"texts": True} if texts else {})
    return builder


def test_the_end_of_a_shorter_text_is_dropped(tmp_path: Path) -> None:
    view = reviews(tmp_path).results().metric_results("digits", "lenet", WORST)
    for sample, words in enumerate(TEXTS):
        shown = view.load_sample("lrp", sample, ("maps", "trace_similarity"))
        assert shown is not None
        assert shown.arrays["maps"].shape == (len(words),)
        assert np.isfinite(shown.arrays["maps"]).all()
        assert shown.arrays["trace_similarity"].shape == (4,)


def test_the_gallery_has_both_sentences_of_each_sample_and_no_change_of_codes(
    tmp_path: Path,
) -> None:
    results = reviews(tmp_path).results()
    view = results.metric_results("digits", "lenet", WORST)
    gallery = draw_figures(results.metrics[WORST], view)[-1]
    drawn = [(row.sample, draw_row(row, view.bounds)) for row in gallery.rows]
    assert [sample for sample, _ in drawn] == [0, 0, 1, 1]
    for sample, (drawing,) in drawn:
        before, after = drawing.content["panels"]
        assert [word.text for word in before.parts] == [word.strip() for word in TEXTS[sample]]
        new = [(word.text, word.old) for word in after.parts if word.old]
        assert new == ([("poor", "bad")] if sample == 0 else [("", "not"), ("bad", "good")])
    assert [word.joined for word in drawn[0][1][0].content["panels"][0].parts] == [
        False,
        False,
        True,
    ]


def test_a_reach_is_of_words_or_of_numbers_of_an_embedding(tmp_path: Path) -> None:
    found = [
        list_changes(reviews(tmp_path / str(texts), texts).results())[0] for texts in (True, False)
    ]
    assert ["embedding" in each for each in found] == [False, True]
    views = [
        reviews(tmp_path / f"v{texts}", texts).results().metric_results("digits", "lenet", WORST)
        for texts in (True, False)
    ]
    assert [view.position for view in views] == ["word", "number of the embedding"]


def test_the_table_of_samples_knows_texts_and_changed_words(tmp_path: Path) -> None:
    page = reviews(tmp_path).page()
    (content,) = re.findall(
        r'<script type="application/json" id="rows">(.*?)</script>', page, flags=re.DOTALL
    )
    stored = json.loads(content)
    assert stored["names"]["texts"] == [["So bad!", "it is not so good"]]
    assert stored["blocks"][0]["swaps"] == ["bad → poor", "not → –, good → bad"] * 2


def removals(folder: Path, values: dict[str, dict[str, float]], control: bool = True) -> Results:
    """AOPC of two explainers, and a control, on 20 samples, for each way to remove words."""
    builder, rng = Builder(folder), np.random.default_rng(0)
    for way, own in values.items():
        for name, middle in {**own, **({"random": 0.1} if control else {})}.items():
            frame = {**base(["ok"] * 20), "value": (middle + rng.normal(0, 0.01, 20)).tolist()}
            builder.job(name, "aopc", f"aopc ({way})", {"steps": 10}, frame)
    builder.extra["about"] = {"removal": {f"aopc ({way})": way for way in values}}
    return builder.results()


def test_two_ways_to_remove_words_stand_side_by_side(tmp_path: Path) -> None:
    results = removals(tmp_path, {"mask": {"a": 0.5, "b": 0.3}, "delete": {"a": 0.4, "b": 0.2}})
    (comparison,) = compare_options(results)
    (table,) = comparison.figures
    assert [column[0] for column in table.columns] == ["mask", "delete"]
    cells = {name: [float(cell.text) for cell in own] for name, own in table.rows}
    for name, expected in {"a": (0.5, 0.4), "b": (0.3, 0.2), "random": (0.1, 0.1)}.items():
        assert cells[name] == pytest.approx(expected, abs=0.02)
    assert dict(list_facts(results))["Removal"] == "aopc (mask): mask; aopc (delete): delete"
    assert find_removal_changes(results.summary.metrics) == []


def test_a_caution_says_where_the_way_of_removal_decides_who_is_best(tmp_path: Path) -> None:
    results = removals(tmp_path, {"mask": {"a": 0.5, "b": 0.3}, "delete": {"a": 0.2, "b": 0.4}})
    (change,) = find_removal_changes(results.summary.metrics)
    assert change == RemovalChange("aopc", {"mask": ("a",), "delete": ("b",)}, controls=False)
    text = " ".join(format_text(results).split())
    assert "a (mask); b (delete)." in text


def test_a_caution_says_where_the_way_of_removal_decides_who_beats_the_controls(
    tmp_path: Path,
) -> None:
    results = removals(tmp_path, {"mask": {"a": 0.5, "b": 0.3}, "delete": {"a": 0.5, "b": 0.05}})
    (change,) = find_removal_changes(results.summary.metrics)
    assert change == RemovalChange("aopc", {"mask": ("a", "b"), "delete": ("a",)}, controls=True)


def test_metrics_that_differ_in_more_are_not_compared(tmp_path: Path) -> None:
    results = removals(tmp_path, {"mask": {"a": 0.5, "b": 0.3}, "delete": {"a": 0.2, "b": 0.4}})
    results.manifest["metrics"]["aopc (delete)"]["options"] = {"steps": 5}
    assert find_removal_changes(results.summary.metrics) == []


def test_the_top_words_before_and_after_an_attack_are_marked(tmp_path: Path) -> None:
    builder = reviews(tmp_path)
    maps = {"origins": torch.rand(2, 5), "inputs": torch.rand(2, 5)}
    maps["origin_maps"] = torch.tensor(
        [[3.0, 2.0, 1.0, torch.nan, torch.nan], [5.0, 4.0, 3.0, 2.0, 1.0]]
    )
    maps["maps"] = torch.tensor([[3.0, 1.0, 2.0, torch.nan, torch.nan], [5.0, 4.0, 3.0, 2.0, 1.0]])
    shares = {name: [0.5, 1.0] for name in ("value", "kept", "kept_within_1", "kept_within_2")}
    frame = {
        **base(["ok"] * 2),
        **shares,
        "predicted": [3, 3],
        "label_kept": [True] * 2,
        "found": [True] * 2,
    }
    options = {"similarities": [], "k": 2, "absolute": True}
    builder.job(
        "lrp", "attribution_attack", "attack", options, {**frame, "swapped_words": SWAPS}, maps
    )
    results = builder.results()
    view = results.metric_results("digits", "lenet", "attack")
    row = draw_gallery(view, lambda *values: "").rows[0]
    marks = {picture.title: picture.marks for picture in row.pictures if picture.marks is not None}
    assert marks["overlap"].tolist() == [3, 1, 2]  # kept, lost, new
    panels = draw_row(row, view.bounds)[0].content["panels"]
    (overlap,) = (each for each in panels if each.title == "overlap")
    assert [word.ground for word in overlap.parts] == [KEPT, LOST, NEW]
