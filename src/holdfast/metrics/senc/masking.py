"""How well prediction and explanation survive a mask: the weights that both sensitivity consistencies start from."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from holdfast.algorithms.masks.random_masks import Consistency, consistency
from holdfast.explainers.baselines import RandomExplainer
from holdfast.metrics.probe import Probe
from holdfast.similarity.ranked_reference import RankedReference


class Survival:
    """Weights under masks, counted in the probe. For use inside `classifier.session()`.

    `1 - |P(x) - P_i(x)|`, P the probability of the probe's target, and `Spearman(e(x), e_i(x))`; NaN where logits or
    explanation are not finite.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        #: the random explainer means a fresh map at each mask, though inputs may be the same
        self.noise = probe.explainer if isinstance(probe.explainer, RandomExplainer) else None
        self._ranked = RankedReference(probe.reference)
        self._probability = _probability(probe.logits, probe.targets)

    def explain(self, x: Tensor, classes: Tensor, call: Tensor) -> tuple[Tensor, Tensor]:
        """Maps and logits of one chunk that fits into memory; `call` `(M,)` numbers the masks, from 1."""
        probe = self.probe
        maps, logits = probe.explainer.attribute(probe.classifier, x, classes if probe.explain == "origin" else None)
        return (maps if self.noise is None else self.noise.noise(x, call)), logits

    def weigh(self, rows: Tensor, maps: Tensor, logits: Tensor) -> Tensor:
        """The weights `(2, M)` of masked copies of the samples `rows` `(M,)`: of prediction and of explanation."""
        probe = self.probe
        alike, constant = self._ranked.compare(maps.abs() if probe.absolute else maps, rows)
        finite = torch.isfinite(logits).all(1) & torch.isfinite(alike)
        probe.count(rows, constant & finite, ~finite)
        survived = 1 - (self._probability[rows] - _probability(logits, probe.targets[rows])).abs()
        return torch.where(finite, torch.stack((survived, alike.double())), torch.nan)


def unmoved(weights: Tensor) -> Tensor:
    """Which of the weights `(..., K)` of `weigh` are the same at all masks where they are finite; bool `(...)`."""
    seen = weights.isfinite()
    return weights.where(seen, torch.inf).amin(-1) >= weights.where(seen, -torch.inf).amax(-1)


def told(seen: Consistency, weights: Tensor) -> Consistency:
    """What was found, degenerate and without an interval where one of the weights `(2, R, K)` never changes.

    Published sums rank features even then, by how often each was kept: that is their order, but says nothing.
    """
    nothing = unmoved(weights).any(0)
    interval = torch.where(nothing[:, None], torch.nan, seen.interval)
    return dataclasses.replace(seen, degenerate=seen.degenerate | nothing, interval=interval)


def published(weights: Tensor, masks: Tensor, features: Tensor | None = None) -> Tensor:
    """Rho `(R,)` of the published sums of weights `(2, R, K)`; masks and features as in `consistency`."""
    prediction, explanation = weights
    seen = consistency(
        prediction, explanation, masks, features=features, estimator="paper", permutations=0, resamples=0
    )
    return seen.rho


def _probability(logits: Tensor, targets: Tensor) -> Tensor:
    return logits.double().softmax(1).gather(1, targets[:, None])[:, 0]
