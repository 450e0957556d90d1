"""XGBoost with early stopping: the contributions are those of the trees that predict."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import standfast
from standfast.frames import Table, make_model


@pytest.mark.parametrize("kind", ["XGBClassifier", "XGBRegressor"])
def test_contributions_end_at_the_best_round(kind: str) -> None:
    pytest.importorskip("shap")
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(600, 2)), columns=["a", "b"])
    noisy = frame["a"] + 0.5 * frame["b"] + rng.normal(size=600)
    y = (noisy > 0).astype(int) if kind == "XGBClassifier" else noisy
    fitted = getattr(xgboost, kind)(
        n_estimators=300, early_stopping_rounds=5, max_depth=4, learning_rate=0.3
    )
    fitted.fit(frame[:300], y[:300], eval_set=[(frame[300:], y[300:])], verbose=False)
    assert fitted.best_iteration + 1 < fitted.get_booster().num_boosted_rounds()
    rounds = (0, fitted.best_iteration + 1)
    values = fitted.get_booster().predict(
        xgboost.DMatrix(frame[:8]), pred_contribs=True, iteration_range=rounds
    )
    values = values[:, :-1]
    if kind == "XGBClassifier":
        values = np.where(fitted.predict(frame[:8])[:, None] == 1, values, -values)
    table = Table.read(frame[50:], frame[:8])
    maps = standfast.explainers.get("tree_shap")(make_model(fitted, table), table.encode(frame[:8]))
    np.testing.assert_allclose(maps, values, rtol=0, atol=1e-5)
