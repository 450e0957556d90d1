"""Results of `evaluate` without a folder: in the user's cache folder, where the same call finds the jobs that are done.

Each grid has a folder of its own, named after its jobs. Folders are deleted when they are old, and the oldest when all
together are too large.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pooch

from standfast.errors import find_version, warn_user
from standfast.study.lease import RunningError
from standfast.study.plan import Plan
from standfast.study.run import RunSummary
from standfast.study.store import MANIFEST, Store, digest

#: folders that were not used for so many days are deleted, and the oldest if all have more bytes than this
MOST_DAYS = 30
MOST_BYTES = 2 * 10**9
#: but none that was used within so many seconds: its results may still be in use
_RECENT = 86400.0
#: the value of the variable with which nothing is kept
OFF = "off"


@dataclass(frozen=True)
class CacheEntry:
    """The results of one grid.

    Attributes:
        path: of its folder.
        size: of all files in it, in bytes.
        used: when it was used last, in seconds since 1970.
    """

    path: Path
    size: int
    used: float


def results_folder() -> Path | None:
    """The folder of all results that are kept, which may not exist yet; None if none are kept.

    It is `results` in the folder that the environment variable `STANDFAST_CACHE` names, or else in the user's cache
    folder for standfast. If the variable is `off`, nothing is kept.
    """
    named = os.environ.get("STANDFAST_CACHE")
    if named == OFF:
        return None
    folder = Path(named or pooch.os_cache("standfast")).expanduser()
    return folder.absolute() / "results"


def run_kept(
    plan: Plan, run: Callable[[Plan, Store], RunSummary]
) -> tuple[Store, RunSummary, Callable[[], None] | None]:
    """Run a plan with the results in the cache folder, and say where they are.

    If the folder cannot be used, a warning says why, and the results are in a temporary folder. So they are if the same
    call runs at the same time in another process.

    Args:
        plan: its results have one folder, also in later processes with the same version of the package.
        run: runs a plan into a store. Where earlier results are kept, the plan has jobs of the same sizes as these.

    Returns:
        The store, what `run` returned, and a function that deletes a temporary folder.
    """
    root = results_folder()
    if root is not None:
        # the version is in the name, because jobs know only that of the package and not that of a checkout
        kept = root / digest([_version(), plan.question])
        try:
            _make_private(root)
            _sweep(root, but=kept)
            # only the user, since results have the user's inputs in them
            kept.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            warn_user(
                f"these results are lost when the process ends, because {root} cannot be used: {error}"
            )
        else:
            try:
                # not through a power cut: the same call can compute it again
                store = Store(kept, lasting=False)
                return store, run(plan.continue_from(store.earlier_manifest()), store), None
            except RunningError:
                # the same call runs in another process, which writes there
                pass
    folder = Path(tempfile.mkdtemp(prefix="standfast-"))
    delete = partial(shutil.rmtree, folder, ignore_errors=True)
    try:
        store = Store(folder, lasting=False)
        return store, run(plan, store), delete
    except BaseException:
        # also after Ctrl-C, as nobody would know of the folder
        delete()
        raise


def _version() -> list[object]:
    """The version of the package, and when its code was changed last, as in a checkout; jobs know only the first."""
    files = Path(__file__).parents[1].rglob("*.py")
    # a checkout has one version for many states of its code
    return [find_version(), max(file.stat().st_mtime_ns for file in files)]


def _make_private(root: Path) -> None:
    """Make a folder that only the user can read.

    Raises:
        OSError: it cannot be made, or others could have written in it: what it holds may not be the user's.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name == "posix":
        folder_stat = root.lstat()
        # `lstat`, because a link could lead to a folder of somebody else
        is_own = stat.S_ISDIR(folder_stat.st_mode) and folder_stat.st_uid == os.geteuid()
        if not is_own or folder_stat.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError("it is not the user's own folder, or others can write in it")
        # a folder that was there before keeps its mode in `mkdir`
        root.chmod(0o700)


def list_entries(root: Path) -> list[CacheEntry]:
    """All results in the folder, those that were used last at the end. Each run writes its manifest."""
    entries = []
    for manifest in root.glob(f"*/{MANIFEST}"):
        with contextlib.suppress(FileNotFoundError):  # another process is writing or deleting it
            size = sum(file.stat().st_size for file in manifest.parent.rglob("*"))
            entries.append(CacheEntry(manifest.parent, size, manifest.stat().st_mtime))
    return sorted(entries, key=lambda entry: entry.used)


def _sweep(root: Path, but: Path) -> None:
    """Delete what is old, and the oldest of what is too much, but not one of them."""
    entries = [entry for entry in list_entries(root) if entry.path != but]
    size = sum(entry.size for entry in entries)
    now = time.time()
    for entry in entries:
        age = now - entry.used
        if age > MOST_DAYS * 86400 or (size > MOST_BYTES and age > _RECENT):
            delete_entry(entry.path)
            size -= entry.size


def delete_entry(path: Path) -> None:
    """Delete results: first the manifest, so that no half of them can be found."""
    (path / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
