"""How probable is a misinterpretation within a neighbourhood?

    P(x) = P(x' in F),  x' drawn from the neighbourhood of x

F is the event `changed_explanation`, `changed_class` or `misclassification` (SAFARI, Eq. 3 and 10). Source: Huang et
al., "SAFARI: Versatile and Efficient Evaluations for Robustness of Interpretability" (ICCV 2023), Sec. 5 and App. 8.4.
The estimators, and where they depart from the paper, are in `standfast.algorithms.SubsetSimulation` and
`.monte_carlo`.

`changed_class` is reached in two stages: first the class changes, and then, within these inputs, the explanation stays
(Eq. 13 to 15). So one run also estimates the probability of plain misclassification. `changed_explanation` has the
class as its first stage as well, which costs nothing as long as most of the neighbourhood keeps the class.

Cost: predictions with explanation for each sample. Plain draws and short runs end when the probability is known
(`standfast.algorithms.SubsetSimulation`). A wide run takes `particles * (96 + moves * levels)`, with about
`ln P / ln quantile` levels; without the large first populations (`first=1`), `particles * (1 + moves * levels)`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from standfast.algorithms.rare_events.estimate import Levels, RareEventEstimate
from standfast.algorithms.rare_events.plain_sampling import monte_carlo
from standfast.algorithms.rare_events.population import Proposal
from standfast.algorithms.rare_events.subset_sampling import (
    SubsetSimulation,
    plan_few,
    plan_first,
    plan_lean,
    plan_return,
    plan_wide,
)
from standfast.algorithms.searches.auto import AutoSearch
from standfast.errors import check_integer
from standfast.explainers import Explainer, InputCopy
from standfast.metrics.base import Cost, Metric, PartOf, metrics
from standfast.metrics.kept_class import KeptClass
from standfast.metrics.probe import Call, Explain, Probe
from standfast.metrics.safari.event_objective import EventObjective
from standfast.metrics.safari.events import Event, EventName, make_event
from standfast.metrics.safari.probability_result import ProbabilityResult
from standfast.model import Output
from standfast.neighbourhoods import LinfBall, Neighbourhood
from standfast.records import Count
from standfast.similarity import Similarity
from standfast.similarity import get as get_similarity
from standfast.tensors import draw_seed
from standfast.value_spec import USEFUL, ValueSpec

#: the events in words, for titles
_EVENTS = {
    "changed_explanation": "the explanation changes and the answer is kept",
    "changed_class": "the answer changes and the explanation stays",
    "misclassification": "the answer changes",
}
_SEARCH = 500  # evaluations of the short search for witnesses
_SEARCH_SHARE = 1 / 16  # of the budget, at most
#: of samples that were not estimated: a bound that says nothing
_NOT_ESTIMATED: Mapping[str, float | bool] = {
    "log_probability": 0.0,
    "std_error": math.nan,
    "low": -math.inf,
    "high": 0.0,
    "censored": True,
    "resolved": False,
    "from_event": math.nan,
    "from_event_error": math.nan,
    "stalled": False,
    "acceptance": math.nan,
}
# what changes the seed of the search, so that it is not that of the simulation
_SEARCH_SEED = 1 << 62


@metrics.register("misinterpretation_probability")
@dataclass(frozen=True)
class MisinterpretationProbability(Metric):
    """The probability of a misinterpretation, as ln P with an interval.

    Args:
        neighbourhood: where perturbed inputs lie and how they are distributed.
        event: `"changed_explanation"`, `"changed_class"` or `"misclassification"`, which does not run the explainer.
        similarity: a similarity or its name.
        threshold: of the similarity. None: the similarity's own (of Pearson's correlation 0.4 for a changed explanation
            and 0.6 for a kept one).
        method: `"subset"` simulation, or plain `"monte_carlo"` with `samples`.
        error: the standard error of ln P that is wanted, after which plain draws and short runs end. With a `budget`,
            runs are repeated until it is reached. None: one wide run. See `standfast.algorithms.SubsetSimulation`.
        budget: model evaluations at most for each sample, the clean input included.
        from_event: also estimate ln P from the event back to the prior, as a check, if the budget allows. With default
            settings it costs about half as much again. Where a short search finds a worst case in the event, half of
            its particles start there: the search `auto`, which follows gradients where there are some, with 500
            evaluations, or a sixteenth of the budget if that is less.
        particles, moves, quantile, first, proposal, floor: see `standfast.algorithms.SubsetSimulation`.
        samples: of plain Monte Carlo.
        absolute, explain, margin: as for `WorstCase`.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:1]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> metric = MisinterpretationProbability(standfast.LinfBall(0.1), threshold=0.9, particles=100, moves=2)
    >>> result = metric(model, "input_x_gradient", digits.inputs)
    >>> bool(result.low < result.log_probability), bool(result.log_probability < result.high)
    (True, True)
    """

    name = "misinterpretation_probability"
    version = 2
    neighbourhood_option = "neighbourhood"
    budget_option = "budget"
    evidence = "probability"
    citation = "huang2023safari"
    roles = {
        **dict.fromkeys(
            (
                "particles",
                "moves",
                "quantile",
                "first",
                "proposal",
                "floor",
                "error",
                "budget",
                "from_event",
            ),
            PartOf("method", only=("subset",)),
        ),
        "samples": PartOf("method", only=("monte_carlo",)),
    }
    has_random_cost = True
    presets = {
        # with so few evaluations, plain samples resolve more than levels do
        "quick": {
            "method": "monte_carlo",
            "samples": 100,
            "particles": 100,
            "first": 16.0,
            "moves": 3,
            "budget": 10_000,
        },
        "paper": {
            "error": None,
            "first": 1.0,
            "quantile": 0.1,
            "moves": 250,
            "proposal": "random_walk",
        },
    }

    neighbourhood: Neighbourhood
    event: EventName = "changed_explanation"
    similarity: str | Similarity = "pearson"
    threshold: float | None = None
    method: Literal["subset", "monte_carlo"] = "subset"
    particles: int = 1000
    moves: int = 4
    quantile: float = 0.5
    first: float = 32.0
    proposal: Proposal = "gaussian"
    floor: float = -100.0
    error: float | None = 0.15
    budget: int | None = None
    from_event: bool = False
    samples: Count = 10_000
    absolute: bool = True
    explain: Explain = "predicted"
    margin: Output = "logit"

    def __post_init__(self) -> None:
        self._make_simulation(None)
        check_integer(self.budget, "budget", self.particles + 1, also=(None,))
        self._event()

    @classmethod
    def value_spec(cls, options: Mapping[str, Any]) -> ValueSpec:
        """Natural logarithms of probabilities, some of which are only upper bounds."""
        event = str(options.get("event"))
        return ValueSpec(
            f"Probability that {_EVENTS.get(event, event)}",
            "probability",
            # misclassification says nothing about an explainer
            None if event == "misclassification" else "lower",
            decimals="probability",
            censored="bound",
            censored_side="upper",
            good="more robust",
            asks="other" if event == "changed_class" else None,
        )

    @classmethod
    def example(cls) -> MisinterpretationProbability:
        return cls(LinfBall(0.1), threshold=0.95, particles=40, moves=2, floor=-8.0)

    @property
    def own_label(self) -> str:
        """The metric's name and the event's."""
        return f"{self.name}: {self.event}"

    def cost(self, classes: int | None = None) -> Cost:
        """Those of one run, for an event whose ln P is half the floor."""
        if self.method == "monte_carlo":
            return Cost(predictions=0, explanations=self.samples)
        levels = round(0.5 * self.floor / math.log(self.quantile))
        options = self._make_simulation(self.budget)
        largest = plan_first(options, 1)
        few = plan_few(options, largest)
        lean = few < largest and not self.from_event
        if lean:
            plan = plan_lean(options, largest)
        else:
            plan = plan_wide(options, largest)
        # the last population is that of all later levels, too
        plan += plan[-1:] * (levels + 1 - len(plan))
        of_levels = [size * moves for size, moves in plan[1 : levels + 1]]
        total = largest + sum(of_levels)
        if self.from_event:
            _, _, of_return = plan_return(self.particles, self.moves, levels)
            total += of_return + self._plan_search()
        return Cost(predictions=0, explanations=min(total, self.budget or sys.maxsize))

    def pilot(self) -> MisinterpretationProbability:
        """A small population goes as deep as a large one, so it shows how many levels there will be."""
        if self.method == "monte_carlo":
            return replace(self, samples=min(self.samples, 1000))
        return replace(
            self, particles=min(self.particles, 40), first=4.0, moves=1, error=None, budget=None
        )

    def compare_unrelated(self, maps: Tensor, others: Tensor) -> Tensor | None:
        event = self._event()
        alike = event.compare_maps(maps, others, self.absolute)
        if alike is None:
            return None
        # a margin below 0: the class counts as kept
        return event.has_happened(alike, torch.full_like(alike, -1.0)).double()

    @property
    def compares_in_order(self) -> bool:
        return self.event != "misclassification" and not get_similarity(self.similarity).symmetric

    def takes_control(self, control: Explainer) -> bool:
        """None: a copy of the input changes so rarely that its probability would cost more than all explainers."""
        return False

    def describe_misuse(self, unrelated: float) -> str:
        if unrelated >= USEFUL:
            return ""
        event = self._event()
        return (
            f"{self.own_label}: with the threshold {event.threshold:g} of {event.similarity.name},"
            f" {100 * (1 - unrelated):.0f}% of the pairs of maps of different inputs count as unchanged. Choose another"
            " threshold or similarity"
        )

    def _event(self) -> Event:
        return make_event(
            self.event, get_similarity(self.similarity), self.threshold, needs_threshold=True
        )

    def evaluate(self, call: Call) -> ProbabilityResult:
        """Estimate the probability of the event around every sample."""
        event = self._event()
        model = call.model
        inputs = call.inputs
        region = self.neighbourhood.around(inputs, model.bounds)
        needed = event.needs_explanation
        probe = Probe(
            # the number must not depend on an explainer that the event ignores
            call if needed else replace(call, explainer=InputCopy()),
            event.similarity if needed else None,
            absolute=self.absolute,
            explain=self.explain,
            margin=self.margin,
            region=region,
        )
        usable = probe.usable()

        witnesses = None
        witnessed = torch.zeros(len(usable), dtype=torch.bool, device=inputs.device)
        searched = 0
        if self.from_event and self.method == "subset" and len(usable):
            objective = EventObjective(event, probe, inputs, track=False)
            # the simulation draws the same seed again
            stream = None
            if call.generator is not None:
                stream = call.generator.clone_state()
            seed = draw_seed(stream)
            witnesses, witnessed, searched = self._search_witness(objective, seed)
        # the clean input is one
        budget = None
        if self.budget is not None:
            budget = self.budget - 1 - searched
        simulation = self._make_simulation(budget)
        first = plan_first(simulation, region.shape.numel())
        if not self.from_event:
            first = plan_few(simulation, first)
        kept_draws = self.samples if self.method == "monte_carlo" else first
        kept = KeptClass(probe, kept_draws)

        def score(x: Tensor, problem: Tensor) -> Tensor:
            measured = event.query(probe, x, usable[problem])
            # the first population is drawn from the neighbourhood itself
            kept.add(measured.margin, usable[problem])
            return event.scores(measured)

        estimate = None
        if len(usable):
            region = region.select(usable)
            if self.method == "monte_carlo":
                estimate = monte_carlo(score, region, self.samples, call.generator, indexed=True)
            else:
                estimate = simulation.run(score, region, witnesses, call.generator, indexed=True)
        return self._result(probe, inputs, usable, estimate, kept, witnessed)

    def _make_simulation(self, budget: int | None) -> SubsetSimulation:
        return SubsetSimulation(
            self.particles,
            self.moves,
            self.quantile,
            self.first,
            self.proposal,
            self.floor,
            self.error,
            budget,
            self.from_event,
        )

    @property
    def revision(self) -> int:
        """One more where the search for a witness meets candidates, which it used not to know."""
        has_witness = self.from_event and self.method == "subset"
        if has_witness and self.neighbourhood.chooses:
            return self.version + 1
        return self.version

    def _plan_search(self) -> int:
        """How many evaluations the search for a witness has, one of which checks what was found; 0: no search."""
        most = sys.maxsize if self.budget is None else self.budget
        room = most - 1 - self.particles  # the simulation needs one population
        planned = min(_SEARCH, int(_SEARCH_SHARE * most), room)
        if planned >= 2:
            return planned
        return 0

    def _search_witness(
        self, objective: EventObjective, seed: int
    ) -> tuple[Tensor | None, Tensor, int]:
        """Search for a point of the event around each of the U usable origins.

        Returns:
            What was found, `(U, 1, ...)` points of their regions, or None without a search; whether it is in the event,
            `(U,)`; the planned evaluations of each origin.
        """
        probe = objective.probe
        event = objective.event
        usable = objective.usable
        planned = self._plan_search()
        if not planned:
            return None, torch.zeros_like(usable, dtype=torch.bool), 0
        assert probe.region is not None
        usable_region = probe.region.select(usable)
        # the last evaluation is that of the witness itself
        outcome = objective.run(AutoSearch(), usable_region, planned - 1, seed ^ _SEARCH_SEED)
        points = usable_region.project(outcome.inputs[:, None])
        scores = event.scores(event.query(probe, points[:, 0], usable))
        witnessed = (scores >= 0).all(1)
        return points, witnessed, planned

    def _result(
        self,
        probe: Probe,
        inputs: Tensor,
        usable: Tensor,
        estimate: RareEventEstimate | None,
        kept: KeptClass,
        witnessed: Tensor,
    ) -> ProbabilityResult:
        columns: dict[str, Any] = {}
        for name, fill in _NOT_ESTIMATED.items():
            dtype = torch.bool if isinstance(fill, bool) else torch.float64
            columns[name] = torch.full((len(inputs),), fill, dtype=dtype, device=inputs.device)
        levels: list[Levels | None] = [None] * len(inputs)
        extreme = inputs.clone()
        reached = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
        if estimate is not None:
            target_error = math.inf
            if self.method == "subset" and self.error is not None:
                target_error = self.error
            reached[usable] = estimate.reaches(target_error)
            low, high = estimate.interval().unbind(1)
            ends = {"low": low, "high": high}
            for name, values in columns.items():
                if name in ends:
                    of_usable = ends[name]
                else:
                    of_usable = getattr(estimate, name)
                if of_usable is not None:
                    values[usable] = of_usable.to(values.dtype)
            extreme[usable] = probe.perturb(estimate.extreme, usable)
            # not strict, since plain Monte Carlo has no levels
            for row, level in zip(usable.tolist(), estimate.levels, strict=False):
                levels[row] = level
        return ProbabilityResult(
            **probe.common_fields(self, witnessed=witnessed),
            **kept.fields(),
            **columns,
            value=torch.where(columns["resolved"], columns["log_probability"], columns["high"]),
            from_prior=columns["log_probability"].masked_fill(columns["censored"], torch.nan),
            error_reached=reached,
            levels=tuple(levels),
            extreme=extreme,
            estimate=estimate,
            estimated=usable,
        )
