"""All coarse and fine numbers of corruption curves in tables, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping

from holdfast.charts import Table, TableCell
from holdfast.metrics.coarse_to_fine.gate import STARRED, Gate
from holdfast.metrics.coarse_to_fine.summary import CorruptionSummary
from holdfast.presentation.base import format_number
from holdfast.presentation.coarse_to_fine.drops import TAU, Drops
from holdfast.presentation.coarse_to_fine.words import gate_sentence, percent

_COARSE = (("auc_top", "AUC top"), ("auc_bottom", "AUC bottom"), ("f1", "F1"), ("f1_paper", "F1 as printed"))
_FINE = (("auc_skewness", "AUC skew"), ("auc_kurtosis", "AUC kurt"))
_CALLED = {"auc_top": "AUC top*", "f1": "F1*", "auc_skewness": "AUC skew*", "auc_kurtosis": "AUC kurt*"}


def draw_tables(drops: Drops) -> list[Table]:
    """The coarse numbers with the gate, which is also applied at the same share; the fine ones; the paper's starred."""
    found = [_coarse(drops), *_same_share(drops)]
    if any(curves.top is not None for curves in drops.curves.values()):
        found += [_fine(drops), *_starred(drops)]
    return found


def _coarse(drops: Drops) -> Table:
    columns = [
        ("samples", "and left out"),
        *((title, _SMALL.get(key, "")) for key, title in _COARSE),
        ("gate", f"AUC top less that of {drops.random}" if drops.random else "could not be applied"),
    ]
    rows = []
    for name, found in drops.absolute.items():
        left = [f"{found.left_out} left out"] if found.left_out else []
        flagged = drops.no_positive[name]
        left += [f"{flagged} with no positive relevance"] if flagged else []
        cells = [
            TableCell(str(found.samples), "; ".join(left)),
            *(_cell(found, key) for key, _ in _COARSE),
            _verdict(drops, name),
        ]
        rows.append((name, cells))
    caption = (
        "In brackets: 95% intervals over samples (bootstrap, BCa). Samples without positive relevance count, with a "
        "drop of 0. Left out: skipped under this explainer alone, or the model was not finite on a corrupted copy; "
        "what was skipped under all is in “Warnings and failures”. " + gate_sentence(drops)
    )
    return Table("Coarse numbers, and the gate", columns, rows, caption + _repeats(drops))


def _same_share(drops: Drops) -> list[Table]:
    """Who has more positive positions, and whether an area is larger where as many are replaced as at random."""
    if not drops.gates:
        return []
    columns = [
        ("replaced", "share of positions, in the end"),
        ("gate", f"AUC top less that of {drops.random}"),
        ("same share", "areas where both are measured"),
    ]
    rows = []
    for name, found in drops.absolute.items():
        share = percent(round(float(found.share[-1]), 2)) if found.samples else "–"
        rows.append((name, [TableCell(share), _verdict(drops, name), _verdict(drops, name, drops.to_common)]))
    caption = (
        "An area is held after the last positive position, so a map with more of them has a larger one by that alone. "
        f"Same share: the areas up to the share of positions that both replace, the explainer and {drops.random}. "
    )
    return [Table("The gate, and how many positions are positive", columns, rows, caption + gate_sentence(drops))]


_SMALL = {
    "auc_top": "more is better",
    "auc_bottom": "less is better",
    "f1": "1 at best",
    "f1_paper": "0.5 at best",
}


def _verdict(drops: Drops, name: str, gates: Mapping[str, Gate] | None = None) -> TableCell:
    if name == drops.random:
        return TableCell("reference")
    if name not in drops.gates or not drops.absolute[name].samples:
        return TableCell("–")
    found = (drops.gates if gates is None else gates)[name]
    between = _between(found.low, found.high)
    return TableCell(
        "passed" if found.passed else "not passed", f"{format_number(found.difference, 3)} {between}".strip()
    )


def _fine(drops: Drops) -> Table:
    beside = bool(drops.compared)
    columns = [(title, "absolute scale") for _, title in _FINE]
    columns += [(title, "compared scale") for _, title in _FINE] if beside else []
    columns += [(f"drop ≥ {TAU:g}", "share of samples, over k"), ("gate", "")]
    rows = []
    for name, found in drops.absolute.items():
        faint = not drops.counts(name)
        cells = [_cell(found, key, faint) for key, _ in _FINE]
        cells += [_cell(drops.compared.get(name), key, faint) for key, _ in _FINE] if beside else []
        verdict = _verdict(drops, name).text
        rows.append((name, [*cells, _cell(found, "auc_share_above"), TableCell(verdict)]))
    common = ""
    if beside:
        count = next(iter(drops.compared.values())).samples
        common = f" Compared: rescaled over these explainers, of the {count} samples that all of them have."
    caption = f"More is better in all columns. Absolute: rescaled by a fixed function.{common} {gate_sentence(drops)}"
    return Table("Fine numbers", columns, rows, caption + _repeats(drops))


def _starred(drops: Drops) -> list[Table]:
    if not drops.compared:
        return []
    columns = [(_CALLED[key], "0 to 1 over the explainers") for key in STARRED]
    rows = []
    for name, found in drops.compared.items():
        grey = not drops.counts(name)
        faint = {key: grey and key in ("auc_skewness", "auc_kurtosis") for key in STARRED}
        rows.append((name, [_cell(found, f"starred_{key}", faint[key]) for key in STARRED]))
    caption = (
        "As the paper prints them: the least of the explainers is 0 and the best 1, whatever lies between them, so "
        f"these numbers belong to this table only. {gate_sentence(drops)}"
    )
    return [Table("Starred numbers, rescaled over the explainers", columns, rows, caption + _repeats(drops))]


def _cell(found: CorruptionSummary | None, key: str, faint: bool = False) -> TableCell:
    if found is None or not found.samples:
        return TableCell("–", "", faint)
    value = found.starred[key.removeprefix("starred_")] if key.startswith("starred_") else getattr(found, key)
    low, high = (float(end) for end in found.interval(key)) if key in found.intervals else (math.nan, math.nan)
    return TableCell(format_number(float(value), 3), _between(low, high), faint)


def _between(low: float, high: float) -> str:
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return f"[{format_number(low, 3)}, {format_number(high, 3)}]"


def _repeats(drops: Drops) -> str:
    return f" Of the first of {drops.others + 1} repeats." if drops.others else ""
