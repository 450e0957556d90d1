"""Texts in a study file: strings as samples, and their words as the models of the study read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from standfast.data.user_files import TextContent, number_classes
from standfast.errors import check, warn_user
from standfast.neighbourhoods.text import CODES
from standfast.question.grid import Samples
from standfast.text_inputs import ReadTexts
from standfast.texts import TextModel


def find_texts(found: Any, count: int | None, about: Mapping[str, Any]) -> TextContent | None:
    """The texts that a function of the user's returned, with or without labels; None for other data.

    Args:
        found: a sequence of strings, or a pair of one and of labels.
        count: take so many from the start.
        about: plain facts.

    Raises:
        ArgumentError: a text is missing, or there is another number of labels.
    """
    if _are_strings(found):
        texts, given = list(found), None
    elif isinstance(found, tuple | list) and len(found) == 2 and _are_strings(found[0]):
        texts, given = list(found[0]), found[1]
    else:
        return None
    empty = next((place for place, text in enumerate(texts) if not isinstance(text, str) or not text.strip()), None)
    check(empty is None, "function", "texts of at least one word", f"none at place {empty}")
    if given is None:
        return TextContent(tuple(map(str, texts[:count])), None, about)
    check(len(given) == len(texts), "function", f"as many labels as texts ({len(texts)})", f"{len(given)} labels")
    labels, classes = number_classes(pl.Series(np.asarray(given).tolist()))
    return TextContent(
        tuple(map(str, texts[:count])), labels[:count], {**about, **({"classes": classes} if classes else {})}
    )


def _are_strings(found: Any) -> bool:
    """Whether there are strings: a list, an array or a column of a frame; some may be missing."""
    if isinstance(found, str | bytes | Tensor | Mapping) or not hasattr(found, "__len__") or len(found) == 0:
        return False
    numbers = isinstance(found, np.ndarray) and found.dtype.kind not in "UO"
    return not numbers and isinstance(next(iter(found)), str)


def make_samples(found: TextContent, explained: str) -> Samples:
    """Samples of texts; their codes are those of `read_words`, when it is known which models read them.

    Args:
        found: the texts.
        explained: "labels" to explain these, or "predicted".
    """
    classes = found.labels is not None and not found.labels.is_floating_point()
    check(classes or explained != "labels", "targets", "predicted, as there are no labels that are classes", "labels")
    extras = {} if found.labels is None else {"labels": found.labels}
    codes = torch.zeros(len(found.texts), 1, dtype=torch.float64)
    targets = found.labels if explained == "labels" else None
    return Samples(codes, targets, (0.0, float(CODES + 8)), found.about, extras, texts=found.texts)


def read_words(samples: Samples, models: Mapping[str, TextModel]) -> Samples:
    """The samples as the models of texts read them.

    Labels that are names get the numbers that the models have for these.

    Raises:
        ArgumentError: the models cut the texts in different ways, or number the classes so.
    """
    read = ReadTexts.read(models, samples.texts)
    about = {**samples.about, "texts": True}
    names = next((model.classes for model in models.values() if model.classes), ())
    given: Sequence[str] = about.get("classes", ())
    extras, targets = dict(samples.extras), samples.targets
    if names:
        about["classes"] = list(given or names)
    if given and names:
        orders = {_order(given, model.classes) for model in models.values() if model.classes}
        check(len(orders) == 1, "models", "the same numbers of the classes for all", "others")
        (order,) = orders
        if order is None:
            theirs, own = ", ".join(names), ", ".join(given)
            warn_user(
                f"the labels ({own}) are numbered in this order, as the model's classes have other names ({theirs})"
            )
        else:
            about["classes"] = list(names)
            numbers = torch.tensor(order)
            extras["labels"] = numbers[extras["labels"]]
            targets = None if targets is None else numbers[targets]
    found = replace(samples, inputs=read.rows, targets=targets, about=about, extras=extras)
    return replace(found, tokens=read.tokens, lengths=read.lengths, words=tuple(read.words))


def _order(given: Sequence[str], names: Sequence[str]) -> tuple[int, ...] | None:
    """The number that each of the given classes has among names, in any case; None if one of them is not there."""
    known = [name.casefold() for name in names]
    found = [name.casefold() for name in given]
    return tuple(map(known.index, found)) if set(found) <= set(known) else None
