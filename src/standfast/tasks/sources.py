"""What an estimator of another package is, and what one of its methods tells of a row."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

import numpy as np

#: what a method of an estimator tells of a row
Kind = Literal[
    "probabilities of classes",
    "scores of classes",
    "probabilities of labels",
    "scores of labels",
    "numbers",
]


@dataclass(frozen=True)
class Source:
    """A method of an estimator, and what it tells.

    Attributes:
        kind: what it tells.
        method: its name.
        options: further arguments of it.
        sign: -1 for distances, of which the smallest is the best.
        shift: is added to scores, so that the estimator decides at 0.
    """

    kind: Kind
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sign: float = 1.0
    shift: float = 0.0


def find_final(estimator: Any) -> Any:
    """The estimator that decides: the last step of a pipeline, the best one of a search; another one itself."""
    # by what it has and not by its class, so that no package is imported
    steps = getattr(estimator, "steps", None)
    if steps:
        return find_final(steps[-1][1])
    best = getattr(estimator, "best_estimator_", None)
    if best is not None:
        return find_final(best)
    # it freezes an estimator, and predicts as that does
    if type(estimator).__name__ == "FrozenEstimator":
        return find_final(estimator.estimator)
    return estimator


def find_type(estimator: Any) -> str:
    """What an estimator says that it is: "classifier", "regressor", "outlier_detector", "clusterer"; empty if nothing.

    >>> from sklearn.cluster import KMeans
    >>> find_type(KMeans()), find_type(object())
    ('clusterer', '')
    """
    kind = None
    # before scikit-learn 1.6, and of own classes, there are no tags
    with contextlib.suppress(Exception):
        kind = estimator.__sklearn_tags__().estimator_type
    if kind is None:
        # the attribute may be a property of the user's, which raises anything
        with contextlib.suppress(Exception):
            kind = getattr(estimator, "_estimator_type", None)
    if kind is None and len(read_classes(estimator)) > 0:
        return "classifier"
    # scikit-learn has changed the spelling
    return str(kind or "").replace("DensityEstimator", "density_estimator")


def has_method(estimator: Any, name: str) -> bool:
    """Whether it can be asked in this way, which may depend on its options."""
    return callable(getattr(estimator, name, None))


def read_classes(estimator: Any) -> Sequence[Any]:
    """The classes of a classifier, in the order of its probabilities; a list of these of several labels; or nothing."""
    classes = getattr(estimator, "classes_", None)
    if isinstance(classes, list):
        return classes
    is_row = isinstance(classes, np.ndarray | tuple) or hasattr(classes, "__array__")
    if is_row:
        return list(np.ravel(np.asarray(classes)).tolist())
    return ()


def are_of_labels(classes: Sequence[Any]) -> TypeGuard[list[Any]]:
    """Whether these are the classes of each of several labels."""
    return len(classes) > 0 and all(
        isinstance(label_classes, list | np.ndarray) for label_classes in classes
    )


def is_kind(estimator: Any, names: Sequence[str]) -> bool:
    """Whether an estimator is of one of these classes, by name, or of a class that is derived from one."""
    return any(base.__name__ in names for base in type(estimator).__mro__)


def name_estimator(estimator: Any) -> str:
    """The name of the class that decides, for messages."""
    return type(find_final(estimator)).__name__
