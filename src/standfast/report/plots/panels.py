"""Medians with their intervals: a panel for each metric, a row in it for each explainer."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from standfast.errors import check
from standfast.report.charts.base import find_room
from standfast.report.plots.canvas import ESTIMATE, REFERENCE, escape_text, import_pyplot, label_ticks
from standfast.results import StoredResults
from standfast.results.controls import Explainers
from standfast.results.summary import MetricSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: at most so many panels in a row
_COLUMNS = 4
_ARROWS = {"higher": "better →", "lower": "← better"}


def plot_results(results: StoredResults, data: str | None = None, model: str | None = None) -> list[Axes]:
    """Draw a panel for each metric, in rows of data sets and models: `Results.plot`."""
    pairs = [pair for pair in results.pairs if data in (None, pair[0]) and model in (None, pair[1])]
    check(bool(pairs), "data, model", "names of the results", f"{data!r}, {model!r}")
    panels = [each for pair in pairs for each in results.summary.select(*pair)]
    return plot_panels(panels, results.explainers, [results.summary.name_pair(*pair) for pair in pairs])


def plot_panels(panels: Sequence[MetricSummary], explainers: Explainers, rows: Sequence[str] = ("",)) -> list[Axes]:
    """Draw the panels, at most four in a row; with several `rows`, which name them, one row for each of these.

    A filled point has the best mean rank, or is not shown to be worse; where nothing is decided none is
    filled. An arrow is a median that is only a bound. Controls are grey; "-" is a metric that does not evaluate them.
    """
    plt = import_pyplot()
    lines = len(rows) if len(rows) > 1 else -(-len(panels) // _COLUMNS)
    columns = -(-len(panels) // lines)
    size = (min(3.2 * columns + 1.2, 16), (0.34 * len(explainers) + 1.5) * lines)
    figure, grid = plt.subplots(lines, columns, figsize=size, squeeze=False, sharey=True, layout="constrained")
    axes = list(grid.flat)
    for place, (panel, own) in enumerate(zip(panels, axes, strict=False)):
        _draw_panel(own, panel, explainers)
        if len(rows) > 1 and place % columns == 0:
            own.set_ylabel(escape_text(rows[place // columns]))
    for own in axes[len(panels) :]:
        own.remove()
    filled = "filled: best mean rank, or not shown to be worse; none filled: not decided"
    grey = "; grey: controls" if explainers.controls else ""
    figure.supxlabel(f"median over samples and its interval; {filled}{grey}", fontsize=8)
    return axes[: len(panels)]


def _draw_panel(axes: Any, panel: MetricSummary, explainers: Explainers) -> None:
    estimates = {row.explainer: row.estimate for row in panel.rows if row.value is not None}
    room = find_room(end for each in estimates.values() if each for end in (each.value, each.low, each.high))
    for place, name in enumerate(explainers):
        row, control = panel.find_row(name), name in explainers.controls
        estimate = estimates.get(name)
        if row is None or estimate is None:
            words = "-" if control else "no value"
            axes.annotate(words, (0.5, place), xycoords=("axes fraction", "data"), ha="center", va="center", c="0.5")
            continue
        low, high = (
            end if end is not None and math.isfinite(end) else edge
            for end, edge in zip((estimate.low, estimate.high), room, strict=True)
        )
        if estimate.low is not None or estimate.high is not None:
            axes.plot([low, high], [place, place], color="0.45", lw=1.6, solid_capstyle="butt", zorder=1)
        shape = {"upper": "<", "lower": ">"}.get(estimate.bound or "", "o")
        colour = REFERENCE if control else ESTIMATE
        face = colour if row.standing in ("best", "tied") else "white"
        axes.plot(estimate.value, place, shape, ms=7, mec=colour, mew=1.5, mfc=face, zorder=2)
    axes.set_xlim(*room)
    axes.set_ylim(len(explainers) - 0.5, -0.5)
    axes.set_yticks(range(len(explainers)), [escape_text(name) for name in explainers])
    for name, text in zip(explainers, axes.get_yticklabels(), strict=False):  # none beside the first panel of a row
        if name in explainers.controls:
            text.set_color(REFERENCE)
    spec = panel.metric.spec
    axes.set_title(escape_text(textwrap.fill(panel.label, 30)), fontsize=10)
    axes.set_xlabel(escape_text(spec.axis) + (f"\n{_ARROWS[spec.direction]}" if spec.direction else ""), fontsize=9)
    label_ticks(axes.xaxis, spec)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
