"""The search of counter-examples for the reasons of cards, and what it finds in the user's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from standfast.errors import check, check_integer
from standfast.metrics.probe import Call
from standfast.metrics.reasons.counter_search import FoundFalls, SoughtFalls, find_falls
from standfast.metrics.reasons.places import Speaking
from standfast.metrics.reasons.reasons import Reasons
from standfast.neighbourhoods import Neighbourhood
from standfast.question.inputs import Inputs
from standfast.reason_cards.asked import Asked
from standfast.results.counter_examples import CounterExample, describe_changes, describe_swaps
from standfast.results.reasons import Card, Reason
from standfast.tensors import seed_generators


def check_counter_examples(budget: int, neighbourhood: Neighbourhood | None, inputs: Inputs) -> None:
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
class CounterSearch:
    """Searches changes of inputs after which reasons fall.

    Attributes:
        asked: what is explained.
        neighbourhood: where changed inputs lie.
        speaking: what features are ordered by.
        budget: evaluations for each reason.
        seed: of the search.
    """

    asked: Asked
    neighbourhood: Neighbourhood
    speaking: Speaking
    budget: int
    seed: int

    def find(self, cards: Sequence[Card]) -> dict[int, tuple[CounterExample, ...]]:
        """What is found for the reasons of cards, by the number of the sample."""
        inputs = self.asked.read([Reasons(self.neighbourhood)])
        neighbourhood = inputs.fit_neighbourhood(self.neighbourhood)
        explainer = inputs.fit_explainer(self.asked.explainer)
        ((samples, source),) = zip(inputs.samples.values(), inputs.models.values(), strict=True)
        columns = samples.about.get("columns") or ()
        examples: dict[int, tuple[CounterExample, ...]] = {}
        for part in samples.split(source.model(samples, "cpu")):
            numbers = range(*part.rows.indices(len(samples)))
            cards_of_part = [card for card in cards if card.sample in numbers and card.reasons]
            if not cards_of_part:
                continue
            rows = [numbers.index(card.sample) for card in cards_of_part]
            explained = part.model.check_inputs(part.take(samples.inputs)[rows])
            targets = None if samples.targets is None else samples.targets[part.rows][rows].to(explained.device)
            with torch.inference_mode(False), part.model.naming(explained), part.model.session():
                call = Call(part.model, explainer, explained, targets)
                falls = self._search(call, neighbourhood, cards_of_part)
            examples.update(_describe(cards_of_part, explained, falls, neighbourhood, columns))
        return examples

    def _search(self, call: Call, neighbourhood: Neighbourhood, cards: Sequence[Card]) -> FoundFalls:
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
        with seed_generators(self.seed, device):
            return find_falls(call, neighbourhood, sought, self.budget, self.seed)


def _list_reasons(cards: Sequence[Card]) -> list[tuple[int, Reason]]:
    """All reasons of cards, each with the number of its card."""
    return [(row, reason) for row, card in enumerate(cards) for reason in card.reasons]


def _describe(
    cards: Sequence[Card],
    clean_inputs: Tensor,
    falls: FoundFalls,
    neighbourhood: Neighbourhood,
    columns: Sequence[Mapping[str, Any]],
) -> dict[int, tuple[CounterExample, ...]]:
    """What was found, in words, by the number of the sample.

    Args:
        cards: of the reasons.
        clean_inputs: one for each card, `(n, F)`.
        falls: one for each reason.
        neighbourhood: that was searched.
        columns: of a data frame, as `describe_changes` takes them.
    """
    pairs = _list_reasons(cards)
    own_clean = clean_inputs[[row for row, _ in pairs]]
    swaps = neighbourhood.name_swaps(own_clean, falls.inputs)
    examples: dict[int, tuple[CounterExample, ...]] = {card.sample: () for card in cards}
    for number, (row, reason) in enumerate(pairs):
        card, is_found = cards[row], bool(falls.found[number])
        clean, changed = (inputs[number].cpu().numpy() for inputs in (own_clean, falls.inputs))
        changes: Mapping[str, tuple[str, str]] = {}
        if is_found and swaps is not None:
            changes = describe_swaps(swaps[number], card.names)
        elif is_found:
            changes = describe_changes(clean, changed, card.names, columns)
        example = CounterExample(
            sample=card.sample,
            reason=reason.name,
            top=card.top,
            changes=changes,
            evaluations=int(falls.evaluations[number]),
            turned=bool(falls.turned[number]),
            changed=changed if is_found else None,
        )
        examples[card.sample] += (example,)
    return examples
