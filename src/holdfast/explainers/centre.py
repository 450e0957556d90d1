"""The middle of the input: a baseline that knows where pictures tend to show something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.explainers.base import Explainer
from holdfast.model import Classifier


@dataclass(frozen=True)
class CentreExplainer(Explainer):
    """Attributions that fall from the centre outwards, the same for all inputs; targets are ignored.

    The top places of a map form the centred square of an image (the "dummy square" that c-Eval compares with: Vu et al.
    2021, Fig. 2), the middle of a series. Of flat features, which have no middle, it is the middle columns; say what
    you will of that. One forward pass for each input, for the logits.

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
        distance = torch.zeros(spatial, dtype=x.dtype, device=x.device)
        for axis, length in enumerate(spatial):
            middle = (length - 1) / 2
            along = (torch.arange(length, dtype=x.dtype, device=x.device) - middle).abs() / length
            distance = torch.maximum(distance, along.reshape([-1 if a == axis else 1 for a in range(len(spatial))]))
        # a ring of the square goes on from the places next to its centre: their other coordinates are smaller
        distance = distance + 1e-4 * self._round(spatial, x)
        with torch.no_grad():
            return (-distance).expand(x.shape).clone(), classifier.forward(x.detach().clone())

    @staticmethod
    def _round(spatial: torch.Size, x: Tensor) -> Tensor:
        """Distances from the centre, as shares of the sides."""
        total = torch.zeros(spatial, dtype=x.dtype, device=x.device)
        for axis, length in enumerate(spatial):
            along = (torch.arange(length, dtype=x.dtype, device=x.device) - (length - 1) / 2) / length
            total = total + along.square().reshape([-1 if a == axis else 1 for a in range(len(spatial))])
        return total.sqrt()
