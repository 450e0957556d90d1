"""Code of values: what is evaluated is the value again, and what has no code has none."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import standfast
from standfast.neighbourhoods import Brightness, Compose, Rotation, TableChanges
from standfast.question.spelling import find_public_name, spell, spell_options
from standfast.records import Background

VALUES: list[Any] = [
    None,
    True,
    3,
    0.1,
    'it\'s "quoted"\n',
    [],
    (),
    (1,),
    {"a": [1, (2.5, None)], 3: "b"},
    standfast.LinfBall(8 / 255),
    Rotation(10),
    Compose((Rotation(5), Brightness(0.1))),
    TableChanges({"income": "2%", "town": "category"}),
    standfast.explainers.IntegratedGradients(steps=16),
    standfast.explainers.SmoothGrad(),
    standfast.metrics.WorstCase(standfast.LinfBall(0.1), budget=30),
    standfast.metrics.AOPC(preset="quick"),
    standfast.metrics.WorstCase,
]


@pytest.mark.parametrize("value", VALUES, ids=[str(spell(value)) for value in VALUES])
def test_the_code_makes_the_same_value(value: Any) -> None:
    code = spell(value)
    assert code is not None
    made = eval(code, {"standfast": standfast})
    assert made == value
    assert type(made) is type(value)


def test_options_at_their_defaults_are_left_out() -> None:
    assert (
        spell(standfast.explainers.SmoothGrad(samples=8))
        == "standfast.explainers.SmoothGrad(samples=8)"
    )
    assert spell(standfast.LinfBall(0.1)) == "standfast.LinfBall(0.1)"
    metric = standfast.metrics.WorstCase(standfast.LinfBall(0.1), budget=30)
    assert spell_options(metric, without=["neighbourhood"]) == {"budget": "30"}


class Own:
    """A class of the user's."""


def own_explainer(module: Any, inputs: Any, targets: Any) -> Any:
    return inputs


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        torch.zeros(2),
        Own(),
        Own,
        Background(torch.zeros(2, 3)),
        lambda: None,
        [Own()],
        {1: Own()},
    ],
)
def test_what_has_no_code_has_none(value: Any) -> None:
    assert spell(value) is None


def test_functions_are_their_names() -> None:
    assert spell(own_explainer) == "own_explainer"

    def inner() -> None:
        """Its name means nothing outside."""

    assert spell(inner) is None
    assert find_public_name(Own) is None


def test_an_option_without_code_leaves_the_object_without() -> None:
    shap = standfast.explainers.get("deep_shap", background=torch.zeros(3, 1, 8, 8))
    assert spell(shap) is None
