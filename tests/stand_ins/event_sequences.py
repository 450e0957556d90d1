"""A kind of inputs of another package, in one file: sequences of events of a simulator, and models that score them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from standfast.model import Model
from standfast.neighbourhoods import Neighbourhood, TableChanges
from standfast.question.grid import LoadedModel, ModelSource, Reader, Samples
from standfast.question.inputs import Given, Inputs
from standfast.tasks import Task

EVENTS = ("start", "wait", "turn", "stop")


@dataclass(frozen=True)
class EventSequences:
    """Sequences of the same number of events, as the simulator gives them."""

    sequences: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.sequences)


@dataclass(frozen=True)
class EventModel:
    """A model of sequences of events.

    Attributes:
        score: from sequences to the probabilities of two outcomes of each.
    """

    score: Callable[[list[list[str]]], Any]


class EventReader(Reader):
    """Reads rows of numbers as sequences of events."""

    words: ClassVar[str] = "a model of events"
    expected: ClassVar[str] = "a function that returns an EventModel, for sequences of events"

    @classmethod
    def takes(cls, model: object) -> bool:
        return isinstance(model, EventModel)

    def make_model(self, model: Any, task: Task | None, device: str) -> Model:
        def answer(rows: Any) -> Any:
            return model.score([[EVENTS[round(code)] for code in row] for row in rows.tolist()])

        return Model.from_callable(answer, (0.0, float(len(EVENTS) - 1)))


@dataclass(eq=False)
class EventInputs(Inputs):
    """Each event is a number, which says nothing of how much of something there is."""

    name: ClassVar[str] = "events"
    words: ClassVar[str] = "sequences of events"
    given: ClassVar[type] = EventSequences

    @classmethod
    def takes(cls, inputs: object, models: Sequence[object]) -> bool:
        return isinstance(inputs, EventSequences)

    @classmethod
    def give(cls, inputs: Any) -> Any:
        return inputs

    @classmethod
    def read(cls, given: Given) -> EventInputs:
        samples = {name: _make_samples(data) for name, data in given.data.items()}
        first = next(iter(samples.values()))
        models: dict[str, ModelSource] = {}
        for name, model in given.models.items():
            models[name] = model
            if not isinstance(model, ModelSource):
                models[name] = LoadedModel(EventReader().make_model(model, None, "cpu"))
        assert isinstance(first.reader, EventReader)
        return cls(samples, models)

    @property
    def holds_quantities(self) -> bool:
        return False

    def default_neighbourhood(self) -> tuple[Neighbourhood, str]:
        width = next(iter(self.samples.values())).inputs.shape[1]
        changes = {
            f"x{place}": {"categories": tuple(range(len(EVENTS))), "rate": 0.2}
            for place in range(width)
        }
        return TableChanges(changes), "events are exchanged, because nothing was given"


def _make_samples(data: EventSequences) -> Samples:
    codes: list[list[float]] = [
        [float(EVENTS.index(event)) for event in events] for events in data.sequences
    ]
    rows: Tensor = torch.tensor(codes)
    return Samples(rows, bounds=(0.0, float(len(EVENTS) - 1)), reader=EventReader())
