"""The zoo's architectures, small: shared by the tests of what they are and of how explainers see them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from standfast.training.classifier import initialize
from standfast.zoo import DLA34, VGG16, MobileNetV2, ResNet18, ResNet20, SmallCNN

# small enough to run often
SMALL: dict[str, Callable[..., nn.Module]] = {
    "resnet20": partial(ResNet20, width=4),
    "resnet20-B": partial(ResNet20, width=4, shortcut="B"),
    "mobilenet_v2": partial(MobileNetV2, width_multiplier=0.125),
    "mobilenet_v2-relu": partial(MobileNetV2, width_multiplier=0.125, activation="relu"),
    "vgg16": partial(VGG16, width=4),
    "vgg16-plain": partial(VGG16, width=8, batch_norm=False, hidden=16),
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
        elif isinstance(layer, nn.Conv2d) and name == "vgg16-plain":
            nn.init.kaiming_normal_(layer.weight, generator=generator)
    with torch.no_grad():
        model.train()(noise(32, seed=1))
    return model.eval()


@cache
def fixed(name: str) -> nn.Module:
    """The same one for all tests that leave it as it is."""
    return drawn(name)


def noise(rows: int, seed: int = 2, side: int = 32) -> Tensor:
    coarse = torch.rand(rows, 3, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.interpolate(coarse, size=(side, side), mode="bilinear")
