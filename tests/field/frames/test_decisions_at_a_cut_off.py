"""A bank declines at a probability of default of 0.35, and not where default is the likelier class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import standfast
from standfast.errors import ArgumentError
from standfast.explainers import get as get_explainer
from standfast.frames import Table, make_model
from standfast.question.frames import FrameExplainer
from standfast.tasks import Decision

RULE = "P(default) > 0.35"


def make_frame() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=["debt", "income", "age"])
    risk = frame["debt"] - 0.5 * frame["income"] + rng.normal(size=200)
    return frame, np.where(risk > 0.5, "default", "repaid")


def test_the_side_flips_where_the_probability_crosses_the_cut_off() -> None:
    frame, answers = make_frame()
    table = Table.read(frame)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, answers)
    share = pipeline.predict_proba(frame)[:, 0]
    model = make_model(pipeline, table, f"decision:rule={RULE}")
    sides = model.predict(table.rows)
    np.testing.assert_array_equal(sides.numpy() == 1, share > 0.35)
    margin = model.task.margin(model.logits(table.rows), sides, "probability")
    np.testing.assert_allclose(-margin.numpy(), np.abs(share - 0.35), rtol=1e-9)
    between = (share > 0.35) & (share < 0.5)  # declined, although repaid is the likelier class
    assert between.any()
    maps = get_explainer("occlusion:window=1")(model, table.rows[between])
    weights = -pipeline[-1].coef_[0] / frame.std(ddof=0).to_numpy()  # of default, which is class 0
    change = (table.rows[between] - model.reference.baseline) * torch.tensor(weights)
    assert torch.equal(maps.sign(), change.sign())


def test_a_fixed_threshold_is_the_same_decision() -> None:
    frame, answers = make_frame()
    table = Table.read(frame)
    plain = LogisticRegression().fit(frame, answers)
    options: dict[str, Any] = {
        "threshold": 0.35,
        "pos_label": "default",
        "response_method": "predict_proba",
    }
    fixed = FixedThresholdClassifier(LogisticRegression(), **options).fit(frame, answers)
    decided, tuned = make_model(plain, table, Decision(RULE)), make_model(fixed, table)
    outputs, tuned_outputs = decided.logits(table.rows), tuned.logits(table.rows)
    sides, tuned_sides = decided.task.answer(outputs), tuned.task.answer(tuned_outputs)
    # the tuned one counts from class 1, which is repaid
    assert torch.equal(sides == 1, tuned_sides == 0)
    np.testing.assert_array_equal(fixed.predict(frame) == "default", sides.numpy() == 1)
    for scale in ("logit", "probability"):
        margin = tuned.task.margin(tuned_outputs, tuned_sides, scale)
        torch.testing.assert_close(decided.task.margin(outputs, sides, scale), margin)
    explainer = get_explainer("shapley_sampling:permutations=2")
    torch.testing.assert_close(explainer(decided, table.rows[:6]), explainer(tuned, table.rows[:6]))
    # a cut-off that the user names is the user's
    other = make_model(fixed, table, Decision("P(default) > 0.2"))
    share = plain.predict_proba(frame)[:, 0]
    np.testing.assert_array_equal(other.predict(table.rows).numpy() == 1, share > 0.2)


def test_one_class_of_three_and_one_of_several_labels() -> None:
    frame, answers = make_frame()
    table = Table.read(frame)
    three = np.where(frame["age"] > 0.8, "late", answers)
    fitted = LogisticRegression().fit(frame, three)
    share = fitted.predict_proba(frame)[:, list(fitted.classes_).index("late")]
    model = make_model(fitted, table, Decision("P(late) < 0.1"))
    np.testing.assert_array_equal(model.predict(table.rows).numpy() == 1, share < 0.1)
    labels = np.stack([answers == "default", frame["age"] > 0.8], 1).astype(int)
    several = MultiOutputClassifier(LogisticRegression()).fit(frame, labels)
    model = make_model(several, table, Decision("P(1) > 0.2"))
    share = several.predict_proba(frame)[1][:, 1]
    np.testing.assert_array_equal(model.predict(table.rows).numpy() == 1, share > 0.2)


def test_trees_speak_for_the_side() -> None:
    pytest.importorskip("shap")
    frame, answers = make_frame()
    table = Table.read(frame)
    forest = RandomForestClassifier(20, max_depth=3, random_state=0).fit(frame, answers)
    model = make_model(forest, table, Decision(RULE))
    tree_shap = get_explainer("tree_shap")
    of_classes = make_model(forest, table)
    sides = model.predict(table.rows[:20])
    assert sides.unique().tolist() == [0, 1]
    expected = tree_shap(of_classes, table.rows[:20], 1 - sides)  # class 0 is default
    torch.testing.assert_close(tree_shap(model, table.rows[:20]), expected)


def test_a_function_of_the_users_is_asked_for_the_class() -> None:
    frame, answers = make_frame()
    fitted = LogisticRegression().fit(frame, answers)
    model = make_model(fitted, Table.read(frame), Decision(RULE))
    asked: list[Any] = []

    def look(estimator: Any, frame: Any, targets: Any) -> Any:
        asked.extend(targets)
        return frame.to_numpy()

    rows = Table.read(frame).rows[:20]
    get_explainer(FrameExplainer(look))(model, rows)
    assert asked[:20] == (1 - model.predict(rows)).tolist()


def test_what_is_not_possible_is_said() -> None:
    frame, answers = make_frame()
    options: dict[str, Any] = {
        "reference": frame,
        "sanity": False,
        "controls": False,
        "progress": False,
    }
    ask = {"explainers": "occlusion", "inputs": frame[:3], "metrics": "max_sensitivity:samples=2"}
    fitted = LogisticRegression().fit(frame, answers)
    for estimator, rule, words in (
        (fitted, "P(defualt) > 0.35", "'default', 'repaid', got .*did you mean 'default'"),
        (fitted, "P(default) > 35", "above 0 and below 1"),
        (
            LinearRegression().fit(frame, frame["age"]),
            RULE,
            "a classifier with predict_proba .*LinearRegression",
        ),
        (SVC().fit(frame, answers), RULE, "CalibratedClassifierCV makes one"),
    ):
        with pytest.raises(ArgumentError, match=f"decision: expected .*{words}"):
            standfast.evaluate(estimator, decision=rule, **ask, **options)


def test_a_report_says_the_rule_and_not_the_number_of_a_side() -> None:
    """Where sides had the numbers of classes, side 1 must not be named as class 1 either."""
    frame, answers = make_frame()
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, answers)
    options: dict[str, Any] = {
        "decision": RULE,
        "reference": frame,
        "sanity": False,
        "progress": False,
    }
    found = standfast.evaluate(
        pipeline, ["occlusion"], frame.head(6), ["worst_case:budget=8"], **options
    )
    sides = ("not P(default) > 0.35", "P(default) > 0.35")
    assert found.task_words.answers == sides
    assert found.summary.classes == dict.fromkeys(found.data, sides)
    shares = pipeline.predict_proba(frame.head(6))[:, 0]
    (label,) = found.metrics
    (view,) = found.list_metric_results(label)
    for row in view.rows_for("occlusion").to_dicts():
        assert view.name_classes(row)["targets"] == sides[int(shares[row["sample"]] > 0.35)]
