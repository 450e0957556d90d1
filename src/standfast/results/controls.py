"""Which explainers are controls: references that say nothing about what the model has learned."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def is_random(name: str) -> bool:
    """Whether the explainer with this name is the one with random maps.

    >>> is_random("random"), is_random("random:seed=1"), is_random("randomised saliency")
    (True, True, False)
    """
    return name.partition(":")[0].strip().lower() == "random"


def find_controls(names: Sequence[str], known: Collection[str] = ()) -> list[str]:
    """Which explainers are controls: random maps, and those of `known`; none if all of them are, as nothing is left.

    Controls are references, which are neither ranked nor called best or worst.

    >>> find_controls(["saliency", "edges", "random"], ["edges"]), find_controls(["random"])
    (['edges', 'random'], [])
    """
    controls = [name for name in names if name in known or is_random(name)]
    if len(controls) < len(names):
        return controls
    return []


class Explainers(list[str]):
    """The names of a study's explainers, in its order.

    Attributes:
        controls: those that are only references. Charts draw them in grey.
    """

    def __init__(self, names: Sequence[str], controls: Collection[str] = ()) -> None:
        super().__init__(names)
        self.controls = [name for name in names if name in controls]
