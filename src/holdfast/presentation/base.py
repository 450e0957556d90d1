"""`Presentation`: how the stored results of one metric are read, drawn and put into words, registered by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl

from holdfast import similarity
from holdfast.charts import Chart, Figure, Gallery, Strip, distribution
from holdfast.errors import HoldfastError
from holdfast.metrics.base import Metric, metrics
from holdfast.registry import Registry
from holdfast.statistics.paired import Array


@dataclass(frozen=True)
class Reading:
    """How the frame of a configured metric is read.

    Attributes:
        title: what is measured, in words.
        axis: the short form, for an axis.
        column: of the frame, with the value.
        direction: whether `"higher"` or `"lower"` is better; None where the value does not rank explainers.
        decimals: to print; None for four digits.
        censored: a boolean column: where it holds, the value is a bound.
        censored_side: `"upper"`: the true value lies at or below the bound; `"lower"`: at or above it.
        only: boolean columns that must all hold for a row to enter medians and ranks.
        caution: a sentence that belongs beside every ranking by this value, if any.
        good: what an explainer with a better value is, in a word or two.
    """

    title: str
    axis: str
    column: str
    direction: Literal["higher", "lower"] | None
    decimals: int | None = None
    censored: str | None = None
    censored_side: Literal["upper", "lower"] = "upper"
    only: tuple[str, ...] = ()
    caution: str = ""
    good: str = "better"

    def counted(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that enter medians and ranks: evaluated, with a finite value, and all of `only`."""
        if self.column not in frame.columns or "status" not in frame.columns:
            return frame.clear()
        keep = (pl.col("status") == "ok") & pl.col(self.column).cast(pl.Float64).is_finite().fill_null(False)
        for name in self.only:
            keep &= pl.col(name).cast(pl.Boolean).fill_null(False) if name in frame.columns else pl.lit(False)
        return frame.filter(keep)

    def values(self, frame: pl.DataFrame) -> Array:
        """The value column as float64, NaN where there is none."""
        return numbers(frame, self.column)

    def bounds(self, frame: pl.DataFrame) -> Array:
        """Which rows are only bounds."""
        return flags(frame, self.censored) if self.censored else np.zeros(len(frame), dtype=bool)


def numbers(frame: pl.DataFrame, column: str) -> Array:
    """A column as float64, NaN for null; a column that is not there is all NaN."""
    if column not in frame.columns:
        return np.full(len(frame), np.nan)
    return np.asarray(frame[column].cast(pl.Float64).fill_null(float("nan")).to_numpy(), dtype=float)


def flags(frame: pl.DataFrame, column: str) -> Array:
    """A column as booleans; False for null and where the column is not there."""
    return np.asarray(numbers(frame, column) == 1.0)


@dataclass(frozen=True)
class View:
    """What one configured metric got for one data set and model: the rows of all explainers, arrays on demand.

    Attributes:
        label, metric: the configured metric's name in this study, and its registered one.
        options: its configuration, as stored.
        reading: how its frame is read.
        data, model: names.
        explainers: all of the study's, in order; an explainer's place decides its colour.
        frame: the rows, with `explainer`, `repeat` and `sample`, sorted by these.
        bounds: the smallest and the largest valid value of an input; NaN if not known.
        jobs: the finished jobs that have arrays.
        load: reads a job's arrays.
    """

    label: str
    metric: str
    options: Mapping[str, Any]
    reading: Reading
    data: str
    model: str
    explainers: Sequence[str]
    frame: pl.DataFrame
    bounds: tuple[float, float] = (float("nan"), float("nan"))
    jobs: pl.DataFrame = field(default_factory=pl.DataFrame)
    load: Callable[[str], Mapping[str, Array]] = lambda job: {}

    @property
    def present(self) -> list[str]:
        """The explainers that have rows, in order."""
        have = set(self.frame["explainer"].unique()) if len(self.frame) else set()
        return [name for name in self.explainers if name in have]

    def of(self, explainer: str, sample: int | None = None, repeat: int | None = None) -> pl.DataFrame:
        """The rows of an explainer, or of one sample or repeat of it."""
        rows = self.frame.filter(pl.col("explainer") == explainer)
        rows = rows if sample is None else rows.filter(pl.col("sample") == sample)
        return rows if repeat is None else rows.filter(pl.col("repeat") == repeat)

    def samples(self, count: int) -> list[int]:
        """The first samples that any explainer was evaluated on in the first repeat."""
        if not len(self.frame):
            return []
        fine = self.frame.filter((pl.col("status") == "ok") & (pl.col("repeat") == self._first))
        return [int(sample) for sample in fine["sample"].unique().sort().head(count)]

    @property
    def _first(self) -> int:
        return int(self.frame["repeat"].min())  # type: ignore[arg-type]

    def shown(
        self, explainer: str, sample: int, names: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """The row and the named arrays of a sample in the first repeat; None where it was not evaluated."""
        rows = self.of(explainer, sample, self._first).filter(pl.col("status") == "ok")
        if not len(rows):
            return None
        arrays = self.arrays(explainer, sample, names)
        return None if arrays is None else (rows.row(0, named=True), arrays)

    def gallery(self, count: int, names: Sequence[str]) -> Iterator[tuple[str, int, dict[str, Any], dict[str, Array]]]:
        """Explainer, sample, row and named arrays of the first `count` samples, explainers beneath each other."""
        for sample in self.samples(count):
            for explainer in self.present:
                shown = self.shown(explainer, sample, names)
                if shown is not None:
                    yield explainer, sample, *shown

    def arrays(
        self, explainer: str, sample: int, names: Sequence[str], repeat: int | None = None
    ) -> dict[str, Array] | None:
        """The named arrays of one sample; None unless all are stored. Only this sample's job is read."""
        repeat = self._first if repeat is None else repeat
        for start, _, arrays in self._jobs(explainer, repeat, sample):
            if set(names) <= set(arrays):
                return {name: np.array(arrays[name][sample - start]) for name in names}
        return None

    def lines(
        self, explainer: str, names: Sequence[str], limit: int
    ) -> Iterator[tuple[dict[str, Any], dict[str, Array]]]:
        """Rows and named arrays of the first `limit` evaluated samples (of the first repeat); a job at a time."""
        rows = {row["sample"]: row for row in self.of(explainer, repeat=self._first).iter_rows(named=True)}
        given = 0
        for start, stop, arrays in self._jobs(explainer, self._first):
            if not set(names) <= set(arrays):
                continue
            for sample in range(start, stop):
                if given < limit and sample in rows and rows[sample]["status"] == "ok":
                    given += 1
                    yield rows[sample], {name: np.array(arrays[name][sample - start]) for name in names}
            if given >= limit:
                return

    def _jobs(
        self, explainer: str, repeat: int, sample: int | None = None
    ) -> Iterator[tuple[int, int, Mapping[str, Array]]]:
        if not len(self.jobs):
            return
        found = self.jobs.filter((pl.col("explainer") == explainer) & (pl.col("repeat") == repeat))
        if sample is not None:
            found = found.filter((pl.col("start") <= sample) & (sample < pl.col("stop")))
        for job, start, stop in found.sort("start").select("job", "start", "stop").iter_rows():
            yield int(start), int(stop), self.load(str(job))


@dataclass(frozen=True)
class Presentation:
    """How the stored results of one metric are read, drawn and put into words.

    A presentation holds no results and never computes one: it is given frames and arrays that were stored, and the
    metric's stored options. A metric without a presentation of its own gets this class, which shows its headline.

    Attributes:
        metric: the registered name.
        headline: the column with the number that an explainer is judged by.
        direction: whether more (`"higher"`) or less of it (`"lower"`) is better; None where it does not rank.
    """

    metric: str
    headline: str
    direction: Literal["higher", "lower"] | None = None

    def reading(self, options: Mapping[str, Any]) -> Reading:
        """How the frame of a metric with these options is read; by default by its headline and direction.

        >>> Presentation("new_metric", "score", "higher").reading({}).title
        'New metric: score'
        >>> Presentation("new_metric", "value", "higher").reading({}).title
        'New metric'
        """
        named = self.headline != "value"  # which says no more than the metric's name
        title = f"{self.metric}: {self.headline}".replace("_", " ") if named else self.metric.replace("_", " ")
        axis = (self.headline if named else self.metric).replace("_", " ")
        return Reading(title[:1].upper() + title[1:], axis, self.headline, self.direction)

    def figures(self, view: View) -> Sequence[Figure]:
        """The figures and tables of one data set and model; by default the distribution over samples."""
        return plain_figures(view)

    def compared(self, views: Sequence[View], option: str) -> Sequence[Chart | Gallery]:
        """Figures of views of one data set and model that differ in one option (a dotted path) and nothing else.

        The report draws numbers on a common axis where the readings agree; this is for everything else.
        """
        return []

    def across(self, views: Sequence[View]) -> Sequence[Figure]:
        """Figures over data sets, from two or more views of one configuration: one for each data set and model."""
        return []

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """Notes below an explainer's entry in the overview; `frame` holds its evaluated samples."""
        return []

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """Terms and what they mean, for "How to read this"; `code` and *emphasis* are marked like that."""
        return {}

    def contradictions(self, view: View, others: Sequence[View]) -> list[str]:
        """Sentences, one for each sample whose numbers cannot all be right; `others` are of the same data and model."""
        return []


presentations: Registry[type[Presentation]] = Registry(
    "presentation", "holdfast.presentations", lambda kind: isinstance(kind, type) and issubclass(kind, Presentation)
)


def metric_class(metric: str) -> type[Metric] | None:
    """The class that is registered for a metric's name; None where its package is not installed here.

    >>> metric_class("worst_case").__name__, metric_class("of_another_computer")
    ('WorstCase', None)
    """
    try:
        return metrics[metric]
    except HoldfastError:
        return None


def presentation_of(metric: str, headline: str = "value", direction: str | None = None) -> Presentation:
    """The presentation that is registered for a metric, for its package, or else the plain `Presentation`.

    Args:
        metric: the registered name of the metric, such as `"worst_case"` or `"quantus:Sparseness"`.
        headline, direction: of the metric, as they are stored with its results. They count only for a metric that is
            not installed here.

    >>> presentation_of("worst_case").reading({"event": "changed_class", "similarity": "pearson"}).direction
    'lower'
    >>> presentation_of("of_another_computer", "score", "higher").reading({}).column
    'score'
    """
    kind = metric_class(metric)
    if kind is not None:
        headline, direction = kind.headline, kind.direction
    ranked: Literal["higher", "lower"] | None = (
        "higher" if direction == "higher" else "lower" if direction == "lower" else None
    )
    name = next((name for name in (metric, metric.partition(":")[0]) if name in presentations), None)
    return (Presentation if name is None else presentations[name])(metric, headline, ranked)


def plain_figures(view: View, rule: float | None = None) -> list[Chart | Gallery]:
    """The distribution over samples, one explainer below the other, with a line at `rule`."""
    strips = []
    for name in view.present:
        rows = view.reading.counted(view.of(name))
        if len(rows):
            samples = [int(sample) for sample in rows["sample"]]
            strips.append(Strip(name, samples, view.reading.values(rows), view.reading.bounds(rows)))
    reading = view.reading
    side = reading.censored_side
    chart = distribution(
        strips, view.explainers, reading.title, reading.axis, reading.direction, side, rule, reading.good
    )
    return [] if chart is None else [chart]


def larger_is_closer(options: Mapping[str, Any]) -> bool:
    """Whether the options' similarity grows as maps get more alike; assumed of one that is not known here.

    >>> larger_is_closer({"similarity": "pearson"}), larger_is_closer({"similarity": "mse"})
    (True, False)
    """
    known = _known(options)
    return True if known is None else known.larger_is_closer


def threshold(options: Mapping[str, Any]) -> float | None:
    """The threshold in force: the given one, or the similarity's own for the event.

    >>> threshold({"similarity": "pearson", "event": "changed_class", "threshold": None})
    0.6
    """
    given = options.get("threshold")
    if given is not None:
        return float(given)
    known = _known(options)
    if known is None or options.get("event") == "misclassification":
        return None
    return known.low if options.get("event") == "changed_explanation" else known.high


def _known(options: Mapping[str, Any]) -> similarity.Similarity | None:
    try:
        return similarity.get(str(options.get("similarity")))
    except HoldfastError:
        return None


def number(value: float | None, decimals: int | None = 2) -> str:
    """A number as a report prints it, with a real minus; four digits where `decimals` is None.

    >>> number(-0.5), number(float("-inf")), number(1234.5678, None)
    ('−0.50', '−∞', '1235')
    """
    if value is None or np.isnan(value):
        return "–"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.4g}" if decimals is None else f"{value:.{decimals}f}"
    if text.startswith("-") and not text.strip("-0."):
        text = text[1:]
    return text.replace("-", "−")
