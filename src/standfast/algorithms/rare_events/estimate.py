"""What the rare-event estimators share: the form of a score, and the result that they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.special import ndtri, stdtrit
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.statistics.proportions import stopped_interval
from standfast.tensors import send

Score = Callable[..., Tensor]

#: with fewer families left, neither an estimate nor its standard error can be relied on
FEWEST_FAMILIES = 2.0
#: the same for families whose members are still similar, since they have moved little since their common ancestor
FEWEST_INDEPENDENT = 5.0


@dataclass(frozen=True)
class Levels:
    """The levels of one problem's run: the curve of ln P against the threshold, which costs nothing extra.

    Attributes:
        stage: the column of the score that the level belongs to, int `(L,)`.
        threshold: the level of that column; 0 is the stage's failure threshold. `(L,)`
        log_probability: ln P(score at or above the level), `(L,)`.
        std_error: of `log_probability`, `(L,)`.
        acceptance: share of accepted moves after the level (NaN where none were made), `(L,)`.
        families: effective number of families: first ancestors that the survivors of the level descend from, `(L,)`.
        independent: the same, but descent is counted from the latest level whose positions the particles have
            forgotten. If they move slowly, this is `families`. `(L,)`
        degrees: degrees of freedom of `std_error`, `(L,)`.
    """

    stage: Tensor
    threshold: Tensor
    log_probability: Tensor
    std_error: Tensor
    acceptance: Tensor
    families: Tensor
    independent: Tensor
    degrees: Tensor

    @property
    def trusted(self) -> Tensor:
        """Whether enough families are left for the level's estimate and its standard error, bool `(L,)`."""
        return (self.families >= FEWEST_FAMILIES) & (self.independent >= FEWEST_INDEPENDENT)

    def interval(self, level: float = 0.95) -> Tensor:
        """Student's intervals of ln P at the levels, at most 0, `(L, 2)`."""
        ends = compute_log_interval(self.log_probability, self.std_error, self.degrees, level)
        return torch.stack(ends, dim=1).clamp(max=0.0)

    def bound(self, level: float = 0.95) -> float:
        """An upper limit of ln P: the upper end of the last trusted level's two-sided interval.

        The event lies within every level, so P is at most the probability of each.
        """
        trusted = self.trusted.nonzero()[:, 0]
        if not len(trusted):
            return 0.0
        upper_ends = self.interval(level)[:, 1]
        return float(upper_ends[trusted[-1]])


@dataclass(frozen=True)
class RareEventEstimate:
    """ln P for each of P problems, with standard errors that allow for dependent particles.

    Attributes:
        log_probability: natural logarithm of the probability; where `censored`, the upper end of the interval. `(P,)`
        own_error: standard error of `log_probability` by the run's own account; NaN where `censored`. It is too small
            where not `resolved`; see `std_error`. `(P,)`
        censored: the run stopped before the event was reached: below the floor, without a single hit, on a plateau of
            equal scores, or at the end of the budget. `(P,)` bool
        resolved: whether the interval can be relied on as it is. False if too few families of particles are left
            (`Levels.trusted`), if the budget ended first, if the run stalled, or if runs or both directions contradict
            each other. Then the interval reaches up to the last level with enough families, and the estimate may be far
            too low. A way to the event that no particle took cannot be seen. `(P,)` bool
        stalled: it stopped because of such a plateau, or of the limit on levels. `(P,)` bool
        acceptance: share of accepted moves over the whole run; NaN without moves. `(P,)`
        model_evaluations: scores computed. int `(P,)`
        levels: the levels of each problem, of its last run where several were pooled; empty for `monte_carlo`.
        extreme: the input of the last population that is nearest to the event or deepest in it, `(P, *shape)`.
        degrees: degrees of freedom of `own_error`, for the interval's t quantile; `inf`: normal. `(P,)`
        hits, samples: the counts of plain draws that gave the estimate, `(P,)`; -1 and 0 where levels gave it.
        looks: the numbers of draws at which plain draws could end, each with the fewest hits that end them; empty if
            their number was fixed.
        runs: the runs of each problem that were pooled; empty where there was one.
        from_event, from_event_error: ln P from the event back to the prior, which tends to be too large, and its
            standard error, `(P,)`. NaN where the event was not reached; None if this was not asked for.
        from_witnesses: whether `from_event` started at witnesses, too. Where it is False, it started at the particles
            of this run only. Then it cannot see a way to the event that the run missed, and its agreement confirms
            nothing about such ways. `(P,)` bool; None if `from_event` is.
    """

    log_probability: Tensor
    own_error: Tensor
    censored: Tensor
    resolved: Tensor
    stalled: Tensor
    acceptance: Tensor
    model_evaluations: Tensor
    levels: tuple[Levels, ...]
    extreme: Tensor
    degrees: Tensor
    hits: Tensor
    samples: Tensor
    looks: tuple[tuple[int, int], ...] = ()
    runs: tuple[tuple[RareEventEstimate, ...], ...] = ()
    from_event: Tensor | None = None
    from_event_error: Tensor | None = None
    from_witnesses: Tensor | None = None

    @property
    def from_prior(self) -> Tensor:
        """ln P from the prior to the event, which tends to be too small; NaN where `censored`, `(P,)`."""
        return torch.where(self.censored, torch.nan, self.log_probability)

    @property
    def std_error(self) -> Tensor:
        """Standard error of `log_probability`; NaN where `censored`. `(P,)`

        Where a run is not `resolved`, the genealogy of its particles shows only a part of its error. There it is the
        width of the 95% interval divided by 3.92 (a normal interval of this width has that error), if that is larger.
        """
        width = self.interval().diff(dim=1)[:, 0]
        error_of_width = width / (2 * ndtri(0.975))
        larger = torch.maximum(self.own_error, error_of_width)
        is_own = self.resolved | self.censored
        return torch.where(is_own, self.own_error, larger)

    def interval(self, level: float = 0.95) -> Tensor:
        """Confidence interval for ln P, `(P, 2)`; from minus infinity where `censored`.

        An exact one for plain draws (`stopped_interval`); otherwise that of `compute_log_interval`, whose middle lies
        above `log_probability`. Where `censored`, or not `resolved`, its upper end comes from the last level with
        enough families. Where runs or directions contradict each other it contains the intervals of all.
        """
        check(0 < level < 1, "level", "a number between 0 and 1", level)
        low, high = compute_log_interval(self.log_probability, self.own_error, self.degrees, level)
        bounds_of_runs = [run.bound(level) for run in self.levels] or [0.0] * len(low)
        bounds = send(bounds_of_runs, low.device, torch.float64)
        low = torch.where(self.censored, -torch.inf, low)
        high = torch.where(self.censored, bounds, high)
        high = torch.where(self.resolved, high, torch.maximum(high, bounds))
        high = high.clamp(max=0.0)
        for row, runs in enumerate(self.runs):
            if runs and not bool(self.resolved[row]):  # they contradict each other
                ends = torch.cat([run.interval(level) for run in runs])
                low[row] = torch.minimum(low[row], ends[:, 0].min())
                high[row] = torch.maximum(high[row], ends[:, 1].max())
        back = self.interval_from_event(level)
        if back is not None:
            back_low, back_high = back.unbind(1)
            include = ~self.resolved & ~back_low.isnan()
            low = torch.where(include, torch.minimum(low, back_low), low)
            high = torch.where(include, torch.maximum(high, back_high), high)
        ends_of_all = torch.stack([low, high], dim=1)
        plain = (self.samples > 0).nonzero()[:, 0]
        exact = []
        counts = zip(self.hits[plain].tolist(), self.samples[plain].tolist(), strict=True)
        for hits, samples in counts:
            exact.append(stopped_interval(hits, samples, self.looks, level))
        exact_ends = send(exact, ends_of_all.device, torch.float64).view(-1, 2)
        ends_of_all[plain] = exact_ends.log()
        return ends_of_all

    def reaches(self, error: float) -> Tensor:
        """Whether ln P is known with at most this standard error, bool `(P,)`."""
        return self.resolved & ~self.censored & (self.std_error <= error)

    def interval_from_event(self, level: float = 0.95) -> Tensor | None:
        """`from_event` plus and minus a normal quantile of its standard error, at most 0, `(P, 2)`.

        It is a check of the other direction, and no result: at 95%, with 200 particles, 93% of 800 such intervals held
        the exact value (P = 1e-6, a sum of 20 uniform numbers; most of the others lay below it).
        """
        if self.from_event is None or self.from_event_error is None:
            return None
        width = ndtri(0.5 + level / 2) * self.from_event_error
        low = self.from_event - width
        high = (self.from_event + width).clamp(max=0.0)
        return torch.stack([low, high], dim=1)

    def contradicts(self, level: float) -> Tensor:
        """Whether the intervals of both directions have no common point, bool `(P,)`."""
        back = self.interval_from_event(level)
        forward = self.interval(level)
        if back is None:
            return torch.zeros_like(self.resolved)
        low, high = forward.unbind(1)
        back_low, back_high = back.unbind(1)
        return (back_low > high) | (back_high < low)


def compute_log_interval(
    logarithm: Tensor, error: Tensor, degrees: Tensor, level: float
) -> tuple[Tensor, Tensor]:
    """The ends of Student's interval for ln P, from the logarithm of an estimate of P that is unbiased; all `(P,)`.

    Such a logarithm is too small by half its variance, on average (that is exact if it has a normal distribution). So
    the middle of the interval lies that much above it.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> low, high = compute_log_interval(-9 * one, 0.5 * one, 3 * one, 0.95)
    >>> round(float(low), 3), round(float(high), 3)
    (-10.466, -7.284)
    """
    quantiles = stdtrit(degrees.cpu().numpy(), 0.5 + level / 2)
    width = send(torch.from_numpy(quantiles), error.device) * error
    middle = logarithm + error**2 / 2
    return middle - width, middle + width


def as_columns(values: Tensor, rows: int) -> Tensor:
    """A score's return value as float64 `(rows, stages)`, with NaN as minus infinity, which is never the event."""
    if not isinstance(values, Tensor) or values.shape[:1] != (rows,) or values.ndim not in (1, 2):
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        expected = f"a function that returns shape ({rows},) or ({rows}, stages)"
        raise ArgumentError("score", expected, got)
    columns = values.detach().reshape(rows, -1).to(torch.float64)
    return torch.where(columns.isnan(), -torch.inf, columns)
