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


def light_explainer(name: str) -> Explainer:
    return standfast.explainers.get(name, **QUICK.get(name, {}))


def light_metric(name: str) -> Metric:
    return dataclasses.replace(standfast.metrics.metrics[name].example(), **LIGHTER.get(name, {}))
