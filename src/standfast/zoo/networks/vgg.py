"""VGG-16 with batch normalisation for 32x32 images, or as published for 224x224.

Simonyan and Zisserman, Very deep convolutional networks for large-scale image recognition, ICLR 2015, configuration D:
thirteen 3x3 convolutions in five groups, with max-pooling after each group. Differences by default, as in nearly all
work that says "VGG-16" on CIFAR-10: batch normalisation after each convolution, and one linear layer instead of three,
since 32x32 inputs end as a single position.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from standfast.errors import check

# convolutions and channels (in widths) of each group: the paper's Table 1, column D
_GROUPS = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))


class VGG16(nn.Module):
    """Thirteen convolutions, five poolings, linear layers: (N, in_channels, H, W) to logits (N, num_classes).

    The groups have 1, 2, 4, 8 and 8 times `width` channels; the published width is 64. Every ReLU is a module of its
    own that runs once, so attribution methods can hook each of them, and no function is called outside a module. Layers
    have names such as `features.conv13` (the last convolution), `features.relu13` and `classifier.fc`. With batch
    normalisation after the first convolution, inputs in [0, 1] need no other normalisation.

    Args:
        num_classes: of the logits.
        in_channels: of the images.
        width: channels of the first group.
        batch_norm: use batch normalisation after each convolution; the paper has none.
        hidden: units of each of two hidden linear layers (`classifier.fc1`, `classifier.fc2`), with ReLU and dropout of
            one half; 0 for no such layers. The published number is 4096.
        positions: the side to which features are averaged before the linear layers. The published side is 7, for
            224x224 inputs.

    >>> import torch
    >>> VGG16(width=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> sum(parameter.numel() for parameter in VGG16().parameters())
    14728266
    >>> with torch.device("meta"):
    ...     published = VGG16(num_classes=1000, batch_norm=False, hidden=4096, positions=7)
    >>> sum(parameter.numel() for parameter in published.parameters())
    138357544
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        width: int = 64,
        batch_norm: bool = True,
        hidden: int = 0,
        positions: int = 1,
    ) -> None:
        super().__init__()
        check(width >= 1, "width", "at least 1", width)
        check(hidden >= 0, "hidden", "at least 0", hidden)
        check(positions >= 1, "positions", "at least 1", positions)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        number = 0
        for group, (convolutions, multiple) in enumerate(_GROUPS, 1):
            for _ in range(convolutions):
                number += 1
                layers[f"conv{number}"] = nn.Conv2d(in_channels, multiple * width, kernel_size=3, padding=1)
                if batch_norm:
                    layers[f"norm{number}"] = nn.BatchNorm2d(multiple * width)
                layers[f"relu{number}"] = nn.ReLU()
                in_channels = multiple * width
            layers[f"pool{group}"] = nn.MaxPool2d(2)
        self.features = nn.Sequential(layers)
        self.classifier = _make_classifier(in_channels, positions, hidden, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, H, W), H and W at least 32."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits


def _make_classifier(channels: int, positions: int, hidden: int, num_classes: int) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict(pool=nn.AdaptiveAvgPool2d(positions), flatten=nn.Flatten())
    units = channels * positions**2
    if hidden:
        for number in (1, 2):
            layers[f"fc{number}"] = nn.Linear(units, hidden)
            layers[f"relu{number}"] = nn.ReLU()
            layers[f"dropout{number}"] = nn.Dropout(0.5)
            units = hidden
    layers["fc"] = nn.Linear(units, num_classes)
    return nn.Sequential(layers)
