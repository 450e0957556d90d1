"""How well prediction and explanation survive a mask: the weights that both sensitivity consistencies start from."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.explainers.random import RandomExplainer
from holdfast.metrics.probe import Probe
from holdfast.similarity.ranked import RankedReference


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
        maps, logits = probe.explainer.attribute(probe.classifier, x, classes if probe.explain == "seed" else None)
        return (maps if self.noise is None else self.noise.noise(x, call)), logits

    def weigh(self, rows: Tensor, maps: Tensor, logits: Tensor) -> Tensor:
        """The weights `(2, M)` of masked copies of the samples `rows` `(M,)`: of prediction and of explanation."""
        probe = self.probe
        alike, constant = self._ranked.compare(maps.abs() if probe.absolute else maps, rows)
        finite = torch.isfinite(logits).all(1) & torch.isfinite(alike)
        probe.count(rows, constant & finite, ~finite)
        survived = 1 - (self._probability[rows] - _probability(logits, probe.targets[rows])).abs()
        return torch.where(finite, torch.stack((survived, alike.double())), torch.nan)


def _probability(logits: Tensor, targets: Tensor) -> Tensor:
    return logits.double().softmax(1).gather(1, targets[:, None])[:, 0]
