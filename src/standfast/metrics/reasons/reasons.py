"""Reasons: are the first features of an explanation named again when nothing that matters is different?

    P(x) = P( the first k of g'(x') are those of g(x), with the same signs | the answer stays ),

where g is the explainer, and g' the same with another seed and other rows of its background, and x' lies in a
neighbourhood of x, the error of a measurement. One draw varies all of these at once (`draws`). Beside P are the
probability that one reason is named, for each of the first k, and whether it is decided that this probability is at
least the demanded one: the exact interval of Clopper and Pearson lies on one side of it, with the error divided by the
number of reasons, and by looks (`statistics.reasons`). A reason that is decided stays so. Draws end when all of the
first k are decided.

Of more than 20 reasons, such as the first tenth of the pixels, no draw names exactly the same. Then the value is the
mean share of them that is named again, with the interval of a mean, and a fixed number of draws is made.

Draws in which the model answers otherwise are counted apart: they are no explanation of this answer.

Retrained models and other explainers are further sources; they are models and explainers of the same study, and
`Results.reasons` takes them together.

Cost: up to `draws` explanations, and five at most that show which sources there are.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from standfast.errors import check
from standfast.metrics.base import Cost, Metric, metrics
from standfast.metrics.probe import Call, Probe
from standfast.metrics.reasons.draws import (
    SOURCES,
    Drawn,
    Draws,
    Source,
    draw_settings,
    number_model,
)
from standfast.metrics.reasons.places import (
    TOP,
    Speaking,
    count_first,
    mark_first,
    measure_sizes,
    sum_channels,
)
from standfast.metrics.result import Result
from standfast.neighbourhoods import Neighbourhood
from standfast.records import Count, Fraction, set_fields
from standfast.statistics.decisions import estimate_mean
from standfast.statistics.proportions import proportion_interval
from standfast.statistics.reasons import (
    MOST_DECIDED,
    count_least_models,
    decide_reasons,
    schedule_looks,
)
from standfast.tasks import measure_score
from standfast.tensors import Array, send
from standfast.value_spec import ValueSpec

#: draws that are explained before their maps are counted, for memory
_BLOCK = 10
#: the draws of maps with at most so many features are stored
MOST_STORED = 1024
#: draws where nothing is decided
_DRAWS_OF_MANY = 60
#: explanations that show which sources an explainer has, at most
_SOURCES_TRIED = 5


def _check_sources(vary: object, option: str) -> tuple[Source, ...]:
    """The sources as they are held: in one order, each once."""
    named = (vary,) if isinstance(vary, str) else vary
    expected = f"some of {', '.join(SOURCES)}"
    check(isinstance(named, list | tuple), option, expected, repr(vary))
    assert isinstance(named, list | tuple)
    check(len(named) > 0 and set(named) <= set(SOURCES), option, expected, repr(vary))
    return tuple(source for source in SOURCES if source in named)


@dataclass(frozen=True, repr=False)
class ReasonsResult(Result):
    """How often the reasons of each sample are named again.

    Attributes:
        value: the share of the draws that keep the answer in which the first features are the same, with the same
            signs, `(N,)`; of more than 20 reasons the mean share of them that is named again. NaN where nothing was
            varied, or no draw keeps the answer.
        low, high: its 95% interval, `(N,)`.
        same_order: the share in which they have the same order, too, `(N,)`.
        chance: the probability that an unrelated map names a reason, k / F, `(N,)`.
        reasons: how many features are named at the clean input, `(N,)`: fewer than k where others are 0 or tie.
        holding, falling: how many of them are decided, `(N,)`.
        drawn: draws with finite numbers, `(N,)`.
        answer_kept: those of them in which the model answers as at the clean input, `(N,)`.
        looks: how often the draws were looked at, `(N,)`.
        varied: whether there is anything that differs in the draws, bool `(N,)`.
        varied_seed, varied_background, varied_measurement: which sources there are, bool `(N,)`.
        few_samples: whether the explainer draws so few samples that the mean over its seeds is wrong, bool `(N,)`.
        answer_score: the probability of the answer, or the number by which it is compared, `(N,)`.
        origin_input: the clean inputs, `(N, ...)`.
        origin_map: of the clean inputs, one value for each feature, `(N, F)`.
        named_for, named_against: in how many of the draws that keep the answer a feature is among the first ones, and
            speaks for the answer, or against it, `(N, F)`.
        mean_map: the mean over these draws, `(N, F)`.
        named_low, named_high: the limits by which reasons are decided, after all looks, `(N, F)`; 0 and 1 of features
            that are no reasons. None of more than 20 reasons.
        draw_maps: of each draw, `(N, R, F)`; NaN where it was not made, or does not keep the answer. None for large
            maps.
    """

    stored = (
        "origin_input",
        "origin_map",
        "named_for",
        "named_against",
        "mean_map",
        "named_low",
        "named_high",
        "draw_maps",
    )

    same_order: Tensor
    chance: Tensor
    reasons: Tensor
    holding: Tensor
    falling: Tensor
    drawn: Tensor
    answer_kept: Tensor
    looks: Tensor
    varied: Tensor
    varied_seed: Tensor
    varied_background: Tensor
    varied_measurement: Tensor
    few_samples: Tensor
    answer_score: Tensor
    origin_input: Tensor = field(kw_only=True, metadata={"per_sample": False})
    origin_map: Tensor = field(kw_only=True, metadata={"per_sample": False})
    named_for: Tensor = field(kw_only=True, metadata={"per_sample": False})
    named_against: Tensor = field(kw_only=True, metadata={"per_sample": False})
    mean_map: Tensor = field(kw_only=True, metadata={"per_sample": False})
    named_low: Tensor | None = field(default=None, kw_only=True, metadata={"per_sample": False})
    named_high: Tensor | None = field(default=None, kw_only=True, metadata={"per_sample": False})
    draw_maps: Tensor | None = field(default=None, kw_only=True)


@metrics.register("reasons")
@dataclass(frozen=True)
class Reasons(Metric):
    """How probably the same first features are named, with the same signs, when seed, background and input vary.

    Args:
        neighbourhood: how much an input may differ by its measurement; None for not at all.
        top: how many features are reasons, k; None for 4 of a row of a table or a text, and for a tenth of the pixels
            of an image or of the entries of a series.
        demand: the probability with which a reason has to be named.
        draws: at most so many; of more than 20 reasons 60 at most, all of which are made.
        vary: the sources that may differ; those that an explainer does not have are left out.
        speaking: `"both"` orders features by their absolute values, `"for"` takes those alone that speak for the
            answer.
        fewest: as many draws are made at least, also where all reasons are decided before: other explainers may share
            them.
        only_beside: make no draws where nothing but the sources of `vary` differs, since those of all sources show the
            same there.

    Raises:
        ArgumentError: an option is out of its range.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> result = Reasons(standfast.LinfBall(0.02), draws=10)(model, "saliency", digits.inputs)
    >>> result.answer_kept.tolist(), bool((result.value < 1).all())
    ([10, 10], True)
    >>> Reasons(draws=10)(model, "saliency", digits.inputs).value.isnan().tolist()  # nothing varies
    [True, True]
    """

    name = "reasons"
    citation = "krishna2024disagreement"
    neighbourhood_option = "neighbourhood"
    presets = {"quick": {"draws": 50}}
    ladder = ({"draws": 50}, {"draws": 100}, {"draws": 200})
    #: of an input, where it is known (`bind`); no option, since no result depends on it
    _shape: ClassVar[torch.Size | None] = None
    version = 2

    neighbourhood: Neighbourhood | None = None
    top: Count | None = None
    demand: Fraction = 0.9
    draws: Count = 400
    vary: Annotated[tuple[Source, ...], _check_sources] = SOURCES
    speaking: Speaking = "both"
    fewest: Count = 1
    only_beside: bool = False

    @classmethod
    def value_spec(cls, options: Mapping[str, Any]) -> ValueSpec:
        """Of samples that vary in nothing there is no number."""
        top = options.get("top") or "k"
        axis = f"how often the first {top} features are named again"
        return ValueSpec(
            "Reasons named again",
            axis,
            "higher",
            good="more stable",
            empty="with nothing to vary",
            decimals=2,
            varied="varied",
        )

    @classmethod
    def example(cls) -> Reasons:
        from standfast.neighbourhoods import LinfBall

        return cls(LinfBall(0.05), draws=10)

    @property
    def revision(self) -> int:
        """Since the second version a reason that is decided stays so; with a single look nothing is different."""
        looks_once = self.draws <= count_least_models(self.demand)
        has_many_reasons = self.top is not None and self.top > MOST_DECIDED
        return 1 if looks_once or has_many_reasons else self.version

    def cost(self, classes: int | None = None) -> Cost:
        """One explanation for each draw, at most, and five that show what varies."""
        reasons = TOP if self.top is None else self.top
        if self._shape is not None:
            reasons = count_first(self._shape, self.top)
        return Cost(predictions=0, explanations=self._count_draws(reasons) + _SOURCES_TRIED)

    def bind(self, *, inputs: Tensor | None = None, **known: Any) -> Metric:
        """With the shape of the inputs, for the cost: fewer draws are made of images and series."""
        bound = super().bind(inputs=inputs, **known)
        shape = self._shape if inputs is None else inputs.shape[1:]
        if bound is self and shape == self._shape:
            return self
        bound = copy.copy(bound)
        set_fields(bound, _shape=shape)
        return bound

    def _count_draws(self, reasons: int) -> int:
        """How many draws are made at most, of so many reasons."""
        if reasons <= MOST_DECIDED:
            return self.draws
        return min(self.draws, _DRAWS_OF_MANY)

    def compare_unrelated(self, maps: Tensor, others: Tensor) -> Tensor | None:
        top = count_first(maps.shape[1:], self.top)
        signed, other_signed = (
            self._sign_first(sum_channels(each), top, each.ndim > 2) for each in (maps, others)
        )
        if top <= MOST_DECIDED:
            return (signed == other_signed).all(1).double()
        reasons = signed != 0
        named_again = ((signed == other_signed) & reasons).sum(1)
        return named_again.double() / reasons.sum(1).clamp(min=1)

    def _sign_first(self, flat_maps: Tensor, top: int, shares_places: bool) -> Tensor:
        """For each feature of maps `(M, F)` 1 or -1 for the first ones, by their signs, and 0 for the others."""
        sizes = measure_sizes(flat_maps, self.speaking)
        return mark_first(sizes, top, shares_places) * flat_maps.sign()

    def evaluate(self, call: Call) -> ReasonsResult:
        """Explain each input again until its reasons are decided."""
        probe = Probe(call)
        region = None
        if self.neighbourhood is not None and (self.only_beside or "measurement" in self.vary):
            region = self.neighbourhood.around(call.inputs, call.model.bounds)
        flat_maps = sum_channels(probe.maps.nan_to_num())
        top = count_first(call.inputs.shape[1:], self.top)
        counts = _Counts(self, flat_maps, top, shares_places=call.inputs.ndim > 2)
        probe.skip(~counts.signed.any(1), "degenerate")
        draws = Draws(call, probe, region)
        varied = self._find_varied(draws)
        if varied:
            self._draw_until_decided(call, draws, varied, probe, counts)
        found: dict[str, Any] = counts.describe(probe.usable())
        found["answer_score"] = measure_score(
            call.model.task, probe.logits, probe.targets, "probability"
        )
        found["origin_input"] = call.inputs
        found["few_samples"] = call.explainer.has_too_few_samples(call.inputs)
        for source in SOURCES:
            nothing = torch.zeros(len(call.inputs), dtype=torch.bool, device=call.inputs.device)
            found[f"varied_{source}"] = draws.varied.get(source, nothing)
        found["varied"] = (
            found["varied_seed"] | found["varied_background"] | found["varied_measurement"]
        )
        return ReasonsResult(**probe.common_fields(self), **found)

    def _find_varied(self, draws: Draws) -> list[Source]:
        """The sources that differ in the draws; none where they would only repeat what other draws show."""
        tried = SOURCES if self.only_beside else self.vary
        is_measured = self.neighbourhood is not None
        present = draws.find_varied(
            [source for source in tried if source != "measurement" or is_measured]
        )
        varied = [source for source in present if source in self.vary]
        if not self.only_beside:
            return varied
        # of each input by itself, so that it does not depend on those beside it
        differs_beside = torch.zeros_like(next(iter(draws.varied.values())))
        for source in set(draws.varied) - set(self.vary):
            differs_beside |= draws.varied.pop(source)
        for source in varied:
            draws.varied[source] &= differs_beside
        return [source for source in varied if bool(draws.varied[source].any())]

    def _draw_until_decided(
        self, call: Call, draws: Draws, varied: list[Source], probe: Probe, counts: _Counts
    ) -> None:
        """Draw for all samples in common batches; those whose reasons are decided leave them."""
        varies = torch.stack([draws.varied[source] for source in varied]).any(0)
        rows = probe.usable()
        open_rows = rows[varies[rows]]
        drawn, model = 0, number_model(call.model)
        for look, total in enumerate(counts.list_looks(), start=1):
            for start in range(drawn, total, _BLOCK):
                settings = draw_settings(
                    call.seed, varied, range(start, min(start + _BLOCK, total)), model
                )
                if len(open_rows):
                    counts.add(open_rows, draws.explain(open_rows, settings))
            drawn = total
            decided = counts.look(open_rows, look)
            if total >= self.fewest:
                open_rows = open_rows[~send(decided, open_rows.device, torch.bool)]


class _Counts:
    """Counts what the draws name.

    Args:
        metric: the options.
        flat_maps: of the clean inputs, `(P, F)`.
        top: how many features are reasons.
        shares_places: see `mark_first`.

    Attributes:
        signed: for each feature of the clean inputs 1 or -1 for the reasons, and 0 for the others, `(P, F)`.
    """

    def __init__(self, metric: Reasons, flat_maps: Tensor, top: int, shares_places: bool) -> None:
        self.metric, self.flat_maps, self.top, self.shares_places = (
            metric,
            flat_maps,
            top,
            shares_places,
        )
        self.signed = metric._sign_first(flat_maps, top, shares_places)
        sizes = measure_sizes(flat_maps, metric.speaking)
        count = len(flat_maps)
        #: the reasons in the order of their sizes, behind them the other features
        self._order = torch.where(self.signed != 0, sizes, -1.0).argsort(
            dim=1, descending=True, stable=True
        )
        self._order = self._order[:, : min(top, flat_maps.shape[1])]
        whole_numbers = torch.zeros((count,), dtype=torch.int64, device=flat_maps.device)
        self.drawn, self.kept = whole_numbers.clone(), whole_numbers.clone()
        self.same, self.same_order = whole_numbers.clone(), whole_numbers.clone()
        self.looks = whole_numbers.clone()
        self.holding, self.falling = whole_numbers.clone(), whole_numbers.clone()
        self.named_for = torch.zeros(flat_maps.shape, dtype=torch.int32, device=flat_maps.device)
        self.named_against = torch.zeros_like(self.named_for)
        self.total = torch.zeros(flat_maps.shape, dtype=torch.float64, device=flat_maps.device)
        self._blocks: list[Tensor] = []
        self._named_again: list[Tensor] = []
        #: the limits of the probabilities of all features after the looks so far, of reasons only if there are any
        self._low, self._high = np.zeros(flat_maps.shape), np.ones(flat_maps.shape)

    @property
    def is_stored(self) -> bool:
        """Whether draws are stored."""
        return self.flat_maps.shape[1] <= MOST_STORED

    @property
    def decides_each(self) -> bool:
        """Whether the reasons are decided one by one."""
        return self.top <= MOST_DECIDED

    def list_looks(self) -> tuple[int, ...]:
        """After how many draws it is decided whether to go on."""
        if not self.decides_each:
            return (self.metric._count_draws(self.top),)
        return schedule_looks(self.metric.draws, self.metric.demand, reasons=self.top)

    def add(self, rows: Tensor, drawn: Drawn) -> None:
        """Count S draws of the origins with these numbers `(n,)`."""
        count, together = drawn.kept.shape
        flat_maps = sum_channels(drawn.maps.flatten(0, 1)).reshape(count, together, -1)
        finite = flat_maps.isfinite().all(2)
        kept = (drawn.kept & finite)[..., None]
        shown = torch.where(kept, flat_maps, 0.0)
        signed = self.metric._sign_first(shown.flatten(0, 1), self.top, self.shares_places).reshape(
            shown.shape
        )
        reasons = self.signed[rows][:, None]
        same = (signed == reasons).all(2) & kept[..., 0]
        self.drawn[rows] += finite.sum(1)
        self.kept[rows] += kept[..., 0].sum(1)
        self.same[rows] += same.sum(1)
        self.same_order[rows] += (same & self._is_ordered(rows, shown)).sum(1)
        self.named_for[rows] += (signed > 0).sum(1, dtype=torch.int32)
        self.named_against[rows] += (signed < 0).sum(1, dtype=torch.int32)
        self.total[rows] += shown.double().sum(1)
        again = ((signed == reasons) & (reasons != 0)).sum(2) / (reasons != 0).sum(2)
        self._named_again.append(self._scatter(rows, torch.where(kept[..., 0], again, torch.nan)))
        if self.is_stored:
            self._blocks.append(self._scatter(rows, torch.where(kept, shown, torch.nan)))

    def _scatter(self, rows: Tensor, values: Tensor) -> Tensor:
        """Values of the origins with these numbers `(n, ...)` among those of all, NaN for the others `(P, ...)`."""
        whole = values.new_full(
            (len(self.flat_maps), *values.shape[1:]), torch.nan, dtype=torch.float32
        )
        whole[rows] = values.float()
        return whole

    def _is_ordered(self, rows: Tensor, maps: Tensor) -> Tensor:
        """Whether the reasons of the origins have the same order in maps `(n, S, F)`, bool `(n, S)`."""
        sizes = measure_sizes(maps, self.metric.speaking)
        order = self._order[rows][:, None].expand(-1, maps.shape[1], -1)
        in_order = sizes.gather(2, order)
        is_reason = (self.signed[rows] != 0)[:, None].expand_as(maps).gather(2, order)
        descends = in_order[..., :-1] >= in_order[..., 1:]
        return (descends | ~is_reason[..., 1:]).all(2)

    def _count_hits(self, rows: Tensor) -> Array:
        """In how many draws each reason of these origins is named with its sign, `(n, k)`; -1 beyond their reasons."""
        order, signed = self._order[rows], self.signed[rows]
        named = torch.where(signed > 0, self.named_for[rows], self.named_against[rows])
        hits = torch.where(signed != 0, named, -1).gather(1, order)
        return np.asarray(hits.cpu())

    def look(self, rows: Tensor, look: int) -> list[bool]:
        """Whether all reasons of the origins with these numbers `(n,)` are decided, at this look or before."""
        self.looks[rows] = look
        if not self.decides_each:
            return [True] * len(rows)
        decided: list[bool] = []
        counts: list[tuple[int, int]] = []
        columns = (
            self._count_hits(rows),
            self._order[rows].cpu().numpy(),
            self.kept[rows].tolist(),
        )
        for row, hits, order, kept in zip(rows.tolist(), *columns, strict=True):
            states: list[str] = []
            if kept:
                states = self._decide(row, hits[hits >= 0], order[hits >= 0], kept, look)
            decided.append(bool(states) and "undecided" not in states)
            counts.append((states.count("holds"), states.count("falls")))
        holding, falling = send(counts, rows.device, torch.int64).reshape(-1, 2).T
        self.holding[rows], self.falling[rows] = holding, falling
        return decided

    def _decide(self, row: int, hits: Array, features: Array, kept: int, look: int) -> list[str]:
        """The states of the reasons of an origin, from their numbers of hits; keeps their limits for the next look."""
        earlier = self._low[row, features], self._high[row, features]
        found = decide_reasons(hits, kept, self.metric.demand, look=look, earlier=earlier)
        self._low[row, features] = [reason.low for reason in found]
        self._high[row, features] = [reason.high for reason in found]
        return [reason.state for reason in found]

    def _estimate(self, row: int, kept: int, same: int) -> tuple[float, float, float]:
        """The value of an origin of which so many draws keep the answer, with its interval."""
        if self.decides_each:
            return same / kept, *proportion_interval(same, kept, 0.95)
        shares = torch.cat([block[row] for block in self._named_again]).double().numpy()
        found = estimate_mean(shares[np.isfinite(shares)], 0.95)
        return found.value, max(0.0, found.low), min(1.0, found.high)

    def describe(self, rows: Tensor) -> dict[str, Tensor]:
        """The fields of the result; `rows` `(n,)` can be evaluated."""
        count = len(self.flat_maps)
        shares = torch.full((4, count), torch.nan, dtype=torch.float64)
        self._named_again = [block.cpu() for block in self._named_again]
        columns = torch.stack([self.kept, self.same, self.same_order]).cpu().numpy()
        for row in rows.tolist():
            kept, same, in_order = (int(number) for number in columns[:, row])
            if kept:
                shares[:3, row] = torch.tensor(self._estimate(row, kept, same))
                shares[3, row] = in_order / kept
        device = self.flat_maps.device
        value, low, high, same_order = shares.to(device)
        chance = torch.full(
            (count,), self.top / self.flat_maps.shape[1], dtype=torch.float64, device=device
        )
        no_draws = torch.full(
            (count, 0, self.flat_maps.shape[1]), torch.nan, dtype=torch.float32, device=device
        )
        return {
            "value": value,
            "low": low,
            "high": high,
            "same_order": same_order,
            "chance": chance,
            "reasons": (self.signed != 0).sum(1),
            "holding": self.holding,
            "falling": self.falling,
            "drawn": self.drawn,
            "answer_kept": self.kept,
            "looks": self.looks,
            "origin_map": self.flat_maps.float(),
            "named_for": self.named_for,
            "named_against": self.named_against,
            "mean_map": (self.total / self.kept.clamp(min=1)[:, None]).float(),
            "named_low": torch.from_numpy(self._low).to(device) if self.decides_each else None,
            "named_high": torch.from_numpy(self._high).to(device) if self.decides_each else None,
            "draw_maps": torch.cat([no_draws, *self._blocks], dim=1) if self.is_stored else None,
        }
