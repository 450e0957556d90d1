"""Data frames: rows of cells as rows of numbers, for fitted estimators and pipelines that take frames.

All tables of a question have the same columns, and are read together: one code for each category, one range for each
column. So a change of a column means the same everywhere, and maps can be compared between tables, such as those of
several years.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from standfast.display import say_step
from standfast.errors import ArgumentError, check
from standfast.explainers import Explainer
from standfast.explainers import get as get_explainer
from standfast.explainers.adapters.callables import CallableExplainer, name_function
from standfast.explainers.adapters.frame_functions import FrameExplainer
from standfast.frames import Table, find_frame_function, is_frame, make_model
from standfast.frames.model import check_losses
from standfast.metrics import Metric
from standfast.metrics.base import has_neighbourhood, set_neighbourhood
from standfast.model import Model
from standfast.neighbourhoods import Neighbourhood
from standfast.neighbourhoods.naming import describe_change
from standfast.neighbourhoods.tables import TableChanges
from standfast.question.grid import LoadedModel, ModelSource, Reader, Samples
from standfast.question.inputs import Given, Inputs, kinds
from standfast.tasks import Binary, Regression, Task
from standfast.texts import TextModel

_CHANGES = "standfast.neighbourhoods.TableChanges, such as TableChanges({'income': '2%'}), for a data frame"
#: so many columns are named in a sentence
_MOST_COLUMNS = 5


@dataclass(frozen=True, eq=False)
class GivenFrame:
    """Rows to explain, before it is known which tables are read with them.

    Attributes:
        frame: of pandas or polars, without the column that is predicted.
        reference: training rows with the same columns; None where there are none beside.
        ordered: of columns of texts whose categories have an order, all of them in that order.
        targets, about, extras: as of `Samples`.
    """

    frame: Any
    reference: Any = None
    ordered: Mapping[Any, Sequence[Any]] = field(default_factory=dict)
    targets: Tensor | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    extras: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frame)


@dataclass(frozen=True, eq=False)
class FrameReader(Reader):
    """Reads rows of numbers as rows of a table.

    Attributes:
        table: the columns.
    """

    table: Table

    words = "an estimator of data frames"
    expected = "a path of a pickled estimator, or a function that returns one, for a table"

    @classmethod
    # texts have a kind of their own
    def takes(cls, model: object) -> bool:
        return not isinstance(model, TextModel)

    def make_model(self, model: Any, task: Task | None, device: str) -> Model:
        if isinstance(model, Model):
            return model
        return make_model(model, self.table, task)


@kinds.register("frames")
@dataclass(eq=False)
class Frames(Inputs):
    """Data frames, and models of these.

    Attributes:
        table: of all data sets.
        has_reference: whether there are training rows, which say how much columns vary.
    """

    table: Table = field(kw_only=True)
    has_reference: bool = field(kw_only=True)
    _bound: list[Neighbourhood] = field(default_factory=list, repr=False)

    name = "frames"
    words = "tables"
    forms = "a data frame of pandas or polars"
    given = GivenFrame

    @classmethod
    def takes(cls, inputs: object, models: Sequence[object]) -> bool:
        return is_frame(inputs) and not any(isinstance(model, TextModel) for model in models)

    @classmethod
    def give(cls, inputs: Any) -> GivenFrame:
        return GivenFrame(inputs)

    @classmethod
    def read(cls, given: Given) -> Frames:
        table = _join_tables(given)
        about: dict[str, Any] = {}
        models: dict[str, ModelSource] = {}
        for number, (name, model) in enumerate(given.models.items(), start=1):
            if len(given.models) > 1:
                say_step(f"{name}, {number} of {len(given.models)}")
            models[name] = _make_source(model, table, about)
        samples = {
            name: _make_samples(data, table, models.values()) for name, data in given.data.items()
        }
        has_reference = given.reference is not None or any(
            # without any reference the rows to explain stand for it, and their spread is no evidence
            data.reference is not None
            for data in given.data.values()
        )
        return cls(samples, models, about, table=table, has_reference=has_reference)

    def fit_explainer(self, explainer: Any) -> Explainer:
        """Features are single columns; a function of the user's gets estimators and frames."""
        # it was wrapped for tensors, which these models do not take
        if isinstance(explainer, CallableExplainer):
            return FrameExplainer(explainer.function, explainer.title)
        if not isinstance(explainer, str | Explainer | type) and callable(explainer):
            return FrameExplainer(explainer, name_function(explainer))
        fitted = get_explainer(explainer)
        # neighbouring columns of a table have nothing in common, so no segments join them
        if getattr(fitted, "segments", None) == "auto":
            return dataclasses.replace(fitted, segments="pixels")  # type: ignore[type-var]
        return fitted

    def fit_neighbourhood(self, neighbourhood: Neighbourhood) -> TableChanges:
        # codes of categories have no distance
        check(
            isinstance(neighbourhood, TableChanges),
            "neighbourhood",
            _CHANGES,
            type(neighbourhood).__name__,
        )
        assert isinstance(neighbourhood, TableChanges)
        # bound already, as by an earlier metric
        if any(neighbourhood is bound for bound in self._bound):
            return neighbourhood
        bound = self.table.bind(neighbourhood)
        self._bound.append(bound)
        return bound

    def fit_metric(self, label: str, metric: Metric) -> dict[str, Metric]:
        neighbourhood = metric.neighbourhood_in_use
        if neighbourhood is None:
            return {label: metric}
        return {label: set_neighbourhood(metric, self.fit_neighbourhood(neighbourhood))}

    def check_model(self, model: Model, metrics: Iterable[Metric]) -> None:
        for metric in metrics:
            check_losses(model, metric.neighbourhood_in_use)

    def default_neighbourhood(self) -> tuple[Neighbourhood, str]:
        if not self.has_reference:
            expected = (
                "training rows, evaluate(..., reference=train), or"
                " neighbourhood=TableChanges({'income': '2%', ...})"
            )
            raise ArgumentError(
                "reference", expected, "neither, so that nothing says how much columns vary"
            )
        usual = self.table.default_changes()
        # known as bound, so that metrics do not bind it again
        self._bound.append(usual)
        rows = torch.cat([samples.inputs for samples in self.samples.values()])
        still = self._describe_still_numbers(usual, rows) + self._describe_still_rows(usual, rows)
        return usual, f"{describe_change(usual)}, because none was given{still}"

    def _describe_still_numbers(self, changes: TableChanges, rows: Tensor) -> str:
        """The columns in which numbers stay as they are, such as whole numbers below 50; empty if there are none."""
        columns: list[str] = []
        for column, movable in changes.find_movable_numbers(rows, self.table.bounds).items():
            still = int((~movable).sum())
            if still == len(rows):
                columns.append(f"{self.table.names[column]} in all rows")
            elif still:
                columns.append(f"{self.table.names[column]} in {still} of {len(rows)} rows")
        if not columns:
            return ""
        shown = columns[:_MOST_COLUMNS]
        if len(columns) > len(shown):
            shown.append(f"and {len(columns) - len(shown)} more columns")
        return f"; numbers that stay (0, missing, or whole and too small): {', '.join(shown)}"

    def _describe_still_rows(self, changes: TableChanges, rows: Tensor) -> str:
        """How many of the rows cannot change, in words; empty if all can."""
        still = int((~changes.find_movable(rows, self.table.bounds)).sum())
        if still:
            return f"; rows that cannot change: {still} of {len(rows)}"
        return ""

    def default_options(self, metric: type[Metric]) -> dict[str, Any]:
        """Maps are compared with their signs: a number that speaks for an answer, and then against it, has changed."""
        takes_changes = has_neighbourhood(metric, required=True)
        if takes_changes and "absolute" in metric.__dataclass_fields__:
            return {"absolute": False}
        return {}


def find_losses(parts: Iterable[Any]) -> bool | list[str]:
    """The columns whose cells neighbourhoods, and those of metrics, may lose; True for all."""
    column_names: list[str] = []
    for part in parts:
        neighbourhood = part.neighbourhood_in_use if isinstance(part, Metric) else part
        if not isinstance(neighbourhood, TableChanges) or not neighbourhood.may_become_missing:
            continue
        if not isinstance(neighbourhood.changes, Mapping):
            # True stands for all columns, whatever their names
            return True
        column_names.extend(neighbourhood.changes)
    return column_names


def _join_tables(given: Given) -> Table:
    """The table of all frames; rows to explain are a reference where there is no other one."""
    references: list[Any] = []
    explained_frames: list[Any] = []
    for data in given.data.values():
        # training rows that a data set has of its own win
        reference = given.reference if data.reference is None else data.reference
        if reference is None:
            references.append(data.frame)
        else:
            references.append(reference)
            explained_frames.append(data.frame)
    # all tables of a question have the same columns
    ordered = next(iter(given.data.values())).ordered
    return Table.join(
        references, explained_frames, ordered=ordered, missing=find_losses(given.changes)
    )


def _make_source(model: Any, table: Table, about: dict[str, Any]) -> ModelSource:
    """The source of a model that takes frames; `about` gets what was chosen for it."""
    if isinstance(model, ModelSource):
        return model
    if isinstance(model, Model):
        return LoadedModel(model)
    decoding_model = make_model(model, table)
    if isinstance(decoding_model.task, Binary):
        about["threshold"] = (
            f"{decoding_model.task.threshold:g}, at which the classifier itself decides"
        )
    if isinstance(decoding_model.task, Regression):
        about["tolerance"] = (
            f"{decoding_model.task.tolerance:g}, a tenth of the standard deviation of the predictions"
        )
    return LoadedModel(decoding_model)


def _make_samples(data: GivenFrame, table: Table, sources: Iterable[ModelSource]) -> Samples:
    """The rows of a frame, as numbers."""
    about = {**data.about, "columns": table.plain()}
    first = next(iter(sources), None)
    if isinstance(first, LoadedModel):
        function = find_frame_function(first.ready)
    else:
        function = None
    if function is not None and function.reading.class_names:
        about["classes"] = list(function.reading.class_names)
    return Samples(
        table.encode(data.frame),
        data.targets,
        table.bounds,
        about,
        data.extras,
        table.names,
        reader=FrameReader(table),
        sample_names=_name_rows(data.frame),
    )


def _name_rows(frame: Any) -> tuple[str, ...] | None:
    """The labels of the rows of a frame of pandas; None where they are the numbers from 0, or there are none."""
    index = getattr(frame, "index", None)
    if index is None:
        return None
    labels = index.tolist()
    # pandas gives these numbers where nobody has named rows
    if labels == list(range(len(labels))):
        return None
    return tuple(map(str, labels))
