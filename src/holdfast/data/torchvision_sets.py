"""Data sets of torchvision, and any map-style data set of torch: pairs of a picture and a label.

By name, `torchvision:<class>:<split>`, they lie under `torchvision/` in `data_root()`, as torchvision lays them out.
Needs the extra `data`; what you have made yourself needs nothing.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.data.conversion import Size, chosen, collected, parsed, size_of
from holdfast.data.dataset import Dataset
from holdfast.data.root import VARIABLE, MissingDataError, data_root
from holdfast.errors import ArgumentError, MissingExtraError, UnknownNameError, check

PREFIX = "torchvision"
_FORM = "torchvision:<class>:<split>, as torchvision:GTSRB:test:size=32"


def from_torchvision(
    dataset: Any,
    *,
    name: str | None = None,
    size: Size | None = None,
    count: int | None = None,
    seed: int | None = None,
    classes: Sequence[str] | None = None,
    label: Callable[[Any], int | str] | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Dataset:
    """A torchvision data set, or any with `len()` whose entries are pairs of a picture (or tensor) and a label.

    Pictures become `(1 or 3, H, W)` in [0, 1], tensors are taken as they are. No normalisation belongs here: it is the
    model's (`Classifier(..., preprocess=...)`), so that radii are those of pixels.

    Args:
        dataset: such as `torchvision.datasets.CIFAR10(root, train=False)`.
        name: for reports; the class's name by default.
        size: resize to `(height, width)`, or to a square; needed where pictures differ in size.
        count: read so many samples; all by default. Only these are decoded.
        seed: draw them at random rather than from the start, where many sets hold one class.
        classes: names; by default what the data set says (`classes` or `categories`), or the numbers.
        label: makes a class of an entry's second part, where that is not one already: of CelebA's 40 attributes,
            `lambda attributes: int(attributes[31])` is whether somebody smiles.
        bounds: of the values.

    Raises:
        ArgumentError: the data set has no length, its entries are no pairs, or do not fit.

    >>> import torch
    >>> own = torch.utils.data.TensorDataset(torch.rand(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1]))
    >>> found = from_torchvision(own, count=3, size=4)
    >>> found.inputs.shape, found.labels.tolist(), found.classes
    (torch.Size([3, 1, 4, 4]), [0, 1, 2], ('0', '1', '2'))
    """
    what = type(dataset).__name__
    fine = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    check(fine, "dataset", "a data set with a length, whose entries are to be had by number", what)
    name = name or what
    pairs = (_pair(dataset[place], what, label) for place in chosen(len(dataset), count, seed, name))
    known = _classes(dataset) if classes is None and label is None else classes
    return collected(pairs, name, known, size, bounds)


def _pair(entry: Any, what: str, label: Callable[[Any], int | str] | None) -> tuple[Any, Any]:
    fine = isinstance(entry, tuple | list) and len(entry) == 2
    check(fine, "dataset", "entries that are pairs of a picture and a label", f"{type(entry).__name__} of {what}")
    value, target = entry
    return value, target if label is None else label(target)


def _classes(dataset: Any) -> tuple[str, ...] | None:
    for attribute in ("classes", "categories"):
        found = getattr(dataset, attribute, None)
        if isinstance(found, list | tuple) and found and all(isinstance(each, str | tuple) for each in found):
            # ImageNet names a class by several words
            return tuple(each if isinstance(each, str) else ", ".join(each) for each in found)
    return None


def load_of_torchvision(name: str, download: bool = False) -> Dataset:
    """The set that `"torchvision:<class>:<split>"` asks for, with options behind another colon.

    The split is what torchvision calls it ("train", "test", "val", ...); "all" where there is but one. Options: `size`,
    `count`, `seed` as of `from_torchvision`, and `label`, the name of an attribute of CelebA.
    `torchvision:ImageFolder:<folder>` takes a folder of folders, one for each class, under `torchvision/`.

    Raises:
        MissingExtraError: torchvision cannot be imported.
        UnknownNameError: it has no such class.
        ArgumentError: no such split or option; `from_torchvision` says the rest.
        MissingDataError: the files are not there, and were not to be or could not be downloaded.
    """
    known: dict[str, Callable[[str], Any]] = {"size": size_of, "count": int, "seed": int, "label": str}
    (_, kind, split), options = parsed(name, 3, known, _FORM)
    try:
        sets: Any = importlib.import_module("torchvision.datasets")
    except (ImportError, RuntimeError) as error:  # beside a torch it was not built for it raises the latter
        raise MissingExtraError(f"{name} (torchvision: {type(error).__name__}: {error})", "data") from error
    if kind not in sets.__all__:
        raise UnknownNameError("data set of torchvision", kind, sets.__all__)
    made = _made(getattr(sets, kind), kind, split, name, download)
    attribute = options.pop("label", None)
    if attribute is not None:
        names = list(getattr(made, "attr_names", []))
        if attribute not in names:
            raise UnknownNameError(f"attribute of {kind}", attribute, [each for each in names if each])
        place = names.index(attribute)
        options |= {"label": lambda target: int(target[place]), "classes": (f"not {attribute}", attribute)}
    return from_torchvision(made, name=":".join((PREFIX, kind, split)), **options)


def _made(kind: Any, called: str, split: str, name: str, download: bool) -> Any:
    """The data set of that class and split, by what the class's own arguments are."""
    taken = inspect.signature(kind).parameters
    root = data_root() / PREFIX
    arguments: dict[str, Any] = {"download": download} if "download" in taken else {}
    if called == "ImageFolder":
        check(".." not in split and not split.startswith("/"), "name", "a folder under torchvision/", repr(split))
        root = root / split
    elif "train" in taken:
        check(split in ("train", "test"), "split", f"train or test for {called}", repr(split))
        arguments["train"] = split == "train"
    elif "split" in taken:
        arguments["split"] = split
    else:
        check(split == "all", "split", f"all, since {called} has no splits", repr(split))
    if called == "ImageNet":  # the only ones that take their root for themselves
        root = root / "imagenet"
    try:
        return kind(str(root), **arguments)
    except ValueError as error:
        raise ArgumentError("split", f"one that {called} has", f"{split!r}: {error}") from error
    except (OSError, RuntimeError) as error:  # not there, not whole, no network
        hint = "" if download else f" Put the files there, set {VARIABLE}, or pass download=True."
        raise MissingDataError(f"{name}: not in {root}: {error}.{hint}") from error
