"""What a table of a paper has as data beside its script: its study, the paper's numbers, and the departures.

All paths are relative to the folder `papers/`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from papers.base import Column, Part, Scale
from standfast.study.file.document import read_document

_HERE = Path(__file__).parent
#: the folders of the papers, and how the names of their tables and parts begin
PREFIXES = {
    "safari": "safari",
    "lens": "lens",
    "c_eval": "ceval",
    "senc": "senc",
    "coarse_to_fine": "coarse",
    "natural_changes": "fass",
}


def make_part(paper: str, name: str, title: str, columns: tuple[Column, ...], **more: Any) -> Part:
    """A part with its study in `<paper>/studies/<name>.yaml` and its departures in `<paper>/departures.yaml`.

    `more` are further attributes of the part, also another `study`, or none for a measurement.
    """
    study = more.pop("study", study_file(f"{paper}/studies/{name}.yaml"))
    departures = read_departures(f"{paper}/departures.yaml")[name]
    return Part(f"{PREFIXES[paper]}-{name}", title, study, columns, departures=departures, **more)


def study_file(path: str) -> Callable[[Scale], dict[str, Any]]:
    """The study in a file, as a `Part` takes it.

    `safari/table1.yaml` is a study file for the full scale. `safari/table1-small.yaml` beside it has only what the
    small scale changes: its mappings are merged with those of the full study, its other values replace them, and null
    removes a key (a JSON merge patch, RFC 7396). Tables have numbers and no verdicts, so there are neither sanity
    checks nor further controls unless the file asks for them.
    """
    return partial(_read_study, path)


def _read_study(path: str, scale: Scale) -> dict[str, Any]:
    full = _HERE / path
    content = read_document(full).content
    if scale == "small":
        content = merge(content, read_document(full.with_stem(f"{full.stem}-small")).content)
    return {"sanity": False, "controls": False, **content}


def merge(content: Any, patch: Any) -> Any:
    """`content` with the changes of a JSON merge patch.

    >>> merge({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None, "e": 3}, "d": [2]})
    {'a': {'c': 2, 'e': 3}, 'd': [2]}
    """
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(content) if isinstance(content, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def read_numbers(path: str, keys: int = 1) -> dict[str, dict[str, float | str]]:
    """The paper's numbers in a CSV file: by the heading of the column, then by row, as `Column.paper` takes them.

    Args:
        path: the file. Its cells are numbers, texts such as "about 2", or empty if the paper has no number.
        keys: how many of the first columns name the row. Several names are joined, as in `"VGG16, GradCAM"`.
    """
    with (_HERE / path).open(encoding="utf-8", newline="") as file:
        headings, *rows = csv.reader(file)
    numbers: dict[str, dict[str, float | str]] = {}
    for place, heading in enumerate(headings[keys:], keys):
        cells = {", ".join(row[:keys]): row[place] for row in rows}
        numbers[heading] = {name: _to_number(cell) for name, cell in cells.items() if cell}
    return numbers


def _to_number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


@lru_cache
def read_departures(path: str) -> dict[str, Callable[[Scale], str]]:
    """What differs from the paper, by part, as `Part.departures` takes it.

    The YAML file has lists of phrases for each part: `small`, `full`, and `both` for both scales.
    """
    parts = read_document(_HERE / path).content
    return {name: partial(_describe_departures, phrases) for name, phrases in parts.items()}


def _describe_departures(phrases: Mapping[str, list[str]], scale: Scale) -> str:
    return "; ".join([*phrases.get(scale, ()), *phrases.get("both", ())])
