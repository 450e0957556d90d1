"""Comparison with Captum, Quantus, Foolbox and the adversarial library on what both have, with one model and inputs.

    python benchmarks/other_libraries/peers.py [--samples 50] [--digits 32] [--repeats 5] [--only least_distortion]

Values: all packages get the same perturbed inputs (Captum and Quantus through their `perturb_func`), the same
explained classes, and maps of the same method, from standfast for our metrics and from Captum for theirs. Distortions
are those of the attack DDN with the same number of steps.

Times: each package draws its own perturbed inputs, on one thread, at the best of several batch sizes. Runs alternate.
The printed ratio is the median over rounds, with the smallest and the largest. Needs the extra `peers`; for the
adversarial library see `minimal_distortion.py`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from captum.attr import InputXGradient, Saliency
from captum.metrics import sensitivity_max

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "c_eval"))

from minimal_distortion import list_peers
from torch import Tensor, nn

import standfast
from standfast.explainers import Explainer
from standfast.metrics import AOPC, Call, LocalLipschitz, MaxSensitivity, Metric, Probe

RADIUS, STEPS = 0.1, 200
Run = Callable[[], object]


@dataclass(frozen=True)
class Task:
    """A metric: runs of standfast and of each peer at several batch sizes, and the differences of values to ours."""

    name: str
    ours: list[Run]
    theirs: dict[str, list[Run]]
    difference: dict[str, float]


TASKS = ("max_sensitivity", "local_lipschitz", "pixel_flipping", "least_distortion")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--digits", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=TASKS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    module = standfast.zoo.load("lenet5-mnist").eval().requires_grad_(False)
    setting = Setting(
        module, standfast.data.bundled("digits")[: options.digits].inputs, options.samples
    )
    print(
        f"LeNet-5, {options.digits} digits, {options.samples} perturbations, {options.repeats} rounds"
    )
    print(
        "| metric | against | largest difference / mean value | times as fast (smallest to largest) |"
    )
    print("| --- | --- | --- | --- |")
    makers = {
        "max_sensitivity": setting.make_max_sensitivity,
        "local_lipschitz": setting.make_local_lipschitz,
        "pixel_flipping": setting.make_pixel_flipping,
        "least_distortion": setting.make_least_distortion,
    }
    for name in options.only or makers:
        task = makers[name]()
        ratios = compare(task, options.repeats)
        for peer, found in ratios.items():
            middle, low, high = statistics.median(found), min(found), max(found)
            print(
                f"| {task.name} | {peer} | {task.difference[peer]:.1e} | {middle:.2f} ({low:.2f} to {high:.2f}) |"
            )


def compare(task: Task, repeats: int) -> dict[str, list[float]]:
    """The time of each peer over ours, for each round, at the best batch size of each."""
    ours = min(task.ours, key=time_warm_run)
    best = {peer: min(runs, key=time_warm_run) for peer, runs in task.theirs.items()}
    found: dict[str, list[float]] = {peer: [] for peer in best}
    for _ in range(repeats):
        before = time_run(ours)
        theirs = {peer: time_run(run) for peer, run in best.items()}
        own = (before + time_run(ours)) / 2  # just before and just after theirs
        for peer, seconds in theirs.items():
            found[peer].append(seconds / own)
    return found


def time_run(run: Run) -> float:
    """The processor time of one call: the wall time of one thread if nothing else runs."""
    start = time.process_time()
    run()
    return time.process_time() - start


def time_warm_run(run: Run) -> float:
    """The shorter time of two calls."""
    return min(time_run(run), time_run(run))


class Setting:
    """What all packages have in common: the model, the inputs, the classes and the perturbed inputs."""

    def __init__(self, module: nn.Module, digits: Tensor, samples: int) -> None:
        import quantus

        self.quantus: Any = quantus
        # keeps noise within the bounds, since standfast clips it there and the peers do not
        self.x = x = 0.8 * digits + 0.1
        self.module, self.digits, self.samples = module, digits, samples
        self.model = standfast.Model(module, bounds=(0.0, 1.0), device="cpu")
        self.targets = self.model.predict(x)
        generator = torch.Generator().manual_seed(0)
        noise = torch.rand(len(x), samples, *x.shape[1:], generator=generator)
        self.perturbed = x[:, None] + RADIUS * (2 * noise - 1)
        self.ball = standfast.LinfBall(RADIUS)

    def _measure_distances(self, explainer: Explainer) -> Tensor:
        """Distances between our maps of each input and of its perturbed copies, `(N, samples)`."""
        origin = torch.arange(len(self.x)).repeat_interleave(self.samples)
        with self.model.session():
            probe = Probe(Call(self.model, explainer, self.x, self.targets))
            distance = probe.query(
                self.perturbed.flatten(0, 1), origin, want_distance=True
            ).distance
        assert distance is not None
        return distance.reshape(len(self.x), self.samples)

    def make_max_sensitivity(self) -> Task:
        """Max-sensitivity, which all three have; normalised by the norm of the map, as the peers do."""
        explainer = standfast.explainers.get("saliency")
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

        ours = self._measure_distances(explainer).amax(1) / explain(self.x, self.targets).flatten(
            1
        ).norm(dim=1)
        given = sensitivity_max(
            explain,
            self.x,
            perturb_func=lambda repeated: self.perturbed.flatten(0, 1),
            n_perturb_samples=self.samples,
            target=self.targets,
        )
        build = self.quantus.MaxSensitivity
        quantus = self._make_quantus_run(build, len(self.x), perturb_func=self._make_perturbation())
        return Task(
            "max sensitivity",
            self._list_ours(metric, explainer, self.x, self.targets),
            {
                "Captum": [captum(most) for most in (64, 128, 256, 512, every)],
                "Quantus": [
                    self._make_quantus_run(build, size, lower_bound=RADIUS) for size in (8, 16, 32)
                ],
            },
            {
                "Captum": find_largest_difference(given, ours),
                "Quantus": find_largest_difference(quantus(), ours),
            },
        )

    def make_local_lipschitz(self) -> Task:
        """Local Lipschitz, which Captum lacks; by default, Quantus divides maps by the largest value of a batch."""
        explainer = standfast.explainers.get("saliency")
        metric = LocalLipschitz(self.ball, samples=self.samples)
        steps = (self.perturbed - self.x[:, None]).flatten(2).norm(dim=2)
        ours = (self._measure_distances(explainer) / steps).amax(1)
        build, plain = self.quantus.LocalLipschitzEstimate, {"normalise": False}
        given = self._make_quantus_run(
            build, len(self.x), perturb_func=self._make_perturbation(), **plain
        )()
        return Task(
            "local Lipschitz",
            self._list_ours(metric, explainer, self.x, self.targets),
            {"Quantus": [self._make_quantus_run(build, size, **plain) for size in (8, 16, 32)]},
            {"Quantus": find_largest_difference(given, ours)},
        )

    def make_pixel_flipping(self) -> Task:
        """AOPC of single pixels that are replaced by zero one by one: the mean drop of the probability."""
        x, steps = self.digits, self.x[0].numel()
        explainer, targets = standfast.explainers.get("input_x_gradient"), self.model.predict(x)
        metric = AOPC(region=1, steps=steps, replacement="constant", baseline=0.0)
        build = self.quantus.PixelFlipping
        settings = {"features_in_step": 1, "perturb_baseline": 0.0, "method": InputXGradient}
        # a map without ties: standfast orders ties at random, Quantus by position
        shuffled = standfast.explainers.get("random")
        result = metric(self.model, shuffled, x, targets)
        maps = shuffled(self.model, x, targets).numpy()
        curves = np.asarray(self._make_quantus_run(build, len(x), maps, **settings)())
        start = self.module(x).detach().softmax(1).gather(1, targets[:, None]).numpy()
        area = (start - curves).sum(1) / (steps + 1)
        return Task(
            "pixel flipping, 784 steps (AOPC)",
            self._list_ours(metric, explainer, x, targets),
            {"Quantus": [self._make_quantus_run(build, size, **settings) for size in (8, 16, 32)]},
            {"Quantus": find_largest_difference(area, result.value)},
        )

    def make_least_distortion(self) -> Task:
        """The least 2-norm that changes the class, by DDN; the difference is that of the mean distortions."""
        x, targets = self.digits, self.model.predict(self.digits)
        peers = {
            name: run
            for name, run in list_peers(self.module, x, targets, STEPS)
            if name.endswith("DDN")
        }

        def find(size: int) -> Tensor:
            model = standfast.Model(self.module, bounds=(0.0, 1.0), device="cpu", batch_size=size)
            return (
                standfast.algorithms.get_attack(f"ddn:steps={STEPS}")
                .minimise(model, x, targets, None)
                .distortion
            )

        mean = find(64).mean()
        return Task(
            f"least distortion by DDN, {STEPS} steps",
            [partial(find, size) for size in (16, 32, 64)],
            {name.removesuffix(" DDN"): [run] for name, run in peers.items()},
            {
                name.removesuffix(" DDN"): abs(float(run()[0].mean() / mean - 1))
                for name, run in peers.items()
            },
        )

    def _list_ours(
        self, metric: Metric, explainer: Explainer, x: Tensor, targets: Tensor
    ) -> list[Run]:
        sizes: tuple[Any, ...] = (64, 128, 256, 512, "auto")
        models = [
            standfast.Model(self.module, bounds=(0.0, 1.0), device="cpu", batch_size=size)
            for size in sizes
        ]
        return [partial(metric, model, explainer, x, targets) for model in models]

    def _make_perturbation(self) -> Callable[..., Any]:
        """A `perturb_func` for Quantus that returns the perturbed inputs, sample by sample."""
        steps = iter(range(self.samples))
        return lambda arr, indices, **_: self.perturbed[:, next(steps)].reshape(arr.shape).numpy()

    def _make_quantus_run(
        self, kind: Any, size: int, maps: Any = None, method: Any = Saliency, **options: Any
    ) -> Callable[[], Any]:
        flipping = kind is self.quantus.PixelFlipping
        x = self.digits if flipping else self.x
        if not flipping:
            options["nr_samples"] = self.samples
        classes = self.model.predict(x).numpy()
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


def find_largest_difference(theirs: Any, ours: Tensor) -> float:
    """The largest difference between values of a sample, relative to the mean value."""
    found = torch.as_tensor(np.asarray(theirs), dtype=torch.float64)
    return float((found - ours.double()).abs().max() / ours.double().abs().mean())


if __name__ == "__main__":
    main()
