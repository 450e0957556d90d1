"""The columns that a pipeline makes of the user's: which belong to which, and attributions summed back.

An encoder makes several columns of one: a one-hot code, a number and a mark for missing cells. Which of the user's
columns an encoded column depends on is found by trying: each column takes all of its categories, several of its numbers
and a missing cell, in several rows of the reference. An attribution of one of the user's columns is the sum of those of
its encoded columns, if attributions are additive. An encoded column that depends on two of the user's has no owner, and
such a pipeline is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.frames.columns import Column
from standfast.frames.model import FrameFunction
from standfast.model import Model
from standfast.tasks.sources import find_final
from standfast.tensors import Array

#: rows in which each column is tried, and numbers that it takes
_ROWS, _NUMBERS = 6, 9


@dataclass(frozen=True, eq=False)
class Encoding:
    """What a pipeline's steps before its last one make of frames.

    Attributes:
        function: the model's.
        names: of the encoded columns, `E` of them.
        owner: the number of the user's column that each depends on, `(E,)`; -1 for one that never changes.
    """

    function: FrameFunction
    names: tuple[str, ...]
    owner: Array

    def encode(self, rows: Tensor | Array) -> Array:
        """The encoded columns of rows of numbers `(N, F)`, float64 `(N, E)`; NaN for missing cells."""
        return transform(self.function, rows)

    def sum_back(self, values: Array) -> Array:
        """Attributions `(N, E, ...)` of encoded columns as those of the user's columns, `(N, F, ...)`."""
        found = np.zeros((len(values), len(self.function.table.columns), *values.shape[2:]))
        for place, column in enumerate(self.owner.tolist()):
            if column >= 0:
                found[:, column] += values[:, place]
        return found

    def make_model(self, model: Model) -> Model:
        """The model of the last step alone, on encoded columns."""
        reading = self.function.reading.of(find_final(self.function.estimator))
        infinite = (-np.inf, np.inf)
        options: dict[str, Any] = {"output": reading.output, "dtype": torch.float64, "task": model.task}
        return Model.from_callable(reading.function, infinite, **options)


def read_encoding(function: FrameFunction, label: str) -> Encoding:
    """How the steps of a pipeline encode the user's columns.

    Args:
        function: of the model.
        label: of the explainer that asks, for messages.

    Raises:
        ArgumentError: an encoded column depends on two of the user's.
    """
    table = function.table
    base = table.rows[torch.linspace(0, len(table.rows) - 1, min(_ROWS, len(table.rows))).round().long()]
    names = _list_names(function)
    start = transform(function, base)
    owner = np.full(start.shape[1], -1)
    for place, column in enumerate(table.columns):
        numbers = _list_numbers(column, table.rows[:, place].numpy())
        tried = base.repeat(len(numbers), 1)
        tried[:, place] = torch.from_numpy(np.repeat(numbers, len(base)))
        found = transform(function, tried).reshape(len(numbers), len(base), -1)
        changes = ~np.isclose(found, start, rtol=1e-12, atol=0, equal_nan=True)
        moved = changes.any(axis=(0, 1))
        both = np.flatnonzero(moved & (owner >= 0))
        if len(both):
            title = names[both[0]] if len(names) > both[0] else f"number {both[0]}"
            pair = f"{table.names[owner[both[0]]]!r} and {column.name!r}"
            expected = f"encoded columns of one column each, for {label} (kernel_shap needs none)"
            raise ArgumentError("model", expected, f"{title!r}, which depends on {pair}")
        owner[moved] = place
    return Encoding(function, names, owner)


def _list_numbers(column: Column, seen: Array) -> Array:
    """What a column is tried with: all of its categories, numbers from its range, and a missing cell."""
    if column.categories:
        numbers = np.arange(len(column.categories), dtype=float)
    else:
        known = seen if column.missing is None else seen[seen != column.missing]
        numbers = np.quantile(known, np.linspace(0, 1, _NUMBERS)) if len(known) else np.zeros(1)
    return numbers if column.missing is None else np.append(numbers, column.missing)


def transform(function: FrameFunction, rows: Tensor | Array) -> Array:
    """The encoded columns of rows of numbers, float64 `(N, E)`; the cells themselves without steps before the last."""
    table, steps = function.table, _list_steps(function.estimator)
    if not steps:
        texts = [column.name for column in table.columns if column.kind in ("category", "ordered")]
        check(not texts, "model", "encoders before it in a pipeline", f"columns of categories ({', '.join(texts[:3])})")
        numbers = np.asarray(rows, dtype=np.float64)
        return np.stack([column.decode(numbers[:, place]) for place, column in enumerate(table.columns)], axis=1)
    found: Any = table.decode(rows)
    for step in steps:
        found = step.transform(found)
    found = found.toarray() if hasattr(found, "toarray") else found
    found = found.to_numpy() if hasattr(found, "to_numpy") else np.asarray(found)
    return np.asarray(found, dtype=np.float64)


def _list_steps(estimator: Any) -> list[Any]:
    """The transformers before the last step, of pipelines within pipelines, too."""
    steps = getattr(estimator, "steps", None)
    if not steps:
        return []
    own = [step for _, step in steps[:-1] if step is not None and step != "passthrough"]
    return [*own, *_list_steps(steps[-1][1])]


def _list_names(function: FrameFunction) -> tuple[str, ...]:
    """The names of the encoded columns; empty where the steps do not tell them."""
    steps = _list_steps(function.estimator)
    try:
        names: Any = [column.label for column in function.table.columns]
        for step in steps:
            names = step.get_feature_names_out(names)
        return tuple(map(str, names))
    except Exception:  # a transformer of the user's may have none
        return ()
