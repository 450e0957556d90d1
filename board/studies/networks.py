"""The small networks of the board's studies of tables and series: how they are built, and how they were trained.

Also a choice of traffic signs.

    python board/studies/networks.py

writes the data and the weights beside this file again, with scikit-learn's tables and the UCR archive at hand. The
studies read what was written, so that everybody evaluates the same networks: training gives other last bits elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import standfast
from standfast.zoo.networks.series_cnn import SeriesCNN

HERE = Path(__file__).parent
TABLES = ("breast_cancer", "wine")
SERIES = ("GunPoint", "ECG200")


def build_table_network(features: int, classes: int) -> nn.Module:
    """A network of two hidden layers for rows of a table: `(N, features)` to logits `(N, classes)`."""
    return nn.Sequential(
        nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, classes)
    )


def traffic_signs(per_class: int) -> standfast.data.Dataset:
    """The first images of each class of GTSRB's test images, which are sorted by class."""
    return standfast.data.load("gtsrb:test").subset(per_class)


def train(module: nn.Module, inputs: Tensor, labels: Tensor, epochs: int) -> float:
    """Fit a network in a few seconds, and return its accuracy on the inputs."""
    optimiser = torch.optim.AdamW(module.parameters(), lr=3e-3, weight_decay=0.05)
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs)).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(inputs[rows]), labels[rows]).backward()
            optimiser.step()
    module.eval()
    return measure_accuracy(module, inputs, labels)


def measure_accuracy(module: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    """The share of inputs that the network gives their label."""
    with torch.no_grad():
        return float((module(inputs).argmax(1) == labels).double().mean())


def save(module: nn.Module, name: str) -> None:
    """Write the weights beside this file."""
    save_file(
        {key: value.contiguous() for key, value in module.state_dict().items()},
        HERE / f"{name}.safetensors",
    )


def make_table(name: str) -> None:
    """A table of scikit-learn, standardised by its training rows: the test rows as a file, and a network."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    found = getattr(datasets, f"load_{name}")()
    parts = train_test_split(
        found.data, found.target, test_size=0.3, random_state=0, stratify=found.target
    )
    fit, test = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    labels, test_labels = (torch.tensor(part) for part in parts[2:])
    mean, std = fit.mean(0), fit.std(0)
    torch.manual_seed(0)
    module = build_table_network(fit.shape[1], len(found.target_names))
    train(module, (fit - mean) / std, labels, 60)
    rows = (test - mean) / std
    print(f"{name}: test accuracy {measure_accuracy(module, rows, test_labels):.3f}")
    save(module, name)
    np.savez_compressed(
        HERE / f"{name}.npz",
        inputs=rows.numpy(),
        labels=test_labels.numpy(),
        features=np.array(found.feature_names),
    )


def make_series(name: str) -> None:
    """A network for a set of the UCR archive."""
    fit, test = standfast.data.load(f"ucr:{name}:train"), standfast.data.load(f"ucr:{name}:test")
    torch.manual_seed(0)
    module = SeriesCNN(2, 1, width=16, kernel_size=11, hidden=16, dropout=0.1)
    train(module, fit.inputs, fit.labels, 150)
    print(f"{name}: test accuracy {measure_accuracy(module, test.inputs, test.labels):.3f}")
    save(module, name)


if __name__ == "__main__":
    for table in TABLES:
        make_table(table)
    for series in SERIES:
        make_series(series)
