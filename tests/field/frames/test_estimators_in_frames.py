"""Estimators as they are found in the field, given with a data frame: which of their answers is explained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import standfast
from standfast.frames import Table, make_model


def make_frame(rows: int, noise: float) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["a", "b", "c"])
    return frame, (frame["a"] + 0.5 * frame["b"] + noise * rng.normal(size=rows)).to_numpy()


@pytest.mark.parametrize("names", [(0, 1), ("no", "yes")])
@pytest.mark.parametrize("estimator", [LinearSVC(), RidgeClassifier(), SVC()])
def test_a_classifier_without_probabilities_is_explained_by_its_decision(
    estimator: Any, names: Any
) -> None:
    """And not as a regression of the number of its class, with a tolerance of 0.05."""
    frame, score = make_frame(300, 0.0)
    fitted = make_pipeline(StandardScaler(), estimator).fit(
        frame, np.array(names)[(score > 0).astype(int)]
    )
    options: dict[str, Any] = {
        "reference": frame[50:],
        "sanity": False,
        "progress": False,
        "controls": False,
    }
    found = standfast.evaluate(fitted, ["occlusion"], frame[:6], ["aopc:preset=quick"], **options)
    table = Table.read(frame)
    model = make_model(fitted, table)
    assert model.task.classes
    outputs = model.logits(table.rows)
    np.testing.assert_allclose(
        outputs[:, 1] - outputs[:, 0], fitted.decision_function(frame), rtol=1e-12
    )
    values = found.frame()["value"].to_list()
    assert len(set(values)) == 6


def test_a_binary_task_reads_the_probability_of_class_1() -> None:
    """The logits are log(p / (1 - p)) of `predict_proba`, and not of the class number."""
    frame, score = make_frame(300, 1.0)
    table, target = Table.read(frame), (score > 0).astype(int)
    one = LogisticRegression().fit(frame, target)
    both = MultiOutputClassifier(LogisticRegression()).fit(
        frame, np.stack([target, (frame["c"] > 0.3).astype(int)], 1)
    )
    shares = one.predict_proba(frame)[:, 1:]
    of_labels = np.stack([part[:, 1] for part in both.predict_proba(frame)], 1)
    for estimator, task, own in (
        (one, "binary:output=probability,threshold=0.3", shares),
        (both, "multi_label:output=probability", of_labels),
    ):
        logits = make_model(estimator, table, task=task).logits(table.rows).numpy()
        np.testing.assert_allclose(logits, np.log(own / (1 - own)), atol=1e-6)


def test_a_tuned_threshold_decides_what_is_another_answer() -> None:
    frame, score = make_frame(400, 1.0)
    inner = LogisticRegression()
    fitted = FixedThresholdClassifier(inner, threshold=0.2, response_method="predict_proba")
    fitted.fit(frame, (score > 0.7).astype(int))
    table = Table.read(frame)
    model = make_model(fitted, table)
    assert (model.predict(table.rows).numpy() == fitted.predict(frame)).all()
    options: dict[str, Any] = {
        "reference": frame[50:],
        "sanity": False,
        "progress": False,
        "controls": False,
    }
    changes = standfast.neighbourhoods.TableChanges("any")
    metric = standfast.metrics.WorstCase(changes, event="misclassification", budget=40)
    found = standfast.evaluate(fitted, ["occlusion"], frame[:6], [metric], **options)
    assert set(found.samples["status"]) <= {"ok", "no_answer"}
    assert "0.2, at which the classifier itself decides" in str(found.manifest)


@pytest.mark.parametrize("loss", ["regression", "quantile", "poisson", "huber", "tweedie"])
def test_a_booster_of_another_loss_is_a_regression(loss: str) -> None:
    """A predicted median of a share is no probability of class 1."""
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 2)), columns=["a", "b"])
    share = 1 / (1 + np.exp(-frame["a"] + rng.normal(size=400)))
    options = {"objective": loss, "verbose": -1, "num_leaves": 7}
    fitted = lightgbm.train(options, lightgbm.Dataset(frame, label=share), 20)
    table = Table.read(frame)
    model = make_model(fitted, table)
    assert model.task.name == "regression"
    np.testing.assert_allclose(model.logits(table.rows)[:, 0], fitted.predict(frame), rtol=1e-12)
