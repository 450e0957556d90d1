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

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)

from holdfast.errors import ArgumentError
from holdfast.explainers import Explainer
from holdfast.metrics import Metric
from holdfast.neighbourhood import Neighbourhood
from holdfast.study.file.backgrounds import with_backgrounds
from holdfast.study.file.document import Document, read_document
from holdfast.study.file.entries import (
    Count,
    DataEntry,
    Device,
    Entry,
    ExecutorEntry,
    ModelEntry,
    Name,
    Seed,
    Text,
    to_pydantic,
)
from holdfast.study.file.evaluations import Configured, explainers_from, imported, metrics_from
from holdfast.study.file.options import neighbourhood_from, spelled
from holdfast.study.file.problems import Collector, Problem, StudyError, Wrong, listed, nearest, shown
from holdfast.study.file.sources import load_data, model_source, try_out
from holdfast.study.file.wording import problems_of
from holdfast.study.grid import Grid, ModelSource, Samples

__all__ = ["Study", "StudyError", "load_study", "study_from"]


def _neighbourhood(raw: object) -> Neighbourhood | None:
    try:
        return None if raw is None else neighbourhood_from(raw)
    except Wrong as wrong:
        raise to_pydantic(wrong, raw) from wrong


def _explainers(raw: object) -> dict[str, Configured[Explainer]]:
    try:
        return explainers_from(raw)
    except Wrong as wrong:
        raise to_pydantic(wrong, raw) from wrong


def _metrics(raw: object, info: ValidationInfo) -> dict[str, Configured[Metric]]:
    try:
        return metrics_from(raw, info.data.get("neighbourhood"), "neighbourhood" in info.data)
    except Wrong as wrong:
        raise to_pydantic(wrong, raw) from wrong


def _some(what: str) -> BeforeValidator:
    """A mapping with nothing in it is no section."""

    def check(raw: object) -> object:
        if raw is None or (isinstance(raw, Mapping) and not raw):
            raise to_pydantic(Wrong(Problem((), f"at least one {what}", shown(raw))), raw)
        return raw

    return BeforeValidator(check)


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
    data: Annotated[dict[Name, DataEntry], _some("data set")] = Field(
        description="Data by name: of a loader, in a file, or from a function."
    )
    models: Annotated[dict[Name, ModelEntry], _some("model")] = Field(
        description="Models by name: of the zoo, from a function, or in a file."
    )
    neighbourhood: Annotated[Any, PlainValidator(_neighbourhood), WithJsonSchema({})] = Field(
        default=None, description="For all metrics that have one and do not set it."
    )
    explainers: Annotated[dict[str, Configured[Explainer]], PlainValidator(_explainers), WithJsonSchema({})] = Field(
        description="Explainers, as a list or under labels."
    )
    metrics: Annotated[dict[str, Configured[Metric]], PlainValidator(_metrics), WithJsonSchema({})] = Field(
        description="Metrics, as a list or under labels."
    )
    executor: ExecutorEntry = Field(default=ExecutorEntry(), description="Who does the work.")

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
        found = Collector()
        samples: dict[str, Samples] = {}
        for name, data in self.data.items():
            with found.at("data", name):
                samples[name] = load_data(data, self.base, self.samples)
        found.problems = [self._at_shared_samples(problem) for problem in found.problems]
        sources: dict[str, ModelSource] = {}
        for name, model in self.models.items():
            with found.at("models", name):
                sources[name] = model_source(model, self.base)
        explainers: dict[str, Explainer] = {}
        for label, entry in self.explainers.items():
            with found.at("explainers", *entry.path):
                explainers[label] = imported(entry, label, self.base)
        metrics: dict[str, Metric] = {}
        for label, configured in self.metrics.items():
            with found.at("metrics", *configured.path, *configured.options):
                if configured.value is not None:
                    metrics[label] = with_backgrounds(configured.value, self.base)
        pairs = self._pairs()
        for label, metric in metrics.items():
            configured = self.metrics[label]
            for name in {data: None for data, _ in pairs if data in samples}:
                with found.at("metrics", *configured.path, *configured.options):
                    _look_up(metric, samples[name], name)
        if check:
            _try_all(found, pairs, samples, sources)
        if found.problems:
            raise self._document.error(found.problems) from found.cause
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
            paths=(str(self.base),),
        )

    def _at_shared_samples(self, problem: Problem) -> Problem:
        """Too few samples are the fault of the file's `samples` where the data have none of their own."""
        if problem.path[2:] != ("samples",) or self.data[str(problem.path[1])].samples is not None:
            return problem
        return replace(problem, path=("samples",), note=f"for data {problem.path[1]!r}")

    def _pairs(self) -> list[tuple[str, str]]:
        meets = {name: self.data if model.data is None else model.data for name, model in self.models.items()}
        return [(data, model) for data in self.data for model in self.models if data in meets[model]]

    def plain(self) -> dict[str, Any]:
        """The study as plain values with every default spelled out; `study_from` makes the same study of it.

        >>> words = {"data": {"d": "digits"}, "models": {"m": "lenet5-mnist"}, "explainers": ["lrp"]}
        >>> study = study_from({**words, "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.1}}}]})
        >>> study.plain()["explainers"]
        {'lrp': {'explainer': 'lrp', 'epsilon': 1e-09}}
        """
        evaluations = {"neighbourhood", "explainers", "metrics"}
        content = self.model_dump(mode="json", exclude_none=True, exclude=evaluations)
        content["data"] = {name: _given(entry) for name, entry in self.data.items()}
        content["models"] = {name: _given(entry) for name, entry in self.models.items()}
        own = {"name", "workers", "threads", *ExecutorEntry.own[self.executor.name]}
        content["executor"] = {key: value for key, value in content["executor"].items() if key in own}
        if self.neighbourhood is not None:
            content["neighbourhood"] = spelled(self.neighbourhood)
        content["explainers"] = {label: spelled(entry.plain) for label, entry in self.explainers.items()}
        content["metrics"] = {label: spelled(entry.plain) for label, entry in self.metrics.items()}
        return content


def _look_up(metric: Metric, samples: Samples, name: str) -> None:
    """What a metric names of a data set is there, and fits it."""
    try:
        metric.for_data(samples.extras).for_samples(samples.inputs, slice(0, len(samples)))
    except ArgumentError as error:
        near = nearest(str(error.got).strip("'"), samples.extras)
        problem = Problem((error.argument,), error.expected, str(error.got), near=near, note=f"on data {name!r}")
        raise Wrong(problem) from error


def _given(entry: DataEntry | ModelEntry) -> dict[str, Any]:
    """The keys of an entry that go with its kind."""
    keys = {entry.kind, *entry.kinds[entry.kind]}
    content = entry.model_dump(mode="json", exclude_none=True, include=keys)
    if "targets" in content and "targets" not in entry.model_fields_set:
        del content["targets"]  # Samples from a function have their own
    return content


def _try_all(
    found: Collector, pairs: list[tuple[str, str]], samples: dict[str, Samples], sources: dict[str, ModelSource]
) -> None:
    broken: set[str] = set()
    for data, model in pairs:
        if data not in samples or model not in sources or model in broken:
            continue
        with found.at("models", model):
            try:
                try_out(sources[model], samples[data])
            except Wrong as wrong:
                if any(problem.path for problem in wrong.problems):  # it cannot even be built, for whatever data
                    broken.add(model)
                    raise
                raise Wrong(*(replace(p, note=f"on data {data!r}") for p in wrong.problems)) from wrong.__cause__


def _meetings(study: Study) -> list[Problem]:
    """Names of data that models are to meet, and data that no model meets."""
    problems = []
    for name, model in study.models.items():
        for index, data in enumerate(model.data or ()):
            if data not in study.data:
                words = f"the name of data ({listed(study.data)})"
                problems.append(
                    Problem(("models", name, "data", index), words, shown(data), near=nearest(data, study.data))
                )
    met = {data for data, _ in study._pairs()}
    problems += [Problem(("data", d), "data that a model meets", "none that does") for d in study.data if d not in met]
    return problems


def load_study(path: str | Path) -> Study:
    """The study in the file at `path`: read, with names, options and types checked. Runs no code of the user's.

    Raises:
        StudyError: the file is missing or no YAML, or something in it is wrong; each problem with its path and line.
    """
    return _checked(read_document(path))


def study_from(content: Mapping[str, Any], base: str | Path = ".") -> Study:
    """The same from plain values, with paths relative to `base`.

    Raises:
        StudyError: something in it is wrong.

    >>> study_from({"data": {}, "sede": 1, "models": {}, "explainers": ["lrp"], "metrics": ["worst_cas"]})
    Traceback (most recent call last):
        ...
    holdfast.study.file.problems.StudyError: study: 4 problems
      data: expected at least one data set, got an empty mapping
      models: expected at least one model, got an empty mapping
      metrics[0]: expected a metric (...'worst_cas' (did you mean 'worst_case'?)
      sede: expected a known key (title, seed, ...), got 'sede' (did you mean 'seed'?)
    """
    return _checked(Document("study", Path(base).resolve(), dict(content)))


def _checked(document: Document) -> Study:
    if not isinstance(document.content, Mapping):
        words = "a mapping with data, models, explainers and metrics"
        raise document.error([Problem((), words, shown(document.content))])
    try:
        study = Study.model_validate(document.content)
    except ValidationError as error:
        raise document.error(problems_of(error, Study)) from error
    problems = _meetings(study)
    if problems:
        raise document.error(problems)
    study._document = document
    return study
