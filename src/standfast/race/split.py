"""Which samples a race uses, and which are kept for the confirmation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from standfast.errors import check
from standfast.model import Model
from standfast.question.grid import Grid, LoadedModel, ModelSource, Reader, Samples

#: fewer samples pass no sanity check (`standfast.results.sanity.FEWEST`)
FEWEST_CONFIRMING = 8
#: of so many samples, one is kept
_ONE_OF = 3

T = TypeVar("T")


@dataclass(frozen=True)
class Split:
    """The numbers of the samples of a race and of its confirmation, in the order in which they are used.

    Attributes:
        race, confirmation: they have no number in common.
    """

    race: tuple[int, ...]
    confirmation: tuple[int, ...]

    @property
    def count(self) -> int:
        """Of both together."""
        return len(self.race) + len(self.confirmation)

    @classmethod
    def draw(cls, count: int, seed: int, first: int, used: int | None = None) -> Split:
        """Every third of the samples in a random order is kept.

        It is nested: with fewer samples (`used`), both parts are the beginnings of those with more.

        Args:
            count: of all samples.
            seed: of the order.
            first: samples that the first look of the race needs.
            used: how many of them the time allows; None for all.

        Raises:
            ArgumentError: they are too few to be split.

        >>> Split.draw(30, seed=0, first=10).confirmation[:3], Split.draw(30, 0, 10, used=24).confirmation[:3]
        ((23, 9, 6), (23, 9, 6))
        """
        available = count if used is None else min(count, used)
        needed = count_needed(first)
        expected = f"at least {needed} samples: {first} for the first look of the race, and a third to confirm"
        if used is not None:
            expected = f"enough for {expected}"
        if used is None:
            argument, got = "inputs", f"{available}"
        else:
            argument, got = "minutes", f"time for {available}"
        check(available >= needed, argument, expected, got)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()[
            :available
        ]
        kept = order[_ONE_OF - 1 :: _ONE_OF]
        raced = []
        for number, row in enumerate(order):
            if number % _ONE_OF != _ONE_OF - 1:
                raced.append(row)
        return cls(tuple(raced), tuple(kept))


def count_needed(first: int) -> int:
    """The fewest samples of which a race with so many for the first look, and a confirmation, can be made.

    >>> count_needed(10), count_needed(20)
    (24, 29)
    """
    count = _ONE_OF * FEWEST_CONFIRMING
    while count - count // _ONE_OF < first:
        count += 1
    return count


def take_rows(samples: Samples, rows: Sequence[int]) -> Samples:
    """Some of the samples, in this order."""
    at = torch.tensor(rows, dtype=torch.int64)
    part = replace(
        samples,
        inputs=samples.inputs[at],
        targets=None,
        extras={name: values[at] for name, values in samples.extras.items()},
        tokens=_take(samples.tokens, rows),
        lengths=_take(samples.lengths, rows),
        sample_names=_take(samples.sample_names, rows),
    )
    if samples.targets is None:
        return part
    return replace(part, targets=samples.targets[at])


def _take(values: tuple[T, ...] | None, rows: Sequence[int]) -> tuple[T, ...] | None:
    """Some of the values; None of None."""
    if values is None:
        return None
    return tuple(values[row] for row in rows)


def take_part(grid: Grid, rows: Sequence[int]) -> Grid:
    """The grid on some of its samples; of one data set.

    What replaces values of tables stays that of all samples (`Model.with_reference`), so that an explainer is the same
    in the race and in the confirmation.
    """
    ((name, samples),) = grid.data.items()
    models = {label: _fix_reference(source, samples) for label, source in grid.models.items()}
    return replace(grid, data={name: take_rows(samples, rows)}, models=models, tried={})


def _fix_reference(source: ModelSource, samples: Samples) -> ModelSource:
    """The source of the same model, for which all rows of a table replace values, unless it has others."""
    if samples.inputs.ndim != 2:
        return source
    if isinstance(source, LoadedModel):
        return replace(source, ready=_refer_to(source.ready, samples.inputs))
    return _ReferringModel(source, samples.inputs)


@dataclass(frozen=True, eq=False)
class _ReferringModel(ModelSource):
    """A model that is made where a job runs, and gets all rows of a table there.

    Attributes:
        source: of the model.
        inputs: the rows, `(N, F)`.
    """

    source: ModelSource
    inputs: Tensor = field(repr=False)

    @property
    def about(self) -> Mapping[str, Any]:  # type: ignore[override]
        """What the source says of the model."""
        return self.source.about

    def model(self, samples: Samples, device: str) -> Model:
        """The model of the source."""
        return _refer_to(self.source.model(samples, device), self.inputs)

    def load(self, reader: type[Reader]) -> Any:
        """What the source loads."""
        return self.source.load(reader)


def _refer_to(model: Model, rows: Tensor) -> Model:
    """The model with these rows in the place of values, unless it has others."""
    if model.reference is not None:
        return model
    return model.with_reference(model.check_inputs(rows.to(model.device, model.dtype)))
