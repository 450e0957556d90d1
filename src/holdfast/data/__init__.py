"""Data sets: the bundled samples, and loaders for sets on this computer or the network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.data.bundled_digits import bundled, bundled_names
from holdfast.data.cifar import cifar10
from holdfast.data.cpsc_files import cpsc
from holdfast.data.dataset import Dataset
from holdfast.data.files import from_npz
from holdfast.data.gtsrb_files import gtsrb
from holdfast.data.huggingface import from_huggingface, load_of_huggingface
from holdfast.data.mnist_files import fashion_mnist, mnist
from holdfast.data.root import MissingDataError, data_root
from holdfast.data.torchvision_sets import from_torchvision, load_of_torchvision
from holdfast.data.ucr_archive import is_of_archive, load_of_archive, ucr
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
    "from_huggingface",
    "from_npz",
    "from_torchvision",
    "gtsrb",
    "is_known",
    "is_of_archive",
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
datasets.add("mnist:train", partial(mnist, "train"))
datasets.add("mnist:test", partial(mnist, "test"))
datasets.add("fashion_mnist:train", partial(fashion_mnist, "train"))
datasets.add("fashion_mnist:test", partial(fashion_mnist, "test"))
datasets.add("cifar10:train", partial(cifar10, "train"))
datasets.add("cifar10:test", partial(cifar10, "test"))
datasets.add("gtsrb:train", partial(gtsrb, "train"))
datasets.add("gtsrb:test", partial(gtsrb, "test"))
datasets.add("cpsc:train", partial(cpsc, "train"))
datasets.add("cpsc:test", partial(cpsc, "test"))


def _waves(name: str, split: str, download: bool) -> Dataset:
    return named_waves(name, split)


for _name in NOISES:
    for _split in ("train", "test"):
        datasets.add(f"{_name}:{_split}", partial(_waves, _name, _split))


def names() -> list[str]:
    """The names that `load` knows, sorted; beside them, those of archives and hubs (see `load`).

    >>> names()
    ['cifar10:test', 'cifar10:train', 'cpsc:test', 'cpsc:train', 'digits', 'fashion_mnist:test', ...]
    """
    return datasets.names()


def is_known(name: str) -> bool:
    """Whether `load` takes that name: it is one of `names()`, or has the form of one of an archive or a hub.

    >>> is_known("digits"), is_known("torchvision:CIFAR10:test"), is_known("digit")
    (True, True, False)
    """
    prefix, colon, _ = name.partition(":")
    return name in datasets or bool(colon and prefix in _ELSEWHERE)


def prefixes() -> list[str]:
    """What names of archives and hubs begin with, before a colon.

    >>> prefixes()
    ['ucr', 'huggingface', 'torchvision']
    """
    return list(_ELSEWHERE)


#: what has names of its own, which cannot be listed
_ELSEWHERE: dict[str, Callable[[str, bool], Dataset]] = {
    "ucr": load_of_archive,
    "huggingface": load_of_huggingface,
    "torchvision": load_of_torchvision,
}


def load(name: str, *, download: bool = False) -> Dataset:
    """A data set by its name, such as "digits" or "mnist:test"; with `download`, fetched when it is missing.

    A name such as "ucr:GunPoint:train" is of the UCR and UEA archives (see `ucr`), "huggingface:ylecun/mnist:test" of
    the Hugging Face hub (`load_of_huggingface`), "torchvision:GTSRB:test:size=32" of torchvision
    (`load_of_torchvision`).

    Raises `UnknownNameError` for a name that is not in `names()`, `MissingDataError` when its files are
    missing, `MissingExtraError` when they could only come through a package that is not installed.

    >>> load("digits").inputs.shape
    torch.Size([300, 1, 28, 28])
    """
    prefix, colon, _ = name.partition(":")
    if colon and prefix in _ELSEWHERE:
        return _ELSEWHERE[prefix](name, download)
    return datasets[name](download)
