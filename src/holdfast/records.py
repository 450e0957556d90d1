"""What frozen dataclasses need: a way to set their own fields while they are made, and tensors as options."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor


def set_fields(record: object, **values: object) -> None:
    """Set fields of a frozen dataclass while it is made: in its own `__init__`, `__post_init__` or `__setstate__`.

    >>> @dataclass(frozen=True)
    ... class Shares:
    ...     shares: tuple[float, ...]
    ...
    ...     def __post_init__(self) -> None:
    ...         set_fields(self, shares=tuple(self.shares))
    >>> Shares([0.1, 0.2])
    Shares(shares=(0.1, 0.2))
    """
    for name, value in values.items():
        object.__setattr__(record, name, value)


@dataclass(frozen=True, init=False)
class TensorOption:
    """A tensor as an option of a frozen configuration: compared, hashed and written down by its digest.

    Args:
        tensor: `(...)`; copied to the CPU.
        header: bytes that enter the digest before the values, where equal bytes may be different tensors.

    Attributes:
        shape: of the tensor.
        digest: of its values.

    >>> import torch
    >>> a, b = (TensorOption(torch.tensor([0, 1])) for _ in range(2))
    >>> a == b, a.shape, a == TensorOption(torch.tensor([0, 2]))
    (True, (2,), False)
    """

    shape: tuple[int, ...]
    digest: str

    def __init__(self, tensor: Tensor, header: bytes = b"") -> None:
        values = tensor.detach().cpu().contiguous().clone()
        content = header + values.flatten().view(torch.uint8).numpy().tobytes()
        set_fields(self, shape=tuple(values.shape), digest=hashlib.sha256(content).hexdigest()[:16], _tensor=values)

    @property
    def tensor(self) -> Tensor:
        """The tensor itself, on the CPU; not to be written to."""
        tensor: Tensor = vars(self)["_tensor"]
        return tensor
