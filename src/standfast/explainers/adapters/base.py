"""The adapter of other packages' explainers: options, seeds, row by row explanation, shapes, functions over arrays."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import Parameter, signature
from traceback import walk_stack
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import (
    ArgumentError,
    MissingExtraError,
    ModelError,
    UnknownNameError,
    check,
    check_integer,
)
from standfast.explainers.base import Explainer, Explanation, Seed
from standfast.explainers.cam.gradcam import resize
from standfast.explainers.completeness import predict_mean, warn_of_gap
from standfast.function_calls import FunctionMode, find_programs, strip_underscore
from standfast.model import Model
from standfast.tensors import content_keys, seed_generators

#: a model as packages without tensors need it: an array in, an array out
ArrayFunction = Callable[[Any], Any]
#: the ends of the labels of those that set hooks on ReLUs, and are the plain gradient without
_RELU_RULES = (".GuidedBackprop", ".Deconvolution", ".GuidedGradCam")


@dataclass(frozen=True)
class ForeignExplainer(Explainer):
    """An explainer of another package, which may draw from the global random generators.

    If it draws, each row is explained alone, with generators seeded by the row's content; rows of equal content and
    target are explained once. So an explanation depends on its input alone. The state of the global generators is
    restored afterwards.

    A package is a subclass. It declares where its classes are and which arguments the adapter passes to them, and
    calls the package in `explain`. `make` makes an explainer from what a user gave.

    Args:
        method: a class of the package, which is built on the model for each call, or an object of one.
        constructor_options: of the class.
        call_options: of the call.
        rows: forwarded at once for one input.
        one_at_a_time: explain each row alone; None: only if the explanation of a chunk drew random numbers.
        seed: of the random numbers.
    """

    method: Any
    constructor_options: Mapping[str, Any] = field(default_factory=dict)
    call_options: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 1
    one_at_a_time: bool | None = None
    seed: Seed = 0
    package: ClassVar[str]
    #: the module that has the package's classes
    home: ClassVar[str]
    #: the method that explains
    entry: ClassVar[str] = "__call__"
    #: what constructors take: for each argument the names that it may have
    built_on: ClassVar[Sequence[Sequence[str]]] = (("model",),)
    #: further arguments of constructors and calls that the adapter passes
    passed: ClassVar[Sequence[str]] = ()
    gap_cause = (
        "Hooks do not see functions such as torch.relu (deeplift does); integrals need steps"
    )

    def __post_init__(self) -> None:
        check_integer(self.rows, "rows_per_input")

    @classmethod
    def find_method(cls, name: Any) -> Any:
        """The class called `name`; anything but a name as it is, if it is a class or an object of the package."""
        if isinstance(name, str):
            method = find_class(cls.package, cls.home, name, cls.is_suggested)
        else:
            method = name
        fine = callable(getattr(method, cls.entry, None))
        if isinstance(method, type):
            constructor = signature(method).parameters
            for alternatives in cls.built_on:
                fine = fine and any(argument in constructor for argument in alternatives)
        elif cls.entry == "__call__":  # which many objects have
            fine = fine and (hasattr(method, "model") or hasattr(method, "explainer"))
        check(fine, "method", f"a class or an object of {cls.home}", repr(method))
        return method

    @staticmethod
    def is_suggested(kind: Any) -> bool:
        """Whether a class of `home` may be meant by an unknown name."""
        return True

    @classmethod
    def list_parameters(cls, method: Any) -> dict[str, Parameter]:
        """The parameters of the call, without the first one, which is the input."""
        return list_options(getattr(method, cls.entry))

    @classmethod
    def make(
        cls,
        method: Any,
        options: Mapping[str, Any],
        rows: int | None = None,
        one_at_a_time: bool | None = None,
        seed: int = 0,
        **own: Any,
    ) -> Self:
        """An explainer from a class of the package or an object, and from options of its constructor and its call.

        Args:
            method: as `find_method` returns it.
            options: of both, which the signatures tell apart.
            rows: forwarded at once for one input; None for `count_rows`.
            one_at_a_time: as above.
            seed: as above.
            own: further fields of the subclass.

        Raises:
            ArgumentError: an option that neither of them has, a missing one without a default, or a value out of range.
        """
        constructor = dict(signature(method).parameters) if isinstance(method, type) else {}
        parameters_of_method = {**constructor, **cls.list_parameters(method)}
        for name in {*itertools.chain(*cls.built_on), *cls.passed}:
            parameters_of_method.pop(name, None)
        kinds = {parameter.kind for parameter in parameters_of_method.values()}
        any_option = Parameter.VAR_KEYWORD in kinds
        # constructor and call may both have `**options`
        for name, parameter in list(parameters_of_method.items()):
            if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
                del parameters_of_method[name]
        title = get_class(method).__name__
        for option in options:
            expected = f"an option of {title}: {', '.join(sorted(parameters_of_method))}"
            check(option in parameters_of_method or any_option, option, expected, "an unknown one")
        for name, parameter in parameters_of_method.items():
            check(
                parameter.default is not parameter.empty or name in options,
                name,
                f"a value for {title}",
                "none",
            )
        return cls(
            method=method,
            constructor_options={
                name: value for name, value in options.items() if name in constructor
            },
            call_options={
                name: value for name, value in options.items() if name not in constructor
            },
            rows=cls.count_rows(method, parameters_of_method, options) if rows is None else rows,
            one_at_a_time=one_at_a_time,
            seed=seed,
            **own,
        )

    @classmethod
    def count_rows(
        cls, method: Any, known: Mapping[str, Parameter], options: Mapping[str, Any]
    ) -> int:
        """Rows forwarded at once for one input, from the options that are known and those that are set."""
        return 1

    @property
    def uses_hooks(self) -> bool:
        """Whether it finds layers of the module and sets hooks on them, which exported programs do not run."""
        return False

    @property
    def label(self) -> str:
        return f"{self.package}.{get_class(self.method).__name__}"

    @property
    def rows_per_input(self) -> int:
        return self.rows

    def find_references(self, model: Model, x: Tensor) -> Tensor | None:
        """The inputs `(B, ...)` from whose mean logit the attributions add up to the change; None if they need not."""
        return None

    def check_maps(
        self, model: Model, x: Tensor, maps: Tensor, logits: Tensor, classes: Tensor
    ) -> None:
        def predict() -> Tensor | None:
            references = self.find_references(model, x)
            if references is None:
                return None
            return predict_mean(model, logits, references)

        share = 0.5 * (self.label == "captum.IntegratedGradients")  # an integral is never exact
        warn_of_gap(self, model, maps, logits, predict, classes, share)

    @abstractmethod
    def explain(self, model: Model, rows: Tensor, targets: Tensor) -> Any:
        """Call the package on `rows` `(n, ...)`, which it may overwrite, and classes `(n,)`.

        Returns attributions shaped like the rows, as a tensor or an array.
        """

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        if self.uses_hooks:
            check_layers(self.label, model.module)
        layers: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
        if self.label.endswith(_RELU_RULES):
            layers = _ReLULayers()
        with torch.no_grad(), layers:
            logits = model.forward(x.detach().clone())
        classes = model.task.answer(logits) if targets is None else targets
        with keep_gradients(model.module):
            # a package knows classes alone, so each input gets a model of its score
            if not model.task.classes:
                output = getattr(self, "output", "logit")
                check(
                    output == "logit",
                    "output",
                    f"'logit' for the task {model.task.name}",
                    repr(output),
                )
                zero = torch.zeros(1, dtype=torch.int64, device=x.device)
                views = [model.of_score(classes[row : row + 1]) for row in range(len(x))]
                seeds = content_keys(x, self.seed).tolist()
                parts = zip(views, torch.split(x, 1), seeds, strict=True)
                return torch.cat(
                    [self._explain_rows(view, one, zero, seed)[0] for view, one, seed in parts]
                ), logits
            if not self.one_at_a_time:
                maps, random = self._explain_rows(model, x, classes, self.seed)
                if not random or self.one_at_a_time is False:
                    return maps, logits
            explained: dict[tuple[int, int], Tensor] = {}
            keys = content_keys(x, self.seed).tolist()
            for row, key in enumerate(zip(keys, classes.tolist(), strict=True)):
                if key not in explained:
                    one = slice(row, row + 1)
                    maps_of_one = self._explain_rows(model, x[one], classes[one], key[0])
                    explained[key] = maps_of_one[0]
        return torch.cat(
            [explained[key] for key in zip(keys, classes.tolist(), strict=True)]
        ), logits

    def _explain_rows(
        self, model: Model, x: Tensor, classes: Tensor, seed: int
    ) -> tuple[Tensor, bool]:
        """Attributions of `x`, with generators seeded by `seed`, and whether the package drew random numbers."""
        rows = x.detach().clone()
        with torch.enable_grad(), seed_generators(seed, x.device) as has_drawn:
            out = self.explain(model, rows, classes)
            random = has_drawn()
        noted = _NOTED.get()
        if noted is not None:
            noted.append(random)
        return shape_like_inputs(out, x, self.label).detach(), random


#: whether each call of a package has drawn random numbers, where somebody wants to know
_NOTED: ContextVar[list[bool] | None] = ContextVar("noted draws", default=None)


@contextlib.contextmanager
def note_draws() -> Iterator[list[bool]]:
    """Note inside whether calls of other packages draw random numbers, which the seeds of their adapters hide."""
    noted: list[bool] = []
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


class _ReLULayers(FunctionMode):
    """Refuses ReLUs that are called as functions, and not by layers `nn.ReLU`, on which packages set hooks."""

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        callers = (frame.f_locals.get("self") for frame, _ in walk_stack(None))
        if strip_underscore(name) == "relu" and not any(
            isinstance(caller, nn.ReLU) for caller in callers
        ):
            expected = "layers nn.ReLU, since hooks do not see functions (standfast's guided_backprop does)"
            raise ModelError(f"module: expected {expected}, got torch.{name}")
        return func(*args, **kwargs)


@contextlib.contextmanager
def keep_gradients(module: nn.Module) -> Iterator[None]:
    """Restore the gradients of the parameters afterwards: packages set them to None."""
    before = [(parameter, parameter.grad) for parameter in module.parameters()]
    try:
        yield
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient


def turn_maps(maps: Tensor, signs: Tensor) -> Tensor:
    """Maps `(N, ...)` of what a task points at (`tasks.decision.point_at`), turned where it speaks against the answer.

    >>> turn_maps(torch.tensor([[1.0, -2.0], [1.0, -2.0]]), torch.tensor([1, -1]))
    tensor([[ 1., -2.],
            [-1.,  2.]])
    """
    other_axes = [1] * (maps.ndim - 1)
    return maps * signs.to(maps).reshape(-1, *other_axes)


def shape_like_inputs(
    out: Any, x: Tensor, label: str, layer: bool = False, one_channel: bool = False
) -> Tensor:
    """Attributions as a tensor of `x`'s shape, dtype and device.

    Args:
        out: a tensor or an array, alone or in a tuple.
        x: the inputs `(N, C, ...)`.
        label: of the explainer, for messages.
        layer: `out` may have the size of a layer and a single channel; it is resized.
        one_channel: `out` may have a single channel, which is repeated.

    Raises:
        ModelError: it is no tensor or array, or of another shape; the message names both shapes.
    """
    if isinstance(out, tuple) and len(out) == 1:
        out = out[0]
    values = _read_real(out, label, x.dtype).to(x.device)
    if (
        layer
        and values.ndim == x.ndim >= 3
        and len(values) == len(x)
        and values.shape[1] in (1, x.shape[1])
    ):
        values = resize(values, x, "linear")
    shape_of_one_channel = (len(x), 1, *x.shape[2:])
    if one_channel and x.ndim >= 3 and values.shape == shape_of_one_channel:
        values = values.expand_as(x).contiguous()
    if values.shape != x.shape:
        expected = (
            f"maps of the same shape as the inputs that the function was given, {tuple(x.shape)}"
        )
        raise ModelError(f"{label}: expected {expected}, got {tuple(values.shape)}")
    return values


def _read_real(out: Any, label: str, dtype: torch.dtype) -> Tensor:
    """Attributions as a dense tensor of real numbers of this type; a complex map would lose its imaginary part.

    Raises:
        ModelError: they are something else.
    """
    if isinstance(out, np.ndarray):
        is_real = out.dtype.kind in "fiub"
        got = str(out.dtype)
        # torch knows no other order of bytes
        out = np.ascontiguousarray(out, out.dtype.newbyteorder("="))
    elif isinstance(out, Tensor):
        is_real = not (
            out.is_complex() or out.layout != torch.strided or out.is_meta or out.is_quantized
        )
        got = f"{out.dtype}, {out.layout}, on {out.device}"
    else:
        raise ModelError(
            f"{label}: expected attributions as a tensor or an array, got {type(out).__name__}"
        )
    if not is_real:
        raise ModelError(
            f"{label}: expected attributions as real numbers in a dense tensor or array, got {got}"
        )
    return torch.as_tensor(out, dtype=dtype)


@contextlib.contextmanager
def silence_warnings(package: str) -> Iterator[None]:
    """Hide a package's own warnings, such as that it sets hooks, and those that torch gives because of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=rf"{package}(\.|$)")
        warnings.filterwarnings(
            "ignore", category=UserWarning, message=".*non-full backward hook.*"
        )
        yield


def make_array_function(
    model: Model, shape: tuple[int, ...], probabilities: bool, target: int | None = None
) -> ArrayFunction:
    """The model as a function from arrays `(m, ...)` to arrays, in chunks that fit into memory.

    Args:
        model: in a session.
        shape: of one input; rows are reshaped to it.
        probabilities: return probabilities of the classes instead of logits.
        target: the class whose values `(m,)` to return; None for all classes, `(m, classes)`.
    """

    def predict(rows: Any) -> Any:
        values = torch.as_tensor(np.asarray(rows), dtype=model.dtype, device=model.device)
        with torch.no_grad():
            rows = values.reshape(-1, *shape)
            (out,) = model.map_rows(lambda z: (model.forward(z),), rows)
        out = out.double().softmax(1) if probabilities else out
        if target is not None:
            out = out[:, target]
        return out.cpu().numpy()

    return predict


def find_class(package: str, home: str, name: str, fits: Callable[[Any], bool] = callable) -> Any:
    """The class called `name` in the module `home` of an optional package; an error lists those that fit.

    Raises:
        MissingExtraError: the package is not installed, or cannot be imported.
        UnknownNameError: it has no such name.
    """
    try:
        with warnings.catch_warnings():
            # what a package does with its own dependencies is none of the user's business
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", PendingDeprecationWarning)
            module = importlib.import_module(home)
    except (
        ImportError,
        RuntimeError,
    ) as error:
        # torchvision built for another torch raises a RuntimeError
        raise MissingExtraError(
            f"{package} ({type(error).__name__}: {error})", "explainers"
        ) from error
    if not hasattr(module, name):
        classes = {
            n: kind
            for n, kind in vars(module).items()
            if isinstance(kind, type) and not n.startswith("_")
        }
        raise UnknownNameError(
            f"{package} class", name, [n for n, kind in classes.items() if fits(kind)]
        )
    return getattr(module, name)


def list_options(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a function or method after its first argument, and after `self`.

    >>> list(list_options(lambda inputs, steps=3: inputs))
    ['steps']
    """
    parameters = signature(function).parameters
    names = [name for name in parameters if name != "self"]
    return {name: parameters[name] for name in names[1:]}


def get_class(method: Any) -> Any:
    """`method` itself if it is a class, else its class."""
    return method if isinstance(method, type) else type(method)


def check_own_module(label: str, module: object, model: Model) -> None:
    """Raise `ArgumentError` unless `module`, which the user's object explains, is the model's own module."""
    if model.preprocess is not None or module is not model.module:
        wrapped = module is getattr(model.module, "module", None)
        got = "the module in it: use model.module" if wrapped else "another one"
        got = got if model.preprocess is None else "a model with preprocessing"
        raise ArgumentError(
            "method", f"a {label} built on the model's own module, or the class", got
        )


def check_layers(label: str, module: nn.Module) -> None:
    """Raise `ArgumentError` if a part of the module is a program, whose layers cannot be found or have no hooks."""
    programs = ["one exported by torch.export"] if find_programs(module) else []
    scripted = any(isinstance(part, torch.jit.ScriptModule) for part in module.modules())
    if scripted:
        programs.append("one compiled to TorchScript")
    expected = f"a module with layers for {label}, which sets hooks on them (explain the module before its export)"
    check(not programs, "module", expected, " and ".join(programs))
