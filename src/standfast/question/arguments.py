"""The arguments of `evaluate` as a `Question`: names become explainers and metrics, and defaults fill the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from standfast.data import Dataset
from standfast.errors import check, describe_foreign, warn_user
from standfast.explainers import Explainer
from standfast.explainers.adapters.packages import ADAPTERS
from standfast.frames.model import decide_by
from standfast.metrics import Metric
from standfast.metrics.base import Preset, check_preset, has_neighbourhood
from standfast.metrics.base import metrics as registry
from standfast.model import Model, describe_no_module, is_state_dict
from standfast.neighbourhoods import Neighbourhood, check_neighbourhood
from standfast.question.grid import Extra, LoadedModel
from standfast.question.inputs import Given, Inputs, find_kind
from standfast.question.metric_labels import NamedMetric, list_extras, list_ladders, list_metrics
from standfast.question.question import Question
from standfast.tasks.base import expand_targets
from standfast.texts import TextModel

#: what `evaluate` accepts as an explainer
ExplainerLike = Explainer | str | Callable[..., Tensor]
ExplainersLike = Mapping[str, ExplainerLike] | Sequence[ExplainerLike] | ExplainerLike
#: what it accepts as metrics
MetricsLike = Mapping[str, Metric | str] | Sequence[Metric | str] | Metric | str
NeighbourhoodsLike = Neighbourhood | Sequence[Neighbourhood]
ModelLike = Model | nn.Module | Any
#: the fact in the manifest and the report
DEFAULT_NEIGHBOURHOOD = "default neighbourhood"
_SEVERAL = "one, several in a list, or a mapping from names"


@dataclass(frozen=True)
class Arguments:
    """The arguments of `evaluate` that decide what is computed."""

    model: ModelLike | Mapping[str, ModelLike]
    explainers: ExplainersLike
    inputs: Tensor | Dataset | Any
    metrics: MetricsLike
    neighbourhood: NeighbourhoodsLike | None = None
    reference: Tensor | Any = None
    preset: Preset | None = None
    controls: bool | ExplainersLike = True
    sanity: bool | int = True
    targets: Tensor | int | None = None
    decision: str | None = None
    seed: int = 0
    repeats: int = 1
    samples_per_job: int | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def ask(self) -> Question:
        """The question.

        Raises:
            ArgumentError: an argument does not fit.
            ModelError: a model fails.
        """
        _check_places(self.model, self.explainers)
        # a class counts as one metric, for the error that it gets
        metrics = self.metrics
        if isinstance(metrics, str | Metric | type):
            metrics = [metrics]
        check(
            isinstance(metrics, Iterable),
            "metrics",
            _SEVERAL,
            describe_foreign(metrics, registry.packages),
        )
        # a generator is read once
        if isinstance(metrics, Mapping):
            metrics = dict(metrics)
        else:
            metrics = list(metrics)
        inputs = self.read_inputs(metrics)
        explainers = _name_explainers(self.explainers, "explainers", inputs)
        controls: bool | Mapping[str, Explainer]
        if isinstance(self.controls, bool):
            controls = self.controls
        else:
            controls = _name_explainers(self.controls, "controls", inputs)
        # what the report says of defaults
        about: dict[str, Any] = {}
        named_metrics = self._name_metrics(metrics, inputs, about)
        extras: dict[str, Extra] = {}
        if DEFAULT_NEIGHBOURHOOD in about:
            neighbourhoods = [neighbourhood for neighbourhood, _ in inputs.default_neighbourhoods()]
            extras = list_extras(
                named_metrics, neighbourhoods, partial(self._place_metrics, metrics, inputs)
            )
        return Question(
            inputs=inputs,
            explainers=explainers,
            metrics={named.label: named.metric for named in named_metrics},
            ladders=list_ladders(named_metrics),
            extras=extras,
            controls=controls,
            sanity=self.sanity,
            seed=self.seed,
            repeats=self.repeats,
            samples_per_job=self.samples_per_job,
            device=_find_device(inputs),
            about=about,
        )

    def read_inputs(self, metrics: Mapping[str, Any] | Sequence[Any]) -> Inputs:
        """The data and the models, with their names."""
        if isinstance(self.model, Mapping):
            models = dict(self.model)
        else:
            models = {"": self.model}
        # a single model gets its name later, from its module or the facts
        check(len(models) > 0, "model", "at least one", "an empty mapping")
        kind = find_kind(self.inputs, list(models.values()))
        # the part before a comma, as facts may say more
        data_name = _shorten(self.about.get("data")) or kind.title(self.inputs)
        parts_given = Given(
            data={data_name: kind.give(self.inputs)},
            models={str(name): model for name, model in models.items()},
            changes=[*_list_parts(self.neighbourhood), *_list_parts(metrics)],
            reference=self.reference,
        )
        inputs = kind.read(parts_given)
        # after reading, since a frame's model is made only then
        inputs.name_models(_shorten(self.about.get("model")))
        # the decision before the targets, which are then its sides
        if self.decision is not None:
            _decide(inputs, self.decision)
        if self.targets is not None:
            _set_targets(inputs, self.targets)
        return inputs

    def _name_metrics(
        self, metrics: Mapping[str, Any] | Sequence[Any], inputs: Inputs, about: dict[str, Any]
    ) -> list[NamedMetric]:
        """The metrics with their labels; `about` gets what was chosen for those that are given by name."""
        if self.preset is not None:
            check_preset(self.preset)
        names = [metric for metric in _list_parts(metrics) if isinstance(metric, str)]
        if self.preset not in (None, "standard") and not names:
            words = "has no effect, because no metric is given by name; configured metrics keep their options"
            warn_user(f"preset={self.preset!r} {words}")
        # a neighbourhood that is given is the user's, so no default goes with it
        if self.neighbourhood is not None:
            neighbourhoods = self._fit_neighbourhoods(inputs, names)
            return list_metrics(metrics, neighbourhoods, self.preset, inputs.choose_label)
        # metrics that can do without keep their own meaning
        if not any(has_neighbourhood(name, required=True) for name in names):
            return list_metrics(metrics, None, self.preset, inputs.choose_label)
        usual, about[DEFAULT_NEIGHBOURHOOD] = inputs.default_neighbourhood()
        return self._place_metrics(metrics, inputs, usual)

    def _place_metrics(
        self,
        metrics: Mapping[str, Any] | Sequence[Any],
        inputs: Inputs,
        neighbourhood: Neighbourhood,
    ) -> list[NamedMetric]:
        """The metrics in a default neighbourhood."""
        return list_metrics(
            metrics, neighbourhood, self.preset, inputs.choose_label, inputs.default_options
        )

    def _fit_neighbourhoods(self, inputs: Inputs, names: Sequence[str]) -> list[Neighbourhood]:
        """The neighbourhoods that are given; a warning if no metric has one of them."""
        if not any(has_neighbourhood(name) for name in names):
            warn_user(
                "neighbourhood= has no effect, because no metric that has one is given by name; configured metrics keep"
                " their options"
            )
        listed = _list_parts(self.neighbourhood)
        check(
            len(listed) > 0,
            "neighbourhood",
            "a neighbourhood, or a list of at least one",
            "an empty list",
        )
        for neighbourhood in listed:
            check_neighbourhood(neighbourhood)
        return [inputs.fit_neighbourhood(neighbourhood) for neighbourhood in listed]


def _check_places(models: Any, explainers: Any) -> None:
    """Raise `ArgumentError` for weights or explainers in the place of the model, and for a model in theirs."""
    call = "evaluate(model, explainers, inputs, metrics)"
    expected = f"a model, or several in a mapping from names: {call}"
    # weights without a network are a common mistake
    check(not is_state_dict(models), "model", expected, describe_no_module(models))
    for model in _list_parts(models):
        is_explainer = isinstance(model, str | Explainer)
        got = f"the explainer {model!r}" if is_explainer else describe_no_module(model)
        check(not is_explainer and not is_state_dict(model), "model", expected, got)
    for explainer in _list_parts(explainers):
        expected = f"explainers, which come after the model: {call}"
        check(not isinstance(explainer, Model | TextModel), "explainers", expected, repr(explainer))


def _list_parts(parts: Any) -> list[Any]:
    """What is in a list or a mapping, or the one thing that is given; nothing of None."""
    # None has no parts
    if parts is None:
        return []
    if isinstance(parts, Mapping):
        return list(parts.values())
    if isinstance(parts, list | tuple):
        return list(parts)
    return [parts]


def _name_explainers(
    explainers: ExplainersLike, argument: str, inputs: Inputs
) -> dict[str, Explainer]:
    """Explainers by name, fitted to the inputs."""
    if isinstance(explainers, Mapping):
        return {name: inputs.fit_explainer(explainer) for name, explainer in explainers.items()}
    if isinstance(explainers, str | Explainer) or callable(explainers):
        explainers = [explainers]
    got = describe_foreign(explainers, ADAPTERS, adapters=True)
    expected = _SEVERAL
    if argument == "controls":
        expected = f"True, False, or {_SEVERAL}"
    check(isinstance(explainers, Iterable), argument, expected, got)
    named: dict[str, Explainer] = {}
    for explainer in explainers:
        fitted = inputs.fit_explainer(explainer)
        # the text as it was typed, by which the user knows it
        name = explainer if isinstance(explainer, str) else fitted.label
        check(
            name not in named,
            argument,
            "names that differ, or a mapping from names",
            f"{name!r} twice",
        )
        named[name] = fitted
    return named


def _decide(inputs: Inputs, rule: str) -> None:
    """Let all models decide by a rule.

    Raises:
        ArgumentError: it has another form, or a model has no probabilities of such a class.
    """
    for name, source in inputs.models.items():
        assert isinstance(source, LoadedModel)  # as all are that a user hands over in Python
        inputs.models[name] = replace(source, ready=decide_by(source.ready, rule))
    # the report would name a rule that is not used
    for default in ("threshold", "tolerance"):
        inputs.about.pop(default, None)  # another rule was given in its place


def _set_targets(inputs: Inputs, targets: Tensor | int) -> None:
    """Put what is explained into the samples.

    Raises:
        ArgumentError: it does not fit the model.
    """
    ((name, samples),) = inputs.samples.items()
    source = next(iter(inputs.models.values()))
    model = source.model(samples, "cpu")
    if not model.extras:
        # the sides of a decision, and classes, are checked before anything runs
        model.check_targets(targets, model.check_inputs(samples.inputs))
    expanded = expand_targets(targets, len(samples))
    inputs.samples[name] = replace(samples, targets=expanded.cpu())


def _find_device(inputs: Inputs) -> str:
    """Where the first model is."""
    source = next(iter(inputs.models.values()))
    if not isinstance(source, LoadedModel):
        return "auto"
    # the kind alone: a worker may have another number of card
    return source.ready.device.type


def _shorten(fact: object) -> str:
    """The name in a text such as "lenet5, 99% test accuracy"."""
    return str(fact or "").partition(",")[0].strip()
