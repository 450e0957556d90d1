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
    ExplainerTable,
    Figure,
    Line,
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
class OptionComparison:
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


def compare_options(results: StoredResults) -> list[OptionComparison]:
    """Configured metrics of which one option differs, and explainers of which a number differs; at most `MOST`."""
    return _take(chain(_compare_metrics(results), _compare_explainers(results)))


def compare_models(results: StoredResults) -> list[OptionComparison]:
    """For each data set that several models met, and each metric: the explainers' values by model; at most `MOST`."""
    return _take(_compare_models(results))


def _take(comparisons: Iterable[OptionComparison]) -> list[OptionComparison]:
    drawn = (comparison for comparison in comparisons if comparison.figures)
    return list(islice(drawn, MOST))


def _compare_metrics(results: StoredResults) -> Iterator[OptionComparison]:
    configurations = [_configure_metric(metric) for metric in results.metrics.values()]
    groups = find_groups(configurations)
    for group, (data, model) in product(groups, results.pairs):
        keys = {}
        for name in results.explainers:
            keys[name] = {member: (data, model, member.name, name) for member in group.members}
        first = results.metrics[group.members[0].name]
        heading = f"{first.spec.axis}, by {group.option}"
        figures = _draw(results, group.option, group.members, keys, heading)
        yield OptionComparison(
            f"{group.kind}: {group.option}",
            results.summary.name_pair(data, model),
            f"These configured metrics differ in {group.option}, and in nothing else.",
            figures,
        )


def _compare_explainers(results: StoredResults) -> Iterator[OptionComparison]:
    """A chart and a table for each metric, with one line for the kind of explainer."""
    groups = find_groups(_configure_explainers(results))
    with_places = [group for group in groups if has_places(group.members)]
    for group, (data, model) in product(with_places, results.pairs):
        figures: list[Figure] = []
        for label in results.metrics:
            keys = {member: (data, model, label, member.name) for member in group.members}
            heading = f"{label}, by {group.option}"
            figures += _draw(results, group.option, group.members, {group.kind: keys}, heading)
        yield OptionComparison(
            f"explainer {group.kind}: {group.option}",
            results.summary.name_pair(data, model),
            f"These explainers differ in {group.option}, and in nothing else.",
            figures,
        )


def _compare_models(results: StoredResults) -> Iterator[OptionComparison]:
    for data in results.data:
        members = []
        for name, model in results.pairs:
            if name == data:
                members.append(Member(model, model))
        figures: list[Figure] = []
        for label in results.metrics:
            keys = {}
            for name in results.explainers:
                keys[name] = {member: (data, member.name, label, name) for member in members}
            figures += _draw(results, "model", members, keys, f"{label}, by model")
        text = "The same data, explainers and options; only the model differs."
        yield OptionComparison(data, "", text, figures)


def _configure_metric(metric: ConfiguredMetric) -> Configuration:
    """Its options that have an effect; its unit is what specs must share for values to stand on one axis."""
    spec = metric.spec
    options = metric.options
    owners: dict[str, str] = {}
    kind = find_metric_class(metric.metric)
    if kind is not None:
        # two that differ in an option without effect are equal
        effective = [option for option in options if kind.has_effect(option, options)]
        options = {option: options[option] for option in effective}
        owners = find_owners(kind)
    unit = (spec.column, spec.axis, spec.direction, spec.good, spec.censored, spec.censored_side)
    return Configuration(metric.name, metric.metric, flatten_options(options), owners, unit)


def _configure_explainers(results: StoredResults) -> list[Configuration]:
    configurations = []
    for name in results.explainers:
        stored = (results.manifest.get("explainers") or {}).get(name)
        if isinstance(stored, Mapping) and isinstance(stored.get("name"), str):
            options = dict(stored)
            options.pop("name", None)
            configurations.append(Configuration(name, stored["name"], flatten_options(options)))
    return configurations


def _draw(
    results: StoredResults, option: str, members: Sequence[Member], keys: Keys, heading: str
) -> list[Figure]:
    """Lines, where the members have places on an axis, and the table; nothing where fewer than two have a value."""
    rows = _find_rows(results, keys)
    counts_of_lines: list[set[int]] = []
    measured: set[Member] = set()
    for of_line in rows.values():
        estimates = {
            member: row.estimate for member, row in of_line.items() if row.estimate is not None
        }
        measured |= set(estimates)
        counts_of_lines.append({estimate.count for estimate in estimates.values()})
    if len(measured) < 2:
        return []
    caution = ""
    if any(len(counts) > 1 for counts in counts_of_lines):
        caution = "Not the same samples at all values, so compare with care. "
    table = _make_table(results, members, rows, heading, caution)
    if not has_places(members):
        return [table]
    chart = _draw_lines(results, option, rows, heading)
    if chart is None:
        return [table]
    return [chart, table]


def _find_rows(results: StoredResults, keys: Keys) -> Rows:
    """The rows of the summary, of the lines that have any."""
    row_of = {}
    for row in results.summary.rows:
        row_of[row.data, row.model, row.label, row.explainer] = row
    rows = {}
    for line, keys_of_line in keys.items():
        of_line = {}
        for member, key in keys_of_line.items():
            if key in row_of:
                of_line[member] = row_of[key]
        if of_line:
            rows[line] = of_line
    return rows


def _draw_lines(results: StoredResults, option: str, rows: Rows, heading: str) -> Chart | None:
    """The estimates against the values of the option, with their intervals."""
    lines = []
    for name, of_line in rows.items():
        points = [
            (member.x, row.estimate)
            for member, row in of_line.items()
            if row.estimate is not None and math.isfinite(row.estimate.value)
        ]
        if len(points) > 1:
            # None becomes NaN
            numbers = [(x, point.value, point.low, point.high) for x, point in points]
            x, value, low, high = np.array(numbers, dtype=float).T
            are_bounds = np.array([point.bound is not None for _, point in points])
            lines.append(Line(name, x, value, low, high, are_bounds))
    if not lines:
        return None
    values = {float(x) for line in lines for x in line.x}
    ticks = sorted(values)
    caption = "Line: median over samples; band: its interval (95%, less with few samples)."
    words = Words(heading, caption, heading, heading)
    spec = next(row.spec for of_line in rows.values() for row in of_line.values())
    along = Axis(option, ticks=ticks, log=is_logarithmic(ticks))
    return draw_lines(lines, results.explainers, along, make_axis(spec), words)


def _make_table(
    results: StoredResults, members: Sequence[Member], rows: Rows, heading: str, caption: str
) -> ExplainerTable:
    """A row for each line, a column for each value: the estimate, its interval, and two remarks of the metric."""
    for member in members:
        row = next((of_line[member] for of_line in rows.values() if member in of_line), None)
        warning = ""
        if row is not None:
            warning = _find_warning(results, row)
        if warning:
            caption += f"Beware, {member.text}: {warning} "
    caption += (
        "Medians over samples. ★: the best mean rank in its column; ☆: not told apart from"
        " it (paired tests, 5%)."
    )
    columns = []
    for member in members:
        full_name = member.name if member.name != member.text else ""
        columns.append((member.text, full_name))
    cells = []
    for line, of_line in rows.items():
        cells_of_line = [_make_cell(results, of_line.get(member)) for member in members]
        cells.append((line, cells_of_line))
    return ExplainerTable(heading, columns, cells, caption)


def _find_warning(results: StoredResults, row: SummaryRow) -> str:
    """What the metric of a row warns of on its data set and model; empty without a warning."""
    metric = results.summary.find(row.data, row.model, row.label)
    if metric is None:
        return ""
    view = results.metric_results(metric.data, metric.model, metric.label)
    return find_words(view).caution(collect_facts(metric, view))


def _make_cell(results: StoredResults, row: SummaryRow | None) -> TableCell:
    if row is None:
        return TableCell("–")
    cell = describe_row(results, row)
    metric = results.summary.find(row.data, row.model, row.label)
    star = ""
    if metric is not None:
        star = mark_leaders(metric).get(row.explainer, "")
    word = ""
    if row.quality is not None:
        word = say("quality", row.quality)
    lines = [word, cell.interval, *cell.notes[:2]]
    small = "\n".join(filter(None, lines))
    return TableCell(cell.main, small, quality=row.quality, star=star)
