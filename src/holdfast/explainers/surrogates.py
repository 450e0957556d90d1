"""Other rectifiers for a while: replace every ReLU that runs, without touching the user's module."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from holdfast.errors import check


class ReluReplacement(TorchFunctionMode):
    """`replacement(z)` runs for `nn.ReLU`, `F.relu`, `torch.relu`, `Tensor.relu` and their in-place forms.

    Not seen: `clamp(min=0)` and the like, and modules compiled to TorchScript.
    """

    def __init__(self, replacement: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.replacement = replacement

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in ("relu", "relu_"):
            return func(*args, **kwargs)
        z = args[0] if args else kwargs["input"]
        if name == "relu_" or kwargs.get("inplace") or (len(args) > 1 and args[1]):
            return z.copy_(self.replacement(z.clone()))
        return self.replacement(z)


@contextlib.contextmanager
def smooth_relu(beta: float = 10.0) -> Iterator[None]:
    """Inside, every ReLU is the softplus `log(1 + exp(beta z)) / beta`, which has second derivatives.

    Attributions of a rectifier network are piecewise constant; this makes them differentiable in the input,
    as in Dombrowski et al., Explanations can be manipulated and geometry is to blame, NeurIPS 2019. The
    user's module is left as it is: only the functions that it calls are exchanged, in this thread, modules
    and functional calls alike (see `ReluReplacement`). Forward and backward passes may happen inside; a graph
    made inside keeps the softplus when it is differentiated later.

    Args:
        beta: sharpness, above 0; for large values softplus tends to ReLU (at most `log(2) / beta` away).

    >>> import torch
    >>> with smooth_relu(beta=2.0):
    ...     inside = torch.relu(torch.zeros(1))
    >>> inside, torch.relu(torch.zeros(1))
    (tensor([0.3466]), tensor([0.]))
    """
    fine = isinstance(beta, int | float) and 0 < beta < float("inf")
    check(fine, "beta", "a finite number above 0", repr(beta))
    with ReluReplacement(lambda z: F.softplus(z, beta=beta, threshold=20.0)):
        yield
