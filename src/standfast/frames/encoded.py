"""The columns that a pipeline makes of the user's: which belong to which, and attributions summed back.

An encoder makes several columns of one: a one-hot code, a number and a mark for missing cells. Which of the user's
columns an encoded column depends on is found by trying (`trials`), and where no trial changes it, by what the
transformers of scikit-learn say (`origins`). An attribution of one of the user's columns is the sum of those of its
encoded columns, if attributions are additive. Shapley values are those of the game over encoded columns. Their
sum need not be the Shapley value of the user's column, for which all of its encoded columns join at once.

What would lose a value is refused: an encoded column that depends on two of the user's, or on other rows of the frame,
and an attribution of an encoded column that belongs to none.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.errors import ArgumentError, ModelError, StandfastError, check
from standfast.frames.model import FrameFunction
from standfast.frames.origins import Origins, trace_origins
from standfast.frames.trials import (
    EncodedRows,
    Trials,
    are_close,
    choose_rows,
    list_all_values,
    measure_rounding,
)
from standfast.frames.wrappers import unwrap
from standfast.model import Model
from standfast.tensors import Array

#: the share of a row's attributions that rounding may give to encoded columns that belong to none
_ROUNDING = 1e-6
#: rows of which it is tried whether each is encoded alone
_ALONE = 16


@dataclass(frozen=True, eq=False)
class Encoding:
    """What a pipeline's steps before its last one make of frames.

    Attributes:
        function: the model's.
        names: of the encoded columns, `E` of them; empty where the steps do not tell them.
        label: of the explainer that asks, for messages.
        origins: the columns that each encoded one may depend on, as scikit-learn's transformers say; None where they
            do not.
        trials: what was found by trying; None without steps before the last.
    """

    function: FrameFunction
    names: tuple[str, ...]
    label: str
    origins: Origins | None
    trials: Trials | None

    def list_owners(self) -> Array:
        """The number of the user's column that each encoded one depends on, `(E,)`; -1 for one that never changes."""
        columns = len(self.function.table.columns)
        if self.trials is None:
            return np.arange(columns)
        owners = self.trials.reader.columns_read
        if columns == 1:
            # with one column there is nothing to tell apart
            return np.zeros_like(owners)
        if self.origins is not None:
            # only where no row moved it: what was seen counts more than what is said
            for number in np.flatnonzero(owners < 0):
                if len(self.origins[number]) == 1:
                    (owners[number],) = self.origins[number]
        return owners

    def encode(self, rows: Tensor | Array) -> Array:
        """The encoded columns of rows of numbers `(N, F)`, float64 `(N, E)`; NaN for missing cells."""
        return transform(self.function, rows)

    def check_rows(self, rows: Tensor | Array, encoded: Array | None = None) -> None:
        """Try rows that are explained, `(N, F)`, in addition to those of the reference.

        Args:
            rows: numbers.
            encoded: what `encode` makes of them, if that is known.

        Raises:
            ArgumentError: an encoded column depends on two of the user's.
        """
        if self.trials is None:
            return
        if isinstance(rows, Tensor):
            rows = rows.detach().cpu()
        cells = np.asarray(rows, dtype=np.float64)
        # the explainer has encoded them already
        encoded = self.encode(cells) if encoded is None else encoded
        with _trying(self.function):
            says_more = self.trials.add(EncodedRows(cells, encoded))
        # a row that says nothing new cannot contradict
        if says_more:
            self.check_owners()

    def check_owners(self) -> None:
        """Raise `ArgumentError` if an encoded column depends on several of the user's, or on another than is said."""
        if self.trials is None:
            return
        names = self.function.table.names
        conflict = self.trials.conflict
        if conflict is not None:
            expected = (
                f"encoded columns of one column each, for {self.label} (kernel_shap needs none)"
            )
            dependence = (
                f"{self.name(conflict.encoded)}, which depends on {_join(names, conflict.columns)}"
            )
            raise ArgumentError("model", expected, dependence)
        for number in self._list_contradictions():
            if self.origins is not None:
                possible = sorted(self.origins[number])
            else:
                possible = []
            expected = (
                f"encoded columns that change as their transformers say, for {self.label}"
                " (kernel_shap needs none)"
            )
            quoted = ", ".join(repr(names[column]) for column in possible)
            source = quoted or "no column"
            owner = names[self.trials.reader.columns_read[number]]
            difference = f"{self.name(number)}, made of {source}, which depends on {owner!r}"
            raise ArgumentError("model", expected, difference)

    def _list_contradictions(self) -> list[int]:
        """The encoded columns that depend on a column from which they are not made, by number."""
        if self.origins is None or self.trials is None:
            return []
        columns_read = self.trials.reader.columns_read.tolist()
        pairs = enumerate(zip(columns_read, self.origins, strict=True))
        return [
            number for number, (owner, possible) in pairs if owner >= 0 and owner not in possible
        ]

    def name(self, number: int) -> str:
        """The name of an encoded column, for messages."""
        if len(self.names) > number:
            return repr(self.names[number])
        return f"encoded column {number}"

    def sum_back(self, values: Array) -> Array:
        """Attributions `(N, E, ...)` of encoded columns as those of the user's columns, `(N, F, ...)`.

        Raises:
            ArgumentError: an encoded column has an attribution and belongs to no column.
        """
        owners = self.list_owners()
        self._check_lost(values, owners)
        columns = len(self.function.table.columns)
        sums = np.zeros((len(values), columns, *values.shape[2:]))
        for number, column in enumerate(owners.tolist()):
            if column >= 0:
                sums[:, column] += values[:, number]
        return sums

    def _check_lost(self, values: Array, owners: Array) -> None:
        """Raise `ArgumentError` if attributions `(N, E, ...)` of encoded columns without an owner would be dropped."""
        by_column = np.abs(values).reshape(len(values), values.shape[1], -1)
        sizes = by_column.max(axis=2)
        of_all = sizes.sum(axis=1, keepdims=True)
        lost = (sizes > _ROUNDING * of_all) & (owners < 0)
        if lost.any():
            number = int(np.flatnonzero(lost.any(0))[0])
            largest = sizes[:, number].max()
            expected = (
                "attributions of encoded columns that change with a column,"
                f" for {self.label} (kernel_shap needs none)"
            )
            raise ArgumentError(
                "model",
                expected,
                f"{largest:.3g} for {self.name(number)}, which no row that was tried changes",
            )

    def make_model(self, model: Model) -> Model:
        """The model of the last step alone, on encoded columns.

        Raises:
            ArgumentError: the last step was fitted with objects, and does not take numbers.
        """
        reading = self.function.reading.of(unwrap(self.function.estimator).final)
        infinite = (-np.inf, np.inf)
        options: dict[str, Any] = {
            "output": reading.output,
            "dtype": torch.float64,
            "task": model.task,
        }
        model_of_numbers = Model.from_callable(reading.function, infinite, **options)
        if self.trials is not None:
            self._check_takes_numbers(model_of_numbers)
        return model_of_numbers

    def _check_takes_numbers(self, model: Model) -> None:
        """Raise `ArgumentError` unless a model of the last step answers for an encoded row of the reference."""
        # one row is enough to see whether it takes floats
        row = self.function.table.rows[:1]
        try:
            with torch.no_grad():
                model.forward(torch.tensor(self.encode(row)))
        except ModelError as error:
            final = unwrap(self.function.estimator).final
            dtype = _apply_steps(self.function, row).dtype
            expected = f"a last step that takes encoded columns as floats, for {self.label} (kernel_shap needs none)"
            fitted = f"{type(final).__name__}, fitted with an array of dtype {dtype}; flags beside numbers make objects"
            raise ArgumentError("model", expected, fitted) from error


def read_encoding(function: FrameFunction, label: str) -> Encoding:
    """How the steps of a pipeline encode the user's columns.

    Args:
        function: of the model.
        label: of the explainer that asks, for messages.

    Raises:
        ArgumentError: an encoded column depends on two of the user's, or on other rows of the frame; it is no number.
        ModelError: the steps fail on a row with other values of the reference.
    """
    table = function.table
    transformers = unwrap(function.estimator).transformers
    if not transformers:
        names = tuple(str(name) for name in table.names)
        return Encoding(function, names, label, None, None)
    names = _list_names(function)
    with _trying(function):
        rows = choose_rows(table)
        _check_alone(function, rows[:_ALONE], names, label)
        value_lists = list_all_values(table)
        trials = Trials(lambda cells: transform(function, cells), rows, value_lists)
    labels = [column.label for column in table.columns]
    origins = trace_origins(transformers, labels, trials.width)
    encoding = Encoding(function, names, label, origins, trials)
    encoding.check_owners()
    return encoding


def _check_alone(function: FrameFunction, rows: Array, names: tuple[str, ...], label: str) -> None:
    """Raise `ArgumentError` unless rows are encoded alone as they are among others."""
    together = transform(function, rows)
    # the first, the second, and others in another order: a step that learns from its rows would differ
    others = [slice(0, 1), slice(1, 2), slice(None, None, -2)]
    tolerance = measure_rounding(together)
    for part in others:
        if not len(rows[part]):
            continue
        alone = transform(function, rows[part])
        differs = ~are_close(alone, together[part], tolerance).all(0)
        if differs.any():
            number = int(np.flatnonzero(differs)[0])
            if len(names) > number:
                name = repr(names[number])
            else:
                name = f"encoded column {number}"
            expected = f"steps that encode each row alone, for {label} (kernel_shap needs none)"
            raise ArgumentError(
                "model", expected, f"{name}, which depends on the other rows of the frame"
            )


def transform(function: FrameFunction, rows: Tensor | Array) -> Array:
    """The encoded columns of rows of numbers, float64 `(N, E)`; the cells themselves without steps before the last.

    Raises:
        ArgumentError: encoded columns are no numbers, or rows are lost on the way.
    """
    table = function.table
    transformers = unwrap(function.estimator).transformers
    if not transformers:
        texts = [column.name for column in table.columns if column.kind in ("category", "ordered")]
        check(
            not texts,
            "model",
            "encoders before it in a pipeline",
            f"columns of categories ({', '.join(texts[:3])})",
        )
        numbers = np.asarray(rows, dtype=np.float64)
        return np.stack(
            [column.decode(numbers[:, number]) for number, column in enumerate(table.columns)],
            axis=1,
        )
    encoded = _apply_steps(function, rows)
    try:
        numbers = np.asarray(encoded, dtype=np.float64)
    except (TypeError, ValueError) as error:
        expected = f"steps before {function.__name__} that encode all columns as numbers (kernel_shap needs none)"
        raise ArgumentError("model", expected, str(error)) from error
    expected = f"steps that make a row of numbers of each of {len(rows)} rows"
    check(
        numbers.ndim == 2 and len(numbers) == len(rows), "model", expected, f"shape {numbers.shape}"
    )
    return numbers


def _apply_steps(function: FrameFunction, rows: Tensor | Array) -> Array:
    """What the steps before the last one make of rows of numbers, as an array of whatever type."""
    encoded: Any = function.table.decode(rows)
    for transformer in unwrap(function.estimator).transformers:
        encoded = transformer.transform(encoded)
    # sparse matrices, and then frames
    encoded = encoded.toarray() if hasattr(encoded, "toarray") else encoded
    if hasattr(encoded, "to_numpy"):
        encoded = encoded.to_numpy()
    return np.asarray(encoded)


@contextlib.contextmanager
def _trying(function: FrameFunction) -> Iterator[None]:
    """Say what fails where rows are tried, and hide the warnings of transformers: rows are not the user's."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except StandfastError:
        raise
    except Exception as error:  # whatever a transformer raises
        expected = (
            f"steps before {function.__name__} that encode rows with any values of the reference"
        )
        message = " ".join(str(error).split())
        problem = f"{type(error).__name__}: {message}"
        raise ModelError(f"model: expected {expected}, got {problem}") from error


def _join(names: Sequence[str], numbers: Sequence[int]) -> str:
    """Names of columns in words; of a single one, that there are more."""
    quoted = [repr(names[number]) for number in numbers]
    if len(quoted) < 2:
        if quoted:
            return f"{quoted[0]} and on others"
        return "several columns"
    return f"{', '.join(quoted[:-1])} and {quoted[-1]}"


def _list_names(function: FrameFunction) -> tuple[str, ...]:
    """The names of the encoded columns; empty where the steps do not tell them."""
    # names are for messages alone
    try:
        names: Any = [column.label for column in function.table.columns]
        for transformer in unwrap(function.estimator).transformers:
            names = transformer.get_feature_names_out(names)
        return tuple(map(str, names))
    except Exception:  # a transformer of the user's may have none
        return ()
