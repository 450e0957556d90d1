"""Relations that must hold whatever the model: where stored estimates contradict each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.report.results import Group, Results, larger_is_closer, threshold
from holdfast.report.summary import number

LISTED = 50


def contradictions(results: Results) -> list[str]:
    """Sentences, one for each explainer and sample whose numbers cannot all be right, or whose search fell short."""
    found: list[str] = []
    for name in results.explainers:
        groups = [results.groups[name, label] for label in results.labels if (name, label) in results.groups]
        groups = [group for group in groups if group.frame is not None]
        probabilities = [g for g in groups if g.record.get("metric") == "misinterpretation_probability"]
        worst_cases = [g for g in groups if g.record.get("metric") == "worst_case"]
        for part in probabilities:
            for whole in probabilities:
                if (
                    part.event == "changed_class"
                    and whole.event == "misclassification"
                    and _same(part, whole, ("neighbourhood", "margin"))
                ):
                    found += _part_above_whole(part, whole)
            for worst in worst_cases:
                options: tuple[str, ...] = ("event", "similarity", "absolute", "explain", "margin")
                if worst.event == "misclassification":
                    options = ("event",)
                if _same(part, worst, options) and _region(part) == _region(worst):
                    found += _search_fell_short(part, worst)
    return found


def _same(a: Group, b: Group, names: tuple[str, ...]) -> bool:
    return all(a.options.get(name) == b.options.get(name) for name in names)


def _region(group: Group) -> Any:
    neighbourhood = group.options.get("neighbourhood")
    if isinstance(neighbourhood, dict):
        return neighbourhood.get("norm"), neighbourhood.get("radius")
    return neighbourhood


def _rows(group: Group) -> dict[int, int]:
    """Rows of the evaluated samples by sample number."""
    return {sample: row for row, sample in enumerate(group.samples) if group.ok[row]}


def _part_above_whole(part: Group, whole: Group) -> list[str]:
    low, high, rows, others = part.column("low"), whole.column("high"), _rows(part), _rows(whole)
    return [
        f"{part.explainer}, sample {sample}: ln P({part.label}) is at least {number(float(low[rows[sample]]))}, yet "
        f"ln P({whole.label}), of which it is a part, is at most {number(float(high[others[sample]]))}. "
        "One of the two estimates is wrong: more particles or moves are needed."
        for sample in rows
        if sample in others and low[rows[sample]] > high[others[sample]]
    ]


def _search_fell_short(estimate: Group, worst: Group) -> list[str]:
    limit = threshold(estimate.options)
    if limit is None and estimate.event != "misclassification":
        return []
    margin, similarity = worst.column("margin"), worst.column("similarity")
    sign = 1.0 if larger_is_closer(estimate.options) else -1.0
    if estimate.event == "misclassification":
        happened = margin >= 0
    elif estimate.event == "changed_explanation":
        happened = (margin < 0) & (sign * similarity < sign * float(limit or 0.0))
    else:
        happened = (margin >= 0) & (sign * similarity > sign * float(limit or 0.0))
    censored, log_probability = estimate.flags("censored"), estimate.column("log_probability")
    rows, others = _rows(estimate), _rows(worst)
    return [
        f"{estimate.explainer}, sample {sample}: {estimate.label} was seen (ln P about "
        f"{number(float(log_probability[rows[sample]]))}), but the search of {worst.label} ended short of it "
        f"(similarity {number(float(similarity[others[sample]]), 3)}, margin {number(float(margin[others[sample]]))}). "
        "The true worst case is worse than the one reported here: a larger budget or another search is needed."
        for sample in rows
        if sample in others
        and not censored[rows[sample]]
        and np.isfinite(log_probability[rows[sample]])
        and not happened[others[sample]]
    ]
