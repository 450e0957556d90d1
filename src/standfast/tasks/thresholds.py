"""Classifiers that decide at a threshold of their own, and not where the probability is one half."""

from __future__ import annotations

import contextlib
from typing import Any

from standfast.errors import check
from standfast.tasks.boosters import is_of
from standfast.tasks.sources import find_final, has_method, is_kind

_AT_A_THRESHOLD = ("FixedThresholdClassifier", "TunedThresholdClassifierCV")


def find_threshold(estimator: Any) -> float | None:
    """The probability of class 1 from which on a classifier predicts it, where that is not 0.5; else None."""
    final = find_final(estimator)
    if is_kind(final, _AT_A_THRESHOLD) and _decides_by(final) == "predict_proba":
        threshold, of_class_1 = _read_threshold(final, 0.5)
        # a threshold of class 0 is the other end for class 1
        threshold = threshold if of_class_1 else 1.0 - threshold
    elif (
        is_of(final, "catboost")
        and has_method(final, "get_probability_threshold")
        and final.is_fitted()
    ):
        # None stands for one half
        threshold = float(final.get_probability_threshold() or 0.5)
    else:
        return None
    # one half is what a classifier decides at anyway
    if threshold == 0.5:
        return None
    return threshold


def _decides_by(final: Any) -> str:
    """The method whose answer a classifier at a threshold compares."""
    inner = getattr(final, "estimator_", final.estimator)
    if final.response_method != "auto":
        return str(final.response_method)
    if has_method(inner, "predict_proba"):
        return "predict_proba"
    return "decision_function"


def _read_threshold(final: Any, usual: float) -> tuple[float, bool]:
    """The threshold, and whether it is one of class 1 and not of class 0."""
    threshold = getattr(final, "best_threshold_", None)
    positive = getattr(final, "pos_label", None)
    if threshold is None:
        # one that is tuned has none before it is fitted
        fixed = getattr(final, "threshold", "auto")
        threshold = usual if fixed == "auto" else fixed
    else:
        # what it optimises knows the class; this is no public attribute
        with contextlib.suppress(Exception):
            positive = final._curve_scorer._get_pos_label()
    return float(threshold), positive is None or bool(positive == final.classes_[1])


def find_shift(estimator: Any) -> float:
    """What to add to decision functions, so that a classifier decides at 0."""
    final = find_final(estimator)
    if not is_kind(final, _AT_A_THRESHOLD) or _decides_by(final) != "decision_function":
        return 0.0
    threshold, of_class_1 = _read_threshold(final, 0.0)
    if of_class_1:
        return -threshold
    return threshold


def check_threshold(threshold: float) -> None:
    """Raise `ArgumentError` for a threshold that is none of probabilities."""
    fits = 0.0 < threshold < 1.0
    check(
        fits,
        "model",
        "a classifier whose threshold is above 0 and below 1",
        f"the threshold {threshold:g}",
    )
