"""Which types the columns of a .csv file have for a fitted model: a file does not say whether 00123 is a number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from standfast.tasks.estimators import choose_reading
from standfast.tensors import Array

_ISO_DATE = r"\d{4}-\d\d-\d\d"
_LEADING_ZERO = r"[+-]?0\d"
#: how deep the parts of a model are looked through for encoders
_DEEPEST = 12
#: how many columns are tried as texts one by one, where nothing else makes the model answer
_MOST_SINGLE = 20
#: the name of a column of an array
_NO_NAME = ""
#: the type of each column that a file does not tell
Types = dict[str, str]
#: the first rows of a table, of which these columns have these types
ReadRows = Callable[[Types], Any]


class Encoded(NamedTuple):
    """A column that an encoder within a model was fitted with.

    Attributes:
        name: of the column; empty where the encoder got an array.
        texts: the categories that are texts; none where all are numbers.
    """

    name: str
    texts: frozenset[str]


def find_types(estimator: Any, frame: Any, cells: Any, read_rows: ReadRows) -> Types:
    """The types with which the model answers; none where it answers for the table as it is read without types.

    That changes cells which look like numbers or like missing cells. Their column is one of texts if an encoder of the
    model was fitted with these texts, or if the model answers only then.

    Args:
        estimator: fitted.
        frame: its columns as they are read without types.
        cells: the same columns as texts, as they stand in the file; None for a file that tells the types.
        read_rows: reads columns with other types.
    """
    if cells is None:
        guesses = [set[Any]()]
    else:
        guesses = _guess_texts(frame, cells, find_encoded(estimator))
    for texts in guesses:
        types = _choose_types(estimator, frame, texts, read_rows)
        if types is not None:
            return types
    return dict.fromkeys(sorted(guesses[0]), "text")


def find_encoded(estimator: Any) -> list[Encoded]:
    """The columns of all encoders within a model, with those of their categories that are texts.

    >>> from types import SimpleNamespace
    >>> encoder = SimpleNamespace(categories_=[np.array(["NA", "DE"], dtype=object), np.array([1, 2])])
    >>> columns = SimpleNamespace(transformers_=[("encoder", encoder, ["country", "size"])])
    >>> [(column.name, sorted(column.texts)) for column in find_encoded(columns)]
    [('country', ['DE', 'NA']), ('size', [])]
    """
    columns: list[Encoded] = []
    for part, names in _walk_parts(estimator, (), set(), 0):
        categories = _as_list(getattr(part, "categories_", None))
        if not categories:  # LightGBM encodes columns of pandas itself
            categories = _as_list(getattr(part, "pandas_categorical", None))
        own_names = _as_list(getattr(part, "feature_names_in_", None)) or list(names)
        if len(own_names) != len(categories):
            own_names = [_NO_NAME] * len(categories)
        for name, values in zip(own_names, categories, strict=True):
            texts = [value for value in _as_list(values) if isinstance(value, str)]
            columns.append(Encoded(str(name), frozenset(texts)))
    return columns


def is_text_label(estimator: Any, column: Any, cells: Any) -> bool:
    """Whether the classes of a model are the texts of a label column, which look like numbers or missing cells."""
    # of several labels they are arrays
    classes = _as_list(getattr(estimator, "classes_", None))
    names = {name for name in classes if isinstance(name, str)}
    return _is_changed(column, cells) and set(cells.dropna()) <= names


def _guess_texts(frame: Any, cells: Any, encoded: Collection[Encoded]) -> list[set[Any]]:
    """Columns that may be texts though they do not look so: those that encoders know, then further ones."""
    known_texts: set[Any] = set()
    possible = []
    for name in frame.columns:
        column, cells_of_column = frame[name], cells[name]
        if not _is_changed(column, cells_of_column):
            continue
        if _are_known(column, cells_of_column, encoded):
            known_texts.add(name)
        if not _has_other_categories(cells_of_column, encoded):
            possible.append(name)
    coded = {name for name in possible if _loses_text(frame[name], cells[name])}
    matching = {name for name in possible if _may_be_known(cells[name], encoded)}
    singles = [{name} for name in possible[:_MOST_SINGLE]]
    guesses: list[set[Any]] = [known_texts]
    for further in (coded, matching, *singles):
        texts = known_texts | further
        if texts not in guesses:
            guesses.append(texts)
    return guesses


def _walk_parts(
    part: Any, names: Sequence[str], visited: set[int], depth: int
) -> Iterator[tuple[Any, Sequence[str]]]:
    """A fitted model and all parts of it, with the columns that each gets, where a `ColumnTransformer` says so."""
    is_value = isinstance(part, str | bytes | int | float | np.ndarray | type)
    if is_value or id(part) in visited or depth > _DEEPEST:
        return
    visited.add(id(part))
    if isinstance(part, list | tuple | Mapping):
        if isinstance(part, Mapping):
            inner = [*part.values()]
        else:
            inner = [*part]
    else:
        yield part, names
        for _, transformer, columns, *_ in _as_list(getattr(part, "transformers_", None)):
            yield from _walk_parts(transformer, _list_names(columns), visited, depth + 1)
        inner = [*getattr(part, "__dict__", {}).values()]
    for inner_part in inner:
        yield from _walk_parts(inner_part, names, visited, depth + 1)


def _list_names(columns: Any) -> list[str]:
    """The names of the columns of a transformer; empty where it has numbers, masks or functions."""
    if isinstance(columns, str):
        names = [columns]
    else:
        names = _as_list(columns)
    if all(isinstance(name, str) for name in names):
        return names
    return []


def _as_list(values: Any) -> list[Any]:
    if isinstance(values, list | tuple | np.ndarray):
        return list(values)
    return []


def _is_text(column: Any) -> bool:
    import pandas as pd

    return bool(pd.api.types.is_string_dtype(column.dtype))


def _is_changed(column: Any, cells: Any) -> bool:
    """Whether reading without a type makes something else than texts of the cells, or misses some of them."""
    if not _is_text(column):
        return True
    is_lost = column.isna() & cells.notna()
    return bool(is_lost.any())


def _are_known(column: Any, cells: Any, encoded: Collection[Encoded]) -> bool:
    """Whether an encoder was fitted with texts of a column, of which some are lost if it is read without a type.

    An encoder of an array, whose columns have no names, must know all of them.
    """
    name = str(column.name)
    texts = set(cells.dropna())
    is_read_differently = column.astype(str) != cells
    lost = set(cells[is_read_differently & cells.notna()])
    if _is_text(column):
        lost &= set(cells[column.isna()])
        of_column_or_arrays = _list_categories(encoded, name, _NO_NAME)
        return any(lost & categories for categories in of_column_or_arrays)
    if any(texts & categories for categories in _list_categories(encoded, name)):
        return True
    of_arrays = _list_categories(encoded, _NO_NAME)
    return bool(lost) and any(texts <= categories for categories in of_arrays)


def _may_be_known(cells: Any, encoded: Collection[Encoded]) -> bool:
    """Whether an encoder of an array has all texts of a column, as it may by chance."""
    texts = set(cells.dropna())
    of_arrays = _list_categories(encoded, _NO_NAME)
    return bool(texts) and any(texts <= categories for categories in of_arrays)


def _has_other_categories(cells: Any, encoded: Collection[Encoded]) -> bool:
    """Whether an encoder of this very column knows none of its texts: it may ignore them without a word."""
    texts = set(cells.dropna())
    of_column = _list_categories(encoded, str(cells.name))
    if not of_column:
        return False
    return not any(texts & categories for categories in of_column)


def _list_categories(encoded: Collection[Encoded], *names: str) -> list[frozenset[str]]:
    """The categories of all encoders of columns with these names."""
    return [encoder.texts for encoder in encoded if encoder.name in names]


def _loses_text(column: Any, cells: Any) -> bool:
    """Whether a number is written as codes are, with a zero before it, or a text looks like a missing cell."""
    if _is_text(column):
        return True
    begins_with_zero = cells.dropna().str.match(_LEADING_ZERO)
    return bool(begins_with_zero.any())


def _choose_types(
    estimator: Any, frame: Any, texts: Collection[str], read_rows: ReadRows
) -> Types | None:
    """The types with which the model answers, where `texts` are read as such; None where it answers for none.

    Other columns of texts are dates, if they look so, and categories, if the model answers for these alone.
    """
    strings = []
    for name in frame.columns:
        if _is_text(frame[name]) and name not in texts:
            strings.append(name)
    dates = [name for name in strings if _looks_like_dates(frame[name])]
    other_strings = [name for name in strings if name not in dates]
    candidates = []
    for what in ("text", "category"):
        for when in ("date", what):
            candidates.append(_list_types(texts, other_strings, what, dates, when))
    answers = [_ask(estimator, read_rows(types)) for types in candidates]
    as_dates, as_texts = answers[:2]
    if _differ(as_dates, as_texts):
        return candidates[1]  # a model that was fitted with texts knows no dates
    for types, answer in zip(candidates, answers, strict=True):
        if answer is not None:
            return types
    return None


def _differ(first: Array | None, second: Array | None) -> bool:
    """Whether a model gives two answers, and they are not the same."""
    if first is None or second is None:
        return False
    return not np.array_equal(first, second)


def _list_types(
    texts: Collection[str], strings: Collection[str], what: str, dates: Collection[str], when: str
) -> Types:
    """The types of columns: `what` for texts and other strings, `when` for what looks like dates."""
    kinds = {**dict.fromkeys(dates, when), **dict.fromkeys([*texts, *strings], what)}
    types = {}
    for name, kind in kinds.items():
        # other columns of strings are read as texts without a type
        if kind != "text" or name in texts:
            types[name] = kind
    return types


def _looks_like_dates(column: Any) -> bool:
    cells = column.dropna()
    if not len(cells):
        return False
    return bool(cells.str.match(_ISO_DATE).all())


def _ask(estimator: Any, frame: Any) -> Array | None:
    """What the model answers; None where it fails."""
    try:
        return np.asarray(choose_reading(estimator)(frame))
    except Exception:  # whatever the estimator raises
        return None
