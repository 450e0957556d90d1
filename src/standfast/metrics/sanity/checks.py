"""`SanityChecks`: measures, for each sample, what the sanity checks of an explainer decide on."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from standfast.errors import check_integer
from standfast.explainers import Explainer
from standfast.explainers.background import measure_outside
from standfast.explainers.completeness import find_gap, forget_gap
from standfast.metrics.base import Cost, Metric
from standfast.metrics.probe import Call, Probe
from standfast.metrics.result import Result
from standfast.metrics.sanity.pairs import choose_partners, compare_pairs
from standfast.metrics.sanity.references import compare_references
from standfast.metrics.sanity.removal import DONORS, ORDERS, REMOVED, TABLE_DONORS, Removal
from standfast.metrics.sanity.samples import ExplainedSamples, centre_outputs, predict
from standfast.metrics.sanity.scrambling import SCRAMBLED, ScrambledMaps, explain_scrambled
from standfast.model import Model
from standfast.records import NO_IDENTITY, Range
from standfast.value_spec import SANITY_CHECKS, Direction

#: the version of what is measured here and of what `standfast.results.sanity` decides. It stands in evidence packs, and
#: in the identity of stored checks; some of those of rules 1 have a 2 there, so there are no rules 2
RULES = 3
#: how far a nearby input lies on the way to another sample
STEP = 0.05
#: the margin of the class at a point between two samples is the mean of theirs, up to this share of the difference
_LINEAR = 1e-3


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
        gains = {name_gain(number): values.tolist() for number, values in enumerate(self.gains.T)}
        references = {name: values.tolist() for name, values in self.references.items()}
        return {**super().columns(), **gains, **references}


def name_gain(number: int) -> str:
    """The column of the gains over one of the scrambled models of each sample."""
    return f"gain {number}"


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

    name = SANITY_CHECKS
    direction: ClassVar[Direction] = None
    citation = "adebayo2018sanity"
    version = RULES
    takes_widths = True

    samples: Annotated[int, Range(least=3)] = 100
    labels: Tensor | None = field(default=None, repr=False)
    flat: bool = field(default=False, repr=False, compare=False, metadata=NO_IDENTITY)
    references: Mapping[str, Metric] = field(default_factory=dict, repr=False)

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
        if explainer.control:
            return "a control says nothing of the model"
        return ""

    def bind(
        self,
        *,
        extras: Mapping[str, Tensor] | None = None,
        inputs: Tensor | None = None,
        rows: slice | None = None,
        **others: Any,
    ) -> SanityChecks:
        """With the labels of the data, where it has some, or with those of the rows; and whether it is a table."""
        bound = self
        if inputs is not None and self.flat != (inputs.ndim == 2):
            bound = replace(self, flat=inputs.ndim == 2)
        if extras is None:
            labels = self.labels
        else:
            labels = extras.get("labels", self.labels)
        if labels is None or labels.ndim != 1 or labels.is_floating_point():
            return bound
        of_rows = labels if rows is None else labels[rows]
        return replace(bound, labels=of_rows.long())

    def evaluate(self, call: Call) -> SanityResult:
        """Explain every sample several times, and remove features from it."""
        # what other inputs have shown would depend on what ran before
        forget_gap(call.explainer, call.model)
        probe = Probe(call, "pearson")
        gap = find_gap(call.explainer, call.model)
        samples = ExplainedSamples(probe, call.inputs)
        measured = _leave_blank(samples)
        scrambled = None
        if len(samples) > 1:
            measured |= _compare_inputs(samples)
            scrambled = explain_scrambled(samples)
            if scrambled is not None:
                measured["scrambled"] = _compare_scrambled(samples, scrambled)
            with contextlib.suppress(Exception):  # a model may refuse mixes of two samples
                measured |= _compare_removals(samples, scrambled, call.seed)
        if len(samples) and probe.model.task.classes:
            measured["other_class"] = _compare_classes(samples)
        everywhere = torch.full_like(probe.margin, torch.nan, dtype=torch.float64)
        predicted = probe.model.task.describe(probe.model.task.answer(probe.logits))
        if probe.model.task.classes:
            classes = probe.logits.shape[1]
        else:
            classes = 0
        others = None
        if scrambled is not None:
            others = scrambled.maps[0]
        return SanityResult(
            **probe.common_fields(self, **measured),
            negative=(probe.maps < 0).flatten(1).any(1),
            classes=torch.full_like(predicted, classes),
            outside=torch.full_like(everywhere, measure_outside(call.explainer, call.inputs)),
            gap=torch.full_like(everywhere, gap),
            correct=self._find_correct(predicted, everywhere) if classes else everywhere,
            references=compare_references(self.references, samples, others),
        )

    def _find_correct(self, predicted: Tensor, unknown: Tensor) -> Tensor:
        """Where the predicted class is the label, `(N,)`; `unknown` if there are no labels of the samples."""
        if self.labels is None or self.labels.shape != predicted.shape:
            return unknown
        return (predicted == self.labels.to(predicted.device)).double()


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


def _leave_blank(samples: ExplainedSamples) -> dict[str, Tensor]:
    """The fields of the usable samples, as they are where nothing can be measured."""
    names = (
        "value",
        "nearby",
        "elsewhere",
        "within",
        "scrambled",
        "removal",
        "learned",
        "group",
        "other_class",
    )
    fields = dict.fromkeys(names, samples.blank)
    fields["gains"] = samples.blank[:, None].expand(-1, SCRAMBLED)
    fields["linear"] = torch.zeros_like(samples.rows, dtype=torch.bool)
    return fields


def _compare_inputs(samples: ExplainedSamples) -> dict[str, Tensor]:
    """The fields that say how maps of other inputs differ."""
    model = samples.model
    x = samples.x
    maps = samples.probe.reference[samples.rows]
    partner = choose_partners(samples.classes)
    nearby = samples.blank
    linear = torch.zeros_like(samples.rows, dtype=torch.bool)
    with contextlib.suppress(Exception):  # a model may refuse what lies between two samples
        similarity = samples.probe.query(
            model.move_towards(x, x[partner], STEP), samples.rows
        ).similarity
        assert similarity is not None
        nearby = similarity.double()
        linear = _is_linear(samples, partner)
    is_there = _find_there(model, x)
    elsewhere, excess = compare_pairs(maps, samples.classes, nearby, is_there)
    _, within = compare_pairs(maps, samples.classes, nearby, is_there, same=True)
    return {
        "value": excess,
        "nearby": nearby,
        "elsewhere": elsewhere,
        "within": within,
        "linear": linear,
    }


def _is_linear(samples: ExplainedSamples, partner: Tensor) -> Tensor:
    """Whether the margins half way to another sample are the means of both, as of a linear model, `(n,)`."""
    x = samples.x
    middles = x + (x[partner] - x) / 2
    half_way = predict(samples.model, middles)
    centred = centre_outputs(samples.model, half_way.double())
    ends = centre_outputs(samples.model, samples.logits.double())
    error = (centred - (ends + ends[partner]) / 2).abs().amax(1)
    distance = (ends - ends[partner]).abs().amax(1)
    return error <= _LINEAR * distance


def _find_there(model: Model, x: Tensor) -> Tensor | None:
    """Where inputs `(n, W)` that end at different places are there, bool; None where all have the same width."""
    widths = None
    if model.black_box is not None:
        widths = model.black_box.find_widths(x)
    if widths is None:
        return None
    positions = torch.arange(x.shape[1], device=x.device)
    return positions < widths[:, None]


def _compare_scrambled(samples: ExplainedSamples, scrambled: ScrambledMaps) -> Tensor:
    """The size of the correlation with the maps of scrambled models, `(n,)`."""
    similarities = [
        samples.probe.similarity_to(samples.rows, maps).double() for maps in scrambled.maps
    ]
    return scrambled.average(torch.stack(similarities).abs())


def _compare_removals(
    samples: ExplainedSamples, scrambled: ScrambledMaps | None, seed: int
) -> dict[str, Tensor]:
    """The fields that say what removing what the map marks does, against chance and against scrambled models."""
    removal = Removal(samples.model, samples.x, samples.answers)
    others = [] if scrambled is None else list(scrambled.maps)
    wins, gains, copies = removal.compare([samples.maps, *others], seed)
    half_way = 1  # of `_is_linear`
    samples.probe.charge(samples.rows, half_way + copies)
    against_chance = {"removal": wins[:ORDERS].nanmean(0)}
    if scrambled is None:
        return against_chance
    return against_chance | {
        "learned": scrambled.average(wins[ORDERS:]),
        "gains": gains[ORDERS:].masked_fill(scrambled.lost, torch.nan).T,
        "group": scrambled.groups.double(),
    }


def _compare_classes(samples: ExplainedSamples) -> Tensor:
    """The similarity to the maps of the classes with the second largest logit `(n,)`; NaN where there is none."""
    other_logits = samples.logits.scatter(1, samples.classes[:, None], -torch.inf)
    runner_up = other_logits.argmax(1)
    with contextlib.suppress(Exception):  # an explainer may know the predicted class alone
        maps, _ = samples.explainer.attribute_all(samples.model, samples.x, runner_up)
        samples.probe.charge(samples.rows)
        return samples.probe.similarity_to(samples.rows, maps).double()
    return samples.blank
