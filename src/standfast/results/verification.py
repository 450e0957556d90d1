"""Check that every file of stored results is as it was written, and that no result is missing."""

from __future__ import annotations

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
    for job in planned:  # arrays that are gone have no file to name
        name = f"artefacts/{job}.safetensors"
        readable = statuses.get(job) == "done" and f"jobs/{job}.parquet" not in damaged
        if readable and name not in states and store.read(job)[0].get("artefacts"):
            damaged[name] = "missing"
    missing, failed = (
        sum(statuses.get(job) == status for job in planned) for status in (None, "failed")
    )
    known = {
        name.partition("/")[0] for name in (*states, "jobs", "artefacts", "compact", "running.json")
    }
    others = tuple(sorted(set(store.folder.names("")) - known))
    return Verification(len(states), damaged, missing, failed, others)
