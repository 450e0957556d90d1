"""Medians with their intervals: a panel for each metric, a row in it for each explainer."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from standfast.report.plots.canvas import ESTIMATE, REFERENCE, escape_text, import_pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: at most so many panels in a row
_COLUMNS = 4
_ARROWS = {"higher": "better →", "lower": "← better"}


@dataclass(frozen=True)
class Bar:
    """One explainer or control in a panel; `value` is None where it has none. None or infinite ends are open."""

    name: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    bound: str | None = None
    mark: str | None = None
    control: bool = False


@dataclass(frozen=True)
class Panel:
    """One metric: its label, what its values are, which are better, and the explainers from the top."""

    label: str
    axis: str
    direction: str | None
    bars: tuple[Bar, ...]


def plot_panels(panels: Sequence[Panel], rows: Sequence[str] = ()) -> list[Axes]:
    """Draw the panels, at most four in a row; with `rows`, which name them, one row for each of these.

    A filled point has the best mean rank, or is not shown to be worse; where nothing is decided none is
    filled. An arrow is a median that is only a bound. Controls are grey; "-" is a metric that does not evaluate them.
    """
    plt = import_pyplot()
    lines = len(rows) or -(-len(panels) // _COLUMNS)
    columns = -(-len(panels) // lines)
    names = max((len(panel.bars) for panel in panels), default=1)
    size = (min(3.2 * columns + 1.2, 16), (0.34 * names + 1.5) * lines)
    figure, grid = plt.subplots(lines, columns, figsize=size, squeeze=False, sharey=True, layout="constrained")
    axes = list(grid.flat)
    for place, (panel, own) in enumerate(zip(panels, axes, strict=False)):
        _draw_panel(own, panel)
        if rows and place % columns == 0:
            own.set_ylabel(escape_text(rows[place // columns]))
    for own in axes[len(panels) :]:
        own.remove()
    filled = "filled: best mean rank, or not shown to be worse; none filled: not decided"
    grey = "; grey: controls" if any(bar.control for panel in panels for bar in panel.bars) else ""
    figure.supxlabel(f"median over samples and its interval; {filled}{grey}", fontsize=8)
    return axes[: len(panels)]


def _draw_panel(axes: Any, panel: Panel) -> None:
    known = [end for bar in panel.bars for end in (bar.value, bar.low, bar.high) if end is not None]
    finite = [end for end in known if math.isfinite(end)]
    least, most = (min(finite), max(finite)) if finite else (0.0, 1.0)
    margin = 0.08 * (most - least) or 0.5
    for place, bar in enumerate(panel.bars):
        if bar.value is None:
            words = "-" if bar.control else "no value"
            axes.annotate(words, (0.5, place), xycoords=("axes fraction", "data"), ha="center", va="center", c="0.5")
            continue
        low, high = (
            end if end is not None and math.isfinite(end) else edge
            for end, edge in ((bar.low, least - margin), (bar.high, most + margin))
        )
        if bar.low is not None or bar.high is not None:
            axes.plot([low, high], [place, place], color="0.45", lw=1.6, solid_capstyle="butt", zorder=1)
        shape = {"upper": "<", "lower": ">"}.get(bar.bound or "", "o")
        colour = REFERENCE if bar.control else ESTIMATE
        axes.plot(bar.value, place, shape, ms=7, mec=colour, mew=1.5, mfc=colour if bar.mark else "white", zorder=2)
    axes.set_xlim(least - 1.5 * margin, most + 1.5 * margin)
    axes.set_ylim(len(panel.bars) - 0.5, -0.5)
    axes.set_yticks(range(len(panel.bars)), [escape_text(bar.name) for bar in panel.bars])
    for bar, text in zip(panel.bars, axes.get_yticklabels(), strict=False):  # none beside the first panel of a row
        if bar.control:
            text.set_color(REFERENCE)
    axes.set_title(escape_text(textwrap.fill(panel.label, 30)), fontsize=10)
    axes.set_xlabel(escape_text(panel.axis) + (f"\n{_ARROWS[panel.direction]}" if panel.direction else ""), fontsize=9)
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
