"""Counter-examples: a small change of an input after which one of its reasons is no longer named.

Problem, for a reason i of an input x, the k-th largest size t_i(x') among the other features, and J the margin:

    find x' near x with  s_i g_i(x') <= t_i(x'),  J(x') < 0,

where g is the explainer, s_i the sign of the reason at x, and x' lies in the neighbourhood. So the reason has fallen
behind k others, or has the other sign, and the answer stays. First a search maximises `t_i - s_i g_i` with the searches
for worst cases. What it finds is then made smaller: each parameter goes back to its clean value where the reason still
falls, those first that matter least, and what is left moves towards the clean input by bisection. So few cells change,
and these by little. That there is no smaller change is not shown. What is returned was evaluated once more.

The searches know no gradients here. The problems of all reasons of all inputs are searched in common batches.

Cost: at most `budget` explanations for each reason. The search has at least half of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.algorithms.searches.auto import AutoSearch
from standfast.algorithms.searches.base import Outcome
from standfast.metrics.probe import Call, Probe
from standfast.metrics.reasons.places import Speaking, measure_sizes
from standfast.neighbourhoods import Neighbourhood, Region
from standfast.statistics.reasons import ROUNDING

#: halvings of what is left of a change, which end at a millionth of it
_HALVINGS = 20
#: the evaluation of what is returned
_LAST = 1


@dataclass(frozen=True)
class SoughtFalls:
    """The reasons that shall fall, P in number.

    Attributes:
        rows: of which input each is, int64 `(P,)`.
        features: which feature, int64 `(P,)`.
        signs: 1 or -1, as it speaks at the clean input, `(P,)`.
        top: how many features are reasons, k.
        speaking: what features are ordered by.
    """

    rows: Tensor
    features: Tensor
    signs: Tensor
    top: int
    speaking: Speaking = "both"

    def measure_excess(self, maps: Tensor, problem: Tensor) -> Tensor:
        """How far reasons are behind the first k features, float64 `(M,)`; at least 0 where they have fallen.

        Args:
            maps: signed, `(M, F)`.
            problem: which reason is asked for in each, int64 `(M,)`.

        >>> one = torch.tensor([0])
        >>> sought = SoughtFalls(rows=one, features=one, signs=torch.tensor([1.0]), top=1)
        >>> sought.measure_excess(torch.tensor([[3.0, -1.0], [1.0, 2.5], [-3.0, 1.0]]), one.expand(3)).round(decimals=3)
        tensor([-2.0000,  1.5000,  4.0000], dtype=torch.float64)
        """
        sizes = measure_sizes(maps, self.speaking).double()
        own_place = self.features[problem][:, None]
        slack = ROUNDING * sizes.amax(1)
        other_sizes = torch.nn.functional.pad(sizes.scatter(1, own_place, -1.0), (0, 1))
        last_named = other_sizes.topk(self.top, dim=1).values[:, -1]
        speaks = maps.double().gather(1, own_place)[:, 0] * self.signs[problem]
        return last_named + slack - speaks


@dataclass(frozen=True)
class FoundFalls:
    """What was found for each of P reasons.

    Attributes:
        found: whether a change was found, bool `(P,)`.
        inputs: the changed inputs, `(P, F)`; the clean ones where none was found.
        turned: whether the reason speaks the other way there, bool `(P,)`.
        evaluations: how many changed inputs were explained, int64 `(P,)`.
    """

    found: Tensor
    inputs: Tensor
    turned: Tensor
    evaluations: Tensor


class _FallObjective:
    """What the search maximises; it counts the evaluations of each problem.

    Args:
        probe: of the clean inputs, with their regions.
        sought: the reasons.
    """

    def __init__(self, probe: Probe, sought: SoughtFalls) -> None:
        self._probe, self._sought = probe, sought
        self.evaluations = torch.zeros_like(sought.rows)

    def __call__(self, x: Tensor, problem: Tensor) -> Outcome:
        """The outcome of points `x` `(M, ...)` for the problems `problem` `(M,)`."""
        return self.explain(x, problem)[0]

    def explain(self, x: Tensor, problem: Tensor) -> tuple[Outcome, Tensor]:
        """The outcome, and the maps `(M, F)`."""
        self.evaluations.index_add_(0, problem, torch.ones_like(problem))
        origin, region = self._sought.rows[problem], self._probe.region
        measured = self._probe.query(x, origin, keep_maps=True, compare=False)
        assert measured.maps is not None
        maps = measured.maps.detach()
        if region is not None and region.aligns:  # of words that are left out nothing is named
            maps, is_there = region.align_maps(maps, x, origin)
            maps = torch.where(is_there, maps, 0.0)
        return Outcome(self._sought.measure_excess(maps, problem), measured.margin.double()), maps

    def has_fallen(self, x: Tensor, problem: Tensor) -> Tensor:
        """Whether the reasons have fallen at points `x` `(M, ...)`, and the answer stays, bool `(M,)`."""
        return _has_fallen(self(x, problem))


def _has_fallen(outcome: Outcome) -> Tensor:
    return (outcome.value >= 0) & (outcome.violation < 0)


def find_falls(
    call: Call, neighbourhood: Neighbourhood, sought: SoughtFalls, budget: int, seed: int
) -> FoundFalls:
    """Search, for each reason, a small change of its input after which it is no longer named.

    Args:
        call: the model, in a session; the explainer; and clean inputs `(N, F)` that can be explained.
        neighbourhood: which changes are allowed.
        sought: the reasons, whose features and signs are those of the maps of the clean inputs.
        budget: how many changed inputs are explained for each reason at most.
        seed: of the search.

    >>> import standfast
    >>> layer = torch.nn.Linear(2, 2)
    >>> _ = layer.load_state_dict({"weight": torch.tensor([[0.0, 0], [2, 3]]), "bias": torch.tensor([0.0, 1])})
    >>> model, inputs = standfast.Model(layer, (0.0, 1.0), device="cpu"), torch.tensor([[0.5, 0.4]])
    >>> second = SoughtFalls(torch.tensor([0]), torch.tensor([1]), torch.tensor([1.0]), top=1)  # 3 * 0.4 > 2 * 0.5
    >>> with model.session():
    ...     call = Call(model, standfast.explainers.get("input_x_gradient"), inputs)
    ...     falls = find_falls(call, standfast.LinfBall(0.2), second, budget=200, seed=0)
    >>> changed = falls.inputs[0]
    >>> falls.found.tolist(), bool(3 * changed[1] <= 2 * changed[0] + 1e-5)
    ([True], True)
    """
    inputs = call.inputs
    region = neighbourhood.around(inputs, call.model.bounds)
    probe = Probe(call, region=region)
    objective = _FallObjective(probe, sought)
    regions = region.select(sought.rows)
    reserved = 2 * regions.shape.numel() + _HALVINGS + _LAST
    search_budget = max(1, budget // 2, budget - reserved)
    searched = AutoSearch(drafts=False).run(objective, regions, search_budget, seed)
    points = regions.project(searched.inputs[:, None])[:, 0]
    problems = torch.arange(len(sought.rows), device=inputs.device)
    falling = problems[_has_fallen(Outcome(searched.value, searched.violation.double()))]
    shrinking = _Shrinking(objective, regions, points, budget - _LAST)
    shrinking.put_back(falling)
    shrinking.move_closer(falling)
    has_fallen = torch.zeros_like(problems, dtype=torch.bool)
    turned = has_fallen.clone()
    changed = inputs[sought.rows].clone()
    if len(falling):
        outcome, maps = objective.explain(shrinking.points[falling], falling)
        has_fallen[falling] = _has_fallen(outcome)
        turned[falling] = _are_turned(sought, maps, falling)
        perturbed = region.perturb(shrinking.points[falling], sought.rows[falling])
        changed[falling] = torch.where(has_fallen[falling][:, None], perturbed, changed[falling])
    return FoundFalls(has_fallen, changed, turned, objective.evaluations)


def _are_turned(sought: SoughtFalls, maps: Tensor, problem: Tensor) -> Tensor:
    """Whether the reasons speak the other way in maps `(M, F)`, and would be named, bool `(M,)`."""
    other_way = SoughtFalls(
        sought.rows, sought.features, -sought.signs, sought.top, sought.speaking
    )
    is_named = other_way.measure_excess(maps, problem) < 0
    return is_named & (sought.speaking == "both")


class _Shrinking:
    """Makes changes smaller, as long as the reasons still fall.

    Args:
        objective: says whether they do, and counts.
        regions: of the problems.
        points: `(P, ...)`, of the regions.
        budget: how many evaluations each problem may have in all.

    Attributes:
        points: the smallest changes so far.
    """

    def __init__(
        self, objective: _FallObjective, regions: Region, points: Tensor, budget: int
    ) -> None:
        self._objective, self._budget = objective, budget
        self._centre = regions.centre.to(points)
        choices = regions.choices
        #: which parameters may move by less; other categories and words are there or not
        self._moves = torch.ones(regions.shape, dtype=torch.bool, device=points.device)
        if choices is not None:
            self._moves = (choices.ordered | (choices.counts == 0).all(0)).reshape(regions.shape)
        self.points = points.clone()

    def _select_affordable(self, problems: Tensor, evaluations: int = 1) -> Tensor:
        """Those of the problems that may have so many evaluations more."""
        is_affordable = self._objective.evaluations[problems] + evaluations <= self._budget
        return problems[is_affordable]

    def put_back(self, problems: Tensor) -> None:
        """Give parameters of these problems `(Q,)` their clean values, one after the other."""
        order = self._order_by_effect(problems)
        for step in range(order.shape[1]):
            tried = self._select_affordable(problems)
            parameter = order[tried, step][:, None]
            current, clean = self.points[tried].flatten(1), self._centre[tried].flatten(1)
            is_changed = (current.gather(1, parameter) != clean.gather(1, parameter))[:, 0]
            candidates = current.scatter(1, parameter, clean.gather(1, parameter))[is_changed]
            self._keep_falling(candidates.reshape(-1, *self.points.shape[1:]), tried[is_changed])

    def _order_by_effect(self, problems: Tensor) -> Tensor:
        """The parameters of all problems, those first that do least alone, `(P, D)`; `problems` `(Q,)` are asked.

        Where the budget does not allow to try each alone, they are in their own order.
        """
        count = self._centre[0].numel()
        order = torch.arange(count, device=problems.device).repeat(len(self.points), 1)
        tried = self._select_affordable(problems, 2 * count)
        if not len(tried):
            return order
        clean, changed = (
            values[tried].flatten(1)[:, None] for values in (self._centre, self.points)
        )
        is_own = torch.eye(count, dtype=torch.bool, device=problems.device)
        alone = torch.where(is_own, changed, clean).flatten(0, 1)
        outcome = self._objective(
            alone.reshape(-1, *self.points.shape[1:]), tried.repeat_interleave(count)
        )
        keys = outcome.key().reshape(len(tried), count)
        order[tried] = keys.argsort(dim=1, stable=True)
        return order

    def move_closer(self, problems: Tensor) -> None:
        """Move the points of these problems towards the clean ones, by bisection."""
        nearest = torch.zeros(len(self.points), dtype=torch.float64, device=self.points.device)
        farthest = torch.ones_like(nearest)
        ends = self.points.clone()
        for _ in range(_HALVINGS):
            tried = self._select_affordable(problems)
            middle = (nearest[tried] + farthest[tried]) / 2
            clean, end = self._centre[tried], ends[tried]
            share = middle.reshape(-1, *[1] * (end.ndim - 1)).to(end)
            candidates = torch.where(self._moves, clean + share * (end - clean), end)
            falls = self._keep_falling(candidates, tried)
            farthest[tried] = torch.where(falls, middle, farthest[tried])
            nearest[tried] = torch.where(falls, nearest[tried], middle)

    def _keep_falling(self, candidates: Tensor, problems: Tensor) -> Tensor:
        """Take those of the candidates `(Q, ...)` at which the reasons still fall; which ones, bool `(Q,)`."""
        if not len(problems):
            return torch.zeros_like(problems, dtype=torch.bool)
        falls = self._objective.has_fallen(candidates, problems)
        self.points[problems[falls]] = candidates[falls]
        return falls
