"""The summary of results: typed rows of numbers, without words, which everything that shows results reads.

The way of a number, from the store to the reader:

1. `StoredResults` reads the rows of a study. There is one for each explainer, metric, sample and repeat
   (`results.py`; the rows of one metric on one data set and model are a `MetricResults`).
2. Where the stored values of two explainers cannot be compared, `make_comparable` adds values that can
   (`common_share.py`).
3. `summarise` compares the explainers with each other and with controls, and decides on the sanity checks
   (`results.py`, `statistics/`, `sanity.py`).
4. `summarise_metric` makes a `SummaryRow` of the samples of each explainer: the median over repeats, then over samples,
   with its interval, and how good it is (`metric_summary.py`, `quality.py`).
5. `reach_verdict` reads the whole `Summary`, and says which explanations may be shown (`verdict.py`).

This file has what steps 3 and 4 make, the smallest part first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from standfast.results.configured_metric import ConfiguredMetric
from standfast.results.failures import Failure
from standfast.results.quality import Quality, References
from standfast.results.sanity import Accuracy, Sanity, SanityState
from standfast.statistics.comparison import Comparison, ControlTest
from standfast.statistics.paired import Interval
from standfast.statistics.ranking import Agreement
from standfast.value_spec import ValueSpec

#: where the tests put an explainer among the others; see `SummaryRow.standing`
Standing = Literal["best", "tied", "worse", "undecided"]
Star = Literal["alone", "tied"]
#: see `Decision.state` and `Decision.reason`
State = Literal["decided", "open", "unable", "none"]
Reason = Literal[
    # the metric does not rank explainers
    "unranked",
    # no job has a result
    "no result",
    # there are results, but none with a value that counts
    "no value",
    # no value counts, as for some there was nothing to vary
    "nothing varied",
    # there is one explainer alone
    "one explainer",
    # some explainers do not pass the sanity checks, and fewer than two are left
    "unfit",
    # fewer than two explainers have values to compare
    "few explainers",
    # no test can show a difference with so few samples
    "few samples",
    # no map of any explainer changed
    "unchanged",
    # no test can show a difference, as there are too many ties
    "tied",
    # no two explainers are shown to differ
    "no difference",
    # some are shown to differ, but none to be worse than the best
    "no best",
    # some are shown to be worse than the best
    "some worse",
    # all others are shown to be worse than the best
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
        failed_jobs: how many jobs failed.
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
        data, model, explainer: names.
        label: the name of the configured metric.
        metric: the name of its kind.
        spec: how the values are read.
        estimate: the median over samples with its interval, the side on which it is only a bound, and the number of
            samples; None where no sample counts.
        mean_rank: over the samples that have a value for every explainer, 1 is best; None where the metric does not
            rank explainers, or there is no such sample.
        standing: `"best"` by mean rank; `"tied"` if the tests do not show that it is worse than the best; `"worse"`;
            `"undecided"` if they show of no explainer that it is worse than the best; None without a mean rank.
        control: whether it is a control: an explainer that says nothing of the model, on purpose. Others must beat it.
        control_test: against the control that is hardest to beat; None where the metric asks for no controls.
        counts: the rows behind the numbers.
        error: of the first job that failed, as stored; None if none failed.
        sanity: whether the explainer passes the sanity checks; None for a control, and without checks. Only one that
            passes is ranked.
        references: the ends of a scale of stability, and no controls: what the metric gives for identical and for
            unrelated maps. None where it measures no stability.
        quality: how good the value is; None where there is nothing to judge it by. A value of an explainer that fails
            the sanity checks is at most `"control"`, and of one that is undecided at most `"undecided"`.
        failure_p: the p-value of the claim that the value is bad, or worse than a control, corrected for the number of
            explainers by Holm's method; None where there is nothing to judge it by.
        more_samples_needed: about how many samples more would decide on the quality, if it is undecided; None if that
            is not known.
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
    more_samples_needed: int | None = None
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
        if self.estimate is None or math.isnan(self.estimate.value):
            return None
        return self.estimate.value


@dataclass(frozen=True)
class MetricDecision:
    """What the tests say about the explainers by one configured metric.

    Attributes:
        state: `"decided"`; `"open"`, if no difference is shown from the best; `"unable"`, if no test could show one; or
            `"none"`, where there is nothing to decide.
        reason: why. `"unchanged"` says that no map of any explainer changed. `"all worse"` and `"some worse"` are
            decided, `"no difference"` and `"no best"` are open.
        explainers: how many were compared.
        samples: on how many samples, which have a value for all of them.
        samples_needed: the fewest samples in all with which a test can decide, where no test can yet; or about how many
            in all would show the largest difference, if it stays as it is. None if unknown.
        best: the explainer with the best mean rank and all that are not shown to be worse, in the order of their ranks.
        worse: those that are shown to be worse than the first of `best`.
        level: significance level of the tests.
    """

    state: State
    reason: Reason
    explainers: int = 0
    samples: int = 0
    samples_needed: int | None = None
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
    decision: MetricDecision
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
        """The explainers that the tests put first: `"alone"` for one, `"tied"` for several; empty if undecided."""
        first = [row.explainer for row in self.rows if row.standing in ("best", "tied")]
        star: Star = "alone" if len(first) == 1 else "tied"
        return dict.fromkeys(first, star)

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
        return [row for metric in self.metrics for row in metric.rows if row.counts.rows]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of data and model that were evaluated."""
        return list(dict.fromkeys((metric.data, metric.model) for metric in self.metrics))

    def name_pair(self, data: str, model: str) -> str:
        """The name of a pair of data and model; empty where there is only one pair."""
        if len(self.pairs) < 2:
            return ""
        parts = [data] * (len(self.data) > 1) + [model] * (len(self.models) > 1)
        return " · ".join(parts)

    def select(self, data: str, model: str) -> list[MetricSummary]:
        """The metrics on one data set and model."""
        return [metric for metric in self.metrics if (metric.data, metric.model) == (data, model)]

    def sort_explainers(self, data: str, model: str) -> list[str]:
        """The explainers in the order of tables: those that pass the sanity checks, undecided, failed, and controls.

        Among equals: those with values, more good ones, fewer bad ones, better mean ranks.
        """
        rows_of: dict[str, list[SummaryRow]] = {}
        for metric in self.select(data, model):
            for row in metric.rows:
                if row.estimate is not None:
                    rows_of.setdefault(row.explainer, []).append(row)

        def find_key(name: str) -> tuple[float, ...]:
            rows = rows_of.get(name, [])
            good = sum(row.quality == "good" for row in rows)
            bad = sum(row.quality in ("bad", "control") for row in rows)
            group = self._find_group(data, model, name)
            return (group, not rows, -good, bad, _average_ranks(rows))

        return sorted(self.explainers, key=find_key)

    def _find_group(self, data: str, model: str, explainer: str) -> int:
        """The group of an explainer in tables: the state of its sanity checks, and controls behind all others."""
        states = ("passed", "undecided", "failed")
        if explainer in self.controls:
            return len(states)
        sanity = self.sanity.get((data, model, explainer))
        if sanity is None:
            return 0
        return states.index(sanity.state)

    def find(self, data: str, model: str, label: str) -> MetricSummary | None:
        """One metric on one data set and model; None if it was not evaluated there."""
        metrics = self.select(data, model)
        return next((metric for metric in metrics if metric.label == label), None)


def _average_ranks(rows: Sequence[SummaryRow]) -> float:
    """The mean over metrics of the mean ranks of an explainer; infinite where none ranks it."""
    ranks = [row.mean_rank for row in rows if row.mean_rank is not None]
    if ranks:
        return sum(ranks) / len(ranks)
    return math.inf
