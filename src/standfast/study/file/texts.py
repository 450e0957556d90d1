"""Texts that a function of the user's returns for a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from torch import Tensor

from standfast.data.user_files import TextContent, number_classes
from standfast.errors import check


def find_texts(returned: Any, count: int | None, about: Mapping[str, Any]) -> TextContent | None:
    """The texts that a function of the user's returned, with or without labels; None for other data.

    Args:
        returned: a sequence of strings, or a pair of one and of labels.
        count: take so many from the start.
        about: plain facts.

    Raises:
        ArgumentError: a text is missing, or there is another number of labels.
    """
    if _are_strings(returned):
        texts = list(returned)
        raw_labels = None
    elif isinstance(returned, tuple | list) and len(returned) == 2 and _are_strings(returned[0]):
        texts = list(returned[0])
        raw_labels = returned[1]
    else:
        return None
    for number, text in enumerate(texts):
        has_words = isinstance(text, str) and bool(text.strip())
        check(has_words, "function", "texts of at least one word", f"none at place {number}")
    first_texts = tuple(map(str, texts[:count]))
    if raw_labels is None:
        return TextContent(first_texts, None, about)
    as_many = len(raw_labels) == len(texts)
    check(
        as_many, "function", f"as many labels as texts ({len(texts)})", f"{len(raw_labels)} labels"
    )
    values = np.asarray(raw_labels).tolist()
    labels, classes = number_classes(pl.Series(values))
    if classes:
        about = {**about, "classes": classes}
    return TextContent(first_texts, labels[:count], about)


def _are_strings(values: Any) -> bool:
    """Whether there are strings: a list, an array or a column of a frame; some may be missing."""
    # these have a length, and are no lists of texts
    if (
        isinstance(values, str | bytes | Tensor | Mapping)
        or not hasattr(values, "__len__")
        or len(values) == 0
    ):
        return False
    # U and O: texts, and any objects
    if isinstance(values, np.ndarray) and values.dtype.kind not in "UO":
        return False
    # the first one tells; others may be missing
    return isinstance(next(iter(values)), str)
