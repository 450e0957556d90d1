"""c-Eval: how much must the input change outside of the explanation until the prediction changes?

    c(e) = min ||delta||_p   such that   argmax f(x + delta) != argmax f(x)  and  delta = 0 on e

with x + delta within the bounds, for the features e that an explanation puts first (c-Eval, Eq. 3 and 4). An
explanation is good if c is large: with its features held fixed, the others have to change much. c grows with the
number of fixed features, so explanations are compared at equal size. It also differs between inputs, so what is
averaged is the ratio to `c(empty)`, the distortion with no feature fixed (Sec. II, "Normalize").

An attack finds an upper bound of the minimum. How far above the minimum it may be is judged from its separate searches:
if the two best ones agree, the interval of c is narrow (`estimate_lower_limit`); `certified_distortion` proves a
lower bound. Any change that is possible with e fixed is also possible with no feature fixed, so c(empty) is at most
c(e). Where an attack found a larger c(empty), it is replaced, and a ratio is never below 1. Where no change of the
prediction was found, c is censored: all that is known is that it is at least that of a smaller set of fixed features.
How far the attack went says nothing. Medians treat such a sample as any value from there up.

Source: Vu, Nguyen, Phan, Gera and Thai, "c-Eval: A unified metric to evaluate feature-based explanations via
perturbation" (IEEE Big Data 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from standfast.algorithms import certified_distortion
from standfast.errors import check
from standfast.metrics.base import metrics
from standfast.metrics.c_eval.fixed_distortion import (
    NO_CHANGE,
    QUICK,
    DistortionMetric,
    DistortionResult,
    DistortionSearch,
    compute_ratio,
)
from standfast.metrics.c_eval.fixed_features import mark_free
from standfast.metrics.probe import Call
from standfast.records import Fraction
from standfast.value_spec import ValueSpec


@dataclass(frozen=True)
class CEvalResult(DistortionResult):
    """c-Eval of each sample.

    Attributes:
        value: the ratio `c / c_empty`, at least 1, `(N,)`; NaN for skipped samples, and where no change was found even
            with no feature fixed.
        c: the least distortion found that changes the prediction while the explanation's features are fixed; NaN for
            skipped samples. `(N,)`
        low, high: the ends of the interval of the ratio, `(N,)`, from how far the separate searches of the attack are
            apart: `low` from those for c, `high` from those for c_empty. Each end holds with 95%, so both together with
            at least 90%. `high` is infinite where nothing bounds the ratio from above. NaN where there is a single
            search (`iga`, `gsa`, `cw`, `alma`, `ddn`).
        c_low: a lower 95% limit of the least distortion, by the same rule; c itself is its upper end. 0 where nothing
            is known. `(N,)`
        search_gap: by how much the second best search is worse, as a share of c, `(N,)`; NaN where there is none.
        found: whether a change of the prediction was found. `(N,)`
        censored: no change was found, so `c` and the ratio are lower bounds, `c_empty` and 1; or, of other tasks than
            classification, none that is smaller with no feature fixed, so that the ratio is at least 1. bool `(N,)`
        certified_c: a certified lower bound of the true minimum, so that `certified_c <= true c(e) <= c`; NaN without
            one. `(N,)`
        fixed_share: the share of places that is fixed, `(N,)`.
        empty_evaluations: inputs predicted for `c_empty`, which all explainers share, int `(N,)`; they are not part of
            `model_evaluations`.
        predicted: the class predicted at the changed input, `(N,)`, or what else the answer has become there
            (`Task.read_answer`); -1 or NaN where there is none.
        mask: the fixed places, bool `(N, *spatial)`.
        inputs, origins, origin_maps: the changed inputs, the samples and their explanations, `(N, ...)`.
    """

    stored = ("mask", "inputs", "origins", "origin_maps")

    c: Tensor
    c_low: Tensor
    search_gap: Tensor
    found: Tensor
    certified_c: Tensor
    fixed_share: Tensor
    empty_evaluations: Tensor
    predicted: Tensor
    mask: Tensor
    inputs: Tensor
    origins: Tensor
    origin_maps: Tensor


@metrics.register("c_eval")
@dataclass(frozen=True, kw_only=True)
class CEval(DistortionMetric):
    """The least distortion outside of the explanation that changes the prediction (Vu et al. 2021).

    Args:
        fraction: the share of the places (pixels with all their channels, times, columns) that is fixed; at least one
            place is fixed, and at least one stays free.
        certify: `"crown"` or `"interval"` for a lower bound of c, so that the true minimum lies between the two. For
            small networks of layers that `standfast.algorithms.certified_distortion` knows; it takes seconds to minutes
            for each sample.

    `attack` and the other options are those of `DistortionMetric`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = CEval(attack="fmn:steps=10")(model, "integrated_gradients", digits.inputs)
    >>> bool((result.value > 1).all()), result.mask.sum((1, 2)).tolist()
    (True, [78, 78])
    """

    name = "c_eval"
    controls = True
    presets = {"quick": {"attack": QUICK}, "paper": {"attack": "iga"}}

    fraction: Fraction = 0.1
    certify: Literal["crown", "interval"] | None = None

    @classmethod
    def value_spec(cls, options: Mapping[str, Any]) -> ValueSpec:
        """A larger ratio is better; where the answer did not change it is a lower bound."""
        size = f"{float(options.get('fraction', cls.fraction)):.0%}"
        return ValueSpec(
            f"c-Eval: least change that changes the answer with the top {size} fixed, over that with no feature fixed",
            "c(e) / c(empty)",
            "higher",
            decimals=2,
            censored="bound",
            censored_side="lower",
            caution="An attack finds an upper bound of the true minimum. Ratios can be compared at equal size only.",
            empty=NO_CHANGE,
        )

    @classmethod
    def example(cls) -> CEval:
        return cls(attack="fmn:steps=5,second=5,polish=2")

    def count_searches(self) -> int:
        return 2

    def evaluate(self, call: Call) -> CEvalResult:
        """Fix the top places of each map, and search for the least distortion of the others and of all."""
        task = call.model.task
        can_certify = task.classes or self.certify is None
        check(
            can_certify,
            "certify",
            f"None for the task {task.name}, as bounds are those of classes",
            repr(self.certify),
        )
        search = DistortionSearch(self, call)
        probe = search.probe
        rows = search.rows
        fixed = search.fix_places(self.fraction)
        empty = search.find_empty()
        least = search.find([fixed], empty)
        tied = search.improve_empty(empty, least)
        probe.charge(rows, least.evaluations)
        c = least.c[:, 0]
        was_found = least.found[:, 0]
        second = least.second[:, 0]
        c_empty = empty.c[:, 0]
        points = call.inputs.clone()
        mask = torch.zeros_like(search.scores, dtype=torch.bool)
        points[rows] = least.points[:, 0]
        mask[rows] = fixed
        predicted = task.read_answer(probe.logits, probe.targets)
        flipped = rows[was_found]
        no_answer = torch.nan if predicted.is_floating_point() else -1
        predicted.fill_(no_answer)
        if len(flipped):
            predicted[flipped] = task.read_answer(
                call.model.logits(points[flipped]), probe.targets[flipped]
            )
        certified = torch.full((len(rows),), torch.nan, dtype=torch.float64, device=points.device)
        if self.certify and len(rows):
            free = mark_free(fixed, search.inputs)
            certified = certified_distortion(
                call.model,
                search.inputs,
                search.targets,
                free,
                norm=search.norm,
                method=self.certify,
            ).lower
        ratio, low, high = (ends[:, 0] for ends in compute_ratio(least, empty))
        # without a certificate nothing is proved but that a ratio is at least 1
        certified_ratio = certified / c_empty.double()
        proved = certified_ratio.nan_to_num(nan=0.0).clamp(min=1.0)
        ratio_of_second = second.double() / c.double().clamp(min=1e-300)
        gap = ratio_of_second - 1
        fields = probe.common_fields(
            self,
            value=ratio,
            low=torch.maximum(low, proved),  # a limit that is not known (NaN) stays unknown
            high=high,
            c=c,
            c_empty=torch.where(empty.found[:, 0], c_empty, torch.nan),
            c_low=least.low[:, 0],
            search_gap=torch.where(second.isfinite() & was_found, gap, torch.nan),
            found=was_found,
            censored=~was_found | tied,
            certified_c=certified,
            fixed_share=fixed.flatten(1).double().mean(1),
            empty_evaluations=empty.evaluations,
        )
        return CEvalResult(
            **fields,
            predicted=predicted,
            mask=mask,
            inputs=points,
            origins=call.inputs,
            origin_maps=probe.maps,
        )
