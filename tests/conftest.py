"""Shared models and data: small, fixed, offline."""

from __future__ import annotations

import os
from collections.abc import Iterator

# without it the bits of matrix products depend on where in memory a row lies, on some CPUs; read when torch is imported
os.environ.setdefault("MKL_CBWR", "AUTO")

import pytest
import torch
from torch import nn

import holdfast as hf


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny networks are slower on two threads than on one, the more so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def digits() -> hf.data.Dataset:
    return hf.data.bundled("digits")


@pytest.fixture(scope="session")
def lenet() -> hf.Classifier:
    return hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu", batch_size=128)


def small_net(shape: tuple[int, ...], classes: int = 4, seed: int = 0) -> nn.Module:
    """A network for images (C, H, W), series (C, T) or flat features (F,), every ReLU a module of its own."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if len(shape) == 3:
            body = [nn.Conv2d(shape[0], 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        elif len(shape) == 2:
            body = [nn.Conv1d(shape[0], 6, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()]
        else:
            body = [nn.Linear(shape[0], 24), nn.ReLU()]
        features = nn.Sequential(*body)(torch.zeros(1, *shape)).shape[1]
        return nn.Sequential(*body, nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, classes))


SHAPES = {"image": (1, 8, 8), "series": (2, 16), "flat": (12,)}
