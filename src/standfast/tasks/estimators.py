"""Estimators of other packages: which method is asked for a task, and what its answer means.

`list_sources` says what an estimator can tell, best first: probabilities or scores of classes or of labels, or numbers.
`READINGS` says what each task makes of that. `choose_reading` joins both, or refuses the estimator in words.

The rule behind both: the answer of a model is what the estimator's own `predict` says. So a classifier without
probabilities is asked for its decision function, and never for the number of its class; a classifier that decides at a
tuned threshold keeps that threshold; and a booster is read as its loss says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from standfast.errors import ArgumentError, ModelError, check
from standfast.tasks.base import Task
from standfast.tasks.boosters import (
    CATBOOST_LABELS,
    is_of,
    list_of_booster,
    of_labels,
    read_catboost_loss,
)
from standfast.tasks.classification import Classification, ZeroShot
from standfast.tasks.decision import Decision
from standfast.tasks.labels import LEAST_PROBABILITY, Binary, MultiLabel
from standfast.tasks.sources import (
    Kind,
    Source,
    are_of_labels,
    find_final,
    find_type,
    has_method,
    is_kind,
    name_estimator,
    read_classes,
)
from standfast.tasks.thresholds import check_threshold, find_shift, find_threshold
from standfast.tensors import Array

#: what a task gets
Meaning = Literal[
    "probabilities of classes",
    "probability of class 1",
    "log-odds of class 1",
    "scores of classes",
    "margin of class 1",
    "probabilities of labels",
    "log-odds of labels",
    "scores of labels",
    "numbers",
]

#: of what an estimator tells, and of what a task reads: what the task gets. All other pairs are refused.
READINGS: Mapping[tuple[Kind, str], Meaning] = {
    ("probabilities of classes", "classification"): "probabilities of classes",
    ("probabilities of classes", "binary:output=probability"): "probability of class 1",
    ("probabilities of classes", "binary"): "log-odds of class 1",
    ("scores of classes", "classification"): "scores of classes",
    ("scores of classes", "binary"): "margin of class 1",
    ("probabilities of labels", "multi_label:output=probability"): "probabilities of labels",
    ("probabilities of labels", "multi_label"): "log-odds of labels",
    ("scores of labels", "multi_label"): "scores of labels",
    ("numbers", "regression"): "numbers",
    ("numbers", "binary:output=probability"): "numbers",
    ("numbers", "binary"): "numbers",
    ("numbers", "multi_label:output=probability"): "numbers",
    ("numbers", "multi_label"): "numbers",
}
#: what is explained where no task is named; of numbers it depends on how much they vary
_USUAL_TASKS: Mapping[Kind, Task | None] = {
    "probabilities of classes": Classification(),
    "scores of classes": Classification(),
    "probabilities of labels": MultiLabel(output="probability"),
    "scores of labels": MultiLabel(),
    "numbers": None,
}

#: clusterers that predict the nearest centre, whose distances `transform` gives
_NEAREST_CENTRE = ("KMeans", "MiniBatchKMeans")
#: their `predict` follows the decision function, and not the probabilities that were fitted beside it
_BY_DECISION = ("SVC", "NuSVC")
#: what estimators say that they are whose `predict` gives kinds, and no numbers
_TYPES_OF_KINDS = ("classifier", "outlier_detector", "clusterer", "density_estimator")
_METHODS = ("predict_proba", "decision_function", "predict")
_ESTIMATOR = "a fitted estimator or pipeline with predict_proba, decision_function or predict, such as scikit-learn's"


@dataclass(frozen=True, eq=False)
class Reading:
    """An estimator as a function of rows, or of frames, that gives what a task reads.

    Attributes:
        estimator: whose method is called.
        source: which method, and what it tells.
        meaning: what is made of it.
        task: which one reads it; None for numbers whose task is not chosen yet.
    """

    estimator: Any
    source: Source
    meaning: Meaning
    task: Task | None

    @property
    def output(self) -> Literal["probability", "logit"]:
        """What the result is for a classification, as `Model.from_callable` has to know; no other task asks."""
        if self.meaning == "scores of classes":
            return "logit"
        return "probability"

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, by their numbers; empty where there are none, as of labels."""
        if self.source.kind.endswith("labels"):
            return ()
        return name_classes(self.estimator)

    @property
    def __self__(self) -> Any:
        """The estimator, as a method has it: explainers of trees look for it there."""
        return self.estimator

    @property
    def __name__(self) -> str:
        return self.source.method

    @property
    def function(self) -> Callable[[Any], Any]:
        """The method itself, where its answer is read as it is."""
        as_it_is = self.source == Source(self.source.kind, self.source.method)
        # only then is the method itself what is asked, whose name users know
        if as_it_is and self.meaning in (
            "probabilities of classes",
            "scores of classes",
            "numbers",
        ):
            method: Callable[[Any], Any] = getattr(self.estimator, self.source.method)
            return method
        return self

    def describe(self) -> list[Any]:
        """Which method is asked with which options, and what is made of its answer."""
        source = self.source
        return [
            source.kind,
            source.method,
            dict(source.options),
            source.sign,
            source.shift,
            self.meaning,
        ]

    def of(self, estimator: Any) -> Reading:
        """The same reading of another estimator, such as the last step of a pipeline, which gets encoded columns."""
        return Reading(estimator, self.source, self.meaning, self.task)

    def __call__(self, rows: Any) -> Any:
        """What the task reads of rows, as the estimator takes them.

        Raises:
            ModelError: the answer has another shape than its meaning.
        """
        # options are the estimator's own, as for raw scores
        answer = getattr(self.estimator, self.source.method)(rows, **self.source.options)
        if self.source.kind in ("probabilities of classes", "scores of classes"):
            _check_columns(answer, self.source.method)
        if self.meaning in ("probabilities of classes", "numbers"):
            return answer
        if self.meaning == "scores of classes":
            return self._change_scores(answer)
        if self.meaning in ("probabilities of labels", "log-odds of labels"):
            labels = _stack_labels(answer, read_classes(self.estimator))
            if self.meaning == "probabilities of labels":
                return labels
            return _find_log_odds(labels)
        if self.meaning == "scores of labels":
            return np.asarray(answer, dtype=np.float64)
        if self.meaning == "margin of class 1":
            return _take_class_1(self._change_scores(answer), self.__name__, scores=True)
        share = _take_class_1(np.asarray(answer, dtype=np.float64), self.__name__)
        if self.meaning == "probability of class 1":
            return share
        return _find_log_odds(share)

    def _change_scores(self, answer: Any) -> Array:
        # distances become scores by their sign, and a threshold moves to 0
        scores = np.asarray(answer, dtype=np.float64)
        return np.asarray(self.source.sign * scores + self.source.shift)


def choose_reading(estimator: Any, task: Task | None = None, predicted: Any = None) -> Reading:
    """The method of an estimator that is asked for a task, and what its answer means.

    Args:
        estimator: fitted, of scikit-learn, XGBoost, LightGBM, CatBoost or alike.
        task: None for what suits the estimator; numbers are then left without a task.
        predicted: what its `predict` says of some rows, which tells several labels from classes, where it is known.

    Raises:
        ArgumentError: it cannot be read for the task.

    >>> class Rule:
    ...     def predict_proba(self, rows):
    ...         return np.stack([1 - rows[:, 0], rows[:, 0]], 1)
    >>> choose_reading(Rule()).meaning, choose_reading(Rule(), Binary(output="probability")).meaning
    ('probabilities of classes', 'probability of class 1')
    """
    check(
        not isinstance(estimator, type),
        "model",
        _ESTIMATOR,
        f"the class {getattr(estimator, '__name__', '')}",
    )
    # a search predicts by its best estimator
    estimator = getattr(estimator, "best_estimator_", estimator)
    _refuse_classes(estimator)
    sources = list_sources(estimator, predicted)
    if not sources:
        raise ArgumentError("model", *_describe_silence(estimator))
    if isinstance(task, Decision):
        return _choose_for_decision(estimator, task, sources)
    if task is None:
        threshold = find_threshold(estimator)
        task = _USUAL_TASKS[sources[0].kind]
        # a threshold of the estimator's own decides what it predicts
        if threshold is not None:
            check_threshold(threshold)
            task = Binary(threshold=threshold, output="probability")
        elif task is None:
            return Reading(estimator, sources[0], "numbers", None)
    # classes by the largest probability would contradict that threshold
    _refuse_threshold(estimator, task)
    for source in sources:
        meaning = _find_meaning(source.kind, task)
        if meaning is not None:
            _refuse_pairs(estimator, source)
            return Reading(estimator, source, meaning, task)
    raise ArgumentError("model", *_describe_mismatch(estimator, sources[0], task))


def _choose_for_decision(estimator: Any, task: Decision, sources: Sequence[Source]) -> Reading:
    """The method that tells probabilities, and the decision with the number of its class.

    Raises:
        ArgumentError: no method tells any, or there is no such class.
    """
    # a decision is made by a probability, so a method that tells one comes first
    probabilities_first = sorted(
        sources, key=lambda source: not source.kind.startswith("probabilities")
    )
    for source in probabilities_first:
        below = task.of
        if below is None and source.kind.startswith("probabilities"):
            below = _USUAL_TASKS[source.kind]
        if not isinstance(below, Task):
            continue
        meaning = _find_meaning(source.kind, below)
        if meaning is not None:
            decision = replace(task, of=below)
            names = () if isinstance(below, MultiLabel) else name_classes(estimator)
            return Reading(estimator, source, meaning, decision.name_classes(names))
    expected = "a classifier with predict_proba (CalibratedClassifierCV makes one), which has probabilities of classes"
    got = f"{task.rule!r} of {name_estimator(estimator)}, whose {sources[0].method} gives {sources[0].kind}"
    raise ArgumentError("decision", expected, got)


def name_classes_of(function: Any, task: Task) -> Task:
    """A task with the names of the classes of an estimator, whose method the function is; another one as it is.

    Raises:
        ArgumentError: the task names a class that the estimator does not have.
    """
    estimator = getattr(function, "__self__", None)
    if estimator is None or not isinstance(task, Decision) or isinstance(task.below, MultiLabel):
        return task
    return task.name_classes(name_classes(estimator))


def fit_method(
    function: Callable[[Any], Any],
    task: Task,
    output: Literal["probability", "logit"] = "probability",
) -> Callable[[Any], Any]:
    """A method of an estimator as a task reads it; another function, or another method, as it is.

    `predict_proba` becomes the probability of class 1 for a binary task, or one for each label.

    Args:
        function: of rows.
        task: which one reads it.
        output: what the user says that it returns; scores of classes from `predict_proba` are as the user says.

    Raises:
        ArgumentError: the method does not say what the task reads, such as `predict` of a classifier.
    """
    estimator = getattr(function, "__self__", None)
    method = getattr(function, "__name__", "")
    is_method = (
        has_method(estimator, "predict")
        and method in _METHODS
        and not isinstance(function, Reading)
    )
    below = task.below
    reads_kinds = isinstance(below, Classification | Binary | MultiLabel) and not isinstance(
        below, ZeroShot
    )
    # the user has said that they are scores
    are_scores = method == "predict_proba" and output == "logit" and below.classes
    if not is_method or not reads_kinds or are_scores:
        return function
    if method == "predict":
        expected = "predict_proba, or decision_function with output='logit'"
        got = f"predict of {name_estimator(estimator)}, which gives classes"
        check(find_type(estimator) not in _TYPES_OF_KINDS, "function", expected, got)
        return function
    _refuse_classes(estimator)
    if method == "predict_proba":
        _refuse_threshold(estimator, task)
    for source in list_sources(estimator):
        meaning = _find_meaning(source.kind, below)
        if source.method == method and not source.options and meaning is not None:
            _refuse_pairs(estimator, source)
            return Reading(estimator, source, meaning, task).function
    return function


def list_sources(estimator: Any, predicted: Any = None) -> list[Source]:
    """What an estimator can tell of a row, best first; nothing where no method says how sure it is of its answer.

    Args:
        estimator: fitted.
        predicted: what its `predict` says of some rows, if it is known.
    """
    # what stands around it passes its answer on
    final = find_final(estimator)
    several = has_labels(estimator, predicted)
    boosted = list_of_booster(final)
    if boosted is not None:
        if several:
            return [of_labels(source) for source in boosted]
        return boosted
    kind = find_type(estimator)
    # distances: the nearest centre is the answer
    if is_kind(final, _NEAREST_CENTRE):
        return [Source("scores of classes", "transform", sign=-1.0)]
    if kind == "regressor":
        return [Source("numbers", "predict")]
    sources = _list_of_kinds(estimator, kind, several)
    # whole numbers may be classes of an estimator that does not say what it is
    may_be_numbers = kind not in _TYPES_OF_KINDS and (predicted is None or are_numbers(predicted))
    if may_be_numbers and has_method(estimator, "predict"):
        sources.append(Source("numbers", "predict"))
    return sources


def _list_of_kinds(estimator: Any, kind: str, several: bool) -> list[Source]:
    """The probabilities and scores of classes, or of several labels, that an estimator has."""
    probabilities_of: Kind = "probabilities of classes"
    scores_of: Kind = "scores of classes"
    if several:
        probabilities_of = "probabilities of labels"
        scores_of = "scores of labels"
    probabilities = Source(probabilities_of, "predict_proba")
    sources = [probabilities] if has_method(estimator, "predict_proba") else []
    if kind not in ("classifier", "outlier_detector") or not has_method(
        estimator, "decision_function"
    ):
        return sources
    shift = find_shift(estimator)
    scores = Source(scores_of, "decision_function", shift=shift)
    # `predict` follows these, and the answer has to be the estimator's own
    predicts_by_scores = shift != 0.0 or is_kind(find_final(estimator), _BY_DECISION)
    if predicts_by_scores:
        return [scores, *sources]
    return [*sources, scores]


def name_classes(estimator: Any) -> tuple[str, ...]:
    """The names of the classes, by their numbers; empty where there are none.

    >>> from sklearn.ensemble import IsolationForest
    >>> name_classes(IsolationForest())
    ('outlier', 'inlier')
    """
    # scikit-learn says -1 and 1, and has no names for them
    if find_type(estimator) == "outlier_detector":
        return ("outlier", "inlier")
    classes = read_classes(estimator)
    if are_of_labels(classes) or has_labels(estimator, None):
        return ()
    return tuple(map(str, classes))


def has_labels(estimator: Any, predicted: Any) -> bool:
    """Whether a classifier says yes or no to each of several labels."""
    final = find_final(estimator)
    if is_of(final, "catboost"):
        return read_catboost_loss(final) in CATBOOST_LABELS
    if are_of_labels(read_classes(estimator)) or getattr(final, "multilabel_", False) is True:
        return True
    shape: tuple[int, ...] = () if predicted is None else np.shape(predicted)
    # classes in several columns are labels
    return find_type(estimator) == "classifier" and len(shape) == 2 and shape[1] > 1


def number_predictions(estimator: Any, predicted: Any) -> Array | None:
    """What `predict` says, as numbers of classes `(N,)` or as labels `(N, L)`; None where they have no numbers."""
    answers = np.asarray(predicted)
    if find_type(estimator) == "outlier_detector":
        return np.asarray((answers == 1).astype(np.int64))
    # some boosters predict a column
    if answers.ndim == 2 and answers.shape[1] == 1:
        answers = answers[:, 0]
    classes = read_classes(estimator)
    if are_of_labels(classes):
        answers = answers.reshape(len(answers), -1)
        columns = [
            _number_label(answers[:, label], list(label_classes))
            for label, label_classes in enumerate(classes)
        ]
        return None if any(column is None for column in columns) else np.stack(columns, axis=1)  # type: ignore[arg-type]
    if answers.ndim == 1 and len(classes):
        return _number(answers, classes)
    if answers.dtype.kind in "iub":
        return answers.astype(np.int64)
    return None


def are_numbers(predicted: Any) -> bool:
    """Whether predictions are numbers, and not names or numbers of classes."""
    return bool(np.asarray(predicted).dtype.kind == "f")


# What is refused


def _refuse_classes(estimator: Any) -> None:
    """Raise `ArgumentError` for a classifier of one class, and for labels that are more than a yes and a no."""
    classes = read_classes(estimator)
    if are_of_labels(classes):
        most = max(len(label_classes) for label_classes in classes)
        expected = (
            "labels of two classes each (a model for each output, of several with more classes)"
        )
        check(
            most <= 2,
            "model",
            expected,
            f"{name_estimator(estimator)} with an output of {most} classes",
        )
        return
    got = f"{name_estimator(estimator)} that was fitted with one"
    check(len(classes) != 1, "model", "a classifier of two classes or more", got)


def _refuse_threshold(estimator: Any, task: Task) -> None:
    """Raise `ArgumentError` where the largest probability is not the class that is predicted."""
    threshold = find_threshold(estimator)
    if threshold is None or not task.classes:
        return
    named = f"task='binary:output=probability,threshold={threshold!r}'"
    raise ArgumentError(
        "model", f"{named} for a classifier with a threshold of its own", name_estimator(estimator)
    )


def _refuse_pairs(estimator: Any, source: Source) -> None:
    """Raise `ArgumentError` for a decision function of pairs of classes."""
    final = find_final(estimator)
    of_pairs = (
        source.method == "decision_function"
        and getattr(final, "decision_function_shape", "") == "ovo"
    )
    expected = "decision_function_shape='ovr' (set_params needs no new fit), a score for each class"
    check(
        not of_pairs or len(read_classes(final)) <= 2,
        "model",
        expected,
        f"'ovo' of {name_estimator(final)}",
    )


def _describe_silence(estimator: Any) -> tuple[str, str]:
    """What is expected, and what came, of an estimator that tells nothing."""
    name = name_estimator(estimator)
    kind = find_type(estimator)
    if not has_method(estimator, "predict"):
        return _ESTIMATOR, f"{name}, which predicts nothing for new rows"
    if kind == "clusterer":
        return (
            "clusters with scores (KMeans, MiniBatchKMeans or GaussianMixture)",
            f"{name}, which has none",
        )
    if kind == "classifier":
        return (
            "a classifier with predict_proba or decision_function",
            f"{name}, which predicts classes alone",
        )
    expected = (
        "numbers from predict, or predict_proba, or a task, such as 'regression:tolerance=2.5'"
    )
    return expected, f"{name}, whose predict gives kinds or whole numbers"


def _describe_mismatch(estimator: Any, source: Source, task: Task) -> tuple[str, str]:
    """What is expected, and what came, of an estimator that tells something else than the task reads."""
    got = f"{name_estimator(estimator)}, whose {source.method} gives {source.kind}"
    form = _name_form(task)
    if source.kind == "numbers":
        return (
            "predict_proba or decision_function",
            f"{got}; of a regressor, say task='regression:tolerance=2.5'",
        )
    if source.kind == "scores of classes" and form == "binary:output=probability":
        return (
            "predict_proba (CalibratedClassifierCV makes one), or task='binary' for decision_function",
            got,
        )
    if source.kind.endswith("labels"):
        usual = _name_form(_USUAL_TASKS[source.kind])
        return f"task={usual!r} for several labels", f"{got}, and the task {form!r}"
    return f"an estimator for the task {form!r}", got


# Details


def _find_meaning(kind: Kind, task: Task) -> Meaning | None:
    """What a task gets; one that is not in the table, such as your own, gets what `predict_proba` or `predict` says."""
    form = _name_form(task)
    # tasks of plug-ins are not in the table
    if form in {name for _, name in READINGS}:
        return READINGS.get((kind, form))
    if kind in ("numbers", "probabilities of classes"):
        return "numbers"
    return None


def _name_form(task: Task | None) -> str:
    """The name of a task with the option that says what it reads."""
    if task is None:
        return "regression"
    if isinstance(task, Binary | MultiLabel) and task.output == "probability":
        return f"{task.name}:output=probability"
    return task.name


def _check_columns(answer: Any, method: str) -> None:
    """Raise `ModelError` for a single column, which is of one class; a score of two classes is `(N,)`."""
    # rows of scores `(N,)` are those of two classes
    if len(np.shape(answer)) == 2 and np.shape(answer)[1] == 1:
        raise ModelError(f"model: expected two classes or more from {method}, got one")


def _take_class_1(values: Array, method: str, scores: bool = False) -> Array:
    """The column of class 1, `(N,)`; of scores `(N, 2)` the difference."""
    if values.ndim == 1:
        return values
    if values.shape[1:] != (2,):
        raise ModelError(
            f"model: expected two classes from {method} for a binary task, got {values.shape[1]}"
        )
    if scores:
        return values[:, 1] - values[:, 0]
    return values[:, 1]


def _find_log_odds(shares: Array) -> Array:
    """`log(p / (1 - p))`, with the least probability that has a logit."""
    # forests return exact zeros, which have no logit
    least = LEAST_PROBABILITY
    log_shares = np.log(np.maximum(shares, least))
    log_rest = np.log(np.maximum(1 - shares, least))
    return np.asarray(log_shares - log_rest)


def _stack_labels(answer: Any, classes: Sequence[Any]) -> Array:
    """The probability that each label is on, `(N, L)`, also of a list with the classes of each label."""
    if not isinstance(answer, list):
        return np.asarray(answer, dtype=np.float64)
    columns = []
    for label, shares in enumerate(answer):
        shares = np.asarray(shares, dtype=np.float64)
        if shares.shape[1] == 1:  # a label that was always on, or always off
            always_on = bool(classes[label][0]) if label < len(classes) else True
            share = shares[:, 0]
            columns.append(share if always_on else 1 - share)
        else:
            columns.append(shares[:, 1])
    return np.stack(columns, axis=1)


def _number(answers: Array, classes: Sequence[Any]) -> Array | None:
    """The numbers of classes; None if one is not among them. CatBoost writes flags as texts."""
    # a class may be a number there, and a text here
    by_value: dict[Any, int] = {value: number for number, value in enumerate(classes)}
    by_text = {str(value): number for number, value in enumerate(classes)}
    numbers = [by_value.get(value, by_text.get(str(value))) for value in answers.tolist()]
    if None in numbers:
        return None
    return np.array(numbers)


def _number_label(answers: Array, classes: list[Any]) -> Array | None:
    """Whether a label is on; one that was always on, or always off, has a single class."""
    if len(classes) == 1:
        return np.full(len(answers), int(bool(classes[0])))
    return _number(answers, classes)
