"""Data sets: the bundled samples, and loaders for sets that are on this computer or can be downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from holdfast.data.bundled_digits import bundled, bundled_names
from holdfast.data.cifar import cifar10
from holdfast.data.cpsc_files import cpsc
from holdfast.data.dataset import Dataset
from holdfast.data.files import from_csv, from_npz
from holdfast.data.gtsrb_files import gtsrb
from holdfast.data.huggingface import from_huggingface, load_from_hub
from holdfast.data.mnist_files import fashion_mnist, mnist
from holdfast.data.root import MissingDataError, data_root
from holdfast.data.torchvision_sets import from_torchvision, load_from_torchvision
from holdfast.data.ucr_archive import is_archive_name, load_from_archive, ucr
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
    "datasets",
    "fashion_mnist",
    "from_csv",
    "from_huggingface",
    "from_npz",
    "from_torchvision",
    "gtsrb",
    "is_archive_name",
    "is_known",
    "load",
    "mnist",
    "names",
    "prefixes",
    "synthetic_waves",
    "ucr",
]

datasets: Registry[Callable[[bool], Dataset]] = Registry(
    "data set",
    "holdfast.data",
    callable,  # download -> data set
)
datasets.add("digits", lambda download: bundled("digits"))
datasets.add("digits32", lambda download: _extend("digits32", bundled("digits")))
datasets.add("mnist:train", partial(mnist, "train"))
datasets.add("mnist:test", partial(mnist, "test"))
datasets.add("mnist32:train", lambda download: _extend("mnist32:train", mnist("train", download)))
datasets.add("mnist32:test", lambda download: _extend("mnist32:test", mnist("test", download)))
datasets.add("fashion_mnist:train", partial(fashion_mnist, "train"))
datasets.add("fashion_mnist:test", partial(fashion_mnist, "test"))
datasets.add("cifar10:train", partial(cifar10, "train"))
datasets.add("cifar10:test", partial(cifar10, "test"))
datasets.add("gtsrb:train", partial(gtsrb, "train"))
datasets.add("gtsrb:test", partial(gtsrb, "test"))
datasets.add("cpsc:train", partial(cpsc, "train"))
datasets.add("cpsc:test", partial(cpsc, "test"))


def _extend(name: str, images: Dataset) -> Dataset:
    """Images of 28x28 pixels with a border of zeros, at 32x32 pixels."""
    return replace(images.pad(2), name=name)


def _waves(name: str, split: str, download: bool) -> Dataset:
    return named_waves(name, split)


for _name in NOISES:
    for _split in ("train", "test"):
        datasets.add(f"{_name}:{_split}", partial(_waves, _name, _split))


def names() -> list[str]:
    """The names that `load` accepts, sorted, without the names of archives and hubs.

    >>> names()
    ['cifar10:test', 'cifar10:train', 'cpsc:test', 'cpsc:train', 'digits', 'digits32', ...]
    """
    return datasets.names()


def is_known(name: str) -> bool:
    """Whether `load` accepts the name: it is one of `names()`, or has the form of a name of an archive or a hub.

    >>> is_known("digits"), is_known("torchvision:CIFAR10:test"), is_known("digit")
    (True, True, False)
    """
    prefix, colon, _ = name.partition(":")
    return name in datasets or bool(colon and prefix in _ARCHIVES)


def prefixes() -> list[str]:
    """The prefixes of the names of archives and hubs; a colon follows them.

    >>> prefixes()
    ['ucr', 'huggingface', 'torchvision']
    """
    return list(_ARCHIVES)


#: archives and hubs; their names cannot be listed
_ARCHIVES: dict[str, Callable[[str, bool], Dataset]] = {
    "ucr": load_from_archive,
    "huggingface": load_from_hub,
    "torchvision": load_from_torchvision,
}


def load(name: str, *, download: bool = False) -> Dataset:
    """Load a data set by its name, such as "digits" or "mnist:test".

    Archives and hubs have names with a prefix: "ucr:GunPoint:train" for the UCR and UEA archives (`ucr`),
    "huggingface:ylecun/mnist:test" for the Hugging Face hub (`load_from_hub`), "torchvision:GTSRB:test:size=32" for
    torchvision (`load_from_torchvision`).

    Args:
        name: the name of the data set.
        download: download the files if they are missing.

    Raises:
        UnknownNameError: the name is not in `names()`.
        MissingDataError: the files are missing.
        MissingExtraError: loading needs a package that is not installed.

    >>> load("digits").inputs.shape
    torch.Size([300, 1, 28, 28])
    """
    prefix, colon, _ = name.partition(":")
    if colon and prefix in _ARCHIVES:
        return _ARCHIVES[prefix](name, download)
    return datasets[name](download)
