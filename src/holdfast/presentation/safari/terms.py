"""What the terms of SAFARI's metrics mean, for a report's guide, and the threshold of an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.metrics.base import find_similarity

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
