"""Attacks on attributions, and how similar the map stays when locality and diversity count.

The attack looks for a perturbed input, in the maximum norm ball and within the bounds, that keeps the class and changes
the map. It takes steps along the sign of the gradient of an objective (see `attribution_objectives`), through the
explanation itself, from several random starts. The result is the point with the largest objective among all steps. Then
the maps of the clean and the perturbed input are compared by all similarities that were asked for. By the top-k
intersection alone a map that moved by a pixel is a different map. The locality-sensitive similarities say how much of
the apparent fragility was such a shift.

Source: Kamath, Mittal, Deshpande and Balasubramanian, "Rethinking robustness of model attributions" (AAAI 2024), Sec. 3
and App. C; the attacks are those of Ghorbani, Abid and Zou, "Interpretation of neural networks is fragile" (AAAI 2019).
We depart from them in two things. Where a point has left the class, the next step leads back instead of on (see
`attack_objective`, also for the authors' protocol). And
gradients are those of the network with softplus of sharpness `beta` for ReLU, while every point is evaluated on the
network itself. Which sharpness is better depends on explainer and data, so by default the starts share two of them.

The authors' script (github.com/ksandeshk/LENS, with the settings of Chen et al. 2019) departs from the paper, too. With
`protocol="authors"` every start is the clean input; steps go on where the class is lost; and of all points that keep
the class the attack takes the one with the smallest Kendall's tau between the maps. At a clean digit less than `t`
positions have any mass, so the gradient of `top_k` is 0. The script then follows the signs of rounding errors; here the
first step has random signs.

In a transformation the attack searches its parameters: each step moves every parameter by a share of its range. Maps
that were moved back are compared where both inputs see a position; for the sets of the report, the other positions have
no mass.

Cost for each sample: `restarts * (2 * steps + 1) + 3` predictions with explanation, 2 for the random ones; and for the
guided ones a twentieth more, but at most 100, of predictions only, for the share that keeps the class (`kept_class`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from standfast.algorithms.searches.sign import SignSearch
from standfast.errors import check
from standfast.explainers import Explainer
from standfast.metrics.base import NO_EFFECT, Cost, Metric, PartOf, metrics
from standfast.metrics.kept_class import KeptClass, plan_draws
from standfast.metrics.lens.attack_objective import AttackObjective
from standfast.metrics.lens.attack_result import AttributionAttackResult
from standfast.metrics.lens.attribution_objectives import (
    BLIND,
    AttributionObjective,
    BlindObjective,
    GuidedObjective,
)
from standfast.metrics.lens.attribution_objectives import get as get_attack
from standfast.metrics.probe import Call, Probe
from standfast.metrics.probe_objective import reevaluate_found
from standfast.model import module_name
from standfast.needs import Needs
from standfast.neighbourhoods import LinfBall, Neighbourhood, Transformation, check_neighbourhood
from standfast.records import Count, CountFromZero, CountOrFraction, Positive, set_fields
from standfast.similarity import (
    Similarity,
    lens_profile,
    per_position,
)
from standfast.similarity import get as get_similarity
from standfast.similarity import similarities as known_similarities
from standfast.similarity.authors_protocol import Protocol
from standfast.similarity.stored import (
    larger_is_closer,
    name_first_similarity,
)
from standfast.value_spec import ValueSpec

_DRAWS = 32  # random pairs for a chance level without a closed form: its standard error is below 0.01 for k = 100
_LARGE = 1 << 13  # positions from which on a quarter of the draws is enough, since sets are larger


@metrics.register("attribution_attack")
@dataclass(frozen=True)
class AttributionAttack(Metric):
    """How similar the map is after an attack on it, by any number of similarities.

    Args:
        neighbourhood: a `LinfBall` or a transformation; a guided attack needs one that can be differentiated. The
            random starts are drawn from its distribution.
        attack: `"top_k"`, `"mass_centre"`, `"target"`, `"lens"`, which need an explainer that can be differentiated
            (of ours `saliency`, `input_x_gradient`, `integrated_gradients`, `smoothgrad`, `gradient_shap`, `deeplift`,
            `gradcam` and `fullgrad`); `"random_sign"` or `"universal"`, which need nothing. With options as in
            `"top_k:t=200"`, or configured.
        steps: how many from each start, at least 1.
        step: the length of each in every feature; by default 2.5 times the radius, divided by `steps`. For a
            transformation None: the same with half the range of each parameter for the radius.
        restarts: how many random starts, at least 1.
        similarities: names or similarities, at least one; the first is what explainers are ranked by.
        k: how many positions the report draws and counts: a number, or a share in (0, 1). By default it is that of the
            first similarity that has one, or else a tenth.
        curve_k: numbers of positions of its curves, or shares of them.
        curve_w: windows of its curves, in positions to each side.
        absolute: compare absolute attributions.
        beta: sharpness of the softplus that replaces ReLU where gradients are computed, which the starts use in turn.
            With a single start it is the first.
        protocol: `paper`: from random starts, the point with the largest objective; `authors`: the choices of the
            authors' script (see above). For their sets and windows, give similarities the option of the same name.

    Raises:
        ArgumentError: an option out of range, or a neighbourhood in another norm; in the call, a guided attack for an
            explainer or a transformation that cannot be differentiated, or a k that maps of this size do not have.

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:2]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> similarities = ("topk_intersection:k=100", "lens_precision:k=100,w=1")
    >>> attack = AttributionAttack(standfast.LinfBall(0.1), "top_k", steps=5, restarts=2, similarities=similarities)
    >>> result = attack(model, "saliency", digits.inputs)
    >>> bool((result.similarities[:, 1] >= result.similarities[:, 0]).all()), result.label_kept.tolist()
    (True, [True, True])
    """

    name = "attribution_attack"
    takes_turns = True
    needs = Needs(
        other="gradients and an explainer that can be differentiated, unless attack is random_sign or universal"
    )
    neighbourhood_option = "neighbourhood"
    evidence = "searched"
    citation = "kamath2024rethinking"
    roles = {
        **dict.fromkeys(("k", "curve_k", "curve_w"), NO_EFFECT),  # for the report's figures
        **dict.fromkeys(
            ("steps", "step", "restarts", "beta", "protocol"), PartOf("attack", unless=BLIND)
        ),
    }
    presets = {"quick": {"steps": 10, "restarts": 1}}
    ladder = (
        {"steps": 3, "restarts": 1},
        {"steps": 10, "restarts": 1},
        {"steps": 30, "restarts": 1},
        {"steps": 100, "restarts": 1},
    )

    neighbourhood: Neighbourhood
    attack: str | AttributionObjective = "top_k"
    steps: Count = 100
    step: Positive | None = None
    restarts: Count = 3
    similarities: tuple[str | Similarity, ...] = (
        "topk_intersection",
        "lens_precision",
        "lens_recall",
    )
    k: CountOrFraction | None = None
    curve_k: tuple[CountOrFraction, ...] = (0.02, 0.05, 0.1, 0.2, 0.4)
    curve_w: tuple[CountFromZero, ...] = (1, 2, 3)
    absolute: bool = True
    beta: Positive | tuple[Positive, ...] = (10.0, 30.0)
    protocol: Protocol = "paper"

    def __post_init__(self) -> None:
        check_neighbourhood(self.neighbourhood)
        has_steps = isinstance(self.neighbourhood, LinfBall | Transformation)
        words = "a LinfBall or a transformation, since steps follow signs of gradients"
        check(has_steps, "neighbourhood", words, self.neighbourhood)
        get_attack(self.attack)
        is_length = self.step is None or isinstance(self.neighbourhood, LinfBall)
        check(
            is_length,
            "step",
            "None for a transformation, each of whose parameters has a range of its own",
            self.step,
        )
        listed = isinstance(self.similarities, list | tuple) and len(self.similarities) > 0
        check(listed, "similarities", "a list with at least one entry", repr(self.similarities))
        if isinstance(self.beta, tuple):
            betas = self.beta
        else:
            betas = (self.beta,)
        set_fields(self, beta=betas, similarities=tuple(self.similarities))
        self._check_similarities()
        if self.k is None:
            ks = (getattr(similarity, "k", None) for similarity in self._similarities())
            numbers = [k for k in ks if isinstance(k, int | float)]
            set_fields(self, k=numbers[0] if numbers else None)

    def _check_similarities(self) -> None:
        """Names must be usable as columns, and a report must know the direction of the first from its name."""
        first = self._similarities()[0]
        names = [similarity.name for similarity in self._similarities()]
        check(len(set(names)) == len(names), "similarities", "each of them once", names)
        taken = {"sample", "status", *(field.name for field in fields(AttributionAttackResult))}
        for name in names:
            check(
                name not in taken,
                "similarities",
                "names that are no columns of the result",
                repr(name),
            )
        has_order = first.larger_is_closer or first.name.partition(":")[0] in known_similarities
        check(
            has_order,
            "similarities",
            "as the first a similarity, or a registered discrepancy",
            repr(first.name),
        )

    @classmethod
    def value_spec(cls, options: Mapping[str, Any]) -> ValueSpec:
        """The first similarity, of the samples whose class was kept: similar explanations are better."""
        similarity = name_first_similarity(options)
        close_is_larger = larger_is_closer({"similarity": similarity})
        return ValueSpec(
            f"{similarity} after the attack",
            similarity,
            "higher" if close_is_larger else "lower",
            decimals=3,
            only=("label_kept",),
            caution="A stronger attack may reach a worse value.",
            good="more robust",
            empty="for which no input with the same answer was found",
            same=1.0 if close_is_larger else 0.0,
        )

    @classmethod
    def example(cls) -> AttributionAttack:
        return cls(LinfBall(0.1), "top_k", steps=5, restarts=2)

    def compare_unrelated(self, maps: Tensor, others: Tensor) -> Tensor | None:
        first = self._similarities()[0]
        one_side = first.of_maps(self._prepare(maps))
        other_side = first.of_maps(self._prepare(others))
        return first(one_side, other_side)

    def _prepare(self, maps: Tensor) -> Tensor:
        """The maps as they are compared."""
        return maps.abs() if self.absolute else maps

    @property
    def compares_in_order(self) -> bool:
        return not self._similarities()[0].symmetric

    def describe_misfit(self, explainer: Explainer) -> str:
        """Only blind attacks take an explainer that cannot be differentiated."""
        guided = isinstance(get_attack(self.attack), GuidedObjective)
        if explainer.differentiable or not guided:
            return ""
        return "the explainer cannot be differentiated"

    @property
    def own_label(self) -> str:
        """The metric's name and the attack's."""
        return f"{self.name}: {get_attack(self.attack).name}"

    def options(self) -> dict[str, Any]:
        """The configuration as plain values, similarities by name."""
        return {
            **super().options(),
            "similarities": [similarity.name for similarity in self._similarities()],
        }

    def cost(self, classes: int | None = None) -> Cost:
        """What the search, the clean input, the last check and the draws cost; a blind attack only explains twice."""
        if not isinstance(get_attack(self.attack), GuidedObjective):
            return Cost(predictions=0, explanations=2)
        explanations = self._search_budget() + 2 + self._count_draws()
        return Cost(predictions=0, explanations=explanations)

    def _similarities(self) -> list[Similarity]:
        return [get_similarity(similarity) for similarity in self.similarities]

    def _search_budget(self) -> int:
        """The clean input, the starts, and for each step a gradient and a query."""
        return 1 + self.restarts * (2 * self.steps + 1)

    def _count_draws(self, probe: Probe | None = None) -> int:
        """The draws for the share of the neighbourhood that keeps the class."""
        return plan_draws(self._search_budget(), probe)

    @property
    def _betas(self) -> tuple[float, ...]:
        if isinstance(self.beta, tuple):
            return self.beta
        return (self.beta,)

    def _search(self) -> SignSearch:
        """The search, whose sharpness is relative to the first `beta`."""
        step = self.step
        if step is None and isinstance(self.neighbourhood, LinfBall):
            step = 2.5 * self.neighbourhood.radius / self.steps
        # the gradients of a probe have the first beta as their sharpness; the search multiplies it
        sharpness = tuple(beta / self._betas[0] for beta in self._betas)
        # in a ball of radius 0 the search's own step is 0
        return SignSearch(
            self.restarts, step or None, sharpness, from_centre=self.protocol == "authors"
        )

    def evaluate(self, call: Call) -> AttributionAttackResult:
        """Attack the map of every sample, and compare the maps before and after."""
        attack = get_attack(self.attack)
        model = call.model
        inputs = call.inputs
        region = self.neighbourhood.around(inputs, model.bounds)
        if isinstance(attack, GuidedObjective):
            around = type(self.neighbourhood).__name__
            for fits, reason in (
                (call.explainer.differentiable, f"{call.explainer.label} cannot be differentiated"),
                (model.differentiable, f"{module_name(model.module)} has no gradients"),
                (region.differentiable, f"{around} cannot be differentiated by its parameters"),
            ):
                check(fits, "attack", f"random_sign or universal, since {reason}", attack.name)
        # whatever the similarities are, the report counts the largest positions, which a constant map does not have
        probe = Probe(call, "topk_intersection", absolute=self.absolute, region=region)
        self._check_sizes(probe.reference[:1])
        usable = probe.usable()
        seed = call.seed
        points = region.centre.clone()
        # a blind attack only explains twice: it has no budget of which draws are a share
        draws = 0
        if isinstance(attack, GuidedObjective):
            draws = self._count_draws(probe)
        kept = KeptClass(probe, draws)
        if len(usable):
            usable_region = region.select(usable)
            if isinstance(attack, GuidedObjective):
                objective = AttackObjective(attack, probe, self._betas[0], self.protocol)
                perturbed = objective.run(
                    self._search(), usable_region, self._search_budget(), seed
                ).inputs
            else:
                assert isinstance(attack, BlindObjective)
                perturbed = attack.draw(usable_region, seed)
            # the result of a search is not trusted: it is moved into the neighbourhood, and evaluated again below
            points[usable] = usable_region.project(perturbed[:, None])[:, 0]
            # another seed than that of the search, so that the draws are not its random starts
            kept.draw(~seed)
        return self._result(probe, inputs, points, kept)

    def _check_sizes(self, maps: Tensor) -> None:
        """Raise before the attack what would be raised after it, such as a k that maps of this size do not have."""
        for similarity in self._similarities():
            compared = similarity.of_maps(maps)
            similarity(compared, compared)
        positions = per_position(maps, "abs_sum").abs()
        lens_profile(positions, positions, (self._size, *self.curve_k), (0,), diverse=False)

    def _result(
        self, probe: Probe, inputs: Tensor, points: Tensor, kept: KeptClass
    ) -> AttributionAttackResult:
        """From a new evaluation of the points."""
        measured, fields, moved = reevaluate_found(
            probe, self.neighbourhood, inputs, points, compare=False
        )
        similarities = self._similarities()
        maps, visible = moved or (fields["maps"], None)
        before = self._prepare(probe.maps)
        after = self._prepare(maps)
        pairs = [
            (similarity, similarity.of_maps(before), similarity.of_maps(after))
            for similarity in similarities
        ]
        if visible is None:
            values = [similarity(a, b) for similarity, a, b in pairs]
        else:
            values = [similarity.compare_masked(a, b, visible) for similarity, a, b in pairs]
            # chance levels and profiles know no mask: a position that only one input shows gets no mass
            before = torch.where(visible, before, 0.0)
            after = torch.where(visible, after, 0.0)
        chance = [self._find_chance(similarity, before, after) for similarity in similarities]
        before, after = per_position(before, "sum"), per_position(after, "sum")
        profile = lens_profile(before, after, self.curve_k, self.curve_w)
        alike = lens_profile(before, after, (self._size,), (1, 2), diverse=False)
        within = (alike.precision[:, 0] + alike.recall[:, 0]) / 2
        label_kept = measured.margin < 0
        changed = (fields["inputs"] != inputs).flatten(1).any(1)
        return AttributionAttackResult(
            **probe.common_fields(self),
            **kept.fields(),
            **fields,
            value=values[0],
            names=tuple(similarity.name for similarity in similarities),
            similarities=torch.stack(values, dim=1),
            chance=torch.stack(chance, dim=1),
            # the clean input keeps its class, too, and is not a perturbed input that was found
            found=label_kept & changed,
            label_kept=label_kept,
            kept=alike.intersection[:, 0],
            kept_within_1=within[:, 0],
            kept_within_2=within[:, 1],
            profile=profile,
        )

    @property
    def _size(self) -> int | float:
        """How many of the first positions are compared; a tenth of them where no similarity says it."""
        if self.k is None:
            return 0.1
        return self.k

    def _find_chance(self, similarity: Similarity, before: Tensor, after: Tensor) -> Tensor:
        """The chance level of each pair `(N,)`; NaN for a similarity that has none."""
        if before.shape[2:].numel() >= _LARGE:
            draws = _DRAWS // 4
        else:
            draws = _DRAWS
        level = similarity.chance(similarity.of_maps(before), similarity.of_maps(after), draws)
        if level is None:
            return before.new_full((len(before),), torch.nan)
        return level.value
