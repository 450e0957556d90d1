"""The controls beside the explainers of a question: those that the user names, or those that fit models and data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from standfast.errors import check
from standfast.explainers import Edges, Explainer, InputCopy, RandomExplainer, RandomisedExplainer
from standfast.metrics import Metric
from standfast.model import Model
from standfast.texts import find_text_box


def list_default_controls(
    explainers: Mapping[str, Explainer], models: Sequence[Model], inputs: Sequence[Tensor]
) -> dict[str, Explainer]:
    """The controls that fit all models and all inputs; none if the explainers are nothing but controls themselves.

    Args:
        explainers: by name. The first that is no control is the one that is explained again with shuffled weights.
        models: which are explained.
        inputs: of each data set, `(N, ...)`.
    """
    first_name = next((name for name, explainer in explainers.items() if not explainer.control), None)
    if first_name is None:
        return {}
    controls: dict[str, Explainer] = {RandomExplainer().label: RandomExplainer()}
    if all(find_text_box(model) is None for model in models):  # codes of words are no numbers
        controls[InputCopy().label] = InputCopy()
    if all(rows.ndim > 2 for rows in inputs):  # columns of a table have no neighbours
        controls[Edges().label] = Edges()
    if all(any(True for _ in model.module.parameters()) for model in models):
        controls[f"{RandomisedExplainer.name}:{first_name}"] = RandomisedExplainer(explainers[first_name])
    return controls


def select_defaults(controls: Mapping[str, Explainer], explainers: Mapping[str, Explainer]) -> dict[str, Explainer]:
    """Default controls without those whose names the user has given to controls of the same kind.

    Where something else has the name, the control gets a number behind it.
    """
    selected: dict[str, Explainer] = {}
    for name, control in controls.items():
        if name not in explainers:
            selected[name] = control
        elif type(explainers[name]) is not type(control):
            number = next(number for number in range(2, len(explainers) + 3) if f"{name} {number}" not in explainers)
            selected[f"{name} {number}"] = control
    return selected


def keep_useful(
    controls: Mapping[str, Explainer], explainers: Mapping[str, Explainer], metrics: Iterable[Metric]
) -> dict[str, Explainer]:
    """The controls that any of the metrics evaluates, without those that are among the explainers already.

    Raises:
        ArgumentError: a control has the name of an explainer.
    """
    measured = list(metrics)
    useful: dict[str, Explainer] = {}
    for name, control in controls.items():
        if control in explainers.values() or not any(metric.takes_control(control) for metric in measured):
            continue
        check(name not in explainers, "controls", "names that differ from those of the explainers", repr(name))
        useful[name] = control
    return useful
