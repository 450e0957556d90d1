"""TreeSHAP of estimators that take frames: searches, thresholds, samplers, early stopping, against own computations."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import standfast
from standfast.errors import ArgumentError, ModelError
from standfast.frames import Table, make_model
from standfast.frames.wrappers import describe_wrapping, unwrap
from standfast.study.identity import Description

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    shap = pytest.importorskip("shap")

from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    BaggingRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

ROWS = 300


def make_frame() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=ROWS), "b": rng.normal(size=ROWS), "t": rng.choice(list("uvw"), ROWS)}
    )
    return frame, frame["a"] + 0.5 * frame["b"] + (frame["t"] == "u") + 0.5 * rng.normal(size=ROWS)


FRAME, SCORE = make_frame()
LABELS = (SCORE > 0.4).astype(int)
THREE = np.digitize(SCORE, [0.0, 1.0])
TABLE = Table.read(FRAME)


def encode_in_order() -> ColumnTransformer:
    """One encoded column for each of the user's, in another order."""
    return ColumnTransformer([("t", OrdinalEncoder(), ["t"])], remainder="passthrough")


def classify() -> Any:
    return make_pipeline(encode_in_order(), RandomForestClassifier(5, max_depth=4, random_state=0))


def regress() -> Any:
    return make_pipeline(encode_in_order(), RandomForestRegressor(5, max_depth=4, random_state=0))


def explain(fitted: Any, options: str = "", rows: int = 6) -> Any:
    model = make_model(fitted, TABLE)
    return standfast.explainers.get("tree_shap" + options)(model, TABLE.rows[:rows]).numpy()


def enumerate_coalitions(
    worth: Callable[[pd.DataFrame], Any], rows: pd.DataFrame, references: pd.DataFrame
) -> Any:
    """Shapley values of columns by all coalitions: the mean worth of reference rows with a row's cells in them."""
    columns = list(rows.columns)
    maps = np.zeros((len(rows), len(columns)))
    for number in range(len(rows)):
        worths = {}
        for size in range(len(columns) + 1):
            for group in itertools.combinations(columns, size):
                mixed = references.assign(**{name: rows[name].iloc[number] for name in group})
                worths[frozenset(group)] = float(np.mean(worth(mixed)))
        for place, column in enumerate(columns):
            for group, value in worths.items():
                if column not in group:
                    orders = math.factorial(len(group)) * math.factorial(
                        len(columns) - len(group) - 1
                    )
                    weight = orders / math.factorial(len(columns))
                    maps[number, place] += weight * (worths[group | {column}] - value)
    return maps


def list_references(fitted: Any) -> pd.DataFrame:
    reference = make_model(fitted, TABLE).reference
    assert reference is not None
    return TABLE.decode(reference.rows)


# What is passed on

GRID = {"randomforestregressor__max_depth": [3, 5]}
#: fitted estimators whose answers are those of one forest
PASSED_ON: dict[str, Callable[[], Any]] = {
    "a search": lambda: GridSearchCV(regress(), GRID, cv=2).fit(FRAME, SCORE),
    "a random search": lambda: RandomizedSearchCV(regress(), GRID, n_iter=2, cv=2).fit(
        FRAME, SCORE
    ),
    "a halving search": lambda: HalvingGridSearchCV(regress(), GRID, cv=2, min_resources=100).fit(
        FRAME, SCORE
    ),
    "a search inside of a pipeline": lambda: make_pipeline(
        encode_in_order(),
        GridSearchCV(RandomForestRegressor(5, random_state=0), {"max_depth": [3]}, cv=2),
    ).fit(FRAME, SCORE),
    "a pipeline in a pipeline": lambda: make_pipeline(
        encode_in_order(), make_pipeline("passthrough", StandardScaler(), regress()[-1])
    ).fit(FRAME, SCORE),
    "a selection": lambda: make_pipeline(
        encode_in_order(), RFE(RandomForestRegressor(5, random_state=0), n_features_to_select=2)
    ).fit(FRAME, SCORE),
    "a target that stays": lambda: TransformedTargetRegressor(regress()).fit(FRAME, SCORE),
    "one voter": lambda: VotingRegressor([("one", regress())]).fit(FRAME, SCORE),
    "one voter among classes": lambda: VotingClassifier([("one", classify())], voting="soft").fit(
        FRAME, LABELS
    ),
    "a frozen forest": lambda: FrozenEstimator(classify().fit(FRAME, LABELS)),
    "a half known target": lambda: make_pipeline(
        encode_in_order(), SelfTrainingClassifier(classify()[-1])
    ).fit(FRAME, np.where(np.arange(ROWS) % 5 == 0, -1, LABELS)),
}


@pytest.mark.parametrize("name", PASSED_ON)
def test_what_passes_answers_on_is_explained_by_all_coalitions(name: str) -> None:
    fitted = PASSED_ON[name]()
    rows, references = FRAME[:2], list_references(fitted)
    if hasattr(fitted, "predict_proba"):
        worth = [lambda frame, k=k: fitted.predict_proba(frame)[:, k] for k in (0, 1)]
        both = [enumerate_coalitions(each, rows, references) for each in worth]
        exact = np.where(fitted.predict(rows)[:, None] == 1, both[1], both[0])
    else:
        exact = enumerate_coalitions(fitted.predict, rows, references)
    np.testing.assert_allclose(explain(fitted, ":background=reference", rows=2), exact, atol=1e-6)


@pytest.mark.parametrize("name", ["a search", "a target that stays"])
def test_a_search_over_arrays_is_explained_too(name: str) -> None:
    numbers = FRAME[["a", "b"]].to_numpy()
    forest = RandomForestRegressor(5, random_state=0)
    search: Any = GridSearchCV(forest, {"max_depth": [3]}, cv=2)
    fitted = (search if name == "a search" else TransformedTargetRegressor(forest)).fit(
        numbers, SCORE
    )
    held = fitted.best_estimator_ if name == "a search" else fitted.regressor_
    model = standfast.Model.from_callable(
        fitted.predict, (-9.0, 9.0), dtype=torch.float64, task="regression:tolerance=0.1"
    )
    maps = standfast.explainers.get("tree_shap")(model, torch.tensor(numbers[:6]))
    np.testing.assert_allclose(maps, shap.TreeExplainer(held).shap_values(numbers[:6]), atol=1e-6)


def test_thresholds_change_classes_and_no_values() -> None:
    """Values of a class are those of the forest inside, whatever probability decides."""
    for fitted in (
        FixedThresholdClassifier(classify(), threshold=0.2, response_method="predict_proba").fit(
            FRAME, LABELS
        ),
        TunedThresholdClassifierCV(classify(), cv=2).fit(FRAME, LABELS),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make_model(fitted, TABLE)
        maps = standfast.explainers.get("tree_shap")(model, TABLE.rows[:6], torch.ones(6).long())
        inner = fitted.estimator_
        values = shap.TreeExplainer(inner[-1]).shap_values(inner[0].transform(FRAME[:6]))[..., 1]
        np.testing.assert_allclose(maps, values[:, [1, 2, 0]], atol=1e-6)
        assert unwrap(fitted).final is inner[-1]


# What is refused

#: fitted estimators that change or join answers, and what is said of them
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "target": (
        lambda: TransformedTargetRegressor(regress(), func=np.arcsinh, inverse_func=np.sinh).fit(
            FRAME, SCORE
        ),
        "TransformedTargetRegressor around RandomForestRegressor, which transforms what they predict",
    ),
    "calibration": (
        lambda: CalibratedClassifierCV(classify(), cv=2).fit(FRAME, LABELS),
        "CalibratedClassifierCV around RandomForestClassifier, which averages and calibrates",
    ),
    "calibration of one": (
        lambda: CalibratedClassifierCV(FrozenEstimator(classify().fit(FRAME, LABELS))).fit(
            FRAME, LABELS
        ),
        "CalibratedClassifierCV around RandomForestClassifier, which averages and calibrates",
    ),
    "votes": (
        lambda: VotingClassifier([("a", classify()), ("b", classify())], voting="soft").fit(
            FRAME, LABELS
        ),
        "VotingClassifier around RandomForestClassifier, which averages",
    ),
    "votes of numbers": (
        lambda: VotingRegressor(
            [("a", regress()), ("b", make_pipeline(encode_in_order(), LinearRegression()))]
        ).fit(FRAME, SCORE),
        "VotingRegressor around RandomForestRegressor, LinearRegression, which averages",
    ),
    "stacks": (
        lambda: StackingClassifier([("a", classify())], LogisticRegression(), cv=2).fit(
            FRAME, LABELS
        ),
        "StackingClassifier around .*LogisticRegression.*, which predicts from what they predict",
    ),
    "stacks of numbers": (
        lambda: StackingRegressor([("a", regress())], LinearRegression(), cv=2).fit(FRAME, SCORE),
        "StackingRegressor around .*RandomForestRegressor.*, which predicts from",
    ),
    "bags": (
        lambda: make_pipeline(
            encode_in_order(), BaggingClassifier(n_estimators=2, random_state=0)
        ).fit(FRAME, LABELS),
        "BaggingClassifier around DecisionTreeClassifier, which averages",
    ),
    "one for each class": (
        lambda: make_pipeline(encode_in_order(), OneVsRestClassifier(classify()[-1])).fit(
            FRAME, THREE
        ),
        "OneVsRestClassifier around RandomForestClassifier, which compares",
    ),
    "a booster of stumps": (
        lambda: make_pipeline(encode_in_order(), AdaBoostClassifier(n_estimators=2)).fit(
            FRAME, LABELS
        ),
        "AdaBoostClassifier around DecisionTreeClassifier, which adds up",
    ),
    "bags in a search": (
        lambda: GridSearchCV(
            make_pipeline(encode_in_order(), BaggingRegressor(n_estimators=2)), {}, cv=2
        ).fit(FRAME, SCORE),
        "BaggingRegressor around DecisionTreeRegressor, which averages",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_joins_answers_is_refused_with_a_way_on(name: str) -> None:
    make, words = REFUSED[name]
    fitted = make()
    for options in ("", ":background=reference"):
        with pytest.raises(
            ArgumentError, match=rf"kernel_shap needs predictions alone\), got {words}"
        ):
            explain(fitted, options)


def test_nothing_is_said_of_what_holds_no_estimator() -> None:
    assert describe_wrapping(LinearRegression().fit([[1.0], [2.0]], [1.0, 2.0])) == ""
    assert describe_wrapping(3) == ""


# Samplers


@pytest.mark.parametrize(
    "sampler", ["RandomOverSampler", "RandomUnderSampler", "SMOTE", "FunctionSampler"]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_samplers_do_nothing_when_a_pipeline_predicts(sampler: str, place: int) -> None:
    pytest.importorskip("imblearn")
    import imblearn
    from imblearn.pipeline import make_pipeline as make_resampling

    modules = (imblearn, imblearn.over_sampling, imblearn.under_sampling)
    made = next(getattr(module, sampler) for module in modules if hasattr(module, sampler))()
    if place == 0 and sampler == "SMOTE":
        pytest.skip("SMOTE takes numbers alone")
    if place == 0 and sampler == "FunctionSampler":
        made.set_params(validate=False)
    encoder = ColumnTransformer(
        [("t", OneHotEncoder(sparse_output=False), ["t"])], remainder="passthrough"
    )
    steps: list[Any] = [encoder, StandardScaler()]
    steps.insert(place, made)
    rare = (SCORE > 1.2).astype(int)
    fitted = make_resampling(*steps, "passthrough", RandomForestClassifier(5, random_state=0)).fit(
        FRAME, rare
    )
    transformers = [step for step in steps if step is not made]
    assert unwrap(fitted).transformers == tuple(transformers)
    encoded = transformers[1].transform(transformers[0].transform(FRAME[:6]))
    values = shap.TreeExplainer(fitted[-1]).shap_values(encoded)
    values = values[np.arange(6), :, fitted.predict_proba(FRAME[:6]).argmax(1)]
    expected = np.stack([values[:, 3], values[:, 4], values[:, :3].sum(1)], axis=1)
    np.testing.assert_allclose(explain(fitted), expected, atol=1e-6)


# Early stopping

NUMBERS = FRAME[["a", "b"]]
OF_NUMBERS = Table.read(NUMBERS)


def stop_early(kind: str, target: Any, **options: Any) -> Any:
    """A booster of a package, fitted with numbers, whose best round is not the last."""
    package = pytest.importorskip(kind.partition(".")[0])
    estimator = getattr(package, kind.partition(".")[2])
    train, test = (NUMBERS[:150], target[:150]), (NUMBERS[150:], target[150:])
    if package.__name__ == "xgboost":
        fitted = estimator(
            n_estimators=200, early_stopping_rounds=5, learning_rate=0.5, n_jobs=1, **options
        )
        return fitted.fit(*train, eval_set=[test], verbose=False)
    if package.__name__ == "lightgbm":
        fitted = estimator(
            n_estimators=200,
            learning_rate=0.5,
            verbose=-1,
            min_child_samples=5,
            n_jobs=1,
            **options,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer versions have eval_X and eval_y
            return fitted.fit(
                *train, eval_set=[test], callbacks=[package.early_stopping(5, verbose=False)]
            )
    fitted = estimator(
        iterations=200,
        early_stopping_rounds=5,
        learning_rate=0.5,
        verbose=0,
        allow_writing_files=False,
    )
    return fitted.fit(*train, eval_set=[test])


def find_margins(fitted: Any, frame: Any, target: int) -> Any:
    """What the trees add up to: of two classes log-odds of class 1, of three the margin of one."""
    name = type(fitted).__name__
    if name.startswith("XGB"):
        margins = fitted.predict(frame, output_margin=True)
    elif name.startswith("LGBM"):
        margins = fitted.predict(frame, raw_score=True)
    else:
        margins = fitted.predict(frame, prediction_type="RawFormulaVal")
    return margins[:, target] if margins.ndim == 2 else margins


BOOSTERS = ["xgboost.XGB", "lightgbm.LGBM", "catboost.CatBoost"]
KINDS = ["Classifier", "Regressor", "of three"]


@pytest.mark.parametrize("through", ["frame", "encoder", "search"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("package", BOOSTERS)
def test_boosters_that_stopped_early(package: str, kind: str, through: str) -> None:
    """The contributions of the trees that predict: they add up to their margins, and do not without the best round."""
    target = {"Classifier": LABELS, "Regressor": SCORE, "of three": THREE}[kind]
    fitted = stop_early(package + kind.replace("of three", "Classifier"), target)
    whole = fitted
    if through == "encoder":
        as_it_is = StandardScaler(with_mean=False, with_std=False).set_output(transform="pandas")
        whole = make_pipeline(as_it_is.fit(NUMBERS), fitted)
    if through == "search":
        whole = GridSearchCV(fitted, {}, cv=2)
        whole.best_estimator_, whole.refit, whole.multimetric_, whole.scorer_ = (
            fitted,
            True,
            False,
            None,
        )
    model = make_model(whole, OF_NUMBERS)
    targets = None if kind == "Regressor" else torch.ones(8).long()
    maps = standfast.explainers.get("tree_shap")(model, OF_NUMBERS.rows[:8], targets).numpy()
    margins = find_margins(fitted, NUMBERS[:8], 1)
    gaps = margins - maps.sum(1)
    assert float(np.std(gaps)) < 1e-5 * np.abs(margins).max()
    assert np.abs(maps).max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("package", BOOSTERS)
def test_boosters_that_stopped_early_with_a_background(package: str, kind: str) -> None:
    target = {"Classifier": LABELS, "Regressor": SCORE, "of three": THREE}[kind]
    fitted = stop_early(package + kind.replace("of three", "Classifier"), target)
    model = make_model(fitted, OF_NUMBERS)
    explainer = standfast.explainers.get("tree_shap:background=reference")
    targets = None if kind == "Regressor" else torch.ones(3).long()
    if package.startswith("catboost") and kind == "of three":
        with pytest.raises(
            ArgumentError, match="background: expected None for CatBoost with several outputs"
        ):
            explainer(model, OF_NUMBERS.rows[:3], targets)
        return
    assert model.reference is not None
    references = OF_NUMBERS.decode(model.reference.rows)
    exact = enumerate_coalitions(
        lambda frame: find_margins(fitted, frame, 1), NUMBERS[:3], references
    )
    np.testing.assert_allclose(explainer(model, OF_NUMBERS.rows[:3], targets), exact, atol=2e-5)


def test_boosters_that_drop_trees() -> None:
    """DART: the weights of trees count; shap cannot read those of XGBoost with a background, and says so."""
    for kind in KINDS[:2]:
        target = LABELS if kind == "Classifier" else SCORE
        fitted = stop_early(f"xgboost.XGB{kind}", target, booster="dart", rate_drop=0.3)
        model = make_model(fitted, OF_NUMBERS)
        targets = torch.ones(8).long() if kind == "Classifier" else None
        maps = standfast.explainers.get("tree_shap")(model, OF_NUMBERS.rows[:8], targets).numpy()
        assert float(np.std(find_margins(fitted, NUMBERS[:8], 0) - maps.sum(1))) < 1e-5
        with pytest.raises(ModelError, match="shap cannot read"):
            standfast.explainers.get("tree_shap:background=reference")(
                model, OF_NUMBERS.rows[:8], targets
            )


@pytest.mark.parametrize(
    "fitted",
    [
        HistGradientBoostingClassifier(
            early_stopping=True, n_iter_no_change=2, max_iter=200, random_state=0
        ),
        HistGradientBoostingRegressor(
            early_stopping=True, n_iter_no_change=2, max_iter=200, random_state=0
        ),
        GradientBoostingClassifier(n_iter_no_change=2, n_estimators=200, random_state=0),
    ],
)
def test_scikit_learn_that_stopped_early(fitted: Any) -> None:
    of_classes = hasattr(fitted, "predict_proba")
    fitted = fitted.fit(NUMBERS, LABELS if of_classes else SCORE)
    model = make_model(fitted, OF_NUMBERS)
    assert model.reference is not None
    references = OF_NUMBERS.decode(model.reference.rows)
    exact = enumerate_coalitions(
        fitted.decision_function if of_classes else fitted.predict, NUMBERS[:3], references
    )
    targets = torch.ones(3).long() if of_classes else None
    maps = standfast.explainers.get("tree_shap:background=reference")(
        model, OF_NUMBERS.rows[:3], targets
    )
    np.testing.assert_allclose(maps, exact, atol=1e-6)


def test_missing_cells_that_are_a_number_for_xgboost() -> None:
    xgboost = pytest.importorskip("xgboost")
    coded = NUMBERS.mask(NUMBERS["a"] > 1.0, -99.0)
    fitted = xgboost.XGBRegressor(n_estimators=10, missing=-99.0).fit(coded, SCORE)
    table = Table.read(coded)
    maps = standfast.explainers.get("tree_shap")(make_model(fitted, table), table.rows[:20]).numpy()
    assert float(np.std(fitted.predict(coded[:20]) - maps.sum(1))) < 1e-5


# Sums


@pytest.mark.parametrize("factor", [1.0, 1e-6])
def test_sums_are_compared_with_the_size_of_predictions(factor: float) -> None:
    """Values of other trees do not add up, however small the predictions are."""
    numbers = NUMBERS.to_numpy()
    one, other = (
        RandomForestRegressor(5, max_depth=depth, random_state=0).fit(numbers, factor * SCORE)
        for depth in (5, 3)
    )
    model = standfast.Model.from_callable(
        one.predict, (-9.0, 9.0), dtype=torch.float64, task=f"regression:tolerance={factor}"
    )
    x = torch.tensor(numbers[:20])
    for theirs, fits in ((one, True), (other, False)):
        explainer = standfast.explainers.from_shap(shap.TreeExplainer(theirs))
        if fits:
            np.testing.assert_allclose(
                explainer(model, x), shap.TreeExplainer(one).shap_values(numbers[:20])
            )
        else:
            with pytest.raises(
                ModelError, match="add up to the answers of RandomForestRegressor, got numbers"
            ):
                explainer(model, x)


def test_sums_of_rare_classes_are_compared_with_their_probabilities() -> None:
    numbers = NUMBERS.to_numpy()
    rare = (np.arange(ROWS) % 100 == 0).astype(int)
    one, other = (
        HistGradientBoostingClassifier(max_iter=count, learning_rate=5e-4, random_state=0).fit(
            numbers, rare
        )
        for count in (40, 10)
    )
    assert np.abs(one.predict_proba(numbers) - other.predict_proba(numbers)).max() < 1e-3
    model = standfast.Model.from_callable(one.predict_proba, (-9.0, 9.0), dtype=torch.float64)
    explainer = standfast.explainers.from_shap(shap.TreeExplainer(other))
    with pytest.raises(ModelError, match="got probabilities that differ"):
        explainer(model, torch.tensor(numbers[:20]))


def test_stored_results_of_dropped_or_mixed_columns_are_not_found_again() -> None:
    explainers = standfast.explainers
    described: list[Any] = Description(explainers.get("tree_shap")).content
    assert described[:2] == ["shap", 3]
    described = Description(explainers.adapters.frame_functions.FrameExplainer(print)).content
    assert described[:2] == ["frame_function", 3]
    described = Description(explainers.get("kernel_shap")).content
    assert described[:2] == ["kernel_shap", 1]
