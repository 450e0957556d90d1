"""`Presentation`: how the stored results of one metric are read and drawn, registered by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl

from standfast.errors import StandfastError
from standfast.metrics.base import Direction, Metric, metrics
from standfast.registry import Registry
from standfast.results.controls import find_controls
from standfast.results.formatting import Decimals, format_number
from standfast.study.store import DamagedFileError
from standfast.tasks import CLASS_WORDS, TaskWords
from standfast.tensors import Array

#: how many files of arrays are read at once: on remote storage each takes a round trip
_READERS = 8
#: a similarity that is this near to that of equal maps says that the map did not change
_UNCHANGED = 1e-3
#: stored arrays with an entry for each word, where inputs are texts
_OF_WORDS = ("origins", "inputs", "origin_maps", "maps", "aligned_maps", "mask", "replaced_at")


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

    @property
    def log_probability(self) -> bool:
        """Whether values are natural logarithms of probabilities."""
        return self.decimals == "probability"

    def select_valid(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that enter medians and ranks: evaluated, with a finite value, and with all of `only` true."""
        if self.column not in frame.columns or "status" not in frame.columns:
            return frame.clear()
        keep = (pl.col("status") == "ok") & pl.col(self.column).cast(pl.Float64).is_finite().fill_null(False)
        for name in self.only:
            keep &= pl.col(name).cast(pl.Boolean).fill_null(False) if name in frame.columns else pl.lit(False)
        return frame.filter(keep)

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
        return np.asarray(values >= self.same - _UNCHANGED if self.same else values == 0)

    def bounds(self, frame: pl.DataFrame) -> Array:
        """Which values are only bounds, as booleans."""
        return read_flags(frame, self.censored) if self.censored else np.zeros(len(frame), dtype=bool)


def read_numbers(frame: pl.DataFrame, column: str) -> Array:
    """A column as float64, with NaN for null; all NaN where the frame has no such column."""
    if column not in frame.columns:
        return np.full(len(frame), np.nan)
    return np.asarray(frame[column].cast(pl.Float64).fill_null(float("nan")).to_numpy(), dtype=float)


def read_flags(frame: pl.DataFrame, column: str) -> Array:
    """A column as booleans; False for null, and where the frame has no such column."""
    return np.asarray(read_numbers(frame, column) == 1.0)


@dataclass(frozen=True)
class RankedGroup:
    """Explainers that share a place, in a verdict.

    Attributes:
        names: the explainers, most often one.
        value: their number.
        text: this number as it is shown.
    """

    names: tuple[str, ...]
    value: float
    text: str


def group_ranks(measured: Sequence[RankedGroup], direction: Direction) -> list[RankedGroup]:
    """Explainers with a number each, the best first, or the smallest without a direction; equal texts share a place.

    >>> group_ranks([RankedGroup((name,), at, str(at)) for name, at in (("a", 1), ("b", 2), ("c", 1))], "lower")
    [RankedGroup(names=('a', 'c'), value=1, text='1'), RankedGroup(names=('b',), value=2, text='2')]
    """
    found: list[RankedGroup] = []
    for each in sorted(measured, key=lambda group: -group.value if direction == "higher" else group.value):
        if found and found[-1].text == each.text:
            found[-1] = replace(found[-1], names=found[-1].names + each.names)
        else:
            found.append(each)
    return found


@dataclass(frozen=True)
class Detail:
    """A further number of an explainer, with a short name.

    Attributes:
        label: what it is.
        value: the number, or a count.
        total: of how many this is the count; None for a number.
        low, high: the ends of its interval, where it has one.
        decimals: of a number, as those of a `ValueSpec`.
    """

    label: str
    value: float
    total: int | None = None
    low: float | None = None
    high: float | None = None
    decimals: Decimals = 2

    @property
    def text(self) -> str:
        """Name and number.

        >>> Detail("found", 3, 9).text, Detail("slope", 0.5, low=0.1, high=2.0).text
        ('found: 3 of 9', 'slope: 0.50 [0.10, 2.00]')
        """
        if self.total is not None:
            return f"{self.label}: {self.value:.0f} of {self.total}"
        text = f"{self.label}: {format_number(self.value, self.decimals)}"
        if self.low is None or self.high is None:
            return text
        return f"{text} [{format_number(self.low, self.decimals)}, {format_number(self.high, self.decimals)}]"


@dataclass(frozen=True)
class Contradiction:
    """Numbers that contradict each other, which a macro of the metric's template puts into words.

    Attributes:
        macro: the name of the macro.
        facts: its argument.
    """

    macro: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class StoredSample:
    """A sample of an explainer as it is stored, in the first repeat.

    Attributes:
        explainer, sample: which.
        row: of the frame, with the names of classes.
        arrays: those that were asked for.
    """

    explainer: str
    sample: int
    row: dict[str, Any]
    arrays: dict[str, Array]

    @property
    def who(self) -> str:
        """Explainer and sample, for the texts of pictures."""
        return f"{self.explainer}, sample {self.sample}"


@dataclass(frozen=True)
class MetricResults:
    """The results of one configured metric for one data set and model: rows of all explainers, and arrays on demand.

    Attributes:
        label, metric: the name of the configured metric in this study, and its registered name.
        options: its configuration, as stored.
        spec: how its frame is read.
        data, model: names.
        explainers: all explainers of the study, in order; the place of an explainer decides its colour.
        frame: the rows, with the columns `explainer`, `repeat` and `sample`, sorted by these.
        bounds: the smallest and the largest valid value of an input; NaN where they are not known.
        jobs: the finished jobs that stored arrays.
        load: a function that reads the arrays of a job.
        features: names of the columns of a table, or of the channels of a series; empty where they are not known.
        tokens: for text, the words of each sample, one for each position; empty where they are not known.
        controls: the explainers that are only references.
        unfit: those that do not pass the sanity checks.
        classes: the names of the classes; empty where they are not known.
        errors: of the parts of the work that failed, as stored, by explainer.
        columns: of a data frame, what `Column.plain` says of each; else empty.
        task: what the report calls scores and answers.
        texts: whether the inputs are texts: maps are `(W,)`, with a number for each of `tokens`.
    """

    label: str
    metric: str
    options: Mapping[str, Any]
    spec: ValueSpec
    data: str
    model: str
    explainers: Sequence[str]
    frame: pl.DataFrame
    bounds: tuple[float, float] = (float("nan"), float("nan"))
    jobs: pl.DataFrame = field(default_factory=pl.DataFrame)
    load: Callable[[str], Mapping[str, Array]] = lambda job: {}
    features: Sequence[str] = ()
    tokens: Sequence[Sequence[str]] = ()
    controls: Sequence[str] = ()
    unfit: Sequence[str] = ()
    classes: Sequence[str] = ()
    errors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    columns: Sequence[Mapping[str, Any]] = ()
    task: TaskWords = CLASS_WORDS
    texts: bool = False

    @property
    def position(self) -> str:
        """What a number of an input is called where it stands for itself: a feature, a word."""
        return "word" if self.texts else "number of the embedding" if self.tokens else "feature"

    @property
    def present(self) -> list[str]:
        """The explainers that have rows, in order."""
        have = set(self.frame["explainer"].unique()) if len(self.frame) else set()
        return [name for name in self.explainers if name in have]

    def rows_for(self, explainer: str, sample: int | None = None, repeat: int | None = None) -> pl.DataFrame:
        """The rows of an explainer, or of one sample or repeat of it."""
        rows = self.frame.filter(pl.col("explainer") == explainer)
        rows = rows if sample is None else rows.filter(pl.col("sample") == sample)
        return rows if repeat is None else rows.filter(pl.col("repeat") == repeat)

    @property
    def candidates(self) -> list[str]:
        """The explainers that have rows, without controls, where there are others, and those that are `unfit`."""
        controls = find_controls(self.present, self.controls)
        return [name for name in self.present if name not in controls and name not in self.unfit]

    def samples(self, count: int) -> list[int]:
        """The first samples on which any explainer was evaluated in the first repeat."""
        if not len(self.frame):
            return []
        fine = self.frame.filter((pl.col("status") == "ok") & (pl.col("repeat") == self._first))
        return [int(sample) for sample in fine["sample"].unique().sort().head(count)]

    @property
    def _first(self) -> int:
        return int(self.frame["repeat"].min())  # type: ignore[arg-type]

    def name_classes(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row whose classes, `targets` and `predicted`, have their names; numbers where these are not known.

        Where an answer is a number, they are that of the clean and that of the changed input.
        """
        if row.get("answer") is not None:
            texts = {"targets": format_number(row["answer"]), "predicted": format_number(row.get("predicted"))}
            return {**row, **texts}
        known = range(len(self.classes))
        named = {key: row[key] for key in ("targets", "predicted") if row.get(key) in known}
        return {**row, **{key: self.classes[number] for key, number in named.items()}}

    def _read(
        self, explainer: str, names: Sequence[str], also: Sequence[str] = (), sample: int | None = None
    ) -> Iterator[StoredSample]:
        """The evaluated samples, or one, with named arrays, one job in memory.

        Samples whose job does not store all of `names` are left out; those of `also` are there where they are stored.
        """
        if not len(self.jobs):
            return
        rows = self.rows_for(explainer, sample, self._first).filter(pl.col("status") == "ok")
        known = {int(row["sample"]): row for row in rows.iter_rows(named=True)}
        jobs = self.jobs.filter((pl.col("explainer") == explainer) & (pl.col("repeat") == self._first)).sort("start")
        for job, start, stop in jobs.select("job", "start", "stop").iter_rows():
            here = [number for number in range(start, stop) if number in known]
            arrays = self.load(str(job)) if here else {}
            if set(names) <= set(arrays):
                found = [*names, *(name for name in also if name in arrays)]
                for number in here:
                    own = {name: np.array(arrays[name][number - start]) for name in found}
                    if self.texts and number < len(self.tokens):  # shorter texts of a job are filled with NaN
                        words = len(self.tokens[number])
                        own |= {name: own[name][:words] for name in own if name in _OF_WORDS}
                    yield StoredSample(explainer, number, self.name_classes(known[number]), own)

    def load_sample(
        self, explainer: str, sample: int, names: Sequence[str], also: Sequence[str] = ()
    ) -> StoredSample | None:
        """A sample with named arrays, and those of `also` that are stored; None if it was not evaluated or stored."""
        return next(self._read(explainer, names, also, sample), None)

    def gallery(self, count: int, names: Sequence[str], also: Sequence[str] = ()) -> Iterator[StoredSample]:
        """The first `count` samples of all explainers, in the order of samples."""
        for sample in self.samples(count):
            for explainer in self.present:
                yield from self._read(explainer, names, also, sample)

    def lines(self, explainer: str, names: Sequence[str], limit: int) -> Iterator[StoredSample]:
        """The first `limit` evaluated samples with named arrays, one job in memory."""
        return islice(self._read(explainer, names), limit)

    def parts(self, names: Sequence[str]) -> Iterator[tuple[str, int, int, dict[str, Array]]]:
        """Explainer, repeat, first sample and named arrays of every job that stores them all, of all repeats.

        Each file is read once, several at a time; only the named arrays stay in memory. A damaged file is left out.
        """

        def read(job: str) -> dict[str, Array]:
            try:
                arrays = self.load(job)
            except DamagedFileError:
                return {}
            return {name: np.array(arrays[name]) for name in names} if set(names) <= set(arrays) else {}

        rows = self.jobs.select("job", "explainer", "repeat", "start").rows() if len(self.jobs) else []
        with ThreadPoolExecutor(_READERS) as pool:
            read_all = pool.map(read, [str(job) for job, *_ in rows])
            for (_, explainer, repeat, start), arrays in zip(rows, read_all, strict=True):
                if arrays:
                    yield str(explainer), int(repeat), int(start), arrays


@dataclass(frozen=True)
class Presentation:
    """How the stored results of one metric are read, drawn and described.

    A presentation has no results of its own and computes none. Its methods get stored frames and arrays, and the stored
    options of the metric. This class shows the values, and is used for every metric without a presentation of its
    own. A subclass overrides the methods that it needs and is registered under the name of its metric:
    `@presentations.register("worst_case")` in standfast, an entry point of the group `standfast.presentations` in
    another package.

    Attributes:
        metric: the registered name of the metric.
        stored: the direction that is stored with the results. It counts only if the metric is not installed here.
        task: what the report calls scores and answers.
    """

    metric: str
    stored: Direction = None
    task: TaskWords = CLASS_WORDS

    #: the Jinja template with the sentences of the metric: its text, or the path of its file; empty for that of
    #: standfast with the metric's name. `standfast.report.words` describes what it may contain
    words: ClassVar[str | Path] = ""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """How to read the frame of a metric with these options; by default by its name and direction.

        >>> Presentation("new_metric", "higher").value_spec({}).title
        'New metric'
        """
        name = self.metric.replace("_", " ")
        return ValueSpec(name[:1].upper() + name[1:], name, self.direction_of(options))

    def direction_of(self, options: Mapping[str, Any]) -> Direction:
        """Which value of the metric with these options is better: `Metric.direction_of`."""
        kind = metric_class(self.metric)
        return self.stored if kind is None else kind.direction_of(options)

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """Numbers and names of one data set and model that the metric's template needs; none by default.

        Values under `"rules"` have dotted lines in the distribution over samples.
        """
        return {}

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """Further numbers of one explainer, which tables show below its value; `frame` has its evaluated samples."""
        return []

    def make_comparable(self, views: Sequence[MetricResults]) -> tuple[ValueSpec, list[pl.DataFrame]] | None:
        """Values that make explainers comparable where the stored value of one explainer alone does not.

        What shows, ranks or tests the values of several explainers reads these instead. Controls are compared, too.

        Args:
            views: of one configured metric, one for each data set and model.

        Returns:
            How to read the new values, and the frame of each view with further columns, the reading's among them. None
            if stored values are comparable, as by default, or if nothing better can be computed from what is stored.
        """
        return None

    def list_compared_arrays(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The names of the stored arrays that `make_comparable` reads; none by default."""
        return ()

    def example(self, view: MetricResults) -> Any:
        """The most telling sample, as a row of a gallery: input, its map, the changed input, its map now, a caption.

        None by default.
        """
        return None

    def figures(self, view: MetricResults) -> Sequence[Any] | None:
        """Figures and tables of one data set and model; None, as by default, for the distribution over samples.

        Those that are None, and galleries without pictures, are left out.
        """
        return None

    def contradictions(self, view: MetricResults, others: Sequence[MetricResults]) -> list[Contradiction]:
        """Where numbers contradict each other; nowhere by default.

        Args:
            view: of this metric.
            others: the views of all other configured metrics, of the same data and model.
        """
        return []


presentations: Registry[type[Presentation]] = Registry(
    "presentation", "standfast.presentations", lambda kind: isinstance(kind, type) and issubclass(kind, Presentation)
)


def metric_class(metric: str) -> type[Metric] | None:
    """The class that is registered for a metric's name; None where its package is not installed here.

    >>> metric_class("worst_case").__name__, metric_class("of_another_computer")
    ('WorstCase', None)
    """
    try:
        return metrics[metric]
    except StandfastError:
        return None


def presentation_of(metric: str, stored: str | None = None, task: TaskWords = CLASS_WORDS) -> Presentation:
    """The presentation that is registered for a metric, for its package, or else the plain `Presentation`.

    Args:
        metric: the registered name of the metric, such as `"worst_case"` or `"quantus:Sparseness"`.
        stored: the direction that is stored with the results. It counts only if the metric is not installed here.
        task: what the report calls scores and answers.

    >>> import standfast.report
    >>> presentation_of("worst_case").value_spec({"event": "changed_class", "similarity": "pearson"}).direction
    'lower'
    >>> presentation_of("of_another_computer", "higher").value_spec({}).direction
    'higher'
    """
    if not presentations.loaded():
        raise StandfastError("no presentation is registered, not even our own: import standfast.report first")
    direction: Direction = "higher" if stored == "higher" else "lower" if stored == "lower" else None
    name = next((name for name in (metric, metric.partition(":")[0]) if name in presentations), None)
    return (Presentation if name is None else presentations[name])(metric, direction, task)


@dataclass(frozen=True)
class ConfiguredMetric:
    """A configured metric of a study.

    Attributes:
        name: its label.
        metric: the registered name.
        options: its configuration, as stored.
        kind: the metric's class; None where its package is not installed here.
        presentation: how its results are drawn and described.
        spec: how its frame is read.
        stored: the manifest's entry.
        compared: whether the spec is that of `Presentation.make_comparable`, and not of the stored value.
        removal: of texts, what stands in the place of a removed word, such as `"mask"`; empty where it is not known.
    """

    name: str
    metric: str
    options: dict[str, Any]
    kind: type[Metric] | None
    presentation: Presentation
    spec: ValueSpec
    stored: dict[str, Any]
    compared: bool = False
    removal: str = ""

    @property
    def bibtex(self) -> str:
        """The publication's BibTeX entry, or what is known of it."""
        own = "" if self.kind is None else self.kind.bibtex
        return own or str(self.stored.get("bibtex") or self.stored.get("citation") or "")
