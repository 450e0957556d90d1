"""No number moves unnoticed: see `golden.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from defaults import FILE, find_changes, list_defaults

from golden import (
    ALL_GROUPS,
    BATCH_SIZES,
    GROUPS,
    compare,
    compute,
    compute_all,
    find_moves,
    find_renamed,
    list_cases,
)

CASES = {
    (group, name): case for group in GROUPS for name, case in list_cases(group, Path()).items()
}

EVENTS = ("changed_explanation", "changed_class", "misclassification")
REGIONS = ("LinfBall", "L2Ball", "Rotation")


def split_name(name: str) -> list[str]:
    """Metric, search or method, event and neighbourhood of a case that has all of them."""
    words = name.removesuffix(" on conv").split()
    return words if len(words) == 4 and words[2] in EVENTS and words[3] in REGIONS else []


WAYS = sorted({words[1] for _, name in CASES if (words := split_name(name))})


def is_quick(name: str) -> bool:
    """A third of the cases with a search, an event and a neighbourhood: each two of these meet in one of them.

    A search of a grid takes only some neighbourhoods, so all of its cases run.
    """
    words = split_name(name)
    if not words:
        return True
    _, way, event, region = words
    return way == "grid" or (WAYS.index(way) + EVENTS.index(event) + REGIONS.index(region)) % 3 == 0


def mark_slow_cases() -> list[Any]:
    return [
        pytest.param(group, name, marks=[] if is_quick(name) else [pytest.mark.slow])
        for group, name in CASES
    ]


@pytest.mark.parametrize(("group", "name"), mark_slow_cases())
def test_numbers_are_those_recorded(group: str, name: str) -> None:
    assert compare(group, {name: compute(CASES[group, name])}) == []


@pytest.mark.parametrize("group", GROUPS)
def test_everything_is_recorded(group: str) -> None:
    assert find_renamed(group, [name for own, name in CASES if own == group]) == []


@pytest.mark.slow
def test_malformed_study_files_end_as_recorded() -> None:
    found = compute_all("broken_studies")
    assert [*find_renamed("broken_studies", found), *compare("broken_studies", found)] == []


@pytest.mark.slow
@pytest.mark.parametrize("group", ALL_GROUPS)
def test_numbers_do_not_depend_on_the_batch_size(group: str) -> None:
    assert compare(group, compute_all(group, BATCH_SIZES[1])) == []


def test_a_number_that_moved_is_found() -> None:
    old = {"searches": False, "bits": {"value": "a"}, "values": {"value": [1.0, "nan"]}}
    bits, little, much = (
        {**old, "bits": {"value": "b"}, "values": {"value": [v, "nan"]}} for v in (1.0, 1.0001, 1.1)
    )
    assert find_moves(old, old, same_machine=True) == []
    assert [len(find_moves(new, old, same_machine=True)) for new in (bits, little, much)] == [
        1,
        1,
        1,
    ]
    assert [len(find_moves(new, old, same_machine=False)) for new in (bits, little, much)] == [
        0,
        0,
        1,
    ]
    assert find_moves(much, {**old, "searches": True}, same_machine=False) == []
    assert len(find_moves({"refused": "ModelError"}, old, same_machine=False)) == 1


def test_no_default_changes_under_the_same_version() -> None:
    now, recorded = list_defaults(), json.loads(FILE.read_text())
    assert find_changes(now, recorded) == []
    changed = {
        **now,
        "metric worst_case": {
            "version": 1,
            "defaults": {**now["metric worst_case"]["defaults"], "seed": "x"},
        },
    }
    assert find_changes(changed, recorded)
    changed["metric worst_case"]["version"] = 2
    assert find_changes(changed, recorded) == []
