"""A LaTeX table of results, for the package booktabs: explainers down, configured metrics across."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from standfast.errors import check
from standfast.findings import Entry
from standfast.results.formatting import format_number
from standfast.statistics.paired import Interval

_ARROWS = {"higher": r"$\uparrow$", "lower": r"$\downarrow$"}
_SIGNS = {"upper": r"\leq ", "lower": r"\geq "}
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
    found: Sequence[Entry], caption: str | None = None, label: str | None = None, intervals: bool = True
) -> str:
    """The table: a float with caption and notes where `caption` is given, else only the `tabular`.

    Args:
        found: the entries to show.
        caption: plain text; special characters are escaped.
        label: for `\\ref`; it needs a caption.
        intervals: whether to print intervals beside the numbers.
    """
    check(label is None or caption is not None, "label", "none without a caption", repr(label))
    check(len(found) > 0, "source", "results with at least one row", "none")
    names = list(dict.fromkeys(entry.label for entry in found))
    several = len({(entry.data, entry.model) for entry in found}) > 1
    named = any(entry.explainer for entry in found)  # a single `Result` does not know its explainer
    lines = [rf"\begin{{tabular}}{{{'l' * named}{'r' * len(names)}}}", r"\toprule"]
    lines.append(_row([*["explainer"] * named, *map(escape, names)]))
    specs = {entry.label: entry.spec for entry in found}
    if any(spec.direction for spec in specs.values()):
        lines.append(_row([*[""] * named, *(_ARROWS.get(specs[name].direction or "", "") for name in names)]))
    for (data, model), group in groupby(found, key=lambda entry: (entry.data, entry.model)):
        lines.append(r"\midrule")
        if several:
            where = rf"\emph{{{escape(f'{data}, {model}')}}}"
            lines.append(rf"\multicolumn{{{len(names) + 1}}}{{l}}{{{where}}} \\")
        rows: dict[str, dict[str, str]] = {}
        for entry in group:
            rows.setdefault(entry.explainer, {})[entry.label] = _cell(entry, intervals)
        lines += [
            _row([*[escape(name)] * named, *(cells.get(each, "--") for each in names)]) for name, cells in rows.items()
        ]
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


def _cell(entry: Entry, intervals: bool) -> str:
    middle, decimals = entry.middle, entry.spec.decimals
    if middle is None or middle.bound == "unknown":
        return "--"
    text = _number(middle.value, decimals, _SIGNS.get(middle.bound or "", ""))
    if entry.best:
        text = rf"$\mathbf{{{text[1:-1]}}}$" if text.startswith("$") else rf"\textbf{{{text}}}"
    text += r"$^{\dagger}$" if entry.tied else ""
    if intervals and middle.low is not None and middle.high is not None:
        text += " " + _interval(middle, decimals)
    return text


def _interval(middle: Interval, decimals: int | None) -> str:
    """An interval in brackets; an end that is only known to lie beyond a bound shows the bound."""
    assert middle.low is not None
    assert middle.high is not None
    low, high = _number(middle.low, decimals), _number(middle.high, decimals)
    if middle.low == float("-inf") and middle.low_bound is not None:
        low = _number(middle.low_bound, decimals, _SIGNS["upper"])
    if middle.high == float("inf") and middle.high_bound is not None:
        high = _number(middle.high_bound, decimals, _SIGNS["lower"])
    return f"[{low}, {high}]"


def _number(value: float, decimals: int | None, sign: str = "") -> str:
    r"""A number as the report prints it, in mathematics mode where it is needed.

    >>> print(_number(-0.5, 2), _number(1e-12, None), _number(0.25, 2))
    $-0.50$ $1 \times 10^{-12}$ 0.25
    """
    plain = format_number(value, decimals).replace("−", "-").replace("∞", r"\infty")
    mantissa, e, exponent = plain.partition("e")
    if e:
        plain = rf"{mantissa} \times 10^{{{int(exponent)}}}"
    return plain if not sign and re.fullmatch(r"[0-9.]+", plain) else f"${sign}{plain}$"


def _notes(found: Sequence[Entry], intervals: bool) -> list[str]:
    """Sentences in LaTeX that say what the numbers, the bold type and the daggers of the table mean."""
    middles = [entry.middle for entry in found if entry.middle is not None]
    counts = sorted({middle.count for middle in middles}) or [0]
    samples = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    text = f"{found[0].statistic.capitalize()}s over {samples} sample{'' if counts == [1] else 's'}"
    with_ends = [middle.coverage for middle in middles if middle.low is not None]
    if intervals and with_ends:
        least = min(with_ends)
        text += r" with 95\% intervals" if least >= 0.945 else rf" with intervals of at least {100 * least:.0f}\%"
    sentences = [text + "."]
    if any(entry.best for entry in found):
        which = "the best mean rank over the samples that all explainers have"
        sentences.append(f"Bold: {which}, where tests show another to be worse.")
    if any(entry.tied for entry in found):
        test = "paired Wilcoxon tests with Holm's correction after Friedman's"
        sentences.append(rf"$\dagger$: not shown to be worse than the bold one ({test}, 5\%).")
    return sentences
