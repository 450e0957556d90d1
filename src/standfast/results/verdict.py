"""The verdict: which explanations may be shown, which not and why, and what would decide the rest.

An explanation may be shown only where three kinds of questions were asked, and all were answered well: the sanity
checks, a measure of stability that varied something, and a measure of faithfulness. So leaving out a question never
earns more than asking it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal, get_args

import numpy as np

from standfast.results.agreement import Disagreement
from standfast.results.sanity import Accuracy, Check, Question, Sanity
from standfast.results.summary import MetricSummary, Summary, SummaryRow
from standfast.statistics.paired import merge_rounding

#: an explainer is refused by metrics if the error of that, over all explainers and metrics, is at most this
LEVEL = 0.05

#: more samples than so many times those that there are, are no advice: the value then lies within a quarter of its
#: interval's half width from the margin, so even the side on which it will be is open
_FAR = 16
#: the kinds of questions without which no explanation may be shown
Kind = Literal["checks", "stability", "faithfulness"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Ground:
    """Why an explainer may not be shown, or not yet.

    Attributes:
        explainer: its name.
        question: of the sanity check that it does not pass; None if it passes them.
        labels: of the metrics by which it is not good; empty if a check is the reason.
        quality: `"bad"`, `"control"` or `"undecided"` by these metrics.
        needed: about how many samples more would decide; None if that is not known, or if they are so many times those
            that there are that not even the side is in sight (`_FAR`).
        is_open: whether it is not decided yet. A quality of `"bad"` or `"control"` is open if it is not certain for so
            many explainers and metrics (`LEVEL`).
        open_check: where metrics refuse it, the sanity check that is not decided either; None if it passes them.
    """

    explainer: str
    question: Question | None = None
    labels: tuple[str, ...] = ()
    quality: Literal["bad", "control", "undecided"] | None = None
    needed: int | None = None
    is_open: bool = False
    open_check: Check | None = None

    @property
    def needed_range(self) -> tuple[int, int] | None:
        """Between which numbers of further samples it is likely to be decided; None if `needed` is not known.

        In simulations half of such cases were decided with the first number, and seven of ten with the second:
        `benchmarks/verdict/samples_needed.py`.

        >>> Ground("saliency", None, needed=20).needed_range
        (20, 80)
        """
        if self.needed is None:
            return None
        return (self.needed, 4 * self.needed)

    @property
    def quality_name(self) -> str:
        """The quality; of a check, which has none, that it is undecided."""
        return self.quality or "undecided"


@dataclass(frozen=True)
class Partial:
    """What was asked of an explainer that passes all of it, though not all kinds of questions were asked.

    Attributes:
        explainer: its name.
        labels: of the metrics by which it is good.
        passed: the kinds of questions that it passes.
        missing: the kinds that were not asked; one at least.
        idle: the labels of measures of stability that do not count, since they had nothing to vary for it, or changed
            no map of any explainer.
    """

    explainer: str
    labels: tuple[str, ...]
    passed: tuple[Kind, ...]
    missing: tuple[Kind, ...]
    idle: tuple[str, ...] = ()


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
        show: the explainers that pass all sanity checks and are good by every metric that judges them, among them one
            of stability and one of faithfulness (`KINDS`), the best first: those that are best by most metrics.
        refuse: those that fail a check, or are bad or no better than a control by a metric, with the reasons.
        labels: of the metrics that judge those of `show`; `stable_by` and `faithful_by` are those of them that measure
            stability and faithfulness.
        undecided: all others, with what is undecided, or could not be measured. Where a time limit has left out the
            sanity checks, these are all that would be shown.
        partial: those that pass all that was asked, where a kind of question was not.
        unjudged: those that no check and no metric speaks against, but that no metric judges.
        weak: of `show`, the classes for which most maps are not stable, by explainer.
        hollow: where explainers that fail a check, or ignore the class, lead in stability: this is no merit.
        classes: the names of the classes; empty if they are not known.
        accuracy: of the model; None without labels.
        checked: whether there were sanity checks.
        minutes: of the time limit; None without one.
        left_out: what it has left out, in a few words for each part.
        disagreements: between those of `show`, which cannot all be trusted then, the worst first. It is known where a
            metric has stored maps of at most 512 numbers: `seed_agreement`, or one that searches or changes the input.
    """

    data: str
    model: str
    show: tuple[str, ...]
    labels: tuple[str, ...]
    stable_by: tuple[str, ...]
    faithful_by: tuple[str, ...]
    refuse: tuple[Ground, ...]
    undecided: tuple[Ground, ...]
    partial: tuple[Partial, ...]
    unjudged: tuple[str, ...]
    weak: tuple[tuple[str, tuple[int, ...]], ...]
    hollow: tuple[Hollow, ...]
    classes: tuple[str, ...]
    accuracy: Accuracy | None
    checked: bool
    minutes: float | None = None
    left_out: tuple[str, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()

    @property
    def open_checks(self) -> list[tuple[list[str], Check]]:
        """The sanity checks that are not decided of explainers that are refused for another reason."""
        groups: dict[tuple[object, ...], tuple[list[str], Check]] = {}
        for ground in self.refuse:
            check = ground.open_check
            if check is not None:
                kind = (check.question, check.state)
                names, _ = groups.setdefault(kind, ([], check))
                names.append(ground.explainer)
        return list(groups.values())

    @property
    def partial_groups(self) -> list[list[Partial]]:
        """The explainers of `partial` of which the same was asked, together."""
        groups: dict[tuple[object, ...], list[Partial]] = {}
        for partial in self.partial:
            answers = (partial.passed, partial.missing, partial.labels, partial.idle)
            groups.setdefault(answers, []).append(partial)
        return list(groups.values())

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
    partial: list[Partial] = []
    refuse: list[Ground] = []
    undecided: list[Ground] = []
    rows_of = {
        name: _list_rows(metrics, name)
        for name in summary.explainers
        if name not in summary.controls
    }
    # the more metrics judge, the more certain each of them has to be of a failure
    judging = sum(_is_judging(metric) for metric in metrics)
    for name, rows in rows_of.items():
        sanity = summary.sanity.get((data, model, name))
        obstacle = _find_obstacle(sanity, name, rows, judging)
        if obstacle is None:
            obstacle = _find_gap(name, metrics, summary.missing > 0)
        answered = _list_answered(name, metrics, sanity)
        if obstacle is not None and obstacle.is_open:
            undecided.append(obstacle)
        elif obstacle is not None:
            refuse.append(obstacle)
        elif not answered.labels:
            unjudged.append(name)
        elif summary.lacks_checks:
            # asking less must not earn more: it is no answer of the user's that there are no checks
            undecided.append(Ground(name, is_open=True))
        elif answered.missing:
            partial.append(answered)
        else:
            show.append(name)
    # those that are best by most metrics come first
    show.sort(key=lambda name: -_count_wins(rows_of[name]))
    return Verdict(
        data,
        model,
        tuple(show),
        _list_judges(metrics, show),
        _list_judges(_select_kind(metrics, "stability"), show),
        _list_judges(_select_kind(metrics, "faithfulness"), show),
        tuple(refuse),
        tuple(undecided),
        tuple(partial),
        tuple(unjudged),
        _list_weak_classes(show, rows_of),
        tuple(_find_hollow(summary, data, model)),
        tuple(summary.classes.get(data, ())),
        summary.accuracies.get((data, model)),
        bool(summary.sanity),
        summary.minutes,
        summary.left_out,
    )


def _list_answered(
    explainer: str, metrics: Sequence[MetricSummary], sanity: Sanity | None
) -> Partial:
    """Which kinds of questions an explainer passes, that nothing speaks against, and which were not asked."""
    passed: set[Kind] = set()
    if sanity is not None and sanity.state == "passed":
        passed.add("checks")
    labels: list[str] = []
    idle: list[str] = []
    for metric in metrics:
        row = metric.find_row(explainer)
        if row is None:
            continue
        asks = row.spec.asks
        if asks == "stability" and _has_varied_nothing(metric, row):
            idle.append(metric.label)
        elif row.quality == "good" and (asks == "stability" or asks == "faithfulness"):
            passed.add(asks)
        if row.quality == "good":
            labels.append(metric.label)
    return Partial(
        explainer,
        tuple(labels),
        tuple(kind for kind in KINDS if kind in passed),
        tuple(kind for kind in KINDS if kind not in passed),
        tuple(idle),
    )


def _has_varied_nothing(metric: MetricSummary, row: SummaryRow) -> bool:
    """Whether a measure of stability had nothing to vary for an explainer, or what it varied changed no map at all."""
    return row.has_nothing_varied or metric.decision.reason == "unchanged"


def _select_kind(metrics: Sequence[MetricSummary], kind: Kind) -> list[MetricSummary]:
    """The metrics that ask a kind of question, without those whose changes moved no map."""
    return [
        metric
        for metric in metrics
        if metric.metric.spec.asks == kind and metric.decision.reason != "unchanged"
    ]


def _list_rows(metrics: Sequence[MetricSummary], explainer: str) -> list[SummaryRow]:
    rows = []
    for metric in metrics:
        for row in metric.rows:
            if row.explainer == explainer and row.counts.rows:
                rows.append(row)
    return rows


def _find_obstacle(
    sanity: Sanity | None, name: str, rows: Sequence[SummaryRow], judging: int
) -> Ground | None:
    """Why an explainer may not be shown, or not yet; None if nothing speaks against it.

    What is certain comes first, whether checks or metrics say it: what is undecided does not excuse a failure.
    """
    check = _find_failed_check(sanity, name)
    if check is not None and not check.is_open:
        return check
    failure = _find_certain_failure(name, rows, judging)
    if failure is None:
        return check or _find_ground(name, rows)
    open_check = None
    if sanity is not None:
        open_check = sanity.reason
    return replace(failure, open_check=open_check)


def _is_judging(metric: MetricSummary) -> bool:
    """Whether a metric judges any explainer."""
    return any(row.quality for row in metric.rows if not row.control)


def _find_certain_failure(name: str, rows: Sequence[SummaryRow], judging: int) -> Ground | None:
    """The metrics by which an explainer is bad, or else no better than a control; None if that is not certain.

    The p-values hold for all explainers at once; times the number of the metrics that judge, for all metrics, too.
    """
    certain = [
        row for row in rows if row.failure_p is not None and row.failure_p * judging <= LEVEL
    ]
    failures: tuple[Literal["bad", "control"], ...] = ("bad", "control")
    for quality in failures:
        labels = tuple(row.label for row in certain if row.quality == quality)
        if labels:
            return Ground(name, None, labels, quality)
    return None


def _find_failed_check(sanity: Sanity | None, name: str) -> Ground | None:
    """The sanity check that an explainer does not pass; None if it passes all of them."""
    reason = None
    if sanity is not None:
        reason = sanity.reason
    if sanity is None or reason is None:
        return None
    if sanity.state == "failed":
        return Ground(name, reason.question)
    more = None
    if sanity.state == "undecided":
        more = _keep_foreseeable(sanity.more, reason.samples)
    return Ground(name, reason.question, needed=more, is_open=True)


def _count_wins(rows: Sequence[SummaryRow]) -> int:
    """By how many metrics an explainer is best, alone or with others."""
    return sum(row.standing in ("best", "tied") for row in rows)


def _list_judges(metrics: Sequence[MetricSummary], show: Sequence[str]) -> tuple[str, ...]:
    """The labels of the metrics that judge any of the explainers that may be shown."""
    labels = []
    for metric in metrics:
        judged = [row.explainer for row in metric.rows if row.quality]
        if any(name in show for name in judged):
            labels.append(metric.label)
    return tuple(labels)


def _list_weak_classes(
    show: Sequence[str], rows_of: Mapping[str, Sequence[SummaryRow]]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Of explainers that may be shown, the classes for which most maps are not stable."""
    weak = []
    for name in show:
        numbers: set[int] = set()
        for row in rows_of[name]:
            numbers.update(row.weak_classes)
        if numbers:
            weak.append((name, tuple(sorted(numbers))))
    return tuple(weak)


def _find_hollow(summary: Summary, data: str, model: str) -> list[Hollow]:
    """By which metrics explainers that say little are more stable than all that say something."""
    labels_of: dict[tuple[str, ...], list[str]] = {}
    for metric in summary.select(data, model):
        ordered = _order_by_stability(summary, metric)
        ahead = list(takewhile(lambda row: _is_hollow(summary, row), ordered))
        names = tuple(row.explainer for row in ahead)
        if 0 < len(ahead) < len(ordered):
            labels_of.setdefault(names, []).append(metric.label)
    hollow = []
    for names, labels in labels_of.items():
        sanities = [summary.sanity[data, model, name] for name in names]
        hollow.append(Hollow(tuple(labels), names, tuple(sanities)))
    return hollow


def _order_by_stability(summary: Summary, metric: MetricSummary) -> list[SummaryRow]:
    """The rows of a measure of stability, the most stable first, and of equal ones those that say something."""
    rows = []
    for row in metric.rows:
        if row.references is not None and row.value is not None:
            rows.append(row)
    values = np.array([[row.value or 0.0 for row in rows]])
    if metric.metric.spec.direction == "higher":
        values = -values
    # values that differ by rounding are equal
    merged = merge_rounding(values)[0]
    are_hollow = [_is_hollow(summary, row) for row in rows]

    def rank(index: int) -> tuple[float, bool]:
        """By stability; among equal ones, those that are hollow come last."""
        return merged[index], are_hollow[index]

    order = sorted(range(len(rows)), key=rank)
    return [rows[index] for index in order]


def _is_hollow(summary: Summary, row: SummaryRow) -> bool:
    sanity = summary.sanity.get((row.data, row.model, row.explainer))
    if sanity is None:
        return False
    return sanity.state == "failed" or sanity.find("class").state == "remark"


def _find_gap(name: str, metrics: Sequence[MetricSummary], unfinished: bool) -> Ground | None:
    """The metrics that judge other explainers, but not all of this one: parts failed, or have not been run."""
    labels = []
    for metric in metrics:
        row = metric.find_row(name)
        lost = unfinished if row is None else _is_lost(row)
        if lost and any(other.quality for other in metric.rows):
            labels.append(metric.label)
    if not labels:
        return None
    return Ground(name, None, tuple(labels), "undecided", is_open=True)


def _is_lost(row: SummaryRow) -> bool:
    """Whether parts of the work failed, or there is no value although there was something to vary."""
    has_no_value = row.value is None and not row.has_nothing_varied
    return row.counts.failed_jobs > 0 or has_no_value


def _find_ground(name: str, rows: Sequence[SummaryRow]) -> Ground | None:
    """The worst judgement of an explainer, none of which is certain; None if all are good or missing."""
    qualities: tuple[Literal["bad", "control", "undecided"], ...] = ("bad", "control", "undecided")
    for quality in qualities:
        judged_so = [row for row in rows if row.quality == quality]
        if judged_so:
            labels = tuple(row.label for row in judged_so)
            needed = _find_most_needed(judged_so) if quality == "undecided" else None
            return Ground(name, None, labels, quality, needed, is_open=True)
    return None


def _find_most_needed(rows: Sequence[SummaryRow]) -> int | None:
    """About how many samples more would decide all of some rows; None if that is not known of one."""
    numbers = [_keep_foreseeable(row.more_samples_needed, row.counts.samples) for row in rows]
    foreseeable = [number for number in numbers if number is not None]
    if len(foreseeable) < len(numbers):
        return None
    return max(foreseeable)


def _keep_foreseeable(needed: int | None, samples: int) -> int | None:
    """A number of further samples; None if it is too far from those that there are."""
    if needed is not None and needed <= _FAR * samples:
        return needed
    return None
