"""Check that every file of stored results is as it was written, and that no result is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from standfast.study.store import MANIFEST, Store


@dataclass(frozen=True)
class Verification:
    """What `verify_results` found.

    Attributes:
        files: the number of files that were read.
        damaged: what is wrong, by the name of the file within the results.
        missing: planned jobs that were not run yet.
        failed: planned jobs that failed.
        others: names in the folder that are not of results, such as `report`, which have no checksum.

    Without a readable manifest no jobs are planned.
    """

    files: int
    damaged: dict[str, str] = field(default_factory=dict)
    missing: int = 0
    failed: int = 0
    others: tuple[str, ...] = ()

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
    Verification(files=1, damaged={}, missing=1, failed=0, others=())
    """
    store = results if isinstance(results, Store) else Store(results)
    states = store.check_files()
    damaged = {name: state for name, state in states.items() if state}
    planned: list[str] = []
    if MANIFEST not in damaged or not store.folder.exists(MANIFEST):
        planned = [str(job) for job in store.manifest().get("jobs") or []]
    statuses = store.statuses()
    readable = [
        job
        for job in planned
        if statuses.get(job) == "done" and f"jobs/{job}.parquet" not in damaged
    ]
    damaged.update(_find_missing_arrays(store, readable, states))
    missing = sum(statuses.get(job) is None for job in planned)
    failed = sum(statuses.get(job) == "failed" for job in planned)
    return Verification(len(states), damaged, missing, failed, _list_others(store, states))


def _find_missing_arrays(
    store: Store, jobs: Sequence[str], files: Collection[str]
) -> dict[str, str]:
    """The names of files of arrays that jobs say they have stored, and that are gone: no other file names them."""
    names = {job: f"artefacts/{job}.safetensors" for job in jobs}
    return {
        name: "missing"
        for job, name in names.items()
        if name not in files and store.read(job)[0].get("artefacts")
    }


def _list_others(store: Store, files: Iterable[str]) -> tuple[str, ...]:
    """The names in the folder that are not of results."""
    folders = {name.partition("/")[0] for name in files}
    of_results = folders | {"jobs", "artefacts", "compact", "running.json"}
    return tuple(sorted(set(store.folder.names("")) - of_results))
