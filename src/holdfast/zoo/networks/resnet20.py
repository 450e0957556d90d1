"""ResNet-20, the smallest of the residual networks that were made for CIFAR-10.

He, Zhang, Ren and Sun, Deep residual learning for image recognition, CVPR 2016, Section 4.2: 6n + 2 weighted layers in
three stages of n blocks, n = 3. Shortcuts between stages have no parameters (the paper's option A): every second pixel
in either direction, and zeros for the channels that are new, as the last ones here (the paper does not say where).
Option B is a choice.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, get_args

from torch import Tensor, nn

from holdfast.errors import check
from holdfast.zoo.networks.layers import conv_norm_relu, mean_and_linear
from holdfast.zoo.networks.resnet import BasicBlock

Shortcut = Literal["A", "B"]


class ResNet20(nn.Module):
    """A stem, three stages of three blocks, mean, linear layer: (N, in_channels, 32, 32) to logits (N, num_classes).

    The stages have 1, 2 and 4 times `width` channels at 32, 16 and 8 pixels; the published width is 16. Every ReLU is a
    module of its own that runs once, so attribution methods can hook each of them; layers are addressed as
    `stage3.block3.conv2` (the last convolution) or `stem.relu`. The only functional call is the sum in each block.
    Batch normalisation follows the stem at once, so inputs in [0, 1] need no other. Images of other sizes work.

    Args:
        shortcut: where the shape changes: `"A"`, subsampling and zeros, no parameters; `"B"`, a 1x1 convolution with
            batch normalisation.

    >>> import torch
    >>> ResNet20(width=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> sum(parameter.numel() for parameter in ResNet20().parameters())
    269722
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3, width: int = 16, shortcut: Shortcut = "A") -> None:
        super().__init__()
        check(width >= 1, "width", "at least 1", width)
        check(shortcut in get_args(Shortcut), "shortcut", "'A' or 'B'", repr(shortcut))
        self.stem = conv_norm_relu(in_channels, width)
        self.stage1 = _stage(width, width, 1, shortcut)
        self.stage2 = _stage(width, 2 * width, 2, shortcut)
        self.stage3 = _stage(2 * width, 4 * width, 2, shortcut)
        self.classifier = mean_and_linear(4 * width, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, 32, 32)."""
        features = self.stage1(self.stem(inputs))
        logits: Tensor = self.classifier(self.stage3(self.stage2(features)))
        return logits


def _stage(in_channels: int, channels: int, stride: int, shortcut: Shortcut) -> nn.Sequential:
    first = BasicBlock(in_channels, channels, stride)
    if stride != 1 and shortcut == "A":
        first.shortcut = _subsampled_and_padded(channels - in_channels, stride)
    return nn.Sequential(
        OrderedDict(block1=first, block2=BasicBlock(channels, channels), block3=BasicBlock(channels, channels))
    )


def _subsampled_and_padded(new_channels: int, stride: int) -> nn.Sequential:
    """Every `stride`-th pixel, then `new_channels` of zeros; in modules, not by indexing, for hooks and bounds."""
    return nn.Sequential(
        OrderedDict(
            subsample=nn.AvgPool2d(kernel_size=1, stride=stride),
            pad=nn.ZeroPad3d((0, 0, 0, 0, 0, new_channels)),  # of the columns, the rows, the channels
        )
    )
