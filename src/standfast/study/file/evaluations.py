"""The sections `explainers` and `metrics` of a study file.

What the file alone decides is checked when it is read. Functions of the user's are imported, and reference inputs
read, when the grid is built. What does not fit is a `Misfit`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from standfast.errors import UnknownNameError
from standfast.explainers import Explainer, explainers, from_callable
from standfast.explainers import get as get_explainer
from standfast.metrics.base import Metric, metrics
from standfast.neighbourhoods import LinfBall
from standfast.neighbourhoods.naming import join_label
from standfast.study.file.entries import Count, Flag, OptionValues, Reference, Trust
from standfast.study.file.imports import call_function, resolve
from standfast.study.file.names import EXPLAINERS, METRICS, CheckedEntry, ParsedEntry, read_section
from standfast.study.file.options import background_from, configure, neighbourhoods_from, plain_options, to_plain
from standfast.study.file.problems import (
    Collector,
    Entry,
    errors_at,
    errors_of,
    make,
    make_unknown_error,
    misfit,
    show,
    with_article,
)
from standfast.study.file.sources import reading_from
from standfast.study.run import has_neighbourhood, number_labels


class FunctionEntry(Entry):
    """A function, or a class, of the user's."""

    key: ClassVar[str] = "an option of a function"
    #: what it makes
    kind: ClassVar[type]
    function: Reference
    options: OptionValues = Field({}, description="Of the class, or arguments of the function.")
    trust: Trust = False

    def load(self, label: str, base: Path, common: Mapping[str, Any]) -> Any:
        """The explainer or metric itself: what `function` names, or what is made of it.

        Args:
            label: of the entry.
            base: the folder that functions are imported from, and reference inputs read.
            common: options of the study, for a class that has them.
        """
        given = self.model_dump(exclude_unset=True, exclude={"function", "trust"})
        with errors_at("function"):
            found = resolve(self.function, [str(base)], self.trust)
        if isinstance(found, type) and issubclass(found, self.kind):
            defaults = _defaults(found, common)
            with errors_at("options"), reading_from(base):
                if isinstance(defaults.get("neighbourhood"), tuple) and "neighbourhood" not in self.options:
                    raise misfit("a neighbourhood, as the study has several", "nothing", "neighbourhood")
                return configure(found, label, self.options, defaults)
        if isinstance(found, self.kind):
            for key, value in given.items():
                raise misfit(f"no {key}, as the {self.kind.__name__} is configured already", show(value), key)
            return found
        return self._make(found, label, base, given)

    def _make(self, found: Any, label: str, base: Path, given: Mapping[str, Any]) -> Any:
        raise NotImplementedError


class ExplainerFunction(FunctionEntry):
    """An explainer of the user's."""

    kind: ClassVar[type] = Explainer
    function: Reference = Field(
        description="A function of (module, inputs, targets), an Explainer, or a class of them."
    )
    differentiable: Flag = Field(False, description="The function's result can be differentiated.")
    rows_per_input: Count = Field(1, description="Rows that the function forwards at once for one input.")

    def _make(self, found: Any, label: str, base: Path, given: Mapping[str, Any]) -> Explainer:
        if not callable(found):
            raise misfit("a function or an Explainer", with_article(type(found).__name__), "function")
        if "options" in given:
            raise misfit("no options, as these go with a class of explainers", show(given["options"]), "options")
        return from_callable(found, name=label, **given)


class MetricFunction(FunctionEntry):
    """A metric of the user's."""

    kind: ClassVar[type] = Metric
    function: Reference = Field(description="A class of metrics, a Metric, or a function that returns one.")

    def _make(self, found: Any, label: str, base: Path, given: Mapping[str, Any]) -> Metric:
        with errors_at("function"):
            made = call_function(self.function, self.options, [str(base)], self.trust, "a metric")
            if not isinstance(made, Metric):
                raise misfit("a Metric", f"{with_article(type(made).__name__)} from {self.function}")
            return made


#: what the sections hold: the thing itself, or the function that is imported for it
Explained = CheckedEntry[Explainer | ExplainerFunction]
Measured = CheckedEntry[Metric | MetricFunction]


def explainers_from(raw: object) -> dict[str, Explained]:
    """The section `explainers`, by label.

    >>> list(explainers_from(["saliency", {"lrp": {"epsilon": 1e-6}}, "lrp", {"mine": "saliency"}]))
    ['saliency', 'lrp: epsilon=1e-06', 'lrp', 'mine']
    """
    return read_section(raw, EXPLAINERS, _explainer, _labels_of_explainers)


def metrics_from(raw: object, common: Mapping[str, Any], complete: bool) -> dict[str, Measured]:
    """The section `metrics`, by label.

    Args:
        raw: as in the file.
        common: the study's own `neighbourhood` (or several) and `preset`, for metrics that have this option and do not
            set it.
        complete: False where the file's own neighbourhood is wrong, so that its absence needs no second error.
    """
    common = common if complete else {**common, "neighbourhood": LinfBall(0.1)}
    return read_section(
        raw, METRICS, partial(_metric, common=common), _labels_of_metrics, partial(_sweep, common=common)
    )


def load_evaluation(entry: CheckedEntry[Any], label: str, base: Path, common: Mapping[str, Any] | None = None) -> Any:
    """The explainer or metric of an entry: a function is imported from `base`, and reference inputs are read.

    A function `(module, inputs, targets) -> attributions` becomes an explainer called `label`, a class is configured
    with the entry's options, and an explainer or a metric is taken as it is. `common` are the study's own options.
    """
    if isinstance(entry.value, FunctionEntry):
        return entry.value.load(label, base, common or {})
    with reading_from(base):
        build = _explainer if isinstance(entry.value, Explainer) else partial(_metric, common=common or {})
        return build(entry.named)[0]


def _labels_of_explainers(found: Sequence[Explained]) -> list[str]:
    """Names; with those options that are not as they are by default where several have one name."""
    labels, names = [], [str(entry.named.name) for entry in found]
    for name, entry in zip(names, found, strict=True):
        defaults: dict[str, Any] = {}
        with contextlib.suppress(TypeError):  # it has options without a default
            defaults = {} if isinstance(entry.value, FunctionEntry) else plain_options(type(entry.value)())
        options = {key: value for key, value in entry.plain.items() if key != entry.named.source}
        own = ", ".join(f"{key}={value}" for key, value in options.items() if defaults.get(key, ...) != value)
        labels.append(f"{name}: {own}" if own and names.count(name) > 1 else name)
    return labels


def _labels_of_metrics(found: Sequence[Measured]) -> list[str]:
    own = (e.value.own_label if isinstance(e.value, Metric) else e.named.name for e in found)
    return number_labels(join_label(label, e.variant) for label, e in zip(own, found, strict=True))


def _function(kind: type[FunctionEntry], named: ParsedEntry) -> tuple[Any, dict[str, Any]]:
    entry = kind.model_validate({"function": named.name, **named.options})
    return entry, entry.model_dump(exclude_unset=True)


def _explainer(named: ParsedEntry) -> tuple[Explainer | ExplainerFunction, dict[str, Any]]:
    if named.source == "function":
        return _function(ExplainerFunction, named)
    if explainers.is_from_package(named.name):
        return _explainer_elsewhere(named)
    value = configure(explainers[named.name], named.name, named.options)
    return value, {"name": named.name, **plain_options(value)}


def _explainer_elsewhere(named: ParsedEntry) -> tuple[Explainer, dict[str, Any]]:
    """An explainer of another package, whose options are that package's: lists as tuples, else as they stand."""

    def tuples_for_lists(raw: Any) -> Any:
        return tuple(map(tuples_for_lists, raw)) if isinstance(raw, list) else raw

    problems, options = Collector(), {}
    for key, value in named.options.items():
        with problems.at(key):
            if not isinstance(key, str):
                raise misfit("the name of an option", show(key))
            options[key] = background_from(value) if key == "background" else tuples_for_lists(value)
    problems.finish()
    with _errors_at_name(named, "an explainer"):
        explainer = make(partial(get_explainer, named.name), named.name, options, options)
    background = {"background": to_plain(options["background"])} if "background" in options else {}
    return explainer, {"name": named.name, **named.options, **background}


def _sweep(named: ParsedEntry, common: Mapping[str, Any]) -> dict[str, ParsedEntry]:
    """The same metric for each of several neighbourhoods: a list of its own, or that of the study.

    Only a list for `neighbourhood` itself stands for several values: `{jpeg: [30, 90]}` is one neighbourhood.
    """
    own = "neighbourhood" in named.options
    raw = named.options["neighbourhood"] if own else common["neighbourhood"]
    if named.source == "function" or not isinstance(raw, list | tuple) or not has_neighbourhood(_kind_of(named)):
        return {"": named}
    with errors_at("neighbourhood"):
        labels = neighbourhoods_from(raw)
    turns = [dataclasses.replace(named, turn=index) for index in range(len(raw))]
    if own:
        turns = [named.choose("neighbourhood", index) for index in range(len(raw))]
    return dict(zip(labels, turns, strict=True))


def _kind_of(named: ParsedEntry) -> type[Metric]:
    with _errors_at_name(named, "a metric"):
        return metrics[named.name]


def _metric(named: ParsedEntry, common: Mapping[str, Any]) -> tuple[Metric | MetricFunction, dict[str, Any]]:
    if named.source == "function":
        return _function(MetricFunction, named)
    kind = _kind_of(named)
    if named.turn is not None:
        common = {**common, "neighbourhood": common["neighbourhood"][named.turn]}
    given = {**common, **named.options}
    if given.get("neighbourhood") is None and has_neighbourhood(kind, required=True):
        own = f"{{{named.name}: {{neighbourhood: {{linf: 0.1}}}}}}"
        words = f"a neighbourhood for {named.name}, as in {own}, or neighbourhood: {{linf: 0.1}} for all metrics"
        raise misfit(words, "nothing", "neighbourhood")
    value = configure(kind, named.name, named.options, _defaults(kind, common))
    return value, {"name": named.name, **plain_options(value)}


def _defaults(kind: type[Any], common: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    return {name: value for name, value in common.items() if value is not None and name in known}


@contextlib.contextmanager
def _errors_at_name(named: ParsedEntry, what: str) -> Iterator[None]:
    """Errors of a plug-in or of another package are at its name: it does not exist, or cannot be used."""
    with errors_of(what, "name"):
        try:
            yield
        except UnknownNameError as error:
            package = named.name.partition(":")[0]
            raise make_unknown_error(what, named.name, [f"{package}:{name}" for name in error.names], "name") from error
