"""The part of a module's output that is its answer: a tensor of a tuple, a dictionary or an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from standfast.errors import ArgumentError, ModelError, check
from standfast.tensors import describe_rows

#: where the answer is: a key, an index, the name of an attribute, or a function of the output
Where = str | int | Callable[[Any], Any] | None
#: names of the answer in outputs of Hugging Face, torchvision and timm, by precedence
_KNOWN = ("logits", "out")


def check_where(where: Where) -> None:
    """Raise `ArgumentError` unless it is a key, an index, a function or None."""
    fits = (
        where is None
        or callable(where)
        or (isinstance(where, str | int) and not isinstance(where, bool))
    )
    check(
        fits, "output", "a key, an index, the name of an attribute, a function or None", repr(where)
    )


def find_output(output: Any, where: Where = None, rows: int = -1) -> Any:
    """What the task reads, of what a module returned.

    Args:
        output: of the module.
        where: the part that is meant. By default it is found: a tensor or a list of dictionaries as it is; `logits` or
            `out` of a dictionary or an object; the only tensor of a tuple.
        rows: of the padded batch, which a message calls N.

    Raises:
        ArgumentError: the output has no such part.
        ModelError: by default, the output has no part that is known.

    >>> import torch
    >>> find_output({"loss": torch.zeros(()), "logits": torch.ones(1, 2)})
    tensor([[1., 1.]])
    >>> find_output((torch.ones(1, 2), torch.zeros(1)), where=1)
    tensor([0.])
    """
    if callable(where):
        return where(output)
    if where is not None:
        try:
            if isinstance(where, str) and not isinstance(output, Mapping):
                return getattr(output, where)
            return output[where]
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            returned = f"a part of what the module returns, {_describe(output, rows)}"
            raise ArgumentError("output", returned, repr(where)) from error
    if isinstance(output, Tensor) or is_list_of_boxes(output):
        return output
    for name in _KNOWN:
        if isinstance(output, Mapping) and isinstance(output.get(name), Tensor):
            return output[name]
        if isinstance(getattr(output, name, None), Tensor):
            return getattr(output, name)
    parts = list(output.values()) if isinstance(output, Mapping) else output
    tensors = (
        [each for each in parts if isinstance(each, Tensor)]
        if isinstance(parts, list | tuple)
        else []
    )
    if len(tensors) == 1:
        return tensors[0]
    advice = "say which part is the answer: Model(..., output=KEY), or a function of the output"
    raise ModelError(f"module: expected a tensor, got {_describe(output, rows)}; {advice}")


def is_list_of_boxes(output: Any) -> bool:
    """Whether it is a list of dictionaries, as detectors of torchvision return it."""
    return (
        isinstance(output, list)
        and bool(output)
        and all(isinstance(each, Mapping) for each in output)
    )


def _describe(output: Any, rows: int) -> str:
    """What a module returned for a batch of so many rows, with the shapes of its parts."""
    if isinstance(output, Tensor):
        return f"a tensor of shape {describe_rows(output) if output.shape[:1] == (rows,) else tuple(output.shape)}"
    kind = f"a {type(output).__name__}"
    if isinstance(output, list | tuple):
        return f"{kind} of {', '.join(_describe(each, rows) for each in output[:8]) or 'nothing'}"
    parts = output
    if not isinstance(output, Mapping):
        every = {**vars(type(output)), **getattr(output, "__dict__", {})}
        parts = {key: each for key, each in every.items() if isinstance(each, Tensor)}
    known = ", ".join(f"{key}: {_describe(each, rows)}" for key, each in list(parts.items())[:8])
    return f"{kind} with {known or 'nothing'}" if known or isinstance(output, Mapping) else kind
