"""KernelSHAP: Shapley values of an input's segments by weighted least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Annotated

import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.background import count_references
from standfast.explainers.base import explainers
from standfast.explainers.perturbation.coalitions import (
    FittedCoalitions,
    ShapleyExplainer,
    solve_least_squares,
)
from standfast.records import Range
from standfast.tensors import send


@explainers.register("kernel_shap")
@dataclass(frozen=True)
class KernelSHAP(ShapleyExplainer):
    """Shapley values of the segments, by a weighted least squares fit to the scores of masked copies.

    In the game, a coalition of segments is worth the score of the input with all other segments masked: by a baseline,
    or by the rows of a background, over which scores are averaged.

    Lundberg and Lee, A unified approach to interpreting model predictions, NeurIPS 2017, Theorem 2: the minimum of
    `sum over z of k(z) (f(z) - f(0) - sum over i in z of phi_i)^2` subject to `sum of phi = f(1) - f(0)`, with
    `k(z) = (m - 1) / (C(m, s) s (m - s))` for a coalition of `s` out of `m` segments. The constraint always holds
    exactly.

    Which coalitions are used: sizes are taken in pairs `s` and `m - s`, beginning with `s = 1`. They are enumerated in
    full as long as their share of the budget, in proportion to the kernel's mass, is large enough for that. The rest of
    the budget is drawn at random, in pairs of a coalition and its complement, with sizes in proportion to the remaining
    mass. With `samples >= 2^m - 2` all coalitions are used, and the values are exact. With fewer they depend on the
    seed; their bias decreases faster than their spread. With fewer pairs than segments there are many solutions; the
    one nearest to equal values is taken. So the mean over seeds is drawn towards equal values, by more than a tenth of
    the largest one (`has_too_few_samples`).

    Inputs and attributions `(N, ...)`. Every pixel has its segment's value in all channels (or each channel has values
    of its own, `per_channel`), not divided by the segment's size, as in Captum. So pixels have the same order as their
    segments. The values of all segments, counted once each, add up to `f(x) - f(baseline)`; the sum over pixels does
    not.

    The coalitions are drawn once for each number of segments, from `seed`, and are the same for all inputs. So the
    explanation is a deterministic function of the input. Equal coalitions are forwarded once. Not differentiable.

    Args:
        samples: coalitions, at least 2; the input and the baseline are forwarded in addition. With B rows of a
            background, all are forwarded B times.
        segments: the players: `"auto"`, `"slic"`, `"quickshift"`, `"grid"`, `"windows"`, `"columns"`; a number, about
            how many segments; labels of the spatial shape (see `standfast.segments.segment`); or `"pixels"`: each
            pixel, time step or flat feature is a player.
        baseline: the values of masked segments: a number, or one for each channel, in or out of the bounds. By default
            0, and for tables the baseline of the model's reference.
        output: the score: `"logit"`, as for integrated gradients and DeepLift, or `"probability"`.
        seed: of the samples.
        segmentation: in metrics that explain perturbed copies: `"each"` copy is segmented by itself, or all have the
            segments of the original input (`"fixed"`).
        per_channel: whether every channel has segments of its own, so that there are as many times more. A number of
            segments is then that of each channel. `"auto"`: only in a metric that looks at single entries of an input
            (`unit="entry"`).
        background: reference inputs `(B, ...)` in place of the baseline. By default, for tables, rows of the model's
            reference where it has one.

    Raises:
        ArgumentError: an option out of range; in the call, segments that do not fit the inputs.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(4, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> KernelSHAP()(model, torch.full((1, 4), 0.5), 0).round(decimals=4) + 0.0
    tensor([[ 0.5000, -1.0000,  0.0000,  2.0000]])
    """

    samples: Annotated[int, Range(least=2)] = 200
    name = "kernel_shap"
    has_signs = True
    measures = "contribution"
    dial = "samples"
    draft_share = 0.25

    @property
    def rows_per_input(self) -> int:
        return (self.samples + 2) * count_references(self.background)

    def has_too_few_samples(self, inputs: Tensor) -> Tensor:
        """Whether there are fewer pairs of coalitions than segments."""
        _, counts = self.label_places(inputs)
        has_fewer = [self._has_fewer_pairs(count) for count in counts]
        return send(has_fewer, inputs.device, torch.bool)

    def _has_fewer_pairs(self, features: int) -> bool:
        all_coalitions: int = 2**features - 2
        return self.samples < min(2 * features, all_coalitions)

    def draw_coalitions(self, features: int, device: torch.device) -> FittedCoalitions:
        check(features >= 2, "segments", "at least 2 segments", features)
        return _draw_coalitions(self.samples, features, self.seed, device)


@lru_cache(maxsize=64)
def _draw_coalitions(
    samples: int, features: int, seed: int, device: torch.device
) -> FittedCoalitions:
    """The coalitions; drawn on the CPU, so that they are the same on every device. Do not write to them."""
    generator = torch.Generator().manual_seed(seed)
    masks, weights = draw_shapley_coalitions(samples, features, generator)
    masks = masks.to(device)
    weights = weights.to(device)
    share = masks.double().mean(1)[:, None]
    # phi = (f(1) - f(0)) / m + u, where u adds up to 0 and is fitted to f(z) - f(0) - share (f(1) - f(0))
    inner = solve_least_squares(masks.double() - share, weights)
    inner = inner - inner.mean(0)  # it adds up to 0 already, up to rounding
    even = torch.full((features, 1), 1 / features, dtype=torch.float64, device=device)
    # f(z) - f(0) - share (f(1) - f(0)) contains f(1) times -share, and f(0) times share - 1
    full = even - inner @ share
    empty = -even - inner @ (1 - share)
    ends = torch.tensor([[True], [False]], device=device).expand(2, features)
    all_masks = torch.cat([ends, masks])
    return FittedCoalitions.of_masks(all_masks, torch.cat([full, empty, inner], 1))


def draw_shapley_coalitions(
    samples: int, features: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Different coalitions of m features, neither full nor empty: bool `(R, m)`, and their weights, float64 `(R,)`.

    R is at most `samples`. The weights estimate the kernel; where all coalitions of a size are enumerated, they are the
    kernel.

    >>> masks, weights = draw_shapley_coalitions(6, 3, torch.Generator())
    >>> masks.sum(1).tolist(), weights.tolist()
    ([1, 1, 1, 2, 2, 2], [0.333, 0.333, 0.333, 0.333, 0.333, 0.333])
    """
    m = features
    halves = range(1, m // 2 + 1)
    sizes: dict[int, int] = {}
    masses: dict[int, float] = {}
    for s in halves:
        # each size together with the size of its complements
        sides = 1 if 2 * s == m else 2
        sizes[s] = math.comb(m, s) * sides
        # C(m, s) times the kernel: the mass of all coalitions of a size
        masses[s] = (m - 1) / (s * (m - s)) * sides
    left = samples
    mass = sum(masses.values())
    masks = [torch.zeros(0, m, dtype=torch.bool)]
    weights = [torch.zeros(0, dtype=torch.float64)]
    for s in halves:
        # rounding must not keep a size out that fits exactly
        if left * masses[s] < sizes[s] * mass * (1 - 1e-9):
            break
        members = torch.tensor(list(combinations(range(m), s)))
        small = torch.zeros(len(members), m, dtype=torch.bool)
        small.scatter_(1, members, True)
        masks.append(small)
        if 2 * s != m:
            masks.append(~small)
        weight = masses[s] / sizes[s]
        weights.append(torch.full((sizes[s],), weight, dtype=torch.float64))
        left -= sizes[s]
        mass -= masses.pop(s)
    pairs = left // 2
    if masses and pairs:
        drawn, counts = _draw_pairs(pairs, m, masses, generator)
        masks.append(drawn)
        # what was drawn shares the mass that is left
        weights.append(counts * (mass / (2 * pairs)))
    return torch.cat(masks), torch.cat(weights)


def _draw_pairs(
    pairs: int, features: int, masses: dict[int, float], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Random coalitions and their complements, and how often each was drawn."""
    # sizes at equal steps through their distribution, from a random start: less noise than independent draws
    masses_of_sizes = torch.tensor(list(masses.values()), dtype=torch.float64)
    shares = masses_of_sizes.cumsum(0)
    offset = torch.rand(1, generator=generator, dtype=torch.float64)
    steps = (torch.arange(pairs) + offset) / pairs * shares[-1]
    numbers = torch.searchsorted(shares, steps).clamp(max=len(masses) - 1)
    sizes = torch.tensor(list(masses))[numbers]
    uniform = torch.rand(pairs, features, generator=generator, dtype=torch.float64)
    order = uniform.argsort(1)
    is_member = torch.arange(features) < sizes[:, None]
    small = torch.zeros(pairs, features, dtype=torch.bool)
    small.scatter_(1, order, is_member)
    both = torch.cat([small, ~small])
    drawn, counts = torch.unique(both, dim=0, return_counts=True)
    return drawn, counts
