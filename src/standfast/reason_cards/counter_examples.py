"""The search of counter-examples for the reasons of cards, and what it finds in the user's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from standfast.errors import check, check_integer
from standfast.metrics.probe import Call
from standfast.metrics.reasons.counter_search import SoughtFalls, find_falls
from standfast.metrics.reasons.places import Speaking
from standfast.metrics.reasons.reasons import Reasons
from standfast.neighbourhoods import Neighbourhood
from standfast.question.grid import Samples
from standfast.question.inputs import Inputs
from standfast.reason_cards.asked import Asked
from standfast.results.counter_examples import CounterExample, describe_changes, describe_swaps
from standfast.results.reasons import Card
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
        model = source.model(samples, "cpu")
        found: dict[int, tuple[CounterExample, ...]] = {}
        for part in samples.split(model):
            numbers = range(*part.rows.indices(len(samples)))
            own_cards = [card for card in cards if card.sample in numbers and card.reasons]
            if not own_cards:
                continue
            rows = [numbers.index(card.sample) for card in own_cards]
            own_inputs = part.model.check_inputs(part.take(samples.inputs)[rows])
            targets = None if samples.targets is None else samples.targets[part.rows][rows].to(own_inputs.device)
            with torch.inference_mode(False), part.model.naming(own_inputs), part.model.session():
                call = Call(part.model, explainer, own_inputs, targets)
                found.update(self._search(call, neighbourhood, own_cards, samples))
        return found

    def _search(
        self, call: Call, neighbourhood: Neighbourhood, cards: Sequence[Card], samples: Samples
    ) -> dict[int, tuple[CounterExample, ...]]:
        """What is found for cards of inputs that a model runs together."""
        asked_for = [(row, reason) for row, card in enumerate(cards) for reason in card.reasons]
        device = call.inputs.device
        sought = SoughtFalls(
            rows=torch.tensor([row for row, _ in asked_for], device=device),
            features=torch.tensor([reason.feature for _, reason in asked_for], device=device),
            signs=torch.tensor([reason.sign for _, reason in asked_for], device=device),
            top=cards[0].top,
            speaking=self.speaking,
        )
        with seed_generators(self.seed, device):
            falls = find_falls(call, neighbourhood, sought, self.budget, self.seed)
        clean_inputs = call.inputs[sought.rows]
        swaps = neighbourhood.name_swaps(clean_inputs, falls.inputs)
        examples: dict[int, tuple[CounterExample, ...]] = {card.sample: () for card in cards}
        for number, (row, reason) in enumerate(asked_for):
            card = cards[row]
            clean, changed = (inputs[number].cpu().numpy() for inputs in (clean_inputs, falls.inputs))
            columns = samples.about.get("columns") or ()
            is_found = bool(falls.found[number])
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
