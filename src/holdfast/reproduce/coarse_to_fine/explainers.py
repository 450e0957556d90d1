"""Explainers of the coarse-to-fine reproductions: Shapley values of single entries, backgrounds of several data sets.

KernelSHAP and Shapley value sampling of holdfast cut an input into segments that never part its channels. Here an entry
of a series, or a window of one channel, is a player, as in Captum, which the paper's framework calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from holdfast import data
from holdfast.errors import check, check_integer
from holdfast.explainers import (
    Background,
    DeepSHAP,
    Explainer,
    GradientSHAP,
    KernelSHAP,
    RandomExplainer,
    ShapleySampling,
)
from holdfast.explainers.base import check_seed, join_preprocessing
from holdfast.model import Classifier
from holdfast.records import set_fields

Sampled = Literal["kernel_shap", "shapley_sampling"]
Referenced = Literal["deep_shap", "gradient_shap"]


class _Unflattened(nn.Module):
    """A module that is given series `(N, C, T)` as `(N, 1, C T)`."""

    def __init__(self, module: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.module, self.shape = module, shape

    def forward(self, flat: Tensor) -> Tensor:
        """Logits `(N, classes)`."""
        logits: Tensor = self.module(flat.reshape(len(flat), *self.shape))
        return logits


@dataclass(frozen=True)
class EntryShapley(Explainer):
    """Shapley values of the entries of a series, or of windows of a single channel each; the others are set to 0.

    Inputs and attributions `(N, C, T)`: every entry has its window's value. Deterministic, see `KernelSHAP` and
    `ShapleySampling`, of which it is.

    Args:
        method: `"kernel_shap"` or `"shapley_sampling"`.
        samples: coalitions of the one, at least 2; orders of the other.
        players: at most about so many windows, all of the same length but for the last of a channel; None for entries.
        seed: of the samples.

    >>> module = nn.Sequential(nn.Flatten(), nn.Linear(6, 2, bias=False))
    >>> _ = module[1].weight.data.copy_(torch.tensor([[1.0, 2.0, 0.0, 0.0, 0.0, -3.0], [0.0] * 6]))
    >>> classifier = Classifier(module, bounds=(0.0, 1.0), device="cpu")
    >>> explainer = EntryShapley("shapley_sampling", samples=2, players=3)
    >>> explainer(classifier, torch.ones(1, 2, 3), 0).round(decimals=4) + 0.0
    tensor([[[ 3.,  3.,  0.],
             [ 0.,  0., -3.]]])
    """

    method: Sampled = "shapley_sampling"
    samples: int = 25
    players: int | None = None
    seed: int = 0
    name: ClassVar[str] = "entry_shapley"
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self.method in get_args(Sampled), "method", f"one of {', '.join(get_args(Sampled))}", repr(self.method))
        least = 2 if self.method == "kernel_shap" else 1
        check_integer(self.samples, "samples", least)
        fine = self.players is None or (type(self.players) is int and self.players >= 3)
        check(fine, "players", "None or a whole number of at least 3", repr(self.players))
        _ = _shapley(self, torch.arange(3))

    @property
    def rows_per_input(self) -> int:
        """As if there were a hundred players where that is known in the call alone."""
        players = self.players or 100
        return self.samples + 2 if self.method == "kernel_shap" else self.samples * (players - 1) + 2

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        check(x.ndim == 3, "inputs", "series (N, channels, steps)", tuple(x.shape))
        rows = classifier.row_budget(x, self.rows_per_input)
        module = _Unflattened(join_preprocessing(classifier), tuple(x.shape[1:]))
        flat = Classifier(module, (-math.inf, math.inf), device=classifier.device, batch_size=rows)
        own = _of_shape(self, int(x.shape[1]), int(x.shape[2]))
        maps, logits = own.attribute(flat, x.detach().reshape(len(x), 1, -1), targets)
        return maps.reshape(x.shape), logits


@lru_cache(maxsize=32)
def _of_shape(explainer: EntryShapley, channels: int, steps: int) -> Explainer:
    length = 1 if explainer.players is None else -(-channels * steps // explainer.players)
    windows = -(-steps // length)
    labels = torch.arange(channels)[:, None] * windows + torch.arange(steps) // length
    return _shapley(explainer, labels.flatten())


def _shapley(explainer: EntryShapley, labels: Tensor) -> Explainer:
    if explainer.method == "kernel_shap":
        return KernelSHAP(samples=explainer.samples, segments=labels, seed=explainer.seed)
    return ShapleySampling(permutations=explainer.samples, segments=labels, seed=explainer.seed)


@dataclass(frozen=True)
class TrainingReferences(Explainer):
    """DeepSHAP or GradientSHAP with references from the training series of the data set that an input is of.

    Which set that is, the shape of an input tells, so that one explainer serves the several sets of a study.

    Args:
        method: `"deep_shap"` or `"gradient_shap"`.
        sets: names of data sets that can be loaded, such as `"ucr:CBF:train"`, no two of the same shape.
        references: how many, evenly spread over the set; all where there are fewer.
        samples: of `"gradient_shap"`.
        seed: of `"gradient_shap"`.
    """

    method: Referenced = "deep_shap"
    sets: tuple[str, ...] = ()
    references: int = 20
    samples: int = 20
    seed: int = 0
    name: ClassVar[str] = "training_references"
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        known = get_args(Referenced)
        check(self.method in known, "method", f"one of {', '.join(known)}", repr(self.method))
        set_fields(self, sets=tuple(self.sets))
        check(len(self.sets) > 0, "sets", "names of data sets", "none")
        check_integer(self.references, "references")
        _ = self._with(0.0)

    @property
    def rows_per_input(self) -> int:
        return self._with(0.0).rows_per_input

    def _with(self, background: float | Background) -> Explainer:
        if self.method == "deep_shap":
            return DeepSHAP(background)
        return GradientSHAP(background, samples=self.samples, seed=self.seed)

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        found = _references(self.sets, self.references)
        shape = tuple(x.shape[1:])
        check(shape in found, "inputs", f"series of shape {', '.join(map(str, found))}", shape)
        return self._with(found[shape]).attribute(classifier, x, targets)


@lru_cache(maxsize=4)
def _references(sets: tuple[str, ...], count: int) -> dict[tuple[int, ...], Background]:
    found: dict[tuple[int, ...], Background] = {}
    for name in sets:
        inputs = data.load(name).inputs
        shape = tuple(inputs.shape[1:])
        check(shape not in found, "sets", "data sets of different shapes", f"two of shape {shape}")
        found[shape] = Background(inputs[evenly(len(inputs), count)])
    return found


def evenly(total: int, count: int) -> list[int]:
    """`count` places evenly spread over `total`, as sets of the archives may be sorted; all where there are fewer.

    >>> evenly(10, 4), evenly(2, 5)
    ([0, 2, 5, 7], [0, 1])
    """
    count = min(count, total)
    return [row * total // count for row in range(count)]


@dataclass(frozen=True)
class PositiveNoise(Explainer):
    """The sizes of the `random` explainer's numbers: random maps in which every position has positive relevance.

    A curve that corrupts positive positions alone ends sooner for a map with fewer of them, and the area under it is
    smaller, whatever the order. Maps that call nearly all positive are to be compared with these.
    """

    seed: int = 0
    name: ClassVar[str] = "positive_noise"
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        maps, logits = RandomExplainer(self.seed).attribute(classifier, x, targets, create_graph=create_graph)
        return maps.abs(), logits
