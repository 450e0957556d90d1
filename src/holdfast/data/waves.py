"""Synthetic series whose class is known to lie in two short blocks of them, and where those are.

Every channel is a slow sine. Two channels, drawn at random, carry a block each: a fast sine that lasts for a part of
the series. The class says whether the two fast frequencies add up to a threshold, so it lies in the blocks and nowhere
else: an explanation of a classifier that is right must point there.

Source: Wei, Turbe and Mengaldo, "Revisiting the robustness of post-hoc interpretability methods" (2024), App. B.1,
after Turbe, Bjelogrlic, Lovis and Mengaldo, "Evaluation of post-hoc interpretability methods in time-series
classification", Nature Machine Intelligence 5, 2023. What the text leaves open follows the generator that the authors
published: slow sines of amplitude 1/2 and blocks of amplitude 1, added to them; both begin with phase 0; the two blocks
lie in different channels and anywhere in time, independently; noise is relative to the power of each channel of each
sample. Beyond the text, that generator draws whole frequencies for the blocks and puts square waves, which mean
nothing, into half of the other channels: `whole=True, distractors=0.5`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from holdfast.data.dataset import Dataset
from holdfast.errors import check, check_integer
from holdfast.tensors import Streams, hashed_uniform, mix64

BASE, SUPPORT = (2.0, 5.0), (10.0, 50.0)
BASE_AMPLITUDE, BLOCK_AMPLITUDE = 0.5, 1.0
THRESHOLD = 60.0
CLASSES = ("below", "above")

#: the sets by name: how many samples, and from which seed
SPLITS = {"train": (6000, 0), "test": (1500, 1)}
#: a name ends on one of these; in dB
NOISES = {"waves": None, "waves20db": 20.0, "waves15db": 15.0, "waves10db": 10.0}

_CHUNK = 512  # samples that are made at once
_NOISE = 0x5EED  # sets the noise's streams apart from those of the waves


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
    """`n` series with two class-carrying blocks each: inputs (n, channels, steps), classes "below" and "above".

    A sample depends on the seed and on its number alone: the first samples of a larger set are those of a smaller one,
    and the same waves carry the noise of every `snr_db`. All are made on the CPU.

    Args:
        n: samples, at least 1.
        steps: of each series; a sine of frequency f has f periods in them.
        channels: at least 2.
        block: steps of a block, at most `steps`.
        snr_db: the ratio of signal to added Gaussian noise, in dB, for every channel of every sample; None for none.
        seed: a whole number.
        distractors: the probability, in [0, 1], that another channel carries a block of a square wave.
        whole: whole frequencies of the blocks, 10 to 50, each as likely as the others, in place of uniform ones.
        random_phases: uniform phases in place of 0, of the slow sines and of the blocks.
        standardize: divide all by one number, the standard deviation that the values have in expectation. Their mean
            is left alone: 0.06 after that, as sines that begin with phase 0 rise first, and 0 with `random_phases`.

    Returns:
        The data set, unbounded, with `extras`:
            blocks: bool (n, channels, steps), where the two blocks are.
            frequencies: float32 (n, 2), of the two blocks, in periods per series, each in [10, 50].
            f_norm: float32 (n,), their sum's place in [20, 100], in [0, 1]; the classes part at 1/2.

    Raises:
        ArgumentError: a number out of its range.

    >>> waves = synthetic_waves(8)
    >>> waves.inputs.shape, waves.labels.tolist()
    (torch.Size([8, 4, 500]), [...])
    >>> waves.extras["blocks"].sum((1, 2)).tolist()
    [200, 200, 200, 200, 200, 200, 200, 200]
    >>> torch.equal(waves.labels, (waves.extras["frequencies"].sum(1) >= 60).long())
    True
    """
    _check_count("n", n, 1)
    _check_count("channels", channels, 2)
    _check_count("block", block, 1)
    _check_count("steps", steps, block)
    check(type(seed) is int and abs(seed) < 1 << 62, "seed", "a whole number of at most 62 bits", repr(seed))
    fine = snr_db is None or (isinstance(snr_db, int | float) and math.isfinite(snr_db))
    check(fine, "snr_db", "a finite number of dB, or None", repr(snr_db))
    check(0 <= distractors <= 1, "distractors", "a probability", distractors)
    keys = mix64(mix64(torch.tensor([seed])) + torch.arange(n))
    scale = 1 / deviation(steps, channels, block, snr_db, distractors) if standardize else 1.0
    parts = []
    for chunk in torch.split(keys, _CHUNK):
        waves, blocks, frequencies = _waves(chunk, steps, channels, block, distractors, whole, random_phases)
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


def deviation(
    steps: int = 500, channels: int = 4, block: int = 100, snr_db: float | None = None, distractors: float = 0.0
) -> float:
    """The standard deviation of the values before `standardize`: of independent sines, blocks and noise.

    >>> round(deviation(), 3)  # (1/8 + 1/2 x 1/5 x 2 of 4 channels)^(1/2)
    0.418
    """
    others = channels - 2
    covered = (2 * BLOCK_AMPLITUDE**2 / 2 + others * distractors * BLOCK_AMPLITUDE**2) / channels * block / steps
    noise = 0.0 if snr_db is None else 10 ** (-snr_db / 10)
    return math.sqrt((BASE_AMPLITUDE**2 / 2 + covered) * (1 + noise))


def named_waves(name: str, split: str) -> Dataset:
    """One of the sets by name: 6000 samples for "train", 1500 for "test", as many as the paper tests on.

    >>> named_waves("waves20db", "test").name
    'waves20db:test'
    """
    check(name in NOISES, "name", f"one of {', '.join(NOISES)}", repr(name))
    check(split in SPLITS, "split", " or ".join(SPLITS), repr(split))
    count, seed = SPLITS[split]
    made = synthetic_waves(count, snr_db=NOISES[name], seed=seed)
    return Dataset(f"{name}:{split}", made.inputs, made.labels, made.classes, made.bounds, made.extras)


def _waves(
    keys: Tensor, steps: int, channels: int, block: int, distractors: float, whole: bool, random_phases: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Noiseless series, the places of their blocks, and the two frequencies, for the samples of these keys."""
    count = len(keys)
    # for every channel its slow and fast frequency, start, rank, whether it has a distractor, two phases
    drawn = hashed_uniform(keys, 7 * channels).reshape(count, 7, channels)
    slow, fast = _frequencies(drawn[:, 0], BASE), _frequencies(drawn[:, 1], SUPPORT, whole)
    start = (drawn[:, 2].double() * (steps - block + 1)).long()
    chosen = drawn[:, 3].argsort(dim=1, stable=True)  # the channels in a random order; the first two carry the class
    rank = chosen.argsort(dim=1)
    carries, distracts = rank < 2, (rank >= 2) & (drawn[:, 4] < distractors)
    turn = drawn[:, 5:7] if random_phases else torch.zeros(count, 2, channels)
    time = torch.arange(steps)
    since = time - start[:, :, None]  # (count, channels, steps): since the block began
    within = (since >= 0) & (since < block)
    wave = _sine(fast, since / steps, turn[:, 1])
    fastest = torch.where(carries[:, :, None], wave, torch.where(wave >= 0, 1.0, -1.0))
    shown = within & (carries | distracts)[:, :, None]
    waves = BASE_AMPLITUDE * _sine(slow, time / steps, turn[:, 0])
    waves = waves + torch.where(shown, BLOCK_AMPLITUDE * fastest, 0.0)
    return waves, within & carries[:, :, None], fast.gather(1, chosen[:, :2])


def _frequencies(uniform: Tensor, bounds: tuple[float, float], whole: bool = False) -> Tensor:
    low, high = bounds
    return low + (uniform * (high - low + 1)).floor() if whole else low + uniform * (high - low)


def _sine(frequency: Tensor, time: Tensor, turn: Tensor) -> Tensor:
    """`(count, channels, steps)`, for frequencies and shares of a turn `(count, channels)`."""
    return torch.sin(2 * math.pi * (frequency[:, :, None] * time + turn[:, :, None]))


def _check_count(option: str, value: int, least: int) -> None:
    check_integer(value, option, least)
