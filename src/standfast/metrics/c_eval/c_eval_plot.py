"""c-Eval over the size of the explanation: the c-Eval plot, and its knee (c-Eval, Sec. V-A, Fig. 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from standfast.algorithms.distortion import Attack
from standfast.algorithms.distortion.base import get as get_attack
from standfast.algorithms.distortion.geometry import check_norm
from standfast.algorithms.knees import find_knee
from standfast.explainers import Explainer
from standfast.metrics.base import Direction, Metric, Presets, metrics, of_samples
from standfast.metrics.c_eval.c_eval import BIBTEX
from standfast.metrics.c_eval.fixed_distortion import DistortionSearch, check_fractions, check_options, compute_ratio
from standfast.metrics.c_eval.fixed_features import Unit
from standfast.metrics.result import Result
from standfast.model import Model
from standfast.records import set_fields
from standfast.segments import Method
from standfast.tensors import send


@dataclass(frozen=True)
class CEvalPlotResult(Result):
    """c-Eval of each sample over sizes.

    Attributes:
        mean_ratio: the mean over sizes of `c / c_empty`, `(N,)`; NaN for skipped samples. Where it is censored, a lower
            bound of this mean.
        low, high: the mean over sizes of the ends of the intervals, see `CEvalResult`, `(N,)`.
        c_empty: the distortion with no feature fixed, `(N,)`; NaN where no change was found.
        knee: the size beyond which more features gain little; NaN where the curve has no knee, and where it is
            censored, since its end is not known then. `(N,)`
        found: whether a change of the prediction was found at all sizes. bool `(N,)`
        censored: it was not, so that c of the larger sizes and `mean_ratio` are lower bounds. bool `(N,)`
        empty_evaluations: inputs predicted for `c_empty`, which all explainers share, int `(N,)`.
        fractions: the sizes, repeated for each sample, `(N, K)`.
        curve, curve_found: c at these sizes, and whether a change was found, `(N, K)`. Where not, c is that of the
            largest size at which one was found: a lower bound.
    """

    mean_ratio: Tensor
    c_empty: Tensor
    knee: Tensor
    found: Tensor
    censored: Tensor
    empty_evaluations: Tensor
    fractions: Tensor
    curve: Tensor
    curve_found: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """The curves."""
        return {name: getattr(self, name) for name in ("fractions", "curve", "curve_found")}

    def columns(self) -> dict[str, Any]:
        """Further columns of the frame, and `bound`: whether the mean is only a lower bound."""
        return {**super().columns(), "bound": self.censored.tolist()}


@metrics.register("c_eval_plot")
@dataclass(frozen=True)
class CEvalPlot(Metric):
    """c-Eval at growing sizes of the explanation, for explainers or for settings of one (Vu et al. 2021, Fig. 9).

    The sets are nested, so c never falls, and each search starts from the solution of the size before. For settings of
    one explainer that are named by a number (`LIME 100`, `LIME 1000`), the figure says from which one on a larger
    number gains nothing.

    Args:
        fractions: the sizes, rising shares of the places.
        attack, unit, segments, norm, absolute: see `CEval`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = CEvalPlot((0.05, 0.1, 0.2), attack="fmn:steps=10")(model, "saliency", digits.inputs)
    >>> bool((result.curve.diff(dim=1) >= 0).all())
    True
    """

    name: ClassVar[str] = "c_eval_plot"
    needs: ClassVar[str] = "gradients"
    category: ClassVar[str] = "faithfulness"
    controls: ClassVar[bool] = True
    direction: ClassVar[Direction] = "higher"
    citation: ClassVar[str] = "vu2021ceval"
    bibtex: ClassVar[str] = BIBTEX
    presets: ClassVar[Presets] = {
        "quick": {"attack": "fmn:steps=8,second=12,polish=2", "fractions": (0.1, 0.4)},
        "paper": {"attack": "iga"},
    }

    fractions: tuple[float, ...] | list[float] = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
    attack: str | Attack = "fmn"
    unit: Unit = "pixel"
    segments: Method | int | Tensor = "auto"
    norm: float | str = 2
    absolute: bool = False

    def __post_init__(self) -> None:
        segments = check_options(self.attack, self.unit, self.segments, self.absolute)
        set_fields(self, fractions=check_fractions(self.fractions), segments=segments, norm=check_norm(self.norm))

    @classmethod
    def example(cls) -> CEvalPlot:
        """A configuration that takes seconds."""
        return cls((0.1, 0.2, 0.4), "fmn:steps=5,second=5,polish=2")

    def for_samples(self, inputs: Tensor, rows: slice) -> CEvalPlot:
        """The metric with the label maps of these samples, if every sample has its own."""
        return of_samples(self, inputs, rows)

    def expected_evaluations(self) -> int:
        """Those of the attack for each size, and for c(empty)."""
        return self.expected_for(None)

    def expected_for(self, classes: int | None) -> int:
        """The same; the attack looks at all classes."""
        return 1 + (1 + len(self.fractions)) * get_attack(self.attack).expected_for(classes)

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
    ) -> CEvalPlotResult:
        """Fix the top places at each size, and search for the least distortions and for the knee of their curve."""
        search = DistortionSearch(self, model, explainer, inputs, targets, generator)
        found = search.find([search.fix_places(size) for size in self.fractions], empty := search.find_empty())
        empty = search.repair_empty(empty, found)
        probe, rows = search.probe, search.rows
        probe.charge(rows, found.evaluations)
        sizes = send(self.fractions, inputs.device, torch.float64)
        whole = found.found.all(1)
        curves = torch.where(whole[:, None], found.c.double(), torch.nan)
        places = [find_knee(self.fractions, curve) for curve in curves.tolist()]
        knees = torch.tensor([torch.nan if p is None else self.fractions[p] for p in places], dtype=torch.float64)
        nan = torch.nan
        mean_ratio, low, high = (probe.spread(ends.mean(1), nan) for ends in compute_ratio(found, empty))
        return CEvalPlotResult(
            **probe.common_fields(self),
            value=mean_ratio,
            low=low,
            high=high,
            mean_ratio=mean_ratio,
            c_empty=probe.spread(torch.where(empty.found, empty.c, nan)[:, 0], nan),
            knee=probe.spread(send(knees, inputs.device), nan),
            found=probe.spread(whole, False),
            censored=probe.spread(~whole, False),
            empty_evaluations=probe.spread(empty.evaluations, 0),
            fractions=sizes.expand(len(inputs), -1),
            curve=probe.spread(found.c, nan),
            curve_found=probe.spread(found.found, False),
        )
