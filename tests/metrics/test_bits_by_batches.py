"""The same bits for every batch size, order and part of the samples: of every metric, with cases drawn by hypothesis.

Explainers and searches have the same test: `tests/explainers/test_same_bits.py`, `tests/algorithms/searches`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from light import light_metric

import standfast
from standfast.testing import SHAPES, small_net

#: samples, of which two are equal
COUNT = 5
#: where a batch is cut into parts that are evaluated one after the other
cuts = st.sets(st.integers(1, COUNT - 1), max_size=3).map(sorted)


def evaluate(name: str, shape: str, batch_size: int, rows: Sequence[int]) -> pl.DataFrame:
    """All columns of the samples, without their numbers."""
    x = torch.rand(COUNT, *SHAPES[shape], generator=torch.Generator().manual_seed(1))
    x[4] = x[1]
    model = standfast.Model(
        small_net(SHAPES[shape]), (0.0, 1.0), device="cpu", batch_size=batch_size
    )
    result = light_metric(name)(
        model, "saliency", x[list(rows)], generator=torch.Generator().manual_seed(3)
    )
    return result.frame().drop("sample")


@cache
def evaluate_all(name: str, shape: str) -> pl.DataFrame:
    return evaluate(name, shape, 64, range(COUNT))


@pytest.mark.parametrize("name", standfast.metrics.names())
@settings(derandomize=True, max_examples=3, deadline=None, database=None)
@given(st.sampled_from(sorted(SHAPES)), st.integers(8, 300), st.permutations(range(COUNT)), cuts)
def test_a_result_depends_on_its_sample_alone(
    name: str, shape: str, batch_size: int, order: list[int], cuts: list[int]
) -> None:
    parts = [
        evaluate(name, shape, batch_size, order[first:last])
        for first, last in pairwise([0, *cuts, len(order)])
    ]
    whole = evaluate_all(name, shape)
    assert pl.concat(parts).equals(whole[order])
    assert whole[1].equals(whole[4])
