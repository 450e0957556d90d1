"""Data sets: the bundled samples, and loaders for sets on this computer or the network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.data.bundled import bundled, bundled_names
from holdfast.data.dataset import Dataset
from holdfast.data.mnist import fashion_mnist, mnist
from holdfast.data.root import MissingDataError, data_root
from holdfast.registry import Registry

__all__ = [
    "Dataset",
    "MissingDataError",
    "bundled",
    "bundled_names",
    "data_root",
    "fashion_mnist",
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


def names() -> list[str]:
    """The names that `load` knows, sorted.

    >>> names()
    ['digits', 'fashion_mnist:test', 'fashion_mnist:train', 'mnist:test', 'mnist:train']
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
