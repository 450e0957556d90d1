"""Natural changes of tables: how fast they are made, and which explanations hold under them, beside a norm ball.

    python benchmarks/natural_changes/table_changes.py

Two tables of scikit-learn, standardised, each with a network of two hidden layers. The ball has a radius of 0.1
standard deviations in every feature. The natural changes: 2% of each value, and moves of size 0.25 in a Gaussian copula
of the training rows. In the breast cancer set the "worst" of each quantity stays at least its mean. For each explainer:
the median worst similarity (Spearman) that a search finds; its place among the explainers; and the median plausibility
of the rows that it found.
"""

from __future__ import annotations

import time
from functools import partial

import polars as pl
import torch
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import standfast
from standfast.neighbourhoods import LinfBall, Neighbourhood, TableChanges, measure_plausibility

SAMPLES, BUDGET = 20, 300


def prepare(name: str) -> tuple[Tensor, Tensor, nn.Module, dict[str, Neighbourhood]]:
    """Training and test rows, the network, and the neighbourhoods."""
    found = {"breast cancer": load_breast_cancer, "wine": load_wine}[name]()
    parts = train_test_split(
        found.data, found.target, test_size=0.3, random_state=0, stratify=found.target
    )
    train, test = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    mean, std = train.mean(0), train.std(0)
    train, test, labels = (train - mean) / std, (test - mean) / std, torch.tensor(parts[2])
    torch.manual_seed(0)
    width, classes = train.shape[1], len(found.target_names)
    network = nn.Sequential(
        nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, classes)
    )
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=0.05)
    for _ in range(60):
        for rows in torch.randperm(len(train)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(train[rows]), labels[rows]).backward()
            optimiser.step()
    names = tuple(map(str, found.feature_names))
    rules = tuple(
        f"`{n}` <= `{n.replace('mean', 'worst')}`" for n in names if n.startswith("mean ")
    )
    common = {"columns": names, "rules": rules, "units": (mean, std), "data": train}
    return (
        train,
        test,
        network.eval(),
        {
            "ball of 0.1": LinfBall(0.1),
            "2%": TableChanges("2%", **common),
            "copula": TableChanges("any", prior="copula", size=0.25, **common),
        },
    )


def measure_rates(name: str) -> None:
    """Rows that are made in a second, and the network's rate in the same batches, in CPU time."""
    train, test, network, kinds = prepare(name)
    bounds = torch.cat([train, test]).aminmax(dim=0)
    for count in (64, 4096):
        problem = torch.arange(16).repeat_interleave(count // 16)
        for label, kind in kinds.items():
            region = kind.around(test[:16], tuple(bounds))
            points = region.sample(count // 16, region.streams(0)).flatten(0, 1)
            rates = []
            for work in (
                partial(region.perturb, points, problem),
                partial(network, test[:16][problem]),
            ):
                work()
                start, repeats = time.process_time(), 0
                while time.process_time() - start < 0.3:
                    with torch.no_grad():
                        work()
                    repeats += 1
                rates.append(count * repeats / (time.process_time() - start))
            print(
                f"{name:14} batch {count:5} {label:12} {rates[0]:12,.0f} rows/s, network {rates[1]:12,.0f} rows/s"
            )


def compare(name: str) -> pl.DataFrame:
    """The worst similarity of each explainer under each change."""
    train, test, network, kinds = prepare(name)
    bounds = torch.cat([train, test]).aminmax(dim=0)
    model = standfast.Model(network, tuple(bounds), device="cpu")
    explainers = {
        "gradient": "saliency:absolute=False",
        "input x gradient": "input_x_gradient",
        "integrated gradients": "integrated_gradients:steps=16",
        "KernelSHAP": "kernel_shap:samples=200,segments=pixels",
        "LIME": "lime:samples=200,segments=pixels,output=logit",
    }
    rows = []
    for change, kind in kinds.items():
        metric = standfast.metrics.WorstCase(
            kind,
            event="changed_explanation",
            similarity="spearman",
            search="genetic",
            budget=BUDGET,
        )
        for label, explainer in explainers.items():
            found = metric(model, standfast.explainers.get(explainer), test[:SAMPLES])
            kept = found.frame().filter(pl.col("status") == "ok")["value"]
            usable = torch.tensor([status == "ok" for status in found.status])
            figure = float(measure_plausibility(found.inputs[usable], train).median())
            rows.append(
                {
                    "change": change,
                    "explainer": label,
                    "worst": kept.median(),
                    "plausibility": figure,
                }
            )
    frame = pl.DataFrame(rows)
    return frame.with_columns(
        pl.col("worst").rank("min", descending=True).over("change").alias("place")
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    pl.Config.set_tbl_rows(50)
    for table in ("breast cancer", "wine"):
        measure_rates(table)
        print(f"{table}\n{compare(table)}")
