"""The speed and memory of corruption curves, relative to bare forward passes of the model.

    python benchmarks/speed/corruption.py [--samples 60] [--repeats 5] [--full 1500] [--device auto] [--threads 1]

A small convolutional network gets series of 4 channels and 500 steps; maps are looked up, not computed.

First it measures the rate of corrupted copies (top and bottom, ten shares of the positive positions, five draws of
noise), which includes ranks, noise, copies, probabilities and areas. It prints this rate over that of bare forward
passes of as many rows at the same batch size; both are measured in turn. Then it evaluates `--full` series in one call,
and prints the time and by how much the process grew.

With one thread of a CPU, times are processor times, which other processes influence less.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys

import torch
from bare_model import read_clock
from torch import Tensor, nn

import standfast
from standfast.metrics.coarse_to_fine.corruption_curve import FRACTIONS, CorruptionCurve
from standfast.tensors import content_keys

CHANNELS, STEPS = 4, 500


def make_network(width: int) -> nn.Module:
    """Three convolutions and a mean over time, two classes."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for channels in (CHANNELS, width, width):
        layers += [nn.Conv1d(channels, width, 11, padding=5), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, 2)).eval()


def make_lookup_explainer(inputs: Tensor, maps: Tensor) -> standfast.explainers.Explainer:
    """An explainer that looks up the map of each input by the input's content."""
    keys, places = content_keys(inputs, 0).sort()

    def explain(module: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        own, where = keys.to(x.device), places.to(x.device)
        return maps.to(x.device)[where[torch.searchsorted(own, content_keys(x, 0))]]

    return standfast.explainers.from_callable(explain, name="given")


def measure_bare_rate(model: standfast.Model, inputs: Tensor, rows: int, batch: int) -> float:
    """Rows per second of forward passes."""
    x = inputs[:batch].repeat(-(-batch // len(inputs)), 1, 1)[:batch].to(model.device)
    with model.session(), torch.no_grad():
        start = read_clock(model.device)
        for _ in range(max(1, rows // batch)):
            model.forward(x)
        return max(1, rows // batch) * batch / (read_clock(model.device) - start)


def measure_corruption_rate(
    model: standfast.Model, inputs: Tensor, maps: Tensor, metric: CorruptionCurve
) -> tuple[int, float]:
    """The number of copies, and copies per second; the explained row of each sample is not counted."""
    start = read_clock(model.device)
    result = metric(model, make_lookup_explainer(inputs, maps), inputs)
    copies = int((result.model_evaluations - 1).sum())
    return copies, copies / (read_clock(model.device) - start)


def read_peak_memory() -> float:
    """The largest memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 2**10
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--full", type=int, default=1500)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    count = max(options.samples, options.full)
    inputs, maps = torch.randn(2, count, CHANNELS, STEPS, generator=generator)
    infinite = (-float("inf"), float("inf"))
    model = standfast.Model(
        make_network(options.width), infinite, device=options.device, batch_size=options.batch
    )
    metric = CorruptionCurve(fractions=FRACTIONS[:-1])
    some = inputs[: options.samples], maps[: options.samples]
    copies, _ = measure_corruption_rate(model, some[0][:8], some[1][:8], metric)
    ratios, rates = [], []
    for _ in range(options.repeats):
        before = measure_bare_rate(model, inputs, 100 * options.samples, options.batch)
        copies, rate = measure_corruption_rate(model, *some, metric)
        after = measure_bare_rate(model, inputs, 100 * options.samples, options.batch)
        ratios.append(rate / ((before + after) / 2))
        rates.append(rate)
    print(
        f"{options.samples} series, {copies} copies, batches of {options.batch}, {model.device},"
        f" {options.threads} threads: {statistics.median(rates):.0f} copies/s,"
        f" {statistics.median(ratios):.0%} of the bare forward rate (from {min(ratios):.0%} to {max(ratios):.0%};"
        " at least 75% wanted)"
    )
    if not options.full:
        return
    start, at_first = read_clock(model.device), read_peak_memory()
    copies, rate = measure_corruption_rate(
        model, inputs[: options.full], maps[: options.full], metric
    )
    whole = copies * CHANNELS * STEPS * 4 / 2**20
    print(
        f"{options.full} series, {copies} copies: {read_clock(model.device) - start:.0f} s, {rate:.0f} copies/s;"
        f" the process grew by {read_peak_memory() - at_first:.0f} MB beyond its peak before (all copies at once:"
        f" {whole:.0f} MB)"
    )


if __name__ == "__main__":
    main()
