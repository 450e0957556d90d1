"""Two explainers that do not look at the model: random maps, and the centre of the input.

Every metric compares explainers with them. A good explainer does better than both.
"""

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

    The numbers are a hash of the input's values and of `seed`. So equal inputs get equal maps, and the smallest change
    of an input gives an unrelated map. One forward pass for each input, for the logits.

    Args:
        seed: maps with different seeds are unrelated.

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
        """The random maps of `x` `(N, ...)`, of the same shape.

        Args:
            x: inputs.
            calls: numbers `(N,)`; maps of the same input are unrelated if their numbers differ. For metrics that
                explain the same input several times and need new noise each time (SenC).
        """
        keys = content_keys(x, self.seed)
        if calls is not None:
            keys = mix64(keys ^ mix64(calls))
        uniform = hashed_uniform(keys, x[0].numel()).double()
        # float32 rounds the largest numbers up to 1, whose normal quantile is infinite
        normal = torch.special.ndtri(uniform.clamp(max=1 - 2.0**-25))
        maps: Tensor = normal.to(x.dtype).reshape(x.shape)
        return maps


@dataclass(frozen=True)
class CentreExplainer(Explainer):
    """Attributions that decrease from the centre outwards, the same for all inputs; targets are ignored.

    Pictures tend to show their object in the middle. The top positions of this map form a centred square of an image
    (the "dummy square" that c-Eval compares with: Vu et al. 2021, Fig. 2), or the middle of a series. Flat features
    have no spatial order, so there the map is of no use: it puts the middle columns first. One forward pass for each
    input, for the logits.

    >>> from holdfast.model import Classifier
    >>> classifier = Classifier(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(9, 2)), bounds=(0.0, 1.0))
    >>> CentreExplainer()(classifier, torch.rand(1, 1, 3, 3))[0, 0].argmax().item()
    4
    """

    name: ClassVar[str] = "centre"
    differentiable: ClassVar[bool] = False
    gateable: ClassVar[bool] = True

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        spatial = x.shape[1:] if x.ndim == 2 else x.shape[2:]
        square = torch.zeros(spatial, dtype=x.dtype, device=x.device)
        round_ = torch.zeros(spatial, dtype=x.dtype, device=x.device)
        for axis, length in enumerate(spatial):
            shape = [-1 if a == axis else 1 for a in range(len(spatial))]
            offset = torch.arange(length, dtype=x.dtype, device=x.device) - (length - 1) / 2
            square = torch.maximum(square, (offset.abs() / length).reshape(shape))
            round_ = round_ + (offset / length).square().reshape(shape)
        # among positions with the same distance in the maximum norm, the nearest in the 2-norm comes first
        distance = square + 1e-4 * round_.sqrt()
        with torch.no_grad():
            return (-distance).expand(x.shape).clone(), classifier.forward(x.detach().clone())
