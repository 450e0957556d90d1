"""The speed of the LENS numbers of pairs of maps, relative to an implementation with sets of indices.

    python benchmarks/lens/similarity.py [--pairs 8] [--side 227] [--k 1000] [--threads 1]

- Eighteen numbers of each pair: intersection, precision and recall, of plain and of diverse sets, for w = 1, 2, 3. They
  are computed by `lens_profile`, and on the same pairs in one run by two others, with which it must agree: the
  set-based version in `tests/references/set_based_lens.py` (window lists, `intersect1d` and `setdiff1d` for each step),
  and plain NumPy (masks, and SciPy's maximum filter for the windows).
- Two ways to find a greedy set: the compiled walk, with numba (`pip install 'standfast[fast]'`), and parallel rounds;
  and `lens_profile` with numba and without.
- Kendall's tau against SciPy's, with its memory.

The time to import numba and to compile is printed separately.
"""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.ndimage import maximum_filter
from scipy.stats import kendalltau
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "references"))

import set_based_lens

from standfast.similarity import LensKendall, diverse, lens_profile, profile, smooth

WINDOWS = (1, 2, 3)


def draw_noise(pairs: int, side: int) -> tuple[Tensor, Tensor]:
    """White noise, and the same noise plus other noise of the same size."""
    a, b = torch.randn(2, pairs, side, side, generator=torch.Generator().manual_seed(0))
    return a, (a + b) / math.sqrt(2)


def draw_fields(pairs: int, side: int) -> tuple[Tensor, Tensor]:
    """Smooth random fields, correlated over about ten pixels."""
    a, b = draw_noise(pairs, side)
    for _ in range(3):
        a, b = smooth(a, 3), smooth(b, 3)
    return a, b


def time_call(function: Callable[[], Any], repeats: int = 3) -> float:
    """The smallest of several times, in seconds; processor time with one thread, which other processes change less."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times = []
    for _ in range(repeats):
        start = clock()
        function()
        times.append(clock() - start)
    return min(times)


def compute_by_sets(a: Tensor, b: Tensor, k: int) -> np.ndarray[Any, Any]:
    """All eighteen numbers of each pair, `(pairs, 2, W, 3)`."""
    pairs = zip(a.numpy(), b.numpy(), strict=True)
    return np.array([set_based_lens.profile(x, y, k, WINDOWS) for x, y in pairs])


def compute_with_numpy(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], k: int
) -> np.ndarray[Any, Any]:
    """The same numbers of one pair, `(2, W, 3)`, as plain NumPy with a maximum filter."""
    orders = [np.argsort(-map_.ravel(), kind="stable") for map_ in (a, b)]

    def pick(order: np.ndarray[Any, Any], w: int) -> np.ndarray[Any, Any]:
        free, chosen, found = np.ones(a.shape, dtype=bool), np.zeros(a.shape, dtype=bool), 0
        flat = free.reshape(-1)
        for position in order.tolist():
            if flat[position]:
                i, j = divmod(position, a.shape[1])
                chosen[i, j], found = True, found + 1
                if found == k:
                    break
                free[max(i - w, 0) : i + w + 1, max(j - w, 0) : j + w + 1] = False
        return chosen

    found = []
    for diverse_sets in (False, True):
        for w in WINDOWS:
            s, t = (pick(order, w if diverse_sets else 0) for order in orders)
            common = (s & t).sum() / max(s.sum(), t.sum())
            near = [maximum_filter(mask, 2 * w + 1) for mask in (s, t)]
            found.append([common, (s & near[1]).sum() / s.sum(), (t & near[0]).sum() / t.sum()])
    return np.array(found).reshape(2, len(WINDOWS), 3)


def compute_by_profile(a: Tensor, b: Tensor, k: int) -> np.ndarray[Any, Any]:
    """The same numbers by `lens_profile`."""
    found = lens_profile(a, b, [k], WINDOWS)
    assert found.intersection_diverse is not None
    assert found.precision_diverse is not None
    assert found.recall_diverse is not None
    common = found.intersection[:, :, None].expand(-1, -1, len(WINDOWS))
    plain = torch.stack([common, found.precision, found.recall], dim=-1)
    diverse_sets = torch.stack(
        [found.intersection_diverse, found.precision_diverse, found.recall_diverse], dim=-1
    )
    return torch.stack([plain[:, 0], diverse_sets[:, 0]], dim=1).double().numpy()


def compare_profiles(name: str, a: Tensor, b: Tensor, k: int) -> None:
    """Compute the eighteen numbers in both ways in turn, pair by pair, and print the times."""
    slow, numpy, fast = [], [], []
    for row in range(len(a)):
        x, y = a[row : row + 1], b[row : row + 1]
        for other in (
            compute_by_sets(x, y, k)[0],
            compute_with_numpy(x[0].numpy(), y[0].numpy(), k),
        ):
            assert np.abs(compute_by_profile(x, y, k)[0] - other).max() < 1e-6, "they do not agree"
        slow.append(time_call(lambda x=x, y=y: compute_by_sets(x, y, k), 1))  # type: ignore[misc]
        numpy.append(
            time_call(lambda x=x, y=y: compute_with_numpy(x[0].numpy(), y[0].numpy(), k), 2)
        )
        fast.append(time_call(lambda x=x, y=y: compute_by_profile(x, y, k)))  # type: ignore[misc]
    ratios = [p / q for p, q in zip(slow, fast, strict=True)]
    batch = time_call(lambda: compute_by_profile(a, b, k)) / len(a)
    with (
        mock.patch.object(diverse, "compile_walk", return_value=None),
        mock.patch.object(profile, "compile_overlaps", return_value=None),
    ):
        plain = time_call(lambda: compute_by_profile(a, b, k)) / len(a)
    print(
        f"{name}: a pair by sets {statistics.median(slow) * 1e3:.0f} ms, by lens_profile"
        f" {statistics.median(fast) * 1e3:.2f} ms ({batch * 1e3:.2f} ms in a batch): {statistics.median(ratios):.0f}"
        f" times as fast (from {min(ratios):.0f} to {max(ratios):.0f}); plain NumPy"
        f" {statistics.median(numpy) * 1e3:.1f} ms: {statistics.median(numpy) / statistics.median(fast):.0f} times as"
        f" fast, {statistics.median(numpy) / batch:.0f} in a batch (at least 10 wanted);"
        f" without numba {plain * 1e3:.2f} ms in a batch, {plain / batch:.1f} times as long"
    )


def compare_greedy(name: str, a: Tensor, k: int) -> None:
    """Print the times of the compiled walk and of the rounds, and separately that of the ranking."""
    order = diverse.rank_positions(a.flatten(1))
    sort = time_call(lambda: diverse.rank_positions(a.flatten(1))) / len(a)
    walk = diverse.compile_walk()
    for w in WINDOWS:
        rounds = time_call(lambda w=w: diverse._rounds(order, a.shape[1:], k, w)) / len(a)  # type: ignore[misc]
        text = f"{name}, w = {w}: ranking {sort * 1e3:.2f} ms a map, rounds {rounds * 1e3:.2f} ms"
        if walk is not None:
            picked = diverse.pick_positions(order, a.shape[1:], k, w)
            assert torch.equal(picked, diverse._rounds(order, a.shape[1:], k, w))
            once = time_call(lambda w=w: diverse.pick_positions(order, a.shape[1:], k, w)) / len(a)  # type: ignore[misc]
            text += f", walk {once * 1e3:.3f} ms: {rounds / once:.0f} times as fast"
        print(text)


def measure_kendall(a: Tensor, b: Tensor) -> None:
    """Print the time of Kendall's tau, and by how much the process grew."""
    LensKendall()(a[:, :8, :8], b[:, :8, :8])
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    LensKendall()(a, b)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before
    seconds = time_call(lambda: LensKendall()(a, b)) / len(a)
    positions, maps = a[0].numel(), [smooth(m, 1).flatten(1).numpy() for m in (a, b)]
    scipys = time_call(lambda: [kendalltau(*pair) for pair in zip(*maps, strict=True)]) / len(a)
    print(
        f"lens_kendall: {seconds * 1e3:.1f} ms a pair, SciPy without smoothing {scipys * 1e3:.1f} ms;"
        f" {len(a)} pairs took {grown / 2**20:.0f} MB more than the peak"
        f" before (a matrix of all pairs of pixels, one byte each: {positions**2 / 2**20:.0f} MB)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--side", type=int, default=227)
    parser.add_argument("--k", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    size = options.pairs, options.side
    kinds = {"white noise": draw_noise(*size), "smooth fields": draw_fields(*size)}
    print(
        f"{options.pairs} pairs of {options.side} x {options.side}, k = {options.k}, {options.threads} threads"
    )
    measure_kendall(*kinds["white noise"])  # first, while the peak of the memory is still low
    start = time.perf_counter()
    compiled = diverse.compile_walk() is not None
    print(
        f"the walk, imported and compiled or read from disk: {time.perf_counter() - start:.2f} s, {compiled}"
    )
    for name, (a, b) in kinds.items():
        compare_profiles(name, a, b, options.k)
        compare_greedy(name, a, options.k)


if __name__ == "__main__":
    main()
