"""Inputs cut into segments: superpixels of an image, cells of a grid, windows of a series, columns of a table.

Segments are label maps: integers from 0 over the spatial axes of an input. These are `(H, W)` of an image `(C, H, W)`,
`(T,)` of a series `(C, T)` and `(F,)` of flat features. All channels of a position belong to the same segment.
The segments of a sample depend only on this sample.

Superpixels are those of scikit-image.
SLIC's compactness weighs distance in the image against distance in colour.
It is 10 for colour images (scikit-image's default, for CIELAB values with a range of about 100). It is 0.3 for all
other images, which are rescaled to [0, 1]: with the default, made for colour, they would be cut into a plain grid.

Quickshift has length scales and no number of segments: the image determines how many there are.
Our scales give about 40 segments, both on 28x28 digits and on 224x224 photos (13 to 114 on the photos that we tried).
The kernel's width is 1/56 of the shorter side, and at least one pixel. The longest link is four kernel widths.
Colour images are in CIELAB with ratio 0.2, the ratio of the LIME authors, whose kernel width ours equals at 224 pixels.
All other images are rescaled to [0, 100] and have ratio 0.5.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from standfast.errors import check
from standfast.records import SampleOption
from standfast.tensors import Array, send, thread_budget

#: the smallest number of segments; metrics rank segments, and a ranking of fewer has no meaning
FEWEST = 3
#: defaults: pixels per segment and the smallest number of segments of an image, windows of a series, groups of features
PIXELS = 50
CELLS = 9
WINDOWS = 20
COLUMNS = 64
_COMPACTNESS = 0.3
_COMPACTNESS_LAB = 10.0
# images of fewer pixels are cut one after the other, since threads would only wait for each other
_SMALL = 4096
# quickshift: weight of colour against distance; kernel widths per side, and per link; the largest number of segments
_RATIO = 0.5
_RATIO_LAB = 0.2
_KERNELS = 56
_LINK = 4
_MOST = 300
#: the names of the methods, and the kind of inputs that each can cut
_FITS = {
    "auto": "any input",
    "grid": "any input",
    "slic": "images",
    "quickshift": "images",
    "windows": "series",
    "columns": "flat features",
}
_KINDS = {2: "flat features", 3: "series", 4: "images"}
_EXPECTED = (
    f"{', '.join(map(repr, _FITS))}, a whole number of at least {FEWEST}, or an integer"
    " tensor of labels from 0 up"
)


@dataclass(frozen=True, init=False)
class LabelMap(SampleOption):
    """A label map as an option of a frozen configuration: compared, hashed and written down by its digest.

    Args:
        labels: integers of at least 0, of any shape; copied.

    Raises:
        ArgumentError: something else than such labels.

    >>> a, b = (LabelMap(torch.tensor([0, 0, 1, 2])) for _ in range(2))
    >>> a == b, a.shape, a.tensor.tolist()
    (True, (4,), [0, 0, 1, 2])
    """

    def __init__(self, labels: Tensor) -> None:
        fine = (
            not labels.is_floating_point()
            and not labels.is_complex()
            and labels.dtype != torch.bool
        )
        check(
            fine and labels.numel() > 0 and int(labels.min()) >= 0,
            "segments",
            _EXPECTED,
            _describe(labels),
        )
        super().__init__(labels.to(torch.int64))

    def is_per_sample(self, inputs: Tensor) -> bool:
        """Whether the labels hold one map for each sample of `inputs` `(N, ...)`; False if one map is for all."""
        return len(self.shape) == len(spatial_shape(inputs)) + 1

    def of_samples(self, inputs: Tensor, rows: slice) -> LabelMap:
        """The maps of the samples `rows`, if there is one map for each sample of `inputs`; else this map, for all.

        >>> maps = LabelMap(torch.tensor([[0, 1, 2], [2, 1, 0]]))
        >>> maps.of_samples(torch.zeros(2, 3), slice(1, 2)).tensor.tolist()
        [[2, 1, 0]]
        """
        if not self.is_per_sample(inputs):
            return self
        spatial = spatial_shape(inputs)
        many = (len(inputs), *spatial)
        check(
            self.shape == many,
            "segments",
            f"labels of shape {spatial} or {many}, one for each sample",
            self.shape,
        )
        return LabelMap(self.tensor[rows])


Labels = npt.NDArray[np.int64]
Method = Literal["auto", "slic", "quickshift", "grid", "windows", "columns"]
SegmentChoice = Method | int | LabelMap


@dataclass(frozen=True)
class Segments:
    """The segments of N inputs.

    Attributes:
        labels: the segment of each position, int64 `(N, *spatial)`, from 0 to `count - 1`.
        count: number of segments of each sample, int64 `(N,)`.
        width: the largest number of segments that a sample of this shape can have, in this or any other batch.
        fallback: True if the method found no superpixels (a constant image, or pure noise) and the sample has a grid
            instead, bool `(N,)`.
        counts: the same as `count`, on the host.
    """

    labels: Tensor
    count: Tensor
    width: int
    fallback: Tensor
    counts: tuple[int, ...]


def check_segments(how: SegmentChoice | Tensor, name: str = "segments") -> SegmentChoice:
    """`how` in a form that a frozen configuration can hold; raises `ArgumentError` if it names no segmentation.

    >>> check_segments("grid"), check_segments(12)
    ('grid', 12)
    """
    if isinstance(how, Tensor):
        return LabelMap(how)
    fine = (
        isinstance(how, LabelMap)
        or (isinstance(how, str) and how in _FITS)
        or (type(how) is int and how >= FEWEST)
    )
    check(fine, name, _EXPECTED, repr(how))
    return how


SegmentsOption = Annotated[Method | int | Tensor, check_segments]


def check_one_for_all(explainer: object, inputs: Tensor) -> None:
    """Raise `ArgumentError` if an option of the explainer holds one label map for each sample of `inputs`.

    Metrics explain perturbed copies of samples, in chunks, so the explainer cannot know which sample a row belongs to.
    """
    options = vars(explainer) if hasattr(explainer, "__dict__") else {}
    for name, value in options.items():
        fine = not isinstance(value, LabelMap) or not value.is_per_sample(inputs)
        expected = f"one map of shape {spatial_shape(inputs)} for all samples, in an explainer that metrics evaluate"
        check(fine, name, expected, getattr(value, "shape", None))


def spatial_shape(inputs: Tensor) -> tuple[int, ...]:
    """`(H, W)` of images `(N, C, H, W)`, `(T,)` of series `(N, C, T)`, `(F,)` of flat features `(N, F)`.

    >>> spatial_shape(torch.zeros(2, 3, 8, 9)), spatial_shape(torch.zeros(2, 7))
    ((8, 9), (7,))
    """
    if inputs.ndim == 2:
        return tuple(inputs.shape[1:])
    return tuple(inputs.shape[2:])


def segment(inputs: Tensor, how: SegmentChoice | Tensor = "auto") -> Segments:
    """Cut each of `inputs` `(N, ...)` into segments.

    Args:
        inputs: finite floating values.
        how: one of these:

            - `"auto"`: `"slic"` for images, `"windows"` for series, `"columns"` for flat features, else `"grid"`.
            - another name: this method, with a default number of segments. The default is one segment per 50 pixels (at
              least 9) for images, 20 windows for series, and one segment per flat feature, or 64 groups of neighbouring
              features if there are more than 64. `"quickshift"` finds 3 to 300 segments, depending on the image;
              outside this range the image gets a grid.
            - a number: `"auto"` with about that many segments.
            - a tensor of integers, `(*spatial)` or `(N, *spatial)`: these labels, renumbered without gaps.

    Returns:
        The segments, on the device of the inputs.

    Raises:
        ArgumentError: the method does not fit the inputs, the labels have another shape, or there are fewer than 3
            segments.

    >>> segment(torch.rand(2, 1, 8, 8), "grid").count.tolist()
    [9, 9]
    >>> segment(torch.rand(1, 6), torch.tensor([5, 5, 0, 0, 9, 9])).labels
    tensor([[1, 1, 0, 0, 2, 2]])
    """
    how = check_segments(how)
    spatial = spatial_shape(inputs)
    check(
        inputs.ndim >= 2 and len(inputs) > 0,
        "inputs",
        "a non-empty batch (N, ...)",
        tuple(inputs.shape),
    )
    if isinstance(how, LabelMap):
        return _apply_labels(inputs, how.tensor, spatial)
    kind = _KINDS.get(inputs.ndim, "volumes")
    fits = not isinstance(how, str) or _FITS[how] in ("any input", kind)
    check(fits, "segments", f"a method that cuts {kind}", repr(how))
    positions = int(np.prod(spatial))
    check(positions >= FEWEST, "inputs", f"at least {FEWEST} features or pixels", positions)
    if isinstance(how, int):
        count = min(how, positions)
    else:
        count = min(_default_count(inputs, positions), positions)
    if how == "quickshift":
        return _find_superpixels(inputs, count, _quickshift, FEWEST, min(_MOST, positions))
    if how == "slic" or (how != "grid" and inputs.ndim == 4):
        find = partial(_slic, count=count)
        least, most = max(FEWEST, count // 2), count + count // 2
        return _find_superpixels(inputs, count, find, least, most)
    labels = make_grid(spatial, count)
    return share_labels(
        inputs, send(torch.from_numpy(labels), inputs.device), int(labels.max()) + 1
    )


def make_grid(spatial: tuple[int, ...], count: int) -> Labels:
    """Labels int64 `(*spatial)` of about `count` equal cells, as close to cubes as possible.

    Along a single axis there are exactly `count` cells.

    >>> make_grid((6,), 3).tolist()
    [0, 0, 1, 1, 2, 2]
    """
    labels = np.zeros(spatial, dtype=np.int64)
    cells_left, positions = float(count), float(np.prod(spatial))  # for the axes that are left
    for axis, length in enumerate(spatial):
        axes_left = len(spatial) - axis
        if axes_left == 1:
            share = cells_left
        else:
            share = (cells_left / positions) ** (1 / axes_left) * length
        cells = min(max(round(share), 1), length)
        # at least 1, as a share that is rounded up can use more cells than there were
        cells_left, positions = max(cells_left / cells, 1.0), positions / length
        cell = np.arange(length) * cells // length
        # along the axis, and the same along all others
        shape_along = [1] * len(spatial)
        shape_along[axis] = -1
        labels = labels * cells + cell.reshape(shape_along)
    return labels


def _default_count(inputs: Tensor, positions: int) -> int:
    if inputs.ndim == 2:
        return COLUMNS
    if inputs.ndim == 3:
        return WINDOWS
    return max(positions // PIXELS, CELLS)


def share_labels(inputs: Tensor, labels: Tensor, width: int) -> Segments:
    """Segments with the same label map for all inputs."""
    count = torch.full((len(inputs),), width, device=inputs.device)
    fallback = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    return Segments(
        labels.expand(len(inputs), *labels.shape), count, width, fallback, (width,) * len(inputs)
    )


def _apply_labels(inputs: Tensor, labels: Tensor, spatial: tuple[int, ...]) -> Segments:
    """Segments with the user's labels, renumbered without gaps."""
    many = (len(inputs), *spatial)
    expected = f"labels of shape {spatial} or {many}"
    shape = tuple(labels.shape)
    check(shape in (spatial, many), "segments", expected, shape)
    positions = int(np.prod(spatial))
    rows = labels.reshape(-1, positions).numpy()
    renumbered = [np.unique(row, return_inverse=True)[1] for row in rows]
    counts = [int(row.max()) + 1 for row in renumbered]
    least = min(counts)
    check(least >= FEWEST, "segments", f"at least {FEWEST} different labels", least)
    numbers = np.stack(renumbered).astype(np.int64)
    labels_of_rows = send(torch.from_numpy(numbers), inputs.device)
    if len(labels_of_rows) != len(inputs) or shape == spatial:
        return share_labels(inputs, labels_of_rows[0].reshape(spatial), counts[0])
    fallback = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    return Segments(
        labels_of_rows.reshape(many),
        send(counts, inputs.device),
        max(counts),
        fallback,
        tuple(counts),
    )


def _find_superpixels(
    inputs: Tensor, count: int, find: Callable[[Array], Labels], least: int, most: int
) -> Segments:
    """The segments that `find` returns for each image.

    An image where they are fewer than `least` or more than `most` gets a grid of `count` cells.
    """
    regular = make_grid(spatial_shape(inputs), count)
    # a width is the same for all batches of a shape, so it cannot depend on the images
    width = max(most, int(regular.max()) + 1)

    def cut(image: Array) -> Labels | None:
        low = image.min()
        high = image.max()
        # a constant image has no superpixels, and cannot be rescaled
        if not high > low:
            return None
        # superpixels are found in [0, 1]
        found_labels = find((image - low) / (high - low))
        numbered = np.unique(found_labels, return_inverse=True)[1]
        if least <= numbered.max() + 1 <= width:
            return numbered.reshape(regular.shape).astype(np.int64)
        return None

    images = inputs.detach().double().cpu().numpy()
    with ThreadPoolExecutor(thread_budget()) as pool:
        map_images = map if regular.size < _SMALL else pool.map
        cuts = list(map_images(cut, images))
    fallback = [labels_of_image is None for labels_of_image in cuts]
    maps = []
    for labels_of_image in cuts:
        maps.append(regular if labels_of_image is None else labels_of_image)
    counts = [int(numbered.max()) + 1 for numbered in maps]
    device = inputs.device
    labels = torch.from_numpy(np.stack(maps))
    return Segments(
        send(labels, device), send(counts, device), width, send(fallback, device), tuple(counts)
    )


def _slic(image: Array, count: int) -> Labels:
    """Superpixels of one image `(C, H, W)` in [0, 1]: k-means over position and colour."""
    from skimage.segmentation import slic

    colour = len(image) == 3
    compactness = _COMPACTNESS_LAB if colour else _COMPACTNESS
    labels: Labels = slic(image, count, compactness, convert2lab=colour, channel_axis=0)
    return labels


def _quickshift(image: Array) -> Labels:
    """Pieces of one image `(C, H, W)` in [0, 1]: a pixel joins the nearest, in place and colour, of higher density."""
    from skimage.segmentation import quickshift

    kernel = max(1.0, min(image.shape[1:]) / _KERNELS)
    colour = len(image) == 3
    # as lightness, which goes from 0 to 100
    scaled = image if colour else 100 * image
    ratio = _RATIO_LAB if colour else _RATIO
    labels: Labels = quickshift(  # type: ignore[no-untyped-call]
        scaled,
        ratio=ratio,
        kernel_size=kernel,
        max_dist=_LINK * kernel,
        convert2lab=colour,
        # its noise breaks ties; with a fixed seed an image has the same segments every time
        rng=0,
        channel_axis=0,
    )
    return labels


def _describe(labels: Tensor) -> str:
    kind = f"a {labels.dtype} tensor of shape {tuple(labels.shape)}"
    if labels.numel() and not labels.is_complex():
        return f"{kind} with values from {labels.min().item()}"
    return kind
