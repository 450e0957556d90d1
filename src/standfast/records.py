"""What frozen dataclasses need: plain numbers and tensors as options, and fields that are set while they are made."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import math
import types
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import torch
from torch import Tensor

from standfast.errors import (
    FINITE,
    ArgumentError,
    UnknownOptionError,
    as_number,
    check,
    is_number,
    suggest_name,
)

T = TypeVar("T")
K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True)
class Range:
    """The numbers that an option may have, as a part of its type: `Annotated[float, Range(above=0, most=1)]`.

    Args:
        least, most: ends that belong to the range.
        above, below: ends that do not.
    """

    least: float = -math.inf
    above: float = -math.inf
    below: float = math.inf
    most: float = math.inf

    def holds(self, value: float) -> bool:
        """Whether a number is finite and within the ends."""
        return (
            math.isfinite(value)
            and self.least <= value <= self.most
            and self.above < value < self.below
        )

    def __str__(self) -> str:
        words = {
            "of at least": self.least,
            "above": self.above,
            "below": self.below,
            "at most": self.most,
        }
        ends = [f"{word} {end:g}" for word, end in words.items() if math.isfinite(end)]
        return " and ".join(ends)


#: types of options: whole numbers from 1 or from 0 on, numbers above 0 or from 0 on, and shares without and with 1
Count = Annotated[int, Range(least=1)]
CountFromZero = Annotated[int, Range(least=0)]
Positive = Annotated[float, Range(above=0)]
AtLeastZero = Annotated[float, Range(least=0)]
Fraction = Annotated[float, Range(above=0, below=1)]
Share = Annotated[float, Range(above=0, most=1)]
#: how many of some places, as a number or as a share
CountOrFraction = Count | Fraction


class _Declared(NamedTuple):
    """What the type of an option says: its choices, kinds and ranges of numbers, entries of a list, or its check."""

    choices: tuple[Any, ...] = ()
    numbers: tuple[tuple[type[int | float], Range], ...] = ()
    entries: _Declared | None = None
    check: Callable[[Any, str], Any] | None = None

    def read(self, value: Any, option: str) -> Any:
        """The value as it is held, a list as a tuple; `ArgumentError` if it does not fit."""
        if self.check is not None:
            checked = self.check(value, option)
            if checked is None:
                return value
            return checked
        if self._allows_list(value):
            return tuple(value)
        if not self.allows(value):
            words = [choice for choice in self.choices if isinstance(choice, str)]
            near = suggest_name(value, words)
            raise ArgumentError(option, str(self), f"{value!r}{near}")
        return value

    def _allows_list(self, value: Any) -> bool:
        """Whether a value is a list with entries, and may be one."""
        if self.entries is None or not isinstance(value, list | tuple):
            return False
        return len(value) > 0 and all(map(self.entries.allows, value))

    def allows(self, value: Any) -> bool:
        """Whether a value that is no list is one of the choices, or within a range."""
        if any(type(value) is type(choice) and value == choice for choice in self.choices):
            return True
        if not is_number(value):
            return False
        limits_of_kind = []
        for kind, limits in self.numbers:
            if isinstance(value, kind | int):
                limits_of_kind.append(limits)
        return any(limits.holds(value) for limits in limits_of_kind)

    @property
    def is_whole_number(self) -> bool:
        """Whether every value is a whole number of at least 1."""
        is_number_only = bool(self.numbers) and not self.choices and self.entries is None
        return is_number_only and all(
            kind is int and limits.least >= 1 for kind, limits in self.numbers
        )

    def __str__(self) -> str:
        words = []
        for kind, limits in self.numbers:
            sort = "whole" if kind is int else "finite"
            words.append(f"a {sort} number {limits}")
        if self.entries:
            words.append(f"a list, each {self.entries}")
        return ", or ".join([*words, *map(repr, self.choices)])


def _read_hint(hint: Any) -> _Declared | None:
    """What a type says of an option; None if this does not say which values it may have."""
    if get_origin(hint) is Annotated and isinstance(get_args(hint)[1], types.FunctionType):
        return _Declared(check=get_args(hint)[1])
    choices: list[Any] = []
    numbers: list[tuple[type[int | float], Range]] = []
    entries = None
    is_union = get_origin(hint) in (Union, types.UnionType)
    parts = get_args(hint) if is_union else (hint,)
    for part in parts:
        origin = get_origin(part)
        inner = get_args(part)
        if part is bool:
            choices += [True, False]
        elif part is type(None):
            choices.append(None)
        elif origin is Literal:
            choices += inner
        elif origin is Annotated and isinstance(inner[1], Range):
            numbers.append(inner[:2])
        elif (
            origin is tuple
            and inner[1:] == (...,)
            and (entries := _read_hint(inner[0])) is not None
        ):
            continue
        else:
            return None
    return _Declared(tuple(choices), tuple(numbers), entries)


@cache
def _read_hints(kind: type) -> dict[str, _Declared]:
    """What the types of a dataclass say of its options. One that gives an option another default keeps its check."""
    declared_options: dict[str, _Declared] = {}
    for base in reversed(kind.__bases__):
        if dataclasses.is_dataclass(base):
            declared_options |= _read_hints(base)
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (NameError, AttributeError, TypeError):
        # types that are known only where the class is, or to type checkers
        hints = {}
    for name, hint in hints.items():
        declared = _read_hint(hint)
        if declared is not None:
            declared_options[name] = declared
    return declared_options


def _read_options(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options among the values, as they are held; `ArgumentError` for one that its type excludes."""
    declared_options = _read_hints(kind)
    options: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        name = field.name
        if not field.init or name not in values:
            continue
        if name in declared_options:
            options[name] = declared_options[name].read(values[name], name)
        else:
            options[name] = values[name]
    return options


@cache
def _check_declared_options(kind: Any) -> None:
    """Raise `ArgumentError` if a dataclass declares something of an option that it does not have."""
    if not hasattr(kind, "list_declared_options"):
        return
    options = [field.name for field in dataclasses.fields(kind)]
    for declaration, names in kind.list_declared_options().items():
        unknown = [name for name in names if name not in options]
        argument = f"{kind.__qualname__}.{declaration}"
        expected = f"names of options: {', '.join(options)}"
        check(not unknown, argument, expected, ", ".join(map(repr, unknown)))
    for declaration, names in getattr(kind, "list_declared_counts", dict)().items():
        hints = _read_hints(kind)
        others = []
        for name in names:
            if name not in hints or not hints[name].is_whole_number:
                others.append(name)
        argument = f"{kind.__qualname__}.{declaration}"
        expected = "options whose type is a whole number from 1 on, such as Count"
        check(not others, argument, expected, ", ".join(map(repr, others)))


class ConfigurationType(ABCMeta):
    """The class of classes with options: numbers of NumPy and torch become plain ones, before anything sees them.

    So options are checked, stored and compared as `int` and `float`. An option that does not exist raises
    `UnknownOptionError`, which suggests one that does. Of a dataclass, options are checked whose types say what they
    may be: `bool`, a `Literal`, a number with a `Range`, None, a `tuple[..., ...]` of these (a list is held as one), or
    one of these; or `Annotated[..., check]`, a function of a value and the option's name. What it returns is held in
    place of the value, unless it is None.

    A class, such as that of a plug-in, that declares something of an option that it does not have is refused:
    `list_declared_options`, if there is one, gives for each declaration the names of the options in it. Those that
    `list_declared_counts` gives must be whole numbers from 1 on.

    >>> @dataclass(frozen=True)
    ... class Steps(metaclass=ConfigurationType):
    ...     steps: Count
    >>> Steps(torch.tensor(3))
    Steps(steps=3)
    >>> Steps(0)
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: steps: expected a whole number of at least 1, got 0
    >>> Steps(n_steps=3)
    Traceback (most recent call last):
        ...
    standfast.errors.UnknownOptionError: n_steps: expected an option of Steps: steps, got n_steps=3 (did you mean 's...
    """

    def __call__(cls: type[T], *values: Any, **options: Any) -> T:
        named = {option: as_number(value) for option, value in options.items()}
        positional = [as_number(value) for value in values]
        if dataclasses.is_dataclass(cls):
            _check_declared_options(cls)
            positional, named = _read_arguments(cls, positional, named)
        try:
            instance: T = ABCMeta.__call__(cls, *positional, **named)
        except TypeError as error:
            if "unexpected keyword" in str(error):
                _refuse_unknown(cls, options)
            raise
        return instance

    @property
    def __signature__(cls) -> inspect.Signature:
        """The options, for `inspect.signature` and `help`, which would show the arguments of `__call__`."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]
        without_self = list(signature.parameters.values())[1:]
        return signature.replace(parameters=without_self, return_annotation=cls)


def _read_arguments(
    kind: Any, positional: list[Any], named: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a dataclass, as they are held; those that it does not have are left as they are."""
    names = []
    for field in dataclasses.fields(kind):
        if field.init and not field.kw_only:
            names.append(field.name)
    by_position = dict(zip(names, positional, strict=False))
    options = _read_options(kind, {**by_position, **named})
    too_many = positional[len(names) :]
    return (
        [*(options[name] for name in by_position), *too_many],
        {name: options.get(name, value) for name, value in named.items()},
    )


def _refuse_unknown(kind: type, options: Mapping[str, Any]) -> None:
    """Raise `UnknownOptionError` for the first option that a class does not have; nothing if it takes any."""
    signature = inspect.signature(kind.__init__)  # type: ignore[misc]
    _, *parameters = signature.parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = [parameter.name for parameter in parameters]
    for option, value in options.items():
        if option not in names:
            title = getattr(kind, "name", kind.__name__)
            raise UnknownOptionError(title, option, value, names) from None


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


#: the metadata of a field on which no result depends: it is no part of what a stored job is known by
NO_IDENTITY: Mapping[str, bool] = {"identity": False}


#: under which of these a stored configuration has its name; of a transformation and a norm ball it is that of the class
TAGS = ("transformation", "norm", "name")


def split_tag(stored: object) -> tuple[str, str, dict[str, Any]]:
    """The tag of a stored configuration, its name and its options; empty texts for what is none.

    >>> split_tag({"norm": "LinfBall", "radius": 0.1}), split_tag({"name": "block", "starts": 9}), split_tag("block")
    (('norm', 'LinfBall', {'radius': 0.1}), ('name', 'block', {'starts': 9}), ('', '', {}))
    """
    if isinstance(stored, Mapping):
        options = {str(key): value for key, value in stored.items()}
    else:
        options = {}
    tags = [name for name in TAGS if isinstance(options.get(name), str)]
    tag = tags[0] if tags else ""
    return tag, str(options.pop(tag, "")), options


class FrozenMapping(Mapping[K, V_co]):
    """A mapping as an option of a frozen configuration: it can be hashed and does not change. Its order counts.

    >>> ages = FrozenMapping({"age": 1})
    >>> ages == FrozenMapping({"age": 1}), len({ages, FrozenMapping({"age": 1})}), ages["age"]
    (True, 1, 1)
    """

    __slots__ = ("_entries", "_hash")

    def __init__(self, entries: Mapping[K, V_co]) -> None:
        self._entries = dict(entries)
        # large mappings are looked up often, in caches
        self._hash = hash(tuple(self._entries.items()))

    def __getitem__(self, key: K) -> V_co:
        return self._entries[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenMapping) and list(self._entries.items()) == list(
            other._entries.items()
        )

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
        values_as_bytes = values.flatten().view(torch.uint8).numpy().tobytes()
        content = header + values_as_bytes
        set_fields(
            self,
            shape=tuple(values.shape),
            digest=hashlib.sha256(content).hexdigest()[:16],
            _tensor=values,
        )

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
        check(
            isinstance(inputs, Tensor),
            "background",
            "reference inputs as a tensor (B, ...)",
            type(inputs).__name__,
        )
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
