"""What a change between two runs is, and whether the second run has to compute again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Expected = Literal["computes again", "computes nothing", "cannot be noticed"]

AGAIN: Expected = "computes again"
NOTHING: Expected = "computes nothing"
NAMED: Expected = "cannot be noticed"

#: the script of a study file
RUN_STUDY = """
import standfast
found = standfast.run_study("study.yaml", "out", progress=False)
"""


@dataclass(frozen=True)
class Change:
    """Files that are written between two runs, and what else is done.

    Attributes:
        files: texts by name; an empty one deletes the file.
        expected: what the second run has to do. What "cannot be noticed" is named in `docs/reliability.md`.
        environment: variables of the second run.
        moved: the whole folder is moved.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    expected: Expected = AGAIN
    environment: Mapping[str, str] = field(default_factory=dict)
    moved: bool = False


@dataclass(frozen=True)
class Scene:
    """A small study, and changes of it by name.

    Attributes:
        files: `script.py` leaves the results in `found`. `make.py`, if there is one, runs before it at first, and
            whenever it was changed: it writes files that are no texts.
    """

    files: Mapping[str, str]
    changes: Mapping[str, Change]


def edit(
    files: Mapping[str, str], file: str, old: str, new: str, expected: Expected = AGAIN
) -> Change:
    """A change of a part of one text, which stands there once or more; the first is replaced."""
    assert old in files[file], (file, old)
    return Change({file: files[file].replace(old, new, 1)}, expected)


#: what changes no result of any study
WITHOUT_EFFECT: dict[str, Change] = {
    "nothing": Change({}, NOTHING),
    "all files are touched": Change({}, NOTHING, {"TOUCHED": "1"}),
    "the folder is moved": Change({}, NOTHING, moved=True),
    "a README": Change({"README.md": "another text\n"}, NOTHING),
    "a module that nothing imports": Change({"nobody_imports.py": "VALUE = 2\n"}, NOTHING),
    "the locale": Change({}, NOTHING, {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}),
    "two threads": Change({}, NOTHING, {"OMP_NUM_THREADS": "2"}),
}
