"""What a card says, as numbers and short names: shares in percent, names of features, the area of a map that holds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from standfast.results.reasons import Card, Reason
from standfast.tensors import Array

#: the rule of a decision: the probability that it names, and which side of the cut-off it takes
_RULE = re.compile(r"(?P<probability>P\(.+\)) (?P<sign>[<>]) (?P<cut_off>[\d.e-]+)", re.DOTALL)
#: how much of a passage stands in a sentence
_MOST_LETTERS = 40
#: an answer that is a number, as a regressor gives it: what it is, and which output
_NUMBER = re.compile(r"(?P<what>.+?) [−-]?\d\S*(?P<output> \(output \d+\))?", re.DOTALL)
#: the digits behind the point of a percentage that is to be told from another one, at most
_MOST_DIGITS = 6


def format_share(share: float) -> str:
    """A share in percent; only 0 and 1 themselves are 0% and 100%.

    >>> [format_share(share) for share in (0.0, 0.001, 0.614, 0.998, 1.0, float("nan"))]
    ['0%', 'below 1%', '61%', 'over 99%', '100%', 'not known']
    """
    if math.isnan(share):
        return "not known"
    percent = round(100 * share)
    if percent == 0 and share > 0:
        return "below 1%"
    if percent == 100 and share < 1:
        return "over 99%"
    return f"{percent}%"


def format_shares(low: float, high: float) -> str:
    """An interval of a share in percent.

    >>> format_shares(0.544, 0.681)
    '54% to 68%'
    """
    return f"{100 * low:.0f}% to {100 * high:.0f}%"


def format_signed(value: float) -> str:
    """An attribution with its sign, three digits of it or more.

    >>> format_signed(0.8123), format_signed(-12.0), format_signed(2345.6), format_signed(float("nan"))
    ('+0.812', '-12.0', '+2,346', 'not known')
    """
    if math.isnan(value):
        return "not known"
    if abs(value) >= 1000:
        return f"{value:+,.0f}"
    return f"{value:+#.3g}".rstrip(".")


def describe_score(card: Card) -> str:
    """The number that the answer has, in words: a probability, or another one; empty where there is none.

    The score of a rule is the probability of the side that is taken. The reader wants the one that the rule names.
    """
    if not math.isfinite(card.score) or not card.score_name:
        return ""
    rule = _RULE.fullmatch(card.rule)
    if rule is not None:
        return _describe_rule(card, rule)
    if card.score_name == "probability":
        return f"probability {format_share(card.score)}"
    return f"{card.score_name} {card.score:.4g}"


def _describe_rule(card: Card, rule: re.Match[str]) -> str:
    """The probability that a rule names; with its cut-off where the answer does not say it."""
    is_above = (rule["sign"] == ">") == card.rule_met
    share = card.score if is_above else 1 - card.score
    share_text, cut_off = tell_shares(share, float(rule["cut_off"]))
    if is_named_side(card):
        return f"{rule['probability']} is {share_text}, the cut-off {cut_off}"
    return f"it is {share_text}"


def tell_shares(share: float, limit: float) -> tuple[str, str]:
    """Two shares in percent, with as many digits as tell them apart.

    >>> tell_shares(0.62, 0.35), tell_shares(0.3504, 0.35)
    (('62%', '35%'), ('35.04%', '35%'))
    """
    digits = 0
    while (
        round(100 * share, digits) == round(100 * limit, digits)
        and share != limit
        and digits < _MOST_DIGITS
    ):
        digits += 1
    if digits:
        share_text = f"{100 * share:.{digits}f}%"
    else:
        share_text = format_share(share)
    limit_text = f"{100 * limit:.{_MOST_DIGITS}f}".rstrip("0").rstrip(".")
    return share_text, limit_text + "%"


def is_named_side(card: Card) -> bool:
    """Whether the answer is a side of a decision that has a name of its own, such as "declined"."""
    return bool(card.rule) and card.answer not in (card.rule, f"not {card.rule}")


def supported_answer(card: Card) -> str:
    """What all features speak for, where only such features are named; else empty."""
    if card.speaking == "for" and card.has_signs is not False:
        return name_answer(card)
    return ""


def format_chance(card: Card) -> str:
    """What chance would give. Where only features that speak for the answer are named, fewer than k may be.

    >>> from types import SimpleNamespace as Named
    >>> format_chance(Named(chance=0.5, speaking="both")), format_chance(Named(chance=0.5, speaking="for"))
    ('50%', 'at most 50%')
    """
    share = format_share(card.chance)
    if card.speaking == "for":
        return f"at most {share}"
    return share


def name_answer(card: Card) -> str:
    """How a sentence calls the answer. What speaks for a number is what makes it higher, whatever its sign.

    >>> from types import SimpleNamespace as Named
    >>> rule = "P(default) > 0.35"
    >>> [name_answer(Named(answer=answer, rule=rule)) for answer in ("declined", rule, f"not {rule}")]
    ['"declined"', 'P(default) > 0.35', 'this answer']
    >>> name_answer(Named(answer="class 3", rule="", score_name="probability"))
    'class 3'
    >>> name_answer(Named(answer="predicted value −2.70", rule="", score_name=""))
    'a higher predicted value'
    """
    number = _read_number(card)
    if number is not None:
        return f"a higher {number}"
    if is_named_side(card):
        return f'"{card.answer}"'
    is_negated = bool(card.rule) and card.answer != card.rule
    return "this answer" if is_negated else card.answer


def name_score(card: Card) -> str:
    """How a sentence calls the number that raising a feature raises or lowers.

    >>> from types import SimpleNamespace as Named
    >>> name_score(Named(answer="class 3", rule="", score_name="probability"))
    'the score of class 3'
    >>> name_score(Named(answer="predicted value 3.60 (output 1)", rule="", score_name=""))
    'the predicted value (output 1)'
    """
    number = _read_number(card)
    if number is None:
        return f"the score of {name_answer(card)}"
    return f"the {number}"


def _read_number(card: Card) -> str | None:
    """What an answer is that is a number; None of a class, a label or a side, which have a score beside their name."""
    if card.rule or card.score_name:
        return None
    number = _NUMBER.fullmatch(card.answer)
    if number is None:
        return None
    return number["what"] + (number["output"] or "")


def name_case(card: Card) -> str:
    """Which case a card is about: a row with its label or number, the file of an image, or the number of a sample.

    >>> from types import SimpleNamespace as Named
    >>> row = {"income": "1,200"}
    >>> [name_case(Named(name=name, columns=row, sample=17)) for name in ("C-1041", "")]
    ['row C-1041', 'row 17']
    >>> [name_case(Named(name=name, columns={}, sample=3)) for name in ("cat/1.png", "")]
    ['cat/1.png', 'sample 3']
    """
    if card.columns:
        return f"row {card.name or card.sample}"
    return card.name or f"sample {card.sample}"


def is_text(card: Card) -> bool:
    """Whether the features are words: they have names, and there are no columns with values."""
    return bool(card.names) and not card.columns


def has_passages(card: Card) -> bool:
    """Whether the features are parts of a text of several words, such as the sentences of a context."""
    return is_text(card) and any(" " in name.strip() for name in card.names)


def name_part(card: Card) -> str:
    """What one feature is called: a pixel, a step, a word, a passage or a feature."""
    if card.input is not None:
        dimensions = np.ndim(card.input)
    else:
        dimensions = 1
    if dimensions == 1 and is_text(card):
        return "passage" if has_passages(card) else "word"
    if dimensions == 1:
        return "feature"
    return "step" if dimensions == 2 else "pixel"


def name_reason(card: Card, reason: Reason) -> str:
    """How a sentence calls a feature.

    A word that occurs more often has its place, too, and a pixel or a step its position. The beginning of a passage
    stands in quotes: it is a sentence within the sentence.
    """
    if card.input is not None:
        shape = np.shape(card.input)
    else:
        shape = ()
    if len(shape) > 1:
        return name_position(shape, reason.feature)
    if has_passages(card):
        name = f'"{_shorten(reason.name)}"'
    else:
        name = reason.name
    return name + _say_place(card, reason)


def _say_place(card: Card, reason: Reason) -> str:
    """Which one of several equal words or passages a feature is; empty where there is one."""
    is_repeated = is_text(card) and card.names.count(reason.name) > 1
    if is_repeated:
        return f" ({name_part(card)} {reason.feature + 1})"
    return ""


def _shorten(passage: str) -> str:
    """The beginning of a passage, up to the end of a word.

    >>> _shorten("The bridge of Halden was designed by the engineer Marta Lindqvist.")
    'The bridge of Halden was designed by ...'
    """
    if len(passage) <= _MOST_LETTERS:
        return passage
    beginning = passage[:_MOST_LETTERS]
    whole_words = beginning.rpartition(" ")[0]
    return f"{whole_words or beginning} ..."


def name_position(shape: tuple[int, ...], feature: int) -> str:
    """Where a feature of an image `(C, H, W)`, a series `(C, T)` or a volume is, counted from 1.

    >>> name_position((3, 20, 30), 31), name_position((1, 50), 4), name_position((2, 50), 54)
    ('row 2, column 2', 'step 5', 'channel 2, step 5')
    """
    if len(shape) == 2:
        channel, step = divmod(feature, shape[1])
        if shape[0] == 1:
            return f"step {step + 1}"
        return f"channel {channel + 1}, step {step + 1}"
    indices = np.unravel_index(feature, shape[1:])
    # a volume has slices, too
    axes = ("slice", "row", "column")[-len(indices) :]
    return ", ".join(f"{axis} {index + 1}" for axis, index in zip(axes, indices, strict=True))


def has_map(card: Card) -> bool:
    """Whether the map is known, with the share of draws that name each feature."""
    return card.origin is not None and card.shares is not None and card.signs is not None


def title_reason(card: Card, reason: Reason) -> str:
    """The name of a feature with its value, where it has one; a passage without quotes."""
    if has_passages(card):
        return _shorten(reason.name) + _say_place(card, reason)
    name = name_reason(card, reason)
    if reason.words.startswith(name):
        return reason.words
    return name


def has_no_signs(card: Card) -> bool:
    """Whether no feature speaks against the answer, as in maps of sizes alone: absolute gradients, say."""
    if card.origin is None or np.size(card.origin) < 2:
        return False
    origin = np.asarray(card.origin, dtype=float)
    return bool((np.nan_to_num(origin) >= 0).all())


def lies_outside(reason: Reason) -> bool:
    """Whether the value at the clean input is visibly outside of the interval of the mean over draws.

    >>> from types import SimpleNamespace as Named
    >>> [lies_outside(Named(value=5.981, low=low, high=6.0)) for low in (5.982, 5.994)]
    [False, True]
    """
    is_known = math.isfinite(reason.low) and math.isfinite(reason.high)
    if not is_known or reason.low <= reason.value <= reason.high:
        return False
    shown_ends = {format_signed(reason.low), format_signed(reason.high)}
    return format_signed(reason.value) not in shown_ends


@dataclass(frozen=True)
class Area:
    """The part of a map that holds.

    Attributes:
        holds: the features that are shown to be named with the demanded probability, bool `(F,)`.
        doubtful: the other reasons, bool `(F,)`.
        relevance: the share of the absolute relevance of the map that is within what holds.
        least: the smallest share of draws that name a feature that holds; NaN where none does.
    """

    holds: Array
    doubtful: Array
    relevance: float
    least: float

    @property
    def count(self) -> int:
        """How many features hold."""
        return int(self.holds.sum())


def measure_area(card: Card) -> Area:
    """The part of a map that holds, of features too many to decide on each."""
    assert card.origin is not None
    assert card.shares is not None
    assert card.signs is not None
    is_reason = np.asarray(card.signs) != 0
    shares = np.nan_to_num(card.shares)
    if card.held is not None:
        holds = np.asarray(card.held)
    else:
        stated = [reason.feature for reason in card.holding]
        holds = np.isin(np.arange(len(is_reason)), stated)
    sizes = np.abs(np.nan_to_num(card.origin))
    total = float(sizes.sum()) or 1.0
    relevance = float(sizes[holds].sum()) / total
    if holds.any():
        least = float(shares[holds].min())
    else:
        least = math.nan
    return Area(holds, is_reason & ~holds, relevance, least)
