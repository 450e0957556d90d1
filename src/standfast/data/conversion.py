"""Data sets from single samples of other packages: Pillow pictures, tensors or arrays, with their labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.data.dataset import Dataset
from standfast.errors import ArgumentError, as_number, check
from standfast.tensors import Bound

Size = int | tuple[int, int]


def collect(
    pairs: Iterable[tuple[Any, Any]],
    name: str,
    classes: Sequence[str] | None = None,
    size: Size | None = None,
    bounds: tuple[Bound, Bound] = (0.0, 1.0),
) -> Dataset:
    """Make a data set from pairs of an input (picture, tensor or array) and a label.

    Args:
        pairs: the samples; each is read once.
        name: name of the data set.
        classes: names of the classes; by default the labels: texts in sorted order, or numbers from 0 to the largest.
        size: resize pictures `(C, H, W)` to `(height, width)`, or to a square.
        bounds: range of the input values.

    Raises:
        ArgumentError: there are no samples; inputs differ in shape; a label is neither a whole number nor a text, or
            names no class; a value is outside `bounds`.

    >>> collect([(np.zeros((1, 2), np.uint8), "no"), (torch.ones(1, 2), "yes")], "two").classes
    ('no', 'yes')
    """
    inputs: list[Tensor] = []
    labels: list[Any] = []
    for value, label in pairs:
        inputs.append(to_input(value, size))
        labels.append(_to_python(label))
        if inputs[-1].shape != inputs[0].shape:
            shapes = f"{tuple(inputs[0].shape)} (sample 0) and {tuple(inputs[-1].shape)} (sample {len(inputs) - 1})"
            raise ArgumentError(name, "inputs of one shape; or size=(height, width), which resizes pictures", shapes)
    check(len(inputs) > 0, name, "at least one sample", "none")
    targets, known = _convert_labels(labels, name, classes)
    return Dataset(name, torch.stack(inputs), targets, known, bounds)


def to_input(value: Any, size: Size | None = None) -> Tensor:
    """Convert a Pillow picture to `(1 or 3, height, width)` in [0, 1], or an array or tensor to float32.

    Values of type uint8 are divided by 255. Pictures with a palette or with transparency become RGB; the transparency
    is ignored. Arrays and tensors keep their shape.

    Args:
        value: a picture, array, tensor, or nested lists of numbers.
        size: resize a picture, or the last two axes of a tensor `(C, H, W)`, to this size.
    """
    if hasattr(value, "convert") and hasattr(value, "mode"):  # a Pillow picture
        picture = from_pillow(value)
    else:
        try:
            tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ArgumentError(
                "input", "a picture, a tensor, or numbers", f"{type(value).__name__}: {error}"
            ) from error
        fine = tensor.ndim >= 1 and not tensor.is_complex()
        check(fine, "input", "real numbers with at least one axis", tuple(tensor.shape))
        picture = tensor.to(torch.float32) / 255 if tensor.dtype == torch.uint8 else tensor.to(torch.float32)
    return picture if size is None else resize(picture, size)


def from_pillow(picture: Any) -> Tensor:
    """Convert a Pillow picture to `(1 or 3, height, width)` in [0, 1]."""
    if str(picture.mode).startswith("I"):  # 16 bits of grey
        return torch.from_numpy(np.asarray(picture).astype(np.float32))[None].div_(65535).clamp_(0, 1)
    array = np.array(picture.convert("L" if picture.mode in ("1", "L", "LA") else "RGB"))
    tensor = torch.from_numpy(array).to(torch.float32).div_(255)
    return tensor[None] if tensor.ndim == 2 else tensor.permute(2, 0, 1).contiguous()


def resize(picture: Tensor, size: Size) -> Tensor:
    """Resize a picture `(C, H, W)`: bilinear, with antialiasing, as Pillow and torchvision do."""
    wanted = (size, size) if isinstance(size, int) else tuple(size)
    fine = len(wanted) == 2 and all(type(as_number(side)) is int and side > 0 for side in wanted)
    check(fine, "size", "a whole number above 0, or (height, width)", size)
    check(picture.ndim == 3, "size", "none for inputs that are not pictures (C, H, W)", tuple(picture.shape))
    if tuple(picture.shape[1:]) == wanted:
        return picture
    other = torch.nn.functional.interpolate(picture[None], wanted, mode="bilinear", antialias=True)[0]
    return other.clamp_(float(picture.min()), float(picture.max()))


def _to_python(label: Any) -> Any:
    """Convert a tensor or NumPy array of a single number to a Python number; return anything else unchanged."""
    single = hasattr(label, "item") and math.prod(getattr(label, "shape", (0,))) == 1
    return label.item() if single else label


def _convert_labels(labels: list[Any], name: str, classes: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    """The labels as class numbers, int64 `(N,)`, and the names of the classes."""
    if all(isinstance(label, str) for label in labels):
        known = tuple(sorted(set(labels)) if classes is None else classes)
        number = {text: index for index, text in enumerate(known)}
        unknown = next((label for label in labels if label not in number), None)
        check(unknown is None, name, f"labels among {', '.join(known)}", repr(unknown))
        return torch.tensor([number[label] for label in labels]), known
    for label in labels:
        whole = isinstance(label, int) and not isinstance(label, bool)
        hidden = whole and label == -1
        got = "-1, which stands for labels that are not published" if hidden else repr(label)[:80]
        check(whole and label >= 0, name, "labels that are whole numbers of at least 0, or texts", got)
    numbers = torch.tensor(labels, dtype=torch.int64)
    known = tuple(str(each) for each in (range(int(numbers.max()) + 1) if classes is None else classes))
    return numbers, known


def choose_samples(length: int, count: int | None, seed: int | None, name: str) -> list[int]:
    """The indices of the samples to read: all, the first `count`, or `count` drawn at random without replacement."""
    check(
        count is None or (type(as_number(count)) is int and 1 <= count <= length),
        "count",
        f"1 .. {length} of {name}",
        count,
    )
    if seed is None:
        return list(range(length if count is None else count))
    order = torch.randperm(length, generator=torch.Generator().manual_seed(seed))
    return [int(index) for index in order[:count]]


def parse_name(
    name: str, parts: int, known: Mapping[str, Callable[[str], Any]], form: str
) -> tuple[list[str], dict[str, Any]]:
    """Split a name such as `"torchvision:GTSRB:test:size=32,count=10"` into `parts` parts and its options.

    `known` maps each option to the function that converts its text. `form` describes a valid name in error messages.

    >>> parse_name("hub:set:test:size=32x48,count=10", 3, {"size": parse_size, "count": int}, "hub:<set>:<split>")
    (['hub', 'set', 'test'], {'size': (32, 48), 'count': 10})
    """
    pieces = name.split(":", parts)
    check(len(pieces) >= parts and all(pieces[:parts]), "name", form, repr(name))
    options: dict[str, Any] = {}
    for part in filter(None, pieces[parts].split(",") if len(pieces) > parts else ()):
        key, equal, value = (piece.strip() for piece in part.partition("="))
        expected = f"options {', '.join(known)}, such as size=32,count=100"
        check(bool(equal) and key in known, "name", expected, repr(part))
        try:
            options[key] = known[key](value)
        except ValueError as error:
            raise ArgumentError("name", f"a value for {key}", repr(part)) from error
    return pieces[:parts], options


def parse_size(text: str) -> Size:
    """The size that a text such as `"32"` or `"32x48"` (height x width) stands for."""
    height, x, width = text.partition("x")
    return (int(height), int(width)) if x else int(height)
