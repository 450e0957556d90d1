"""All samples as columns of JSON, for the table of the page, which can filter and sort them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from standfast.report.page.render import escape_script
from standfast.report.presentation.drawing import read_swaps
from standfast.results import ConfiguredMetric, StoredResults
from standfast.study.store import COORDINATES

#: columns with a place of their own in the table
_OWN = ("repeat", "sample", "targets", "answer", "predicted", "model_evaluations", "degenerate", "nonfinite")
_KNOWN = {*COORDINATES, *_OWN, "status", "job"}

#: rows with pictures: data, model, label, explainer, sample -> the id of the pictures in the page
Links = Mapping[tuple[str, str, str, str, int], str]


def encode_rows(results: StoredResults, links: Links) -> tuple[str, int]:
    """Encode all rows as JSON for a script element; return it with the number of rows."""
    names = {"data": list(results.data), "model": list(results.models), "explainer": list(results.explainers)}
    names |= {"label": list(results.metrics), "status": ["ok"]}
    classes = [results.summary.classes[data] for data in results.data]
    known = results.manifest.get("data") or {}
    texts = {data: list((known.get(data) or {}).get("tokens") or ()) for data in results.data}
    blocks = []
    for metric in results.metrics.values():
        frames = [found.frame for found in results.list_metric_results(metric.name)]
        if frames:
            whole = pl.concat(frames, how="diagonal_relaxed")
            statuses = whole["status"].unique(maintain_order=True)
            names["status"] += [status for status in statuses if status not in names["status"]]
            blocks.append(_encode_block(whole, metric, names, links) | {"swaps": _list_swaps(whole, texts)})
    answer = "Class" if results.task_words.classes else results.task_words.answer.capitalize()
    content = json.dumps(
        {
            "names": {**names, "classes": classes, "texts": [list(map(_write, own)) for own in texts.values()]},
            "blocks": blocks,
            "answer": answer,
        },
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )
    return escape_script(content), sum(block["rows"] for block in blocks)


def _write(words: Sequence[str]) -> str:
    """A text from its words, with blanks between them if they bring none along."""
    return ("" if any(word[:1].isspace() for word in words) else " ").join(words).strip()


def _list_swaps(frame: pl.DataFrame, texts: Mapping[str, Sequence[Sequence[str]]]) -> Any:
    """The changed words of each row as one text, such as "bad → poor, so → –"; none where no words were changed."""
    if "swapped_words" not in frame.columns:
        return ""
    found = []
    for data, sample, stored in frame.select("data", "sample", "swapped_words").iter_rows():
        words = texts[data][sample] if sample < len(texts[data]) else ()
        pairs = [
            (words[at] if at < len(words) else "?", new) for at, new in read_swaps({"swapped_words": stored}).items()
        ]
        found.append(", ".join(f"{old.strip()} → {new.strip() or '–'}" for old, new in pairs))
    return _shorten(found)


def _encode_block(
    frame: pl.DataFrame, metric: ConfiguredMetric, names: Mapping[str, list[str]], links: Links
) -> dict[str, Any]:
    """The rows of a metric by column: places of names, the value, flags, and all other numbers of the metric."""
    spec = metric.spec
    columns = {key: _shorten(_find_places(frame[key], names[key])) for key in ("data", "model", "explainer", "status")}
    columns |= {key: _encode(frame, key) for key in _OWN}
    conditions = [*spec.only, *filter(None, [spec.varied])]
    flags = [
        name for name, kind in frame.schema.items() if kind == pl.Boolean and (name in conditions or frame[name].any())
    ]
    interval = {"low", "high"} <= set(frame.columns) and spec.column not in ("low", "high")
    shown = {spec.column, *(("low", "high") if interval else ()), *flags}
    fine = frame.filter(pl.col("status") == "ok")
    extras = [  # a column that has the same numbers under a name of its own says nothing more
        name
        for name, kind in frame.schema.items()
        if kind.is_numeric()
        and name not in _KNOWN | shown
        and frame[name].cast(pl.Float64).is_finite().any()
        and not (spec.column in fine.columns and fine[name].cast(pl.Float64).equals(fine[spec.column].cast(pl.Float64)))
    ]
    first = frame["repeat"].min()
    keys = frame.select("data", "model", "explainer", "sample", "repeat").iter_rows()
    linked = [links.get((d, m, metric.name, e, int(s)), "") if r == first else "" for d, m, e, s, r in keys]
    return {
        "label": names["label"].index(metric.name),
        "rows": len(frame),
        "axis": spec.axis,
        "decimals": spec.decimals,
        "bound": "≤" if spec.censored_side == "upper" else "≥",
        "censored": spec.censored,
        "columns": columns,
        "value": _encode(frame, spec.column),
        "interval": [_encode(frame, "low"), _encode(frame, "high")] if interval else None,
        "flags": {name: _shorten(frame[name].fill_null(False).cast(pl.Int8).to_list()) for name in flags},
        "only": [name for name in conditions if name in flags],
        "extras": {name: _encode(frame, name) for name in extras},
        "links": _shorten(linked),
    }


def _find_places(column: pl.Series, names: list[str]) -> list[int]:
    return column.cast(pl.String).replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_list()


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
        values = [value if value is None or math.isfinite(value) else str(value) for value in values]
    return _shorten(values)


def _shorten(values: list[Any]) -> Any:
    """A column of equal values as one value."""
    same = bool(values) and all(value == values[0] for value in values)
    return values[0] if same else values
