"""`count_waits`: where the host waits for the model's device, counted on any machine, also without a card.

A card works while the host prepares what comes next. It falls idle where the host needs a number from it (`item`, `if
x.any()`), a size that depends on values (`nonzero`, `x[mask]`), or a copy between both memories.

Without a card, tensors are followed: what is moved to the model's device, or made of such a tensor, counts as on the
card, and all else as on the host. `standfast.tensors.is_on_host` then answers as it would with a card. With a card, its
driver is asked (`torch.cuda.set_sync_debug_mode`).
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import standfast
from standfast import tensors
from standfast.function_calls import find_tensors, split_names
from standfast.model import Model

__all__ = ["Waits", "count_waits"]

_ROOT = str(Path(standfast.__file__).parent)
#: what a tensor on the pretended card says of its device; plain "cpu" is the host
_CARD = torch.device("cpu", 0)
#: functions that read values, that make tensors of Python's values, and that take tensors from both memories
_READS = split_names(
    "tolist item numpy __array__ __bool__ __int__ __float__ __index__ __contains__ __complex__"
)
_MAKES = split_names("tensor as_tensor new_tensor")
_TAKES_BOTH = split_names("copy_ __getitem__ __setitem__")
#: operations of torch that need a value, or a size that depends on values, before they return
_VALUE = split_names("_local_scalar_dense is_nonzero equal _linalg_check_errors")
_SIZE = split_names(
    "nonzero masked_select bincount _unique2 unique_dim unique_consecutive unique_dim_consecutive repeat_interleave"
)
_INDEXED = split_names("index index_put index_put_ _index_put_impl_")


@dataclass
class Waits:
    """Where the host waited.

    Attributes:
        seen: how often, by kind and place. A `"value"` was read; a `"size"` depends on values; copies `"to host"` and
            `"to card"`; `"mixed"` is an operation on tensors of both, which fails on a card.
        told: what the driver of a card reported, by place; empty without a card.
        rounds, rows: how many batches were predicted or explained, and inputs in them.
    """

    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    rows: int = 0

    @property
    def total(self) -> int:
        """How often the host waited."""
        return self.seen.total() + self.told.total()

    def note_round(self, rows: int) -> None:
        """Count a round of so many inputs."""
        self.rounds, self.rows = self.rounds + 1, self.rows + rows


@contextlib.contextmanager
def count_waits(model: Model) -> Iterator[Waits]:
    """Inside the block, count where the package waits for the model's device; what the user's module does is left out.

    >>> model = Model(torch.nn.Linear(4, 3), bounds=(0.0, 1.0), device="cpu")
    >>> with count_waits(model) as waits:
    ...     logits = model.logits(torch.rand(5, 4))
    >>> waits.total > 0, waits.rows
    (True, 5)
    """
    waits, device = Waits(), model.device
    with model.watch(waits.note_round):
        if device.type != "cpu":
            with _ask_driver(waits):
                yield waits
            return
        follow = _Follow(waits)
        own = [*model.bounds, *model.module.parameters(), *model.module.buffers()]
        follow.mark(own)
        model.device, tensors.PRETENDS_CARD = _CARD, True
        try:
            with _Operations(follow), follow:
                yield waits
        finally:
            model.device, tensors.PRETENDS_CARD = device, False
            for value in own:
                del value._standfast_card  # type: ignore[attr-defined]


def _find_place() -> str | None:
    """The line of the package that runs; None within the user's module."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if frame.f_code.co_name == "_call_impl":  # of torch.nn.Module
            return None
        own = name.startswith(_ROOT) and not name.startswith(f"{_ROOT}/zoo")
        # which only passes calls on
        if own and not isinstance(frame.f_locals.get("self"), TorchFunctionMode):
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

    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        before, warnings.showwarning = warnings.showwarning, show
        warnings.filterwarnings("always", ".*synchronizing")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)


class _Follow(TorchFunctionMode):
    """Follows the tensors on the pretended card through the functions of torch, and counts reads and copies."""

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self.waits, self.watches = waits, False  # whether `_Operations` counts

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
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        given = find_tensors([*args, *kwargs.values()])
        host = [value for value in given if not _is_on_card(value)]
        on_card = len(host) < len(given)
        if func == torch.Tensor.device.__get__:
            return _CARD if on_card else func(*args)
        goal = _find_goal(name, args, kwargs)
        self.watches = on_card and name not in _READS
        try:
            result = func(*args, **kwargs)
        finally:
            self.watches = False
        stays = goal == "host" or (goal is None and not on_card)  # on the host
        if stays and goal and on_card:
            self.count("to host")
        elif on_card and name in _READS:
            self.count("value")
        elif (goal == "card" and (host or name in _MAKES)) or (
            on_card and not stays and _sends(name, args)
        ):
            if not kwargs.get("non_blocking"):
                self.count("to card")
        elif (
            on_card
            and goal is None
            and name not in _TAKES_BOTH
            and any(value.ndim for value in host)
        ):
            self.count("mixed")
        if goal and any(result is value for value in given):
            result = result.view_as(result)  # a copy on a card
        if not stays:
            self.mark(result)
        return result


class _Operations(TorchDispatchMode):
    """Counts the operations that wait, also within other functions."""

    def __init__(self, follow: _Follow) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.follow = follow

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the import of torch._dynamo takes seconds, and nothing is compiled here

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        if self.follow.watches:
            masked = name in _INDEXED and any(
                part is not None and part.dtype == torch.bool for part in args[1]
            )
            # a mask with one value needs no size
            fills = masked and len(args) > 2 and args[2].numel() == 1
            if name in _VALUE:
                self.follow.count("value")
            elif (name in _SIZE and kwargs.get("output_size") is None) or (masked and not fills):
                self.follow.count("size")
        return func(*args, **kwargs)


def _is_on_card(value: Any) -> bool:
    return hasattr(value, "_standfast_card")


def _find_goal(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """Where a call puts its result, `"host"` or `"card"`; None if its arguments do not say."""
    device = kwargs.get("device", "cpu" if name == "cpu" else None)
    if name == "to":
        device = next(
            (value for value in args[1:] if isinstance(value, str | torch.device | Tensor)), device
        )
    if device is None:
        return None
    there = _is_on_card(device) if isinstance(device, Tensor) else torch.device(device) == _CARD
    return "card" if there else "host"


def _sends(name: str, args: Sequence[Any]) -> bool:
    """Whether a call on a tensor of the card takes values or places from the host."""
    if name not in _TAKES_BOTH:
        return name == "new_tensor"
    values = args[-1]
    if name != "__getitem__" and isinstance(values, Tensor) and not _is_on_card(values):
        return name == "copy_" or values.ndim > 0
    index = () if name == "copy_" else args[1] if isinstance(args[1], tuple) else (args[1],)
    places = any(
        isinstance(part, Tensor) and part.ndim > 0 and not _is_on_card(part) for part in index
    )
    return places or any(isinstance(part, list) for part in index)
