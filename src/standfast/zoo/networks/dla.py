"""DLA-34, a network with deep layer aggregation, for 32x32 images.

Yu, Wang, Shelhamer and Darrell, Deep layer aggregation, CVPR 2018. The blocks of a stage are the leaves of a binary
tree, whose nodes aggregate them (hierarchical deep aggregation). The root of a tree also gets the stage's input, and so
aggregates across stages (iterative deep aggregation). Differences, since the images are small: a 3x3 stem instead of
7x7, and stride 1 instead of 2 in the first two stages with a stride, so that 32x32 inputs end as 4x4 features.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from standfast.errors import check
from standfast.zoo.networks.layers import make_conv_block, make_mean_head
from standfast.zoo.networks.resnet import BasicBlock


class Tree(nn.Module):
    """`2 ** depth` residual blocks, aggregated: (N, in_channels, H, W) to (N, channels, H', W'), `H' = H / stride`.

    A tree of depth 1 consists of two blocks in series and a node `root`, which aggregates the outputs of both: it
    concatenates them and applies a 1x1 convolution, batch normalisation and ReLU. A deeper tree consists of two trees
    in series; the root of the second one also gets the output of the first, and aggregates for both.

    Args:
        depth: of the tree.
        in_channels: of its input.
        channels: of its output.
        stride: of its first block.
        outside: channels of features from outside this tree that its root aggregates too.

    >>> tree = Tree(2, 8, 16, stride=2, outside=8)
    >>> tree(torch.zeros(2, 8, 16, 16), torch.zeros(2, 8, 8, 8)).shape
    torch.Size([2, 16, 8, 8])
    """

    def __init__(
        self, depth: int, in_channels: int, channels: int, stride: int = 1, outside: int = 0
    ) -> None:
        super().__init__()
        self.depth = depth
        self.first: nn.Module
        self.second: nn.Module
        if depth == 1:
            self.first = _make_block(in_channels, channels, stride)
            self.second = _make_block(channels, channels, 1)
            self.root = make_conv_block(2 * channels + outside, channels, kernel_size=1)
        else:
            self.first = Tree(depth - 1, in_channels, channels, stride)
            self.second = Tree(depth - 1, channels, channels, outside=channels + outside)

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
    """A tree whose root also gets its input, max-pooled: (N, in_channels, H, W) to (N, channels, H / 2, W / 2).

    >>> Stage(1, 8, 16)(torch.zeros(2, 8, 16, 16)).shape
    torch.Size([2, 16, 8, 8])
    """

    def __init__(self, depth: int, in_channels: int, channels: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.tree = Tree(depth, in_channels, channels, stride=2, outside=in_channels)

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (N, channels, H', W') of features (N, in_channels, H, W)."""
        features: Tensor = self.tree(inputs, self.pool(inputs))
        return features


class DLA34(nn.Module):
    """A stem, two convolutions, four stages of trees, mean, linear layer: (N, in_channels, H, W) to (N, num_classes).

    The stem has `width` channels, the stages after it 1, 2, 4, 8, 16 and 32 times as many; the published width is 16.
    Trees have depths 1, 2, 2 and 1. Every ReLU is a module of its own that runs once, so attribution methods can hook
    each of them. Layers have names such as `stage6.tree.second.conv2` and `stage6.tree.root.conv` (the last
    convolution). The only functional calls are the sum in each block and the concatenation at each root. Batch
    normalisation follows the stem directly, so inputs in [0, 1] need no other normalisation.

    Args:
        num_classes: of the logits.
        in_channels: of the images, whose sides are multiples of 8.
        width: channels of the stem.

    >>> DLA34(width=2)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3, width: int = 16) -> None:
        super().__init__()
        check(width >= 1, "width", "at least 1", width)
        self.stem = make_conv_block(in_channels, width)
        self.stage1 = make_conv_block(width, width)
        self.stage2 = make_conv_block(width, 2 * width)
        # the first tree has no stage before it to aggregate
        self.stage3 = Tree(1, 2 * width, 4 * width)
        self.stage4 = Stage(2, 4 * width, 8 * width)
        self.stage5 = Stage(2, 8 * width, 16 * width)
        self.stage6 = Stage(1, 16 * width, 32 * width)
        self.classifier = make_mean_head(32 * width, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, H, W)."""
        features = self.stage3(self.stage2(self.stage1(self.stem(inputs))))
        logits: Tensor = self.classifier(self.stage6(self.stage5(self.stage4(features))))
        return logits


def _make_block(in_channels: int, channels: int, stride: int) -> BasicBlock:
    """A residual block whose shortcut is max-pooled, instead of a projection with a stride, and then projected."""
    block = BasicBlock(in_channels, channels, stride)
    if in_channels != channels:
        block.shortcut = nn.Sequential(
            OrderedDict(
                pool=_make_pool(stride),
                conv=nn.Conv2d(in_channels, channels, kernel_size=1, bias=False),
                norm=nn.BatchNorm2d(channels),
            )
        )
    return block


def _make_pool(stride: int) -> nn.Module:
    return nn.Identity() if stride == 1 else nn.MaxPool2d(stride)
