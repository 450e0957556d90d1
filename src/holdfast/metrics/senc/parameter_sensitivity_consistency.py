"""Parameter SenC: are prediction and explanation sensitive to the same channels of the model?

Problem: in one layer switch random groups of weights off (K masks `M_i` over m groups, each kept with probability p):
output channels of a convolution or input features of a linear layer; biases stay. Look at what becomes of the
prediction and of the explanation of x:

    w_i = 1 - |P(x) - P_i(x)|      v_i = Spearman(e(x), e_i(x))      P_i, e_i of the model under mask i

Group k's sensitivity is what `w` or `v` owes to its being kept, `S_k` (see `holdfast.algorithms.mask_sensitivity`),
and `rho = Spearman(S^v, S^w)` for each layer, and their mean. Source: Tan, "Evaluating Sensitivity Consistency of
Explanations" (WACV 2025), Sec. 3.3, Algorithm 2. Where data SenC departs from it (`DataSensitivityConsistency`), so do
we.

K masks are K rows of one batch (`holdfast.gating`), not K models, for explainers that only run the module forward and
backward, and then every sample has masks of its own. For others (LRP, DeepLift, functions of the user's), and for
layers that cannot be gated, the weights are masked in truth, one mask after the other for all samples together, which
so share their masks. The result says which. In layers of few channels masks repeat; each is evaluated once (except by
`RandomExplainer`, which gives fresh noise for every mask).

Intervals and nulls of the mean take the layers as independent, as their masks are: half-widths add in quadrature, and
the p-value is Stouffer's, of the layers'. A layer whose masks leave the prediction as it is has NaN and is left out;
one whose masks leave only the explanation as it is has a rho of 0, which counts: the explanation does not feel what
the prediction does.

Cost: at most `masks` x layers predictions with explanation for each sample, and one for the sample itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from holdfast.algorithms.masks.random_masks import (
    Consistency,
    consistency,
    draw_masks,
    look_schedule,
    settled,
)
from holdfast.algorithms.masks.resampling import Estimator
from holdfast.errors import check
from holdfast.explainers import Explainer
from holdfast.gating import gateable, group_count, select_layers, weight_layers
from holdfast.metrics.base import Metric, metrics
from holdfast.metrics.probe import Explain, Probe
from holdfast.metrics.result import Result
from holdfast.metrics.senc.masked_layers import LayerTable, MaskedLooks
from holdfast.metrics.senc.masking import published, told, unmoved
from holdfast.metrics.senc.options import BIBTEX, CITATION, check_senc_options
from holdfast.model import Classifier
from holdfast.records import set_fields
from holdfast.similarity import get as get_similarity
from holdfast.tensors import Streams, content_keys, draw_seed, mix64

_MASK_BITS = 1 << 24  # masks of a group of samples held at once: 16 MB, and eight times that while they are compared
_LAYERS = 5  # how many layers a module is taken to have before it is there
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class ParameterSencResult(Result):
    """Sensitivity consistency of each sample over L layers; `"degenerate"` too if no layer says anything.

    A layer whose masks do not move the prediction is left out, NaN. In one where they move it and not the explanation,
    or where either feels all groups alike, rho is 0 and counts, so does a null of 0, and there is no top-1 or top-3
    agreement. Where there is no other, rho has no interval.

    Attributes:
        rho: mean over layers of Spearman's correlation of the two sensitivities; NaN for skipped samples. `(N,)`
        low, high: 95% interval of that mean over masks. `(N,)`
        p_value: one-sided, Stouffer's combination of the layers'. `(N,)`
        null_low, null_high: between which 95% of the mean lie when explanations have nothing to do with masks. `(N,)`
        rho_paper: the mean that the published estimator gives with the same masks. `(N,)`
        top1, top3: agreement of the one and three most sensitive groups (Eq. 5), means over layers that have it. `(N,)`
        masks_used: masks with finite logits and explanation, in the layer that has the fewest. `(N,)`
        layers: their names.
        methods: for each layer `"gated"` or `"masked weights"`.
        layer_rho, layer_p_value, layer_rho_paper, layer_top1, layer_top3, layer_masks_used: of each layer, `(N, L)`.
        layer_interval, layer_null_band: `(N, L, 2)`.
        prediction_sensitivity, explanation_sensitivity: `S_k`, `(N, L, m)`; NaN beyond a layer's own groups.
        origins, origin_maps: the samples and their explanations, `(N, ...)`.
    """

    rho: Tensor
    p_value: Tensor
    null_low: Tensor
    null_high: Tensor
    rho_paper: Tensor
    top1: Tensor
    top3: Tensor
    masks_used: Tensor
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
    prediction_sensitivity: Tensor
    explanation_sensitivity: Tensor
    origins: Tensor = field(repr=False)
    origin_maps: Tensor = field(repr=False)

    @property
    def method(self) -> str:
        """`"gated"`, `"masked weights"`, or both, if it differs between layers."""
        return " and ".join(sorted(set(self.methods)))

    def tensors(self) -> dict[str, Tensor]:
        """Samples, explanations and sensitivities: what the pictures are made of."""
        names = ("origins", "origin_maps", "prediction_sensitivity", "explanation_sensitivity")
        return {name: getattr(self, name).contiguous() for name in names}

    def columns(self) -> dict[str, Any]:
        """See `Result`; with the `method` and, for every layer, a column `rho_NAME`."""
        layers = {f"rho_{name}": self.layer_rho[:, i].tolist() for i, name in enumerate(self.layers)}
        layers.pop("rho_paper", None)
        return {**super().columns(), "method": [self.method] * len(self), **layers}


@metrics.register("parameter_sensitivity_consistency")
@dataclass(frozen=True)
class ParameterSensitivityConsistency(Metric):
    """Are prediction and explanation sensitive to the same channels of the model (parameter SenC, Tan 2025)?

    Args:
        layers: `"all"` convolutions and linear layers, `"conv"` for convolutions only, or names as in
            `module.named_modules()`. The first convolutions say most (Sec. 4.2). Layers of one group are left out.
        masks: for each sample and layer; with a `tolerance` the most.
        keep: probability that a mask keeps a group of weights.
        estimator: `"centred"`, or `"paper"`, whose sum is biased: it comes out high whatever the explanation, as it
            mostly counts how often a group was kept (docs/senc-bias.md).
        explain: under a mask, explain the `"origin"`'s class or the one `"predicted"` there.
        tolerance: stop drawing masks for a sample and layer once its 95% interval reaches no further from rho.
        permutations: of the null.
        absolute: compare absolute attributions; the paper does not say, signed ones are our reading.
        resamples: of the interval's bootstrap.

    >>> import holdfast as hf
    >>> digits = hf.data.bundled("digits")[:2]
    >>> classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> metric = ParameterSensitivityConsistency(layers="conv", masks=100, permutations=99, resamples=50)
    >>> result = metric(classifier, "saliency", digits.inputs)
    >>> result.layers, result.layer_rho.shape, result.method
    (('features.conv1', 'features.conv2'), torch.Size([2, 2]), 'gated')
    """

    name: ClassVar[str] = "parameter_sensitivity_consistency"
    headline: ClassVar[str] = "rho"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    citation: ClassVar[str] = CITATION
    bibtex: ClassVar[str] = BIBTEX

    layers: str | tuple[str, ...] = "all"
    masks: int = 10_000
    keep: float = 0.8
    estimator: Estimator = "centred"
    explain: Explain = "origin"
    tolerance: float | None = None
    permutations: int = 999
    absolute: bool = False
    resamples: int = 500

    def __post_init__(self) -> None:
        layers = tuple(self.layers) if isinstance(self.layers, list) else self.layers
        fine = isinstance(layers, str) or (
            isinstance(layers, tuple)
            and 0 < len(set(layers)) == len(layers)
            and all(isinstance(n, str) for n in layers)
        )
        check(fine, "layers", "'all', 'conv' or names of layers, each once", repr(layers))
        set_fields(self, layers=layers)
        check_senc_options(self)

    @classmethod
    def example(cls) -> ParameterSensitivityConsistency:
        """See `Metric`."""
        return cls(masks=40, permutations=99, resamples=50)

    def expected_evaluations(self) -> int:
        """The masks of each layer and the sample itself; of a handful of layers, unless they are named."""
        return self.masks * (len(self.layers) if isinstance(self.layers, tuple) else _LAYERS) + 1

    def evaluate(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> ParameterSencResult:
        """See `Metric`."""
        every = list(weight_layers(classifier.module))
        chosen = select_layers(classifier.module, self.layers)
        probe = Probe(
            classifier,
            explainer,
            inputs,
            targets,
            get_similarity("spearman"),
            absolute=self.absolute,
            explain=self.explain,
        )
        usable, seed = probe.usable(), draw_seed(generator)
        fit = gateable(classifier, inputs, chosen) if explainer.gateable else set()
        looks = MaskedLooks(probe, inputs)
        found = LayerTable.of(len(inputs), [group_count(layer) for layer in chosen.values()], inputs.device)
        for place, (name, layer) in enumerate(chosen.items()):
            # keyed by the place among all layers: the same masks whichever others are chosen
            number = every.index(name)
            layer_seed = int(mix64(torch.tensor([seed + number])).item())
            groups = group_count(layer)
            size = max(1, _MASK_BITS // (self.masks * groups)) if name in fit else len(usable)
            for rows in torch.split(usable, size) if len(usable) else ():
                keys = content_keys(inputs[rows], layer_seed).tolist() if name in fit else [layer_seed]
                masks = draw_masks(self.masks, groups, self.keep, Streams(keys, _CPU)).to(inputs.device)
                task = _Task(place, number, layer, name in fit, rows, masks, layer_seed)
                self._evaluate_layer(looks, task, found)
        columns: dict[str, Any] = found.summary(self.permutations)
        probe.skip(found.nothing_told())
        return ParameterSencResult(
            **probe.common_fields(self),
            value=columns["rho"],
            **columns,
            layers=tuple(chosen),
            methods=tuple("gated" if name in fit else "masked weights" for name in chosen),
            prediction_sensitivity=found.prediction,
            explanation_sensitivity=found.explanation,
            origins=inputs,
            origin_maps=probe.maps,
        )

    def _evaluate_layer(self, looks: MaskedLooks, task: _Task, found: LayerTable) -> None:
        """All masks of some samples in one layer; each sample stops on its own."""
        weights = torch.full((2, len(task.rows), self.masks), torch.nan, dtype=torch.float64, device=task.rows.device)
        stops = [self.masks] if self.tolerance is None else look_schedule(self.masks)
        active, start = torch.arange(len(task.rows), device=task.rows.device), 0
        for stop in stops:
            look = looks.gated if task.gated else looks.swapped
            masks = task.masks[active, start:stop] if task.gated else task.masks[0, start:stop]
            weights[:, active, start:stop] = look(task.layer, task.number, task.rows[active], masks, start)
            start = stop
            done = torch.ones_like(active, dtype=torch.bool)
            if stop < self.masks and self.tolerance is not None:
                parts = self._parts(task, active)
                done = torch.cat([self._settled(looks, task, weights, part, stop) for part in parts])
            ready = active[done]
            for part in self._parts(task, ready) if len(ready) else ():
                self._compare(looks, task, weights, part, stop, self.permutations, found)
            active = active[~done]
            if not len(active):
                return

    def _parts(self, task: _Task, rows: Tensor) -> tuple[Tensor, ...]:
        return torch.split(rows, max(1, _MASK_BITS // (self.masks * task.masks.shape[2])))

    def _settled(self, looks: MaskedLooks, task: _Task, weights: Tensor, rows: Tensor, stop: int) -> Tensor:
        assert self.tolerance is not None
        return settled(self._compare(looks, task, weights, rows, stop, 0, None), self.tolerance)

    def _compare(
        self,
        looks: MaskedLooks,
        task: _Task,
        weights: Tensor,
        rows: Tensor,
        stop: int,
        permutations: int,
        found: LayerTable | None,
    ) -> Consistency:
        """The first `stop` masks of the task's `rows`; always with the same random numbers."""
        own = weights[:, rows, :stop]
        masks = task.masks[rows, :stop] if task.gated else task.masks[0, :stop].expand(len(rows), -1, -1)
        keys = content_keys(looks.inputs[task.rows[rows]], task.seed ^ 0x5E2C).tolist()
        seen = consistency(
            own[0],
            own[1],
            masks,
            estimator=self.estimator,
            permutations=permutations,
            resamples=self.resamples,
            streams=Streams(keys, _CPU),
        )
        seen = told(seen, own)
        if found is not None:
            found.fill(task.place, task.rows[rows], seen, published(own, masks), unmoved(own[0]))
        return seen


@dataclass(frozen=True)
class _Task:
    """Samples and their masks in a layer: `(R, K, m)`, or `(1, K, m)` for all if weights are masked in truth."""

    place: int
    number: int
    layer: nn.Module
    gated: bool
    rows: Tensor
    masks: Tensor
    seed: int
