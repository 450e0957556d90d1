"""c-Eval: how much must change outside of the explanation before the prediction does?

    c(e) = min ||delta||_p   such that   argmax f(x + delta) != argmax f(x)  and  delta = 0 on e

with x + delta within the bounds, for the features e that an explanation puts first (c-Eval, Eq. 3 and 4). An
explanation is good if c is large: with its features held, much has to change. c grows with the number of held features,
so explanations are compared at equal size; and it differs between inputs, so the ratio to `c(empty)`, with nothing
held, is what is averaged (Sec. II, "Normalize").

An attack finds an upper bound of the minimum; see `holdfast.algorithms.minimal_distortion` for how near it comes, and
`certified_distortion` for a bound from below. Whatever flips with e held flips with nothing held, so c(empty) is at
most c(e): where an attack did worse, its c(empty) is repaired, and a ratio is never below 1. Where no flip was found, c
is only a lower end: it says up to where the attack looked, and medians allow for anything from there up.

Source: Vu, Nguyen, Phan, Gera and Thai, "c-Eval: A unified metric to evaluate feature-based explanations via
perturbation" (IEEE Big Data 2021).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from holdfast.algorithms import certified_distortion
from holdfast.algorithms.distortion import Attack
from holdfast.algorithms.distortion.base import get as get_attack
from holdfast.errors import check
from holdfast.explainers import Explainer
from holdfast.metrics.base import Metric, metrics, of_samples
from holdfast.metrics.c_eval.fixed_features import Unit, free_of
from holdfast.metrics.c_eval.held_distortion import Holder, check_fractions, check_options, ratio
from holdfast.metrics.result import Result
from holdfast.model import Classifier
from holdfast.records import set_fields
from holdfast.segments import Method

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
        c: the least distortion found that changes the prediction while the explanation's features are held; NaN for
            skipped samples. `(N,)`
        c_empty: the same with nothing held, `(N,)`; the least that the attack or this explainer's c have shown.
        ratio: `c / c_empty`, at least 1, `(N,)`; NaN where with nothing held no change was found either.
        found: whether a change of the prediction was found; where not, `c` and `ratio` are lower ends. bool `(N,)`
        lower: a certified lower bound of the true minimum, so that `lower <= true c(e) <= c`; NaN without one. `(N,)`
        held_share: the share of places that is held, `(N,)`.
        empty_evaluations: inputs predicted for `c_empty`, which all explainers share, int `(N,)`; those of
            `model_evaluations` come on top.
        predicted: the class predicted at the changed input, `(N,)`; -1 where there is none.
        mask: what is held, bool `(N, *spatial)`.
        inputs, origins, origin_maps: the changed inputs, the samples and their explanations, `(N, ...)`.
        fractions: the sizes of the sweep, `(K,)`; empty without one.
        curve, curve_found: c at these sizes, `(N, K)`.
    """

    c: Tensor
    c_empty: Tensor
    ratio: Tensor
    found: Tensor
    lower: Tensor
    held_share: Tensor
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
        """See `Result`; with `bound`, whether c is only a lower end."""
        bound = torch.logical_not(self.found) & self.c.isfinite()
        return {**super().columns(), "bound": bound.tolist()}


@metrics.register("c_eval")
@dataclass(frozen=True)
class CEval(Metric):
    """The least distortion outside of the explanation that changes the prediction (Vu et al. 2021).

    Args:
        attack: how it is looked for: `"fmn"`, `"cw"`, `"iga"` or `"gsa"`, with options as in `"fmn:steps=100"`, or an
            `Attack`. The paper uses the last three.
        fraction: of the places (pixels with all their channels, times, columns) that is held.
        unit: `"pixel"`, or whole segments, `"segment"`, so that maps of segments and of pixels compare; the last of
            them in part, so that all explanations are of one size.
        segments: how inputs are cut, see `holdfast.segments.segment`; for `unit="segment"`.
        norm: of the distortion, 2 or `"inf"`.
        absolute: rank places by absolute attributions. Not by default: what speaks against the class is not what
            explains it.
        fractions: more sizes, rising, for a sweep: `curve`; each starts from the solution of the one before.
        certify: `"crown"` or `"interval"`: bound c from below, too, and so bracket the true minimum. For small networks
            of layers that `holdfast.algorithms.certified_distortion` knows; seconds to minutes for each sample.

    >>> import holdfast as hf
    >>> digits = hf.data.bundled("digits")[:2]
    >>> classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = CEval()(classifier, "integrated_gradients", digits.inputs)
    >>> bool((result.ratio > 1).all()), result.mask.sum((1, 2)).tolist()
    (True, [78, 78])
    """

    name: ClassVar[str] = "c_eval"
    category: ClassVar[str] = "faithfulness"
    headline: ClassVar[str] = "ratio"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    citation: ClassVar[str] = "vu2021ceval"
    bibtex: ClassVar[str] = BIBTEX

    attack: str | Attack = "fmn"
    fraction: float = 0.1
    unit: Unit = "pixel"
    segments: Method | int | Tensor = "auto"
    norm: float | str = 2
    absolute: bool = False
    fractions: tuple[float, ...] | list[float] = ()
    certify: Literal["crown", "interval"] | None = None

    def __post_init__(self) -> None:
        set_fields(self, segments=check_options(self.attack, self.unit, self.segments, self.norm, self.absolute))
        check(self.certify in (None, "crown", "interval"), "certify", "'crown', 'interval' or None", repr(self.certify))
        within = isinstance(self.fraction, int | float) and 0 < self.fraction < 1
        check(within, "fraction", "a number between 0 and 1 (all held never flips)", self.fraction)
        set_fields(self, fractions=check_fractions(self.fractions) if len(self.fractions) else ())

    @classmethod
    def example(cls) -> CEval:
        """See `Metric`."""
        return cls("fmn:steps=5,polish=2")

    def for_samples(self, inputs: Tensor, rows: slice) -> CEval:
        """See `Metric`: label maps of these samples, if every sample has its own."""
        return of_samples(self, inputs, rows)

    def expected_evaluations(self) -> int:
        """Those of the attack for each size, and for c(empty)."""
        return 1 + (2 + len(self.fractions)) * get_attack(self.attack).expected_evaluations()

    def evaluate(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> CEvalResult:
        """See `Metric`."""
        holder = Holder(self, classifier, explainer, inputs, targets, generator)
        sizes = sorted({self.fraction, *self.fractions})
        masks = [holder.held(size) for size in sizes]
        found = holder.distortions(masks, empty := holder.empty())
        empty = holder.repaired(empty, found)
        at = sizes.index(self.fraction)
        swept = [sizes.index(size) for size in self.fractions]
        points = inputs.clone()
        points[holder.rows] = found.points[:, at]
        mask = torch.zeros_like(holder.scores, dtype=torch.bool)
        mask[holder.rows] = masks[at]
        probe, rows = holder.probe, holder.rows
        probe.charge(rows, found.evaluations)
        predicted, flipped = torch.full_like(probe.targets, -1), rows[found.found[:, at]]
        if len(flipped):
            predicted[flipped] = classifier.predict(points[flipped])
        lower = torch.full((len(rows),), torch.nan, dtype=torch.float64, device=inputs.device)
        if self.certify and len(rows):
            free = free_of(masks[at], inputs[rows])
            lower = certified_distortion(
                classifier, inputs[rows], probe.targets[rows], free, norm=holder.norm, method=self.certify
            ).lower
        nan = torch.nan
        ratios = holder.spread(ratio(found.c, empty)[:, at], nan)
        return CEvalResult(
            **probe.common_fields(self),
            value=ratios,
            c=holder.spread(found.c[:, at], nan),
            c_empty=holder.spread(empty.c[:, 0], nan),
            ratio=ratios,
            found=holder.spread(found.found[:, at], nan),
            lower=holder.spread(lower, nan),
            held_share=holder.spread(masks[at].flatten(1).double().mean(1), nan),
            empty_evaluations=holder.counts(empty.evaluations),
            predicted=predicted,
            mask=mask,
            inputs=points,
            origins=inputs,
            origin_maps=probe.maps,
            fractions=torch.tensor(self.fractions, dtype=torch.float64, device=inputs.device),
            curve=holder.spread(found.c[:, swept], nan),
            curve_found=holder.spread(found.found[:, swept], nan),
        )
