"""Is the decision surface nearly affine? The Pythagorean relation of c-Eval, Sec. IV-B, Eq. 10 and 11, along sizes.

For an affine classifier and one facing boundary, in the 2-norm and without bounds,

    1 / c(empty)^2 = 1 / c(e)^2 + 1 / c(rest)^2

for any features e and the rest of them. So `c_hat = (1 / c(e)^2 + 1 / c(rest)^2)^(-1/2)` estimates c(empty) without a
search for it. If the surface is nearly affine, `c_hat / c(empty)` is near 1 for all sizes of e (Figs. 6 to 8). The
converse does not hold. Bounds that stop a change, and several boundaries, move the ratio away from 1 even for an affine
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from standfast.metrics.base import metrics
from standfast.metrics.c_eval.fixed_distortion import (
    NO_CHANGE,
    QUICK,
    DistortionMetric,
    DistortionResult,
    DistortionSearch,
    check_fractions,
)
from standfast.metrics.probe import Call
from standfast.tensors import send
from standfast.value_spec import ValueSpec


@dataclass(frozen=True)
class NearAffinityResult(DistortionResult):
    """How near to affine the decision surface around each sample is.

    Attributes:
        value: the mean over sizes of `|log(c_hat / c_empty)|`, 0 for an affine surface; NaN for skipped samples and
            where no change was found with no feature fixed. Where it is censored, its smallest possible value. `(N,)`
        low, high: the range of the value while each distortion lies anywhere within its 95% interval, `(N,)`; an
            infinite `high` where nothing bounds one of them.
        fractions: the sizes, repeated for each sample, `(N, K)`.
        c, c_rest: with the features fixed, and with the rest fixed, `(N, K)`; lower bounds where no change was found.
        c_found, c_rest_found: whether a change was found, bool `(N, K)`.
        estimate: c_hat, `(N, K)`; NaN where one of the two is a lower bound.
    """

    stored = (
        "fractions",
        "c",
        "c_rest",
        "c_found",
        "c_rest_found",
        "estimate",
    )

    fractions: Tensor
    c: Tensor
    c_rest: Tensor
    c_found: Tensor
    c_rest_found: Tensor
    estimate: Tensor


@metrics.register("near_affinity")
@dataclass(frozen=True)
class NearAffinity(DistortionMetric):
    """Whether c(e), c(rest) and c(empty) fit together as on an affine surface (Vu et al. 2021, Eq. 11, Figs. 7, 8).

    It describes the model at an input; the explainer only chooses the features.

    Args:
        fractions: sizes of the explanation, rising.

    The other options are those of `DistortionMetric`, but the norm is the 2-norm, for which the relation holds.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = NearAffinity((0.2, 0.5), attack="fmn:steps=10")(model, "gradcam", digits.inputs)
    >>> result.estimate.shape
    torch.Size([2, 2])
    """

    name = "near_affinity"
    values = ValueSpec(
        "Near-affinity: mean deviation of the estimated c(empty)",
        "mean |log ratio|",
        None,  # the value describes the model
        censored="bound",
        censored_side="lower",
        empty=NO_CHANGE,
    )
    evidence = ""
    presets = {
        "quick": {"attack": QUICK, "fractions": (0.1, 0.5, 0.9)},
        "paper": {"attack": "iga"},
    }

    fractions: Annotated[Sequence[float], check_fractions] = (0.1, 0.3, 0.5, 0.7, 0.9)
    norm: float | str = field(default=2, init=False, repr=False)

    @classmethod
    def example(cls) -> NearAffinity:
        return cls((0.3, 0.6), attack="fmn:steps=5,second=5,polish=2")

    def count_searches(self) -> int:
        return 1 + 2 * len(self.fractions)

    def evaluate(self, call: Call) -> NearAffinityResult:
        """Search for the least distortions with the top places fixed, and with all other places fixed."""
        search = DistortionSearch(self, call)
        masks = [search.fix_places(size) for size in self.fractions]
        empty = search.find_empty()
        fixed = search.find(masks, empty)
        # the largest sets have the smallest rests, and each mask has to lie within the next one
        rest = search.find([~mask for mask in reversed(masks)], empty)
        # a change that is possible with features fixed is also possible with none
        empty.improve_by(fixed, 0, 0)
        empty.improve_by(rest, 0, 0)
        both = fixed.found & rest.found.flip(1)
        c = fixed.c.double()
        c_rest = rest.c.double().flip(1)
        c_empty = empty.c.double()
        # where no change was found, a distortion may be anything from its lower bound up
        most = []
        for part in (fixed, rest):
            most.append(torch.where(part.found, part.c.double(), torch.inf))
        upper = _estimate(most[0], most[1].flip(1))
        deviation, _ = _deviate(_estimate(c, c_rest), upper, c_empty, c_empty)
        # where no change was found, c is that of a search with fewer features fixed, so its limit counts here, too; and
        # no distortion is below c(empty)
        limits = [
            torch.where(part.found, part.low, part.low.maximum(empty.low)).double()
            for part in (fixed, rest)
        ]
        low, high = _deviate(
            _estimate(limits[0], limits[1].flip(1)), upper, empty.low.double(), c_empty
        )
        has_empty = empty.found[:, 0]
        # `<=` of bool is an implication: where both were found, both need a second search
        has_seconds = has_empty & (
            both <= (fixed.second.isfinite() & rest.second.isfinite().flip(1))
        ).all(1)
        low, high = (
            torch.where(has_seconds & empty.second.isfinite()[:, 0], end, torch.nan)
            for end in (low, high)
        )
        probe = search.probe
        evaluations = fixed.evaluations + rest.evaluations + empty.evaluations
        probe.charge(search.rows, evaluations)
        fields = probe.common_fields(
            self,
            value=torch.where(has_empty, deviation, torch.nan),
            low=low,
            high=high,
            censored=~both.all(1),
            c_empty=torch.where(empty.found, c_empty, torch.nan)[:, 0],
            c=c,
            c_rest=c_rest,
            c_found=fixed.found,
            c_rest_found=rest.found.flip(1),
            estimate=torch.where(both & empty.found, _estimate(c, c_rest), torch.nan),
        )
        sizes = send(self.fractions, call.inputs.device, torch.float64)
        return NearAffinityResult(**fields, fractions=sizes.expand(len(call.inputs), -1))


def _estimate(c: Tensor, c_rest: Tensor) -> Tensor:
    """`c_hat` (Eq. 11), which grows with both distortions; an infinite one takes no part."""
    return (c.square().reciprocal() + c_rest.square().reciprocal()).rsqrt()


def _deviate(
    low: Tensor, high: Tensor, empty_low: Tensor, empty_high: Tensor
) -> tuple[Tensor, Tensor]:
    """The ends of the mean of `|log(c_hat / c_empty)|` over sizes, for `c_hat` and `c_empty` within these ends."""
    least = (low / empty_high).log()
    most = (high / empty_low).log()
    inside = (least <= 0) & (most >= 0)
    # between ends on both sides of 1 the ratio may be 1
    nearer_end = torch.minimum(least.abs(), most.abs())
    farther_end = torch.maximum(least.abs(), most.abs())
    near = torch.where(inside, 0.0, nearer_end)
    return near.mean(1), farther_end.mean(1)
