"""Watch and replace the functions of torch that a module calls: `linear`, `relu`, `__add__` and all others.

Functions are watched and not layers. So functional calls, layers that run twice, layers that work in place and sums of
two branches are all seen, and nothing on the user's module has to be undone. Modules of `torch.compile` run as they
were written while functions are watched. Code of TorchScript, of a `torch.autograd.Function` and of other libraries
calls no functions that could be seen; `FunctionMode.check_graph` finds such code in the graph of the result.
The graph of an exported program can be read instead: which functions it calls, and in which mode.
The graph that autograd makes of a forward pass says whether its result depends on the input.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FunctionType, TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.autograd.graph import Node, get_gradient_edge
from torch.nn.modules._functions import BackwardHookFunction
from torch.overrides import TorchFunctionMode

from standfast.errors import ModelError, NoGradientsError

# how the names of functions begin that programs have after `run_decompositions()`
_DECOMPOSED = (
    "addmm",
    "mm",
    "convolution",
    "native_",
    "_native_",
    "max_pool2d_",
    "_softmax",
    "_log_softmax",
)


class _Stance:
    """Torch's stance towards compiled code, which is one for all threads: eager while any thread needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._undo = contextlib.ExitStack()

    def enter(self) -> None:
        with self._lock:
            if self._depth == 0:
                # torch has one stance for the whole process, so only the first thread may set it, and the last one
                # undo it
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
    # nothing has been compiled; the import alone would take a second
    if "torch._dynamo" not in sys.modules:
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
    graphs: list[Any] = []
    for part in list(module.modules()):
        if isinstance(part, torch.fx.GraphModule):
            graphs.append(part.graph)
        else:
            graphs.append(vars(part).get("graph"))
    programs = []
    for graph in graphs:
        if isinstance(graph, torch.fx.Graph) and _is_lowered(graph):
            programs.append(graph)
    return programs


def _is_lowered(graph: torch.fx.Graph) -> bool:
    """Whether a graph consists of operators alone, and calls no module."""
    # torch.export itself adds a call of a module that checks the inputs' shapes
    calls = [node.target for node in graph.nodes if node.op == "call_module"]
    has_operators = any(isinstance(node.target, OpOverload) for node in graph.nodes)
    return has_operators and all(target == "_guards_fn" for target in calls)


def find_training_calls(module: nn.Module) -> list[str]:
    """The functions that exported programs among the parts of a module call in training mode, by name, sorted.

    Calls that are the same in both modes do not count: dropout of nothing, batch normalisation without statistics.
    """
    names: set[str] = set()
    for graph in find_programs(module):
        for node in graph.nodes:
            if isinstance(node.target, OpOverload) and _trains(node):
                names.add(node.target.overloadpacket.__name__)
    return sorted(names)


def _trains(call: torch.fx.Node) -> bool:
    arguments = bind_arguments(call.target, call.args, call.kwargs)  # type: ignore[arg-type]
    # of attention, which has no flag
    if isinstance(arguments.get("dropout_p"), float) and arguments["dropout_p"] > 0:
        return True
    # a dropout of nothing is the same in both modes
    shares = [arguments.get(name) for name in ("p", "dropout")]
    if any(share == 0 for share in shares):
        return False
    # without statistics of its own, it takes those of the batch in both modes
    if "batch_norm" in str(call.target) and arguments.get("running_mean") is None:
        return False
    return any(arguments.get(name) is True for name in ("training", "train"))


class FunctionMode(TorchFunctionMode):
    """Inside of `with mode:`, `mode.run` runs in place of each function of torch that is called.

    The mode is off while `run` runs, so `run` may call functions itself.

    Attributes:
        names: the functions that are watched; None for all, as `check_graph` needs it.
    """

    names: frozenset[str] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._eager: list[contextlib.ExitStack] = []  # a mode may be entered again inside of itself
        # nodes of autograd's graph have numbers, in the order in which they are made. These are the numbers of nodes
        # that watched calls made: the first, and the one after the last, of each uninterrupted sequence of calls.
        self._spans: list[tuple[int, int]] = []
        self._recomputes = False
        self.who = "explainer"  # for messages

    def __enter__(self) -> Any:
        eager = contextlib.ExitStack()
        # compiled code calls no functions that a mode could see
        eager.enter_context(run_eagerly())
        # a backward pass on a card would run in a thread of its own, without this mode and with other numbers of nodes
        eager.enter_context(torch.autograd.set_multithreading_enabled(False))
        self._eager.append(eager)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        self._eager.pop().close()

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """The result of the call `func(*args, **kwargs)` of the function called `name`."""
        return func(*args, **kwargs)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # an exported program calls overloads such as `aten.relu.default`, the `relu` of which has the name
        packet = getattr(func, "overloadpacket", func)
        name = getattr(packet, "__name__", "")
        if self.names is not None and name not in self.names:
            return func(*args, **(kwargs or {}))
        if isinstance(packet, OpOverloadPacket) and not packet._qualified_op_name.startswith(
            "aten::"
        ):
            # another library's function, which may have the name of a known one; its nodes count as not seen
            return self.run(packet._qualified_op_name, func, list(args), dict(kwargs or {}))
        if isinstance(func, HigherOrderOperator):  # it calls functions itself, such as `torch.cond`
            return self.run(name, func, list(args), dict(kwargs or {}))
        start = torch._C._autograd._get_sequence_nr()
        result = self.run(name, func, list(args), dict(kwargs or {}))
        end = torch._C._autograd._get_sequence_nr()
        if end > start:
            self._recomputes = self._recomputes or _is_checkpointed()
            # calls within this one, or just before it
            while self._spans and self._spans[-1][1] >= start:
                start = min(start, self._spans.pop()[0])
            self._spans.append((start, end))
        return result

    def run_module(self, who: str, module: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        """`module(inputs)`, for use inside of the mode, after a check that all functions between the two were seen.

        Args:
            who: the explainer, for messages.
            module: from inputs `(N, ...)` to logits.
            inputs: a part of a graph, or without gradients; then nothing is checked.

        Raises:
            ModelError: as `check_graph` does.
        """
        self.who = who
        if not (torch.is_grad_enabled() and inputs.requires_grad):
            return module(inputs)
        source = get_gradient_edge(inputs).node  # before the module, which may overwrite its inputs
        result = module(inputs)
        self.check_graph(who, result, source)
        return result

    def check_graph(self, who: str, result: Tensor, source: Node) -> None:
        """Raise `ModelError` if code without watched calls takes part in a result that was computed inside of the mode.

        The graph of the result has a node for each step. A node that no watched call made is from code that runs
        without calling functions of torch from Python, and rules for these functions do not hold for it.

        Args:
            who: the explainer, for messages.
            result: what was computed.
            source: the node of the inputs, from `torch.autograd.graph.get_gradient_edge`. Only nodes between it and the
                result matter.
        """
        nodes = self.find_unseen(result, source)
        # a mode that only watches is right also where a result is computed again
        replaces = type(self).run is not FunctionMode.run
        if (self._recomputes and replaces) or any(
            _find_module(node) == "torch.utils.checkpoint" for node in nodes
        ):
            raise ModelError(
                f"{who}: expected a module that keeps what its backward pass needs, got torch.utils.checkpoint, which"
                " computes it again without the rules; switch off checkpointing"
            )
        if nodes:
            raise ModelError(
                f"{who}: cannot see the functions of {_describe(nodes[-1])}; or use an explainer that has no rules for"
                " functions, such as integrated_gradients"
            )

    def find_unseen(self, result: Tensor, source: Node) -> list[Node]:
        """The nodes between the source and the result, arguments as for `check_graph`, that no watched call made."""
        leads: dict[Node, bool] = {}  # of each node, whether the source is below it
        for node in walk_graph(result):
            sources = find_sources(node)
            leads[node] = node is source or any(leads[below] for below in sources)
        return [
            node
            for node, leads_there in leads.items()
            if leads_there and not self._has_seen(node, source)
        ]

    def _has_seen(self, node: Node, source: Node) -> bool:
        # hooks on layers, and our own rules, which are within the calls of another mode
        hook = getattr(node, "_forward_cls", None) is BackwardHookFunction
        if node is source or hook or _find_module(node).startswith("standfast."):
            return True
        number = node._sequence_nr()
        # the last span that begins at or before the node; only that one can contain it
        index = bisect(self._spans, number, key=lambda span: span[0])
        return index > 0 and number < self._spans[index - 1][1]


def _is_checkpointed() -> bool:
    """Whether the code that runs is within `torch.utils.checkpoint`, and will run again in the backward pass."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and hooks[0].__module__ == "torch.utils.checkpoint"


def _find_module(node: Node) -> str:
    """The Python module of the `torch.autograd.Function` that made a node; empty if none did."""
    return getattr(getattr(node, "_forward_cls", None), "__module__", "")


def _describe(node: Node) -> str:
    kind = getattr(node, "_forward_cls", None)
    if kind is not None:
        return f"the autograd function {kind.__name__!r}: write it with functions of torch"
    name = type(node).__name__.rpartition("::")[2]
    return f"compiled code, such as TorchScript (here {name!r}): explain the module that it was made from"


def remember_autocast(values: Tensor) -> Callable[[], torch.autocast]:
    """A function that gives a context with autocast as it is now; a backward pass runs without it."""
    kind = values.device.type
    return partial(
        torch.autocast,
        kind,
        torch.get_autocast_dtype(kind),
        enabled=torch.is_autocast_enabled(kind),
        cache_enabled=False,
    )


def bind_arguments(
    func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by the names of the parameters, which have another order in each form of a function.

    Args:
        func: an overload, such as `torch.ops.aten.linear.default`; a function in Python; or a built-in one, such as
            `torch.batch_norm`, all overloads of which have the same parameters.
        args, kwargs: of the call.

    >>> sorted(bind_arguments(torch.nn.functional.linear, [1, 2], {"bias": 3}).items())
    [('bias', 3), ('input', 1), ('weight', 2)]
    """
    if isinstance(func, FunctionType):
        names = list(inspect.signature(func).parameters)
    else:
        packet: Any = func
        if not isinstance(func, OpOverload | OpOverloadPacket):
            packet = getattr(torch.ops.aten, func.__name__)
        if isinstance(packet, OpOverload):
            overload = packet
        else:
            overload = getattr(packet, packet.overloads()[0])
        names = [argument.name for argument in overload._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def is_decomposed(name: str, func: Callable[..., Any]) -> bool:
    """Whether a call is of a kind that a program of `torch.export` has after `run_decompositions()`.

    There nothing tells a linear layer from a product that the module's author wrote, or a SiLU from a gate.
    """
    return isinstance(func, OpOverload) and name.startswith(_DECOMPOSED)


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
    if name.startswith("__"):
        return name
    return name.removesuffix("_")


def find_tensors(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among `values`, also those within lists and tuples, in order."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple):
            tensors.extend(find_tensors(value))
    return tensors


# nodes of torch's functions with a derivative of 0 everywhere, without the number at the end of the name
_STEPS = split_names(
    "RoundBackward FloorBackward CeilBackward TruncBackward SignBackward SgnBackward"
)


def find_sources(node: Node) -> list[Node]:
    """The nodes that a node of the graph passes its gradient to: none if it rounds."""
    rounds = (
        type(node).__name__[:-1] in _STEPS
        or getattr(node, "_saved_rounding_mode", None) is not None
    )
    if rounds:
        return []
    return [source for source, _ in node.next_functions if source is not None]


def walk_graph(values: Tensor) -> Iterator[Node]:
    """The nodes of the graph of a tensor, each of them after its sources."""
    # a stack and not recursion, as graphs of deep networks are deeper than Python's stack
    waiting = [] if values.grad_fn is None else [values.grad_fn]
    visited = set[Node]()
    while waiting:
        if missing := [source for source in find_sources(waiting[-1]) if source not in visited]:
            waiting += missing
        elif (node := waiting.pop()) not in visited:
            visited.add(node)
            yield node


#: how torch names the node of an operation that it cannot differentiate, and through which it passes zeros
_UNKNOWN_DERIVATIVES = ("WarnNotImplemented", "NotImplemented")
_WITHOUT_GRADIENTS = (
    "What needs no gradients can be used: explainers such as occlusion, block search"
)


def check_has_gradients(scores: Tensor, x: Tensor, by: str = "") -> None:
    """Raise `NoGradientsError` unless gradients by `x` say how the scores depend on it.

    They do not if no graph leads from `x` to the scores, or if an operation on the way has no derivative, as those of
    quantised layers: torch then gives zeros, which would say nothing of the model.

    Args:
        scores: computed from logits.
        x: an input, or what the module makes of it.
        by: what `x` is, for the message, if it is no input.
    """
    subject = f"module: its logits have no gradients{by and f' by {by}'}"
    if x.requires_grad:
        dependent: set[Node] = {get_gradient_edge(x).node}
    else:
        dependent = set()
    reached = False
    for node in walk_graph(scores):  # the sources of a node come before it
        reached = reached or node in dependent
        if dependent.isdisjoint(find_sources(node)):
            continue
        dependent.add(node)
        if node.name().rpartition("::")[2] in _UNKNOWN_DERIVATIVES:
            raise NoGradientsError(
                f"{subject}: torch cannot differentiate one of its operations. Are its layers quantised? Then explain "
                f"the module that they were made from. {_WITHOUT_GRADIENTS}"
            )
    if not reached:
        raise NoGradientsError(
            f"{subject}. Do forward or preprocess use torch.no_grad, detach or whole numbers? {_WITHOUT_GRADIENTS}"
        )


def compute_gradient(
    scores: Tensor,
    x: Tensor,
    create_graph: bool = False,
    *,
    retain_graph: bool | None = None,
    check_graph: Callable[[Tensor, Tensor], None] = check_has_gradients,
) -> Tensor:
    """Row-wise gradient of `scores` `(N,)` by `x` `(N, ...)`.

    Args:
        scores: one number for each row.
        x: a leaf, or another tensor that requires gradients.
        create_graph, retain_graph: as in `torch.autograd.grad`.
        check_graph: is called with both first, and raises an error if gradients by `x` say nothing of the scores.
            `Model.check_gradients` looks at the first graph of a session only. That no graph at all leads from `x` to
            the scores is noticed in any case.

    Raises:
        NoGradientsError: gradients by `x` do not say how the scores depend on it.
    """
    check_graph(scores, x)
    if not scores.requires_grad:
        check_has_gradients(scores, x)
    (gradient,) = torch.autograd.grad(
        scores.sum(), x, create_graph=create_graph, retain_graph=retain_graph, allow_unused=True
    )
    # no graph leads to the scores, or an operation of the user's gives None in place of zeros
    if gradient is None:
        check_has_gradients(scores, x)
        return torch.zeros_like(x, requires_grad=create_graph)
    return gradient
