"""The genealogy of a particle population, and the variance of ln P that can be read from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from standfast.algorithms.rare_events.estimate import Levels

# above this probability that two random survivors have one first ancestor, too few families are left for a variance
_DEGENERATE = 0.5
# A branching process that neither grows nor dies out leaves families of exponential sizes w (Yaglom 1947). The sum of
# their w^2 has a relative variance of three over their effective number: two over that are its degrees of freedom.
_DEGREES_OF_FAMILY = 2 / 3
# ln of the correlation below which a particle's position counts as independent of an earlier one
_FORGOTTEN = math.log(0.5)


@dataclass
class History:
    """One problem's levels, the survivors of each, and the parent of each particle afterwards."""

    stage: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    log_probability: list[float] = field(default_factory=list)
    acceptance: list[float] = field(default_factory=list)
    # ln of the correlation of positions before and after the moves
    memory: list[float] = field(default_factory=list)
    survivors: list[Tensor] = field(default_factory=list)  # bool (N,): at or above each level
    parents: list[Tensor] = field(default_factory=list)  # int (N,): after each level but the last

    def record(self, stage: int, threshold: float, log_probability: float, above: Tensor) -> None:
        """Add a level; its acceptance is set after particles have moved within it."""
        self.stage.append(stage)
        self.threshold.append(threshold)
        self.log_probability.append(log_probability)
        self.acceptance.append(math.nan)
        self.memory.append(0.0)
        self.survivors.append(above)

    def levels(self) -> tuple[Levels, float]:
        """The levels with their standard errors, and the last one's degrees of freedom."""
        variances, degrees = zip(*self.variance(), strict=True)
        levels = Levels(
            stage=torch.tensor(self.stage),
            threshold=torch.tensor(self.threshold, dtype=torch.float64),
            log_probability=torch.tensor(self.log_probability, dtype=torch.float64),
            std_error=torch.tensor(list(map(math.sqrt, variances)), dtype=torch.float64),
            acceptance=torch.tensor(self.acceptance),
            families=torch.tensor(self.count_families(), dtype=torch.float64),
            independent=torch.tensor(self.count_independent(), dtype=torch.float64),
            degrees=torch.tensor(degrees, dtype=torch.float64),
        )
        return levels, degrees[-1]

    def excess(self) -> float:
        """The variance of ln P over that of a run whose particles forget their origin in each level.

        It is large where few particles lead to the event: those of a mode that early levels do not favour, or of one
        that moves hardly reach.
        """
        ideal = 0.0
        for above in self.survivors:
            kept = int(above.sum())
            # of independent particles each level adds 1 / kept - 1 / N
            ideal += 1 / kept - 1 / len(above)
        if not ideal:
            return 1.0
        variance, _ = self.variance()[-1]
        return variance / ideal

    def count_families(self) -> list[float]:
        """The effective number of families at each level, `1 / sum_e w_e^2`: w_e is the share of first ancestor e."""
        ancestors = torch.arange(len(self.survivors[0]))
        counts = []
        for level, above in enumerate(self.survivors):
            counts.append(_count_effective(ancestors[above]))
            if level < len(self.parents):
                ancestors = ancestors[self.parents[level]]
        return counts

    def count_independent(self) -> list[float]:
        """The same, with descent counted from the latest level whose positions the particles have forgotten."""
        counts = []
        start = 0
        ancestors = torch.arange(len(self.survivors[0]))
        for level, above in enumerate(self.survivors):
            if level:
                ancestors = ancestors[self.parents[level - 1]]
                if (forgotten := self.find_forgotten(level)) > start:
                    start = forgotten
                    ancestors = torch.arange(len(self.survivors[forgotten]))
                    for parents in self.parents[start:level]:
                        ancestors = ancestors[parents]
            counts.append(_count_effective(ancestors[above]))
        return counts

    def find_forgotten(self, level: int) -> int:
        """The latest level whose positions a level's particles have forgotten; 0 if there is none."""
        kept = 0.0
        for start in range(level - 1, -1, -1):
            kept += self.memory[start]
            if kept < _FORGOTTEN:
                return start
        return 0

    def variance(self) -> list[tuple[float, float]]:
        """Variance of ln P at each level and its degrees of freedom, from the genealogy of the particles.

        Lee and Whiteley, "Variance estimation in the particle filter" (Biometrika 2018): with w_e the share of a
        level's survivors that descend from first ancestor e, the relative variance of P is estimated by
        `1 - (N / (N - 1))^levels (1 - sum_e w_e^2)`. For ln P we take minus the logarithm of the product, with the
        constant of our resampling (`reduce_shared_parents`) in place of the multinomial one. Particles that mix slowly
        stay similar to their ancestors, so some families grow, and with them the variance. Where few families are left
        the estimate degenerates. So a new block of the genealogy starts there, and the blocks add up. The degrees of
        freedom are two thirds of the effective number of families, with blocks combined after Welch and Satterthwaite,
        and at least one.

        The variance of ln P cannot fall from level to level, but its estimate does where a family that had grown dies
        out. So the largest one up to the level is taken, with its degrees of freedom. This matters, because low
        estimates and small variances come together: in such a run no particle got far ahead of the others, so no family
        grew large.
        """
        out: list[tuple[float, float]] = []
        ancestors = torch.arange(len(self.survivors[0]))
        done = done_squared = block = largest = 0.0
        degrees = math.inf
        for level, above in enumerate(self.survivors):
            count = len(above)
            family = torch.bincount(ancestors[above]).double()
            share = family / family.sum()
            concentration = float((share**2).sum())
            block -= 1 / count
            # a single family would have an infinite variance: the share of the others is at least 1 / N
            lineage = -math.log(max(1 - concentration, 1 / count))
            variance = max(lineage + block, 0.0)
            total = done + variance
            squared = done_squared + variance**2 * concentration
            if total >= largest:
                largest = total
                degrees = math.inf
                if squared > 0:
                    degrees = max(1.0, _DEGREES_OF_FAMILY * total**2 / squared)
            out.append((largest, degrees))
            if level < len(self.parents):
                parents = self.parents[level]
                kept = int(above.sum())
                block += reduce_shared_parents(kept, len(parents))
                ancestors = ancestors[parents]
                if concentration > _DEGENERATE:
                    done = total
                    done_squared = squared
                    block = 0.0
                    ancestors = parents
        return out


def _count_effective(ancestors: Tensor) -> float:
    """The number of families with the same concentration as these particles' ancestors."""
    family = torch.bincount(ancestors).double()
    square_of_sum = family.sum() ** 2
    return float(square_of_sum / (family**2).sum())


def reduce_shared_parents(kept: int, count: int) -> float:
    """By how much two particles share a parent less often than if all N were drawn from the survivors.

    The paper draws all N. Here each of the K survivors has `c = N // K` children, and `N - c K` of them, drawn without
    replacement, have one more. So a pair shares its parent with probability
    `(K c (c - 1) + 2 c (N - c K)) / (N (N - 1))`, where multinomial resampling has `1 / K`.
    """
    children, more = divmod(count, kept)
    shared = kept * children * (children - 1) + 2 * children * more
    pairs = max(count * (count - 1), 1)
    return 1 / kept - shared / pairs
