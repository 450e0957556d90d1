"""Models that are trained again until the reasons are decided, each look with about twice as many models."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from standfast.errors import warn_user
from standfast.reason_cards.retraining import Retraining
from standfast.report import Results
from standfast.results.reasons import Card


class RetrainedRuns:
    """Trains and evaluates models, from one look at the reasons to the next one.

    Args:
        retraining: how they are trained.
        model: that is explained.
        looks: after how many models the reasons are looked at (`Retraining.plan_looks`).
        evaluate: gives the results of models by their names; it also takes the number of the look, from 0.
        ends: when no further look may begin if it would end later, as `time.monotonic` counts; None for no limit.
        training_ends: when no further model of the first look is trained, so that there is time to evaluate those that
            are. Then there is no other look.
        progress: whether to show how many models are trained.

    Attributes:
        results: those that have a model, by its name, of all models so far.
        batches: the results themselves, one for each look.
    """

    def __init__(
        self,
        retraining: Retraining,
        model: Any,
        looks: Sequence[int],
        evaluate: Callable[[Mapping[str, Any], int], Results],
        *,
        ends: float | None = None,
        training_ends: float = math.inf,
        progress: bool = True,
    ) -> None:
        self._retraining = retraining
        self._model = model
        self._looks = looks
        self._evaluate = evaluate
        self._ends = ends
        self._training_ends = training_ends
        self._progress = progress
        self._seconds = 0.0
        self.results: dict[str, Results] = {}
        self.batches: tuple[Results, ...] = ()

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many models was looked so far; none where their number is fixed."""
        if len(self._looks) > 1:
            return tuple(self._looks[: len(self.batches)])
        return ()

    def run_next(self) -> None:
        """Train and evaluate the models of the next look."""
        began = time.monotonic()
        number = len(self.batches)
        # a further look only begins if all of it fits
        ends = self._training_ends if number == 0 else math.inf
        models = self._retraining.make_models(
            self._model, self._looks, number, self._progress, ends
        )
        if number == 0:
            self._end_early(len(models))
        batch = self._evaluate(models, number)
        self.results.update(dict.fromkeys(models, batch))
        self.batches += (batch,)
        self._seconds += time.monotonic() - began

    def _end_early(self, trained: int) -> None:
        """Where there was no time for all models of the first look, take those that were trained as the only one.

        Time alone decides how many these are, and not what they name. So the error is that of one look.
        """
        planned = self._looks[0]
        if trained == planned:
            return
        self._looks = (trained,)
        warn_user(f"{trained} of {planned} models were trained again in the time of minutes=")

    def goes_on(self, cards: Sequence[Card]) -> bool:
        """Whether there is a further look, and it may decide what these cards leave open.

        Args:
            cards: with all models so far.
        """
        done = len(self.batches)
        if done == len(self._looks):
            return False
        if done == 0:
            return True
        return self._has_time() and any(_may_be_decided(card, self._looks[-1]) for card in cards)

    def _has_time(self) -> bool:
        """Whether the next look ends in time, if its models take as long as those so far."""
        if self._ends is None:
            return True
        done = len(self.batches)
        trained = self._looks[done - 1]
        then = self._looks[done]
        expected = self._seconds * (then - trained) / trained
        return time.monotonic() + expected <= self._ends


def _may_be_decided(card: Card, most: int) -> bool:
    """Whether a reason of a card is undecided, and so many models may decide it."""
    undecided = [reason.foreseen for reason in card.reasons if reason.state == "undecided"]
    return any(
        foreseen is not None and foreseen.least is not None and foreseen.least <= most
        for foreseen in undecided
    )
