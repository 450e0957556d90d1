"""The names of neighbourhoods: registered ones, labels and words for reports; neighbourhoods from stored options."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from standfast.errors import ArgumentError, StandfastError
from standfast.neighbourhoods.base import Neighbourhood, neighbourhoods
from standfast.neighbourhoods.norm_balls import LinfBall
from standfast.neighbourhoods.tables import Feature, TableChanges
from standfast.records import Background, set_fields, split_tag

#: letters of a label
_LONGEST = 60
#: columns that a sentence names
_MOST_NAMES = 3


def find_name(kind: type[Neighbourhood]) -> str:
    """The name under which a class is registered; the name of the class where it is not.

    >>> from standfast.neighbourhoods import LinfBall
    >>> find_name(LinfBall)
    'linf'
    """
    return neighbourhoods.find_name(kind) or kind.__name__


def find_first_option(kind: type[Any]) -> str | None:
    """The option that a value alone stands for, as in `{rotation: 10}`: the first one. None for a class without any."""
    for field in dataclasses.fields(kind):
        if field.init and not field.kw_only:
            return field.name
    return None


def label_neighbourhood(value: Neighbourhood) -> str:
    """A few words for a neighbourhood, as labels in figures and tables: its name and the options that matter.

    Options have no names where they come first, and are left out where they are as they are by default. A range that
    is symmetric around 0 is a single number.

    >>> from standfast.neighbourhoods import Brightness, Compose, LinfBall, TimeShift
    >>> label_neighbourhood(LinfBall(0.1)), label_neighbourhood(TimeShift((0, 3), fill="zeros"))
    ('linf 0.1', 'time shift 0 to 3, fill zeros')
    >>> label_neighbourhood(Compose((TimeShift(5), Brightness(0.1))))
    'time shift 5 + brightness 0.1'
    """
    name = find_name(type(value))
    words = name.replace("_", " ")
    first = find_first_option(type(value))
    parts = []
    plain = _make_plain(value, first)
    for field in sorted(dataclasses.fields(value), key=lambda field: field.name != first):
        option = getattr(value, field.name)
        if field.name == first:
            if isinstance(option, tuple) and option and isinstance(option[0], Neighbourhood):
                parts.append(_write(option))
            elif _has_words(option):
                parts.append(f"{words} {_write(option)}")
            else:  # arrays, such as embeddings, have no words
                parts.append(words)
        elif field.init and field.compare:
            usual = getattr(plain, field.name, field.default)
            if option != usual:
                parts.append(_write_named(field.name, option))
    label = ", ".join(parts) or words
    if len(label) <= _LONGEST:
        return label
    return label[: _LONGEST - 1] + "…"


def _make_plain(value: Neighbourhood, first: str | None) -> Neighbourhood | None:
    """A neighbourhood with only the first option given; None where others must be given, too."""
    try:
        options = {}
        if first:
            options[first] = getattr(value, first)
        return type(value)(**options)
    except (ArgumentError, TypeError):
        return None


def label_neighbourhoods(values: Sequence[Neighbourhood]) -> list[str]:
    """A label for each of several neighbourhoods that are evaluated in turn; none for a single one.

    >>> from standfast.neighbourhoods import LinfBall
    >>> label_neighbourhoods([LinfBall(0.1), LinfBall(0.1000001)]), label_neighbourhoods([LinfBall(0.1)])
    (['linf 0.1', 'linf 0.1 (2)'], [''])
    """
    if len(values) == 1:
        return [""]
    labels: list[str] = []
    earlier: list[str] = []
    for value in values:
        label = label_neighbourhood(value)
        count = earlier.count(label)
        earlier.append(label)
        if count:
            label = f"{label} ({count + 1})"
        labels.append(label)
    return labels


def describe_change(
    value: Neighbourhood, feature: str = "feature", width: float | None = None
) -> str:
    """How far an input is changed, in a few plain words.

    Args:
        value: a neighbourhood.
        feature: what a number of an input is called.
        width: of the range of each feature, of which a radius is then a share; None for a radius as it is.

    >>> from standfast.neighbourhoods import LinfBall, Rotation, TableChanges
    >>> describe_change(LinfBall(0.1)), describe_change(LinfBall(16 / 255), "pixel", width=2.0)
    ('each feature by up to 0.1', 'each pixel by up to 8/255 of its range')
    >>> describe_change(TableChanges({"income": "2%", "debt": "2%", "age": {"by": 3, "step": 1}}))
    'income and debt by up to 2% of their value, age by up to 3'
    >>> describe_change(Rotation(10))
    'rotated by -10 to 10 degrees'
    """
    if isinstance(value, LinfBall):
        return f"each {feature} by up to {_write_share(value.radius, width)}"
    if isinstance(value, TableChanges) and value.prior == "independent":
        return _describe_columns(value)
    return value.describe()


def _write_share(radius: float, width: float | None) -> str:
    """A radius, as a share of a range if there is one: in levels of 8 bits if they are whole, else in percent."""
    if width is None:
        return f"{radius:.4g}"
    levels = 255 * radius / width
    whole_levels = round(levels)
    # a radius such as 8/255 is rounded
    if whole_levels > 0 and math.isclose(levels, whole_levels, rel_tol=1e-4):
        return f"{whole_levels}/255 of its range"
    return f"{100 * radius / width:.3g}% of its range"


def _describe_columns(value: TableChanges) -> str:
    """Which columns change, and how far: those that change alike together."""
    if isinstance(value.changes, Feature):
        return f"every column {_describe_range(value.changes, 1)}".rstrip()
    features: Mapping[str, Any] = value.changes  # type: ignore[assignment]
    categories: list[str] = []
    names_of_ranges: dict[str, list[str]] = {}
    for name, feature in features.items():
        if feature.by is None:
            categories.append(name)
        else:
            reach = _describe_range(feature, 1)
            names_of_ranges.setdefault(reach, []).append(name)
    words: list[str] = []
    for names in names_of_ranges.values():
        reach = _describe_range(features[names[0]], len(names))
        words.append(f"{_list_names(names)} {reach}")
    if categories:
        words.append(f"other categories of {_list_names(categories)}")
    description = ", ".join(words)
    if value.rules:
        description += f", such that {' and '.join(value.rules)}"
    return description


def _describe_range(feature: Feature, count: int) -> str:
    """How far each of so many columns of numbers may change."""
    if feature.by is None:
        return "to other categories"
    if feature.by == "any":
        return "to any value of the data"
    low, high = feature.limits
    unit = ""
    if feature.percent:
        unit = "% of its value" if count == 1 else "% of their value"
    if low == -high:
        return f"by up to {high:g}{unit}"
    return f"by {low:g} to {high:g}{unit}"


def _list_names(names: Sequence[str]) -> str:
    """Names in a sentence; of many the first ones, and how many others there are."""
    if len(names) > _MOST_NAMES + 1:
        first = ", ".join(names[:_MOST_NAMES])
        return f"{first} and {len(names) - _MOST_NAMES} more columns"
    if len(names) == 1:
        return names[0]
    all_but_last = ", ".join(names[:-1])
    return f"{all_but_last} and {names[-1]}"


def _write_named(name: str, value: Any) -> str:
    """An option with its value; of several things, such as rules, how many there are."""
    if isinstance(value, tuple | list | Mapping) and len(value) > 1:
        are_numbers = all(isinstance(entry, int | float) for entry in value)
        if not are_numbers:
            return f"{len(value)} {name}"
    if isinstance(value, bool | int | float | str | tuple | list | None):
        return f"{name} {_write(value)}"
    # such as data
    return f"own {name}"


def _has_words(value: Any) -> bool:
    return isinstance(value, bool | int | float | str | tuple | list | Mapping | Feature | None)


def _write(value: Any) -> str:
    if isinstance(value, Neighbourhood):
        return label_neighbourhood(value)
    if isinstance(value, Feature):
        return _write_feature(value)
    if isinstance(value, Mapping):
        words = [f"{key} {_write(entry)}" for key, entry in value.items()]
        return ", ".join(words)
    if isinstance(value, tuple | list):
        are_ends = len(value) == 2 and all(isinstance(end, int | float) for end in value)
        if are_ends:
            return _write_range(*value)
        return " + ".join(map(_write, value))
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:g}"
    return str(value).replace("_", " ")


def _write_range(low: float, high: float) -> str:
    if low == high:
        return f"exactly {high:g}"
    if high == -low:
        return f"{high:g}"
    return f"{low:g} to {high:g}"


def _write_feature(feature: Feature) -> str:
    """The options that are set, the range without its name."""
    words: list[str] = []
    for field in dataclasses.fields(feature):
        option = getattr(feature, field.name)
        if option is None:
            continue
        if field.name == "by":
            words.append(_write(option))
        else:
            words.append(f"{field.name} {_write(option)}")
    return " ".join(words)


def join_label(label: str, words: str) -> str:
    """The label of a metric with the words for one of its neighbourhoods, if there are any.

    >>> join_label("max_sensitivity", "rotation 10"), join_label("worst_case: changed_class", "rotation 10")
    ('max_sensitivity: rotation 10', 'worst_case: changed_class, rotation 10')
    """
    if not words:
        return label
    separator = ", " if ": " in label else ": "
    return f"{label}{separator}{words}"


def read_stored(options: object) -> Neighbourhood | None:
    """A neighbourhood from the plain values that a metric stores; None where this is impossible, as without a plug-in.

    It is there to be described. Results store no training rows and no embeddings, so such options have a shape only.

    >>> read_stored({"norm": "LinfBall", "radius": 0.1, "distribution": "uniform", "sigma": None})
    LinfBall(radius=0.1, distribution='uniform', sigma=None)
    >>> read_stored({"transformation": "Wobble", "strength": 3}) is None
    True
    """
    tag, title, described = split_tag(options)
    kind = None
    if tag in ("norm", "transformation"):
        kind = _find_class(title)
    if kind is None:
        return None
    try:
        return kind(**_read_options(described))
    except (ArgumentError, TypeError):  # of another version of the library
        return None


def _find_class(title: str) -> type[Neighbourhood] | None:
    """The class of this name: one that is registered, or that of a plug-in; None for a plug-in that does not load."""
    registered = next((kind for kind in neighbourhoods.loaded() if kind.__name__ == title), None)
    plugin = next(
        (name for name, point in neighbourhoods.plugins.items() if point.attr == title), None
    )
    if registered is not None or plugin is None:
        return registered
    try:
        return neighbourhoods[plugin]
    except StandfastError:
        return None


def _read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {option: _read(value) for option, value in options.items()}


def _read(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_read, value))
    if not isinstance(value, Mapping):
        return value
    tag, title, options = split_tag(value)
    if tag in ("norm", "transformation"):
        return read_stored(value)
    if tag and options.keys() == {"shape", "digest"}:
        return _Unread(options["shape"])
    read_options = _read_options(options)
    if title == "Feature":
        return Feature(**read_options)
    if tag:
        return {tag: title, **read_options}
    return read_options


class _Unread(Background):
    """Reference inputs of which only the shape is known."""

    def __init__(self, shape: Sequence[int]) -> None:
        set_fields(self, shape=tuple(shape), digest="")

    @property
    def inputs(self) -> Tensor:
        """Raises `ArgumentError`."""
        raise ArgumentError(
            "background", "reference inputs", "their shape only, as results store it"
        )
