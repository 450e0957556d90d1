"""The worst case: how badly can an explanation be bent within a neighbourhood?

Problem, for `changed_explanation` (SAFARI, Eq. 5) and `changed_class` (Eq. 6), s the similarity of explanations:

    min s(g(x), g(x'))  subject to  J(x') < 0        max s(g(x), g(x'))  subject to  J(x') >= 0

over x' in the neighbourhood of x; `misclassification` maximises J. Source: Huang et al., "SAFARI: Versatile and
Efficient Evaluations for Robustness of Interpretability" (ICCV 2023), Sec. 4 and App. 8.3. We depart from it in the
default search (`block`; the paper's is `genetic`) and in working with s instead of 1/s (see `events`).

What a search returns is not trusted: it is projected into the neighbourhood, and predicted and explained anew.

Cost: at most `budget` predictions with explanation for each sample, and two more for the seed and the last check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast.algorithms.searches.base import Outcome, Search, Trace, searches
from holdfast.errors import ArgumentError, check, check_integer
from holdfast.explainers import Explainer
from holdfast.metrics.base import NO_EFFECT, Metric, Role, metrics
from holdfast.metrics.probe import Explain, Margin, Probe, check_probe_options
from holdfast.metrics.result import Result
from holdfast.metrics.safari.events import SAFARI, Event, EventName, make_event
from holdfast.model import Classifier
from holdfast.neighbourhood import LinfBall, Neighbourhood
from holdfast.similarity import Similarity
from holdfast.similarity import get as get_similarity
from holdfast.tensors import draw_seed


@dataclass(frozen=True)
class WorstCaseResult(Result):
    """The worst perturbed input of each sample.

    Attributes:
        similarity: of the explanations at the seed and at the worst input. `(N,)`
        margin: J at the worst input, `>= 0` where the class has changed. `(N,)`
        inputs: the worst inputs, `(N, ...)`; the seed itself where a sample was skipped.
        found: an input that meets the constraint was found (the class held, or changed, as the event has it). For
            `changed_explanation` the seed meets it, so it is False only for skipped samples. `(N,)` bool
        misinterpreted: the worst input is an event in the sense of Eq. 3, the threshold included. `(N,)` bool
        sens_max: largest `||g(x') - g(x)||_2` among all candidates seen (Table 1); NaN without tracking. `(N,)`
        sens_lips: largest `||g(x') - g(x)||_2 / ||x' - x||_2` among them; NaN without tracking. `(N,)`
        predicted: the class predicted at the worst input, `(N,)`.
        origins: the clean inputs that were disturbed, `(N, ...)`.
        origin_maps, maps: explanations of the seeds and of the worst inputs, signed, `(N, ...)`.
        trace: best similarity and margin so far against evaluations, for the samples of `traced`.
        traced: numbers of the samples that the rows of the trace and of the population belong to.
        population: the search's last one, `(len(traced), n, ...)`, where it keeps one and it was asked for.
    """

    similarity: Tensor
    margin: Tensor
    inputs: Tensor
    found: Tensor
    misinterpreted: Tensor
    sens_max: Tensor
    sens_lips: Tensor
    predicted: Tensor
    origins: Tensor
    origin_maps: Tensor
    maps: Tensor
    trace: WorstCaseTrace
    traced: Tensor = field(metadata={"per_sample": False})
    population: Tensor | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Seeds, worst inputs, their explanations, and the trace, NaN for skipped samples."""
        steps = len(self.trace.evaluations)
        lines = {}
        for name, values in (("similarity", self.trace.similarity), ("margin", self.trace.margin)):
            line = torch.full((len(self), steps), torch.nan, dtype=torch.float64, device=self.origins.device)
            if steps:
                line[self.traced] = values.double()
            lines[f"trace_{name}"] = line
        return {
            "origins": self.origins,
            "inputs": self.inputs,
            "origin_maps": self.origin_maps,
            "maps": self.maps,
            "trace_evaluations": self.trace.evaluations.expand(len(self), steps),
            **lines,
        }


@dataclass(frozen=True)
class WorstCaseTrace:
    """Best so far: evaluations `(T,)`, similarity and margin `(n, T)` (NaN where the event does not define it)."""

    evaluations: Tensor
    similarity: Tensor
    margin: Tensor


@metrics.register("worst_case")
@dataclass(frozen=True)
class WorstCase(Metric):
    """The worst similarity (or, for `misclassification`, margin) within a neighbourhood.

    Args:
        neighbourhood: where perturbed inputs may lie.
        event: `"changed_explanation"`, `"changed_class"` or `"misclassification"`.
        similarity: a similarity or its name.
        search: `"block"`, `"genetic"`, `"gradient"` (white box), `"random"`, or a configured search.
        budget: evaluations for each sample, at least 1.
        threshold: of the event, for `misinterpreted`; None for the similarity's own.
        absolute: compare absolute attributions, as the authors do.
        explain: at a perturbed input, explain the class `"predicted"` there or the `"origin"`'s.
        margin: J from `"logit"`s or from `"probability"`s.
        track_sensitivity: also keep the largest distance and slope among all candidates.
        keep_population: return the last population of searches that have one.

    >>> import holdfast as hf
    >>> digits = hf.data.bundled("digits")[:2]
    >>> classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> worst = WorstCase(hf.LinfBall(0.1), budget=20)(classifier, "input_x_gradient", digits.inputs)
    >>> worst.found.tolist(), bool((worst.similarity < 1).all())
    ([True, True], True)
    """

    name: ClassVar[str] = "worst_case"
    category: ClassVar[str] = "robustness"
    headline: ClassVar[str] = "similarity"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    citation: ClassVar[str] = "huang2023safari"
    bibtex: ClassVar[str] = SAFARI
    roles: ClassVar[Mapping[str, Role]] = {  # the search does not know them
        "threshold": NO_EFFECT,
        "track_sensitivity": NO_EFFECT,
        "keep_population": NO_EFFECT,
    }

    neighbourhood: Neighbourhood
    event: EventName = "changed_explanation"
    similarity: str | Similarity = "pearson"
    search: str | Search = "block"
    budget: int = 5000
    threshold: float | None = None
    absolute: bool = True
    explain: Explain = "predicted"
    margin: Margin = "logit"
    track_sensitivity: bool = False
    keep_population: bool = False

    def __post_init__(self) -> None:
        kind = type(self.neighbourhood).__name__
        check(isinstance(self.neighbourhood, Neighbourhood), "neighbourhood", "a LinfBall or an L2Ball", kind)
        check_integer(self.budget, "budget")
        check_probe_options(self.absolute, self.explain, self.margin)
        self._event()
        self._search()

    @classmethod
    def example(cls) -> WorstCase:
        """See `Metric`."""
        return cls(LinfBall(0.1), budget=40)

    def expected_evaluations(self) -> int:
        """The budget, the seed and the last check."""
        return self.budget + 2

    def _event(self) -> Event:
        return make_event(self.event, get_similarity(self.similarity), self.threshold, needs_threshold=False)

    def _search(self) -> Search:
        return self.search if isinstance(self.search, Search) else searches[self.search]()

    def evaluate(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> WorstCaseResult:
        """See `Metric`."""
        event, search = self._event(), self._search()
        if search.white_box and not (explainer.differentiable and event.similarity.differentiable):
            raise ArgumentError(
                "search",
                "a black-box search, since the explainer or the similarity cannot be differentiated",
                repr(search.name),
            )
        probe = Probe(
            classifier,
            explainer,
            inputs,
            targets,
            event.similarity,
            absolute=self.absolute,
            explain=self.explain,
            margin=self.margin,
        )
        watched = _Watched(event, probe, inputs, probe.usable(), self.track_sensitivity)
        worst, trace, population = inputs.clone(), _empty_trace(inputs), None
        if len(watched.usable):
            region = self.neighbourhood.around(inputs[watched.usable], classifier.bounds)
            found = search.run(
                watched, region, self.budget, draw_seed(generator), watched.ascent if search.white_box else None
            )
            worst[watched.usable] = region.project(found.inputs[:, None])[:, 0]
            trace, population = _readable(event, found.trace), found.population
        margin, similarity, maps, predicted = watched.check(worst)
        usable = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
        usable[watched.usable] = True
        held = margin < 0 if self.event == "changed_explanation" else margin >= 0
        return WorstCaseResult(
            **probe.common_fields(self),
            value=margin if self.event == "misclassification" else similarity,
            similarity=similarity,
            margin=margin,
            inputs=worst,
            found=held & usable,
            misinterpreted=event.happened(similarity, margin) & usable,
            sens_max=watched.sens_max,
            sens_lips=watched.sens_lips,
            predicted=predicted,
            origins=inputs,
            origin_maps=probe.maps,
            maps=maps,
            trace=trace,
            traced=watched.usable,
            population=population if self.keep_population else None,
        )


class _Watched:
    """The objective that a search sees; keeps the largest sensitivities that went by."""

    def __init__(self, event: Event, probe: Probe, inputs: Tensor, usable: Tensor, track: bool) -> None:
        self.event, self.probe, self.inputs, self.usable, self.track = event, probe, inputs, usable, track
        self.sens_max = torch.full((len(inputs),), torch.nan, device=inputs.device, dtype=inputs.dtype)
        if track:
            self.sens_max[usable] = 0.0
        self.sens_lips = self.sens_max.clone()

    def __call__(self, x: Tensor, problem: Tensor) -> Outcome:
        seed = self.usable[problem]
        seen = self.event.query(self.probe, x, seed, want_distance=self.track)
        if self.track and seen.distance is not None:
            distance = seen.distance.nan_to_num(nan=0.0).to(self.sens_max.dtype)
            step = (x - self.inputs[seed]).flatten(1).norm(dim=1)
            slope = torch.where(step > 0, distance / step, 0.0)
            self.sens_max.scatter_reduce_(0, seed, distance, "amax")
            self.sens_lips.scatter_reduce_(0, seed, slope.to(self.sens_lips.dtype), "amax")
        return self.event.outcome(seen)

    def ascent(self, x: Tensor, problem: Tensor, feasible: Tensor) -> Tensor:
        """Where to go, on the model with softplus for ReLU: see `GradientObjective`."""

        def goal(maps: Tensor, margin: Tensor, seed: Tensor, feasible: Tensor) -> Tensor:
            if self.event.name == "misclassification":
                return margin
            alike = self.event.unlike(self.probe.similarity_to(seed, maps))
            better, broken = (-alike, -margin) if self.event.name == "changed_class" else (alike, margin)
            return torch.where(feasible, better, -broken)

        return self.probe.gradient(goal, x, self.usable[problem], feasible)

    def check(self, worst: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Margin, similarity, explanation and class at the returned inputs, by a look of our own."""
        seen = self.probe.query(worst, torch.arange(len(worst), device=worst.device), keep_maps=True)
        assert seen.similarity is not None
        assert seen.maps is not None
        assert seen.predicted is not None
        return seen.margin, seen.similarity, seen.maps, seen.predicted


def _readable(event: Event, trace: Trace) -> WorstCaseTrace:
    nan = torch.full_like(trace.value, torch.nan)
    if event.name == "misclassification":
        return WorstCaseTrace(trace.evaluations, nan, trace.value)
    sign = -1.0 if event.similarity.larger_is_closer == (event.name == "changed_explanation") else 1.0
    margin = trace.violation if event.name == "changed_explanation" else -trace.violation
    return WorstCaseTrace(trace.evaluations, sign * trace.value, margin)


def _empty_trace(inputs: Tensor) -> WorstCaseTrace:
    nothing = torch.zeros((0, 0), device=inputs.device)
    return WorstCaseTrace(torch.zeros(0, dtype=torch.int64), nothing, nothing)
