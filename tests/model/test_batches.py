"""How rows are cut into chunks and padded, against a slow count of every case."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.model import ROW_ALIGNMENT
from standfast.model.batches import Chunks, count_fitting, divide_up

CPU = torch.device("cpu")


@pytest.mark.parametrize("rows_per_input", [1, 3, 8, 20, 100])
def test_padded_chunks_are_the_smallest_whose_rows_have_the_same_bits(rows_per_input: int) -> None:
    chunks = Chunks.plan(400, rows_per_input, batches=1, needs_bits=True)
    least = -(-16 // rows_per_input)
    multiple = -(-8 // rows_per_input)
    for count in range(1, 60):
        slow = next(
            padded for padded in range(count, 400) if padded >= least and padded % multiple == 0
        )
        padded = count + chunks.count_copies(count, CPU)
        assert padded == slow
        assert padded * rows_per_input >= 2 * ROW_ALIGNMENT


def test_without_bits_only_a_single_row_gets_a_copy() -> None:
    chunks = Chunks.plan(400, 1, batches=1, needs_bits=False)
    assert [chunks.count_copies(count, CPU) for count in (1, 2, 3, 17)] == [1, 0, 0, 0]


def test_halving_ends_at_one_row_without_padding() -> None:
    chunks = Chunks.plan(64, 1, batches=2, needs_bits=True)
    sizes = []
    while chunks.rows > 1:
        chunks = chunks.halve()
        sizes.append(chunks.rows)
        assert chunks.batches == 1
        assert chunks.rows >= chunks.least
    assert sizes == [16, 8, 4, 2, 1]  # the first halves one of two batches of 32 rows
    assert chunks.count_copies(1, CPU) == 0


def test_rows_that_fit_are_a_power_of_two_between_two_ends() -> None:
    numbers = [count_fitting(size, CPU, "forward") for size in (1, 4096, 5000, 16 << 20, 1 << 30)]
    assert numbers == [8192, 4096, 2048, 16, 16]


def test_a_quotient_is_rounded_up() -> None:
    assert [divide_up(number, 4) for number in (1, 4, 5, 8)] == [1, 1, 2, 2]


def test_variants_of_a_model_share_what_was_learned_of_batches_and_warned_of() -> None:
    model = standfast.Model(nn.Linear(4, 3), (0.0, 1.0), device="cpu")
    variant = model.with_reference(torch.rand(9, 4))
    assert variant is not model
    assert model.reference is None
    variant.row_budget(torch.zeros(1, 4), count=10**6)
    assert model._budgets == variant._budgets != {}
    with pytest.warns(UserWarning, match="twice"):
        variant.warn_once("this is not said twice")
    model.warn_once("this is not said twice")


def test_a_call_within_a_function_of_rows_does_not_count() -> None:
    model = standfast.Model(nn.Linear(4, 3), (0.0, 1.0), device="cpu", batch_size=16)
    counts: list[int] = []

    def ask_twice(x: Tensor) -> tuple[Tensor, ...]:
        return model.map_rows(lambda rows: (model.forward(rows),), x)

    with model.watch(counts.append), model.session():
        model.map_rows(ask_twice, torch.rand(20, 4), evaluations=3)
    assert counts == [48, 12]


@pytest.mark.parametrize("name", ["Model", "BlackBox", "Composition", "ForwardWrapper"])
def test_classes_are_found_where_earlier_pickles_look_for_them(name: str) -> None:
    """A class is pickled by its module and its name."""
    assert pickle.loads(f"cstandfast.model\n{name}\n.".encode()) is getattr(standfast.model, name)
