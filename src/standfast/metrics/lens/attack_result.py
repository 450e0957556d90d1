"""What an attack on attributions finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from standfast.metrics.probe_objective import PerturbedResult
from standfast.similarity import (
    LensProfile,
    correct_for_chance,
)
from standfast.similarity.stored import (
    name_above_chance,
    name_chance,
)


@dataclass(frozen=True)
class AttributionAttackResult(PerturbedResult):
    """The perturbed input of each sample, and how similar its map is to that of the clean input.

    A skipped sample (`status`) is compared with the centre of its neighbourhood, mostly with itself, so leave it out.

    Attributes:
        names: of the similarities; each is a column of the frame, under this name.
        value: the first of the similarities, `(N,)`.
        similarities: `(N, S)`, in the order of `names`; NaN where the map of the perturbed input is not finite.
        chance: what each similarity is on average for unrelated maps with the same values and supports, `(N, S)`
            (`Similarity.chance`); NaN for similarities of no LENS kind. The frame has it in the columns
            `"<name> chance"`, and the similarities corrected for it (`correct_for_chance`) in `"<name> above chance"`:
            0 for unrelated maps, 1 for equal ones, NaN where unrelated maps are nearly equal.
        found: a perturbed input was found that keeps the class, `(N,)` bool. Elsewhere `inputs` has the clean one, if
            the neighbourhood contains it.
        label_kept: the class is kept at `inputs`, `(N,)` bool. The random attacks may lose it, and guided ones where
            the neighbourhood does not contain the clean input.
        kept: top-k intersection for the metric's own k, `(N,)`.
        kept_within_1, kept_within_2: the mean of LENS-precision and LENS-recall at this k, for windows of one and of
            two positions around, `(N,)`.
        profile: intersections, precision and recall for the k and w of the curves; arrays `(N, K)` and `(N, K, W)`.

    The other attributes are those of `PerturbedResult`.
    """

    names: tuple[str, ...]
    similarities: Tensor
    chance: Tensor
    found: Tensor
    label_kept: Tensor
    kept: Tensor
    kept_within_1: Tensor
    kept_within_2: Tensor
    profile: LensProfile

    def tensors(self) -> dict[str, Tensor]:
        """Inputs, maps, and the curves with their k and w."""
        profile = self.profile
        rows = len(self)
        curves = ("intersection", "precision", "recall")
        return {
            **super().tensors(),
            "curve_k": torch.tensor(profile.k).expand(rows, -1),
            "curve_w": torch.tensor(profile.w).expand(rows, -1),
            **{f"curve_{name}": getattr(profile, name) for name in curves},
            **{f"curve_{name}_diverse": getattr(profile, f"{name}_diverse") for name in curves},
        }

    def columns(self) -> dict[str, Any]:
        """Further columns of the frame, with one for each similarity and its chance level."""
        columns = {
            **super().columns(),
            **dict(zip(self.names, self.similarities.T.tolist(), strict=True)),
        }
        for name, value, chance in zip(self.names, self.similarities.T, self.chance.T, strict=True):
            if not chance.isnan().all():
                columns[name_chance(name)] = chance.tolist()
                columns[name_above_chance(name)] = correct_for_chance(value, chance).tolist()
        return columns
