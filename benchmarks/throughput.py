"""How near to the bare model's speed? Subset simulation against a plain loop of forward-backward passes.

    python benchmarks/throughput.py [--seeds 1] [--rows 128] [--repeats 5]

Both run in turn, several times, at the same batch size, with input x gradient on the bundled model. Printed is the
rate of subset simulation (predictions with explanation, similarity, proposals and all) over that of the bare loop.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import holdfast as hf
from holdfast.metrics import MisinterpretationProbability


def bare(module: torch.nn.Module, x: torch.Tensor, rows: int, passes: int) -> float:
    """Rows per second of forward-backward passes to the input, weights frozen, over batches of `x`."""
    start = time.perf_counter()
    for _ in range(passes):
        for batch in x.split(rows):
            leaf = batch.detach().requires_grad_(True)
            logits = module(leaf)
            torch.autograd.grad(logits.amax(1).sum(), leaf)
    return passes * len(x) / (time.perf_counter() - start)


def subset(classifier: hf.Classifier, x: torch.Tensor) -> float:
    """Evaluations per second of subset simulation."""
    metric = MisinterpretationProbability(hf.LinfBall(0.3), threshold=0.5, floor=-8.0)
    start = time.perf_counter()
    result = metric(classifier, "input_x_gradient", x)
    return int(result.model_evaluations.sum()) / (time.perf_counter() - start)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    digits = hf.data.bundled("digits")[: options.seeds]
    classifier = hf.Classifier(
        hf.zoo.load("lenet5-mnist"), digits.bounds, batch_size=options.rows, device=options.device
    )
    module = classifier.module.eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    batches = digits.inputs[:1].repeat(8 * options.rows, 1, 1, 1).to(classifier.device)
    passes = max(1, 20_000 // len(batches))
    bare(module, batches, options.rows, 1)
    ratios = []
    for _ in range(options.repeats):
        before = bare(module, batches, options.rows, passes)
        ours = subset(classifier, digits.inputs)
        after = bare(module, batches, options.rows, passes)
        ratios.append(ours / ((before + after) / 2))
    print(
        f"{options.seeds} seeds, {options.rows} rows, {classifier.device}, {torch.get_num_threads()} threads:"
        f" subset simulation runs at {statistics.median(ratios):.0%} of the bare rate"
        f" (from {min(ratios):.0%} to {max(ratios):.0%})"
    )


if __name__ == "__main__":
    main()
