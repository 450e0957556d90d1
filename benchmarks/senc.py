"""The speed of data SenC, relative to a plain loop of forward-backward passes of the bare model.

    python benchmarks/senc.py [--samples 8] [--masks 5000] [--rows 128] [--repeats 5]

Printed is the number of evaluations (predictions with explanation) per second of `DataSensitivityConsistency` with
input x gradient on the bundled model, over the rate of the bare loop at the same batch size. SenC includes superpixels,
masks, ranks, the null distribution and the interval. Both run in turn in one process.
"""

from __future__ import annotations

import argparse
import time

import torch
from bare_model import compare_rates, describe_ratios, load_lenet, make_bare_loop, wait_for

from standfast.metrics import DataSensitivityConsistency


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--masks", type=int, default=5000)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    model, x = load_lenet(options.samples, options.rows, options.device)
    metric = DataSensitivityConsistency(masks=options.masks)

    def measure_rate() -> float:
        start = time.perf_counter()
        result = metric(model, "input_x_gradient", x)
        wait_for(model.device)
        return int(result.model_evaluations.sum()) / (time.perf_counter() - start)

    DataSensitivityConsistency(masks=10)(model, "input_x_gradient", x)  # the first call pays for imports
    ratios = compare_rates(measure_rate, make_bare_loop(model, x, options.rows), options.repeats)
    print(
        f"data SenC, {options.samples} samples, {options.masks} masks, {options.rows} rows, {model.device},"
        f" {torch.get_num_threads()} threads: {describe_ratios(ratios)} of the bare rate"
    )


if __name__ == "__main__":
    main()
