"""Explainers of the coarse-to-fine reproductions: references for several data sets, and positive random maps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor

from papers.base import load_evenly
from standfast.errors import check, check_integer
from standfast.explainers import Background, DeepSHAP, Explainer, GradientSHAP, RandomExplainer
from standfast.model import Model
from standfast.records import set_fields

_METHODS = {"deep_shap": DeepSHAP, "gradient_shap": GradientSHAP}


@dataclass(frozen=True)
class TrainingReferences(Explainer):
    """DeepSHAP or GradientSHAP whose references are training series of the same data set as the input.

    The shape of an input determines its data set, so one explainer can be used for all sets of a study.

    Args:
        method: `"deep_shap"` or `"gradient_shap"`.
        sets: names of data sets, such as `"ucr:CBF:train"`; their inputs must have different shapes.
        references: number of references, evenly spread over the set; all series if it has fewer.
    """

    method: str = "deep_shap"
    sets: tuple[str, ...] = ()
    references: int = 20
    name = "training_references"
    differentiable = False

    def __post_init__(self) -> None:
        check(self.method in _METHODS, "method", f"one of {', '.join(_METHODS)}", repr(self.method))
        set_fields(self, sets=tuple(self.sets))
        check(len(self.sets) > 0, "sets", "names of data sets", "none")
        check_integer(self.references, "references")

    @property
    def rows_per_input(self) -> int:
        return _METHODS[self.method](0.0).rows_per_input

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        found = _load_references(self.sets, self.references)
        shape = tuple(x.shape[1:])
        check(shape in found, "inputs", f"series of shape {', '.join(map(str, found))}", shape)
        return _METHODS[self.method](found[shape]).attribute(model, x, targets)


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

    name = "positive_noise"
    differentiable = False

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        maps, logits = RandomExplainer().attribute(model, x, targets, create_graph=create_graph)
        return maps.abs(), logits
