"""Data sets from samples of other packages: pictures of Pillow, tensors or arrays, with their labels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.data.dataset import Dataset
from standfast.errors import ArgumentError, as_number, check
from standfast.tensors import Bound

Size = int | tuple[int, int]
#: the largest grey value of 16 bits
_MOST_GREY = 65535


def from_samples(
    samples: Any,
    *,
    columns: tuple[str | None, str | None] = (None, None),
    name: str | None = None,
    size: Size | None = None,
    count: int | None = None,
    classes: Sequence[str] | None = None,
    bounds: tuple[Bound, Bound] = (0.0, 1.0),
) -> Dataset:
    """Make a data set from a data set of torchvision, torch or Hugging Face, or from pairs of an input and a label.

    Pictures become `(1 or 3, H, W)` in [0, 1]; tensors and arrays keep their values and shape, and uint8 is divided by
    255. Do not normalise here: pass the normalisation to `Model(..., preprocess=...)`, so that radii have the unit of
    pixel values. Many sets are sorted by class: to draw samples at random, shuffle first
    (`torch.utils.data.Subset(own, torch.randperm(len(own))[:50])`, or `shuffle` of Hugging Face).

    Args:
        samples: pairs `(input, label)`: a data set with a length and entries by number, or any iterable. Or one split
            of Hugging Face, whose rows are mappings, with `column_names` and `features`; or an object like it.
        columns: of rows: the column of inputs and that of labels; None for the only `Image`, or the only `ClassLabel`.
        name: of the data set, for reports; by default that of its class.
        size: resize pictures to `(height, width)`, or to a square; needed if they differ in size.
        count: read and decode so many from the start; all by default. Streams without an end need it.
        classes: names of the classes; by default those that the set knows, else the labels: texts in sorted order, or
            numbers from 0 to the largest.
        bounds: range of the input values.

    Raises:
        ArgumentError: a column does not exist, or several could be meant; there are no samples, or less than `count`;
            an entry is no pair; inputs differ in shape; a label is neither a whole number nor a text, or names no
            class; a value is outside `bounds`.

    >>> own = torch.utils.data.TensorDataset(torch.rand(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1]))
    >>> found = from_samples(own, count=3, size=4)
    >>> found.inputs.shape, found.labels.tolist(), found.classes
    (torch.Size([3, 1, 4, 4]), [0, 1, 2], ('0', '1', '2'))
    >>> from_samples([(np.zeros((1, 2), np.uint8), "no"), (torch.ones(1, 2), "yes")], name="two")
    Dataset('two', 2 x (1, 2), 2 classes: no, yes, bounds [0, 1])
    """
    if isinstance(samples, dict):
        splits = f"a dict of splits: {', '.join(samples)}"
    else:
        splits = type(samples).__name__
    # a dict of splits is iterable, and would give their names
    fits = hasattr(samples, "__getitem__") or isinstance(samples, Iterable)
    fits = fits and not isinstance(samples, dict)
    check(fits, "samples", "one split, or pairs of an input and a label", splits)
    column_names: Any = getattr(samples, "column_names", None)
    rows = _iterate(samples, count)
    if column_names is None:
        check(columns == (None, None), "columns", "none for samples that are pairs", columns)
        pairs = (_check_pair(entry) for entry in rows)
        class_names = _find_classes(samples)
    else:
        features = getattr(samples, "features", None) or {}
        image = _find_column(columns[0], column_names, features, "Image")
        label = _find_column(columns[1], column_names, features, "ClassLabel")
        pairs = ((row[image], row[label]) for row in rows)
        class_names = getattr(features.get(label), "names", None)
    # Hugging Face knows the name of the set; torchvision only that of the class
    info = getattr(samples, "info", None)
    own_name = getattr(info, "dataset_name", None) or type(samples).__name__
    title = name or str(own_name)
    if classes is None:
        classes = class_names
    return _collect(pairs, title, classes, size, bounds)


def _iterate(samples: Any, count: int | None) -> Iterator[Any]:
    """The first `count` samples, or all; none is read before it is asked for."""
    is_count = type(as_number(count)) is int and count is not None and count >= 1
    check(count is None or is_count, "count", "at least 1", count)
    # an iterable without a length has no entries by number
    if not hasattr(samples, "__len__"):
        is_stream = hasattr(samples, "column_names")  # of Hugging Face, which may have no end
        expected = "a number of samples, because this data set is a stream"
        check(count is not None or not is_stream, "count", expected, count)
        return itertools.islice(iter(samples), count)
    length = len(samples)
    check(count is None or count <= length, "count", f"1 .. {length}", count)
    if count is None:
        count = length
    return (samples[index] for index in range(count))


def _check_pair(entry: Any) -> tuple[Any, Any]:
    fine = isinstance(entry, tuple | list) and len(entry) == 2
    check(fine, "samples", "entries that are pairs of an input and a label", type(entry).__name__)
    value, label = entry
    return value, label


def _find_classes(samples: Any) -> tuple[str, ...] | None:
    """The names of the classes that a data set of torchvision, or a subset of one, knows."""
    # a subset has no names of its own
    whole = samples.dataset if isinstance(samples, torch.utils.data.Subset) else samples
    for attribute in ("classes", "categories"):
        names = getattr(whole, attribute, None)
        if not isinstance(names, list | tuple) or not names:
            continue
        if all(isinstance(name, str | tuple) for name in names):
            # a class of ImageNet has several names
            return tuple(name if isinstance(name, str) else ", ".join(name) for name in names)
    return None


def _find_column(column: str | None, names: Sequence[str], features: Any, kind: str) -> str:
    """The column that was asked for, or the only one of a kind."""
    if column is not None:
        check(column in names, "columns", f"one of {', '.join(names)}", repr(column))
        return column
    of_kind = []
    for name in names:
        if type(features.get(name)).__name__ == kind:
            of_kind.append(name)
    expected = f"names of {', '.join(names)}; optional only with exactly one column of type {kind}"
    check(len(of_kind) == 1, "columns", expected, f"{len(of_kind)} of that type")
    return of_kind[0]


def _collect(
    pairs: Iterable[tuple[Any, Any]],
    name: str,
    classes: Sequence[str] | None,
    size: Size | None,
    bounds: tuple[Bound, Bound],
) -> Dataset:
    inputs: list[Tensor] = []
    labels: list[Any] = []
    for number, (value, label) in enumerate(pairs):
        inputs.append(to_input(value, size))
        labels.append(_to_python(label))
        first_shape = tuple(inputs[0].shape)
        shape = tuple(inputs[-1].shape)
        # at the first one that differs, as a stream may be long
        if shape != first_shape:
            expected = "inputs of one shape; or size=(height, width), which resizes pictures"
            got = f"{first_shape} (sample 0) and {shape} (sample {number})"
            raise ArgumentError(name, expected, got)
    check(len(inputs) > 0, name, "at least one sample", "none")
    targets, class_names = _convert_labels(labels, name, classes)
    return Dataset(name, torch.stack(inputs), targets, class_names, bounds)


def to_input(value: Any, size: Size | None = None) -> Tensor:
    """Convert a Pillow picture to `(1 or 3, height, width)`, or an array or tensor to float32.

    Pictures of whole numbers are scaled to [0, 1]; those of floats keep their values. Values of type uint8 are divided
    by 255. Pictures with a palette or with transparency become RGB; the transparency is ignored. Arrays and tensors
    keep their shape.

    Args:
        value: a picture, array, tensor, or nested lists of numbers.
        size: resize a picture, or the last two axes of a tensor `(C, H, W)`, to this size.
    """
    # by what it can do, so that Pillow need not be installed
    is_pillow = hasattr(value, "convert") and hasattr(value, "mode")
    picture = from_pillow(value) if is_pillow else _to_floats(value)
    if size is None:
        return picture
    return resize(picture, size)


def _to_floats(value: Any) -> Tensor:
    """An array, a tensor or nested lists as float32; uint8 is divided by 255."""
    try:
        if isinstance(value, Tensor):
            tensor = value
        else:
            tensor = torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        got = f"{type(value).__name__}: {error}"
        raise ArgumentError("input", "a picture, a tensor, or numbers", got) from error
    fits = tensor.ndim >= 1 and not tensor.is_complex()
    check(fits, "input", "real numbers with at least one axis", tuple(tensor.shape))
    floats = tensor.to(torch.float32)
    if tensor.dtype == torch.uint8:
        return floats / 255
    return floats


def from_pillow(picture: Any) -> Tensor:
    """Convert a Pillow picture to `(1 or 3, height, width)`: in [0, 1], or with the values of a picture of floats.

    Raises:
        ArgumentError: grey values that are whole numbers of more than 16 bits.

    >>> from PIL import Image
    >>> from_pillow(Image.new("L", (2, 1), 51)), from_pillow(Image.new("F", (2, 1), 51.5))
    (tensor([[[0.2000, 0.2000]]]), tensor([[[51.5000, 51.5000]]]))
    """
    mode = str(picture.mode)
    if mode == "F":
        return torch.from_numpy(np.array(picture, dtype=np.float32))[None]
    # Pillow names several modes so, by their bits
    if mode.startswith("I"):  # 16 bits of grey, which Pillow may hold in 32
        grey = np.asarray(picture).astype(np.float32)
        low = float(grey.min())
        high = float(grey.max())
        expected = f"grey values from 0 to {_MOST_GREY}, of 8 or 16 bits; others as floats"
        fits = low >= 0 and high <= _MOST_GREY
        check(fits, "input", expected, f"values from {low:g} to {high:g}")
        return torch.from_numpy(grey)[None].div_(_MOST_GREY)
    # a palette or transparency has no meaning as numbers
    plain_mode = "L" if mode in ("1", "L", "LA") else "RGB"
    array = np.array(picture.convert(plain_mode))
    tensor = torch.from_numpy(array).to(torch.float32).div_(255)
    if tensor.ndim == 2:
        return tensor[None]
    return tensor.permute(2, 0, 1).contiguous()


def resize(picture: Tensor, size: Size) -> Tensor:
    """Resize a picture `(C, H, W)`: bilinear, with antialiasing, as Pillow and torchvision do."""
    new_size = (size, size) if isinstance(size, int) else tuple(size)
    fits = len(new_size) == 2 and all(
        type(as_number(side)) is int and side > 0 for side in new_size
    )
    check(fits, "size", "a whole number above 0, or (height, width)", size)
    check(
        picture.ndim == 3,
        "size",
        "none for inputs that are not pictures (C, H, W)",
        tuple(picture.shape),
    )
    if tuple(picture.shape[1:]) == new_size:
        return picture
    resized = torch.nn.functional.interpolate(
        picture[None], new_size, mode="bilinear", antialias=True
    )[0]
    return resized.clamp_(float(picture.min()), float(picture.max()))


def _to_python(label: Any) -> Any:
    """Convert a tensor or NumPy array of a single number to a Python number; return anything else unchanged."""
    if not hasattr(label, "item"):
        return label
    shape = getattr(label, "shape", (0,))
    if math.prod(shape) != 1:
        return label
    return label.item()


def _convert_labels(
    labels: list[Any], name: str, classes: Sequence[str] | None
) -> tuple[Tensor, tuple[str, ...]]:
    """The labels as class numbers, int64 `(N,)`, and the names of the classes."""
    if all(isinstance(label, str) for label in labels):
        if classes is None:
            classes = sorted(set(labels))
        return _number_texts(labels, name, classes)
    for label in labels:
        # True and False are whole numbers in Python
        is_whole = isinstance(label, int) and not isinstance(label, bool)
        # data sets mark hidden labels of a test set so
        is_hidden = is_whole and label == -1
        got = repr(label)[:80]
        if is_hidden:
            got = "-1, which stands for labels that are not published"
        expected = "labels that are whole numbers of at least 0, or texts"
        check(is_whole and label >= 0, name, expected, got)
    numbers = torch.tensor(labels, dtype=torch.int64)
    if classes is None:
        count = int(numbers.max()) + 1
        return numbers, tuple(map(str, range(count)))
    return numbers, tuple(map(str, classes))


def _number_texts(
    labels: list[str], name: str, classes: Sequence[str]
) -> tuple[Tensor, tuple[str, ...]]:
    """Labels that are names of classes, as numbers."""
    number_of = {text: index for index, text in enumerate(classes)}
    expected = f"labels among {', '.join(classes)}"
    numbers = []
    for label in labels:
        check(label in number_of, name, expected, repr(label))
        numbers.append(number_of[label])
    return torch.tensor(numbers), tuple(classes)
