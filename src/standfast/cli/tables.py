"""What `standfast init` writes of a table whose model takes texts or data frames: which columns it gets, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from standfast.cli.new_study import Source
from standfast.data.user_files import LABEL_COLUMNS, read_frame, read_strings
from standfast.errors import ArgumentError
from standfast.frames import Table
from standfast.study.file.imports import importing_from
from standfast.study.file.names import MODELS, read_entry
from standfast.study.file.problems import StudyFieldError
from standfast.study.file.sources import build_source
from standfast.study.identity import is_estimator
from standfast.tasks.estimators import choose_reading, name_classes
from standfast.tensors import Array

_ISO_DATE = r"\d{4}-\d\d-\d\d"
#: rows with which types are tried
_TRIED = 256


def choose_form(model: Source, data: Source, folder: Path) -> Source:
    """The data as texts, for a folder of transformers, or as a table with any cells.

    It is one where the model was fitted with a data frame, or cells are no numbers.

    Columns that the model was not fitted with are left out. One of them that has the model's classes, or a single one,
    is the label. Texts that look like dates are dates, and other texts categories, where the model answers for these
    alone.

    Args:
        model, data: from `read_source`.
        folder: of the study file.
    """
    path = str(data.options.get("path", ""))
    if "transformers" in model.options:
        column = _find_texts(folder / path)
        return data if column is None else data.with_option("text", column)
    if not path.endswith((".csv", ".parquet")):
        return data
    entry, _ = build_source(read_entry(model.entry, MODELS))[""]
    try:
        with importing_from([str(folder)]):
            estimator = entry.load_estimator(folder, entry.source(folder).content)
    except StudyFieldError:  # a model of another kind; what is wrong is said where it is loaded
        return data
    known = getattr(estimator, "feature_names_in_", getattr(estimator, "feature_names_", None))
    frame, _ = read_frame(folder / path, {})
    label = data.options.get("label") or next((n for n in frame.columns if str(n).lower() in LABEL_COLUMNS), None)
    unused = [] if known is None else [name for name in frame.columns if name not in set(known)]
    label = label or _find_label(estimator, frame[unused])
    columns = frame.drop(columns=[*unused, *([label] if label in frame.columns else [])])
    numbers = all(
        column.kind in ("number", "whole") and column.missing is None for column in Table.read(columns).columns
    )
    if not is_estimator(estimator) or (known is None and numbers):
        return data
    drop = [str(name) for name in unused if name != label]
    options = {"label": label, "drop": drop, "types": _find_types(estimator, columns)}
    more = {key: value for key, value in data.options.items() if key not in ("path", "label")}
    return Source(data.label, {"table": path, **{key: value for key, value in options.items() if value}, **more})


def _find_texts(path: Path) -> str | None:
    """The column with the longest texts; None for a file without a text."""
    try:
        frame, _ = read_strings(path)
    except ArgumentError:  # another kind of file; what is wrong is said where it is loaded
        return None
    lengths = {
        name: frame[name].str.len_chars().mean() or 0.0 for name in frame.columns if frame[name].dtype == pl.String
    }
    return max(lengths, key=lambda name: lengths[name], default=None)


def _find_label(estimator: Any, unused: Any) -> str | None:
    classes = set(name_classes(estimator))
    fitting = [str(name) for name in unused.columns if classes == set(map(str, unused[name].dropna().unique()))]
    single = [str(unused.columns[0])] if unused.shape[1] == 1 else []
    return next(iter([*fitting, *single]), None)


def _find_types(estimator: Any, frame: Any) -> dict[str, str]:
    """The types of columns of texts with which the model answers; none where it answers for the texts themselves."""
    import pandas as pd

    texts = [name for name in frame.columns if pd.api.types.is_string_dtype(frame[name].dtype)]
    dates = [name for name in texts if frame[name].dropna().str.match(_ISO_DATE).all() and frame[name].notna().any()]
    others = [name for name in texts if name not in dates]
    choices: list[dict[str, str]] = [
        {**dict.fromkeys(dates, when), **dict.fromkeys(others, what)}
        for what in ("text", "category")
        for when in ("date", what)
    ]
    answers = [_ask(estimator, frame[:_TRIED], types) for types in choices]
    found = [types for types, answer in zip(choices, answers, strict=True) if answer is not None] or [{}]
    differ = answers[0] is not None and answers[1] is not None and not np.array_equal(answers[0], answers[1])
    chosen = found[1] if differ else found[0]  # a model that was fitted with texts knows no dates
    return {str(name): kind for name, kind in chosen.items() if kind != "text"}


def _ask(estimator: Any, frame: Any, types: dict[str, str]) -> Array | None:
    """What the model answers for columns of these types; None where it fails."""
    import pandas as pd

    changed = {
        n: pd.to_datetime(frame[n]) if how == "date" else frame[n].astype("category")
        for n, how in types.items()
        if how != "text"
    }
    try:
        return np.asarray(choose_reading(estimator)(frame.assign(**changed)))
    except Exception:  # whatever the estimator raises
        return None
