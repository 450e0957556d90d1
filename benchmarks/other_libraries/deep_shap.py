"""The speed of DeepSHAP, relative to Captum's DeepLiftShap with the same maps.

    OMP_NUM_THREADS=1 python benchmarks/other_libraries/deep_shap.py [--repeats 5]

The networks are such that Captum's maps are right: its hooks interfere if a rectifier feeds a max-pooling, so a copy of
the values is placed between them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import captum.attr as ca
import numpy as np
import torch
from torch import Tensor, nn

import standfast


class Copy(nn.Module):
    """Returns a copy of its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clone()


def make_networks() -> dict[str, nn.Module]:
    """Untrained networks for 28x28 images."""
    torch.manual_seed(0)
    convolutions = (
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
    )
    pooled = (nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), Copy(), nn.MaxPool2d(2))
    pooled = (*pooled, nn.Conv2d(16, 32, 3), nn.ReLU(), Copy(), nn.MaxPool2d(2))
    more = (
        nn.Conv2d(32, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 36, 64),
        nn.ReLU(),
    )
    flat = (
        nn.Flatten(),
        nn.Linear(784, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )
    return {
        "three convolutions": nn.Sequential(*convolutions, *more, nn.Linear(64, 10)).eval(),
        "convolutions and pooling": nn.Sequential(
            *pooled, nn.Flatten(), nn.Linear(32 * 36, 10)
        ).eval(),
        "three linear layers": nn.Sequential(*flat).eval(),
    }


def time_functions(functions: list[Callable[[], Tensor]], repeats: int) -> list[float]:
    """The median processor time of each function; they run in turn."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for function, own in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            own.append(time.process_time() - start)
    return [float(np.median(own)) for own in times]


def main() -> None:
    """Print one row for each network and size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    digits = standfast.data.bundled("digits").inputs
    print("| network | inputs x references | largest difference | times Captum's speed |")
    print("| --- | --- | --- | --- |")
    for name, module in make_networks().items():
        for count, size in ((8, 20), (16, 20), (4, 100)):
            x, references = digits[:count], digits[100 : 100 + size]
            model = standfast.Model(module, bounds=(0.0, 1.0), device="cpu")
            explainer = standfast.explainers.DeepSHAP(background=references)

            def ours(explainer=explainer, model=model, x=x) -> Tensor:
                return explainer(model, x, 1)

            def theirs(module=module, x=x, references=references) -> Tensor:
                return ca.DeepLiftShap(module).attribute(x, baselines=references, target=1)

            difference = float((ours() - theirs()).abs().max())
            our_time, their_time = time_functions([ours, theirs], repeats)
            print(
                f"| {name} | {count} x {size} | {difference:.0e} | {their_time / our_time:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
