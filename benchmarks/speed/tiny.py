"""Rates of metrics on a tiny tabular network, as shares of bare loops: what the fixed cost of a call is.

    OMP_NUM_THREADS=1 python benchmarks/speed/tiny.py [--samples 1 50 1000] [--only aopc worst_case:block]

A rate is evaluations per second of processor time of one thread. It is divided by that of a bare loop of
forward-backward passes in its best batch, and in batches of 128 rows.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch import Tensor, nn

import standfast

COLUMNS = 13
BATCHES = (128, 1024, 8192)
BALL = {"neighbourhood": standfast.LinfBall(0.1)}
METRICS: dict[str, dict[str, Any]] = {
    "aopc": {},
    "corruption_curve": {},
    "max_sensitivity": BALL,
    **{
        f"worst_case:{search}": {**BALL, "search": search, "budget": 1000}
        for search in ("random", "block", "auto")
    },
    "misinterpretation_probability": BALL,
    "data_sensitivity_consistency": {},
    "parameter_sensitivity_consistency": {},
}


def draw(count: int) -> Tensor:
    """`count` random rows, always the same."""
    return torch.rand(count, COLUMNS, generator=torch.Generator().manual_seed(1))


def measure_bare(network: nn.Module, rows: int) -> float:
    """Rows per second forward and backward: the best of five measurements of a tenth of a second."""
    x, best = draw(rows), 0.0
    for _ in range(5):
        start, done = time.process_time(), 0
        while (seconds := time.process_time() - start) < 0.1:
            network(x.clone().requires_grad_())[:, 0].sum().backward()
            done += rows
        best = max(best, done / seconds)
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--only", nargs="+", default=list(METRICS), choices=list(METRICS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Linear(COLUMNS, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
        )
    model = standfast.Model(network.eval(), bounds=(0.0, 1.0), device="cpu")
    bare = {rows: measure_bare(network, rows) for rows in BATCHES}
    print(
        "bare loop, rows/s: "
        + ", ".join(f"{rate:,.0f} with {rows} rows" for rows, rate in bare.items())
    )
    print("| metric | samples | seconds | evaluations/s | share of the best batch | of 128 rows |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in options.only:
        metric = standfast.metrics.get(name.partition(":")[0], **METRICS[name])
        metric(model, "input_x_gradient", draw(1))
        for count in options.samples:
            start = time.process_time()
            result = metric(model, "input_x_gradient", draw(count))
            seconds = time.process_time() - start
            rate = int(result.model_evaluations.sum()) / seconds
            shares = f"{rate / max(bare.values()):.3f} | {rate / bare[128]:.2f}"
            print(f"| {name} | {count} | {seconds:.3f} | {rate:,.0f} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
