"""Search with drafts, and confirm in full: most candidates are judged roughly, and the best of them by the objective.

Problem: `max value(x) subject to violation(x) <= 0` over the region, with an objective whose evaluations have a dial:
one with a quarter of the steps, samples or coalitions costs about a quarter, and says nearly the same (`Draft`).

1. The search `auto` looks for the optimum of the draft, with the share `share` of the budget. That is about four times
   as many candidates as the same budget has evaluations.
2. Of each of `confirmed` equal parts of this search the best point is evaluated by the objective itself. Some of them
   are the winners of the draft, and earlier ones owe less to the differences between draft and objective.
3. Block search spends the rest on small changes of the best of these points, by the objective itself.

So what is found never has a value of a draft. Without a draft, among candidates and for few parameters this is `auto`.

Source: the screening of candidates by a cheaper model is usual in simulation and optimisation ("multi-fidelity"; a
survey: Peherstorfer, Willcox and Gunzburger, SIAM Review 60, 2018).

Cost: `budget` evaluations for each problem; drafts count at what they cost, rounded up together (`Draft.cost_of`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.algorithms.searches.auto import AutoSearch
from standfast.algorithms.searches.base import (
    NAN_KEY,
    Draft,
    Incumbent,
    Outcome,
    Search,
    SearchRun,
    searches,
)
from standfast.algorithms.searches.block import BlockSearch
from standfast.neighbourhoods import Region
from standfast.records import Count, Fraction, Share
from standfast.tensors import Streams


@searches.register("draft")
@dataclass(frozen=True)
class DraftSearch(Search):
    """Search as `auto` does, by cheaper evaluations; the few best candidates are evaluated in full, and then improved.

    Args:
        effort: about what a draft costs, as a share of an evaluation; None for what suits the objective. Who has the
            objective makes drafts of it.
        share: of the budget, for drafts.
        confirmed: how many of the drafts' candidates are evaluated in full.
        start: share of the features in the first blocks of the changes at the end.
    """

    effort: Fraction | None = None
    share: Fraction = 0.85
    confirmed: Count = 8
    start: Share = 0.02
    name = "draft"
    takes_gradient = True
    takes_draft = True

    def search(self, run: SearchRun, streams: Streams) -> None:
        """Search with drafts, confirm the shortlist, and improve the best of it."""
        drafts = self._count_drafts(run)
        if run.draft is None or drafts < 2:  # the centre, and a candidate
            return AutoSearch().search(run, streams)
        shortlist = _search_drafts(run.draft, run.region, drafts, self.confirmed, streams)
        run.drafts = shortlist.spent
        run.followed_gradients = shortlist.followed_gradients
        run.skip(run.draft.cost_of(shortlist.spent))
        run.query(shortlist.points[:, -run.left :])
        return BlockSearch().refine(run, streams, self.start)

    def _count_drafts(self, run: SearchRun) -> int:
        """How many drafts there are for each problem; none where few or listed points are better tried in full."""
        parameters = run.region.shape.numel()
        is_small = run.region.choices is not None or parameters <= AutoSearch().few
        if run.draft is None or is_small:
            return 0
        evaluations = min(round(self.share * run.left), run.left - 1)
        return run.draft.count_within(evaluations)


def _search_drafts(
    draft: Draft, region: Region, budget: int, parts: int, streams: Streams
) -> _Shortlist:
    shortlist = _Shortlist(draft, region, budget, parts)
    AutoSearch().search(shortlist, streams)
    return shortlist


class _Shortlist(SearchRun):
    """A run by a draft, which keeps the best point of each of some equal parts of its budget."""

    def __init__(self, draft: Draft, region: Region, budget: int, parts: int) -> None:
        super().__init__(draft.objective, region, budget, draft.gradient)
        self._parts = parts
        self._best_of_part: dict[int, Incumbent] = {}

    @property
    def points(self) -> Tensor:
        """The best points, `(P, parts, *shape)`, in the order in which they were found."""
        return torch.cat([best.x for best in self._best_of_part.values()], dim=1)

    def query(self, x: Tensor, rows: Tensor | None = None) -> Outcome:
        """See `SearchRun`; all problems have candidates."""
        outcome = super().query(x, rows)
        part = min(self._parts * self.spent // self.budget, self._parts - 1)
        if part not in self._best_of_part:
            unknown = torch.full_like(self.kept.key, NAN_KEY)
            self._best_of_part[part] = Incumbent(
                self.region.centre[:, None], self.kept.seen, unknown
            )
        self._best_of_part[part].accept(x, outcome)
        return outcome
