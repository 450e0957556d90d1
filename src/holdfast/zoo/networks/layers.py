"""What several architectures of the zoo are made of."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


def conv_norm_relu(
    in_channels: int,
    channels: int,
    kernel_size: int = 3,
    *,
    stride: int = 1,
    groups: int = 1,
    bias: bool = False,
    activation: type[nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Convolution `conv`, batch normalisation `norm` and rectifier `relu` of features (N, in_channels, H, W).

    To (N, channels, H', W'); odd kernels are padded on both sides alike, such that `H' = ceil(H / stride)`.

    >>> import torch
    >>> conv_norm_relu(4, 8, stride=2)(torch.zeros(2, 4, 15, 15)).shape
    torch.Size([2, 8, 8, 8])
    """
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(
                in_channels,
                channels,
                kernel_size,
                stride=stride,
                padding=kernel_size // 2,
                groups=groups,
                bias=bias,
            ),
            norm=nn.BatchNorm2d(channels),
            relu=activation(),
        )
    )


def mean_and_linear(in_channels: int, num_classes: int) -> nn.Sequential:
    """Mean over positions `pool`, `flatten`, linear layer `fc`: (N, in_channels, H, W) to logits (N, num_classes).

    >>> import torch
    >>> mean_and_linear(4, 3)(torch.zeros(2, 4, 8, 8)).shape
    torch.Size([2, 3])
    """
    return nn.Sequential(
        OrderedDict(pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), fc=nn.Linear(in_channels, num_classes))
    )
