"""What adapters of other packages' explainers share: seeds, row by row explanation, shapes, functions over arrays."""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from traceback import walk_stack
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from standfast.errors import ArgumentError, MissingExtraError, ModelError, UnknownNameError, check, check_integer
from standfast.explainers.base import Explainer
from standfast.explainers.cam.gradcam import resize
from standfast.explainers.completeness import predict_mean, warn_of_gap
from standfast.function_calls import FunctionMode, find_programs, strip_underscore
from standfast.model import Model
from standfast.tensors import content_keys, seed_generators

#: a model as packages without tensors need it: an array in, an array out
ArrayFunction = Callable[[Any], Any]
#: the ends of the labels of those that set hooks on ReLUs, and are the plain gradient without
_RELU_RULES = (".GuidedBackprop", ".Deconvolution", ".GuidedGradCam", ".Deconvnet", ".BetaSmooth")


class ForeignExplainer(Explainer):
    """An explainer of another package, which may draw from the global random generators.

    If it draws, each row is explained alone, with generators seeded by the row's content; rows of equal content and
    target are explained once. So an explanation depends on its input alone. The state of the global generators is
    restored afterwards.

    Attributes:
        one_at_a_time: explain each row alone; None: only if the explanation of a chunk drew random numbers.
        seed: of the random numbers.
        rows: forwarded at once for one input.
    """

    one_at_a_time: bool | None
    seed: int
    rows: int
    package: ClassVar[str]
    differentiable: ClassVar[bool] = False
    gap_cause: ClassVar[str] = "Hooks do not see functions such as torch.relu (deeplift does); integrals need steps"

    @property
    def uses_hooks(self) -> bool:
        """Whether it finds layers of the module and sets hooks on them, which exported programs do not run."""
        return False

    @property
    def label(self) -> str:
        """The package and the class of its `method`; subclasses without a `method` have another one."""
        return f"{self.package}.{get_class(getattr(self, 'method', None)).__name__}"

    @property
    def rows_per_input(self) -> int:
        return self.rows

    def find_references(self, model: Model, x: Tensor) -> Tensor | None:
        """The inputs `(B, ...)` from whose mean logit the attributions add up to the change; None if they need not."""
        return None

    def check_maps(self, model: Model, x: Tensor, maps: Tensor, logits: Tensor, classes: Tensor) -> None:
        def predict() -> Tensor | None:
            references = self.find_references(model, x)
            return None if references is None else predict_mean(model, logits, references)

        share = 0.5 * (self.label == "captum.IntegratedGradients")  # an integral is never exact
        warn_of_gap(self, model, maps, logits, predict, classes, share)

    @abstractmethod
    def explain(self, model: Model, rows: Tensor, targets: Tensor) -> Any:
        """Call the package on `rows` `(n, ...)`, which it may overwrite, and classes `(n,)`.

        Returns attributions shaped like the rows, as a tensor or an array.
        """

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        if self.uses_hooks:
            check_layers(self.label, model.module)
        with torch.no_grad(), _ReLULayers() if self.label.endswith(_RELU_RULES) else contextlib.nullcontext():
            logits = model.forward(x.detach().clone())
        classes = logits.argmax(1) if targets is None else targets
        with keep_gradients(model.module):
            if not self.one_at_a_time:
                maps, random = self._explain_rows(model, x, classes, self.seed)
                if not random or self.one_at_a_time is False:
                    return maps, logits
            known: dict[tuple[int, int], Tensor] = {}
            keys = content_keys(x, self.seed).tolist()
            for row, key in enumerate(zip(keys, classes.tolist(), strict=True)):
                if key not in known:
                    one = slice(row, row + 1)
                    known[key] = self._explain_rows(model, x[one], classes[one], key[0])[0]
        return torch.cat([known[key] for key in zip(keys, classes.tolist(), strict=True)]), logits

    def _explain_rows(self, model: Model, x: Tensor, classes: Tensor, seed: int) -> tuple[Tensor, bool]:
        """Attributions of `x`, with generators seeded by `seed`, and whether the package drew random numbers."""
        rows = x.detach().clone()
        with torch.enable_grad(), seed_generators(seed, x.device) as has_drawn:
            out = self.explain(model, rows, classes)
            random = has_drawn()
        return shape_like_inputs(out, x, self.label).detach(), random


class _ReLULayers(FunctionMode):
    """Refuses ReLUs that are called as functions, and not by layers `nn.ReLU`, on which packages set hooks."""

    def run(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        callers = (frame.f_locals.get("self") for frame, _ in walk_stack(None))
        if strip_underscore(name) == "relu" and not any(isinstance(caller, nn.ReLU) for caller in callers):
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


def check_common(rows: int, one_at_a_time: bool | None, seed: int) -> None:
    """Raise `ArgumentError` if an option that all adapters share is out of range."""
    check_integer(rows, "rows_per_input")
    check(one_at_a_time in (None, True, False), "one_at_a_time", "True, False or None", repr(one_at_a_time))
    check(type(seed) is int, "seed", "a whole number", repr(seed))


def shape_like_inputs(out: Any, x: Tensor, label: str, layer: bool = False, one_channel: bool = False) -> Tensor:
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
    if not isinstance(out, Tensor | np.ndarray):
        raise ModelError(f"{label}: expected attributions as a tensor or an array, got {type(out).__name__}")
    if isinstance(out, np.ndarray):
        real, what = out.dtype.kind in "fiub", str(out.dtype)
    else:
        real = not (out.is_complex() or out.layout != torch.strided or out.is_meta or out.is_quantized)
        what = (
            "a sparse one" if out.layout != torch.strided else "one without values" if out.is_meta else str(out.dtype)
        )
    if not real:  # a complex map would lose its imaginary part
        raise ModelError(f"{label}: expected attributions as real numbers in a dense tensor or array, got {what}")
    if isinstance(out, np.ndarray):
        out = np.ascontiguousarray(out, out.dtype.newbyteorder("="))  # torch knows no other order of bytes
    values = torch.as_tensor(out, dtype=x.dtype).to(x.device)
    if layer and values.ndim == x.ndim >= 3 and len(values) == len(x) and values.shape[1] in (1, x.shape[1]):
        values = resize(values, x, "linear")
    if one_channel and x.ndim >= 3 and values.shape == (len(x), 1, *x.shape[2:]):
        values = values.expand_as(x).contiguous()
    if values.shape != x.shape:
        expected = f"maps of the same shape as the inputs that the function was given, {tuple(x.shape)}"
        raise ModelError(f"{label}: expected {expected}, got {tuple(values.shape)}")
    return values


@contextlib.contextmanager
def silence_warnings(package: str) -> Iterator[None]:
    """Hide a package's own warnings, such as that it sets hooks, and those that torch gives because of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=rf"{package}(\.|$)")
        warnings.filterwarnings("ignore", category=UserWarning, message=".*non-full backward hook.*")
        yield


@contextlib.contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Hide the progress bars of a package that has no option for it."""
    with contextlib.redirect_stderr(io.StringIO()):
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
            (out,) = model.map_rows(lambda z: (model.forward(z),), values.reshape(-1, *shape))
        out = out.double().softmax(1) if probabilities else out
        return (out if target is None else out[:, target]).cpu().numpy()

    return predict


def find_class(package: str, module: str, name: str, extra: str, fits: Callable[[Any], bool] = callable) -> Any:
    """The class called `name` in `module` of an optional package.

    Args:
        package: its name, for messages.
        module: where to look.
        name: of the class.
        extra: of standfast that installs the package.
        fits: which classes of the module to list when there is none of that name.

    Raises:
        MissingExtraError: the package is not installed, or cannot be imported.
        UnknownNameError: it has no such name.
    """
    try:
        home = importlib.import_module(module)
    except (ImportError, RuntimeError) as error:  # torchvision built for another torch raises a RuntimeError
        raise MissingExtraError(f"{package} ({type(error).__name__}: {error})", extra) from error
    if not hasattr(home, name):
        kinds = {n: kind for n, kind in vars(home).items() if isinstance(kind, type) and not n.startswith("_")}
        public = [n for n, kind in kinds.items() if fits(kind)]
        raise UnknownNameError(f"{package} class", name, public)
    return getattr(home, name)


def get_class(method: Any) -> Any:
    """`method` itself if it is a class, else its class."""
    return method if isinstance(method, type) else type(method)


def check_own_module(label: str, module: object, model: Model) -> None:
    """Raise `ArgumentError` unless `module`, which the user's object explains, is the model's own module."""
    if model.preprocess is not None or module is not model.module:
        wrapped = module is getattr(model.module, "module", None)
        got = "the module in it: use model.module" if wrapped else "another one"
        got = got if model.preprocess is None else "a model with preprocessing"
        raise ArgumentError("method", f"a {label} built on the model's own module, or the class", got)


def check_layers(label: str, module: nn.Module) -> None:
    """Raise `ArgumentError` if a part of the module is a program, whose layers cannot be found or have no hooks."""
    programs = ["one exported by torch.export"] if find_programs(module) else []
    scripted = any(isinstance(part, torch.jit.ScriptModule) for part in module.modules())
    programs += ["one compiled to TorchScript"] if scripted else []
    expected = f"a module with layers for {label}, which sets hooks on them (explain the module before its export)"
    check(not programs, "module", expected, " and ".join(programs))


def check_option_names(options: Mapping[str, Any], known: Mapping[str, Any], title: str) -> None:
    """Raise `ArgumentError` for an option that is not among the parameters `known` of what is called `title`."""
    names = sorted({*known} - {"self", "args", "kwargs"})
    for option in options:
        check(option in names, option, f"an option of {title}: {', '.join(names)}", "an unknown one")


def split_options(
    options: Mapping[str, Any], in_constructor: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the constructor, by its parameters, and the others, which belong to the call."""
    constructor = {key: value for key, value in options.items() if key in in_constructor}
    return constructor, {key: value for key, value in options.items() if key not in in_constructor}
