"""The speed of explainers that use perturbed copies, relative to the bare model and to Captum.

    python benchmarks/other_libraries/surrogates.py [--part bare] [--only rise] [--maps 20] [--samples 200]
        [--rows 128] [--repeats 5] [--device auto]

Ratios are printed for LIME, KernelSHAP, Shapley sampling (over superpixels, 10 orders), occlusion and RISE. What is
compared runs in turn.

- `bare`: rows that the module forwards per second for the explainer, over the rate of a bare loop that forwards as many
  rows in batches of the same size. The explainer's time includes superpixels, perturbed copies and the fit.
- `captum`: our maps per second over those of Captum's `Lime`, `KernelShap`, `ShapleyValueSampling` and `Occlusion` (it
  has no RISE). Both have the same inputs, as many samples, orders or windows, the same superpixels (which our time
  includes, and Captum's does not) and batches of the same size. Captum explains one input after the other, as its fits
  require, and as its Shapley sampling requires unless all inputs have the same number of superpixels. Its occlusion
  explains all inputs at once.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import captum.attr as ca
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from bare_model import compare_rates, describe_ratios, read_clock
from torch import Tensor

import standfast
from standfast.explainers import LIME, RISE, Explainer, KernelSHAP, Occlusion, ShapleySampling
from standfast.segments import segment

#: orders of Shapley sampling
ORDERS = 10


class Setting:
    """A model, inputs `(N, ...)` on its device, and the explainers to time; batches have the model's `batch_size`."""

    def __init__(
        self, model: standfast.Model, x: Tensor, samples: int, only: str | None = None
    ) -> None:
        self.model, self.module, self.x, self.samples = (
            model,
            model.module.eval().requires_grad_(False),
            x,
            samples,
        )
        assert isinstance(model.batch_size, int)
        self.rows = model.batch_size
        self.targets = model.predict(x)
        self.labels = segment(x).labels
        every: dict[Explainer, type | None] = {
            LIME(samples=samples): ca.Lime,
            KernelSHAP(samples=samples): ca.KernelShap,
            ShapleySampling(permutations=ORDERS): ca.ShapleyValueSampling,
            Occlusion(output="logit"): ca.Occlusion,
            RISE(samples=samples): None,
        }
        self.explainers = {e: kind for e, kind in every.items() if only in (None, e.name)}

    def measure_ours(self, explainer: Explainer) -> float:
        """Maps per second."""
        return len(self.x) / self._time(lambda: explainer(self.model, self.x, self.targets))

    def count_rows(self, explainer: Explainer) -> float:
        """The mean number of rows for one map: the input and its different perturbed copies."""
        counts = (self.labels.flatten(1).amax(1) + 1).tolist()
        if isinstance(explainer, LIME | KernelSHAP | ShapleySampling):
            return statistics.mean(len(explainer.draw_coalitions(m, self.x.device)) for m in counts)
        return explainer.rows_per_input

    def measure_bare(self, rows: float) -> float:
        """Maps per second, if a map were `rows` forward passes and nothing else."""
        total = round(rows * len(self.x))
        batches = self.x.repeat(-(-total // len(self.x)), 1, 1, 1)[:total].split(self.rows)

        def forward() -> None:
            with torch.no_grad():
                for batch in batches:
                    self.module(batch)

        return len(self.x) / self._time(forward)

    def measure_captum(self, kind: type) -> float:
        """Maps per second of a Captum method."""
        method = kind(self.module)
        at_once = {"perturbations_per_eval": min(self.rows, self.samples)}

        def explain() -> None:
            if kind is ca.Occlusion:
                sides, strides, _ = zip(
                    *Occlusion().lay_out_windows(tuple(self.x.shape[2:])), strict=True
                )
                at_once["perturbations_per_eval"] = max(1, self.rows // len(self.x))
                method.attribute(
                    self.x,
                    sliding_window_shapes=(self.x.shape[1], *sides),
                    strides=(self.x.shape[1], *strides),
                    target=self.targets,
                    **at_once,
                )
                return
            for i in range(len(self.x)):
                method.attribute(
                    self.x[i : i + 1],
                    target=self.targets[i : i + 1],
                    feature_mask=self.labels[i][None, None],
                    n_samples=ORDERS if kind is ca.ShapleyValueSampling else self.samples,
                    **at_once,
                )

        return len(self.x) / self._time(explain)

    def _time(self, work: Callable[[], object]) -> float:
        start = read_clock(self.x.device)
        work()
        return read_clock(self.x.device) - start


def compare_bare(setting: Setting, repeats: int) -> None:
    """Compare with forward passes alone."""
    for explainer in setting.explainers:
        rows = setting.count_rows(explainer)
        setting.measure_ours(explainer)  # the first call pays for imports
        ratios = compare_rates(
            partial(setting.measure_ours, explainer), partial(setting.measure_bare, rows), repeats
        )
        print(
            f"{explainer.name}, {rows:.0f} rows a map: {describe_ratios(ratios)} of the bare rate",
            flush=True,
        )


def compare_captum(setting: Setting, repeats: int) -> None:
    """Compare with Captum."""
    for explainer, kind in setting.explainers.items():
        if kind is None:
            continue
        setting.measure_ours(explainer)  # the first call pays for imports
        ratios = compare_rates(
            partial(setting.measure_ours, explainer), partial(setting.measure_captum, kind), repeats
        )
        print(
            f"{explainer.name}: {describe_ratios(ratios, '.1f')} times the rate of Captum's {kind.__name__}",
            flush=True,
        )


PARTS = {"bare": compare_bare, "captum": compare_captum}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument(
        "--only", choices=["lime", "kernel_shap", "shapley_sampling", "occlusion", "rise"]
    )
    parser.add_argument("--maps", type=int, default=20)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    digits = standfast.data.bundled("digits")[: options.maps]
    module = standfast.zoo.load("lenet5-mnist")
    model = standfast.Model(module, digits.bounds, device=options.device, batch_size=options.rows)
    setting = Setting(model, digits.inputs.to(model.device), options.samples, options.only)
    print(
        f"{options.maps} maps, {options.samples} samples, batches of {options.rows} rows, {setting.x.device},"
        f" {torch.get_num_threads()} threads"
    )
    for part in PARTS if options.part == "all" else [options.part]:
        PARTS[part](setting, options.repeats)


if __name__ == "__main__":
    main()
