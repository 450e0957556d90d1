"""What c-Eval's metrics share: options, and the least distortions while the top features of maps are held fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from standfast.algorithms.distortion import Attack, estimate_lower_limit, minimal_distortion
from standfast.algorithms.distortion.base import get as get_attack
from standfast.algorithms.distortion.geometry import check_norm
from standfast.errors import check
from standfast.explainers import Explainer
from standfast.metrics.c_eval.empty_distortion import find_empty_distortion
from standfast.metrics.c_eval.fixed_features import Unit, fix_pixels, fix_segments, mark_free, score_pixels
from standfast.metrics.probe import Probe
from standfast.model import Model
from standfast.segments import SegmentChoice, check_segments, segment
from standfast.tensors import draw_seed

_EXPECTED = "numbers between 0 and 1 (with all features fixed the class never changes), rising"


def check_options(attack: str | Attack, unit: Unit, segments: SegmentChoice | Tensor, absolute: bool) -> SegmentChoice:
    """Check the common options, and return the segments in the form that a configuration stores."""
    get_attack(attack)
    check(unit in ("pixel", "segment"), "unit", "'pixel' or 'segment'", repr(unit))
    check(isinstance(absolute, bool), "absolute", "True or False", absolute)
    return check_segments(segments)


def check_fractions(fractions: tuple[float, ...] | list[float]) -> tuple[float, ...]:
    """The shares as a tuple; raises `ArgumentError` unless they lie between 0 and 1, in rising order."""
    fits = isinstance(fractions, tuple | list) and len(fractions) > 0
    fits = fits and all(isinstance(f, int | float) and 0 < f < 1 for f in fractions)
    check(fits and list(fractions) == sorted(set(fractions)), "fractions", _EXPECTED, fractions)
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
        own = estimate_lower_limit(self.c, self.second)
        return torch.where(self.found, own, 0.0).cummax(1).values


class _Options(Protocol):
    """The options that all of these metrics have."""

    @property
    def attack(self) -> str | Attack: ...
    @property
    def unit(self) -> Unit: ...
    @property
    def segments(self) -> SegmentChoice | Tensor: ...
    @property
    def absolute(self) -> bool: ...


class DistortionSearch:
    """Finds the least distortions of the samples of one explainer while their top places are fixed.

    For use inside `model.session()`.

    Attributes:
        probe: explains the samples, and says which can be evaluated.
        rows: numbers of these n samples.
        scores: of the places, `(N, *spatial)`.
    """

    def __init__(
        self,
        metric: _Options,
        model: Model,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> None:
        self.model, self.inputs = model, inputs
        self.norm = check_norm(getattr(metric, "norm", 2))
        self.attack, self.seed = get_attack(metric.attack), draw_seed(generator)
        self.probe = Probe(model, explainer, inputs, targets)
        self.scores = score_pixels(self.probe.maps, metric.absolute)
        places = self.scores[:1].numel() or 2
        check(places > 1, "inputs", "at least two places, so that one can be fixed and another one changed", places)
        self.probe.skip_constant(self.scores)
        self.rows = self.probe.usable()
        self.labels = segment(inputs, metric.segments).labels if metric.unit == "segment" else None

    def fix_places(self, fraction: float) -> Tensor:
        """The places of the usable samples that are fixed, bool `(n, *spatial)`."""
        scores = self.scores[self.rows]
        if self.labels is None:
            return fix_pixels(scores, fraction)
        return fix_segments(scores, self.labels[self.rows], fraction)

    def find_empty(self) -> Distortions:
        """The distortions with no feature fixed, `c(empty)`; the same for all explainers."""
        if not len(self.rows):
            return self._find_none(1)
        inputs, targets = self.inputs[self.rows], self.probe.targets[self.rows]
        c, found, second, evaluations, points = find_empty_distortion(
            self.model, inputs, targets, self.norm, self.attack, self.seed
        )
        c = torch.where(found, c, 0.0)
        return Distortions(c[:, None], found[:, None], second[:, None], points[:, None], evaluations)

    def find(self, masks: list[Tensor], empty: Distortions) -> Distortions:
        """The distortions while the places of each of `masks` are fixed: bool `(n, *spatial)`, each within the next.

        Each search also starts from the solution for the mask before it, the first one from that with no feature fixed.
        A change that is possible while more is fixed is also possible while less is. So where a search with more fixed
        found a smaller distortion, both have it. And where a search found nothing, all that is known is that the least
        distortion is at least that with fewer features fixed. How far the search went is not a bound.
        """
        if not len(self.rows):
            return self._find_none(len(masks))
        inputs, targets = self.inputs[self.rows], self.probe.targets[self.rows]
        start, parts = empty.points[:, 0], []
        for mask in masks:
            generator = torch.Generator().manual_seed(self.seed)
            free = mark_free(mask, inputs)
            found = minimal_distortion(
                self.model, inputs, targets, free, self.norm, self.attack, generator=generator, start=start
            )
            parts.append(found)
            start = torch.where(_rows(found.found, inputs), found.inputs, start)
        c, flips = torch.stack([p.distortion for p in parts], 1), torch.stack([p.found for p in parts], 1)
        points = torch.stack([p.inputs for p in parts], 1)
        second = torch.stack([p.second for p in parts], 1)
        evaluations = torch.stack([p.model_evaluations for p in parts], 1).sum(1)
        for place in reversed(range(len(masks) - 1)):
            _improve(c, flips, second, points, place, place + 1)
        before = torch.where(flips.any(1, keepdim=True), 0.0, empty.c)
        c = torch.where(flips, c, 0.0)
        c = torch.where(flips, c, torch.cat([before, c], 1).cummax(1).values[:, 1:])
        return Distortions(c, flips, second, points, evaluations)

    def repair_empty(self, empty: Distortions, fixed: Distortions) -> Distortions:
        """`empty`, replaced where a smaller distortion was found while features were fixed; it is valid without, too.

        So explainers may differ in c(empty), where one of them has shown that the attack had not found the least.
        """
        c, found = torch.cat([empty.c, fixed.c[:, :1]], 1), torch.cat([empty.found, fixed.found[:, :1]], 1)
        points = torch.cat([empty.points, fixed.points[:, :1]], 1)
        second = torch.cat([empty.second, fixed.second[:, :1]], 1)
        _improve(c, found, second, points, 0, 1)
        return Distortions(c[:, :1], found[:, :1], second[:, :1], points[:, :1], empty.evaluations)

    def _find_none(self, count: int) -> Distortions:
        c = self.inputs.new_zeros((0, count))
        whole = torch.zeros(0, dtype=torch.int64, device=c.device)
        return Distortions(c, c.bool(), c, self.inputs.new_zeros((0, count, *self.inputs.shape[1:])), whole)


def compute_ratio(fixed: Distortions, empty: Distortions) -> tuple[Tensor, Tensor, Tensor]:
    """`c / c(empty)`, at least 1, and the ends of its interval, each of which holds with 95%; all `(n, K)`.

    Where no change was found with the features fixed, the ratio is a lower bound, and the interval has no upper end.
    All are NaN where there is no c(empty); the ends also where the attack has no second search to compare with.
    """

    def share(c: Tensor, of: Tensor) -> Tensor:
        return (c.double() / of.double().clamp(min=1e-300)).clamp(min=1.0)

    ratio = share(fixed.c, empty.c)
    high = torch.where(empty.low > 0, share(fixed.c, empty.low), torch.inf)
    low = share(fixed.low, empty.c)
    known = fixed.second.isfinite() & empty.second.isfinite()
    high = torch.where(fixed.found, torch.where(known, high, torch.nan), torch.inf)
    low = torch.where(fixed.found, torch.where(known, low, torch.nan), low)
    ratio, low, high = (torch.where(empty.found, values, torch.nan) for values in (ratio, low, high))
    return ratio, low, high


def _improve(c: Tensor, found: Tensor, second: Tensor, points: Tensor, less: int, more: int) -> None:
    """Replace the solutions of column `less` by those of column `more` where these are better, in place.

    The search of column `less` alone had found its own value, so this one is the second best then.
    """
    better = found[:, more] & (~found[:, less] | (c[:, more] < c[:, less]))
    own = torch.where(found[:, less], c[:, less], torch.inf)
    second[:, less] = torch.where(better, torch.minimum(own, second[:, less]), second[:, less])
    c[:, less] = torch.where(better, c[:, more], c[:, less])
    points[:, less] = torch.where(_rows(better, points[:, less]), points[:, more], points[:, less])
    found[:, less] |= better


def _rows(flags: Tensor, like: Tensor) -> Tensor:
    return flags.reshape(-1, *[1] * (like.ndim - 1))
