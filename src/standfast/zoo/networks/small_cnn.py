"""A small plain convolutional network for 32x32 images.

It has pairs of 3x3 convolutions with pooling between them, as in Simonyan and Zisserman, Very deep convolutional
networks for large-scale image recognition, ICLR 2015, but few channels and no large linear layers.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Three times conv-relu-conv-relu-pool and a linear layer: (N, in_channels, 32, 32) to logits (N, num_classes).

    The pairs have 24, 48 and 80 channels at 32, 16 and 8 pixels. Every ReLU is a module of its own that runs once, and
    no function is called outside a module. Layers have names such as `features.conv6` (the last convolution) and
    `classifier.fc`.

    >>> import torch
    >>> model = SmallCNN()
    >>> model(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 43])
    """

    def __init__(self, num_classes: int = 43, in_channels: int = 3) -> None:
        super().__init__()
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for pair, channels in enumerate((24, 48, 80)):
            for number in (2 * pair + 1, 2 * pair + 2):
                layers[f"conv{number}"] = nn.Conv2d(in_channels, channels, kernel_size=3, padding=1)
                layers[f"relu{number}"] = nn.ReLU()
                in_channels = channels
            layers[f"pool{pair + 1}"] = nn.MaxPool2d(2)
        self.features = nn.Sequential(layers)
        self.classifier = nn.Sequential(
            OrderedDict(
                flatten=nn.Flatten(),
                fc=nn.Linear(in_channels * 4 * 4, num_classes),
            )
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, 32, 32)."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits
