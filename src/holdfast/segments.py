"""Inputs cut into segments: superpixels of an image, cells of a grid, windows of a series, columns of a table.

Segments are label maps: integers from 0 over the spatial axes of an input, that is `(H, W)` of an image `(C, H, W)`,
`(T,)` of a series `(C, T)`, `(F,)` of flat features. Channels are never cut apart. A sample's segments depend on that
sample alone.

Superpixels are those of SLIC, or of quickshift: `superpixels.py` has both. SLIC's compactness weighs distance in the
image against distance in colour. We take 10 for colour (CIELAB, about 100 wide; scikit-image's default), and 0.3 for
all else, which is rescaled to [0, 1]: there the default, made for colour, would give a plain grid.

Quickshift has scales and no count: how many pieces it finds is up to the image. Ours are set for
about 40 on 28x28 digits and on 224x224 photos alike: the kernel's width is a 56th of the shorter side (at least one
pixel), four of it the longest link; colour is in CIELAB with ratio 0.2 (the LIME authors' ratio; at 224 their width
too), all else is rescaled to [0, 100] with 0.5. The photos we tried gave 13 to 114.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.superpixels import Image, Labels, convert_to_lab, quickshift, slic

#: with fewer segments the order of their sensitivities says nothing
FEWEST = 3
#: by default: pixels to a segment, and no fewer segments than this; windows of a series; flat features cut one by one
PIXELS, CELLS, WINDOWS, COLUMNS = 50, 9, 20, 64
_COMPACTNESS, _COMPACTNESS_LAB = 0.3, 10.0
# quickshift: weight of colour against distance; widths of the kernel to a side, and to a link; the most pieces we take
_RATIO, _RATIO_LAB, _KERNELS, _LINK, _MOST = 0.5, 0.2, 56, 4, 300
#: how segments may be asked for by name, and what each can cut
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
    f"{', '.join(map(repr, _FITS))}, a whole number of at least {FEWEST}, or an integer tensor of labels from 0 up"
)


@dataclass(frozen=True)
class LabelMap:
    """A label map as an option of a frozen configuration: compared, hashed and written down by its digest.

    Attributes:
        shape: of the labels.
        digest: of the labels' values.

    >>> a, b = (LabelMap.of(torch.tensor([0, 0, 1, 2])) for _ in range(2))
    >>> a == b, a.shape, a.labels.tolist()
    (True, (4,), [0, 0, 1, 2])
    """

    shape: tuple[int, ...]
    digest: str

    @classmethod
    def of(cls, labels: Tensor) -> LabelMap:
        """The labels, copied; raises `ArgumentError` unless they are integers of at least 0."""
        fine = not labels.is_floating_point() and not labels.is_complex() and labels.dtype != torch.bool
        check(fine and labels.numel() > 0 and int(labels.min()) >= 0, "segments", _EXPECTED, _described(labels))
        values = labels.detach().to("cpu", torch.int64).contiguous().clone()
        found = cls(tuple(values.shape), hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16])
        object.__setattr__(found, "_labels", values)
        return found

    @property
    def labels(self) -> Tensor:
        """The labels themselves, int64 on the CPU."""
        labels: Tensor = vars(self)["_labels"]
        return labels

    def each(self, inputs: Tensor) -> bool:
        """Whether there is one map for every sample of a batch such as `inputs` `(N, ...)`, not one for all."""
        return len(self.shape) == len(spatial_shape(inputs)) + 1

    def of_samples(self, inputs: Tensor, rows: slice) -> LabelMap:
        """The maps of the samples `rows` of `inputs`, all of which they are for; itself if it is one for all.

        >>> maps = LabelMap.of(torch.tensor([[0, 1, 2], [2, 1, 0]]))
        >>> maps.of_samples(torch.zeros(2, 3), slice(1, 2)).labels.tolist()
        [[2, 1, 0]]
        """
        if not self.each(inputs):
            return self
        spatial = spatial_shape(inputs)
        many = (len(inputs), *spatial)
        check(self.shape == many, "segments", f"labels of shape {spatial} or {many}, one for each sample", self.shape)
        return LabelMap.of(self.labels[rows])


Method = Literal["auto", "slic", "quickshift", "grid", "windows", "columns"]
How = Method | int | LabelMap


@dataclass(frozen=True)
class Segments:
    """N cut inputs.

    Attributes:
        labels: the segment of each place, int64 `(N, *spatial)`, from 0 to `count - 1`.
        count: segments of each sample, int64 `(N,)`.
        width: the most segments that any sample, here or in another batch of that shape, can have.
        fallback: where superpixels could not be found (a constant image, or one of pure noise) and a grid stands in,
            bool `(N,)`.
    """

    labels: Tensor
    count: Tensor
    width: int
    fallback: Tensor


def check_segments(how: How | Tensor) -> How:
    """The same in a form that a frozen configuration can hold; raises `ArgumentError` for what is none.

    >>> check_segments("grid"), check_segments(12)
    ('grid', 12)
    """
    if isinstance(how, Tensor):
        return LabelMap.of(how)
    fine = isinstance(how, LabelMap) or (isinstance(how, str) and how in _FITS) or (type(how) is int and how >= FEWEST)
    check(fine, "segments", _EXPECTED, repr(how))
    return how


def check_one_for_all(explainer: object, inputs: Tensor) -> None:
    """Raise `ArgumentError` where an explainer's options hold label maps of each sample of a batch like `inputs`.

    Metrics explain disturbed copies of samples, in chunks: an explainer cannot know which sample a row belongs to.
    """
    for name, value in vars(explainer).items() if hasattr(explainer, "__dict__") else ():
        fine = not isinstance(value, LabelMap) or not value.each(inputs)
        expected = f"one map of shape {spatial_shape(inputs)} for all samples, in an explainer that metrics evaluate"
        check(fine, name, expected, getattr(value, "shape", None))


def spatial_shape(inputs: Tensor) -> tuple[int, ...]:
    """`(H, W)` of images `(N, C, H, W)`, `(T,)` of series `(N, C, T)`, `(F,)` of flat features `(N, F)`.

    >>> spatial_shape(torch.zeros(2, 3, 8, 9)), spatial_shape(torch.zeros(2, 7))
    ((8, 9), (7,))
    """
    return tuple(inputs.shape[1:] if inputs.ndim == 2 else inputs.shape[2:])


def segment(inputs: Tensor, how: How | Tensor = "auto") -> Segments:
    """Cut `inputs` `(N, ...)`, each by itself.

    Args:
        inputs: finite, floating.
        how: `"auto"`: `"slic"` for images, `"windows"` for series, `"columns"` for flat features, `"grid"` for all
            else; by name, about as many as usual: one per 50 pixels (at least 9), 20 windows, each flat feature its own
            up to 64 of them, else 64 groups of neighbours. `"quickshift"`: as many pieces as the image has (3 to 300;
            else the grid). A number: `"auto"` with about that many segments. A tensor of integers, `(*spatial)` or
            `(N, *spatial)`: these labels, renumbered without gaps.

    Returns:
        The segments, on the device of the inputs.

    Raises:
        ArgumentError: a method that does not fit the inputs, labels of another shape, fewer than 3 segments.

    >>> segment(torch.rand(2, 1, 8, 8), "grid").count.tolist()
    [9, 9]
    >>> segment(torch.rand(1, 6), torch.tensor([5, 5, 0, 0, 9, 9])).labels
    tensor([[1, 1, 0, 0, 2, 2]])
    """
    how, spatial = check_segments(how), spatial_shape(inputs)
    check(inputs.ndim >= 2 and len(inputs) > 0, "inputs", "a non-empty batch (N, ...)", tuple(inputs.shape))
    if isinstance(how, LabelMap):
        return _given(inputs, how.labels, spatial)
    kind = _KINDS.get(inputs.ndim, "volumes")
    check(not isinstance(how, str) or _FITS[how] in ("any input", kind), "segments", f"one that cuts {kind}", repr(how))
    places = int(np.prod(spatial))
    check(places >= FEWEST, "inputs", f"at least {FEWEST} features or pixels to cut apart", places)
    count = min(how if isinstance(how, int) else _usual(inputs, places), places)
    if how == "quickshift":
        return _superpixels(inputs, count, _quickshift, FEWEST, min(_MOST, places))
    if how == "slic" or (how != "grid" and inputs.ndim == 4):
        return _superpixels(inputs, count, partial(_slic, count=count), max(FEWEST, count // 2), count + count // 2)
    labels = torch.from_numpy(grid(spatial, count)).to(inputs.device)
    return _shared(inputs, labels, int(labels.max()) + 1)


def grid(spatial: tuple[int, ...], count: int) -> Labels:
    """About `count` equal cells, as near to cubes as can be; exactly `count` along a single axis. int64 `(*spatial)`

    >>> grid((6,), 3).tolist()
    [0, 0, 1, 1, 2, 2]
    """
    labels = np.zeros(spatial, dtype=np.int64)
    left, places = float(count), float(np.prod(spatial))
    for axis, length in enumerate(spatial):
        along = len(spatial) - axis
        share = left if along == 1 else (left / places) ** (1 / along) * length
        cells = min(max(round(share), 1), length)
        left, places = max(left / cells, 1.0), places / length
        cell = np.arange(length) * cells // length
        labels = labels * cells + cell.reshape([-1 if a == axis else 1 for a in range(len(spatial))])
    return labels


def _usual(inputs: Tensor, places: int) -> int:
    if inputs.ndim == 2:
        return COLUMNS
    return WINDOWS if inputs.ndim == 3 else max(places // PIXELS, CELLS)


def _shared(inputs: Tensor, labels: Tensor, width: int) -> Segments:
    """One label map for all."""
    count = torch.full((len(inputs),), width, device=inputs.device)
    fallback = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    return Segments(labels.expand(len(inputs), *labels.shape), count, width, fallback)


def _given(inputs: Tensor, labels: Tensor, spatial: tuple[int, ...]) -> Segments:
    many = (len(inputs), *spatial)
    expected = f"labels of shape {spatial} or {many}"
    check(tuple(labels.shape) in (spatial, many), "segments", expected, tuple(labels.shape))
    each = labels.reshape(-1, int(np.prod(spatial))).numpy()
    renumbered = [np.unique(row, return_inverse=True)[1] for row in each]
    counts = [int(row.max()) + 1 for row in renumbered]
    check(min(counts) >= FEWEST, "segments", f"at least {FEWEST} different labels", min(counts))
    found = torch.from_numpy(np.stack(renumbered).astype(np.int64)).to(inputs.device)
    if len(found) != len(inputs) or tuple(labels.shape) == spatial:
        return _shared(inputs, found[0].reshape(spatial), counts[0])
    fallback = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    return Segments(found.reshape(many), torch.tensor(counts, device=inputs.device), max(counts), fallback)


def _superpixels(inputs: Tensor, count: int, find: Callable[[Image], Labels], least: int, most: int) -> Segments:
    """What `find` makes of each image; a grid of `count` cells where that is not from `least` to `most` segments."""
    regular = grid(spatial_shape(inputs), count)
    width = max(most, int(regular.max()) + 1)
    maps, fallback = [], []
    for image in inputs.detach().double().cpu().numpy():
        low, high = image.min(), image.max()
        found = regular
        if high > low:
            raw = find((image - low) / (high - low))
            found = np.unique(raw, return_inverse=True)[1].reshape(regular.shape).astype(np.int64)
        kept = high > low and least <= found.max() + 1 <= width
        maps.append(found if kept else regular)
        fallback.append(not kept)
    counts = torch.tensor([int(found.max()) + 1 for found in maps], device=inputs.device)
    labels = torch.from_numpy(np.stack(maps)).to(inputs.device)
    return Segments(labels, counts, width, torch.tensor(fallback, device=inputs.device))


def _slic(image: Image, count: int) -> Labels:
    """Superpixels of one image `(C, H, W)` in [0, 1]."""
    if len(image) == 3:
        return slic(convert_to_lab(image), count, _COMPACTNESS_LAB)
    return slic(image, count, _COMPACTNESS)


def _quickshift(image: Image) -> Labels:
    """Pieces of one image `(C, H, W)` in [0, 1]."""
    kernel = max(1.0, min(image.shape[1:]) / _KERNELS)
    if len(image) == 3:
        return quickshift(convert_to_lab(image), _RATIO_LAB, kernel, _LINK * kernel)
    return quickshift(100 * image, _RATIO, kernel, _LINK * kernel)


def _described(labels: Tensor) -> str:
    kind = f"a {labels.dtype} tensor of shape {tuple(labels.shape)}"
    return f"{kind} with values from {labels.min().item()}" if labels.numel() and not labels.is_complex() else kind
