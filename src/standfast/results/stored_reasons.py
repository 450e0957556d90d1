"""Cards of stored results: which jobs a card is made of, and the user's words for what is in it."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl

from standfast.cells.words import describe_cell
from standfast.errors import ArgumentError, check
from standfast.results.configured_metric import ConfiguredMetric
from standfast.results.metric_results import MetricResults, StoredSample
from standfast.results.reasons import Card, Source, StoredDraws, Wanted, make_card
from standfast.statistics.reasons import schedule_looks
from standfast.tensors import Array

#: the name of the metric whose draws are read
METRIC = "reasons"
_ARRAYS = ("origin_map", "named_for", "named_against", "mean_map", "origin_input")
_OPTIONAL_ARRAYS = ("draw_maps", "named_low", "named_high")
#: the status of a sample that a model decides otherwise than it was asked for
_OTHERWISE = ("misclassified", "no_answer")
#: the sources that a job can vary
_OF_A_JOB: tuple[Source, ...] = ("seed", "background", "measurement")


class Opened(Protocol):
    """Opened results, as far as cards need them."""

    @property
    def metrics(self) -> Mapping[str, ConfiguredMetric]:
        """The configured metrics by their labels."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The configuration."""

    def metric_results(self, data: str, model: str, label: str) -> MetricResults:
        """The rows of a configured metric for one data set and model."""


@dataclass(frozen=True)
class Place:
    """Which decision a card is about.

    Attributes:
        data, model, explainer: names.
        sample: its number.
    """

    data: str
    model: str
    explainer: str
    sample: int


def read_card(
    results: Opened,
    place: Place,
    retrained: Opened | None = None,
    models: Sequence[str] = (),
    others: Sequence[str] = (),
) -> Card:
    """The card of a sample, from all jobs that belong to it.

    Args:
        results: with the metric `reasons` of all sources (the first such metric), and perhaps of each source alone.
        place: which decision.
        retrained: results of the same samples by models that were trained again; None for those of `results`.
        models: the names of these models.
        others: names of other explainers.

    Raises:
        ArgumentError: no reasons are stored, or none of this sample.
    """
    data, model, explainer, sample = place.data, place.model, place.explainer, place.sample
    labels = [label for label, metric in results.metrics.items() if metric.metric == METRIC]
    check(len(labels) > 0, "results", "those of the metric reasons", "none")
    view = results.metric_results(data, model, labels[0])
    stored = _load(view, explainer, sample)
    if stored is None:
        raise ArgumentError(
            "sample", f"a sample of which {explainer} has reasons", _describe_missing(view, explainer, sample)
        )
    given = _read_draws(view, stored)
    wanted = _read_wanted(view, stored)
    by_models = results if retrained is None else retrained
    gathered = _Gathering(results, by_models, place, given, wanted)
    again, counted = gathered.gather_models(models)
    if stored.row.get("few_samples"):
        gathered.notes.append(
            f"{explainer} draws fewer samples than its features need, so its values are drawn towards equal ones. More"
            " draws do not mend that; more samples of the explainer do."
        )
    by_others = gathered.gather_others(others, counted)
    alone = _read_alone(results, place, labels[1:])
    names, columns = _name_features(view, stored)
    about = {
        "data": data,
        "sample": sample,
        "answer": describe_answer(view, stored.row),
        "score": _read_number(stored.row.get("answer_score")),
        "score_name": view.task.probability,
        "unused": _list_unused(view, given),
        "columns": columns,
        "input": stored.arrays.get("origin_input"),
        "notes": tuple(gathered.notes),
    }
    return make_card(about, given, wanted, again, by_others, alone, names)


class _Gathering:
    """Gathers the draws of retrained models and of other explainers.

    Args:
        results: of the given model.
        by_models: of the models that were trained again.
        place: which decision.
        given: the draws of the given model and explainer.
        wanted: what is asked for.

    Attributes:
        notes: which of them do not count, and why, in sentences.
    """

    def __init__(self, results: Opened, by_models: Opened, place: Place, given: StoredDraws, wanted: Wanted) -> None:
        self._results, self._by_models, self._place = results, by_models, place
        self._given, self._wanted = given, wanted
        self._answer = _find_answer(results, place)
        self.notes: list[str] = []

    def gather_models(self, models: Sequence[str]) -> tuple[list[StoredDraws | None], list[str]]:
        """The draws of retrained models, None of one that answers otherwise, and the names of those that count."""
        again: list[StoredDraws | None] = []
        counted: list[str] = []
        missing: Counter[str] = Counter()
        for name in models:
            draws = self._read_model(name, self._place.explainer)
            if isinstance(draws, str):
                missing[draws] += 1
                continue
            counted.append(name)
            again.append(draws)
        for status, count in missing.items():
            self.notes.append(
                f"{count} of {len(models)} retrained models could not be explained ({status}), and did not count."
            )
        return again, counted

    def gather_others(self, others: Sequence[str], models: Sequence[str]) -> dict[str, list[StoredDraws | None]]:
        """The draws of other explainers, of the given model and behind it of these models."""
        by_others: dict[str, list[StoredDraws | None]] = {}
        for other in others:
            place = dataclasses.replace(self._place, explainer=other)
            of_given = _read_other(self._results, place, self._given, self._answer)
            if isinstance(of_given, str):
                self.notes.append(f"{other} could not explain this ({of_given}), and did not count.")
                continue
            of_models = [self._read_model(name, other) for name in models]
            by_others[other] = [of_given, *(None if isinstance(draws, str) else draws for draws in of_models)]
            if of_given is not None and of_given.is_never_negative and not self._given.is_never_negative:
                self.notes.append(
                    f"No number of {other} is negative here, so it names no reason against the answer with its sign; if"
                    " it has no signs at all, those reasons are steadier than it seems."
                )
        return by_others

    def _read_model(self, name: str, explainer: str) -> StoredDraws | str | None:
        """The draws of a retrained model that count; None if it answers otherwise, and else why there are none."""
        place = dataclasses.replace(self._place, model=name, explainer=explainer)
        draws = _read_other(self._by_models, place, self._given, self._answer)
        if not isinstance(draws, StoredDraws):
            return draws
        return _take_first_look(draws, _find_view(self._by_models, place.data, name), self._wanted)


def _read_alone(results: Opened, place: Place, labels: Sequence[str]) -> dict[Source, StoredDraws]:
    """The draws in which one source varied, of the metrics with these labels."""
    alone: dict[Source, StoredDraws] = {}
    for label in labels:
        view = results.metric_results(place.data, place.model, label)
        stored = _load(view, place.explainer, place.sample)
        varies = list(view.options.get("vary") or [])
        if stored is not None and len(varies) == 1:
            alone[varies[0]] = _read_draws(view, stored)
    return alone


def _load(view: MetricResults, explainer: str, sample: int) -> StoredSample | None:
    """What is stored of a sample; None if it was not evaluated."""
    return view.load_sample(explainer, sample, _ARRAYS, _OPTIONAL_ARRAYS)


def _describe_missing(view: MetricResults, explainer: str, sample: int) -> str:
    """Why there are no reasons of a sample."""
    statuses = view.rows_for(explainer, sample)["status"].to_list()
    if not statuses:
        return f"{sample}, which was not evaluated"
    return f"{sample}, whose status is {statuses[0]}"


@dataclass(frozen=True)
class _Answer:
    """What a model answers, as numbers.

    Attributes:
        target: the class, the label, or the output that is explained.
        number: what a regressor predicts; None for classes.
        tolerance: how far such a number may be from another one that is the same answer.
    """

    target: object
    number: float | None
    tolerance: float

    def is_same(self, other: _Answer) -> bool:
        """Whether both models decide the same."""
        if self.target != other.target:
            return False
        if self.number is None or other.number is None or not math.isfinite(self.tolerance):
            return True
        return abs(self.number - other.number) <= self.tolerance


def _find_view(results: Opened, data: str, model: str) -> MetricResults:
    """The first metric of reasons."""
    label = next((label for label, metric in results.metrics.items() if metric.metric == METRIC), "")
    return results.metric_results(data, model, label)


def _find_rows(results: Opened, place: Place) -> pl.DataFrame:
    """The rows of a sample in the first metric of reasons."""
    return _find_view(results, place.data, place.model).rows_for(place.explainer, place.sample)


def _find_answer(results: Opened, place: Place) -> _Answer:
    """What a model answers for a sample that was evaluated."""
    about = (results.manifest.get("models") or {}).get(place.model) or {}
    written = re.fullmatch(r"Regression\(tolerance=(.+)\)", str(about.get("task")))
    row = _find_rows(results, place).row(0, named=True)
    answer = row.get("answer")
    return _Answer(
        target=row.get("targets"),
        number=float(answer) if isinstance(answer, int | float) else None,
        tolerance=float(written[1]) if written else math.inf,
    )


def _read_other(results: Opened, place: Place, given: StoredDraws, own_answer: _Answer) -> StoredDraws | str | None:
    """The draws of another model or explainer; None of a model that answers otherwise, and else why there are none.

    A map without any reason, such as one of zeros, is a draw that names none of them.
    """
    view = _find_view(results, place.data, place.model)
    stored = _load(view, place.explainer, place.sample)
    if stored is not None:
        is_same = _find_answer(results, place).is_same(own_answer)
        return _read_draws(view, stored) if is_same else None
    statuses = _find_rows(results, place)["status"].to_list()
    status = str(statuses[0]) if statuses else "not evaluated"
    if status in _OTHERWISE:
        return None
    return _make_empty(place, given) if status == "degenerate" else status


def _make_empty(place: Place, given: StoredDraws) -> StoredDraws:
    """The only draw of a map that names nothing."""
    nothing = np.zeros(given.origin.shape)
    return StoredDraws(
        model=place.model,
        explainer=place.explainer,
        target=given.target,
        origin=nothing,
        named_for=nothing.astype(np.int64),
        named_against=nothing.astype(np.int64),
        mean=nothing,
        maps=nothing[None][:0],
        drawn=0,
        kept=0,
        looks=0,
        varied=(),
    )


def _read_draws(view: MetricResults, stored: StoredSample) -> StoredDraws:
    """The draws of a stored sample."""
    row, arrays = stored.row, stored.arrays
    features = len(arrays["origin_map"])
    varied = tuple(source for source in _OF_A_JOB if row.get(f"varied_{source}"))
    return StoredDraws(
        model=view.model,
        explainer=stored.explainer,
        target=row.get("targets"),
        origin=arrays["origin_map"].astype(float),
        named_for=arrays["named_for"],
        named_against=arrays["named_against"],
        mean=arrays["mean_map"],
        maps=_select_draws(arrays.get("draw_maps"), features),
        drawn=int(row.get("drawn") or 0),
        kept=int(row.get("answer_kept") or 0),
        looks=int(row.get("looks") or 0),
        varied=varied,
        row=row,
        low=arrays.get("named_low"),
        high=arrays.get("named_high"),
    )


def _take_first_look(draws: StoredDraws, view: MetricResults, wanted: Wanted) -> StoredDraws:
    """The draws of a retrained model up to its first look.

    Further draws are made where reasons are not decided before. So their number depends on what the draws show, and the
    share that a model has of its hits would be biased. It is the number of models that counts.
    """
    if draws.maps is None or not wanted.decides_each:
        return draws
    first, *_ = schedule_looks(int(view.options["draws"]), wanted.demand, reasons=wanted.top)
    if draws.drawn <= first:
        return draws
    maps = draws.maps[:first]
    kept = int(np.isfinite(maps).all(1).sum())
    return dataclasses.replace(draws, maps=maps, drawn=first, kept=kept, looks=1)


def _select_draws(maps: Array | None, features: int) -> Array | None:
    """The draws, of the features that the sample has."""
    return None if maps is None else maps[:, :features].astype(float)


def _read_wanted(view: MetricResults, stored: StoredSample) -> Wanted:
    """What the metric was asked."""
    features = len(stored.arrays["origin_map"])
    top = round(float(stored.row["chance"]) * features)
    return Wanted(
        top=top,
        demand=float(view.options.get("demand") or 0.9),
        speaking=str(view.options.get("speaking") or "both"),
        shares_places=bool(stored.arrays["origin_input"].ndim > 1),
    )


def _list_unused(view: MetricResults, given: StoredDraws) -> tuple[Source, ...]:
    """The sources that were switched on, and that this explainer does not have."""
    asked = view.options.get("vary") or _OF_A_JOB
    has_neighbourhood = view.options.get("neighbourhood") is not None
    return tuple(
        source
        for source in _OF_A_JOB
        if source in asked and source not in given.varied and (source != "measurement" or has_neighbourhood)
    )


def _name_features(view: MetricResults, stored: StoredSample) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """For each feature its name, and its words with a value; and the values of all columns by name."""
    values = stored.arrays["origin_input"]
    if values.ndim != 1:
        return [], {}
    if view.tokens and stored.sample < len(view.tokens):
        words = [str(word).strip() for word in view.tokens[stored.sample]]
        return [(word, word) for word in words], {}
    names = list(view.features) or [f"feature {number}" for number in range(len(values))]
    cells: list[str] = []
    for place, number in enumerate(values.tolist()):
        column = view.columns[place] if place < len(view.columns) else None
        words_of_cell = describe_cell(column, number) if column is not None else ""
        cells.append(words_of_cell or format_value(number))
    columns = dict(zip(names, cells, strict=True))
    return [(name, f"{name} {cell}") for name, cell in zip(names, cells, strict=True)], columns


def format_value(number: float) -> str:
    """A value of a feature, with separators of thousands.

    >>> format_value(9400.0), format_value(0.25), format_value(1234567.5)
    ('9,400', '0.25', '1,234,568')
    """
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.4g}"


def describe_answer(view: MetricResults, row: Mapping[str, Any]) -> str:
    """What the model answers for a sample, in words: of a decision its rule, or that it is not met."""
    if row.get("answer") is not None:
        return f"{view.task.answer} {row['targets']}"
    kind = view.task.kind or "answer"
    answer = str(row.get("targets"))
    return f"{kind} {answer}" if answer.isdigit() else answer


def _read_number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
