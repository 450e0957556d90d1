"""Medians with their intervals: a panel for each metric, a row in it for each explainer."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from standfast.errors import check
from standfast.report.charts.base import find_room
from standfast.report.plots.canvas import (
    ESTIMATE,
    REFERENCE,
    escape_text,
    import_pyplot,
    label_ticks,
)
from standfast.results import StoredResults
from standfast.results.controls import Explainers
from standfast.results.summary import MetricSummary, SummaryRow
from standfast.statistics.paired import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: at most so many panels in a row
_COLUMNS = 4
_ARROWS = {"higher": "better →", "lower": "← better"}


def plot_results(
    results: StoredResults, data: str | None = None, model: str | None = None
) -> list[Axes]:
    """Draw a panel for each metric, in rows of data sets and models: `Results.plot`."""
    pairs = [
        (of_data, of_model)
        for of_data, of_model in results.pairs
        if data in (None, of_data) and model in (None, of_model)
    ]
    check(bool(pairs), "data, model", "names of the results", f"{data!r}, {model!r}")
    panels = [panel for pair in pairs for panel in results.summary.select(*pair)]
    names = [results.summary.name_pair(*pair) for pair in pairs]
    return plot_panels(panels, results.explainers, names)


def plot_panels(
    panels: Sequence[MetricSummary], explainers: Explainers, rows: Sequence[str] = ("",)
) -> list[Axes]:
    """Draw the panels, at most four in a row; with several `rows`, which name them, one row for each of these.

    A filled point has the best mean rank, or is not shown to be worse; where nothing is decided none is
    filled. An arrow is a median that is only a bound. Controls are grey; "-" is a metric that does not evaluate them.
    """
    plt = import_pyplot()
    if len(rows) > 1:
        lines = len(rows)
    else:
        lines = -(-len(panels) // _COLUMNS)
    columns = -(-len(panels) // lines)
    width = min(3.2 * columns + 1.2, 16)
    height = (0.34 * len(explainers) + 1.5) * lines
    size = (width, height)
    figure, grid = plt.subplots(
        lines, columns, figsize=size, squeeze=False, sharey=True, layout="constrained"
    )
    axes = list(grid.flat)
    for index, panel in enumerate(panels):
        _draw_panel(axes[index], panel, explainers)
        if len(rows) > 1 and index % columns == 0:
            axes[index].set_ylabel(escape_text(rows[index // columns]))
    for empty_axes in axes[len(panels) :]:
        empty_axes.remove()
    filled = "filled: best mean rank, or not shown to be worse; none filled: not decided"
    grey = "; grey: controls" if explainers.controls else ""
    figure.supxlabel(f"median over samples and its interval; {filled}{grey}", fontsize=8)
    return axes[: len(panels)]


def _draw_panel(axes: Any, panel: MetricSummary, explainers: Explainers) -> None:
    estimates = {row.explainer: row.estimate for row in panel.rows if row.value is not None}
    ends_of_all: list[float | None] = []
    for estimate in estimates.values():
        ends_of_all += _list_ends(estimate)
    left, right = find_room(ends_of_all)
    for line, name in enumerate(explainers):
        row = panel.find_row(name)
        estimate = estimates.get(name)
        is_control = name in explainers.controls
        if row is None or estimate is None:
            mark = "-" if is_control else "no value"
            _write_in_row(axes, line, mark)
            continue
        if estimate.low is not None or estimate.high is not None:
            ends = [_cut_end(estimate.low, left), _cut_end(estimate.high, right)]
            axes.plot(ends, [line, line], color="0.45", lw=1.6, solid_capstyle="butt", zorder=1)
        colour = REFERENCE if is_control else ESTIMATE
        _draw_point(axes, line, row, estimate, colour)
    axes.set_xlim(left, right)
    _label_panel(axes, panel, explainers)


def _draw_point(axes: Any, line: int, row: SummaryRow, estimate: Interval, colour: str) -> None:
    """A point, filled where the explainer is first; an arrow where it is only a bound."""
    shapes = {"upper": "<", "lower": ">"}
    shape = shapes.get(estimate.bound or "", "o")
    face = colour if row.standing in ("best", "tied") else "white"
    axes.plot(estimate.value, line, shape, ms=7, mec=colour, mew=1.5, mfc=face, zorder=2)


def _write_in_row(axes: Any, line: int, text: str) -> None:
    """A word in the middle of a row that has no point."""
    middle = (0.5, line)
    coordinates = ("axes fraction", "data")
    axes.annotate(text, middle, xycoords=coordinates, ha="center", va="center", c="0.5")


def _list_ends(estimate: Interval | None) -> tuple[float | None, ...]:
    """What must be in view."""
    if estimate is None:
        return ()
    return (estimate.value, estimate.low, estimate.high)


def _cut_end(end: float | None, edge: float) -> float:
    """The end of an interval; where it is open, the edge of the panel."""
    if end is not None and math.isfinite(end):
        return end
    return edge


def _label_panel(axes: Any, panel: MetricSummary, explainers: Explainers) -> None:
    axes.set_ylim(len(explainers) - 0.5, -0.5)
    names = [escape_text(name) for name in explainers]
    axes.set_yticks(range(len(explainers)), names)
    # none beside the first panel of a row
    for name, text in zip(explainers, axes.get_yticklabels(), strict=False):
        if name in explainers.controls:
            text.set_color(REFERENCE)
    spec = panel.metric.spec
    title = textwrap.fill(panel.label, 30)
    axes.set_title(escape_text(title), fontsize=10)
    title = escape_text(spec.axis)
    if spec.direction:
        title += f"\n{_ARROWS[spec.direction]}"
    axes.set_xlabel(title, fontsize=9)
    label_ticks(axes.xaxis, spec)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
