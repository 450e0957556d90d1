"""What an attack is: a search for the nearest point at which the prediction has changed."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from torch import Tensor

from standfast.algorithms.distortion.space import FreeSpace, Nearest
from standfast.errors import ArgumentError
from standfast.records import ConfigurationType
from standfast.registry import Registry, build
from standfast.tensors import Streams


class Attack(metaclass=ConfigurationType):
    """A search for the least change of the free features that changes the prediction, for all inputs at once.

    Concrete attacks are frozen dataclasses with their options.
    """

    name: ClassVar[str]
    #: what the model must have, for lists
    needs: ClassVar[str] = "gradients"
    #: how many points of each input it has in memory at once, for the size of groups
    points_in_memory: ClassVar[int] = 4

    @abstractmethod
    def run(self, space: FreeSpace, nearest: Nearest, streams: Streams, start: Tensor | None) -> None:
        """Evaluate points of `space` and offer them to `nearest`.

        `streams` has a random stream for each input. The search may begin at `start`, flat points `(N, d)`, such as the
        solution for other fixed features.
        """

    @abstractmethod
    def expected_evaluations(self) -> int:
        """About how many inputs this predicts for each input, for progress bars and estimates."""

    def expected_for(self, classes: int | None) -> int:
        """`expected_evaluations` for a model of so many classes; None: not known."""
        return self.expected_evaluations()


attacks: Registry[type[Attack]] = Registry("attack")


def get(attack: str | Attack, **options: Any) -> Attack:
    """An attack by its name and options, or by `"name:option=value,..."`; an attack itself is returned as it is.

    Raises:
        ArgumentError: an unknown name or option, a value out of range.
    """
    if isinstance(attack, Attack):
        return attack
    if not isinstance(attack, str):
        raise ArgumentError("attack", "a name or an Attack", repr(attack))
    return build(attacks, attack, options)
