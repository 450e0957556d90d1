"""The events of SAFARI (Eq. 3): what can go wrong when an input is perturbed, and how near a perturbed input is to it.

- `changed_explanation` (F-hat): the class is kept, `J < 0`, and the explanation changes, `similarity < threshold`.
- `changed_class` (F-tilde): the class changes, `J >= 0`, and the explanation stays, `similarity > threshold`.
- `misclassification`: the class changes, `J >= 0`, whatever the explanation does.

J is the margin (SAFARI, Eq. 1): the largest other class's output minus that of the class explained.

SAFARI writes the discrepancy D = 1/PCC. This is not monotone: at a correlation of -0.5 it is -2, which the paper's own
events would call consistent, and near a correlation of 0 it grows beyond all bounds. We work with the similarity
itself. For a discrepancy such as the mean squared error the inequalities are reversed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from standfast.algorithms.searches.base import Outcome
from standfast.errors import check, is_number
from standfast.metrics.probe import Measurement, Probe, exclude_zero, score_kept_class
from standfast.similarity import Similarity

EventName = Literal["changed_explanation", "changed_class", "misclassification"]
EVENTS: tuple[EventName, ...] = get_args(EventName)


@dataclass(frozen=True)
class Event:
    """One event for one similarity and threshold.

    The threshold is None for `misclassification`, and where a search needs none.
    """

    name: EventName
    similarity: Similarity
    threshold: float | None

    @property
    def needs_explanation(self) -> bool:
        """Whether the event depends on the explanation."""
        return self.name != "misclassification"

    def query(
        self, probe: Probe, x: Tensor, origin: Tensor, want_distance: bool = False
    ) -> Measurement:
        """The cheapest query that says whether the event happened at `x` `(M, ...)`, copies of the `origin`s `(M,)`."""
        if self.needs_explanation or want_distance:
            return probe.query(x, origin, want_distance)
        return probe.query_class(x, origin)

    def dissimilarity(self, similarity: Tensor) -> Tensor:
        """Minus the similarity, or a discrepancy as it is."""
        if self.similarity.larger_is_closer:
            return -similarity
        return similarity

    def scores(self, measured: Measurement) -> Tensor:
        """Scores `(M, S)` of the S stages of subset simulation, all `>= 0` where the event happened (Eq. 12 to 15)."""
        if self.name == "misclassification":
            return measured.margin[:, None]
        assert measured.similarity is not None
        assert self.threshold is not None
        # as a dissimilarity, so that one sign serves similarities and discrepancies
        limit = self.dissimilarity(torch.full_like(measured.similarity, self.threshold))
        # both inequalities of a similarity are strict in Eq. 3
        beyond = self.dissimilarity(measured.similarity) - limit
        if self.name == "changed_explanation":
            return torch.stack([score_kept_class(measured.margin), exclude_zero(beyond)], dim=1)
        return torch.stack([measured.margin, exclude_zero(-beyond)], dim=1)

    def outcome(self, measured: Measurement) -> Outcome:
        """What a search for the worst case maximises, and its constraint (Eq. 5 and 6)."""
        if self.name == "misclassification":
            # there is no constraint, but a NaN must not count as meeting one
            return Outcome(
                measured.margin, torch.where(measured.margin.isnan(), torch.nan, -torch.inf)
            )
        assert measured.similarity is not None
        dissimilarity = self.dissimilarity(measured.similarity)
        if self.name == "changed_explanation":
            return Outcome(dissimilarity, -score_kept_class(measured.margin))
        return Outcome(-dissimilarity, -measured.margin)

    def compare_maps(self, maps: Tensor, others: Tensor, absolute: bool) -> Tensor | None:
        """The similarity of two batches of signed maps `(M, ...)`, if it is what the event is about; else None."""
        if self.name != "changed_explanation":
            return None
        if absolute:
            maps, others = maps.abs(), others.abs()
        return self.similarity(self.similarity.of_maps(maps), self.similarity.of_maps(others))

    def has_happened(self, similarity: Tensor, margin: Tensor) -> Tensor:
        """Whether the event happened, with its threshold; bool `(M,)`. False everywhere without a threshold."""
        if self.threshold is None and self.needs_explanation:
            return torch.zeros_like(margin, dtype=torch.bool)
        return (self.scores(Measurement(margin, similarity)) >= 0).all(1)


def make_event(
    name: EventName, similarity: Similarity, threshold: float | None, needs_threshold: bool
) -> Event:
    """The event of that name; without a `threshold` it has the similarity's own one.

    Raises:
        ArgumentError: a threshold that the similarity cannot take; a threshold for
            `misclassification`, which has none; no threshold for a similarity without a default one where
            `needs_threshold` holds.
    """
    if name == "misclassification":
        check(
            threshold is None, "threshold", "None for misclassification, which has none", threshold
        )
        return Event("misclassification", similarity, None)
    check(
        threshold is None or is_number(threshold), "threshold", "a number or None", repr(threshold)
    )
    if threshold is not None:
        low, high = similarity.range
        inside = low <= threshold <= high and math.isfinite(threshold)
        expected = f"a finite number, since {similarity.name} takes values from {low:g} to {high:g}"
        check(
            inside,
            "threshold",
            expected,
            f"{threshold}, which would make the event certain or impossible",
        )
    if threshold is None:
        threshold = similarity.low if name == "changed_explanation" else similarity.high
    check(
        threshold is not None or not needs_threshold,
        "threshold",
        f"a number, since {similarity.name} has no threshold that suits all maps",
        threshold,
    )
    return Event(name, similarity, threshold)
