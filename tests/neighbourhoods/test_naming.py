"""Labels of neighbourhoods, and neighbourhoods from the options that metrics store."""

from __future__ import annotations

import json

import pytest
import torch

from standfast.metrics.base import plain
from standfast.neighbourhoods import (
    JPEG,
    Brightness,
    Casing,
    Compose,
    Corruption,
    Deletion,
    L2Ball,
    LinfBall,
    MotionBlur,
    Neighbourhood,
    Rotation,
    TableChanges,
    TimeShift,
    Typos,
)
from standfast.neighbourhoods.naming import label_neighbourhood, label_neighbourhoods, read_stored
from standfast.study.file.options import neighbourhood_from, to_plain

LABELS = {
    "linf 0.1": LinfBall(0.1),
    "l2 2, distribution truncated normal, sigma 0.5": L2Ball(2, "truncated_normal", 0.5),
    "rotation 10": Rotation(10),
    "rotation 0 to 10": Rotation((0, 10)),
    "rotation exactly 10": Rotation((10, 10)),
    "rotation 10, align no": Rotation(10, align=False),
    "jpeg 30 to 90": JPEG((30, 90)),
    "motion blur 0 to 5": MotionBlur(5),
    "time shift 3, fill zeros": TimeShift(3, fill="zeros"),
    "corruption motion blur": Corruption("motion_blur"),
    "corruption motion blur, severity 2 to 4": Corruption("motion_blur", (2, 4)),
    "rotation 10 + brightness 0.1": Compose((Rotation(10), Brightness(0.1))),
    "typos 0.2": Typos(0.2),
    "deletion 0.3 + casing 0.1": Compose((Deletion(0.3), Casing())),
    "table 2%": TableChanges("2%"),
    "table x0 2%, x1 2 step 1, rules x0 <= x1": TableChanges(
        {"x0": "2%", "x1": {"by": 2, "step": 1}}, rules=("x0 <= x1",)
    ),
}
ROWS = torch.arange(12.0).reshape(6, 2)
WITH_ARRAYS = {
    "table any, own data, prior copula": TableChanges("any", data=ROWS, prior="copula"),
    "table x0 2, x1 categories data, own data": TableChanges(
        {"x0": 2, "x1": "category"}, data=ROWS
    ),
}


@pytest.mark.parametrize("label", LABELS)
def test_a_label_has_the_options_that_are_given(label: str) -> None:
    assert label_neighbourhood(LABELS[label]) == label


@pytest.mark.parametrize("value", LABELS.values(), ids=str)
def test_stored_and_plain_options_give_the_neighbourhood_back(value: Neighbourhood) -> None:
    assert read_stored(json.loads(json.dumps(plain(value)))) == value
    assert neighbourhood_from(json.loads(json.dumps(to_plain(value)))) == value


@pytest.mark.parametrize("label", WITH_ARRAYS)
def test_arrays_are_not_stored_but_all_words_are_there(label: str) -> None:
    value = WITH_ARRAYS[label]
    stored = read_stored(json.loads(json.dumps(plain(value))))
    assert stored is not None
    assert label_neighbourhood(value) == label_neighbourhood(stored) == label
    assert stored.describe() == value.describe()


def test_what_is_not_known_here_is_none() -> None:
    for stored in (
        None,
        "far",
        {},
        {"transformation": "Wobble", "by": 3},
        {"transformation": "Rotation", "turns": 3},
    ):
        assert read_stored(stored) is None
    # a part of a plug-in that is not there
    parts = [{"transformation": "Wobble", "by": 3}]
    assert (
        read_stored({"transformation": "Compose", "parts": parts, "distribution": "uniform"})
        is None
    )


def test_labels_of_several_differ() -> None:
    close = [Rotation(10), Rotation(10.0000001), Brightness(0.1)]
    assert label_neighbourhoods(close) == ["rotation 10", "rotation 10 (2)", "brightness 0.1"]
    assert label_neighbourhoods(close[:1]) == [""]
