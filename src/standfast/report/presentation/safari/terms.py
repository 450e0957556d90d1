"""What the terms of SAFARI's metrics mean, for a report's guide, and the threshold of an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from standfast.metrics.base import find_similarity, larger_is_closer

#: the options that all of these metrics share
COMPARED = {
    "Signs (`absolute`)": (
        "With `absolute = True` maps are compared without their signs, as the SAFARI authors do. A map that turns into "
        "its negative then counts as unchanged."
    ),
    "Which class is explained (`explain`)": (
        "`predicted`: at a perturbed input, the class that is predicted there. When the class changes, explanations of "
        "two different classes are compared. `origin`: always the class of the clean input."
    ),
}
#: the events, by name
MEANINGS = {
    "changed_explanation": (
        "Changed explanation (`changed_explanation`)",
        "The class is kept, and the explanation changes. For a similarity, higher is better for the explainer.",
    ),
    "changed_class": (
        "Changed class (`changed_class`)",
        "The class changes, and the explanation stays as it was. Here a *low* similarity is better for the explainer. "
        "That the class changes is a weakness of the model, not of the explainer.",
    ),
    "misclassification": (
        "Misclassification (`misclassification`)",
        "The class changes, whatever the explanation does. This describes the model and not the explainer, so "
        "explainers are not ranked by it.",
    ),
}
MARGIN = {
    "Margin": (
        "The largest other class's output minus that of the class explained. At zero or above, the class has changed."
    )
}


def find_threshold(options: Mapping[str, Any]) -> float | None:
    """The threshold in force: the one in the options, or the default of the similarity for the event.

    >>> find_threshold({"similarity": "pearson", "event": "changed_class", "threshold": None})
    0.6
    """
    given = options.get("threshold")
    if given is not None:
        return float(given)
    known = find_similarity(options)
    if known is None or options.get("event") == "misclassification":
        return None
    return known.low if options.get("event") == "changed_explanation" else known.high


def name_similarity(options: Mapping[str, Any]) -> str:
    """The similarity in words.

    >>> name_similarity({"similarity": "pearson"}), name_similarity({"similarity": "ssim"})
    ('correlation', 'ssim')
    """
    name = str(options.get("similarity", "similarity"))
    return {"pearson": "correlation", "spearman": "rank correlation", "cosine": "cosine similarity"}.get(name, name)


def describe_event(options: Mapping[str, Any]) -> str:
    """The threshold of an event in words: which similarities count as changed, or as unchanged.

    >>> describe_event({"similarity": "pearson", "event": "changed_explanation", "threshold": 0.4})
    'correlation below 0.4'
    """
    limit = find_threshold(options)
    if limit is None:
        return name_similarity(options)
    below = (options.get("event") == "changed_explanation") == larger_is_closer(options)
    return f"{name_similarity(options)} {'below' if below else 'above'} {limit:g}"


#: short meanings of words, for the place where they first appear
SHORT = {
    "margin": "how far the largest other class is above the class explained; from zero on, the class has changed",
    "misinterpreted": "the event happened: the search reached the threshold",
}
