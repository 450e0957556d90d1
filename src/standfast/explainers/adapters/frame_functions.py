"""Explainers of models that take data frames: functions of the user's, and the contributions of booster packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError, ModelError, check
from standfast.explainers.adapters.base import turn_maps
from standfast.explainers.adapters.callables import check_parameters
from standfast.explainers.base import Explainer, Explanation
from standfast.frames import FrameFunction, find_frame_function
from standfast.frames.encoded import Encoding, read_encoding, transform
from standfast.frames.model import is_booster
from standfast.frames.wrappers import unwrap
from standfast.model import Model
from standfast.tasks.decision import point_at
from standfast.tensors import Array

#: what each model's pipeline makes of the columns
_ENCODINGS: WeakKeyDictionary[nn.Module, Encoding] = WeakKeyDictionary()


def find_encoding(model: Model, function: FrameFunction, label: str) -> Encoding:
    """The encoding of a model of frames, found once for each model."""
    if model.module not in _ENCODINGS:
        _ENCODINGS[model.module] = read_encoding(function, label)
    return _ENCODINGS[model.module]


@dataclass(frozen=True)
class FrameExplainer(Explainer):
    """An explainer that calls the user's function with the fitted estimator and a data frame.

    Args:
        function: of the estimator, a frame of n rows and the classes `(n,)` (of a regressor the number of the output).
            It returns a number for each row and column: an array, a frame, a tensor, or an object of shap with
            `values`. It may have a column for each of the user's, or for each that the pipeline makes of them: these
            are summed back, so they must be additive, as Shapley values are (of the game over encoded columns). It may
            have one more axis, the classes.
        title: for tables and messages.

    Raises:
        ArgumentError: in the call, the model takes no frames; an encoded column depends on several columns, or has an
            attribution and belongs to none.
        ModelError: what the function returns fits neither the user's columns nor the encoded ones.
    """

    function: Callable[[Any, Any, Any], Any]
    title: str = "function"
    name = "frame_function"
    version = 3  # no product of a rare category passes

    def __post_init__(self) -> None:
        check_parameters(self.function, ("estimator", "frame", "targets"))

    @property
    def label(self) -> str:
        return self.title

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        function = find_frame_function(model)
        if function is None:
            raise ArgumentError(
                "model", f"one that takes data frames, for {self.label}", "another one"
            )
        with torch.no_grad():
            logits = model.forward(x.detach())
        answers = model.task.answer(logits) if targets is None else targets
        classes, signs = point_at(model.task, answers, model.width)
        returned = self.function(
            function.estimator, function.table.decode(x), classes.cpu().numpy()
        )
        names, values = self._read_values(returned, classes.cpu().numpy())
        maps = self._find_maps(names, values, function, model, x)
        return turn_maps(torch.from_numpy(maps).to(x), signs), logits

    def _read_values(self, returned: Any, classes: Array) -> tuple[list[str] | None, Array]:
        """The names of columns, if there are any, and attributions `(N, columns)` of the classes `(N,)`."""
        names = None
        if hasattr(returned, "columns"):
            names = [str(name) for name in returned.columns]
            returned = returned.to_numpy()
        elif not isinstance(returned, Tensor):  # whose `values` is a method
            returned = getattr(returned, "values", returned)
        if isinstance(returned, Tensor):
            returned = returned.detach().cpu()
        values = np.asarray(returned, dtype=np.float64)
        if values.ndim == 3:  # of all classes
            of_classes = np.take_along_axis(values, classes[:, None, None], axis=2)
            values = of_classes[..., 0]
        if values.ndim != 2 or len(values) != len(classes):
            raise ModelError(
                f"{self.label}: expected attributions ({len(classes)}, columns), got {values.shape}"
            )
        return names, values

    def _find_maps(
        self,
        names: list[str] | None,
        values: Array,
        function: FrameFunction,
        model: Model,
        x: Tensor,
    ) -> Array:
        """Attributions `(N, F)` of the user's columns, from those of columns with these names, or in their order."""
        table = function.table
        own_width = len(table.columns)
        width = values.shape[1]
        if names is not None and set(names) == set(table.names):
            order = [names.index(name) for name in table.names]
            return np.ascontiguousarray(values[:, order])
        encoded_width = _count_encoded(function, x)
        if width == encoded_width:
            return self._sum_back(names, values, find_encoding(model, function, self.label), x)
        if width != own_width:
            more = f"{own_width} columns, or as many as the pipeline makes of them"
            raise ModelError(f"{self.label}: expected attributions of {more}, got {width}")
        return values

    def _sum_back(
        self, names: list[str] | None, values: Array, encoding: Encoding, x: Tensor
    ) -> Array:
        """Attributions `(N, F)` of the user's columns, from those of encoded columns `(N, E)`."""
        columns = list(range(x.shape[1]))
        owners = encoding.list_owners().tolist()
        # with as many encoded columns as columns, an array alone does not tell in which order they are
        keeps_order = len(owners) != len(columns) or owners == columns
        expected = "a frame with the names of columns, as the pipeline changes their order"
        check(keeps_order or names is not None, self.label, expected, "an array")
        if names is not None and set(names) == set(encoding.names):
            values = values[:, [names.index(name) for name in encoding.names]]
        encoding.check_rows(x)
        return encoding.sum_back(values)


def _count_encoded(function: FrameFunction, x: Tensor) -> int | None:
    """How many columns a pipeline makes of the user's; None where it makes none, or no numbers."""
    if not unwrap(function.estimator).transformers:
        return None
    try:
        return int(transform(function, x[:1]).shape[1])
    except ArgumentError:
        return None


def compute_contributions(function: FrameFunction, frame: Any) -> Array | None:
    """Shapley values of trees by the package that grew them, which knows its own splits by category.

    They are path-dependent: the shares of training rows in the branches say how likely values are.

    Returns:
        `(N, F + 1, outputs)`, the last column for what does not depend on the row; None for another kind of model.
    """
    estimator = unwrap(function.estimator).final
    package = type(estimator).__module__.partition(".")[0]
    if package == "lightgbm":
        return _compute_lightgbm(estimator, frame, len(function.table.columns))
    if package == "xgboost":
        return _compute_xgboost(estimator, frame)
    if package == "catboost":
        return _compute_catboost(estimator, frame)
    return None


def _compute_lightgbm(estimator: Any, frame: Any, columns: int) -> Array:
    """It stops at the best iteration by itself."""
    booster = estimator if is_booster(estimator) else estimator.booster_
    contributions = np.asarray(booster.predict(frame, pred_contrib=True), dtype=np.float64)
    # one row of numbers for each input: of each output its columns and then the bias
    of_classes = contributions.reshape(len(contributions), -1, columns + 1)
    return of_classes.transpose(0, 2, 1)


def _compute_xgboost(estimator: Any, frame: Any) -> Array:
    """Of the rounds with which the estimator predicts; XGBoost's own booster predicts with all of them."""
    import xgboost

    is_booster_alone = not hasattr(estimator, "get_booster")
    booster = estimator if is_booster_alone else estimator.get_booster()
    missing = np.nan if is_booster_alone else estimator.missing
    rows = xgboost.DMatrix(frame, missing=missing, enable_categorical=True)
    rounds = (0, 0) if is_booster_alone else _find_rounds(estimator)
    contributions = np.asarray(
        booster.predict(rows, pred_contribs=True, iteration_range=rounds), dtype=np.float64
    )
    if contributions.ndim == 2:
        return contributions[..., None]
    return contributions.transpose(0, 2, 1)


def _find_rounds(estimator: Any) -> tuple[int, int]:
    """The rounds up to the best one, where early stopping chose it; (0, 0) stands for all."""
    if estimator.booster == "gblinear":
        return 0, 0
    try:
        return 0, int(estimator.best_iteration) + 1
    except AttributeError:  # it was not stopped early
        return 0, 0


def _compute_catboost(estimator: Any, frame: Any) -> Array:
    """A model that was stopped early has no trees after its best one."""
    import catboost

    rows = catboost.Pool(frame, cat_features=estimator.get_cat_feature_indices())
    contributions = np.asarray(
        estimator.get_feature_importance(rows, type="ShapValues"), dtype=np.float64
    )
    if contributions.ndim == 2:
        return contributions[..., None]
    return contributions.transpose(0, 2, 1)
