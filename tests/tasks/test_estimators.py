"""Every estimator of scikit-learn, LightGBM, XGBoost and CatBoost: the method that is asked, and whose answers it is.

The oracle is the estimator's own `predict`: what a model answers for rows of a frame must be that, for each of them. An
estimator that cannot be taken is refused in one sentence.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.experimental import enable_halving_search_cv  # noqa: F401, since other tests enable it for all
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import all_estimators

import standfast
from standfast.errors import ArgumentError, ModelError
from standfast.frames import Table, find_frame_function, make_model
from standfast.study.identity import describe_model
from standfast.tasks import Binary, Classification, MultiLabel, Regression, get
from standfast.tasks.estimators import READINGS, choose_reading, name_classes
from standfast.tasks.sources import find_type

RNG = np.random.default_rng(0)
#: whole numbers from 0, as models of counts and of categories take them
FRAME = pd.DataFrame(RNG.integers(0, 9, size=(90, 4)).astype(float), columns=["a", "b", "c", "d"])
SCORE = FRAME["a"] + 0.5 * FRAME["b"] + RNG.normal(size=90)
TWO = (SCORE > 6).astype(int).to_numpy()
THREE = np.digitize(SCORE, [4.5, 7.5])
NUMBERS = np.exp(SCORE / 5).to_numpy()
SHARES = (1 / (1 + np.exp(3 - SCORE / 2))).to_numpy()
PAIRS = np.stack([TWO, (FRAME["c"] > 4).astype(int)], 1)
TWO_NUMBERS = np.stack([NUMBERS, 100 * NUMBERS + FRAME["d"].to_numpy()], 1)
TABLE = Table.read(FRAME)

#: arguments without which an estimator cannot be made, or not on so few rows
ARGUMENTS: dict[str, dict[str, Any]] = {
    "CCA": {"n_components": 1},
    "ClassifierChain": {"estimator": LogisticRegression()},
    "FixedThresholdClassifier": {"estimator": LogisticRegression(), "threshold": 0.3},
    "FrozenEstimator": {"estimator": LogisticRegression().fit(FRAME, TWO)},
    "GridSearchCV": {"estimator": LogisticRegression(), "param_grid": {"C": [0.1, 1.0]}},
    "HalvingGridSearchCV": {"estimator": LogisticRegression(), "param_grid": {"C": [0.1, 1.0]}},
    "HalvingRandomSearchCV": {
        "estimator": LogisticRegression(),
        "param_distributions": {"C": [0.1, 1.0]},
    },
    "LocalOutlierFactor": {"novelty": True},
    "MultiOutputClassifier": {"estimator": LogisticRegression()},
    "MultiOutputRegressor": {"estimator": LinearRegression()},
    "NuSVC": {"nu": 0.3},
    "OneVsOneClassifier": {"estimator": LogisticRegression()},
    "OneVsRestClassifier": {"estimator": LogisticRegression()},
    "OutputCodeClassifier": {"estimator": LogisticRegression(), "random_state": 0},
    "PLSCanonical": {"n_components": 1},
    "Pipeline": {"steps": [("last", LogisticRegression())]},
    "RFE": {"estimator": LogisticRegression()},
    "RFECV": {"estimator": LogisticRegression()},
    "RadiusNeighborsClassifier": {"radius": 50.0},
    "RadiusNeighborsRegressor": {"radius": 50.0},
    "RandomizedSearchCV": {
        "estimator": LogisticRegression(),
        "param_distributions": {"C": [0.1, 1.0]},
        "n_iter": 2,
    },
    "RegressorChain": {"estimator": LinearRegression()},
    "SelfTrainingClassifier": {"estimator": LogisticRegression()},
    "StackingClassifier": {
        "estimators": [("tree", DecisionTreeClassifier(max_depth=2)), ("l", LogisticRegression())]
    },
    "StackingRegressor": {
        "estimators": [("tree", DecisionTreeRegressor(max_depth=2)), ("l", LinearRegression())]
    },
    "TunedThresholdClassifierCV": {"estimator": LogisticRegression()},
    "VotingClassifier": {
        "estimators": [("tree", DecisionTreeClassifier(max_depth=2)), ("l", LogisticRegression())]
    },
    "VotingRegressor": {
        "estimators": [("tree", DecisionTreeRegressor(max_depth=2)), ("l", LinearRegression())]
    },
}
#: as few of what an estimator fits again and again as there may be
FEWER = {"cv": 2, "n_estimators": 5, "thresholds": 10}
#: the method and the meaning of those that differ from others of their type
DECISIONS = ("decision_function", "scores of classes")
LABELS = ("predict_proba", "probabilities of labels")
DISTANCES = ("transform", "scores of classes")
EXCEPTIONS = {
    **dict.fromkeys(
        ("LinearSVC", "NuSVC", "PassiveAggressiveClassifier", "Perceptron", "SVC"), DECISIONS
    ),
    **dict.fromkeys(
        ("RidgeClassifier", "RidgeClassifierCV", "SGDClassifier", "OneVsOneClassifier"), DECISIONS
    ),
    **dict.fromkeys(("ClassifierChain", "MultiOutputClassifier"), LABELS),
    **dict.fromkeys(
        ("FixedThresholdClassifier", "TunedThresholdClassifierCV"),
        ("predict_proba", "probability of class 1"),
    ),
    **dict.fromkeys(("KMeans", "MiniBatchKMeans"), DISTANCES),
}
USUAL = {
    "classifier": ("predict_proba", "probabilities of classes"),
    "density_estimator": ("predict_proba", "probabilities of classes"),
    "outlier_detector": DECISIONS,
    "regressor": ("predict", "numbers"),
}
#: what predicts and is refused, and why
REFUSED = {
    "AffinityPropagation": "clusters with scores",
    "Birch": "clusters with scores",
    "BisectingKMeans": "clusters with scores",
    "MeanShift": "clusters with scores",
    "OutputCodeClassifier": "predicts classes alone",
    "VotingClassifier": "predicts classes alone",
}


def choose_target(name: str, kind: str) -> Any:
    if name in ("ClassifierChain", "MultiOutputClassifier"):
        return PAIRS
    if name in ("CCA", "MultiOutputRegressor", "PLSCanonical", "RegressorChain") or name.startswith(
        "MultiTask"
    ):
        return TWO_NUMBERS
    if kind == "regressor":
        return NUMBERS
    return (
        THREE
        if name in ("GaussianProcessClassifier", "SVC", "LinearSVC", "OneVsOneClassifier")
        else TWO
    )


def list_all() -> Iterator[Any]:
    for name, kind in all_estimators():
        if name in (
            "ColumnTransformer",
            "FeatureUnion",
            "SelectFromModel",
            "SequentialFeatureSelector",
            "SparseCoder",
        ):
            continue  # they only transform, and need arguments
        yield pytest.param(name, kind, id=name)


def fit(estimator: Any, frame: pd.DataFrame, target: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so few rows
        return estimator.fit(frame, target)


def check_answers(estimator: Any, frame: pd.DataFrame = FRAME) -> standfast.Model:
    """The model answers as `predict` does, which gives numbers of classes, flags of labels or numbers here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="model:")
        table = Table.read(frame)
        model = make_model(estimator, table)
    predicted = np.asarray(estimator.predict(frame))
    if predicted.ndim == 2 and predicted.shape[1] == 1:
        predicted = predicted[:, 0]
    outputs = model.logits(table.rows)
    if isinstance(model.task, Regression):
        np.testing.assert_allclose(outputs.numpy(), predicted.reshape(len(outputs), -1), rtol=1e-12)
        return model
    if find_type(estimator) == "outlier_detector":
        predicted = (predicted == 1).astype(int)
    answers = model.task.answer(outputs)
    if isinstance(model.task, MultiLabel):
        numbers, tied = answers[:, 1:].numpy(), (outputs == model.task.limit).numpy()
    else:
        numbers, tied = answers.numpy(), (model.task.margin(outputs, answers) == 0).numpy()
    assert tied.mean() < 0.1
    assert (numbers == predicted)[~tied].all()
    return model


# of LocalOutlierFactor, by itself
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(("name", "kind"), list(list_all()))
def test_an_estimator_of_scikit_learn_answers_as_its_own_predict(
    name: str, kind: type[Any]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some will be removed
        estimator = kind(**ARGUMENTS.get(name, {}))
    own = estimator.get_params(deep=False)
    estimator.set_params(**{option: least for option, least in FEWER.items() if option in own})
    if not hasattr(kind, "predict") and name != "FrozenEstimator":
        with pytest.raises(ArgumentError, match=f"{name}, which predicts nothing for new rows"):
            choose_reading(estimator)
        return
    frame = FRAME[["a"]] if name == "IsotonicRegression" else FRAME
    if "Mixture" in name:
        estimator.set_params(n_components=2)
    fit(estimator, frame, choose_target(name, find_type(estimator)))
    if name in REFUSED:
        with pytest.raises(ArgumentError, match=REFUSED[name]):
            make_model(estimator, Table.read(frame))
        return
    function = find_frame_function(check_answers(estimator, frame))
    assert function is not None
    reading = function.reading
    expected = EXCEPTIONS.get(name) or USUAL[find_type(estimator)]
    assert (reading.source.method, reading.meaning) == expected


def test_a_new_row_cannot_be_asked_of_a_detector_of_the_old_ones() -> None:
    neighbors = pytest.importorskip("sklearn.neighbors")
    with pytest.raises(
        ArgumentError, match="LocalOutlierFactor, which predicts nothing for new rows"
    ):
        make_model(neighbors.LocalOutlierFactor().fit(FRAME), TABLE)


# Boosters: each loss that they have

LIGHTGBM = {
    **dict.fromkeys(
        ("regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape"), "numbers"
    ),
    **dict.fromkeys(
        ("gamma", "tweedie", "cross_entropy_lambda", "lambdarank", "rank_xendcg"), "numbers"
    ),
    **dict.fromkeys(("binary", "cross_entropy", "multiclass"), "probabilities of classes"),
    "multiclassova": "scores of classes",
}


def choose_label(loss: str) -> Any:
    if "multi" in loss or "rank" in loss.lower() or "pair" in loss.lower():
        return THREE
    if loss.startswith("cross_entropy") or loss in ("reg:logistic", "CrossEntropy"):
        return SHARES
    return TWO if "binary" in loss or loss.startswith(("Logloss", "Focal")) else NUMBERS


@pytest.mark.parametrize("loss", LIGHTGBM)
def test_a_booster_of_lightgbm_is_read_as_its_loss_says(loss: str) -> None:
    """The oracle is LightGBM's `predict`: numbers, or probabilities of which the largest is the class."""
    lightgbm = pytest.importorskip("lightgbm")
    options = {
        "objective": loss,
        "verbose": -1,
        "num_leaves": 7,
        **({"num_class": 3} if "multi" in loss else {}),
    }
    groups = [30, 30, 30] if "rank" in loss else None
    booster = lightgbm.train(
        options, lightgbm.Dataset(FRAME, label=choose_label(loss), group=groups), 8
    )
    predicted = booster.predict(FRAME)
    model = make_model(booster, TABLE)
    assert choose_reading(booster).source.kind == LIGHTGBM[loss]
    outputs = model.logits(TABLE.rows)
    if LIGHTGBM[loss] == "numbers":
        assert isinstance(model.task, Regression)
        np.testing.assert_allclose(outputs[:, 0], predicted, rtol=1e-12)
    elif LIGHTGBM[loss] == "probabilities of classes":
        shares = predicted if predicted.ndim == 2 else np.stack([1 - predicted, predicted], 1)
        np.testing.assert_allclose(outputs.softmax(1), shares, rtol=1e-9)
    else:
        np.testing.assert_allclose(outputs.sigmoid(), predicted, rtol=1e-9)
        assert (model.predict(TABLE.rows).numpy() == predicted.argmax(1)).all()


@pytest.mark.parametrize("loss", ["binary", "cross_entropy", "multiclass", "multiclassova"])
def test_a_classifier_of_lightgbm(loss: str) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    target = THREE if "multi" in loss else TWO
    check_answers(
        lightgbm.LGBMClassifier(objective=loss, n_estimators=8, verbose=-1).fit(FRAME, target)
    )


def test_losses_of_which_predict_proba_gives_no_probabilities_are_refused() -> None:
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")

    def loss(target: Any, scores: Any) -> Any:
        return 1 / (1 + np.exp(-scores)) - target, np.full(len(scores), 0.25)

    mine = lightgbm.LGBMClassifier(objective=loss, n_estimators=3, verbose=-1).fit(FRAME, TWO)
    with pytest.raises(
        ArgumentError, match="LGBMClassifier with a loss of probabilities .* got a loss of yours"
    ):
        make_model(mine, TABLE)
    for objective in ("binary:logitraw", "count:poisson", "reg:squarederror"):
        fitted = xgboost.XGBClassifier(objective=objective, n_estimators=3).fit(FRAME, TWO)
        with pytest.raises(
            ArgumentError, match=f"loss of probabilities .* got the loss {objective}"
        ):
            make_model(fitted, TABLE)


XGBOOST = {
    **dict.fromkeys(("binary:logistic", "multi:softprob"), "probabilities of classes"),
    **dict.fromkeys(("binary:logitraw", "binary:hinge", "multi:softmax"), "scores of classes"),
}


def list_xgboost() -> list[str]:
    """The losses that XGBoost says it has, where it refuses another one."""
    try:
        import xgboost
    except ImportError:
        return ["binary:logistic"]
    try:
        xgboost.train({"objective": "none", "verbosity": 0}, xgboost.DMatrix(FRAME, label=TWO), 1)
    except Exception as error:
        lines = [line.partition("candidate: ")[2] for line in str(error).splitlines()]
        return [line.strip() for line in lines if line]
    raise AssertionError("XGBoost takes any loss")


@pytest.mark.parametrize("loss", list_xgboost())
def test_a_booster_of_xgboost_is_read_as_its_loss_says(loss: str) -> None:
    xgboost = pytest.importorskip("xgboost")
    rows = xgboost.DMatrix(FRAME, label=TWO if loss == "rank:map" else choose_label(loss))
    options: dict[str, Any] = {"objective": loss, "max_depth": 3, "verbosity": 0}
    options |= {"num_class": 3} if "multi" in loss else {}
    options |= {"quantile_alpha": 0.5} if "quantile" in loss else {}
    options |= {"expectile_alpha": 0.5} if "expectile" in loss else {}
    if loss.startswith("rank"):
        rows.set_group([30, 30, 30])
    if loss == "survival:aft":
        rows.set_float_info("label_lower_bound", NUMBERS)
        rows.set_float_info("label_upper_bound", NUMBERS)
    booster = xgboost.train(options, rows, 8)
    predicted = booster.predict(xgboost.DMatrix(FRAME))
    model = make_model(booster, TABLE)
    outputs, kind = model.logits(TABLE.rows), choose_reading(booster).source.kind
    assert kind == XGBOOST.get(loss, "numbers")
    if kind == "numbers":
        assert isinstance(model.task, Regression)
        np.testing.assert_allclose(outputs[:, 0], predicted, rtol=1e-6)
    elif loss == "binary:logitraw":
        np.testing.assert_allclose(outputs[:, 1] - outputs[:, 0], predicted, rtol=1e-6)
    else:
        shares = {"multi:softprob": predicted}.get(loss)
        own_classes = (predicted > 0.5) if shares is None and loss != "multi:softmax" else predicted
        own_classes = own_classes.argmax(1) if own_classes.ndim == 2 else own_classes
        assert (model.predict(TABLE.rows).numpy() == own_classes).all()
        if loss == "binary:logistic":
            np.testing.assert_allclose(outputs.softmax(1)[:, 1], predicted, rtol=1e-6)


@pytest.mark.parametrize(
    "loss", ["binary:logistic", "reg:logistic", "binary:hinge", "multi:softmax", "multi:softprob"]
)
def test_a_classifier_of_xgboost(loss: str) -> None:
    xgboost = pytest.importorskip("xgboost")
    target = THREE if "multi" in loss else TWO
    check_answers(xgboost.XGBClassifier(objective=loss, n_estimators=8).fit(FRAME, target))


@pytest.mark.parametrize("name", ["XGBRegressor", "XGBRFRegressor", "XGBRFClassifier"])
def test_other_estimators_of_xgboost(name: str) -> None:
    xgboost = pytest.importorskip("xgboost")
    target = NUMBERS if "Regressor" in name else TWO
    model = check_answers(getattr(xgboost, name)(n_estimators=8).fit(FRAME, target))
    assert isinstance(model.task, Regression) == ("Regressor" in name)


def test_labels_of_xgboost_are_labels() -> None:
    xgboost = pytest.importorskip("xgboost")
    model = check_answers(xgboost.XGBClassifier(n_estimators=8).fit(FRAME, PAIRS))
    assert model.task.name == "multi_label"


CATBOOST_CLASSES = {
    "Logloss": "probabilities of classes",
    "CrossEntropy": "probabilities of classes",
    "Focal:focal_alpha=0.5;focal_gamma=1": "probabilities of classes",
    "MultiClass": "probabilities of classes",
    "MultiClassOneVsAll": "scores of classes",
    "MultiLogloss": "probabilities of labels",
    "MultiCrossEntropy": "probabilities of labels",
}
CATBOOST_NUMBERS = [
    "RMSE",
    "MAE",
    "Quantile:alpha=0.3",
    "MultiQuantile:alpha=0.1,0.5",
    "LogLinQuantile",
    "Expectile:alpha=0.3",
    "Poisson",
    "MAPE",
    "Lq:q=1.5",
    "Tweedie:variance_power=1.5",
    "Huber:delta=1",
    "LogCosh",
    "RMSEWithUncertainty",
    "MultiRMSE",
    "Cox",
    "SurvivalAft",
]
CATBOOST_RANKS = [
    "YetiRank",
    "PairLogit",
    "QueryRMSE",
    "QuerySoftMax",
    "StochasticRank:metric=DCG",
    "YetiRankPairwise",
]


@pytest.mark.parametrize("loss", CATBOOST_CLASSES)
def test_a_classifier_of_catboost_answers_as_its_own_predict(loss: str) -> None:
    """Also `CatBoost` itself, whose `predict` gives the sums of its trees, with the classes of these."""
    catboost = pytest.importorskip("catboost")
    options = {"loss_function": loss, "iterations": 8, "verbose": 0, "allow_writing_files": False}
    target = (
        PAIRS if loss.startswith(("MultiLog", "MultiCross")) else THREE if "Multi" in loss else TWO
    )
    fitted = catboost.CatBoostClassifier(**options).fit(FRAME, target)
    model = check_answers(fitted)
    assert choose_reading(fitted).source.kind == CATBOOST_CLASSES[loss]
    plain = make_model(catboost.CatBoost(options).fit(FRAME, target), TABLE)
    assert plain.task.name == model.task.name
    assert torch.equal(
        plain.predict(TABLE.rows), model.predict(TABLE.rows).to(plain.predict(TABLE.rows))
    )


@pytest.mark.parametrize("loss", [*CATBOOST_NUMBERS, *CATBOOST_RANKS])
def test_a_regressor_of_catboost_answers_with_its_numbers(loss: str) -> None:
    catboost = pytest.importorskip("catboost")
    options = {"loss_function": loss, "iterations": 8, "verbose": 0, "allow_writing_files": False}
    if loss in CATBOOST_RANKS:
        groups = catboost.Pool(FRAME, label=TWO.astype(float), group_id=np.repeat(np.arange(9), 10))
        fitted = catboost.CatBoostRanker(**options).fit(groups)
    else:
        of_two = {"MultiRMSE": TWO_NUMBERS, "SurvivalAft": np.stack([NUMBERS, NUMBERS], 1)}
        fitted = catboost.CatBoostRegressor(**options).fit(FRAME, of_two.get(loss, NUMBERS))
        plain = catboost.CatBoost(options).fit(FRAME, of_two.get(loss, NUMBERS))
        assert choose_reading(plain).source.kind == "numbers"
    assert isinstance(check_answers(fitted).task, Regression)


def test_the_threshold_of_catboost_counts() -> None:
    catboost = pytest.importorskip("catboost")
    fitted = catboost.CatBoostClassifier(iterations=8, verbose=0, allow_writing_files=False).fit(
        FRAME, TWO
    )
    fitted.set_probability_threshold(0.8)
    assert check_answers(fitted).task == standfast.tasks.Binary(threshold=0.8, output="probability")


# The table of what an estimator tells and what a task reads

LOGISTIC = LogisticRegression().fit(FRAME, TWO)
MARGIN = LinearSVC().fit(FRAME, TWO)
OF_LABELS = MultiOutputClassifier(LogisticRegression()).fit(FRAME, PAIRS)
SCORES_OF_LABELS = RidgeClassifier().fit(FRAME, PAIRS)
LINEAR = LinearRegression().fit(FRAME, 0.4 + SHARES / 5)
OF_TWO = LinearRegression().fit(FRAME, np.stack([0.4 + SHARES / 5, 0.6 - SHARES / 5], 1))
TOLD_BY = {
    "probabilities of classes": LOGISTIC,
    "scores of classes": MARGIN,
    "probabilities of labels": OF_LABELS,
    "scores of labels": SCORES_OF_LABELS,
    "numbers": LINEAR,
}
TASKS = (
    "classification",
    "binary",
    "binary:output=probability",
    "multi_label",
    "multi_label:output=probability",
    "regression:tolerance=0.1",
)


def expect_outputs(kind: str, task: str) -> Any:
    """What a model has for each row, from the estimators' own methods and the definition of the task."""
    share = LOGISTIC.predict_proba(FRAME)
    labels = np.stack([part[:, 1] for part in OF_LABELS.predict_proba(FRAME)], 1)
    number, log_odds = LINEAR.predict(FRAME)[:, None], np.log(share[:, 1:] / share[:, :1])
    numbers = OF_TWO.predict(FRAME)
    margin = MARGIN.decision_function(FRAME)
    return {
        ("probabilities of classes", "classification"): np.log(share),
        ("probabilities of classes", "binary"): log_odds,
        ("probabilities of classes", "binary:output=probability"): log_odds,
        ("scores of classes", "classification"): np.stack([-margin / 2, margin / 2], 1),
        ("scores of classes", "binary"): margin[:, None],
        ("probabilities of labels", "multi_label"): np.log(labels / (1 - labels)),
        ("probabilities of labels", "multi_label:output=probability"): np.log(
            labels / (1 - labels)
        ),
        ("scores of labels", "multi_label"): SCORES_OF_LABELS.decision_function(FRAME),
        ("numbers", "binary"): number,
        ("numbers", "binary:output=probability"): np.log(number / (1 - number)),
        ("numbers", "multi_label"): numbers,
        ("numbers", "multi_label:output=probability"): np.log(numbers / (1 - numbers)),
        ("numbers", "regression:tolerance=0.1"): number,
    }.get((kind, task))


@pytest.mark.filterwarnings("ignore:module. its outputs look like probabilities")
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", TOLD_BY)
def test_each_task_reads_what_an_estimator_tells_or_refuses_it(kind: str, task: str) -> None:
    estimator, expected = TOLD_BY[kind], expect_outputs(kind, task)
    estimator = OF_TWO if kind == "numbers" and task.startswith("multi_label") else estimator
    assert ((kind, task.partition(":tolerance")[0]) in READINGS) == (expected is not None)
    if expected is None:
        with pytest.raises(ArgumentError, match="model: expected .*, got "):
            make_model(estimator, TABLE, task)
        return
    model = make_model(estimator, TABLE, task)
    np.testing.assert_allclose(model.logits(TABLE.rows).numpy(), expected, rtol=1e-7, atol=1e-9)


def test_a_refusal_says_what_to_do() -> None:
    for estimator, task, words in (
        (
            MARGIN,
            "binary:output=probability",
            "CalibratedClassifierCV makes one.*LinearSVC, whose decision_function",
        ),
        (LINEAR, "classification", "of a regressor, say task='regression:tolerance=2.5'"),
        (
            LOGISTIC,
            "regression:tolerance=1",
            "an estimator for the task 'regression', got LogisticRegression",
        ),
        (OF_LABELS, "classification", "task='multi_label:output=probability' for several labels"),
    ):
        with pytest.raises(ArgumentError, match=words):
            make_model(estimator, TABLE, task)


def test_a_binary_task_has_two_classes() -> None:
    with pytest.raises(ModelError, match="two classes from predict_proba for a binary task, got 3"):
        make_model(LogisticRegression().fit(FRAME, THREE), TABLE, "binary:output=probability")


# Classes


@pytest.mark.parametrize("estimator", [LinearSVC(), RidgeClassifier(), SVC(), LogisticRegression()])
@pytest.mark.parametrize(
    "names", [("no", "yes"), ("zebra", "ape", "bee"), (7.0, 3.0), (True, False)]
)
def test_classes_have_the_order_and_the_names_of_the_estimator(estimator: Any, names: Any) -> None:
    """In a pipeline and a search: class i of the model is `classes_[i]`."""
    target = np.array(names)[THREE if len(names) == 3 else TWO]
    name = (
        f"{type(estimator).__name__.lower()}__C"
        if not isinstance(estimator, RidgeClassifier)
        else "verbose"
    )
    search = GridSearchCV(
        make_pipeline(StandardScaler(), estimator), {name: [0.5]} if name != "verbose" else {}
    )
    fitted = fit(search, FRAME, target)
    model = make_model(fitted, TABLE)
    answers = model.predict(TABLE.rows).numpy()
    assert (fitted.classes_[answers] == fitted.predict(FRAME)).all()
    assert name_classes(fitted) == tuple(map(str, fitted.classes_))


def test_scores_of_pairs_of_classes_are_refused() -> None:
    """Three classes have three pairs, so the shape does not tell."""
    fitted = SVC(decision_function_shape="ovo").fit(FRAME, THREE)
    for call in (
        lambda: make_model(fitted, TABLE),
        lambda: standfast.Model.from_callable(fitted.decision_function, (0.0, 9.0), output="logit"),
    ):
        with pytest.raises(
            ArgumentError, match=r"'ovr' \(set_params needs no new fit\).* got 'ovo' of SVC"
        ):
            call()
    check_answers(fitted.set_params(decision_function_shape="ovr"))
    check_answers(SVC(decision_function_shape="ovo").fit(FRAME, TWO))


def test_a_single_class_is_refused() -> None:
    tree = DecisionTreeClassifier().fit(FRAME, np.zeros(len(FRAME)))
    with pytest.raises(
        ArgumentError,
        match="two classes or more, got DecisionTreeClassifier that was fitted with one",
    ):
        make_model(tree, TABLE)
    with pytest.raises(ArgumentError, match="two classes or more"):
        standfast.Model.from_callable(tree.predict_proba, (0.0, 9.0))
    mixture = pytest.importorskip("sklearn.mixture").GaussianMixture(1).fit(FRAME)
    with pytest.raises(ModelError, match="two classes or more from predict_proba, got one"):
        make_model(mixture, TABLE)


@pytest.mark.parametrize(
    "estimator", [DecisionTreeClassifier(max_depth=3), KNeighborsClassifier(5), MLPClassifier()]
)
def test_several_labels_are_found_in_what_an_estimator_predicts(estimator: Any) -> None:
    model = check_answers(fit(estimator, FRAME, PAIRS))
    assert model.task == MultiLabel(output="probability")
    function = find_frame_function(model)
    assert function is not None
    assert function.reading.class_names == ()


def test_labels_that_never_change_and_outputs_of_more_classes() -> None:
    always = np.stack([TWO, np.ones_like(TWO), np.zeros_like(TWO)], 1)
    check_answers(DecisionTreeClassifier(max_depth=3).fit(FRAME, always))
    with pytest.raises(ArgumentError, match="labels of two classes each .* an output of 3 classes"):
        make_model(DecisionTreeClassifier().fit(FRAME, np.stack([TWO, THREE], 1)), TABLE)


def test_probabilities_that_were_fitted_beside_a_decision_are_no_answer() -> None:
    """`SVC(probability=True)` predicts by its decision function, which may say another class than its probabilities."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the option will be removed
        fitted = SVC(probability=True, C=0.01, random_state=0).fit(FRAME, TWO)
        shares = fitted.predict_proba(FRAME)
        assert (shares.argmax(1) != fitted.predict(FRAME)).any()
        check_answers(fitted)
        model = make_model(fitted, TABLE, "binary:output=probability,threshold=0.3")
    np.testing.assert_allclose(model.logits(TABLE.rows).sigmoid()[:, 0], shares[:, 1])


class Cautious:
    """A classifier of the user's own, which says yes only where it is sure."""

    classes_ = np.array([0, 1])

    def predict_proba(self, frame: pd.DataFrame) -> Any:
        share = np.clip(frame["a"].to_numpy() / 9, 0, 1)
        return np.stack([1 - share, share], 1)

    def predict(self, frame: pd.DataFrame) -> Any:
        return (self.predict_proba(frame)[:, 1] >= 0.9).astype(int)


def test_another_answer_than_that_of_predict_is_said() -> None:
    """A threshold that nobody can look up is seen in what it does; a threshold of the user's is the user's will."""
    share = float(((FRAME["a"] / 9 > 0.5) & (FRAME["a"] / 9 < 0.9)).mean())
    with pytest.warns(
        UserWarning,
        match=f"{share:.1%} of the reference rows have another answer by predict_proba than",
    ):
        make_model(Cautious(), TABLE)
    make_model(Cautious(), TABLE, "binary:output=probability,threshold=0.9")


def test_no_cause_is_guessed_where_probabilities_and_predict_disagree() -> None:
    """`NearestCentroid` has no threshold: its probabilities weigh classes in another way than its distances."""
    fitted = NearestCentroid().fit(FRAME, THREE)
    if not hasattr(fitted, "predict_proba"):
        pytest.skip("NearestCentroid has no predict_proba in this scikit-learn")
    share = float(
        (fitted.classes_[fitted.predict_proba(FRAME).argmax(1)] != fitted.predict(FRAME)).mean()
    )
    assert share > 0
    words = (
        f"^model: {share:.1%} of the reference rows have another answer by predict_proba than by predict of"
        " NearestCentroid. What is explained is predict_proba$"
    )
    with pytest.warns(UserWarning, match=words):
        make_model(fitted, TABLE)


class Undeclared:
    """Only `predict`, of numbers or kinds."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def predict(self, frame: pd.DataFrame) -> Any:
        return frame["a"].to_numpy().astype(self.kind)


def test_kinds_without_scores_are_no_numbers() -> None:
    assert isinstance(make_model(Undeclared(float), TABLE).task, Regression)
    for kind in (int, bool, str):
        with pytest.raises(
            ArgumentError,
            match="numbers from predict, .* got Undeclared, whose predict gives kinds",
        ):
            make_model(Undeclared(kind), TABLE)


# Thresholds


@pytest.mark.parametrize("pos_label", [None, "no", "yes"])
@pytest.mark.parametrize(
    ("method", "threshold"),
    [("predict_proba", 0.2), ("decision_function", 0.7), ("decision_function", -1.2)],
)
def test_a_classifier_at_a_threshold_answers_as_its_own_predict(
    method: Any, threshold: float, pos_label: Any
) -> None:
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    names = np.array(["no", "yes"])
    fitted = FixedThresholdClassifier(
        inner, threshold=threshold, pos_label=pos_label, response_method=method
    )
    fitted.fit(FRAME, names[TWO])
    model = make_model(fitted, TABLE)
    assert (names[model.predict(TABLE.rows).numpy()] == fitted.predict(FRAME)).all()
    assert (fitted.predict(FRAME) != inner.fit(FRAME, names[TWO]).predict(FRAME)).any()
    if method == "predict_proba":  # the probabilities stay what they are
        shares = model.logits(TABLE.rows).sigmoid()[:, 0]
        np.testing.assert_allclose(shares, fitted.predict_proba(FRAME)[:, 1], rtol=1e-9)


def test_a_probability_at_the_threshold_is_on_its_side() -> None:
    """Of five neighbours, a share of exactly 0.2 is common; scikit-learn says yes from there on."""
    fitted = FixedThresholdClassifier(KNeighborsClassifier(5), threshold=0.2).fit(FRAME, TWO)
    assert (fitted.predict_proba(FRAME)[:, 1] == 0.2).any()
    assert (make_model(fitted, TABLE).predict(TABLE.rows).numpy() == fitted.predict(FRAME)).all()


@pytest.mark.parametrize("task", ["binary", "multi_label"])
def test_a_probability_at_any_threshold_is_exactly_at_it(task: str) -> None:
    """The logit of the threshold is rounded as those of outputs are."""
    for percent in range(1, 100):
        threshold = percent / 100
        told = get(f"{task}:output=probability,threshold={threshold}")
        outputs = told.read(torch.tensor([[threshold]], dtype=torch.float64), 1)
        assert float(told.margin(outputs, told.answer(outputs)).abs()) == 0


def test_a_tuned_threshold_is_no_question_of_the_largest_probability() -> None:
    fitted = FixedThresholdClassifier(LogisticRegression(), threshold=0.2).fit(FRAME, TWO)
    words = "task='binary:output=probability,threshold=0.2' for a classifier with a threshold of its own"
    with pytest.raises(ArgumentError, match=words):
        make_model(fitted, TABLE, "classification")
    with pytest.raises(ArgumentError, match=words):
        standfast.Model.from_callable(fitted.predict_proba, (0.0, 9.0))
    with pytest.raises(ArgumentError, match="above 0 and below 1, got the threshold 1.5"):
        make_model(
            FixedThresholdClassifier(LogisticRegression(), threshold=1.5).fit(FRAME, TWO), TABLE
        )
    one_half = FixedThresholdClassifier(LogisticRegression(), threshold=0.5).fit(FRAME, TWO)
    assert make_model(one_half, TABLE).task == Classification()


# Functions of arrays, and stored estimators

ROWS = torch.tensor(FRAME.to_numpy(), dtype=torch.float32)
ARRAY = FRAME.to_numpy()


def test_methods_of_estimators_are_read_as_the_task_says() -> None:
    bounds = (0.0, 9.0)
    logistic = LogisticRegression().fit(ARRAY, TWO)
    labels = MultiOutputClassifier(LogisticRegression()).fit(ARRAY, PAIRS)
    expected = logistic.decision_function(ARRAY)[:, None]
    of_labels = np.stack([part.decision_function(ARRAY) for part in labels.estimators_], 1)
    for task in ("binary", "binary:output=probability"):
        model = standfast.Model.from_callable(logistic.predict_proba, bounds, task=task)
        np.testing.assert_allclose(model.logits(ROWS), expected, rtol=1e-4, atol=1e-5)
        assert model.black_box is not None
        assert model.black_box.estimator is logistic
    for task in ("multi_label", "multi_label:output=probability"):
        model = standfast.Model.from_callable(labels.predict_proba, bounds, task=task)
        np.testing.assert_allclose(model.logits(ROWS), of_labels, rtol=1e-4, atol=1e-5)


def test_predict_of_a_classifier_is_no_probability() -> None:
    """Classes that are numbers with a point are between 0 and 1, as probabilities are."""
    fitted = LogisticRegression().fit(ARRAY, TWO.astype(float))
    with pytest.raises(
        ArgumentError,
        match="predict_proba, or decision_function .*, got predict of LogisticRegression",
    ):
        standfast.Model.from_callable(fitted.predict, (0.0, 9.0))
    assert standfast.Model.from_callable(
        fitted.predict, (0.0, 9.0), task="regression:tolerance=1"
    ).task.name


def test_a_function_of_vectors_for_texts_is_read_as_vectors() -> None:
    vectors = torch.eye(4)[:2]
    task = standfast.tasks.zero_shot(vectors, temperature=1.0)
    model = standfast.Model.from_callable(lambda rows: 3 * rows, (0.0, 9.0), task=task)
    expected = torch.nn.functional.normalize(ROWS + 1, dim=1)[:, :2]
    torch.testing.assert_close(model.logits(ROWS + 1 - 1e-6), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("task", ["classification", "binary", "binary:output=probability"])
def test_a_stored_estimator_is_read_by_the_same_table(task: str) -> None:
    from standfast.zoo.programs import as_module

    fitted = LogisticRegression().fit(ARRAY, TWO)
    stored = standfast.Model(as_module(fitted, "path", get(task)), (0.0, 9.0), task=task)
    function = standfast.Model.from_callable(fitted.predict_proba, (0.0, 9.0), task=task)
    assert torch.equal(stored.logits(ROWS), function.logits(ROWS))
    margin = LinearSVC().fit(ARRAY, TWO)
    if task == "binary:output=probability":
        with pytest.raises(
            ArgumentError, match="path: expected a torch.nn.Module, or predict_proba"
        ):
            as_module(margin, "path", get(task))
    else:
        answers = standfast.Model(
            as_module(margin, "path", get(task)), (0.0, 9.0), task=task
        ).predict(ROWS)
        assert (answers.numpy() == margin.predict(ARRAY)).all()


# Numbers


def test_the_tolerance_is_that_of_the_number_that_is_explained() -> None:
    """The first of several, whose units are not those of the others; and 1 where it never changes."""
    fitted = LinearRegression().fit(FRAME, TWO_NUMBERS)
    task = make_model(fitted, TABLE).task
    assert isinstance(task, Regression)
    assert task.tolerance == pytest.approx(fitted.predict(FRAME)[:, 0].std() / 10, rel=0.05)
    constant = make_model(LinearRegression().fit(FRAME, np.full(len(FRAME), 0.1)), TABLE).task
    assert constant == Regression(1.0)


def test_outliers_and_inliers_have_names() -> None:
    forest = (
        pytest.importorskip("sklearn.ensemble")
        .IsolationForest(random_state=0, contamination=0.1)
        .fit(FRAME)
    )
    model = check_answers(forest)
    assert name_classes(forest) == ("outlier", "inlier")
    own = np.array(["outlier", "inlier"])[model.predict(TABLE.rows).numpy()]
    scored = forest.decision_function(FRAME) != 0
    assert ((own == "outlier") == (forest.predict(FRAME) == -1))[scored].all()
    assert isinstance(make_model(forest, TABLE, "binary").task, Binary)


def test_a_reading_is_copied_and_known_by_its_task() -> None:
    """Workers get models as bytes; the threshold of a classifier is a part of what a job depends on."""
    fitted = FixedThresholdClassifier(LogisticRegression(), threshold=0.2).fit(FRAME, TWO)
    model = make_model(fitted, TABLE)
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again.logits(TABLE.rows), model.logits(TABLE.rows))
    assert describe_model(again, {}) == describe_model(model, {})
    other = make_model(fitted.set_params(threshold=0.3), TABLE)
    assert describe_model(other, {}) != describe_model(model, {})


UNFITTED = (
    "sklearn.linear_model.LogisticRegression",
    "sklearn.svm.LinearSVC",
    "sklearn.cluster.KMeans",
    "sklearn.ensemble.IsolationForest",
    "lightgbm.LGBMClassifier",
    "xgboost.XGBClassifier",
    "catboost.CatBoostClassifier",
    "catboost.CatBoostRegressor",
)


@pytest.mark.parametrize("name", UNFITTED)
def test_what_was_not_fitted_is_refused_in_words(name: str) -> None:
    package, _, kind = name.rpartition(".")
    with pytest.raises(ModelError, match=f"one that answers for rows, got {kind}: "):
        make_model(getattr(pytest.importorskip(package), kind)(), TABLE)


def test_a_threshold_that_was_not_tuned_yet_is_refused_in_words() -> None:
    with pytest.raises(ModelError, match="TunedThresholdClassifierCV: NotFittedError"):
        make_model(TunedThresholdClassifierCV(LogisticRegression()), TABLE)


@pytest.mark.parametrize("other", [None, 3, LogisticRegression, lambda frame: frame["a"]])
def test_what_is_no_estimator_is_refused_in_words(other: Any) -> None:
    with pytest.raises(
        ArgumentError, match="model: expected a fitted estimator or pipeline with predict_proba"
    ):
        make_model(other, TABLE)


@pytest.mark.parametrize("loss", ["binary:logistic", "binary:logitraw", "reg:squarederror"])
def test_tree_shap_of_a_booster_of_xgboost_adds_up(loss: str) -> None:
    pytest.importorskip("shap")
    xgboost = pytest.importorskip("xgboost")
    rows = xgboost.DMatrix(FRAME, label=choose_label(loss))
    model = make_model(
        xgboost.train({"objective": loss, "max_depth": 3, "verbosity": 0}, rows, 8), TABLE
    )
    targets = None if loss.startswith("reg") else torch.ones(6).long()
    maps = standfast.explainers.get("tree_shap")(model, TABLE.rows[:6], targets)
    outputs = model.logits(TABLE.rows[:6])
    sums = outputs[:, 0] if targets is None else outputs[:, 1] - outputs[:, 0]
    assert float((sums - maps.sum(1)).std()) < 1e-4


class Failing:
    """An estimator of the user's own that has no answer for one of the rows."""

    def predict(self, frame: pd.DataFrame) -> Any:
        return self.answer(frame)

    def answer(self, frame: pd.DataFrame) -> Any:
        return np.where(frame["a"] == FRAME["a"][0], np.nan, frame["a"] / 9)


class FailingClassifier(Failing):
    classes_ = np.array([0, 1])

    def predict(self, frame: pd.DataFrame) -> Any:
        return (self.answer(frame) > 0.5).astype(int)

    def predict_proba(self, frame: pd.DataFrame) -> Any:
        share = self.answer(frame)
        return np.stack([1 - share, share], 1)


def test_a_row_without_an_answer_does_not_stop_the_others() -> None:
    task = make_model(Failing(), TABLE).task
    assert isinstance(task, Regression)
    assert task.tolerance == pytest.approx(np.nanstd(Failing().answer(FRAME)) / 10, rel=0.05)
    model = make_model(FailingClassifier(), TABLE)
    other = TABLE.rows[TABLE.rows[:, 0] != TABLE.rows[0, 0]]
    assert (model.predict(other).numpy() == FailingClassifier().predict(TABLE.decode(other))).all()


@pytest.mark.parametrize(
    "name", ["sklearn.svm.SVC", "sklearn.cluster.KMeans", "xgboost.XGBClassifier"]
)
def test_a_class_that_is_derived_is_read_as_its_base(name: str) -> None:
    package, _, base = name.rpartition(".")
    options: dict[str, Any] = {
        "XGBClassifier": {"objective": "binary:hinge", "n_estimators": 5}
    }.get(base, {})
    derived = type("Mine", (getattr(pytest.importorskip(package), base),), {})(**options)
    check_answers(fit(derived, FRAME, TWO))
    assert choose_reading(derived).source.kind == "scores of classes"
