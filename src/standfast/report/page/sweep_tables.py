"""The charts of a group over numbers: estimates of the value against an option."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl

from standfast.report.charts import (
    Axis,
    Chart,
    Line,
    Style,
    Words,
    choose_style,
    choose_styles_of_values,
    draw_lines,
    is_logarithmic,
)
from standfast.report.page.options import Group, Member
from standfast.report.presentation.drawing import make_axis
from standfast.results import ValueSpec
from standfast.results.summary import estimate
from standfast.statistics.paired import Interval

#: charts of one group over two options, for one data set and model
PANELS = 6

#: rows by the name of a configuration and the name of a line or panel
Frames = Mapping[tuple[str, str], pl.DataFrame]


class SweepTable:
    """The values of a group over numbers, for each of its configurations and each name.

    Args:
        group: what is compared.
        spec: of all its configurations.
        looks: the names of lines or panels, explainers as a rule, and the explainer whose colour each has.
        frames: the rows of each configuration and name.
        explainers: all of the study's, for the colours.
    """

    def __init__(
        self, group: Group, spec: ValueSpec, looks: Mapping[str, str], frames: Frames, explainers: Sequence[str]
    ) -> None:
        self.group, self.spec, self.looks, self.explainers = group, spec, looks, explainers
        self.values = {
            key: rows.select(
                "sample",
                "repeat",
                pl.lit("ok").alias("status"),
                pl.Series("value", spec.values(rows)),
                pl.Series("bound", spec.bounds(rows)),
            )
            for key, frame in frames.items()
            if len(rows := spec.select_valid(frame))
        }
        self.names = [name for name in looks if any((member.name, name) in self.values for member in group.members)]
        self.lines = list(dict.fromkeys(member.across or "" for member in group.members))

    def charts(self) -> list[Chart]:
        """The value against the option."""
        title = self.spec.title
        heading = title if self.group.across else f"{title}, by {self.group.option}"
        words = Words(title, "", "sweep", heading)
        return self._panels(self.values, words, make_axis(self.spec), self.group.references)

    def differences(self) -> list[Chart]:
        """Each sample's difference to its value at the first reference, against the option (SAFARI, Fig. 3)."""
        if not self.group.references:
            return []
        text, found = self.group.references[0].text, {}
        references = [reference for reference in self.group.references if reference.text == text]
        for member, name in product(self.group.members, self.names):
            fits = [r for r in references if r.x in (None, member.x) and r.across in (None, member.across)]
            rows = self.values.get((member.name, name))
            other = self.values.get((fits[0].name, name)) if fits else None
            if rows is not None and other is not None:
                # the difference to a censored value is bounded on neither side
                other = other.filter(~pl.col("bound")).select("sample", "repeat", other="value")
                rows = rows.join(other, on=["sample", "repeat"], maintain_order="left")
                found[member.name, name] = rows.with_columns(value=pl.col("value") - pl.col("other"))
        caption = (
            f"Of each sample's difference to its value at the reference ({text}). Samples that only one of them has, "
            "or whose reference is censored, are left out. Dotted: no difference."
        )
        title = f"Difference to the reference ({text})"
        axis = Axis(f"difference of {self.spec.axis}", side=self.spec.censored_side, rules=(0.0,))
        return self._panels(found, Words(title, caption, "difference", title), axis, ())

    def _panels(self, values: Frames, words: Words, axis: Axis, references: Sequence[Member]) -> list[Chart]:
        """One chart; with a second option, one for each name or for each of its values, whichever are fewer."""
        across, option = self.group.across, self.group.option
        by_name = across is not None and len(self.names) <= len(self.lines)
        line = "Line: median over samples; band: its interval (95%, less with few samples)."
        caption = " ".join(filter(None, [line, words.caption, self._uneven(), self._absent()]))
        charts: list[Chart] = []
        for panel in self.names if by_name else self.lines:
            names, lines = ([panel], self.lines) if by_name else (self.names, [panel])
            drawn = self._lines(values, names, lines, by_name, references)
            if not any(len(line.x) > 1 for line in drawn if not line.reference):
                continue
            places = sorted({float(x) for line in drawn for x in line.x})
            panel = panel if by_name or not panel else f"{across}: {panel}"
            about = Words(
                f"{words.title}, {panel}, against {option}" if panel else f"{words.title}, against {option}",
                caption,
                "-".join(filter(None, [words.name, option, panel])),
                f"{words.heading}: {panel}" if panel else words.heading,
            )
            along = Axis(option, ticks=places, log=is_logarithmic(places))
            legend = (across or "") if by_name else ""
            chart = draw_lines(drawn, self.explainers, along, axis, about, legend)
            charts += [] if chart is None else [chart]
        if len(charts) > PANELS:
            more = f" {len(charts) - PANELS} more of these charts are left out."
            charts = [*charts[: PANELS - 1], replace(charts[PANELS - 1], caption=charts[PANELS - 1].caption + more)]
        return charts

    def _lines(
        self, values: Frames, names: Sequence[str], lines: Sequence[str], by_name: bool, references: Sequence[Member]
    ) -> list[Line]:
        """A line for each name, or in a panel of one name for each value of the second option; and for references."""
        spec = ValueSpec("", "", None, censored="bound", censored_side=self.spec.censored_side)
        found: dict[tuple[str, str], dict[float | None, Interval]] = {}
        for name, member in product(names, (*self.group.members, *references)):
            line, text = member.across or "", member.text if member in references else ""
            rows = values.get((member.name, name))
            middle = None if rows is None else estimate(spec, rows)
            if middle is not None and math.isfinite(middle.value) and (line in lines or (text and not line)):
                found.setdefault((line if by_name else name, text), {}).setdefault(member.x, middle)
        places = [x for at in found.values() for x in at if x is not None]
        if not places:
            return []
        ends = min(places), max(places)
        styles: dict[str, Style] = {}
        if by_name:
            styles = choose_styles_of_values(self.explainers, self.looks[names[0]], lines)
        elif list(self.looks) != list(self.looks.values()):
            styles = {name: choose_style(self.explainers, self.looks[name]) for name in names}
        return [self._make_line(*key, at, ends, styles.get(key[0])) for key, at in found.items()]

    def _make_line(
        self, name: str, text: str, at: Mapping[float | None, Interval], ends: tuple[float, float], style: Style | None
    ) -> Line:
        """The line of estimates at the values of the option; a reference without the option lies between both ends."""
        x = sorted(place for place in at if place is not None)
        middles = [at[place] for place in x] or 2 * [at[None]]
        value, low, high = (
            np.array([math.nan if number is None else number for number in numbers])
            for numbers in zip(*((each.value, each.low, each.high) for each in middles), strict=True)
        )
        bounds = np.array([each.bound is not None for each in middles])
        return Line(name, np.array(x or ends), value, low, high, bounds, style, text)

    def _uneven(self) -> str:
        """A warning where medians along a line are not of the same samples."""
        for name in self.names:
            frames = [self.values[m.name, name] for m in self.group.members if (m.name, name) in self.values]
            if len({tuple(frame.select("repeat", "sample").sort("repeat", "sample").rows()) for frame in frames}) > 1:
                return "Not the same samples at all values, so compare with care."
        return ""

    def _absent(self) -> str:
        present = {member for member, _ in self.values}
        absent = [name for name in self.group.names if name not in present]
        return f"Without results here: {', '.join(absent)}." if absent else ""
