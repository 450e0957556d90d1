"""Synthetic series whose class depends only on two short blocks at known positions.

Every channel is a slow sine. Two channels, drawn at random, each carry a block: a fast sine that covers a part of the
series. The class says whether the sum of the two fast frequencies reaches a threshold. So only the blocks determine the
class, and an explanation of an accurate model must highlight them.

Source: Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024), App. B.1,
after Turbe, Bjelogrlic, Lovis and Mengaldo, "Evaluation of post-hoc interpretability methods in time-series
classification", Nature Machine Intelligence 5, 2023. Where the text is incomplete, we follow the generator that the
authors published:

- Slow sines have amplitude 1/2. Blocks have amplitude 1 and are added to them. Both begin with phase 0.
- The two blocks are in different channels, at independent random times.
- Noise is relative to the power of each channel of each sample.

That generator differs from the text in two ways, in which we follow the text: it draws whole frequencies for the
blocks, and puts square waves, which carry no class, into half of the other channels.

All values are divided by their expected standard deviation, which is one number for the whole set. The mean is not
subtracted. It is 0.06 after the division, because sines of phase 0 start with positive values.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from standfast.data.dataset import Dataset
from standfast.errors import as_number, check, check_choice, check_integer
from standfast.tensors import Streams, hashed_uniform, mix64

BASE = (2.0, 5.0)
SUPPORT = (10.0, 50.0)
BASE_AMPLITUDE = 0.5
BLOCK_AMPLITUDE = 1.0
THRESHOLD = 60.0
CLASSES = ("below", "above")

#: for each split, the number of samples and the seed
SPLITS = {"train": (6000, 0), "test": (1500, 1)}
#: the names of the sets, and their signal-to-noise ratios in dB
NOISES = {"waves": None, "waves20db": 20.0, "waves15db": 15.0, "waves10db": 10.0}

_CHUNK = 512  # samples made at a time
_NOISE = 0x5EED  # added to the keys, so that the random streams of noise and waves differ


def synthetic_waves(
    n: int,
    steps: int = 500,
    channels: int = 4,
    block: int = 100,
    snr_db: float | None = None,
    seed: int = 0,
) -> Dataset:
    """`n` series with two blocks that carry the class: inputs (n, channels, steps), classes "below" and "above".

    A sample depends only on the seed and on its index. So the first samples of a larger set equal those of a smaller
    set, and the waves are the same for every `snr_db`. All samples are made on the CPU.

    Args:
        n: number of samples, at least 1.
        steps: number of steps of each series; a sine of frequency f has f periods in them.
        channels: number of channels, at least 2.
        block: number of steps of a block, at most `steps`.
        snr_db: signal-to-noise ratio of the added Gaussian noise, in dB, for every channel of every sample; None for no
            noise.
        seed: a whole number.

    Returns:
        The data set, unbounded, with `extras`:
            blocks: bool (n, channels, steps), True in the two blocks.
            frequencies: float32 (n, 2), the frequencies of the two blocks, in periods per series, each in [10, 50].
            f_norm: float32 (n,), the sum of the frequencies, rescaled from [20, 100] to [0, 1]; the threshold between
                the classes is 1/2.

    Raises:
        ArgumentError: a number is out of range.

    >>> waves = synthetic_waves(8)
    >>> waves.inputs.shape, waves.labels.tolist()
    (torch.Size([8, 4, 500]), [...])
    >>> waves.extras["blocks"].sum((1, 2)).tolist()
    [200, 200, 200, 200, 200, 200, 200, 200]
    >>> torch.equal(waves.labels, (waves.extras["frequencies"].sum(1) >= 60).long())
    True
    """
    check_integer(n, "n")
    check_integer(channels, "channels", 2)
    check_integer(block, "block")
    check_integer(steps, "steps", block)
    check(
        type(as_number(seed)) is int and abs(seed) < 1 << 62,
        "seed",
        "a whole number of at most 62 bits",
        repr(seed),
    )
    fine = snr_db is None or (isinstance(snr_db, int | float) and math.isfinite(snr_db))
    check(fine, "snr_db", "a finite number of dB, or None", repr(snr_db))
    mixed_seed = mix64(torch.tensor([seed]))
    keys = mix64(mixed_seed + torch.arange(n))
    scale = 1 / expected_deviation(steps, channels, block, snr_db)
    parts = []
    for chunk in torch.split(keys, _CHUNK):
        # in chunks, because the intermediate arrays are several times as large
        waves, blocks, frequencies = _make_waves(chunk, steps, channels, block)
        if snr_db is not None:
            waves = _add_noise(waves, chunk, snr_db)
        parts.append((waves * scale, blocks, frequencies))
    inputs, blocks, frequencies = (torch.cat(part) for part in zip(*parts, strict=True))
    low, high = SUPPORT
    total = frequencies.sum(1)
    name = "waves" if snr_db is None else f"waves at {snr_db:g} dB"
    return Dataset(
        name,
        inputs,
        (total >= THRESHOLD).long(),
        CLASSES,
        bounds=(-math.inf, math.inf),
        extras={
            "blocks": blocks,
            "frequencies": frequencies,
            "f_norm": (total - 2 * low) / (2 * high - 2 * low),
        },
    )


def _add_noise(waves: Tensor, keys: Tensor, snr_db: float) -> Tensor:
    power = waves.square().mean(2, keepdim=True)
    ratio = 10 ** (-snr_db / 10)
    deviations = (power * ratio).sqrt()
    streams = Streams(mix64(keys + _NOISE).tolist(), torch.device("cpu"))
    noise = streams.normal(tuple(waves.shape[1:]), torch.float32)
    return waves + deviations * noise


def expected_deviation(
    steps: int = 500, channels: int = 4, block: int = 100, snr_db: float | None = None
) -> float:
    """The expected standard deviation of the values, for independent sines, blocks and noise.

    >>> round(expected_deviation(), 3)  # (1/8 + 1/2 x 1/5 x 2 of 4 channels)^(1/2)
    0.418
    """
    power_of_block = 2 * BLOCK_AMPLITUDE**2 / 2
    covered = power_of_block / channels * block / steps
    noise = 0.0
    if snr_db is not None:
        noise = 10 ** (-snr_db / 10)
    power_of_base = BASE_AMPLITUDE**2 / 2
    return math.sqrt((power_of_base + covered) * (1 + noise))


def named_waves(name: str, split: str, download: bool = False) -> Dataset:
    """Made-up series, classified by two known blocks: inputs (N, 4, 500), N = 6,000 ("train") or 1,500 ("test").

    The test set has as many samples as in the paper. Nothing is downloaded.

    >>> named_waves("waves20db", "test").name
    'waves20db:test'
    """
    check_choice(name, "name", list(NOISES))
    check_choice(split, "split", list(SPLITS))
    count, seed = SPLITS[split]
    waves = synthetic_waves(count, snr_db=NOISES[name], seed=seed)
    return replace(waves, name=f"{name}:{split}")


def _make_waves(
    keys: Tensor, steps: int, channels: int, block: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Series without noise, the positions of their blocks, and the two frequencies, for samples with these keys."""
    drawn = hashed_uniform(keys, 4 * channels).reshape(len(keys), 4, channels)
    slow_share, fast_share, start_share, rank = drawn.unbind(1)
    slow_low, slow_high = BASE
    fast_low, fast_high = SUPPORT
    slow = slow_low + slow_share * (slow_high - slow_low)
    fast = fast_low + fast_share * (fast_high - fast_low)
    start = (start_share.double() * (steps - block + 1)).long()
    # the channels in random order; the first two carry the class
    order = rank.argsort(dim=1, stable=True)
    carries = order.argsort(dim=1) < 2
    time = torch.arange(steps)
    # steps since the start of the block, (count, channels, steps)
    since_start = time - start[:, :, None]
    is_within = (since_start >= 0) & (since_start < block)
    blocks = is_within & carries[:, :, None]
    base_turns = slow[:, :, None] * (time / steps)
    waves = BASE_AMPLITUDE * torch.sin(2 * math.pi * base_turns)
    turns = fast[:, :, None] * (since_start / steps)
    sines = torch.sin(2 * math.pi * turns)
    waves = waves + torch.where(blocks, BLOCK_AMPLITUDE * sines, 0.0)
    return waves, blocks, fast.gather(1, order[:, :2])
