"""TreeSHAP with one background after another: each against a new explainer of shap; trees are read once."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import standfast
from standfast.explainers.adapters import tree_shap, trees
from standfast.frames import Table, make_model
from standfast.metrics.reasons.draws import redraw_background
from standfast.records import Background

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    shap = pytest.importorskip("shap")
    pytest.importorskip("sklearn")

from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

FEATURES, ROWS = 4, 200
NAME = "tree_shap:background=reference"


def make_rows() -> tuple[np.ndarray, np.ndarray]:
    """Rows in single precision, which lie beside thresholds and not on them."""
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(ROWS, FEATURES)).astype(np.float32).astype(np.float64)
    return rows, rows[:, 0] + rows[:, 1] * rows[:, 2] + 0.2 * generator.normal(size=ROWS)


X, SCORE = make_rows()


def find_package(name: str, kind: str) -> Any:
    """A class of an optional package; its absence skips the test."""
    return getattr(pytest.importorskip(name), kind)


MODELS: dict[str, Callable[[], Any]] = {
    "boosting": lambda: GradientBoostingClassifier(n_estimators=8, random_state=0),
    "forest": lambda: RandomForestClassifier(5, max_depth=5, random_state=0),
    "regression forest": lambda: RandomForestRegressor(5, max_depth=5, random_state=0),
    "lightgbm": lambda: find_package("lightgbm", "LGBMClassifier")(
        n_estimators=8, verbose=-1, n_jobs=1
    ),
    "xgboost": lambda: find_package("xgboost", "XGBClassifier")(n_estimators=8, n_jobs=1),
}


def fit(name: str) -> tuple[Any, standfast.Model]:
    is_regressor = "regression" in name
    fitted = MODELS[name]().fit(X, SCORE if is_regressor else (SCORE > 0).astype(int))
    function = fitted.predict if is_regressor else fitted.predict_proba
    task = "regression:tolerance=0.1" if is_regressor else "classification"
    options: dict[str, Any] = {"dtype": torch.float64, "reference": torch.tensor(X), "task": task}
    return fitted, standfast.Model.from_callable(function, (-9.0, 9.0), **options)


def compute_with_shap(fitted: Any, rows: np.ndarray, references: np.ndarray) -> np.ndarray:
    """Values for class 1, or for the number, by an explainer of shap that is made for these references."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = shap.TreeExplainer(
            fitted, shap.maskers.Independent(references, max_samples=len(references))
        )
        values = np.asarray(theirs.shap_values(rows, check_additivity=False))
    return values[..., 1] if values.ndim == 3 else values


def count_readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an entry each time that trees are read."""
    readings: list[int] = []
    construct = tree_shap.TreeSHAPExplainer._construct

    def count(*arguments: Any) -> Any:
        readings.append(1)
        return construct(*arguments)

    monkeypatch.setattr(tree_shap.TreeSHAPExplainer, "_construct", count)
    return readings


@pytest.mark.parametrize("name", MODELS)
def test_redrawn_references_give_what_a_new_explainer_of_shap_gives(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, model = fit(name)
    readings = count_readings(monkeypatch)
    explainer = standfast.explainers.get(NAME)
    targets = None if "regression" in name else torch.ones(3, dtype=torch.int64)
    rows = torch.tensor(X[:3])
    for seed in range(1, 31):
        # freed before the next one is drawn, whose id is then often the same
        redrawn = model.with_background(seed)
        assert redrawn.reference is not None
        references = redrawn.reference.rows.numpy()
        maps = explainer(redrawn, rows, targets).numpy()
        np.testing.assert_allclose(
            maps, compute_with_shap(fitted, X[:3], references), rtol=1e-5, atol=1e-6
        )
    assert len(readings) == 1
    (reading,) = tree_shap._READINGS[model.module].values()
    assert len(reading._games) <= trees._MOST_GAMES


def test_a_reference_with_the_id_of_one_that_was_freed_is_not_taken_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if all objects had one id: what is found again is found by its rows."""
    fitted, model = fit("forest")
    monkeypatch.setattr(tree_shap, "id", lambda _: 1, raising=False)
    monkeypatch.setattr(trees, "id", lambda _: 1, raising=False)
    explainer, rows = standfast.explainers.get(NAME), torch.tensor(X[:3])
    for seed in (1, 2, 1):
        redrawn = model.with_background(seed)
        assert redrawn.reference is not None
        expected = compute_with_shap(fitted, X[:3], redrawn.reference.rows.numpy())
        maps = explainer(redrawn, rows, torch.ones(3, dtype=torch.int64)).numpy()
        np.testing.assert_allclose(maps, expected, rtol=1e-5, atol=1e-6)


def test_resampled_rows_of_the_user_do_not_read_the_trees_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted, model = fit("lightgbm")
    readings = count_readings(monkeypatch)
    explainer = standfast.explainers.get("tree_shap", background=Background(torch.tensor(X[20:60])))
    for seed in range(12):
        resampled = redraw_background(explainer, seed)
        maps = resampled(model, torch.tensor(X[:3]), torch.ones(3, dtype=torch.int64)).numpy()
        background = resampled.background  # type: ignore[attr-defined]
        expected = compute_with_shap(fitted, X[:3], background.inputs.numpy())
        np.testing.assert_allclose(maps, expected, rtol=1e-5, atol=1e-6)
    assert len(readings) == 1
    assert not any(isinstance(part, Background) for key in model.fitting for part in key)  # type: ignore[attr-defined]


def test_the_trees_of_a_model_are_freed_with_it() -> None:
    _, model = fit("forest")
    standfast.explainers.get(NAME)(model, torch.tensor(X[:3]))
    module = weakref.ref(model.module)
    assert model.module in tree_shap._READINGS
    del model
    gc.collect()
    assert module() is None


def make_pipeline_model() -> tuple[standfast.Model, Tensor]:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "town": np.where(X[:, 2] > 0, "Ulm", "Bonn")})
    encoder = ColumnTransformer([("town", OneHotEncoder(), ["town"])], remainder="passthrough")
    fitted = make_pipeline(encoder, RandomForestClassifier(5, max_depth=5, random_state=0))
    table = Table.read(frame)
    return make_model(fitted.fit(frame, SCORE > 0), table), table.rows


def make_array_model() -> tuple[standfast.Model, Tensor]:
    return fit("forest")[1], torch.tensor(X)


@pytest.mark.parametrize("make", [make_array_model, make_pipeline_model])
def test_prepared_rows_have_the_same_bits_and_cost_nothing_more(
    make: Callable[[], tuple[Any, Tensor]],
) -> None:
    model, rows = make()
    explainer = standfast.explainers.get(NAME)
    variants = [(explainer, model.with_background(seed)) for seed in (1, 2, 3)]
    inputs = rows[:5]
    counts = {"alone": [0, 0], "prepared": [0, 0]}

    def explain(kind: str) -> list[tuple[Tensor, Tensor]]:
        def add_inputs(count: int) -> None:
            counts[kind][0] += count

        def add_rows(count: int) -> None:
            counts[kind][1] += count

        with model.watch(add_inputs, add_rows):
            return [explainer.attribute_all(varied, inputs, None) for _, varied in variants]

    with model.session():
        explainer.attribute_all(model, inputs, None)
        alone = explain("alone")
        tree_shap._READINGS[model.module].clear()  # its trees and games
        explainer.attribute_all(model, inputs, None)
        with explainer.preparing(model, inputs, variants):
            prepared = explain("prepared")
            (reading,) = tree_shap._READINGS[model.module].values()
            assert reading.find_outputs(inputs) is not None
        assert reading.find_outputs(inputs) is None
    for (maps, logits), (prepared_maps, prepared_logits) in zip(alone, prepared, strict=True):
        assert torch.equal(maps, prepared_maps)
        assert torch.equal(logits, prepared_logits)
    assert not torch.equal(alone[0][0], alone[1][0])
    assert counts["prepared"][1] == 0


def test_a_model_that_is_fitted_again_is_noticed_after_preparation() -> None:
    fitted, model = fit("forest")
    explainer, rows = standfast.explainers.get(NAME), torch.tensor(X[:5])
    with model.session(), explainer.preparing(model, rows, [(explainer, model.with_background(1))]):
        explainer.attribute_all(model, rows, None)
    fitted.fit(X[:, ::-1], (SCORE > 0).astype(int))
    with pytest.raises(standfast.errors.ModelError, match="Was it fitted again"):
        explainer(model, rows)
