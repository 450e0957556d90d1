"""Images and their explanations as data URIs: PNGs, and WebP for large inputs, of which a page may have thousands."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from standfast.report.charts import Picture
from standfast.report.maps import LARGE, add_channels, colour_signed, find_limit, scale_input
from standfast.tensors import Array

#: the largest number of pixels on a side of a picture
PIXELS = 160
#: how many colours a large map has on each side of zero; large inputs are WebP
SHADES = 31
#: the greys of an image under marks: how many, the darkest, the palest
GREYS = 12
DARKEST = 0xB0
PALEST = 0xF6
#: the greys of stripes where a map that was moved back has no values
UNSEEN = (0xB4, 0xD8)


def draw_picture(picture: Picture, bounds: tuple[float, float]) -> str | None:
    """Draw an image `(C, H, W)` as a data URI; None for a map that is the same everywhere, which shows nothing.

    An input is on the scale of the data's `bounds`, or on its own where these are not finite. It is in colour if it has
    three channels, and otherwise grey; pale grey under marks. A map is red above zero and blue below, on its own
    symmetric scale, and its channels are added.
    """
    array = np.asarray(picture.array, dtype=float)
    if picture.signed:
        return _draw_map(array, picture.moved_back)
    scaled = scale_input(np.nan_to_num(array), bounds)
    shades = shrink(scaled)
    if len(shades) != 3 or picture.marks is not None:
        shades = shades.mean(axis=0, keepdims=True).repeat(3, axis=0)
    rgb = np.moveaxis(shades, 0, -1)
    if picture.marks is not None:
        return _draw_marks(picture, rgb)
    is_large = max(rgb.shape[:2]) > LARGE
    kind = "WEBP" if is_large else "PNG"
    return encode_image(rgb, kind)


def _draw_marks(picture: Picture, rgb: Array) -> str:
    """Draw the marks of a picture in their colours on its pale grey shades `(height, width, 3)`."""
    colours = []
    for colour in picture.colours:
        colours.append(list(bytes.fromhex(colour[1:])))
    no_mark = len(colours) + 1
    marks = np.asarray(picture.marks)
    lowest = np.where(marks > 0, marks, no_mark)
    blocks = cut_into_blocks(lowest[None])[0]
    lowest = blocks.min(axis=(1, 3)).astype(int)
    # few greys, so that the PNG has a palette
    shades = np.rint((GREYS - 1) * rgb) / (GREYS - 1)
    pale = np.rint(DARKEST + (PALEST - DARKEST) * shades)
    # the last colour is that of `no_mark`, and is never seen
    palette = np.array([*colours, [0, 0, 0]])
    painted = palette[lowest - 1]
    is_marked = lowest[..., None] < no_mark
    return encode_image(np.where(is_marked, painted, pale) / 255)


def _draw_map(array: Array, hatch: bool) -> str | None:
    """Draw a map `(C, H, W)`; with `hatch`, positions that are NaN in all channels are hatched, and otherwise NaN is 0.

    The scale ends at the largest value. In large pictures the largest hundredth of the values has full colour.
    """
    summed, unseen = add_channels(array)
    # a pixel of the picture is hidden where most of its positions are
    is_hidden = unseen & hatch
    share_hidden = shrink(is_hidden[None].astype(float))[0]
    hidden = share_hidden > 0.5
    flat = shrink(summed[None])[0]
    in_view = flat[~hidden]
    if not in_view.size or np.ptp(in_view) == 0:
        return None
    limit = find_limit(flat, ~hidden)
    values = np.clip(flat / limit, -1, 1)
    if max(flat.shape) > LARGE:
        # fewer colours, so that the PNG has a palette
        values = np.rint(values * SHADES) / SHADES
    colours = colour_signed(values)
    height, width = hidden.shape
    colours[hidden] = _hatch(height, width)[hidden]
    return encode_image(colours)


def _hatch(height: int, width: int) -> Array:
    """Diagonal stripes in two greys, `(height, width, 3)`, about eight across a picture."""
    stripe = max(1, round(min(height, width) / 16))
    rows, columns = np.indices((height, width))
    is_dark = (rows + columns) // stripe % 2 == 0
    grey = np.where(is_dark, UNSEEN[0], UNSEEN[1]) / 255
    rgb = grey[..., None].repeat(3, axis=-1)
    return np.asarray(rgb)


def shrink(array: Array) -> Array:
    """Average `(C, H, W)` over blocks, so that no side is longer than `PIXELS`."""
    averaged: Array = cut_into_blocks(array).mean(axis=(2, 4))
    return averaged


def cut_into_blocks(array: Array) -> Array:
    """Cut `(C, H, W)` into the least blocks that leave `PIXELS` on a side: `(C, rows, side, columns, side)`."""
    channels, height, width = array.shape
    side = -(-max(height, width) // PIXELS)
    rows = height // side
    columns = width // side
    # what is left over at the edge is cut off
    whole = array[:, : rows * side, : columns * side]
    return whole.reshape(channels, rows, side, columns, side)


def encode_image(rgb: Array, kind: str = "PNG") -> str:
    """Encode an image `(H, W, 3)` in [0, 1] as a data URI; a PNG of up to 256 colours has a palette.

    A WebP of a photo has a tenth of a PNG's bytes.
    """
    pixels = np.rint(rgb * 255).astype(np.uint8)
    image = Image.fromarray(pixels)
    if kind == "PNG":
        # a number for each colour
        colours = pixels.astype(int) @ np.array([65536, 256, 1])
        palette, indices = np.unique(colours, return_inverse=True)
        if len(palette) <= 256:
            numbers = indices.reshape(pixels.shape[:2]).astype(np.uint8)
            image = Image.fromarray(numbers)
            bytes_of_colours = [colour.to_bytes(3, "big") for colour in palette.tolist()]
            image.putpalette(b"".join(bytes_of_colours))
    content = io.BytesIO()
    image.save(content, kind, quality=80)
    text = base64.b64encode(content.getvalue()).decode()
    return f"data:image/{kind.lower()};base64,{text}"
