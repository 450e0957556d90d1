"""Figures across configurations: what changes with an option, and what changes with the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from holdfast.charts import Chart, Gallery, Strip, distribution
from holdfast.metrics.base import metrics
from holdfast.presentation import Reading
from holdfast.report.options import Group, Variant, dotted, groups
from holdfast.report.sweep_tables import Rows, SweepTable
from holdfast.report.views import Contents, Label

#: figures of "Options compared" and of "Models compared" in the page and as files
MOST, MOST_MODELS = 40, 24
#: boxes beneath each other in one chart
ROWS = 36


@dataclass
class Part:
    """What there is of a comparison for one data set and model."""

    data: str
    model: str
    charts: list[Chart] = field(default_factory=list)
    galleries: list[Gallery] = field(default_factory=list)
    bounds: tuple[float, float] = (float("nan"), float("nan"))


@dataclass
class Section:
    """A comparison: what differs and what is the same, in words, and its figures."""

    title: str
    text: str
    same: str = ""
    parts: list[Part] = field(default_factory=list)


@dataclass(frozen=True)
class Compared:
    """Sections with something to draw, and how many figures are left out since there would be too many."""

    sections: list[Section]
    left_out: int = 0


def options_compared(contents: Contents) -> Compared:
    """Configured metrics that differ in one or two options, and explainers of which a number differs."""
    labels = contents.labels.values()
    configured = [Variant(label.name, label.metric, _options(label), _unit(label.reading)) for label in labels]
    kept = _Kept(MOST)
    for group in groups(configured):
        section = Section(group.title, _differs(group, "configured metrics"), "; ".join(group.same))
        for data, model in contents.pairs:
            kept.add(section, _of_labels(contents, group, data, model))
    for group in groups(_explainers(contents)):
        if group.numeric:
            section = Section(f"explainer {group.title}", _differs(group, "explainers"), "; ".join(group.same))
            for data, model in contents.pairs:
                kept.add(section, _of_explainers(contents, group, data, model))
    return Compared(kept.sections, kept.left_out)


def models_compared(contents: Contents) -> Compared:
    """For each data set that several models met, and each label: the explainers' values by model."""
    kept = _Kept(MOST_MODELS)
    for data in contents.data:
        models = [model for where, model in contents.pairs if where == data]
        if len(models) < 2:
            continue
        text = f"The same data, explainers and options; only the model differs: {', '.join(models)}."
        section = Section(data if len(contents.data) > 1 else "", text)
        part = Part(data, "")
        for label in contents.labels.values():
            frames = {model: contents.frame(data, model, label.name) for model in models}
            rows = lambda model, name, frames=frames: _of(frames[model], name)  # noqa: E731
            entries = [(model, model) for model in models]
            for chart in _boxes(rows, entries, contents.explainers, label.reading):
                heading = f"{label.reading.title} ({label.name}), by model"
                caption = f"{chart.caption} Each model on the samples that it was evaluated on."
                alt = chart.alt.replace("Distribution over samples", f"Values of {label.name} by model", 1)
                part.charts.append(
                    replace(chart, name=f"models-{label.name}", heading=heading, caption=caption, alt=alt)
                )
        kept.add(section, part)
    return Compared(kept.sections, kept.left_out)


class _Kept:
    """Sections with their figures, up to a number of these."""

    def __init__(self, most: int) -> None:
        self.room, self.left_out = most, 0
        self.sections: list[Section] = []

    def add(self, section: Section, part: Part) -> None:
        """A part of a section; what there is no room for is counted."""
        count = len(part.charts) + len(part.galleries)
        part.charts = part.charts[: self.room]
        self.room -= len(part.charts)
        part.galleries = part.galleries[: self.room]
        self.room -= len(part.galleries)
        self.left_out += count - len(part.charts) - len(part.galleries)
        if part.charts or part.galleries:
            self.sections += [] if section.parts else [section]
            section.parts.append(part)


def _options(label: Label) -> dict[str, Any]:
    known = label.metric in metrics
    return dotted(label.options, metrics[label.metric].idle(label.options) if known else ())


def _unit(reading: Reading) -> tuple[Any, ...]:
    """What two readings must have in common to stand on one axis and be read the same way."""
    return reading.column, reading.axis, reading.direction, reading.good, reading.censored, reading.censored_side


def _explainers(contents: Contents) -> list[Variant]:
    entries = contents.manifest.get("explainers") or {}
    variants = []
    for name in contents.explainers:
        stored = entries.get(name)
        if isinstance(stored, Mapping) and isinstance(stored.get("name"), str):
            options = {key: value for key, value in stored.items() if key != "name"}
            variants.append(Variant(name, stored["name"], dotted(options)))
    return variants


def _differs(group: Group, what: str) -> str:
    """What differs, in words."""
    values = ", ".join(dict.fromkeys(member.text for member in group.members))
    text = f"These {what} differ in {group.option} ({values})"
    if group.across is not None:
        lines = dict.fromkeys(member.across for member in group.members if member.across is not None)
        text += f" and in {group.across} ({', '.join(lines)})"
    if group.references:
        others = dict.fromkeys(member.text for member in group.references)
        text += f", and in nothing else. Drawn with them: {'; '.join(others)}."
        return text
    return f"{text}, and in nothing else."


def _of_labels(contents: Contents, group: Group, data: str, model: str) -> Part:
    """Charts of a comparison of labels, or whatever the metric draws of it."""
    part = Part(data, model)
    frames = {name: contents.frame(data, model, name) for name in group.names}
    rows = lambda label, name: _of(frames[label], name)  # noqa: E731
    reading = _common([contents.labels[member.name].reading for member in group.members])
    if group.numeric:
        own = {name: name for name in contents.explainers}
        table = SweepTable(group, reading, own, rows, contents.explainers)
        part.charts = [*table.charts(), *table.differences()]
    elif group.comparable:
        entries = [(member.name, member.text) for member in group.members]
        for chart in _boxes(rows, entries, contents.explainers, reading):
            name, heading = f"boxes-{group.option}", f"{reading.title}, by {group.option}"
            caption = " ".join([chart.caption, *_missing(group, frames)])
            alt = chart.alt.replace("Distribution over samples", f"Values by {group.option}", 1)
            part.charts.append(replace(chart, name=name, heading=heading, caption=caption, alt=alt))
    presentation = contents.labels[group.members[0].name].presentation
    views = [contents.view(data, model, member.name) for member in group.members if len(frames[member.name])]
    if not group.numeric and len(views) > 1:
        part.bounds = views[0].bounds
        for figure in presentation.compared(views, group.option):
            if isinstance(figure, Gallery):
                part.galleries.append(figure)
            else:
                part.charts.append(figure)
    return part


def _of_explainers(contents: Contents, group: Group, data: str, model: str) -> Part:
    """Charts of a comparison of explainers of one kind: one for each label."""
    part = Part(data, model)
    for label in contents.labels.values():
        frame = contents.frame(data, model, label.name)
        rows = lambda explainer, _, frame=frame: _of(frame, explainer)  # noqa: E731
        one = {group.kind: group.members[0].name}
        for chart in SweepTable(group, label.reading, one, rows, contents.explainers).charts():
            heading = f"{label.reading.title} ({label.name})"
            part.charts.append(replace(chart, heading=heading, name=f"{chart.name}-{label.name}"))
    return part


def _common(readings: Sequence[Reading]) -> Reading:
    """The reading of all, by the name of the axis where the option changes what is measured in words."""
    first = readings[0]
    return first if len({reading.title for reading in readings}) == 1 else replace(first, title=first.axis)


def _of(frame: pl.DataFrame, explainer: str) -> pl.DataFrame:
    return frame.filter(pl.col("explainer") == explainer) if len(frame) else frame


def _missing(group: Group, frames: Mapping[str, pl.DataFrame]) -> list[str]:
    absent = [member.name for member in group.members if not len(frames[member.name])]
    return [f"Without results here: {', '.join(absent)}."] if absent else []


def _boxes(rows: Rows, entries: Sequence[tuple[str, str]], explainers: Sequence[str], reading: Reading) -> list[Chart]:
    """Boxes of explainers, each with an entry's beneath the other; in several charts where they are many."""
    strips: dict[str, list[Strip]] = {}
    seen = set()
    for name in explainers:
        for entry, part in entries:
            counted = reading.counted(rows(entry, name))
            if len(counted):
                seen.add(entry)
                samples = [int(sample) for sample in counted["sample"]]
                strip = Strip(name, samples, reading.values(counted), reading.bounds(counted), part)
                strips.setdefault(name, []).append(strip)
    if len(seen) < 2:
        return []
    each = max(1, ROWS // len(entries))
    chunks = [list(strips.values())[start : start + each] for start in range(0, len(strips), each)]
    charts = []
    for chunk in chunks:
        drawn = [strip for own in chunk for strip in own]
        side, good = reading.censored_side, reading.good
        chart = distribution(drawn, explainers, reading.title, reading.axis, reading.direction, side, good=good)
        charts += [] if chart is None else [chart]
    return charts
