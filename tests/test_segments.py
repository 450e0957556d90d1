"""Segments: label maps without gaps, of each sample alone, of any input."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

import standfast
from standfast.metrics import DataSensitivityConsistency
from standfast.segments import LabelMap, Segments, make_grid, segment


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def assert_whole(cut: Segments) -> None:
    """Every sample has all labels from 0 to its count."""
    for labels, count in zip(cut.labels, cut.count, strict=True):
        assert torch.equal(labels.unique(), torch.arange(int(count)))
        assert 3 <= count <= cut.width


@pytest.mark.parametrize(
    ("shape", "how", "count"),
    [
        ((3, 28, 28), "grid", 16),
        ((1, 32, 32), "grid", 20),
        ((1, 8, 8), "grid", 9),
        ((2, 5, 6, 7), "auto", 8),
        ((2, 100), "windows", 20),
        ((2, 100), "grid", 20),
        ((1, 7), "auto", 7),
        ((1, 10), 4, 4),
        ((12,), "auto", 12),
        ((12,), "columns", 12),
        ((200,), "columns", 64),
        ((200,), 10, 10),
    ],
)
def test_regular_segments(shape: tuple[int, ...], how: str | int, count: int) -> None:
    cut = segment(rand(2, *shape), how)  # type: ignore[arg-type]
    assert_whole(cut)
    assert cut.count.tolist() == [count] * len(cut.labels)
    assert cut.width == count
    assert not cut.fallback.any()
    sizes = torch.bincount(cut.labels[0].flatten())
    assert sizes.max() <= 3 * sizes.min()


def test_grid_cells_are_boxes() -> None:
    labels = make_grid((28, 28), 16)
    assert labels[0, 0] == 0
    assert labels[27, 27] == 15
    assert make_grid((30, 10), 3).max() == 2
    for label in range(16):
        rows, columns = np.nonzero(labels == label)
        assert len(rows) == 49
        assert (np.ptp(rows), np.ptp(columns)) == (6, 6)


def test_superpixels_of_digits(digits: standfast.data.Dataset) -> None:
    x = digits.inputs[:12]
    cut = segment(x)
    assert_whole(cut)
    assert not cut.fallback.any()
    assert 13 <= cut.count.double().mean() <= 17  # the paper's 15
    alone = segment(x[5:6])
    assert torch.equal(alone.labels[0], cut.labels[5])
    assert alone.width == cut.width
    assert torch.equal(segment(x.flip(0), "slic").labels.flip(0), cut.labels)
    # they follow the strokes: brightness differs less within them than within a grid's cells
    regular = segment(x, "grid")

    def within(labels: Tensor) -> float:
        flat = [(i[0].flatten(), row.flatten()) for i, row in zip(x, labels, strict=True)]
        return sum(
            float(torch.stack([v[r == k].var() * (r == k).sum() for k in r.unique()]).sum())
            for v, r in flat
        )

    assert within(cut.labels) < 0.9 * within(regular.labels)


def test_superpixels_of_colour() -> None:
    x = torch.zeros(1, 3, 32, 32)
    x[:, 0, :, :16], x[:, 2, :, 16:] = 0.8, 0.8
    cut = segment(x + 0.05 * rand(1, 3, 32, 32), 20)
    assert_whole(cut)
    for label in range(int(cut.count[0])):  # none reaches over the border of the colours
        columns = (cut.labels[0] == label).nonzero()[:, 1]
        assert columns.max() < 16 or columns.min() >= 16


def test_images_without_superpixels_get_a_grid() -> None:
    x = torch.stack(
        [
            torch.full((1, 28, 28), 0.5),
            torch.zeros(1, 28, 28),
            standfast.data.bundled("digits").inputs[0],
        ]
    )
    cut = segment(x)
    assert cut.fallback.tolist() == [True, True, False]
    assert torch.equal(cut.labels[0], torch.from_numpy(make_grid((28, 28), 15)))
    noise = segment(rand(3, 3, 32, 32))
    assert noise.fallback.all()
    assert_whole(noise)


def test_given_labels() -> None:
    x = rand(2, 1, 4, 4)
    labels = torch.tensor([[7, 7, 3, 3], [7, 7, 3, 3], [9, 9, 3, 3], [9, 9, 9, 9]])
    cut = segment(x, labels)
    assert cut.labels[0].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [2, 2, 0, 0], [2, 2, 2, 2]]
    assert torch.equal(cut.labels[0], cut.labels[1])
    each = torch.stack([labels, torch.arange(16).reshape(4, 4)])
    cut = segment(x, each)
    assert cut.count.tolist() == [3, 16]
    assert cut.width == 16
    assert_whole(cut)
    assert segment(
        rand(2, 6), torch.tensor([0, 0, 1, 1, 2, 2], dtype=torch.uint8)
    ).count.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("inputs", "how", "match"),
    [
        (rand(2, 1, 8, 8), "slik", "segments: expected 'auto'"),
        (rand(2, 1, 8, 8), 2, "at least 3"),
        (rand(2, 1, 8, 8), "windows", "cuts images, got 'windows'"),
        (rand(2, 12), "slic", "cuts flat features, got 'slic'"),
        (rand(2, 1, 8, 8), torch.zeros(8, 9, dtype=torch.int64), r"shape \(8, 8\) or \(2, 8, 8\)"),
        (rand(2, 1, 8, 8), torch.zeros(8, 8, dtype=torch.int64), "at least 3 different labels"),
        (rand(2, 6), torch.tensor([0.0, 1.0, 2.0]), "torch.float32"),
        (rand(2, 6), torch.tensor([0, -1, 2]), "values from -1"),
        (rand(2, 2), "auto", "at least 3 features"),
    ],
)
def test_segments_that_do_not_fit(inputs: Tensor, how: object, match: str) -> None:
    with pytest.raises(standfast.ArgumentError, match=match):
        segment(inputs, how)  # type: ignore[arg-type]


def test_a_label_map_is_an_option_like_any_other() -> None:
    labels = torch.arange(64).reshape(8, 8) // 16
    metric = DataSensitivityConsistency(segments=labels)
    assert metric == DataSensitivityConsistency(segments=labels.to(torch.int32))
    assert metric != DataSensitivityConsistency(segments=labels.T)
    assert hash(metric) == hash(DataSensitivityConsistency(segments=labels.clone()))
    assert json.loads(json.dumps(metric.options()))["segments"]["shape"] == [8, 8]
    assert isinstance(metric.segments, LabelMap)
    again = pickle.loads(pickle.dumps(metric))
    assert torch.equal(again.segments.tensor, labels)
    labels[:] = 0  # a copy was taken
    assert metric.segments.tensor.max() == 3
