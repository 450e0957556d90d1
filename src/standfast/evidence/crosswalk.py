"""Which numbers of a study speak to which clause of standards, frameworks and laws, and what they do not show.

This is a map for people who write documentation. It is no legal advice, and no number here is a proof of conformity.
`crosswalk.yaml` has the clauses, by their numbers and subjects. The texts themselves count; the drafts among them will
change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from ruamel.yaml import YAML

from standfast.checks.decision import Decisions
from standfast.checks.formats import fill_page
from standfast.metrics.lens.attribution_objectives import BLIND
from standfast.report.page.options import flatten_options
from standfast.results import ConfiguredMetric, StoredResults, find_metric_class
from standfast.results.formatting import format_estimate

#: searches and attacks that only draw at random
_RANDOM = {"random", *BLIND}


@dataclass(frozen=True)
class Clause:
    """A clause, and what our numbers have to do with it.

    Attributes:
        document, clause: where it stands.
        asks: what it asks for, in our words.
        shows: what numbers contribute, in parts; each by the kinds of numbers (`Metric.evidence`) of which it needs
            one, or by none for the record as a whole.
        leaves_open: what they do not show.
    """

    document: str
    clause: str
    asks: str
    shows: Mapping[tuple[str, ...], str]
    leaves_open: str


def read_clauses() -> list[Clause]:
    """The clauses, in their order.

    >>> read_clauses()[0].document
    'ISO/IEC TR 24029-1:2021'
    """
    content = YAML(typ="safe").load((files("standfast.evidence") / "crosswalk.yaml").read_text("utf-8"))
    return [
        Clause(**{**entry, "shows": {tuple(part["of"]): part["words"] for part in entry["shows"]}})
        for entry in content["clauses"]
    ]


def write_crosswalk(results: StoredResults, decisions: Decisions | None = None) -> str:
    """The page, for the metrics that these results have."""
    measured = {label: _find_kind(known) for label, known in results.metrics.items()}
    tested = {each.label for each in results.summary.metrics if any(row.control_test is not None for row in each.rows)}
    rows = []
    for clause in read_clauses():
        known = {kind for kinds in clause.shows for kind in kinds}
        own = [label for label, kind in measured.items() if kind in known]
        kinds = {measured[label] for label in own} | {"tested" for label in own if label in tested}
        parts = [words for needed, words in clause.shows.items() if not needed or kinds & set(needed)]
        found = ", ".join(own) if known else "the whole pack"
        shows = "; ".join(parts) if found else "nothing in this study"
        rows.append((clause.document, clause.clause, clause.asks, found or "none", shows, clause.leaves_open))
    spoken = {kind for clause in read_clauses() for kinds in clause.shows for kind in kinds}
    silent = [label for label, kind in measured.items() if kind not in spoken]
    requirements = None if decisions is None else dict.fromkeys(each.requirement for each in decisions.decisions)
    points = []
    for row in results.summary.rows:
        if row.estimate is not None and (row.control or len(results.models) > 1):
            kind, value = "control" if row.control else "model", format_estimate(row.estimate, row.spec.decimals)
            where = f"{row.label}, {row.explainer}, {row.model} on {row.data}"
            points.append({"kind": kind, "where": where, "value": value})
    return fill_page("CROSSWALK.md", clauses=rows, silent=silent, requirements=requirements, points=points)


def _find_kind(metric: ConfiguredMetric) -> str:
    """What the numbers of a configured metric are: its `evidence`, but `drawn` where a search only draws at random."""
    metric_class = find_metric_class(metric.metric)
    kind = "" if metric_class is None else metric_class.evidence
    options = flatten_options(metric.options)
    drawn = kind == "searched" and {options.get("search"), options.get("attack")} & _RANDOM
    return "drawn" if drawn else kind
