"""Files of results: written whole or not at all, by one run at a time, on this computer and elsewhere."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import standfast
from standfast.files import write_atomically
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.report import load_results
from standfast.results import verify_results
from standfast.study import folders
from standfast.study.executors import Processes
from standfast.study.folders import Folder, LocalFolder, RemoteFolder, WriteError, open_folder
from standfast.study.progress import Progress
from standfast.study.run import run_grid
from standfast.study.store import Store, tensor_digest


@pytest.fixture(params=["local", "memory", "gradual"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Folder]:
    """A folder on this computer; one that writes in one piece; one where a file appears too early."""
    monkeypatch.setattr(folders, "SECONDS_TO_SETTLE", 0.3)
    if request.param == "local":
        yield open_folder(tmp_path)
    else:
        address = (
            f"local://{tmp_path}" if request.param == "gradual" else f"memory://{uuid.uuid4()}"
        )
        found = open_folder(address)
        assert isinstance(found, RemoteFolder)
        yield found


def at_once(calls: list[Callable[[], bool]]) -> list[bool]:
    """What the calls return, each in a thread."""
    found: list[bool] = [False] * len(calls)

    def keep(place: int) -> None:
        found[place] = calls[place]()

    threads = [threading.Thread(target=keep, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_of_several_that_create_a_file_one_succeeds(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, exists = threading.Barrier(4), type(folder).exists

    def look(self: Folder, name: str) -> bool:  # all of them look before anybody writes
        found = exists(self, name)
        together.wait(10)
        return found

    monkeypatch.setattr(type(folder), "exists", look)
    made = at_once(
        [lambda text=text: folder.create("file", text) for text in (b"a", b"b", b"c", b"d")]
    )
    monkeypatch.undo()
    assert sum(made) == 1
    assert folder.read("file") == b"abcd"[made.index(True) :][:1]
    assert not folder.create("file", b"e")
    assert folder.replace("file", b"e")


def a_grid(count: int = 4) -> Grid:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    inputs = torch.rand(count, 1, 2, 2, generator=torch.Generator().manual_seed(1))
    metric = standfast.metrics.WorstCase(
        standfast.LinfBall(0.1), "changed_explanation", search="random", budget=4
    )
    return Grid(
        {"x": Samples(inputs)},
        {"m": LoadedModel(standfast.Model(module, (0.0, 1.0), device="cpu", batch_size=64))},
        {"s": standfast.explainers.get("saliency")},
        {"worst": metric},
        samples_per_job=1,
    )


def test_a_full_disk_is_said_with_the_path_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the third job on there is no room for its arrays."""
    run_grid(a_grid(), Store(tmp_path / "whole"))
    full, fsync = False, os.fsync

    def fill(progress: Progress) -> None:
        nonlocal full
        full = progress.done >= 2

    def flush(handle: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    store = Store(tmp_path / "full")
    with monkeypatch.context() as patch:
        patch.setattr(folders.os, "fsync", flush)
        with pytest.raises(
            WriteError, match=r"artefacts/\w+\.safetensors could not be written: No space left on"
        ):
            run_grid(a_grid(), store, progress=fill)
    assert list(store.statuses().values()) == ["done"] * 2
    assert not list((tmp_path / "full").rglob(".*.part"))
    assert not store.folder.exists("running.json")
    summary = run_grid(a_grid(), store)
    assert (summary.earlier, summary.done) == (2, 2)
    assert load_results(store).samples.equals(load_results(tmp_path / "whole").samples)
    assert verify_results(store).fine


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        WriteError, match=r"file/part/name could not be written: Not a directory\. What was stored"
    ):
        LocalFolder(tmp_path / "file").write("part/name", b"")
    with pytest.raises(
        WriteError, match=r"file/name could not be written: a file is in the place of a folder\.$"
    ):
        write_atomically(tmp_path / "file" / "name", b"")  # nothing was stored before
    with pytest.raises(
        WriteError,
        match=r"/running.json could not be written: a file is in the place of a folder\.",
    ):
        Store(tmp_path / "file").folder.create("running.json", b"")
    with pytest.raises(
        standfast.errors.ArgumentError, match="out: expected a folder, got the file "
    ):
        run_grid(a_grid(1), Store(tmp_path / "file"))


@pytest.mark.usefixtures("quick_workers")
def test_a_worker_that_cannot_store_says_where(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "artefacts").write_text("a file in the place of a folder")
    with pytest.raises(
        standfast.StandfastError, match=r"artefacts/\w+\.safetensors could not be written: "
    ) as error:
        run_grid(a_grid(1), store, executor=Processes(1))
    assert "Traceback" not in str(error.value)


def test_a_digest_of_a_tensor_is_the_same_for_ever() -> None:
    """Identities of stored jobs contain it: if it changes, everything is computed again."""
    values = torch.tensor([[1.0, -2.0]], dtype=torch.float64)
    content = values.numpy().tobytes() + b"((1, 2), '<f8')"
    assert tensor_digest(values) == hashlib.sha256(content).hexdigest()[:16]
    assert tensor_digest(values) != tensor_digest(values.reshape(2)) != tensor_digest(values.long())


def test_names_that_cannot_be_stored_are_refused() -> None:
    grid = a_grid(1)
    with pytest.raises(
        standfast.ArgumentError, match=r"explainers: expected names that can be .* got .*\\ud800"
    ):
        dataclasses.replace(grid, explainers={"half\ud800": grid.explainers["s"]})


def test_results_elsewhere_are_verified_and_done_again() -> None:
    store = Store(f"memory://{uuid.uuid4()}")
    run_grid(a_grid(2), store)
    assert verify_results(store).fine
    job = next(iter(store.statuses()))
    name, arrays = f"artefacts/{job}.safetensors", store.read_artefacts(job)
    whole = store.folder.read(name)
    store.folder.write(name, whole[:-1] + bytes([whole[-1] ^ 1]))
    assert list(verify_results(store).damaged) == [name]
    # arrays elsewhere are not read at the start of a run
    assert run_grid(a_grid(2), store).earlier == 2
    store.folder.delete(name)
    with pytest.warns(
        UserWarning,
        match="^a stored job is damaged and is done again: .* is damaged .it is missing.$",
    ):
        summary = run_grid(a_grid(2), store)
    assert (summary.earlier, summary.done) == (1, 1)
    again = store.read_artefacts(job)  # the order of keys in the file's header is random
    assert set(again) == set(arrays)
    assert all(np.array_equal(again[key], arrays[key]) for key in arrays)
    assert verify_results(store).fine


def test_results_in_a_folder_below_are_suggested(tmp_path: Path) -> None:
    Store(tmp_path / "demo" / "results").write_manifest({})
    with pytest.raises(standfast.ArgumentError, match=r"did you mean .*demo/results\?"):
        load_results(tmp_path / "demo")
    with pytest.raises(standfast.ArgumentError) as other:
        load_results(tmp_path)
    assert "did you mean" not in str(other.value)
