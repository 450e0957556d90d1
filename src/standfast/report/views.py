"""What the page still reads of results by other names, and names that can be drawn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import polars as pl

from standfast.report.words import words_of
from standfast.results import MetricResults, Results
from standfast.results.tables import count_explainers
from standfast.statistics.comparison import Comparison, ControlTest
from standfast.statistics.ranking import Agreement
from standfast.study.store import COORDINATES

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


class Contents:
    """Results, by the names that the page uses."""

    def __init__(self, results: Results) -> None:
        self.results, self.manifest = results, results.manifest
        self.explainers, self.controls = results.explainers, results.explainers.controls
        self.data, self.models, self.pairs = results.data, results.models, results.pairs
        self.labels, self.samples = results.metrics, results.compared_samples
        self.repeats = int(self.manifest.get("repeats") or 1)
        self.where, self.frame, self.rows, self.view = (
            results.name_pair,
            results.select,
            results.select,
            results.metric_results,
        )

    def views(self, label: str) -> Iterator[MetricResults]:
        """The results of a metric on all data sets and models that have rows."""
        yield from self.results.list_metric_results(label)

    def count_explainers(self) -> str:
        """How many explainers and controls there are, in words."""
        return count_explainers(self.explainers)

    @property
    def comparisons(self) -> dict[tuple[str, str, str], Comparison]:
        """The tests between explainers."""
        found = self.results.summary.metrics
        return {(each.data, each.model, each.label): each.comparison for each in found if each.comparison is not None}

    @property
    def control_tests(self) -> dict[tuple[str, str, str], list[ControlTest]]:
        """The tests against controls."""
        found = self.results.summary.metrics
        return {(each.data, each.model, each.label): each.control_tests for each in found if each.control_tests}

    @property
    def agreements(self) -> dict[tuple[str, str], Agreement]:
        """How much the metrics agree."""
        return dict(self.results.summary.agreements)

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
