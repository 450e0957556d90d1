"""LIME: a linear model of the classifier around one input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch

from holdfast.errors import check
from holdfast.explainers.perturbation.coalitions import CoalitionExplainer, Coalitions, solve_least_squares
from holdfast.explainers.perturbation.copies import Output


@dataclass(frozen=True)
class LIME(CoalitionExplainer):
    """Coefficients of a weighted ridge regression of the target's probability on which segments are there.

    Ribeiro, Singh and Guestrin, "Why should I trust you?" Explaining the predictions of any classifier, KDD 2016,
    Equations 1 and 2 and Algorithm 1, without its selection of K features: every segment gets its coefficient.
    A sample keeps each segment with probability 1/2, the others take the baseline's values; the first sample is the
    input itself. With `d` one minus the cosine between a sample's mask and that of the input, its weight is
    `sqrt(exp(-d^2 / kernel_width^2))`, root and all as in the authors' package, and ridge and intercept are theirs too
    (the intercept is not penalised). Inputs and attributions `(N, ...)`: every pixel, in all channels, has the
    coefficient of its segment, not divided by the segment's size, as in the authors' figures and in Captum. So pixels
    rank as their segments do, and a sum over a segment grows with its size.

    The samples are drawn once for each number of segments, from `seed`, and shared by all inputs: the explanation is a
    deterministic function of the input. Samples that are equal are forwarded once. No derivative.

    Args:
        samples: masked copies of an input, itself included, at least 2. With fewer than segments the ridge decides.
        segments: the interpretable features: `"auto"`, `"slic"`, `"quickshift"`, `"grid"`, `"windows"`, `"columns"`,
            about how many segments, or labels of the spatial shape (see `holdfast.segments.segment`); `"pixels"` makes
            every pixel, point in time or flat feature its own.
        baseline: what masked segments show: a number, or one for each channel, in or out of the bounds.
        output: `"probability"`, as in the paper and in its package, or `"logit"`, which does not saturate where the
            model is sure, and is what Captum takes from a module that returns logits.
        seed: of the samples.
        segmentation: of a disturbed copy in a metric: `"each"` copy is cut anew, or `"fixed"`, with the segments of the
            undisturbed input.
        kernel_width: above 0; small values trust only samples near to the input.
        ridge: the penalty, at least 0. At 0 the smallest of the best coefficients are taken.

    Raises:
        ArgumentError: an option out of range; in the call, segments that do not fit the inputs.

    >>> from holdfast.model import Classifier
    >>> module = torch.nn.Linear(4, 2, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[1.0, -2.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> classifier = Classifier(module, bounds=(0.0, 1.0), device="cpu")
    >>> LIME(output="logit", ridge=0.0)(classifier, torch.full((1, 4), 0.5), 0).round(decimals=4) + 0.0
    tensor([[ 0.5000, -1.0000,  0.0000,  2.0000]])
    """

    output: Output = "probability"
    kernel_width: float = 0.25
    ridge: float = 1.0
    name: ClassVar[str] = "lime"

    def __post_init__(self) -> None:
        super().__post_init__()
        fine = isinstance(self.kernel_width, int | float) and 0 < self.kernel_width < float("inf")
        check(fine, "kernel_width", "a finite number above 0", repr(self.kernel_width))
        fine = isinstance(self.ridge, int | float) and 0 <= self.ridge < float("inf")
        check(fine, "ridge", "a finite number of at least 0", repr(self.ridge))

    @property
    def rows_per_input(self) -> int:
        return self.samples

    def coalitions(self, features: int, device: torch.device) -> Coalitions:
        return _draw_coalitions(self.samples, features, self.seed, self.kernel_width, self.ridge, device)


@lru_cache(maxsize=64)
def _draw_coalitions(
    samples: int, features: int, seed: int, kernel_width: float, ridge: float, device: torch.device
) -> Coalitions:
    """Made on the CPU so that they are the same on every device; never written to."""
    generator = torch.Generator().manual_seed(seed)
    masks = torch.randint(2, (samples, features), generator=generator, dtype=torch.uint8).bool()
    masks[0] = True
    # sorted, the mask that keeps everything is the last
    masks, counts = (t.flip(0) for t in torch.unique(masks, dim=0, return_counts=True))
    design = masks.double()
    distance = 1 - (design.sum(1) / features).sqrt()
    weights = counts * (-(distance**2) / kernel_width**2).exp().sqrt()
    # with the weighted means taken out, the intercept is too
    centred = design - weights @ design / weights.sum()
    fit = solve_least_squares(centred, weights, ridge)
    return Coalitions(masks, fit).to(device)
