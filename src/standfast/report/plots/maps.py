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
    if not isinstance(inputs, Tensor | np.ndarray):
        # a data set
        if features is None:
            features = getattr(inputs, "features", None)
        if tokens is None:
            tokens = getattr(inputs, "tokens", None)
        inputs = getattr(inputs, "inputs", inputs)
    x = _to_array(inputs, "inputs")
    maps_by_name = _read_maps(maps, x)
    if _is_single_sample(x, tokens):
        x = x[None]
        maps_by_name = {name: values[None] for name, values in maps_by_name.items()}
    kind = _find_kind(x, tokens is not None)
    if features is not None:
        columns = x.shape[1]
        expected = f"{columns} names, one for each column or channel"
        check(len(features) == columns, "features", expected, len(features))
    for argument, entries in (("tokens", tokens), ("titles", titles)):
        fits = entries is None or len(entries) == len(x)
        expected = f"one entry for each of {len(x)} samples"
        check(fits, argument, expected, len(entries or ()))
    return _draw_grid(kind, x[:most], maps_by_name, features, tokens, titles)


def _read_maps(maps: Maps, x: Array) -> dict[str, Array]:
    """The maps by the names of explainers; a single one has no name."""
    if not isinstance(maps, Mapping):
        maps_by_name = {"": _to_array(maps, "maps")}
    else:
        maps_by_name = {}
        for name, values in maps.items():
            maps_by_name[str(name)] = _to_array(values, "maps")
    check(len(maps_by_name) > 0, "maps", "attributions, or a mapping from names to them", "none")
    for name, values in maps_by_name.items():
        argument = f"maps[{name!r}]" if name else "maps"
        check(
            values.shape == x.shape, argument, f"the shape of the inputs, {x.shape}", values.shape
        )
    return maps_by_name


def _is_single_sample(x: Array, tokens: Sequence[Sequence[str]] | None) -> bool:
    """Whether the inputs have no axis of samples."""
    if x.ndim == 1:
        return True
    if tokens is not None and x.ndim == 2 and len(tokens) == 1 < len(x):
        # one text `(dim, T)`
        return True
    if x.ndim != 3:
        return False
    # one image rather than a batch of series: no series has as many channels as steps
    channels, height, width = x.shape
    return channels in (1, 3) and height == width


def _find_kind(x: Array, is_text: bool) -> str:
    """What the inputs are: an image, a series, a table or a text."""
    if is_text:
        check(
            x.ndim in (2, 3),
            "tokens",
            "texts (N, W) or embedded texts (N, dim, T)",
            f"inputs of shape {x.shape}",
        )
        return "text"
    kinds = {2: "table", 3: "series", 4: "image"}
    kind = kinds.get(x.ndim, "")
    check(
        bool(kind),
        "inputs",
        "images (N, C, H, W), series (N, C, T) or tables (N, F)",
        f"shape {x.shape}",
    )
    return kind


def _to_array(values: Any, argument: str) -> Array:
    check(
        isinstance(values, Tensor | np.ndarray),
        argument,
        "a tensor or an array",
        type(values).__name__,
    )
    if isinstance(values, Tensor):
        array = values.detach().cpu().numpy()
    else:
        array = values
    # NaN in a map marks positions that it says nothing about
    in_place_of_nan = np.nan if argument == "maps" else 0.0
    finite: Array = np.nan_to_num(np.asarray(array, dtype=float), nan=in_place_of_nan)
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
    # the column of the first map; images have the input itself before it
    first = 1 if kind == "image" else 0
    columns = len(maps) + first
    rows = len(x)
    width = _WIDTHS[kind] * columns
    height = _find_height(kind, x.shape[1]) * rows + 0.3
    size = (width, height)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for row in range(rows):
        title = _find_title(titles, row, rows)
        if kind == "image":
            _draw_image(grid[row, 0], x[row])
            grid[row, 0].set_title(escape_text(title or "input"), fontsize=9)
        if kind == "text":
            words = (tokens or ())[row]
        else:
            words = ()
        for column, (name, values) in enumerate(maps.items(), first):
            axes = grid[row, column]
            _draw_map(axes, kind, x[row], values[row], features, words)
            parts = [name] if kind == "image" else [title, name]
            heading = ": ".join(filter(None, parts))
            axes.set_title(escape_text(heading), fontsize=9)
    figure.supxlabel(MEANING, fontsize=8)
    return list(grid.flat)


def _find_height(kind: str, entries: int) -> float:
    """The height of a picture in inches, of inputs with so many features or channels."""
    if kind == "image":
        return 2.2
    if kind == "series":
        return 0.6 + 0.55 * min(entries, 12)
    if kind == "text":
        bars = FEATURES + 1
    else:
        bars = min(entries, FEATURES + 1)
    return 0.8 + 0.24 * bars


def _find_title(titles: Sequence[str] | None, row: int, rows: int) -> str:
    if titles is not None:
        return titles[row]
    if rows > 1:
        return f"sample {row}"
    return ""


def _draw_map(
    axes: Any,
    kind: str,
    x: Array,
    values: Array,
    features: Sequence[str] | None,
    words: Sequence[str],
) -> None:
    """A map over its input.

    Args:
        axes: to draw on.
        kind: of the input.
        x: the input, without the axis of samples.
        values: its map.
        features: names of columns or channels.
        words: of a text.
    """
    if kind == "image":
        _draw_image(axes, x, values)
    elif kind == "series":
        _draw_series(axes, x, values, features)
    elif kind == "table":
        _draw_bars(axes, np.nan_to_num(values), _name_cells(x, features))
    else:
        # relevance is summed over the embedding; a shorter text ends with NaN
        relevance, _ = add_channels(np.atleast_2d(values))
        labels = [word.strip() for word in words]
        _draw_bars(axes, relevance[: len(words)], labels)


def _name_cells(x: Array, features: Sequence[str] | None) -> list[str]:
    """The columns of a table with the values of one row."""
    labels = []
    for column, value in enumerate(x):
        name = textwrap.shorten(name_entry(features, column, "feature"), 28, placeholder="...")
        labels.append(f"{name} = {value:z.4g}")
    return labels


def _draw_image(axes: Any, x: Array, values: Array | None = None) -> None:
    """The input, or a map over its grey shape; channels of the map are summed."""
    shades = scale_input(x)
    axes.set_xticks([])
    axes.set_yticks([])
    if values is None:
        if len(x) == 3:
            picture = np.moveaxis(shades, 0, -1)
        else:
            picture = shades.mean(0)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        return
    flat, unseen = add_channels(values)
    limit = find_limit(flat, ~unseen)
    pale = 1 - 0.45 * shades.mean(0)
    axes.imshow(pale, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    # where a map is weak the input shows through
    strength = np.clip(np.abs(flat) / limit, 0, 1) ** 0.7
    axes.imshow(
        flat, cmap=_make_colours(), vmin=-limit, vmax=limit, alpha=strength, interpolation="nearest"
    )
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
    relevance_of_channels = np.nan_to_num(values)
    for channel, (line, relevance) in enumerate(zip(x, relevance_of_channels, strict=True)):
        # the axis points down, so that the first is on top
        y = channel + 0.4 - 0.8 * scale_input(line)
        extent = (-0.5, steps - 0.5, channel + 0.45, channel - 0.45)
        axes.imshow(
            relevance[None],
            cmap=_make_colours(),
            vmin=-limit,
            vmax=limit,
            extent=extent,
            aspect="auto",
        )
        drawn_steps = np.arange(steps)[::stride]
        axes.plot(drawn_steps, y[::stride], color="0.25", lw=0.7)
    _, unseen = add_channels(values)
    # where stretches begin and end, in turn
    edges = np.flatnonzero(np.diff(unseen, prepend=False, append=False))
    for start, stop in edges.reshape(-1, 2):
        axes.axvspan(
            start - 0.5, stop - 0.5, facecolor=GROUND, edgecolor="0.6", lw=0, hatch="////", zorder=1
        )
    names = []
    for channel in range(channels):
        names.append(escape_text(name_entry(features, channel, "channel")))
    axes.set_yticks(range(channels), names)
    axes.tick_params("y", labelsize=8)
    axes.set_ylim(channels - 0.4, -0.6)
    axes.set_xlim(0, max(steps - 1, 1))
    axes.set_xlabel("time step", fontsize=8)


def _draw_bars(axes: Any, values: Array, labels: Sequence[str]) -> None:
    """Bars with the names of features, or words, the largest first; the others are added up."""
    order = rank_entries([values], len(values))
    # one bar for the others takes the place of a bar, so it is there for two at least
    if len(order) <= FEATURES + 1:
        shown = order
    else:
        shown = order[:FEATURES]
    rest = order[len(shown) :]
    names = [labels[entry] for entry in shown]
    heights = values[shown]
    if len(rest):
        names.append(f"{len(rest)} more, together")
        heights = np.append(heights, values[rest].sum())
    axes.barh(
        range(len(heights)), heights, color=colour_signed(0.8 * np.sign(heights)), height=0.75
    )
    axes.axvline(0, color="0.3", lw=0.8)
    escaped_names = [escape_text(name) for name in names]
    axes.set_yticks(range(len(heights)), escaped_names, fontsize=8)
    axes.set_ylim(len(heights) - 0.4, -0.6)
    axes.set_xlabel("relevance", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
