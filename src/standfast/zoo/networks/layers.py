"""Parts that several architectures of the zoo have in common."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from torch import nn

from standfast.errors import check_choice

Activation = Literal["relu", "relu6", "softplus", "tanh"]

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "softplus": partial(nn.Softplus, beta=10.0),
    "tanh": nn.Tanh,
}


def find_activation(name: str) -> Callable[[], nn.Module]:
    """What makes activation layers of this name; a softplus has beta = 10, `log(1 + exp(10 z)) / 10`.

    Raises:
        ArgumentError: an unknown name.

    >>> find_activation("softplus")()
    Softplus(beta=10.0, threshold=20.0)
    """
    check_choice(name, "activation", list(_ACTIVATIONS))
    return _ACTIVATIONS[name]


def make_conv_block(
    in_channels: int,
    channels: int,
    kernel_size: int = 3,
    *,
    stride: int = 1,
    groups: int = 1,
    activation: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Convolution `conv`, batch normalisation `norm` and activation `relu` (its name, whatever it is).

    They map features (N, in_channels, H, W) to (N, channels, H', W'). Odd kernels are padded equally on both sides, so
    that `H' = ceil(H / stride)`.

    >>> import torch
    >>> make_conv_block(4, 8, stride=2)(torch.zeros(2, 4, 15, 15)).shape
    torch.Size([2, 8, 8, 8])
    """
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(
                in_channels,
                channels,
                kernel_size,
                stride,
                padding=kernel_size // 2,
                groups=groups,
                bias=False,
            ),
            norm=nn.BatchNorm2d(channels),
            relu=activation(),
        )
    )


def make_mean_head(in_channels: int, num_classes: int) -> nn.Sequential:
    """Mean over positions `pool`, `flatten`, linear layer `fc`: (N, in_channels, H, W) to logits (N, num_classes).

    >>> import torch
    >>> make_mean_head(4, 3)(torch.zeros(2, 4, 8, 8)).shape
    torch.Size([2, 3])
    """
    return nn.Sequential(
        OrderedDict(
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(in_channels, num_classes),
        )
    )


def make_dense_head(
    features: int, hidden: int, num_classes: int, **before: nn.Module
) -> nn.Sequential:
    """Two linear layers, `fc1` and `fc2`, with `relu` between them: (N, features) to logits (N, num_classes).

    The modules `before`, by name, run first.

    >>> import torch
    >>> make_dense_head(4, 8, 3, flatten=nn.Flatten())(torch.zeros(2, 2, 2)).shape
    torch.Size([2, 3])
    """
    return nn.Sequential(
        OrderedDict(
            **before,
            fc1=nn.Linear(features, hidden),
            relu=nn.ReLU(),
            fc2=nn.Linear(hidden, num_classes),
        )
    )


def make_series_convolutions(
    in_channels: int,
    channels: Sequence[int],
    kernel_sizes: Sequence[int],
    strides: Sequence[int],
    *,
    dropout: float,
) -> nn.Sequential:
    """Convolutions `conv1`, `conv2`, ... of series, each followed by `relu1` and `drop1`, and so on.

    They map (N, in_channels, steps) to (N, channels[-1], steps'). Odd kernels are padded equally on both sides.

    Args:
        in_channels: of the series.
        channels, kernel_sizes, strides: of each convolution.
        dropout: probability.

    >>> import torch
    >>> make_series_convolutions(2, (4, 8), (3, 3), (2, 1), dropout=0.1)(torch.zeros(5, 2, 40)).shape
    torch.Size([5, 8, 20])
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, (count, kernel, stride) in enumerate(
        zip(channels, kernel_sizes, strides, strict=True), 1
    ):
        layers[f"conv{number}"] = nn.Conv1d(
            in_channels, count, kernel, stride=stride, padding=kernel // 2
        )
        layers[f"relu{number}"] = nn.ReLU()
        layers[f"drop{number}"] = nn.Dropout(dropout)
        in_channels = count
    return nn.Sequential(layers)
