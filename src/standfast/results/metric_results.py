"""`MetricResults`: the rows of one configured metric for one data set and model, and its stored arrays on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import polars as pl

from standfast.results.controls import find_controls
from standfast.results.formatting import format_number
from standfast.study.store import DamagedFileError
from standfast.tasks import CLASS_WORDS, TaskWords
from standfast.tensors import Array
from standfast.value_spec import ValueSpec

#: how many files of arrays are read at once: on remote storage each takes a round trip
_READERS = 8
#: stored arrays with an entry for each word, where inputs are texts
_OF_WORDS = (
    *("origins", "inputs", "origin_maps", "maps", "aligned_maps", "mask", "replaced_at"),
    *("origin_input", "origin_map", "named_for", "named_against", "mean_map"),
)


#: explainer, repeat, first sample and arrays of a job
Part = tuple[str, int, int, dict[str, Array]]


@dataclass(frozen=True)
class StoredSample:
    """A sample of an explainer as it is stored, in the first repeat.

    Attributes:
        explainer, sample: which.
        target: the number of what is explained: a class, a side, a label, an output.
        row: of the frame, with the names of classes.
        arrays: those that were asked for.
    """

    explainer: str
    sample: int
    target: int | None
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
        sample_names: what the user calls each sample, such as the label of a row; empty where they have none.
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
    sample_names: Sequence[str] = ()

    @property
    def position(self) -> str:
        """What a number of an input is called where it stands for itself: a feature, a word."""
        if self.texts:
            return "word"
        return "number of the embedding" if self.tokens else "feature"

    @property
    def present(self) -> list[str]:
        """The explainers that have rows, in order."""
        if not len(self.frame):
            return []
        with_rows = self.frame["explainer"].unique().to_list()
        return [name for name in self.explainers if name in with_rows]

    def rows_for(
        self, explainer: str, sample: int | None = None, repeat: int | None = None
    ) -> pl.DataFrame:
        """The rows of an explainer, or of one sample or repeat of it."""
        rows = self.frame.filter(pl.col("explainer") == explainer)
        if sample is not None:
            rows = rows.filter(pl.col("sample") == sample)
        if repeat is not None:
            rows = rows.filter(pl.col("repeat") == repeat)
        return rows

    @property
    def candidates(self) -> list[str]:
        """The explainers that have rows, without controls, where there are others, and those that are `unfit`."""
        controls = find_controls(self.present, self.controls)
        left_out = {*controls, *self.unfit}
        return [name for name in self.present if name not in left_out]

    def samples(self, count: int) -> list[int]:
        """The first samples on which any explainer was evaluated in the first repeat."""
        if not len(self.frame):
            return []
        evaluated = self.frame.filter(status="ok", repeat=self._first)
        samples = evaluated["sample"].unique().sort()
        return [int(sample) for sample in samples.head(count)]

    @property
    def _first(self) -> int:
        return int(self.frame["repeat"].min())  # type: ignore[arg-type]

    def name_classes(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row whose classes, `targets` and `predicted`, have their names; numbers where these are not known.

        Where an answer is a number, they are that of the clean and that of the changed input.
        """
        named = dict(row)
        if row.get("answer") is not None:
            named["targets"] = format_number(row["answer"])
            named["predicted"] = format_number(row.get("predicted"))
            return named
        for key in ("targets", "predicted"):
            number = row.get(key)
            if isinstance(number, int) and 0 <= number < len(self.classes):
                named[key] = self.classes[number]
        return named

    def _read(
        self,
        explainer: str,
        names: Sequence[str],
        also: Sequence[str] = (),
        sample: int | None = None,
    ) -> Iterator[StoredSample]:
        """The evaluated samples, or one, with named arrays, one job in memory.

        Samples whose job does not store all of `names` are left out; those of `also` are there where they are stored.
        """
        if not len(self.jobs):
            return
        evaluated = self.rows_for(explainer, sample, self._first).filter(status="ok")
        rows = {int(row["sample"]): row for row in evaluated.iter_rows(named=True)}
        jobs = self.jobs.filter(explainer=explainer, repeat=self._first).sort("start")
        for job, start, stop in jobs.select("job", "start", "stop").iter_rows():
            # the arrays of a job have a row for each of its samples, in their order
            numbers = [number for number in rows if start <= number < stop]
            arrays = self.load(str(job)) if numbers else {}
            if not set(names) <= set(arrays):
                continue
            stored = {}
            for name in (*names, *also):
                if name in arrays:
                    stored[name] = arrays[name]
            for number in numbers:
                row = rows[number]
                arrays_of_sample = self._cut(stored, number - start, number)
                yield StoredSample(
                    explainer, number, row.get("targets"), self.name_classes(row), arrays_of_sample
                )

    def _cut(self, arrays: Mapping[str, Array], index: int, sample: int) -> dict[str, Array]:
        """The arrays of one sample, from its index in those of a job."""
        arrays_of_sample = {name: np.array(array[index]) for name, array in arrays.items()}
        if not self.texts or sample >= len(self.tokens):
            return arrays_of_sample
        # shorter texts of a job are filled with NaN
        words = len(self.tokens[sample])
        for name in _OF_WORDS:
            if name in arrays_of_sample:
                arrays_of_sample[name] = arrays_of_sample[name][:words]
        return arrays_of_sample

    def load_sample(
        self,
        explainer: str,
        sample: int,
        names: Sequence[str],
        also: Sequence[str] = (),
    ) -> StoredSample | None:
        """A sample with named arrays, and those of `also` that are stored; None if it was not evaluated or stored."""
        return next(self._read(explainer, names, also, sample), None)

    def gallery(
        self, count: int, names: Sequence[str], also: Sequence[str] = ()
    ) -> Iterator[StoredSample]:
        """The first `count` samples of all explainers, in the order of samples."""
        for sample in self.samples(count):
            for explainer in self.present:
                yield from self._read(explainer, names, also, sample)

    def lines(self, explainer: str, names: Sequence[str], limit: int) -> Iterator[StoredSample]:
        """The first `limit` evaluated samples with named arrays, one job in memory."""
        return islice(self._read(explainer, names), limit)

    def parts(self, names: Sequence[str]) -> Iterator[Part]:
        """Explainer, repeat, first sample and named arrays of every job that stores them all, of all repeats.

        Each file is read once, several at a time; only the named arrays stay in memory. A damaged file is left out.
        """

        def read(job: str) -> dict[str, Array]:
            try:
                arrays = self.load(job)
            except DamagedFileError:
                return {}
            if not set(names) <= set(arrays):
                return {}
            return {name: np.array(arrays[name]) for name in names}

        if not len(self.jobs):
            return
        rows = self.jobs.select("job", "explainer", "repeat", "start").rows()
        jobs = [str(job) for job, *_ in rows]
        with ThreadPoolExecutor(_READERS) as pool:
            # in the order of the jobs, whichever is read first
            for row, arrays in zip(rows, pool.map(read, jobs), strict=True):
                _, explainer, repeat, start = row
                if arrays:
                    yield str(explainer), int(repeat), int(start), arrays
