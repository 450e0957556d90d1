"""`BlackBox`: a function of arrays, such as `predict_proba` of an estimator, as a module without gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.errors import ModelError, NoGradientsError, check
from holdfast.tensors import Array

#: what a score of a class is: a probability, or a logit
Output = Literal["probability", "logit"]

#: the least probability that has a logit of its own; forests return exact zeros
FLOOR = 1e-12
#: how far probabilities of a row may be from 1 in sum, and from [0, 1]; single precision needs 1e-6
_TOLERANCE = 1e-4


class BlackBox(nn.Module):
    """A function of arrays as a module that returns logits; made by `Classifier.from_callable`, which describes it.

    Args:
        function: from an array `(N, ...)` to scores `(N, classes)` or `(N,)`.
        output: what the scores are.
        dtype: of the array.

    Raises:
        ArgumentError: an argument does not fit.

    >>> BlackBox(lambda rows: rows[:, 0], output="logit")(torch.tensor([[2.0], [-4.0]]))
    tensor([[-1.,  1.],
            [ 2., -2.]])
    """

    def __init__(
        self, function: Callable[[Any], Any], output: Output = "probability", dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        estimator = "; an estimator has one, such as predict_proba" if hasattr(function, "predict") else ""
        check(callable(function), "function", f"a function of arrays{estimator}", type(function).__name__)
        check(output in ("probability", "logit"), "output", "'probability' or 'logit'", repr(output))
        check(dtype in (torch.float32, torch.float64), "dtype", "torch.float32 or torch.float64", dtype)
        self.function, self.output, self.dtype = function, output, dtype

    @property
    def estimator(self) -> object | None:
        """The object whose method the function is, such as a fitted model; None if there is none."""
        function = self.function
        while isinstance(function, functools.partial):
            function = function.func
        return getattr(function, "__self__", None)

    @property
    def title(self) -> str:
        """The name of the estimator's class, or else of the function."""
        if self.estimator is not None:
            return type(self.estimator).__name__
        function = self.function
        while isinstance(function, functools.partial):
            function = function.func
        return str(getattr(function, "__name__", type(function).__name__))

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(N, classes)` of inputs `(N, ...)`, by one call of the function.

        Raises:
            NoGradientsError: the inputs require gradients.
            ModelError: the function raises an error, or returns something else than scores.
        """
        if torch.is_grad_enabled() and x.requires_grad:
            raise NoGradientsError(
                f"module: expected a module with gradients, got the function {self.title}, which has none; use an"
                " explainer, a metric or a search that needs predictions alone"
            )
        rows = x.detach().to("cpu", self.dtype).numpy(force=True)
        scores = self._read(self._call(rows.copy()), rows)
        if scores.ndim == 1:
            both = (1 - scores, scores) if self.output == "probability" else (-scores / 2, scores / 2)
            scores = np.stack(both, axis=1)
        if self.output == "probability":
            scores = np.log(np.maximum(scores, FLOOR))  # NaN stays NaN, and makes the sample `nonfinite`
        return torch.from_numpy(scores).to(x.device, x.dtype)

    def _call(self, rows: Array) -> Any:
        try:
            return self.function(rows)
        except MemoryError as error:  # the caller tries fewer rows
            raise torch.OutOfMemoryError(str(error)) from error
        except Exception as error:  # whatever the user's function raises
            raise ModelError(f"{self._describe_call(rows)}, which raises {type(error).__name__}: {error}") from error

    def _read(self, found: Any, rows: Array) -> Array:
        """The scores as float64 `(N,)` or `(N, classes)`, checked."""
        try:
            scores = np.asarray(found.detach().cpu() if isinstance(found, Tensor) else found)
        except Exception as error:  # such as a ragged list
            raise ModelError(f"{self._describe_call(rows)}, which returns a {type(found).__name__}") from error
        if scores.dtype.kind != "f":
            hint = " (classes? give predict_proba, not predict)" if scores.dtype.kind in "iubUO" else ""
            raise ModelError(f"{self._describe_call(rows)}, which returns {scores.dtype}{hint}")
        if scores.shape == (len(rows), 1):
            scores = scores[:, 0]
        if scores.ndim not in (1, 2) or len(scores) != len(rows):
            raise ModelError(f"{self._describe_call(rows)}, which returns shape {scores.shape}")
        scores = scores.astype(np.float64)
        if self.output == "probability":
            each = scores.reshape(len(rows), -1)
            sums = each.sum(1) if scores.ndim == 2 else np.ones(len(rows))
            with np.errstate(invalid="ignore"):  # NaN is not wrong here
                wrong = (np.abs(sums - 1) > _TOLERANCE) | (np.abs(each - 0.5) > 0.5 + _TOLERANCE).any(1)
            if wrong.any():
                first = np.array2string(scores[int(wrong.argmax())], precision=4, threshold=4)
                got = f'which returns {first}, not in [0, 1] with a sum of 1 (say output="logit" for other scores)'
                raise ModelError(f"{self._describe_call(rows)}, {got}")
        return scores

    def _describe_call(self, rows: Array) -> str:
        """The beginning of an error; the number of rows is padded, and says nothing to the user."""
        what = "probabilities" if self.output == "probability" else "scores"
        shape = ", ".join(["N", *map(str, rows.shape[1:])])
        return (
            f"function: expected {what} of shape (N, classes) or (N,) as floating-point numbers from {self.title} for"
            f" an array of shape ({shape}), {rows.dtype}"
        )


def find_black_box(module: nn.Module) -> BlackBox | None:
    """The function among the parts of a module, if there is one: then the module has no gradients."""
    return next((part for part in module.modules() if isinstance(part, BlackBox)), None)
