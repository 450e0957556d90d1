"""Superpixels of one image: SLIC and quickshift, and CIELAB, in which they compare colours.

Both give the labels that scikit-image gives, with its defaults: the tests compare them label by label. They stand here
because scikit-image and the scipy that it needs take 180 MB. The price is time: without numba (extra `fast`) SLIC takes
five to six times as long as the compiled one there, quickshift about twice as long (`benchmarks/superpixels.py`).

SLIC: Achanta, Shaji, Smith, Lucchi, Fua, Süsstrunk, "SLIC superpixels compared to state-of-the-art superpixel methods",
IEEE TPAMI 34(11), 2012. Quickshift: Vedaldi, Soatto, "Quick shift and kernel methods for mode seeking", ECCV 2008.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from standfast.tensors import Array, compile_loops

Labels = npt.NDArray[np.int64]
Image = npt.NDArray[np.float64]

ITERATIONS = 10
#: pieces of less than half the usual size join a neighbour; none is larger than three times it
_LEAST, _MOST = 0.5, 3
#: pixels compared with centres at a time; about 60 bytes of working memory each
_CHUNK = 1 << 17
# sRGB to CIE XYZ, and the white of daylight D65 (IEC 61966-2-1); CIELAB is linear below the threshold
_XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
_WHITE = np.array([0.95047, 1.0, 1.08883])
_LINEAR = 0.008856


def convert_to_lab(image: Image) -> Image:
    """An sRGB image `(3, H, W)` in [0, 1] in CIELAB: lightness from 0 to 100, and two axes of colour.

    >>> convert_to_lab(np.ones((3, 1, 1))).round(1).ravel().tolist()
    [100.0, -0.0, 0.0]
    """
    rgb = np.moveaxis(image, 0, -1)
    linear = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    xyz = linear @ _XYZ.T / _WHITE
    x, y, z = np.moveaxis(np.where(xyz > _LINEAR, np.cbrt(xyz), 7.787 * xyz + 16 / 116), -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def slic(image: Image, count: int, compactness: float) -> Labels:
    """About `count` connected superpixels: k-means over position and colour.

    A pixel is compared with the centres that are at most two steps of a grid away in each direction.

    Args:
        image: `(C, H, W)`, finite.
        count: of centres, at least 1.
        compactness: the weight of distance in the image against distance in colour; above 0.

    Returns:
        Labels from 0, `(H, W)`.

    >>> image = np.zeros((1, 4, 8))
    >>> image[:, :, 4:] = 1.0
    >>> slic(image, 2, 0.1)[0].tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    shape: tuple[int, int] = image.shape[1:]
    spacing = _grid_steps(shape, count)
    seeds = (np.arange(length)[int(step // 2) :: round(step)] for length, step in zip(shape, spacing, strict=True))
    centres = np.stack([*map(np.ravel, np.meshgrid(*seeds, indexing="ij"))]).astype(float)
    centres = np.concatenate([centres, np.zeros((len(image), centres.shape[1]))])
    weight = 1 / max(map(round, spacing)) ** 2
    # the steps of a grid of as many centres as there are now
    reach = tuple(2 * round(step) for step in _grid_steps(shape, centres.shape[1]))
    features = np.concatenate([np.indices(shape), image * (1 / compactness)]).reshape(len(centres), -1)
    labels = np.zeros(features.shape[1], np.int64)
    for _ in range(ITERATIONS):
        before = labels.copy()
        _assign(labels, features, centres, shape, reach, weight)
        if np.array_equal(labels, before):
            break
        members = np.bincount(labels, minlength=centres.shape[1])
        with np.errstate(invalid="ignore"):  # a centre without members becomes NaN, and is near to nothing from then on
            centres = np.stack([np.bincount(labels, f, minlength=len(members)) for f in features]) / members
    usual = len(labels) / centres.shape[1]
    return _connect(labels.reshape(shape), int(_LEAST * usual), int(_MOST * usual))


def _grid_steps(shape: tuple[int, int], count: int) -> tuple[float, float]:
    """Distances down and across between the points of a grid of about `count`."""
    places = shape[0] * shape[1]
    step = math.sqrt(places / count)
    if step <= 1:
        return 1.0, 1.0
    if min(shape) >= step:
        return step, step
    return (shape[0], shape[1] / count) if shape[0] < shape[1] else (shape[0] / count, shape[1])


def _assign(
    labels: Labels, features: Array, centres: Array, shape: tuple[int, int], reach: tuple[int, ...], weight: float
) -> None:
    """Label each pixel `(P,)` with its nearest centre, of equally near ones the first.

    `features` `(F, P)` and `centres` `(F, K)` are row, column and colours; `weight` is that of squared distance in the
    image, and `reach` how far a centre is looked for, down and across.
    """
    if (compiled := _compile_assign()) is not None:
        compiled(labels, features, centres, *shape, *reach, weight)
        return
    nearest = np.full(len(labels), np.inf)
    size = math.prod(min(2 * far + 2, length) for far, length in zip(reach, shape, strict=True))
    for start in range(0, centres.shape[1], max(1, _CHUNK // size)):
        some = centres[:, start : start + max(1, _CHUNK // size), None]
        down, rows = _window(some[0], reach[0], shape[0])
        across, columns = _window(some[1], reach[1], shape[1])
        pixels = (shape[1] * rows)[:, :, None] + columns[:, None, :]
        distance = (down[:, :, None] + across[:, None, :]) * weight
        colour = np.zeros_like(distance)
        for feature, centre in zip(features[2:], some[2:], strict=True):
            off = feature.take(pixels)
            off -= centre[:, :, None]
            off *= off
            colour += off
        distance += colour
        pixels, distance = pixels.ravel(), distance.ravel()
        nearer = np.flatnonzero(distance < nearest.take(pixels))
        pixels, distance = pixels[nearer], distance[nearer]
        np.minimum.at(nearest, pixels, distance)
        found = distance == nearest.take(pixels)
        # backwards: of several values for one place the last one stays
        labels[pixels[found][::-1]] = (start + nearer[found] // size)[::-1]


def _window(centre: Array, reach: int, length: int) -> tuple[Array, Labels]:
    """Squared distances from centres `(K, 1)` to the places of their windows, infinite outside; and these places."""
    first = np.maximum(np.nan_to_num(centre - reach, nan=length), 0.0)
    places = first.astype(np.int64) + np.arange(min(2 * reach + 2, length))
    inside = (places < length) & (places <= np.floor(centre + reach))
    return np.where(inside, (centre - places) ** 2, np.inf), np.minimum(places, length - 1)


@functools.cache
def _compile_assign() -> Callable[..., None] | None:
    return compile_loops(
        _assign_each,
        "void(int64[::1], float64[:, ::1], float64[:, ::1], int64, int64, int64, int64, float64)",
    )


def _assign_each(
    labels: Any, features: Any, centres: Any, height: int, width: int, down: int, across: int, weight: float
) -> None:
    """`_assign`, centre by centre and pixel by pixel; `down` and `across` are the reach."""
    nearest = np.full(len(labels), np.inf)
    for centre in range(centres.shape[1]):
        row, column = centres[0, centre], centres[1, centre]
        if np.isnan(row) or np.isnan(column):
            continue
        for i in range(int(max(row - down, 0.0)), min(height, int(np.floor(row + down)) + 1)):
            for j in range(int(max(column - across, 0.0)), min(width, int(np.floor(column + across)) + 1)):
                pixel, colour = i * width + j, 0.0
                for feature in range(2, len(features)):
                    off = features[feature, pixel] - centres[feature, centre]
                    colour += off * off
                distance = ((row - i) ** 2 + (column - j) ** 2) * weight + colour
                if distance < nearest[pixel]:
                    nearest[pixel], labels[pixel] = distance, centre


def _connect(labels: Labels, least: int, most: int) -> Labels:
    """Connected pieces `(H, W)`, numbered from the top left; pieces of fewer than `least` pixels join a neighbour.

    A piece that has grown to `most` pixels is cut off there.
    """
    wide = labels.shape[1] + 2
    old = np.pad(labels, 1, constant_values=-1).ravel()  # a frame, so that every pixel has four neighbours
    new, piece, compiled = np.full_like(old, -1), np.zeros_like(old), _compile_connect()
    if compiled is not None:
        compiled(old, new, piece, wide, least, most)
        return new.reshape(-1, wide)[1:-1, 1:-1]
    numbers = new.tolist()  # Python is faster with lists
    _connect_each(old.tolist(), numbers, piece.tolist(), wide, least, most)
    return np.array(numbers).reshape(-1, wide)[1:-1, 1:-1]


@functools.cache
def _compile_connect() -> Callable[..., None] | None:
    return compile_loops(_connect_each, "void(int64[::1], int64[::1], int64[::1], int64, int64, int64)")


def _connect_each(old: Any, new: Any, piece: Any, wide: int, least: int, most: int) -> None:
    """Number the pieces of the labels `old` in `new`, -1 in the frame; `piece` is working memory."""
    number = 0
    for start in range(len(old)):
        if old[start] < 0 or new[start] >= 0:
            continue
        piece[0], size, seen, neighbour = start, 1, 0, 0
        new[start] = number
        while seen < size < most:
            for step in (1, -1, wide, -wide):
                place = piece[seen] + step
                if old[place] == old[start] and new[place] < 0:
                    new[place] = number
                    piece[size] = place
                    size += 1
                    if size >= most:
                        break
                elif new[place] >= 0 and new[place] != number:
                    neighbour = new[place]
            seen += 1
        if size < least:
            for member in range(size):
                new[piece[member]] = neighbour
        else:
            number += 1


def quickshift(image: Image, ratio: float, kernel: float, reach: float) -> Labels:
    """Pieces of an image: each pixel joins the nearest one, in place and colour, of higher density.

    Args:
        image: `(C, H, W)`, finite.
        ratio: the weight of colour against distance in the image.
        kernel: the standard deviation of the Gaussian kernel of the density, in pixels; at least 1.
            Pixels further away than 3 of it, in a direction, are not compared.
        reach: the longest link to a pixel of higher density.

    Returns:
        Labels from 0, `(H, W)`.

    >>> image = np.zeros((1, 4, 8))
    >>> image[:, :, 4:] = 1.0
    >>> quickshift(image, 20.0, 2.0, 10.0)[0].tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    image = image * ratio
    shape = image.shape[1:]
    width = math.ceil(3 * kernel)
    density = np.zeros(shape)
    for here, _, squared in _shifts(image, width):
        density[here] += np.exp(squared * (-0.5 / kernel**2))
    density += np.random.default_rng(0).normal(scale=1e-5, size=shape)  # breaks ties, the same for every image
    places = np.arange(density.size).reshape(shape)
    parent, closest = places.copy(), np.full(shape, np.inf)
    for here, there, squared in _shifts(image, width):
        closer = (density[there] > density[here]) & (squared < closest[here])
        np.copyto(closest[here], squared, where=closer)
        np.copyto(parent[here], places[there], where=closer)
    root = np.where(np.sqrt(closest) > reach, places, parent).ravel()
    while not np.array_equal(root, root[root]):
        root = root[root]
    return np.unique(root, return_inverse=True)[1].reshape(shape).astype(np.int64)


Part = tuple[slice, slice]


def _shifts(image: Image, width: int) -> Iterator[tuple[Part, Part, Array]]:
    """Pixels, those at one offset of up to `width` from them, and their squared distances; for all such offsets."""
    height, length = image.shape[1:]
    for down in range(-min(width, height - 1), min(width, height - 1) + 1):
        for across in range(-min(width, length - 1), min(width, length - 1) + 1):
            here = slice(max(-down, 0), height - max(down, 0)), slice(max(-across, 0), length - max(across, 0))
            there = slice(max(down, 0), height + min(down, 0)), slice(max(across, 0), length + min(across, 0))
            squared = sum((channel[here] - channel[there]) ** 2 for channel in image)
            yield here, there, squared + float(down**2) + float(across**2)
