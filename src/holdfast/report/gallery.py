"""Pictures of inputs and their explanations: small PNGs for images, small SVGs for series and flat features."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np

from holdfast.report.results import SHOWN, SHOWN_SAMPLES, Array, Group, Results
from holdfast.report.summary import number

#: pictures are thinned out to this many pixels, lines to this many points
PIXELS, POINTS = 112, 400


@dataclass(frozen=True)
class Tile:
    """One picture: what it is, and its data URI."""

    title: str
    source: str
    alt: str


@dataclass(frozen=True)
class Row:
    """One explainer at one sample: its pictures, and what was found in words."""

    explainer: str
    tiles: tuple[Tile, ...]
    text: str
    found: bool


@dataclass(frozen=True)
class Shown:
    """One sample of one label, the explainers beneath each other."""

    sample: int
    rows: tuple[Row, ...]


def gallery(results: Results, label: str) -> list[Shown]:
    """The first samples of a worst-case label that any explainer was evaluated on."""
    groups = [group for group in results.of(label) if group.shown]
    samples = sorted({sample for group in groups for sample in group.shown})[:SHOWN_SAMPLES]
    low, high = _bounds(results)
    out = []
    for sample in samples:
        rows = [_row(group, sample, low, high) for group in groups if set(SHOWN) <= set(group.shown.get(sample, {}))]
        if rows:
            out.append(Shown(sample, tuple(rows)))
    return out


def _bounds(results: Results) -> tuple[float, float]:
    """The range of the inputs, over all features."""
    try:
        (low, _), (_, high) = results.manifest["bounds"]
        return float(low), float(high)
    except (KeyError, TypeError, ValueError):
        return float("nan"), float("nan")


def _row(group: Group, sample: int, low: float, high: float) -> Row:
    arrays = {name: np.asarray(group.shown[sample][name], dtype=float) for name in SHOWN}
    at = group.samples.index(sample)
    similarity, margin = float(group.column("similarity")[at]), float(group.column("margin")[at])
    before, after = (int(np.nan_to_num(group.column(name)[at], nan=-1)) for name in ("targets", "predicted"))
    found, bad = bool(group.flags("found")[at]), bool(group.flags("misinterpreted")[at])
    seed, worst = arrays["seeds"], arrays["inputs"]
    if not (np.isfinite(low) and np.isfinite(high)):
        low, high = float(min(seed.min(), worst.min())), float(max(seed.max(), worst.max()))
    difference = worst - seed
    largest = float(np.abs(difference).max()) if difference.size else 0.0
    who = f"{group.explainer}, sample {sample}"
    tiles = (
        Tile("input", picture(seed, low, high), f"Input, sample {sample}"),
        Tile("its map", signed_picture(arrays["seed_maps"]), f"Explanation of the input: {who}"),
        Tile("worst input", picture(worst, low, high), f"Worst input found: {who}"),
        Tile("change", signed_picture(difference), f"Change of the input, stretched: {who}"),
        Tile("map there", signed_picture(arrays["maps"]), f"Explanation of the worst input: {who}"),
    )
    classes = f"class {before} → {after}" if before != after else f"class {before}, kept"
    text = f"similarity {number(similarity, 3)}; {classes}; margin {number(margin)}; change up to {number(largest, 3)}"
    if np.ptp(arrays["maps"]) == 0:
        text += "; the map there is constant, its similarity 0 by definition"
    if not found:
        text += "; not found: no input met the constraint, this is the nearest"
    elif bad:
        text += "; class changed" if group.event == "misclassification" else "; misinterpreted"
    return Row(group.explainer, tiles, text, found)


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
    from matplotlib import colormaps

    flat = thin(array.sum(axis=0, keepdims=True))[0]
    limit = float(np.abs(flat).max()) or 1.0
    return png(np.asarray(colormaps["RdBu_r"](0.5 + 0.5 * flat / limit))[..., :3])


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
