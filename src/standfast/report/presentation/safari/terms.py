"""The threshold of an event of SAFARI's metrics, and the names of similarities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from standfast.similarity.stored import find_similarity, larger_is_closer


def find_threshold(options: Mapping[str, Any]) -> float | None:
    """The threshold in force: the one in the options, or the default of the similarity for the event.

    >>> find_threshold({"similarity": "pearson", "event": "changed_class", "threshold": None})
    0.6
    """
    threshold = options.get("threshold")
    if threshold is not None:
        return float(threshold)
    similarity = find_similarity(options)
    if similarity is None or options.get("event") == "misclassification":
        return None
    if options.get("event") == "changed_explanation":
        return similarity.low
    return similarity.high


def name_similarity(options: Mapping[str, Any]) -> str:
    """The similarity in the options, in words.

    >>> name_similarity({"similarity": "pearson"}), name_similarity({"similarity": "ssim"})
    ('correlation', 'ssim')
    """
    similarity = find_similarity(options)
    return (similarity and similarity.words) or str(options.get("similarity", "similarity"))


def describe_event(options: Mapping[str, Any]) -> dict[str, Any]:
    """The similarity, the threshold, and on which side of it the event lies, for the templates.

    >>> describe_event({"similarity": "pearson", "event": "changed_explanation", "threshold": 0.4})
    {'similarity': 'correlation', 'threshold': 0.4, 'below': True}
    """
    below = (options.get("event") == "changed_explanation") == larger_is_closer(options)
    return {
        "similarity": name_similarity(options),
        "threshold": find_threshold(options),
        "below": below,
    }
