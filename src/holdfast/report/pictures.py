"""Pictures of inputs and their explanations: small PNGs for images, small SVGs for series and flat features."""

from __future__ import annotations

import base64
import struct
import zlib
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


def drawn(shown: Picture, bounds: tuple[float, float]) -> str:
    """A picture as a data URI, inputs on the scale of the data's `bounds`, or on their own if not known."""
    array = np.asarray(shown.array, dtype=float)
    if shown.signed:
        return signed_picture(array)
    low, high = bounds
    if not (np.isfinite(low) and np.isfinite(high)):
        finite = np.nan_to_num(array)
        low, high = float(finite.min()), float(finite.max())
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


def thin(array: Array) -> Array:
    """`(C, H, W)` averaged over blocks, so that no side is longer than `PIXELS`."""
    block = -(-max(array.shape[1:]) // PIXELS)
    if block == 1:
        return array
    height, width = (side // block * block for side in array.shape[1:])
    blocks = array[:, :height, :width].reshape(array.shape[0], height // block, block, width // block, block)
    averaged: Array = blocks.mean(axis=(2, 4))
    return averaged


def png(rgb: Array) -> str:
    """An image `(H, W, 3)` in [0, 1] as the data URI of a PNG."""
    pixels = np.rint(rgb * 255).astype(np.uint8)
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + content).decode()


def _drawn(array: Array, low: float, high: float, signed: bool) -> str:
    """Lines for `(C, T)`, bars for `(F,)`; anything else is flattened to bars."""
    span = (high - low) or 1.0

    def up(values: Array) -> Array:
        return 96.0 - 92.0 * (values - low) / span

    zero = float(up(np.array(min(max(0.0, low), high))))
    shapes = [f'<path d="M0 {zero:.1f}H120" stroke="#999" stroke-width=".7"/>']
    if array.ndim == 2:
        for channel, colour in zip(array, ("#0072B2", "#D55E00", "#009E73", "#CC79A7") * len(array), strict=False):
            line = channel[:: -(-len(channel) // POINTS)]
            x = np.linspace(2, 118, len(line))
            points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, up(line), strict=True))
            shapes.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    else:
        flat = array.reshape(-1)
        flat = flat[:: -(-len(flat) // POINTS)]
        width = 116 / max(len(flat), 1)
        for place, (value, y) in enumerate(zip(flat, up(flat), strict=True)):
            colour = "#777" if not signed else "#b2182b" if value > 0 else "#2166ac"
            shapes.append(
                f'<rect x="{2 + width * place:.2f}" y="{min(y, zero):.1f}" width="{0.85 * width:.2f}" '
                f'height="{abs(zero - y):.1f}" fill="{colour}"/>'
            )
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 120 100">{"".join(shapes)}</svg>'
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
