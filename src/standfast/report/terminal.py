"""The matrix of `print` and of notebooks: a row for each explainer, a column for each question, and the verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from standfast.report.facts import collect_facts, find_words
from standfast.report.next_steps import PrintedStep, describe_endings, describe_steps, write_steps
from standfast.report.sentences import (
    describe_decision,
    describe_failures,
    describe_leader,
    describe_misfits,
    describe_uncounted,
    describe_verdict,
    list_cautions,
    say,
)
from standfast.report.wording import describe_neighbourhood
from standfast.report.words import make_environment
from standfast.results import StoredResults
from standfast.results.formatting import format_confidence, format_count, format_estimate, to_ascii
from standfast.results.quality import Quality
from standfast.results.sanity import MARGINS
from standfast.results.summary import MetricSummary, Star, SummaryRow
from standfast.results.tables import count_explainers

if TYPE_CHECKING:
    import jinja2

#: characters of a line of an explainer's name
_NAME = 20
_SIGNS: dict[Quality | None, str] = {
    "good": "+",
    "control": "o",
    "bad": "x",
    "undecided": "?",
    None: " ",
}
_STARS: dict[Star | None, str] = {"alone": "*", "tied": "=", None: ""}
_WORDS: dict[Star, str] = {"alone": "* best alone", "tied": "= one of several best"}


@dataclass(frozen=True)
class Matrix:
    """One data set and model.

    Attributes:
        title: what was evaluated.
        samples: how many the data set has.
        names: of the explainers, in the order of the rows.
        controls: those that are only references.
        sanity: whether the maps of an explainer say something, or why not; empty without checks.
        metrics: the columns.
        verdict: in words.
        steps: what to do next.
        endings: what stands below the steps.
        cautions: which metrics tell nothing apart.
        empty_cells: why explainers that were evaluated have no number.
    """

    title: str
    samples: int
    names: list[str]
    controls: Sequence[str]
    sanity: dict[str, str]
    metrics: list[MetricSummary]
    verdict: str
    steps: list[PrintedStep]
    endings: list[str]
    cautions: list[str]
    empty_cells: list[str]


@dataclass(frozen=True)
class TextColumn:
    """A column as text: the lines of its head, and those of the cell of each explainer."""

    head: list[str]
    cells: dict[str, list[str]]
    align: str = ">"

    @property
    def width(self) -> int:
        """Of the longest line."""
        lines = list(self.head)
        for lines_of_cell in self.cells.values():
            lines += lines_of_cell
        return max(map(len, lines))


def format_text(results: StoredResults, verbose: bool = False, width: int = 80) -> str:
    """The neighbourhood, and the matrix of each data set and model with its verdict, as ASCII text in short lines.

    No line has more than `width` characters, but for long names.

    With `verbose` also intervals and numbers of samples, what tests, controls and checks say, and why samples do not
    count. The reasons of cells without a number are always there.
    """
    lines = []
    for matrix in _make_matrices(results):
        if verbose:
            title = f"{matrix.title} [95% interval]:"
        else:
            title = f"{matrix.title}:"
        notes = _list_notes(results, matrix) if verbose else matrix.empty_cells
        table = _format_matrix(matrix, verbose, width)
        lines += [*_wrap(title, width), "", *table, ""]
        lines += _format_paragraph([matrix.verdict, *matrix.cautions], width)
        lines += write_steps(matrix.steps, width)
        lines += _format_paragraph(matrix.endings, width)
        lines += _format_paragraph(notes, width)
    if not lines:
        lines = ["No results yet.", ""]
    elif neighbourhood := describe_neighbourhood(results):
        lines = [*_wrap(neighbourhood, width), *lines]
    for note in _list_endings(results):
        lines += _wrap(note, width, "  ")
    return to_ascii("\n".join(lines)).rstrip()


def format_html(results: StoredResults) -> str:
    """The same as HTML for a notebook: no scripts, nothing from elsewhere, all names escaped."""
    return _read_notebook_template().render(
        beginning=describe_neighbourhood(results),
        matrices=_make_matrices(results),
        endings=_list_endings(results),
        write=_write_cell,
        say=say,
    )


@cache
def _read_notebook_template() -> jinja2.Template:
    return make_environment().get_template("notebook.html")


def _format_paragraph(sentences: Sequence[str], width: int) -> list[str]:
    """Sentences, each in lines of its own, and an empty line below; nothing without any."""
    lines: list[str] = []
    for sentence in sentences:
        lines += _wrap(sentence, width)
    if lines:
        lines.append("")
    return lines


def _make_matrices(results: StoredResults) -> list[Matrix]:
    summary = results.summary
    matrices = []
    for data, model in summary.pairs:
        verdict = results.verdict(data, model)
        steps = describe_steps(results, data, model)
        metrics = summary.select(data, model)
        samples = summary.samples.get(data, 0)
        evaluated = f"{model} on {format_count(samples, 'sample')} of {data}"
        sanity = {}
        for (data_of, model_of, explainer), checks in summary.sanity.items():
            if (data_of, model_of) == (data, model):
                sanity[explainer] = say("says", checks)
        matrices.append(
            Matrix(
                f"{count_explainers(results.explainers)} of {evaluated}. Median over samples",
                samples,
                summary.sort_explainers(data, model),
                summary.controls,
                sanity,
                metrics,
                describe_verdict(verdict),
                steps,
                describe_endings(steps, verdict),
                list_cautions(metrics),
                describe_uncounted(metrics, only_empty_cells=True),
            )
        )
    return matrices


def _write_cell(row: SummaryRow | None, samples: int | None = None) -> str:
    """The value in words; given the number of all samples, with its interval, and its own number where it differs."""
    if row is None:
        return "-"
    if row.estimate is None:
        if row.error is None:
            return "-"
        return "failed"
    text = format_estimate(row.estimate, row.spec.decimals)
    if samples is not None:
        confidence = format_confidence(row.estimate, row.spec.decimals)
        text = f"{text} {confidence}".rstrip()
        if row.estimate.count < samples:
            text += f" n={row.estimate.count}"
    return text


def _format_matrix(matrix: Matrix, verbose: bool, width: int) -> list[str]:
    """The table and its legend; columns that do not fit stand below."""
    cells_of_names = {name: textwrap.wrap(name, _NAME) for name in matrix.names}
    names = TextColumn([""], cells_of_names, "<")
    lines: list[str] = []
    for group in _split(names, matrix, verbose, width):
        lines += [*_format_group(group, matrix), ""]
    marks = ", ".join(_explain_marks(matrix))
    return [*lines, *_wrap(marks, width)]


def _explain_marks(matrix: Matrix) -> list[str]:
    """What the signs mean, of those that the table has."""
    qualities = {row.quality for metric in matrix.metrics for row in metric.rows}
    stars = {star for metric in matrix.metrics for star in metric.stars.values()}
    marks = []
    for quality, sign in _SIGNS.items():
        if quality is not None and quality in qualities:
            marks.append(f"{sign} {say('quality', quality)}")
    for star, text in _WORDS.items():
        if star in stars:
            marks.append(text)
    return marks


def _lay_out(matrix: Matrix, verbose: bool) -> list[TextColumn]:
    """The columns behind the names: the checks, and one for each metric."""
    columns = []
    if matrix.sanity:
        cells = {name: _wrap(words, 17) for name, words in matrix.sanity.items()}
        columns.append(TextColumn(["says", "something?"], cells, "<"))
    samples = matrix.samples if verbose else None
    for metric in matrix.metrics:
        columns.append(_lay_out_metric(matrix, metric, samples))
    return columns


def _lay_out_metric(matrix: Matrix, metric: MetricSummary, samples: int | None) -> TextColumn:
    """The values of a metric with their signs; `samples` is as in `_write_cell`."""
    # a label may be broken behind an underscore
    breakable = metric.label.replace("_", "_ ")
    head = [line.replace("_ ", "_") for line in _wrap(breakable, 14)]
    better = metric.metric.spec.direction
    if better:
        head.append(f"({better})")
    texts = {}
    signs = {}
    for name in matrix.names:
        row = metric.find_row(name)
        texts[name] = to_ascii(_write_cell(row, samples))
        quality = None
        if row is not None:
            quality = row.quality
        star = _STARS[metric.stars.get(name)]
        signs[name] = _SIGNS[quality] + star
    widest_text = max(map(len, texts.values()))
    widest_sign = max(map(len, signs.values()))
    cells = {
        name: [f"{texts[name]:>{widest_text}} {signs[name]:{widest_sign}}"] for name in matrix.names
    }
    return TextColumn(head, cells)


def _split(first: TextColumn, matrix: Matrix, verbose: bool, width: int) -> list[list[TextColumn]]:
    """The columns that fit beside each other, with the names before them."""
    groups = [[first]]
    for column in _lay_out(matrix, verbose):
        # two blanks between columns
        widths = [beside.width for beside in (*groups[-1], column)]
        needed = sum(2 + width_of_column for width_of_column in widths) - 2
        if len(groups[-1]) > 1 and needed > width:
            groups.append([first])
        groups[-1].append(column)
    return groups


def _format_group(group: Sequence[TextColumn], matrix: Matrix) -> list[str]:
    """Columns beside each other, controls below a line; controls without any number here are left out."""

    # a head stands at the bottom of its lines, and a cell at the top
    reversed_heads = [column.head[::-1] for column in group]
    heads = _write_lines(group, reversed_heads)
    lines = heads[::-1]
    ruled = False
    for name in matrix.names:
        cells = [column.cells.get(name, [""]) for column in group]
        is_control = name in matrix.controls
        is_empty = all(cell[0].strip() in ("", "-") for cell in cells[1:])
        if is_control and is_empty:
            continue
        if is_control and not ruled:
            lines.append("-" * max(map(len, lines)))
            ruled = True
        lines += _write_lines(group, cells)
    return lines


def _write_lines(columns: Sequence[TextColumn], cells: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a row, as many as its highest cell has."""
    lines = []
    for texts in zip_longest(*cells, fillvalue=""):
        aligned = [
            f"{text:{column.align}{column.width}}"
            for text, column in zip(texts, columns, strict=True)
        ]
        lines.append("  ".join(aligned).rstrip())
    return lines


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Lines that break at spaces, and never within a word."""
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _list_notes(results: StoredResults, matrix: Matrix) -> list[str]:
    """What the tests, the controls and the checks say beyond the table."""
    notes = _list_check_notes(results, matrix)
    labels_of: dict[str, list[str]] = {}
    for metric in matrix.metrics:
        view = results.metric_results(metric.data, metric.model, metric.label)
        spec = metric.metric.spec
        controls = ""
        if metric.control_tests:
            controls = say("controls", metric.control_tests, spec.decimals)
        warning = find_words(view).caution(collect_facts(metric, view))
        sentences = filter(None, (describe_leader(metric), controls, spec.caution, warning))
        text = " ".join(sentences)
        if text:
            notes.append(f"{metric.label}: {text}")
        decision = metric.decision
        is_open = decision.state in ("open", "unable") or decision.reason == "unfit"
        if is_open and decision.reason not in ("no result", "unchanged"):
            labels_of.setdefault(describe_decision(metric), []).append(metric.label)
    for reason, labels in labels_of.items():
        notes.append(f"No best for {', '.join(labels)}: {reason}")
    return [*notes, *describe_uncounted(matrix.metrics)]


def _list_check_notes(results: StoredResults, matrix: Matrix) -> list[str]:
    """What the checks say that are not passed."""
    notes = []
    for name in matrix.sanity:
        first = matrix.metrics[0]
        sanity = results.sanity[first.data, first.model, name]
        for check in sanity.checks:
            if check.state not in ("passed", "exempt"):
                margin = MARGINS.get(check.question)
                limit = None
                if margin is not None:
                    limit = margin.value
                notes.append(say("check", name, check, limit))
    return notes


def _list_endings(results: StoredResults) -> list[str]:
    """What was left out, what failed, and what is missing."""
    summary = results.summary
    misfits = describe_misfits(results.manifest.get("misfits") or {})
    lines = [f"Left out: {misfit}." for misfit in misfits]
    lines += [f"Failed: {failure}" for failure in describe_failures(summary)]
    if summary.missing > 0:
        planned = format_count(summary.planned, "job")
        lines.append(f"{summary.missing} of {planned} were not run yet.")
    return lines
