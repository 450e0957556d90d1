"""`ValueSpec`: how the numbers of a metric are read. The metric declares it, and the manifest of a study stores it.

So results are read without the metric: nothing here imports metrics, and nothing draws.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np

from standfast.errors import check, is_number
from standfast.tensors import Array

if TYPE_CHECKING:
    import polars as pl

#: which value is better; None where the values do not rank explainers
Direction = Literal["higher", "lower"] | None
#: what a number asks of an explainer: whether its maps stay as they are where little changes; whether what they mark
#: matters to the model; or anything else
Asks = Literal["stability", "faithfulness", "other"]
#: how many decimals to print; None for four digits; or `"probability"`, for natural logarithms of probabilities
Decimals = int | Literal["probability"] | None

#: the name under which the rows of the sanity checks are stored
SANITY_CHECKS: Final = "sanity"
#: a threshold is useless if fewer pairs of different inputs count as changed than this share
USEFUL: Final = 0.5
#: a similarity that is this near to that of equal maps says that the map did not change
_UNCHANGED = 1e-3
#: of double precision: no number has more decimals that mean anything, and none is larger
_MOST_DECIMALS = 17
_LARGEST = 1e308


@dataclass(frozen=True)
class CommonShare:
    """Drops that are compared up to the share of positions that all explainers replace.

    The area under a curve of drops grows with the number of positions that an explainer marks. So explainers are
    compared by the mean drop up to the smallest last share, sample by sample.

    Attributes:
        share, drop: the names of the stored arrays, `(N, K)` each: shares of positions, and the drops at them.
        title, axis: of the means, like those of a `ValueSpec`.
        caution: a sentence that follows the one about the common share; may be empty.
    """

    share: str
    drop: str
    title: str
    axis: str
    caution: str = ""

    @classmethod
    def from_stored(cls, stored: object) -> CommonShare:
        """What a manifest holds. Attributes of later versions are left out.

        Raises:
            ArgumentError: the entry is none.
        """
        expected = "texts: share, drop, title and axis"
        is_mapping = isinstance(stored, Mapping)
        check(is_mapping, "common_share in the manifest", expected, repr(stored))
        if isinstance(stored, Mapping):
            values = _select_fields(cls, stored)
        else:
            values = {}
        are_texts = all(isinstance(value, str) for value in values.values())
        is_complete = {"share", "drop", "title", "axis"} <= set(values)
        check(are_texts and is_complete, "common_share in the manifest", expected, repr(stored))
        return cls(**values)

    def name_scores(self, names: Mapping[str, str]) -> CommonShare:
        """The same with what scores are called in place of `{own}`, `{logit}` and so on, in each text."""
        texts = {}
        for name in ("title", "axis", "caution"):
            texts[name] = _fill_in(getattr(self, name), names)
        return dataclasses.replace(self, **texts)


@dataclass(frozen=True)
class ValueSpec:
    """How the frame of a configured metric is read.

    Attributes:
        title: what is measured, in words.
        axis: the same in a few words, for an axis. Values with the same axis and direction can be drawn on one axis.
        direction: whether `"higher"` or `"lower"` is better; None where the value does not rank explainers.
        decimals: how many decimals to print; None for four digits. `"probability"` where values are natural logarithms
            of probabilities, which are shown in percent or as "1 in N".
        censored: a boolean column that is true where the value is only a bound, or None.
        censored_side: `"upper"` if the true value lies at or below the bound, `"lower"` if it lies at or above.
        only: boolean columns that must all be true for a row to enter medians and ranks.
        caution: a sentence that the report puts beside every ranking by this value; may be empty.
        good: what an explainer with a better value is, in a word or two, such as `"more robust"`.
        column: the column of the frame with the value.
        empty: which evaluated samples have no value that counts, to follow "3 samples".
        same: where values compare two maps, the value of two equal ones; else None.
        common_share: of curves, how several explainers are compared; None where their values can be compared as stored.
        asks: whether the value asks for `"stability"`, for `"faithfulness"` or for something `"other"`: no explanation
            may be shown unless both are measured. None: what the metric declares says it.
        varied: a boolean column that is false where there was nothing to vary, such as the seed of an explainer that
            has none. Such a sample judges nothing. None where something is always varied.

    Raises:
        ArgumentError: an attribute is none of these.

    >>> ValueSpec("Similarity after a blur", "correlation", "higher", 2).good
    'better'
    >>> ValueSpec("Similarity after a blur", "correlation", "up")
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: direction: expected 'higher' or 'lower' (which value is better) or None, got 'up'
    """

    title: str
    axis: str
    direction: Direction
    decimals: Decimals = None
    censored: str | None = None
    censored_side: Literal["upper", "lower"] = "upper"
    only: tuple[str, ...] = ()
    caution: str = ""
    good: str = "better"
    column: str = "value"
    empty: str = "without a number"
    same: float | None = None
    common_share: CommonShare | None = None
    asks: Asks | None = None
    varied: str | None = None

    def __post_init__(self) -> None:
        check_direction("direction", self.direction)
        for name in ("title", "axis", "good", "column", "empty"):
            self._check(name, _is_text(getattr(self, name)), "a text")
        self._check("caution", isinstance(self.caution, str), "a text")
        self._check(
            "decimals",
            _are_decimals(self.decimals),
            "a number of decimals, 'probability' or None",
        )
        self._check(
            "censored",
            isinstance(self.censored, str | None),
            "the name of a column or None",
        )
        self._check("censored_side", self.censored_side in ("upper", "lower"), "'upper' or 'lower'")
        are_columns = isinstance(self.only, tuple) and all(map(_is_text, self.only))
        self._check("only", are_columns, "a tuple of names of columns")
        is_small = self.same is None or (is_number(self.same) and abs(self.same) < _LARGEST)
        self._check("same", is_small, "a number or None")
        is_common = isinstance(self.common_share, CommonShare | None)
        self._check("common_share", is_common, "a CommonShare or None")
        is_known = isinstance(self.asks, str | None) and self.asks in (*get_args(Asks), None)
        self._check("asks", is_known, "'stability', 'faithfulness', 'other' or None")
        self._check(
            "varied", self.varied is None or _is_text(self.varied), "the name of a column or None"
        )

    def _check(self, attribute: str, fits: bool, expected: str) -> None:
        check(fits, attribute, expected, repr(getattr(self, attribute)))

    @classmethod
    def named(cls, metric: str, direction: Direction) -> ValueSpec:
        """The reading of a metric of which only its registered name is known, and which value is better.

        >>> ValueSpec.named("new_metric", "lower").title, ValueSpec.named("quantus:Sparseness", "higher").title
        ('New metric', 'Sparseness, of Quantus')
        """
        package, _, score = metric.partition(":")
        if score:
            return cls(f"{score}, of {package.title()}", f"score of {score}", direction)
        words = metric.replace("_", " ")
        title = words[:1].upper() + words[1:]
        return cls(title, words, direction)

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> ValueSpec:
        """The spec that a manifest holds. Attributes of later versions are left out.

        Raises:
            ArgumentError: the entry is not what `stored` gives.

        >>> spec = ValueSpec("Probability", "P", "lower", "probability", "bound", only=("found",))
        >>> ValueSpec.from_stored(spec.stored()) == spec
        True
        """
        expected = "a title, an axis and a direction"
        is_complete = isinstance(stored, Mapping) and {"title", "axis", "direction"} <= set(stored)
        check(is_complete, "values in the manifest", expected, repr(stored))
        values = _select_fields(cls, stored)
        if isinstance(values.get("only"), list):
            values["only"] = tuple(values["only"])
        if values.get("common_share") is not None:
            values["common_share"] = CommonShare.from_stored(values["common_share"])
        return cls(**values)

    def stored(self) -> dict[str, Any]:
        """The attributes that are not at their defaults, as plain values for a manifest."""
        plain = dataclasses.asdict(self)
        for field in dataclasses.fields(self):
            if plain[field.name] == field.default:
                del plain[field.name]
        if self.only:
            plain["only"] = list(self.only)
        return plain

    def name_scores(self, **names: str) -> ValueSpec:
        """The same with what scores are called in place of `{own}`, `{logit}` and so on, in each text.

        >>> ValueSpec("Fall of {own}", "fall", "higher").name_scores(own="the dose").title
        'Fall of the dose'
        """
        texts = {}
        for name in ("title", "axis", "good", "empty", "caution"):
            texts[name] = _fill_in(getattr(self, name), names)
        common_share = self.common_share
        if common_share is not None:
            common_share = common_share.name_scores(names)
        return dataclasses.replace(self, **texts, common_share=common_share)  # type: ignore[arg-type]

    @property
    def log_probability(self) -> bool:
        """Whether values are natural logarithms of probabilities."""
        return self.decimals == "probability"

    @property
    def rules(self) -> tuple[object, ...]:
        """What decides about numbers, without the words: two specs with equal rules give equal medians and ranks."""
        return (
            self.direction,
            self.column,
            self.only,
            self.censored,
            self.censored_side,
            self.log_probability,
            self.same,
            self.varied,
            *self.compared_arrays,
        )

    @property
    def compared_arrays(self) -> tuple[str, ...]:
        """The names of the stored arrays by which explainers are compared; none where the values are compared."""
        if self.common_share is None:
            return ()
        return (self.common_share.share, self.common_share.drop)

    def check_columns(self, frame: pl.DataFrame) -> None:
        """Raise `ArgumentError` if a column that is read holds no numbers; one that is not there is empty.

        A metric's own columns do. But a manifest is a file, which may name any column.
        """
        for name in (self.column, self.censored, self.varied, *self.only):
            if name not in frame.columns:
                continue
            kind = frame.schema[name]
            holds_numbers = kind.is_numeric() or str(kind) in ("Boolean", "Null")
            check(
                holds_numbers,
                "values in the manifest",
                "columns of numbers or flags",
                f"{name!r}, of {kind}",
            )

    def select_valid(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that enter medians and ranks: evaluated and varied, with a finite value, and all of `only` true."""
        needed = {"status", self.column, *self.only}
        # an older or foreign store may lack a column; then nothing of it counts
        if not needed <= set(frame.columns):
            return frame.clear()
        is_finite = np.isfinite(self.values(frame))
        keep = (frame["status"] == "ok").to_numpy() & is_finite
        for name in self.only:
            keep &= read_flags(frame, name)
        return frame.filter(keep & ~self.find_unvaried(frame))

    def find_unvaried(self, frame: pl.DataFrame) -> Array:
        """Which rows have nothing to vary, as booleans: around the sample, or of the explainer (`varied`)."""
        is_unvaried = (frame["status"] == "unvaried").to_numpy()
        if self.varied is None:
            return np.asarray(is_unvaried)
        is_evaluated = (frame["status"] == "ok").to_numpy()
        # nothing is said of samples that were not evaluated
        is_zero = read_numbers(frame, self.varied) == 0.0
        return np.asarray(is_unvaried | (is_evaluated & is_zero))

    def values(self, frame: pl.DataFrame) -> Array:
        """The values as float64, NaN where there is none."""
        return read_numbers(frame, self.column)

    def find_unchanged(self, values: Array) -> Array:
        """Which values are those of maps that did not change: similarities of at least 0.999, distances of 0.

        >>> ValueSpec("similarity", "pearson", "higher", same=1.0).find_unchanged(np.array([0.9, 0.9995]))
        array([False,  True])
        """
        if self.same is None:
            return np.zeros(len(values), dtype=bool)
        if self.same == 0:
            return np.asarray(values == 0)
        return np.asarray(values >= self.same - _UNCHANGED)

    def bounds(self, frame: pl.DataFrame) -> Array:
        """Which values are only bounds, as booleans."""
        if self.censored is None:
            return np.zeros(len(frame), dtype=bool)
        return read_flags(frame, self.censored)


def _fill_in(text: str, names: Mapping[str, str]) -> str:
    """A text with names in place of `{...}`; braces around other words stay."""
    return re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], match[0]), text)


def _select_fields(
    kind: type[CommonShare | ValueSpec], stored: Mapping[str, Any]
) -> dict[str, Any]:
    """The entries that are attributes of a class."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in stored.items() if name in names}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _are_decimals(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return 0 <= value <= _MOST_DECIMALS
    return value in (None, "probability")


def check_direction(argument: str, direction: object) -> None:
    """Raise `ArgumentError` unless `direction` says which value is better, or is None."""
    fits = isinstance(direction, str | None) and direction in ("higher", "lower", None)
    check(fits, argument, "'higher' or 'lower' (which value is better) or None", repr(direction))


def read_numbers(frame: pl.DataFrame, column: str) -> Array:
    """A column as float64, with NaN for null; all NaN where the frame has no such column."""
    if column not in frame.columns:
        return np.full(len(frame), np.nan)
    # columns of flags and of nulls become numbers, too
    numbers = frame[column].cast(float, strict=False)
    numbers = numbers.fill_null(float("nan"))
    return np.asarray(numbers.to_numpy(), dtype=float)


def read_flags(frame: pl.DataFrame, column: str) -> Array:
    """A column as booleans; False for null, and where the frame has no such column."""
    return np.asarray(read_numbers(frame, column) == 1.0)
