"""Which numbers of a study speak to which clause of standards, frameworks and laws, and what they do not show.

This is a map for people who write documentation. It is no legal advice, and no number here is a proof of conformity.
`crosswalk.yaml` has the clauses, by their numbers and subjects. The texts themselves count; the drafts among them will
change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ruamel.yaml import YAML

from standfast.checks.decision import Decisions
from standfast.checks.formats import fill_page
from standfast.report.page.options import flatten_options
from standfast.results import Results
from standfast.results.formatting import format_estimate

#: metrics whose inputs are drawn, and names of searches and attacks that only draw at random
_SAMPLED = ("max_sensitivity", "local_lipschitz")
_RANDOM = ("random", "random_sign", "universal")
#: what the numbers of a group of metrics are; those of worst cases are `searched` or `drawn`
_KINDS = {"probabilities": "probability", "plausibility": "plausible"}


@dataclass(frozen=True)
class Clause:
    """A clause, and what our numbers have to do with it.

    Attributes:
        document, clause: where it stands.
        asks: what it asks for, in our words.
        metrics: registered names of the metrics that speak to it; empty for the record as a whole.
        shows: what their numbers contribute, in parts; each by the kinds of numbers of which it needs one.
        leaves_open: what they do not show.
    """

    document: str
    clause: str
    asks: str
    metrics: tuple[str, ...]
    shows: Mapping[tuple[str, ...], str]
    leaves_open: str


@cache
def _read_file() -> dict[str, Any]:
    content: dict[str, Any] = YAML(typ="safe").load((files("standfast.evidence") / "crosswalk.yaml").read_text("utf-8"))
    return content


def read_clauses() -> list[Clause]:
    """The clauses, in their order.

    >>> read_clauses()[0].document
    'ISO/IEC TR 24029-1:2021'
    """
    content, found = _read_file(), []
    for entry in content["clauses"]:
        metrics = tuple(metric for name in entry["metrics"] for metric in content["groups"].get(name, [name]))
        shows = {tuple(part["of"]): part["words"] for part in entry["shows"]}
        found.append(Clause(**{**entry, "metrics": metrics, "shows": shows}))
    return found


def write_crosswalk(results: Results, decisions: Decisions | None = None) -> str:
    """The page, for the metrics that these results have."""
    measured: dict[str, list[str]] = {}
    for label, known in results.metrics.items():
        measured.setdefault(known.metric, []).append(label)
    rows = []
    for clause in read_clauses():
        own = [label for metric in clause.metrics for label in measured.get(metric, ())]
        found = ", ".join(own) if clause.metrics else "the whole pack"
        kinds = {kind for label in own for kind in _list_kinds(results, label)}
        parts = [words for needed, words in clause.shows.items() if not needed or kinds & set(needed)]
        shows = "; ".join(parts) if found else "nothing in this study"
        rows.append((clause.document, clause.clause, clause.asks, found or "none", shows, clause.leaves_open))
    requirements = None if decisions is None else dict.fromkeys(each.requirement for each in decisions.decisions)
    points = []
    for row in results.summary.rows:
        if row.estimate is not None and (row.control or len(results.models) > 1):
            kind, value = "control" if row.control else "model", format_estimate(row.estimate, row.spec.decimals)
            where = f"{row.label}, {row.explainer}, {row.model} on {row.data}"
            points.append({"kind": kind, "where": where, "value": value})
    return fill_page("CROSSWALK.md", clauses=rows, requirements=requirements, points=points)


def _list_kinds(results: Results, name: str) -> list[str]:
    """What the numbers of a configured metric are: of worst cases how they were found, of others what they measure."""
    label, groups = results.metrics[name], _read_file()["groups"]
    if label.metric in groups["worst cases"]:
        options = flatten_options(label.options)
        drawn = label.metric in _SAMPLED or {options.get("search"), options.get("attack")} & set(_RANDOM)
        kind = "drawn" if drawn else "searched"
    else:
        kind = next((words for group, words in _KINDS.items() if label.metric in groups[group]), "faithful")
    metrics = (each for each in results.summary.metrics if each.label == name)
    tested = any(row.control_test is not None for each in metrics for row in each.rows)
    return [kind, *["tested"] * tested]  # against controls
