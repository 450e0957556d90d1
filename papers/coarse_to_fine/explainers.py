"""Explainers of the coarse-to-fine reproductions: references for several data sets, and positive random maps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, get_args

from torch import Tensor

from papers.base import load_evenly
from standfast.errors import check, check_integer
from standfast.explainers import (
    Background,
    DeepSHAP,
    Explainer,
    GradientSHAP,
    RandomExplainer,
)
from standfast.explainers.base import check_seed
from standfast.model import Model
from standfast.records import set_fields

ReferenceMethod = Literal["deep_shap", "gradient_shap"]


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
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        found = _load_references(self.sets, self.references)
        shape = tuple(x.shape[1:])
        check(shape in found, "inputs", f"series of shape {', '.join(map(str, found))}", shape)
        return self._make(found[shape]).attribute(model, x, targets)


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
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        maps, logits = RandomExplainer(self.seed).attribute(model, x, targets, create_graph=create_graph)
        return maps.abs(), logits
