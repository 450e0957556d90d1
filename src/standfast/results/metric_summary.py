"""`summarise_metric`: from the rows of one configured metric to its summary, in the order in which it is computed.

The samples of each explainer become an estimate. Tests that were made before say which explainer ranks first. Then all
explainers are looked at together, because p-values are corrected for their number and qualities are compared with
controls. Last comes what the tests decide for the metric as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from standfast.results.configured_metric import ConfiguredMetric
from standfast.results.controls import is_random
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
from standfast.results.sanity import Sanity, SanityState, round_up
from standfast.results.summary import (
    Counts,
    MetricDecision,
    MetricSummary,
    Reason,
    Standing,
    SummaryRow,
    Uncounted,
)
from standfast.statistics.comparison import (
    Comparison,
    ControlTest,
    count_more_against_controls,
    count_needed,
    estimate_needed,
)
from standfast.statistics.paired import Interval, bootstrap_interval, holm, median_over_repeats
from standfast.tensors import Array
from standfast.value_spec import ValueSpec, read_numbers


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
    parts = results.frame.partition_by("explainer", as_dict=True)
    rows_of = {str(name): rows_of_explainer for (name,), rows_of_explainer in parts.items()}
    no_rows = results.frame.clear()
    is_unchanged = _is_unchanged(results)
    # values that are all equal tie all explainers, so that their order says nothing
    ranking = None if is_unchanged else comparison
    summaries = []
    for name in results.explainers:
        sample_rows = rows_of.get(name, no_rows)
        if not len(sample_rows) and not results.errors.get(name):
            continue
        references = _select_references(results, name, checks)
        summary = _summarise_explainer(results, name, sample_rows, references)
        mean_rank, standing = _rank(name, ranking)
        state_of_checks: SanityState | None = None
        if name in sanity:
            state_of_checks = sanity[name].state
        summary = replace(
            summary,
            mean_rank=mean_rank,
            standing=standing,
            control_test=test_of.get(name),
            sanity=state_of_checks,
        )
        summaries.append(summary)
    summaries = judge_rows(_correct_for_explainers(summaries), sanity)
    if is_unchanged:
        decision = MetricDecision("unable", "unchanged")
    else:
        decision = decide(results, comparison)
    return MetricSummary(
        results.data,
        results.model,
        metric,
        tuple(summaries),
        comparison,
        decision,
        _is_uneven(results.spec, rows_of.values()),
    )


def _is_unchanged(results: MetricResults) -> bool:
    """Whether no map of any explainer changed, of those that have a value."""
    explained = [*results.candidates, *results.unfit]
    rows = results.frame.filter(pl.col("explainer").is_in(explained))
    valid = results.spec.select_valid(rows)
    values = results.spec.values(valid)
    return len(valid) > 0 and bool(results.spec.find_unchanged(values).all())


def _is_uneven(spec: ValueSpec, parts: Iterable[pl.DataFrame]) -> bool:
    """Whether explainers have values for different samples."""
    samples_of_explainers = set()
    for rows in parts:
        valid = spec.select_valid(rows)
        samples_of_explainers.add(frozenset(valid["repeat", "sample"].rows()))
    return len(samples_of_explainers) > 1


def _select_references(
    results: MetricResults, explainer: str, checks: pl.DataFrame | None
) -> References | None:
    """What the metric gives for equal and for unrelated maps of an explainer, as checks have measured it; else None."""
    if checks is None or not len(checks):
        return None
    of_explainer = checks.filter(pl.col("explainer") == explainer)
    return find_references(results.spec, results.label, of_explainer)


# One explainer: from its samples to an estimate


def _summarise_explainer(
    results: MetricResults, explainer: str, sample_rows: pl.DataFrame, references: References | None
) -> SummaryRow:
    """The numbers of one explainer, from its rows, one for each sample, without what is compared with others."""
    spec = results.spec
    errors = results.errors.get(explainer, ())
    first_error = errors[0] if errors else None
    row = SummaryRow(
        results.data,
        results.model,
        explainer,
        results.label,
        results.metric,
        spec,
        estimate(spec, sample_rows),
        control=explainer in results.controls,
        counts=count_rows(spec, sample_rows, len(errors)),
        error=first_error,
        references=references,
    )
    if references is None:
        return row
    return replace(
        row,
        failure_p=_find_failure_p(spec, sample_rows, references),
        weak_classes=find_weak_classes(spec, sample_rows, references),
    )


def estimate(spec: ValueSpec, rows: pl.DataFrame) -> Interval | None:
    """The median over the samples of one explainer's rows, with its interval; None where no sample counts."""
    valid = spec.select_valid(rows)
    if not len(valid):
        return None
    _, values, are_bounds = read_samples(spec, valid)
    return bootstrap_interval(values, censored=are_bounds, censored_side=spec.censored_side)


def read_samples(spec: ValueSpec, rows: pl.DataFrame) -> tuple[Array, Array, Array]:
    """Numbers of the samples of one explainer's valid rows, ascending, their values, and which of these are bounds.

    The value of a sample is the median over its repeats. Each is `(n,)`.
    """
    samples, sample_of_row = np.unique(rows["sample"].to_numpy(), return_inverse=True)
    repeats, repeat_of_row = np.unique(rows["repeat"].to_numpy(), return_inverse=True)
    # with an axis of one explainer, as `median_over_repeats` reads it
    values = np.full((len(repeats), len(samples), 1), np.nan)
    are_bounds = np.zeros(values.shape, dtype=bool)
    values[repeat_of_row, sample_of_row, 0] = spec.values(rows)
    are_bounds[repeat_of_row, sample_of_row, 0] = spec.bounds(rows)
    if len(repeats) == 1:
        return samples, values[0, :, 0], are_bounds[0, :, 0]
    medians, medians_are_bounds = median_over_repeats(values, are_bounds, spec.censored_side)
    return samples, medians[:, 0], medians_are_bounds[:, 0]


def count_rows(spec: ValueSpec, rows: pl.DataFrame, failed_jobs: int = 0) -> Counts:
    """What became of one explainer's rows."""
    if not len(rows):
        return Counts(failed_jobs=failed_jobs)
    evaluated = rows.filter(pl.col("status") == "ok")
    valid = spec.select_valid(rows)
    are_bounds = spec.bounds(valid)
    # a column that is not there has NaN, which is not 0
    are_unresolved = are_bounds & (read_numbers(valid, "resolved") == 0.0)
    are_imprecise = ~are_bounds & (read_numbers(valid, "error_reached") == 0.0)
    return Counts(
        rows=len(rows),
        evaluated=len(evaluated),
        counted=len(valid),
        bounds=int(are_bounds.sum()),
        unresolved=int(are_unresolved.sum()),
        imprecise=int(are_imprecise.sum()),
        without_number=int((~np.isfinite(spec.values(evaluated))).sum()),
        unvaried=int(spec.find_unvaried(rows).sum()),
        uncounted=_group_uncounted(rows, valid),
        failed_jobs=failed_jobs,
        repeats=rows["repeat"].n_unique(),
    )


def _group_uncounted(rows: pl.DataFrame, valid: pl.DataFrame) -> tuple[Uncounted, ...]:
    """The rows of one explainer that are not `valid`, by reason."""
    keys = ["repeat", "sample"]
    rest = rows.join(valid.select(keys), on=keys, how="anti", maintain_order="left")
    uncounted = []
    for (status,), group in rest.group_by("status", maintain_order=True):
        samples = group["sample"].n_unique()
        uncounted.append(Uncounted(str(status), samples, len(group), _list_failures(group)))
    return tuple(uncounted)


def _list_failures(rows: pl.DataFrame) -> tuple[str, ...]:
    """The reasons that the metric stored, each once."""
    if "failure" not in rows.columns:
        return ()
    failures = rows["failure"].drop_nulls().cast(pl.String)
    return tuple(failures.unique(maintain_order=True))


def _find_failure_p(spec: ValueSpec, rows: pl.DataFrame, references: References) -> float | None:
    """The p-value of the claim that an explainer is bad by a measure of stability; None without a value."""
    valid = spec.select_valid(rows)
    if not len(valid):
        return None
    _, values, are_bounds = read_samples(spec, valid)
    return find_bad_p_value(spec, values, are_bounds, references)


# All explainers together: ranks, p-values, qualities


def _rank(name: str, comparison: Comparison | None) -> tuple[float | None, Standing | None]:
    """The mean rank of an explainer, and what the tests say of it."""
    if comparison is None or comparison.count == 0 or name not in comparison.names:
        return None, None
    index = comparison.names.index(name)
    rank = float(comparison.mean_ranks[index])
    if not comparison.decided:
        return rank, "undecided"
    if index not in comparison.winner_set:
        return rank, "worse"
    first_rank = comparison.mean_ranks[comparison.order[0]]
    standing: Standing = "best" if rank == first_rank else "tied"
    return rank, standing


def _correct_for_explainers(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """The rows of one metric with p-values that hold for all explainers at once."""
    by_stability = {
        row.explainer: row.failure_p
        for row in rows
        if row.failure_p is not None and not row.control
    }
    p_values = holm(np.array(list(by_stability.values()), dtype=float))
    corrected = dict(zip(by_stability, p_values.tolist(), strict=True))
    for row in rows:
        # tests against controls have been corrected already
        if row.control_test is not None:
            corrected.setdefault(row.explainer, row.control_test.p_worse)
    return [replace(row, failure_p=corrected.get(row.explainer)) for row in rows]


def judge_rows(rows: Sequence[SummaryRow], sanity: Mapping[str, Sanity]) -> list[SummaryRow]:
    """The rows of one metric with their qualities; none where the model is near chance."""
    # against controls, only what is worse than random maps is bad
    random = next((row.value for row in rows if row.control and is_random(row.explainer)), None)
    tested = sum(row.control_test is not None for row in rows)
    judged = []
    for row in rows:
        quality_of_value = _judge_value(row, random)
        is_open = quality_of_value == "undecided"
        more_samples_needed = _count_more(row, tested) if is_open else None
        quality = _hold_to_sanity(row, quality_of_value)
        if row.explainer in sanity and _is_near_chance(sanity[row.explainer]):
            # of a model that has learned nothing, no map is good or bad
            quality = None
        failure_p = None
        if quality is not None:
            failure_p = row.failure_p
        judged.append(
            replace(
                row, quality=quality, failure_p=failure_p, more_samples_needed=more_samples_needed
            )
        )
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
        if row.estimate is not None:
            counted = row.estimate.count
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
        # also of a value that is undecided: whatever it is, it is no merit
        return "control"
    if quality == "good" and row.sanity == "undecided":
        return "undecided"
    return quality


def _is_near_chance(sanity: Sanity) -> bool:
    """Whether the model itself is not shown to be better than chance."""
    reason = sanity.reason
    return reason is not None and reason.question == "accuracy" and reason.state == "failed"


# The metric as a whole: what the tests between explainers decide


def decide(results: MetricResults, comparison: Comparison | None) -> MetricDecision:
    """What the tests of a comparison say."""
    spec = results.spec
    if not len(results.frame):
        return MetricDecision("unable", "no result")
    if not len(spec.select_valid(results.frame)):
        is_idle = bool(spec.find_unvaried(results.frame).any())
        if is_idle:
            return MetricDecision("unable", "nothing varied")
        return MetricDecision("unable", "no value")
    if spec.direction is None:
        return MetricDecision("none", "unranked")
    if comparison is not None:
        return _decide_by_tests(comparison)
    if results.unfit:
        return MetricDecision("none", "unfit", len(results.candidates))
    if len(results.candidates) == 1:
        return MetricDecision("none", "one explainer")
    return MetricDecision("unable", "few explainers")


def _decide_by_tests(comparison: Comparison) -> MetricDecision:
    names = comparison.names
    decision = MetricDecision(
        "unable", "tied", len(names), comparison.count, level=comparison.level
    )
    if not comparison.conclusive_possible:
        samples_needed = count_needed(len(names), comparison.level)
        reason: Reason = "few samples" if comparison.count < samples_needed else "tied"
        return replace(decision, reason=reason, samples_needed=samples_needed)
    best = tuple(names[index] for index in comparison.winner_set)
    decision = replace(decision, state="open", best=best)
    differ = comparison.significant
    if not differ.any():
        return replace(decision, reason="no difference", samples_needed=estimate_needed(comparison))
    leader = comparison.order[0]
    # one that differs from the leader may also be better than it in the test, though its mean rank is not
    worse = tuple(
        names[index]
        for index in comparison.order
        if differ[leader, index] and comparison.effects[leader, index] > 0
    )
    if not worse:
        return replace(decision, reason="no best")
    reason = "all worse" if len(best) == 1 else "some worse"
    return replace(decision, state="decided", reason=reason, worse=worse)
