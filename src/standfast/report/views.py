"""The contents of a report: a study's explainers, its configured metrics with their readings, and a view of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from standfast.metrics.base import Metric
from standfast.report.charts import Explainers
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.words import words_of
from standfast.results import MetricResults, Presentation, ValueSpec, metric_class, presentation_of
from standfast.results.controls import find_controls
from standfast.statistics.comparison import Comparison, ControlTest
from standfast.statistics.ranking import Agreement, Ranking, compare_controls, measure_agreements, rank_explainers
from standfast.study.results import COORDINATES, Results

#: characters that end a line or a program elsewhere (a drawing with NUL ends the process), that are no text, or that
#: turn the direction of what follows
_UNSAFE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def show_unsafe(text: str) -> str:
    r"""A text with control characters, separators of lines and halves of pairs as the codes that Python writes.

    >>> show_unsafe("a\u2028b")
    'a\\u2028b'
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def with_safe_names(results: Results) -> Results:
    """The same results, with names that can be drawn, whatever the data, models, explainers and metrics are called."""
    manifest = _show_all(results.manifest)
    if manifest == results.manifest:
        return results
    return replace(results, manifest=manifest, samples=_rename(results.samples), jobs=_rename(results.jobs))


def _rename(frame: pl.DataFrame) -> pl.DataFrame:
    texts = [name for name in COORDINATES if frame.schema.get(name) == pl.String]
    return frame.with_columns(pl.col(texts).map_elements(show_unsafe, return_dtype=pl.String))


def _show_all(value: Any) -> Any:
    if isinstance(value, str):
        return show_unsafe(value)
    if isinstance(value, Mapping):
        return {show_unsafe(str(name)): _show_all(entry) for name, entry in value.items()}
    return [_show_all(entry) for entry in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class ConfiguredMetric:
    """A configured metric of the study.

    Attributes:
        name: the label.
        metric: the registered name.
        options: its configuration, as stored.
        kind: the metric's class; None where its package is not installed here.
        presentation: how its results are drawn and described.
        spec: how its frame is read.
        stored: the manifest's entry.
        compared: whether the reading is that of `Presentation.make_comparable`, and not of the stored value.
    """

    name: str
    metric: str
    options: dict[str, Any]
    kind: type[Metric] | None
    presentation: Presentation
    spec: ValueSpec
    stored: dict[str, Any]
    compared: bool = False

    def figures(self, view: MetricResults) -> list[Any]:
        """The metric's own figures."""
        own = self.presentation.figures(view)
        return draw_distribution(view) if own is None else list(own)

    def figures_over_data(self, views: Sequence[MetricResults]) -> list[Any]:
        """The metric's own figures over several data sets and models."""
        return [] if len(views) < 2 else list(self.presentation.figures_over_data(views))

    def details(self, frame: pl.DataFrame) -> list[str]:
        """Further numbers of an explainer."""
        own = [detail.text for detail in self.presentation.details(frame, self.options)]
        return own + self.presentation.remarks(frame, self.options)

    @property
    def bibtex(self) -> str:
        """The publication's BibTeX entry, or what is known of it."""
        own = "" if self.kind is None else self.kind.bibtex
        return own or str(self.stored.get("bibtex") or self.stored.get("citation") or "")


class Contents:
    """A study's results as the parts of the report need them; names are in the order of the manifest."""

    def __init__(self, results: Results) -> None:
        self.results, self.manifest = results, results.manifest
        samples = results.samples
        self.repeats = int(self.manifest.get("repeats") or 1)
        names, known = self._names("explainers", "explainer"), self.manifest.get("controls")
        self.explainers = Explainers(names, find_controls(names, known if isinstance(known, list) else ()))
        self.data, self.models = self._names("data", "data"), self._names("models", "model")
        self.label_names = self._names("metrics", "label")
        self._stored: dict[tuple[Any, ...], pl.DataFrame] = {}
        if samples.width and len(samples):
            place = pl.col("explainer").replace_strict(self.explainers, range(len(self.explainers)))
            parts = samples.sort(place, "repeat", "sample", maintain_order=True)
            self._stored = parts.partition_by("data", "model", "label", as_dict=True)

    def _names(self, key: str, column: str) -> list[str]:
        names = list(self.manifest.get(key) or {})
        for frame in (self.results.jobs, self.results.samples):
            if column in frame.columns:
                names += [n for n in frame[column].unique(maintain_order=True).sort() if n not in names]
        return names

    @property
    def labels(self) -> dict[str, ConfiguredMetric]:
        """The configured metrics by name."""
        return self._compared[0]

    @cached_property
    def _compared(self) -> tuple[dict[str, ConfiguredMetric], dict[tuple[Any, ...], pl.DataFrame]]:
        """The labels, and the frames with the values by which explainers are compared. Arrays are read here, once."""
        labels, frames = {}, dict(self._stored)
        for name in self.label_names:
            known = self._label(name)
            places = [(data, model, name) for data, model in self.pairs if (data, model, name) in frames]
            views = [self._view(known, data, model, frames[data, model, name]) for data, model, _ in places]
            found = known.presentation.make_comparable(views)
            if found is not None:
                known = replace(known, spec=found[0], compared=True)
                frames.update(zip(places, found[1], strict=True))
            labels[name] = known
        return labels, frames

    @cached_property
    def samples(self) -> pl.DataFrame:
        """All rows, in the order of the results, with the values by which explainers are compared."""
        stored, keys = self.results.samples, [*COORDINATES, "sample"]
        added = []
        for place, frame in self._compared[1].items():
            new = [name for name in frame.columns if name not in self._stored[place].columns]
            added += [frame.select(*keys, *new)] if new else []
        if not added:
            return stored
        return stored.join(pl.concat(added, how="diagonal_relaxed"), on=keys, how="left", maintain_order="left")

    def _label(self, name: str) -> ConfiguredMetric:
        stored = dict((self.manifest.get("metrics") or {}).get(name) or {})
        metric = str(stored.get("metric") or self._of_rows(name) or name)
        options = dict(stored.get("options") or {})
        own = presentation_of(metric, stored.get("direction"))
        return ConfiguredMetric(name, metric, options, metric_class(metric), own, own.value_spec(options), stored)

    def _of_rows(self, label: str) -> str | None:
        for frame in (self.results.jobs, self.results.samples):
            if {"label", "metric"} <= set(frame.columns):
                found = frame.filter(pl.col("label") == label)["metric"].head(1).to_list()
                if found:
                    return str(found[0])
        return None

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of data and model that were evaluated, in the order of the manifest."""
        have = {(data, model) for data, model, _ in self._stored}
        if {"data", "model"} <= set(self.results.jobs.columns):
            have |= set(self.results.jobs.select("data", "model").unique().iter_rows())
        return [(data, model) for data in self.data for model in self.models if (data, model) in have]

    def where(self, data: str, model: str) -> str:
        """The name of a pair in the page; empty where there is only one pair."""
        parts = [data] if len(self.data) > 1 else []
        parts += [model] if len(self.models) > 1 else []
        return " · ".join(parts) if len(self.pairs) > 1 else ""

    def frame(self, data: str, model: str, label: str) -> pl.DataFrame:
        """The rows of a configured metric for one data set and model."""
        return self._compared[1].get((data, model, label), self.results.samples.clear())

    def rows(self, data: str, model: str, label: str, explainer: str) -> pl.DataFrame:
        """The rows of a configured metric for one data set, model and explainer."""
        frame = self.frame(data, model, label)
        return frame.filter(pl.col("explainer") == explainer) if len(frame) else frame

    def view(self, data: str, model: str, label: str) -> MetricResults:
        """The rows of a configured metric for one data set and model, with all that its figures need."""
        return self._view(self.labels[label], data, model, self.frame(data, model, label))

    def _view(self, known: ConfiguredMetric, data: str, model: str, frame: pl.DataFrame) -> MetricResults:
        jobs = self.results.jobs
        if {"data", "model", "label", "artefacts", "status"} <= set(jobs.columns):
            mine = (pl.col("data") == data) & (pl.col("model") == model) & (pl.col("label") == known.name)
            jobs = jobs.filter(mine & (pl.col("status") == "done") & pl.col("artefacts"))
        else:
            jobs = jobs.clear()
        return MetricResults(
            known.name,
            known.metric,
            known.options,
            known.spec,
            data,
            model,
            self.explainers,
            frame,
            self._bounds(data),
            jobs,
            self.results.artefacts,
            self._texts(data, "features"),
            [words for words in self._texts(data, "tokens") if not isinstance(words, str)],
            self.controls,
        )

    def _bounds(self, data: str) -> tuple[float, float]:
        """The range of the inputs, over all features."""
        try:
            (low, _), (_, high) = self.manifest["data"][data]["bounds"]
            return float(low), float(high)
        except (KeyError, TypeError, ValueError):
            return float("nan"), float("nan")

    def _texts(self, data: str, key: str) -> list[Any]:
        """What the manifest stores of a data set's names; empty where it has none."""
        stored = (self.manifest.get("data") or {}).get(data)
        found = stored.get(key) if isinstance(stored, dict) else None
        return list(found) if isinstance(found, (list, tuple)) else []

    def views(self, label: str) -> Iterator[MetricResults]:
        """The views of a label that have rows."""
        for data, model in self.pairs:
            if len(self.frame(data, model, label)):
                yield self.view(data, model, label)

    @cached_property
    def rankings(self) -> list[Ranking]:
        """The rankings of the explainers, for each data set, model and label that has a direction."""
        if not self._stored:
            return []
        specs = {name: label.spec for name, label in self.labels.items()}
        return rank_explainers(self.samples, specs, unranked=self.controls)

    @property
    def controls(self) -> list[str]:
        """The control explainers, where there are others: references, which are neither best nor worst."""
        return self.explainers.controls

    def count_explainers(self) -> str:
        """How many explainers and controls there are, in words."""
        own = len(self.explainers) - len(self.controls)
        text = f"{own} explainer{'' if own == 1 else 's'}"
        count = len(self.controls)
        return text + (f" and {count} control{'' if count == 1 else 's'}" if count else "")

    @cached_property
    def control_tests(self) -> dict[tuple[str, str, str], list[ControlTest]]:
        """The tests of explainers against the controls, by data, model and label, for metrics that ask for them."""
        return self.compare_with_controls([n for n, each in self.labels.items() if each.kind and each.kind.controls])

    def compare_with_controls(self, labels: Sequence[str]) -> dict[tuple[str, str, str], list[ControlTest]]:
        """The tests of explainers against the controls by some metrics."""
        specs = {name: self.labels[name].spec for name in labels}
        return compare_controls(self.samples, specs, self.controls) if self._stored and self.controls else {}

    @cached_property
    def comparisons(self) -> dict[tuple[str, str, str], Comparison]:
        """The comparisons of the rankings, by data, model and label."""
        return {(found.data, found.model, found.label): found.comparison for found in self.rankings}

    @cached_property
    def agreements(self) -> dict[tuple[str, str], Agreement]:
        """How much the labels agree, by data and model, where at least three explainers are ranked."""
        return {(a.data, a.model): a for a in measure_agreements(self.rankings) if len(a.explainers) >= 3}

    @cached_property
    def warnings(self) -> list[tuple[str, str]]:
        """Results that contradict each other: the kind, and a sentence from the metric's template."""
        found: list[tuple[str, str]] = []
        for data, model in self.pairs:
            views = [self.view(data, model, label) for label in self.labels if len(self.frame(data, model, label))]
            for view in views:
                own = self.labels[view.label].presentation
                others = [other for other in views if other is not view]
                found += [
                    (each.kind, words_of(own).say(each.macro, each.facts)) for each in own.contradictions(view, others)
                ]
        return found
