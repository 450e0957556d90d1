"""LeNet-5 for 28x28 images, with rectifiers and max-pooling.

LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, Proceedings of the IEEE
86(11), 1998. Differences from the paper, as in nearly all work that says "LeNet-5" today:

- ReLU instead of the scaled tanh, and max-pooling instead of trainable averages;
- every feature map of the second convolution is connected to all six of the first;
- a linear output layer instead of the Gaussian one;
- a padding of 2, which extends the 28x28 input to the paper's 32x32.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn


class LeNet5(nn.Module):
    """Two convolutions and three linear layers: (N, in_channels, 28, 28) to logits (N, num_classes).

    Every ReLU is a module of its own, so attribution methods can hook each of them. Layers have names such as
    `features.conv2` and `classifier.fc3`.

    >>> import torch
    >>> model = LeNet5()
    >>> model(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    >>> sum(parameter.numel() for parameter in model.parameters())
    61706
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 1) -> None:
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(in_channels, 6, kernel_size=5, padding=2),
                relu1=nn.ReLU(),
                pool1=nn.MaxPool2d(2),
                conv2=nn.Conv2d(6, 16, kernel_size=5),
                relu2=nn.ReLU(),
                pool2=nn.MaxPool2d(2),
            )
        )
        self.classifier = nn.Sequential(
            OrderedDict(
                flatten=nn.Flatten(),
                fc1=nn.Linear(16 * 5 * 5, 120),
                relu3=nn.ReLU(),
                fc2=nn.Linear(120, 84),
                relu4=nn.ReLU(),
                fc3=nn.Linear(84, num_classes),
            )
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, 28, 28)."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits
