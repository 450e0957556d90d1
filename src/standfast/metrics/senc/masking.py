"""The weights of masks: how similar prediction and explanation stay. Both sensitivity consistencies start here.

A mask switches parts of the input or of a layer off. Its two weights say how similar prediction and explanation are to
those without a mask: `1 - |P(x) - P_i(x)|`, P the probability of the probe's target, and `Spearman(e(x), e_i(x))`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor, nn

from standfast.algorithms.masks.random_masks import Consistency
from standfast.explainers.baselines import RandomExplainer
from standfast.gating import gate, masked_weights
from standfast.metrics.probe import Probe
from standfast.similarity.rank import RankedReference
from standfast.tasks import measure_score
from standfast.tensors import widen_half

# with at most this many groups, masks are searched for those that occur more than once
_REPEATING = 24


class MaskedComparison:
    """Compares masked samples with the origins of a probe, and counts the queries in the probe.

    For use inside `model.session()`.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        #: the random explainer gives a fresh map for each mask, even where inputs are the same
        self.noise = None
        if isinstance(probe.explainer, RandomExplainer):
            self.noise = probe.explainer
        self._ranked = RankedReference(probe.reference)
        self._score = measure_score(probe.model.task, probe.logits, probe.targets, "probability")

    def explain(self, x: Tensor, classes: Tensor, call: Tensor) -> tuple[Tensor, Tensor]:
        """Maps and logits of one chunk that fits into memory; `call` `(M,)` numbers the masks, from 1."""
        probe = self.probe
        explained = probe.choose_explained(classes)
        maps, logits = probe.explainer.attribute(probe.model, x, explained)
        if self.noise is not None:
            return self.noise.noise(x, call), logits
        return widen_half(maps), logits

    def weigh(self, rows: Tensor, maps: Tensor, logits: Tensor) -> Tensor:
        """The weights `(2, M)`, of prediction and of explanation, of masked copies of the samples `rows` `(M,)`.

        NaN where logits or explanation are not finite.
        """
        probe = self.probe
        if probe.absolute:
            maps = maps.abs()
        similarity, constant = self._ranked.compare(maps, rows)
        finite_logits = torch.isfinite(logits.flatten(1)).all(1)
        finite = finite_logits & torch.isfinite(similarity)
        probe.count(rows, constant & finite, ~finite)
        score = probe.measure_score(logits, rows, "probability")
        close = probe.model.task.measure_closeness(self._score[rows], score)
        weights = torch.stack((close, similarity.double()))
        return torch.where(finite, weights, torch.nan)


class MaskedLayers:
    """Weights of samples under masks of a layer. For use inside `model.session()`."""

    def __init__(self, probe: Probe, inputs: Tensor) -> None:
        self.probe, self.inputs = probe, inputs
        self._comparison = MaskedComparison(probe)

    def weigh(
        self, layer: nn.Module, number: int, rows: Tensor, masks: Tensor, first: int
    ) -> Tensor:
        """Weights `(2, n, k)` of the samples `rows` `(n,)` under their own masks `(n, k, m)`, numbered from `first`.

        All masks are rows of one batch; `number` is the layer's.
        """
        samples, indices, back = self._find_distinct(masks)
        size = self.probe.choose_block_size(self.inputs, len(samples))

        def explain(
            x: Tensor, classes: Tensor, call: Tensor, mask: Tensor
        ) -> tuple[Tensor, Tensor]:
            with gate(layer, mask):
                return self._comparison.explain(x, classes, call)

        parts = []
        blocks = zip(torch.split(samples, size), torch.split(indices, size), strict=True)
        for sample, index in blocks:
            calls = _number_calls(number, first + index)
            masks_of_block = masks[sample, index]
            parts.append(self._compare(explain, rows[sample], calls, masks_of_block))
        return torch.cat(parts, 1)[:, back]

    def weigh_in_place(
        self, layer: nn.Module, number: int, rows: Tensor, masks: Tensor, first: int
    ) -> Tensor:
        """The same under common masks `(1, k, m)`, by setting the layer's weights to zero.

        One mask after the other, for all samples at once. Afterwards the layer is as it was.
        """
        _, indices, back = self._find_distinct(masks)
        parts = []
        with masked_weights(layer) as use:
            for index in indices.tolist():
                use(masks[0, index])
                calls = _number_calls(number, torch.full_like(rows, first + index))
                parts.append(self._compare(self._comparison.explain, rows, calls))
        return torch.stack(parts, 2)[:, :, back[0]]

    def _compare(
        self, explain: Callable[..., tuple[Tensor, ...]], rows: Tensor, *columns: Tensor
    ) -> Tensor:
        """The weights `(2, M)` of the samples `rows` `(M,)`, explained in chunks under the masks that are set."""
        maps, logits = self.probe.model.map_rows(
            explain,
            self.inputs[rows],
            self.probe.targets[rows],
            *columns,
            rows_per_input=self.probe.explainer.count_rows_of(self.inputs),
            kind="backward",
        )
        return self._comparison.weigh(rows, maps, logits)

    def _find_distinct(self, masks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The masks of `(R, K, m)` to evaluate, as rows and places `(M,)`, and which of them each `(R, K)` equals."""
        samples, count, groups = masks.shape
        whole = torch.arange(samples * count, device=masks.device)
        if groups > _REPEATING or self._comparison.noise is not None:
            return whole // count, whole % count, whole.reshape(samples, count)
        bits = 1 << torch.arange(groups, device=masks.device)
        # the lowest bits of a code are the mask, the others are the sample's number
        numbers = torch.arange(samples, device=masks.device) << groups
        codes = (masks * bits).sum(2) + numbers[:, None]
        distinct, back = torch.unique(codes, return_inverse=True)
        # the first of equal masks stands for all of them
        chosen = torch.full_like(distinct, len(whole))
        chosen = chosen.scatter_reduce_(0, back.reshape(-1), whole, "amin")
        return chosen // count, chosen % count, back


def are_constant(weights: Tensor) -> Tensor:
    """Which of the weights `(..., K)` are the same for all masks, where they are finite; bool `(...)`."""
    is_weighed = weights.isfinite()
    least = weights.where(is_weighed, torch.inf).amin(-1)
    most = weights.where(is_weighed, -torch.inf).amax(-1)
    return least >= most


def mark_constant(consistency: Consistency, weights: Tensor) -> Consistency:
    """Mark problems as degenerate, without an interval, where one of the weights `(2, R, K)` is constant.

    The published sums still order the features then, by how often each was kept. That order says nothing about
    sensitivity.
    """
    constant = are_constant(weights).any(0)
    interval = torch.where(constant[:, None], torch.nan, consistency.interval)
    return dataclasses.replace(
        consistency, degenerate=consistency.degenerate | constant, interval=interval
    )


def _number_calls(layer: int, masks: Tensor) -> Tensor:
    """A number above 0 for every mask of every layer."""
    return ((layer + 1) << 32) + masks + 1
