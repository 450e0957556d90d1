"""What models answer: classes, labels, numbers, regions, boxes, vectors; see `standfast.tasks.base.Task`."""

from standfast.errors import check
from standfast.registry import build
from standfast.tasks.base import (
    CLASS_WORDS,
    Scale,
    Task,
    TaskWords,
    measure_margin,
    measure_score,
    read_common_words,
    tasks,
)
from standfast.tasks.classification import Classification, ZeroShot, zero_shot
from standfast.tasks.decision import Decision
from standfast.tasks.detection import Detection
from standfast.tasks.embedding import Embedding
from standfast.tasks.generated import GeneratedAnswer
from standfast.tasks.labels import Binary, MultiLabel
from standfast.tasks.outputs import find_output
from standfast.tasks.regression import Regression
from standfast.tasks.segmentation import Segmentation

__all__ = [
    "CLASS_WORDS",
    "Binary",
    "Classification",
    "Decision",
    "Detection",
    "Embedding",
    "GeneratedAnswer",
    "MultiLabel",
    "Regression",
    "Scale",
    "Segmentation",
    "Task",
    "TaskWords",
    "ZeroShot",
    "find_output",
    "get",
    "measure_margin",
    "measure_score",
    "read_common_words",
    "tasks",
    "zero_shot",
]


def get(task: str | Task) -> Task:
    """A task as it is, or by its name with options in a text.

    Raises:
        ArgumentError: it is something else; UnknownNameError: there is no such task.

    >>> get("regression:tolerance=2.5")
    Regression(tolerance=2.5)
    """
    got = repr(task)
    if isinstance(task, type):
        got = f"the class {task.__name__}: make one, {task.__name__}(...)"
    check(isinstance(task, str | Task), "task", "a task, or its name", got)
    if isinstance(task, str):
        return build(tasks, task)
    return task
