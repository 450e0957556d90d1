"""Data sets: the bundled samples, and loaders for sets on this computer or the network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.data.bundled import bundled, bundled_names
from holdfast.data.cifar import cifar10
from holdfast.data.cpsc import cpsc
from holdfast.data.dataset import Dataset
from holdfast.data.gtsrb import gtsrb
from holdfast.data.mnist import fashion_mnist, mnist
from holdfast.data.root import MissingDataError, data_root
from holdfast.data.ucr import is_of_archive, load_of_archive, ucr
from holdfast.data.waves import NOISES, named_waves, synthetic_waves
from holdfast.registry import Registry

__all__ = [
    "Dataset",
    "MissingDataError",
    "bundled",
    "bundled_names",
    "cifar10",
    "cpsc",
    "data_root",
    "fashion_mnist",
    "gtsrb",
    "is_of_archive",
    "load",
    "mnist",
    "names",
    "synthetic_waves",
    "ucr",
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
_datasets.add("cpsc:train", partial(cpsc, "train"))
_datasets.add("cpsc:test", partial(cpsc, "test"))


def _waves(name: str, split: str, download: bool) -> Dataset:
    return named_waves(name, split)


for _name in NOISES:
    for _split in ("train", "test"):
        _datasets.add(f"{_name}:{_split}", partial(_waves, _name, _split))


def names() -> list[str]:
    """The names that `load` knows, sorted; beside them, all "ucr:<name>:train" and "ucr:<name>:test" of the archives.

    >>> names()
    ['cifar10:test', 'cifar10:train', 'cpsc:test', 'cpsc:train', 'digits', 'fashion_mnist:test', ...]
    """
    return _datasets.names()


def load(name: str, *, download: bool = False) -> Dataset:
    """A data set by its name, such as "digits" or "mnist:test"; with `download`, fetched when it is missing.

    A name such as "ucr:GunPoint:train" is of the UCR and UEA archives (see `ucr`).

    Raises `UnknownNameError` for a name that is not in `names()`, `MissingDataError` when its files are
    missing, `MissingExtraError` when they could only come through a package that is not installed.

    >>> load("digits").inputs.shape
    torch.Size([300, 1, 28, 28])
    """
    if is_of_archive(name):
        return load_of_archive(name, download)
    return _datasets[name](download)
