"""The drops of each sample as its positions are replaced."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from standfast.metrics.result import Result
from standfast.statistics.corruption.summary import CorruptionSummary, Curves, summarise


@dataclass(frozen=True)
class CorruptionCurveResult(Result):
    """The drops of each sample; the method `summary` has the numbers of the whole data set.

    Attributes:
        area_top, area_bottom: the area under a sample's own drop over its own `corrupted_share`, with the most or the
            least relevant positions first; NaN for skipped samples and for an order that was not measured. At most 1.
            `(N,)`
        std_error: the standard error of `area_top` (of `area_bottom` if only that was measured) due to the random
            replacements, from its spread over draws; NaN with a single draw. `(N,)`
        score: `S(x)`, the probability of the class at the sample itself. `(N,)`
        positive: n_plus, how many positions have positive relevance. `(N,)`
        positive_share: their share of all positions. `(N,)`
        no_positive: whether there are none; then all drops are 0. `(N,)` bool
        clipped: the share of replacements that lay outside of the model's bounds. `(N,)`
        drop_top, drop_bottom: the mean drop over draws at each k; NaN for skipped samples, where the model was not
            finite in any draw, and for an order that was not measured. `(N, K)`
        corrupted_share: `floor(k n_plus)` over the number of all positions. `(N, K)`
        fractions: the shares k.
        shares: whether drops are shares of the score; where they are not, such as for a number, there is no F1.
        origins: the samples, `(N, ...)`.
        replaced_at: for pictures, at which share each position is replaced, see `find_levels`; `(N, ...)`.
        noise_key: the key of the replacements of each sample, `(N,)`. Results with the same keys, shapes and `samples`
            saw the same values in the same places under every explainer, so their differences are paired.
    """

    stored = ("corrupted_share", "noise_key", "origins", "replaced_at")

    area_top: Tensor
    area_bottom: Tensor
    std_error: Tensor
    score: Tensor
    positive: Tensor
    positive_share: Tensor
    no_positive: Tensor
    clipped: Tensor
    drop_top: Tensor
    drop_bottom: Tensor
    corrupted_share: Tensor
    fractions: tuple[float, ...]
    origins: Tensor
    replaced_at: Tensor
    noise_key: Tensor = field(metadata={"per_sample": False})
    shares: bool = True

    def tensors(self) -> dict[str, Tensor]:
        """The drops of the measured orders, with their shares, the keys of the noise, and the tensors for pictures."""
        shares = torch.tensor(self.fractions, dtype=torch.float64).expand(len(self), -1)
        drops = {}
        for order, drop in self.score_drop.items():
            drops[f"drop_{order}"] = drop.contiguous()
        return {**super().tensors(), **drops, "fractions": shares.contiguous()}

    @property
    def score_drop(self) -> dict[str, Tensor]:
        """Mean drops `(N, K)` of the orders that were measured."""
        return {order: getattr(self, f"drop_{order}") for order in self.options["order"]}

    def curves(self) -> Curves:
        """The drops of all samples as arrays, for `summarise`."""
        drops = {}
        for order, values in self.score_drop.items():
            drops[order] = values.double().cpu().numpy()
        share = self.corrupted_share.double().cpu().numpy().copy()
        # a skipped sample has no curve: `Curves.find_complete` leaves out what is NaN
        share[[status != "ok" for status in self.status]] = math.nan
        return Curves(
            drops.get("top"), drops.get("bottom"), share, np.array(self.fractions), self.shares
        )

    def summary(
        self, *, tau: float = 0.5, q: float = 0.25, resamples: int = 2000, seed: int = 0
    ) -> CorruptionSummary:
        """All numbers of these samples, with intervals; see `standfast.statistics.corruption.summary.summarise`."""
        return summarise(self.curves(), tau=tau, q=q, resamples=resamples, seed=seed)
