"""Decisions of the sanity checks: whether an explainer's maps say anything about the input and the model.

`standfast.metrics.sanity` measures, for each sample; this decides, for each explainer. A check is a test with a margin:
it is passed if the whole interval is on the good side of the margin, failed if the whole interval is on the other side,
and undecided in between. The margins are chosen by the error rates on known good and known bad explainers
(`docs/sanity.md`).

Samples say how surely a map marks more than certain scrambled models do. They say nothing about how far another
scrambled model may get by luck. So *learned* is passed only if the map also lies above the prediction interval of one
more scrambled model, which counts scrambled models and not samples (`find_luck`).

Results that are stored without what `find_luck` reads are decided without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
import polars as pl
from scipy.special import stdtr, stdtrit

from standfast.statistics.proportions import proportion_interval
from standfast.tensors import Array

#: the confidence of the intervals of the checks
LEVEL = 0.99
#: fewer samples pass no check
FEWEST = 8
#: to pass, a scrambled model must be as good as the map with at most this probability
LUCK = 0.05

#: what a check asks, in the order in which the reason of a failure is looked for
Question = Literal[
    "accuracy", "finite", "input", "model", "learned", "removal", "baseline", "sum", "class"
]
QUESTIONS: tuple[Question, ...] = get_args(Question)
CheckState = Literal["passed", "failed", "undecided", "untested", "exempt", "remark"]
SanityState = Literal["passed", "failed", "undecided"]


class Margin(NamedTuple):
    """How a question with an interval is decided.

    Attributes:
        column: of the rows of the checks.
        value: on one side of it, the check is failed.
        larger_is_better: which side is good.
    """

    column: str
    value: float
    larger_is_better: bool


#: for each question that has an interval
MARGINS: Mapping[Question, Margin] = {
    "finite": Margin("fine", 0.5, True),
    "input": Margin("value", 0.02, True),
    "model": Margin("scrambled", 0.9, False),
    "learned": Margin("learned", 0.6, True),
    "removal": Margin("removal", 0.6, True),
    "class": Margin("other_class", 0.9, False),
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

    @property
    def more(self) -> int | None:
        """As `needed`, but how many more than there are."""
        if self.needed is None:
            return None
        return max(1, self.needed - self.samples)


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
        if states & {"undecided", "untested"}:
            return "undecided"
        return "passed"

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
        return self._find_most([check.needed for check in self._undecided])

    @property
    def more(self) -> int | None:
        """As `needed`, but how many more than there are."""
        most = self._find_most([check.more for check in self._undecided])
        if most is None:
            return None
        return round_up(most)

    @property
    def _undecided(self) -> list[Check]:
        return [check for check in self.checks if check.state == "undecided"]

    def _find_most(self, numbers: list[int | None]) -> int | None:
        """The largest number; None if there is none, if one is not known, or if no number decides a check."""
        if any(check.state == "untested" for check in self.checks):
            return None
        known_numbers = [number for number in numbers if number is not None]
        if len(known_numbers) < len(numbers):
            return None
        return max(known_numbers, default=None)

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
        half_way = (1 + self.chance) / 2
        return self.low <= self.chance and self.high < half_way


def decide_checks(rows: pl.DataFrame) -> Sanity:
    """The decisions on one explainer.

    Args:
        rows: of `SanityChecks`, one for each sample; none if they have not run.
    """
    if not len(rows):
        return Sanity(tuple(Check(question, "untested") for question in QUESTIONS))
    names = [
        "status",
        "correct",
        "within",
        "linear",
        "negative",
        "classes",
        "outside",
        "gap",
        "group",
    ]
    names += [margin.column for margin in MARGINS.values()]
    names += _name_gains(rows.columns)
    present = [name for name in names if name in rows.columns]
    return decide_columns({name: rows[name].to_numpy() for name in present})


def decide_columns(columns: Mapping[str, Array]) -> Sanity:
    """`decide_checks` for the columns of the frame as arrays `(N,)`, with NaN where there is no value."""
    fine = columns["status"] == "ok"
    count = len(fine)
    gap = _find_largest(columns, "gap")
    outside = _find_largest(columns, "outside")
    learned = _decide_column("learned", columns, fine)
    learned = _judge_luck(learned, _find_luck_of(columns, fine))
    checks: dict[Question, Check] = {
        "accuracy": _judge_accuracy(_find_accuracy(columns)),
        "finite": _judge_finite(columns["status"]),
        "input": _judge_input(columns, fine),
        "model": _judge_scrambled(_decide_column("model", columns, fine), gap),
        "learned": _judge_scrambled(learned, gap),
        "removal": _decide_column("removal", columns, fine),
        "baseline": _judge_baseline(outside, count),
        "sum": _judge_sum(gap, count),
        "class": _judge_class(_decide_column("class", columns, fine), columns, fine),
    }
    return Sanity(tuple(checks[question] for question in QUESTIONS))


def measure_accuracy(rows: pl.DataFrame) -> Accuracy | None:
    """The accuracy of the model on the labels; None without labels.

    Args:
        rows: of `SanityChecks` for one explainer.
    """
    names = [name for name in ("correct", "classes") if name in rows.columns]
    return _find_accuracy({name: rows[name].to_numpy() for name in names})


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
    squares = 0.0
    freedom = 0
    for group in np.unique(groups):
        of_models = _average_models(gains[groups == group])
        count = len(of_models)
        means.extend(of_models)
        if count > 1:
            squares += float(of_models.var() * count)
            freedom += count - 1
    if not freedom:
        return 1.0
    above = float(np.mean(means))
    variance = squares / freedom
    # of the difference between one more scrambled model and the mean of these
    spread = math.sqrt(variance * (1 + 1 / len(means)))
    if spread == 0:
        return float(above <= 0)
    return float(stdtr(freedom, -above / spread))


def _average_models(gains: Array) -> Array:
    """The mean gain over each scrambled model of a group, without those for which there is none."""
    known_gains = [column[~np.isnan(column)] for column in gains.T]
    return np.array([column.mean() for column in known_gains if len(column)])


def _name_gains(columns: Iterable[str]) -> list[str]:
    """The columns with the gains over scrambled models; none in results that are stored without them."""
    return [column for column in columns if column.startswith("gain ")]


def _find_luck_of(columns: Mapping[str, Array], fine: Array) -> float | None:
    """`find_luck` of the columns; None without gains."""
    names = _name_gains(columns)
    if not names:
        return None
    gains = np.stack([columns[name] for name in names], 1)
    groups = columns["group"]
    groups_of_rows = groups[fine].astype(np.float64)
    return find_luck(gains[fine].astype(np.float64), groups_of_rows)


def _find_accuracy(columns: Mapping[str, Array]) -> Accuracy | None:
    correct = _drop_missing(columns, "correct")
    if not len(correct):
        return None
    right = int(correct.sum())
    count = len(correct)
    low, high = proportion_interval(right, count, LEVEL)
    chance = 1 / float(columns["classes"].max())
    return Accuracy(right / count, low, high, count, chance)


def _drop_missing(columns: Mapping[str, Array], name: str, fine: Array | None = None) -> Array:
    """The numbers of a column, of the samples that are `fine`; none if there is no such column."""
    if name not in columns:
        return np.zeros(0)
    values = np.asarray(columns[name], dtype=np.float64)
    if fine is not None:
        values = values[fine]
    return np.asarray(values[~np.isnan(values)])


def _find_largest(columns: Mapping[str, Array], name: str) -> float | None:
    """The largest number of a column; None if there is none."""
    values = _drop_missing(columns, name)
    if len(values):
        return float(values.max())
    return None


def _exempt(check: Check) -> Check:
    return replace(check, state="exempt", needed=None)


def _judge_accuracy(accuracy: Accuracy | None) -> Check:
    """Maps of a model that has learned nothing are not worth showing, however faithful to it they are."""
    if accuracy is None:
        return Check("accuracy", "exempt")
    check = Check(
        "accuracy", "passed", accuracy.value, accuracy.low, accuracy.high, accuracy.samples
    )
    if accuracy.near_chance:
        return replace(check, state="failed")
    if accuracy.low > accuracy.chance:
        return check
    half = (accuracy.high - accuracy.low) / 2
    needed = _count_needed(accuracy.value, half, accuracy.chance, accuracy.samples)
    return replace(check, state="undecided", needed=needed)


def _judge_finite(status: Array) -> Check:
    """The share of samples with a map, of those that the model answers, by its exact interval."""
    count = int(((status != "misclassified") & (status != "no_answer")).sum())
    hits = int((status == "ok").sum())
    if not count:
        return Check("finite", "untested")
    low, high = proportion_interval(hits, count, LEVEL)
    margin = MARGINS["finite"].value
    check = Check("finite", "passed", hits / count, low, high, count)
    if low > margin and hits >= _OFTEN * count and count >= FEWEST:
        return check
    if high < margin or hits == 0:
        # an explainer that never speaks fails, however few the samples are
        return replace(check, state="failed")
    needed = _count_needed(hits / count, (high - low) / 2, margin, count)
    return replace(check, state="undecided", needed=needed)


def _judge_input(columns: Mapping[str, Array], fine: Array) -> Check:
    """The worse of the excess over samples of other classes, and of that over those of the same class."""
    # the first of these that one of the two has
    order = ("failed", "untested", "undecided", "passed")
    both = [
        _decide_column("input", columns, fine),
        decide_mean("input", _drop_missing(columns, "within", fine)),
    ]
    worse = min(both, key=lambda check: order.index(check.state))
    is_any = bool(fine.any())
    linear = is_any and bool(columns["linear"][fine].all())
    if linear and worse.state in ("failed", "undecided"):
        # the gradient of a linear model is rightly the same everywhere
        return _exempt(worse)
    return worse


def _judge_luck(learned: Check, luck: float | None) -> Check:
    """A map that may be a lucky one does not pass. From 100 samples on, more do not help, so that none are named."""
    if learned.state == "passed" and luck is not None and luck > LUCK:
        return replace(learned, state="undecided")
    return learned


def _judge_scrambled(check: Check, gap: float | None) -> Check:
    """What adds up to each answer of the model depends on the model, also where this cannot be scrambled."""
    adds_up = gap is not None and gap <= GAPS[0]
    if adds_up and check.state == "untested":
        return _exempt(check)
    return check


def _judge_baseline(outside: float | None, count: int) -> Check:
    if outside is None:
        return Check("baseline", "exempt", samples=count)
    state: CheckState = "failed" if outside > OUTSIDE else "passed"
    return Check("baseline", state, outside, samples=count)


def _judge_sum(gap: float | None, count: int) -> Check:
    if gap is None:
        return Check("sum", "exempt", samples=count)
    state: CheckState = "remark"
    if gap <= GAPS[0]:
        state = "passed"
    elif gap > GAPS[1]:
        state = "failed"
    return Check("sum", state, gap, samples=count)


def _judge_class(check: Check, columns: Mapping[str, Array], fine: Array) -> Check:
    """Only a map that is shown to be the same for another class is worth a remark.

    Of two classes, the one is the opposite of the other, so absolute maps of them are rightly the same.
    """
    has_two_classes = columns["classes"][fine] == 2
    two_classes = bool(fine.any()) and bool(has_two_classes.all())
    rightly_the_same = two_classes and not columns["negative"][fine].any()
    if rightly_the_same or check.state == "untested":
        return _exempt(check)
    is_same = check.low is not None and check.low > MARGINS["class"].value
    state: CheckState = "remark" if is_same else "passed"
    return replace(check, state=state, needed=None)


def _decide_column(question: Question, columns: Mapping[str, Array], fine: Array) -> Check:
    """`decide_mean` for the column of a question."""
    return decide_mean(question, _drop_missing(columns, MARGINS[question].column, fine))


def decide_mean(question: Question, values: Array) -> Check:
    """The decision by Student's interval of a mean.

    A share of comparisons that are all won has no spread, however few they are. So one more sample counts, at the
    margin: it keeps few samples from deciding more than they can, and matters little among many.

    Args:
        question: one of `MARGINS`.
        values: of the samples, without NaN, `(n,)`.
    """
    _, margin, larger_is_better = MARGINS[question]
    passing = PASSING.get(question, margin)
    count = len(values)
    if not count:
        return Check(question, "untested")
    mean = float(values.mean())
    with_margin = np.append(values, margin)
    deviation = float(with_margin.std(ddof=1))
    error = deviation / math.sqrt(count + 1)
    half = float(stdtrit(count, 0.5 + LEVEL / 2)) * error
    low = mean - half
    high = mean + half
    check = Check(question, "undecided", mean, low, high, count)
    if larger_is_better:
        is_good, is_bad = low > passing, high < margin
    else:
        is_good, is_bad = high < passing, low > margin
    if is_good and count >= FEWEST:
        return replace(check, state="passed")
    if is_bad:
        return replace(check, state="failed")
    if margin <= mean <= passing:
        # between the two margins, no number of samples decides
        return check
    nearest = passing if mean > passing else margin
    return replace(check, needed=_count_needed(mean, half, nearest, count))


def _count_needed(mean: float, half: float, margin: float, count: int) -> int | None:
    """About how many samples would have an interval that leaves the margin out; None beyond 100,000."""
    distance = abs(mean - margin)
    if distance == 0:
        return None
    # the interval gets as much narrower as the root of the number
    needed = math.ceil(count * (half / distance) ** 2)
    return round_up(max(count + 1, FEWEST, needed))


def round_up(count: int) -> int | None:
    """A number of samples that would decide, with two digits; None beyond 100,000, which is no advice.

    >>> round_up(41), round_up(4184), round_up(600_000)
    (41, 4200, None)
    """
    if count > 100_000:
        return None
    step: int = 10 ** max(0, len(str(count)) - 2)
    return -(-count // step) * step
