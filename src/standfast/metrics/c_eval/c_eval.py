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

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from standfast.algorithms import certified_distortion
from standfast.algorithms.distortion import Attack
from standfast.algorithms.distortion.base import get as get_attack
from standfast.algorithms.distortion.geometry import check_norm
from standfast.errors import check
from standfast.explainers import Explainer
from standfast.metrics.base import Direction, Metric, Presets, metrics, of_samples
from standfast.metrics.c_eval.fixed_distortion import DistortionSearch, check_fractions, check_options, compute_ratio
from standfast.metrics.c_eval.fixed_features import Unit, mark_free
from standfast.metrics.result import Result
from standfast.model import Model
from standfast.records import set_fields
from standfast.segments import Method
from standfast.tensors import send

BIBTEX = """@inproceedings{vu2021ceval,
  title     = {c-Eval: A Unified Metric to Evaluate Feature-based Explanations via Perturbation},
  author    = {Vu, Minh N. and Nguyen, Truc D. and Phan, NhatHai and Gera, Ralucca and Thai, My T.},
  booktitle = {IEEE International Conference on Big Data},
  pages     = {927--937},
  year      = {2021}
}"""


@dataclass(frozen=True)
class CEvalResult(Result):
    """c-Eval of each sample.

    Attributes:
        c: the least distortion found that changes the prediction while the explanation's features are fixed; NaN for
            skipped samples. `(N,)`
        c_empty: the same with no feature fixed, `(N,)`; the smaller of what the attack found without and with them.
        ratio: `c / c_empty`, at least 1, `(N,)`; NaN where no change was found even with no feature fixed.
        low, high: the ends of the interval of the ratio, `(N,)`, from how far the separate searches of the attack are
            apart: `low` from those for c, `high` from those for c_empty. Each end holds with 95%, so both together with
            at least 90%. `high` is infinite where nothing bounds the ratio from above. NaN where there is a single
            search (`iga`, `gsa`, `cw`, `alma`, `ddn`).
        c_low: a lower 95% limit of the least distortion, by the same rule; c itself is its upper end. 0 where nothing
            is known. `(N,)`
        search_gap: by how much the second best search is worse, as a share of c, `(N,)`; NaN where there is none.
        found: whether a change of the prediction was found. `(N,)`
        censored: no change was found, so `c` and `ratio` are lower bounds: the largest ones with fewer features fixed,
            at least `c_empty` and 1. bool `(N,)`
        certified_c: a certified lower bound of the true minimum, so that `certified_c <= true c(e) <= c`; NaN without
            one. `(N,)`
        fixed_share: the share of places that is fixed, `(N,)`.
        empty_evaluations: inputs predicted for `c_empty`, which all explainers share, int `(N,)`; they are not part of
            `model_evaluations`.
        predicted: the class predicted at the changed input, `(N,)`; -1 where there is none.
        mask: the fixed places, bool `(N, *spatial)`.
        inputs, origins, origin_maps: the changed inputs, the samples and their explanations, `(N, ...)`.
        fractions: the sizes of the sweep, `(K,)`; empty without one.
        curve, curve_found: c at these sizes, and whether a change was found; otherwise it is a lower bound. `(N, K)`.
    """

    c: Tensor
    c_empty: Tensor
    ratio: Tensor
    c_low: Tensor
    search_gap: Tensor
    found: Tensor
    censored: Tensor
    certified_c: Tensor
    fixed_share: Tensor
    empty_evaluations: Tensor
    predicted: Tensor
    mask: Tensor
    inputs: Tensor
    origins: Tensor
    origin_maps: Tensor
    fractions: Tensor = field(metadata={"per_sample": False})
    curve: Tensor
    curve_found: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """Masks, inputs and maps; and the sweep, with its sizes repeated for each sample."""
        found = {name: getattr(self, name) for name in ("mask", "inputs", "origins", "origin_maps")}
        if self.fractions.numel():
            found |= {"curve": self.curve, "curve_found": self.curve_found}
            found["fractions"] = self.fractions.expand(len(self), -1)
        return found

    def columns(self) -> dict[str, Any]:
        """Further columns of the frame, and `bound`: whether c is only a lower bound."""
        return {**super().columns(), "bound": self.censored.tolist()}


@metrics.register("c_eval")
@dataclass(frozen=True)
class CEval(Metric):
    """The least distortion outside of the explanation that changes the prediction (Vu et al. 2021).

    Args:
        attack: how the distortion is searched for: `"fmn"`, `"alma"`, `"ddn"`, `"cw"`, `"iga"` or `"gsa"`, with options
            as in `"fmn:steps=100"`, or an `Attack`. The paper uses the last three. `"fmn"` has several searches, so
            results have intervals.
        fraction: the share of the places (pixels with all their channels, times, columns) that is fixed; at least one
            place is fixed, and at least one stays free.
        unit: `"pixel"`, or `"segment"` for whole segments, so that maps of segments and of pixels can be compared. The
            last segment is fixed in part, so that all explanations have one size.
        segments: how inputs are cut, see `standfast.segments.segment`; for `unit="segment"`.
        norm: of the distortion, 2 or `"inf"`.
        absolute: rank places by absolute attributions. Off by default, because evidence against the class does not
            explain it.
        fractions: more sizes, rising, for the sweep in `curve`; each search starts from the solution of the one before.
        certify: `"crown"` or `"interval"` for a lower bound of c, so that the true minimum lies between the two. For
            small networks of layers that `standfast.algorithms.certified_distortion` knows; it takes seconds to minutes
            for each sample.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = CEval(attack="fmn:steps=10")(model, "integrated_gradients", digits.inputs)
    >>> bool((result.ratio > 1).all()), result.mask.sum((1, 2)).tolist()
    (True, [78, 78])
    """

    name: ClassVar[str] = "c_eval"
    needs: ClassVar[str] = "gradients"
    category: ClassVar[str] = "faithfulness"
    controls: ClassVar[bool] = True
    direction: ClassVar[Direction] = "higher"
    citation: ClassVar[str] = "vu2021ceval"
    bibtex: ClassVar[str] = BIBTEX
    presets: ClassVar[Presets] = {
        "quick": {"attack": "fmn:steps=8,second=12,polish=2"},
        "paper": {"attack": "iga"},
    }

    attack: str | Attack = "fmn"
    fraction: float = 0.1
    unit: Unit = "pixel"
    segments: Method | int | Tensor = "auto"
    norm: float | str = 2
    absolute: bool = False
    fractions: tuple[float, ...] | list[float] = ()
    certify: Literal["crown", "interval"] | None = None

    def __post_init__(self) -> None:
        segments = check_options(self.attack, self.unit, self.segments, self.absolute)
        set_fields(self, segments=segments, norm=check_norm(self.norm))
        check(self.certify in (None, "crown", "interval"), "certify", "'crown', 'interval' or None", repr(self.certify))
        within = isinstance(self.fraction, int | float) and 0 < self.fraction < 1
        check(
            within,
            "fraction",
            "a number between 0 and 1 (with all features fixed the class never changes)",
            self.fraction,
        )
        set_fields(self, fractions=() if self.fractions in ((), []) else check_fractions(self.fractions))

    @classmethod
    def example(cls) -> CEval:
        """A configuration that takes seconds."""
        return cls("fmn:steps=5,second=5,polish=2")

    def for_samples(self, inputs: Tensor, rows: slice) -> CEval:
        """The metric with the label maps of these samples, if every sample has its own."""
        return of_samples(self, inputs, rows)

    def expected_evaluations(self) -> int:
        """Those of the attack for each size, and for c(empty)."""
        return self.expected_for(None)

    def expected_for(self, classes: int | None) -> int:
        """The same; the attack looks at all classes."""
        return 1 + (2 + len(self.fractions)) * get_attack(self.attack).expected_for(classes)

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
    ) -> CEvalResult:
        """Fix the top places of each map, and search for the least distortion of the others and of all."""
        search = DistortionSearch(self, model, explainer, inputs, targets, generator)
        sizes = sorted({self.fraction, *self.fractions})
        masks = [search.fix_places(size) for size in sizes]
        found = search.find(masks, empty := search.find_empty())
        empty = search.repair_empty(empty, found)
        at = sizes.index(self.fraction)
        swept = [sizes.index(size) for size in self.fractions]
        points = inputs.clone()
        points[search.rows] = found.points[:, at]
        mask = torch.zeros_like(search.scores, dtype=torch.bool)
        mask[search.rows] = masks[at]
        probe, rows = search.probe, search.rows
        probe.charge(rows, found.evaluations)
        predicted, flipped = torch.full_like(probe.targets, -1), rows[found.found[:, at]]
        if len(flipped):
            predicted[flipped] = model.predict(points[flipped])
        certified = torch.full((len(rows),), torch.nan, dtype=torch.float64, device=inputs.device)
        if self.certify and len(rows):
            free = mark_free(masks[at], inputs[rows])
            certified = certified_distortion(
                model, inputs[rows], probe.targets[rows], free, norm=search.norm, method=self.certify
            ).lower
        nan = torch.nan
        ratio, low, high = (ends[:, at] for ends in compute_ratio(found, empty))
        proved = (certified / empty.c[:, 0].double()).nan_to_num(nan=0.0).clamp(min=1.0)
        low = torch.maximum(low, proved)  # a limit that is not known (NaN) stays unknown
        c, second = found.c[:, at], found.second[:, at]
        gap = torch.where(
            second.isfinite() & found.found[:, at], second.double() / c.double().clamp(min=1e-300) - 1, nan
        )
        ratios = probe.spread(ratio, nan)
        return CEvalResult(
            **probe.common_fields(self),
            value=ratios,
            low=probe.spread(low, nan),
            high=probe.spread(high, nan),
            c=probe.spread(c, nan),
            c_empty=probe.spread(torch.where(empty.found, empty.c, nan)[:, 0], nan),
            ratio=ratios,
            c_low=probe.spread(found.low[:, at], nan),
            search_gap=probe.spread(gap, nan),
            found=probe.spread(found.found[:, at], False),
            censored=probe.spread(~found.found[:, at], False),
            certified_c=probe.spread(certified, nan),
            fixed_share=probe.spread(masks[at].flatten(1).double().mean(1), nan),
            empty_evaluations=probe.spread(empty.evaluations, 0),
            predicted=predicted,
            mask=mask,
            inputs=points,
            origins=inputs,
            origin_maps=probe.maps,
            fractions=send(self.fractions, inputs.device, torch.float64),
            curve=probe.spread(found.c[:, swept], nan),
            curve_found=probe.spread(found.found[:, swept], False),
        )
