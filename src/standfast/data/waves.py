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

That generator differs from the text in two ways: it draws whole frequencies for the blocks, and puts square waves,
which carry no class, into half of the other channels. `whole=True, distractors=0.5` does the same.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from standfast.data.dataset import Dataset
from standfast.errors import as_number, check, check_integer
from standfast.tensors import Streams, hashed_uniform, mix64

BASE, SUPPORT = (2.0, 5.0), (10.0, 50.0)
BASE_AMPLITUDE, BLOCK_AMPLITUDE = 0.5, 1.0
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
    *,
    distractors: float = 0.0,
    whole: bool = False,
    random_phases: bool = False,
    standardize: bool = True,
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
        distractors: the probability, in [0, 1], that another channel has a block of a square wave.
        whole: draw whole frequencies for the blocks, 10 to 50 with equal probability, not uniform real numbers.
        random_phases: draw uniform phases for the slow sines and the blocks; by default they are 0.
        standardize: divide all values by their expected standard deviation, which is one number for the whole set. The
            mean is not subtracted. It is 0.06 after the division, because sines of phase 0 start with positive values,
            and 0 with `random_phases`.

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
    check(type(as_number(seed)) is int and abs(seed) < 1 << 62, "seed", "a whole number of at most 62 bits", repr(seed))
    fine = snr_db is None or (isinstance(snr_db, int | float) and math.isfinite(snr_db))
    check(fine, "snr_db", "a finite number of dB, or None", repr(snr_db))
    check(0 <= distractors <= 1, "distractors", "a probability", distractors)
    keys = mix64(mix64(torch.tensor([seed])) + torch.arange(n))
    scale = 1 / expected_deviation(steps, channels, block, snr_db, distractors) if standardize else 1.0
    parts = []
    for chunk in torch.split(keys, _CHUNK):
        waves, blocks, frequencies = _make_waves(chunk, steps, channels, block, distractors, whole, random_phases)
        if snr_db is not None:
            power = waves.square().mean(2, keepdim=True)
            noise = Streams(mix64(chunk + _NOISE).tolist(), torch.device("cpu"))
            deviations = (power * 10 ** (-snr_db / 10)).sqrt()
            waves = waves + deviations * noise.normal((channels, steps), torch.float32)
        parts.append((waves * scale, blocks, frequencies))
    inputs, blocks, frequencies = (torch.cat(part) for part in zip(*parts, strict=True))
    total, (low, high) = frequencies.sum(1), SUPPORT
    return Dataset(
        "waves" if snr_db is None else f"waves at {snr_db:g} dB",
        inputs,
        (total >= THRESHOLD).long(),
        CLASSES,
        bounds=(-math.inf, math.inf),
        extras={"blocks": blocks, "frequencies": frequencies, "f_norm": (total - 2 * low) / (2 * high - 2 * low)},
    )


def expected_deviation(
    steps: int = 500, channels: int = 4, block: int = 100, snr_db: float | None = None, distractors: float = 0.0
) -> float:
    """The expected standard deviation of the values before `standardize`, for independent sines, blocks and noise.

    >>> round(expected_deviation(), 3)  # (1/8 + 1/2 x 1/5 x 2 of 4 channels)^(1/2)
    0.418
    """
    others = channels - 2
    covered = (2 * BLOCK_AMPLITUDE**2 / 2 + others * distractors * BLOCK_AMPLITUDE**2) / channels * block / steps
    noise = 0.0 if snr_db is None else 10 ** (-snr_db / 10)
    return math.sqrt((BASE_AMPLITUDE**2 / 2 + covered) * (1 + noise))


def named_waves(name: str, split: str) -> Dataset:
    """Make one of the sets by name: 6000 samples for "train"; 1500 for "test", as many as in the paper.

    >>> named_waves("waves20db", "test").name
    'waves20db:test'
    """
    check(name in NOISES, "name", f"one of {', '.join(NOISES)}", repr(name))
    check(split in SPLITS, "split", " or ".join(SPLITS), repr(split))
    count, seed = SPLITS[split]
    made = synthetic_waves(count, snr_db=NOISES[name], seed=seed)
    return Dataset(f"{name}:{split}", made.inputs, made.labels, made.classes, made.bounds, made.extras)


def _make_waves(
    keys: Tensor, steps: int, channels: int, block: int, distractors: float, whole: bool, random_phases: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Series without noise, the positions of their blocks, and the two frequencies, for samples with these keys."""
    count = len(keys)
    # for every channel: slow frequency, fast frequency, start of the block, rank, distractor or not, two phases
    drawn = hashed_uniform(keys, 7 * channels).reshape(count, 7, channels)
    slow, fast = _frequencies(drawn[:, 0], BASE), _frequencies(drawn[:, 1], SUPPORT, whole)
    start = (drawn[:, 2].double() * (steps - block + 1)).long()
    order = drawn[:, 3].argsort(dim=1, stable=True)  # the channels in random order; the first two carry the class
    rank = order.argsort(dim=1)
    carries, distracts = rank < 2, (rank >= 2) & (drawn[:, 4] < distractors)
    turn = drawn[:, 5:7] if random_phases else torch.zeros(count, 2, channels)
    time = torch.arange(steps)
    since_start = time - start[:, :, None]  # steps since the start of the block, (count, channels, steps)
    within = (since_start >= 0) & (since_start < block)
    sine = _sine(fast, since_start / steps, turn[:, 1])
    added = torch.where(carries[:, :, None], sine, torch.where(sine >= 0, 1.0, -1.0))
    has_block = within & (carries | distracts)[:, :, None]
    waves = BASE_AMPLITUDE * _sine(slow, time / steps, turn[:, 0])
    waves = waves + torch.where(has_block, BLOCK_AMPLITUDE * added, 0.0)
    return waves, within & carries[:, :, None], fast.gather(1, order[:, :2])


def _frequencies(uniform: Tensor, bounds: tuple[float, float], whole: bool = False) -> Tensor:
    low, high = bounds
    return low + (uniform * (high - low + 1)).floor() if whole else low + uniform * (high - low)


def _sine(frequency: Tensor, time: Tensor, turn: Tensor) -> Tensor:
    """Sines `(count, channels, steps)`, for frequencies and phases `(count, channels)` in turns."""
    return torch.sin(2 * math.pi * (frequency[:, :, None] * time + turn[:, :, None]))
