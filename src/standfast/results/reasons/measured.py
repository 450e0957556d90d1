"""What values are measured in, and how far inputs were changed, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from standfast.neighbourhoods.naming import describe_change, read_stored
from standfast.results.metric_results import MetricResults
from standfast.tasks import TaskWords
from standfast.tensors import is_image

#: measures whose signs say what raising a feature does
ABOUT_RAISING = ("slope", "direction")
#: of trees, which add up what they were fitted to
_OF_TREES = "the trees' own score: log-odds where they are boosted, the probability of a forest"


def describe_measurement(view: MetricResults, shape: Sequence[int]) -> str:
    """How far inputs were changed, such as "each pixel by up to 4/255 of its range"; empty where they stay.

    Args:
        view: of the metric with its neighbourhood.
        shape: of an input.
    """
    neighbourhood = read_stored(view.options.get("neighbourhood"))
    if neighbourhood is None:
        return ""
    if not is_image(shape):
        return describe_change(neighbourhood, view.position)
    low, high = view.bounds
    width = high - low
    is_known = math.isfinite(width) and width > 0
    return describe_change(neighbourhood, "pixel", width if is_known else None)


def read_measures(manifest: Mapping[str, Any], explainer: str) -> tuple[str, str]:
    """What an explainer measures, and on which scale (`Explainer.measures`); of older manifests nothing is known.

    >>> read_measures({"measures": {"saliency": ["slope", "logit"]}}, "saliency")
    ('slope', 'logit')
    >>> read_measures({}, "saliency")
    ('relevance', '')
    """
    measured = (manifest.get("measures") or {}).get(explainer)
    if not isinstance(measured, list | tuple) or len(measured) != 2:
        return "relevance", ""
    return str(measured[0]), str(measured[1])


def is_about_raising(manifest: Mapping[str, Any], explainer: str) -> bool:
    """Whether the signs of an explainer say what raising a feature does; of older manifests this is not known.

    >>> [is_about_raising({"measures": {"a": [measure, "logit"]}}, "a") for measure in ("slope", "contribution")]
    [True, False]
    """
    measures, _ = read_measures(manifest, explainer)
    return measures in ABOUT_RAISING


def name_unit(measures: str, scale: str, words: TaskWords) -> str:
    """What values are measured in; empty where they have no unit.

    Args:
        measures, scale: of `read_measures`.
        words: of the task.

    >>> name_unit("contribution", "logit", TaskWords(kind="side")), name_unit("slope", "probability", TaskWords())
    ('log-odds', 'probability for each unit of the feature')
    >>> name_unit("relevance", "logit", TaskWords())
    ''
    """
    if measures not in ("contribution", "slope"):
        return ""
    if scale == "trees" and words.kind in ("class", "side"):
        return _OF_TREES
    unit = words.probability if scale == "probability" else words.logit
    # of one of two sides the logit of its probability
    if unit == "logit" and words.kind == "side":
        unit = "log-odds"
    if measures == "slope":
        return f"{unit} for each unit of the feature"
    return unit
