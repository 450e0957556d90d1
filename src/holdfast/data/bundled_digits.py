"""Small samples of real data that are part of the package."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import torch

from holdfast.data.dataset import Dataset
from holdfast.errors import UnknownNameError

ASSETS = {"digits": "digits.npz"}


def bundled_names() -> list[str]:
    """The names that `bundled` accepts, sorted.

    >>> bundled_names()
    ['digits']
    """
    return sorted(ASSETS)


def bundled(name: str) -> Dataset:
    """Load a sample of real data from the package; nothing is downloaded.

    "digits": the first 30 digits of each class of the MNIST test set; inputs (300, 1, 28, 28) in [0, 1]. Every ten
    samples, from the start, contain each class once, in the order 0 to 9.

    Raises:
        UnknownNameError: the name is not in `bundled_names()`.

    >>> digits = bundled("digits")
    >>> digits[:10].labels.tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    if name not in ASSETS:
        raise UnknownNameError("bundled data set", name, ASSETS)
    with (files("holdfast.data") / "assets" / ASSETS[name]).open("rb") as file, np.load(file) as stored:
        inputs = torch.from_numpy(stored["inputs"]).to(torch.float32).div_(255)
        labels = torch.from_numpy(stored["labels"]).to(torch.int64)
        classes = tuple(str(label) for label in stored["classes"])
    return Dataset(name, inputs, labels, classes)
