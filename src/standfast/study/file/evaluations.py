"""Explainers, controls and metrics in a study file: registered ones with options, and functions of the user's."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, ValidationInfo

from standfast.explainers import Explainer, explainers, from_callable
from standfast.explainers import get as get_explainer
from standfast.metrics.base import (
    Metric,
    find_neighbourhood_option,
    has_neighbourhood,
    set_neighbourhood,
)
from standfast.neighbourhoods import LinfBall, Neighbourhood
from standfast.neighbourhoods.naming import join_label
from standfast.question.metric_labels import number_labels
from standfast.study.file.entries import Count, OptionValues, Reference
from standfast.study.file.imports import call_function, resolve
from standfast.study.file.names import (
    CONTROLS,
    EXPLAINERS,
    METRICS,
    CheckedEntry,
    NamedEntry,
    read_section,
)
from standfast.study.file.options import (
    background_from,
    configure,
    make,
    neighbourhoods_from,
    plain_options,
    to_plain,
)
from standfast.study.file.problems import Entry, errors_at, reject, show, with_article
from standfast.study.file.references import ReferenceReader


@dataclass(frozen=True)
class UnplacedMetric:
    """A metric for which the file names no neighbourhood: it gets the default one of its kind of inputs.

    Attributes:
        stand_in: the metric in a neighbourhood that only shows whether its other options fit.
        alone: the metric without one; None where it needs one.
        given: the names of the options that the file sets.
    """

    stand_in: Metric
    alone: Metric | None
    given: frozenset[str] = frozenset()

    @classmethod
    def configure(cls, kind: type[Metric], name: str, options: Mapping[str, Any]) -> UnplacedMetric:
        """A metric of a class, with options from the file in which its neighbourhood is missing.

        Raises:
            StudyFieldError: the other options do not fit.
        """
        neighbourhood: Neighbourhood | None = None
        with contextlib.suppress(Exception):  # a class of the user's may have no example
            neighbourhood = kind.example().neighbourhood_in_use
        # it is replaced before anything is evaluated, so any neighbourhood shows whether the other options fit
        stand_in = {find_neighbourhood_option(kind): neighbourhood or LinfBall(0.1)}
        alone: Metric | None = None
        if not has_neighbourhood(kind, required=True):
            alone = configure(kind, name, options)
        return cls(configure(kind, name, {**options, **stand_in}), alone, frozenset(options))

    def place(self, neighbourhood: Neighbourhood, usual_options: Mapping[str, Any]) -> Metric:
        """The metric in a neighbourhood.

        Args:
            neighbourhood: which.
            usual_options: what goes with it where the file does not say otherwise.

        Raises:
            ArgumentError: it is none for this metric.
        """
        placed = set_neighbourhood(self.stand_in, neighbourhood)
        open_options = {
            name: value for name, value in usual_options.items() if name not in self.given
        }
        return dataclasses.replace(placed, **open_options)

    def write_plain(self) -> dict[str, Any]:
        """The options as a file has them: those that it sets, as the kind of inputs decides on others."""
        options = plain_options(self.stand_in)
        # the neighbourhood is that of the kind of inputs, which the file does not name
        return {name: value for name, value in options.items() if name in self.given}


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
            named = resolve(self.function, [str(base)], self.trust)
        if isinstance(named, type) and issubclass(named, self.kind):
            return self._configure(named, label, common)
        entry = self.model_dump(exclude_unset=True, exclude={"function", "trust"})
        if not isinstance(named, self.kind):
            return self._make(named, label, base, entry)
        for key, value in entry.items():
            kind = self.kind.__name__
            raise reject(f"no {key}, as the {kind} is configured already", show(value), key)
        return named

    def _configure(self, kind: type, label: str, common: Mapping[str, Any]) -> Any:
        """The class with the options of the entry, and those of the study that it has."""
        defaults = _select_known(kind, common)
        with errors_at("options"):
            option = find_neighbourhood_option(kind)
            has_several = isinstance(defaults.get(option), tuple)
            # one metric has one neighbourhood; only registered metrics are made once for each
            if has_several and option not in self.options:
                raise reject("a neighbourhood, as the study has several", "nothing")
            options = {**defaults, **self.options}
            if option and option not in options:
                return UnplacedMetric.configure(kind, label, options)
            return configure(kind, label, options)

    def _make(self, function: Any, label: str, base: Path, entry: Mapping[str, Any]) -> Any:
        """The metric that the function returns."""
        with errors_at("function"):
            metric = call_function(
                self.function,
                self.options,
                [str(base)],
                self.trust,
                "a metric",
            )
            if not isinstance(metric, Metric):
                got = with_article(type(metric).__name__)
                raise reject("a Metric", f"{got} from {self.function}")
            return metric


class ExplainerFunction(MetricFunction):
    """An explainer of the user's.

    Args:
        function: a function of (module, inputs, targets), an Explainer, or a class of them.
        options: of a class of explainers.
        differentiable: the function's result can be differentiated.
        rows_per_input: rows that the function forwards at once for one input.
    """

    kind = Explainer
    differentiable: bool = False
    rows_per_input: Count = 1

    def _make(self, function: Any, label: str, base: Path, entry: Mapping[str, Any]) -> Explainer:
        if not callable(function):
            got = with_article(type(function).__name__)
            raise reject("a function or an Explainer", got, "function")
        if "options" in entry:
            expected = "no options, as these go with a class of explainers"
            raise reject(expected, show(entry["options"]), "options")
        return from_callable(function, name=label, **entry)


#: what the sections hold: the thing itself, or the function that is imported for it
Explained = CheckedEntry[Explainer | ExplainerFunction]
Measured = CheckedEntry[Metric | MetricFunction | UnplacedMetric]
#: what older versions of YAML take for true or false, and a study file for a text
_TRUTH_IN_WORDS = {
    "yes": "true",
    "on": "true",
    "true": "true",
    "no": "false",
    "off": "false",
    "false": "false",
}
#: what is made of an entry, and its plain form; several of a metric that is evaluated in several neighbourhoods
_Built = dict[str, tuple[Any, dict[str, Any]]]


def explainers_from(raw: object) -> dict[str, Explained]:
    """The section `explainers`, by label.

    >>> list(explainers_from(["saliency", {"lrp": {"epsilon": 1e-6}}, "lrp", {"mine": "saliency"}]))
    ['saliency', 'lrp: epsilon=1e-06', 'lrp', 'mine']
    """
    return read_section(raw, EXPLAINERS, _build_explainer, _labels_of_explainers)


def controls_from(raw: object) -> bool | dict[str, Explained]:
    """The section `controls`: whether there are the usual ones, or some by label.

    >>> controls_from("yes")
    Traceback (most recent call last):
        ...
    standfast.study.file.problems.StudyFieldError: the file: expected true, false, or...'yes' (did you mean true?)
    """
    if isinstance(raw, bool):
        return raw
    if not isinstance(raw, Mapping | list | tuple) or not raw:
        got = show(raw)
        near = _TRUTH_IN_WORDS.get(str(raw).casefold())
        if near is not None:
            got += f" (did you mean {near}?)"
        raise reject("true, false, or explainers as a list or under labels", got)
    return read_section(raw, CONTROLS, _build_explainer, _labels_of_explainers)


def metrics_from(raw: object, info: ValidationInfo) -> dict[str, Measured]:
    """The section `metrics`, by label, with the study's own `neighbourhood` (or several) and `preset`."""
    # where the file's own neighbourhood is wrong, its absence needs no second error
    common = {
        "neighbourhood": info.data.get("neighbourhood", LinfBall(0.1)),
        "preset": info.data.get("preset"),
    }
    return read_section(raw, METRICS, partial(_build_metric, common=common), _labels_of_metrics)


def load_evaluation(
    entry: CheckedEntry[Any],
    label: str,
    references: ReferenceReader,
    common: Mapping[str, Any] | None = None,
) -> Any:
    """The explainer or metric of an entry: a function is imported, and reference inputs are read.

    A function `(module, inputs, targets) -> attributions` becomes an explainer called `label`, a class is configured
    with the entry's options, and an explainer or a metric is taken as it is. `common` are the study's own options.
    """
    value = entry.value
    if isinstance(value, MetricFunction):
        value = value.load(label, references.base, common or {})
    return references.read_in(value)


def _labels_of_explainers(entries: Sequence[Explained]) -> list[str]:
    """Names; with those options that are not as they are by default where several have one name."""
    names = [entry.name for entry in entries]
    labels: list[str] = []
    for entry in entries:
        # one of a kind needs no options in its label
        words = ""
        if names.count(entry.name) > 1:
            words = _describe_options(entry)
        if words:
            label = f"{entry.name}: {words}"
        else:
            label = entry.name
        labels.append(label)
    return labels


def _describe_options(entry: Explained) -> str:
    """The options of an explainer that are not as they are by default; all those of a function."""
    defaults: dict[str, Any] = {}
    if isinstance(entry.value, MetricFunction):
        options = entry.plain
    else:
        options = entry.plain[entry.name]
        with contextlib.suppress(TypeError):  # it has options without a default
            defaults = plain_options(type(entry.value)())
    # `...` is no value of any option, so an option without a default always counts
    changed = {}
    for key, value in options.items():
        if defaults.get(key, ...) != value:
            changed[key] = value
    return ", ".join(f"{key}={value}" for key, value in changed.items())


def _labels_of_metrics(entries: Sequence[Measured]) -> list[str]:
    labels: list[str] = []
    for entry in entries:
        metric = entry.value
        if isinstance(metric, UnplacedMetric):
            metric = metric.stand_in
        own_label = metric.own_label if isinstance(metric, Metric) else entry.name
        label = join_label(own_label, entry.variant)
        labels.append(label)
    return number_labels(labels)


def _build_function(kind: type[MetricFunction], named: NamedEntry) -> _Built:
    function = kind.model_validate(named.options)
    return {"": (function, function.model_dump(exclude_unset=True))}


def _build_metric(named: NamedEntry, common: Mapping[str, Any]) -> _Built:
    """A metric, or one for each of several neighbourhoods: a list of its own, or that of the study.

    Only a list for `neighbourhood` itself stands for several values: `{jpeg: [30, 90]}` is one neighbourhood.
    """
    if named.form:
        return _build_function(MetricFunction, named)
    kind = METRICS.registry[named.name]
    options = _select_known(kind, common) | dict(named.options)
    option = find_neighbourhood_option(kind)
    neighbourhood = options.get(option)
    # None in the file is an answer, where the metric can do without
    is_missing = option not in options or has_neighbourhood(kind, required=True)
    if option and neighbourhood is None and is_missing:
        unplaced = UnplacedMetric.configure(kind, named.name, options)
        return {"": (unplaced, {named.name: unplaced.write_plain()})}
    if not isinstance(neighbourhood, list | tuple):
        return {"": _with_plain_form(configure(kind, named.name, options), named.name)}
    with errors_at(option):
        neighbourhoods = neighbourhoods_from(neighbourhood)
    built: _Built = {}
    for words, each_neighbourhood in neighbourhoods.items():
        metric = configure(
            kind,
            named.name,
            {**options, option: each_neighbourhood},
        )
        built[words] = _with_plain_form(metric, named.name)
    return built


def _with_plain_form(configured: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """Something configured, and how a file writes it with all options."""
    return configured, {name: plain_options(configured)}


def _build_explainer(named: NamedEntry) -> _Built:
    """An explainer."""
    if named.form:
        return _build_function(ExplainerFunction, named)
    if explainers.is_from_package(named.name):
        return _build_from_package(named)
    explainer = configure(explainers[named.name], named.name, named.options)
    return {"": _with_plain_form(explainer, named.name)}


def _build_from_package(named: NamedEntry) -> _Built:
    """An explainer of another package, whose options are that package's: lists as tuples, else as they stand."""
    options: dict[str, Any] = {}
    plain = dict(named.options)
    for key, value in named.options.items():
        if not isinstance(key, str):
            raise reject("the name of an option", show(key), key)
        with errors_at(key):
            if key == "background":
                options[key] = background_from(value)
            else:
                options[key] = _read_tuples(value)
    if "background" in options:
        plain["background"] = to_plain(options["background"])
    explainer = make(partial(get_explainer, named.name), named.name, options, list(options))
    return {"": (explainer, {named.name: plain})}


def _read_tuples(raw: Any) -> Any:
    """Tuples in the place of lists, at any depth."""
    if isinstance(raw, list):
        return tuple(map(_read_tuples, raw))
    return raw


def _select_known(kind: type[Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the study's options that a class of metrics has, under its own names of them."""
    if not issubclass(kind, Metric):
        return {}
    own_names = {"preset": "preset", "neighbourhood": find_neighbourhood_option(kind)}
    selected: dict[str, Any] = {}
    for name, value in common.items():
        option = own_names[name]
        if option and value is not None:
            selected[option] = value
    return selected
