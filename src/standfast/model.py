"""`Model`: a user's module, with all that standfast needs to run it safely and fast."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import operator
import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from standfast.display import Count, show_progress
from standfast.errors import (
    FINITE,
    ArgumentError,
    FailedModuleError,
    ModelError,
    NoGradientsError,
    SecondDerivativeError,
    UnknownNameError,
    check,
    check_integer,
    warn_user,
)
from standfast.function_calls import check_has_gradients, find_training_calls, run_eagerly
from standfast.input_types import find_input_types
from standfast.reference import FEWEST_ROWS, Reference, make_reference
from standfast.tasks import Classification, Task, ZeroShot, find_output
from standfast.tasks import get as get_task
from standfast.tasks.base import expand_targets
from standfast.tasks.estimators import fit_method, name_classes_of
from standfast.tasks.labels import LEAST_PROBABILITY
from standfast.tasks.outputs import Where, check_where, is_list_of_boxes
from standfast.tasks.suspicions import (
    OTHER_TASKS,
    are_probabilities,
    describe_graph,
    describe_probabilities,
    is_one_number,
    lacks_channel,
    may_be_probabilities,
    suggest_task,
)
from standfast.tensors import (
    Array,
    describe_bounds,
    describe_no_tensor,
    describe_rows,
    is_on_host,
    keep_freed_memory,
    limited_threads,
    read_bounds,
    seed_generators,
    suggest_dtype,
    suggest_layout,
    widen_half,
)
from standfast.tensors import Bound as Bound

Kind = Literal["forward", "backward"]
#: what is read from the logits, or what a function of arrays returns
Output = Literal["probability", "logit"]

# Kernels for few rows, or for an odd number of rows, round differently in the last bits. So every forwarded batch is
# padded to a multiple of this number, and to at least twice this number. Only this makes results bit-identical for all
# batch sizes.
ROW_ALIGNMENT = 8
#: what torch says where there is no second derivative
_NOT_TWICE = ("double backward", "differentiate twice", "donated buffers", "_backward is not implemented")
#: how the message begins where the module raises an error, and not what it returns is wrong
#: what to do about a function that selects columns by their names
_COLUMNS_BY_NAME = ". For columns by name: lambda rows: model.predict_proba(pandas.DataFrame(rows, columns=names))"
_SMALLEST_ROWS, _LARGEST_ROWS = 16, 8192
#: how far probabilities of a row may be from 1 in sum, and from [0, 1]; single precision needs 1e-6
_TOLERANCE = 1e-4
# inputs that use less than this share of their bounds may have other units, such as [0, 1] and [0, 255]
_SMALL_SHARE = 0.01
#: numbers in an input of which 64 rows fit everywhere, whatever the network: 3 x 64 x 64
_SMALL_INPUT = 12_288
#: bytes of all layers together that a processor works on fastest; the caches of most have about that much
_CPU_ROOM = 16 << 20
#: inputs with which a module is tried, and the difference of logits, as a share of their range, that is no rounding
_REPEATED, _ROUNDING = 16, 1e-3
#: one in so many of these shows in a batch of its own whether they depend on the batch
_PART = 4


class ForwardWrapper(nn.Module):
    """A module that runs `function(module, x)`; `Model(module, forward=function)` makes one.

    Its layers keep the names that they have in `module`. The module itself is listed as `"(wrapped)"`.

    >>> double = ForwardWrapper(nn.Sequential(nn.Identity()), lambda module, x: {"logits": 2 * module(x)}["logits"])
    >>> double(torch.ones(1, 2)), [name for name, _ in double.named_modules()]
    (tensor([[2., 2.]]), ['', '(wrapped)', '0'])
    """

    def __init__(self, module: nn.Module, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.module = module
        self.function = function
        self.training = getattr(module, "training", False)  # frozen TorchScript has no modes

    def forward(self, x: Tensor, **extras: Tensor) -> Tensor:
        """The result of the function for `x` `(N, ...)`."""
        return self.function(self.module, x, **extras)

    def named_modules(
        self, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Module]]:
        """The layers as `torch.nn.Module.named_modules` lists them, with the names that they have in `module`."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, layer in self.module.named_modules(memo, prefix, remove_duplicate):
            yield (name if layer is not self.module else f"{prefix}.(wrapped)".removeprefix(".")), layer


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

    def __init__(
        self,
        function: Callable[[Any], Any],
        output: Output | Literal["value"] = "probability",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        estimator = "; an estimator has one, such as predict_proba" if hasattr(function, "predict") else ""
        check(callable(function), "function", f"a function of arrays{estimator}", type(function).__name__)
        check(output in ("probability", "logit", "value"), "output", "'probability' or 'logit'", repr(output))
        check(dtype in (torch.float32, torch.float64), "dtype", "torch.float32 or torch.float64", dtype)
        self.function, self.output, self.dtype = function, output, dtype

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
            both = (1 - scores, scores) if self.output == "probability" else (-scores / 2, scores / 2)
            scores = np.stack(both, axis=1)
        if self.output == "probability":
            scores = np.log(np.maximum(scores, LEAST_PROBABILITY))  # NaN stays NaN, and makes the sample `nonfinite`
        return torch.from_numpy(scores).to(x.device, x.dtype)

    @property
    def composition(self) -> Composition:
        """What it consists of, as its function says; by default the function, with the estimator that it belongs to."""
        stated: Composition | None = getattr(self.function, "composition", None)
        return Composition(parts=(self.function,)) if stated is None else stated

    def find_widths(self, x: Tensor) -> Tensor | None:
        """Where each of the inputs `(N, W)` ends, `(N,)`; None where all have the same width, as tables do."""
        return None

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

    def refuse_gradients(self, x: Tensor) -> None:
        """Raise `NoGradientsError` if gradients by the inputs are asked for."""
        if torch.is_grad_enabled() and x.requires_grad:
            raise NoGradientsError(
                f"module: expected a module with gradients, got the function {self.title}, which has none; use an"
                " explainer, a metric or a search that needs predictions alone"
            )

    def _call(self, rows: Array) -> Any:
        named = hasattr(self.estimator, "feature_names_in_")  # it warns at every call; columns have their order
        try:
            with warnings.catch_warnings() if named else contextlib.nullcontext():
                if named:
                    warnings.filterwarnings("ignore", message="X does not have valid feature names")
                return self.function(rows)
        except MemoryError as error:  # the caller tries fewer rows
            raise torch.OutOfMemoryError(str(error)) from error
        except Exception as error:  # whatever the user's function raises
            said = f"{type(error).__name__}: {error}"
            if named or "frame" in said or "column" in said or "feature_" in said:
                said = said.rstrip(".") + _COLUMNS_BY_NAME
            raise FailedModuleError(f"{self._describe_call(rows)}, which raises {said}") from error

    def _read(self, found: Any, rows: Array) -> Array:
        """The scores as float64 `(N,)` or `(N, classes)`, checked."""
        try:
            scores = np.asarray(widen_half(found).detach().cpu() if isinstance(found, Tensor) else found)
        except Exception as error:  # such as a ragged list
            raise FailedModuleError(f"{self._describe_call(rows)}, which returns a {type(found).__name__}") from error
        if scores.dtype.kind in "iu" and self.output == "value":
            scores = scores.astype(np.float64)
        if scores.dtype.kind != "f":
            hint = " (classes? give predict_proba, not predict)" if scores.dtype.kind in "iubUO" else ""
            raise FailedModuleError(f"{self._describe_call(rows)}, which returns {scores.dtype}{hint}")
        if scores.shape == (len(rows), 1):
            scores = scores[:, 0]
        if (scores.ndim not in (1, 2) and self.output != "value") or scores.shape[:1] != (len(rows),):
            raise FailedModuleError(f"{self._describe_call(rows)}, which returns shape {scores.shape}")
        scores = scores.astype(np.float64)
        if self.output == "probability":
            each = scores.reshape(len(rows), -1)
            sums = each.sum(1) if scores.ndim == 2 else np.ones(len(rows))
            with np.errstate(invalid="ignore"):  # NaN is not wrong here
                wrong = (np.abs(sums - 1) > _TOLERANCE) | (np.abs(each - 0.5) > 0.5 + _TOLERANCE).any(1)
            if wrong.any():
                first = np.array2string(scores[int(wrong.argmax())], precision=4, threshold=4)
                got = f"which returns {first}, not in [0, 1] with a sum of 1"
                hint = '(if these are several labels, return one of them; if they are scores, say output="logit")'
                raise FailedModuleError(f"{self._describe_call(rows)}, {got} {hint}")
        return scores

    def _describe_call(self, rows: Array) -> str:
        """The beginning of an error; the number of rows is padded, and says nothing to the user."""
        what = {"probability": "probabilities", "logit": "scores"}.get(self.output, "")
        what = f"{what} of shape (N, classes) or (N,) as floating-point numbers" if what else "numbers (N, ...)"
        shape = ", ".join(["N", *map(str, rows.shape[1:])])
        return f"function: expected {what} from {self.title} for an array of shape ({shape}), {rows.dtype}"


class Model:
    """A module that returns logits, the range of its inputs, its device and a memory-safe batch size.

    Args:
        module: maps inputs `(N, ...)` to logits `(N, classes)` of at least two classes, or to what the `task` reads. It
            is moved to `device`. Every call restores its train/eval mode and the `requires_grad` of its parameters. It
            may be compiled or exported; an exported program stays in the mode in which it was exported, which must be
            evaluation mode. One in bfloat16 or float16 gets its inputs in that type; all other numbers are float32.
            Its type is that of its first layer with real weights; whole numbers, such as quantised ones, are no type.
        bounds: `(lower, upper)`, the valid values of an input: numbers, or tensors that broadcast against one
            sample, for example `(C, 1, 1)` for inputs normalised per channel.
        preprocess: applied to inputs before the module, for example a normalisation. Gradients include it.
        device: with `"auto"`, the accelerator on which the module's parameters are; else CUDA if there is one; else the
            CPU.
        batch_size: rows forwarded at once (samples x perturbations x the explainer's steps), or `"auto"`: the number
            follows from the size of all layers, and it is halved, with a warning, when memory runs out.
        forward: a function `(module, x) -> logits`, for a module where `module(x)` does not return logits: for example
            a module with keyword arguments, with further inputs that are the same for every row, or with an output
            that is no tensor. The module is then wrapped (`ForwardWrapper`); its layers keep their names.
        mixed_precision: `"bfloat16"` runs a float32 module under `torch.autocast` in bfloat16, which is faster on
            accelerators. Preprocessing, logits, maps and all that is computed of them stay float32 or float64.
        reference: for a table, rows `(B, F)` of the training data, say. Explainers and metrics take the values from
            them that replace others, unless their options say otherwise: the median of each column (of categories of a
            data frame the most frequent one), or 32 of the rows (`kernel_shap`, `shapley_sampling`, `gradient_shap`,
            `deep_shap`, `aopc`). Without a reference,
            `standfast.evaluate` and studies take the rows that are explained, if there are at least 8.
        task: what the module answers: a `standfast.tasks.Task`, or its name with options, such as
            `"regression:tolerance=2.5"`.
        output: the answer's part of what the module returns: a key, an index, the name of an attribute, or a function.
            By default it is found: a tensor; `logits` or `out` of a dictionary or an object; a tuple's only tensor.
        extras: names of further inputs, which go with their sample and are neither changed nor explained. `evaluate`
            and studies take them from the extras of the data, and the module gets them as keyword arguments. Each
            sample is then evaluated alone.

    Raises:
        ArgumentError: `bounds` is no range, `batch_size` is below 1, `module` is no `torch.nn.Module`, it is a program
            that was exported in training mode, `mixed_precision` is asked for a module that is not in float32, or
            `reference` is no table within the bounds.

    >>> _ = torch.manual_seed(0)
    >>> model = Model(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), bounds=(0.0, 1.0), device="cpu")
    >>> model.logits(torch.rand(5, 1, 2, 2)).shape
    torch.Size([5, 3])
    >>> model.predict(torch.full((1, 1, 2, 2), 2.0))
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: inputs: expected values within the bounds [0, 1], got values in [2, 2]
    """

    def __init__(
        self,
        module: nn.Module,
        bounds: tuple[Bound, Bound],
        preprocess: Callable[[Tensor], Tensor] | None = None,
        device: str | torch.device = "auto",
        batch_size: int | Literal["auto"] = "auto",
        forward: Callable[[nn.Module, Tensor], Tensor] | None = None,
        mixed_precision: Literal["bfloat16"] | None = None,
        reference: Tensor | None = None,
        task: str | Task = "classification",
        output: Where = None,
        extras: Sequence[str] = (),
    ) -> None:
        #: what the module answers
        self.task = get_task(task).load_files(Path())
        if isinstance(module, BlackBox):
            self.task = name_classes_of(module.function, self.task)
        check_where(output)
        self.output = output
        self.extras = (extras,) if isinstance(extras, str) else tuple(extras)
        hint = "; Model.from_callable takes a function of arrays, such as predict_proba"
        check(isinstance(module, nn.Module), "module", "a torch.nn.Module", describe_no_module(module) + hint)
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            module = module.module  # several cards are for several jobs
        check(preprocess is None or callable(preprocess), "preprocess", "a callable or None", preprocess)
        check_integer(batch_size, "batch_size", also=("auto",))
        check(forward is None or callable(forward), "forward", "a callable (module, x) -> logits or None", forward)
        training = find_training_calls(module)
        expected = "a program without dropout and batch normalisation in training mode (export it in evaluation mode)"
        check(not training, "module", expected, f"one that calls {', '.join(training)} in training mode")
        _check_weights(module)
        parameter = next(module.parameters(), None)
        #: the type in which the module computes; inputs, maps and logits have `dtype`, which is never below float32
        self.precision, *other_types = find_input_types(module)
        self._other_types = tuple(other_types)
        self.dtype = widen_half(torch.empty(0, dtype=self.precision)).dtype
        if self.dtype != self.precision and find_black_box(module) is None:
            forward = functools.partial(_run_in, self.precision, forward or operator.call)
        check(mixed_precision in (None, "bfloat16"), "mixed_precision", "'bfloat16' or None", repr(mixed_precision))
        self.mixed_precision = mixed_precision
        if mixed_precision is not None:
            fits = self.precision == torch.float32 and find_black_box(module) is None
            check(fits, "mixed_precision", "None for a module that is not in float32", repr(mixed_precision))
            self.precision = torch.bfloat16
            if not _runs_mixed(module):  # as that of another `Model` does
                forward = functools.partial(_run_mixed, forward or operator.call)
        module = module if forward is None else ForwardWrapper(module, forward)
        self.module = module
        self.preprocess = preprocess
        self.black_box = find_black_box(module)
        self.device = resolve_device("cpu" if self.black_box and device == "auto" else device, parameter)
        if self.black_box is not None:
            self.dtype = self.precision = self.black_box.dtype
            self._other_types = ()
        module.to(self.device)
        keep_freed_memory()
        self.bounds = read_bounds(bounds, self.dtype, self.device)
        self.batch_size = batch_size
        self._budgets: dict[tuple[tuple[int, ...], Kind], int] = {}
        self._depth = 0
        self._on_inputs: Callable[[int], None] | None = None
        self._on_rows: Callable[[int], None] | None = None
        #: whether `map_rows` fills batches up, so that results have the same bits for all batch sizes; False for a
        #: module of which the rows have as many parts as that, such as tokens
        self.fills_batches = True
        #: whether somebody counts what it does (`watch`)
        self.is_watched = False
        self._asked: tuple[int, ...] | None = None
        self._seen_outputs = self._values_seen = False
        #: whether the module or the preprocessing writes into its input, once it has been run; None before
        self.overwrites: bool | None = None
        # inputs with outputs that may be probabilities of several labels, and these
        self._doubtful: tuple[Tensor, Tensor] | None = None
        #: the number of classes, once the module has been run
        self.classes: int | None = None
        #: how many classes or labels the module answers with, once it has
        self.width: int | None = None
        #: whether the module returns more than the answer, once it has been run
        self.returns_parts = False
        self._warned: set[str] = set()
        self._repeatable: nn.Module | None = None  # the module that has given the same logits again
        self._differentiated: nn.Module | None = None  # the module whose graph was looked at in this session
        #: what of options was found to fit the bounds, so that it is not checked again for each chunk
        self.fitting: set[Hashable] = set()
        #: of the columns of a table; None if nothing is known of them
        self.reference: Reference | None = None
        if reference is not None:
            rows = self.check_inputs(reference, "reference")
            check(rows.ndim == 2, "reference", "rows of a table (B, F)", f"shape {tuple(rows.shape)}")
            self.reference = make_reference(rows)

    @classmethod
    def from_callable(
        cls,
        function: Callable[[Any], Any],
        bounds: tuple[Bound, Bound],
        *,
        output: Output = "probability",
        dtype: torch.dtype = torch.float32,
        batch_size: int | Literal["auto"] = "auto",
        reference: Tensor | None = None,
        task: str | Task = "classification",
    ) -> Model:
        """A model from a function of arrays: of scikit-learn, XGBoost, LightGBM, or any other black box.

        It has no gradients, no layers and no parameters. Explainers and metrics that need them refuse it; all others
        work. Probabilities become logits `log(max(p, 1e-12))`, of which a softmax gives the probabilities back.

        Args:
            function: from a NumPy array `(N, ...)` to an array or tensor of scores `(N, classes)`; or `(N,)` for two
                classes, the score of class 1. It must treat each row alone, and give the same answer again. A method
                of an estimator, such as `model.predict_proba`, also shows its trees to `"shap:TreeExplainer"`.
            bounds: as for a module.
            output: what the function returns: `"probability"`, or `"logit"` for scores whose softmax gives the
                probabilities. A score `(N,)` s is the log-odds of class 1; the logits are then -s/2 and s/2.
            dtype: of inputs, and of the arrays that the function gets: `torch.float32` or `torch.float64`.
            batch_size: rows of one call at most; `"auto"` is 8192, and half of that when memory runs out, and so on.
            reference: rows `(B, F)` of a table, as for a module.
            task: as for a module. All but classification take what the function returns as it is: `predict` of a
                regressor, a probability `(N,)` with `"binary:output=probability"`. Of the method `predict_proba` of an
                estimator, a binary task takes the probability of class 1, and several labels one for each.

        Raises:
            ArgumentError: an argument does not fit, or a method of an estimator does not say what the task reads, such
                as `predict` of a classifier.
            ModelError: in a call, the function raises an error, or does not return such scores.

        >>> import numpy
        >>> def predict_proba(rows):
        ...     return numpy.stack([1 - rows[:, 0], rows[:, 0]], axis=1)
        >>> model = Model.from_callable(predict_proba, bounds=(0.0, 1.0))
        >>> model.logits(torch.tensor([[0.25, 0.0], [1.0, 0.0]])).softmax(1)
        tensor([[7.5000e-01, 2.5000e-01],
                [1.0000e-12, 1.0000e+00]])
        """
        task = get_task(task)
        # a zero-shot task reads vectors as they are
        reads_scores = task.below.classes and not isinstance(task.below, ZeroShot)
        module = BlackBox(fit_method(function, task, output), output if reads_scores else "value", dtype)
        return cls(module, bounds, batch_size=batch_size, reference=reference, task=task)

    def with_reference(self, inputs: Tensor) -> Model:
        """This model with the inputs as its reference, if they are at least 8 rows of a table and it has none.

        Args:
            inputs: checked, `(N, ...)`, on its device.

        >>> model = Model(nn.Linear(1, 2), bounds=(0.0, 9.0), device="cpu")
        >>> model.with_reference(torch.arange(9.0)[:, None]).reference.baseline
        tensor([4.])
        """
        if self.reference is not None or inputs.ndim != 2 or len(inputs) < FEWEST_ROWS:
            return self
        found = copy.copy(self)
        found.reference = make_reference(inputs)
        return found

    def with_rows(self, rows: Tensor) -> Model:
        """This model with the values `(B, F)` that replace others, however few rows they are."""
        found = copy.copy(self)
        found.reference = make_reference(self.check_inputs(rows, "reference"))
        return found

    def move_towards(self, x: Tensor, others: Tensor, share: float) -> Tensor:
        """Inputs `(N, ...)` moved by a share of the way to others; of words, this share of them is replaced."""
        moved = None if self.black_box is None else self.black_box.replace_share(x, others, share)
        return x + share * (others - x) if moved is None else moved

    def with_width(self, width: int) -> Model:
        """This model for inputs of so many columns, of those that its reference has; itself without a reference."""
        if self.reference is None or self.reference.known.shape[1] == width:
            return self
        return self.with_rows(self.reference.known[:, :width].to(self.dtype))

    def with_background(self, seed: int) -> Model:
        """This model with other rows of its reference, drawn by a seed, for what averages over some; itself without."""
        if self.reference is None:
            return self
        found = copy.copy(self)
        found.reference = self.reference.redraw(seed)
        return found

    def with_background_rows(self, rows: Tensor) -> Model:
        """This model with these rows `(B, F)` of its reference, for what averages over some; itself without one."""
        if self.reference is None:
            return self
        found = copy.copy(self)
        found.reference = replace(self.reference, rows=rows.to(self.reference.rows))
        return found

    def reference_for(self, x: Tensor) -> Reference | None:
        """The reference for inputs `x` `(N, ...)`; None for images, series, and if there is none.

        Raises:
            ArgumentError: `x` has another number of columns.
        """
        if self.reference is None or x.ndim != 2:
            return None
        columns = self.reference.baseline.shape[0]
        check(columns == x.shape[1], "reference", f"rows with {x.shape[1]} columns, as the inputs have", columns)
        return self.reference

    def to(self, device: str | torch.device) -> Model:
        """The same model on a device, as the constructor takes it; the module itself is moved."""
        lower, upper = self.bounds
        options: dict[str, Any] = {"mixed_precision": self.mixed_precision, "task": self.task, "output": self.output}
        options["extras"] = self.extras
        moved = Model(self.module, (lower, upper), self.preprocess, device, self.batch_size, **options)
        moved.reference = self.reference
        return moved

    def for_sample(self, extras: Mapping[str, Tensor], row: int) -> Model:
        """The model with the further inputs of one sample, which go with all its copies; itself if it has none.

        Args:
            extras: of all samples, `(N, ...)` each, by name.
            row: the number of the sample.

        Raises:
            ArgumentError: one of the names in `Model.extras` is not there.
        """
        if not self.extras:
            return self
        for name in self.extras:
            check(
                bool(extras),
                "extras",
                f"data with the extras {', '.join(self.extras)} of the model",
                "data without any",
            )
            if name not in extras:
                raise UnknownNameError("extras", name, extras)
        own = {name: extras[name][row : row + 1] for name in self.extras}
        bound = None if self.black_box is None else self.black_box.bind(own)
        if bound is not None:
            return self.with_box(bound)

        def run(module: nn.Module, x: Tensor) -> Any:
            return module(x, **{name: one.to(x.device).expand(len(x), *one.shape[1:]) for name, one in own.items()})

        found = copy.copy(self)
        found.module, found.extras = ForwardWrapper(self.module, run), ()
        return found

    def with_box(self, box: BlackBox) -> Model:
        """This model with another black box in the place of its own, which needs no further inputs."""
        found = copy.copy(self)
        found.module = found.black_box = box
        found.extras = ()
        return found

    def of_score(self, answer: Tensor) -> Model:
        """A model whose class 0 has the score of one answer `(1, ...)` of this model's task as its logit.

        For what knows classes alone, such as other packages. Class 1 has the negative logit.
        """

        def run(module: nn.Module, x: Tensor) -> Tensor:
            outputs = self.task.read(find_output(module(x), self.output, len(x)), len(x))
            score = self.task.score(outputs, answer.expand(len(x), *answer.shape[1:]))
            return torch.stack([score, -score], 1)

        found = copy.copy(self)
        found.task, found.output, found._seen_outputs = Classification(), None, True
        found.module = ForwardWrapper(self.module, run)
        return found

    def with_task(self, task: Task) -> Model:
        """This model with another task, such as a decision by its answers."""
        other = copy.copy(self)
        other.task, other.classes = task, None
        other._seen_outputs = other._values_seen = False
        return other

    def with_class_names(self, names: Sequence[str]) -> Model:
        """This model with a task that knows the classes of the data by name; itself where its task needs none.

        Raises:
            ArgumentError: the task names a class that is not among them.
        """
        task = self.task.name_classes(names)
        return self if task is self.task else self.with_task(task)

    @property
    def undecided(self) -> Model:
        """The model with the task that reads the module; itself where no decision is made of what that says."""
        if self.task.below is self.task:
            return self
        reader = self.with_task(self.task.below)
        reader._seen_outputs = reader._values_seen = True  # this model has a look at them
        return reader

    @property
    def differentiable(self) -> bool:
        """Whether the module has gradients; a function of arrays (`from_callable`) has none, and no layers either."""
        return self.black_box is None

    def __repr__(self) -> str:
        lower, upper = self.bounds
        bounds = f"bounds {describe_bounds(self.bounds)}"
        bounds += "" if lower.numel() == upper.numel() == 1 else " by channel"
        count = f"{sum(parameter.numel() for parameter in self.module.parameters()):,} parameters"
        what = count if self.differentiable else "a function without gradients"
        own = "" if self.preprocess is None else ", preprocess"
        return f"Model({module_name(self.module)}, {what}, {bounds}, {self.device}{own})"

    def warn_once(self, text: str) -> None:
        """Warn, unless this model has warned of the same already."""
        if text not in self._warned:
            self._warned.add(text)
            warn_user(text)

    def check_repeatable(self, inputs: Tensor, in_batches: bool = False, outputs: Tensor | None = None) -> None:
        """Check, once for each module, that it gives the same inputs the same logits again, on the first inputs.

        Otherwise no comparison of two inputs means anything. This costs two small batches. Random generators, buffers
        and attributes that `forward` changes are as before afterwards. A module that fails is left to the caller.

        Args:
            inputs: checked, `(N, ...)`.
            in_batches: check also that they get the same logits whatever else is in the batch: two more small batches.
            outputs: of the inputs, `(N, ...)`, where they are known. Then one small batch tells, unless it differs.

        Raises:
            ModelError: it does not; the message names the cause where it is known.
        """
        if self._repeatable is self.module and not in_batches:
            return
        some = inputs[:_REPEATED].to(self.device)
        if outputs is None or not self._repeats(some, outputs[: len(some)]):
            try:
                differences = self._compare_calls(some, in_batches)
            except (Exception, SystemExit):
                return
            self._refuse_differences(*differences)
        self._repeatable = self.module

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """A session without gradients whose rows do not count, and after which the module is as before."""
        with _keep_state(self.module), self.watch(lambda count: None), self.session(), torch.no_grad():
            yield

    def _answer_flat(self, x: Tensor) -> Tensor:
        """The logits of inputs `(N, ...)`, inside a session, as `(N, K)`."""
        (logits,) = self.map_rows(lambda rows: (self.forward(rows),), x)
        return logits.double().flatten(1)

    def _repeats(self, some: Tensor, outputs: Tensor) -> bool:
        """Whether fewer of the inputs, in reverse order, have the same outputs again, and no random numbers were drawn.

        A batch of fewer inputs has other statistics and another order; so it shows at once what two calls and three
        kinds of batches tell apart.
        """
        part = some[: max(1, len(some) // _PART)].flip(0)
        if len(some) == 1:
            part = self._add_other(some)
        try:
            with self._aside(), seed_generators(0, self.device) as has_drawn:
                again = self._answer_flat(part)
                drew = has_drawn()
        except (Exception, SystemExit):
            return False
        before = outputs[: len(again)].to(self.device).double().flatten(1)
        again = again[: len(before)].flip(0)
        return not drew and not _describe_difference(before, again, self.precision)

    def _add_other(self, one: Tensor) -> Tensor:
        """One input `(1, ...)` and another one beside it within the bounds."""
        lower = self.bounds[0].expand_as(one)
        finite_lower = lower.where(lower.isfinite(), torch.zeros_like(lower))
        return torch.cat([one, (one + finite_lower) / 2])

    def _compare_calls(self, some: Tensor, in_batches: bool) -> tuple[str, str, bool]:
        """How far the logits differ between two calls, and between batches; and whether random numbers were drawn."""
        if len(some) == 1 and in_batches:
            some = self._add_other(some)
        others: list[Tensor] = []
        with self._aside(), seed_generators(0, self.device) as has_drawn:
            first = self._answer_flat(some)
            again = self._answer_flat(some)
            drew = has_drawn()
            if in_batches:
                others.append(self._answer_flat(some.flip(0)).flip(0))
                others.append(self._answer_flat(some[:1]))
        mixed = ""
        for other in others:
            mixed = mixed or _describe_difference(first[: len(other)], other, self.precision)
        # the effect of random numbers may be small, and then a comparison of batches may see more of it
        share = 0.0 if drew or mixed else _ROUNDING
        return _describe_difference(first, again, self.precision, share), mixed, drew

    def _refuse_differences(self, noise: str, mixed: str, drew: bool) -> None:
        """Raise `ModelError` for differences between calls or batches, with their cause where it is known."""
        named = list(self.module.named_modules())
        if noise:
            layers = [name or "itself" for name, part in named if list(part.buffers(recurse=False))]
            where = ". Look for a random generator of its own, and for buffers that forward changes"
            if layers:
                where += f"; layers with buffers: {', '.join(layers[:3])}"
            if drew:
                where = (
                    ": forward draws random numbers. Look for torch.randn, or dropout without training=self.training"
                )
            raise ModelError(
                "model: expected the same logits for the same inputs in evaluation mode, got differences of up to"
                f" {noise} between two calls{where}"
            )
        if mixed:
            own = [name for name, part in named if getattr(part, "track_running_stats", True) is False]
            hint = f" ({', '.join(own[:3])} do so)" if own else ""
            raise ModelError(
                "model: expected logits that do not depend on the other inputs of the batch, got differences of up to"
                f" {mixed}. Look for layers that compute statistics of the batch{hint}, and for dynamic quantization"
            )

    @contextlib.contextmanager
    def naming(self, inputs: Tensor) -> Iterator[None]:
        """Inside the block, errors of the module name the shape of the user's `inputs`, not that of a part of them.

        Raises:
            ArgumentError: the module fails on the inputs, but not on the same ones in another layout.
        """
        before = self._asked
        self._asked = tuple(inputs.shape) if before is None else before
        try:
            yield
        except ModelError as error:
            failed = before is None and self.black_box is None and isinstance(error, FailedModuleError)
            if failed and (hint := suggest_layout(inputs, self._accepts_layout)):
                raise ArgumentError("inputs", "a batch of shape (N, C, ...)", f"{hint} ({error})") from error
            raise
        finally:
            self._asked = before

    def _accepts_layout(self, inputs: Tensor) -> bool:
        """Whether the module accepts the first of the inputs in this layout.

        It does not count if the preprocessing drops an axis by taking a part of each sample, as `z[:, 0]` does: the
        module may then accept one axis more for that reason alone.
        """
        try:
            with self.session(), torch.no_grad():
                batch = inputs[:1].to(self.device)
                prepared = batch if self.preprocess is None else self.preprocess(batch)
                dropped = prepared.ndim < batch.ndim
                if dropped and (prepared.numel() < batch.numel() or batch.shape[1] == 1):
                    return False
                return self.forward(batch).shape[0] == 1
        except Exception:  # whatever the module raises
            return False

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Set evaluation mode and switch off parameter gradients inside the block; restore both afterwards.

        Sessions may be nested.
        """
        if self._depth:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
            return
        modes = {m: m.training for m in self.module.modules() if hasattr(m, "training")}  # not frozen TorchScript
        wanting_gradients = [p for p in self.module.parameters() if p.requires_grad]
        self._depth, self._differentiated = 1, None
        try:
            _evaluate(self.module)
            for parameter in wanting_gradients:
                parameter.requires_grad_(False)
            with limited_threads():
                yield
                self._look_at_doubtful()
        finally:
            self._depth, self._doubtful = 0, None
            _restore_modes(modes)
            for parameter in wanting_gradients:
                parameter.requires_grad_(True)

    def check_gradients(self, scores: Tensor, x: Tensor) -> None:
        """As `check_has_gradients`, for scores of what `forward` returned for `x`; in a session only the first time.

        To look at a graph takes as long as several rows of a small network. In a session the module stays as it is, and
        a later batch to which no graph leads is noticed by its gradient (`compute_gradient`).

        Raises:
            NoGradientsError: gradients by `x` say nothing of the scores.
        """
        if self._depth and self._differentiated is self.module:
            return
        check_has_gradients(scores, x)
        self._differentiated = self.module

    @contextlib.contextmanager
    def watch(self, on_inputs: Callable[[int], None], on_rows: Callable[[int], None] | None = None) -> Iterator[None]:
        """Inside the block, `on_inputs(count)` is called whenever `count` more inputs were predicted or explained.

        It may raise an error to stop what is running. An input of an explainer that runs many copies counts once.
        `on_rows(count)` is called whenever the module has run on `count` more rows, copies that fill a batch included.

        >>> model = Model(nn.Linear(4, 3), bounds=(0.0, 1.0), device="cpu", batch_size=16)
        >>> seen = []
        >>> with model.watch(seen.append):
        ...     _ = model.logits(torch.rand(20, 4))
        >>> seen
        [16, 4]
        """
        before = self._on_inputs, self._on_rows, self.is_watched
        self._on_inputs, self._on_rows, self.is_watched = on_inputs, on_rows, True
        try:
            yield
        finally:
            self._on_inputs, self._on_rows, self.is_watched = before

    @contextlib.contextmanager
    def showing(self, count: Count, show: bool = True) -> Iterator[None]:
        """Inside the block, show how much was evaluated, if it takes long; who watches the model shows it himself.

        Args:
            count: counts what is evaluated, and puts it into words.
            show: False if nothing is shown, also not by what is called inside.
        """
        if self.is_watched:
            yield
            return
        shown = show_progress(count.describe, only_if_long=True, show=show)
        with shown, self.watch(count.add_inputs, count.add_rows):
            yield

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(N, classes)` of one batch `x`, or the outputs of another task `(N, ...)`; gradients flow to `x`.

        Call it in a session. It does not check the values of `x` and does not split the batch; `logits` does both.
        """
        given = x if self.overwrites is False else x.clone()
        prepared = given if self.preprocess is None else self.preprocess(given)
        if not isinstance(prepared, Tensor):
            raise ModelError(f"preprocess: expected a tensor, got a {type(prepared).__name__}")
        outputs = self._read_outputs(prepared)
        if self.overwrites is None and not given.is_inference():  # such a tensor counts no writes: it stays a copy
            self.overwrites = given._version > 0
        if not self._seen_outputs and self.task.reads_logits:
            with contextlib.suppress(RuntimeError):  # within vmap no value is known; a later batch is looked at
                self._look_at_outputs(x, outputs.detach())
        return self.decide(outputs)

    def run(self, x: Tensor) -> Tensor:
        """As `forward`, for inputs `x` `(N, ...)` that are preprocessed."""
        return self.decide(self._read_outputs(x))

    def decide(self, outputs: Tensor) -> Tensor:
        """The outputs of the task, from those of the task below it, which reads the module."""
        if self.task.below is self.task:
            return outputs
        # it is no layer of the module, so rules of explainers for functions do not see it
        with torch._C.DisableTorchFunction():
            return self.task.decide(outputs)

    def _read_outputs(self, x: Tensor) -> Tensor:
        """What the task that reads the module makes of its answer to preprocessed inputs `x` `(N, ...)`."""
        if self.extras:
            names = ", ".join(self.extras)
            raise ModelError(f"module: expected {names} beside its input, got none; evaluate takes them from the data")
        out, returned, task = None, self.module(x), self.task.below
        if self._on_rows is not None:
            self._on_rows(len(x))
        try:
            out = find_output(returned, self.output, len(x))
            if lacks_channel(task, out, x):
                raise ModelError(f"module: expected an axis of classes, (N, C, H, W), got {describe_rows(out)}")
            found = widen_half(task.read(widen_half(out) if isinstance(out, Tensor) else out, len(x)))
        except ModelError as error:
            hint = self._suggest_output(out, x)
            raise ModelError(f"{error} for inputs of shape {describe_rows(x)}: {hint}") from error
        if not self._values_seen:
            self._check_values(found)
        if task.may_be_empty and x.requires_grad and not found.requires_grad and not bool(found.any()):
            found = found + 0 * x.sum()  # nothing was found, so nothing depends on the inputs
        self.returns_parts = out is not returned
        self.classes = found.shape[1] if self.task.classes else None
        self.width = found.shape[1] if found.ndim == 2 else None
        return found

    def _suggest_output(self, out: Any, x: Tensor) -> str:
        """What to do about an output for inputs `(N, ...)` that the task does not take."""
        if lacks_channel(self.task.below, out, x):
            return "one logit for each pixel? Model(..., forward=lambda module, x: module(x)[:, None])"
        if is_list_of_boxes(out) and self.task.below.name != "detection":
            return "boxes? Say Model(..., task='detection')"
        if isinstance(out, Tensor) and out.numel() == len(x) and self.task.below.classes:
            return f"{_describe_problem(self.module) or 'one number'}. {OTHER_TASKS}"
        return suggest_task(self.task.below, out) or "with Model(..., forward=) a function can make it"

    def _check_values(self, outputs: Tensor) -> None:
        """Raise `ModelError` for values of the first batch that the task cannot mean."""
        with torch.no_grad():
            try:
                fault = self.task.below.find_fault(outputs.detach())
            except RuntimeError:  # within vmap no value is known; a later batch is looked at
                return
        if fault:
            raise ModelError(f"module: expected outputs of the task {self.task.below.name}, got {fault}")
        self._values_seen = True

    def _look_at_outputs(self, x: Tensor, outputs: Tensor) -> None:
        """Warn of outputs `(N, ...)` that the task reads as logits, and that are none."""
        said = describe_probabilities(self.task.below, outputs, self.differentiable)
        is_doubtful = self.differentiable and may_be_probabilities(self.task.below, outputs)
        self._seen_outputs = True
        if said:
            self.warn_once(f"module: {said}")
        elif is_doubtful:
            self._doubtful = x[:_REPEATED].detach().clone(), outputs
        else:
            self._warn_of_problem_type(outputs)

    def _warn_of_problem_type(self, outputs: Tensor) -> None:
        """Warn if the module's configuration says that outputs `(N, K)` are no classes, and `forward` makes none."""
        if not self.task.below.classes or is_one_number(outputs) or are_probabilities(outputs[:, :2].exp()):
            return
        if problem := _describe_problem(self.module):
            self.warn_once(f"module: expected logits of classes of which one is right, got {problem}. {OTHER_TASKS}")

    def _look_at_doubtful(self) -> None:
        """Warn if the outputs for the doubtful inputs come from sigmoids or softmaxes, only moved or scaled afterwards.

        By their values alone, logits of a network with random weights may look so. The module runs once more, so this
        is done at the end of a session, when no hooks and modes of explainers are there.
        """
        if self._doubtful is None:
            return
        (x, first_outputs), self._doubtful, said = self._doubtful, None, ""
        with contextlib.suppress(Exception), torch.enable_grad(), run_eagerly():  # it may refuse inputs with gradients
            x.requires_grad_(True)
            returned = self.module(x.clone() if self.preprocess is None else self.preprocess(x.clone()))
            said = describe_graph(self.task.below, find_output(returned, self.output, len(x)))
        if said:
            self.warn_once(f"module: {said}")
        else:
            self._warn_of_problem_type(first_outputs)

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits `(N, classes)`, or the outputs of another task `(N, ...)`, of inputs `(N, ...)` within the bounds.

        Raises:
            ArgumentError: the inputs have the wrong type, dtype, shape or range, or are not finite.
            ModelError: the module fails, does not return an `(N, classes)` tensor, or returns NaN or infinite logits.
        """
        inputs = self.check_inputs(inputs)
        with self.naming(inputs), self.session(), torch.no_grad():
            (out,) = self.map_rows(lambda x: (self.forward(x),), inputs)
        check_finite(out)
        return out

    def predict(self, inputs: Tensor) -> Tensor:
        """The predicted classes, int64 `(N,)`; of another task its answers `(N, k)`. Raises as `logits` does."""
        return self.task.answer(self.logits(inputs))

    def check_inputs(self, inputs: Tensor, name: str = "inputs") -> Tensor:
        """`inputs` on the model's device; raises `ArgumentError` for a wrong type, dtype, shape or range."""
        check(isinstance(inputs, Tensor), name, "a torch.Tensor", describe_no_tensor(inputs))
        dense = inputs.layout == torch.strided and not inputs.is_meta and not inputs.is_nested
        check(dense, name, "a dense tensor with values", _describe_kind(inputs))
        if inputs.dtype in self._other_types and self.precision == self.dtype:
            self._try_type(inputs)
        fits, own = inputs.dtype in (self.dtype, self.precision), f"{self.precision} (the module's)"
        known = own if self.dtype == self.precision else f"{self.dtype} or {own}"
        check(fits, name, f"dtype {known}", f"{inputs.dtype}: {suggest_dtype(inputs, self.dtype)}")
        shape = tuple(inputs.shape)
        one = ": for one sample use x[None]" if inputs.ndim == 1 else ""
        fits = inputs.ndim >= 2 and inputs.numel() > 0
        check(fits, name, "a non-empty batch of shape (N, ...)", f"shape {shape}{one}")
        inputs = inputs.detach().to(self.device)
        lower, upper = (bound.to(inputs.dtype) for bound in self.bounds)
        if not self._fits_bounds(inputs):
            expected = f"a sample shape that bounds of shape {tuple(lower.shape)} broadcast to"
            raise ArgumentError(name, expected, suggest_layout(inputs, self._fits_bounds) or f"{shape[1:]}")
        check(bool(torch.isfinite(inputs).all()), name, FINITE, "NaN or infinity")
        # after a normalisation in float32, values can be outside the range by a few units in the last place
        slack = 1e-5 * (upper - lower).clamp(max=min(1e30, torch.finfo(inputs.dtype).max))
        if bool(((inputs < lower - slack) | (inputs > upper + slack)).any()):
            expected = f"values within the bounds {describe_bounds((lower, upper))}"
            raise ArgumentError(name, expected, f"values in {describe_bounds((inputs, inputs))}")
        return inputs.to(self.dtype).clamp(*self.bounds)

    def _try_type(self, inputs: Tensor) -> None:
        """Take the type of inputs `(N, ...)` from now on, if the module, which has weights of several types, does."""
        kind = inputs.dtype
        self._other_types = tuple(other for other in self._other_types if other != kind)
        if inputs.ndim < 2 or not inputs.numel() or kind != widen_half(inputs[:0]).dtype:
            return
        try:
            with self.session(), torch.no_grad():
                self.forward(inputs[:1].to(self.device))
        except Exception:  # whatever the module raises: it does not take them
            return
        lower, upper = self.bounds
        self.precision = self.dtype = kind
        self.bounds = lower.to(kind), upper.to(kind)

    def _fits_bounds(self, inputs: Tensor) -> bool:
        """Whether the bounds broadcast to each of the inputs without making it larger."""
        return all(
            len(b.shape) <= inputs.ndim - 1
            and all(n in (1, m) for n, m in zip(reversed(b.shape), reversed(inputs.shape[1:]), strict=False))
            for b in self.bounds
        )

    def warn_of_units(self, inputs: Tensor) -> None:
        """Warn if all samples together use so little of the bounds that both may have different units."""
        lower, upper = self.bounds
        used, room = (inputs.max() - inputs.min()).item(), (upper - lower).min().item()
        if len(inputs) > 1 and 0 < used < _SMALL_SHARE * room < math.inf:
            share = f"{_SMALL_SHARE:.0%} of the bounds {describe_bounds(self.bounds)}"
            self.warn_once(f"inputs use less than {share}. Do both have the same units?")

    def check_targets(self, targets: Tensor | int | None, inputs: Tensor) -> Tensor:
        """Classes `(N,)` on the model's device, or the answers of another task; `None` means the predicted ones.

        Raises:
            ArgumentError: the targets have the wrong dtype or shape, or name a class that does not exist.
        """
        if targets is None:
            return self.predict(inputs)
        expanded = expand_targets(targets, len(inputs)).to(self.device)
        fits = expanded.is_floating_point() == self.task.takes_vectors
        expected = f"{'vectors' if self.task.takes_vectors else 'whole numbers'} for {self.task.name}"
        check(fits, "targets", expected, getattr(targets, "dtype", targets))
        counts_classes = self.task.classes  # and then the values of outputs are not wanted
        asked = inputs[:1] if counts_classes else inputs
        with self.naming(inputs), self.session(), torch.no_grad():
            (outputs,) = self.map_rows(lambda x: (self.forward(x),), asked, needs_bits=not counts_classes)
        return self.task.answer(outputs, expanded)

    def map_rows(
        self,
        function: Callable[..., tuple[Tensor, ...]],
        *tensors: Tensor,
        like: Tensor | None = None,
        rows_per_input: int = 1,
        kind: Kind = "forward",
        evaluations: int = 1,
        batches: int = 1,
        needs_bits: bool = True,
    ) -> tuple[Tensor, ...]:
        """Apply `function` to the rows of `tensors`, in chunks that fit the row budget, and concatenate its outputs.

        Each chunk is padded to a multiple of `ROW_ALIGNMENT` rows, and to at least twice that number, with copies of
        its last row; on a card as `count_padding` says. The outputs are cut back. If memory runs out, the budget is
        halved and the chunk is tried again.

        Args:
            function: from a chunk of each tensor, on the model's device, to a tuple of tensors with as many rows.
            tensors: each `(M, ...)`. The first are the module's inputs, unless `like` is given.
            like: inputs `(1 or more, ...)`, where `tensors` are not inputs but what `function` makes inputs from (say
                numbers of perturbed copies). They say which shape the module is run on.
            rows_per_input: how many rows the module forwards for each row of `tensors` (an explainer's steps).
            kind: whether the module is also differentiated.
            evaluations: how many a row counts for (`watch`).
            batches: how many batches a chunk has, where `function` cuts its rows into batches itself.
            needs_bits: False where shapes are wanted alone. Then a row gets one copy, since some modules drop the axis
                of a batch of one, and nothing else is padded.

        Raises:
            ModelError: the module fails, or one input does not fit into memory.
        """
        inputs, total = tensors[0] if like is None else like, len(tensors[0])
        step = self.inputs_per_chunk(inputs, rows_per_input, kind, total, batches)
        fills = needs_bits and self.fills_batches
        aligned = -(-ROW_ALIGNMENT // rows_per_input) if fills else 1
        least = -(-2 * ROW_ALIGNMENT // rows_per_input) if fills else 2
        if not self.fills_batches:
            least = 1
        pieces: list[tuple[Tensor, ...]] = []
        start = 0
        while start < total:
            on_inputs, self._on_inputs = self._on_inputs, None  # a call inside of `function` is part of this one
            try:
                chunk = [t[start : start + step].to(self.device) for t in tensors]
                count = chunk[0].shape[0]
                padding = max(-count % aligned, least - count)
                if fills and not is_on_host(self.device):
                    more = count_padding(count * rows_per_input, step * rows_per_input, self.device)
                    padding = max(padding, min(step - count, -(-more // rows_per_input))) if batches == 1 else padding
                if padding:
                    chunk = [pad_rows(t, padding) for t in chunk]
                out = function(*chunk)
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise self._explain(error, inputs) from error
                if step == 1:
                    raise ModelError(
                        f"module: expected one input of shape {tuple(inputs.shape[1:])} to fit into memory"
                        f" ({rows_per_input} rows forwarded), got: {error}"
                    ) from error
                step, batches = self._halve(inputs, -(-step // batches), rows_per_input, kind), 1
                aligned, least = min(aligned, step), min(least, step)
                continue
            finally:
                self._on_inputs = on_inputs
            pieces.append(tuple(t[:count] for t in out))
            start += count
            if on_inputs is not None:
                on_inputs(count * evaluations)
        if len(pieces) == 1:
            return pieces[0]
        return tuple(torch.cat(parts) for parts in zip(*pieces, strict=True))

    def _explain(self, error: RuntimeError, inputs: Tensor) -> Exception:
        """The error with the shape and dtype of the inputs; torch's own error does not name the inputs."""
        if isinstance(error, ModelError):
            return error
        if isinstance(error, RecursionError):  # whatever is nested deeply: the module, an explainer, or the caller
            limit = sys.getrecursionlimit()
            return ModelError(
                f"expected at most {limit} calls within each other, got more: the module, an explainer or the program"
                " that calls them is nested too deeply, or one of them calls itself without end"
                " (sys.setrecursionlimit allows more)"
            )
        if any(text in str(error) for text in _NOT_TWICE):
            return SecondDerivativeError(
                "module: expected a module that can be differentiated twice, as searches with gradients and attacks on"
                f" explanations do, got: {error}; use a search without gradients, or explain a copy of the module that"
                " is not compiled"
            )
        shape = tuple(inputs.shape) if self._asked is None else self._asked
        rows = len(inputs)
        try:  # torch's text has the number of rows, which were padded: what does it say of the user's?
            with self.session(), torch.no_grad():
                self.forward(inputs[: shape[0]].to(self.device))
        except RuntimeError as own:
            error, rows = own, min(rows, shape[0])
        except Exception:  # another kind of failure says less than the first one
            pass
        part = "" if rows == shape[0] else f", of a batch of {rows}"
        return FailedModuleError(
            f"module: failed on inputs of shape {shape}, dtype {inputs.dtype}. It says{part}: {error}"
        )

    def inputs_per_chunk(
        self, inputs: Tensor, rows_per_input: int, kind: Kind, count: int | None = None, batches: int = 1
    ) -> int:
        """How many inputs one chunk of so many batches has: a multiple of `ROW_ALIGNMENT` if the budget allows it."""
        rows = batches * self.row_budget(inputs, rows_per_input, kind, count)
        step = max(1, rows // rows_per_input)
        return step - step % ROW_ALIGNMENT if step >= ROW_ALIGNMENT else step

    def row_budget(
        self, inputs: Tensor, rows_per_input: int = 1, kind: Kind = "backward", count: int | None = None
    ) -> int:
        """How many rows to forward at once for inputs of this shape; found on the first call with enough rows.

        `count` is how many inputs there will be, if not as many as `inputs` `(N, ...)` holds.
        """
        if self.batch_size != "auto":
            return self.batch_size
        key = (tuple(inputs.shape[1:]), kind)
        if not self.differentiable:
            return self._budgets.setdefault(key, _LARGEST_ROWS)  # a call costs more than its rows, at all sizes
        if key not in self._budgets:
            # for so few rows it does not matter; but of photos they may take more memory than there is
            few = 4 * _SMALLEST_ROWS if inputs[0].numel() <= _SMALL_INPUT else _SMALLEST_ROWS
            if (len(inputs) if count is None else count) * rows_per_input <= few:
                return few
            self._budgets[key] = self._find_rows(inputs[:1].to(self.device), kind)
        return self._budgets[key]

    def _halve(self, inputs: Tensor, step: int, rows_per_input: int, kind: Kind) -> int:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        step = max(1, step // 2)
        rows = max(1, step * rows_per_input)
        self.warn_once(f"memory ran out: {rows} rows at once from now on. The last digits of results depend on it")
        if self.batch_size == "auto":
            self._budgets[(tuple(inputs.shape[1:]), kind)] = rows
        else:
            self.batch_size = rows
        return step

    def _find_rows(self, sample: Tensor, kind: Kind) -> int:
        """So many rows that what the module computes for them fits well into the caches, or a GPU's memory.

        The number follows from the module and the shape alone, and not from a measured time: the last digits of
        results depend on the size of the batches, and a search may take another way from there.
        """
        with self.session(), _CountBytes() as counted:
            try:
                with torch.no_grad():
                    self.forward(sample.clone())
            except RuntimeError as error:
                raise self._explain(error, sample) from error
        room = _CPU_ROOM
        if self.device.type == "cuda":
            room = torch.cuda.get_device_properties(self.device).total_memory // (8 if kind == "forward" else 16)
        rows: int = room // max(counted.bytes, sample[0].numel() * sample.element_size())
        return max(_SMALLEST_ROWS, min(_LARGEST_ROWS, 1 << max(rows, 1).bit_length() - 1))


class _CountBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of everything that is computed inside."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        results = found if isinstance(found, tuple) else (found,)
        for result, returned in zip(results, func._schema.returns, strict=False):
            if isinstance(result, Tensor) and returned.alias_info is None:
                self.bytes += result.numel() * result.element_size()
        return found


def _run_in(dtype: torch.dtype, function: Callable[..., Any], module: nn.Module, x: Tensor, **extras: Tensor) -> Any:
    """What the function makes of the module, `x` and further inputs in this type."""
    own = {name: each.to(dtype) if each.is_floating_point() else each for name, each in extras.items()}
    return function(module, x.to(dtype), **own)


def _run_mixed(function: Callable[..., Any], module: nn.Module, x: Tensor, **extras: Tensor) -> Any:
    """What the function makes of the module and `x` under autocast in bfloat16."""
    with torch.autocast(x.device.type, torch.bfloat16):
        return function(module, x, **extras)


def _runs_mixed(module: nn.Module) -> bool:
    """Whether a module is one that `Model` has wrapped to run under autocast."""
    return isinstance(module, ForwardWrapper) and getattr(module.function, "func", None) is _run_mixed


def _unwrap(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function without arguments that `functools.partial` has set."""
    return _unwrap(function.func) if isinstance(function, functools.partial) else function


def find_black_box(module: nn.Module) -> BlackBox | None:
    """The function among the parts of a module, if there is one: then the module has no gradients."""
    return next((part for part in module.modules() if isinstance(part, BlackBox)), None)


def describe_no_module(value: object) -> str:
    """What stands in the place of a module, for the end of a message; of weights alone, what takes them.

    >>> describe_no_module(nn.Linear(2, 2).state_dict()), describe_no_module(3)
    ('a state dict without its module: module.load_state_dict(...) takes it', 'int')
    """
    if is_state_dict(value):
        return "a state dict without its module: module.load_state_dict(...) takes it"
    return type(value).__name__


def is_state_dict(value: object) -> bool:
    """Whether it is weights by name, or a checkpoint that contains some.

    >>> weights = nn.Linear(2, 2).state_dict()
    >>> is_state_dict(weights), is_state_dict({"state_dict": weights, "epoch": 3}), is_state_dict({"a": nn.Identity()})
    (True, True, False)
    """
    if not isinstance(value, Mapping):
        return False
    return any(isinstance(part, Tensor) or is_state_dict(part) for part in value.values())


def module_name(module: nn.Module) -> str:
    """The name of the user's class or function, without what wraps it: `forward=`, `torch.compile`.

    >>> module_name(ForwardWrapper(nn.Sequential(), lambda module, x: module(x)))
    'Sequential'
    """
    while True:
        if isinstance(module, BlackBox):
            return module.title
        if isinstance(module, ForwardWrapper):
            module = module.module
        elif "_orig_mod" in module._modules and module._modules["_orig_mod"] is not None:  # TorchScript has no `get`
            module = module._modules["_orig_mod"]
        else:
            return type(module).__name__


def _evaluate(module: nn.Module) -> None:
    """Set evaluation mode, also beside an exported program, which refuses to change its mode."""
    try:
        module.eval()
    except NotImplementedError:  # raised by the program itself, or by one within the module
        module.training = False
        for child in module.children():
            _evaluate(child)


def _restore_modes(modes: Mapping[nn.Module, bool]) -> None:
    """Put modules, outer ones first, back into training mode (True) or evaluation mode (False)."""
    try:
        for module, training in modes.items():
            # a `train` of its own may do more than set flags; what it does to inner modules is undone by their turn
            own = "train" in vars(module) or type(module).train is not nn.Module.train
            if own and training != module.training:
                with contextlib.suppress(NotImplementedError):  # an exported program
                    module.train(training)
    finally:
        for module, training in modes.items():
            module.training = training


@contextlib.contextmanager
def _keep_state(module: nn.Module) -> Iterator[None]:
    """Put back, at the end, the buffers and the plain attributes of all layers."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    attributes = [(part, dict(vars(part))) for part in module.modules()]
    try:
        yield
    finally:
        for part, before in attributes:  # names with an underscore belong to torch
            for name in [name for name in vars(part) if name not in before and not name.startswith("_")]:
                del vars(part)[name]
            vars(part).update({name: value for name, value in before.items() if not name.startswith("_")})
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def _describe_difference(first: Tensor, other: Tensor, dtype: torch.dtype, share: float = _ROUNDING) -> str:
    """How far logits `(N, C)` differ, if by more than rounding; else empty. Rows that are not finite do not count."""
    finite = torch.isfinite(first).all(1) & torch.isfinite(other).all(1)
    first, other = first[finite], other[finite]
    if not len(first):
        return ""
    allowed = share * (first.amax(0) - first.amin(0)) + 64 * torch.finfo(dtype).eps * first.abs().amax(0)
    difference = (other - first).abs().amax(0)
    return f"{float(difference.max()):.3g}" if bool((difference > allowed).any()) else ""


def check_finite(outputs: Tensor) -> None:
    """Raise `ModelError` for outputs `(N, ...)` that are NaN or infinite."""
    if not torch.isfinite(outputs).all():
        rows = int((~torch.isfinite(outputs)).flatten(1).any(1).sum())
        raise ModelError(f"module: expected finite logits, got NaN or infinity for {rows} of {len(outputs)} inputs")


def _check_weights(module: nn.Module) -> None:
    """Raise `ArgumentError` if a parameter has no values."""
    for name, parameter in module.named_parameters():
        lazy = is_lazy(parameter)
        why = "that is lazy: run the module once" if lazy else "on the device meta: load the weights first"
        expected = "a module whose parameters have values"
        check(not lazy and not parameter.is_meta, "module", expected, f"{name!r} {why}")


def _describe_kind(inputs: Tensor) -> str:
    if inputs.is_nested:
        return "a nested one"
    return "one on the device meta" if inputs.is_meta else "a sparse one"


def resolve_device(device: str | torch.device, parameter: Tensor | None) -> torch.device:
    """The device that a name stands for, given a parameter of the module; `ArgumentError` if it is not there."""
    if device == "auto":
        here = parameter.device if parameter is not None else torch.device("cpu")
        found = here if here.type != "cpu" else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    else:
        try:
            found = torch.device(device)
        except (RuntimeError, TypeError, ValueError):
            raise ArgumentError("device", "auto, or a device of torch such as cpu or cuda:0", repr(device)) from None
    check(found.type not in ("mps", "meta"), "device", "a CPU or a CUDA device (scores are float64)", found)
    try:
        torch.empty((), dtype=torch.float64, device=found)
    except (RuntimeError, AssertionError, ImportError, NotImplementedError) as error:  # each kind has its own
        raise ArgumentError(
            "device", "one that this torch has here", f"{found}: {str(error).splitlines()[0]}"
        ) from error
    return found


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _describe_problem(module: nn.Module) -> str:
    """What a configuration of transformers within a module says of its outputs, if they are not classes."""
    meanings = {"multi_label_classification": "several labels", "regression": "numbers to compare with a threshold"}
    kinds = (getattr(getattr(part, "config", None), "problem_type", None) for part in module.modules())
    return next((f"{meanings[kind]} (problem_type {kind!r})" for kind in kinds if kind in meanings), "")


def count_padding(count: int, most: int, device: torch.device | None = None) -> int:
    """How many rows to add to a batch of `count` rows before it is forwarded, if at most `most` rows fit.

    A card chooses its kernels anew for each size of a batch, which takes as long as hundreds of rows. So it gets eight
    sizes between a number and its double, and at most an eighth of a batch is padding.

    >>> count_padding(3, 100), count_padding(17, 100), count_padding(24, 100), count_padding(3, 4)
    (13, 7, 0, 1)
    >>> card = torch.device("cuda")
    >>> count_padding(17, 500, card), count_padding(247, 500, card), count_padding(247, 250, card)
    (7, 9, 3)
    """
    if most < ROW_ALIGNMENT:
        return most - count  # too little memory for the aligned size
    if device is None or is_on_host(device):
        return max(-count % ROW_ALIGNMENT, 2 * ROW_ALIGNMENT - count)
    size = max(ROW_ALIGNMENT, 1 << max(0, count.bit_length() - 4))
    return max(min(-count % size, most - count), min(2 * ROW_ALIGNMENT, most) - count)


def pad_rows(rows: Tensor, padding: int) -> Tensor:
    """`rows` `(N, ...)` with `padding` copies of the last row appended.

    >>> pad_rows(torch.tensor([[1], [2]]), 2).tolist()
    [[1], [2], [2], [2]]
    """
    return torch.cat([rows, rows[-1:].expand(padding, *rows.shape[1:])]) if padding else rows
