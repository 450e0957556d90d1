"""What `evaluate` makes of data frames: a table, models that take frames, explainers and changes that fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from standfast.errors import ArgumentError, check
from standfast.explainers import Explainer
from standfast.explainers import get as get_explainer
from standfast.explainers.adapters.callables import CallableExplainer, name_function
from standfast.explainers.adapters.frame_functions import FrameExplainer
from standfast.frames import Table, make_model
from standfast.metrics import Metric
from standfast.model import Model
from standfast.neighbourhoods import Neighbourhood
from standfast.neighbourhoods.tables import TableChanges
from standfast.tasks import Binary, Regression

_CHANGES = "standfast.neighbourhoods.TableChanges, such as TableChanges({'income': '2%'}), for a data frame"


def find_losses(parts: Iterable[Any]) -> bool | list[str]:
    """The columns whose cells neighbourhoods, and those of metrics, may lose; True for all."""
    column_names: list[str] = []
    for part in parts:
        neighbourhood = getattr(part, "neighbourhood", part)
        if not isinstance(neighbourhood, TableChanges) or not neighbourhood.may_become_missing:
            continue
        if not isinstance(neighbourhood.changes, Mapping):
            return True
        column_names.extend(neighbourhood.changes)
    return column_names


def read_table(frame: Any, reference: Any, parts: Iterable[Any]) -> Table:
    """The table of a frame to explain and of its reference, where cells may be lost if a neighbourhood says so."""
    columns_with_losses = find_losses(parts)
    if reference is None:
        return Table.read(frame, missing=columns_with_losses)
    return Table.read(reference, frame, missing=columns_with_losses)


def name_models(models: Any, table: Table, notes: dict[str, Any]) -> Any:
    """The models of estimators that take frames: one, or a mapping from names; models that are ready stay."""
    if isinstance(models, Mapping):
        return {name: name_models(model, table, notes) for name, model in models.items()}
    if isinstance(models, Model):
        return models
    model = make_model(models, table)
    if isinstance(model.task, Binary):
        notes["threshold"] = f"{model.task.threshold:g}, at which the classifier itself decides"
    if isinstance(model.task, Regression):
        notes["tolerance"] = f"{model.task.tolerance:g}, a tenth of the standard deviation of the predictions"
    return model


def fit_explainer(explainer: Any) -> Any:
    """An explainer by whose features are single columns; a function of the user's gets estimators and frames."""
    if isinstance(explainer, CallableExplainer):
        return FrameExplainer(explainer.function, explainer.title)
    if not isinstance(explainer, str | Explainer) and callable(explainer):
        return FrameExplainer(explainer, name_function(explainer))
    if isinstance(explainer, str) and not explainer.startswith("randomised"):
        explainer = get_explainer(explainer)
    if getattr(explainer, "segments", None) == "auto":
        return dataclasses.replace(explainer, segments="pixels")
    return explainer


def fit_explainers(explainers: Any) -> Any:
    """`fit_explainer` for one explainer, several in a list, or a mapping from names."""
    if isinstance(explainers, Mapping):
        return {name: fit_explainer(explainer) for name, explainer in explainers.items()}
    single = isinstance(explainers, str | Explainer) or callable(explainers)
    return name_each([explainers] if single else explainers, fit_explainer)


def name_each(explainers: Iterable[Any], fit: Callable[[Any], Any]) -> dict[str, Any]:
    """Explainers, as `fit` makes them, by their names: those that were given, or their labels.

    Raises:
        ArgumentError: two have the same name.
    """
    fitted_explainers: dict[str, Any] = {}
    for explainer in explainers:
        fitted = fit(explainer)
        name = explainer if isinstance(explainer, str) else str(getattr(fitted, "label", explainer))
        is_new = name not in fitted_explainers
        check(is_new, "explainers", "names that differ, or a mapping from names", f"{name!r} twice")
        fitted_explainers[name] = fitted
    return fitted_explainers


def fit_neighbourhood(neighbourhood: Neighbourhood, table: Table) -> TableChanges:
    """Changes of a table that know its columns.

    Raises:
        ArgumentError: another kind of neighbourhood: codes of categories have no distance.
    """
    check(isinstance(neighbourhood, TableChanges), "neighbourhood", _CHANGES, type(neighbourhood).__name__)
    assert isinstance(neighbourhood, TableChanges)
    return table.bind(neighbourhood)


def fit_metric(metric: Any, table: Table) -> Any:
    """A configured metric whose neighbourhood knows the columns; a name as it is."""
    neighbourhood = getattr(metric, "neighbourhood", None)
    if isinstance(metric, Metric) and isinstance(neighbourhood, Neighbourhood):
        fitted = fit_neighbourhood(neighbourhood, table)
        return dataclasses.replace(metric, neighbourhood=fitted)  # type: ignore[call-arg]
    return metric


def refuse_missing_reference() -> None:
    """Raise `ArgumentError` where a default neighbourhood is needed, and nothing says how columns vary."""
    expected = "training rows, evaluate(..., reference=train), or neighbourhood=TableChanges({'income': '2%', ...})"
    raise ArgumentError("reference", expected, "neither, so that nothing says how much columns vary")
