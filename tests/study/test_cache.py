"""Results without a folder of the user's own: kept for the same call, private, and deleted when old or too large."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import standfast
from conftest import SHAPES, small_net
from standfast.cli import app
from standfast.report import Results
from standfast.study import cache, plan
from standfast.study.lease import hold_lease

POSIX = pytest.mark.skipif(os.name != "posix", reason="folders have owners on POSIX")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STANDFAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "results"


def evaluate(count: int = 6, seed: int = 0, per_job: int | None = 4) -> Results:
    model = standfast.Model(small_net(SHAPES["flat"]), (0.0, 1.0), device="cpu", batch_size=64)
    inputs = torch.rand(count, *SHAPES["flat"], generator=torch.Generator().manual_seed(3))
    options: dict[str, Any] = {
        "controls": False,
        "sanity": False,
        "progress": False,
        "samples_per_job": per_job,
    }
    return standfast.evaluate(model, "saliency", inputs, "aopc:preset=quick", seed=seed, **options)


def jobs(found: Results) -> tuple[int, int]:
    return found.run.earlier, found.run.done


def place(found: Results) -> Path:
    return Path(found.store.folder.address)


def test_the_same_call_finds_its_jobs_and_another_does_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evaluate()
    assert jobs(first) == (0, 2)
    assert place(first).parent == root
    second = evaluate()
    assert jobs(second) == (2, 0)
    assert second.samples.equals(first.samples)
    for other in (evaluate(seed=1), evaluate(count=5)):
        assert jobs(other)[0] == 0
        assert place(other) != place(first)
    monkeypatch.setattr(cache, "_version", lambda: ["0.2.0", 1])  # other code of the package
    assert jobs(evaluate()) == (0, 2)


def test_jobs_that_nobody_asked_to_keep_wait_for_no_disk_and_a_damaged_one_is_done_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(handle) or sync(handle))
    evaluate(per_job=6)
    one_job = len(synced)
    first = evaluate(count=12, per_job=2)  # six jobs
    assert len(synced) == 2 * one_job
    next((place(first) / "jobs").iterdir()).write_bytes(b"")
    with pytest.warns(UserWarning, match="a stored job is damaged and is done again"):
        assert jobs(evaluate(count=12, per_job=2)) == (5, 1)


def test_the_same_call_finds_its_jobs_when_the_model_is_measured_to_be_slower(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evaluate(per_job=None)
    assert jobs(first) == (0, 1)
    monkeypatch.setattr(plan, "_choose_pace", lambda *args: 1e3)
    assert jobs(evaluate(per_job=None)) == (1, 0)
    slow = evaluate(per_job=None, count=5)
    assert jobs(slow) == (0, 5)


def test_a_killed_evaluation_continues(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from standfast.study.executors import processes

    stored: list[object] = []

    def store_one(*arguments: object) -> object:
        if stored:
            raise KeyboardInterrupt
        stored.append(arguments)
        return before(*arguments)  # type: ignore[arg-type]

    before = processes.store_result
    monkeypatch.setattr(processes, "store_result", store_one)
    with pytest.raises(KeyboardInterrupt):
        evaluate()
    monkeypatch.setattr(processes, "store_result", before)
    assert jobs(evaluate()) == (1, 1)


def test_the_same_call_at_the_same_time_has_a_folder_of_its_own(root: Path) -> None:
    first = evaluate()
    with hold_lease(first.store.folder):  # as if it ran
        second = evaluate()
    assert jobs(second) == (0, 2)
    assert place(second).parent != root
    assert second.samples.equals(first.samples)


@POSIX
def test_only_the_user_can_read_them(root: Path) -> None:
    root.mkdir(parents=True, mode=0o755)
    found = evaluate()
    assert root.stat().st_mode & 0o777 == 0o700
    assert place(found).stat().st_mode & 0o777 == 0o700


@POSIX
@pytest.mark.parametrize("trap", ["writable", "link", "owner", "file"])
def test_a_folder_in_which_others_can_write_is_not_read(
    root: Path, trap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies there is not taken for a result, and nothing is written there."""
    earlier = place(evaluate())
    if trap == "writable":
        root.chmod(0o777)
    elif trap == "link":
        root.rename(tmp_path / "elsewhere")
        root.symlink_to(tmp_path / "elsewhere")
    elif trap == "owner":
        monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    else:
        root.rename(tmp_path / "elsewhere")
        root.write_text("")
    with pytest.warns(UserWarning, match="these results are lost"):
        found = evaluate()
    assert jobs(found) == (0, 2)
    assert place(found).parent not in (root, earlier.parent)


def test_nothing_is_kept_where_the_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDFAST_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    found = evaluate()
    folder = place(found)
    assert folder.is_dir()
    del found
    gc.collect()
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []
    assert jobs(evaluate()) == (0, 2)


def set_age(folder: Path, days: float) -> None:
    os.utime(folder / "manifest.json", (0, time.time() - days * 86400))


def test_old_results_are_deleted_and_used_ones_are_not(root: Path) -> None:
    folders = [place(evaluate(seed=seed)) for seed in range(3)]
    for folder in folders[:2]:
        set_age(folder, cache.MOST_DAYS + 1)
    assert jobs(evaluate(seed=1)) == (2, 0)
    assert [folder.exists() for folder in folders] == [False, True, True]


def test_the_oldest_are_deleted_if_all_are_too_large(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [place(evaluate(seed=seed)) for seed in range(5)]
    for folder, age in zip(folders, (5, 4, 3, 2, 0.5), strict=True):
        set_age(folder, age)
    sizes = {entry.path: entry.size for entry in cache.list_entries(root)}
    monkeypatch.setattr(cache, "MOST_BYTES", sum(sizes[folder] for folder in folders[2:]) + 100)
    newest = evaluate(seed=9)
    assert [folder.exists() for folder in folders] == [False, False, True, True, True]
    assert place(newest).exists()
    monkeypatch.setattr(cache, "MOST_BYTES", 1)
    evaluate(seed=9)
    # used within a day
    assert [folder.exists() for folder in folders] == [
        False,
        False,
        False,
        False,
        True,
    ]


def test_the_command_shows_and_deletes(root: Path) -> None:
    evaluate(seed=1), evaluate(seed=2)
    run = CliRunner().invoke
    assert f"{root}: 2 evaluations" in run(app, ["cache"]).stdout.replace("\n", "")
    assert run(app, ["cache", "clear"]).exit_code == 0
    assert list(root.iterdir()) == []
