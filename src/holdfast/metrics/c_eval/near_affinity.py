"""Is the decision surface nearly affine? The Pythagorean relation of c-Eval, Sec. IV-B, Eq. 10 and 11, along sizes.

For an affine classifier and one facing boundary, in the 2-norm and without bounds,

    1 / c(empty)^2 = 1 / c(e)^2 + 1 / c(rest)^2

for any features e and the rest of them. So `c_hat = (1 / c(e)^2 + 1 / c(rest)^2)^(-1/2)` estimates c(empty) without a
search for it. If the surface is nearly affine, `c_hat / c(empty)` is near 1 for all sizes of e (Figs. 6 to 8). The
converse does not hold. Bounds that stop a change, and several boundaries, move the ratio away from 1 even for an affine
classifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.algorithms.distortion import Attack
from holdfast.algorithms.distortion.base import get as get_attack
from holdfast.explainers import Explainer
from holdfast.metrics.base import Direction, Metric, Presets, metrics, of_samples
from holdfast.metrics.c_eval.c_eval import BIBTEX
from holdfast.metrics.c_eval.fixed_distortion import DistortionSearch, check_fractions, check_options
from holdfast.metrics.c_eval.fixed_features import Unit
from holdfast.metrics.result import Result
from holdfast.model import Classifier
from holdfast.records import set_fields
from holdfast.segments import Method


@dataclass(frozen=True)
class NearAffinityResult(Result):
    """How near to affine the decision surface around each sample is.

    Attributes:
        deviation: the mean over sizes of `|log(c_hat / c_empty)|`, 0 for an affine surface; NaN for skipped samples and
            where no change was found. `(N,)`
        c_empty: the distortion with no feature fixed, `(N,)`.
        fractions: the sizes, repeated for each sample, `(N, K)`.
        c, c_rest: with the features fixed, and with the rest fixed, `(N, K)`; infinite where no change was found.
        estimate: c_hat, `(N, K)`.
    """

    deviation: Tensor
    c_empty: Tensor
    fractions: Tensor
    c: Tensor
    c_rest: Tensor
    estimate: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """The curves."""
        return {name: getattr(self, name) for name in ("fractions", "c", "c_rest", "estimate")}


@metrics.register("near_affinity")
@dataclass(frozen=True)
class NearAffinity(Metric):
    """Whether c(e), c(rest) and c(empty) fit together as on an affine surface (Vu et al. 2021, Eq. 11, Figs. 7, 8).

    It describes the model at an input; the explainer only chooses the features.

    Args:
        fractions: sizes of the explanation, rising.
        attack, unit, segments, absolute: see `CEval`. The norm is the 2-norm, for which the relation holds.

    >>> import holdfast
    >>> digits = holdfast.data.bundled("digits")[:2]
    >>> classifier = holdfast.Classifier(holdfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = NearAffinity((0.2, 0.5))(classifier, "gradcam", digits.inputs)
    >>> result.estimate.shape
    torch.Size([2, 2])
    """

    name: ClassVar[str] = "near_affinity"
    needs: ClassVar[str] = "gradients"
    category: ClassVar[str] = "faithfulness"
    direction: ClassVar[Direction] = None  # the deviation describes the model
    citation: ClassVar[str] = "vu2021ceval"
    bibtex: ClassVar[str] = BIBTEX
    presets: ClassVar[Presets] = {
        "quick": {"attack": "fmn:steps=10,polish=3", "fractions": (0.1, 0.5, 0.9)},
        "paper": {"attack": "iga"},
    }

    fractions: tuple[float, ...] | list[float] = (0.1, 0.3, 0.5, 0.7, 0.9)
    attack: str | Attack = "fmn"
    unit: Unit = "pixel"
    segments: Method | int | Tensor = "auto"
    absolute: bool = False

    def __post_init__(self) -> None:
        set_fields(self, fractions=check_fractions(self.fractions))
        set_fields(self, segments=check_options(self.attack, self.unit, self.segments, 2, self.absolute))

    @classmethod
    def example(cls) -> NearAffinity:
        """A configuration that takes seconds."""
        return cls((0.3, 0.6), "fmn:steps=5,polish=2")

    def for_samples(self, inputs: Tensor, rows: slice) -> NearAffinity:
        """The metric with the label maps of these samples, if every sample has its own."""
        return of_samples(self, inputs, rows)

    def expected_evaluations(self) -> int:
        """Those of the attack, twice for each size, and for c(empty)."""
        return 1 + (1 + 2 * len(self.fractions)) * get_attack(self.attack).expected_evaluations()

    def expected_explanations(self) -> int:
        """That of the sample itself."""
        return 1

    def evaluate(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> NearAffinityResult:
        """Search for the least distortions with the top places fixed, and with all other places fixed."""
        search = DistortionSearch(self, classifier, explainer, inputs, targets, generator)
        masks = [search.fix_places(size) for size in self.fractions]
        empty = search.find_empty()
        fixed = search.find(masks, empty)
        rest = search.find([~mask for mask in reversed(masks)], empty)
        empty = search.repair_empty(search.repair_empty(empty, fixed), rest)
        c = torch.where(fixed.found, fixed.c, torch.inf).double()
        c_rest = torch.where(rest.found, rest.c, torch.inf).double().flip(1)
        estimate = (c.square().reciprocal() + c_rest.square().reciprocal()).rsqrt()
        deviation = (estimate / empty.c.double()).log().abs().mean(1)
        deviation = torch.where(deviation.isfinite() & empty.found[:, 0], deviation, torch.nan)
        probe, rows = search.probe, search.rows
        probe.charge(rows, fixed.evaluations + rest.evaluations + empty.evaluations)
        sizes = torch.tensor(self.fractions, dtype=torch.float64, device=inputs.device)
        nan = torch.nan
        deviation = probe.spread(deviation, nan)
        return NearAffinityResult(
            **probe.common_fields(self),
            value=deviation,
            deviation=deviation,
            c_empty=probe.spread(empty.c[:, 0], nan),
            fractions=sizes.expand(len(inputs), -1),
            c=probe.spread(c, nan),
            c_rest=probe.spread(c_rest, nan),
            estimate=probe.spread(estimate, nan),
        )
