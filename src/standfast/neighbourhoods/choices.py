"""Which parameters of a neighbourhood choose among candidates, and which points stand for these.

The parameter of a category, of a word or of a number with steps is a real number. But only a few different things can
come of it: another category, another word, another step. A search that knows the candidates can try each of them, and
where all combinations fit its budget, its result is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

#: numbers of combinations beyond this are not counted
_MANY = 2.0**53


@dataclass(frozen=True)
class Choices:
    """The candidates of the D parameters of P inputs.

    Attributes:
        counts: how many candidates each parameter has, int64 `(P, D)`; 1 for one that cannot change anything, and 0 for
            a number within a range, which has no candidates.
        clean: the number of the candidate that leaves the input as it is, or as near to it as possible, `(P, D)`.
        ordered: whether neighbouring candidates are alike, as the steps of a number are, bool `(D,)`.
        place: of numbers `(P, n, D)` of candidates the points `(P, n, D)` that stand for them; anything where a
            parameter has none.
        complete: whether nothing but the candidates can come of parameters that have some, bool `(P,)`.

    >>> counts, clean = torch.tensor([[3, 2]]), torch.tensor([[0, 0]])
    >>> ordered, complete = torch.tensor([True, False]), torch.tensor([True])
    >>> choices = Choices(counts, clean, ordered, place=lambda numbers: numbers / 2, complete=complete)
    >>> choices.place(choices.list_combinations(0, 4))
    tensor([[[0.0000, 0.0000],
             [0.5000, 0.0000],
             [1.0000, 0.0000],
             [0.0000, 0.5000]]])
    """

    counts: Tensor
    clean: Tensor
    ordered: Tensor
    place: Callable[[Tensor], Tensor]
    complete: Tensor

    @classmethod
    def none(cls, problems: int, parameters: int, device: torch.device) -> Choices:
        """Parameters that are numbers within ranges."""
        counts = torch.zeros(problems, parameters, dtype=torch.int64, device=device)
        ordered = torch.ones(parameters, dtype=torch.bool, device=device)
        return cls(
            counts,
            counts,
            ordered,
            torch.Tensor.double,
            torch.ones_like(counts[:, 0], dtype=torch.bool),
        )

    @classmethod
    def join(cls, parts: Sequence[Choices]) -> Choices:
        """The parameters of all parts, one part after the other."""
        widths = [len(part.ordered) for part in parts]

        def place(numbers: Tensor) -> Tensor:
            columns = torch.split(numbers, widths, dim=2)
            return torch.cat(
                [
                    part.place(numbers_of_part)
                    for part, numbers_of_part in zip(parts, columns, strict=True)
                ],
                dim=2,
            )

        return cls(
            torch.cat([part.counts for part in parts], dim=1),
            torch.cat([part.clean for part in parts], dim=1),
            torch.cat([part.ordered for part in parts]),
            place,
            torch.stack([part.complete for part in parts]).all(0),
        )

    @property
    def combinations(self) -> Tensor:
        """How many combinations the candidates have, float64 `(P,)`; infinite beside a number within a range."""
        return torch.where(self.counts > 0, self.counts.double(), torch.inf).prod(1)

    def list_combinations(self, start: int, end: int) -> Tensor:
        """The numbers `(P, end - start, D)` of the candidates of combinations `start` to `end`.

        The first parameter changes fastest. Instead of combinations beyond the last one there is the last one again.
        """
        # numbers above 2^53 are no longer exact in float64
        last = (self.combinations - 1).clamp(max=_MANY).long()[:, None]
        return self.number_candidates(
            torch.minimum(torch.arange(start, end, device=last.device), last)
        )

    def number_candidates(self, combinations: Tensor) -> Tensor:
        """The numbers `(P, n, D)` of the candidates of combinations with the numbers `(P, n)`."""
        left = combinations
        numbers = torch.zeros(
            *left.shape, self.counts.shape[1], dtype=torch.int64, device=left.device
        )
        for parameter, count in enumerate(self.counts.clamp(min=1).unbind(1)):
            numbers[:, :, parameter] = left % count[:, None]
            left = left // count[:, None]
        return numbers
