"""`Card`: what can be stated of the reasons of one decision, and `Reason`: what is known of one of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from standfast.statistics.reasons import Foresight, State
from standfast.tensors import Array

#: what happens in a larger share of all draws has to be seen, or the intervals of means are marked
_MOST_UNSEEN = 0.05

#: what draws may differ in; the last two by other jobs
Source = Literal["seed", "background", "measurement", "retraining", "explainer"]


@dataclass(frozen=True)
class Reason:
    """What is known of one feature.

    Attributes:
        feature: its number.
        name: the column, the word, or the position.
        words: with its value, in the user's units.
        value: its attribution at the clean input.
        mean, low, high: the mean over draws, with an interval that holds for all features at once: what more draws
            would make exact.
        range_low, range_high: 5% to 95% of the draws: what no number of draws makes smaller.
        place: at the clean input, from 1; features that share one have the last of them.
        probability: the share of draws that name it among the first k with the sign that it has here; of a feature
            that is no reason, with any sign. Of a reason, `probability_low` and `probability_high` are the limits that
            decide its state: each is one-sided, at a level that allows for all reasons and looks. Of another feature
            they are its 95% interval.
        state: `"holds"`, `"falls"` or `"undecided"` of a reason; empty of another feature.
        foreseen: about how many draws, or models, would decide.
        few_draws: the interval of the mean is of few draws that differ.
    """

    feature: int
    name: str
    words: str
    value: float
    mean: float
    low: float
    high: float
    range_low: float
    range_high: float
    place: int
    probability: float
    probability_low: float
    probability_high: float
    state: State | Literal[""] = ""
    foreseen: Foresight | None = None
    few_draws: bool = False

    @property
    def sign(self) -> int:
        """1 if it speaks for the answer, -1 against it; of gradients, what raising it does."""
        return int(np.sign(self.value))


@dataclass(frozen=True)
class Alone:
    """What one source does without the others.

    Attributes:
        source: which.
        draws: how many that keep the answer; of retraining models, and of explainers these.
        same: in which share of them the same reasons are named; NaN where it was not evaluated.
        low, high: its interval.
        variance: the share of the variance of the reasons' values, of all sources that were evaluated alone; NaN where
            values have other units.
        falling: for each reason the share of these draws that do not name it.
    """

    source: Source
    draws: int
    same: float
    low: float
    high: float
    variance: float
    falling: tuple[float, ...] = ()


@dataclass(frozen=True)
class Card:
    """The reasons of one decision, and how far each can be stated.

    Attributes:
        data, model, explainer, sample: which.
        answer: what the model answers, in words; of a decision what its side is called.
        rule: of a decision, such as "P(default) > 0.35"; empty of other answers.
        rule_met: whether the rule is met, so that the decision is made.
        score: the probability of the answer, or another number of it; NaN where there is none. Of a decision by a
            rule it is the probability of the side that is taken.
        score_name: what this number is, such as "probability"; empty where the answer says the number already.
        top: how many features count as reasons, k.
        demand: the probability that a reason must have.
        reasons: the first k, in the order of their sizes. Fewer where others are 0, or share the last place.
        others: the other features that were named in a draw, the most frequent ones first.
        same: the probability that all reasons are named, with the same signs; `same_low`, `same_high`: its interval.
        same_order: the share of draws in which they have the same order, too.
        chance: what the probability of a reason is for an unrelated map.
        drawn: draws of the given model and explainer; of models that were trained again where there are some.
        kept: those in which the answer is the same.
        draws: those by which probabilities are measured: the kept ones, of all explainers.
        varied: what varied, and what did not.
        unused: the sources that were asked for, and that this explainer does not have.
        models, deciding_otherwise: how many models were trained again, and how many of these answer otherwise.
        alone: what each source does alone.
        few_models: the intervals are less sure than 95%, since there are few models.
        decided: whether each reason is decided, and not only its share known.
        notes: what else has to be known, in sentences.
        columns: of a data frame, its values in words, by name.
        origin, input: the map of the clean input `(F,)`, and the input itself; None where they are not stored.
        shares: for each feature the share of draws that name it, of a reason with its sign at the clean input, `(F,)`.
        signs: for each feature 1 or -1 if it is a reason at the clean input, by its sign, and else 0, `(F,)`.
        held: of a map with too many reasons to decide each of them, which features are reasons that hold, bool `(F,)`.
            At most 5% of them are expected to be named less often than it is demanded. Else None.
        has_signs: whether the explainer declares that the signs of its numbers say what speaks for the answer and what
            against it; False if they only say how much a feature matters; None where this is not known.
        digests: what identifies the model, the data, the explainer and the software, by name.
        names: of all features, such as columns or words, in their order; none for images and series.
        speaking: `"both"`, or `"for"`: only features that speak for the answer are named.
        name: what the user calls the sample: the label of the row of a data frame, the file of an image; empty where it
            has no name but its number.
        changes: how far the measurement of the input was changed, in words; empty where it was not.
        unit: what values are measured in, such as "log-odds"; empty where they have no unit, or it is not known.
        measures: what the values are (`Explainer.measures`): of a `"slope"` and a `"direction"` the sign says what
            raising the feature does to the answer, and not what the feature as it is does.
        unseen: a share of all variations, or of all models, of which those that means are made of may have none.
            Intervals of means then do not know what happens in it. NaN where there are no means, or
            nothing but other explainers differs.
    """

    data: str
    model: str
    explainer: str
    sample: int
    answer: str
    score: float
    top: int
    demand: float
    reasons: tuple[Reason, ...]
    others: tuple[Reason, ...]
    same: float
    same_low: float
    same_high: float
    same_order: float
    chance: float
    drawn: int
    kept: int
    draws: int
    varied: tuple[Source, ...]
    unused: tuple[Source, ...] = ()
    models: int = 0
    deciding_otherwise: int = 0
    alone: tuple[Alone, ...] = ()
    few_models: bool = False
    decided: bool = True
    notes: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    origin: Array | None = field(default=None, repr=False)
    input: Array | None = field(default=None, repr=False)
    shares: Array | None = field(default=None, repr=False)
    signs: Array | None = field(default=None, repr=False)
    held: Array | None = field(default=None, repr=False)
    score_name: str = "probability"
    rule: str = ""
    rule_met: bool = True
    has_signs: bool | None = None
    digests: Mapping[str, str] = field(default_factory=dict, repr=False)
    names: tuple[str, ...] = field(default=(), repr=False)
    speaking: str = "both"
    name: str = ""
    changes: str = ""
    unit: str = ""
    measures: str = "relevance"
    unseen: float = math.nan

    @property
    def may_miss_rare(self) -> bool:
        """Whether there are so few variations that what matters in 5% of all may be missing in the means."""
        return self.unseen > _MOST_UNSEEN

    @property
    def says_what_raising_does(self) -> bool:
        """Whether the signs say what raising a feature does, as those of gradients do."""
        return self.has_signs is not False and self.measures in ("slope", "direction")

    @property
    def holding(self) -> tuple[Reason, ...]:
        """The reasons that hold."""
        return tuple(reason for reason in self.reasons if reason.state == "holds")

    @property
    def kept_share(self) -> float:
        """The share of draws, or of models, in which the answer is the same; NaN where nothing was varied."""
        return self.kept / self.drawn if self.drawn else float("nan")

    def rows(self) -> list[dict[str, Any]]:
        """A row for each feature that is a reason, or is named in a draw.

        `few_draws` marks means whose intervals are less sure than 95%: few draws differ, or there are few draws.
        """
        keys = {
            "data": self.data,
            "model": self.model,
            "explainer": self.explainer,
            "sample": self.sample,
        }
        rows: list[dict[str, Any]] = []
        for reason in (*self.reasons, *self.others):
            plain = dataclasses.asdict(reason)
            del plain["foreseen"]
            plain["few_draws"] = reason.few_draws or self.may_miss_rare
            rows.append({**keys, **plain})
        return rows
