"""Modules as users give them: what wraps them, what they are called, where they are, and the mode they are in."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from standfast.errors import ArgumentError, check
from standfast.function_calls import find_training_calls
from standfast.model.black_box import BlackBox


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
            if layer is self.module:
                name = f"{prefix}.(wrapped)".removeprefix(".")
            yield name, layer


# Other types of numbers


def run_in_type(dtype: torch.dtype, forward: Callable[..., Tensor] | None) -> Callable[..., Tensor]:
    """A function as `forward` of a `Model` that gives the module its inputs in this type."""
    return functools.partial(_run_in, dtype, forward or operator.call)


def run_in_bfloat16(
    module: nn.Module, forward: Callable[..., Tensor] | None
) -> Callable[..., Tensor] | None:
    """A function as `forward` of a `Model` that runs the module under autocast; as it is for one that does so."""
    if isinstance(module, ForwardWrapper) and getattr(module.function, "func", None) is _run_mixed:
        return forward
    return functools.partial(_run_mixed, forward or operator.call)


def _run_in(
    dtype: torch.dtype, function: Callable[..., Any], module: nn.Module, x: Tensor, **extras: Tensor
) -> Any:
    """What the function makes of the module, `x` and further inputs in this type."""
    converted = {}
    for name, extra in extras.items():
        # labels and indices keep their type
        if extra.is_floating_point():
            converted[name] = extra.to(dtype)
        else:
            converted[name] = extra
    return function(module, x.to(dtype), **converted)


def _run_mixed(function: Callable[..., Any], module: nn.Module, x: Tensor, **extras: Tensor) -> Any:
    """What the function makes of the module and `x` under autocast in bfloat16."""
    with torch.autocast(x.device.type, torch.bfloat16):
        return function(module, x, **extras)


# What a user gives


def check_module(module: object) -> nn.Module:
    """The module, without what spreads its batches over several cards; they are for several jobs.

    Raises:
        ArgumentError: it is no module.
    """
    if not isinstance(module, nn.Module):
        hint = "; Model.from_callable takes a function of arrays, such as predict_proba"
        raise ArgumentError("module", "a torch.nn.Module", describe_no_module(module) + hint)
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        inner: nn.Module = module.module
        return inner
    return module


def check_ready(module: nn.Module) -> None:
    """Raise `ArgumentError` for a program in training mode, and if a parameter has no values."""
    training = find_training_calls(module)
    expected = "a program without dropout and batch normalisation in training mode (export it in evaluation mode)"
    check(
        not training, "module", expected, f"one that calls {', '.join(training)} in training mode"
    )
    for name, parameter in module.named_parameters():
        lazy = is_lazy(parameter)
        if lazy:
            why = "that is lazy: run the module once"
        else:
            why = "on the device meta: load the weights first"
        has_values = not lazy and not parameter.is_meta
        check(has_values, "module", "a module whose parameters have values", f"{name!r} {why}")


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
        elif "_orig_mod" in module._modules and module._modules["_orig_mod"] is not None:
            # TorchScript has no `get`
            module = module._modules["_orig_mod"]
        else:
            return type(module).__name__


def resolve_device(device: str | torch.device, parameter: Tensor | None) -> torch.device:
    """The device that a name stands for, given a parameter of the module; `ArgumentError` if it is not there."""
    if device == "auto":
        resolved = _choose_device(parameter)
    else:
        resolved = _read_device(device)
    check(
        resolved.type not in ("mps", "meta"),
        "device",
        "a CPU or a CUDA device (scores are float64)",
        resolved,
    )
    try:
        torch.empty((), dtype=torch.float64, device=resolved)
    except (
        RuntimeError,
        AssertionError,
        ImportError,
        NotImplementedError,
    ) as error:
        # each kind has its own
        said = str(error).splitlines()[0]
        raise ArgumentError(
            "device", "one that this torch has here", f"{resolved}: {said}"
        ) from error
    return resolved


def _choose_device(parameter: Tensor | None) -> torch.device:
    """The accelerator on which a parameter is; else a card if there is one; else the CPU."""
    if parameter is not None and parameter.device.type != "cpu":
        return parameter.device
    name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _read_device(device: str | torch.device) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError, ValueError):
        raise ArgumentError(
            "device", "auto, or a device of torch such as cpu or cuda:0", repr(device)
        ) from None


# Modes and state


@contextlib.contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Inside the block the module is in evaluation mode, and its parameters need no gradients; then as before."""
    # not frozen TorchScript
    modes = {part: part.training for part in module.modules() if hasattr(part, "training")}
    wanting_gradients = [
        parameter for parameter in module.parameters() if _can_want_gradients(parameter)
    ]
    try:
        _evaluate(module)
        for parameter in wanting_gradients:
            parameter.requires_grad_(False)
        yield
    finally:
        _restore_modes(modes)
        for parameter in wanting_gradients:
            parameter.requires_grad_(True)


def _can_want_gradients(parameter: Tensor) -> bool:
    """Whether it needs gradients, and can be told that it does not: those of inference mode cannot."""
    if parameter.is_inference():
        return False
    return parameter.requires_grad


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
            has_its_own_train = "train" in vars(module) or type(module).train is not nn.Module.train
            if has_its_own_train and training != module.training:
                with contextlib.suppress(NotImplementedError):  # an exported program
                    module.train(training)
    finally:
        for module, training in modes.items():
            module.training = training


@contextlib.contextmanager
def keep_state(module: nn.Module) -> Iterator[None]:
    """Put back, at the end, the buffers and the plain attributes of all layers."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    attributes = [(part, dict(vars(part))) for part in module.modules()]
    try:
        yield
    finally:
        for part, before in attributes:
            _restore_attributes(part, before)
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def _restore_attributes(part: nn.Module, before: Mapping[str, Any]) -> None:
    """Put back the attributes of a layer; those whose names begin with an underscore belong to torch."""
    added = []
    for name in vars(part):
        if name not in before and not name.startswith("_"):
            added.append(name)
    for name in added:
        del vars(part)[name]
    vars(part).update({name: value for name, value in before.items() if not name.startswith("_")})
