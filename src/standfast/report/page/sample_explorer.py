"""All samples as columns of JSON, for the table of the page, which can filter and sort them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

import polars as pl

from standfast.report.page.render import escape_script
from standfast.report.presentation.drawing import read_swaps
from standfast.results import ConfiguredMetric, StoredResults
from standfast.study.store import COORDINATES
from standfast.value_spec import ValueSpec

#: columns with a place of their own in the table
_OWN = (
    "repeat",
    "sample",
    "targets",
    "answer",
    "predicted",
    "model_evaluations",
    "degenerate",
    "nonfinite",
)
_KNOWN = {*COORDINATES, *_OWN, "status", "job"}

#: rows with pictures: data, model, label, explainer, sample -> the id of the pictures in the page
Links = Mapping[tuple[str, str, str, str, int], str]


def encode_rows(results: StoredResults, links: Links) -> tuple[str, int]:
    """Encode all rows as JSON for a script element; return it with the number of rows."""
    names = {
        "data": list(results.data),
        "model": list(results.models),
        "explainer": list(results.explainers),
        "label": list(results.metrics),
        "status": ["ok"],
    }
    texts = _read_texts(results)
    blocks = []
    for metric in results.metrics.values():
        frames = [view.frame for view in results.list_metric_results(metric.name)]
        if not frames:
            continue
        frame = pl.concat(frames, how="diagonal_relaxed")
        statuses = frame["status"].unique(maintain_order=True)
        names["status"] += [status for status in statuses if status not in names["status"]]
        block = _encode_block(frame, metric, names, links)
        blocks.append({**block, "swaps": _list_swaps(frame, texts)})
    names_by_place = {
        **names,
        "classes": [results.summary.classes[data] for data in results.data],
        "texts": [[_write(words) for words in texts_of_data] for texts_of_data in texts.values()],
    }
    if results.task_words.classes:
        answer = "Class"
    else:
        answer = results.task_words.answer.capitalize()
    content = json.dumps(
        {"names": names_by_place, "blocks": blocks, "answer": answer},
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )
    count = sum(block["rows"] for block in blocks)
    return escape_script(content), count


def _read_texts(results: StoredResults) -> dict[str, list[Sequence[str]]]:
    """The words of each sample of the data sets, which are empty where they are no texts."""
    about = results.manifest.get("data") or {}
    tokens = {}
    for data in results.data:
        described = about.get(data) or {}
        tokens[data] = list(described.get("tokens") or ())
    return tokens


def _write(words: Sequence[str]) -> str:
    """A text from its words, with blanks between them if they bring none along."""
    separator = ""
    if not any(word[:1].isspace() for word in words):
        separator = " "
    return separator.join(words).strip()


def _list_swaps(frame: pl.DataFrame, texts: Mapping[str, Sequence[Sequence[str]]]) -> Any:
    """The changed words of each row as one text, such as "bad → poor, so → –"; none where no words were changed."""
    if "swapped_words" not in frame.columns:
        return ""
    changes = []
    for data, sample, swapped_words in frame.select("data", "sample", "swapped_words").iter_rows():
        if sample < len(texts[data]):
            words = texts[data][sample]
        else:
            words = ()
        changes_of_row = []
        for position, new_word in read_swaps({"swapped_words": swapped_words}).items():
            if position < len(words):
                old_word = words[position]
            else:
                old_word = "?"
            new_text = new_word.strip() or "–"
            changes_of_row.append(f"{old_word.strip()} → {new_text}")
        changes.append(", ".join(changes_of_row))
    return _shorten(changes)


def _encode_block(
    frame: pl.DataFrame, metric: ConfiguredMetric, names: Mapping[str, list[str]], links: Links
) -> dict[str, Any]:
    """The rows of a metric by column: places of names, the value, flags, and all other numbers of the metric."""
    spec = metric.spec
    columns = {
        key: _shorten(_find_places(frame[key], names[key]))
        for key in ("data", "model", "explainer", "status")
    }
    columns |= {key: _encode(frame, key) for key in _OWN}
    conditions = [*spec.only, *filter(None, [spec.varied])]
    flags = _choose_flags(frame, conditions)
    is_an_end = spec.column in ("low", "high")
    has_interval = {"low", "high"} <= set(frame.columns) and not is_an_end
    ends = ("low", "high") if has_interval else ()
    extras = _choose_extras(frame, spec, {spec.column, *ends, *flags})
    interval = None
    if has_interval:
        interval = [_encode(frame, "low"), _encode(frame, "high")]
    return {
        "label": names["label"].index(metric.name),
        "rows": len(frame),
        "axis": spec.axis,
        "decimals": spec.decimals,
        "bound": "≤" if spec.censored_side == "upper" else "≥",
        "censored": spec.censored,
        "columns": columns,
        "value": _encode(frame, spec.column),
        "interval": interval,
        "flags": {name: _encode_flag(frame[name]) for name in flags},
        "only": [name for name in conditions if name in flags],
        "extras": {name: _encode(frame, name) for name in extras},
        "links": _shorten(_list_links(frame, metric, links)),
    }


def _choose_flags(frame: pl.DataFrame, conditions: Sequence[str]) -> list[str]:
    """The columns of flags that say anything: conditions of a value, and others that are set in any row."""
    flags = []
    for name, kind in frame.schema.items():
        if kind == pl.Boolean:
            flags.append(name)
    return [name for name in flags if name in conditions or frame[name].any()]


def _choose_extras(frame: pl.DataFrame, spec: ValueSpec, shown: Set[str]) -> list[str]:
    """The further columns of numbers, without those that have a place of their own, or no number.

    A column that has the numbers of the value under a name of its own says nothing more.
    """
    answered = frame.filter(pl.col("status") == "ok")
    if spec.column in answered.columns:
        values = answered[spec.column].cast(pl.Float64)
    else:
        values = None
    extras = []
    for name, kind in frame.schema.items():
        if not kind.is_numeric() or name in _KNOWN | shown:
            continue
        if not frame[name].cast(pl.Float64).is_finite().any():
            continue
        numbers = answered[name].cast(pl.Float64)
        if values is None or not numbers.equals(values):
            extras.append(name)
    return extras


def _list_links(frame: pl.DataFrame, metric: ConfiguredMetric, links: Links) -> list[str]:
    """The pictures of each row, or an empty text; only the first repeat has some."""
    first_repeat = frame["repeat"].min()
    rows = frame.select("data", "model", "explainer", "sample", "repeat")
    ids = []
    for data, model, explainer, sample, repeat in rows.iter_rows():
        key = (data, model, metric.name, explainer, int(sample))
        row_id = ""
        if repeat == first_repeat:
            row_id = links.get(key, "")
        ids.append(row_id)
    return ids


def _find_places(column: pl.Series, names: list[str]) -> list[int]:
    texts = column.cast(pl.String)
    numbers = texts.replace_strict(names, range(len(names)), return_dtype=pl.Int64)
    return numbers.to_list()


def _encode_flag(column: pl.Series) -> Any:
    """0 and 1; a missing flag is 0."""
    return _shorten(column.fill_null(False).cast(pl.Int8).to_list())


def _encode(frame: pl.DataFrame, name: str) -> Any:
    """Numbers of six digits; null for NaN, and words for infinity, which JSON does not have."""
    if name not in frame.columns:
        return None
    column = frame[name]
    if column.dtype.is_integer():
        return _shorten(column.to_list())
    column = column.cast(pl.Float64).round_sig_figs(6).fill_nan(None)
    values: list[Any] = column.to_list()
    if column.is_infinite().any():
        infinite = (math.inf, -math.inf)
        values = [str(value) if value in infinite else value for value in values]
    return _shorten(values)


def _shorten(values: list[Any]) -> Any:
    """A column of equal values as one value: a page has thousands of rows, and most columns have few values."""
    same = bool(values) and all(value == values[0] for value in values)
    return values[0] if same else values
