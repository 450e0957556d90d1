"""Check that every file of stored results is as it was written, and that no result is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from standfast.study.store import Store


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
