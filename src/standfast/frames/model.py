"""A `Model` of a fitted estimator or pipeline that takes data frames."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.errors import ArgumentError, ModelError, warn_user
from standfast.frames.table import Table
from standfast.model import Composition, Model
from standfast.neighbourhoods.tables import TableChanges
from standfast.tasks import Decision, MultiLabel, Regression, Task
from standfast.tasks import get as get_task
from standfast.tasks.estimators import Reading, choose_reading, number_predictions
from standfast.tasks.sources import find_final, has_method
from standfast.tasks.thresholds import find_threshold
from standfast.tensors import Array

#: rows with which a model is tried
_TRIED = 256
#: how far from a change an answer is for which rounding does not matter
_ROUNDING = 1e-9
#: of a regression, the share of the standard deviation by which a number may move
_SHARE = 0.1


class FrameFunction:
    """A function of rows of numbers `(N, F)` that asks an estimator with a data frame.

    Args:
        estimator: fitted.
        table: the columns.
        reading: which of its methods is asked, and what its answer means.
    """

    def __init__(self, estimator: Any, table: Table, reading: Reading) -> None:
        self.estimator = estimator
        self.table = table
        self.reading = reading
        self.__name__ = type(find_final(estimator)).__name__

    def __call__(self, rows: Array) -> Any:
        return self.ask(self.table.decode(rows))

    @property
    def composition(self) -> Composition:
        """The estimator, with its steps; and rows that have every category and missing cells."""
        return Composition(
            parts=(self.estimator,),
            content=self.reading.describe(),
            # noise on numbers reaches neither categories nor missing cells
            rows=self.table.make_cell_rows(),
        )

    def ask(self, frame: Any) -> Any:
        """The scores for a frame: of classes or labels `(N, K)`, or numbers `(N,)`."""
        return self.reading(frame)


def is_booster(estimator: Any) -> bool:
    """Whether it is LightGBM's own booster, which is no estimator of scikit-learn's kind."""
    kind = type(estimator)
    return f"{kind.__module__}.{kind.__name__}" == "lightgbm.basic.Booster"


def find_frame_function(model: Model) -> FrameFunction | None:
    """The function of a model that `make_model` has made; None for another model."""
    function = None
    if model.black_box is not None:
        function = model.black_box.function
    return function if isinstance(function, FrameFunction) else None


def make_model(estimator: Any, table: Table, task: str | Task | None = None) -> Model:
    """A model that asks a fitted estimator, or pipeline, with data frames of the table's types.

    Args:
        estimator: of scikit-learn, XGBoost, LightGBM, CatBoost or alike. `standfast.tasks.estimators` has the table of
            what is asked: `predict_proba` or else `decision_function` of a classifier, `decision_function` of a
            detector of outliers, distances to the centres of clusters, `predict` of a regressor; of boosters, what
            their loss means.
        table: the columns. Its rows are the model's reference.
        task: such as `"regression:tolerance=500"`. None: classes; several labels; for a classifier with a threshold of
            its own, the two sides of that; a number that moves by more than a tenth of the standard deviation of the
            predictions for the reference is another answer.

    Raises:
        ArgumentError: it is no such estimator, does not tell what the task reads, or was fitted with other columns.
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
    if not isinstance(estimator, type):
        _check_columns(estimator, table)
    tried = table.rows[:_TRIED]
    predicted = _predict(estimator, table, tried)
    # what it predicts tells several labels from classes
    reading = choose_reading(estimator, None if task is None else get_task(task), predicted)
    function = FrameFunction(estimator, table, reading)
    values = _try(function, table, tried)
    chosen = reading.task
    if chosen is None:
        chosen = Regression(_choose_tolerance(values))
    model = Model.from_callable(
        function,
        table.bounds,
        output=reading.output,
        dtype=torch.float64,
        task=chosen,
    )
    model.reference = table.make_reference()
    # another threshold is the user's will
    keeps_rule = task is None or (
        getattr(chosen, "threshold", 0.5) == 0.5 and not isinstance(chosen, Decision)
    )
    if keeps_rule:
        _compare_answers(model, function, tried, predicted)
    return model


def decide_by(model: Model, rule: str) -> Model:
    """A model that decides by a rule such as `"P(default) > 0.35"` (`standfast.tasks.Decision`).

    An estimator of data frames is read again, as another of its methods may tell probabilities; its reference stays.

    Raises:
        ArgumentError: the rule has another form, or the model has no probabilities of such a class.
    """
    function = find_frame_function(model)
    if function is None:
        return model.with_task(Decision(rule, of=model.task.below))
    decided = make_model(function.estimator, function.table, Decision(rule))
    decided.reference = model.reference
    return decided


def _choose_tolerance(numbers: Any) -> float:
    """How far the number that is explained, the first one, may move: a tenth of its standard deviation."""
    first = np.asarray(numbers, dtype=float).reshape(len(numbers), -1)[:, 0]
    first = first[np.isfinite(first)]
    is_constant = len(first) == 0 or np.ptp(first) <= _ROUNDING * np.abs(first).max()
    # two digits, so that the tolerance can be read in a report
    if is_constant:
        return 1.0
    tolerance = _SHARE * float(np.std(first))
    # two digits, so that it can be read
    return float(f"{tolerance:.2g}")


def _predict(estimator: Any, table: Table, rows: Tensor) -> Any:
    """What the estimator's own `predict` says; None where it has none, or fails, as `predict_proba` may not."""
    if isinstance(estimator, type) or not has_method(estimator, "predict"):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the answers themselves are asked with warnings
            return np.asarray(estimator.predict(table.decode(rows)))
    except Exception:
        # whatever the estimator raises; if it matters, the method that is asked raises it again
        return None


def _compare_answers(model: Model, function: FrameFunction, rows: Tensor, predicted: Any) -> None:
    """Warn if kinds that the model answers are not those of the estimator's own `predict`, rounding aside."""
    if predicted is None:
        own_answers = None
    else:
        own_answers = number_predictions(function.estimator, predicted)
    # numbers are compared by no rule
    if own_answers is None or function.reading.source.kind == "numbers":
        return
    answers = _answer_surely(model, rows)
    # several labels, or another form, are not comparable row by row
    if answers.shape != own_answers.shape:
        return
    is_other = (answers != own_answers) & (answers >= 0)
    differs = is_other.reshape(len(answers), -1).any(1)
    if differs.any():
        method = function.reading.__name__
        warn_user(
            f"model: {differs.mean():.1%} of the reference rows have another answer by {method} than by predict of"
            f" {function.__name__}{_find_reason(model, function)}. What is explained is {method}"
        )


def _find_reason(model: Model, function: FrameFunction) -> str:
    """Why an estimator's scores and its `predict` may disagree, behind its name; empty where nothing tells."""
    if function.__name__ in ("SVC", "NuSVC"):
        return "; SVC(break_ties=True) predicts by its scores"
    if find_threshold(function.estimator) is not None:
        return f", whose threshold of {getattr(model.task, 'threshold', 0.5):g} was kept"
    return ""


def _answer_surely(model: Model, rows: Tensor) -> Array:
    """The numbers of classes `(N,)` or the labels that are on `(N, L)`; -1 where rounding decides, or nothing is known.

    A row without a finite output is left to the metrics, for which it is a status.
    """
    with model.session(), torch.no_grad():
        (outputs,) = model.map_rows(lambda some_rows: (model.forward(some_rows),), rows)
    answers = model.task.answer(outputs)
    if isinstance(model.task, MultiLabel):
        numbers = answers[:, 1:]
        # a row at the threshold may fall on either side by rounding
        is_sure = (outputs - model.task.limit).abs() > _ROUNDING
    else:
        numbers = answers
        is_sure = model.task.margin(outputs, answers) < -_ROUNDING
    unsure = -torch.ones_like(numbers)
    return np.asarray(numbers.where(is_sure, unsure).numpy())


def check_losses(model: Model, changes: object) -> None:
    """Raise `ModelError` unless the model answers for rows without each of the cells that changes may lose."""
    function = find_frame_function(model)
    if function is None or not isinstance(changes, TableChanges) or not changes.may_become_missing:
        return
    table = function.table
    for number, (column, code) in enumerate(zip(table.columns, table.missing, strict=True)):
        # only cells that were named: by default nothing gets lost
        named = isinstance(changes.changes, Mapping) and column.name in changes.changes
        if code is not None and named:
            row = table.rows[:1].clone()
            row[:, number] = code
            _try(function, table, row, f" with a missing cell in {column.name!r}")


def _try(function: FrameFunction, table: Table, rows: Tensor, what: str = "") -> Any:
    try:
        return function.ask(table.decode(rows))
    except ModelError:  # what it answers has no meaning for the task
        raise
    except Exception as error:  # whatever the estimator raises
        # such rows are ours, so the message says which columns could be the cause
        lost = [
            column.name
            for column, code in zip(table.columns, table.missing, strict=True)
            if code is not None
        ]
        if not what and lost:
            what = f" ({', '.join(lost[:5])} with missing cells)"
        message = " ".join(str(error).split())
        said = f"{type(error).__name__}: {message}"
        raise ModelError(
            f"model: expected one that answers for rows{what}, got {function.__name__}: {said}"
        ) from error


def _check_columns(estimator: Any, table: Table) -> None:
    """Raise `ArgumentError` for columns that an estimator was not fitted with."""
    names = getattr(estimator, "feature_names_in_", None)
    present = [column.label for column in table.columns]
    if names is None:
        return
    fitted = list(names)
    if set(fitted) != set(present):
        gone = [n for n in fitted if n not in present]
        more = [n for n in present if n not in fitted]
        words = [
            f"{', '.join(map(repr, few[:3]))} {what}"
            for few, what in ((gone, "missing"), (more, "more"))
            if few
        ]
        raise ArgumentError(
            "frame",
            f"the {len(fitted)} columns that the model was fitted with",
            " and ".join(words),
        )
