"""The zoo's architectures by name, with random initial weights: `architectures["resnet20"](num_classes=10)`.

Each takes `num_classes` and `in_channels`; its class has further options, such as a width. By default, `lenet5` is for
28x28 images; `series_cnn`, `bilstm` and `series_transformer` for series of any length; all others for 32x32 images.

>>> import torch
>>> architectures.names()
['bilstm', 'dla', 'lenet5', 'mobilenet_v2', 'resnet18', 'resnet20', 'series_cnn', ...]
>>> architectures["resnet20"](num_classes=4, in_channels=1)(torch.zeros(2, 1, 32, 32)).shape
torch.Size([2, 4])
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from standfast.registry import Registry
from standfast.zoo.networks.bilstm import BiLSTM
from standfast.zoo.networks.dla import DLA34
from standfast.zoo.networks.lenet import LeNet5
from standfast.zoo.networks.mobilenet_v2 import MobileNetV2
from standfast.zoo.networks.resnet import ResNet18
from standfast.zoo.networks.resnet20 import ResNet20
from standfast.zoo.networks.series_cnn import SeriesCNN
from standfast.zoo.networks.series_transformer import SeriesTransformer
from standfast.zoo.networks.small_cnn import SmallCNN
from standfast.zoo.networks.vgg import VGG16
from standfast.zoo.networks.vit import VisionTransformer

architectures: Registry[Callable[..., nn.Module]] = Registry("architecture")
architectures.add("bilstm", BiLSTM)
architectures.add("dla", DLA34)
architectures.add("lenet5", LeNet5)
architectures.add("mobilenet_v2", MobileNetV2)
architectures.add("resnet18", ResNet18)
architectures.add("resnet20", ResNet20)
architectures.add("series_cnn", SeriesCNN)
architectures.add("series_transformer", SeriesTransformer)
architectures.add("small_cnn", SmallCNN)
architectures.add("vgg16", VGG16)
architectures.add("vit", VisionTransformer)
