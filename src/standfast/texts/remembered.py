"""What a language model has answered to contexts, so that each is run once; it forgets, so that it fills no memory."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

#: bytes of all that is remembered, and of a row beside its key: a tensor of four numbers, and its place in a mapping
_ROOM = 1 << 27
_BYTES_OF_ROW = 700


@dataclass(eq=False)
class RememberedOutputs:
    """The outputs for rows, in groups: those of one prompt by one state of the weights.

    Args:
        room: how many bytes there may be, about.
    """

    room: int = _ROOM
    #: the group that was asked for last comes last
    _groups: dict[Hashable, dict[bytes, Tensor]] = field(default_factory=dict)
    _taken: int = 0

    @property
    def taken(self) -> int:
        """How many bytes there are, about."""
        return self._taken

    def find(self, group: Hashable) -> Mapping[bytes, Tensor]:
        """What is remembered of a group, by the bytes of the rows."""
        outputs = self._groups.pop(group, {})
        self._groups[group] = outputs
        return outputs

    def add(self, group: Hashable, outputs: Mapping[bytes, Tensor]) -> None:
        """Remember more of a group, and forget those that were not asked for the longest, itself the last."""
        more = _count_bytes(outputs)
        for other in list(self._groups):
            if self._taken + more <= self.room:
                break
            self._taken -= _count_bytes(self._groups.pop(other))
        if more <= self.room:
            self._groups.setdefault(group, {}).update(outputs)
            self._taken += more

    def clear(self) -> None:
        """Forget all of it."""
        self._groups.clear()
        self._taken = 0

    @contextlib.contextmanager
    def set_aside(self) -> Iterator[None]:
        """Inside the block nothing is remembered from before it, and after it nothing from inside."""
        groups = self._groups
        taken = self._taken
        self._groups = {}
        self._taken = 0
        try:
            yield
        finally:
            self._groups = groups
            self._taken = taken


def _count_bytes(outputs: Mapping[bytes, Tensor]) -> int:
    return sum(len(key) + _BYTES_OF_ROW for key in outputs)


def read_version(weight: Tensor) -> int:
    """How often a tensor was written to; 0 for one of `torch.inference_mode`, of which torch does not know."""
    return 0 if weight.is_inference() else weight._version


def read_state(module: nn.Module) -> bytes:
    """A hash of what tells a network from itself at another time, such as trained, with shuffled weights, or hooked.

    Of weights it is where they are, how often they were written to, and some of their numbers, as memory may be used
    again for others that are as old. Plain attributes and hooks count too: an adapter is turned off by one.
    """
    weights = [*module.parameters(), *module.buffers()]
    memory = [(weight.data_ptr(), read_version(weight)) for weight in weights]
    state = memory, _look_at(weights), [_read_settings(part) for part in module.modules()]
    return hashlib.blake2b(repr(state).encode(), digest_size=16).digest()


def _look_at(weights: Sequence[Tensor]) -> list[float]:
    """Some numbers of each of the weights."""
    numbers: list[float] = []
    for weight in weights:
        values = weight.detach().reshape(-1)
        if len(values):
            numbers += values[[0, len(values) // 2, -1]].tolist()
    return numbers


def _read_settings(part: nn.Module) -> list[object]:
    """The numbers and names that a module has as attributes, and which hooks."""
    plain = [
        value for value in vars(part).values() if isinstance(value, bool | int | float | str | list)
    ]
    settings = []
    for value in plain:
        if not isinstance(value, list) or _are_names(value):
            settings.append(value)
    return [settings, list(part._forward_hooks), list(part._forward_pre_hooks)]


def _are_names(values: list[object]) -> bool:
    return all(isinstance(value, str) for value in values)
