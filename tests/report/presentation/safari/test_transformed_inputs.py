"""Results of transformations in a report: rows of pictures, words, and explainers compared over neighbourhoods."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
import torch
from report_builder import COMMON, Builder, base

import standfast
from standfast import neighbourhoods
from standfast.metrics.base import plain
from standfast.neighbourhoods import Neighbourhood
from standfast.report.charts import ExplainerTable, Gallery
from standfast.report.page.comparisons import compare_options
from standfast.report.presentation.lens.pictures import sum_channels
from standfast.report.presentation.safari.worst_case import SHOWN, WorstCasePresentation
from standfast.results import MetricResults

ROTATION, BRIGHTNESS = neighbourhoods.Rotation(10), neighbourhoods.Brightness(0.2)
BOTH = neighbourhoods.Compose((ROTATION, BRIGHTNESS))


def worst(
    builder: Builder,
    explainer: str,
    place: Neighbourhood,
    values: list[float],
    parameters: dict[str, list[float]] | None = None,
    label: str = "worst",
) -> None:
    """A job as the metric stores it; the aligned maps are those of the input, with one unseen column."""
    n, fill = len(values), float(len(builder.jobs)) / 100
    frame = {
        **base(["ok"] * n, 0),
        "value": values,
        "similarity": values,
        "margin": [-1.0] * n,
        "found": [True] * n,
        "misinterpreted": [value < 0.4 for value in values],
        "predicted": [3] * n,
        **(parameters or {}),
    }
    tensors = {
        key: torch.full((n, 1, 4, 4), fill) for key in ("origins", "inputs", "origin_maps", "maps")
    }
    if getattr(place, "aligns", False):
        tensors["aligned_maps"] = tensors["origin_maps"].clone()
        tensors["aligned_maps"][..., 0] = torch.nan
    options = {
        "absolute": True,
        **COMMON,
        "event": "changed_explanation",
        "search": "block",
        "budget": 50,
    }
    builder.job(
        explainer, "worst_case", label, {**options, "neighbourhood": plain(place)}, frame, tensors
    )


def view_of(builder: Builder, label: str = "worst") -> MetricResults:
    return builder.results().metric_results("digits", "lenet", label)


def gallery_of(view: MetricResults) -> Gallery:
    (found,) = [
        f for f in WorstCasePresentation("worst_case").figures(view) if isinstance(f, Gallery)
    ]
    return found


def test_a_row_has_the_map_moved_back(builder: Builder) -> None:
    own = {"angle [degrees]": [7.31, -2.0], "brightness [share of the range]": [-0.12, 0.0]}
    worst(builder, "a", BOTH, [0.31, 0.9], own)
    view = view_of(builder)
    gallery = gallery_of(view)
    first = gallery.rows[0]
    titles = ["input", "its map", "changed", "its map now", "moved back"]
    # the difference of moved inputs says little
    assert [picture.title for picture in first.pictures] == titles
    back = first.pictures[-1]
    assert back.signed
    assert back.moved_back
    assert np.isnan(back.array[0, :, 0]).all()
    assert np.isfinite(back.array[0, :, 1:]).all()


def test_what_the_metric_stores_is_what_the_report_draws(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    metric = standfast.metrics.WorstCase(ROTATION, budget=6, search="random")
    found = standfast.evaluate(
        lenet,
        {"a": "saliency"},
        digits[:2],
        metrics={"worst": metric},
        progress=False,
        controls=False,
        sanity=False,
    )
    view = found.metric_results(*found.pairs[0], "worst")
    gallery = gallery_of(view)
    assert 0 < len(gallery.rows) <= SHOWN
    for row in gallery.rows:
        (angle,) = view.rows_for("a", row.sample)["angle [degrees]"]
        assert f"angle {angle:.3g} degrees".replace("-", "−") in row.text
        (stored,) = [each.array for each in row.pictures if each.moved_back]
        assert np.isnan(stored).any() == (abs(angle) > 3)  # corners leave the picture


def test_top_positions_of_an_attack_are_those_of_the_map_moved_back(builder: Builder) -> None:
    worst(builder, "a", ROTATION, [0.3])
    maps = np.arange(16.0).reshape(1, 4, 4)
    back = np.where(np.arange(4) == 0, np.nan, maps)
    before, after = sum_channels(
        view_of(builder), {"origin_maps": maps, "maps": maps, "aligned_maps": back}
    )
    assert before.shape == after.shape == (1, 4, 4)
    assert torch.equal(before[..., 1:], after[..., 1:])
    assert not after[..., 0].any()  # not seen
    _, plain_after = sum_channels(
        view_of(builder), {"origin_maps": maps, "maps": maps[:, ::-1].copy()}
    )
    assert torch.equal(plain_after, before.flip(1))


# explainers by neighbourhoods


def fill(builder: Builder, places: dict[str, Neighbourhood], samples: int = 8) -> None:
    """Explainer b is better than a under each change but the last, where a is; `random` is the control."""
    generator = np.random.default_rng(0)
    kept = {
        "class_kept": [0.96] * samples,
        "class_kept_low": [0.9] * samples,
        "class_kept_high": [0.99] * samples,
    }
    for number, (label, place) in enumerate(places.items()):
        for name, level in (("a", 0.3), ("b", 0.5), ("random", 0.1)):
            level = 0.8 - level if number == len(places) - 1 and name != "random" else level
            values = (level + generator.uniform(-0.02, 0.02, samples)).tolist()
            worst(builder, name, place, values, kept, label)


def test_explainers_by_neighbourhoods_have_a_table_with_verdicts(builder: Builder) -> None:
    places = {"one": standfast.LinfBall(0.1), "two": ROTATION, "three": BOTH, "four": BRIGHTNESS}
    fill(builder, places)
    (found,) = compare_options(builder.results())
    assert found.title == "worst_case: neighbourhood"
    (table,) = found.figures
    assert isinstance(table, ExplainerTable)
    labels = ["linf 0.1", "rotation 10", "rotation 10 + brightness 0.2", "brightness 0.2"]
    assert list(table.columns) == list(zip(labels, places, strict=True))
    cells = dict(table.rows)
    frame = builder.results().samples
    for name in ("a", "b", "random"):
        for cell, label in zip(cells[name], places, strict=True):
            median = frame.filter(explainer=name, label=label)["value"].median()
            assert cell.text == f"{median:.3f}"
    assert [cell.star for cell in cells["b"]] == ["★", "★", "★", ""]
    assert [cell.star for cell in cells["a"]] == ["", "", "", "★"]
    assert not any(cell.star for cell in cells["random"])
    assert re.search(
        r"\[0\.\d+, 0\.\d+\], n = 8\nanswer kept: 96% \[90%, 99%\]\nmisinterpreted: 8 of 8$",
        cells["a"][0].small,
    )
    assert "misinterpreted: 0 of 8" in cells["b"][0].small


def test_samples_without_an_input_that_keeps_the_class_are_counted() -> None:
    """JPEG files of low quality may all have another class; the clean image is none of them."""
    flags = {"found": [True, False, True], "misinterpreted": [True, False, False]}
    frame = pl.DataFrame({"sample": [0, 1, 2], "status": ["ok"] * 3, **flags})
    presentation, options = WorstCasePresentation("worst_case"), {"event": "changed_explanation"}
    counts = {
        detail.label: (detail.value, detail.total)
        for detail in presentation.details(frame, options)
    }
    assert counts == {"no input that keeps the answer": (1, 3), "misinterpreted": (1, 2)}
    every = frame.with_columns(found=pl.lit(True))
    assert [detail.label for detail in presentation.details(every, options)] == ["misinterpreted"]


def test_exact_samples_are_counted_and_have_no_estimated_gap() -> None:
    flags = {
        "found": [True] * 4,
        "misinterpreted": [True, True, False, True],
        "exact": [True, True, True, False],
    }
    frame = pl.DataFrame(
        {"sample": [0, 1, 2, 3], "status": ["ok"] * 4, **flags, "gap": [0.0, 0.0, 0.0, 0.25]}
    )
    presentation, options = WorstCasePresentation("worst_case"), {"event": "changed_explanation"}
    details = {detail.label: detail for detail in presentation.details(frame, options)}
    exact, misinterpreted, gap = (
        next(detail for label, detail in details.items() if label.startswith(word))
        for word in ("exact", "misinterpreted", "stated gap")
    )
    assert (exact.value, exact.total) == (3, 4)
    assert (misinterpreted.value, misinterpreted.total) == (3, 4)
    assert gap.value == 0.25
