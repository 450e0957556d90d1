"""Replace every ReLU that runs, without a change to the user's module: by a smooth function, or by another gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import Node

from standfast.errors import SecondDerivativeError, check_number
from standfast.function_calls import FunctionMode

#: torch's softplus has other last bits in what is left of a tensor after as many numbers as fit into such blocks
_VECTOR = 64

#: from the gradient by the output of a ReLU, and where its input is above 0, to the gradient by its input
GradientRule = Callable[[Tensor, Tensor], Tensor]


# parts of the names of nodes of autograd's graph that may be a ReLU: the last one is any code of TorchScript
_KINKED = ("Relu", "Hardtanh", "DifferentiableGraph")


class ReluReplacement(FunctionMode):
    """`replacement(z)` runs for `nn.ReLU`, `F.relu`, `torch.relu`, `Tensor.relu` and their in-place forms.

    For a ReLU6 `capped(z, 6.0)` runs, for a hard tanh from 0 to `c` `capped(z, c)`. By default `capped` is the
    replacement, cut off above. `clamp(min=0)` and other spellings of a ReLU are not replaced, nor is anything in
    modules compiled to TorchScript; `check_graph` and `check_smooth` find these.
    """

    def __init__(
        self,
        replacement: Callable[[Tensor], Tensor],
        capped: Callable[[Tensor, float], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.replacement = replacement
        self.capped = capped or (lambda z, cap: replacement(z).clamp(max=cap))

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        if name not in _PARAMETERS:
            return func(*args, **kwargs)
        arguments = dict(zip(_PARAMETERS[name], args, strict=False)) | kwargs
        # a hard tanh, from -1 by default, is a rectifier only if it begins at 0
        usual_least = -1.0 if name.startswith("hardtanh") else 0.0
        if arguments.get("min_val", usual_least) != 0:
            return func(*args, **kwargs)
        z = arguments["input"]

        def rectify(z: Tensor) -> Tensor:
            if name.startswith("relu") and name != "relu6":
                return self.replacement(z)
            most = 6.0 if name == "relu6" else float(arguments.get("max_val", 1.0))
            return self.capped(z, most)

        if name.endswith("_") or arguments.get("inplace"):
            return z.copy_(rectify(z.clone()))
        return rectify(z)

    def check_smooth(self, result: Tensor, source: Node) -> None:
        """Raise `SecondDerivativeError` if a ReLU in code of TorchScript, which is not replaced, may be in a result.

        Args:
            result: what was computed inside of the mode.
            source: the node of the inputs, from `torch.autograd.graph.get_gradient_edge`.
        """
        for node in self.find_unseen(result, source):
            if any(kind in node.name() for kind in _KINKED):
                raise SecondDerivativeError(
                    "module: expected ReLUs that a smooth function can replace, got some in code compiled to"
                    " TorchScript; use a search without gradients, or the module before it was compiled"
                )


_PARAMETERS = {
    **dict.fromkeys(("relu", "relu_", "relu6"), ("input", "inplace")),
    **dict.fromkeys(("hardtanh", "hardtanh_"), ("input", "min_val", "max_val", "inplace")),
}


#: the names of the functions that are replaced
RECTIFIERS = frozenset(_PARAMETERS)


class _RuledRelu(Function):
    """ReLU with a `GradientRule` for its backward pass."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, rule: GradientRule) -> Tensor:
        ctx.save_for_backward(z > 0)
        ctx.rule = rule
        return z.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (active,) = ctx.saved_tensors
        return ctx.rule(gradients[0], active), None


def replace_relu_gradient(rule: GradientRule) -> ReluReplacement:
    """A mode inside of which every ReLU has the usual output, and `rule(gradient, active)` for its gradient.

    The rule is called when the backward pass runs.

    >>> import torch
    >>> x = torch.ones(1, requires_grad=True)
    >>> with replace_relu_gradient(lambda gradient, active: 5 * gradient * active):
    ...     torch.relu(x).backward()
    >>> x.grad
    tensor([5.])
    """

    def rectify(z: Tensor) -> Tensor:
        out: Tensor = _RuledRelu.apply(z, rule)  # type: ignore[no-untyped-call]
        return out

    return ReluReplacement(rectify)


def guide_gradient(gradient: Tensor, active: Tensor) -> Tensor:
    """The rule of guided backpropagation: only positive gradients pass, and only where the ReLU is active."""
    return gradient.clamp(min=0) * active


def smooth_relu(beta: float = 10.0) -> ReluReplacement:
    """Inside, every ReLU is the softplus `log(1 + exp(beta z)) / beta`, which has second derivatives.

    A ReLU6 is the difference of two softplus functions, at `z` and at `z - 6`.

    Attributions of a rectifier network are piecewise constant in the input. With softplus they are differentiable, as
    in Dombrowski et al., Explanations can be manipulated and geometry is to blame, NeurIPS 2019. The user's module
    stays as it is: only the functions that it calls in this thread are replaced, those of layers and functional calls
    alike (see `ReluReplacement`). Forward and backward passes may run inside. A graph that is made inside keeps the
    softplus, also when it is differentiated later.

    Args:
        beta: sharpness, above 0. The larger it is, the nearer softplus is to ReLU: they differ by at most
            `log(2) / beta`.

    Raises:
        ArgumentError: `beta` out of range.

    >>> import torch
    >>> with smooth_relu(beta=2.0):
    ...     inside = torch.relu(torch.zeros(1))
    >>> inside, torch.relu(torch.zeros(1))
    (tensor([0.3466]), tensor([0.]))
    """
    return ReluReplacement(*make_softplus(beta))


def make_softplus(
    beta: float,
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor, float], Tensor]]:
    """The softplus of sharpness `beta`, and the difference of two for a ReLU that is cut off above."""
    check_number(beta, "beta", above=0)

    def softplus(z: Tensor) -> Tensor:
        missing = -z.numel() % _VECTOR
        if not missing:
            return F.softplus(z, beta=beta, threshold=20.0)
        filled = F.pad(z.flatten(), (0, missing))
        whole = F.softplus(filled, beta=beta, threshold=20.0)
        return whole[: z.numel()].reshape(z.shape)

    return softplus, lambda z, cap: softplus(z) - softplus(z - cap)
