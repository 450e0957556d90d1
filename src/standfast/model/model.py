"""`Model`: a user's module, with all that standfast needs to run it safely and fast."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from standfast.display import Count, show_progress
from standfast.errors import (
    FINITE,
    ArgumentError,
    FailedModuleError,
    ModelError,
    UnknownNameError,
    check,
    check_integer,
    warn_user,
)
from standfast.function_calls import check_has_gradients, run_eagerly
from standfast.input_types import find_input_types
from standfast.model.batches import (
    LARGEST_ROWS,
    ROW_ALIGNMENT,
    Chunks,
    CountBytes,
    Kind,
    count_fitting,
    count_small,
    is_out_of_memory,
    join_pieces,
    pad_rows,
)
from standfast.model.black_box import BlackBox, Output, find_black_box
from standfast.model.failures import (
    check_finite,
    describe_failure,
    describe_known_failure,
    describe_tensor_kind,
)
from standfast.model.modules import (
    ForwardWrapper,
    check_module,
    check_ready,
    evaluation_mode,
    keep_state,
    module_name,
    resolve_device,
    run_in_bfloat16,
    run_in_type,
)
from standfast.model.suspicions import (
    MOST_TRIED,
    Repetition,
    describe_other_problem,
    describe_units,
    drops_part_of_sample,
    fits_bounds,
    suggest_output,
)
from standfast.reference import FEWEST_ROWS, Reference, make_reference
from standfast.tasks import Classification, Task, ZeroShot, find_output
from standfast.tasks import get as get_task
from standfast.tasks.base import expand_targets
from standfast.tasks.estimators import fit_method, name_classes_of
from standfast.tasks.outputs import Where, check_where
from standfast.tasks.suspicions import (
    describe_graph,
    describe_probabilities,
    lacks_channel,
    may_be_probabilities,
)
from standfast.tensors import (
    Bound,
    describe_bounds,
    describe_no_tensor,
    describe_rows,
    keep_freed_memory,
    limited_threads,
    read_bounds,
    suggest_dtype,
    suggest_layout,
    widen_half,
)


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

    # Construction

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
        self.extras: tuple[str, ...] = tuple(extras)
        if isinstance(extras, str):
            self.extras = (extras,)
        module = check_module(module)
        check(
            preprocess is None or callable(preprocess),
            "preprocess",
            "a callable or None",
            preprocess,
        )
        check_integer(batch_size, "batch_size", also=("auto",))
        check(
            forward is None or callable(forward),
            "forward",
            "a callable (module, x) -> logits or None",
            forward,
        )
        check_ready(module)
        #: the type in which the module computes; inputs, maps and logits have `dtype`, which is never below float32
        self.precision, *other_types = find_input_types(module)
        self._other_types = tuple(other_types)
        self.dtype = widen_half(torch.empty(0, dtype=self.precision)).dtype
        forward = self._fit_types(module, forward, mixed_precision)
        if forward is None:
            self.module = module
        else:
            self.module = ForwardWrapper(module, forward)
        self.preprocess = preprocess
        self.black_box = find_black_box(self.module)
        if self.black_box is not None:
            device = "cpu" if device == "auto" else device
            self.dtype = self.precision = self.black_box.dtype
            self._other_types = ()
        self.device = resolve_device(device, next(module.parameters(), None))
        self.module.to(self.device)
        keep_freed_memory()
        self.bounds = read_bounds(bounds, self.dtype, self.device)
        self.batch_size = batch_size
        self._forget()
        #: of the columns of a table; None if nothing is known of them
        self.reference: Reference | None = None
        if reference is not None:
            rows = self.check_inputs(reference, "reference")
            check(
                rows.ndim == 2, "reference", "rows of a table (B, F)", f"shape {tuple(rows.shape)}"
            )
            self.reference = make_reference(rows)

    def _fit_types(
        self,
        module: nn.Module,
        forward: Callable[..., Tensor] | None,
        mixed_precision: Literal["bfloat16"] | None,
    ) -> Callable[..., Tensor] | None:
        """A function as `forward` that also changes the type of numbers, where the module computes in another one.

        It sets `mixed_precision`, and with it `precision`.
        """
        has_weights = find_black_box(module) is None
        if self.dtype != self.precision and has_weights:
            forward = run_in_type(self.precision, forward)
        check(
            mixed_precision in (None, "bfloat16"),
            "mixed_precision",
            "'bfloat16' or None",
            repr(mixed_precision),
        )
        self.mixed_precision = mixed_precision
        if mixed_precision is None:
            return forward
        fits = self.precision == torch.float32 and has_weights
        check(
            fits,
            "mixed_precision",
            "None for a module that is not in float32",
            repr(mixed_precision),
        )
        self.precision = torch.bfloat16
        return run_in_bfloat16(module, forward)

    def _forget(self) -> None:
        """Begin with nothing known of what the module does."""
        #: how many rows to forward at once, for inputs of a shape
        self._budgets: dict[tuple[tuple[int, ...], Kind], int] = {}
        #: how many sessions are within each other
        self._depth = 0
        self._on_inputs: Callable[[int], None] | None = None
        self._on_rows: Callable[[int], None] | None = None
        #: whether `map_rows` fills batches up, so that results have the same bits for all batch sizes; False for a
        #: module of which the rows have as many parts as that, such as tokens
        self.fills_batches = True
        #: whether somebody counts what it does (`watch`)
        self.is_watched = False
        #: the shape of the user's inputs, which errors name
        self._named_shape: tuple[int, ...] | None = None
        #: whether outputs were checked: are they logits, and can the task mean these values?
        self._logits_checked = self._values_checked = False
        #: whether the module or the preprocessing writes into its input, once it has been run; None before
        self.overwrites: bool | None = None
        #: inputs with outputs that may be probabilities of several labels, and these
        self._doubtful: tuple[Tensor, Tensor] | None = None
        #: the number of classes, once the module has been run
        self.classes: int | None = None
        #: how many classes or labels the module answers with, once it has
        self.width: int | None = None
        #: whether the module returns more than the answer, once it has been run
        self.returns_parts = False
        self._warned: set[str] = set()
        #: the module that has given the same logits again
        self._repeatable_module: nn.Module | None = None
        #: the module whose graph was looked at in this session
        self._differentiated_module: nn.Module | None = None
        #: what of options was found to fit the bounds, so that it is not checked again for each chunk
        self.fitting: set[Hashable] = set()

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
        # `below` is the task that reads the module: itself, or the one on whose outputs a `Decision` is based. A
        # zero-shot task reads vectors as they are
        reads_scores = task.below.classes and not isinstance(task.below, ZeroShot)
        scores = output if reads_scores else "value"
        module = BlackBox(fit_method(function, task, output), scores, dtype)
        return cls(module, bounds, batch_size=batch_size, reference=reference, task=task)

    # The call: outputs for a batch

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
        self._depth = 1
        self._differentiated_module = None
        try:
            with evaluation_mode(self.module), limited_threads():
                yield
                self._look_at_doubtful()
        finally:
            self._depth = 0
            self._doubtful = None

    def forward(self, x: Tensor) -> Tensor:
        """Logits `(N, classes)` of one batch `x`, or the outputs of another task `(N, ...)`; gradients flow to `x`.

        Call it in a session. It does not check the values of `x` and does not split the batch; `logits` does both.
        """
        unprepared = x if self.overwrites is False else x.clone()
        if self.preprocess is None:
            prepared = unprepared
        else:
            prepared = self.preprocess(unprepared)
        if not isinstance(prepared, Tensor):
            raise ModelError(f"preprocess: expected a tensor, got a {type(prepared).__name__}")
        outputs = self._read_outputs(prepared)
        # inference tensors do not count writes, so copying goes on
        counts_writes = not unprepared.is_inference()
        if self.overwrites is None and counts_writes:
            self.overwrites = unprepared._version > 0
        if not self._logits_checked and self.task.reads_logits:
            # within vmap no value is known; a later batch is looked at
            with contextlib.suppress(RuntimeError):
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
            raise ModelError(
                f"module: expected {names} beside its input, got none; evaluate takes them from the data"
            )
        returned = self.module(x)
        if self._on_rows is not None:
            self._on_rows(len(x))
        outputs, self.returns_parts = self._read_returned(returned, x)
        if not self._values_checked:
            self._check_values(outputs)
        if (
            self.task.below.may_be_empty
            and x.requires_grad
            and not outputs.requires_grad
            and not bool(outputs.any())
        ):
            # there is nothing, such as no box, so nothing depends on the inputs
            outputs = outputs + 0 * x.sum()
        self.classes = None
        if self.task.classes:
            self.classes = outputs.shape[1]
        self.width = None
        if outputs.ndim == 2:
            self.width = outputs.shape[1]
        return outputs

    def _read_returned(self, returned: Any, x: Tensor) -> tuple[Tensor, bool]:
        """The outputs `(N, ...)` in what the module returns for `x`, and whether it returns more than them."""
        task = self.task.below
        answer = None
        try:
            answer = find_output(returned, self.output, len(x))
            if lacks_channel(task, answer, x):
                raise ModelError(
                    f"module: expected an axis of classes, (N, C, H, W), got {describe_rows(answer)}"
                )
            widened = widen_half(answer) if isinstance(answer, Tensor) else answer
            return widen_half(task.read(widened, len(x))), answer is not returned
        except ModelError as error:
            hint = suggest_output(task, self.module, answer, x)
            raise ModelError(f"{error} for inputs of shape {describe_rows(x)}: {hint}") from error

    def _check_values(self, outputs: Tensor) -> None:
        """Raise `ModelError` for values of the first batch that the task cannot mean."""
        with torch.no_grad():
            try:
                fault = self.task.below.find_fault(outputs.detach())
            except RuntimeError:  # within vmap no value is known; a later batch is looked at
                return
        if fault:
            raise ModelError(
                f"module: expected outputs of the task {self.task.below.name}, got {fault}"
            )
        self._values_checked = True

    def _look_at_outputs(self, x: Tensor, outputs: Tensor) -> None:
        """Warn of outputs `(N, ...)` that the task reads as logits, and that are none."""
        said = describe_probabilities(self.task.below, outputs, self.differentiable)
        is_doubtful = self.differentiable and may_be_probabilities(self.task.below, outputs)
        self._logits_checked = True
        if said:
            self.warn_once(f"module: {said}")
        elif is_doubtful:
            self._doubtful = x[:MOST_TRIED].detach().clone(), outputs
        else:
            self._warn_of(describe_other_problem(self.task, self.module, outputs))

    def _look_at_doubtful(self) -> None:
        """Warn if the outputs for the doubtful inputs come from sigmoids or softmaxes, only moved or scaled afterwards.

        By their values alone, logits of a network with random weights may look so. The module runs once more, so this
        is done at the end of a session, when no hooks and modes of explainers are there.
        """
        if self._doubtful is None:
            return
        x, first_outputs = self._doubtful
        self._doubtful = None
        said = ""
        # it may refuse inputs with gradients
        with (
            contextlib.suppress(Exception),
            torch.enable_grad(),
            run_eagerly(),
        ):
            x.requires_grad_(True)
            # a module or a preprocessing may change its input in place
            prepared = x.clone()
            if self.preprocess is not None:
                prepared = self.preprocess(prepared)
            returned = self.module(prepared)
            said = describe_graph(self.task.below, find_output(returned, self.output, len(x)))
        if said:
            self.warn_once(f"module: {said}")
        else:
            self._warn_of(describe_other_problem(self.task, self.module, first_outputs))

    @contextlib.contextmanager
    def watch(
        self, on_inputs: Callable[[int], None], on_rows: Callable[[int], None] | None = None
    ) -> Iterator[None]:
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
        self._on_inputs = on_inputs
        self._on_rows = on_rows
        self.is_watched = True
        try:
            yield
        finally:
            self._on_inputs, self._on_rows, self.is_watched = before

    def check_gradients(self, scores: Tensor, x: Tensor) -> None:
        """As `check_has_gradients`, for scores of what `forward` returned for `x`; in a session only the first time.

        To look at a graph takes as long as several rows of a small network. In a session the module stays as it is, and
        a later batch to which no graph leads is noticed by its gradient (`compute_gradient`).

        Raises:
            NoGradientsError: gradients by `x` say nothing of the scores.
        """
        if self._depth and self._differentiated_module is self.module:
            return
        check_has_gradients(scores, x)
        self._differentiated_module = self.module

    @contextlib.contextmanager
    def naming(self, inputs: Tensor) -> Iterator[None]:
        """Inside the block, errors of the module name the shape of the user's `inputs`, not that of a part of them.

        Raises:
            ArgumentError: the module fails on the inputs, but not on the same ones in another layout.
        """
        before = self._named_shape
        is_outermost = before is None
        if is_outermost:
            self._named_shape = tuple(inputs.shape)
        try:
            yield
        except FailedModuleError as error:
            if is_outermost and self.differentiable:
                hint = suggest_layout(inputs, self._accepts_layout)
            else:
                hint = ""
            if hint:
                raise ArgumentError(
                    "inputs", "a batch of shape (N, C, ...)", f"{hint} ({error})"
                ) from error
            raise
        finally:
            self._named_shape = before

    def _accepts_layout(self, inputs: Tensor) -> bool:
        """Whether the module accepts the first of the inputs in this layout, and the preprocessing keeps all of it."""
        try:
            with self.session(), torch.no_grad():
                batch = inputs[:1].to(self.device)
                if self.preprocess is None:
                    prepared = batch
                else:
                    prepared = self.preprocess(batch)
                return (
                    not drops_part_of_sample(batch, prepared) and self.forward(batch).shape[0] == 1
                )
        except Exception:  # whatever the module raises
            return False

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

    # Inputs and targets, checked

    def check_inputs(self, inputs: Tensor, name: str = "inputs") -> Tensor:
        """`inputs` on the model's device, in the model's dtype, and clamped to the bounds.

        Of a module with weights of several types, the first inputs may change the model's dtype to theirs.

        Raises:
            ArgumentError: a wrong type, dtype, shape or range.
        """
        check(isinstance(inputs, Tensor), name, "a torch.Tensor", describe_no_tensor(inputs))
        dense = inputs.layout == torch.strided and not inputs.is_meta and not inputs.is_nested
        check(dense, name, "a dense tensor with values", describe_tensor_kind(inputs))
        self._check_type(inputs, name)
        shape = tuple(inputs.shape)
        hint = ": for one sample use x[None]" if inputs.ndim == 1 else ""
        is_batch = inputs.ndim >= 2 and inputs.numel() > 0
        check(is_batch, name, "a non-empty batch of shape (N, ...)", f"shape {shape}{hint}")
        inputs = inputs.detach().to(self.device)
        lower, upper = (bound.to(inputs.dtype) for bound in self.bounds)
        if not self._fits_bounds(inputs):
            expected = f"a sample shape that bounds of shape {tuple(lower.shape)} broadcast to"
            raise ArgumentError(
                name, expected, suggest_layout(inputs, self._fits_bounds) or f"{shape[1:]}"
            )
        check(bool(torch.isfinite(inputs).all()), name, FINITE, "NaN or infinity")
        # after a normalisation in float32, values can be outside the range by a few units in the last place
        slack = 1e-5 * (upper - lower).clamp(max=min(1e30, torch.finfo(inputs.dtype).max))
        if bool(((inputs < lower - slack) | (inputs > upper + slack)).any()):
            expected = f"values within the bounds {describe_bounds((lower, upper))}"
            raise ArgumentError(name, expected, f"values in {describe_bounds((inputs, inputs))}")
        return inputs.to(self.dtype).clamp(*self.bounds)

    def _check_type(self, inputs: Tensor, name: str) -> None:
        """Raise `ArgumentError` unless the inputs have the model's type, that of its module, or one that it takes."""
        if inputs.dtype in self._other_types and self.precision == self.dtype:
            self._try_type(inputs)
        expected = f"dtype {self.precision} (the module's)"
        if self.dtype != self.precision:
            expected = f"dtype {self.dtype} or {self.precision} (the module's)"
        fits = inputs.dtype in (self.dtype, self.precision)
        check(fits, name, expected, f"{inputs.dtype}: {suggest_dtype(inputs, self.dtype)}")

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
        return fits_bounds(inputs, self.bounds)

    def warn_of_units(self, inputs: Tensor) -> None:
        """Warn if all samples together use so little of the bounds that both may have different units."""
        self._warn_of(describe_units(inputs, self.bounds))

    def check_targets(self, targets: Tensor | int | None, inputs: Tensor) -> Tensor:
        """Classes `(N,)` on the model's device, or the answers of another task; `None` means the predicted ones.

        Raises:
            ArgumentError: the targets have the wrong dtype or shape, or name a class that does not exist.
        """
        if targets is None:
            return self.predict(inputs)
        expanded = expand_targets(targets, len(inputs)).to(self.device)
        fits = expanded.is_floating_point() == self.task.takes_vectors
        form = "vectors" if self.task.takes_vectors else "whole numbers"
        expected = f"{form} for {self.task.name}"
        check(fits, "targets", expected, getattr(targets, "dtype", targets))
        counts_classes = self.task.classes  # and then the values of outputs are not wanted
        answered_inputs = inputs[:1] if counts_classes else inputs
        with self.naming(inputs), self.session(), torch.no_grad():
            (outputs,) = self.map_rows(
                lambda x: (self.forward(x),), answered_inputs, needs_bits=not counts_classes
            )
        return self.task.answer(outputs, expanded)

    # Outputs for many inputs

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
        its last row; where a row becomes several, to as many as fill such a batch; on a card as `count_padding` says.
        `batches.py` says what rows, batches and chunks are. The outputs are cut back. If memory runs out, the budget is
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
        inputs = tensors[0] if like is None else like
        total = len(tensors[0])
        rows = self.inputs_per_chunk(inputs, rows_per_input, kind, total, batches)
        chunks = Chunks.plan(rows, rows_per_input, batches, needs_bits, self.fills_batches)
        pieces: list[tuple[Tensor, ...]] = []
        start = 0
        while start < total:
            end = min(start + chunks.rows, total)
            try:
                pieces.append(self._run_chunk(function, tensors, slice(start, end), chunks))
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise self._explain(error, inputs) from error
                if chunks.rows == 1:
                    raise ModelError(
                        f"module: expected one input of shape {tuple(inputs.shape[1:])} to fit into memory"
                        f" ({rows_per_input} rows forwarded), got: {error}"
                    ) from error
                chunks = chunks.halve()
                self._lower_budget(inputs, chunks.rows * rows_per_input, kind)
                continue
            if self._on_inputs is not None:
                self._on_inputs((end - start) * evaluations)
            start = end
        return join_pieces(pieces)

    def _run_chunk(
        self,
        function: Callable[..., tuple[Tensor, ...]],
        tensors: Sequence[Tensor],
        part: slice,
        chunks: Chunks,
    ) -> tuple[Tensor, ...]:
        """What the function makes of a part of the tensors, which is padded before and cut back afterwards."""
        # a call inside of `function` is part of this one
        on_inputs, self._on_inputs = (
            self._on_inputs,
            None,
        )
        try:
            chunk = [tensor[part].to(self.device) for tensor in tensors]
            count = len(chunk[0])
            padding = chunks.count_copies(count, self.device)
            padded = [pad_rows(tensor, padding) for tensor in chunk]
            return tuple(output[:count] for output in function(*padded))
        finally:
            self._on_inputs = on_inputs

    def _explain(self, error: RuntimeError, inputs: Tensor) -> ModelError:
        """The error with the shape and dtype of the inputs; torch's own error does not name the inputs."""
        known_failure = describe_known_failure(error)
        if known_failure is not None:
            return known_failure
        if self._named_shape is None:
            shape = tuple(inputs.shape)
        else:
            shape = self._named_shape
        failure: Exception = error
        rows = len(inputs)
        try:  # torch's text has the number of rows, which were padded: what does it say of the user's?
            with self.session(), torch.no_grad():
                self.forward(inputs[: shape[0]].to(self.device))
        except RuntimeError as failure_of_few:
            failure, rows = failure_of_few, min(rows, shape[0])
        except Exception:  # another kind of failure says less than the first one
            pass
        return describe_failure(failure, shape, rows, inputs.dtype)

    def inputs_per_chunk(
        self,
        inputs: Tensor,
        rows_per_input: int,
        kind: Kind,
        count: int | None = None,
        batches: int = 1,
    ) -> int:
        """How many inputs one chunk of so many batches has: a multiple of `ROW_ALIGNMENT` if the budget allows it."""
        rows = batches * self.row_budget(inputs, rows_per_input, kind, count)
        inputs_that_fit = max(1, rows // rows_per_input)
        if inputs_that_fit < ROW_ALIGNMENT:
            return inputs_that_fit
        return inputs_that_fit - inputs_that_fit % ROW_ALIGNMENT

    def row_budget(
        self,
        inputs: Tensor,
        rows_per_input: int = 1,
        kind: Kind = "backward",
        count: int | None = None,
    ) -> int:
        """How many rows to forward at once for inputs of this shape; found on the first call with enough rows.

        `count` is how many inputs there will be, if not as many as `inputs` `(N, ...)` holds.
        """
        if self.batch_size != "auto":
            return self.batch_size
        key = (tuple(inputs.shape[1:]), kind)
        if not self.differentiable:
            # a call costs more than its rows, at all sizes
            return self._budgets.setdefault(key, LARGEST_ROWS)
        if key not in self._budgets:
            few = count_small(inputs[0])
            expected_inputs = len(inputs) if count is None else count
            if expected_inputs * rows_per_input <= few:
                return few
            self._budgets[key] = self._find_rows(inputs[:1].to(self.device), kind)
        return self._budgets[key]

    def _lower_budget(self, inputs: Tensor, rows: int, kind: Kind) -> None:
        """Forward so many rows at once from now on, since memory ran out."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.warn_once(
            f"memory ran out: {rows} rows at once from now on. The last digits of results depend on it"
        )
        if self.batch_size == "auto":
            self._budgets[(tuple(inputs.shape[1:]), kind)] = rows
        else:
            self.batch_size = rows

    def _find_rows(self, sample: Tensor, kind: Kind) -> int:
        """So many rows that what the module computes for them fits well into the caches, or a GPU's memory.

        The number follows from the module and the shape alone, and not from a measured time: the last digits of
        results depend on the size of the batches, and a search may take another way from there.
        """
        with self.session(), run_eagerly(), CountBytes() as counted:
            try:
                with torch.no_grad():
                    self.forward(sample.clone())
            except RuntimeError as error:
                raise self._explain(error, sample) from error
        bytes_of_sample = sample[0].numel() * sample.element_size()
        return count_fitting(max(counted.bytes, bytes_of_sample), self.device, kind)

    # What is known of the model

    def __repr__(self) -> str:
        if self.differentiable:
            parameters = sum(parameter.numel() for parameter in self.module.parameters())
            kind = f"{parameters:,} parameters"
        else:
            kind = "a function without gradients"
        lower, upper = self.bounds
        is_same_everywhere = lower.numel() == upper.numel() == 1
        bounds = f"bounds {describe_bounds(self.bounds)}"
        if not is_same_everywhere:
            bounds += " by channel"
        preprocess = ""
        if self.preprocess is not None:
            preprocess = ", preprocess"
        return f"Model({module_name(self.module)}, {kind}, {bounds}, {self.device}{preprocess})"

    @property
    def differentiable(self) -> bool:
        """Whether the module has gradients; a function of arrays (`from_callable`) has none, and no layers either."""
        return self.black_box is None

    @property
    def runs_rows_once(self) -> bool:
        """Whether the module keeps what it has answered to a row, so that equal rows are run once."""
        return self.black_box is not None and self.black_box.remembers

    @property
    def refusal(self) -> str:
        """Why the module answers nothing for the sample that it is bound to; empty where it answers."""
        if self.black_box is None:
            return ""
        return self.black_box.refusal

    def forgetting(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block the module runs all rows, also those whose answers it remembers from before."""
        if self.black_box is None:
            return contextlib.nullcontext()
        return self.black_box.forgetting()

    def reference_for(self, x: Tensor) -> Reference | None:
        """The reference for inputs `x` `(N, ...)`; None for images, series, and if there is none.

        Raises:
            ArgumentError: `x` has another number of columns.
        """
        if self.reference is None or x.ndim != 2:
            return None
        columns = self.reference.baseline.shape[0]
        check(
            columns == x.shape[1],
            "reference",
            f"rows with {x.shape[1]} columns, as the inputs have",
            columns,
        )
        return self.reference

    def move_towards(self, x: Tensor, others: Tensor, share: float) -> Tensor:
        """Inputs `(N, ...)` moved by a share of the way to others; of words, this share of them is replaced."""
        if self.black_box is None:
            moved = None
        else:
            moved = self.black_box.replace_share(x, others, share)
        if moved is None:
            return x + share * (others - x)
        return moved

    def check_repeatable(
        self, inputs: Tensor, in_batches: bool = False, outputs: Tensor | None = None
    ) -> None:
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
        if self._repeatable_module is self.module and not in_batches:
            return
        first_inputs = inputs[:MOST_TRIED].to(self.device)
        repetition = Repetition(
            self.bounds, self.precision, self.device, self._answer_flat, self._aside
        )
        is_same = outputs is not None and repetition.is_same(
            first_inputs, outputs[: len(first_inputs)]
        )
        if not is_same:
            try:
                differences = repetition.compare(first_inputs, in_batches)
            except (Exception, SystemExit):  # whatever the module raises: the caller meets it again
                return
            differences.refuse(self.module)
        self._repeatable_module = self.module

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """A session without gradients whose rows do not count, and after which the module is as before."""
        with (
            keep_state(self.module),
            self.watch(lambda count: None),
            self.session(),
            torch.no_grad(),
        ):
            yield

    def _answer_flat(self, x: Tensor) -> Tensor:
        """The logits of inputs `(N, ...)`, inside a session, as `(N, K)`."""
        (logits,) = self.map_rows(lambda rows: (self.forward(rows),), x)
        return logits.double().flatten(1)

    def warn_once(self, text: str) -> None:
        """Warn, unless this model has warned of the same already."""
        if text not in self._warned:
            self._warned.add(text)
            warn_user(text)

    def _warn_of(self, text: str) -> None:
        """Warn once, unless there is nothing to say."""
        if text:
            self.warn_once(text)

    # Changes: a copy of the model that differs in one thing

    def _replace(self, **changes: Any) -> Model:
        """This model with other values of some attributes; they share row budgets, and what was warned of."""
        other = copy.copy(self)
        for attribute, value in changes.items():
            assert hasattr(self, attribute)
            setattr(other, attribute, value)
        return other

    def to(self, device: str | torch.device) -> Model:
        """The same model on a device, as the constructor takes it; the module itself is moved."""
        moved = Model(
            self.module,
            self.bounds,
            self.preprocess,
            device,
            self.batch_size,
            mixed_precision=self.mixed_precision,
            task=self.task,
            output=self.output,
            extras=self.extras,
        )
        # as it is, also if other rows of it were drawn; what reads it sends it to the device of its inputs
        moved.reference = self.reference
        return moved

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
        return self._replace(reference=make_reference(inputs))

    def with_rows(self, rows: Tensor) -> Model:
        """This model with the values `(B, F)` that replace others, however few rows they are."""
        return self._replace(reference=make_reference(self.check_inputs(rows, "reference")))

    def with_width(self, width: int) -> Model:
        """This model for inputs of so many columns, of those that its reference has; itself without a reference."""
        if self.reference is None or self.reference.known.shape[1] == width:
            return self
        return self.with_rows(self.reference.known[:, :width].to(self.dtype))

    def with_background(self, seed: int) -> Model:
        """This model with other rows of its reference, drawn by a seed, for what averages over some; itself without."""
        if self.reference is None:
            return self
        return self._replace(reference=self.reference.redraw(seed))

    def with_background_rows(self, rows: Tensor) -> Model:
        """This model with these rows `(B, F)` of its reference, for what averages over some; itself without one."""
        if self.reference is None:
            return self
        return self._replace(reference=replace(self.reference, rows=rows.to(self.reference.rows)))

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
        expected = f"data with the extras {', '.join(self.extras)} of the model"
        check(bool(extras), "extras", expected, "data without any")
        for name in self.extras:
            if name not in extras:
                raise UnknownNameError("extras", name, extras)
        extras_of_row = {name: extras[name][row : row + 1] for name in self.extras}
        bound = None
        if self.black_box is not None:
            bound = self.black_box.bind(extras_of_row)
        if bound is not None:
            return self.with_box(bound)

        def run(module: nn.Module, x: Tensor) -> Any:
            copies = {
                name: extra.to(x.device).expand(len(x), *extra.shape[1:])
                for name, extra in extras_of_row.items()
            }
            return module(x, **copies)

        return self._replace(module=ForwardWrapper(self.module, run), extras=())

    def with_box(self, box: BlackBox) -> Model:
        """This model with another black box in the place of its own, which needs no further inputs."""
        return self._replace(module=box, black_box=box, extras=())

    def of_score(self, answer: Tensor) -> Model:
        """A model whose class 0 has the score of one answer `(1, ...)` of this model's task as its logit.

        For what knows classes alone, such as other packages. Class 1 has the negative logit.
        """

        def run(module: nn.Module, x: Tensor) -> Tensor:
            outputs = self.task.read(find_output(module(x), self.output, len(x)), len(x))
            score = self.task.score(outputs, answer.expand(len(x), *answer.shape[1:]))
            return torch.stack([score, -score], 1)

        wrapped = ForwardWrapper(self.module, run)
        return self._replace(
            task=Classification(), output=None, module=wrapped, _logits_checked=True
        )

    def with_task(self, task: Task) -> Model:
        """This model with another task, such as a decision by its answers."""
        return self._replace(task=task, classes=None, _logits_checked=False, _values_checked=False)

    def with_class_names(self, names: Sequence[str]) -> Model:
        """This model with a task that knows the classes of the data by name; itself where its task needs none.

        Raises:
            ArgumentError: the task names a class that is not among them.
        """
        task = self.task.name_classes(names)
        if task is self.task:
            return self
        return self.with_task(task)

    @property
    def undecided(self) -> Model:
        """The model with the task that reads the module; itself where no decision is made of what that says."""
        if self.task.below is self.task:
            return self
        # this model has a look at the outputs
        return self._replace(
            task=self.task.below, classes=None, _logits_checked=True, _values_checked=True
        )
