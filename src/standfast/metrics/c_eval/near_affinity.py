"""Is the decision surface nearly affine? The Pythagorean relation of c-Eval, Sec. IV-B, Eq. 10 and 11, along sizes.

For an affine classifier and one facing boundary, in the 2-norm and without bounds,

    1 / c(empty)^2 = 1 / c(e)^2 + 1 / c(rest)^2

for any features e and the rest of them. So `c_hat = (1 / c(e)^2 + 1 / c(rest)^2)^(-1/2)` estimates c(empty) without a
search for it. If the surface is nearly affine, `c_hat / c(empty)` is near 1 for all sizes of e (Figs. 6 to 8). The
converse does not hold. Bounds that stop a change, and several boundaries, move the ratio away from 1 even for an affine
model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from standfast.algorithms.distortion import Attack
from standfast.algorithms.distortion.base import get as get_attack
from standfast.explainers import Explainer
from standfast.metrics.base import Direction, Metric, Presets, metrics, of_samples
from standfast.metrics.c_eval.c_eval import BIBTEX
from standfast.metrics.c_eval.fixed_distortion import DistortionSearch, check_fractions, check_options
from standfast.metrics.c_eval.fixed_features import Unit
from standfast.metrics.result import Result
from standfast.model import Model
from standfast.records import set_fields
from standfast.segments import Method
from standfast.tensors import send


@dataclass(frozen=True)
class NearAffinityResult(Result):
    """How near to affine the decision surface around each sample is.

    Attributes:
        deviation: the mean over sizes of `|log(c_hat / c_empty)|`, 0 for an affine surface; NaN for skipped samples and
            where no change was found with no feature fixed. Where it is censored, its smallest possible value. `(N,)`
        low, high: the range of the deviation while each distortion lies anywhere within its 95% interval, `(N,)`; an
            infinite `high` where nothing bounds one of them.
        censored: no change was found with some features fixed, so that `deviation` is a lower bound. bool `(N,)`
        c_empty: the distortion with no feature fixed, `(N,)`.
        fractions: the sizes, repeated for each sample, `(N, K)`.
        c, c_rest: with the features fixed, and with the rest fixed, `(N, K)`; lower bounds where no change was found.
        c_found, c_rest_found: whether a change was found, bool `(N, K)`.
        estimate: c_hat, `(N, K)`; NaN where one of the two is a lower bound.
    """

    deviation: Tensor
    censored: Tensor
    c_empty: Tensor
    fractions: Tensor
    c: Tensor
    c_rest: Tensor
    c_found: Tensor
    c_rest_found: Tensor
    estimate: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """The curves."""
        names = ("fractions", "c", "c_rest", "c_found", "c_rest_found", "estimate")
        return {name: getattr(self, name) for name in names}

    def columns(self) -> dict[str, Any]:
        """Further columns of the frame, and `bound`: whether the deviation is only a lower bound."""
        return {**super().columns(), "bound": self.censored.tolist()}


@metrics.register("near_affinity")
@dataclass(frozen=True)
class NearAffinity(Metric):
    """Whether c(e), c(rest) and c(empty) fit together as on an affine surface (Vu et al. 2021, Eq. 11, Figs. 7, 8).

    It describes the model at an input; the explainer only chooses the features.

    Args:
        fractions: sizes of the explanation, rising.
        attack, unit, segments, absolute: see `CEval`. The norm is the 2-norm, for which the relation holds.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = NearAffinity((0.2, 0.5), attack="fmn:steps=10")(model, "gradcam", digits.inputs)
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
        "quick": {"attack": "fmn:steps=8,second=12,polish=2", "fractions": (0.1, 0.5, 0.9)},
        "paper": {"attack": "iga"},
    }

    fractions: tuple[float, ...] | list[float] = (0.1, 0.3, 0.5, 0.7, 0.9)
    attack: str | Attack = "fmn"
    unit: Unit = "pixel"
    segments: Method | int | Tensor = "auto"
    absolute: bool = False

    def __post_init__(self) -> None:
        set_fields(self, fractions=check_fractions(self.fractions))
        set_fields(self, segments=check_options(self.attack, self.unit, self.segments, self.absolute))

    @classmethod
    def example(cls) -> NearAffinity:
        """A configuration that takes seconds."""
        return cls((0.3, 0.6), "fmn:steps=5,second=5,polish=2")

    def for_samples(self, inputs: Tensor, rows: slice) -> NearAffinity:
        """The metric with the label maps of these samples, if every sample has its own."""
        return of_samples(self, inputs, rows)

    def expected_evaluations(self) -> int:
        """Those of the attack, twice for each size, and for c(empty)."""
        return self.expected_for(None)

    def expected_for(self, classes: int | None) -> int:
        """The same; the attack looks at all classes."""
        return 1 + (1 + 2 * len(self.fractions)) * get_attack(self.attack).expected_for(classes)

    def expected_explanations(self) -> int:
        """That of the sample itself."""
        return 1

    def evaluate(
        self,
        model: Model,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> NearAffinityResult:
        """Search for the least distortions with the top places fixed, and with all other places fixed."""
        search = DistortionSearch(self, model, explainer, inputs, targets, generator)
        masks = [search.fix_places(size) for size in self.fractions]
        empty = search.find_empty()
        fixed = search.find(masks, empty)
        rest = search.find([~mask for mask in reversed(masks)], empty)
        empty = search.repair_empty(search.repair_empty(empty, fixed), rest)
        both = fixed.found & rest.found.flip(1)
        c, c_rest, c_empty = fixed.c.double(), rest.c.double().flip(1), empty.c.double()
        # where no change was found, a distortion may be anything from its lower bound up
        most = [torch.where(part.found, part.c.double(), torch.inf) for part in (fixed, rest)]
        upper = _estimate(most[0], most[1].flip(1))
        deviation, _ = _deviate(_estimate(c, c_rest), upper, c_empty, c_empty)
        # where no change was found, c is that of a search with fewer features fixed, so its limit counts here, too; and
        # no distortion is below c(empty)
        limits = [torch.where(part.found, part.low, part.low.maximum(empty.low)).double() for part in (fixed, rest)]
        low, high = _deviate(_estimate(limits[0], limits[1].flip(1)), upper, empty.low.double(), c_empty)
        some = empty.found[:, 0]
        known = some & (both <= (fixed.second.isfinite() & rest.second.isfinite().flip(1))).all(1)
        low, high = (torch.where(known & empty.second.isfinite()[:, 0], end, torch.nan) for end in (low, high))
        estimate = torch.where(both & empty.found, _estimate(c, c_rest), torch.nan)
        deviation = torch.where(some, deviation, torch.nan)
        probe, rows = search.probe, search.rows
        probe.charge(rows, fixed.evaluations + rest.evaluations + empty.evaluations)
        sizes = send(self.fractions, inputs.device, torch.float64)
        nan = torch.nan
        deviation = probe.spread(deviation, nan)
        return NearAffinityResult(
            **probe.common_fields(self),
            value=deviation,
            low=probe.spread(low, nan),
            high=probe.spread(high, nan),
            deviation=deviation,
            censored=probe.spread(~both.all(1), False),
            c_empty=probe.spread(torch.where(empty.found, c_empty, nan)[:, 0], nan),
            fractions=sizes.expand(len(inputs), -1),
            c=probe.spread(c, nan),
            c_rest=probe.spread(c_rest, nan),
            c_found=probe.spread(fixed.found, False),
            c_rest_found=probe.spread(rest.found.flip(1), False),
            estimate=probe.spread(estimate, nan),
        )


def _estimate(c: Tensor, c_rest: Tensor) -> Tensor:
    """`c_hat` (Eq. 11), which grows with both distortions; an infinite one takes no part."""
    return (c.square().reciprocal() + c_rest.square().reciprocal()).rsqrt()


def _deviate(low: Tensor, high: Tensor, empty_low: Tensor, empty_high: Tensor) -> tuple[Tensor, Tensor]:
    """The ends of the mean of `|log(c_hat / c_empty)|` over sizes, for `c_hat` and `c_empty` within these ends."""
    least, most = (low / empty_high).log(), (high / empty_low).log()
    inside = (least <= 0) & (most >= 0)
    near = torch.where(inside, 0.0, torch.minimum(least.abs(), most.abs()))
    return near.mean(1), torch.maximum(least.abs(), most.abs()).mean(1)
