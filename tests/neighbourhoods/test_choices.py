"""What neighbourhoods say of their candidates: every perturbed input that they can make comes of one, and no other."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import Tensor

from standfast.neighbourhoods import (
    JPEG,
    Casing,
    Compose,
    Deletion,
    LinfBall,
    Punctuation,
    Rotation,
    TableChanges,
    TokenSwaps,
    Typos,
)
from standfast.neighbourhoods.base import Neighbourhood
from standfast.neighbourhoods.text import TextChange, Word, decode_word, encode_word

TABLE = {"dull": ["boring", "flat"], "film": ["movie"], "plot": ["story", "tale", "line"]}


def encode(*words: str) -> Tensor:
    return torch.tensor([[encode_word(Word(word, " ")) for word in words]], dtype=torch.float64)


def read(row: Tensor) -> tuple[str, ...]:
    return tuple(decode_word(code).text for code in row.tolist())


def list_all(
    neighbourhood: Neighbourhood, inputs: Tensor, bounds: tuple[float, float] | None = None
) -> list[Tensor]:
    """All perturbed inputs of each input, by its candidates."""
    region = neighbourhood.around(inputs, bounds)
    choices = region.choices
    assert choices is not None
    assert bool(choices.complete.all())
    count = int(choices.combinations.max())
    points = choices.place(choices.list_combinations(0, count)).to(region.dtype)
    assert bool(region.contains(points).all()) or not region.is_plain
    return [region.perturb(points[row], torch.full((count,), row)) for row in range(len(inputs))]


def candidates_of(change: TextChange, word: str) -> list[str]:
    return (
        [word, *dict.fromkeys(other for other in change.candidates(word) if other != word)]
        if word
        else [word]
    )


@pytest.mark.parametrize(
    "change",
    [
        TokenSwaps(table=TABLE, rate=0.3),
        Typos(rate=0.9),
        Casing(),
        Punctuation(),
        Deletion(rate=0.5),
    ],
)
def test_each_candidate_of_each_word_comes_once(change: TextChange) -> None:
    words = ("Dull", "film", ".", "plot")
    (rows,) = list_all(change, encode(*words))
    expected = set(itertools.product(*(candidates_of(change, word) for word in words)))
    texts = [read(row) for row in rows]
    assert set(texts) == expected
    assert len(texts) == len(expected)


@pytest.mark.parametrize(
    "parts", [(Casing(), Typos()), (TokenSwaps(table=TABLE), Casing()), (Deletion(), Casing())]
)
def test_changes_of_texts_after_each_other_reach_all_that_they_can_make(
    parts: tuple[TextChange, ...],
) -> None:
    words = ("dull", "film")
    (rows,) = list_all(Compose(parts), encode(*words))
    reached = [candidates_of(parts[0], word) for word in words]
    reached = [
        [last for word in options for last in candidates_of(parts[1], word)] for options in reached
    ]
    assert {read(row) for row in rows} == set(itertools.product(*reached))


def test_what_cannot_be_listed_is_not_complete() -> None:
    rows = torch.tensor([[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]])
    parts = (
        TableChanges({"x0": "category"}, data=rows),
        TableChanges({"x1": {"by": 2, "step": 1}}, data=rows),
    )
    choices = Compose(parts).around(rows).choices
    assert choices is not None
    assert choices.counts.tolist() == [[3, 5]] * 3
    assert not choices.complete.any()


def test_without_candidates_there_are_none() -> None:
    images, rows = torch.rand(2, 1, 4, 4), torch.rand(2, 3)
    assert LinfBall(0.1).around(images).choices is None
    assert Rotation(10).around(images, (0.0, 1.0)).choices is None
    assert TableChanges(1.0).around(rows).choices is None
    mixed = TableChanges({"x0": 1.0, "x1": "category"}, data=rows).around(rows).choices
    assert mixed is not None
    assert mixed.counts.tolist() == [[0, 2]] * 2
    assert mixed.combinations.isinf().all()


def test_jpeg_has_its_whole_qualities() -> None:
    image = torch.rand(1, 1, 16, 16)
    (files,) = list_all(JPEG((40, 60)), image, (0.0, 1.0))
    region = JPEG((40, 60)).around(image, (0.0, 1.0))
    assert len(files) == 21
    for quality, file in zip(range(40, 61), files, strict=True):
        assert torch.equal(
            file, region.perturb(torch.tensor([[float(quality)]]), torch.tensor([0]))[0]
        )
    single = JPEG((50, 50)).around(image, (0.0, 1.0)).choices
    assert single is not None
    assert single.combinations.tolist() == [1]


def as_rows(rows: Tensor) -> set[tuple[float, ...]]:
    return set(map(tuple, rows.round(decimals=4).tolist()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [None, 0.05])
def test_all_categories_of_the_data_are_reached(rate: float | None, dtype: torch.dtype) -> None:
    """Also one of 300 rows; whole numbers stop at the bounds, and steps may be any number."""
    chance = random.Random(0)
    data = torch.tensor(
        [[chance.choice([0, 0, 0, 1, 2]), 5 * chance.random(), 7.0] for _ in range(300)],
        dtype=dtype,
    )
    data[0, 0] = 9
    changes = {
        "a": {"categories": "data", "rate": rate},
        "b": {"by": (-0.5, 1), "step": 0.25},
        "c": {"by": 3, "step": 1},
    }
    table = TableChanges(changes, columns=("a", "b", "c"), data=data)
    clean = data[:3]
    for own, rows in zip(clean.tolist(), list_all(table, clean, (0.0, 9.0)), strict=True):
        numbers = [own[1] + 0.25 * step for step in range(-2, 5) if 0 <= own[1] + 0.25 * step <= 9]
        wholes = [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
        expected = torch.tensor(
            list(itertools.product([0.0, 1.0, 2.0, 9.0], numbers, wholes)), dtype=dtype
        )
        assert as_rows(rows) == as_rows(expected)


@pytest.mark.parametrize(("rate", "values"), [(1e-3, 5), (1e-6, 5), (1e-6, 60), (1e-7, 5)])
def test_very_rare_categories_of_float32_are_reached(rate: float, values: int) -> None:
    """Of 100,000 rows, all but one for each category have the first one."""
    data = torch.cat([torch.zeros(100_000), torch.arange(float(values))])[:, None]
    table = TableChanges({"x0": {"categories": "data", "rate": rate}}, data=data)
    for rows in list_all(table, data[-2:]):
        assert sorted(rows[:, 0].tolist()) == list(range(values))


def test_very_rare_losses_of_float32_are_reached() -> None:
    data = torch.tensor([[0.0], [1.0]])
    table = TableChanges({"x0": "category"}, data=data, missing=(-9.0,), may_become_missing=1e-8)
    (rows,) = list_all(table, data[:1], (-9.0, 3.0))
    assert as_rows(rows) == {(-9.0,), (0.0,), (1.0,)}


def test_what_can_be_listed_does_not_depend_on_other_texts() -> None:
    change = Compose((Typos(shortest=5), Typos(shortest=5), TokenSwaps(table={"dull": ["flat"]})))
    texts = torch.cat(
        [
            encode("dull", "of"),
            encode("dull", "extraordinary"),
            encode("incomprehensibilities", "of"),
        ]
    )
    together = change.around(texts).choices
    assert together is not None
    for row in range(3):
        alone = change.around(texts[row : row + 1]).choices
        assert alone is not None
        assert torch.equal(alone.complete[0], together.complete[row])
        assert torch.equal(alone.counts[0], together.counts[row])
    assert bool(together.complete[0])


def test_a_missing_cell_and_a_number_without_room_stay() -> None:
    data = torch.tensor([[0.0, 5.0], [1.0, 6.0], [-2.0, 5.0]], dtype=torch.float64)
    table = TableChanges(
        {"x0": "category", "x1": {"by": 1, "step": 1}}, data=data, missing=(-2.0, None)
    )
    choices = table.around(data, (-2.0, 6.0)).choices
    assert choices is not None
    assert choices.counts.tolist() == [[3, 2], [2, 2], [3, 1]]


def test_one_hot_groups_choose_among_their_columns() -> None:
    codes = torch.eye(4)
    numbers = torch.arange(4.0)[:, None]
    table = TableChanges({"kind": "category"}, one_hot={"kind": ("x0", "x1", "x2", "x3")})
    for rows in list_all(table, torch.cat([codes, numbers], 1)):
        assert as_rows(rows[:, :4]) == as_rows(codes)


def test_cells_may_be_lost() -> None:
    data = torch.tensor([[0.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    table = TableChanges(
        {"x0": {"by": 1, "step": 1}, "x1": "category"},
        data=data,
        missing=(-9.0, -8.0),
        may_become_missing=0.2,
    )
    (rows,) = list_all(table, data[:1], (-9.0, 3.0))
    assert as_rows(rows) == set(itertools.product([-9.0, 0.0, 1.0], [-8.0, 1.0, 2.0]))


def test_rules_leave_all_rows_that_keep_them() -> None:
    table = TableChanges(
        {"a": {"by": 3, "step": 1}, "b": {"by": 3, "step": 1}},
        columns=("a", "b"),
        rules=("a <= b",),
    )
    (rows,) = list_all(table, torch.tensor([[2.0, 3.0]]))
    pairs = itertools.product(range(-1, 6), range(7))
    assert as_rows(rows) == {(float(a), float(b)) for a, b in pairs if a <= b}


def test_with_a_copula_only_categories_have_candidates() -> None:
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(50, 3, generator=generator)
    data[:, 2] = torch.arange(50) % 3
    changes = {"x0": 1.0, "x1": {"by": 2, "step": 0.5}, "x2": "category"}
    choices = TableChanges(changes, data=data, prior="copula").around(data[:2]).choices
    assert choices is not None
    assert choices.counts.tolist() == [[0, 0, 3]] * 2
