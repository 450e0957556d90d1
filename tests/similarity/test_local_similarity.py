"""LENS, diverse sets and the centre of mass, against sets of indices written from the paper, SciPy and enumeration."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
import set_based_lens as slow
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from standfast import similarity as sim
from standfast.errors import ArgumentError
from standfast.similarity import diverse, profile

MAPS = [(13, 11), (9, 16), (1, 12), (40,), (3,)]


def pair(
    *shape: int, seed: int = 0, levels: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Two correlated maps; with `levels`, they have few distinct values and many ties."""
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    b = 0.6 * a + 0.8 * b
    if levels:
        a, b = ((m * levels / 4).round() for m in (a, b))
    return a.to(dtype), b.to(dtype)


def indices(mask: Tensor) -> list[int]:
    return mask.flatten().nonzero()[:, 0].tolist()


small = st.tuples(st.integers(1, 7), st.integers(1, 7)) | st.tuples(st.integers(1, 12))
tied = st.sampled_from([-2.0, -0.0, 0.0, 0.5, 1.0])
few_maps = small.flatmap(
    lambda shape: hnp.arrays(np.float64, (3, *shape), elements=tied | st.floats(-3, 3))
)
quick = settings(max_examples=100, derandomize=True, deadline=None)


# --- windows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", MAPS)
@pytest.mark.parametrize("w", [0, 1, 2, 3, 6, 100])
def test_dilation_is_the_union_of_windows(shape, w):
    mask = torch.rand(5, *shape, generator=torch.Generator().manual_seed(w)) < 0.05
    mask[0].view(-1)[0] = True
    for row, found in zip(mask, sim.dilate(mask, w), strict=True):
        chosen = np.array(indices(row), dtype=int)
        assert indices(found) == (slow.windows(chosen, shape, w).tolist() if len(chosen) else [])


def test_windows_end_at_the_border():
    """On flat indices, as in the authors' script, they wrap round to the next row, and position 0 is lost."""
    mask = torch.zeros(3, 4, 5, dtype=torch.bool)
    mask[0, 1, 4] = mask[1, 0, 0] = mask[2, 3, 0] = True
    found = [indices(row) for row in sim.dilate(mask, 1)]
    assert found == [[3, 4, 8, 9, 13, 14], [0, 1, 5, 6], [10, 11, 15, 16]]
    a, b = torch.zeros(2, 2, 4, 5)
    a[0, 1, 4], b[0, 2, 0] = 1, 1  # neighbours by flat index, at opposite borders
    a[1, 0, 0], b[1, 1, 1] = 1, 1  # position 0
    assert sim.LensPrecision(k=1, w=1)(a, b).tolist() == [0, 1]
    assert sim.LensRecall(k=1, w=1)(a, b).tolist() == [0, 1]
    a[0, 2, 0] = 0.5  # second, and not barred by the first
    assert indices(sim.top_k_diverse(a, 2, w=1)[0]) == [9, 10]


@pytest.mark.parametrize("shape", MAPS)
@pytest.mark.parametrize("w", [0, 1, 2, 5, 30])
def test_smoothing(shape, w):
    a = (pair(4, *shape)[0] * 8).round()  # whole numbers: sums are exact
    expected = np.stack([slow.smoothed(row, w) for row in a.numpy()])
    assert torch.equal(sim.smooth(a, w), torch.from_numpy(expected))
    torch.testing.assert_close(
        sim.smooth(a.float(), w).double(), torch.from_numpy(expected), rtol=1e-6, atol=1e-7
    )


def test_smoothing_keeps_zeros_and_large_values():
    a = torch.zeros(3, 12, 12)
    a[0, 3, 3], a[1, 0, 0], a[2] = 1e30, 3e38, 3e38
    found = sim.smooth(a, 1)
    assert (found[0] != 0).sum() == 9
    assert found[1, 0, 0].item() == pytest.approx(3e38 / 9, rel=1e-6)
    assert found[2, 5, 5].item() == pytest.approx(3e38, rel=1e-6)
    assert found[2, 0, 0].item() == pytest.approx(3e38 * 4 / 9, rel=1e-6)
    assert sim.smooth(a.half() * 0 + 1, 1).dtype == torch.float32
    assert torch.autograd.gradcheck(lambda m: sim.smooth(m, 2), pair(2, 4, 5)[0].requires_grad_())


def test_channels():
    a, _ = pair(3, 4, 5, 6)
    found = {how: sim.per_position(a, how) for how in ("abs_sum", "sum", "max")}
    torch.testing.assert_close(found["abs_sum"], a.abs().sum(1))
    torch.testing.assert_close(found["sum"], a.sum(1))
    assert torch.equal(found["max"], a.abs().amax(1))
    assert sim.per_position(a[:, :, 0]).shape == (3, 6)
    assert sim.per_position(a[:, 0, 0]) is not None
    assert torch.equal(sim.per_position(a[:, 0, 0], "sum"), a[:, 0, 0])
    strided = a.contiguous(memory_format=torch.channels_last)
    assert all(torch.equal(sim.per_position(strided, how), found[how]) for how in found)


# --- sets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("levels", [0, 6])
def test_ranking(dtype, levels):
    a, _ = pair(20, 300, levels=levels, dtype=dtype)
    a[0, :8] = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 3e4, -3e4, -0.0, 0.0])
    a[1] = 0
    assert torch.equal(
        diverse.rank_positions(a),
        (a.double() + 0.0).sort(dim=1, descending=True, stable=True).indices,
    )
    for k in (1, 7, 299, 300):
        chosen = sim.top_k(a, k)
        assert torch.equal(chosen.sum(1), torch.full((20,), k))
        assert indices(chosen[0]) == sorted(diverse.rank_positions(a)[0, :k].tolist())


@given(few_maps, st.integers(0, 4), st.integers(1, 12))
@quick
def test_greedy_sets(maps, w, k):
    """The compiled walk, the rounds and the set differences of the paper choose the same, ties included."""
    shape = maps.shape[1:]
    k = min(k, math.prod(shape))
    a = torch.from_numpy(maps)
    order = diverse.rank_positions(a.flatten(1))
    walked = diverse.pick_positions(order, a.shape[1:], k, w)
    assert w == 0 or torch.equal(diverse._rounds(order, a.shape[1:], k, w), walked)
    by_slices = np.full((len(a), k), math.prod(shape))
    diverse._walk_by_slices(
        order.numpy(), *(shape if len(shape) == 2 else (1, *shape)), w, by_slices
    )
    assert torch.equal(torch.from_numpy(by_slices), walked)
    chosen = sim.top_k_diverse(a, k, w)
    for row, picked, mask in zip(maps, walked.tolist(), chosen, strict=True):
        expected = slow.diverse(slow.order_of(row), shape, k, w).tolist()
        assert picked == expected + [math.prod(shape)] * (k - len(expected))
        assert indices(mask) == sorted(expected)


@pytest.mark.parametrize("levels", [0, 4])
@pytest.mark.parametrize("w", [1, 3])
def test_greedy_sets_of_large_maps(levels, w):
    a, _ = pair(3, 50, 61, levels=levels, dtype=torch.float32)
    a[2] = 0  # the longest chains of positions that wait for each other
    order = diverse.rank_positions(a.flatten(1))
    whole = diverse.pick_positions(order, a.shape[1:], 500, w)
    assert torch.equal(diverse._rounds(order, a.shape[1:], 500, w), whole)
    assert (whole[:, -1] < 50 * 61).all() == (w == 1)
    for k in (1, 50, 499):  # nested
        assert torch.equal(diverse.pick_positions(order, a.shape[1:], k, w), whole[:, :k])
    for mask in sim.top_k_diverse(a, 500, w):
        i, j = mask.nonzero().T
        distance = torch.maximum((i[:, None] - i).abs(), (j[:, None] - j).abs()) + 1000 * torch.eye(
            len(i)
        )
        assert distance.min() > w
        assert len(i) == 500 or sim.dilate(mask[None], w).all()  # no further position would fit


@pytest.mark.parametrize("levels", [0, 3])
def test_the_beginning_of_a_ranking_of_large_maps(levels, monkeypatch):
    """Ties, zeros of either sign, and maps where more positions are passed than were ranked at first."""
    a, b = pair(4, 100, 110, levels=levels, dtype=torch.float32)
    rows, columns = torch.meshgrid(torch.arange(100.0), torch.arange(110.0), indexing="ij")
    # the largest positions lie in few windows
    a[1] = -(rows - 50).square() - (columns - 50).square()
    a[2] = torch.where(a[2] > 0, 0.0, -0.0)
    x = a.flatten(1)
    for most in (1, 30, 5000, 11_000):
        assert torch.equal(diverse.rank_positions(x, most), diverse.rank_positions(x)[:, :most])
    ten = diverse.pick_from_maps(a, 10, [4])[4]
    assert torch.equal(ten, diverse.pick_positions(diverse.rank_positions(x), a.shape[1:], 10, 4))
    found = sim.lens_profile(a, b, [10, 700], [0, 1, 4])
    monkeypatch.setattr(diverse, "_LARGE_MAP", 1 << 30)
    whole = sim.lens_profile(a, b, [10, 700], [0, 1, 4])
    monkeypatch.setattr(profile, "compile_overlaps", lambda: None)
    slowly = sim.lens_profile(a, b, [10, 700], [0, 1, 4])
    for name in ("intersection", "precision", "recall", "precision_diverse", "recall_diverse"):
        assert torch.equal(getattr(found, name), getattr(whole, name))
        assert torch.equal(getattr(found, name), getattr(slowly, name))


def test_no_maps_have_no_numbers():
    none = torch.zeros(0, 100, 100)
    assert sim.top_k_diverse(none, 50, 1).shape == none.shape
    assert diverse.rank_positions(none.flatten(1), 50).shape == (0, 50)


def test_maps_with_nan_have_no_beginning_of_a_ranking():
    a, b = pair(3, 100, 110, dtype=torch.float32)
    a[0] = torch.nan
    a[1, 3, 3] = torch.nan
    found = sim.LensPrecision(k=50, w=2, diverse=True)(a, b)
    assert found.isnan().tolist() == [True, True, False]


def test_rows_that_are_not_finite_choose_nothing():
    a = pair(3, 5, 5)[0]
    a[0, 1, 1], a[1, 2, 2] = math.nan, -math.inf
    for mask in (sim.top_k(a, 3), sim.top_k_diverse(a, 3)):
        assert mask.flatten(1).sum(1).tolist() == [0, 0, 3]


# --- overlaps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", MAPS)
@pytest.mark.parametrize(("levels", "dtype"), [(0, torch.float32), (4, torch.float64)])
def test_overlaps_of_sets(shape, levels, dtype):
    a, b = pair(6, *shape, levels=levels, dtype=dtype)
    positions = math.prod(shape)
    for k, w in itertools.product({1, positions // 5 or 1, positions}, (0, 1, 2, 20)):
        expected = np.array(
            [slow.profile(p, q, k, [w]) for p, q in zip(a.numpy(), b.numpy(), strict=True)]
        )[:, :, 0]
        found = [
            [
                kind(k, w, diverse_only)(a, b)
                for kind in (sim.TopKIntersection, sim.LensPrecision, sim.LensRecall)
            ]
            for diverse_only in (False, True)
        ]
        got = torch.stack([torch.stack(kind, dim=1) for kind in found], dim=1)
        torch.testing.assert_close(got.double(), torch.from_numpy(expected), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shape", [(13, 11), (40,), (3, 8, 9)])
def test_the_profile_gives_the_numbers_of_the_single_functions(shape):
    a, b = pair(7, *shape, levels=9, dtype=torch.float32)
    a[3], b[4], a[5].view(-1)[2] = 0, 0, math.nan
    ks, ws = (1, 7, 0.3, 30), (2, 0, 1)
    found = sim.lens_profile(a, b, ks, ws)
    assert found.k == (1, 7, round(0.3 * math.prod(shape[-2:])), 30)
    assert found.w == ws
    assert found.precision[5].isnan().all()
    same = {"rtol": 0, "atol": 0, "equal_nan": True}
    for (i, k), (j, w) in itertools.product(enumerate(ks), enumerate(ws)):
        torch.testing.assert_close(found.intersection[:, i], sim.TopKIntersection(k)(a, b), **same)
        for name, diverse_only in itertools.product(("precision", "recall"), (False, True)):
            single = getattr(sim, f"Lens{name.title()}")(k, w, diverse_only)(a, b)
            torch.testing.assert_close(
                getattr(found, name + "_diverse" * diverse_only)[:, i, j], single, **same
            )
        single = sim.TopKIntersection(k, diverse=True, w=w)(a, b)
        torch.testing.assert_close(found.intersection_diverse[:, i, j], single, **same)
    plain = sim.lens_profile(a, b, ks, ws, diverse=False)
    assert plain.recall_diverse is None
    torch.testing.assert_close(plain.recall, found.recall, **same)


def test_fewer_than_k_fit():
    a, b = torch.tensor([[5.0, 4, 3, 2, 1]]), torch.tensor([[4.0, 5, 3, 2, 1]])
    # of a 0, 2 and 4 fit with w = 1, of b only 1 and 3
    assert sim.TopKIntersection(k=4, diverse=True, w=1)(a, b).item() == 0
    assert sim.LensPrecision(k=4, w=1, diverse=True)(a, b).item() == 1
    assert sim.TopKIntersection(k=4, diverse=True, w=1)(a, a).item() == 1
    b = torch.tensor([[5.0, 1, 3, 4, 2]])  # 0 and 3
    # w is 1 by default
    assert sim.TopKIntersection(k=4, diverse=True)(a, b).item() == pytest.approx(1 / 3)
    assert sim.LensRecall(k=4, w=1, diverse=True)(a, b).item() == 1


@pytest.mark.parametrize("diverse_only", [False, True])
def test_distance_is_the_mean_over_k_and_w(diverse_only):
    a, b = pair(5, 12, 12)
    every = [
        2 - sim.LensPrecision(k, w, diverse_only)(a, b) - sim.LensRecall(k, w, diverse_only)(a, b)
        for k, w in itertools.product((3, 10, 0.5), (0, 2))
    ]
    found = sim.LensDistance((3, 10, 0.5), (0, 2), diverse_only)(a, b)
    torch.testing.assert_close(found, torch.stack(every).mean(0), rtol=0, atol=1e-12)
    assert torch.equal(sim.LensDistance()(a, b), sim.LensDistance()(b, a))


# --- ties, and the authors' script -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "k", "w", "levels"), [((9, 10), 8, 1, 3), ((12, 12), 30, 1, 2), ((14, 13), 6, 2, 0)]
)
def test_the_authors_sets_are_those_of_their_script(shape, k, w, levels):
    """Step by step; with few candidates left, position 0 among the largest, and maps of zeros."""
    a, b = pair(8, *shape, levels=levels)
    a[0] = 0
    a[1, 0, 0], b[2, 0, 0], b[3, 0, 1], a[3, 0, 0] = 99, 99, 99, 98
    expected = np.array(
        [slow.authors_shares(p, q, k, w) for p, q in zip(a.numpy(), b.numpy(), strict=True)]
    )
    kinds = (sim.TopKIntersection, sim.LensRecall, sim.LensPrecision)
    for place, (spread, kind) in enumerate(itertools.product((False, True), kinds)):
        found = kind(k, w, spread, protocol="authors")(a, b)
        assert found.tolist() == pytest.approx(expected[:, place].tolist(), abs=1e-12)
    assert sim.get(f"lens_recall:k={k},w={w},protocol=authors")(a, b).tolist() == pytest.approx(
        expected[:, 1].tolist()
    )


def test_the_order_of_equal_values():
    a, b = torch.zeros(2, 3, 6, 6)
    a[:, 2, :3] = torch.tensor([3.0, 2.0, 1.0])
    b[:, 2, 1:4] = torch.tensor([3.0, 2.0, 1.0])
    by_position, at_random = (sim.top_k(a, 7, ties=ties) for ties in ("position", "random"))
    assert indices(by_position[0]) == [0, 1, 2, 3, 12, 13, 14]
    assert set(indices(at_random[0])) > {12, 13, 14}
    assert torch.equal(at_random[0], at_random[2]), "the same order for every map"
    assert not torch.equal(at_random, by_position)
    spread = sim.top_k_diverse(a, 9, w=1, ties="random")[0]
    assert {12, 14} < set(indices(spread))
    assert spread.sum() <= 9
    assert sim.TopKIntersection(7, ties="random")(a, a).tolist() == [1, 1, 1]
    for spread_out in (False, True):
        few, many = (
            sim.LensRecall(k, diverse=spread_out, ties="undefined")(a, b)
            for k in (2 if spread_out else 3, 7)
        )
        assert many.isnan().all(), "zeros fill the set"
        expected = sim.LensRecall(2 if spread_out else 3, diverse=spread_out)(a, b)
        assert torch.equal(few, expected)
    with pytest.raises(
        ArgumentError, match="ties: expected one of position, random, undefined, got 'first'"
    ):
        sim.top_k(a, 7, ties="first")
    with pytest.raises(ArgumentError, match="protocol=authors has a rule of its own"):
        sim.get("lens_recall:protocol=authors,ties=random")
    with pytest.raises(ArgumentError, match="w: expected 1, 2 or 3"):
        sim.get("lens_recall:protocol=authors,diverse=true,w=4")


# --- chance ------------------------------------------------------------------------------------------------


def unrelated(a: np.ndarray, rng: np.random.Generator) -> Tensor:
    """The map with its values on random places of its support."""
    drawn = np.zeros_like(a)
    drawn[a != 0] = rng.permutation(a[a != 0])
    return torch.from_numpy(drawn)[None]


CHANCES = [
    "topk_intersection:k=20",
    "lens_precision:k=20,w=1",
    "lens_recall:k=20,w=2",
    "lens_recall:k=20,w=1,ties=random",
    "lens_precision:k=8,w=1,diverse=true",
    "lens_spearman:w=1",
    "lens_recall:k=20,w=1,protocol=authors",
]


@pytest.mark.parametrize("name", CHANCES)
def test_chance_is_the_mean_of_random_maps(name):
    """Plain Monte Carlo: whole maps, a large and a small support, and a support that zeros have to fill up."""
    a, b = pair(4, 9, 10)
    a, b = a.abs(), b.abs()
    mask = torch.rand(2, 9, 10, generator=torch.Generator().manual_seed(1))
    a[1] *= mask[0] < 0.6
    b[1] *= mask[1] < 0.3
    a[2] *= mask[0] < 0.1
    b[3] = b[3].where(mask[0] < 0.5, -b[3])  # negative values are never among the largest
    similarity, rng = sim.get(name), np.random.default_rng(0)
    level = sim.get(name).chance(a, b, draws=64)
    for row in range(4):
        drawn = [
            torch.cat([unrelated(m[row].numpy(), rng) for _ in range(400)]) for m in (a, b)
        ]  # the similarity itself is tested above
        values = similarity(*drawn)
        error = (values.std() / 20).item()
        assert (
            abs(level.value[row] - values.mean()) < 4 * math.hypot(error, level.error[row]) + 1e-9
        )
    exact = not any(word in name for word in ("diverse", "spearman", "authors"))
    assert (level.error[:3] == 0).all() == exact
    assert (level.error[:3].max() < 0.03).item()
    alone = similarity.chance(a[1:3], b[1:3], draws=64)
    assert torch.equal(alone.value, level.value[1:3])


def test_chance_of_whole_maps_is_hypergeometric():
    a, b = (m.abs() for m in pair(2, 6, 7))
    windows = [len(slow.window(p, (6, 7), 1)) for p in range(42)]
    expected = 1 - sum(math.comb(42 - n, 5) / math.comb(42, 5) for n in windows) / 42
    assert sim.get("lens_recall:k=5,w=1").chance(a, b).value.tolist() == pytest.approx(
        [expected] * 2, abs=1e-12
    )
    assert sim.get("topk_intersection:k=5").chance(a, b).value.tolist() == pytest.approx(
        [5 / 42] * 2, abs=1e-12
    )
    assert sim.get("pearson").chance(a, b) is None
    assert sim.get("lens_distance:k=5").chance(a, b) is None
    a[1] = torch.nan
    assert sim.get("lens_recall:k=5,w=1").chance(a, b).value.isnan().tolist() == [False, True]


def test_equal_values_at_the_limit_are_simulated():
    """They are ordered by position, so the set is no random subset of the support."""
    a = torch.zeros(1, 5, 5)
    a[0, :2] = 1
    level = sim.get("topk_intersection:k=4").chance(a, a, draws=8)
    assert level.value.item() == 1, "all values are equal, so that every draw is the map itself"
    assert level.error.item() == 0


def test_values_are_corrected_for_chance():
    value, chance = torch.tensor([0.7, 0.4, 1.0, 0.98]), torch.tensor([0.4, 0.7, 0.4, 0.97])
    found = sim.correct_for_chance(value, chance)
    assert found[:3].tolist() == pytest.approx([0.5, -1.0, 1.0])
    assert found[3].isnan()


# --- rank correlations of smoothed maps --------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(13, 11), (1, 12), (40,)])
@pytest.mark.parametrize("w", [0, 1, 3])
def test_correlations_of_smoothed_maps(shape, w):
    a, b = ((m * 3).round() for m in pair(4, *shape))  # whole numbers, so that the ties are exact
    for ours, theirs in (
        (sim.LensSpearman, scipy.stats.spearmanr),
        (sim.LensKendall, scipy.stats.kendalltau),
    ):
        rows = [
            (slow.smoothed(p, w).ravel(), slow.smoothed(q, w).ravel())
            for p, q in zip(a.numpy(), b.numpy(), strict=True)
        ]
        expected = [theirs(p, q).statistic for p, q in rows]
        torch.testing.assert_close(
            ours(w)(a, b), torch.tensor(expected, dtype=a.dtype), rtol=0, atol=1e-12
        )


def test_maps_that_order_nothing():
    a, _ = pair(4, 6, 6)
    flat = torch.ones_like(a)
    flat[1] = 0
    flat[2, 3, 3] = math.nan
    for kind in (sim.LensSpearman, sim.LensKendall):
        values = kind()(a, flat)
        assert values[[0, 1, 3]].tolist() == [0, 0, 0]
        assert values[2].isnan()
        # every window holds the whole map
        assert kind(w=50)(a, a[[1, 2, 3, 0]]).tolist() == [
            0,
            0,
            0,
            0,
        ]


def test_kendall_of_large_maps_in_bounded_memory():
    """In a process of its own, whose peak is its own: a byte for each pair of 227 x 227 pixels would take 2.6 GB.

    Plain sets need no compiled code either, and nothing imports numba before it is needed.
    """
    code = """
import resource, sys, torch
from standfast.similarity import LensKendall, LensPrecision
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
torch.set_num_threads(1)
a, b = torch.randn(2, 4, 227, 227)
LensKendall()(a[:, :9, :9], b[:, :9, :9])
before = peak()
LensKendall()(a, b)
grown = peak() - before
LensPrecision()(a, b)
print(grown >> 20, "numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, compiled = done.stdout.split()
    assert int(grown) < 150
    assert compiled == "False"


# --- the centre of mass ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", MAPS)
def test_mass_centre(shape):
    a, b = pair(5, *shape)
    expected = np.array([scipy.ndimage.center_of_mass(np.abs(row)) for row in a.numpy()])
    torch.testing.assert_close(sim.mass_centre(a), torch.from_numpy(expected), rtol=0, atol=1e-12)
    for size in (1e-300, 1e300):
        torch.testing.assert_close(
            sim.mass_centre(a * size), torch.from_numpy(expected), rtol=0, atol=1e-12
        )
    torch.testing.assert_close(
        sim.CentreOfMass()(a, b),
        (sim.mass_centre(a) - sim.mass_centre(b)).norm(dim=1),
        rtol=0,
        atol=1e-12,
    )
    assert sim.CentreOfMass()(a, a).eq(0).all()


@pytest.mark.parametrize("shape", [(4, 5), (9,)])
def test_gradients_of_the_mass_centre(shape):
    a, b = (m.requires_grad_() for m in pair(2, *shape))
    assert torch.autograd.gradcheck(sim.mass_centre, a)
    assert torch.autograd.gradcheck(sim.CentreOfMass(), (a, b))


def test_mass_centre_of_maps_without_one():
    a = torch.zeros(4, 3, 6)
    a[1], a[2, 0, 0], a[3, 2, 5] = 7, math.inf, -1
    a.requires_grad_()
    centres = sim.mass_centre(a)
    assert centres[[0, 1, 3]].tolist() == [[1, 2.5], [1, 2.5], [2, 5]]
    assert centres[2].isnan().all()
    sim.CentreOfMass()(a, a.detach().clone())[:2].sum().backward()
    assert a.grad[:2].eq(0).all()


# --- the contract ------------------------------------------------------------------------------------------


def test_the_walk_without_a_cache_and_without_numba(monkeypatch):
    order = diverse.rank_positions(pair(3, 90)[0])
    expected = diverse.pick_positions(order, torch.Size((9, 10)), 20, 2)
    import numba

    def njit_without_cache(signature, *, cache=False, njit=numba.njit, **options):
        if cache:
            raise RuntimeError("cannot cache function '_walk': no locator available")
        return njit(signature, **options)

    monkeypatch.setattr(numba, "njit", njit_without_cache)
    walk = diverse.compile_walk.__wrapped__()
    monkeypatch.setattr(diverse, "compile_walk", lambda: walk)
    assert torch.equal(diverse.pick_positions(order, torch.Size((9, 10)), 20, 2), expected)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "numba", None)
    assert diverse.compile_walk.__wrapped__() is None
    monkeypatch.setattr(diverse, "compile_walk", lambda: None)
    assert torch.equal(diverse.pick_positions(order, torch.Size((9, 10)), 20, 2), expected)
