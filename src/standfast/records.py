"""What frozen dataclasses need: plain numbers and tensors as options, and fields that are set while they are made."""

from __future__ import annotations

import hashlib
import inspect
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from standfast.errors import FINITE, StandfastError, UnknownOptionError, as_number, check

T = TypeVar("T")
K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


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
    standfast.errors.UnknownOptionError: n_steps: expected an option of Steps: steps, got n_steps=3 (did you mean 's...
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


def refuse_hooks(kind: type, gone: Mapping[str, str]) -> None:
    """Raise `StandfastError` if a class defines a hook that does not exist, which would have no effect.

    Args:
        kind: the class, from its base's `__init_subclass__`.
        gone: such hooks, and what takes their place.

    >>> class Plugin:
    ...     def admit(self): ...
    >>> refuse_hooks(Plugin, {"admit": "satisfies_rules"})
    Traceback (most recent call last):
        ...
    standfast.errors.StandfastError: Plugin defines admit, which does not exist; instead it has satisfies_rules
    """
    for name in gone:
        if name in vars(kind) or name in vars(kind).get("__annotations__", {}):
            raise StandfastError(f"{kind.__name__} defines {name}, which does not exist; instead it has {gone[name]}")


class FrozenMapping(Mapping[K, V_co]):
    """A mapping as an option of a frozen configuration: it can be hashed and does not change. Its order counts.

    >>> ages = FrozenMapping({"age": 1})
    >>> ages == FrozenMapping({"age": 1}), len({ages, FrozenMapping({"age": 1})}), ages["age"]
    (True, 1, 1)
    """

    __slots__ = ("_entries", "_hash")

    def __init__(self, entries: Mapping[K, V_co]) -> None:
        self._entries = dict(entries)
        self._hash = hash(tuple(self._entries.items()))  # large mappings are looked up often, in caches

    def __getitem__(self, key: K) -> V_co:
        return self._entries[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenMapping) and list(self._entries.items()) == list(other._entries.items())

    def __reduce__(self) -> tuple[type, tuple[dict[K, V_co]]]:
        return FrozenMapping, (self._entries,)  # the hash of a text differs from process to process

    def __repr__(self) -> str:
        return repr(self._entries)


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


class SampleOption(TensorOption, ABC):
    """A tensor as an option that may hold something for each sample, such as label maps or regions."""

    @abstractmethod
    def of_samples(self, inputs: Tensor, rows: slice) -> SampleOption:
        """What it holds for the samples `rows` of all `inputs` `(N, ...)`; the same object if it is for all of them.

        Raises:
            ArgumentError: it is for another number of samples.
        """


@dataclass(frozen=True, init=False)
class Background(TensorOption):
    """Reference inputs as an option of a frozen configuration; two are equal if their values are equal.

    Args:
        inputs: `(B, ...)`, B at least 1, floating point and finite; copied. Their shape and the model's bounds are
            checked when something is explained.

    Attributes:
        shape: of the reference inputs, `(B, ...)`.
        digest: of their values; comparisons, hashes and study files use it in place of the values.

    Raises:
        ArgumentError: `inputs` are something else.

    >>> import torch
    >>> a, b = (Background(torch.zeros(5, 1, 8, 8)) for _ in range(2))
    >>> a == b, len(a), a.shape
    (True, 5, (5, 1, 8, 8))
    >>> a == Background(torch.ones(5, 1, 8, 8))
    False
    """

    def __init__(self, inputs: Tensor) -> None:
        check(isinstance(inputs, Tensor), "background", "reference inputs as a tensor (B, ...)", type(inputs).__name__)
        fine = inputs.is_floating_point() and inputs.ndim >= 2 and inputs.numel() > 0
        got = f"{inputs.dtype} of shape {tuple(inputs.shape)}"
        check(fine, "background", "reference inputs of shape (B, ...), floating point", got)
        check(bool(torch.isfinite(inputs).all()), "background", FINITE, "NaN or infinity")
        super().__init__(inputs, f"{inputs.dtype} {tuple(inputs.shape)} ".encode())

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def inputs(self) -> Tensor:
        """The reference inputs, `(B, ...)` on the CPU. Do not write to them."""
        return self.tensor
