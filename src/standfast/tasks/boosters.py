"""What boosters tell, by their package and their loss.

`predict` of a booster gives probabilities of one loss, class numbers of another, and log-odds or numbers of others. A
loss that is not listed gives numbers; a classifier whose loss makes no probabilities is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from standfast.errors import check
from standfast.tasks.sources import Kind, Source, name_estimator

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
CATBOOST_LABELS = ("MultiLogloss", "MultiCrossEntropy")


def list_of_booster(final: Any) -> list[Source] | None:
    """What a booster tells, by its package and its loss; None for another estimator."""
    # also of a class of the user's that is derived from one of these
    for base in type(final).__mro__:
        reader = _BOOSTERS.get(f"{base.__module__.partition('.')[0]}.{base.__name__}")
        if reader is not None:
            return reader(final)
    return None


def _list_of_lightgbm(booster: Any) -> list[Source]:
    lines = booster.model_to_string(num_iteration=1).splitlines()
    losses = [
        line.removeprefix("objective=").split()[0]
        for line in lines
        if line.startswith("objective=")
    ]
    loss = losses[0] if losses else "custom"
    if loss in _LIGHTGBM_ONE_VERSUS_ALL:
        # raw scores have an order across classes, unlike sigmoids that do not add up to 1
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
    # it has no probabilities, but a margin
    if loss == "binary:hinge":
        return [Source("scores of classes", "predict", {"output_margin": True})]
    _check_loss(classifier, loss, _XGBOOST_CLASSIFIERS)
    return [Source("probabilities of classes", "predict_proba")]


def _list_of_catboost(booster: Any) -> list[Source]:
    """Of `CatBoost` itself, whose `predict` gives the sums of its trees."""
    loss = read_catboost_loss(booster)
    raw = {"prediction_type": "RawFormulaVal"}
    if loss in _CATBOOST_CLASSES:
        return [Source("scores of classes", "predict", raw)]
    if loss in CATBOOST_LABELS:
        return [Source("scores of labels", "predict", raw)]
    return [Source("numbers", "predict")]


def _list_of_catboost_classifier(classifier: Any) -> list[Source]:
    loss = read_catboost_loss(classifier)
    if loss == "MultiClassOneVsAll":  # one sigmoid for each class, which do not add up to 1
        return [Source("scores of classes", "predict", {"prediction_type": "RawFormulaVal"})]
    if loss in CATBOOST_LABELS:
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


def of_labels(source: Source) -> Source:
    """What tells of classes, of a booster of several labels."""
    # CatBoost names labels like classes
    kinds: dict[Kind, Kind] = {
        "probabilities of classes": "probabilities of labels",
        "scores of classes": "scores of labels",
    }
    return replace(source, kind=kinds.get(source.kind, source.kind))


def read_catboost_loss(booster: Any) -> str:
    """The name of a loss, without its options; that of the class where nothing was fitted, which is said elsewhere."""
    if not booster.is_fitted():
        if "Classifier" in type(booster).__name__:
            return "Logloss"
        return "RMSE"
    return str(booster.get_all_params().get("loss_function", "")).partition(":")[0]


def _check_loss(classifier: Any, loss: Any, probable: Sequence[str]) -> None:
    """Raise `ArgumentError` for a classifier whose loss makes no probabilities."""
    # a loss may be a function of the user's
    title = "a loss of yours" if callable(loss) else f"the loss {loss}"
    expected = (
        f"a {name_estimator(classifier)} with a loss of probabilities ({', '.join(probable)})"
    )
    got = f"{title}, with which predict_proba gives none; Model.from_callable takes a function of yours"
    check(isinstance(loss, str) and loss in probable, "model", expected, got)


def is_of(final: Any, package: str) -> bool:
    """Whether an estimator is of a class of this package, or of one that is derived from it."""
    return any(base.__module__.partition(".")[0] == package for base in type(final).__mro__)
