"""Rates of passes with a score and a margin, as shares of bare passes, for each kind of answer.

    OMP_NUM_THREADS=1 python benchmarks/speed/tasks.py [--rows 512] [--repeats 5]

The models are those of `examples/tasks.py`, hardly trained, and the bundled LeNet-5 for classes. A bare pass calls the
module, adds up what it returns, and differentiates the sum by the input. Ours predicts, computes the score and the
margin, and differentiates the score: what a map of gradients costs. `search` is the rate of a worst case of input x
gradient (block search, 2,000 evaluations for each of 8 samples). Times are processor times of one thread; each of ours
lies between two bare ones, and shares are medians over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import standfast
import tasks
from standfast.metrics import WorstCase
from standfast.tasks.base import measure_margin

NAMES = ("classification", "regression", "labels", "segmentation", "detection", "texts")


def make_model(name: str) -> tuple[standfast.Model, Tensor]:
    """A model and 8 of its inputs."""
    if name == "classification":
        digits = standfast.data.bundled("digits")[:8]
        return standfast.Model(
            standfast.zoo.load("lenet5-mnist"), digits.bounds, device="cpu"
        ), digits.inputs
    example = tasks.EXAMPLES[name](60)
    data = example.data
    return example.model, (data if isinstance(data, Tensor) else data.inputs)[:8]


def add_up(output: Any) -> Tensor:
    """The sum of all floating-point tensors in what a module returns."""
    if isinstance(output, Tensor):
        return output.sum() if output.is_floating_point() else torch.zeros(())
    parts = output.values() if isinstance(output, dict) else output
    return torch.stack([add_up(part) for part in parts]).sum()


def pass_bare(module: nn.Module, x: Tensor) -> None:
    """A pass forward and backward of the module alone."""
    leaf = x.detach().requires_grad_()
    torch.autograd.grad(add_up(module(leaf)), leaf)


def pass_ours(model: standfast.Model, x: Tensor, answer: Tensor) -> None:
    """A pass of the model with score, margin and gradient."""
    leaf = x.detach().requires_grad_()
    outputs = model.run(leaf)
    measure_margin(model.task, outputs.detach(), answer)
    torch.autograd.grad(model.task.score(outputs, answer).sum(), leaf)


def measure(work: Callable[..., object], *arguments: Any, least: float = 0.4) -> float:
    """Seconds of processor time of one call, over at least `least` seconds."""
    start, calls = time.process_time(), 0
    while (seconds := time.process_time() - start) < least:
        work(*arguments)
        calls += 1
    return seconds / calls


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| answer | bare passes/s | share of a pass | share of a search |\n| --- | ---: | ---: | ---: |"
    )
    for name in options.only:
        model, inputs = make_model(name)
        for parameter in model.module.parameters():
            parameter.requires_grad_(False)
        x = inputs.repeat(options.rows // len(inputs) + 1, *[1] * (inputs.ndim - 1))[: options.rows]
        answer = model.predict(x)
        search = WorstCase(standfast.LinfBall(0.05), search="block", budget=2000)
        bare: list[float] = []
        ours, searched = [], []
        for _ in range(options.repeats):
            before = measure(pass_bare, model.module, x)
            own = measure(pass_ours, model, x, answer)
            start = time.process_time()
            count = int(search(model, "input_x_gradient", inputs).model_evaluations.sum())
            seconds = time.process_time() - start
            bare.append((before + measure(pass_bare, model.module, x)) / 2 / options.rows)
            ours.append(bare[-1] * options.rows / own)
            searched.append(bare[-1] * count / seconds)
        shares = f"{statistics.median(ours):.2f} | {statistics.median(searched):.2f}"
        print(f"| {name} | {1 / statistics.median(bare):,.0f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
