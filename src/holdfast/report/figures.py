"""The report's diagrams, drawn with matplotlib into SVG elements. No pyplot; same bytes every time."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.report.results import Array, Group, larger_is_closer, threshold
from holdfast.report.summary import counted, quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours without the yellow, and three of Paul Tol's: told apart also by the colour-blind
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#332288", "#882255", "#999933")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))
MARKERS = "osD^vP*Xh"
#: begins every id of a drawing, to be replaced by something that is unique in the page
ID_MARK = "@figure@"
WIDTH = 4.3  # inches; at 320 px of screen the letters are still about 9 px tall


@dataclass(frozen=True)
class Drawing:
    """A figure for the page: an SVG element, text for those who cannot see it, and caption."""

    source: str
    alt: str
    caption: str


@contextmanager
def _figure(height: float, rows: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    import matplotlib
    from matplotlib.figure import Figure

    style = {
        "font.size": 9,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "svg.fonttype": "path",
        "svg.hashsalt": "holdfast",
    }
    with matplotlib.rc_context(style):  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, 1, squeeze=False)[:, 0]
        yield figure, list(axes)


def _source(figure: Figure) -> str:
    """The figure as an SVG element without date, producer, comments or style; its ids start with `ID_MARK`."""
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\1{ID_MARK}", svg)
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)


def _plain(name: str) -> str:
    """A name that matplotlib prints as it is: no formulas between dollars, not hidden for a leading underscore."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


def _look(explainers: list[str], name: str) -> tuple[str, Any, str]:
    place = explainers.index(name)
    marker = MARKERS[place % len(MARKERS)]
    return COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)], marker


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = 2 if max(map(len, labels), default=0) < 22 else 1
    figure.legend(handles, labels, loc="outside lower center", ncol=columns, frameon=False, handlelength=2.6)


def box_plots(groups: list[Group], explainers: list[str]) -> Drawing | None:
    """Box and whiskers of a label for each explainer, a dot per sample, triangles for censored ones (Fig. 4)."""
    entries = []
    for group in groups:
        what, mask = quantity(group), counted(group)
        if mask.any():
            censored = group.flags("censored") if what.kind == "probability" else np.zeros_like(mask)
            entries.append((group, group.column(what.column)[mask], censored[mask]))
    if not entries:
        return None
    what = quantity(entries[0][0])
    with _figure(3.0) as (figure, (axes,)):
        for place, (group, values, censored) in enumerate(entries):
            colour, _, _ = _look(explainers, group.explainer)
            if len(values) >= 3:
                axes.boxplot(
                    [values],
                    positions=[place],
                    widths=0.55,
                    showfliers=False,
                    patch_artist=True,
                    manage_ticks=False,
                    boxprops={"facecolor": colour + "33", "edgecolor": colour},
                    medianprops={"color": colour, "linewidth": 2},
                    whiskerprops={"color": colour},
                    capprops={"color": colour},
                )
            x = place + ((np.arange(len(values)) * 0.618 + 0.5) % 1 - 0.5) * 0.36
            dot: dict[str, Any] = {"color": colour, "s": 16, "alpha": 0.85, "linewidths": 0, "zorder": 3}
            axes.scatter(x[~censored], values[~censored], **dot)
            axes.scatter(x[censored], values[censored], marker="v", **{**dot, "s": 34})
        axes.set_xlim(-0.6, len(entries) - 0.4)
        names = [group.explainer for group, _, _ in entries]
        long = len(names) * max(map(len, names)) > 40
        axes.set_xticks(
            range(len(entries)), list(map(_plain, names)), rotation=35 if long else 0, ha="right" if long else "center"
        )
        axes.grid(visible=False, axis="x")
        arrow = "higher" if what.direction == "higher" else "lower"
        axes.set_ylabel(f"{what.axis}\n({arrow} is more robust)")
        source = _source(figure)
    numbers = "; ".join(f"{g.explainer}: median {np.median(v):.3g} of {len(v)} samples" for g, v, _ in entries)
    caption = (
        "Box: quartiles and median over samples; whiskers: the last sample within 1.5 box heights; a dot per sample."
    )
    if any(censored.any() for _, _, censored in entries):
        caption += " Triangles: censored, the value lies there or below, and so does a box that ends on them."
    return Drawing(source, f"Box plots, {what.title}. {numbers}.", caption)


def traces(groups: list[Group], explainers: list[str]) -> Drawing | None:
    """Best so far against evaluations: the median over samples and the band of their quartiles (Fig. 2)."""
    drawn = []
    for group in groups:
        grid, lines = _on_one_grid(group)
        if np.isfinite(lines).any():
            drawn.append((group, grid, lines))
    if not drawn:
        return None
    what = quantity(drawn[0][0])
    with _figure(3.2) as (figure, (axes,)):
        for group, grid, lines in drawn:
            colour, dash, marker = _look(explainers, group.explainer)
            seen = np.isfinite(lines).any(axis=0)
            low, middle, high = np.nanquantile(lines[:, seen], [0.25, 0.5, 0.75], axis=0)
            x = grid[seen]
            every: dict[str, Any] = {"marker": marker, "markersize": 4, "markevery": max(1, len(x) // 6)}
            axes.plot(x, middle, color=colour, linestyle=dash, label=_plain(group.explainer), **every)
            axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
        axes.set_xlabel("model evaluations per sample")
        axes.set_ylabel(f"{what.axis}, best so far")
        _legend(figure, axes)
        source = _source(figure)
    caption = (
        "Line: median over samples; band: their quartiles. A line that still moves at its end asks for more budget."
    )
    if drawn[0][0].event == "changed_class":
        caption += " Only samples whose class has changed by then count, so a line may also step the wrong way."
    if drawn[0][0].event == "misclassification":
        caption += " The margin does not depend on the explainer, so the lines may cover each other."
    names = ", ".join(group.explainer for group, _, _ in drawn)
    return Drawing(source, f"Convergence of the search, {what.title}, for {names}.", caption)


def _on_one_grid(group: Group) -> tuple[Array, Array]:
    """The samples' traces as steps on all their evaluation counts: `(T,)`, and `(N, T)` with NaN before the first."""
    name = "trace_margin" if group.event == "misclassification" else "trace_similarity"
    if not {"trace_evaluations", name} <= set(group.lines):
        return np.empty(0), np.empty((0, 0))
    at, values = group.lines["trace_evaluations"], [v.copy() for v in group.lines[name]]
    if group.event == "changed_class":
        for line, margin in zip(values, group.lines.get("trace_margin", []), strict=False):
            line[~(margin >= 0)] = np.nan
    values = [v if ok else np.full_like(v, np.nan) for v, ok in zip(values, group.ok, strict=True)]
    grid = np.unique(np.concatenate([np.empty(0), *at]))
    lines = np.full((len(at), len(grid)), np.nan)
    for row, (x, y) in enumerate(zip(at, values, strict=True)):
        last = np.searchsorted(x, grid, side="right") - 1
        lines[row, last >= 0] = y[last[last >= 0]]
    return grid, lines


def curves(groups: list[Group], explainers: list[str], sample: int) -> Drawing | None:
    """ln P against the threshold at one sample: one run's levels, with 1.96 standard errors."""
    example = groups[0]
    stages = [0] if example.event == "misclassification" else [0, 1] if example.event == "changed_class" else [1]
    parts: dict[int, list[tuple[Group, Array, Array, Array]]] = {stage: [] for stage in stages}
    for group in groups:
        found = group.shown.get(sample, {})
        for stage in stages if "level_stage" in found else []:
            here = _column(group, sample) == stage
            if here.any():
                x = _threshold_as_read(group, stage, found["level_threshold"][here])
                parts[stage].append((group, x, found["level_log_probability"][here], found["level_std_error"][here]))
    stages = [stage for stage in stages if parts[stage]]
    if not stages:
        return None
    names = list(dict.fromkeys(group.explainer for stage in stages for group, *_ in parts[stage]))
    with _figure(0.9 + 2.3 * len(stages), len(stages)) as (figure, panels):
        for axes, stage in zip(panels, stages, strict=True):
            for group, x, y, error in parts[stage]:
                colour, dash, marker = _look(explainers, group.explainer)
                axes.plot(
                    x, y, color=colour, linestyle=dash, marker=marker, markersize=4, label=_plain(group.explainer)
                )
                band = 1.96 * np.nan_to_num(error)
                axes.fill_between(x, y - band, np.minimum(y + band, 0.0), color=colour, alpha=0.13, linewidth=0)
            limit = 0.0 if stage == 0 and example.event != "changed_explanation" else threshold(example.options)
            if limit is not None:
                axes.axvline(limit, color="#444444", linewidth=1, linestyle=":")
            axes.set_xlabel(_axis(example, stage))
            axes.set_ylabel("ln P")
        whole = next((axes for axes in panels if len(axes.get_legend_handles_labels()[1]) == len(names)), panels[0])
        _legend(figure, whole)
        source = _source(figure)
    caption = f"Sample {sample}. Dotted: the threshold of the event. Band: ±1.96 standard errors."
    without = [g.explainer for g in groups if "level_stage" in g.shown.get(sample, {}) and g.explainer not in names]
    if without:
        caption += f" No levels to draw: {', '.join(without)}."
    if stages[0] == 0:
        caption += " The margin does not depend on the explainer, so these curves may cover each other."
    alt = f"ln P against the threshold, sample {sample}, for {', '.join(names)}."
    return Drawing(source, alt, caption)


def _column(group: Group, sample: int) -> Array:
    """Which score column each level belongs to, NaN for padding.

    A level at exactly 0 ends a column; it is stored under the number of the next one, which is where the run goes on.
    """
    stage, t = group.shown[sample]["level_stage"].copy(), group.shown[sample]["level_threshold"]
    stage[(t == 0) & (stage >= 1)] -= 1
    end = int(np.isfinite(stage).sum()) - 1
    if end >= 0 and t[end] == 0 and not group.flags("censored")[group.samples.index(sample)]:
        stage[end] = 0.0 if group.event == "misclassification" else 1.0
    return stage


def _threshold_as_read(group: Group, stage: int, t: Array) -> Array:
    """A level in the units that it is read in: the margin, or the similarity."""
    limit = threshold(group.options)
    if group.event == "misclassification" or (group.event == "changed_class" and stage == 0) or limit is None:
        return t
    towards = 1.0 if (group.event == "changed_class") == larger_is_closer(group.options) else -1.0
    return limit + towards * t


def _axis(group: Group, stage: int) -> str:
    if group.event == "misclassification" or (group.event == "changed_class" and stage == 0):
        return "margin J at least"
    below = (group.event == "changed_explanation") == larger_is_closer(group.options)
    return f"similarity ({group.options.get('similarity')}) {'below' if below else 'above'}"
