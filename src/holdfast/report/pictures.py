"""Pictures of inputs and their explanations: small PNGs for images, small SVGs for series and flat features."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from holdfast.charts import Picture

Array = np.ndarray[Any, Any]

#: pictures are thinned out to this many pixels, lines to this many points
PIXELS, POINTS = 112, 400
#: from blue over white to red (ColorBrewer's RdBu), for signed maps
SIGNED = (
    *((0x05, 0x30, 0x61), (0x21, 0x66, 0xAC), (0x43, 0x93, 0xC3), (0x92, 0xC5, 0xDE), (0xD1, 0xE5, 0xF0)),
    (0xF7, 0xF7, 0xF7),
    *((0xFD, 0xDB, 0xC7), (0xF4, 0xA5, 0x82), (0xD6, 0x60, 0x4D), (0xB2, 0x18, 0x2B), (0x67, 0x00, 0x1F)),
)
#: of an image under marks: so many greys, from the darkest to the palest
GREYS, DARKEST, PALEST = 12, 0xB0, 0xF6
#: of series in lanes: width, height of all, least and largest height of one
LANE_WIDTH, LANES, LANE = 360, 240, (14, 60)


def drawn(shown: Picture, bounds: tuple[float, float]) -> str:
    """A picture as a data URI, inputs on the scale of the data's `bounds`, or on their own if not known."""
    array = np.asarray(shown.array, dtype=float)
    if shown.signed:
        return signed_picture(array)
    low, high = bounds
    if not (np.isfinite(low) and np.isfinite(high)):
        finite = np.nan_to_num(array)
        low, high = float(finite.min()), float(finite.max())
    if shown.marks is not None and np.ndim(shown.marks) == array.ndim < 3:
        return marked_entries(array, np.asarray(shown.marks), shown.colours)
    if shown.marks is not None and array.ndim in (2, 3):
        return marked_picture(array, np.asarray(shown.marks), shown.colours, low, high)
    return picture(array, low, high)


def picture(array: Array, low: float, high: float) -> str:
    """An input as a data URI: `(H, W)`, `(C, H, W)` as an image, `(C, T)` as lines, `(F,)` as bars."""
    array = np.nan_to_num(array.astype(float))
    if array.ndim == 3:
        colours = array if array.shape[0] == 3 else array.mean(axis=0, keepdims=True).repeat(3, axis=0)
        span = (high - low) or 1.0
        return png(np.moveaxis(np.clip((thin(colours) - low) / span, 0, 1), 0, -1))
    return _drawn(array, min(low, float(array.min())), max(high, float(array.max())), signed=False)


def signed_picture(array: Array) -> str:
    """A map as a data URI: red above zero, blue below, on its own symmetric scale. Channels are added."""
    array = np.nan_to_num(array.astype(float))
    if array.ndim != 3:
        limit = float(np.abs(array).max()) or 1.0
        return _drawn(array, -limit, limit, signed=True)
    flat = thin(array.sum(axis=0, keepdims=True))[0]
    limit = float(np.abs(flat).max()) or 1.0
    stops, at = np.linspace(-1, 1, len(SIGNED)), flat / limit
    colours = np.asarray(SIGNED, dtype=float).T / 255
    return png(np.stack([np.interp(at, stops, channel) for channel in colours], axis=-1))


def marked_picture(array: Array, marks: Array, colours: Sequence[str], low: float, high: float) -> str:
    """An input as a data URI, pale, with the positions in colour that `marks` names: see `Picture`.

    An image `(C, H, W)` is grey, with coloured pixels; behind the lines of a series `(C, T)` stand coloured bands.
    """
    array = np.nan_to_num(array.astype(float))
    if array.ndim != 3:
        low, high = min(low, float(array.min())), max(high, float(array.max()))
        return _drawn(array, low, high, signed=False, bands=_bands(marks, colours))
    share = np.clip((thin(array.mean(axis=0, keepdims=True))[0] - low) / ((high - low) or 1.0), 0, 1)
    none = len(colours) + 1
    chosen = blocks(np.where(marks > 0, marks, none)[None])[0].min(axis=(1, 3))
    greys = np.rint(np.linspace(DARKEST, PALEST, GREYS))[:, None].repeat(3, axis=1)
    palette = np.concatenate([greys, [list(bytes.fromhex(colour[1:])) for colour in colours]])
    places = np.where(chosen == none, np.rint((GREYS - 1) * share), GREYS - 1 + chosen)
    return _png(places.astype(np.uint8), palette.astype(np.uint8))


def marked_entries(array: Array, marks: Array, colours: Sequence[str]) -> str:
    """A series `(C, T)` as a data URI, a lane for each channel on one scale, with coloured points on its lines.

    Of features `(F,)` the bars are coloured.
    """
    array = np.nan_to_num(array.astype(float))
    if array.ndim == 1:
        return _drawn(
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
        for place, colour in reversed(list(enumerate(colours, 1))):  # what is marked first is drawn last
            dots = "".join(f"M{x[i]:.1f} {y[i]:.1f}h.01" for i in np.flatnonzero(marks[channel] == place))
            if dots:
                shapes.append(f'<path d="{dots}" stroke="{colour}" stroke-width="3.2" stroke-linecap="round"/>')
    return _svg(shapes, LANE_WIDTH, lane * channels)


def thin(array: Array) -> Array:
    """`(C, H, W)` averaged over blocks, so that no side is longer than `PIXELS`."""
    averaged: Array = blocks(array).mean(axis=(2, 4))
    return averaged


def blocks(array: Array) -> Array:
    """`(C, H, W)` cut into square blocks `(C, rows, side, columns, side)`, the least that leave `PIXELS` a side."""
    block = -(-max(array.shape[1:]) // PIXELS)
    height, width = (side // block * block for side in array.shape[1:])
    return array[:, :height, :width].reshape(array.shape[0], height // block, block, width // block, block)


def png(rgb: Array) -> str:
    """An image `(H, W, 3)` in [0, 1] as the data URI of a PNG."""
    return _png(np.rint(rgb * 255).astype(np.uint8))


def _png(pixels: Array, palette: Array | None = None) -> str:
    """Bytes `(H, W, 3)`, or places `(H, W)` in a palette of bytes `(n, 3)`."""
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if palette is None else 3, 0, 0, 0)
    colours = b"" if palette is None else chunk(b"PLTE", palette.tobytes())
    content = chunk(b"IHDR", header) + colours + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + content).decode()


def _bands(marks: Array, colours: Sequence[str]) -> list[str]:
    """A rectangle for every run of steps `(T,)` with the same mark, as wide as these steps are in a drawing."""
    step = 116 / max(len(marks) - 1, 1)
    starts = [0, *(np.flatnonzero(np.diff(marks)) + 1).tolist(), len(marks)]
    return [
        f'<rect x="{2 + step * (first - 0.5):.2f}" y="0" width="{step * (last - first):.2f}" height="100" '
        f'fill="{colours[marks[first] - 1]}"/>'
        for first, last in pairwise(starts)
        if marks[first] > 0
    ]


def _drawn(
    array: Array,
    low: float,
    high: float,
    signed: bool,
    bands: Sequence[str] | None = None,
    paint: tuple[Array, Sequence[str]] | None = None,
) -> str:
    """Lines for `(C, T)`, in grey before `bands` if there are any; bars for `(F,)`, and of anything else, flattened.

    `paint` gives bars marks and their colours.
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
