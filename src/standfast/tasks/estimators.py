"""Estimators of other packages: which method is asked for a task, and what its answer means.

`list_sources` says what an estimator can tell, best first: probabilities or scores of classes or of labels, or numbers.
`READINGS` says what each task makes of that. `choose_reading` joins both, or refuses the estimator in words.

The rule behind both: the answer of a model is what the estimator's own `predict` says. So a classifier without
probabilities is asked for its decision function, and never for the number of its class; a classifier that decides at a
tuned threshold keeps that threshold; and a booster is read as its loss says.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeGuard

import numpy as np

from standfast.errors import ArgumentError, ModelError, check
from standfast.tasks.base import Task
from standfast.tasks.classification import Classification, ZeroShot
from standfast.tasks.labels import LEAST_PROBABILITY, Binary, MultiLabel
from standfast.tensors import Array

#: what a method of an estimator tells of a row
Kind = Literal[
    "probabilities of classes", "scores of classes", "probabilities of labels", "scores of labels", "numbers"
]
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

#: LightGBM's losses whose `predict` gives probabilities of classes; of all other losses it gives numbers
_LIGHTGBM_PROBABILITIES = ("binary", "multiclass", "cross_entropy")
#: one sigmoid for each class, which do not add up to 1
_LIGHTGBM_ONE_VERSUS_ALL = ("multiclassova",)
_XGBOOST_PROBABILITIES = ("binary:logistic", "multi:softprob")
#: `predict` gives class numbers or log-odds; the margin is the score
_XGBOOST_SCORES = ("binary:logitraw", "binary:hinge", "multi:softmax")
#: with which `XGBClassifier.predict_proba` gives probabilities
_XGBOOST_CLASSIFIERS = ("binary:logistic", "reg:logistic", "multi:softprob", "multi:softmax")
_CATBOOST_CLASSES = ("Logloss", "CrossEntropy", "Focal", "MultiClass", "MultiClassOneVsAll")
_CATBOOST_LABELS = ("MultiLogloss", "MultiCrossEntropy")
#: clusterers that predict the nearest centre, whose distances `transform` gives
_NEAREST_CENTRE = ("KMeans", "MiniBatchKMeans")
#: their `predict` follows the decision function, and not the probabilities that were fitted beside it
_BY_DECISION = ("SVC", "NuSVC")
_AT_A_THRESHOLD = ("FixedThresholdClassifier", "TunedThresholdClassifierCV")
_METHODS = ("predict_proba", "decision_function", "predict")
_ESTIMATOR = "a fitted estimator or pipeline with predict_proba, decision_function or predict, such as scikit-learn's"


@dataclass(frozen=True)
class Source:
    """A method of an estimator, and what it tells.

    Attributes:
        kind: what it tells.
        method: its name.
        options: further arguments of it.
        sign: -1 for distances, of which the smallest is the best.
        shift: is added to scores, so that the estimator decides at 0.
    """

    kind: Kind
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sign: float = 1.0
    shift: float = 0.0


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
        return "logit" if self.meaning == "scores of classes" else "probability"

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
        if as_it_is and self.meaning in ("probabilities of classes", "scores of classes", "numbers"):
            method: Callable[[Any], Any] = getattr(self.estimator, self.source.method)
            return method
        return self

    def of(self, estimator: Any) -> Reading:
        """The same reading of another estimator, such as the last step of a pipeline, which gets encoded columns."""
        return Reading(estimator, self.source, self.meaning, self.task)

    def __call__(self, rows: Any) -> Any:
        """What the task reads of rows, as the estimator takes them.

        Raises:
            ModelError: the answer has another shape than its meaning.
        """
        answer = getattr(self.estimator, self.source.method)(rows, **self.source.options)
        if self.meaning in ("probabilities of classes", "numbers"):
            return answer
        if self.meaning == "scores of classes":
            return self._change_scores(answer)
        if self.meaning in ("probabilities of labels", "log-odds of labels"):
            labels = _stack_labels(answer, read_classes(self.estimator))
            return labels if self.meaning == "probabilities of labels" else _find_log_odds(labels)
        if self.meaning == "scores of labels":
            return np.asarray(answer, dtype=np.float64)
        if self.meaning == "margin of class 1":
            return _take_class_1(self._change_scores(answer), self.__name__, scores=True)
        share = _take_class_1(np.asarray(answer, dtype=np.float64), self.__name__)
        return share if self.meaning == "probability of class 1" else _find_log_odds(share)

    def _change_scores(self, answer: Any) -> Array:
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
    check(not isinstance(estimator, type), "model", _ESTIMATOR, f"the class {getattr(estimator, '__name__', '')}")
    estimator = getattr(estimator, "best_estimator_", estimator)
    _refuse_classes(estimator)
    sources = list_sources(estimator, predicted)
    if not sources:
        raise ArgumentError("model", *_describe_silence(estimator))
    if task is None:
        threshold = find_threshold(estimator)
        task = _USUAL_TASKS[sources[0].kind]
        if threshold is not None:
            _check_threshold(threshold)
            task = Binary(threshold=threshold, output="probability")
        elif task is None:
            return Reading(estimator, sources[0], "numbers", None)
    _refuse_threshold(estimator, task)
    for source in sources:
        meaning = _find_meaning(source.kind, task)
        if meaning is not None:
            _refuse_pairs(estimator, source)
            return Reading(estimator, source, meaning, task)
    raise ArgumentError("model", *_describe_mismatch(estimator, sources[0], task))


def fit_method(function: Callable[[Any], Any], task: Task) -> Callable[[Any], Any]:
    """A method of an estimator as a task reads it; another function, or another method, as it is.

    `predict_proba` becomes the probability of class 1 for a binary task, or one for each label.

    Raises:
        ArgumentError: the method does not say what the task reads, such as `predict` of a classifier.
    """
    estimator, method = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(function, Reading):
        return function
    if not has_method(estimator, "predict") or method not in _METHODS:
        return function
    if not isinstance(task, Classification | Binary | MultiLabel) or isinstance(task, ZeroShot):
        return function
    if method == "predict":
        predicts_kinds = find_type(estimator) in ("classifier", "outlier_detector", "clusterer")
        expected = "predict_proba, or decision_function with output='logit'"
        check(not predicts_kinds, "function", expected, f"predict of {_name(estimator)}, which gives classes")
        return function
    _refuse_classes(estimator)
    for source in list_sources(estimator):
        if source.method == method and not source.options:
            _refuse_pairs(estimator, source)
            if method == "predict_proba":
                _refuse_threshold(estimator, task)
            meaning = _find_meaning(source.kind, task)
            return function if meaning is None else Reading(estimator, source, meaning, task).function
    return function


def list_sources(estimator: Any, predicted: Any = None) -> list[Source]:
    """What an estimator can tell of a row, best first; nothing where no method says how sure it is of its answer.

    Args:
        estimator: fitted.
        predicted: what its `predict` says of some rows, if it is known.
    """
    final = find_final(estimator)
    several = has_labels(estimator, predicted)
    boosted = _list_of_booster(final)
    if boosted is not None:
        return [_of_labels(source) for source in boosted] if several else boosted
    kind = find_type(estimator)
    if type(final).__name__ in _NEAREST_CENTRE:
        return [Source("scores of classes", "transform", sign=-1.0)]
    if kind == "regressor":
        return [Source("numbers", "predict")]
    sources: list[Source] = []
    if has_method(estimator, "predict_proba"):
        sources.append(Source("probabilities of labels" if several else "probabilities of classes", "predict_proba"))
    has_scores = kind in ("classifier", "outlier_detector") and has_method(estimator, "decision_function")
    if has_scores:
        shift = _find_shift(estimator)
        scores = Source("scores of labels" if several else "scores of classes", "decision_function", shift=shift)
        first = shift != 0.0 or type(final).__name__ in _BY_DECISION
        sources.insert(0 if first else len(sources), scores)
    declared = kind in ("classifier", "outlier_detector", "clusterer", "density_estimator")
    if not declared and has_method(estimator, "predict") and (predicted is None or are_numbers(predicted)):
        sources.append(Source("numbers", "predict"))
    return sources


def find_final(estimator: Any) -> Any:
    """The estimator that decides: the last step of a pipeline, the best one of a search; another one itself."""
    steps = getattr(estimator, "steps", None)
    if steps:
        return find_final(steps[-1][1])
    best = getattr(estimator, "best_estimator_", None)
    if best is not None:
        return find_final(best)
    if type(estimator).__name__ == "FrozenEstimator":
        return find_final(estimator.estimator)
    return estimator


def find_type(estimator: Any) -> str:
    """What an estimator says that it is: "classifier", "regressor", "outlier_detector", "clusterer"; empty if nothing.

    >>> from sklearn.cluster import KMeans
    >>> find_type(KMeans()), find_type(object())
    ('clusterer', '')
    """
    kind = None
    with contextlib.suppress(Exception):  # before scikit-learn 1.6, and of own classes, there are no tags
        kind = estimator.__sklearn_tags__().estimator_type
    if kind is None:
        with contextlib.suppress(Exception):
            kind = getattr(estimator, "_estimator_type", None)
    if kind is None and len(read_classes(estimator)) > 0:
        return "classifier"
    return str(kind or "").replace("DensityEstimator", "density_estimator")


def has_method(estimator: Any, name: str) -> bool:
    """Whether it can be asked in this way, which may depend on its options."""
    return callable(getattr(estimator, name, None))


def read_classes(estimator: Any) -> Sequence[Any]:
    """The classes of a classifier, in the order of its probabilities; of several labels, a list of these; or nothing."""
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return ()
    return classes if isinstance(classes, list) else list(np.asarray(classes).tolist())


def name_classes(estimator: Any) -> tuple[str, ...]:
    """The names of the classes, by their numbers; empty where there are none.

    >>> from sklearn.ensemble import IsolationForest
    >>> name_classes(IsolationForest())
    ('outlier', 'inlier')
    """
    if find_type(estimator) == "outlier_detector":
        return ("outlier", "inlier")
    classes = read_classes(estimator)
    if _are_of_labels(classes) or has_labels(estimator, None):
        return ()
    return tuple(map(str, classes))


def has_labels(estimator: Any, predicted: Any) -> bool:
    """Whether a classifier says yes or no to each of several labels."""
    final = find_final(estimator)
    if _is_of(final, "catboost"):
        return _read_catboost_loss(final) in _CATBOOST_LABELS
    if _are_of_labels(read_classes(estimator)) or getattr(final, "multilabel_", False) is True:
        return True
    shape = np.shape(predicted) if predicted is not None else ()
    return find_type(estimator) == "classifier" and len(shape) == 2 and shape[1] > 1


def find_threshold(estimator: Any) -> float | None:
    """The probability of class 1 from which on a classifier predicts it, where that is not 0.5; else None."""
    final = find_final(estimator)
    if type(final).__name__ in _AT_A_THRESHOLD and _decides_by(final) == "predict_proba":
        threshold, of_class_1 = _read_threshold(final, 0.5)
        threshold = threshold if of_class_1 else 1.0 - threshold
    elif _is_of(final, "catboost") and has_method(final, "get_probability_threshold"):
        threshold = float(final.get_probability_threshold() or 0.5)
    else:
        return None
    return None if threshold == 0.5 else threshold


def number_predictions(estimator: Any, predicted: Any) -> Array | None:
    """What `predict` says, as numbers of classes `(N,)` or as labels `(N, L)`; None where they have no numbers."""
    answers = np.asarray(predicted)
    if find_type(estimator) == "outlier_detector":
        return np.asarray((answers == 1).astype(np.int64))
    if answers.ndim == 2 and answers.shape[1] == 1:
        answers = answers[:, 0]
    classes = read_classes(estimator)
    if _are_of_labels(classes):
        answers = answers.reshape(len(answers), -1)
        columns = [_number(answers[:, label], list(own)) for label, own in enumerate(classes)]
        return None if any(column is None for column in columns) else np.stack(columns, axis=1)  # type: ignore[arg-type]
    if answers.ndim == 1 and len(classes):
        return _number(answers, classes)
    return answers.astype(np.int64) if answers.dtype.kind in "iub" else None


def are_numbers(predicted: Any) -> bool:
    """Whether predictions are numbers, and not names or numbers of classes."""
    return bool(np.asarray(predicted).dtype.kind == "f")


# Boosters


def _list_of_booster(final: Any) -> list[Source] | None:
    """What a booster tells, by its package and its loss; None for another estimator."""
    name = f"{type(final).__module__.partition('.')[0]}.{type(final).__name__}"
    reader = _BOOSTERS.get(name)
    return None if reader is None else reader(final)


def _list_of_lightgbm(booster: Any) -> list[Source]:
    lines = booster.model_to_string(num_iteration=1).splitlines()
    losses = [line.removeprefix("objective=").split()[0] for line in lines if line.startswith("objective=")]
    loss = losses[0] if losses else "custom"
    if loss in _LIGHTGBM_ONE_VERSUS_ALL:
        return [Source("scores of classes", "predict", {"raw_score": True})]
    if loss in _LIGHTGBM_PROBABILITIES:
        return [Source("probabilities of classes", "predict")]
    return [Source("numbers", "predict")]


def _list_of_lightgbm_classifier(classifier: Any) -> list[Source]:
    loss = getattr(classifier, "objective_", "binary")
    if loss in _LIGHTGBM_ONE_VERSUS_ALL:
        return [Source("scores of classes", "predict_proba", {"raw_score": True})]
    _check_loss(classifier, loss, _LIGHTGBM_PROBABILITIES)
    return [Source("probabilities of classes", "predict_proba")]


def _list_of_xgboost(booster: Any) -> list[Source]:
    loss = json.loads(booster.save_config())["learner"]["objective"]["name"]
    if loss in _XGBOOST_SCORES:
        return [Source("scores of classes", "inplace_predict", {"predict_type": "margin"})]
    kind: Kind = "probabilities of classes" if loss in _XGBOOST_PROBABILITIES else "numbers"
    return [Source(kind, "inplace_predict")]  # `predict` takes no rows, but XGBoost's own matrices


def _list_of_xgboost_classifier(classifier: Any) -> list[Source]:
    loss = classifier.objective or "binary:logistic"
    if loss == "binary:hinge":
        return [Source("scores of classes", "predict", {"output_margin": True})]
    _check_loss(classifier, loss, _XGBOOST_CLASSIFIERS)
    return [Source("probabilities of classes", "predict_proba")]


def _list_of_catboost(booster: Any) -> list[Source]:
    """Of `CatBoost` itself, whose `predict` gives the sums of its trees."""
    loss = _read_catboost_loss(booster)
    raw = {"prediction_type": "RawFormulaVal"}
    if loss in _CATBOOST_CLASSES:
        return [Source("scores of classes", "predict", raw)]
    if loss in _CATBOOST_LABELS:
        return [Source("scores of labels", "predict", raw)]
    return [Source("numbers", "predict")]


def _list_of_catboost_classifier(classifier: Any) -> list[Source]:
    loss = _read_catboost_loss(classifier)
    if loss == "MultiClassOneVsAll":  # one sigmoid for each class, which do not add up to 1
        return [Source("scores of classes", "predict", {"prediction_type": "RawFormulaVal"})]
    if loss in _CATBOOST_LABELS:
        return [Source("probabilities of labels", "predict_proba")]
    _check_loss(classifier, loss, _CATBOOST_CLASSES)
    return [Source("probabilities of classes", "predict_proba")]


def _list_numbers(_: Any) -> list[Source]:
    return [Source("numbers", "predict")]


_BOOSTERS: Mapping[str, Callable[[Any], list[Source]]] = {
    "lightgbm.Booster": _list_of_lightgbm,
    "lightgbm.LGBMClassifier": _list_of_lightgbm_classifier,
    "xgboost.Booster": _list_of_xgboost,
    "xgboost.XGBClassifier": _list_of_xgboost_classifier,
    "xgboost.XGBRFClassifier": _list_of_xgboost_classifier,
    "catboost.CatBoost": _list_of_catboost,
    "catboost.CatBoostClassifier": _list_of_catboost_classifier,
    "catboost.CatBoostRegressor": _list_numbers,
    "catboost.CatBoostRanker": _list_numbers,
}


def _of_labels(source: Source) -> Source:
    """What tells of classes, of a booster of several labels."""
    kinds: dict[Kind, Kind] = {
        "probabilities of classes": "probabilities of labels",
        "scores of classes": "scores of labels",
    }
    return replace(source, kind=kinds.get(source.kind, source.kind))


def _read_catboost_loss(booster: Any) -> str:
    return str(booster.get_all_params().get("loss_function", "")).partition(":")[0]


def _check_loss(classifier: Any, loss: Any, probable: Sequence[str]) -> None:
    """Raise `ArgumentError` for a classifier whose loss makes no probabilities."""
    title = "a loss of yours" if callable(loss) else f"the loss {loss}"
    expected = f"a {_name(classifier)} with a loss of probabilities ({', '.join(probable)})"
    got = f"{title}, with which predict_proba gives none; Model.from_callable takes a function of yours"
    check(isinstance(loss, str) and loss in probable, "model", expected, got)


# Thresholds


def _decides_by(final: Any) -> str:
    """The method whose answer a classifier at a threshold compares."""
    inner = getattr(final, "estimator_", final.estimator)
    if final.response_method != "auto":
        return str(final.response_method)
    return "predict_proba" if has_method(inner, "predict_proba") else "decision_function"


def _read_threshold(final: Any, usual: float) -> tuple[float, bool]:
    """The threshold, and whether it is one of class 1 and not of class 0."""
    threshold = getattr(final, "best_threshold_", None)
    positive = getattr(final, "pos_label", None)
    if threshold is None:
        threshold = usual if final.threshold == "auto" else final.threshold
    else:
        with contextlib.suppress(Exception):  # what it optimises knows the class; this is no public attribute
            positive = final._curve_scorer._get_pos_label()
    return float(threshold), positive is None or bool(positive == final.classes_[1])


def _find_shift(estimator: Any) -> float:
    """What to add to decision functions, so that a classifier decides at 0."""
    final = find_final(estimator)
    if type(final).__name__ not in _AT_A_THRESHOLD or _decides_by(final) != "decision_function":
        return 0.0
    threshold, of_class_1 = _read_threshold(final, 0.0)
    return -threshold if of_class_1 else threshold


def _check_threshold(threshold: float) -> None:
    fits = 0.0 < threshold < 1.0
    check(fits, "model", "a classifier whose threshold is above 0 and below 1", f"the threshold {threshold:g}")


# What is refused


def _refuse_classes(estimator: Any) -> None:
    """Raise `ArgumentError` for a classifier of one class, and for labels that are more than a yes and a no."""
    classes = read_classes(estimator)
    if _are_of_labels(classes):
        most = max(len(own) for own in classes)
        expected = "labels of two classes each (a model for each output, of several with more classes)"
        check(most <= 2, "model", expected, f"{_name(estimator)} with an output of {most} classes")
        return
    got = f"{_name(estimator)} that was fitted with one"
    check(len(classes) != 1, "model", "a classifier of two classes or more", got)


def _refuse_threshold(estimator: Any, task: Task) -> None:
    """Raise `ArgumentError` where the largest probability is not the class that is predicted."""
    threshold = find_threshold(estimator)
    if threshold is None or not task.classes:
        return
    named = f"task='binary:output=probability,threshold={threshold!r}'"
    raise ArgumentError("model", f"{named} for a classifier with a threshold of its own", _name(estimator))


def _refuse_pairs(estimator: Any, source: Source) -> None:
    """Raise `ArgumentError` for a decision function of pairs of classes."""
    final = find_final(estimator)
    of_pairs = source.method == "decision_function" and getattr(final, "decision_function_shape", "") == "ovo"
    expected = "decision_function_shape='ovr' (set_params needs no new fit), a score for each class"
    check(not of_pairs or len(read_classes(final)) <= 2, "model", expected, f"'ovo' of {_name(final)}")


def _describe_silence(estimator: Any) -> tuple[str, str]:
    """What is expected, and what came, of an estimator that tells nothing."""
    name, kind = _name(estimator), find_type(estimator)
    if not has_method(estimator, "predict"):
        return _ESTIMATOR, f"{name}, which predicts nothing for new rows"
    if kind == "clusterer":
        return "clusters with scores (KMeans, MiniBatchKMeans or GaussianMixture)", f"{name}, which has none"
    if kind == "classifier":
        return "a classifier with predict_proba or decision_function", f"{name}, which predicts classes alone"
    expected = "numbers from predict, or predict_proba, or a task, such as 'regression:tolerance=2.5'"
    return expected, f"{name}, whose predict gives kinds or whole numbers"


def _describe_mismatch(estimator: Any, source: Source, task: Task) -> tuple[str, str]:
    """What is expected, and what came, of an estimator that tells something else than the task reads."""
    got = f"{_name(estimator)}, whose {source.method} gives {source.kind}"
    form = _name_form(task)
    if source.kind == "numbers":
        return "predict_proba or decision_function", f"{got}; of a regressor, say task='regression:tolerance=2.5'"
    if source.kind == "scores of classes" and form == "binary:output=probability":
        return "predict_proba (CalibratedClassifierCV makes one), or task='binary' for decision_function", got
    if source.kind.endswith("labels"):
        usual = _name_form(_USUAL_TASKS[source.kind])
        return f"task={usual!r} for several labels", f"{got}, and the task {form!r}"
    return f"an estimator for the task {form!r}", got


# Details


def _find_meaning(kind: Kind, task: Task) -> Meaning | None:
    """What a task gets; tasks that are not in the table, such as your own, get what `predict_proba` or `predict` says."""
    form = _name_form(task)
    if form in {name for _, name in READINGS}:
        return READINGS.get((kind, form))
    return "numbers" if kind in ("numbers", "probabilities of classes") else None


def _name_form(task: Task | None) -> str:
    """The name of a task with the option that says what it reads."""
    if task is None:
        return "regression"
    if isinstance(task, Binary | MultiLabel) and task.output == "probability":
        return f"{task.name}:output=probability"
    return task.name


def _take_class_1(values: Array, method: str, scores: bool = False) -> Array:
    """The column of class 1, `(N,)`; of scores `(N, 2)` the difference."""
    if values.ndim == 1 or values.shape[1:] == (1,):
        return values.reshape(len(values))
    if values.shape[1:] != (2,):
        raise ModelError(f"model: expected two classes from {method} for a binary task, got {values.shape[1]}")
    return values[:, 1] - values[:, 0] if scores else values[:, 1]


def _find_log_odds(shares: Array) -> Array:
    """`log(p / (1 - p))`, with the least probability that has a logit."""
    least = LEAST_PROBABILITY
    return np.asarray(np.log(np.maximum(shares, least)) - np.log(np.maximum(1 - shares, least)))


def _stack_labels(answer: Any, classes: Sequence[Any]) -> Array:
    """The probability that each label is on, `(N, L)`, also of a list with the classes of each label."""
    if not isinstance(answer, list):
        return np.asarray(answer, dtype=np.float64)
    columns = []
    for label, shares in enumerate(answer):
        shares = np.asarray(shares, dtype=np.float64)
        if shares.shape[1] == 1:  # a label that was always on, or always off
            always_on = bool(classes[label][0]) if label < len(classes) else True
            columns.append(shares[:, 0] if always_on else 1 - shares[:, 0])
        else:
            columns.append(shares[:, 1])
    return np.stack(columns, axis=1)


def _are_of_labels(classes: Sequence[Any]) -> TypeGuard[list[Any]]:
    """Whether these are the classes of each of several labels."""
    return len(classes) > 0 and all(isinstance(own, list | np.ndarray) for own in classes)


def _number(answers: Array, classes: Sequence[Any]) -> Array | None:
    """The numbers of classes; None if one is not among them. CatBoost writes flags as texts."""
    by_value: dict[Any, int] = {value: number for number, value in enumerate(classes)}
    by_text = {str(value): number for number, value in enumerate(classes)}
    numbers = [by_value.get(value, by_text.get(str(value))) for value in answers.tolist()]
    return None if None in numbers else np.array(numbers)


def _is_of(final: Any, package: str) -> bool:
    return type(final).__module__.partition(".")[0] == package


def _name(estimator: Any) -> str:
    return type(find_final(estimator)).__name__
