"""What a requirement comes to: decisions, and what they say in words."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal

from standfast.report.sentences import say
from standfast.results.formatting import to_ascii
from standfast.results.sanity import Sanity
from standfast.statistics.decisions import IntervalEstimate, Outcome

Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class RequirementDecision:
    """The outcome of one requirement for one explainer.

    Attributes:
        requirement: in words.
        data, model, explainer, metric: what it was decided for; the metric by its label.
        outcome: `"pass"`, `"fail"` or `"undecided"`.
        what: what the estimate is, such as `"share of samples"`.
        estimate: the number with its interval at the level of this decision; None where no sample counts.
        limit: what the estimate is compared with.
        better: which side of the limit is wanted.
        requested: the level of the requirement, which all decisions share.
        middle: the median of the values, for a requirement on values; None where it is not known exactly.
        middle_of: what the values are, such as `"loss"`; empty for those of the metric.
        probability: whether the values are natural logarithms of probabilities.
        p: of the test that decides, for `better_than`.
        unknown: samples whose value is only a bound, so that it is not known whether they meet the limit.
        skipped: samples that do not count, since they were not evaluated.
        baseline_samples: how many samples of the data the baseline has; None without one.
        baseline_sanity: the sanity checks of the explainer in the baseline; None without one, or where it has none that
            can be compared.
        lost: samples with a value in the baseline and none now (misclassified, a constant map), which count as worse.
        needed: about how many samples would decide it; None where it is decided, or cannot be foreseen.
        advice: what would decide it, in words; empty where it is decided.
        sanity: which sanity check the explainer does not pass, in words, where the outcome rests on it: it keeps the
            requirement from passing or, of one that passes, it was not passed in the baseline either. Else empty.
    """

    requirement: str
    data: str
    model: str
    explainer: str
    metric: str
    outcome: Outcome
    what: str
    estimate: IntervalEstimate | None
    limit: float
    better: Better
    requested: float = 0.95
    middle: float | None = None
    middle_of: str = ""
    probability: bool = False
    p: float | None = None
    unknown: int = 0
    skipped: int = 0
    baseline_samples: int | None = None
    baseline_sanity: Sanity | None = None
    lost: int = 0
    needed: int | None = None
    advice: str = ""
    sanity: str = ""

    @property
    def name(self) -> str:
        """The requirement and what it was decided for, in one line; the same in every run."""
        return " / ".join((self.data, self.model, self.explainer, self.requirement))


@dataclass(frozen=True)
class Decisions:
    """All decisions of a check, at one look at the results.

    Attributes:
        decisions: in the order of the requirements.
        look: the number of this look; each look at more samples takes its part of the allowed error.
        samples: how many samples of each data set the study has.
        failed: how many jobs failed, so that samples are missing.
        errors: why, a sentence for each reason.
    """

    decisions: tuple[RequirementDecision, ...]
    look: int = 1
    samples: int = 0
    failed: int = 0
    errors: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """`"fail"` if any requirement fails, `"pass"` if all pass, else `"undecided"`."""
        outcomes = {decision.outcome for decision in self.decisions}
        if "fail" in outcomes:
            return "fail"
        # undecided ones keep a check from passing
        return "pass" if outcomes == {"pass"} else "undecided"

    @property
    def exit_code(self) -> int:
        """0 all pass, 1 some fail, 3 none fails and some are undecided; 2 if a job failed."""
        # a missing job may hide anything, so it comes before the outcome
        if self.failed:
            return 2
        return {"pass": 0, "fail": 1, "undecided": 3}[self.outcome]

    def __str__(self) -> str:
        return format_text(self)


def describe_estimate(decision: RequirementDecision) -> str:
    """The estimate with its interval, and what it is compared with."""
    if decision.estimate is None:
        return decision.advice
    return to_ascii(say("estimate", decision))


def describe_notes(decision: RequirementDecision) -> str:
    """What would decide it, and what does not count."""
    return say("notes", decision)


def describe_outcome(decisions: Decisions) -> str:
    """The outcome of all requirements, in one line."""
    return say("outcome", decisions)


def format_text(decisions: Decisions) -> str:
    """Lines for a terminal.

    >>> from standfast.statistics.decisions import IntervalEstimate
    >>> share = IntervalEstimate(0.75, 0.5, 0.9, 0.95, 20)
    >>> place = ("digits", "lenet", "saliency", "worst case")
    >>> asked = ("worst_case: median at least 0.6", *place)
    >>> one = RequirementDecision(*asked, "pass", "share of samples", share, 0.5, "higher")
    >>> print(format_text(Decisions((one,))).splitlines()[0])
    PASS       saliency: worst_case: median at least 0.6
    """
    # one model on one data set need not be named in every line
    pairs = {(decision.data, decision.model) for decision in decisions.decisions}
    several = len(pairs) > 1
    lines = []
    for decision in decisions.decisions:
        where = f" ({decision.model} on {decision.data})" if several else ""
        lines.append(
            f"{decision.outcome.upper():<10} {decision.explainer}: {decision.requirement}{where}"
        )
        for text in (describe_estimate(decision), describe_notes(decision)):
            lines += textwrap.wrap(text, 100, initial_indent=" " * 11, subsequent_indent=" " * 13)
    outcome = textwrap.wrap(describe_outcome(decisions), 110)
    return "\n".join([*lines, "", *outcome])
