"""Everything registered in a configuration that takes milliseconds, for tests that go through all of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import standfast
from golden import QUICK
from standfast.explainers import Explainer
from standfast.metrics import Metric

#: less of what takes long in the examples of metrics
LIGHTER: dict[str, dict[str, Any]] = {
    "c_eval_plot": {"fractions": (0.1, 0.4)},
    "misinterpretation_probability": {"particles": 20, "moves": 1, "floor": -4.0},
    "near_affinity": {"fractions": (0.3,)},
}
#: less than what golden numbers are recorded with: a batch of one row optimises every mask of it alone
LIGHTER_EXPLAINERS: dict[str, dict[str, Any]] = {
    "context_cite": {"samples": 20},
    "extremal_perturbations": {"steps": 2, "areas": (0.2,)},
    "gradient_shap": {"samples": 3},
    "kernel_shap": {"samples": 20},
    "lime": {"samples": 20},
    "rise": {"samples": 20},
    "shapley_sampling": {"permutations": 2},
    "smoothgrad": {"samples": 3},
}


def light_explainer(name: str) -> Explainer:
    options = {**QUICK.get(name, {}), **LIGHTER_EXPLAINERS.get(name, {})}
    return standfast.explainers.get(name, **options)


def light_metric(name: str) -> Metric:
    return dataclasses.replace(standfast.metrics.metrics[name].example(), **LIGHTER.get(name, {}))
