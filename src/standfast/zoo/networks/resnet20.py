"""ResNet-20, the smallest of the residual networks that were made for CIFAR-10.

He, Zhang, Ren and Sun, Deep residual learning for image recognition, CVPR 2016, Section 4.2: 6n + 2 weighted layers in
three stages of n blocks, n = 3. Shortcuts between stages have no parameters (the paper's option A): they take every
second pixel in each direction, and new channels are zeros. Here the new channels are the last ones; the paper does not
say which.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from torch import Tensor, nn

from standfast.errors import check
from standfast.zoo.networks.layers import (
    Activation,
    find_activation,
    make_conv_block,
    make_mean_head,
)
from standfast.zoo.networks.resnet import make_stage


class ResNet20(nn.Module):
    """A stem, three stages of three blocks, mean, linear layer: (N, in_channels, 32, 32) to logits (N, num_classes).

    The stages have 1, 2 and 4 times `width` channels at 32, 16 and 8 pixels; the published width is 16. Every ReLU is a
    module of its own that runs once, so attribution methods can hook each of them. Layers have names such as
    `stage3.block3.conv2` (the last convolution) and `stem.relu`. The only functional call is the sum in each block.
    Batch normalisation follows the stem directly, so inputs in [0, 1] need no other normalisation. Images of other
    sizes work too.

    Args:
        num_classes: of the logits.
        in_channels: of the images.
        width: channels of the first stage.
        activation: `"relu"` as published, `"softplus"` (beta = 10), `"tanh"` or `"relu6"`. Layers keep their names.

    >>> import torch
    >>> ResNet20(width=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> sum(parameter.numel() for parameter in ResNet20().parameters())
    269722
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        width: int = 16,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        check(width >= 1, "width", "at least 1", width)
        activate = find_activation(activation)
        self.stem = make_conv_block(in_channels, width, activation=activate)
        self.stage1 = _make_stage(width, width, 1, activate)
        self.stage2 = _make_stage(width, 2 * width, 2, activate)
        self.stage3 = _make_stage(2 * width, 4 * width, 2, activate)
        self.classifier = make_mean_head(4 * width, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, 32, 32)."""
        features = self.stage1(self.stem(inputs))
        logits: Tensor = self.classifier(self.stage3(self.stage2(features)))
        return logits


def _make_stage(
    in_channels: int, channels: int, stride: int, activate: Callable[[], nn.Module]
) -> nn.Sequential:
    stage = make_stage(in_channels, channels, stride, 3, activate)
    if stride != 1:
        stage.get_submodule("block1").shortcut = _make_shortcut(channels - in_channels, stride)
    return stage


def _make_shortcut(new_channels: int, stride: int) -> nn.Sequential:
    """Take every `stride`-th pixel and append `new_channels` of zeros; by modules, which hooks can see."""
    return nn.Sequential(
        OrderedDict(
            # a pooling of single pixels, as a slice of a tensor is no module
            subsample=nn.AvgPool2d(kernel_size=1, stride=stride),
            pad=nn.ZeroPad3d((0, 0, 0, 0, 0, new_channels)),  # columns, rows, channels
        )
    )
