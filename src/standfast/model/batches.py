"""How rows go through a module: how many at once, how a batch is filled up, and what happens when memory runs out.

An input row becomes `rows_per_input` forwarded rows, such as the steps of an explainer. A chunk is what one call of the
function of `Model.map_rows` gets, in input rows. The function may cut it into several batches, and a batch is what the
module gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from standfast.tensors import is_on_host

Kind = Literal["forward", "backward"]

# Kernels for few rows, or for an odd number of rows, round differently in the last bits. So every forwarded batch is
# padded to a multiple of this number, and to at least twice this number. Only this makes results bit-identical for all
# batch sizes.
ROW_ALIGNMENT = 8
#: rows of the smallest and of the largest batch that is chosen by the size of the layers
SMALLEST_ROWS = 16
LARGEST_ROWS = 8192
#: numbers in an input of which 64 rows fit everywhere, whatever the network: 3 x 64 x 64
_SMALL_INPUT = 12_288
#: bytes of all layers together that a processor works on fastest; the caches of most have about that much
_CPU_ROOM = 16 << 20
#: one part in so many of a card's memory is for the layers of a pass; a backward pass keeps what it computes
_PARTS_OF_CARD: dict[Kind, int] = {"forward": 8, "backward": 16}


@dataclass(frozen=True)
class Chunks:
    """How rows are cut into chunks, and how a chunk is padded.

    Attributes:
        rows: input rows of a chunk at most.
        rows_per_input: how many rows the module forwards for each of them.
        batches: how many batches the function cuts a chunk into.
        multiple: the input rows of a chunk are padded to a multiple of it,
        least: and to at least so many.
        needs_bits: whether results must have the same bits for all batch sizes; False where shapes alone are wanted, or
            where the module needs no padding for that.
    """

    rows: int
    rows_per_input: int
    batches: int
    multiple: int
    least: int
    needs_bits: bool

    @classmethod
    def plan(
        cls, rows: int, rows_per_input: int, batches: int, needs_bits: bool, fills: bool = True
    ) -> Chunks:
        """Chunks of so many rows, with as much padding as equal bits need.

        Without it one row still gets a copy, since some modules drop the axis of a batch of one; or none at all, if
        the module needs no chunks that are filled up (`fills`).
        """
        if not fills:
            return cls(rows, rows_per_input, batches, multiple=1, least=1, needs_bits=False)
        if not needs_bits:
            return cls(rows, rows_per_input, batches, multiple=1, least=2, needs_bits=False)
        multiple = divide_up(ROW_ALIGNMENT, rows_per_input)
        least = divide_up(2 * ROW_ALIGNMENT, rows_per_input)
        return cls(rows, rows_per_input, batches, multiple, least, needs_bits=True)

    def count_copies(self, count: int, device: torch.device) -> int:
        """How many copies of its last row a chunk of so many rows gets."""
        padding = max(-count % self.multiple, self.least - count)
        # a card also gets one of the few sizes of a batch for which it chooses kernels (`count_padding`)
        if not self.needs_bits or self.batches > 1 or is_on_host(device):
            return padding
        forwarded = count_padding(
            count * self.rows_per_input, self.rows * self.rows_per_input, device
        )
        room = self.rows - count
        return max(padding, min(room, divide_up(forwarded, self.rows_per_input)))

    def halve(self) -> Chunks:
        """Half of the rows of a batch, and one batch for a chunk, since so many did not fit into memory."""
        rows = max(1, divide_up(self.rows, self.batches) // 2)
        return replace(
            self,
            rows=rows,
            batches=1,
            multiple=min(self.multiple, rows),
            least=min(self.least, rows),
        )


def divide_up(number: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-number // divisor)


def count_padding(count: int, most: int, device: torch.device | None = None) -> int:
    """How many rows to add to a batch of `count` rows before it is forwarded, if at most `most` rows fit.

    A card chooses its kernels anew for each size of a batch, which takes as long as hundreds of rows. So it gets eight
    sizes between a number and its double. From 64 rows on, less than an eighth of a batch is padding.

    >>> count_padding(3, 100), count_padding(17, 100), count_padding(24, 100), count_padding(3, 4)
    (13, 7, 0, 1)
    >>> card = torch.device("cuda")
    >>> count_padding(17, 500, card), count_padding(247, 500, card), count_padding(247, 250, card)
    (7, 9, 3)
    """
    if most < ROW_ALIGNMENT:
        return most - count  # too little memory for the aligned size
    if device is None or is_on_host(device):
        return max(-count % ROW_ALIGNMENT, 2 * ROW_ALIGNMENT - count)
    size = max(ROW_ALIGNMENT, 1 << max(0, count.bit_length() - 4))
    return max(min(-count % size, most - count), min(2 * ROW_ALIGNMENT, most) - count)


def pad_rows(rows: Tensor, padding: int) -> Tensor:
    """`rows` `(N, ...)` with `padding` copies of the last row appended.

    >>> pad_rows(torch.tensor([[1], [2]]), 2).tolist()
    [[1], [2], [2], [2]]
    """
    if padding:
        return torch.cat([rows, rows[-1:].expand(padding, *rows.shape[1:])])
    return rows


def join_pieces(pieces: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """The outputs of all chunks, each of several tensors, one after the other."""
    if len(pieces) == 1:
        return pieces[0]
    return tuple(torch.cat(parts) for parts in zip(*pieces, strict=True))


# How many rows fit


def count_small(one_input: Tensor) -> int:
    """So many rows like one input that it does not matter how many fit; of photos they may take too much memory."""
    if one_input.numel() <= _SMALL_INPUT:
        return 4 * SMALLEST_ROWS
    return SMALLEST_ROWS


def count_fitting(bytes_of_row: int, device: torch.device, kind: Kind) -> int:
    """So many rows that all their layers fit well into the caches, or a card's memory: a power of two."""
    room = _CPU_ROOM
    if device.type == "cuda":
        room = torch.cuda.get_device_properties(device).total_memory // _PARTS_OF_CARD[kind]
    rows: int = room // bytes_of_row
    power_below = 1 << max(rows, 1).bit_length() - 1
    return max(SMALLEST_ROWS, min(LARGEST_ROWS, power_below))


class CountBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of everything that is computed inside, where compiled modules must run as they were written."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Otherwise torch would load its compiler, which takes seconds, only to keep it away from here."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        results = returned if isinstance(returned, tuple) else (returned,)
        for result, declared in zip(results, func._schema.returns, strict=False):
            # no view of what was there
            is_new = isinstance(result, Tensor) and declared.alias_info is None
            if is_new:
                self.bytes += result.numel() * result.element_size()
        return returned


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch says that memory ran out, on a card or beside it."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
