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

    For ReLU6, and a hard tanh from 0, `capped(z, 6.0)` runs; by default the replacement, cut off above. Not seen:
    `clamp(min=0)` and the like, and modules compiled to TorchScript.
    """

    def __init__(
        self, replacement: Callable[[Tensor], Tensor], capped: Callable[[Tensor, float], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.replacement = replacement
        self.capped = capped or (lambda z, cap: replacement(z).clamp(max=cap))

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        given = dict(zip(_PARAMETERS.get(name, ()), args, strict=False)) | kwargs
        if name not in _PARAMETERS or given.get("min_val", -1.0 if name.startswith("hardtanh") else 0.0) != 0:
            return func(*args, **kwargs)
        z = given["input"]

        def replaced(z: Tensor) -> Tensor:
            if name.startswith("relu") and name != "relu6":
                return self.replacement(z)
            return self.capped(z, 6.0 if name == "relu6" else float(given.get("max_val", 1.0)))

        return z.copy_(replaced(z.clone())) if name.endswith("_") or given.get("inplace") else replaced(z)


_HARDTANH = ("input", "min_val", "max_val", "inplace")
_PARAMETERS = {
    **dict.fromkeys(("relu", "relu_", "relu6"), ("input", "inplace")),
    **dict.fromkeys(("hardtanh", "hardtanh_"), _HARDTANH),
}


@contextlib.contextmanager
def smooth_relu(beta: float = 10.0) -> Iterator[None]:
    """Inside, every ReLU is the softplus `log(1 + exp(beta z)) / beta`, which has second derivatives.

    A ReLU6 is the difference of two, at `z` and at `z - 6`.

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

    def softplus(z: Tensor) -> Tensor:
        return F.softplus(z, beta=beta, threshold=20.0)

    with ReluReplacement(softplus, lambda z, cap: softplus(z) - softplus(z - cap)):
        yield
