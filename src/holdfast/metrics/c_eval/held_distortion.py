"""What c-Eval's metrics share: options, and distortions while the top features of maps are held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from holdfast.algorithms.distortion import Attack, minimal_distortion
from holdfast.algorithms.distortion.base import get as get_attack
from holdfast.algorithms.distortion.geometry import check_norm
from holdfast.errors import check
from holdfast.explainers import Explainer
from holdfast.metrics.c_eval.empty_distortion import find_empty_distortion
from holdfast.metrics.c_eval.fixed_features import Unit, free_of, held_pixels, held_segments, pixel_scores
from holdfast.metrics.probe import Probe
from holdfast.model import Classifier
from holdfast.segments import How, check_segments, segment
from holdfast.tensors import draw_seed

_EXPECTED = "numbers between 0 and 1 (all held never flips), rising"


def check_options(attack: str | Attack, unit: Unit, segments: How | Tensor, norm: float | str, absolute: bool) -> How:
    """The options that all have in common; returns the segments in a form that a configuration can hold."""
    get_attack(attack)
    check(unit in ("pixel", "segment"), "unit", "'pixel' or 'segment'", repr(unit))
    check_norm(norm)
    check(isinstance(absolute, bool), "absolute", "True or False", absolute)
    return check_segments(segments)


def check_fractions(fractions: tuple[float, ...] | list[float]) -> tuple[float, ...]:
    """As a tuple; raises ArgumentError unless they are shares in rising order."""
    fine = isinstance(fractions, tuple | list) and len(fractions) > 0
    fine = fine and all(isinstance(f, int | float) and 0 < f < 1 for f in fractions)
    check(fine and list(fractions) == sorted(set(fractions)), "fractions", _EXPECTED, fractions)
    return tuple(float(fraction) for fraction in fractions)


@dataclass(frozen=True)
class Distortions:
    """Distortions of n samples while K growing sets of features are held.

    Attributes:
        c: `(n, K)`; a lower end where none was found.
        found: bool `(n, K)`.
        points: the changed inputs, `(n, K, ...)`.
        evaluations: inputs predicted, int `(n,)`.
    """

    c: Tensor
    found: Tensor
    points: Tensor
    evaluations: Tensor


class _Options(Protocol):
    """The options that all of these metrics have."""

    @property
    def attack(self) -> str | Attack: ...
    @property
    def unit(self) -> Unit: ...
    @property
    def segments(self) -> How | Tensor: ...
    @property
    def absolute(self) -> bool: ...


class Holder:
    """The samples of one explainer: scores of their places, what is held, and the distortions that are left.

    For use inside `classifier.session()`.
    """

    def __init__(
        self,
        metric: _Options,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> None:
        self.classifier, self.inputs = classifier, inputs
        self.norm = check_norm(getattr(metric, "norm", 2))
        self.attack, self.seed = get_attack(metric.attack), draw_seed(generator)
        self.probe = Probe(classifier, explainer, inputs, targets, absolute=True, explain="predicted")
        self.scores = pixel_scores(self.probe.maps, metric.absolute)
        self.probe.skip_constant(self.scores)
        self.rows = self.probe.usable()
        self.labels = segment(inputs, metric.segments).labels if metric.unit == "segment" else None

    def held(self, fraction: float) -> Tensor:
        """The places of the usable samples that are held, bool `(n, *spatial)`."""
        scores = self.scores[self.rows]
        if self.labels is None:
            return held_pixels(scores, fraction)
        return held_segments(scores, self.labels[self.rows], fraction)

    def empty(self) -> Distortions:
        """With nothing held; the same for all explainers."""
        if not len(self.rows):
            return self._none(1)
        inputs, targets = self.inputs[self.rows], self.probe.targets[self.rows]
        c, found, evaluations, points = find_empty_distortion(
            self.classifier, inputs, targets, self.norm, self.attack, self.seed
        )
        return Distortions(c[:, None], found[:, None], points[:, None], evaluations)

    def distortions(self, masks: list[Tensor], empty: Distortions) -> Distortions:
        """With the places of each of `masks` (bool `(n, *spatial)`, each within the next) held.

        Each search starts from the solution of the set before it too, the first from that with nothing held. What flips
        while more is held flips also while less is, so a smaller distortion found with more held is taken for both.
        """
        if not len(self.rows):
            return self._none(len(masks))
        inputs, targets = self.inputs[self.rows], self.probe.targets[self.rows]
        start, parts = empty.points[:, 0], []
        for mask in masks:
            generator = torch.Generator().manual_seed(self.seed)
            free = free_of(mask, inputs)
            found = minimal_distortion(
                self.classifier, inputs, targets, free, self.norm, self.attack, generator=generator, start=start
            )
            parts.append(found)
            start = torch.where(_rows(found.found, inputs), found.inputs, start)
        c, flips = torch.stack([p.distortion for p in parts], 1), torch.stack([p.found for p in parts], 1)
        points = torch.stack([p.inputs for p in parts], 1)
        evaluations = torch.stack([p.model_evaluations for p in parts], 1).sum(1)
        for place in reversed(range(len(masks) - 1)):
            _improve(c, flips, points, place, place + 1)
        # with more held no less is needed, so an end of a search is no lower than what came before
        c = torch.where(flips, c, c.cummax(1).values)
        return Distortions(c, flips, points, evaluations)

    def repaired(self, empty: Distortions, least: Distortions) -> Distortions:
        """`empty`, where needed with what was found while something was held: that flips with nothing held, too.

        So explainers may differ in c(empty), where one of them has shown that the attack had not found the least.
        """
        c, found = torch.cat([empty.c, least.c[:, :1]], 1), torch.cat([empty.found, least.found[:, :1]], 1)
        points = torch.cat([empty.points, least.points[:, :1]], 1)
        _improve(c, found, points, 0, 1)
        return Distortions(c[:, :1], found[:, :1], points[:, :1], empty.evaluations)

    def spread(self, values: Tensor, fill: float) -> Tensor:
        """Values of the usable samples `(n, ...)` among all `(N, ...)`, in float64 or bool."""
        if values.dtype == torch.bool:
            whole = torch.zeros((len(self.inputs), *values.shape[1:]), dtype=torch.bool, device=values.device)
        else:
            shape = (len(self.inputs), *values.shape[1:])
            whole = torch.full(shape, fill, dtype=torch.float64, device=values.device)
        whole[self.rows] = values.to(whole.dtype)
        return whole

    def counts(self, values: Tensor) -> Tensor:
        """Whole numbers of the usable samples `(n,)` among all, `(N,)`; 0 for the others."""
        whole = torch.zeros_like(self.probe.evaluations)
        whole[self.rows] = values
        return whole

    def _none(self, count: int) -> Distortions:
        c = self.inputs.new_zeros((0, count))
        whole = torch.zeros(0, dtype=torch.int64, device=c.device)
        return Distortions(c, c.bool(), self.inputs.new_zeros((0, count, *self.inputs.shape[1:])), whole)


def ratio(c: Tensor, empty: Distortions) -> Tensor:
    """`c / c(empty)` of c `(n, K)`, at least 1; NaN where there is no c(empty)."""
    shares = (c.double() / empty.c.double().clamp(min=1e-300)).clamp(min=1.0)
    return torch.where(empty.found, shares, torch.nan)


def _improve(c: Tensor, found: Tensor, points: Tensor, less: int, more: int) -> None:
    """Take the solution of column `more` for column `less` where it is better; in place."""
    better = found[:, more] & (~found[:, less] | (c[:, more] < c[:, less]))
    c[:, less] = torch.where(better, c[:, more], c[:, less])
    points[:, less] = torch.where(_rows(better, points[:, less]), points[:, more], points[:, less])
    found[:, less] |= better


def _rows(flags: Tensor, like: Tensor) -> Tensor:
    return flags.reshape(-1, *[1] * (like.ndim - 1))
