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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from standfast.errors import ArgumentError
from standfast.metrics.base import Metric, Preset
from standfast.metrics.sanity import make_checks
from standfast.neighbourhoods import Neighbourhood
from standfast.study.file.document import Document, read_document, read_plain
from standfast.study.file.entries import (
    Count,
    Device,
    ExecutorField,
    LocalEntry,
    RequirementEntry,
    Seed,
    Text,
    as_tuple,
)
from standfast.study.file.evaluations import Explained, Measured, explainers_from, load_evaluation, metrics_from
from standfast.study.file.names import DATA, MODELS, CheckedEntry, Names, read_section
from standfast.study.file.options import neighbourhood_from, neighbourhoods_from, to_plain
from standfast.study.file.problems import (
    Collector,
    Entry,
    Keys,
    Misfit,
    StudyError,
    errors_at,
    find_nearest,
    make_unknown_error,
    misfit,
    show,
)
from standfast.study.file.sources import DataEntry, ModelEntry, build_entry, reading_from, try_out
from standfast.study.grid import Grid, Samples

__all__ = ["Study", "StudyError", "load_study", "study_from"]


def _labels(found: Sequence[CheckedEntry[Any]]) -> list[str]:
    """Of data and models that have none in the file."""
    return [str(entry.named.name) for entry in found]


def _sources(names: Names) -> PlainValidator:
    return PlainValidator(lambda raw: read_section(raw, names, partial(build_entry, names), _labels))


def _neighbourhood(raw: object) -> Neighbourhood | tuple[Neighbourhood, ...] | None:
    if isinstance(raw, list | tuple):
        return tuple(neighbourhoods_from(raw).values())
    return None if raw is None else neighbourhood_from(raw)


def _metrics(raw: object, info: ValidationInfo) -> dict[str, Measured]:
    common = {"neighbourhood": info.data.get("neighbourhood"), "preset": info.data.get("preset")}
    return metrics_from(raw, common, "neighbourhood" in info.data)


def _refer_to(definition: str, words: str = "a neighbourhood such as {linf: 0.1}") -> WithJsonSchema:
    """The schema of a section that `schema` writes itself, and what it should be in words."""
    return WithJsonSchema({"title": words, "$reference": definition})


class Study(Entry):
    """What to evaluate, on what, and where."""

    title: Text = Field(default="", description="For the report.")
    seed: Seed = Field(default=0, description="Of every random stream.")
    repeats: Count = Field(default=1, description="How often everything is done, each time with other random numbers.")
    device: Device = Field(default="auto", description="Where models run.")
    samples: Count | None = Field(
        default=None, description="Take this many of each data set, from its start; default all."
    )
    samples_per_job: Count = Field(default=4, description="Samples between two writes; results do not depend on it.")
    data: Annotated[
        dict[str, CheckedEntry[DataEntry]], _sources(DATA), _refer_to("data", "data, such as {digits: digits}")
    ] = Field(description="Data: of a loader, in a file, or from a function; a list or under labels.")
    models: Annotated[
        dict[str, CheckedEntry[ModelEntry]],
        _sources(MODELS),
        _refer_to("models", "models, such as {lenet: lenet5-mnist}"),
    ] = Field(description="Models: of the zoo, from a function, or in a file; a list or under labels.")
    neighbourhood: Annotated[Any, PlainValidator(_neighbourhood), _refer_to("neighbourhoods")] = Field(
        default=None, description="For all metrics that have one and do not set it; a list for each in turn."
    )
    preset: Preset = Field(
        default="standard",
        description="Values for metric options that this file does not set. A metric may have a preset of its own.",
    )
    explainers: Annotated[
        dict[str, Explained],
        PlainValidator(explainers_from),
        _refer_to("explainers", "explainers, such as [saliency]"),
    ] = Field(description="Explainers, as a list or under labels.")
    metrics: Annotated[
        dict[str, Measured],
        PlainValidator(_metrics),
        _refer_to("metrics", "metrics, such as [max_sensitivity]"),
    ] = Field(description="Metrics, as a list or under labels.")
    sanity: bool | Count = Field(
        default=True,
        description="Check whether each explainer depends on the input and the model; a number: on so many samples.",
    )
    executor: ExecutorField = Field(default=LocalEntry.model_validate({}), description="Who does the work.")
    requirements: Annotated[
        tuple[RequirementEntry, ...],
        BeforeValidator(as_tuple),
        Field(title="a list of requirements, such as [{metric: worst_case, at_least: 0.6}]"),
    ] = Field(default=(), description="What the numbers must show, for `standfast check`; nothing else reads it.")

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
        found, base = Collector(), self.base
        common: dict[str, Any] = {"neighbourhood": self.neighbourhood, "preset": self.preset}
        with found.at("neighbourhood"), reading_from(base):
            common["neighbourhood"] = _neighbourhood(self._document.content.get("neighbourhood"))
        samples, sources, explainers, metrics = (dict[str, Any]() for _ in range(4))
        for name, data in self.data.items():
            with found.at(place=partial(_place_of_data, data)):
                samples[name] = data.value.load(base, self.samples)
        for name, model in self.models.items():
            with found.at("models", place=model.place):
                sources[name] = model.value.source(base)
        for label, explained in self.explainers.items():
            with found.at("explainers", place=explained.place):
                explainers[label] = load_evaluation(explained, label, base)
        pairs = self._pairs()
        for label, measured in self.metrics.items():
            with found.at("metrics", place=measured.place):
                metrics[label] = load_evaluation(measured, label, base, common)
            for name in {data for data, _ in pairs if data in samples and label in metrics}:
                with found.at("metrics", place=measured.place):
                    _look_up(metrics[label], samples[name], name)
        for model_name in sources if check else ():
            for name in [name for name, met in pairs if met == model_name and name in samples]:
                with found.at("models", place=self.models[model_name].place):
                    try:
                        try_out(sources[model_name], samples[name])
                    except Misfit as error:
                        notes = (replace(each, note=f"on data {name!r}") for each in error.problems if not each.path)
                        raise Misfit(tuple(notes) or error.problems) from error.__cause__
        if found.problems:
            raise self._document.error(list(dict.fromkeys(found.problems))) from found.cause
        return Grid(
            data=samples,
            models=sources,
            explainers=explainers,
            metrics=metrics,
            pairs=pairs,
            seed=self.seed,
            repeats=self.repeats,
            samples_per_job=self.samples_per_job,
            device=self.device,
            sanity=make_checks(self.sanity),
            paths=(str(self.base),),
        )

    def _pairs(self) -> list[tuple[str, str]]:
        models = self.models.items()
        return [(data, name) for data in self.data for name, model in models if data in (model.value.data or self.data)]

    @model_validator(mode="after")
    def _check_meetings(self) -> Study:
        """Models and requirements name what there is, and every data set meets a model."""
        found = Collector()
        for model in self.models.values():
            for index, name in enumerate(model.value.data or ()):
                with found.at("models", place=model.place):
                    _check_known("the name of data", name, self.data, "data", index)
        met = {data for data, _ in self._pairs()}
        for name, entry in self.data.items():
            with found.at("data", *entry.path):
                if name not in met:
                    raise misfit("data that a model meets", "none that does")
        labels = dict.fromkeys([*self.metrics, *(str(measured.named.name) for measured in self.metrics.values())])
        for index, requirement in enumerate(self.requirements):
            with found.at("requirements", index):
                for name in requirement.explainer or ():
                    _check_known("the name of an explainer", name, self.explainers, "explainer")
                for name in requirement.data or ():
                    _check_known("the name of data", name, self.data, "data")
                for name in requirement.model or ():
                    _check_known("the name of a model", name, self.models, "model")
                _check_known("the name of an explainer", requirement.better_than, self.explainers, "better_than")
                _check_known("the label or the name of a metric", requirement.metric, labels, "metric")
        found.finish()
        return self

    def plain(self) -> dict[str, Any]:
        """The study as plain values with every default spelled out; `study_from` makes the same study of it.

        >>> words = {"data": {"d": "digits"}, "models": {"m": "lenet5-mnist"}, "explainers": ["lrp"]}
        >>> study = study_from({**words, "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.1}}}]})
        >>> study.plain()["explainers"]
        {'lrp': {'name': 'lrp', 'epsilon': 1e-09}}
        """
        sections: dict[str, Mapping[str, CheckedEntry[Any]]]
        sections = {"data": self.data, "models": self.models, "explainers": self.explainers, "metrics": self.metrics}
        content = self.model_dump(mode="json", exclude_none=True, exclude={*sections, "neighbourhood", "executor"})
        if not self.requirements:
            del content["requirements"]
        if self.neighbourhood is not None:
            content["neighbourhood"] = to_plain(self.neighbourhood)
        for section, entries in sections.items():
            content[section] = {label: to_plain(entry.plain) for label, entry in entries.items()}
        return {**content, "executor": self.executor.model_dump(mode="json", exclude_none=True)}


def _check_known(what: str, name: str | None, known: Mapping[str, Any], *place: str | int) -> None:
    if name is not None and name not in known:
        raise make_unknown_error(what, name, known, *place)


def _place_of_data(entry: CheckedEntry[DataEntry], path: Keys) -> Keys:
    """Too few samples are the fault of the file's `samples` where the data have none of their own."""
    return path if path == ("samples",) and entry.value.samples is None else ("data", *entry.place(path))


def _look_up(metric: Metric, samples: Samples, name: str) -> None:
    """What a metric names of a data set is there, and fits it."""
    try:
        metric.for_data(samples.extras).for_samples(samples.inputs, slice(0, len(samples)))
    except ArgumentError as error:
        near = find_nearest(str(error.got).strip("'"), samples.extras)
        note = f"on data {name!r}"
        raise misfit(error.expected, str(error.got), error.argument, near=near, note=note) from error


def load_study(path: str | Path, preset: str | None = None) -> Study:
    """The study in the file at `path`: read, with names, options and types checked. Runs no code of the user's.

    Args:
        path: of the file.
        preset: replaces the file's own.

    Raises:
        StudyError: the file is missing or no YAML, or something in it is wrong; each problem with its path and line.
    """
    return _check(read_document(path), preset)


def with_preset(study: Study, preset: str) -> Study:
    """The same study with another preset for what its file does not set."""
    return _check(study._document, preset)


def study_from(content: Mapping[str, Any], base: str | Path = ".") -> Study:
    """The same from plain values, with paths relative to `base`.

    Raises:
        StudyError: something in it is wrong.

    >>> study_from({"data": {}, "sede": 1, "models": {}, "explainers": ["lrp"], "metrics": ["worst_cas"]})
    Traceback (most recent call last):
        ...
    standfast.study.file.problems.StudyError: study: 4 problems
      data: expected at least one data set, got an empty mapping
      models: expected at least one model, got an empty mapping
      metrics[0]: expected a metric (...'worst_cas' (did you mean 'worst_case'?)
      sede: expected a known key (title, seed, ...), got 'sede'
          (did you mean 'seed'?)
    """
    try:
        return _check(Document("study", Path(base).resolve(), read_plain(content)))
    except Misfit as error:
        raise StudyError("study", error.problems) from error


def _check(document: Document, preset: str | None = None) -> Study:
    content = document.content
    try:
        with errors_at():
            if not isinstance(content, Mapping):
                raise misfit("a mapping with data, models, explainers and metrics", show(content))
            document = replace(document, content=content if preset is None else {**content, "preset": preset})
            study = Study.model_validate(document.content)
    except Misfit as error:
        raise document.error(error.problems) from error
    study._document = document
    return study
