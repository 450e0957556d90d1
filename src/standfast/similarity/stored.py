"""Similarities in the stored options of metrics, and the columns that are named after them.

A report reads them where the metric that stored them is not loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from standfast.errors import StandfastError
from standfast.similarity.base import Similarity, get


def find_similarity(options: Mapping[str, Any]) -> Similarity | None:
    """The similarity in the options of a metric; None where it is not known here, such as a class of the user."""
    try:
        return get(str(options.get("similarity")))
    except StandfastError:
        return None


def larger_is_closer(options: Mapping[str, Any]) -> bool:
    """Whether the similarity in the options is larger for more similar maps; assumed where it is not known here.

    >>> larger_is_closer({"similarity": "pearson"}), larger_is_closer({"similarity": "mse"})
    (True, False)
    """
    similarity = find_similarity(options)
    if similarity is None:
        return True
    return similarity.larger_is_closer


def name_first_similarity(options: Mapping[str, Any]) -> str:
    """The first of several similarities in the options, which is the value.

    >>> name_first_similarity({"similarities": ["pearson", "cosine"]})
    'pearson'
    """
    return str([*(options.get("similarities") or ()), "similarity"][0])


def name_chance(similarity: str) -> str:
    """The column of the frame with the chance level of a similarity."""
    return f"{similarity} chance"


def name_above_chance(similarity: str) -> str:
    """The column of the frame with a similarity corrected for chance."""
    return f"{similarity} above chance"
