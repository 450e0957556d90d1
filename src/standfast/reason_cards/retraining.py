"""Models that are trained again: those that the user has, those of a function, or clones fitted on resampled rows."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from standfast.display import format_clock, show_progress
from standfast.errors import ArgumentError, check, check_integer, warn_user
from standfast.frames import is_frame
from standfast.statistics.reasons import MOST_DECIDED, count_least_models, schedule_models
from standfast.tensors import Array

#: models are trained until the reasons are decided, and at most so many
MOST_MODELS = 200
#: so often rows are drawn again of which a class is missing
_TRIES = 100


@dataclass(frozen=True)
class Retraining:
    """How models are trained again; at most one of the first two is given.

    Attributes:
        retrained: the models themselves.
        retrain: a function of a seed; True for clones of the model that are fitted on resampled rows.
        models: how many are trained; None for as many as decide, `MOST_MODELS` at most.
        rows: training rows, for clones.
        labels: what the model learns of each of these rows.
    """

    retrained: Sequence[Any] | None = None
    retrain: Callable[[int], Any] | bool | None = None
    models: int | None = None
    rows: Any = None
    labels: Any = None

    def check(self, model: Any) -> None:
        """Raise `ArgumentError` for what does not go together, before anything is trained."""
        has_function = self.retrain not in (None, False)
        check(
            self.retrained is None or not has_function,
            "retrain",
            "a list of models or a way to train one",
            "both",
        )
        check_integer(self.models, "models", also=(None,))
        check(
            self.labels is None or self.retrain is True,
            "labels",
            "None without retrain=True",
            "labels",
        )
        if self.retrained is not None:
            is_list = isinstance(self.retrained, list | tuple) and len(self.retrained) > 0
            check(is_list, "retrained", "a list of at least one model", repr(self.retrained))
            check(
                self.models is None,
                "models",
                "None without retrain=, which trains them",
                self.models,
            )
        elif self.retrain is True:
            _check_clone(model, self.rows, self.labels)
        elif has_function:
            check(
                callable(self.retrain),
                "retrain",
                "a function of a seed, or True",
                repr(self.retrain),
            )
        else:
            check(
                self.models is None,
                "models",
                "None without retrain=, which trains them",
                self.models,
            )

    def plan_looks(self, model: Any, demand: float, reasons: int) -> tuple[int, ...]:
        """After how many models the reasons are looked at: once, where their number is fixed; none without models.

        Args:
            model: that is explained.
            demand: the probability that a reason must have.
            reasons: how many there are.

        Raises:
            ArgumentError: something does not go together.
        """
        self.check(model)
        decided_reasons = min(reasons, MOST_DECIDED)
        least = count_least_models(demand, reasons=decided_reasons, look=None)
        if self.retrained is not None:
            self._check_models(model, self.retrained, "retrained[{}]")
            _warn_of_few(len(self.retrained), least, demand)
            return (len(self.retrained),)
        if self.retrain in (None, False):
            return ()
        if self.models is not None:
            _warn_of_few(self.models, least, demand)
            return (self.models,)
        looks = schedule_models(MOST_MODELS, demand, reasons=decided_reasons)
        # each of more reasons, such as pixels, is not decided, so nothing is looked for
        return looks if reasons <= MOST_DECIDED else looks[:1]

    def make_models(
        self,
        model: Any,
        looks: Sequence[int],
        number: int,
        progress: bool,
        ends: float = math.inf,
    ) -> dict[str, Any]:
        """The models from one look to the next one, by name.

        Args:
            model: that is explained.
            looks: of `plan_looks`.
            number: of the look, from 0.
            progress: whether to show how many are trained.
            ends: when no further model is trained, as `time.monotonic` counts. One is trained in any case.

        Raises:
            ArgumentError: another kind of model is returned, or a clone cannot be fitted.
        """
        start, stop = (0, *looks)[number], looks[number]
        if self.retrained is not None:
            models = list(self.retrained)
        else:
            train = self._choose_function(model)
            models = _train_each(train, start, stop, looks[-1], progress, ends)
            self._check_models(model, models, "retrain")
        return {
            f"retrained {seed}": trained for seed, trained in enumerate(models, start=start + 1)
        }

    @staticmethod
    def _check_models(model: Any, models: Sequence[Any], argument: str) -> None:
        """Raise `ArgumentError` for models of another kind, or of other classes.

        Args:
            model: that is explained.
            models: that were trained again.
            argument: its name, with a place for the number of the model.
        """
        for number, trained in enumerate(models):
            name = argument.format(number)
            expected = f"a {type(model).__name__}, as the model is"
            check(type(trained) is type(model), name, expected, repr(trained))
            _check_classes(
                _list_classes(model), _list_classes(trained), name, "a model of the classes"
            )

    def _choose_function(self, model: Any) -> Callable[[int], Any]:
        """The function of a seed that trains a model."""
        if callable(self.retrain):
            return self.retrain
        return lambda seed: fit_clone(model, self.rows, self.labels, seed)


def _train_each(
    train: Callable[[int], Any], start: int, stop: int, most: int, progress: bool, ends: float
) -> list[Any]:
    """The models of the seeds from `start + 1` to `stop`, or as many of them as there is time for.

    A line every ten seconds says how many there are.
    """
    models: list[Any] = []
    further = f" ({most} at most)" if most > stop else ""

    def describe(seconds: float) -> tuple[float, str]:
        number = min(start + len(models) + 1, stop)
        share = len(models) / (stop - start)
        clock = format_clock(seconds)
        return share, f"training model {number} of {stop} again{further}, {clock} elapsed"

    with show_progress(describe, only_if_long=True, show=progress) as refresh:
        for seed in range(start + 1, stop + 1):
            models.append(train(seed))
            refresh(False)
            if time.monotonic() >= ends:
                break
    return models


def _warn_of_few(count: int, least: int, demand: float) -> None:
    """Warn of models that are too few for any reason to hold."""
    if count < least:
        warn_user(
            f"{count} retrained models can never show that a reason is named with a probability of {demand:g}, even if"
            f" all of them name it: {least} can"
        )


def _check_clone(model: Any, rows: Any, labels: Any) -> None:
    """Raise `ArgumentError` where no clone can be fitted."""
    expected = "a function of a seed that trains a model, as only estimators of scikit-learn's kind can be cloned"
    is_estimator = all(callable(getattr(model, name, None)) for name in ("fit", "get_params"))
    check(is_estimator, "retrain", expected, f"True for a {type(model).__name__}")
    check(
        is_frame(rows),
        "reference",
        "the training rows as a data frame, for retrain=True",
        _name_type(rows),
    )
    check(
        labels is not None,
        "labels",
        "what the model learns of each row of reference, for retrain=True",
        "None",
    )
    count = len(np.asarray(labels)) if np.ndim(labels) > 0 else 0
    check(count == len(rows), "labels", f"one for each of the {len(rows)} rows of reference", count)
    learned = np.asarray(labels)
    if learned.ndim == 1:
        classes = list(set(learned.tolist()))
        _check_classes(_list_classes(model), classes, "labels", "all classes of the model:")


def _list_classes(model: Any) -> list[Any]:
    """The classes of a fitted classifier; none of another model."""
    classes = getattr(model, "classes_", None)
    return classes.tolist() if isinstance(classes, np.ndarray) else []


def _check_classes(
    expected: Sequence[Any], classes: Sequence[Any], argument: str, what: str
) -> None:
    """Raise `ArgumentError` where a model learns other classes, whose numbers would mean others.

    Args:
        expected: of the model that is explained; none of a regressor.
        classes: that another model has, or that are in its labels.
        argument: the name of the argument.
        what: is expected, before the names.
    """
    if not expected:
        return
    names = sorted(map(str, expected))
    other_names = sorted(map(str, classes))
    # numbers of a file are the truth values that a model has learned
    are_same = names == other_names or set(classes) == set(expected)
    check(are_same, argument, f"{what} {', '.join(names)}", ", ".join(other_names) or "none")


def _name_type(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def fit_clone(model: Any, rows: Any, labels: Any, seed: int) -> Any:
    """An unfitted copy of an estimator, fitted on rows that are drawn with replacement, as many as there are.

    Of a classifier, every class is among them. Random states that the estimator leaves open are the seed.

    Args:
        model: of scikit-learn's kind; it stays as it is.
        rows: a data frame.
        labels: one for each row.
        seed: of the draw.

    Raises:
        ArgumentError: it cannot be cloned or fitted.

    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> rows, labels = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0]}), ["no", "no", "yes", "yes"]
    >>> model = LogisticRegression().fit(rows, labels)
    >>> fit_clone(model, rows, labels, 1).classes_.tolist()
    ['no', 'yes']
    """
    all_labels = np.asarray(labels)
    chosen = _draw_rows(all_labels, hasattr(model, "classes_"), seed)
    if hasattr(rows, "iloc"):
        # numbered anew, as steps of a pipeline may join columns by rows' names, which would occur twice
        drawn_rows = rows.iloc[chosen].reset_index(drop=True)
    else:
        drawn_rows = rows[chosen]
    try:
        copy = importlib.import_module("sklearn.base").clone(model)
        open_states = {
            name: seed
            for name, value in copy.get_params(deep=True).items()
            if name.rpartition("__")[2] == "random_state" and value is None
        }
        return copy.set_params(**open_states).fit(drawn_rows, all_labels[chosen])
    except Exception as error:  # whatever an estimator of another package raises
        expected = (
            "an estimator whose clone can be fitted on the rows of reference and their labels"
        )
        raise ArgumentError("retrain", expected, f"{type(error).__name__}: {error}") from error


def _draw_rows(labels: Array, has_classes: bool, seed: int) -> Array:
    """The numbers of rows, drawn with replacement, `(N,)`; with every class among them."""
    generator = np.random.default_rng(seed)
    for _ in range(_TRIES):
        chosen = generator.integers(0, len(labels), size=len(labels))
        is_complete = (
            labels.ndim > 1
            or not has_classes
            or len(np.unique(labels[chosen])) == len(np.unique(labels))
        )
        if is_complete:
            return chosen
    raise ArgumentError(
        "labels",
        "classes that are not so rare that resampled rows have none of one",
        "a rare class",
    )
