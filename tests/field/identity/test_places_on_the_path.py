"""A module that is not imported is found where Python finds it: in the first folder of the path, and in archives."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from standfast.study.own_code.modules import _SearchPath

FILES = (
    *("first/both.py", "second/both.py", "second/only.py", "second/Capital.py"),
    *("first/parcel/__init__.py", "first/parcel/inner.py", "second/parcel/hidden.py"),
    *("first/shared/one.py", "second/shared/two.py"),
)
NAMES = (
    *("both", "only", "Capital", "parcel", "parcel.inner", "parcel.hidden", "parcel.Name"),
    *("shared.one", "shared.two", "shared.three", "only.Name", "both.only"),
    *("packed", "packed.Name", "nowhere", "nowhere.at.all"),
)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two folders, an archive, and a folder and an archive that are not there, at the front of the path."""
    for name in FILES:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("packed.py", "")
    places = ("missing", "missing.zip", "first", "packed.zip", "second")
    monkeypatch.setattr(sys, "path", [*(str(tmp_path / place) for place in places), *sys.path])
    yield tmp_path
    for place in places:
        sys.path_importer_cache.pop(str(tmp_path / place), None)


def find_slowly(name: str, folders: list[str]) -> str | None:
    """The file of a module, by Python's search of all folders for each part of the name."""
    first, *parts = name.split(".")
    spec = PathFinder.find_spec(first, folders)
    outer = first
    for part in parts:
        if spec is None:
            return None
        outer = f"{outer}.{part}"
        inside = spec.submodule_search_locations
        spec = PathFinder.find_spec(outer, sys.path if inside is None else [*inside])
    return None if spec is None else spec.origin


@pytest.mark.parametrize("name", NAMES)
def test_a_module_is_found_where_python_finds_it(folders: Path, name: str) -> None:
    path = _SearchPath()
    # also when it is asked for again, and after all others
    for _ in range(2):
        assert path.find(name) == find_slowly(name, sys.path)
        for other in NAMES:
            path.find(other)
    beside = str(folders / "second")
    assert path.find_beside(name, beside) == find_slowly(name, [beside, *sys.path])


def test_the_first_folder_wins_and_archives_count(folders: Path) -> None:
    path = _SearchPath()
    assert path.find("both") == str(folders / "first" / "both.py")
    assert path.find("packed") == str(folders / "packed.zip" / "packed.py")
    assert path.find("parcel.inner") == str(folders / "first" / "parcel" / "inner.py")
    assert path.find("nowhere") is None
