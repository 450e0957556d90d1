"""Explanations over the inputs that they explain: images, series, tables and text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from standfast.errors import check
from standfast.report.maps import (
    FEATURES,
    SIGNED,
    add_channels,
    colour_signed,
    find_limit,
    name_entry,
    rank_entries,
    scale_input,
)
from standfast.report.plots.canvas import escape_text, import_pyplot
from standfast.tensors import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Maps = Tensor | Array | Mapping[str, Tensor | Array]
#: points on a line at most
POINTS = 2000
MEANING = "red: positive relevance, blue: negative; each map on its own scale"
#: the ground of hatched positions
GROUND = "0.86"
#: the width of a picture in inches, by kind
_WIDTHS = {"image": 2.2, "series": 4.6, "table": 4.2, "text": 4.2}


def draw_maps(
    inputs: Any,
    maps: Maps,
    *,
    features: Sequence[str] | None = None,
    tokens: Sequence[Sequence[str]] | None = None,
    titles: Sequence[str] | None = None,
    most: int = 8,
) -> list[Axes]:
    """Draw explanations over their inputs; `show` describes the arguments."""
    if not isinstance(inputs, Tensor | np.ndarray):  # a data set
        features = getattr(inputs, "features", None) if features is None else features
        tokens = getattr(inputs, "tokens", None) if tokens is None else tokens
        inputs = getattr(inputs, "inputs", inputs)
    named = {str(name): _to_array(each, "maps") for name, each in maps.items()} if isinstance(maps, Mapping) else {}
    if not isinstance(maps, Mapping):
        named = {"": _to_array(maps, "maps")}
    x = _to_array(inputs, "inputs")
    check(len(named) > 0, "maps", "attributions, or a mapping from names to them", "none")
    for name, each in named.items():
        fits = each.shape == x.shape
        check(fits, f"maps[{name!r}]" if name else "maps", f"the shape of the inputs, {x.shape}", each.shape)
    # one image rather than a batch of series: no series has as many channels as steps
    image = x.ndim == 3 and x.shape[0] in (1, 3) and x.shape[1] == x.shape[2]
    embedded = tokens is not None and x.ndim == 2 and len(tokens) == 1 < len(x)  # one text `(dim, T)`
    if x.ndim == 1 or embedded or image:
        x, named = x[None], {name: each[None] for name, each in named.items()}  # a single sample
    kind = "text" if tokens is not None else {1: "table", 2: "series", 3: "image"}.get(x.ndim - 1, "")
    check(bool(kind), "inputs", "images (N, C, H, W), series (N, C, T) or tables (N, F)", f"shape {x.shape}")
    said = "texts (N, W) or embedded texts (N, dim, T)"
    check(kind != "text" or x.ndim in (2, 3), "tokens", said, f"inputs of shape {x.shape}")
    wide = x.shape[1]
    if features is not None:
        check(len(features) == wide, "features", f"{wide} names, one for each column or channel", len(features))
    for what, values in (("tokens", tokens), ("titles", titles)):
        fits = values is None or len(values) == len(x)
        check(fits, what, f"one entry for each of {len(x)} samples", len(values or ()))
    return _draw_grid(kind, x[:most], named, features, tokens, titles)


def _to_array(values: Any, argument: str) -> Array:
    check(isinstance(values, Tensor | np.ndarray), argument, "a tensor or an array", type(values).__name__)
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    # NaN in a map marks positions that it says nothing about
    finite: Array = np.nan_to_num(np.asarray(array, dtype=float), nan=np.nan if argument == "maps" else 0.0)
    return finite


def _draw_grid(
    kind: str,
    x: Array,
    maps: Mapping[str, Array],
    features: Sequence[str] | None,
    tokens: Sequence[Sequence[str]] | None,
    titles: Sequence[str] | None,
) -> list[Axes]:
    plt = import_pyplot()
    extra = 1 if kind == "image" else 0  # the input itself
    columns, rows, wide = len(maps) + extra, len(x), x.shape[1]
    bars = 0.8 + 0.24 * (FEATURES + 1 if kind == "text" else min(wide, FEATURES + 1))
    height = {"image": 2.2, "series": 0.6 + 0.55 * min(wide, 12)}.get(kind, bars)
    size = (_WIDTHS[kind] * columns, height * rows + 0.3)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for row in range(rows):
        own, title = x[row], titles[row] if titles is not None else f"sample {row}" if rows > 1 else ""
        if extra:
            _draw_image(grid[row, 0], own)
            grid[row, 0].set_title(escape_text(title or "input"), fontsize=9)
        for place, (name, each) in enumerate(maps.items(), extra):
            axes, values = grid[row, place], each[row]
            if kind == "image":
                _draw_image(axes, own, values)
            elif kind == "series":
                _draw_series(axes, own, values, features)
            elif kind == "table":
                names = (
                    textwrap.shorten(name_entry(features, n, "feature"), 28, placeholder="...") for n in range(wide)
                )
                labels = [f"{name} = {value:z.4g}" for name, value in zip(names, own, strict=True)]
                _draw_bars(axes, np.nan_to_num(values), labels)
            else:  # relevance is summed over the embedding; a shorter text ends with NaN
                said = [word.strip() for word in (tokens or ())[row]]
                _draw_bars(axes, add_channels(np.atleast_2d(values))[0][: len(said)], said)
            words = [word for word in ("" if extra else title, name) if word]
            axes.set_title(escape_text(": ".join(words)), fontsize=9)
    figure.supxlabel(MEANING, fontsize=8)
    return list(grid.flat)


def _draw_image(axes: Any, x: Array, values: Array | None = None) -> None:
    """The input, or a map over its grey shape; channels of the map are summed."""
    shades = scale_input(x)
    axes.set_xticks([])
    axes.set_yticks([])
    if values is None:
        picture = np.moveaxis(shades, 0, -1) if len(x) == 3 else shades.mean(0)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        return
    flat, unseen = add_channels(values)
    limit = find_limit(flat, ~unseen)
    axes.imshow(1 - 0.45 * shades.mean(0), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    # where a map is weak the input shows through
    strength = np.clip(np.abs(flat) / limit, 0, 1) ** 0.7
    axes.imshow(flat, cmap=_make_colours(), vmin=-limit, vmax=limit, alpha=strength, interpolation="nearest")
    if unseen.any():
        axes.contourf(unseen, levels=[0.5, 1.5], colors=[GROUND], hatches=["////"])


def _make_colours() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("relevance", np.array(SIGNED) / 255)


def _draw_series(axes: Any, x: Array, values: Array, features: Sequence[str] | None) -> None:
    """The channels one below the other, each on its own scale, on the colour of its relevance."""
    channels, steps = x.shape
    stride = -(-steps // POINTS)
    limit = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    for channel, (line, ground) in enumerate(zip(x, np.nan_to_num(values), strict=True)):
        y = channel + 0.4 - 0.8 * scale_input(line)  # the axis points down, so that the first is on top
        place = (-0.5, steps - 0.5, channel + 0.45, channel - 0.45)
        axes.imshow(ground[None], cmap=_make_colours(), vmin=-limit, vmax=limit, extent=place, aspect="auto")
        axes.plot(np.arange(steps)[::stride], y[::stride], color="0.25", lw=0.7)
    edges = np.flatnonzero(np.diff(add_channels(values)[1], prepend=False, append=False))
    for start, stop in edges.reshape(-1, 2):
        axes.axvspan(start - 0.5, stop - 0.5, facecolor=GROUND, edgecolor="0.6", lw=0, hatch="////", zorder=1)
    axes.set_yticks(range(channels), [escape_text(name_entry(features, n, "channel")) for n in range(channels)])
    axes.tick_params("y", labelsize=8)
    axes.set_ylim(channels - 0.4, -0.6)
    axes.set_xlim(0, max(steps - 1, 1))
    axes.set_xlabel("time step", fontsize=8)


def _draw_bars(axes: Any, values: Array, labels: Sequence[str]) -> None:
    """Bars with the names of features, or words, the largest first; the others are added up."""
    order = rank_entries([values], len(values))
    shown, rest = (order, order[:0]) if len(order) <= FEATURES + 1 else (order[:FEATURES], order[FEATURES:])
    names, heights = [labels[n] for n in shown], values[shown]
    if len(rest):
        names, heights = [*names, f"{len(rest)} more, together"], np.append(heights, values[rest].sum())
    axes.barh(range(len(heights)), heights, color=colour_signed(0.8 * np.sign(heights)), height=0.75)
    axes.axvline(0, color="0.3", lw=0.8)
    axes.set_yticks(range(len(heights)), [escape_text(name) for name in names], fontsize=8)
    axes.set_ylim(len(heights) - 0.4, -0.6)
    axes.set_xlabel("relevance", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
