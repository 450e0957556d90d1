"""Data sets of torchvision and of the Hugging Face hub, by name. They need the extra `data`.

The name `torchvision:<class>:<split>` stands for files under `torchvision/` in `data_root()`, in torchvision's layout.
The name `huggingface:<name>:<split>` stands for the folder `huggingface/<name>/<split>/` under `data_root()`, in the
format of `save_to_disk`. Options may follow after another colon:

- `size`: resize pictures to `32`, a square, or `32x48`, height x width.
- `count`, `seed`: so many samples from the start or, with a seed, drawn at random.
- `image`, `label`, `config`, of Hugging Face only: the columns of inputs and labels, and the set's configuration.
"""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from standfast.data.dataset import Dataset
from standfast.data.root import VARIABLE, MissingDataError, data_root
from standfast.data.samples import from_samples
from standfast.errors import (
    ArgumentError,
    MissingExtraError,
    UnknownNameError,
    check,
    check_integer,
)
from standfast.registry import parse_options

#: the options of a name
_OPTIONS = ("size", "count", "seed")
_COLUMNS = ("image", "label", "config")


def load_from_torchvision(name: str, download: bool = False) -> Dataset:
    """Load the data set with the name `"torchvision:<class>:<split>"` or `"torchvision:<class>:<split>:<options>"`.

    The split has torchvision's name ("train", "test", "val", ...), or "all" for a set without splits.
    `torchvision:ImageFolder:<folder>` reads a folder under `torchvision/` that has one subfolder for each class.

    Raises:
        MissingExtraError: torchvision cannot be imported.
        UnknownNameError: torchvision has no such class.
        ArgumentError: there is no such split or option, or `from_samples` raises it.
        MissingDataError: the files are missing, and `download` is False or the download failed.
    """
    form = "torchvision:<class>:<split>, such as torchvision:GTSRB:test:size=32"
    kind, split, options = _parse_name(name, form, _OPTIONS)
    try:
        sets: Any = importlib.import_module("torchvision.datasets")
    except (
        ImportError,
        RuntimeError,
    ) as error:
        # RuntimeError: it was built for another version of torch
        raise MissingExtraError(
            f"{name} (torchvision: {type(error).__name__}: {error})", "data"
        ) from error
    # a class of another name could be anything that this module imports
    if kind not in sets.__all__:
        raise UnknownNameError("data set of torchvision", kind, sets.__all__)
    samples = _make(getattr(sets, kind), split, name, download)
    return _take(samples, f"torchvision:{kind}:{split}", options)


def _make(kind: Any, split: str, name: str, download: bool) -> Any:
    """Make torchvision's data set of that class and split, with the arguments that the class accepts."""
    accepted = inspect.signature(kind).parameters
    title = kind.__name__
    root = data_root() / "torchvision"
    # classes of torchvision say the split in one of three ways
    arguments: dict[str, Any] = {"download": download} if "download" in accepted else {}
    if title == "ImageFolder":
        check(
            ".." not in split and not split.startswith("/"),
            "name",
            "a folder under torchvision/",
            repr(split),
        )
        root = root / split
    elif "train" in accepted:
        check(split in ("train", "test"), "split", f"train or test for {title}", repr(split))
        arguments["train"] = split == "train"
    elif "split" in accepted:
        arguments["split"] = split
    else:
        check(split == "all", "split", f"all, since {title} has no splits", repr(split))
    if title == "ImageNet":  # only this class makes no subfolder in the root
        root = root / "imagenet"
    try:
        return kind(str(root), **arguments)
    except ValueError as error:
        # torchvision names a wrong split by this error
        raise ArgumentError("split", f"a split of {title}", f"{split!r}: {error}") from error
    except (OSError, RuntimeError) as error:  # missing or incomplete files, or no network
        if download:
            hint = ""
        else:
            hint = f" Put the files there, set {VARIABLE}, or pass download=True."
        raise MissingDataError(f"{name}: not in {root}: {error}.{hint}") from error


def load_from_hub(name: str, download: bool = False) -> Dataset:
    """Load the data set with the name `"huggingface:<name>:<split>"` or `"huggingface:<name>:<split>:<options>"`.

    Downloads of `datasets` are stored under `huggingface/` in `data_root()` and are later read from there, without a
    network. Code that is part of a data set is not run.

    Raises:
        MissingExtraError: `datasets` is not installed.
        ArgumentError: the name is malformed, or `from_samples` raises it.
        MissingDataError: the data set is not on this computer, and `download` is False or the download failed.
    """
    form = "huggingface:<name>:<split>, such as huggingface:ylecun/mnist:test:count=100"
    repository, split, options = _parse_name(name, form, (*_OPTIONS, *_COLUMNS))
    config = options.pop("config", None)
    parts = [repository, split]
    if config:
        parts.append(config)
    for part in parts:
        # the parts become folders, and must not lead out of the root
        fits = re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", part) is not None and ".." not in part
        check(
            fits,
            "name",
            "letters, digits and . _ - in names, splits and configurations",
            repr(part),
        )
    folder = data_root() / "huggingface" / repository / (config or "") / split
    try:
        # a large package, which is needed for these names alone
        package: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise MissingExtraError(f"{name} through datasets ({error})", "data") from error
    if not folder.is_dir():
        if not download:
            raise MissingDataError(
                f"{name}: there is no {folder}. Save the split there with its save_to_disk, set {VARIABLE} to the"
                " folder that contains huggingface/, or pass download=True."
            )
        _download(package, repository, config, split, folder)
    try:
        samples = package.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError) as error:
        expected = "a split in the format of save_to_disk"
        raise ArgumentError(str(folder), expected, f"{type(error).__name__}: {error}") from error
    options["columns"] = options.pop("image", None), options.pop("label", None)
    return _take(samples, f"huggingface:{repository}:{split}", options)


def _download(package: Any, repository: str, config: str | None, split: str, folder: Path) -> None:
    """Download a split; the folder appears only when it is complete."""
    try:
        samples = package.load_dataset(repository, config, split=split)
    except Exception as error:  # the hub, the package and the network raise many kinds of errors
        words = " ".join(str(error).split())
        message = f"{type(error).__name__}: {words}"
        raise MissingDataError(
            f"huggingface:{repository}:{split}: could not be downloaded: {message}"
        ) from error
    folder.parent.mkdir(parents=True, exist_ok=True)
    # beside the folder, as a rename within one file system is a single step
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{split}."))
    try:
        samples.save_to_disk(str(part))
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _parse_name(
    name: str, form: str, option_names: Sequence[str]
) -> tuple[str, str, dict[str, Any]]:
    """The second and the third part of a name such as `"torchvision:GTSRB:test:size=32,count=10"`, and its options.

    `form` describes a valid name in messages.
    """
    pieces = name.split(":", 3)
    check(len(pieces) >= 3 and all(pieces[:3]), "name", form, repr(name))
    text_of_options = pieces[3] if len(pieces) > 3 else ""
    options = parse_options(text_of_options, "name")
    for option, value in options.items():
        expected = f"options {', '.join(option_names)}, such as size=32,count=100"
        check(option in option_names, "name", expected, repr(option))
        if option in ("count", "seed"):
            check_integer(value, option, 0)
        elif option == "size" and (sides := re.fullmatch(r"(\d+)x(\d+)", str(value))):
            options[option] = int(sides[1]), int(sides[2])
        elif option in _COLUMNS:
            options[option] = str(value)
    return pieces[1], pieces[2], options


def _take(samples: Any, name: str, options: dict[str, Any]) -> Dataset:
    """The samples that the options of a name ask for."""
    seed = options.pop("seed", None)
    # without a seed the first samples, in the order of the set
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(samples), generator=generator).tolist()
        # of Hugging Face; others are indexed
        has_select = hasattr(samples, "select")
        if has_select:
            samples = samples.select(order)
        else:
            samples = torch.utils.data.Subset(samples, order)
    return from_samples(samples, name=name, **options)
