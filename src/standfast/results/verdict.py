"""The verdict: which explanations may be shown, which not and why, and what would decide the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from standfast.results.sanity import Accuracy, Question, Sanity
from standfast.results.summary import MetricSummary, Summary, SummaryRow


@dataclass(frozen=True)
class Ground:
    """Why an explainer may not be shown, or not yet.

    Attributes:
        explainer: its name.
        question: of the sanity check that it does not pass; None if it passes them.
        labels: of the metrics by which it is not good; empty if a check is the reason.
        quality: `"bad"`, `"control"` or `"undecided"` by these metrics.
        needed: about how many samples more would decide; None if that is not known.
    """

    explainer: str
    question: Question | None = None
    labels: tuple[str, ...] = ()
    quality: Literal["bad", "control", "undecided"] | None = None
    needed: int | None = None


@dataclass(frozen=True)
class Hollow:
    """Explainers that are more stable than all that pass the sanity checks, though they say little.

    Attributes:
        labels: of the metrics by which they are.
        explainers: the most stable first.
        sanities: the checks of each.
    """

    labels: tuple[str, ...]
    explainers: tuple[str, ...]
    sanities: tuple[Sanity, ...]


@dataclass(frozen=True)
class Verdict:
    """What may be done with the explanations of one data set and model.

    Attributes:
        data, model: names.
        show: the explainers that pass all sanity checks and are good by every metric that judges them, the best first:
            those that are best by most metrics.
        refuse: those that fail a check, or are bad or no better than a control by a metric, with the reasons.
        labels: of the metrics that judge those of `show`.
        undecided: all others, with what is undecided, or could not be measured.
        unjudged: those that pass all checks, but that no metric judges.
        weak: of `show`, the classes for which most maps are not stable, by explainer.
        hollow: where explainers that fail a check, or ignore the class, lead in stability: this is no merit.
        classes: the names of the classes; empty if they are not known.
        accuracy: of the model; None without labels.
        checked: whether there were sanity checks.
    """

    data: str
    model: str
    show: tuple[str, ...]
    labels: tuple[str, ...]
    refuse: tuple[Ground, ...]
    undecided: tuple[Ground, ...]
    unjudged: tuple[str, ...]
    weak: tuple[tuple[str, tuple[int, ...]], ...]
    hollow: tuple[Hollow, ...]
    classes: tuple[str, ...]
    accuracy: Accuracy | None
    checked: bool

    @property
    def reasons(self) -> list[tuple[list[str], Ground]]:
        """The explainers of `refuse` that have the same reason, with the first of their grounds."""
        reasons: dict[tuple[object, ...], tuple[list[str], Ground]] = {}
        for ground in self.refuse:
            reason = (ground.question, ground.labels, ground.quality)
            names, _ = reasons.setdefault(reason, ([], ground))
            names.append(ground.explainer)
        return list(reasons.values())


def reach_verdict(summary: Summary, data: str, model: str) -> Verdict:
    """The verdict on one data set and model."""
    metrics = summary.select(data, model)
    show: list[str] = []
    unjudged: list[str] = []
    refuse: list[Ground] = []
    undecided: list[Ground] = []
    rows_of = {
        name: [row for each in metrics for row in each.rows if row.explainer == name and row.counts.rows]
        for name in summary.explainers
        if name not in summary.controls
    }
    for name, rows in rows_of.items():
        sanity = summary.sanity.get((data, model, name))
        reason = None if sanity is None else sanity.reason
        if sanity is not None and reason is not None:
            ground = Ground(name, reason.question, needed=sanity.more if sanity.state == "undecided" else None)
            (refuse if sanity.state == "failed" else undecided).append(ground)
            continue
        found = _find_ground(name, rows) or _find_gap(name, metrics, summary.missing > 0)
        if found is not None:
            (undecided if found.quality == "undecided" else refuse).append(found)
        else:
            (show if any(row.quality == "good" for row in rows) else unjudged).append(name)
    wins = {name: sum(row.standing in ("best", "tied") for row in rows_of[name]) for name in show}
    show.sort(key=lambda name: -wins[name])
    weak = []
    for name in show:
        numbers = sorted({number for row in rows_of[name] for number in row.weak_classes})
        weak += [(name, tuple(numbers))] if numbers else []
    return Verdict(
        data,
        model,
        tuple(show),
        tuple(each.label for each in metrics if any(row.explainer in show and row.quality for row in each.rows)),
        tuple(refuse),
        tuple(undecided),
        tuple(unjudged),
        tuple(weak),
        tuple(_find_hollow(summary, data, model)),
        tuple(summary.classes.get(data, ())),
        summary.accuracies.get((data, model)),
        bool(summary.sanity),
    )


def _find_hollow(summary: Summary, data: str, model: str) -> list[Hollow]:
    found: dict[tuple[str, ...], list[str]] = {}
    for metric in summary.select(data, model):
        sign = -1 if metric.metric.spec.direction == "higher" else 1
        known = [row for row in metric.rows if row.references is not None and row.value is not None]
        # the most stable first, and of equal ones those that say something
        ordered = sorted(known, key=lambda row: (sign * (row.value or 0.0), _is_hollow(summary, row)))
        ahead = list(takewhile(lambda row: _is_hollow(summary, row), ordered))
        names = tuple(row.explainer for row in ahead)
        if 0 < len(ahead) < len(ordered):
            found.setdefault(names, []).append(metric.label)
    return [
        Hollow(tuple(labels), names, tuple(summary.sanity[data, model, name] for name in names))
        for names, labels in found.items()
    ]


def _is_hollow(summary: Summary, row: SummaryRow) -> bool:
    sanity = summary.sanity.get((row.data, row.model, row.explainer))
    return sanity is not None and (sanity.state == "failed" or sanity.find("class").state == "remark")


def _find_gap(name: str, metrics: Sequence[MetricSummary], unfinished: bool) -> Ground | None:
    """The metrics that judge other explainers, but not all of this one: parts failed, or have not been run."""
    labels = []
    for each in metrics:
        row = each.find_row(name)
        lost = unfinished if row is None else row.counts.failed_jobs > 0 or row.value is None
        if lost and any(other.quality for other in each.rows):
            labels.append(each.label)
    return Ground(name, None, tuple(labels), "undecided") if labels else None


def _find_ground(name: str, rows: Sequence[SummaryRow]) -> Ground | None:
    """The worst judgement of an explainer; None if all are good or missing."""
    qualities: tuple[Literal["bad", "control", "undecided"], ...] = ("bad", "control", "undecided")
    for quality in qualities:
        found = [row for row in rows if row.quality == quality]
        if found:
            more = [row.needed for row in found if row.needed is not None] if quality == "undecided" else []
            needed = max(more) if len(more) == len(found) else None
            return Ground(name, None, tuple(row.label for row in found), quality, needed)
    return None
