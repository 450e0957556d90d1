"""Seconds to a first answer of five typical calls of `standfast.evaluate`, and of an older version.

    OMP_NUM_THREADS=1 python benchmarks/studies/first_answers.py [--repeats 3] [--before OLD/src] [--only digits tables]

Each call runs in a process of its own, without stored results. The time is that of the processor from the call to its
result, without imports and the loading of data; rounds of both versions take turns. Photographs are random, and their
network has random weights: times do not depend on that.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import standfast

BALL = standfast.LinfBall(8 / 255)


def call_digits() -> dict[str, Any]:
    """24 digits, three explainers, two metrics."""
    return {
        "model": standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0)),
        "explainers": ["saliency", "input_x_gradient", "gradcam"],
        "inputs": standfast.data.bundled("digits")[10:34],
        "metrics": {"worst case": standfast.metrics.WorstCase(BALL, budget=500), "AOPC": "aopc"},
    }


def call_tables() -> dict[str, Any]:
    """100 rows, two explainers, two metrics."""
    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(13, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 32),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 3),
    ]
    return {
        "model": standfast.Model(torch.nn.Sequential(*layers), bounds=(0.0, 1.0)),
        "explainers": ["saliency", "kernel_shap"],
        "inputs": torch.rand(100, 13),
        "metrics": {
            "worst case": standfast.metrics.WorstCase(BALL, search="random", budget=100),
            "AOPC": "aopc",
        },
    }


def call_series() -> dict[str, Any]:
    """20 series, three explainers, two metrics."""
    return {
        "model": standfast.Model(standfast.zoo.load("cnn-waves"), bounds=(-10.0, 10.0)),
        "explainers": ["saliency", "input_x_gradient", "integrated_gradients"],
        "inputs": standfast.data.load("waves:test").inputs[:20].clamp(-10, 10),
        "metrics": {
            "sensitivity": standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1)),
            "AOPC": "aopc",
        },
    }


def call_photographs() -> dict[str, Any]:
    """Eight photographs of 224 x 224, three explainers, one metric."""
    torch.manual_seed(0)
    network = standfast.zoo.ResNet18(num_classes=100, in_channels=3)
    return {
        "model": standfast.Model(network, bounds=(0.0, 1.0)),
        "explainers": ["saliency", "input_x_gradient", "gradcam"],
        "inputs": torch.rand(8, 3, 224, 224),
        "metrics": {"sensitivity": standfast.metrics.MaxSensitivity(BALL, samples=5)},
        "sanity": False,
        "controls": False,
    }


def call_sentences() -> dict[str, Any]:
    """20 sentences, three explainers, one metric."""
    sentences = standfast.data.bundled("sentences")[:20]
    return {
        "model": standfast.Model(
            standfast.zoo.load("transformer-sentences"), bounds=sentences.bounds
        ),
        "explainers": ["saliency", "input_x_gradient", "integrated_gradients"],
        "inputs": sentences,
        "metrics": {"sensitivity": standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1))},
    }


CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    "digits": call_digits,
    "tables": call_tables,
    "series": call_series,
    "photographs": call_photographs,
    "sentences": call_sentences,
}


def measure(name: str) -> float:
    """Seconds of the processor that a call takes."""
    options = CALLS[name]()
    start = time.process_time()
    standfast.evaluate(**options, progress=False)
    return time.process_time() - start


def measure_apart(name: str, source: Path | None) -> float:
    """The same in a new process, of the version in the folder `source`; None for the one that is imported here."""
    environment = dict(os.environ, STANDFAST_CACHE="off")
    if source is not None:
        environment["PYTHONPATH"] = str(source.resolve(strict=True))
    command = [sys.executable, __file__, "--serve", name]
    return float(
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(CALLS), default=list(CALLS))
    parser.add_argument("--before", type=Path, metavar="SRC")
    parser.add_argument("--serve", choices=list(CALLS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        warnings.simplefilter("ignore")
        print(measure(options.serve))
        return
    versions = [options.before, None] if options.before else [None]
    print(
        f"| call | {'before | ' if options.before else ''}now |\n| --- |{' ---: |' * len(versions)}",
        flush=True,
    )
    for name in options.only:
        rounds = [
            [measure_apart(name, version) for version in versions] for _ in range(options.repeats)
        ]
        cells = [f"{statistics.median(own):.1f} s" for own in zip(*rounds, strict=True)]
        print(f"| {CALLS[name].__doc__} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
