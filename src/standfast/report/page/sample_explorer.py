"""All samples as columns of JSON, for the table of the page, which can filter and sort them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import polars as pl

from standfast.report.page.render import escape_script
from standfast.report.views import Contents
from standfast.results import ConfiguredMetric
from standfast.study.store import COORDINATES

#: columns with a place of their own in the table
_KNOWN = {
    *COORDINATES,
    "sample",
    "status",
    "targets",
    "predicted",
    "model_evaluations",
    "degenerate",
    "nonfinite",
    "job",
}

#: rows with pictures: data, model, label, explainer, sample -> the id of the pictures in the page
Links = Mapping[tuple[str, str, str, str, int], str]


def encode_rows(contents: Contents, links: Links) -> tuple[str, int]:
    """Encode all rows as JSON for a script element; return it with the number of rows."""
    coordinates = {
        "data": contents.data,
        "model": contents.models,
        "explainer": contents.explainers,
        "label": list(contents.labels),
    }
    names = {key: list(values) for key, values in coordinates.items()}
    blocks = []
    statuses: list[str] = ["ok"]
    total = 0
    for label in contents.labels.values():
        frames = [contents.frame(data, model, label.name) for data, model in contents.pairs]
        frames = [frame for frame in frames if len(frame)]
        if not frames:
            continue
        whole = pl.concat(frames, how="diagonal_relaxed")
        statuses += [s for s in whole["status"].unique(maintain_order=True) if s not in statuses]
        blocks.append(_block(whole, label, names, statuses, links))
        total += len(whole)
    content = {"names": {**names, "status": statuses}, "blocks": blocks}
    return escape_script(json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)), total


def _block(
    frame: pl.DataFrame, label: ConfiguredMetric, names: dict[str, list[str]], statuses: list[str], links: Links
) -> dict[str, Any]:
    """The rows of a label by column: places of names, the value, and all other columns of the metric."""
    spec = label.spec
    columns: dict[str, Any] = {key: _places(frame, key, names[key]) for key in ("data", "model", "explainer")}
    columns["status"] = _places(frame, "status", statuses)
    for key in ("repeat", "sample", "targets", "predicted", "model_evaluations", "degenerate", "nonfinite"):
        columns[key] = _short(_plain(frame, key))
    booleans = [
        name for name, kind in frame.schema.items() if kind == pl.Boolean and (name in spec.only or frame[name].any())
    ]
    interval = {"low", "high"} <= set(frame.columns) and spec.column not in ("low", "high")
    shown = {spec.column, *(("low", "high") if interval else ()), *booleans}
    value = _numbers(frame, spec.column)
    extras = [  # a column that has the same numbers under a name of its own says nothing more
        name
        for name, kind in frame.schema.items()
        if kind.is_numeric()
        and name not in _KNOWN | shown
        and _any(frame, name)
        and not _numbers(frame, name).equals(value)
    ]
    keys = zip(*(frame[k].to_list() for k in ("data", "model", "explainer", "sample", "repeat")), strict=True)
    first = frame["repeat"].min()
    linked = [links.get((d, m, label.name, e, int(s)), "") if r == first else "" for d, m, e, s, r in keys]
    return {
        "label": names["label"].index(label.name),
        "rows": len(frame),
        "axis": spec.axis,
        "decimals": spec.decimals,
        "odds": spec.log_probability,
        "bound": "≤" if spec.censored_side == "upper" else "≥",
        "censored": spec.censored,
        "columns": columns,
        "value": _short(_plain(frame, spec.column)),
        "interval": [_short(_plain(frame, "low")), _short(_plain(frame, "high"))] if interval else None,
        "flags": {name: _short([int(bool(value)) for value in frame[name]]) for name in booleans},
        "only": [name for name in spec.only if name in booleans],
        "extras": {name: _short(_plain(frame, name)) for name in extras},
        "links": _short(linked),
    }


def _numbers(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column where samples were evaluated, null for NaN."""
    evaluated = frame.filter(pl.col("status") == "ok")
    return evaluated[name].cast(pl.Float64).fill_nan(None) if name in frame.columns else pl.Series(dtype=pl.Float64)


def _any(frame: pl.DataFrame, name: str) -> bool:
    return bool(frame[name].cast(pl.Float64).is_finite().any())


def _places(frame: pl.DataFrame, column: str, names: list[str]) -> Any:
    place = {name: i for i, name in enumerate(names)}
    return _short([place[str(value)] for value in frame[column]])


def _plain(frame: pl.DataFrame, column: str) -> list[Any]:
    """Numbers of six digits; null for NaN, and words for infinity, which JSON does not have."""
    if column not in frame.columns:
        return [None] * len(frame)
    if frame[column].dtype.is_integer():
        return frame[column].to_list()
    return [_number(value) for value in frame[column].cast(pl.Float64)]


def _number(value: float | None) -> float | int | str | None:
    if value is None or math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _short(values: list[Any]) -> Any:
    """A column of equal values as one value."""
    same = bool(values) and all(value == values[0] for value in values)
    return values[0] if same else values
