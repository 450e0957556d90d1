"""The synthetic waves: against a slow reading of their description; what each option changes; streams; extras."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from scipy import stats

from standfast import data
from standfast.data import Dataset, synthetic_waves
from standfast.data.waves import expected_deviation
from standfast.errors import ArgumentError

PLAIN: dict[str, Any] = {"steps": 200, "block": 40}


def starts(waves: Dataset) -> list[list[tuple[int, int]]]:
    """Of each sample, the channels with a block and where it begins."""
    blocks = waves.extras["blocks"]
    return [
        [(int(c), int(row[c].nonzero()[0])) for c in row.any(1).nonzero()[:, 0]] for row in blocks
    ]


def test_two_blocks_in_two_channels() -> None:
    waves = synthetic_waves(50, **PLAIN, channels=5)
    blocks = waves.extras["blocks"]
    assert waves.inputs.shape == blocks.shape == (50, 5, 200)
    for row, places in zip(blocks, starts(waves), strict=True):
        assert len(places) == 2
        for channel, start in places:
            assert row[channel, start : start + 40].all()
    assert int(blocks.sum()) == 50 * 80


def test_outside_of_the_blocks_is_one_sine_and_within_two() -> None:
    """Recovered by least squares on a grid of frequencies, knowing the block: the residual vanishes."""
    waves = synthetic_waves(6, **PLAIN)
    inputs = waves.inputs.numpy() * expected_deviation(**PLAIN)
    time = np.arange(200) / 200
    grid = np.linspace(2, 5, 3001)
    for series, blocks, pair, places in zip(
        inputs,
        waves.extras["blocks"].numpy(),
        waves.extras["frequencies"],
        starts(waves),
        strict=True,
    ):
        found = []
        for values, block in zip(series, blocks, strict=True):
            outside = ~block
            bases = 0.5 * np.sin(2 * np.pi * grid[:, None] * time)
            errors = ((bases - values)[:, outside] ** 2).mean(1)
            best = bases[errors.argmin()]
            assert errors.min() < 1e-4
            left = values - best
            if block.any():
                since = time[: block.sum()]
                fast = np.linspace(10, 50, 4001)
                wanted = np.sin(2 * np.pi * fast[:, None] * since)
                misses = ((wanted - left[block]) ** 2).mean(1)
                assert misses.min() < 1e-2
                found.append(fast[misses.argmin()])
        assert np.allclose(sorted(found), sorted(pair.tolist()), atol=0.1)
        assert len(places) == 2


def test_labels_follow_the_frequencies() -> None:
    waves = synthetic_waves(4000, steps=20, block=4)
    pair, f_norm = waves.extras["frequencies"], waves.extras["f_norm"]
    assert torch.equal(waves.labels == 1, pair.double().sum(1).float() >= 60)
    assert torch.allclose(f_norm, (pair.sum(1) - 20) / 80)
    assert torch.equal(waves.labels == 1, f_norm >= 0.5)
    assert waves.classes == ("below", "above")
    assert abs(float(waves.labels.float().mean()) - 0.5) < 4 * 0.5 / math.sqrt(4000)
    for column in pair.T:  # both uniform on [10, 50], independently
        assert stats.kstest(column.numpy(), stats.uniform(10, 40).cdf).pvalue > 1e-3
    assert abs(np.corrcoef(pair.T)[0, 1]) < 4 / math.sqrt(4000)


def test_places_are_uniform() -> None:
    waves = synthetic_waves(3000, steps=20, block=5, channels=4)
    places = [place for sample in starts(waves) for place in sample]
    channels = np.bincount([channel for channel, _ in places], minlength=4)
    begins = np.bincount([start for _, start in places], minlength=16)
    assert len(begins) == 16  # the last one ends with the series
    assert stats.chisquare(channels).pvalue > 1e-3
    assert stats.chisquare(begins).pvalue > 1e-3


@pytest.mark.parametrize("snr_db", [20.0, 15.0, 10.0])
def test_noise_has_its_ratio_in_every_channel(snr_db: float) -> None:
    clean, noisy = (synthetic_waves(40, snr_db=snr, **PLAIN) for snr in (None, snr_db))
    for name, values in clean.extras.items():
        assert torch.equal(values, noisy.extras[name])
    # without the two scales, which differ by the noise
    plain = clean.inputs * expected_deviation(**PLAIN)
    noise = noisy.inputs * expected_deviation(**PLAIN, snr_db=snr_db) - plain
    ratio = 10 * (plain.square().mean(2) / noise.square().mean(2)).log10()
    # the spread of a variance of 200 values is 10 %
    assert torch.allclose(ratio, torch.tensor(snr_db), atol=2.0)
    assert abs(float(ratio.mean()) - snr_db) < 0.3
    scaled = noise / noise.square().mean(2, keepdim=True).sqrt()
    assert stats.kstest(scaled.flatten().numpy()[:4000], "norm").pvalue > 1e-3


@pytest.mark.parametrize("options", [{}, {"snr_db": 10.0}, {"channels": 6}])
def test_standardised_values(options: dict[str, Any]) -> None:
    made = synthetic_waves(1500, **options)
    assert float(made.inputs.mean()) == pytest.approx(0.06, abs=0.03)
    assert float(made.inputs.std()) == pytest.approx(1.0, abs=0.02)


def test_a_sample_depends_on_its_number_and_the_seed_alone() -> None:
    few, many = (synthetic_waves(n, snr_db=10.0, seed=3, **PLAIN) for n in (5, 600))
    assert torch.equal(few.inputs, many.inputs[:5])
    assert all(torch.equal(few.extras[name], many.extras[name][:5]) for name in few.extras)
    other = synthetic_waves(5, snr_db=10.0, seed=4, **PLAIN)
    assert not torch.isclose(few.extras["frequencies"], other.extras["frequencies"]).any()
    state = torch.random.get_rng_state()
    synthetic_waves(3, snr_db=1.0, **PLAIN)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_named_sets_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    from standfast.data import waves as module

    monkeypatch.setattr(module, "SPLITS", {"train": (300, 0), "test": (100, 1)})
    train, test, noisy = (
        data.load(name) for name in ("waves:train", "waves:test", "waves10db:test")
    )
    assert (train.name, len(train), len(test)) == ("waves:train", 300, 100)
    assert torch.equal(noisy.extras["blocks"], test.extras["blocks"])
    assert not torch.equal(noisy.inputs, test.inputs)
    sums = torch.cat([part.extras["frequencies"].sum(1) for part in (train, test)])
    assert len(sums.unique()) == 400
    assert module.SPLITS["test"][0] != 1500
    assert {
        f"waves{noise}:{split}"
        for noise in ("", "20db", "15db", "10db")
        for split in ("train", "test")
    } <= set(data.names())


def test_options_are_checked() -> None:
    def make(**options: object) -> object:
        return synthetic_waves(**({"n": 2} | options))

    assert_refused(make, n=[0], channels=[1], block=[0], steps=[50], seed=[0.5], snr_db=[math.inf])


# extras of a data set


def test_extras_are_cut_and_chosen_with_their_samples() -> None:
    inputs, labels = torch.linspace(0, 1, 6).reshape(6, 1, 1), torch.tensor([1, 0, 1, 1, 0, 0])
    extras = {"place": torch.arange(6), "mask": torch.arange(12).reshape(6, 2) > 5}
    small = Dataset("small", inputs, labels, ("a", "b"), extras=extras)
    for part, rows in (
        (small[1:4], [1, 2, 3]),
        (small[::-2], [5, 3, 1]),
        (small.take([4, 0]), [4, 0]),
        (small.subset(2), [0, 1, 2, 4]),
        (small.subset(3, per_class=False), [0, 1, 2]),
        (small.take([]), []),
    ):
        assert part.extras["place"].tolist() == rows
        assert torch.equal(part.extras["mask"], extras["mask"][rows])
        assert torch.equal(part.inputs, inputs[rows])
    assert "extras: place, mask" in repr(small)
    assert "tensor" not in repr(small)


@pytest.mark.parametrize("extra", [torch.zeros(3), torch.tensor(1.0), [1, 2]])
def test_extras_must_belong_to_the_samples(extra: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"extras\['place'\]: expected a tensor of shape \(2, ...\)"
    ):
        Dataset(
            "wrong", torch.zeros(2, 1), torch.tensor([0, 1]), ("a", "b"), extras={"place": extra}
        )
