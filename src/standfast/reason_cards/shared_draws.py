"""Draws of several explainers that would do as well, made until the reasons of all of them together are decided.

The draws of each explainer end where its own reasons are decided. Those of a card are shared: each is one by an
explainer that is chosen at random, so a card may be undecided where an explainer alone is not. Then all explainers make
the draws of a further look.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import polars as pl

from standfast.report import Results
from standfast.results.reasons import Card
from standfast.results.stored_reasons import METRIC


class SharedDraws:
    """Says how many draws all explainers have to make, from one look at the reasons to the next one.

    Args:
        looks: after how many draws is looked, all that there may be; none where explainers share no draws.
        ends: when no further draws may begin if they would end later, as `time.monotonic` counts; None for no limit.
    """

    def __init__(self, looks: Sequence[int], ends: float | None = None) -> None:
        self._looks, self._ends = tuple(looks), ends
        self._began = time.monotonic()
        #: draws that have been made since then
        self._made = self._looks[0] if self._looks else 0

    def find_fewest(self, results: Results, cards: Sequence[Card]) -> int | None:
        """How many draws of every explainer may decide what the cards leave open; None where no further ones may.

        Args:
            results: of the given model and all explainers.
            cards: that are made of them.
        """
        if not self._looks:
            return None
        now = time.monotonic()
        ended_at = _count_shared_looks(results)
        further: list[int] = []
        for card in cards:
            reached = ended_at.get(card.sample, len(self._looks))
            further += self._list_enough(card, reached)[:1]
        if not further:
            return None
        fewest = min(further)
        expected = (now - self._began) * fewest / self._made
        if self._ends is not None and now + expected > self._ends:
            return None
        self._began, self._made = now, fewest
        return fewest

    def _list_enough(self, card: Card, reached: int) -> list[int]:
        """The further looks that may decide a reason of a card, which was looked at so often."""
        foreseen = [reason.foreseen for reason in card.reasons if reason.state == "undecided"]
        further = self._looks[reached:]
        if not foreseen or not further:
            return []
        # as for one explainer alone, all draws are made where no number of them is foreseen
        needed = [(seen and (seen.count or seen.least)) or further[-1] for seen in foreseen]
        return [draws for draws in further if draws >= min(*needed, further[-1])]


def _count_shared_looks(results: Results) -> dict[int, int]:
    """At how many looks each sample was looked at by all explainers in whose draws anything differs."""
    (data, model), *_ = results.pairs
    rows = results.metric_results(data, model, METRIC).frame
    explained = rows.filter((pl.col("status") == "ok") & pl.col("varied").cast(pl.Boolean))
    fewest = explained.group_by("sample").agg(pl.col("looks").min())
    return {int(sample): int(count) for sample, count in fewest.iter_rows()}
