"""Files of strangers: pipes and devices, headers that claim too much, and archives that become too large."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from standfast import files
from standfast.data.image_sets import read_idx
from standfast.data.series_files import read_series
from standfast.data.user_files import read_data
from standfast.errors import ArgumentError, make_printable
from standfast.files import ReadError, check_archive, load_npy, load_npz, read_file
from standfast.study.store import Store, read_rows
from standfast.zoo.programs import check_program, read_weights


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_file(tmp_path / "file", largest=4) == read_file(tmp_path / "link") == b"text"
    with pytest.raises(ReadError, match="it has 4 bytes, and may have 3"):
        read_file(tmp_path / "file", largest=3)
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name, kind in (("pipe", "a pipe"), ("zeros", "a device")):
        with pytest.raises(ReadError, match=f"{name} cannot be read: it is {kind}") as error:
            read_file(tmp_path / name)
        assert error.value.strerror == f"it is {kind}"
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none")


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.safetensors", "x.csv", "x.ts", "x.tsv"])
def test_data_in_a_pipe_is_refused(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ArgumentError, match="pipe"):
        read_data(tmp_path / name)


def test_stored_results_in_a_pipe_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    for name in ("manifest.json", "looks.json", "jobs/a.parquet"):
        os.mkfifo(tmp_path / name)
    assert list(Store(tmp_path).check_files().values()) == ["it is a pipe"] * 3


def header(shape: str, kind: str = "'<f4'", version: int = 1) -> bytes:
    """A `.npy` file without values."""
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + len(text).to_bytes(2 if version == 1 else 4, "little")
        + text
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (header("(1000000000000, 1000000)"), "4,000,000,000,000,000,000 bytes follow, and 0 do"),
        (
            header("(1000000000000, 1000000)", version=2),
            "4,000,000,000,000,000,000 bytes follow, and 0 do",
        ),
        (header(f"({10**30}, 0)"), "too large|[Mm]aximum"),
        (header("(-1, 3)"), r"."),
        (header("(3,)", "'|O'"), "Object arrays|allow_pickle"),
        (header("(" * 5000 + ")" * 5000), r"."),
        (header("(3,)", version=3), "version .3, 0."),
        (header("(3,)")[:-9], r"."),
        (b"PK", r"."),
        (b"", r"."),
    ],
)
def test_arrays_that_claim_too_much_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load_npy(content)


def packed(size: int, name: str = "inputs.npy", start: bytes = b"") -> bytes:
    """A zip archive with a file of zeros."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, start + bytes(size))
    return buffer.getvalue()


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed files may become 100 kB, so that a bomb of a test is small."""
    monkeypatch.setattr(files, "_ROOM", 100_000)


@pytest.mark.usefixtures("little_room")
def test_archives_that_become_too_large_are_refused_before_they_do(tmp_path: Path) -> None:
    bomb = packed(1_000_000, "archive/data.pkl")
    words = r"would become 1,000,000 of at most"
    for refuse in (check_archive, lambda content: load_npz(content, ("inputs",))):
        with pytest.raises(ValueError, match=words):
            refuse(bomb)
    with pytest.raises(ArgumentError, match=words):
        read_weights(bomb)
    with pytest.raises(ArgumentError, match=words):
        check_program(bomb, "model.pt")
    torch.save({"a": torch.zeros(100)}, buffer := io.BytesIO())
    assert read_weights(buffer.getvalue())["a"].shape == (100,)
    np.savez_compressed(
        tmp_path / "x.npz", inputs=np.zeros((5, 1000), np.float32), other=np.zeros(3)
    )
    assert read_data(tmp_path / "x.npz").inputs.shape == (5, 1000)
    (tmp_path / "images").write_bytes(gzip.compress(bytes(1_000_000)))
    with pytest.raises(ArgumentError, match="expected at most 100,300 bytes when it is unpacked"):
        read_idx(tmp_path / "images", 3)


@pytest.mark.usefixtures("little_room")
@pytest.mark.parametrize("rows", [10_000, 200_000])
def test_tables_of_too_many_rows_are_refused(rows: int) -> None:
    pl.DataFrame({"a": [1.0], "b": [2.0]}).select(pl.all().repeat_by(rows).explode()).write_parquet(
        buffer := io.BytesIO(), statistics=False
    )
    content = buffer.getvalue()
    room = max(100_000, 100 * len(content)) // 16
    if rows <= room:
        assert read_rows(content).height == rows
    else:
        with pytest.raises(ValueError, match=f"more than {room:,} rows of 2 columns"):
            read_rows(content)
    for damaged in (b"", content[:-1], content[: len(content) // 2]):
        with pytest.raises(ValueError, match=r"."):
            read_rows(damaged)


@pytest.mark.usefixtures("little_room")
def test_one_long_series_does_not_make_a_small_file_a_huge_array(tmp_path: Path) -> None:
    lines = ["a\t1"] * 3_000 + ["b" + "\t1" * 3_000]
    (tmp_path / "x.tsv").write_text("\n".join(lines))
    with pytest.raises(ArgumentError, match="expected series of less than"):
        read_series(tmp_path / "x.tsv")


def test_broken_archives_are_errors_of_values() -> None:
    np.savez_compressed(buffer := io.BytesIO(), inputs=np.arange(100.0))
    whole = buffer.getvalue()
    assert load_npz(whole, ("inputs",))["inputs"].sum() == 4950
    for place in range(0, len(whole), 7):
        content = whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :]
        try:
            load_npz(content, ("inputs",))
        except ValueError:
            continue


@pytest.mark.parametrize("load", [read_weights, lambda content: load_npz(content, ("inputs",))])
def test_noise_is_refused_in_words(load: Callable[[bytes], object]) -> None:
    dice = np.random.default_rng(0)
    for start in (b"", b"PK\x03\x04", b"\x80\x02", b"\x93NUMPY\x01\x00"):
        with pytest.raises(ValueError, match=r"."):
            load(start + dice.bytes(200))


def test_memory_that_runs_out_is_said(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10**13)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (8 * 10**9,) * 2)"
    code = f"{limit}\nfrom pathlib import Path\nfrom standfast.files import read_file\nread_file(Path('large'))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].endswith(
        "it has 10,000,000,000,000 bytes, for which there is no memory"
    )


def test_what_could_steer_a_terminal_is_shown() -> None:
    assert (
        make_printable("\x1b]0;PWN\x07 \x9b2J \u202e \udcff \r")
        == r"\x1b]0;PWN\x07 \x9b2J \u202e \udcff \r"
    )
    assert make_printable("Zürich, 名前:\t½\n\xa0") == "Zürich, 名前:\t½\n\xa0"
