"""Scores of samples without some of their regions, whatever the map says of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.explainers.base import resolve_baseline
from standfast.metrics.faithfulness.regions import cut_cells
from standfast.metrics.probe import Call, Probe
from standfast.metrics.replaced_copies import ReplacedCopies
from standfast.segments import SegmentChoice, Segments, segment
from standfast.tasks import Scale, measure_score
from standfast.tasks.base import find_lost


@dataclass(frozen=True)
class Ablations:
    """Runs the model on samples without some of their regions. For use inside `model.session()`.

    Attributes:
        copies: runs the model, and counts.
        regions: of the samples.
        baseline: what stands in the place of removed regions.
        score: of the explained class.
    """

    copies: ReplacedCopies
    regions: Segments
    baseline: Tensor
    score: Scale

    @classmethod
    def of_call(
        cls,
        probe: Probe,
        call: Call,
        baseline: float | Sequence[float] | None,
        region: int | None,
        segments: SegmentChoice | None,
        score: Scale,
    ) -> Ablations:
        """Those of the samples of a call; regions and baseline are as the options of the metric say."""
        inputs = call.inputs
        if segments is None:
            regions = cut_cells(inputs, region)
        else:
            regions = segment(inputs, segments)
        return cls(
            ReplacedCopies(probe, inputs),
            regions,
            resolve_baseline(call.model, inputs, baseline),
            score,
        )

    @property
    def exist(self) -> Tensor:
        """Which regions each sample has, bool `(N, width)`."""
        return (
            torch.arange(self.regions.width, device=self.regions.count.device)
            < self.regions.count[:, None]
        )

    @property
    def start(self) -> Tensor:
        """The scores of the samples themselves, float64 `(N,)`."""
        probe = self.copies.probe
        return measure_score(probe.model.task, probe.logits, probe.targets, self.score)

    def measure(self, samples: Tensor, removed: Tensor) -> Tensor:
        """The scores, float64 `(M,)`, of copies without regions; NaN where the model is not finite.

        Args:
            samples: of which the copies are, int64 `(M,)`.
            removed: the regions that are removed, bool `(M, width)`.
        """
        return self.measure_lost(samples, removed)[0]

    def measure_lost(self, samples: Tensor, removed: Tensor) -> tuple[Tensor, Tensor]:
        """The scores as `measure` has them, and in which copies the answer is lost (`find_lost`), bool `(M,)`."""
        if not len(samples):
            scores = torch.zeros(0, dtype=torch.float64, device=samples.device)
            return scores, scores.bool()
        labels, probe = self.regions.labels.flatten(1), self.copies.probe

        def replace(owner: Tensor, gone: Tensor) -> tuple[Tensor, Tensor]:
            return gone.gather(1, labels[owner]).to(self.copies.inputs.dtype), self.baseline

        def run(copies: Tensor, owner: Tensor, gone: Tensor) -> tuple[Tensor, Tensor]:
            outputs = probe.model.forward(copies)
            scores = probe.measure_score(outputs, owner, self.score)
            task, answers = probe.model.task, probe.targets[owner]
            return scores, find_lost(task, probe.logits[owner], outputs, answers)

        with torch.no_grad():
            scores, lost = self.copies.run(run, replace, samples, removed)
        probe.count(samples, torch.zeros_like(lost), scores.isnan())
        return scores, lost
