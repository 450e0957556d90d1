"""How much damage of a network `no_worse_than` notices, and how often it alarms without any.

A baseline is made of a network on n samples. Then noise is added to all of its weights, normal with so many standard
deviations of each layer's weights, and the network is checked against the baseline with the same samples and another
seed. Without noise it is the same network, and "fail" is a false alarm.

    python benchmarks/reliability/damage.py --draws 5
    python benchmarks/reliability/damage.py --unchanged 400
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import standfast
from standfast.checks import Decisions, check, freeze_baseline
from standfast.explainers.completeness import CompletenessWarning

SAMPLES = (24, 60, 200)
NOISE = (0.1, 0.3, 0.5, 1.0)
EXPLAINERS = ["saliency", "integrated_gradients:steps=8", "gradcam"]
QUICK_EXPLAINERS = ["saliency", "gradcam"]
METRICS: list[Any] = [
    {"max_sensitivity": {"neighbourhood": {"linf": 0.05}, "samples": 5, "normalise": True}},
    {"aopc": {"steps": 10, "samples": 2}},
]
#: how much worse a sample may be
BY = 0.05


def damage(noise: float, draw: int) -> dict[str, torch.Tensor]:
    """The weights of the network with noise, in standard deviations of each tensor."""
    generator = torch.Generator().manual_seed(draw)
    state = standfast.zoo.load("lenet5-mnist").state_dict()
    return {name: _add_noise(values, noise, generator) for name, values in state.items()}


def _add_noise(values: torch.Tensor, noise: float, generator: torch.Generator) -> torch.Tensor:
    if not noise or values.numel() < 2:
        return values
    return values + noise * values.std() * torch.randn(values.shape, generator=generator)


def make_study(weights: Path, samples: int, seed: int, sanity: bool, quick: bool) -> dict[str, Any]:
    """The study of one network; a quick one has a metric and an explainer less."""
    lenet = {
        "architecture": "lenet5",
        "options": {"num_classes": 10, "in_channels": 1},
        "weights": str(weights),
    }
    return {
        "samples": samples,
        "seed": seed,
        "data": {"digits": "digits"},
        "models": {"network": lenet},
        "explainers": QUICK_EXPLAINERS if quick else EXPLAINERS,
        "metrics": METRICS[:1] if quick else METRICS,
        "sanity": sanity,
        "controls": False,
    }


class Gate:
    """Baselines of one network, and checks of others against them."""

    def __init__(self, folder: Path, sanity: bool = True, quick: bool = False) -> None:
        self.folder, self.sanity, self.quick = folder, sanity, quick
        self.baselines: dict[int, Path] = {}

    def save(self, noise: float, draw: int) -> Path:
        """A file with damaged weights."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"weights-{noise}-{draw}.pt"
        torch.save(damage(noise, draw), path)
        return path

    def freeze(self, samples: int) -> Path:
        """The baseline of the network itself."""
        if samples not in self.baselines:
            results = self.folder / f"results-{samples}"
            study = make_study(self.save(0.0, 0), samples, 0, self.sanity, self.quick)
            standfast.run_study(study, results, progress=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of what meets no other requirement
                self.baselines[samples] = freeze_baseline(
                    results, self.folder / f"baseline-{samples}"
                )
        return self.baselines[samples]

    def check(self, noise: float, draw: int, samples: int) -> Decisions:
        """The decisions on a damaged network, with a seed of its own."""
        study = make_study(self.save(noise, draw), samples, draw + 1, self.sanity, self.quick)
        requirement = {"no_worse_than": str(self.freeze(samples)), "by": BY}
        results = f"memory://damage-{noise}-{draw}-{samples}"
        return check({**study, "requirements": [requirement]}, results, progress=False)


def count_outcomes(gate: Gate, noise: float, draws: int, samples: int) -> Counter[str]:
    """How often the whole gate passes, fails and is undecided."""
    return Counter(gate.check(noise, draw, samples).outcome for draw in range(draws))


def measure_accuracy(noise: float, draws: int) -> float:
    """The share of the digits on which damaged networks are right."""
    digits, model = standfast.data.bundled("digits"), standfast.zoo.load("lenet5-mnist")
    shares = []
    for draw in range(draws):
        model.load_state_dict(damage(noise, draw))
        with torch.no_grad():
            shares.append((model(digits.inputs).argmax(1) == digits.labels).double().mean().item())
    return sum(shares) / len(shares)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=0, help="damaged networks for each row")
    parser.add_argument(
        "--unchanged", type=int, default=0, help="runs of the same network with new seeds"
    )
    parser.add_argument("--samples", type=int, nargs="+", default=SAMPLES)
    options = parser.parse_args()
    warnings.simplefilter("ignore", CompletenessWarning)
    with tempfile.TemporaryDirectory() as folder:
        gate = Gate(Path(folder))
        if options.unchanged:
            quick = Gate(Path(folder) / "quick", quick=True)
            found = count_outcomes(quick, 0.0, options.unchanged, options.samples[0])
            print(
                f"unchanged, {options.samples[0]} samples, {options.unchanged} seeds: {dict(found)}",
                flush=True,
            )
        if options.draws:
            print("| noise | right |" + "".join(f" {count} samples |" for count in options.samples))
            print("| --- |" + " --- |" * (1 + len(options.samples)))
        for noise in NOISE if options.draws else ():
            cells = [f"{noise:g}", f"{measure_accuracy(noise, options.draws):.0%}"]
            for count in options.samples:
                found = count_outcomes(gate, noise, options.draws, count)
                cells.append(f"{found['fail']} / {found['undecided']} / {found['pass']}")
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
