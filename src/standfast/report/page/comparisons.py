"""Comparisons across configurations: what changes with an option, and what changes with the model.

Each has one chart, lines over numbers or boxes, and one table of the same rows of the summary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

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
from standfast.report.page.cells import describe_row
from standfast.report.page.options import Configuration, Group, Member, find_groups, flatten_options
from standfast.report.presentation.drawing import make_axis
from standfast.report.presentation.kept_class import describe_kept_class
from standfast.results import ConfiguredMetric, Results, ValueSpec
from standfast.results.summary import SummaryRow

#: comparisons of a section's kind in the page and as files
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


_Plan = tuple[Section, Callable[[], Part]]


def compare_options(results: Results) -> tuple[list[Section], int]:
    """Configured metrics of which one option differs, and explainers of which a number differs.

    Returns:
        The sections, and how many comparisons are left out because there would be too many.
    """
    plans: list[_Plan] = []
    metrics = find_groups([_configure_metric(metric) for metric in results.metrics.values()])
    explainers = [group for group in find_groups(_configure_explainers(results)) if group.numeric]
    for groups, what, draw in ((metrics, "configured metrics", _compare_metrics), (explainers, "explainers", _vary)):
        sections: dict[str, Section] = {}
        for group in groups:
            values = ", ".join(
                dict.fromkeys(m.text for each in groups if each.title == group.title for m in each.members)
            )
            text = f"These {what} differ in {group.option} ({values}), and in nothing else."
            title = group.title if groups is metrics else f"explainer {group.title}"
            section = sections.setdefault(title, Section(title, text, "; ".join(group.same)))
            for data, model in results.pairs:
                plans.append((section, lambda g=group, d=data, m=model, draw=draw: draw(results, g, d, m)))  # type: ignore[misc]
    return _carry_out(plans)


def compare_models(results: Results) -> tuple[list[Section], int]:
    """For each data set that several models met, and each metric: the explainers' values by model."""
    plans: list[_Plan] = []
    for data in results.data:
        models = [model for where, model in results.pairs if where == data]
        if len(models) < 2:
            continue
        text = f"The same data, explainers and options; only the model differs: {', '.join(models)}."
        section = Section(data if len(results.data) > 1 else "", text)
        for metric in results.metrics.values():
            members = [Member(model, model) for model in models]

            def draw(metric: ConfiguredMetric = metric, data: str = data, members: list[Member] = members) -> Part:
                keys = {
                    name: {member: (data, member.name, metric.name, name) for member in members}
                    for name in results.explainers
                }
                setting = Setting("model", metric.spec, members, _find_rows(results, keys))
                heading = f"{metric.spec.title} ({metric.name}), by model"
                return Part("", _draw(results, setting, heading, f"models-{metric.name}"))

            plans.append((section, draw))
    return _carry_out(plans)


def _carry_out(plans: Sequence[_Plan]) -> tuple[list[Section], int]:
    """The sections that have figures; comparisons beyond `MOST` are not drawn."""
    left_out = drawn = 0
    for section, draw in plans:
        if drawn == MOST:
            left_out += 1
            continue
        part = draw()
        if part.figures:
            drawn += 1
            section.parts.append(part)
    sections = {id(section): section for section, _ in plans if section.parts}
    return list(sections.values()), left_out


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


def _compare_metrics(results: Results, group: Group, data: str, model: str) -> Part:
    """A chart and a table; and what the metric draws of its own where values have no axis."""
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
    return part


def _vary(results: Results, group: Group, data: str, model: str) -> Part:
    """A chart and a table for each metric, with one line for the kind of explainer."""
    figures = []
    for metric in results.metrics.values():
        keys = {group.kind: {member: (data, model, metric.name, member.name) for member in group.members}}
        setting = Setting(group.option, metric.spec, group.members, _find_rows(results, keys), group.members[0].name)
        heading = f"{metric.spec.title} ({metric.name}), by {group.option}"
        figures += _draw(results, setting, heading, f"options-{group.option}-{metric.name}")
    return Part(_name_part(results, group, data, model), figures)


def _name_part(results: Results, group: Group, data: str, model: str) -> str:
    return " · ".join(filter(None, (results.name_pair(data, model), group.panel)))


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
    for line, own in setting.rows.items():
        samples = {
            tuple(frames[line, member].select("repeat", "sample").sort("repeat", "sample").rows()) for member in own
        }
        if len(samples) > 1:
            notes.append("Not the same samples at all values, so compare with care.")
            break
    numeric = len({member.x for member in setting.members} - {None}) == len(setting.members)
    if numeric:
        charts = [_draw_lines(results, setting, Words(heading, " ".join(notes), name, heading))]
    else:
        charts = list(_draw_boxes(results, setting, frames, Words(heading, " ".join(notes), name, heading)))
    return [*(chart for chart in charts if chart is not None), _make_table(results, setting, heading)]


def _draw_lines(results: Results, setting: Setting, words: Words) -> Chart | None:
    """The estimates against the values of the option, with their intervals."""
    lines = []
    for name, own in setting.rows.items():
        found = [(member.x, row.estimate) for member, row in own.items() if row.value is not None and row.estimate]
        found = sorted((each for each in found if math.isfinite(each[1].value)), key=lambda each: each[0] or 0.0)
        if len(found) > 1:
            x, estimates = zip(*found, strict=True)
            value, low, high = (
                np.array([math.nan if number is None else number for number in numbers])
                for numbers in zip(*((each.value, each.low, each.high) for each in estimates), strict=True)
            )
            style = choose_style(results.explainers, setting.looks) if setting.looks else None
            bounds = np.array([each.bound is not None for each in estimates])
            lines.append(Line(name, np.array(x), value, low, high, bounds, style))
    places = sorted({float(x) for line in lines for x in line.x})
    if not places:
        return None
    band = "Line: median over samples; band: its interval (95%, less with few samples)."
    words = replace(words, caption=f"{band} {words.caption}".strip())
    along = Axis(setting.option, ticks=places, log=is_logarithmic(places))
    return draw_lines(lines, results.explainers, along, make_axis(setting.spec), words)


def _draw_boxes(
    results: Results, setting: Setting, frames: Mapping[tuple[str, Member], Any], words: Words
) -> Iterator[Chart | None]:
    """For each explainer a box for each value, below each other; several charts where they are many."""
    drawn = []
    for line, own in setting.rows.items():
        spec = next(iter(own.values())).spec
        rows = {member: frames[line, member] for member in setting.members if member in own}
        drawn.append(
            [
                Strip(line, each["sample"].to_list(), spec.values(each), spec.bounds(each), member.text)
                for member, each in rows.items()
                if len(each)
            ]
        )
    at_once = max(1, ROWS // len(setting.members))
    for start in range(0, len(drawn), at_once):
        strips = [strip for own in drawn[start : start + at_once] for strip in own]
        yield draw_values(strips, results.explainers, make_axis(setting.spec), words)


def _make_table(results: Results, setting: Setting, heading: str) -> Table:
    """A row for each line, a column for each value: the estimate, its interval, and the first remark of the metric."""
    spec = setting.spec
    ranked = [
        row.value
        for own in setting.rows.values()
        for row in own.values()
        if row.value is not None and math.isfinite(row.value) and not row.control
    ]
    low, high = min(ranked, default=0.0), max(ranked, default=0.0)

    def make_cell(row: SummaryRow | None) -> TableCell:
        if row is None:
            return TableCell("–")
        metric = results.metrics[row.label]
        fine = results.select(row.data, row.model, row.label, row.explainer).filter(status="ok")
        remarks = [
            each for each in metric.presentation.remarks(fine, metric.options) if not each.startswith("class kept")
        ]
        cell = describe_row(row, remarks)
        share = None
        if spec.direction and high > low and row.value is not None and math.isfinite(row.value):
            share = float(np.clip((row.value - low) / (high - low), 0, 1))
            share = share if spec.direction == "higher" else 1 - share
        small = "\n".join(filter(None, [cell.words, cell.interval, *cell.notes[:1]]))
        return TableCell(cell.main, small, share=share, first=row.verdict in ("best", "tied"))

    caption = "Medians over samples. ★: the best mean rank in its column, or not shown to be worse (paired tests, 5%). "
    caption += "The deeper the colour, the better the median. " if spec.direction else ""
    columns = []
    for member in setting.members:
        row = next((own[member] for own in setting.rows.values() if member in own), None)
        if row is None:
            columns.append((member.text, ""))
            continue
        found = results.metric_results(row.data, row.model, row.label)
        warning = results.metrics[row.label].presentation.comparability_warning(found)
        caption += f"Beware, {member.text}: {warning} " if warning else ""
        columns.append((member.text, "".join(describe_kept_class(found.frame)).replace(" of the neighbourhood", "")))
    rows = [(line, [make_cell(own.get(member)) for member in setting.members]) for line, own in setting.rows.items()]
    return Table(heading, columns, rows, caption.strip())
