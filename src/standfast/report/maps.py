"""What pictures of maps and inputs show, in the page and in plots: colours and their scale, entries, what is seen.

Red is evidence for the answer, and blue evidence against it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from standfast.tensors import Array

#: the colours of signed maps: from blue over white to red (ColorBrewer's RdBu)
SIGNED = (
    *(
        (0x05, 0x30, 0x61),
        (0x21, 0x66, 0xAC),
        (0x43, 0x93, 0xC3),
        (0x92, 0xC5, 0xDE),
        (0xD1, 0xE5, 0xF0),
    ),
    (0xF7, 0xF7, 0xF7),
    *(
        (0xFD, 0xDB, 0xC7),
        (0xF4, 0xA5, 0x82),
        (0xD6, 0x60, 0x4D),
        (0xB2, 0x18, 0x2B),
        (0x67, 0x00, 0x1F),
    ),
)
#: the number of features of a table, or of words, that are drawn
FEATURES = 12
#: images with a longer side are large
LARGE = 64
#: the share of a large map's positions that are below full colour, because single pixels would make the others white
_BELOW_FULL = 0.99


def colour_signed(values: Array) -> Array:
    """The colours `(..., 3)` of values in [-1, 1]: blue below zero, red above.

    >>> colour_signed(np.array([0.0]))[0].round(2).tolist()
    [0.97, 0.97, 0.97]
    """
    stops = np.linspace(-1, 1, len(SIGNED))
    red_green_blue = np.asarray(SIGNED, dtype=float).T / 255
    channels = [np.interp(values, stops, channel) for channel in red_green_blue]
    return np.stack(channels, axis=-1)


def add_channels(values: Array) -> tuple[Array, Array]:
    """A map `(C, ...)` as one number for each position, 0 for NaN; and the positions with NaN in all channels.

    >>> add_channels(np.array([[1.0, np.nan], [2.0, np.nan]]))
    (array([3., 0.]), array([False,  True]))
    """
    summed = np.nan_to_num(values).sum(axis=0)
    unseen = np.isnan(values).all(axis=0)
    return summed, np.asarray(unseen)


def find_limit(flat: Array, seen: Array) -> float:
    """Where the colours of a map `(H, W)` end, of the positions that are `seen`: the largest value, or nearly, of many.

    >>> find_limit(np.array([[-3.0, 1.0, 9.0]]), np.array([[True, True, False]]))
    3.0
    """
    sizes = np.abs(flat[seen])
    end = 0.0
    if sizes.size and max(flat.shape) > LARGE:
        end = float(np.quantile(sizes, _BELOW_FULL))
    # where nearly all is 0, the few values that are not have full colour
    return end or float(sizes.max(initial=0.0)) or 1.0


def scale_input(x: Array, bounds: tuple[float, float] = (np.nan, np.nan)) -> Array:
    """An input on the scale of the data's bounds, or on its own where these are not finite, in [0, 1].

    >>> scale_input(np.array([1.0, 3.0])).tolist(), scale_input(np.array([1.0, 3.0]), (0.0, 2.0)).tolist()
    ([0.0, 1.0], [0.5, 1.0])
    """
    low, high = bounds
    if not np.isfinite(bounds).all():
        low = float(x.min())
        high = float(x.max())
    width = (high - low) or 1.0
    return np.clip((x - low) / width, 0, 1)


def rank_entries(maps: Sequence[Array], count: int) -> Array:
    """The places of the `count` most relevant entries, the most relevant first, of maps `(n,)` on their own scales.

    >>> rank_entries([np.array([0.1, -3.0, 2.0]), np.array([0.9, 0.0, 0.0])], 2).tolist()
    [0, 1]
    """
    sizes = []
    for values in maps:
        size = np.abs(values)
        sizes.append(size / (size.max() or 1.0))
    largest = np.max(sizes, axis=0)
    return np.argsort(-largest, kind="stable")[:count]


def name_entry(names: Sequence[str] | None, number: int, kind: str) -> str:
    """The name of a feature or channel; its number where it has none.

    >>> name_entry(("age",), 0, "feature"), name_entry((), 3, "channel")
    ('age', 'channel 3')
    """
    if names is not None and number < len(names):
        return str(names[number])
    return f"{kind} {number}"
