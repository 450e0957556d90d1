"""Every registered explainer and metric with a gradient-boosted model of a table: it works, or it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from light import light_metric
from torch import Tensor

import standfast
from standfast.errors import StandfastError
from standfast.metrics.base import metrics

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "tabular.md"

#: what needs predictions alone; everything else must refuse, with a word of why
EXPLAINERS = {
    "centre",
    "context_cite",
    "input_copy",
    "kernel_shap",
    "lime",
    "occlusion",
    "random",
    "rise",
    "shapley_sampling",
}
METRICS = {
    "groundedness",
    "linear_datamodeling_score",
    "reasons",
    "aopc",
    "corruption_curve",
    "data_sensitivity_consistency",
    "local_lipschitz",
    "log_odds",
    "max_sensitivity",
    "misinterpretation_probability",
    "relevance_localisation",
    "seed_agreement",
    "worst_case",
}
REFUSED = {
    "attribution_attack": "attack: expected random_sign or universal, since .* has no gradients",
    "c_eval": "a module, since c_eval needs gradients",
    "c_eval_plot": "a module, since c_eval_plot needs gradients",
    "edges": "images or series for edges",
    "near_affinity": "a module, since near_affinity needs gradients",
    "parameter_sensitivity_consistency": "parameter_sensitivity_consistency needs a module with parameters",
}


@pytest.fixture(scope="module")
def table() -> tuple[standfast.Model, Tensor]:
    """Eight columns in [0, 1], and ten small trees."""
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_breast_cancer
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows, labels = load_breast_cancer(return_X_y=True)
    rows = rows[:, :8]
    rows = (rows - rows.min(0)) / (rows.max(0) - rows.min(0))
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=8, random_state=0).fit(
        rows, labels
    )
    x = torch.tensor(rows[[3, 6, 50]], dtype=torch.float32)
    return standfast.Model.from_callable(model.predict_proba, (0.0, 1.0)), x


@pytest.mark.parametrize("name", [*standfast.explainers.names(), *standfast.metrics.names()])
def test_it_works_or_refuses(table: tuple[standfast.Model, Tensor], name: str) -> None:
    model, x = table
    metric = name in metrics
    works = name in (METRICS if metric else EXPLAINERS)

    def run() -> Tensor | standfast.metrics.Result:
        if not metric:
            return standfast.explainers.get(name)(model, x)
        return light_metric(name)(model, "occlusion" if works else "input_copy", x)

    if not works:
        refused_at_once = not metric and standfast.explainers.explainers[name].needs.module
        said = "one that needs predictions alone" if refused_at_once else ""
        with pytest.raises(StandfastError, match=REFUSED.get(name, said)):
            run()
        return
    found = run()
    if isinstance(found, Tensor):
        assert found.shape == x.shape
        assert bool((found != 0).any())
    else:
        assert found.status == ("ok", "ok", "ok")
        assert not bool(found.value.isnan().any())


def test_the_attack_that_asks_for_predictions_works(table: tuple[standfast.Model, Tensor]) -> None:
    model, x = table
    metric = standfast.metrics.AttributionAttack(
        standfast.LinfBall(0.1), "random_sign", similarities=("pearson",)
    )
    assert metric(model, "occlusion", x).status == ("ok", "ok", "ok")


@pytest.mark.parametrize(("what", "names"), [("Explainers", EXPLAINERS), ("Metrics", METRICS)])
def test_the_page_lists_what_works(what: str, names: set[str]) -> None:
    row = re.search(rf"^\| {what} \| ([^|]+) \|", PAGE.read_text(), re.M)
    assert set(re.findall(r"`(\w+)`", row[1])) == names
