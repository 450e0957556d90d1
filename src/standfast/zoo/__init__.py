"""Small reference models with their weights: `load("lenet5-mnist")`.

A model consists of a file with its architecture, a line in the registry below, and in `weights/` its weights
(`<name>.safetensors`) and its card (`<name>.json`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import nn

from standfast.errors import StandfastError
from standfast.registry import Registry
from standfast.texts.embedded import (
    EmbeddedText,
    TransformersText,
    padded_batch,
    token_relevance,
)
from standfast.zoo.hub import HUBS, from_hub, from_timm, from_transformers
from standfast.zoo.networks.bilstm import BiLSTM
from standfast.zoo.networks.dla import DLA34
from standfast.zoo.networks.lenet import LeNet5
from standfast.zoo.networks.resnet import ResNet18
from standfast.zoo.networks.resnet20 import ResNet20
from standfast.zoo.networks.series_cnn import SeriesCNN
from standfast.zoo.networks.series_models import BUNDLED as SERIES
from standfast.zoo.networks.series_transformer import SeriesTransformer
from standfast.zoo.networks.small_cnn import SmallCNN
from standfast.zoo.networks.text_transformer import TextTransformer, make_sentence_classifier
from standfast.zoo.networks.vgg import VGG16
from standfast.zoo.networks.vit import VisionTransformer

__all__ = [
    "DLA34",
    "VGG16",
    "BiLSTM",
    "EmbeddedText",
    "LeNet5",
    "MissingWeightsError",
    "ResNet18",
    "ResNet20",
    "SeriesCNN",
    "SeriesTransformer",
    "SmallCNN",
    "TextTransformer",
    "TransformersText",
    "VisionTransformer",
    "architectures",
    "card",
    "from_timm",
    "from_transformers",
    "load",
    "names",
    "padded_batch",
    "token_relevance",
]

#: the architectures by name, with random initial weights: `architectures["resnet20"](num_classes=10)`. Each takes
#: `num_classes` and `in_channels`; its class has further options. By default `lenet5` is for 28x28 images;
#: `series_cnn`, `bilstm` and `series_transformer` for series of any length; all others for 32x32 images
architectures: Registry[Callable[..., nn.Module]] = Registry("architecture")
architectures.add("bilstm", BiLSTM)
architectures.add("dla", DLA34)
architectures.add("lenet5", LeNet5)
architectures.add("resnet18", ResNet18)
architectures.add("resnet20", ResNet20)
architectures.add("series_cnn", SeriesCNN)
architectures.add("series_transformer", SeriesTransformer)
architectures.add("small_cnn", SmallCNN)
architectures.add("vgg16", VGG16)
architectures.add("vit", VisionTransformer)

_TanhLeNet5 = partial(LeNet5, activation="tanh", pooling="average", side=32)
_ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    **dict.fromkeys(
        ("lenet5-fashion-mnist", "lenet5-fashion-mnist-ig-sum-norm", "lenet5-fashion-mnist-pgd"),
        LeNet5,
    ),
    **{f"lenet5-mnist{end}": LeNet5 for end in ("", "-ig-sum-norm", "-pgd045", "-pgd075")},
    "resnet18w16-cifar10": partial(ResNet18, width=16),
    "dla34w2-cifar10": partial(DLA34, width=2),
    "resnet20-cifar10": ResNet20,
    "resnet20-cifar10-softplus": partial(ResNet20, activation="softplus"),
    "vgg16w8-cifar10": partial(VGG16, width=8),
    "cnn-gtsrb": SmallCNN,
    "vit-mnist": partial(VisionTransformer, in_channels=1, side=28, width=64, layers=4, heads=4),
    "vit-cifar10": partial(VisionTransformer, layers=4, stem=(48, 96)),
    "transformer-sentences": make_sentence_classifier,
    **SERIES,
}
models: Registry[Callable[[], nn.Module]] = Registry("model")
for _name, _architecture in _ARCHITECTURES.items():
    models.add(_name, _architecture)
# of SAFARI's Table 3
for _scheme in (
    "gradient",
    "gradient-hessian",
    "hessian",
    "pgd",
    "pgd-linf01",
    "plain",
):
    models.add(f"lenet5-mnist-{_scheme}", LeNet5)
    models.add(f"lenet5-tanh-mnist-{_scheme}", _TanhLeNet5)


class MissingWeightsError(StandfastError, FileNotFoundError):
    """The weights or the card of a known model are missing or damaged."""


def names() -> list[str]:
    """The names of all models, sorted.

    >>> names()
    ['bilstm-waves', ..., 'lenet5-fashion-mnist', ..., 'resnet20-cifar10', ..., 'vit-mnist']
    """
    return models.names()


def load(name: str, pretrained: bool = True) -> nn.Module:
    """A trained model in eval mode, on the CPU; its `card` describes its inputs and its accuracy.

    Names such as `"timm:vit_base_patch16_224"`, `"torchvision:resnet50"` and `"transformers:FOLDER"` belong to a hub
    (see `standfast.zoo.hub`). The global random state does not change.

    Args:
        name: of the model.
        pretrained: with its trained weights; otherwise random ones, always the same, which need no file and no network:
            to see what a study of this architecture would cost.

    Raises:
        UnknownNameError: a name that is not in `names()`.
        MissingWeightsError: the weights are missing or do not fit.

    >>> model = load("lenet5-mnist")
    >>> model(torch.zeros(1, 1, 28, 28)).shape
    torch.Size([1, 10])
    """
    # a colon alone may be one of a file
    if name.partition(":")[0] in HUBS and ":" in name:
        return from_hub(name, pretrained)
    architecture = models[name]
    content = _read(name, "safetensors") if pretrained else None
    # initial weights are drawn from the global random state, and then replaced
    with torch.random.fork_rng(devices=[]):
        if content is None:
            # the same weights each time, so that costs can be compared
            torch.manual_seed(0)
        module = architecture()
    if content is None:
        return module.eval()
    try:
        # float16 in the file becomes the float32 of the module
        module.load_state_dict(load_safetensors(content))
    except (SafetensorError, RuntimeError) as error:
        raise MissingWeightsError(
            f"model {name}: {name}.safetensors does not fit: {error}"
        ) from error
    return module.eval()


def card(name: str) -> dict[str, Any]:
    """The card of a bundled model: data, training scheme, seed, test accuracy, size, versions, licence.

    Raises:
        UnknownNameError: a name that is not in `names()`.
        MissingWeightsError: the card is missing or damaged.

    >>> card("lenet5-mnist")["parameters"]
    61706
    """
    # raises the error for an unknown name
    models[name]
    try:
        entries: dict[str, Any] = json.loads(_read(name, "json"))
    except ValueError as error:
        raise MissingWeightsError(f"model {name}: {name}.json is not JSON: {error}") from error
    return entries


def _read(name: str, suffix: str) -> bytes:
    file = files("standfast.zoo") / "weights" / f"{name}.{suffix}"
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise MissingWeightsError(
            f"model {name}: {file} is missing. A complete installation of standfast contains it. In a checkout, "
            "scripts/train_bundled.py writes it, scripts/train_series.py for the waves, or scripts/train_text.py."
        ) from error
