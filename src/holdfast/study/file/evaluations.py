"""The sections `explainers` and `metrics` of a study file: lists or mappings of configured things, under labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdfast.errors import ArgumentError, MissingExtraError, UnknownNameError
from holdfast.explainers import Explainer, explainers, from_callable
from holdfast.metrics.base import Metric, metrics
from holdfast.neighbourhood import LinfBall, Neighbourhood
from holdfast.study.file.backgrounds import with_backgrounds
from holdfast.study.file.elsewhere import explainer_elsewhere, is_named_elsewhere
from holdfast.study.file.imports import is_reference, resolve
from holdfast.study.file.options import Named, configure, explainer_from, hints, members, named, spelled_options
from holdfast.study.file.problems import Collector, Keys, Problem, Wrong, from_argument, listed, nearest, shown, typed
from holdfast.study.run import named_metrics

T = TypeVar("T")


@dataclass(frozen=True)
class Configured(Generic[T]):
    """An explainer or a metric of the file.

    Attributes:
        value: it, configured; None where it is the user's function, which is imported when the grid is built.
        plain: the entry in the form `{metric: name, option: value}`, defaults included.
        path: where it stands in the file.
        options: where its options stand beneath that.
    """

    value: T | None
    plain: Mapping[str, Any] = field(default_factory=dict)
    path: Keys = ()
    options: Keys = ()


def explainers_from(raw: object) -> dict[str, Configured[Explainer]]:
    """The section `explainers`, by label.

    Raises:
        Wrong: no explainers, unknown names or options, values that do not fit, or the same explainer twice.

    >>> list(explainers_from(["saliency", {"lrp": {"epsilon": 1e-6}}, "lrp"]))
    ['saliency', 'lrp: epsilon=1e-06', 'lrp']
    """
    found = _section(raw, "explainer", explainers.names(), _explainer)
    if isinstance(raw, Mapping):
        return {str(label): entry for label, entry in zip(raw, found, strict=True)}
    _all_differ(found, "explainers")
    names = [str(entry.plain.get("explainer", entry.plain.get("function"))) for entry in found]
    labels = [name if names.count(name) == 1 else _with_options(name, e) for name, e in zip(names, found, strict=True)]
    return dict(zip(labels, found, strict=True))


def metrics_from(raw: object, neighbourhood: Neighbourhood | None, complete: bool) -> dict[str, Configured[Metric]]:
    """The section `metrics`, by label.

    Args:
        raw: as in the file.
        neighbourhood: for metrics that want one and do not say which.
        complete: False where the file's own neighbourhood is wrong, so that its absence needs no second error.

    Raises:
        Wrong: no metrics, unknown names or options, values that do not fit, or the same metric twice.
    """
    standing = neighbourhood if complete else LinfBall(0.1)
    found = _section(raw, "metric", MetricNames(metrics), lambda entry, label: _metric(entry, label, standing))
    if isinstance(raw, Mapping):
        return {str(label): entry for label, entry in zip(raw, found, strict=True)}
    _all_differ(found, "metrics")
    labels = named_metrics([entry.value for entry in found if entry.value is not None])
    return dict(zip(labels, found, strict=True))


class MetricNames(list[str]):
    """The registered metrics; whatever has another package's name before a colon counts as one of them."""

    def __contains__(self, name: object) -> bool:
        return metrics.is_elsewhere(name) or super().__contains__(name)


def _of_peer(found: Named) -> type[Metric]:
    """The metric of another package, at its place in the file if there is none."""
    try:
        return metrics[found.name]
    except MissingExtraError as error:
        raise Wrong(Problem(found.at_name, "a metric of an installed package", str(error))) from error
    except ArgumentError as error:
        if not isinstance(error, UnknownNameError):  # it is there, and cannot be used
            raise Wrong(Problem(found.at_name, error.expected, str(error.got))) from error
        known = error.names
        words = f"a metric ({listed(known)})"
        raise Wrong(Problem(found.at_name, words, shown(found.name), near=nearest(found.name, known))) from error


def _section(
    raw: object, what: str, known: list[str], read: Callable[[object, str | None], Configured[T]]
) -> list[Configured[T]]:
    """The entries of a list or of a mapping from labels."""
    if not isinstance(raw, Mapping | list | tuple):
        words = f"a list of {what}s, or a mapping from labels to {what}s"
        near = nearest(raw, known) if isinstance(raw, str) else None
        raise Wrong(Problem((), words, shown(raw), near=near))
    if not raw:
        raise Wrong(Problem((), f"at least one {what}", shown(raw)))
    problems, found = Collector(), []
    for key, entry in raw.items() if isinstance(raw, Mapping) else enumerate(raw):
        with problems.at(key):
            if isinstance(raw, Mapping) and not isinstance(key, str):
                raise Wrong(Problem((), "a label as text", shown(key)))
            label = key if isinstance(key, str) else None
            found.append(replace(read(_labelled(entry, label, what, known), label), path=(key,)))
    problems.finish()
    return found


def _labelled(entry: object, label: str | None, what: str, known: list[str]) -> object:
    """`saliency: {absolute: false}` in a mapping means itself: the label is the name."""
    if label is None or (entry is not None and not isinstance(entry, Mapping)):
        return entry
    options = entry or {}
    assert isinstance(options, Mapping)
    if what in options or "function" in options or (len(options) == 1 and next(iter(options)) in known):
        return entry
    if what == "explainer" and is_named_elsewhere(options):
        return entry
    if label in known or (what == "explainer" and is_named_elsewhere(label)):
        return {what: label, **options}
    near = nearest(label, known) or next((n for n in (nearest(key, [what]) for key in options) if n), None)
    raise Wrong(Problem((), f"{what}: NAME among the options of {label!r}", shown(entry), near=near))


def _all_differ(found: list[Configured[T]], what: str) -> None:
    for index, entry in enumerate(found):
        earlier = next((n for n in range(index) if found[n].plain == entry.plain), None)
        if earlier is not None:
            raise Wrong(Problem((index,), f"{what} that differ", f"the same as {what}[{earlier}]"))


def _with_options(name: str, entry: Configured[Any]) -> str:
    """The name and those options that are not as they are by default."""
    defaults = {} if entry.value is None else _defaults(type(entry.value))
    own = {k: v for k, v in entry.plain.items() if k not in ("explainer", "function") and defaults.get(k, ...) != v}
    return f"{name}: {', '.join(f'{k}={v}' for k, v in own.items())}" if own else name


def _defaults(kind: type[Any]) -> dict[str, Any]:
    try:
        return spelled_options(kind())
    except TypeError:  # it has options without a default
        return {}


_FUNCTION = ("function", "differentiable", "rows_per_input")


def _explainer(raw: object, label: str | None) -> Configured[Explainer]:
    if isinstance(raw, Mapping) and "function" in raw:
        return _function(raw)
    if is_named_elsewhere(raw):
        value, plain, at = explainer_elsewhere(raw)
        return Configured(value, plain, options=at)
    value = explainer_from(raw)
    at = named(raw, "explainer", "an explainer", explainers.names()).at_options if isinstance(raw, Mapping) else ()
    return Configured(value, {"explainer": value.name, **spelled_options(value)}, options=at)


def _function(raw: Mapping[Any, Any]) -> Configured[Explainer]:
    """The user's function: what can be said without importing it."""
    problems = Collector()
    for key in raw:
        if key not in (*_FUNCTION, "options"):
            words = f"an option of a function ({', '.join((*_FUNCTION, 'options'))})"
            problems.problems.append(Problem((key,), words, shown(key), near=nearest(key, (*_FUNCTION, "options"))))
    checks = {
        "function": ("a function, as module:function", is_reference(raw["function"])),
        "differentiable": ("true or false", isinstance(raw.get("differentiable", False), bool)),
        "rows_per_input": ("a whole number of at least 1", _is_count(raw.get("rows_per_input", 1))),
        "options": ("options, each with its value", isinstance(raw.get("options", {}), Mapping)),
    }
    for key, (words, fine) in checks.items():
        if not fine:
            problems.problems.append(Problem((key,), words, shown(raw[key])))
    problems.finish()
    return Configured(None, dict(raw))


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def imported(entry: Configured[Explainer], label: str, base: Path) -> Explainer:
    """The explainer itself; the user's function is imported and reference inputs are read here.

    A function `(module, inputs, targets) -> attributions` becomes an explainer; a class of explainers is configured
    with the entry's options, and an Explainer is taken as it is.

    Raises:
        Wrong: the module or the name is not there, or it is nothing of the kind; reference inputs cannot be read.
    """
    problems = Collector()
    if entry.value is not None:
        with problems.at(*entry.options):
            return with_backgrounds(entry.value, base)
        problems.finish()
    raw = entry.plain
    found: Any = None
    with problems.at("function"):
        found = resolve(raw["function"], [str(base)])
        if not callable(found) and not isinstance(found, Explainer):
            raise Wrong(Problem((), "a function or an Explainer", typed(found)))
    problems.finish()
    options = raw.get("options", {})
    given = {key: raw[key] for key in ("differentiable", "rows_per_input") if key in raw}
    if isinstance(found, type) and issubclass(found, Explainer):
        with problems.at("options"):
            return with_backgrounds(configure(found, label, options), base)
        problems.finish()
    if isinstance(found, Explainer) and not options and not given:
        return found
    if options or isinstance(found, Explainer):
        key = "options" if options else next(iter(given))
        raise Wrong(Problem((key,), f"no {key}, which go with a class of explainers", shown(raw[key])))
    try:
        return from_callable(found, name=label, **given)
    except ArgumentError as error:
        raise Wrong(from_argument(error, given)) from error


def _metric(raw: object, label: str | None, neighbourhood: Neighbourhood | None) -> Configured[Metric]:
    found = named(raw, "metric", "a metric", MetricNames(metrics))
    kind = _of_peer(found) if metrics.is_elsewhere(found.name) else metrics[found.name]
    wants = any(
        isinstance(member, type) and issubclass(member, Neighbourhood)
        for member in members(hints(kind).get("neighbourhood"))
    )
    standing = {"neighbourhood": neighbourhood} if wants and neighbourhood is not None else {}
    try:
        value = configure(kind, found.name, found.options, standing)
    except Wrong as wrong:
        raise Wrong(*wrong.under(*found.at_options)) from wrong.__cause__
    return Configured(value, {"metric": found.name, **spelled_options(value)}, options=found.at_options)
