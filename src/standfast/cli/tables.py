"""What `standfast init` writes of a table whose model takes texts or data frames: which columns it gets, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from standfast.cli.column_types import Types, find_types, is_text_label
from standfast.cli.setting import NamedSource
from standfast.data.user_files import LABEL_COLUMNS, read_frame, read_strings
from standfast.errors import ArgumentError
from standfast.frames import Table
from standfast.study.file.names import MODELS, read_entry
from standfast.study.file.problems import StudyFieldError
from standfast.study.file.sources import build_source
from standfast.study.identity import is_estimator
from standfast.study.import_paths import importing_from
from standfast.tasks.estimators import name_classes

#: rows with which types are tried
_TRIED = 256


def choose_form(model: NamedSource, data: NamedSource, folder: Path) -> NamedSource:
    """The data as texts, for a folder of transformers, or as a table with any cells.

    It is one where the model was fitted with a data frame, or cells are no numbers.

    Columns that the model was not fitted with are left out. One of them that has the model's classes, or a single one,
    is the label. Texts that look like dates are dates, and other texts categories, where the model answers for these
    alone. Codes that look like numbers, such as 00123, and NA are texts where the model was fitted with these.

    Args:
        model, data: from `read_source`.
        folder: of the study file.
    """
    path = str(data.options.get("path", ""))
    # a folder of transformers reads strings
    if "transformers" in model.options:
        column = _find_texts(folder / path)
        if column is None:
            return data
        return data.with_option("text", column)
    # other files hold numbers alone
    if path.endswith((".csv", ".parquet")):
        estimator = load_estimator(model, folder)
    else:
        estimator = None
    if not is_estimator(estimator):
        return data
    return _describe_table(estimator, data, path, folder)


def load_estimator(model: NamedSource, folder: Path) -> Any:
    """The fitted estimator of a file or a function; None for a model of another kind."""
    entry, _ = build_source(read_entry(model.entry, MODELS))[""]
    try:
        with importing_from([str(folder)]):
            return entry.load(folder, entry.source(folder).content)
    except StudyFieldError:  # what is wrong is said where it is loaded
        return None


def _describe_table(estimator: Any, data: NamedSource, path: str, folder: Path) -> NamedSource:
    """The data as a table for an estimator; as they are where numbers alone are needed."""
    fitted_names = _find_fitted_names(estimator)
    frame, cells = _read_both(folder / path)
    unused: list[Any] = []
    if fitted_names is not None:
        # what the model was not fitted with is left out, or is the label
        unused = [name for name in frame.columns if name not in fitted_names]
    # as texts, as classes may look like numbers
    if cells is None:
        unused_cells = frame[unused]
    else:
        unused_cells = cells[unused]
    label = _choose_label(estimator, data, frame.columns, unused_cells)
    has_label = label in frame.columns
    no_inputs = [*unused]
    if has_label:
        no_inputs.append(label)
    columns = frame.drop(columns=no_inputs)
    # numbers alone need no data frame
    if fitted_names is None and _are_numbers(columns):
        return data

    def read_rows(types: Types) -> Any:
        # the first rows are enough to see whether it answers
        rows = columns[:_TRIED]
        if types:
            typed = read_frame(folder / path, types, _TRIED)[0]
        else:
            typed = rows
        return rows.assign(**{name: typed[name] for name in types})

    types = find_types(estimator, columns, cells, read_rows)
    if cells is not None and has_label and is_text_label(estimator, frame[label], cells[label]):
        types[str(label)] = "text"
    drop = [str(name) for name in unused if name != label]
    return _make_table(data, path, label, drop, types)


def _find_fitted_names(estimator: Any) -> set[Any] | None:
    """The names of the columns that an estimator was fitted with; None where it does not know them."""
    # CatBoost has a name of its own for them
    of_catboost = getattr(estimator, "feature_names_", None)
    names = getattr(estimator, "feature_names_in_", of_catboost)
    if names is None:
        return None
    return set(names)


def _choose_label(estimator: Any, data: NamedSource, columns: Any, unused: Any) -> Any:
    """The column of the label: the one that is named, or has a usual name, or the classes of the estimator."""
    # what the user says comes before what is usual
    label = data.options.get("label") or _find_usual_label(columns)
    return label or _find_label(estimator, unused)


def _make_table(
    data: NamedSource, path: str, label: Any, drop: list[str], types: Types
) -> NamedSource:
    """The data as a table, with what is not empty of the options."""
    options: dict[str, Any] = {"table": path}
    if label:
        options["label"] = label
    if drop:
        options["drop"] = drop
    if types:
        options["types"] = {str(name): kind for name, kind in types.items()}
    # the path is now that of the table
    others = {}
    for key, value in data.options.items():
        if key not in ("path", "label"):
            others[key] = value
    return NamedSource(data.label, options | others)


def _read_both(path: Path) -> tuple[Any, Any]:
    """A table as it is read without types, and its cells as texts; None for these in a .parquet file with types."""
    frame, _ = read_frame(path, {})
    if path.suffix.lower() != ".csv":
        return frame, None
    # all as texts, to see what reading changes
    cells, _ = read_frame(path, dict.fromkeys(map(str, frame.columns), "text"))
    return frame, cells


def _are_numbers(frame: Any) -> bool:
    """Whether a frame has numbers alone, and none is missing."""
    columns = Table.read(frame).columns
    return all(column.kind in ("number", "whole") and column.missing is None for column in columns)


def _find_texts(path: Path) -> str | None:
    """The column with the longest texts; None for a file without a text."""
    try:
        frame, _ = read_strings(path)
    except ArgumentError:  # another kind of file; what is wrong is said where it is loaded
        return None
    # the longest texts are sentences; short ones are names or classes
    texts = [name for name in frame.columns if frame[name].dtype == pl.String]
    lengths = {name: frame[name].str.len_chars().mean() or 0.0 for name in texts}
    return max(texts, key=lambda name: lengths[name], default=None)


def _find_usual_label(columns: Any) -> Any:
    """The first column with a usual name of labels; None without one."""
    return next((name for name in columns if str(name).lower() in LABEL_COLUMNS), None)


def _find_label(estimator: Any, unused: Any) -> str | None:
    """The column with the classes of the estimator; else the only column, if there is one."""
    classes = set(name_classes(estimator))
    for name in unused.columns:
        # exactly the classes, as a column with fewer or more means something else
        if classes == set(map(str, unused[name].dropna().unique())):
            return str(name)
    if unused.shape[1] == 1:
        return str(unused.columns[0])
    return None
