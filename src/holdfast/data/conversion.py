"""Samples from elsewhere, one at a time, as a data set: pictures of Pillow, tensors and arrays, and their labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.data.dataset import Dataset
from holdfast.errors import ArgumentError, check

Size = int | tuple[int, int]


def collected(
    pairs: Iterable[tuple[Any, Any]],
    name: str,
    classes: Sequence[str] | None = None,
    size: Size | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Dataset:
    """A data set of pairs of a picture, tensor or array, and a label.

    Args:
        pairs: of which each is read once.
        name: of the data set.
        classes: their names; by default the labels themselves: texts in their order, or numbers from 0 to the largest.
        size: resize pictures to `(height, width)`, or to a square; pictures are `(C, H, W)`.
        bounds: of the values.

    Raises:
        ArgumentError: nothing in it; inputs of several shapes; labels that are neither whole numbers nor texts, or that
            name no class; values outside `bounds`.

    >>> collected([(np.zeros((1, 2), np.uint8), "no"), (torch.ones(1, 2), "yes")], "two").classes
    ('no', 'yes')
    """
    inputs: list[Tensor] = []
    labels: list[Any] = []
    for value, label in pairs:
        inputs.append(as_input(value, size))
        labels.append(_plain(label))
        if inputs[-1].shape != inputs[0].shape:
            shapes = f"{tuple(inputs[0].shape)} (sample 0) and {tuple(inputs[-1].shape)} (sample {len(inputs) - 1})"
            raise ArgumentError(name, "inputs of one shape; or size=(height, width), which resizes pictures", shapes)
    check(len(inputs) > 0, name, "at least one sample", "none")
    targets, known = _labels(labels, name, classes)
    return Dataset(name, torch.stack(inputs), targets, known, bounds)


def as_input(value: Any, size: Size | None = None) -> Tensor:
    """A picture of Pillow as `(1 or 3, height, width)` in [0, 1]; an array or a tensor as it is laid out, in float32.

    Whole numbers of 8 bits are divided by 255. A picture with a palette or with transparency becomes RGB, and the
    transparency is dropped.

    Args:
        value: the picture, array, tensor, or nested lists of numbers.
        size: resize to it; the last two axes of a tensor.
    """
    if hasattr(value, "convert") and hasattr(value, "mode"):  # a picture of Pillow
        picture = from_pillow(value)
    else:
        try:
            tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ArgumentError(
                "input", "a picture, a tensor, or numbers", f"{type(value).__name__}: {error}"
            ) from error
        check(tensor.ndim >= 1 and not tensor.is_complex(), "input", "numbers of one axis or more", tuple(tensor.shape))
        picture = tensor.to(torch.float32) / 255 if tensor.dtype == torch.uint8 else tensor.to(torch.float32)
    return picture if size is None else resized(picture, size)


def from_pillow(picture: Any) -> Tensor:
    """A picture of Pillow as `(1 or 3, height, width)` in [0, 1]."""
    if str(picture.mode).startswith("I"):  # 16 bits of grey
        return torch.from_numpy(np.asarray(picture).astype(np.float32))[None].div_(65535).clamp_(0, 1)
    array = np.array(picture.convert("L" if picture.mode in ("1", "L", "LA") else "RGB"))
    tensor = torch.from_numpy(array).to(torch.float32).div_(255)
    return tensor[None] if tensor.ndim == 2 else tensor.permute(2, 0, 1).contiguous()


def resized(picture: Tensor, size: Size) -> Tensor:
    """A picture `(C, H, W)` of another size: bilinear, with antialiasing, as Pillow and torchvision do."""
    wanted = (size, size) if isinstance(size, int) else tuple(size)
    fine = len(wanted) == 2 and all(type(side) is int and side > 0 for side in wanted)
    check(fine, "size", "a whole number above 0, or (height, width)", size)
    check(picture.ndim == 3, "size", "none for inputs that are no pictures (C, H, W)", tuple(picture.shape))
    if tuple(picture.shape[1:]) == wanted:
        return picture
    other = torch.nn.functional.interpolate(picture[None], wanted, mode="bilinear", antialias=True)[0]
    return other.clamp_(float(picture.min()), float(picture.max()))


def _plain(label: Any) -> Any:
    """A single number of a tensor or of NumPy as Python's; everything else as it is."""
    single = hasattr(label, "item") and math.prod(getattr(label, "shape", (0,))) == 1
    return label.item() if single else label


def _labels(labels: list[Any], name: str, classes: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    if all(isinstance(label, str) for label in labels):
        known = tuple(sorted(set(labels)) if classes is None else classes)
        number = {text: place for place, text in enumerate(known)}
        strange = next((label for label in labels if label not in number), None)
        check(strange is None, name, f"labels among {', '.join(known)}", repr(strange))
        return torch.tensor([number[label] for label in labels]), known
    for label in labels:
        whole = isinstance(label, int) and not isinstance(label, bool)
        unknown = whole and label == -1
        got = "-1, as those have that are kept from the public" if unknown else repr(label)[:80]
        check(whole and label >= 0, name, "labels that are whole numbers of at least 0, or texts", got)
    numbers = torch.tensor(labels, dtype=torch.int64)
    known = tuple(str(each) for each in (range(int(numbers.max()) + 1) if classes is None else classes))
    return numbers, known


def chosen(length: int, count: int | None, seed: int | None, name: str) -> list[int]:
    """Which samples to read: all, the first `count`, or with a `seed` any `count`, drawn without repetition."""
    check(count is None or (type(count) is int and 1 <= count <= length), "count", f"1 .. {length} of {name}", count)
    if seed is None:
        return list(range(length if count is None else count))
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed))
    return [int(place) for place in order[:count]]


def parsed(
    name: str, parts: int, known: Mapping[str, Callable[[str], Any]], form: str
) -> tuple[list[str], dict[str, Any]]:
    """A name such as `"torchvision:GTSRB:test:size=32,count=10"` in `parts` parts and its options.

    >>> parsed("hub:set:test:size=32x48,count=10", 3, {"size": size_of, "count": int}, "hub:<set>:<split>")
    (['hub', 'set', 'test'], {'size': (32, 48), 'count': 10})
    """
    pieces = name.split(":", parts)
    check(len(pieces) >= parts and all(pieces[:parts]), "name", form, repr(name))
    options: dict[str, Any] = {}
    for part in filter(None, pieces[parts].split(",") if len(pieces) > parts else ()):
        key, equal, value = (piece.strip() for piece in part.partition("="))
        check(bool(equal) and key in known, "name", f"options {', '.join(known)}, as size=32,count=100", repr(part))
        try:
            options[key] = known[key](value)
        except ValueError as error:
            raise ArgumentError("name", f"a value for {key}", repr(part)) from error
    return pieces[:parts], options


def size_of(text: str) -> Size:
    """`"32"` or `"32x48"` (height x width)."""
    height, x, width = text.partition("x")
    return (int(height), int(width)) if x else int(height)
