"""The probability of an event around each sample, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from standfast.algorithms.rare_events.estimate import Levels, RareEventEstimate
from standfast.metrics.kept_class import NeighbourhoodResult


@dataclass(frozen=True)
class ProbabilityResult(NeighbourhoodResult):
    """ln P, the natural logarithm of the probability, for each sample.

    An estimate is censored if the event was not reached: then ln P is only an upper bound. It is not resolved if the
    simulation cannot say how wrong it is: its interval is wide, and the estimate itself may be far too low. Then
    `value` is the upper end of the interval, and the frame's column `bound` is true, as for a censored one. A skipped
    sample is censored at ln P = 0, a bound that says nothing, and not resolved.

    Attributes:
        log_probability: natural logarithm of the probability; an upper bound where `censored`. `(N,)`
        std_error: of `log_probability`; NaN where `censored`, and that of the interval where not `resolved`. `(N,)`
        low, high: the 95% interval of ln P; `low` is minus infinity where `censored`. `(N,)`
        censored: the event was not reached: it is rarer than the floor, there was no hit, the run stalled, or the
            sample was skipped. `(N,)` bool
        resolved: whether the interval can be relied on as it is; see `RareEventEstimate`. `(N,)` bool
        from_prior: the estimate from the prior to the event; NaN where `censored`. It tends to be too small where
            `resolved` is False. `(N,)`
        from_event: the estimate from the event back to the prior, which tends to be too large. NaN if it was not
            asked for, or the event was not reached. `(N,)`
        from_event_error: its standard error, `(N,)`.
        witnessed: a search before the simulation found the event, so it exists. False where it did not, and where there
            was no search: without `from_event`, with plain Monte Carlo, or with a budget that leaves none. `(N,)` bool
        stalled: the run ended on a plateau of equal scores. `(N,)` bool
        acceptance: share of accepted moves, NaN without moves. `(N,)`
        levels: the levels of each sample, its curve of ln P against the threshold; None for skipped samples and for
            the method `monte_carlo`. A level t in the last stage means a similarity of `threshold - t` for an event
            with dissimilar maps, and of `threshold + t` for one with similar maps (reversed signs for a discrepancy).
        error_reached: whether ln P is known with a standard error of at most `error`; of any size where `error` is None
            or the method is `monte_carlo`. False where ln P is only bounded. `(N,)` bool
        extreme: the particle of the last population that is nearest to the event or deepest in it, `(N, ...)`.
        estimate: the estimator's own result, for the samples of `estimated`; None if all were skipped.
        estimated: numbers of the samples that were estimated.
    """

    log_probability: Tensor
    std_error: Tensor
    censored: Tensor
    resolved: Tensor
    from_prior: Tensor
    from_event: Tensor
    from_event_error: Tensor
    witnessed: Tensor
    stalled: Tensor
    acceptance: Tensor
    error_reached: Tensor
    levels: tuple[Levels | None, ...]
    extreme: Tensor
    estimate: RareEventEstimate | None
    estimated: Tensor = field(metadata={"per_sample": False})

    def columns(self) -> dict[str, Any]:
        """Further columns of the frame, and `bound`: whether the value is only an upper bound of ln P."""
        bound = self.censored | ~self.resolved
        return {**super().columns(), "bound": bound.tolist()}

    def tensors(self) -> dict[str, Tensor]:
        """The curves of ln P against the threshold with their intervals, padded with NaN to the longest, `(N, L)`."""
        length = max((len(level.stage) for level in self.levels if level is not None), default=0)
        names = ("stage", "threshold", "log_probability", "low", "high")
        out = {
            f"level_{name}": torch.full((len(self), length), torch.nan, dtype=torch.float64)
            for name in names
        }
        for row, level in enumerate(self.levels):
            if level is not None:
                columns = (
                    level.stage,
                    level.threshold,
                    level.log_probability,
                    *level.interval().unbind(1),
                )
                for name, values in zip(names, columns, strict=True):
                    out[f"level_{name}"][row, : len(values)] = values.double()
        return out
