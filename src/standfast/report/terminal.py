"""The matrix of `print` and of notebooks: a row for each explainer, a column for each question, and the verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

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

_NAME = 20  # characters of a line of an explainer's name
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
class Column:
    """A column as text: the lines of its head, and those of the cell of each explainer."""

    head: list[str]
    cells: dict[str, list[str]]
    align: str = ">"

    @property
    def width(self) -> int:
        """Of the longest line."""
        return max(len(line) for lines in (self.head, *self.cells.values()) for line in lines)


def format_text(results: StoredResults, verbose: bool = False, width: int = 80) -> str:
    """The neighbourhood, and the matrix of each data set and model with its verdict, as ASCII text in short lines.

    No line has more than `width` characters, but for long names.

    With `verbose` also intervals and numbers of samples, what tests, controls and checks say, and why samples do not
    count. The reasons of cells without a number are always there.
    """
    lines = []
    for matrix in _make_matrices(results):
        title = f"{matrix.title} [95% interval]:" if verbose else f"{matrix.title}:"
        notes = _list_notes(results, matrix) if verbose else matrix.empty_cells
        lines += [*_wrap(title, width), "", *_format_matrix(matrix, verbose, width), ""]
        lines += _format_paragraph([matrix.verdict, *matrix.cautions], width)
        lines += write_steps(matrix.steps, width)
        lines += _format_paragraph(matrix.endings, width)
        lines += _format_paragraph(notes, width)
    lines = (
        [*_wrap(describe_neighbourhood(results), width), *lines]
        if lines
        else ["No results yet.", ""]
    )
    lines += [line for note in _list_endings(results) for line in _wrap(note, width, "  ")]
    return to_ascii("\n".join(lines)).rstrip()


def format_html(results: StoredResults) -> str:
    """The same as HTML for a notebook: no scripts, nothing from elsewhere, all names escaped."""
    template = make_environment().get_template("notebook.html")
    return template.render(
        beginning=describe_neighbourhood(results),
        matrices=_make_matrices(results),
        endings=_list_endings(results),
        write=_write_cell,
        say=say,
    )


def _format_paragraph(sentences: Sequence[str], width: int) -> list[str]:
    """Sentences, each in lines of its own, and an empty line below; nothing without any."""
    lines = [line for sentence in sentences for line in _wrap(sentence, width)]
    return [*lines, ""] if lines else []


def _make_matrices(results: StoredResults) -> list[Matrix]:
    summary, found = results.summary, []
    for data, model in summary.pairs:
        verdict = results.verdict(data, model)
        steps = describe_steps(results, data, model)
        samples = summary.samples.get(data, 0)
        where = f"{model} on {format_count(samples, 'sample')} of {data}"
        sanity = {
            at[2]: say("says", checks)
            for at, checks in summary.sanity.items()
            if at[:2] == (data, model)
        }
        found.append(
            Matrix(
                f"{count_explainers(results.explainers)} of {where}. Median over samples",
                samples,
                summary.sort_explainers(data, model),
                summary.controls,
                sanity,
                summary.select(data, model),
                describe_verdict(verdict),
                steps,
                describe_endings(steps, verdict),
                list_cautions(summary.select(data, model)),
                describe_uncounted(summary.select(data, model), only_empty_cells=True),
            )
        )
    return found


def _write_cell(row: SummaryRow | None, samples: int | None = None) -> str:
    """The value in words; given the number of all samples, with its interval, and its own number where it differs."""
    if row is None or row.estimate is None:
        return "-" if row is None or row.error is None else "failed"
    text = format_estimate(row.estimate, row.spec.decimals)
    if samples is not None:
        text = f"{text} {format_confidence(row.estimate, row.spec.decimals)}".rstrip()
        text += f" n={row.estimate.count}" if row.estimate.count < samples else ""
    return text


def _format_matrix(matrix: Matrix, verbose: bool, width: int) -> list[str]:
    """The table and its legend; columns that do not fit stand below."""
    groups = _split(
        Column([""], {name: textwrap.wrap(name, _NAME) for name in matrix.names}, "<"),
        matrix,
        verbose,
        width,
    )
    lines = [line for group in groups for line in [*_format_group(group, matrix), ""]]
    qualities = {row.quality for each in matrix.metrics for row in each.rows}
    stars = {star for each in matrix.metrics for star in each.stars.values()}
    marks = [
        f"{sign} {say('quality', word)}"
        for word, sign in _SIGNS.items()
        if word and word in qualities
    ]
    marks += [text for star, text in _WORDS.items() if star in stars]
    return [*lines, *_wrap(", ".join(marks), width)]


def _lay_out(matrix: Matrix, verbose: bool) -> list[Column]:
    columns = []
    if matrix.sanity:
        cells = {name: _wrap(words, 17) for name, words in matrix.sanity.items()}
        columns.append(Column(["says", "something?"], cells, "<"))
    for metric in matrix.metrics:
        head = [line.replace("_ ", "_") for line in _wrap(metric.label.replace("_", "_ "), 14)]
        better = metric.metric.spec.direction
        rows = {name: metric.find_row(name) for name in matrix.names}
        texts = {
            name: to_ascii(_write_cell(row, matrix.samples if verbose else None))
            for name, row in rows.items()
        }
        signs = {
            name: _SIGNS[row.quality if row else None] + _STARS[metric.stars.get(name)]
            for name, row in rows.items()
        }
        text, sign = (max(map(len, parts.values())) for parts in (texts, signs))
        cells = {name: [f"{texts[name]:>{text}} {signs[name]:{sign}}"] for name in matrix.names}
        columns.append(Column([*head, f"({better})"] if better else head, cells))
    return columns


def _split(first: Column, matrix: Matrix, verbose: bool, width: int) -> list[list[Column]]:
    """The columns that fit beside each other, with the names before them."""
    groups = [[first]]
    for column in _lay_out(matrix, verbose):
        if (
            len(groups[-1]) > 1
            and sum(2 + each.width for each in [*groups[-1], column]) - 2 > width
        ):
            groups.append([first])
        groups[-1].append(column)
    return groups


def _format_group(group: Sequence[Column], matrix: Matrix) -> list[str]:
    """Columns beside each other, controls below a line; controls without any number here are left out."""

    def write(cells: Sequence[Sequence[str]]) -> list[str]:
        rows = zip_longest(*cells, fillvalue="")
        parts = [
            [f"{text:{each.align}{each.width}}" for text, each in zip(row, group, strict=True)]
            for row in rows
        ]
        return ["  ".join(row).rstrip() for row in parts]

    lines = write([column.head[::-1] for column in group])[::-1]
    ruled = False
    for name in matrix.names:
        cells = [column.cells.get(name, [""]) for column in group]
        if name in matrix.controls and all(cell[0].strip() in ("", "-") for cell in cells[1:]):
            continue
        if name in matrix.controls and not ruled:
            lines.append("-" * max(map(len, lines)))
            ruled = True
        lines += write(cells)
    return lines


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Lines that break at spaces, and never within a word."""
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _list_notes(results: StoredResults, matrix: Matrix) -> list[str]:
    """What the tests, the controls and the checks say beyond the table."""
    notes, undecided = [], dict[str, list[str]]()
    for name in matrix.sanity:
        for found in results.sanity[matrix.metrics[0].data, matrix.metrics[0].model, name].checks:
            if found.state not in ("passed", "exempt"):
                notes.append(
                    say("check", name, found, MARGINS.get(found.question, (None, None))[1])
                )
    for each in matrix.metrics:
        tests, spec = each.control_tests, each.metric.spec
        shown = results.metric_results(each.data, each.model, each.label)
        controls = say("controls", tests, spec.decimals) if tests else ""
        warning = find_words(shown).caution(collect_facts(each, shown))
        said = " ".join(filter(None, (describe_leader(each), controls, spec.caution, warning)))
        notes += [f"{each.label}: {said}"] if said else []
        is_open = each.decision.state in ("open", "unable") or each.decision.reason == "unfit"
        if is_open and each.decision.reason not in ("no result", "unchanged"):
            undecided.setdefault(describe_decision(each), []).append(each.label)
    notes += [f"No best for {', '.join(labels)}: {reason}" for reason, labels in undecided.items()]
    return [*notes, *describe_uncounted(matrix.metrics)]


def _list_endings(results: StoredResults) -> list[str]:
    """What was left out, what failed, and what is missing."""
    summary = results.summary
    lines = [
        f"Left out: {line}." for line in describe_misfits(results.manifest.get("misfits") or {})
    ]
    lines += [f"Failed: {line}" for line in describe_failures(summary)]
    if summary.missing > 0:
        lines.append(
            f"{summary.missing} of {format_count(summary.planned, 'job')} were not run yet."
        )
    return lines
