"""Shared models and data: small, fixed, offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import standfast
from standfast.testing import SHAPES, small_net

__all__ = ["SHAPES", "small_net"]


#: the files that take longest, the longest first; `make test` runs each file as a whole on one of its workers
LONGEST = (
    "tests/study/test_studies.py",
    "tests/study/test_executors.py",
    "tests/algorithms/rare_events/test_rare_events.py",
    "tests/golden/test_golden.py",
    "tests/metrics/test_contract.py",
    "tests/report/test_report.py",
    "tests/explainers/test_explainers.py",
    "tests/zoo/test_zoo_small.py",
    "tests/docs/test_docs_code.py",
    "tests/test_plugins.py",
    "tests/algorithms/rare_events/test_traps.py",
    "tests/algorithms/distortion/test_minimal_distortion.py",
    "tests/metrics/safari/test_metrics.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that no worker is left alone with one of them at the end."""
    places = {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


@pytest.fixture(autouse=True, scope="session")
def keep_nothing() -> Iterator[None]:
    """Every evaluation is done anew, also after an equal one, and the user's cache folder stays as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STANDFAST_CACHE", "off")
        yield


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny networks are slower on two threads than on one, the more so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def digits() -> standfast.data.Dataset:
    return standfast.data.bundled("digits")


@pytest.fixture(scope="session")
def lenet() -> standfast.Model:
    return standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu", batch_size=128)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for data sets, which does not exist yet."""
    monkeypatch.setenv("STANDFAST_DATA", str(tmp_path / "root"))
    return tmp_path / "root"
