"""Data sets: the bundled samples, and loaders for sets that are on this computer or can be downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from standfast.data.bundled_samples import bundled, film_reviews
from standfast.data.dataset import Dataset
from standfast.data.hubs import load_from_hub, load_from_torchvision
from standfast.data.image_sets import cifar10, fashion_mnist, gtsrb, mnist
from standfast.data.root import MissingDataError, data_root
from standfast.data.samples import from_samples
from standfast.data.sentence_files import WordVectors, word_vectors
from standfast.data.ucr_archive import load_from_archive, ucr
from standfast.data.user_files import from_file
from standfast.data.waves import NOISES, named_waves, synthetic_waves
from standfast.registry import Registry

__all__ = [
    "Dataset",
    "MissingDataError",
    "WordVectors",
    "bundled",
    "cifar10",
    "data_root",
    "datasets",
    "fashion_mnist",
    "film_reviews",
    "from_file",
    "from_samples",
    "gtsrb",
    "load",
    "mnist",
    "names",
    "synthetic_waves",
    "ucr",
    "word_vectors",
]

datasets: Registry[Callable[[bool], Dataset]] = Registry(
    "data set",
    "standfast.data",
    callable,  # download -> data set
)


def _digits(download: bool) -> Dataset:
    """300 handwritten digits of the MNIST test set, 30 of each class: inputs (300, 1, 28, 28) in [0, 1]."""
    return bundled("digits")


def _sentences(download: bool) -> Dataset:
    """200 sentences of film reviews as word vectors: inputs (200, 32, 24) in [-1, 1]."""
    return bundled("sentences")


def _digits32(download: bool) -> Dataset:
    """The same 300 digits with a border of zeros: inputs (300, 1, 32, 32) in [0, 1]."""
    return replace(bundled("digits").pad(2), name="digits32")


def _mnist32(split: str, download: bool) -> Dataset:
    """MNIST with a border of zeros: inputs (N, 1, 32, 32) in [0, 1], N = 60,000 ("train") or 10,000 ("test")."""
    return replace(mnist(split, download).pad(2), name=f"mnist32:{split}")


datasets.add("digits", _digits)
datasets.add("sentences", _sentences)
datasets.add("digits32", _digits32)
_SPLIT: dict[str, Callable[[str, bool], Dataset]] = {
    "mnist": mnist,
    "mnist32": _mnist32,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "gtsrb": gtsrb,
    **{name: partial(named_waves, name) for name in NOISES},
}
# private names, since a loop at the top leaves them in the module
for _name, _load in _SPLIT.items():
    for _split in ("train", "test"):
        datasets.add(f"{_name}:{_split}", partial(_load, _split))


def names() -> list[str]:
    """The names that `load` accepts, sorted, without the names of archives and hubs.

    >>> names()
    ['cifar10:test', 'cifar10:train', 'digits', 'digits32', ...]
    """
    return datasets.names()


#: archives and hubs by the beginning of their names, which cannot be listed
ARCHIVES: dict[str, Callable[[str, bool], Dataset]] = {
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
    # archives and hubs cannot be listed, so they are no entries of the registry
    prefix, colon, _ = name.partition(":")
    if colon and prefix in ARCHIVES:
        return ARCHIVES[prefix](name, download)
    return datasets[name](download)
