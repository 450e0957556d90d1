"""The graph that autograd makes of a forward pass: what leads where, and whether anything leads to the input."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from holdfast.errors import ModelError
from holdfast.function_calls import split_names

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
