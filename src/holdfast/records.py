"""What frozen dataclasses need: plain numbers and tensors as options, and fields that are set while they are made."""

from __future__ import annotations

import hashlib
import inspect
from abc import ABCMeta
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from holdfast.errors import UnknownOptionError, as_number

T = TypeVar("T")


class ConfigurationType(ABCMeta):
    """The class of classes with options: numbers of NumPy and torch become plain ones, before anything sees them.

    So options are checked, stored and compared as `int` and `float`. An option that does not exist raises
    `UnknownOptionError`, which suggests one that does.

    >>> @dataclass(frozen=True)
    ... class Steps(metaclass=ConfigurationType):
    ...     steps: int
    >>> Steps(torch.tensor(3))
    Steps(steps=3)
    >>> Steps(n_steps=3)
    Traceback (most recent call last):
        ...
    holdfast.errors.UnknownOptionError: n_steps: expected an option of Steps: steps, got n_steps=3 (did you mean 's...
    """

    def __call__(cls: type[T], *values: Any, **options: Any) -> T:
        plain = {option: as_number(value) for option, value in options.items()}
        try:
            made: T = ABCMeta.__call__(cls, *map(as_number, values), **plain)
            return made
        except TypeError as error:
            known = list(inspect.signature(cls.__init__).parameters.values())[1:]
            names = [each.name for each in known if each.kind is not each.VAR_KEYWORD]
            unknown = [option for option in options if option not in names]
            if not unknown or len(names) < len(known) or "unexpected keyword" not in str(error):
                raise
        raise UnknownOptionError(getattr(cls, "name", cls.__name__), unknown[0], options[unknown[0]], names)

    @property
    def __signature__(cls) -> inspect.Signature:
        """The options, for `inspect.signature` and `help`, which would show the arguments of `__call__`."""
        made = inspect.signature(cls.__init__)  # type: ignore[misc]
        return made.replace(parameters=list(made.parameters.values())[1:], return_annotation=cls)


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
