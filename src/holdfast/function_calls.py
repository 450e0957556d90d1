"""Watch and replace the functions of torch that a module calls: `linear`, `relu`, `__add__` and all others.

Functions are watched and not layers. So functional calls, layers that run twice, layers that work in place and sums of
two branches are all seen, and nothing on the user's module has to be undone. Modules compiled to TorchScript call no
functions that could be seen; those of `torch.compile` run as they were written while functions are watched.
"""

from __future__ import annotations

import contextlib
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def run_eagerly() -> Iterator[None]:
    """Inside, modules compiled by `torch.compile` run as they were written.

    Compiled code may have no second derivatives, and may not call hooks and modes that were not there when it was
    compiled. Whoever uses these runs the module inside.
    """
    if "torch._dynamo" not in sys.modules:  # nothing has been compiled; the import alone would take a second
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


class FunctionMode(TorchFunctionMode):
    """Inside of `with mode:`, `mode.run` runs in place of each function of torch that is called.

    The mode is off while `run` runs, so `run` may call functions itself.
    """

    def __enter__(self) -> Any:
        eager = contextlib.ExitStack()
        eager.enter_context(run_eagerly())
        self._eager = [*getattr(self, "_eager", []), eager]  # a mode may be entered again inside of itself
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        self._eager.pop().close()

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
        # an exported program calls overloads such as `aten.relu.default`, the `relu` of which has the name
        name = getattr(getattr(func, "overloadpacket", func), "__name__", "")
        return self.run(name, func, list(args), dict(kwargs or {}))


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
