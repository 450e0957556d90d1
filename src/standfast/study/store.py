"""Results in a folder: a Parquet file and a file of arrays for each job, and a manifest, all written atomically.

    RESULTS/manifest.json                what was evaluated, with which versions on which machine
    RESULTS/jobs/<job>.parquet           a row per sample; the job's record is in the file's metadata
    RESULTS/jobs/<job>.failed.parquet    one row with the traceback; the next run tries the job again
    RESULTS/artefacts/<job>.safetensors  pictures, traces and curves
    RESULTS/compact/                     the same rows in few files, so that thousands of jobs open at once
    RESULTS/begun.json                   while a run of one process works: its current job

A job is done when its Parquet file exists, which is written last. The folder may be at any fsspec address. Every file
contains a hash of itself (`seals`), which is checked whenever the file is read.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from torch import Tensor

from standfast.errors import ArgumentError, StandfastError, check_name
from standfast.study.folders import Folder, LocalFolder, open_folder
from standfast.study.seals import EMPTY_SEAL, fill_seal, read_seal

SCHEMA = 2
#: what every row of results and every record of a job begins with
COORDINATES = ("data", "model", "explainer", "label", "metric", "repeat")
_KEY = "standfast"
_LARGE = 10**9
_DONE, _FAILED = ".parquet", ".failed.parquet"
_JOBS, _SAMPLES = "compact/jobs.parquet", "compact/samples-{}.parquet"
_BEGUN = "begun.json"
_OTHER_CONTENT = "its content does not match its SHA-256"


def digest(description: object) -> str:
    """A hash of a description, as 16 hexadecimal digits."""
    text = json.dumps(description, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def tensor_digest(tensor: Tensor) -> str:
    """A hash of a tensor's values, shape and type, as 16 hexadecimal digits."""
    tensor = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor  # NumPy has no bfloat16
    array = np.ascontiguousarray(tensor.detach().cpu().numpy())
    return hashlib.sha256(array.tobytes() + str((array.shape, array.dtype.str)).encode()).hexdigest()[:16]


class DamagedFileError(StandfastError):
    """A file of results cannot be read; `where` it is, and the `reason`."""

    def __init__(self, reason: str, where: str = "", advice: str = "") -> None:
        self.reason, self.where = reason, where
        super().__init__(f"{where} is damaged ({reason}). {advice}" if where else reason)


@dataclass(frozen=True)
class JobFiles:
    """A finished or failed job as the bytes of its files, which a worker on another machine sends back."""

    job: str
    failed: bool
    table: bytes
    arrays: bytes | None = None


def pack(record: dict[str, Any], frame: pl.DataFrame, tensors: dict[str, Tensor]) -> JobFiles:
    """A finished job; `record["job"]` is its identity."""
    arrays = {name: np.ascontiguousarray(t.detach().cpu().numpy()) for name, t in tensors.items()}
    record = {**record, "status": "done", "artefacts": bool(arrays)}
    about = {"job": record["job"], "seal": EMPTY_SEAL}
    packed = fill_seal(save_arrays(arrays, about)) if arrays else None
    return JobFiles(record["job"], False, _write_parquet(frame, record), packed)


def pack_failure(record: dict[str, Any], error: str, traceback: str) -> JobFiles:
    """A failed job: one row with its traceback."""
    record = {**record, "status": "failed", "artefacts": False, "error": error, "traceback": traceback}
    row = pl.DataFrame([{k: v for k, v in record.items() if isinstance(v, str | int | float)}])
    return JobFiles(record["job"], True, _write_parquet(row, record))


class Store:
    """A folder of results.

    Args:
        address: a path, or an fsspec address such as `"s3://bucket/results"`.
    """

    def __init__(self, address: str | Path | Folder) -> None:
        self.folder = address if isinstance(address, Folder) else open_folder(address)

    def statuses(self) -> dict[str, str]:
        """`"done"` or `"failed"` for every job that was run, from the names of the files."""
        found: dict[str, str] = {}
        for name in self.folder.names("jobs"):
            if name.endswith(_FAILED):
                found.setdefault(name.removesuffix(_FAILED), "failed")
            elif name.endswith(_DONE):
                found[name.removesuffix(_DONE)] = "done"
        return found

    def is_done(self, job: str) -> bool:
        """Whether a job has a result."""
        return self.folder.exists(f"jobs/{job}{_DONE}")

    def put(self, packed: JobFiles) -> None:
        """Store a job. Its table is written last, and makes it count as done."""
        if packed.arrays is not None:
            self.folder.write(f"artefacts/{packed.job}.safetensors", packed.arrays)
        self.folder.write(f"jobs/{packed.job}{_FAILED if packed.failed else _DONE}", packed.table)

    def forget(self, job: str) -> None:
        """Remove the table of a job, which is then not done any more."""
        self.folder.delete(f"jobs/{job}{_DONE}")

    def forget_failures(self, jobs: Iterable[str]) -> None:
        """Remove the failures of these jobs, which have succeeded since."""
        for job in jobs:
            self.folder.delete(f"jobs/{job}{_FAILED}")

    def begin(self, job: str, times: int) -> None:
        """Note which job this process begins, and how often it has been begun, for the next run if this one is lost."""
        self.folder.write(_BEGUN, json.dumps({"job": job, "times": times}).encode(), lasting=False)

    def begun(self) -> tuple[str, int]:
        """The job in whose middle the last run was lost, and how often so far; `("", 0)` if it ended properly."""
        try:
            content = json.loads(self.folder.read(_BEGUN))
            return str(content["job"]), int(content["times"])
        except (OSError, ValueError, TypeError, KeyError):
            return "", 0

    def end(self) -> None:
        """Note that the run has ended properly."""
        self.folder.delete(_BEGUN)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Store the description of the whole study; its jobs are listed under `"jobs"`."""
        content = {"schema": SCHEMA, "seal": EMPTY_SEAL, **manifest}
        self.folder.write("manifest.json", fill_seal(json.dumps(content, indent=1).encode()))

    def manifest(self) -> dict[str, Any]:
        """What `write_manifest` stored.

        Raises:
            ArgumentError: the folder holds no results, or those of another version.
            DamagedFileError: the manifest is not what was written.
        """
        expected = "a folder with a manifest.json, as standfast writes it"
        try:
            text = self.folder.read("manifest.json")
            content: dict[str, Any] = _parse(text)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            got = self.folder.address
            if self.folder.exists("results/manifest.json"):  # as in the folder of the demonstration
                got += f" (did you mean {got}/results?)"
            raise ArgumentError("results", expected, got) from error
        except (ValueError, RecursionError) as error:
            advice = "Delete it and run the study again: finished jobs are kept."
            raise DamagedFileError("it is no JSON", f"{self.folder.address}/manifest.json", advice) from error
        if not isinstance(content, dict):
            raise ArgumentError("results", expected, f"{self.folder.address}, whose manifest is something else")
        check_name(content, f"the study in {self.folder.address}", "run it again in another folder")
        if content.get("schema") != SCHEMA:
            raise ArgumentError(
                "results", f"a manifest of schema {SCHEMA}", f"schema {content.get('schema')} in {self.folder.address}"
            )
        state = read_seal(text)
        if state == "broken" or (state == "absent" and "seal" in content):
            raise DamagedFileError(
                _OTHER_CONTENT,
                f"{self.folder.address}/manifest.json",
                'If you changed it, remove its entry "seal" to accept it as it is. Otherwise delete it and run the'
                " study again: finished jobs are kept.",
            )
        content.pop("seal", None)
        return content

    def earlier_manifest(self) -> dict[str, Any]:
        """The manifest, as `manifest`; empty in a folder without one."""
        return self.manifest() if self.folder.exists("manifest.json") else {}

    def read(self, job: str, failed: bool = False) -> tuple[dict[str, Any], pl.DataFrame]:
        """The record and the rows of a job.

        Raises:
            FileNotFoundError: there is none.
            DamagedFileError: the file is damaged, or it is that of another job.
        """
        name = f"jobs/{job}{_FAILED if failed else _DONE}"
        try:
            record, frame = _read_parquet(self.folder.read(name))
            if record["job"] != job:
                raise DamagedFileError(f"it is of the job {record['job']}")
        except (DamagedFileError, IsADirectoryError, KeyError) as error:
            raise self._damaged(name, error) from error
        return record, frame

    def read_artefacts(self, job: str) -> dict[str, np.ndarray[Any, Any]]:
        """A job's arrays by name; none if it has none.

        Raises:
            DamagedFileError: the file is damaged, or it is that of another job.
        """
        name = f"artefacts/{job}.safetensors"
        try:
            return _read_arrays(self.folder.read(name), job)
        except FileNotFoundError:
            return {}
        except (DamagedFileError, IsADirectoryError) as error:
            raise self._damaged(name, error) from error

    def _damaged(self, name: str, error: Exception) -> DamagedFileError:
        return DamagedFileError(str(error), f"{self.folder.address}/{name}", "Delete it and run the study again.")

    def find_damage(self, jobs: Iterable[str]) -> dict[str, str]:
        """What is wrong with the files of finished jobs, by job; empty if all are as they were written.

        Every table is read. A job whose arrays are missing is damaged, too. Arrays are read if all of them take less
        than 1 GB; else only `check_files`, and whoever uses them, does so.
        """
        stored = set(self.folder.names("artefacts"))
        small = self.folder.size("artefacts") < _LARGE

        def look(job: str) -> str:
            try:
                record, _ = self.read(job)
                if record.get("artefacts") and f"{job}.safetensors" not in stored:
                    return f"{self.folder.address}/artefacts/{job}.safetensors is missing"
                if record.get("artefacts") and small:
                    self.read_artefacts(job)
            except DamagedFileError as error:
                return f"{error.where} is damaged ({error.reason})"
            except FileNotFoundError as error:
                return str(error)
            return ""

        listed = list(jobs)
        with ThreadPoolExecutor(2 if isinstance(self.folder, LocalFolder) else 16) as pool:
            found = zip(listed, pool.map(look, listed), strict=True)
            return {job: problem for job, problem in found if problem}

    def check_files(self) -> Iterator[tuple[str, str]]:
        """Every file with what is wrong with it: `""` for nothing, `"unsealed"` for a file of an earlier version."""
        readers: dict[str, Callable[[str], object]] = {
            "jobs": lambda name: self.read(name.removesuffix(_FAILED).removesuffix(_DONE), name.endswith(_FAILED)),
            "artefacts": lambda name: self.read_artefacts(name.removesuffix(".safetensors")),
            "compact": lambda name: _read_parquet(self.folder.read(f"compact/{name}")),
        }
        files = [(part, name) for part in readers for name in sorted(self.folder.names(part))]
        yield "manifest.json", self._check_file("manifest.json", lambda _: self.manifest())
        for part, name in files:
            yield (
                f"{part}/{name}",
                self._check_file(f"{part}/{name}", lambda _, part=part, name=name: readers[part](name)),
            )

    def _check_file(self, path: str, read: Callable[..., object]) -> str:
        try:
            read(path)
            if path.endswith(".safetensors"):  # which are large, and name their seal in the header
                return ""
            return "unsealed" if read_seal(self.folder.read(path)) == "absent" else ""
        except DamagedFileError as error:
            return error.reason
        except (StandfastError, OSError) as error:
            return str(error)

    def read_all(self, jobs: Sequence[str]) -> tuple[list[dict[str, Any]], pl.DataFrame]:
        """The records and the sample rows (with the column `job`) of those `jobs` that were run, in no order."""
        statuses = self.statuses()
        wanted = {job: statuses[job] for job in jobs if job in statuses}
        records, samples = self._read_compact(wanted)
        have = {record["job"] for record in records}
        rest = [job for job in wanted if job not in have]
        with ThreadPoolExecutor(1 if isinstance(self.folder, LocalFolder) else 16) as pool:
            fresh = list(pool.map(lambda job: self._read_now(job, wanted[job] == "failed"), rest))
        frames: dict[
            tuple[Any, ...], list[pl.DataFrame]
        ] = {}  # those with equal columns together, because one wide concat is slow
        for record, frame in fresh:
            if record["status"] == "done":
                rows = frame.with_columns(pl.lit(record["job"]).alias("job"))
                frames.setdefault(tuple(rows.schema.items()), []).append(rows)
        parts = [samples, *(pl.concat(same) for same in frames.values())]
        parts = [part for part in parts if part.width]
        whole = pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame()
        return records + [record for record, _ in fresh], whole

    def _read_now(self, job: str, failed: bool) -> tuple[dict[str, Any], pl.DataFrame]:
        try:
            return self.read(job, failed)
        except FileNotFoundError:
            if not failed:
                raise
            return self.read(job)  # another run has tried it again in the meantime

    def _read_compact(self, wanted: dict[str, str]) -> tuple[list[dict[str, Any]], pl.DataFrame]:
        try:
            about, index = _read_parquet(self.folder.read(_JOBS))
            _, samples = _read_parquet(self.folder.read(_SAMPLES.format(about["samples"])))
        except (FileNotFoundError, DamagedFileError):
            return [], pl.DataFrame()
        statuses = dict(zip(index["job"], index["status"], strict=True))
        # failures are read from their own files: a later run may have failed with another error
        current = {job for job, status in statuses.items() if status == "done" == wanted.get(job)}
        records = [json.loads(text) for job, text in zip(index["job"], index["record"], strict=True) if job in current]
        if len(current) < len(statuses) and samples.width:
            samples = samples.filter(pl.col("job").is_in(list(current)))
        return records, samples if len(samples) else pl.DataFrame()  # without a job that is done there are no columns

    def compact(self, jobs: Sequence[str]) -> None:
        """Copy the rows of `jobs` into two files, which `read_all` then reads; the files of the jobs are kept."""
        records, samples = self.read_all(jobs)
        table = _write_parquet(samples if samples.width else pl.DataFrame(schema={"job": pl.String}), {})
        token = hashlib.sha256(table).hexdigest()[:16]
        self.folder.write(_SAMPLES.format(token), table)
        index = pl.DataFrame(
            {
                "job": [record["job"] for record in records],
                "status": [record["status"] for record in records],
                "record": [json.dumps(record) for record in records],
            },
            schema={"job": pl.String, "status": pl.String, "record": pl.String},
        )
        self.folder.write(_JOBS, _write_parquet(index, {"samples": token}))
        for name in self.folder.names("compact"):  # the earlier ones are not needed any more
            if name.startswith("samples-") and name != _SAMPLES.format(token).rpartition("/")[2]:
                self.folder.delete(f"compact/{name}")

    def sweep(self) -> None:
        """Remove incomplete files, whose writers were killed."""
        if isinstance(self.folder, LocalFolder):
            for part in ("", "jobs", "artefacts", "compact"):
                self.folder.sweep(part)


def _parse(text: str | bytes) -> Any:
    """What JSON says; raises ValueError also for halves of surrogate pairs, which are no text."""
    content = json.loads(text)
    json.dumps(content, ensure_ascii=False).encode()
    return content


def _write_parquet(frame: pl.DataFrame, record: dict[str, Any]) -> bytes:
    """A sealed Parquet file with `record` as JSON in its metadata."""
    buffer = io.BytesIO()
    metadata = {_KEY: json.dumps({**record, "sealed": True}), "seal": EMPTY_SEAL}
    frame.write_parquet(buffer, statistics=False, metadata=metadata)
    return fill_seal(buffer.getvalue())


class ArraysInMemory(Store):
    """The arrays of some jobs, for results that are in no folder: `{job: {name: array}}`."""

    def __init__(self, arrays: Mapping[str, Mapping[str, np.ndarray[Any, Any]]]) -> None:
        super().__init__("memory://standfast-no-folder")
        self.arrays = arrays

    def read_artefacts(self, job: str) -> dict[str, np.ndarray[Any, Any]]:
        return dict(self.arrays.get(job, {}))


def _read_parquet(content: bytes) -> tuple[dict[str, Any], pl.DataFrame]:
    """The record and the rows of a file that `_write_parquet` made; polars panics on some damaged files."""
    try:
        record: dict[str, Any] = _parse(pl.read_parquet_metadata(io.BytesIO(content))[_KEY])
        _check_seal(content, record.pop("sealed", False))
        return record, pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, KeyError, ValueError, AttributeError) as error:
        raise DamagedFileError(str(error)) from error


def _read_arrays(content: bytes, job: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a job, whose name is in the file."""
    try:
        length = int.from_bytes(content[:8], "little")
        about = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
        _check_seal(content, "seal" in about)
        if about.get("job", job) != job:
            raise DamagedFileError(f"it is of the job {about['job']}")
        return load_arrays(content)
    except (SafetensorError, ValueError, AttributeError, KeyError, MemoryError) as error:
        raise DamagedFileError(str(error)) from error


def _check_seal(content: bytes, sealed: bool) -> None:
    """Raise `DamagedFileError` if the content is not what was sealed. Files of earlier versions have no seal."""
    state = read_seal(content)
    if state == "broken" or (state == "absent" and sealed):
        raise DamagedFileError(_OTHER_CONTENT)
