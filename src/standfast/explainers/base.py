"""`Explainer`, and what explainers share: leaves of the graph, target logits, gradients, seeds and baselines."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from traceback import walk_tb
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from standfast.display import Count
from standfast.errors import (
    ArgumentError,
    FailedModuleError,
    ModelError,
    NoGradientsError,
    StandfastError,
    as_number,
    check,
    check_number,
    warn_user,
)
from standfast.explainers.shared_passes import share_pass
from standfast.frames import find_frame_function
from standfast.function_calls import (
    FunctionMode,
    check_has_gradients,
    compute_gradient,
    run_eagerly,
)
from standfast.gating import rows_of
from standfast.model import ROW_ALIGNMENT, Model, count_padding, module_name, pad_rows
from standfast.needs import Needs, check_declarations
from standfast.records import ConfigurationType
from standfast.registry import Registry
from standfast.tasks import find_output
from standfast.tensors import describe_bounds, send, widen_half

#: of the explainers that cut the rows of a chunk into batches themselves
BATCHES = 8
#: of a dial: below it there is no variance, and a single coalition
_LEAST_SETTING = 2
#: attributions, shaped like the inputs, and the logits `(N, K)` at them
Explanation = tuple[Tensor, Tensor]
#: the explainers, by their labels, that have looked at a module for columns that they cannot see
_EXAMINED: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()

#: what the numbers of an explainer measure (`Explainer.measures`)
Measure = Literal["contribution", "slope", "direction", "relevance"]
#: the scale of the score that they are about
ValueScale = Literal["logit", "probability", "trees"]


class Explainer(metaclass=ConfigurationType):
    """Feature attributions: `(model, inputs, targets) -> attributions`, shaped like the inputs.

    Concrete explainers are frozen dataclasses: options in the constructor, data in the call. An explanation depends on
    the input, the target and the model alone. It does not depend on the other inputs in the batch, nor on the global
    random state.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    #: what the model or the data must have; by default predictions are enough
    needs: ClassVar[Needs] = Needs()
    #: the points beside the inputs at which it runs the module, which may fail there
    visits: ClassVar[str] = (
        "copies with other values: they may be outside of the bounds, or no codes of categories"
    )
    #: why attributions that should add up may not, and what to do
    gap_cause: ClassVar[str] = (
        "It uses the gradient where it has no rule: gates of LSTMs, softmax, products (attention), layer normalisation,"
        " codes of categories"
    )
    #: whether attributions can be differentiated with respect to the inputs
    differentiable: ClassVar[bool] = False
    #: whether weights may be masked by gates (see `standfast.gating`): the explainer uses the module only to run it
    #: forward and backward, each row on its own, on the rows of its chunk or on others within
    #: `standfast.gating.rows_of`
    gateable: ClassVar[bool] = False
    #: whether it reads the inside of an estimator, such as the weights of leaves, so that models with the same answers
    #: may have other maps
    reads_inside: ClassVar[bool] = False
    #: into how many batches it cuts the rows of a chunk; with several, few of them are filled up with copies
    batches: ClassVar[int] = 1
    #: whether its maps say nothing about what the model has learned: a reference for the other explainers
    control: ClassVar[bool] = False
    #: whether its maps are gradients, which need not add up to anything
    plain_gradient: ClassVar[bool] = False
    #: whether the signs of its numbers say what speaks for the answer and what against it; False where numbers only say
    #: how much something matters, as absolute gradients do; None where it is not known
    has_signs: ClassVar[bool | None] = None
    #: what its numbers measure, which is what their signs are about: the `"contribution"` of a feature as it is, in the
    #: unit of the score; the `"slope"`, how much the score changes for each unit by which the feature is raised; the
    #: `"direction"`, in which only the sign says whether the score rises or falls with the feature; or `"relevance"`
    #: without a unit, which is where a feature speaks for the answer or against it, if there are signs
    measures: ClassVar[Measure] = "relevance"
    #: whether it runs the module at the inputs themselves alone, and at no copies
    at_inputs_alone: ClassVar[bool] = False
    #: whether it follows attention through the layers, so that it also needs what stands around a text
    follows_attention: ClassVar[bool] = False
    starts_at_logits: ClassVar[bool] = False
    #: the options that say what stands in the place of removed features, such as a baseline
    removal_options: ClassVar[tuple[str, ...]] = ()
    #: the option, a whole number, that says how much work a map is: with a smaller one, maps are rougher and cheaper
    dial: ClassVar[str] = ""
    #: the share of the dial's setting with which a search that looks at rough maps first was shown to find worse cases
    #: at the same cost, so that `auto` does so; 0 where this was not shown
    draft_share: ClassVar[float] = 0.0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_declarations(cls, Explainer)
        check_number(cls.draft_share, f"{cls.__qualname__}.draft_share", least=0, below=1)
        can_draft = bool(cls.dial) or not cls.draft_share
        check(
            can_draft,
            f"{cls.__qualname__}.draft_share",
            "0 for an explainer without a dial",
            cls.draft_share,
        )

    @classmethod
    def list_declared_options(cls) -> dict[str, list[str]]:
        """See `ConfigurationType`."""
        return {"removal_options": list(cls.removal_options), "dial": cls._list_dials()}

    @classmethod
    def list_declared_counts(cls) -> dict[str, list[str]]:
        """See `ConfigurationType`."""
        return {"dial": cls._list_dials()}

    @classmethod
    def _list_dials(cls) -> list[str]:
        return [cls.dial] if cls.dial else []

    @property
    def scale_of_values(self) -> ValueScale:
        """The scale of the score whose contributions or slopes its numbers are: by default that of an option `output`.

        `"trees"` is what trees add up to, log-odds or a probability.
        """
        output = getattr(self, "output", "logit")
        return "probability" if output == "probability" else "logit"

    def has_too_few_samples(self, inputs: Tensor) -> Tensor:
        """Whether it draws so few samples that the mean over seeds is wrong, too, bool `(N,)` for inputs `(N, ...)`.

        Then no number of draws mends it. By default it is so of none.
        """
        return torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)

    def with_dial(self, share: float) -> Self | None:
        """The same explainer with its dial at a share of its setting: its drafts are rougher and cheaper maps.

        What it draws at random comes from the same seed. None where there is no dial, and where the setting is so small
        that nothing is saved.

        >>> from standfast.explainers import get
        >>> get("integrated_gradients", steps=64).with_dial(1 / 8)
        IntegratedGradients(steps=8, baseline=None)
        >>> get("saliency").with_dial(1 / 8)
        """
        check_number(share, "share", above=0, below=1)
        if not self.dial:
            return None
        setting = getattr(self, self.dial)
        lower_setting = max(_LEAST_SETTING, round(share * setting))
        if lower_setting >= setting:
            return None
        configuration: Any = self  # a frozen dataclass
        rough: Self = dataclasses.replace(configuration, **{self.dial: lower_setting})
        return rough

    @property
    def rows_per_input(self) -> int:
        """Rows that the module forwards for one input, such as the steps of a path."""
        return 1

    def count_rows_of(self, inputs: Tensor) -> int:
        """`rows_per_input` of inputs of this shape `(1 or more, ...)`, where the shape says more."""
        return self.rows_per_input

    @property
    def label(self) -> str:
        """The name of this explainer in messages and tables."""
        return self.name

    def __call__(
        self,
        model: Model,
        inputs: Tensor,
        targets: Tensor | int | None = None,
        *,
        progress: bool = True,
    ) -> Tensor:
        """Attributions of `inputs` `(N, ...)` for the classes `targets`; same shape, detached.

        Args:
            model: the model to explain. Its flags and hooks are restored afterwards.
            inputs: within the model's bounds.
            targets: classes `(N,)`, one class for all, or `None` for the class predicted at each input.
            progress: from ten seconds on, show on standard error how many inputs are explained: in a bar on a terminal,
                else in a line every ten seconds.

        Raises:
            ArgumentError: a module alone; inputs or targets that do not fit the model.
            ModelError: the module fails on them, or logits or attributions are not finite.
        """
        fits = hasattr(model, "check_inputs")
        check(
            fits,
            "model",
            "standfast.Model(module, bounds=(low, high))",
            f"a {type(model).__name__}",
        )
        self.check_classifier(model)
        with torch.inference_mode(False):
            inputs = model.check_inputs(inputs)
            classes = None if targets is None else model.check_targets(targets, inputs)
            count = Count(self.label, "explanations", lambda: len(inputs))
            shown = model.showing(count, progress)
            with model.naming(inputs), model.session(), shown:
                attributions, logits = self.attribute_all(model, inputs, classes)
        for what, values in (
            ("module: expected finite logits", logits),
            (self.label, attributions),
        ):
            if not torch.isfinite(values).all():
                is_no_number = (~torch.isfinite(values)).flatten(1).any(1)
                rows = int(is_no_number.sum())
                what = what if values is logits else f"{self.label}: expected finite attributions"
                raise ModelError(f"{what}, got NaN or infinity for {rows} of {len(inputs)} inputs")
        return attributions.detach()

    def check_classifier(self, model: Model) -> None:
        """Raise `ArgumentError` if the explainer needs a module, and the model is a function of arrays.

        What an explainer does not declare by `needs` is an error of the function, when it is to be differentiated.
        """
        if model.differentiable or not self.needs.module:
            return
        why = f"{module_name(model.module)} has no gradients"
        expected = (
            f"one that needs predictions alone (kernel_shap, lime, occlusion, ...), since {why}"
        )
        raise ArgumentError("explainer", expected, f"{self.label}, which needs {self.needs}")

    @abstractmethod
    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        """Explain one chunk that fits into memory: attributions like `x` `(N, ...)`, and the logits `(N, K)` at `x`.

        For use inside `model.session()`; arguments are not checked.

        Args:
            model: the model to explain.
            x: inputs, on its device. With `create_graph` they must require gradients.
            targets: classes `(N,)`, or `None` for the class predicted at each row.
            create_graph: both results can be differentiated with respect to `x`; otherwise they are detached.
        """

    def attribute_all(
        self, model: Model, x: Tensor, targets: Tensor | None, fixed: Tensor | None = None
    ) -> Explanation:
        """`attribute` for any number of inputs, in chunks that fit into memory: detached maps and logits.

        For use inside `model.session()`; arguments are not checked.

        Args:
            model: the model to explain.
            x: inputs `(M, ...)`.
            targets: classes `(M,)`, or `None` for the class predicted at each input.
            fixed: for perturbed copies, their rows `(M, ...)` of `fixed_part`.
        """

        def run(x: Tensor, *more: Tensor) -> Explanation:
            classes = None if targets is None else more[0]
            if fixed is None:
                return self.attribute(model, x, classes)
            return self.attribute_copies(model, x, classes, more[-1])

        widths = None if model.black_box is None else model.black_box.find_widths(x)
        if widths is not None:
            return self._attribute_widths(model, x, targets, fixed, widths)
        columns = [values for values in (x, targets, fixed) if values is not None]
        try:
            # what is not known to run the module only forward and backward may use hooks
            way = contextlib.nullcontext() if self.gateable else run_eagerly()
            with way:
                maps, logits = model.map_rows(
                    run,
                    *columns,
                    rows_per_input=self.count_rows_of(x),
                    kind="backward",
                    batches=self.batches,
                )
        except Exception as error:
            if self.needs.gradients:
                _refuse_without_gradients(model, x, error)
            if self._is_refused(error, model, x):
                where = f"{module_name(model.module)} runs on the inputs, but not on {self.visits}"
                raise ModelError(
                    f"{self.label}: {where}. It says: {type(error).__name__}: {error}"
                ) from error
            raise
        maps, logits = widen_half(maps), widen_half(logits)
        if model.black_box is not None:
            maps = model.black_box.join_maps(maps, x)
        if fixed is None:
            classes = model.task.answer(logits) if targets is None else targets
            self.check_maps(model, x, maps, logits, classes)
            if x.ndim == 2 and self.needs.gradients:
                _warn_of_flat_columns(self.label, model, x[:64], maps[:64], classes[:64])
        return maps, logits

    @contextlib.contextmanager
    def preparing(
        self, model: Model, x: Tensor, variants: Sequence[tuple[Explainer, Model]]
    ) -> Iterator[None]:
        """Inside, variants of this explainer explain inputs among `x` `(N, ...)`, which were explained before.

        What they all need can be computed once, and together. No map depends on it. By default, nothing is computed.

        Args:
            model: the model to explain.
            x: inputs.
            variants: explainers that differ in seeds and in the rows that they average over, and models that differ in
                the rows of their reference.
        """
        yield

    def _attribute_widths(
        self, model: Model, x: Tensor, targets: Tensor | None, fixed: Tensor | None, widths: Tensor
    ) -> Explanation:
        """Inputs that end at different places, each without what is behind its end, of which maps are 0."""
        maps = []
        logits = []
        order = []
        for width in sorted(set(widths.tolist())):
            rows = (widths == width).nonzero()[:, 0]
            targets_of_rows = None if targets is None else targets[rows]
            fixed_of_rows = None if fixed is None else fixed[rows]
            inputs_of_width = x[rows, : max(width, 1)]
            narrow_maps, at = self.attribute_all(
                model.with_width(width), inputs_of_width, targets_of_rows, fixed_of_rows
            )
            missing = x.shape[1] - narrow_maps.shape[1]
            maps.append(torch.nn.functional.pad(narrow_maps, (0, missing)))
            logits.append(at)
            order.append(rows)
        back = torch.cat(order).argsort()
        return torch.cat(maps)[back], torch.cat(logits)[back]

    def _is_refused(self, error: Exception, model: Model, x: Tensor) -> bool:
        """Whether the module raised the error itself, at other points than the inputs `x`."""
        if isinstance(error, StandfastError):
            if not isinstance(error, FailedModuleError):
                return False
            if self.needs != Needs() and not self.gateable:
                return False  # hooks and modes of ours may have failed inside of the module
        raised = [exception for exception in (error, error.__cause__) if exception]
        traces = [exception.__traceback__ for exception in raised]
        callers = [frame.f_locals.get("self") for trace in traces for frame, _ in walk_tb(trace)]
        differentiates = self.needs.gradients

        def run(rows: Tensor) -> tuple[Tensor]:
            return (model.forward(rows.clone().requires_grad_(differentiates)).detach(),)

        # whatever the module raises
        with (
            contextlib.suppress(Exception),
            torch.set_grad_enabled(differentiates),
        ):
            model.map_rows(run, x, evaluations=0)
            # the module is the `self` of a frame of the traceback where its own code raised the error
            return any(caller is model.module for caller in callers)
        return False

    def check_maps(
        self, model: Model, x: Tensor, maps: Tensor, logits: Tensor, classes: Tensor
    ) -> None:
        """Warn of what is wrong with attributions `maps` of inputs `x` for `classes` `(N,)`; by default of nothing.

        It is called for the user's inputs and for perturbed ones, but not while the module has other weights.
        """

    def for_entries(self) -> Explainer:
        """The explainer to evaluate in a metric of single entries of an input, where others look at whole pixels.

        By default this explainer itself. One that can give each channel values of its own returns a copy that does.
        """
        return self

    @property
    def shared_pass(self) -> tuple[object, ...] | None:
        """What its passes are, if explainers of which this is equal need the same ones; None for passes of its own."""
        return None

    def fixed_part(self, inputs: Tensor) -> Tensor | None:
        """What explanations of perturbed copies reuse from the original `inputs` `(N, ...)`, a row for each of them.

        None for nearly all explainers: their explanation depends on the copy alone.
        """
        return None

    def attribute_copies(
        self, model: Model, x: Tensor, targets: Tensor | None, fixed: Tensor
    ) -> Explanation:
        """`attribute` for perturbed copies `x`, with the rows of `fixed_part` that belong to them."""
        raise NotImplementedError(f"{self.label} reuses nothing of the original inputs")

    def _check_graph(self, create_graph: bool) -> None:
        if create_graph and not self.differentiable:
            raise ArgumentError(
                "create_graph", f"False for {self.label}, which has no derivative", create_graph
            )


explainers: Registry[type[Explainer]] = Registry(
    "explainer",
    "standfast.explainers",
    lambda kind: isinstance(kind, type) and issubclass(kind, Explainer),
    named=True,
)


class GradientExplainer(Explainer):
    """An explainer made of gradients by the input, which can be differentiated once more."""

    needs = Needs(gradients=True)
    differentiable = True
    gateable = True


def _refuse_without_gradients(model: Model, x: Tensor, error: Exception) -> None:
    """Raise `NoGradientsError` if this is why an explainer failed: its own error names an operation at most.

    Rules for layers and functions fail in ways of their own on a module that has no gradients, such as a quantised one.
    """
    if isinstance(error, NoGradientsError | ArgumentError):  # of an option
        return
    try:
        with torch.enable_grad():
            leaf = x[:1].detach().to(model.device).requires_grad_(True)
            check_has_gradients(model.forward(leaf.clone()), leaf)
    except NoGradientsError as reason:
        raise reason from error
    except Exception:  # whatever the module raises: the first error says more
        return


def _warn_of_flat_columns(
    label: str, model: Model, x: Tensor, maps: Tensor, classes: Tensor
) -> None:
    """Warn of columns of a table `x` `(N, F)` that an explainer by gradients cannot see, once for each module.

    Their maps and gradients are exactly 0, here and with the values of other rows, and these change the logit: codes of
    categories, numbers that are compared with thresholds. It costs passes only if a column has a map of zeros.
    """
    examined = _EXAMINED.setdefault(model.module, set())
    unseen = []
    if label in examined or bool((x == x[:1]).all()):
        return
    examined.add(label)
    is_zero = (maps == 0).all(0)
    columns = is_zero.nonzero()[:64, 0].tolist()
    slope, at = maps, maps
    if columns:
        slope, at = compute_input_gradient(model, x, classes, False)
    for column in columns:
        moved = x.clone()
        moved[:, column] = x[:, column].flip(0)
        with contextlib.suppress(Exception):  # the module may refuse such rows
            slope_of_moved, after = compute_input_gradient(model, moved, classes, False)
            score = select_scores(model, at, classes)
            score_of_moved = select_scores(model, after, classes)
            change = (score_of_moved - score).abs().max()
            has_slope = slope[:, column].any() | slope_of_moved[:, column].any()
            flat = not bool(has_slope)
            if flat and change > 1e-4 * (1 + at.abs().max()):
                unseen.append(str(column))
    if unseen:
        warn_user(
            f"{label}: the gradient by column{'s' * (len(unseen) > 1)} {', '.join(unseen)} is exactly 0, but other"
            f" values change the logit. Is it a code of categories, or compared with thresholds? {label} does not see"
            " that; occlusion, kernel_shap and shapley_sampling do"
        )


class PreprocessedModule(nn.Module):
    """The model's preprocessing, the user's module and the answer's part of what it returns, as a single module."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.module = model.module
        self.preprocess, self.output = model.preprocess, model.output
        self.overwrites = model.overwrites
        self.training = getattr(model.module, "training", False)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of inputs within the model's bounds."""
        x = x.clone() if self.overwrites else x
        if self.preprocess is not None:
            x = self.preprocess(x)
        out: Tensor = find_output(self.module(x), self.output)
        return out


def join_preprocessing(model: Model) -> nn.Module:
    """One module from inputs to logits: the user's own if it takes inputs as they are, and returns a tensor."""
    plain = model.preprocess is None and not model.returns_parts and not model.overwrites
    return model.module if plain else PreprocessedModule(model)


_CHOICES: ContextVar[dict[str, str]] = ContextVar("choices of explainers")


@contextlib.contextmanager
def collect_choices() -> Iterator[dict[str, str]]:
    """What explainers that run inside choose by themselves, such as their layer, by the name of the option."""
    token = _CHOICES.set({})
    try:
        yield _CHOICES.get()
    finally:
        _CHOICES.reset(token)


def record_choice(option: str, chosen: str) -> None:
    """Say, to whoever collects it, what an explainer uses for an option; the last one counts."""
    _CHOICES.get({})[option] = chosen


def make_leaf(x: Tensor, create_graph: bool) -> Tensor:
    """A tensor to differentiate by: `x` itself with `create_graph`, else a detached copy that requires gradients."""
    if not create_graph:
        return x.detach().requires_grad_(True)
    check(
        x.requires_grad,
        "x",
        "an input that requires gradients (create_graph=True)",
        "one that does not",
    )
    return x


def run_watched(mode: FunctionMode, label: str, model: Model, x: Tensor) -> Tensor:
    """The outputs for inputs `x` `(N, ...)` inside of a mode, after its check that it has seen all of the module.

    A decision is no part of the module: it is made of what the module answers, behind the check and without rules.
    """
    return model.decide(mode.run_module(label, model.undecided.forward, x))


def select_scores(model: Model, logits: Tensor, targets: Tensor | None) -> Tensor:
    """What is explained `(N,)`: the logits of the target classes `(N,)`, or of the predicted classes for `None`.

    Of another task, the scores of its answers `(N, k)`.
    """
    answers = model.task.answer(logits.detach()) if targets is None else targets
    return model.task.score(logits, answers)


def compute_input_gradient(
    model: Model,
    x: Tensor,
    targets: Tensor | None,
    create_graph: bool,
    forward: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradient of the target logit by `x` `(N, ...)`, and the logits `(N, K)`: one forward and one backward pass.

    `forward` runs in the place of `model.forward`.
    """

    def run() -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            leaf = make_leaf(x, create_graph)
            # an in-place first layer must not write into x
            logits = (forward or model.forward)(leaf.clone())
            scores = select_scores(model, logits, targets)
            # what runs in the place of the module may change from one call to the next
            check_graph = model.check_gradients if forward is None else check_has_gradients
            gradient = compute_gradient(scores, leaf, create_graph, check_graph=check_graph)
        if not create_graph:
            logits = logits.detach()
        return gradient, logits

    if create_graph or forward is not None:
        return run()
    gradient, logits = share_pass("gradient", model, (x, targets), run)
    return gradient, logits


def choose_chunk_rows(model: Model, x: Tensor, rows_per_input: int) -> int:
    """Rows to forward at once: the row budget, as a multiple of `ROW_ALIGNMENT` if it is large enough."""
    budget = model.row_budget(x, rows_per_input, "backward")  # which is halved when memory runs out
    if budget >= ROW_ALIGNMENT:
        return budget - budget % ROW_ALIGNMENT
    return budget


def compute_path_gradients(
    model: Model, x: Tensor, points: Tensor, targets: Tensor | None, create_graph: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of the target logit at `points` `(N, S, ...)`, and the logits at `x` `(N, ...)`.

    The rows of `x` and of all points form one flat batch. It is split only where it exceeds the model's row
    budget. `x` comes first, so that the predicted classes are known before a gradient needs them.
    """
    if not create_graph:
        run = partial(_run_path_gradients, model, x, points, targets, create_graph)
        gradient, logits = share_pass("path", model, (x, points, targets), run)
        return gradient, logits
    return _run_path_gradients(model, x, points, targets, create_graph)


def _run_path_gradients(
    model: Model, x: Tensor, points: Tensor, targets: Tensor | None, create_graph: bool
) -> tuple[Tensor, Tensor]:
    count, steps = points.shape[:2]
    owners = torch.arange(count, device=x.device)
    owners = torch.cat([owners, owners.repeat_interleave(steps)])
    size = choose_chunk_rows(model, x, steps + 1)
    gradients: list[Tensor] = []
    at_x: list[Tensor] = []
    with torch.enable_grad():
        flat = torch.cat([x, points.flatten(0, 1)])
        if not create_graph:
            flat = flat.detach()
        for start in range(0, len(flat), size):
            rows = flat[start : start + size]
            used = len(rows)
            padding = count_padding(used, size, model.device)
            rows = make_leaf(pad_rows(rows, padding), create_graph)
            whose = owners[start : start + used]
            with rows_of(pad_rows(whose, padding)):
                logits = model.forward(rows.clone())
                if start < count:
                    at_x.append(logits[: min(used, count - start)])
                classes = targets
                if classes is None:
                    classes = model.task.answer(torch.cat(at_x).detach())
                scores = select_scores(model, logits[:used], classes[whose])
                gradient = compute_gradient(
                    scores, rows, create_graph, check_graph=model.check_gradients
                )
                gradients.append(gradient[:used])
    at_all = gradients[0] if len(gradients) == 1 else torch.cat(gradients)
    logits = at_x[0] if len(at_x) == 1 else torch.cat(at_x)
    if not create_graph:
        logits = logits.detach()
    return at_all[count:].reshape(points.shape), logits


def check_seed(seed: int, name: str) -> None:
    """Raise `ArgumentError` unless it is a whole number that a `torch.Generator` accepts as a seed."""
    fine = type(as_number(seed)) is int and -(1 << 63) <= seed < 1 << 63
    check(fine, name, "a whole number of at most 63 bits", repr(seed))


Seed = Annotated[int, check_seed]
Baseline = float | Sequence[float]


def check_baseline(baseline: Baseline | None, name: str = "baseline") -> Baseline | None:
    """A number, a tuple of numbers or None; `ArgumentError` unless it is a finite number, a list of them, or None."""
    if baseline is None:
        return None
    values = [baseline] if isinstance(baseline, int | float) else baseline
    fine = isinstance(values, list | tuple) and len(values) > 0
    if fine:
        fine = all(isinstance(number, int | float) and abs(number) < math.inf for number in values)
    shape = getattr(baseline, "shape", None)
    hint = ": use its .tolist()" if shape is not None and len(shape) == 1 else ""
    if shape is None:
        got = repr(baseline)
    else:
        kind = type(baseline).__name__
        got = f"a {kind} of shape {tuple(shape)}{hint}"
    check(fine, name, "a finite number, or one for each channel", got)
    if isinstance(baseline, int | float):
        return baseline
    return tuple(values)


BaselineOption = Annotated[Baseline | None, check_baseline]


def make_baseline(baseline: Baseline, x: Tensor) -> Tensor:
    """The baseline as a tensor that broadcasts against `x` `(N, C, ...)`: one number, or one for each channel."""
    if isinstance(baseline, int | float):
        return x.new_full((), float(baseline))
    expected = f"one number, or {x.shape[1]} (one for each channel)"
    check(len(baseline) == x.shape[1], "baseline", expected, f"{len(baseline)} numbers")
    numbers = send(list(baseline), x.device, x.dtype)
    return numbers.reshape(-1, *[1] * (x.ndim - 2))


def choose_baseline(model: Model, x: Tensor, baseline: Baseline | None) -> Tensor:
    """The baseline as a tensor that broadcasts against `x` `(N, C, ...)`; `None` stands for the default.

    The default is 0 for images and series. For a table it is the median of each column of the model's reference, and
    the most frequent one of categories of a data frame (`Reference.baseline`); without a reference, the value within
    the bounds that is nearest to 0.

    >>> model = Model(nn.Linear(2, 2), bounds=(torch.tensor([18.0, 0.0]), torch.tensor([99.0, 1.0])), device="cpu")
    >>> choose_baseline(model, torch.tensor([[30.0, 0.5]]), None)
    tensor([18.,  0.])
    """
    if baseline is not None or x.ndim > 2:
        if baseline is None:
            baseline = 0.0
        return make_baseline(baseline, x)
    reference = model.reference_for(x)
    if reference is None:
        return x.new_zeros(()).clamp(*model.bounds).to(x.dtype)
    record_choice("baseline", reference.describe_baseline())
    return reference.baseline.to(x)


def check_explained(models: Iterable[Model], explainers: Iterable[Explainer]) -> None:
    """Raise `ArgumentError` for explainers that need a module, if all models are functions.

    Every job would raise the same error. For models of data frames each explainer has to fit; for functions of arrays
    one of them, and the jobs of the others fail alone.
    """
    functions = list(models)
    listed = list(explainers)
    if any(model.differentiable for model in functions):
        return
    refusals: list[ArgumentError] = []
    for explainer in listed:
        try:
            for model in functions:
                explainer.check_classifier(model)
        except ArgumentError as error:
            refusals.append(error)
    of_frames = any(find_frame_function(model) is not None for model in functions)
    if refusals and (of_frames or len(refusals) == len(listed)):
        raise refusals[0]


class Removing(Protocol):
    """An explainer or a metric, which may put something in the place of removed features."""

    @property
    def removal_options(self) -> tuple[str, ...]: ...


def check_channels(configured: Removing, x: Tensor) -> None:
    """Raise `ArgumentError` if an explainer or metric has a baseline for another number of channels than `x`.

    Every job would raise the same error.
    """
    for option in configured.removal_options:
        value = getattr(configured, option)
        if isinstance(value, list | tuple):
            make_baseline(value, x)


def resolve_baseline(model: Model, inputs: Tensor, baseline: Baseline | None) -> Tensor:
    """As `choose_baseline`, within the bounds.

    Raises:
        ArgumentError: it lies outside of the bounds, or has another number of channels.
    """
    value = choose_baseline(model, inputs, baseline)
    lower, upper = model.bounds
    hashable = tuple(baseline) if isinstance(baseline, Sequence) else baseline
    key = ("baseline", hashable, inputs.ndim)
    if key not in model.fitting:
        slack = 1e-5 * (upper - lower).clamp(max=1e30)
        is_within = (value >= lower - slack) & (value <= upper + slack)
        fits = bool(is_within.all())
        check(
            fits,
            "baseline",
            f"values within the bounds {describe_bounds(model.bounds)}",
            baseline or 0.0,
        )
        model.fitting.add(key)
    return value.clamp(lower, upper)
