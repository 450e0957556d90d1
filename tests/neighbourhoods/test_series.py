"""Changes of series: against numpy's interpolation, closed forms and scipy; maps moved back.

`test_transformations` has what they share with all transformations: identity, bounds, rows and gradients.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from refusals import assert_refused
from scipy import integrate, stats
from torch import Tensor

from standfast import similarity
from standfast.errors import ArgumentError
from standfast.neighbourhoods import (
    Amplitude,
    Compose,
    Drift,
    DroppedSamples,
    Jitter,
    TimeShift,
    TimeStretch,
    TimeWarp,
    Transformation,
    WindowCrop,
)
from standfast.neighbourhoods.series import TimeChange
from standfast.tensors import Streams

MOVING: list[TimeChange] = [
    *(TimeShift(3, fill=fill) for fill in ("border", "zeros", "reflection")),  # type: ignore[arg-type]
    TimeStretch(10),
    TimeWarp(30, waves=3),
    WindowCrop(20),
]


def names(change: Transformation) -> str:
    return f"{type(change).__name__}-{getattr(change, 'fill', '')}".rstrip("-")


def smooth_series(
    rows: int, channels: int, length: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """A few slow waves of random phase and size; another mean and scale in each channel."""
    generator = torch.Generator().manual_seed(length)
    u = torch.linspace(0, 1, length, dtype=torch.float64)
    phases, sizes = torch.rand(2, rows, channels, 3, 1, generator=generator, dtype=torch.float64)
    waves = sizes * torch.sin(
        2 * math.pi * (torch.arange(1, 4, dtype=torch.float64)[:, None] * u + phases)
    )
    scale = 1.0 + torch.arange(channels, dtype=torch.float64)[:, None]
    return (waves.sum(2) * scale + scale).to(dtype)


def draw(change: Transformation, x: Tensor, count: int = 1) -> Tensor:
    """`count` parameters for each series, one after the other, `(P * count, D)`."""
    return change.around(x).sample(count, Streams(list(range(len(x))), x.device)).flatten(0, 1)


def perturb(change: Transformation, x: Tensor, parameters: Tensor) -> Tensor:
    return change.around(x).perturb(
        parameters, torch.arange(len(x)).repeat_interleave(len(parameters) // len(x))
    )


def test_shift_is_that_of_numpy_at_every_fill() -> None:
    x = smooth_series(1, 2, 20, torch.float64)
    times = np.arange(20.0)
    padded = {
        "border": np.pad(x[0].numpy(), ((0, 0), (20, 20)), mode="edge"),
        "zeros": np.pad(x[0].numpy(), ((0, 0), (20, 20))),
        "reflection": np.pad(x[0].numpy(), ((0, 0), (19, 19)), mode="reflect"),
    }
    for fill, wide in padded.items():
        change = TimeShift(6, fill=fill)  # type: ignore[arg-type]
        for shift in (-5.75, -1.0, 0.3, 4.0, 5.5):
            own = perturb(change, x, torch.tensor([[shift]], dtype=torch.float64))[0].numpy()
            start = (wide.shape[1] - 20) / 2
            expected = [
                np.interp(times - shift + start, np.arange(wide.shape[1]), row) for row in wide
            ]
            np.testing.assert_allclose(own, expected, atol=1e-12)


@pytest.mark.parametrize("percent", [-8.0, 3.0, 25.0])
def test_stretch_crop_and_warp_are_those_of_numpy(percent: float) -> None:
    x = smooth_series(1, 2, 41, torch.float64)
    times, last = np.arange(41.0), 40

    def read(places: np.ndarray) -> list[np.ndarray]:
        return [np.interp(places, times, row) for row in x[0].numpy()]

    stretch = torch.tensor([[percent]], dtype=torch.float64)
    expected = read(20 + (times - 20) / (1 + percent / 100))
    np.testing.assert_allclose(
        perturb(TimeStretch(30), x, stretch)[0].numpy(), expected, atol=1e-12
    )

    cut = torch.tensor([[abs(percent), 0.25]], dtype=torch.float64)
    start = 0.25 * abs(percent) / 100 * last
    expected = read(np.linspace(start, start + last * (1 - abs(percent) / 100), 41))
    np.testing.assert_allclose(perturb(WindowCrop(30), x, cut)[0].numpy(), expected, atol=1e-12)

    waves = torch.tensor([[percent, -percent / 2]], dtype=torch.float64)

    def speed(u: float) -> float:
        return 1 + percent / 100 * math.cos(math.pi * u) - percent / 200 * math.cos(2 * math.pi * u)

    places = [last * integrate.quad(speed, 0, t / last)[0] for t in times]
    np.testing.assert_allclose(
        perturb(TimeWarp(60, waves=2), x, waves)[0].numpy(), read(np.array(places)), atol=1e-12
    )


@pytest.mark.parametrize("change", MOVING, ids=names)
def test_places_are_taken_back_by_their_inverse(change: TimeChange) -> None:
    """Where each sample went is where the result reads it: up to rounding, within the series."""
    x = smooth_series(3, 1, 50, torch.float64)
    parameters = draw(change, x, 5)
    places, back = change.find_places(parameters, 50), change.find_places_back(parameters, 50)
    assert (places.diff(dim=1) > 0).all()
    for forth, return_to in zip(places.numpy(), back.numpy(), strict=True):
        inside = (return_to >= 0) & (return_to <= 49)
        assert inside.sum() > 30
        # linear, so close to the function itself
        again = np.interp(return_to[inside], np.arange(50.0), forth)
        np.testing.assert_allclose(again, np.arange(50.0)[inside], atol=2e-2)
    extreme = change.around(x).upper
    if isinstance(change, TimeWarp):  # where the inverse is exact, not only close
        own = change._warp(change.find_places_back(extreme, 50), extreme)
        assert torch.allclose(own, torch.arange(50.0, dtype=torch.float64).expand(3, -1), atol=1e-9)


@pytest.mark.parametrize("change", MOVING, ids=names)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_maps_of_a_pointwise_explainer_come_back(change: TimeChange, dtype: torch.dtype) -> None:
    """The map of a sample depends on its own value only, so the aligned map is the clean one where both are seen."""
    x = smooth_series(4, 2, 200, dtype)
    parameters = draw(change, x, 3)
    clean = (x**2 - x).repeat_interleave(3, 0)
    moved = perturb(change, x, parameters)
    back, seen = change.align_maps(moved**2 - moved, parameters)
    assert seen.shape == (12, 1, 200)
    assert seen.dtype == torch.bool
    assert seen.float().mean() > 0.7
    pearson = similarity.get("pearson")
    for row in range(12):
        a, b = (maps[row][seen[row].expand(2, -1)] for maps in (clean, back))
        assert float(pearson(a[None], b[None])) == pytest.approx(1, abs=1e-3)
    if parameters.abs().max() > 1:  # a map that stays where it is agrees less
        still = pearson((moved**2 - moved).flatten(1), clean.flatten(1))
        assert float(still.min()) < 0.999


def test_seen_are_the_samples_that_the_result_still_has() -> None:
    x = torch.zeros(3, 1, 10)
    shift = torch.tensor([[2.0], [-3.0], [0.0]])
    _, seen = TimeShift(3).align_maps(x, shift)
    assert [row.nonzero().flatten().tolist() for row in seen[:, 0]] == [
        list(range(8)),
        list(range(3, 10)),
        list(range(10)),
    ]
    _, seen = WindowCrop(50).align_maps(x[:1], torch.tensor([[50.0, 1.0]]))
    assert seen[0, 0].nonzero().flatten().tolist() == [5, 6, 7, 8, 9]
    _, seen = TimeStretch(50).align_maps(x[:1], torch.tensor([[50.0]]))
    assert seen[0, 0].nonzero().flatten().tolist() == [2, 3, 4, 5, 6, 7]


def test_composed_changes_are_taken_back_one_after_the_other() -> None:
    x = smooth_series(3, 1, 200, torch.float64)
    change = Compose((TimeShift(5), Jitter(0.0), TimeWarp(20, waves=2), Amplitude(0)))
    parameters = draw(change, x)
    back, seen = change.align_maps(perturb(change, x, parameters), parameters)
    seen = seen.expand_as(x)
    assert 0.9 < seen.double().mean() < 1
    # linear interpolation is off by an eighth of the second difference; it is done four times, at a speed of up to 1.2
    most = 4 * 1.2**2 * float(x.diff(n=2, dim=2).abs().max()) / 8
    assert torch.allclose(back[seen], x[seen], atol=most, rtol=0)


@pytest.mark.parametrize("change", MOVING, ids=names)
def test_aligned_maps_are_differentiable_by_parameters_and_maps(change: TimeChange) -> None:
    x = smooth_series(2, 1, 16, torch.float64)
    maps, parameters = x.clone().requires_grad_(), draw(change, x).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda m, p: change.align_maps(m, p)[0], (maps, parameters), fast_mode=True
    )


def test_amplitude_and_drift_have_closed_forms() -> None:
    x = smooth_series(2, 3, 25, torch.float64)
    factor = torch.tensor([[7.0], [-30.0]], dtype=torch.float64)
    assert torch.allclose(
        perturb(Amplitude(50), x, factor), x * torch.tensor([1.07, 0.7]).double()[:, None, None]
    )
    ends = torch.tensor([[0.2, -0.1], [0.3, 0.3]], dtype=torch.float64)
    own = perturb(Drift(0.5), x, ends)
    for row in range(2):
        for channel in range(3):
            values = x[row, channel].numpy()
            expected = values + np.std(values) * np.linspace(*ends[row].tolist(), 25)
            np.testing.assert_allclose(own[row, channel].numpy(), expected, atol=1e-12)
    still = torch.full((1, 1, 9), 5.0)
    assert torch.equal(perturb(Drift(1), still, torch.tensor([[1.0, 1.0]])), still)


def test_jitter_is_normal_with_the_standard_deviation_of_its_level() -> None:
    x = smooth_series(2, 2, 50)
    change = Jitter((0.3, 0.3))
    noise = perturb(change, x, draw(change, x, 200)) - x.repeat_interleave(200, 0)
    scale = (
        torch.from_numpy(np.std(x.double().numpy(), axis=2))
        .float()
        .repeat_interleave(200, 0)[:, :, None]
    )
    z = (noise / (0.3 * scale)).double()
    assert stats.kstest(z.flatten()[::4].numpy(), "norm").pvalue > 0.01
    pairs = np.corrcoef(z[:, :, :-1].flatten().numpy(), z[:, :, 1:].flatten().numpy())[0, 1]
    assert abs(pairs) < 4 / math.sqrt(z[:, :, 1:].numel())
    extreme = torch.tensor([[0.3, *[0.0, 1.0] * 50]])  # the ends of the range of a search
    assert torch.isfinite(perturb(change, x[:1], extreme)).all()


def drop_slowly(values: np.ndarray, missing: np.ndarray, fill: str) -> np.ndarray:
    """One channel, sample by sample."""
    if fill == "zeros":
        return np.where(missing, 0, values)
    kept = [t for t in range(len(values)) if not missing[t]] or [0]
    return np.array(
        [values[max((k for k in kept if k <= t), default=kept[0])] for t in range(len(values))]
    )


@pytest.mark.parametrize("fill", ["hold", "zeros"])
def test_dropped_samples_are_those_of_a_slow_loop(fill: str) -> None:
    x = smooth_series(3, 2, 30)
    change = DroppedSamples(100, fill=fill)  # type: ignore[arg-type]
    parameters = draw(change, x, 20)
    parameters[0] = torch.tensor([100.0, *[0.5] * 30])
    own = perturb(change, x, parameters)
    for row, values in enumerate(parameters.numpy()):
        for channel in range(2):
            clean = x[row // 20, channel].numpy()
            expected = drop_slowly(clean, values[1:] < values[0] / 100, fill)
            np.testing.assert_array_equal(own[row, channel].numpy(), expected)


def test_dropped_samples_have_the_share_of_their_level() -> None:
    x = torch.ones(1, 1, 400)
    change = DroppedSamples((25, 25), fill="zeros")
    missing = int((perturb(change, x, draw(change, x, 100)) == 0).sum())
    assert stats.binomtest(missing, 40_000, 0.25).pvalue > 0.01


def test_options_out_of_range_are_refused() -> None:
    assert_refused(partial(TimeShift, 3), align=["no"])
    assert_refused(TimeWarp, percent=[100])
    assert_refused(partial(TimeWarp, 3), waves=[0])


def test_a_shift_is_shorter_than_the_series() -> None:
    with pytest.raises(
        ArgumentError, match="samples: expected shifts below 10, the length of the series"
    ):
        TimeShift((-2, 10)).around(torch.zeros(1, 1, 10))
