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
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from standfast.errors import check
from standfast.metrics.base import Cost, Metric, metrics
from standfast.metrics.probe import Call, Probe
from standfast.metrics.reasons.counts import ReasonCounts
from standfast.metrics.reasons.draws import (
    SOURCES,
    Draws,
    Source,
    draw_settings,
    number_model,
)
from standfast.metrics.reasons.places import (
    TOP,
    Speaking,
    count_first,
    sign_first,
    sum_channels,
)
from standfast.metrics.reasons.reasons_result import ReasonsResult
from standfast.neighbourhoods import Neighbourhood
from standfast.records import Count, Fraction, set_fields
from standfast.statistics.reasons import (
    MOST_DECIDED,
    count_least_models,
    schedule_looks,
)
from standfast.tasks import measure_score
from standfast.tensors import send
from standfast.value_spec import ValueSpec

#: draws that are explained before their maps are counted, for memory
_BLOCK = 10
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

    def _list_looks(self, reasons: int) -> tuple[int, ...]:
        """After how many draws it is decided whether to go on, of so many reasons."""
        if reasons > MOST_DECIDED:
            return (self._count_draws(reasons),)
        return schedule_looks(self.draws, self.demand, reasons=reasons)

    def compare_unrelated(self, maps: Tensor, others: Tensor) -> Tensor | None:
        top = count_first(maps.shape[1:], self.top)
        shares_places = maps.ndim > 2
        signed = sign_first(sum_channels(maps), top, self.speaking, shares_places)
        other_signed = sign_first(sum_channels(others), top, self.speaking, shares_places)
        if top <= MOST_DECIDED:
            return (signed == other_signed).all(1).double()
        reasons = signed != 0
        named_again = ((signed == other_signed) & reasons).sum(1)
        return named_again.double() / reasons.sum(1).clamp(min=1)

    def evaluate(self, call: Call) -> ReasonsResult:
        """Explain each input again until its reasons are decided."""
        probe = Probe(call)
        region = None
        if self.neighbourhood is not None and (self.only_beside or "measurement" in self.vary):
            region = self.neighbourhood.around(call.inputs, call.model.bounds)
        flat_maps = sum_channels(probe.maps.nan_to_num())
        top = count_first(call.inputs.shape[1:], self.top)
        shares_places = call.inputs.ndim > 2
        counts = ReasonCounts(flat_maps, top, self.speaking, self.demand, shares_places)
        probe.skip(~counts.signed.any(1), "degenerate")
        draws = Draws(call, probe, region)
        varied = self._find_varied(draws)
        if varied:
            self._draw_until_decided(call, draws, varied, probe, counts)
        columns: dict[str, Any] = counts.describe(probe.usable())
        columns["answer_score"] = measure_score(
            call.model.task, probe.logits, probe.targets, "probability"
        )
        columns["origin_input"] = call.inputs
        columns["few_samples"] = call.explainer.has_too_few_samples(call.inputs)
        for source in SOURCES:
            nothing = torch.zeros(len(call.inputs), dtype=torch.bool, device=call.inputs.device)
            columns[f"varied_{source}"] = draws.varied.get(source, nothing)
        columns["varied"] = (
            columns["varied_seed"] | columns["varied_background"] | columns["varied_measurement"]
        )
        return ReasonsResult(**probe.common_fields(self), **columns)

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
        self, call: Call, draws: Draws, varied: list[Source], probe: Probe, counts: ReasonCounts
    ) -> None:
        """Draw for all samples in common batches; those whose reasons are decided leave them."""
        varies = torch.stack([draws.varied[source] for source in varied]).any(0)
        rows = probe.usable()
        open_rows = rows[varies[rows]]
        model = number_model(call.model)
        drawn = 0
        for look, total in enumerate(self._list_looks(counts.top), start=1):
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
