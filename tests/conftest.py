"""Shared models and data: small, fixed, offline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# without it the bits of matrix products depend on where in memory a row lies, on some CPUs; read when torch is imported
os.environ.setdefault("MKL_CBWR", "AUTO")

import pytest
import torch

import holdfast
from holdfast.testing import SHAPES, small_net

__all__ = ["SHAPES", "small_net"]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny networks are slower on two threads than on one, the more so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def digits() -> holdfast.data.Dataset:
    return holdfast.data.bundled("digits")


@pytest.fixture(scope="session")
def lenet() -> holdfast.Classifier:
    return holdfast.Classifier(holdfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu", batch_size=128)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for data sets, which does not exist yet."""
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "root"))
    return tmp_path / "root"
