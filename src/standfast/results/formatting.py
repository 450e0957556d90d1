"""Numbers and names as text."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence

import numpy as np

from standfast.statistics.paired import Interval

#: a list in words names this many; of more it gives the number
_NAMED = 3
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
#: what stands before a number that is only a bound
SIGNS = {None: "", "upper": "≤ ", "lower": "≥ ", "unknown": ""}
_ASCII = {"≤": "<=", "≥": ">=", "−": "-", "∞": "inf", "–": "-", "≈": "~"}


def join_names(names: Sequence[str], named: int = _NAMED) -> str:
    """Names as a list in words; of more than `named` the first ones and how many others there are.

    >>> join_names(["a"]), join_names(["a", "b", "c"]), join_names(["a", "b", "c", "d"])
    ('a', 'a, b and c', 'a, b and 2 others')
    """
    shown = list(names) if len(names) <= named else [*names[: named - 1], f"{len(names) - named + 1} others"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]])) if shown else "none"


def format_count(number: int, noun: str) -> str:
    """A number with its noun, which gets an s unless the number is 1.

    >>> format_count(1, "sample"), format_count(2, "failed job")
    ('1 sample', '2 failed jobs')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_odds(log_probability: float) -> str:
    """A probability, given as its natural logarithm, as a count that needs no logarithm.

    >>> [format_odds(value) for value in (0.0, -0.63, -2.94, -9.3, -40.0)]
    ['over 99 in 100', '53 in 100', '1 in 19', '1 in 11,000', '1 in 10¹⁷']
    >>> format_odds(float("nan"))
    ''
    """
    if math.isnan(log_probability):
        return ""
    if log_probability > math.log(0.995):
        return "over 99 in 100"
    if log_probability > math.log(0.095):
        return f"{100 * math.exp(log_probability):.0f} in 100"
    power = -log_probability / math.log(10)
    if not power < 9:
        return f"1 in 10{str(round(power)).translate(_RAISED)}" if math.isfinite(power) else "never"
    step = 10 ** max(0, math.floor(power) - 1)
    return f"1 in {round(10**power / step) * step:,}"


def describe_probability(log_probability: float, sign: str = "") -> str:
    """A probability, given as its natural logarithm, as its decimal logarithm and as a count; a `sign` marks a bound.

    >>> describe_probability(-9.3), describe_probability(-40.0, "≤ ")
    ('log10 P −4.04, 1 in 11,000', 'log10 P ≤ −17.37, ≤ 1 in 10¹⁷')
    >>> describe_probability(-0.001)
    'log10 P 0.00, over 99 in 100'
    """
    odds = sign + format_odds(log_probability)
    if not math.isfinite(log_probability):
        return odds
    decimal = f"{log_probability / math.log(10):z.2f}".replace("-", "−")
    return f"log10 P {sign}{decimal}, {odds}"


def format_number(value: float | None, decimals: int | None = 2) -> str:
    """A number as the report prints it, with a minus sign; four digits where `decimals` is None, or of huge numbers.

    >>> format_number(-0.5), format_number(float("-inf")), format_number(1234.5678, None), format_number(1e300)
    ('−0.50', '−∞', '1235', '1e+300')
    """
    if value is None or np.isnan(value):
        return "–"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:z.4g}" if decimals is None or abs(value) >= 1e15 else f"{value:z.{decimals}f}"
    return text.replace("-", "−")


def format_estimate(estimate: Interval | None, decimals: int | None = 2) -> str:
    """The value of an estimate, with a sign if it is only a bound.

    >>> format_estimate(Interval(-9.3, None, None, 6, 0.0, "upper", (-20.0, -9.3)))
    '≤ −9.30'
    """
    return "–" if estimate is None else SIGNS[estimate.bound] + format_number(estimate.value, decimals)


def format_interval(estimate: Interval | None, decimals: int | None = 2) -> str:
    """The interval of an estimate in brackets, with open ends in words; empty without an interval.

    >>> format_interval(Interval(0.5, 0.25, 1.0, 9, 0.95, None, (0.5, 0.5)))
    '[0.25, 1.00]'
    """
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    low, high = format_number(estimate.low, decimals), format_number(estimate.high, decimals)
    if math.isinf(estimate.low) and estimate.low_bound is not None:
        low = f"below {format_number(estimate.low_bound, decimals)}"
    if math.isinf(estimate.high) and estimate.high_bound is not None:
        high = f"above {format_number(estimate.high_bound, decimals)}"
    return f"[{low}, {high}]"


def format_coverage(estimate: Interval) -> str:
    """The confidence of an interval in brackets, where few samples give less than 95%."""
    return f" ({100 * estimate.coverage:.0f}%)" if estimate.coverage < 0.945 else ""


def to_ascii(text: str) -> str:
    """A text with the signs of this module in ASCII, for terminals of any encoding.

    >>> to_ascii("≤ −9.30, 1 in 10¹⁷")
    '<= -9.30, 1 in 10^17'
    """
    for sign, plain in _ASCII.items():
        text = text.replace(sign, plain)
    digits = "⁰¹²³⁴⁵⁶⁷⁸⁹"
    return re.sub(f"[{digits}]+", lambda found: "^" + found[0].translate(str.maketrans(digits, "0123456789")), text)


def shorten_error(error: object, width: int = 300) -> str:
    """The first line of a stored error, without the names of standfast's own exceptions.

    >>> shorten_error("ModelError: module: expected logits\\nmore")
    'module: expected logits'
    """
    text = str(error).strip().partition("\n")[0]
    for own in ("ArgumentError", "UnknownNameError", "ModelError", "SecondDerivativeError", "StandfastError"):
        text = text.removeprefix(f"{own}: ")
    return textwrap.shorten(text, width, placeholder=" ...")
