"""VGG-16 with batch normalisation for 32x32 images.

Simonyan and Zisserman, Very deep convolutional networks for large-scale image recognition, ICLR 2015, configuration D:
thirteen 3x3 convolutions in five groups, with max-pooling after each group. Differences, as in nearly all work that
says "VGG-16" on CIFAR-10: batch normalisation after each convolution, and one linear layer instead of three, since
32x32 inputs end as a single position.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from standfast.errors import check
from standfast.zoo.networks.layers import make_mean_head

# convolutions and channels (in widths) of each group: the paper's Table 1, column D
_GROUPS = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))


class VGG16(nn.Module):
    """Thirteen convolutions, five poolings, linear layer: (N, in_channels, H, W) to logits (N, num_classes).

    The groups have 1, 2, 4, 8 and 8 times `width` channels; the published width is 64. Every ReLU is a module of its
    own that runs once, so attribution methods can hook each of them, and no function is called outside a module. Layers
    have names such as `features.conv13` (the last convolution), `features.relu13` and `classifier.fc`. With batch
    normalisation after the first convolution, inputs in [0, 1] need no other normalisation.

    Args:
        num_classes: of the logits.
        in_channels: of the images.
        width: channels of the first group.

    >>> import torch
    >>> VGG16(width=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> sum(parameter.numel() for parameter in VGG16().parameters())
    14728266
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3, width: int = 64) -> None:
        super().__init__()
        check(width >= 1, "width", "at least 1", width)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        number = 0
        for group, (convolutions, multiple) in enumerate(_GROUPS, 1):
            for _ in range(convolutions):
                number += 1
                layers[f"conv{number}"] = nn.Conv2d(
                    in_channels, multiple * width, kernel_size=3, padding=1
                )
                layers[f"norm{number}"] = nn.BatchNorm2d(multiple * width)
                layers[f"relu{number}"] = nn.ReLU()
                in_channels = multiple * width
            layers[f"pool{group}"] = nn.MaxPool2d(2)
        self.features = nn.Sequential(layers)
        self.classifier = make_mean_head(in_channels, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, H, W), H and W at least 32."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits
