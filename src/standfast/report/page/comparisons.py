"""Comparisons across configurations: what changes with an option, and what changes with the model.

Each is a table of rows of the summary. Where the values of the option are numbers, lines show the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product

import numpy as np

from standfast.report.charts import (
    Axis,
    Chart,
    Figure,
    Line,
    Table,
    TableCell,
    Words,
    draw_lines,
    is_logarithmic,
)
from standfast.report.facts import collect_facts, find_words
from standfast.report.page.cells import describe_row
from standfast.report.page.matrix import mark_leaders
from standfast.report.page.options import (
    Configuration,
    Member,
    find_groups,
    flatten_options,
    has_places,
)
from standfast.report.presentation.drawing import make_axis
from standfast.report.sentences import say
from standfast.results import ConfiguredMetric, StoredResults, find_metric_class, find_owners
from standfast.results.summary import SummaryRow

#: how many comparisons of options, and how many of models, are drawn
MOST = 24

#: for each line, an explainer as a rule, the data, model, label and explainer of each member
Keys = Mapping[str, Mapping[Member, tuple[str, str, str, str]]]
#: the same with the row of the summary of each member that has one
Rows = Mapping[str, Mapping[Member, SummaryRow]]


@dataclass(frozen=True)
class Comparison:
    """What changes with an option, or with the model, on one data set and model.

    Attributes:
        title: what is compared.
        where: on which data set and model, where there are several.
        text: what differs and what does not.
        figures: a table for each metric, and lines before it where the option has numbers.
    """

    title: str
    where: str
    text: str
    figures: list[Figure]


def compare_options(results: StoredResults) -> list[Comparison]:
    """Configured metrics of which one option differs, and explainers of which a number differs; at most `MOST`."""
    return _take(chain(_compare_metrics(results), _compare_explainers(results)))


def compare_models(results: StoredResults) -> list[Comparison]:
    """For each data set that several models met, and each metric: the explainers' values by model; at most `MOST`."""
    return _take(_compare_models(results))


def _take(found: Iterable[Comparison]) -> list[Comparison]:
    return list(islice((each for each in found if each.figures), MOST))


def _compare_metrics(results: StoredResults) -> Iterator[Comparison]:
    groups = find_groups([_configure_metric(metric) for metric in results.metrics.values()])
    for group, (data, model) in product(groups, results.pairs):
        keys = {
            name: {each: (data, model, each.name, name) for each in group.members}
            for name in results.explainers
        }
        heading = f"{results.metrics[group.members[0].name].spec.axis}, by {group.option}"
        text = f"These configured metrics differ in {group.option}, and in nothing else."
        figures = _draw(results, group.option, group.members, keys, heading)
        yield Comparison(
            f"{group.kind}: {group.option}", results.summary.name_pair(data, model), text, figures
        )


def _compare_explainers(results: StoredResults) -> Iterator[Comparison]:
    """A chart and a table for each metric, with one line for the kind of explainer."""
    groups = [
        group for group in find_groups(_configure_explainers(results)) if has_places(group.members)
    ]
    for group, (data, model) in product(groups, results.pairs):
        figures: list[Figure] = []
        for label in results.metrics:
            keys = {
                group.kind: {member: (data, model, label, member.name) for member in group.members}
            }
            figures += _draw(
                results, group.option, group.members, keys, f"{label}, by {group.option}"
            )
        text = f"These explainers differ in {group.option}, and in nothing else."
        yield Comparison(
            f"explainer {group.kind}: {group.option}",
            results.summary.name_pair(data, model),
            text,
            figures,
        )


def _compare_models(results: StoredResults) -> Iterator[Comparison]:
    for data in results.data:
        members = [Member(model, model) for where, model in results.pairs if where == data]
        figures: list[Figure] = []
        for label in results.metrics:
            keys = {
                name: {each: (data, each.name, label, name) for each in members}
                for name in results.explainers
            }
            figures += _draw(results, "model", members, keys, f"{label}, by model")
        yield Comparison(
            data, "", "The same data, explainers and options; only the model differs.", figures
        )


def _configure_metric(metric: ConfiguredMetric) -> Configuration:
    """Its options that have an effect; its unit is what specs must share for values to stand on one axis."""
    spec, options, owners = metric.spec, metric.options, {}
    kind = find_metric_class(metric.metric)
    if kind is not None:
        options = {
            option: value for option, value in options.items() if kind.has_effect(option, options)
        }
        owners = find_owners(kind)
    unit = (spec.column, spec.axis, spec.direction, spec.good, spec.censored, spec.censored_side)
    return Configuration(metric.name, metric.metric, flatten_options(options), owners, unit)


def _configure_explainers(results: StoredResults) -> list[Configuration]:
    found = []
    for name in results.explainers:
        stored = (results.manifest.get("explainers") or {}).get(name)
        if isinstance(stored, Mapping) and isinstance(stored.get("name"), str):
            options = {option: value for option, value in stored.items() if option != "name"}
            found.append(Configuration(name, stored["name"], flatten_options(options)))
    return found


def _draw(
    results: StoredResults, option: str, members: Sequence[Member], keys: Keys, heading: str
) -> list[Figure]:
    """Lines, where the members have places on an axis, and the table; nothing where fewer than two have a value."""
    known = {(row.data, row.model, row.label, row.explainer): row for row in results.summary.rows}
    found = {
        line: {member: known[key] for member, key in own.items() if key in known}
        for line, own in keys.items()
    }
    rows = {line: own for line, own in found.items() if own}
    present = {
        member for own in rows.values() for member, row in own.items() if row.estimate is not None
    }
    if len(present) < 2:
        return []
    counts = [
        {row.estimate.count for row in own.values() if row.estimate is not None}
        for own in rows.values()
    ]
    uneven = (
        "Not the same samples at all values, so compare with care. "
        if any(len(own) > 1 for own in counts)
        else ""
    )
    table = _make_table(results, members, rows, heading, uneven)
    chart = _draw_lines(results, option, rows, heading) if has_places(members) else None
    return [table] if chart is None else [chart, table]


def _draw_lines(results: StoredResults, option: str, rows: Rows, heading: str) -> Chart | None:
    """The estimates against the values of the option, with their intervals."""
    lines = []
    for name, own in rows.items():
        found = [
            (member.x, row.estimate) for member, row in own.items() if row.estimate is not None
        ]
        numbers = [
            (x, each.value, each.low, each.high) for x, each in found if math.isfinite(each.value)
        ]
        if len(numbers) > 1:
            x, value, low, high = np.array(numbers, dtype=float).T  # None becomes NaN
            bounds = np.array(
                [each.bound is not None for _, each in found if math.isfinite(each.value)]
            )
            lines.append(Line(name, x, value, low, high, bounds))
    if not lines:
        return None
    places = sorted({float(x) for line in lines for x in line.x})
    caption = "Line: median over samples; band: its interval (95%, less with few samples)."
    words = Words(heading, caption, heading, heading)
    spec = next(row.spec for own in rows.values() for row in own.values())
    along = Axis(option, ticks=places, log=is_logarithmic(places))
    return draw_lines(lines, results.explainers, along, make_axis(spec), words)


def _make_table(
    results: StoredResults, members: Sequence[Member], rows: Rows, heading: str, caption: str
) -> Table:
    """A row for each line, a column for each value: the estimate, its interval, and two remarks of the metric."""

    def make_cell(row: SummaryRow | None) -> TableCell:
        if row is None:
            return TableCell("–")
        cell = describe_row(results, row)
        found = results.summary.find(row.data, row.model, row.label)
        star = "" if found is None else mark_leaders(found).get(row.explainer, "")
        word = "" if row.quality is None else say("quality", row.quality)
        small = "\n".join(filter(None, [word, cell.interval, *cell.notes[:2]]))
        return TableCell(cell.main, small, quality=row.quality, star=star)

    for member in members:
        row = next((own[member] for own in rows.values() if member in own), None)
        summary = None if row is None else results.summary.find(row.data, row.model, row.label)
        if summary is not None:
            found = results.metric_results(summary.data, summary.model, summary.label)
            warning = find_words(found).caution(collect_facts(summary, found))
            caption += f"Beware, {member.text}: {warning} " if warning else ""
    caption += (
        "Medians over samples. ★: the best mean rank in its column; ☆: not told apart from"
        " it (paired tests, 5%)."
    )
    columns = [
        (member.text, member.name if member.name != member.text else "") for member in members
    ]
    cells = [
        (line, [make_cell(own.get(member)) for member in members]) for line, own in rows.items()
    ]
    return Table(heading, columns, cells, caption)
