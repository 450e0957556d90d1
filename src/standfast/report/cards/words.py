"""What a card says, in sentences for a reader who is no expert. They are in `templates/cards/sentences.txt`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from standfast.report.cards.facts import (
    describe_score,
    format_chance,
    format_share,
    format_shares,
    has_map,
    has_no_signs,
    is_text,
    lies_outside,
    measure_area,
    name_answer,
    name_part,
    name_reason,
    name_score,
    supported_answer,
    title_reason,
)
from standfast.report.sentences import fill
from standfast.results.formatting import join_names
from standfast.results.reasons import Alone, Card, Reason, Source
from standfast.results.sanity import round_up
from standfast.statistics.reasons import MANY_ERROR, MOST_TIMES, count_least_models

_TEMPLATE = "cards/sentences.txt"
#: with more reasons a sentence gives the range of their shares instead of each
_MOST_SHARES = 4
#: another feature is said to be named instead if it has at least this part of what a reason lacks
_INSTEAD = 0.5


@dataclass(frozen=True)
class ReasonWords:
    """A reason in words.

    Attributes:
        feature: its number.
        name: how sentences name it.
        speaks: what it says of the answer, such as "debt 9,400 speaks for default".
        named: how often it is named; empty where nothing is known of it.
        why: what leaves it out, alone, most often; empty of a reason that holds, or where this is not known.
        needs: how many draws would decide; empty of a reason that is decided.
        raising: what raising it does, where signs say that (`Card.says_what_raising_does`); else empty.
    """

    feature: int
    name: str
    speaks: str
    named: str
    why: str = ""
    needs: str = ""
    raising: str = ""


@dataclass(frozen=True)
class CardWords:
    """A card in words.

    Attributes:
        decision: the answer, with its probability.
        warning: in how many variations the decision itself falls; empty where it never does.
        summary: what can be relied on, and what cannot.
        holding, falling, undecided: the reasons that can be stated, those that cannot, and those of which it is not
            known yet.
        untested: reasons of which nothing is known, since nothing was varied or no variation keeps the decision.
        same: how often all reasons are the same, or how many of many are; empty where it is not known.
        varied: what was varied, and how often.
        alone: what each source does alone.
        notes: what else has to be known.
        unseen: what the intervals of means may not know of, as there are few variations; empty where there are many.
    """

    decision: str
    warning: str
    summary: str
    holding: tuple[ReasonWords, ...]
    falling: tuple[ReasonWords, ...]
    undecided: tuple[ReasonWords, ...]
    untested: tuple[ReasonWords, ...]
    same: str
    varied: str
    alone: tuple[str, ...]
    notes: tuple[str, ...]
    unseen: str = ""

    def find(self, feature: int) -> ReasonWords | None:
        """The words of a reason by its number; None of another feature."""
        for reason in (*self.holding, *self.falling, *self.undecided, *self.untested):
            if reason.feature == feature:
                return reason
        return None


#: sources that a user switches on, and of which a card says that they were not tried
_TRIED_BY_USERS: tuple[Source, ...] = ("measurement", "retraining")


def say_of_card(macro: str, *values: object) -> str:
    """A sentence of a card as plain text; who puts it into HTML escapes it.

    >>> say_of_card("variations", 200, 0, False), say_of_card("variations", 8, 8, False)
    ('200 variations', '8 retrained models')
    """
    return fill(_TEMPLATE, macro, *values)


def describe_card(card: Card) -> CardWords:
    """What a card says, in sentences."""
    return _Writer(card).write()


class _Writer:
    """Writes the sentences of one card.

    Attributes:
        is_tested: whether any draw says something of the reasons.
        all_draws: how many draws there are, in words.
        named: what it is to be named, in words.
    """

    def __init__(self, card: Card) -> None:
        self.card = card
        self.is_tested = bool(card.varied) and card.draws > 0
        self.models = card.models - card.deciding_otherwise
        only_explainers = card.varied == ("explainer",)
        self.all_draws = say_of_card("variations", card.draws, self.models, only_explainers)
        self.named = say_of_card(
            "among_first",
            card.top,
            card.has_signs is not False,
            supported_answer(card),
            card.says_what_raising_does,
        )

    def write(self) -> CardWords:
        by_state: dict[str, list[ReasonWords]] = {}
        for number, reason in enumerate(self.card.reasons):
            state = reason.state if self.is_tested else ""
            by_state.setdefault(state, []).append(self._describe_reason(number, reason))
        return CardWords(
            decision=say_of_card("decision", self.card.answer, describe_score(self.card)),
            warning=self._warn(),
            summary=" ".join(self._summarise()),
            holding=tuple(by_state.get("holds", ())),
            falling=tuple(by_state.get("falls", ())),
            undecided=tuple(by_state.get("undecided", ())),
            untested=tuple(by_state.get("", ())),
            same=self._describe_same(),
            varied=self._describe_varied(),
            alone=self._describe_sources(),
            notes=tuple(self._list_notes()),
            unseen=self._describe_unseen(),
        )

    def _describe_unseen(self) -> str:
        """What the intervals of means may not know of."""
        if not self.is_tested or not self.card.reasons or not self.card.may_miss_rare:
            return ""
        return say_of_card("unseen", format_share(self.card.unseen), self.models > 0)

    def _warn(self) -> str:
        """Where the decision itself falls."""
        card = self.card
        sentences = []
        limit = 1 - card.demand
        if card.varied and card.drawn and card.kept < card.drawn:
            share = 1 - card.kept_share
            every = say_of_card("variations", card.drawn, self.models, False)
            sentences.append(say_of_card("falls", format_share(share), every, share > limit))
        if card.deciding_otherwise:
            share = card.deciding_otherwise / card.models
            sentences.append(
                say_of_card("models_otherwise", card.deciding_otherwise, card.models, share > limit)
            )
        return " ".join(sentences)

    def _summarise(self) -> list[str]:
        """What can be relied on."""
        card = self.card
        if not card.varied:
            return [say_of_card("nothing_varied")]
        if not card.draws:
            return [say_of_card("nothing_kept")]
        if not card.decided:
            return self._summarise_area()
        if not card.reasons:
            return [say_of_card("no_reason")]
        sentences = self._summarise_reasons()
        if is_text(card) and card.holding and has_map(card):
            relevance = format_share(measure_area(card).relevance)
            sentences.append(say_of_card("words_hold", relevance, name_part(card)))
        return sentences

    def _summarise_area(self) -> list[str]:
        """Of a map with many features, which part of it holds."""
        card = self.card
        part = name_part(self.card)
        sentences: list[str] = []
        demand = format_share(card.demand)
        if has_map(card):
            area = measure_area(card)
            sentences = [say_of_card("no_area", part, demand, self.all_draws)]
            if area.count:
                error = format_share(MANY_ERROR)
                sentences = [
                    say_of_card("area", format_share(area.relevance), part, area.least >= 1),
                    say_of_card("area_error", part, demand, self.all_draws, error, self.named),
                ]
        return sentences

    def _summarise_reasons(self) -> list[str]:
        """Which reasons hold, which do not, and of which it is not known. The first that has a share says of what."""
        card = self.card
        falling = [reason for reason in card.reasons if reason.state == "falls"]
        undecided = [reason for reason in card.reasons if reason.state == "undecided"]
        sentences: list[str] = []
        if card.holding:
            names = self._name_all(card.holding)
            shares = _join_shares(card.holding)
            sentences.append(say_of_card("holding", names, shares, self.all_draws, self.named))
        else:
            sentences.append(
                say_of_card("none_holds", len(card.reasons), self.all_draws, self.named)
            )
        if falling:
            sentence = say_of_card("falling", self._name_all(falling), _join_shares(falling))
            sentences.append(sentence + self._say_instead(falling) + ".")
        if undecided:
            sentences.append(
                say_of_card("undecided", self._name_all(undecided), _join_shares(undecided))
            )
        return sentences

    def _say_instead(self, falling: Sequence[Reason]) -> str:
        """What is named in the place of reasons that fall, and what makes them fall most."""
        lacking_of_all = sum(1 - reason.probability for reason in falling)
        lacking = lacking_of_all / len(falling)
        words = ""
        for other in self.card.others[:1]:
            if other.probability >= _INSTEAD * lacking:
                words += say_of_card(
                    "instead", name_reason(self.card, other), format_share(other.probability)
                )
        worst = [
            self._find_worst(number)
            for number, reason in enumerate(self.card.reasons)
            if reason in falling
        ]
        sources = {alone.source for alone in worst if alone is not None}
        if len(sources) == 1:
            words += say_of_card("by_source", sources.pop(), len(falling))
        return words

    def _find_worst(self, number: int) -> Alone | None:
        """The source that leaves out the reason with this number most often; None where none does, or one varied."""
        if len(self.card.varied) < 2:
            return None
        measured = [alone for alone in self.card.alone if number < len(alone.falling)]
        worst = max(measured, key=lambda alone: alone.falling[number], default=None)
        if worst is None or worst.falling[number] == 0:
            return None
        return worst

    def _name_all(self, reasons: Sequence[Reason]) -> list[str]:
        return [name_reason(self.card, reason) for reason in reasons]

    def _describe_reason(self, number: int, reason: Reason) -> ReasonWords:
        """One reason."""
        name = name_reason(self.card, reason)
        speaks = self._say_sign(reason)
        raising = speaks if self.card.says_what_raising_does else ""
        if not self.is_tested:
            return ReasonWords(reason.feature, name, speaks, "", raising=raising)
        named = say_of_card("named_in", format_share(reason.probability), self.all_draws)
        why = ""
        if reason.state != "holds":
            why = self._blame(number)
        needs = ""
        if reason.state == "undecided":
            needs = self._foresee(reason)
        return ReasonWords(reason.feature, name, speaks, named, why, needs, raising)

    def _say_sign(self, reason: Reason) -> str:
        """What the sign of a reason says."""
        card = self.card
        if card.says_what_raising_does:
            return say_of_card("raising", name_reason(card, reason), reason.sign, name_score(card))
        macro = "matters" if card.has_signs is False else "speaks"
        return say_of_card(macro, title_reason(card, reason), reason.sign, name_answer(card))

    def _blame(self, number: int) -> str:
        """In how many draws of the source that leaves a reason out most often it is named."""
        worst = self._find_worst(number)
        if worst is None:
            return ""
        return say_of_card(
            "why", worst.source, format_share(1 - worst.falling[number]), worst.draws
        )

    def _foresee(self, reason: Reason) -> str:
        """How many draws would decide; empty where no number would, as the share is at the demand."""
        foreseen = reason.foreseen
        if foreseen is None:
            return ""
        unit = "retrained model" if self.models else "variation"
        if foreseen.count is None:
            return say_of_card("far_off", MOST_TIMES, foreseen.least, unit)
        return say_of_card("foreseen", foreseen.count, foreseen.least, foreseen.most, unit)

    def _describe_same(self) -> str:
        """How often all reasons are the same; of a map with many features, how many of them are."""
        card = self.card
        if not self.is_tested or not math.isfinite(card.same):
            return ""
        interval = format_shares(card.same_low, card.same_high)
        if not card.decided:
            return say_of_card(
                "shares_of_many", card.top, name_part(card), format_share(card.same), interval
            )
        if not card.reasons:
            return ""
        order = ""
        if len(card.reasons) > 1 and math.isfinite(card.same_order):
            order = format_share(card.same_order)
        return say_of_card("same", len(card.reasons), format_share(card.same), interval, order)

    def _describe_varied(self) -> str:
        """What was varied, and how often."""
        card = self.card
        if not card.varied:
            return say_of_card("how_to_vary")
        sources = [say_of_card("source", source, card.changes) for source in card.varied]
        return say_of_card("varied", sources, self.all_draws, card.kept, card.drawn)

    def _describe_sources(self) -> tuple[str, ...]:
        """What each source does alone."""
        if len(self.card.varied) < 2:
            return ()
        measured = [alone for alone in self.card.alone if math.isfinite(alone.variance)]
        is_one_of_several = len(measured) > 1
        return tuple(self._describe_alone(alone, is_one_of_several) for alone in self.card.alone)

    def _describe_alone(self, alone: Alone, is_compared: bool) -> str:
        """What a source does alone, with its share of the variance where there are others to compare it with."""
        is_sure = alone.low == alone.high or not math.isfinite(alone.low)
        interval = "" if is_sure else format_shares(alone.low, alone.high)
        variance = ""
        if is_compared and math.isfinite(alone.variance):
            variance = format_share(alone.variance)
        if not self.card.decided and alone.falling:
            again = 1 - sum(alone.falling) / len(alone.falling)
            return say_of_card(
                "alone_of_many", alone.source, alone.draws, format_share(again), variance
            )
        return say_of_card(
            "alone", alone.source, alone.draws, format_share(alone.same), interval, variance
        )

    def _list_notes(self) -> list[str]:
        """What else has to be known."""
        return [
            *self._note_sources(),
            *self._note_models(),
            *self._note_unit(),
            *self._note_signs(),
            *self._note_outside(),
            *self._note_more(),
            *self._note_numbers(),
            *self.card.notes,
        ]

    def _note_sources(self) -> list[str]:
        """Which sources the explainer does not have, and which were not tried."""
        card = self.card
        notes = [say_of_card("unused", source) for source in card.unused]
        untried = [
            source for source in _TRIED_BY_USERS if source not in (*card.varied, *card.unused)
        ]
        if card.varied and untried:
            notes.append(say_of_card("untried", untried))
        return notes

    def _note_unit(self) -> list[str]:
        """What values are measured in."""
        if self.card.unit:
            return [say_of_card("unit", self.card.unit)]
        return []

    def _note_signs(self) -> list[str]:
        """What signs are about, or that there are none; and whether features against the answer are left out."""
        card = self.card
        supported = supported_answer(card)
        notes: list[str] = []
        if card.says_what_raising_does:
            notes.append(say_of_card("of_raising", card.explainer))
        if supported:
            return [*notes, say_of_card("only_for", supported, card.says_what_raising_does)]
        if card.has_signs is False:
            return [say_of_card("declares_no_signs", card.explainer)]
        if card.has_signs is None and has_no_signs(card):
            return [say_of_card("no_signs")]
        return notes

    def _note_numbers(self) -> list[str]:
        """Which numbers are less sure than others, how many reasons there are, and what chance would give."""
        card = self.card
        notes: list[str] = []
        few = [name_reason(card, reason) for reason in card.reasons if reason.few_draws]
        if few and self.is_tested:
            notes.append(say_of_card("few_draws", few))
        if card.decided and 0 < len(card.reasons) < card.top:
            notes.append(say_of_card("fewer", len(card.reasons), card.top))
        if card.decided and self.is_tested and card.chance < 1:
            features = round(card.top / card.chance)
            notes.append(
                say_of_card(
                    "chance",
                    card.top,
                    features,
                    format_chance(card),
                    supported_answer(card),
                    card.says_what_raising_does,
                )
            )
        return notes

    def _note_outside(self) -> list[str]:
        """Which values lie outside of the interval of their mean, and why they may."""
        card = self.card
        if not self.is_tested:
            return []
        outside = [name_reason(card, reason) for reason in card.reasons if lies_outside(reason)]
        sources: list[Source] = [source for source in card.varied if source != "explainer"]
        if not outside:
            return []
        return [say_of_card("outside", outside, sources)]

    def _note_more(self) -> list[str]:
        """How to make as many variations as would decide the reason that needs the fewest.

        Those of the others can be thousands, where a probability is near the demand.
        """
        # a number as large as that of what counts already is no advice
        done = self.models or self.card.draws
        foreseen = [
            reason
            for reason in self.card.reasons
            if reason.foreseen and reason.foreseen.count and reason.foreseen.count > done
        ]
        if not foreseen or not self.is_tested:
            return []
        nearest = min(foreseen, key=_count_foreseen)
        macro = "more_models" if self.models else "more_draws"
        count = _count_foreseen(nearest)
        name = name_reason(self.card, nearest)
        return [say_of_card(macro, name, count, self._count_with_others(count))]

    def _count_with_others(self, count: int) -> int:
        """How many draws or models have to be made for so many that keep the decision, if as large a share does."""
        card = self.card
        if self.models:
            kept, drawn = self.models, card.models
        else:
            kept, drawn = card.kept, card.drawn
        if kept == drawn or not kept:
            return count
        whole_number = math.ceil(count * drawn / kept)
        return round_up(whole_number) or whole_number

    def _note_models(self) -> list[str]:
        """Whether there are too few retrained models."""
        card = self.card
        notes: list[str] = []
        if not self.models:
            return []
        decided_at_once = max(1, len(card.reasons))
        least = count_least_models(card.demand, reasons=decided_at_once, look=None)
        if card.reasons and self.models < least:
            notes.append(
                say_of_card("too_few_models", self.models, least, format_share(card.demand))
            )
        if card.few_models:
            notes.append(say_of_card("few_models", self.models))
        return notes


def _count_foreseen(reason: Reason) -> int:
    """How many variations would decide a reason of which this can be said."""
    assert reason.foreseen is not None
    assert reason.foreseen.count is not None
    return reason.foreseen.count


def _join_shares(reasons: Sequence[Reason]) -> str:
    """How often reasons are named, in their order; of many the range."""
    shares = [reason.probability for reason in reasons]
    texts = [format_share(share) for share in shares]
    lowest = format_share(min(shares))
    highest = format_share(max(shares))
    if lowest == highest:
        return lowest
    if len(shares) > _MOST_SHARES:
        return f"{lowest} to {highest}"
    return join_names(texts, named=_MOST_SHARES)
