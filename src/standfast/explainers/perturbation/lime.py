"""LIME: a linear surrogate of the model around one input."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

import torch

from standfast.explainers.base import explainers
from standfast.explainers.perturbation.coalitions import (
    CoalitionExplainer,
    FittedCoalitions,
    solve_least_squares,
)
from standfast.model import Output
from standfast.records import AtLeastZero, Positive, Range


@explainers.register("lime")
@dataclass(frozen=True)
class LIME(CoalitionExplainer):
    """Coefficients of a weighted ridge regression of the target's probability on which segments are present.

    Ribeiro, Singh and Guestrin, "Why should I trust you?" Explaining the predictions of any model, KDD 2016,
    Equations 1 and 2 and Algorithm 1, without its selection of K features: every segment gets a coefficient.

    A sample keeps each segment with probability 1/2, and the others take the baseline's values. The first sample is the
    input itself. The weight of a sample is `sqrt(exp(-d^2 / kernel_width^2))`, where `d` is one minus the cosine
    between its mask and that of the input. The root, the ridge and the intercept (which is not penalised) are those of
    the authors' package.

    Inputs and attributions `(N, ...)`. Every pixel has its segment's coefficient in all channels, not divided by the
    segment's size, as in the authors' figures and in Captum. So pixels have the same order as their segments, and a sum
    over a segment grows with its size.

    The samples are drawn once for each number of segments, from `seed`, and are the same for all inputs. So the
    explanation is a deterministic function of the input. Equal samples are forwarded once. Not differentiable.

    Args:
        samples: masked copies of an input, itself included, at least 2. With fewer samples than segments, the result
            depends mainly on the ridge.
        segments: the interpretable features: `"auto"`, `"slic"`, `"quickshift"`, `"grid"`, `"windows"`, `"columns"`; a
            number, about how many segments; labels of the spatial shape (see `standfast.segments.segment`); or
            `"pixels"`: each pixel, time step or flat feature is one.
        baseline: the values of masked segments: a number, or one for each channel, in or out of the bounds. By default
            0, and for tables the baseline of the model's reference.
        output: `"probability"`, as in the paper and in its package; or `"logit"`, which does not saturate where the
            model is certain, and which Captum takes from a module that returns logits.
        seed: of the samples.
        segmentation: in metrics that explain perturbed copies: `"each"` copy is segmented by itself, or all have the
            segments of the original input (`"fixed"`).
        per_channel: whether every channel has segments of its own, so that there are as many times more. A number of
            segments is then that of each channel. `"auto"`: only in a metric that looks at single entries of an input
            (`unit="entry"`).
        kernel_width: above 0. The smaller it is, the less samples count that differ much from the input.
        ridge: the penalty, at least 0. At 0, the best coefficients with the smallest norm are taken.

    Raises:
        ArgumentError: an option out of range; in the call, segments that do not fit the inputs.

    >>> from standfast.model import Model
    >>> module = torch.nn.Linear(4, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> model = Model(module, bounds=(0.0, 1.0), device="cpu")
    >>> LIME(output="logit", ridge=0.0)(model, torch.full((1, 4), 0.5), 0).round(decimals=4) + 0.0
    tensor([[ 0.5000, -1.0000,  0.0000,  2.0000]])
    """

    samples: Annotated[int, Range(least=2)] = 200
    output: Output = field(default="probability", kw_only=True)
    kernel_width: Positive = 0.25
    ridge: AtLeastZero = 1.0
    name = "lime"
    has_signs = True
    measures = "contribution"
    dial = "samples"

    @property
    def rows_per_input(self) -> int:
        return self.samples

    def draw_coalitions(self, features: int, device: torch.device) -> FittedCoalitions:
        return _draw_coalitions(
            self.samples, features, self.seed, self.kernel_width, self.ridge, device
        )


@lru_cache(maxsize=64)
def _draw_coalitions(
    samples: int, features: int, seed: int, kernel_width: float, ridge: float, device: torch.device
) -> FittedCoalitions:
    """The coalitions; drawn on the CPU, so that they are the same on every device. Do not write to them."""
    generator = torch.Generator().manual_seed(seed)
    masks = torch.randint(2, (samples, features), generator=generator, dtype=torch.uint8).bool()
    masks[0] = True
    # in sorted order, the mask that keeps everything comes last
    different, counts = torch.unique(masks, dim=0, return_counts=True)
    masks = different.flip(0)
    counts = counts.flip(0)
    design = masks.to(device).double()
    counts = counts.to(device)
    # the cosine of a mask with s of m ones and the mask of ones is sqrt(s / m)
    distance = 1 - (design.sum(1) / features).sqrt()
    # equal samples are forwarded once, and count as often as they were drawn
    kernel = (-(distance**2) / kernel_width**2).exp().sqrt()
    weights = counts * kernel
    # subtracting the weighted means removes the intercept
    centred = design - weights @ design / weights.sum()
    fit = solve_least_squares(centred, weights, ridge)
    return FittedCoalitions.of_masks(masks.to(device), fit)
