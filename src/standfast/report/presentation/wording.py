"""Numbers and names in the words of a verdict, for readers who do not know the metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from standfast.neighbourhoods import Transformation
from standfast.neighbourhoods.naming import read_stored


def describe_share(odds: str) -> str:
    """How often something happens, from the words of `format_odds`.

    >>> describe_share("over 99 in 100"), describe_share("at most 1 in 100"), describe_share("never")
    ('in over 99% of draws', 'in at most 1 of 100 draws', 'never')
    """
    if odds.endswith("never"):
        return "never"
    if odds.endswith(" in 100") and odds.split()[-3] != "1":
        return f"in {odds.removesuffix(' in 100')}% of draws"
    return f"in {odds.replace('1 in ', '1 of ')} draws"


def describe_reach(options: Mapping[str, Any], part: str = "feature") -> str:
    """How far the inputs of a metric may move, in words; empty where its options have no norm ball or radius.

    >>> describe_reach({"neighbourhood": {"norm": "LinfBall", "radius": 0.1}})
    'by at most 0.1 in each feature'
    >>> describe_reach({"neighbourhood": {"norm": "L2Ball", "radius": 2.0}})
    'by a Euclidean distance of at most 2'
    """
    place = options.get("neighbourhood")
    if isinstance(place, Mapping) and "transformation" in place:
        return ""
    if not isinstance(place, Mapping):
        place = {"norm": "LinfBall", "radius": options.get("radius")}
    radius = place.get("radius")
    if not isinstance(radius, int | float):
        return ""
    size = f"{radius:.4g}"
    if place.get("norm") == "L2Ball":
        return f"by a Euclidean distance of at most {size}"
    return f"by at most {size} in each {part}" if place.get("norm") == "LinfBall" else f"by at most {size}"


def describe_parameters(row: Mapping[str, Any], options: Mapping[str, Any], shape: Sequence[int]) -> str:
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
    place = read_stored(options.get("neighbourhood"))
    if not isinstance(place, Transformation) or len(shape) < 2:
        return ""
    names = set(place.name_parameters(shape).values())
    found = []
    for column, value in row.items():
        if column.partition(" #")[0] not in names or not isinstance(value, int | float):
            continue
        name, _, rest = column.partition(" [")
        unit, _, number = rest.partition("]")
        scale = 100 if unit.startswith("share") else 1
        text = f"{scale * value:z.3g}".replace("-", "−")
        unit = f"%{unit.removeprefix('share')}" if scale == 100 else "%" if unit in ("%", "percent") else f" {unit}"
        found.append(f"{name}{number} {text}{unit}".rstrip())
    return ", ".join(found)


def describe_transformation(options: Mapping[str, Any]) -> str:
    """What happens to the inputs of a metric, as the end of "an input is ..."; empty where they are in a norm ball.

    >>> describe_transformation({"neighbourhood": {"transformation": "TimeShift", "samples": [-3, 3]}})
    'shifted in time by -3 to 3 samples'
    >>> describe_transformation({"neighbourhood": {"transformation": "Wobble", "strength": 3}})
    'changed by Wobble (strength 3)'
    """
    place = options.get("neighbourhood")
    if not isinstance(place, Mapping) or "transformation" not in place:
        return ""
    known = read_stored(place)
    if known is not None:
        return known.describe()
    own = ", ".join(f"{key} {value}" for key, value in place.items() if key != "transformation")
    return f"changed by {place['transformation']}{f' ({own})' if own else ''}"


def count_samples(rows: pl.DataFrame, column: str) -> tuple[int, int]:
    """On how many samples a flag is true in any repeat, and how many samples there are.

    >>> count_samples(pl.DataFrame({"sample": [0, 0, 1], "found": [False, True, False]}), "found")
    (1, 2)
    """
    if not len(rows) or column not in rows.columns:
        return 0, len(rows["sample"].unique()) if "sample" in rows.columns else 0
    flags = rows.group_by("sample").agg(pl.col(column).cast(pl.Boolean).fill_null(False).any())
    return int(flags[column].sum()), len(flags)


class Caution(str):
    """A sentence of `Presentation.contradictions` that is no contradiction: of the kind `"unfair"` or `"bound"`."""

    kind: str

    def __new__(cls, text: str, kind: str) -> Caution:
        """The text, with its kind."""
        made = super().__new__(cls, text)
        made.kind = kind
        return made


def count_cautions(texts: Sequence[str]) -> str:
    """How many sentences there are of each kind, in words.

    >>> count_cautions([Caution("a", "unfair"), Caution("b", "bound"), Caution("c", "bound"), "d"])
    '1 comparison is unfair, 2 searches found what a simulation missed, 1 result contradicts another'
    >>> count_cautions([])
    ''
    """
    kinds = [getattr(text, "kind", "") for text in texts]
    found = []
    for kind, one, several in (
        ("unfair", "comparison is unfair", "comparisons are unfair"),
        ("bound", "search found what a simulation missed", "searches found what a simulation missed"),
        ("", "result contradicts another", "results contradict others"),
    ):
        count = kinds.count(kind)
        found += [f"{count} {one if count == 1 else several}"] if count else []
    return ", ".join(found)
