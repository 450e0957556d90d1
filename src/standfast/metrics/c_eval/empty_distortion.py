"""`c(empty)`, the distortion with no feature fixed: computed once for an input and a model, for all explainers."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from standfast.algorithms.distortion import Attack
from standfast.model import Model
from standfast.tensors import send

_KEPT = 1 << 26  # bytes of points that are remembered for one model

Key = tuple[object, ...]
_Entry = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
_remembered: WeakKeyDictionary[Model, OrderedDict[Key, _Entry]] = WeakKeyDictionary()


def find_empty_distortion(
    model: Model, inputs: Tensor, targets: Tensor, norm: float | str, attack: Attack, seed: int
) -> _Entry:
    """The least distortions of `inputs` `(N, ...)` with all features free; remembered by content.

    A distortion does not depend on the rest of the batch, so no result depends on what was computed before. The key
    has a digest of the weights, buffers and bounds, so further training is noticed. Changes of other attributes of the
    module, or of the preprocessing, are not: they need a new `Model`.

    Returns:
        Distortions, whether they were found, the second smallest ones of the attack's separate searches, and
        evaluations, each `(N,)`; the points `(N, ...)`.
    """
    common = (norm, attack, seed, model.task, _digest(model))
    keys = [
        (
            *common,
            repr(target),
            hashlib.sha256(x.contiguous().view(torch.uint8).numpy().tobytes()).digest(),
        )
        for x, target in zip(inputs.detach().cpu(), targets.tolist(), strict=True)
    ]
    remembered = _remembered.setdefault(model, OrderedDict())
    missing = [row for row, key in enumerate(keys) if key not in remembered]
    fresh: dict[Key, _Entry] = {}
    if missing:
        rows = send(missing, inputs.device)
        generator = torch.Generator().manual_seed(seed)
        searched = attack.minimise_checked(
            model, inputs[rows], targets[rows], None, norm, generator
        )
        columns = (
            searched.distortion,
            searched.found,
            searched.second,
            searched.model_evaluations,
            searched.inputs,
        )
        fresh = {
            keys[row]: entry for row, entry in zip(missing, zip(*columns, strict=True), strict=True)
        }
    # read before old entries make room, since they may be among these
    entries = [fresh[key] if key in fresh else remembered[key] for key in keys]
    remembered.update(fresh)
    bytes_of_input = inputs[0].numel() * inputs.element_size()
    most = max(1, _KEPT // bytes_of_input)
    while len(remembered) > most:
        remembered.popitem(last=False)
    distortion, flips, second, evaluations, points = (
        torch.stack(column) for column in zip(*entries, strict=True)
    )
    return distortion, flips, second, evaluations, points


def _digest(model: Model) -> bytes:
    digest = hashlib.sha256()
    tensors = (*model.module.parameters(), *model.module.buffers(), *model.bounds)
    for tensor in tensors:
        # a tensor without axes, such as a counter of batches, cannot be viewed as bytes; so it is made a vector first
        content = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        digest.update(content.numpy().data)
    return digest.digest()
