"""The speed of the bare model: a plain loop of forward-backward passes, to which other benchmarks compare theirs."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

import standfast
from standfast.explainers import smooth_relu
from standfast.explainers.attention.attention_calls import PlainAttention

PASSES = 20_000  # rows that the loop forwards at least

#: forward; forward and backward to the input; or with a gradient of the gradient (softplus for ReLU)
Pass = Literal["forward", "both", "second"]


def load_lenet(samples: int, rows: int, device: str) -> tuple[standfast.Model, Tensor]:
    """The bundled LeNet-5 with frozen weights and batches of `rows`, and the first bundled digits."""
    digits = standfast.data.bundled("digits")[:samples]
    model = standfast.Model(
        standfast.zoo.load("lenet5-mnist"), digits.bounds, batch_size=rows, device=device
    )
    for parameter in model.module.eval().parameters():
        parameter.requires_grad_(False)
    return model, digits.inputs


def measure_bare_rate(module: nn.Module, x: Tensor, rows: int, passes: int) -> float:
    """Rows per second of forward-backward passes to the input, with frozen weights, over batches of `x`."""
    start = time.perf_counter()
    for _ in range(passes):
        for batch in x.split(rows):
            leaf = batch.detach().requires_grad_(True)
            logits = module(leaf)
            torch.autograd.grad(logits.amax(1).sum(), leaf)
    wait_for(x.device)
    return passes * len(x) / (time.perf_counter() - start)


def measure_pass(module: nn.Module, x: Tensor, kind: Pass, passes: int | None = None) -> float:
    """Seconds per row of some passes of the batch `x`, with frozen weights; on one CPU thread, its processor time."""
    if passes is None:
        passes = max(1, PASSES // (8 if kind == "second" else 4) // len(x))
    start = read_clock(x.device)
    with contextlib.ExitStack() as stack:
        if kind == "second":
            stack.enter_context(smooth_relu())
            stack.enter_context(PlainAttention())  # fused attention has no second derivatives
        for _ in range(passes):
            leaf = x.detach().requires_grad_(kind != "forward")
            logits = module(leaf)
            if kind != "forward":
                (found,) = torch.autograd.grad(
                    logits.amax(1).sum(), leaf, create_graph=kind == "second"
                )
            if kind == "second":
                torch.autograd.grad((found * leaf).abs().sum(), leaf)
    return (read_clock(x.device) - start) / (passes * len(x))


def make_bare_loop(model: standfast.Model, x: Tensor, rows: int) -> Callable[[], float]:
    """A function that measures the bare rate on copies of the first of `x`, in batches of `rows`."""
    batches = x[:1].repeat(8 * rows, 1, 1, 1).to(model.device)
    passes = max(1, PASSES // len(batches))
    return lambda: measure_bare_rate(model.module, batches, rows, passes)


def compare_rates(
    ours: Callable[[], float], other: Callable[[], float], repeats: int
) -> list[float]:
    """Our rate over the other one; each round measures the other just before and after ours."""
    other()
    ratios = []
    for _ in range(repeats):
        before = other()
        rate = ours()
        ratios.append(rate / ((before + other()) / 2))
    return ratios


def describe_ratios(ratios: list[float], form: str = ".0%") -> str:
    """The median, with the smallest and the largest."""
    return f"{statistics.median(ratios):{form}} (from {min(ratios):{form}} to {max(ratios):{form}})"


def read_clock(device: torch.device) -> float:
    """The time in seconds, after all work on the device is done; of one CPU thread it is the processor time."""
    if device.type == "cpu" and torch.get_num_threads() == 1:
        return time.process_time()
    wait_for(device)
    return time.perf_counter()


def wait_for(device: torch.device) -> None:
    """Wait until all work on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
