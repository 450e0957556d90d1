"""Draws of several explainers that would do as well, made until the reasons of all of them together are decided.

The draws of each explainer end where its own reasons are decided. Those of a card are shared: each is one by an
explainer that is chosen at random, so a card may be undecided where an explainer alone is not. Then all explainers make
the draws of a further look.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import polars as pl

from standfast.metrics.reasons.reasons import Reasons
from standfast.report import Results
from standfast.results.reasons import Card
from standfast.results.stored_reasons import METRIC
from standfast.statistics.reasons import MOST_DECIDED, Foresight, schedule_looks


class SharedDraws:
    """Says how many draws all explainers have to make, from one look at the reasons to the next one.

    Args:
        metric: whose draws are made.
        reasons: how many there are; None where no draws are shared.
        ends: when no further draws may begin if they would end later, as `time.monotonic` counts; None for no limit.

    Attributes:
        fewest: how many draws each explainer has to make.
    """

    def __init__(self, metric: Reasons, reasons: int | None, ends: float | None = None) -> None:
        is_decided_by_looks = reasons is not None and reasons <= MOST_DECIDED
        self._looks: tuple[int, ...] = ()
        if is_decided_by_looks:
            self._looks = schedule_looks(metric.draws, metric.demand, reasons=reasons or 1)
        self._ends = ends
        self._began = time.monotonic()
        self.fewest = self._looks[0] if self._looks else 1

    def goes_on(self, results: Results, cards: Sequence[Card]) -> bool:
        """Whether further draws may decide what the cards leave open; `fewest` then says how many.

        Args:
            results: of the given model and all explainers.
            cards: that are made of them.
        """
        if not self._looks:
            return False
        now = time.monotonic()
        ended_at = _count_shared_looks(results)
        further: list[int] = []
        for card in cards:
            reached = ended_at.get(card.sample, len(self._looks))
            further += self._list_enough(card, reached)[:1]
        if not further:
            return False
        expected = (now - self._began) * min(further) / self.fewest
        if self._ends is not None and now + expected > self._ends:
            return False
        self._began, self.fewest = now, min(further)
        return True

    def _list_enough(self, card: Card, reached: int) -> list[int]:
        """The further looks that may decide a reason of a card, which was looked at so often."""
        foreseen = [reason.foreseen for reason in card.reasons if reason.state == "undecided"]
        further = self._looks[reached:]
        if not foreseen or not further:
            return []
        # as for one explainer alone, all draws are made where no number of them is foreseen
        needed = min(_count_needed(foresight, further[-1]) for foresight in foreseen)
        return [draws for draws in further if draws >= min(needed, further[-1])]


def _count_needed(foresight: Foresight | None, most: int) -> int:
    """How many draws would decide a reason; `most` where that is not foreseen."""
    if foresight is None:
        return most
    return foresight.count or foresight.least or most


def _count_shared_looks(results: Results) -> dict[int, int]:
    """At how many looks each sample was looked at by all explainers in whose draws anything differs."""
    (data, model), *_ = results.pairs
    rows = results.metric_results(data, model, METRIC).frame
    explained = rows.filter((pl.col("status") == "ok") & pl.col("varied").cast(pl.Boolean))
    fewest = explained.group_by("sample").agg(pl.col("looks").min())
    return {int(sample): int(count) for sample, count in fewest.iter_rows()}
