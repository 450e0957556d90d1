"""`standfast.background_curve`: linear models, whose Shapley values are known for every background."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import standfast
from standfast.reason_cards import BackgroundCurve, BackgroundSize, background_curve

WEIGHTS = np.array([3.0, -2.0, 2.2, 1.0])
ROWS = torch.rand(600, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
INPUTS = torch.tensor([[0.7, 0.8, 0.35, 0.6], [0.1, 0.45, 0.55, 0.9]], dtype=torch.float64)


def make_model() -> standfast.Model:
    layer = nn.Linear(4, 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(np.stack([np.zeros(4), WEIGHTS])))
        layer.bias.copy_(torch.tensor([0.0, 9.0]))
    return standfast.Model(layer, (0.0, 1.0), device="cpu")


def measure(**options: Any) -> BackgroundCurve:
    asked = {
        "explainer": "kernel_shap",
        "inputs": INPUTS,
        "reference": ROWS,
        "top": 2,
        "pairs": 60,
        **options,
    }
    return background_curve(asked.pop("model", make_model()), **asked)


@cache
def simulate(size: int, pairs: int = 2000) -> float:
    """How often two backgrounds name the same two features: Shapley values are w_i (x_i - mean of the rows)."""
    generator, rows = np.random.default_rng(0), ROWS.numpy()
    same = 0
    for _ in range(pairs):
        chosen = generator.permutation(len(rows))[: 2 * size].reshape(2, size)
        values = WEIGHTS * (INPUTS.numpy() - rows[chosen].mean(1)[:, None])  # (2, inputs, features)
        is_named = np.abs(values) >= -np.sort(-np.abs(values), axis=2)[..., 1:2]
        signed = is_named * np.sign(values)
        same += int((signed[0] == signed[1]).all(1).sum())
    return same / (pairs * len(INPUTS))


def test_shares_are_those_of_the_known_shapley_values() -> None:
    curve = measure(pairs=40)
    assert curve.frame()["rows"].to_list() == [8, 16, 32, 64, 128]
    for size in curve.sizes:
        expected = simulate(size.rows)
        # no more than if all inputs were hit together
        deviation = np.sqrt(expected * (1 - expected) / size.pairs)
        assert abs(size.same - expected) < 4 * deviation
    assert curve.sizes[0].same < 0.7
    assert curve.sizes[-1].same > 0.97


def test_the_same_decision_eight_times_says_no_more_than_once() -> None:
    """Both backgrounds of a pair explain all decisions, so pairs are what counts."""
    once, often = (
        measure(inputs=INPUTS[:1].repeat(count, 1), sizes=(0.25,), pairs=40).sizes[0]
        for count in (1, 8)
    )
    assert (once.decisions, often.decisions) == (1, 8)
    assert 0 < once.same < 1
    assert (often.same, often.low, often.high) == pytest.approx((once.same, once.low, once.high))


def test_a_reason_that_speaks_the_other_way_is_another_one() -> None:
    """The first feature is at the mean of all rows: it speaks for the answer with about half of the backgrounds."""
    inputs = torch.cat([ROWS.mean(0)[:1], torch.full((3,), 0.5, dtype=torch.float64)])[None]
    layer = nn.Linear(4, 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 0.0]]))
    curve = measure(
        model=standfast.Model(layer, (0.0, 1.0), device="cpu"), inputs=inputs, top=1, sizes=(1,)
    )
    assert curve.sizes[0].low < 0.5 < curve.sizes[0].high


def test_few_rows_are_drawn_with_replacement() -> None:
    curve = measure(reference=ROWS[:40], sizes=(0.5, 1), pairs=4)
    assert [size.with_replacement for size in curve.sizes] == [False, True]


def test_an_own_background_says_how_many_rows_are_usual() -> None:
    explainer = standfast.explainers.KernelSHAP(background=ROWS[:10])
    curve = measure(explainer=explainer, sizes=(1, 2), pairs=3)
    assert curve.usual == 10
    assert curve.frame()["rows"].to_list() == [10, 20]
    alone = measure(explainer=explainer, reference=None, inputs=INPUTS, sizes=(1,), pairs=3)
    assert alone.sizes[0].with_replacement


def test_the_same_seed_gives_the_same_curve_and_another_one_another() -> None:
    first, again, other = (measure(sizes=(0.25,), pairs=20, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_trees_of_a_frame() -> None:
    pytest.importorskip("shap")
    ensemble = pytest.importorskip("sklearn.ensemble")
    frame = pd.DataFrame(ROWS.numpy(), columns=list("abcd"))
    labels = (ROWS.numpy() @ WEIGHTS > 2).astype(int)
    forest = ensemble.RandomForestClassifier(5, max_depth=3, random_state=0).fit(frame, labels)
    asked: dict[str, Any] = {"reference": frame, "sizes": (0.25, 2), "pairs": 20, "top": 2}
    curve = background_curve(forest, "tree_shap:background=reference", frame.iloc[:3], **asked)
    assert [size.decisions for size in curve.sizes] == [3, 3]
    assert curve.sizes[0].same <= curve.sizes[1].same
    with pytest.raises(standfast.ArgumentError, match="depend on none"):
        background_curve(forest, "tree_shap", frame.iloc[:3], **asked)


def make_curve(*lows: float) -> BackgroundCurve:
    sizes = [
        BackgroundSize(8 * 2**n, (1 + low) / 2, low, 1.0, 50, 1, False)
        for n, low in enumerate(lows)
    ]
    return BackgroundCurve(tuple(sizes), usual=16, top=4, demand=0.9)


def test_enough_is_the_size_from_which_on_the_demand_is_met() -> None:
    assert make_curve(0.5, 0.95, 0.97).enough == 16
    assert make_curve(0.95, 0.5, 0.97).enough == 32
    assert make_curve(0.5, 0.6, 0.7).enough is None
    assert make_curve(0.5, 0.6, 0.7).recommend().startswith("Up to 32 rows are not enough")
    assert make_curve(0.5, 0.6, 0.85).recommend().startswith("32 rows may be enough")
    assert "as the explainer takes" in str(make_curve(0.5, 0.95))


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"sizes": ()}, "sizes"),
        ({"sizes": (0,)}, "sizes"),
        ({"demand": 1.0}, "demand"),
        ({"pairs": 0}, "pairs"),
        ({"top": 0}, "top"),
        ({"explainer": "saliency"}, "explainer"),
        ({"explainer": ["kernel_shap", "saliency"]}, "explainer"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], argument: str) -> None:
    with pytest.raises(standfast.ArgumentError, match=argument):
        measure(**options)
