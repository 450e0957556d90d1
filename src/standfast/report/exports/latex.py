"""A LaTeX table of results, for the package booktabs: explainers down, configured metrics across."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from standfast.errors import check
from standfast.results.formatting import format_estimate, format_interval
from standfast.results.summary import SummaryRow

_ARROWS = {"higher": r"$\uparrow$", "lower": r"$\downarrow$"}
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
    "[": "{[}",  # the option of a \\ before it otherwise
    "]": "{]}",
    "*": "{*}",
}


def escape(text: str) -> str:
    r"""Escape a text, so that LaTeX prints it as it is, on one line.

    >>> print(escape("top_k: 50% & more"))
    top\_k: 50\% \& more
    """
    return "".join(_SPECIAL.get(letter, letter) for letter in " ".join(text.split()))


def format_table(
    found: Sequence[SummaryRow], caption: str | None = None, label: str | None = None, intervals: bool = True
) -> str:
    """The table: a float with caption and notes where `caption` is given, else only the `tabular`.

    Args:
        found: the rows to show.
        caption: plain text; special characters are escaped.
        label: for `\\ref`; it needs a caption.
        intervals: whether to print intervals beside the numbers.
    """
    check(label is None or caption is not None, "label", "none without a caption", repr(label))
    check(len(found) > 0, "source", "results with at least one row", "none")
    names = list(dict.fromkeys(row.label for row in found))
    several = len({(row.data, row.model) for row in found}) > 1
    named = any(row.explainer for row in found)  # a single `Result` does not know its explainer
    lines = [rf"\begin{{tabular}}{{{'l' * named}{'r' * len(names)}}}", r"\toprule"]
    lines.append(_row([*["explainer"] * named, *map(escape, names)]))
    specs = {row.label: row.spec for row in found}
    if any(spec.direction for spec in specs.values()):
        lines.append(_row([*[""] * named, *(_ARROWS.get(specs[name].direction or "", "") for name in names)]))
    for (data, model), group in groupby(found, key=lambda row: (row.data, row.model)):
        lines.append(r"\midrule")
        if several:
            where = rf"\emph{{{escape(f'{data}, {model}')}}}"
            lines.append(rf"\multicolumn{{{len(names) + 1}}}{{l}}{{{where}}} \\")
        cells_of: dict[str, dict[str, str]] = {}
        for row in group:
            cells_of.setdefault(row.explainer, {})[row.label] = _cell(row, intervals)
        for name, cells in cells_of.items():
            lines.append(_row([*[escape(name)] * named, *(cells.get(each, "--") for each in names)]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    notes = _notes(found, intervals)
    if caption is None:
        return "\n".join([r"% needs \usepackage{booktabs}", *(f"% {note}" for note in notes), *lines]) + "\n"
    head = [r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering"]
    sentence = escape(caption) if caption.rstrip().endswith((".", "!", "?")) else escape(caption) + "."
    head.append(rf"\caption{{{' '.join([sentence, *notes])}}}")
    if label is not None:
        check(re.fullmatch(r"[\w:.+-]+", label) is not None, "label", "letters, digits and : . + - _", repr(label))
        head.append(rf"\label{{{label}}}")
    return "\n".join([*head, *lines, r"\end{table}"]) + "\n"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(row: SummaryRow, intervals: bool) -> str:
    estimate, decimals = row.estimate, row.spec.decimals
    if estimate is None or estimate.bound == "unknown":
        return "--"
    text = _to_latex(format_estimate(estimate, decimals))
    if row.verdict == "best":
        text = rf"$\mathbf{{{text[1:-1]}}}$" if text.startswith("$") else rf"\textbf{{{text}}}"
    text += r"$^{\dagger}$" if row.verdict == "tied" else ""
    ends = re.fullmatch(r"\[(.*), (.*)\]", format_interval(estimate, decimals))
    if intervals and ends:
        text += " [" + ", ".join(_to_latex(end) for end in ends.groups()) + "]"
    return text


def _to_latex(number: str) -> str:
    r"""A formatted number or end of an interval, in mathematics mode where it is needed.

    >>> print(_to_latex("−0.50"), _to_latex("1e−12"), _to_latex("0.25"), _to_latex("below 3"))
    $-0.50$ $1 \times 10^{-12}$ 0.25 $\leq 3$
    """
    if re.fullmatch(r"[0-9.]+", number):
        return number
    text = number.replace("−", "-").replace("∞", r"\infty")
    text = text.replace("below ", r"\leq ").replace("≤ ", r"\leq ").replace("above ", r"\geq ").replace("≥ ", r"\geq ")
    return "$" + re.sub(r"e([+-]?\d+)$", lambda found: rf" \times 10^{{{int(found[1])}}}", text) + "$"


def _notes(found: Sequence[SummaryRow], intervals: bool) -> list[str]:
    """Sentences in LaTeX that say what the numbers, the bold type and the daggers of the table mean."""
    estimates = [row.estimate for row in found if row.estimate is not None]
    counts = sorted({estimate.count for estimate in estimates}) or [0]
    samples = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    text = f"{found[0].statistic.capitalize()}s over {samples} sample{'' if counts == [1] else 's'}"
    with_ends = [estimate.coverage for estimate in estimates if estimate.low is not None]
    if intervals and with_ends:
        least = min(with_ends)
        text += r" with 95\% intervals" if least >= 0.945 else rf" with intervals of at least {100 * least:.0f}\%"
    sentences = [text + "."]
    if any(row.verdict == "best" for row in found):
        which = "the best mean rank over the samples that all explainers have"
        sentences.append(f"Bold: {which}, where tests show another to be worse.")
    if any(row.verdict == "tied" for row in found):
        test = "paired Wilcoxon tests with Holm's correction after Friedman's"
        sentences.append(rf"$\dagger$: not shown to be worse than the bold one ({test}, 5\%).")
    return sentences
