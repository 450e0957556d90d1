"""A LaTeX table of results, for the package booktabs: explainers down, configured metrics across."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

from standfast.errors import check
from standfast.report.words import make_environment
from standfast.results import StoredResults
from standfast.results.formatting import format_estimate, format_interval
from standfast.results.summary import SummaryRow
from standfast.value_spec import ValueSpec

if TYPE_CHECKING:
    import jinja2

_ARROWS = {"higher": r"$\uparrow$", "lower": r"$\downarrow$"}
#: marks of explainers that do not pass the sanity checks, and of values that are not shown to be worse than the best
_DOUBTFUL = r"$^{\ddagger}$"
_TIED = r"$^{\dagger}$"
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # otherwise the option of a \\ before it
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
}


def escape(text: str) -> str:
    r"""Escape a text, so that LaTeX prints it as it is, on one line.

    >>> print(escape("top_k: 50% & more"))
    top\_k: 50\% \& more
    """
    one_line = " ".join(text.split())
    return "".join(_SPECIAL.get(letter, letter) for letter in one_line)


def to_latex(
    results: StoredResults,
    *,
    caption: str | None = None,
    label: str | None = None,
    intervals: bool = True,
) -> str:
    """A LaTeX table for the package booktabs: a row per explainer, a column per configured metric.

    The explainer with the best mean rank is bold, where paired tests show another to be worse. A dagger marks those
    that the tests do not show to be worse than it, a double dagger those that do not pass the sanity checks, which are
    not ranked. Notes with these meanings and the number of samples are comments above the table, or part of the
    caption.

    Args:
        results: what to show.
        caption: puts the table into a float with this caption; special characters are escaped.
        label: for `\\ref`, such as `tab:robustness`; it needs a caption.
        intervals: whether to print intervals, in brackets.

    Raises:
        ArgumentError: no results, or no such label.
    """
    rows = results.summary.rows
    check(label is None or caption is not None, "label", "none without a caption", repr(label))
    check(len(rows) > 0, "results", "results with at least one row", "none")
    fits = label is None or re.fullmatch(r"[\w:.+-]+", label) is not None
    check(fits, "label", "letters, digits and : . + - _", repr(label))
    specs = {row.label: row.spec for row in rows}
    groups = []
    for (data, model), group in groupby(rows, key=lambda row: (row.data, row.model)):
        lines = _fill_group(list(group), list(specs), intervals)
        groups.append((escape(f"{data}, {model}"), lines))
    estimates = [row.estimate for row in rows if row.estimate is not None]
    coverages = [estimate.coverage for estimate in estimates if estimate.low is not None]
    return _read_template().render(
        samples=_describe_counts({estimate.count for estimate in estimates}),
        coverage=min(coverages, default=None) if intervals else None,
        verdicts={row.standing for row in rows},
        sanity={row.sanity for row in rows},
        caption=None if caption is None else escape(caption),
        label=label,
        columns="l" + "r" * len(specs),
        head=_fill_head(specs),
        groups=groups,
    )


@cache
def _read_template() -> jinja2.Template:
    environment = make_environment(autoescape=False).overlay("<%", "%>", "<<", ">>", "<#", "#>")
    return environment.get_template("table.tex")


def _fill_head(specs: Mapping[str, ValueSpec]) -> list[list[str]]:
    """The lines above the groups: labels, and arrows to the better side if any metric has one."""
    head = [["explainer", *map(escape, specs)]]
    if any(spec.direction for spec in specs.values()):
        arrows = [_ARROWS.get(spec.direction or "", "") for spec in specs.values()]
        head.append(["", *arrows])
    return head


def _describe_counts(counts: Set[int]) -> str:
    """The number of samples, or the smallest and the largest one."""
    smallest = min(counts, default=0)
    largest = max(counts, default=0)
    if smallest == largest:
        return str(smallest)
    return f"{smallest} to {largest}"


def _fill_group(
    rows: Sequence[SummaryRow], labels: Sequence[str], intervals: bool
) -> list[list[str]]:
    """The lines of the table for one data set and model: an explainer, and its cell for each label."""
    cells: dict[str, dict[str, str]] = {}
    doubtful = set()
    for row in rows:
        cells_by_label = cells.setdefault(row.explainer, {})
        cells_by_label[row.label] = _fill_cell(row, intervals)
        if row.sanity in ("failed", "undecided"):
            doubtful.add(row.explainer)
    lines = []
    for explainer, cells_by_label in cells.items():
        name = escape(explainer)
        if explainer in doubtful:
            name += _DOUBTFUL
        line = [name]
        for label in labels:
            line.append(cells_by_label.get(label, "--"))
        lines.append(line)
    return lines


def _fill_cell(row: SummaryRow, intervals: bool) -> str:
    estimate = row.estimate
    decimals = row.spec.decimals
    if estimate is None or estimate.bound == "unknown":
        return "--"
    text = _to_latex(format_estimate(estimate, decimals))
    if row.standing == "best":
        text = _make_bold(text)
    elif row.standing == "tied":
        text += _TIED
    ends = re.fullmatch(r"\[(.*), (.*)\]", format_interval(estimate, decimals))
    if intervals and ends:
        low, high = _to_latex(ends[1]), _to_latex(ends[2])
        text += f" [{low}, {high}]"
    return text


def _make_bold(text: str) -> str:
    is_formula = re.fullmatch(r"\$[^$]*\$", text) is not None
    if is_formula:
        return rf"$\mathbf{{{text[1:-1]}}}$"
    return rf"\textbf{{{text}}}"


def _to_latex(number: str) -> str:
    r"""A formatted number or end of an interval, in mathematics mode where it is needed.

    >>> print(_to_latex("−0.50"), _to_latex("1e−12"), _to_latex("0.25"), _to_latex("below 3"))
    $-0.50$ $1 \times 10^{-12}$ 0.25 $\leq 3$
    >>> print(_to_latex("≤ 2.4%"), _to_latex("1 in 10^17"))
    $\leq$ 2.4\% 1 in $10^{17}$
    """
    if re.fullmatch(r"[0-9.]+", number):
        return number
    if "%" in number or " in " in number:
        # a probability, in words
        words = re.sub("^(≤|below) ", r"$\\leq$ ", number)
        words = re.sub("^(≥|above) ", r"$\\geq$ ", words)
        return re.sub(r"10\^(\d+)", r"$10^{\1}$", words).replace("%", r"\%")
    text = number.replace("−", "-").replace("∞", r"\infty")
    text = text.replace("below ", r"\leq ").replace("≤ ", r"\leq ")
    text = text.replace("above ", r"\geq ").replace("≥ ", r"\geq ")
    return "$" + re.sub(r"e([+-]?\d+)$", _write_power, text) + "$"


def _write_power(exponent: re.Match[str]) -> str:
    return rf" \times 10^{{{int(exponent[1])}}}"
