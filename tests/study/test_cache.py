"""Results without a folder of the user's own: kept for the same call, private, and deleted when old or too large."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import standfast
from conftest import SHAPES, small_net
from standfast.cli import app
from standfast.results import Results
from standfast.study import cache
from standfast.study.lease import hold_lease

POSIX = pytest.mark.skipif(os.name != "posix", reason="folders have owners on POSIX")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STANDFAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "results"


def evaluate(count: int = 6, seed: int = 0) -> Results:
    model = standfast.Model(small_net(SHAPES["flat"]), (0.0, 1.0), device="cpu", batch_size=64)
    inputs = torch.rand(count, *SHAPES["flat"], generator=torch.Generator().manual_seed(3))
    options = {"controls": False, "sanity": False, "progress": False}
    return standfast.evaluate(model, "saliency", inputs, "aopc:preset=quick", seed=seed, **options)


def jobs(found: Results) -> tuple[int, int]:
    assert found.run is not None
    return found.run.earlier, found.run.done


def place(found: Results) -> Path:
    return Path(found.store.folder.address)


def test_the_same_call_finds_its_jobs_and_another_does_not(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert place(second) == place(first).with_name(place(first).name + "-2")


@POSIX
def test_only_the_user_can_read_them(root: Path) -> None:
    root.mkdir(parents=True, mode=0o755)
    found = evaluate()
    assert root.stat().st_mode & 0o777 == 0o700
    assert place(found).stat().st_mode & 0o777 == 0o700


@POSIX
@pytest.mark.parametrize("trap", ["writable", "link", "owner", "movable", "file"])
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
    elif trap == "movable":
        root.parent.chmod(0o777)
    else:
        root.rename(tmp_path / "elsewhere")
        root.write_text("")
    with pytest.warns(UserWarning, match="these results are lost"):
        found = evaluate()
    assert jobs(found) == (0, 2)
    assert place(found).parent not in (root, earlier.parent)


def test_nothing_is_kept_where_the_user_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_old_results_are_deleted_but_none_in_use(root: Path) -> None:
    kept = evaluate(seed=1)
    held, old, fresh = place(kept), place(evaluate(seed=2)), place(evaluate(seed=3))
    gc.collect()
    for folder in (held, old):
        for file in (folder, *folder.rglob("*")):
            os.utime(file, (0, time.time() - (cache.MOST_DAYS + 1) * 86400))
    evaluate(seed=4)
    assert not old.exists()
    assert fresh.exists()
    assert kept.store.manifest()["seed"] == 1


def test_the_oldest_are_deleted_if_all_are_too_large(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [place(evaluate(seed=seed)) for seed in range(4)]
    gc.collect()
    for age, folder in enumerate(reversed(folders)):
        for file in (folder, *folder.rglob("*")):
            os.utime(file, (0, time.time() - 1000 * (age + 1)))
    sizes = {entry.path: entry.size for entry in cache.list_entries(root)}
    monkeypatch.setattr(cache, "MOST_BYTES", sizes[folders[2]] + sizes[folders[3]] + 100)
    newest = evaluate(seed=9)
    assert [folder.exists() for folder in folders] == [False, False, True, True]
    assert place(newest).exists()


def test_another_process_keeps_what_it_uses(root: Path) -> None:
    folder = place(evaluate())
    gc.collect()
    code = f"import pathlib, sys; from standfast.study import cache; f = cache._hold(pathlib.Path({str(folder)!r}))"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; print('held', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert not cache.delete_entry(folder)
        other.kill()
    assert cache.delete_entry(folder)
    assert list(root.iterdir()) == []


def test_the_command_shows_and_deletes(root: Path) -> None:
    kept = evaluate(seed=1)
    evaluate(seed=2)
    gc.collect()
    run = CliRunner().invoke
    assert f"{root}: 2 evaluations" in run(app, ["cache"]).stdout.replace("\n", "")
    assert run(app, ["cache", "clear"]).exit_code == 0
    assert [entry.path for entry in cache.list_entries(root)] == [place(kept)]
    del kept
    gc.collect()
    run(app, ["cache", "clear"])
    assert list(root.iterdir()) == []
