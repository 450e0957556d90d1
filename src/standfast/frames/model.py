"""A `Model` of a fitted estimator or pipeline that takes data frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.errors import ArgumentError, ModelError, check
from standfast.frames.table import Table
from standfast.model import Model
from standfast.neighbourhoods.tables import TableChanges
from standfast.tasks import Regression, Task
from standfast.tasks import get as get_task
from standfast.tensors import Array

_ESTIMATOR = "a fitted estimator or pipeline with predict_proba or predict, such as scikit-learn's"
#: rows with which a model is tried
_TRIED = 256


class FrameFunction:
    """A function of rows of numbers `(N, F)` that asks an estimator with a data frame.

    Args:
        estimator: fitted, with `predict_proba` or `predict`.
        table: the columns.
        classes: whether probabilities of classes are asked for, and not numbers.
    """

    def __init__(self, estimator: Any, table: Table, classes: bool) -> None:
        self.estimator, self.table, self.classes = estimator, table, classes
        self.__name__ = type(find_final(estimator)).__name__

    def __call__(self, rows: Array) -> Any:
        return self.ask(self.table.decode(rows))

    def ask(self, frame: Any) -> Any:
        """The scores for a frame: probabilities `(N, K)`, or numbers `(N,)`."""
        return choose_method(self.estimator, self.classes)(frame)


def find_final(estimator: Any) -> Any:
    """The last step of a pipeline; another estimator itself."""
    steps = getattr(estimator, "steps", None)
    return find_final(steps[-1][1]) if steps else estimator


def is_booster(estimator: Any) -> bool:
    """Whether it is LightGBM's own booster, whose `predict` gives probabilities of classes."""
    return f"{type(estimator).__module__}.{type(estimator).__name__}" == "lightgbm.basic.Booster"


def choose_method(estimator: Any, classes: bool) -> Callable[[Any], Any]:
    """The method that answers: of a classifier with probabilities, else with numbers."""
    method: Callable[[Any], Any] = getattr(
        estimator, "predict_proba" if classes and not is_booster(estimator) else "predict"
    )
    return method


def has_classes(estimator: Any) -> bool:
    """Whether it answers with probabilities of classes, and not with a number."""
    if is_booster(estimator):
        return "\nobjective=regression" not in estimator.model_to_string(num_iteration=1)
    return callable(getattr(estimator, "predict_proba", None))


def find_classes(estimator: Any) -> tuple[str, ...]:
    """The names of a classifier's classes; empty where it has none."""
    return tuple(str(each) for each in np.asarray(getattr(estimator, "classes_", ())).tolist())


def find_frame_function(model: Model) -> FrameFunction | None:
    """The function of a model that `make_model` has made; None for another model."""
    function = None if model.black_box is None else model.black_box.function
    return function if isinstance(function, FrameFunction) else None


def make_model(estimator: Any, table: Table, task: str | Task | None = None) -> Model:
    """A model that asks a fitted estimator, or pipeline, with data frames of the table's types.

    Args:
        estimator: of scikit-learn, XGBoost, LightGBM, CatBoost or alike: with `predict_proba`, whose classes are
            explained, or with `predict`, whose number is; or a booster of LightGBM.
        table: the columns. Its rows are the model's reference.
        task: of a regressor, such as `"regression:tolerance=500"`. None: a number that moves by more than a tenth of
            the standard deviation of the predictions for the reference is another answer.

    Raises:
        ArgumentError: it is no such estimator, or was fitted with other columns.
        ModelError: it fails on the rows of the table, or on missing cells that they may have.

    >>> import polars
    >>> class Rule:
    ...     def predict_proba(self, frame):
    ...         rich = (frame["income"] > 50).to_numpy().astype(float)
    ...         return np.stack([1 - rich, rich], 1)
    >>> table = Table.read(polars.DataFrame({"income": [20, 80], "town": ["Ulm", "Bonn"]}))
    >>> make_model(Rule(), table).predict(table.rows)
    tensor([0, 1])
    """
    answers = any(callable(getattr(estimator, method, None)) for method in ("predict", "predict_proba"))
    what = type(estimator).__name__ if not isinstance(estimator, type) else f"the class {estimator.__name__}"
    check(answers and not isinstance(estimator, type), "model", _ESTIMATOR, what)
    _check_columns(estimator, table)
    classes = has_classes(estimator) if task is None else get_task(task).classes
    function = FrameFunction(estimator, table, classes)
    tried = table.rows[:_TRIED]
    found = _try(function, table, tried)
    if task is None and not classes:
        spread = float(np.std(np.asarray(found, dtype=float)))
        task = Regression(float(f"{spread / 10:.2g}") or 1.0)
    model = Model.from_callable(
        function,
        table.bounds,
        dtype=torch.float64,
        task="classification" if task is None else task,
    )
    model.reference = table.make_reference()
    return model


def check_losses(model: Model, changes: object) -> None:
    """Raise `ModelError` unless the model answers for rows without each of the cells that changes may lose."""
    function = find_frame_function(model)
    if function is None or not isinstance(changes, TableChanges) or not changes.may_become_missing:
        return
    table = function.table
    for place, (column, code) in enumerate(zip(table.columns, table.missing, strict=True)):
        named = isinstance(changes.changes, Mapping) and column.name in changes.changes
        if code is not None and named:
            row = table.rows[:1].clone()
            row[:, place] = code
            _try(function, table, row, f" with a missing cell in {column.name!r}")


def _try(function: FrameFunction, table: Table, rows: Tensor, what: str = "") -> Any:
    try:
        return function.ask(table.decode(rows))
    except Exception as error:  # whatever the estimator raises
        lost = [each.name for each, code in zip(table.columns, table.missing, strict=True) if code is not None]
        if not what and lost:
            what = f" ({', '.join(lost[:5])} with missing cells)"
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ModelError(f"model: expected one that answers for rows{what}, got {function.__name__}: {said}") from error


def _check_columns(estimator: Any, table: Table) -> None:
    """Raise `ArgumentError` for columns that an estimator was not fitted with."""
    names = getattr(estimator, "feature_names_in_", None)
    own = [column.label for column in table.columns]
    if names is None:
        return
    known = list(names)
    if set(known) != set(own):
        gone, more = [n for n in known if n not in own], [n for n in own if n not in known]
        words = [f"{', '.join(map(repr, few[:3]))} {what}" for few, what in ((gone, "missing"), (more, "more")) if few]
        raise ArgumentError("frame", f"the {len(known)} columns that the model was fitted with", " and ".join(words))
