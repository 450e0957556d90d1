"""`Guard`: sees what a job has left behind on a model and in the process, and undoes it.

An explainer of another package may change what later numbers depend on: the module's hooks, mode or weights, or torch
itself, such as its default type, the hooks of all modules or one of its functions. A job may change these if it puts
them back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from standfast.errors import warn_user
from standfast.model import Model
from standfast.study.own_code import read_closure

#: the attributes of a module that hold its hooks
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: what all of a process shares and results can depend on: how it is read, and how it is set
_SHARED: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch's default type": (torch.get_default_dtype, torch.set_default_dtype),
    "gradients switched on or off": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's threads": (torch.get_num_threads, torch.set_num_threads),
    "precision of float32 products": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "deterministic algorithms": (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
}


#: where torch's own code is
_TORCH = Path(torch.__file__).parent
#: what torch keeps of hooks of all modules
_GLOBAL_HOOKS = [name for name in vars(torch.nn.modules.module) if name.startswith("_global_")]


class TorchFunctions:
    """The functions of torch and the methods of its layers, of tensors and of a model's own classes, as they are.

    Args:
        module: the model's, whose classes count, too.
    """

    def __init__(self, module: nn.Module) -> None:
        layers = [
            entry
            for entry in vars(nn).values()
            if isinstance(entry, type) and issubclass(entry, nn.Module)
        ]
        # classes of torch's layers, as one function in the place of theirs changes all models
        classes: set[type] = {*layers, torch.Tensor, torch.autograd.Function}
        for part in module.modules():
            classes.update(type(part).__mro__[:-1])  # all but `object`
        namespaces = [
            torch,
            nn.functional,
            torch.autograd,
            *sorted(classes, key=lambda kind: kind.__qualname__),
        ]
        #: for each module or class what it had by name
        self.before = [(namespace, dict(vars(namespace))) for namespace in namespaces]
        self.hooks = {name: _copy(getattr(nn.modules.module, name)) for name in _GLOBAL_HOOKS}

    def restore(self) -> list[str]:
        """Put everything back, and say what was not as before."""
        changed: dict[str, None] = {}
        for namespace, entries in self.before:
            now = vars(namespace)
            for name, entry in entries.items():
                new = now.get(name)
                if (
                    new is not entry
                    and _concerns_code(namespace, new, entry)
                    and not _wraps_by_torch(new, entry)
                ):
                    setattr(namespace, name, entry)
                    changed[_name_entry(namespace, name)] = None
            # a new method in front of an inherited one hides it
            for name in _list_hiding(namespace, entries):
                delattr(namespace, name)
                changed[_name_entry(namespace, name)] = None
        if self._restore_hooks():
            changed["the hooks of all modules"] = None
        return list(changed)

    def _restore_hooks(self) -> bool:
        """Put back the hooks of all modules, and say whether any was not as before."""
        found_others = False
        for name, before in self.hooks.items():
            now = getattr(nn.modules.module, name)
            if not isinstance(before, dict):
                found_others |= now != before
                setattr(nn.modules.module, name, before)
            elif list(now) != list(before):
                found_others = True
                now.clear()  # the same dictionary, since handles of hooks refer to it
                now.update(before)
        return found_others


class Guard:
    """What a model, and what the process shares, is before a job.

    It keeps a copy of the weights on the model's device.

    Args:
        model: on its device.
        sample: an input `(1, ...)`. The answer to it shows what nothing else does, such as a private attribute.
    """

    def __init__(self, model: Model, sample: Tensor) -> None:
        self.model = model
        self.sample = sample.to(model.device)
        #: each module with its attributes, and with copies of those that are dictionaries: hooks, parameters, parts
        self.parts: list[tuple[nn.Module, dict[str, Any], dict[str, dict[Any, Any]]]] = []
        for part in model.module.modules():
            attributes = dict(vars(part))
            inside = {
                name: dict(entry) for name, entry in attributes.items() if isinstance(entry, dict)
            }
            self.parts.append((part, attributes, inside))
        #: the mode of each module that has one: programs of TorchScript keep it outside of `vars`, or have none
        self.modes = [
            (part, part.training) for part in model.module.modules() if hasattr(part, "training")
        ]
        # by their place in memory: layers may share a tensor
        tensors: dict[int, Tensor] = {}
        for tensor in (*model.module.parameters(), *model.module.buffers()):
            tensors[id(tensor)] = tensor
        self.tensors = []
        for tensor in tensors.values():
            self.tensors.append((tensor, tensor.detach().clone(), tensor.requires_grad))
        self.shared = {name: read() for name, (read, _) in _SHARED.items()}
        self.functions = TorchFunctions(model.module)
        self.answer = self._ask()

    def clean_up(self, explainer: str) -> bool:
        """Undo what an explainer has left behind, with a warning, and say whether the model is as before."""
        # first what the process shares, because answers depend on it
        shared = self._restore_shared()
        if shared:
            warn_user(
                f"explainer {explainer!r} has changed {', '.join(shared)} of the process; this was undone"
            )
        changes = self.find_changes()
        if not changes:
            return True
        undone = self.restore()
        then = "this was undone" if undone else "this could not be undone"
        what = ", ".join(changes)
        warn_user(f"explainer {explainer!r} has changed the model ({what}); {then}")
        return undone

    def _restore_shared(self) -> list[str]:
        """Put back what the process shares, and say what was not as before."""
        changed = self.functions.restore()
        for name, (read, restore) in _SHARED.items():
            if read() != self.shared[name]:
                restore(self.shared[name])
                changed.append(name)
        return changed

    def find_changes(self) -> list[str]:
        """What is not as it was: hooks, mode, weights, gradients; or only the answers."""
        changes = []
        hooks_changed = [
            _list_hooks(vars(part)) != _list_hooks(inside) for part, _, inside in self.parts
        ]
        if any(hooks_changed):
            changes.append("hooks")
        if any(part.training != mode for part, mode in self.modes):
            changes.append("mode")
        if any(t.requires_grad != needed for t, _, needed in self.tensors):
            changes.append("requires_grad")
        # by value: what is written through `.data`, or through NumPy, counts no writes
        if not all(_hold_the_same(tensor.detach(), kept) for tensor, kept, _ in self.tensors):
            changes.append("weights")
        # by the answer only if nothing else was found, since it takes a pass
        if not changes and not _same(self._ask(), self.answer):
            changes.append("answers")
        return changes

    def restore(self) -> bool:
        """Put everything back, and say whether the model then answers as before."""
        for part, attributes, inside in self.parts:
            with contextlib.suppress(AttributeError, TypeError):  # a compiled part
                vars(part).clear()
                vars(part).update(attributes)
                for name, entries in inside.items():
                    # the same dictionary, since handles of hooks refer to it
                    vars(part)[name].clear()
                    vars(part)[name].update(entries)
        for part, mode in self.modes:
            if part.training != mode:
                part.training = mode
        with torch.no_grad():
            for tensor, kept, needed in self.tensors:
                tensor.requires_grad_(needed)
                tensor.copy_(kept)
        return _same(self._ask(), self.answer)

    def _ask(self) -> list[Tensor] | None:
        """The answer to the sample, and its derivatives; None where the model fails, of which the jobs say why.

        On a card derivatives differ from call to call, so there it is the answer alone.
        """
        has_slope = self.model.differentiable and self.sample.device.type == "cpu"
        # a model that fails does so in its jobs, which say why
        with contextlib.suppress(Exception), self.model.session():
            if has_slope:
                # a function without derivatives is no fault here
                with contextlib.suppress(Exception):
                    return self._differentiate()
            with torch.no_grad():
                answer = self.model.forward(self.sample.clone())
            return [answer.double().cpu()]
        return None

    def _differentiate(self) -> list[Tensor]:
        """The answer and its derivatives, by one pass."""
        with torch.enable_grad():
            sample = self.sample.clone().requires_grad_(True)
            answer = self.model.forward(sample)
            (slope,) = torch.autograd.grad(answer.sum(), sample)
        return [answer.detach().double(), slope.double()]


def _wraps_by_torch(new: object, old: object) -> bool:
    """Whether torch itself has wrapped a function of its own, as when its compiler is imported, or first compiles."""
    if not isinstance(new, FunctionType) or not Path(new.__code__.co_filename).is_relative_to(
        _TORCH
    ):
        return False
    # what torch wraps keeps the old function in a closure or under `__wrapped__`
    kept = [getattr(new, "__wrapped__", None), *read_closure(new)]
    return any(inner is old for inner in kept)


def _is_code(entry: object) -> bool:
    is_class = isinstance(entry, type)  # torch exchanges some itself, with its default type
    return not is_class and (callable(entry) or isinstance(entry, staticmethod | classmethod))


def _concerns_code(namespace: object, new: object, old: object) -> bool:
    """Whether code was replaced, or stands now in a class where something else was."""
    return _is_code(old) or (isinstance(namespace, type) and _is_code(new))


def _copy(entry: Any) -> Any:
    if isinstance(entry, dict):
        return dict(entry)
    return entry


def _list_hiding(namespace: Any, entries: Mapping[str, Any]) -> list[str]:
    """What a class has got since then that stands before a method of a class below it."""
    if not isinstance(namespace, type):
        return []
    added = [
        name
        for name in sorted(vars(namespace).keys() - entries.keys())
        if _is_code(vars(namespace)[name])
    ]
    names_below: set[str] = set()
    for base in namespace.__mro__[1:]:
        names_below.update(vars(base))
    return [name for name in added if name in names_below]


def _name_entry(namespace: Any, name: str) -> str:
    """As a user would write it."""
    if not isinstance(namespace, type):
        return f"{namespace.__name__}.{name}"
    module = namespace.__module__.partition(".modules")[0]
    return f"{module}.{namespace.__qualname__}.{name}"


def _hold_the_same(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same values; those that are no numbers count as equal."""
    if torch.equal(first, second):
        return True
    return torch.equal(first.nan_to_num(), second.nan_to_num())


def _list_hooks(attributes: Mapping[str, Any]) -> list[list[int]]:
    """The numbers of all hooks among the attributes of a module."""
    return [list(attributes.get(name, ())) for name in _HOOKS]


def _same(first: list[Tensor] | None, second: list[Tensor] | None) -> bool:
    """Whether two answers, with their derivatives, are the same but for rounding."""
    if first is None or second is None:
        return first is second
    if len(first) != len(second):
        return False
    return all(map(_are_close, first, second))


def _are_close(first: Tensor, second: Tensor) -> bool:
    if first.shape != second.shape:
        return False
    return torch.allclose(first, second, 1e-5, 1e-5, equal_nan=True)
