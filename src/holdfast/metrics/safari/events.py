"""The events of SAFARI (Eq. 3): what can go wrong when an input is disturbed, and how near it is.

- `changed_explanation` (F-hat): the class holds, `J < 0`, and the explanation does not, `similarity < low`.
- `changed_class` (F-tilde): the class flips, `J >= 0`, and the explanation stays, `similarity > high`.
- `misclassification`: the class flips, `J >= 0`, whatever the explanation does.

SAFARI writes the discrepancy D = 1/PCC. That is not monotone: at a correlation of -0.5 it is -2, which the paper's own
events would call consistent, and near 0 it explodes. We work with the similarity itself; for a discrepancy such as
the mean squared error the inequalities turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor

from holdfast.algorithms.searches.base import Outcome
from holdfast.errors import ArgumentError, check
from holdfast.metrics.probe import Measurement, Probe
from holdfast.similarity import Similarity

EventName = Literal["changed_explanation", "changed_class", "misclassification"]
EVENTS = ("changed_explanation", "changed_class", "misclassification")

SAFARI = """@inproceedings{huang2023safari,
  title     = {{SAFARI}: Versatile and Efficient Evaluations for Robustness of Interpretability},
  author    = {Huang, Wei and Zhao, Xingyu and Jin, Gaojie and Huang, Xiaowei},
  booktitle = {Proceedings of the IEEE/CVF International Conference on Computer Vision (ICCV)},
  pages     = {1988--1998},
  year      = {2023}
}"""
#: what the events mean, for the report
MEANINGS = {
    "changed_explanation": (
        "Changed explanation (`changed_explanation`)",
        "The class holds and the explanation does not. For a similarity, higher is better for the explainer.",
    ),
    "changed_class": (
        "Changed class (`changed_class`)",
        "The class flips and the explanation stays, as if nothing had happened. Here a *low* similarity is better for "
        "the explainer. That the class flips is the model's weakness, not the explainer's.",
    ),
    "misclassification": (
        "Misclassification (`misclassification`)",
        "The class flips, whatever the explanation does. It says something of the model and nothing of the explainer, "
        "so explainers are not ranked by it.",
    ),
}
MARGIN = {
    "Margin J": (
        "The largest other class's output minus that of the class explained. From zero up, the class has changed."
    )
}


@dataclass(frozen=True)
class Event:
    """One event for one similarity and threshold; the threshold is None for plain misclassification."""

    name: EventName
    similarity: Similarity
    threshold: float | None

    @property
    def needs_explanation(self) -> bool:
        """Whether the explanation has a say in it."""
        return self.name != "misclassification"

    def query(self, probe: Probe, x: Tensor, seed: Tensor, want_distance: bool = False) -> Measurement:
        """The cheapest look that tells whether the event happened."""
        if self.needs_explanation or want_distance:
            return probe.query(x, seed, want_distance)
        return probe.query_class(x, seed)

    def unlike(self, similarity: Tensor) -> Tensor:
        """How unlike two maps are: minus the similarity, or the discrepancy as it is."""
        return -similarity if self.similarity.larger_is_closer else similarity

    def scores(self, seen: Measurement) -> Tensor:
        """Stages `(M, S)` for subset simulation, all `>= 0` where the event has happened (Eq. 12 to 15)."""
        if self.name == "misclassification":
            return seen.margin[:, None]
        assert seen.similarity is not None
        assert self.threshold is not None
        beyond = self.unlike(seen.similarity) - self.unlike(torch.full_like(seen.similarity, self.threshold))
        if self.name == "changed_explanation":
            return torch.stack([strictly_below_zero(seen.margin), _strictly(beyond)], dim=1)
        return torch.stack([seen.margin, _strictly(-beyond)], dim=1)

    def outcome(self, seen: Measurement) -> Outcome:
        """What a search for the worst case maximises, and its constraint (Eq. 5 and 6)."""
        if self.name == "misclassification":
            return Outcome(seen.margin, torch.where(seen.margin.isnan(), torch.nan, -torch.inf))
        assert seen.similarity is not None
        unlike = self.unlike(seen.similarity)
        if self.name == "changed_explanation":
            return Outcome(unlike, -strictly_below_zero(seen.margin))
        return Outcome(-unlike, -seen.margin)

    def happened(self, similarity: Tensor, margin: Tensor) -> Tensor:
        """Whether the event, threshold included, happened; bool `(M,)`. Never without a threshold."""
        if self.name == "misclassification":
            return margin >= 0
        held = margin < 0 if self.name == "changed_explanation" else margin >= 0
        if self.threshold is None:  # nothing says from where on a map counts as changed
            return torch.zeros_like(held)
        limit = self.unlike(torch.full_like(similarity, self.threshold))
        unlike = self.unlike(similarity)
        return held & (unlike > limit if self.name == "changed_explanation" else unlike < limit)


def _strictly(beyond: Tensor) -> Tensor:
    """A threshold must be crossed, not touched: exactly 0 does not count."""
    return torch.where(beyond == 0, -torch.finfo(beyond.dtype).tiny, beyond)


def strictly_below_zero(margin: Tensor) -> Tensor:
    """`-J`, negative also at `J = 0`, where the class has changed."""
    return _strictly(-margin)


def make_event(name: str, similarity: Similarity, threshold: float | None, needs_threshold: bool) -> Event:
    """The event of that name, with the similarity's own threshold where none is given."""
    if name not in EVENTS:
        raise ArgumentError("event", f"one of {', '.join(EVENTS)}", repr(name))
    if name == "misclassification":
        check(threshold is None, "threshold", "None for misclassification, which has none", threshold)
        return Event("misclassification", similarity, None)
    if threshold is None:
        threshold = similarity.low if name == "changed_explanation" else similarity.high
    check(
        threshold is not None or not needs_threshold,
        "threshold",
        f"a number, since {similarity.name} has no threshold that suits all maps",
        threshold,
    )
    return Event(cast(EventName, name), similarity, threshold)
