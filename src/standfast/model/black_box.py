"""Functions of arrays, such as `predict_proba` of a fitted model, as modules without gradients."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import FailedModuleError, NoGradientsError, check
from standfast.tasks.labels import LEAST_PROBABILITY
from standfast.tensors import Array, widen_half

#: what is read from the logits, or what a function of arrays returns
Output = Literal["probability", "logit"]

#: what to do about a function that selects columns by their names
_COLUMNS_BY_NAME = (
    ". For columns by name: lambda rows: model.predict_proba(pandas.DataFrame(rows, columns=names))"
)
#: how far probabilities of a row may be from 1 in sum, and from [0, 1]; single precision needs 1e-6
_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Composition:
    """What a black box consists of, as it says itself: a change of this makes it another model.

    Attributes:
        parts: objects whose code counts, where it is the user's own, such as an estimator with its steps.
        content: what counts by its values, such as a tokenizer as it is stored.
        rows: inputs `(R, ...)` that differ in what noise does not reach, such as categories: what it answers counts.
    """

    parts: tuple[Any, ...] = ()
    content: Any = None
    rows: Tensor | None = None


class BlackBox(nn.Module):
    """A function of arrays as a module that returns logits; made by `Model.from_callable`, which describes it.

    Args:
        function: from an array `(N, ...)` to scores `(N, classes)` or `(N,)`.
        output: what the scores are; `"value"` for numbers that a task reads as they are.
        dtype: of the array.

    Raises:
        ArgumentError: an argument does not fit.

    >>> BlackBox(lambda rows: rows[:, 0], output="logit")(torch.tensor([[2.0], [-4.0]]))
    tensor([[-1.,  1.],
            [ 2., -2.]])
    """

    #: whether it keeps what it has answered to a row, so that equal rows are run once
    remembers: ClassVar[bool] = False
    #: why it answers nothing, such as a prompt that is too long; empty where it answers
    refusal: str = ""

    def __init__(
        self,
        function: Callable[[Any], Any],
        output: Output | Literal["value"] = "probability",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if hasattr(function, "predict"):
            hint = "; an estimator has one, such as predict_proba"
        else:
            hint = ""
        check(
            callable(function),
            "function",
            f"a function of arrays{hint}",
            type(function).__name__,
        )
        check(
            output in ("probability", "logit", "value"),
            "output",
            "'probability' or 'logit'",
            repr(output),
        )
        check(
            dtype in (torch.float32, torch.float64),
            "dtype",
            "torch.float32 or torch.float64",
            dtype,
        )
        self.function = function
        self.output = output
        self.dtype = dtype

    @property
    def estimator(self) -> object | None:
        """The object whose method the function is, such as a fitted model; None if there is none."""
        return getattr(_unwrap(self.function), "__self__", None)

    @property
    def title(self) -> str:
        """The name of the estimator's class, or else of the function."""
        if self.estimator is not None:
            return type(self.estimator).__name__
        function = _unwrap(self.function)
        return str(getattr(function, "__name__", type(function).__name__))

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(N, classes)` of inputs `(N, ...)`, by one call of the function.

        Raises:
            NoGradientsError: the inputs require gradients.
            ModelError: the function raises an error, or returns something else than scores.
        """
        self.refuse_gradients(x)
        rows = x.detach().to("cpu", self.dtype).numpy(force=True)
        scores = self._read(self._call(rows.copy()), rows)
        if scores.ndim == 1 and self.output != "value":
            scores = self._split_into_classes(scores)
        if self.output == "probability":
            # NaN stays NaN, and makes the sample `nonfinite`
            scores = np.log(np.maximum(scores, LEAST_PROBABILITY))
        return torch.from_numpy(scores).to(x.device, x.dtype)

    @property
    def composition(self) -> Composition:
        """What it consists of, as its function says; by default the function, with the estimator that it belongs to."""
        stated: Composition | None = getattr(self.function, "composition", None)
        if stated is None:
            return Composition(parts=(self.function,))
        return stated

    # What boxes of texts override

    def find_widths(self, x: Tensor) -> Tensor | None:
        """Where each of the inputs `(N, W)` ends, `(N,)`; None where all have the same width, as tables do."""
        return None

    def forgetting(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block, what was answered before is not known; a box that does not remember stays as it is."""
        return contextlib.nullcontext()

    def find_short(self, x: Tensor) -> Tensor | None:
        """Which of the inputs `(N, W)` have too few features for maps to be compared, bool `(N,)`; None for none."""
        return None

    def join_maps(self, maps: Tensor, x: Tensor) -> Tensor:
        """Maps of inputs, `(N, ...)` each, in the units that are explained; by default as they are."""
        return maps

    def replace_share(self, x: Tensor, others: Tensor, share: float) -> Tensor | None:
        """Inputs `(N, W)` with a share of their features from others; None where features are numbers to move."""
        return None

    def bind(self, extras: Mapping[str, Tensor]) -> BlackBox | None:
        """The box for one sample that has further inputs `(1, ...)`, by name; None where it takes them as arguments."""
        return None

    # How the function is called, and what it returns is read

    def refuse_gradients(self, x: Tensor) -> None:
        """Raise `NoGradientsError` if gradients by the inputs are asked for."""
        if torch.is_grad_enabled() and x.requires_grad:
            raise NoGradientsError(
                f"module: expected a module with gradients, got the function {self.title}, which has none; use an"
                " explainer, a metric or a search that needs predictions alone"
            )

    def _split_into_classes(self, scores: Array) -> Array:
        """Scores `(N, 2)` of two classes from those of class 1, `(N,)`."""
        if self.output == "probability":
            return np.stack((1 - scores, scores), axis=1)
        return np.stack((-scores / 2, scores / 2), axis=1)

    def _call(self, rows: Array) -> Any:
        has_column_names = hasattr(self.estimator, "feature_names_in_")
        try:
            with _without_warning_of_names() if has_column_names else contextlib.nullcontext():
                return self.function(rows)
        except MemoryError as error:  # the caller tries fewer rows
            raise torch.OutOfMemoryError(str(error)) from error
        except Exception as error:  # whatever the user's function raises
            said = f"{type(error).__name__}: {error}"
            if has_column_names or any(word in said for word in ("frame", "column", "feature_")):
                said = said.rstrip(".") + _COLUMNS_BY_NAME
            raise FailedModuleError(f"{self._describe_call(rows)}, which raises {said}") from error

    def _read(self, returned: Any, rows: Array) -> Array:
        """The scores as float64 `(N,)` or `(N, classes)`, checked."""
        scores = self._read_numbers(returned, rows)
        if scores.shape == (len(rows), 1):
            scores = scores[:, 0]
        has_right_axes = self.output == "value" or scores.ndim in (1, 2)
        if not has_right_axes or scores.shape[:1] != (len(rows),):
            raise FailedModuleError(
                f"{self._describe_call(rows)}, which returns shape {scores.shape}"
            )
        scores = scores.astype(np.float64)
        if self.output == "probability":
            self._check_probabilities(scores, rows)
        return scores

    def _read_numbers(self, returned: Any, rows: Array) -> Array:
        """What the function returns as an array of floating-point numbers, of any shape."""
        try:
            scores = np.asarray(
                widen_half(returned).detach().cpu() if isinstance(returned, Tensor) else returned
            )
        except Exception as error:  # such as a ragged list
            kind = type(returned).__name__
            raise FailedModuleError(
                f"{self._describe_call(rows)}, which returns a {kind}"
            ) from error
        if scores.dtype.kind in "iu" and self.output == "value":
            return scores.astype(np.float64)
        if scores.dtype.kind != "f":
            if scores.dtype.kind in "iubUO":
                hint = " (classes? give predict_proba, not predict)"
            else:
                hint = ""
            raise FailedModuleError(
                f"{self._describe_call(rows)}, which returns {scores.dtype}{hint}"
            )
        return scores

    def _check_probabilities(self, scores: Array, rows: Array) -> None:
        """Raise `FailedModuleError` for scores `(N,)` or `(N, classes)` that are not in [0, 1] with a sum of 1."""
        by_row = scores.reshape(len(rows), -1)
        if scores.ndim == 2:
            sums = by_row.sum(1)
        else:
            sums = np.ones(len(rows))
        with np.errstate(invalid="ignore"):  # NaN is not wrong here
            has_wrong_sum = np.abs(sums - 1) > _TOLERANCE
            is_outside = (np.abs(by_row - 0.5) > 0.5 + _TOLERANCE).any(1)
        wrong = has_wrong_sum | is_outside
        if wrong.any():
            first = np.array2string(scores[int(wrong.argmax())], precision=4, threshold=4)
            got = f"which returns {first}, not in [0, 1] with a sum of 1"
            hint = '(if these are several labels, return one of them; if they are scores, say output="logit")'
            raise FailedModuleError(f"{self._describe_call(rows)}, {got} {hint}")

    def _describe_call(self, rows: Array) -> str:
        """The beginning of an error; the number of rows is padded, and says nothing to the user."""
        if self.output == "value":
            expected = "numbers (N, ...)"
        else:
            scores = "probabilities" if self.output == "probability" else "scores"
            expected = f"{scores} of shape (N, classes) or (N,) as floating-point numbers"
        shape = ", ".join(["N", *map(str, rows.shape[1:])])
        return f"function: expected {expected} from {self.title} for an array of shape ({shape}), {rows.dtype}"


@contextlib.contextmanager
def _without_warning_of_names() -> Iterator[None]:
    """Silence what scikit-learn says at every call of a model that knows names of columns: the order is theirs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield


def _unwrap(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function without arguments that `functools.partial` has set."""
    if isinstance(function, functools.partial):
        return _unwrap(function.func)
    return function


def find_black_box(module: nn.Module) -> BlackBox | None:
    """The function among the parts of a module, if there is one: then the module has no gradients."""
    return next((part for part in module.modules() if isinstance(part, BlackBox)), None)
