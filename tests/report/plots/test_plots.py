"""Plots for scripts and notebooks: what is drawn where, names that look like formulas, and what is refused."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch

import standfast
from standfast.data import Dataset
from standfast.errors import ArgumentError, MissingExtraError
from standfast.report.plots import plot_panels
from standfast.report.plots.canvas import ESTIMATE, REFERENCE
from standfast.results import ConfiguredMetric, MetricDecision, MetricSummary, SummaryRow, ValueSpec
from standfast.results.controls import Explainers
from standfast.statistics.paired import Interval

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def draw(axes: list[Any]) -> list[Any]:
    """The axes, after the whole figure was really drawn: only then matplotlib reads formulas."""
    axes[0].figure.canvas.draw()
    return axes


def labels(axis: Any) -> list[str]:
    return [text.get_text() for text in axis.get_ticklabels()]


def test_images_stand_beside_maps_on_a_scale_around_zero() -> None:
    x = torch.zeros(2, 1, 4, 5)
    x[:, :, 1] = 1
    maps = torch.zeros(2, 1, 4, 5)
    maps[:, 0, 0, 0], maps[:, 0, 3, 4] = 2.0, -1.0
    axes = draw(standfast.show(x, {"a": maps, "b": maps * 100}))
    assert len(axes) == 6
    assert [a.get_title() for a in axes[:3]] == ["sample 0", "a", "b"]
    (picture,) = axes[0].images
    assert np.allclose(picture.get_array(), x[0, 0])
    grey, shades = axes[1].images
    assert np.allclose(shades.get_array(), maps[0, 0])
    low, high = shades.get_clim()
    assert (low, high) == (-2.0, 2.0)
    assert shades.cmap(0.0)[2] > shades.cmap(0.0)[0]  # blue below zero
    assert shades.cmap(1.0)[0] > shades.cmap(1.0)[2]  # red above
    opaque = np.asarray(shades.get_alpha())
    assert opaque[0, 0] == 1
    assert opaque[2, 2] == 0  # the input shows through
    assert np.asarray(grey.get_array())[1, 0] < np.asarray(grey.get_array())[0, 0]


def test_tables_have_bars_with_names_the_largest_first() -> None:
    values = torch.zeros(1, 30)
    values[0, 7], values[0, 3], values[0, 29] = -3.0, 2.0, 0.5
    names = [f"feature ${n}$" for n in range(30)]
    data = Dataset("t", torch.full((1, 30), 0.25), torch.tensor([0]), ("a",), features=tuple(names))
    (axes,) = draw(standfast.show(data, values))
    found = labels(axes.yaxis)
    assert [text.replace("\\$", "$") for text in found[:3]] == [
        "feature $7$ = 0.25",
        "feature $3$ = 0.25",
        "feature $29$ = 0.25",
    ]
    assert found[-1] == "18 more, together"
    bars = [bar.get_width() for bar in axes.patches]
    assert bars[:3] == [-3.0, 2.0, 0.5]
    assert len(bars) == 13
    colours = [bar.get_facecolor() for bar in axes.patches[:2]]
    assert colours[0][2] > colours[0][0]  # blue: negative
    assert colours[1][0] > colours[1][2]
    low, high = axes.get_ylim()
    assert low > high  # the largest on top
    assert labels(standfast.show(torch.zeros(1, 2), torch.ones(1, 2))[0].yaxis) == [
        "feature 0 = 0",
        "feature 1 = 0",
    ]


def test_words_have_bars_of_their_summed_relevance() -> None:
    maps = torch.tensor([[[1.0, -3.0, 0.5], [1.0, 0.0, -0.5]]])
    (axes,) = draw(standfast.show(torch.rand(1, 2, 3), maps, tokens=[["so", "bad", "it"]]))
    assert labels(axes.yaxis) == ["bad", "so", "it"]
    assert [bar.get_width() for bar in axes.patches] == [-3.0, 2.0, 0.0]


def test_texts_have_bars_of_their_words_without_the_end_of_longer_ones() -> None:
    maps = torch.tensor([[1.0, -3.0, torch.nan], [1.0, 2.0, -0.5]])
    axes = draw(
        standfast.show(torch.rand(2, 3), maps, tokens=[["so", " bad"], ["not", " it", "!"]])
    )
    assert [labels(each.yaxis) for each in axes] == [["bad", "so"], ["it", "not", "!"]]
    assert [[bar.get_width() for bar in each.patches] for each in axes] == [
        [-3.0, 1.0],
        [2.0, 1.0, -0.5],
    ]
    (embedded,) = draw(
        standfast.show(torch.rand(2, 3), torch.ones(2, 3), tokens=[["so", "bad", "it"]])
    )
    assert [bar.get_width() for bar in embedded.patches] == [2.0, 2.0, 2.0]
    (alone,) = draw(standfast.show(torch.rand(2), torch.ones(2), tokens=[["so", "bad"]]))
    assert [bar.get_width() for bar in alone.patches] == [1.0, 1.0]


def test_series_are_lines_on_the_colour_of_their_relevance() -> None:
    x, maps = torch.randn(1, 2, 50), torch.zeros(1, 2, 50)
    maps[0, 1, 20:30] = -4.0
    (axes,) = draw(standfast.show(x, maps, features=["I", "II"]))
    assert labels(axes.yaxis) == ["I", "II"]
    first, second = axes.images
    assert not np.asarray(first.get_array()).any()
    assert np.array_equal(second.get_array()[0], maps[0, 1])
    assert second.get_clim() == (-4.0, 4.0)
    # behind the second line, a column for each step
    assert second.get_extent() == [
        -0.5,
        49.5,
        1.45,
        0.55,
    ]
    top, bottom = (line.get_ydata() for line in axes.lines)
    assert np.argmin(top) == int(x[0, 0].argmax())  # the axis points down
    assert np.ptp(top) == pytest.approx(0.8)
    assert bottom.min() > 0.55
    assert bottom.max() < 1.45
    assert labels(standfast.show(x, maps)[0].yaxis) == ["channel 0", "channel 1"]


def test_positions_without_a_value_are_hatched() -> None:
    x, maps = torch.rand(1, 1, 6, 8), torch.randn(1, 1, 6, 8)
    maps[..., :2] = torch.nan
    picture, map_ = draw(standfast.show(x, maps))
    assert not picture.collections
    (hatched,) = map_.collections
    assert hatched.hatches == ["////"]
    corners = np.concatenate([path.vertices for path in hatched.get_paths()])
    # of centres of pixels
    assert (corners[:, 0].min(), corners[:, 0].max()) == pytest.approx((0, 1.5), abs=0.01)
    maps = torch.randn(1, 2, 50)
    maps[..., 40:] = torch.nan
    (axes,) = draw(standfast.show(torch.randn(1, 2, 50), maps))
    (span,) = [patch for patch in axes.patches if patch.get_hatch()]
    assert (span.get_x(), span.get_x() + span.get_width()) == (39.5, 49.5)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (
            (torch.rand(2, 3), torch.rand(2, 4)),
            {},
            r"maps: expected the shape of the inputs, \(2, 3\), got \(2, 4\)",
        ),
        (
            (torch.rand(2, 3), {"a": torch.rand(3)}),
            {},
            r"maps\['a'\]: expected the shape of the inputs",
        ),
        ((torch.rand(2, 3), {}), {}, "maps: expected attributions, or a mapping"),
        (
            (torch.rand(2, 3), torch.rand(2, 3)),
            {"features": ["a"]},
            "features: expected 3 names, .*got 1",
        ),
        (
            (torch.rand(2, 3, 4), torch.rand(2, 3, 4)),
            {"tokens": [["a"]]},
            "tokens: expected one entry",
        ),
        (
            (torch.rand(2, 3), torch.rand(2, 3)),
            {"tokens": [["a"]] * 3},
            "tokens: expected one entry",
        ),
        (
            (torch.rand(2, 3), torch.rand(2, 3)),
            {"titles": ["a"]},
            "titles: .* each of 2 samples, got 1",
        ),
        ((torch.rand(2, 3, 4, 5, 6), torch.rand(2, 3, 4, 5, 6)), {}, "inputs: expected images"),
        (("x", torch.rand(2, 3)), {}, "inputs: expected a tensor or an array, got str"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: tuple[Any, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ArgumentError, match=words):
        standfast.show(*arguments, **options)


def test_a_result_draws_its_values_and_its_worst_sample(
    digits: Dataset, lenet: standfast.Model
) -> None:
    metric = standfast.metrics.WorstCase(standfast.LinfBall(0.1), budget=40)
    result = metric(lenet, "saliency", digits.inputs[:6])
    axes = draw(standfast.show(result))
    assert len(axes) == 5
    values = np.sort(result.value.numpy())
    assert np.allclose(axes[0].lines[0].get_ydata(), values)
    assert "worst_case: 6 of 6 samples" in axes[0].get_title()
    assert "higher is better" in axes[0].get_ylabel()
    worst = int(result.value.argmin())
    assert axes[1].get_title() == f"sample {worst}"
    assert np.allclose(axes[1].images[0].get_array(), digits.inputs[worst, 0])
    assert f"value {values[0]:.3f}" in axes[3].get_title()
    assert np.allclose(axes[4].images[1].get_array(), result.tensors()["maps"][worst, 0])
    turned = standfast.metrics.WorstCase(
        standfast.neighbourhoods.Rotation(20), search="random", budget=5
    )
    result = turned(lenet, "saliency", digits.inputs[:1])
    axes = draw(standfast.show(result))
    angle = float(result.parameters["angle [degrees]"][0])
    assert axes[3].get_title().splitlines()[1].replace("−", "-") == f"angle {angle:.3g} degrees"
    assert len(axes) == 7
    # at the positions of the clean input
    assert np.allclose(axes[5].images[0].get_array(), digits.inputs[0, 0])
    back = result.tensors()["aligned_maps"][0, 0]
    assert np.allclose(axes[6].images[1].get_array(), back.nan_to_num())
    assert axes[6].collections  # corners that not both see
    lower = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=3)(
        lenet, "saliency", digits.inputs[:3]
    )
    assert len(draw(standfast.show(lower))) == 1  # it stores no pictures


def test_intervals_of_single_samples_are_drawn(digits: Dataset, lenet: standfast.Model) -> None:
    metric = standfast.metrics.MisinterpretationProbability(
        standfast.LinfBall(0.1), threshold=0.95, preset="quick"
    )
    result = metric(lenet, "integrated_gradients:steps=2", digits.inputs[:3])
    (axes,) = draw(standfast.show(result))
    assert result.low is not None
    heights = sorted(segment[0][1] for segment in axes.collections[0].get_segments())
    finite = result.low[torch.isfinite(result.low)]
    assert heights[0] == pytest.approx(float(finite.min()))


def test_findings_draw_a_panel_for_each_metric(digits: Dataset, lenet: standfast.Model) -> None:
    one = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=3, normalise=True)
    metrics = {"one": one, "two": "aopc:steps=2,samples=1"}
    found = standfast.evaluate(
        lenet, ["saliency", "random"], digits[:8], metrics, progress=False, controls=False
    )
    axes = draw(found.plot())
    assert [a.get_title() for a in axes] == ["one", "two"]
    assert labels(axes[0].yaxis) == ["saliency", "random"]
    assert "← better" in axes[0].get_xlabel()
    assert "better →" in axes[1].get_xlabel()
    table = found.table().filter(metric="one", explainer="saliency").row(0, named=True)
    points = [line for line in axes[0].lines if line.get_marker() == "o"]
    assert points[0].get_xdata()[0] == pytest.approx(table["value"])
    # "random" is a control
    assert [point.get_markeredgecolor() for point in points] == [
        ESTIMATE,
        REFERENCE,
    ]
    assert [text.get_color() for text in axes[0].get_yticklabels()][1] == REFERENCE
    assert "grey: controls" in axes[0].figure.get_supxlabel()
    ends = [line for line in axes[0].lines if line.get_marker() == "None"]
    assert list(ends[0].get_xdata()) == pytest.approx([table["low"], table["high"]])
    with pytest.raises(
        ArgumentError, match="data, model: expected names of the results, got 'letters', None"
    ):
        found.plot(data="letters")


def test_open_ends_bounds_and_missing_values_are_drawn() -> None:
    spec = ValueSpec("a probability", "probability", "lower", "probability")
    bound = Interval(-30.0, -np.inf, -20.0, 6, 0.95, "upper", (-np.inf, -30.0))
    exact = Interval(-9.0, -10.0, None, 6, 0.95, None, (-9.0, -9.0))
    rows = tuple(
        SummaryRow("d", "m", name, "$p$", "p", spec, estimate)
        for name, estimate in (("a", bound), ("b", None), ("c", exact))
    )
    metric = ConfiguredMetric("$p$", "p", {}, "lower", False, spec, {})
    panel = MetricSummary("d", "m", metric, rows, None, MetricDecision("unable", "few explainers"))
    axes = draw(plot_panels([panel] * 5, Explainers(["a", "b", "c", "d"], ["d"])))
    assert len(axes) == 5
    assert len({a.get_position().y0 for a in axes}) == 2  # three and two, not four and one
    arrow = [line for line in axes[0].lines if line.get_marker() == "<"]
    assert [line.get_xdata()[0] for line in arrow] == [-30.0]
    assert [text.get_text() for text in axes[0].texts] == ["no value", "-"]
    assert all(np.isfinite(line.get_xdata()).all() for line in axes[0].lines)
    ticks = [text.get_text() for text in axes[0].get_xticklabels()]
    assert {"1 in 22,000", "1 in 490,000,000"} & set(ticks)  # and not their logarithms


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def hidden(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", hidden)
    with pytest.raises(MissingExtraError, match=r"a plot needs .*pip install 'standfast\[plot\]'"):
        standfast.show(torch.rand(2, 3), torch.rand(2, 3))
