"""Random streams of single samples, threads and memory, per-sample values, and hints at what is no tensor.

Every sample draws its random numbers from its own stream. The seed and the sample's values determine the stream.
So a result does not depend on the batch size, on the order of the samples or on the other samples of the batch.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from standfast.errors import FINITE, ArgumentError, check

#: a NumPy array of any type and shape
Array = np.ndarray[Any, Any]
#: a bound of inputs: a number, or a tensor that broadcasts against one input
Bound = float | Tensor

#: whether a benchmark (`benchmarks/on_a_card/waits.py`) shows on the CPU what a card would do
PRETENDS_CARD = False

_ON_CARD = 1 << 25  # numbers: more than 200 images of 224 x 224 pixels

# the three constants are those of SplitMix64, as signed numbers, since int64 is what torch computes with
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift and fill with zeros (a logical shift); torch's `>>` on int64 fills with the sign bit."""
    return (x >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def mix64(x: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64 tensors: a bijection that maps neighbouring integers to distant ones.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
    """
    x = x + _GOLDEN  # a new tensor, on which the rest works in place, in half the time
    x.bitwise_xor_(_shift_right(x, 30)).mul_(_MIX_1)
    x.bitwise_xor_(_shift_right(x, 27)).mul_(_MIX_2)
    return x.bitwise_xor_(_shift_right(x, 31))


def draw_seed(generator: torch.Generator | None) -> int:
    """Draw a base seed from `generator`; without a generator the seed is always 0, so that a run can be repeated."""
    if generator is None:
        return 0
    device = generator.device
    return int(torch.randint(1 << 62, (1,), generator=generator, device=device).item())


def content_keys(x: Tensor, seed: int) -> Tensor:
    """One int64 key for each row of `x` `(N, ...)`, computed from its values and `seed`; shape `(N,)`.

    Rows with equal values get equal keys, at any position in the batch. The key is a multilinear hash of the
    float32 bits.

    >>> x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> keys = content_keys(x, seed=3)
    >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
    (True, False)
    """
    # -0.0 and 0.0 are the same value
    flat = x.detach().reshape(x.shape[0], -1).to(torch.float32)
    flat = flat + 0.0
    bits = flat.contiguous().view(torch.int32).to(torch.int64)
    start = mix64(torch.full((1,), seed, device=x.device, dtype=torch.int64))
    # odd, because only odd factors can be inverted modulo 2 ** 64, so that no bit of a value is lost
    positions = torch.arange(bits.shape[1], device=x.device)
    odd = mix64(start + positions) | 1
    return mix64((bits * odd).sum(1) + start)


def hashed_uniform(keys: Tensor, count: int) -> Tensor:
    """`count` uniform numbers in (0, 1) for each key; float32 `(N, count)`. The same key gives the same numbers."""
    counters = torch.arange(1, count + 1, device=keys.device) * _GOLDEN
    bits = mix64(keys[:, None] + counters)
    # 23 bits plus one half. With 24 bits, float32 would round the largest number to 1
    return _shift_right(bits, 41).to(torch.float32).add_(0.5).mul_(2.0**-23)


class Streams:
    """A random stream for each of P problems; draws are stacked along the first axis.

    >>> streams = Streams([1, 2], device=torch.device("cpu"))
    >>> streams.normal((3,), dtype=torch.float32).shape
    torch.Size([2, 3])
    """

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.device = device
        self._generators = [
            torch.Generator(device).manual_seed(seed & ((1 << 63) - 1)) for seed in seeds
        ]

    @classmethod
    def for_rows(cls, x: Tensor, seed: int) -> Streams:
        """One stream for each row of `x`, determined by the row's values and `seed`."""
        return cls(content_keys(x, seed).tolist(), x.device)

    def __len__(self) -> int:
        return len(self._generators)

    def select(self, rows: Sequence[int]) -> Streams:
        """The streams of some problems; each continues at its current position."""
        chosen = object.__new__(Streams)
        chosen.device = self.device
        chosen._generators = [self._generators[row] for row in rows]
        return chosen

    def normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Standard normal numbers, `(P, *shape)`."""
        shape_of_all = (len(self), *shape)
        out = torch.empty(shape_of_all, device=self.device, dtype=dtype)
        for row, generator in zip(out, self._generators, strict=True):
            row.normal_(generator=generator)
        return out

    def uniform(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Uniform numbers in [0, 1), `(P, *shape)`."""
        shape_of_all = (len(self), *shape)
        out = torch.empty(shape_of_all, device=self.device, dtype=dtype)
        for row, generator in zip(out, self._generators, strict=True):
            row.uniform_(generator=generator)
        return out

    def refill(self, choices: Sequence[int], count: int) -> list[Tensor]:
        """For each problem p, `count` integers below `choices[p]`, each as often as the others, up to one time.

        Those that come one time more than others are drawn without replacement.
        """
        columns = []
        for high, generator in zip(choices, self._generators, strict=True):
            shuffled = torch.randperm(high, generator=generator, device=self.device)
            once_more = shuffled[: count % high]
            each_once = torch.arange(high, device=self.device)
            columns.append(torch.cat([each_once.repeat(count // high), once_more]))
        return columns


@contextlib.contextmanager
def seed_generators(seed: int, device: torch.device) -> Iterator[Callable[[], bool]]:
    """Seed the global generators of torch, NumPy and Python inside, and restore their state afterwards.

    Gives a function that says whether any random number has been drawn since.
    """
    # NumPy's global generator is what other packages draw from, so it is the one to be restored
    numbers, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    cuda = device.type == "cuda"
    devices = [device] if cuda else []
    with torch.random.fork_rng(devices=devices):
        if _may_have_card():
            torch.manual_seed(seed)
        else:
            # the same numbers; `manual_seed` would note the whole stack for each kind of card that is not there
            torch.default_generator.manual_seed(seed)
        # NumPy takes 32 bits only
        np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002
        random.seed(seed)
        if cuda:
            state = torch.cuda.get_rng_state(device)
        else:
            state = torch.empty(0)
        state_of_torch = torch.random.get_rng_state()
        state_of_python = random.getstate()
        state_of_numpy: Any = np.random.get_state()  # noqa: NPY002

        def has_drawn() -> bool:
            if not torch.equal(state_of_torch, torch.random.get_rng_state()):
                return True
            if state_of_python != random.getstate():
                return True
            if cuda and not torch.equal(state, torch.cuda.get_rng_state(device)):
                return True
            now: Any = np.random.get_state()  # noqa: NPY002
            # a name, an array of numbers, and where in it the next one is
            is_same_place = state_of_numpy[2:] == now[2:]
            return not (is_same_place and np.array_equal(state_of_numpy[1], now[1]))

        try:
            yield has_drawn
        finally:
            np.random.set_state(numbers)  # noqa: NPY002
            random.setstate(python)


@functools.cache
def _may_have_card() -> bool:
    # versions of torch without `torch.accelerator` cannot say it of all kinds of cards
    accelerator = getattr(torch, "accelerator", None)
    return accelerator is None or bool(accelerator.is_available())


def raise_power(base: float, exponents: Tensor) -> Tensor:
    """`base ** exponents` for a base above 0, with the same bits in every batch.

    The last bits of torch's own power depend on how near a number is to the end of the tensor.

    >>> raise_power(2.0, torch.tensor([1.0, -1.0]))
    tensor([2.0, 0.5])
    """
    return torch.exp(math.log(base) * exponents)


def is_image(shape: Sequence[int]) -> bool:
    """Whether inputs of this shape, without the batch, are taken as pictures: `(1, H, W)` or `(3, H, W)`.

    >>> is_image((1, 28, 28)), is_image((3, 224, 224)), is_image((6, 100)), is_image((1, 16, 16, 16))
    (True, True, False, False)
    """
    return len(shape) == 3 and shape[0] in (1, 3)


def is_on_host(place: Tensor | torch.device) -> bool:
    """Whether a tensor, or the tensors of a device, are in the memory of the CPU, where NumPy can work on them."""
    device = place.device if isinstance(place, Tensor) else place
    # a benchmark gives a device with an index to what stands for a card
    return device.type == "cpu" and not (PRETENDS_CARD and device.index is not None)


def count_at_once(on_host: int, place: Tensor | torch.device) -> int:
    """How many numbers to work on at once: `on_host` on a CPU, as many as fit into a cache; on a card what fills it.

    For work that needs up to a hundred bytes for each number.
    """
    if is_on_host(place):
        return on_host
    return max(on_host, _ON_CARD)


def holds_everywhere(mask: Tensor) -> bool:
    """Whether a mask is known to hold everywhere; for work that may be left out then.

    On a card it is not asked, because the answer costs more than such work: the host would wait for the card.
    """
    return is_on_host(mask) and bool(mask.all())


def send(
    values: Tensor | Sequence[Any], device: torch.device, dtype: torch.dtype | None = None
) -> Tensor:
    """Values of the host as a tensor on a device; the host does not wait until they are there.

    >>> send([1, 2], torch.device("cpu"))
    tensor([1, 2])
    """
    if isinstance(values, Tensor):
        tensor = values.to(dtype=dtype)
    else:
        tensor = torch.tensor(values, dtype=dtype)
    if device.type == "cuda" and tensor.device.type == "cpu":
        # only from pinned memory can a copy go on while the host does
        tensor = tensor.pin_memory()
    return tensor.to(
        device, non_blocking=tensor.device.type == "cpu" and device.type in ("cpu", "cuda")
    )


def widen_half(values: Tensor) -> Tensor:
    """`values` in float32 if they have half precision, which is too coarse to count with; else as they are.

    >>> widen_half(torch.ones(1, dtype=torch.bfloat16)).dtype, widen_half(torch.ones(1).double()).dtype
    (torch.float32, torch.float64)
    """
    if values.dtype in (torch.float16, torch.bfloat16):
        return values.float()
    return values


def broadcast_rows(values: Tensor, like: Tensor) -> Tensor:
    """`values` `(N,)` reshaped to broadcast over the features of `like` `(N, ...)`."""
    further_axes = like.ndim - values.ndim
    return values.reshape(values.shape + (1,) * further_axes)


def compile_loops(function: Callable[..., None], signature: str) -> Callable[..., None] | None:
    """A function of numbers and NumPy arrays as machine code, cached on disk if possible; None without numba."""
    try:
        import numba
    except ImportError:
        return None
    compiled: Callable[..., None]
    try:
        compiled = numba.njit(signature, nogil=True, cache=True)(function)
    except (RuntimeError, OSError):  # no directory for the cache
        compiled = numba.njit(signature, nogil=True)(function)
    return compiled


def available_cpus() -> int:
    """How many cores this process may use: those of its affinity, or fewer where a container has a quota."""
    if hasattr(os, "sched_getaffinity"):
        # one that is pinned to a few cores would start threads that wait for each other
        cpus = len(os.sched_getaffinity(0))
    else:
        cpus = os.cpu_count() or 1
    # the file is only there on Linux, with control groups of version 2
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        if quota != "max":
            cores = math.ceil(int(quota) / int(period))
            cpus = min(cpus, max(1, cores))
    return max(1, cpus)


def thread_budget() -> int:
    """How many threads one process may use: `STANDFAST_THREADS` if set, else the number of available cores."""
    setting = os.environ.get("STANDFAST_THREADS", "")
    if not setting:
        return available_cpus()
    check(
        setting.isdigit() and int(setting) > 0,
        "STANDFAST_THREADS",
        "a whole number above 0",
        repr(setting),
    )
    return int(setting)


@contextlib.contextmanager
def limited_threads() -> Iterator[None]:
    """Limit torch to `thread_budget()` threads inside the block, and restore the number of threads afterwards."""
    before = torch.get_num_threads()
    budget = thread_budget()
    if before <= budget:
        yield
        return
    torch.set_num_threads(budget)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next batch, and not return it to the system; once for the process.

    glibc returns the free end of its heap if that is more than twice as large as the largest block that was freed so
    far. So it may return what one pass of a small network needs, and the next pass has to ask for every page again: up
    to a third of its time. Freeing a block of nearly 32 MiB, the largest that glibc counts, moves the limit to 64 MiB.
    The block is never written, so it takes no memory. Other C libraries do not mind.
    """
    torch.empty(31 << 20, dtype=torch.uint8, device="cpu")


def read_bounds(
    bounds: Any, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """The lower and the upper bound of inputs as tensors.

    Args:
        bounds: a pair of numbers, arrays or tensors, such as those of a model; or an array of two numbers.
        dtype, device: of the result.

    Raises:
        ArgumentError: no such pair, or a lower bound that is not below the upper one.

    >>> read_bounds((0, np.ones(2)))
    (tensor(0., dtype=torch.float64), tensor([1., 1.], dtype=torch.float64))
    """
    expected = "a pair (lower, upper) of numbers or tensors"
    # an array of one axis; a pair of arrays stays a pair
    pair = bounds
    if getattr(bounds, "ndim", 0) == 1:
        pair = bounds.tolist()
    is_pair = isinstance(pair, tuple | list) and len(pair) == 2
    check(is_pair, "bounds", expected, repr(bounds))
    try:
        lower, upper = (torch.as_tensor(bound, dtype=dtype, device=device) for bound in pair)
        # expanded, so that the first place that is wrong can be named
        low, high = (bound.expand_as(lower + upper) for bound in (lower, upper))
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError("bounds", expected, repr(bounds)) from None
    wrong = (~(low < high)).nonzero()
    if len(wrong):
        first = tuple(wrong[0].tolist())
        lower_end, upper_end = low[first].item(), high[first].item()
        got = f"({lower_end:zg}, {upper_end:zg})"
        if len(first) == 1:
            index = first[0]
        else:
            index = first
        where = f" at {index}" if first else ""
        more = ""
        if len(wrong) > 1:
            more = f", the first of {len(wrong)} such places"
        constant = low.ndim == 1 and bool(low[first] == high[first])
        equal = "; a column that is constant needs a range, too" if constant else ""
        if bool((low.isnan() | high.isnan()).any()):
            expected = FINITE
        else:
            expected = "lower < upper"
        raise ArgumentError("bounds", expected, f"{got}{where}{more}{equal}")
    return lower, upper


def describe_rows(rows: Tensor) -> str:
    """The shape of a batch without the number of rows: `"(N, 1, 28, 28)"`."""
    inner = ", ".join(map(str, rows.shape[1:]))
    if inner:
        return f"(N, {inner})"
    return "(N,)"


def describe_bounds(bounds: tuple[Bound, Bound]) -> str:
    """The range of the bounds, of all channels together.

    >>> describe_bounds((0.0, torch.tensor([1.0, 2.5])))
    '[0, 2.5]'
    """
    lower, upper = (torch.as_tensor(bound) for bound in bounds)
    lowest, highest = lower.min().item(), upper.max().item()
    return f"[{lowest:zg}, {highest:zg}]"


def describe_no_tensor(inputs: object) -> str:
    """What a user gave in place of a tensor, and what to do about it, for the end of a message.

    >>> describe_no_tensor((torch.rand(2, 3), torch.tensor([0, 1])))
    'tuple: give the inputs alone, or a standfast.data.Dataset'
    """
    kind = type(inputs).__name__
    if kind == "ndarray":
        return f"{kind}: use torch.from_numpy(x).float()"
    if isinstance(inputs, tuple | list) and any(isinstance(entry, Tensor) for entry in inputs):
        return f"{kind}: give the inputs alone, or a standfast.data.Dataset"
    if (
        isinstance(inputs, tuple | list)
        and inputs
        and all(isinstance(entry, str) for entry in inputs)
    ):
        return f"{kind} of texts: give a standfast.TextModel(model, tokenizer)"
    if isinstance(inputs, DataLoader):
        return f"{kind}: use one batch, such as x, labels = next(iter(loader))"
    if isinstance(inputs, TensorDataset):
        return f"{kind}: use dataset.tensors[0]"
    if isinstance(inputs, torch.utils.data.Dataset):
        return f"{kind}: use torch.stack([x for x, _ in dataset])"
    if kind == "DataFrame":  # pandas and polars need not be installed
        return f"{kind}: use torch.tensor(frame.to_numpy(), dtype=torch.float32)"
    return kind


#: what inputs that are not `(N, C, ...)` may be, for inputs of at least so many axes, and how to convert them; of a
#: single input the first two have the same shape, and the first one is right for any number
_LAYOUTS: tuple[tuple[int, str, str, Callable[[Tensor], Tensor]], ...] = (
    (2, "inputs without an axis of channels,", "x[:, None]", lambda x: x[:, None]),
    (1, "one sample", "x[None]", lambda x: x[None]),
    (
        3,
        "inputs whose axes are swapped, the channels last,",
        "x.movedim(-1, 1)",
        lambda x: x.movedim(-1, 1),
    ),
    (
        2,
        "one sample whose axes are swapped,",
        "x.movedim(-1, 0)[None]",
        lambda x: x.movedim(-1, 0)[None],
    ),
    (2, "one sample without an axis of channels,", "x[None, None]", lambda x: x[None, None]),
)


def suggest_layout(inputs: Tensor, accepts: Callable[[Tensor], bool]) -> str:
    """What `inputs` of the wrong layout are, and how to convert them, for the end of a message; empty if not known.

    Args:
        inputs: of any shape.
        accepts: whether converted inputs fit.

    >>> suggest_layout(torch.zeros(5, 100, 3), lambda x: x.shape == (5, 3, 100))
    'inputs whose axes are swapped, the channels last, of shape (5, 100, 3): use x.movedim(-1, 1)'
    """
    for axes, what, use, convert in _LAYOUTS:
        if inputs.ndim >= axes and accepts(convert(inputs)):
            return f"{what} of shape {tuple(inputs.shape)}: use {use}"
    return ""


def suggest_dtype(inputs: Tensor, wanted: torch.dtype) -> str:
    """How to convert inputs of another dtype, for the end of a message.

    >>> suggest_dtype(torch.zeros(1, 3, dtype=torch.uint8), torch.float32)
    'use x.float(), divided by 255 if the bounds are (0, 1)'
    """
    if wanted == torch.float32:
        use = "use x.float()"
    else:
        use = f"use x.to({wanted})"
    if inputs.dtype == torch.uint8:
        return f"{use}, divided by 255 if the bounds are (0, 1)"
    if inputs.dtype in (torch.int64, torch.int32):
        return f"{use}; for token ids, see standfast.zoo.EmbeddedText and docs/how-to/text.md"
    return use
