"""Backgrounds: do two of them, of the same size, name the same reasons?

An explainer averages over b rows of a reference, its background. With few rows, other rows name other reasons. For each
size b and each of P pairs of backgrounds, both explain all inputs, and

    hit = [ the first k features of both maps are the same, with the same signs ].

Backgrounds of a pair have no row in common where there are 2 b rows to draw from; where there are fewer, rows are drawn
with replacement. The seed of the explainer stays, so that nothing else differs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.explainers import Explainer
from standfast.metrics.probe import Call, Probe
from standfast.metrics.reasons.draws import Draws, change_options
from standfast.metrics.reasons.places import Speaking, mark_first, measure_sizes, sum_channels
from standfast.model import Model
from standfast.records import Background
from standfast.tensors import Array, seed_generators

#: pairs whose rows are encoded together
_BLOCK = 10


@dataclass(frozen=True)
class Agreements:
    """How often pairs of backgrounds of one size name the same reasons.

    Attributes:
        size: rows of a background.
        hits: of each pair, for how many inputs the reasons are the same, `(P,)`.
        inputs: how many inputs were explained.
        with_replacement: whether rows were drawn with replacement.
    """

    size: int
    hits: Array
    inputs: int
    with_replacement: bool


class Backgrounds:
    """Draws backgrounds of any size for one explainer, and compares the reasons that they name.

    Args:
        call: the model, in a session; the explainer; and the inputs.
        top: how many features are reasons, k.
        speaking: what features are ordered by.

    Attributes:
        usual: how many rows the explainer takes.
        known: all rows that backgrounds are drawn from, `(R, ...)`.
        is_used: whether maps depend on the background at all.
    """

    def __init__(self, call: Call, top: int, speaking: Speaking) -> None:
        self._call, self._top, self._speaking = call, top, speaking
        own_rows = find_background(call.explainer)
        reference = call.model.reference
        self.usual, self.known = 0, torch.empty(0, *call.inputs.shape[1:])
        if reference is not None:
            self.usual, self.known = len(reference.rows), reference.known
        if own_rows is not None:
            self.usual = len(own_rows)
            self.known = own_rows.inputs if reference is None else self.known
        probe = Probe(call)
        self._targets, self._usable = probe.targets, probe.usable()
        self.is_used = bool(len(self._usable)) and bool(
            Draws(call, probe, None).find_varied(["background"])
        )

    @property
    def explained(self) -> int:
        """How many inputs can be explained."""
        return len(self._usable)

    def compare(self, size: int, pairs: int, seed: int) -> Agreements:
        """Explain all inputs with pairs of backgrounds of a size."""
        hits: list[int] = []
        for start in range(0, pairs, _BLOCK):
            numbers = range(start, min(start + _BLOCK, pairs))
            drawn = [rows for number in numbers for rows in self._draw_pair(size, number, seed)]
            named = self._name(drawn)
            for first, second in zip(named[::2], named[1::2], strict=True):
                hits.append(int((first == second).all(1).sum()))
        return Agreements(size, np.array(hits), self.explained, self._repeats_rows(size))

    def _repeats_rows(self, size: int) -> bool:
        """Whether there are too few rows for two backgrounds of a size."""
        return 2 * size > len(self.known)

    def _draw_pair(self, size: int, number: int, seed: int) -> tuple[Tensor, Tensor]:
        """Two backgrounds `(size, ...)`."""
        generator = np.random.default_rng([seed % 2**63, size, number])
        if self._repeats_rows(size):
            chosen = generator.integers(0, len(self.known), size=2 * size)
        else:
            chosen = generator.permutation(len(self.known))[: 2 * size]
        return self.known[chosen[:size]], self.known[chosen[size:]]

    def _name(self, backgrounds: Sequence[Tensor]) -> list[Tensor]:
        """With each background, for each feature 1 or -1 for the first ones and 0 for the others, `(n, F)`."""
        inputs, targets = self._call.inputs[self._usable], self._targets[self._usable]
        variants = [
            use_background(self._call.explainer, self._call.model, rows) for rows in backgrounds
        ]
        named: list[Tensor] = []
        with self._call.explainer.preparing(self._call.model, inputs, variants):
            for explainer, model in variants:
                with seed_generators(0, inputs.device):
                    maps, _ = explainer.attribute_all(model, inputs, targets)
                flat_maps = sum_channels(maps.detach())
                sizes = measure_sizes(flat_maps, self._speaking)
                named.append(mark_first(sizes, self._top, inputs.ndim > 2) * flat_maps.sign())
        return named


def use_background(explainer: Explainer, model: Model, rows: Tensor) -> tuple[Explainer, Model]:
    """An explainer and a model with these rows `(B, ...)` in the place of their background.

    >>> from standfast.explainers import KernelSHAP
    >>> rows = torch.arange(6.0).reshape(3, 2)
    >>> model = Model(torch.nn.Linear(2, 2), bounds=(0.0, 9.0), device="cpu")
    >>> use_background(KernelSHAP(background=rows), model, rows[:2])[0].background.shape
    (2, 2)
    """

    def change(option: str, value: object) -> object:
        return Background(rows) if isinstance(value, Background) else value

    return change_options(explainer, change), model.with_background_rows(rows)


def find_background(explainer: Explainer) -> Background | None:
    """The rows that an explainer, or one within it, has of its own; None without any."""
    values: list[Any] = []
    if dataclasses.is_dataclass(explainer):
        values = [getattr(explainer, option.name) for option in dataclasses.fields(explainer)]
    for value in values:
        background = value
        if isinstance(value, Explainer):
            background = find_background(value)
        if isinstance(background, Background):
            return background
    return None
