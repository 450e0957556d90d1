"""Similarities on a part of two maps, against scipy and our functions on what is left of each pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from standfast import similarity
from standfast.errors import ArgumentError
from standfast.similarity import dilate, smooth
from standfast.similarity.diverse import top_k_diverse

Number = Callable[[Any, Any], float]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def some_pairs(ties: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Five pairs of images of two channels; the last is wholly seen, of the one before it nothing is."""
    a, b = draw(5, 2, 9, 8), draw(5, 2, 9, 8, seed=1) + draw(5, 2, 9, 8)
    seen = (
        torch.rand(5, 1, 9, 8, generator=torch.Generator().manual_seed(2))
        < torch.tensor([0.9, 0.5, 0.2, -1, 2])[:, None, None, None]
    )
    if ties:
        a, b = (2 * a).round(), (2 * b).round()
    return a, b, seen


def centred_cosine(x: Any, y: Any) -> float:
    return float(np.dot(x, y) / np.linalg.norm(x) / np.linalg.norm(y))


REFERENCES: list[tuple[str, Number]] = [
    ("pearson", lambda x, y: float(scipy.stats.pearsonr(x, y).statistic)),
    ("cosine", centred_cosine),
    ("mse", lambda x, y: float(((x - y) ** 2).mean())),
    ("spearman", lambda x, y: float(scipy.stats.spearmanr(x, y).statistic)),
    ("kendall", lambda x, y: float(scipy.stats.kendalltau(x, y).statistic)),
]


@pytest.mark.parametrize(("name", "reference"), REFERENCES)
@pytest.mark.parametrize("ties", [False, True])
def test_unseen_values_are_dropped(name: str, reference: Number, ties: bool) -> None:
    a, b, seen = some_pairs(ties)
    a, b = a + 100, b - 30  # an offset that a 0 for an unseen value would not have
    a[0].masked_fill_(~seen[0], torch.nan)  # what is not seen may be anything
    found = similarity.get(name).compare_masked(a, b, seen)
    for row in (0, 1, 2, 4):
        mask = seen[row].expand(2, 9, 8)
        expected = reference(a[row][mask].double().numpy(), b[row][mask].double().numpy())
        assert found[row].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert bool(found[3].isnan())


@pytest.mark.parametrize(
    "name", [*similarity.names(), "lens_precision:w=1,diverse=true", "ssim:window=3"]
)
def test_a_pair_does_not_depend_on_the_others(name: str) -> None:
    one = similarity.get(name)
    a, b, seen = some_pairs()
    sizes = a.abs(), b.abs()
    reduced = one.compare_masked(*map(one.of_maps, sizes), seen)
    assert torch.equal(one.compare_masked(*sizes, seen).nan_to_num(9), reduced.nan_to_num(9))
    a, b = one.of_maps(a), one.of_maps(b)
    found = one.compare_masked(a, b, seen)
    assert found.shape == (5,)
    assert torch.equal(found[4:], one(a[4:], b[4:]))  # wholly seen: the bits of the plain function
    assert torch.equal(one.compare_masked(a, b, torch.ones_like(seen)), one(a, b))
    for row in (0, 1, 2):
        alone = one.compare_masked(a[[row]], b[[row]], seen[[row]])
        assert torch.equal(alone, found[[row]]) or bool(alone.isnan() & found[row].isnan())


def test_constant_and_infinite_values_count_only_where_they_are_seen() -> None:
    a = torch.tensor([[1.0, 1.0, 1.0, 5.0], [1.0, 2.0, 3.0, torch.inf], [1.0, torch.inf, 3.0, 4.0]])
    b = torch.tensor([[1.0, 2.0, 3.0, 4.0]]).expand(3, 4)
    seen = torch.tensor([True, True, True, False])
    for name in ("pearson", "spearman", "kendall"):
        found = similarity.get(name).compare_masked(a, b, seen)
        assert found[:2].tolist() == pytest.approx([0.0, 1.0])
        assert bool(found[2].isnan())


@pytest.mark.parametrize("gaussian", [False, True])
def test_ssim_is_the_mean_over_windows_that_are_wholly_seen(gaussian: bool) -> None:
    a, b = draw(2, 1, 9, 8), draw(2, 1, 9, 8, seed=1)
    seen = torch.ones(2, 1, 9, 8, dtype=torch.bool)
    seen[0, 0, 4:, :2], seen[1, 0, ::3] = False, False
    name = f"ssim:window=3,data_range=2,gaussian={str(gaussian).lower()}"
    one = similarity.get(name)
    found = one.compare_masked(a, b, seen)
    windows = [
        one(a[:1, :, i : i + 3, j : j + 3], b[:1, :, i : i + 3, j : j + 3]).item()
        for i in range(7)
        for j in range(6)
        if bool(seen[0, 0, i : i + 3, j : j + 3].all())
    ]
    assert 20 < len(windows) < 42
    assert found[0].item() == pytest.approx(np.mean(windows), abs=1e-5)
    assert bool(found[1].isnan())  # every third line is missing, so no window is whole
    # the range of the values is that of the seen ones
    a[0, 0, 8, 0] = 1000.0
    whole = similarity.get("ssim:window=3")
    changed = whole.compare_masked(a, b, seen)[0]
    a[0, 0, 8, 0] = 0.0
    assert changed == whole.compare_masked(a, b, seen)[0]


def choose(values: Tensor, seen: Tensor, k: int) -> set[int]:
    """The k largest of the seen positions."""
    places = seen.flatten().nonzero().flatten().tolist()
    return set(sorted(places, key=lambda place: -values.flatten()[place].item())[:k])


@pytest.mark.parametrize("k", [7, 0.25])
def test_the_largest_positions_are_those_of_the_seen_ones(k: int | float) -> None:
    a, b, seen = some_pairs()
    a, b, seen = a[:, 0], b[:, 0], seen[:, 0]
    names = (f"topk_intersection:k={k}", f"lens_precision:k={k},w=1", f"lens_recall:k={k},w=1")
    found = [similarity.get(name).compare_masked(a, b, seen) for name in names]
    for row in (0, 1, 2):
        count = k if isinstance(k, int) else max(1, round(k * int(seen[row].sum())))
        s, t = choose(a[row], seen[row], count), choose(b[row], seen[row], count)
        near = [{p for p in range(72) if any(is_near(p, q) for q in chosen)} for chosen in (t, s)]
        shares = [len(s & t) / count, len(s & near[0]) / count, len(t & near[1]) / count]
        assert [one[row].item() for one in found] == pytest.approx(shares)
    distance = similarity.get(f"lens_distance:k={k},w=1").compare_masked(a, b, seen)
    assert torch.allclose(distance[:3], 2 - found[1][:3] - found[2][:3])


def is_near(p: int, q: int) -> bool:
    return abs(p // 8 - q // 8) <= 1 and abs(p % 8 - q % 8) <= 1


def test_more_positions_than_are_seen_are_not_chosen() -> None:
    a, b, seen = (
        torch.tensor([[4.0, 3.0, 2.0, 1.0]]),
        torch.tensor([[1.0, 2.0, 3.0, 4.0]]),
        torch.tensor([1, 1, 0, 0]),
    )
    assert similarity.get("topk_intersection:k=3").compare_masked(a, b, seen.bool()).tolist() == [
        1.0
    ]


def test_diverse_sets_exclude_unseen_positions() -> None:
    a, b, seen = some_pairs()
    a, b, seen = a[:3, 0], b[:3, 0], seen[:3, 0]
    found = similarity.get("lens_precision:k=14,w=1,diverse=true").compare_masked(a, b, seen)
    # after all seen positions, the greedy choice takes unseen ones, which are dropped
    s, t = (top_k_diverse(torch.where(seen, x, -99.0), 14, 1) & seen for x in (a, b))
    assert bool((s.flatten(1).sum(1) < 14).any())
    expected = (s & dilate(t, 1)).flatten(1).sum(1) / s.flatten(1).sum(1)
    assert torch.allclose(found, expected)


@pytest.mark.parametrize("name", ["lens_spearman", "lens_kendall"])
def test_maps_are_smoothed_as_if_unseen_positions_were_outside(name: str) -> None:
    a, b, seen = some_pairs()
    a, b, seen = a[:, 0], b[:, 0], seen[:, 0]
    found = similarity.get(f"{name}:w=1").compare_masked(a, b, seen)
    reference = scipy.stats.spearmanr if name == "lens_spearman" else scipy.stats.kendalltau
    for row in (0, 1, 2):
        x, y = (smooth(torch.where(seen, m, 0.0), 1)[row][seen[row]].numpy() for m in (a, b))
        assert found[row].item() == pytest.approx(reference(x, y).statistic, abs=1e-5)


def test_the_centre_of_mass_is_that_of_the_part() -> None:
    a, b, seen = some_pairs()
    centre = similarity.get("centre_of_mass")
    x, y = a[:1, 0].clone(), b[:1, 0].clone()
    # before the channels were reduced: a dimension more
    kept = centre.compare_masked(x, y, seen[:1])
    x[~seen[:1, 0]] = 1e6
    assert torch.equal(centre.compare_masked(x, y, seen[:1]), kept)


@pytest.mark.parametrize("name", ["pearson", "cosine", "mse", "ssim:window=3"])
def test_gradients_are_those_of_the_seen_part(name: str) -> None:
    a, b = draw(2, 1, 5, 5).double(), draw(2, 1, 5, 5, seed=1).double().requires_grad_(True)
    seen = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    seen[0, 0, 3:, 3:] = False
    one = similarity.get(name)
    assert one.differentiable
    assert torch.autograd.gradcheck(lambda y: one.compare_masked(a, y, seen), (b,))
    (gradient,) = torch.autograd.grad(one.compare_masked(a, b, seen).sum(), b)
    assert bool((gradient[~seen] == 0).all())
    assert bool((gradient[0] != 0).any())


def test_wrong_masks_are_refused() -> None:
    a = draw(3, 4, 4)
    for seen in (
        torch.ones(3, 4, 4),
        torch.ones(2, 4, 4, dtype=torch.bool),
        torch.ones(7, dtype=torch.bool),
        None,
    ):
        with pytest.raises(ArgumentError, match="mask: expected a bool tensor that broadcasts to"):
            similarity.get("pearson").compare_masked(a, a, seen)  # type: ignore[arg-type]
