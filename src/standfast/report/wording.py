"""How inputs are changed, in words: norm balls, transformations and their parameters, and all of a study together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from standfast.neighbourhoods import Transformation
from standfast.neighbourhoods.naming import describe_change, read_stored
from standfast.records import split_tag
from standfast.results import StoredResults
from standfast.tensors import is_image

#: how many ways of changing inputs are named
_MOST_WAYS = 2
_UP_TO = " by up to "


def describe_reach(options: Mapping[str, Any], part: str = "feature") -> str:
    """How far the inputs of a metric may move, in words; empty where its options have no norm ball or radius.

    >>> describe_reach({"neighbourhood": {"norm": "LinfBall", "radius": 0.1}})
    'by at most 0.1 in each feature'
    >>> describe_reach({"neighbourhood": {"norm": "L2Ball", "radius": 2.0}})
    'by a Euclidean distance of at most 2'
    """
    stored = options.get("neighbourhood", {"norm": "LinfBall", **options})
    tag, title, settings = split_tag(stored)
    radius = settings.get("radius")
    if tag == "transformation" or not isinstance(radius, int | float):
        return ""
    size = f"{radius:.4g}"
    if title == "L2Ball":
        return f"by a Euclidean distance of at most {size}"
    if title == "LinfBall":
        return f"by at most {size} in each {part}"
    return f"by at most {size}"


def describe_neighbourhood(results: StoredResults) -> str:
    """The sentence that an answer begins with: how far the metrics change inputs; empty where none does."""
    ways = _list_ways(results)
    if not ways:
        return ""
    assumed = (results.manifest.get("about") or {}).get("default neighbourhood")
    if assumed and len(ways) == 1:
        return f"Neighbourhood: {assumed}."
    by_default = f" By default {assumed}." if assumed else ""
    return f"Neighbourhood: {_join_ways(ways)}.{by_default}"


def describe_changes(results: StoredResults) -> str:
    """How far the metrics change inputs, in a few words; empty where none does."""
    return _join_ways(_list_ways(results))


def describe_changes_of(results: StoredResults, labels: Sequence[str]) -> str:
    """How far some metrics change inputs, in a few words; empty where none does."""
    return _join_ways(_list_ways(results, labels))


def _list_ways(results: StoredResults, labels: Sequence[str] | None = None) -> list[str]:
    """In words each way in which a metric changes inputs; of all metrics, if no labels are given."""
    feature, width = _name_feature(results)
    ways = []
    for label, metric in results.metrics.items():
        stored = metric.options.get("neighbourhood")
        if stored is not None and (labels is None or label in labels):
            ways.append(_describe_stored(stored, feature, width))
    return list(dict.fromkeys(ways))


def _join_ways(ways: Sequence[str]) -> str:
    if len(ways) > _MOST_WAYS:
        return f"inputs changed in {len(ways)} ways"
    first, *others = ways or [""]
    beginning, _, size = first.partition(_UP_TO)
    # the same features by several radii
    beginning += _UP_TO
    if size and all(way.startswith(beginning) for way in others):
        others = [way.removeprefix(beginning) for way in others]
    return " or ".join([first, *others])


def _name_feature(results: StoredResults) -> tuple[str, float | None]:
    """What a number of an input is called, and the width of the range of each pixel; None where there are others."""
    stored = results.manifest.get("data", {})
    data_sets = [stored.get(name) or {} for name in results.data]
    embedded = [about for about in data_sets if about.get("tokens") and not about.get("texts")]
    if embedded:
        return "number of the embedding", None
    shapes = [about.get("input_shape") or () for about in data_sets]
    if not shapes or not all(is_image(shape) for shape in shapes):
        return "feature", None
    widths = {_find_width(about.get("bounds")) for about in data_sets}
    width = None
    if len(widths) == 1:
        width = widths.pop()
    return "pixel", width


def _find_width(bounds: Any) -> float | None:
    """The width of the range of all features, from the bounds in a manifest; None if it is infinite, or differs."""
    try:
        lower, upper = [list(map(float, ends)) for ends in bounds]
    except (TypeError, ValueError):
        return None
    width = upper[0] - lower[0]
    are_same = len(set(lower)) == len(set(upper)) == 1
    if are_same and math.isfinite(width) and width > 0:
        return width
    return None


def _describe_stored(stored: Any, feature: str, width: float | None) -> str:
    """A neighbourhood in words; of a class that is not installed here, what its options say."""
    neighbourhood = read_stored(stored)
    if neighbourhood is not None:
        return describe_change(neighbourhood, feature, width)
    options = {"neighbourhood": stored}
    return describe_transformation(options) or f"moved {describe_reach(options, feature)}"


def describe_parameters(
    row: Mapping[str, Any], options: Mapping[str, Any], shape: Sequence[int]
) -> str:
    """The parameters of a transformation in a row of results, in words; empty where it has none.

    Empty for tables and texts, too: what was asked for there is not yet the change, because of steps, rules and draws.

    Args:
        row: of the frame of a metric, with a column for each parameter.
        options: of the metric, as stored.
        shape: of the inputs.

    >>> options = {"neighbourhood": {"transformation": "Rotation", "degrees": [-10, 10]}}
    >>> describe_parameters({"value": 0.3, "angle [degrees]": -7.31}, options, (1, 28, 28))
    'angle −7.31 degrees'
    >>> options = {"neighbourhood": {"transformation": "Brightness", "shift": [-0.2, 0.2]}}
    >>> describe_parameters({"value": 0.3, "brightness [share of the range]": 0.1}, options, (1, 28, 28))
    'brightness 10% of the range'
    """
    neighbourhood = read_stored(options.get("neighbourhood"))
    if not isinstance(neighbourhood, Transformation) or len(shape) < 2:
        return ""
    names = set(neighbourhood.name_parameters(shape).values())
    described = []
    for column, value in row.items():
        name = column.partition(" #")[0]
        if name in names and isinstance(value, int | float):
            described.append(_describe_parameter(column, value))
    return ", ".join(described)


def _describe_parameter(column: str, value: float) -> str:
    """A parameter in words, from a column such as `"angle [degrees]"`; shares are in percent."""
    name, _, rest = column.partition(" [")
    unit, _, number = rest.partition("]")
    end = f" {unit}"
    if unit.startswith("share"):
        value *= 100
        end = f"%{unit.removeprefix('share')}"
    elif unit in ("%", "percent"):
        end = "%"
    size = f"{value:z.3g}".replace("-", "−")
    return f"{name}{number} {size}{end}".rstrip()


def describe_transformation(options: Mapping[str, Any]) -> str:
    """What happens to the inputs of a metric, as the end of "an input is ..."; empty where they are in a norm ball.

    >>> describe_transformation({"neighbourhood": {"transformation": "TimeShift", "samples": [-3, 3]}})
    'shifted in time by -3 to 3 samples'
    >>> describe_transformation({"neighbourhood": {"transformation": "Wobble", "strength": 3}})
    'changed by Wobble (strength 3)'
    """
    stored = options.get("neighbourhood")
    tag, title, rest = split_tag(stored)
    if tag != "transformation":
        return ""
    neighbourhood = read_stored(stored)
    if neighbourhood is not None:
        return neighbourhood.describe()
    settings = ", ".join([f"{key} {value}" for key, value in rest.items()])
    if settings:
        return f"changed by {title} ({settings})"
    return f"changed by {title}"
