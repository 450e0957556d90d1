"""How plausible rows are: against scikit-learn's neighbours, and uniform for rows of the data's own distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.neighbors import NearestNeighbors

from standfast.errors import ArgumentError
from standfast.neighbourhoods import TableChanges, measure_plausibility
from standfast.neighbourhoods.plausibility import _measure_distances, measure_nearest
from standfast.records import Background


def make_rows(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, 3, generator=generator)
    return z * torch.tensor([1.0, 100.0, 0.01]) + z[:, :1]


def test_against_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    data, rows = make_rows(80, 0), make_rows(30, 1)
    scale = data.double().std(0).numpy()
    search = NearestNeighbors(n_neighbors=2, algorithm="brute").fit(data.double().numpy() / scale)
    expected, _ = search.kneighbors(rows.double().numpy() / scale)
    # chunks of seven rows
    monkeypatch.setattr("standfast.neighbourhoods.plausibility._PAIRS", 80 * 7)
    np.testing.assert_allclose(
        measure_nearest(rows, Background(data)).numpy(), expected[:, 0], rtol=1e-6
    )
    own = search.kneighbors(data.double().numpy() / scale)[0][:, 1]
    share = [(own >= d).mean() for d in expected[:, 0]]
    np.testing.assert_allclose(measure_plausibility(rows, data).numpy(), share, atol=1e-12)
    assert measure_plausibility(data, data).tolist() == [1.0] * 80
    assert measure_plausibility(rows + 1e4, data).tolist() == [0.0] * 30
    alone = torch.cat([measure_plausibility(row[None], data) for row in rows])
    assert torch.equal(alone, measure_plausibility(rows, data))


def test_rows_of_the_same_distribution_have_uniform_figures() -> None:
    # of which 2000 are measured
    figures = measure_plausibility(make_rows(400, 3), make_rows(3000, 2))
    assert stats.kstest(figures.numpy(), "uniform").pvalue > 1e-3
    wide = measure_plausibility(make_rows(400, 3) * 1.5, make_rows(3000, 2))
    assert float(wide.median()) < 0.4


def test_categories_count_one_each() -> None:
    data = torch.tensor([[0.0, 1, 0, 94105], [2.0, 0, 1, 94106], [4.0, 0, 1, 94106]])
    groups = ((1, 2), (3,))
    row = torch.tensor([[0.0, 0, 1, 94105]])
    distance = _measure_distances(row.double(), data.double(), groups)
    # the standard deviation of the first column is 2
    np.testing.assert_allclose(distance[0].numpy(), [1.0, 2**0.5, 5**0.5], rtol=1e-12)


def test_what_does_not_fit() -> None:
    with pytest.raises(
        ArgumentError, match="data: expected a table .n, F. of at least two rows, got shape .1, 3."
    ):
        measure_plausibility(torch.zeros(1, 3), torch.zeros(1, 3))
    with pytest.raises(
        ArgumentError,
        match="data: expected a table with the 2 columns of the inputs, got 3 columns",
    ):
        measure_plausibility(torch.zeros(1, 2), torch.zeros(4, 3))
    with pytest.raises(ArgumentError, match="inputs: expected rows of a table"):
        measure_plausibility(torch.zeros(1, 3, 1), torch.zeros(4, 3))


def test_missing_cells_count_as_another_category_does() -> None:
    """By a slow sum over pairs: a missing cell has no distance from a number, and no part in standard deviations."""
    rng = np.random.default_rng(0)
    data, rows = rng.normal(5, 2, (30, 2)), rng.normal(5, 2, (6, 2))
    data[::4, 0] = rows[::2, 0] = -100.0
    data[1, 0] = -200.0  # another kind of missing cell, such as NaN beside null
    scale = [data[data[:, 0] > -50, 0].std(ddof=1), data[:, 1].std(ddof=1)]
    expected = np.full(len(rows), np.inf)
    for number, row in enumerate(rows):
        for other in data:
            squared = ((row[1] - other[1]) / scale[1]) ** 2
            if min(row[0], other[0]) > -50:
                squared += ((row[0] - other[0]) / scale[0]) ** 2
            else:
                squared += float(row[0] != other[0])
            expected[number] = min(expected[number], np.sqrt(squared))
    found = measure_nearest(
        torch.from_numpy(rows), Background(torch.from_numpy(data)), (), (-100.0, -np.inf)
    )
    np.testing.assert_allclose(found, expected)
    shares = measure_plausibility(
        torch.from_numpy(data[:3]), torch.from_numpy(data), (), (-100.0, -np.inf)
    )
    assert shares.tolist() == [1.0, 1.0, 1.0]


def test_codes_of_a_frame_are_no_distances_where_they_do_not_change() -> None:
    """Rows are as plausible whatever the number of a fixed category is."""
    rng = np.random.default_rng(0)
    x, kind = rng.normal(size=60), rng.integers(0, 5, 60)
    figures = []
    for order in (np.arange(5), np.array([3, 0, 4, 1, 2])):
        data = torch.from_numpy(np.stack([x, order[kind].astype(float)], axis=1))
        changes = TableChanges({"x": 0.5}, columns=("x", "kind"), data=data, codes=(0, 5))
        figures.append(
            changes.measure_plausibility(data[:5], data[:5] + torch.tensor([[0.3, 0.0]]).double())
        )
    assert torch.equal(figures[0], figures[1])
    with pytest.raises(ArgumentError, match="3 in codes"):
        TableChanges({"x": 0.5}, columns=("x", "kind"), codes=(0, 5, 0))
