"""The rows of a card's picture: where the bars and lines of each feature are, in percent of the width.

A value has two marks that are never mixed up. The interval of the mean is what more draws would make exact; the range
over draws is what no number of draws makes smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from standfast.report.cards.facts import format_share, format_shares, format_signed, title_reason
from standfast.report.cards.words import CardWords, ReasonWords
from standfast.results.reasons import Card, Reason

#: how many features that are no reasons are shown, and how many rows there are with them at most
_MOST_OTHERS = 4
_MOST_ROWS = 12
#: an interval of the mean makes the scale wider by this part on each side at most
_WIDER = 0.25
#: the letters of a title
_MOST_LETTERS = 80
#: of a feature that is no reason
_NO_WORDS = ReasonWords(-1, "", "", "")
#: free on both sides, in percent
_MARGIN = 2.0


@dataclass(frozen=True)
class Span:
    """A line from `start` to `end`, in percent; an end that is cut by the scale has no cap."""

    start: float
    end: float
    has_start: bool = True
    has_end: bool = True


@dataclass(frozen=True)
class Row:
    """One feature.

    Attributes:
        title: its name with its value.
        why: why it cannot be stated, and what would decide; empty where it can.
        state: `"holds"`, `"falls"`, `"undecided"`, or empty.
        kind: `"for"` or `"against"` the answer; `"size"` where the explainer has no signs.
        bar: from 0 to its value.
        mean: the interval of the mean; None where it is not known.
        spread: 5% to 95% of the draws; None where it is not known.
        value: its value as text.
        named: how often it is named, in percent; None where nothing is known.
        named_interval: its interval, None where it is exact.
        share: how often it is named, as text.
        alt_value, alt_named: both pictures in words.
    """

    title: str
    why: str
    state: str
    kind: str
    bar: Span
    mean: Span | None
    spread: Span | None
    value: str
    named: float | None
    named_interval: Span | None
    share: str
    alt_value: str
    alt_named: str


@dataclass(frozen=True)
class StateGroup:
    """The rows of one state, with what would decide where it is the same for all of them."""

    state: str
    note: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Rows:
    """All rows, by state.

    Attributes:
        groups: those that hold first.
        zero: where no effect is, in percent.
        count: of rows.
        left_out: how many features that are no reasons are not shown.
    """

    groups: tuple[StateGroup, ...]
    zero: float
    count: int
    left_out: int


class BarScale:
    """From values to percent of the width.

    Args:
        inner: values that must all be on it, beside 0.
        outer: ends of intervals, for which it gets wider only a little.
    """

    def __init__(self, inner: Sequence[float], outer: Sequence[float] = ()) -> None:
        finite = [0.0, *filter(math.isfinite, inner)]
        low = min(finite)
        high = max(finite)
        wider = _WIDER * (high - low)
        ends = list(filter(math.isfinite, outer))
        # room for the ends, but not without limit
        self.low = max(min([low, *ends]), low - wider)
        self.high = min(max([high, *ends]), high + wider)
        if self.high == self.low:
            self.low = -1.0
            self.high = 1.0

    def place(self, value: float) -> float:
        """Where a value is, cut at the ends.

        >>> BarScale([-1.0, 3.0]).place(1.0)
        50.0
        """
        within = min(max(value, self.low), self.high)
        share = (within - self.low) / (self.high - self.low)
        return round(_MARGIN + (100 - 2 * _MARGIN) * share, 2)

    def span(self, low: float, high: float) -> Span | None:
        """Where an interval is; None where it is not known."""
        if math.isnan(low) or math.isnan(high):
            return None
        is_whole_left = low >= self.low
        is_whole_right = high <= self.high
        return Span(self.place(low), self.place(high), is_whole_left, is_whole_right)


def make_rows(card: Card, words: CardWords) -> Rows:
    """The rows of a card: its reasons, and the features that are named most often beside them."""
    room = max(0, _MOST_ROWS - len(card.reasons))
    others = card.others[: min(_MOST_OTHERS, room)]
    shown = [*card.reasons, *others]
    inner: list[float] = []
    outer: list[float] = []
    for reason in shown:
        inner += [reason.value, reason.range_low, reason.range_high]
        outer += [reason.low, reason.high]
    scale = BarScale(inner, outer)
    by_state: dict[str, list[Reason]] = {}
    for reason in shown:
        by_state.setdefault(_find_state(reason, words), []).append(reason)
    order = ("holds", "falls", "undecided", "untested", "other")
    groups = tuple(
        _make_group(card, words, scale, state, by_state[state])
        for state in order
        if state in by_state
    )
    left_out = len(card.others) - len(others)
    return Rows(groups, scale.place(0.0), len(shown), left_out)


def _make_group(
    card: Card, words: CardWords, scale: BarScale, state: str, reasons: Sequence[Reason]
) -> StateGroup:
    """The rows of one state; what would decide all of them is said once."""
    in_words = [words.find(reason.feature) or _NO_WORDS for reason in reasons]
    needs = {said.needs for said in in_words}
    is_common = len(needs) == 1 and len(reasons) > 1
    note = needs.pop() if is_common else ""
    rows: list[Row] = []
    for reason, said in zip(reasons, in_words, strict=True):
        if is_common:
            sentences = [said.raising, said.why]
        else:
            sentences = [said.raising, said.why, said.needs]
        why = "; ".join(filter(None, sentences))
        rows.append(_make_row(card, reason, scale, why))
    return StateGroup(state, note, tuple(rows))


def _find_state(reason: Reason, words: CardWords) -> str:
    """The group of a feature."""
    if words.find(reason.feature) is None:
        return "other"
    is_untested = any(reason.feature == untested.feature for untested in words.untested)
    return "untested" if is_untested else reason.state


def _make_row(card: Card, reason: Reason, scale: BarScale, why: str) -> Row:
    """The row of one feature."""
    title = title_reason(card, reason)
    is_known = math.isfinite(reason.probability)
    share = BarScale([0.0, 1.0])
    named_interval = None
    if reason.probability_low != reason.probability_high:
        named_interval = share.span(reason.probability_low, reason.probability_high)
    if len(title) > _MOST_LETTERS:
        title = title[: _MOST_LETTERS - 1] + "…"
    return Row(
        title=title,
        why=why,
        state=reason.state,
        kind=_find_kind(card, reason),
        bar=_order_span(scale.place(0.0), scale.place(reason.value)),
        mean=scale.span(reason.low, reason.high),
        spread=scale.span(reason.range_low, reason.range_high),
        value=format_signed(reason.value),
        named=share.place(reason.probability) if is_known else None,
        named_interval=named_interval,
        share=format_share(reason.probability) if is_known else "",
        alt_value=_describe_value(reason),
        alt_named=_describe_named(reason) if is_known else "not known",
    )


def _find_kind(card: Card, reason: Reason) -> str:
    """What a bar says by its colour."""
    if card.has_signs is False:
        return "size"
    return "for" if reason.value > 0 else "against"


def _order_span(start: float, end: float) -> Span:
    return Span(min(start, end), max(start, end))


def _describe_value(reason: Reason) -> str:
    """The picture of a value in words."""
    parts = [f"value {format_signed(reason.value)}"]
    if math.isfinite(reason.low):
        ends = f"{format_signed(reason.low)} to {format_signed(reason.high)}"
        parts.append(f"mean {format_signed(reason.mean)}, its interval {ends}")
    if math.isfinite(reason.range_low):
        ends = f"{format_signed(reason.range_low)} to {format_signed(reason.range_high)}"
        parts.append(f"nine tenths of variations {ends}")
    return "; ".join(parts)


def _describe_named(reason: Reason) -> str:
    """The picture of how often a reason is named in words."""
    interval = format_shares(reason.probability_low, reason.probability_high)
    return f"named in {format_share(reason.probability)}, interval {interval}"


def place_share(share: float) -> float:
    """Where a share is, in percent of the width.

    >>> place_share(0.0), place_share(1.0)
    (2.0, 98.0)
    """
    return BarScale([0.0, 1.0]).place(share)
