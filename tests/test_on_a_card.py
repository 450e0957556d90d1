"""benchmarks/on_a_card: what `right.py` says of a device that rounds, errs, varies or refuses; and the script.

There is no card here, so cases pretend: they give other numbers where `golden.DEVICE` is not the CPU.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pool_tasks import act
from torch import Tensor

import golden
import standfast
from standfast.tensors import Streams

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "on_a_card"))
import right  # noqa: E402
from agreement import find_broken_claims, measure_difference  # noqa: E402
from pool import Record, run_tasks  # noqa: E402


def test_differences_are_shares_of_the_largest_value() -> None:
    old = {"a": np.array([1.0, -4.0, math.nan]), "b": np.zeros(2)}
    assert measure_difference(old, old) == (0.0, "")
    assert measure_difference({**old, "a": np.array([1.0, -3.0, math.nan])}, old) == (0.25, "a")
    assert measure_difference({**old, "b": np.array([0.0, 0.5])}, old) == (0.5, "b")
    for other in (np.array([1.0, -4.0, 0.0]), np.array([1.0, math.inf, math.nan]), np.zeros(2)):
        assert measure_difference({**old, "a": other}, old) == (math.inf, "a")
    assert measure_difference({"a": old["a"]}, old)[0] == math.inf


def test_claims_that_random_numbers_do_not_excuse() -> None:
    old = {
        "status": np.zeros(2),
        "value": np.array([0.5, math.nan]),
        "low": np.zeros(2),
        "high": np.ones(2),
    }
    assert find_broken_claims({**old, "value": np.array([0.9, 0.1])}, old) == []
    for change in (
        {"status": np.ones(2)},
        {"value": np.full(2, math.nan)},
        {"value": np.array([1.5, 0.0])},
        {"value": np.zeros(3)},
    ):
        assert len(find_broken_claims({**old, **change}, old)) == 1


def pretend(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[int], Tensor], searches: bool = False
) -> Record:
    """What is said of a metric that gives these values."""
    case = golden.Case(lambda size: {"value": run(size)}, searches)
    monkeypatch.setattr(right, "list_cases", lambda: {"metrics: made up": ("metrics", case)})
    monkeypatch.setattr(golden, "DEVICE", "cpu")
    return right.compare_case("metrics: made up", right.Options("elsewhere"))


def elsewhere() -> bool:
    return golden.DEVICE == "elsewhere"


def test_rounding_is_no_problem_and_more_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    little = pretend(monkeypatch, lambda _: torch.tensor([2.0, 1.0 + 1e-4 * elsewhere()]))
    assert little["problems"] == []
    assert little["kind"] == "rounds"
    assert little["difference"] == pytest.approx(5e-5, rel=1e-2)
    much = pretend(monkeypatch, lambda _: torch.tensor([2.0, 1.0 + 1e-2 * elsewhere()]))
    assert [text.split()[0] for text in much["problems"]] == ["value"]
    assert (
        pretend(monkeypatch, lambda _: torch.tensor([2.0, 1.0 + elsewhere()]), searches=True)[
            "problems"
        ]
        == []
    )


def test_other_batch_sizes_and_other_bits_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = pretend(
        monkeypatch, lambda size: torch.tensor([1.0 + 0.1 * (size == golden.BATCH_SIZES[1])])
    )
    assert sizes["batch"] == pytest.approx(0.1)
    assert len(sizes["problems"]) == 1
    calls: list[int] = []

    def vary(size: int) -> Tensor:
        calls.append(size)
        return torch.tensor([1.0 + 1e-6 * len(calls)])

    varied = pretend(monkeypatch, vary)
    assert 0 < varied["repeat"] < 1e-5
    assert varied["problems"] == []


def test_what_is_refused_on_the_device_alone_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> Tensor:
        raise standfast.ArgumentError("device", "another", "this")

    assert pretend(monkeypatch, refuse)["problems"] == []
    alone = pretend(monkeypatch, lambda size: refuse(size) if elsewhere() else torch.ones(1))
    assert len(alone["problems"]) == 1


def test_a_device_with_a_generator_of_its_own_is_compared_with_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The streams of the pretended device differ, except where they draw on the CPU."""
    normal = Streams.normal

    def draw(self: Streams, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return normal(self, shape, dtype) + (elsewhere() and Streams.normal is draw)

    monkeypatch.setattr(Streams, "normal", draw)
    record = pretend(
        monkeypatch, lambda _: Streams([1, 2], torch.device("cpu")).normal((), torch.float64)
    )
    assert record["problems"] == []
    assert record["kind"] == "draws"
    assert record["difference"] == 0.0
    assert record["own_numbers"] > 0.1


def test_numbers_drawn_on_the_cpu_are_those_of_the_cpu() -> None:
    def draw() -> list[Tensor]:
        streams = Streams([5, 6], torch.device("cpu"))
        drawn = [
            streams.normal((3,), torch.float32),
            streams.select([1]).uniform((2,), torch.float64),
        ]
        return [*drawn, *streams.refill([2, 9], 4)]

    plain, methods = draw(), dict(vars(Streams))
    with right.draw_on_the_cpu() as drawn:
        same = draw()
    assert all(torch.equal(a, b) for a, b in zip(plain, same, strict=True))
    assert drawn == {"normal": 1, "uniform": 1, "refill": 1}
    assert dict(vars(Streams)) == methods


def test_a_process_that_dies_is_replaced() -> None:
    names = ["last", "first after", "die", "second after"]
    found = {
        name: record for (_, name), record in run_tasks(act, [("", name) for name in names], 1, 300)
    }
    assert list(found) == names
    problems = {name: record["problems"] for name, record in found.items() if record is not None}
    assert problems == {name: ["the process died"] if name == "die" else [] for name in names}
    processes = {
        record["process"] for record in found.values() if record is not None and "process" in record
    }
    assert len(processes) == 3


def test_when_the_time_is_over_the_rest_is_not_run() -> None:
    start = time.monotonic()
    found = list(run_tasks(act, [("", "sleep"), ("", "never")], 1, 0.3))
    assert found == [(("", "sleep"), None), (("", "never"), None)]
    assert time.monotonic() - start < 60


def run_script(python: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(ROOT / "scripts" / "on_a_card.sh"), *arguments]
    environment = {**os.environ, "PYTHON": python, **variables}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=900
    )


def test_a_part_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "called $*"\n[ "$1" != benchmarks/on_a_card/$FAILS.py ]\n')
    python.chmod(0o755)
    arguments = ["--device", "cpu", "--tiny", "--out", str(tmp_path / "out"), "right", "full"]
    for fails, status in (("right", 1), ("full", 1), ("fast", 0)):
        assert run_script(str(python), *arguments, FAILS=fails).returncode == status
        for part in ("right", "full"):
            log = (tmp_path / "out" / f"{part}.log").read_text()
            assert f"{part}.py --device cpu --out {tmp_path}/out/{part}.json --tiny" in log
    assert run_script(str(python), "--unknown", FAILS="").returncode == 2


@pytest.mark.slow
def test_the_part_right_runs_on_the_cpu(tmp_path: Path) -> None:
    done = run_script(sys.executable, "--device", "cpu", "--tiny", "--out", str(tmp_path), "right")
    assert done.returncode == 0, done.stdout + done.stderr
    records = json.loads((tmp_path / "right.json").read_text())["records"]
    assert {"cases", "contract", "memory", "mixed", "networks", "workers"} <= records.keys()
    for record in records["cases"].values():
        assert record is None or record["seconds"] > 0
        assert record is None or (record.get("difference", 0.0), record.get("repeat", 0.0)) == (
            0.0,
            0.0,
        )
    rows, *smaller = records["memory"]["lenet5-mnist"]["batch_sizes"]
    assert (rows, smaller) == (16, [24, "auto"]) or smaller[0] <= 40
