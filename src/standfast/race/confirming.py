"""The confirmation: what the samples say that the race did not use, of its leader and then of its runner-up.

The leader is evaluated first. If it is not confirmed, the runner-up is, where the race could not tell the two apart.
Both are evaluated on the same samples: neither the race nor its order has seen them, so each claim has its own error
there. Two claims are two chances to be wrong, so their error is shared, from the beginning and whether or not the
second is made: intervals have half of the error, and tests against controls are corrected for two explainers (Holm's
method, of which the first claim takes its first step). Of the checks, which are passed
by intervals at 95%, one end errs in 2.5%: for two claims together this is the stated 5%.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from standfast.race.jobs import Means, do_jobs
from standfast.report import Results, load_results
from standfast.report.sentences import describe_verdict
from standfast.results.metric_summary import read_samples
from standfast.results.quality import judge_stability
from standfast.results.races import CONFIRMATION, Confirmation, Judgement, Measured, Outcome
from standfast.results.summary import MetricSummary, SummaryRow
from standfast.results.verdict import Verdict
from standfast.statistics.paired import bootstrap_interval
from standfast.study.jobs import Job
from standfast.study.plan import Plan
from standfast.study.store import Store

#: the error of an interval that judges alone
_ERROR = 0.05
#: after these answers the runner-up is asked; another answer would be the same for it
_ASKS_SECOND: tuple[Outcome, ...] = ("refused", "undecided")
#: said where an explainer passes alone, and not as one of two
_NOT_AS_ONE_OF_TWO = (
    "It would be confirmed if it were the only one, but two may be, so each has half of the error."
)

#: the jobs of some explainers and their controls on the samples that are kept
PlanConfirmation = Callable[[Sequence[str]], Plan]


@dataclass(frozen=True)
class Confirmed:
    """What became of a confirmation.

    Attributes:
        confirmation: of the leader; None if nobody was left.
        second: of the runner-up; None if it was not asked.
        results: of both; None if nobody was left.
        jobs: what was done.
    """

    confirmation: Confirmation | None = None
    second: Confirmation | None = None
    results: Results | None = None
    jobs: Sequence[Job] = ()


def confirm(
    finalists: Sequence[str], plan_of: PlanConfirmation, store: Store, means: Means
) -> Confirmed:
    """Evaluate the leader on the samples that the race did not use, and if it fails, the runner-up.

    Args:
        finalists: the names of the explainers at the end of the race, the leader first.
        plan_of: of these explainers.
        store: for the results.
        means: how jobs are done.
    """
    if not finalists:
        return Confirmed()
    claimed = finalists[:2]
    leader = claimed[0]
    plan = plan_of([leader])
    ended = do_jobs(plan, plan.jobs, store, means)
    results = load_results(store)
    first = _confirm_one(leader, plan, results, ended, len(claimed))
    if len(claimed) < 2 or first.outcome not in _ASKS_SECOND:
        return Confirmed(first, None, results, plan.jobs)
    plan = plan_of(claimed)
    ended = do_jobs(plan, plan.jobs, store, means)
    results = load_results(store)
    second = _confirm_one(claimed[1], plan, results, ended, len(claimed))
    # tests are now corrected for both
    first = replace(first, needed=_find_needed(leader, results.verdict(*_find_pair(plan))))
    return Confirmed(first, second, results, plan.jobs)


def _confirm_one(name: str, plan: Plan, results: Results, ended: bool, claims: int) -> Confirmation:
    """What the samples say of one explainer.

    Args:
        name: of the explainer.
        plan: of the jobs.
        results: what they gave.
        ended: whether all are done.
        claims: how many explainers may be confirmed.
    """
    data, model = _find_pair(plan)
    summaries = results.summary.select(data, model)
    verdict = results.verdict(data, model)
    sanity = results.sanity.get((data, model, name))
    outcome: Outcome = _find_outcome(name, verdict) if ended else "unfinished"
    words = describe_verdict(verdict)
    if outcome == "confirmed" and not _holds_as_one_of(claims, name, results, summaries):
        outcome = "undecided"
        words = _NOT_AS_ONE_OF_TWO
    return Confirmation(
        name,
        outcome,
        len(plan.grid.data[data]),
        None if sanity is None else sanity.state,
        tuple(_judge(name, summary) for summary in summaries),
        words,
        name not in [passing.explainer for passing in verdict.partial],
        _find_needed(name, verdict),
    )


def _find_pair(plan: Plan) -> tuple[str, str]:
    """The names of the data set and of the model."""
    return plan.grid.combinations()[0]


def _find_needed(name: str, verdict: Verdict) -> int | None:
    """With about how many more samples half of such cases are decided; None if that is not known."""
    numbers = [ground.needed for ground in verdict.undecided if ground.explainer == name]
    return numbers[0] if numbers else None


def _find_outcome(name: str, verdict: Verdict) -> Outcome:
    """What a verdict says of an explainer: it may be shown, or passes all that was asked; else it is not confirmed."""
    if name in verdict.show or name in [passing.explainer for passing in verdict.partial]:
        return "confirmed"
    if name in [ground.explainer for ground in verdict.refuse]:
        return "refused"
    return "unjudged" if name in verdict.unjudged else "undecided"


def _holds_as_one_of(
    claims: int, name: str, results: Results, summaries: Sequence[MetricSummary]
) -> bool:
    """Whether an explainer that is good by all metrics is so with its share of the error of so many claims."""
    for summary in summaries:
        row = summary.find_row(name)
        if row is not None and row.quality == "good" and not _is_good(claims, row, results):
            return False
    return True


def _is_good(claims: int, row: SummaryRow, results: Results) -> bool:
    """Whether one number is good with its share of the error."""
    if row.references is not None:
        rows = results.metric_results(row.data, row.model, row.label).rows_for(row.explainer)
        _, values, bounds = read_samples(row.spec, row.spec.select_valid(rows))
        interval = bootstrap_interval(
            values,
            censored=bounds,
            censored_side=row.spec.censored_side,
            level=1 - _ERROR / claims,
        )
        return judge_stability(row.spec, interval, row.references) == "good"
    test = row.control_test
    if test is None:
        return True
    # p-values are corrected for the explainers that were evaluated
    tested = sum(name not in results.summary.controls for name in results.explainers)
    return test.p_beats * claims / tested <= test.level


def _judge(name: str, summary: MetricSummary) -> Judgement:
    """What one metric says of an explainer."""
    row = summary.find_row(name)
    if row is None:
        return Judgement(summary.label, summary.metric.spec.asks, None, None)
    return Judgement(summary.label, row.spec.asks, Measured.of(row.estimate), row.quality)


def open_confirmation(store: Store) -> Store:
    """The store of the confirmation, in the folder of the race."""
    return Store(f"{store.folder.address}/{CONFIRMATION}", lasting=store.lasting)
