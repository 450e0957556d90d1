"""Decide requirements on stored results.

A requirement is checked for every data set, model, metric and explainer that it names: each of these is one decision.
All decisions of one check hold together with the level that is asked for (`spend_level`).

- A limit on values is a statement about the share of all samples that meet it (by default half of them: the median).
  The share has an exact interval. The requirement passes if the whole interval is at or above the wanted share, and
  fails if it is below it. A value that is only a bound counts as unknown where the bound does not decide. Of a
  probability the interval of each sample counts instead of its estimate.
- A limit on the mean uses the wider of Student's interval and Hall's; see `estimate_mean`.
- `better_than` is Wilcoxon's signed-rank test of differences on the same samples, in both directions.
- `no_worse_than` is a limit on differences from a stored baseline, on the same samples. A sample that has a value in
  the baseline and cannot be evaluated any more is worse by any amount.
- An explainer that fails the sanity checks passes no requirement, and one on which they are undecided not yet, whatever
  its numbers are. Against a baseline they are compared with those of the baseline instead (`checks.sanity`).

Other samples that were skipped (misclassified, constant maps) do not count; a decision says how many there are. The
intervals treat the samples as drawn at random from those on which the model will be used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

from standfast.checks.baseline import Baseline, read_baseline
from standfast.checks.decision import Better, Decision, Decisions
from standfast.checks.sanity import hold_to_sanity
from standfast.checks.values import SampleValues, read_values
from standfast.errors import ArgumentError, UnknownNameError
from standfast.report.sentences import describe_failures, say
from standfast.results import ConfiguredMetric, StoredResults
from standfast.results.formatting import format_probability, shorten_error
from standfast.statistics.decisions import (
    Estimate,
    Outcome,
    count_met,
    estimate_mean,
    estimate_share,
    foresee_mean,
    foresee_share,
    spend_level,
)
from standfast.statistics.paired import merge_rounding, signed_rank, subtract
from standfast.study.file.entries import RequirementEntry
from standfast.tensors import Array
from standfast.value_spec import Direction

#: what the values of a comparison with a baseline are
_LOSS = "loss against the baseline"
NO_BASELINE = "its baseline is not at hand"
NOTHING_FROZEN = "the baseline has no value of it, so there is nothing to compare with"


def decide_requirements(
    results: StoredResults,
    requirements: Sequence[RequirementEntry],
    look: int | Mapping[tuple[str, str], int] = 1,
    folder: str | Path = ".",
) -> Decisions:
    """Decide requirements on stored results.

    Args:
        results: the results.
        requirements: as in a study file.
        look: the number of this look at growing results, from 1; or one for each pair of data and model.
        folder: that baselines are relative to.

    Raises:
        UnknownNameError, ArgumentError: a requirement names what the results do not have.
    """
    return hold_to_sanity(
        decide_with_baselines(results, requirements, look, read_baselines(requirements, folder)), results
    )


def read_baselines(requirements: Sequence[RequirementEntry], folder: str | Path) -> dict[str, Baseline]:
    """The baselines that requirements name.

    Raises:
        ArgumentError: there is no such baseline.
    """
    return {e.no_worse_than: read_baseline(e.no_worse_than, folder) for e in requirements if e.no_worse_than}


def decide_with_baselines(
    results: StoredResults,
    requirements: Sequence[RequirementEntry],
    look: int | Mapping[tuple[str, str], int],
    baselines: Mapping[str, Baseline],
) -> Decisions:
    """As `decide_requirements` by the numbers alone, with baselines that were read before.

    Requirements whose baseline is not among them stay undecided.
    """
    cases = []
    for entry in requirements:
        baseline = baselines.get(entry.no_worse_than or "")
        for place in _list_places(results, entry, results.pairs):
            if baseline is None or not _is_out_of_reach(results, entry, place, baseline):
                cases.append((entry, *place))
    found = []
    for entry, data, model, label, explainer in cases:
        own = look[data, model] if isinstance(look, Mapping) else look
        # what more samples would decide is decided at the next look, which has a smaller part of the error
        levels = (spend_level(entry.level, turn, len(cases)) for turn in (own, own + 1))
        case = _Case(results, entry, data, model, label, explainer, *levels)
        missing = entry.no_worse_than is not None and entry.no_worse_than not in baselines
        found.append(case.leave_open() if missing else case.decide(baselines.get(entry.no_worse_than or "")))
    counts = [int(about.get("samples") or 0) for about in (results.manifest.get("data") or {}).values()]
    most = max(look.values(), default=1) if isinstance(look, Mapping) else look
    errors = tuple(describe_failures(results.summary))
    return Decisions(tuple(found), most, max(counts, default=0), len(results.failures), errors)


def check_requirement(results: StoredResults, entry: RequirementEntry, baseline: Baseline | None) -> None:
    """Check a requirement before anything is evaluated.

    Args:
        results: with the manifest of the study and without numbers.
        entry: the requirement.
        baseline: the one that it names.

    Raises:
        ArgumentError: no results of this study could decide it.
    """
    manifest = results.manifest
    for data, model, label, explainer in _list_places(results, entry, manifest["pairs"]):
        case = _Case(results, entry, data, model, label, explainer, entry.level, entry.level)
        case.check_metric()
        if baseline is not None and not find_misfit(manifest, label, explainer):
            baseline.find_rows(data, model, label, explainer, manifest)


def _is_out_of_reach(
    results: StoredResults, entry: RequirementEntry, place: tuple[str, str, str, str], baseline: Baseline
) -> bool:
    """Whether the metric cannot evaluate an explainer, and could not before, so that it is none of "all explainers"."""
    _, _, label, explainer = place
    if entry.explainer is not None or not find_misfit(results.manifest, label, explainer):
        return False
    return not baseline.has_rows(*place)


def find_misfit(manifest: Mapping[str, Any], label: str, explainer: str) -> str:
    """Why a study left an explainer out of a metric, so that no number of samples decides anything; may be empty."""
    return str(((manifest.get("misfits") or {}).get(label) or {}).get(explainer) or "")


def _find_direction(label: ConfiguredMetric) -> Direction:
    """Which values are better: those of one explainer can be compared even where explainers are not ranked."""
    return label.spec.direction or label.direction


def _list_places(
    results: StoredResults, entry: RequirementEntry, pairs: Sequence[Sequence[str]]
) -> Iterator[tuple[str, str, str, str]]:
    """The data, models, labels and explainers that a requirement names."""
    known = results.metrics
    if entry.metric is None:
        labels = [name for name, label in known.items() if _find_direction(label)]
    else:
        # of texts a label has the way of removing words behind it
        labels = [
            name
            for name, label in known.items()
            if entry.metric in (name, label.metric, name.removesuffix(f" ({label.removal})"))
        ]
        if not labels:
            raise UnknownNameError("metric", entry.metric, list(known))
    names = list(results.explainers)
    others = [name for name in names if name not in results.explainers.controls and name != entry.better_than]
    if entry.better_than is not None and entry.better_than not in names:
        raise UnknownNameError("explainer", entry.better_than, names)
    explainers = _choose("explainer", entry.explainer, names) if entry.explainer else others
    data, models = _choose("data", entry.data, results.data), _choose("model", entry.model, results.models)
    for own_data, own_model in pairs:
        if own_data in data and own_model in models:
            for label in labels:
                for explainer in explainers:
                    yield own_data, own_model, label, explainer


def _choose(kind: str, wanted: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    for name in wanted or ():
        if name not in known:
            raise UnknownNameError(kind, name, list(known))
    return list(wanted or known)


@dataclass(frozen=True)
class _Case:
    """One requirement for one explainer."""

    results: StoredResults
    entry: RequirementEntry
    data: str
    model: str
    label: str
    explainer: str
    level: float
    next_level: float

    def decide(self, baseline: Baseline | None) -> Decision:
        """The decision."""
        self.check_metric()
        own = self._read(self.explainer)
        if self.entry.better_than is not None:
            return self._compare(own, self._read(self.entry.better_than))
        if baseline is not None:
            return self._compare_with_baseline(own, baseline)
        spec = self.results.metrics[self.label].spec
        return self._decide_values(own, self.entry.limit, self.entry.side, spec.axis)

    def leave_open(self) -> Decision:
        """The decision where the baseline is not at hand."""
        return self._make("undecided", _LOSS, None, limit=self.entry.by, better="lower", advice=NO_BASELINE)

    def check_metric(self) -> None:
        """Check that the limit is one for this metric.

        Raises:
            ArgumentError: it is not.
        """
        label = self.results.metrics[self.label]
        if self.entry.kind in ("at_most_ln", "at_most_one_in") and not label.spec.log_probability:
            raise ArgumentError(self.entry.kind, "a metric that measures a probability", repr(self.label))
        # numbers on the scale of each explainer's maps can be compared with earlier ones of the same explainer alone
        is_ranked = label.spec.direction is not None
        is_comparable = is_ranked if self.entry.kind == "better_than" else _find_direction(label) is not None
        if self.entry.kind in ("better_than", "no_worse_than") and not is_comparable:
            raise ArgumentError("metric", "one that ranks explainers, for a comparison", repr(self.label))

    def _compare_with_baseline(self, own: SampleValues, baseline: Baseline) -> Decision:
        """Whether the values are not worse than those of a baseline on the same samples."""
        about = self.results.manifest
        reference = baseline.values(self.data, self.model, self.label, self.explainer, self.results)
        same_model = baseline.has_model(self.data, self.model, about)
        loss = self._find_loss(own, reference, same_model)
        lost = np.intersect1d(own.dropped, reference.samples)
        if not self.entry.mean:  # a mean of what has no number is none, so they do not count there
            loss = _add_lost(loss, lost)
        count = baseline.count_samples(self.data)
        decision = self._decide_values(loss, self.entry.by, "lower", _LOSS, count, is_certain=same_model)
        if not len(reference.samples):
            decision = replace(decision, advice=NOTHING_FROZEN, needed=None)
        return replace(
            decision,
            middle_of="loss",
            baseline_samples=count,
            baseline_sanity=baseline.read_sanity(self.data, self.model, self.explainer),
            lost=0 if self.entry.mean else len(lost),
        )

    def _find_loss(self, own: SampleValues, reference: SampleValues, same_model: bool) -> SampleValues:
        """By how much the values are worse than those of the baseline, on the samples that both have.

        The same model has the same true values. So where it also has the same bounds, because the same was measured,
        the difference is 0, although that of two bounds is not known.
        """
        gain = self._subtract(own, reference)
        low, high = -gain.high, -gain.low
        if same_model:
            _, mine, theirs = np.intersect1d(own.samples, reference.samples, return_indices=True)
            repeated = (own.low[mine] == reference.low[theirs]) & (own.high[mine] == reference.high[theirs])
            low, high = np.where(repeated, 0.0, low), np.where(repeated, 0.0, high)
        return replace(gain, low=low, high=high)

    def _read(self, explainer: str) -> SampleValues:
        rows = self.results.metric_results(self.data, self.model, self.label).rows_for(explainer)
        return read_values(self.results.metrics[self.label].spec, rows)

    def _find_why_empty(self) -> str:
        """Why no sample counts: the metric does not fit, had nothing to vary, or jobs failed; empty if none is so."""
        misfit = find_misfit(self.results.manifest, self.label, self.explainer)
        if misfit:
            return misfit
        metric = self.results.summary.find(self.data, self.model, self.label)
        row = None if metric is None else metric.find_row(self.explainer)
        if row is not None and row.has_nothing_varied:
            return "there was nothing to vary"
        return f"jobs failed: {shorten_error(row.error)}" if row is not None and row.error is not None else ""

    def _subtract(self, own: SampleValues, other: SampleValues) -> SampleValues:
        """By how much the own values are better, on the samples that both have."""
        _, mine, theirs = np.intersect1d(own.samples, other.samples, return_indices=True)
        low, other_low = merge_rounding(np.stack([own.low[mine], other.low[theirs]], axis=1)).T
        high, other_high = merge_rounding(np.stack([own.high[mine], other.high[theirs]], axis=1)).T
        difference = subtract((low, high), (other_low, other_high))
        if _find_direction(self.results.metrics[self.label]) == "lower":
            difference = (-difference[1], -difference[0])
        skipped = own.skipped + len(own.samples) - len(mine)
        return SampleValues(own.samples[mine], *difference, skipped, own.mistaken + other.mistaken)

    def _make(self, outcome: Outcome, what: str, estimate: Estimate | None, **others: Any) -> Decision:
        names = (self.data, self.model, self.explainer, self.label)
        requested = {"requested": self.entry.level, **others}
        same = [label for label in self.results.metrics.values() if self.entry.metric in (None, label.metric)]
        several = self.entry.metric is None or (self.entry.metric != self.label and len(same) > 1)
        asked = self.entry.kind in ("at_most_ln", "at_most_one_in")
        limit = format_probability(self.entry.limit) if asked else None
        words = say("requirement", self.entry, self.label if several else self.entry.metric, limit)
        requested["probability"] = self._is_probability
        return Decision(words, *names, outcome, what, estimate, **requested)

    @property
    def _is_probability(self) -> bool:
        """Whether a limit on values is one of logarithms of probabilities; differences are none."""
        spec = self.results.metrics[self.label].spec
        return spec.log_probability and self.entry.better_than is None and self.entry.no_worse_than is None

    def _decide_values(
        self,
        values: SampleValues,
        limit: float,
        better: Better,
        axis: str,
        baseline: int | None = None,
        is_certain: bool = False,
    ) -> Decision:
        """A limit on values: of their mean, or of the share of samples that meet it.

        Args:
            values: of the samples.
            limit: of each value, or of their mean.
            better: the side of the limit that is wanted.
            axis: what the values are.
            baseline: how many samples the baseline has.
            is_certain: whether values that are all 0 are so for every sample, because the model is the same.
        """
        count, share = len(values.samples), self.entry.share
        if self.entry.mean:
            exact = values.low == values.high
            estimate = estimate_mean(values.low[exact], self.level)
            if is_certain and count and not values.low.any() and not values.high.any():
                estimate = Estimate(0.0, 0.0, 0.0, self.level, count)
            outcome = estimate.decide(limit, better) if exact.all() else "undecided"
            needed = foresee_mean(estimate_mean(values.low[exact], self.next_level), limit) if exact.all() else None
            what, target = f"{'geometric ' * self._is_probability}mean of {axis}", limit
            unknown, side = int((~exact).sum()), better
        else:
            met, unmet, unknown = count_met(values.low, values.high, limit, better)
            estimate = estimate_share(met, unmet, unknown, self.level, values.mistaken)
            outcome = estimate.decide(share, "higher")
            ahead = estimate_share(met, unmet, unknown, self.next_level, values.mistaken)
            needed = foresee_share(ahead, share, values.mistaken)
            what, target, side = "share of samples", share, "higher"
        if not count:
            none = "no sample was evaluated" + (f"; {values.skipped} were skipped" if values.skipped else "")
            reason = self._find_why_empty()
            none += f", because {reason}" if reason else ""
            return self._make("undecided", what, None, limit=target, better=side, skipped=values.skipped, advice=none)
        advice = ""
        if outcome == "undecided":
            advice = say("advice", needed, unknown, self.entry.mean, baseline)
            if not self.entry.mean and unknown:
                # would it be undecided if all of the unknown values were known, whatever they are?
                extremes = (met + unknown, unmet), (met, unmet + unknown)
                known = (estimate_share(*counts, 0, self.level, values.mistaken) for counts in extremes)
                if all(each.decide(share, "higher") == "undecided" for each in known):
                    advice = say("advice", needed, 0, False, baseline)
        return self._make(
            outcome,
            what,
            estimate,
            limit=target,
            better=side,
            middle=_find_middle(values),
            unknown=unknown,
            skipped=values.skipped,
            needed=needed if outcome == "undecided" else None,
            advice=advice,
        )

    def _compare(self, own: SampleValues, other: SampleValues) -> Decision:
        """Whether the explainer is better than another one on the same samples."""
        gain = self._subtract(own, other)
        count = len(gain.samples)
        p, effect, _ = signed_rank(gain.low, gain.high) if count else (1.0, 0.0, 0)
        better = worse = 1.0
        if effect > 0:
            better, worse = p / 2, 1 - p / 2
        elif effect < 0:
            better, worse = 1 - p / 2, p / 2
        tail = (1 - self.level) / 2  # as an interval with two ends has
        outcome: Outcome = "pass" if better <= tail else "fail" if worse <= tail else "undecided"
        needed = None
        if outcome == "undecided" and 0 < min(better, worse) < 0.4:
            ends = min(better, worse), (1 - self.next_level) / 2
            seen, wanted = (abs(float(ndtri(each))) for each in ends)
            needed = max(count + 1, math.ceil(count * (wanted / seen) ** 2))
        unknown = int(((gain.low < 0) & (gain.high > 0)).sum())
        return self._make(
            outcome,
            "rank correlation of differences",
            Estimate(effect, math.nan, math.nan, self.level, count) if count else None,
            limit=0.0,
            better="higher",
            p=min(better, worse) if count else None,
            unknown=unknown,
            skipped=gain.skipped,
            needed=needed,
            advice=say("advice", needed, unknown, False, None) if outcome == "undecided" else "",
        )


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
    low, high = float(np.median(values.low)), float(np.median(values.high))
    return low if low == high and math.isfinite(low) else None
