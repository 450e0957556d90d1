"""`Guard`: sees what a job has left behind on a model and in the process, and undoes it.

An explainer of somebody else's may leave a hook, another mode, or other weights on the module, or another default type
in torch, and all later numbers would be others. A job itself may change weights, if it puts them back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from standfast.errors import warn_user
from standfast.model import Model

#: the attributes of a module that hold its hooks
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
#: what all of a process shares and results can depend on: how it is read, and how it is set
_SHARED: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch's default type": (torch.get_default_dtype, torch.set_default_dtype),
    "gradients switched on or off": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch's threads": (torch.get_num_threads, torch.set_num_threads),
    "precision of float32 products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
}


class Guard:
    """What a model, and what the process shares, is before a job.

    It keeps a copy of the weights on the model's device.

    Args:
        model: on its device.
        sample: an input `(1, ...)`. The answer to it shows what nothing else does, such as a private attribute.
    """

    def __init__(self, model: Model, sample: Tensor) -> None:
        self.model, self.sample = model, sample.to(model.device)
        #: each module with its attributes, and with copies of those that are dictionaries: hooks, parameters, parts
        self.parts: list[tuple[nn.Module, dict[str, Any], dict[str, dict[Any, Any]]]] = []
        for part in model.module.modules():
            attributes = dict(vars(part))
            inside = {name: dict(entry) for name, entry in attributes.items() if isinstance(entry, dict)}
            self.parts.append((part, attributes, inside))
        tensors = {id(t): t for t in (*model.module.parameters(), *model.module.buffers())}
        self.tensors = [(t, t.detach().clone(), t.requires_grad) for t in tensors.values()]
        self.versions = self._read_versions()
        self.shared = {name: read() for name, (read, _) in _SHARED.items()}
        self.answer = self._ask()

    def clean_up(self, explainer: str) -> bool:
        """Undo what an explainer has left behind, with a warning, and say whether the model is as before."""
        shared = self._restore_shared()
        if shared:
            warn_user(f"explainer {explainer!r} has changed {', '.join(shared)} of the process; this was undone")
        changes = self.find_changes()
        if not changes:
            return True
        undone = self.restore()
        then = "this was undone" if undone else "this could not be undone"
        warn_user(f"explainer {explainer!r} has changed the model ({', '.join(changes)}); {then}")
        return undone

    def _restore_shared(self) -> list[str]:
        """Put back what the process shares, and say what was not as before."""
        found = []
        for name, (read, restore) in _SHARED.items():
            if read() != self.shared[name]:
                restore(self.shared[name])
                found.append(name)
        return found

    def find_changes(self) -> list[str]:
        """What is not as it was: hooks, mode, weights, gradients; or only the answers."""
        found = []
        if any(_list_hooks(vars(part)) != _list_hooks(inside) for part, _, inside in self.parts):
            found.append("hooks")
        if any(part.training != attributes["training"] for part, attributes, _ in self.parts):
            found.append("mode")
        if any(t.requires_grad != needed for t, _, needed in self.tensors):
            found.append("requires_grad")
        if self._read_versions() != self.versions:  # also where a job has put them back
            if not all(torch.equal(t.detach().nan_to_num(), kept.nan_to_num()) for t, kept, _ in self.tensors):
                found.append("weights")
            self.versions = self._read_versions()
        if not found and not _same(self._ask(), self.answer):
            found.append("answers")
        return found

    def restore(self) -> bool:
        """Put everything back, and say whether the model then answers as before."""
        for part, attributes, inside in self.parts:
            with contextlib.suppress(AttributeError, TypeError):  # a compiled part
                vars(part).clear()
                vars(part).update(attributes)
                for name, entries in inside.items():
                    vars(part)[name].clear()  # the same dictionary, since handles of hooks refer to it
                    vars(part)[name].update(entries)
        with torch.no_grad():
            for tensor, kept, needed in self.tensors:
                tensor.requires_grad_(needed)
                tensor.copy_(kept)
        self.versions = self._read_versions()
        return _same(self._ask(), self.answer)

    def _read_versions(self) -> list[int]:
        return [tensor._version for tensor, _, _ in self.tensors]

    def _ask(self) -> Tensor | None:
        """The answer to the sample; None where the model fails, of which the jobs say why."""
        with contextlib.suppress(Exception), self.model.session(), torch.no_grad():
            return self.model.forward(self.sample.clone()).double().cpu()
        return None


def _list_hooks(attributes: Mapping[str, Any]) -> list[list[int]]:
    """The numbers of all hooks among the attributes of a module."""
    return [list(attributes.get(name, ())) for name in _HOOKS]


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    """Whether two answers are the same but for rounding."""
    if first is None or second is None:
        return first is second
    return first.shape == second.shape and torch.allclose(first, second, 1e-5, 1e-5, equal_nan=True)
