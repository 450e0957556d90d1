"""One requirement for one explainer, decided by the numbers: of a mean, of a share of samples, or by a test.

`base` says what each of them means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from standfast.checks.baseline import Baseline
from standfast.checks.decision import Better, RequirementDecision
from standfast.checks.values import SampleValues, read_sample_values
from standfast.errors import ArgumentError
from standfast.report.sentences import say
from standfast.results import ConfiguredMetric, StoredResults
from standfast.results.formatting import format_probability, shorten_error
from standfast.statistics.decisions import (
    IntervalEstimate,
    Outcome,
    count_met,
    estimate_mean,
    estimate_share,
    foresee_mean,
    foresee_share,
)
from standfast.statistics.paired import merge_rounding, signed_rank, subtract
from standfast.study.file.entries import RequirementEntry
from standfast.tensors import Array
from standfast.value_spec import Direction

#: what the values of a comparison with a baseline are
_LOSS = "loss against the baseline"
NO_BASELINE = "its baseline is not at hand"
NOTHING_FROZEN = "the baseline has no value of it, so there is nothing to compare with"


def find_misfit(manifest: Mapping[str, Any], label: str, explainer: str) -> str:
    """Why a study left an explainer out of a metric, so that no number of samples decides anything; may be empty."""
    misfits = manifest.get("misfits") or {}
    of_metric = misfits.get(label) or {}
    return str(of_metric.get(explainer) or "")


def find_direction(metric: ConfiguredMetric) -> Direction:
    """Which values are better: those of one explainer can be compared even where explainers are not ranked."""
    return metric.spec.direction or metric.direction


@dataclass(frozen=True)
class _Ruling:
    """What a limit on values comes to, before it is said for which explainer.

    Attributes:
        outcome, what, estimate, limit, better, unknown, needed, advice: as of `RequirementDecision`.
    """

    outcome: Outcome
    what: str
    estimate: IntervalEstimate
    limit: float
    better: Better
    unknown: int
    needed: int | None
    advice: str


@dataclass(frozen=True)
class Case:
    """One requirement for one explainer."""

    results: StoredResults
    entry: RequirementEntry
    data: str
    model: str
    label: str
    explainer: str
    level: float
    next_level: float

    def decide(self, baseline: Baseline | None) -> RequirementDecision:
        """The decision."""
        self.check_metric()
        values = self._read(self.explainer)
        # a test, which needs no limit on values
        if self.entry.better_than is not None:
            return self._compare(values, self._read(self.entry.better_than))
        if baseline is not None:
            return self._compare_with_baseline(values, baseline)
        spec = self.results.metrics[self.label].spec
        return self._decide_values(values, self.entry.limit, self.entry.side, spec.axis)

    def leave_open(self) -> RequirementDecision:
        """The decision where the baseline is not at hand."""
        return self._make(
            "undecided", _LOSS, None, limit=self.entry.by, better="lower", advice=NO_BASELINE
        )

    def check_metric(self) -> None:
        """Check that the limit is one for this metric.

        Raises:
            ArgumentError: it is not.
        """
        metric = self.results.metrics[self.label]
        if self.entry.kind in ("at_most_ln", "at_most_one_in") and not metric.spec.log_probability:
            raise ArgumentError(
                self.entry.kind, "a metric that measures a probability", repr(self.label)
            )
        # numbers on the scale of each explainer's maps can be compared with earlier ones of the same explainer alone
        is_ranked = metric.spec.direction is not None
        is_comparable = (
            is_ranked if self.entry.kind == "better_than" else find_direction(metric) is not None
        )
        if self.entry.kind in ("better_than", "no_worse_than") and not is_comparable:
            raise ArgumentError(
                "metric", "one that ranks explainers, for a comparison", repr(self.label)
            )

    def _compare_with_baseline(
        self, values: SampleValues, baseline: Baseline
    ) -> RequirementDecision:
        """Whether the values are not worse than those of a baseline on the same samples."""
        reference = baseline.values(self.data, self.model, self.label, self.explainer, self.results)
        same_model = baseline.has_model(self.data, self.model, self.results.manifest)
        loss = self._find_loss(values, reference, same_model)
        lost = np.intersect1d(values.dropped, reference.samples)
        if not self.entry.mean:  # a mean of what has no number is none, so they do not count there
            loss = _add_lost(loss, lost)
        count = baseline.count_samples(self.data)
        decision = self._decide_values(
            loss, self.entry.by, "lower", _LOSS, count, is_certain=same_model
        )
        # nothing was frozen, which no number of samples changes
        if not len(reference.samples):
            decision = replace(decision, advice=NOTHING_FROZEN, needed=None)
        return replace(
            decision,
            middle_of="loss",
            baseline_samples=count,
            baseline_sanity=baseline.read_sanity(self.data, self.model, self.explainer),
            lost=0 if self.entry.mean else len(lost),
        )

    def _find_loss(
        self, values: SampleValues, reference: SampleValues, same_model: bool
    ) -> SampleValues:
        """By how much the values are worse than those of the baseline, on the samples that both have.

        The same model has the same true values. So where it also has the same bounds, because the same was measured,
        the difference is 0, although that of two bounds is not known.
        """
        # in the direction in which larger is better
        gain = self._subtract(values, reference)
        low = -gain.high
        high = -gain.low
        if same_model:
            _, rows, reference_rows = np.intersect1d(
                values.samples, reference.samples, return_indices=True
            )
            same_low = values.low[rows] == reference.low[reference_rows]
            same_high = values.high[rows] == reference.high[reference_rows]
            low = np.where(same_low & same_high, 0.0, low)
            high = np.where(same_low & same_high, 0.0, high)
        return replace(gain, low=low, high=high)

    def _read(self, explainer: str) -> SampleValues:
        rows = self.results.metric_results(self.data, self.model, self.label).rows_for(explainer)
        return read_sample_values(self.results.metrics[self.label].spec, rows)

    def _find_why_empty(self) -> str:
        """Why no sample counts: the metric does not fit, had nothing to vary, or jobs failed; empty if none is so."""
        misfit = find_misfit(self.results.manifest, self.label, self.explainer)
        if misfit:
            return misfit
        metric = self.results.summary.find(self.data, self.model, self.label)
        row = None if metric is None else metric.find_row(self.explainer)
        if row is None:
            return ""
        if row.has_nothing_varied:
            return "there was nothing to vary"
        if row.error is None:
            return ""
        return f"jobs failed: {shorten_error(row.error)}"

    def _subtract(self, values: SampleValues, other: SampleValues) -> SampleValues:
        """By how much the values are better than others, on the samples that both have."""
        _, rows, other_rows = np.intersect1d(values.samples, other.samples, return_indices=True)
        # intervals that only rounding tells apart would give ranks without meaning
        low, other_low = merge_rounding(
            np.stack([values.low[rows], other.low[other_rows]], axis=1)
        ).T
        high, other_high = merge_rounding(
            np.stack([values.high[rows], other.high[other_rows]], axis=1)
        ).T
        difference_low, difference_high = subtract((low, high), (other_low, other_high))
        # less is better there, and the ends change places
        if find_direction(self.results.metrics[self.label]) == "lower":
            difference_low, difference_high = -difference_high, -difference_low
        return SampleValues(
            values.samples[rows],
            difference_low,
            difference_high,
            skipped=values.skipped + len(values.samples) - len(rows),
            mistaken=values.mistaken + other.mistaken,
        )

    def _make(
        self, outcome: Outcome, what: str, estimate: IntervalEstimate | None, **others: Any
    ) -> RequirementDecision:
        names = (self.data, self.model, self.explainer, self.label)
        same_metric = [
            metric
            for metric in self.results.metrics.values()
            # a label is needed only where the name does not tell the metric
            if self.entry.metric in (None, metric.metric)
        ]
        needs_label = self.entry.metric is None or (
            self.entry.metric != self.label and len(same_metric) > 1
        )
        limits_probability = self.entry.kind in ("at_most_ln", "at_most_one_in")
        limit = format_probability(self.entry.limit) if limits_probability else None
        title = self.label if needs_label else self.entry.metric
        words = say("requirement", self.entry, title, limit)
        others = {"requested": self.entry.level, "probability": self._is_probability, **others}
        return RequirementDecision(words, *names, outcome, what, estimate, **others)

    @property
    def _is_probability(self) -> bool:
        """Whether a limit on values is one of logarithms of probabilities; differences are none."""
        spec = self.results.metrics[self.label].spec
        return (
            spec.log_probability
            and self.entry.better_than is None
            and self.entry.no_worse_than is None
        )

    def _decide_values(
        self,
        values: SampleValues,
        limit: float,
        better: Better,
        axis: str,
        baseline: int | None = None,
        is_certain: bool = False,
    ) -> RequirementDecision:
        """A limit on values: of their mean, or of the share of samples that meet it.

        Args:
            values: of the samples.
            limit: of each value, or of their mean.
            better: the side of the limit that is wanted.
            axis: what the values are.
            baseline: how many samples the baseline has.
            is_certain: whether values that are all 0 are so for every sample, because the model is the same.
        """
        if self.entry.mean:
            ruling = self._decide_mean(values, limit, better, axis, baseline, is_certain)
        else:
            ruling = self._decide_share(values, limit, better, baseline)
        # no sample: there is no number to show
        if not len(values.samples):
            return self._make(
                "undecided",
                ruling.what,
                None,
                limit=ruling.limit,
                better=ruling.better,
                skipped=values.skipped,
                advice=self._describe_empty(values.skipped),
            )
        return self._make(
            ruling.outcome,
            ruling.what,
            ruling.estimate,
            limit=ruling.limit,
            better=ruling.better,
            middle=_find_middle(values),
            unknown=ruling.unknown,
            skipped=values.skipped,
            needed=ruling.needed,
            advice=ruling.advice,
        )

    def _describe_empty(self, skipped: int) -> str:
        """That no sample counts, in words, and why."""
        words = "no sample was evaluated"
        if skipped:
            words += f"; {skipped} were skipped"
        reason = self._find_why_empty()
        if reason:
            words += f", because {reason}"
        return words

    def _decide_mean(
        self,
        values: SampleValues,
        limit: float,
        better: Better,
        axis: str,
        baseline: int | None,
        is_certain: bool,
    ) -> _Ruling:
        """Of the mean; the arguments are those of `_decide_values`."""
        exact = values.low == values.high
        # a bound is no exact number
        estimate = estimate_mean(values.low[exact], self.level)
        count = len(values.samples)
        if is_certain and count and not values.low.any() and not values.high.any():
            estimate = IntervalEstimate(0.0, 0.0, 0.0, self.level, count)
        # a bound has no place in a mean, so with any of them nothing is decided
        outcome: Outcome = estimate.decide(limit, better) if exact.all() else "undecided"
        unknown = int((~exact).sum())
        needed = None
        advice = ""
        if outcome == "undecided":
            if exact.all():
                needed = foresee_mean(estimate_mean(values.low, self.next_level), limit)
            advice = say("advice", needed, unknown, True, baseline)
        what = f"{'geometric ' * self._is_probability}mean of {axis}"
        return _Ruling(outcome, what, estimate, limit, better, unknown, needed, advice)

    def _decide_share(
        self, values: SampleValues, limit: float, better: Better, baseline: int | None
    ) -> _Ruling:
        """Of the share of samples that meet the limit; the arguments are those of `_decide_values`."""
        share = self.entry.share
        met, unmet, unknown = count_met(values.low, values.high, limit, better)
        estimate = estimate_share(met, unmet, unknown, self.level, values.mistaken)
        outcome = estimate.decide(share, "higher")
        needed = None
        advice = ""
        if outcome == "undecided":
            ahead = estimate_share(met, unmet, unknown, self.next_level, values.mistaken)
            needed = foresee_share(ahead, share, values.mistaken)
            # where no values of the bounds would decide it, to know them is of no use, and the advice leaves them out
            could_decide = self._could_bounds_decide(met, unmet, unknown, values.mistaken)
            deciding = unknown if could_decide else 0
            advice = say("advice", needed, deciding, False, baseline)
        return _Ruling(
            outcome, "share of samples", estimate, share, "higher", unknown, needed, advice
        )

    def _could_bounds_decide(self, met: int, unmet: int, unknown: int, mistaken: float) -> bool:
        """Whether it would be decided if all of the unknown values were known, and all met the limit, or none."""
        for all_met, all_unmet in ((met + unknown, unmet), (met, unmet + unknown)):
            estimate = estimate_share(all_met, all_unmet, 0, self.level, mistaken)
            if estimate.decide(self.entry.share, "higher") != "undecided":
                return True
        return False

    def _compare(self, values: SampleValues, other: SampleValues) -> RequirementDecision:
        """Whether the explainer is better than another one on the same samples."""
        gain = self._subtract(values, other)
        count = len(gain.samples)
        # without samples nothing is shown
        p, effect = 1.0, 0.0
        if count:
            p, effect, _ = signed_rank(gain.low, gain.high)
        p_better = p_worse = 1.0  # of each direction alone
        if effect > 0:
            p_better = p / 2
            p_worse = 1 - p / 2
        elif effect < 0:
            p_better = 1 - p / 2
            p_worse = p / 2
        tail = (1 - self.level) / 2  # as an interval with two ends has
        outcome: Outcome = "undecided"
        if p_better <= tail:
            outcome = "pass"
        elif p_worse <= tail:
            outcome = "fail"
        unknown = int(((gain.low < 0) & (gain.high > 0)).sum())
        needed = None
        advice = ""
        if outcome == "undecided":
            needed = self._foresee_test(min(p_better, p_worse), count)
            advice = say("advice", needed, unknown, False, None)
        return self._make(
            outcome,
            "rank correlation of differences",
            IntervalEstimate(effect, math.nan, math.nan, self.level, count) if count else None,
            limit=0.0,
            better="higher",
            p=min(p_better, p_worse) if count else None,
            unknown=unknown,
            skipped=gain.skipped,
            needed=needed,
            advice=advice,
        )

    def _foresee_test(self, p: float, count: int) -> int | None:
        """About how many samples decide the test, whose statistic grows as their root; None where it shows too little.

        Args:
            p: of the direction that has the smaller one.
            count: of samples so far.
        """
        # a p near one half shows no direction, and a forecast would be arbitrary
        if not 0 < p < 0.4:
            return None
        deviations = abs(float(ndtri(p)))
        needed_deviations = abs(float(ndtri((1 - self.next_level) / 2)))
        # at least one more, as the look at the same samples is the same look
        needed = math.ceil(count * (needed_deviations / deviations) ** 2)
        return max(count + 1, needed)


def _add_lost(loss: SampleValues, lost: Array) -> SampleValues:
    """Losses with those of samples that cannot be evaluated any more, which are larger than any limit."""
    infinite = np.full(len(lost), math.inf)
    return replace(
        loss,
        samples=np.concatenate([loss.samples, lost]),
        low=np.concatenate([loss.low, infinite]),
        high=np.concatenate([loss.high, infinite]),
        skipped=loss.skipped - len(lost),
    )


def _find_middle(values: SampleValues) -> float | None:
    """The median of the values; None where it is not known exactly."""
    low = float(np.median(values.low))
    high = float(np.median(values.high))
    # bounds on both sides leave the middle open
    return low if low == high and math.isfinite(low) else None
