"""Comparisons across configurations: what changes with an option, and what changes with the model.

Each has one chart, lines over numbers or boxes, and one table of the same rows of the summary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any

import numpy as np
import polars as pl

from standfast.metrics.base import PartOf
from standfast.report.charts import (
    Axis,
    Chart,
    Line,
    Strip,
    Table,
    TableCell,
    Words,
    choose_style,
    draw_lines,
    draw_values,
    is_logarithmic,
)
from standfast.report.page.cells import describe_row, list_remarks
from standfast.report.page.matrix import mark_leaders
from standfast.report.page.options import Configuration, Group, Member, find_groups, flatten_options
from standfast.report.presentation.drawing import make_axis
from standfast.report.presentation.kept_class import count_kept_class
from standfast.report.sentences import say
from standfast.report.words import collect_facts, words_of
from standfast.results import ConfiguredMetric, Results, ValueSpec
from standfast.results.summary import SummaryRow

#: comparisons of options, and of models, in the page and as files
MOST = 24
#: boxes below each other in one chart
ROWS = 36


@dataclass
class Part:
    """The figures of one comparison, and the bounds of the data for its pictures."""

    heading: str
    figures: list[Any]
    bounds: tuple[float, float] = (math.nan, math.nan)


@dataclass
class Section:
    """Comparisons over one option: what differs and what is the same, in words."""

    title: str
    text: str
    same: str = ""
    parts: list[Part] = field(default_factory=list)


@dataclass(frozen=True)
class Setting:
    """Rows of the summary at the values of an option.

    Attributes:
        option: what differs.
        spec: how all values are read.
        members: the values.
        rows: for each line, an explainer as a rule, the row of each member that has one.
        looks: the explainer whose colour a line has, where it is none.
    """

    option: str
    spec: ValueSpec
    members: Sequence[Member]
    rows: Mapping[str, Mapping[Member, SummaryRow]]
    looks: str = ""


def compare_options(results: Results) -> tuple[list[Section], bool]:
    """Configured metrics of which one option differs, and explainers of which a number differs.

    Returns:
        The sections, and whether comparisons are left out because there would be too many.
    """
    return _take(chain(_compare_metrics(results), _compare_explainers(results)))


def compare_models(results: Results) -> tuple[list[Section], bool]:
    """For each data set that several models met, and each metric: the explainers' values by model."""
    return _take(_compare_models(results))


def _take(parts: Iterable[tuple[Section, Part]]) -> tuple[list[Section], bool]:
    """The sections of the first `MOST` parts with figures, and whether there are more; these are not drawn."""
    sections: dict[int, Section] = {}
    drawn = 0
    for section, part in parts:
        if part.figures and drawn == MOST:
            return list(sections.values()), True
        if part.figures:
            drawn += 1
            section.parts.append(part)
            sections[id(section)] = section
    return list(sections.values()), False


def _make_sections(groups: Sequence[Group], what: str, start: str = "") -> Iterator[tuple[Group, Section]]:
    """Each group with its section, which groups with the same title share."""
    for title in dict.fromkeys(group.title for group in groups):
        alike = [group for group in groups if group.title == title]
        values = ", ".join(dict.fromkeys(member.text for group in alike for member in group.members))
        text = f"These {what} differ in {alike[0].option} ({values}), and in nothing else."
        section = Section(f"{start}{title}", text, "; ".join(alike[0].same))
        yield from ((group, section) for group in alike)


def _name_part(results: Results, group: Group, data: str, model: str) -> str:
    return " · ".join(filter(None, (results.name_pair(data, model), group.panel)))


def _compare_metrics(results: Results) -> Iterator[tuple[Section, Part]]:
    """A chart and a table; and what the metric draws of its own where values have no axis."""
    groups = find_groups([_configure_metric(metric) for metric in results.metrics.values()])
    for (group, section), (data, model) in product(_make_sections(groups, "configured metrics"), results.pairs):
        metrics = [results.metrics[member.name] for member in group.members]
        spec = metrics[0].spec
        if len({metric.spec.title for metric in metrics}) > 1:  # the option changes what is measured, in words
            spec = replace(spec, title=spec.axis)
        part = Part(_name_part(results, group, data, model), [])
        if group.comparable:
            keys = {name: {m: (data, model, m.name, name) for m in group.members} for name in results.explainers}
            setting = Setting(group.option, spec, group.members, _find_rows(results, keys))
            part.figures += _draw(results, setting, f"{spec.title}, by {group.option}", f"options-{group.option}")
        found = [results.metric_results(data, model, metric.name) for metric in metrics]
        found = [each for each in found if len(each.frame)]
        if len(found) > 1 and not group.numeric:
            part.bounds = found[0].bounds
            part.figures += metrics[0].presentation.figures_over_option(found, group.option)
        yield section, part


def _compare_explainers(results: Results) -> Iterator[tuple[Section, Part]]:
    """A chart and a table for each metric, with one line for the kind of explainer."""
    groups = [group for group in find_groups(_configure_explainers(results)) if group.numeric]
    sections = _make_sections(groups, "explainers", "explainer ")
    for (group, section), (data, model) in product(sections, results.pairs):
        figures = []
        for metric in results.metrics.values():
            keys = {group.kind: {member: (data, model, metric.name, member.name) for member in group.members}}
            rows = _find_rows(results, keys)
            setting = Setting(group.option, metric.spec, group.members, rows, group.members[0].name)
            heading = f"{metric.spec.title} ({metric.name}), by {group.option}"
            figures += _draw(results, setting, heading, f"options-{group.option}-{metric.name}")
        yield section, Part(_name_part(results, group, data, model), figures)


def _compare_models(results: Results) -> Iterator[tuple[Section, Part]]:
    for data in results.data:
        members = [Member(model, model) for where, model in results.pairs if where == data]
        if len(members) < 2:
            continue
        names = ", ".join(member.name for member in members)
        text = f"The same data, explainers and options; only the model differs: {names}."
        section = Section(data if len(results.data) > 1 else "", text)
        for metric in results.metrics.values():
            keys = {name: {m: (data, m.name, metric.name, name) for m in members} for name in results.explainers}
            setting = Setting("model", metric.spec, members, _find_rows(results, keys))
            heading = f"{metric.spec.title} ({metric.name}), by model"
            yield section, Part("", _draw(results, setting, heading, f"models-{metric.name}"))


def _configure_metric(metric: ConfiguredMetric) -> Configuration:
    """Its options that have an effect; its unit is what specs must share for values to stand on one axis."""
    spec, options, owners = metric.spec, metric.options, {}
    if metric.kind is not None:
        options = {option: value for option, value in options.items() if metric.kind.has_effect(option, options)}
        owners = {option: role.option for option, role in metric.kind.roles.items() if isinstance(role, PartOf)}
    unit = (spec.column, spec.axis, spec.direction, spec.good, spec.censored, spec.censored_side)
    return Configuration(metric.name, metric.metric, flatten_options(options), owners, unit)


def _configure_explainers(results: Results) -> list[Configuration]:
    found = []
    for name in results.explainers:
        stored = (results.manifest.get("explainers") or {}).get(name)
        if isinstance(stored, Mapping) and isinstance(stored.get("name"), str):
            options = {option: value for option, value in stored.items() if option != "name"}
            found.append(Configuration(name, stored["name"], flatten_options(options)))
    return found


def _find_rows(
    results: Results, keys: Mapping[str, Mapping[Member, tuple[str, str, str, str]]]
) -> dict[str, dict[Member, SummaryRow]]:
    """The rows of the summary at data, model, label and explainer, by line and member."""
    known = {(row.data, row.model, row.label, row.explainer): row for row in results.summary.rows}
    found = {line: {member: known[key] for member, key in own.items() if key in known} for line, own in keys.items()}
    return {line: own for line, own in found.items() if own}


def _draw(results: Results, setting: Setting, heading: str, name: str) -> list[Any]:
    """Lines or boxes, and the table; nothing where fewer than two members have a value."""
    present = {member for own in setting.rows.values() for member, row in own.items() if row.estimate is not None}
    if len(present) < 2:
        return []
    absent = [member.name for member in setting.members if member not in present]
    notes = [f"Without results here: {', '.join(absent)}."] if absent else []
    frames = {
        (line, member): row.spec.select_valid(results.select(row.data, row.model, row.label, row.explainer))
        for line, own in setting.rows.items()
        for member, row in own.items()
    }
    for line in setting.rows:
        own = [frame.select("repeat", "sample") for (each, _), frame in frames.items() if each == line]
        if any(not frame.equals(own[0]) for frame in own):
            notes.append("Not the same samples at all values, so compare with care.")
            break
    words = Words(heading, " ".join(notes), name, heading)
    if len({member.x for member in setting.members} - {None}) == len(setting.members):
        chart = _draw_lines(results, setting, words)
    else:
        chart = _draw_boxes(results, setting, frames, words)
    return [*([] if chart is None else [chart]), _make_table(results, setting, heading)]


def _draw_lines(results: Results, setting: Setting, words: Words) -> Chart | None:
    """The estimates against the values of the option, with their intervals."""
    lines = []
    for name, own in setting.rows.items():
        found = [(member.x or 0.0, row.estimate) for member, row in own.items() if row.estimate is not None]
        found = sorted((each for each in found if math.isfinite(each[1].value)), key=lambda each: each[0])
        if len(found) > 1:
            numbers = [(x, each.value, each.low, each.high) for x, each in found]
            x, value, low, high = np.array(numbers, dtype=float).T  # None becomes NaN
            style = choose_style(results.explainers, setting.looks) if setting.looks else None
            bounds = np.array([each.bound is not None for _, each in found])
            lines.append(Line(name, x, value, low, high, bounds, style))
    places = sorted({float(x) for line in lines for x in line.x})
    if not places:
        return None
    band = "Line: median over samples; band: its interval (95%, less with few samples)."
    words = replace(words, caption=f"{band} {words.caption}".strip())
    along = Axis(setting.option, ticks=places, log=is_logarithmic(places))
    return draw_lines(lines, results.explainers, along, make_axis(setting.spec), words)


def _draw_boxes(
    results: Results, setting: Setting, frames: Mapping[tuple[str, Member], pl.DataFrame], words: Words
) -> Chart | None:
    """For each explainer a box for each value, below each other; no more than `ROWS`."""
    spec, strips = setting.spec, []
    for line, member in product(setting.rows, setting.members):
        rows = frames.get((line, member))
        if rows is not None and len(rows):
            strips.append(Strip(line, rows["sample"].to_list(), spec.values(rows), spec.bounds(rows), member.text))
    if len(strips) > ROWS:
        words = replace(words, caption=f"{words.caption} The first {ROWS} of {len(strips)}; the table has all.".strip())
    return draw_values(strips[:ROWS], results.explainers, make_axis(spec), words)


def _make_table(results: Results, setting: Setting, heading: str) -> Table:
    """A row for each line, a column for each value: the estimate, its interval, and the first remark of the metric."""

    def make_cell(row: SummaryRow | None) -> TableCell:
        if row is None:
            return TableCell("–")
        metric = results.metrics[row.label]
        fine = results.select(row.data, row.model, row.label, row.explainer).filter(status="ok")
        remarks = [each for each in list_remarks(metric, fine) if not each.startswith("class kept")]
        cell = describe_row(row, remarks)
        found = results.summary.find(row.data, row.model, row.label)
        star = "" if found is None else mark_leaders(found).get(row.explainer, "")
        word = "" if row.quality is None else say("quality", row.quality)
        small = "\n".join(filter(None, [word, cell.interval, *cell.notes[:1]]))
        return TableCell(cell.main, small, quality=row.quality, star=star)

    caption = (
        "Medians over samples. ★: the best mean rank in its column; ☆: not told apart from it (paired tests, 5%). "
    )
    columns = []
    for member in setting.members:
        row = next((own[member] for own in setting.rows.values() if member in own), None)
        if row is None:
            columns.append((member.text, ""))
            continue
        found = results.metric_results(row.data, row.model, row.label)
        summary = results.summary.find(row.data, row.model, row.label)
        assert summary is not None
        warning = words_of(summary.metric.presentation).caution(collect_facts(summary, found))
        caption += f"Beware, {member.text}: {warning} " if warning else ""
        columns.append((member.text, "".join(detail.text for detail in count_kept_class(found.frame))))
    rows = [(line, [make_cell(own.get(member)) for member in setting.members]) for line, own in setting.rows.items()]
    return Table(heading, columns, rows, caption.strip())
