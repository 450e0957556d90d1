"""Similarities against SciPy, scikit-image and slow re-implementations, and the contract they all keep."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from refusals import assert_refused
from skimage.metrics import structural_similarity
from torch import Tensor

from standfast import similarity as sim
from standfast.errors import ArgumentError, SecondDerivativeError, StandfastError, UnknownNameError
from standfast.similarity import diverse, rank, rows
from standfast.similarity.rank import RankedReference

NAMES = sim.names()
CORRELATIONS = ["pearson", "cosine", "spearman", "kendall"]
DIFFERENTIABLE = [name for name in NAMES if sim.similarities[name].differentiable]
RANKS = sorted({*NAMES} - {*DIFFERENTIABLE})
DISCREPANCIES = [name for name in NAMES if not sim.similarities[name].larger_is_closer]
# the other where the maps are exchanged
SWAPPED = {
    "lens_precision": "lens_recall",
    "lens_recall": "lens_precision",
}
F32 = torch.finfo(torch.float32)


def pair(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, levels: int = 0
) -> tuple[Tensor, Tensor]:
    """Two correlated maps; with `levels`, of so many distinct values."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(shape, generator=generator, dtype=torch.float64)
    b = 0.6 * a + 0.8 * torch.randn(shape, generator=generator, dtype=torch.float64)
    if levels:
        a, b = ((m * levels / 4).round() for m in (a, b))
    return a.to(dtype), b.to(dtype)


def by_row(function, a: Tensor, b: Tensor) -> Tensor:
    return torch.tensor(
        [function(p, q) for p, q in zip(a.numpy(), b.numpy(), strict=True)], dtype=torch.float64
    )


def close(got: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(got, expected.to(got.dtype), rtol=0, atol=tolerance)


# --- against independent references ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 3, 7, 5), (6, 2, 31), (6, 40), (3, 2), (2, 1, 2, 3, 4)])
def test_pointwise_references(shape):
    a, b = pair(*shape)
    x, y = a.flatten(1), b.flatten(1)
    close(sim.Pearson()(a, b), by_row(lambda p, q: np.corrcoef(p, q)[0, 1], x, y))
    close(
        sim.Cosine()(a, b), by_row(lambda p, q: p @ q / np.linalg.norm(p) / np.linalg.norm(q), x, y)
    )
    close(sim.MSE()(a, b), by_row(lambda p, q: np.mean((p - q) ** 2), x, y))


@pytest.mark.parametrize("levels", [0, 2, 9, 100])
@pytest.mark.parametrize("features", [2, 3, 17, 64, 65, 784])
def test_rank_references(features, levels):
    a, b = pair(24 if features < 9 else 6, features, seed=features, levels=levels)
    varies = ~(sim.is_degenerate(a) | sim.is_degenerate(b))
    a, b = a[varies], b[varies]
    assert len(a) >= 2
    close(sim.Spearman()(a, b), by_row(lambda p, q: scipy.stats.spearmanr(p, q).statistic, a, b))
    close(sim.Kendall()(a, b), by_row(lambda p, q: scipy.stats.kendalltau(p, q).statistic, a, b))


def test_rank_references_on_many_features():
    a, b = pair(1, 50_000, levels=2000)
    close(sim.Spearman()(a, b), by_row(lambda p, q: scipy.stats.spearmanr(p, q).statistic, a, b))
    close(sim.Kendall()(a, b), by_row(lambda p, q: scipy.stats.kendalltau(p, q).statistic, a, b))


@pytest.mark.slow
def test_ranks_of_more_features_than_63_bits_can_sum():
    """Products of doubled ranks sum to F^3 / 3, which is 2^63 at 3.02 million."""
    a = torch.randint(
        0, 400_000, (1, 3 * 2**20), generator=torch.Generator().manual_seed(0)
    ).float()
    b = a + torch.randint(0, 400_000, a.shape, generator=torch.Generator().manual_seed(1))
    reference, row = RankedReference(a), torch.tensor([0])
    expected = scipy.stats.spearmanr(a[0], b[0]).statistic
    assert 0.5 < expected < 0.9
    rho = sim.Spearman()(a, b)
    assert rho.item() == pytest.approx(expected, abs=1e-6)
    assert torch.equal(reference.compare(b, row)[0], rho)
    assert sim.Spearman()(a, a).item() == pytest.approx(1, abs=1e-6)
    assert reference.compare(-a, row)[0].item() == pytest.approx(-1, abs=1e-6)


def test_ends_of_runs_without_asking_how_many_there_are():
    starts = torch.tensor([[1, 0, 0, 1, 0, 1], [1, 1, 1, 0, 0, 0]], dtype=torch.bool)
    first, last = rank._find_ends(starts)
    assert first.tolist() == [[0, 0, 0, 3, 3, 5], [0, 1, 2, 2, 2, 2]]
    assert last.tolist() == [[2, 2, 2, 4, 4, 5], [0, 1, 5, 5, 5, 5]]


def test_sums_of_rank_products_in_halves(monkeypatch):
    """Against Python's integers, with ranks as large as those of 2^30 features."""
    p, q = (
        torch.randint(-(2**30), 2**30, (5, 1001), generator=torch.Generator().manual_seed(s))
        for s in (0, 1)
    )
    monkeypatch.setattr(rank, "SUMMABLE", 1000)
    exact = [
        sum(x * y for x, y in zip(*rows, strict=True))
        for rows in zip(p.tolist(), q.tolist(), strict=True)
    ]
    assert rank._rank_products(p, q).tolist() == pytest.approx(exact, rel=1e-15)
    squares = [sum(x * x for x in row) for row in p.tolist()]
    assert max(squares) > 2**63
    assert rank._rank_products(p, p).tolist() == pytest.approx(squares, rel=1e-15)


def kendall_slowly(x: np.ndarray, y: np.ndarray) -> float:
    dx, dy = (
        np.sign(np.subtract.outer(z, z))[np.triu_indices(len(z), 1)].astype(int) for z in (x, y)
    )
    return float((dx * dy).sum() / math.sqrt((dx != 0).sum() * (dy != 0).sum()))


def spearman_slowly(x: np.ndarray, y: np.ndarray) -> float:
    u, v = ([Fraction(int((z < e).sum() * 2 + (z == e).sum() - len(z))) for e in z] for z in (x, y))
    uv, uu, vv = (
        sum(p * q for p, q in zip(s, t, strict=True)) for s, t in ((u, v), (u, u), (v, v))
    )
    return float(uv) / math.sqrt(uu * vv)


few_values = st.integers(2, 24).flatmap(
    lambda n: hnp.arrays(np.float64, (2, n), elements=st.sampled_from([-2.0, -0.0, 0.0, 1.0, 1.5]))
)


@given(few_values)
@settings(max_examples=100, derandomize=True, deadline=None)
def test_ranks_with_many_ties(maps):
    a, b = torch.from_numpy(maps[:1].copy()), torch.from_numpy(maps[1:].copy())
    if sim.is_degenerate(a) | sim.is_degenerate(b):
        expected_rho = expected_tau = 0.0
    else:
        expected_rho, expected_tau = spearman_slowly(*maps), kendall_slowly(*maps)
    assert sim.Spearman()(a, b).item() == pytest.approx(expected_rho, abs=1e-14)
    assert sim.Kendall()(a, b).item() == pytest.approx(expected_tau, abs=1e-14)


@pytest.mark.parametrize(
    ("k", "count"), [(None, 8), (1, 1), (20, 20), (80, 80), (0.25, 20), (0.001, 1)]
)
@pytest.mark.parametrize("levels", [0, 5])
def test_topk_reference(k, count, levels):
    a, b = pair(6, 10, 8, levels=levels)

    def slowly(p, q):
        first = [set(np.argsort(-m.ravel(), kind="stable")[:count].tolist()) for m in (p, q)]
        return len(first[0] & first[1]) / count

    close(sim.TopKIntersection(k)(a, b), by_row(slowly, a, b))


@pytest.mark.parametrize("window", [3, 7, 11])
@pytest.mark.parametrize(
    "shape", [(3, 1, 28, 28), (3, 3, 12, 17), (3, 2, 40), (3, 40), (2, 2, 11, 12, 13)]
)
@pytest.mark.parametrize("data_range", [None, 2.5])
def test_ssim_reference(shape, window, data_range):
    a, b = pair(*shape)

    def reference(p, q):
        extent = data_range or max(p.max(), q.max()) - min(p.min(), q.min())
        axis = 0 if p.ndim > 1 else None
        return structural_similarity(p, q, win_size=window, data_range=extent, channel_axis=axis)

    close(sim.SSIM(window, data_range)(a, b), by_row(reference, a, b))


@pytest.mark.parametrize("shape", [(3, 2, 12, 17), (3, 30)])
def test_ssim_gaussian_reference(shape):
    a, b = pair(*shape)

    def reference(p, q):
        extent, axis = max(p.max(), q.max()) - min(p.min(), q.min()), 0 if p.ndim > 1 else None
        return structural_similarity(
            p, q, gaussian_weights=True, data_range=extent, channel_axis=axis
        )

    close(sim.SSIM(window=11, gaussian=True)(a, b), by_row(reference, a, b))


def test_ssim_window_shrinks_to_the_side():
    a, b = pair(4, 1, 6, 6)
    torch.testing.assert_close(sim.SSIM(window=9)(a, b), sim.SSIM(window=5)(a, b), rtol=0, atol=0)
    # One row of pixels is a series, a flat map is a series of one channel.
    a, b = pair(4, 1, 1, 20)
    torch.testing.assert_close(sim.SSIM()(a, b), sim.SSIM()(a[:, :, 0], b[:, :, 0]), rtol=0, atol=0)
    torch.testing.assert_close(
        sim.SSIM()(a, b), sim.SSIM()(a.flatten(1), b.flatten(1)), rtol=0, atol=0
    )
    # One pixel: means alone. Means 1 and 3 in the first channel, 0 and 0 in the second, range 3.
    a, b = torch.tensor([[1.0, 0.0]]).view(1, 2, 1, 1), torch.tensor([[3.0, 0.0]]).view(1, 2, 1, 1)
    c1 = (0.01 * 3) ** 2
    close(sim.SSIM()(a, b), torch.tensor([((6 + c1) / (10 + c1) + 1) / 2]), 1e-6)


# --- degenerate maps, extremes of float32, rows that are not finite ----------------------------------------


def test_degenerate():
    step = 2**-23
    maps = torch.tensor(
        [
            [0.0, 0.0, -0.0],
            [0.1, 0.1, 0.1],
            [-3e38, -3e38, -3e38],
            [1.0, 1 + 2 * step, 1 + 4 * step],  # rounding
            [1.0, 1 + 2 * step, 1 + 6 * step],
            [1e-30, 1.1e-30, 1e-30],
            [1e-44, 3e-44, 0.0],
            [-3e38, 3e38, 0.0],
            [math.nan, 1.0, 1.0],
            [math.inf, math.inf, math.inf],
            [1.0, math.inf, 1.0],
        ]
    )
    assert sim.is_degenerate(maps).tolist() == [True] * 4 + [False] * 7
    assert sim.is_degenerate(maps.view(11, 3, 1, 1)).tolist() == [True] * 4 + [False] * 7
    # Neighbouring float16 values differ by rounding only; as float32 values they are distinct.
    half = torch.tensor([[1.0, 1 + 2**-10]], dtype=torch.float16)
    assert sim.is_degenerate(half).item()
    assert not sim.is_degenerate(half.float()).item()


@pytest.mark.parametrize("name", ["pearson", "spearman", "kendall"])
@pytest.mark.parametrize("constant", [0.0, 1.0, -1e-30, 3e38])
def test_constant_maps_correlate_with_nothing(name, constant):
    a, _ = pair(1, 50, dtype=torch.float32)
    c = torch.full_like(a, constant)
    similarity = sim.get(name)
    assert [similarity(*maps).item() for maps in ((a, c), (c, a), (c, c))] == [0, 0, 0]


@pytest.mark.parametrize("name", ["pearson", "spearman", "kendall"])
def test_rounding_correlates_with_nothing(name):
    rounding = 1 + torch.arange(4.0).view(1, 4) * 2**-23
    assert sim.get(name)(rounding, torch.arange(4.0).view(1, 4)).item() == 0


def test_constant_maps_with_other_similarities():
    a, _ = pair(1, 50, dtype=torch.float32)
    zero, one = torch.zeros_like(a), torch.ones_like(a)
    assert [sim.Cosine()(*maps).item() for maps in ((a, zero), (zero, a), (zero, zero))] == [
        0,
        0,
        0,
    ]
    assert sim.Cosine()(one, 5 * one).item() == pytest.approx(1)
    assert [sim.SSIM()(*maps).item() for maps in ((zero, zero), (one, one), (zero, one))] == [
        0,
        0,
        0,
    ]
    assert 0 < abs(sim.SSIM()(a, one).item()) < 0.2
    assert sim.TopKIntersection()(one, zero).item() == 1


@pytest.mark.parametrize("name", [n for n in NAMES if n != "mse"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_size_does_not_matter(name, dtype):
    a, b = pair(5, 1, 12, 12, dtype=dtype)
    largest = torch.finfo(dtype).max
    expected = sim.get(name)(a, b)
    for size in (1e-30, 1e30, largest / 8, torch.finfo(dtype).tiny * 1e6):
        # ssim compares values, so both maps get the same scale; the others are invariant.
        other = size if name == "ssim" else 1.0
        got = sim.get(name)(a * size, b * other)
        torch.testing.assert_close(
            got, expected, rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-13
        )


@pytest.mark.parametrize("name", ["pearson", "spearman", "kendall"])
def test_offset_does_not_matter(name):
    # Multiples of 1/4 below 2 on top of 2**20 and of -3e5 are exact in float32.
    a, b = pair(5, 784, dtype=torch.float32, levels=8)
    a, b = a / 4, b / 4
    torch.testing.assert_close(
        sim.get(name)(a + 2**20, b - 3e5), sim.get(name)(a, b), rtol=0, atol=1e-6
    )


def test_ssim_keeps_small_variations_on_a_large_offset():
    a, b = pair(4, 2, 20, 20, dtype=torch.float32, levels=8)
    offset = 2.0 ** torch.tensor([16, 12]).view(1, 2, 1, 1)  # each channel has its own
    a, b = a / 4 + offset, b / 4 + offset
    exact = sim.SSIM(data_range=2.0)(a.double(), b.double())
    torch.testing.assert_close(sim.SSIM(data_range=2.0)(a, b).double(), exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("data_range", [None, 1e-2, 1e-6])
def test_ssim_of_a_map_with_itself_is_one(data_range):
    """Also where windows are constant, and rounding is larger than the constants of the index."""
    a = torch.rand(6, 1, 20, 20, generator=torch.Generator().manual_seed(0))
    a[..., :12] = a[:, :, :1, :1]
    assert sim.SSIM(data_range=data_range)(a, a.clone()).tolist() == pytest.approx(
        [1.0] * 6, abs=1e-6
    )


def test_pearson_of_one_large_value():
    a, b = pair(4, 784, dtype=torch.float32)
    a[:, 5], b[:, 300] = 1e30, -1e30
    expected = by_row(lambda p, q: np.corrcoef(p, q)[0, 1], a.double(), b.double())
    close(sim.Pearson()(a, b), expected, 1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_equal_and_opposite_maps(name):
    a, _ = pair(300, 1, 9, 9, dtype=torch.float32)
    same = sim.get(name)(a, a.clone())
    if name in DISCREPANCIES:
        assert same.eq(0).all()
        return
    torch.testing.assert_close(same, torch.ones(300), rtol=0, atol=1e-6)
    both = torch.cat((same, sim.get(name)(a, -a)))
    assert both.ge(-1).all()
    assert both.le(1).all()
    if name in CORRELATIONS:
        torch.testing.assert_close(both[300:], -torch.ones(300), rtol=0, atol=1e-6)


def test_mse_extremes():
    one = torch.ones(1, 10)
    close(sim.MSE()(1e-20 * one, 3e-20 * one) * 1e20 * 1e20, torch.tensor([4.0]), 1e-4)
    assert sim.MSE()(1e19 * one, 0 * one).item() == pytest.approx(1e38, rel=1e-6)
    assert sim.MSE()(3e38 * one, -3e38 * one).item() == F32.max  # saturates
    assert sim.MSE()(0 * one, 0 * one).item() == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("everywhere", [False, True])
def test_rows_that_are_not_finite(name, poison, everywhere):
    a, b = pair(6, 1, 9, 9, dtype=torch.float32)
    clean = sim.get(name)(a, b)
    for row, maps in ((1, a), (4, b)):
        maps[row].view(-1)[slice(None) if everywhere else 17] = poison
    a[2], clean[2] = 0, sim.get(name)(0 * a[2:3], b[2:3])[0]
    a[1], b[1] = b[1].clone(), a[1].clone()
    got = sim.get(name)(a, b)
    assert got.isnan().tolist() == [False, True, False, False, True, False]
    kept = ~got.isnan()
    assert torch.equal(got[kept], clean[kept])


@pytest.mark.parametrize("name", NAMES)
def test_not_finite_against_constant(name):
    poisoned, zero = torch.tensor([[1.0, math.nan, 2.0], [1.0, math.inf, 2.0]]), torch.zeros(2, 3)
    assert sim.get(name)(poisoned, zero).isnan().all()
    assert sim.get(name)(zero, poisoned).isnan().all()


# --- the contract ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [*NAMES, "ssim:window=5,gaussian=true", "lens_recall:w=2,diverse=true"]
)
@pytest.mark.parametrize(
    "shape", [(37, 1, 28, 28), (37, 3, 11, 10), (19, 2, 33), (5, 13), (2, 5_001)]
)
@pytest.mark.parametrize("levels", [0, 8])
def test_a_row_does_not_depend_on_its_batch(name, shape, levels):
    similarity = sim.get(name)
    a, b = pair(*shape, dtype=torch.float32, levels=levels)
    whole = similarity(a, b)
    assert whole.shape == shape[:1]
    assert whole.dtype == torch.float32
    for row in range(0, shape[0], 9):
        assert torch.equal(similarity(a[row : row + 1], b[row : row + 1]), whole[row : row + 1])
    assert torch.equal(similarity(a[1:], b[1:]), whole[1:])
    order = torch.randperm(shape[0], generator=torch.Generator().manual_seed(1))
    assert torch.equal(similarity(a[order], b[order]), whole[order])
    if a.ndim == 4:
        strided = [m.contiguous(memory_format=torch.channels_last) for m in (a, b)]
        assert torch.equal(similarity(*strided), whole)


@pytest.mark.parametrize("name", NAMES)
def test_threads_do_not_matter(name):
    a, b = pair(1, 33_001, dtype=torch.float32)  # just enough features for torch.sum to split a row
    alone = sim.get(name)(a, b)
    torch.set_num_threads(2)
    assert torch.equal(sim.get(name)(a, b), alone)


@pytest.mark.parametrize(
    "name", [*RANKS, "lens_recall:w=2,diverse=true", "lens_distance:w=2", "centre_of_mass"]
)
@pytest.mark.parametrize("shape", [(13, 50), (13, 3, 12, 12)])
def test_chunks_do_not_matter(name, shape, monkeypatch):
    a, b = pair(*shape, levels=10)
    whole = sim.get(name)(a, b)
    for elements in (1, 500):
        monkeypatch.setattr(rank, "CHUNK_ELEMENTS", elements)
        monkeypatch.setattr(diverse, "CHUNK_ELEMENTS", elements)
        assert torch.equal(sim.get(name)(a, b), whole)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_left_alone_and_empty_batches_pass(name):
    a, b = pair(4, 2, 8, 8)
    copies = a.clone(), b.clone()
    torch.testing.assert_close(
        sim.get(name)(a, b), sim.get(SWAPPED.get(name, name))(b, a), rtol=0, atol=1e-15
    )
    assert torch.equal(a, copies[0])
    assert torch.equal(b, copies[1])
    assert sim.get(name)(a[:0], b[:0]).shape == (0,)
    assert sim.is_degenerate(a[:0]).shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_a_single_feature(name):
    a, b = torch.tensor([[2.0], [0.0]]), torch.tensor([[3.0], [1.0]])
    one = {key: [1, 1] for key in ("mse", "topk_intersection", "lens_precision", "lens_recall")}
    expected = {"cosine": [1, 0], **one}.get(name, [0, 0])
    assert sim.get(name)(a, b).tolist() == expected


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(name, dtype):
    a, b = (m.to(dtype) for m in pair(4, 1, 10, 10))
    got = sim.get(name)(a, b)
    assert got.dtype == torch.float32
    assert torch.equal(got, sim.get(name)(a.float(), b.float()))
    assert sim.get(name)(a, b.double()).dtype == torch.float64


def test_row_sum():
    for features in (1, 2, 3, 7, 8, 100, 1023):
        x = torch.randint(
            -99, 99, (4, features), generator=torch.Generator().manual_seed(features)
        ).double()
        assert torch.equal(rows.row_sum(x), x.sum(1))
    # Pairwise: a running float32 sum of a million tenths is off by 1%.
    assert rows.row_sum(torch.full((1, 10**6), 0.1)).item() == pytest.approx(1e5, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_row_sum_takes_all_floating_types(dtype):
    x = torch.arange(8.0, dtype=dtype).reshape(2, 4)
    for own in (x, x.clone().requires_grad_(True)):
        total = rows.row_sum(own)
        assert total.dtype == dtype
        assert total.tolist() == [6, 22]


def test_row_sum_has_the_same_bits_in_numpy_and_torch():
    for features in (1, 2, 3, 100, 1023):
        x = pair(5, features, dtype=torch.float32)[0]
        x[0, 0], x[1, -1] = torch.nan, torch.inf
        leaf = x.clone().requires_grad_()
        both = rows.row_sum(x), rows.row_sum(leaf)
        assert not both[0].requires_grad
        assert both[1].requires_grad
        assert torch.equal(both[0][2:], both[1][2:])
        assert [each[:2].isnan().tolist() for each in both] == [[True, False]] * 2
        gradient = torch.autograd.grad(both[1].sum(), leaf)[0]
        assert torch.equal(gradient, torch.ones_like(x))
        # summed by torch
        copies = rows._CACHED_ELEMENTS // x.numel() + 1
        large = x.expand(copies, 5, features).reshape(-1, features)
        assert torch.equal(rows.row_sum(large)[-3:], both[0][-3:])


@pytest.mark.parametrize("name", [*NAMES, "lens_precision:k=5,w=0"])
@pytest.mark.parametrize("count", [1, 3])
def test_prepared_references_have_the_bits_of_a_call(name, count):
    entry = sim.get(name)
    a, b = (entry.of_maps(m) for m in pair(7, 2, 6, 6, dtype=torch.float32))
    b[2], b[3] = 5.0, a[0]
    number = torch.arange(7) % count
    if count > 1:
        a[1] = 1.0
    compare = entry.prepare(a[:count])
    assert torch.equal(compare(b, number), entry(a[number], b))
    assert torch.equal(compare(b[4:5], number[4:5]), entry(a[number[4:5]], b[4:5]))


@pytest.mark.parametrize(
    ("features", "zeros"),
    [(1, 0), (2, 0), (13, 0), (24, 0), (25, 0), (60, 0), (60, 13), (60, 59), (60, 60)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranking_a_reference_once_gives_the_bits_of_spearman(dtype, features, zeros):
    """Also where features are 0 in all maps, which are not sorted."""
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(3, features, generator=generator, dtype=dtype)
    reference[1, : features // 3] = -0.0
    maps = torch.randn(400, features, generator=generator, dtype=dtype)
    maps[1::2] = maps[1::2].round() * 0.0 ** (torch.rand(200, features, generator=generator) < 0.2)
    maps[:, :zeros], maps[20:30] = 0.0, maps[20:30].abs()
    maps[7], maps[8, 0], maps[9, -1], maps[10, 0], maps[11] = (
        1.0,
        torch.nan,
        -torch.inf,
        -torch.nan,
        -0.0,
    )
    numbers = torch.randint(0, 3, (400,), generator=generator)
    ours, constant = RankedReference(reference).compare(maps, numbers)
    assert torch.equal(
        ours.nan_to_num(nan=9), sim.Spearman()(reference[numbers], maps).nan_to_num(nan=9)
    )
    assert torch.equal(constant, (maps == maps[:, :1]).all(1) & maps.isfinite().all(1))


def test_prepared_references_that_are_not_finite_and_maps_of_another_type():
    a, b = pair(3, 9, dtype=torch.float32)
    a[0, 0], b[1, 2] = torch.inf, torch.nan
    for name in ("pearson", "spearman"):
        compare = sim.get(name).prepare(a)
        assert compare(b, torch.arange(3)).isnan().tolist() == [True, True, False]
        with pytest.raises(ArgumentError, match=r"maps: .* as the references"):
            compare(b.double(), torch.arange(3))
    with pytest.raises(ArgumentError, match="shape of a"):
        sim.get("pearson").prepare(a)(b[:, :5], torch.arange(3))


def test_binade():
    sizes = torch.tensor([1.0, 1.99, 2.0, 3e38, 1e-45, F32.tiny, 0.0, math.inf, math.nan])
    assert rows.binade(sizes).tolist() == [1, 1, 2, 2**127, 2**-149, 2**-126, 1, 1, 1]


# --- gradients ---------------------------------------------------------------------------------------------


def test_second_derivatives_of_a_row_sum():
    x = pair(2, 5)[0].requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: rows.row_sum(x * x) ** 2, (x,))


def test_gradients_of_a_prepared_reference():
    a, b = pair(2, 9)
    number = torch.tensor([0, 1, 1])
    b = torch.cat([b, b[:1]]).requires_grad_()
    found = [
        torch.autograd.grad(each.sum(), b)[0]
        for each in (sim.get("pearson").prepare(a)(b, number), sim.Pearson()(a[number], b))
    ]
    assert torch.equal(*found)
    assert bool(found[0].any())


@pytest.mark.parametrize(
    "name", [*DIFFERENTIABLE, "ssim:window=5,gaussian=true", "ssim:data_range=2"]
)
@pytest.mark.parametrize("shape", [(1, 2, 7, 8), (2, 1, 11), (2, 9)])
def test_gradients(name, shape):
    """Along random directions, which takes two calls instead of two for each pixel."""
    a, b = (m.requires_grad_() for m in pair(*shape))
    assert torch.autograd.gradcheck(sim.get(name), (a, b), fast_mode=True)
    assert torch.autograd.gradcheck(sim.get(name), (a * 8 + 24, b), fast_mode=True)


def compare_by_definition(name, a, b):
    """The formulas, for the graph of autograd."""
    a, b = a.flatten(1), b.flatten(1)
    if name == "mse":
        return (a - b).square().mean(1)
    if name == "pearson":
        a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    return (a * b).sum(1) / (a.square().sum(1) * b.square().sum(1)).sqrt()


@pytest.mark.parametrize("name", ["pearson", "cosine", "mse"])
@pytest.mark.parametrize(("size", "offset"), [(1, 0), (1e-3, 2), (1e6, 0)])
def test_closed_gradients_are_those_of_autograd(name, size, offset):
    a, b = ((size * each + offset).requires_grad_() for each in pair(6, 1, 5, 7))
    weight = torch.linspace(-2, 3, 6, dtype=torch.float64)
    ours = torch.autograd.grad((weight * sim.get(name)(a, b)).sum(), (a, b))
    theirs = torch.autograd.grad((weight * compare_by_definition(name, a, b)).sum(), (a, b))
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-7, atol=1e-9 * float(other.abs().max()))
        assert bool(other.any())


def test_closed_gradients_refuse_a_second_derivative():
    a, b = (m.requires_grad_() for m in pair(2, 4))
    (first,) = torch.autograd.grad(sim.Pearson()(a, b).sum(), b, create_graph=True)
    with pytest.raises(SecondDerivativeError):
        torch.autograd.grad(first.sum(), b)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_finite(name):
    a, b = pair(8, 1, 8, 8, dtype=torch.float32)
    a[0], b[1], a[2], b[2], a[3], b[3], b[4] = 0, 0, 0, 0, 1, 1, a[4]
    a[5], b[5] = a[5] * 1e-20, b[5] * 1e-20
    a[6], b[6] = a[6] * 1e18, b[6] * 1e18
    a[7].view(-1)[3] = math.nan
    a.requires_grad_()
    b.requires_grad_()
    sim.get(name)(a, b)[:7].sum().backward()
    assert a.grad[:7].isfinite().all()
    assert b.grad[:7].isfinite().all()
    if name == "pearson":
        assert a.grad[:4].eq(0).all()
    assert a.grad[5].ne(0).any()


@pytest.mark.parametrize("name", RANKS)
def test_ranks_carry_no_gradient(name):
    a, b = (m.requires_grad_() for m in pair(2, 9))
    assert not sim.get(name)(a, b).requires_grad


# --- the registry ------------------------------------------------------------------------------------------


def test_names_and_defaults():
    for name in NAMES:
        entry = sim.get(name)
        assert entry.name == name
        assert (entry.low, entry.high) == ((None, None) if name in DISCREPANCIES else (0.4, 0.6))


def test_get_with_options():
    a, b = pair(3, 1, 12, 12)
    cases = {
        "topk_intersection:k=100": sim.TopKIntersection(k=100),
        "topk_intersection:k=0.3": sim.TopKIntersection(k=0.3),
        "ssim:window=5": sim.SSIM(window=5),
        "ssim: window=9, gaussian=true, data_range=3e0": sim.SSIM(
            window=9, gaussian=True, data_range=3.0
        ),
    }
    for text, expected in cases.items():
        entry = sim.get(text)
        assert entry == expected
        assert entry.name == text
        assert sim.get(expected.name) == entry
        assert torch.equal(entry(a, b), expected(a, b))
        assert not torch.equal(entry(a, b), sim.get(text.partition(":")[0])(a, b))
        assert torch.equal(pickle.loads(pickle.dumps(entry))(a, b), entry(a, b))
    assert sim.get(entry) is entry


def test_a_class_of_ones_own():
    class Bad(sim.Similarity):
        name = "bad"
        value: object = 1.0

        def compare(self, a, b):
            return (a - b).sum() if self.value == 1.0 else self.value

    bad = Bad()
    with pytest.raises(ArgumentError, match=r"'bad'.*one number per row, shape \(2,\), got \(\)"):
        bad(torch.zeros(2, 3), torch.ones(2, 3))
    Bad.value = 2.0
    with pytest.raises(ArgumentError, match="got float"):
        bad(torch.zeros(2, 3), torch.ones(2, 3))
    with pytest.raises(StandfastError, match="'bad' has no rule for a part of a map"):
        bad.compare_masked(torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([[True, False]]))
    with pytest.raises(TypeError, match="abstract"):
        type("Nothing", (sim.Similarity,), {"name": "nothing"})()


def test_get_errors():
    for text in (
        "topk_intersection:kk=3",
        "ssim:k=3",
        "mse:k=3",
        "ssim:window",
        "ssim:window=",
        "ssim:window=wide",
        7,
    ):
        with pytest.raises(ArgumentError):
            sim.get(text)
    with pytest.raises(UnknownNameError, match="did you mean 'pearson'"):
        sim.get("pearsn")
    with pytest.raises(ArgumentError, match="expected a name or a Similarity"):
        sim.get(sim.Pearson().compare)


# --- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_input_errors(name):
    ones, compare = torch.ones(2, 3), sim.get(name)
    assert_refused(
        lambda b: compare(ones, b),
        b=[torch.ones(2, 4), ones[:1], ones.to(torch.complex64), ones.to("meta")],
    )
    assert_refused(
        lambda a: compare(a, a), a=[ones[:, 0], ones[:, :0], ones.long(), np.ones((2, 3))]
    )


def test_option_errors():
    wrong = [0, -1, 7, 0.0, 1.0, 1.5, math.nan, True, "3"]
    ones = torch.ones(2, 6)
    assert_refused(lambda k: sim.TopKIntersection(k)(ones, ones), k=wrong)
    assert_refused(sim.SSIM, window=[4, 1, 7.0], data_range=[0.0, math.inf, math.nan], gaussian=[1])
    assert_refused(lambda a: sim.SSIM()(a, a), a=[torch.ones(1, 2, 3, 4, 5, 6)])


def test_ssim_of_any_data_range_is_finite():
    a, b = pair(3, 1, 9, 9, dtype=torch.float32)
    a[:, :, :8], b[:, :, :8] = 0, 0
    for size in (1e-30, 1.0, 1e30):
        for data_range in (1e-300, 1e-30, 1e30, 1e300):
            values = sim.SSIM(data_range=data_range)(a * size, b * size)
            assert values.isfinite().all()
            assert values.abs().le(1).all()
