"""Shared models and data: small, fixed, offline."""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
import torch
from quick_processes import start_workers_quickly
from report_builder import Builder

import standfast
from standfast.study import provenance
from standfast.study.own_code import modules
from standfast.testing import SHAPES, small_net

__all__ = ["SHAPES", "small_net"]


def read_imports_of_no_test(
    file: str,
    digest: str,
    module: str,
    read: Callable[..., tuple[str, ...]] = modules._read_imports,
) -> tuple[str, ...]:
    """What a module of the user's imports; nothing of a module of tests."""
    if Path(file).name.startswith("test_"):
        return ()
    return read(file, digest, module)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing is searched for garbage meanwhile: modules, their trees and tests are many objects, and most stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def keep_nothing() -> Iterator[None]:
    """Every evaluation is done anew, also after an equal one, and the user's cache folder stays as it is.

    Tests, and processes that they start, have one thread, as `one_thread` says. These processes keep what they compile:
    there are hundreds of them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STANDFAST_CACHE", "off")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("STANDFAST_THREADS", "1")
        patch.setenv("POLARS_MAX_THREADS", "1")
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        # A test may edit a module twice within a second; Python would take cached bytecode for it if the size is equal.
        patch.setattr(sys, "dont_write_bytecode", True)
        # No result of a test is needed after a failure of power, and to wait for the disk takes milliseconds a file.
        patch.setattr(os, "fsync", lambda handle: None)
        # A run in memory would wait for other writers, of which no test has one without a time of its own.
        patch.setattr("standfast.study.folders.SECONDS_TO_SETTLE", 0.02)
        # Nor is anything checked out between two tests, and git compares all files of this checkout for each run.
        patch.setattr(provenance, "git_revision", functools.cache(provenance.git_revision))
        # Hundreds of modules of tests are imported, and what they would import later is looked for on each plan.
        patch.setattr(modules, "_read_imports", read_imports_of_no_test)
        yield


@pytest.fixture(autouse=True, scope="session")
def leave_out_of_garbage_collection() -> Iterator[None]:
    """What was there before the first test is not searched for garbage: all modules and tests are many objects."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


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
    return standfast.Model(
        standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu", batch_size=128
    )


@pytest.fixture
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of studies start at once, as `quick_processes` says."""
    start_workers_quickly(monkeypatch)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for data sets, which does not exist yet."""
    monkeypatch.setenv("STANDFAST_DATA", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    """A stored study that is made by hand, job by job."""
    return Builder(tmp_path / "results")
