"""The worst case: how much can an explanation be changed within a neighbourhood?

Problem, for `changed_explanation` (SAFARI, Eq. 5) and `changed_class` (Eq. 6), s the similarity of explanations:

    min s(g(x), g(x'))  subject to  J(x') < 0        max s(g(x), g(x'))  subject to  J(x') >= 0

over x' in the neighbourhood of x; `misclassification` maximises J. Source: Huang et al., "SAFARI: Versatile and
Efficient Evaluations for Robustness of Interpretability" (ICCV 2023), Sec. 4 and App. 8.3. We depart from it in the
default search (`auto`; the paper's is `genetic`) and in working with s instead of 1/s (see `events`, and
`event_objective` for what the search climbs).

The result of a search is not trusted: it is projected into the neighbourhood and re-evaluated before it is reported.

The search `draft` looks at rough maps first: those of the explainer with its dial at a lower setting
(`Explainer.with_dial`), which it compares with such maps of the clean inputs. What is reported compares maps of the
full setting.

Cost: at most `budget` predictions for each sample, all but a few with explanation. One of them is for the clean input,
and one for the final check. A twentieth, but at most 100, are predictions only, for the share of the neighbourhood that
keeps the class (`kept_class`). The search has the rest, and queries the centre of the neighbourhood first: the clean
input, or what is nearest to it where the neighbourhood does not contain it, as `JPEG((30, 90))`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from standfast.algorithms.searches.auto import AutoSearch
from standfast.algorithms.searches.base import Search, SearchResult, searches
from standfast.algorithms.searches.draft import DraftSearch
from standfast.errors import ArgumentError, check
from standfast.explainers import Explainer
from standfast.explainers.base import record_choice
from standfast.metrics.base import NO_EFFECT, Cost, Metric, metrics
from standfast.metrics.kept_class import KeptClass, plan_draws
from standfast.metrics.probe import Call, Explain, Probe
from standfast.metrics.probe_objective import (
    RoughObjective,
    reevaluate_found,
)
from standfast.metrics.safari.event_objective import EventObjective
from standfast.metrics.safari.events import Event, EventName, make_event
from standfast.metrics.safari.worst_case_result import WorstCaseResult, make_empty_trace, read_trace
from standfast.model import Output
from standfast.neighbourhoods import LinfBall, Neighbourhood, Region
from standfast.records import Range
from standfast.registry import build
from standfast.similarity import Pearson, Similarity
from standfast.similarity import get as get_similarity
from standfast.similarity.stored import larger_is_closer
from standfast.value_spec import ValueSpec

#: of a draft, for explainers that were not compared
_USUAL_EFFORT = 0.25
#: the largest budget with which drafts were shown to help
_MOST_DRAFTED = 300


@metrics.register("worst_case")
@dataclass(frozen=True)
class WorstCase(Metric):
    """The worst similarity (or, for `misclassification`, margin) within a neighbourhood.

    Args:
        neighbourhood: where perturbed inputs may lie.
        event: `"changed_explanation"`, `"changed_class"` or `"misclassification"`, whose margin does not depend on the
            explainer.
        similarity: a similarity or its name.
        search: `"auto"` (follows gradients where model, explainer and similarity have them, black box elsewhere; tries
            all words, categories and steps where their combinations fit the budget, and searches among them elsewhere;
            for some explainers `draft`), `"draft"` (as `auto`, with rough maps first, of an explainer with a dial),
            `"block"`, `"genetic"`, `"gradient"` or `"sign"` (both white box), `"random"`, `"grid"` (for a few
            parameters, which is what `"auto"` takes for at most 4 of them), with options as in
            `"genetic:population=50"`; or a configured search.
        budget: how many inputs are predicted and explained for each sample at most, at least 3. The clean input, the
            final check of the result and the draws for `class_kept` are included.
        threshold: of the event, for `misinterpreted`; None for the similarity's own.
        absolute: compare absolute attributions, as the authors do.
        explain: at a perturbed input, explain the class `"predicted"` there or the `"origin"`'s.
        margin: J from `"logit"`s or from `"probability"`s.
        track_sensitivity: also keep the largest distance and slope among all candidates.

    Raises:
        ArgumentError: an option out of range; in the call, a white-box search for an explainer or a similarity that
            the event needs and that cannot be differentiated.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> worst = WorstCase(standfast.LinfBall(0.1), budget=20)(model, "input_x_gradient", digits.inputs)
    >>> worst.found.tolist(), bool((worst.similarity < 1).all())
    ([True, True], True)
    """

    name = "worst_case"
    neighbourhood_option = "neighbourhood"
    budget_option = "budget"
    takes_turns = True
    evidence = "searched"
    citation = "huang2023safari"
    roles = {  # the search does not know them
        "threshold": NO_EFFECT,
        "track_sensitivity": NO_EFFECT,
    }
    presets = {
        "quick": {"budget": 100},
        "paper": {"search": "genetic", "budget": 500_002},  # a population of 1000, 500 generations
    }
    ladder = tuple({"budget": budget} for budget in (20, 50, 100, 200, 500, 1000, 2000))
    #: evaluations of the budget that the search never has: the clean input and the final check
    own_evaluations: ClassVar[int] = 2

    neighbourhood: Neighbourhood
    event: EventName = "changed_explanation"
    similarity: str | Similarity = "pearson"
    search: str | Search = "auto"
    #: at least the clean input, a query of the search, and the final check
    budget: Annotated[int, Range(least=3)] = 5000
    threshold: float | None = None
    absolute: bool = True
    explain: Explain = "predicted"
    margin: Output = "logit"
    track_sensitivity: bool = False

    def __post_init__(self) -> None:
        self._event()
        self.make_search()

    @classmethod
    def value_spec(cls, options: Mapping[str, Any]) -> ValueSpec:
        """What was searched for, of the samples where it was found; the event decides which value is better."""
        event = options.get("event")
        if event == "misclassification":
            # a margin says nothing about an explainer
            axis = "margin towards another answer"
            return ValueSpec("Largest margin found, towards another answer", axis, None, decimals=2)
        close_is_larger = larger_is_closer(options)
        axis = f"similarity ({options.get('similarity', '?')})"
        if event == "changed_class":
            return ValueSpec(
                "Most similar explanation found after the answer has changed",
                axis,
                "lower" if close_is_larger else "higher",
                decimals=3,
                only=("found",),
                caution="Only samples whose class could be changed count.",
                good="more robust",
                empty="for which no change of the answer was found",
                asks="other",
            )
        return ValueSpec(
            "Least similar explanation found while the answer is kept",
            axis,
            "higher" if close_is_larger else "lower",
            decimals=3,
            only=("found",),
            good="more robust",
            empty="for which no input keeps the answer",
            same=1.0 if close_is_larger else 0.0,
        )

    @classmethod
    def example(cls) -> WorstCase:
        return cls(LinfBall(0.1), budget=40)

    def compare_unrelated(self, maps: Tensor, others: Tensor) -> Tensor | None:
        return self._event().compare_maps(maps, others, self.absolute)

    @property
    def compares_in_order(self) -> bool:
        return self.event != "misclassification" and not get_similarity(self.similarity).symmetric

    @property
    def own_label(self) -> str:
        """The metric's name and the event's."""
        return f"{self.name}: {self.event}"

    @property
    def revision(self) -> int:
        """One more where `auto` searches among candidates: it used to know only the two ends of each parameter."""
        if self._searches_candidates:
            return self.version + 1
        return self.version

    @property
    def _searches_candidates(self) -> bool:
        return self.neighbourhood.chooses and isinstance(self.make_search(), AutoSearch)

    def cost(self, classes: int | None = None) -> Cost:
        """The budget."""
        return Cost(predictions=0, explanations=self.budget)

    @classmethod
    def plan_budget(cls, evaluations: int) -> int:
        """The budget of which the search gets `evaluations`.

        >>> WorstCase.plan_budget(200), WorstCase.plan_budget(5000)
        (212, 5102)
        """
        budget = evaluations + cls.own_evaluations
        # how many draws are made depends on the budget that is asked for, so it is counted upwards
        while budget - cls.own_evaluations - plan_draws(budget) < evaluations:
            budget += 1
        return budget

    def plan_search(self, probe: Probe | None = None) -> int:
        """How many evaluations of the budget the search gets, around the inputs of a `probe` if one is given.

        >>> WorstCase(LinfBall(0.1), budget=5102).plan_search()
        5000
        """
        return self.budget - self.own_evaluations - plan_draws(self.budget, probe)

    def _event(self) -> Event:
        return make_event(
            self.event, get_similarity(self.similarity), self.threshold, needs_threshold=False
        )

    def make_search(self) -> Search:
        """The configured search."""
        if isinstance(self.search, Search):
            return self.search
        check(isinstance(self.search, str), "search", "a name or a Search", repr(self.search))
        return build(searches, self.search)

    def choose_search(self, explainer: Explainer) -> Search:
        """The search for this explainer: `auto` searches with drafts where this was shown to find worse cases.

        That is for a changed explanation in a ball of the maximum norm, by Pearson's correlation, with a budget of at
        most 300, and explainers that say so (`draft_share`).

        >>> from standfast.explainers import get
        >>> metric = WorstCase(LinfBall(0.1), budget=300)
        >>> metric.choose_search(get("kernel_shap")).name, metric.choose_search(get("saliency")).name
        ('draft', 'auto')
        """
        configured = self.make_search()
        drafting = DraftSearch()
        # drafts replace the plain `auto` only: a search that the user has configured is taken as it is
        if configured != AutoSearch() or not self._drafts_were_better or not explainer.draft_share:
            return configured
        if _make_rougher(explainer, drafting) is None:
            return configured
        return drafting

    @property
    def _drafts_were_better(self) -> bool:
        return (
            self.event == "changed_explanation"
            and isinstance(self.neighbourhood, LinfBall)
            and isinstance(get_similarity(self.similarity), Pearson)
            and self.budget <= _MOST_DRAFTED
        )

    def bind(self, *, explainer: Explainer | None = None, **others: Any) -> Metric:
        """With the search that `auto` takes for the explainer."""
        bound = super().bind(**others)
        if explainer is None or self.choose_search(explainer) == self.make_search():
            return bound
        return dataclasses.replace(bound, search=self.choose_search(explainer))  # type: ignore[call-arg]

    def describe_misfit(self, explainer: Explainer) -> str:
        """Only black-box searches take an explainer that cannot be differentiated, for an event of explanations."""
        fits = (
            explainer.differentiable
            or self.event == "misclassification"
            or not self.make_search().white_box
        )
        if fits:
            return ""
        return "the explainer cannot be differentiated"

    def evaluate(self, call: Call) -> WorstCaseResult:
        """Search around every sample, and re-evaluate what was found."""
        inputs = call.inputs
        event = self._event()
        search = self.choose_search(call.explainer)
        region = self.neighbourhood.around(inputs, call.model.bounds)
        self._check_gradients(call, search, event, region)
        probe = self._make_probe(call, event, region)
        objective = EventObjective(event, probe, inputs, self.track_sensitivity)
        rough = self._make_rough_objective(call, search, objective)
        usable = objective.usable
        points = region.centre.clone()
        kept = KeptClass(probe, plan_draws(self.budget, probe))
        outcome: SearchResult | None = None
        if len(usable):
            usable_region = region.select(usable)
            outcome = objective.run(
                search, usable_region, self.plan_search(probe), call.seed, rough
            )
            # another seed than that of the search, so that the draws are not its random starts
            kept.draw(~call.seed)
            # the result of a search is not trusted: it is moved into the neighbourhood, and evaluated again
            points[usable] = usable_region.project(outcome.inputs[:, None])[:, 0]
        measured, perturbed, _ = reevaluate_found(probe, self.neighbourhood, inputs, points)
        similarity = measured.similarity
        margin = measured.margin
        assert similarity is not None
        plausibility = self.neighbourhood.measure_plausibility(inputs, perturbed["inputs"])
        evaluated = probe.scatter_to_all(torch.ones_like(usable, dtype=torch.bool))
        if plausibility is not None:
            plausibility = torch.where(evaluated, plausibility.double(), torch.nan)
        gaps = self._limit_gaps(event, probe, outcome, similarity)
        exact = self._read_exact(probe, outcome)
        if self.event == "changed_explanation" and not event.similarity.larger_is_closer:
            probe.skip_constant(probe.reference, similarity <= 0)
        # Eq. 5 asks for a kept class (J < 0), Eq. 6 and misclassification for a changed one (J >= 0)
        if self.event == "changed_explanation":
            feasible = margin < 0
        else:
            feasible = margin >= 0
        drafts = _charge_drafts(probe, rough)
        return WorstCaseResult(
            **probe.common_fields(self),
            **kept.fields(),
            **perturbed,
            value=margin if self.event == "misclassification" else similarity,
            similarity=similarity,
            found=feasible & evaluated,
            misinterpreted=event.has_happened(similarity, margin) & evaluated,
            followed_gradients=evaluated & (outcome is not None and outcome.followed_gradients),
            gap=gaps,
            sens_max=objective.sens_max,
            sens_lips=objective.sens_lips,
            plausibility=plausibility,
            exact=exact,
            drafts=drafts,
            trace=make_empty_trace(inputs) if outcome is None else read_trace(event, outcome.trace),
            traced=usable,
        )

    def _check_gradients(self, call: Call, search: Search, event: Event, region: Region) -> None:
        """Raise `ArgumentError` for a white-box search where something cannot be differentiated."""
        ignores_maps = not event.needs_explanation
        parts = {
            "the model": call.model.differentiable,
            "the explainer": call.explainer.differentiable or ignores_maps,
            "the similarity": event.similarity.differentiable or ignores_maps,
            "the neighbourhood": region.differentiable,
        }
        missing = [part for part, differentiable in parts.items() if not differentiable]
        if search.white_box and missing:
            words = f"a black-box search, since {' and '.join(missing)} cannot be differentiated"
            raise ArgumentError("search", words, repr(search.name))

    def _make_probe(self, call: Call, event: Event, region: Region) -> Probe:
        return Probe(
            call,
            event.similarity,
            absolute=self.absolute,
            explain=self.explain,
            margin=self.margin,
            region=region,
            needs_maps=event.needs_explanation,
        )

    def _make_rough_objective(
        self, call: Call, search: Search, objective: EventObjective
    ) -> RoughObjective | None:
        """The objective with a lower setting of the explainer's dial, for a search with drafts; else None."""
        event = objective.event
        region = objective.probe.region
        assert region is not None
        if not isinstance(search, DraftSearch) or not event.needs_explanation:
            return None
        explainer = _make_rougher(call.explainer, search)
        if explainer is None:
            return None
        rough_call = dataclasses.replace(call, explainer=explainer, targets=objective.probe.targets)

        def make() -> EventObjective:
            lower_setting = getattr(explainer, explainer.dial)
            setting = getattr(call.explainer, explainer.dial)
            record_choice(
                explainer.dial, f"{lower_setting} in drafts of the search, {setting} in values"
            )
            return EventObjective(
                event, self._make_probe(rough_call, event, region), call.inputs, track=False
            )

        return RoughObjective(make, objective.usable, explainer.count_rows_of(call.inputs))

    def _limit_gaps(
        self, event: Event, probe: Probe, outcome: SearchResult | None, similarity: Tensor
    ) -> Tensor:
        """The gap of each origin `(P,)`; no similarity lies beyond the ends of its range."""
        if outcome is None or outcome.gap is None:
            unknown = torch.full(
                (len(probe.usable()),), torch.nan, dtype=torch.float64, device=similarity.device
            )
            return probe.scatter_to_all(unknown)
        gaps = probe.scatter_to_all(outcome.gap)
        if self.event == "misclassification":
            return gaps
        worse = event.similarity.larger_is_closer == (self.event == "changed_explanation")
        low, high = event.similarity.range
        farthest = low if worse else high
        room = (similarity - farthest).abs().double()
        return torch.where(gaps.isfinite(), torch.minimum(gaps, room), gaps)

    def _read_exact(self, probe: Probe, outcome: SearchResult | None) -> Tensor | None:
        """Whether all inputs were tried, bool `(P,)`; None where the search cannot do so."""
        if outcome is not None and outcome.exact is not None:
            return probe.scatter_to_all(outcome.exact)
        if not self._searches_candidates:
            return None
        return probe.scatter_to_all(torch.zeros_like(probe.usable(), dtype=torch.bool))


def _make_rougher(explainer: Explainer, search: DraftSearch) -> Explainer | None:
    """The explainer for drafts; None where the dial has no lower setting, or there is no dial."""
    return explainer.with_dial(search.effort or explainer.draft_share or _USUAL_EFFORT)


def _charge_drafts(probe: Probe, rough: RoughObjective | None) -> Tensor | None:
    """Count rough maps as what they cost, in evaluations of the probe; how many there were, int64 `(P,)`, or None."""
    if rough is None or rough.evaluations is None:
        return None
    drafts = rough.evaluations
    # rounded up: a part of an evaluation is paid as a whole one
    cost = -(-drafts * rough.rows // probe.rows_per_query)
    probe.charge(torch.arange(len(drafts), device=drafts.device), cost)
    return drafts
