"""Max-sensitivity and local Lipschitz constant: the two classic sensitivity metrics.

    SENS_MAX(x)  = max over x' of ||g(x') - g(x)||_2                      (Yeh et al., NeurIPS 2019, Eq. 3)
    SENS_LIPS(x) = max over x' of ||g(x') - g(x)||_2 / ||x' - x||_2      (Alvarez-Melis and Jaakkola 2018, Eq. 2)

over x' in a neighbourhood of x. The published estimators sample the neighbourhood, and a sampled maximum lies below the
true one. With `search="genetic"` or any other search the maximum is taken over the candidates of a search for the most
different explanation, as in SAFARI (Huang et al. 2023), Table 1.

Captum and Quantus divide `SENS_MAX` by `||g(x)||` (`normalise=True`), explain the class of the clean input
(`explain="origin"`) and compare signed attributions (`absolute=False`). The last two are defaults here.

Cost: `samples` predictions with explanation for each input, and one for the clean input; with a search, at most
`budget` in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from standfast.algorithms.searches.base import Search
from standfast.errors import check, check_integer
from standfast.explainers import Explainer
from standfast.metrics.base import Direction, Metric, PartOf, Presets, Role, metrics
from standfast.metrics.kept_class import KeptClass, NeighbourhoodResult
from standfast.metrics.probe import Explain, Probe
from standfast.metrics.safari.worst_case import WorstCase
from standfast.model import Model
from standfast.neighbourhoods import LinfBall, Neighbourhood
from standfast.tensors import draw_seed

_BLOCK = 32  # samples drawn at once for each input
_ELEMENTS = 1 << 26  # numbers in the perturbed inputs of a group of inputs


@dataclass(frozen=True)
class SensitivityResult(NeighbourhoodResult):
    """The largest sensitivity of each sample.

    Attributes:
        sensitivity: the maximum found, at least 0; 0 for skipped samples, whose status says why. With `same_class` NaN
            for these, and where no copy keeps the class, so that none counts. `(N,)`
        inputs: where it was found, `(N, ...)`; None with a search.
    """

    sensitivity: Tensor
    inputs: Tensor | None = None


@dataclass(frozen=True)
class _Sensitivity(Metric):
    direction: ClassVar[Direction] = "lower"
    category: ClassVar[str] = "robustness"
    per_distance: ClassVar[bool]
    roles: ClassVar[Mapping[str, Role]] = {
        **dict.fromkeys(("samples", "same_class"), PartOf("search", only=("sample",))),
        "budget": PartOf("search", unless=("sample",)),
    }
    presets: ClassVar[Presets] = {"quick": {"samples": 10, "budget": 500}}

    neighbourhood: Neighbourhood
    samples: int = 50
    search: str | Search = "sample"
    budget: int = 5000
    absolute: bool = False
    explain: Explain = "origin"
    normalise: bool = False
    same_class: bool = False

    def __post_init__(self) -> None:
        check_integer(self.samples, "samples")
        counted = self.search == "sample" or self.samples == type(self).samples
        check(counted, "samples", "no number of samples with a search, which takes budget=", self.samples)
        for option in ("normalise", "same_class"):
            check(isinstance(getattr(self, option), bool), option, "True or False", getattr(self, option))
        sampled = self.search == "sample" or not self.same_class
        check(sampled, "same_class", "False with a search, all of whose candidates count", self.same_class)
        self._worst_case()  # checks the other options

    @classmethod
    def example(cls) -> _Sensitivity:
        """A configuration that takes seconds."""
        return cls(LinfBall(0.1), samples=10)

    def expected_evaluations(self) -> int:
        """The samples and the clean input; with a search, its budget."""
        return self.samples + 1 if self.search == "sample" else self.budget

    def compare_unrelated(self, maps: Tensor, others: Tensor) -> Tensor | None:
        if self.per_distance:
            return None
        own, other = (each.abs() if self.absolute else each for each in (maps, others))
        distance: Tensor = (other - own).flatten(1).norm(dim=1)
        return distance / _norms(own) if self.normalise else distance

    def _worst_case(self) -> WorstCase:
        """The search whose candidates are used; its own result is not."""
        return WorstCase(
            self.neighbourhood,
            "changed_explanation",
            "mse",
            "random" if self.search == "sample" else self.search,
            self.budget,
            absolute=self.absolute,
            explain=self.explain,
            track_sensitivity=True,
        )

    def evaluate(
        self,
        model: Model,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> SensitivityResult:
        """Sample the neighbourhood of every input, or search it."""
        if self.search != "sample":
            return self._from_search(model, explainer, inputs, targets, generator)
        region = self.neighbourhood.around(inputs, model.bounds)
        probe = Probe(model, explainer, inputs, targets, absolute=self.absolute, explain=self.explain, region=region)
        rows, kept = probe.usable(), KeptClass(probe, self.samples)
        seed = draw_seed(generator)
        best = torch.full((len(inputs),), -torch.inf, device=inputs.device, dtype=inputs.dtype)
        where = inputs.clone()
        # blocks of a fixed size, so that an input's draws do not depend on the batch; few rows at once for memory
        group = max(1, _ELEMENTS // (_BLOCK * inputs[0].numel()))
        for part in torch.split(rows, group) if len(rows) else ():
            own = region.select(part)
            streams = own.streams(seed)
            for start in range(0, self.samples, _BLOCK):
                x = own.sample(min(_BLOCK, self.samples - start), streams)
                values, margin = _measure(probe, part, x, inputs, self.per_distance)
                kept.add(margin.flatten(), part.repeat_interleave(x.shape[1]))
                if self.same_class:
                    values = torch.where(margin < 0, values, -torch.inf)
                top, index = values.max(1)
                better = top > best[part]
                best[part] = torch.maximum(best[part], top)
                where[part[better]] = probe.perturb(x[better, index[better]], part[better])
        # minus infinity: no distance was finite, or no copy kept the class
        best = torch.where(best.isinf() & self.same_class, torch.nan, best.clamp(min=0))
        return self._result(probe, best, where, kept)

    def _from_search(
        self,
        model: Model,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> SensitivityResult:
        worst = self._worst_case().evaluate(model, explainer, inputs, targets, generator)
        found = worst.sens_lips if self.per_distance else worst.sens_max
        if self.normalise:
            found = found / _norms(worst.origin_maps.nan_to_num())
        return SensitivityResult(
            metric=self.name,
            options=self.options(),
            status=worst.status,
            targets=worst.targets,
            model_evaluations=worst.model_evaluations,
            degenerate=worst.degenerate,
            nonfinite=worst.nonfinite,
            value=found,
            sensitivity=found,
            class_kept=worst.class_kept,
            class_kept_low=worst.class_kept_low,
            class_kept_high=worst.class_kept_high,
        )

    def _result(self, probe: Probe, best: Tensor, where: Tensor, kept: KeptClass) -> SensitivityResult:
        probe.skip_unchanged(best)
        if self.normalise:
            best = best / _norms(probe.reference.nan_to_num())
        return SensitivityResult(
            **probe.common_fields(self),
            **kept.fields(),
            value=best,
            sensitivity=best,
            inputs=where,
        )


@metrics.register("max_sensitivity")
@dataclass(frozen=True)
class MaxSensitivity(_Sensitivity):
    """The largest distance between the explanations of an input and of its neighbours (Yeh et al. 2019).

    Args:
        neighbourhood: where perturbed inputs lie and how they are distributed.
        samples: how many perturbed inputs are drawn for each input; without effect with a search.
        search: `"sample"` for the published estimator, or a search, whose candidates are used (Table 1 of SAFARI).
        budget: with a search, how many inputs are predicted and explained for each input at most, as for `WorstCase`.
        absolute: compare absolute attributions.
        explain: at a perturbed input, explain the class of the `"origin"`, the clean input, or the one `"predicted"`.
        normalise: divide by `||g(x)||_2`, as Captum and Quantus do.
        same_class: count only the perturbed inputs of which the model predicts the class of the clean one, as FASS
            (2026) does; only with `search="sample"`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = MaxSensitivity(standfast.LinfBall(0.02), samples=10)(model, "saliency", digits.inputs)
    >>> bool((result.sensitivity > 0).all())
    True
    """

    name: ClassVar[str] = "max_sensitivity"
    citation: ClassVar[str] = "yeh2019infidelity"
    bibtex: ClassVar[str] = """@inproceedings{yeh2019infidelity,
  title     = {On the (In)fidelity and Sensitivity of Explanations},
  author    = {Yeh, Chih-Kuan and Hsieh, Cheng-Yu and Suggala, Arun Sai and Inouye, David I. and Ravikumar, Pradeep},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {32},
  year      = {2019}
}"""
    per_distance: ClassVar[bool] = False


@metrics.register("local_lipschitz")
@dataclass(frozen=True)
class LocalLipschitz(_Sensitivity):
    """The largest slope between the explanations of an input and of its neighbours (Alvarez-Melis and Jaakkola 2018).

    Arguments are those of `MaxSensitivity`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = LocalLipschitz(standfast.LinfBall(0.02), samples=10)(model, "saliency", digits.inputs)
    >>> bool((result.sensitivity > 0).all())
    True
    """

    name: ClassVar[str] = "local_lipschitz"
    citation: ClassVar[str] = "alvarezmelis2018robustness"
    bibtex: ClassVar[str] = """@inproceedings{alvarezmelis2018robustness,
  title     = {On the Robustness of Interpretability Methods},
  author    = {Alvarez-Melis, David and Jaakkola, Tommi S.},
  booktitle = {ICML Workshop on Human Interpretability in Machine Learning (WHI)},
  note      = {arXiv:1806.08049},
  year      = {2018}
}"""
    per_distance: ClassVar[bool] = True


def measure_sensitivity(
    model: Model,
    explainer: Explainer,
    inputs: Tensor,
    perturbed: Tensor,
    targets: Tensor | int | None = None,
    *,
    absolute: bool = False,
    explain: Explain = "origin",
    normalise: bool = False,
    per_distance: bool = False,
) -> Tensor:
    """The largest sensitivity over given perturbed inputs `(N, S, ...)` of inputs `(N, ...)`; shape `(N,)`.

    For comparing tools on the same perturbations; the metrics draw their own.

    Raises:
        ArgumentError: the shape of `perturbed` does not fit `inputs`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> perturbed = digits.inputs[:, None].expand(-1, 3, -1, -1, -1)
    >>> measure_sensitivity(model, standfast.explainers.get("saliency"), digits.inputs, perturbed)
    tensor([0., 0.])
    """
    inputs = model.check_inputs(inputs)
    check(
        perturbed.ndim == inputs.ndim + 1
        and perturbed.shape[0] == len(inputs)
        and perturbed.shape[2:] == inputs.shape[1:],
        "perturbed",
        f"shape ({len(inputs)}, samples, {', '.join(map(str, inputs.shape[1:]))})",
        tuple(perturbed.shape),
    )
    checked = None if targets is None else model.check_targets(targets, inputs)
    with model.session():
        probe = Probe(model, explainer, inputs, checked, absolute=absolute, explain=explain)
        rows = torch.arange(len(inputs), device=inputs.device)
        values = _measure(probe, rows, perturbed.to(inputs.device), inputs, per_distance)[0].amax(1)
    values = values.clamp(min=0)  # minus infinity where no distance was finite
    return values / _norms(probe.reference) if normalise else values


def _norms(maps: Tensor) -> Tensor:
    """`||g(x)||_2`, or 1 for an all-zero map, whose sensitivity then stays as it is."""
    norm = maps.flatten(1).norm(dim=1)
    return torch.where(norm > 0, norm, 1.0)


def _measure(probe: Probe, rows: Tensor, x: Tensor, inputs: Tensor, per_distance: bool) -> tuple[Tensor, Tensor]:
    """Distance, or slope, and margin at each of the points `x` `(P, S, ...)` around the origins `rows`; `(P, S)`."""
    count = x.shape[1]
    origin = rows.repeat_interleave(count)
    flat = x.reshape(-1, *x.shape[2:])
    seen = probe.query(flat, origin, want_distance=True)
    assert seen.distance is not None
    distance = torch.where(seen.distance.isnan(), -torch.inf, seen.distance)
    if per_distance:
        step = (probe.perturb(flat, origin) - inputs[origin]).flatten(1).norm(dim=1)
        distance = torch.where(step > 0, distance / step, 0.0)
    return distance.reshape(-1, count), seen.margin.reshape(-1, count)
