"""Against Captum and Quantus on the metrics that both have: same model, inputs and samples, in one run.

    python benchmarks/peers.py [--samples 50] [--digits 32] [--repeats 5]

Values: all get the same perturbed inputs (Captum and Quantus through their `perturb_func`), the same explained classes,
and maps of the same method: ours of holdfast, theirs of Captum, as their users would write it. Times: each draws its
own, on one thread, at the best batch size of several; the runs are interleaved, and the ratio is the median of those of
the rounds, with the smallest and the largest beside it. Needs the extra `peers`.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from captum.attr import InputXGradient, Saliency
from captum.metrics import sensitivity_max
from torch import Tensor, nn

import holdfast as hf
from holdfast.explainers import Explainer
from holdfast.metrics import AOPC, LocalLipschitz, MaxSensitivity, Metric, measure_sensitivity

RADIUS = 0.1
Run = Callable[[], object]


@dataclass(frozen=True)
class Task:
    """A metric: what holdfast and each peer run at several batch sizes, how far their values are from ours."""

    name: str
    ours: list[Run]
    theirs: dict[str, list[Run]]
    difference: dict[str, float]


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--digits", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    module = hf.zoo.load("lenet5-mnist").eval()
    setting = Setting(module, hf.data.bundled("digits")[: options.digits].inputs, options.samples)
    print(f"LeNet-5, {options.digits} digits, {options.samples} perturbations, {options.repeats} rounds")
    print("| metric | against | largest difference / mean value | times as fast (smallest to largest) |")
    print("| --- | --- | --- | --- |")
    for task in (setting.max_sensitivity(), setting.local_lipschitz(), setting.pixel_flipping()):
        ratios = compare(task, options.repeats)
        for peer, found in ratios.items():
            middle, low, high = statistics.median(found), min(found), max(found)
            print(f"| {task.name} | {peer} | {task.difference[peer]:.1e} | {middle:.2f} ({low:.2f} to {high:.2f}) |")


def compare(task: Task, repeats: int) -> dict[str, list[float]]:
    """Time of each peer over ours, a round after the other, each at its best batch size."""
    ours = min(task.ours, key=warm)
    best = {peer: min(runs, key=warm) for peer, runs in task.theirs.items()}
    found: dict[str, list[float]] = {peer: [] for peer in best}
    for _ in range(repeats):
        before = seconds(ours)
        theirs = {peer: seconds(run) for peer, run in best.items()}
        own = (before + seconds(ours)) / 2  # on both sides of theirs
        for peer, taken in theirs.items():
            found[peer].append(taken / own)
    return found


def seconds(run: Run) -> float:
    """CPU time of one call: what wall time is on one thread, where nothing else runs."""
    start = time.process_time()
    run()
    return time.process_time() - start


def warm(run: Run) -> float:
    """The shorter of two calls."""
    return min(seconds(run), seconds(run))


class Setting:
    """What all have in common: the model, the inputs, the classes, the perturbed inputs."""

    def __init__(self, module: nn.Module, digits: Tensor, samples: int) -> None:
        import quantus

        self.quantus: Any = quantus
        # noise stays within the bounds, at which holdfast stops and the peers do not
        self.x = x = 0.8 * digits + 0.1
        self.module, self.digits, self.samples = module, digits, samples
        self.classifier = hf.Classifier(module, bounds=(0.0, 1.0), device="cpu")
        self.targets = self.classifier.predict(x)
        generator = torch.Generator().manual_seed(0)
        noise = torch.rand(len(x), samples, *x.shape[1:], generator=generator)
        self.perturbed = x[:, None] + RADIUS * (2 * noise - 1)
        self.ball = hf.LinfBall(RADIUS)

    def max_sensitivity(self) -> Task:
        """All three; the peers divide by the norm of the map."""
        explainer = hf.explainers.get("saliency")
        metric = MaxSensitivity(self.ball, samples=self.samples, normalise=True)
        explain = Saliency(self.module).attribute
        every = len(self.x) * self.samples

        def captum(most: int) -> Run:
            return lambda: sensitivity_max(
                explain,
                self.x,
                perturb_radius=RADIUS,
                n_perturb_samples=self.samples,
                target=self.targets,
                max_examples_per_batch=most,
            )

        ours = measure_sensitivity(self.classifier, explainer, self.x, self.perturbed, self.targets, normalise=True)
        given = sensitivity_max(
            explain,
            self.x,
            perturb_func=lambda repeated: self.perturbed.flatten(0, 1),
            n_perturb_samples=self.samples,
            target=self.targets,
        )
        build = self.quantus.MaxSensitivity
        return Task(
            "max sensitivity",
            self._ours(metric, explainer, self.x, self.targets),
            {
                "Captum": [captum(most) for most in (64, 128, 256, 512, every)],
                "Quantus": [self._quantus(build, size, lower_bound=RADIUS) for size in (8, 16, 32)],
            },
            {
                "Captum": apart(given, ours),
                "Quantus": apart(self._quantus(build, len(self.x), perturb_func=self._given())(), ours),
            },
        )

    def local_lipschitz(self) -> Task:
        """Captum has none; Quantus divides maps by the largest value of a batch unless told not to."""
        explainer = hf.explainers.get("saliency")
        metric = LocalLipschitz(self.ball, samples=self.samples)
        ours = measure_sensitivity(self.classifier, explainer, self.x, self.perturbed, self.targets, per_distance=True)
        build, plain = self.quantus.LocalLipschitzEstimate, {"normalise": False}
        given = self._quantus(build, len(self.x), perturb_func=self._given(), **plain)()
        return Task(
            "local Lipschitz",
            self._ours(metric, explainer, self.x, self.targets),
            {"Quantus": [self._quantus(build, size, **plain) for size in (8, 16, 32)]},
            {"Quantus": apart(given, ours)},
        )

    def pixel_flipping(self) -> Task:
        """AOPC of single pixels, replaced by zero one after the other: the mean fall of the probability."""
        x, steps = self.digits, self.x[0].numel()
        explainer, targets = hf.explainers.get("input_x_gradient"), self.classifier.predict(x)
        metric = AOPC(region=1, steps=steps, replacement="constant", baseline=0.0)
        build = self.quantus.PixelFlipping
        settings = {"features_in_step": 1, "perturb_baseline": 0.0, "method": InputXGradient}
        # values by a map without ties, which ours puts in order at random and Quantus by their place
        shuffled = hf.explainers.get("random")
        result = metric(self.classifier, shuffled, x, targets)
        maps = shuffled(self.classifier, x, targets).numpy()
        curves = np.asarray(self._quantus(build, len(x), maps, **settings)())
        start = self.module(x).detach().softmax(1).gather(1, targets[:, None]).numpy()
        area = (start - curves).sum(1) / (steps + 1)
        return Task(
            "pixel flipping, 784 steps (AOPC)",
            self._ours(metric, explainer, x, targets),
            {"Quantus": [self._quantus(build, size, **settings) for size in (8, 16, 32)]},
            {"Quantus": apart(area, result.aopc)},
        )

    def _ours(self, metric: Metric, explainer: Explainer, x: Tensor, targets: Tensor) -> list[Run]:
        sizes: tuple[Any, ...] = (64, 128, 256, 512, "auto")
        models = [hf.Classifier(self.module, bounds=(0.0, 1.0), device="cpu", batch_size=size) for size in sizes]
        return [partial(metric, model, explainer, x, targets) for model in models]

    def _given(self) -> Callable[..., Any]:
        """A `perturb_func` of Quantus that hands out the perturbed inputs, a sample of each after the other."""
        steps = iter(range(self.samples))
        return lambda arr, indices, **_: self.perturbed[:, next(steps)].reshape(arr.shape).numpy()

    def _quantus(
        self, kind: Any, size: int, maps: Any = None, method: Any = Saliency, **options: Any
    ) -> Callable[[], Any]:
        flipping = kind is self.quantus.PixelFlipping
        x = self.digits if flipping else self.x
        if not flipping:
            options["nr_samples"] = self.samples
        classes = self.classifier.predict(x).numpy()
        metric = kind(**options, disable_warnings=True, display_progressbar=False)

        def explain(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> Any:
            values = torch.as_tensor(inputs, dtype=torch.float32)
            return method(model).attribute(values, target=torch.as_tensor(targets)).detach().numpy()

        return lambda: metric(
            model=self.module,
            x_batch=x.numpy(),
            y_batch=classes,
            a_batch=maps,
            explain_func=explain,
            channel_first=True,
            batch_size=size,
        )


def apart(theirs: Any, ours: Tensor) -> float:
    """The largest difference of a sample, relative to the mean value."""
    found = torch.as_tensor(np.asarray(theirs), dtype=torch.float64)
    return float((found - ours.double()).abs().max() / ours.double().abs().mean())


if __name__ == "__main__":
    main()
