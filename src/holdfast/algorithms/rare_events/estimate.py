"""What the rare-event estimators share: the form of a score, and the result that they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.distributions import beta_quantile, t_quantile
from holdfast.errors import ArgumentError, check

Score = Callable[..., Tensor]


@dataclass(frozen=True)
class Levels:
    """The levels of one problem's run: the curve of ln P against the threshold, which costs nothing extra.

    Attributes:
        stage: the column of the score that the level belongs to, int `(L,)`.
        threshold: the level of that column; 0 is the stage's failure threshold. `(L,)`
        log_probability: ln P(score at or above the level), `(L,)`.
        std_error: of `log_probability`, `(L,)`.
        acceptance: share of accepted moves after the level (NaN where none were made), `(L,)`.
    """

    stage: Tensor
    threshold: Tensor
    log_probability: Tensor
    std_error: Tensor
    acceptance: Tensor


@dataclass(frozen=True)
class RareEventEstimate:
    """ln P for each of P problems, with standard errors that allow for dependent particles.

    Attributes:
        log_probability: natural logarithm of the probability; where `censored`, an upper bound. `(P,)`
        std_error: standard error of `log_probability`; NaN where `censored`. `(P,)`
        censored: the run stopped before the event was reached: below the floor, without a single hit, or
            on a plateau of equal scores. `(P,)` bool
        stalled: it stopped because of such a plateau, or of the limit on levels. `(P,)` bool
        acceptance: share of accepted moves over the whole run; NaN without moves. `(P,)`
        model_evaluations: scores computed. int `(P,)`
        levels: the levels of each problem; empty for plain Monte Carlo.
        extreme: the input of the last population that is nearest to the event or deepest in it, `(P, *shape)`.
        degrees: degrees of freedom of `std_error`, for the interval's t quantile; `inf`: normal. `(P,)`
        hits, samples: plain Monte Carlo's counts, `(P,)` and a number; None otherwise.
    """

    log_probability: Tensor
    std_error: Tensor
    censored: Tensor
    stalled: Tensor
    acceptance: Tensor
    model_evaluations: Tensor
    levels: tuple[Levels, ...]
    extreme: Tensor
    degrees: Tensor
    hits: Tensor | None = None
    samples: int | None = None

    def interval(self, level: float = 0.95) -> Tensor:
        """Confidence interval for ln P, `(P, 2)`; from minus infinity where `censored`.

        Clopper-Pearson for plain Monte Carlo; otherwise `log_probability` plus and minus a t quantile of `std_error`.
        """
        check(0 < level < 1, "level", "a number between 0 and 1", level)
        if self.hits is not None and self.samples is not None:
            return clopper_pearson(self.hits, self.samples, level)
        quantiles = [t_quantile(0.5 + level / 2, degrees) for degrees in self.degrees.tolist()]
        width = torch.tensor(quantiles, dtype=torch.float64, device=self.std_error.device) * self.std_error
        low = torch.where(self.censored, -torch.inf, self.log_probability - width)
        high = torch.where(self.censored, self.log_probability, self.log_probability + width)
        return torch.stack([low, high.clamp(max=0.0)], dim=1)

    def monte_carlo_samples(self) -> Tensor:
        """How many samples plain Monte Carlo would need for the same relative error (Table 2), `(P,)`."""
        return (-torch.expm1(self.log_probability)) / self.log_probability.exp() / self.std_error**2


def clopper_pearson(hits: Tensor, samples: int, level: float) -> Tensor:
    """Exact interval for ln of a proportion; `(P, 2)`. Source: Clopper and Pearson, Biometrika 26 (1934)."""
    tail, ends = (1 - level) / 2, []
    for k in hits.tolist():
        low = beta_quantile(tail, k, samples - k + 1) if k > 0 else 0.0
        high = beta_quantile(1 - tail, k + 1, samples - k) if k < samples else 1.0
        ends.append((low, high))
    return torch.tensor(ends, dtype=torch.float64, device=hits.device).view(-1, 2).log()


def as_columns(values: Tensor, rows: int) -> Tensor:
    """A score's return value as float64 `(rows, stages)`, with NaN as minus infinity, which is never the event."""
    if not isinstance(values, Tensor) or values.shape[:1] != (rows,) or values.ndim not in (1, 2):
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ArgumentError("score", f"a function that returns shape ({rows},) or ({rows}, stages)", got)
    columns = values.detach().reshape(rows, -1).to(torch.float64)
    return torch.where(columns.isnan(), -torch.inf, columns)
