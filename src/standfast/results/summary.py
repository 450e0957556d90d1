"""The summary of results: typed rows of numbers, without words, which everything that shows results reads.

`standfast.results.summarise` makes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import polars as pl

from standfast.results.configured_metric import ConfiguredMetric
from standfast.results.controls import is_random
from standfast.results.failures import Failure
from standfast.results.metric_results import MetricResults
from standfast.results.quality import (
    Quality,
    References,
    count_more,
    find_bad_p_value,
    find_references,
    find_weak_classes,
    judge_against_controls,
    judge_stability,
)
from standfast.results.sanity import Accuracy, Sanity, SanityState, round_up
from standfast.statistics.comparison import (
    Comparison,
    ControlTest,
    count_more_against_controls,
    count_needed,
    estimate_needed,
)
from standfast.statistics.paired import Interval, bootstrap_interval, holm, median_over_repeats
from standfast.statistics.ranking import Agreement
from standfast.tensors import Array
from standfast.value_spec import ValueSpec, read_numbers

#: where the tests put an explainer among the others; see `SummaryRow.standing`
Standing = Literal["best", "tied", "worse", "undecided"]
Star = Literal["alone", "tied"]
#: see `Decision.state` and `Decision.reason`
State = Literal["decided", "open", "unable", "none"]
Reason = Literal[
    "unranked",
    "no result",
    "no value",
    "nothing varied",
    "one explainer",
    "unfit",
    "few explainers",
    "few samples",
    "unchanged",
    "tied",
    "no difference",
    "no best",
    "some worse",
    "all worse",
]


@dataclass(frozen=True)
class Uncounted:
    """Samples of one explainer that have no value that counts, for one reason.

    Attributes:
        status: why they were skipped: `"misclassified"`, `"degenerate"` and so on; `"ok"` if they were evaluated.
        samples, rows: how many; a sample has a row for each repeat.
        failures: the reasons that the metric stored, each once.
    """

    status: str
    samples: int
    rows: int
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counts:
    """The rows of one explainer by one configured metric; there is one for each sample and repeat.

    Attributes:
        rows: all of them.
        evaluated: those whose status is `"ok"`.
        counted: those that enter the estimate.
        bounds: those of `counted` whose value is only a bound.
        unresolved: those of `bounds` that an estimate did not resolve; the others reached a limit.
        imprecise: those of `counted` that are no bounds, but have a larger error than was asked for.
        without_number: evaluated rows without a finite value.
        unvaried: evaluated rows for which there was nothing to vary, so that their value says nothing.
        uncounted: the samples that have no value that counts, by reason.
        failed_jobs: parts of the work that failed.
        repeats: how many rows a sample has.
    """

    rows: int = 0
    evaluated: int = 0
    counted: int = 0
    bounds: int = 0
    unresolved: int = 0
    imprecise: int = 0
    without_number: int = 0
    unvaried: int = 0
    uncounted: tuple[Uncounted, ...] = ()
    failed_jobs: int = 0
    repeats: int = 1

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return math.ceil(self.rows / self.repeats)


@dataclass(frozen=True)
class SummaryRow:
    """The numbers of one explainer by one configured metric, for one data set and model.

    Attributes:
        data, model, explainer, label, metric: names.
        spec: how the values are read.
        estimate: the median over samples with its interval, the side on which it is only a bound, and the number of
            samples; None where no sample counts.
        mean_rank: over the samples that have a value for every explainer, 1 is best; None where the metric does not
            rank explainers, or there is no such sample.
        standing: `"best"` by mean rank; `"tied"` if the tests do not show that it is worse than the best; `"worse"`;
            `"undecided"` if they show of no explainer that it is worse than the best; None without a mean rank.
        control: whether it is only a reference.
        control_test: against the control that is hardest to beat; None where the metric asks for no controls.
        counts: the rows behind the numbers.
        error: of the first part of the work that failed, as stored; None if none failed.
        sanity: whether the explainer passes the sanity checks; None for a control, and without checks. Only one that
            passes is ranked.
        references: what the metric gives for identical and for unrelated maps; None where it measures no stability.
        quality: how good the value is; None where there is nothing to judge it by. A value of an explainer that fails
            the sanity checks is at most `"control"`, and of one that is undecided at most `"undecided"`.
        failure_p: the p-value of the claim that the value is bad, or worse than a control, corrected for the number of
            explainers by Holm's method; None where there is nothing to judge it by.
        needed: about how many samples more would decide on the quality, if it is undecided; None if that is not known.
        weak_classes: the classes in which most samples are shown to have a value that is not good, of a measure of
            stability.
    """

    data: str
    model: str
    explainer: str
    label: str
    metric: str
    spec: ValueSpec
    estimate: Interval | None
    mean_rank: float | None = None
    standing: Standing | None = None
    control: bool = False
    control_test: ControlTest | None = None
    counts: Counts = field(default_factory=Counts)
    error: str | None = None
    sanity: SanityState | None = None
    references: References | None = None
    quality: Quality | None = None
    failure_p: float | None = None
    needed: int | None = None
    weak_classes: tuple[int, ...] = ()

    @property
    def candidate(self) -> bool:
        """Whether it may be called best: it is no control, and the sanity checks do not keep it from that."""
        return not self.control and self.sanity in (None, "passed")

    @property
    def has_nothing_varied(self) -> bool:
        """Whether there was nothing to vary for this explainer, so that the metric does not judge it."""
        return self.counts.unvaried > 0 and self.counts.counted == 0

    @property
    def value(self) -> float | None:
        """The median; None where there is none, or where not even a bound of it is known."""
        return (
            None
            if self.estimate is None or math.isnan(self.estimate.value)
            else self.estimate.value
        )


@dataclass(frozen=True)
class Decision:
    """What the tests say about the explainers by one configured metric.

    Attributes:
        state: `"decided"`; `"open"`, if no difference is shown from the best; `"unable"`, if no test could show one; or
            `"none"`, where there is nothing to decide.
        reason: why. `"unchanged"` says that no map of any explainer did. `"all worse"` and `"some worse"` are decided,
            `"no difference"` and `"no best"` are open.
        explainers: how many were compared.
        samples: on how many samples, which have a value for all of them.
        needed: the fewest samples with which a test can decide, where there are fewer; or about how many would show the
            largest difference, if it stays as it is. None if unknown.
        best: the explainer with the best mean rank and all that are not shown to be worse, in the order of their ranks.
        worse: those that are shown to be worse than the first of `best`.
        level: significance level of the tests.
    """

    state: State
    reason: Reason
    explainers: int = 0
    samples: int = 0
    needed: int | None = None
    best: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()
    level: float = 0.05


@dataclass(frozen=True)
class MetricSummary:
    """The numbers of all explainers by one configured metric, for one data set and model.

    Attributes:
        data, model: names.
        metric: the configured metric.
        rows: of the explainers that have any row of samples or a failed part, in the order of the study.
        comparison: the paired tests between explainers; None if there are not two of them to compare.
        decision: what these tests say.
        uneven: whether explainers have values for different samples.
    """

    data: str
    model: str
    metric: ConfiguredMetric
    rows: tuple[SummaryRow, ...]
    comparison: Comparison | None
    decision: Decision
    uneven: bool = False

    @property
    def label(self) -> str:
        """The name of the configured metric."""
        return self.metric.name

    @property
    def control_tests(self) -> list[ControlTest]:
        """The tests of candidates against the controls; none where the metric asks for no controls."""
        return [
            row.control_test for row in self.rows if row.control_test is not None and row.candidate
        ]

    @property
    def stars(self) -> dict[str, Star]:
        """The explainers that the tests put first: `"alone"` for one, `"tied"` for several; none if all are tied."""
        first = [row.explainer for row in self.rows if row.standing in ("best", "tied")]
        return dict.fromkeys(first, "alone" if len(first) == 1 else "tied")

    def find_row(self, explainer: str) -> SummaryRow | None:
        """The row of an explainer; None if it has none."""
        return next((row for row in self.rows if row.explainer == explainer), None)


@dataclass(frozen=True)
class Summary:
    """What results say.

    Attributes:
        data, models, explainers, controls: names, in the order of the study; `explainers` has the controls, too.
        samples: how many samples each data set has.
        metrics: what each metric says on each data set and model that was evaluated.
        agreements: how much the metrics agree on the order of the explainers, by data set and model, where three
            explainers or more are ranked by two metrics or more.
        planned, missing, failed: how many jobs there are, were not run yet, and failed.
        failures: what failed and why.
        sanity: the checks of each explainer that is no control, by data, model and explainer; empty without checks.
        accuracies: of the models, by data and model, where labels are known.
        classes: the names of the classes of each data set; empty where they are not known.
        minutes: of the time limit; None without one.
        left_out: what it has left out, in a few words for each part.
        lacks_checks: whether it has left out the sanity checks.
    """

    data: tuple[str, ...]
    models: tuple[str, ...]
    explainers: tuple[str, ...]
    controls: tuple[str, ...]
    samples: Mapping[str, int]
    metrics: tuple[MetricSummary, ...]
    agreements: Mapping[tuple[str, str], Agreement]
    planned: int
    missing: int
    failed: int
    failures: tuple[Failure, ...] = ()
    sanity: Mapping[tuple[str, str, str], Sanity] = field(default_factory=dict)
    accuracies: Mapping[tuple[str, str], Accuracy] = field(default_factory=dict)
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    minutes: float | None = None
    left_out: tuple[str, ...] = ()
    lacks_checks: bool = False

    @property
    def rows(self) -> list[SummaryRow]:
        """All rows that have samples, in the order of data, models, metrics and explainers."""
        return [row for each in self.metrics for row in each.rows if row.counts.rows]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of data and model that were evaluated."""
        return list(dict.fromkeys((each.data, each.model) for each in self.metrics))

    def name_pair(self, data: str, model: str) -> str:
        """The name of a pair of data and model; empty where there is only one pair."""
        parts = [data] * (len(self.data) > 1) + [model] * (len(self.models) > 1)
        return " · ".join(parts) if len(self.pairs) > 1 else ""

    def select(self, data: str, model: str) -> list[MetricSummary]:
        """The metrics on one data set and model."""
        return [each for each in self.metrics if (each.data, each.model) == (data, model)]

    def sort_explainers(self, data: str, model: str) -> list[str]:
        """The explainers in the order of tables: those that pass the sanity checks, undecided, failed, and controls.

        Among equals, those with more good values and then those with the better mean ranks come first.
        """
        states = ("passed", "undecided", "failed")
        metrics = self.select(data, model)

        def place(name: str) -> tuple[float, ...]:
            rows = [
                row
                for each in metrics
                for row in each.rows
                if row.explainer == name and row.estimate is not None
            ]
            sanity = self.sanity.get((data, model, name))
            group = 0 if sanity is None else states.index(sanity.state)
            good, bad = (
                sum(row.quality in kinds for row in rows)
                for kinds in (("good",), ("bad", "control"))
            )
            ranks = [row.mean_rank for row in rows if row.mean_rank is not None]
            rank = sum(ranks) / len(ranks) if ranks else math.inf
            return (len(states) if name in self.controls else group, not rows, -good, bad, rank)

        return sorted(self.explainers, key=place)

    def find(self, data: str, model: str, label: str) -> MetricSummary | None:
        """One metric on one data set and model; None if it was not evaluated there."""
        return next((each for each in self.select(data, model) if each.label == label), None)


@dataclass(frozen=True)
class RemovalChange:
    """A metric of which the way to remove words decides which explainers are first.

    Attributes:
        metric: its registered name.
        first: by the words for each way, the explainers that are best, or one of several best; or better than controls.
        controls: whether they are compared with controls, and not with each other.
    """

    metric: str
    first: Mapping[str, tuple[str, ...]]
    controls: bool


def find_removal_changes(metrics: Sequence[MetricSummary]) -> list[RemovalChange]:
    """Where metrics on one data set and model that differ in the removal alone do not put the same explainers first.

    Only those count whose tests put any explainer first; or, against controls, all that are compared with them.
    """
    groups: dict[tuple[str, str], list[MetricSummary]] = {}
    for each in metrics:
        if each.metric.removal:
            options = {key: value for key, value in each.metric.options.items() if key != "removal"}
            key = (each.metric.metric, json.dumps(options, sort_keys=True, default=repr))
            groups.setdefault(key, []).append(each)
    found = []
    for (name, _), group in groups.items():
        best = {each.metric.removal: tuple(each.stars) for each in group if each.stars}
        better = {
            each.metric.removal: tuple(
                test.explainer for test in each.control_tests if test.verdict == "beats"
            )
            for each in group
            if each.control_tests
        }
        for first, controls in ((best, False), (better, True)):
            if len(set(map(frozenset, first.values()))) > 1:
                found.append(RemovalChange(name, first, controls))
    return found


def summarise_metric(
    results: MetricResults,
    metric: ConfiguredMetric,
    comparison: Comparison | None,
    control_tests: Sequence[ControlTest] = (),
    checks: pl.DataFrame | None = None,
    sanity: Mapping[str, Sanity] | None = None,
) -> MetricSummary:
    """The numbers of one configured metric on one data set and model.

    Args:
        results: its rows.
        metric: its configuration.
        comparison: the tests between explainers, if there are two or more with a value.
        control_tests: the tests against the controls.
        checks: the rows of the sanity checks on this data set and model.
        sanity: the decisions of the checks, by explainer.
    """
    sanity = sanity or {}
    test_of = {test.explainer: test for test in control_tests}
    parts = {
        str(name): rows
        for (name,), rows in results.frame.partition_by("explainer", as_dict=True).items()
    }
    is_unchanged = _find_whether_unchanged(results)
    rows = []
    for name in results.explainers:
        samples = parts.get(name, results.frame.clear())
        if not len(samples) and not results.errors.get(name):
            continue
        row = _summarise_explainer(
            results, name, samples, _select_references(results, name, checks)
        )
        mean_rank, standing = _rank(name, None if is_unchanged else comparison)
        state = sanity[name].state if name in sanity else None
        rows.append(
            replace(
                row,
                mean_rank=mean_rank,
                standing=standing,
                control_test=test_of.get(name),
                sanity=state,
            )
        )
    rows = judge_rows(_correct_for_explainers(rows), sanity)
    decision = Decision("unable", "unchanged") if is_unchanged else decide(results, comparison)
    is_uneven = _find_whether_uneven(results.spec, parts.values())
    return MetricSummary(
        results.data, results.model, metric, tuple(rows), comparison, decision, is_uneven
    )


def _find_whether_unchanged(results: MetricResults) -> bool:
    """Whether no map of any explainer changed, of those that have a value."""
    explained = [*results.candidates, *results.unfit]
    valid = results.spec.select_valid(results.frame.filter(pl.col("explainer").is_in(explained)))
    return len(valid) > 0 and bool(results.spec.find_unchanged(results.spec.values(valid)).all())


def _find_whether_uneven(spec: ValueSpec, parts: Iterable[pl.DataFrame]) -> bool:
    """Whether explainers have values for different samples."""
    samples = {frozenset(spec.select_valid(rows)["repeat", "sample"].rows()) for rows in parts}
    return len(samples) > 1


def _select_references(
    results: MetricResults, explainer: str, checks: pl.DataFrame | None
) -> References | None:
    """What the metric gives for known maps of an explainer; None without checks."""
    if checks is None or not len(checks):
        return None
    return find_references(
        results.spec, results.label, checks.filter(pl.col("explainer") == explainer)
    )


def _summarise_explainer(
    results: MetricResults, explainer: str, samples: pl.DataFrame, references: References | None
) -> SummaryRow:
    """The numbers of one explainer, from its rows `samples`, without what is compared with others."""
    spec, errors = results.spec, results.errors.get(explainer, ())
    row = SummaryRow(
        results.data,
        results.model,
        explainer,
        results.label,
        results.metric,
        spec,
        estimate(spec, samples),
        control=explainer in results.controls,
        counts=count_rows(spec, samples, len(errors)),
        error=errors[0] if errors else None,
        references=references,
    )
    if references is None:
        return row
    failure_p = _find_failure_p(spec, samples, references)
    return replace(
        row, failure_p=failure_p, weak_classes=find_weak_classes(spec, samples, references)
    )


def judge_rows(rows: Sequence[SummaryRow], sanity: Mapping[str, Sanity]) -> list[SummaryRow]:
    """The rows of one metric with their qualities; none where the model is near chance."""
    random = next((row.value for row in rows if row.control and is_random(row.explainer)), None)
    tested = sum(row.control_test is not None for row in rows)
    judged = []
    for row in rows:
        measured = _judge_value(row, random)
        needed = _count_more(row, tested) if measured == "undecided" else None
        quality = _hold_to_sanity(row, measured)
        if row.explainer in sanity and _is_near_chance(sanity[row.explainer]):
            quality = None
        failure_p = None if quality is None else row.failure_p
        judged.append(replace(row, quality=quality, failure_p=failure_p, needed=needed))
    return judged


def _judge_value(row: SummaryRow, random: float | None) -> Quality | None:
    """How good the value of an explainer is, whatever the sanity checks say; None where nothing judges it.

    Args:
        row: of the explainer.
        random: the value of random maps; None without them.
    """
    if row.has_nothing_varied:
        return None
    if row.references is not None:
        return judge_stability(row.spec, row.estimate, row.references)
    if row.control_test is not None:
        return judge_against_controls(row.spec, row.estimate, row.control_test, random)
    return None


def _count_more(row: SummaryRow, tested: int) -> int | None:
    """About how many samples more would decide on a value that is undecided; None if that is not known.

    Args:
        row: of the explainer.
        tested: how many explainers are tested against controls.
    """
    more: int | None = None
    counted = 0
    if row.references is not None:
        more = count_more(row.spec, row.estimate, row.references)
        counted = 0 if row.estimate is None else row.estimate.count
    elif row.control_test is not None:
        more = count_more_against_controls(row.control_test, tested)
        counted = row.control_test.count
    if more is None or not 0 < counted < row.counts.samples:
        return more
    # of further samples no larger share counts than of those that there are
    return round_up(math.ceil(more * row.counts.samples / counted))


def _hold_to_sanity(row: SummaryRow, quality: Quality | None) -> Quality | None:
    """The quality that the sanity checks leave: of one that fails them, no value is better than a control's."""
    is_judged = row.references is not None or row.control_test is not None
    if is_judged and not row.has_nothing_varied and row.sanity == "failed" and quality != "bad":
        return "control"
    if quality == "good" and row.sanity == "undecided":
        return "undecided"
    return quality


def _is_near_chance(sanity: Sanity) -> bool:
    """Whether the model itself is not shown to be better than chance."""
    reason = sanity.reason
    return reason is not None and reason.question == "accuracy" and reason.state == "failed"


def _find_failure_p(spec: ValueSpec, rows: pl.DataFrame, references: References) -> float | None:
    """The p-value of the claim that an explainer is bad by a measure of stability; None without a value."""
    rows = spec.select_valid(rows)
    if not len(rows):
        return None
    _, values, bounds = read_samples(spec, rows)
    return find_bad_p_value(spec, values, bounds, references)


def _correct_for_explainers(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """The rows of one metric with p-values for all explainers at once; tests against controls have theirs already."""
    tested = [
        place for place, row in enumerate(rows) if row.failure_p is not None and not row.control
    ]
    p_values = holm(np.array([rows[place].failure_p for place in tested], dtype=float))
    corrected = {place: float(p) for place, p in zip(tested, p_values, strict=True)}
    for place, row in enumerate(rows):
        if place not in corrected and row.control_test is not None:
            corrected[place] = row.control_test.p_worse
    return [replace(row, failure_p=corrected.get(place)) for place, row in enumerate(rows)]


def _rank(name: str, comparison: Comparison | None) -> tuple[float | None, Standing | None]:
    """The mean rank of an explainer, and what the tests say of it."""
    if comparison is None or comparison.count == 0 or name not in comparison.names:
        return None, None
    place = comparison.names.index(name)
    rank = float(comparison.mean_ranks[place])
    if not comparison.decided:
        return rank, "undecided"
    if place not in comparison.winner_set:
        return rank, "worse"
    return rank, "best" if rank == comparison.mean_ranks[comparison.order[0]] else "tied"


def read_samples(spec: ValueSpec, rows: pl.DataFrame) -> tuple[Array, Array, Array]:
    """Numbers of the samples of one explainer's valid rows, ascending, their values, and which of these are bounds.

    The value of a sample is the median over its repeats. Each is `(n,)`.
    """
    values, bounds = spec.values(rows), spec.bounds(rows)
    samples, place = np.unique(rows["sample"].to_numpy(), return_inverse=True)
    repeats, turn = np.unique(rows["repeat"].to_numpy(), return_inverse=True)
    table = np.full((len(repeats), len(samples), 1), np.nan)
    marked = np.zeros(table.shape, dtype=bool)
    table[turn, place, 0], marked[turn, place, 0] = values, bounds
    if len(repeats) != 1:
        table, marked = (
            each[None] for each in median_over_repeats(table, marked, spec.censored_side)
        )
    return samples, table[0, :, 0], marked[0, :, 0]


def estimate(spec: ValueSpec, rows: pl.DataFrame) -> Interval | None:
    """The median over the samples of one explainer's rows, with its interval; None where no sample counts."""
    rows = spec.select_valid(rows)
    if not len(rows):
        return None
    _, values, bounds = read_samples(spec, rows)
    return bootstrap_interval(values, censored=bounds, censored_side=spec.censored_side)


def count_rows(spec: ValueSpec, rows: pl.DataFrame, failed_jobs: int = 0) -> Counts:
    """What became of one explainer's rows."""
    if not len(rows):
        return Counts(failed_jobs=failed_jobs)
    fine, valid = rows.filter(pl.col("status") == "ok"), spec.select_valid(rows)
    bounds = spec.bounds(valid)
    unresolved = bounds & (read_numbers(valid, "resolved") == 0.0)
    imprecise = ~bounds & (read_numbers(valid, "error_reached") == 0.0)
    keys = ["repeat", "sample"]
    rest = rows.join(valid.select(keys), on=keys, how="anti", maintain_order="left")
    uncounted = []
    for (status,), group in rest.group_by("status", maintain_order=True):
        failures: list[str] = []
        if "failure" in group.columns:
            failures = (
                group["failure"].drop_nulls().cast(pl.String).unique(maintain_order=True).to_list()
            )
        uncounted.append(
            Uncounted(str(status), group["sample"].n_unique(), len(group), tuple(failures))
        )
    return Counts(
        rows=len(rows),
        evaluated=len(fine),
        counted=len(valid),
        bounds=int(bounds.sum()),
        unresolved=int(unresolved.sum()),
        imprecise=int(imprecise.sum()),
        without_number=int((~np.isfinite(spec.values(fine))).sum()),
        unvaried=int(spec.find_unvaried(rows).sum()),
        uncounted=tuple(uncounted),
        failed_jobs=failed_jobs,
        repeats=rows["repeat"].n_unique(),
    )


def decide(found: MetricResults, comparison: Comparison | None) -> Decision:
    """What the tests of a comparison say."""
    if not len(found.frame):
        return Decision("unable", "no result")
    if not len(found.spec.select_valid(found.frame)):
        is_idle = bool(found.spec.find_unvaried(found.frame).any())
        return Decision("unable", "nothing varied" if is_idle else "no value")
    if found.spec.direction is None:
        return Decision("none", "unranked")
    if comparison is None and found.unfit:
        return Decision("none", "unfit", len(found.candidates))
    if comparison is None:
        alone = len(found.candidates) == 1
        return Decision("none", "one explainer") if alone else Decision("unable", "few explainers")
    names, count, level = comparison.names, comparison.count, comparison.level
    best = comparison.order[0]
    first = tuple(names[at] for at in comparison.winner_set)
    if not comparison.conclusive_possible:
        needed = count_needed(len(names), level)
        reason: Reason = "few samples" if count < needed else "tied"
        return Decision("unable", reason, len(names), count, needed, level=level)
    differ = comparison.significant
    if not differ.any():
        needed_more = estimate_needed(comparison)
        return Decision("open", "no difference", len(names), count, needed_more, first, level=level)
    worse = tuple(
        names[at]
        for at in comparison.order
        if differ[best, at] and comparison.effects[best, at] > 0
    )
    if not worse:
        return Decision("open", "no best", len(names), count, None, first, level=level)
    reason = "all worse" if len(first) == 1 else "some worse"
    return Decision("decided", reason, len(names), count, None, first, worse, level)
