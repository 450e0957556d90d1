"""Small models and inputs whose Shapley values tests enumerate."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn


def mlp(features: int, seed: int = 0) -> nn.Module:
    """From flat features to three classes, with interactions."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    ).double()
    for layer in net:
        if isinstance(layer, nn.Linear):
            layer.weight.data *= 2.0
    return net


def rand(*shape: int, seed: int = 0) -> Tensor:
    """Uniform numbers, float64."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shapley_values(worth: Callable[[frozenset[int]], Any], players: int) -> list[Any]:
    """The Shapley value of each player by the definition: a weighted sum over all coalitions of the others."""
    found = []
    for player in range(players):
        rest = [other for other in range(players) if other != player]
        total = 0.0
        for size in range(players):
            share = (
                math.factorial(size) * math.factorial(players - size - 1) / math.factorial(players)
            )
            for some in map(frozenset, combinations(rest, size)):
                total = total + share * (worth(some | {player}) - worth(some))
        found.append(total)
    return found
