"""The measurements on a card, run on a CPU with tiny networks: what they count and write, not how fast anything is."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import standfast

FOLDER = Path(__file__).parents[1] / "benchmarks" / "on_a_card"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """What a script writes, which runs in this process."""

    # modules beside the scripts have names that others use, too
    for name in {path.stem for folder in (FOLDER, FOLDER.parent) for path in folder.glob("*.py")}:
        monkeypatch.setitem(sys.modules, name, None)  # put back, or taken away, at the end
        del sys.modules[name]

    def start(script: str, *options: str) -> dict[str, Any]:
        out = str(tmp_path / "out.json")
        monkeypatch.setattr(
            sys, "argv", [script, "--device", "cpu", "--tiny", "--out", out, *options]
        )
        monkeypatch.syspath_prepend(str(FOLDER))
        runpy.run_path(str(FOLDER / script), run_name="__main__")
        found: dict[str, Any] = json.loads(Path(out).read_text())
        return found

    return start


def test_shares_count_the_passes_of_each_work(run: Callable[..., dict[str, Any]]) -> None:
    works = ("random", "gradient", "probability", "aopc", "attribution_attack", "c_eval", "lime")
    little = ("--row-seconds", "0.004", "--profiles", "2")
    found = run(
        "fast.py", "--networks", "vit_b16", "--samples", "8", "1", *little, "--only", *works
    )
    rows = {(row["precision"], row["work"], row["samples"]): row for row in found["rows"]}
    full = {("float32", work, count) for work in works[:-1] for count in (1, 8)} | {
        ("float32", "lime", 1)
    }
    assert rows.keys() == full | {("bfloat16", work, 8) for work in works[:3]}
    for (_, work, samples), row in rows.items():
        assert row["share"] == pytest.approx(row["bare_seconds"] / row["seconds"])
        assert row["reached"] == (None if row["goal"] is None else row["share"] >= row["goal"])
        if work != "lime":
            assert row["note"] == ""  # the expected evaluations, and no sample skipped
            assert sum(row["passes"].values()) == row["evaluations"]
            assert row["evaluations"] % samples == 0
    # of 20 evaluations: both restarts ask for a direction once, and the better one five times more
    passes = rows["float32", "gradient", 8]["passes"]
    assert passes["second"] == rows["bfloat16", "gradient", 8]["passes"]["second"] == 8 * 7
    assert passes["forward"] == 8 * 1
    assert rows["float32", "random", 8]["passes"]["second"] == 0
    # 3 steps of 3 restarts
    assert rows["float32", "attribution_attack", 8]["passes"]["second"] == 8 * 9
    assert (
        rows["float32", "aopc", 8]["passes"]["forward"] == rows["float32", "aopc", 8]["evaluations"]
    )
    assert {row["work"] for row in found["rows"] if "estimated_memory" in row} == {
        "random",
        "gradient",
        "attribution_attack",
    }
    assert len(found["profiles"]) == 2
    assert len({entry["work"] for entry in found["profiles"]}) == 2


def test_what_is_left_when_the_time_is_over_is_listed(run: Callable[..., dict[str, Any]]) -> None:
    found = run("fast.py", "--seconds", "0", "--networks", "lenet5", "--only", "random")
    assert [entry["samples"] for entry in found["not run"]] == [1, 8, 64, 8]
    assert "rows" not in found


@pytest.mark.slow
def test_every_metric_runs_and_the_study_has_a_price(run: Callable[..., dict[str, Any]]) -> None:
    found = run("full.py", "--networks", "vit_b16")
    rows = {row["metric"]: row for row in found["metrics"]}
    assert sorted(rows) == standfast.metrics.names()
    assert not [row for row in rows.values() if "error" in row]
    assert all(row["evaluations"] >= 8 for row in rows.values())
    hours = {(entry.pop("metric"), entry.pop("preset")): entry for entry in found["hours"]}
    assert len(hours) == 5 * 2
    maps, works = found["seconds of a map"], found["seconds of an evaluation"]
    # 1,000 images, 61 evaluations, each with a map
    assert hours["data_sensitivity_consistency", "quick"]["saliency"] == pytest.approx(
        1000 * 61 * works["data_senc"] / 3600
    )
    # one map of each image; the other evaluations are predictions
    curve = standfast.metrics.get("corruption_curve", preset="quick").cost().evaluations
    assert hours["corruption_curve", "quick"]["lime:samples=200"] == pytest.approx(
        1000 * (maps["lime:samples=200"] + (curve - 1) * works["corruption_curve"]) / 3600
    )
