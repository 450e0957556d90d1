"""Draws that are explained together have the bits of draws that are explained one after another."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import standfast
from standfast.metrics.probe import Call, Probe
from standfast.metrics.reasons.draws import Draws, draw_settings
from standfast.neighbourhoods import LinfBall, TableChanges

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("shap")
    pytest.importorskip("sklearn")

from sklearn.ensemble import RandomForestClassifier


@pytest.mark.parametrize(
    "explainer", ["tree_shap:background=reference", "tree_shap", "kernel_shap:samples=16"]
)
@pytest.mark.parametrize("neighbourhood", [None, LinfBall(0.1), TableChanges(0.1)])
def test_together_as_alone(explainer: str, neighbourhood: LinfBall | TableChanges | None) -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(100, 4))
    forest = RandomForestClassifier(4, max_depth=4, random_state=0).fit(rows, rows[:, 0] > 0)
    x = torch.tensor(rows)
    model = standfast.Model.from_callable(
        forest.predict_proba, (-9.0, 9.0), dtype=torch.float64, reference=x
    )
    inputs = x[:3]
    region = None if neighbourhood is None else neighbourhood.around(inputs, model.bounds)
    settings = draw_settings(5, ["seed", "background", "measurement"], range(4))
    which = torch.tensor([0, 2])
    with model.session():
        call = Call(model, standfast.explainers.get(explainer), inputs, None, None)
        draws = Draws(call, Probe(call), region)
        together = draws.explain(which, settings)
        alone = [draws.explain(which, [setting]) for setting in settings]
    assert together.maps.shape == (2, 4, 4)
    assert torch.equal(together.maps, torch.cat([drawn.maps for drawn in alone], dim=1))
    assert torch.equal(together.kept, torch.cat([drawn.kept for drawn in alone], dim=1))
