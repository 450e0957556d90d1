"""How near to the bare model's speed is SenC? A ratio of rates, both measured in one run, in turn.

    python benchmarks/senc.py [--part data] [--samples 8] [--masks 5000] [--rows 128] [--repeats 5]

`data`: evaluations (predictions with explanation) per second of `DataSensitivityConsistency` with input x gradient on
the bundled model, with superpixels, masks, ranks, null, interval and all, over the rate of a bare loop of
forward-backward passes at the same batch size.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import holdfast as hf
from holdfast.metrics import DataSensitivityConsistency


def bare(module: torch.nn.Module, x: torch.Tensor, rows: int, passes: int) -> float:
    """Rows per second of forward-backward passes to the input, weights frozen, over batches of `x`."""
    start = time.perf_counter()
    for _ in range(passes):
        for batch in x.split(rows):
            leaf = batch.detach().requires_grad_(True)
            logits = module(leaf)
            torch.autograd.grad(logits.amax(1).sum(), leaf)
    _wait(x)
    return passes * len(x) / (time.perf_counter() - start)


def data(options: argparse.Namespace) -> str:
    """Data SenC against the bare loop."""
    digits = hf.data.bundled("digits")[: options.samples]
    classifier = hf.Classifier(
        hf.zoo.load("lenet5-mnist"), digits.bounds, batch_size=options.rows, device=options.device
    )
    module = classifier.module.eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    batches = digits.inputs[:1].repeat(8 * options.rows, 1, 1, 1).to(classifier.device)
    metric = DataSensitivityConsistency(masks=options.masks)

    def ours() -> float:
        start = time.perf_counter()
        result = metric(classifier, "input_x_gradient", digits.inputs)
        _wait(batches)
        return int(result.model_evaluations.sum()) / (time.perf_counter() - start)

    DataSensitivityConsistency(masks=10)(classifier, "input_x_gradient", digits.inputs)  # imports scikit-image
    passes = max(1, 20_000 // len(batches))
    ratio = compare(ours, lambda: bare(module, batches, options.rows, passes), options.repeats)
    return (
        f"data SenC, {options.samples} samples, {options.masks} masks, {options.rows} rows, {classifier.device},"
        f" {torch.get_num_threads()} threads: {ratio} of the bare rate"
    )


def compare(ours: Callable[[], float], plain: Callable[[], float], repeats: int) -> str:
    """The median ratio of two rates measured in turn, with the smallest and the largest."""
    plain()
    ratios = []
    for _ in range(repeats):
        before = plain()
        rate = ours()
        ratios.append(rate / ((before + plain()) / 2))
    return f"{statistics.median(ratios):.0%} (from {min(ratios):.0%} to {max(ratios):.0%})"


def _wait(x: torch.Tensor) -> None:
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)


PARTS = {"data": data}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--masks", type=int, default=5000)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    for part in PARTS if options.part == "all" else [options.part]:
        print(PARTS[part](options), flush=True)


if __name__ == "__main__":
    main()
