"""Pipelines asked with frames, against closed forms: Shapley values by column, worst cases and probabilities."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from credit_frames import GRADES, explain_linear, fit_linear, fit_logistic, make_frame, score
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, PolynomialFeatures, TargetEncoder
from torch import Tensor

import standfast
from standfast import Table
from standfast.errors import ArgumentError, ModelError
from standfast.explainers.adapters.frame_functions import FrameExplainer
from standfast.frames import find_frame_function, make_model
from standfast.frames.encoded import read_encoding
from standfast.metrics import MisinterpretationProbability, WorstCase
from standfast.neighbourhoods import Feature, TableChanges

FRAME = make_frame()
TABLE = Table.read(FRAME)
LINEAR = fit_linear(FRAME)
#: of one column each: the encoded columns of town, married, income and its mark, age, grade, opened
OWNERS = [2, 2, 2, 5, 5, 0, 1, 0, 3, 4]


def sum_by_column(encoded: Any) -> Any:
    """The sums of encoded columns over those of one column of the user's."""
    found = np.zeros((len(encoded), 6))
    for place, owner in enumerate(OWNERS):
        found[:, owner] += encoded[:, place]
    return found


def exact_shapley(frame: pd.DataFrame, background: pd.DataFrame) -> Any:
    """Of a linear pipeline: the coefficient times the distance from the mean of the background, added by column."""
    encode, weights = LINEAR[:-1].transform, LINEAR[-1].coef_
    return sum_by_column(
        (np.asarray(encode(frame)) - np.asarray(encode(background)).mean(0)) * weights
    )


def test_the_pipeline_answers_as_it_does_itself() -> None:
    model = make_model(LINEAR, TABLE)
    np.testing.assert_allclose(model.logits(TABLE.rows)[:, 0], LINEAR.predict(FRAME), rtol=1e-12)
    assert repr(model).startswith("Model(LinearRegression")
    assert model.task.tolerance == pytest.approx(LINEAR.predict(FRAME).std() / 10, rel=0.05)  # type: ignore[attr-defined]
    logistic = fit_logistic(FRAME)
    found = make_model(logistic, TABLE).logits(TABLE.rows).softmax(1)
    np.testing.assert_allclose(found, logistic.predict_proba(FRAME), rtol=1e-9)


@pytest.mark.parametrize("name", ["kernel_shap", "shapley_sampling"])
def test_shapley_values_of_a_linear_pipeline_by_column(name: str) -> None:
    """Each is linear in the columns, so that every sample of coalitions gives the exact values."""
    model = make_model(LINEAR, TABLE)
    assert model.reference is not None
    found = standfast.explainers.get(name, segments="pixels")(model, TABLE.rows[:9])
    exact = exact_shapley(FRAME[:9], TABLE.decode(model.reference.rows))
    np.testing.assert_allclose(found, exact, atol=1e-8)


def test_encoded_columns_are_summed_back() -> None:
    model = make_model(LINEAR, TABLE)
    function = find_frame_function(model)
    assert function is not None
    encoding = read_encoding(function, "mine")
    assert encoding.list_owners().tolist() == OWNERS
    assert encoding.names[:3] == ("towns__town_Bonn", "towns__town_Kiel", "towns__town_Ulm")
    found = FrameExplainer(explain_linear, "mine")(model, TABLE.rows[:9])
    np.testing.assert_allclose(
        found, sum_by_column(explain_linear(LINEAR, FRAME[:9], None)), rtol=1e-12
    )


def test_functions_may_return_columns_by_name_or_all_classes() -> None:
    model = make_model(fit_logistic(FRAME), TABLE)
    rows = TABLE.rows[:5]

    def by_name(estimator: Any, frame: Any, targets: Any) -> Any:
        return pd.DataFrame(
            {name: np.full(len(frame), float(place)) for place, name in enumerate(frame.columns)}
        )[list(frame.columns)[::-1]]

    assert FrameExplainer(by_name)(model, rows)[0].tolist() == [0, 1, 2, 3, 4, 5]

    def by_class(estimator: Any, frame: Any, targets: Any) -> Any:
        return np.stack([np.full((len(frame), 6), -1.0), np.full((len(frame), 6), 1.0)], axis=2)

    def as_tensor(estimator: Any, frame: Any, targets: Any) -> Any:
        return torch.arange(6.0).expand(len(frame), 6)

    assert FrameExplainer(as_tensor)(model, rows)[0].tolist() == [0, 1, 2, 3, 4, 5]

    signs = FrameExplainer(by_class)(model, rows, torch.tensor([0, 1, 0, 1, 1]))[:, 0]
    assert signs.tolist() == [-1, 1, -1, 1, 1]
    with pytest.raises(
        ModelError, match="6 columns, or as many as the pipeline makes of them, got 4"
    ):
        FrameExplainer(lambda e, f, t: np.zeros((len(f), 4)))(model, rows)
    with pytest.raises(ArgumentError, match="takes data frames"):
        FrameExplainer(by_name)(
            standfast.Model(torch.nn.Linear(2, 2), bounds=(0.0, 1.0)), torch.rand(2, 2)
        )


def test_an_order_of_columns_that_cannot_be_told_is_refused() -> None:
    frame = FRAME[["income", "grade"]].fillna(0.0)
    order = ColumnTransformer(
        [("g", OrdinalEncoder(), ["grade"]), ("rest", "passthrough", ["income"])]
    )
    model = make_model(
        Pipeline([("o", order), ("m", LinearRegression())]).fit(frame, score(FRAME)),
        Table.read(frame),
    )
    with pytest.raises(ArgumentError, match="changes their order"):
        FrameExplainer(explain_linear)(model, Table.read(frame).rows[:2])


def test_products_of_columns_are_refused_in_words() -> None:
    pytest.importorskip("shap")
    frame = FRAME[["income", "age"]].fillna(0.0)
    pipeline = Pipeline(
        [("products", PolynomialFeatures(2)), ("trees", HistGradientBoostingRegressor(max_iter=3))]
    )
    table = Table.read(frame)
    model = make_model(pipeline.fit(frame, score(FRAME)), table)
    with pytest.raises(ArgumentError, match="'income age', which depends on 'income' and 'age'"):
        standfast.explainers.get("tree_shap")(model, table.rows[:2])


# Worst cases and probabilities: categories with probability 0.4, grades and ages by one or two steps

CHANGES = TableChanges(
    {
        "town": {"categories": "data", "rate": 0.4},
        "grade": 1,
        "age": 2,
        "married": {"categories": "data", "rate": 0.25},
    }
)


def list_neighbours(row: pd.DataFrame) -> list[tuple[float, pd.DataFrame]]:
    """All rows that the changes allow, with their probabilities."""
    own = row.iloc[0]
    others = FRAME["town"][FRAME["town"] != own.town].value_counts(normalize=True)
    towns = [(0.6, own.town), *((0.4 * share, name) for name, share in others.items())]
    married = [(0.75, own.married), (0.25, not own.married)]
    place = GRADES.index(own.grade)
    grades = [GRADES[at] for at in (place - 1, place, place + 1) if 0 <= at < 3]
    ages = [
        own.age + d for d in range(-2, 3) if FRAME["age"].min() <= own.age + d <= FRAME["age"].max()
    ]
    found = []
    for (p, town), (q, wed), grade, age in itertools.product(towns, married, grades, ages):
        changed = row.assign(town=town, married=wed, age=age)
        changed["grade"] = pd.Categorical([grade], categories=GRADES, ordered=True)
        found.append((p * q / len(grades) / len(ages), changed))
    return found


def test_the_worst_case_is_that_of_all_neighbours() -> None:
    """Of a linear pipeline: the largest change of the number, and the least correlation of the exact maps."""
    model, bound = make_model(LINEAR, TABLE), TABLE.bind(CHANGES)
    explainer = FrameExplainer(explain_linear)
    tolerance = model.task.tolerance  # type: ignore[attr-defined]
    for place in (1, 2):  # 0 has a missing cell
        row = FRAME[place : place + 1]
        neighbours = pd.concat([each for _, each in list_neighbours(row)])
        change = np.abs(LINEAR.predict(neighbours) - LINEAR.predict(row)).max()
        maps = sum_by_column(explain_linear(LINEAR, neighbours, None))
        own = sum_by_column(explain_linear(LINEAR, row, None))[0]
        answer = WorstCase(bound, event="misclassification", budget=400)(
            model, explainer, TABLE.rows[place : place + 1]
        )
        assert answer.value.item() == pytest.approx(change - tolerance, abs=1e-6)
        held = WorstCase(bound, budget=400, absolute=False)(
            model, explainer, TABLE.rows[place : place + 1]
        )
        kept = np.abs(LINEAR.predict(neighbours) - LINEAR.predict(row)) < tolerance
        least = min(np.corrcoef(each, own)[0, 1] for each in maps[kept])
        assert held.value.item() == pytest.approx(least, abs=1e-6)
        moved = TABLE.decode(held.inputs.double())
        assert moved["income"].item() == row["income"].item()


def test_the_probability_is_the_sum_over_all_neighbours() -> None:
    model, bound = make_model(LINEAR, TABLE), TABLE.bind(CHANGES)
    tolerance = model.task.tolerance  # type: ignore[attr-defined]
    metric = MisinterpretationProbability(
        bound, event="misclassification", method="monte_carlo", samples=4000
    )
    found = metric(model, FrameExplainer(explain_linear), TABLE.rows[1:5])
    for number, place in enumerate(range(1, 5)):
        row = FRAME[place : place + 1]
        weights, rows = zip(*list_neighbours(row), strict=True)
        changed = np.abs(LINEAR.predict(pd.concat(rows)) - LINEAR.predict(row)) > tolerance
        exact = float(np.array(weights)[changed].sum())
        assert sum(weights) == pytest.approx(1)
        error = 4 * np.sqrt(exact * (1 - exact) / 4000)  # of the estimate, in four standard errors
        assert abs(float(found.value[number].exp()) - exact) <= error + 1e-12


# Missing cells


def test_missing_cells_stay_missing_and_others_become_it_at_a_rate() -> None:
    frame = make_frame(40)
    table = Table.read(frame, missing=True)
    rows = table.encode(frame)
    still = table.bind(TableChanges({"income": "50%", "age": 3, "town": "category"}))
    lost = table.bind(
        TableChanges({"income": "50%", "age": 3, "town": "category"}, may_become_missing=0.2)
    )
    for changes, rate in ((still, 0.0), (lost, 0.2)):
        region = changes.around(rows, table.bounds)
        drawn = region.sample(100, region.streams(0))
        points = drawn.reshape(-1, drawn.shape[-1])
        found = table.decode(region.perturb(points, torch.arange(40).repeat_interleave(100)))
        gone = found[["income", "age", "town"]].isna().to_numpy().reshape(40, 100, 3)
        assert gone[::7, :, 0].all()
        shares = [
            gone[np.arange(40) % 7 > 0, :, 0].mean(),
            gone[..., 1].mean(),
            gone[..., 2].mean(),
        ]
        assert np.abs(np.array(shares) - rate).max() < 0.03
        assert (found["income"].dropna() >= frame["income"].min()).all()
        assert not found[["grade", "opened", "married"]].isna().any(axis=None)


def test_a_rule_with_a_missing_cell_does_not_hold_a_row_back() -> None:
    frame = pl.DataFrame({"income": [100.0, None], "debt": [250.0, 250.0], "total": [350.0, 250.0]})
    richer = pl.DataFrame({"income": [500.0], "debt": [900.0], "total": [1400.0]})
    table = Table.read(pl.concat([frame, richer]))
    changes = table.bind(
        TableChanges({"debt": 200}, rules=("debt <= 3 * income", "total == income + debt"))
    )
    region = changes.around(table.encode(frame), table.bounds)
    moved = table.decode(
        region.perturb(torch.tensor([[150.0], [150.0]], dtype=torch.float64), torch.tensor([0, 1]))
    )
    assert moved["debt"].to_list() == [pytest.approx(300, abs=1e-3), 400.0]
    assert moved["total"].to_list() == [pytest.approx(400, abs=1e-3), 250.0]


def test_rows_move_to_the_named_categories_alone() -> None:
    bound = TABLE.bind(TableChanges({"town": {"categories": ["Ulm", "Kiel"], "rate": 0.5}}))
    bonn = TABLE.rows[FRAME["town"].to_numpy() == "Bonn"][:1]
    region = bound.around(bonn, TABLE.bounds)
    drawn = region.sample(600, region.streams(0))[0]
    towns = TABLE.decode(region.perturb(drawn, torch.zeros(600, dtype=torch.int64)))[
        "town"
    ].value_counts(normalize=True)
    counts = FRAME["town"].value_counts()
    assert abs(towns["Bonn"] - 0.5) < 0.09
    assert abs(towns["Ulm"] - 0.5 * counts["Ulm"] / (counts["Ulm"] + counts["Kiel"])) < 0.08


def test_changes_are_named_as_the_user_names_them() -> None:
    bound = TABLE.bind(
        TableChanges({"town": {"categories": ["Ulm", "Kiel"]}, "grade": 2, "opened": 30})
    )
    features: Any = bound.changes
    assert features["town"] == Feature(categories=(2.0, 1.0))
    assert (features["grade"].step, features["opened"].step) == (1, 1)
    every: Any = TABLE.bind(TableChanges("5%", fixed=("age",))).changes
    assert every["town"].categories == "data"
    assert "age" not in every
    for wrong, said in (
        ({"town": 3}, "no order"),
        ({"tow": 3}, "town"),
        ({"town": {"categories": ["Rome"]}}, "Rome"),
    ):
        with pytest.raises(ArgumentError, match=said):
            TABLE.bind(TableChanges(wrong))


# Trees behind encoders


def fit_trees(encoder: Any) -> tuple[Pipeline, pd.DataFrame]:
    frame = FRAME[["income", "age", "town"]]
    coded = ColumnTransformer(
        [("town", encoder, ["town"]), ("rest", "passthrough", ["income", "age"])]
    )
    trees = HistGradientBoostingClassifier(max_iter=8, max_leaf_nodes=6, random_state=0)
    return Pipeline([("coded", coded), ("trees", trees)]).fit(frame, score(FRAME) > 5), frame


def brute_force(model: standfast.Model, row: Tensor, background: Tensor) -> Tensor:
    """Shapley values of the log-odds of class 1 by all coalitions of three columns."""

    def worth(coalition: tuple[int, ...]) -> float:
        rows = background.clone()
        rows[:, list(coalition)] = row[list(coalition)]
        logits = model.logits(rows)
        return float((logits[:, 1] - logits[:, 0]).mean())

    found = torch.zeros(3)
    for column in range(3):
        others = [place for place in range(3) if place != column]
        for size, weight in ((0, 1 / 3), (1, 1 / 6), (2, 1 / 3)):
            for group in itertools.combinations(others, size):
                found[column] += weight * (worth((*group, column)) - worth(group))
    return found


@pytest.mark.parametrize("encoder", [OrdinalEncoder(), TargetEncoder(cv=3)])
def test_tree_shap_by_column_is_that_of_all_coalitions(encoder: Any) -> None:
    """One encoded column for each of the user's, missing cells among them: the values of the game of columns."""
    pytest.importorskip("shap")
    pipeline, frame = fit_trees(encoder)
    table = Table.read(frame)
    model = make_model(pipeline, table)
    assert model.reference is not None
    found = standfast.explainers.get("tree_shap:background=reference")(
        model, table.rows[:4], torch.ones(4).long()
    )
    for row in range(4):
        exact = brute_force(model, table.rows[row], model.reference.rows)
        torch.testing.assert_close(found[row].float(), exact, atol=2e-4, rtol=1e-3)


def test_tree_shap_of_one_hot_columns_adds_up() -> None:
    shap = pytest.importorskip("shap")
    pipeline, frame = fit_trees(OneHotEncoder(sparse_output=False))
    table = Table.read(frame)
    model = make_model(pipeline, table)
    found = standfast.explainers.get("tree_shap")(model, table.rows[:6], torch.ones(6).long())
    encoded = pipeline[:-1].transform(frame[:6])
    values = shap.TreeExplainer(pipeline[-1]).shap_values(encoded)
    np.testing.assert_allclose(found[:, 2], values[:, :3].sum(1), atol=1e-6)
    np.testing.assert_allclose(found[:, :2], values[:, 3:], atol=1e-6)


@pytest.mark.parametrize("package", ["lightgbm", "xgboost", "catboost"])
def test_boosters_with_categories_of_their_own(package: str) -> None:
    """Their contributions add up to the log-odds, one for each column, with missing cells."""
    pytest.importorskip("shap")
    library = pytest.importorskip(package)
    frame = FRAME[["income", "age", "town", "married"]].assign(
        town=FRAME["town"].astype("category")
    )
    target = (score(FRAME) > 5).astype(int)
    if package == "lightgbm":
        fitted = library.LGBMClassifier(n_estimators=10, verbose=-1).fit(frame, target)
    elif package == "xgboost":
        fitted = library.XGBClassifier(n_estimators=10, enable_categorical=True).fit(frame, target)
    else:
        fitted = library.CatBoostClassifier(
            iterations=10, verbose=0, cat_features=["town"], allow_writing_files=False
        ).fit(frame, target)
    table = Table.read(frame)
    model = make_model(fitted, table)
    np.testing.assert_allclose(
        model.logits(table.rows).softmax(1), fitted.predict_proba(frame), atol=1e-6
    )
    found = standfast.explainers.get("tree_shap")(model, table.rows[:8], torch.ones(8).long())
    logits = model.logits(table.rows[:8])
    rest = (logits[:, 1] - logits[:, 0]) - found.sum(1)
    assert float(rest.std()) < 1e-4
    assert found.shape == (8, 4)
