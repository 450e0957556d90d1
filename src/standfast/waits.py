"""`count_waits`: where the host waits for the model's device, counted on any machine, also without a card.

A card works while the host prepares what comes next. It falls idle where the host needs a number from it (`item`, `if
x.any()`), a size that depends on values (`nonzero`, `x[mask]`), or a copy between both memories.

Without a card, tensors are followed. What is moved to the model's device, or made of such a tensor, counts as on the
card; all else is on the host. Code that reads `standfast.tensors.is_on_host` takes the card's path. With a card, its
own driver is asked as well (`torch.cuda.set_sync_debug_mode`).
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from standfast import tensors
from standfast.function_calls import find_tensors, split_names
from standfast.model import Model

_ROOT = str(Path(__file__).parent)
#: what a tensor on the pretended card says of its device; plain "cpu" is the host
_CARD = torch.device("cpu", 0)
#: functions of Python that read values, and operations of torch that need a value or a size before they return
_READS = split_names("tolist item numpy __array__ __bool__ __int__ __float__ __index__ __contains__ __complex__")
#: functions that take tensors from the host beside those on the card
_TAKE_HOST = split_names("copy_ __getitem__ __setitem__")
_INDEXED = split_names("index index_put index_put_ _index_put_impl_")
_OPERATIONS = {
    "_local_scalar_dense": "value",
    "is_nonzero": "value",
    "equal": "value",
    "_linalg_check_errors": "value",
    "bincount": "size",
    "nonzero": "size",
    "masked_select": "size",
    "_unique2": "size",
    "unique_dim": "size",
    "unique_consecutive": "size",
    "unique_dim_consecutive": "size",
}


@dataclass
class Waits:
    """Where the host waited.

    Attributes:
        seen: how often, by kind and by place in the package. The kinds: a `"value"` is read, a `"size"` depends on
            values, a copy `"to host"` or `"to card"`, and `"mixed"` for an operation on tensors of both, which fails.
        told: what the driver of a card reported, by place; empty without a card.
        rounds, rows: how many batches were predicted or explained, and inputs in them.
    """

    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    rows: int = 0

    @property
    def total(self) -> int:
        """How often the host waited: as the driver says, with a card."""
        return self.told.total() or self.seen.total()

    def note_round(self, rows: int) -> None:
        """Count a round of so many inputs."""
        self.rounds, self.rows = self.rounds + 1, self.rows + rows


@contextlib.contextmanager
def count_waits(model: Model) -> Iterator[Waits]:
    """Inside the block, count where the package waits for the model's device; what the user's module does is left out.

    >>> model = Model(torch.nn.Linear(4, 3), bounds=(0.0, 1.0), device="cpu")
    >>> with count_waits(model) as waits:
    ...     logits = model.logits(torch.rand(5, 4))
    >>> waits.total > 0
    True
    """
    waits, device, bounds = Waits(), model.device, model.bounds
    if device.type != "cpu":
        with _ask_driver(waits), model.watch(waits.note_round):
            yield waits
        return
    follow = _Follow(waits)
    for values in (*bounds, *model.module.parameters(), *model.module.buffers()):
        follow.mark(values)
    model.device, tensors.PRETENDS_CARD = _CARD, True
    try:
        with model.watch(waits.note_round), _Operations(follow), follow:
            yield waits
    finally:
        model.device, tensors.PRETENDS_CARD = device, False


def _find_place() -> str | None:
    """The line of the package that runs; None within the user's module."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if frame.f_code.co_name == "_call_impl":  # of torch.nn.Module
            return None
        own = name.startswith(_ROOT) and name != __file__ and not name.startswith(f"{_ROOT}/zoo")
        if own and not isinstance(frame.f_locals.get("self"), TorchFunctionMode):  # which only passes calls on
            return f"{name[len(_ROOT) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back
    return "outside"


@contextlib.contextmanager
def _ask_driver(waits: Waits) -> Iterator[None]:
    """Count what CUDA's debug mode warns of."""

    def show(message: Warning | str, *arguments: Any, **named: Any) -> None:
        if "synchronizing" not in str(message):
            before(message, *arguments, **named)
        elif (place := _find_place()) is not None:
            waits.told[place] += 1

    with warnings.catch_warnings():
        before = warnings.showwarning
        warnings.simplefilter("always")
        warnings.showwarning = show
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)


class _Follow(TorchFunctionMode):
    """Follows the tensors on the pretended card through the functions of torch, and counts copies and reads."""

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self.waits = waits
        #: whether the function that runs has a tensor on the card, and what it waits for is not yet counted
        self.watches = False

    def mark(self, values: Any) -> None:
        """Put tensors onto the card."""
        for value in find_tensors(values if isinstance(values, list | tuple) else [values]):
            value._standfast_card = True  # type: ignore[attr-defined]

    def count(self, kind: str) -> None:
        """Count a wait at the line that runs."""
        if (place := _find_place()) is not None:
            self.waits.seen[kind, place] += 1

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        given = find_tensors([*args, *kwargs.values()])
        on_card = [is_on_card(value) for value in given]
        if name == "__get__" and (resolve_name(func) or "").endswith("device.__get__"):
            return _CARD if on_card[0] else func(*args, **kwargs)
        goal = _find_goal(name, args, kwargs)
        self.watches = any(on_card) and name not in _READS
        try:
            result = func(*args, **kwargs)
        finally:
            self.watches = False
        if goal == "host" or (goal is None and not any(on_card)):
            if any(on_card) and isinstance(result, Tensor):
                self.count("to host")
                return result.view_as(result) if any(result is value for value in given) else result
            return result
        if name in _READS:
            self.count("value")
        elif goal == "card" and (name in ("tensor", "as_tensor") or given) and not (given and all(on_card)):
            if not kwargs.get("non_blocking"):
                self.count("to card")
            result = result.view_as(result) if any(result is value for value in given) else result
        elif name == "new_tensor" or _reads_host(name, args):
            self.count("to card")
        elif (
            goal is None
            and name not in _TAKE_HOST
            and any(value.ndim for value, there in zip(given, on_card, strict=True) if not there)
        ):
            self.count("mixed")
        self.mark(list(result) if isinstance(result, tuple | list) else result)
        return result


class _Operations(TorchDispatchMode):
    """Counts the operations that wait, also within other functions."""

    def __init__(self, follow: _Follow) -> None:
        super().__init__()
        self.follow = follow

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.follow.watches:
            name = func.overloadpacket.__name__
            kind = _OPERATIONS.get(name)
            masked = name in _INDEXED and _has_mask(args)
            if masked or (name == "repeat_interleave" and kwargs.get("output_size") is None):
                kind = "size"
            if kind is not None:
                self.follow.count(kind)
        return func(*args, **kwargs)


def is_on_card(value: Tensor) -> bool:
    """Whether a tensor counts as on the card, inside `count_waits`."""
    return getattr(value, "_standfast_card", False)


def _find_goal(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """Where a call puts its result by its arguments: `"host"`, `"card"`, or None if they do not say."""
    device = kwargs.get("device")
    if name == "to":
        other = next((value for value in args[1:] if isinstance(value, str | torch.device | Tensor)), device)
        device = (_CARD if is_on_card(other) else "cpu") if isinstance(other, Tensor) else other
    if device is None:
        return "host" if name == "cpu" else None
    return "card" if torch.device(device) == _CARD else "host"


def _reads_host(name: str, args: Sequence[Any]) -> bool:
    """Whether a call of `copy_` or an index takes values or places from the host."""
    if name not in _TAKE_HOST:
        return False
    values = args[-1]
    if name != "__getitem__" and isinstance(values, Tensor) and not is_on_card(values):
        return name == "copy_" or values.ndim > 0
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    places = any(isinstance(part, Tensor) and part.ndim > 0 and not is_on_card(part) for part in index)
    return name != "copy_" and (places or any(isinstance(part, list) for part in index))


def _has_mask(args: Sequence[Any]) -> bool:
    """Whether the indices of a call have a mask, which asks for its size; filling one place needs none."""
    masks = any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    fills = len(args) > 2 and args[2].numel() == 1
    return masks and not fills
