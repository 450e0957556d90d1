"""The part of Ray that standfast uses, in this process: actors that do a task when somebody waits for it.

A cluster on this computer takes Ray half a minute, so the tests with Ray itself are slow ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


class RayError(Exception):
    """A worker or its node is lost."""


class RayTaskError(RayError):
    """A task has raised an error."""


@dataclass(eq=False)
class Task:
    """What `remote` returns: a call of an actor that was not made yet."""

    actor: Actor
    function: Callable[..., object]
    arguments: Sequence[Any]


@dataclass(eq=False)
class RemoteMethod:
    """A method of an actor."""

    actor: Actor
    name: str

    def remote(self, *arguments: Any) -> Task:
        return Task(self.actor, getattr(self.actor.worker, self.name), arguments)


@dataclass(eq=False)
class Actor:
    """A worker on a node."""

    worker: Any
    node: int

    def __getattr__(self, name: str) -> RemoteMethod:
        return RemoteMethod(self, name)


@dataclass(eq=False)
class ActorClass:
    """A class whose objects are actors."""

    cluster: RayCluster
    kind: Callable[..., Any]

    def remote(self, packed: bytes, *arguments: Any) -> Actor:
        grid = self.cluster.cloudpickle.loads(packed)
        actor = Actor(self.kind(grid, *arguments), node=len(self.cluster.actors))
        self.cluster.actors.append(actor)
        return actor


@dataclass
class RayCluster:
    """Stands for the module `ray`, connected to a cluster on which each actor has a node of its own.

    Attributes:
        never_ends: whether a task is one that does not come to its end.
        lost: the nodes that are lost.
        killed: the actors that standfast has ended.
        dice: says which task ends first.
    """

    cloudpickle: ModuleType
    never_ends: Callable[[Task], bool] = lambda task: False
    lost: set[int] = field(default_factory=set)
    actors: list[Actor] = field(default_factory=list)
    killed: list[Actor] = field(default_factory=list)
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        self.exceptions = type(
            "exceptions", (), {"RayError": RayError, "RayTaskError": RayTaskError}
        )

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> Mapping[str, float]:
        return {"CPU": 2.0}

    def put(self, value: object) -> bytes:
        packed: bytes = self.cloudpickle.dumps(value)
        return packed

    def remote(self, **resources: float) -> Callable[[Callable[..., Any]], ActorClass]:
        return lambda kind: ActorClass(self, kind)

    def wait(
        self, tasks: Sequence[Task], num_returns: int, timeout: float
    ) -> tuple[list[Task], list[Task]]:
        """The tasks that come to their end first, which are any of them; waits for none."""
        ends = [task for task in tasks if not self.never_ends(task)]
        ready = self.dice.sample(ends, min(num_returns, len(ends)))
        return ready, [task for task in tasks if task not in ready]

    def get(self, task: Task) -> object:
        """What a task returns."""
        if task.actor.node in self.lost:
            raise RayError("the node has died")
        return task.function(*task.arguments)

    def kill(self, actor: Actor) -> None:
        self.killed.append(actor)
