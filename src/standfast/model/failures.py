"""What to say when a module raises an error, or returns what no number can be made of."""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from standfast.errors import FailedModuleError, ModelError, SecondDerivativeError

#: what torch says where there is no second derivative
_NOT_TWICE = (
    "double backward",
    "differentiate twice",
    "donated buffers",
    "_backward is not implemented",
)


def describe_known_failure(error: RuntimeError) -> ModelError | None:
    """The error in other words, where its text says enough; None where the shape of the inputs may be the cause."""
    if isinstance(error, ModelError):
        return error
    # whatever is nested deeply: the module, an explainer, or the caller
    if isinstance(error, RecursionError):
        limit = sys.getrecursionlimit()
        return ModelError(
            f"expected at most {limit} calls within each other, got more: the module, an explainer or the program"
            " that calls them is nested too deeply, or one of them calls itself without end"
            " (sys.setrecursionlimit allows more)"
        )
    if any(text in str(error) for text in _NOT_TWICE):
        return SecondDerivativeError(
            "module: expected a module that can be differentiated twice, as searches with gradients and attacks on"
            f" explanations do, got: {error}; use a search without gradients, or explain a copy of the module that"
            " is not compiled"
        )
    return None


def describe_failure(
    error: Exception, shape: tuple[int, ...], rows: int, dtype: torch.dtype
) -> FailedModuleError:
    """What torch says, with the shape of the user's inputs, and how many rows failed where they are others."""
    part = ""
    if rows != shape[0]:
        part = f", of a batch of {rows}"
    return FailedModuleError(
        f"module: failed on inputs of shape {shape}, dtype {dtype}. It says{part}: {error}"
    )


def check_finite(outputs: Tensor) -> None:
    """Raise `ModelError` for outputs `(N, ...)` that are NaN or infinite."""
    if not torch.isfinite(outputs).all():
        rows = int((~torch.isfinite(outputs)).flatten(1).any(1).sum())
        raise ModelError(
            f"module: expected finite logits, got NaN or infinity for {rows} of {len(outputs)} inputs"
        )


def describe_tensor_kind(inputs: Tensor) -> str:
    """What a tensor is that is not dense, or that has no values."""
    if inputs.is_nested:
        return "a nested one"
    if inputs.is_meta:
        return "one on the device meta"
    return "a sparse one"
