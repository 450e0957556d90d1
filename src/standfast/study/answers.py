"""What models and explainers answer when they are asked: numbers by which a plan knows them again.

What a model does cannot be found out by reading it, so it is asked: for its inputs, for noisy copies of them, and for
gradients. An explainer of the user's is asked for maps, in a process of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from standfast.explainers import Explainer
from standfast.model import ROW_ALIGNMENT, Composition, Model
from standfast.neighbourhoods import Neighbourhood
from standfast.question.grid import MOST_ANSWERS
from standfast.tensors import seed_generators

#: how many noisy copies a model is asked for, and how many gradients
_NOISY_COPIES = 64
_GRADIENTS = 4
#: how many rows with other cells a model of data frames is asked for
_ROWS_WITH_OTHER_CELLS = 10_000
#: how many maps an explainer of the user's is asked for, and one that reads trees
_MAPS = 2
_MAPS_OF_READERS = 16
#: numbers of answers are the same if they differ by less than this share of their root mean square
TOLERANCE = 1e-3
#: the same for models that compute with 16 bits
_COARSE = 5e-2
#: how long an explainer may take for its maps, and how much memory
_SECONDS = 30.0
_BYTES = 4 * 10**9
#: the share of the range of the inputs that noise covers
_SHARE_OF_NOISE = 0.1


def find_composition(model: Model) -> Composition | None:
    """What a model of arrays, data frames or texts says that it consists of; None for a model of tensors."""
    if model.black_box is None:
        return None
    return model.black_box.composition


@dataclass(frozen=True)
class AnswerNumbers:
    """What a model answers, or an explainer of the user's: a number for each input, by what was asked.

    Each number is a fixed random combination of the numbers that were answered, so that all of them matter.

    Attributes:
        numbers: `"inputs"`, `"noisy copies"`, `"gradients"`, `"cells"`, `"copies of the neighbourhood"`; `"maps"`.
        pace: the seconds that the fastest pass has taken for a row; infinite where none was timed.
    """

    numbers: Mapping[str, tuple[float, ...]]
    pace: float = field(default=math.inf, compare=False)

    @property
    def plain(self) -> dict[str, str]:
        """For the manifest: with six digits."""
        texts: dict[str, str] = {}
        for what, numbers in self.numbers.items():
            texts[what] = " ".join(f"{number:.6g}" for number in numbers)
        return texts

    @classmethod
    def from_plain(cls, content: Mapping[str, str]) -> AnswerNumbers:
        """From what `plain` returns."""
        numbers: dict[str, tuple[float, ...]] = {}
        for what, text in content.items():
            numbers[what] = tuple(float(number) for number in text.split())
        return cls(numbers)

    @classmethod
    def join(cls, parts: Sequence[AnswerNumbers]) -> AnswerNumbers:
        """The answers to all inputs, from those to parts of them."""
        numbers: dict[str, tuple[float, ...]] = {}
        for what in parts[0].numbers:
            numbers_of_parts = [part.numbers.get(what, ()) for part in parts]
            numbers[what] = tuple(itertools.chain.from_iterable(numbers_of_parts))
        return cls(numbers, min(part.pace for part in parts))

    def __len__(self) -> int:
        return sum(map(len, self.numbers.values()))

    def find_difference(self, other: AnswerNumbers, precision: torch.dtype = torch.float32) -> str:
        """What differs by more than the tolerance: the first of the names; empty if nothing does.

        Where one has answers to more inputs, the first of them are compared.

        >>> AnswerNumbers({"inputs": (1.0, 2.0)}).find_difference(AnswerNumbers({"inputs": (1.0, 2.1)}))
        'inputs'
        """
        for what in dict.fromkeys([*self.numbers, *other.numbers]):
            if what not in self.numbers or what not in other.numbers:
                return what
            pairs = np.array(list(zip(self.numbers[what], other.numbers[what], strict=False)))
            scale = float(np.sqrt(np.nanmean(np.square(pairs))))
            if precision in (torch.float32, torch.float64):
                tolerance = TOLERANCE
            else:
                tolerance = _COARSE
            ours, theirs = pairs[:, 0], pairs[:, 1]
            if not np.allclose(ours, theirs, 1e-12, tolerance * scale, equal_nan=True):
                return what
        return ""


#: what a model answers to rows; it is timed
_Answer = Callable[[Tensor], Tensor]


def ask_model(model: Model, inputs: Tensor, outputs: Tensor | None = None) -> AnswerNumbers:
    """The answers of a model to the first of the inputs `(N, ...)`; no numbers where it fails.

    Args:
        model: to ask.
        inputs: checked.
        outputs: of the first of the inputs, where they are known.
    """
    first_inputs = inputs[:MOST_ANSWERS].to(model.device)
    numbers: dict[str, tuple[float, ...]] = {}
    rows: dict[str, Tensor] = {}
    if outputs is None:
        rows["inputs"] = first_inputs
    else:
        numbers["inputs"] = _combine(outputs)
    rows["noisy copies"] = _add_noise(model, first_inputs[:_NOISY_COPIES])
    ask = _ask_each
    composition = find_composition(model)
    other_rows = None
    if composition is not None:
        other_rows = composition.rows
    if other_rows is not None and len(other_rows) > 0:
        rows["cells"] = other_rows[:_ROWS_WITH_OTHER_CELLS].to(first_inputs)
        ask = _ask_together
    paces = [math.inf]

    def answer(part: Tensor) -> Tensor:
        began = time.perf_counter()
        answers = _answer(model, part).cpu()  # so that a card has ended
        seconds = time.perf_counter() - began
        # batches are filled up
        paces.append(seconds / max(len(part), 2 * ROW_ALIGNMENT))
        return answers

    # a model that fails has no answers here, and its jobs say why
    with contextlib.suppress(Exception), model.session():
        with torch.no_grad():
            numbers |= ask(answer, rows)
        if model.differentiable:
            # a layer may have no derivative, or none of its own
            with contextlib.suppress(Exception):
                numbers["gradients"] = _ask_gradients(model, first_inputs[:_GRADIENTS])
        if math.isinf(min(paces)):  # it refuses all but inputs, whose outputs were known
            with torch.no_grad():
                answer(first_inputs[: 2 * ROW_ALIGNMENT])
    return AnswerNumbers(numbers, min(paces))


def _ask_together(answer: _Answer, rows: Mapping[str, Tensor]) -> dict[str, tuple[float, ...]]:
    """The answers to several kinds of rows, by one call: a pipeline takes as long for a few rows as for hundreds."""
    try:
        answers = answer(torch.cat([*rows.values()]))
    except Exception:  # it refuses some of them; then the others count
        return _ask_each(answer, rows)
    lengths = [len(part) for part in rows.values()]
    parts = torch.split(answers, lengths)
    return {what: _combine(part) for what, part in zip(rows, parts, strict=True)}


def _ask_each(answer: _Answer, rows: Mapping[str, Tensor]) -> dict[str, tuple[float, ...]]:
    """The answers to several kinds of rows, one after the other; those to the inputs must not fail."""
    numbers: dict[str, tuple[float, ...]] = {}
    for what, part in rows.items():
        if what == "inputs":
            numbers[what] = _combine(answer(part))
            continue
        # a model may refuse values that are no codes, or cells without a value
        with contextlib.suppress(Exception):
            numbers[what] = _combine(answer(part))
    return numbers


def _ask_gradients(model: Model, inputs: Tensor) -> tuple[float, ...]:
    with torch.enable_grad():
        x = inputs.detach().clone().requires_grad_(True)
        outputs = model.forward(x.clone())
        largest_outputs = outputs.flatten(1).amax(1)
        (gradient,) = torch.autograd.grad(largest_outputs.sum(), x)
        return _combine(gradient)


def answer_rows(model: Model, inputs: Tensor) -> Tensor | None:
    """The outputs for the first of the inputs `(N, ...)`; None where the model fails."""
    # its jobs say why
    with contextlib.suppress(Exception), model.session(), torch.no_grad():
        return _answer(model, inputs[:MOST_ANSWERS].to(model.device))
    return None


def ask_inputs(model: Model, inputs: Tensor) -> AnswerNumbers:
    """The answers to the first of the inputs `(N, ...)` and to nothing else; no numbers where the model fails."""
    outputs = answer_rows(model, inputs)
    if outputs is None:
        return AnswerNumbers({})
    return AnswerNumbers({"inputs": _combine(outputs)})


def _answer(model: Model, x: Tensor) -> Tensor:
    (logits,) = model.map_rows(lambda rows: (model.forward(rows.clone()),), x)
    return logits


def ask_nearby(model: Model, neighbourhood: Neighbourhood, inputs: Tensor) -> AnswerNumbers:
    """The answers to some copies of the first inputs `(N, ...)` that a neighbourhood makes; none where this fails."""
    first_inputs = inputs[:_NOISY_COPIES].to(model.device)
    count = max(1, _NOISY_COPIES // len(first_inputs))
    answers: dict[str, tuple[float, ...]] = {}
    # the neighbourhood may not fit the inputs, or the model refuse the copies, as their jobs will say
    with contextlib.suppress(Exception), model.session(), torch.no_grad():
        region = neighbourhood.around(first_inputs, model.bounds)
        points = region.sample(count, region.streams(0)).flatten(0, 1)
        origins = torch.arange(len(first_inputs)).repeat_interleave(count)
        copies = region.perturb(points, origins)
        answers["copies of the neighbourhood"] = _combine(_answer(model, copies))
    return AnswerNumbers(answers)


def ask_reader(
    explainer: Explainer, model: Model, inputs: Tensor, targets: Tensor | None
) -> AnswerNumbers:
    """The maps of an explainer that reads the inside of a model (`reads_inside`); no numbers where it fails."""
    first_rows = slice(0, _MAPS_OF_READERS)
    first_targets = None
    if targets is not None:
        first_targets = targets[first_rows]
    answers: dict[str, tuple[float, ...]] = {}
    # its jobs say why it fails
    with (
        contextlib.suppress(Exception),
        warnings.catch_warnings(),
        seed_generators(0, model.device),
    ):
        warnings.simplefilter("ignore")  # its jobs warn
        maps = explainer(model, inputs[first_rows], first_targets)
        answers["maps"] = _combine(maps)
    return AnswerNumbers(answers)


def ask_explainer(
    explainer: Explainer, model: Model, inputs: Tensor, targets: Tensor | None
) -> AnswerNumbers:
    """The maps of the first two inputs; no numbers where it fails, ends its process, or takes half a minute or 4 GB.

    It is asked in a copy of this process, on the CPU, so that nothing that it does is left. Systems that cannot copy
    a process (Windows), and models on a card, give no numbers.
    """
    if not hasattr(os, "fork") or model.device.type != "cpu":
        return AnswerNumbers({})
    context = multiprocessing.get_context("fork")
    read, write = context.Pipe(duplex=False)
    child = context.Process(target=_send_maps, args=(write, explainer, model, inputs, targets))
    with warnings.catch_warnings():
        # other threads do not exist in the copy, nor are they used
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    assert child.pid is not None
    write.close()
    answers: dict[str, tuple[float, ...]] = {}
    with contextlib.suppress(EOFError):  # it has ended without an answer
        if read.poll(_SECONDS):
            answers["maps"] = read.recv()
    with contextlib.suppress(OSError):  # it leads no group yet, or any more
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.join()
    return AnswerNumbers(answers)


def _send_maps(
    write: Connection, explainer: Explainer, model: Model, inputs: Tensor, targets: Tensor | None
) -> None:
    """What the copy of the process does: it says nothing but its answer."""
    try:
        os.setsid()  # what it starts is ended with it
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        torch.set_num_threads(1)
        _limit_memory(_BYTES)
        with seed_generators(0, model.device):
            first_targets = None
            if targets is not None:
                first_targets = targets[:_MAPS]
            maps = explainer(model, inputs[:_MAPS], first_targets)
        write.send(_combine(maps))
    finally:
        # without what this process does at its end, such as writing a traceback in a notebook
        os._exit(0)


def _limit_memory(more: int) -> None:
    """Let this process have so many bytes more than it has, where the system can do that."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        used_bytes = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
        resource.setrlimit(
            resource.RLIMIT_DATA, (used_bytes + more, resource.getrlimit(resource.RLIMIT_DATA)[1])
        )


def _add_noise(model: Model, x: Tensor) -> Tensor:
    lower, upper = (bound.expand_as(x) for bound in model.bounds)
    spread = (upper - lower).nan_to_num(posinf=0.0)
    one_for_each = (len(x), *[1] * (x.ndim - 1))
    largest_value = x.flatten(1).abs().amax(1).reshape(one_for_each).expand_as(x)
    spread = torch.where(spread > 0, spread, largest_value)
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x) - 0.5
    noisy = x + _SHARE_OF_NOISE * spread * noise
    return torch.minimum(torch.maximum(noisy, lower), upper)


def _combine(values: Tensor) -> tuple[float, ...]:
    """A fixed random combination of the numbers of each row."""
    rows = values.detach().double().cpu().flatten(1)
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(rows.shape[1], generator=generator, dtype=torch.float64)
    sums = (rows @ weights).tolist()
    return tuple(float(f"{number:.6g}") for number in sums)
