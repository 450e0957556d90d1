"""The search of counter-examples for the reasons of cards, and what it finds in the user's words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import polars as pl
import torch
from torch import Tensor

from standfast.display import Count
from standfast.errors import StandfastError, check, check_integer
from standfast.metrics.probe import Call
from standfast.metrics.reasons.counter_search import FoundFalls, SoughtFalls, find_falls
from standfast.metrics.reasons.places import Speaking
from standfast.metrics.reasons.reasons import Reasons
from standfast.model import Model
from standfast.neighbourhoods import Neighbourhood
from standfast.question.inputs import Inputs
from standfast.reason_cards.asked import Asked
from standfast.report import Results
from standfast.results.counter_examples import CounterExample, describe_changes, describe_swaps
from standfast.results.reasons import Card, Reason
from standfast.results.stored_reasons import METRIC
from standfast.study.store import digest
from standfast.tensors import seed_generators

#: a part of what a stored search is known by, to be raised when the same search finds something else
_VERSION = 1


def check_counter_examples(
    budget: int, neighbourhood: Neighbourhood | None, inputs: Inputs
) -> None:
    """Raise `ArgumentError` where counter-examples cannot be searched."""
    check_integer(budget, "counter_examples", least=0)
    if not budget:
        return
    expected = "0 without a measurement=, within which changes are searched"
    check(neighbourhood is not None, "counter_examples", expected, budget)
    samples = next(iter(inputs.samples.values()))
    expected = "0 for images and series: each reason of rows and texts is one feature"
    check(samples.inputs.ndim == 2, "counter_examples", expected, budget)


@dataclass(frozen=True)
class Fall:
    """What was found for one reason, as it is stored.

    Attributes:
        evaluations: how many changed inputs were explained.
        changed: the changed input, `F` numbers; None where none was found.
        turned: the feature is still among the first k, and speaks the other way.
        swaps: the new words of a text, as JSON; None of other inputs.
    """

    evaluations: int
    changed: Sequence[float] | None = None
    turned: bool = False
    swaps: str | None = None


@dataclass(frozen=True)
class CounterSearch:
    """Searches changes of inputs after which reasons fall.

    Attributes:
        asked: what is explained.
        neighbourhood: where changed inputs lie.
        speaking: what features are ordered by.
        budget: evaluations for each reason.
        seed: of the search.
        units: of columns, by name, for the words of their values.
    """

    asked: Asked
    neighbourhood: Neighbourhood
    speaking: Speaking
    budget: int
    seed: int
    units: Mapping[str, str] = field(default_factory=dict)

    def find(
        self, cards: Sequence[Card], results: Results, progress: bool = True
    ) -> dict[int, tuple[CounterExample, ...]]:
        """What is found for the reasons of cards, by the number of the sample.

        Args:
            cards: of these results.
            results: where it is stored, and read from where it was searched before.
            progress: whether to show how far the search is.
        """
        with_reasons = [card for card in cards if card.reasons]
        stored = _StoredSearches(results, [self.budget, self.seed, self.speaking])
        falls: dict[int, Sequence[Fall]] = {}
        missing: list[Card] = []
        for card in with_reasons:
            stored_falls = stored.read(card)
            if stored_falls is None:
                missing.append(card)
            else:
                falls[card.sample] = stored_falls
        if missing:
            for card, searched in self._search_cards(missing, progress):
                stored.write(card, searched)
                falls[card.sample] = searched
        return {
            card.sample: self._describe(card, falls[card.sample], results) for card in with_reasons
        }

    def _search_cards(
        self, cards: Sequence[Card], progress: bool
    ) -> Iterator[tuple[Card, list[Fall]]]:
        """What the search finds for the reasons of cards; texts of one length, and all rows, are searched together."""
        inputs = self.asked.read([Reasons(self.neighbourhood)])
        neighbourhood = inputs.fit_neighbourhood(self.neighbourhood)
        explainer = inputs.fit_explainer(self.asked.explainer)
        ((samples, source),) = zip(inputs.samples.values(), inputs.models.values(), strict=True)
        for part in samples.split(source.model(samples, "cpu")):
            numbers = range(*part.rows.indices(len(samples)))
            cards_of_part = [card for card in cards if card.sample in numbers]
            if not cards_of_part:
                continue
            rows = [numbers.index(card.sample) for card in cards_of_part]
            explained = part.model.check_inputs(part.take(samples.inputs)[rows])
            if samples.targets is None:
                targets = None
            else:
                targets = samples.targets[part.rows][rows].to(explained.device)
            with self._showing(part.model, cards_of_part, progress):
                call = Call(part.model, explainer, explained, targets)
                falls = self._search(call, neighbourhood, cards_of_part)
            yield from _divide(cards_of_part, explained, falls, neighbourhood)

    @contextlib.contextmanager
    def _showing(self, model: Model, cards: Sequence[Card], progress: bool) -> Iterator[None]:
        """A session of the model that shows how many changed inputs were explained."""
        expected = self.budget * sum(len(card.reasons) for card in cards)
        count = Count("counter-examples", "changed inputs", lambda: expected)
        with torch.inference_mode(False), model.session(), model.showing(count, progress):
            yield

    def _search(
        self, call: Call, neighbourhood: Neighbourhood, cards: Sequence[Card]
    ) -> FoundFalls:
        """What is found for the reasons of cards, one card for each input of the call."""
        pairs = _list_reasons(cards)
        device = call.inputs.device
        sought = SoughtFalls(
            rows=torch.tensor([row for row, _ in pairs], device=device),
            features=torch.tensor([reason.feature for _, reason in pairs], device=device),
            signs=torch.tensor([reason.sign for _, reason in pairs], device=device),
            top=cards[0].top,
            speaking=self.speaking,
        )
        with call.model.naming(call.inputs), seed_generators(self.seed, device):
            return find_falls(call, neighbourhood, sought, self.budget, self.seed)

    def _describe(
        self, card: Card, falls: Sequence[Fall], results: Results
    ) -> tuple[CounterExample, ...]:
        """What was found for the reasons of a card, in words."""
        columns = results.metric_results(card.data, card.model, METRIC).columns
        examples: list[CounterExample] = []
        for reason, fall in zip(card.reasons, falls, strict=True):
            changes: Mapping[str, tuple[str, str]] = {}
            changed = None
            if fall.changed is not None:
                changed = np.asarray(fall.changed)
            if fall.swaps is not None:
                changes = describe_swaps(fall.swaps, card.names)
            elif changed is not None:
                assert card.input is not None
                changes = describe_changes(
                    np.asarray(card.input), changed, card.names, columns, self.units
                )
            examples.append(
                CounterExample(
                    sample=card.sample,
                    reason=reason.name,
                    top=card.top,
                    changes=changes,
                    evaluations=fall.evaluations,
                    turned=fall.turned,
                    changed=changed,
                )
            )
        return tuple(examples)


class _StoredSearches:
    """Searches beside the jobs whose reasons they are about.

    Args:
        results: of the jobs.
        options: of the search.
    """

    def __init__(self, results: Results, options: Sequence[object]) -> None:
        self._results = results
        self._options = options

    def read(self, card: Card) -> list[Fall] | None:
        """What was found for a card; None where it was not searched, or its file is damaged."""
        # what cannot be read is searched again
        with contextlib.suppress(
            FileNotFoundError, NotADirectoryError, StandfastError, KeyError, TypeError
        ):
            falls = self._results.store.read_json(self._name_file(card), "")["falls"]
            return [Fall(**fall) for fall in falls]
        return None

    def write(self, card: Card, falls: Sequence[Fall]) -> None:
        """Store what was found for a card."""
        self._results.store.write_json(
            self._name_file(card), {"falls": [asdict(fall) for fall in falls]}
        )

    def _name_file(self, card: Card) -> str:
        """The file of a card: its name is a hash of all that the search depends on."""
        jobs = self._results.jobs.filter(
            (pl.col("data") == card.data)
            & (pl.col("model") == card.model)
            & (pl.col("explainer") == card.explainer)
            & (pl.col("label") == METRIC)
            & (pl.col("start") <= card.sample)
            & (pl.col("stop") > card.sample)
        )
        # a job is known by its model, its explainer, its samples, and the neighbourhood of the metric
        reasons = [(reason.feature, reason.sign) for reason in card.reasons]
        known_by = [_VERSION, jobs["job"].to_list(), card.sample, card.top, reasons, *self._options]
        return f"counter_examples/{digest(known_by)}.json"


def _list_reasons(cards: Sequence[Card]) -> list[tuple[int, Reason]]:
    """All reasons of cards, each with the number of its card."""
    return [(row, reason) for row, card in enumerate(cards) for reason in card.reasons]


def _divide(
    cards: Sequence[Card],
    clean_inputs: Tensor,
    falls_of_reasons: FoundFalls,
    neighbourhood: Neighbourhood,
) -> Iterator[tuple[Card, list[Fall]]]:
    """What was found, for each card.

    Args:
        cards: of the reasons.
        clean_inputs: one for each card, `(n, F)`.
        falls_of_reasons: for all reasons of the cards in their order.
        neighbourhood: that was searched.
    """
    rows = [row for row, _ in _list_reasons(cards)]
    swaps = neighbourhood.name_swaps(clean_inputs[rows], falls_of_reasons.inputs)
    falls: list[list[Fall]] = [[] for _ in cards]
    for number, row in enumerate(rows):
        evaluations = int(falls_of_reasons.evaluations[number])
        fall = Fall(evaluations)
        if bool(falls_of_reasons.found[number]):
            words = None if swaps is None else swaps[number]
            changed = falls_of_reasons.inputs[number].cpu().tolist()
            fall = Fall(evaluations, changed, bool(falls_of_reasons.turned[number]), words)
        falls[row].append(fall)
    yield from zip(cards, falls, strict=True)
