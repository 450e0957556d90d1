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
_USUAL_NAMES = ("logits", "out")
#: so many parts of an output are described in an error
_MOST_DESCRIBED = 8


def check_where(where: Where) -> None:
    """Raise `ArgumentError` unless it is a key, an index, a function or None."""
    fits = (
        where is None
        or callable(where)
        # True and False are whole numbers in Python
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
        return _take_part(output, where, rows)
    # most modules return what the task reads
    if isinstance(output, Tensor) or is_list_of_boxes(output):
        return output
    answer = _find_usual_name(output)
    if answer is None:
        answer = _find_only_tensor(output)
    if answer is None:
        advice = "say which part is the answer: Model(..., output=KEY), or a function of the output"
        raise ModelError(f"module: expected a tensor, got {_describe(output, rows)}; {advice}")
    return answer


def _take_part(output: Any, where: str | int, rows: int) -> Any:
    """The part of an output that the user names."""
    try:
        if isinstance(where, str) and not isinstance(output, Mapping):
            return getattr(output, where)
        return output[where]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        expected = f"a part of what the module returns, {_describe(output, rows)}"
        raise ArgumentError("output", expected, repr(where)) from error


def _find_usual_name(output: Any) -> Tensor | None:
    """The part that has one of the names that libraries use."""
    for name in _USUAL_NAMES:
        entry = output.get(name) if isinstance(output, Mapping) else None
        # an output of transformers is both a mapping and an object
        for part in (entry, getattr(output, name, None)):
            if isinstance(part, Tensor):
                return part
    return None


def _find_only_tensor(output: Any) -> Tensor | None:
    """The tensor of a list, a tuple or a dictionary with one tensor."""
    parts = list(output.values()) if isinstance(output, Mapping) else output
    if not isinstance(parts, list | tuple):
        return None
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if len(tensors) == 1:
        return tensors[0]
    return None


def is_list_of_boxes(output: Any) -> bool:
    """Whether it is a list of dictionaries, as detectors of torchvision return it."""
    # an empty list says nothing of what it would hold
    if not isinstance(output, list) or not output:
        return False
    return all(isinstance(boxes, Mapping) for boxes in output)


def _describe(output: Any, rows: int) -> str:
    """What a module returned for a batch of so many rows, with the shapes of its parts."""
    if isinstance(output, Tensor):
        has_rows = output.shape[:1] == (rows,)
        shape = describe_rows(output) if has_rows else tuple(output.shape)
        return f"a tensor of shape {shape}"
    kind = f"a {type(output).__name__}"
    if isinstance(output, list | tuple):
        parts = ", ".join(_describe(part, rows) for part in output[:_MOST_DESCRIBED])
        return f"{kind} of {parts or 'nothing'}"
    if isinstance(output, Mapping):
        return f"{kind} with {_describe_parts(output, rows) or 'nothing'}"
    attributes = {**vars(type(output)), **getattr(output, "__dict__", {})}
    tensors = {name: value for name, value in attributes.items() if isinstance(value, Tensor)}
    if tensors:
        return f"{kind} with {_describe_parts(tensors, rows)}"
    return kind


def _describe_parts(parts: Mapping[Any, Any], rows: int) -> str:
    first_parts = list(parts.items())[:_MOST_DESCRIBED]
    return ", ".join(f"{key}: {_describe(part, rows)}" for key, part in first_parts)
