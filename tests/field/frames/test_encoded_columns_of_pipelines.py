"""Trees behind what people fit: codes of whole numbers, products with rare flags, samplers, searches, targets."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler

import standfast
from standfast.errors import ArgumentError
from standfast.explainers.adapters.frame_functions import FrameExplainer
from standfast.frames import Table, make_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    shap = pytest.importorskip("shap")


def explain_trees(pipeline: Any, part: Any, classes: Any) -> Any:
    """A function of the user's, which returns values of encoded columns."""
    return shap.TreeExplainer(pipeline[-1]).shap_values(pipeline[0].transform(part))


@pytest.mark.parametrize(
    "explainer", [FrameExplainer(explain_trees), "tree_shap"], ids=["function", "name"]
)
def test_the_number_of_a_shop_is_the_sum_of_its_forty_codes(explainer: Any) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"shop": rng.permutation(np.arange(240) % 40), "x": rng.normal(size=240)})
    sales = rng.normal(size=40)[frame["shop"]] * 3 + frame["x"]
    encoder = ColumnTransformer(
        [("shop", OneHotEncoder(sparse_output=False), ["shop"])], remainder="passthrough"
    )
    fitted = make_pipeline(encoder, RandomForestRegressor(n_estimators=3, random_state=0)).fit(
        frame, sales
    )
    rows = frame[:4]
    values = explain_trees(fitted, rows, None)
    table = Table.read(frame, rows)
    explainer = standfast.explainers.get(explainer) if isinstance(explainer, str) else explainer
    maps = explainer(make_model(fitted, table), table.encode(rows))
    np.testing.assert_allclose(
        maps, np.stack([values[:, :-1].sum(1), values[:, -1]], 1), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("share", [0.4, 0.03, 0.003])
def test_a_product_with_a_rare_flag_is_refused_by_name(share: float) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "debt": rng.uniform(0, 40, 2000),
            "default": rng.random(2000) < share,
            "x": rng.normal(size=2000),
        }
    )
    lost = (frame["debt"] * frame["default"] > 20) | (frame["x"] > 1)
    step = FunctionTransformer(
        lambda d: pd.DataFrame({"x": d["x"], "lost": d["debt"] * d["default"]})
    )
    fitted = make_pipeline(step, RandomForestClassifier(20, random_state=0)).fit(frame, lost)
    rows = frame[frame["default"]][:6]
    table = Table.read(frame, rows)
    with pytest.raises(
        ArgumentError, match="encoded column 1, which depends on 'debt' and 'default'"
    ):
        standfast.explainers.get("tree_shap")(make_model(fitted, table), table.encode(rows))


class Sampler:
    """As imbalanced-learn's are: it acts when a pipeline is fitted, and has no `transform`."""

    def fit_resample(self, x: Any, y: Any) -> tuple[Any, Any]:
        rare = np.flatnonzero(np.asarray(y) == 1)
        every = np.concatenate([np.arange(len(y)), rare, rare])
        return x[every], np.asarray(y)[every]


class ResamplingPipeline:
    """As imbalanced-learn's is."""

    def __init__(self, steps: list[tuple[str, Any]]) -> None:
        self.steps = steps

    def fit(self, x: Any, y: Any) -> ResamplingPipeline:
        for _, step in self.steps[:-1]:
            if hasattr(step, "fit_resample"):
                x, y = step.fit_resample(x, y)
            else:
                x = step.fit_transform(x)
        self.steps[-1][1].fit(x, y)
        return self

    def predict_proba(self, x: Any) -> Any:
        for _, step in self.steps[:-1]:
            x = x if hasattr(step, "fit_resample") else step.transform(x)
        return self.steps[-1][1].predict_proba(x)


@pytest.mark.parametrize("package", ["imblearn", "one like it"])
def test_a_sampler_between_encoder_and_forest_changes_no_value(package: str) -> None:
    sampler, pipeline = Sampler, ResamplingPipeline
    if package == "imblearn":
        pytest.importorskip("imblearn")
        from imblearn.over_sampling import RandomOverSampler as sampler
        from imblearn.pipeline import Pipeline as pipeline
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=400), "town": rng.choice(["Ulm", "Bonn", "Kiel"], 400)}
    )
    y = (frame["a"] + (frame["town"] == "Ulm") + 0.5 * rng.normal(size=400) > 1.6).astype(int)
    encoder = ColumnTransformer(
        [("town", OneHotEncoder(sparse_output=False), ["town"])], remainder="passthrough"
    )
    forest = RandomForestClassifier(20, max_depth=4, random_state=0)
    fitted = pipeline([("encode", encoder), ("balance", sampler()), ("forest", forest)]).fit(
        frame, y
    )
    rows = frame[:8]
    values = shap.TreeExplainer(fitted.steps[-1][1]).shap_values(fitted.steps[0][1].transform(rows))
    values = values[np.arange(8), :, fitted.predict_proba(rows).argmax(1)]
    table = Table.read(frame[20:], rows)
    maps = standfast.explainers.get("tree_shap")(make_model(fitted, table), table.encode(rows))
    np.testing.assert_allclose(
        maps, np.stack([values[:, 3], values[:, :3].sum(1)], 1), rtol=0, atol=1e-6
    )


def test_a_search_leads_to_its_best_estimator_and_a_changed_target_to_another_explainer() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
    y = np.exp(frame["a"] + 0.3 * frame["b"])
    pipeline = make_pipeline(StandardScaler(), RandomForestRegressor(10, random_state=0))
    search = GridSearchCV(pipeline, {"randomforestregressor__max_depth": [3, 5]}, cv=2).fit(
        frame, y
    )
    table = Table.read(frame)
    explainer = standfast.explainers.get("tree_shap")
    best = search.best_estimator_
    values = shap.TreeExplainer(best[-1]).shap_values(best[0].transform(frame[:6]))
    maps = explainer(make_model(search, table), table.encode(frame[:6]))
    np.testing.assert_allclose(maps, values, rtol=0, atol=1e-6)
    target = TransformedTargetRegressor(pipeline, func=np.log, inverse_func=np.exp).fit(frame, y)
    words = r"\(kernel_shap needs predictions alone\), got TransformedTargetRegressor around RandomForestRegressor"
    with pytest.raises(ArgumentError, match=words):
        explainer(make_model(target, table), table.encode(frame[:6]))


@pytest.mark.parametrize("seed", range(16))
def test_a_product_of_a_rare_category_and_a_flag_is_refused_by_name(seed: int) -> None:
    """One row of the reference has the category, and none of those that are explained."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {f"x{number}": rng.integers(0, 2, 400).astype(bool) for number in range(4)}
    )
    frame["zip"] = [f"z{code}" for code in rng.integers(0, 200, 400)]
    frame["amt"] = rng.normal(size=400).round(2)
    rarest = frame["zip"].value_counts().index[-1]

    def encode(part: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(
            {"amt": part["amt"], "prod": 1.0 * ((part["zip"] == rarest) & part["x0"])}
        )

    owners = frame[frame["zip"] == rarest]
    training = pd.concat(
        [frame, *[owners.assign(x0=True), owners.assign(x0=False)] * 30], ignore_index=True
    )
    score = training["amt"] + 5 * encode(training)["prod"]
    fitted = make_pipeline(
        FunctionTransformer(encode), RandomForestRegressor(5, random_state=0)
    ).fit(training, score)
    rows = frame[frame["zip"] != rarest][:3]
    table = Table.read(frame, rows)
    with pytest.raises(ArgumentError, match="encoded column 1, which depends on 'x0' and 'zip'"):
        standfast.explainers.get("tree_shap")(make_model(fitted, table), table.encode(rows))


def make_customers() -> tuple[pd.DataFrame, Any]:
    """Numbers, a category and a flag, and a class that both decide together."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "job": rng.choice(["a", "b", "c"], 160),
            "inc": rng.normal(50, 10, 160).round(1),
            "own": rng.random(160) < 0.4,
        }
    )
    score = (
        (frame["inc"] - 50) / 10
        - 1.2 * (frame["job"] == "a")
        + frame["own"] * (frame["job"] == "b")
    )
    return frame, np.asarray(score + 0.4 * rng.normal(size=160) > 0.3).astype(int)


@pytest.mark.parametrize("background", ["", ":background=reference"])
@pytest.mark.parametrize("positive", [1, 0])
def test_a_threshold_of_scores_moves_no_attribution(positive: int, background: str) -> None:
    frame, y = make_customers()
    encoder = ColumnTransformer([("job", OrdinalEncoder(), ["job"])], remainder="passthrough")
    pipeline = make_pipeline(
        encoder, HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=5)
    )
    options = {"threshold": 0.7, "response_method": "decision_function", "pos_label": positive}
    fitted = FixedThresholdClassifier(pipeline, **options).fit(frame, y)
    rows, references = frame[:8], frame[50:80]
    table = Table.read(references, rows)
    model = make_model(fitted, table)
    inner = fitted.estimator_
    codes = inner[0].transform(references).astype(float)
    explainer = shap.TreeExplainer(inner[-1], codes if background else None)
    values = explainer.shap_values(inner[0].transform(rows).astype(float), check_additivity=False)
    # shap explains class 1
    signs = 2 * model.predict(table.encode(rows)).numpy()[:, None] - 1
    tree_shap = standfast.explainers.get(f"tree_shap{background}")
    np.testing.assert_allclose(
        tree_shap(model, table.encode(rows)), signs * values, rtol=0, atol=1e-6
    )
    assert np.array_equal(model.predict(table.encode(rows)).numpy(), fitted.predict(rows))
    probabilities = standfast.explainers.get("tree_shap:background=reference,output=probability")
    with pytest.raises(
        ArgumentError, match="output: expected 'logit' for a classifier that decides at a threshold"
    ):
        probabilities(model, table.encode(rows))


@pytest.mark.parametrize("codes", [[0], None])
def test_trees_that_were_fitted_with_objects_explain_numbers_or_say_why_not(
    codes: list[int] | None,
) -> None:
    """A flag beside numbers makes an array of objects, in which a forest looks up its own categories."""
    frame, y = make_customers()
    encoder = ColumnTransformer([("job", OrdinalEncoder(), ["job"])], remainder="passthrough")
    boosting = HistGradientBoostingClassifier(
        max_iter=5, min_samples_leaf=5, categorical_features=codes
    )
    fitted = make_pipeline(encoder, boosting).fit(frame, y)
    assert fitted[0].transform(frame).dtype == object
    table = Table.read(frame)
    model = make_model(fitted, table)
    explainer = standfast.explainers.get("tree_shap")
    if codes is None:
        maps = explainer(model, table.rows[:4])
        values = shap.TreeExplainer(boosting).shap_values(
            fitted[0].transform(frame[:4]).astype(float)
        )
        signs = 2 * model.predict(table.rows[:4]).numpy()[:, None] - 1
        np.testing.assert_allclose(maps, signs * values, rtol=0, atol=1e-6)
        return
    words = "expected a last step that takes encoded columns as floats, .*, got HistGradientBoostingClassifier, fitted"
    with pytest.raises(ArgumentError, match=words):
        explainer(model, table.rows[:4])
