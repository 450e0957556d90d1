"""The speed of subset simulation, relative to a plain loop of forward-backward passes of the bare model.

    python benchmarks/throughput.py [--seeds 1] [--rows 128] [--repeats 5]

Both run in turn, several times, at the same batch size, with input x gradient on the bundled model. Printed is the rate
of subset simulation over that of the bare loop. Subset simulation includes predictions with explanation, similarities
and proposals.
"""

from __future__ import annotations

import argparse
import time

import torch
from bare_model import compare_rates, describe_ratios, load_lenet, make_bare_loop

import holdfast as hf
from holdfast.metrics import MisinterpretationProbability


def measure_subset_rate(classifier: hf.Classifier, x: torch.Tensor) -> float:
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
    classifier, x = load_lenet(options.seeds, options.rows, options.device)
    bare = make_bare_loop(classifier, x, options.rows)
    ratios = compare_rates(lambda: measure_subset_rate(classifier, x), bare, options.repeats)
    print(
        f"{options.seeds} seeds, {options.rows} rows, {classifier.device}, {torch.get_num_threads()} threads:"
        f" subset simulation runs at {describe_ratios(ratios)} of the bare rate"
    )


if __name__ == "__main__":
    main()
