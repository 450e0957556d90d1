"""Retrained models in a study: how many draws a model has may not depend on what its draws show."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import standfast
from standfast.metrics import Reasons
from standfast.neighbourhoods import LinfBall
from standfast.results.stored_reasons import Place, read_card
from standfast.statistics.clusters import clustered_interval
from standfast.statistics.reasons import schedule_looks


def make_linear(weights: list[float]) -> standfast.Model:
    """A model whose class 1 has these weights, and whose class 0 has none."""
    layer = torch.nn.Linear(len(weights), 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0] * len(weights), weights]))
        layer.bias.copy_(torch.tensor([0.0, 5.0]))
    return standfast.Model(layer, (0.0, 1.0), device="cpu")


def test_of_each_model_the_draws_of_its_first_look_count() -> None:
    """Of two products of weights and uniform inputs, the first is the larger one in about nine of ten draws."""
    models = {
        f"model {number}": make_linear([1.0, weight])
        for number, weight in enumerate((0.1, 0.2, 0.22, 0.9))
    }
    metric = Reasons(LinfBall(0.5), top=1, draws=150)
    rows = torch.full((1, 2), 0.5)
    found = standfast.evaluate(
        models,
        ["input_x_gradient"],
        rows,
        {"reasons": metric},
        controls=False,
        sanity=False,
        progress=False,
    )
    names = list(models)
    drawn = [found.metric_results(*pair, "reasons").frame["drawn"].item() for pair in found.pairs]
    first, *_ = schedule_looks(150)
    assert min(drawn) == first < max(drawn)
    place = Place(found.pairs[0][0], names[0], "input_x_gradient", 0)
    card = read_card(found, place, dict.fromkeys(names[1:], found))
    assert card.drawn == 3 * first
    hits, draws = [], []
    for name in names[1:]:
        sample = found.metric_results(place.data, name, "reasons").load_sample(
            "input_x_gradient", 0, ["draw_maps"]
        )
        assert sample is not None
        maps = sample.arrays["draw_maps"][:first]
        hits.append(int((maps[:, 0] > maps[:, 1]).sum()))
        draws.append(first)
    assert card.reasons[0].probability == pytest.approx(sum(hits) / sum(draws))
    low, high = clustered_interval(np.array(hits), np.array(draws), 0.9)
    assert (card.reasons[0].probability_low, card.reasons[0].probability_high) == pytest.approx(
        (low, high)
    )
