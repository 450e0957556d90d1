"""The study file: what to evaluate, on what, and where; checked before anything runs.

    title: How robust are explanations of a digit classifier?
    samples: 20
    data: {digits: digits}
    models: {lenet: lenet5-mnist}
    neighbourhood: {linf: 0.1}
    explainers:
      - saliency
      - integrated_gradients: {steps: 32}
    metrics:
      - worst_case: {budget: 1000}

`load_study` checks names, options and types without running anything of the user's; `Study.grid` reads the files,
imports the functions, and runs each model once. Either says all that it finds in one `StudyError`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)

from standfast.errors import ArgumentError, suggest_name
from standfast.explainers import Explainer
from standfast.metrics.base import Ladder, Metric, Preset, list_cheaper
from standfast.model import Model
from standfast.neighbourhoods import Neighbourhood
from standfast.question.arguments import DEFAULT_NEIGHBOURHOOD
from standfast.question.grid import Extra, Grid, ModelSource, Samples
from standfast.question.inputs import Given, Inputs, Places, read_given
from standfast.question.metric_labels import NamedMetric, list_extras
from standfast.question.question import Question
from standfast.study.file import entries
from standfast.study.file.changes import apply_changes
from standfast.study.file.data_sources import DataEntry
from standfast.study.file.document import Document, StudyError, read_document, read_plain
from standfast.study.file.entries import Count, RequirementEntry, as_tuple
from standfast.study.file.evaluations import (
    Explained,
    Measured,
    UnplacedMetric,
    controls_from,
    explainers_from,
    load_evaluation,
    metrics_from,
)
from standfast.study.file.model_sources import ModelEntry, try_out
from standfast.study.file.names import DATA, MODELS, CheckedEntry, Names, read_section
from standfast.study.file.options import (
    neighbourhood_from,
    neighbourhoods_from,
    plain_options,
    to_plain,
)
from standfast.study.file.problems import (
    Entry,
    Keys,
    StudyFieldError,
    errors_at,
    make_unknown_error,
    raise_all,
    reject,
)
from standfast.study.file.references import ReferenceReader
from standfast.study.file.sources import build_source
from standfast.study.file.tables import DataTable

#: a form of data that is read beside the others
FORMS_OF_DATA: tuple[type[DataEntry], ...] = (DataTable,)

__all__ = ["Study", "StudyError", "load_evaluation", "load_study", "study_from"]


class FilePlaces(Places):
    """Where the parts of a study stand in its file. Errors are collected, and raised together.

    Args:
        study: whose parts they are.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.errors: list[StudyFieldError] = []

    def at(self, section: str, name: str = "", key: str = "") -> AbstractContextManager[None]:
        path, own_key = self.study.find_place(section, name)
        return errors_at(*path, key=key or own_key, into=self.errors)

    def raise_errors(self) -> None:
        if self.errors:
            problems = [problem for error in self.errors for problem in error.problems]
            raise self.study._document.error(problems) from self.errors[0].__cause__


def _labels(entries: Sequence[CheckedEntry[Any]]) -> list[str]:
    """Of data and models that have none in the file."""
    return [entry.name for entry in entries]


def _sources(names: Names) -> PlainValidator:
    return PlainValidator(lambda raw: read_section(raw, names, build_source, _labels))


def _neighbourhood(raw: object) -> Neighbourhood | tuple[Neighbourhood, ...] | None:
    """As the file says; None where it says nothing."""
    if isinstance(raw, list | tuple):
        return tuple(neighbourhoods_from(raw).values())
    # None is no missing value here: it asks for the default neighbourhood of the data
    if raw is None:
        return None
    return neighbourhood_from(raw)


def _refer_to(definition: str) -> WithJsonSchema:
    """The schema of a section that `schema` writes itself."""
    return WithJsonSchema({"$reference": definition})


class Study(Entry):
    """What to evaluate, on what, and where.

    Args:
        title: for the report.
        seed: of every random stream.
        repeats: how often everything is done, each time with other random numbers.
        device: where models run.
        samples: take this many of each data set, from its start; default all.
        samples_per_job: samples between two writes, on which results do not depend; by default as many as fit in
            memory and take about 20 seconds.
        data: Data: of a loader, in a file, or from a function; a list or under labels.
        models: Models: of the zoo, from a function, or in a file; a list or under labels.
        neighbourhood: for all metrics that have one and do not set it; a list for each in turn. By default that of
            `evaluate`, which depends on the data.
        preset: values for metric options that this file does not set. A metric may have a preset of its own.
        explainers: Explainers, as a list or under labels.
        metrics: Metrics, as a list or under labels.
        controls: explainers that say nothing about what a model has learned, beside the others; true for those that fit
            the models and the data, false for none, or a list as of explainers.
        sanity: check whether each explainer depends on the input and the model; a number: on so many samples.
        minutes: how long all of it may take; what the file does not set is chosen, as by `evaluate`.
        executor: who does the work.
        requirements: what the numbers must show, for `standfast check`; nothing else reads it.
        choose: how the explainers race, for `standfast choose`; nothing else reads it.
        units: of columns, by name, which cards of reasons have beside their values.
    """

    title: str = ""
    seed: entries.WholeNumber = 0
    repeats: Count = 1
    device: entries.Device = "auto"
    samples: Count | None = None
    samples_per_job: Count | None = None
    data: Annotated[dict[str, CheckedEntry[DataEntry]], _sources(DATA), _refer_to("data")]
    models: Annotated[dict[str, CheckedEntry[ModelEntry]], _sources(MODELS), _refer_to("models")]
    neighbourhood: Annotated[
        Any,
        PlainValidator(_neighbourhood),
        _refer_to("neighbourhoods"),
        Field(validate_default=True),
    ] = None
    preset: Preset = "standard"
    explainers: Annotated[
        dict[str, Explained], PlainValidator(explainers_from), _refer_to("explainers")
    ]
    metrics: Annotated[dict[str, Measured], PlainValidator(metrics_from), _refer_to("metrics")]
    controls: Annotated[
        bool | dict[str, Explained], PlainValidator(controls_from), _refer_to("controls")
    ] = True
    sanity: bool | Count = True
    minutes: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    executor: entries.ExecutorField = entries.LocalEntry()
    requirements: Annotated[tuple[RequirementEntry, ...], BeforeValidator(as_tuple)] = ()
    choose: entries.ChooseEntry | None = None
    units: dict[str, str] = Field(default_factory=dict)

    _document: Document = PrivateAttr(default_factory=lambda: Document("study", Path(), {}))

    @property
    def name(self) -> str:
        """Of the file, as it was given to `load_study`; "study" for one from a mapping."""
        return self._document.name

    @property
    def base(self) -> Path:
        """The folder that paths are relative to and functions are imported from."""
        return self._document.base

    @property
    def named_controls(self) -> dict[str, Explained]:
        """The controls that the file names, by label."""
        if isinstance(self.controls, dict):
            return self.controls
        return {}

    def grid(self, check: bool = True) -> Grid:
        """Everything that the study evaluates: data in memory, files of models read, functions imported.

        Args:
            check: run each model once, on the CPU, on one sample of each data set that it meets. Without that there are
                no controls but those that the file names.

        Raises:
            StudyError: files, functions, values and shapes that do not fit, each at its place in the file.
        """
        try_model = _try_model if check else None
        return self.ask().make_grid(try_model)

    def ask(self) -> Question:
        """The question that the study asks: data in memory, files of models read, functions imported.

        Raises:
            StudyError: files, functions and values that do not fit, each at its place in the file.
        """
        file_places = FilePlaces(self)
        references = ReferenceReader(self.base)
        data = self._load_data(file_places)
        models = self._load_models(file_places)
        explainers = _load_all(self.explainers, "explainers", file_places, references)
        controls = _load_all(self.named_controls, "controls", file_places, references)
        common_options = self._read_common_options(file_places, references)
        loaded_metrics = _load_all(self.metrics, "metrics", file_places, references, common_options)
        inputs: Inputs | None = None
        with file_places.at("data"):
            changes = [metric for metric in loaded_metrics.values() if isinstance(metric, Metric)]
            inputs = read_given(Given(data, models, self._pairs(), changes, places=file_places))
        # errors of the data are all that can be said; without data nothing else can be checked
        if inputs is None:
            file_places.raise_errors()
        assert inputs is not None
        about: dict[str, Any] = {}
        metrics = _place_metrics(loaded_metrics, inputs, file_places, about)
        _look_up_extras(metrics, inputs, file_places)
        self._set_units(inputs, file_places)
        fitted_controls = _fit_explainers(controls, "controls", inputs, file_places)
        return Question(
            inputs=inputs,
            explainers=_fit_explainers(explainers, "explainers", inputs, file_places),
            metrics=metrics,
            ladders=self._list_ladders(metrics),
            extras=_list_extras(loaded_metrics, metrics, inputs, about),
            controls=self.controls if isinstance(self.controls, bool) else fitted_controls,
            sanity=self.sanity,
            pairs=self._pairs(),
            seed=self.seed,
            repeats=self.repeats,
            samples_per_job=self.samples_per_job,
            device=self.device,
            paths=(str(self.base),),
            about=about,
            places=file_places,
        )

    def _set_units(self, inputs: Inputs, file_places: FilePlaces) -> None:
        """Give each data set the units of its columns; an error at its line for a column that none has."""
        columns_of_data = {name: samples.features or () for name, samples in inputs.samples.items()}
        all_columns = list(dict.fromkeys(chain.from_iterable(columns_of_data.values())))
        for column in self.units:
            with errors_at(into=file_places.errors):
                if column not in all_columns:
                    raise make_unknown_error("a column", column, all_columns, "units", column)
        for name, columns in columns_of_data.items():
            units = {}
            for column, unit in self.units.items():
                if column in columns:
                    units[column] = unit
            if units:
                samples = inputs.samples[name]
                about = {**samples.about, "units": units}
                inputs.samples[name] = replace(samples, about=about)

    def _load_data(self, file_places: FilePlaces) -> dict[str, Any]:
        """The data sets, as their kind of inputs takes them."""
        data: dict[str, Any] = {}
        for name, entry in self.data.items():
            with errors_at(*entry.path, into=file_places.errors):
                data[name] = entry.value.load(self.base, self.samples)
        return data

    def _load_models(self, file_places: FilePlaces) -> dict[str, ModelSource]:
        """The sources of the models, one for each seed and window."""
        models: dict[str, ModelSource] = {}
        for name, entry in self.models.items():
            with errors_at(*entry.path, into=file_places.errors):
                for own_name, single_entry in entry.value.spread(name).items():
                    models[own_name] = single_entry.source(self.base)
        return models

    def _read_common_options(
        self, file_places: FilePlaces, references: ReferenceReader
    ) -> dict[str, Any]:
        """The study's own options, for metrics that have them."""
        common: dict[str, Any] = {"neighbourhood": self.neighbourhood, "preset": self.preset}
        with errors_at(into=file_places.errors):
            common["neighbourhood"] = references.read_in(self.neighbourhood, "neighbourhood")
        return common

    def _list_ladders(self, metrics: Mapping[str, Metric]) -> dict[str, Ladder]:
        """Cheaper settings of the metrics whose options the file leaves open, by label."""
        # who names a preset has decided on the settings
        if "preset" in self.model_fields_set:
            return {}
        ladders: dict[str, Ladder] = {}
        for label, metric in metrics.items():
            entry = self.metrics.get(label)
            # else it is a function's, which is configured already
            if entry is not None and isinstance(entry.value, Metric | UnplacedMetric):
                ladders[label] = list_cheaper(metric, entry.given)
        return ladders

    def find_place(self, section: str, name: str = "") -> tuple[Keys, str]:
        """Where a part stands in the file, and the key of it that errors are about."""
        if section == "models" and name:
            return self._find_entry(name).path, ""
        entries_of_section = getattr(self, section)
        if isinstance(entries_of_section, dict):
            entry = entries_of_section.get(name)
        else:
            entry = None
        if entry is None:
            return (section,), ""
        kind = entry.value.form if section == "data" else ""
        return entry.path, kind

    def _pairs(self) -> list[tuple[str, str]]:
        data_of_models: dict[str, Container[str]] = {}
        for entry_name, model in self.models.items():
            for name in model.value.spread(entry_name):
                data_of_models[name] = model.value.data or self.data
        pairs: list[tuple[str, str]] = []
        for data in self.data:
            pairs += [(data, name) for name, names in data_of_models.items() if data in names]
        return pairs

    def _find_entry(self, name: str) -> CheckedEntry[ModelEntry]:
        """The entry of a model, also of one of those with seeds."""
        for entry_name, model in self.models.items():
            if name in model.value.spread(entry_name):
                return model
        # pairs are made of these entries alone
        raise AssertionError(f"no model is called {name!r}")

    @model_validator(mode="after")
    def _check_meetings(self) -> Study:
        """Models and requirements name what there is, and every data set meets a model."""
        errors: list[StudyFieldError] = []
        self._check_data_of_models(errors)
        if self.choose is not None:
            labels = self._list_metric_names()
            with errors_at("choose", into=errors):
                _check_known("the label or the name of a metric", self.choose.by, labels, "by")
        for index, requirement in enumerate(self.requirements):
            with errors_at("requirements", index, into=errors):
                self._check_names_of(requirement)
        raise_all(errors)
        return self

    def _check_data_of_models(self, errors: list[StudyFieldError]) -> None:
        for model in self.models.values():
            for index, name in enumerate(model.value.data or ()):
                with errors_at(*model.path, into=errors):
                    _check_known("the name of data", name, self.data, "data", index)
        data_with_models = {data for data, _ in self._pairs()}
        for name, entry in self.data.items():
            with errors_at(*entry.path, into=errors):
                if name not in data_with_models:
                    raise reject("data that a model meets", "none that does")

    def _check_names_of(self, requirement: RequirementEntry) -> None:
        for name in requirement.explainer or ():
            _check_known("the name of an explainer", name, self.explainers, "explainer")
        for name in requirement.data or ():
            _check_known("the name of data", name, self.data, "data")
        for name in requirement.model or ():
            _check_known("the name of a model", name, self.models, "model")
        compared = {**self.explainers, **self.named_controls}
        _check_known("the name of an explainer", requirement.better_than, compared, "better_than")
        labels = self._list_metric_names()
        _check_known("the label or the name of a metric", requirement.metric, labels, "metric")

    def _list_metric_names(self) -> dict[str, None]:
        """The labels of the metrics, and then their names."""
        names = [measured.name for measured in self.metrics.values()]
        return dict.fromkeys([*self.metrics, *names])

    def plain(self) -> dict[str, Any]:
        """The study as plain values with every default spelled out; `study_from` makes the same study of it.

        >>> words = {"data": {"d": "digits"}, "models": {"m": "lenet5-mnist"}, "explainers": ["lrp"]}
        >>> study = study_from({**words, "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.1}}}]})
        >>> study.plain()["explainers"]
        {'lrp': {'lrp': {'epsilon': 1e-09}}}
        """
        sections: dict[str, Mapping[str, CheckedEntry[Any]]]
        sections = {
            "data": self.data,
            "models": self.models,
            "explainers": self.explainers,
            "metrics": self.metrics,
        }
        if self.named_controls:
            sections["controls"] = self.named_controls
        content = self.model_dump(
            mode="json", exclude_none=True, exclude={*sections, "neighbourhood", "executor"}
        )
        if not self.requirements:
            del content["requirements"]
        if not self.units:
            del content["units"]
        if self.neighbourhood is not None:
            content["neighbourhood"] = to_plain(self.neighbourhood)
        for section, checked in sections.items():
            content[section] = {label: to_plain(entry.plain) for label, entry in checked.items()}
        return {**content, "executor": self.executor.model_dump(mode="json", exclude_none=True)}

    def plain_with(
        self,
        settings: Mapping[str, Mapping[str, Any]],
        controls: Sequence[str],
        checked: int | None,
        extras: Mapping[str, Metric],
    ) -> dict[str, Any]:
        """The study as plain values with what was chosen for a limited time, so that the same jobs can be made again.

        Args:
            settings: options of metrics, by label.
            controls: the default controls that are evaluated.
            checked: how many samples have sanity checks; None for as many as the study says.
            extras: metrics that were added, by label.
        """
        content = self.plain()
        # the choice stands for the limit; with both, another run would choose again
        content.pop("minutes", None)
        for label, metric in extras.items():
            content["metrics"][label] = to_plain({metric.name: plain_options(metric)})
        for label, options in settings.items():
            entry = self.metrics.get(label)
            # an extra has no entry in the file, and its options are complete already
            if entry is not None:
                ((name, file_options),) = content["metrics"][label].items()
                content["metrics"][label] = {name: {**file_options, **options}}
        if self.controls is True and not controls:
            content["controls"] = False
        if checked is not None:
            content["sanity"] = checked or False
        return content


def _check_known(
    what: str, name: str | None, existing: Mapping[str, Any], *keys: str | int
) -> None:
    if name is not None and name not in existing:
        raise make_unknown_error(what, name, existing, *keys)


def _load_all(
    section: Mapping[str, CheckedEntry[Any]],
    name: str,
    file_places: FilePlaces,
    references: ReferenceReader,
    common: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The explainers, controls or metrics of a section, by label."""
    loaded: dict[str, Any] = {}
    for label, entry in section.items():
        with file_places.at(name, label):
            loaded[label] = load_evaluation(entry, label, references, common)
    return loaded


def _fit_explainers(
    explainers: Mapping[str, Explainer], section: str, inputs: Inputs, file_places: Places
) -> dict[str, Explainer]:
    """The explainers for these inputs."""
    fitted: dict[str, Explainer] = {}
    for label, explainer in explainers.items():
        with file_places.at(section, label):
            fitted[label] = inputs.fit_explainer(explainer)
    return fitted


def _place_metrics(
    metrics: Mapping[str, Metric | UnplacedMetric],
    inputs: Inputs,
    file_places: Places,
    about: dict[str, Any],
) -> dict[str, Metric]:
    """The metrics, of which those without a neighbourhood get the default one; `about` gets what the report says.

    As in `evaluate`, there is a default only where a metric needs one; then all have it.
    """
    is_needed = any(
        isinstance(metric, UnplacedMetric) and metric.alone is None for metric in metrics.values()
    )
    placed: dict[str, Metric] = {}
    default: Neighbourhood | None = None
    for label, metric in metrics.items():
        if isinstance(metric, Metric):
            placed[label] = metric
            continue
        if metric.alone is not None and not is_needed:
            placed[label] = metric.alone
            continue
        if not inputs.samples:  # none could be read, and errors say so
            continue
        with file_places.at("metrics", label, metric.stand_in.neighbourhood_option):
            if default is None:
                default, about[DEFAULT_NEIGHBOURHOOD] = inputs.default_neighbourhood()
            usual_options = inputs.default_options(type(metric.stand_in))
            placed[label] = metric.place(default, usual_options)
    return placed


def _list_extras(
    metrics: Mapping[str, Metric | UnplacedMetric],
    placed: Mapping[str, Metric],
    inputs: Inputs,
    about: Mapping[str, Any],
) -> dict[str, Extra]:
    """The metrics that got a default neighbourhood in the further ones, by label."""
    # if one could not be placed, errors say so, and nothing further is evaluated
    if DEFAULT_NEIGHBOURHOOD not in about or len(placed) < len(metrics):
        return {}

    def place(neighbourhood: Neighbourhood) -> list[NamedMetric]:
        again: list[NamedMetric] = []
        for label, metric in metrics.items():
            if isinstance(metric, UnplacedMetric):
                options = inputs.default_options(type(metric.stand_in))
                again.append(NamedMetric(label, metric.place(neighbourhood, options)))
            else:
                again.append(NamedMetric(label, metric))
        return again

    first = [NamedMetric(label, metric) for label, metric in placed.items()]
    return list_extras(
        first, [neighbourhood for neighbourhood, _ in inputs.default_neighbourhoods()], place
    )


def _look_up_extras(metrics: Mapping[str, Metric], inputs: Inputs, file_places: Places) -> None:
    """Check that what metrics name of the data is there, and fits them."""
    for label, metric in metrics.items():
        for name, samples in inputs.samples.items():
            with file_places.at("metrics", label):
                _look_up(metric, samples, name)


def _look_up(metric: Metric, samples: Samples, name: str) -> None:
    """What a metric names of a data set is there, and fits it."""
    try:
        metric.bind(extras=samples.extras, inputs=samples.inputs, rows=slice(0, len(samples)))
    except ArgumentError as error:
        # the quotation marks around a name in the message
        missing_name = str(error.got).strip(chr(39))
        got = f"{error.got}{suggest_name(missing_name, samples.extras)}"
        raise reject(error.expected, got, error.argument, note=f"on data {name!r}") from error


def _try_model(source: ModelSource, samples: Samples, data_name: str) -> Model:
    return try_out(source, samples, f"on data {data_name!r}")


def load_study(path: str | Path, preset: str | None = None, changes: Sequence[str] = ()) -> Study:
    """The study in the file at `path`: read, with names, options and types checked. Runs no code of the user's.

    Args:
        path: of the file.
        preset: replaces the file's own.
        changes: of its values, as `"samples=80"` or `"explainers+=smoothgrad"` (`apply_changes`).

    Raises:
        ArgumentError: a change has another form.
        StudyError: the file is missing or no YAML, or something in it is wrong; each problem with its path and line.
    """
    # before the checks, so that what a change breaks is shown like any other mistake
    return _check(apply_changes(read_document(path), changes), preset)


def study_from(content: Mapping[str, Any], base: str | Path = ".") -> Study:
    """The same from plain values, with paths relative to `base`.

    Raises:
        StudyError: something in it is wrong.

    >>> study_from({"data": {}, "sede": 1, "models": {}, "explainers": ["lrp"], "metrics": ["worst_cas"]})
    Traceback (most recent call last):
        ...
    standfast.study.file.document.StudyError: study: 4 problems
      data: expected at least one data set, got an empty mapping
      models: expected at least one model, got an empty mapping
      metrics[0]: expected a metric (...'worst_cas' (did you mean 'worst_case'?)
      sede: expected a known key (title, seed, ...'sede' (did you mean 'seed'?)
    """
    try:
        return _check(Document("study", Path(base).resolve(), read_plain(content)))
    except StudyFieldError as error:
        raise StudyError("study", error.problems) from error


def _check(document: Document, preset: str | None = None) -> Study:
    # what is no mapping is refused by the check below
    if preset is not None and isinstance(document.content, Mapping):
        document = replace(document, content={**document.content, "preset": preset})
    try:
        with errors_at():
            study = Study.model_validate(document.content)
    except StudyFieldError as error:
        raise document.error(error.problems) from error
    # a private attribute, since the document is no key of the file
    study._document = document
    return study
