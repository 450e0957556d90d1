"""Data sets: the bundled samples, and loaders for sets that are on this computer or can be downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from standfast.data.bundled_samples import bundled, bundled_names
from standfast.data.cifar import cifar10
from standfast.data.cpsc_files import cpsc
from standfast.data.dataset import Dataset
from standfast.data.files import from_csv, from_npz, from_series
from standfast.data.gtsrb_files import gtsrb
from standfast.data.huggingface import from_huggingface, load_from_hub
from standfast.data.mnist_files import fashion_mnist, mnist
from standfast.data.root import MissingDataError, data_root
from standfast.data.sentence_files import WordVectors, movie_sentences, word_vectors
from standfast.data.torchvision_sets import from_torchvision, load_from_torchvision
from standfast.data.ucr_archive import is_archive_name, load_from_archive, ucr
from standfast.data.waves import NOISES, named_waves, synthetic_waves
from standfast.registry import Registry

__all__ = [
    "Dataset",
    "MissingDataError",
    "WordVectors",
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
    "from_series",
    "from_torchvision",
    "gtsrb",
    "is_archive_name",
    "is_known",
    "load",
    "mnist",
    "movie_sentences",
    "names",
    "prefixes",
    "synthetic_waves",
    "ucr",
    "word_vectors",
]

datasets: Registry[Callable[[bool], Dataset]] = Registry(
    "data set",
    "standfast.data",
    callable,  # download -> data set
)
datasets.add("mnist:train", partial(mnist, "train"))
datasets.add("mnist:test", partial(mnist, "test"))
datasets.add("fashion_mnist:train", partial(fashion_mnist, "train"))
datasets.add("fashion_mnist:test", partial(fashion_mnist, "test"))
datasets.add("cifar10:train", partial(cifar10, "train"))
datasets.add("cifar10:test", partial(cifar10, "test"))
datasets.add("gtsrb:train", partial(gtsrb, "train"))
datasets.add("gtsrb:test", partial(gtsrb, "test"))
datasets.add("movie_sentences:train", partial(movie_sentences, "train"))
datasets.add("movie_sentences:test", partial(movie_sentences, "test"))
datasets.add("cpsc:train", partial(cpsc, "train"))
datasets.add("cpsc:test", partial(cpsc, "test"))


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


def _waves(name: str, split: str, download: bool) -> Dataset:
    """Made-up series, classified by two known blocks: inputs (N, 4, 500), N = 6,000 ("train") or 1,500 ("test")."""
    return named_waves(name, split)


datasets.add("digits", _digits)
datasets.add("sentences", _sentences)
datasets.add("digits32", _digits32)
datasets.add("mnist32:train", partial(_mnist32, "train"))
datasets.add("mnist32:test", partial(_mnist32, "test"))
for _name in NOISES:
    for _split in ("train", "test"):
        datasets.add(f"{_name}:{_split}", partial(_waves, _name, _split))


def names() -> list[str]:
    """The names that `load` accepts, sorted, without the names of archives and hubs.

    >>> names()
    ['cifar10:test', 'cifar10:train', 'cpsc:test', 'cpsc:train', 'digits', 'digits32', ...]
    """
    return datasets.names()


def what_it_needs(name: str) -> str:
    """What `load(name)` needs that does not come with standfast, in a few words; empty if nothing.

    >>> what_it_needs("digits"), what_it_needs("mnist:test")
    ('', 'its files, or download')
    """
    known = {"mnist", "mnist32", "fashion_mnist", "cifar10", "gtsrb", "movie_sentences"}
    source = name.partition(":")[0]
    return _FILES if source in known else f"{_FILES}; the extra data" if source == "cpsc" else ""


_FILES = "its files, or download"


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
