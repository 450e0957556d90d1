"""Seed agreement: does an explanation agree with itself under another seed and another background sample?

    A(x) = mean over r < s of sim(g_r(x), g_s(x)),    r, s = 1 .. R,

where g_r is the explainer with its r-th seed, and with other rows drawn from the model's reference where it averages
over some. Nothing else changes: the input, the model and the options are the same. The interval is that of the mean for
two new seeds (`statistics.map_agreement`). Beside it are Kendall's tau, the overlap of the first k features and the
agreement of their signs, because a distance of sizes hides that ranks change (these two: Krishna et al., The
Disagreement Problem in Explainable Machine Learning, TMLR 2024, who compare explainers).

Cost: R explanations for each input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from standfast.metrics.base import Cost, Metric, metrics
from standfast.metrics.probe import Call, Probe
from standfast.metrics.reasons.draws import draws_numbers, vary
from standfast.metrics.result import Result
from standfast.records import Count, Range
from standfast.similarity import Similarity
from standfast.similarity import get as get_similarity
from standfast.statistics.map_agreement import (
    agree_in_sign,
    bound_equal_similarities,
    find_two_groups,
    interval_over_seeds,
    kendall,
    list_pairs,
    overlap,
)
from standfast.statistics.paired import ROUNDING
from standfast.tensors import Array
from standfast.value_spec import ValueSpec

#: of a sample's maps, so many numbers at most are stored, for `Results.agreement`
_STORED = 1 << 16


@dataclass(frozen=True)
class SeedAgreementResult(Result):
    """The agreement of each sample.

    Attributes:
        value, low, high: the mean similarity of pairs of maps, and its interval, `(N,)`.
        kendall: the mean of Kendall's tau-b over pairs, `(N,)`; NaN for inputs of more than 512 numbers.
        overlap: the mean share of the first k features that two maps have in common, `(N,)`.
        signs: the mean share of the first features of either that have the same sign, `(N,)`.
        chance: what `overlap` is on average for unrelated maps, k / F, `(N,)`.
        split: the seeds fall into two groups, such as two orders of the features, bool `(N,)`: the interval is then
            less sure than 95%, 85% at worst.
        varied: whether there was anything to vary, bool `(N,)`: not where the explainer has no seed, and its maps are
            the same for every background sample. Agreement is then no merit, and does not count.
        seed_maps: of each seed, `(N, R, ...)`; None where they are too large.
    """

    stored = ("seed_maps",)

    kendall: Tensor
    overlap: Tensor
    signs: Tensor
    chance: Tensor
    split: Tensor
    varied: Tensor
    seed_maps: Tensor | None = field(default=None, kw_only=True)


@metrics.register("seed_agreement")
@dataclass(frozen=True)
class SeedAgreement(Metric):
    """The mean similarity of maps of one input under different seeds of the explainer and of its background sample.

    Args:
        seeds: how many, R.
        similarity: of two maps.
        top: how many features count as the first ones, k.
        absolute: compare absolute attributions, as far as `similarity` goes.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = SeedAgreement(seeds=3)(model, "smoothgrad:samples=4", digits.inputs)
    >>> bool((result.value < 1).all()), result.varied.tolist()
    (True, [True, True])
    >>> SeedAgreement(seeds=3)(model, "saliency", digits.inputs).varied.tolist()  # it has no seed
    [False, False]
    """

    name = "seed_agreement"
    version = 2
    citation = "krishna2024disagreement"
    presets = {"quick": {"seeds": 5}}
    ladder = ({"seeds": 3}, {"seeds": 5})

    seeds: Annotated[int, Range(least=3)] = 10
    similarity: str | Similarity = "spearman"
    top: Count = 3
    absolute: bool = False

    def __post_init__(self) -> None:
        get_similarity(self.similarity)

    @classmethod
    def value_spec(cls, options: Mapping[str, Any]) -> ValueSpec:
        """The axis names the similarity."""
        axis = f"mean similarity of two seeds ({options.get('similarity', cls.similarity)})"
        return ValueSpec(
            "Agreement of seeds",
            axis,
            "higher",
            good="more stable",
            empty="with nothing to vary",
            varied="varied",
        )

    @classmethod
    def example(cls) -> SeedAgreement:
        return cls(seeds=3)

    def cost(self, classes: int | None = None) -> Cost:
        """One explanation for each seed."""
        return Cost(predictions=0, explanations=self.seeds)

    def compare_unrelated(self, maps: Tensor, others: Tensor) -> Tensor | None:
        if self.absolute:
            maps, others = maps.abs(), others.abs()
        similarity = get_similarity(self.similarity)
        return similarity(similarity.of_maps(maps), similarity.of_maps(others))

    @property
    def compares_in_order(self) -> bool:
        return not get_similarity(self.similarity).symmetric

    def evaluate(self, call: Call) -> SeedAgreementResult:
        """Explain each input under every seed, and compare all pairs."""
        probe = Probe(call, self.similarity, absolute=self.absolute)
        rows = probe.usable()
        maps_of_seeds = [probe.maps]
        inputs = call.inputs[rows]
        targets = probe.targets[rows]
        # the first maps are those of the probe
        for seed in range(1, self.seeds):
            explainer, model = vary(call.explainer, call.model, seed, background=seed)
            maps = torch.zeros_like(probe.maps)
            if len(rows):
                usable_maps, logits = explainer.attribute_all(model, inputs, targets)
                maps[rows] = usable_maps
                finite = usable_maps.flatten(1).isfinite().all(1) & logits.flatten(
                    1
                ).isfinite().all(1)
                probe.count(rows, _is_flat(usable_maps), ~finite)
            maps_of_seeds.append(maps)
        maps = torch.stack(maps_of_seeds, dim=1).detach()
        probe.skip(~maps.flatten(1).isfinite().all(1), "nonfinite")
        rows = probe.usable()
        has_seed = len(rows) > 0 and draws_numbers(call, probe.targets, int(rows[0]))
        fields = self._compare(maps[rows], has_seed)
        scattered = {
            name: torch.from_numpy(np.asarray(values)).to(rows.device)
            for name, values in fields.items()
        }
        small = maps[:1].numel() <= _STORED
        stored = None
        if small and len(maps):
            stored = maps.nan_to_num().float()
        return SeedAgreementResult(**probe.common_fields(self, **scattered), seed_maps=stored)

    def _compare(self, maps: Tensor, has_seed: bool) -> dict[str, Array]:
        """The numbers of usable inputs, from their maps `(n, R, ...)` and whether the explainer has a seed."""
        similarity = get_similarity(self.similarity)
        first, second = list_pairs(self.seeds)
        count = len(maps)
        flat = maps.flatten(2).double().cpu().numpy()
        compared = maps.abs() if self.absolute else maps
        values = np.empty((count, len(first)))
        others = {name: np.empty_like(values) for name in ("kendall", "overlap", "signs")}
        for pair, (r, s) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            if count:
                a, b = (similarity.of_maps(compared[:, seed]) for seed in (r, s))
                values[:, pair] = similarity(a, b).double().cpu().numpy()
                one, other = flat[:, r], flat[:, s]
                others["kendall"][:, pair] = kendall(one, other)
                others["overlap"][:, pair] = overlap(one, other, self.top)
                others["signs"][:, pair] = agree_in_sign(one, other, self.top)
        correlation = similarity.larger_is_closer
        value, low, high = interval_over_seeds(values, self.seeds, correlation)
        same = (flat == flat[:, :1]).all((1, 2))
        # pairs that are all equally similar show no error of their mean, although the maps differ
        unsure = ~same & (np.ptp(values, axis=1) <= 1e-12)
        low = np.where(unsure & correlation, bound_equal_similarities(value, self.seeds), low)
        share = min(self.top / flat.shape[2], 1.0)
        chance = np.full(count, share)
        means = {name: of_pairs.mean(1) for name, of_pairs in others.items()}
        split = find_two_groups(values, self.seeds)
        varied = has_seed | ~_are_same(flat)
        return {
            "value": value,
            "low": low,
            "high": high,
            **means,
            "chance": chance,
            "split": split,
            "varied": varied,
        }


def _are_same(maps: Array) -> Array:
    """Whether the maps of all seeds `(n, R, F)` are the same but for rounding, bool `(n,)`."""
    largest = np.abs(maps).max((1, 2), initial=0.0)
    apart = np.abs(maps - maps[:, :1]).max((1, 2), initial=0.0)
    return np.asarray(apart <= ROUNDING * largest)


def _is_flat(maps: Tensor) -> Tensor:
    """Whether maps `(n, ...)` are constant, bool `(n,)`."""
    flat = maps.flatten(1)
    return flat.amax(1) == flat.amin(1)
