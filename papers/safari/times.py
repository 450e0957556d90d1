"""SAFARI: Table 4, the time of 1000 explanations and their comparison; a measurement on the available device.

Seconds depend on the machine as much as on the method. So the table also has the ratio to the seconds of Gradient x
Input, which are those of one forward and one backward pass.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import polars as pl
import torch
from torch import Tensor

from papers.base import Column, Scale
from papers.files import read_numbers
from papers.reading import Verdict
from papers.safari.parts import NATURAL, RADIUS, make_part
from standfast import data, zoo
from standfast.explainers import LIME, Explainer, KernelSHAP
from standfast.explainers import get as get_explainer
from standfast.explainers.gradients.input_gradients import IntegratedGradients
from standfast.metrics.probe import Call, Probe
from standfast.model import Model

_PAPER = {
    name: float(seconds) for name, seconds in read_numbers("safari/table4.csv")["seconds"].items()
}
_PAPER_RATIO = {name: seconds / _PAPER["Gradient x Input"] for name, seconds in _PAPER.items()}
_COUNT = 1000
_RUNS: dict[Scale, int] = {"small": 2, "full": 10}
_GRADIENTS = ("Gradient x Input", "Integrated Gradients", "GradCAM", "DeepLift")
_SURROGATES = ("LIME", "SHAP")


def make_explainers(samples: int = 200) -> dict[str, Explainer]:
    """The explainers of Table 4, and the two surrogates with a grid, which needs no segmentation."""
    return {
        "Gradient x Input": get_explainer("input_x_gradient"),
        "Integrated Gradients": IntegratedGradients(steps=50),
        "GradCAM": get_explainer("gradcam"),
        "DeepLift": get_explainer("deeplift"),
        "LIME": LIME(samples=samples, segments="quickshift"),
        "SHAP": KernelSHAP(samples=samples, segments="quickshift"),
        "LIME, grid": LIME(samples=samples, segments="grid"),
        "SHAP, grid": KernelSHAP(samples=samples, segments="grid"),
    }


def measure_times(
    model: Model, origin: Tensor, count: int, explainers: Mapping[str, Explainer], runs: int
) -> pl.DataFrame:
    """Measure the time to explain `count` perturbed copies of `origin` `(1, ...)` and compare their maps with its map.

    One row for each explainer and run, with the columns `seconds`, and `ratio` to the mean seconds of the first
    explainer.
    """
    rows = []
    with model.session():
        origin = model.check_inputs(origin)
        noise = torch.rand((count, *origin.shape[1:]), generator=torch.Generator().manual_seed(0))
        low, high = ((origin + reach).clamp(*model.bounds) for reach in (-RADIUS, RADIUS))
        copies = low + (high - low) * noise.to(origin)
        rows_of_origin = torch.zeros(count, dtype=torch.int64, device=origin.device)
        for name, explainer in explainers.items():
            probe = Probe(
                Call(model, explainer, origin), "pearson", absolute=True, explain="predicted"
            )
            # allocates memory, selects kernels, draws coalitions
            probe.query(copies[:64], rows_of_origin[:64])
            for run in range(runs):
                _wait(model.device)
                start = time.perf_counter()
                probe.query(copies, rows_of_origin)
                _wait(model.device)
                seconds = time.perf_counter() - start
                rows.append({"explainer": name, "sample": run, "status": "ok", "seconds": seconds})
    frame = pl.DataFrame(rows)
    first = pl.col("seconds").filter(pl.col("explainer") == next(iter(explainers))).mean()
    return frame.with_columns(ratio=pl.col("seconds") / first)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _measure(scale: Scale) -> pl.DataFrame:
    model = Model(
        zoo.load(NATURAL), bounds=(0.0, 1.0), device="cuda" if torch.cuda.is_available() else "cpu"
    )
    return measure_times(
        model, data.mnist("test").inputs[:1], _COUNT, make_explainers(), _RUNS[scale]
    )


def _judge(frame: pl.DataFrame) -> list[Verdict]:
    means = dict(frame.group_by("explainer").agg(pl.col("ratio").mean()).iter_rows())
    slow = [means[name] for name in _SURROGATES if name in means]
    fast = [means[name] for name in _GRADIENTS if name in means]
    grid = [means[name] for name in (*_SURROGATES, "LIME, grid", "SHAP, grid") if name in means]
    if not slow or not fast:
        return []
    much = "LIME and SHAP take much more time than gradient-based methods (twice)"
    least, most = _PAPER_RATIO["SHAP"], _PAPER_RATIO["LIME"]
    as_much = f"LIME and SHAP cost {least:.0f} to {most:.0f} times Gradient x Input, as in the paper (or more)"
    return [
        (much, "seconds", bool(min(slow) > 2 * max(fast))),
        (as_much, "seconds", bool(min(grid) >= least)),
    ]


TIME_PART = make_part(
    "table4",
    "1000 explanations of LeNet-5, and their PCC with the explanation of the clean input",
    (
        Column("seconds", "seconds", paper=_PAPER),
        Column("times Gradient x Input", "ratio", decimals=1, paper=_PAPER_RATIO),
    ),
    verdicts=_judge,
    study=None,
    measure=_measure,
)
