"""`ConfiguredMetric`: a metric of a study as its manifest describes it, and how its numbers are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from standfast.errors import StandfastError
from standfast.tasks import CLASS_WORDS, TaskWords
from standfast.value_spec import Direction, ValueSpec

if TYPE_CHECKING:
    from standfast.metrics import Metric


@dataclass(frozen=True)
class ConfiguredMetric:
    """A configured metric of a study.

    Attributes:
        name: its label.
        metric: the registered name.
        options: its configuration, as stored.
        direction: which value is better; unlike that of `spec` also where the value does not rank explainers.
        controls: whether explainers are tested against controls.
        spec: how its frame is read.
        stored: the manifest's entry.
        task: what the report calls scores and answers.
        compared: whether the spec is that of `make_comparable`, and not of the stored value.
        removal: of texts, what stands in the place of a removed word, such as `"mask"`; empty where it is not known.
    """

    name: str
    metric: str
    options: Mapping[str, Any]
    direction: Direction
    controls: bool
    spec: ValueSpec
    stored: Mapping[str, Any]
    task: TaskWords = CLASS_WORDS
    compared: bool = False
    removal: str = ""


def configure_metric(
    label: str,
    metric: str,
    stored: Mapping[str, Any],
    task: TaskWords = CLASS_WORDS,
    removal: str = "",
) -> ConfiguredMetric:
    """A metric as the manifest describes it. Where the manifest does not say how it is read, its class does.

    Args:
        label: its name in the study.
        metric: its registered name.
        stored: the manifest's entry; may be empty.
        task: what the report calls scores and answers.
        removal: of texts, what stands in the place of a removed word.
    """
    options = dict(stored.get("options") or {})
    if removal:
        # it stands in the place of the code of the word, which says the same
        options.pop("baseline", None)
        options["removal"] = removal
    direction = read_direction(stored.get("direction"))
    controls = bool(stored.get("controls"))
    if "values" in stored:
        spec = ValueSpec.from_stored(stored["values"])
        if spec.asks is None:
            # a manifest of an earlier version does not say it
            spec = replace(spec, asks=registered_spec(metric, options, direction, task).asks)
    else:
        spec = registered_spec(metric, options, direction, task)
        kind = find_metric_class(metric)
        if kind is not None:
            direction = kind.direction_of(options)
            controls = kind.controls
    return ConfiguredMetric(
        label, metric, options, direction, controls, spec, stored, task, removal=removal
    )


def read_direction(stored: object) -> Direction:
    """The direction that a manifest holds; None for everything that is none."""
    if stored == "higher":
        return "higher"
    return "lower" if stored == "lower" else None


def registered_spec(
    metric: str,
    options: Mapping[str, Any],
    direction: Direction = None,
    task: TaskWords = CLASS_WORDS,
) -> ValueSpec:
    """How the class that is registered for a metric reads its frame; by name and direction without such a class.

    Args:
        metric: the registered name.
        options: as stored.
        direction: what is stored. It counts only if the metric is not installed here.
        task: what the report calls scores and answers.

    >>> registered_spec("worst_case", {"event": "changed_class", "similarity": "pearson"}).direction
    'lower'
    >>> registered_spec("of_another_computer", {}, "higher").direction
    'higher'
    """
    kind = find_metric_class(metric)
    if kind is None:
        return ValueSpec.named(metric, direction)
    # imported only here, as metrics are in `find_metric_class`
    from standfast.metrics.base import read_values

    return read_values(kind, options, task)


def find_owners(kind: type[Metric]) -> dict[str, str]:
    """By each option of a metric that belongs to another option, that other one.

    >>> kind = find_metric_class("seed_agreement")
    >>> kind is not None and find_owners(kind)
    {}
    """
    # imported only here, as metrics are in `find_metric_class`
    from standfast.metrics.base import PartOf

    return {option: role.option for option, role in kind.roles.items() if isinstance(role, PartOf)}


def find_metric_class(metric: str) -> type[Metric] | None:
    """The class that is registered for a metric's name; None where its package is not installed here.

    >>> find_metric_class("worst_case").__name__, find_metric_class("of_another_computer")
    ('WorstCase', None)
    """
    # Imported only here: metrics import models and explainers, which stored results do not need.
    from standfast.metrics import metrics

    try:
        return metrics[metric]
    except StandfastError:
        return None
