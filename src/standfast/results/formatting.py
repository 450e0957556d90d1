"""Numbers and names as text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from standfast import errors
from standfast.results.quality import CONFIDENT
from standfast.statistics.paired import Interval
from standfast.value_spec import Decimals

#: a list in words names this many; of more it gives the number
_NAMED = 3
#: what stands before a number that is only a bound
SIGNS = {None: "", "upper": "≤ ", "lower": "≥ ", "unknown": ""}
_ASCII = {"≤": "<=", "≥": ">=", "−": "-", "∞": "inf", "–": "-", "≈": "~"}
#: the names of standfast's own exceptions, which say nothing to the reader of a stored error
_OWN_EXCEPTIONS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.StandfastError)
}


def join_names(names: Sequence[str], named: int = _NAMED) -> str:
    """Names as a list in words; of more than `named` the first ones and how many others there are.

    >>> join_names(["a"]), join_names(["a", "b", "c"]), join_names(["a", "b", "c", "d"])
    ('a', 'a, b and c', 'a, b and 2 others')
    """
    shown = list(names)
    if len(names) > named:
        others = len(names) - named + 1
        shown = [*names[: named - 1], f"{others} others"]
    if not shown:
        return "none"
    if len(shown) == 1:
        return shown[0]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def format_rough(number: int) -> str:
    """A number of which only the first digit means anything.

    >>> format_rough(41), format_rough(3500), format_rough(96), format_rough(7)
    ('40', '4,000', '100', '7')
    """
    return f"{round_roughly(number):,}"


def round_roughly(number: int) -> int:
    """A number of which only the first digit means anything, rounded to it; 5 is rounded up.

    >>> round_roughly(41), round_roughly(96), round_roughly(25)
    (40, 100, 30)
    """
    step = int(10 ** (len(str(number)) - 1))
    # Python rounds a half to the even number
    return round(number / step + 1e-9) * step


def format_rough_duration(seconds: float) -> str:
    """A time that is known to its first digit at best, in words.

    >>> [format_rough_duration(seconds) for seconds in (0.3, 41.0, 130.0, 1e4)]
    ['1 second', '40 seconds', '2 minutes', '3 hours']
    """
    for unit, size in (("hour", 3600), ("minute", 60)):
        if seconds >= 1.5 * size:
            return format_count(round_roughly(round(seconds / size)), unit)
    return format_count(round_roughly(max(1, round(seconds))), "second")


def format_count(number: int, noun: str) -> str:
    """A number with its noun, which gets an s unless the number is 1.

    >>> format_count(1, "sample"), format_count(2, "failed job")
    ('1 sample', '2 failed jobs')
    """
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}s"


def format_probability(log_probability: float) -> str:
    """A probability, given as its natural logarithm: in percent, and from 1 in 1,000 on as a count.

    >>> [format_probability(value) for value in (0.0, -0.001, -1.0, -3.7, -6.5, -6.91, -9.3, -40.0)]
    ['100%', 'over 99.5%', '37%', '2.5%', '0.15%', '1 in 1,000', '1 in 11,000', '1 in 10^17']
    """
    if log_probability >= 0:
        return "100%"
    if log_probability > math.log(0.995):
        return "over 99.5%"
    power = -log_probability / math.log(10)
    if power < 3 - 1e-9:
        return f"{100 * math.exp(log_probability):.2g}%"
    if power >= 9:
        if not math.isfinite(power):
            return "0%"
        return f"1 in 10^{round(power)}"
    # two digits
    step = 10 ** (math.floor(power) - 1)
    return f"1 in {round(10**power / step) * step:,}"


def format_number(value: float | None, decimals: Decimals = 2) -> str:
    """A number as the report prints it, with a minus sign; four digits where `decimals` is None, or of huge numbers.

    >>> format_number(-0.5), format_number(float("-inf")), format_number(1234.5678, None), format_number(1e300)
    ('−0.50', '−∞', '1235', '1e+300')
    >>> format_number(-9.3, "probability")
    '1 in 11,000'
    """
    if value is None or np.isnan(value):
        return "–"
    if decimals == "probability":
        return format_probability(value)
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    if decimals is None or abs(value) >= 1e15:
        digits = ".4g"
    else:
        digits = f".{decimals}f"
    # the `z` writes a rounded -0.0 without its sign
    return f"{value:z{digits}}".replace("-", "−")


def format_estimate(estimate: Interval | None, decimals: Decimals = 2) -> str:
    """The value of an estimate, with a sign if it is only a bound.

    >>> format_estimate(Interval(-9.3, None, None, 6, 0.0, "upper", (-20.0, -9.3)))
    '≤ −9.30'
    """
    if estimate is None:
        return "–"
    return SIGNS[estimate.bound] + format_number(estimate.value, decimals)


def format_interval(estimate: Interval | None, decimals: Decimals = 2) -> str:
    """The interval of an estimate in brackets, with open ends in words; empty without an interval.

    >>> format_interval(Interval(0.5, 0.25, 1.0, 9, 0.95, None, (0.5, 0.5)))
    '[0.25, 1.00]'
    """
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    low = format_number(estimate.low, decimals)
    high = format_number(estimate.high, decimals)
    # an end that is infinite is open, and the last known number says from where
    if math.isinf(estimate.low) and estimate.low_bound is not None:
        low = f"below {format_number(estimate.low_bound, decimals)}"
    if math.isinf(estimate.high) and estimate.high_bound is not None:
        high = f"above {format_number(estimate.high_bound, decimals)}"
    return f"[{low}, {high}]"


def format_difference(estimate: Interval, decimals: Decimals = 2) -> str:
    """A difference with its interval; of logarithms of probabilities it is their ratio.

    >>> format_difference(Interval(0.5, 0.25, 1.0, 9, 0.95, None, (0.5, 0.5)))
    'difference 0.50 [0.25, 1.00]'
    >>> format_difference(Interval(0.0, -2.3, 2.3, 9, 0.95, None, (0.0, 0.0)), "probability")
    'ratio 1.00 [0.10, 9.97]'
    """
    what = "difference"
    if decimals == "probability":
        what = "ratio"
        decimals = 2
        estimate = replace(
            estimate,
            value=_exp(estimate.value),
            low=None if estimate.low is None else _exp(estimate.low),
            high=None if estimate.high is None else _exp(estimate.high),
        )
    interval = format_interval(estimate, decimals)
    text = f"{what} {format_estimate(estimate, decimals)} {interval}".rstrip()
    if interval and estimate.coverage < CONFIDENT:
        return f"{text} at {estimate.coverage:.0%}"
    return text


def _exp(value: float) -> float:
    # beyond that, `math.exp` raises
    return math.exp(min(value, 700.0))


def format_confidence(estimate: Interval, decimals: Decimals = 2) -> str:
    """The interval of an estimate, and its confidence where few samples give less than 95%; empty without an interval.

    >>> format_confidence(Interval(0.5, 0.25, 1.0, 5, 0.875, None, (0.5, 0.5)))
    '[0.25, 1.00] (88%)'
    """
    interval = format_interval(estimate, decimals)
    if interval and estimate.coverage < CONFIDENT:
        return f"{interval} ({100 * estimate.coverage:.0f}%)"
    return interval


def to_ascii(text: str) -> str:
    """A text with the signs of this module in ASCII, for terminals of any encoding.

    >>> to_ascii("≤ −9.30")
    '<= -9.30'
    """
    for sign, plain in _ASCII.items():
        text = text.replace(sign, plain)
    return text


def shorten_error(error: object) -> str:
    """The first line of a stored error, without the names of standfast's own exceptions.

    >>> shorten_error("ModelError: module: expected logits\\nmore")
    'module: expected logits'
    """
    text = str(error).strip().partition("\n")[0]
    kind, colon, message = text.partition(": ")
    if colon and kind in _OWN_EXCEPTIONS:
        text = message
    return textwrap.shorten(text, 300, placeholder=" ...")
