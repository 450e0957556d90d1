"""Localisation: how much of an explanation's positive relevance lies where it is known to belong.

Problem: of each sample it is known which positions M carry the class: the blocks of a synthetic series, the object of a
rendered scene. With R the relevance of the P positions, and R+ its positive part,

    mass accuracy = sum over M of R+ / sum over all of R+
    rank accuracy = the share of the |M| most relevant positions that lie in M
    pointing hit  = whether the most relevant position lies in M

Sources: Arras, Osman and Samek, "CLEVR-XAI: a benchmark dataset for the ground truth evaluation of neural network
explanations", Information Fusion 81, 2022, Sec. 3.3 (relevance mass and rank accuracy); Zhang, Bargal, Lin, Brandt,
Shen and Sclaroff, "Top-down neural attention by excitation backprop", IJCV 126, 2018 (pointing game; ours has no
tolerance around M).

Chance is |M| / P for all three: exactly what a map gets in expectation whose values at all positions are exchangeable,
as those of `random` are. A map that is smooth, or drawn to edges, is no such map: compare with `random` and `centre`.

A map is judged against the task's ground truth, not against the model: low values are the explainer's fault only where
the model has learned to look at M, so the model must be right, and better than chance by a lot.

A sample without positive relevance is flagged, and counts with 0: its map has named nothing. Of equal positions the
first comes first. A mask that is empty, or everything, tells nothing: its sample is `"degenerate"`.

Cost for each sample: one prediction with explanation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from holdfast.errors import ArgumentError, check
from holdfast.explainers import Explainer
from holdfast.metrics.base import Metric, metrics
from holdfast.metrics.positions import Unit, relevance_of
from holdfast.metrics.probe import Probe
from holdfast.metrics.result import Result
from holdfast.model import Classifier
from holdfast.records import TensorOption, set_fields
from holdfast.similarity.rows import row_sum

_ELEMENTS = 1 << 22  # numbers in the relevance that is sorted at once: 16 MB, and some four times that
_EXPECTED = "masks of each sample, bool (or 0 and 1)"

#: from inputs `(N, ...)` to their masks, each row by itself
MaskOf = Callable[[Tensor], Tensor]


@dataclass(frozen=True, init=False)
class Masks(TensorOption):
    """Masks as an option of a frozen configuration: compared, hashed and written down by their digest.

    Args:
        masks: `(N, ...)`, or `(1, ...)` of one mask for all samples; bool, or nothing but 0 and 1. Copied.

    Raises:
        ArgumentError: something else than such masks.

    >>> a, b = (Masks(torch.tensor([[True, False, True]])) for _ in range(2))
    >>> a == b, a.shape, a.values.tolist()
    (True, (1, 3), [[True, False, True]])
    """

    def __init__(self, masks: Tensor) -> None:
        got = f"{masks.dtype} of shape {tuple(masks.shape)}"
        check(masks.ndim >= 2 and masks.numel() > 0 and not masks.is_complex(), "masks", _EXPECTED, got)
        if masks.dtype != torch.bool:
            check(bool(((masks == 0) | (masks == 1)).all()), "masks", _EXPECTED, got)
        super().__init__(masks.to(torch.bool))

    @property
    def values(self) -> Tensor:
        """The masks themselves, bool on the CPU."""
        return self.tensor

    def of_samples(self, inputs: Tensor, rows: slice) -> Masks:
        """The masks of the samples `rows` of `inputs`, all of which they are for; itself if it is one for all.

        >>> masks = Masks(torch.tensor([[0, 0, 1], [1, 0, 0]]))
        >>> masks.of_samples(torch.zeros(2, 3), slice(1, 2)).values.tolist()
        [[True, False, False]]
        """
        fitted(self.values, inputs)
        return self if len(self.values) == 1 else Masks(self.values[rows])


def fitted(masks: Tensor, inputs: Tensor) -> Tensor:
    """Masks as a view of the shape of `inputs` `(N, C, *spatial)`, bool, on their device.

    Args:
        masks: `(N, C, *spatial)`, or for all channels alike `(N, 1, *spatial)` or `(N, *spatial)`; with 1 for N, one
            for all samples.
        inputs: any.

    Raises:
        ArgumentError: masks of another shape.

    >>> fitted(torch.tensor([[True, False]]), torch.zeros(3, 4, 2)).shape
    torch.Size([3, 4, 2])
    """
    count, *each = inputs.shape
    spatial = each[1:] or each
    shapes = list(dict.fromkeys((tuple(each), (1, *spatial)[-len(each) :], tuple(spatial))))
    words = " or ".join(str((count, *shape)) for shape in shapes)
    fits = tuple(masks.shape[1:]) in shapes and len(masks) in (1, count)
    check(fits, "masks", f"shape {words}, or 1 for the {count} samples", tuple(masks.shape))
    masks = masks.to(inputs.device)
    return (masks if masks.ndim == inputs.ndim else masks[:, None]).expand(inputs.shape)


@dataclass(frozen=True)
class LocalisationResult(Result):
    """How much relevance lies inside the masks; `"degenerate"` where a mask is empty or everything.

    Attributes:
        mass_accuracy: the share of the positive relevance that lies inside, in [0, 1]; NaN for skipped samples. `(N,)`
        rank_accuracy: of the |M| most relevant positions, the share that lies inside; NaN for skipped samples. `(N,)`
        pointing_hit: the most relevant position lies inside; False for skipped samples. `(N,)` bool
        chance: |M| / P, which a map of exchangeable values gets in expectation, of all three. `(N,)`
        mask_size: |M|, positions inside. `(N,)` int
        positive_share: positions with positive relevance, of all; NaN for skipped samples. `(N,)`
        no_positive: there are none: all three are 0. `(N,)` bool
        trivial_mask: the mask is empty, or everything. `(N,)` bool
    """

    mass_accuracy: Tensor
    rank_accuracy: Tensor
    pointing_hit: Tensor
    chance: Tensor
    mask_size: Tensor
    positive_share: Tensor
    no_positive: Tensor
    trivial_mask: Tensor


@metrics.register("relevance_localisation")
@dataclass(frozen=True)
class RelevanceLocalisation(Metric):
    """How much of the positive relevance lies inside the true region (relevance mass accuracy, Arras et al. 2022)?

    Args:
        masks: where the relevance belongs: the name of one of the data set's `extras` (in a study, and in
            `holdfast.evaluate` of a data set); or a tensor, in the order of the samples, bool (or 0 and 1), shaped like
            the inputs `(N, C, ...)`, or without channels or with one, `(N, ...)` or `(N, 1, ...)`, for all channels
            alike, with 1 for N one for all samples; or a function from inputs to masks, each row by itself.
        positions: what is inside or outside: an `"entry"`, of any channel; or a `"pixel"` (a time step) with all its
            channels, whose relevances are summed, and which is inside where any of its channels is.
        absolute: count relevance without its sign; for explainers whose sign says nothing.

    Raises:
        ArgumentError: options out of range; in the call, masks that do not fit the inputs, or a name that nobody has
            looked up.

    >>> import holdfast as hf
    >>> digits = hf.data.bundled("digits")[:4]
    >>> classifier = hf.Classifier(hf.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    >>> metric = RelevanceLocalisation(masks=digits.inputs > 0.5)  # the digit's ink
    >>> result = metric(classifier, "integrated_gradients", digits.inputs)
    >>> bool((result.mass_accuracy > result.chance).all()), result.pointing_hit.tolist()
    (True, [True, True, True, True])
    """

    name: ClassVar[str] = "relevance_localisation"
    category: ClassVar[str] = "localisation"
    headline: ClassVar[str] = "mass_accuracy"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    citation: ClassVar[str] = "arras2022clevr"
    bibtex: ClassVar[str] = """@article{arras2022clevr,
  title   = {{CLEVR-XAI}: A benchmark dataset for the ground truth evaluation of neural network explanations},
  author  = {Arras, Leila and Osman, Ahmed and Samek, Wojciech},
  journal = {Information Fusion},
  volume  = {81},
  pages   = {14--40},
  year    = {2022}
}"""

    masks: str | Tensor | MaskOf = "masks"
    positions: Unit = "entry"
    absolute: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.masks, Tensor):  # becomes a value that can be compared, hashed and written down
            set_fields(self, masks=Masks(self.masks))
        named = isinstance(self.masks, str) and bool(self.masks)
        fine = named or isinstance(self.masks, Masks) or callable(self.masks)
        words = "the name of an extra of the data set, a tensor of masks, or a function"
        check(fine, "masks", words, repr(self.masks))
        check(self.positions in get_args(Unit), "positions", "'entry' or 'pixel'", repr(self.positions))
        check(isinstance(self.absolute, bool), "absolute", "True or False", self.absolute)

    @classmethod
    def example(cls) -> RelevanceLocalisation:
        """See `Metric`."""
        return cls(_first_half)

    def for_data(self, extras: Mapping[str, Tensor]) -> RelevanceLocalisation:
        """See `Metric`: the masks of that name."""
        if not isinstance(self.masks, str):
            return self
        words = f"the name of an extra of the data set ({', '.join(sorted(extras)) or 'which has none'})"
        check(self.masks in extras, "masks", words, repr(self.masks))
        return dataclasses.replace(self, masks=extras[self.masks])

    def for_samples(self, inputs: Tensor, rows: slice) -> RelevanceLocalisation:
        """See `Metric`: the masks of these samples, if every sample has its own."""
        if not isinstance(self.masks, Masks):
            return self
        own = self.masks.of_samples(inputs, rows)
        if own is self.masks:
            return self
        return dataclasses.replace(self, masks=own)

    def evaluate(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> LocalisationResult:
        """See `Metric`."""
        inside = self._inside(inputs)
        probe = Probe(classifier, explainer, inputs, targets)
        size, places = inside.sum(1), inside.shape[1]
        trivial = (size == 0) | (size == places)
        probe.skip(trivial)
        numbers_of = {
            name: torch.full((len(inputs),), torch.nan, dtype=torch.float64, device=inputs.device)
            for name in ("mass_accuracy", "rank_accuracy", "positive_share")
        }
        hit, no_positive = torch.zeros_like(trivial), torch.zeros_like(trivial)
        for rows in torch.split(probe.usable(), max(1, _ELEMENTS // places)):
            maps = probe.maps[rows]
            relevance = relevance_of(maps.abs() if self.absolute else maps, self.positions)
            found = inside_of(relevance, inside[rows])
            for name, values in numbers_of.items():
                values[rows] = getattr(found, name)
            hit[rows], no_positive[rows] = found.pointing_hit, found.no_positive
        return LocalisationResult(
            **probe.common_fields(self),
            value=numbers_of["mass_accuracy"],
            mass_accuracy=numbers_of["mass_accuracy"],
            rank_accuracy=numbers_of["rank_accuracy"],
            pointing_hit=hit,
            chance=size.double() / places,
            mask_size=size,
            positive_share=numbers_of["positive_share"],
            no_positive=no_positive,
            trivial_mask=trivial,
        )

    def _inside(self, inputs: Tensor) -> Tensor:
        """Which positions are inside, bool `(N, P)`."""
        if isinstance(self.masks, str):
            words = "masks; their name is looked up in a study, or in `holdfast.evaluate` of a data set with extras"
            raise ArgumentError("masks", words, repr(self.masks))
        if isinstance(self.masks, Masks):
            masks = self.masks.values
        else:
            assert callable(self.masks)  # since `__post_init__`
            found = self.masks(inputs.clone())
            check(isinstance(found, Tensor), "masks", "a function that returns masks", type(found).__name__)
            masks = Masks(found).values
        masks = fitted(masks, inputs)
        if self.positions == "pixel" and inputs.ndim > 2:
            masks = masks.any(1)
        return masks.flatten(1)


@dataclass(frozen=True)
class Inside:
    """What `inside_of` finds, a number for each row; see `LocalisationResult`."""

    mass_accuracy: Tensor
    rank_accuracy: Tensor
    pointing_hit: Tensor
    positive_share: Tensor
    no_positive: Tensor


def inside_of(relevance: Tensor, inside: Tensor) -> Inside:
    """Mass accuracy, rank accuracy and pointing game of `relevance` `(N, P)`, by where it is `inside`, bool `(N, P)`.

    >>> found = inside_of(torch.tensor([[3.0, 1.0, -5.0, 0.0]]), torch.tensor([[True, False, True, False]]))
    >>> found.mass_accuracy.tolist(), found.rank_accuracy.tolist(), found.pointing_hit.tolist()
    ([0.75], [0.5], [True])
    """
    positive = relevance.double().clamp(min=0)
    largest = positive.amax(1)
    none = largest == 0
    # scaled by a number of their own, that the sum of tiny ones is not zero nor that of huge ones infinite
    positive = positive / torch.where(none, 1.0, largest)[:, None]
    mass = row_sum(torch.where(inside, positive, 0.0)) / torch.where(none, 1.0, row_sum(positive))
    turns = relevance.argsort(dim=1, descending=True, stable=True)
    hits, size = inside.gather(1, turns), inside.sum(1)
    among = torch.arange(relevance.shape[1], device=relevance.device) < size[:, None]
    rank = (hits & among).sum(1).double() / size.clamp(min=1)
    return Inside(
        mass_accuracy=mass,
        rank_accuracy=torch.where(none, 0.0, rank),
        pointing_hit=hits[:, 0] & ~none,
        positive_share=(relevance > 0).sum(1).double() / relevance.shape[1],
        no_positive=none,
    )


def _first_half(inputs: Tensor) -> Tensor:
    """The first half of the last axis."""
    length = inputs.shape[-1]
    return (torch.arange(length, device=inputs.device) < length // 2).expand(inputs.shape)
