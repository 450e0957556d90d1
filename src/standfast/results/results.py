"""`StoredResults`: what a store holds of a study, and `summarise`, which makes the numbers of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from standfast.errors import ArgumentError, UnknownNameError, check
from standfast.results.agreement import (
    Disagreement,
    MapAgreement,
    find_disagreements,
    measure_data_agreement,
    measure_map_agreement,
    read_clean_maps,
    read_seed_maps,
)
from standfast.results.common_share import make_comparable
from standfast.results.configured_metric import ConfiguredMetric, configure_metric
from standfast.results.controls import Explainers, find_controls
from standfast.results.failures import group_failures
from standfast.results.formatting import format_count
from standfast.results.metric_results import MetricResults
from standfast.results.metric_summary import summarise_metric
from standfast.results.next_steps import MOST_STEPS, NextStep, Situation, find_next_steps
from standfast.results.races import SETTINGS, Race, read_race
from standfast.results.reasons import Card
from standfast.results.reasons.feature_names import check_units
from standfast.results.sanity import Accuracy, Sanity, decide_checks, measure_accuracy
from standfast.results.stored_reasons import Place, read_card
from standfast.results.summary import MetricSummary, Summary
from standfast.results.tables import Best, count_explainers, list_best, make_table
from standfast.results.verdict import Verdict, reach_verdict
from standfast.statistics.comparison import ControlTest
from standfast.statistics.ranking import (
    Ranking,
    compare_controls,
    measure_agreements,
    rank_explainers,
)
from standfast.study.forecast.left_out import KEY, describe_left_out
from standfast.study.store import COORDINATES, ArraysInMemory, Store
from standfast.tasks import TaskWords, read_common_words
from standfast.tensors import Array
from standfast.value_spec import SANITY_CHECKS

if TYPE_CHECKING:
    from standfast.study.run import RunSummary

_TYPES: dict[str, Any] = {**dict.fromkeys(COORDINATES, pl.String), "repeat": pl.Int64}
SAMPLE_COLUMNS: dict[str, Any] = {
    **_TYPES,
    "sample": pl.Int64,
    "status": pl.String,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    "job": pl.String,
}
JOB_COLUMNS: dict[str, Any] = {
    "job": pl.String,
    **_TYPES,
    "start": pl.Int64,
    "stop": pl.Int64,
    "status": pl.String,
    "seconds": pl.Float64,
    "device": pl.String,
    "artefacts": pl.Boolean,
    "choices": pl.String,
    "error": pl.String,
    "traceback": pl.String,
}
#: what `Results.frame` has of all metrics, and the names of things of which there may be several
_CORE = ("explainer", "label", "sample", "value", "low", "high", "bound", "status")
_PLACES = ("data", "model", "repeat")
#: how many first features of two maps are compared, where no metric says it
_TOP = 3
#: the data set, the model and the label of a configured metric
Key = tuple[str, str, str]


@dataclass(frozen=True, repr=False, eq=False)
class StoredResults:
    """All results that a study has so far, and what they say as numbers.

    `evaluate`, `run_study` and `standfast.load_results` return `standfast.Results`, which show them, too.

    Attributes:
        store: where the results are.
        manifest: the configuration: `"data"`, `"models"`, `"explainers"`, `"metrics"` by name, `"seed"`,
            `"repeats"`, `"about"`, `"environment"`.
        sanity_rows: the rows of the sanity checks (`standfast.metrics.sanity`), as `samples` has those of
            the metrics; empty without checks.
        samples: one row per data, model, explainer, label (a configured metric), repeat and sample: `COORDINATES`,
            `sample`, `status`, the metrics' own columns, null where a metric does not have them, and `job`.
        jobs: one row per job that was run: `job` (its identity), `COORDINATES`, `start`, `stop` (samples),
            `status` (`"done"` or `"failed"`), `seconds`, `device`, `artefacts` (whether it has any), `choices` (what
            the explainer chose by itself, such as its layer), `error`, `traceback`. A failure that cannot be read has
            no coordinates.
        planned: the number of jobs of the study.
        run: what the run did that returned these results; None if they were opened.
    """

    store: Store
    manifest: dict[str, Any]
    samples: pl.DataFrame
    jobs: pl.DataFrame
    planned: int
    run: RunSummary | None = None
    sanity_rows: pl.DataFrame = field(default_factory=pl.DataFrame)

    @classmethod
    def load(
        cls,
        results: str | Path | Store,
        run: RunSummary | None = None,
        jobs: Sequence[str] | None = None,
    ) -> Self:
        """Open the results in a folder or at an fsspec address.

        Args:
            results: where they are.
            run: what the run did that has just written them.
            jobs: open these alone, which need not be of the study as it is; None for all that are.

        Raises:
            ArgumentError: there are none.
        """
        store = results if isinstance(results, Store) else Store(results)
        manifest = store.manifest()
        if jobs is None:
            jobs = manifest.get("jobs") or []
        planned = [str(job) for job in jobs]
        records, samples = store.read_all(planned)
        # files are read in the order in which they arrive; results have that of the study
        position = {job: index for index, job in enumerate(planned)}
        records.sort(key=lambda record: position[record["job"]])
        rows, checks = _split_checks(_order_samples(samples, planned))
        stored_jobs = _list_jobs(records)
        return cls(store, manifest, rows, stored_jobs, len(planned), run, checks)

    @classmethod
    def in_memory(
        cls,
        manifest: Mapping[str, Any],
        samples: pl.DataFrame,
        jobs: Sequence[Mapping[str, Any]],
        planned: int,
        arrays: Mapping[str, Mapping[str, Array]],
    ) -> Self:
        """Results that are in no folder, such as those that somebody sent as one file.

        Args:
            manifest: the configuration, as the attribute `manifest`.
            samples: as the attribute `samples`, and the rows of the sanity checks.
            jobs: for each row of the attribute `jobs` its values by column; those that are missing are null.
            planned: the number of jobs of the study.
            arrays: the arrays of each job that has any, by name.

        >>> names = {"data": "d", "model": "m", "explainer": "lrp", "label": "AOPC", "metric": "aopc", "repeat": 0}
        >>> samples = pl.DataFrame([{**names, "sample": 0, "status": "ok", "value": 0.5, "job": "a"}])
        >>> job = {**names, "job": "a", "start": 0, "stop": 1, "status": "done"}
        >>> results = StoredResults.in_memory({"seed": 0}, samples, [job], 2, {"a": {"curve": np.zeros((1, 5))}})
        >>> results.missing, results.artefacts("a")["curve"].shape, results.table()["value"].to_list()
        (1, (1, 5), [0.5])
        """
        checks = pl.DataFrame()
        if "metric" in samples.columns:
            samples, checks = _split_checks(samples)
        return cls(
            ArraysInMemory(arrays),
            dict(manifest),
            samples,
            _list_jobs(jobs),
            planned,
            sanity_rows=checks,
        )

    def __repr__(self) -> str:
        explainers = count_explainers(self.explainers)
        labels = self._list_names("metrics", "label")
        metrics = format_count(len(labels), "metric")
        counts = [format_count(count, "sample") for count in self._count_samples().values()]
        samples = " + ".join(counts) or "no samples"
        parts = [f"{explainers} x {metrics}", samples]
        if self.failures:
            parts.append(format_count(len(self.failures), "failed job"))
        words = ", ".join(parts)
        return f"{type(self).__name__}({words})"

    @cached_property
    def failures(self) -> list[dict[str, Any]]:
        """The rows of `jobs` that failed, with their tracebacks."""
        return self.jobs.filter(pl.col("status") == "failed").to_dicts()

    @cached_property
    def _errors(self) -> dict[Key, dict[str, list[str]]]:
        """The errors of failed jobs by data, model and label, and then by explainer."""
        errors: dict[Key, dict[str, list[str]]] = {}
        for job in self.failures:
            key = (job["data"], job["model"], job["label"])
            by_explainer = errors.setdefault(key, {})
            errors_of_explainer = by_explainer.setdefault(job["explainer"], [])
            errors_of_explainer.append(str(job["error"]))
        return errors

    @property
    def missing(self) -> int:
        """How many jobs were not run yet."""
        return self.planned - self.jobs.height

    def artefacts(self, job: str) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of a job by name (inputs, maps, curves), each `(samples of the job, ...)`; may be empty."""
        return self.store.read_artefacts(job)

    # What was evaluated

    @cached_property
    def explainers(self) -> Explainers:
        """The names of the explainers; its attribute `controls` has those that are only references."""
        names = self._list_names("explainers", "explainer")
        controls = self.manifest.get("controls")
        if not isinstance(controls, list):
            controls = []
        return Explainers(names, find_controls(names, controls))

    @cached_property
    def data(self) -> list[str]:
        """The names of the data sets."""
        return self._list_names("data", "data")

    @cached_property
    def models(self) -> list[str]:
        """The names of the models."""
        return self._list_names("models", "model")

    @property
    def metrics(self) -> dict[str, ConfiguredMetric]:
        """The configured metrics by their labels."""
        return self._compared[0]

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of data and model that were evaluated, in the order of the manifest."""
        evaluated = {(data, model) for data, model, _ in self._stored}
        if {"data", "model"} <= set(self.jobs.columns):
            pairs_of_jobs = self.jobs.select("data", "model").unique()
            evaluated |= set(pairs_of_jobs.iter_rows())
        return [pair for pair in product(self.data, self.models) if pair in evaluated]

    @property
    def _limit(self) -> Mapping[str, Any]:
        """What a time limit has chosen; empty without one."""
        return self.manifest.get(KEY) or {}

    @property
    def limited_samples(self) -> Mapping[str, Sequence[int]]:
        """With a time limit, how many samples of each data set were evaluated, and how many there are."""
        return self._limit.get("samples") or {}

    def _count_samples(self) -> dict[str, int]:
        """How many samples each data set has; with a time limit, how many of them were evaluated."""
        counts = {}
        for name in self.data:
            described = self._describe_data(name)
            counts[name] = int(described.get("samples") or 0)
        evaluated = {name: done for name, (done, _) in self.limited_samples.items()}
        return {**counts, **evaluated}

    def _describe_data(self, name: str) -> Mapping[str, Any]:
        """What the manifest says of a data set; empty where it says nothing."""
        described = (self.manifest.get("data") or {}).get(name)
        return described if isinstance(described, dict) else {}

    def _list_names(self, key: str, column: str) -> list[str]:
        """The names that the manifest has, and behind them those that only jobs or rows have."""
        names = list(self.manifest.get(key) or {})
        # the manifest of an interrupted or a stranger's study may lack some
        for frame in (self.jobs, self.samples):
            if column in frame.columns:
                stored = frame[column].drop_nulls().unique(maintain_order=True).sort()
                names += [name for name in stored if name not in names]
        if key == "metrics":
            return [name for name in names if name != SANITY_CHECKS]
        return names

    # Rows

    @cached_property
    def _stored(self) -> dict[tuple[Any, ...], pl.DataFrame]:
        """The stored rows of each data set, model and label, by explainer, repeat and sample."""
        if not self.samples.width or not len(self.samples):
            return {}
        numbers = range(len(self.explainers))
        position = pl.col("explainer").replace_strict(self.explainers, numbers)
        rows = self.samples.sort(position, "repeat", "sample", maintain_order=True)
        return rows.partition_by("data", "model", "label", as_dict=True)

    @cached_property
    def _compared(self) -> tuple[dict[str, ConfiguredMetric], dict[Key, MetricResults]]:
        """The metrics, and their rows with the values by which explainers are compared. Arrays are read here, once."""
        metrics: dict[str, ConfiguredMetric] = {}
        views: dict[Key, MetricResults] = {}
        for label in self._list_names("metrics", "label"):
            metric, views_of_metric = self._compare(label)
            metrics[label] = metric
            views |= {(view.data, view.model, label): view for view in views_of_metric}
        return metrics, views

    def _compare(self, label: str) -> tuple[ConfiguredMetric, list[MetricResults]]:
        """A metric, and its rows on each data set and model that it has, with comparable values."""
        metric = self._configure(label)
        views = []
        for data, model in self.pairs:
            if (data, model, label) in self._stored:
                views.append(self._view(metric, data, model))
        # over all views at once, since a value is compared by one spec wherever it is from
        comparable = make_comparable(views)
        if comparable is None:
            return metric, views
        spec, frames = comparable
        compared_views = []
        for view, frame in zip(views, frames, strict=True):
            compared_views.append(replace(view, spec=spec, frame=frame))
        return replace(metric, spec=spec, compared=True), compared_views

    def _configure(self, label: str) -> ConfiguredMetric:
        described_metrics = self.manifest.get("metrics") or {}
        stored = dict(described_metrics.get(label) or {})
        metric = str(stored.get("metric") or self._find_metric_of(label) or label)
        ways = (self.manifest.get("about") or {}).get("removal")
        removal = ""
        if isinstance(ways, Mapping):
            removal = str(ways.get(label) or "")
        configured = configure_metric(label, metric, stored, self.task_words, removal)
        configured.spec.check_columns(self.samples)
        return configured

    def _find_metric_of(self, label: str) -> str | None:
        for frame in (self.jobs, self.samples):
            if {"label", "metric"} <= set(frame.columns):
                names = frame.filter(pl.col("label") == label)["metric"]
                if len(names):
                    return str(names[0])
        return None

    @cached_property
    def compared_samples(self) -> pl.DataFrame:
        """`samples` with the columns by which explainers are compared, where these are not the stored values."""
        keys = [*COORDINATES, "sample"]
        # what `make_comparable` has added to the rows of a metric
        added = []
        for key, view in self._compared[1].items():
            stored = self._stored[key].columns
            new = [name for name in view.frame.columns if name not in stored]
            if new:
                added.append(view.frame.select(*keys, *new))
        if not added:
            return self.samples
        columns = pl.concat(added, how="diagonal_relaxed")
        return self.samples.join(columns, on=keys, how="left", maintain_order="left")

    def metric_results(self, data: str, model: str, label: str) -> MetricResults:
        """The rows of a configured metric for one data set and model, with all that its figures need; maybe no rows."""
        view = self._compared[1].get((data, model, label))
        if view is None:
            return self._view(self.metrics[label], data, model)
        return view

    def list_metric_results(self, label: str) -> list[MetricResults]:
        """Those of all data sets and models that have rows."""
        return [view for (_, _, name), view in self._compared[1].items() if name == label]

    def _view(self, metric: ConfiguredMetric, data: str, model: str) -> MetricResults:
        """The stored rows of a metric for one data set and model."""
        key = (data, model, metric.name)
        sanity = self._select_sanity(data, model)
        tokens = self._list_texts(data, "tokens")

        words_of_texts = [words for words in tokens if not isinstance(words, str)]
        names = [str(name) for name in self._list_texts(data, "sample_names")]
        return MetricResults(
            metric.name,
            metric.metric,
            metric.options,
            metric.spec,
            data,
            model,
            self.explainers,
            self._stored.get(key, self.samples.clear()),
            self._find_bounds(data),
            self._select_jobs_with_arrays(key),
            self.artefacts,
            self._list_texts(data, "features"),
            words_of_texts,
            self.explainers.controls,
            _list_unfit(sanity),
            self._list_classes(data),
            self._errors.get(key, {}),
            self._list_texts(data, "columns"),
            self.task_words,
            bool(self._describe_data(data).get("texts")),
            names,
        )

    def _select_jobs_with_arrays(self, key: Key) -> pl.DataFrame:
        """The finished jobs of a metric on one data set and model that stored arrays."""
        jobs = self.jobs
        if not {"data", "model", "label", "artefacts", "status"} <= set(jobs.columns):
            return jobs.clear()
        data, model, label = key
        of_metric = jobs.filter(data=data, model=model, label=label)
        return of_metric.filter(pl.col("artefacts"), status="done")

    @cached_property
    def task_words(self) -> TaskWords:
        """What the report calls scores and answers: the words of the task, or those of any if models have several."""
        return read_common_words((self.manifest.get("models") or {}).values())

    def _list_classes(self, data: str) -> list[str]:
        """The names of the classes of a data set, or of what models answer; empty where they are not known."""
        if self.task_words.answers:
            return list(self.task_words.answers)
        names = [str(name) for name in self._list_texts(data, "classes")]
        models = (self.manifest.get("models") or {}).values()
        are_classes = all(about.get("of classes", True) for about in models)
        are_sides = self.task_words.kind == "side" and len(names) == 2
        are_labels = self.task_words.kind == "label"
        if are_classes or are_sides or are_labels:
            return names
        return []

    def _find_bounds(self, data: str) -> tuple[float, float]:
        """The range of the inputs, over all features."""
        try:
            # of each bound the least and the largest value over all features
            range_of_lower, range_of_upper = self.manifest["data"][data]["bounds"]
            low, _ = range_of_lower
            _, high = range_of_upper
            return float(low), float(high)
        except (KeyError, TypeError, ValueError):
            return float("nan"), float("nan")

    def _list_texts(self, data: str, key: str) -> list[Any]:
        """What the manifest stores of a data set's names; empty where it has none."""
        texts = self._describe_data(data).get(key)
        if isinstance(texts, (list, tuple)):
            return list(texts)
        return []

    # What they say

    @cached_property
    def sanity(self) -> dict[Key, Sanity]:
        """The sanity checks of each explainer that is no control, by data, model and explainer; empty without checks.

        Checks that have not run yet, or have failed, are untested.
        """
        if not self.manifest.get("sanity"):
            return {}
        rows = self.sanity_rows
        rows_of: dict[tuple[Any, ...], pl.DataFrame] = {}
        if len(rows):
            rows_of = rows.partition_by("data", "model", "explainer", as_dict=True)
        no_rows = rows.clear()
        controls = self.explainers.controls
        judged = [name for name in self.explainers if name not in controls]
        sanity = {}
        for (data, model), name in product(self.pairs, judged):
            key = (data, model, name)
            sanity[key] = decide_checks(rows_of.get(key, no_rows))
        return sanity

    def _select_sanity(self, data: str, model: str) -> dict[str, Sanity]:
        """The sanity checks on one data set and model, by explainer."""
        checks_of_pair = {}
        for (name_of_data, name_of_model, name), sanity in self.sanity.items():
            if (name_of_data, name_of_model) == (data, model):
                checks_of_pair[name] = sanity
        return checks_of_pair

    @cached_property
    def _accuracies(self) -> dict[tuple[str, str], Accuracy]:
        """The accuracy of each model on each data set whose labels the sanity checks know."""
        accuracies: dict[tuple[str, str], Accuracy] = {}
        if not len(self.sanity_rows):
            return accuracies
        parts = self.sanity_rows.partition_by("data", "model", "explainer", as_dict=True)
        for (data, model, _), rows in parts.items():
            accuracy = measure_accuracy(rows)
            if accuracy is not None:
                # each explainer has met the same samples
                accuracies.setdefault((str(data), str(model)), accuracy)
        return accuracies

    @cached_property
    def race(self) -> Race | None:
        """The race of which these are the results (`standfast.choose`); None if they are of none."""
        is_race = SETTINGS in self.manifest and isinstance(self.store, Store)
        return read_race(self.store) if is_race else None

    @cached_property
    def summary(self) -> Summary:
        """The numbers that everything shows: `summarise` with medians."""
        return summarise(self)

    def frame(self, metric: str | None = None) -> pl.DataFrame:
        """A row for each explainer, metric, repeat and sample.

        Args:
            metric: only the rows of this one, by its label or its name, such as `"worst_case"`, with all of its
                columns that have a value. By default all metrics, with the columns that all of them have. The attribute
                `samples` has all columns of all metrics.

        Returns:
            By default the columns `explainer`, `label` (of the metric), `sample`, `value`, `low`, `high`, `bound`
            (whether the value is only a bound) and `status`; and `data`, `model` and `repeat` where there are several.
            `value` is as stored. A metric whose stored values explainers cannot be compared by, such as the corruption
            curve, has one more column with those that the table uses (`common_drop`), among all columns of the metric.

        Raises:
            UnknownNameError: there is no such metric.
        """
        if metric is None:
            return self._list_core()
        labels = []
        for label, configured in self.metrics.items():
            if metric in (label, configured.metric):
                labels.append(label)
        if not labels:
            raise UnknownNameError("metric", metric, self.metrics)
        frame = self.compared_samples.filter(pl.col("label").is_in(labels))
        # without rows no column has a value, and all stay
        fewest_nulls = max(len(frame), 1)
        columns = []
        for column in frame.get_columns():
            if column.null_count() < fewest_nulls:
                columns.append(column)
        return frame.select(columns)

    def _list_core(self) -> pl.DataFrame:
        """All rows, with the columns that all metrics have."""
        frame = self.samples
        if "label" not in frame.columns:
            return frame
        are_bounds = np.zeros(len(frame), dtype=bool)
        labels = frame["label"].to_numpy()
        for label, metric in self.metrics.items():
            rows = np.flatnonzero(labels == label)
            are_bounds[rows] = metric.spec.bounds(frame[rows])
        several = []
        for name in _PLACES:
            if name in frame.columns and frame[name].n_unique() > 1:
                several.append(name)
        frame = frame.with_columns(pl.Series("bound", are_bounds, dtype=pl.Boolean))
        core = [name for name in _CORE if name in frame.columns]
        return frame.select(*core, *several)

    def table(self) -> pl.DataFrame:
        """A row for each explainer and metric.

        The columns are

        - `data`, `model`: only where there are several of them;
        - `explainer`, `metric` (its label);
        - `value`: the median over samples; `low`, `high`: its 95% interval (null or wider if there are few samples);
        - `verdict`: `"best"` (the best mean rank over the samples that all explainers have), `"tied"` (paired tests at
          5% do not show that it is worse than the best), `"worse"`, or `"undecided"` (the tests show no explainer to be
          worse than the best); null where there is nothing to compare;
        - `better`: whether a `"higher"` or a `"lower"` value is better, or null;
        - `quality`, `sanity`: only where something judges them: whether the value is `"good"`, no better than a
          `"control"`, `"bad"` or `"undecided"`; and whether the explainer `"passed"` the sanity checks, `"failed"` one,
          or is `"undecided"`;
        - `samples`: how many samples count;
        - `against_controls`, `best_control`: only where controls were evaluated: `"beats"` (the tests show that the
          explainer is better than every control), `"worse"` (than some control) or `"undecided"`; and the control that
          it is furthest from beating;
        - `bound`: only where a median is not known exactly: it lies at or below (`"upper"`) or above (`"lower"`) the
          value;
        - `failure`: only where something failed: why.
        """
        return make_table(self.summary)

    def best(self, data: str | None = None, model: str | None = None) -> dict[str, Best]:
        """The best explainers by each metric that ranks them, and whether the tests show it.

        Args:
            data, model: where there are several, which of them.

        Raises:
            ArgumentError: there is no such data set or model, or there are several and none is given.
        """
        best: dict[str, Best] = {}
        for pair in self._choose_pairs(data, model):
            best.update(list_best(self.summary.select(*pair)))
        return best

    def verdict(self, data: str | None = None, model: str | None = None) -> Verdict:
        """Which explanations may be shown, which not and why, and what would decide the rest; `print` says it.

        Args:
            data, model: where there are several, which of them.

        Raises:
            ArgumentError: there is no such data set or model, or there are several and none is given, or no results.
        """
        pairs = self._choose_pairs(data, model)
        check(len(pairs) == 1, "results", "those of a data set and a model", "none")
        return self._verdicts[pairs[0]]

    def next_steps(self, data: str | None = None, model: str | None = None) -> Sequence[NextStep]:
        """What to do next where the verdict leaves something open, and what it would cost; at most three steps.

        Args:
            data, model: where there are several, which of them.

        Raises:
            ArgumentError: there is no such data set or model, or there are several and none is given, or no results.
        """
        return self.find_all_steps(data, model)[:MOST_STEPS]

    def find_all_steps(
        self, data: str | None = None, model: str | None = None
    ) -> Sequence[NextStep]:
        """As `next_steps`, without a limit of their number."""
        verdict = self.verdict(data, model)
        return find_next_steps(Situation(self.summary, verdict, self.manifest, self.jobs))

    @cached_property
    def _verdicts(self) -> dict[tuple[str, str], Verdict]:
        """The verdict on each data set and model."""
        verdicts = {}
        for data, model in self.pairs:
            verdict = reach_verdict(self.summary, data, model)
            disagreements = self._find_disagreements(data, model, verdict.show)
            verdicts[data, model] = replace(verdict, disagreements=disagreements)
        return verdicts

    def _find_disagreements(
        self, data: str, model: str, explainers: Sequence[str]
    ) -> tuple[Disagreement, ...]:
        """Which of some explainers contradict each other; none where no maps are stored that could tell."""
        if len(explainers) < 2:
            return ()
        for label in self._list_seed_agreements():
            view = self.metric_results(data, model, label)
            try:
                maps_of_seeds = read_seed_maps([view])
            except ArgumentError:  # they were too large, or have not been run
                continue
            maps = {}
            for name in explainers:
                if (model, name) in maps_of_seeds:
                    maps[name] = maps_of_seeds[model, name]
            if len(maps) > 1:
                return find_disagreements(maps, self._read_top(label))
        # where no metric compares seeds, the maps of the inputs that another one has stored serve as well
        for label in self.metrics:
            maps = read_clean_maps(self.metric_results(data, model, label), explainers)
            if len(maps) > 1:
                return find_disagreements(maps, _TOP)
        return ()

    def agreement(self, data: str | None = None) -> MapAgreement:
        """How far explainers, and models that were trained again, agree with each other on the same inputs.

        It needs the metric `seed_agreement`, whose stored maps are compared: Kendall's tau, the overlap of the first
        features and their signs, with intervals and the chance level, and a two-way table of seeds and trained models.

        Args:
            data: where there are several, which data set.

        Raises:
            ArgumentError: there is no such data set, or there are several and none is given, or no maps are stored.
        """
        chosen = _choose_one("data", data, self.data)
        label, top = self._find_seed_agreement()
        models = [model for name, model in self.pairs if name == chosen]
        views = [self.metric_results(chosen, model, label) for model in models]
        return measure_map_agreement(read_seed_maps(views), chosen, top)

    def agreement_of_data(self, model: str | None = None) -> MapAgreement:
        """How far the mean absolute maps of several data sets agree, such as those of several years.

        The data sets have the same features. Samples differ, so what is compared is which features matter on average.

        Args:
            model: where there are several, which.

        Raises:
            ArgumentError: there is no such model, or there are several and none is given; it meets one data set only,
                or data sets with other features; or no maps are stored.
        """
        names = list(dict.fromkeys(name for _, name in self.pairs))
        chosen = _choose_one("model", model, names)
        met = [data for data, name in self.pairs if name == chosen]
        features = {tuple(self._list_texts(data, "features")) for data in met}
        have_same_features = len(features) == 1 and features != {()}
        are_alike = len(met) > 1 and have_same_features
        expected = "those of several data sets with the same names of features"
        check(are_alike, "results", expected, ", ".join(met))
        label, top = self._find_seed_agreement()
        views = [self.metric_results(data, chosen, label) for data in met]
        return measure_data_agreement(read_seed_maps(views, "data"), chosen, top)

    def reasons(
        self,
        sample: int,
        explainer: str | None = None,
        *,
        data: str | None = None,
        model: str | None = None,
        retrained: Sequence[str] = (),
        others: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
    ) -> Card:
        """What can be stated of the reasons of one sample (`standfast.reasons` asks for them).

        It needs the metric `reasons`. A second such metric that varies one source alone (`vary="seed"`) adds what this
        source does.

        Args:
            sample: its number.
            explainer: which; the first one by default.
            data, model: which, where there are several.
            retrained: names of models that are the given one, trained again: a draw is then one of a model.
            others: names of explainers that are as good as the given one: a draw is then by one of them.
            units: of columns, by name, such as `{"income": "EUR"}`, which the card has beside their values.

        Raises:
            ArgumentError: there is no such part of the results, or it has no reasons of this sample.
        """
        originals = [name for name in self.models if name not in retrained]
        if model is None and len(originals) == 1:
            # retrained models are no choice: they only vary the original
            model = originals[0]
        pairs = []
        for pair in self._choose_pairs(data, model):
            if pair[1] not in retrained:
                pairs.append(pair)
        check(len(pairs) > 0, "results", "those of the metric reasons", "none")
        controls = self.explainers.controls
        names = [name for name in self.explainers if name not in controls]
        chosen = names[0] if explainer is None else explainer
        _check_names("explainer", [chosen], names)
        _check_names("others", others, names)
        _check_names("retrained", retrained, self.models)
        place_of_sample = Place(*pairs[0], chosen, sample)
        check_units(units, self._list_texts(place_of_sample.data, "features"))
        return read_card(self, place_of_sample, dict.fromkeys(retrained, self), others, units)

    def _find_seed_agreement(self) -> tuple[str, int]:
        """The label of the metric whose maps are stored, and how many first features it looks at."""
        labels = self._list_seed_agreements()
        check(len(labels) > 0, "results", "those of the metric seed_agreement", "none")
        return labels[0], self._read_top(labels[0])

    def _list_seed_agreements(self) -> list[str]:
        """The labels of the metrics that store maps of several seeds."""
        return [
            label for label, metric in self.metrics.items() if metric.metric == "seed_agreement"
        ]

    def _read_top(self, label: str) -> int:
        """How many first features such a metric looks at."""
        return int(self.metrics[label].options.get("top", _TOP))

    def _choose_pairs(self, data: str | None, model: str | None) -> list[tuple[str, str]]:
        """The pair of data and model that is asked for; none where there are no results."""
        pairs = self.pairs
        if data is not None:
            _check_name("data", data, [name for name, _ in pairs])
            pairs = [pair for pair in pairs if pair[0] == data]
        if model is not None:
            _check_name("model", model, [name for _, name in pairs])
            pairs = [pair for pair in pairs if pair[1] == model]
        choices = [f"data={data!r}, model={model!r}" for data, model in pairs]
        expected = f"one of several: {'; '.join(choices)}"
        check(len(pairs) <= 1, "data, model", expected, "none")
        return pairs


def summarise(results: StoredResults) -> Summary:
    """The numbers of results, with medians over samples, which may be censored, and whose intervals assume nothing.

    The tests are Friedman's, then Wilcoxon's on all pairs with Holm's correction, at 5%, on the samples that have a
    value for every explainer. Controls are not ranked.
    """
    rankings = _rank_explainers(results)
    agreements = {}
    for agreement in measure_agreements(rankings):
        # the ranks of two explainers either agree or are reversed
        if len(agreement.explainers) >= 3:
            agreements[agreement.data, agreement.model] = agreement
    metrics = len(results.manifest.get("metrics") or {})
    failures = group_failures(results.jobs.iter_rows(named=True), metrics)
    classes = {name: tuple(results._list_classes(name)) for name in results.data}
    limit = results._limit
    return Summary(
        tuple(results.data),
        tuple(results.models),
        tuple(results.explainers),
        tuple(results.explainers.controls),
        results._count_samples(),
        tuple(_summarise_metrics(results, rankings)),
        agreements,
        results.planned,
        results.missing,
        len(results.failures),
        tuple(failures),
        results.sanity,
        results._accuracies,
        classes,
        limit.get("minutes"),
        tuple(describe_left_out(limit)),
        limit.get("checked") == 0,
    )


def _rank_explainers(results: StoredResults) -> list[Ranking]:
    """The tests between explainers, of all that pass the sanity checks and are no controls."""

    def leave_out(data: str, model: str) -> list[str]:
        unfit = _list_unfit(results._select_sanity(data, model))
        return [*results.explainers.controls, *unfit]

    frame = results.compared_samples
    if not len(frame):
        return []
    specs = {label: metric.spec for label, metric in results.metrics.items()}
    return rank_explainers(frame, specs, unranked=leave_out)


def _test_against_controls(results: StoredResults) -> Mapping[Key, Sequence[ControlTest]]:
    """The tests of explainers against controls, by the metrics that ask for them."""
    frame = results.compared_samples
    controls = results.explainers.controls
    if not controls or not len(frame):
        return {}
    specs = {}
    for label, metric in results.metrics.items():
        if metric.controls:
            specs[label] = metric.spec
    return compare_controls(frame, specs, controls)


def _summarise_metrics(
    results: StoredResults, rankings: Sequence[Ranking]
) -> Iterator[MetricSummary]:
    """What each metric says on each data set and model."""
    comparisons = {
        (ranking.data, ranking.model, ranking.label): ranking.comparison for ranking in rankings
    }
    control_tests = _test_against_controls(results)
    for data, model in results.pairs:
        checks = None
        if len(results.sanity_rows):
            checks = results.sanity_rows.filter(data=data, model=model)
        sanity = results._select_sanity(data, model)
        for label, metric in results.metrics.items():
            key = (data, model, label)
            yield summarise_metric(
                results.metric_results(*key),
                metric,
                comparisons.get(key),
                control_tests.get(key, ()),
                checks,
                sanity,
            )


def _list_unfit(sanity: Mapping[str, Sanity]) -> list[str]:
    """The explainers that do not pass the sanity checks, or not yet."""
    return [name for name, checks in sanity.items() if checks.state != "passed"]


def _choose_one(argument: str, name: str | None, names: Sequence[str]) -> str:
    """The name that is asked for, or the only one that there is."""
    if name is None:
        fits = len(names) == 1
    else:
        fits = name in names
    expected = f"one of {', '.join(names)}"
    check(fits, argument, expected, repr(name))
    if name is None:
        return names[0]
    return str(name)


def _check_name(argument: str, name: str, names: Sequence[str]) -> None:
    expected = f"one of {', '.join(dict.fromkeys(names))}"
    check(name in names, argument, expected, repr(name))


def _check_names(argument: str, asked_for: Sequence[str], names: Sequence[str]) -> None:
    unknown = [repr(name) for name in asked_for if name not in names]
    expected = f"of {', '.join(names)}"
    check(not unknown, argument, expected, ", ".join(unknown))


def _order_samples(samples: pl.DataFrame, jobs: Sequence[str]) -> pl.DataFrame:
    """Rows in the order of their jobs, with the columns that all metrics have first."""
    if not samples.width:
        return pl.DataFrame(schema=SAMPLE_COLUMNS)
    position = pl.DataFrame({"job": jobs}).with_row_index("__position")
    ordered = samples.join(position, on="job", how="left")
    ordered = ordered.sort("__position", "sample", maintain_order=True)
    first = (*COORDINATES, "sample", "status")
    return ordered.select(*first, pl.exclude(*first, "__position"))


def _split_checks(samples: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of the metrics and those of the sanity checks, each without the columns that only the others have."""
    is_check = pl.col("metric") == SANITY_CHECKS
    rows = samples.filter(~is_check)
    checks = samples.filter(is_check)
    if not len(checks):
        return samples, checks
    common = set(SAMPLE_COLUMNS)
    empty_in_rows = _find_empty(rows)
    empty_in_checks = _find_empty(checks)
    # what is empty in both is a column of a metric that has no value yet
    rows = rows.drop(empty_in_rows - empty_in_checks - common)
    return rows, checks.drop(empty_in_checks - common)


def _find_empty(frame: pl.DataFrame) -> set[str]:
    """The columns without a value."""
    return {column.name for column in frame if column.null_count() == len(frame)}


def _list_jobs(records: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    rows = [[record.get(name) for name in JOB_COLUMNS] for record in records]
    return pl.DataFrame(rows, schema=JOB_COLUMNS, orient="row")
