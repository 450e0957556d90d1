"""The numbers of corruption curves in two tables, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from standfast.report.charts import ExplainerTable, TableCell
from standfast.report.presentation.coarse_to_fine.drops import FINE, TAU, Drops
from standfast.report.presentation.estimates import make_cell

#: the names of numbers, with the titles of their columns and notes
_COARSE = (
    ("samples", "samples", "and those left out"),
    ("auc_top", "AUC top", "higher is better"),
    ("auc_bottom", "AUC bottom", "lower is better"),
    ("f1", "F1", "at most 1"),
    ("auc_share_above", f"drop ≥ {TAU:g}", "share of samples, over k"),
    ("gate", "gate", "area minus that of random maps"),
)
_FINE = (
    ("auc_skewness", "AUC skew", "absolute scale"),
    ("auc_kurtosis", "AUC kurt", "absolute scale"),
)


def draw_tables(drops: Drops, say: Callable[..., str], shares: bool = True) -> list[ExplainerTable]:
    """Draw the coarse numbers with the gate, and the fine numbers where there are samples for them.

    Where drops are no `shares` that are lost, F1, the share of large drops and the fine numbers mean nothing.
    """
    if not shares:
        columns = [column for column in _COARSE if column[0] not in ("f1", "auc_share_above")]
        return [_draw("Coarse numbers, and the gate", columns, drops, say("coarse"))]
    coarse = _draw("Coarse numbers, and the gate", _COARSE, drops, say("coarse"))
    has_top = any(curves.top is not None for curves in drops.curves.values())
    if not has_top or drops.fewest < FINE:
        return [coarse]
    return [coarse, _draw("Fine numbers", _FINE, drops, say("fine"))]


def _draw(
    heading: str, columns: Sequence[tuple[str, str, str]], drops: Drops, caption: str
) -> ExplainerTable:
    rows = []
    for name in drops.absolute:
        cells = [_make_cell(drops, name, key) for key, _, _ in columns]
        rows.append((name, cells))
    heads = [(title, note) for _, title, note in columns]
    return ExplainerTable(heading, heads, rows, caption)


def _make_cell(drops: Drops, name: str, key: str) -> TableCell:
    """A number of an explainer, faint where it does not count."""
    summary = drops.absolute[name]
    if key == "samples":
        left_out = f"{summary.left_out} left out" if summary.left_out else ""
        return TableCell(str(summary.samples), left_out)
    if key == "gate":
        return _show_gate(drops, name)
    needs_gate = key.endswith(("skewness", "kurtosis"))
    faint = needs_gate and not drops.may_be_read(name)
    if not summary.samples:
        return TableCell("–", "", faint)
    low, high = summary.interval(key)
    return make_cell(float(getattr(summary, key)), float(low), float(high), faint)


def _show_gate(drops: Drops, name: str) -> TableCell:
    if name == drops.random:
        return TableCell("reference")
    if name not in drops.gates or not drops.absolute[name].samples:
        return TableCell("–")
    gate = drops.gates[name]
    cell = make_cell(gate.difference, gate.low, gate.high)
    outcome = "passed" if gate.passed else "not passed"
    return TableCell(outcome, f"{cell.text} {cell.small}".strip())
