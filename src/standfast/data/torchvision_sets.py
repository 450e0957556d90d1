"""Data sets of torchvision, and any map-style data set of torch: pairs of a picture and a label.

The name `torchvision:<class>:<split>` stands for files under `torchvision/` in `data_root()`, in torchvision's layout.
Names need the extra `data`; `from_torchvision` does not.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from standfast.data.conversion import Size, choose_samples, collect, parse_name, parse_size
from standfast.data.dataset import Dataset
from standfast.data.root import VARIABLE, MissingDataError, data_root
from standfast.errors import ArgumentError, MissingExtraError, UnknownNameError, check
from standfast.tensors import Bound

PREFIX = "torchvision"
_FORM = "torchvision:<class>:<split>, such as torchvision:GTSRB:test:size=32"


def from_torchvision(
    dataset: Any,
    *,
    name: str | None = None,
    size: Size | None = None,
    count: int | None = None,
    seed: int | None = None,
    classes: Sequence[str] | None = None,
    label: Callable[[Any], int | str] | None = None,
    bounds: tuple[Bound, Bound] = (0.0, 1.0),
) -> Dataset:
    """Make a data set from a torchvision data set, or any with `len()` whose entries are pairs of an input and a label.

    Pictures become `(1 or 3, H, W)` in [0, 1]; tensors keep their values and shape. Do not normalise here: pass the
    normalisation to `Model(..., preprocess=...)`, so that radii have the unit of pixel values.

    Args:
        dataset: for example `torchvision.datasets.CIFAR10(root, train=False)`.
        name: name of the data set, for reports; by default the name of the class.
        size: resize to `(height, width)`, or to a square; needed if pictures differ in size.
        count: how many samples to read and decode; all by default.
        seed: seed to draw the samples at random; by default the first ones are read, which are often of one class.
        classes: names of the classes; by default those of the data set (`classes` or `categories`), or the numbers.
        label: a function that makes a class from the second part of an entry, if that is not a class. For CelebA's 40
            attributes, `lambda attributes: int(attributes[31])` tells whether the person smiles.
        bounds: range of the input values.

    Raises:
        ArgumentError: the data set has no length, an entry is not a pair, or an input or label is invalid.

    >>> import torch
    >>> own = torch.utils.data.TensorDataset(torch.rand(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1]))
    >>> found = from_torchvision(own, count=3, size=4)
    >>> found.inputs.shape, found.labels.tolist(), found.classes
    (torch.Size([3, 1, 4, 4]), [0, 1, 2], ('0', '1', '2'))
    """
    what = type(dataset).__name__
    fine = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    check(fine, "dataset", "a data set with a length and indexing by number", what)
    name = name or what
    pairs = (_check_pair(dataset[index], what, label) for index in choose_samples(len(dataset), count, seed, name))
    known = _find_classes(dataset) if classes is None and label is None else classes
    return collect(pairs, name, known, size, bounds)


def _check_pair(entry: Any, what: str, label: Callable[[Any], int | str] | None) -> tuple[Any, Any]:
    fine = isinstance(entry, tuple | list) and len(entry) == 2
    check(fine, "dataset", "entries that are pairs of a picture and a label", f"{type(entry).__name__} of {what}")
    value, target = entry
    return value, target if label is None else label(target)


def _find_classes(dataset: Any) -> tuple[str, ...] | None:
    for attribute in ("classes", "categories"):
        found = getattr(dataset, attribute, None)
        if isinstance(found, list | tuple) and found and all(isinstance(each, str | tuple) for each in found):
            # a class of ImageNet has several names
            return tuple(each if isinstance(each, str) else ", ".join(each) for each in found)
    return None


def load_from_torchvision(name: str, download: bool = False) -> Dataset:
    """Load the data set with the name `"torchvision:<class>:<split>"`; options may follow after another colon.

    The split has torchvision's name ("train", "test", "val", ...), or "all" for a set without splits. The options are
    `size`, `count`, `seed`, as in `from_torchvision`, and `label`, the name of an attribute of CelebA.
    `torchvision:ImageFolder:<folder>` reads a folder under `torchvision/` that has one subfolder for each class.

    Raises:
        MissingExtraError: torchvision cannot be imported.
        UnknownNameError: torchvision has no such class.
        ArgumentError: there is no such split or option, or `from_torchvision` raises it.
        MissingDataError: the files are missing, and `download` is False or the download failed.
    """
    known: dict[str, Callable[[str], Any]] = {"size": parse_size, "count": int, "seed": int, "label": str}
    (_, kind, split), options = parse_name(name, 3, known, _FORM)
    try:
        sets: Any = importlib.import_module("torchvision.datasets")
    except (ImportError, RuntimeError) as error:  # RuntimeError: it was built for another version of torch
        raise MissingExtraError(f"{name} (torchvision: {type(error).__name__}: {error})", "data") from error
    if kind not in sets.__all__:
        raise UnknownNameError("data set of torchvision", kind, sets.__all__)
    found = _make(getattr(sets, kind), kind, split, name, download)
    attribute = options.pop("label", None)
    if attribute is not None:
        names = list(getattr(found, "attr_names", []))
        if attribute not in names:
            raise UnknownNameError(f"attribute of {kind}", attribute, [each for each in names if each])
        column = names.index(attribute)
        options |= {"label": lambda target: int(target[column]), "classes": (f"not {attribute}", attribute)}
    return from_torchvision(found, name=":".join((PREFIX, kind, split)), **options)


def _make(kind: Any, class_name: str, split: str, name: str, download: bool) -> Any:
    """Make torchvision's data set of that class and split, with the arguments that the class accepts."""
    accepted = inspect.signature(kind).parameters
    root = data_root() / PREFIX
    arguments: dict[str, Any] = {"download": download} if "download" in accepted else {}
    if class_name == "ImageFolder":
        check(".." not in split and not split.startswith("/"), "name", "a folder under torchvision/", repr(split))
        root = root / split
    elif "train" in accepted:
        check(split in ("train", "test"), "split", f"train or test for {class_name}", repr(split))
        arguments["train"] = split == "train"
    elif "split" in accepted:
        arguments["split"] = split
    else:
        check(split == "all", "split", f"all, since {class_name} has no splits", repr(split))
    if class_name == "ImageNet":  # only this class makes no subfolder in the root
        root = root / "imagenet"
    try:
        return kind(str(root), **arguments)
    except ValueError as error:
        raise ArgumentError("split", f"a split of {class_name}", f"{split!r}: {error}") from error
    except (OSError, RuntimeError) as error:  # missing or incomplete files, or no network
        hint = "" if download else f" Put the files there, set {VARIABLE}, or pass download=True."
        raise MissingDataError(f"{name}: not in {root}: {error}.{hint}") from error
