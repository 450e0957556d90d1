"""Watch and replace the functions of torch that a module calls: `linear`, `relu`, `__add__` and all others.

Functions are watched and not layers. So functional calls, layers that run twice, layers that work in place and sums of
two branches are all seen, and nothing on the user's module has to be undone. Modules compiled to TorchScript call no
functions that could be seen.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


class FunctionMode(TorchFunctionMode):
    """Inside of `with mode:`, `mode.run` runs in place of each function of torch that is called.

    The mode is off while `run` runs, so `run` may call functions itself.
    """

    @abstractmethod
    def run(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The result of the call `func(*args, **kwargs)` of the function called `name`."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self.run(getattr(func, "__name__", ""), func, list(args), dict(kwargs or {}))


def split_names(text: str) -> frozenset[str]:
    """The names of functions in a text, between spaces.

    >>> sorted(split_names("relu tanh"))
    ['relu', 'tanh']
    """
    return frozenset(text.split())


def strip_underscore(name: str) -> str:
    """The name of a function without the underscore that marks its in-place form.

    >>> strip_underscore("add_"), strip_underscore("__add__")
    ('add', '__add__')
    """
    return name if name.startswith("__") else name.removesuffix("_")


def find_tensors(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among `values`, also those within lists and tuples, in order."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(find_tensors(value))
    return found
