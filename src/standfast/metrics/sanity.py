"""Sanity checks: does a map depend on the input, on the model and on the class, and does it mark what matters?

Every measure of stability rewards an explainer that says nothing: a map that is the same for every input never changes.
So each explainer is asked four questions first. For sample i let g be its map, f the model, t its class, and r
Pearson's correlation:

- input: the excess r(g(x_i), g(x_i')) - r(g(x_i), g(x_j)) of the similarity at a nearby input x_i' over that at other
  samples x_j: once of other classes, and once of the same class, where a map that reads the class alone is the same.
  x_i' lies a twentieth of the way to another sample. The excess is 0 for a map that is the same everywhere, and for one
  that is different everywhere.
- model: |r(g(x_i), g~(x_i))| with the map of the same class for scrambled weights (Adebayo et al., "Sanity checks for
  saliency maps", NeurIPS 2018), or, for a function of arrays, for the function of permuted columns. It is 1 for a map
  that ignores the model.
- removal: how often removing what the map marks most, with its sign, lowers the margin of the class more than removing
  as much at random. It is 1/2 for maps that mark anything. Removed features get the values of other samples, so that
  the model sees only values of the data.
- learned: the same against what the maps of the scrambled model mark. Removing the object of an image lowers the margin
  whatever the model has learned; maps of an untrained network mark it, too, and so do copies of the input. Each sample
  is compared with three scrambled models, and each group of samples with three of its own. So the mean depends little
  on one scrambling that marks much, or little, by luck; and it shows how much scramblings differ.
- class: r with the map of the runner-up class. It is 1 for a map that ignores the class.

Pairs of samples share maps. So `excess` has for each sample its jackknife pseudo-value of the mean excess, a
U-statistic (Arvesen, Ann. Math. Stat. 40, 1969): their mean is the statistic, and their spread gives its error.

What it costs says `SanityChecks.cost`.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from standfast.errors import check_integer
from standfast.explainers import Explainer, RandomisedExplainer
from standfast.explainers.background import measure_outside
from standfast.explainers.completeness import find_gap, forget_gap
from standfast.metrics.base import Cost, Metric
from standfast.metrics.probe import Call, Probe
from standfast.metrics.result import Result
from standfast.model import Model
from standfast.records import NO_IDENTITY, Range
from standfast.similarity import get as get_similarity
from standfast.similarity import is_degenerate
from standfast.tasks import measure_margin
from standfast.tensors import Streams
from standfast.value_spec import SANITY_CHECKS, Direction

#: the version of what is measured here and of what `standfast.results.sanity` decides; it stands in evidence packs, and
#: in the identity of stored checks
RULES = 2
#: how far a nearby input lies on the way to another sample
STEP = 0.05
#: shares of the features that are removed, and how many other samples give the values in their place
REMOVED = (0.15, 0.35)
DONORS = 3
#: the same for tables, where a column is a larger part of the input, and a prediction costs less
TABLE_DONORS = 10
#: how many random orders of the features, and how many scrambled models, removal from a sample is compared with
ORDERS = 2
SCRAMBLED = 3
#: into how many groups samples are divided, each with scrambled models of its own, and how few samples make a group
GROUPS = 5
GROUP_SIZE = 4
#: the margin of the class at a point between two samples is the mean of theirs, up to this share of the difference
_LINEAR = 1e-3
_ELEMENTS = 1 << 24  # numbers in the pairs of maps that are compared at once: 64 MB


@dataclass(frozen=True)
class SanityResult(Result):
    """What the checks measure of each sample; NaN where there is nothing to measure.

    Attributes:
        value: the excess: pseudo-values of the mean of `nearby` less that of `elsewhere`, `(N,)`.
        nearby, elsewhere: the similarity of the map to that of a nearby input, and to those of other samples, `(N,)`.
        within: as `value`, over samples of the same class; NaN where no class has two samples. `(N,)`
        scrambled: the size of the correlation with the maps of scrambled models; NaN if it cannot be scrambled, or the
            explainer cannot explain it. `(N,)`
        removal: the share of random removals that lower the margin less than removing what the map marks, `(N,)`.
        learned: the same for what maps of scrambled models mark, `(N,)`; NaN as `scrambled`.
        gains: how much more removing what the map marks lowers the margin than removing what the maps of each of the
            sample's scrambled models mark, `(N, SCRAMBLED)`; NaN as `scrambled`. In the frame: `"gain 0"`, ...
        group: the number of the group of samples that are compared with the same scrambled models; NaN where nothing is
            compared. `(N,)`
        other_class: the similarity to the map of the runner-up class, `(N,)`.
        negative: whether the map has negative values, `(N,)` bool.
        linear: whether the model answers between this sample and another one as a linear model would, `(N,)` bool.
        classes: how many classes the model has, `(N,)`.
        outside: the share of the features whose baseline lies outside of the data; NaN without a baseline. `(N,)`
        gap: the share by which attributions that should add up miss the change of the logit; NaN where they do not
            claim to. `(N,)`
        correct: 1 where the predicted class is the label, 0 elsewhere; NaN without labels. Also of samples whose status
            is not `"ok"`. `(N,)`
        references: for each metric of `SanityChecks.references` its value for the maps of inputs of other classes, or
            of all other inputs where there is one class (`"unrelated LABEL"`); of other inputs of the same class, where
            there are several (`"same class LABEL"`); of the same input for a scrambled model (`"scrambled LABEL"`); and
            for the same map (`"identical LABEL"`), `(N,)` each.
    """

    nearby: Tensor
    elsewhere: Tensor
    within: Tensor
    scrambled: Tensor
    removal: Tensor
    learned: Tensor
    gains: Tensor
    group: Tensor
    other_class: Tensor
    negative: Tensor
    linear: Tensor
    classes: Tensor
    outside: Tensor
    gap: Tensor
    correct: Tensor
    references: Mapping[str, Tensor] = field(default_factory=dict, metadata={"per_sample": False})

    def columns(self) -> dict[str, Any]:
        """Further columns of the frame, with one for each of the gains, and one for each reference."""
        gains = {name_gain(place): self.gains[:, place].tolist() for place in range(SCRAMBLED)}
        references = {name: values.tolist() for name, values in self.references.items()}
        return {**super().columns(), **gains, **references}


def name_gain(place: int) -> str:
    """The column of the gains over one of the scrambled models of each sample."""
    return f"gain {place}"


@dataclass(frozen=True)
class SanityChecks(Metric):
    """Measures what the sanity checks of `standfast.results.sanity` decide on.

    A study runs it once for each data set, model and explainer, on the first samples at once. Unlike the results of
    other metrics, these depend on the other samples, with which each is compared.

    Args:
        samples: how many samples a study checks at most, at least 3.
        labels: the true classes `(N,)`, for the accuracy; a study takes them from its data.
        flat: whether inputs are tables `(N, F)`, for the cost; a study takes it from its data.
        references: metrics by label, whose value for unrelated maps is measured (`Metric.compare_unrelated`).

    >>> import standfast
    >>> digits = standfast.data.bundled("digits")[:8]
    >>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> centre = SanityChecks()(model, "centre", digits.inputs)  # the same map for every input
    >>> round(float(centre.value.mean()), 6), round(float(centre.scrambled.mean()), 6)
    (0.0, 1.0)
    """

    name: ClassVar[str] = SANITY_CHECKS
    direction: ClassVar[Direction] = None
    citation: ClassVar[str] = "adebayo2018sanity"
    version: ClassVar[int] = RULES
    takes_widths: ClassVar[bool] = True

    samples: Annotated[int, Range(least=3)] = 100
    labels: Tensor | None = field(default=None, repr=False)
    flat: bool = field(default=False, repr=False, compare=False, metadata=NO_IDENTITY)
    references: Mapping[str, Metric] = field(default_factory=dict, repr=False)

    @property
    def revision(self) -> int:
        """One more where the values for unrelated maps used to depend on the order of the samples."""
        in_order = any(metric.compares_in_order for metric in self.references.values())
        return self.version + 1 if in_order else self.version

    @property
    def samples_together(self) -> int:
        return self.samples

    def options(self) -> dict[str, Any]:
        return {"samples": self.samples, "rules": RULES}

    def cost(self, classes: int | None = None) -> Cost:
        """Once the inputs are known (`bind`) that of them: of tables more copies are predicted."""
        donors = TABLE_DONORS if self.flat else DONORS
        removed = (1 + ORDERS + SCRAMBLED) * len(REMOVED) * donors
        half_way = 1
        # the map itself, those of a nearby input and of another class, and those of scrambled models, which answer, too
        return Cost(predictions=half_way + removed + SCRAMBLED, explanations=3 + SCRAMBLED)

    def describe_misfit(self, explainer: Explainer) -> str:
        return "a control says nothing of the model" if explainer.control else ""

    def bind(
        self,
        *,
        extras: Mapping[str, Tensor] | None = None,
        inputs: Tensor | None = None,
        rows: slice | None = None,
        **known: Any,
    ) -> SanityChecks:
        """With the labels of the data, where it has some, or with those of the rows; and whether it is a table."""
        flat = self.flat if inputs is None else inputs.ndim == 2
        labels = self.labels if extras is None else extras.get("labels", self.labels)
        if labels is None or labels.ndim != 1 or labels.is_floating_point():
            return self if flat == self.flat else replace(self, flat=flat)
        return replace(self, flat=flat, labels=labels.long() if rows is None else labels[rows].long())

    def evaluate(self, call: Call) -> SanityResult:
        """Explain every sample several times, and remove features from it."""
        model, explainer, inputs = call.model, call.explainer, call.inputs
        forget_gap(explainer, model)  # what other inputs have shown would depend on what ran before
        probe = Probe(call, "pearson")
        gap = find_gap(explainer, model)
        rows, seed = probe.usable(), call.seed
        answers, task = probe.targets[rows], model.task
        classes = task.describe(answers)
        blank = torch.full((len(rows),), torch.nan, device=inputs.device, dtype=torch.float64)
        names = ("nearby", "elsewhere", "excess", "within", "scrambled", "removal", "learned", "group", "other_class")
        found = {**dict.fromkeys(names, blank), "gains": blank[:, None].expand(-1, SCRAMBLED)}
        linear = torch.zeros_like(rows, dtype=torch.bool)
        scrambled: list[Tensor] = []
        if len(rows) > 1:
            x, partner = inputs[rows], _choose_partners(classes)
            with contextlib.suppress(Exception):  # a model may refuse what lies between two samples, or mixes of them
                found["nearby"] = probe.query(model.move_towards(x, x[partner], STEP), rows).similarity.double()  # type: ignore[union-attr]
                linear = _is_linear(model, x, probe.logits[rows], partner)
            maps = probe.reference[rows]
            there = _find_there(model, x)
            found["elsewhere"], found["excess"] = _compare_pairs(maps, classes, found["nearby"], there)
            found["within"] = _compare_pairs(maps, classes, found["nearby"], there, same=True)[1]
            made = self._explain_scrambled(probe, x, rows)
            # a map that gives up on scrambled weights says nothing about them
            lost = [~each.flatten(1).isfinite().all(1) | is_degenerate(each.nan_to_num()) for each in made]
            scrambled = [each.nan_to_num(0.0, 0.0, 0.0) for each in made]
            alike = [probe.similarity_to(rows, each).double().abs() for each in scrambled]
            found["scrambled"] = _average(alike, lost, blank)
            with contextlib.suppress(Exception):
                found |= self._compare_removals(probe, x, rows, scrambled, lost, seed)
        if len(rows) and task.classes:
            found["other_class"] = self._compare_classes(probe, inputs[rows], rows, classes)
        everywhere = torch.full_like(probe.margin, torch.nan, dtype=torch.float64)
        predicted = task.describe(task.answer(probe.logits))
        correct = everywhere
        if self.labels is not None and self.labels.shape == predicted.shape and task.classes:
            correct = (predicted == self.labels.to(predicted.device)).double()
        return SanityResult(
            **probe.common_fields(self, value=found.pop("excess"), linear=linear, **found),
            negative=(probe.maps < 0).flatten(1).any(1),
            classes=torch.full_like(predicted, probe.logits.shape[1] if task.classes else 0),
            outside=torch.full_like(everywhere, measure_outside(explainer, inputs)),
            gap=torch.full_like(everywhere, gap),
            correct=correct,
            references=self._compare_references(probe, rows, scrambled),
        )

    def _compare_removals(
        self,
        probe: Probe,
        x: Tensor,
        rows: Tensor,
        scrambled: Sequence[Tensor],
        lost: Sequence[Tensor],
        seed: int,
    ) -> dict[str, Tensor]:
        """The fields that say what removing what the map marks does, against chance and against scrambled models."""
        maps = [probe.maps[rows], *scrambled]
        wins, gains, copies = _remove(probe.model, x, maps, probe.targets[rows], seed)
        probe.charge(rows, 1 + copies)
        against_chance = wins[:ORDERS].nanmean(0)
        if not scrambled:
            return {"removal": against_chance}
        return {
            "removal": against_chance,
            "learned": _average(wins[ORDERS:].unbind(), lost, against_chance),
            "gains": gains[ORDERS:].masked_fill(torch.stack(list(lost)), torch.nan).T,
            "group": _divide_into_groups(x).double(),
        }

    def _explain_scrambled(self, probe: Probe, x: Tensor, rows: Tensor) -> list[Tensor]:
        """The maps of `SCRAMBLED` scrambled models for each sample, `(n, ...)` each; NaN where there is none.

        Each group of samples has scrambled models of its own. Empty if no model can be scrambled, or be explained.
        """
        if x[0].numel() < 3:  # two values are always correlated by 1 or -1
            return []
        maps = probe.maps[rows].new_full((SCRAMBLED, *probe.maps[rows].shape), torch.nan)
        groups = _divide_into_groups(x)
        with contextlib.suppress(Exception):  # a module may refuse what another one accepts
            for seed in range(SCRAMBLED * (int(groups.max()) + 1)):
                group, place = divmod(seed, SCRAMBLED)
                members = (groups == group).nonzero()[:, 0]
                explained = self._explain_one_scrambled(probe, x[members], rows[members], seed)
                if explained is not None:
                    maps[place, members] = explained.to(maps)
        return list(maps) if bool((~maps.isnan()).any()) else []

    def _explain_one_scrambled(self, probe: Probe, x: Tensor, rows: Tensor, seed: int) -> Tensor | None:
        """The maps of one scrambled model; None if it answers as before, as one whose only parameter is a factor."""
        model, shuffled = probe.model, RandomisedExplainer(probe.explainer, seed=seed)
        shuffles = any(True for _ in model.module.parameters())
        scrambled = model if shuffles else _permute_columns(model, x, seed)
        own = _centre(model, probe.logits[rows])
        with scrambled.session():
            with shuffled.shuffling(model.module) if shuffles else contextlib.nullcontext():
                logits = _predict(scrambled, x)
            if torch.allclose(_centre(model, logits), own, 1e-4, 1e-4 * float(own.abs().max())):
                return None
            explainer = shuffled if shuffles else probe.explainer
            maps, _ = explainer.attribute_all(scrambled, x, probe.targets[rows])
        probe.charge(rows, 2)
        return maps

    def _compare_classes(self, probe: Probe, x: Tensor, rows: Tensor, classes: Tensor) -> Tensor:
        """The similarity to the maps of the classes with the second largest logit `(n,)`; NaN where there is none."""
        runner_up = probe.logits[rows].scatter(1, classes[:, None], -torch.inf).argmax(1)
        with contextlib.suppress(Exception):  # an explainer may know the predicted class alone
            maps, _ = probe.explainer.attribute_all(probe.model, x, runner_up)
            probe.charge(rows)
            return probe.similarity_to(rows, maps).double()
        return torch.full_like(rows, torch.nan, dtype=torch.float64)

    def _compare_references(self, probe: Probe, rows: Tensor, scrambled: Sequence[Tensor]) -> dict[str, Tensor]:
        """For each metric of `references` its value for maps that have nothing in common, or little, `(N,)` each."""
        found: dict[str, Tensor] = {}
        classes = probe.model.task.describe(probe.targets[rows])
        numbers = torch.arange(len(rows), device=rows.device)
        kinds = {"unrelated": _pair(classes)}
        if bool((classes != classes[:1]).any()):  # else the same pairs would stand under two names
            kinds["same class"] = _pair(classes, same=True)
        kinds |= {"identical": (numbers, numbers)} | ({"scrambled": (numbers, numbers)} if scrambled else {})
        for label, metric in self.references.items():
            for kind, pairs in kinds.items():
                both_ways = metric.compares_in_order and kind in ("unrelated", "same class")
                first, second = _exchange(*pairs) if both_ways else pairs
                others = scrambled[0] if kind == "scrambled" else probe.maps[rows]
                parts = []
                for part in _cut(first, others):
                    values = metric.compare_unrelated(probe.maps[rows[first[part]]], others[second[part]])
                    parts += [] if values is None else [values.double()]
                if parts and kind == "unrelated":
                    words = metric.describe_misuse(float(torch.cat(parts).mean()))
                    if words:
                        probe.model.warn_once(f"{probe.explainer.label}: {words}")
                if parts:
                    values = torch.cat(parts)
                    if both_ways:  # each sample has the pairs in which it stands first, as in the metric itself
                        sums, weights = _sum_first(values, first, len(rows))
                    else:
                        sums, weights = _sum_pairs(values, first, second, len(rows))
                    found[f"{kind} {label}"] = probe.scatter_to_all(sums / weights)
        return found


def make_checks(sanity: bool | int, metrics: Mapping[str, Metric]) -> SanityChecks | None:
    """The checks that `evaluate` and studies ask for, or None.

    Args:
        sanity: True for the usual ones, a number of samples, or False.
        metrics: what else is measured, by label: checks show what unrelated maps would get there.

    Raises:
        ArgumentError: `sanity` is something else.
    """
    if sanity is False:
        return None
    references = {label: metric for label, metric in metrics.items() if metric.compares_maps}
    if sanity is True:
        return SanityChecks(references=references)
    check_integer(sanity, "sanity", 3)
    return SanityChecks(samples=int(sanity), references=references)


def _choose_partners(classes: Tensor) -> Tensor:
    """For each sample the number of the next one of another class, or of the next one where all are of one class."""
    count = len(classes)
    order = (torch.arange(count)[:, None] + torch.arange(1, count)) % count  # the others, from the next one on
    order = order.to(classes.device)
    other = classes[order] != classes[:, None]
    return order.gather(1, other.long().argmax(1, keepdim=True))[:, 0]


def _divide_into_groups(x: Tensor) -> Tensor:
    """The number of the group of each sample `(n,)`: neighbours are in different groups, which are of equal size."""
    groups = max(1, min(GROUPS, len(x) // GROUP_SIZE))
    return torch.arange(len(x), device=x.device) % groups


def _pair(classes: Tensor, same: bool = False) -> tuple[Tensor, Tensor]:
    """All pairs of samples of different classes, or of all samples where there is one class; or those of the `same`."""
    first, second = torch.triu_indices(len(classes), len(classes), 1, device=classes.device)
    other = classes[first] != classes[second]
    if same:
        return first[~other], second[~other]
    return (first[other], second[other]) if bool(other.any()) else (first, second)


def _cut(pairs: Tensor, maps: Tensor) -> list[slice]:
    """Slices of the pairs whose maps may be held at once."""
    size = max(1, _ELEMENTS // max(1, maps.shape[1:].numel()))  # there may be no map
    return [slice(start, start + size) for start in range(0, len(pairs), size)]


def _exchange(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs, and all pairs with the two samples exchanged."""
    return torch.cat([first, second]), torch.cat([second, first])


def _sum_first(values: Tensor, first: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The sum of the values of the pairs in which each sample stands first, and how many there are, `(count,)` each."""
    sums = values.new_zeros(count).index_add(0, first, values)
    return sums, values.new_zeros(count).index_add(0, first, torch.ones_like(values))


def _sum_pairs(values: Tensor, first: Tensor, second: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The sum of the values of each sample's pairs, and how many pairs it has, `(count,)` each."""
    sums = values.new_zeros(count).index_add(0, first, values).index_add(0, second, values)
    ones = torch.ones_like(values)
    weights = values.new_zeros(count).index_add(0, first, ones).index_add(0, second, ones)
    return sums, weights


def _predict(model: Model, x: Tensor) -> Tensor:
    """The logits of inputs `(n, ...)`, inside a session."""
    (logits,) = model.map_rows(lambda rows: (model.forward(rows.clone()),), x, evaluations=0)
    return logits


def _find_there(model: Model, x: Tensor) -> Tensor | None:
    """Where inputs `(n, W)` that end at different places are there, bool; None where all have the same width."""
    widths = None if model.black_box is None else model.black_box.find_widths(x)
    return None if widths is None else torch.arange(x.shape[1], device=x.device) < widths[:, None]


def _compare_pairs(
    maps: Tensor, classes: Tensor, nearby: Tensor, there: Tensor | None = None, same: bool = False
) -> tuple[Tensor, Tensor]:
    """The mean similarity of each map to those of other samples, and the pseudo-values of the excess, `(n,)` each.

    The others are those of other classes, or those of the `same`. NaN where there is none, and where `nearby` is NaN.
    Maps are compared where both inputs are `there`, bool `(n, W)`.
    """
    known = nearby.isfinite()
    blank = torch.full_like(nearby, torch.nan)
    first, second = _pair(classes[known], same)
    if not len(first):
        return blank, blank
    maps, pearson = maps[known], get_similarity("pearson")
    if there is None:
        compare = pearson.prepare(maps)
        parts = [compare(maps[second[part]], first[part]) for part in _cut(first, maps)]
    else:
        both = there[known]
        pairs = [(first[part], second[part]) for part in _cut(first, maps)]
        parts = [pearson.compare_masked(maps[a], maps[b], both[a] & both[b]).nan_to_num() for a, b in pairs]
    alike = torch.cat(parts).double()
    found = _find_pseudo_values(alike, first, second, nearby[known])
    return blank.masked_scatter(known, found[0]), blank.masked_scatter(known, found[1])


def _find_pseudo_values(alike: Tensor, first: Tensor, second: Tensor, nearby: Tensor) -> tuple[Tensor, Tensor]:
    """What `_compare_pairs` returns, from the similarities of the pairs `(M,)` and those at nearby inputs `(n,)`."""
    count = len(nearby)
    sums, weights = _sum_pairs(alike, first, second, count)
    elsewhere, total, pairs = sums / weights, alike.sum(), len(alike)
    if count < 3:
        return elsewhere, nearby - elsewhere
    without = (nearby.sum() - nearby) / (count - 1) - (total - sums) / (pairs - weights)
    excess = nearby.mean() - total / pairs
    # a sample that is in all pairs, such as the only one of its class, has no pseudo-value
    pseudo = count * excess - (count - 1) * without
    return elsewhere, torch.where(weights < pairs, pseudo, torch.nan)


def _permute_columns(model: Model, x: Tensor, seed: int) -> Model:
    """A model that reads the features of an input in another order."""
    count = x[0].numel()
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    order = order if count < 2 or bool((order != torch.arange(count)).any()) else order.roll(1)
    order, before = order.to(x.device), model.preprocess

    def permute(rows: Tensor) -> Tensor:
        moved = rows.flatten(1)[:, order].reshape(rows.shape)
        return moved if before is None else before(moved)

    permuted = copy.copy(model)
    permuted.preprocess, permuted.fitting = permute, set()
    return permuted


def _average(values: Sequence[Tensor], lost: Sequence[Tensor], blank: Tensor) -> Tensor:
    """The mean of several tensors `(n,)` without what is lost of each; NaN where nothing is left."""
    kept = [each.masked_fill(gone, torch.nan) for each, gone in zip(values, lost, strict=True)]
    return torch.stack(kept).nanmean(0) if kept else blank


def _remove(model: Model, x: Tensor, maps: Sequence[Tensor], answers: Tensor, seed: int) -> tuple[Tensor, Tensor, int]:
    """How often removing what the first map marks lowers the margin more than removing as much in another order.

    Ties are halves, and equal sets of features do not count. Features get the values of other samples; the margin is
    the mean over these.

    Returns:
        `(M, n)`: the shares for `ORDERS` random orders, then for those of the other maps, NaN where all sets are equal;
        `(M, n)`: by how much more the margin is lowered, a mean over the shares of the features; and how many copies of
        each sample were predicted.
    """
    shuffles = _draw_shuffles(x, seed)
    own, *others = (_order(each, shuffles[:, 0]) for each in maps)
    orders = [own, *shuffles[:, 1:].unbind(1), *others]
    numbers = _choose_numbers(x)
    margins = torch.stack([_measure_without(model, x, order, numbers, answers) for order in orders])
    own_sets, *other_sets = ([_mark_first(order, number) for number in numbers] for order in orders)
    equal = torch.stack(
        [
            torch.stack([(first == second).all(1) for first, second in zip(own_sets, sets, strict=True)])
            for sets in other_sets
        ]
    )
    wins, gains = _compare_margins(margins[0], margins[1:], equal)
    return wins, gains, len(orders) * len(numbers) * _count_donors(x)


def _draw_shuffles(x: Tensor, seed: int) -> Tensor:
    """Random orders of the features of each sample `(n, 1 + ORDERS, features)`; the first breaks ties in maps."""
    features = x[0].numel() if x.ndim == 2 else x[0, 0].numel()
    return Streams.for_rows(x, seed).uniform((1 + ORDERS, features), torch.float64).argsort(dim=2)


def _choose_numbers(x: Tensor) -> list[int]:
    """How many features are removed: at least one, and not all."""
    features = x[0].numel() if x.ndim == 2 else x[0, 0].numel()
    return sorted({min(max(1, round(share * features)), max(1, features - 1)) for share in REMOVED})


def _count_donors(x: Tensor) -> int:
    """From how many other samples removed features get their values."""
    return min(TABLE_DONORS if x.ndim == 2 else DONORS, len(x) - 1)


def _mark_first(order: Tensor, number: int) -> Tensor:
    """Which features are the first `number` of an order, `(n, features)`."""
    return torch.zeros_like(order, dtype=torch.bool).scatter_(1, order[:, :number], True)


def _measure_without(model: Model, x: Tensor, order: Tensor, numbers: Sequence[int], answers: Tensor) -> Tensor:
    """How far the model is from each answer without the first features of an order, a mean over donors.

    Args:
        order: of the features, `(n, features)`.
        numbers: how many of them are removed.

    Returns:
        `(numbers, n)`; the larger, the less of the margin is left.
    """
    count, donors = len(x), _count_donors(x)
    shifts = [1 + donor * (count - 1) // donors for donor in range(donors)]
    samples = torch.arange(count, device=x.device)
    owners, sources = samples.repeat(donors), torch.cat([(samples + shift) % count for shift in shifts])
    margins = []
    for number in numbers:
        gone = _mark_first(order, number)
        gone = gone if x.ndim == 2 else gone.reshape(count, 1, *x.shape[2:])
        logits = _predict(model, torch.where(gone[owners], x[sources], x[owners]))
        of_copies = measure_margin(model.task, logits, answers[owners], guide=True)
        margins.append(of_copies.double().reshape(donors, count).mean(0))
    return torch.stack(margins)


def _compare_margins(own: Tensor, others: Tensor, equal: Tensor) -> tuple[Tensor, Tensor]:
    """Of `_measure_without`, the share of removals that are won against others `(M, n)`, and the mean gain `(M, n)`.

    Args:
        own: `(numbers, n)`.
        others: `(M, numbers, n)`.
        equal: whether the same features are removed, `(M, numbers, n)`.
    """
    more = (own > others).double() + 0.5 * (own == others).double()
    fine = (own + others).isfinite()
    wins = torch.where(fine & ~equal, more, torch.nan).nanmean(1)
    gains = torch.where(fine, own - others, torch.nan).nanmean(1)
    return wins, gains


def _order(maps: Tensor, shuffle: Tensor) -> Tensor:
    """The features by their values in the map, the largest first and equal ones as in `shuffle`, `(n, features)`."""
    values = (maps if maps.ndim == 2 else maps.sum(1)).flatten(1).gather(1, shuffle)
    return shuffle.gather(1, values.argsort(dim=1, descending=True, stable=True))


def _centre(model: Model, outputs: Tensor) -> Tensor:
    """Outputs `(n, K)`; of classes without what all logits have in common, which no softmax sees."""
    outputs = outputs.flatten(1)
    return outputs - outputs.mean(1, keepdim=True) if model.task.classes else outputs


def _is_linear(model: Model, x: Tensor, logits: Tensor, partner: Tensor) -> Tensor:
    """Whether the margins half way to another sample are the means of both, as of a linear model, `(n,)`."""
    between = _predict(model, x + (x[partner] - x) / 2)
    centred, ends = (_centre(model, each.double()) for each in (between, logits))
    error = (centred - (ends + ends[partner]) / 2).abs().amax(1)
    return error <= _LINEAR * (ends - ends[partner]).abs().amax(1)
