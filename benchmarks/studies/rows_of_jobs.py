"""How many rows a model runs for a job of one sample and for one of eight, of metrics that take turns.

    python benchmarks/studies/rows_of_jobs.py

The steps of a search wait for each other. A model runs at least sixteen rows with gradients, so that results have the
same bits in every batch; a sample alone fills few of them.
"""

from __future__ import annotations

import torch

import standfast
from standfast.metrics import WorstCase
from standfast.neighbourhoods import LinfBall

BUDGETS = (20, 200)
SAMPLES = (1, 3, 8)


def main() -> None:
    """Print a table of explainers, budgets and numbers of samples."""
    torch.set_num_threads(1)
    digits = standfast.data.bundled("digits").inputs
    network = standfast.zoo.load("lenet5-mnist")
    rows: list[int] = []
    network.register_forward_pre_hook(lambda module, given: rows.append(len(given[0])))
    model = standfast.Model(network, bounds=(0.0, 1.0), device="cpu")
    print("| explainer | evaluations | samples of the job | rows |\n| --- | ---: | ---: | ---: |")
    for name in ("saliency", "gradcam", "integrated_gradients"):
        for budget in BUDGETS:
            metric = WorstCase(LinfBall(8 / 255), budget=budget)
            for count in SAMPLES:
                rows.clear()
                metric(model, name, digits[:count])
                print(f"| {name} | {budget} | {count} | {sum(rows):,} |", flush=True)


if __name__ == "__main__":
    main()
