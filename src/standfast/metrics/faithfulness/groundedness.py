"""Groundedness: does the score fall more without the cited regions than without as many random ones?

Problem: an explanation cites the k regions with the largest attributions, such as two sentences of a context. Let f be
the score of the answer, x without S the input whose regions S are removed, C the cited ones, and R_1 ... R_D random
sets of k regions, each as likely as the others. Then

    groundedness = mean over d of  [f(x) - f(x without C)] - [f(x) - f(x without R_d)]

is above 0 if the cited regions matter more than others. The pairs share f(x). If there are at most D sets of k regions,
all of them are taken, and the number is exact. Otherwise its interval is Student's over the D draws, which are the same
for all explainers.

Removing what is cited says little if nothing in the context matters. So all regions are removed, too: an answer is
`grounded` if it is lost then (`standfast.tasks.base.find_lost`). Another class is lost, a number beyond its tolerance,
and a generated answer that is less than a tenth as probable and has lost more than its tolerance, half a nat, for each
token. A fall above 0 would say little: a greedy answer is the likeliest one with its context, so that it falls with any
other. With `least` an answer is grounded if the score falls by more than that. "Not grounded" is an answer, and then no
citation can be right.

The comparison of cited with uncited text goes back to DeYoung et al., "ERASER: a benchmark to evaluate rationalized NLP
models", ACL 2020 (comprehensiveness: the first of the two falls, of probabilities). The control by random
sets of the same size, the interval, and the fall without all regions are ours.

Cost: `draws + 2` predictions for each input, and one with explanation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.base import BaselineOption
from standfast.metrics.base import Cost, Metric, metrics
from standfast.metrics.faithfulness.ablations import Ablations
from standfast.metrics.faithfulness.regions import Regions, sum_over_regions
from standfast.metrics.positions import rank_with_random_ties
from standfast.metrics.probe import Call, Probe
from standfast.metrics.replaced_copies import make_draw_keys, make_sample_keys
from standfast.metrics.result import Result
from standfast.records import AtLeastZero, Count, Range
from standfast.statistics.bootstrap import student_intervals_of_means
from standfast.tasks import Scale
from standfast.tensors import hashed_uniform, send
from standfast.value_spec import ValueSpec

#: what is measured of each sample
_NUMBERS = ("value", "low", "high", "cited", "random", "whole", "beaten", "grounded")


@dataclass(frozen=True, repr=False)
class GroundednessResult(Result):
    """How much more the score falls without the cited regions, with an interval over random ones (`low`, `high`).

    A sample with no more regions than are cited is `"degenerate"`: there are no others.

    Attributes:
        cited: the fall without the cited regions. `(N,)`
        random: the mean fall without as many random ones. `(N,)`
        whole: the fall without all regions. `(N,)`
        beaten: the share of random sets without which the score falls less, ties as halves. `(N,)`
        grounded: whether the answer is lost without all regions, or with `least` whether the score falls by more than
            that, 1 or 0; NaN where the model is not finite without them. `(N,)`
        cited_regions: which regions are cited, bool `(N, width)`.
        noise_key: the key of the random sets of each sample: results with the same keys saw the same ones. `(N,)`
    """

    stored = ("cited_regions", "noise_key")

    cited: Tensor
    random: Tensor
    whole: Tensor
    beaten: Tensor
    grounded: Tensor
    cited_regions: Tensor = field(metadata={"per_sample": False})
    noise_key: Tensor = field(metadata={"per_sample": False})

    def describe(self, sample: int = 0) -> str:
        """What the numbers of one sample say, in a sentence: also whether it is grounded at all."""
        if self.status[sample] != "ok":
            return f"nothing can be said ({self.status[sample]})"
        assert self.low is not None
        assert self.high is not None
        value, low, high = (float(ends[sample]) for ends in (self.value, self.low, self.high))
        whole = float(self.whole[sample])
        cited = float(self.cited[sample])
        if math.isnan(value) or math.isnan(whole):
            return "nothing can be said (the model is not finite without some of the regions)"
        # first, as no citation can be right then, whatever the interval says
        if self.grounded[sample] == 0:
            stays = ", and the answer stays" if self.options["least"] is None else " only"
            return f"not grounded: without the whole context the score falls by {whole:.3g}{stays}"
        falls = f"the score falls by {cited:.3g} without what is cited, and by {whole:.3g} without the whole context"
        if low > 0:
            return f"grounded: {falls}; random parts of this size cost {value:.3g} less [{low:.3g}, {high:.3g}]"
        if high < 0:
            return f"wrongly cited: {falls}; random parts of this size cost {-value:.3g} more"
        return f"undecided: {falls}; random parts of this size cost as much, up to chance [{low:.3g}, {high:.3g}]"


@metrics.register("groundedness")
@dataclass(frozen=True)
class Groundedness(Metric):
    """Groundedness: how much more the score falls without the cited regions than without as many random ones.

    Args:
        cited: how many regions are cited, those with the largest attributions.
        draws: random sets of regions, at least 8; all sets where there are no more.
        least: the fall of the score without all regions, in its own units, up to which an answer is not grounded; None
            for what the model's task says: it is grounded if the answer is lost.
        region: the width of the cells, as for `aopc`; each flat feature, word or source is a region.
        baseline: what stands in the place of removed regions: one number, or one for each channel; within the bounds.
            By default 0, and for tables the baseline of the model's reference.
        score: of the explained class: its `"probability"` or its `"logit"`. Of a generated answer both are its
            log-probability.
        segments: regions that are not cells, as for `aopc`.

    Raises:
        ArgumentError: options out of range; in the call, a baseline outside the bounds.

    >>> from standfast.model import Model
    >>> layer = torch.nn.Linear(4, 2, bias=False)
    >>> _ = layer.weight.data.copy_(torch.tensor([[4.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> result = Groundedness(cited=1, score="logit")(Model(layer, (0.0, 1.0)), "input_x_gradient", torch.ones(1, 4))
    >>> float(result.cited), float(result.random), float(result.whole), float(result.value)
    (4.0, 1.5, 6.0, 2.5)
    """

    version = 2

    name = "groundedness"
    removal_options = ("baseline",)
    evidence = "faithful"
    controls = True
    citation = "deyoung2020eraser"
    presets = {"quick": {"draws": 16}}
    ladder = ({"draws": 16},)
    values = ValueSpec(
        "Groundedness: how much more the score falls without the cited regions than without as many random ones",
        "groundedness",
        "higher",
        decimals=3,
        good="more faithful",
    )

    cited: Count = 2
    draws: Annotated[int, Range(least=8)] = 64
    least: AtLeastZero | None = None
    region: Count | None = None
    baseline: BaselineOption = None
    score: Scale = "probability"
    segments: Regions = None

    def __post_init__(self) -> None:
        alone = self.segments is None or self.region is None
        check(alone, "region", "None where segments are given", repr(self.region))

    @classmethod
    def example(cls) -> Groundedness:
        return cls(draws=10)

    def cost(self, classes: int | None = None) -> Cost:
        """The cited regions, random ones, all of them, and the explanation of the sample itself."""
        return Cost(self.draws + 2, explanations=1)

    def evaluate(self, call: Call) -> GroundednessResult:
        """Remove what the map cites, random regions, and all of them."""
        probe = Probe(call)
        assert not isinstance(self.segments, Tensor)  # since `check_regions`
        ablations = Ablations.of_call(
            probe, call, self.baseline, self.region, self.segments, self.score
        )
        probe.skip_constant(probe.maps)
        # otherwise each random set would be the cited one, or there would be none of this size
        probe.skip(ablations.regions.count <= self.cited)
        keys = make_sample_keys(call.inputs, call.seed)
        attributions = sum_over_regions(probe.maps, ablations.regions)
        exist = ablations.exist
        ranks = rank_with_random_ties(attributions, keys)
        cited_regions = exist & (ranks < self.cited)
        rows = probe.usable().tolist()
        counts = ablations.regions.count.tolist()
        removed_of_rows = self._list_removed(rows, counts, cited_regions.cpu(), keys.cpu())
        numbers = self._measure(ablations, rows, counts, removed_of_rows)
        measured: dict[str, Any] = {}
        for name in _NUMBERS:
            values = torch.full_like(ablations.start, torch.nan)
            of_rows = torch.tensor([of_row[name] for of_row in numbers], dtype=values.dtype)
            values[probe.usable()] = send(of_rows, values.device)
            measured[name] = values
        return GroundednessResult(
            **probe.common_fields(self), **measured, cited_regions=cited_regions, noise_key=keys
        )

    def _measure(
        self,
        ablations: Ablations,
        rows: list[int],
        counts: list[int],
        removed_of_rows: list[Tensor],
    ) -> list[dict[str, float]]:
        """The numbers of each of the samples `rows`, from its copies without the regions `(D + 2, width)`."""
        if not rows:
            return []
        sizes = [len(removed) for removed in removed_of_rows]
        device = ablations.start.device
        owner_of_each = torch.tensor(rows).repeat_interleave(torch.tensor(sizes))
        owners = send(owner_of_each, device)
        removed = send(torch.cat(removed_of_rows), device)
        scores, lost = ablations.measure_lost(owners, removed)
        fall_of_score = ablations.start[owners] - scores
        falls = torch.stack([fall_of_score, lost.double()]).cpu()
        falls_of_rows = torch.split(falls, sizes, dim=1)
        return [
            self._read_falls(fall, bool(is_lost[1]), counts[row])
            for row, (fall, is_lost) in zip(rows, falls_of_rows, strict=True)
        ]

    def _list_removed(
        self, rows: list[int], counts: list[int], cited_regions: Tensor, keys: Tensor
    ) -> list[Tensor]:
        """Of each row the regions that its copies lack, bool `(2 + D, width)`: the cited ones, all, random ones."""
        removed_of_rows: list[Tensor] = []
        for row in rows:
            random_sets = self._draw_sets(keys[row], counts[row])
            parts = 2 + len(random_sets)
            removed = torch.zeros(parts, cited_regions.shape[1], dtype=torch.bool)
            removed[0] = cited_regions[row]
            # beyond the regions that this sample has there is padding
            removed[1, : counts[row]] = True
            removed[2:, : counts[row]] = random_sets
            removed_of_rows.append(removed)
        return removed_of_rows

    def _draw_sets(self, key: Tensor, count: int) -> Tensor:
        """Random sets of as many regions as are cited, of `count`: bool `(D, count)`; all sets if they are few."""
        if self._are_all(count):
            members = torch.tensor(list(combinations(range(count), self.cited)))
        else:
            # the first regions of a random order: each set of this size is as likely as the others
            keys_of_draws = make_draw_keys(key[None], self.draws)[0]
            order = hashed_uniform(keys_of_draws, count).argsort(1)
            members = order[:, : self.cited].cpu()
        none = torch.zeros(len(members), count, dtype=torch.bool)
        return none.scatter(1, members, True)

    def _are_all(self, count: int) -> bool:
        return math.comb(count, self.cited) <= self.draws

    def _read_falls(self, falls: Tensor, is_lost: bool, count: int) -> dict[str, float]:
        """The numbers of one sample.

        Args:
            falls: without the cited regions, without all, without random ones, `(D + 2,)`.
            is_lost: whether the answer is lost without all.
            count: of its regions.
        """
        cited, whole, *random = falls.tolist()
        # f(x) cancels out, as both falls of a pair start from it
        differences = cited - np.array(random)
        value = float(differences.mean())
        low = high = value
        # all sets give the exact mean, so there is no error of drawing
        if not self._are_all(count):
            _, lows, highs = student_intervals_of_means(differences[:, None])
            low = float(lows[0])
            high = float(highs[0])
        return {
            "value": value,
            "low": low,
            "high": high,
            "cited": cited,
            "random": float(np.mean(random)),
            "whole": whole,
            "beaten": float(((differences > 0) + 0.5 * (differences == 0)).mean()),
            "grounded": self._judge(whole, is_lost),
        }

    def _judge(self, whole: float, is_lost: bool) -> float:
        """Whether an answer is grounded that falls by `whole` without all regions, 1 or 0; NaN if that is not known."""
        if math.isnan(whole):
            return math.nan
        if self.least is None:
            return float(is_lost)
        return float(whole > self.least)
