"""The folder of the data sets on this computer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pooch

from standfast.errors import StandfastError

VARIABLE = "STANDFAST_DATA"


class MissingDataError(StandfastError, FileNotFoundError):
    """A data set was not found. The message names the folders that were searched and what the user can do."""


def data_root() -> Path:
    """The folder of the data sets, with a subfolder for each (`mnist/`, ...). It may not exist yet.

    It is the value of the environment variable `STANDFAST_DATA` if set. Else it is `../shared/data`, relative to the
    current folder or to the repository, if that exists. Else it is the user's cache folder for standfast.
    """
    named = os.environ.get("STANDFAST_DATA")
    # an explicit folder counts even if it is not there yet, as downloads make it
    if named:
        return Path(named).expanduser()
    for base in (Path.cwd(), *_find_repository()):
        shared = base.parent / "shared" / "data"
        if shared.is_dir():
            return shared
    return Path(pooch.os_cache("standfast"))


def _find_repository() -> list[Path]:
    """The root of the checkout with this file, (root)/src/standfast/data/root.py; empty for an installed package."""
    # an installed package has another layout above it
    root = Path(__file__).resolve().parents[3]
    return [root] if (root / "src" / "standfast").is_dir() else []


def report_missing(name: str, what: str, folders: Sequence[Path]) -> MissingDataError:
    """The error that files of a data set are in none of its folders, and what to do."""
    return MissingDataError(
        f"{name}: no {what} in {' or '.join(map(str, folders))}. Put the files there, set {VARIABLE} to the folder that"
        f" contains {folders[0].name}/, or pass download=True."
    )


def fetch(address: str, checksum: str, folder: Path) -> Path:
    """Download a file into a folder, unless it is there, and verify its checksum, such as `"md5:..."`.

    Raises:
        MissingDataError: no network, a folder that cannot be written, or another checksum.
    """
    try:
        # it checks the file that is there, too
        return Path(
            pooch.retrieve(address, checksum, fname=address.rpartition("/")[2], path=folder)
        )
    except (OSError, ValueError) as error:
        raise MissingDataError(f"could not download {address} to {folder}: {error}") from error
