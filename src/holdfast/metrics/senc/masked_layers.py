"""Looks at samples through a layer under masks: do prediction and explanation survive? And what was found."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.algorithms.masks.random_masks import Consistency
from holdfast.gating import gated, masked_weights
from holdfast.metrics.probe import Probe
from holdfast.metrics.senc.masking import Survival

_MAP_ELEMENTS = 1 << 22  # numbers in the inputs and in their maps that are held at once: 16 MB
_REPEATING = 24  # up to so many groups, masks are looked up for those that occur more than once


class MaskedLooks:
    """The weights of `Survival` under masks of a layer. For use inside `classifier.session()`."""

    def __init__(self, probe: Probe, inputs: Tensor) -> None:
        self.probe, self.inputs = probe, inputs
        self._survival = Survival(probe)

    def gated(self, layer: nn.Module, number: int, rows: Tensor, masks: Tensor, first: int) -> Tensor:
        """Weights `(2, R, K)` of the samples `rows` `(R,)` under their own masks `(R, K, m)`, numbered from `first`.

        The masks are rows of one batch; `number` is the layer's.
        """
        sample, place, back = self._distinct(masks)
        classifier, explainer = self.probe.classifier, self.probe.explainer
        chunk = classifier.inputs_per_chunk(self.inputs, explainer.rows_per_input, "backward", len(sample))
        size = max(_MAP_ELEMENTS // self.inputs[0].numel() // chunk, 1) * chunk

        def look(x: Tensor, classes: Tensor, mask: Tensor, call: Tensor) -> tuple[Tensor, Tensor]:
            with gated(layer, mask):
                return self._survival.explain(x, classes, call)

        parts = []
        for which, mask in zip(torch.split(sample, size), torch.split(place, size), strict=True):
            seeds = rows[which]
            maps, logits = classifier.map_rows(
                look,
                self.inputs[seeds],
                self.probe.targets[seeds],
                masks[which, mask],
                _call(number, first + mask),
                rows_per_input=explainer.rows_per_input,
                kind="backward",
            )
            parts.append(self._survival.weigh(seeds, maps, logits))
        return torch.cat(parts, 1)[:, back]

    def swapped(self, layer: nn.Module, number: int, rows: Tensor, masks: Tensor, first: int) -> Tensor:
        """Weights `(2, R, K)` of the samples `rows` under common masks `(K, m)`, by masking the weights in truth.

        One mask after the other, for all samples at once; the layer is afterwards as it was.
        """
        _, places, back = self._distinct(masks[None])
        inputs, targets = self.inputs[rows], self.probe.targets[rows]
        parts = []
        with masked_weights(layer) as use:
            for place in places.tolist():
                use(masks[place])
                maps, logits = self.probe.classifier.map_rows(
                    self._survival.explain,
                    inputs,
                    targets,
                    _call(number, torch.full_like(rows, first + place)),
                    rows_per_input=self.probe.explainer.rows_per_input,
                    kind="backward",
                )
                parts.append(self._survival.weigh(rows, maps, logits))
        return torch.stack(parts, 2)[:, :, back[0]]

    def _distinct(self, masks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Which of the masks `(R, K, m)` to look at, rows and places `(M,)`, and for all `(R, K)` which of these."""
        samples, count, groups = masks.shape
        whole = torch.arange(samples * count, device=masks.device)
        if groups > _REPEATING or self._survival.noise is not None:
            return whole // count, whole % count, whole.reshape(samples, count)
        bits = 1 << torch.arange(groups, device=masks.device)
        codes = (masks * bits).sum(2) + (torch.arange(samples, device=masks.device) << groups)[:, None]
        found, back = torch.unique(codes, return_inverse=True)
        chosen = torch.full_like(found, len(whole)).scatter_reduce_(0, back.reshape(-1), whole, "amin")
        return chosen // count, chosen % count, back


def _call(layer: int, masks: Tensor) -> Tensor:
    """A number for every mask of every layer, above 0."""
    return ((layer + 1) << 32) + masks + 1


@dataclass
class LayerTable:
    """What was found for each sample and layer, while it is filled; NaN (0 of counts) for what was skipped."""

    values: dict[str, Tensor]
    used: Tensor
    interval: Tensor
    band: Tensor
    flat: Tensor
    prediction: Tensor
    explanation: Tensor

    @classmethod
    def of(cls, samples: int, groups: list[int], device: torch.device) -> LayerTable:
        nan = torch.full((samples, len(groups), max(groups)), torch.nan, dtype=torch.float64, device=device)
        pair = torch.full((samples, len(groups), 2), torch.nan, dtype=torch.float64, device=device)
        names = ("rho", "p_value", "rho_paper", "top1", "top3")
        values = {name: nan[:, :, 0].clone() for name in names}
        used = torch.zeros((samples, len(groups)), dtype=torch.int64, device=device)
        return cls(values, used, pair, pair.clone(), used.bool(), nan, nan.clone())

    def fill(self, place: int, rows: Tensor, seen: Consistency, published: Tensor, still: Tensor) -> None:
        found = {**{name: getattr(seen, name) for name in self.values if name != "rho_paper"}, "rho_paper": published}
        for name, values in found.items():
            self.values[name][rows, place] = torch.where(still, torch.nan, values.double())
        self.used[rows, place], self.flat[rows, place] = seen.masks_used, seen.degenerate
        self.interval[rows, place], self.band[rows, place] = seen.interval, seen.null_band
        groups = seen.prediction_sensitivity.shape[1]
        self.prediction[rows, place, :groups] = seen.prediction_sensitivity
        self.explanation[rows, place, :groups] = seen.explanation_sensitivity

    def _telling(self) -> Tensor:
        """Layers that say whether prediction and explanation agree; a flat explanation says nothing about chance."""
        return torch.isfinite(self.values["rho"]) & ~self.flat

    def nothing_told(self) -> Tensor:
        """Samples without a layer that says anything, `(N,)`."""
        return ~self._telling().any(1)

    def summary(self, permutations: int) -> dict[str, Tensor]:
        """Columns of the result: layers and their means, over those that have a rho."""
        rho, p = self.values["rho"], self.values["p_value"]
        counted = torch.isfinite(rho)
        layers = counted.sum(1)
        some = torch.where(layers > 0, layers.double(), torch.nan)

        def mean(values: Tensor) -> Tensor:
            """Over the counted layers that have a value."""
            has = counted & torch.isfinite(values)
            return torch.where(has, values, 0.0).sum(1) / torch.where(has.any(1), has.sum(1).double(), torch.nan)

        def centre(ends: Tensor) -> Tensor:
            """The mean of the layers' middles. A flat layer's rho is 0 for all masks and all orders of them."""
            has = counted & torch.isfinite(ends).all(2)
            return torch.where(has.any(1), torch.where(has, ends.mean(2), 0.0).sum(1) / some, torch.nan)

        def reach(ends: Tensor, centre: Tensor, side: int) -> Tensor:
            """Half-widths of the layers in quadrature, as that of their mean; 0 of a flat one, NaN if all are."""
            width = ends[:, :, side] - centre
            has = counted & torch.isfinite(width)
            squares = torch.where(has, width.square(), 0.0).sum(1)
            return torch.where(has.any(1), (-1.0, 1.0)[side] * squares.sqrt() / some, torch.nan)

        means = {name: mean(values) for name, values in self.values.items() if name != "p_value"}
        middle = self.band.mean(2)
        null = centre(self.band)
        telling = self._telling()
        z = torch.special.ndtri(1 - p.clamp(max=1 - 0.5 / (permutations + 1)))
        together = torch.where(telling, z, 0.0).sum(1) / telling.sum(1).clamp(min=1).sqrt()
        alone = torch.where(telling, p, 0.0).sum(1)
        combined = torch.where(telling.sum(1) == 1, alone, torch.special.ndtr(-together))
        combined = torch.where(telling.any(1), combined, torch.where(layers > 0, 1.0, torch.nan))
        return {
            **means,
            "p_value": combined,
            "low": (means["rho"] + reach(self.interval, rho, 0)).clamp(min=-1),
            "high": (means["rho"] + reach(self.interval, rho, 1)).clamp(max=1),
            "null_low": null + reach(self.band, middle, 0),
            "null_high": null + reach(self.band, middle, 1),
            "masks_used": torch.where(counted, self.used, torch.iinfo(torch.int64).max).amin(1) * (layers > 0),
            **{f"layer_{name}": values for name, values in self.values.items()},
            "layer_masks_used": self.used,
            "layer_interval": self.interval,
            "layer_null_band": self.band,
        }
