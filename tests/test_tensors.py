"""Random streams, content keys, threads, memory."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import stats

from standfast import tensors
from standfast.errors import ArgumentError


def test_mix64_is_splitmix64() -> None:
    # the reference implementation in plain integers (Steele, Lea and Flood 2014)
    def reference(x: int) -> int:
        mask = (1 << 64) - 1
        x = (x + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    values = [0, 1, 2, 12345, (1 << 62) + 7, -1, -(1 << 63)]
    mixed = tensors.mix64(torch.tensor(values)).tolist()
    assert [m & ((1 << 64) - 1) for m in mixed] == [reference(v & ((1 << 64) - 1)) for v in values]
    assert tensors.mix64(torch.tensor([0])).item() & ((1 << 64) - 1) == 0xE220A8397B1DCDAF


def test_content_keys_follow_the_content_and_the_seed() -> None:
    x = torch.rand(50, 3, 4)
    keys = tensors.content_keys(x, 1)
    assert len(set(keys.tolist())) == 50
    order = torch.randperm(50)
    assert torch.equal(tensors.content_keys(x[order], 1), keys[order])
    assert not (tensors.content_keys(x, 2) == keys).any()
    assert torch.equal(
        tensors.content_keys(torch.zeros(1, 3), 0), tensors.content_keys(-torch.zeros(1, 3), 0)
    )
    y = x.clone()
    y[0, 0, 0] = torch.nextafter(y[0, 0, 0], torch.tensor(2.0))
    assert tensors.content_keys(y, 1)[0] != keys[0]


def test_hashed_uniform_is_uniform_and_independent() -> None:
    u = tensors.hashed_uniform(torch.arange(200), 500)
    assert stats.kstest(u.flatten().numpy(), "uniform").pvalue > 1e-3
    rows = stats.norm.ppf(u.double().numpy())
    correlation = np.corrcoef(rows)[np.triu_indices(200, 1)] * np.sqrt(500)
    assert abs(correlation.std() - 1) < 0.05
    assert 0 < u.min() <= u.max() < 1


def test_hashed_uniform_never_reaches_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "mix64", lambda x: torch.full_like(x, -1))
    assert tensors.hashed_uniform(torch.tensor([0]), 1).item() < 1
    monkeypatch.setattr(tensors, "mix64", torch.zeros_like)
    assert tensors.hashed_uniform(torch.tensor([0]), 1).item() > 0


def test_streams_belong_to_rows_not_to_places() -> None:
    x = torch.rand(6, 5)
    together = tensors.Streams.for_rows(x, 7)
    first, second = together.normal((3, 5), torch.float32), together.uniform((2,), torch.float32)
    for row in range(6):
        alone = tensors.Streams.for_rows(x[row : row + 1], 7)
        assert torch.equal(alone.normal((3, 5), torch.float32)[0], first[row])
        assert torch.equal(alone.uniform((2,), torch.float32)[0], second[row])


def test_selected_streams_go_on_where_they_were() -> None:
    streams = tensors.Streams([1, 2, 3], torch.device("cpu"))
    streams.normal((4,), torch.float32)
    expected = tensors.Streams([3], torch.device("cpu"))
    expected.normal((4,), torch.float32)
    assert torch.equal(
        streams.select([2]).normal((4,), torch.float32), expected.normal((4,), torch.float32)
    )


def test_draw_seed_moves_the_generator_on() -> None:
    generator = torch.Generator().manual_seed(0)
    assert tensors.draw_seed(generator) != tensors.draw_seed(generator)
    assert tensors.draw_seed(None) == tensors.draw_seed(None)


def test_threads_are_limited_inside_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setenv("STANDFAST_THREADS", "1")
    with pytest.raises(KeyError), tensors.limited_threads():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
    monkeypatch.setenv("STANDFAST_THREADS", "none")
    with pytest.raises(
        ArgumentError, match="STANDFAST_THREADS: expected a whole number above 0, got 'none'"
    ):
        tensors.thread_budget()


def test_available_cpus_respects_a_container_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors.os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(tensors.Path, "read_text", lambda _: "250000 100000\n")
    assert tensors.available_cpus() == 3
    monkeypatch.setattr(tensors.Path, "read_text", lambda _: "max 100000\n")
    assert tensors.available_cpus() == 64


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="another C library, or an old one",
)
def test_large_blocks_come_from_memory_that_is_kept() -> None:
    """In a new process: a block of 20 MB is asked of the system by itself, and given back, or not."""
    program = """
import ctypes, torch
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd".split()] + [
        ("rest", 5 * ctypes.c_size_t)
    ]
read = ctypes.CDLL(None).mallinfo2
read.restype = Info
def count_own_bytes():
    before = read().hblkhd
    blocks.append(torch.empty(20_000_000, dtype=torch.uint8))
    return read().hblkhd - before
blocks = []
print(count_own_bytes())
from standfast.tensors import keep_freed_memory
keep_freed_memory()
print(count_own_bytes())
"""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC_"))
    }
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    plain, kept = map(int, done.stdout.split())
    assert plain >= 20_000_000
    assert kept == 0
