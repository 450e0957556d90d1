"""SenC: the paper's numbers and sentences; the other readings of its sums equal loops with scipy, on known weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from papers.files import read_numbers
from papers.senc.readings import average_over_masks, divide_by_mask_sums
from papers.senc.tables import PARTS
from standfast.algorithms.masks.random_masks import draw_masks, measure_consistency
from standfast.tensors import Streams

CPU = torch.device("cpu")
NAMES = ("mnist", "cifar10", "gtsrb")


def test_numbers_are_the_papers() -> None:
    numbers = read_numbers("senc/figures4and5.csv")
    assert tuple(numbers) == (
        "mnist-data",
        "cifar10-data",
        "gtsrb-data",
        *(f"{n}-parameters" for n in NAMES),
    )
    assert numbers["cifar10-data"] == {
        "LRP": -0.012,
        "Grad-CAM": 0.052,
        "DeepLift": 0.351,
        "random": "about 0",
    }
    assert numbers["mnist-parameters"]["integrated gradients"] == 0.32
    assert numbers["mnist-data"]["saliency"] == "> 0.6"


def test_sentences_are_judged_by_the_means() -> None:
    first, chance, random = PARTS["cifar10-data"].claims
    assert [first.holds({"DeepLift": x, "LRP": 0.2, "edges": 0.9}) for x in (0.3, 0.1)] == [
        True,
        False,
    ]
    assert [chance.holds({"LRP": -0.05, "Grad-CAM": x}) for x in (0.05, -0.2, math.nan)] == [
        True,
        False,
        None,
    ]
    assert [random.holds(means) for means in ({"random": 0.09}, {"random": -0.2}, {})] == [
        True,
        False,
        None,
    ]
    above = PARTS["gtsrb-parameters"].claims[0]
    for lower, expected in ((0.2, True), (0.12, False), (math.nan, None)):
        assert (
            above.holds({"integrated gradients": 0.5, "DeepLift": lower, "random": -0.1})
            is expected
        )
    last = PARTS["mnist-data"].claims[0]
    means = dict.fromkeys(
        ("saliency", "guided backprop", "integrated gradients", "DeepLift", "LRP"), 0.7
    )
    for changed, expected in (({"Grad-CAM": 0.3}, True), ({"Grad-CAM": 0.9}, False), ({}, None)):
        assert last.holds({**means, **changed}) is expected
    assert last.holds({**means, "LRP": 0.5, "Grad-CAM": 0.3}) is False


def test_division_by_the_mask_sums_equals_a_loop() -> None:
    streams = Streams([1, 2], CPU)
    masks, weights = draw_masks(30, 4, 0.7, streams), streams.normal((30,), torch.float64)
    found = divide_by_mask_sums(weights, masks)
    for problem in range(2):
        for feature in range(4):
            kept = [float(weights[problem, i]) for i in range(30) if masks[problem, i, feature]]
            assert found[problem, feature].item() == pytest.approx(np.mean(kept), abs=1e-12)


def test_the_average_over_masks_equals_a_loop_over_pixels() -> None:
    streams, sizes = Streams([3], CPU), torch.tensor([5, 2, 7, 1])
    masks = draw_masks(25, 4, 0.7, streams)[0]
    weights = [0.3 + 0.5 * streams.normal((25,), torch.float64)[0] for _ in range(2)]
    sums, rhos = [np.zeros(15), np.zeros(15)], []
    for i in range(25):
        image = np.repeat(masks[i].numpy(), sizes.numpy())
        for total, weight in zip(sums, weights, strict=True):
            total += float(weight[i]) * image
        if all(np.ptp(total) > 0 for total in sums):
            rhos.append(scipy.stats.spearmanr(*sums).statistic)
    assert 0 < np.mean(rhos) < 0.95  # the weights differ enough to tell orders apart
    assert average_over_masks(*weights, masks, sizes).item() == pytest.approx(
        np.mean(rhos), abs=1e-12
    )


def test_what_the_readings_make_of_unrelated_weights() -> None:
    """Division by the mask sums has no bias; the average over masks has the bias of the published sum."""
    runs, count, features = 60, 1000, 20
    streams = Streams(range(runs), CPU)
    masks = draw_masks(count, features, 0.8, streams)
    weights = [mean + 0.1 * streams.normal((count,), torch.float64) for mean in (0.9, 0.5)]
    divided = [divide_by_mask_sums(each, masks).numpy() for each in weights]
    rhos = [scipy.stats.spearmanr(a, b).statistic for a, b in zip(*divided, strict=True)]
    assert abs(np.mean(rhos)) < 4 * np.std(rhos) / runs**0.5
    averages = [
        average_over_masks(weights[0][r], weights[1][r], masks[r], torch.ones(features))
        for r in range(6)
    ]
    assert np.mean(averages) > 0.9


def test_the_published_sum_may_be_low_for_perfectly_consistent_weights() -> None:
    """Both weights are linear in the mask, with positive effects in the same order: the true rho is exactly 1."""
    streams = Streams(range(40), CPU)
    masks = draw_masks(5000, 20, 0.8, streams)
    effects = (1 + torch.arange(20, dtype=torch.float64)) / 210
    change = (~masks).to(torch.float64) @ effects  # 0.2 on average
    prediction, explanation = 1 - 0.05 * change, 0.15 - change
    for estimator, least, most in (("centred", 0.99, 1.0), ("paper", -0.5, 0.2)):
        options: Any = {"estimator": estimator, "permutations": 0, "resamples": 0}
        found = measure_consistency(torch.stack([prediction, explanation]), masks, **options)
        assert least < found.rho.mean() <= most
