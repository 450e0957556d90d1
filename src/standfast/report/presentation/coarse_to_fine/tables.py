"""All coarse and fine numbers of corruption curves in tables, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping

from standfast.metrics.coarse_to_fine.gate import Gate
from standfast.metrics.coarse_to_fine.summary import CorruptionSummary
from standfast.report.charts import Table, TableCell
from standfast.report.presentation.coarse_to_fine.drops import TAU, Drops
from standfast.report.presentation.coarse_to_fine.words import describe_gate, format_share
from standfast.results.formatting import format_number

_COARSE = (("auc_top", "AUC top"), ("auc_bottom", "AUC bottom"), ("f1", "F1"), ("f1_paper", "F1 as printed"))
_FINE = (("auc_skewness", "AUC skew"), ("auc_kurtosis", "AUC kurt"))
_STAR_TITLES = {"auc_top": "AUC top*", "f1": "F1*", "auc_skewness": "AUC skew*", "auc_kurtosis": "AUC kurt*"}


def draw_tables(drops: Drops) -> list[Table]:
    """Draw the tables: coarse numbers with the gate, the gate at the same share, fine numbers, starred numbers."""
    found = [_draw_coarse(drops), *_draw_same_share(drops)]
    if any(curves.top is not None for curves in drops.curves.values()):
        found += [_draw_fine(drops), *_draw_starred(drops)] if drops.enough else []
    return found


def _draw_coarse(drops: Drops) -> Table:
    common = math.isfinite(drops.common_share)
    until = f"mean drop up to {format_share(round(drops.common_share, 3))} of positions" if common else ""
    columns = [
        ("samples", "and samples left out"),
        *([("same share", until)] if common else []),
        *((title, _BEST.get(key, "")) for key, title in _COARSE),
        ("gate", f"area minus that of {drops.random}" if drops.random else "could not be applied"),
    ]
    rows = []
    for name, found in drops.absolute.items():
        notes = [f"{found.left_out} left out"] if found.left_out else []
        no_positive = drops.no_positive[name]
        notes += [f"{no_positive} with no positive relevance"] if no_positive else []
        cells = [
            TableCell(str(found.samples), "; ".join(notes)),
            *([_make_cell(drops.comparison.get(name), "auc_common")] if common else []),
            *(_make_cell(found, key) for key, _ in _COARSE),
            _show_verdict(drops, name),
        ]
        rows.append((name, cells))
    caption = (
        "Same share: how much is lost on average while the first positions are replaced, up to the share of positions "
        "that every explainer replaces; compare explainers by it. AUC top is also larger for a map with more positive "
        "positions. "
        if common
        else ""
    )
    caption += (
        "In brackets: 95% intervals over samples (bootstrap, BCa). Samples without positive relevance count with a "
        "drop of 0. Left out: samples that were skipped for this explainer only, or with a corrupted copy on which the "
        "model was not finite. Samples that were skipped for all explainers are in “Warnings and failures”. "
        + describe_gate(drops)
    )
    return Table("Coarse numbers, and the gate", columns, rows, caption + _note_repeats(drops))


def _draw_same_share(drops: Drops) -> list[Table]:
    """How many positions are positive, the gate, and whether the whole area is larger than that of random maps."""
    if not drops.gates:
        return []
    columns = [
        ("replaced", "share of positions at the last k"),
        ("gate", f"area minus that of {drops.random}, up to the share that both replace"),
        ("whole area", f"AUC top minus that of {drops.random}"),
    ]
    rows = []
    for name, found in drops.absolute.items():
        share = format_share(round(float(found.share[-1]), 2)) if found.samples else "–"
        rows.append(
            (name, [TableCell(share), _show_verdict(drops, name), _show_verdict(drops, name, drops.whole_areas)])
        )
    caption = (
        "A curve stays constant after its last positive position, so a map with more of them has a larger area for "
        "that reason alone, and random maps that are positive everywhere would pass by it. So the gate compares the "
        f"areas only up to the share of positions that both the explainer and {drops.random} replace. "
    )
    return [Table("The gate, and how many positions are positive", columns, rows, caption + describe_gate(drops))]


_BEST = {
    "auc_top": "higher is better",
    "auc_bottom": "lower is better",
    "f1": "at most 1",
    "f1_paper": "at most 0.5",
}


def _show_verdict(drops: Drops, name: str, gates: Mapping[str, Gate] | None = None) -> TableCell:
    if name == drops.random:
        return TableCell("reference")
    if name not in drops.gates or not drops.absolute[name].samples:
        return TableCell("–")
    found = (drops.gates if gates is None else gates)[name]
    between = _format_interval(found.low, found.high)
    words = ("passed", "not passed") if gates is None else ("larger", "not larger")
    return TableCell(words[0] if found.passed else words[1], f"{format_number(found.difference, 3)} {between}".strip())


def _draw_fine(drops: Drops) -> Table:
    has_comparison = bool(drops.comparison)
    columns = [(title, "absolute scale") for _, title in _FINE]
    columns += [(title, "compared scale") for _, title in _FINE] if has_comparison else []
    columns += [(f"drop ≥ {TAU:g}", "share of samples, over k"), ("gate", "")]
    rows = []
    for name, found in drops.absolute.items():
        faint = not drops.may_be_read(name)
        cells = [_make_cell(found, key, faint) for key, _ in _FINE]
        cells += [_make_cell(drops.comparison.get(name), key, faint) for key, _ in _FINE] if has_comparison else []
        verdict = _show_verdict(drops, name).text
        rows.append((name, [*cells, _make_cell(found, "auc_share_above"), TableCell(verdict)]))
    common = ""
    if has_comparison:
        count = next(iter(drops.comparison.values())).samples
        common = f" Compared scale: rescaled over these explainers, from the {count} samples that all of them have."
    caption = (
        f"Higher is better in all columns. Absolute scale: rescaled by a fixed function.{common} {describe_gate(drops)}"
    )
    return Table("Fine numbers", columns, rows, caption + _note_repeats(drops))


def _draw_starred(drops: Drops) -> list[Table]:
    if not drops.comparison:
        return []
    columns = [(title, "0 to 1 over the explainers") for title in _STAR_TITLES.values()]
    rows = []
    for name, found in drops.comparison.items():
        grey = not drops.may_be_read(name)
        faint = {key: grey and key in ("auc_skewness", "auc_kurtosis") for key in _STAR_TITLES}
        rows.append((name, [_make_cell(found, f"starred_{key}", faint[key]) for key in _STAR_TITLES]))
    caption = (
        "As in the paper: the lowest of the explainers is 0 and the highest is 1, however close they are. So these "
        f"numbers have a meaning in this table only. {describe_gate(drops)}"
    )
    return [Table("Starred numbers, rescaled over the explainers", columns, rows, caption + _note_repeats(drops))]


def _make_cell(found: CorruptionSummary | None, key: str, faint: bool = False) -> TableCell:
    if found is None or not found.samples:
        return TableCell("–", "", faint)
    value = found.starred[key.removeprefix("starred_")] if key.startswith("starred_") else getattr(found, key)
    low, high = (float(end) for end in found.interval(key)) if key in found.intervals else (math.nan, math.nan)
    return TableCell(format_number(float(value), 3), _format_interval(low, high), faint)


def _format_interval(low: float, high: float) -> str:
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return f"[{format_number(low, 3)}, {format_number(high, 3)}]"


def _note_repeats(drops: Drops) -> str:
    return f" From the first of {drops.others + 1} repeats." if drops.others else ""
