"""Metrics by label: the names that users give, and those that metrics have of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from standfast.metrics import Metric, get
from standfast.metrics.base import Preset, has_neighbourhood
from standfast.metrics.base import metrics as registry
from standfast.neighbourhoods import Neighbourhood
from standfast.neighbourhoods.naming import join_label, label_neighbourhoods
from standfast.registry import build

#: from a class of metrics to options that it gets where they are not given
FindDefaults = Callable[[type[Metric]], Mapping[str, Any]]


def name_metrics(
    metrics: Mapping[str, Metric | str] | Sequence[Metric | str],
    neighbourhood: Neighbourhood | Sequence[Neighbourhood] | None = None,
    preset: Preset = "standard",
    choose_label: Callable[[str, Metric], str] = lambda text, metric: metric.own_label,
    find_defaults: FindDefaults = lambda kind: {},
) -> dict[str, Metric]:
    """Metrics by label: the given labels, or the metric's own label, with a number if several have the same.

    With several neighbourhoods, a metric that is given by name is there once for each, and its label says which.

    Args:
        metrics: metrics, or their names as `standfast.metrics.get` takes them.
        neighbourhood: for metrics that are given by name and have this option; one or several.
        preset: for metrics that are given by name and do not say which.
        choose_label: from the text and the metric to its label, for one that is given by name without a label.
        find_defaults: options that a metric gets together with the neighbourhood, where its text does not give them.

    >>> from standfast.neighbourhoods import LinfBall
    >>> list(name_metrics(["worst_case", "max_sensitivity", "max_sensitivity:samples=9"], LinfBall(0.1)))
    ['worst_case: changed_explanation', 'max_sensitivity', 'max_sensitivity 2']
    >>> list(name_metrics(["max_sensitivity", "aopc"], [LinfBall(0.1), LinfBall(0.2)]))
    ['max_sensitivity: linf 0.1', 'max_sensitivity: linf 0.2', 'aopc']
    """
    if isinstance(neighbourhood, Neighbourhood):
        neighbourhood = [neighbourhood]
    neighbourhoods = list(neighbourhood or ())
    if isinstance(metrics, Mapping):
        named_metrics: dict[str, Metric] = {}
        for label, metric in metrics.items():
            for words, configured in _configure(metric, neighbourhoods, preset, find_defaults).items():
                named_metrics[join_label(label, words)] = configured
        return named_metrics
    labels: list[str] = []
    all_configured: list[Metric] = []
    for metric in metrics:
        for words, configured in _configure(metric, neighbourhoods, preset, find_defaults).items():
            own_label = configured.own_label
            if isinstance(metric, str):
                own_label = choose_label(metric, configured)
            labels.append(join_label(own_label, words))
            all_configured.append(configured)
    return dict(zip(number_labels(labels), all_configured, strict=True))


def _configure(
    metric: Metric | str, neighbourhoods: Sequence[Neighbourhood], preset: Preset, find_defaults: FindDefaults
) -> dict[str, Metric]:
    """A metric; one that is given by name once in each of the neighbourhoods, by a few words for each."""
    if not isinstance(metric, str):
        return {"": get(metric)}
    if not neighbourhoods or not has_neighbourhood(metric):
        return {"": build(registry, metric, defaults={"preset": preset})}
    configured: dict[str, Metric] = {}
    name = metric.partition(":")[0].strip()
    further_defaults = find_defaults(registry[name])
    labels = label_neighbourhoods(neighbourhoods)
    for words, neighbourhood in zip(labels, neighbourhoods, strict=True):
        defaults = {"preset": preset, "neighbourhood": neighbourhood, **further_defaults}
        configured[words] = build(registry, metric, defaults=defaults)
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
