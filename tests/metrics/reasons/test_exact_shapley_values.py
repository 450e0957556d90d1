"""Reasons by KernelSHAP beside exact Shapley values, which are enumerated over all coalitions.

With few coalitions the values are biased, not only noisy: more seeds give an interval of their mean that is sure and
wrong. The result says so where there are fewer pairs of coalitions than features.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.explainers import KernelSHAP
from standfast.metrics import Reasons
from standfast.statistics.simultaneous import simultaneous_means
from standfast.tensors import Array

FEATURES = 8
BACKGROUND = torch.rand(5, FEATURES, generator=torch.Generator().manual_seed(1)).double()
ROWS = torch.rand(2, FEATURES, generator=torch.Generator().manual_seed(2)).double()


def make_model(seed: int = 0) -> standfast.Model:
    """A small network, whose features act together."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(FEATURES, 12), nn.Tanh(), nn.Linear(12, 2)).double()
    with torch.no_grad():
        network[0].weight.mul_(6)
        network[2].weight.mul_(4)
    return standfast.Model(network, (0.0, 1.0), device="cpu")


def enumerate_shapley_values(model: standfast.Model, row: Tensor, target: int) -> Array:
    """By the definition: the mean over all coalitions of what a feature adds to the mean score over the background."""
    coalitions = (np.arange(2**FEATURES)[:, None] >> np.arange(FEATURES)) & 1
    kept = torch.from_numpy(coalitions).bool()[:, None]
    copies = torch.where(kept, row, BACKGROUND)
    with torch.no_grad():
        worth = (
            model.forward(copies.flatten(0, 1))[:, target].reshape(2**FEATURES, -1).mean(1).numpy()
        )
    sizes = coalitions.sum(1)
    values = np.zeros(FEATURES)
    for feature in range(FEATURES):
        without = np.flatnonzero(coalitions[:, feature] == 0)
        orders = [
            math.factorial(size) * math.factorial(FEATURES - size - 1) / math.factorial(FEATURES)
            for size in sizes[without].tolist()
        ]
        values[feature] = (orders * (worth[without | (1 << feature)] - worth[without])).sum()
    return values


def explain(samples: int, seeds: range, row: Tensor, target: int) -> Array:
    """The maps of several seeds, `(seeds, F)`."""
    model = make_model()
    maps = [
        KernelSHAP(samples=samples, background=BACKGROUND, seed=seed)(model, row[None], target)
        for seed in seeds
    ]
    return torch.cat(maps).numpy()


def test_all_coalitions_give_the_exact_values() -> None:
    model = make_model()
    target = int(model.predict(ROWS)[0])
    exact = enumerate_shapley_values(model, ROWS[0], target)
    (every,) = explain(2**FEATURES - 2, range(1), ROWS[0], target)
    np.testing.assert_allclose(every, exact, rtol=1e-8, atol=1e-10)


def test_more_seeds_make_the_mean_of_few_coalitions_sure_and_wrong() -> None:
    model = make_model()
    target = int(model.predict(ROWS)[0])
    exact = enumerate_shapley_values(model, ROWS[0], target)
    biases = {}
    for samples in (FEATURES, 2**FEATURES // 2):
        few, many = (
            explain(samples, range(20), ROWS[0], target),
            explain(samples, range(100), ROWS[0], target),
        )
        widths = [np.ptp([means.low, means.high], axis=0) for means in map(estimate, (few, many))]
        assert (widths[1] < 0.6 * widths[0]).all()
        biases[samples] = np.abs(many.mean(0) - exact).max() / np.abs(exact).max()
        means = estimate(many)
        is_sure_and_wrong = bool(((exact < means.low) | (exact > means.high)).any())
        has_fewer_pairs = bool(KernelSHAP(samples=samples).has_too_few_samples(ROWS[:1]).item())
        assert is_sure_and_wrong == has_fewer_pairs == (samples == FEATURES)
    assert biases[FEATURES] > 0.1
    assert biases[2**FEATURES // 2] < 0.02


def estimate(maps: Array) -> Any:
    return simultaneous_means(maps, 0.99, resamples=500)


@pytest.mark.parametrize(("samples", "few"), [(2, True), (15, True), (16, False), (300, False)])
def test_a_result_says_whether_there_are_fewer_pairs_than_features(samples: int, few: bool) -> None:
    explainer = KernelSHAP(samples=samples, background=BACKGROUND)
    result = Reasons(draws=2, top=2)(make_model(), explainer, ROWS)
    assert result.few_samples.tolist() == [few, few]


def test_few_features_with_all_their_coalitions_are_exact() -> None:
    assert KernelSHAP(samples=5).has_too_few_samples(torch.zeros(1, 3)).tolist() == [True]
    assert KernelSHAP(samples=6).has_too_few_samples(torch.zeros(1, 3)).tolist() == [False]
    assert standfast.explainers.get("saliency").has_too_few_samples(
        torch.zeros(2, 30)
    ).tolist() == [False, False]


def test_the_card_says_so() -> None:
    columns = [f"c{number}" for number in range(FEATURES)]
    frame = pd.DataFrame(np.random.default_rng(0).random((30, FEATURES)), columns=columns)

    class Pipeline:
        """What answers as a fitted pipeline does."""

        classes_ = np.array(["no", "yes"])

        def predict_proba(self, rows: pd.DataFrame) -> Array:
            risk = 1 / (1 + np.exp(-(rows.to_numpy() @ np.arange(FEATURES) - 14)))
            return np.stack([1 - risk, risk], axis=1)

    for samples, is_noted in ((10, True), (40, False)):
        found = standfast.reasons(
            Pipeline(),
            f"kernel_shap:samples={samples}",
            frame.head(1),
            reference=frame,
            draws=3,
            progress=False,
        )
        assert any("towards equal" in note for note in found.card(0).notes) == is_noted
