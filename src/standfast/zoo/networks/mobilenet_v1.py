"""MobileNet, version 1: depthwise separable convolutions, for 32x32 and 64x64 images or as published for 224x224.

Howard, Zhu, Chen, Kalenichenko, Wang, Weyand, Andreetto and Adam, MobileNets: efficient convolutional neural networks
for mobile vision applications, arXiv:1704.04861, 2017, Table 1. Difference by default, since the images are small: the
stem has stride 1 instead of 2, so that 32x32 inputs end as 2x2 features. ReLU, as in the paper (its first
implementation has ReLU6). In the table the last depthwise layer has a stride of 2, but the same size before and after
it: here the stride is 1, as in all implementations. Layers with strides are padded equally on both sides.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from standfast.errors import check
from standfast.zoo.networks.layers import Activation, check_strides, find_activation, make_conv_block, make_mean_head

_STEM = 32
_CHANNELS = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)

PUBLISHED_STRIDES = (2, 1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
SMALL_STRIDES = (1, *PUBLISHED_STRIDES[1:])


class MobileNetV1(nn.Module):
    """A stem, thirteen separable blocks, mean, linear layer: (N, in_channels, H, W) to logits (N, num_classes).

    A block is a 3x3 convolution of each channel (`depthwise`) and a 1x1 convolution of all channels (`pointwise`), each
    followed by batch normalisation and ReLU. Every ReLU is a module of its own that runs once, so attribution methods
    can hook each of them, and no function is called outside a module. Layers have names such as
    `features.block13.pointwise.conv` (the last convolution) and `features.stem.relu`. Batch normalisation follows the
    stem directly, so inputs in [0, 1] need no other normalisation.

    Args:
        num_classes: of the logits.
        in_channels: of the images.
        width_multiplier: the paper's alpha, above 0; all channels are multiplied by it, and rounded.
        strides: of the stem and of the thirteen blocks. `SMALL_STRIDES` divide the size by 16, `PUBLISHED_STRIDES`
            by 32.
        activation: `"relu"` as published, `"softplus"` (beta = 10), `"tanh"` or `"relu6"`. Layers keep their names.

    >>> import torch
    >>> MobileNetV1(width_multiplier=0.25)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> sum(parameter.numel() for parameter in MobileNetV1(num_classes=1000).parameters())
    4231976
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        width_multiplier: float = 1.0,
        strides: Sequence[int] = SMALL_STRIDES,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        check(width_multiplier > 0, "width_multiplier", "above 0", width_multiplier)
        check_strides(strides, len(SMALL_STRIDES))
        make_block = partial(make_conv_block, activation=find_activation(activation))
        last, *channels = (max(1, round(width_multiplier * count)) for count in (_STEM, *_CHANNELS))
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        layers["stem"] = make_block(in_channels, last, stride=strides[0])
        for number, (count, stride) in enumerate(zip(channels, strides[1:], strict=True), 1):
            layers[f"block{number}"] = nn.Sequential(
                OrderedDict(
                    depthwise=make_block(last, last, stride=stride, groups=last),
                    pointwise=make_block(last, count, kernel_size=1),
                )
            )
            last = count
        self.features = nn.Sequential(layers)
        self.classifier = make_mean_head(last, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, H, W)."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits
