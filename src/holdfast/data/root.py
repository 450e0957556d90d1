"""Where data sets lie on this computer."""

from __future__ import annotations

import os
from pathlib import Path

import pooch

from holdfast.errors import HoldfastError

VARIABLE = "HOLDFAST_DATA"


class MissingDataError(HoldfastError, FileNotFoundError):
    """A data set is neither on this computer nor to be had; says where we looked and what to do."""


def data_root() -> Path:
    """The folder that holds the data sets, each in a folder of its own (`mnist/`, ...). It need not exist.

    The environment variable `HOLDFAST_DATA` where it is set; else `../shared/data`, seen from the current
    folder or from the repository, where that exists; else the user's cache folder for holdfast.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    for base in (Path.cwd(), *_repository()):
        shared = base.parent / "shared" / "data"
        if shared.is_dir():
            return shared
    return Path(pooch.os_cache("holdfast"))


def _repository() -> list[Path]:
    """The checkout that this file lies in, if it does: (root)/src/holdfast/data/root.py."""
    root = Path(__file__).resolve().parents[3]
    return [root] if (root / "src" / "holdfast").is_dir() else []
