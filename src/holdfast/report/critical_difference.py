"""Critical-difference diagrams (Demšar 2006): mean ranks on an axis, a bar over those that do not differ significantly.

Drawn by scikit-posthocs, which keeps labels apart and stacks the bars; the groups are ours (`Comparison.cliques`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import check
from holdfast.statistics.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 5.0  # inches, of the axis; names extend beyond it
LONGEST = 40  # letters of a name; the rest is cut off, for the drawing would shrink with it


def critical_difference_diagram(comparison: Comparison, mark: str = "cd-") -> str:
    """The diagram as an SVG element to be put into a page, the same bytes every time; its ids start with `mark`.

    Raises:
        ArgumentError: no sample was compared, so that there are no mean ranks.
    """
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with _drawn(comparison) as figure:
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )
    svg = re.sub(r'(\bid="|url\(#|href="#)', lambda found: found[0] + mark, svg)
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)


def save_critical_difference(comparison: Comparison, path: str | Path) -> Path:
    """Write the diagram to a file, as its suffix says: `.pdf`, `.svg` or `.png`."""
    path = Path(path)
    date = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix.lower(), {})
    with _drawn(comparison) as figure:
        figure.savefig(path, transparent=True, metadata=date)
    return path


def describe(comparison: Comparison) -> str:
    """The diagram in words, for those who cannot see it."""
    names, order = comparison.names, comparison.order
    ranks = ", ".join(f"{names[place]} {comparison.mean_ranks[place]:.2f}" for place in order)
    bars = "; ".join(", ".join(names[place] for place in group) for group in comparison.cliques if len(group) > 1)
    return f"Mean ranks, 1 is best: {ranks}. Not significantly different: {bars or 'none'}."


@contextmanager
def _drawn(comparison: Comparison) -> Iterator[Figure]:
    check(comparison.count > 0, "comparison", "one of at least one sample", "none")
    import matplotlib
    import pandas
    from matplotlib.figure import Figure
    from scikit_posthocs import critical_difference_diagram as draw

    names = [_label(name) for name in comparison.names]
    k, order = len(names), comparison.order
    # scikit-posthocs looks for all groups of mutually similar ones, contiguous or not: let it find just ours
    alike = pandas.DataFrame(0.0, index=range(k), columns=range(k))
    for group in comparison.cliques:
        alike.loc[list(group), list(group)] = 1.0
    style = {
        "font.size": 9,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "svg.fonttype": "path",
        "svg.hashsalt": "holdfast",
        "savefig.bbox": "tight",
        "savefig.pad_inches": 0.05,
    }
    with matplotlib.rc_context(style):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH, 0.8 + 0.22 * (k // 2 + sum(len(group) > 1 for group in comparison.cliques))))
        axes = figure.add_axes((0.0, 0.0, 1.0, 0.9))
        # by place and not by name, so that two names that are cut to the same letters stay apart
        drawn = draw(
            {place: comparison.mean_ranks[place] for place in order},
            alike,
            ax=axes,
            elbow_props={"color": "#555555", "linewidth": 1.0},
            marker_props={"color": "#000000", "s": 18},
        )
        # the axis shows all ranks, not only those between the best and the worst, and the labels stand beside it
        margin = 0.02 * (k - 1)
        axes.set_xlim(1, k)
        axes.set_xticks(range(1, k + 1))
        half = (k + 1) // 2
        # as they are drawn: the better half downwards on the left, then the worst first on the right
        for at, place in enumerate([*order[:half], *order[: half - 1 : -1]]):
            side = 1 - margin if at < half else k + margin
            x = drawn["elbows"][at].get_xdata()
            drawn["elbows"][at].set_xdata([side, *x[1:]])
            drawn["elbows"][at].set_clip_on(False)
            drawn["markers"][at].set_clip_on(False)
            drawn["labels"][at].set_x(side - margin / 2 if at < half else side + margin / 2)
            drawn["labels"][at].set_color("#000000")
            number = f"{comparison.mean_ranks[place]:.2f}"
            drawn["labels"][at].set_text(f"{names[place]} ({number})" if at < half else f"({number}) {names[place]}")
        yield figure


def _label(name: str) -> str:
    """A name that is not too long and that matplotlib prints as it is: no formulas between dollars."""
    return (name if len(name) <= LONGEST else name[: LONGEST - 1] + "…").replace("$", r"\$")
