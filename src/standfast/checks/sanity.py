"""What the sanity checks say of decisions that were made by numbers alone.

Two questions are asked of them. An explainer is *good* if it passes the checks, and without that it meets no limit: a
map that says nothing may well be stable. It is *not worse than a baseline* if it stands in each check where it stood in
the baseline; whether that is good is no part of this question.
"""

from __future__ import annotations

from dataclasses import replace

from standfast.checks.decision import Decisions, RequirementDecision
from standfast.report.sentences import say
from standfast.results import StoredResults
from standfast.results.sanity import MARGINS, Check, Sanity
from standfast.statistics.decisions import Outcome

#: how far a check has come; those that are not listed do not count
_RANKS = {"failed": 0, "untested": 1, "undecided": 1}
_PASSED = 2


def hold_to_sanity(decisions: Decisions, results: StoredResults) -> Decisions:
    """The decisions, where an explainer passes only if the sanity checks allow it."""
    return replace(
        decisions, decisions=tuple(_hold(decision, results) for decision in decisions.decisions)
    )


def _hold(decision: RequirementDecision, results: StoredResults) -> RequirementDecision:
    sanity = results.sanity.get((decision.data, decision.model, decision.explainer))
    if sanity is None:
        return _ask_for_checks(decision)
    # a failure stays one, whatever the checks say
    if decision.outcome == "fail" or sanity.reason is None:
        return decision
    if decision.baseline_sanity is None:
        return _apply(decision, sanity.reason, _ask_whether_good(sanity), sanity, results)
    worst_check, outcome = compare_sanity(sanity, decision.baseline_sanity)
    # where none is worse, the reason of now is the one to show
    return _apply(decision, worst_check or sanity.reason, outcome, sanity, results)


def _ask_for_checks(decision: RequirementDecision) -> RequirementDecision:
    """A decision without sanity checks: not to ask must not earn what an explainer passed in the baseline."""
    earlier = decision.baseline_sanity
    if decision.outcome != "pass" or earlier is None:
        return decision
    # nothing was passed that could be lost by not asking
    if not any(_rank(check) == _PASSED for check in earlier.checks):
        return decision
    advice = "the baseline has sanity checks, and these results have none"
    return replace(decision, outcome="undecided", needed=None, advice=advice)


def _ask_whether_good(sanity: Sanity) -> Outcome:
    if sanity.state == "failed":
        return "fail"
    return "undecided"


def _apply(
    decision: RequirementDecision,
    check: Check,
    outcome: Outcome,
    sanity: Sanity,
    results: StoredResults,
) -> RequirementDecision:
    """A decision that is no failure, with what the checks say of it.

    Args:
        decision: by the numbers.
        check: that explains the outcome.
        outcome: by the checks.
        sanity: all checks.
        results: of the study.
    """
    words = say("reason", check.question, check.state)
    if outcome == "fail":
        return replace(decision, outcome="fail", sanity=words, needed=None, advice="")
    # undecided by the numbers stays so
    if decision.outcome == "undecided":
        return decision
    if outcome == "pass":
        return replace(decision, sanity=words)
    needed = sanity.needed
    if needed is None:
        return replace(decision, outcome="undecided", sanity=words, needed=None, advice="")
    advice = f"about {needed:,} samples for the sanity checks"
    if needed > int(results.manifest["sanity"]["samples"]):
        # more samples of the study alone would not be looked at
        advice += f": sanity: {needed} in the study"
        needed = None
    return replace(decision, outcome="undecided", sanity=words, needed=needed, advice=advice)


def compare_sanity(now: Sanity, then: Sanity) -> tuple[Check | None, Outcome]:
    """Whether an explainer stands in the sanity checks at least where it stood before.

    A check that is not passed and was not before either is no reason to fail. One that was passed and is failed is
    worse, and one that has fallen is worse if its two intervals are apart; otherwise it is not known.

    Returns:
        The check that decides, None if none is worse; and the outcome.

    >>> passed = Check("learned", "passed", 0.9, 0.8, 1.0, 40)
    >>> open_, failed = Check("learned", "undecided", 0.7, 0.5, 0.9, 40), Check("learned", "failed", 0.3, 0.2, 0.4, 40)
    >>> pairs = [(open_, passed), (failed, passed), (failed, open_), (open_, open_), (failed, failed)]
    >>> [compare_sanity(Sanity((now,)), Sanity((then,)))[1] for now, then in pairs]
    ['undecided', 'fail', 'fail', 'pass', 'pass']
    """
    earlier_checks = {check.question: check for check in then.checks}
    fallen = []
    for check in now.checks:
        earlier = earlier_checks.get(check.question)
        if earlier is not None and _rank(check) < _rank(earlier):
            fallen.append((check, earlier))
    for check, earlier in fallen:
        if _is_shown_worse(check, earlier):
            return check, "fail"
    if fallen:
        return fallen[0][0], "undecided"
    return None, "pass"


def _rank(check: Check) -> int:
    return _RANKS.get(check.state, _PASSED)


def _is_shown_worse(check: Check, earlier: Check) -> bool:
    """Whether a check that has fallen is worse with certainty."""
    # from passed to failed needs no interval
    if check.state == "failed" and _rank(earlier) == _PASSED:
        return True
    # a check without a margin has larger values for better maps
    larger_is_better = check.question not in MARGINS or MARGINS[check.question][2]
    if larger_is_better:
        return _is_below(check.high, earlier.low)
    return _is_below(earlier.high, check.low)


def _is_below(first: float | None, second: float | None) -> bool:
    """Whether both ends are known, and the first is lower."""
    return first is not None and second is not None and first < second
