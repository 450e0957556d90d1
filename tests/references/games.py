"""Small models and inputs whose Shapley values tests enumerate."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def mlp(features: int, seed: int = 0) -> nn.Module:
    """From flat features to three classes, with interactions."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)).double()
    for layer in net:
        if isinstance(layer, nn.Linear):
            layer.weight.data *= 2.0
    return net


def rand(*shape: int, seed: int = 0) -> Tensor:
    """Uniform numbers, float64."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
