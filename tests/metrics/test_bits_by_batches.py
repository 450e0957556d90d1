"""The same bits for every batch size, order and part of the samples: of every metric on every shape.

Explainers and searches have the same test: `tests/explainers/test_same_bits.py`, `tests/algorithms/searches`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import polars as pl
import pytest
import torch
from light import light_metric

import standfast
from standfast.testing import SHAPES, small_net

#: samples, of which two are equal
COUNT = 5


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


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("name", standfast.metrics.names())
def test_a_result_depends_on_its_sample_alone(name: str, shape: str) -> None:
    draw = random.Random(f"{name} on {shape}")
    order = draw.sample(range(COUNT), COUNT)
    cuts = sorted(draw.sample(range(1, COUNT), 2))
    batch_size = draw.randint(8, 60)
    parts = [
        evaluate(name, shape, batch_size, order[first:last])
        for first, last in pairwise([0, *cuts, COUNT])
    ]
    whole = evaluate(name, shape, 64, range(COUNT))
    assert pl.concat(parts).equals(whole[order])
    assert whole[1].equals(whole[4])
