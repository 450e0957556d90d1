"""Attributions that know nothing: a baseline for every metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.explainers.base import Explainer, check_seed
from holdfast.model import Classifier
from holdfast.tensors import content_keys, hashed_uniform, mix64


@dataclass(frozen=True)
class RandomExplainer(Explainer):
    """Standard normal attributions, independent between inputs; targets are ignored.

    The numbers are a hash of the input's values and `seed`: equal inputs get equal maps, the smallest change
    of an input gives an unrelated one. One forward pass for each input, for the logits.

    Args:
        seed: another seed, other maps.

    >>> from holdfast.model import Classifier
    >>> classifier = Classifier(torch.nn.Linear(3, 2), bounds=(0.0, 1.0), device="cpu")
    >>> x = torch.rand(4, 3)
    >>> bool((RandomExplainer()(classifier, x) == RandomExplainer()(classifier, x.flip(0)).flip(0)).all())
    True
    """

    seed: int = 0
    name: ClassVar[str] = "random"
    differentiable: ClassVar[bool] = False
    gateable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        with torch.no_grad():
            return self.noise(x), classifier.forward(x.detach().clone())

    def noise(self, x: Tensor, calls: Tensor | None = None) -> Tensor:
        """The maps of `x` `(N, ...)`; unrelated ones at calls of different numbers `(N,)`, also of equal inputs.

        For whoever must look at the same input more than once and means fresh noise each time (SenC does).
        """
        keys = content_keys(x, self.seed)
        if calls is not None:
            keys = mix64(keys ^ mix64(calls))
        uniform = hashed_uniform(keys, x[0].numel()).double()
        # float32 rounds the largest numbers up to 1, whose normal quantile is infinite
        normal = torch.special.ndtri(uniform.clamp(max=1 - 2.0**-25))
        maps: Tensor = normal.to(x.dtype).reshape(x.shape)
        return maps
