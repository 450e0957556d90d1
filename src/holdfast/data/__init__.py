"""Data sets: the bundled samples, and loaders for sets on this computer or the network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.data.bundled import bundled, bundled_names
from holdfast.data.cifar import cifar10
from holdfast.data.dataset import Dataset
from holdfast.data.gtsrb import gtsrb
from holdfast.data.mnist import fashion_mnist, mnist
from holdfast.data.root import MissingDataError, data_root
from holdfast.registry import Registry

__all__ = [
    "Dataset",
    "MissingDataError",
    "bundled",
    "bundled_names",
    "cifar10",
    "data_root",
    "fashion_mnist",
    "gtsrb",
    "load",
    "mnist",
    "names",
]

_datasets: Registry[Callable[[bool], Dataset]] = Registry("data set", "holdfast.data")  # download -> data set
_datasets.add("digits", lambda download: bundled("digits"))
_datasets.add("mnist:train", partial(mnist, "train"))
_datasets.add("mnist:test", partial(mnist, "test"))
_datasets.add("fashion_mnist:train", partial(fashion_mnist, "train"))
_datasets.add("fashion_mnist:test", partial(fashion_mnist, "test"))
_datasets.add("cifar10:train", partial(cifar10, "train"))
_datasets.add("cifar10:test", partial(cifar10, "test"))
_datasets.add("gtsrb:train", partial(gtsrb, "train"))
_datasets.add("gtsrb:test", partial(gtsrb, "test"))


def names() -> list[str]:
    """The names that `load` knows, sorted.

    >>> names()
    ['cifar10:test', 'cifar10:train', 'digits', 'fashion_mnist:test', 'fashion_mnist:train', 'gtsrb:test', ...]
    """
    return _datasets.names()


def load(name: str, *, download: bool = False) -> Dataset:
    """A data set by its name, such as "digits" or "mnist:test"; with `download`, fetched when it is missing.

    Raises `UnknownNameError` for a name that is not in `names()`, `MissingDataError` when its files are
    missing.

    >>> load("digits").inputs.shape
    torch.Size([300, 1, 28, 28])
    """
    return _datasets[name](download)
