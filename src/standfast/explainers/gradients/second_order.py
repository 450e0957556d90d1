"""A mode in which a module has useful second derivatives, and gets them fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from standfast.explainers.attention.attention_calls import ATTENTION, PlainAttention
from standfast.explainers.gradients.surrogates import RECTIFIERS, ReluReplacement, make_softplus
from standfast.tensors import is_on_host

_CONVOLUTIONS = {"conv1d": F.conv1d, "conv2d": F.conv2d}
_REPLACED = RECTIFIERS | ATTENTION | frozenset(_CONVOLUTIONS)
_PARAMETERS = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")


class SecondOrderMode(ReluReplacement):
    """Inside, softplus of sharpness `beta` is in place of ReLU, and attention is in plain operations.

    Convolutions of stride 1 with frozen weights get their gradients on a CPU from convolutions, too.

    Args:
        beta: above 0.
        checks: whether `check_graph` and `check_smooth` will be called. Watching all functions for them takes longer
            than a pass of a small network.

    >>> convolution = torch.nn.Conv2d(1, 6, 5).requires_grad_(False)
    >>> x = torch.rand(2, 1, 8, 8, requires_grad=True)
    >>> with SecondOrderMode(10.0):
    ...     out = torch.relu(convolution(x))
    >>> (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    >>> bool(torch.autograd.grad(first.square().sum(), x)[0].any())  # it would be 0 everywhere outside
    True
    """

    def __init__(self, beta: float, checks: bool = True) -> None:
        super().__init__(*make_softplus(beta))
        self.names = None if checks else _REPLACED
        self._attention = PlainAttention()

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        if name in ATTENTION:
            return self._attention.run(name, func, args, kwargs)
        if name in _CONVOLUTIONS:
            arguments = dict(zip(_PARAMETERS, args, strict=False)) | kwargs
            padding = _read_padding(**arguments)
            if padding is not None:
                weight = arguments["weight"]
                bias = arguments.get("bias")
                convolve = _Convolution.apply
                return convolve(arguments["input"], weight, bias, padding)  # type: ignore[no-untyped-call]
        return super().run(name, func, args, kwargs)


def _read_padding(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> tuple[int, ...] | None:
    """The padding along each axis of a convolution whose gradient is one; None for others."""
    axes = weight.ndim - 2
    is_plain = (
        all(size in (1, (1,) * axes, [1] * axes) for size in (stride, dilation)) and groups == 1
    )
    if not is_plain or isinstance(padding, str) or not _needs_only_input(input, weight, bias):
        return None
    if isinstance(padding, int):
        around = (padding,) * axes
    else:
        around = tuple(padding) * (axes // len(padding))
    # the gradient's own padding, length - 1 - side, must not be negative
    lengths = weight.shape[2:]
    fits = all(side < length for side, length in zip(around, lengths, strict=True))
    return around if fits and _runs_on_host(input, weight) else None


def _needs_only_input(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether gradients by the input are asked for, and none by the parameters."""
    trains = weight.requires_grad or (bias is not None and bias.requires_grad)
    return input.requires_grad and torch.is_grad_enabled() and not trains


def _runs_on_host(input: Tensor, weight: Tensor) -> bool:
    """Whether it is a batch on the CPU in the type of the weights."""
    is_batch = input.ndim == weight.ndim and input.dtype == weight.dtype
    return is_batch and is_on_host(input) and not torch.is_autocast_enabled(input.device.type)


class _Convolution(Function):
    """A convolution of stride 1. Its gradient is the convolution with the flipped kernel.

    torch's own gradient takes up to five times as long, most where there are few channels, as in a first layer.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, ...]
    ) -> Tensor:
        ctx.weight = weight
        ctx.padding = padding
        return _CONVOLUTIONS[f"conv{len(padding)}d"](x, weight, bias, padding=padding)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        weight = ctx.weight
        positions = tuple(range(2, weight.ndim))
        flipped = weight.transpose(0, 1).flip(positions)
        padding = tuple(
            length - 1 - side for side, length in zip(ctx.padding, weight.shape[2:], strict=True)
        )
        return _Convolution.apply(gradients[0], flipped, None, padding), None, None, None  # type: ignore[no-untyped-call]
