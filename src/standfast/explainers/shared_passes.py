"""Passes of a network that several explainers of a study need: the later ones get what the first one has computed.

A worker offers a `PassMemory` while it evaluates a metric (`offer_memory`), and keeps it as long as its jobs differ in
the explainer only. All explainers meet the same perturbed inputs, as far as these do not depend on the maps. A probe
opens it for its queries (`recall_passes`), where the network is as it was built, without gates. Values are remembered
by the bytes of the inputs, so they have the same bits as without it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import torch
from torch import Tensor

from standfast.model import Model
from standfast.tensors import is_on_host

#: what is computed for a chunk of inputs: gradients and logits, or logits alone
Found = tuple[Tensor, ...]
#: the bytes of results that are remembered at most; further ones are computed again
_MOST_BYTES = 1 << 28


class PassMemory:
    """What networks have computed for chunks of inputs."""

    def __init__(self) -> None:
        self.found: dict[bytes, tuple[Model, Found]] = {}
        self.size = 0
        self.open = False

    def recall(
        self,
        kind: str,
        model: Model,
        tensors: tuple[Tensor | None, ...],
        compute: Callable[[], Found],
    ) -> Found:
        """What `compute` has returned for these tensors and the same weights, or what it returns now."""
        key = _hash(kind, model, tensors)
        stored = self.found.get(key)
        if stored is not None and stored[0] is model:
            return tuple(tensor.clone() for tensor in stored[1])
        computed = tuple(tensor.detach() for tensor in compute())
        size = sum(tensor.numel() * tensor.element_size() for tensor in computed)
        if stored is None and self.size + size <= _MOST_BYTES:
            self.found[key] = model, tuple(tensor.clone() for tensor in computed)
            self.size += size
        return computed


def _hash(kind: str, model: Model, tensors: tuple[Tensor | None, ...]) -> bytes:
    """A hash of the tensors' bytes, and of which weights the model has at the moment."""
    weights = [(tensor.data_ptr(), tensor._version) for tensor in model.module.parameters()]
    weights += [(tensor.data_ptr(), tensor._version) for tensor in model.module.buffers()]
    digest = hashlib.blake2b(repr((kind, weights)).encode(), digest_size=16)
    for tensor in tensors:
        if tensor is not None:
            digest.update(repr((tuple(tensor.shape), tensor.dtype)).encode())
            values = tensor.detach().contiguous()
            digest.update(values.view(torch.uint8).numpy().data)
    return digest.digest()


_OFFERED: ContextVar[PassMemory | None] = ContextVar("passes that a worker remembers", default=None)


@contextlib.contextmanager
def offer_memory(memory: PassMemory | None) -> Iterator[None]:
    """Inside, explainers share passes by this memory; None for none."""
    token = _OFFERED.set(memory)
    try:
        yield
    finally:
        _OFFERED.reset(token)


@contextlib.contextmanager
def recall_passes() -> Iterator[None]:
    """Inside, the memory that is offered is used."""
    memory = _OFFERED.get()
    if memory is None:
        yield
        return
    memory.open = True
    try:
        yield
    finally:
        memory.open = False


def share_pass(
    kind: str, model: Model, tensors: tuple[Tensor | None, ...], compute: Callable[[], Found]
) -> Found:
    """What `compute` returns for these tensors, `compute` itself or another explainer having been here before."""
    memory = _OFFERED.get()
    x = tensors[0]
    if memory is None or not memory.open or x is None or not is_on_host(x.device):
        return compute()
    return memory.recall(kind, model, tensors, compute)
