"""Explainers of the coarse-to-fine reproductions: Shapley values of single entries, backgrounds for several data sets.

In holdfast's KernelSHAP and Shapley value sampling, all channels of a position belong to the same segment. Here a
player is a single entry of a series, or a window of one channel, as in Captum, which the paper's framework uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

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
from holdfast.reproduce.base import load_evenly

ShapleyMethod = Literal["kernel_shap", "shapley_sampling"]
ReferenceMethod = Literal["deep_shap", "gradient_shap"]


class _UnflattenInput(nn.Module):
    """A module that receives series `(N, C, T)` in the shape `(N, 1, C T)`."""

    def __init__(self, module: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.module, self.shape = module, shape

    def forward(self, flat: Tensor) -> Tensor:
        """Logits `(N, classes)`."""
        logits: Tensor = self.module(flat.reshape(len(flat), *self.shape))
        return logits


@dataclass(frozen=True)
class EntryShapley(Explainer):
    """Shapley values of the entries of a series, or of windows of single channels; absent entries are set to 0.

    Inputs and attributions are `(N, C, T)`; every entry has the value of its window. The results are deterministic.

    Args:
        method: `"kernel_shap"` (`KernelSHAP`) or `"shapley_sampling"` (`ShapleySampling`).
        samples: the number of coalitions, at least 2, or the number of orders.
        players: the largest number of windows, approximately. They have the same length, except the last one of a
            channel. None for single entries.
        seed: seed of the random samples.

    >>> module = nn.Sequential(nn.Flatten(), nn.Linear(6, 2, bias=False))
    >>> _ = module[1].weight.data.copy_(torch.tensor([[1.0, 2.0, 0.0, 0.0, 0.0, -3.0], [0.0] * 6]))
    >>> classifier = Classifier(module, bounds=(0.0, 1.0), device="cpu")
    >>> explainer = EntryShapley("shapley_sampling", samples=2, players=3)
    >>> explainer(classifier, torch.ones(1, 2, 3), 0).round(decimals=4) + 0.0
    tensor([[[ 3.,  3.,  0.],
             [ 0.,  0., -3.]]])
    """

    method: ShapleyMethod = "shapley_sampling"
    samples: int = 25
    players: int | None = None
    seed: int = 0
    name: ClassVar[str] = "entry_shapley"
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        known = get_args(ShapleyMethod)
        check(self.method in known, "method", f"one of {', '.join(known)}", repr(self.method))
        least = 2 if self.method == "kernel_shap" else 1
        check_integer(self.samples, "samples", least)
        fine = self.players is None or (type(self.players) is int and self.players >= 3)
        check(fine, "players", "None or a whole number of at least 3", repr(self.players))
        _ = _make_shapley(self, torch.arange(3))

    @property
    def rows_per_input(self) -> int:
        """Rows forwarded for one input; for 100 players if their number depends on the input."""
        players = self.players or 100
        return self.samples + 2 if self.method == "kernel_shap" else self.samples * (players - 1) + 2

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        check(x.ndim == 3, "inputs", "series (N, channels, steps)", tuple(x.shape))
        rows = classifier.row_budget(x, self.rows_per_input)
        module = _UnflattenInput(join_preprocessing(classifier), tuple(x.shape[1:]))
        flat = Classifier(module, (-math.inf, math.inf), device=classifier.device, batch_size=rows)
        own = _make_for_shape(self, int(x.shape[1]), int(x.shape[2]))
        maps, logits = own.attribute(flat, x.detach().reshape(len(x), 1, -1), targets)
        return maps.reshape(x.shape), logits


@lru_cache(maxsize=32)
def _make_for_shape(explainer: EntryShapley, channels: int, steps: int) -> Explainer:
    """The explainer for flattened series of this shape, whose segments are the windows of single channels."""
    length = 1 if explainer.players is None else -(-channels * steps // explainer.players)
    windows = -(-steps // length)
    labels = torch.arange(channels)[:, None] * windows + torch.arange(steps) // length
    return _make_shapley(explainer, labels.flatten())


def _make_shapley(explainer: EntryShapley, labels: Tensor) -> Explainer:
    if explainer.method == "kernel_shap":
        return KernelSHAP(samples=explainer.samples, segments=labels, seed=explainer.seed)
    return ShapleySampling(permutations=explainer.samples, segments=labels, seed=explainer.seed)


@dataclass(frozen=True)
class TrainingReferences(Explainer):
    """DeepSHAP or GradientSHAP whose references are training series of the same data set as the input.

    The shape of an input determines its data set, so one explainer can be used for all sets of a study.

    Args:
        method: `"deep_shap"` or `"gradient_shap"`.
        sets: names of data sets, such as `"ucr:CBF:train"`; their inputs must have different shapes.
        references: number of references, evenly spread over the set; all series if it has fewer.
        samples: option of `"gradient_shap"`.
        seed: option of `"gradient_shap"`.
    """

    method: ReferenceMethod = "deep_shap"
    sets: tuple[str, ...] = ()
    references: int = 20
    samples: int = 20
    seed: int = 0
    name: ClassVar[str] = "training_references"
    differentiable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        known = get_args(ReferenceMethod)
        check(self.method in known, "method", f"one of {', '.join(known)}", repr(self.method))
        set_fields(self, sets=tuple(self.sets))
        check(len(self.sets) > 0, "sets", "names of data sets", "none")
        check_integer(self.references, "references")
        _ = self._make(0.0)

    @property
    def rows_per_input(self) -> int:
        return self._make(0.0).rows_per_input

    def _make(self, background: float | Background) -> Explainer:
        if self.method == "deep_shap":
            return DeepSHAP(background)
        return GradientSHAP(background, samples=self.samples, seed=self.seed)

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        found = _load_references(self.sets, self.references)
        shape = tuple(x.shape[1:])
        check(shape in found, "inputs", f"series of shape {', '.join(map(str, found))}", shape)
        return self._make(found[shape]).attribute(classifier, x, targets)


@lru_cache(maxsize=4)
def _load_references(sets: tuple[str, ...], count: int) -> dict[tuple[int, ...], Background]:
    """The references of each data set, by the shape of its inputs."""
    found: dict[tuple[int, ...], Background] = {}
    for name in sets:
        inputs = load_evenly(name, count).inputs
        shape = tuple(inputs.shape[1:])
        check(shape not in found, "sets", "data sets of different shapes", f"two of shape {shape}")
        found[shape] = Background(inputs)
    return found


@dataclass(frozen=True)
class PositiveNoise(Explainer):
    """Absolute values of the `random` explainer's maps: random maps in which every position has positive relevance.

    A curve that corrupts only positive positions ends earlier for a map with fewer of them, and the area below it is
    smaller for every order of positions. So maps in which almost all positions are positive are compared with these.
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
