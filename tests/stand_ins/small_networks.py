"""The zoo's architectures, small, and linear bottlenecks: shared by the tests of what they are and of explainers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from standfast.training.classifier import initialize
from standfast.zoo import DLA34, VGG16, ResNet18, ResNet20, SmallCNN
from standfast.zoo.networks.layers import make_conv_block, make_mean_head


class Bottleneck(nn.Module):
    """`x + project(depthwise(expand(x)))` as in MobileNetV2: no rectifier follows `project`."""

    def __init__(self, channels: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        wide = 4 * channels
        self.expand = make_conv_block(channels, wide, kernel_size=1, activation=activation)
        self.depthwise = make_conv_block(wide, wide, groups=wide, activation=activation)
        self.project = nn.Sequential(
            nn.Conv2d(wide, channels, kernel_size=1, bias=False), nn.BatchNorm2d(channels)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.project(self.depthwise(self.expand(inputs)))


def make_bottlenecks(activation: Callable[[], nn.Module] = nn.ReLU6) -> nn.Module:
    features = OrderedDict(
        stem=make_conv_block(3, 8, stride=2, activation=activation),
        block1=Bottleneck(8, activation),
        block2=Bottleneck(8, activation),
        head=make_conv_block(8, 16, kernel_size=1, activation=activation),
    )
    return nn.Sequential(
        OrderedDict(features=nn.Sequential(features), classifier=make_mean_head(16, 10))
    )


# small enough to run often
SMALL: dict[str, Callable[..., nn.Module]] = {
    "resnet20": partial(ResNet20, width=4),
    "bottlenecks": make_bottlenecks,
    "bottlenecks-relu": partial(make_bottlenecks, nn.ReLU),
    "vgg16": partial(VGG16, width=4),
    "dla": partial(DLA34, width=2),
    "resnet18": partial(ResNet18, width=4),
    "cnn": SmallCNN,
}


def drawn(name: str, seed: int = 0) -> nn.Module:
    """One of the small networks in double precision, its batch statistics those of noise, so that no signal dies."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        model = initialize(SMALL[name](), generator).double()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None  # the plain average
            nn.init.uniform_(layer.weight, 0.5, 1.5, generator=generator)
            nn.init.uniform_(layer.bias, -0.5, 0.5, generator=generator)
    with torch.no_grad():
        model.train()(noise(32, seed=1))
    return model.eval()


@cache
def fixed(name: str) -> nn.Module:
    """The same one for all tests that leave it as it is."""
    return drawn(name)


def noise(rows: int, seed: int = 2, side: int = 32) -> Tensor:
    coarse = torch.rand(
        rows, 3, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return F.interpolate(coarse, size=(side, side), mode="bilinear")
