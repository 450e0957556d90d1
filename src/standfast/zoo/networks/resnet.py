"""ResNet-18 for 32x32 images, as it is used on CIFAR-10, in any width.

He, Zhang, Ren and Sun, Deep residual learning for image recognition, CVPR 2016. It has the blocks and stages of their
ResNet-18 for ImageNet. Differences, as in nearly all work that says "ResNet-18" on CIFAR-10: the stem is one 3x3
convolution of stride 1 without pooling, since the images are small; where the shape changes, the shortcut is a 1x1
convolution with batch normalisation (the paper's option B). The paper's own networks for CIFAR-10 (ResNet-20 to 110)
have three stages; see `ResNet20`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from torch import Tensor, nn

from standfast.errors import check
from standfast.zoo.networks.layers import make_conv_block, make_mean_head


class BasicBlock(nn.Module):
    """`relu(f(x) + shortcut(x))`, `f` two 3x3 convolutions with batch normalisation: (N, C, H, W) to (N, K, H', W').

    `H' = H / stride`. The shortcut is the identity if the shape stays the same. `activation` makes what stands in place
    of both `relu`.

    >>> import torch
    >>> BasicBlock(4, 8, stride=2)(torch.zeros(2, 4, 16, 16)).shape
    torch.Size([2, 8, 8, 8])
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        activation: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                OrderedDict(
                    conv=nn.Conv2d(in_channels, channels, kernel_size=1, stride=stride, bias=False),
                    norm=nn.BatchNorm2d(channels),
                )
            )
        self.conv1 = nn.Conv2d(
            in_channels, channels, kernel_size=3, stride=stride, padding=1, bias=False
        )
        self.norm1 = nn.BatchNorm2d(channels)
        self.relu1 = activation()
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.relu2 = activation()

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (N, channels, H / stride, W / stride) of features (N, in_channels, H, W)."""
        residual = self.norm1(self.conv1(inputs))
        residual = self.norm2(self.conv2(self.relu1(residual)))
        features: Tensor = self.relu2(residual + self.shortcut(inputs))
        return features


class ResNet18(nn.Module):
    """A stem, four stages of two blocks, mean, linear layer: (N, in_channels, 32, 32) to logits (N, num_classes).

    The stages have 1, 2, 4 and 8 times `width` channels at 32, 16, 8 and 4 pixels; the published width is 64. Every
    ReLU is a module of its own that runs once, so attribution methods can hook each of them. Layers have names such as
    `stage4.block2.conv2` (the last convolution) and `stem.relu`. The only functional call is the sum in each block.
    Batch normalisation follows the stem directly, so inputs in [0, 1] need no other normalisation.

    >>> import torch
    >>> ResNet18(width=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> sum(parameter.numel() for parameter in ResNet18().parameters())
    11173962
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 3, width: int = 64) -> None:
        super().__init__()
        check(width >= 1, "width", "at least 1", width)
        self.stem = make_conv_block(in_channels, width)
        self.stage1 = make_stage(width, width, 1, 2)
        self.stage2 = make_stage(width, 2 * width, 2, 2)
        self.stage3 = make_stage(2 * width, 4 * width, 2, 2)
        self.stage4 = make_stage(4 * width, 8 * width, 2, 2)
        self.classifier = make_mean_head(8 * width, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (N, num_classes) of images (N, in_channels, 32, 32)."""
        features = self.stage2(self.stage1(self.stem(inputs)))
        logits: Tensor = self.classifier(self.stage4(self.stage3(features)))
        return logits


def make_stage(
    in_channels: int,
    channels: int,
    stride: int,
    blocks: int,
    activation: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Blocks `block1`, `block2`, ... in series, of which the first has the stride."""
    stage: OrderedDict[str, nn.Module] = OrderedDict()
    for number in range(1, blocks + 1):
        is_first = number == 1
        if is_first:
            block = BasicBlock(in_channels, channels, stride, activation)
        else:
            block = BasicBlock(channels, channels, 1, activation)
        stage[f"block{number}"] = block
    return nn.Sequential(stage)
