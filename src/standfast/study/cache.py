"""Results of `evaluate` without a folder: in the user's cache folder, where the same call finds the jobs that are done.

Each grid has a folder of its own, named after its jobs. Who uses one holds a lock on the file `used` in it, which the
system gives back when the process ends, and whose date is that of the last use. Folders without a lock are deleted when
they are old, and the oldest when all together are too large.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import chain, count
from pathlib import Path
from typing import IO

import pooch

from standfast.errors import warn_user
from standfast.study.lease import RunningError, lock
from standfast.study.plan import Plan
from standfast.study.run import RunSummary
from standfast.study.store import Store, digest

#: folders that were not used for so many days are deleted, and the oldest if all have more bytes than this
MOST_DAYS, MOST_BYTES = 30, 2 * 10**9
#: the value of the variable with which nothing is kept
OFF = "off"
_USED, _DELETED = "used", ".deleted-"


@dataclass(frozen=True)
class Entry:
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
    return Path(named or pooch.os_cache("standfast")).expanduser().absolute() / "results"


def run_kept(plan: Plan, run: Callable[[Store], RunSummary]) -> tuple[Store, RunSummary, Callable[[], None]]:
    """Run a plan with the results in the cache folder, and say where they are.

    If the folder cannot be used, a warning says why, and the results are in a temporary folder.

    Args:
        plan: its results have one folder, also in later processes with the same version of the package.
        run: runs the plan into a store.

    Returns:
        The store, what `run` returned, and a function to call when the results are not in use any more.
    """
    for folder, let_go in _folders(plan):
        try:
            return Store(folder), run(Store(folder)), let_go
        except BaseException as error:
            let_go()
            if not isinstance(error, RunningError):  # the same call at the same time, in another process
                raise
    raise AssertionError("there is always another folder")


def _folders(plan: Plan) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Folders for the results of a plan, one after the other, and what says that each is not in use any more."""
    root = results_folder()
    if root is not None:
        name = digest([_version(), sorted(job.identity for job in plan.jobs)])
        try:
            _make_private(root)
            _sweep(root, but=name)
            for entry in chain([root / name], (root / f"{name}-{number}" for number in count(2))):
                yield entry, _hold(entry).close
        except OSError as error:
            warn_user(f"these results are lost when the process ends, because {root} cannot be used: {error}")
    folder = Path(tempfile.mkdtemp(prefix="standfast-"))
    yield folder, partial(shutil.rmtree, folder, ignore_errors=True)


def _version() -> list[object]:
    """The version of the package, and when its code was changed last, as in a checkout; jobs know only the first."""
    files = Path(__file__).parents[1].rglob("*.py")
    return [version("standfast"), max(file.stat().st_mtime_ns for file in files)]


def _make_private(root: Path) -> None:
    """Make a folder that only the user can read.

    Raises:
        OSError: it cannot be made, or others could have written in it: what it holds may not be the user's.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    root.mkdir(mode=0o700, exist_ok=True)
    if os.name == "posix":
        above, found = root.parent.stat(), root.lstat()
        movable = above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX
        own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if movable or not own or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError("it is not the user's own folder, or others can write in it")
        root.chmod(0o700)


def _hold(entry: Path) -> IO[bytes]:
    """Make a folder if there is none, and lock it as long as the file that is returned is open."""
    while True:
        entry.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # it was deleted in between
            file = (entry / _USED).open("a+b")
            lock(file.fileno(), alone=False)
            if os.path.samestat(os.fstat(file.fileno()), (entry / _USED).stat()):
                os.utime(entry / _USED)
                return file
            file.close()


def list_entries(root: Path) -> list[Entry]:
    """All results in the folder, those that were used last at the end."""
    found = []
    for path in root.iterdir() if root.is_dir() else ():
        if not path.is_dir() or path.is_symlink():
            continue
        size, used = 0, 0.0
        for file in path.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # deleted by another process
                about = file.stat()
                size += about.st_size
                used = max(used, about.st_mtime)
        found.append(Entry(path, size, used))
    return sorted(found, key=lambda entry: entry.used)


def _sweep(root: Path, but: str) -> None:
    """Delete what is old, and the oldest of what is too much, but not one of a certain name."""
    entries = [entry for entry in list_entries(root) if entry.path.name != but]
    size, oldest = sum(entry.size for entry in entries), time.time() - MOST_DAYS * 86400
    for entry in entries:
        if (size > MOST_BYTES or entry.used < oldest) and delete_entry(entry.path):
            size -= entry.size


def delete_entry(path: Path) -> bool:
    """Delete results that nobody uses, and say whether they were deleted."""
    aside = path.with_name(_DELETED + secrets.token_hex(8))  # so that no half of them can be found
    try:
        with (path / _USED).open("a+b") as file:
            lock(file.fileno())
            if os.name != "posix":  # a folder with an open file cannot be moved there, which does as well
                file.close()
            path.rename(aside)
    except OSError:
        return False
    shutil.rmtree(aside, ignore_errors=True)
    return True
