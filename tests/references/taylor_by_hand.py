"""Deep Taylor decomposition by the paper's formulas, unit after unit, and small networks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import standfast

Function = Callable[[Tensor], Tensor]


def batch(shape: tuple[int, ...], count: int = 5, seed: int = 0) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def of(module: nn.Module, bounds: tuple[Any, Any] = (0.0, 1.0), **options: Any) -> standfast.Model:
    return standfast.Model(module.double().eval(), bounds=bounds, device="cpu", batch_size=64, **options)


class Net(nn.Module):
    """A function, in double precision."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function, self.unused = function, nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def seeded(*layers: Callable[[], nn.Module], seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(*(layer() for layer in layers)).double().eval().requires_grad_(False)


# ---------------------------------------------------------------- the formulas, one unit after the other


def matrix(layer: Function, shape: torch.Size) -> np.ndarray:
    """`w_ij` of a linear layer without its bias, (inputs, outputs), by a look at it from every input."""
    basis = torch.eye(int(np.prod(shape)), dtype=torch.float64).reshape(-1, *shape)
    with torch.no_grad():
        return (layer(basis) - layer(0 * basis)).flatten(1).numpy()


def z_plus(a: np.ndarray, w: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    """Sec. 5.1; for values below zero too, all products above zero."""
    found = np.zeros_like(a)
    for j in range(w.shape[1]):
        products = [max(a[i] * w[i, j], 0.0) for i in range(len(a))]
        total = sum(products)
        for i in range(len(a)):
            found[i] += products[i] / total * relevance[j] if total > 0 else 0.0
    return found


def z_box(x: np.ndarray, low: np.ndarray, high: np.ndarray, w: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    """The z^B rule."""
    found = np.zeros_like(x)
    for j in range(w.shape[1]):
        q = [x[i] * w[i, j] - low[i] * max(w[i, j], 0) - high[i] * min(w[i, j], 0) for i in range(len(x))]
        for i in range(len(x)):
            found[i] += q[i] / sum(q) * relevance[j] if sum(q) > 0 else 0.0
    return found


def average(a: np.ndarray, w: np.ndarray, relevance: np.ndarray) -> np.ndarray:
    """In proportion to the terms, of which those of the other sign than the sum get nothing."""
    found = np.zeros_like(a)
    for j, total in enumerate(a @ w):
        terms = [max(np.sign(total) * a[i] * w[i, j], 0.0) for i in range(len(a))]
        for i in range(len(a)):
            found[i] += terms[i] / sum(terms) * relevance[j] if sum(terms) > 0 else 0.0
    return found


class Mean(Net):
    """A function that takes weighted means or sums of hidden values."""


def winners(pool: nn.Module, a: Tensor, relevance: np.ndarray) -> np.ndarray:
    """All of a maximum's relevance to where it is."""
    _, places = F.max_pool2d(a[None], pool.kernel_size, pool.stride, return_indices=True)
    found = np.zeros(a.shape).reshape(len(a), -1)
    for channel, where in enumerate(places[0].flatten(1)):
        for i, place in enumerate(where):
            found[channel, place] += relevance.reshape(len(a), -1)[channel, i]
    return found.flatten()


def by_hand(layers: Sequence[nn.Module], x: Tensor, target: int, low: float, high: float) -> Tensor:
    """The map of one input `x` (without a batch), layer by layer from the last."""
    values = [x]
    for layer in layers:
        with torch.no_grad():
            values.append(layer(values[-1][None])[0])
    relevance = np.zeros(len(values[-1]))
    relevance[target] = values[-1][target]
    for number in reversed(range(len(layers))):
        layer, before = layers[number], values[number]
        a = before.flatten().numpy()
        if isinstance(layer, nn.MaxPool2d):
            relevance = winners(layer, before, relevance)
        elif isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d | nn.AvgPool2d | Mean):
            w = matrix(layer, before.shape)
            ends = np.full_like(a, low), np.full_like(a, high)
            rule = average if isinstance(layer, nn.AvgPool2d | Mean) else z_plus
            relevance = z_box(a, *ends, w, relevance) if number == 0 else rule(a, w, relevance)
        else:
            assert isinstance(layer, nn.ReLU | nn.Tanh | nn.LeakyReLU | nn.Softplus | nn.Flatten)
    return torch.from_numpy(relevance).reshape(x.shape)


def linear(inputs: int, outputs: int) -> Callable[[], nn.Module]:
    return lambda: nn.Linear(inputs, outputs)


NETWORKS = {
    "flat": ((6,), lambda: seeded(linear(6, 9), nn.ReLU, linear(9, 7), nn.ReLU, linear(7, 3))),
    "tanh": ((6,), lambda: seeded(linear(6, 9), nn.Tanh, linear(9, 7), nn.LeakyReLU, linear(7, 3))),
    "softplus": ((6,), lambda: seeded(linear(6, 9), nn.Softplus, linear(9, 7), nn.Softplus, linear(7, 3))),
    "images": (
        (2, 6, 6),
        lambda: seeded(
            *(lambda: nn.Conv2d(2, 4, 3, padding=1), nn.ReLU, lambda: nn.MaxPool2d(2)),
            *(lambda: nn.Conv2d(4, 5, 2), nn.ReLU, lambda: nn.AvgPool2d(2, stride=1, padding=1), nn.Flatten),
            linear(45, 3),
        ),
    ),
    "overlapping": (
        (1, 5, 5),
        lambda: seeded(
            *(lambda: nn.Conv2d(1, 4, 3, stride=2, padding=2, dilation=2), nn.ReLU, lambda: nn.MaxPool2d(2, stride=1)),
            *(lambda: nn.Conv2d(4, 4, 2, groups=2), nn.Tanh, lambda: nn.ConvTranspose2d(4, 2, 2, groups=2), nn.ReLU),
            *(nn.Flatten, linear(8, 3)),
        ),
    ),
    "series": (
        (3, 12),
        lambda: seeded(
            *(lambda: nn.Conv1d(3, 4, 5), nn.ReLU, lambda: nn.Conv1d(4, 4, 3, padding=1), nn.ReLU, nn.Flatten),
            linear(32, 3),
        ),
    ),
}
