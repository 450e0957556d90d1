"""How plausible rows are: against scikit-learn's neighbours, and uniform for rows of the data's own distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.neighbors import NearestNeighbors

from standfast.errors import ArgumentError
from standfast.neighbourhoods import measure_plausibility
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
    monkeypatch.setattr("standfast.neighbourhoods.plausibility._PAIRS", 80 * 7)  # chunks of seven rows
    np.testing.assert_allclose(measure_nearest(rows, Background(data)).numpy(), expected[:, 0], rtol=1e-6)
    own = search.kneighbors(data.double().numpy() / scale)[0][:, 1]
    share = [(own >= d).mean() for d in expected[:, 0]]
    np.testing.assert_allclose(measure_plausibility(rows, data).numpy(), share, atol=1e-12)
    assert measure_plausibility(data, data).tolist() == [1.0] * 80
    assert measure_plausibility(rows + 1e4, data).tolist() == [0.0] * 30
    alone = torch.cat([measure_plausibility(row[None], data) for row in rows])
    assert torch.equal(alone, measure_plausibility(rows, data))


def test_rows_of_the_same_distribution_have_uniform_figures() -> None:
    figures = measure_plausibility(make_rows(400, 3), make_rows(3000, 2))  # of which 2000 are measured
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
    with pytest.raises(ArgumentError, match="data: expected a table .n, F. of at least two rows, got shape .1, 3."):
        measure_plausibility(torch.zeros(1, 3), torch.zeros(1, 3))
    with pytest.raises(ArgumentError, match="data: expected a table with the 2 columns of the inputs, got 3 columns"):
        measure_plausibility(torch.zeros(1, 2), torch.zeros(4, 3))
    with pytest.raises(ArgumentError, match="inputs: expected rows of a table"):
        measure_plausibility(torch.zeros(1, 3, 1), torch.zeros(4, 3))
