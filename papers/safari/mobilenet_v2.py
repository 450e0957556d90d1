"""MobileNet, version 2: inverted residuals with linear bottlenecks, for 32x32 images.

A network of SAFARI's Table 8. As a program it is `standfast` with this architecture:

    python -m papers.safari.mobilenet_v2 train --model mobilenet_v2 --data cifar10

Sandler, Howard, Zhu, Zhmoginov and Chen, MobileNetV2: inverted residuals and linear bottlenecks, CVPR 2018, Tables 1
and 2. Difference, since the images are small: the stem and the blocks of 24 channels have stride 1 instead
of 2, so that 32x32 inputs end as 4x4 features. Where the paper leaves something open, this follows its implementation:
the first bottleneck, with expansion 1, has no expanding convolution; numbers of channels are multiples of 8;
convolutions have no biases, since batch normalisation has them. Layers with strides are padded equally on both sides.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from torch import Tensor, nn

from standfast.cli import app
from standfast.errors import check
from standfast.zoo import architectures
from standfast.zoo.networks.layers import (
    Activation,
    find_activation,
    make_conv_block,
    make_mean_head,
)

_STEM, _HEAD = 32, 1280
# expansion, channels, repetitions, stride: the rows of the paper's Table 2
_ROWS = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(nn.Module):
    """`x + project(depthwise(expand(x)))`: (N, C, H, W) to (N, K, H', W'), `H' = ceil(H / stride)`.

    `expand` (to `expansion * C` channels) and `project` are 1x1 convolutions, `depthwise` is a 3x3 convolution of each
    channel. All have batch normalisation, and all except `project` have a rectifier. There is no sum with `x` if the
    shape changes, and no `expand` if `expansion` is 1.

    >>> import torch
    >>> InvertedResidual(8, 16, expansion=6, stride=2)(torch.zeros(2, 8, 16, 16)).shape
    torch.Size([2, 16, 8, 8])
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        expansion: int,
        stride: int = 1,
        activation: Callable[[], nn.Module] = nn.ReLU6,
    ) -> None:
        super().__init__()
        hidden = expansion * in_channels
        self.residual = stride == 1 and in_channels == channels
        self.expand: nn.Module = nn.Identity()
        if expansion != 1:
            self.expand = make_conv_block(in_channels, hidden, kernel_size=1, activation=activation)
        self.depthwise = make_conv_block(
            hidden, hidden, stride=stride, groups=hidden, activation=activation
        )
        self.project = nn.Sequential(
            OrderedDict(
                conv=nn.Conv2d(hidden, channels, kernel_size=1, bias=False),
                norm=nn.BatchNorm2d(channels),
            )
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (N, channels, H', W') of features (N, in_channels, H, W)."""
        features: Tensor = self.project(self.depthwise(self.expand(inputs)))
        return inputs + features if self.residual else features


class MobileNetV2(nn.Module):
    """A stem, seventeen inverted residuals, a 1x1 convolution, mean, linear layer.

    Images (N, in_channels, H, W) to logits (N, num_classes). Every rectifier is a module of its own that runs once, so
    attribution methods can hook each of them. Layers have names such as `features.block17.depthwise.conv` and
    `features.head.conv` (the last convolution). The only functional call is the sum in some blocks. Batch normalisation
    follows the stem directly, so inputs in [0, 1] need no other normalisation.

    Args:
        num_classes: of the logits.
        in_channels: of the images.
        width_multiplier: as in the paper, above 0. All numbers of channels are multiplied by it and rounded to
            multiples of 8; the last convolution always has at least 1280.
        activation: `"relu6"` as published, `"relu"`, `"softplus"` (beta = 10) or `"tanh"`. Layers keep their names.

    >>> import torch
    >>> MobileNetV2(width_multiplier=0.25)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> sum(parameter.numel() for parameter in MobileNetV2(num_classes=1000).parameters())
    3504872
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        width_multiplier: float = 1.0,
        activation: Activation = "relu6",
    ) -> None:
        super().__init__()
        check(width_multiplier > 0, "width_multiplier", "above 0", width_multiplier)
        activate = find_activation(activation)
        last = _round_to_8(width_multiplier * _STEM)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["stem"] = make_conv_block(in_channels, last, activation=activate)
        number = 0
        for expansion, count, repetitions, stride in _ROWS:
            channels = _round_to_8(width_multiplier * count)
            for repetition in range(repetitions):
                number += 1
                step = stride if repetition == 0 else 1
                layers[f"block{number}"] = InvertedResidual(
                    last, channels, expansion, step, activate
                )
                last = channels
        head = _round_to_8(max(1.0, width_multiplier) * _HEAD)
        layers["head"] = make_conv_block(last, head, kernel_size=1, activation=activate)
        self.features = nn.Sequential(layers)
        self.classifier = make_mean_head(head, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, H, W)."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits


def _round_to_8(channels: float) -> int:
    """The nearest multiple of 8 that is at least 8; the next larger one if that is less than nine tenths."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


if __name__ == "__main__":
    architectures.add("mobilenet_v2", MobileNetV2)
    app()
