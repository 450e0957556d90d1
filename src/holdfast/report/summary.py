"""The numbers of the summary table: medians over samples with bootstrap intervals, censored values as bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from holdfast.report.results import Array, Group, larger_is_closer

RESAMPLES = 2000


@dataclass(frozen=True)
class Median:
    """The median over samples, with the 95% percentile interval of 2000 bootstrap resamples.

    Attributes:
        value: the median; an upper bound where not `exact`.
        exact: False where censored values decide it, so that it is "at most" this.
        low, high: the interval; None with fewer than two samples. `low` is minus infinity where it is open.
        low_bound: where `low` is minus infinity: what it lies at or below.
        count: samples it was taken over.
    """

    value: float
    exact: bool
    low: float | None
    high: float | None
    low_bound: float | None
    count: int


def median(values: Array, censored: Array | None = None) -> Median | None:
    """The median of `values`, of which the `censored` ones are upper bounds; None of nothing.

    >>> median(np.array([-3.0, -20.0, -20.0]), np.array([False, True, True])).exact
    False
    >>> median(np.array([-3.0, -5.0, -20.0]), np.array([False, False, True])).exact
    True
    """
    count = len(values)
    if count == 0:
        return None
    lowest = values if censored is None else np.where(censored, -np.inf, values)
    value = float(np.median(values))
    exact = float(np.median(lowest)) == value
    if count < 2:
        return Median(value, exact, None, None, None, count)
    rng = np.random.Generator(np.random.PCG64(0))
    upper, lower = np.empty(RESAMPLES), np.empty(RESAMPLES)
    step = max(1, 1_000_000 // count)
    for start in range(0, RESAMPLES, step):
        rows = rng.integers(count, size=(min(step, RESAMPLES - start), count))
        upper[start : start + step] = np.median(values[rows], axis=1)
        lower[start : start + step] = np.median(lowest[rows], axis=1)
    high = float(np.percentile(upper, 97.5, method="higher"))
    low = float(np.percentile(lower, 2.5, method="lower"))
    bound = None if np.isfinite(low) else float(np.percentile(upper, 2.5, method="lower"))
    return Median(value, exact, low, high, bound, count)


def number(value: float | None, decimals: int | None = 2) -> str:
    """A number as the report prints it, with a real minus; four digits where `decimals` is None.

    >>> number(-0.5), number(float("-inf")), number(1234.5678, None)
    ('−0.50', '−∞', '1235')
    """
    if value is None or np.isnan(value):
        return "–"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.4g}" if decimals is None else f"{value:.{decimals}f}"
    if text.startswith("-") and not text.strip("-0."):
        text = text[1:]
    return text.replace("-", "−")


@dataclass(frozen=True)
class Cell:
    """One explainer's entry for one metric: the number, its interval, and what else must be known of it."""

    main: str = "–"
    interval: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quantity:
    """What a label measures and how to read it.

    Attributes:
        title: in words.
        axis: the short form for an axis.
        direction: `"higher"` or `"lower"` is more robust.
        kind: `"worst"`, `"probability"` or `"other"`.
        column: of the frame.
        decimals: to print; None for four digits.
    """

    title: str
    axis: str
    direction: str
    kind: str
    column: str
    decimals: int | None = field(default=None)


def quantity(group: Group) -> Quantity:
    """What the group's label measures. The event decides which direction is the robust one, not the metric alone."""
    metric, event = group.record.get("metric"), group.event
    if metric == "worst_case":
        closer = larger_is_closer(group.options)
        name = str(group.options.get("similarity", "similarity"))
        if event == "misclassification":
            return Quantity("Largest margin found, towards another class", "margin J", "lower", "worst", "margin", 2)
        if event == "changed_class":
            direction = "lower" if closer else "higher"
            title = "Most alike explanation found after the class has changed"
            return Quantity(title, f"similarity ({name})", direction, "worst", "similarity", 3)
        direction = "higher" if closer else "lower"
        title = "Least alike explanation found while the class holds"
        return Quantity(title, f"similarity ({name})", direction, "worst", "similarity", 3)
    if metric == "misinterpretation_probability":
        what = {
            "changed_explanation": "the explanation changes, the class holds",
            "changed_class": "the class changes, the explanation stays",
            "misclassification": "the class changes",
        }.get(str(event), str(event))
        return Quantity(f"ln P({what})", "ln P", "lower", "probability", "log_probability", 2)
    column = str(group.record.get("headline", "value"))
    title = {
        "max_sensitivity": "Max-sensitivity: largest distance between explanations",
        "local_lipschitz": "Local Lipschitz: largest slope between explanations",
    }.get(str(metric), f"{metric}: {column}".replace("_", " "))
    return Quantity(title, column.replace("_", " "), str(group.record.get("direction", "higher")), "other", column)


def counted(group: Group) -> Array:
    """Which samples enter the median: evaluated, with a number, and (for a changed class) with the class changed."""
    what = quantity(group)
    mask: Array = group.ok & np.isfinite(group.column(what.column))
    if what.kind == "worst" and group.event != "misclassification":
        mask &= group.flags("found")
    return mask


def cell(group: Group) -> Cell:
    """The summary of one group."""
    if group.frame is None:
        return Cell(notes=("failed, see Failures",))
    what, mask = quantity(group), counted(group)
    values = group.column(what.column)[mask]
    censored = group.flags("censored")[mask] if what.kind == "probability" else None
    middle = median(values, censored)
    notes = []
    if what.kind == "worst":
        notes += _worst_notes(group)
    if what.kind == "probability":
        notes += _probability_notes(group, mask)
    lost = int((group.ok & ~np.isfinite(group.column(what.column))).sum())
    notes += [f"{lost} without a number"] if lost else []
    notes += skipped(group)
    if middle is None:
        return Cell(notes=("nothing to take a median of", *notes))
    main = ("" if middle.exact else "≤ ") + number(middle.value, what.decimals)
    count = f"n = {middle.count}"
    if middle.low is None:
        return Cell(main, f"{count}: no interval", tuple(notes))
    if censored is not None and censored.all():
        return Cell(main, f"all censored, {count}", tuple(notes))
    low = number(middle.low, what.decimals)
    if middle.low_bound is not None:
        low = f"below {number(middle.low_bound, what.decimals)}"
    return Cell(main, f"[{low}, {number(middle.high, what.decimals)}], {count}", tuple(notes))


def _worst_notes(group: Group) -> list[str]:
    ok, notes = group.ok, []
    total = int(ok.sum())
    if group.event != "changed_explanation":
        notes.append(f"class changed: {int((group.flags('found') & ok).sum())} of {total}")
    if group.event != "misclassification":
        notes.append(f"misinterpreted: {int((group.flags('misinterpreted') & ok).sum())} of {total}")
    for column, title in (("sens_max", "largest distance"), ("sens_lips", "largest slope")):
        values = group.column(column)[ok]
        values = values[np.isfinite(values)]
        if len(values):
            notes.append(f"{title}: {number(float(np.median(values)), None)}")
    return notes


def _probability_notes(group: Group, mask: Array) -> list[str]:
    notes, censored = [], group.flags("censored") & mask
    width = (group.column("high") - group.column("low"))[mask & ~censored]
    width = width[np.isfinite(width)]
    if len(width):
        notes.append(f"each estimate: ± {number(float(np.median(width)) / 2)}")
    if censored.any():
        notes.append(f"censored: {int(censored.sum())} of {int(mask.sum())}")
    stalled = int((group.flags("stalled") & group.ok).sum())
    return [*notes, f"stalled: {stalled}"] if stalled else notes


def skipped(group: Group) -> list[str]:
    """How many samples were not evaluated, and why."""
    if group.frame is None:
        return []
    reasons = group.frame.filter(~(group.frame["status"] == "ok"))["status"].value_counts().sort("status")
    return [f"skipped: {count} {status}" for status, count in reasons.iter_rows()]
