"""Which stored results are found again: those whose numbers stayed the same, and no others."""

from __future__ import annotations

import pytest
import torch

from standfast.metrics import MaxSensitivity, Metric, MisinterpretationProbability, WorstCase
from standfast.neighbourhoods import (
    JPEG,
    Casing,
    Compose,
    LinfBall,
    Rotation,
    TableChanges,
    TokenSwaps,
    Typos,
)
from standfast.study.identity import Description
from standfast.study.store import digest

ROWS = torch.tensor([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])
SWAPS = TokenSwaps(table={"dull": ["boring"]})
CATEGORIES = TableChanges({"a": "category", "b": 1.0}, columns=("a", "b"), data=ROWS)

#: as stores have them that were written when searches knew only the ends of a parameter
FOUND_AGAIN: dict[str, tuple[Metric, str]] = {
    "a ball": (WorstCase(LinfBall(0.1)), "a1a35ec53e62cf69"),
    "an angle": (WorstCase(Rotation(10)), "5fc3beaff2276add"),
    "numbers": (WorstCase(TableChanges({"a": 2.0}, columns=("a", "b"))), "e7e8950c73363077"),
    "words by block search": (WorstCase(SWAPS, search="block"), "55ea0be0d1881643"),
    "words by random search": (WorstCase(SWAPS, search="random"), "249a48307b5bb3f2"),
    "sensitivity to words": (MaxSensitivity(SWAPS), "6807a474157db0c5"),
    "sensitivity to categories": (MaxSensitivity(CATEGORIES), "69c4a001e10ede8a"),
    "probability among words": (MisinterpretationProbability(SWAPS), "13013d98d735959a"),
}
COMPUTED_ANEW: dict[str, tuple[Metric, str]] = {
    "words": (WorstCase(SWAPS), "4a972b9ca24a9613"),
    "categories": (WorstCase(CATEGORIES), "e3b22a090acc3286"),
    "steps": (
        WorstCase(TableChanges({"a": {"by": 2, "step": 1}}, columns=("a", "b"))),
        "1b0aa3c742cb4993",
    ),
    "qualities": (WorstCase(JPEG()), "26ca0124c6af2a69"),
    "words after words": (WorstCase(Compose([Casing(), Typos()])), "571ea707e40a1034"),
    "a witness among words": (
        MisinterpretationProbability(SWAPS, from_event=True),
        "61e587990c28f68e",
    ),
}


@pytest.mark.parametrize(("metric", "stored"), FOUND_AGAIN.values(), ids=FOUND_AGAIN)
def test_what_did_not_move_is_found_again(metric: Metric, stored: str) -> None:
    assert digest(Description(metric).content) == stored


@pytest.mark.parametrize(("metric", "stored"), COMPUTED_ANEW.values(), ids=COMPUTED_ANEW)
def test_worst_cases_among_candidates_are_computed_anew(metric: Metric, stored: str) -> None:
    assert digest(Description(metric).content) != stored
