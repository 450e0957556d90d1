"""Parameter SenC: are prediction and explanation sensitive to the same channels of the model?

Problem: in one layer switch random groups of weights off: K masks `M_i` over m groups, where each group is kept with
probability p. A group is an output channel of a convolution or an input feature of a linear layer; biases stay. Compare
prediction and explanation of x by the model under a mask with those of the whole model:

    w_i = 1 - |P(x) - P_i(x)|      v_i = Spearman(e(x), e_i(x))      P_i, e_i of the model under mask i

The sensitivity `S_k` of group k is how much of `w` or `v` depends on keeping it (see
`standfast.algorithms.mask_sensitivity`). The result is `rho = Spearman(S^v, S^w)` for each layer, and their mean.
Source: Tan, "Evaluating Sensitivity Consistency of Explanations" (WACV 2025), Sec. 3.3, Algorithm 2. We depart from it
where data SenC does (`DataSensitivityConsistency`).

For explainers that only run the module forward and backward, K masks are K rows of one batch (`standfast.gating`), not
K models, and every sample has masks of its own. For other explainers (LRP, DeepLift, a user's functions), and for
layers that cannot be gated, the weights themselves are set to zero, one mask after the other, and all samples share the
masks. The result says which. In layers of few channels masks repeat; each is evaluated once (except with
`RandomExplainer`, which gives fresh noise for every mask).

Intervals and nulls of the mean treat the layers as independent, since their masks are: half-widths add in quadrature,
and the p-value is Stouffer's combination of the layers'. A layer whose masks do not change the prediction has NaN and
is left out. A layer whose masks change the prediction and not the explanation has a rho of 0, which counts, because the
explanation is not sensitive to what the prediction is sensitive to.

Cost: at most `masks` x layers predictions with explanation for each sample, and one for the sample itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from standfast.algorithms.masks.random_masks import draw_masks
from standfast.errors import check
from standfast.gating import find_gateable, group_count, select_layers, weight_layers
from standfast.metrics.base import Cost, Metric, metrics
from standfast.metrics.probe import Call
from standfast.metrics.senc.masking import MaskedLayers
from standfast.metrics.senc.sensitivity_consistency import (
    CPU,
    NUMBERS,
    ConsistencyTable,
    MaskCount,
    MaskedGroup,
    SensitivityConsistency,
    SensitivityConsistencyResult,
)
from standfast.needs import Needs
from standfast.records import set_fields
from standfast.tensors import Streams, content_keys, mix64, send

_LAYERS = 5  # how many layers a module is assumed to have before it is known


@dataclass(frozen=True)
class ParameterSencResult(SensitivityConsistencyResult):
    """Sensitivity consistency of each sample over L layers; rho and the agreements are means over layers.

    A sample is also `"degenerate"` if no layer is informative. A layer whose masks do not change the prediction is left
    out, as NaN. Where they change the prediction and not the explanation, or where either is equally sensitive to all
    groups, rho is 0 and counts. A null of 0 counts as well, and there is no top-1 or top-3 agreement. Without any other
    layer rho has no interval.

    `p_value` is Stouffer's combination of the layers', and `masks_used` that of the layer with the fewest.

    The other attributes are those of `SensitivityConsistencyResult`.

    Attributes:
        layers: their names.
        methods: for each layer `"gated"` or `"masked weights"`.
        layer_rho, layer_p_value, layer_rho_paper, layer_top1, layer_top3, layer_masks_used: of each layer, `(N, L)`.
        layer_interval, layer_null_band: `(N, L, 2)`.
    """

    layers: tuple[str, ...]
    methods: tuple[str, ...]
    layer_rho: Tensor
    layer_p_value: Tensor
    layer_rho_paper: Tensor
    layer_top1: Tensor
    layer_top3: Tensor
    layer_masks_used: Tensor
    layer_interval: Tensor
    layer_null_band: Tensor

    @property
    def method(self) -> str:
        """`"gated"`, `"masked weights"`, or both, if it differs between layers."""
        return " and ".join(sorted(set(self.methods)))

    @property
    def independent(self) -> bool:
        """Whether every sample has masks of its own: in no layer the masks are set as weights, which all share."""
        return "masked weights" not in self.methods

    def columns(self) -> dict[str, Any]:
        """Further columns of the frame, with the `method` and, for every layer, a column `rho_NAME`."""
        layers = {
            f"rho_{name}": self.layer_rho[:, i].tolist() for i, name in enumerate(self.layers)
        }
        # a layer called "paper" must not hide the column of the published estimator
        layers.pop("rho_paper", None)
        return {**super().columns(), "method": [self.method] * len(self), **layers}


@metrics.register("parameter_sensitivity_consistency")
@dataclass(frozen=True)
class ParameterSensitivityConsistency(SensitivityConsistency):
    """Are prediction and explanation sensitive to the same channels of the model (parameter SenC, Tan 2025)?

    Args:
        layers: `"all"` convolutions and linear layers, `"conv"` for convolutions only, `"first"` for the first layer
            of either kind in `module.named_modules()`, which may run later than another, or names as there. The first
            convolutions say most (Sec. 4.2), and `"first"` compares large networks of different kinds. Layers of one
            group are left out.
        masks: how many masks for each sample and layer; with a `tolerance` the most.

    `keep` and the other options are those of `SensitivityConsistency`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> metric = ParameterSensitivityConsistency(layers="conv", masks=100, permutations=99, resamples=50)
    >>> result = metric(model, "saliency", digits.inputs)
    >>> result.layers, result.layer_rho.shape, result.method
    (('features.conv1', 'features.conv2'), torch.Size([2, 2]), 'gated')
    """

    name = "parameter_sensitivity_consistency"
    parts = "channels of the model"
    needs = Needs(parameters=True, other="convolutions or linear layers")
    presets = {
        "quick": {"masks": 20, "permutations": 199, "resamples": 200},
        "paper": {"estimator": "paper"},
    }

    layers: str | tuple[str, ...] = "all"
    masks: MaskCount = field(default=10_000, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.layers, list):
            layers = tuple(self.layers)
        else:
            layers = self.layers
        fits = isinstance(layers, str) or (
            isinstance(layers, tuple)
            and 0 < len(set(layers)) == len(layers)
            and all(isinstance(n, str) for n in layers)
        )
        check(fits, "layers", "'all', 'conv', 'first' or names of layers, each once", repr(layers))
        set_fields(self, layers=layers)

    @classmethod
    def example(cls) -> ParameterSensitivityConsistency:
        return cls(masks=40, permutations=99, resamples=50)

    def bind(self, *, module: nn.Module | None = None, **others: Any) -> Metric:
        """With the names of the layers that it masks in a module."""
        if module is None:
            layers = self.layers
        else:
            layers = tuple(select_layers(module, self.layers))
        return replace(self, layers=layers)

    def cost(self, classes: int | None = None) -> Cost:
        """The masks of each layer and the sample itself; for a few layers, unless they are named."""
        if isinstance(self.layers, tuple):
            named = len(self.layers)
        else:
            named = _LAYERS
        if self.layers == "first":
            named = 1
        return Cost(predictions=0, explanations=self.masks * named + 1)

    def evaluate(self, call: Call) -> ParameterSencResult:
        """Draw masks layer by layer, and compare the samples under a mask with those of the whole model."""
        model = call.model
        inputs = call.inputs
        every = list(weight_layers(model.module))
        # before the model is run: it may have no such layer
        chosen = select_layers(model.module, self.layers)
        probe = self.make_probe(call)
        seed = call.seed
        usable = probe.usable()
        if call.explainer.gateable:
            fit = find_gateable(model, inputs, chosen)
        else:
            fit = set()
        masked = MaskedLayers(probe, inputs)
        groups = [group_count(layer) for layer in chosen.values()]
        table = ConsistencyTable.create(len(inputs), len(chosen), max(groups), inputs.device)
        for index, (name, layer) in enumerate(chosen.items()):
            # keyed by the place among all layers: the same masks whichever others are chosen
            number = every.index(name)
            gated = name in fit
            width = groups[index]
            layer_seed = int(mix64(torch.tensor([seed + number])).item())
            # one mask in the layer's own weights holds for all samples at once
            weigh_layer = masked.weigh if gated else masked.weigh_in_place
            weigh = partial(weigh_layer, layer, number)
            if gated or not len(usable):
                parts = self.split_rows(usable, width)
            else:
                parts = (usable,)
            for rows in parts:
                if gated:
                    keys = content_keys(inputs[rows], layer_seed).tolist()
                else:
                    keys = [layer_seed]
                masks = draw_masks(self.masks, width, self.keep, Streams(keys, CPU))
                masks = send(masks, inputs.device)
                features = torch.full((len(rows),), width)
                group = MaskedGroup(rows, inputs[rows], masks, features, layer_seed, weigh, index)
                self.evaluate_group(group, table)
        columns = _average_layers(table, self.permutations)
        probe.skip(~_find_informative(table).any(1))
        return ParameterSencResult(
            **probe.common_fields(self),
            **columns,
            layers=tuple(chosen),
            methods=tuple("gated" if name in fit else "masked weights" for name in chosen),
            prediction_sensitivity=table.prediction_sensitivity,
            explanation_sensitivity=table.explanation_sensitivity,
            origins=inputs,
            origin_maps=probe.maps,
        )


def _find_informative(table: ConsistencyTable) -> Tensor:
    """Layers that say whether prediction and explanation agree, bool `(N, L)`; a degenerate one does not."""
    return torch.isfinite(table.rho) & ~table.degenerate


def _average_layers(table: ConsistencyTable, permutations: int) -> dict[str, Any]:
    """Columns of the result: those of the layers, and their means over the layers that have a rho."""
    layers = {
        name: getattr(table, name).where(~table.constant_prediction, torch.nan)
        for name in NUMBERS[:-1]
    }
    rho = layers["rho"]
    p = layers["p_value"]
    counted = torch.isfinite(rho)
    count = counted.sum(1)
    divisor = torch.where(count > 0, count.double(), torch.nan)

    def mean(values: Tensor) -> Tensor:
        """Over the counted layers that have a value."""
        has = counted & torch.isfinite(values)
        return torch.where(has, values, 0.0).sum(1) / torch.where(
            has.any(1), has.sum(1).double(), torch.nan
        )

    def centre(ends: Tensor) -> Tensor:
        """The mean of the layers' middles; a degenerate layer's is 0, as its rho is 0 for all masks."""
        has = counted & torch.isfinite(ends).all(2)
        return torch.where(
            has.any(1), torch.where(has, ends.mean(2), 0.0).sum(1) / divisor, torch.nan
        )

    def reach(ends: Tensor, centre: Tensor, side: int) -> Tensor:
        """Half-widths of the layers in quadrature, as that of their mean; a degenerate layer's is 0, NaN if all are."""
        width = ends[:, :, side] - centre
        has = counted & torch.isfinite(width)
        squares = torch.where(has, width.square(), 0.0).sum(1)
        sign = (-1.0, 1.0)[side]
        distance = sign * squares.sqrt() / divisor
        return torch.where(has.any(1), distance, torch.nan)

    means = {}
    for name, values in layers.items():
        if name != "p_value":
            means[name] = mean(values)
    value = means.pop("rho")
    middle = table.null_band.mean(2)
    null = centre(table.null_band)
    informative = _find_informative(table)
    # p may be 1, whose quantile is infinite: half a step below it
    largest_p = 1 - 0.5 / (permutations + 1)
    z = torch.special.ndtri(1 - p.clamp(max=largest_p))
    # Stouffer: the sum over L layers has the standard deviation sqrt(L)
    informative_layers = informative.sum(1)
    sums = torch.where(informative, z, 0.0).sum(1)
    together = sums / informative_layers.clamp(min=1).sqrt()
    # a single layer keeps its own p-value, which the limit above may change
    alone = torch.where(informative, p, 0.0).sum(1)
    combined = torch.where(informative_layers == 1, alone, torch.special.ndtr(-together))
    without = torch.where(count > 0, 1.0, torch.nan)
    combined = torch.where(informative.any(1), combined, without)
    return {
        **means,
        "value": value,
        "p_value": combined,
        "low": (value + reach(table.interval, rho, 0)).clamp(min=-1),
        "high": (value + reach(table.interval, rho, 1)).clamp(max=1),
        "null_low": null + reach(table.null_band, middle, 0),
        "null_high": null + reach(table.null_band, middle, 1),
        "masks_used": torch.where(counted, table.masks_used, torch.iinfo(torch.int64).max).amin(1)
        * (count > 0),
        **{f"layer_{name}": values for name, values in layers.items()},
        "layer_masks_used": table.masks_used,
        "layer_interval": table.interval,
        "layer_null_band": table.null_band,
    }
