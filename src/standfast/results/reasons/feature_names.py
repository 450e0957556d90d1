"""What the features of a sample are called, with their values in the user's words and units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from standfast.cells.words import describe_cell
from standfast.errors import check, suggest_name
from standfast.results.metric_results import MetricResults, StoredSample


@dataclass(frozen=True)
class FeatureNames:
    """The names of features.

    Attributes:
        features: for each feature its name, and its words with a value; none for images and series.
        columns: of a table, the values of all columns in words, by name.
    """

    features: tuple[tuple[str, str], ...] = ()
    columns: Mapping[str, str] | None = None


def name_features(
    view: MetricResults, stored: StoredSample, units: Mapping[str, str]
) -> FeatureNames:
    """The names of the features of a stored sample.

    Args:
        view: where it is stored.
        stored: the sample, with its `origin_input`.
        units: of columns, by name.
    """
    values = stored.arrays["origin_input"]
    if values.ndim != 1:
        return FeatureNames()
    if view.tokens and stored.sample < len(view.tokens):
        words = [str(word).strip() for word in view.tokens[stored.sample]]
        return FeatureNames(tuple((word, word) for word in words))
    names = list(view.features) or [f"feature {number}" for number in range(len(values))]
    columns: dict[str, str] = {}
    for feature, (name, number) in enumerate(zip(names, values.tolist(), strict=True)):
        words_of_cell = ""
        if feature < len(view.columns):
            words_of_cell = describe_cell(view.columns[feature], number)
        columns[name] = add_unit(words_of_cell or format_value(number), units.get(name, ""))
    return FeatureNames(tuple((name, f"{name} {cell}") for name, cell in columns.items()), columns)


def check_units(units: object, names: Sequence[str]) -> None:
    """Raise `ArgumentError` for units that are no texts by names of columns."""
    if units is None:
        return
    is_text = isinstance(units, Mapping) and all(isinstance(unit, str) for unit in units.values())
    check(is_text, "units", "texts by names of columns, such as {'income': 'EUR'}", repr(units))
    assert isinstance(units, Mapping)
    unknown = [str(name) for name in units if name not in names]
    expected = "none, as these inputs have no named columns"
    if names:
        expected = f"columns of {', '.join(names)}"
    near = suggest_name(unknown[0], names) if unknown else ""
    check(not unknown, "units", expected, f"{', '.join(unknown)}{near}")


def format_value(number: float) -> str:
    """A value of a feature, with separators of thousands.

    >>> format_value(9400.0), format_value(0.25), format_value(1234567.5)
    ('9,400', '0.25', '1,234,568')
    """
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.4g}"


def add_unit(cell: str, unit: str) -> str:
    """The words of a cell with a unit, if they are a number.

    >>> add_unit("9,400", "EUR"), add_unit("12", "%"), add_unit("missing", "EUR"), add_unit("-3", "")
    ('9,400 EUR', '12%', 'missing', '-3')
    """
    is_number = cell.lstrip("-")[:1].isdigit()
    if not unit or not is_number:
        return cell
    return f"{cell}%" if unit == "%" else f"{cell} {unit}"
