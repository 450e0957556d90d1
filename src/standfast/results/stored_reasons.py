"""Cards of stored results: which jobs a card is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from standfast.errors import ArgumentError, check
from standfast.results.configured_metric import ConfiguredMetric
from standfast.results.metric_results import MetricResults, StoredSample
from standfast.results.reasons import Card, Source, StoredDraws, Wanted, make_card
from standfast.results.reasons.answers import Answer, name_answer, read_tolerance
from standfast.results.reasons.digests import read_digests
from standfast.results.reasons.feature_names import name_features
from standfast.results.reasons.measured import (
    describe_measurement,
    is_about_raising,
    name_unit,
    read_measures,
)
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
    retrained: Mapping[str, Opened] | None = None,
    others: Sequence[str] = (),
    units: Mapping[str, str] | None = None,
    model_looks: Sequence[int] = (),
) -> Card:
    """The card of a sample, from all jobs that belong to it.

    Args:
        results: with the metric `reasons` of all sources (the first such metric), and perhaps of each source alone.
        place: which decision.
        retrained: of models that were trained again, by name: the results of the same samples that have this model.
        others: names of other explainers.
        units: of columns, by name, for the words of their values; before those that a study file has.
        model_looks: after how many of `retrained` it was decided whether to train further models; empty where their
            number was fixed.

    Raises:
        ArgumentError: no reasons are stored, or none of this sample.
    """
    labels = []
    for label, metric in results.metrics.items():
        if metric.metric == METRIC:
            labels.append(label)
    check(len(labels) > 0, "results", "those of the metric reasons", "none")
    view = results.metric_results(place.data, place.model, labels[0])
    stored = _load(view, place.explainer, place.sample)
    if stored is None:
        expected = f"a sample of which {place.explainer} has reasons"
        raise ArgumentError(
            "sample", expected, _describe_missing(view, place.explainer, place.sample)
        )
    by_models = retrained or {}
    wishes = _read_wanted(view, stored)
    reader = _OtherDraws(results, by_models, place, _read_draws(view, stored), wishes)
    of_models = reader.read_models()
    if stored.row.get("few_samples"):
        reader.notes.append(
            f"{place.explainer} draws fewer samples than its features need, so its values are drawn towards equal"
            " ones. More draws do not mend that; more samples of the explainer do."
        )
    of_explainers = reader.read_explainers(others, list(of_models))
    about_data = (results.manifest.get("data") or {}).get(place.data) or {}
    names = name_features(view, stored, {**(about_data.get("units") or {}), **(units or {})})
    measures, scale = read_measures(results.manifest, place.explainer)
    is_changed = "measurement" in reader.given.varied
    parts = {"model": place.model, "data": place.data, "explainer": place.explainer}
    clean_input = stored.arrays["origin_input"]
    about = {
        "data": place.data,
        "sample": place.sample,
        **vars(name_answer(view, stored)),
        "unused": _list_unused(view, reader.given),
        "columns": names.columns or {},
        "input": clean_input,
        "notes": tuple(reader.notes),
        "digests": read_digests(
            results.manifest, parts, {name: opened.manifest for name, opened in by_models.items()}
        ),
        "has_signs": read_signs(results.manifest, place.explainer),
        "name": _read_name(view, place.sample),
        "changes": describe_measurement(view, clean_input.shape) if is_changed else "",
        "measures": measures,
        "unit": name_unit(measures, scale, view.task),
    }
    alone = _read_alone(results, place, labels[1:])
    names_of_models = list(by_models)
    looks = tuple(_count_listed(names_of_models[:trained], of_models) for trained in model_looks)
    return make_card(
        about,
        reader.given,
        replace(wishes, model_looks=looks),
        list(of_models.values()),
        of_explainers,
        alone,
        names.features,
    )


def _read_name(view: MetricResults, sample: int) -> str:
    """What the user calls a sample; empty where it has no name."""
    if sample < len(view.sample_names):
        return view.sample_names[sample]
    return ""


def _count_listed(names: Sequence[str], of_models: Mapping[str, StoredDraws | None]) -> int:
    """How many of these models could be explained."""
    return sum(name in of_models for name in names)


def read_signs(manifest: Mapping[str, Any], explainer: str) -> bool | None:
    """Whether an explainer declares signs (`Explainer.has_signs`); None also in manifests that do not say it."""
    declared = (manifest.get("signs") or {}).get(explainer)
    return declared if isinstance(declared, bool) else None


class _OtherDraws:
    """Reads the draws of retrained models and of other explainers.

    Attributes:
        given: the draws of the model and the explainer that are explained.
        notes: what has to be known of those that do not count, in sentences.
    """

    def __init__(
        self,
        results: Opened,
        by_models: Mapping[str, Opened],
        place: Place,
        given: StoredDraws,
        wanted: Wanted,
    ) -> None:
        self._results = results
        self._by_models = by_models
        self._place = place
        self._wanted = wanted
        self._answer = _find_answer(results, place)
        self.given = given
        self.notes: list[str] = []

    def read_models(self) -> dict[str, StoredDraws | None]:
        """The draws of each retrained model that counts, by name; None of one that answers otherwise."""
        missing: Counter[str] = Counter()
        counted: dict[str, StoredDraws | None] = {}
        for name in self._by_models:
            draws = self._read_model(name, self._place.explainer)
            if isinstance(draws, str):
                missing[draws] += 1
            else:
                counted[name] = draws
        for status, count in missing.items():
            models = f"{count} of {len(self._by_models)} retrained models"
            self.notes.append(f"{models} could not be explained ({status}), and did not count.")
        return counted

    def read_explainers(
        self, others: Sequence[str], models: Sequence[str]
    ) -> dict[str, list[StoredDraws | None]]:
        """The draws of other explainers: of the given model, and behind it of the retrained models."""
        of_explainers: dict[str, list[StoredDraws | None]] = {}
        for other in others:
            of_given = self._read(self._results, replace(self._place, explainer=other))
            if isinstance(of_given, str):
                self.notes.append(
                    f"{other} could not explain this ({of_given}), and did not count."
                )
                continue
            of_models = [self._read_model(name, other) for name in models]
            all_draws: list[StoredDraws | None] = [of_given]
            for draws in of_models:
                # a text says why there are none
                all_draws.append(None if isinstance(draws, str) else draws)
            of_explainers[other] = self._compare_signs(other, all_draws)
        return of_explainers

    def _compare_signs(
        self, other: str, all_draws: list[StoredDraws | None]
    ) -> list[StoredDraws | None]:
        """The draws of another explainer; with signs of the given one where those of both cannot be compared."""
        manifest, both = self._results.manifest, (self._place.explainer, other)
        declared = {read_signs(manifest, name) for name in both}
        of_both = " and ".join(both)
        why_not = ""
        if False in declared and declared != {False}:
            why_not = f"Of {of_both} one has no signs"
        elif declared == {True} and len({is_about_raising(manifest, name) for name in both}) > 1:
            why_not = (
                f"Of {of_both} one says by its signs what raising a feature does, and the other what the feature does"
                " as it is"
            )
        if why_not:
            self.notes.append(f"{why_not}, so places alone count here.")
            signs = np.where(self.given.origin < 0, -1.0, 1.0)
            return [None if draws is None else draws.adopt_signs(signs) for draws in all_draws]
        of_given = all_draws[0]
        has_none = of_given is not None and of_given.is_never_negative
        if has_none and declared != {False} and not self.given.is_never_negative:
            # also of one that declares signs: Grad-CAM sets to 0 what speaks against the answer
            note = f"No number of {other} is negative here, so it names no reason against the answer with its sign"
            if None in declared:
                note += "; if it has no signs at all, those reasons are steadier than it seems"
            self.notes.append(f"{note}.")
        return all_draws

    def _read_model(self, name: str, explainer: str) -> StoredDraws | str | None:
        """The draws of a retrained model that count; None if it answers otherwise, else why there are none."""
        decision = replace(self._place, model=name, explainer=explainer)
        results = self._by_models[name]
        draws = self._read(results, decision)
        if not isinstance(draws, StoredDraws):
            return draws
        looks = _schedule_draws(_find_view(results, decision), self._wanted.top)
        return _take_first_look(draws, looks, self._wanted)

    def _read(self, results: Opened, place: Place) -> StoredDraws | str | None:
        """The draws of another model or explainer; None of a model that answers otherwise, else why there are none.

        A map without any reason, such as one of zeros, is a draw that names none of them.
        """
        view = _find_view(results, place)
        stored = _load(view, place.explainer, place.sample)
        if stored is not None:
            is_same = _find_answer(results, place).is_same(self._answer)
            return _read_draws(view, stored) if is_same else None
        statuses = view.rows_for(place.explainer, place.sample)["status"].to_list()
        status = str(statuses[0]) if statuses else "not evaluated"
        if status in _OTHERWISE:
            return None
        if status == "degenerate":
            return _make_empty(place, self.given)
        return status


def _read_alone(results: Opened, place: Place, labels: Sequence[str]) -> dict[Source, StoredDraws]:
    """The draws in which one source varies, by metrics with these labels."""
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


def _find_view(results: Opened, place: Place) -> MetricResults:
    """The rows of the first metric of reasons."""
    label = next(
        (label for label, metric in results.metrics.items() if metric.metric == METRIC), ""
    )
    return results.metric_results(place.data, place.model, label)


def _find_answer(results: Opened, place: Place) -> Answer:
    """What a model answers for a sample that was evaluated."""
    about = (results.manifest.get("models") or {}).get(place.model) or {}
    row = _find_view(results, place).rows_for(place.explainer, place.sample).row(0, named=True)
    answer = row.get("answer")
    return Answer(
        target=row.get("targets"),
        number=float(answer) if isinstance(answer, int | float) else None,
        tolerance=read_tolerance(about),
    )


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
    row = stored.row
    arrays = stored.arrays
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


def _take_first_look(draws: StoredDraws, looks: Sequence[int], wanted: Wanted) -> StoredDraws:
    """The draws of a retrained model up to its first look.

    Further draws are made where reasons are not decided before. So their number depends on what the draws show, and the
    share that a model has of its hits would be biased. It is the number of models that counts.
    """
    if draws.maps is None or not wanted.decides_each:
        return draws
    first = looks[0]
    if draws.drawn <= first:
        return draws
    maps = draws.maps[:first]
    kept = int(np.isfinite(maps).all(1).sum())
    return replace(draws, maps=maps, drawn=first, kept=kept, looks=1)


def _select_draws(maps: Array | None, features: int) -> Array | None:
    """The draws, of the features that the sample has."""
    if maps is None:
        return None
    return maps[:, :features].astype(float)


def _read_wanted(view: MetricResults, stored: StoredSample) -> Wanted:
    """What the metric was asked."""
    features = len(stored.arrays["origin_map"])
    top = round(float(stored.row["chance"]) * features)
    return Wanted(
        top=top,
        demand=float(view.options.get("demand") or 0.9),
        speaking=str(view.options.get("speaking") or "both"),
        shares_places=bool(stored.arrays["origin_input"].ndim > 1),
        looks=_schedule_draws(view, top),
    )


def _schedule_draws(view: MetricResults, top: int) -> tuple[int, ...]:
    """After how many draws of a job its reasons were looked at."""
    demand = float(view.options.get("demand") or 0.9)
    return schedule_looks(int(view.options["draws"]), demand, reasons=top)


def _list_unused(view: MetricResults, given: StoredDraws) -> tuple[Source, ...]:
    """The sources that were switched on, and that this explainer does not have."""
    switched_on = view.options.get("vary") or _OF_A_JOB
    has_neighbourhood = view.options.get("neighbourhood") is not None
    return tuple(
        source
        for source in _OF_A_JOB
        if source in switched_on
        and source not in given.varied
        and (source != "measurement" or has_neighbourhood)
    )
