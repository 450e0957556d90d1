"""Images and their explanations as data URIs: PNGs, and WebP for large inputs, of which a page may have thousands."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

from standfast.report.charts import Picture
from standfast.tensors import Array

#: the largest number of pixels on a side of a picture
PIXELS = 160
#: pictures with a longer side are large: fewer colours of maps, inputs as WebP, and the scale below
LARGE = 64
#: the share of a large map's positions that are below full colour, because single pixels would make the others white
BELOW_FULL = 0.99
#: how many colours a large map has
SHADES = 63
#: the colours of signed maps: from blue over white to red (ColorBrewer's RdBu)
SIGNED = (
    *((0x05, 0x30, 0x61), (0x21, 0x66, 0xAC), (0x43, 0x93, 0xC3), (0x92, 0xC5, 0xDE), (0xD1, 0xE5, 0xF0)),
    (0xF7, 0xF7, 0xF7),
    *((0xFD, 0xDB, 0xC7), (0xF4, 0xA5, 0x82), (0xD6, 0x60, 0x4D), (0xB2, 0x18, 0x2B), (0x67, 0x00, 0x1F)),
)
#: the greys of an image under marks: how many, the darkest, the palest
GREYS, DARKEST, PALEST = 12, 0xB0, 0xF6
#: the greys of stripes where a map that was moved back has no values
UNSEEN = (0xB4, 0xD8)


def draw_picture(picture: Picture, bounds: tuple[float, float]) -> str:
    """Draw an image `(C, H, W)` as a data URI; an input on the scale of the data's `bounds`, or on its own.

    It is on its own scale where the bounds are not finite.
    """
    array = np.asarray(picture.array, dtype=float)
    if picture.signed:
        return draw_map(array, picture.moved_back)
    low, high = bounds
    if not (np.isfinite(low) and np.isfinite(high)):
        finite = np.nan_to_num(array)
        low, high = float(finite.min()), float(finite.max())
    if picture.marks is not None:
        return draw_marked_input(array, np.asarray(picture.marks), picture.colours, low, high)
    return draw_input(array, low, high)


def draw_input(array: Array, low: float, high: float) -> str:
    """Draw an image `(C, H, W)` as a data URI: in colour if it has three channels, otherwise grey."""
    array = np.nan_to_num(array.astype(float))
    colours = array if array.shape[0] == 3 else array.mean(axis=0, keepdims=True).repeat(3, axis=0)
    span = (high - low) or 1.0
    rgb = np.moveaxis(np.clip((shrink(colours) - low) / span, 0, 1), 0, -1)
    return encode_webp(rgb) if max(rgb.shape[:2]) > LARGE else encode_png(rgb)


def draw_map(array: Array, hatch: bool = False) -> str:
    """Draw a map `(C, H, W)` as a data URI: red above zero, blue below, on its own symmetric scale. Channels are added.

    The scale ends at the largest value. In large pictures the largest hundredth of the values has full colour.

    A map with the same value everywhere says nothing, and full colour would hide this: it is drawn as the word.

    Args:
        array: the map.
        hatch: hatch positions that are NaN in all channels; otherwise NaN counts as 0.
    """
    array = array.astype(float)
    unseen = np.isnan(array).all(axis=0, keepdims=True) & hatch
    flat = shrink(np.nan_to_num(array).sum(axis=0, keepdims=True))[0]
    hidden = shrink(unseen.astype(float))[0] > 0.5
    if hidden.all() or np.ptp(flat[~hidden]) == 0:
        return _CONSTANT
    large = max(flat.shape) > LARGE
    end = float(np.quantile(np.abs(flat[~hidden]), BELOW_FULL)) if large else 0.0
    values = np.clip(flat / (end or float(np.abs(flat).max())), -1, 1)
    if large:
        shades = colour_signed(np.linspace(-1, 1, SHADES))
        palette = np.concatenate([np.rint(shades * 255), np.array(UNSEEN)[:, None].repeat(3, axis=1)])
        stripes = np.where(hatch_positions(*hidden.shape)[..., 0] * 255 < sum(UNSEEN) / 2, SHADES, SHADES + 1)
        places = np.where(hidden, stripes, np.rint((values + 1) / 2 * (SHADES - 1)))
        return _png(places.astype(np.uint8), palette.astype(np.uint8))
    colours = colour_signed(values)
    colours[hidden] = hatch_positions(*hidden.shape)[hidden]
    return encode_png(colours)


def hatch_positions(height: int, width: int) -> Array:
    """Diagonal stripes in two greys, `(height, width, 3)`, about eight across a picture."""
    stripe = max(1, round(min(height, width) / 16))
    rows, columns = np.indices((height, width))
    dark = (rows + columns) // stripe % 2 == 0
    return np.where(dark, UNSEEN[0], UNSEEN[1])[..., None].repeat(3, axis=-1) / 255


def colour_signed(values: Array) -> Array:
    """The colours `(..., 3)` of values in [-1, 1]: blue below zero, red above.

    >>> colour_signed(np.array([0.0]))[0].round(2).tolist()
    [0.97, 0.97, 0.97]
    """
    stops, colours = np.linspace(-1, 1, len(SIGNED)), np.asarray(SIGNED, dtype=float).T / 255
    return np.stack([np.interp(values, stops, channel) for channel in colours], axis=-1)


_CONSTANT = (
    "data:image/svg+xml;base64,"
    + base64.b64encode(
        b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100"><rect width="100" height="100" fill="#f7f7f7"/>'
        b'<text x="50" y="55" font-family="sans-serif" font-size="17" fill="#5a6169" text-anchor="middle">'
        b"constant</text></svg>"
    ).decode()
)


def draw_marked_input(array: Array, marks: Array, colours: Sequence[str], low: float, high: float) -> str:
    """Draw a pale image `(C, H, W)` in grey, with coloured pixels (`Picture.marks`), as a data URI."""
    array = np.nan_to_num(array.astype(float))
    share = np.clip((shrink(array.mean(axis=0, keepdims=True))[0] - low) / ((high - low) or 1.0), 0, 1)
    none = len(colours) + 1
    chosen = cut_into_blocks(np.where(marks > 0, marks, none)[None])[0].min(axis=(1, 3))
    greys = np.rint(np.linspace(DARKEST, PALEST, GREYS))[:, None].repeat(3, axis=1)
    palette = np.concatenate([greys, [list(bytes.fromhex(colour[1:])) for colour in colours]])
    places = np.where(chosen == none, np.rint((GREYS - 1) * share), GREYS - 1 + chosen)
    return _png(places.astype(np.uint8), palette.astype(np.uint8))


def shrink(array: Array) -> Array:
    """Average `(C, H, W)` over blocks, so that no side is longer than `PIXELS`."""
    averaged: Array = cut_into_blocks(array).mean(axis=(2, 4))
    return averaged


def cut_into_blocks(array: Array) -> Array:
    """Cut `(C, H, W)` into the least blocks that leave `PIXELS` on a side: `(C, rows, side, columns, side)`."""
    block = -(-max(array.shape[1:]) // PIXELS)
    height, width = (side // block * block for side in array.shape[1:])
    return array[:, :height, :width].reshape(array.shape[0], height // block, block, width // block, block)


def encode_webp(rgb: Array) -> str:
    """Encode an image `(H, W, 3)` in [0, 1] as the data URI of a WebP: a tenth of a PNG's bytes for a photo."""
    content = io.BytesIO()
    Image.fromarray(np.rint(rgb * 255).astype(np.uint8)).save(content, "WEBP", quality=80)
    return "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode()


def encode_png(rgb: Array) -> str:
    """Encode an image `(H, W, 3)` in [0, 1] as the data URI of a PNG."""
    return _png(np.rint(rgb * 255).astype(np.uint8))


def _png(pixels: Array, palette: Array | None = None) -> str:
    """Encode bytes `(H, W, 3)`, or places `(H, W)` in a palette of bytes `(n, 3)`, as the data URI of a PNG."""
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if palette is None else 3, 0, 0, 0)
    colours = b"" if palette is None else chunk(b"PLTE", palette.tobytes())
    content = chunk(b"IHDR", header) + colours + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + content).decode()
