"""Metrics by label: the names that users give, and those that metrics have of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from standfast.metrics import Metric, get
from standfast.metrics.base import Ladder, Preset, find_neighbourhood_option, list_cheaper
from standfast.metrics.base import metrics as registry
from standfast.neighbourhoods import Neighbourhood
from standfast.neighbourhoods.naming import join_label, label_neighbourhoods
from standfast.question.grid import Extra
from standfast.registry import build, read_options


@dataclass(frozen=True)
class NamedMetric:
    """A metric of a list or a mapping, before labels are numbered.

    Attributes:
        label: what it is called.
        metric: with its options.
        given: the names of the options that the user has set; None for a metric that was configured in Python, of which
            that is not known.
    """

    label: str
    metric: Metric
    given: frozenset[str] | None = None


#: from a class of metrics to options that it gets where they are not given
FindDefaults = Callable[[type[Metric]], Mapping[str, Any]]


def name_metrics(
    metrics: Mapping[str, Metric | str] | Sequence[Metric | str],
    neighbourhood: Neighbourhood | Sequence[Neighbourhood] | None = None,
    preset: Preset | None = None,
    choose_label: Callable[[str, Metric], str] = lambda text, metric: metric.own_label,
    find_defaults: FindDefaults = lambda kind: {},
) -> dict[str, Metric]:
    """Metrics by label: the given labels, or the metric's own label, with a number if several have the same.

    With several neighbourhoods, a metric that is given by name is there once for each, and its label says which.

    Args:
        metrics: metrics, or their names as `standfast.metrics.get` takes them.
        neighbourhood: for metrics that are given by name and have this option; one or several.
        preset: for metrics that are given by name and do not say which; None for the defaults.
        choose_label: from the text and the metric to its label, for one that is given by name without a label.
        find_defaults: options that a metric gets together with the neighbourhood, where its text does not give them.

    >>> from standfast.neighbourhoods import LinfBall
    >>> list(name_metrics(["worst_case", "max_sensitivity", "max_sensitivity:samples=9"], LinfBall(0.1)))
    ['worst_case: changed_explanation', 'max_sensitivity', 'max_sensitivity 2']
    >>> list(name_metrics(["max_sensitivity", "aopc"], [LinfBall(0.1), LinfBall(0.2)]))
    ['max_sensitivity: linf 0.1', 'max_sensitivity: linf 0.2', 'aopc']
    """
    listed = list_metrics(metrics, neighbourhood, preset, choose_label, find_defaults)
    return {named.label: named.metric for named in listed}


def list_metrics(
    metrics: Mapping[str, Metric | str] | Sequence[Metric | str],
    neighbourhood: Neighbourhood | Sequence[Neighbourhood] | None = None,
    preset: Preset | None = None,
    choose_label: Callable[[str, Metric], str] = lambda text, metric: metric.own_label,
    find_defaults: FindDefaults = lambda kind: {},
) -> list[NamedMetric]:
    """The metrics of `name_metrics`, each with its label and the options that the user has set."""
    if isinstance(neighbourhood, Neighbourhood):
        # one neighbourhood is a list of one
        neighbourhood = [neighbourhood]
    neighbourhoods = list(neighbourhood or ())
    listed: list[NamedMetric] = []
    if isinstance(metrics, Mapping):
        for label, metric in metrics.items():
            for configured in _configure(metric, neighbourhoods, preset, find_defaults):
                # labels of a mapping are the user's, and stay without a number
                listed.append(replace(configured, label=join_label(label, configured.label)))
        return listed
    for metric in metrics:
        for configured in _configure(metric, neighbourhoods, preset, find_defaults):
            own_label = configured.metric.own_label
            if isinstance(metric, str):
                own_label = choose_label(metric, configured.metric)
            listed.append(replace(configured, label=join_label(own_label, configured.label)))
    labels = number_labels(named.label for named in listed)
    return [replace(named, label=label) for named, label in zip(listed, labels, strict=True)]


def list_extras(
    metrics: Sequence[NamedMetric],
    neighbourhoods: Sequence[Neighbourhood],
    place: Callable[[Neighbourhood], Sequence[NamedMetric]],
) -> dict[str, Extra]:
    """The metrics in further default neighbourhoods, by label.

    Args:
        metrics: in the first of the neighbourhoods.
        neighbourhoods: all of them.
        place: gives the same metrics in another one.
    """
    extras: dict[str, Extra] = {}
    names = label_neighbourhoods(neighbourhoods)
    # the first is evaluated anyway
    for name, neighbourhood in list(zip(names, neighbourhoods, strict=True))[1:]:
        for first, further in zip(metrics, place(neighbourhood), strict=True):
            # a metric without a neighbourhood is the same again
            if further.metric != first.metric:
                extras[join_label(first.label, name)] = Extra(first.label, further.metric)
    return extras


def list_ladders(metrics: Sequence[NamedMetric]) -> dict[str, Ladder]:
    """Cheaper settings of the metrics that are given by name, by label."""
    return {
        named.label: list_cheaper(named.metric, named.given)
        for named in metrics
        if named.given is not None
    }


def _configure(
    metric: Metric | str,
    neighbourhoods: Sequence[Neighbourhood],
    preset: Preset | None,
    find_defaults: FindDefaults,
) -> list[NamedMetric]:
    """A metric; one that is given by name once in each of the neighbourhoods. The labels say only in which."""
    # what was configured in Python keeps its options
    if not isinstance(metric, str):
        return [NamedMetric("", get(metric))]
    if preset is not None:
        common: dict[str, Any] = {"preset": preset}
    else:
        common = {}
    given_options = frozenset({*common, *read_options(registry, metric)})
    option = find_neighbourhood_option(metric)
    if not neighbourhoods or not option:
        return [NamedMetric("", build(registry, metric, defaults=common), given_options)]
    configured: list[NamedMetric] = []
    name = metric.partition(":")[0].strip()
    further_defaults = find_defaults(registry[name])
    labels = label_neighbourhoods(neighbourhoods)
    for words, neighbourhood in zip(labels, neighbourhoods, strict=True):
        placed = build(
            registry, metric, defaults={**common, option: neighbourhood, **further_defaults}
        )
        configured.append(NamedMetric(words, placed, given_options))
    return configured


def number_labels(labels: Iterable[str]) -> list[str]:
    """The labels, with a number after each that occurred before.

    >>> number_labels(["a", "b", "a"])
    ['a', 'b', 'a 2']
    """
    numbered_labels: dict[str, None] = {}
    for label in labels:
        numbered = label
        numbers = count(2)
        while numbered in numbered_labels:
            numbered = f"{label} {next(numbers)}"
        numbered_labels[numbered] = None
    return list(numbered_labels)
