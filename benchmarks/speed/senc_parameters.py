"""The speed of parameter SenC with gates, relative to a loop that changes weights, and to the bare model.

    python benchmarks/speed/senc_parameters.py [--masks 1000] [--rows 128] [--repeats 5]

For each layer of LeNet-5, with one sample and input x gradient, these run in turn in one process:

- loop: for every mask, set the masked weight, predict, and let Captum explain. Ranks and sums are left out.
- bare: forward-backward passes of as many inputs, in batches of `--rows`, and nothing else.
- ours: the metric itself at the same batch size, with ranks, sums and counts. `queries` is without the null
  distribution and the interval (one permutation, one resample), `all` with 999 and 500.

Here repeated masks are evaluated again, so that all of them run the same number of passes. `distinct` is how many masks
the metric evaluates otherwise. Ratios are medians over rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from captum.attr import InputXGradient
from torch import Tensor, nn

import standfast
from standfast.gating import group_count, masked_weight, masked_weights, weight_layers
from standfast.metrics import ParameterSensitivityConsistency
from standfast.metrics.senc import masking


def run_bare(module: nn.Module, x: Tensor, rows: int, count: int) -> None:
    """Forward-backward passes of `count` copies of `x`."""
    batch = x.expand(rows, *x.shape[1:]).contiguous()
    for start in range(0, count, rows):
        leaf = batch[: min(rows, count - start)].detach().requires_grad_(True)
        logits = module(leaf)
        torch.autograd.grad(logits.amax(1).sum(), leaf)


def run_loop(module: nn.Module, layer: nn.Module, x: Tensor, target: int, masks: Tensor) -> None:
    """For every mask set the weights, predict, and explain with Captum."""
    explainer, x = InputXGradient(module), x.clone().requires_grad_(True)
    with masked_weights(layer):  # restores the weights at the end
        original = layer.weight.data
        for mask in masks:
            layer.weight.data = original
            layer.weight.data = masked_weight(layer, mask)
            with torch.no_grad():
                _ = module(x).softmax(1)[0, target]
            explainer.attribute(x, target=target)


def time_call(function: Callable[[], object]) -> float:
    """The time of a call in seconds."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare_layers(masks: int, rows: int, repeats: int) -> None:
    """Print a table with a row for each layer."""
    digits = standfast.data.bundled("digits")
    model = standfast.Model(
        standfast.zoo.load("lenet5-mnist"), digits.bounds, device="cpu", batch_size=rows
    )
    module, x = model.module.eval(), digits.inputs[:1]
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    target = int(model.predict(x))
    print(f"\n{masks} masks, {rows} rows at once, {torch.get_num_threads()} threads; seconds\n")
    columns = ["layer", "groups", "distinct", "loop", "bare", "queries", "all"]
    columns += ["loop/queries", "loop/all", "queries/bare", "all/bare"]
    print(f"| {' | '.join(columns)} |")
    print("| --- " * len(columns) + "|")
    repeating = masking._REPEATING
    for name, layer in weight_layers(module).items():
        quick = ParameterSensitivityConsistency(
            layers=(name,), masks=masks, permutations=1, resamples=1
        )
        whole = ParameterSensitivityConsistency(layers=(name,), masks=masks)
        distinct = int(quick(model, "input_x_gradient", x).model_evaluations) - 1
        masking._REPEATING = 0
        drawn = torch.rand(masks, group_count(layer)) < 0.8
        contenders: list[Callable[[], object]] = [
            partial(run_loop, module, layer, x, target, drawn),
            partial(run_bare, module, x, rows, masks),
            partial(quick, model, "input_x_gradient", x),
            partial(whole, model, "input_x_gradient", x),
        ]
        contenders[2]()  # the first call pays for imports and allocation
        rounds = [[time_call(contender) for contender in contenders] for _ in range(repeats)]
        masking._REPEATING = repeating
        times = [statistics.median(column) for column in zip(*rounds, strict=True)]
        pairs = ((0, 2), (0, 3), (2, 1), (3, 1))
        ratios = [statistics.median(row[a] / row[b] for row in rounds) for a, b in pairs]
        cells = [f"{value:.2f}" for value in (*times, *ratios)]
        print(f"| {name} | {group_count(layer)} | {distinct} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--masks", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    compare_layers(options.masks, options.rows, options.repeats)


if __name__ == "__main__":
    main()
