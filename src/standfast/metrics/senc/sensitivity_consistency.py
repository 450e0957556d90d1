"""What both SenC metrics share: options, results, and the evaluation of samples under random masks.

Source: Tan, "Evaluating Sensitivity Consistency of Explanations" (WACV 2025), Sec. 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from standfast.algorithms.masks.random_masks import (
    Consistency,
    is_settled,
    measure_consistency,
    plan_checks,
)
from standfast.algorithms.masks.resampling import Estimator
from standfast.metrics.base import Metric
from standfast.metrics.probe import Call, Explain, Probe
from standfast.metrics.result import Result
from standfast.metrics.senc.masking import are_constant, mark_constant
from standfast.records import Count, Fraction, Positive, Range
from standfast.statistics.pooling import Pooled, pool_inputs
from standfast.tensors import Streams, content_keys
from standfast.value_spec import ValueSpec

# masks of a group of samples held at once: 16 MB, and eight times that while they are compared
_MASK_BITS = 1 << 24
CPU = torch.device("cpu")

MaskCount = Annotated[int, Range(least=10)]


@dataclass(frozen=True)
class SensitivityConsistencyResult(Result):
    """Sensitivity consistency of each sample.

    Attributes:
        value: rho, Spearman's correlation of the two sensitivities; NaN for skipped samples. `(N,)`
        low, high: 95% interval of rho over masks. `(N,)`
        p_value: one-sided, of rho under the null. `(N,)`
        null_low, null_high: the band with 95% of rho if the explanation had nothing to do with the masks. `(N,)`
        rho_paper: what the published estimator gives with the same masks. `(N,)`
        top1, top3: share of the one and three most sensitive parts in common (Eq. 5). `(N,)`
        masks_used: masks with finite logits and explanation, `(N,)`.
        prediction_sensitivity, explanation_sensitivity: `S_k`, `(N, ..., m)`; NaN beyond a sample's or layer's parts.
        origins, origin_maps: the samples and their explanations, `(N, ...)`.
    """

    stored: ClassVar[tuple[str, ...]] = (
        *("origins", "origin_maps"),
        *("prediction_sensitivity", "explanation_sensitivity"),
    )

    p_value: Tensor
    null_low: Tensor
    null_high: Tensor
    rho_paper: Tensor
    top1: Tensor
    top3: Tensor
    masks_used: Tensor
    prediction_sensitivity: Tensor
    explanation_sensitivity: Tensor
    origins: Tensor = field(repr=False)
    origin_maps: Tensor = field(repr=False)

    def pooled(self) -> Pooled:
        """Median rho of the evaluated samples, its interval over samples, and one p-value of them together.

        One sample says little, because it has few parts (`standfast.statistics.pooling.pool_inputs`). Samples that
        share their masks are not independent, so they are not pooled: the count is 0.
        """
        values, p_values = (tensor.cpu().double().numpy() for tensor in (self.value, self.p_value))
        if not self.independent:
            return Pooled(None, float("nan"), 0)
        fine = [status == "ok" for status in self.status]
        return pool_inputs(values[fine], p_values[fine], int(self.options["permutations"]))

    @property
    def independent(self) -> bool:
        """Whether every sample has masks of its own."""
        return True


#: what has one number for each sample and layer
NUMBERS = ("rho", "p_value", "rho_paper", "top1", "top3", "masks_used")


@dataclass(frozen=True)
class ConsistencyTable(Consistency):
    """What was found for N samples in L layers (1 for masks of the input), filled group by group.

    The attributes are those of `Consistency`, `(N, L, ...)` each. What is not filled, of skipped samples, is NaN, or 0
    and False.

    Attributes:
        constant_prediction: whether no mask changed the prediction, bool `(N, L)`.
    """

    constant_prediction: Tensor

    @classmethod
    def create(
        cls, samples: int, layers: int, width: int, device: torch.device
    ) -> ConsistencyTable:
        """An empty table, for at most `width` parts that a mask switches."""

        def create(*shape: int) -> Tensor:
            return torch.full(
                (samples, layers, *shape), torch.nan, dtype=torch.float64, device=device
            )

        count = torch.zeros((samples, layers), dtype=torch.int64, device=device)
        return cls(
            **{name: create() for name in NUMBERS if name != "masks_used"},
            **{name: create(2) for name in ("interval", "null_band")},
            **{
                name: create(width)
                for name in ("prediction_sensitivity", "explanation_sensitivity")
            },
            masks_used=count,
            degenerate=count.bool(),
            constant_prediction=count.bool(),
        )

    def fill(self, layer: int, rows: Tensor, consistency: Consistency, weights: Tensor) -> None:
        """Enter what was found for the samples `rows` `(R,)` in a layer, from weights `(2, R, K)`."""
        for column in fields(Consistency):
            values = getattr(consistency, column.name)
            stored = getattr(self, column.name)[:, layer]
            if values.ndim == 1:
                stored[rows] = values
            else:
                stored[rows, : values.shape[1]] = values
        self.constant_prediction[rows, layer] = are_constant(weights[0])


@dataclass(frozen=True)
class MaskedGroup:
    """Samples that are evaluated together.

    Attributes:
        rows: their numbers, `(R,)`.
        inputs: `(R, ...)`.
        masks: `(R, K, m)`, or `(1, K, m)` for all of them.
        features: how many of the m parts each sample has, int `(R,)` on the CPU.
        seed: of the random numbers.
        weigh: `weigh(rows, masks, first)` gives the weights `(2, n, k)` of the samples `rows` `(n,)` under masks
            number `first` to `first + k`, `(n, k, m)`, or `(1, k, m)` for all of them.
        layer: its place in the table.
    """

    rows: Tensor
    inputs: Tensor
    masks: Tensor
    features: Tensor
    seed: int
    weigh: Callable[[Tensor, Tensor, int], Tensor]
    layer: int = 0

    def select_masks(self, members: Tensor, start: int, stop: int) -> Tensor:
        """Masks number `start` to `stop` of the samples `members` `(n,)` of the group, `(n, k, m)` or `(1, k, m)`."""
        if len(self.masks) == 1:
            return self.masks[:, start:stop]
        return self.masks[members, start:stop]


@dataclass(frozen=True, kw_only=True)
class SensitivityConsistency(Metric):
    """Are prediction and explanation sensitive to the same parts of the input or of the model?

    Args:
        masks: how many masks for each sample (and layer); with a `tolerance` the most.
        keep: probability that a mask keeps a part.
        estimator: `"centred"`, or `"paper"`. The published sum is biased, because it mostly counts how often a part was
            kept: rho is high for unrelated weights, and may be near 0 for weights that agree (docs/senc-bias.md).
        explain: under a mask, explain the class of the `"origin"`, the sample itself, or the one `"predicted"`.
        absolute: compare absolute attributions. The paper does not say; signed ones are our reading.
        tolerance: stop drawing masks once both ends of the 95% interval are at most this far from rho; None: never.
        permutations: how many make the null.
        resamples: how many the bootstrap of the interval draws.
    """

    evidence = "faithful"
    controls = True
    citation = "tan2025senc"
    #: what is switched off at random, in words
    parts: ClassVar[str]

    masks: MaskCount = 5000
    keep: Fraction = 0.8
    estimator: Estimator = "centred"
    explain: Explain = "origin"
    absolute: bool = False
    tolerance: Positive | None = None
    permutations: Count = 999
    resamples: Count = 500

    @classmethod
    def value_spec(cls, options: Mapping[str, Any]) -> ValueSpec:
        """Rho; higher is more consistent."""
        symbol = "rho"
        caution = ""
        if options.get("estimator") == "paper":
            symbol = "rho (published estimator)"
            caution = "The published estimator mostly counts how often a part was kept."
        return ValueSpec(
            f"Sensitivity consistency of prediction and explanation over {cls.parts}",
            symbol,
            "higher",
            decimals=3,
            caution=caution,
            good="more consistent",
        )

    def make_probe(self, call: Call) -> Probe:
        """The probe that compares maps by Spearman's correlation."""
        return Probe(call, "spearman", absolute=self.absolute, explain=self.explain)

    def split_rows(self, rows: Tensor, width: int) -> tuple[Tensor, ...]:
        """The rows `(R,)` in parts whose masks over `width` parts fit into memory; none for no rows."""
        if len(rows):
            return torch.split(rows, max(1, _MASK_BITS // (self.masks * width)))
        return ()

    def evaluate_group(self, group: MaskedGroup, table: ConsistencyTable) -> None:
        """Weigh the masks of the group's samples and enter what is found. Each sample stops on its own."""
        shape = (2, len(group.rows), self.masks)
        weights = torch.full(shape, torch.nan, dtype=torch.float64, device=group.rows.device)
        active = torch.arange(len(group.rows), device=group.rows.device)
        start = 0
        if self.tolerance is None:
            stops = [self.masks]
        else:
            stops = plan_checks(self.masks)
        for stop in stops:
            masks = group.select_masks(active, start, stop)
            weights[:, active, start:stop] = group.weigh(group.rows[active], masks, start)
            start = stop
            done = torch.ones_like(active, dtype=torch.bool)
            if stop < self.masks:
                parts = self._split(group, active)
                are_settled = [self._is_settled(group, weights, part, stop) for part in parts]
                done = torch.cat(are_settled)
            for members in self._split(group, active[done]):
                group_weights = weights[:, members, :stop]
                consistency = self._compare(group, group_weights, members, self.permutations)
                table.fill(group.layer, group.rows[members], consistency, group_weights)
            active = active[~done]
            if not len(active):
                return

    def _split(self, group: MaskedGroup, members: Tensor) -> tuple[Tensor, ...]:
        return self.split_rows(members, group.masks.shape[2])

    def _is_settled(
        self, group: MaskedGroup, weights: Tensor, members: Tensor, stop: int
    ) -> Tensor:
        assert self.tolerance is not None
        return is_settled(
            # whether to stop needs the interval alone
            self._compare(group, weights[:, members, :stop], members, permutations=0),
            self.tolerance,
        )

    def _compare(
        self, group: MaskedGroup, weights: Tensor, members: Tensor, permutations: int
    ) -> Consistency:
        """The consistency of weights `(2, n, k)`, of the first k masks; always with the same random numbers."""
        consistency = measure_consistency(
            weights,
            group.select_masks(members, 0, weights.shape[2]).expand(len(members), -1, -1),
            features=group.features[members.cpu()],
            estimator=self.estimator,
            permutations=permutations,
            resamples=self.resamples,
            # another stream than that of the masks
            streams=Streams(content_keys(group.inputs[members], group.seed ^ 0x5E2C).tolist(), CPU),
        )
        return mark_constant(consistency, weights)
