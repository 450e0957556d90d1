"""Results in a folder: a Parquet file and a file of arrays for each job, and a manifest, all written atomically.

    RESULTS/manifest.json                what was evaluated, with which versions on which machine
    RESULTS/sizes.json                   how samples are cut into jobs, and what models answer, by which jobs are found
    RESULTS/jobs/<job>.parquet           a row per sample; the job's record is in the file's metadata
    RESULTS/jobs/<job>.failed.parquet    one row with the traceback; the next run tries the job again
    RESULTS/artefacts/<job>.safetensors  pictures, traces and curves
    RESULTS/compact/jobs.parquet         all records and rows in one file, so that thousands of jobs open at once
    RESULTS/looks.json                   what was decided of the requirements of a study, at each look
    RESULTS/running.json                 while a run works here (see `lease`)

A job is done when its Parquet file exists, which is written last. The folder may be at any fsspec address. Every file
but the last contains a hash of itself (`seals`), which is checked whenever the file is read.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from torch import Tensor

from standfast.errors import ArgumentError, StandfastError
from standfast.files import ReadError, find_room
from standfast.study.folders import Folder, LocalFolder, open_folder
from standfast.study.seals import EMPTY_SEAL, fill_seal, is_intact

# stored in every file; readers refuse another number
SCHEMA = 2
#: what every row of results and every record of a job begins with
COORDINATES = ("data", "model", "explainer", "label", "metric", "repeat")
MANIFEST = "manifest.json"
LOOKS = "looks.json"
SIZES = "sizes.json"
#: the parts of a manifest by which jobs are found again: they follow from measured times, and from bits of a machine
_REMEMBERED = ("sizes", "answers")
_KEY = "standfast"
_COMPACT = "compact/jobs.parquet"
_DONE = ".parquet"
_FAILED = ".failed.parquet"
_ENDINGS = {"jobs": (_DONE, _FAILED), "artefacts": (".safetensors",), "compact": (_DONE,)}
#: the record of a failure that cannot be read
_UNKNOWN = {"status": "failed", "artefacts": False, "traceback": ""}


def digest(description: object) -> str:
    """A hash of a description, as 16 hexadecimal digits."""
    # sorted, so that the order in which a mapping was made does not count
    text = json.dumps(description, sort_keys=True, default=str)
    # 16 digits are 64 bits: a collision is not to be expected
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def tensor_digest(tensor: Tensor) -> str:
    """A hash of a tensor's values, shape and type, as 16 hexadecimal digits."""
    # NumPy has no bfloat16
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    array = np.ascontiguousarray(tensor.detach().cpu().numpy())
    # bytes alone would not tell two shapes from each other
    form = str((array.shape, array.dtype.str))
    content = array.tobytes() + form.encode()
    return hashlib.sha256(content).hexdigest()[:16]


class DamagedFileError(StandfastError):
    """A file of results cannot be read; `where` it is, and the `reason`."""

    def __init__(self, reason: str, where: str = "", advice: str = "") -> None:
        self.reason = reason
        self.where = where
        message = reason
        if where:
            message = f"{where} is damaged ({reason}). {advice}"
        super().__init__(message)


@dataclass(frozen=True)
class JobFiles:
    """A finished or failed job as the bytes of its files, which a worker on another machine sends back."""

    job: str
    failed: bool
    table: bytes
    arrays: bytes | None = None


def pack(record: dict[str, Any], frame: pl.DataFrame, tensors: dict[str, Tensor]) -> JobFiles:
    """A finished job; `record["job"]` is its identity."""
    arrays = {}
    for name, tensor in tensors.items():
        # safetensors takes only arrays without gaps
        arrays[name] = np.ascontiguousarray(tensor.detach().cpu().numpy())
    about = {"job": record["job"], "seal": EMPTY_SEAL}
    packed = fill_seal(save_arrays(arrays, about)) if arrays else None
    record = {**record, "status": "done", "artefacts": bool(arrays)}
    return JobFiles(record["job"], False, _write_parquet(frame, record), packed)


def pack_failure(record: dict[str, Any], error: str, traceback: str) -> JobFiles:
    """A failed job: one row with its traceback."""
    record = {
        **record,
        "status": "failed",
        "artefacts": False,
        "error": error,
        "traceback": traceback,
    }
    cells = {}
    for key, cell in record.items():
        if isinstance(cell, str | int | float):
            cells[key] = cell
    table = _write_parquet(pl.DataFrame([cells]), record)
    return JobFiles(record["job"], True, table)


class Store:
    """A folder of results.

    Args:
        address: a path, or an fsspec address such as `"s3://bucket/results"`.
        lasting: whether jobs have to survive a power cut; without it they may be damaged then, and are done again.
    """

    def __init__(self, address: str | Path | Folder, lasting: bool = True) -> None:
        if isinstance(address, Folder):
            self.folder = address
        else:
            self.folder = open_folder(address)
        self.lasting = lasting

    def statuses(self) -> dict[str, str]:
        """`"done"` or `"failed"` for every job that was run, from the names of the files."""
        failed: dict[str, str] = {}
        done: dict[str, str] = {}
        for name in self.folder.names("jobs"):
            if name.endswith(_FAILED):  # which ends with _DONE, too
                failed[name.removesuffix(_FAILED)] = "failed"
            elif name.endswith(_DONE):
                done[name.removesuffix(_DONE)] = "done"
        # a job that was done after it had failed is done
        return failed | done

    def put(self, packed: JobFiles) -> None:
        """Store a job. Its table is written last, and makes it count as done."""
        # arrays first: the table makes the job count as done
        if packed.arrays is not None:
            artefacts = f"artefacts/{packed.job}.safetensors"
            self.folder.write(artefacts, packed.arrays, self.lasting)
        ending = _FAILED if packed.failed else _DONE
        self.folder.write(f"jobs/{packed.job}{ending}", packed.table, self.lasting)

    def forget(self, job: str) -> None:
        """Remove the table or the failure of a job, which is then as if it was never run."""
        for ending in (_DONE, _FAILED):
            self.folder.delete(f"jobs/{job}{ending}")

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Store the description of the whole study; its jobs are listed under `"jobs"`.

        The sizes of jobs and the answers of models are also added to those of a second file. So finished jobs are found
        without the manifest, and also after the folder had another study for a while.
        """
        if any(manifest.get(part) for part in _REMEMBERED):
            # merged, as the same folder may have had another study in between
            self.write_json(SIZES, self._merge_remembered(manifest))
        self.write_json(MANIFEST, manifest)

    def manifest(self) -> dict[str, Any]:
        """What `write_manifest` stored.

        Raises:
            ArgumentError: the folder holds no results, or those of another version.
            DamagedFileError: the manifest is not what was written.
        """
        try:
            content = self.read_json(MANIFEST, "")
            if not isinstance(content.get("jobs") or [], list):
                raise DamagedFileError("its jobs are no list", f"{self.folder.address}/{MANIFEST}")
            return content
        except DamagedFileError as error:
            raise DamagedFileError(
                error.reason, error.where, advise_without_manifest(self)
            ) from error
        except (FileNotFoundError, NotADirectoryError) as error:
            got = self.folder.address
            if self.folder.exists(f"results/{MANIFEST}"):  # as in the folder of the demonstration
                got += f" (did you mean {got}/results?)"
            raise ArgumentError(
                "results", f"a folder with a {MANIFEST}, as standfast writes it", got
            ) from error

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Store a sealed JSON file."""
        text = json.dumps({"schema": SCHEMA, "seal": EMPTY_SEAL, **content}, indent=1)
        self.folder.write(name, fill_seal(text.encode()))

    def read_json(self, name: str, advice: str) -> dict[str, Any]:
        """The content of a sealed JSON file without its seal.

        Raises:
            FileNotFoundError: there is none.
            ArgumentError: it is that of another version.
            DamagedFileError: it is not what was written; its words end with the advice.
        """
        with self._name_damage(name, advice):
            text = self.folder.read(name)
            content = _parse(text)
            # before the seal: a file of another version may have it elsewhere
            if content.get("schema") != SCHEMA:
                got = f"schema {content.get('schema')} in {self.folder.address}"
                expected = f"a {name.removesuffix('.json')} of schema {SCHEMA}"
                raise ArgumentError("results", expected, got)
            _check_seal(text)
            return {key: value for key, value in content.items() if key != "seal"}

    def earlier_manifest(self) -> dict[str, Any]:
        """The manifest, as `manifest`, with all sizes of jobs and answers of models that were stored here.

        Without a manifest it has these alone; in a folder without results they are empty.
        """
        if self.folder.exists(MANIFEST):
            manifest = self.manifest()
        else:
            manifest = {}
        return {**manifest, **self._merge_remembered(manifest)}

    def _merge_remembered(self, manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The sizes and answers that are stored here, with those of a manifest, which count where both have one."""
        stored = self._read_remembered()
        merged = {}
        for part in _REMEMBERED:
            # what the manifest says is newer
            merged[part] = {**stored[part], **(manifest.get(part) or {})}
        return merged

    def _read_remembered(self) -> dict[str, dict[str, Any]]:
        """The sizes of jobs and the answers of models; empty where their file is missing or damaged."""
        try:
            content = self.read_json(SIZES, "")
            return {part: dict(content[part]) for part in _REMEMBERED}
        except (
            FileNotFoundError,
            NotADirectoryError,
            StandfastError,
            KeyError,
            TypeError,
            ValueError,
        ):
            # it only saves work, so nothing of it is worth an error
            return {part: {} for part in _REMEMBERED}

    def read(self, job: str, failed: bool = False) -> tuple[dict[str, Any], pl.DataFrame]:
        """The record and the rows of a job.

        Raises:
            FileNotFoundError: there is none.
            DamagedFileError: the file is damaged, or it is that of another job, or of a job that ended otherwise.
        """
        if failed:
            ending, status = _FAILED, "failed"
        else:
            ending, status = _DONE, "done"
        name = f"jobs/{job}{ending}"
        with self._name_damage(name):
            record, frame = _read_parquet(self.folder.read(name))
            # a file may have been copied under another name
            if (record["job"], record["status"]) != (job, status):
                raise DamagedFileError(
                    f"it is of the job {record['job']}, which is {record['status']}"
                )
            return record, frame

    def read_artefacts(self, job: str) -> dict[str, np.ndarray[Any, Any]]:
        """A job's arrays by name; none if it has none.

        Raises:
            DamagedFileError: the file is damaged, or it is that of another job.
        """
        name = f"artefacts/{job}.safetensors"
        with self._name_damage(name), contextlib.suppress(FileNotFoundError):
            return _read_arrays(self.folder.read(name), job)
        return {}

    @contextlib.contextmanager
    def _name_damage(
        self, name: str, advice: str = "Delete it and run the study again."
    ) -> Iterator[None]:
        """Say which file is damaged, and what to do."""
        try:
            yield
        except (DamagedFileError, ReadError, IsADirectoryError, KeyError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            raise DamagedFileError(reason, f"{self.folder.address}/{name}", advice) from error

    def find_damage(self, jobs: Iterable[str]) -> dict[str, str]:
        """What is wrong with the files of finished jobs, by job; empty if all are as they were written.

        Every table is read, and on this computer every file of arrays. Elsewhere it only has to exist.
        """
        # once for all jobs, because each question to a remote folder takes time
        stored = set(self.folder.names("artefacts"))

        def look(job: str) -> str:
            try:
                name = f"{job}.safetensors"
                record, *_ = self.read(job)
                if record["artefacts"] and name not in stored:
                    where = f"{self.folder.address}/artefacts/{name}"
                    raise DamagedFileError("it is missing", where)
                if isinstance(self.folder, LocalFolder):
                    self.read_artefacts(job)
            except DamagedFileError as error:
                return f"{error.where} is damaged ({error.reason})"
            return ""

        with self._open_pool() as pool:
            listed = list(jobs)
            problems = zip(listed, pool.map(look, listed), strict=True)
            return {job: problem for job, problem in problems if problem}

    def _open_pool(self) -> ThreadPoolExecutor:
        # remote folders wait most of the time, so many questions at once are faster
        # a network waits, a disk does not
        threads = 2 if isinstance(self.folder, LocalFolder) else 16
        return ThreadPoolExecutor(threads)

    def check_files(self) -> dict[str, str]:
        """What is wrong with each file of the results, by name; empty for nothing."""
        problems = {MANIFEST: _find_problem(self.manifest)}
        if self.folder.exists(LOOKS):
            problems[LOOKS] = _find_problem(lambda: self.read_json(LOOKS, ""))
        if self.folder.exists(SIZES):
            problems[SIZES] = _find_problem(lambda: self.read_json(SIZES, ""))
        readers: dict[str, Callable[[str, str], object]] = {
            "jobs": lambda job, ending: self.read(job, ending == _FAILED),
            "artefacts": lambda job, _: self.read_artefacts(job),
            "compact": lambda name, ending: _read_parquet(
                self.folder.read(f"compact/{name}{ending}")
            ),
        }
        for part, read in readers.items():
            for name in sorted(self.folder.names(part)):
                job, dot, ending = name.partition(".")
                is_expected = dot + ending in _ENDINGS[part]
                problem = "it is no file of results"
                if is_expected:
                    problem = _find_problem(partial(read, job, dot + ending))
                problems[f"{part}/{name}"] = problem
        return problems

    def read_all(self, jobs: Sequence[str]) -> tuple[list[dict[str, Any]], pl.DataFrame]:
        """The records and the sample rows (with the column `job`) of those `jobs` that were run, in no order.

        The record of a failure that is damaged says so, and nothing else.
        """
        statuses = self.statuses()
        wanted_statuses = {job: statuses[job] for job in jobs if job in statuses}
        records, samples = self._read_compact(wanted_statuses)
        compacted_jobs = {record["job"] for record in records}
        with self._open_pool() as pool:
            uncompacted_jobs = [job for job in wanted_statuses if job not in compacted_jobs]
            are_failed = [wanted_statuses[job] == "failed" for job in uncompacted_jobs]
            fresh = list(pool.map(self._read_now, uncompacted_jobs, are_failed))
        # those with equal columns together, because one wide concat is slow
        frames: dict[tuple[Any, ...], list[pl.DataFrame]] = {}
        for record, frame in fresh:
            if record["status"] == "done":
                rows = frame.with_columns(pl.lit(record["job"]).alias("job"))
                columns = tuple(rows.schema.items())
                frames.setdefault(columns, []).append(rows)
        parts = [samples]
        for same in frames.values():
            parts.append(pl.concat(same))
        parts = [part for part in parts if part.width]
        # metrics have columns of their own; missing ones are null
        if parts:
            whole = pl.concat(parts, how="diagonal_relaxed")
        else:
            whole = pl.DataFrame()
        return records + [record for record, _ in fresh], whole

    def _read_now(self, job: str, failed: bool) -> tuple[dict[str, Any], pl.DataFrame]:
        try:
            return self.read(job, failed)
        except (FileNotFoundError, DamagedFileError) as error:
            if not failed:  # a failure may be gone because another run tries it again
                raise
            return {**_UNKNOWN, "job": job, "error": str(error)}, pl.DataFrame()

    def _read_compact(
        self, wanted_statuses: Mapping[str, str]
    ) -> tuple[list[dict[str, Any]], pl.DataFrame]:
        try:
            about, samples = _read_parquet(self.folder.read(_COMPACT))
        except (FileNotFoundError, IsADirectoryError, ReadError, DamagedFileError):
            return [], pl.DataFrame()
        # failures are read from their own files: a later run may have failed with another error
        current = []
        for stored_record in about["records"]:
            wanted_status = wanted_statuses.get(stored_record["job"])
            if stored_record["status"] == "done" == wanted_status:
                current.append(stored_record)
        if len(current) < len(about["records"]):
            current_jobs = [record["job"] for record in current]
            samples = samples.filter(pl.col("job").is_in(current_jobs))
        # without a job that is done there are no columns
        if not len(samples):
            samples = pl.DataFrame()
        return current, samples

    def compact(self, jobs: Sequence[str]) -> None:
        """Copy the rows of `jobs` into one file, which `read_all` then reads; the files of the jobs are kept."""
        records, samples = self.read_all(jobs)
        # without rows there are no columns, and the reader asks for this one
        if not samples.width:
            samples = pl.DataFrame(schema={"job": pl.String})
        self.folder.write(_COMPACT, _write_parquet(samples, {"records": records}))

    def sweep(self) -> None:
        """Remove incomplete files, whose writers were killed."""
        if isinstance(self.folder, LocalFolder):
            self.folder.sweep()


def advise_without_manifest(store: Store) -> str:
    """What to do about a damaged manifest."""
    if store._read_remembered()["sizes"]:
        return f"Delete it and run the study again: finished jobs are kept, as {SIZES} says which they are."
    return "Restore it from a copy: without it, a run may do some finished jobs a second time."


class ArraysInMemory(Store):
    """The arrays of some jobs, for results that are in no folder: `{job: {name: array}}`."""

    def __init__(self, arrays: Mapping[str, Mapping[str, np.ndarray[Any, Any]]]) -> None:
        # an address that is never read, as `read_artefacts` is replaced
        super().__init__("memory://standfast-no-folder")
        self.arrays = arrays

    def read_artefacts(self, job: str) -> dict[str, np.ndarray[Any, Any]]:
        return dict(self.arrays.get(job, {}))


def _find_problem(read: Callable[[], object]) -> str:
    """What is wrong with a file that `read` reads; empty for nothing."""
    try:
        read()
    except DamagedFileError as error:
        return error.reason
    except (StandfastError, OSError) as error:
        return str(error)
    return ""


def _check_seal(content: bytes) -> None:
    if not is_intact(content):
        raise DamagedFileError("its content does not match its SHA-256")


def _parse(text: str | bytes) -> dict[str, Any]:
    """The object that JSON describes; halves of surrogate pairs, which are no text, are refused, too."""
    try:
        content = json.loads(text)
        # halves of pairs pass `loads`, and fail when they are written
        json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError, MemoryError) as error:
        raise DamagedFileError("it is no JSON") from error
    if not isinstance(content, dict):
        raise DamagedFileError("it is no object of JSON")
    return content


def _write_parquet(frame: pl.DataFrame, record: dict[str, Any]) -> bytes:
    """A sealed Parquet file with `record` as JSON in its metadata."""
    buffer = io.BytesIO()
    frame.write_parquet(
        buffer, statistics=False, metadata={_KEY: json.dumps(record), "seal": EMPTY_SEAL}
    )
    return fill_seal(buffer.getvalue())


def _read_parquet(content: bytes) -> tuple[dict[str, Any], pl.DataFrame]:
    """The record and the rows of a file that `_write_parquet` made."""
    _check_seal(content)
    try:
        about = pl.read_parquet_metadata(io.BytesIO(content))[_KEY]
        return _parse(about), read_rows(content)
    except (pl.exceptions.PolarsError, KeyError, ValueError) as error:
        raise DamagedFileError(str(error)) from error


def read_rows(content: bytes) -> pl.DataFrame:
    """The rows of a Parquet file, of which a few bytes may claim to be billions.

    Raises:
        ValueError: it is no Parquet file, or becomes too large (see `standfast.files.find_room`).
    """
    try:
        schema = pl.read_parquet_schema(io.BytesIO(content))
        columns = max(1, len(schema))
        # 8 bytes for a cell at most; one row more than allowed shows that there are more
        rows = find_room(len(content)) // (8 * columns)
        frame = pl.read_parquet(io.BytesIO(content), n_rows=rows + 1)
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        MemoryError,
    ) as error:
        # polars panics on some
        raise ValueError(str(error)) from error
    if frame.height > rows:
        raise ValueError(
            f"it has more than {rows:,} rows of {columns} columns, and {len(content):,} bytes"
        )
    return frame


def _read_arrays(content: bytes, job: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a job, whose name is in the file."""
    _check_seal(content)
    try:
        # the header of a safetensors file: its length in 8 bytes, then JSON
        length = int.from_bytes(content[:8], "little")
        about = _parse(content[8 : 8 + length])["__metadata__"]
        if about["job"] != job:
            raise DamagedFileError(f"it is of the job {about['job']}")
        return load_arrays(content)
    except (SafetensorError, ValueError, TypeError, KeyError, MemoryError) as error:
        raise DamagedFileError(str(error)) from error
