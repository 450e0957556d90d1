"""The least change of the free features of an input that changes its prediction: what a search for it returns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class MinimalDistortion:
    """The nearest points found at which predictions have changed.

    Attributes:
        distortion: `||inputs' - inputs||`, an upper bound of the least one, `(N,)`. Where none was found, the largest
            distortion that was tried, or infinity where no feature is free; that is not a bound of the true minimum.
        inputs: the points, `(N, ...)`; the inputs themselves where none was found.
        found: bool `(N,)`.
        second: the second smallest distortion among the separate searches of the attack, `(N,)`; infinite where fewer
            than two of them found a change, or the attack has one only. If it is near `distortion`, two searches agree.
        model_evaluations: inputs predicted for each, int `(N,)`.
        gradient_evaluations: how many of these with a gradient, int `(N,)`.
    """

    distortion: Tensor
    inputs: Tensor
    found: Tensor
    second: Tensor
    model_evaluations: Tensor
    gradient_evaluations: Tensor

    @property
    def low(self) -> Tensor:
        """A lower 95% limit of the least distortion `(N,)`, see `estimate_lower_limit`; 0 where nothing is known."""
        return estimate_lower_limit(self.distortion, self.second)


def estimate_lower_limit(distortion: Tensor, second: Tensor, level: float = 0.95) -> Tensor:
    """A lower confidence limit of a minimum, from the two smallest values that separate searches have found.

        low = c - (c' - c) level / (1 - level),    not below 0

    for the smallest value c and the second smallest c'. It is 0 where there is no second value. The limit holds for
    values that are drawn independently from a density that does not vanish at the minimum. Searches are not quite like
    this: all of them may end in the same wrong place. So it is evidence, and no proof; `certified_distortion` proves a
    bound. `docs/c-eval.md` says how often the limit held against much longer searches.

    Source: Robson and Whitlock, "Estimation of a truncation point" (Biometrika 51, 1964).

    >>> estimate_lower_limit(torch.tensor([2.0, 2.0, 2.0]), torch.tensor([2.01, 2.5, torch.inf]))
    tensor([1.81, 0.00, 0.00])
    """
    gap = (second.double() - distortion.double()).clamp(min=0)
    reach = gap * (level / (1 - level))
    low = (distortion.double() - reach).clamp(min=0)
    return torch.where(second.isfinite(), low, 0.0).to(distortion.dtype)
