"""The genealogy of a particle population, and the variance of ln P that can be read from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from holdfast.algorithms.rare_events.estimate import Levels

# above this probability that two random survivors have one first ancestor, too few families are left for a variance
_DEGENERATE = 0.5


@dataclass
class History:
    """One problem's levels, the survivors of each, and the parent of each particle afterwards."""

    stage: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    log_probability: list[float] = field(default_factory=list)
    acceptance: list[float] = field(default_factory=list)
    survivors: list[Tensor] = field(default_factory=list)  # bool (N,): at or above each level
    parents: list[Tensor] = field(default_factory=list)  # int (N,): after each level but the last

    def record(self, stage: int, threshold: float, log_probability: float, above: Tensor) -> None:
        """Add a level; its acceptance is set after particles have moved within it."""
        self.stage.append(stage)
        self.threshold.append(threshold)
        self.log_probability.append(log_probability)
        self.acceptance.append(math.nan)
        self.survivors.append(above)

    def levels(self, count: int) -> tuple[Levels, float]:
        """The levels with their standard errors, and the last one's degrees of freedom; `count` is N."""
        variance = self.variance(count)
        levels = Levels(
            stage=torch.tensor(self.stage),
            threshold=torch.tensor(self.threshold, dtype=torch.float64),
            log_probability=torch.tensor(self.log_probability, dtype=torch.float64),
            std_error=torch.tensor([math.sqrt(v) for v, _ in variance], dtype=torch.float64),
            acceptance=torch.tensor(self.acceptance),
        )
        return levels, variance[-1][1]

    def variance(self, count: int) -> list[tuple[float, float]]:
        """Variance of ln P at each level and its degrees of freedom, from the genealogy of the particles.

        Lee and Whiteley, "Variance estimation in the particle filter" (Biometrika 2018): with w_e the share of a
        level's survivors that descend from first ancestor e, the relative variance of P is estimated by
        `1 - (N / (N - 1))^levels (1 - sum_e w_e^2)`. For ln P we take minus the logarithm of the product, with the
        constant of our resampling (`reduce_shared_parents`) in place of the multinomial one. Particles that mix slowly
        stay similar to their ancestors, so some families grow, and with them the variance. Where few families are left
        the estimate degenerates. So a new block of the genealogy starts there, and the blocks add up. The degrees of
        freedom are the effective number of families, with blocks combined after Welch and Satterthwaite.
        """
        out: list[tuple[float, float]] = []
        ancestors = torch.arange(count)
        done = done_squared = block = 0.0
        for level, above in enumerate(self.survivors):
            family = torch.bincount(ancestors[above], minlength=count).double()
            concentration = float(((family / family.sum()) ** 2).sum())
            block -= 1 / count
            lineage = -math.log(max(1 - concentration, 1 / count))
            variance = max(lineage + block, 0.0)
            total, squared = done + variance, done_squared + variance**2 * concentration
            out.append((total, total**2 / squared if squared > 0 else math.inf))
            if level < len(self.parents):
                block += reduce_shared_parents(int(above.sum()), count)
                parents = self.parents[level]
                ancestors = ancestors[parents]
                if concentration > _DEGENERATE:
                    done, done_squared, block = total, squared, 0.0
                    ancestors = parents
        return out


def reduce_shared_parents(kept: int, count: int) -> float:
    """By how much the probability that two particles share a parent falls, as against drawing all N from the survivors.

    The paper draws all N. Here the K survivors stay, and only the others are drawn. So a parent has `1 + B` children,
    B binomial, and a pair shares its parent with probability `q = K E[(1 + B) B] / (N (N - 1))`, where multinomial
    resampling has `1 / K`.
    """
    drawn = (count - kept) / kept
    pairs = kept * (drawn * (1 - 1 / kept) + drawn**2 + drawn) / (count * (count - 1))
    return 1 / kept - pairs
