"""LeNet-5, as it is used today or with the smooth functions of the original.

LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, Proceedings of the IEEE
86(11), 1998. Differences from the paper by default, as in nearly all work that says "LeNet-5" today:

- ReLU instead of the scaled tanh, and max-pooling instead of trainable averages;
- every feature map of the second convolution is connected to all six of the first;
- a linear output layer instead of the Gaussian one;
- a padding of 2, which extends the 28x28 input to the paper's 32x32.

`LeNet5(activation="tanh", pooling="average", side=32)` is nearer to the original: tanh without scale, averages without
parameters, and the border of 2 belongs to the input.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, get_args

from torch import Tensor, nn

from standfast.errors import check
from standfast.zoo.networks.layers import Activation, find_activation

Pooling = Literal["max", "average"]
Side = Literal[28, 32]


class LeNet5(nn.Module):
    """Two convolutions and three linear layers: (N, in_channels, side, side) to logits (N, num_classes).

    Every activation is a module of its own, so attribution methods can hook each of them. Layers have names such as
    `features.conv2`, `features.relu2` (or `tanh2`) and `classifier.fc3`. With tanh or softplus and average pooling,
    the logits are a smooth function of the input.

    Args:
        num_classes: of the logits.
        in_channels: of the images.
        activation: `"relu"`, `"tanh"`, `"softplus"` (beta = 10) or `"relu6"`.
        pooling: `"max"` or `"average"`, of 2x2 values.
        side: of the images, 28 or 32 pixels. Images of 28 are extended by zeros to 32; both have the same parameters.

    Raises:
        ArgumentError: an unknown activation, pooling or side.

    >>> import torch
    >>> model = LeNet5()
    >>> model(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    >>> LeNet5(activation="tanh", pooling="average", side=32)(torch.zeros(2, 1, 32, 32)).shape
    torch.Size([2, 10])
    >>> sum(parameter.numel() for parameter in model.parameters())
    61706
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        activation: Activation = "relu",
        pooling: Pooling = "max",
        side: Side = 28,
    ) -> None:
        super().__init__()
        activate = find_activation(activation)
        check(pooling in get_args(Pooling), "pooling", "'max' or 'average'", repr(pooling))
        check(side in get_args(Side), "side", "28 or 32", side)
        # an image of 28 pixels gets a border, so both sides have the same layers behind
        pool = nn.MaxPool2d if pooling == "max" else nn.AvgPool2d
        self.features = nn.Sequential(
            OrderedDict(
                [
                    ("conv1", nn.Conv2d(in_channels, 6, kernel_size=5, padding=(32 - side) // 2)),
                    (f"{activation}1", activate()),
                    ("pool1", pool(2)),
                    ("conv2", nn.Conv2d(6, 16, kernel_size=5)),
                    (f"{activation}2", activate()),
                    ("pool2", pool(2)),
                ]
            )
        )
        self.classifier = nn.Sequential(
            OrderedDict(
                [
                    ("flatten", nn.Flatten()),
                    ("fc1", nn.Linear(16 * 5 * 5, 120)),
                    (f"{activation}3", activate()),
                    ("fc2", nn.Linear(120, 84)),
                    (f"{activation}4", activate()),
                    ("fc3", nn.Linear(84, num_classes)),
                ]
            )
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, side, side)."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits
