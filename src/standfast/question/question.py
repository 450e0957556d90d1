"""`Question`: what is asked, in one form, whether it comes from Python or from a study file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor

from standfast.errors import ArgumentError, ModelError, check
from standfast.explainers import Explainer
from standfast.explainers.base import check_channels, check_explained
from standfast.metrics import Metric
from standfast.metrics.base import Ladder, warn_of_radius
from standfast.metrics.sanity import make_checks
from standfast.model import Model, check_finite
from standfast.neighbourhoods.transformations import check_fits
from standfast.question import answers, frames, tensors, texts
from standfast.question.grid import MOST_ANSWERS, Extra, Freedom, Grid, ModelSource, Samples, Tried
from standfast.question.inputs import NOWHERE, Inputs, Places

#: the kinds of inputs of this package; importing them registers them
KINDS = (tensors.Tensors, frames.Frames, texts.Texts, answers.Answers)
#: a model that has answered; with its answers, if it stays in memory
Answered = Model | Tried
#: runs a model on samples of the data of a name, so that what cannot work is known before anything is computed
TryModel = Callable[[ModelSource, Samples, str], Answered]


def try_model(source: ModelSource, samples: Samples, data_name: str) -> Tried:
    """The model, which has answered for the first samples that it runs together.

    Raises:
        ArgumentError: the samples do not fit it.
        ModelError: it fails.
    """
    model = source.model(samples, "cpu")
    # all inputs are checked here, once, and handed on
    inputs = model.check_inputs(samples.inputs).to(model.dtype)
    part = samples.find_first(model, MOST_ANSWERS)
    rows = part.take(inputs)
    outputs: Tensor | None = None
    # where the model fails for others than the first, their jobs say so
    with contextlib.suppress(ModelError):
        outputs = _answer(part.model, rows)
    if outputs is None:
        first_output = _answer(part.model, rows[:1])
    else:
        first_output = outputs[:1]
    check_finite(first_output)
    # on a card they would stay in its memory as long as the grid
    answered_inputs = inputs if model.device.type == "cpu" else None
    return Tried(model, answered_inputs, outputs)


def _answer(model: Model, rows: Tensor) -> Tensor:
    """The outputs for checked inputs `(N, ...)`, of which any may not be finite."""

    def answer(chunk: Tensor) -> tuple[Tensor]:
        return (model.forward(chunk.clone()),)

    with model.naming(rows), model.session(), torch.no_grad():
        (outputs,) = model.map_rows(answer, rows)
    return outputs


@dataclass(frozen=True)
class Question:
    """Data x models x explainers x metrics x controls x checks.

    Attributes:
        inputs: the data, with the models that take them.
        explainers: by name, for these inputs.
        metrics: by label.
        ladders: cheaper settings of the metrics whose options are not given, by label.
        extras: metrics in further default neighbourhoods, by label, for where the time is limited and suffices.
        controls: True for those that fit models and inputs, False for none, or explainers by name.
        sanity: whether each explainer is checked for sanity, or on how many samples.
        pairs: the combinations of data and models, `(data, model)`; None for all.
        seed, repeats, samples_per_job, device, paths, about: as of `Grid`.
        places: for errors about its parts.
    """

    inputs: Inputs
    explainers: Mapping[str, Explainer]
    metrics: Mapping[str, Metric]
    ladders: Mapping[str, Ladder] = field(default_factory=dict)
    extras: Mapping[str, Extra] = field(default_factory=dict)
    controls: bool | Mapping[str, Explainer] = True
    sanity: bool | int = True
    pairs: Sequence[tuple[str, str]] | None = None
    seed: int = 0
    repeats: int = 1
    samples_per_job: int | None = None
    device: str = "auto"
    paths: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    places: Places = NOWHERE

    def make_grid(self, try_model: TryModel | None = try_model) -> Grid:
        """The grid of all that is asked, with controls and checks.

        Args:
            try_model: runs each model once; None to run none, and then there are no controls but those with a name.

        Raises:
            ArgumentError: parts that do not fit each other.
            ModelError: a model fails.
        """
        metrics_of_labels = self._fit_metrics()
        metrics: dict[str, Metric] = {}
        ladders: dict[str, Ladder] = {}
        for label, fitted in metrics_of_labels.items():
            metrics.update(fitted)
            ladders.update(dict.fromkeys(fitted, self.ladders.get(label, ())))
        with self.places.at("explainers"):
            self.inputs.check_explainers(self.explainers.values())
        answered: dict[tuple[str, str], Answered] = {}
        if try_model is not None:
            answered = self._try_models(try_model, metrics.values())
        self.places.raise_errors()
        if answered:
            # without an answer nothing can be checked against it
            self._check_fits(answered, metrics_of_labels)
        models = list(map(find_model, answered.values()))
        controls = self._choose_controls(models, metrics.values())
        self.places.raise_errors()
        return Grid(
            data=self.inputs.samples,
            models=self.inputs.models,
            explainers={**self.explainers, **controls},
            metrics=metrics,
            pairs=self.pairs,
            seed=self.seed,
            repeats=self.repeats,
            samples_per_job=self.samples_per_job,
            device=self.device,
            controls=tuple(controls),
            free=Freedom(
                ladders={label: ladder for label, ladder in ladders.items() if ladder},
                controls=tuple(controls) if self.controls is True else (),
                sanity=self.sanity is True,
                extras=self.extras,
            ),
            sanity=make_checks(self.sanity, metrics),
            paths=self.paths,
            about={**self.inputs.about, **self.about},
            tried={pair: answer for pair, answer in answered.items() if isinstance(answer, Tried)},
        )

    def _fit_metrics(self) -> dict[str, dict[str, Metric]]:
        """By the label of each metric what it becomes for these inputs, which may be several."""
        fitted: dict[str, dict[str, Metric]] = {}
        for label, metric in self.metrics.items():
            with self.places.at("metrics", label):
                fitted[label] = self.inputs.fit_metric(label, metric)
        return fitted

    def _try_models(
        self, try_model: TryModel, metrics: Collection[Metric]
    ) -> dict[tuple[str, str], Answered]:
        """The models that have answered, by the names of the data that they meet and of the model."""
        answered: dict[tuple[str, str], Answered] = {}
        for model_name, source in self.inputs.models.items():
            for data_name, samples in self.inputs.samples.items():
                pair = (data_name, model_name)
                # a pair that nobody evaluates may not fit
                if self.pairs is not None and pair not in self.pairs:
                    continue
                with self.places.at("models", model_name):
                    answer = try_model(source, samples, data_name)
                    self.inputs.check_model(find_model(answer), metrics)
                    answered[pair] = answer
        return answered

    def _check_fits(
        self,
        answered: Mapping[tuple[str, str], Answered],
        metrics_of_labels: Mapping[str, Mapping[str, Metric]],
    ) -> None:
        """Check what every job would fail with."""
        with self.places.at("explainers"):
            check_explained(map(find_model, answered.values()), self.explainers.values())
        first_models: dict[str, Model] = {}
        for (data_name, _), answer in answered.items():
            first_models.setdefault(data_name, find_model(answer))
        for name, explainer in self.explainers.items():
            with self.places.at("explainers", name):
                self._check_channels(explainer)
        for label, metrics in metrics_of_labels.items():
            for metric in metrics.values():
                with self.places.at("metrics", label):
                    self._check_channels(metric)
                for data_name, model in first_models.items():
                    samples = self.inputs.samples[data_name]
                    with self.places.at("metrics", label, metric.neighbourhood_option):
                        check_neighbourhood_of(metric, samples, model)

    def _check_channels(self, configured: Explainer | Metric) -> None:
        """Raise `ArgumentError` for a baseline for another number of channels than any of the data have."""
        errors: list[ArgumentError] = []
        for samples in self.inputs.samples.values():
            try:
                check_channels(configured, samples.inputs)
            except ArgumentError as error:
                errors.append(error)
        # one that fits a data set is right for that one
        if errors and len(errors) == len(self.inputs.samples):
            raise errors[0]

    def _choose_controls(
        self, models: Sequence[Model], metrics: Collection[Metric]
    ) -> dict[str, Explainer]:
        """The controls that any of the metrics evaluates, and that are not among the explainers."""
        controls: Mapping[str, Explainer] = {}
        if isinstance(self.controls, Mapping):
            controls = self.controls
        elif self.controls and models:
            usual = self.inputs.default_controls(self.explainers, models)
            # only defaults get a number; names of the user's must differ
            controls = rename_taken(usual, self.explainers)
        chosen: dict[str, Explainer] = {}
        for name, control in controls.items():
            is_useful = any(metric.takes_control(control) for metric in metrics)
            # a control among the explainers would be evaluated twice
            if control in self.explainers.values() or not is_useful:
                continue
            with self.places.at("controls", name):
                expected = "names that differ from those of the explainers"
                check(name not in self.explainers, "controls", expected, repr(name))
            chosen[name] = control
        return chosen


def find_model(answer: Answered) -> Model:
    """The model that has answered."""
    if isinstance(answer, Tried):
        return answer.model
    return answer


def check_neighbourhood_of(metric: Metric, samples: Samples, model: Model | None) -> None:
    """Raise `ArgumentError` for a neighbourhood of other inputs, and warn of a radius beyond their range."""
    lower, upper = map(torch.as_tensor, samples.bounds)
    check_fits(metric.neighbourhood_in_use, samples.inputs, (lower, upper))
    if model is not None:
        warn_of_radius(metric, model, samples.inputs)


def rename_taken(
    controls: Mapping[str, Explainer], explainers: Mapping[str, Explainer]
) -> dict[str, Explainer]:
    """Default controls without those that the user has put among the explainers with other options.

    Where something else has the name, the control gets a number behind it.

    >>> from standfast.explainers import get
    >>> list(rename_taken({"random": get("random"), "edges": get("edges")}, {"edges": get("saliency")}))
    ['random', 'edges 2']
    >>> rename_taken({"random": get("random")}, {"random": get("random", seed=1)})
    {}
    """
    renamed: dict[str, Explainer] = {}
    for name, control in controls.items():
        if name not in explainers:
            renamed[name] = control
            continue
        # another configuration of the same kind stands for the default one
        if type(explainers[name]) is type(control):
            continue
        numbers = count(2)
        numbered = f"{name} {next(numbers)}"
        while numbered in explainers:
            numbered = f"{name} {next(numbers)}"
        renamed[numbered] = control
    return renamed
