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
from typing import Any

from standfast.errors import ArgumentError, StandfastError, UnknownNameError
from standfast.explainers import Explainer, explainers, from_callable
from standfast.explainers import get as get_explainer
from standfast.metrics.base import Metric, metrics
from standfast.neighbourhoods import LinfBall
from standfast.neighbourhoods.naming import join_label
from standfast.study.file.data_entries import with_backgrounds
from standfast.study.file.entries import ExplainerFunction, MetricFunction
from standfast.study.file.imports import call_function, resolve
from standfast.study.file.names import EXPLAINERS, METRICS, CheckedEntry, ParsedEntry, read_section
from standfast.study.file.options import background_from, configure, neighbourhoods_from, plain_options, to_plain
from standfast.study.file.problems import (
    Collector,
    describe_error,
    errors_at,
    errors_of,
    make_unknown_error,
    misfit,
    show,
    with_article,
)
from standfast.study.run import has_neighbourhood, number_labels

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
    build, sweep = partial(_metric, common=common), partial(_sweep, common=common)
    return read_section(raw, METRICS, build, _labels_of_metrics, sweep)


def _labels_of_explainers(found: Sequence[Explained]) -> list[str]:
    """Names; with those options that are not as they are by default where several have one name."""

    def default_options(entry: Explained) -> dict[str, Any]:
        try:
            return {} if isinstance(entry.value, ExplainerFunction) else plain_options(type(entry.value)())
        except TypeError:  # it has options without a default
            return {}

    labels, names = [], [str(entry.named.name) for entry in found]
    for name, entry in zip(names, found, strict=True):
        options = {k: v for k, v in entry.plain.items() if k != entry.named.source} if names.count(name) > 1 else {}
        defaults = default_options(entry) if options else {}
        own = ", ".join(f"{key}={value}" for key, value in options.items() if defaults.get(key, ...) != value)
        labels.append(f"{name}: {own}" if own else name)
    return labels


def _labels_of_metrics(found: Sequence[Measured]) -> list[str]:
    own = (e.value.own_label if isinstance(e.value, Metric) else e.named.name for e in found)
    return number_labels(join_label(label, e.variant) for label, e in zip(own, found, strict=True))


def _explainer(named: ParsedEntry) -> tuple[Explainer | ExplainerFunction, dict[str, Any]]:
    if named.source == "function":
        function = ExplainerFunction.model_validate({"function": named.name, **named.options})
        return function, function.model_dump(exclude_unset=True)
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
        try:
            explainer = get_explainer(named.name, **options)
        except UnknownNameError:
            raise
        except ArgumentError as error:
            path = (error.argument,) if error.argument in options else ()
            words = error.expected if path else f"{error.argument} to be {error.expected}"
            raise misfit(words, error.got, *path) from error
        except StandfastError:
            raise
        except Exception as error:  # a class of another package may raise anything
            raise misfit(f"options that {named.name} accepts", describe_error(error)) from error
    background = {"background": to_plain(options["background"])} if "background" in options else {}
    return explainer, {"name": named.name, **named.options, **background}


def _sweep(named: ParsedEntry, common: Mapping[str, Any]) -> dict[str, ParsedEntry]:
    """The same metric for each of several neighbourhoods: a list of its own, or that of the study.

    Only a list for `neighbourhood` itself stands for several values: `{jpeg: [30, 90]}` is one neighbourhood.
    """
    if named.source == "function":
        return {"": named}
    with _errors_at_name(named, "a metric"):
        kind = metrics[named.name]
    if not has_neighbourhood(kind):
        return {"": named}
    raw = named.options.get("neighbourhood", common["neighbourhood"])
    if not isinstance(raw, list | tuple):
        return {"": named}
    with errors_at("neighbourhood"):
        values = neighbourhoods_from(raw)
    return {
        words: dataclasses.replace(
            named,
            options={**named.options, "neighbourhood": value},
            moved={**named.moved, "neighbourhood": ("neighbourhood", index)},
        )
        for index, (words, value) in enumerate(values.items())
    }


def _metric(named: ParsedEntry, common: Mapping[str, Any]) -> tuple[Metric | MetricFunction, dict[str, Any]]:
    if named.source == "function":
        function = MetricFunction.model_validate({"function": named.name, **named.options})
        return function, function.model_dump(exclude_unset=True)
    with _errors_at_name(named, "a metric"):
        kind = metrics[named.name]
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


# When the grid is built


def import_explainer(entry: Explained, label: str, base: Path) -> Explainer:
    """The explainer itself: the user's function is imported from `base`, and reference inputs are read.

    A function `(module, inputs, targets) -> attributions` becomes an explainer called `label`; a class of explainers is
    configured with the entry's options, and an Explainer is taken as it is.
    """
    if isinstance(entry.value, Explainer):
        return with_backgrounds(entry.value, base)
    found = _import(entry.value, Explainer, label, base)
    if isinstance(found, Explainer):
        return found
    if not callable(found):
        raise misfit("a function or an Explainer", with_article(type(found).__name__), "function")
    given = entry.value.model_dump(exclude_unset=True, exclude={"function"})
    if "options" in given:
        raise misfit("no options, as these go with a class of explainers", show(given["options"]), "options")
    return from_callable(found, name=label, **given)


def import_metric(entry: Measured, label: str, base: Path, common: Mapping[str, Any]) -> Metric:
    """The same for a metric, where a function is called for it; a class gets the study's `common` options."""
    if isinstance(entry.value, Metric):
        return with_backgrounds(entry.value, base)
    found = _import(entry.value, Metric, label, base, common)
    if isinstance(found, Metric):
        return found
    with errors_at("function"):
        found = call_function(entry.value.function, entry.value.options, [str(base)], "a metric")
        if not isinstance(found, Metric):
            raise misfit("a Metric", f"{with_article(type(found).__name__)} from {entry.value.function}")
        return found


def _import(
    entry: ExplainerFunction | MetricFunction,
    kind: type[Explainer] | type[Metric],
    label: str,
    base: Path,
    common: Mapping[str, Any] | None = None,
) -> Any:
    """What the entry names; of a class, which derives from `kind`, an instance with the entry's options."""
    with errors_at("function"):
        found = resolve(entry.function, [str(base)])
    if isinstance(found, type) and issubclass(found, kind):
        with errors_at("options"):
            defaults = _defaults(found, common or {})
            if isinstance(defaults.get("neighbourhood"), tuple) and "neighbourhood" not in entry.options:
                raise misfit("a neighbourhood, as the study has several", "nothing", "neighbourhood")
            return with_backgrounds(configure(found, label, entry.options, defaults), base)
    if isinstance(found, kind):
        for key, value in entry.model_dump(exclude_unset=True, exclude={"function"}).items():
            raise misfit(f"no {key}, as the {kind.__name__} is configured already", show(value), key)
    return found
