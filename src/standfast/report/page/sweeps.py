"""Figures across configurations: what changes with an option, and what changes with the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import polars as pl

from standfast.metrics.base import PartOf
from standfast.report.charts import Chart, Gallery, Strip, Table, TableCell, Words, draw_values
from standfast.report.page.options import Configuration, Group, find_groups, flatten_options
from standfast.report.page.overview import Entry, build_matrix
from standfast.report.page.sweep_tables import Frames, SweepTable
from standfast.report.presentation.drawing import make_axis
from standfast.report.presentation.kept_class import count_kept_class
from standfast.report.views import Contents
from standfast.report.words import collect_facts, words_of
from standfast.results import ConfiguredMetric, ValueSpec

#: figures of "Options compared" and of "Models compared" in the page and as files
MOST, MOST_MODELS = 40, 24
#: boxes below each other in one chart
ROWS = 36


@dataclass
class Part:
    """The figures of a section for one data set and model, and the bounds of the data for its pictures."""

    data: str
    model: str
    figures: list[Chart | Gallery | Table] = field(default_factory=list)
    bounds: tuple[float, float] = (float("nan"), float("nan"))


@dataclass
class Section:
    """A comparison: what differs and what is the same, in words, and its figures."""

    title: str
    text: str
    same: str = ""
    parts: list[Part] = field(default_factory=list)


@dataclass
class SectionList:
    """Sections with their figures, up to a number of these; `left_out` counts those for which there is no room.

    Tables are small, and do not count.
    """

    room: int
    sections: list[Section] = field(default_factory=list)
    left_out: int = 0

    def add(self, section: Section, parts: Iterable[Part]) -> None:
        """Add a section, if any of its parts has a figure."""
        for part in parts:
            kept: list[Chart | Gallery | Table] = []
            for figure in part.figures:
                counts = not isinstance(figure, Table)
                if counts and not self.room:
                    self.left_out += 1
                else:
                    self.room -= counts
                    kept.append(figure)
            if kept:
                section.parts.append(replace(part, figures=kept))
        self.sections += [section] if section.parts else []


def compare_options(contents: Contents) -> SectionList:
    """Configured metrics that differ in one or two options, and explainers of which a number differs."""
    compared = SectionList(MOST)
    for group in find_groups([_configured_metric(label) for label in contents.labels.values()]):
        section = Section(group.title, _describe(group, "configured metrics"), "; ".join(group.same))
        compared.add(section, [_part_of_metrics(contents, group, *pair) for pair in contents.pairs])
    for group in find_groups(_configured_explainers(contents)):
        if group.numeric:
            section = Section(f"explainer {group.title}", _describe(group, "explainers"), "; ".join(group.same))
            compared.add(section, [_part_of_explainers(contents, group, *pair) for pair in contents.pairs])
    return compared


def compare_models(contents: Contents) -> SectionList:
    """For each data set that several models met, and each label: the explainers' values by model."""
    compared = SectionList(MOST_MODELS)
    for data in contents.data:
        models = [model for where, model in contents.pairs if where == data]
        if len(models) < 2:
            continue
        text = f"The same data, explainers and options; only the model differs: {', '.join(models)}."
        part = Part(data, "")
        for label in contents.labels.values():
            keys = product(models, contents.explainers)
            frames = {(model, name): contents.rows(data, model, label.name, name) for model, name in keys}
            heading = f"{label.spec.title} ({label.name}), by model"
            charts = _boxes(frames, {model: model for model in models}, contents.explainers, label.spec, heading)
            note = "Each model on the samples that it was evaluated on."
            part.figures += [
                replace(chart, name=f"models-{label.name}", caption=f"{chart.caption} {note}") for chart in charts
            ]
        compared.add(Section(data if len(contents.data) > 1 else "", text), [part])
    return compared


def _configured_metric(label: ConfiguredMetric) -> Configuration:
    """Its options that have an effect; its unit is what readings must share for values to stand on one axis."""
    r, options, owners = label.spec, label.options, {}
    if label.kind is not None:
        options = {option: value for option, value in options.items() if label.kind.has_effect(option, options)}
        owners = {option: role.option for option, role in label.kind.roles.items() if isinstance(role, PartOf)}
    unit = (r.column, r.axis, r.direction, r.good, r.censored, r.censored_side)
    return Configuration(label.name, label.metric, flatten_options(options), owners, unit)


def _configured_explainers(contents: Contents) -> list[Configuration]:
    found = []
    for name in contents.explainers:
        stored = (contents.manifest.get("explainers") or {}).get(name)
        if isinstance(stored, Mapping) and isinstance(stored.get("name"), str):
            options = {option: value for option, value in stored.items() if option != "name"}
            found.append(Configuration(name, stored["name"], flatten_options(options)))
    return found


def _describe(group: Group, what: str) -> str:
    """What differs, in words."""
    values = ", ".join(dict.fromkeys(member.text for member in group.members))
    text = f"These {what} differ in {group.option} ({values})"
    if group.across is not None:
        lines = dict.fromkeys(member.across for member in group.members if member.across is not None)
        text += f" and in {group.across} ({', '.join(lines)})"
    others = "; ".join(dict.fromkeys(member.text for member in group.references))
    return f"{text}, and in nothing else." + (f" Drawn with them: {others}." if others else "")


def _part_of_metrics(contents: Contents, group: Group, data: str, model: str) -> Part:
    """Lines or boxes, and what the metric draws of its own where there are no lines."""
    frames = {(m, name): contents.rows(data, model, m, name) for m in group.names for name in contents.explainers}
    labels = [contents.labels[member.name] for member in group.members]
    spec = labels[0].spec
    if len({label.spec.title for label in labels}) > 1:  # the option changes what is measured, in words
        spec = replace(spec, title=spec.axis)
    part = Part(data, model)
    if group.numeric:
        table = SweepTable(group, spec, {name: name for name in contents.explainers}, frames, contents.explainers)
        part.figures += [*table.charts(), *table.differences()]
        return part
    if group.comparable:
        texts = {member.name: member.text for member in group.members}
        heading = f"{spec.title}, by {group.option}"
        part.figures += _tabulate(contents, group, spec, data, model)
        part.figures += [
            replace(chart, name=f"boxes-{group.option}")
            for chart in _boxes(frames, texts, contents.explainers, spec, heading)
        ]
    views = [contents.view(data, model, label.name) for label in labels]
    views = [view for view in views if len(view.frame)]
    if len(views) > 1:
        part.bounds = views[0].bounds
        part.figures += labels[0].presentation.figures_over_option(views, group.option)
    return part


def _tabulate(contents: Contents, group: Group, spec: ValueSpec, data: str, model: str) -> list[Table]:
    """A table of medians with verdicts: a row for each explainer, a column for each configuration.

    A cell has the median with its interval and the first note on it, such as how many samples were misinterpreted.
    There is no table for a single configuration.
    """
    matrix = build_matrix(contents, data, model, group.names)
    shown = [name for name in contents.labels if name in group.names]
    members = [member for member in group.members if len(contents.frame(data, model, member.name))]
    if len(members) < 2 or not matrix.rows:
        return []
    medians = {
        (row.label, row.explainer): row.value
        for row in contents.results.summary.rows
        if (row.data, row.model) == (data, model) and row.value is not None
    }
    medians = {place: value for place, value in medians.items() if place[0] in group.names}
    ranked = [(value, name) for (_, name), value in medians.items() if math.isfinite(value)]
    finite = [value for value, name in ranked if name not in contents.controls]
    low, high = min(finite, default=0.0), max(finite, default=0.0)

    def make_cell(member: str, name: str, entry: Entry) -> TableCell:
        if entry.cell is None:
            return TableCell("–")
        value, share = medians.get((member, name), math.nan), None
        if spec.direction and high > low and math.isfinite(value):
            share = float(np.clip((value - low) / (high - low), 0, 1))
            share = share if spec.direction == "higher" else 1 - share
        notes = [note for note in entry.cell.notes if not note.startswith("class kept")]  # it is in the column's head
        lines = [entry.cell.words, entry.cell.interval, *notes[:1]]
        return TableCell(entry.cell.main, "\n".join(filter(None, lines)), share=share, first=entry.first)

    rows = [
        (name, [make_cell(member.name, name, entries[shown.index(member.name)]) for member in members])
        for name, entries in matrix.rows
    ]
    caption = "Medians over samples. ★: the best mean rank in its column, or not shown to be worse (paired tests, 5%); "
    caption += "no star where the tests decide nothing. "
    caption += "The deeper the colour, the better the median. " if spec.direction else ""
    verdicts = []
    for member in members:
        comparison = contents.comparisons.get((data, model, member.name))
        if comparison is not None and comparison.count > 0:
            best = [comparison.names[place] for place in comparison.winner_set] if comparison.decided else []
            verdicts.append(f"{member.text}: {' or '.join(best) if best else 'not decided'}")
    caption += f"Best by {group.option}: {'; '.join(verdicts)}." if verdicts else ""
    for member in members:
        one, view = contents.results.summary.find(data, model, member.name), contents.view(data, model, member.name)
        words = words_of(contents.labels[member.name].presentation)
        warning = words.caution(collect_facts(one, view)) if one is not None else ""
        caption += f" Beware, {member.text}: {warning}" if warning else ""
    columns = [(member.text, _say_kept(contents.frame(data, model, member.name))) for member in members]
    return [Table(f"{spec.title}: explainers by {group.option}", columns, rows, caption.strip())]


def _say_kept(frame: pl.DataFrame) -> str:
    """How much of the neighbourhood keeps the class, for the head of its column; empty where this is not known."""
    return "".join(detail.text for detail in count_kept_class(frame))


def _part_of_explainers(contents: Contents, group: Group, data: str, model: str) -> Part:
    """A chart for each label, with one line for the kind of explainer."""
    part = Part(data, model)
    for label in contents.labels.values():
        frames = {(name, group.kind): contents.rows(data, model, label.name, name) for name in group.names}
        looks = {group.kind: group.members[0].name}
        for chart in SweepTable(group, label.spec, looks, frames, contents.explainers).charts():
            heading = f"{label.spec.title} ({label.name})"
            part.figures.append(replace(chart, heading=heading, name=f"{chart.name}-{label.name}"))
    return part


def _boxes(
    frames: Frames, texts: Mapping[str, str], explainers: Sequence[str], spec: ValueSpec, heading: str
) -> list[Chart]:
    """For each explainer a box for each entry of `texts`, below each other; several charts where they are many."""
    counted = {key: rows for key, frame in frames.items() if len(rows := spec.select_valid(frame))}
    if len({entry for entry, _ in counted}) < 2:
        return []
    strips = {
        name: [
            Strip(name, rows["sample"].to_list(), spec.values(rows), spec.bounds(rows), text)
            for entry, text in texts.items()
            if (entry, name) in counted
            for rows in [counted[entry, name]]
        ]
        for name in explainers
    }
    drawn = [own for own in strips.values() if own]
    absent = [entry for entry in texts if all(frames[entry, name].is_empty() for name in explainers)]
    each, charts = max(1, ROWS // len(texts)), []
    for start in range(0, len(drawn), each):
        chunk = [strip for own in drawn[start : start + each] for strip in own]
        words = Words(heading, f"Without results here: {', '.join(absent)}." if absent else "", "boxes", heading)
        charts.append(draw_values(chunk, explainers, make_axis(spec), words))
    return [chart for chart in charts if chart is not None]
