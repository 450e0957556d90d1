"""c-Eval over the size of the explanation: the c-Eval plot, and its knee (c-Eval, Sec. V-A, Fig. 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from standfast.algorithms.knees import find_knee
from standfast.metrics.base import metrics
from standfast.metrics.c_eval.fixed_distortion import (
    NO_CHANGE,
    QUICK,
    DistortionMetric,
    DistortionResult,
    DistortionSearch,
    check_fractions,
    compute_ratio,
)
from standfast.metrics.probe import Call
from standfast.tensors import send
from standfast.value_spec import ValueSpec


@dataclass(frozen=True)
class CEvalPlotResult(DistortionResult):
    """c-Eval of each sample over sizes.

    Attributes:
        value: the mean over sizes of `c / c_empty`, `(N,)`; NaN for skipped samples. Where it is censored, a lower
            bound of this mean.
        low, high: the mean over sizes of the ends of the intervals, see `CEvalResult`, `(N,)`.
        knee: the size beyond which more features gain little; NaN where the curve has no knee, and where it is
            censored, since its end is not known then. `(N,)`
        found: whether a change of the prediction was found at all sizes. bool `(N,)`
        censored: it was not, so that c of the larger sizes and the mean are lower bounds. bool `(N,)`
        empty_evaluations: inputs predicted for `c_empty`, which all explainers share, int `(N,)`.
        fractions: the sizes, repeated for each sample, `(N, K)`.
        curve, curve_found: c at these sizes, and whether a change was found, `(N, K)`. Where not, c is that of the
            largest size at which one was found: a lower bound.
    """

    stored = ("fractions", "curve", "curve_found")

    knee: Tensor
    found: Tensor
    empty_evaluations: Tensor
    fractions: Tensor
    curve: Tensor
    curve_found: Tensor


@metrics.register("c_eval_plot")
@dataclass(frozen=True)
class CEvalPlot(DistortionMetric):
    """c-Eval at growing sizes of the explanation, for explainers or for settings of one (Vu et al. 2021, Fig. 9).

    The sets are nested, so c never falls, and each search starts from the solution of the size before. For settings of
    one explainer that are named by a number (`LIME 100`, `LIME 1000`), the figure says from which one on a larger
    number gains nothing.

    Args:
        fractions: the sizes, rising shares of the places.

    `attack` and the other options are those of `DistortionMetric`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = CEvalPlot((0.05, 0.1, 0.2), attack="fmn:steps=10")(model, "saliency", digits.inputs)
    >>> bool((result.curve.diff(dim=1) >= 0).all())
    True
    """

    name = "c_eval_plot"
    controls = True
    values = ValueSpec(
        "c-Eval over sizes: mean of c(e) / c(empty)",
        "mean c(e) / c(empty)",
        "higher",
        decimals=2,
        censored="bound",
        censored_side="lower",
        empty=NO_CHANGE,
    )
    presets = {
        "quick": {"attack": QUICK, "fractions": (0.1, 0.4)},
        "paper": {"attack": "iga"},
    }

    fractions: Annotated[Sequence[float], check_fractions] = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)

    @classmethod
    def example(cls) -> CEvalPlot:
        return cls((0.1, 0.2, 0.4), attack="fmn:steps=5,second=5,polish=2")

    def count_searches(self) -> int:
        return 1 + len(self.fractions)

    def evaluate(self, call: Call) -> CEvalPlotResult:
        """Fix the top places at each size, and search for the least distortions and for the knee of their curve."""
        search = DistortionSearch(self, call)
        empty = search.find_empty()
        masks = [search.fix_places(size) for size in self.fractions]
        distortions = search.find(masks, empty)
        tied = search.improve_empty(empty, distortions)
        search.probe.charge(search.rows, distortions.evaluations)
        whole = distortions.found.all(1)
        curves = torch.where(whole[:, None], distortions.c.double(), torch.nan)
        knee_sizes = [find_knee(self.fractions, curve) for curve in curves.tolist()]
        fractions = [torch.nan if index is None else self.fractions[index] for index in knee_sizes]
        knees = torch.tensor(fractions, dtype=torch.float64)
        value, low, high = (ends.mean(1) for ends in compute_ratio(distortions, empty))
        fields = search.probe.common_fields(
            self,
            value=value,
            low=low,
            high=high,
            c_empty=torch.where(empty.found, empty.c, torch.nan)[:, 0],
            knee=send(knees, call.inputs.device),
            found=whole,
            censored=~whole | tied,
            empty_evaluations=empty.evaluations,
            curve=distortions.c,
            curve_found=distortions.found,
        )
        sizes = send(self.fractions, call.inputs.device, torch.float64)
        return CEvalPlotResult(**fields, fractions=sizes.expand(len(call.inputs), -1))
