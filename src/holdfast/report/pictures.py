"""Pictures of inputs and their explanations as data URIs: PNGs for images, SVGs for series and flat features."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from holdfast.charts import Picture
from holdfast.tensors import Array

#: the largest number of pixels on a side of a picture, and of points on a line
PIXELS, POINTS = 112, 400
#: the colours of signed maps: from blue over white to red (ColorBrewer's RdBu)
SIGNED = (
    *((0x05, 0x30, 0x61), (0x21, 0x66, 0xAC), (0x43, 0x93, 0xC3), (0x92, 0xC5, 0xDE), (0xD1, 0xE5, 0xF0)),
    (0xF7, 0xF7, 0xF7),
    *((0xFD, 0xDB, 0xC7), (0xF4, 0xA5, 0x82), (0xD6, 0x60, 0x4D), (0xB2, 0x18, 0x2B), (0x67, 0x00, 0x1F)),
)
#: the greys of an image under marks: how many, the darkest, the palest
GREYS, DARKEST, PALEST = 12, 0xB0, 0xF6
#: series in lanes: their width, the height of all, the least and the largest height of one
LANE_WIDTH, LANES, LANE = 360, 240, (14, 60)


def draw_picture(picture: Picture, bounds: tuple[float, float]) -> str:
    """Draw a picture as a data URI; an input on the scale of the data's `bounds`, or on its own if they are NaN."""
    array = np.asarray(picture.array, dtype=float)
    if picture.signed:
        return draw_map(array)
    low, high = bounds
    if not (np.isfinite(low) and np.isfinite(high)):
        finite = np.nan_to_num(array)
        low, high = float(finite.min()), float(finite.max())
    if picture.marks is not None and np.ndim(picture.marks) == array.ndim < 3:
        return draw_marked_entries(array, np.asarray(picture.marks), picture.colours)
    if picture.marks is not None and array.ndim in (2, 3):
        return draw_marked_input(array, np.asarray(picture.marks), picture.colours, low, high)
    return draw_input(array, low, high)


def draw_input(array: Array, low: float, high: float) -> str:
    """Draw an input as a data URI: `(C, H, W)` as an image, `(C, T)` as lines, `(F,)` as bars."""
    array = np.nan_to_num(array.astype(float))
    if array.ndim == 3:
        colours = array if array.shape[0] == 3 else array.mean(axis=0, keepdims=True).repeat(3, axis=0)
        span = (high - low) or 1.0
        return encode_png(np.moveaxis(np.clip((shrink(colours) - low) / span, 0, 1), 0, -1))
    return _draw_shapes(array, min(low, float(array.min())), max(high, float(array.max())), signed=False)


def draw_map(array: Array) -> str:
    """Draw a map as a data URI: red above zero, blue below, on its own symmetric scale. Channels are added."""
    array = np.nan_to_num(array.astype(float))
    if array.ndim != 3:
        limit = float(np.abs(array).max()) or 1.0
        return _draw_shapes(array, -limit, limit, signed=True)
    flat = shrink(array.sum(axis=0, keepdims=True))[0]
    limit = float(np.abs(flat).max()) or 1.0
    stops, at = np.linspace(-1, 1, len(SIGNED)), flat / limit
    colours = np.asarray(SIGNED, dtype=float).T / 255
    return encode_png(np.stack([np.interp(at, stops, channel) for channel in colours], axis=-1))


def draw_marked_input(array: Array, marks: Array, colours: Sequence[str], low: float, high: float) -> str:
    """Draw a pale input with coloured positions (`Picture.marks`) as a data URI.

    An image `(C, H, W)` is grey, with coloured pixels. A series `(C, T)` has coloured bands behind its lines.
    """
    array = np.nan_to_num(array.astype(float))
    if array.ndim != 3:
        low, high = min(low, float(array.min())), max(high, float(array.max()))
        return _draw_shapes(array, low, high, signed=False, bands=_bands(marks, colours))
    share = np.clip((shrink(array.mean(axis=0, keepdims=True))[0] - low) / ((high - low) or 1.0), 0, 1)
    none = len(colours) + 1
    chosen = cut_into_blocks(np.where(marks > 0, marks, none)[None])[0].min(axis=(1, 3))
    greys = np.rint(np.linspace(DARKEST, PALEST, GREYS))[:, None].repeat(3, axis=1)
    palette = np.concatenate([greys, [list(bytes.fromhex(colour[1:])) for colour in colours]])
    places = np.where(chosen == none, np.rint((GREYS - 1) * share), GREYS - 1 + chosen)
    return _png(places.astype(np.uint8), palette.astype(np.uint8))


def draw_marked_entries(array: Array, marks: Array, colours: Sequence[str]) -> str:
    """Draw a series `(C, T)` with a lane per channel and coloured points, or features `(F,)` with coloured bars."""
    array = np.nan_to_num(array.astype(float))
    if array.ndim == 1:
        return _draw_shapes(
            array, min(0.0, float(array.min())), max(0.0, float(array.max())), signed=False, paint=(marks, colours)
        )
    channels, steps = array.shape
    lane = float(np.clip(LANES / channels, *LANE))
    low, high = float(array.min()), float(array.max())
    x = 2 + (LANE_WIDTH - 4) * np.arange(steps) / max(steps - 1, 1)
    shapes = []
    for channel in range(channels):
        y = lane * (channel + 1) - 3 - (lane - 6) * (array[channel] - low) / ((high - low) or 1.0)
        stride = -(-steps // POINTS)
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x[::stride], y[::stride], strict=True))
        if channel:
            shapes.append(f'<path d="M0 {lane * channel:.1f}H{LANE_WIDTH}" stroke="#ddd" stroke-width=".6"/>')
        shapes.append(f'<polyline points="{line}" fill="none" stroke="#777" stroke-width=".8"/>')
        for place, colour in reversed(list(enumerate(colours, 1))):  # the first mark on top of the others
            dots = "".join(f"M{x[i]:.1f} {y[i]:.1f}h.01" for i in np.flatnonzero(marks[channel] == place))
            if dots:
                shapes.append(f'<path d="{dots}" stroke="{colour}" stroke-width="3.2" stroke-linecap="round"/>')
    return _svg(shapes, LANE_WIDTH, lane * channels)


def shrink(array: Array) -> Array:
    """Average `(C, H, W)` over blocks, so that no side is longer than `PIXELS`."""
    averaged: Array = cut_into_blocks(array).mean(axis=(2, 4))
    return averaged


def cut_into_blocks(array: Array) -> Array:
    """Cut `(C, H, W)` into the least blocks that leave `PIXELS` on a side: `(C, rows, side, columns, side)`."""
    block = -(-max(array.shape[1:]) // PIXELS)
    height, width = (side // block * block for side in array.shape[1:])
    return array[:, :height, :width].reshape(array.shape[0], height // block, block, width // block, block)


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


def _bands(marks: Array, colours: Sequence[str]) -> list[str]:
    """A rectangle for every run of steps `(T,)` with the same mark, as wide as these steps in a drawing."""
    step = 116 / max(len(marks) - 1, 1)
    starts = [0, *(np.flatnonzero(np.diff(marks)) + 1).tolist(), len(marks)]
    return [
        f'<rect x="{2 + step * (first - 0.5):.2f}" y="0" width="{step * (last - first):.2f}" height="100" '
        f'fill="{colours[marks[first] - 1]}"/>'
        for first, last in pairwise(starts)
        if marks[first] > 0
    ]


def _draw_shapes(
    array: Array,
    low: float,
    high: float,
    signed: bool,
    bands: Sequence[str] | None = None,
    paint: tuple[Array, Sequence[str]] | None = None,
) -> str:
    """Draw lines for `(C, T)`, in grey over `bands` if there are any, and bars for any other shape.

    `paint` has the marks of the bars and their colours.
    """
    span = (high - low) or 1.0

    def up(values: Array) -> Array:
        return 96.0 - 92.0 * (values - low) / span

    zero = float(up(np.array(min(max(0.0, low), high))))
    shapes = [*(bands or ()), f'<path d="M0 {zero:.1f}H120" stroke="#999" stroke-width=".7"/>']
    own = ("#0072B2", "#D55E00", "#009E73", "#CC79A7") if bands is None else ("#333", "#777")
    if array.ndim == 2:
        for channel, colour in zip(array, own * len(array), strict=False):
            line = channel[:: -(-len(channel) // POINTS)]
            x = np.linspace(2, 118, len(line))
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, up(line), strict=True))
            shapes.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    else:
        flat = array.reshape(-1)
        stride = -(-len(flat) // POINTS)
        flat, marks = flat[::stride], None if paint is None else paint[0].reshape(-1)[::stride]
        width = 116 / max(len(flat), 1)
        for place, (value, y) in enumerate(zip(flat, up(flat), strict=True)):
            colour = "#777" if not signed else "#b2182b" if value > 0 else "#2166ac"
            if paint is not None and marks is not None:
                colour = paint[1][marks[place] - 1] if marks[place] > 0 else "#c4c6c8"
            shapes.append(
                f'<rect x="{2 + width * place:.2f}" y="{min(y, zero):.1f}" width="{0.85 * width:.2f}" '
                f'height="{abs(zero - y):.1f}" fill="{colour}"/>'
            )
    return _svg(shapes, 120, 100)


def _svg(shapes: Sequence[str], width: float, height: float) -> str:
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">{"".join(shapes)}</svg>'
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
