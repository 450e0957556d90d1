"""SAFARI: Table 4, the time of 1000 explanations and their comparison; a measurement on the available device.

Seconds depend on the machine as much as on the method. So the table also has the ratio to the time of the model's
passes, which no implementation can avoid.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import polars as pl
import torch
from torch import Tensor

from papers.base import Column, Part, Scale, if_small
from papers.reading import Verdict
from papers.safari.parts import NATURAL, RADIUS
from standfast import data, zoo
from standfast.explainers import LIME, Explainer, KernelSHAP
from standfast.explainers import get as get_explainer
from standfast.explainers.gradients.input_gradients import IntegratedGradients
from standfast.explainers.perturbation.coalitions import CoalitionExplainer
from standfast.metrics.probe import Probe
from standfast.model import Model
from standfast.similarity import get as get_similarity

_PAPER4 = {
    "Gradient x Input": 0.0202,
    "Integrated Gradients": 0.0512,
    "GradCAM": 0.0342,
    "DeepLift": 0.0382,
    "LIME": 99.21,
    "SHAP": 25.80,
}
_COUNT = 1000
_STEPS = 50  # steps of integrated gradients, Captum's default
_RUNS: dict[Scale, int] = {"small": 2, "full": 10}


def make_explainers(samples: int = 200) -> dict[str, Explainer]:
    """The explainers of Table 4, and the two surrogates with a grid, which needs no segmentation."""
    return {
        "Gradient x Input": get_explainer("input_x_gradient"),
        "Integrated Gradients": IntegratedGradients(steps=_STEPS),
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

    One row for each explainer and run, with the columns:

    - `seconds`.
    - `passes`: the seconds in units of one forward and one backward pass of the copies, measured in the same run.
    - `share`: the share of the seconds that the necessary passes take. These are a forward pass of every masked copy,
      or of the input for Grad-CAM; a forward and a backward pass of every step; or of the input and its reference.
    """
    rows = []
    with model.session():
        origin = model.check_inputs(origin)
        noise = torch.rand((count, *origin.shape[1:]), generator=torch.Generator().manual_seed(0))
        region_low, region_high = ((origin + reach).clamp(*model.bounds) for reach in (-RADIUS, RADIUS))
        copies = region_low + (region_high - region_low) * noise.to(origin)
        rows_of_origin = torch.zeros(count, dtype=torch.int64, device=origin.device)
        for name, explainer in explainers.items():
            probe = Probe(model, explainer, origin, None, get_similarity("pearson"), absolute=True, explain="predicted")
            probe.query(copies[:64], rows_of_origin[:64])  # allocates memory, selects kernels, draws coalitions
            for run in range(runs):
                forward = _seconds(model, lambda: _forward(model, copies))
                both = _seconds(model, lambda: _gradient(model, copies))
                own = _seconds(model, partial(probe.query, copies, rows_of_origin))
                needed = necessary_seconds(explainer, forward, both)
                row = {"seconds": own, "passes": own / both, "share": needed / own}
                rows.append({"explainer": name, "sample": run, "status": "ok", **row})
    return pl.DataFrame(rows)


def necessary_seconds(explainer: Explainer, forward: float, both: float) -> float:
    """Seconds of the passes that an explainer needs; `both` are those of a forward and a backward pass."""
    if isinstance(explainer, CoalitionExplainer):
        return explainer.rows_per_input * forward
    if isinstance(explainer, IntegratedGradients):
        return explainer.steps * both
    # Grad-CAM needs no backward pass to the input
    return forward if explainer.name == "gradcam" else both * (2 if explainer.name == "deeplift" else 1)


def _forward(model: Model, x: Tensor) -> None:
    with torch.no_grad():
        model.map_rows(lambda rows: (model.forward(rows),), x)


def _gradient(model: Model, x: Tensor) -> None:
    def top(rows: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaf = rows.detach().requires_grad_(True)
            return torch.autograd.grad(model.forward(leaf).amax(1).sum(), leaf)

    model.map_rows(top, x, kind="backward")


def _seconds(model: Model, work: Callable[[], object]) -> float:
    _wait(model.device)
    start = time.perf_counter()
    work()
    _wait(model.device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _measure(scale: Scale) -> pl.DataFrame:
    model = Model(zoo.load(NATURAL), bounds=(0.0, 1.0), device="cuda" if torch.cuda.is_available() else "cpu")
    return measure_times(model, data.mnist("test").inputs[:1], _COUNT, make_explainers(), _RUNS[scale])


def _verdicts(frame: pl.DataFrame) -> list[Verdict]:
    means = dict(frame.group_by("explainer").agg(pl.col("passes").mean()).iter_rows())
    slow, fast = (
        [means[name] for name in names if name in means]
        for names in (("LIME", "SHAP"), ("Gradient x Input", "Integrated Gradients", "GradCAM", "DeepLift"))
    )
    holds = min(slow) > 2 * max(fast) if slow and fast else None
    grid = min((means[name] for name in ("LIME", "SHAP", "LIME, grid", "SHAP, grid") if name in means), default=0.0)
    paper = (25.80 / 0.0202, 99.21 / 0.0202)
    found: list[Verdict] = [("LIME and SHAP take much more time than gradient-based methods (twice)", "passes", holds)]
    if grid and "Gradient x Input" in means:
        text = f"LIME and SHAP cost {paper[0]:.0f} to {paper[1]:.0f} times Gradient x Input, as in the paper (or more)"
        found.append((text, "passes", bool(grid / means["Gradient x Input"] >= paper[0])))
    return found


TIME_PART = Part(
    name="safari-times",
    title="1000 explanations of LeNet-5, and their PCC with the explanation of the clean input",
    study=None,
    columns=(
        Column("seconds", "seconds", paper=_PAPER4),
        Column("in passes forward and backward", "passes", decimals=1),
        Column("share of necessary passes", "share", decimals=2),
    ),
    departures=lambda scale: (
        if_small(scale, f"{_RUNS[scale]} runs (10)")
        + f"this machine (an A100); 28x28 pixels (32x32); integrated gradients with {_STEPS} steps, LIME and SHAP with"
        " 200 samples and quickshift's segments (not stated); LIME and SHAP on a fixed grid are ours"
    ),
    verdicts=_verdicts,
    measure=_measure,
)
