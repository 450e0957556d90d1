"""Explainers of models that take data frames: functions of the user's, and the contributions of booster packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError, ModelError, check
from standfast.explainers.base import Explainer, Explanation
from standfast.frames import FrameFunction, find_frame_function
from standfast.frames.encoded import Encoding, read_encoding
from standfast.frames.model import find_final, is_booster
from standfast.model import Model
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
            are summed back, so they must be additive, as Shapley values are. It may have one more axis, the classes.
        title: for tables and messages.

    Raises:
        ArgumentError: in the call, the model takes no frames, or encoded columns belong to no single column.
        ModelError: what the function returns fits neither the user's columns nor the encoded ones.
    """

    function: Callable[[Any, Any, Any], Any]
    title: str = "function"
    name: ClassVar[str] = "frame_function"

    @property
    def label(self) -> str:
        return self.title

    def attribute(self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False) -> Explanation:
        self._check_graph(create_graph)
        function = find_frame_function(model)
        if function is None:
            raise ArgumentError("model", f"one that takes data frames, for {self.label}", "another one")
        with torch.no_grad():
            logits = model.forward(x.detach())
        classes = model.task.describe(model.task.answer(logits) if targets is None else targets)
        found = self.function(function.estimator, function.table.decode(x), classes.cpu().numpy())
        values = self._read(found, classes.cpu().numpy(), function, model)
        return torch.from_numpy(values).to(x), logits

    def _read(self, found: Any, classes: Array, function: FrameFunction, model: Model) -> Array:
        names = [str(name) for name in found.columns] if hasattr(found, "columns") else None
        found = getattr(found, "values", found) if not hasattr(found, "columns") else found.to_numpy()
        values = np.asarray(found.detach().cpu() if isinstance(found, Tensor) else found, dtype=np.float64)
        if values.ndim == 3:  # of all classes
            values = np.take_along_axis(values, classes[:, None, None], axis=2)[..., 0]
        table, width = function.table, values.shape[-1]
        own = len(table.columns)
        if values.ndim != 2 or len(values) != len(classes):
            raise ModelError(f"{self.label}: expected attributions ({len(classes)}, columns), got {values.shape}")
        if names is not None and set(names) == set(table.names):
            return np.ascontiguousarray(values[:, [names.index(name) for name in table.names]])
        if getattr(function.estimator, "steps", None):
            encoding = find_encoding(model, function, self.label)
            if len(encoding.owner) == width:
                same = width != own or encoding.owner.tolist() == list(range(own))
                expected = "a frame with the names of columns, as the pipeline changes their order"
                check(same or names is not None, self.label, expected, "an array")
                return encoding.sum_back(values)
        if width != own:
            more = f"{own} columns, or as many as the pipeline makes of them"
            raise ModelError(f"{self.label}: expected attributions of {more}, got {width}")
        return values


def compute_contributions(function: FrameFunction, frame: Any) -> Array | None:
    """Shapley values of trees by the package that grew them, which knows its own splits by category.

    They are path-dependent: the shares of training rows in the branches say how likely values are.

    Returns:
        `(N, F + 1, outputs)`, the last column for what does not depend on the row; None for another kind of model.
    """
    estimator = find_final(function.estimator)
    package = type(estimator).__module__.partition(".")[0]
    if package == "lightgbm":
        model = estimator if is_booster(estimator) else estimator.booster_
        found = np.asarray(model.predict(frame, pred_contrib=True), dtype=np.float64)
        width = len(function.table.columns) + 1
        return found.reshape(len(found), -1, width).transpose(0, 2, 1)
    if package == "xgboost":
        import xgboost

        rows = xgboost.DMatrix(frame, enable_categorical=True)
        booster = estimator.get_booster() if hasattr(estimator, "get_booster") else estimator
        found = np.asarray(booster.predict(rows, pred_contribs=True), dtype=np.float64)
        return found[..., None] if found.ndim == 2 else found.transpose(0, 2, 1)
    if package == "catboost":
        import catboost

        rows = catboost.Pool(frame, cat_features=estimator.get_cat_feature_indices())
        found = np.asarray(estimator.get_feature_importance(rows, type="ShapValues"), dtype=np.float64)
        return found[..., None] if found.ndim == 2 else found.transpose(0, 2, 1)
    return None
