"""Watch and replace the functions of torch that a module calls: `linear`, `relu`, `__add__` and all others.

Functions are watched and not layers. So functional calls, layers that run twice, layers that work in place and sums of
two branches are all seen, and nothing on the user's module has to be undone. Modules compiled to TorchScript call no
functions that could be seen; those of `torch.compile` run as they were written while functions are watched.
The graph of an exported program can be read instead: which functions it calls, and in which mode.
The graph that autograd makes of a forward pass says whether its result depends on the input.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.autograd.graph import Node, get_gradient_edge
from torch.overrides import TorchFunctionMode

from holdfast.errors import ModelError


class _Stance:
    """Torch's stance towards compiled code, which is one for all threads: eager while any thread needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._undo = contextlib.ExitStack()

    def enter(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._undo.enter_context(torch.compiler.set_stance("force_eager"))
            self._depth += 1

    def leave(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._undo.close()


_STANCE = _Stance()


@contextlib.contextmanager
def run_eagerly() -> Iterator[None]:
    """Inside, modules compiled by `torch.compile` run as they were written.

    Compiled code may have no second derivatives, and may not call hooks and modes that were not there when it was
    compiled. Whoever uses these runs the module inside. Blocks may be nested, and may overlap in several threads: all
    threads run compiled modules as they were written until the last block ends.
    """
    if "torch._dynamo" not in sys.modules:  # nothing has been compiled; the import alone would take a second
        yield
        return
    _STANCE.enter()
    try:
        yield
    finally:
        _STANCE.leave()


def find_programs(module: nn.Module) -> list[torch.fx.Graph]:
    """The graphs of the exported programs (`torch.export`) among the parts of a module.

    Modules traced by `torch.fx` are no such programs: they call their layers.
    """
    parts = list(module.modules())
    graphs = [part.graph if isinstance(part, torch.fx.GraphModule) else vars(part).get("graph") for part in parts]
    return [
        graph
        for graph in graphs
        if isinstance(graph, torch.fx.Graph)
        and any(isinstance(node.target, OpOverload) for node in graph.nodes)
        # torch.export itself adds a call of a module that checks the inputs' shapes
        and all(node.op != "call_module" or node.target == "_guards_fn" for node in graph.nodes)
    ]


def find_training_calls(module: nn.Module) -> list[str]:
    """The functions that exported programs among the parts of a module call in training mode, by name, sorted.

    Calls that are the same in both modes do not count: dropout of nothing, batch normalisation without statistics.
    """
    found: set[str] = set()
    for graph in find_programs(module):
        for node in graph.nodes:
            if isinstance(node.target, OpOverload) and _trains(node):
                found.add(node.target.overloadpacket.__name__)
    return sorted(found)


def _trains(call: torch.fx.Node) -> bool:
    names = [argument.name for argument in call.target._schema.arguments]  # type: ignore[union-attr]
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    if isinstance(given.get("dropout_p"), float) and given["dropout_p"] > 0:  # of attention, which has no flag
        return True
    if any(given.get(name) == 0 for name in ("p", "dropout")):
        return False
    if "batch_norm" in str(call.target) and given.get("running_mean") is None:
        return False
    return any(given.get(name) is True for name in ("training", "train"))


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


# nodes of torch's functions with a derivative of 0 everywhere, without the number at the end of the name
_STEPS = split_names("RoundBackward FloorBackward CeilBackward TruncBackward SignBackward SgnBackward")


def find_sources(node: Node) -> list[Node]:
    """The nodes that a node of the graph passes its gradient to: none if it rounds."""
    rounds = type(node).__name__[:-1] in _STEPS or getattr(node, "_saved_rounding_mode", None) is not None
    return [] if rounds else [source for source, _ in node.next_functions if source is not None]


def walk_graph(values: Tensor) -> Iterator[Node]:
    """The nodes of the graph of a tensor, each of them after its sources."""
    waiting, seen = ([] if values.grad_fn is None else [values.grad_fn]), set[Node]()
    while waiting:
        if missing := [source for source in find_sources(waiting[-1]) if source not in seen]:
            waiting += missing
        elif (node := waiting.pop()) not in seen:
            seen.add(node)
            yield node


def check_has_gradients(scores: Tensor, x: Tensor, by: str = "") -> None:
    """Raise `ModelError` if no graph leads from `x` to the scores: gradients of 0 would say nothing about the model.

    Args:
        scores: computed from logits.
        x: an input, or what the module makes of it.
        by: what `x` is, for the message, if it is no input.
    """
    wanted = get_gradient_edge(x).node if x.requires_grad else None
    if not any(node is wanted for node in walk_graph(scores)):
        raise ModelError(
            f"module: its logits have no gradients{by and f' by {by}'}. Do forward or preprocess use torch.no_grad, "
            "detach or whole numbers? Explainers that need no gradients can be used, such as occlusion"
        )
