"""Decisions of the sanity checks: whether an explainer's maps say anything about the input and the model.

`standfast.metrics.sanity` measures, for each sample; this decides, for each explainer. A check is a test with a margin:
it is passed if the whole interval is on the good side of the margin, failed if the whole interval is on the other side,
and undecided in between. The margins are chosen by the error rates on known good and known bad explainers
(`docs/sanity.md`).

Samples say how surely a map marks more than certain scrambled models do. They say nothing about how far another
scrambled model may get by luck. So *learned* is passed only if the map also lies above the prediction interval of one
more scrambled model, which counts scrambled models and not samples (`find_luck`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import polars as pl
from scipy.special import stdtr, stdtrit

from standfast.statistics.proportions import proportion_interval
from standfast.tensors import Array

#: the confidence of the intervals of the checks
LEVEL = 0.99
#: fewer samples pass no check
FEWEST = 8
#: a scrambled model is as good as the map by luck with at most this probability
LUCK = 0.1

#: what a check asks, in the order in which the reason of a failure is looked for
Question = Literal["accuracy", "finite", "input", "model", "learned", "removal", "baseline", "sum", "class"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
CheckState = Literal["passed", "failed", "undecided", "untested", "exempt", "remark"]
SanityState = Literal["passed", "failed", "undecided"]

#: for each question that has an interval: the column, the margin, and whether larger values are better
MARGINS: Mapping[Question, tuple[str, float, bool]] = {
    "finite": ("fine", 0.5, True),
    "input": ("value", 0.02, True),
    "model": ("scrambled", 0.9, False),
    "learned": ("learned", 0.6, True),
    "removal": ("removal", 0.6, True),
    "class": ("other_class", 0.9, False),
}
#: larger margins for passing; in between, a check stays undecided. By luck, a map of a scrambled model does somewhat
#: better than those of others: among correlated columns, a direction is often about right. And where inputs of a class
#: are much alike, their maps rightly are, too.
PASSING: Mapping[Question, float] = {"input": 0.05, "learned": 0.7, "removal": 0.7}
#: so many of the maps must be finite and not constant: stability is measured only where an explainer speaks
_OFTEN = 0.9
#: the largest share of the features whose baseline may lie outside of the data
OUTSIDE = 0.1
#: the shares of the change of the logit by which attributions may miss it without a remark, and without failing
GAPS = (0.05, 0.5)


@dataclass(frozen=True)
class Check:
    """What one sanity check found of one explainer on one data set and model.

    Attributes:
        question: what it asks.
        state: `"passed"`, `"failed"`, `"undecided"`; `"untested"` where it could not be measured, which is no pass;
            `"exempt"` where the truth is special, and `"remark"` where it is worth a word; these two do not count.
        value: the mean over samples, or the largest number; None where there is none.
        low, high: the ends of its interval; None without one.
        samples: how many it is over.
        needed: about how many samples would decide, if the mean and the spread stay as they are; None if it is decided,
            or if no number is in sight.
    """

    question: Question
    state: CheckState
    value: float | None = None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    needed: int | None = None


@dataclass(frozen=True)
class Sanity:
    """All checks of one explainer on one data set and model.

    Attributes:
        checks: one for each question.
    """

    checks: tuple[Check, ...]

    @property
    def state(self) -> SanityState:
        """`"failed"` if any check is; `"passed"` if none is failed, undecided or untested."""
        states = {check.state for check in self.checks}
        if "failed" in states:
            return "failed"
        return "undecided" if states & {"undecided", "untested"} else "passed"

    @property
    def reason(self) -> Check | None:
        """The first check that keeps the explainer from passing; None if it passes."""
        for state in ("failed", "untested", "undecided"):
            for check in self.checks:
                if check.state == state:
                    return check
        return None

    @property
    def needed(self) -> int | None:
        """About how many samples would decide all that is undecided; None if nothing is, or no number is in sight."""
        return self._find_most({check.question: check.needed for check in self.checks})

    @property
    def more(self) -> int | None:
        """As `needed`, but how many more than there are."""
        found = {c.question: None if c.needed is None else max(1, c.needed - c.samples) for c in self.checks}
        most = self._find_most(found)
        return None if most is None else round_up(most)

    def _find_most(self, numbers: Mapping[Question, int | None]) -> int | None:
        """The largest number of the undecided checks; None if one has none, or a check is untested."""
        if any(check.state == "untested" for check in self.checks):
            return None
        found = [numbers[check.question] for check in self.checks if check.state == "undecided"]
        return None if None in found or not found else max(number for number in found if number is not None)

    def find(self, question: Question) -> Check:
        """The check of a question."""
        return next(check for check in self.checks if check.question == question)


@dataclass(frozen=True)
class Accuracy:
    """How often the model's class is the label.

    Attributes:
        value: the share of the samples with a label.
        low, high: its exact interval of 99%.
        samples: how many have a label.
        chance: one divided by the number of classes.
    """

    value: float
    low: float
    high: float
    samples: int
    chance: float

    @property
    def near_chance(self) -> bool:
        """Whether it is not shown to be above chance, while it is shown not to be good."""
        return self.low <= self.chance and self.high < (1 + self.chance) / 2


def decide_checks(rows: pl.DataFrame) -> Sanity:
    """The decisions on one explainer.

    Args:
        rows: of `SanityChecks`, one for each sample; none if they have not run.
    """
    if not len(rows):
        return Sanity(tuple(Check(question, "untested") for question in QUESTIONS))
    names = ["status", "correct", "within", "linear", "negative", "classes", "outside", "gap", "group"]
    names += [column for column, _, _ in MARGINS.values()]
    names += [column for column in rows.columns if column.startswith("gain ")]
    return decide_columns({name: rows[name].to_numpy() for name in names if name in rows.columns})


def decide_columns(columns: Mapping[str, Array]) -> Sanity:
    """`decide_checks` for the columns of the frame as arrays `(N,)`, with NaN where there is no value."""
    fine = columns["status"] == "ok"
    lost = (columns["status"] == "misclassified") | (columns["status"] == "no_answer")
    checks = [_judge_accuracy(_find_accuracy(columns))]
    checks += [_decide_share("finite", int(fine.sum()), int((~lost).sum()))]
    linear = bool(fine.any()) and bool(columns["linear"][fine].all())
    for question in tuple(MARGINS)[1:]:
        column, margin, larger = MARGINS[question]
        checks.append(_decide_mean(question, _drop_missing(columns, column, fine), margin, larger))
    within = _decide_mean("input", _drop_missing(columns, "within", fine), MARGINS["input"][1], True)
    states = ("failed", "untested", "undecided", "passed")
    of_input = [each for each in (*checks, within) if each.question == "input"]
    checks.append(min(of_input, key=lambda each: states.index(each.state)))
    gaps, shares = (_drop_missing(columns, name) for name in ("gap", "outside"))
    gap = float(gaps.max()) if len(gaps) else None
    outside = float(shares.max()) if len(shares) else None
    found: dict[Question, Check] = {check.question: check for check in checks}
    if linear and found["input"].state in (
        "failed",
        "undecided",
    ):  # the gradient of a linear model is rightly the same everywhere
        found["input"] = _exempt(found["input"])
    sums = gap is not None and gap <= GAPS[0]
    luck = _find_luck_of(columns, fine)
    if found["learned"].state == "passed" and luck is not None and luck > LUCK:
        found["learned"] = replace(found["learned"], state="undecided")  # more samples do not help: none are named
    scrambled: tuple[Question, ...] = ("model", "learned")
    for question in scrambled:  # what adds up to each answer of the model depends on the model
        if sums and found[question].state == "untested":
            found[question] = _exempt(found[question])
    found["class"] = _judge_class(found["class"], columns, fine)
    state: CheckState = "exempt" if outside is None else "failed" if outside > OUTSIDE else "passed"
    found["baseline"] = Check("baseline", state, outside, samples=len(fine))
    state = "exempt" if gap is None else "passed" if gap <= GAPS[0] else "failed" if gap > GAPS[1] else "remark"
    found["sum"] = Check("sum", state, gap, samples=len(fine))
    return Sanity(tuple(found[question] for question in QUESTIONS))


def measure_accuracy(rows: pl.DataFrame) -> Accuracy | None:
    """The accuracy of the model on the labels; None without labels.

    Args:
        rows: of `SanityChecks` for one explainer.
    """
    return _find_accuracy({name: rows[name].to_numpy() for name in ("correct", "classes") if name in rows.columns})


def find_luck(gains: Array, groups: Array) -> float:
    """The probability that a scrambled model gets as far above the others as the map does, if they vary normally.

    It is that of the prediction interval for one more scrambled model. Only scrambled models of the same group are
    compared with each other: they are measured on the same samples.

    Args:
        gains: by how much removing what the map marks lowers the margin more than what a scrambled model marks:
            `(samples, scrambled models of a group)`, NaN where there is none.
        groups: the number of each sample's group, `(samples,)`.

    Returns:
        The one-sided p-value; 1 where no two scrambled models of a group can be compared.
    """
    means: list[float] = []
    squares, freedom = 0.0, 0
    for group in np.unique(groups):
        columns = [column[~np.isnan(column)] for column in gains[groups == group].T]
        of_models = np.array([column.mean() for column in columns if len(column)])
        means.extend(of_models)
        if len(of_models) > 1:
            squares += float(of_models.var() * len(of_models))
            freedom += len(of_models) - 1
    if not freedom:
        return 1.0
    above, spread = float(np.mean(means)), math.sqrt(squares / freedom * (1 + 1 / len(means)))
    if spread == 0:
        return 0.0 if above > 0 else 1.0
    return float(stdtr(freedom, -above / spread))


def _find_luck_of(columns: Mapping[str, Array], fine: Array) -> float | None:
    """`find_luck` of the columns; None without gains, as in results of older rules."""
    gains = [np.asarray(columns[name], dtype=np.float64)[fine] for name in columns if name.startswith("gain ")]
    if not gains:
        return None
    return find_luck(np.stack(gains, 1), np.asarray(columns["group"], dtype=np.float64)[fine])


def _find_accuracy(columns: Mapping[str, Array]) -> Accuracy | None:
    known = _drop_missing(columns, "correct")
    if not len(known):
        return None
    right, count = int(known.sum()), len(known)
    low, high = proportion_interval(right, count, LEVEL)
    return Accuracy(right / count, low, high, count, 1 / float(columns["classes"].max()))


def _drop_missing(columns: Mapping[str, Array], name: str, fine: Array | None = None) -> Array:
    """The numbers of a column, of the samples that are `fine`; none if there is no such column."""
    values = np.asarray(columns[name], dtype=np.float64) if name in columns else np.zeros(0)
    values = values if fine is None or not len(values) else values[fine]
    return np.asarray(values[~np.isnan(values)])


def _exempt(check: Check) -> Check:
    return Check(check.question, "exempt", check.value, check.low, check.high, check.samples)


def _judge_accuracy(found: Accuracy | None) -> Check:
    """Maps of a model that has learned nothing are not worth showing, however faithful to it they are."""
    if found is None:
        return Check("accuracy", "exempt")
    state: CheckState = "failed" if found.near_chance else "passed" if found.low > found.chance else "undecided"
    needed = None
    if state == "undecided":
        needed = _count_needed(found.value, (found.high - found.low) / 2, found.chance, found.samples)
    return Check("accuracy", state, found.value, found.low, found.high, found.samples, needed)


def _judge_class(check: Check, columns: Mapping[str, Array], fine: Array) -> Check:
    """Only a map that is shown to be the same for another class is worth a remark.

    Of two classes, the one is the opposite of the other, so absolute maps of them are rightly the same.
    """
    same = check.low is not None and check.low > MARGINS["class"][1]
    two, negative = (columns["classes"][fine] == 2).all(), columns["negative"][fine].any()
    rightly = bool(fine.any() and two and not negative)
    state: CheckState = "exempt" if rightly or check.state == "untested" else "remark" if same else "passed"
    return Check("class", state, check.value, check.low, check.high, check.samples)


def _decide_share(question: Question, hits: int, count: int) -> Check:
    """The decision by the exact interval of a share."""
    if not count:
        return Check(question, "untested")
    low, high = proportion_interval(hits, count, LEVEL)
    margin = MARGINS[question][1]
    state: CheckState = "undecided"
    if low > margin and hits >= _OFTEN * count and count >= FEWEST:
        state = "passed"
    elif high < margin or hits == 0:
        state = "failed"
    needed = _count_needed(hits / count, (high - low) / 2, margin, count) if state == "undecided" else None
    return Check(question, state, hits / count, low, high, count, needed)


def _decide_mean(question: Question, values: Array, margin: float, larger: bool) -> Check:
    """The decision by Student's interval of a mean.

    A share of comparisons that are all won has no spread, however few they are. So one more sample counts, at the
    margin: it keeps few samples from deciding more than they can, and matters little among many.
    """
    count = len(values)
    if not count:
        return Check(question, "untested")
    mean = float(values.mean())
    with_margin = np.append(values, margin)
    error = float(with_margin.std(ddof=1)) / math.sqrt(count + 1)
    half = float(stdtrit(count, 0.5 + LEVEL / 2)) * error
    low, high = mean - half, mean + half
    wanted = PASSING.get(question, margin)
    good, bad = (low > wanted, high < margin) if larger else (high < wanted, low > margin)
    state: CheckState = "passed" if good and count >= FEWEST else "failed" if bad else "undecided"
    needed = None
    if state == "undecided" and not margin <= mean <= wanted:
        needed = _count_needed(mean, half, wanted if mean > wanted else margin, count)
    return Check(question, state, mean, low, high, count, needed)


def _count_needed(mean: float, half: float, margin: float, count: int) -> int | None:
    """About how many samples would have an interval that leaves the margin out; None beyond 100,000."""
    distance = abs(mean - margin)
    if distance == 0:
        return None
    return round_up(max(count + 1, FEWEST, math.ceil(count * (half / distance) ** 2)))


def round_up(count: int) -> int | None:
    """A number of samples that would decide, with two digits; None beyond 100,000, which is no advice.

    >>> round_up(41), round_up(4184), round_up(600_000)
    (41, 4200, None)
    """
    step = 10 ** max(0, len(str(count)) - 2)
    return -(-count // step) * step if count <= 100_000 else None
