"""SAFARI's estimator as its authors published it, for comparison: subset simulation by a random walk on pixels.

Source: Huang et al., "SAFARI" (ICCV 2023), Sec. 5 and App. 8.4, Eq. 11 to 28. Where the paper leaves something open
(the width of the proposal, its adaptation, the end of a run), it follows the settings of the authors' repository
`havelhuang/Eval_XAI_Robustness`; the code is ours. It is not part of the library, since its claimed error is too small.

- Level: the value that a share `quantile` of the particles reaches, at most the failure threshold. Ratio: kept / N.
- The other particles are replaced by copies of survivors, drawn uniformly. Then every particle takes M Metropolis
  steps.
- Proposal: all pixels at once, each uniform within `x +- width`, *truncated to the ball*, with the ratio of densities
  that corrects for the truncation. (Eq. 23 prints the inverse of this ratio; the authors' code has the right one.)
- Width: at first radius / 30. After the M steps of a level, the width of every chain is multiplied by 1.02 if more than
  12.4% of its steps were accepted, and halved if fewer were (`"published"`). App. 8.4 recommends an acceptance rate of
  0.234: `"pooled"` has one width for all chains and adapts it towards that rate after every step.
- Claimed error: Eq. 16 with lambda = 0.

Two differences are in favour of the estimator: scores are kept from level to level (the authors' code computes them
again), and a run ends at the failure threshold (the authors' code takes M more steps first).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from standfast.neighbourhoods import Region

Adaptation = Literal["published", "pooled"]
ACCEPTED_ENOUGH, WIDER, NARROWER, TARGET = 0.124, 1.02, 0.5, 0.234
_GROUP = 112  # how many factors between 1/2 and 1 float32 can multiply without underflow


@dataclass(frozen=True)
class SafariEstimate:
    """The result of one run. `failed` means that it made no progress, or had no particle left: there is no estimate."""

    log_probability: float
    shares: tuple[float, ...]
    particles: int
    evaluations: int
    acceptance: float
    failed: bool

    @property
    def delta(self) -> float:
        """The claimed coefficient of variation."""
        return compute_claimed_error(self.shares, self.particles)


def compute_claimed_error(shares: Sequence[float], particles: int) -> float:
    """Eq. 16 with lambda = 0: the root of the sum over levels of `(1 - P_i) / (P_i N)`.

    >>> round(compute_claimed_error([0.1, 0.1], 1000), 4)  # sqrt(2 * 0.9 / 100)
    0.1342
    """
    return math.sqrt(sum((1 - share) / (share * particles) for share in shares))


def safari_estimate(
    score: Callable[[Tensor], Tensor],
    region: Region,
    radius: float,
    seed: int,
    moves: int = 250,
    quantile: float = 0.1,
    particles: int = 1000,
    width: float = 1 / 30,
    adaptation: Adaptation = "published",
    floor: float = -100.0,
) -> SafariEstimate:
    """One run for one input.

    Args:
        score: maps points `(M, *shape)` to `(M,)`, or to `(M, S)` for an event in stages (Eq. 13 to 15).
        region: of a single input; not an L2 ball.
        radius: of the ball; `width` is a share of it.
    """
    rng = np.random.Generator(np.random.SFC64(seed))
    shape, features = region.shape, region.shape.numel()
    window = Window(region.lower.reshape(1, features), region.upper.reshape(1, features), radius)

    def evaluate(points: Tensor) -> Tensor:
        values = score(points.reshape(particles, *shape)).double().reshape(particles, -1)
        return values.nan_to_num(nan=-math.inf, neginf=-math.inf)

    def log_density(points: Tensor) -> Tensor:
        return region.log_density(points.reshape(1, particles, *shape))[0]

    flat = region.sigma is None  # the density is uniform and cancels
    x = region.sample(particles, region.streams(seed))[0].reshape(particles, features)
    widths = torch.full((particles, 1), width * radius, dtype=x.dtype)
    scores, density = evaluate(x), None if flat else log_density(x)
    evaluations, shares, rates = particles, [], []
    stage, previous = 0, -math.inf
    log_probability = 0.0

    def result(failed: bool) -> SafariEstimate:
        rate = float(np.mean(rates)) if rates else math.nan
        return SafariEstimate(log_probability, tuple(shares), particles, evaluations, rate, failed)

    while True:
        current = mask_stage(scores, stage)
        level = min(current.sort().values[math.floor((1 - quantile) * particles)].item(), 0.0)
        if level == previous:  # no progress: the authors' code then tries the threshold itself
            level = 0.0
        above = current >= level
        kept = int(above.sum())
        if not kept:
            return result(failed=True)
        shares.append(kept / particles)
        log_probability += math.log(kept / particles)
        last = stage + 1 == scores.shape[1]
        if log_probability < floor or (level >= 0 and last):
            return result(failed=log_probability < floor)
        alive = above.nonzero()[:, 0]
        parents = torch.cat(
            [alive, alive[torch.from_numpy(rng.integers(kept, size=particles - kept))]]
        )
        x, scores, widths = x[parents], scores[parents], widths[parents]
        density = None if density is None else density[parents]
        lengths = window.log_length(x, widths)
        accepted = torch.zeros(particles)
        for step in range(moves):
            proposed = window.propose(x, widths, rng)
            back = window.log_length(proposed, widths)
            ratio = (lengths - back).double()
            there = None if density is None else log_density(proposed)
            if density is not None and there is not None:
                ratio = ratio + (there - density)
            values = evaluate(proposed)
            chance = torch.from_numpy(np.log1p(-rng.random(particles)))
            accept = (chance <= ratio) & (mask_stage(values, stage) >= level)
            x = torch.where(accept[:, None], proposed, x)
            scores = torch.where(accept[:, None], values, scores)
            lengths = torch.where(accept, back, lengths)
            density = (
                None if density is None or there is None else torch.where(accept, there, density)
            )
            accepted += accept
            if adaptation == "pooled":
                gain = math.exp((accept.double().mean().item() - TARGET) / math.sqrt(step + 1))
                widths = (widths * gain).clamp(max=radius)
                lengths = window.log_length(x, widths)
        evaluations += particles * moves
        rate = accepted / moves
        rates.append(rate.mean().item())
        if adaptation == "published":
            factor = torch.where(
                rate > ACCEPTED_ENOUGH, WIDER, torch.where(rate < ACCEPTED_ENOUGH, NARROWER, 1.0)
            )
            widths = (widths * factor[:, None]).clamp(max=radius)
        previous = level
        if level >= 0:
            stage, previous = stage + 1, -math.inf


def mask_stage(scores: Tensor, stage: int) -> Tensor:
    """The score of a stage where all stages before it have been reached, and minus infinity elsewhere."""
    passed = (scores[:, :stage] >= 0).all(1)
    return torch.where(passed, scores[:, stage], -math.inf)


@dataclass(frozen=True)
class Window:
    """The uniform proposal: every pixel within `x +- width`, truncated to the box."""

    lower: Tensor
    upper: Tensor
    radius: float

    def propose(self, x: Tensor, widths: Tensor, rng: np.random.Generator) -> Tensor:
        """New points `(N, d)`."""
        low, high = torch.maximum(x - widths, self.lower), torch.minimum(x + widths, self.upper)
        draws = rng.random(x.shape, dtype=np.float32 if x.dtype == torch.float32 else np.float64)
        return torch.minimum(torch.from_numpy(draws).mul_(high.sub_(low)).add_(low), self.upper)

    def log_length(self, x: Tensor, widths: Tensor) -> Tensor:
        """Log volume of the window around each point, relative to the window without truncation: `(N,)`."""
        sides = (
            torch.minimum(x + widths, self.upper)
            .sub_(torch.maximum(x - widths, self.lower))
            .div_(2 * widths)
        )
        total = torch.zeros(len(x), dtype=x.dtype)
        # one logarithm for each group: a logarithm for each pixel would take half of the time
        for group in sides.split(_GROUP, dim=1):
            total += group.prod(1).log()
        return total
