"""The summary as tables for `print` and for notebooks: a row for each explainer, a column for each metric."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from standfast.report.sentences import describe_decision, describe_failures, describe_misfits, say
from standfast.report.words import collect_facts, make_environment, words_of
from standfast.results.formatting import format_count, format_estimate, format_interval, to_ascii
from standfast.results.results import Results
from standfast.results.summary import MetricSummary, Summary, SummaryRow
from standfast.results.tables import count_explainers

_HEAD = 22  # characters of a line in the head of a column
_MARKS = {"best": "*", "tied": "="}
_MEANINGS = {
    "best": "* best: the best mean rank over the samples that all explainers have",
    "tied": "= not shown to be worse than the best (paired tests at 5%)",
}
_HINT = ".table() has these numbers, .best() the best explainers, .plot() draws them, .to_html() writes the report."


@dataclass(frozen=True)
class Column:
    """One metric of a table: the lines of its head, and for each explainer a cell and its mark."""

    head: tuple[str, ...]
    cells: dict[str, str]
    marks: dict[str, str]


@dataclass(frozen=True)
class Table:
    """What is shown of one data set and model."""

    title: str
    columns: list[Column]
    notes: list[str]


def format_text(results: Results, width: int | None = None, hint: bool = True) -> str:
    """The tables as ASCII text, and how to go on in Python, if `hint`.

    Lines have at most `width` characters where possible; by default the width of the terminal.
    """
    width = shutil.get_terminal_size((100, 24)).columns if width is None else width
    summary, lines = results.summary, []
    for table in _make_tables(results):
        columns = [replace(each, cells={n: to_ascii(cell) for n, cell in each.cells.items()}) for each in table.columns]
        lines += [f"{table.title}:", "", *_format_columns(columns, summary, width)]
        notes = [line for note in table.notes for line in textwrap.wrap(note, width)]
        lines += [*notes, ""] if notes else []
    if not lines:
        lines = ["No results yet.", ""]
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    lines += [line for note in _list_endings(results, hint) for line in wrapper.wrap(note)]
    return to_ascii("\n".join(lines))


def format_html(results: Results) -> str:
    """The tables as HTML for a notebook: no scripts, nothing from elsewhere, all names escaped."""
    template = make_environment().get_template("notebook.html")
    tables, endings = _make_tables(results), _list_endings(results, hint=True)
    return template.render(tables=tables, explainers=results.explainers, endings=endings)


def _make_tables(results: Results) -> list[Table]:
    summary = results.summary
    found = []
    for data, model in summary.pairs:
        metrics = summary.select(data, model)
        samples = summary.samples.get(data, 0)
        title = f"{count_explainers(results.explainers)} of {model} on {format_count(samples, 'sample')} of {data}"
        columns = [_make_column(each, summary, samples) for each in metrics]
        found.append(Table(f"{title}. {_name_intervals(summary)}", columns, _list_notes(results, metrics)))
    return found


def _make_column(metric: MetricSummary, summary: Summary, samples: int) -> Column:
    spec = metric.metric.spec
    rows = {row.explainer: row for row in metric.rows}
    better = (f"({spec.direction} is better)",) if spec.direction else ()
    return Column(
        (*_wrap_head(metric.label), *_wrap_head(spec.axis), *better),
        {name: _write_cell(rows.get(name), samples) for name in summary.explainers},
        {name: _MARKS.get(row.verdict or "", "") for name, row in rows.items()},
    )


def _write_cell(row: SummaryRow | None, samples: int) -> str:
    """The value in words, its interval, and the number of samples where it is not that of all."""
    if row is None:
        return "-"
    estimate, decimals = row.estimate, row.spec.decimals
    if estimate is None:
        return "failed" if row.error is not None else "-"
    text = format_estimate(estimate, decimals)
    interval = format_interval(estimate, decimals)
    text += f" {interval}" if interval else ""
    text += f" n={estimate.count}" if estimate.count < samples else ""
    return f"{text}, partly failed" if row.error is not None else text


def _wrap_head(name: str) -> list[str]:
    """A name in short lines, which break at spaces and underscores and never within a word."""
    lines = textwrap.wrap(name.replace("_", "_ "), _HEAD, break_long_words=False, break_on_hyphens=False)
    return [line.replace("_ ", "_") for line in lines]


def _format_columns(columns: Sequence[Column], summary: Summary, width: int) -> list[str]:
    """The columns that fit beside each other, the others below; there, controls without any number are left out."""
    first = max((len(name) for name in summary.explainers), default=0)
    blocks: list[list[Column]] = [[]]
    used = first
    for column in columns:
        if blocks[-1] and used + 2 + _find_width(column) > width:
            blocks.append([])
            used = first
        used += 2 + _find_width(column)
        blocks[-1].append(column)
    lines = []
    for block in blocks:
        for at in range(max((len(column.head) for column in block), default=0)):
            parts = [f"{''.join(column.head[at : at + 1]):>{_find_width(column) - 2}}  " for column in block]
            lines.append((" " * first + "  " + "  ".join(parts)).rstrip())
        for name in summary.explainers:
            cells = [column.cells[name] for column in block]
            if name in summary.controls and all(cell == "-" for cell in cells):
                continue
            marked = [f"{cell} {column.marks.get(name) or ' '}" for column, cell in zip(block, cells, strict=True)]
            parts = [f"{text:>{_find_width(column)}}" for column, text in zip(block, marked, strict=True)]
            lines.append("  ".join([f"{name:<{first}}", *parts]).rstrip())
        lines.append("")
    return lines


def _find_width(column: Column) -> int:
    return 2 + max(map(len, (*column.head, *column.cells.values())))


def _list_notes(results: Results, metrics: Sequence[MetricSummary]) -> list[str]:
    """What the marks mean, and what the table does not show."""
    used = {row.verdict for each in metrics for row in each.rows}
    parts = [meaning for verdict, meaning in _MEANINGS.items() if verdict in used]
    notes = ["; ".join(parts) + "."] if parts else []
    for each in metrics:
        leader = describe_leader(each)
        notes += [f"{each.label}: {leader}"] if leader else []
    for each in metrics:
        tests, spec = each.control_tests, each.metric.spec
        said = [say("controls", tests, spec.decimals)] if tests else []
        counts = [row.counts for row in each.rows]
        lost = sum(each.counted for each in counts) < sum(each.evaluated for each in counts)
        if spec.caution and (said or lost or each.metric.compared):
            said.append(spec.caution)
        notes += [f"{each.label}: {' '.join(said)}"] if said else []
    reasons: dict[str, list[str]] = {}
    for each in metrics:
        if each.decision.reason == "no result":
            continue
        if each.decision.state in ("open", "unable"):
            reasons.setdefault(describe_decision(each), []).append(each.label)
        shown = results.metric_results(each.data, each.model, each.label)
        warning = words_of(each.metric.presentation).caution(collect_facts(each, shown))
        notes += [f"{each.label}: {warning}"] if warning else []
    for reason, labels in reasons.items():
        which = "any metric" if len(labels) == len(metrics) > 1 else ", ".join(labels)
        notes.append(f"No mark for {which}: {reason}")
    return [*notes, *_list_counts(metrics)]


def describe_leader(metric: MetricSummary) -> str:
    """A sentence where the tests put another explainer first than the medians do; else empty.

    Ranks are within each sample, so both can be true at once.
    """
    rows = [row for row in metric.rows if row.value is not None and not row.control]
    spec = metric.metric.spec
    if not any(row.verdict == "best" for row in rows) or spec.direction is None:
        return ""
    choose = max if spec.direction == "higher" else min
    text = format_estimate(choose(rows, key=lambda row: row.value or 0.0).estimate, spec.decimals)
    first = [row.explainer for row in rows if format_estimate(row.estimate, spec.decimals) == text]
    leaders = [row.explainer for row in rows if row.verdict == "best"]
    if set(first) & set(leaders):
        return ""
    return say("other_leader", "median", first, text, leaders)


def _list_counts(metrics: Sequence[MetricSummary]) -> list[str]:
    """Why samples do not count, a line for each reason and for those whom it concerns."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in metrics:
        rows = [row for row in each.rows if row.counts.rows]
        concerned: dict[str, list[str]] = {}
        for row in rows:
            for part in row.counts.uncounted:
                concerned.setdefault(say("uncounted", part, row.spec), []).append(row.explainer)
        for words, names in concerned.items():
            who = "every explainer" if len(names) == len(rows) > 1 else ", ".join(names)
            found.setdefault((words, who), []).append(each.label)
    return [
        f"Not counted for {who}: {words}" + ("." if len(labels) == len(metrics) else f" ({', '.join(labels)}).")
        for (words, who), labels in found.items()
    ]


def _list_endings(results: Results, hint: bool) -> list[str]:
    """What was assumed, what failed or is missing, and, if `hint`, how to go on."""
    summary = results.summary
    assumed = (results.manifest.get("about") or {}).get("default neighbourhood")
    lines = [f"Neighbourhood: {assumed}."] if assumed else []
    lines += [f"Left out: {line}." for line in describe_misfits(results.manifest.get("misfits") or {})]
    lines += [f"Failed: {line}" for line in describe_failures(summary)]
    if summary.missing > 0:
        lines.append(f"{summary.missing} of {format_count(summary.planned, 'job')} were not run yet.")
    return [*lines, _HINT] if hint and len(results.samples) else lines


def _name_intervals(summary: Summary) -> str:
    known = [row.estimate.coverage for row in summary.rows if row.estimate is not None and row.estimate.low is not None]
    if not known:
        return "Median over samples"
    least = min(known)
    return f"Median over samples [{'95%' if least >= 0.945 else f'interval of at least {least:.0%}'}]"
