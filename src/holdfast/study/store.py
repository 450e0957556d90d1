"""Results on disk: one Parquet file per unit of work, its tensors beside it, and a manifest. Written atomically.

    RESULTS/manifest.json                 what was evaluated, with which versions on which machine
    RESULTS/units/<unit>.parquet          one row per sample
    RESULTS/units/<unit>.safetensors      pictures, traces and curves
    RESULTS/units/<unit>.json             the record, written last: a unit without one has not been done

A unit that failed has a record with its traceback and no frame.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors.numpy import load_file, save
from torch import Tensor

from holdfast.errors import ArgumentError

SCHEMA = 1


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, also after a crash or a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())  # a temporary file is private; a result is not
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def digest(description: object) -> str:
    """A short name for everything that determines a unit's result."""
    text = json.dumps(description, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def tensor_digest(tensor: Tensor) -> str:
    """The same for data."""
    array = np.ascontiguousarray(tensor.detach().cpu().numpy())
    return hashlib.sha256(array.tobytes() + str(array.shape).encode()).hexdigest()[:16]


def environment() -> dict[str, Any]:
    """Versions and hardware, for the manifest."""
    return {
        "holdfast": version("holdfast"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


@dataclass(frozen=True)
class Unit:
    """One stored unit of work.

    Attributes:
        record: explainer, metric, options, label, status (`"done"` or `"failed"`), seconds, traceback if any.
        frame: one row per sample; None for a failed unit.
        tensors: arrays by name, empty for a failed unit.
    """

    record: dict[str, Any]
    frame: pl.DataFrame | None
    tensors: dict[str, np.ndarray]


class Store:
    """A folder of results."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.units = self.folder / "units"

    def status(self, unit: str) -> str | None:
        """`"done"`, `"failed"`, or None where the unit has no record."""
        path = self.units / f"{unit}.json"
        return str(json.loads(path.read_text())["status"]) if path.exists() else None

    def write(self, unit: str, record: dict[str, Any], frame: pl.DataFrame, tensors: dict[str, Tensor]) -> None:
        """Store a finished unit; the record comes last and makes it count."""
        arrays = {name: np.ascontiguousarray(t.detach().cpu().numpy()) for name, t in tensors.items()}
        write_atomically(self.units / f"{unit}.safetensors", save(arrays))
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder) / "frame.parquet"
            frame.write_parquet(scratch)
            write_atomically(self.units / f"{unit}.parquet", scratch.read_bytes())
        self._write_record(unit, {**record, "status": "done"})

    def write_failure(self, unit: str, record: dict[str, Any], traceback: str) -> None:
        """Store that a unit failed, and how; it is tried again on the next run."""
        self._write_record(unit, {**record, "status": "failed", "traceback": traceback})

    def _write_record(self, unit: str, record: dict[str, Any]) -> None:
        write_atomically(self.units / f"{unit}.json", json.dumps({"unit": unit, **record}, indent=1).encode())

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Store what the whole evaluation is; the units it consists of are listed under `"units"`."""
        content = {"schema": SCHEMA, **manifest, "environment": environment()}
        write_atomically(self.folder / "manifest.json", json.dumps(content, indent=1).encode())

    def manifest(self) -> dict[str, Any]:
        """What was stored by `write_manifest`; an ArgumentError where the folder holds no results."""
        path = self.folder / "manifest.json"
        if not path.exists():
            raise ArgumentError("results", "a folder with a manifest.json, as holdfast writes it", str(self.folder))
        content: dict[str, Any] = json.loads(path.read_text())
        return content

    def __iter__(self) -> Iterator[Unit]:
        """The units that the manifest lists and that have a record, in its order."""
        for unit in self.manifest()["units"]:
            path = self.units / f"{unit}.json"
            if not path.exists():
                continue
            record = json.loads(path.read_text())
            if record["status"] != "done":
                yield Unit(record, None, {})
                continue
            tensors = load_file(self.units / f"{unit}.safetensors")
            yield Unit(record, pl.read_parquet(self.units / f"{unit}.parquet"), tensors)

    def frame(self) -> pl.DataFrame:
        """All finished units as one tidy frame; columns that a metric does not have are null."""
        frames = []
        for unit in self:
            if unit.frame is not None:
                names = {k: unit.record[k] for k in ("explainer", "metric", "label")}
                frames.append(unit.frame.select([*(pl.lit(v).alias(k) for k, v in names.items()), pl.all()]))
        return pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()
