"""TreeSHAP (`shap:TreeExplainer`): Shapley values by their definition, on rows that lie on thresholds, and errors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from games import shapley_values
from torch import Tensor

import standfast
from standfast.errors import ArgumentError, ModelError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("shap")
    pytest.importorskip("sklearn")

from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

FEATURES = 4


def rows_and_labels(classes: int, count: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a grid with spaces of 0.1, which no float32 holds exactly: many of them lie on thresholds."""
    generator = np.random.default_rng(classes)
    rows = generator.integers(0, 11, (count, FEATURES)) / 10
    score = rows[:, 0] + rows[:, 1] * rows[:, 2] + 0.1 * generator.normal(size=count)
    return rows, np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))


def find_package(name: str, kind: str) -> Any:
    """A class of an optional package; its absence skips the test."""
    return getattr(pytest.importorskip(name), kind)


#: `(classes) -> estimator`; LightGBM is in the extra `dev`, XGBoost is not
MODELS: dict[str, Callable[[], Any]] = {
    "hist": lambda: HistGradientBoostingClassifier(
        max_iter=4, max_bins=6, min_samples_leaf=5, random_state=0
    ),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=4, random_state=0),
    "forest": lambda: RandomForestClassifier(4, random_state=0),
    "lightgbm": lambda: find_package("lightgbm", "LGBMClassifier")(
        n_estimators=4, min_child_samples=5, verbose=-1, n_jobs=1
    ),
    "xgboost": lambda: find_package("xgboost", "XGBClassifier")(n_estimators=4, n_jobs=1),
}


def fit(
    name: str, classes: int, dtype: torch.dtype = torch.float32
) -> tuple[Any, standfast.Model, Tensor]:
    rows, labels = rows_and_labels(classes)
    network = MODELS[name]().fit(rows, labels)
    model = standfast.Model.from_callable(network.predict_proba, (0.0, 1.0), dtype=dtype)
    return network, model, torch.tensor(rows, dtype=dtype)


def margins(model: standfast.Model, x: np.ndarray, target: int, of_forest: bool) -> np.ndarray:
    """The score of a class: probability for a forest, log-odds for two classes."""
    logits = model.logits(torch.as_tensor(x, dtype=model.dtype)).double().numpy()
    if of_forest:
        return np.exp(logits[:, target])
    return logits[:, target] - logits[:, 1 - target]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_interventional_values_are_those_of_the_definition(name: str, dtype: torch.dtype) -> None:
    _, model, x = fit(name, 2, dtype)
    background = x[40:47]
    maps = standfast.explainers.get("shap:TreeExplainer", background=background)(model, x[:12], 0)
    given = x[:12].numpy()

    def value(coalition: frozenset[int]) -> np.ndarray:
        mixed = np.repeat(background.numpy()[None], len(given), 0)
        mixed[:, :, list(coalition)] = given[:, None, list(coalition)]
        return (
            margins(model, mixed.reshape(-1, FEATURES), 0, name == "forest")
            .reshape(len(given), -1)
            .mean(1)
        )

    np.testing.assert_allclose(
        maps.numpy(), np.stack(shapley_values(value, FEATURES), 1), rtol=1e-4, atol=3e-6
    )
    assert float(maps.abs().max()) > 0.1


@pytest.mark.parametrize("name", ["hist", "forest", "lightgbm", "xgboost"])
def test_several_classes(name: str) -> None:
    """Margins have a constant of their own for each row, so differences of two classes are compared."""
    _, model, x = fit(name, 3)
    background = x[40:47]
    explainer = standfast.explainers.get("shap:TreeExplainer", background=background)
    given = x[:6].numpy()
    found = [explainer(model, x[:6], target).numpy() for target in (2, 0)]

    def value(coalition: frozenset[int]) -> np.ndarray:
        mixed = np.repeat(background.numpy()[None], len(given), 0)
        mixed[:, :, list(coalition)] = given[:, None, list(coalition)]
        logits = model.logits(torch.as_tensor(mixed.reshape(-1, FEATURES))).double().numpy()
        scores = np.exp(logits) if name == "forest" else logits
        return (scores[:, 2] - scores[:, 0]).reshape(len(given), -1).mean(1)

    np.testing.assert_allclose(
        found[0] - found[1], np.stack(shapley_values(value, FEATURES), 1), rtol=1e-4, atol=3e-6
    )
    # the class of each row, as the classes of a batch
    mixed = torch.tensor([2, 0, 2, 0, 0, 2])
    wanted = np.where(mixed[:, None].numpy() == 2, found[0], found[1])
    np.testing.assert_array_equal(explainer(model, x[:6], mixed).numpy(), wanted)
    predicted = explainer(model, x[:6])
    assert torch.equal(predicted, explainer(model, x[:6], model.predict(x[:6])))


def test_path_dependent_values_are_those_of_the_definition() -> None:
    """v(S) goes down both branches of a feature outside of S, by the shares of training rows."""
    rows, labels = rows_and_labels(2)
    network = DecisionTreeClassifier(max_depth=4, random_state=0).fit(rows, labels)
    tree = network.tree_
    model = standfast.Model.from_callable(network.predict_proba, (0.0, 1.0), dtype=torch.float64)
    given = rows[:12]

    def expect(row: np.ndarray, coalition: frozenset[int], node: int = 0) -> float:
        left, right, feature = (
            tree.children_left[node],
            tree.children_right[node],
            tree.feature[node],
        )
        if left < 0:
            return float(tree.value[node, 0, 1] / tree.value[node, 0].sum())
        if feature in coalition:
            return expect(
                row, coalition, left if np.float32(row[feature]) <= tree.threshold[node] else right
            )
        shares = tree.weighted_n_node_samples[[left, right]] / tree.weighted_n_node_samples[node]
        return float(
            shares[0] * expect(row, coalition, left) + shares[1] * expect(row, coalition, right)
        )

    def value(coalition: frozenset[int]) -> np.ndarray:
        return np.array([expect(row, coalition) for row in given])

    maps = standfast.explainers.get("shap:TreeExplainer")(model, torch.tensor(given), 1)
    np.testing.assert_allclose(
        maps.numpy(), np.stack(shapley_values(value, FEATURES), 1), rtol=0, atol=1e-6
    )
    assert float(maps.abs().max()) > 0.1


def test_probabilities_of_a_boosted_model() -> None:
    _, model, x = fit("hist", 2)
    explainer = standfast.explainers.get(
        "shap:TreeExplainer", background=x[40:47], output="probability"
    )
    shares = model.logits(x).softmax(1)[:, 0]
    torch.testing.assert_close(explainer(model, x[:9], 0).sum(1), shares[:9] - shares[40:47].mean())
    with pytest.raises(
        ArgumentError, match="output: expected 'logit', or a background beside 'probability'"
    ):
        standfast.explainers.get("shap:TreeExplainer", output="probability")(model, x)


@pytest.mark.parametrize("references", [None, 7])
def test_maps_do_not_depend_on_the_batch(references: int | None) -> None:
    network, model, x = fit("hist", 3)
    background = None if references is None else x[-references:]
    explainer = standfast.explainers.get("shap:TreeExplainer", background=background)
    maps = explainer(model, x)
    assert torch.equal(explainer(model, x.flip(0)).flip(0), maps)
    assert torch.equal(explainer(model, x[5:6])[0], maps[5])
    small = standfast.Model.from_callable(network.predict_proba, (0.0, 1.0), batch_size=8)
    assert torch.equal(explainer(small, x), maps)


def test_more_references_than_shap_takes_by_itself() -> None:
    """shap draws 100 of them unless it is told not to."""
    rows, labels = rows_and_labels(2, 150)
    network = RandomForestClassifier(3, random_state=0).fit(rows, labels)
    model = standfast.Model.from_callable(network.predict_proba, (0.0, 1.0))
    x = torch.tensor(rows, dtype=torch.float32)
    maps = standfast.explainers.get("shap:TreeExplainer", background=x)(model, x[:5], 1)
    shares = model.logits(x).softmax(1)[:, 1]
    torch.testing.assert_close(maps.sum(1), shares[:5] - shares.mean(), rtol=1e-5, atol=1e-6)


def test_an_object_of_shap() -> None:
    import shap

    network, model, x = fit("forest", 2)
    theirs = shap.TreeExplainer(network)
    explainer = standfast.explainers.from_shap(theirs)
    expected = theirs.shap_values(x.numpy())[..., 1]
    np.testing.assert_allclose(explainer(model, x, 1).numpy(), expected, atol=1e-6)
    other = RandomForestClassifier(4, random_state=1).fit(*rows_and_labels(2))
    with pytest.raises(
        ModelError, match="add up to the answers of RandomForestClassifier, got .* differ by up to"
    ):
        explainer(standfast.Model.from_callable(other.predict_proba, (0.0, 1.0)), x)


def test_a_model_that_was_fitted_again_is_noticed() -> None:
    network, model, x = fit("forest", 2)
    explainer = standfast.explainers.get("shap:TreeExplainer")
    explainer(model, x)
    network.fit(x.numpy()[:, ::-1], rows_and_labels(2)[1])
    with pytest.raises(ModelError, match="Was it fitted again"):
        explainer(model, x)


@pytest.mark.parametrize("references", [None, 7])
def test_splits_that_shap_misreads_are_refused_for_every_row(references: int | None) -> None:
    """shap reads splits by category of this network as thresholds; for some rows alone, the sums agree by chance."""
    generator = np.random.default_rng(2)
    rows = generator.integers(0, 11, (150, FEATURES)) / 10
    rows[:, 3] = generator.integers(0, 5, 150)
    score = rows[:, 0] + rows[:, 1] * rows[:, 2] + 0.5 * np.isin(rows[:, 3], [1, 3])
    network = HistGradientBoostingClassifier(
        max_iter=5, max_bins=8, min_samples_leaf=5, random_state=0, categorical_features=[3]
    ).fit(rows, score > np.median(score))
    model = standfast.Model.from_callable(network.predict_proba, (0.0, 5.0), dtype=torch.float64)
    x = torch.tensor(rows)
    background = None if references is None else x[40 : 40 + references]
    explainer = standfast.explainers.get("shap:TreeExplainer", background=background)
    for row in x[:40]:
        with pytest.raises(ModelError, match="splits or a loss that shap cannot read"):
            explainer(model, row[None], 1)


def test_what_it_cannot_explain() -> None:
    _, model, x = fit("hist", 2)
    explainer = standfast.explainers.get("shap:TreeExplainer")
    function = standfast.Model.from_callable(lambda rows: rows[:, 0], (0.0, 1.0))
    with pytest.raises(
        ArgumentError, match="model: expected a Model of an estimator's own method, as"
    ):
        explainer(function, x)
    module = standfast.Model(torch.nn.Linear(FEATURES, 2), (0.0, 1.0), device="cpu")
    with pytest.raises(ArgumentError, match="since shap.TreeExplainer reads its trees, got Linear"):
        explainer(module, x)
    rows, labels = rows_and_labels(2)
    pipeline = make_pipeline(StandardScaler(), RandomForestClassifier(3)).fit(rows, labels)
    with pytest.raises(
        ArgumentError, match=r"shap.TreeExplainer can read \(kernel_shap .*\), got Pipeline"
    ):
        explainer(standfast.Model.from_callable(pipeline.predict_proba, (0.0, 1.0)), x)
    three = GradientBoostingClassifier(n_estimators=2).fit(*rows_and_labels(3))
    with pytest.raises(ArgumentError, match="only supported for binary classification"):
        explainer(standfast.Model.from_callable(three.predict_proba, (0.0, 1.0)), x)
    with pytest.raises(ArgumentError, match="feature_perturbation: expected no options"):
        standfast.explainers.get("shap:TreeExplainer", feature_perturbation="interventional")
    with pytest.raises(ArgumentError, match="background: expected reference inputs of shape"):
        standfast.explainers.get("shap:TreeExplainer", background=torch.zeros(2, 3))(model, x)
