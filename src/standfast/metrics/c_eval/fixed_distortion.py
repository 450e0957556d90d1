"""What c-Eval's metrics share: options, and the least distortions while the top features of maps are held fixed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from standfast.algorithms.distortion import Attack, estimate_lower_limit, get_attack
from standfast.algorithms.distortion.geometry import check_norm
from standfast.errors import check
from standfast.metrics.base import Cost, Metric
from standfast.metrics.c_eval.empty_distortion import find_empty_distortion
from standfast.metrics.c_eval.fixed_features import (
    Unit,
    fix_pixels,
    fix_segments,
    mark_free,
    score_pixels,
)
from standfast.metrics.probe import Call, Probe
from standfast.metrics.result import Result
from standfast.needs import Needs
from standfast.segments import SegmentsOption, segment

#: fewer steps, for an answer in seconds
QUICK = "fmn:steps=8,second=12,polish=2"
#: which samples have no ratio, in words
NO_CHANGE = "for which no change of the answer was found"
_EXPECTED = "numbers between 0 and 1 (with all features fixed the class never changes), rising"


@dataclass(frozen=True)
class DistortionResult(Result):
    """What the results of c-Eval's metrics share.

    Attributes:
        c_empty: the distortion with no feature fixed, `(N,)`; the smaller of what the attack found without and with
            fixed features. NaN where no change of the prediction was found.
        censored: the value is only a lower bound: with some features fixed no change was found; or, of other tasks
            than classification, none with no feature fixed that is smaller. bool `(N,)`
    """

    c_empty: Tensor
    censored: Tensor

    def columns(self) -> dict[str, Any]:
        """Further columns of the frame, and `bound`: whether the value is only a lower bound."""
        return {**super().columns(), "bound": self.censored.tolist()}


@dataclass(frozen=True, kw_only=True)
class DistortionMetric(Metric):
    """A metric of the least distortions while the top places of a map are held fixed.

    Args:
        attack: how the distortion is searched for: `"fmn"`, `"alma"`, `"ddn"`, `"cw"`, `"iga"` or `"gsa"`, with options
            as in `"fmn:steps=100"`, or an `Attack`. The paper uses the last three. `"fmn"` has several searches, so
            results have intervals.
        unit: `"pixel"`, or `"segment"` for whole segments, so that maps of segments and of pixels can be compared. The
            last segment is fixed in part, so that all explanations have one size.
        segments: how inputs are cut, see `standfast.segments.segment`; for `unit="segment"`.
        norm: of the distortion, 2 or `"inf"`.
        absolute: rank places by absolute attributions. Off by default, because evidence against the class does not
            explain it.
    """

    needs = Needs(gradients=True)
    evidence = "faithful"
    citation = "vu2021ceval"
    takes_turns = True

    attack: str | Attack = "fmn"
    unit: Unit = "pixel"
    segments: SegmentsOption = "auto"
    norm: Annotated[float | str, check_norm] = 2
    absolute: bool = False

    def __post_init__(self) -> None:
        get_attack(self.attack)

    @abstractmethod
    def count_searches(self) -> int:
        """How many least distortions are searched for, that with no feature fixed included."""

    def cost(self, classes: int | None = None) -> Cost:
        return Cost(
            self.count_searches() * get_attack(self.attack).expected_for(classes), explanations=1
        )


def check_fractions(fractions: Sequence[float], name: str) -> tuple[float, ...]:
    """The shares as a tuple; raises `ArgumentError` unless they lie between 0 and 1, in rising order."""
    fits = isinstance(fractions, tuple | list) and len(fractions) > 0
    fits = fits and all(isinstance(f, int | float) and 0 < f < 1 for f in fractions)
    is_rising = fits and list(fractions) == sorted(set(fractions))
    check(is_rising, name, _EXPECTED, fractions)
    return tuple(float(fraction) for fraction in fractions)


@dataclass(frozen=True)
class Distortions:
    """The least distortions of n samples that were found while K growing sets of features are fixed.

    Attributes:
        c: `(n, K)`; where none was found, a lower bound: the largest that was found with fewer features fixed, or 0.
        found: bool `(n, K)`.
        second: the second smallest distortions of the attack's separate searches, infinite without one, `(n, K)`.
        points: the changed inputs, `(n, K, ...)`.
        evaluations: inputs predicted, int `(n,)`.
    """

    c: Tensor
    found: Tensor
    second: Tensor
    points: Tensor
    evaluations: Tensor

    @property
    def low(self) -> Tensor:
        """Lower 95% limits of the least distortions, `(n, K)`, which never fall along a row; 0: nothing is known."""
        single_low = estimate_lower_limit(self.c, self.second)
        return torch.where(self.found, single_low, 0.0).cummax(1).values

    def improve_by(self, other: Distortions, column: int, other_column: int) -> None:
        """Replace the solutions of a column by those of a column of another one where these are better, in place.

        The search of the column alone had found its own value, so this one is the second best then.
        """
        c = self.c[:, column]
        was_found = self.found[:, column]
        other_c = other.c[:, other_column]
        better = other.found[:, other_column] & (~was_found | (other_c < c))
        first = torch.where(was_found, c, torch.inf)
        second = torch.minimum(first, self.second[:, column])
        self.second[:, column] = torch.where(better, second, self.second[:, column])
        self.points[better, column] = other.points[better, other_column]
        self.c[:, column] = torch.where(better, other_c, c)
        self.found[:, column] |= better


class DistortionSearch:
    """Finds the least distortions of the samples of one explainer while their top places are fixed.

    For use inside `model.session()`.

    Attributes:
        probe: explains the samples, and says which can be evaluated.
        rows: numbers of these n samples.
        scores: of the places, `(N, *spatial)`.
    """

    def __init__(self, metric: DistortionMetric, call: Call) -> None:
        self.call = call
        self.norm = check_norm(metric.norm)
        self.attack = get_attack(metric.attack)
        self.probe = Probe(call)
        self.scores = score_pixels(self.probe.maps, metric.absolute)
        # a call without samples has no places to count, and passes
        positions = self.scores[:1].numel() or 2
        check(
            positions > 1,
            "inputs",
            "at least two places, so that one can be fixed and another one changed",
            positions,
        )
        self.probe.skip_constant(self.scores)
        self.rows = self.probe.usable()
        self.inputs = call.inputs[self.rows]
        self.targets = self.probe.targets[self.rows]
        assert not isinstance(metric.segments, Tensor)  # since `__post_init__`
        self.labels = None
        if metric.unit == "segment":
            self.labels = segment(call.inputs, metric.segments).labels

    def fix_places(self, fraction: float) -> Tensor:
        """The places of the usable samples that are fixed, bool `(n, *spatial)`."""
        scores = self.scores[self.rows]
        if self.labels is None:
            return fix_pixels(scores, fraction)
        return fix_segments(scores, self.labels[self.rows], fraction)

    def find_empty(self) -> Distortions:
        """The distortions with no feature fixed, `c(empty)`; the same for all explainers.

        A smaller one that is found while features are fixed is valid without, too: let it improve this one. So
        explainers may differ in c(empty), where one of them has shown that the attack had not found the least.
        """
        if not len(self.rows):
            return self._find_none(1)
        c, was_found, second, evaluations, points = find_empty_distortion(
            self.call.model, self.inputs, self.targets, self.norm, self.attack, self.call.seed
        )
        # where no change was found it is only known that the distortion is at least 0
        c = torch.where(was_found, c, 0.0)
        return Distortions(
            c[:, None], was_found[:, None], second[:, None], points[:, None], evaluations
        )

    def find(self, masks: Sequence[Tensor], empty: Distortions) -> Distortions:
        """The distortions while the places of each of `masks` are fixed: bool `(n, *spatial)`, each within the next.

        Each search also starts from the solution for the mask before it, the first one from that with no feature fixed.
        A change that is possible while more is fixed is also possible while less is. So where a search with more fixed
        found a smaller distortion, both have it. And where a search found nothing, all that is known is that the least
        distortion is at least that with fewer features fixed. How far the search went is not a bound.
        """
        if not len(self.rows):
            return self._find_none(len(masks))
        start = empty.points[:, 0]
        parts = []
        for mask in masks:
            generator = torch.Generator().manual_seed(self.call.seed)
            free = mark_free(mask, self.inputs)
            columns = (self.inputs, self.targets, free, self.norm, generator, start)
            searched = self.attack.minimise_checked(self.call.model, *columns)
            parts.append(searched)
            start = torch.where(
                searched.found.reshape(-1, *[1] * (start.ndim - 1)), searched.inputs, start
            )
        every = Distortions(
            torch.stack([part.distortion for part in parts], 1),
            torch.stack([part.found for part in parts], 1),
            torch.stack([part.second for part in parts], 1),
            torch.stack([part.inputs for part in parts], 1),
            torch.stack([part.model_evaluations for part in parts], 1).sum(1),
        )
        # from the largest set down, so that a solution is passed on to all smaller sets
        for column in reversed(range(len(masks) - 1)):
            every.improve_by(every, column, column + 1)
        # a solution was passed on to all smaller sets, so c(empty) counts only where none was found at any size
        before = torch.where(every.found.any(1, keepdim=True), 0.0, empty.c)
        c = torch.where(every.found, every.c, 0.0)
        # with more features fixed, c is at least as large
        so_far = torch.cat([before, c], 1).cummax(1).values[:, 1:]
        every.c[:] = torch.where(every.found, c, so_far)
        return every

    def improve_empty(self, empty: Distortions, distortions: Distortions) -> Tensor:
        """Let c(empty) be at most what was found with features fixed; returns where it is that, so that ratios are 1.

        Of classes such a ratio counts as it is. Of other tasks, where a margin may have no gradient at the clean input,
        c(empty) is searched for once more from the solution with features fixed; if nothing less is found there, it is
        only known that the ratio is at least 1. bool `(n,)`.
        """
        before = torch.where(empty.found[:, 0], empty.c[:, 0], torch.inf)
        empty.improve_by(distortions, 0, 0)
        tied = torch.zeros_like(before, dtype=torch.bool)
        if self.call.model.task.classes:
            return tied
        rows = torch.where(empty.c[:, 0] < before)[0]
        if not len(rows):
            return tied
        generator = torch.Generator().manual_seed(self.call.seed)
        columns = (
            self.inputs[rows],
            self.targets[rows],
            None,
            self.norm,
            generator,
            empty.points[rows, 0],
        )
        again = self.attack.minimise_checked(self.call.model, *columns)
        other = Distortions(
            again.distortion[:, None],
            again.found[:, None],
            again.second[:, None],
            again.inputs[:, None],
            again.model_evaluations,
        )
        part = Distortions(
            empty.c[rows],
            empty.found[rows],
            empty.second[rows],
            empty.points[rows],
            empty.evaluations[rows],
        )
        is_nearer = again.found & (again.distortion < part.c[:, 0])
        tied[rows] = ~is_nearer
        part.improve_by(other, 0, 0)
        for name in ("c", "found", "second", "points"):
            getattr(empty, name)[rows] = getattr(part, name)
        self.probe.charge(self.rows[rows], again.model_evaluations)
        return tied

    def _find_none(self, count: int) -> Distortions:
        c = self.inputs.new_zeros((0, count))
        whole = torch.zeros(0, dtype=torch.int64, device=c.device)
        return Distortions(
            c, c.bool(), c, self.inputs.new_zeros((0, count, *self.inputs.shape[1:])), whole
        )


def compute_ratio(fixed: Distortions, empty: Distortions) -> tuple[Tensor, Tensor, Tensor]:
    """`c / c(empty)`, at least 1, and the ends of its interval, each of which holds with 95%; all `(n, K)`.

    Where no change was found with the features fixed, the ratio is a lower bound, and the interval has no upper end.
    All are NaN where there is no c(empty); the ends also where the attack has no second search to compare with.
    """

    def share(c: Tensor, of: Tensor) -> Tensor:
        # c(empty) is at most c(e): a change with features fixed is one with none fixed, too
        ratio = c.double() / of.double().clamp(min=1e-300)
        return ratio.clamp(min=1.0)

    ratio = share(fixed.c, empty.c)
    # nothing is known of c(empty) where its lower limit is 0, so nothing bounds the ratio from above
    high = torch.where(empty.low > 0, share(fixed.c, empty.low), torch.inf)
    low = share(fixed.low, empty.c)
    has_second = fixed.second.isfinite() & empty.second.isfinite()
    high_of_found = torch.where(has_second, high, torch.nan)
    low_of_found = torch.where(has_second, low, torch.nan)
    high = torch.where(fixed.found, high_of_found, torch.inf)
    low = torch.where(fixed.found, low_of_found, low)
    ratio, low, high = (
        torch.where(empty.found, values, torch.nan) for values in (ratio, low, high)
    )
    return ratio, low, high
