"""What decides inside of an estimator: the steps before it, and the estimator behind searches and thresholds.

People fit a `GridSearchCV` around a pipeline, or a threshold around a forest. Where exactly one estimator answers, what
reads its trees or its encoders has to find it. Where several answers are averaged, or one is changed afterwards, the
estimator that stands around them is the last one that can be named.

Classes are recognised by their names, so that none of their packages is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: classes whose probabilities or numbers are those of the fitted estimator in the attribute
_PASS_ON = {
    "FrozenEstimator": "estimator",
    "FixedThresholdClassifier": "estimator_",
    "TunedThresholdClassifierCV": "estimator_",
    "SelfTrainingClassifier": "estimator_",
}
#: those that choose columns, and then ask the fitted estimator in `estimator_`
_SELECT = ("RFE", "RFECV")
#: what several kinds of estimators do with the answers of those that they hold
_ACTIONS = {
    "TransformedTargetRegressor": "transforms what they predict",
    "CalibratedClassifierCV": "averages and calibrates what they predict",
    "VotingClassifier": "averages what they predict",
    "VotingRegressor": "averages what they predict",
    "BaggingClassifier": "averages what they predict",
    "BaggingRegressor": "averages what they predict",
    "StackingClassifier": "predicts from what they predict",
    "StackingRegressor": "predicts from what they predict",
    "AdaBoostClassifier": "adds up what they predict",
    "AdaBoostRegressor": "takes the median of what they predict",
    "OneVsRestClassifier": "compares what they predict",
    "OneVsOneClassifier": "compares what they predict",
    "OutputCodeClassifier": "compares what they predict",
    "MultiOutputClassifier": "puts what they predict side by side",
    "MultiOutputRegressor": "puts what they predict side by side",
    "ClassifierChain": "puts what they predict side by side",
    "RegressorChain": "puts what they predict side by side",
}


@dataclass(frozen=True)
class Unwrapped:
    """What an estimator consists of, from the frame to the answer.

    Attributes:
        transformers: what changes rows before they reach `final`, in their order.
        final: the estimator that answers.
    """

    transformers: tuple[Any, ...]
    final: Any


def unwrap(estimator: Any) -> Unwrapped:
    """The estimator that answers, and the steps before it.

    It leads through pipelines within pipelines, searches such as `GridSearchCV`, thresholds, selections of columns, and
    target transformations and votes that change nothing. Steps that resample rows, as imbalanced-learn has them, do
    nothing when a pipeline predicts, and are left out.

    Args:
        estimator: fitted.

    >>> from types import SimpleNamespace
    >>> forest = SimpleNamespace(name="forest")
    >>> pipeline = SimpleNamespace(steps=[("nothing", "passthrough"), ("forest", forest)])
    >>> unwrap(SimpleNamespace(best_estimator_=pipeline)).final.name
    'forest'
    """
    transformers: list[Any] = []
    while True:
        if getattr(estimator, "steps", None):
            transformers.extend(_list_active_steps(estimator))
            # the last step answers, and may be wrapped itself
            estimator = estimator.steps[-1][1]
            continue
        # it changes rows, and holds the estimator that answers
        if _is_kind(estimator, _SELECT):
            transformers.append(estimator)
        inner = _find_held(estimator)
        if inner is None:
            return Unwrapped(tuple(transformers), estimator)
        estimator = inner


def describe_wrapping(estimator: Any) -> str:
    """An estimator that changes or joins what others predict, so that it has no trees of its own, in words.

    Args:
        estimator: fitted.

    Returns:
        Empty for another kind.

    >>> class Half:
    ...     def predict(self, rows):
    ...         return rows[:, 0] / 2
    >>> class VotingRegressor:
    ...     def __init__(self):
    ...         self.estimators_ = [Half(), Half()]
    >>> describe_wrapping(VotingRegressor())
    'VotingRegressor around Half, which averages what they predict'
    """
    actions = [
        _ACTIONS[base.__name__] for base in type(estimator).__mro__ if base.__name__ in _ACTIONS
    ]
    if not actions:
        return ""
    inner_kinds = [type(unwrap(inner).final).__name__ for inner in _list_held(estimator)]
    kinds = dict.fromkeys(inner_kinds)
    names = ", ".join(list(kinds)[:3]) or "others"
    return f"{type(estimator).__name__} around {names}, which {actions[0]}"


def _list_active_steps(pipeline: Any) -> Iterator[Any]:
    """The steps before the last one that change rows when a pipeline predicts."""
    for _, step in pipeline.steps[:-1]:
        is_empty = step is None or isinstance(step, str)  # "passthrough"
        only_resamples = hasattr(step, "fit_resample") and not hasattr(step, "transform")
        if not is_empty and not only_resamples:
            yield step


def _find_held(estimator: Any) -> Any:
    """The estimator whose answers are passed on as they are; None where there is none, or more than one."""
    best = getattr(estimator, "best_estimator_", None)
    if best is not None:
        return best
    for kind, attribute in _PASS_ON.items():
        if _is_kind(estimator, [kind]):
            return getattr(estimator, attribute, None)
    if _is_kind(estimator, _SELECT):
        return estimator.estimator_
    if _is_kind(estimator, ["TransformedTargetRegressor"]) and _keeps_target(estimator):
        return estimator.regressor_
    voters: Any = getattr(estimator, "estimators_", ())
    is_vote = _is_kind(estimator, ["VotingClassifier", "VotingRegressor"])
    # votes of classes are counted, and averages of one are the one
    if is_vote and len(voters) == 1 and getattr(estimator, "voting", "soft") == "soft":
        return voters[0]
    return None


def _keeps_target(estimator: Any) -> bool:
    """Whether the transformation of a target is none."""
    transformer: Any = getattr(estimator, "transformer_", None)
    is_function = _is_kind(transformer, ["FunctionTransformer"])
    return is_function and transformer.func is None and transformer.inverse_func is None


def _list_held(estimator: Any) -> list[Any]:
    """The fitted estimators that an estimator holds, such as the voters of a vote."""
    candidates: list[Any] = []
    for name, value in getattr(estimator, "__dict__", {}).items():
        if name.endswith("_"):  # fitted, as scikit-learn names it
            if isinstance(value, list | tuple):
                inner_estimators = value
            else:
                inner_estimators = [value]
            candidates.extend(inner_estimators)
    # a calibrated classifier predicts no class, and holds the estimator that does
    answering = []
    for inner in candidates:
        if not hasattr(inner, "predict"):
            inner = getattr(inner, "estimator", None)
        answering.append(inner)
    return [inner for inner in answering if hasattr(inner, "predict")]


def _is_kind(estimator: Any, names: Sequence[str]) -> bool:
    return any(base.__name__ in names for base in type(estimator).__mro__)
