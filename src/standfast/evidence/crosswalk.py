"""Which numbers of a study speak to which clause of standards, frameworks and laws, and what they do not show.

This is a map for people who write documentation. It is no legal advice, and no number here is a proof of conformity.
`crosswalk.yaml` has the clauses, by their numbers and subjects. The texts themselves count; the drafts among them will
change.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
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

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of numbers that speak to it; empty where it is about the record as a whole."""
        return frozenset(kind for needed in self.shows for kind in needed)


def read_clauses() -> list[Clause]:
    """The clauses, in their order.

    >>> read_clauses()[0].document
    'ISO/IEC TR 24029-1:2021'
    """
    content = YAML(typ="safe").load(
        (files("standfast.evidence") / "crosswalk.yaml").read_text("utf-8")
    )
    clauses = []
    for entry in content["clauses"]:
        # a list cannot be the key of a mapping in YAML
        shows = {tuple(part["of"]): part["words"] for part in entry["shows"]}
        clauses.append(Clause(**{**entry, "shows": shows}))
    return clauses


def write_crosswalk(results: StoredResults, decisions: Decisions | None = None) -> str:
    """The page, for the metrics that these results have."""
    clauses = read_clauses()
    kinds = {label: _find_kind(metric) for label, metric in results.metrics.items()}
    tested = {row.label for row in results.summary.rows if row.control_test is not None}
    asked_for = {kind for clause in clauses for kind in clause.kinds}
    requirements = None
    if decisions is not None:
        requirements = dict.fromkeys(decision.requirement for decision in decisions.decisions)
    return fill_page(
        "CROSSWALK.md",
        clauses=[_describe_clause(clause, kinds, tested) for clause in clauses],
        silent=[label for label, kind in kinds.items() if kind not in asked_for],
        requirements=requirements,
        points=_list_points(results),
    )


def _describe_clause(clause: Clause, kinds: Mapping[str, str], tested: Set[str]) -> tuple[str, ...]:
    """A row of the table: the clause, and the metrics of the study that speak to it.

    Args:
        clause: of a document.
        kinds: of the numbers of each metric, by its label.
        tested: labels of the metrics that were compared with controls.
    """
    labels = [label for label, kind in kinds.items() if kind in clause.kinds]
    present = {kinds[label] for label in labels}
    # a comparison with controls speaks to a clause as well
    if tested & set(labels):
        present.add("tested")
    parts = []
    for needed, words in clause.shows.items():
        if not needed or present & set(needed):
            parts.append(words)
    of_all = not clause.kinds  # the record as a whole speaks to it, whatever was measured
    metrics = "the whole pack" if of_all else ", ".join(labels)
    shows = "; ".join(parts) if metrics else "nothing in this study"
    return clause.document, clause.clause, clause.asks, metrics or "none", shows, clause.leaves_open


def _list_points(results: StoredResults) -> list[dict[str, str]]:
    """The values of controls, and of models where there are several, which others can be compared with."""
    points = []
    for row in results.summary.rows:
        is_compared_with = row.control or len(results.models) > 1
        if row.estimate is not None and is_compared_with:
            kind = "control" if row.control else "model"
            point = {"kind": kind}
            point["where"] = f"{row.label}, {row.explainer}, {row.model} on {row.data}"
            point["value"] = format_estimate(row.estimate, row.spec.decimals)
            points.append(point)
    return points


def _find_kind(metric: ConfiguredMetric) -> str:
    """What the numbers of a configured metric are: its `evidence`, but `drawn` where a search only draws at random."""
    metric_class = find_metric_class(metric.metric)
    kind = ""
    if metric_class is not None:
        kind = metric_class.evidence
    options = flatten_options(metric.options)
    # a search that only draws is no worst case
    choices = {options.get("search"), options.get("attack")}
    drawn = kind == "searched" and choices & _RANDOM
    return "drawn" if drawn else kind
