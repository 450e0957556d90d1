"""DLA-34, a network of aggregated layers, for 32x32 images or as published for 224x224.

Yu, Wang, Shelhamer and Darrell, Deep layer aggregation, CVPR 2018. Blocks of a stage are the leaves of a binary tree,
whose nodes aggregate them (hierarchical deep aggregation); a stage's input goes to the root of its tree as well, which
so aggregates across stages (iterative deep aggregation). Departures by default, since the images are small: a 3x3 stem
for 7x7, and stride 1 for 2 in the first two stages that have one, so that 32x32 inputs end as 4x4 features.

The published DLA-34 has 15,742,104 parameters here, as many as that of the authors without the 41,728 of two
projections which their code makes but does not use; the paper's table says 15.3 million.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from holdfast.errors import check
from holdfast.zoo.networks.layers import conv_norm_relu, mean_and_linear
from holdfast.zoo.networks.resnet import BasicBlock

PUBLISHED_STRIDES = (1, 2, 2, 2, 2, 2)
SMALL_STRIDES = (1, 1, 1, 2, 2, 2)


class Tree(nn.Module):
    """`2 ** depth` residual blocks, aggregated: (N, in_channels, H, W) to (N, channels, H', W'), `H' = H / stride`.

    A tree of depth 1 is two blocks in series and a node `root`, which sees both: their outputs side by side, a 1x1
    convolution, batch normalisation, ReLU. A deeper one is two trees in series; the root of the second also sees the
    output of the first, and aggregates for both.

    Args:
        also: how many channels the root sees of features from outside this tree.

    >>> tree = Tree(2, 8, 16, stride=2, also=8)
    >>> tree(torch.zeros(2, 8, 16, 16), torch.zeros(2, 8, 8, 8)).shape
    torch.Size([2, 16, 8, 8])
    """

    def __init__(self, depth: int, in_channels: int, channels: int, stride: int = 1, also: int = 0) -> None:
        super().__init__()
        self.depth = depth
        self.first: nn.Module
        self.second: nn.Module
        if depth == 1:
            self.first = _block(in_channels, channels, stride)
            self.second = _block(channels, channels, 1)
            self.root = conv_norm_relu(2 * channels + also, channels, kernel_size=1)
        else:
            self.first = Tree(depth - 1, in_channels, channels, stride)
            self.second = Tree(depth - 1, channels, channels, also=channels + also)

    def forward(self, inputs: Tensor, *outside: Tensor) -> Tensor:
        """Features (N, channels, H', W') of features (N, in_channels, H, W), and for the root (N, ..., H', W')."""
        first = self.first(inputs)
        features: Tensor
        if self.depth == 1:
            features = self.root(torch.cat([self.second(first), first, *outside], dim=1))
        else:
            features = self.second(first, first, *outside)
        return features


class Stage(nn.Module):
    """A tree whose root also sees the stage's input, max-pooled: (N, in_channels, H, W) to (N, channels, H', W').

    >>> Stage(1, 8, 16, stride=2)(torch.zeros(2, 8, 16, 16)).shape
    torch.Size([2, 16, 8, 8])
    """

    def __init__(self, depth: int, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.pool = _pool(stride)
        self.tree = Tree(depth, in_channels, channels, stride, also=in_channels)

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (N, channels, H', W') of features (N, in_channels, H, W)."""
        features: Tensor = self.tree(inputs, self.pool(inputs))
        return features


class DLA34(nn.Module):
    """A stem, two convolutions, four stages of trees, mean, linear layer: (N, in_channels, H, W) to (N, num_classes).

    The stem has `width` channels, the stages after it 1, 2, 4, 8, 16 and 32 times as many; the published width is 16.
    Trees have depths 1, 2, 2 and 1. Every ReLU is a module of its own that runs once, so attribution methods can hook
    each of them; layers are addressed as `stage6.tree.second.conv2` or `stage6.tree.root.conv` (the last convolution).
    The only functional calls are the sum in each block and the concatenation at each root. Batch normalisation follows
    the stem at once, so inputs in [0, 1] need no other.

    Args:
        strides: of the six stages. `SMALL_STRIDES` divide the size by 8, `PUBLISHED_STRIDES` by 32; H and W must be
            multiples of that.
        stem_kernel: the stem's kernel, odd; the published one is 7.

    >>> DLA34(width=2)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> sum(parameter.numel() for parameter in DLA34(num_classes=1000, stem_kernel=7).parameters())
    15742104
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        width: int = 16,
        strides: Sequence[int] = SMALL_STRIDES,
        stem_kernel: int = 3,
    ) -> None:
        super().__init__()
        check(width >= 1, "width", "at least 1", width)
        expected = f"{len(SMALL_STRIDES)} whole numbers of at least 1"
        check(len(strides) == len(SMALL_STRIDES) and min(strides) >= 1, "strides", expected, strides)
        check(stem_kernel >= 1 and stem_kernel % 2 == 1, "stem_kernel", "an odd number of at least 1", stem_kernel)
        self.stem = conv_norm_relu(in_channels, width, stem_kernel)
        self.stage1 = conv_norm_relu(width, width, stride=strides[0])
        self.stage2 = conv_norm_relu(width, 2 * width, stride=strides[1])
        self.stage3 = Tree(1, 2 * width, 4 * width, strides[2])  # the first: no stage before it to aggregate
        self.stage4 = Stage(2, 4 * width, 8 * width, strides[3])
        self.stage5 = Stage(2, 8 * width, 16 * width, strides[4])
        self.stage6 = Stage(1, 16 * width, 32 * width, strides[5])
        self.classifier = mean_and_linear(32 * width, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, H, W)."""
        features = self.stage3(self.stage2(self.stage1(self.stem(inputs))))
        logits: Tensor = self.classifier(self.stage6(self.stage5(self.stage4(features))))
        return logits


def _block(in_channels: int, channels: int, stride: int) -> BasicBlock:
    """A residual block whose shortcut is max-pooled where it strides, and then projected without a stride."""
    block = BasicBlock(in_channels, channels, stride)
    if in_channels != channels:
        block.shortcut = nn.Sequential(
            OrderedDict(
                pool=_pool(stride),
                conv=nn.Conv2d(in_channels, channels, kernel_size=1, bias=False),
                norm=nn.BatchNorm2d(channels),
            )
        )
    return block


def _pool(stride: int) -> nn.Module:
    return nn.Identity() if stride == 1 else nn.MaxPool2d(stride)
