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

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from standfast.errors import ArgumentError, suggest_name
from standfast.explainers import Explainer, explainers, from_callable
from standfast.explainers import get as get_explainer
from standfast.explainers.base import check_explained
from standfast.frame_inputs import fit_explainer, fit_metric
from standfast.frames.model import check_losses
from standfast.metrics.base import Metric, Preset, has_neighbourhood
from standfast.metrics.sanity import make_checks
from standfast.model import Model
from standfast.neighbourhoods import LinfBall, Neighbourhood
from standfast.neighbourhoods.naming import join_label
from standfast.neighbourhoods.transformations import check_fits
from standfast.question.controls import keep_useful, list_default_controls, select_defaults
from standfast.question.grid import Grid, Samples
from standfast.study.file import entries
from standfast.study.file.document import Document, StudyError, read_document, read_plain
from standfast.study.file.entries import Count, OptionValues, Reference, RequirementEntry, as_tuple
from standfast.study.file.imports import call_function, resolve
from standfast.study.file.names import (
    CONTROLS,
    DATA,
    EXPLAINERS,
    METRICS,
    MODELS,
    CheckedEntry,
    NamedEntry,
    Names,
    read_section,
)
from standfast.study.file.options import (
    background_from,
    configure,
    make,
    neighbourhood_from,
    neighbourhoods_from,
    plain_options,
    to_plain,
)
from standfast.study.file.problems import (
    Entry,
    StudyFieldError,
    errors_at,
    make_unknown_error,
    raise_all,
    reject,
    show,
    with_article,
)
from standfast.study.file.references import ReferenceReader
from standfast.study.file.sources import DataEntry, ModelEntry, ModelFolder, StudyModel, build_source, try_out
from standfast.study.file.tables import join_tables
from standfast.study.file.texts import read_words
from standfast.study.run import number_labels
from standfast.text_inputs import ReadTexts, check_change, check_removal, default_change, fit_explainers
from standfast.texts import TextModel

__all__ = ["Study", "StudyError", "load_study", "study_from"]


# Explainers and metrics


class MetricFunction(Entry):
    """A metric of the user's.

    Args:
        function: a class of metrics, a Metric, or a function that returns one.
        options: of the class, or arguments of the function.
        trust: import a module from outside of the study's folder.
    """

    #: what is made of it
    kind: ClassVar[type] = Metric
    function: Reference
    options: OptionValues = Field({})
    trust: bool = False

    def load(self, label: str, base: Path, common: Mapping[str, Any]) -> Any:
        """What `function` names, or what is made of it.

        Args:
            label: of the entry.
            base: the folder that functions are imported from.
            common: options of the study, for a class that has them.
        """
        with errors_at("function"):
            found = resolve(self.function, [str(base)], self.trust)
        if isinstance(found, type) and issubclass(found, self.kind):
            defaults = _select_known(found, common)
            with errors_at("options"):
                if isinstance(defaults.get("neighbourhood"), tuple) and "neighbourhood" not in self.options:
                    raise reject("a neighbourhood, as the study has several", "nothing")
                return configure(found, label, {**defaults, **self.options})
        given = self.model_dump(exclude_unset=True, exclude={"function", "trust"})
        if not isinstance(found, self.kind):
            return self._make(found, label, base, given)
        for key, value in given.items():
            raise reject(f"no {key}, as the {self.kind.__name__} is configured already", show(value), key)
        return found

    def _make(self, found: Any, label: str, base: Path, given: Mapping[str, Any]) -> Any:
        with errors_at("function"):
            made = call_function(self.function, self.options, [str(base)], self.trust, "a metric")
            if not isinstance(made, Metric):
                raise reject("a Metric", f"{with_article(type(made).__name__)} from {self.function}")
            return made


class ExplainerFunction(MetricFunction):
    """An explainer of the user's.

    Args:
        function: a function of (module, inputs, targets), an Explainer, or a class of them.
        options: of a class of explainers.
        differentiable: the function's result can be differentiated.
        rows_per_input: rows that the function forwards at once for one input.
    """

    kind: ClassVar[type] = Explainer
    differentiable: bool = False
    rows_per_input: Count = 1

    def _make(self, found: Any, label: str, base: Path, given: Mapping[str, Any]) -> Explainer:
        if not callable(found):
            raise reject("a function or an Explainer", with_article(type(found).__name__), "function")
        if "options" in given:
            raise reject("no options, as these go with a class of explainers", show(given["options"]), "options")
        return from_callable(found, name=label, **given)


#: what the sections hold: the thing itself, or the function that is imported for it
Explained = CheckedEntry[Explainer | ExplainerFunction]
Measured = CheckedEntry[Metric | MetricFunction]
#: what is made of an entry, and its plain form; several of a metric that is evaluated in several neighbourhoods
_Made = dict[str, tuple[Any, dict[str, Any]]]


def explainers_from(raw: object) -> dict[str, Explained]:
    """The section `explainers`, by label.

    >>> list(explainers_from(["saliency", {"lrp": {"epsilon": 1e-6}}, "lrp", {"mine": "saliency"}]))
    ['saliency', 'lrp: epsilon=1e-06', 'lrp', 'mine']
    """
    return read_section(raw, EXPLAINERS, _build_explainer, _labels_of_explainers)


def controls_from(raw: object) -> bool | dict[str, Explained]:
    """The section `controls`: whether there are the usual ones, or some by label."""
    if isinstance(raw, bool):
        return raw
    return read_section(raw, CONTROLS, _build_explainer, _labels_of_explainers)


def metrics_from(raw: object, info: ValidationInfo) -> dict[str, Measured]:
    """The section `metrics`, by label, with the study's own `neighbourhood` (or several) and `preset`."""
    # where the file's own neighbourhood is wrong, its absence needs no second error
    common = {"neighbourhood": info.data.get("neighbourhood", LinfBall(0.1)), "preset": info.data.get("preset")}
    return read_section(raw, METRICS, partial(_build_metric, common=common), _labels_of_metrics)


def load_evaluation(
    entry: CheckedEntry[Any], label: str, references: ReferenceReader, common: Mapping[str, Any] | None = None
) -> Any:
    """The explainer or metric of an entry: a function is imported, and reference inputs are read.

    A function `(module, inputs, targets) -> attributions` becomes an explainer called `label`, a class is configured
    with the entry's options, and an explainer or a metric is taken as it is. `common` are the study's own options.
    """
    value = entry.value
    if isinstance(value, MetricFunction):
        value = value.load(label, references.base, common or {})
    return references.read_in(value)


def _labels_of_explainers(found: Sequence[Explained]) -> list[str]:
    """Names; with those options that are not as they are by default where several have one name."""
    labels, names = [], [entry.name for entry in found]
    for name, entry in zip(names, found, strict=True):
        defaults: dict[str, Any] = {}
        with contextlib.suppress(TypeError):  # it has options without a default
            defaults = {} if isinstance(entry.value, MetricFunction) else plain_options(type(entry.value)())
        options = entry.plain if isinstance(entry.value, MetricFunction) else entry.plain[name]
        own = ", ".join(f"{key}={value}" for key, value in options.items() if defaults.get(key, ...) != value)
        labels.append(f"{name}: {own}" if own and names.count(name) > 1 else name)
    return labels


def _labels_of_metrics(found: Sequence[Measured]) -> list[str]:
    own = (entry.value.own_label if isinstance(entry.value, Metric) else entry.name for entry in found)
    return number_labels(join_label(label, entry.variant) for label, entry in zip(own, found, strict=True))


def _build_function(kind: type[MetricFunction], named: NamedEntry) -> _Made:
    function = kind.model_validate(named.options)
    return {"": (function, function.model_dump(exclude_unset=True))}


def _build_metric(named: NamedEntry, common: Mapping[str, Any]) -> _Made:
    """A metric, or one for each of several neighbourhoods: a list of its own, or that of the study.

    Only a list for `neighbourhood` itself stands for several values: `{jpeg: [30, 90]}` is one neighbourhood.
    """
    if named.form:
        return _build_function(MetricFunction, named)
    kind = METRICS.registry[named.name]
    options = _select_known(kind, common) | dict(named.options)
    place = options.get("neighbourhood")
    if place is None and has_neighbourhood(kind, required=True):
        own = f"{{{named.name}: {{neighbourhood: {{linf: 0.1}}}}}}"
        words = f"a neighbourhood for {named.name}, as in {own}, or neighbourhood: {{linf: 0.1}} for all metrics"
        raise reject(words, "nothing", "neighbourhood")
    if not isinstance(place, list | tuple) or not has_neighbourhood(kind):
        metric = configure(kind, named.name, options)
        return {"": (metric, {named.name: plain_options(metric)})}
    with errors_at("neighbourhood"):
        places = neighbourhoods_from(place)
    made = {label: configure(kind, named.name, {**options, "neighbourhood": each}) for label, each in places.items()}
    return {label: (metric, {named.name: plain_options(metric)}) for label, metric in made.items()}


def _build_explainer(named: NamedEntry) -> _Made:
    """An explainer; the options of one of another package are that package's: lists as tuples, else as they stand."""
    if named.form:
        return _build_function(ExplainerFunction, named)
    if not explainers.is_from_package(named.name):
        explainer = configure(explainers[named.name], named.name, named.options)
        return {"": (explainer, {named.name: plain_options(explainer)})}

    def tuples_for_lists(raw: Any) -> Any:
        return tuple(map(tuples_for_lists, raw)) if isinstance(raw, list) else raw

    options = {}
    for key, value in named.options.items():
        if not isinstance(key, str):
            raise reject("the name of an option", show(key), key)
        with errors_at(key):
            options[key] = background_from(value) if key == "background" else tuples_for_lists(value)
    explainer = make(partial(get_explainer, named.name), named.name, options, list(options))
    background = {"background": to_plain(options["background"])} if "background" in options else {}
    return {"": (explainer, {named.name: {**named.options, **background}})}


def _select_known(kind: type[Any], common: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    return {name: value for name, value in common.items() if value is not None and name in known}


# The study


def _labels(found: Sequence[CheckedEntry[Any]]) -> list[str]:
    """Of data and models that have none in the file."""
    return [entry.name for entry in found]


def _sources(names: Names) -> PlainValidator:
    return PlainValidator(lambda raw: read_section(raw, names, build_source, _labels))


def _neighbourhood(raw: object, info: ValidationInfo) -> Neighbourhood | tuple[Neighbourhood, ...] | None:
    """As the file says; of texts there is a default."""
    if isinstance(raw, list | tuple):
        return tuple(neighbourhoods_from(raw).values())
    if raw is not None:
        return neighbourhood_from(raw)
    entries = [entry.value for section in ("data", "models") for entry in info.data.get(section, {}).values()]
    texts = any(isinstance(each, ModelFolder) or getattr(each, "text", None) is not None for each in entries)
    return default_change() if texts else None


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
        neighbourhood: for all metrics that have one and do not set it; a list for each in turn. Of texts, typos in one
            word of ten by default.
        preset: values for metric options that this file does not set. A metric may have a preset of its own.
        explainers: Explainers, as a list or under labels.
        metrics: Metrics, as a list or under labels.
        controls: explainers that say nothing about what a model has learned, beside the others; true for those that fit
            the models and the data, false for none, or a list as of explainers.
        sanity: check whether each explainer depends on the input and the model; a number: on so many samples.
        executor: who does the work.
        requirements: what the numbers must show, for `standfast check`; nothing else reads it.
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
        Any, PlainValidator(_neighbourhood), _refer_to("neighbourhoods"), Field(validate_default=True)
    ] = None
    preset: Preset = "standard"
    explainers: Annotated[dict[str, Explained], PlainValidator(explainers_from), _refer_to("explainers")]
    metrics: Annotated[dict[str, Measured], PlainValidator(metrics_from), _refer_to("metrics")]
    controls: Annotated[bool | dict[str, Explained], PlainValidator(controls_from), _refer_to("controls")] = True
    sanity: bool | Count = True
    executor: entries.ExecutorField = entries.LocalEntry()
    requirements: Annotated[tuple[RequirementEntry, ...], BeforeValidator(as_tuple)] = ()

    _document: Document = PrivateAttr(default_factory=lambda: Document("study", Path(), {}))

    @property
    def name(self) -> str:
        """Of the file, as it was given to `load_study`; "study" for one from a mapping."""
        return self._document.name

    @property
    def base(self) -> Path:
        """The folder that paths are relative to and functions are imported from."""
        return self._document.base

    def grid(self, check: bool = True) -> Grid:
        """Everything that the study evaluates: data in memory, files of models read, functions imported.

        Args:
            check: run each model once, on the CPU, on one sample of each data set that it meets.

        Raises:
            StudyError: files, functions, values and shapes that do not fit, each at its place in the file.
        """
        errors: list[StudyFieldError] = []
        base, references = self.base, ReferenceReader(self.base)
        common: dict[str, Any] = {"neighbourhood": self.neighbourhood, "preset": self.preset}
        with errors_at(into=errors):
            common["neighbourhood"] = references.read_in(self.neighbourhood, "neighbourhood")
        samples, sources, explainers, metrics = (dict[str, Any]() for _ in range(4))
        for name, data in self.data.items():
            with errors_at(*data.path, into=errors):
                samples[name] = data.value.load(base, self.samples)
        for name, model in self.models.items():
            with errors_at(*model.path, into=errors):
                for own, entry in model.value.spread(name).items():
                    sources[own] = entry.source(base)
        for label, explained in self.explainers.items():
            with errors_at(*explained.path, into=errors):
                explainers[label] = load_evaluation(explained, label, references)
        controls = self._load_controls(references, errors)
        pairs = self._pairs()
        for label, measured in self.metrics.items():
            with errors_at(*measured.path, into=errors):
                metrics[label] = load_evaluation(measured, label, references, common)
            for name in dict.fromkeys(data for data, _ in pairs if data in samples and label in metrics):
                with errors_at(*measured.path, into=errors):
                    _look_up(metrics[label], samples[name], name)
        table = None
        with errors_at("data", into=errors):
            samples, table = join_tables(samples, metrics.values())
        if table is not None:
            explainers = {label: fit_explainer(explainer) for label, explainer in explainers.items()}
            controls = {label: fit_explainer(control) for label, control in controls.items()}
            for label in list(metrics):
                with errors_at(*self.metrics[label].path, into=errors):
                    metrics[label] = fit_metric(metrics[label], table)
        removals: dict[str, str] = {}
        if any(each.texts is not None for each in samples.values()):
            readers = self._read_texts(samples, sources, errors)
            explainers, given, metrics = fit_explainers(explainers), metrics, {}
            controls = fit_explainers(controls)
            for label, metric in given.items() if readers else ():
                with errors_at(*self.metrics[label].path, into=errors):
                    fitted = ReadTexts.fit_metrics({label: metric}, readers[0], self.preset, removals)
                    places = [getattr(each, "neighbourhood", None) for each in fitted.values()]
                    for place, found in itertools.product(filter(None, places), samples.values()):
                        check_change(place, found.inputs)
                    metrics |= fitted
            with errors_at("explainers", into=errors):
                for reader in readers:
                    check_removal(reader, explainers.values())
        tried_models = self._try_models(sources if check else {}, explainers, metrics, samples, errors)
        if not errors:
            if self.controls is True and tried_models:
                inputs = [found.inputs for found in samples.values()]
                controls = select_defaults(list_default_controls(explainers, tried_models, inputs), explainers)
            with errors_at(into=errors):
                controls = keep_useful(controls, explainers, metrics.values())
        if errors:
            problems = [problem for error in errors for problem in error.problems]
            raise self._document.error(problems) from errors[0].__cause__
        return Grid(
            data=samples,
            models=sources,
            explainers={**explainers, **controls},
            controls=tuple(controls),
            metrics=metrics,
            pairs=pairs,
            seed=self.seed,
            repeats=self.repeats,
            samples_per_job=self.samples_per_job,
            device=self.device,
            sanity=make_checks(self.sanity),
            paths=(str(self.base),),
            about={"removal": removals} if removals else {},
        )

    def _try_models(
        self,
        sources: Mapping[str, StudyModel],
        explainers: Mapping[str, Explainer],
        metrics: Mapping[str, Metric],
        samples: Mapping[str, Samples],
        errors: list[StudyFieldError],
    ) -> list[Model]:
        """Run each model on one sample of the data that it meets; add errors about it, and about what does not fit.

        Returns:
            The models.
        """
        tried_models: list[Model] = []
        for model_name, source in sources.items():
            for data_name in [data for data, met in self._pairs() if met == model_name and data in samples]:
                with errors_at(*self._find_entry(model_name).path, into=errors):
                    tried = try_out(source, samples[data_name], f"on data {data_name!r}")
                    tried_models.append(tried)
                    for metric in metrics.values():
                        check_losses(tried, getattr(metric, "neighbourhood", None))
        if not errors and tried_models:
            self._check_kinds(tried_models, explainers, metrics, samples, errors)
        return tried_models

    def _load_controls(self, references: ReferenceReader, errors: list[StudyFieldError]) -> dict[str, Explainer]:
        """The controls that the file names."""
        controls: dict[str, Explainer] = {}
        for label, entry in self.controls.items() if isinstance(self.controls, dict) else ():
            with errors_at(*entry.path, into=errors):
                controls[label] = load_evaluation(entry, label, references)
        return controls

    def _check_kinds(
        self,
        models: Sequence[Model],
        explainers: Mapping[str, Explainer],
        metrics: Mapping[str, Metric],
        samples: Mapping[str, Samples],
        errors: list[StudyFieldError],
    ) -> None:
        """Add errors about explainers that no model takes, and neighbourhoods of another kind of inputs."""
        with errors_at("explainers", into=errors):
            check_explained(models, explainers.values())
        for label, measured in self.metrics.items():
            place = getattr(metrics.get(label), "neighbourhood", None)
            for data in samples.values():
                with errors_at(*measured.path, key="neighbourhood", into=errors):
                    lower, upper = (torch.as_tensor(bound) for bound in data.bounds)
                    check_fits(place, data.inputs, (lower, upper))

    def _read_texts(
        self, samples: dict[str, Samples], sources: Mapping[str, StudyModel], errors: list[StudyFieldError]
    ) -> list[TextModel]:
        """Put the words of texts, as their models read them, into the samples; the models of texts.

        Samples that cannot be read are left out, and so are those whose models cannot be loaded.
        """
        models: dict[str, TextModel] = {}
        for name, source in sources.items():
            with errors_at(*self._find_entry(name).path, into=errors):
                models[name] = source.load_text_model()
        for name in list(samples):
            own = samples.pop(name)
            met = {model: models[model] for data, model in self._pairs() if data == name and model in models}
            with errors_at(*self.data[name].path, key=self.data[name].value.form, into=errors):
                if own.texts is None:
                    raise reject("texts alone, or none", "both; make a study of each")
                if met:
                    samples[name] = read_words(own, met)
        return list(models.values())

    def _pairs(self) -> list[tuple[str, str]]:
        own = [(each, model) for name, model in self.models.items() for each in model.value.spread(name)]
        return [(data, name) for data in self.data for name, model in own if data in (model.value.data or self.data)]

    def _find_entry(self, name: str) -> CheckedEntry[ModelEntry]:
        """The entry of a model, also of one of those with seeds."""
        return next(model for own, model in self.models.items() if name in model.value.spread(own))

    @model_validator(mode="after")
    def _check_meetings(self) -> Study:
        """Models and requirements name what there is, and every data set meets a model."""
        errors: list[StudyFieldError] = []
        for model in self.models.values():
            for index, name in enumerate(model.value.data or ()):
                with errors_at(*model.path, into=errors):
                    _check_known("the name of data", name, self.data, "data", index)
        met = {data for data, _ in self._pairs()}
        for name, entry in self.data.items():
            with errors_at(*entry.path, into=errors):
                if name not in met:
                    raise reject("data that a model meets", "none that does")
        labels = dict.fromkeys([*self.metrics, *(measured.name for measured in self.metrics.values())])
        for index, requirement in enumerate(self.requirements):
            with errors_at("requirements", index, into=errors):
                for name in requirement.explainer or ():
                    _check_known("the name of an explainer", name, self.explainers, "explainer")
                for name in requirement.data or ():
                    _check_known("the name of data", name, self.data, "data")
                for name in requirement.model or ():
                    _check_known("the name of a model", name, self.models, "model")
                _check_known("the name of an explainer", requirement.better_than, self.explainers, "better_than")
                _check_known("the label or the name of a metric", requirement.metric, labels, "metric")
        raise_all(errors)
        return self

    def plain(self) -> dict[str, Any]:
        """The study as plain values with every default spelled out; `study_from` makes the same study of it.

        >>> words = {"data": {"d": "digits"}, "models": {"m": "lenet5-mnist"}, "explainers": ["lrp"]}
        >>> study = study_from({**words, "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.1}}}]})
        >>> study.plain()["explainers"]
        {'lrp': {'lrp': {'epsilon': 1e-09}}}
        """
        sections: dict[str, Mapping[str, CheckedEntry[Any]]]
        sections = {"data": self.data, "models": self.models, "explainers": self.explainers, "metrics": self.metrics}
        if isinstance(self.controls, dict):
            sections["controls"] = self.controls
        content = self.model_dump(mode="json", exclude_none=True, exclude={*sections, "neighbourhood", "executor"})
        if not self.requirements:
            del content["requirements"]
        if self.neighbourhood is not None:
            content["neighbourhood"] = to_plain(self.neighbourhood)
        for section, checked in sections.items():
            content[section] = {label: to_plain(entry.plain) for label, entry in checked.items()}
        return {**content, "executor": self.executor.model_dump(mode="json", exclude_none=True)}


def _check_known(what: str, name: str | None, known: Mapping[str, Any], *place: str | int) -> None:
    if name is not None and name not in known:
        raise make_unknown_error(what, name, known, *place)


def _look_up(metric: Metric, samples: Samples, name: str) -> None:
    """What a metric names of a data set is there, and fits it."""
    try:
        metric.bind(extras=samples.extras, inputs=samples.inputs, rows=slice(0, len(samples)))
    except ArgumentError as error:
        got = f"{error.got}{suggest_name(str(error.got).strip(chr(39)), samples.extras)}"
        raise reject(error.expected, got, error.argument, note=f"on data {name!r}") from error


def load_study(path: str | Path, preset: str | None = None) -> Study:
    """The study in the file at `path`: read, with names, options and types checked. Runs no code of the user's.

    Args:
        path: of the file.
        preset: replaces the file's own.

    Raises:
        StudyError: the file is missing or no YAML, or something in it is wrong; each problem with its path and line.
    """
    return _check(read_document(path), preset)


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
      sede: expected a known key (title, seed, ...), got 'sede'
          (did you mean 'seed'?)
    """
    try:
        return _check(Document("study", Path(base).resolve(), read_plain(content)))
    except StudyFieldError as error:
        raise StudyError("study", error.problems) from error


def _check(document: Document, preset: str | None = None) -> Study:
    if preset is not None and isinstance(document.content, Mapping):
        document = replace(document, content={**document.content, "preset": preset})
    try:
        with errors_at():
            study = Study.model_validate(document.content)
    except StudyFieldError as error:
        raise document.error(error.problems) from error
    study._document = document
    return study
