"""Stored results as tidy polars frames of a whole study.

>>> import tempfile
>>> from standfast.study.store import Store
>>> with tempfile.TemporaryDirectory() as folder:
...     Store(folder).write_manifest({"jobs": []})
...     load_results(folder).samples.height
0
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from standfast.study.store import Store

#: what every row of `Results.samples` and `Results.jobs` begins with
COORDINATES = ("data", "model", "explainer", "label", "metric", "repeat")
_TYPES: dict[str, Any] = {name: pl.Int64 if name == "repeat" else pl.String for name in COORDINATES}
SAMPLE_COLUMNS: dict[str, Any] = {
    **_TYPES,
    "sample": pl.Int64,
    "status": pl.String,
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    "job": pl.String,
}
JOB_COLUMNS: dict[str, Any] = {
    "job": pl.String,
    **_TYPES,
    "start": pl.Int64,
    "stop": pl.Int64,
    "status": pl.String,
    "seconds": pl.Float64,
    "device": pl.String,
    "artefacts": pl.Boolean,
    "choices": pl.String,
    "error": pl.String,
    "traceback": pl.String,
}


@dataclass(frozen=True, repr=False)
class Results:
    """All results that a study has so far.

    Attributes:
        store: where the results are.
        manifest: the configuration: `"data"`, `"models"`, `"explainers"`, `"metrics"` by name, `"seed"`,
            `"repeats"`, `"about"`, `"environment"`.
        samples: one row per data, model, explainer, label (a configured metric), repeat and sample: `COORDINATES`,
            `sample`, `status`, the metrics' own columns, null where a metric does not have them, and `job`.
        jobs: one row per job that was run: `job` (its identity), `COORDINATES`, `start`, `stop` (samples),
            `status` (`"done"` or `"failed"`), `seconds`, `device`, `artefacts` (whether it has any), `choices` (what
            the explainer chose by itself, such as its layer), `error`, `traceback`.
        planned: the number of jobs of the study.
    """

    store: Store
    manifest: dict[str, Any]
    samples: pl.DataFrame
    jobs: pl.DataFrame
    planned: int

    def __repr__(self) -> str:
        done = self.jobs.filter(pl.col("status") == "done").height
        return f"Results({self.store.folder.address}, {done} of {self.planned} jobs done, {self.samples.height} rows)"

    @property
    def failures(self) -> pl.DataFrame:
        """The rows of `jobs` that failed, with their tracebacks."""
        return self.jobs.filter(pl.col("status") == "failed")

    @property
    def missing(self) -> int:
        """How many jobs were not run yet."""
        return self.planned - self.jobs.height

    def artefacts(self, job: str) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays of a job by name (inputs, maps, curves), each `(samples of the job, ...)`; may be empty."""
        return self.store.read_artefacts(job)


def load_results(results: str | Path | Store) -> Results:
    """Open the results in a folder or at an fsspec address.

    Raises:
        ArgumentError: there are none.
    """
    store = results if isinstance(results, Store) else Store(results)
    manifest = store.manifest()
    planned = [str(job) for job in manifest.get("jobs") or []]
    records, samples = store.read_all(planned)
    place = {job: index for index, job in enumerate(planned)}
    records.sort(key=lambda record: place[record["job"]])
    jobs = pl.DataFrame(
        [[record.get(name) for name in JOB_COLUMNS] for record in records], schema=JOB_COLUMNS, orient="row"
    )
    if samples.width:
        order = pl.DataFrame({"job": planned}).with_row_index("__place")
        samples = samples.join(order, on="job", how="left").sort("__place", "sample", maintain_order=True)
        samples = samples.select(
            *COORDINATES, "sample", "status", pl.exclude(*COORDINATES, "sample", "status", "__place")
        )
    else:
        samples = pl.DataFrame(schema=SAMPLE_COLUMNS)
    return Results(store, manifest, samples, jobs, len(planned))


@dataclass(frozen=True)
class Verification:
    """What `verify_results` found.

    Attributes:
        files: the number of files that were read.
        unsealed: how many of them have no checksum, because an earlier version wrote them.
        damaged: what is wrong, by the name of the file within the results.
        missing: planned jobs that were not run yet.
        failed: planned jobs that failed.

    Without a readable manifest no jobs are planned.
    """

    files: int
    unsealed: int
    damaged: dict[str, str]
    missing: int
    failed: int = 0

    @property
    def fine(self) -> bool:
        """Whether every file is as it was written, and no result is missing."""
        return not self.damaged and not self.missing and not self.failed


def verify_results(results: str | Path | Store) -> Verification:
    """Read every file of stored results, and compare each with the SHA-256 that it contains.

    Raises:
        ArgumentError: there are no results.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Store(folder).write_manifest({"jobs": ["a"]})
    ...     verify_results(folder)
    Verification(files=1, unsealed=0, damaged={}, missing=1, failed=0)
    """
    store = results if isinstance(results, Store) else Store(results)
    states = dict(store.check_files())
    damaged = {name: state for name, state in states.items() if state not in ("", "unsealed")}
    planned: list[str] = []
    if "manifest.json" in damaged:
        if not store.folder.exists("manifest.json"):
            store.manifest()
    else:
        planned = [str(job) for job in store.manifest().get("jobs") or []]
    statuses = store.statuses()
    for job in planned:  # arrays that are gone have no file to name
        name = f"artefacts/{job}.safetensors"
        readable = statuses.get(job) == "done" and f"jobs/{job}.parquet" not in damaged
        if readable and name not in states and store.read(job)[0].get("artefacts"):
            damaged[name] = "missing"
    unsealed = sum(state == "unsealed" for state in states.values())
    missing, failed = (sum(statuses.get(job) == status for job in planned) for status in (None, "failed"))
    return Verification(len(states), unsealed, damaged, missing, failed)
