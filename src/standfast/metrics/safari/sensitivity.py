"""Max-sensitivity and local Lipschitz constant: the two classic sensitivity metrics.

    SENS_MAX(x)  = max over x' of ||g(x') - g(x)||_2                      (Yeh et al., NeurIPS 2019, Eq. 3)
    SENS_LIPS(x) = max over x' of ||g(x') - g(x)||_2 / ||x' - x||_2      (Alvarez-Melis and Jaakkola 2018, Eq. 2)

over x' in a neighbourhood of x. The published estimators sample the neighbourhood, and a sampled maximum lies below the
true one. `WorstCase(track_sensitivity=True)` has the maximum over the candidates of a search for the most different
explanation, as in SAFARI (Huang et al. 2023), Table 1.

Captum and Quantus divide `SENS_MAX` by `||g(x)||` (`normalise=True`), explain the class of the clean input
(`explain="origin"`) and compare signed attributions (`absolute=False`). The last two are defaults here.

Cost: `samples` predictions with explanation for each input, and one for the clean input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from standfast.metrics.base import Cost, Metric, metrics
from standfast.metrics.kept_class import KeptClass, NeighbourhoodResult
from standfast.metrics.probe import Call, Explain, Probe
from standfast.needs import Needs
from standfast.neighbourhoods import LinfBall, Neighbourhood
from standfast.records import Count
from standfast.value_spec import Direction, ValueSpec


@dataclass(frozen=True)
class SensitivityResult(NeighbourhoodResult):
    """The largest sensitivity of each sample.

    Attributes:
        value: the maximum found, at least 0; 0 for skipped samples, whose status says why. With `same_class` NaN
            for these, and where no copy keeps the class, so that none counts. `(N,)`
        inputs: where it was found, `(N, ...)`.
    """

    inputs: Tensor


@dataclass(frozen=True)
class _Sensitivity(Metric):
    direction: ClassVar[Direction] = "lower"
    neighbourhood_option = "neighbourhood"
    evidence = "drawn"
    per_distance: ClassVar[bool]
    #: what is largest, for the title and for the axis of a report
    title: ClassVar[str]
    axis: ClassVar[str]
    presets = {"quick": {"samples": 10}}
    ladder = ({"samples": 3}, {"samples": 5}, {"samples": 10}, {"samples": 20})

    neighbourhood: Neighbourhood
    samples: Count = 50
    absolute: bool = False
    explain: Explain = "origin"
    normalise: bool = False
    same_class: bool = False

    @classmethod
    def value_spec(cls, options: Mapping[str, Any]) -> ValueSpec:
        """Explainers are ranked only where `normalise` puts their maps on one scale."""
        empty = (
            "of which no copy keeps the answer" if options.get("same_class") else ValueSpec.empty
        )
        if options.get("normalise"):
            axis = f"{cls.axis}, normalised"
            return ValueSpec(cls.title, axis, "lower", good="more robust", empty=empty)
        caution = "It grows with the scale of an explainer's maps."
        return ValueSpec(
            cls.title, cls.axis, None, caution=caution, good="more robust", empty=empty
        )

    @classmethod
    def example(cls) -> _Sensitivity:
        return cls(LinfBall(0.1), samples=10)

    def cost(self, classes: int | None = None) -> Cost:
        """The samples and the clean input."""
        return Cost(predictions=0, explanations=self.samples + 1)

    def compare_unrelated(self, maps: Tensor, others: Tensor) -> Tensor | None:
        if self.per_distance:
            return None
        if self.absolute:
            maps, others = maps.abs(), others.abs()
        distance: Tensor = (others - maps).flatten(1).norm(dim=1)
        if self.normalise:
            return distance / _norms(maps)
        return distance

    @property
    def compares_in_order(self) -> bool:
        """The distance is divided by the norm of the first map, if at all."""
        return self.normalise and not self.per_distance

    def evaluate(self, call: Call) -> SensitivityResult:
        """Sample the neighbourhood of every input."""
        inputs = call.inputs
        region = self.neighbourhood.around(call.inputs, call.model.bounds)
        probe = Probe(call, absolute=self.absolute, explain=self.explain, region=region)
        kept = KeptClass(probe, self.samples)
        best = torch.full((len(inputs),), -torch.inf, device=inputs.device, dtype=inputs.dtype)
        where = inputs.clone()
        for part, x in kept.sample(call.seed):
            values, margin = _measure(probe, part, x, inputs, self.per_distance)
            kept.add(margin.flatten(), part.repeat_interleave(x.shape[1]))
            if self.same_class:
                # J < 0: the class is kept
                values = torch.where(margin < 0, values, -torch.inf)
            top, index = values.max(1)
            better = top > best[part]
            best[part] = torch.maximum(best[part], top)
            where[part[better]] = probe.perturb(x[better, index[better]], part[better])
        # minus infinity: no distance was finite, or no copy kept the class
        no_draw = best.isinf() & self.same_class
        best = torch.where(no_draw, torch.nan, best.clamp(min=0))
        probe.skip_constant(probe.reference, best <= 0)
        if self.normalise:
            best = best / _norms(probe.reference.nan_to_num())
        return SensitivityResult(
            **probe.common_fields(self), **kept.fields(), value=best, inputs=where
        )


@metrics.register("max_sensitivity")
@dataclass(frozen=True)
class MaxSensitivity(_Sensitivity):
    """The largest distance between the explanations of an input and of its neighbours (Yeh et al. 2019).

    Args:
        neighbourhood: where perturbed inputs lie and how they are distributed.
        samples: how many perturbed inputs are drawn for each input.
        absolute: compare absolute attributions.
        explain: at a perturbed input, explain the class of the `"origin"`, the clean input, or the one `"predicted"`.
        normalise: divide by `||g(x)||_2`, as Captum and Quantus do.
        same_class: count only the perturbed inputs of which the model predicts the class of the clean one, as FASS
            (2026) does.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = MaxSensitivity(standfast.LinfBall(0.02), samples=10)(model, "saliency", digits.inputs)
    >>> bool((result.value > 0).all())
    True
    """

    name = "max_sensitivity"
    citation = "yeh2019infidelity"
    per_distance = False
    title = "Max-sensitivity: largest distance between explanations"
    axis = "largest distance"


@metrics.register("local_lipschitz")
@dataclass(frozen=True)
class LocalLipschitz(_Sensitivity):
    """The largest slope between the explanations of an input and of its neighbours (Alvarez-Melis and Jaakkola 2018).

    Arguments are those of `MaxSensitivity`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = LocalLipschitz(standfast.LinfBall(0.02), samples=10)(model, "saliency", digits.inputs)
    >>> bool((result.value > 0).all())
    True
    """

    name = "local_lipschitz"
    needs = Needs(distances=True)
    citation = "alvarezmelis2018robustness"
    per_distance = True
    title = "Local Lipschitz: largest slope between explanations"
    axis = "largest slope"


def _norms(maps: Tensor) -> Tensor:
    """`||g(x)||_2`, or 1 for an all-zero map, whose sensitivity then stays as it is."""
    norm = maps.flatten(1).norm(dim=1)
    return torch.where(norm > 0, norm, 1.0)


def _measure(
    probe: Probe, rows: Tensor, x: Tensor, inputs: Tensor, per_distance: bool
) -> tuple[Tensor, Tensor]:
    """Distance, or slope, and margin at each of the points `x` `(P, S, ...)` around the origins `rows`; `(P, S)`."""
    count = x.shape[1]
    origin = rows.repeat_interleave(count)
    flat = x.reshape(-1, *x.shape[2:])
    measured = probe.query(flat, origin, want_distance=True)
    assert measured.distance is not None
    # NaN would win the maximum
    distance = torch.where(measured.distance.isnan(), -torch.inf, measured.distance)
    if per_distance:
        change = probe.perturb(flat, origin) - inputs[origin]
        step = change.flatten(1).norm(dim=1)
        # a copy that is the input itself has no slope
        distance = torch.where(step > 0, distance / step, 0.0)
    shape = (-1, count)
    return distance.reshape(shape), measured.margin.reshape(shape)
